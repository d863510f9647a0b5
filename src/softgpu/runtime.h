/* runtime.h - what the files of our CUDA runtime library share.
 *
 * libcudart.so.13 and libcudart.so.12 for programs built with `nvcc -cudart shared`: what such
 * programs use of the runtime API, made of nothing but calls of the driver API, which are looked up
 * as NVIDIA's runtime does (dlopen of libcuda.so.1, cuGetProcAddress). A preloaded agent therefore
 * sees the same driver calls as with NVIDIA's runtime. What is not there is exported as well and
 * returns cudaErrorNotSupported (runtime_stub.c).
 *
 * The types are those of CUDA 13's driver_types.h under their public names, laid out alike (test:
 * runtime_abi); where a structure is the same as one of the driver API, that one is used. Handles
 * (streams, events, graphs, arrays, pools) are the driver's.
 *
 * RT_MAJOR is the runtime version that is built: 12 renames the calls whose meaning changed
 * with 13.
 *
 * Threads: every function may be called from any thread. Errors: cudaError_t, the numbers of
 * CUresult plus a few; the last one of each thread is kept.
 */
#ifndef EGPU_SOFTGPU_RUNTIME_H
#define EGPU_SOFTGPU_RUNTIME_H

#define EGPU_CUDA_NO_ALIASES

#include <pthread.h>
#include <stdbool.h>

#include "cuda/calls.h"
#include "egpu/cuda.h"

#ifndef RT_MAJOR
#define RT_MAJOR 13
#endif

#define RTAPI __attribute__((visibility("default")))

#if RT_MAJOR < 13 /* the newer form had a name of its own */
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#define cudaMemAdvise cudaMemAdvise_v2
#define cudaMemPrefetchAsync cudaMemPrefetchAsync_v2
#define cudaMemPrefetchAsync_ptsz cudaMemPrefetchAsync_v2_ptsz
#define cudaStreamGetCaptureInfo cudaStreamGetCaptureInfo_v3
#define cudaStreamGetCaptureInfo_ptsz cudaStreamGetCaptureInfo_v3_ptsz
#define cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_v2
#define cudaStreamUpdateCaptureDependencies_ptsz cudaStreamUpdateCaptureDependencies_v2_ptsz
#define cudaGraphGetEdges cudaGraphGetEdges_v2
#define cudaGraphNodeGetDependencies cudaGraphNodeGetDependencies_v2
#define cudaGraphNodeGetDependentNodes cudaGraphNodeGetDependentNodes_v2
#define cudaGraphAddDependencies cudaGraphAddDependencies_v2
#define cudaGraphRemoveDependencies cudaGraphRemoveDependencies_v2
#define cudaGraphAddNode cudaGraphAddNode_v2
#endif

/* -- types ----------------------------------------------------------------------------- */

typedef int cudaError_t;
enum {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorMemoryAllocation = 2,
	cudaErrorInitializationError = 3,
	cudaErrorInvalidConfiguration = 9,
	cudaErrorInvalidPitchValue = 12,
	cudaErrorInvalidSymbol = 13,
	cudaErrorInvalidChannelDescriptor = 20,
	cudaErrorInvalidMemcpyDirection = 21,
	cudaErrorInsufficientDriver = 35,
	cudaErrorMissingConfiguration = 52,
	cudaErrorInvalidDeviceFunction = 98,
	cudaErrorNoDevice = 100,
	cudaErrorInvalidDevice = 101,
	cudaErrorInvalidResourceHandle = 400,
	cudaErrorSymbolNotFound = 500,
	cudaErrorNotReady = 600,
	cudaErrorNotSupported = 801,
	cudaErrorUnknown = 999
};

typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUarray cudaArray_t;
typedef CUmipmappedArray cudaMipmappedArray_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUkernel cudaKernel_t;
typedef CUlibrary cudaLibrary_t;
typedef CUfunction cudaFunction_t;

typedef struct dim3 {
	unsigned int x, y, z;
} dim3;

enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4
};

enum cudaChannelFormatKind {
	cudaChannelFormatKindSigned = 0,
	cudaChannelFormatKindUnsigned = 1,
	cudaChannelFormatKindFloat = 2,
	cudaChannelFormatKindNone = 3
};

struct cudaChannelFormatDesc {
	int x, y, z, w; /* bits */
	enum cudaChannelFormatKind f;
};

struct cudaPitchedPtr {
	void *ptr;
	size_t pitch, xsize, ysize;
};

struct cudaExtent {
	size_t width, height, depth;
};

struct cudaPos {
	size_t x, y, z;
};

