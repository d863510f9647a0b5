/* calls.h - every driver call that softgpu exports or the agent hooks, one row each.
 *
 *   CALL(name, suffix, since, ptds, flags, (params), (args))
 *
 * name    as a program asks cuGetProcAddress for it
 * suffix  of the exported symbol: name##suffix (nothing, _v2, _v3, ...)
 * since   first cudaVersion for which cuGetProcAddress(name) answers with this symbol; the last
 *         row of a name whose `since` is not above the version asked for wins
 * ptds    suffix of the twin whose default stream is the thread's own: name##suffix##ptds
 *         (_ptds for calls without a stream, _ptsz for those with one, or nothing). The twin
 *         appeared in 7.0 (7000) where `since` is older
 * flags   SOFT  softgpu implements it
 *         BOTH  softgpu implements it and the agent hooks it
 *         STUB  softgpu exports it and answers CUDA_ERROR_NOT_SUPPORTED
 *         HSTUB as STUB, and the agent hooks it
 * params  as in a declaration; every call returns CUresult
 * args    the same names, for passing on
 *
 * flags and ptds are single tokens so that a consumer can choose by pasting:
 *
 *   #define HOOK_SOFT(...)
 *   #define HOOK_STUB(...)
 *   #define HOOK_BOTH(...)  MAKE_HOOK(__VA_ARGS__)
 *   #define HOOK_HSTUB(...) MAKE_HOOK(__VA_ARGS__)
 *   #define CALL(name, suffix, since, ptds, flags, params, args) HOOK_##flags(name##suffix, params, args)
 *   CUDA_CALLS(CALL)
 *
 * PTDS_##ptds likewise gives PTDS_, PTDS__ptsz and PTDS__ptds. Define EGPU_CUDA_NO_ALIASES before
 * cuda.h is first included: otherwise names expand to their newest symbol while they pass through
 * macros. Symbols of the 32-bit era (cuMemAlloc without _v2) are left out on purpose: nothing built
 * since CUDA 3.2 asks for them.
 *
 * To recognise what cuGetProcAddress returned, compare addresses with those of the symbols: a driver
 * may answer a name with another symbol than the row says (cuGraphInstantiate with a symbol of
 * cuGraphInstantiateWithFlags), and two names may share one address.
 *
 * The test cuda_calls compares rows with NVIDIA's header where that is installed.
 */
#ifndef EGPU_CUDA_CALLS_H
#define EGPU_CUDA_CALLS_H

#include "egpu/cuda.h"

#ifndef EGPU_CUDA_NO_ALIASES
#error "define EGPU_CUDA_NO_ALIASES before the first include of egpu/cuda.h"
#endif

/* clang-format off */
#define CUDA_CALLS(CALL) \
	CUDA_CALLS_START(CALL) \
	CUDA_CALLS_DEVICE(CALL) \
	CUDA_CALLS_CONTEXT(CALL) \
	CUDA_CALLS_MODULE(CALL) \
	CUDA_CALLS_LIBRARY(CALL) \
	CUDA_CALLS_MEMORY(CALL) \
	CUDA_CALLS_COPY(CALL) \
	CUDA_CALLS_POOL(CALL) \
	CUDA_CALLS_STREAM(CALL) \
	CUDA_CALLS_EVENT(CALL) \
	CUDA_CALLS_LAUNCH(CALL) \
	CUDA_CALLS_GRAPH(CALL) \
	CUDA_CALLS_ARRAY(CALL) \
	CUDA_CALLS_VIRTUAL(CALL)

#define CUDA_CALLS_START(CALL) \
	CALL(cuInit, , 2000, , BOTH, (unsigned int flags), (flags)) \
	CALL(cuDriverGetVersion, , 2020, , SOFT, (int *version), (version)) \
	CALL(cuGetErrorName, , 6000, , SOFT, (CUresult error, const char **name), (error, name)) \
	CALL(cuGetErrorString, , 6000, , SOFT, (CUresult error, const char **text), (error, text)) \
	CALL(cuGetProcAddress, , 11030, , BOTH, (const char *symbol, void **fn, int version, cuuint64_t flags), (symbol, fn, version, flags)) \
	CALL(cuGetProcAddress, _v2, 12000, , BOTH, (const char *symbol, void **fn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status), (symbol, fn, version, flags, status)) \
	CALL(cuGetExportTable, , 3000, , SOFT, (const void **table, const CUuuid *id), (table, id)) \
	CALL(cuProfilerStart, , 4000, , SOFT, (void), ()) \
	CALL(cuProfilerStop, , 4000, , SOFT, (void), ())

#define CUDA_CALLS_DEVICE(CALL) \
	CALL(cuDeviceGet, , 2000, , SOFT, (CUdevice *dev, int ordinal), (dev, ordinal)) \
	CALL(cuDeviceGetCount, , 2000, , SOFT, (int *count), (count)) \
	CALL(cuDeviceGetName, , 2000, , SOFT, (char *name, int len, CUdevice dev), (name, len, dev)) \
	CALL(cuDeviceGetUuid, , 9020, , SOFT, (CUuuid *uuid, CUdevice dev), (uuid, dev)) \
	CALL(cuDeviceGetUuid, _v2, 11040, , SOFT, (CUuuid *uuid, CUdevice dev), (uuid, dev)) \
	CALL(cuDeviceTotalMem, _v2, 3020, , SOFT, (size_t *bytes, CUdevice dev), (bytes, dev)) \
	CALL(cuDeviceGetAttribute, , 2000, , SOFT, (int *value, CUdevice_attribute attr, CUdevice dev), (value, attr, dev)) \
	CALL(cuDeviceGetProperties, , 2000, , SOFT, (CUdevprop *prop, CUdevice dev), (prop, dev)) \
	CALL(cuDeviceComputeCapability, , 2000, , SOFT, (int *major, int *minor, CUdevice dev), (major, minor, dev)) \
	CALL(cuDeviceGetByPCIBusId, , 4010, , SOFT, (CUdevice *dev, const char *bus_id), (dev, bus_id)) \
	CALL(cuDeviceGetPCIBusId, , 4010, , SOFT, (char *bus_id, int len, CUdevice dev), (bus_id, len, dev)) \
	CALL(cuDeviceCanAccessPeer, , 4000, , SOFT, (int *can, CUdevice dev, CUdevice peer), (can, dev, peer)) \
	CALL(cuDeviceGetP2PAttribute, , 8000, , SOFT, (int *value, CUdevice_P2PAttribute attr, CUdevice src, CUdevice dst), (value, attr, src, dst)) \
	CALL(cuDeviceGetExecAffinitySupport, , 11040, , SOFT, (int *value, CUexecAffinityType type, CUdevice dev), (value, type, dev)) \
	CALL(cuDevicePrimaryCtxRetain, , 7000, , SOFT, (CUcontext *ctx, CUdevice dev), (ctx, dev)) \
	CALL(cuDevicePrimaryCtxRelease, , 7000, , BOTH, (CUdevice dev), (dev)) \
	CALL(cuDevicePrimaryCtxRelease, _v2, 11000, , BOTH, (CUdevice dev), (dev)) \
	CALL(cuDevicePrimaryCtxSetFlags, , 7000, , SOFT, (CUdevice dev, unsigned int flags), (dev, flags)) \
	CALL(cuDevicePrimaryCtxSetFlags, _v2, 11000, , SOFT, (CUdevice dev, unsigned int flags), (dev, flags)) \
	CALL(cuDevicePrimaryCtxGetState, , 7000, , SOFT, (CUdevice dev, unsigned int *flags, int *active), (dev, flags, active)) \
	CALL(cuDevicePrimaryCtxReset, , 7000, , BOTH, (CUdevice dev), (dev)) \
	CALL(cuDevicePrimaryCtxReset, _v2, 11000, , BOTH, (CUdevice dev), (dev))

