/* A device that is never idle: 8 threads keep launches queued on 16 streams while probes come and go every 100 ms.
 * Each attached interval counts something, every launch whole; what that costs the program is bounded and told.
 *
 * BUSY_SECONDS: how long (2; EGPU_LONG: 10). */
#include "clients.h"

enum { WORKERS = 8 };

/* `fill` that takes some time. */
#define PTX_SLOW(times)                                                                                   \
	".visible .entry fill(.param .u64 out, .param .u32 add, .param .u32 n)\n"                  \
	"{\n\t.reg .pred %p<3>;\n\t.reg .b32 %r<10>;\n\t.reg .b64 %rd<4>;\n"                     \
	"\tld.param.u64 %rd1, [out];\n\tld.param.u32 %r1, [add];\n\tld.param.u32 %r2, [n];\n"    \
	"\tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmov.u32 %r5, %tid.x;\n"            \
	"\tmad.lo.s32 %r6, %r3, %r4, %r5;\n\tsetp.ge.u32 %p1, %r6, %r2;\n\t@%p1 bra DONE;\n"     \
	"\tmov.u32 %r8, 0;\nMORE:\n\tadd.u32 %r8, %r8, 1;\n\tsetp.lt.u32 %p2, %r8, " times ";\n" \
	"\t@%p2 bra MORE;\n"                                                                       \
	"\tadd.u32 %r7, %r6, %r1;\n\tmul.wide.u32 %rd2, %r6, 4;\n\tadd.u64 %rd3, %rd1, %rd2;\n"  \
	"\tst.global.u32 [%rd3], %r7;\nDONE:\n\tret;\n}\n"

/* Two streams a thread, one of which has work at any time. */
static void *worker(void *arg)
{
	CUstream streams[2];
	CUdeviceptr bufs[2];
	uint32_t add = (uint32_t)(uintptr_t)arg, n = N;
	CU(cuCtxSetCurrent(ctx));
	for (int i = 0; i < 2; i++) {
		CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		CU(cuMemAlloc(&bufs[i], N * 4));
	}
	for (unsigned round = 0; !over; round++) {
		int i = (int)(round % 2);
		void *params[3] = { &bufs[i], &add, &n };
		for (int k = 0; k < 2; k++)
			CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, streams[i], params, NULL));
		CU(cuStreamSynchronize(streams[1 - i]));
	}
	uintptr_t wrong = 0;
	for (int i = 0; i < 2; i++) {
		CU(cuStreamSynchronize(streams[i]));
		wrong += (uintptr_t)check_fill(bufs[i], add, N);
	}
	return (void *)wrong;
}

static int launching(void)
{
	return launch_in_threads(PTX_HEAD PTX_SLOW("100"), WORKERS, worker);
}

/* Runs until the word is at least `until`. Then `fill`'s work. */
#define PTX_LINK                                                                                   \
	".visible .entry fill(.param .u64 out, .param .u32 add, .param .u32 n, .param .u64 word, .param .u32 until)\n" \
	"{\n\t.reg .pred %p<3>;\n\t.reg .b32 %r<10>;\n\t.reg .b64 %rd<5>;\n"                     \
	"\tld.param.u64 %rd1, [out];\n\tld.param.u32 %r1, [add];\n\tld.param.u32 %r2, [n];\n"    \
	"\tld.param.u64 %rd4, [word];\n\tld.param.u32 %r8, [until];\n"                            \
	"MORE:\n\tld.volatile.global.u32 %r9, [%rd4];\n\tsetp.lt.s32 %p2, %r9, %r8;\n\t@%p2 bra MORE;\n" \
	"\tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmov.u32 %r5, %tid.x;\n"            \
	"\tmad.lo.s32 %r6, %r3, %r4, %r5;\n\tsetp.ge.u32 %p1, %r6, %r2;\n\t@%p1 bra DONE;\n"       \
	"\tadd.u32 %r7, %r6, %r1;\n\tmul.wide.u32 %rd2, %r6, 4;\n\tadd.u64 %rd3, %rd1, %rd2;\n"  \
	"\tst.global.u32 [%rd3], %r7;\nDONE:\n\tret;\n}\n"

static atomic_int called, launched; /* links of the chain */
static volatile uint32_t *word;

/* A kernel ends once the next one has been launched, or when that takes long. */
static void *release(void *arg)
{
	for (int i = 0; !over || i < atomic_load(&called); i++) {
		while (!over && atomic_load(&called) <= i + 1)
			usleep(20);
		for (int us = 0; us < 1500 && atomic_load(&launched) <= i + 1; us += 100)
			usleep(30);
		*word = (uint32_t)i;
	}
	*word = INT32_MAX;
	return NULL;
}

/* One stream on which a kernel runs at any time. */
static int chain(void)
{
	CUstream stream;
	CUdeviceptr buf, device_word;
	CUmodule mod;
	pthread_t helper;
	uint32_t add = 5, n = N, until;
	signal(SIGUSR1, end);
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_LINK));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&buf, N * 4));
	CU(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer(&device_word, (void *)word, 0));
	*word = 0;
	void *params[] = { &buf, &add, &n, &device_word, &until };
	pthread_create(&helper, NULL, release, NULL);
	raise(SIGSTOP);
	for (int i = 0; !over; i++) {
		until = (uint32_t)i;
		atomic_store(&called, i + 1);
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
		atomic_store(&launched, i + 1);
		while (!over && (int)*word + 2 <= i)
			usleep(20);
	}
	pthread_join(helper, NULL);
	CU(cuStreamSynchronize(stream));
	return check_fill(buf, add, N);
}

