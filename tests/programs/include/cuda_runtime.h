/* cuda_runtime.h - as much of CUDA C++ as the programs in tests/programs need, for clang alone: Debian
 * ships clang with the NVPTX back end but not the CUDA toolkit. nvcc takes NVIDIA's header of this
 * name instead. The runtime API is the one that softgpu's libcudart exports.
 */
#ifndef EGPU_PROGRAMS_CUDA_RUNTIME_H
#define EGPU_PROGRAMS_CUDA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

struct uint3 {
	unsigned int x, y, z;
};
struct dim3 {
	unsigned int x, y, z;
	__host__ __device__ constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1)
		: x(a), y(b), z(c)
	{
	}
	__host__ __device__ constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
	{
	}
};
struct float2 {
	float x, y;
};
struct float4 {
	float x, y, z, w;
};
struct uchar4 {
	unsigned char x, y, z, w;
};
static inline __host__ __device__ float2 make_float2(float x, float y)
{
	return float2{ x, y };
}
static inline __host__ __device__ float4 make_float4(float x, float y, float z, float w)
{
	return float4{ x, y, z, w };
}

#include <__clang_cuda_builtin_vars.h>

/* -- device functions -------------------------------------------------------------------- */

#define DEVICE_INLINE static __device__ __forceinline__

DEVICE_INLINE int atomicAdd(int *p, int v)
{
	return __nvvm_atom_add_gen_i(p, v);
}
DEVICE_INLINE unsigned atomicAdd(unsigned *p, unsigned v)
{
	return (unsigned)__nvvm_atom_add_gen_i((int *)p, (int)v);
}
DEVICE_INLINE unsigned long long atomicAdd(unsigned long long *p, unsigned long long v)
{
	return (unsigned long long)__nvvm_atom_add_gen_ll((long long *)p, (long long)v);
}
DEVICE_INLINE float atomicAdd(float *p, float v)
{
	return __nvvm_atom_add_gen_f(p, v);
}
DEVICE_INLINE int atomicMin(int *p, int v)
{
	return __nvvm_atom_min_gen_i(p, v);
}
DEVICE_INLINE int atomicMax(int *p, int v)
{
	return __nvvm_atom_max_gen_i(p, v);
}
DEVICE_INLINE int atomicExch(int *p, int v)
{
	return __nvvm_atom_xchg_gen_i(p, v);
}
DEVICE_INLINE int atomicCAS(int *p, int was, int v)
{
	return __nvvm_atom_cas_gen_i(p, was, v);
}
DEVICE_INLINE void __threadfence()
{
	__nvvm_membar_gl();
}
DEVICE_INLINE void __syncwarp(unsigned mask = 0xffffffffu)
{
	__nvvm_bar_warp_sync(mask);
}
DEVICE_INLINE int __shfl_sync(unsigned mask, int v, int lane)
{
	return __nvvm_shfl_sync_idx_i32(mask, v, lane, 0x1f);
}
DEVICE_INLINE int __shfl_down_sync(unsigned mask, int v, unsigned by)
{
	return __nvvm_shfl_sync_down_i32(mask, v, by, 0x1f);
}
DEVICE_INLINE float __shfl_down_sync(unsigned mask, float v, unsigned by)
{
	return __nvvm_shfl_sync_down_f32(mask, v, by, 0x1f);
}
DEVICE_INLINE int __shfl_up_sync(unsigned mask, int v, unsigned by)
{
	return __nvvm_shfl_sync_up_i32(mask, v, by, 0);
}
DEVICE_INLINE float __shfl_xor_sync(unsigned mask, float v, int with)
{
	return __nvvm_shfl_sync_bfly_f32(mask, v, with, 0x1f);
}
DEVICE_INLINE unsigned __ballot_sync(unsigned mask, int p)
{
	return (unsigned)__nvvm_vote_ballot_sync(mask, p);
}
DEVICE_INLINE int __any_sync(unsigned mask, int p)
{
	return __nvvm_vote_any_sync(mask, p);
}
DEVICE_INLINE int __popc(unsigned v)
{
	return __builtin_popcount(v);
}
DEVICE_INLINE float rsqrtf(float x)
{
	return __nvvm_rsqrt_approx_f(x);
}
DEVICE_INLINE float exp2_fast(float x)
{
	return __nvvm_ex2_approx_f(x);
}
DEVICE_INLINE float square_root(float x)
{
	return __nvvm_sqrt_rn_f(x);
}
DEVICE_INLINE int min(int a, int b)
{
	return a < b ? a : b;
}
DEVICE_INLINE int max(int a, int b)
{
	return a > b ? a : b;
}
extern "C" __device__ int vprintf(const char *, const char *);
extern "C" __device__ int printf(const char *, ...);
extern "C" __device__ void *malloc(size_t);
extern "C" __device__ void free(void *);

