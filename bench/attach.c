/* attach.c - what an attach takes: a module of many kernels as PTX is loaded, one kernel is launched.
 *
 *	bench_attach [KERNELS [ROUNDS]]     loads the module and launches its kernel k17, in so many rounds
 *	bench_attach driver                 what the driver's own calls take that an attach cannot do without
 *
 * Plainly and under `egpu run -k k17`, the difference of the first rounds is the attach; with EGPU_AGENT_LOG set the
 * agent writes when it did what. Times are of the calling thread, in microseconds.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"

#define CALLS(X)                                                                                   \
	X(cuInit) X(cuDeviceGet) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuMemAlloc_v2)            \
	X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) X(cuLaunchKernel)                  \
	X(cuStreamCreate) X(cuStreamSynchronize) X(cuMemcpyHtoDAsync_v2) X(cuFuncLoad) X(cuFuncGetAttribute)                    \
	X(cuLinkCreate_v2) X(cuLinkAddData_v2) X(cuLinkComplete) X(cuMemHostRegister_v2)

#define DECLARE(name) static __typeof__(name) *p_##name;
CALLS(DECLARE)

enum { MATCHED = 17, N = 1000, STEPS = 14 };

static void need(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	fprintf(stderr, "%s: %d\n", what, (int)r);
	exit(1);
}
#define CU(call, ...) need(p_##call(__VA_ARGS__), #call)

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* -- the module ---------------------------------------------------------------------------- */

struct text {
	char *data;
	size_t len, cap;
};

__attribute__((format(printf, 2, 3))) static void put(struct text *t, const char *fmt, ...)
{
	va_list ap;
	if (t->cap - t->len < 512) {
		t->cap = t->cap * 2 + 4096;
		t->data = realloc(t->data, t->cap);
		if (!t->data)
			exit(1);
	}
	va_start(ap, fmt);
	t->len += (size_t)vsnprintf(t->data + t->len, t->cap - t->len, fmt, ap);
	va_end(ap);
}

/* A kernel of some 1.9 KB: STEPS times it loads, computes and stores. */
static void kernel(struct text *t, int k)
{
	put(t, ".visible .entry k%d(.param .u64 out, .param .u32 n)\n{\n\t.reg .pred %%p<2>;\n\t.reg .b32 %%r<8>;\n"
	       "\t.reg .f32 %%f<%d>;\n\t.reg .b64 %%rd<4>;\n\tld.param.u64 %%rd1, [out];\n\tld.param.u32 %%r1, [n];\n"
	       "\tcvta.to.global.u64 %%rd1, %%rd1;\n\tmov.u32 %%r2, %%tid.x;\n\tsetp.ge.u32 %%p1, %%r2, %%r1;\n\t@%%p1 bra DONE;\n"
	       "\tmul.wide.u32 %%rd2, %%r2, 4;\n\tadd.s64 %%rd3, %%rd1, %%rd2;\n", k, 2 * STEPS + 2);
	for (int i = 1; i <= STEPS; i++)
		put(t, "\tld.global.f32 %%f%d, [%%rd3+%d];\n\tfma.rn.f32 %%f%d, %%f%d, 0f3F800000, 0f%08X;\n"
		       "\tst.global.f32 [%%rd3+%d], %%f%d;\n", 2 * i, i * 4, 2 * i + 1, 2 * i, 0x3f000000 + k * i, i * 4, 2 * i + 1);
	put(t, "DONE:\n\tret;\n}\n");
}

static char *module_text(int kernels, size_t *bytes)
{
	struct text t = { 0 };
	put(&t, ".version 7.0\n.target sm_75\n.address_size 64\n");
	for (int k = 1; k <= kernels; k++)
		kernel(&t, k);
	*bytes = t.len;
	return t.data;
}

/* -- what is measured ------------------------------------------------------------------------ */

static CUdeviceptr buffer;

