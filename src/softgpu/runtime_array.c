/* runtime_array.c - arrays, texture and surface objects. */
#include "softgpu/runtime.h"

#include <string.h>

/* -- formats -------------------------------------------------------------------------------- */

bool rt_format(const struct cudaChannelFormatDesc *d, CUarray_format *format, unsigned *channels)
{
	const int bits[4] = { d->x, d->y, d->z, d->w };
	unsigned n = 0;
	while (n < 4 && bits[n])
		n++;
	for (unsigned i = 0; i < 4; i++)
		if (bits[i] != (i < n ? bits[0] : 0))
			return false;
	if (n != 1 && n != 2 && n != 4)
		return false;
	*channels = n;
	if (d->f == cudaChannelFormatKindFloat)
		*format = bits[0] == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
	else if (d->f == cudaChannelFormatKindUnsigned)
		*format = bits[0] == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
			  : bits[0] == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
					  : CU_AD_FORMAT_UNSIGNED_INT32;
	else if (d->f == cudaChannelFormatKindSigned)
		*format = bits[0] == 8    ? CU_AD_FORMAT_SIGNED_INT8
			  : bits[0] == 16 ? CU_AD_FORMAT_SIGNED_INT16
					  : CU_AD_FORMAT_SIGNED_INT32;
	else
		return false;
	return bits[0] == 32 || bits[0] == 16 ||
	       (bits[0] == 8 && d->f != cudaChannelFormatKindFloat);
}

struct cudaChannelFormatDesc rt_channels(CUarray_format format, unsigned channels)
{
	int bits = format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8 ? 8
		   : format == CU_AD_FORMAT_UNSIGNED_INT16 || format == CU_AD_FORMAT_SIGNED_INT16 ||
				   format == CU_AD_FORMAT_HALF
			   ? 16
			   : 32;
	struct cudaChannelFormatDesc d = { .x = channels > 0 ? bits : 0,
		.y = channels > 1 ? bits : 0,
		.z = channels > 2 ? bits : 0,
		.w = channels > 3 ? bits : 0 };
	d.f = format == CU_AD_FORMAT_HALF || format == CU_AD_FORMAT_FLOAT
		      ? cudaChannelFormatKindFloat
	      : format >= CU_AD_FORMAT_SIGNED_INT8 ? cudaChannelFormatKindSigned
						   : cudaChannelFormatKindUnsigned;
	return d;
}

RTAPI struct cudaChannelFormatDesc cudaCreateChannelDesc(
	int x, int y, int z, int w, enum cudaChannelFormatKind f);
RTAPI struct cudaChannelFormatDesc cudaCreateChannelDesc(
	int x, int y, int z, int w, enum cudaChannelFormatKind f)
{
	return (struct cudaChannelFormatDesc){ x, y, z, w, f };
}

/* -- arrays ---------------------------------------------------------------------------------- */

cudaError_t RTAPI cudaMalloc3DArray(cudaArray_t *out, const struct cudaChannelFormatDesc *desc,
	struct cudaExtent extent, unsigned int flags);
cudaError_t RTAPI cudaMalloc3DArray(cudaArray_t *out, const struct cudaChannelFormatDesc *desc,
	struct cudaExtent extent, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = extent.width,
		.Height = extent.height,
		.Depth = extent.depth,
		.Flags = flags };
	RT_ENTER;
	if (!out || !desc)
		return rt_end(cudaErrorInvalidValue);
	if (!rt_format(desc, &d.Format, &d.NumChannels))
		return rt_end(cudaErrorInvalidChannelDescriptor);
	return rt_end(CU(cuArray3DCreate_v2)(out, &d));
}

cudaError_t RTAPI cudaMallocArray(cudaArray_t *out, const struct cudaChannelFormatDesc *desc,
	size_t width, size_t height, unsigned int flags);
cudaError_t RTAPI cudaMallocArray(cudaArray_t *out, const struct cudaChannelFormatDesc *desc,
	size_t width, size_t height, unsigned int flags)
{
	return cudaMalloc3DArray(out, desc, (struct cudaExtent){ width, height, 0 }, flags);
}

cudaError_t RTAPI cudaFreeArray(cudaArray_t array);
cudaError_t RTAPI cudaFreeArray(cudaArray_t array)
{
	RT_ENTER;
	return rt_end(array ? CU(cuArrayDestroy)(array) : CUDA_SUCCESS);
}

cudaError_t RTAPI cudaMallocMipmappedArray(cudaMipmappedArray_t *out,
	const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned int levels,
	unsigned int flags);
cudaError_t RTAPI cudaMallocMipmappedArray(cudaMipmappedArray_t *out,
	const struct cudaChannelFormatDesc *desc, struct cudaExtent extent, unsigned int levels,
	unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = extent.width,
		.Height = extent.height,
		.Depth = extent.depth,
		.Flags = flags };
	RT_ENTER;
	if (!out || !desc)
		return rt_end(cudaErrorInvalidValue);
	if (!rt_format(desc, &d.Format, &d.NumChannels))
		return rt_end(cudaErrorInvalidChannelDescriptor);
	return rt_end(CU(cuMipmappedArrayCreate)(out, &d, levels));
}

