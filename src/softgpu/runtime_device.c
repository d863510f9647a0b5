/* runtime_device.c - questions about devices, their limits, peers and pools. */
#include "softgpu/runtime.h"

#include <string.h>

static int attribute(int device, CUdevice_attribute attr)
{
	int v = 0;
	rt_calls[0].cuDeviceGetAttribute(&v, attr, device);
	return v;
}

cudaError_t RTAPI cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
	cudaError_t r = rt_enter_driver();
	if (r || !p)
		return rt_end(r ? r : cudaErrorInvalidValue);
	memset(p, 0, sizeof(*p));
	if ((r = CU(cuDeviceGetName)(p->name, sizeof(p->name), device)) ||
		(r = CU(cuDeviceGetUuid_v2)(&p->uuid, device)) ||
		(r = CU(cuDeviceTotalMem_v2)(&p->totalGlobalMem, device)))
		return rt_end(r);
#define A(name) attribute(device, CU_DEVICE_ATTRIBUTE_##name)
	p->sharedMemPerBlock = (size_t)A(MAX_SHARED_MEMORY_PER_BLOCK);
	p->regsPerBlock = A(MAX_REGISTERS_PER_BLOCK);
	p->warpSize = A(WARP_SIZE);
	p->memPitch = (size_t)A(MAX_PITCH);
	p->maxThreadsPerBlock = A(MAX_THREADS_PER_BLOCK);
	for (int i = 0; i < 3; i++) {
		p->maxThreadsDim[i] = attribute(
			device, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
		p->maxGridSize[i] = attribute(
			device, (CUdevice_attribute)(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
	}
	p->totalConstMem = (size_t)A(TOTAL_CONSTANT_MEMORY);
	p->major = A(COMPUTE_CAPABILITY_MAJOR);
	p->minor = A(COMPUTE_CAPABILITY_MINOR);
	p->textureAlignment = (size_t)A(TEXTURE_ALIGNMENT);
	p->texturePitchAlignment = (size_t)A(TEXTURE_PITCH_ALIGNMENT);
	p->multiProcessorCount = A(MULTIPROCESSOR_COUNT);
	p->integrated = A(INTEGRATED);
	p->canMapHostMemory = A(CAN_MAP_HOST_MEMORY);
	p->maxTexture1D = A(MAXIMUM_TEXTURE1D_WIDTH);
	p->maxTexture1DMipmap = A(MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH);
	p->maxTexture2D[0] = A(MAXIMUM_TEXTURE2D_WIDTH);
	p->maxTexture2D[1] = A(MAXIMUM_TEXTURE2D_HEIGHT);
	p->maxTexture2DMipmap[0] = A(MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH);
	p->maxTexture2DMipmap[1] = A(MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT);
	p->maxTexture2DLinear[0] = A(MAXIMUM_TEXTURE2D_LINEAR_WIDTH);
	p->maxTexture2DLinear[1] = A(MAXIMUM_TEXTURE2D_LINEAR_HEIGHT);
	p->maxTexture2DLinear[2] = A(MAXIMUM_TEXTURE2D_LINEAR_PITCH);
	p->maxTexture2DGather[0] = A(MAXIMUM_TEXTURE2D_GATHER_WIDTH);
	p->maxTexture2DGather[1] = A(MAXIMUM_TEXTURE2D_GATHER_HEIGHT);
	p->maxTexture3D[0] = A(MAXIMUM_TEXTURE3D_WIDTH);
	p->maxTexture3D[1] = A(MAXIMUM_TEXTURE3D_HEIGHT);
	p->maxTexture3D[2] = A(MAXIMUM_TEXTURE3D_DEPTH);
	p->maxTexture3DAlt[0] = A(MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE);
	p->maxTexture3DAlt[1] = A(MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE);
	p->maxTexture3DAlt[2] = A(MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE);
	p->maxTextureCubemap = A(MAXIMUM_TEXTURECUBEMAP_WIDTH);
	p->maxTexture1DLayered[0] = A(MAXIMUM_TEXTURE1D_LAYERED_WIDTH);
	p->maxTexture1DLayered[1] = A(MAXIMUM_TEXTURE1D_LAYERED_LAYERS);
	p->maxTexture2DLayered[0] = A(MAXIMUM_TEXTURE2D_LAYERED_WIDTH);
	p->maxTexture2DLayered[1] = A(MAXIMUM_TEXTURE2D_LAYERED_HEIGHT);
	p->maxTexture2DLayered[2] = A(MAXIMUM_TEXTURE2D_LAYERED_LAYERS);
	p->maxTextureCubemapLayered[0] = A(MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH);
	p->maxTextureCubemapLayered[1] = A(MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS);
	p->maxSurface1D = A(MAXIMUM_SURFACE1D_WIDTH);
	p->maxSurface2D[0] = A(MAXIMUM_SURFACE2D_WIDTH);
	p->maxSurface2D[1] = A(MAXIMUM_SURFACE2D_HEIGHT);
	p->maxSurface3D[0] = A(MAXIMUM_SURFACE3D_WIDTH);
	p->maxSurface3D[1] = A(MAXIMUM_SURFACE3D_HEIGHT);
	p->maxSurface3D[2] = A(MAXIMUM_SURFACE3D_DEPTH);
	p->maxSurface1DLayered[0] = A(MAXIMUM_SURFACE1D_LAYERED_WIDTH);
	p->maxSurface1DLayered[1] = A(MAXIMUM_SURFACE1D_LAYERED_LAYERS);
	p->maxSurface2DLayered[0] = A(MAXIMUM_SURFACE2D_LAYERED_WIDTH);
	p->maxSurface2DLayered[1] = A(MAXIMUM_SURFACE2D_LAYERED_HEIGHT);
	p->maxSurface2DLayered[2] = A(MAXIMUM_SURFACE2D_LAYERED_LAYERS);
	p->maxSurfaceCubemap = A(MAXIMUM_SURFACECUBEMAP_WIDTH);
	p->maxSurfaceCubemapLayered[0] = A(MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH);
	p->maxSurfaceCubemapLayered[1] = A(MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS);
	p->surfaceAlignment = (size_t)A(SURFACE_ALIGNMENT);
	p->concurrentKernels = A(CONCURRENT_KERNELS);
	p->ECCEnabled = A(ECC_ENABLED);
	p->pciBusID = A(PCI_BUS_ID);
	p->pciDeviceID = A(PCI_DEVICE_ID);
	p->pciDomainID = A(PCI_DOMAIN_ID);
	p->tccDriver = A(TCC_DRIVER);
	p->asyncEngineCount = A(ASYNC_ENGINE_COUNT);
	p->unifiedAddressing = A(UNIFIED_ADDRESSING);
	p->memoryBusWidth = A(GLOBAL_MEMORY_BUS_WIDTH);
	p->l2CacheSize = A(L2_CACHE_SIZE);
	p->persistingL2CacheMaxSize = A(MAX_PERSISTING_L2_CACHE_SIZE);
	p->maxThreadsPerMultiProcessor = A(MAX_THREADS_PER_MULTIPROCESSOR);
	p->streamPrioritiesSupported = A(STREAM_PRIORITIES_SUPPORTED);
	p->globalL1CacheSupported = A(GLOBAL_L1_CACHE_SUPPORTED);
	p->localL1CacheSupported = A(LOCAL_L1_CACHE_SUPPORTED);
	p->sharedMemPerMultiprocessor = (size_t)A(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	p->regsPerMultiprocessor = A(MAX_REGISTERS_PER_MULTIPROCESSOR);
	p->managedMemory = A(MANAGED_MEMORY);
	p->isMultiGpuBoard = A(MULTI_GPU_BOARD);
	p->multiGpuBoardGroupID = A(MULTI_GPU_BOARD_GROUP_ID);
	p->hostNativeAtomicSupported = A(HOST_NATIVE_ATOMIC_SUPPORTED);
	p->pageableMemoryAccess = A(PAGEABLE_MEMORY_ACCESS);
	p->concurrentManagedAccess = A(CONCURRENT_MANAGED_ACCESS);
	p->computePreemptionSupported = A(COMPUTE_PREEMPTION_SUPPORTED);
	p->canUseHostPointerForRegisteredMem = A(CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
	p->cooperativeLaunch = A(COOPERATIVE_LAUNCH);
	p->sharedMemPerBlockOptin = (size_t)A(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	p->pageableMemoryAccessUsesHostPageTables = A(PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
	p->directManagedMemAccessFromHost = A(DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
	p->maxBlocksPerMultiProcessor = A(MAX_BLOCKS_PER_MULTIPROCESSOR);
	p->accessPolicyMaxWindowSize = A(MAX_ACCESS_POLICY_WINDOW_SIZE);
	p->reservedSharedMemPerBlock = (size_t)A(RESERVED_SHARED_MEMORY_PER_BLOCK);
	p->hostRegisterSupported = A(HOST_REGISTER_SUPPORTED);
	p->sparseCudaArraySupported = A(SPARSE_CUDA_ARRAY_SUPPORTED);
	p->hostRegisterReadOnlySupported = A(READ_ONLY_HOST_REGISTER_SUPPORTED);
	p->timelineSemaphoreInteropSupported = A(TIMELINE_SEMAPHORE_INTEROP_SUPPORTED);
	p->memoryPoolsSupported = A(MEMORY_POOLS_SUPPORTED);
	p->gpuDirectRDMASupported = A(GPU_DIRECT_RDMA_SUPPORTED);
	p->memoryPoolSupportedHandleTypes = (unsigned)A(MEMPOOL_SUPPORTED_HANDLE_TYPES);
	p->deferredMappingCudaArraySupported = A(DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED);
	p->ipcEventSupported = A(IPC_EVENT_SUPPORTED);
	p->clusterLaunch = A(CLUSTER_LAUNCH);
	p->unifiedFunctionPointers = A(UNIFIED_FUNCTION_POINTERS);
#if RT_MAJOR >= 13
	p->deviceNumaConfig = A(NUMA_CONFIG);
	p->deviceNumaId = A(NUMA_ID);
	p->mpsEnabled = A(MPS_ENABLED);
	p->hostNumaId = A(HOST_NUMA_ID);
	p->gpuPciDeviceID = (unsigned)A(GPU_PCI_DEVICE_ID);
	p->gpuPciSubsystemID = (unsigned)A(GPU_PCI_SUBSYSTEM_ID);
	p->hostNumaMultinodeIpcSupported = A(HOST_NUMA_MULTINODE_IPC_SUPPORTED);
#else
	p->clockRate = A(CLOCK_RATE);
	p->deviceOverlap = A(GPU_OVERLAP);
	p->kernelExecTimeoutEnabled = A(KERNEL_EXEC_TIMEOUT);
	p->computeMode = A(COMPUTE_MODE);
	p->maxTexture1DLinear = A(MAXIMUM_TEXTURE1D_LINEAR_WIDTH);
	p->memoryClockRate = A(MEMORY_CLOCK_RATE);
	p->singleToDoublePrecisionPerfRatio = A(SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO);
	p->cooperativeMultiDeviceLaunch = A(COOPERATIVE_MULTI_DEVICE_LAUNCH);
#endif
#undef A
	return cudaSuccess;
}

/* The numbers of cudaDeviceAttr are those of CUdevice_attribute. */
#define ABOUT_DEVICE(name, params, call, args)                                                     \
	cudaError_t RTAPI name params;                                                             \
	cudaError_t RTAPI name params                                                              \
	{                                                                                          \
		cudaError_t enter_ = rt_enter_driver();                                            \
		return rt_end(enter_ ? enter_ : (cudaError_t)CU(call) args);                       \
	}

ABOUT_DEVICE(cudaDeviceGetAttribute, (int *value, int attr, int device), cuDeviceGetAttribute,
	(value, (CUdevice_attribute)attr, device))
ABOUT_DEVICE(cudaDeviceGetPCIBusId, (char *bus_id, int len, int device), cuDeviceGetPCIBusId,
	(bus_id, len, device))
ABOUT_DEVICE(cudaDeviceGetByPCIBusId, (int *device, const char *bus_id), cuDeviceGetByPCIBusId,
	(device, bus_id))
ABOUT_DEVICE(cudaDeviceCanAccessPeer, (int *can, int device, int peer), cuDeviceCanAccessPeer,
	(can, device, peer))
ABOUT_DEVICE(cudaDeviceGetP2PAttribute, (int *value, int attr, int src, int dst),
	cuDeviceGetP2PAttribute, (value, (CUdevice_P2PAttribute)attr, src, dst))
ABOUT_DEVICE(cudaDeviceGetDefaultMemPool, (cudaMemPool_t * pool, int device),
	cuDeviceGetDefaultMemPool, (pool, device))
ABOUT_DEVICE(cudaDeviceGetMemPool, (cudaMemPool_t * pool, int device), cuDeviceGetMemPool,
	(pool, device))
ABOUT_DEVICE(
	cudaDeviceSetMemPool, (int device, cudaMemPool_t pool), cuDeviceSetMemPool, (device, pool))
ABOUT_DEVICE(cudaDeviceGraphMemTrim, (int device), cuDeviceGraphMemTrim, (device))
ABOUT_DEVICE(cudaDeviceGetGraphMemAttribute, (int device, int attr, void *value),
	cuDeviceGetGraphMemAttribute, (device, (CUgraphMem_attribute)attr, value))
ABOUT_DEVICE(cudaDeviceSetGraphMemAttribute, (int device, int attr, void *value),
	cuDeviceSetGraphMemAttribute, (device, (CUgraphMem_attribute)attr, value))

RT_PASS(cudaDeviceGetLimit, (size_t * value, CUlimit limit), cuCtxGetLimit, (value, limit))
RT_PASS(cudaDeviceSetLimit, (CUlimit limit, size_t value), cuCtxSetLimit, (limit, value))
RT_PASS(cudaDeviceGetCacheConfig, (CUfunc_cache * config), cuCtxGetCacheConfig, (config))
RT_PASS(cudaDeviceSetCacheConfig, (CUfunc_cache config), cuCtxSetCacheConfig, (config))
RT_PASS(cudaDeviceGetSharedMemConfig, (CUsharedconfig * config), cuCtxGetSharedMemConfig, (config))
RT_PASS(cudaDeviceSetSharedMemConfig, (CUsharedconfig config), cuCtxSetSharedMemConfig, (config))
RT_PASS(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), cuCtxGetStreamPriorityRange,
	(least, greatest))
RT_PASS(cudaCtxResetPersistingL2Cache, (void), cuCtxResetPersistingL2Cache, ())
RT_PASS(cudaProfilerStart, (void), cuProfilerStart, ())
RT_PASS(cudaProfilerStop, (void), cuProfilerStop, ())

cudaError_t RTAPI cudaDeviceGetTexture1DLinearMaxWidth(
	size_t *elements, const struct cudaChannelFormatDesc *desc, int device);
cudaError_t RTAPI cudaDeviceGetTexture1DLinearMaxWidth(
	size_t *elements, const struct cudaChannelFormatDesc *desc, int device)
{
	CUarray_format format;
	unsigned channels;
	cudaError_t r = rt_enter_driver();
	if (!r && (!desc || !rt_format(desc, &format, &channels)))
		r = cudaErrorInvalidValue;
	return rt_end(r ? r
			: (cudaError_t)CU(cuDeviceGetTexture1DLinearMaxWidth)(
				  elements, format, channels, device));
}

static cudaError_t peer(int device, unsigned int flags, bool enable)
{
	CUcontext ctx;
	RT_ENTER;
	cudaError_t r = rt_context(device, &ctx);
	if (r)
		return rt_end(r);
	return rt_end(
		enable ? CU(cuCtxEnablePeerAccess)(ctx, flags) : CU(cuCtxDisablePeerAccess)(ctx));
}

cudaError_t RTAPI cudaDeviceEnablePeerAccess(int device, unsigned int flags);
cudaError_t RTAPI cudaDeviceEnablePeerAccess(int device, unsigned int flags)
{
	return peer(device, flags, true);
}

cudaError_t RTAPI cudaDeviceDisablePeerAccess(int device);
cudaError_t RTAPI cudaDeviceDisablePeerAccess(int device)
{
	return peer(device, 0, false);
}

/* -- pools -------------------------------------------------------------------------------- */

RT_PASS(cudaMemPoolCreate, (cudaMemPool_t * pool, const CUmemPoolProps *props), cuMemPoolCreate,
	(pool, props))
RT_PASS(cudaMemPoolDestroy, (cudaMemPool_t pool), cuMemPoolDestroy, (pool))
RT_PASS(cudaMemPoolTrimTo, (cudaMemPool_t pool, size_t keep), cuMemPoolTrimTo, (pool, keep))
RT_PASS(cudaMemPoolGetAttribute, (cudaMemPool_t pool, CUmemPool_attribute attr, void *value),
	cuMemPoolGetAttribute, (pool, attr, value))
RT_PASS(cudaMemPoolSetAttribute, (cudaMemPool_t pool, CUmemPool_attribute attr, void *value),
	cuMemPoolSetAttribute, (pool, attr, value))
RT_PASS(cudaMemPoolSetAccess, (cudaMemPool_t pool, const CUmemAccessDesc *descs, size_t n),
	cuMemPoolSetAccess, (pool, descs, n))
RT_PASS(cudaMemPoolGetAccess,
	(CUmemAccess_flags * flags, cudaMemPool_t pool, CUmemLocation *location),
	cuMemPoolGetAccess, (flags, pool, location))
