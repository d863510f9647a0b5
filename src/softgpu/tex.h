/* tex.h - a decoded texture or surface instruction: what decode_tex.c leaves for exec_tex.c in
 * insn.list. */
#ifndef EGPU_SOFTGPU_TEX_H
#define EGPU_SOFTGPU_TEX_H

#include "softgpu/internal.h"
#include "softgpu/texture.h"

enum sg_geom { SG_G_1D, SG_G_2D, SG_G_3D, SG_G_A1D, SG_G_A2D, SG_G_CUBE, SG_G_ACUBE };
enum sg_tex_mode { SG_T_BASE, SG_T_LEVEL, SG_T_GRAD, SG_T_GATHER };
enum sg_tex_query {
	SG_Q_WIDTH,
	SG_Q_HEIGHT,
	SG_Q_DEPTH,
	SG_Q_DATA_TYPE,
	SG_Q_ORDER,
	SG_Q_NORMALIZED,
	SG_Q_ARRAY_SIZE,
	SG_Q_LEVELS,
	SG_Q_FILTER,
	SG_Q_ADDRESS_0,
	SG_Q_ADDRESS_1,
	SG_Q_ADDRESS_2
};
enum sg_surf_clamp { SG_S_TRAP, SG_S_CLAMP, SG_S_ZERO };

struct sg_tex {
	uint8_t geom, mode, component;
	uint8_t dims; /* coordinates that are not the layer: 1, 2, 3 */
	bool layered; /* the layer is the first coordinate */
	bool whole;   /* coordinates are integers */
	bool has_offset;
	uint8_t n;         /* registers of d, or of a surface's data */
	uint32_t handle;   /* 64-bit lanes */
	uint32_t coord[4]; /* layer first, when there is one */
	uint32_t lod;      /* LEVEL */
	uint32_t dx[3], dy[3];
	uint32_t offset[3];
	uint32_t data[4];
	/* surfaces */
	uint8_t clamp, bytes; /* of one data element */
	bool formatted;
};

/* texture.c; the result may change when the object is destroyed meanwhile, but stays readable. */
const struct sg_texture *sg_texture_find(struct sg_device *dev, uint64_t handle);
const struct sg_image *sg_surface_find(struct sg_device *dev, uint64_t handle);

/* Texels to be added up, each with its weight in 1/256; all weights are 256 together. */
struct sg_filter {
	uint32_t n;
	struct {
		uint32_t weight;
		float v[4]; /* for sg_filter_fixed the integers of the image */
	} term[16];
};

/* Weights of the 2^dims texels around a position, bit k of the index for dimension k, when all have
 * `share` of 256 together; fraction: where between its texels the position is, in 1/256. */
void sg_filter_weights(uint32_t share, const uint32_t *fraction, uint32_t dims, uint32_t *out);
float sg_filter_float(const struct sg_filter *f, uint32_t channel);
/* For half floats and the colours of sRGB images. */
float sg_filter_half(const struct sg_filter *f, uint32_t channel, bool is_srgb);
/* For 8- and 16-bit integers (bytes 1, 2) that are read as fractions. */
float sg_filter_fixed(const struct sg_filter *f, uint32_t channel, uint32_t bytes, bool is_signed);

SG_HANDLER(sg_tex);
SG_HANDLER(sg_txq);
SG_HANDLER(sg_suq);
SG_HANDLER(sg_suld);
SG_HANDLER(sg_sust);
SG_HANDLER(sg_sured);
SG_HANDLER(sg_istypep);

#endif
