/* runtime_register.c - the program's device code: what its constructors register, and launches.
 *
 * A program registers each fat binary with its kernels' host stubs and its variables' host
 * addresses before main. Nothing is loaded until something of it is used.
 */
#include "softgpu/runtime.h"

#include <stdlib.h>
#include <string.h>

#include "base/table.h"

struct image {
	const void *code; /* the fat binary's wrapper */
	CUlibrary library;
	int error;                  /* of the load */
	struct function *functions; /* all of it */
	struct variable *variables;
	struct image *next;
};

struct function {
	struct image *image;
	struct function *next; /* of the image */
	const void *host;
	const char *name;
	CUkernel kernel;
};

struct variable {
	struct image *image;
	struct variable *next; /* of the image */
	const void *host;
	const char *name;
	size_t bytes;
	void **pointer; /* managed: where the program looks for its address */
};

static struct {
	pthread_mutex_t lock;
	struct table *functions, *variables, *kernels; /* by host address; by kernel handle */
	struct image *images;
} code = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* -- registering ---------------------------------------------------------------------------- */

RTAPI void **__cudaRegisterFatBinary(void *wrapper);
RTAPI void **__cudaRegisterFatBinary(void *wrapper)
{
	struct image *i = calloc(1, sizeof(*i));
	if (!i)
		abort();
	pthread_mutex_lock(&code.lock);
	if (!code.functions) {
		code.functions = table_new();
		code.variables = table_new();
		code.kernels = table_new();
		if (!code.functions || !code.variables || !code.kernels)
			abort();
	}
	i->code = wrapper;
	i->next = code.images;
	code.images = i;
	pthread_mutex_unlock(&code.lock);
	return (void **)i;
}

RTAPI void __cudaRegisterFatBinaryEnd(void **handle);
RTAPI void __cudaRegisterFatBinaryEnd(void **handle)
{
}

RTAPI void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
	int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp);
RTAPI void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
	int thread_limit, void *tid, void *bid, void *block, void *grid, int *warp)
{
	struct function *f = calloc(1, sizeof(*f));
	if (!f)
		abort();
	*f = (struct function){ .image = (struct image *)handle, .host = host, .name = name };
	pthread_mutex_lock(&code.lock);
	f->next = f->image->functions;
	f->image->functions = f;
	if (table_put(code.functions, &f->host, sizeof(f->host), f))
		abort();
	pthread_mutex_unlock(&code.lock);
}

static struct variable *add_variable(
	void **handle, const void *host, const char *name, size_t bytes, void **pointer)
{
	struct variable *v = calloc(1, sizeof(*v));
	if (!v)
		abort();
	*v = (struct variable){ .image = (struct image *)handle,
		.host = host,
		.name = name,
		.bytes = bytes,
		.pointer = pointer };
	pthread_mutex_lock(&code.lock);
	v->next = v->image->variables;
	v->image->variables = v;
	if (table_put(code.variables, &v->host, sizeof(v->host), v))
		abort();
	pthread_mutex_unlock(&code.lock);
	return v;
}

RTAPI void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
	size_t bytes, int constant, int global);
RTAPI void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
	size_t bytes, int constant, int global)
{
	add_variable(handle, host, name, bytes, NULL);
}

RTAPI void __cudaRegisterManagedVar(void **handle, void **pointer, char *device, const char *name,
	int ext, size_t bytes, int constant, int global);
RTAPI void __cudaRegisterManagedVar(void **handle, void **pointer, char *device, const char *name,
	int ext, size_t bytes, int constant, int global)
{
	add_variable(handle, pointer, name, bytes, pointer);
}

RTAPI void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes);
RTAPI void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t bytes)
{
}

RTAPI void __cudaRegisterUnifiedTable(void **handle, void *table);
RTAPI void __cudaRegisterUnifiedTable(void **handle, void *table)
{
}

/* Called at exit, and when a shared object goes. At exit nothing is unloaded: that would wait for
 * kernels which may never end. */
