/* exec_tex.c - texture fetches with filtering, and surface accesses.
 *
 * What the guides leave open is as an H200 does it (tests/differential/textures.c). Normalised
 * coordinates are cut to 21 bits of fraction (or more, for large images) before they are scaled, so
 * 2/19 in a row of 19 texels may be texel 1. Linear filtering rounds the position to 1/256 of a
 * texel; with xB = x - 0.5, the texels at floor(xB) and next to it are weighed by the fraction of
 * xB (tex_filter.c). Faces of a cube do not blend with their neighbours.
 */
#include "softgpu/tex.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* A texel: floats, or the bits of integers that stay integers. */
struct texel {
	union {
		float f[4];
		uint32_t u[4];
	};
};

struct sampler {
	struct sg_warp *w;
	const struct sg_insn *in;
	const struct sg_tex *tex;
	const struct sg_texture *t;
	uint32_t lane;
	bool is_float, failed;
	bool fixed; /* integers of 8 or 16 bits stay so until they are added up */
};

/* -- texels ------------------------------------------------------------------- */

static bool stays_integer(const struct sg_texture *t)
{
	switch ((int)t->image.format) {
	case CU_AD_FORMAT_HALF:
	case CU_AD_FORMAT_FLOAT:
		return false;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
		return true;
	default:
		return t->read_integer;
	}
}

/* v to a whole number of `unit`s, the nearest. */
static double to_unit(double v, double unit)
{
	return floor(v / unit + 0.5) * unit;
}

/* Eight significant bits, of which none is below 2^-14; some bytes have one bit less. */
static float from_srgb(uint8_t byte)
{
	double v = byte / 255.0, linear = v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
	int exponent, lost;
	if (!byte)
		return 0;
	frexp(linear, &exponent);
	switch (byte) {
	case 33:
	case 66:
	case 70:
	case 97:
	case 186:
	case 234:
	case 249:
	case 250:
		lost = 7;
		break;
	default:
		lost = 8;
	}
	return (float)to_unit(linear, ldexp(1, exponent - lost < -14 ? -14 : exponent - lost));
}

static uint32_t bits_of(float v)
{
	uint32_t u;
	memcpy(&u, &v, 4);
	return u;
}

/* Whether a channel is added up as an integer; colours that are not linear are not. */
static bool as_integer(const struct sampler *s, uint32_t k)
{
	return s->fixed && !(s->t->srgb && k < 3);
}

static uint32_t channel(const struct sampler *s, const uint8_t *p, uint32_t k)
{
	uint16_t h;
	uint32_t u;
	bool fraction = s->is_float && !as_integer(s, k);
	switch ((int)s->t->image.format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
		if (!fraction)
			return *p;
		return bits_of(s->t->srgb && k < 3 ? from_srgb(*p) : (float)*p / 255.0f);
	case CU_AD_FORMAT_SIGNED_INT8:
		return fraction ? bits_of(fmaxf((float)(int8_t)*p / 127.0f, -1.0f))
				: (uint32_t)(int32_t)(int8_t)*p;
	case CU_AD_FORMAT_UNSIGNED_INT16:
		memcpy(&h, p, 2);
		return fraction ? bits_of((float)h / 65535.0f) : h;
	case CU_AD_FORMAT_SIGNED_INT16:
		memcpy(&h, p, 2);
		return fraction ? bits_of(fmaxf((float)(int16_t)h / 32767.0f, -1.0f))
				: (uint32_t)(int32_t)(int16_t)h;
	case CU_AD_FORMAT_HALF:
		memcpy(&h, p, 2);
		return bits_of(sg_half_to_float(h));
	default:
		memcpy(&u, p, 4);
		return u;
	}
}

static uint8_t *image_at(struct sg_warp *w, const struct sg_image *image, uint32_t level,
	uint32_t x_bytes, uint32_t y, uint32_t z, uint32_t bytes)
{
	const struct sg_image_level *l = &image->level[level];
	uint64_t at = l->data + z * l->slice_bytes + y * l->row_bytes + x_bytes;
	/* Texels are as aligned as they are large in every array, but a buffer may start anywhere.
	 */
	if (at & (bytes - 1))
		return sg_mem_at(w->mem, at, 1) && sg_mem_at(w->mem, at + bytes - 1, 1)
			       ? (void *)(uintptr_t)at
			       : NULL;
	return sg_mem_at(w->mem, at, bytes);
}

