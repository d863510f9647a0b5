/* Local memory whose size the program decides (alloca, stacksave, stackrestore), and stores and
 * reductions that arrive with bytes of a transaction (st.async, red.async, mbarrier). */
#include "softgpu_run.h"

#define HEAD ".version 8.5\n.target sm_90\n.address_size 64\n"

/* Each lane takes room for tid + 1 words, twice, fills both with different values by generic and
 * local addresses, and adds them up. */
static void test_alloca(void)
{
	static const char text[] = HEAD
		".visible .entry k(.param .u64 p)\n{ .reg .b32 %r<12>; .reg .b64 %rd<12>; .reg "
		".pred "
		"%q;\n ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 1; "
		"mul.wide.u32 "
		"%rd2, %r2, 4;\n"
		" alloca.u64 %rd3, %rd2, 16; alloca.u64 %rd4, %rd2; cvta.local.u64 %rd5, %rd4;\n"
		" mov.u32 %r3, 0;\n"
		"F: mul.wide.u32 %rd6, %r3, 4; add.u64 %rd7, %rd3, %rd6; add.u64 %rd8, %rd5, "
		"%rd6;\n"
		" mad.lo.u32 %r4, %r1, 1000, %r3; st.local.u32 [%rd7], %r4; add.u32 %r5, %r4, "
		"500000; "
		"st.u32 [%rd8], %r5;\n"
		" add.u32 %r3, %r3, 1; setp.lt.u32 %q, %r3, %r2; @%q bra F;\n"
		" mov.u32 %r3, 0; mov.u32 %r6, 0;\n"
		"S: mul.wide.u32 %rd6, %r3, 4; add.u64 %rd7, %rd3, %rd6; add.u64 %rd8, %rd4, "
		"%rd6;\n"
		" ld.local.u32 %r4, [%rd7]; ld.local.u32 %r5, [%rd8]; add.u32 %r6, %r6, %r4; "
		"add.u32 "
		"%r6, %r6, %r5;\n"
		" add.u32 %r3, %r3, 1; setp.lt.u32 %q, %r3, %r2; @%q bra S;\n"
		" mul.wide.u32 %rd9, %r1, 16; add.u64 %rd9, %rd1, %rd9; and.b64 %rd10, %rd3, 15; "
		"cvt.u32.u64 %r7, %rd10; st.global.u32 [%rd9], %r6; st.global.u32 [%rd9+4], %r7; "
		"ret; "
		"}\n";
	uint64_t buf = alloc(64 * 16);
	uint32_t *v = (uint32_t *)buf, bad = 0;
	is_int(run_ptx(text, 1, 64, 0, &buf), CUDA_SUCCESS, "alloca runs");
	for (uint32_t i = 0; i < 64; i++) {
		uint32_t want = 0;
		for (uint32_t k = 0; k <= i; k++)
			want += 2 * (i * 1000 + k) + 500000;
		bad += v[i * 4] != want || v[i * 4 + 1];
	}
	is_int(bad, 0, "each lane has memory of its own");
	sg_mem_free(device, buf);
}

/* A loop that takes 1,000 bytes a hundred times ends well when it restores, in the kernel and by
 * returning from a function; otherwise it overflows. */
static void test_restore(
	const char *save, const char *restore, const char *call, CUresult want, const char *what)
{
	char text[4096];
	uint64_t buf = alloc(256);
	snprintf(text, sizeof(text),
		HEAD ".func take(.param .b64 n) { .reg .b64 %%rd<4>; ld.param.b64 %%rd1, [n]; "
		     "alloca.u64 "
		     "%%rd2, %%rd1, 8; st.local.u64 [%%rd2+8], %%rd1; ret; }\n"
		     ".visible .entry k(.param .u64 p)\n{ .reg .b32 %%r<12>; .reg .b64 %%rd<12>; "
		     ".reg .pred "
		     "%%q;\n ld.param.u64 %%rd1, [p]; mov.u64 %%rd2, 10000; mov.u32 %%r1, 0; "
		     "mov.u64 %%rd5, "
		     "0;\nL: %s\n %s\n %s\n add.u32 %%r1, %%r1, 1; setp.lt.u32 %%q, %%r1, 100; "
		     "@%%q bra L;\n"
		     " stacksave.u64 %%rd6; sub.u64 %%rd6, %%rd6, %%rd5; st.global.u64 [%%rd1], "
		     "%%rd6; ret; "
		     "}\n",
		save, call, restore);
	is_int(run_ptx(text, 1, 32, 0, &buf), want, "%s", what);
	if (want == CUDA_SUCCESS)
		is_int(*(int64_t *)buf, *save ? 0 : 1 << 24, "  and the stack is as it was");
	sg_mem_free(device, buf);
}

