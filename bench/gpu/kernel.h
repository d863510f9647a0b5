/* kernel.h - what kernels.cu needs, for clang alone (the samples' header) and for nvcc. */
#ifndef EGPU_BENCH_KERNEL_H
#define EGPU_BENCH_KERNEL_H

#ifdef __clang__
#include "../../samples/kernel.h"
#define DEVICE_METHOD __attribute__((device, always_inline, unused))
#define UNROLL _Pragma("unroll")
#define block_barrier() __syncthreads()
#else
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__
#define SHARED __shared__
#define UNROLL _Pragma("unroll")
#define block_barrier() __syncthreads()
DEVICE unsigned thread_x()
{
	return threadIdx.x;
}
DEVICE unsigned thread_y()
{
	return threadIdx.y;
}
DEVICE unsigned block_x()
{
	return blockIdx.x;
}
DEVICE unsigned block_y()
{
	return blockIdx.y;
}
DEVICE unsigned threads_x()
{
	return blockDim.x;
}
DEVICE unsigned blocks_x()
{
	return gridDim.x;
}
DEVICE unsigned long long index_x()
{
	return (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
}
#endif

#endif