RTAPI void __cudaUnregisterFatBinary(void **handle);
RTAPI void __cudaUnregisterFatBinary(void **handle)
{
	struct image *i = (struct image *)handle;
	if (!i || rt_exiting())
		return;
	pthread_mutex_lock(&code.lock);
	for (struct image **at = &code.images; *at; at = &(*at)->next)
		if (*at == i) {
			*at = i->next;
			break;
		}
	while (i->functions) {
		struct function *f = i->functions;
		i->functions = f->next;
		table_remove(code.functions, &f->host, sizeof(f->host));
		if (f->kernel)
			table_remove(code.kernels, &f->kernel, sizeof(f->kernel));
		free(f);
	}
	while (i->variables) {
		struct variable *v = i->variables;
		i->variables = v->next;
		table_remove(code.variables, &v->host, sizeof(v->host));
		free(v);
	}
	CUlibrary library = i->library;
	pthread_mutex_unlock(&code.lock);
	if (library && rt_calls[0].cuLibraryUnload)
		rt_calls[0].cuLibraryUnload(library);
	free(i);
}

/* -- loading ------------------------------------------------------------------------------- */

/* With the lock: the driver's load does not call back. */
static int load(struct image *i)
{
	if (i->library || i->error)
		return i->error;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	rt_calls[0].cuThreadExchangeStreamCaptureMode(&mode);
	i->error =
		rt_calls[0].cuLibraryLoadData(&i->library, i->code, NULL, NULL, 0, NULL, NULL, 0);
	rt_calls[0].cuThreadExchangeStreamCaptureMode(&mode);
	return i->error;
}

/* Managed variables are reached by the host through a pointer that is set here. */
RTAPI char __cudaInitModule(void **handle);
RTAPI char __cudaInitModule(void **handle)
{
	struct image *i = (struct image *)handle;
	if (rt_end(rt_enter()))
		return 0;
	pthread_mutex_lock(&code.lock);
	int r = load(i);
	for (struct variable *v = i->variables; v && !r; v = v->next) {
		CUdeviceptr addr;
		size_t bytes;
		if (!v->pointer)
			continue;
		r = rt_calls[0].cuLibraryGetManaged(&addr, &bytes, i->library, v->name);
		if (!r)
			*v->pointer = (void *)(uintptr_t)addr;
	}
	pthread_mutex_unlock(&code.lock);
	return !rt_end(r);
}

static int find_kernel(struct function *f)
{
	if (f->kernel)
		return cudaSuccess;
	int r = load(f->image);
	if (!r)
		r = rt_calls[0].cuLibraryGetKernel(&f->kernel, f->image->library, f->name);
	if (r == CUDA_ERROR_NOT_FOUND)
		r = cudaErrorInvalidDeviceFunction;
	if (!r && table_put(code.kernels, &f->kernel, sizeof(f->kernel), f))
		r = cudaErrorMemoryAllocation;
	return r;
}

cudaError_t rt_kernel(const void *func, CUkernel *out)
{
	CUfunction unused;
	pthread_mutex_lock(&code.lock);
	struct function *f = code.functions ? table_get(code.functions, &func, sizeof(func)) : NULL;
	int r = f ? find_kernel(f) : cudaErrorInvalidDeviceFunction;
	if (!r)
		*out = f->kernel;
	pthread_mutex_unlock(&code.lock);
	if (f || !func)
		return r;
	/* A handle of cudaGetKernel or cudaLibraryGetKernel does as well. */
	if (rt_calls[0].cuKernelGetFunction(&unused, (CUkernel)func))
		return cudaErrorInvalidDeviceFunction;
	*out = (CUkernel)func;
	return cudaSuccess;
}

const void *rt_host_function(CUkernel kernel)
{
	pthread_mutex_lock(&code.lock);
	struct function *f = code.kernels ? table_get(code.kernels, &kernel, sizeof(kernel)) : NULL;
	const void *host = f ? f->host : kernel;
	pthread_mutex_unlock(&code.lock);
	return host;
}

cudaError_t rt_symbol(const void *symbol, CUdeviceptr *addr, size_t *bytes)
{
	pthread_mutex_lock(&code.lock);
	struct variable *v =
		code.variables ? table_get(code.variables, &symbol, sizeof(symbol)) : NULL;
	int r = v ? load(v->image) : cudaErrorInvalidSymbol;
	if (!r)
		r = rt_calls[0].cuLibraryGetGlobal(addr, bytes, v->image->library, v->name);
	pthread_mutex_unlock(&code.lock);
	return r == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : r;
}

cudaError_t RTAPI cudaGetSymbolAddress(void **out, const void *symbol);
cudaError_t RTAPI cudaGetSymbolAddress(void **out, const void *symbol)
{
	CUdeviceptr addr = 0;
	size_t bytes;
	RT_ENTER;
	if (!out)
		return rt_end(cudaErrorInvalidValue);
	cudaError_t r = rt_symbol(symbol, &addr, &bytes);
	if (!r)
		*out = (void *)(uintptr_t)addr;
	return rt_end(r);
}