#define CUDA_CALLS_CONTEXT(CALL) \
	CALL(cuCtxCreate, _v2, 3020, , SOFT, (CUcontext *ctx, unsigned int flags, CUdevice dev), (ctx, flags, dev)) \
	CALL(cuCtxCreate, _v3, 11040, , SOFT, (CUcontext *ctx, CUexecAffinityParam *affinity, int n, unsigned int flags, CUdevice dev), (ctx, affinity, n, flags, dev)) \
	CALL(cuCtxCreate, _v4, 12050, , SOFT, (CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev), (ctx, params, flags, dev)) \
	CALL(cuCtxDestroy, , 2000, , BOTH, (CUcontext ctx), (ctx)) \
	CALL(cuCtxDestroy, _v2, 4000, , BOTH, (CUcontext ctx), (ctx)) \
	CALL(cuCtxAttach, , 2000, , SOFT, (CUcontext *ctx, unsigned int flags), (ctx, flags)) \
	CALL(cuCtxDetach, , 2000, , BOTH, (CUcontext ctx), (ctx)) \
	CALL(cuCtxPushCurrent, _v2, 4000, , SOFT, (CUcontext ctx), (ctx)) \
	CALL(cuCtxPopCurrent, _v2, 4000, , SOFT, (CUcontext *ctx), (ctx)) \
	CALL(cuCtxSetCurrent, , 4000, , SOFT, (CUcontext ctx), (ctx)) \
	CALL(cuCtxGetCurrent, , 4000, , SOFT, (CUcontext *ctx), (ctx)) \
	CALL(cuCtxGetDevice, , 2000, , SOFT, (CUdevice *dev), (dev)) \
	CALL(cuCtxGetDevice, _v2, 13000, , SOFT, (CUdevice *dev, CUcontext ctx), (dev, ctx)) \
	CALL(cuCtxGetFlags, , 7000, , SOFT, (unsigned int *flags), (flags)) \
	CALL(cuCtxSetFlags, , 12010, , SOFT, (unsigned int flags), (flags)) \
	CALL(cuCtxGetId, , 12000, , SOFT, (CUcontext ctx, unsigned long long *id), (ctx, id)) \
	CALL(cuCtxSynchronize, , 2000, , BOTH, (void), ()) \
	CALL(cuCtxSynchronize, _v2, 13000, , BOTH, (CUcontext ctx), (ctx)) \
	CALL(cuCtxSetLimit, , 3010, , SOFT, (CUlimit limit, size_t value), (limit, value)) \
	CALL(cuCtxGetLimit, , 3010, , SOFT, (size_t *value, CUlimit limit), (value, limit)) \
	CALL(cuCtxGetCacheConfig, , 3020, , SOFT, (CUfunc_cache *config), (config)) \
	CALL(cuCtxSetCacheConfig, , 3020, , SOFT, (CUfunc_cache config), (config)) \
	CALL(cuCtxGetSharedMemConfig, , 4020, , SOFT, (CUsharedconfig *config), (config)) \
	CALL(cuCtxSetSharedMemConfig, , 4020, , SOFT, (CUsharedconfig config), (config)) \
	CALL(cuCtxGetApiVersion, , 3020, , SOFT, (CUcontext ctx, unsigned int *version), (ctx, version)) \
	CALL(cuCtxGetStreamPriorityRange, , 5050, , SOFT, (int *least, int *greatest), (least, greatest)) \
	CALL(cuCtxResetPersistingL2Cache, , 11000, , SOFT, (void), ()) \
	CALL(cuCtxGetExecAffinity, , 11040, , SOFT, (CUexecAffinityParam *affinity, CUexecAffinityType type), (affinity, type)) \
	CALL(cuCtxEnablePeerAccess, , 4000, , SOFT, (CUcontext peer, unsigned int flags), (peer, flags)) \
	CALL(cuCtxDisablePeerAccess, , 4000, , SOFT, (CUcontext peer), (peer))

#define CUDA_CALLS_MODULE(CALL) \
	CALL(cuModuleLoad, , 2000, , BOTH, (CUmodule *mod, const char *path), (mod, path)) \
	CALL(cuModuleLoadData, , 2000, , BOTH, (CUmodule *mod, const void *image), (mod, image)) \
	CALL(cuModuleLoadDataEx, , 2010, , BOTH, (CUmodule *mod, const void *image, unsigned int n, CUjit_option *options, void **values), (mod, image, n, options, values)) \
	CALL(cuModuleLoadFatBinary, , 2000, , BOTH, (CUmodule *mod, const void *fatbin), (mod, fatbin)) \
	CALL(cuModuleUnload, , 2000, , BOTH, (CUmodule mod), (mod)) \
	CALL(cuModuleGetLoadingMode, , 11070, , SOFT, (CUmoduleLoadingMode *mode), (mode)) \
	CALL(cuModuleGetFunction, , 2000, , BOTH, (CUfunction *fn, CUmodule mod, const char *name), (fn, mod, name)) \
	CALL(cuModuleGetFunctionCount, , 12040, , SOFT, (unsigned int *count, CUmodule mod), (count, mod)) \
	CALL(cuModuleEnumerateFunctions, , 12040, , BOTH, (CUfunction *fns, unsigned int n, CUmodule mod), (fns, n, mod)) \
	CALL(cuModuleGetGlobal, _v2, 3020, , SOFT, (CUdeviceptr *addr, size_t *bytes, CUmodule mod, const char *name), (addr, bytes, mod, name)) \
	CALL(cuModuleGetTexRef, , 2000, , STUB, (CUtexref *tex, CUmodule mod, const char *name), (tex, mod, name)) \
	CALL(cuModuleGetSurfRef, , 3000, , STUB, (CUsurfref *surf, CUmodule mod, const char *name), (surf, mod, name)) \
	CALL(cuLinkCreate, _v2, 6050, , BOTH, (unsigned int n, CUjit_option *options, void **values, CUlinkState *state), (n, options, values, state)) \
	CALL(cuLinkAddData, _v2, 6050, , BOTH, (CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name, unsigned int n, CUjit_option *options, void **values), (state, type, data, bytes, name, n, options, values)) \
	CALL(cuLinkAddFile, _v2, 6050, , BOTH, (CUlinkState state, CUjitInputType type, const char *path, unsigned int n, CUjit_option *options, void **values), (state, type, path, n, options, values)) \
	CALL(cuLinkComplete, , 5050, , BOTH, (CUlinkState state, void **cubin, size_t *bytes), (state, cubin, bytes)) \
	CALL(cuLinkDestroy, , 5050, , BOTH, (CUlinkState state), (state)) \
	CALL(cuFuncGetAttribute, , 2020, , SOFT, (int *value, CUfunction_attribute attr, CUfunction fn), (value, attr, fn)) \
	CALL(cuFuncSetAttribute, , 9000, , BOTH, (CUfunction fn, CUfunction_attribute attr, int value), (fn, attr, value)) \
	CALL(cuFuncSetCacheConfig, , 3000, , BOTH, (CUfunction fn, CUfunc_cache config), (fn, config)) \
	CALL(cuFuncSetSharedMemConfig, , 4020, , BOTH, (CUfunction fn, CUsharedconfig config), (fn, config)) \
	CALL(cuFuncGetModule, , 11000, , SOFT, (CUmodule *mod, CUfunction fn), (mod, fn)) \
	CALL(cuFuncGetName, , 12030, , SOFT, (const char **name, CUfunction fn), (name, fn)) \
	CALL(cuFuncGetParamInfo, , 12040, , SOFT, (CUfunction fn, size_t index, size_t *offset, size_t *bytes), (fn, index, offset, bytes)) \
	CALL(cuFuncIsLoaded, , 12040, , SOFT, (CUfunctionLoadingState *state, CUfunction fn), (state, fn)) \
	CALL(cuFuncLoad, , 12040, , SOFT, (CUfunction fn), (fn)) \
	CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, , 6050, , SOFT, (int *blocks, CUfunction fn, int threads, size_t shared), (blocks, fn, threads, shared)) \
	CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, , 7000, , SOFT, (int *blocks, CUfunction fn, int threads, size_t shared, unsigned int flags), (blocks, fn, threads, shared, flags)) \
	CALL(cuOccupancyMaxPotentialBlockSize, , 6050, , SOFT, (int *grid, int *threads, CUfunction fn, CUoccupancyB2DSize shared_of, size_t shared, int limit), (grid, threads, fn, shared_of, shared, limit)) \
	CALL(cuOccupancyMaxPotentialBlockSizeWithFlags, , 7000, , SOFT, (int *grid, int *threads, CUfunction fn, CUoccupancyB2DSize shared_of, size_t shared, int limit, unsigned int flags), (grid, threads, fn, shared_of, shared, limit, flags)) \
	CALL(cuOccupancyAvailableDynamicSMemPerBlock, , 10020, , SOFT, (size_t *shared, CUfunction fn, int blocks, int threads), (shared, fn, blocks, threads)) \
	CALL(cuOccupancyMaxPotentialClusterSize, , 11070, , SOFT, (int *blocks, CUfunction fn, const CUlaunchConfig *config), (blocks, fn, config)) \
	CALL(cuOccupancyMaxActiveClusters, , 11070, , SOFT, (int *clusters, CUfunction fn, const CUlaunchConfig *config), (clusters, fn, config))

