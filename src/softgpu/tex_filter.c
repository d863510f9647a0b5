/* tex_filter.c - weights and sums of linear filtering, bit for bit as an H200 does them.
 *
 * No document says how; this was read off recorded results (tests/differential/textures.c).
 *
 * Weights are whole numbers of 1/256 that are split among levels, slices, columns and rows in this
 * order, so that they always add up to 256. Where a share cannot be split evenly, halves go to one
 * side. Sums of floats keep four bits below the last one of the largest texel and are rounded once,
 * halves away from zero; those of half floats and of sRGB
 * colours are halves, and of the latter eight bits are kept. Integers are summed as they are; the
 * result has 16 bits.
 */
#include "softgpu/tex.h"

#include <math.h>

/* The part of a share that `fraction` of 256 takes, halves upwards. */
static uint32_t part(uint32_t share, uint32_t fraction)
{
	return (share * fraction + 128) >> 8;
}

static void split_slice(uint32_t share, const uint32_t *fraction, uint32_t dims, uint32_t *out)
{
	uint32_t right = part(share, fraction[0]), left = share - right;
	out[0] = left;
	out[1] = right;
	if (dims == 1)
		return;
	out[0] = part(left, 256 - fraction[1]);
	out[3] = part(right, fraction[1]);
	out[1] = right - out[3];
	out[2] = left - out[0];
}

void sg_filter_weights(uint32_t share, const uint32_t *fraction, uint32_t dims, uint32_t *out)
{
	if (dims < 3) {
		split_slice(share, fraction, dims, out);
		return;
	}
	uint32_t back = share - part(share, 256 - fraction[2]);
	split_slice(share - back, fraction, 2, out);
	split_slice(back, fraction, 2, out + 4);
}

/* v rounded to so many bits, none of them below 2^lowest, halves away from zero. */
static float rounded(double v, int bits, int lowest)
{
	int exponent;
	if (v == 0 || !isfinite(v))
		return (float)v;
	frexp(v, &exponent);
	int unit = exponent - bits < lowest ? lowest : exponent - bits;
	return (float)ldexp(round(ldexp(v, -unit)), unit);
}

/* The sum, with so many bits of each texel as if it were as large as the largest. */
static double sum_of(const struct sg_filter *f, uint32_t channel, int bits)
{
	int largest = -1000, exponent;
	double sum = 0;
	for (uint32_t i = 0; i < f->n; i++) {
		float v = f->term[i].v[channel];
		if (v == 0 || !isfinite(v))
			continue;
		frexpf(v, &exponent);
		largest = exponent > largest ? exponent : largest;
	}
	for (uint32_t i = 0; i < f->n; i++) {
		double v = f->term[i].v[channel];
		if (isfinite(v))
			v = ldexp(trunc(ldexp(v, bits - largest)), largest - bits);
		sum += f->term[i].weight * v;
	}
	return sum / 256;
}

float sg_filter_float(const struct sg_filter *f, uint32_t channel)
{
	return rounded(sum_of(f, channel, 28), 24, -149);
}

float sg_filter_half(const struct sg_filter *f, uint32_t channel, bool is_srgb)
{
	float v = rounded(sum_of(f, channel, is_srgb ? 8 : 28), 11, -24);
	return fabsf(v) < 65520 ? v : copysignf(INFINITY, v);
}

float sg_filter_fixed(const struct sg_filter *f, uint32_t channel, uint32_t bytes, bool is_signed)
{
	double exact = 0;
	for (uint32_t i = 0; i < f->n; i++)
		exact += (double)f->term[i].weight * f->term[i].v[channel];
	int64_t sum = llround(exact), v;
	if (!is_signed)
		return (float)((bytes == 1 ? sum * 257 + 128 : sum + 128) >> 8) / 65535.0f;
	/* From 127 to 32767 it is 258 and a bit, which is added in eighths. */
	v = bytes == 1 ? (sum * 129 + ((sum >> 12) << 4) + 64) >> 7 : (sum + 128) >> 8;
	return (float)(v < -32767 ? -32767 : v) / 32767.0f;
}
