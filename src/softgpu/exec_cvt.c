/* exec_cvt.c - conversions between types.
 *
 * A source value is read as a 64-bit integer or as a double (every narrower float is exact in one),
 * rounded, clamped and written in the destination's format. Narrow results are extended to their
 * register: by sign for .sN, by zero otherwise.
 */
#include "softgpu/internal.h"

#include <math.h>
#include <string.h>

static bool is_float(uint8_t t)
{
	return t == T_F16 || t == T_BF16 || t == T_F32 || t == T_F64 || t == T_TF32;
}

static bool is_signed(uint8_t t)
{
	return t == T_S8 || t == T_S16 || t == T_S32 || t == T_S64;
}

static uint32_t int_bits(uint8_t t)
{
	switch (t) {
	case T_U8:
	case T_S8:
	case T_B8:
		return 8;
	case T_U16:
	case T_S16:
	case T_B16:
		return 16;
	case T_U64:
	case T_S64:
	case T_B64:
		return 64;
	default:
		return 32;
	}
}

static uint64_t extend(uint64_t v, uint32_t bits, bool sign)
{
	if (bits == 64)
		return v;
	uint64_t low = v & ((1ull << bits) - 1);
	return sign && low >> (bits - 1) ? low | ~0ull << bits : low;
}

static double read_float(uint8_t t, uint64_t raw, bool ftz)
{
	float f;
	double d;
	uint32_t u = (uint32_t)raw;
	switch (t) {
	case T_F16:
		return sg_half_to_float((uint16_t)raw);
	case T_BF16:
		return sg_bf16_to_float((uint16_t)raw);
	case T_F64:
		memcpy(&d, &raw, 8);
		return d;
	default:
		if (ftz && !(u & 0x7f800000))
			u &= 0x80000000;
		memcpy(&f, &u, 4);
		return f;
	}
}

static uint64_t double_bits(double v)
{
	uint64_t u;
	memcpy(&u, &v, 8);
	return u;
}

static uint64_t write_float(const struct sg_insn *in, uint8_t t, double v)
{
	uint32_t f;
	switch (t) {
	case T_F16:
		return sg_pack_double(v, 5, 10, in->rnd);
	case T_BF16:
		return sg_pack_double(v, 8, 7, in->rnd);
	case T_TF32:
		return sg_pack_double(v, 8, 10, in->rnd) << 13;
	case T_F64:
		return double_bits(v);
	default:
		f = (uint32_t)sg_pack_double(v, 8, 23, in->rnd);
		if (in->flags & SG_FTZ && !(f & 0x7f800000))
			f &= 0x80000000;
		return f;
	}
}

/* .rni, .rzi, .rmi, .rpi */
static double round_to_int(double v, uint8_t rnd)
{
	switch (rnd & 7) {
	case SG_RZ:
		return trunc(v);
	case SG_RM:
		return floor(v);
	case SG_RP:
		return ceil(v);
	default:
		return rint(v);
	}
}

/* Clamps to the destination's range. NaN: 0, except the most negative pattern where a 64-bit type
 * takes part (PTX ISA, cvt). */
static uint64_t float_to_int(double v, uint8_t dst, uint8_t src)
{
	uint32_t bits = int_bits(dst);
	if (v != v)
		return src == T_F64 || bits == 64 ? 1ull << (bits - 1) : 0;
	if (is_signed(dst)) {
		double limit = ldexp(1, (int)bits - 1);
		if (v >= limit)
			return (1ull << (bits - 1)) - 1;
		if (v < -limit)
			return 1ull << (bits - 1);
		return (uint64_t)(int64_t)v;
	}
	if (v <= 0)
		return 0;
	if (v >= ldexp(1, (int)bits))
		return bits == 64 ? ~0ull : (1ull << bits) - 1;
	return (uint64_t)v;
}

/* A 64-bit magnitude as a double rounded to odd: a second rounding, to at most 53 - 2 bits, is then
 * correct. Exact below 2^53. */
static double int_to_odd(uint64_t magnitude)
{
	int shift = magnitude ? 64 - __builtin_clzll(magnitude) - 53 : 0;
	if (shift <= 0)
		return (double)magnitude;
	uint64_t kept = magnitude >> shift;
	if (magnitude & ((1ull << shift) - 1))
		kept |= 1;
	return ldexp((double)kept, shift);
}

/* A 64-bit integer as a double, by the rounding mode. */
static double int_to_double(uint64_t magnitude, bool negative, uint8_t rnd)
{
	int shift = magnitude ? 64 - __builtin_clzll(magnitude) - 53 : 0;
	if (shift <= 0)
		return negative ? -(double)magnitude : (double)magnitude;
	uint64_t kept = magnitude >> shift, rest = magnitude & ((1ull << shift) - 1),
		 half = 1ull << (shift - 1);
	bool up = false;
	if ((rnd & 7) == SG_RN)
		up = rest > half || (rest == half && kept & 1);
	else if ((rnd & 7) != SG_RZ)
		up = rest && ((rnd & 7) == SG_RP) == !negative;
	double v = ldexp((double)(kept + up), shift);
	return negative ? -v : v;
}

