/* Probes of several clients come and go while threads launch on many streams: no error, every
 * launch is counted whole or not at all, slots and files are used again, and nothing is left
 * behind. */
#include <dirent.h>
#include <pthread.h>

#include "../agent/harness.h"

enum { N = 200, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS, RUN = BLOCKS * THREADS };
enum { WORKERS = 4, STREAMS = 3, CYCLES = 90 };

static CUcontext ctx;
static CUfunction fn;
static volatile sig_atomic_t over;

static void end(int sig)
{
	over = 1;
}

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

static int launching(void)
{
	pthread_t t[WORKERS];
	CUmodule mod;
	void *wrong, *any = NULL;
	signal(SIGUSR1, end);
	ctx = target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	for (uintptr_t i = 0; i < WORKERS; i++)
		pthread_create(&t[i], NULL, worker, (void *)(i + 1));
	raise(SIGSTOP);
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(t[i], &wrong);
		any = wrong ? wrong : any;
	}
	CU(cuCtxSynchronize());
	return any != NULL;
}

static const struct role roles[] = { { "launching", launching }, { 0 } };

/* A client with a counting probe of its own. */
struct client {
	struct run run;
	uint32_t map;
};

static bool client_begin(struct client *c, const struct run *of)
{
	struct diag d = { 0 };
	memset(c, 0, sizeof(*c));
	if (session_open(session_path(of->session), &c->run.session, &d) ||
		session_enter(c->run.session, "counter", &d)) {
		printf("# %s\n", d.text);
		return false;
	}
	c->run.file = session_data(c->run.session);
	c->map = run_map(&c->run, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(c->map, EBPF_POINT_ENTRY);
	run_attach(&c->run, &f, "fill");
	return true;
}

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

/* The whole number of launches that it has seen, or a negative one. */
static int64_t client_end(struct client *c)
{
	session_detach_client(c->run.session, session_client_number(c->run.session));
	if (!session_drained(c->run.session, 3000))
		return -1;
	uint64_t n = run_count(&c->run, c->map, 0);
	session_end_client(c->run.session);
	session_close(c->run.session);
	return n % RUN ? -2 : (int64_t)(n / RUN);
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
		int64_t x = client_end(i & 1 ? &a : &b), y = client_end(i & 1 ? &b : &a);
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
	return tap_done();
}