cudaError_t RTAPI cudaGetSymbolSize(size_t *out, const void *symbol);
cudaError_t RTAPI cudaGetSymbolSize(size_t *out, const void *symbol)
{
	CUdeviceptr addr;
	RT_ENTER;
	return rt_end(out ? rt_symbol(symbol, &addr, out) : cudaErrorInvalidValue);
}

cudaError_t RTAPI cudaGetKernel(cudaKernel_t *out, const void *func);
cudaError_t RTAPI cudaGetKernel(cudaKernel_t *out, const void *func)
{
	RT_ENTER;
	return rt_end(out ? rt_kernel(func, out) : cudaErrorInvalidValue);
}

cudaError_t RTAPI __cudaGetKernel(cudaKernel_t *out, const void *func);
cudaError_t RTAPI __cudaGetKernel(cudaKernel_t *out, const void *func)
{
	return cudaGetKernel(out, func);
}

cudaError_t RTAPI cudaGetFuncBySymbol(cudaFunction_t *out, const void *func);
cudaError_t RTAPI cudaGetFuncBySymbol(cudaFunction_t *out, const void *func)
{
	CUkernel k;
	RT_ENTER;
	if (!out)
		return rt_end(cudaErrorInvalidValue);
	cudaError_t r = rt_kernel(func, &k);
	return rt_end(r ? r : (cudaError_t)CU(cuKernelGetFunction)(out, k));
}

/* -- launching -------------------------------------------------------------------------------- */

/* <<<...>>> pushes, and the stub of the kernel, which is called in between, pops. */
struct configuration {
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
};
static __thread struct configuration pushed[16];
static __thread unsigned int n_pushed;

RTAPI unsigned int __cudaPushCallConfiguration(
	dim3 grid, dim3 block, size_t shared, cudaStream_t stream);
RTAPI unsigned int __cudaPushCallConfiguration(
	dim3 grid, dim3 block, size_t shared, cudaStream_t stream)
{
	if (n_pushed == sizeof(pushed) / sizeof(*pushed))
		return 1;
	pushed[n_pushed++] = (struct configuration){ grid, block, shared, stream };
	return 0;
}

cudaError_t RTAPI __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t RTAPI __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	if (!n_pushed)
		return rt_end(cudaErrorMissingConfiguration);
	const struct configuration *c = &pushed[--n_pushed];
	*grid = c->grid;
	*block = c->block;
	*shared = c->shared;
	memcpy(stream, &c->stream, sizeof(c->stream));
	return cudaSuccess;
}

/* The driver says "invalid value" for many things; runtimes before 13 tell a bad shape from them. */
static cudaError_t launch_error(CUresult r, dim3 grid, dim3 block, CUkernel kernel)
{
	int limit = 1024;
	if (r != CUDA_ERROR_INVALID_VALUE)
		return r;
	CU(cuKernelGetAttribute)
	(&limit, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, rt_device());
	unsigned long long threads = (unsigned long long)block.x * block.y * block.z;
	if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffff || grid.y > 65535 ||
		grid.z > 65535 || !threads || block.x > 1024 || block.y > 1024 || block.z > 64 ||
		threads > 1024)
		return RT_MAJOR < 13 ? cudaErrorInvalidConfiguration : cudaErrorInvalidValue;
	return threads > (unsigned long long)limit ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
						   : cudaErrorInvalidValue;
}

cudaError_t RTAPI cudaLaunchKernel(
	const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);
cudaError_t RTAPI cudaLaunchKernel(
	const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
	CUkernel k;
	RT_ENTER;
	cudaError_t r = rt_kernel(func, &k);
	if (r)
		return rt_end(r);
	if (shared > UINT32_MAX)
		return rt_end(cudaErrorInvalidValue);
	/* The driver takes kernels where it takes functions. */
	return rt_end(
		launch_error(CU(cuLaunchKernel)((CUfunction)k, grid.x, grid.y, grid.z, block.x,
				     block.y, block.z, (unsigned)shared, stream, args, NULL),
			grid, block, k));
}
RT_TWIN(cudaLaunchKernel, _ptsz,
	(const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
	(func, grid, block, args, shared, stream))

cudaError_t RTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
	size_t shared, cudaStream_t stream);
cudaError_t RTAPI __cudaLaunchKernel(
	cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
	return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}
