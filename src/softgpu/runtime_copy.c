/* runtime_copy.c - copies between host, device, symbols and arrays, and memsets. */
#include "softgpu/runtime.h"

#include <string.h>

#define ADDR(p) ((CUdeviceptr)(uintptr_t)(p))

/* -- linear -------------------------------------------------------------------------------- */

static CUresult copy_sync(void *dst, const void *src, size_t n, int kind)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CU(cuMemcpyHtoD_v2)(ADDR(dst), src, n);
	case cudaMemcpyDeviceToHost:
		return CU(cuMemcpyDtoH_v2)(dst, ADDR(src), n);
	case cudaMemcpyDeviceToDevice:
		return CU(cuMemcpyDtoD_v2)(ADDR(dst), ADDR(src), n);
	default:
		return CU(cuMemcpy)(ADDR(dst), ADDR(src), n);
	}
}

static CUresult copy_async(void *dst, const void *src, size_t n, int kind, cudaStream_t stream)
{
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return CU(cuMemcpyHtoDAsync_v2)(ADDR(dst), src, n, stream);
	case cudaMemcpyDeviceToHost:
		return CU(cuMemcpyDtoHAsync_v2)(dst, ADDR(src), n, stream);
	case cudaMemcpyDeviceToDevice:
		return CU(cuMemcpyDtoDAsync_v2)(ADDR(dst), ADDR(src), n, stream);
	default:
		return CU(cuMemcpyAsync)(ADDR(dst), ADDR(src), n, stream);
	}
}

static bool kind_ok(int kind)
{
	return kind >= cudaMemcpyHostToHost && kind <= cudaMemcpyDefault;
}

cudaError_t RTAPI cudaMemcpy(void *dst, const void *src, size_t n, int kind);
cudaError_t RTAPI cudaMemcpy(void *dst, const void *src, size_t n, int kind)
{
	RT_ENTER;
	if (!kind_ok(kind))
		return rt_end(cudaErrorInvalidMemcpyDirection);
	return rt_end(n ? copy_sync(dst, src, n, kind) : CUDA_SUCCESS);
}
RT_TWIN(cudaMemcpy, _ptds, (void *dst, const void *src, size_t n, int kind), (dst, src, n, kind))

