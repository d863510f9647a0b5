/* texture.h - texture and surface objects of a software device.
 *
 * The driver describes an object; the device gives it a handle, which is what cuTexObjectCreate and
 * cuSurfObjectCreate return and what `tex`, `tld4`, `txq`, `suld`, `sust`, `sured` and `suq` are
 * given. Handles are never 0 and are not reused soon, so a stale one ends the launch with a
 * message.
 *
 * Images live in device memory (sg_mem_alloc) that the driver owns: element (x, y, z) of a level is
 * at data + z * slice_bytes + y * row_bytes + x * element bytes. Each access of a kernel is checked
 * against the allocation, so that a freed image is a fault and nothing else. Layers of a layered
 * image and faces of a cube (+x -x +y -y +z -z) are slices. Arrays of the driver are free to choose
 * rows without padding.
 *
 * Every function may be called from any thread.
 */
#ifndef EGPU_SOFTGPU_TEXTURE_H
#define EGPU_SOFTGPU_TEXTURE_H

#include "softgpu/softgpu.h"

enum sg_image_kind {
	SG_IMAGE_LINEAR, /* a buffer: `width` elements, read by tex.1d with whole coordinates */
	SG_IMAGE_1D,
	SG_IMAGE_2D,
	SG_IMAGE_3D,
	SG_IMAGE_1D_LAYERED,
	SG_IMAGE_2D_LAYERED,
	SG_IMAGE_CUBE,
	SG_IMAGE_CUBE_LAYERED, /* slices: 6 * layers */
};

#define SG_MAX_LEVELS 16

struct sg_image_level {
	uint64_t data;                 /* device address */
	uint32_t width, height, depth; /* elements, at least 1; depth: or layers, or faces */
	uint64_t row_bytes, slice_bytes;
};

struct sg_image {
	enum sg_image_kind kind;
	CUarray_format
		format; /* CU_AD_FORMAT_* of one channel: (un)signed 8, 16, 32 bits, half, float */
	uint8_t channels; /* 1, 2 or 4 */
	uint8_t n_levels; /* 1: no mipmap */
	struct sg_image_level level[SG_MAX_LEVELS];
};

enum sg_tex_address {
	SG_TEX_WRAP,
	SG_TEX_CLAMP,
	SG_TEX_MIRROR,
	SG_TEX_BORDER
}; /* CU_TR_ADDRESS_MODE_* */

struct sg_texture {
	struct sg_image image;
	uint8_t address[3]; /* enum sg_tex_address, by dimension */
	bool linear;        /* CU_TR_FILTER_MODE_LINEAR */
	bool mip_linear;
	bool normalized;   /* coordinates (CU_TRSF_NORMALIZED_COORDINATES) */
	bool read_integer; /* CU_TRSF_READ_AS_INTEGER: 8- and 16-bit integers are not turned into
			      fractions */
	bool srgb;         /* CU_TRSF_SRGB, of 8-bit channels */
	float border[4];
	float level_bias, level_min, level_max;
};

/* CUDA_ERROR_INVALID_VALUE: a description that makes no sense (no data, sizes of 0, channels of 3,
 * linear filtering of integers that stay integers). */
CUresult sg_texture_new(struct sg_device *dev, const struct sg_texture *desc, uint64_t *handle);
CUresult sg_texture_get(struct sg_device *dev, uint64_t handle, struct sg_texture *out);
/* Kernels that still use it fault. */
CUresult sg_texture_free(struct sg_device *dev, uint64_t handle);

/* A surface is level 0 of an image. */
CUresult sg_surface_new(struct sg_device *dev, const struct sg_image *image, uint64_t *handle);
CUresult sg_surface_get(struct sg_device *dev, uint64_t handle, struct sg_image *out);
CUresult sg_surface_free(struct sg_device *dev, uint64_t handle);

/* Bytes of one channel; 0: not a format that is handled. */
uint32_t sg_format_bytes(CUarray_format format);

#endif
