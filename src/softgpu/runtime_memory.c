/* runtime_memory.c - allocations, host memory, questions about pointers. */
#include "softgpu/runtime.h"

#include <string.h>

#define ADDR(p) ((CUdeviceptr)(uintptr_t)(p))

cudaError_t RTAPI cudaMalloc(void **out, size_t bytes);
cudaError_t RTAPI cudaMalloc(void **out, size_t bytes)
{
	CUdeviceptr addr = 0;
	RT_ENTER;
	if (!out)
		return rt_end(cudaErrorInvalidValue);
	/* Nothing is a valid size: no memory, no error. */
	CUresult r = bytes ? CU(cuMemAlloc_v2)(&addr, bytes) : CUDA_SUCCESS;
	*out = (void *)(uintptr_t)addr;
	return rt_end(r);
}

cudaError_t RTAPI cudaFree(void *p);
cudaError_t RTAPI cudaFree(void *p)
{
	RT_ENTER;
	return rt_end(p ? CU(cuMemFree_v2)(ADDR(p)) : CUDA_SUCCESS);
}

cudaError_t RTAPI cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height);
cudaError_t RTAPI cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
	CUdeviceptr addr = 0;
	RT_ENTER;
	if (!out || !pitch)
		return rt_end(cudaErrorInvalidValue);
	*pitch = 0;
	CUresult r = width && height ? CU(cuMemAllocPitch_v2)(&addr, pitch, width, height, 4)
				     : CUDA_SUCCESS;
	*out = (void *)(uintptr_t)addr;
	return rt_end(r);
}

cudaError_t RTAPI cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent extent);
cudaError_t RTAPI cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent extent)
{
	size_t rows;
	if (!out || __builtin_mul_overflow(extent.height, extent.depth, &rows))
		return rt_end(cudaErrorInvalidValue);
	*out = (struct cudaPitchedPtr){ .xsize = extent.width, .ysize = extent.height };
	return cudaMallocPitch(&out->ptr, &out->pitch, extent.width, rows);
}

cudaError_t RTAPI cudaMallocManaged(void **out, size_t bytes, unsigned int flags);
cudaError_t RTAPI cudaMallocManaged(void **out, size_t bytes, unsigned int flags)
{
	RT_ENTER;
	return rt_end(out ? CU(cuMemAllocManaged)((CUdeviceptr *)out, bytes, flags)
			  : CUDA_ERROR_INVALID_VALUE);
}

cudaError_t RTAPI cudaHostAlloc(void **out, size_t bytes, unsigned int flags);
cudaError_t RTAPI cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	RT_ENTER;
	if (!out)
		return rt_end(cudaErrorInvalidValue);
	*out = NULL;
	return rt_end(bytes ? CU(cuMemHostAlloc)(out, bytes, flags) : CUDA_SUCCESS);
}

cudaError_t RTAPI cudaMallocHost(void **out, size_t bytes);
cudaError_t RTAPI cudaMallocHost(void **out, size_t bytes)
{
	return cudaHostAlloc(out, bytes, 0);
}

cudaError_t RTAPI cudaFreeHost(void *p);
cudaError_t RTAPI cudaFreeHost(void *p)
{
	RT_ENTER;
	return rt_end(p ? CU(cuMemFreeHost)(p) : CUDA_SUCCESS);
}

RT_PASS(cudaHostRegister, (void *p, size_t bytes, unsigned int flags), cuMemHostRegister_v2,
	(p, bytes, flags))
RT_PASS(cudaHostUnregister, (void *p), cuMemHostUnregister, (p))
RT_PASS(cudaHostGetDevicePointer, (void **out, void *p, unsigned int flags),
	cuMemHostGetDevicePointer_v2, ((CUdeviceptr *)out, p, flags))
RT_PASS(cudaHostGetFlags, (unsigned int *flags, void *p), cuMemHostGetFlags, (flags, p))
RT_PASS(cudaMemGetInfo, (size_t * free_bytes, size_t *total), cuMemGetInfo_v2, (free_bytes, total))
RT_PASS(cudaMemAdvise, (const void *p, size_t bytes, CUmem_advise advice, CUmemLocation location),
	cuMemAdvise_v2, (ADDR(p), bytes, advice, location))