cudaError_t RTAPI cudaMemcpyAsync(
	void *dst, const void *src, size_t n, int kind, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpyAsync(
	void *dst, const void *src, size_t n, int kind, cudaStream_t stream)
{
	RT_ENTER;
	if (!kind_ok(kind))
		return rt_end(cudaErrorInvalidMemcpyDirection);
	return rt_end(n ? copy_async(dst, src, n, kind, stream) : CUDA_SUCCESS);
}
RT_TWIN(cudaMemcpyAsync, _ptsz,
	(void *dst, const void *src, size_t n, int kind, cudaStream_t stream),
	(dst, src, n, kind, stream))

static cudaError_t symbol_at(const void *symbol, size_t n, size_t offset, void **at)
{
	CUdeviceptr addr;
	size_t size;
	cudaError_t r = rt_enter();
	if (r || (r = rt_symbol(symbol, &addr, &size)))
		return r;
	if (offset > size || n > size - offset)
		return cudaErrorInvalidValue;
	*at = (void *)(uintptr_t)(addr + offset);
	return cudaSuccess;
}

cudaError_t RTAPI cudaMemcpyToSymbol(
	const void *symbol, const void *src, size_t n, size_t offset, int kind);
cudaError_t RTAPI cudaMemcpyToSymbol(
	const void *symbol, const void *src, size_t n, size_t offset, int kind)
{
	void *at;
	cudaError_t r = symbol_at(symbol, n, offset, &at);
	if (!r && kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice &&
		kind != cudaMemcpyDefault)
		r = cudaErrorInvalidMemcpyDirection;
	return r ? rt_end(r) : cudaMemcpy(at, src, n, kind);
}
RT_TWIN(cudaMemcpyToSymbol, _ptds,
	(const void *symbol, const void *src, size_t n, size_t offset, int kind),
	(symbol, src, n, offset, kind))

cudaError_t RTAPI cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t n,
	size_t offset, int kind, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpyToSymbolAsync(
	const void *symbol, const void *src, size_t n, size_t offset, int kind, cudaStream_t stream)
{
	void *at;
	cudaError_t r = symbol_at(symbol, n, offset, &at);
	return r ? rt_end(r) : cudaMemcpyAsync(at, src, n, kind, stream);
}
RT_TWIN(cudaMemcpyToSymbolAsync, _ptsz,
	(const void *symbol, const void *src, size_t n, size_t offset, int kind,
		cudaStream_t stream),
	(symbol, src, n, offset, kind, stream))

cudaError_t RTAPI cudaMemcpyFromSymbol(
	void *dst, const void *symbol, size_t n, size_t offset, int kind);
cudaError_t RTAPI cudaMemcpyFromSymbol(
	void *dst, const void *symbol, size_t n, size_t offset, int kind)
{
	void *at;
	cudaError_t r = symbol_at(symbol, n, offset, &at);
	if (!r && kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyDeviceToDevice &&
		kind != cudaMemcpyDefault)
		r = cudaErrorInvalidMemcpyDirection;
	return r ? rt_end(r) : cudaMemcpy(dst, at, n, kind);
}
RT_TWIN(cudaMemcpyFromSymbol, _ptds,
	(void *dst, const void *symbol, size_t n, size_t offset, int kind),
	(dst, symbol, n, offset, kind))

cudaError_t RTAPI cudaMemcpyFromSymbolAsync(
	void *dst, const void *symbol, size_t n, size_t offset, int kind, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpyFromSymbolAsync(
	void *dst, const void *symbol, size_t n, size_t offset, int kind, cudaStream_t stream)
{
	void *at;
	cudaError_t r = symbol_at(symbol, n, offset, &at);
	return r ? rt_end(r) : cudaMemcpyAsync(dst, at, n, kind, stream);
}
RT_TWIN(cudaMemcpyFromSymbolAsync, _ptsz,
	(void *dst, const void *symbol, size_t n, size_t offset, int kind, cudaStream_t stream),
	(dst, symbol, n, offset, kind, stream))

cudaError_t RTAPI cudaMemcpyPeer(void *dst, int to, const void *src, int from, size_t n);
cudaError_t RTAPI cudaMemcpyPeer(void *dst, int to, const void *src, int from, size_t n)
{
	CUcontext a, b;
	RT_ENTER;
	cudaError_t r = rt_context(to, &a);
	if (!r)
		r = rt_context(from, &b);
	return rt_end(r ? r : (cudaError_t)CU(cuMemcpyPeer)(ADDR(dst), a, ADDR(src), b, n));
}

cudaError_t RTAPI cudaMemcpyPeerAsync(
	void *dst, int to, const void *src, int from, size_t n, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpyPeerAsync(
	void *dst, int to, const void *src, int from, size_t n, cudaStream_t stream)
{
	CUcontext a, b;
	RT_ENTER;
	cudaError_t r = rt_context(to, &a);
	if (!r)
		r = rt_context(from, &b);
	return rt_end(
		r ? r : (cudaError_t)CU(cuMemcpyPeerAsync)(ADDR(dst), a, ADDR(src), b, n, stream));
}

/* -- two dimensions --------------------------------------------------------------------------- */

/* Which memory a side is, by the direction. */
static CUmemorytype side_type(int kind, bool source)
{
	switch (kind) {
	case cudaMemcpyHostToHost:
		return CU_MEMORYTYPE_HOST;
	case cudaMemcpyHostToDevice:
		return source ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case cudaMemcpyDeviceToHost:
		return source ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	case cudaMemcpyDeviceToDevice:
		return CU_MEMORYTYPE_DEVICE;
	default:
		return CU_MEMORYTYPE_UNIFIED;
	}
}

static void set_src(CUDA_MEMCPY3D *c, const void *p, int kind)
{
	c->srcMemoryType = side_type(kind, true);
	if (c->srcMemoryType == CU_MEMORYTYPE_HOST)
		c->srcHost = p;
	else
		c->srcDevice = ADDR(p);
}

static void set_dst(CUDA_MEMCPY3D *c, void *p, int kind)
{
	c->dstMemoryType = side_type(kind, false);
	if (c->dstMemoryType == CU_MEMORYTYPE_HOST)
		c->dstHost = p;
	else
		c->dstDevice = ADDR(p);
}

static cudaError_t copy_2d(const CUDA_MEMCPY3D *c, int kind, bool async, cudaStream_t stream)
{
	RT_ENTER;
	if (!kind_ok(kind))
		return rt_end(cudaErrorInvalidMemcpyDirection);
	if (!c->WidthInBytes || !c->Height)
		return cudaSuccess;
	if ((c->srcMemoryType != CU_MEMORYTYPE_ARRAY && c->srcPitch < c->WidthInBytes) ||
		(c->dstMemoryType != CU_MEMORYTYPE_ARRAY && c->dstPitch < c->WidthInBytes))
		return rt_end(cudaErrorInvalidPitchValue);
	return rt_end(async ? CU(cuMemcpy3DAsync_v2)(c, stream) : CU(cuMemcpy3D_v2)(c));
}

static cudaError_t copy_pitched(void *dst, size_t dpitch, const void *src, size_t spitch,
	size_t width, size_t height, int kind, bool async, cudaStream_t stream)
{
	CUDA_MEMCPY3D c = { .srcPitch = spitch,
		.dstPitch = dpitch,
		.WidthInBytes = width,
		.Height = height,
		.Depth = 1 };
	set_src(&c, src, kind);
	set_dst(&c, dst, kind);
	return copy_2d(&c, kind, async, stream);
}

cudaError_t RTAPI cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch,
	size_t width, size_t height, int kind);
cudaError_t RTAPI cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch,
	size_t width, size_t height, int kind)
{
	return copy_pitched(dst, dpitch, src, spitch, width, height, kind, false, NULL);
}
RT_TWIN(cudaMemcpy2D, _ptds,
	(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
		int kind),
	(dst, dpitch, src, spitch, width, height, kind))

cudaError_t RTAPI cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
	size_t width, size_t height, int kind, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
	size_t width, size_t height, int kind, cudaStream_t stream)
{
	return copy_pitched(dst, dpitch, src, spitch, width, height, kind, true, stream);
}
RT_TWIN(cudaMemcpy2DAsync, _ptsz,
	(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
		int kind, cudaStream_t stream),
	(dst, dpitch, src, spitch, width, height, kind, stream))