static struct texel read_texel(
	struct sampler *s, uint32_t level, uint32_t x, uint32_t y, uint32_t z)
{
	const struct sg_image *image = &s->t->image;
	uint32_t bytes = sg_format_bytes(image->format),
		 n = image->channels > 4 ? 4 : image->channels;
	/* Channels that the format lacks are 0, the fourth as well. */
	struct texel r = { .u = { 0 } };
	const uint8_t *p = image_at(s->w, image, level, x * bytes * n, y, z, bytes * n);
	if (!p) {
		if (!s->failed)
			sg_fault(s->w, s->in, CUDA_ERROR_ILLEGAL_ADDRESS, (int)s->lane,
				"the image of this texture is not in device memory");
		s->failed = true;
		return r;
	}
	for (uint32_t k = 0; k < n; k++)
		r.u[k] = channel(s, p + k * bytes, k);
	return r;
}

static bool has_sign(const struct sampler *s)
{
	return s->t->image.format == CU_AD_FORMAT_SIGNED_INT8 ||
	       s->t->image.format == CU_AD_FORMAT_SIGNED_INT16;
}

/* The largest integer of a channel of 8 or 16 bits. */
static float most(const struct sampler *s)
{
	return (float)((1u << (8 * sg_format_bytes(s->t->image.format) - has_sign(s))) - 1);
}

static struct texel border(const struct sampler *s)
{
	struct texel r = { .u = { 0 } };
	for (uint32_t k = 0; k < s->t->image.channels; k++)
		if (as_integer(s, k))
			r.u[k] = (uint32_t)(int32_t)roundf(
				fmaxf(fminf(s->t->border[k], 1), -1) * most(s));
		else
			r.f[k] = s->t->border[k];
	return r;
}

/* -- coordinates --------------------------------------------------------------- */

/* Index i of n by the address mode; false: outside, the border colour. */
static bool wrap_index(uint8_t mode, int64_t i, uint32_t n, uint32_t *out)
{
	int64_t size = n, period;
	switch (mode) {
	case SG_TEX_WRAP:
		i %= size;
		*out = (uint32_t)(i < 0 ? i + size : i);
		return true;
	case SG_TEX_MIRROR:
		period = 2 * size;
		i %= period;
		i = i < 0 ? i + period : i;
		*out = (uint32_t)(i < size ? i : period - 1 - i);
		return true;
	case SG_TEX_BORDER:
		*out = (uint32_t)i;
		return i >= 0 && i < size;
	default:
		*out = (uint32_t)(i < 0 ? 0 : i >= size ? size - 1 : i);
		return true;
	}
}

static int64_t whole(double v)
{
	return v != v      ? 0
	       : v > 1e15  ? (int64_t)1e15
	       : v < -1e15 ? -(int64_t)1e15
			   : (int64_t)floor(v);
}

/* One dimension: its texels, and the weight of the second in 1/256. */
struct axis {
	int64_t first;
	uint32_t weight;
	uint8_t mode;
	uint32_t n;
};

/* A normalised coordinate in texels: cut to 21 bits of fraction, or as many as 1/256 of a texel
 * needs. */
static double scaled(double x, uint32_t n, uint8_t mode)
{
	/* Wrapped and mirrored images repeat after 2, for infinities too. */
	if (mode == SG_TEX_WRAP || mode == SG_TEX_MIRROR)
		x = isinf(x) ? 0 : fmod(x, 2);
	uint32_t size_bits = n < 2 ? 0 : 32u - (uint32_t)__builtin_clz(n - 1);
	double unit = ldexp(1, size_bits > 13 ? (int)size_bits + 8 : 21);
	return floor(x * unit) / unit * n;
}

