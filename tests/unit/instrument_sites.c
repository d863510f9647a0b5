/* instrument_sites.c - which places of a kernel are sites: exact list, exact facts, and what is left alone. */
#include "instrument.h"

struct expected {
	enum ebpf_point point;
	uint32_t ptx_line, line; /* line: of .loc, 0 without */
	const char *opcode;
	enum ptx_space space;
	uint32_t bytes;
	bool skipped;
};

static void check(const char *file, const char *kernel, const struct expected *want, uint32_t n)
{
	struct ptx_module *m = parse_golden(file, NULL, NULL);
	struct arena *a = arena_new();
	struct instrument_site *sites;
	struct diag d = { 0 };
	uint32_t got;
	is_int(instrument_sites(a, m, kernel, &sites, &got, &d), 0, "%s: sites of %s", file, kernel);
	is_int(got, n, "their number");
	for (uint32_t i = 0; i < got && i < n; i++) {
		const struct instrument_site *s = &sites[i];
		if (!ok(s->ordinal == i && s->point == want[i].point &&
				    s->ptx_line == want[i].ptx_line && s->line == want[i].line &&
				    !strcmp(s->opcode, want[i].opcode) &&
				    s->space == want[i].space && s->bytes == want[i].bytes &&
				    !s->skipped == !want[i].skipped,
			    "site %u: %s", i, want[i].opcode))
			printf("# point %d ptx %u loc %u %s space %d bytes %u %s\n", s->point,
				s->ptx_line, s->line, s->opcode, s->space, s->bytes,
				s->skipped ? s->skipped : "");
	}
	ptx_module_free(m);
	arena_free(a);
}

#define LD EBPF_POINT_LOAD
#define ST EBPF_POINT_STORE
#define AT EBPF_POINT_ATOMIC
#define GENERIC PTX_SPACE_GENERIC
#define GLOBAL PTX_SPACE_GLOBAL
#define SHARED PTX_SPACE_SHARED
#define CLUSTER PTX_SPACE_SHARED_CLUSTER