static cudaError_t to_array(cudaArray_t dst, size_t x, size_t y, const void *src, size_t spitch,
	size_t width, size_t height, int kind, bool async, cudaStream_t stream)
{
	CUDA_MEMCPY3D c = { .srcPitch = spitch,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstArray = dst,
		.dstXInBytes = x,
		.dstY = y,
		.WidthInBytes = width,
		.Height = height,
		.Depth = 1 };
	set_src(&c, src, kind);
	return copy_2d(&c, kind, async, stream);
}

static cudaError_t from_array(void *dst, size_t dpitch, cudaArray_t src, size_t x, size_t y,
	size_t width, size_t height, int kind, bool async, cudaStream_t stream)
{
	CUDA_MEMCPY3D c = { .dstPitch = dpitch,
		.srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.srcArray = src,
		.srcXInBytes = x,
		.srcY = y,
		.WidthInBytes = width,
		.Height = height,
		.Depth = 1 };
	set_dst(&c, dst, kind);
	return copy_2d(&c, kind, async, stream);
}

cudaError_t RTAPI cudaMemcpy2DToArray(cudaArray_t dst, size_t x, size_t y, const void *src,
	size_t spitch, size_t width, size_t height, int kind);
cudaError_t RTAPI cudaMemcpy2DToArray(cudaArray_t dst, size_t x, size_t y, const void *src,
	size_t spitch, size_t width, size_t height, int kind)
{
	return to_array(dst, x, y, src, spitch, width, height, kind, false, NULL);
}
RT_TWIN(cudaMemcpy2DToArray, _ptds,
	(cudaArray_t dst, size_t x, size_t y, const void *src, size_t spitch, size_t width,
		size_t height, int kind),
	(dst, x, y, src, spitch, width, height, kind))