RT_TWIN(__cudaLaunchKernel, _ptsz,
	(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared,
		cudaStream_t stream),
	(kernel, grid, block, args, shared, stream))

cudaError_t RTAPI cudaLaunchCooperativeKernel(
	const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);
cudaError_t RTAPI cudaLaunchCooperativeKernel(
	const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream)
{
	CUkernel k;
	RT_ENTER;
	cudaError_t r = rt_kernel(func, &k);
	if (r)
		return rt_end(r);
	return rt_end(
		launch_error(CU(cuLaunchCooperativeKernel)((CUfunction)k, grid.x, grid.y, grid.z,
				     block.x, block.y, block.z, (unsigned)shared, stream, args),
			grid, block, k));
}
RT_TWIN(cudaLaunchCooperativeKernel, _ptsz,
	(const void *func, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream),
	(func, grid, block, args, shared, stream))

static CUlaunchConfig driver_config(const cudaLaunchConfig_t *c)
{
	return (CUlaunchConfig){ c->gridDim.x, c->gridDim.y, c->gridDim.z, c->blockDim.x,
		c->blockDim.y, c->blockDim.z, (unsigned)c->dynamicSmemBytes, c->stream, c->attrs,
		c->numAttrs };
}

cudaError_t RTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *func, void **args);
cudaError_t RTAPI cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *func, void **args)
{
	CUkernel k;
	RT_ENTER;
	if (!c)
		return rt_end(cudaErrorInvalidConfiguration);
	cudaError_t r = rt_kernel(func, &k);
	if (r)
		return rt_end(r);
	CUlaunchConfig d = driver_config(c);
	return rt_end(launch_error(
		CU(cuLaunchKernelEx)(&d, (CUfunction)k, args, NULL), c->gridDim, c->blockDim, k));
}
RT_TWIN(cudaLaunchKernelExC, _ptsz, (const cudaLaunchConfig_t *c, const void *func, void **args),
	(c, func, args))

RT_PASS(cudaLaunchHostFunc, (cudaStream_t stream, CUhostFn fn, void *data), cuLaunchHostFunc,
	(stream, fn, data))
RT_TWIN(cudaLaunchHostFunc, _ptsz, (cudaStream_t stream, CUhostFn fn, void *data),
	(stream, fn, data))

/* -- functions ----------------------------------------------------------------------------------
 */

cudaError_t RTAPI cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *func);
cudaError_t RTAPI cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *func)
{
	CUkernel k;
	int v[CU_FUNC_ATTRIBUTE_MAX] = { 0 };
	RT_ENTER;
	if (!out)
		return rt_end(cudaErrorInvalidValue);
	cudaError_t r = rt_kernel(func, &k);
	for (int a = 0; a < CU_FUNC_ATTRIBUTE_MAX && !r; a++)
		r = CU(cuKernelGetAttribute)(&v[a], (CUfunction_attribute)a, k, rt_device());
	if (r)
		return rt_end(r);
	*out = (struct cudaFuncAttributes){
		.sharedSizeBytes = (size_t)v[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES],
		.constSizeBytes = (size_t)v[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES],
		.localSizeBytes = (size_t)v[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES],
		.maxThreadsPerBlock = v[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
		.numRegs = v[CU_FUNC_ATTRIBUTE_NUM_REGS],
		.ptxVersion = v[CU_FUNC_ATTRIBUTE_PTX_VERSION],
		.binaryVersion = v[CU_FUNC_ATTRIBUTE_BINARY_VERSION],
		.cacheModeCA = v[CU_FUNC_ATTRIBUTE_CACHE_MODE_CA],
		.maxDynamicSharedSizeBytes = v[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
		.preferredShmemCarveout = v[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT],
		.clusterDimMustBeSet = v[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET],
		.requiredClusterWidth = v[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH],
		.requiredClusterHeight = v[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT],
		.requiredClusterDepth = v[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH],
		.clusterSchedulingPolicyPreference =
			v[CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE],
		.nonPortableClusterSizeAllowed =
			v[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED],
	};
	return cudaSuccess;
}

/* Functions about one kernel: the kernel is found, then the driver asked. */
#define ABOUT_KERNEL(name, params, call)                                                           \
	cudaError_t RTAPI name params;                                                             \
	cudaError_t RTAPI name params                                                              \
	{                                                                                          \
		CUkernel k;                                                                        \
		CUfunction f;                                                                      \
		RT_ENTER;                                                                          \
		cudaError_t r = rt_kernel(func, &k);                                               \
		if (!r)                                                                            \
			r = CU(cuKernelGetFunction)(&f, k);                                        \
		return rt_end(r ? r : (cudaError_t)(call));                                        \
	}

ABOUT_KERNEL(cudaFuncSetAttribute, (const void *func, int attr, int value),
	CU(cuKernelSetAttribute)((CUfunction_attribute)attr, value, k, rt_device()))
ABOUT_KERNEL(cudaFuncSetCacheConfig, (const void *func, CUfunc_cache config),
	CU(cuFuncSetCacheConfig)(f, config))
ABOUT_KERNEL(cudaFuncSetSharedMemConfig, (const void *func, CUsharedconfig config),
	CU(cuFuncSetSharedMemConfig)(f, config))
ABOUT_KERNEL(cudaFuncGetName, (const char **name, const void *func), CU(cuKernelGetName)(name, k))
ABOUT_KERNEL(cudaFuncGetParamInfo, (const void *func, size_t index, size_t *offset, size_t *bytes),
	CU(cuKernelGetParamInfo)(k, index, offset, bytes))
ABOUT_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
	(int *blocks, const void *func, int threads, size_t shared),
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessor)(blocks, f, threads, shared))
ABOUT_KERNEL(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
	(int *blocks, const void *func, int threads, size_t shared, unsigned int flags),
	CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(blocks, f, threads, shared, flags))
