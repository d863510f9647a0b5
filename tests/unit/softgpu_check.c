/* softgpu_check.c - a checked device finds each planted bug, and nothing in correct programs.
 *
 * A body has the registers %r0..%r15, %rd0..%rd15, %p0..%p3; on entry %r0 is the thread's number in
 * the block, %r1 the block's, %r2 a shared address s + 4 * tid, %rd0 the global buffer and %rd1 its
 * element number tid.
 */
#include "softgpu_run.h"

#define BUFFER 4096

struct planted {
	const char *what, *body;
	const char *say[3]; /* each is in the one line that is printed */
	uint32_t grid, block;
};

static uint64_t buffer;

static CUresult run_body(const char *body, uint32_t grid, uint32_t block, const char **text)
{
	char ptx[6000];
	uint64_t params[1] = { buffer };
	snprintf(ptx, sizeof(ptx),
		PTX_HEAD ".visible .entry k(.param .u64 p)\n{\n"
			 ".shared .align 16 .b8 s[4096];\n.reg .b32 %%r<16>;\n.reg .b64 "
			 "%%rd<16>;\n.reg .pred %%p<4>;\n"
			 "ld.param.u64 %%rd0, [p];\nmov.u32 %%r0, %%tid.x;\nmov.u32 %%r1, "
			 "%%ctaid.x;\nmov.u32 %%r2, s;\n"
			 "mad.lo.u32 %%r2, %%r0, 4, %%r2;\nmad.wide.u32 %%rd1, %%r0, 4, "
			 "%%rd0;\n%s\nret;\n}\n",
		body);
	memset((void *)(uintptr_t)buffer, 0, BUFFER);
	stderr_capture();
	CUresult r = run_ptx(ptx, grid, block, 0, params);
	*text = stderr_end();
	return r;
}