static struct axis axis_of(
	const struct sampler *s, uint32_t k, double x, uint32_t n, int32_t offset, bool linear)
{
	uint8_t mode = s->t->address[k];
	struct axis a = { .mode = mode, .n = n };
	/* Denormal numbers are 0, also negative ones. */
	x = fabs(x) < FLT_MIN ? 0 : x;
	if (s->t->normalized && !s->tex->whole)
		x = scaled(x, n, mode);
	else if (mode == SG_TEX_WRAP || mode == SG_TEX_MIRROR)
		a.mode = SG_TEX_CLAMP;
	if (!linear) {
		a.first = whole(x) + offset;
		return a;
	}
	int64_t at = whole(x * 256 + 0.5) - 128;
	a.first = (at >> 8) + offset;
	a.weight = at & 255;
	return a;
}

static struct texel fetch(struct sampler *s, uint32_t level, const struct axis *a,
	const uint32_t *step, uint32_t dims, uint32_t slice)
{
	uint32_t at[3] = { 0, 0, slice };
	for (uint32_t k = 0; k < dims; k++)
		if (!wrap_index(a[k].mode, a[k].first + step[k], a[k].n, &at[k]))
			return border(s);
	return read_texel(s, level, at[0], at[1], at[2]);
}

/* -- sampling ------------------------------------------------------------------ */

static void sizes(const struct sg_image *image, uint32_t level, uint32_t size[3])
{
	size[0] = image->level[level].width;
	size[1] = image->level[level].height;
	size[2] = image->level[level].depth;
}

/* By whole coordinates: without address modes, and nothing but zeros outside. */
static struct texel texel_at(struct sampler *s, uint32_t level, const double *x, uint32_t dims,
	uint32_t slice, const int32_t *offset)
{
	const struct texel none = { .u = { 0 } };
	uint32_t size[3], at[3] = { 0, 0, slice };
	sizes(&s->t->image, level, size);
	/* tex.1d with whole coordinates is for buffers and finds nothing in an array. */
	if (s->tex->geom == SG_G_1D && s->t->image.kind != SG_IMAGE_LINEAR)
		return none;
	for (uint32_t k = 0; k < dims; k++) {
		int64_t i = whole(x[k]) + offset[k];
		if (i < 0 || i >= size[k])
			return none;
		at[k] = (uint32_t)i;
	}
	return read_texel(s, level, at[0], at[1], at[2]);
}

/* Without filtering, the nearest. */
static struct texel one_texel(struct sampler *s, uint32_t level, const double *x, uint32_t dims,
	uint32_t slice, const int32_t *offset)
{
	uint32_t size[3], zero[3] = { 0 };
	struct axis a[3];
	if (s->tex->whole || s->t->image.kind == SG_IMAGE_LINEAR)
		return texel_at(s, level, x, dims, slice, offset);
	sizes(&s->t->image, level, size);
	for (uint32_t k = 0; k < dims; k++)
		a[k] = axis_of(s, k, x[k], size[k], offset[k], false);
	return fetch(s, level, a, zero, dims, slice);
}

static void add_term(const struct sampler *s, struct sg_filter *f, uint32_t weight, struct texel t)
{
	f->term[f->n].weight = weight;
	for (uint32_t k = 0; k < 4; k++)
		f->term[f->n].v[k] = as_integer(s, k) ? (float)(int32_t)t.u[k] : t.f[k];
	f->n++;
}

/* What a level gives to a sum in which it has `share` of 256. */
static void add_level(struct sampler *s, struct sg_filter *f, uint32_t share, uint32_t level,
	const double *x, uint32_t dims, uint32_t slice, const int32_t *offset)
{
	uint32_t size[3], fraction[3] = { 0 }, weight[8];
	struct axis a[3];
	if (!s->t->linear) {
		add_term(s, f, share, one_texel(s, level, x, dims, slice, offset));
		return;
	}
	sizes(&s->t->image, level, size);
	/* A row is an image of height 1, read at its upper edge: half of what linear filtering
	 * gives lies outside. */
	dims += s->tex->geom == SG_G_1D;
	for (uint32_t k = 0; k < dims; k++) {
		a[k] = axis_of(s, k, x[k], size[k], offset[k], true);
		bool clamped =
			a[k].mode == SG_TEX_CLAMP && (a[k].first < 0 || a[k].first >= a[k].n - 1ll);
		fraction[k] = clamped ? 0 : a[k].weight;
	}
	sg_filter_weights(share, fraction, dims, weight);
	for (uint32_t corner = 0; corner < 1u << dims; corner++) {
		uint32_t step[3] = { corner & 1, corner >> 1 & 1, corner >> 2 };
		if (weight[corner])
			add_term(s, f, weight[corner], fetch(s, level, a, step, dims, slice));
	}
}