/* -- the runtime API ----------------------------------------------------------------------- */

enum cudaError_t {
	cudaSuccess = 0,
	cudaErrorInvalidValue = 1,
	cudaErrorInvalidConfiguration = 9,
	cudaErrorNotReady = 600,
	cudaErrorIllegalAddress = 700
};
enum cudaMemcpyKind {
	cudaMemcpyHostToHost,
	cudaMemcpyHostToDevice,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault
};
enum cudaStreamCaptureMode {
	cudaStreamCaptureModeGlobal,
	cudaStreamCaptureModeThreadLocal,
	cudaStreamCaptureModeRelaxed
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaMemAttachGlobal = 1 };
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
struct cudaKernelNodeParams {
	void *func;
	dim3 gridDim, blockDim;
	unsigned int sharedMemBytes;
	void **kernelParams, **extra;
};
struct cudaMemsetParams {
	void *dst;
	size_t pitch;
	unsigned int value, elementSize;
	size_t width, height;
};

extern "C" {
unsigned __cudaPushCallConfiguration(
	dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = 0);
cudaError_t cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared,
	cudaStream_t stream);
cudaError_t cudaGetLastError();
const char *cudaGetErrorString(cudaError_t);
cudaError_t cudaGetDeviceCount(int *);
cudaError_t cudaSetDevice(int);
cudaError_t cudaGetDevice(int *);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceCanAccessPeer(int *, int, int);
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned);
cudaError_t cudaMalloc(void **, size_t);
cudaError_t cudaFree(void *);
cudaError_t cudaMallocHost(void **, size_t);
cudaError_t cudaFreeHost(void *);
cudaError_t cudaMallocManaged(void **, size_t, unsigned);
cudaError_t cudaMallocPitch(void **, size_t *, size_t, size_t);
cudaError_t cudaMallocAsync(void **, size_t, cudaStream_t);
cudaError_t cudaFreeAsync(void *, cudaStream_t);
cudaError_t cudaMemcpy(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void *, const void *, size_t, cudaMemcpyKind, cudaStream_t);
cudaError_t cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyPeer(void *, int, const void *, int, size_t);
cudaError_t cudaMemset(void *, int, size_t);
cudaError_t cudaMemsetAsync(void *, int, size_t, cudaStream_t);
cudaError_t cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, cudaMemcpyKind);
cudaError_t cudaStreamCreate(cudaStream_t *);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t cudaEventCreate(cudaEvent_t *);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, void (*)(void *), void *);
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
cudaError_t cudaGraphCreate(cudaGraph_t *, unsigned);
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *, size_t,
	const cudaKernelNodeParams *);
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *, size_t,
	const cudaMemsetParams *);
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *, cudaGraph_t, const cudaGraphNode_t *, size_t,
	void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
cudaError_t cudaGraphExecKernelNodeSetParams(
	cudaGraphExec_t, cudaGraphNode_t, const cudaKernelNodeParams *);
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
}

template <class T> static inline cudaError_t cudaMalloc(T **p, size_t n)
{
	return cudaMalloc((void **)p, n);
}
template <class T> static inline cudaError_t cudaMallocHost(T **p, size_t n)
{
	return cudaMallocHost((void **)p, n);
}
template <class T> static inline cudaError_t cudaMallocManaged(T **p, size_t n)
{
	return cudaMallocManaged((void **)p, n, cudaMemAttachGlobal);
}
template <class T>
static inline cudaError_t cudaMallocPitch(T **p, size_t *pitch, size_t width, size_t height)
{
	return cudaMallocPitch((void **)p, pitch, width, height);
}
template <class T> static inline cudaError_t cudaMallocAsync(T **p, size_t n, cudaStream_t s)
{
	return cudaMallocAsync((void **)p, n, s);
}
template <class T> static inline cudaError_t cudaMemcpyToSymbol(T &v, const void *p, size_t n)
{
	return cudaMemcpyToSymbol((const void *)&v, p, n, 0, cudaMemcpyHostToDevice);
}
template <class T> static inline cudaError_t cudaMemcpyFromSymbol(void *p, T &v, size_t n)
{
	return cudaMemcpyFromSymbol(p, (const void *)&v, n, 0, cudaMemcpyDeviceToHost);
}

#endif