cudaError_t RTAPI cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t x, size_t y, const void *src,
	size_t spitch, size_t width, size_t height, int kind, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t x, size_t y, const void *src,
	size_t spitch, size_t width, size_t height, int kind, cudaStream_t stream)
{
	return to_array(dst, x, y, src, spitch, width, height, kind, true, stream);
}
RT_TWIN(cudaMemcpy2DToArrayAsync, _ptsz,
	(cudaArray_t dst, size_t x, size_t y, const void *src, size_t spitch, size_t width,
		size_t height, int kind, cudaStream_t stream),
	(dst, x, y, src, spitch, width, height, kind, stream))

cudaError_t RTAPI cudaMemcpy2DFromArray(void *dst, size_t dpitch, cudaArray_t src, size_t x,
	size_t y, size_t width, size_t height, int kind);
cudaError_t RTAPI cudaMemcpy2DFromArray(void *dst, size_t dpitch, cudaArray_t src, size_t x,
	size_t y, size_t width, size_t height, int kind)
{
	return from_array(dst, dpitch, src, x, y, width, height, kind, false, NULL);
}
RT_TWIN(cudaMemcpy2DFromArray, _ptds,
	(void *dst, size_t dpitch, cudaArray_t src, size_t x, size_t y, size_t width, size_t height,
		int kind),
	(dst, dpitch, src, x, y, width, height, kind))

cudaError_t RTAPI cudaMemcpy2DFromArrayAsync(void *dst, size_t dpitch, cudaArray_t src, size_t x,
	size_t y, size_t width, size_t height, int kind, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpy2DFromArrayAsync(void *dst, size_t dpitch, cudaArray_t src, size_t x,
	size_t y, size_t width, size_t height, int kind, cudaStream_t stream)
{
	return from_array(dst, dpitch, src, x, y, width, height, kind, true, stream);
}
RT_TWIN(cudaMemcpy2DFromArrayAsync, _ptsz,
	(void *dst, size_t dpitch, cudaArray_t src, size_t x, size_t y, size_t width, size_t height,
		int kind, cudaStream_t stream),
	(dst, dpitch, src, x, y, width, height, kind, stream))

/* Runs of bytes that start in a row: here within one row, as nearly every caller means it. */
cudaError_t RTAPI cudaMemcpyToArray(
	cudaArray_t dst, size_t x, size_t y, const void *src, size_t n, int kind);
cudaError_t RTAPI cudaMemcpyToArray(
	cudaArray_t dst, size_t x, size_t y, const void *src, size_t n, int kind)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	struct cudaChannelFormatDesc f;
	RT_ENTER;
	CUresult r = CU(cuArray3DGetDescriptor_v2)(&d, dst);
	if (r)
		return rt_end(r);
	f = rt_channels(d.Format, d.NumChannels);
	size_t row = d.Width * (size_t)(f.x + f.y + f.z + f.w) / 8;
	if (x || n <= row)
		return to_array(dst, x, y, src, n, n, 1, kind, false, NULL);
	cudaError_t e = to_array(dst, 0, y, src, row, row, n / row, kind, false, NULL);
	if (e || n % row == 0)
		return e;
	return to_array(dst, 0, y + n / row, (const char *)src + n / row * row, row, n % row, 1,
		kind, false, NULL);
}
RT_TWIN(cudaMemcpyToArray, _ptds,
	(cudaArray_t dst, size_t x, size_t y, const void *src, size_t n, int kind),
	(dst, x, y, src, n, kind))