int main(void)
{
	static const struct expected memory[] = {
		{ LD, 23, 7, "ld.u32", GENERIC, 4, false },
		{ EBPF_POINT_EXIT, 25, 7, "exit", 0, 0, false },
		{ LD, 26, 7, "ld.const.u32", PTX_SPACE_CONST, 4, false },
		{ LD, 39, 0, "ld.global.u32", GLOBAL, 4, false },
		{ EBPF_POINT_ENTRY, 59, 20, "entry", 0, 0, false },
		{ EBPF_POINT_EXIT, 63, 20, "ret", 0, 0, false },
		{ LD, 65, 21, "ld.global.nc.v4.f32", GLOBAL, 16, false },
		{ ST, 66, 21, "st.global.v2.f32", GLOBAL, 8, false },
		{ LD, 67, 21, "ld.global.u64", GLOBAL, 8, false },
		{ ST, 69, 21, "st.shared.u8", SHARED, 1, false },
		{ ST, 70, 21, "st.shared.u8", SHARED, 1, false },
		{ ST, 71, 21, "st.volatile.shared.v4.u16", SHARED, 8, false },
		{ LD, 72, 21, "ld.shared.f64", SHARED, 8, false },
		{ ST, 73, 21, "st.local.u64", PTX_SPACE_LOCAL, 8, false },
		{ ST, 74, 21, "st.b32", GENERIC, 4, false },
		{ ST, 75, 21, "st.f32", GENERIC, 4, false },
		{ ST, 76, 21, "st.f64", GENERIC, 8, false },
		{ ST, 77, 21, "st.u16", GENERIC, 2, false },
		{ ST, 78, 21, "st.global.u32", GLOBAL, 4, false },
		{ ST, 79, 21, "st.global.v4.f32", GLOBAL, 16, false },
		{ ST, 80, 21, "st.relaxed.gpu.global.u32", GLOBAL, 4, false },
		{ AT, 81, 21, "atom.global.add.u32", GLOBAL, 4, false },
		{ AT, 82, 21, "red.global.add.f32", GLOBAL, 4, false },
		{ AT, 83, 21, "atom.global.cas.b32", GLOBAL, 4, false },
		{ AT, 84, 21, "atom.global.exch.b64", GLOBAL, 8, false },
		{ ST, 86, 21, "st.global.u64", GLOBAL, 8, false },
		{ LD, 91, 21, "ld.const.f32", PTX_SPACE_CONST, 4, false },
		{ LD, 92, 21, "ld.const.v2.f32", PTX_SPACE_CONST, 8, false },
		{ LD, 93, 21, "cp.async.ca.shared.global", GLOBAL, 8, false },
		{ LD, 94, 21, "cp.async.cg.shared.global", GLOBAL, 16, false },
		{ LD, 102, 21, "ld.global.u32", GLOBAL, 4, false },
		{ ST, 118, 21, "st.global.u32", GLOBAL, 4, false },
		{ EBPF_POINT_EXIT, 119, 21, "exit", 0, 0, false },
		{ EBPF_POINT_EXIT, 122, 40, "}", 0, 0, false },
	};
	static const struct expected hopper[] = {
		{ EBPF_POINT_ENTRY, 12, 0, "entry", 0, 0, false },
		{ LD, 17, 0, "ld.global.u32", GLOBAL, 4, false },
		{ LD, 21, 0, "ld.global.u32", GLOBAL, 4, true },
		{ LD, 29, 0, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", SHARED, 0, true },
		{ LD, 32, 0, "ld.global.u32", GLOBAL, 4, true },
		{ ST, 34, 0, "st.global.v4.f32", GLOBAL, 16, false },
		{ EBPF_POINT_EXIT, 37, 0, "ret", 0, 0, false },
	};
	static const struct expected async[] = {
		{ EBPF_POINT_ENTRY, 13, 0, "entry", 0, 0, false },
		{ LD, 22, 0, "ldmatrix.sync.aligned.m8n8.x1.shared.b16", SHARED, 16, false },
		{ LD, 23, 0, "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", SHARED, 16, false },
		{ LD, 24, 0, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", SHARED, 16, false },
		{ ST, 25, 0, "stmatrix.sync.aligned.m8n8.x2.shared.b16", SHARED, 16, false },
		{ LD, 26, 0, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", GLOBAL, 1024, false },
		{ LD, 27, 0, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", GLOBAL, 0, false },
		{ ST, 28, 0, "cp.async.bulk.global.shared::cta.bulk_group", GLOBAL, 0, false },
		{ AT, 29, 0, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", GLOBAL, 48, false },
		{ ST, 30, 0, "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", CLUSTER, 0, false },
		{ LD, 32, 0, "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes", GLOBAL, 0, true },
		{ ST, 36, 0, "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32", CLUSTER, 8, false },
		{ AT, 37, 0, "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster.add.u32", CLUSTER, 4, false },
		{ LD, 38, 0, "multimem.ld_reduce.relaxed.sys.global.add.f32", GLOBAL, 4, false },
		{ ST, 39, 0, "multimem.st.relaxed.sys.global.f32", GLOBAL, 4, false },
		{ AT, 40, 0, "multimem.red.relaxed.sys.global.add.f32", GLOBAL, 4, false },
		{ LD, 41, 0, "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32", SHARED, 1024, true },
		{ ST, 42, 0, "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32", SHARED, 1024, true },
		{ LD, 43, 0, "tex.1d.v4.f32.s32", PTX_SPACE_TEX, 16, true },
		{ EBPF_POINT_EXIT, 45, 0, "ret", 0, 0, false },
	};
	check("async.ptx", "kernel", async, sizeof(async) / sizeof(async[0]));
	check("memory.ptx", "kernel", memory, sizeof(memory) / sizeof(memory[0]));
	check("hopper.ptx", "kernel", hopper, sizeof(hopper) / sizeof(hopper[0]));
	return tap_done();
}
