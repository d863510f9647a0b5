/* exec_float.c - float and double instructions.
 *
 * The common forms (round to nearest, no flush) have loops of their own; everything else goes
 * through exec_round.c, one lane at a time. A 32-bit NaN result is the canonical 0x7fffffff
 * of the PTX ISA. This file is compiled without contraction: PTX says where a product is fused.
 */
#include "softgpu/internal.h"

#include <math.h>
#include <string.h>

static inline float canon(float v)
{
	const union {
		uint32_t u;
		float f;
	} nan = { 0x7fffffff };
	return v != v ? nan.f : v;
}

#define FLOAT2(name, T, EXPR)                                                                      \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		T *d = sg_op(w, in->d);                                                            \
		const T *pa = sg_op(w, in->a), *pb = sg_op(w, in->b);                              \
		SG_LANES(mask, T a = pa[i]; T b = pb[i]; d[i] = EXPR;);                            \
	}
FLOAT2(add_f32, float, canon(a + b))
FLOAT2(sub_f32, float, canon(a - b))
FLOAT2(mul_f32, float, canon(a *b))
FLOAT2(div_f32, float, canon(a / b))

/* The NaN that comes out when there are several: the last one, made quiet. */
static inline double nan_of(double a, double b, double r)
{
	double quiet = b != b ? b + b : a + a;
	return a != a || b != b ? quiet : r;
}
FLOAT2(add_f64, double, nan_of(a, b, a + b))
FLOAT2(sub_f64, double, nan_of(a, b, a - b))
FLOAT2(mul_f64, double, nan_of(a, b, a *b))
FLOAT2(div_f64, double, a / b)

#define FLOAT3(attr, name, T, EXPR)                                                                \
	attr static SG_HANDLER(name)                                                               \
	{                                                                                          \
		T *d = sg_op(w, in->d);                                                            \
		const T *pa = sg_op(w, in->a), *pb = sg_op(w, in->b);                              \
		const T *pc = sg_op(w, in->c);                                                     \
		SG_LANES(mask, T a = pa[i]; T b = pb[i]; T c = pc[i]; d[i] = EXPR;);               \
	}
FLOAT3(, fma_f32_plain, float, canon(fmaf(a, b, c)))
FLOAT3(, fma_f64_plain, double, c != c && b == b ? c + c : nan_of(a, b, fma(a, b, c)))

#ifdef __x86_64__
/* The same loops with the instruction in line. */
#define CANON3(v)                                                                                  \
	({                                                                                         \
		float r_ = (v);                                                                    \
		r_ != r_ ? nan_ : r_;                                                              \
	})
#define FMA_TARGET __attribute__((target("fma,avx2")))
FMA_TARGET static SG_HANDLER(fma_f32_avx2)
{
	float *d = sg_op(w, in->d);
	const float *pa = sg_op(w, in->a), *pb = sg_op(w, in->b), *pc = sg_op(w, in->c);
	const uint32_t bits = 0x7fffffff;
	float nan_;
	memcpy(&nan_, &bits, 4);
	SG_LANES(mask, d[i] = CANON3(__builtin_fmaf(pa[i], pb[i], pc[i])););
}
FLOAT3(FMA_TARGET, fma_f64_avx2, double,
	c != c && b == b ? c + c : nan_of(a, b, __builtin_fma(a, b, c)))

static bool has_fma(void)
{
	return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
}
#else
#define fma_f32_avx2 fma_f32_plain
#define fma_f64_avx2 fma_f64_plain
static bool has_fma(void)
{
	return false;
}
#endif

static SG_HANDLER(fma_f32)
{
	(has_fma() ? fma_f32_avx2 : fma_f32_plain)(w, in, mask);
}

static SG_HANDLER(fma_f64)
{
	(has_fma() ? fma_f64_avx2 : fma_f64_plain)(w, in, mask);
}

/* Subnormal values become zeros of their sign. */
static inline float flush(float v)
{
	union {
		float f;
		uint32_t u;
	} x = { v };
	x.u &= x.u & 0x7f800000 ? 0xffffffff : 0x80000000;
	return x.f;
}

FLOAT2(add_ftz, float, canon(flush(flush(a) + flush(b))))
FLOAT2(sub_ftz, float, canon(flush(flush(a) - flush(b))))
/* Exact results below the normal range are flushed even where they would round up to it. */
FLOAT2(mul_ftz, float, ({
	float x_ = flush(a), y_ = flush(b), r_ = flush(x_ * y_);
	canon(fabs((double)x_ * y_) < 0x1p-126 ? copysignf(0, r_) : r_);
}))
#define FMA_FTZ(fused)                                                                             \
	({                                                                                         \
		float x_ = flush(a), y_ = flush(b), z_ = flush(c), r_ = flush(fused(x_, y_, z_));  \
		canon(fabs((double)x_ *y_ + z_) < 0x1p-126 ? copysignf(0, r_) : r_);               \
	})