static uint64_t int_to_float(const struct sg_insn *in, uint64_t v)
{
	bool negative = is_signed(in->type2) && (int64_t)v < 0;
	uint64_t magnitude = negative ? -v : v;
	double d;
	if (in->type == T_F64) {
		d = int_to_double(magnitude, negative, in->rnd);
	} else {
		d = int_to_odd(magnitude);
		d = negative ? -d : d;
	}
	if (in->flags & SG_SAT)
		d = d < 0 ? 0 : d > 1 ? 1 : d;
	return write_float(in, in->type, d);
}

static uint64_t int_to_int(const struct sg_insn *in, uint64_t v)
{
	uint32_t bits = int_bits(in->type);
	bool from_signed = is_signed(in->type2);
	if (!(in->flags & SG_SAT))
		return v;
	if (is_signed(in->type)) {
		int64_t max = (int64_t)((1ull << (bits - 1)) - 1);
		if (!from_signed)
			return v > (uint64_t)max ? (uint64_t)max : v;
		int64_t s = (int64_t)v;
		return (uint64_t)(s > max ? max : s < -max - 1 ? -max - 1 : s);
	}
	uint64_t max = bits == 64 ? ~0ull : (1ull << bits) - 1;
	if (from_signed && (int64_t)v < 0)
		return 0;
	return v > max ? max : v;
}

static uint64_t float_to_float(const struct sg_insn *in, double v)
{
	if (in->rnd & SG_RNI)
		v = round_to_int(v, in->rnd);
	if (in->flags & SG_SAT)
		v = v != v || v <= 0 ? 0 : v > 1 ? 1 : v;
	if (in->flags & SG_RELU && v <= 0)
		v = 0;
	uint64_t r = write_float(in, in->type, v);
	if (in->flags & SG_SATFINITE && in->type == T_TF32)
		return (r & 0x7fffffff) == 0x7f800000 ? (r & 0x80000000) | 0x7f7fe000 : r;
	if (in->flags & SG_SATFINITE && isinf(v) == 0 && v == v) {
		int m = in->type == T_F16    ? 10
			: in->type == T_BF16 ? 7
					     : 23,
		    e = in->type == T_F16 ? 5 : 8;
		uint64_t inf = (uint64_t)((1 << e) - 1) << m, sign = 1ull << (e + m);
		if ((r & ~sign) == inf)
			r = (r & sign) | (inf - 1);
	}
	return r;
}

/* What a NaN becomes where it is not the canonical one: seen on an H200 (PTX leaves it open). */
static bool keep_nan(const struct sg_insn *in, uint64_t raw, uint64_t *out)
{
	uint64_t sign = in->type2 == T_F64 ? raw >> 63 : raw >> 15 & 1;
	if (in->flags & (SG_SAT | SG_RELU))
		return false;
	if (in->type2 == T_F64)
		*out = in->type == T_F64    ? raw | 1ull << 51
		       : in->type == T_F16  ? sign << 15 | 0x7e00 | (raw >> 42 & 0x3ff)
		       : in->type == T_BF16 ? sign << 15 | 0x7fc0 | (raw >> 45 & 0x7f)
					    : sign << 31 | 0x7fc00000 | (raw >> 29 & 0x7fffff);
	else if (in->type2 == T_F16 && in->type == T_F64)
		*out = sign << 63 | 0x7ff8ull << 48 | (raw & 0x3ff) << 42;
	else if (in->type2 == T_BF16 && in->type == T_F32)
		*out = raw << 16;
	else if (in->type2 == T_F32 && in->type == T_F64 && in->flags & SG_FTZ)
		*out = 0x7fffffffe0000000ull;
	else if (in->type == T_TF32 && in->rnd == SG_RNA)
		*out = ((uint32_t)raw + 0x1000) & 0xffffe000;
	else
		return false;
	/* A finite result is one step below what has the exponent of an infinity: that of a NaN may
	 * be a NaN again. */
	if (in->flags & SG_SATFINITE && (*out & 0x7fffffff) >= 0x7f800000)
		*out -= 0x2000;
	return true;
}

