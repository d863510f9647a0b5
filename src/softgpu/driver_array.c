/* driver_array.c - arrays, mipmapped arrays, texture and surface objects. Images are rows without
 * padding in device memory of their own. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

struct CUmipmappedArray_st {
	struct drv_object object;
	struct CUctx_st *ctx;
	uint64_t base;
	struct sg_image image;
	struct CUarray_st *level[SG_MAX_LEVELS];
};

/* What a texture object was made of, to be read back. */
struct texture {
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC desc;
	CUDA_RESOURCE_VIEW_DESC view;
	bool has_view;
};
static struct table *textures, *surfaces; /* by handle, with the lock */

/* -- images -------------------------------------------------------------------------------- */

static CUresult image_kind(const CUDA_ARRAY3D_DESCRIPTOR *d, enum sg_image_kind *kind)
{
	bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;
	if (!d->Width || (layered && !d->Depth))
		return CUDA_ERROR_INVALID_VALUE;
	if (cube) {
		if (d->Width != d->Height || !d->Depth || d->Depth % 6 ||
			(!layered && d->Depth != 6))
			return CUDA_ERROR_INVALID_VALUE;
		*kind = layered ? SG_IMAGE_CUBE_LAYERED : SG_IMAGE_CUBE;
	} else if (layered) {
		*kind = d->Height ? SG_IMAGE_2D_LAYERED : SG_IMAGE_1D_LAYERED;
	} else if (d->Depth) {
		if (!d->Height)
			return CUDA_ERROR_INVALID_VALUE;
		*kind = SG_IMAGE_3D;
	} else {
		*kind = d->Height ? SG_IMAGE_2D : SG_IMAGE_1D;
	}
	return CUDA_SUCCESS;
}

static uint32_t halved(uint32_t size, unsigned int level)
{
	return size >> level ? size >> level : 1;
}

/* Lays the levels out one after the other from address 0; *bytes is their sum. */
static CUresult lay_out(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels,
	struct sg_image *image, size_t *bytes)
{
	memset(image, 0, sizeof(*image));
	CUresult r = image_kind(d, &image->kind);
	uint32_t channel = sg_format_bytes(d->Format);
	if (r || !channel || (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4) ||
		d->Width > 131072 || d->Height > 131072 || d->Depth > 65536 || !levels ||
		levels > SG_MAX_LEVELS)
		return CUDA_ERROR_INVALID_VALUE;
	image->format = d->Format;
	image->channels = (uint8_t)d->NumChannels;
	image->n_levels = (uint8_t)levels;
	*bytes = 0;
	for (unsigned int i = 0; i < levels; i++) {
		struct sg_image_level *l = &image->level[i];
		l->data = *bytes;
		l->width = halved((uint32_t)d->Width, i);
		l->height = d->Height ? halved((uint32_t)d->Height, i) : 1;
		l->depth = d->Depth ? (uint32_t)d->Depth : 1;
		if (image->kind == SG_IMAGE_3D)
			l->depth = halved(l->depth, i);
		l->row_bytes = (uint64_t)l->width * channel * d->NumChannels;
		l->slice_bytes = l->row_bytes * l->height;
		*bytes += (l->slice_bytes * l->depth + 255) & ~255ull;
	}
	return CUDA_SUCCESS;
}

