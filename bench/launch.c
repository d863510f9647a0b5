/* launch.c - what the agent adds to a launch, in nanoseconds of the launching thread.
 *
 * This program runs itself as a target whose driver's cuLaunchKernel returns at once (null.c), with
 * and without the agent. On a GPU, `bench/launch --here` in a process measures against the driver
 * that is loaded: run it plainly and under `egpu run`.
 *
 *	direct      no agent
 *	loaded      the agent, and no link
 *	unprobed    a link, on another kernel of the same module
 *	probed      the kernel's variant is launched
 */
#include <pthread.h>
#include <time.h>

#include "harness.h"

enum { ROUNDS = 15, PER_ROUND = 20000, N = 256 };

static CUfunction fn;
static CUstream stream;
static CUdeviceptr buf;
static CUcontext context;

static uint64_t clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void *launches(void *result)
{
	uint32_t add = 5, n = 0;
	void *params[] = { &buf, &add, &n };
	double ns[ROUNDS];
	CU(cuCtxSetCurrent(context));
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t start = clock_ns();
		for (int i = 0; i < PER_ROUND; i++)
			CU(cuLaunchKernel(fn, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
		ns[r] = (double)(clock_ns() - start) / PER_ROUND;
		CU(cuCtxSynchronize());
	}
	qsort(ns, ROUNDS, sizeof(*ns), by_value);
	*(double *)result = ns[ROUNDS / 2];
	return NULL;
}

static int measure(void)
{
	CUmodule mod;
	double one, two[2];
	pthread_t t[2];
	context = target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill") PTX_FILL("other")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	launches(&one);
	launches(&one);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&t[i], NULL, launches, &two[i]))
			return 1;
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("%.1f ns a launch, %.1f with two threads\n", one, (two[0] + two[1]) / 2);
	return 0;
}

static const struct role roles[] = { { "--here", measure }, { 0 } };

static void use_null_driver(struct run *r)
{
	static const struct {
		const char *name, *to;
	} links[] = { { "libegpu-driver.so.1", NULL_LIB }, { "libcuda.so.1", NULL_LIB },
		{ "libegpu-shim-target.so.1", SOFTGPU_LIB } };
	char path[512];
	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", session_path(r->session), links[i].name);
		unlink(path);
		if (symlink(links[i].to, path))
			printf("# cannot make %s\n", path);
	}
}

static int arm(const char *name, const char *pattern, bool no_agent)
{
	struct run r;
	run_begin(&r);
	use_null_driver(&r);
	r.no_agent = no_agent;
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
	if (pattern)
		run_attach(&r, &f, pattern);
	printf("%-10s", name);
	fflush(stdout);
	int status = run_role(&r, "--here");
	/* An agent that stayed away would be a fast one. */
	struct session_kernel *k = run_kernel(&r, "fill");
	uint64_t launches = k ? k->launches : 0, probed = k ? k->launches_instrumented : 0;
	bool wanted = pattern && !strcmp(pattern, "fill");
	if (no_agent ? launches : !launches || (wanted ? probed != launches : probed)) {
		printf("wrong: %llu launches were seen, %llu probed\n", (unsigned long long)launches,
			(unsigned long long)probed);
		status = 1;
	}
	run_end(&r);
	return status;
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	return arm("direct", NULL, true) || arm("loaded", NULL, false) ||
	       arm("unprobed", "other", false) || arm("probed", "fill", false);
}