static uint64_t convert(const struct sg_insn *in, uint64_t raw)
{
	uint64_t kept;
	uint8_t dst = in->type, src = in->type2;
	if (!is_float(src)) {
		uint64_t v = extend(raw, int_bits(src), is_signed(src));
		return is_float(dst) ? int_to_float(in, v) : int_to_int(in, v);
	}
	double v = read_float(src, raw, in->flags & SG_FTZ);
	if (is_float(dst) && v != v && keep_nan(in, raw, &kept))
		return kept;
	if (is_float(dst))
		return float_to_float(in, v);
	return float_to_int(round_to_int(v, in->rnd), dst, src);
}

static uint64_t lane_read(const uint8_t *p, uint8_t width, int i)
{
	return width == 8 ? ((const uint64_t *)(const void *)p)[i]
			  : ((const uint32_t *)(const void *)p)[i];
}

/* n: bytes a source lane; width: bytes a destination lane; imm: bits of the destination register.
 */
SG_HANDLER(sg_cvt)
{
	uint8_t *d = sg_op(w, in->d);
	const uint8_t *a = sg_op(w, in->a);
	uint64_t keep = in->imm >= 64 ? ~0ull : (1ull << in->imm) - 1;
	bool to_float = is_float(in->type);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint64_t v = convert(in, lane_read(a, in->n, i));
		if (!to_float)
			v = extend(v, int_bits(in->type), is_signed(in->type)) & keep;
		if (in->width == 8)
			((uint64_t *)(void *)d)[i] = v;
		else
			((uint32_t *)(void *)d)[i] = (uint32_t)v;
	}
}

/* Two floats into a pair: d = {a: upper, b: lower}. */
SG_HANDLER(sg_cvt_pack)
{
	uint32_t *d = sg_op(w, in->d);
	const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b);
	struct sg_insn one = *in;
	one.type = in->type == T_F16X2 ? T_F16 : T_BF16;
	one.type2 = T_F32;
	SG_LANES(mask, d[i] = (uint32_t)convert(&one, a[i]) << 16 | (uint32_t)convert(&one, b[i]););
}

/* -- eight-bit floats -------------------------------------------------------- */

/* Rounded to nearest; infinities and what is too large become the largest number. */
static uint32_t to_fp8(const struct sg_insn *in, double v)
{
	bool e4m3 = in->type == T_E4M3X2;
	uint32_t most = e4m3 ? 0x7e : 0x7b, bits;
	if (v != v)
		return 0x7f;
	if (in->flags & SG_RELU && v <= 0)
		v = 0;
	/* Four bits of exponent around 7 are five bits around 15 of a value 2^8 times smaller, and
	 * leave one exponent more to numbers than infinities would. */
	bits = (uint32_t)(e4m3 ? sg_pack_double(v * 0x1p-8, 5, 3, SG_RN)
			       : sg_pack_double(v, 5, 2, SG_RN));
	uint32_t sign = e4m3 ? bits >> 8 & 1 : bits >> 7, low = bits & (e4m3 ? 0xff : 0x7f);
	return sign << 7 | (low > most ? most : low);
}

double sg_fp8_to_double(uint8_t type, uint32_t v)
{
	uint32_t low = v & 0x7f;
	double d;
	if (type == T_E5M2X2)
		return sg_half_to_float((uint16_t)(v << 8));
	d = low == 0x7f ? NAN : low < 8 ? low * 0x1p-9 : ldexp((low & 7) | 8, (int)(low >> 3) - 10);
	return v & 0x80 ? -d : d;
}

static uint32_t fp8_to_half(const struct sg_insn *in, uint32_t v)
{
	double d = sg_fp8_to_double(in->type2, v);
	if (in->flags & SG_RELU && (d < 0 || (d == 0 && v & 0x80)))
		d = 0;
	return (uint32_t)sg_pack_double(d, 5, 10, SG_RN);
}

/* Pairs: the first source, or the upper half of one, goes to the upper half. */
SG_HANDLER(sg_cvt_fp8)
{
	uint32_t *d = sg_op(w, in->d);
	const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint32_t v = a[i];
		if (in->type == T_F16X2)
			d[i] = fp8_to_half(in, v >> 8) << 16 | fp8_to_half(in, v & 0xff);
		else if (in->type2 == T_F32)
			d[i] = to_fp8(in, read_float(T_F32, v, false)) << 8 |
			       to_fp8(in, read_float(T_F32, b[i], false));
		else
			d[i] = to_fp8(in, sg_half_to_float((uint16_t)(v >> 16))) << 8 |
			       to_fp8(in, sg_half_to_float((uint16_t)v));
	}
}

static uint32_t saturated(const struct sg_insn *in, uint32_t v)
{
	int32_t max = in->sub ? (1 << (in->n - 1)) - 1 : (1 << in->n) - 1,
		min = in->sub ? -max - 1 : 0;
	int32_t s = (int32_t)v;
	return (uint32_t)(s > max ? max : s < min ? min : s) & ((1u << in->n) - 1);
}