cudaError_t RTAPI cudaMemcpyFromArray(
	void *dst, cudaArray_t src, size_t x, size_t y, size_t n, int kind);
cudaError_t RTAPI cudaMemcpyFromArray(
	void *dst, cudaArray_t src, size_t x, size_t y, size_t n, int kind)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	struct cudaChannelFormatDesc f;
	RT_ENTER;
	CUresult r = CU(cuArray3DGetDescriptor_v2)(&d, src);
	if (r)
		return rt_end(r);
	f = rt_channels(d.Format, d.NumChannels);
	size_t row = d.Width * (size_t)(f.x + f.y + f.z + f.w) / 8;
	if (x || n <= row)
		return from_array(dst, n, src, x, y, n, 1, kind, false, NULL);
	cudaError_t e = from_array(dst, row, src, 0, y, row, n / row, kind, false, NULL);
	if (e || n % row == 0)
		return e;
	return from_array((char *)dst + n / row * row, row, src, 0, y + n / row, n % row, 1, kind,
		false, NULL);
}
RT_TWIN(cudaMemcpyFromArray, _ptds,
	(void *dst, cudaArray_t src, size_t x, size_t y, size_t n, int kind),
	(dst, src, x, y, n, kind))

/* -- three dimensions ---------------------------------------------------------------------------
 */

static size_t element_bytes(cudaArray_t array)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	if (CU(cuArray3DGetDescriptor_v2)(&d, array))
		return 0;
	struct cudaChannelFormatDesc f = rt_channels(d.Format, d.NumChannels);
	return (size_t)(f.x + f.y + f.z + f.w) / 8;
}

cudaError_t rt_copy_3d(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *c)
{
	if (!p || !kind_ok(p->kind))
		return p ? cudaErrorInvalidMemcpyDirection : cudaErrorInvalidValue;
	if (!p->srcArray == !p->srcPtr.ptr || !p->dstArray == !p->dstPtr.ptr)
		return cudaErrorInvalidValue;
	/* Where an array takes part, the extent's width counts its elements. */
	size_t element = 1, src_element = 1, dst_element = 1;
	if (p->srcArray && !(element = src_element = element_bytes(p->srcArray)))
		return cudaErrorInvalidValue;
	if (p->dstArray && !(element = dst_element = element_bytes(p->dstArray)))
		return cudaErrorInvalidValue;
	memset(c, 0, sizeof(*c));
	c->srcXInBytes = p->srcPos.x * src_element;
	c->srcY = p->srcPos.y;
	c->srcZ = p->srcPos.z;
	c->dstXInBytes = p->dstPos.x * dst_element;
	c->dstY = p->dstPos.y;
	c->dstZ = p->dstPos.z;
	c->WidthInBytes = p->extent.width * element;
	c->Height = p->extent.height;
	c->Depth = p->extent.depth;
	if (p->srcArray) {
		c->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c->srcArray = p->srcArray;
	} else {
		set_src(c, p->srcPtr.ptr, p->kind);
		c->srcPitch = p->srcPtr.pitch;
		c->srcHeight = p->srcPtr.ysize;
	}
	if (p->dstArray) {
		c->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c->dstArray = p->dstArray;
	} else {
		set_dst(c, p->dstPtr.ptr, p->kind);
		c->dstPitch = p->dstPtr.pitch;
		c->dstHeight = p->dstPtr.ysize;
	}
	return cudaSuccess;
}

static bool host_side(CUmemorytype type)
{
	return type == CU_MEMORYTYPE_HOST;
}