static void test_bounds(void)
{
	static const char text[] = HEAD ".visible .entry k(.param .u64 p)\n{ .reg .b64 %rd<4>;\n"
					" alloca.u64 %rd2, 24, 8; st.local.u32 [%rd2+20], 1; "
					"st.local.u32 [%rd2+24], 1; ret; "
					"}\n";
	uint64_t buf = 0;
	stderr_capture();
	CUresult r = run_ptx(text, 1, 1, 0, &buf);
	const char *err = stderr_end();
	ok(r == CUDA_ERROR_ILLEGAL_ADDRESS && strstr(err, "illegal local address"),
		"an access behind what was taken is refused");
}

/* Lane 0 waits for the bytes that the others send. n: words of a store. */
static void test_store_async(void)
{
	static const char text[] = HEAD
		".shared .align 16 .b8 sh[1024]; .shared .align 8 .b64 bar;\n"
		".visible .entry k(.param .u64 p)\n{ .reg .b32 %r<20>; .reg .b64 %rd<8>; .reg "
		".pred "
		"%q;\n ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, sh; mov.u32 %r3, "
		"bar;\n"
		" setp.ne.u32 %q, %r1, 0; @%q bra A; mbarrier.init.shared.b64 [%r3], 1;\n"
		" mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r3], 768;\nA: bar.sync 0;\n"
		" mapa.shared::cluster.u32 %r4, %r2, 0; mapa.shared::cluster.u32 %r5, %r3, 0;\n"
		" mul.lo.u32 %r6, %r1, 16; add.u32 %r7, %r4, %r6; add.u32 %r8, %r1, 100; add.u32 "
		"%r9, "
		"%r1, 200; add.u32 %r10, %r1, 300;\n"
		" st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r7], "
		"{%r1,%r8,%r9,%r10}, [%r5];\n"
		" mul.lo.u32 %r6, %r1, 8; add.u32 %r7, %r4, %r6; mov.b64 %rd3, {%r8,%r9};\n"
		" st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%r7+512], %rd3, "
		"[%r5];\n"
		"W: mbarrier.try_wait.parity.shared.b64 %q, [%r3], 0; @!%q bra W;\n"
		" mul.lo.u32 %r6, %r1, 16; add.u32 %r7, %r2, %r6; mul.wide.u32 %rd4, %r1, 32; "
		"add.u64 "
		"%rd4, %rd4, %rd1;\n"
		" ld.shared.v4.b32 {%r11,%r12,%r13,%r14}, [%r7]; st.global.v4.b32 [%rd4], "
		"{%r11,%r12,%r13,%r14};\n"
		" mul.lo.u32 %r6, %r1, 8; add.u32 %r7, %r2, %r6; ld.shared.v2.b32 {%r11,%r12}, "
		"[%r7+512]; st.global.v2.b32 [%rd4+16], {%r11,%r12}; ret; }\n";
	uint64_t buf = alloc(1024);
	uint32_t *v = (uint32_t *)buf, bad = 0;
	is_int(run_ptx(text, 1, 32, 0, &buf), CUDA_SUCCESS, "st.async completes a transaction");
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t *r = v + i * 8;
		bad += r[0] != i || r[1] != i + 100 || r[2] != i + 200 || r[3] != i + 300 ||
		       r[4] != i + 100 || r[5] != i + 200;
	}
	is_int(bad, 0, "with what it stored");
	sg_mem_free(device, buf);
}