static void rounds(int kernels, int n)
{
	size_t bytes;
	uint32_t count = 128;
	void *params[] = { &buffer, &count };
	char *text = module_text(kernels, &bytes);
	printf("%d kernels in %zu bytes of PTX\n", kernels, bytes);
	for (int i = 0; i < n; i++) {
		CUmodule m;
		CUfunction f;
		double t0 = now_us();
		CU(cuModuleLoadData, &m, text);
		double t1 = now_us();
		CU(cuModuleGetFunction, &f, m, "k17");
		CU(cuLaunchKernel, f, 1, 1, 1, 128, 1, 1, 0, NULL, params, NULL);
		CU(cuCtxSynchronize);
		double t2 = now_us();
		printf("round %d: load %.0f us, first launch %.0f us\n", i + 1, t1 - t0, t2 - t1);
		CU(cuModuleUnload, m);
	}
	free(text);
}

/* Machine code of one kernel with a table of constants, as variants have. */
static void *small_code(void)
{
	struct text t = { 0 };
	CUlinkState s;
	void *code;
	size_t bytes;
	put(&t, ".version 7.0\n.target sm_75\n.address_size 64\n.visible .const .align 8 .u64 table[136];\n");
	kernel(&t, MATCHED);
	CU(cuLinkCreate_v2, 0, NULL, NULL, &s);
	CU(cuLinkAddData_v2, s, CU_JIT_INPUT_PTX, t.data, t.len + 1, "small", 0, NULL, NULL);
	CU(cuLinkComplete, s, &code, &bytes);
	printf("machine code of one kernel: %zu bytes\n", bytes);
	free(t.data);
	return code;
}

static void driver(void)
{
	static uint64_t table[136];
	void *code = small_code(), *page = aligned_alloc(4096, 8192);
	size_t bytes;
	CUmodule other;
	char *text = module_text(60, &bytes);
	CU(cuModuleLoadData, &other, text);
	double t0 = now_us();
	CUstream s;
	CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
	double t1 = now_us();
	CUdeviceptr at;
	CU(cuMemAlloc_v2, &at, 4096);
	double t2 = now_us();
	CU(cuMemHostRegister_v2, page, 8192, 0);
	double t3 = now_us();
	printf("stream %.0f us, memory %.0f us, pinning 8 KB %.0f us\n", t1 - t0, t2 - t1, t3 - t2);
	for (int i = 0; i < 5; i++) {
		CUmodule m;
		CUfunction f;
		size_t n = 0;
		int value;
		t0 = now_us();
		CU(cuModuleLoadData, &m, code);
		t1 = now_us();
		CU(cuModuleGetFunction, &f, m, "k17");
		if (p_cuFuncLoad)
			CU(cuFuncLoad, f);
		t2 = now_us();
		CU(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
		if (p_cuModuleGetGlobal_v2(&at, &n, m, "table") == CUDA_SUCCESS)
			CU(cuMemcpyHtoDAsync_v2, at, table, n, s);
		CU(cuStreamSynchronize, s);
		t3 = now_us();
		printf("round %d: load %.0f us, function %.0f us, table %.0f us\n", i + 1, t1 - t0, t2 - t1, t3 - t2);
	}
	free(text);
}

int main(int argc, char **argv)
{
	CUdevice device;
	CUcontext context;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
#define FIND(name) p_##name = lib ? (__typeof__(name) *)dlsym(lib, #name) : NULL;
	CALLS(FIND)
	if (!p_cuInit || p_cuInit(0) != CUDA_SUCCESS) {
		printf("no driver\n");
		return 0;
	}
	CU(cuDeviceGet, &device, 0);
	CU(cuDevicePrimaryCtxRetain, &context, device);
	CU(cuCtxSetCurrent, context);
	CU(cuMemAlloc_v2, &buffer, 1 << 20);
	if (argc > 1 && !strcmp(argv[1], "driver"))
		driver();
	else
		rounds(argc > 1 ? atoi(argv[1]) : 60, argc > 2 ? atoi(argv[2]) : 3);
	return 0;
}