struct cudaMemcpy3DParms {
	cudaArray_t srcArray;
	struct cudaPos srcPos;
	struct cudaPitchedPtr srcPtr;
	cudaArray_t dstArray;
	struct cudaPos dstPos;
	struct cudaPitchedPtr dstPtr;
	struct cudaExtent extent;
	enum cudaMemcpyKind kind;
};

struct cudaMemcpy3DPeerParms {
	cudaArray_t srcArray;
	struct cudaPos srcPos;
	struct cudaPitchedPtr srcPtr;
	int srcDevice;
	cudaArray_t dstArray;
	struct cudaPos dstPos;
	struct cudaPitchedPtr dstPtr;
	int dstDevice;
	struct cudaExtent extent;
};

struct cudaPointerAttributes {
	int type; /* 0 unregistered, 1 host, 2 device, 3 managed */
	int device;
	void *devicePointer, *hostPointer;
	long reserved[8];
};

struct cudaFuncAttributes {
	size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
	int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
	int maxDynamicSharedSizeBytes, preferredShmemCarveout, clusterDimMustBeSet;
	int requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
	int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
	int reserved[16];
};

typedef struct cudaLaunchConfig_st {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} cudaLaunchConfig_t;

struct cudaKernelNodeParams {
	void *func;
	dim3 gridDim, blockDim;
	unsigned int sharedMemBytes;
	void **kernelParams, **extra;
};

struct cudaMemcpyNodeParams {
	int flags, reserved[3];
	struct cudaMemcpy3DParms copyParams;
};

struct cudaGraphNodeParams {
	CUgraphNodeType type;
	int reserved0[3];
	union {
		long long reserved1[29];
		struct cudaKernelNodeParams kernel;
		struct cudaMemcpyNodeParams memcpy;
		CUDA_MEMSET_NODE_PARAMS_v1 memset;
		CUDA_HOST_NODE_PARAMS host;
		CUDA_CHILD_GRAPH_NODE_PARAMS graph;
		CUDA_EVENT_WAIT_NODE_PARAMS eventWait;
		CUDA_EVENT_RECORD_NODE_PARAMS eventRecord;
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		CUDA_MEM_FREE_NODE_PARAMS free;
		CUDA_CONDITIONAL_NODE_PARAMS conditional;
	};
	long long reserved2;
};

struct cudaResourceDesc {
	CUresourcetype resType;
	union {
		struct {
			cudaArray_t array;
		} array;
		struct {
			cudaMipmappedArray_t mipmap;
		} mipmap;
		struct {
			void *devPtr;
			struct cudaChannelFormatDesc desc;
			size_t sizeInBytes;
		} linear;
		struct {
			void *devPtr;
			struct cudaChannelFormatDesc desc;
			size_t width, height, pitchInBytes;
		} pitch2D;
		struct {
			int reserved[32];
		} reserved;
	} res;
#if RT_MAJOR >= 13
	unsigned int flags;
#endif
};

struct cudaTextureDesc {
	CUaddress_mode addressMode[3];
	CUfilter_mode filterMode;
	int readMode; /* 0 element type, 1 normalized float */
	int sRGB;
	float borderColor[4];
	int normalizedCoords;
	unsigned int maxAnisotropy;
	CUfilter_mode mipmapFilterMode;
	float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
	int disableTrilinearOptimization;
	int seamlessCubemap;
};

struct cudaDeviceProp {
	char name[256];
	CUuuid uuid;
	char luid[8];
	unsigned int luidDeviceNodeMask;
	size_t totalGlobalMem, sharedMemPerBlock;
	int regsPerBlock, warpSize;
	size_t memPitch;
	int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
#if RT_MAJOR < 13
	int clockRate;
#endif
	size_t totalConstMem;
	int major, minor;
	size_t textureAlignment, texturePitchAlignment;
#if RT_MAJOR < 13
	int deviceOverlap;
#endif
	int multiProcessorCount;
#if RT_MAJOR < 13
	int kernelExecTimeoutEnabled;
#endif
	int integrated, canMapHostMemory;
#if RT_MAJOR < 13
	int computeMode;
#endif
	int maxTexture1D, maxTexture1DMipmap;
#if RT_MAJOR < 13
	int maxTexture1DLinear;
#endif
	int maxTexture2D[2], maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2];
	int maxTexture3D[3], maxTexture3DAlt[3], maxTextureCubemap;
	int maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2];
	int maxSurface1D, maxSurface2D[2], maxSurface3D[3];
	int maxSurface1DLayered[2], maxSurface2DLayered[3];
	int maxSurfaceCubemap, maxSurfaceCubemapLayered[2];
	size_t surfaceAlignment;
	int concurrentKernels, ECCEnabled;
	int pciBusID, pciDeviceID, pciDomainID;
	int tccDriver, asyncEngineCount, unifiedAddressing;
