/* Barriers: counts, names, reductions, arrivals, and threads that left; deadlocks are reported. */
#include "softgpu_run.h"

#define ENTRY                                                                                      \
	PTX_HEAD ".shared .align 8 .b8 sh[8192];\n.visible .entry k(.param .u64 out)\n{\n"         \
		 ".reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>;\n"                        \
		 "ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; "      \
		 "add.s64 %rd3, %rd1, %rd2;"                                                       \
		 " mov.u32 %r9, sh; shl.b32 %r8, %r1, 2; add.s32 %r9, %r9, %r8; shr.u32 %r7, "     \
		 "%r1, 5; mov.u32 %r0, 0;\n"

static uint32_t got[1024];

static CUresult go(const char *body, uint32_t block)
{
	char *text = malloc(strlen(body) + 4096);
	uint64_t out = alloc(block * 4);
	sprintf(text, "%s%s\nst.global.u32 [%%rd3], %%r0;\nret;\n}\n", ENTRY, body);
	CUresult e = run_ptx(text, 1, block, 0, &out);
	memcpy(got, (void *)out, block * 4);
	sg_mem_free(device, out);
	free(text);
	return e;
}

static void all(const char *what, const char *body, uint32_t block, uint32_t want)
{
	CUresult e = go(body, block);
	uint32_t bad = 0;
	for (uint32_t i = 0; i < block; i++)
		bad += got[i] != want;
	if (!ok(e == CUDA_SUCCESS && !bad, "%s", what))
		printf("#   error %d, %u wrong, thread 0 has %u\n", e, bad, got[0]);
}

static void test_all(void)
{
	/* Each thread reads what the mirrored one wrote: r0 = 1023 in all. */
	all("1,024 threads exchange through shared memory",
		"st.shared.u32 [%r9], %r1; bar.sync 0; mov.u32 %r2, 1023; sub.s32 %r2, %r2, %r1; "
		"shl.b32 %r2, %r2, 2; mov.u32 %r3, sh;"
		" add.s32 %r3, %r3, %r2; ld.shared.u32 %r4, [%r3]; add.s32 %r0, %r4, %r1;",
		1024, 1023);
	all("a tree reduction",
		"st.shared.u32 [%r9], %r1; mov.u32 %r2, 128; L: bar.sync 0; setp.ge.u32 %p1, %r1, "
		"%r2; @%p1 bra S; shl.b32 %r3, %r2, 2;"
		" add.s32 %r4, %r9, %r3; ld.shared.u32 %r5, [%r4]; ld.shared.u32 %r6, [%r9]; "
		"add.s32 %r6, %r6, %r5; st.shared.u32 [%r9],"
		" %r6; S: shr.u32 %r2, %r2, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra L; bar.sync 0; "
		"ld.shared.u32 %r0, [sh];",
		256, 255 * 128);
	all("a block that is no multiple of the warp size",
		"setp.lt.u32 %p1, %r1, 40; vote.sync.any.pred %p2, %p1, -1; bar.sync 0; "
		"bar.red.popc.u32 %r0, 0, %p1;",
		75, 40);
	all("bar.red.and",
		"setp.ne.u32 %p1, %r1, 99; bar.red.and.pred %p2, 0, %p1; selp.u32 %r0, 1, 2, %p2;",
		128, 2);
	all("bar.red.or of a negated predicate",
		"setp.ne.u32 %p1, %r1, 99; bar.red.or.pred %p2, 1, !%p1; selp.u32 %r0, 1, 2, %p2;",
		128, 1);
	all("barrier.cta.red with a count",
		"setp.lt.u32 %p1, %r1, 3; barrier.cta.red.popc.aligned.u32 %r0, 2, 64, %p1;", 64,
		3);
	/* Warps 0 and 1 meet at barrier 1, 2 and 3 at barrier 2, with different numbers of rounds.
	 */
	all("named barriers for pairs of warps",
		"setp.ge.u32 %p1, %r1, 64; selp.u32 %r2, 2, 1, %p1; mul.lo.u32 %r3, %r2, 5; L: "
		"bar.sync %r2, 64; add.s32 %r3, %r3, -1;"
		" setp.ne.u32 %p2, %r3, 0; @%p2 bra L; mov.u32 %r0, 7;",
		128, 7);
	/* The producer warp arrives, the consumer waits. */
	all("bar.arrive and bar.sync",
		"setp.ne.u32 %p1, %r7, 0; @%p1 bra C; st.shared.u32 [%r9], 5; bar.arrive 3, 64; "
		"bra E; C: bar.sync 3, 64; E:"
		" and.b32 %r2, %r1, 31; shl.b32 %r2, %r2, 2; mov.u32 %r3, sh; add.s32 %r3, %r3, "
		"%r2; ld.shared.u32 %r0, [%r3];",
		64, 5);
	all("threads that have left are not waited for",
		"setp.ge.u32 %p1, %r1, 50; mov.u32 %r0, 9; st.global.u32 [%rd3], %r0; @%p1 exit; "
		"bar.sync 0; bar.sync 0;",
		128, 9);
	all("lanes of a warp may come to the barrier from different branches",
		"and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 1; @%p1 bra A; st.shared.u32 [%r9], 1; "
		"bar.sync 0; bra B; A: st.shared.u32"
		" [%r9], 1; bar.sync 0; B: xor.b32 %r3, %r8, 4; mov.u32 %r4, sh; add.s32 %r4, %r4, "
		"%r3; ld.shared.u32 %r0, [%r4];",
		64, 1);
	all("an mbarrier",
		"setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [sh], 64; bar.sync 0; "
		"st.shared.u32 [%r9+16], 3;"
		" mbarrier.arrive.shared.b64 %rd4, [sh]; W: mbarrier.test_wait.shared.b64 %p2, "
		"[sh], %rd4; @!%p2 bra W; xor.b32 %r3, %r8,"
		" 128; mov.u32 %r4, sh; add.s32 %r4, %r4, %r3; ld.shared.u32 %r0, [%r4+16];",
		64, 3);
}

int main(void)
{
	for (uint32_t seed = 0; seed < 5; seed++) {
		device_open(2, seed);
		test_all();
		stderr_capture();
		CUresult e = go(
			"setp.lt.u32 %p1, %r1, 32; selp.u32 %r2, 1, 2, %p1; bar.sync %r2, 64;", 64);
		const char *line = stderr_end();
		is_int(e, CUDA_ERROR_LAUNCH_FAILED,
			"two warps at two barriers that want both: deadlock");
		ok(strstr(line, "deadlock") &&
				strstr(line, "warp 1 lanes 0xffffffff wait at PTX line") &&
				strstr(line, "bar.sync"),
			"the line says what each warp waits for");
		stderr_capture();
		e = go("setp.lt.u32 %p1, %r1, 16; @%p1 bra A; bar.sync 0; bra E; A: "
		       "shfl.sync.idx.b32 %r0, %r1, 0, 31, -1; E:",
			32);
		line = stderr_end();
		is_int(e, CUDA_ERROR_LAUNCH_FAILED,
			"lanes at a shuffle and at a barrier that want each other: deadlock");
		ok(strstr(line, "shfl.sync"), "the line names the shuffle");
		sg_device_free(device);
	}
	return tap_done();
}
