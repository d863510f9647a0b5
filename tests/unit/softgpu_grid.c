/* Grids: progress between lanes, warps, blocks and grids that wait for each other; shapes;
 * residency. */
#include "softgpu_run.h"

static const char ptx[] = PTX_HEAD
	/* A ticket that every thread takes under a lock that lanes of one warp contend for. */
	".visible .entry lock(.param .u64 p)\n{ .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 "
	"%rd<9>;\n"
	" ld.param.u64 %rd1, [p];\n"
	"W: atom.global.cas.b32 %r1, [%rd1], 0, 1; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;\n"
	" membar.gl; ld.global.u32 %r2, [%rd1+4]; add.s32 %r2, %r2, 1; st.global.u32 [%rd1+4], "
	"%r2; membar.gl;\n"
	" atom.global.exch.b32 %r3, [%rd1], 0; ret; }\n"
	/* Lane 31 sets a flag that the others spin on, with plain loads. */
	".visible .entry flag(.param .u64 p)\n{ .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 "
	"%rd<9>;\n"
	" ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 31; @%p1 bra S;\n"
	"W: ld.global.u32 %r2, [%rd1]; setp.eq.u32 %p2, %r2, 0; @%p2 bra W; bra E;\n"
	"S: st.global.u32 [%rd1], 1;\n"
	"E: atom.global.add.u32 %r3, [%rd1+4], 1; ret; }\n"
	/* Writes p[i] = 1, then waits for p[j]. */
	".visible .entry meet(.param .u64 p, .param .u32 i, .param .u32 j)\n{ .reg .pred %p<3>; "
	".reg .b32 %r<9>; .reg .b64 %rd<9>;\n"
	" ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [i]; ld.param.u32 %r2, [j]; mul.wide.u32 %rd2, "
	"%r1, 4; add.s64 %rd2, %rd1, %rd2;\n"
	" mul.wide.u32 %rd3, %r2, 4; add.s64 %rd3, %rd1, %rd3; st.volatile.global.u32 [%rd2], 1;\n"
	"W: ld.volatile.global.u32 %r3, [%rd3]; setp.eq.u32 %p1, %r3, 0; @%p1 bra W; ret; }\n"
	/* Every block counts itself and waits until all have. */
	".visible .entry sync(.param .u64 p, .param .u32 n)\n{ .reg .pred %p<3>; .reg .b32 %r<9>; "
	".reg .b64 %rd<9>;\n"
	" ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; setp.ne.u32 %p1, "
	"%r2, 0; @%p1 bra B;\n"
	" atom.global.add.u32 %r3, [%rd1], 1;\n"
	"W: ld.acquire.gpu.global.u32 %r4, [%rd1]; setp.lt.u32 %p2, %r4, %r1; @%p2 bra W;\n"
	"B: bar.sync 0; red.global.add.u32 [%rd1+4], 1; ret; }\n"
	".visible .entry limited(.param .u64 p) .maxntid 64, 1, 1 { ret; }\n"
	".visible .entry exact(.param .u64 p) .reqntid 8, 4, 2 { ret; }\n"
	".extern .shared .align 16 .b8 dyn[];\n.shared .align 4 .b8 fixed[20];\n"
	".visible .entry shared(.param .u64 p)\n{ .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 "
	"%rd1, [p]; mov.u32 %r1, dyn;\n"
	" mov.u32 %r2, fixed; sub.s32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3; mov.u32 %r4, "
	"%dynamic_smem_size; st.global.u32 [%rd1+4],"
	" %r4; add.s32 %r1, %r1, %r4; st.shared.u32 [%r1+-4], 5; ret; }\n"
	/* Linear thread number from every dimension. */
	".visible .entry shape(.param .u64 p)\n{ .reg .b32 %r<30>; .reg .b64 %rd<9>; ld.param.u64 "
	"%rd1, [p];\n"
	" mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ntid.x; "
	"mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;\n"
	" mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %ctaid.z; mov.u32 %r10, "
	"%nctaid.x; mov.u32 %r11, %nctaid.y;\n"
	" mad.lo.u32 %r12, %r3, %r5, %r2; mad.lo.u32 %r12, %r12, %r4, %r1; mad.lo.u32 %r13, %r9, "
	"%r11, %r8; mad.lo.u32 %r13, %r13, %r10, %r7;\n"
	" mul.lo.u32 %r14, %r4, %r5; mul.lo.u32 %r14, %r14, %r6; mad.lo.u32 %r15, %r13, %r14, "
	"%r12; mul.wide.u32 %rd2, %r15, 4;\n"
	" add.s64 %rd2, %rd1, %rd2; red.global.add.u32 [%rd2], 1; ret; }\n"
	/* Blocks of a cluster read each other's shared memory. */
	".visible .entry cluster(.param .u64 p)\n{ .reg .b32 %r<9>; .reg .b64 %rd<9>; ld.param.u64 "
	"%rd1, [p]; mov.u32 %r1, %cluster_ctarank;\n"
	" mov.u32 %r2, %ctaid.x; st.shared.u32 [fixed], %r2; barrier.cluster.arrive; "
	"barrier.cluster.wait; xor.b32 %r3, %r1, 1;\n"
	" mov.u32 %r4, fixed; mapa.shared::cluster.u32 %r5, %r4, %r3; ld.shared::cluster.u32 %r6, "
	"[%r5]; mul.wide.u32 %rd2, %r2, 4;\n"
	" add.s64 %rd2, %rd1, %rd2; st.global.u32 [%rd2], %r6; barrier.cluster.arrive; "
	"barrier.cluster.wait; ret; }\n";