static const struct planted planted[] = {
	{ "shared: written, read by a neighbour, no barrier",
		"st.shared.u32 [%r2], %r0; ld.shared.u32 %r3, [%r2+4];",
		{ "race on shared memory", "writes it", "reads it" }, 1, 63 },
	{ "shared: two writers", "st.shared.u32 [s], %r0;",
		{ "race on shared memory", "writes it", "(st.shared.u32)" }, 1, 64 },
	{ "shared: read before the neighbour writes",
		"st.shared.u32 [%r2], 1; bar.sync 0; xor.b32 %r4, %r2, 4; ld.shared.u32 %r3, "
		"[%r4]; st.shared.u32 [%r2], %r0;",
		{ "race on shared memory", "reads it", "writes it" }, 1, 64 },
	{ "shared: the barrier of a loop stands only at its top",
		"mov.u32 %r5, 0;\nL: bar.sync 0; st.shared.u32 [%r2], %r5; bar.sync 0; xor.b32 "
		"%r4, %r2, 128;\n"
		"ld.shared.u32 %r3, [%r4]; st.shared.u32 [%r2], %r3; add.u32 %r5, %r5, 1; "
		"setp.lt.u32 %p0, %r5, 3;\n"
		"@%p0 bra L;",
		{ "race on shared memory", "reads it", "writes it" }, 1, 64 },
	{ "shared: lanes of one warp without bar.warp.sync",
		"st.shared.u32 [%r2], %r0; xor.b32 %r4, %r2, 4; ld.shared.u32 %r3, [%r4];",
		{ "race on shared memory", "ld.shared.u32", "st.shared.u32" }, 1, 32 },
	{ "shared: a named barrier that not all readers join",
		"shr.u32 %r6, %r0, 5; setp.lt.u32 %p0, %r6, 2; st.shared.u32 [%r2], %r0; @!%p0 bra "
		"R;\nbar.sync 1, 64; bra E;\n"
		"R: and.b32 %r4, %r0, 31; mov.u32 %r7, s; mad.lo.u32 %r4, %r4, 4, %r7; "
		"ld.shared.u32 %r3, [%r4];\nE:",
		{ "race on shared memory", "reads it", "writes it" }, 1, 96 },
	{ "shared: bytes of a word that another thread reads",
		"mov.u32 %r4, s; st.shared.u32 [%r2], 0; bar.sync 0; add.u32 %r4, %r4, %r0; "
		"setp.lt.u32 %p0, %r0, 4;\n"
		"@%p0 st.shared.u8 [%r4], %r0; setp.eq.u32 %p1, %r0, 40; @%p1 ld.shared.u32 %r3, "
		"[s];",
		{ "race on shared memory", "st.shared.u8", "ld.shared.u32" }, 1, 64 },
	{ "shared: cp.async, read by another thread after its own wait",
		"cvta.to.global.u64 %rd2, %rd0; mad.lo.u32 %r4, %r0, 12, %r2; mad.wide.u32 %rd3, "
		"%r0, 16, %rd0;\n"
		"cp.async.ca.shared.global [%r4], [%rd3], 16; cp.async.commit_group; "
		"cp.async.wait_group 0;\n"
		"xor.b32 %r5, %r4, 16; ld.shared.u32 %r3, [%r5];",
		{ "race on shared memory", "cp.async", "ld.shared.u32" }, 1, 64 },
	{ "shared: through a generic address",
		"cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd2, %rd2; st.u32 [%rd2], %r0; xor.b32 "
		"%r4, %r2, 64; ld.shared.u32 %r3, [%r4];",
		{ "race on shared memory", "(st.u32)", "ld.shared.u32" }, 1, 64 },
	{ "shared: an atomic and a plain read",
		"st.shared.u32 [%r2], 0; bar.sync 0; atom.shared.add.u32 %r3, [s], 1; setp.eq.u32 "
		"%p0, %r0, 33; @%p0 ld.shared.u32 %r4, [s];",
		{ "race on shared memory", "atom.shared", "ld.shared.u32" }, 1, 64 },
	{ "global: threads of a block write different values", "st.global.u32 [%rd0], %r0;",
		{ "race on global memory", "the same block", "writes it" }, 1, 64 },
	{ "global: blocks write different values",
		"setp.eq.u32 %p0, %r0, 0; @%p0 st.global.u32 [%rd0], %r1;",
		{ "race on global memory", "), and nothing orders", "writes it" }, 4, 32 },
	{ "global: a block reads what another writes",
		"setp.eq.u32 %p0, %r1, 0; @%p0 st.global.u32 [%rd1], 7; @!%p0 ld.global.u32 %r3, "
		"[%rd1];",
		{ "race on global memory", " of block (0,0,0)", " of block (1,0,0)" }, 2, 32 },
	{ "global: an increment that is not atomic",
		"ld.global.u32 %r3, [%rd0]; add.u32 %r3, %r3, %r0; st.global.u32 [%rd0], %r3;",
		{ "race on global memory", "ld.global.u32", "st.global.u32" }, 1, 64 },
	{ "global: a flag without fences",
		"setp.ne.u32 %p0, %r1, 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra E; @%p0 bra "
		"R;\nst.global.u32 [%rd0+64], 5;\n"
		"st.volatile.global.u32 [%rd0], 1; bra E;\nR: ld.volatile.global.u32 %r3, [%rd0]; "
		"setp.eq.u32 %p2, %r3, 0;\n"
		"@%p2 bra R; ld.global.u32 %r4, [%rd0+64];\nE:",
		{ "race on global memory", " of block (0,0,0)", " of block (1,0,0)" }, 2, 32 },
	{ "global: an atomic and a plain write",
		"setp.eq.u32 %p0, %r1, 0; @%p0 atom.global.add.u32 %r3, [%rd1], 1; @!%p0 "
		"st.global.u32 [%rd1], 9;",
		{ "race on global memory", "atom.global", "st.global.u32" }, 2, 32 },
	{ "shared memory that nothing has written",
		"ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd1], %r3;",
		{ "nothing has written", "ld.shared.u32", "4 bytes" }, 1, 32 },
	{ "half of what is read has been written",
		"setp.lt.u32 %p0, %r0, 33; @%p0 st.shared.u32 [%r2], 1; bar.sync 0; setp.eq.u32 "
		"%p1, %r0, 0; @%p1 ld.shared.v2.u32 {%r3, %r4}, [s+128];",
		{ "nothing has written", "ld.shared.v2.u32", "8 bytes" }, 1, 64 },
	{ "two barriers for one warp",
		"and.b32 %r3, %r0, 1; setp.eq.u32 %p0, %r3, 0; @%p0 bra A;\nbar.sync 0; bra E;\nA: "
		"bar.sync 0;\nE:",
		{ "comes to a barrier divided", "lanes 0x55555555", "lanes 0xaaaaaaaa" }, 1, 32 },
	{ "lanes that end before the others' barrier",
		"setp.lt.u32 %p0, %r0, 40; @%p0 bra E; bar.sync 0;\nE:",
		{ "comes to a barrier divided", "have ended", "warp 1" }, 1, 64 },
	{ "one element past an allocation", "st.global.u32 [%rd0+4096], 1;",
		{ "illegal global address", "0 bytes past the allocation of 4096 bytes",
			"st.global.u32" },
		1, 1 },
	{ "before an allocation", "ld.global.u32 %r3, [%rd0+-4];",
		{ "illegal global address", "4 bytes before the allocation of 4096 bytes",
			"ld.global.u32" },
		1, 1 },
	{ "past the block's shared memory", "st.shared.u32 [s+4096], 1;",
		{ "illegal shared address", "of 4096 bytes that the block has", "thread (0,0,0)" },
		1, 1 },
	{ "misaligned", "ld.global.u32 %r3, [%rd0+2];",
		{ "misaligned global address", "ld.global.u32", "(4 bytes)" }, 1, 1 },
};

