/* ptx_access.c - what each instruction that touches memory says about itself: direction, space, bytes
 * a lane, where the address, the data and the size are. */
#include <string.h>

#include "ptx/ptx.h"
#include "tap.h"

static const char op_letters[] = "-LSAP";
static const char *const opaque_names[] = { "", "texture", "tensor", "matrix", "descriptor" };

/* "L global 16 @1 =0": direction, space, bytes, address operand, data operand; then ~size operand,
 * #lanes, sync, and why it is opaque. */
static const struct {
	const char *insn, *access;
} cases[] = {
	{ "ld.global.u32 %r1, [%rd1];", "L global 4 @1 =0" },
	{ "ld.global.nc.L1::evict_last.L2::cache_hint.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1], %rd2;", "L global 16 @1 =0" },
	{ "ld.global.nc.v8.b32 {%r1, %r2, %r3, %r4, %r1, %r2, %r3, %r4}, [%rd1];", "L global 32 @1 =0" },
	{ "ld.relaxed.sys.shared::cluster.u8 %r1, [%r2];", "L shared::cluster 1 @1 =0" },
	{ "ld.acquire.gpu.b128 %q1, [%rd1];", "L generic 16 @1 =0" },
	{ "ld.weak.const.f64 %fd1, [%rd1];", "L const 8 @1 =0" },
	{ "ld.param::entry.u16 %r1, [p];", "L param 2 @1 =0" },
	{ "ldu.global.v2.u64 {%rd1, %rd2}, [%rd1];", "L global 16 @1 =0" },
	{ "ld.mmio.relaxed.sys.global.u32 %r1, [%rd1];", "L global 4 @1 =0" },
	{ "st.local.b16 [%rd1], %h1;", "S local 2 @0 =1" },
	{ "st.shared::cta.v2.b64 [%r1], {%rd1, %rd2};", "S shared 16 @0 =1" },
	{ "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {%r1, %r2, %r3, %r4}, [%r2];", "S shared::cluster 16 @0 =1" },
	{ "st.async.mbarrier::complete_tx::bytes.u64 [%r1], %rd1, [%r2];", "S shared::cluster 8 @0 =1" },
	{ "st.bulk.weak.shared::cta [%r1], 4096, 0;", "S shared 4096 @0 ~1" },
	{ "st.bulk [%r1], %rd1, 0;", "S shared 0 @0 ~1" },
	{ "atom.global.add.u32 %r1, [%rd1], %r2;", "A global 4 @1 =2" },
	{ "atom.shared.cas.b64 %rd1, [%r1], %rd2, %rd3;", "A shared 8 @1 =3" },
	{ "atom.acq_rel.gpu.global.exch.b128 %q1, [%rd1], %q2;", "A global 16 @1 =2" },
	{ "atom.global.v4.f32.add {%f1, %f2, %f3, %f4}, [%rd1], {%f1, %f2, %f3, %f4};", "A global 16 @1 =2" },
	{ "atom.global.noftz.add.bf16x2 %r1, [%rd1], %r2;", "A global 4 @1 =2" },
	{ "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster.add.u64 [%r1], %rd1, [%r2];", "A shared::cluster 8 @0 =1" },
	{ "red.global.add.noftz.f16x2 [%rd1], %r2;", "A global 4 @0 =1" },
	{ "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%r1, %r2, %r3, %r4}, [%rd1];", "L global 16 @1 =0" },
	{ "multimem.st.weak.global.u64 [%rd1], %rd2;", "S global 8 @0 =1" },
	{ "multimem.red.relaxed.sys.global.min.s32 [%rd1], %r1;", "A global 4 @0 =1" },
	{ "cp.async.ca.shared.global [%r1], [%rd1], 16;", "L global 16 @1" },
	{ "cp.async.cg.shared::cta.global.L2::128B [%r1], [%rd1], 16, %r2;", "L global 16 @1" },
	{ "cp.async.commit_group;", "-" },
	{ "cp.async.wait_group 1;", "-" },
	{ "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", "A shared 8 @0 sync" },
	{ "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 4096, [%r2];", "L global 4096 @1 ~2" },
	{ "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r1], [%rd1], %r3, [%r2], %rd2;", "L global 0 @1 ~2" },
	{ "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r2], %r3, [%r4];", "S shared::cluster 0 @0 ~2" },
	{ "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 256;", "S global 256 @0 ~2" },
	{ "cp.async.bulk.prefetch.L2.global [%rd1], 1024;", "P global 1024 @0 ~1" },
	{ "cp.async.bulk.commit_group;", "-" },
	{ "cp.async.bulk.wait_group.read 0;", "-" },
	{ "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 64;", "A global 64 @0 ~2" },
	{ "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.and.b32 [%r1], [%r2], %r3, [%r4];", "A shared::cluster 0 @0 ~2" },
	{ "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];", "L global 0 tensor" },
	{ "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r2}], [%r1];", "S global 0 tensor" },
	{ "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%rd1, {%r2}], [%r1];", "A global 0 tensor" },
	{ "cp.async.bulk.prefetch.tensor.1d.L2.global [%rd1, {%r2}];", "P global 0 tensor" },
	{ "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2;", "S global 128 @0 tensor" },
	{ "prefetch.global.L2 [%rd1];", "P global 0 @0" },
	{ "prefetchu.L1 [%rd1];", "P generic 0 @0" },
	{ "discard.global.L2 [%rd1], 128;", "P global 128 @0" },
	{ "applypriority.global.L2::evict_normal [%rd1], 128;", "P global 128 @0" },
	{ "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];", "L shared 16 @1 #8" },
	{ "ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%r1, %r2}, [%r2];", "L shared 16 @1 #16" },
	{ "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r2];", "L shared 16 @1" },
	{ "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r2];", "L shared 16 @1 #16" },
	{ "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r2, %r3};", "S shared 16 @0 #16" },
	{ "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4, %r1, %r2, %r3, %r4}, [%rd1], %r2;", "L global 512 @1 matrix" },
	{ "wmma.load.b.sync.aligned.col.m8n32k16.shared.bf16 {%r1, %r2, %r3, %r4}, [%rd1];", "L shared 1024 @1 matrix" },
	{ "wmma.load.a.sync.aligned.row.m8n8k32.s4 {%r1}, [%rd1], 64;", "L generic 128 @1 matrix" },
	{ "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1, %f2, %f3, %f4, %f1, %f2, %f3, %f4}, 16;", "S global 1024 @0 matrix" },
	{ "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f2};", "-" },
	{ "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd2, %rd3, 1, 1, 1, 0, 0;", "L shared 0 descriptor" },
	{ "wgmma.fence.sync.aligned;", "-" },
	{ "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];", "L tex 16 texture" },
	{ "tex.level.a2d.v4.s32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%r1, %f1, %f2, %f3}], %f1;", "L tex 16 texture" },
	{ "tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];", "L tex 16 texture" },
	{ "txq.width.b32 %r1, [%rd1];", "-" },
	{ "suld.b.2d.v2.b32.trap {%r1, %r2}, [%rd1, {%r3, %r4}];", "L tex 8 texture" },
	{ "sust.p.1d.b32.clamp [%rd1, {%r1}], %r2;", "S tex 4 texture" },
	{ "sured.b.add.2d.u32.trap [%rd1, {%r1, %r2}], %r3;", "A tex 4 texture" },
	{ "mbarrier.init.shared.b64 [%r1], 32;", "S shared 8 @0 sync" },
	{ "mbarrier.inval.shared::cta.b64 [%r1];", "S shared 8 @0 sync" },
	{ "mbarrier.arrive.shared.b64 %rd1, [%r1];", "A shared 8 @1 sync" },
	{ "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%r1], %r2;", "A shared::cluster 8 @1 sync" },
	{ "mbarrier.arrive_drop.noComplete.b64 %rd1, [%rd2], 3;", "A generic 8 @1 sync" },
	{ "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 128;", "A shared 8 @0 sync" },
	{ "mbarrier.complete_tx.shared::cluster.b64 [%r1], 128;", "A shared::cluster 8 @0 sync" },
	{ "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", "L shared 8 @1 sync" },
	{ "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;", "L shared 8 @1 sync" },
	{ "mbarrier.pending_count.b64 %r1, %rd1;", "-" },
	{ "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];", "S shared 16 @0" },
	{ "createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;", "-" },
	{ "cvta.to.global.u64 %rd1, %rd2;", "-" },
	{ "mapa.shared::cluster.u32 %r1, %r2, 0;", "-" },
	{ "isspacep.shared %p1, %rd1;", "-" },
	{ "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2};", "-" },
	{ "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;", "-" },
	{ "bar.sync 0;", "-" },
	{ "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", "-" },
	{ "frobnicate.global.u32 %r1, [%rd1];", "-" },
};