struct params {
	uint64_t p;
	uint32_t i, j;
};

static struct sg_module *module;

static CUresult launch(const char *kernel, uint32_t grid, uint32_t block, const struct params *p)
{
	struct run r;
	CUresult e = run_start(&r, sg_module_kernel(module, kernel), grid, block, 0, p, false);
	return e ? e : run_wait(&r);
}

static void test_progress(void)
{
	struct params p = { alloc(4096), 0, 0 };
	uint32_t *v = (uint32_t *)p.p;
	is_int(launch("lock", 4, 96, &p), CUDA_SUCCESS, "a spin lock between lanes ends");
	is_int(v[1], 4 * 96, "and excludes");
	memset(v, 0, 8);
	is_int(launch("flag", 1, 32, &p), CUDA_SUCCESS,
		"31 lanes that spin on the 32nd with plain loads");
	is_int(v[1], 32, "all come through");
	memset(v, 0, 8);
	p.i = 20;
	is_int(launch("sync", 20, 64, &p), CUDA_SUCCESS, "20 blocks that wait for each other");
	is_int(v[1], 20 * 64, "all come through");
	memset(v, 0, 64);
	struct run a, b;
	struct params pa = { p.p, 0, 1 }, pb = { p.p, 1, 0 };
	run_start(&a, sg_module_kernel(module, "meet"), 1, 32, 0, &pa, false);
	usleep(2000);
	ok(!run_ended(&a), "a grid waits for another");
	run_start(&b, sg_module_kernel(module, "meet"), 1, 32, 0, &pb, false);
	ok(!run_wait(&a) && !run_wait(&b), "both end once both run");
	memset(v, 0, 64);
	run_start(&a, sg_module_kernel(module, "meet"), 1, 32, 0, &pa, false);
	usleep(1000);
	__atomic_store_n(&v[1], 1, __ATOMIC_SEQ_CST);
	is_int(run_wait(&a), CUDA_SUCCESS, "a grid that waits for the host");
	sg_mem_free(device, p.p);
}

static void test_cooperative(void)
{
	struct params p = { alloc(64), 0, 0 };
	struct sg_kernel *k = sg_module_kernel(module, "sync");
	uint32_t fit = sg_occupancy(device, k, 512, 0) * 4;
	struct run r;
	is_int(fit, 16, "2,048 threads an SM: 16 blocks of 512 on 4");
	p.i = fit;
	is_int(run_start(&r, k, fit, 512, 0, &p, true), CUDA_SUCCESS,
		"a cooperative grid that fills the device starts");
	is_int(run_wait(&r), CUDA_SUCCESS, "and ends");
	is_int(((uint32_t *)p.p)[1], fit * 512, "with all its threads");
	is_int(run_start(&r, k, fit + 1, 512, 0, &p, true), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
		"one block more is refused");
	/* Behind a grid that holds half the device. */
	memset((void *)p.p, 0, 64);
	struct params half = { p.p + 32, 0, 1 };
	struct run h;
	run_start(&h, sg_module_kernel(module, "meet"), 8, 512, 0, &half, false);
	for (int n = 0; n < 5000 && !__atomic_load_n((uint32_t *)(p.p + 32), __ATOMIC_RELAXED); n++)
		usleep(1000);
	usleep(1000);
	is_int(run_start(&r, k, fit, 512, 0, &p, true), CUDA_SUCCESS,
		"a second one waits for room");
	usleep(2000);
	ok(!run_ended(&r) && __atomic_load_n((uint32_t *)p.p, __ATOMIC_RELAXED) == 0,
		"and starts nothing meanwhile");
	__atomic_store_n((uint32_t *)(p.p + 36), 1, __ATOMIC_SEQ_CST);
	ok(!run_wait(&h) && !run_wait(&r), "then both end");
	sg_mem_free(device, p.p);
}