FLOAT3(, fma_ftz_plain, float, FMA_FTZ(fmaf))
#ifdef __x86_64__
FLOAT3(FMA_TARGET, fma_ftz_avx2, float, FMA_FTZ(__builtin_fmaf))
#else
#define fma_ftz_avx2 fma_ftz_plain
#endif

static SG_HANDLER(fma_ftz)
{
	(has_fma() ? fma_ftz_avx2 : fma_ftz_plain)(w, in, mask);
}

/* Of equal values only zeros differ in their bits: then the sign decides. NaNs lose. */
static inline float pick(float a, float b, bool is_max)
{
	union {
		float f;
		uint32_t u;
	} x = { a }, y = { b };
	float r = a != a ? b : b != b ? a : (is_max ? a > b : a < b) ? a : b;
	x.u = is_max ? x.u & y.u : x.u | y.u;
	return a == b ? x.f : r;
}
FLOAT2(min_f32, float, canon(pick(a, b, false)))
FLOAT2(max_f32, float, canon(pick(a, b, true)))
FLOAT2(min_ftz, float, canon(pick(flush(a), flush(b), false)))
FLOAT2(max_ftz, float, canon(pick(flush(a), flush(b), true)))

#define BITS1(name, T, EXPR)                                                                       \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		T *d = sg_op(w, in->d);                                                            \
		const T *pa = sg_op(w, in->a);                                                     \
		SG_LANES(mask, T a = pa[i]; d[i] = EXPR;);                                         \
	}
/* v, but NaNs canonical; those of f64 are only made quiet, with their sign. */
static inline uint32_t number32(uint32_t a, uint32_t v)
{
	return (a & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : v;
}

static inline uint64_t number64(uint64_t a, uint64_t v)
{
	return (a & ~(1ull << 63)) > 0x7ffull << 52 ? a | 1ull << 51 : v;
}

static inline uint32_t number16(uint32_t a, uint32_t v, uint32_t inf)
{
	return (a & 0x7fff) > inf ? 0x7fff : v;
}

#define NUMBER_X2(inf, v)                                                                          \
	(number16(a >> 16, (v) >> 16, inf) << 16 | number16(a & 0xffff, (v)&0xffff, inf))
BITS1(abs_f32, uint32_t, number32(a, a & 0x7fffffff))
BITS1(neg_f32, uint32_t, number32(a, a ^ 0x80000000))
BITS1(abs_f64, uint64_t, number64(a, a & ~(1ull << 63)))
BITS1(neg_f64, uint64_t, number64(a, a ^ 1ull << 63))
BITS1(abs_h, uint32_t, number16(a, a & 0x7fff, 0x7c00))
BITS1(neg_h, uint32_t, number16(a, a ^ 0x8000, 0x7c00))
BITS1(abs_b, uint32_t, number16(a, a & 0x7fff, 0x7f80))
BITS1(neg_b, uint32_t, number16(a, a ^ 0x8000, 0x7f80))
BITS1(abs_h2, uint32_t, NUMBER_X2(0x7c00, a & 0x7fff7fff))
BITS1(neg_h2, uint32_t, NUMBER_X2(0x7c00, a ^ 0x80008000))
BITS1(abs_b2, uint32_t, NUMBER_X2(0x7f80, a & 0x7fff7fff))
BITS1(neg_b2, uint32_t, NUMBER_X2(0x7f80, a ^ 0x80008000))
BITS1(sqrt_f32, float, canon(sqrtf(a)))
BITS1(rcp_f32, float, canon(1.0f / a))
BITS1(sqrt_f64, double, sqrt(a))
BITS1(rcp_f64, double, 1.0 / a)

#define COPYSIGN(name, T, TOP)                                                                     \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		T *d = sg_op(w, in->d);                                                            \
		const T *pa = sg_op(w, in->a), *pb = sg_op(w, in->b);                              \
		SG_LANES(mask, d[i] = (pb[i] & ~(TOP)) | (pa[i] & (TOP)););                        \
	}
COPYSIGN(copysign_f32, uint32_t, 0x80000000u)
COPYSIGN(copysign_f64, uint64_t, 1ull << 63)

#define R(opcode, fn, sig)                                                                         \
	{                                                                                          \
		opcode, fn, sig, 0                                                                 \
	}