/* Correct programs; they may use every thread of 2 blocks of 128. */
static const struct {
	const char *what, *body;
} clean[] = {
	{ "a tree of additions", "st.shared.u32 [%r2], %r0; mov.u32 %r5, 64;\nL: bar.sync 0; "
				 "setp.ge.u32 %p0, %r0, %r5; @%p0 bra N;\n"
				 "mad.lo.u32 %r4, %r5, 4, %r2; ld.shared.u32 %r3, [%r4]; "
				 "ld.shared.u32 %r6, [%r2]; add.u32 %r6, %r6, %r3;\n"
				 "st.shared.u32 [%r2], %r6;\nN: shr.u32 %r5, %r5, 1; setp.ne.u32 "
				 "%p1, %r5, 0; @%p1 bra L;" },
	{ "neighbours in a warp with bar.warp.sync",
		"st.shared.u32 [%r2], %r0; bar.warp.sync -1; xor.b32 %r4, %r2, 4; ld.shared.u32 "
		"%r3, [%r4]; bar.warp.sync -1;\n"
		"st.shared.u32 [%r2], %r3;" },
	{ "a histogram",
		"st.shared.u32 [%r2], 0; bar.sync 0; and.b32 %r3, %r0, 7; mov.u32 %r4, s; "
		"mad.lo.u32 %r3, %r3, 4, %r4;\n"
		"atom.shared.add.u32 %r5, [%r3], 1; bar.sync 0; ld.shared.u32 %r6, [%r2];\n"
		"red.global.add.u32 [%rd1], %r6;" },
	{ "every thread raises one flag", "st.shared.u32 [s], 1; st.global.u32 [%rd0], 1; bar.sync "
					  "0; ld.shared.u32 %r3, [s];" },
	{ "bytes side by side", "mov.u32 %r4, s; add.u32 %r4, %r4, %r0; st.shared.u8 [%r4], %r0; "
				"ld.shared.u8 %r5, [%r4];" },
	{ "a message with fences", "setp.ne.u32 %p0, %r1, 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra E; "
				   "@%p0 bra R;\nst.global.u32 [%rd0+64], 5; membar.gl;\n"
				   "st.volatile.global.u32 [%rd0], 1; bra E;\nR: "
				   "ld.volatile.global.u32 %r3, [%rd0]; setp.eq.u32 %p2, %r3, 0;\n"
				   "@%p2 bra R; membar.gl; ld.global.u32 %r4, [%rd0+64];\nE:" },
	{ "a message with release and acquire",
		"setp.ne.u32 %p0, %r1, 0; setp.ne.u32 %p1, %r0, 0; @%p1 bra E; @%p0 bra "
		"R;\nst.global.u32 [%rd0+64], 5;\n"
		"st.release.gpu.global.u32 [%rd0], 1; bra E;\nR: ld.acquire.gpu.global.u32 %r3, "
		"[%rd0]; setp.eq.u32 %p2, %r3, 0;\n"
		"@%p2 bra R; ld.global.u32 %r4, [%rd0+64];\nE:" },
	{ "a spin lock between all threads", "L: atom.global.cas.b32 %r3, [%rd0], 0, 1; "
					     "setp.ne.u32 %p0, %r3, 0; @%p0 bra L; membar.gl;\n"
					     "ld.global.u32 %r4, [%rd0+4]; add.u32 %r4, %r4, 1; "
					     "st.global.u32 [%rd0+4], %r4; membar.gl;\n"
					     "atom.global.exch.b32 %r3, [%rd0], 0;" },
	{ "the last block adds up",
		"mad.lo.u32 %r3, %r1, 128, %r0; mad.wide.u32 %rd2, %r3, 4, %rd0; st.global.u32 "
		"[%rd2+64], %r0; membar.gl; bar.sync 0;\n"
		"setp.ne.u32 %p0, %r0, 0; @%p0 bra W; atom.global.inc.u32 %r4, [%rd0], 100; "
		"st.shared.u32 [s], %r4; membar.gl;\nW: bar.sync 0;\n"
		"ld.shared.u32 %r5, [s]; setp.ne.u32 %p1, %r5, 1; @%p1 bra E; ld.global.u32 %r6, "
		"[%rd1+64]; ld.global.u32 %r7, [%rd1+576];\nE:" },
	{ "producers and consumers at named barriers",
		"setp.ge.u32 %p0, %r0, 64; @%p0 bra C; st.shared.u32 [%r2], %r0; bar.arrive 1, "
		"128; bra E;\n"
		"C: bar.sync 1, 128; ld.shared.u32 %r3, [%r2+-256];\nE:" },
	{ "an mbarrier", ".shared .align 8 .b64 mb; .reg .b64 %st; setp.ne.u32 %p0, %r0, 0; @%p0 "
			 "bra I; mbarrier.init.shared.b64 [mb], 128;\nI: bar.sync 0;\n"
			 "st.shared.u32 [%r2], %r0; mbarrier.arrive.shared.b64 %st, [mb];\nL: "
			 "mbarrier.try_wait.shared.b64 %p1, [mb], %st; @!%p1 bra L;\n"
			 "xor.b32 %r4, %r2, 256; ld.shared.u32 %r3, [%r4];" },
	{ "cp.async and a barrier", "mad.lo.u32 %r4, %r0, 12, %r2; mad.wide.u32 %rd3, %r0, 16, "
				    "%rd0; cp.async.ca.shared.global [%r4], [%rd3], 16;\n"
				    "cp.async.commit_group; cp.async.wait_group 0; bar.sync 0; "
				    "xor.b32 %r5, %r4, 16; ld.shared.u32 %r3, [%r5];" },
	{ "a warp that returns whole before a barrier",
		"setp.lt.u32 %p0, %r0, 32; @%p0 bra E; st.shared.u32 [%r2], 1; bar.sync 0;\nE:" },
	{ "two launches after each other",
		"mad.wide.u32 %rd2, %r1, 512, %rd1; st.global.u32 [%rd2], %r1;" },
};

