/* gpucall.c - see gpucall.h. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gpucall.h"

#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"

enum { MAX_BUFFERS = 8, LOG_BYTES = 512 };

struct driver {
	CUresult (*init)(unsigned);
	CUresult (*retain)(CUcontext *, CUdevice);
	CUresult (*set_current)(CUcontext);
	CUresult (*load)(CUmodule *, const void *, unsigned, CUjit_option *, void **);
	CUresult (*function)(CUfunction *, CUmodule, const char *);
	CUresult (*alloc)(CUdeviceptr *, size_t);
	CUresult (*to_device)(CUdeviceptr, const void *, size_t);
	CUresult (*to_host)(void *, CUdeviceptr, size_t);
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		unsigned, CUstream, void **, void **);
	CUresult (*synchronize)(void);
	CUresult (*error_name)(CUresult, const char **);
};

static int open_driver(const char *library, struct driver *d, char error[256])
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *why = dlerror();
		snprintf(error, 256, "%.200s", why ? why : "cannot be loaded");
		return -1;
	}
	const struct {
		void *at;
		const char *name;
	} calls[] = { { &d->init, "cuInit" }, { &d->retain, "cuDevicePrimaryCtxRetain" },
		{ &d->set_current, "cuCtxSetCurrent" }, { &d->load, "cuModuleLoadDataEx" },
		{ &d->function, "cuModuleGetFunction" }, { &d->alloc, "cuMemAlloc_v2" },
		{ &d->to_device, "cuMemcpyHtoD_v2" }, { &d->to_host, "cuMemcpyDtoH_v2" },
		{ &d->launch, "cuLaunchKernel" }, { &d->synchronize, "cuCtxSynchronize" },
		{ &d->error_name, "cuGetErrorName" } };
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		void *f = dlsym(lib, calls[i].name);
		if (!f) {
			snprintf(error, 256, "it has no %s", calls[i].name);
			return -1;
		}
		memcpy(calls[i].at, &f, sizeof(f));
	}
	return 0;
}

static int failed(const struct driver *d, CUresult err, const char *what, char error[256])
{
	const char *name = NULL;
	if (err == CUDA_SUCCESS)
		return 0;
	d->error_name(err, &name);
	snprintf(error, 256, "%s: %s", what, name ? name : "unknown error");
	return -1;
}

static int load(
	const struct driver *d, const char *ptx, const char *kernel, CUfunction *f, char error[256])
{
	char log[LOG_BYTES] = "";
	CUmodule module;
	CUjit_option keys[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	CUresult err = d->load(&module, ptx, 2, keys, values);
	if (err != CUDA_SUCCESS && log[0]) {
		snprintf(error, 256, "the PTX does not compile: %.200s", log);
		return -1;
	}
	if (failed(d, err, "cuModuleLoadDataEx", error))
		return -1;
	return failed(d, d->function(f, module, kernel), kernel, error);
}

static int copy_in(const struct driver *d, struct gpu_buffer *b, CUdeviceptr *at, char error[256])
{
	*at = 0;
	if (!b->bytes)
		return 0;
	if (failed(d, d->alloc(at, b->bytes), "cuMemAlloc", error))
		return -1;
	return failed(d, d->to_device(*at, b->data, b->bytes), "cuMemcpyHtoD", error);
}

int gpu_call(const char *library, const char *ptx, const char *kernel, unsigned threads,
	struct gpu_buffer *buffers, size_t n, char error[256])
{
	struct driver d;
	CUcontext ctx;
	CUfunction f;
	CUdeviceptr at[MAX_BUFFERS];
	void *params[MAX_BUFFERS];
	error[0] = 0;
	if (n > MAX_BUFFERS || open_driver(library, &d, error))
		return -1;
	if (failed(&d, d.init(0), "cuInit", error) ||
		failed(&d, d.retain(&ctx, 0), "cuDevicePrimaryCtxRetain", error) ||
		failed(&d, d.set_current(ctx), "cuCtxSetCurrent", error) ||
		load(&d, ptx, kernel, &f, error))
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (copy_in(&d, &buffers[i], &at[i], error))
			return -1;
		params[i] = &at[i];
	}
	if (failed(&d, d.launch(f, 1, 1, 1, threads, 1, 1, 0, NULL, params, NULL), "launch",
		    error) ||
		failed(&d, d.synchronize(), "kernel", error))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (buffers[i].bytes &&
			failed(&d, d.to_host(buffers[i].data, at[i], buffers[i].bytes),
				"cuMemcpyDtoH", error))
			return -1;
	return 0;
}

int gpu_self_test(const char *library, char error[256])
{
	/* out[tid] = 3 * tid + 7 */
	static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
				  ".visible .entry egpu_self_test(.param .u64 out)\n{\n"
				  "\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<4>;\n"
				  "\tld.param.u64 %rd1, [out];\n\tcvta.to.global.u64 %rd1, %rd1;\n"
				  "\tmov.u32 %r1, %tid.x;\n\tmad.lo.s32 %r2, %r1, 3, 7;\n"
				  "\tmul.wide.u32 %rd2, %r1, 4;\n\tadd.s64 %rd3, %rd1, %rd2;\n"
				  "\tst.global.u32 [%rd3], %r2;\n\tret;\n}\n";
	uint32_t out[64] = { 0 };
	struct gpu_buffer b = { out, sizeof(out) };
	if (gpu_call(library, ptx, "egpu_self_test", 64, &b, 1, error))
		return -1;
	for (uint32_t i = 0; i < 64; i++)
		if (out[i] != 3 * i + 7) {
			snprintf(error, 256, "a kernel computed %u where %u is right (thread %u)",
				out[i], 3 * i + 7, i);
			return -1;
		}
	return 0;
}