ABOUT_KERNEL(cudaOccupancyAvailableDynamicSMemPerBlock,
	(size_t * shared, const void *func, int blocks, int threads),
	CU(cuOccupancyAvailableDynamicSMemPerBlock)(shared, f, blocks, threads))

static CUresult cluster_question(CUresult (*ask)(int *, CUfunction, const CUlaunchConfig *),
	int *out, CUfunction f, const cudaLaunchConfig_t *c)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUlaunchConfig d = driver_config(c);
	return ask(out, f, &d);
}
ABOUT_KERNEL(cudaOccupancyMaxPotentialClusterSize,
	(int *size, const void *func, const cudaLaunchConfig_t *config),
	cluster_question(CU(cuOccupancyMaxPotentialClusterSize), size, f, config))
ABOUT_KERNEL(cudaOccupancyMaxActiveClusters,
	(int *clusters, const void *func, const cudaLaunchConfig_t *config),
	cluster_question(CU(cuOccupancyMaxActiveClusters), clusters, f, config))

/* -- libraries that the program loads itself ------------------------------------------------------
 */

RT_PASS(cudaLibraryLoadData,
	(cudaLibrary_t * lib, const void *data, CUjit_option *jit, void **jit_values,
		unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n),
	cuLibraryLoadData, (lib, data, jit, jit_values, n_jit, options, values, n))
RT_PASS(cudaLibraryLoadFromFile,
	(cudaLibrary_t * lib, const char *path, CUjit_option *jit, void **jit_values,
		unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n),
	cuLibraryLoadFromFile, (lib, path, jit, jit_values, n_jit, options, values, n))
RT_PASS(cudaLibraryUnload, (cudaLibrary_t lib), cuLibraryUnload, (lib))
RT_PASS(cudaLibraryGetKernel, (cudaKernel_t * kernel, cudaLibrary_t lib, const char *name),
	cuLibraryGetKernel, (kernel, lib, name))
RT_PASS(cudaLibraryGetKernelCount, (unsigned int *count, cudaLibrary_t lib),
	cuLibraryGetKernelCount, (count, lib))
RT_PASS(cudaLibraryEnumerateKernels, (cudaKernel_t * kernels, unsigned int n, cudaLibrary_t lib),
	cuLibraryEnumerateKernels, (kernels, n, lib))
RT_PASS(cudaLibraryGetGlobal, (void **addr, size_t *bytes, cudaLibrary_t lib, const char *name),
	cuLibraryGetGlobal, ((CUdeviceptr *)addr, bytes, lib, name))
RT_PASS(cudaLibraryGetManaged, (void **addr, size_t *bytes, cudaLibrary_t lib, const char *name),
	cuLibraryGetManaged, ((CUdeviceptr *)addr, bytes, lib, name))
RT_PASS(cudaKernelSetAttributeForDevice, (cudaKernel_t kernel, int attr, int value, int device),
	cuKernelSetAttribute, ((CUfunction_attribute)attr, value, kernel, device))