static void cluster(void)
{
	static const char *const bodies[] = {
		"mapa.shared::cluster.u32 %r4, %r2, %r3; st.shared.u32 [%r2], %r0; "
		"ld.shared::cluster.u32 %r5, [%r4];",
		"mapa.shared::cluster.u32 %r4, %r2, %r3; st.shared.u32 [%r2], %r0; "
		"barrier.cluster.arrive; barrier.cluster.wait;\n"
		"ld.shared::cluster.u32 %r5, [%r4]; barrier.cluster.arrive; barrier.cluster.wait;",
	};
	for (int i = 0; i < 2; i++) {
		char ptx[2000];
		uint64_t params[1] = { buffer };
		snprintf(ptx, sizeof(ptx),
			PTX_HEAD ".visible .entry k(.param .u64 p) .reqnctapercluster 2, 1, 1\n{\n"
				 ".shared .align 16 .b8 s[1024];\n.reg .b32 %%r<8>;\nmov.u32 %%r0, "
				 "%%tid.x; mov.u32 %%r2, s;\n"
				 "mad.lo.u32 %%r2, %%r0, 4, %%r2; mov.u32 %%r3, %%cluster_ctarank; "
				 "xor.b32 %%r3, %%r3, 1;\n%s\nret;\n}\n",
			bodies[i]);
		uint64_t before = sg_device_findings(device);
		stderr_capture();
		run_ptx(ptx, 2, 64, 0, params);
		const char *text = stderr_end();
		bool found = sg_device_findings(device) != before;
		ok(found == !i, "shared memory of the cluster, %s its barrier: %.120s",
			i ? "with" : "without", text);
	}
}