#define R_RN(op, suffix, fn, sig) R(op "." suffix, fn, sig), R(op ".rn." suffix, fn, sig)
const struct sg_row sg_float_rows[] = {
	R_RN("add", "f32", add_f32, "444"),
	R_RN("sub", "f32", sub_f32, "444"),
	R_RN("mul", "f32", mul_f32, "444"),
	R_RN("add", "ftz.f32", add_ftz, "444"),
	R_RN("sub", "ftz.f32", sub_ftz, "444"),
	R_RN("mul", "ftz.f32", mul_ftz, "444"),
	R("fma.rn.ftz.f32", fma_ftz, "4444"),
	R("mad.ftz.f32", fma_ftz, "4444"),
	R("min.f32", min_f32, "444"),
	R("max.f32", max_f32, "444"),
	R("min.ftz.f32", min_ftz, "444"),
	R("max.ftz.f32", max_ftz, "444"),
	R_RN("add", "f64", add_f64, "888"),
	R_RN("sub", "f64", sub_f64, "888"),
	R_RN("mul", "f64", mul_f64, "888"),
	R("div.rn.f32", div_f32, "444"),
	R("div.full.f32", div_f32, "444"),
	R("div.rn.f64", div_f64, "888"),
	R("fma.rn.f32", fma_f32, "4444"),
	R("mad.rn.f32", fma_f32, "4444"),
	R("mad.f32", fma_f32, "4444"),
	R("fma.rn.f64", fma_f64, "8888"),
	R("mad.rn.f64", fma_f64, "8888"),
	R("abs.f32", abs_f32, "44"),
	R("neg.f32", neg_f32, "44"),
	R("abs.f64", abs_f64, "88"),
	R("neg.f64", neg_f64, "88"),
	R("abs.f16", abs_h, "22"),
	R("neg.f16", neg_h, "22"),
	R("abs.bf16", abs_b, "22"),
	R("neg.bf16", neg_b, "22"),
	R("abs.f16x2", abs_h2, "44"),
	R("neg.f16x2", neg_h2, "44"),
	R("abs.bf16x2", abs_b2, "44"),
	R("neg.bf16x2", neg_b2, "44"),
	R("sqrt.rn.f32", sqrt_f32, "44"),
	R("sqrt.approx.f32", sqrt_f32, "44"),
	R("sqrt.rn.f64", sqrt_f64, "88"),
	R("rcp.rn.f32", rcp_f32, "44"),
	R("rcp.approx.f32", rcp_f32, "44"),
	R("rcp.rn.f64", rcp_f64, "88"),
	R("copysign.f32", copysign_f32, "444"),
	R("copysign.f64", copysign_f64, "888"),
};
const uint32_t sg_n_float_rows = sizeof(sg_float_rows) / sizeof(sg_float_rows[0]);

/* -- 16-bit formats ---------------------------------------------------------- */

float sg_half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, low = h & 0x7fff, bits = low << 13;
	float f;
	if (low >= 0x7c00) {
		bits = low > 0x7c00 ? 0x7fffffff : sign | 0x7f800000;
		memcpy(&f, &bits, 4);
		return f;
	}
	/* The exponent is 112 too small, and a subnormal half a subnormal float: both go right
	 * here. */
	memcpy(&f, &bits, 4);
	f *= 0x1p112f;
	return sign ? -f : f;
}