#define CUDA_CALLS_LIBRARY(CALL) \
	CALL(cuLibraryLoadData, , 12000, , BOTH, (CUlibrary *lib, const void *code, CUjit_option *jit, void **jit_values, unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n), (lib, code, jit, jit_values, n_jit, options, values, n)) \
	CALL(cuLibraryLoadFromFile, , 12000, , BOTH, (CUlibrary *lib, const char *path, CUjit_option *jit, void **jit_values, unsigned int n_jit, CUlibraryOption *options, void **values, unsigned int n), (lib, path, jit, jit_values, n_jit, options, values, n)) \
	CALL(cuLibraryUnload, , 12000, , BOTH, (CUlibrary lib), (lib)) \
	CALL(cuLibraryGetKernel, , 12000, , BOTH, (CUkernel *kernel, CUlibrary lib, const char *name), (kernel, lib, name)) \
	CALL(cuLibraryGetKernelCount, , 12040, , SOFT, (unsigned int *count, CUlibrary lib), (count, lib)) \
	CALL(cuLibraryEnumerateKernels, , 12040, , BOTH, (CUkernel *kernels, unsigned int n, CUlibrary lib), (kernels, n, lib)) \
	CALL(cuLibraryGetModule, , 12000, , BOTH, (CUmodule *mod, CUlibrary lib), (mod, lib)) \
	CALL(cuLibraryGetGlobal, , 12000, , SOFT, (CUdeviceptr *addr, size_t *bytes, CUlibrary lib, const char *name), (addr, bytes, lib, name)) \
	CALL(cuLibraryGetManaged, , 12000, , SOFT, (CUdeviceptr *addr, size_t *bytes, CUlibrary lib, const char *name), (addr, bytes, lib, name)) \
	CALL(cuLibraryGetUnifiedFunction, , 12000, , STUB, (void **fn, CUlibrary lib, const char *name), (fn, lib, name)) \
	CALL(cuKernelGetFunction, , 12000, , BOTH, (CUfunction *fn, CUkernel kernel), (fn, kernel)) \
	CALL(cuKernelGetLibrary, , 12050, , SOFT, (CUlibrary *lib, CUkernel kernel), (lib, kernel)) \
	CALL(cuKernelGetAttribute, , 12000, , SOFT, (int *value, CUfunction_attribute attr, CUkernel kernel, CUdevice dev), (value, attr, kernel, dev)) \
	CALL(cuKernelSetAttribute, , 12000, , BOTH, (CUfunction_attribute attr, int value, CUkernel kernel, CUdevice dev), (attr, value, kernel, dev)) \
	CALL(cuKernelSetCacheConfig, , 12000, , BOTH, (CUkernel kernel, CUfunc_cache config, CUdevice dev), (kernel, config, dev)) \
	CALL(cuKernelGetName, , 12030, , SOFT, (const char **name, CUkernel kernel), (name, kernel)) \
	CALL(cuKernelGetParamInfo, , 12040, , SOFT, (CUkernel kernel, size_t index, size_t *offset, size_t *bytes), (kernel, index, offset, bytes))

