/* Blocks that the original keeps resident together stay so: a variant of which fewer fit is built
 * again with a limit of registers, or the original runs. The shim says how many fit. */
#include "harness.h"

enum { THREADS = 32 };

static int sms(void)
{
	int n = 0;
	CU(cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
	return n;
}

static int launches(unsigned blocks, bool cooperative)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 1, n = blocks * THREADS;
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, n * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < 2; i++) {
		if (cooperative)
			CU(cuLaunchCooperativeKernel(
				fn, blocks, 1, 1, THREADS, 1, 1, 0, NULL, params));
		else
			CU(cuLaunchKernel(fn, blocks, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
	}
	return check_fill(buf, add, n);
}

/* One block an SM fits in any case. */
static int small(void)
{
	target_context();
	return launches((unsigned)sms(), true);
}

/* Two an SM: all would be resident of the original. */
static int together(void)
{
	target_context();
	return launches(2 * (unsigned)sms(), false);
}

static int cooperative(void)
{
	target_context();
	return launches(2 * (unsigned)sms(), true);
}

/* More than can be resident of either: nobody can count on it. */
static int large(void)
{
	target_context();
	return launches(5 * (unsigned)sms(), false);
}

static const struct role roles[] = { { "small", small }, { "together", together },
	{ "cooperative", cooperative }, { "large", large }, { 0 } };

static const struct {
	const char *role;
	const char *env;
	int instrumented;
} want[] = {
	{ "small", "SHIM_TIGHT=1", 2 },
	{ "small", "SHIM_TIGHT=2", 2 },
	{ "together", "SHIM_TIGHT=1", 2 },
	{ "together", "SHIM_TIGHT=2", 0 },
	{ "cooperative", "SHIM_TIGHT=1", 2 },
	{ "cooperative", "SHIM_TIGHT=2", 0 },
	{ "large", "SHIM_TIGHT=1", 2 },
	{ "large", "SHIM_TIGHT=2", 2 },
};

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct run r;
		run_begin(&r);
		run_use_shim(&r);
		r.env[0] = want[i].env;
		uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
		struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
		run_attach(&r, &f, "fill");
		is_int(run_role(&r, want[i].role), 0, "%s, %s: results are right", want[i].role,
			want[i].env);
		struct session_kernel *k = run_kernel(&r, "fill");
		is_int(k ? k->launches_instrumented : 0, want[i].instrumented,
			"%s, %s: instrumented", want[i].role, want[i].env);
		is_int(k ? k->launches : 0, 2, "%s, %s: launches", want[i].role, want[i].env);
		run_end(&r);
	}
	return tap_done();
}