RT_PASS(cudaMemPrefetchAsync,
	(const void *p, size_t bytes, CUmemLocation location, unsigned int flags,
		cudaStream_t stream),
	cuMemPrefetchAsync_v2, (ADDR(p), bytes, location, flags, stream))
RT_TWIN(cudaMemPrefetchAsync, _ptsz,
	(const void *p, size_t bytes, CUmemLocation location, unsigned int flags,
		cudaStream_t stream),
	(p, bytes, location, flags, stream))
RT_PASS(cudaMemRangeGetAttribute,
	(void *data, size_t size, CUmem_range_attribute attr, const void *p, size_t bytes),
	cuMemRangeGetAttribute, (data, size, attr, ADDR(p), bytes))
RT_PASS(cudaMemRangeGetAttributes,
	(void **data, size_t *sizes, CUmem_range_attribute *attrs, size_t n, const void *p,
		size_t bytes),
	cuMemRangeGetAttributes, (data, sizes, attrs, n, ADDR(p), bytes))

RT_PASS(cudaMallocAsync, (void **out, size_t bytes, cudaStream_t stream), cuMemAllocAsync,
	((CUdeviceptr *)out, bytes, stream))
RT_TWIN(cudaMallocAsync, _ptsz, (void **out, size_t bytes, cudaStream_t stream),
	(out, bytes, stream))
RT_PASS(cudaMallocFromPoolAsync,
	(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
	cuMemAllocFromPoolAsync, ((CUdeviceptr *)out, bytes, pool, stream))
RT_TWIN(cudaMallocFromPoolAsync, _ptsz,
	(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream),
	(out, bytes, pool, stream))
RT_PASS(cudaFreeAsync, (void *p, cudaStream_t stream), cuMemFreeAsync, (ADDR(p), stream))
RT_TWIN(cudaFreeAsync, _ptsz, (void *p, cudaStream_t stream), (p, stream))

RT_PASS(cudaIpcGetMemHandle, (CUipcMemHandle * handle, void *p), cuIpcGetMemHandle,
	(handle, ADDR(p)))
RT_PASS(cudaIpcOpenMemHandle, (void **out, CUipcMemHandle handle, unsigned int flags),
	cuIpcOpenMemHandle_v2, ((CUdeviceptr *)out, handle, flags))
RT_PASS(cudaIpcCloseMemHandle, (void *p), cuIpcCloseMemHandle, (ADDR(p)))
RT_PASS(cudaIpcGetEventHandle, (CUipcEventHandle * handle, cudaEvent_t event), cuIpcGetEventHandle,
	(handle, event))
RT_PASS(cudaIpcOpenEventHandle, (cudaEvent_t * event, CUipcEventHandle handle),
	cuIpcOpenEventHandle, (event, handle))

cudaError_t RTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p);
cudaError_t RTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
	unsigned int type = 0, managed = 0;
	int device = CU_DEVICE_INVALID;
	uint64_t device_pointer = 0, host_pointer = 0;
	CUpointer_attribute attrs[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER };
	void *values[] = { &type, &managed, &device, &device_pointer, &host_pointer };
	RT_ENTER;
	if (!out)
		return rt_end(cudaErrorInvalidValue);
	CUresult r = CU(cuPointerGetAttributes)(5, attrs, values, ADDR(p));
	if (r)
		return rt_end(r);
	memset(out, 0, sizeof(*out));
	out->device = device;
	out->devicePointer = (void *)(uintptr_t)device_pointer;
	out->hostPointer = (void *)(uintptr_t)host_pointer;
	if (managed & 1) { /* one byte is written */
		out->type = 3;
		out->hostPointer = out->devicePointer;
	} else if (type == CU_MEMORYTYPE_HOST) {
		out->type = 1;
	} else if (type == CU_MEMORYTYPE_DEVICE) {
		out->type = 2;
	} else {
		out->hostPointer = (void *)p;
	}
	return cudaSuccess;
}