static struct texel filtered(const struct sampler *s, const struct sg_filter *f)
{
	struct texel r = { .u = { 0 } };
	uint32_t bytes = sg_format_bytes(s->t->image.format);
	bool half = s->t->srgb || s->t->image.format == CU_AD_FORMAT_HALF;
	for (uint32_t k = 0; k < s->t->image.channels; k++)
		r.f[k] = as_integer(s, k) ? sg_filter_fixed(f, k, bytes, has_sign(s))
			 : half           ? sg_filter_half(f, k, s->t->srgb)
					  : sg_filter_float(f, k);
	return r;
}

static struct texel gather(
	struct sampler *s, const double *x, uint32_t slice, const int32_t *offset)
{
	static const uint32_t order[4][3] = { { 0, 1, 0 }, { 1, 1, 0 }, { 1, 0, 0 }, { 0, 0, 0 } };
	uint32_t size[3];
	struct axis a[3];
	struct texel r;
	sizes(&s->t->image, 0, size);
	for (uint32_t k = 0; k < 2; k++)
		a[k] = axis_of(s, k, x[k], size[k], offset[k], true);
	for (int k = 0; k < 4; k++) {
		struct texel t = fetch(s, 0, a, order[k], 2, slice);
		r.u[k] = t.u[s->tex->component];
	}
	return r;
}

/* Face of a cube and the position in it, from 0 to 1; on an edge z comes before y before x. */
static uint32_t cube_face(double *x)
{
	double ax = fabs(x[0]), ay = fabs(x[1]), az = fabs(x[2]), m, u, v;
	uint32_t face;
	if (az >= ay && az >= ax) {
		face = 4 + (x[2] < 0);
		m = az;
		u = face == 4 ? x[0] : -x[0];
		v = -x[1];
	} else if (ay >= ax) {
		face = 2 + (x[1] < 0);
		m = ay;
		u = x[0];
		v = face == 2 ? x[2] : -x[2];
	} else {
		face = x[0] < 0;
		m = ax;
		u = face ? x[2] : -x[2];
		v = -x[1];
	}
	x[0] = (u / m + 1) / 2;
	x[1] = (v / m + 1) / 2;
	return face;
}

static struct texel blend(struct sampler *s, double lod, const double *x, uint32_t dims,
	uint32_t slice, const int32_t *offset)
{
	uint32_t last = s->t->image.n_levels - 1u;
	lod += s->t->level_bias;
	if (lod != lod || lod < s->t->level_min)
		lod = s->t->level_min;
	if (lod > s->t->level_max && s->t->level_max >= s->t->level_min)
		lod = s->t->level_max;
	lod = lod < 0 ? 0 : lod > last ? last : lod;
	uint32_t first = (uint32_t)(s->t->mip_linear ? floor(lod) : floor(lod + 0.5)), second = 0;
	if (s->t->mip_linear && first < last)
		second = (uint32_t)((lod - first) * 256);
	if (s->tex->whole || !s->is_float || s->t->image.kind == SG_IMAGE_LINEAR ||
		(!s->t->linear && !second))
		return one_texel(s, first, x, dims, slice, offset);
	struct sg_filter f = { 0 };
	s->fixed =
		sg_format_bytes(s->t->image.format) < 4 && s->t->image.format != CU_AD_FORMAT_HALF;
	add_level(s, &f, 256 - second, first, x, dims, slice, offset);
	if (second)
		add_level(s, &f, second, first + 1, x, dims, slice, offset);
	return filtered(s, &f);
}

static double number(struct sg_warp *w, const struct sg_tex *t, uint32_t op, uint32_t lane)
{
	const uint32_t *p = sg_op(w, op);
	float f;
	if (t->whole)
		return (int32_t)p[lane];
	memcpy(&f, &p[lane], 4);
	return f;
}