static CUresult error_of(const struct planted *p)
{
	return !strncmp(p->say[0], "illegal", 7)       ? CUDA_ERROR_ILLEGAL_ADDRESS
	       : !strncmp(p->say[0], "misaligned", 10) ? CUDA_ERROR_MISALIGNED_ADDRESS
						       : CUDA_SUCCESS;
}

/* Everything on a fresh device, in order or shuffled. */
static void all(uint32_t seed)
{
	struct sg_config c = { .sm = 90,
		.n_sms = 4,
		.n_workers = 2,
		.memory_bytes = 64u << 20,
		.check = true,
		.shuffle_seed = seed };
	if (sg_device_new(&c, &device) != CUDA_SUCCESS)
		return;
	buffer = alloc(BUFFER);
	for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++) {
		const struct planted *p = &planted[i];
		const char *text;
		CUresult r = run_body(p->body, p->grid, p->block, &text);
		bool all = true;
		for (int k = 0; k < 3; k++)
			all &= strstr(text, p->say[k]) != NULL;
		ok(r == error_of(p) && all && strstr(text, "kernel k") && strstr(text, "PTX line"),
			"found: %s", p->what);
		if (r != error_of(p) || !all)
			printf("#   error %d: %s\n", (int)r, text);
	}
	for (size_t i = 0; i < sizeof(clean) / sizeof(clean[0]); i++) {
		uint64_t before = sg_device_findings(device);
		const char *text;
		CUresult r = run_body(clean[i].body, 2, 128, &text);
		if (r == CUDA_SUCCESS && i == sizeof(clean) / sizeof(clean[0]) - 1)
			r = run_body(clean[i].body, 2, 128, &text);
		ok(r == CUDA_SUCCESS && sg_device_findings(device) == before, "nothing in: %s",
			clean[i].what);
		if (sg_device_findings(device) != before)
			printf("#   %s\n", text);
	}
	cluster();
	sg_device_free(device);
}

int main(void)
{
	all(0);
	all(77);
	return tap_done();
}
