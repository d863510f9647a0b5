/* Programs in a part of the warps: --sample-warps and --max-overhead in the agent. Sums are those of all warps, exactly where all run
 * and on average where one in N does; the limit raises N until it is kept, or gives up; the target's results are right in all. */
#include "harness.h"

enum { THREADS = 64, BLOCKS = 4, ALL = THREADS * BLOCKS, WARPS = ALL / 32, LAUNCHES = 400, GROUP = 8, HEAVY = 1200 };

/* out[i] = add + i, after a while. */
#define PTX_SLOW                                                                                   \
	".visible .entry slow(.param .u64 out, .param .u32 add, .param .u32 n)\n{\n"               \
	"\t.reg .pred %p;\n\t.reg .b32 %r<6>;\n\t.reg .b64 %d<3>;\n"                               \
	"\tld.param.u64 %d1, [out];\n\tld.param.u32 %r1, [add];\n\tld.param.u32 %r2, [n];\n"       \
	"\tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmov.u32 %r5, %tid.x;\n"              \
	"\tmad.lo.u32 %r3, %r3, %r4, %r5;\n\tsetp.ge.u32 %p, %r3, %r2;\n\t@%p ret;\n"              \
	"\tmov.u32 %r4, 200;\n"                                                                    \
	"again:\n\tsub.u32 %r4, %r4, 1;\n\tsetp.ne.u32 %p, %r4, 0;\n\t@%p bra again;\n"            \
	"\tadd.u32 %r1, %r1, %r3;\n\tmul.wide.u32 %d2, %r3, 4;\n\tadd.s64 %d1, %d1, %d2;\n"        \
	"\tst.global.u32 [%d1], %r1;\n\tret;\n}\n"

static int loop(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_SLOW));
	CU(cuModuleGetFunction(&fn, mod, "slow"));
	CU(cuMemAlloc(&buf, ALL * 4));
	for (uint32_t i = 0; i < LAUNCHES; i++) {
		uint32_t n = ALL;
		void *params[] = { &buf, &i, &n };
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		if (check_fill(buf, i, ALL))
			return 1;
	}
	return 0;
}

static const struct role roles[] = { { "loop", loop }, { 0 } };

/* `times` additions a thread. */
static struct ebpf_fragment adding(uint32_t map, int times, bool sampled)
{
	static char body[65536];
	size_t at = (size_t)snprintf(body, sizeof(body),
		"{\n\t.reg .b64 %%egpu_r<2>;\n\tld.const.b64 %%egpu_r0, [__egpu_table+%u];\n\t%s\n", map * 8,
		sampled ? "cvt.u64.u32 %egpu_r1, %egpu_weight;" : "mov.u64 %egpu_r1, 1;");
	for (int i = 0; i < times; i++)
		at += (size_t)snprintf(body + at, sizeof(body) - at,
			"\tred.global.add.u64 [%%egpu_r0+128], %%egpu_r1;\n");
	snprintf(body + at, sizeof(body) - at, "}\n");
	return (struct ebpf_fragment){ .name = "adding",
		.point = EBPF_POINT_ENTRY,
		.sampled = sampled,
		.maps = (uint64_t)1 << map,
		.max_insns = 1000,
		.body = body };
}

struct outcome {
	struct session_kernel kernel;
	uint64_t sum; /* additions / times, of threads */
};

static struct outcome measure(const struct session_filter *f, int times, bool sampled, const char *what)
{
	struct run r;
	struct outcome o = { 0 };
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment fragment = adding(map, times, sampled);
	run_attach(&r, &fragment, "slow");
	r.file->filter = *f;
	r.file->filter.active = 1;
	is_int(run_role(&r, "loop"), 0, "%s: results are right", what);
	struct session_kernel *k = run_kernel(&r, "slow");
	if (k)
		o.kernel = *k;
	o.sum = run_count(&r, map, 0) / (uint64_t)times;
	printf("# %s: one in %u (%u to %u), %.1f%%, %llu of %llu launches, sum %llu of %u\n", what, o.kernel.one_in,
		o.kernel.one_in_least, o.kernel.one_in_most, (double)o.kernel.overhead_ppm / 1e4,
		(unsigned long long)o.kernel.launches_instrumented, (unsigned long long)o.kernel.launches,
		(unsigned long long)o.sum, LAUNCHES * ALL);
	run_end(&r);
	return o;
}