/* log2 of how many texels apart neighbours are, to 1/256. An H200 approximates it in a way that was
 * not found: three of four recorded levels are the same, the others one step off. */
static double lod_of_gradients(struct sampler *s)
{
	const struct sg_tex *t = s->tex;
	uint32_t size[3];
	double xx = 0, yy = 0;
	sizes(&s->t->image, 0, size);
	for (uint32_t k = 0; k < t->dims; k++) {
		double scale = s->t->normalized ? size[k] : 1;
		double dx = number(s->w, t, t->dx[k], s->lane) * scale,
		       dy = number(s->w, t, t->dy[k], s->lane) * scale;
		xx += dx * dx;
		yy += dy * dy;
	}
	double most = xx > yy ? xx : yy;
	return most > 0 ? floor(log2(most) * 128 + 0.5) / 256 : -1000;
}

static struct texel sample(struct sampler *s)
{
	const struct sg_tex *t = s->tex;
	double x[3] = { 0 }, lod = 0;
	int32_t offset[3] = { 0 };
	uint32_t dims = t->dims, slice = 0, layers = s->t->image.level[0].depth;
	const uint32_t *coord = t->coord + t->layered;
	for (uint32_t k = 0; k < dims; k++)
		x[k] = number(s->w, t, coord[k], s->lane);
	for (uint32_t k = 0; t->has_offset && k < dims; k++)
		offset[k] = ((const int32_t *)sg_op(s->w, t->offset[k]))[s->lane];
	if (t->layered) {
		slice = ((const uint32_t *)sg_op(s->w, t->coord[0]))[s->lane];
		uint32_t n = t->geom == SG_G_ACUBE ? layers / 6 : layers;
		slice = slice < n ? slice : n ? n - 1 : 0;
	}
	if (t->mode == SG_T_LEVEL)
		lod = number(s->w, t, t->lod, s->lane);
	else if (t->mode == SG_T_GRAD)
		lod = lod_of_gradients(s);
	if (t->geom >= SG_G_CUBE) {
		slice = slice * 6 + cube_face(x);
		slice = slice < layers ? slice : 0;
		dims = 2;
	}
	return t->mode == SG_T_GATHER ? gather(s, x, slice, offset)
				      : blend(s, lod, x, dims, slice, offset);
}

SG_HANDLER(sg_tex)
{
	const struct sg_tex *t = (const void *)in->list;
	const uint64_t *handle = sg_op(w, t->handle);
	uint32_t out[4][32];
	for (uint32_t m = mask; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m);
		struct sampler s = { .w = w, .in = in, .tex = t, .lane = i };
		s.t = sg_texture_find(w->block->grid->dev, handle[i]);
		if (!s.t) {
			sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, (int)i,
				"0x%llx is no texture object", (unsigned long long)handle[i]);
			return;
		}
		s.is_float = !stays_integer(s.t);
		struct texel r = sample(&s);
		if (s.failed)
			return;
		for (uint32_t k = 0; k < 4; k++)
			out[k][i] = r.u[k];
		for (uint32_t k = 0; in->type == T_F16 && k < 4; k++)
			out[k][i] = (uint32_t)sg_pack_double(r.f[k], 5, 10, SG_RN);
		if (in->type == T_F16X2)
			for (uint32_t k = 0; k < 2; k++)
				out[k][i] = (uint32_t)sg_pack_double(r.f[2 * k], 5, 10, SG_RN) |
					    (uint32_t)sg_pack_double(r.f[2 * k + 1], 5, 10, SG_RN)
						    << 16;
	}
	for (uint32_t k = 0; k < t->n; k++) {
		uint32_t *d = sg_op(w, t->data[k]);
		SG_LANES(mask, d[i] = out[k][i];);
	}
}

/* -- queries -------------------------------------------------------------------- */