RT_PASS(cudaGetMipmappedArrayLevel,
	(cudaArray_t * level, cudaMipmappedArray_t array, unsigned int n), cuMipmappedArrayGetLevel,
	(level, array, n))
RT_PASS(cudaFreeMipmappedArray, (cudaMipmappedArray_t array), cuMipmappedArrayDestroy, (array))

cudaError_t RTAPI cudaArrayGetInfo(struct cudaChannelFormatDesc *desc, struct cudaExtent *extent,
	unsigned int *flags, cudaArray_t array);
cudaError_t RTAPI cudaArrayGetInfo(struct cudaChannelFormatDesc *desc, struct cudaExtent *extent,
	unsigned int *flags, cudaArray_t array)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	RT_ENTER;
	CUresult r = CU(cuArray3DGetDescriptor_v2)(&d, array);
	if (r)
		return rt_end(r);
	if (desc)
		*desc = rt_channels(d.Format, d.NumChannels);
	if (extent)
		*extent = (struct cudaExtent){ d.Width, d.Height, d.Depth };
	if (flags)
		*flags = d.Flags;
	return cudaSuccess;
}

cudaError_t RTAPI cudaGetChannelDesc(struct cudaChannelFormatDesc *desc, cudaArray_t array);
cudaError_t RTAPI cudaGetChannelDesc(struct cudaChannelFormatDesc *desc, cudaArray_t array)
{
	if (!desc)
		return rt_end(cudaErrorInvalidValue);
	return cudaArrayGetInfo(desc, NULL, NULL, array);
}

/* -- objects ----------------------------------------------------------------------------------- */

static cudaError_t resource_of(const struct cudaResourceDesc *r, CUDA_RESOURCE_DESC *out)
{
	memset(out, 0, sizeof(*out));
	if (!r)
		return cudaErrorInvalidValue;
	out->resType = r->resType;
	switch (r->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		out->res.array.hArray = r->res.array.array;
		return cudaSuccess;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		out->res.mipmap.hMipmappedArray = r->res.mipmap.mipmap;
		return cudaSuccess;
	case CU_RESOURCE_TYPE_LINEAR:
		out->res.linear.devPtr = (uintptr_t)r->res.linear.devPtr;
		out->res.linear.sizeInBytes = r->res.linear.sizeInBytes;
		return rt_format(&r->res.linear.desc, &out->res.linear.format,
			       &out->res.linear.numChannels)
			       ? cudaSuccess
			       : cudaErrorInvalidChannelDescriptor;
	case CU_RESOURCE_TYPE_PITCH2D:
		out->res.pitch2D.devPtr = (uintptr_t)r->res.pitch2D.devPtr;
		out->res.pitch2D.width = r->res.pitch2D.width;
		out->res.pitch2D.height = r->res.pitch2D.height;
		out->res.pitch2D.pitchInBytes = r->res.pitch2D.pitchInBytes;
		return rt_format(&r->res.pitch2D.desc, &out->res.pitch2D.format,
			       &out->res.pitch2D.numChannels)
			       ? cudaSuccess
			       : cudaErrorInvalidChannelDescriptor;
	}
	return cudaErrorInvalidValue;
}

static void resource_from(const CUDA_RESOURCE_DESC *r, struct cudaResourceDesc *out)
{
	memset(out, 0, sizeof(*out));
	out->resType = r->resType;
	switch (r->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		out->res.array.array = r->res.array.hArray;
		break;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		out->res.mipmap.mipmap = r->res.mipmap.hMipmappedArray;
		break;
	case CU_RESOURCE_TYPE_LINEAR:
		out->res.linear.devPtr = (void *)(uintptr_t)r->res.linear.devPtr;
		out->res.linear.desc = rt_channels(r->res.linear.format, r->res.linear.numChannels);
		out->res.linear.sizeInBytes = r->res.linear.sizeInBytes;
		break;
	case CU_RESOURCE_TYPE_PITCH2D:
		out->res.pitch2D.devPtr = (void *)(uintptr_t)r->res.pitch2D.devPtr;
		out->res.pitch2D.desc =
			rt_channels(r->res.pitch2D.format, r->res.pitch2D.numChannels);
		out->res.pitch2D.width = r->res.pitch2D.width;
		out->res.pitch2D.height = r->res.pitch2D.height;
		out->res.pitch2D.pitchInBytes = r->res.pitch2D.pitchInBytes;
		break;
	}
}

cudaError_t RTAPI cudaCreateTextureObject(CUtexObject *out, const struct cudaResourceDesc *resource,
	const struct cudaTextureDesc *t, const CUDA_RESOURCE_VIEW_DESC *view);