#define CUDA_CALLS_MEMORY(CALL) \
	CALL(cuMemGetInfo, _v2, 3020, , SOFT, (size_t *free_bytes, size_t *total), (free_bytes, total)) \
	CALL(cuMemAlloc, _v2, 3020, , SOFT, (CUdeviceptr *addr, size_t bytes), (addr, bytes)) \
	CALL(cuMemAllocPitch, _v2, 3020, , SOFT, (CUdeviceptr *addr, size_t *pitch, size_t width, size_t height, unsigned int element), (addr, pitch, width, height, element)) \
	CALL(cuMemFree, _v2, 3020, , SOFT, (CUdeviceptr addr), (addr)) \
	CALL(cuMemGetAddressRange, _v2, 3020, , SOFT, (CUdeviceptr *base, size_t *bytes, CUdeviceptr addr), (base, bytes, addr)) \
	CALL(cuMemAllocHost, _v2, 3020, , SOFT, (void **host, size_t bytes), (host, bytes)) \
	CALL(cuMemFreeHost, , 2000, , SOFT, (void *host), (host)) \
	CALL(cuMemHostAlloc, , 2020, , SOFT, (void **host, size_t bytes, unsigned int flags), (host, bytes, flags)) \
	CALL(cuMemHostGetDevicePointer, _v2, 3020, , SOFT, (CUdeviceptr *addr, void *host, unsigned int flags), (addr, host, flags)) \
	CALL(cuMemHostGetFlags, , 2030, , SOFT, (unsigned int *flags, void *host), (flags, host)) \
	CALL(cuMemHostRegister, _v2, 6050, , SOFT, (void *host, size_t bytes, unsigned int flags), (host, bytes, flags)) \
	CALL(cuMemHostUnregister, , 4000, , SOFT, (void *host), (host)) \
	CALL(cuMemAllocManaged, , 6000, , SOFT, (CUdeviceptr *addr, size_t bytes, unsigned int flags), (addr, bytes, flags)) \
	CALL(cuMemAdvise, , 8000, , SOFT, (CUdeviceptr addr, size_t bytes, CUmem_advise advice, CUdevice dev), (addr, bytes, advice, dev)) \
	CALL(cuMemAdvise, _v2, 12020, , SOFT, (CUdeviceptr addr, size_t bytes, CUmem_advise advice, CUmemLocation location), (addr, bytes, advice, location)) \
	CALL(cuMemPrefetchAsync, , 8000, _ptsz, SOFT, (CUdeviceptr addr, size_t bytes, CUdevice dev, CUstream stream), (addr, bytes, dev, stream)) \
	CALL(cuMemPrefetchAsync, _v2, 12020, _ptsz, SOFT, (CUdeviceptr addr, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream), (addr, bytes, location, flags, stream)) \
	CALL(cuPointerGetAttribute, , 4000, , SOFT, (void *data, CUpointer_attribute attr, CUdeviceptr addr), (data, attr, addr)) \
	CALL(cuPointerSetAttribute, , 6000, , SOFT, (const void *value, CUpointer_attribute attr, CUdeviceptr addr), (value, attr, addr)) \
	CALL(cuPointerGetAttributes, , 7000, , SOFT, (unsigned int n, CUpointer_attribute *attrs, void **data, CUdeviceptr addr), (n, attrs, data, addr)) \
	CALL(cuMemsetD8, _v2, 3020, _ptds, SOFT, (CUdeviceptr dst, unsigned char value, size_t n), (dst, value, n)) \
	CALL(cuMemsetD16, _v2, 3020, _ptds, SOFT, (CUdeviceptr dst, unsigned short value, size_t n), (dst, value, n)) \
	CALL(cuMemsetD32, _v2, 3020, _ptds, SOFT, (CUdeviceptr dst, unsigned int value, size_t n), (dst, value, n)) \
	CALL(cuMemsetD2D8, _v2, 3020, _ptds, SOFT, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height), (dst, pitch, value, width, height)) \
	CALL(cuMemsetD2D16, _v2, 3020, _ptds, SOFT, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height), (dst, pitch, value, width, height)) \
	CALL(cuMemsetD2D32, _v2, 3020, _ptds, SOFT, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height), (dst, pitch, value, width, height)) \
	CALL(cuMemsetD8Async, , 3020, _ptsz, SOFT, (CUdeviceptr dst, unsigned char value, size_t n, CUstream stream), (dst, value, n, stream)) \
	CALL(cuMemsetD16Async, , 3020, _ptsz, SOFT, (CUdeviceptr dst, unsigned short value, size_t n, CUstream stream), (dst, value, n, stream)) \
	CALL(cuMemsetD32Async, , 3020, _ptsz, SOFT, (CUdeviceptr dst, unsigned int value, size_t n, CUstream stream), (dst, value, n, stream)) \
	CALL(cuMemsetD2D8Async, , 3020, _ptsz, SOFT, (CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), (dst, pitch, value, width, height, stream)) \
	CALL(cuMemsetD2D16Async, , 3020, _ptsz, SOFT, (CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), (dst, pitch, value, width, height, stream)) \
	CALL(cuMemsetD2D32Async, , 3020, _ptsz, SOFT, (CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream), (dst, pitch, value, width, height, stream))

#define CUDA_CALLS_COPY(CALL) \
	CALL(cuMemcpy, , 4000, _ptds, BOTH, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes)) \
	CALL(cuMemcpyPeer, , 4000, _ptds, BOTH, (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes), (dst, dst_ctx, src, src_ctx, bytes)) \
	CALL(cuMemcpyHtoD, _v2, 3020, _ptds, BOTH, (CUdeviceptr dst, const void *src, size_t bytes), (dst, src, bytes)) \
	CALL(cuMemcpyDtoH, _v2, 3020, _ptds, BOTH, (void *dst, CUdeviceptr src, size_t bytes), (dst, src, bytes)) \
	CALL(cuMemcpyDtoD, _v2, 3020, _ptds, BOTH, (CUdeviceptr dst, CUdeviceptr src, size_t bytes), (dst, src, bytes)) \
	CALL(cuMemcpy2D, _v2, 3020, _ptds, BOTH, (const CUDA_MEMCPY2D *copy), (copy)) \
	CALL(cuMemcpy2DUnaligned, _v2, 3020, _ptds, BOTH, (const CUDA_MEMCPY2D *copy), (copy)) \
	CALL(cuMemcpy3D, _v2, 3020, _ptds, BOTH, (const CUDA_MEMCPY3D *copy), (copy)) \
	CALL(cuMemcpy3DPeer, , 4000, _ptds, BOTH, (const CUDA_MEMCPY3D_PEER *copy), (copy)) \
	CALL(cuMemcpyAsync, , 4000, _ptsz, SOFT, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), (dst, src, bytes, stream)) \
	CALL(cuMemcpyPeerAsync, , 4000, _ptsz, SOFT, (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes, CUstream stream), (dst, dst_ctx, src, src_ctx, bytes, stream)) \
	CALL(cuMemcpyHtoDAsync, _v2, 3020, _ptsz, SOFT, (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream), (dst, src, bytes, stream)) \
	CALL(cuMemcpyDtoHAsync, _v2, 3020, _ptsz, SOFT, (void *dst, CUdeviceptr src, size_t bytes, CUstream stream), (dst, src, bytes, stream)) \
	CALL(cuMemcpyDtoDAsync, _v2, 3020, _ptsz, SOFT, (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream), (dst, src, bytes, stream)) \
	CALL(cuMemcpy2DAsync, _v2, 3020, _ptsz, SOFT, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream)) \
	CALL(cuMemcpy3DAsync, _v2, 3020, _ptsz, SOFT, (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream)) \
	CALL(cuMemcpy3DPeerAsync, , 4000, _ptsz, SOFT, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream))