static CUresult get_memory(
	struct CUctx_st *ctx, struct sg_image *image, size_t bytes, uint64_t *base)
{
	CUresult r = sg_mem_alloc(drv.dev, bytes, base);
	if (r)
		return r;
	if (!drv_alloc_add(ctx, *base, bytes, DRV_MEM_ARRAY, 0)) {
		sg_mem_free(drv.dev, *base);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (unsigned int i = 0; i < image->n_levels; i++)
		image->level[i].data += *base;
	return CUDA_SUCCESS;
}

static void put_memory(uint64_t base)
{
	struct drv_alloc *a = base ? drv_alloc_at(base) : NULL;
	if (a && a->kind == DRV_MEM_ARRAY) /* else its context went, and the memory with it */
		drv_alloc_release(a);
}

/* -- arrays ---------------------------------------------------------------------------------- */

static struct CUarray_st *array_new(struct CUctx_st *ctx, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct CUarray_st *a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->object.kind = DRV_ARRAY;
	a->ctx = ctx;
	a->desc = *d;
	if (drv_add_handle(&a->object)) {
		free(a);
		return NULL;
	}
	return a;
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct CUctx_st *ctx;
	struct sg_image image;
	size_t bytes;
	uint64_t base;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!out || !d)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = lay_out(d, 1, &image, &bytes)) || (r = drv_capture_unsafe()) ||
		(r = get_memory(ctx, &image, bytes, &base)))
		return drv_leave(r);
	struct CUarray_st *a = array_new(ctx, d);
	if (!a) {
		put_memory(base);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	a->image = image;
	a->base = base;
	*out = a;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	return cuArray3DCreate_v2(out,
		&(CUDA_ARRAY3D_DESCRIPTOR){ d->Width, d->Height, 0, d->Format, d->NumChannels, 0 });
}

CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	const struct CUarray_st *a = drv_find(handle, DRV_ARRAY);
	if (!out || !a)
		return drv_leave(out ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
	*out = a->desc;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray array)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = cuArray3DGetDescriptor_v2(&d, array);
	if (!r)
		*out = (CUDA_ARRAY_DESCRIPTOR){ d.Width, d.Height, d.Format, d.NumChannels };
	return r;
}

CUresult CUDAAPI cuArrayDestroy(CUarray handle)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUarray_st *a = drv_find(handle, DRV_ARRAY);
	if (!a || !a->base) /* a level belongs to its mipmapped array */
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	drv_remove_handle(&a->object);
	r = drv_ctx_drain(ctx);
	put_memory(a->base);
	free(a);
	return drv_leave(r);
}

/* -- mipmapped arrays -------------------------------------------------------------------------- */

static void mipmap_free(struct CUmipmappedArray_st *m)
{
	for (unsigned int i = 0; i < SG_MAX_LEVELS; i++)
		if (m->level[i]) {
			drv_remove_handle(&m->level[i]->object);
			free(m->level[i]);
		}
	put_memory(m->base);
	free(m);
}

static CUresult mipmap_new(struct CUctx_st *ctx, const CUDA_ARRAY3D_DESCRIPTOR *d,
	unsigned int levels, struct CUmipmappedArray_st **out)
{
	size_t bytes;
	unsigned int most = 1, size = (unsigned int)(d->Width > d->Height ? d->Width : d->Height);
	if (!(d->Flags & CUDA_ARRAY3D_LAYERED) && d->Depth > size)
		size = (unsigned int)d->Depth;
	while (most < SG_MAX_LEVELS && size >> most)
		most++;
	struct CUmipmappedArray_st *m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	m->object.kind = DRV_MIPMAP;
	m->ctx = ctx;
	CUresult r = lay_out(d, levels > most ? most : levels, &m->image, &bytes);
	if (!r)
		r = get_memory(ctx, &m->image, bytes, &m->base);
	for (unsigned int i = 0; i < m->image.n_levels && !r; i++) {
		struct CUarray_st *a = m->level[i] = array_new(ctx, d);
		if (!a) {
			r = CUDA_ERROR_OUT_OF_MEMORY;
			break;
		}
		a->image = m->image;
		a->image.n_levels = 1;
		a->image.level[0] = m->image.level[i];
		a->desc.Width = a->image.level[0].width;
		a->desc.Height = d->Height ? a->image.level[0].height : 0;
		a->desc.Depth = d->Depth ? a->image.level[0].depth : 0;
	}
	if (!r && drv_add_handle(&m->object))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r)
		mipmap_free(m);
	else
		*out = m;
	return r;
}

CUresult CUDAAPI cuMipmappedArrayCreate(
	CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	return drv_leave(out && d ? mipmap_new(ctx, d, levels, out) : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray handle, unsigned int level)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	const struct CUmipmappedArray_st *m = drv_find(handle, DRV_MIPMAP);
	if (!m)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!out || level >= m->image.n_levels)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*out = m->level[level];
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUmipmappedArray_st *m = drv_find(handle, DRV_MIPMAP);
	if (!m)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	drv_remove_handle(&m->object);
	r = drv_ctx_drain(ctx);
	mipmap_free(m);
	return drv_leave(r);
}

