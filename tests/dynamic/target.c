/* A program that computes on a device in steps until it is told to stop, started without egpu: what
 * `egpu attach` meets. Each step launches `fill` twice and checks its result; one line at the end
 *says how many steps there were, and the longest time between two.
 *
 *	target linked|opened|updated|both [threads] [sealed|unmapped]
 *
 * TARGET_LOADS: a library that it loads at the beginning. TARGET_BECOMES: a user that it acts as from then on.
 * TARGET_ROOT: the root directory that it has from then on.
 * TARGET_HUGE: instructions of a kernel `huge` that is launched once in a while,
 * and takes long to compile; then gaps between steps are told.
 * linked: calls the driver through its own GOT. opened: keeps pointers from cuGetProcAddress in a
 *table on the heap. updated: by a graph that was instantiated at the beginning and is updated at each
 *step. both: every other thread on the second device. sealed: a seccomp filter ends it if it locks a file; unmapped: one
 *lets it map no more code. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EGPU_CUDA_NO_ALIASES
#include "must.h"

#define PTX                                                                                        \
	".version 7.0\n.target sm_75\n.address_size 64\n"                                          \
	".visible .entry fill(.param .u64 out, .param .u32 add, .param .u32 n)\n"                  \
	"{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<8>;\n\t.reg .b64 %rd<4>;\n"                        \
	"\tld.param.u64 %rd1, [out];\n\tld.param.u32 %r1, [add];\n\tld.param.u32 %r2, [n];\n"      \
	"\tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmov.u32 %r5, %tid.x;\n"              \
	"\tmad.lo.s32 %r6, %r3, %r4, %r5;\n\tsetp.ge.u32 %p1, %r6, %r2;\n\t@%p1 bra DONE;\n"       \
	"\tadd.u32 %r7, %r6, %r1;\n\tmul.wide.u32 %rd2, %r6, 4;\n\tadd.u64 %rd3, %rd1, %rd2;\n"    \
	"\tst.global.u32 [%rd3], %r7;\nDONE:\n\tret;\n}\n"

enum { N = 200, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS };

struct calls {
	CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
		unsigned, unsigned, CUstream, void **, void **);
	CUresult (*cuStreamSynchronize)(CUstream);
	CUresult (*cuMemcpyDtoH_v2)(void *, CUdeviceptr, size_t);
};

static struct calls *table; /* NULL: linked */
static CUcontext contexts[2];
static CUfunction functions[2];
static _Thread_local CUfunction fn;
static volatile sig_atomic_t over;
static unsigned long steps, wrong;
static double longest;

static void end(int sig)
{
	over = 1;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* SIGHUP: the process begins this program once more. */
static char **arguments;

static void begin_again(int sig)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv("/proc/self/exe", arguments);
}

static bool updated;
static CUfunction huge;

