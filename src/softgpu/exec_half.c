/* exec_half.c - f16 and f16x2 arithmetic, and conversions between f16 and f32, eight lanes at a
 * time.
 *
 * add, sub and mul are done in f32, whose 24 bits are enough (2 * 11 + 2) for the second rounding
 * to change nothing. fma rounds the sum of the exact product and c to odd first. Only without
 * modifiers; everything else, and other processors, take the general way (exec_float.c).
 */
#include "softgpu/internal.h"

#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#define AVX __attribute__((target("avx2,f16c,fma")))

/* The low or high halves of eight lanes as floats. */
AVX static inline __m256 halves(const uint32_t *p, int shift)
{
	__m256i v = _mm256_loadu_si256((const __m256i *)(const void *)p);
	v = shift ? _mm256_srli_epi32(v, 16) : _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
	__m128i packed =
		_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
	return _mm256_cvtph_ps(packed);
}

/* Rounded, NaNs canonical, one a lane. */
AVX static inline __m256i rounded(__m256 v)
{
	__m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
	__m256i h = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
	return _mm256_blendv_epi8(h, _mm256_set1_epi32(0x7fff), nan);
}

AVX static inline __m256 fma_odd(__m256 a, __m256 b, __m256 c)
{
	const __m256i one = _mm256_set1_epi32(1);
	__m256 p = _mm256_mul_ps(a, b), s = _mm256_add_ps(p, c);
	/* What the sum has lost; not a number where it is not finite. */
	__m256 bb = _mm256_sub_ps(s, p);
	__m256 err = _mm256_add_ps(_mm256_sub_ps(p, _mm256_sub_ps(s, bb)), _mm256_sub_ps(c, bb));
	__m256 zero = _mm256_setzero_ps();
	__m256i inexact = _mm256_castps_si256(_mm256_cmp_ps(err, zero, _CMP_NEQ_OQ));
	__m256i bits = _mm256_castps_si256(s);
	__m256i even = _mm256_cmpeq_epi32(_mm256_and_si256(bits, one), _mm256_setzero_si256());
	__m256i shrink = _mm256_castps_si256(_mm256_xor_ps(
		_mm256_cmp_ps(err, zero, _CMP_GT_OQ), _mm256_cmp_ps(s, zero, _CMP_GT_OQ)));
	__m256i step = _mm256_or_si256(shrink, one); /* 1 or -1 */
	step = _mm256_and_si256(step, _mm256_and_si256(inexact, even));
	return _mm256_castsi256_ps(_mm256_add_epi32(bits, step));
}

AVX static inline __m256 operate(uint8_t op, __m256 a, __m256 b, __m256 c)
{
	switch (op) {
	case SG_F_ADD:
		return _mm256_add_ps(a, b);
	case SG_F_SUB:
		return _mm256_sub_ps(a, b);
	case SG_F_MUL:
		return _mm256_mul_ps(a, b);
	default:
		return fma_odd(a, b, c);
	}
}

static void merge(uint32_t *d, const uint32_t *r, uint32_t mask)
{
	SG_LANES(mask, d[i] = r[i];);
}

#define HALF(name, op, pair)                                                                       \
	AVX static SG_HANDLER(name)                                                                \
	{                                                                                          \
		const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b), *c = sg_op(w, in->c);   \
		uint32_t r[32];                                                                    \
		for (int i = 0; i < 32; i += 8) {                                                  \
			__m256i low = rounded(operate(                                             \
				op, halves(a + i, 0), halves(b + i, 0), halves(c + i, 0)));        \
			if (pair)                                                                  \
				low = _mm256_or_si256(                                             \
					low, _mm256_slli_epi32(                                    \
						     rounded(operate(op, halves(a + i, 1),         \
							     halves(b + i, 1), halves(c + i, 1))), \
						     16));                                         \
			_mm256_storeu_si256((__m256i *)(void *)(r + i), low);                      \
		}                                                                                  \
		merge(sg_op(w, in->d), r, mask);                                                   \
	}
HALF(add_h, SG_F_ADD, false)
HALF(sub_h, SG_F_SUB, false)
HALF(mul_h, SG_F_MUL, false)
HALF(fma_h, SG_F_FMA, false)
HALF(add_h2, SG_F_ADD, true)
HALF(sub_h2, SG_F_SUB, true)
HALF(mul_h2, SG_F_MUL, true)
HALF(fma_h2, SG_F_FMA, true)

AVX static SG_HANDLER(half_float)
{
	const uint32_t *a = sg_op(w, in->a);
	uint32_t r[32];
	for (int i = 0; i < 32; i += 8) {
		__m256 v = halves(a + i, 0);
		__m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
		__m256i bits = _mm256_blendv_epi8(
			_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff), nan);
		_mm256_storeu_si256((__m256i *)(void *)(r + i), bits);
	}
	merge(sg_op(w, in->d), r, mask);
}

AVX static SG_HANDLER(float_half)
{
	const float *a = sg_op(w, in->a);
	uint32_t r[32];
	for (int i = 0; i < 32; i += 8)
		_mm256_storeu_si256((__m256i *)(void *)(r + i), rounded(_mm256_loadu_ps(a + i)));
	merge(sg_op(w, in->d), r, mask);
}

/* Two floats into a pair: a is the upper one. */
AVX static SG_HANDLER(floats_half2)
{
	const float *a = sg_op(w, in->a), *b = sg_op(w, in->b);
	uint32_t r[32];
	for (int i = 0; i < 32; i += 8) {
		__m256i high = _mm256_slli_epi32(rounded(_mm256_loadu_ps(a + i)), 16);
		__m256i both = _mm256_or_si256(high, rounded(_mm256_loadu_ps(b + i)));
		_mm256_storeu_si256((__m256i *)(void *)(r + i), both);
	}
	merge(sg_op(w, in->d), r, mask);
}

static bool has_avx(void)
{
	unsigned int a, b, c = 0, d;
	/* clang 14's builtin does not know f16c by name. */
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
	       c & bit_F16C;
}

sg_handler sg_half_fast(uint8_t op, bool pair)
{
	if (!has_avx())
		return NULL;
	switch (op) {
	case SG_F_ADD:
		return pair ? add_h2 : add_h;
	case SG_F_SUB:
		return pair ? sub_h2 : sub_h;
	case SG_F_MUL:
		return pair ? mul_h2 : mul_h;
	case SG_F_FMA:
		return pair ? fma_h2 : fma_h;
	default:
		return NULL;
	}
}

sg_handler sg_half_cvt(uint8_t dst, uint8_t src)
{
	if (!has_avx())
		return NULL;
	if (src == T_F32)
		return dst == T_F16 ? float_half : dst == T_F16X2 ? floats_half2 : NULL;
	return dst == T_F32 && src == T_F16 ? half_float : NULL;
}
#else
sg_handler sg_half_fast(uint8_t op, bool pair)
{
	return NULL;
}

sg_handler sg_half_cvt(uint8_t dst, uint8_t src)
{
	return NULL;
}
#endif