#define CUDA_CALLS_POOL(CALL) \
	CALL(cuMemAllocAsync, , 11020, _ptsz, SOFT, (CUdeviceptr *addr, size_t bytes, CUstream stream), (addr, bytes, stream)) \
	CALL(cuMemAllocFromPoolAsync, , 11020, _ptsz, SOFT, (CUdeviceptr *addr, size_t bytes, CUmemoryPool pool, CUstream stream), (addr, bytes, pool, stream)) \
	CALL(cuMemFreeAsync, , 11020, _ptsz, SOFT, (CUdeviceptr addr, CUstream stream), (addr, stream)) \
	CALL(cuDeviceGetDefaultMemPool, , 11020, , SOFT, (CUmemoryPool *pool, CUdevice dev), (pool, dev)) \
	CALL(cuDeviceGetMemPool, , 11020, , SOFT, (CUmemoryPool *pool, CUdevice dev), (pool, dev)) \
	CALL(cuDeviceSetMemPool, , 11020, , SOFT, (CUdevice dev, CUmemoryPool pool), (dev, pool)) \
	CALL(cuMemPoolCreate, , 11020, , SOFT, (CUmemoryPool *pool, const CUmemPoolProps *props), (pool, props)) \
	CALL(cuMemPoolDestroy, , 11020, , SOFT, (CUmemoryPool pool), (pool)) \
	CALL(cuMemPoolTrimTo, , 11020, , SOFT, (CUmemoryPool pool, size_t keep), (pool, keep)) \
	CALL(cuMemPoolSetAttribute, , 11020, , SOFT, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), (pool, attr, value)) \
	CALL(cuMemPoolGetAttribute, , 11020, , SOFT, (CUmemoryPool pool, CUmemPool_attribute attr, void *value), (pool, attr, value)) \
	CALL(cuMemPoolSetAccess, , 11020, , SOFT, (CUmemoryPool pool, const CUmemAccessDesc *descs, size_t n), (pool, descs, n)) \
	CALL(cuMemPoolGetAccess, , 11020, , SOFT, (CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location), (flags, pool, location))

#define CUDA_CALLS_STREAM(CALL) \
	CALL(cuStreamCreate, , 2000, , SOFT, (CUstream *stream, unsigned int flags), (stream, flags)) \
	CALL(cuStreamCreateWithPriority, , 5050, , SOFT, (CUstream *stream, unsigned int flags, int priority), (stream, flags, priority)) \
	CALL(cuStreamDestroy, , 2000, , BOTH, (CUstream stream), (stream)) \
	CALL(cuStreamDestroy, _v2, 4000, , BOTH, (CUstream stream), (stream)) \
	CALL(cuStreamGetPriority, , 5050, _ptsz, SOFT, (CUstream stream, int *priority), (stream, priority)) \
	CALL(cuStreamGetFlags, , 5050, _ptsz, SOFT, (CUstream stream, unsigned int *flags), (stream, flags)) \
	CALL(cuStreamGetId, , 12000, _ptsz, SOFT, (CUstream stream, unsigned long long *id), (stream, id)) \
	CALL(cuStreamGetCtx, , 9020, _ptsz, SOFT, (CUstream stream, CUcontext *ctx), (stream, ctx)) \
	CALL(cuStreamGetDevice, , 12080, _ptsz, SOFT, (CUstream stream, CUdevice *dev), (stream, dev)) \
	CALL(cuStreamWaitEvent, , 3020, _ptsz, SOFT, (CUstream stream, CUevent event, unsigned int flags), (stream, event, flags)) \
	CALL(cuStreamAddCallback, , 5000, _ptsz, BOTH, (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags), (stream, callback, data, flags)) \
	CALL(cuStreamAttachMemAsync, , 6000, _ptsz, SOFT, (CUstream stream, CUdeviceptr addr, size_t bytes, unsigned int flags), (stream, addr, bytes, flags)) \
	CALL(cuStreamQuery, , 2000, _ptsz, BOTH, (CUstream stream), (stream)) \
	CALL(cuStreamSynchronize, , 2000, _ptsz, BOTH, (CUstream stream), (stream)) \
	CALL(cuStreamCopyAttributes, , 11000, _ptsz, SOFT, (CUstream dst, CUstream src), (dst, src)) \
	CALL(cuStreamGetAttribute, , 11000, _ptsz, SOFT, (CUstream stream, CUstreamAttrID attr, CUstreamAttrValue *value), (stream, attr, value)) \
	CALL(cuStreamSetAttribute, , 11000, _ptsz, SOFT, (CUstream stream, CUstreamAttrID attr, const CUstreamAttrValue *value), (stream, attr, value)) \
	CALL(cuStreamWaitValue32, , 8000, _ptsz, BOTH, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamWaitValue32, _v2, 11070, _ptsz, BOTH, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamWaitValue64, , 9000, _ptsz, BOTH, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamWaitValue64, _v2, 11070, _ptsz, BOTH, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamWriteValue32, , 8000, _ptsz, SOFT, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamWriteValue32, _v2, 11070, _ptsz, SOFT, (CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamWriteValue64, , 9000, _ptsz, SOFT, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamWriteValue64, _v2, 11070, _ptsz, SOFT, (CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags), (stream, addr, value, flags)) \
	CALL(cuStreamBatchMemOp, , 8000, _ptsz, BOTH, (CUstream stream, unsigned int n, CUstreamBatchMemOpParams *ops, unsigned int flags), (stream, n, ops, flags)) \
	CALL(cuStreamBatchMemOp, _v2, 11070, _ptsz, BOTH, (CUstream stream, unsigned int n, CUstreamBatchMemOpParams *ops, unsigned int flags), (stream, n, ops, flags)) \
	CALL(cuThreadExchangeStreamCaptureMode, , 10010, , SOFT, (CUstreamCaptureMode *mode), (mode)) \
	CALL(cuStreamBeginCapture, , 10000, _ptsz, BOTH, (CUstream stream), (stream)) \
	CALL(cuStreamBeginCapture, _v2, 10010, _ptsz, BOTH, (CUstream stream, CUstreamCaptureMode mode), (stream, mode)) \
	CALL(cuStreamBeginCaptureToGraph, , 12030, _ptsz, BOTH, (CUstream stream, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode), (stream, graph, deps, edges, n, mode)) \
	CALL(cuStreamEndCapture, , 10000, _ptsz, BOTH, (CUstream stream, CUgraph *graph), (stream, graph)) \
	CALL(cuStreamIsCapturing, , 10000, _ptsz, SOFT, (CUstream stream, CUstreamCaptureStatus *status), (stream, status)) \
	CALL(cuStreamGetCaptureInfo, , 10010, _ptsz, SOFT, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id), (stream, status, id)) \
	CALL(cuStreamGetCaptureInfo, _v2, 11030, _ptsz, SOFT, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, size_t *n), (stream, status, id, graph, deps, n)) \
	CALL(cuStreamGetCaptureInfo, _v3, 12030, _ptsz, SOFT, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *n), (stream, status, id, graph, deps, edges, n)) \
	CALL(cuStreamUpdateCaptureDependencies, , 11030, _ptsz, SOFT, (CUstream stream, CUgraphNode *deps, size_t n, unsigned int flags), (stream, deps, n, flags)) \
	CALL(cuStreamUpdateCaptureDependencies, _v2, 12030, _ptsz, SOFT, (CUstream stream, CUgraphNode *deps, const CUgraphEdgeData *edges, size_t n, unsigned int flags), (stream, deps, edges, n, flags))

#define CUDA_CALLS_EVENT(CALL) \
	CALL(cuEventCreate, , 2000, , SOFT, (CUevent *event, unsigned int flags), (event, flags)) \
	CALL(cuEventRecord, , 2000, _ptsz, SOFT, (CUevent event, CUstream stream), (event, stream)) \
	CALL(cuEventRecordWithFlags, , 11010, _ptsz, SOFT, (CUevent event, CUstream stream, unsigned int flags), (event, stream, flags)) \
	CALL(cuEventQuery, , 2000, , BOTH, (CUevent event), (event)) \
	CALL(cuEventSynchronize, , 2000, , BOTH, (CUevent event), (event)) \
	CALL(cuEventDestroy, , 2000, , SOFT, (CUevent event), (event)) \
	CALL(cuEventDestroy, _v2, 4000, , SOFT, (CUevent event), (event)) \
	CALL(cuEventElapsedTime, , 2000, , SOFT, (float *ms, CUevent start, CUevent end), (ms, start, end)) \
	CALL(cuEventElapsedTime, _v2, 12080, , SOFT, (float *ms, CUevent start, CUevent end), (ms, start, end))

