/* common.h - what every sample's host side needs: the driver found at run time, errors that end the
 * program with a sentence, numbers from the command line, results written to a file.
 *
 * The driver is opened by name, as the CUDA runtime does it, so that a sample builds and starts
 * without one and can say what to do.
 */
#ifndef EGPU_SAMPLES_COMMON_H
#define EGPU_SAMPLES_COMMON_H

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"

/* One row a call: field of `cu`, symbol. */
#define SAMPLE_CALLS(X)                                                                            \
	X(Init, cuInit)                                                                            \
	X(GetErrorName, cuGetErrorName)                                                            \
	X(GetErrorString, cuGetErrorString)                                                        \
	X(DeviceGet, cuDeviceGet)                                                                  \
	X(DeviceGetName, cuDeviceGetName)                                                          \
	X(DeviceGetAttribute, cuDeviceGetAttribute)                                                \
	X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                        \
	X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2)                                   \
	X(CtxSetCurrent, cuCtxSetCurrent)                                                          \
	X(CtxSynchronize, cuCtxSynchronize)                                                        \
	X(ModuleLoadDataEx, cuModuleLoadDataEx)                                                    \
	X(ModuleUnload, cuModuleUnload)                                                            \
	X(ModuleGetFunction, cuModuleGetFunction)                                                  \
	X(MemAlloc, cuMemAlloc_v2)                                                                 \
	X(MemFree, cuMemFree_v2)                                                                   \
	X(MemHostAlloc, cuMemHostAlloc)                                                            \
	X(MemFreeHost, cuMemFreeHost)                                                              \
	X(MemHostGetDevicePointer, cuMemHostGetDevicePointer_v2)                                   \
	X(MemcpyHtoD, cuMemcpyHtoD_v2)                                                             \
	X(MemcpyDtoH, cuMemcpyDtoH_v2)                                                             \
	X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                                                   \
	X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                                                   \
	X(MemsetD8, cuMemsetD8_v2)                                                                 \
	X(MemsetD32, cuMemsetD32_v2)                                                               \
	X(StreamCreate, cuStreamCreate)                                                            \
	X(StreamDestroy, cuStreamDestroy_v2)                                                       \
	X(StreamQuery, cuStreamQuery)                                                              \
	X(StreamSynchronize, cuStreamSynchronize)                                                  \
	X(StreamWaitEvent, cuStreamWaitEvent)                                                      \
	X(EventCreate, cuEventCreate)                                                              \
	X(EventDestroy, cuEventDestroy_v2)                                                         \
	X(EventRecord, cuEventRecord)                                                              \
	X(EventElapsedTime, cuEventElapsedTime)                                                    \
	X(OccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor)                  \
	X(LaunchKernel, cuLaunchKernel)

#define SAMPLE_FIELD(field, symbol) __typeof__(symbol) *field;
static struct {
	SAMPLE_CALLS(SAMPLE_FIELD)
} cu;

static const char *sample_name;

__attribute__((noreturn, format(printf, 1, 2), unused)) static void die(const char *fmt, ...)
{
	va_list ap;
	fprintf(stderr, "%s: ", sample_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void check(CUresult r, const char *what)
{
	const char *name = NULL, *text = NULL;
	if (!r)
		return;
	cu.GetErrorName(r, &name);
	cu.GetErrorString(r, &text);
	die("%s: %s (%s)", what, name ? name : "unknown error", text ? text : "no description");
}

/* CHECK(MemAlloc(&p, n)) calls the driver and ends the program when it fails. */
#define CHECK(call) check(cu.call, "cu" #call)

/* The sample's name, for messages, and what it takes. Prints it when asked or when the number of
 * arguments is wrong. */
static inline void usage(int argc, char **argv, int min, int max, const char *text)
{
	const char *slash = strrchr(argv[0], '/');
	sample_name = slash ? slash + 1 : argv[0];
	bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
	if (!help && argc - 1 >= min && argc - 1 <= max)
		return;
	fprintf(help ? stdout : stderr, "usage: %s %s\n", sample_name, text);
	exit(help ? 0 : 2);
}

/* A whole decimal number between min and max. */
__attribute__((unused)) static uint64_t number(
	const char *text, const char *what, uint64_t min, uint64_t max)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (errno || end == text || *end || text[strspn(text, " \t")] == '-' || v < min || v > max)
		die("%s: '%s' is no number between %" PRIu64 " and %" PRIu64, what, text, min, max);
	return v;
}

static inline void open_driver(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib)
		die("no CUDA driver on this machine (%s).\n%s: to run without a GPU: egpu run "
		    "--softgpu PROBE -- %s ...",
			dlerror(), sample_name, sample_name);
#define SAMPLE_LOAD(field, symbol)                                                                 \
	if (!(cu.field = (__typeof__(cu.field))dlsym(lib, #symbol)))                               \
		die("the CUDA driver has no %s: it is too old", #symbol);
	SAMPLE_CALLS(SAMPLE_LOAD)
}

/* The first device, its primary context made current. */
static inline CUdevice open_device(void)
{
	CUdevice dev;
	CUcontext ctx;
	open_driver();
	CHECK(Init(0));
	CHECK(DeviceGet(&dev, 0));
	CHECK(DevicePrimaryCtxRetain(&ctx, dev));
	CHECK(CtxSetCurrent(ctx));
	return dev;
}

/* The sample's kernels. The compiler's complaint is printed when it has one. */
static inline CUmodule load_module(const char *ptx)
{
	static char log[4096];
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	CUmodule module;
	CUresult r = cu.ModuleLoadDataEx(&module, ptx, 2, options, values);
	if (r && log[0])
		fprintf(stderr, "%s: the driver's compiler says: %s\n", sample_name, log);
	check(r, "cuModuleLoadDataEx");
	return module;
}

static inline CUfunction get_kernel(CUmodule module, const char *name)
{
	CUfunction fn;
	CHECK(ModuleGetFunction(&fn, module, name));
	return fn;
}

/* One thread an element, in blocks of `threads`. */
__attribute__((unused)) static void launch_1d(
	CUfunction fn, uint64_t n, unsigned threads, CUstream stream, void **params)
{
	uint64_t blocks = (n + threads - 1) / threads;
	if (blocks > 0x7fffffff)
		die("%" PRIu64 " elements need more blocks than a grid can have", n);
	CHECK(LaunchKernel(fn, (unsigned)blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
}

/* Host memory for n elements. */
__attribute__((unused)) static void *host_memory(uint64_t n, size_t element)
{
	void *p = n > SIZE_MAX / element ? NULL : malloc(n ? n * element : 1);
	if (!p)
		die("not enough memory for %" PRIu64 " elements of %zu bytes", n, element);
	return p;
}

/* Device memory for bytes, with the size in the message when there is none. */
__attribute__((unused)) static CUdeviceptr device_memory(uint64_t bytes)
{
	CUdeviceptr p;
	CUresult r = cu.MemAlloc(&p, bytes);
	if (r == CUDA_ERROR_OUT_OF_MEMORY)
		die("the device has no %" PRIu64 " bytes of free memory", bytes);
	check(r, "cuMemAlloc");
	return p;
}

__attribute__((unused)) static void write_file(const char *path, const void *data, size_t bytes)
{
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
		die("cannot write %s: %s", path, strerror(errno));
}

static inline void close_device(CUmodule module, CUdevice dev)
{
	CHECK(ModuleUnload(module));
	CHECK(DevicePrimaryCtxRelease(dev));
}

#endif