/* The sum of n warps' additions, one in N chosen, has a standard deviation of sqrt(n * (N - 1)) warps. */
static bool near(uint64_t sum, double one_in)
{
	double n = (double)LAUNCHES * WARPS, off = (double)sum / 32 - n;
	return off * off < 25 * n * (one_in - 1);
}

static void fixed(uint32_t one_in)
{
	struct session_filter f = { .sample_warps = one_in, .sample_seed = 42 };
	struct outcome a = measure(&f, 1, true, "fixed"), b = measure(&f, 1, true, "the same seed");
	f.sample_seed = 43;
	struct outcome c = measure(&f, 1, true, "another seed");
	ok(near(a.sum, one_in) && near(c.sum, one_in), "one warp in %u: the sum is near that of all", one_in);
	ok(a.sum == b.sum && a.sum != c.sum, "the same warps for the same seed");
	ok(!(a.sum % (32 * one_in)), "whole warps, each counted %u times", one_in);
	is_int(a.kernel.launches_instrumented, LAUNCHES, "in every launch");
	ok(a.kernel.one_in == one_in && a.kernel.warps == LAUNCHES * WARPS, "both are reported");
}

/* Programs of two loaders at one place: one in chosen warps, one in all. */
static void beside(void)
{
	struct run r;
	run_begin(&r);
	uint32_t maps[2] = { run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1), run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1) };
	struct ebpf_fragment some = adding(maps[0], 1, true), all;
	run_attach(&r, &some, "slow");
	all = adding(maps[1], 1, false);
	run_attach(&r, &all, "slow");
	r.file->filter = (struct session_filter){ .active = 1, .sample_warps = 4, .sample_seed = 9 };
	is_int(run_role(&r, "loop"), 0, "two programs: results are right");
	uint64_t sum = run_count(&r, maps[0], 0);
	ok(near(sum, 4) && sum != LAUNCHES * ALL && !(sum % 128), "one is sampled");
	is_int(run_count(&r, maps[1], 0), LAUNCHES * ALL, "the other beside it counts all");
	run_end(&r);
}

static void limits(void)
{
	struct session_filter f = { .max_overhead_ppm = 1000000000, .sample_seed = 1 };
	struct outcome o = measure(&f, 1, true, "no real limit");
	is_int(o.sum, LAUNCHES * ALL, "a limit that is kept: the sum is exact, as of launches for comparison others stand twice");
	is_int(o.kernel.launches_instrumented, LAUNCHES - LAUNCHES / GROUP, "one launch in %d is for comparison", GROUP);
	ok(o.kernel.one_in == 1 && o.kernel.one_in_most == 1 && !o.kernel.given_up, "all warps");

	f.max_overhead_ppm = 500000;
	o = measure(&f, HEAVY, true, "a heavy program, 50 %");
	ok(o.kernel.one_in_most > 1 && !o.kernel.given_up, "a part of the warps");
	ok(near(o.sum, o.kernel.one_in_most), "the sum is near that of all");
	is_int(o.kernel.launches_instrumented, LAUNCHES - LAUNCHES / GROUP, "every launch, but those for comparison");

	o = measure(&f, HEAVY, false, "one that is not sampled");
	ok(o.kernel.given_up && o.kernel.launches_instrumented < LAUNCHES - LAUNCHES / GROUP, "given up");
	is_int(o.sum, o.kernel.launches_instrumented * ALL, "what ran is counted, exactly");
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	fixed(8);
	fixed(100);
	beside();
	limits();
	return tap_done();
}
