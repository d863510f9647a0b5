/* The target is never harmed: kernels that wait for each other, forks, switches, missing drivers.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"

/* Each block-0 thread says it is here and waits for the other kernel. */
#define PTX_SPIN(name, mine, theirs)                                                               \
	".visible .entry " name                                                                    \
	"(.param .u64 flags)\n{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<2>;\n"   \
	"\tld.param.u64 %rd1, [flags];\n\tmov.u32 %r1, 1;\n\tst.volatile.global.u32 [%rd1+" mine   \
	"], %r1;\n"                                                                                \
	"WAIT:\n\tld.volatile.global.u32 %r2, [%rd1+" theirs                                       \
	"];\n\tsetp.eq.u32 %p1, %r2, 0;\n\t@%p1 bra WAIT;\n\tret;\n}\n"
#define PTX_PING PTX_HEAD PTX_SPIN("ping", "0", "4")
#define PTX_PONG PTX_HEAD PTX_SPIN("pong", "4", "0")
#define PTX_BOTH PTX_HEAD PTX_SPIN("ping", "0", "4") PTX_SPIN("pong", "4", "0")

static CUdeviceptr flags;
static CUstream streams[2];

static void pair_start(void)
{
	target_context();
	CU(cuMemAlloc(&flags, 8));
	for (int i = 0; i < 2; i++)
		CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void pair_run(CUfunction ping, CUfunction pong)
{
	void *params[] = { &flags };
	CU(cuMemsetD8(flags, 0, 8));
	CU(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
	CU(cuLaunchKernel(pong, 1, 1, 1, 1, 1, 1, 0, streams[1], params, NULL));
	CU(cuStreamSynchronize(streams[0]));
	CU(cuStreamSynchronize(streams[1]));
}

static int one_module(void)
{
	CUmodule mod;
	CUfunction ping, pong;
	pair_start();
	CU(cuModuleLoadData(&mod, PTX_BOTH));
	CU(cuModuleGetFunction(&ping, mod, "ping"));
	CU(cuModuleGetFunction(&pong, mod, "pong"));
	for (int i = 0; i < 3; i++)
		pair_run(ping, pong);
	return 0;
}

static int two_modules(void)
{
	CUmodule a, b;
	CUfunction ping, pong;
	pair_start();
	CU(cuModuleLoadData(&a, PTX_PING));
	CU(cuModuleLoadData(&b, PTX_PONG));
	CU(cuModuleGetFunction(&ping, a, "ping"));
	CU(cuModuleGetFunction(&pong, b, "pong"));
	for (int i = 0; i < 3; i++)
		pair_run(ping, pong);
	return 0;
}

/* A lazily loaded library: nothing is known of a device before its first launch. */
static int library(void)
{
	CUlibrary lib;
	CUkernel ping, pong;
	CU(cuInit(0));
	CU(cuLibraryLoadData(&lib, PTX_BOTH, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&ping, lib, "ping"));
	CU(cuLibraryGetKernel(&pong, lib, "pong"));
	pair_start();
	for (int i = 0; i < 3; i++)
		pair_run((CUfunction)ping, (CUfunction)pong);
	return 0;
}

/* The second kernel's module comes while the first one waits for it. */
static int late_module(void)
{
	CUmodule a, b;
	CUfunction ping, pong;
	void *params[] = { &flags };
	pair_start();
	CU(cuModuleLoadData(&a, PTX_PING));
	CU(cuModuleGetFunction(&ping, a, "ping"));
	CU(cuMemsetD8(flags, 0, 8));
	CU(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
	CU(cuModuleLoadDataEx(&b, PTX_PONG, 0, NULL, NULL));
	CU(cuModuleGetFunction(&pong, b, "pong"));
	CU(cuLaunchKernel(pong, 1, 1, 1, 1, 1, 1, 0, streams[1], params, NULL));
	CU(cuStreamSynchronize(streams[0]));
	CU(cuStreamSynchronize(streams[1]));
	pair_run(ping, pong);
	pair_run(ping, pong);
	return 0;
}

/* The same with the waiting stream destroyed, so that only an event can tell. */
static int late_destroyed(void)
{
	CUmodule a, b;
	CUfunction ping, pong;
	void *params[] = { &flags };
	pair_start();
	CU(cuModuleLoadData(&a, PTX_PING));
	CU(cuModuleGetFunction(&ping, a, "ping"));
	CU(cuMemsetD8(flags, 0, 8));
	CU(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
	CU(cuStreamDestroy(streams[0]));
	CU(cuModuleLoadDataEx(&b, PTX_PONG, 0, NULL, NULL));
	CU(cuModuleGetFunction(&pong, b, "pong"));
	CU(cuLaunchKernel(pong, 1, 1, 1, 1, 1, 1, 0, streams[1], params, NULL));
	CU(cuStreamSynchronize(streams[1]));
	CU(cuCtxSynchronize());
	CU(cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
	pair_run(ping, pong);
	pair_run(ping, pong);
	return 0;
}

/* Two threads, each with its own default stream. */
struct half {
	CUcontext ctx;
	CUfunction fn;
	bool left; /* it ends without waiting */
};

static void *half(void *arg)
{
	struct half *h = arg;
	void *params[] = { &flags };
	CU(cuCtxSetCurrent(h->ctx));
	CU(cuLaunchKernel(h->fn, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
	if (!h->left)
		CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	return NULL;
}

static int threads(void)
{
	CUmodule mod;
	struct half h[2] = { 0 };
	pthread_t t[2];
	pair_start();
	CU(cuModuleLoadData(&mod, PTX_BOTH));
	CU(cuModuleGetFunction(&h[0].fn, mod, "ping"));
	CU(cuModuleGetFunction(&h[1].fn, mod, "pong"));
	for (int round = 0; round < 3; round++) {
		CU(cuMemsetD8(flags, 0, 8));
		for (int i = 0; i < 2; i++) {
			CU(cuCtxGetCurrent(&h[i].ctx));
			pthread_create(&t[i], NULL, half, &h[i]);
		}
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
	}
	return 0;
}

/* The context is synchronised between a thread's call of a launch and the driver's: that launch is not over. */
static int threads_synchronised(void)
{
	CUmodule a, b;
	CUfunction pong;
	struct half h = { 0 };
	pthread_t t;
	void *params[] = { &flags };
	pair_start();
	CU(cuModuleLoadData(&a, PTX_PING));
	CU(cuModuleGetFunction(&h.fn, a, "ping"));
	CU(cuMemsetD8(flags, 0, 8));
	CU(cuCtxGetCurrent(&h.ctx));
	pthread_create(&t, NULL, half, &h);
	usleep(300000); /* it is in the driver by now, which waits for this: */
	CU(cuCtxSynchronize());
	for (uint32_t here = 0; !here;)
		CU(cuMemcpyDtoHAsync(&here, flags, 4, streams[1]));
	CU(cuModuleLoadDataEx(&b, PTX_PONG, 0, NULL, NULL));
	CU(cuModuleGetFunction(&pong, b, "pong"));
	CU(cuLaunchKernel(pong, 1, 1, 1, 1, 1, 1, 0, streams[1], params, NULL));
	pthread_join(t, NULL);
	return 0;
}

static CUcontext second_context(void)
{
	CUcontext c;
	CU(cuCtxCreate(&c, NULL, 0, 0));
	return c;
}

/* A thread's own default stream in one context has work; the one in the other context, where it is now, has none. */
static int own_elsewhere(void)
{
	CUmodule a, b;
	CUfunction ping, pong;
	void *params[] = { &flags };
	pair_start();
	CUcontext first, second;
	CU(cuCtxGetCurrent(&first));
	CU(cuModuleLoadData(&a, PTX_PING));
	CU(cuModuleGetFunction(&ping, a, "ping"));
	CU(cuMemsetD8(flags, 0, 8));
	second = second_context();
	CU(cuCtxSetCurrent(first));
	CU(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
	CU(cuCtxSetCurrent(second));
	CU(cuModuleLoadDataEx(&b, PTX_PONG, 0, NULL, NULL));
	CU(cuModuleGetFunction(&pong, b, "pong"));
	CU(cuLaunchKernel(pong, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
	CU(cuCtxSynchronize());
	CU(cuCtxSetCurrent(first));
	CU(cuCtxSynchronize());
	return 0;
}

/* Threads leave work in their own default streams and end, one in each of two contexts. Once both are synchronised, nothing is in the
 * way of a variant. */
static int own_left(void)
{
	enum { N = 100 };
	CUmodule mod;
	CUfunction fn;
	CUcontext contexts[2] = { target_context(), second_context() };
	CUdeviceptr buf;
	uint32_t add = 1, n = N;
	pthread_t t;
	for (int i = 0; i < 2; i++) {
		struct half h = { .ctx = contexts[i], .left = true };
		CU(cuCtxSetCurrent(contexts[i]));
		CU(cuMemAlloc(&flags, 8));
		CU(cuMemsetD8(flags, 1, 8));
		CU(cuModuleLoadData(&mod, PTX_PING));
		CU(cuModuleGetFunction(&h.fn, mod, "ping"));
		pthread_create(&t, NULL, half, &h);
		pthread_join(t, NULL);
	}
	for (int i = 0; i < 2; i++) {
		CU(cuCtxSetCurrent(contexts[i]));
		CU(cuCtxSynchronize());
	}
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < 2; i++)
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, params, NULL));
	return check_fill(buf, add, N);
}

/* Many threads launch at once, each in a stream of its own, from a library nobody has used before.
 */
enum { STORM_THREADS = 6, STORM_LAUNCHES = 100, STORM_BLOCK = 100 };

struct storm {
	CUcontext ctx;
	CUfunction fn;
	CUdeviceptr buf;
	pthread_barrier_t *start;
	int status;
};

static void *storm_thread(void *arg)
{
	struct storm *s = arg;
	CUstream stream;
	uint32_t add = 1, n = STORM_BLOCK;
	void *params[] = { &s->buf, &add, &n };
	CU(cuCtxSetCurrent(s->ctx));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&s->buf, STORM_BLOCK * 4));
	pthread_barrier_wait(s->start);
	for (int i = 0; i < STORM_LAUNCHES; i++)
		CU(cuLaunchKernel(s->fn, 1, 1, 1, STORM_BLOCK, 1, 1, 0, stream, params, NULL));
	CU(cuStreamSynchronize(stream));
	CU(cuStreamDestroy(stream));
	s->status = check_fill(s->buf, add, STORM_BLOCK);
	return NULL;
}

/* Contexts that come and go in several threads, while what one of them loads is loaded for all. */
enum { COMERS = 4, COMINGS = 60 };

static void *come_and_go(void *status)
{
	for (int i = 0; i < COMINGS; i++) {
		uint32_t add = (uint32_t)i, n = STORM_BLOCK;
		CUdeviceptr buf;
		CUmodule mod;
		CUfunction fn;
		CUcontext c = second_context();
		void *params[] = { &buf, &add, &n };
		CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
		CU(cuModuleGetFunction(&fn, mod, "fill"));
		CU(cuMemAlloc(&buf, STORM_BLOCK * 4));
		CU(cuLaunchKernel(fn, 1, 1, 1, STORM_BLOCK, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		*(int *)status |= check_fill(buf, add, n);
		CU(cuCtxDestroy(c));
	}
	return NULL;
}

static int contexts(void)
{
	pthread_t t[COMERS];
	int status[COMERS] = { 0 }, all;
	target_context();
	for (int i = 0; i < COMERS; i++)
		pthread_create(&t[i], NULL, come_and_go, &status[i]);
	for (int i = 0; i < COMERS; i++)
		pthread_join(t[i], NULL);
	all = status[0] | status[1] | status[2] | status[3];
	come_and_go(&all);
	return all;
}

static int storm(void)
{
	CUlibrary lib;
	CUkernel kernel;
	pthread_barrier_t start;
	pthread_t t[STORM_THREADS];
	struct storm s[STORM_THREADS];
	int status = 0;
	CU(cuInit(0));
	CU(cuLibraryLoadData(&lib, PTX_HEAD PTX_FILL("fill"), NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&kernel, lib, "fill"));
	CUcontext ctx = target_context();
	pthread_barrier_init(&start, NULL, STORM_THREADS);
	for (int i = 0; i < STORM_THREADS; i++) {
		s[i] = (struct storm){
			.ctx = ctx, .fn = (CUfunction)kernel, .start = &start, .status = 9
		};
		pthread_create(&t[i], NULL, storm_thread, &s[i]);
	}
	for (int i = 0; i < STORM_THREADS; i++) {
		pthread_join(t[i], NULL);
		status |= s[i].status;
	}
	return status;
}

/* A kernel is launched for the first time while another one runs: the driver loads it then, and waits for the other one. */
static void *let_go(void *arg)
{
	usleep(300000);
	__atomic_store_n((uint32_t *)arg + 1, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int first_launch(void)
{
	CUlibrary lib;
	CUkernel kernel;
	CUmodule mod;
	CUfunction ping;
	CUdeviceptr buf;
	pthread_t t;
	uint32_t add = 1, n = STORM_BLOCK, *host;
	CU(cuInit(0));
	CU(cuLibraryLoadData(&lib, PTX_HEAD PTX_FILL("fill"), NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&kernel, lib, "fill"));
	pair_start();
	CU(cuMemAlloc(&buf, STORM_BLOCK * 4));
	CU(cuMemHostAlloc((void **)&host, 8, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer(&flags, host, 0));
	CU(cuModuleLoadData(&mod, PTX_PING));
	CU(cuModuleGetFunction(&ping, mod, "ping"));
	void *waits[] = { &flags }, *params[] = { &buf, &add, &n };
	CU(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, streams[0], waits, NULL));
	if (pthread_create(&t, NULL, let_go, host))
		return 8;
	for (int i = 0; i < 2; i++)
		CU(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, STORM_BLOCK, 1, 1, 0, streams[1], params, NULL));
	CU(cuCtxSynchronize());
	pthread_join(t, NULL);
	return check_fill(buf, add, STORM_BLOCK);
}

/* A module is unloaded while its kernel runs, for which the driver waits; what its variant uses of the module is there until it has ended. */
static int unloaded(void)
{
	static const char text[] = PTX_HEAD ".global .align 4 .u32 own;\n"
		".visible .entry late(.param .u64 flags, .param .u64 out)\n{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<6>;\n\t.reg .b64 %rd<3>;\n"
		"\tld.param.u64 %rd1, [flags];\n\tld.param.u64 %rd2, [out];\nWAIT:\n\tld.volatile.global.u32 %r2, [%rd1+4];\n"
		"\tsetp.eq.u32 %p1, %r2, 0;\n\t@%p1 bra WAIT;\n"
		"\tatom.global.add.u32 %r3, [own], 5;\n\tld.volatile.global.u32 %r4, [own];\n\tst.global.u32 [%rd2], %r4;\n\tret;\n}\n";
	CUdeviceptr out;
	CUfunction fn;
	CUlibrary lib;
	CUkernel kernel;
	CUmodule mod;
	pthread_t t;
	uint32_t *host, got;
	pair_start();
	CU(cuMemAlloc(&out, 4));
	CU(cuMemHostAlloc((void **)&host, 8, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer(&flags, host, 0));
	void *params[] = { &flags, &out };
	for (int i = 0; i < 4; i++) {
		if (i % 2) {
			CU(cuLibraryLoadData(&lib, text, NULL, NULL, 0, NULL, NULL, 0));
			CU(cuLibraryGetKernel(&kernel, lib, "late"));
			fn = (CUfunction)kernel;
		} else {
			CU(cuModuleLoadData(&mod, text));
			CU(cuModuleGetFunction(&fn, mod, "late"));
		}
		host[1] = 0;
		CU(cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
		if (pthread_create(&t, NULL, let_go, host))
			return 8;
		CU(i % 2 ? cuLibraryUnload(lib) : cuModuleUnload(mod));
		CU(cuStreamSynchronize(streams[0]));
		pthread_join(t, NULL);
		CU(cuMemcpyDtoH(&got, out, 4));
		if (got != 5)
			return 7;
	}
	return 0;
}

/* The same text once more while a kernel runs, and unloaded before its variant could be loaded: the first one is there all the time. */
static int again(void)
{
	CUmodule mods[2], spin;
	CUfunction fn, ping;
	CUdeviceptr buf;
	pthread_t t;
	uint32_t add = 1, n = STORM_BLOCK, *host;
	pair_start();
	CU(cuMemHostAlloc((void **)&host, 8, CU_MEMHOSTALLOC_DEVICEMAP));
	CU(cuMemHostGetDevicePointer(&flags, host, 0));
	CU(cuMemAlloc(&buf, STORM_BLOCK * 4));
	void *waits[] = { &flags }, *params[] = { &buf, &add, &n };
	CU(cuModuleLoadData(&spin, PTX_PING));
	CU(cuModuleGetFunction(&ping, spin, "ping"));
	CU(cuModuleLoadData(&mods[0], PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mods[0], "fill"));
	CU(cuLaunchKernel(fn, 1, 1, 1, STORM_BLOCK, 1, 1, 0, streams[1], params, NULL));
	CU(cuCtxSynchronize());
	CU(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, streams[0], waits, NULL));
	if (pthread_create(&t, NULL, let_go, host))
		return 8;
	CU(cuModuleLoadData(&mods[1], PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mods[1], "fill"));
	CU(cuLaunchKernel(fn, 1, 1, 1, STORM_BLOCK, 1, 1, 0, streams[1], params, NULL));
	CU(cuStreamSynchronize(streams[1]));
	CU(cuModuleUnload(mods[1]));
	pthread_join(t, NULL);
	CU(cuCtxSynchronize());
	return check_fill(buf, add, STORM_BLOCK);
}

/* A kernel that never ends: the program may leave all the same, and what was counted is kept. */
static int endless(void)
{
	CUmodule mod;
	CUfunction ping;
	void *params[] = { &flags };
	pair_start();
	CU(cuModuleLoadData(&mod, PTX_PING));
	CU(cuModuleGetFunction(&ping, mod, "ping"));
	CU(cuMemsetD8(flags, 0, 8));
	CU(cuLaunchKernel(ping, 1, 1, 1, 1, 1, 1, 0, streams[0], params, NULL));
	for (uint32_t here = 0; !here;)
		CU(cuMemcpyDtoHAsync(&here, flags, 4, streams[1]));
	return 0;
}

/* -- forks, switches ------------------------------------------------------------------- */

enum { N = 100 };

static int fill(int launches)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 1, n = N;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < launches; i++)
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	return check_fill(buf, add, N);
}

static int fill_once(void)
{
	return fill(1);
}

/* Both processes use the device, each after the fork. */
static int fork_before(void)
{
	int status;
	pid_t pid = fork();
	if (!pid)
		exit(fill(2));
	waitpid(pid, &status, 0);
	return fill(3) | (WIFEXITED(status) ? WEXITSTATUS(status) : 77);
}

/* The child only goes away, in each of the ways there are. */
static int fork_after(void)
{
	int status = fill(3), child;
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();
		if (!pid) {
			if (i)
				_exit(0);
			exit(0);
		}
		waitpid(pid, &child, 0);
		status |= WIFEXITED(child) ? WEXITSTATUS(child) : 77;
	}
	return status;
}

static int caught;

static void handler(int sig)
{
	caught++;
}

/* Our thread takes none of the program's signals, and none of its children. */
static int signals(void)
{
	struct sigaction a = { .sa_handler = handler };
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGCHLD, &a, NULL);
	int status = fill(2);
	for (int i = 0; i < 100; i++)
		kill(getpid(), SIGUSR1);
	if (!caught || waitpid(-1, NULL, WNOHANG) != -1)
		return 2;
	return status;
}

/* -- a link that comes and goes ------------------------------------------------------------ */

/* Launches until told to stop, one line an answered line. */
static int interactive(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 1, n = N;
	char line[16];
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	while (read(0, line, 1) == 1) {
		for (int i = 0; i < 10; i++)
			CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		if (write(9, line, 1) != 1)
			return 3;
	}
	return check_fill(buf, add, N);
}

static const struct role roles[] = { { "one_module", one_module }, { "two_modules", two_modules },
	{ "library", library }, { "threads", threads }, { "threads_synchronised", threads_synchronised },
	{ "own_elsewhere", own_elsewhere }, { "own_left", own_left }, { "late_module", late_module },
	{ "late_destroyed", late_destroyed }, { "storm", storm }, { "first_launch", first_launch }, { "endless", endless },
	{ "unloaded", unloaded }, { "again", again }, { "contexts", contexts },
	{ "fill", fill_once }, { "fork_before", fork_before }, { "fork_after", fork_after },
	{ "signals", signals }, { "interactive", interactive }, { 0 } };

/* -- expectations ----------------------------------------------------------------------------- */

/* rounds: launches of each; late: those of pong that run before a moment to load its variant comes. */
static void pair(const char *role, int rounds, int late)
{
	struct run r;
	run_begin(&r);
	run_use_shim(&r);
	r.env[0] = "SHIM_BLOCK=1";
	r.env[1] = "SHIM_LEGACY=1";
	r.env[2] = strcmp(role, "threads_synchronised") ? NULL : "SHIM_LATE=1";
	uint32_t a = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1),
		 b = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment fa = counter(a, EBPF_POINT_ENTRY), fb = counter(b, EBPF_POINT_ENTRY);
	run_attach(&r, &fa, "ping");
	run_attach(&r, &fb, "pong");
	is_int(run_wait(&r, run_start(&r, role), 20), 0, "%s: neither hangs nor fails", role);
	is_int(run_count(&r, a, 0), rounds, "%s: ping is exact", role);
	is_int(run_count(&r, b, 0), rounds - late, "%s: pong is exact", role);
	struct session_kernel *k = run_kernel(&r, "pong");
	is_int(k ? k->launches : 0, rounds, "%s: all launches of pong were seen", role);
	is_int(k ? k->launches_instrumented : 0, rounds - late, "%s: and %d were instrumented", role,
		rounds - late);
	run_end(&r);
}

static void never_ends(void)
{
	struct run r;
	uint32_t map = run_begin_counted(&r, "ping");
	is_int(run_wait(&r, run_start(&r, "endless"), 15), 0,
		"a kernel that never ends does not keep the program from leaving");
	is_int(run_count(&r, map, 0), 1, "its entry is counted");
	run_end(&r);
}

static void is_unloaded(void)
{
	struct run r;
	uint32_t map = run_begin_counted(&r, "late");
	is_int(run_role(&r, "unloaded"), 0, "a module that is unloaded while its kernel runs: the kernel has what it uses");
	is_int(run_count(&r, map, 0), 4, "and was probed");
	run_end(&r);
}

static void is_there_again(void)
{
	struct run r;
	run_begin_counted(&r, "fill");
	is_int(run_role(&r, "again"), 0, "a text that was loaded twice, and unloaded once");
	struct session_kernel *k = run_kernel(&r, "fill");
	is_int(k ? k->state : 0, SESSION_KERNEL_INSTRUMENTED, "its kernel is shown as instrumented");
	is_int(k ? k->launches_instrumented : 0, 1, "by the first");
	run_end(&r);
}

/* That a variant does not come into a context which is about to end says nothing of the kernel. */
static void comes_and_goes(void)
{
	struct run r;
	uint32_t map = run_begin_counted(&r, "fill");
	is_int(run_role(&r, "contexts"), 0, "contexts that come and go in several threads");
	struct session_kernel *k = run_kernel(&r, "fill");
	ok(k && k->state != SESSION_KERNEL_REFUSED, "their kernel is not refused");
	if (k && k->state == SESSION_KERNEL_REFUSED)
		printf("# %s\n", session_text(r.session, k->reason));
	printf("# %d of %d\n", k ? (int)k->launches_instrumented : 0, k ? (int)k->launches : 0);
	ok(k && k->launches_instrumented >= COMINGS, "it is probed in those that are alone");
	is_int(run_count(&r, map, 0), k ? (int64_t)k->launches_instrumented * STORM_BLOCK : -1, "launches are counted whole");
	run_end(&r);
}

static void counted(const char *role, const char *env, int want, const char *what)
{
	struct run r;
	run_begin(&r);
	r.env[0] = env;
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
	run_attach(&r, &f, "fill");
	is_int(run_role(&r, role), 0, "%s: the program is right", what);
	is_int(run_count(&r, map, 0), (uint64_t)want * N, "%s: %d launches counted", what, want);
	run_end(&r);
}

static void no_alias(void)
{
	struct run r;
	char dir[512];
	run_begin(&r);
	r.no_alias = true;
	/* Where no driver is installed, cuInit says so in the driver's own words. */
	int status = run_role(&r, "fill");
	ok(status == 99 || !status, "without the session's alias the program lives (%d)", status);
	/* A driver under its own name on LD_LIBRARY_PATH is found, although we carry that name. */
	snprintf(dir, sizeof(dir), "%s", SOFTGPU_LIB);
	*strrchr(dir, '/') = 0;
	r.library_path = dir;
	is_int(run_role(&r, "fill"), 0, "and uses the driver on its path");
	run_end(&r);
}

static void no_session(void)
{
	struct run r;
	run_begin(&r);
	r.env[0] = "EGPU_SESSION=/nonexistent/egpu";
	is_int(run_role(&r, "fill"), 0, "a session that is gone: the program runs");
	r.env[0] = "EGPU_SESSION=";
	is_int(run_role(&r, "fill"), 0, "no session: the program runs");
	is_int(r.file->n_kernels, 0, "and nothing was reported");
	run_end(&r);
}

static bool step(int to, int from)
{
	char c = 'x';
	return write(to, &c, 1) == 1 && read(from, &c, 1) == 1;
}

/* step(in[1], out[0]) makes it launch. */
static pid_t start_interactive(struct run *r, int in[2], int out[2])
{
	if (pipe(in) || pipe(out))
		exit(1);
	fflush(stdout);
	pid_t pid = fork();
	if (!pid) {
		dup2(in[0], 0);
		dup2(out[1], 9);
		close(in[1]);
		run_child(r, "interactive");
	}
	close(in[0]);
	return pid;
}

static void attach_detach(void)
{
	struct run r;
	int in[2], out[2];
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1),
		 later = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY),
			     g = counter(later, EBPF_POINT_ENTRY);
	pid_t pid = start_interactive(&r, in, out);
	ok(step(in[1], out[0]), "nothing attached");
	uint32_t link = run_attach(&r, &f, "fill");
	ok(step(in[1], out[0]), "attached while it runs");
	uint32_t link2 = run_attach(&r, &g, "f*");
	ok(step(in[1], out[0]), "a second one");
	session_detach_link(r.session, link);
	ok(step(in[1], out[0]), "the first is gone");
	r.file->off = 1;
	ok(step(in[1], out[0]), "switched off");
	r.file->off = 0;
	ok(step(in[1], out[0]), "switched on");
	session_detach_link(r.session, link2);
	ok(step(in[1], out[0]), "all gone");
	close(in[1]);
	is_int(run_wait(&r, pid, 20), 0, "results are right");
	close(out[0]);
	close(out[1]);
	is_int(run_count(&r, map, 0), 20 * N, "the first saw two rounds of ten");
	is_int(run_count(&r, later, 0), 30 * N, "the second three");
	struct session_kernel *k = run_kernel(&r, "fill");
	is_int(k ? k->launches : 0, 70, "all launches were seen");
	is_int(k ? k->launches_instrumented : 0, 40, "those with a link were instrumented");
	run_end(&r);
}

/* What the session says of a kernel follows the links also where a variant from before serves again. */
static void shown(void)
{
	struct run r;
	int in[2], out[2];
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1), other = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY), g = counter(other, EBPF_POINT_ENTRY);
	pid_t pid = start_interactive(&r, in, out);
	uint64_t one = UINT64_C(1) << run_attach(&r, &f, "fill");
	step(in[1], out[0]);
	struct session_kernel *k = run_kernel(&r, "fill");
	is_int(k ? k->links : 0, one, "the first link is shown");
	uint32_t link = run_attach(&r, &g, "fill");
	step(in[1], out[0]);
	is_int(k ? k->links : 0, one | UINT64_C(1) << link, "both are");
	session_detach_link(r.session, link);
	step(in[1], out[0]);
	is_int(k ? k->links : 0, one, "the first alone again");
	is_int(k ? k->state : 0, SESSION_KERNEL_INSTRUMENTED, "and it is instrumented");
	close(in[1]);
	is_int(run_wait(&r, pid, 20), 0, "results are right");
	close(out[0]);
	close(out[1]);
	run_end(&r);
}