#define CUDA_CALLS_LAUNCH(CALL) \
	CALL(cuLaunchKernel, , 4000, _ptsz, BOTH, (CUfunction fn, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **params, void **extra), (fn, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params, extra)) \
	CALL(cuLaunchKernelEx, , 11060, _ptsz, BOTH, (const CUlaunchConfig *config, CUfunction fn, void **params, void **extra), (config, fn, params, extra)) \
	CALL(cuLaunchCooperativeKernel, , 9000, _ptsz, BOTH, (CUfunction fn, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared, CUstream stream, void **params), (fn, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, params)) \
	CALL(cuLaunchCooperativeKernelMultiDevice, , 9000, , HSTUB, (CUDA_LAUNCH_PARAMS *launches, unsigned int n, unsigned int flags), (launches, n, flags)) \
	CALL(cuLaunchHostFunc, , 10000, _ptsz, BOTH, (CUstream stream, CUhostFn fn, void *data), (stream, fn, data)) \
	CALL(cuFuncSetBlockShape, , 2000, , BOTH, (CUfunction fn, int x, int y, int z), (fn, x, y, z)) \
	CALL(cuFuncSetSharedSize, , 2000, , BOTH, (CUfunction fn, unsigned int bytes), (fn, bytes)) \
	CALL(cuParamSetSize, , 2000, , BOTH, (CUfunction fn, unsigned int bytes), (fn, bytes)) \
	CALL(cuParamSeti, , 2000, , BOTH, (CUfunction fn, int offset, unsigned int value), (fn, offset, value)) \
	CALL(cuParamSetf, , 2000, , BOTH, (CUfunction fn, int offset, float value), (fn, offset, value)) \
	CALL(cuParamSetv, , 2000, , BOTH, (CUfunction fn, int offset, void *data, unsigned int bytes), (fn, offset, data, bytes)) \
	CALL(cuLaunch, , 2000, , BOTH, (CUfunction fn), (fn)) \
	CALL(cuLaunchGrid, , 2000, , BOTH, (CUfunction fn, int width, int height), (fn, width, height)) \
	CALL(cuLaunchGridAsync, , 2000, , BOTH, (CUfunction fn, int width, int height, CUstream stream), (fn, width, height, stream))

