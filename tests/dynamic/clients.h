/* clients.h - a program whose threads launch `fill` until it is told to end, and clients whose probes come and go meanwhile. */
#ifndef EGPU_TEST_CLIENTS_H
#define EGPU_TEST_CLIENTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "../agent/harness.h"

enum { N = 200, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS, RUN = BLOCKS * THREADS };

/* -- the program: SIGUSR1 ends it ------------------------------------------------------------ */

static CUcontext ctx;
static CUfunction fn;
static atomic_int over;

static void end(int sig)
{
	over = 1;
}

/* worker(1), worker(2), ...: each gives how much was wrong. It stops itself once they are there. */
static inline int launch_in_threads(const char *ptx, uintptr_t workers, void *(*worker)(void *))
{
	pthread_t t[16];
	CUmodule mod;
	void *wrong, *any = NULL;
	signal(SIGUSR1, end);
	ctx = target_context();
	CU(cuModuleLoadData(&mod, ptx));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	for (uintptr_t i = 0; i < workers && i < 16; i++)
		pthread_create(&t[i], NULL, worker, (void *)(i + 1));
	raise(SIGSTOP);
	for (uintptr_t i = 0; i < workers && i < 16; i++) {
		pthread_join(t[i], &wrong);
		any = wrong ? wrong : any;
	}
	CU(cuCtxSynchronize());
	return any != NULL;
}

/* -- clients ---------------------------------------------------------------------------------- */

/* One with a counting probe of its own. */
struct client {
	struct run run;
	uint32_t map;
};

static inline bool client_begin_with(struct client *c, const struct run *of, int other_maps)
{
	struct diag d = { 0 };
	memset(c, 0, sizeof(*c));
	if (session_open(session_path(of->session), &c->run.session, &d) ||
		session_enter(c->run.session, "counter", &d)) {
		printf("# %s\n", d.text);
		return false;
	}
	c->run.file = session_data(c->run.session);
	for (int i = 0; i < other_maps; i++)
		run_map(&c->run, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	c->map = run_map(&c->run, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(c->map, EBPF_POINT_ENTRY);
	run_attach(&c->run, &f, "fill");
	return true;
}

static inline bool client_begin(struct client *c, const struct run *of)
{
	return client_begin_with(c, of, 0);
}

/* The whole number of launches that it has seen; -1: it is not let go of in so many milliseconds, -2: a part of one. */
static inline int64_t client_end(struct client *c, int ms)
{
	session_detach_client(c->run.session, session_client_number(c->run.session));
	if (!session_drained(c->run.session, ms))
		return -1;
	uint64_t n = run_count(&c->run, c->map, 0);
	session_end_client(c->run.session);
	session_close(c->run.session);
	return n % RUN ? -2 : (int64_t)(n / RUN);
}

#endif