/* A kernel that ends at once, in front of n instructions. */
static void load_huge(unsigned long n)
{
	CUmodule mod;
	char *text = malloc(400 + n * 32), *at = text;
	at += sprintf(at, ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry huge(.param .u32 n)\n{\n\t.reg .pred %%p<2>;\n\t.reg .b32 %%r<9>;\n"
		"\tld.param.u32 %%r1, [n];\n\tsetp.eq.u32 %%p1, %%r1, 0;\n\t@%%p1 bra END;\n");
	for (unsigned long i = 0; i < n; i++)
		at += sprintf(at, "\tadd.u32 %%r%lu, %%r%lu, %lu;\n", 2 + i % 7, 1 + i % 8, i % 1000);
	sprintf(at, "END:\n\tret;\n}\n");
	CU(cuModuleLoadData(&mod, text));
	CU(cuModuleGetFunction(&huge, mod, "huge"));
}

/* Both launches by a graph of the thread's own. */
static void one_graph(CUstream stream, void **params)
{
	static _Thread_local CUgraph graph;
	static _Thread_local CUgraphExec exec;
	static _Thread_local CUgraphNode nodes[2];
	CUgraphExecUpdateResultInfo info;
	CUDA_KERNEL_NODE_PARAMS p = { .func = fn, .gridDimX = BLOCKS, .gridDimY = 1, .gridDimZ = 1,
		.blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params };
	bool first = !graph;
	if (first)
		CU(cuGraphCreate(&graph, 0));
	for (int i = 0; i < 2; i++)
		if (first)
			CU(cuGraphAddKernelNode_v2(&nodes[i], graph, nodes, (size_t)i, &p));
		else
			CU(cuGraphKernelNodeSetParams_v2(nodes[i], &p));
	if (first)
		CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
	else
		CU(cuGraphExecUpdate_v2(exec, graph, &info));
	CU(cuGraphLaunch(exec, stream));
}

static void one_step(CUstream stream, CUdeviceptr buf, uint32_t add)
{
	uint32_t n = N, host[N];
	void *params[3] = { &buf, &add, &n };
	uint32_t none = 0;
	void *nothing[1] = { &none };
	if (huge && add % 16 == 0)
		CU(cuLaunchKernel(huge, 1, 1, 1, 32, 1, 1, 0, stream, nothing, NULL));
	if (updated)
		one_graph(stream, params);
	for (int i = 0; i < 2 && !updated; i++)
		CU((table ? table->cuLaunchKernel : cuLaunchKernel)(
			fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	CU((table ? table->cuStreamSynchronize : cuStreamSynchronize)(stream));
	CU((table ? table->cuMemcpyDtoH_v2 : cuMemcpyDtoH_v2)(host, buf, N * 4));
	for (uint32_t i = 0; i < N; i++)
		if (host[i] != i + add)
			__atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
}

static int first, second = 1;

static void *worker(void *arg)
{
	CUstream stream;
	CUdeviceptr buf;
	const int *device = arg;
	CU(cuCtxSetCurrent(contexts[*device]));
	fn = functions[*device];
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&buf, N * 4));
	double last = now();
	for (uint32_t i = 0; !over; i++) {
		one_step(stream, buf, i);
		__atomic_fetch_add(&steps, 1, __ATOMIC_RELAXED);
		double t = now();
		if (device == &first && t - last > longest)
			longest = t - last;
		if (huge && t - last > 0.05)
			printf("gap from %.6f to %.6f\n", last, t);
		last = t;
		usleep(200);
	}
	return NULL;
}

static void seal(bool maps)
{
	struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter g[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog p = { maps ? 6 : 4, maps ? g : f };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p))
		printf("no seccomp\n");
}

int main(int argc, char **argv)
{
	CUdevice dev;
	CUmodule mod;
	CUdriverProcAddressQueryResult found;
	int n = argc > 2 ? atoi(argv[2]) : 1;
	pthread_t threads[64];
	arguments = argv;
	signal(SIGTERM, end);
	signal(SIGHUP, begin_again);
	if (getenv("TARGET_LOADS") && !dlopen(getenv("TARGET_LOADS"), RTLD_NOW))
		printf("%s\n", dlerror());
	CU(cuInit(0));
	bool both = argc > 1 && !strcmp(argv[1], "both");
	const char *instructions = getenv("TARGET_HUGE");
	for (int i = both; i >= 0; i--) {
		CU(cuDeviceGet(&dev, i));
		CU(cuDevicePrimaryCtxRetain(&contexts[i], dev));
		CU(cuCtxSetCurrent(contexts[i]));
		CU(cuModuleLoadData(&mod, PTX));
		CU(cuModuleGetFunction(&functions[i], mod, "fill"));
	}
	if (argc > 1 && !strcmp(argv[1], "opened")) {
		table = calloc(1, sizeof(*table));
		CU(cuGetProcAddress_v2(
			"cuLaunchKernel", (void **)&table->cuLaunchKernel, 12000, 0, &found));
		CU(cuGetProcAddress_v2("cuStreamSynchronize", (void **)&table->cuStreamSynchronize,
			12000, 0, &found));
		CU(cuGetProcAddress_v2(
			"cuMemcpyDtoH", (void **)&table->cuMemcpyDtoH_v2, 12000, 0, &found));
	}
	if (instructions)
		load_huge(strtoul(instructions, NULL, 10));
	updated = argc > 1 && !strcmp(argv[1], "updated");
	if (argc > 3)
		seal(!strcmp(argv[3], "unmapped"));
	const char *user = getenv("TARGET_BECOMES");
	if (user && (setgid((gid_t)atoi(user)) || seteuid((uid_t)atoi(user))))
		return 3;
	if (getenv("TARGET_ROOT") && (chroot(getenv("TARGET_ROOT")) || chdir("/")))
		return 3;
	printf("running\n");
	fflush(stdout);
	for (int i = 1; i < n && i < 64; i++)
		pthread_create(&threads[i], NULL, worker, both && i % 2 ? &second : &first);
	worker(&first);
	for (int i = 1; i < n && i < 64; i++)
		pthread_join(threads[i], NULL);
	printf("steps %lu wrong %lu longest_ms %.1f\n", steps, wrong, longest * 1e3);
	return wrong != 0;
}
