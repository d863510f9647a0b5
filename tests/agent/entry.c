/* An entry counter is exact, the program's results are its own, and its kernel's row tells the
 * story. */
#include "harness.h"

enum { N = 1000, THREADS = 128, BLOCKS = (N + THREADS - 1) / THREADS };

static int simple(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 7, n = N;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill") PTX_FILL("other")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < 5; i++)
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	return check_fill(buf, add, N);
}

/* The same without any synchronising call: what ran must be in the maps at exit. */
static int hasty(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 7, n = N;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < 50; i++)
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	return 0;
}

static int destroyed(void)
{
	int status = simple();
	CU(cuDevicePrimaryCtxRelease(0));
	return status;
}

static const struct role roles[] = { { "simple", simple }, { "hasty", hasty },
	{ "destroyed", destroyed }, { 0 } };

static void exact(const char *role, int launches)
{
	struct run r;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
	uint32_t link = run_attach(&r, &f, "fill");
	is_int(run_role(&r, role), 0, "%s: the program's results are right", role);
	is_int(run_count(&r, map, 0), (uint64_t)launches * BLOCKS * THREADS,
		"%s: one count a thread", role);
	struct session_kernel *k = run_kernel(&r, "fill");
	if (ok(k, "%s: the kernel has a row", role)) {
		is_int(k->state, SESSION_KERNEL_INSTRUMENTED, "%s: instrumented (%s)", role,
			session_text(r.session, k->reason));
		is_str(session_text(r.session, k->source), "PTX text", "%s: source", role);
		is_int(k->launches, launches, "%s: launches", role);
		is_int(k->launches_instrumented, launches, "%s: instrumented launches", role);
		is_int(k->links, 1 << link, "%s: its link", role);
		ok(k->n_sites > 0, "%s: %u sites", role, k->n_sites);
	}
	is_int(r.file->links[link].matched, 1, "%s: one kernel matches", role);
	is_int(r.file->next_launch, launches, "%s: launch ids", role);
	is_int(r.file->agents[0].ended, 1, "%s: the agent said good-bye", role);
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	exact("simple", 5);
	exact("hasty", 50);
	exact("destroyed", 5);
	return tap_done();
}