#define CUDA_CALLS_GRAPH(CALL) \
	CALL(cuGraphCreate, , 10000, , SOFT, (CUgraph *graph, unsigned int flags), (graph, flags)) \
	CALL(cuGraphDestroy, , 10000, , SOFT, (CUgraph graph), (graph)) \
	CALL(cuGraphClone, , 10000, , SOFT, (CUgraph *clone, CUgraph original), (clone, original)) \
	CALL(cuGraphAddKernelNode, , 10000, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_KERNEL_NODE_PARAMS_v1 *params), (node, graph, deps, n, params)) \
	CALL(cuGraphAddKernelNode, _v2, 12000, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_KERNEL_NODE_PARAMS *params), (node, graph, deps, n, params)) \
	CALL(cuGraphKernelNodeGetParams, , 10000, , SOFT, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params), (node, params)) \
	CALL(cuGraphKernelNodeGetParams, _v2, 12000, , SOFT, (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params), (node, params)) \
	CALL(cuGraphKernelNodeSetParams, , 10000, , SOFT, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params), (node, params)) \
	CALL(cuGraphKernelNodeSetParams, _v2, 12000, , SOFT, (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (node, params)) \
	CALL(cuGraphKernelNodeSetAttribute, , 11000, , SOFT, (CUgraphNode node, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value), (node, attr, value)) \
	CALL(cuGraphKernelNodeGetAttribute, , 11000, , SOFT, (CUgraphNode node, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value), (node, attr, value)) \
	CALL(cuGraphKernelNodeCopyAttributes, , 11000, , SOFT, (CUgraphNode dst, CUgraphNode src), (dst, src)) \
	CALL(cuGraphAddMemcpyNode, , 10000, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_MEMCPY3D *copy, CUcontext ctx), (node, graph, deps, n, copy, ctx)) \
	CALL(cuGraphAddChildGraphNode, , 10000, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUgraph child), (node, graph, deps, n, child)) \
	CALL(cuGraphAddEmptyNode, , 10000, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n), (node, graph, deps, n)) \
	CALL(cuGraphAddNode, , 12020, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUgraphNodeParams *params), (node, graph, deps, n, params)) \
	CALL(cuGraphAddNode, _v2, 12030, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params), (node, graph, deps, edges, n, params)) \
	CALL(cuGraphNodeSetParams, , 12020, , SOFT, (CUgraphNode node, CUgraphNodeParams *params), (node, params)) \
	CALL(cuGraphAddDependencies, , 10000, , SOFT, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n), (graph, from, to, n)) \
	CALL(cuGraphAddDependencies, _v2, 12030, , SOFT, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t n), (graph, from, to, edges, n)) \
	CALL(cuGraphGetNodes, , 10000, , SOFT, (CUgraph graph, CUgraphNode *nodes, size_t *n), (graph, nodes, n)) \
	CALL(cuGraphGetRootNodes, , 10000, , SOFT, (CUgraph graph, CUgraphNode *nodes, size_t *n), (graph, nodes, n)) \
	CALL(cuGraphDestroyNode, , 10000, , SOFT, (CUgraphNode node), (node)) \
	CALL(cuGraphInstantiate, , 10000, , BOTH, (CUgraphExec *exec, CUgraph graph, CUgraphNode *bad_node, char *log, size_t log_bytes), (exec, graph, bad_node, log, log_bytes)) \
	CALL(cuGraphInstantiate, _v2, 11000, , BOTH, (CUgraphExec *exec, CUgraph graph, CUgraphNode *bad_node, char *log, size_t log_bytes), (exec, graph, bad_node, log, log_bytes)) \
	CALL(cuGraphInstantiateWithFlags, , 11040, , BOTH, (CUgraphExec *exec, CUgraph graph, unsigned long long flags), (exec, graph, flags)) \
	CALL(cuGraphInstantiateWithParams, , 12000, _ptsz, BOTH, (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params), (exec, graph, params)) \
	CALL(cuGraphExecKernelNodeSetParams, , 10010, , BOTH, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params), (exec, node, params)) \
	CALL(cuGraphExecKernelNodeSetParams, _v2, 12000, , BOTH, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params), (exec, node, params)) \
	CALL(cuGraphExecNodeSetParams, , 12020, , BOTH, (CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params), (exec, node, params)) \
	CALL(cuGraphExecUpdate, , 10020, , BOTH, (CUgraphExec exec, CUgraph graph, CUgraphNode *bad_node, CUgraphExecUpdateResult *result), (exec, graph, bad_node, result)) \
	CALL(cuGraphExecUpdate, _v2, 12000, , BOTH, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result), (exec, graph, result)) \
	CALL(cuGraphExecDestroy, , 10000, , BOTH, (CUgraphExec exec), (exec)) \
	CALL(cuGraphUpload, , 11010, _ptsz, SOFT, (CUgraphExec exec, CUstream stream), (exec, stream)) \
	CALL(cuGraphLaunch, , 10000, _ptsz, BOTH, (CUgraphExec exec, CUstream stream), (exec, stream)) \
	CALL(cuGraphAddMemsetNode, , 10000, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx), (node, graph, deps, n, params, ctx)) \
	CALL(cuGraphAddHostNode, , 10000, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, const CUDA_HOST_NODE_PARAMS *params), (node, graph, deps, n, params)) \
	CALL(cuGraphAddEventRecordNode, , 11010, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event), (node, graph, deps, n, event)) \
	CALL(cuGraphAddEventWaitNode, , 11010, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event), (node, graph, deps, n, event)) \
	CALL(cuGraphAddMemAllocNode, , 11040, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *params), (node, graph, deps, n, params)) \
	CALL(cuGraphConditionalHandleCreate, , 12030, , SOFT, (CUgraphConditionalHandle *handle, CUgraph graph, CUcontext ctx, unsigned int value, unsigned int flags), (handle, graph, ctx, value, flags)) \
	CALL(cuGraphAddMemFreeNode, , 11040, , SOFT, (CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUdeviceptr addr), (node, graph, deps, n, addr)) \
	CALL(cuGraphMemcpyNodeGetParams, , 10000, , SOFT, (CUgraphNode node, CUDA_MEMCPY3D *params), (node, params)) \
	CALL(cuGraphMemcpyNodeSetParams, , 10000, , SOFT, (CUgraphNode node, const CUDA_MEMCPY3D *params), (node, params)) \
	CALL(cuGraphMemsetNodeGetParams, , 10000, , SOFT, (CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *params), (node, params)) \
	CALL(cuGraphMemsetNodeSetParams, , 10000, , SOFT, (CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params), (node, params)) \
	CALL(cuGraphHostNodeGetParams, , 10000, , SOFT, (CUgraphNode node, CUDA_HOST_NODE_PARAMS *params), (node, params)) \
	CALL(cuGraphHostNodeSetParams, , 10000, , SOFT, (CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params), (node, params)) \
	CALL(cuGraphChildGraphNodeGetGraph, , 10000, , SOFT, (CUgraphNode node, CUgraph *graph), (node, graph)) \
	CALL(cuGraphEventRecordNodeGetEvent, , 11010, , SOFT, (CUgraphNode node, CUevent *event), (node, event)) \
	CALL(cuGraphEventRecordNodeSetEvent, , 11010, , SOFT, (CUgraphNode node, CUevent event), (node, event)) \
	CALL(cuGraphEventWaitNodeGetEvent, , 11010, , SOFT, (CUgraphNode node, CUevent *event), (node, event)) \
	CALL(cuGraphEventWaitNodeSetEvent, , 11010, , SOFT, (CUgraphNode node, CUevent event), (node, event)) \
	CALL(cuGraphMemAllocNodeGetParams, , 11040, , SOFT, (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params), (node, params)) \
	CALL(cuGraphMemFreeNodeGetParams, , 11040, , SOFT, (CUgraphNode node, CUdeviceptr *addr), (node, addr)) \
	CALL(cuGraphNodeFindInClone, , 10000, , SOFT, (CUgraphNode *node, CUgraphNode original, CUgraph clone), (node, original, clone)) \
	CALL(cuGraphNodeGetType, , 10000, , SOFT, (CUgraphNode node, CUgraphNodeType *type), (node, type)) \
	CALL(cuGraphGetEdges, , 10000, , SOFT, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n), (graph, from, to, n)) \
	CALL(cuGraphGetEdges, _v2, 12030, , SOFT, (CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *n), (graph, from, to, edges, n)) \
	CALL(cuGraphNodeGetDependencies, , 10000, , SOFT, (CUgraphNode node, CUgraphNode *deps, size_t *n), (node, deps, n)) \
	CALL(cuGraphNodeGetDependencies, _v2, 12030, , SOFT, (CUgraphNode node, CUgraphNode *deps, CUgraphEdgeData *edges, size_t *n), (node, deps, edges, n)) \
	CALL(cuGraphNodeGetDependentNodes, , 10000, , SOFT, (CUgraphNode node, CUgraphNode *nodes, size_t *n), (node, nodes, n)) \
	CALL(cuGraphNodeGetDependentNodes, _v2, 12030, , SOFT, (CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n), (node, nodes, edges, n)) \
	CALL(cuGraphRemoveDependencies, , 10000, , SOFT, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n), (graph, from, to, n)) \
	CALL(cuGraphRemoveDependencies, _v2, 12030, , SOFT, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *edges, size_t n), (graph, from, to, edges, n)) \
	CALL(cuGraphExecGetFlags, , 12000, , SOFT, (CUgraphExec exec, cuuint64_t *flags), (exec, flags)) \
	CALL(cuGraphExecMemcpyNodeSetParams, , 10020, , BOTH, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext ctx), (exec, node, params, ctx)) \
	CALL(cuGraphExecMemsetNodeSetParams, , 10020, , BOTH, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx), (exec, node, params, ctx)) \
	CALL(cuGraphExecHostNodeSetParams, , 10020, , BOTH, (CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params), (exec, node, params)) \
	CALL(cuGraphExecChildGraphNodeSetParams, , 11010, , BOTH, (CUgraphExec exec, CUgraphNode node, CUgraph child), (exec, node, child)) \
	CALL(cuGraphExecEventRecordNodeSetEvent, , 11010, , BOTH, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event)) \
	CALL(cuGraphExecEventWaitNodeSetEvent, , 11010, , BOTH, (CUgraphExec exec, CUgraphNode node, CUevent event), (exec, node, event)) \
	CALL(cuGraphNodeSetEnabled, , 11060, , BOTH, (CUgraphExec exec, CUgraphNode node, unsigned int enabled), (exec, node, enabled)) \
	CALL(cuGraphNodeGetEnabled, , 11060, , SOFT, (CUgraphExec exec, CUgraphNode node, unsigned int *enabled), (exec, node, enabled)) \
	CALL(cuGraphDebugDotPrint, , 11030, , SOFT, (CUgraph graph, const char *path, unsigned int flags), (graph, path, flags)) \
	CALL(cuUserObjectCreate, , 11030, , SOFT, (CUuserObject *object, void *ptr, CUhostFn destroy, unsigned int count, unsigned int flags), (object, ptr, destroy, count, flags)) \
	CALL(cuUserObjectRetain, , 11030, , SOFT, (CUuserObject object, unsigned int count), (object, count)) \
	CALL(cuUserObjectRelease, , 11030, , SOFT, (CUuserObject object, unsigned int count), (object, count)) \
	CALL(cuGraphRetainUserObject, , 11030, , SOFT, (CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags), (graph, object, count, flags)) \
	CALL(cuGraphReleaseUserObject, , 11030, , SOFT, (CUgraph graph, CUuserObject object, unsigned int count), (graph, object, count)) \
	CALL(cuDeviceGraphMemTrim, , 11040, , SOFT, (CUdevice dev), (dev)) \
	CALL(cuDeviceGetGraphMemAttribute, , 11040, , SOFT, (CUdevice dev, CUgraphMem_attribute attr, void *value), (dev, attr, value)) \
	CALL(cuDeviceSetGraphMemAttribute, , 11040, , SOFT, (CUdevice dev, CUgraphMem_attribute attr, void *value), (dev, attr, value))