/* Launches on two streams, and one synchronisation a step. */
enum { STEP = 6 };

static int training(void)
{
	CUstream streams[2];
	CUdeviceptr bufs[2];
	CUmodule mod;
	uint32_t add = 9, n = N;
	signal(SIGUSR1, end);
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_SLOW("200")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	for (int i = 0; i < 2; i++) {
		CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		CU(cuMemAlloc(&bufs[i], N * 4));
	}
	raise(SIGSTOP);
	while (!over) {
		for (int i = 0; i < STEP; i++) {
			void *params[3] = { &bufs[i % 2], &add, &n };
			CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, streams[i % 2], params, NULL));
		}
		CU(cuCtxSynchronize());
	}
	return check_fill(bufs[0], add, N) + check_fill(bufs[1], add, N);
}

static const struct role roles[] = { { "launching", launching }, { "chain", chain }, { "training", training }, { 0 } };

struct outcome {
	int torn, empty, stuck, failed, intervals;
	int64_t counted;
};

/* A probe comes, stays for 100 ms and until it has counted something, at most ms, and goes. */
static void one_interval(const struct run *r, struct outcome *o, int ms)
{
	struct client a;
	o->failed += !client_begin(&a, r);
	usleep(100000);
	for (; ms && !run_count(&a.run, a.map, 0); ms--)
		usleep(1000);
	int64_t n = client_end(&a, 5000);
	o->stuck += n == -1;
	o->torn += n == -2;
	o->empty += n == 0;
	o->counted += n > 0 ? n : 0;
	o->intervals++;
}

static void begin(struct run *r, const char *role, pid_t *pid)
{
	int status;
	run_begin(r);
	*pid = run_start(r, role);
	ok(waitpid(*pid, &status, WUNTRACED) == *pid && WIFSTOPPED(status), "%s: it launches", role);
	kill(*pid, SIGCONT);
	usleep(200000);
}

static void finish(struct run *r, const char *role, pid_t pid, const struct outcome *o)
{
	is_int(o->failed, 0, "%s: %d probes find room", role, o->intervals);
	is_int(o->empty, 0, "%s: each counts something", role);
	is_int(o->stuck, 0, "%s: each is let go of", role);
	is_int(o->torn, 0, "%s: every launch is counted whole or not at all", role);
	kill(pid, SIGUSR1);
	is_int(run_wait(r, pid, 20), 0, "%s: results are right", role);
	struct session_kernel *k = run_kernel(r, "fill");
	const struct session_agent *agent = &r->file->agents[0];
	is_int((int64_t)(k ? k->launches_instrumented : 0), o->counted, "%s: as many as ran instrumented", role);
	printf("# %lld of %lld launches in %d intervals; held %llu times, %.2f ms on average, %.2f ms at most\n",
		(long long)o->counted, (long long)(k ? k->launches : 0), o->intervals,
		(unsigned long long)agent->holds,
		agent->holds ? (double)agent->held_ns / 1e6 / (double)agent->holds : 0,
		(double)agent->held_max_ns / 1e6);
}

/* Launches that ran without the probe from its coming to its going. */
static int64_t missed(struct run *r)
{
	struct session_kernel *k;
	struct client a;
	for (int ms = 0; !(k = run_kernel(r, "fill")) && ms < 5000; ms++)
		usleep(1000);
	if (!k)
		return -1;
	uint64_t before = k->launches - k->launches_instrumented;
	bool begun = client_begin(&a, r);
	for (int ms = 0; begun && ms < 5000 && !run_count(&a.run, a.map, 0); ms++)
		usleep(1000);
	int64_t n = (int64_t)(k->launches - k->launches_instrumented - before);
	return !begun || client_end(&a, 5000) <= 0 ? -1 : n;
}

int main(int argc, char **argv)
{
	struct run r;
	struct outcome many = { 0 }, few = { 0 };
	pid_t pid;
	const char *seconds = getenv("BUSY_SECONDS"), *longer = getenv("EGPU_LONG");
	harness_main(argc, argv, roles);
	begin(&r, "launching", &pid);
	time_t until = time(NULL) + (seconds ? atoi(seconds) : longer ? 10 : 2);
	while (time(NULL) < until && many.stuck < 3)
		one_interval(&r, &many, 10000);
	finish(&r, "launching", pid, &many);
	run_end(&r);

	/* Here work never ends by itself, whatever else the machine does. */
	begin(&r, "chain", &pid);
	for (int i = 0; i < 3; i++)
		one_interval(&r, &few, 10000);
	finish(&r, "chain", pid, &few);
	ok(r.file->agents[0].holds > 0, "launches had to be held");
	run_end(&r);

	begin(&r, "training", &pid);
	int late = 0;
	for (int i = 0; i < 8; i++) {
		int64_t n = missed(&r);
		late += n < 0 || n > 2 * STEP;
		printf("# %lld launches unprobed\n", (long long)n);
	}
	is_int(late, 0, "training: a loop that synchronises once a step is probed within two steps");
	kill(pid, SIGUSR1);
	is_int(run_wait(&r, pid, 20), 0, "training: results are right");
	run_end(&r);
	return tap_done();
}