static void test_shapes(void)
{
	struct params p = { alloc(65536), 0, 0 };
	struct sg_launch l = { .kernel = sg_module_kernel(module, "shape"),
		.grid = { 3, 4, 5 },
		.block = { 7, 3, 2 },
		.params = &p };
	struct run r = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	is_int(sg_grid_start(device, &l, run_done, &r), CUDA_SUCCESS,
		"a grid of 3x4x5 blocks of 7x3x2");
	run_wait(&r);
	uint32_t bad = 0;
	for (uint32_t i = 0; i < 3 * 4 * 5 * 42 + 10; i++)
		bad += ((uint32_t *)p.p)[i] != (i < 3 * 4 * 5 * 42);
	is_int(bad, 0, "every thread exists once");
	is_int(launch("shape", 1, 1025, &p), CUDA_ERROR_INVALID_VALUE, "1,025 threads are refused");
	is_int(launch("shape", 0, 1, &p), CUDA_ERROR_INVALID_VALUE, "no blocks are refused");
	is_int(launch("limited", 1, 65, &p), CUDA_ERROR_INVALID_VALUE,
		"more than .maxntid is refused");
	is_int(launch("limited", 1, 64, &p), CUDA_SUCCESS, ".maxntid runs");
	is_int(launch("exact", 1, 64, &p), CUDA_ERROR_INVALID_VALUE,
		"another shape than .reqntid is refused");
	l = (struct sg_launch){ .kernel = sg_module_kernel(module, "exact"),
		.grid = { 1, 1, 1 },
		.block = { 8, 4, 2 },
		.params = &p };
	r = (struct run){ .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	ok(!sg_grid_start(device, &l, run_done, &r) && !run_wait(&r), ".reqntid runs");
	struct sg_kernel *k = sg_module_kernel(module, "shared");
	struct sg_kernel_info info;
	sg_kernel_get_info(k, &info);
	is_int(info.static_shared_bytes, 20, "static shared memory is what the kernel uses");
	is_int(run_start(&r, k, 1, 32, 200 * 1024, &p, false), CUDA_SUCCESS,
		"200 KiB of dynamic shared memory");
	is_int(run_wait(&r), CUDA_SUCCESS, "its last word is there");
	is_int(((uint32_t *)p.p)[0], 32, "it starts aligned after the static part");
	is_int(((uint32_t *)p.p)[1], 200 * 1024, "and has its size");
	is_int(run_start(&r, k, 1, 32, 228 * 1024, &p, false), CUDA_ERROR_INVALID_VALUE,
		"228 KiB are refused");
	is_int(sg_occupancy(device, k, 32, 100 * 1024), 2, "two blocks of 100 KiB an SM");
	l = (struct sg_launch){ .kernel = sg_module_kernel(module, "cluster"),
		.grid = { 6, 1, 1 },
		.block = { 32, 1, 1 },
		.cluster = { 2, 1, 1 },
		.params = &p };
	r = (struct run){ .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	ok(!sg_grid_start(device, &l, run_done, &r) && !run_wait(&r), "a grid of clusters");
	bad = 0;
	for (uint32_t i = 0; i < 6; i++)
		bad += ((uint32_t *)p.p)[i] != (i ^ 1);
	is_int(bad, 0, "blocks see their partner's shared memory");
	sg_mem_free(device, p.p);
}

/* A fault ends its own grid only, whatever its other threads do. */
static void test_isolation(void)
{
	struct params bad = { 0, 0, 1 }, good = { alloc(64), 0, 1 };
	struct run a, b;
	run_start(&b, sg_module_kernel(module, "meet"), 1, 32, 0, &good, false);
	stderr_capture();
	run_start(&a, sg_module_kernel(module, "meet"), 100, 256, 0, &bad, false);
	CUresult e = run_wait(&a);
	const char *line = stderr_end();
	is_int(e, CUDA_ERROR_ILLEGAL_ADDRESS, "a grid of 100 blocks faults");
	ok(strchr(line, '\n') && !strchr(line, '\n')[1], "with one line");
	__atomic_store_n((uint32_t *)good.p + 1, 1, __ATOMIC_SEQ_CST);
	is_int(run_wait(&b), CUDA_SUCCESS, "its neighbour goes on");
	sg_mem_free(device, good.p);
}

int main(void)
{
	static const uint32_t seeds[] = { 0, 0, 3, 9 }, workers[] = { 2, 1, 2, 1 };
	for (int i = 0; i < 4; i++) {
		device_open(workers[i], seeds[i]);
		module = load(ptx);
		if (!ok(module != NULL, "the module loads on %u workers, seed %u", workers[i],
			    seeds[i]))
			return tap_done();
		test_progress();
		test_cooperative();
		test_shapes();
		test_isolation();
		sg_module_free(module);
		sg_device_free(device);
	}
	return tap_done();
}
