/* shim.c - softgpu with the manners of a real driver and with faults on demand.
 *
 * The session's alias points here instead of at softgpu, whose calls are found behind us unless we define them.
 *	SHIM_BLOCK=1	   cuModuleLoadData waits for every running kernel and keeps launches of other threads out meanwhile
 *	SHIM_FAULT=NAME:K  from the K-th call (from 1) of NAME that comes from the agent on, that call fails
 *	SHIM_FAULT_ONCE=1  only the K-th
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "egpu/cuda.h"

static pthread_rwlock_t device = PTHREAD_RWLOCK_INITIALIZER;

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Whether this call is to fail; every wrapped call asks once. */
static bool fault(const char *name, atomic_int *count, void *from)
{
	const char *want = getenv("SHIM_FAULT");
	size_t n = strlen(name);
	Dl_info where;
	if (!want || strncmp(want, name, n) || want[n] != ':')
		return false;
	if (!dladdr(from, &where) || !strstr(where.dli_fname, "libegpu-agent"))
		return false;
	int k = atoi(want + n + 1), at = atomic_fetch_add(count, 1) + 1;
	return getenv("SHIM_FAULT_ONCE") ? at == k : at >= k;
}

static bool blocking(void)
{
	return getenv("SHIM_BLOCK") != NULL;
}

#define WRAP(name, code, params, args)                                                     \
	__attribute__((visibility("default"))) CUresult name params;                       \
	CUresult name params                                                               \
	{                                                                                  \
		static atomic_int count;                                                   \
		CUresult(*real) params = (CUresult(*) params)next(#name);                  \
		if (fault(#name, &count, __builtin_return_address(0)))                     \
			return code;                                                       \
		return real args;                                                          \
	}

WRAP(cuMemAlloc_v2, CUDA_ERROR_OUT_OF_MEMORY, (CUdeviceptr * at, size_t n), (at, n))
WRAP(cuStreamCreate, CUDA_ERROR_OUT_OF_MEMORY, (CUstream * s, unsigned int flags), (s, flags))
WRAP(cuMemcpyHtoDAsync_v2, CUDA_ERROR_INVALID_VALUE, (CUdeviceptr to, const void *from, size_t n, CUstream s), (to, from, n, s))
WRAP(cuMemcpyDtoHAsync_v2, CUDA_ERROR_INVALID_VALUE, (void *to, CUdeviceptr from, size_t n, CUstream s), (to, from, n, s))
WRAP(cuLinkCreate_v2, CUDA_ERROR_JIT_COMPILER_NOT_FOUND, (unsigned int n, CUjit_option *o, void **v, CUlinkState *s), (n, o, v, s))
WRAP(cuLinkAddData_v2, CUDA_ERROR_INVALID_PTX,
	(CUlinkState s, CUjitInputType t, void *d, size_t b, const char *name, unsigned int n, CUjit_option *o, void **v), (s, t, d, b, name, n, o, v))
WRAP(cuLinkComplete, CUDA_ERROR_UNKNOWN, (CUlinkState s, void **out, size_t *n), (s, out, n))
WRAP(cuModuleGetFunction, CUDA_ERROR_NOT_FOUND, (CUfunction * fn, CUmodule m, const char *name), (fn, m, name))
WRAP(cuModuleGetGlobal_v2, CUDA_ERROR_NOT_FOUND, (CUdeviceptr * at, size_t *n, CUmodule m, const char *name), (at, n, m, name))
WRAP(cuFuncGetAttribute, CUDA_ERROR_INVALID_VALUE, (int *v, CUfunction_attribute a, CUfunction fn), (v, a, fn))
WRAP(cuFuncGetParamInfo, CUDA_ERROR_INVALID_VALUE, (CUfunction fn, size_t i, size_t *at, size_t *n), (fn, i, at, n))
WRAP(cuMemHostRegister_v2, CUDA_ERROR_NOT_SUPPORTED, (void *p, size_t n, unsigned int flags), (p, n, flags))
WRAP(cuStreamQuery, CUDA_ERROR_INVALID_VALUE, (CUstream s), (s))
WRAP(cuStreamSynchronize, CUDA_ERROR_INVALID_VALUE, (CUstream s), (s))
WRAP(cuCtxPushCurrent_v2, CUDA_ERROR_INVALID_CONTEXT, (CUcontext c), (c))
WRAP(cuDeviceGetAttribute, CUDA_ERROR_INVALID_VALUE, (int *v, CUdevice_attribute a, CUdevice d), (v, a, d))

__attribute__((visibility("default"))) CUresult cuModuleLoadData(CUmodule *mod, const void *image);
CUresult cuModuleLoadData(CUmodule *mod, const void *image)
{
	static atomic_int count;
	CUresult (*real)(CUmodule *, const void *) = (CUresult(*)(CUmodule *, const void *))next("cuModuleLoadData");
	CUresult (*sync)(void) = (CUresult(*)(void))next("cuCtxSynchronize");
	if (fault("cuModuleLoadData", &count, __builtin_return_address(0)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!blocking())
		return real(mod, image);
	pthread_rwlock_wrlock(&device);
	sync();
	CUresult r = real(mod, image);
	pthread_rwlock_unlock(&device);
	return r;
}

__attribute__((visibility("default"))) CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
	unsigned bz, unsigned shared, CUstream s, void **params, void **extra);
CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s,
	void **params, void **extra)
{
	static atomic_int count;
	CUresult (*real)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **) =
		next("cuLaunchKernel");
	if (fault("cuLaunchKernel", &count, __builtin_return_address(0)))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (blocking())
		pthread_rwlock_rdlock(&device);
	CUresult r = real(fn, gx, gy, gz, bx, by, bz, shared, s, params, extra);
	if (blocking())
		pthread_rwlock_unlock(&device);
	return r;
}