/* n: bits of a part; sub: signed. What c holds moves up to make room. */
SG_HANDLER(sg_cvt_saturate)
{
	uint32_t *d = sg_op(w, in->d);
	const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b), *c = sg_op(w, in->c);
	uint32_t up = 2u * in->n;
	SG_LANES(mask, uint32_t low = saturated(in, a[i]) << in->n | saturated(in, b[i]);
		 d[i] = up < 32 ? c[i] << up | low : low;);
}

/* -- common conversions in loops of their own -------------------------------- */

#define FAST(name, TD, TA, EXPR)                                                                   \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		TD *d = sg_op(w, in->d);                                                           \
		const TA *pa = sg_op(w, in->a);                                                    \
		SG_LANES(mask, TA a = pa[i]; d[i] = (EXPR););                                      \
	}
FAST(s64_s32, uint64_t, uint32_t, (uint64_t)(int64_t)(int32_t)a)
FAST(u64_u32, uint64_t, uint32_t, a)
FAST(u32_64, uint32_t, uint64_t, (uint32_t)a)
FAST(u16_64, uint32_t, uint64_t, (uint16_t)a)
FAST(u16_32, uint32_t, uint32_t, (uint16_t)a)
FAST(u8_32, uint32_t, uint32_t, (uint8_t)a)
FAST(s32_s16, uint32_t, uint32_t, (uint32_t)(int16_t)a)
FAST(s32_s8, uint32_t, uint32_t, (uint32_t)(signed char)a)
FAST(s64_s16, uint64_t, uint32_t, (uint64_t)(int64_t)(int16_t)a)
FAST(u64_u16, uint64_t, uint32_t, (uint16_t)a)
FAST(f32_s32, float, uint32_t, (float)(int32_t)a)
FAST(f32_u32, float, uint32_t, (float)a)
FAST(f64_s32, double, uint32_t, (int32_t)a)
FAST(f64_u32, double, uint32_t, a)
FAST(f64_f32, double, float, (double)a)

static SG_HANDLER(f32_f64)
{
	float *d = sg_op(w, in->d);
	const double *a = sg_op(w, in->a);
	SG_LANES(mask, d[i] = (float)a[i];);
}

FAST(s32_f32, int32_t, float,
	a >= 2147483648.0f   ? INT32_MAX
	: a < -2147483648.0f ? INT32_MIN
	: a != a             ? 0
			     : (int32_t)a)
FAST(u32_f32, uint32_t, float, a >= 4294967296.0f ? UINT32_MAX : !(a > 0) ? 0 : (uint32_t)a)

sg_handler sg_cvt_truncate(uint8_t dst, uint8_t src)
{
	if (src != T_F32)
		return NULL;
	return dst == T_S32 ? s32_f32 : dst == T_U32 ? u32_f32 : NULL;
}

/* A plain conversion (nearest, no flags) with a loop of its own, or NULL. */
sg_handler sg_cvt_fast(uint8_t dst, uint8_t src, uint8_t dst_width, uint8_t src_width)
{
	uint32_t to = is_float(dst) ? 0 : int_bits(dst), from = is_float(src) ? 0 : int_bits(src);
	bool sign = is_signed(src);
	if (to == 64 && from == 32 && dst_width == 8 && src_width == 4)
		return sign ? s64_s32 : u64_u32;
	if (to == 64 && from == 16 && dst_width == 8 && src_width == 4)
		return sign ? s64_s16 : u64_u16;
	if (to == 32 && from == 64 && dst_width == 4 && src_width == 8)
		return u32_64;
	if (to == 32 && from == 32 && dst_width == 4 && src_width == 4)
		return sg_mov32;
	if (to == 32 && from == 16 && dst_width == 4 && src_width == 4)
		return sign ? s32_s16 : u16_32;
	if (to == 32 && from == 8 && dst_width == 4 && src_width == 4)
		return sign ? s32_s8 : u8_32;
	if ((dst == T_U16 || dst == T_S16) && from >= 16 && dst_width == 4)
		return src_width == 8 ? u16_64 : u16_32;
	if (dst_width == 4 && src_width == 4 && sg_half_cvt(dst, src))
		return sg_half_cvt(dst, src);
	if (dst == T_F32 && dst_width == 4 && from == 32 && src_width == 4)
		return sign ? f32_s32 : f32_u32;
	if (dst == T_F64 && dst_width == 8 && from == 32 && src_width == 4)
		return sign ? f64_s32 : f64_u32;
	if (dst == T_F64 && src == T_F32 && dst_width == 8 && src_width == 4)
		return f64_f32;
	if (dst == T_F32 && src == T_F64 && dst_width == 4 && src_width == 8)
		return f32_f64;
	return NULL;
}