void rt_copy_parms(const CUDA_MEMCPY3D *c, struct cudaMemcpy3DParms *p)
{
	size_t element = 1, src_element = 1, dst_element = 1;
	if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY)
		element = src_element = element_bytes(c->srcArray);
	if (c->dstMemoryType == CU_MEMORYTYPE_ARRAY)
		element = dst_element = element_bytes(c->dstArray);
	if (!element || !src_element || !dst_element)
		element = src_element = dst_element = 1;
	*p = (struct cudaMemcpy3DParms){
		.srcArray = c->srcMemoryType == CU_MEMORYTYPE_ARRAY ? c->srcArray : NULL,
		.srcPos = { c->srcXInBytes / src_element, c->srcY, c->srcZ },
		.dstArray = c->dstMemoryType == CU_MEMORYTYPE_ARRAY ? c->dstArray : NULL,
		.dstPos = { c->dstXInBytes / dst_element, c->dstY, c->dstZ },
		.extent = { c->WidthInBytes / element, c->Height, c->Depth },
	};
	if (!p->srcArray)
		p->srcPtr = (struct cudaPitchedPtr){ host_side(c->srcMemoryType)
							     ? (void *)c->srcHost
							     : (void *)(uintptr_t)c->srcDevice,
			c->srcPitch, c->WidthInBytes, c->srcHeight };
	if (!p->dstArray)
		p->dstPtr = (struct cudaPitchedPtr){
			host_side(c->dstMemoryType) ? c->dstHost : (void *)(uintptr_t)c->dstDevice,
			c->dstPitch, c->WidthInBytes, c->dstHeight
		};
	bool unified = c->srcMemoryType == CU_MEMORYTYPE_UNIFIED ||
		       c->dstMemoryType == CU_MEMORYTYPE_UNIFIED;
	p->kind = unified ? cudaMemcpyDefault
		  : host_side(c->srcMemoryType)
			  ? (host_side(c->dstMemoryType) ? cudaMemcpyHostToHost
							 : cudaMemcpyHostToDevice)
			  : (host_side(c->dstMemoryType) ? cudaMemcpyDeviceToHost
							 : cudaMemcpyDeviceToDevice);
}

cudaError_t rt_copy_1d(CUDA_MEMCPY3D *c, void *dst, const void *src, size_t n, int kind)
{
	if (!kind_ok(kind))
		return cudaErrorInvalidMemcpyDirection;
	*c = (CUDA_MEMCPY3D){ .WidthInBytes = n, .Height = 1, .Depth = 1 };
	set_src(c, src, kind);
	set_dst(c, dst, kind);
	return cudaSuccess;
}

cudaError_t RTAPI cudaMemcpy3D(const struct cudaMemcpy3DParms *p);
cudaError_t RTAPI cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D c;
	RT_ENTER;
	cudaError_t r = rt_copy_3d(p, &c);
	return rt_end(r ? r : (cudaError_t)CU(cuMemcpy3D_v2)(&c));
}
RT_TWIN(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *p), (p))

cudaError_t RTAPI cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
	CUDA_MEMCPY3D c;
	RT_ENTER;
	cudaError_t r = rt_copy_3d(p, &c);
	return rt_end(r ? r : (cudaError_t)CU(cuMemcpy3DAsync_v2)(&c, stream));
}
RT_TWIN(cudaMemcpy3DAsync, _ptsz, (const struct cudaMemcpy3DParms *p, cudaStream_t stream),
	(p, stream))

static cudaError_t copy_3d_peer(const struct cudaMemcpy3DPeerParms *p, bool async, cudaStream_t s)
{
	CUDA_MEMCPY3D c;
	CUDA_MEMCPY3D_PEER d;
	RT_ENTER;
	if (!p)
		return rt_end(cudaErrorInvalidValue);
	struct cudaMemcpy3DParms plain = { p->srcArray, p->srcPos, p->srcPtr, p->dstArray,
		p->dstPos, p->dstPtr, p->extent, cudaMemcpyDeviceToDevice };
	cudaError_t r = rt_copy_3d(&plain, &c);
	_Static_assert(sizeof(c) == sizeof(d), "they differ in the contexts only");
	memcpy(&d, &c, sizeof(d));
	if (!r)
		r = rt_context(p->srcDevice, &d.srcContext);
	if (!r)
		r = rt_context(p->dstDevice, &d.dstContext);
	if (r)
		return rt_end(r);
	return rt_end(async ? CU(cuMemcpy3DPeerAsync)(&d, s) : CU(cuMemcpy3DPeer)(&d));
}

