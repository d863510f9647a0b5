/* shim.c - softgpu with the manners of a real driver and with faults on demand.
 *
 * The session's alias points here instead of at softgpu, whose calls are found behind us unless we
 *define them.
 *	SHIM_BLOCK=1	   cuModuleLoadData waits for every running kernel and keeps launches of
 *other threads out meanwhile SHIM_FAULT=NAME:K  from the K-th call (from 1) of NAME that comes from
 *the agent on, that call fails SHIM_FAULT_ONCE=1  only the K-th SHIM_TIGHT=1	   an SM holds two
 *blocks of a kernel from PTX text, one of a kernel from a cubin (a variant) unless it was linked
 *			   with a register limit; =2: one in any case
 *	SHIM_LATE=1	   a launch into a thread's own default stream waits until some thread has synchronised a context
 *	SHIM_LEGACY=1	   a query of the legacy stream says nothing of others
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "egpu/cuda.h"

enum { LATE_MS = 5000 /* at most */ };

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

#define WRAP(name, code, params, args)                                                             \
	__attribute__((visibility("default"))) CUresult name params;                               \
	CUresult name params                                                                       \
	{                                                                                          \
		static atomic_int count;                                                           \
		CUresult(*real) params = (CUresult(*) params)next(#name);                          \
		if (fault(#name, &count, __builtin_return_address(0)))                             \
			return code;                                                               \
		return real args;                                                                  \
	}

WRAP(cuMemAlloc_v2, CUDA_ERROR_OUT_OF_MEMORY, (CUdeviceptr * at, size_t n), (at, n))
WRAP(cuStreamCreate, CUDA_ERROR_OUT_OF_MEMORY, (CUstream * s, unsigned int flags), (s, flags))
WRAP(cuMemcpyHtoDAsync_v2, CUDA_ERROR_INVALID_VALUE,
	(CUdeviceptr to, const void *from, size_t n, CUstream s), (to, from, n, s))
WRAP(cuMemcpyDtoHAsync_v2, CUDA_ERROR_INVALID_VALUE,
	(void *to, CUdeviceptr from, size_t n, CUstream s), (to, from, n, s))
/* Whether the linker was told a limit of registers since the last cubin was loaded. */
static atomic_int limited;

__attribute__((visibility("default"))) CUresult cuLinkCreate_v2(
	unsigned int n, CUjit_option *o, void **v, CUlinkState *s);
CUresult cuLinkCreate_v2(unsigned int n, CUjit_option *o, void **v, CUlinkState *s)
{
	static atomic_int count;
	CUresult (*real)(unsigned int, CUjit_option *, void **, CUlinkState *) =
		next("cuLinkCreate_v2");
	for (unsigned int i = 0; i < n; i++)
		if (o[i] == CU_JIT_MAX_REGISTERS)
			atomic_store(&limited, 1);
	if (fault("cuLinkCreate_v2", &count, __builtin_return_address(0)))
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	return real(n, o, v, s);
}

static int tight(void)
{
	const char *how = getenv("SHIM_TIGHT");
	return how ? atoi(how) : 0;
}

/* Functions of modules that came as cubins: which of them are limited. */
static struct {
	CUmodule module;
	CUfunction fn;
	bool limited;
} variants[64];
static int n_variants;

static void saw_module(CUmodule m, const void *image)
{
	if (!tight() || memcmp(image, "\177ELF", 4) || n_variants == 64)
		return;
	variants[n_variants].module = m;
	variants[n_variants++].limited = atomic_exchange(&limited, 0);
}

static void saw_function(CUmodule m, CUfunction fn)
{
	for (int i = 0; i < n_variants; i++)
		if (variants[i].module == m)
			variants[i].fn = fn;
}

static bool is_large(CUfunction fn)
{
	for (int i = n_variants - 1; i >= 0; i--)
		if (variants[i].fn == fn)
			return tight() == 2 || !variants[i].limited;
	return false;
}

__attribute__((visibility("default"))) CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, CUfunction fn, int threads, size_t shared);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, CUfunction fn, int threads, size_t shared)
{
	CUresult (*real)(int *, CUfunction, int, size_t) =
		next("cuOccupancyMaxActiveBlocksPerMultiprocessor");
	CUresult r = real(blocks, fn, threads, shared);
	if (tight() && r == CUDA_SUCCESS)
		*blocks = is_large(fn) ? 1 : 2;
	return r;
}
WRAP(cuLinkAddData_v2, CUDA_ERROR_INVALID_PTX,
	(CUlinkState s, CUjitInputType t, void *d, size_t b, const char *name, unsigned int n,
		CUjit_option *o, void **v),
	(s, t, d, b, name, n, o, v))
WRAP(cuLinkComplete, CUDA_ERROR_UNKNOWN, (CUlinkState s, void **out, size_t *n), (s, out, n))
__attribute__((visibility("default"))) CUresult cuModuleGetFunction(
	CUfunction *fn, CUmodule m, const char *name);
CUresult cuModuleGetFunction(CUfunction *fn, CUmodule m, const char *name)
{
	static atomic_int count;
	CUresult (*real)(CUfunction *, CUmodule, const char *) = next("cuModuleGetFunction");
	if (fault("cuModuleGetFunction", &count, __builtin_return_address(0)))
		return CUDA_ERROR_NOT_FOUND;
	CUresult r = real(fn, m, name);
	if (r == CUDA_SUCCESS)
		saw_function(m, *fn);
	return r;
}
WRAP(cuModuleGetGlobal_v2, CUDA_ERROR_NOT_FOUND,
	(CUdeviceptr * at, size_t *n, CUmodule m, const char *name), (at, n, m, name))
__attribute__((visibility("default"))) CUresult cuFuncGetAttribute(
	int *v, CUfunction_attribute a, CUfunction fn);
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction fn)
{
	static atomic_int count;
	CUresult (*real)(int *, CUfunction_attribute, CUfunction) = next("cuFuncGetAttribute");
	if (fault("cuFuncGetAttribute", &count, __builtin_return_address(0)))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = real(v, a, fn);
	if (tight() && r == CUDA_SUCCESS && a == CU_FUNC_ATTRIBUTE_NUM_REGS)
		*v = is_large(fn) ? 64 : 32;
	return r;
}
WRAP(cuFuncGetParamInfo, CUDA_ERROR_INVALID_VALUE, (CUfunction fn, size_t i, size_t *at, size_t *n),
	(fn, i, at, n))
