/* launch.c - what the agent adds to a launch, in nanoseconds of the launching thread.
 *
 * This program runs itself as a target whose driver's cuLaunchKernel returns at once (null.c), with
 * and without the agent. On a GPU, `bench/launch --here` in a process measures against the driver
 * that is loaded: run it plainly and under `egpu run`.
 *
 *	direct      no agent
 *	loaded      the agent, and no link
 *	untimed     the same with --no-time
 *	unprobed    a link, on another kernel of the same module
 *	probed      the kernel's variant is launched
 */
#include <pthread.h>
#include <time.h>

#include "harness.h"

enum { ROUNDS = 15, PER_ROUND = 20000, N = 256, MOST_THREADS = 4 };

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

/* Nanoseconds a launch of each thread, a median. */
struct job {
	CUstream stream;
	double ns;
};

static void *launches(void *arg)
{
	struct job *job = arg;
	uint32_t add = 5, n = 0;
	void *params[] = { &buf, &add, &n };
	double ns[ROUNDS];
	CU(cuCtxSetCurrent(context));
	for (int r = 0; r < ROUNDS; r++) {
		uint64_t start = clock_ns();
		for (int i = 0; i < PER_ROUND; i++)
			CU(cuLaunchKernel(fn, 1, 1, 1, 32, 1, 1, 0, job->stream, params, NULL));
		ns[r] = (double)(clock_ns() - start) / PER_ROUND;
		CU(cuCtxSynchronize());
	}
	qsort(ns, ROUNDS, sizeof(*ns), by_value);
	job->ns = ns[ROUNDS / 2];
	return NULL;
}

static double with_threads(int n, CUstream in)
{
	struct job jobs[MOST_THREADS];
	pthread_t t[MOST_THREADS];
	double sum = 0;
	for (int i = 0; i < n; i++) {
		jobs[i].stream = in;
		if (pthread_create(&t[i], NULL, launches, &jobs[i]))
			exit(1);
	}
	for (int i = 0; i < n; i++) {
		pthread_join(t[i], NULL);
		sum += jobs[i].ns;
	}
	return sum / n;
}

static int measure(void)
{
	CUmodule mod;
	context = target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill") PTX_FILL("other")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	with_threads(1, stream);
	double one = with_threads(1, stream), own = with_threads(1, CU_STREAM_PER_THREAD);
	printf("%.1f ns a launch, %.1f into the thread's own stream", one, own);
	printf(", %.1f with two threads, %.1f with four\n", with_threads(2, stream), with_threads(4, stream));
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

static int arm(const char *name, const char *pattern, bool no_agent, bool untimed)
{
	struct run r;
	run_begin(&r);
	use_null_driver(&r);
	r.no_agent = no_agent;
	r.file->untimed = untimed;
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
	return arm("direct", NULL, true, false) || arm("loaded", NULL, false, false) || arm("untimed", NULL, false, true) ||
	       arm("unprobed", "other", false, false) || arm("probed", "fill", false, false);
}
