/* Probes of several clients come and go while threads launch on many streams: no error, every
 * launch is counted whole or not at all, slots and files are used again, and nothing is left
 * behind. */
#include <dirent.h>

#include "clients.h"

enum { WORKERS = 4, STREAMS = 3, CYCLES = 90, TURNS = 20 };

static void *worker(void *arg)
{
	CUstream streams[STREAMS];
	CUdeviceptr bufs[STREAMS];
	uint32_t add = (uint32_t)(uintptr_t)arg, n = N;
	CU(cuCtxSetCurrent(ctx));
	for (int i = 0; i < STREAMS; i++) {
		CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		CU(cuMemAlloc(&bufs[i], N * 4));
	}
	for (unsigned round = 0; !over; round++) {
		int i = (int)(round % STREAMS);
		void *params[3] = { &bufs[i], &add, &n };
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, streams[i], params, NULL));
		if (round % 7 == 0)
			CU(cuStreamSynchronize(streams[i]));
		if (round % 50 == 0)
			usleep(500);
	}
	uintptr_t wrong = 0;
	for (int i = 0; i < STREAMS; i++) {
		CU(cuStreamSynchronize(streams[i]));
		wrong += (uintptr_t)check_fill(bufs[i], add, N);
	}
	return (void *)wrong;
}

/* Contexts that are destroyed with all that was loaded there. */
static void *comes_and_goes(void *arg)
{
	uint32_t add = (uint32_t)(uintptr_t)arg, n = N;
	uintptr_t wrong = 0;
	while (!over) {
		CUcontext c;
		CUmodule mod;
		CUfunction f;
		CUdeviceptr buf;
		void *params[3] = { &buf, &add, &n };
		CU(cuCtxCreate(&c, NULL, 0, 0));
		CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
		CU(cuModuleGetFunction(&f, mod, "fill"));
		CU(cuMemAlloc(&buf, N * 4));
		for (int i = 0; i < 3; i++)
			CU(cuLaunchKernel(f, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		wrong += (uintptr_t)check_fill(buf, add, N);
		CU(cuCtxDestroy(c));
		usleep(300);
	}
	return (void *)wrong;
}

static int contexts(void)
{
	return launch_in_threads(PTX_HEAD PTX_FILL("fill"), 1, comes_and_goes);
}

static int launching(void)
{
	return launch_in_threads(PTX_HEAD PTX_FILL("fill"), WORKERS, worker);
}

static const struct role roles[] = { { "launching", launching }, { "contexts", contexts }, { 0 } };

/* Its counts once it has some; at most 3 s. */
static uint64_t client_counts(struct client *c)
{
	uint64_t n = 0;
	for (int i = 0; i < 3000 && !n; i++) {
		usleep(1000);
		n = run_count(&c->run, c->map, 0);
	}
	return n;
}

static int files(const char *dir)
{
	int n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

/* A row that is used again is another probe's, whatever was left in contexts that are gone: clients take turns whose maps have
 * other numbers. */
static void rows_again(void)
{
	struct run r;
	struct client c;
	int status, failed = 0, empty = 0, stuck = 0, torn = 0;
	run_begin(&r);
	pid_t pid = run_start(&r, "contexts");
	waitpid(pid, &status, WUNTRACED);
	kill(pid, SIGCONT);
	for (int i = 0; i < TURNS && empty < 2; i++) {
		failed += !client_begin_with(&c, &r, i % 3);
		empty += !client_counts(&c);
		int64_t n = client_end(&c, 3000);
		torn += n == -2;
		stuck += n == -1;
	}
	is_int(failed + stuck, 0, "%d clients take turns beside contexts that come and go", TURNS);
	is_int(empty, 0, "each probe is its own, and counts");
	is_int(torn, 0, "launches are counted whole");
	kill(pid, SIGUSR1);
	is_int(run_wait(&r, pid, 20), 0, "results are right");
	run_end(&r);
}

int main(int argc, char **argv)
{
	struct run r;
	struct client a, b;
	int status, torn = 0, empty = 0, stuck = 0, failed = 0;
	harness_main(argc, argv, roles);
	run_begin(&r);
	int before = files(session_path(r.session));
	pid_t pid = run_start(&r, "launching");
	ok(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status), "it launches");
	kill(pid, SIGCONT);
	for (int i = 0; i < CYCLES; i++) {
		/* Two overlap, and end in either order. */
		failed += !client_begin(&a, &r);
		empty += !client_counts(&a);
		failed += !client_begin(&b, &r);
		empty += !client_counts(&b);
		int64_t x = client_end(i & 1 ? &a : &b, 3000), y = client_end(i & 1 ? &b : &a, 3000);
		torn += (x == -2) + (y == -2);
		stuck += (x == -1) + (y == -1);
		if (stuck > 2 || empty > 2)
			break;
	}
	is_int(failed, 0, "twice %d clients find room", CYCLES);
	is_int(empty, 0, "each probe counts");
	is_int(stuck, 0, "each is let go of");
	is_int(torn, 0, "every launch is counted whole or not at all");
	kill(pid, SIGUSR1);
	is_int(run_wait(&r, pid, 20), 0, "results are right");
	is_int(files(session_path(r.session)), before, "no file is left");
	struct session_kernel *k = run_kernel(&r, "fill");
	ok(k && k->launches_instrumented < k->launches, "originals ran between the probes");
	run_end(&r);
	rows_again();
	return tap_done();
}