/* Block 1 of a cluster of 2 reduces into block 0. */
static void test_reduce_async(void)
{
	static const char text[] = HEAD
		".shared .align 16 .b32 sh[8]; .shared .align 8 .b64 bar;\n"
		".visible .entry k(.param .u64 p) .explicitcluster .reqnctapercluster 2, 1, 1\n{ "
		".reg "
		".b32 %r<20>; .reg .b64 %rd<8>; .reg .pred %q, %o;\n"
		" ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mov.u32 %r2, sh; mov.u32 %r3, bar; "
		"mov.u32 %r15, %cluster_ctarank;\n"
		" setp.ne.u32 %o, %r15, 0; setp.ne.u32 %q, %r1, 0; @%q bra A;\n"
		" st.shared.u32 [%r2], 5; st.shared.u32 [%r2+4], 0x7fffffff; st.shared.u32 "
		"[%r2+8], 0; "
		"st.shared.u64 [%r2+16], 1;\n mbarrier.init.shared.b64 [%r3], 1;\n"
		" mbarrier.arrive.expect_tx.shared.b64 %rd2, [%r3], 640;\n"
		"A: barrier.cluster.arrive; barrier.cluster.wait; @!%o bra W;\n"
		" mapa.shared::cluster.u32 %r4, %r2, 0; mapa.shared::cluster.u32 %r5, %r3, 0; "
		"cvt.u64.u32 %rd3, %r1; mov.u32 %r6, 1; shl.b32 %r6, %r6, %r1;\n"
		" red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 "
		"[%r4], "
		"%r1, [%r5];\n"
		" red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32 "
		"[%r4+4], %r1, [%r5];\n"
		" red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.or.b32 "
		"[%r4+8], %r6, [%r5];\n"
		" red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 "
		"[%r4+16], %rd3, [%r5];\n bra E;\n"
		"W: mbarrier.try_wait.parity.shared.b64 %q, [%r3], 0; @!%q bra W; setp.ne.u32 %q, "
		"%r1, "
		"0; @%q bra E;\n ld.shared.v4.u32 {%r7,%r8,%r9,%r10}, [%r2]; ld.shared.u64 %rd4, "
		"[%r2+16]; st.global.v4.u32 [%rd1], {%r7,%r8,%r9,%r10}; st.global.u64 [%rd1+16], "
		"%rd4;\n"
		"E: barrier.cluster.arrive; barrier.cluster.wait; ret; }\n";
	uint64_t buf = alloc(64);
	uint32_t *v = (uint32_t *)buf;
	is_int(run_ptx(text, 2, 32, 0, &buf), CUDA_SUCCESS, "red.async into another block");
	ok(v[0] == 5 + 496 && v[1] == 0 && v[2] == UINT32_MAX && ((uint64_t *)v)[2] == 497,
		"adds, least, bits and 64 bits");
	sg_mem_free(device, buf);
}

/* Of three arrivals: pending counts before each; a dropped one with bytes lowers the next phase. */
static void test_pending(void)
{
	static const char text[] = HEAD
		".shared .align 8 .b64 bar;\n"
		".visible .entry k(.param .u64 p)\n{ .reg .b32 %r<20>; .reg .b64 %rd<8>; .reg "
		".pred "
		"%q;\n ld.param.u64 %rd1, [p]; mov.u32 %r3, bar; mbarrier.init.shared.b64 [%r3], "
		"3;\n"
		" mbarrier.arrive.shared.b64 %rd2, [%r3]; mbarrier.pending_count.b64 %r4, %rd2;\n"
		" mbarrier.arrive_drop.expect_tx.shared.b64 %rd3, [%r3], 16; "
		"mbarrier.pending_count.b64 "
		"%r5, %rd3;\n mbarrier.arrive.shared.b64 %rd4, [%r3]; mbarrier.pending_count.b64 "
		"%r6, "
		"%rd4;\n mbarrier.test_wait.parity.shared.b64 %q, [%r3], 0; selp.u32 %r7, 1, 0, "
		"%q;\n"
		" mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r3], 16;\n"
		" mbarrier.test_wait.parity.shared.b64 %q, [%r3], 0; selp.u32 %r8, 1, 0, %q;\n"
		" mbarrier.arrive.shared.b64 %rd5, [%r3]; mbarrier.pending_count.b64 %r9, %rd5;\n"
		" st.global.v4.u32 [%rd1], {%r4,%r5,%r6,%r7}; st.global.v2.u32 [%rd1+16], "
		"{%r8,%r9}; "
		"ret; }\n";
	uint64_t buf = alloc(64);
	uint32_t *v = (uint32_t *)buf;
	is_int(run_ptx(text, 1, 1, 0, &buf), CUDA_SUCCESS, "mbarrier.pending_count runs");
	ok(v[0] == 3 && v[1] == 2 && v[2] == 1, "counts before each arrival");
	ok(v[3] == 0 && v[4] == 1, "the phase waits for the bytes");
	is_int(v[5], 2, "the dropped arrival is not expected again");
	sg_mem_free(device, buf);
}

int main(void)
{
	device_open(2, 3);
	test_alloca();
	test_restore("stacksave.u64 %rd5;", "stackrestore.u64 %rd5;", "alloca.u64 %rd3, %rd2, 8;",
		CUDA_SUCCESS, "a restored stack does not grow");
	test_restore("", "", "{ .param .b64 a; st.param.b64 [a], %rd2; call.uni take, (a); }",
		CUDA_SUCCESS, "returning gives back what a function took");
	stderr_capture();
	test_restore("", "", "alloca.u64 %rd3, %rd2, 8;", CUDA_ERROR_ILLEGAL_ADDRESS,
		"taking for ever overflows");
	ok(strstr(stderr_end(), "stack overflow (alloca of 10000 bytes)"), "and says so");
	test_bounds();
	test_store_async();
	test_reduce_async();
	test_pending();
	sg_device_free(device);
	return tap_done();
}