static void describe(const struct ptx_access *a, char *out)
{
	int n = sprintf(out, "%c", op_letters[a->op]);
	if (a->op == PTX_ACCESS_NONE)
		return;
	n += sprintf(out + n, " %s %u", ptx_space_name(a->space), a->bytes);
	if (a->address >= 0)
		n += sprintf(out + n, " @%d", a->address);
	if (a->value >= 0)
		n += sprintf(out + n, " =%d", a->value);
	if (a->size >= 0)
		n += sprintf(out + n, " ~%d", a->size);
	if (a->lanes)
		n += sprintf(out + n, " #%u", a->lanes);
	sprintf(out + n, "%s%s%s", a->sync ? " sync" : "", a->opaque ? " " : "", opaque_names[a->opaque]);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[1024], got[128];
		struct ptx_module *m = NULL;
		struct ptx_access a;
		snprintf(text, sizeof(text),
			".version 8.6\n.target sm_90a\n.entry k(.param .b32 p)\n{\n.reg .pred %%p<9>; .reg .b16 %%h<9>;"
			".reg .b32 %%r<9>; .reg .b64 %%rd<9>; .reg .b128 %%q<9>; .reg .f32 %%f<9>; .reg .f64 %%fd<9>;\n%s\n}\n",
			cases[i].insn);
		is_int(ptx_parse(text, strlen(text), &m, NULL), 0, "%s", cases[i].insn);
		const struct ptx_func *f = ptx_find_func(m, "k");
		ptx_insn_access(f->stmts[f->n_stmts - 1].insn, &a);
		describe(&a, got);
		is_str(got, cases[i].access, "%.40s", cases[i].insn);
		ptx_module_free(m);
	}
	return tap_done();
}