static uint32_t image_query(const struct sg_image *image, uint8_t query, uint32_t level)
{
	const struct sg_image_level *l = &image->level[level < image->n_levels ? level : 0];
	bool layered = image->kind >= SG_IMAGE_1D_LAYERED;
	switch (query) {
	case SG_Q_WIDTH:
		return l->width;
	case SG_Q_HEIGHT:
		return image->kind == SG_IMAGE_1D || image->kind == SG_IMAGE_LINEAR ? 0 : l->height;
	case SG_Q_DEPTH:
		return image->kind == SG_IMAGE_3D ? l->depth : 0;
	case SG_Q_DATA_TYPE:
		return image->format;
	case SG_Q_ORDER:
		return image->channels;
	case SG_Q_ARRAY_SIZE:
		return !layered ? 0 : image->kind >= SG_IMAGE_CUBE ? l->depth / 6 : l->depth;
	default:
		return image->n_levels;
	}
}

/* op: query; b: level (has). */
SG_HANDLER(sg_txq)
{
	const uint64_t *handle = sg_op(w, in->a);
	const uint32_t *level = in->has ? sg_op(w, in->b) : NULL;
	uint32_t *d = sg_op(w, in->d);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		const struct sg_texture *t = sg_texture_find(w->block->grid->dev, handle[i]);
		if (!t) {
			sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, i,
				"0x%llx is no texture object", (unsigned long long)handle[i]);
			return;
		}
		if (in->op == SG_Q_NORMALIZED)
			d[i] = t->normalized;
		else if (in->op == SG_Q_FILTER)
			d[i] = t->linear;
		else if (in->op >= SG_Q_ADDRESS_0)
			d[i] = t->address[in->op - SG_Q_ADDRESS_0];
		else
			d[i] = image_query(&t->image, in->op, level ? level[i] : 0);
	}
}

static const struct sg_image *surface(
	struct sg_warp *w, const struct sg_insn *in, uint64_t handle, int lane)
{
	const struct sg_image *image = sg_surface_find(w->block->grid->dev, handle);
	if (!image)
		sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, lane, "0x%llx is no surface object",
			(unsigned long long)handle);
	return image;
}

SG_HANDLER(sg_suq)
{
	const uint64_t *handle = sg_op(w, in->a);
	uint32_t *d = sg_op(w, in->d);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		const struct sg_image *image = surface(w, in, handle[i], i);
		if (!image)
			return;
		d[i] = image_query(image, in->op, 0);
	}
}

/* -- surfaces -------------------------------------------------------------------- */

/* Bytes of one element, and of what an instruction moves. */
static uint32_t texel_bytes(const struct sg_image *image)
{
	return sg_format_bytes(image->format) * image->channels;
}

/* Where a lane reads or writes; NULL: nowhere, and *failed when the launch has ended. */
static uint8_t *surface_at(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, bool *failed,
	const struct sg_image **image)
{
	const struct sg_tex *t = (const void *)in->list;
	*image = surface(w, in, ((const uint64_t *)sg_op(w, t->handle))[lane], (int)lane);
	*failed = !*image;
	if (*failed)
		return NULL;
	const struct sg_image_level *l = &(*image)->level[0];
	uint32_t unit = texel_bytes(*image),
		 bytes = t->formatted ? unit : (uint32_t)t->bytes * t->n;
	/* x counts bytes, but for formatted access. */
	int64_t size[3] = { (int64_t)l->width * unit, l->height, l->depth }, at[3] = { 0 };
	const uint32_t *coord = t->coord + t->layered;
	for (uint32_t k = 0; k < t->dims; k++)
		at[k] = ((const int32_t *)sg_op(w, coord[k]))[lane];
	if (t->layered)
		at[2] = ((const int32_t *)sg_op(w, t->coord[0]))[lane];
	if (t->formatted)
		at[0] *= unit;
	size[0] -= bytes - 1;
	for (int k = 0; k < 3; k++) {
		if (at[k] >= 0 && at[k] < size[k])
			continue;
		if (t->clamp == SG_S_CLAMP) {
			at[k] = at[k] < 0 || size[k] <= 0 ? 0 : size[k] - 1;
			continue;
		}
		if (t->clamp == SG_S_TRAP) {
			sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, (int)lane,
				"a surface access at (%lld, %lld, %lld) of %u x %u x %u",
				(long long)at[0], (long long)at[1], (long long)at[2], l->width,
				l->height, l->depth);
			*failed = true;
		}
		return NULL;
	}
	uint8_t *p =
		image_at(w, *image, 0, (uint32_t)at[0], (uint32_t)at[1], (uint32_t)at[2], bytes);
	if (!p) {
		sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, (int)lane,
			"the image of this surface is not in device memory");
		*failed = true;
	}
	return p;
}