/* -- objects --------------------------------------------------------------------------------------
 */

static CUresult linear_image(uint64_t addr, CUarray_format format, unsigned int channels,
	size_t width, size_t height, size_t pitch, struct sg_image *image)
{
	size_t element = (size_t)sg_format_bytes(format) * channels, bytes;
	if (!element || !width || !height || width > UINT32_MAX || height > UINT32_MAX ||
		addr % element || __builtin_mul_overflow(pitch, height - 1, &bytes) ||
		__builtin_add_overflow(bytes, width * element, &bytes) ||
		!sg_mem_check(drv.dev, addr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	*image = (struct sg_image){ .kind = height == 1 && !pitch ? SG_IMAGE_LINEAR : SG_IMAGE_2D,
		.format = format,
		.channels = (uint8_t)channels,
		.n_levels = 1 };
	image->level[0] = (struct sg_image_level){ addr, (uint32_t)width, (uint32_t)height, 1,
		pitch ? pitch : width * element, 0 };
	return CUDA_SUCCESS;
}

static CUresult resource_image(const CUDA_RESOURCE_DESC *r, struct sg_image *image)
{
	const struct CUarray_st *a;
	const struct CUmipmappedArray_st *m;
	switch (r->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		if (!(a = drv_find(r->res.array.hArray, DRV_ARRAY)))
			return CUDA_ERROR_INVALID_HANDLE;
		*image = a->image;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		if (!(m = drv_find(r->res.mipmap.hMipmappedArray, DRV_MIPMAP)))
			return CUDA_ERROR_INVALID_HANDLE;
		*image = m->image;
		return CUDA_SUCCESS;
	case CU_RESOURCE_TYPE_LINEAR: {
		size_t element =
			(size_t)sg_format_bytes(r->res.linear.format) * r->res.linear.numChannels;
		return linear_image(r->res.linear.devPtr, r->res.linear.format,
			r->res.linear.numChannels,
			element ? r->res.linear.sizeInBytes / element : 0, 1, 0, image);
	}
	case CU_RESOURCE_TYPE_PITCH2D:
		if (r->res.pitch2D.pitchInBytes == 0)
			return CUDA_ERROR_INVALID_VALUE;
		return linear_image(r->res.pitch2D.devPtr, r->res.pitch2D.format,
			r->res.pitch2D.numChannels, r->res.pitch2D.width, r->res.pitch2D.height,
			r->res.pitch2D.pitchInBytes, image);
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* A view may only say again what the resource is. */
static CUresult check_view(const CUDA_RESOURCE_VIEW_DESC *v, const struct sg_image *image)
{
	if (!v)
		return CUDA_SUCCESS;
	if (v->format > CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
		return CUDA_ERROR_INVALID_VALUE;
	if (v->firstMipmapLevel || v->firstLayer ||
		(v->lastMipmapLevel && v->lastMipmapLevel + 1u < image->n_levels) ||
		(v->width && v->width != image->level[0].width))
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult texture_new(CUtexObject *out, const CUDA_RESOURCE_DESC *resource,
	const CUDA_TEXTURE_DESC *d, const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct sg_texture t = { .linear = d->filterMode == CU_TR_FILTER_MODE_LINEAR,
		.mip_linear = d->mipmapFilterMode == CU_TR_FILTER_MODE_LINEAR,
		.normalized = d->flags & CU_TRSF_NORMALIZED_COORDINATES,
		.read_integer = d->flags & CU_TRSF_READ_AS_INTEGER,
		.srgb = d->flags & CU_TRSF_SRGB,
		.level_bias = d->mipmapLevelBias,
		.level_min = d->minMipmapLevelClamp,
		.level_max = d->maxMipmapLevelClamp };
	CUresult r = resource_image(resource, &t.image);
	if (r || (r = check_view(view, &t.image)))
		return r;
	for (int i = 0; i < 3; i++) {
		if ((unsigned int)d->addressMode[i] > CU_TR_ADDRESS_MODE_BORDER)
			return CUDA_ERROR_INVALID_VALUE;
		/* Without normalized coordinates there is nothing to wrap around. */
		t.address[i] =
			!t.normalized && (d->addressMode[i] == CU_TR_ADDRESS_MODE_WRAP ||
						 d->addressMode[i] == CU_TR_ADDRESS_MODE_MIRROR)
				? SG_TEX_CLAMP
				: (uint8_t)d->addressMode[i];
	}
	memcpy(t.border, d->borderColor, sizeof(t.border));
	uint64_t handle;
	if ((r = sg_texture_new(drv.dev, &t, &handle)))
		return r;
	struct texture *kept = calloc(1, sizeof(*kept));
	if (!textures)
		textures = table_new();
	if (!kept || !textures || table_put(textures, &handle, sizeof(handle), kept)) {
		free(kept);
		sg_texture_free(drv.dev, handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*kept = (struct texture){ .resource = *resource, .desc = *d, .has_view = view };
	if (view)
		kept->view = *view;
	*out = handle;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource,
	const CUDA_TEXTURE_DESC *d, const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	return drv_leave(out && resource && d ? texture_new(out, resource, d, view)
					      : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuTexObjectDestroy(CUtexObject tex)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct texture *t = textures ? table_remove(textures, &tex, sizeof(tex)) : NULL;
	if (!t)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	free(t);
	return drv_leave(sg_texture_free(drv.dev, tex));
}

static CUresult enter_texture(CUtexObject tex, const void *out, const struct texture **t)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*t = textures ? table_get(textures, &tex, sizeof(tex)) : NULL;
	return *t && out ? CUDA_SUCCESS
			 : drv_leave(out ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUtexObject tex)
{
	const struct texture *t;
	CUresult r = enter_texture(tex, out, &t);
	if (r)
		return r;
	*out = t->resource;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *out, CUtexObject tex)
{
	const struct texture *t;
	CUresult r = enter_texture(tex, out, &t);
	if (r)
		return r;
	*out = t->desc;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *out, CUtexObject tex)
{
	const struct texture *t;
	CUresult r = enter_texture(tex, out, &t);
	if (r)
		return r;
	if (!t->has_view)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*out = t->view;
	return drv_leave(CUDA_SUCCESS);
}

static CUresult surface_new(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource)
{
	struct sg_image image;
	uint64_t handle;
	CUresult r = resource_image(resource, &image);
	if (r || (r = sg_surface_new(drv.dev, &image, &handle)))
		return r;
	CUDA_RESOURCE_DESC *kept = calloc(1, sizeof(*kept));
	if (!surfaces)
		surfaces = table_new();
	if (!kept || !surfaces || table_put(surfaces, &handle, sizeof(handle), kept)) {
		free(kept);
		sg_surface_free(drv.dev, handle);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*kept = *resource;
	*out = handle;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!out || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_leave(surface_new(out, resource));
}

CUresult CUDAAPI cuSurfObjectDestroy(CUsurfObject surf)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	CUDA_RESOURCE_DESC *kept = surfaces ? table_remove(surfaces, &surf, sizeof(surf)) : NULL;
	if (!kept)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	free(kept);
	return drv_leave(sg_surface_free(drv.dev, surf));
}

CUresult CUDAAPI cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *out, CUsurfObject surf)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	const CUDA_RESOURCE_DESC *kept = surfaces ? table_get(surfaces, &surf, sizeof(surf)) : NULL;
	if (!out || !kept)
		return drv_leave(out ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE);
	*out = *kept;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetTexture1DLinearMaxWidth(
	size_t *elements, CUarray_format format, unsigned channels, CUdevice dev)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	size_t element = (size_t)sg_format_bytes(format) * channels;
	if (!elements || !element)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	*elements = (size_t)(1 << 28) / (element > 4 ? element / 4 : 1);
	return drv_leave(CUDA_SUCCESS);
}