float sg_bf16_to_float(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

/* Whether the magnitude that is cut off rounds up; odd: the kept value's last bit. */
static bool rounds_up(uint64_t kept, uint64_t rest, int shift, bool negative, int rnd)
{
	uint64_t half = 1ull << (shift - 1);
	switch (rnd & 7) {
	case SG_RZ:
		return false;
	case SG_RM:
		return negative && rest;
	case SG_RP:
		return !negative && rest;
	case SG_RNA:
		return rest >= half;
	default:
		return rest > half || (rest == half && kept & 1);
	}
}

uint64_t sg_pack_double(double v, int ebits, int mbits, int rnd)
{
	uint64_t bits;
	memcpy(&bits, &v, 8);
	bool negative = bits >> 63;
	int bias = (1 << (ebits - 1)) - 1, exp = (int)(bits >> 52 & 2047);
	uint64_t mant = bits & ((1ull << 52) - 1), sign = (uint64_t)negative << (ebits + mbits);
	uint64_t inf = (uint64_t)((1 << ebits) - 1) << mbits;
	if (exp == 2047 && mant)
		return inf | ((1ull << mbits) - 1);
	if (exp == 2047)
		return sign | inf;
	if (exp)
		mant |= 1ull << 52;
	else
		exp = 1;
	/* mant * 2^(exp - 1023 - 52); the result keeps mbits below its leading bit. */
	int e = exp - 1023 + bias, shift = 52 - mbits;
	if (e < 1) {
		shift += 1 - e;
		e = 1;
	}
	if (shift > 62) {
		mant = mant != 0;
		shift = 62;
	}
	uint64_t kept = shift ? mant >> shift : mant,
		 rest = shift ? mant & ((1ull << shift) - 1) : 0;
	if (shift && rounds_up(kept, rest, shift, negative, rnd))
		kept++;
	/* A carry into the exponent, or from subnormal to normal, is what adding does. */
	uint64_t r = ((uint64_t)(e - 1) << mbits) + kept;
	if (r >= inf) {
		bool away = (rnd & 7) == SG_RN || (rnd & 7) == SG_RNA ||
			    (rnd & 7) == (negative ? SG_RM : SG_RP);
		r = away ? inf : inf - 1;
	}
	return sign | r;
}

/* a * b + c where the product is exact in a double; rounded to odd, so that one more rounding to a
 * narrow format gives the correctly rounded result. */
double sg_round_odd_fma(double a, double b, double c)
{
	double p = a * b, s = p + c;
	if (!isfinite(s))
		return s;
	double bb = s - p, err = (p - (s - bb)) + (c - bb);
	uint64_t bits;
	memcpy(&bits, &s, 8);
	if (err != 0 && !(bits & 1)) {
		/* The exact value lies between s and its neighbour; take the odd one. */
		bool grow = (err > 0) == (s > 0);
		if (s == 0)
			return err;
		bits += grow ? 1 : (uint64_t)-1;
		memcpy(&s, &bits, 8);
	}
	return s;
}

static bool is_bf16(uint8_t type)
{
	return type == T_BF16 || type == T_BF16X2;
}

static double half_min_max(const struct sg_insn *in, double a, double b, bool is_max)
{
	if (a != a || b != b)
		return in->flags & SG_NAN || (a != a && b != b) ? NAN : a != a ? b : a;
	if (a == 0 && b == 0)
		return is_max == !!signbit(a) ? b : a;
	return is_max ? (a > b ? a : b) : (a < b ? a : b);
}

static double half_op(const struct sg_insn *in, double a, double b, double c)
{
	switch (in->op) {
	case SG_F_ADD:
		return sg_round_odd_fma(a, 1, b);
	case SG_F_SUB:
		return sg_round_odd_fma(a, 1, -b);
	case SG_F_MUL:
		return a * b;
	case SG_F_FMA:
		return sg_round_odd_fma(a, b, c);
	case SG_F_MIN:
	case SG_F_MAX:
		if (in->flags & SG_XORSIGN)
			a = fabs(a), b = fabs(b);
		return half_min_max(in, a, b, in->op == SG_F_MAX);
	case SG_F_EX2:
		return exp2(a);
	case SG_F_TANH:
		return tanh(a);
	case SG_F_RCP:
		return 1 / a;
	case SG_F_NEG:
		return -a;
	default:
		return fabs(a);
	}
}

static double half_flush(const struct sg_insn *in, double v)
{
	double least = is_bf16(in->type) ? 0x1p-126 : 0x1p-14;
	return in->flags & SG_FTZ && fabs(v) < least ? copysign(0, v) : v;
}

static uint16_t half_lane(const struct sg_insn *in, uint16_t ha, uint16_t hb, uint16_t hc)
{
	bool bf = is_bf16(in->type);
	float (*get)(uint16_t) = bf ? sg_bf16_to_float : sg_half_to_float;
	double r = half_op(
		in, half_flush(in, get(ha)), half_flush(in, get(hb)), half_flush(in, get(hc)));
	if (in->flags & SG_SAT)
		r = r != r || r <= 0 ? 0 : r > 1 ? 1 : r;
	if (in->flags & SG_RELU && r <= 0)
		r = 0;
	uint16_t bits = (uint16_t)sg_pack_double(half_flush(in, r), bf ? 8 : 5, bf ? 7 : 10, SG_RN);
	if (in->flags & SG_XORSIGN && r == r)
		bits = (uint16_t)((bits & 0x7fff) | ((ha ^ hb) & 0x8000));
	return bits;
}

SG_HANDLER(sg_float16)
{
	uint32_t *d = sg_op(w, in->d);
	const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b), *c = sg_op(w, in->c);
	bool pair = in->type == T_F16X2 || in->type == T_BF16X2;
	SG_LANES(mask, {
		uint32_t r = half_lane(in, (uint16_t)a[i], (uint16_t)b[i], (uint16_t)c[i]);
		if (pair)
			r |= (uint32_t)half_lane(in, a[i] >> 16, b[i] >> 16, c[i] >> 16) << 16;
		d[i] = r;
	});
}