/* The target is killed: what was synchronised last can be read. */
static void killed(void)
{
	struct run r;
	int in[2], out[2];
	uint64_t count = 0;
	uint32_t map = run_begin_counted(&r, "fill");
	pid_t pid = start_interactive(&r, in, out);
	ok(step(in[1], out[0]), "launched");
	for (int i = 0; i < 500 && count != 10 * N; i++) {
		usleep(10000);
		count = run_count(&r, map, 0);
	}
	is_int(count, 10 * N, "read while it runs, without another call of the program");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	is_int(run_count(&r, map, 0), 10 * N, "read after it was killed");
	close(in[1]);
	close(out[0]);
	close(out[1]);
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	pair("one_module", 3, 0);
	pair("two_modules", 3, 0);
	pair("library", 3, 0);
	pair("threads", 3, 0);
	pair("threads_synchronised", 1, 1);
	pair("own_elsewhere", 1, 1);
	counted("own_left", NULL, 2, "threads' own streams in two contexts");
	pair("late_module", 3, 1);
	pair("late_destroyed", 3, 1);
	never_ends();
	is_unloaded();
	is_there_again();
	comes_and_goes();
	for (int i = 0; i < 5; i++)
		counted("storm", NULL, STORM_THREADS * STORM_LAUNCHES, "many threads at once");
	counted("first_launch", "EGPU_SOFTGPU=sm_90,sms=2,strict", 2, "a first launch that the driver holds back");
	counted("fork_before", NULL, 5, "fork before cuInit");
	counted("fork_after", NULL, 3, "fork after it");
	counted("signals", NULL, 2, "signals");
	counted("fill", "EGPU_DISABLE=1", 0, "EGPU_DISABLE=1");
	counted("fill", "EGPU_DISABLE=0", 1, "EGPU_DISABLE=0");
	no_alias();
	no_session();
	attach_detach();
	shown();
	killed();
	return tap_done();
}