cudaError_t RTAPI cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p);
cudaError_t RTAPI cudaMemcpy3DPeer(const struct cudaMemcpy3DPeerParms *p)
{
	return copy_3d_peer(p, false, NULL);
}
RT_TWIN(cudaMemcpy3DPeer, _ptds, (const struct cudaMemcpy3DPeerParms *p), (p))

cudaError_t RTAPI cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream);
cudaError_t RTAPI cudaMemcpy3DPeerAsync(const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream)
{
	return copy_3d_peer(p, true, stream);
}
RT_TWIN(cudaMemcpy3DPeerAsync, _ptsz, (const struct cudaMemcpy3DPeerParms *p, cudaStream_t stream),
	(p, stream))

/* -- memsets
 * --------------------------------------------------------------------------------------- */

RT_PASS(cudaMemset, (void *p, int value, size_t n), cuMemsetD8_v2,
	(ADDR(p), (unsigned char)value, n))
RT_TWIN(cudaMemset, _ptds, (void *p, int value, size_t n), (p, value, n))
RT_PASS(cudaMemsetAsync, (void *p, int value, size_t n, cudaStream_t stream), cuMemsetD8Async,
	(ADDR(p), (unsigned char)value, n, stream))
RT_TWIN(cudaMemsetAsync, _ptsz, (void *p, int value, size_t n, cudaStream_t stream),
	(p, value, n, stream))
RT_PASS(cudaMemset2D, (void *p, size_t pitch, int value, size_t width, size_t height),
	cuMemsetD2D8_v2, (ADDR(p), pitch, (unsigned char)value, width, height))
RT_TWIN(cudaMemset2D, _ptds, (void *p, size_t pitch, int value, size_t width, size_t height),
	(p, pitch, value, width, height))
RT_PASS(cudaMemset2DAsync,
	(void *p, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
	cuMemsetD2D8Async, (ADDR(p), pitch, (unsigned char)value, width, height, stream))
RT_TWIN(cudaMemset2DAsync, _ptsz,
	(void *p, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
	(p, pitch, value, width, height, stream))

static cudaError_t set_3d(
	struct cudaPitchedPtr p, int value, struct cudaExtent e, bool async, cudaStream_t stream)
{
	CUresult r = CUDA_SUCCESS;
	RT_ENTER;
	for (size_t z = 0; z < e.depth && !r; z++) {
		CUdeviceptr plane = ADDR(p.ptr) + z * p.pitch * p.ysize;
		r = async ? CU(cuMemsetD2D8Async)(
				    plane, p.pitch, (unsigned char)value, e.width, e.height, stream)
			  : CU(cuMemsetD2D8_v2)(
				    plane, p.pitch, (unsigned char)value, e.width, e.height);
	}
	return rt_end(r);
}

cudaError_t RTAPI cudaMemset3D(struct cudaPitchedPtr p, int value, struct cudaExtent e);
cudaError_t RTAPI cudaMemset3D(struct cudaPitchedPtr p, int value, struct cudaExtent e)
{
	return set_3d(p, value, e, false, NULL);
}
RT_TWIN(cudaMemset3D, _ptds, (struct cudaPitchedPtr p, int value, struct cudaExtent e),
	(p, value, e))

cudaError_t RTAPI cudaMemset3DAsync(
	struct cudaPitchedPtr p, int value, struct cudaExtent e, cudaStream_t stream);
cudaError_t RTAPI cudaMemset3DAsync(
	struct cudaPitchedPtr p, int value, struct cudaExtent e, cudaStream_t stream)
{
	return set_3d(p, value, e, true, stream);
}
RT_TWIN(cudaMemset3DAsync, _ptsz,
	(struct cudaPitchedPtr p, int value, struct cudaExtent e, cudaStream_t stream),
	(p, value, e, stream))