#define CUDA_CALLS_ARRAY(CALL) \
	CALL(cuArrayCreate, _v2, 3020, , SOFT, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc), (array, desc)) \
	CALL(cuArray3DCreate, _v2, 3020, , SOFT, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc), (array, desc)) \
	CALL(cuArrayGetDescriptor, _v2, 3020, , SOFT, (CUDA_ARRAY_DESCRIPTOR *desc, CUarray array), (desc, array)) \
	CALL(cuArray3DGetDescriptor, _v2, 3020, , SOFT, (CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray array), (desc, array)) \
	CALL(cuArrayDestroy, , 2000, , SOFT, (CUarray array), (array)) \
	CALL(cuMipmappedArrayCreate, , 5000, , SOFT, (CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels), (array, desc, levels)) \
	CALL(cuMipmappedArrayGetLevel, , 5000, , SOFT, (CUarray *array, CUmipmappedArray mipmapped, unsigned int level), (array, mipmapped, level)) \
	CALL(cuMipmappedArrayDestroy, , 5000, , SOFT, (CUmipmappedArray array), (array)) \
	CALL(cuMemcpyDtoA, _v2, 3020, _ptds, SOFT, (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes), (dst, offset, src, bytes)) \
	CALL(cuMemcpyAtoD, _v2, 3020, _ptds, SOFT, (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes), (dst, src, offset, bytes)) \
	CALL(cuMemcpyHtoA, _v2, 3020, _ptds, SOFT, (CUarray dst, size_t offset, const void *src, size_t bytes), (dst, offset, src, bytes)) \
	CALL(cuMemcpyAtoH, _v2, 3020, _ptds, SOFT, (void *dst, CUarray src, size_t offset, size_t bytes), (dst, src, offset, bytes)) \
	CALL(cuMemcpyAtoA, _v2, 3020, _ptds, SOFT, (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes), (dst, dst_offset, src, src_offset, bytes)) \
	CALL(cuMemcpyHtoAAsync, _v2, 3020, _ptsz, SOFT, (CUarray dst, size_t offset, const void *src, size_t bytes, CUstream stream), (dst, offset, src, bytes, stream)) \
	CALL(cuMemcpyAtoHAsync, _v2, 3020, _ptsz, SOFT, (void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream), (dst, src, offset, bytes, stream)) \
	CALL(cuTexObjectCreate, , 5000, , SOFT, (CUtexObject *tex, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *desc, const CUDA_RESOURCE_VIEW_DESC *view), (tex, resource, desc, view)) \
	CALL(cuTexObjectDestroy, , 5000, , SOFT, (CUtexObject tex), (tex)) \
	CALL(cuTexObjectGetResourceDesc, , 5000, , SOFT, (CUDA_RESOURCE_DESC *resource, CUtexObject tex), (resource, tex)) \
	CALL(cuTexObjectGetTextureDesc, , 5000, , SOFT, (CUDA_TEXTURE_DESC *desc, CUtexObject tex), (desc, tex)) \
	CALL(cuTexObjectGetResourceViewDesc, , 5000, , SOFT, (CUDA_RESOURCE_VIEW_DESC *view, CUtexObject tex), (view, tex)) \
	CALL(cuSurfObjectCreate, , 5000, , SOFT, (CUsurfObject *surf, const CUDA_RESOURCE_DESC *resource), (surf, resource)) \
	CALL(cuSurfObjectDestroy, , 5000, , SOFT, (CUsurfObject surf), (surf)) \
	CALL(cuSurfObjectGetResourceDesc, , 5000, , SOFT, (CUDA_RESOURCE_DESC *resource, CUsurfObject surf), (resource, surf)) \
	CALL(cuDeviceGetTexture1DLinearMaxWidth, , 11010, , SOFT, (size_t *elements, CUarray_format format, unsigned channels, CUdevice dev), (elements, format, channels, dev))

#define CUDA_CALLS_VIRTUAL(CALL) \
	CALL(cuMemAddressReserve, , 10020, , SOFT, (CUdeviceptr *addr, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags), (addr, bytes, alignment, hint, flags)) \
	CALL(cuMemAddressFree, , 10020, , SOFT, (CUdeviceptr addr, size_t bytes), (addr, bytes)) \
	CALL(cuMemCreate, , 10020, , SOFT, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags), (handle, bytes, prop, flags)) \
	CALL(cuMemRelease, , 10020, , SOFT, (CUmemGenericAllocationHandle handle), (handle)) \
	CALL(cuMemMap, , 10020, , SOFT, (CUdeviceptr addr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags), (addr, bytes, offset, handle, flags)) \
	CALL(cuMemUnmap, , 10020, , SOFT, (CUdeviceptr addr, size_t bytes), (addr, bytes)) \
	CALL(cuMemSetAccess, , 10020, , SOFT, (CUdeviceptr addr, size_t bytes, const CUmemAccessDesc *descs, size_t n), (addr, bytes, descs, n)) \
	CALL(cuMemGetAccess, , 10020, , SOFT, (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr addr), (flags, location, addr)) \
	CALL(cuMemGetAllocationGranularity, , 10020, , SOFT, (size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option), (bytes, prop, option)) \
	CALL(cuMemGetAllocationPropertiesFromHandle, , 10020, , SOFT, (CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle), (prop, handle)) \
	CALL(cuMemRetainAllocationHandle, , 11000, , SOFT, (CUmemGenericAllocationHandle *handle, void *addr), (handle, addr)) \
	CALL(cuMemExportToShareableHandle, , 10020, , SOFT, (void *shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags), (shared, handle, type, flags)) \
	CALL(cuMemImportFromShareableHandle, , 10020, , SOFT, (CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type), (handle, shared, type)) \
	CALL(cuMemRangeGetAttribute, , 8000, , SOFT, (void *data, size_t size, CUmem_range_attribute attr, CUdeviceptr addr, size_t bytes), (data, size, attr, addr, bytes)) \
	CALL(cuMemRangeGetAttributes, , 8000, , SOFT, (void **data, size_t *sizes, CUmem_range_attribute *attrs, size_t n, CUdeviceptr addr, size_t bytes), (data, sizes, attrs, n, addr, bytes)) \
	CALL(cuIpcGetEventHandle, , 4010, , SOFT, (CUipcEventHandle *handle, CUevent event), (handle, event)) \
	CALL(cuIpcOpenEventHandle, , 4010, , SOFT, (CUevent *event, CUipcEventHandle handle), (event, handle)) \
	CALL(cuIpcGetMemHandle, , 4010, , SOFT, (CUipcMemHandle *handle, CUdeviceptr addr), (handle, addr)) \
	CALL(cuIpcOpenMemHandle, _v2, 11000, , SOFT, (CUdeviceptr *addr, CUipcMemHandle handle, unsigned int flags), (addr, handle, flags)) \
	CALL(cuIpcCloseMemHandle, , 4010, , SOFT, (CUdeviceptr addr), (addr))
/* clang-format on */

#endif