#if RT_MAJOR < 13
	int memoryClockRate;
#endif
	int memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor;
	int streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
	size_t sharedMemPerMultiprocessor;
	int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID;
	int hostNativeAtomicSupported;
#if RT_MAJOR < 13
	int singleToDoublePrecisionPerfRatio;
#endif
	int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported;
	int canUseHostPointerForRegisteredMem, cooperativeLaunch;
#if RT_MAJOR < 13
	int cooperativeMultiDeviceLaunch;
#endif
	size_t sharedMemPerBlockOptin;
	int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
	int maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
	size_t reservedSharedMemPerBlock;
	int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported;
	int timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
	unsigned int gpuDirectRDMAFlushWritesOptions;
	int gpuDirectRDMAWritesOrdering;
	unsigned int memoryPoolSupportedHandleTypes;
	int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch;
	int unifiedFunctionPointers;
#if RT_MAJOR >= 13
	int deviceNumaConfig, deviceNumaId, mpsEnabled, hostNumaId;
	unsigned int gpuPciDeviceID, gpuPciSubsystemID;
	int hostNumaMultinodeIpcSupported;
	int reserved[56];
#else
	int reserved2[2];
	int reserved[61];
#endif
};

/* -- the driver -------------------------------------------------------------------------- */

/* Every call of the table; [1] has the twins whose default stream is the thread's own. */
struct rt_calls {
#define RT_FIELD(name, suffix, since, ptds, flags, params, args) CUresult(*name##suffix) params;
	CUDA_CALLS(RT_FIELD)
#undef RT_FIELD
};
extern struct rt_calls rt_calls[2];
extern __thread int rt_twin;
/* CU(cuMemAlloc_v2)(&p, n). Only after rt_enter. */
#define CU(call) (rt_calls[rt_twin].call)

/* -- entering ----------------------------------------------------------------------------- */

/* Starts the driver on the first call and makes the thread's device current. */
cudaError_t rt_enter(void);
cudaError_t rt_enter_driver(void); /* without a context */
/* Keeps an error as the thread's last one. CUresult and cudaError_t share their numbers. */
cudaError_t rt_end(int error);
bool rt_exiting(void);                              /* exit has been called */
int rt_device(void);                                /* of the calling thread */
cudaError_t rt_context(int device, CUcontext *ctx); /* its primary one */

#define RT_ENTER                                                                                   \
	do {                                                                                       \
		cudaError_t enter_ = rt_enter();                                                   \
		if (enter_)                                                                        \
			return rt_end(enter_);                                                     \
	} while (0)

/* Whole functions that only pass on. */
#define RT_PASS(name, params, call, args)                                                          \
	cudaError_t RTAPI name params;                                                             \
	cudaError_t RTAPI name params                                                              \
	{                                                                                          \
		RT_ENTER;                                                                          \
		return rt_end(CU(call) args);                                                      \
	}

/* The same function with the thread's own stream as default. */
#define RT_TWIN(name, suffix, params, args)                                                        \
	cudaError_t RTAPI name##suffix params;                                                     \
	cudaError_t RTAPI name##suffix params                                                      \
	{                                                                                          \
		int twin_ = rt_twin;                                                               \
		rt_twin = 1;                                                                       \
		cudaError_t result_ = name args;                                                   \
		rt_twin = twin_;                                                                   \
		return result_;                                                                    \
	}

/* -- programs' code (runtime_register.c) ----------------------------------------------------- */

/* A kernel for what a program hands as a function: its host stub, or a kernel handle. */
cudaError_t rt_kernel(const void *func, CUkernel *out);
const void *rt_host_function(CUkernel kernel); /* the stub, or the handle itself */
/* Where a variable is on the current device. */
cudaError_t rt_symbol(const void *symbol, CUdeviceptr *addr, size_t *bytes);

/* -- copies (runtime_copy.c) --------------------------------------------------------------------
 */

cudaError_t rt_copy_3d(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *out);
void rt_copy_parms(const CUDA_MEMCPY3D *c, struct cudaMemcpy3DParms *out);
cudaError_t rt_copy_1d(CUDA_MEMCPY3D *out, void *dst, const void *src, size_t bytes, int kind);
/* Format and channels of a descriptor. */
bool rt_format(const struct cudaChannelFormatDesc *d, CUarray_format *format, unsigned *channels);
struct cudaChannelFormatDesc rt_channels(CUarray_format format, unsigned channels);

/* What the files call of each other. */
cudaError_t RTAPI cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device);

#endif