cudaError_t RTAPI cudaCreateTextureObject(CUtexObject *out, const struct cudaResourceDesc *resource,
	const struct cudaTextureDesc *t, const CUDA_RESOURCE_VIEW_DESC *view)
{
	CUDA_RESOURCE_DESC r;
	RT_ENTER;
	cudaError_t e = out && t ? resource_of(resource, &r) : cudaErrorInvalidValue;
	if (e)
		return rt_end(e);
	CUDA_TEXTURE_DESC d = { .filterMode = t->filterMode,
		.maxAnisotropy = t->maxAnisotropy,
		.mipmapFilterMode = t->mipmapFilterMode,
		.mipmapLevelBias = t->mipmapLevelBias,
		.minMipmapLevelClamp = t->minMipmapLevelClamp,
		.maxMipmapLevelClamp = t->maxMipmapLevelClamp };
	memcpy(d.addressMode, t->addressMode, sizeof(d.addressMode));
	memcpy(d.borderColor, t->borderColor, sizeof(d.borderColor));
	d.flags = (t->readMode ? 0u : CU_TRSF_READ_AS_INTEGER) |
		  (t->normalizedCoords ? CU_TRSF_NORMALIZED_COORDINATES : 0u) |
		  (t->sRGB ? CU_TRSF_SRGB : 0u) |
		  (t->disableTrilinearOptimization ? CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION : 0u) |
		  (t->seamlessCubemap ? CU_TRSF_SEAMLESS_CUBEMAP : 0u);
	return rt_end(CU(cuTexObjectCreate)(out, &r, &d, view));
}

RT_PASS(cudaDestroyTextureObject, (CUtexObject tex), cuTexObjectDestroy, (tex))
RT_PASS(cudaGetTextureObjectResourceViewDesc, (CUDA_RESOURCE_VIEW_DESC * view, CUtexObject tex),
	cuTexObjectGetResourceViewDesc, (view, tex))

cudaError_t RTAPI cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *out, CUtexObject tex);
cudaError_t RTAPI cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *out, CUtexObject tex)
{
	CUDA_RESOURCE_DESC r;
	RT_ENTER;
	CUresult e = out ? CU(cuTexObjectGetResourceDesc)(&r, tex) : CUDA_ERROR_INVALID_VALUE;
	if (!e)
		resource_from(&r, out);
	return rt_end(e);
}

cudaError_t RTAPI cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *out, CUtexObject tex);
cudaError_t RTAPI cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *out, CUtexObject tex)
{
	CUDA_TEXTURE_DESC d;
	RT_ENTER;
	CUresult e = out ? CU(cuTexObjectGetTextureDesc)(&d, tex) : CUDA_ERROR_INVALID_VALUE;
	if (e)
		return rt_end(e);
	*out = (struct cudaTextureDesc){ .filterMode = d.filterMode,
		.readMode = !(d.flags & CU_TRSF_READ_AS_INTEGER),
		.sRGB = !!(d.flags & CU_TRSF_SRGB),
		.normalizedCoords = !!(d.flags & CU_TRSF_NORMALIZED_COORDINATES),
		.maxAnisotropy = d.maxAnisotropy,
		.mipmapFilterMode = d.mipmapFilterMode,
		.mipmapLevelBias = d.mipmapLevelBias,
		.minMipmapLevelClamp = d.minMipmapLevelClamp,
		.maxMipmapLevelClamp = d.maxMipmapLevelClamp,
		.disableTrilinearOptimization =
			!!(d.flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION),
		.seamlessCubemap = !!(d.flags & CU_TRSF_SEAMLESS_CUBEMAP) };
	memcpy(out->addressMode, d.addressMode, sizeof(d.addressMode));
	memcpy(out->borderColor, d.borderColor, sizeof(d.borderColor));
	return cudaSuccess;
}

cudaError_t RTAPI cudaCreateSurfaceObject(
	CUsurfObject *out, const struct cudaResourceDesc *resource);
cudaError_t RTAPI cudaCreateSurfaceObject(
	CUsurfObject *out, const struct cudaResourceDesc *resource)
{
	CUDA_RESOURCE_DESC r;
	RT_ENTER;
	cudaError_t e = out ? resource_of(resource, &r) : cudaErrorInvalidValue;
	return rt_end(e ? e : (cudaError_t)CU(cuSurfObjectCreate)(out, &r));
}

RT_PASS(cudaDestroySurfaceObject, (CUsurfObject surf), cuSurfObjectDestroy, (surf))

cudaError_t RTAPI cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *out, CUsurfObject surf);
cudaError_t RTAPI cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *out, CUsurfObject surf)
{
	CUDA_RESOURCE_DESC r;
	RT_ENTER;
	CUresult e = out ? CU(cuSurfObjectGetResourceDesc)(&r, surf) : CUDA_ERROR_INVALID_VALUE;
	if (!e)
		resource_from(&r, out);
	return rt_end(e);
}