SG_HANDLER(sg_suld)
{
	const struct sg_tex *t = (const void *)in->list;
	for (uint32_t m = mask; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m);
		const struct sg_image *image;
		bool failed;
		const uint8_t *p = surface_at(w, in, i, &failed, &image);
		if (failed)
			return;
		for (uint32_t k = 0; k < t->n; k++) {
			uint64_t v = 0;
			if (p)
				memcpy(&v, p + k * t->bytes, t->bytes);
			if (t->bytes == 8)
				((uint64_t *)sg_op(w, t->data[k]))[i] = v;
			else
				((uint32_t *)sg_op(w, t->data[k]))[i] = (uint32_t)v;
		}
	}
}

/* A 32-bit value in the format of the image: integers are clamped to their range. */
static uint32_t to_format(CUarray_format format, uint32_t v)
{
	int32_t s = (int32_t)v;
	float f;
	switch ((int)format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
		return v > 255 ? 255 : v;
	case CU_AD_FORMAT_SIGNED_INT8:
		return (uint32_t)(s > 127 ? 127 : s < -128 ? -128 : s);
	case CU_AD_FORMAT_UNSIGNED_INT16:
		return v > 65535 ? 65535 : v;
	case CU_AD_FORMAT_SIGNED_INT16:
		return (uint32_t)(s > 32767 ? 32767 : s < -32768 ? -32768 : s);
	case CU_AD_FORMAT_HALF:
		memcpy(&f, &v, 4);
		return (uint32_t)sg_pack_double(f, 5, 10, SG_RN);
	default:
		return v;
	}
}

SG_HANDLER(sg_sust)
{
	const struct sg_tex *t = (const void *)in->list;
	for (uint32_t m = mask; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m);
		const struct sg_image *image;
		bool failed;
		uint8_t *p = surface_at(w, in, i, &failed, &image);
		if (failed)
			return;
		uint32_t n = !p                                       ? 0
			     : t->formatted && image->channels < t->n ? image->channels
								      : t->n;
		uint32_t bytes = t->formatted && p ? sg_format_bytes(image->format) : t->bytes;
		for (uint32_t k = 0; k < n; k++) {
			const void *reg = sg_op(w, t->data[k]);
			uint64_t v = t->bytes == 8 ? ((const uint64_t *)reg)[i]
						   : ((const uint32_t *)reg)[i];
			if (t->formatted)
				v = to_format(image->format, (uint32_t)v);
			memcpy(p + k * bytes, &v, bytes);
		}
	}
}

/* Whether a handle is of a texture (op 0) or of a surface (1). */
SG_HANDLER(sg_istypep)
{
	struct sg_device *dev = w->block->grid->dev;
	const uint64_t *handle = sg_op(w, in->a);
	uint32_t *d = sg_op(w, in->d), yes = 0;
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		bool is = in->op == 0   ? sg_texture_find(dev, handle[i]) != NULL
			  : in->op == 1 ? sg_surface_find(dev, handle[i]) != NULL
					: false;
		yes |= (uint32_t)is << i;
	}
	*d = (*d & ~mask) | yes;
}

/* Formatted: the image says whether its words are signed. */
SG_HANDLER(sg_sured)
{
	const struct sg_tex *t = (const void *)in->list;
	for (uint32_t m = mask; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m);
		const struct sg_image *image;
		bool failed;
		uint8_t *p = surface_at(w, in, i, &failed, &image);
		const void *reg = sg_op(w, t->data[0]);
		struct sg_insn typed = *in;
		if (failed)
			return;
		if (t->formatted && texel_bytes(image) != 4)
			continue;
		if (t->formatted)
			typed.type = image->format == CU_AD_FORMAT_SIGNED_INT32 ? T_S32 : T_U32;
		if (p && !((uintptr_t)p & (t->bytes - 1u)))
			sg_atom_apply(&typed, p,
				t->bytes == 8 ? ((const uint64_t *)reg)[i]
					      : ((const uint32_t *)reg)[i],
				0, true);
	}
}