WRAP(cuMemHostRegister_v2, CUDA_ERROR_NOT_SUPPORTED, (void *p, size_t n, unsigned int flags),
	(p, n, flags))
__attribute__((visibility("default"))) CUresult cuStreamQuery(CUstream s);
CUresult cuStreamQuery(CUstream s)
{
	static atomic_int count;
	CUresult (*real)(CUstream) = (CUresult(*)(CUstream))next("cuStreamQuery");
	if (fault("cuStreamQuery", &count, __builtin_return_address(0)))
		return CUDA_ERROR_INVALID_VALUE;
	return s == CU_STREAM_LEGACY && getenv("SHIM_LEGACY") ? CUDA_SUCCESS : real(s);
}
WRAP(cuStreamSynchronize, CUDA_ERROR_INVALID_VALUE, (CUstream s), (s))
WRAP(cuCtxPushCurrent_v2, CUDA_ERROR_INVALID_CONTEXT, (CUcontext c), (c))
WRAP(cuDeviceGetAttribute, CUDA_ERROR_INVALID_VALUE, (int *v, CUdevice_attribute a, CUdevice d),
	(v, a, d))

__attribute__((visibility("default"))) CUresult cuModuleLoadData(CUmodule *mod, const void *image);
CUresult cuModuleLoadData(CUmodule *mod, const void *image)
{
	static atomic_int count;
	CUresult (*real)(CUmodule *, const void *) =
		(CUresult(*)(CUmodule *, const void *))next("cuModuleLoadData");
	CUresult (*sync)(void) = (CUresult(*)(void))next("cuCtxSynchronize");
	if (fault("cuModuleLoadData", &count, __builtin_return_address(0)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!blocking()) {
		CUresult r = real(mod, image);
		if (r == CUDA_SUCCESS)
			saw_module(*mod, image);
		return r;
	}
	pthread_rwlock_wrlock(&device);
	sync();
	CUresult r = real(mod, image);
	pthread_rwlock_unlock(&device);
	return r;
}

static atomic_int synchronisations;

__attribute__((visibility("default"))) CUresult cuCtxSynchronize(void);
CUresult cuCtxSynchronize(void)
{
	CUresult (*real)(void) = (CUresult(*)(void))next("cuCtxSynchronize");
	CUresult r = real();
	atomic_fetch_add(&synchronisations, 1);
	return r;
}

static void wait_for_synchronisation(void)
{
	int seen = atomic_load(&synchronisations);
	for (int ms = 0; ms < LATE_MS && atomic_load(&synchronisations) == seen; ms++)
		usleep(1000);
}

__attribute__((visibility("default"))) CUresult cuLaunchKernel(CUfunction fn, unsigned gx,
	unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
	CUstream s, void **params, void **extra);
CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
	unsigned by, unsigned bz, unsigned shared, CUstream s, void **params, void **extra)
{
	static atomic_int count;
	CUresult (*real)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		unsigned, CUstream, void **, void **) = next("cuLaunchKernel");
	if (fault("cuLaunchKernel", &count, __builtin_return_address(0)))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (s == CU_STREAM_PER_THREAD && getenv("SHIM_LATE"))
		wait_for_synchronisation();
	if (blocking())
		pthread_rwlock_rdlock(&device);
	CUresult r = real(fn, gx, gy, gz, bx, by, bz, shared, s, params, extra);
	if (blocking())
		pthread_rwlock_unlock(&device);
	return r;
}
