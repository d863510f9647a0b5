/* exec_round.c - float operations with any rounding, flush, saturation and NaN rule.
 *
 * Compiled with -frounding-math. The rounding mode is set around a loop over lanes whose operands
 * come from memory and whose results go to memory, and is back to nearest when a handler returns:
 * no code outside this file runs under another mode.
 */
#include "softgpu/internal.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

static uint32_t bits32(float v)
{
	uint32_t u;
	memcpy(&u, &v, 4);
	return u;
}

static float float32(uint32_t u)
{
	float v;
	memcpy(&v, &u, 4);
	return v;
}

static float flush(float v)
{
	uint32_t u = bits32(v);
	return u & 0x7f800000 ? v : float32(u & 0x80000000);
}

static int host_mode(uint8_t rnd)
{
	switch (rnd & 7) {
	case SG_RZ:
		return FE_TOWARDZERO;
	case SG_RM:
		return FE_DOWNWARD;
	case SG_RP:
		return FE_UPWARD;
	default:
		return FE_TONEAREST;
	}
}

/* IEEE 754-2019 minimumNumber or (SG_NAN) minimum; -0 is less than +0. */
#define MIN_MAX(name, T)                                                                           \
	static T name(uint32_t flags, T a, T b, bool is_max)                                       \
	{                                                                                          \
		if (a != a || b != b)                                                              \
			return flags & SG_NAN || (a != a && b != b) ? (b != b ? b + b : a + a)     \
			       : a != a                             ? b                            \
								    : a;                                                       \
		if (a == 0 && b == 0)                                                              \
			return is_max == !!signbit(a) ? b : a;                                     \
		return is_max ? (a > b ? a : b) : (a < b ? a : b);                                 \
	}
MIN_MAX(min_max32, float)
MIN_MAX(min_max64, double)

/* Special cases of the approximations follow the PTX tables; results are the nearest float. */
static float op32(const struct sg_insn *in, float a, float b, float c)
{
	switch (in->op) {
	case SG_F_ADD:
		return a + b;
	case SG_F_SUB:
		return a - b;
	case SG_F_MUL:
		return a * b;
	case SG_F_FMA:
		return fmaf(a, b, c);
	case SG_F_DIV:
		/* .approx multiplies by a reciprocal that is zero here (PTX ISA, div). */
		if (in->flags & SG_APPROX && fabsf(b) > 0x1p126f && !isinf(b))
			b = copysignf(INFINITY, b);
		return a / b;
	case SG_F_RCP:
		return 1.0f / a;
	case SG_F_SQRT:
		return sqrtf(a);
	case SG_F_RSQRT:
		return (float)(1.0 / sqrt((double)a));
	case SG_F_SIN:
		return (float)sin((double)a);
	case SG_F_COS:
		return (float)cos((double)a);
	case SG_F_EX2:
		return (float)exp2((double)a);
	case SG_F_LG2:
		return (float)log2((double)a);
	case SG_F_TANH:
		return (float)tanh((double)a);
	case SG_F_ABS:
		return fabsf(a);
	case SG_F_NEG:
		return -a;
	case SG_F_MIN:
	case SG_F_MAX:
		/* .xorsign.abs compares magnitudes. */
		if (in->flags & SG_XORSIGN)
			a = fabsf(a), b = fabsf(b);
		return min_max32(in->flags, a, b, in->op == SG_F_MAX);
	case SG_F_MIN3:
	case SG_F_MAX3: {
		bool is_max = in->op == SG_F_MAX3;
		return min_max32(in->flags, min_max32(in->flags, a, b, is_max), c, is_max);
	}
	default:
		return a;
	}
}

static double op64(const struct sg_insn *in, double a, double b, double c)
{
	switch (in->op) {
	case SG_F_ADD:
		return a + b;
	case SG_F_SUB:
		return a - b;
	case SG_F_MUL:
		return a * b;
	case SG_F_FMA:
		return fma(a, b, c);
	case SG_F_DIV:
		return a / b;
	case SG_F_RCP:
		return 1.0 / a;
	case SG_F_SQRT:
		return sqrt(a);
	case SG_F_RSQRT:
		return 1.0 / sqrt(a);
	case SG_F_MIN:
	case SG_F_MAX:
		return min_max64(in->flags, a, b, in->op == SG_F_MAX);
	default:
		return a;
	}
}

/* The .approx.ftz.f64 forms of rcp and rsqrt work on the upper halves only. */
static double coarse(double v)
{
	uint64_t u;
	memcpy(&u, &v, 8);
	if ((u >> 52 & 2047) == 0)
		u &= 1ull << 63;
	u &= ~0xffffffffull;
	memcpy(&v, &u, 8);
	return v;
}

/* Whether the exact result is too small for a normal float, though it may round to one. */
static bool tiny(const struct sg_insn *in, float a, float b, float c)
{
	double exact = in->op == SG_F_MUL   ? (double)a * b
		       : in->op == SG_F_DIV ? (double)a / b
		       : in->op == SG_F_FMA ? (double)a * b + c
					    : 1;
	return fabs(exact) < 0x1p-126;
}

static float finish32(const struct sg_insn *in, float r, float a, float b)
{
	if (in->flags & SG_FTZ)
		r = flush(r);
	if (in->flags & SG_SAT)
		r = r != r || r <= 0 ? 0.0f : r > 1 ? 1.0f : r;
	if (in->flags & SG_XORSIGN && r == r)
		r = float32((bits32(r) & 0x7fffffff) | ((bits32(a) ^ bits32(b)) & 0x80000000));
	return r != r ? float32(0x7fffffff) : r;
}

/* Sources that an operation does not have read as its first. */
SG_HANDLER(sg_float32)
{
	float *d = sg_op(w, in->d);
	const float *a = sg_op(w, in->a), *b = sg_op(w, in->b), *c = sg_op(w, in->c);
	int mode = host_mode(in->rnd);
	if (mode != FE_TONEAREST)
		fesetround(mode);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		volatile float x = a[i], y = b[i], z = c[i], r;
		if (in->flags & SG_FTZ) {
			x = flush(x);
			y = flush(y);
			z = flush(z);
		}
		r = op32(in, x, y, z);
		if (in->flags & SG_FTZ && fabsf(r) == 0x1p-126f && tiny(in, x, y, z))
			r = copysignf(0, r);
		d[i] = finish32(in, r, a[i], b[i]);
	}
	if (mode != FE_TONEAREST)
		fesetround(FE_TONEAREST);
}

double sg_fma_rounded(double a, double b, double c, uint8_t rnd)
{
	volatile double x = a, y = b, z = c, r;
	fesetround(host_mode(rnd));
	r = fma(x, y, z);
	fesetround(FE_TONEAREST);
	return r;
}

SG_HANDLER(sg_float64)
{
	double *d = sg_op(w, in->d);
	const double *a = sg_op(w, in->a), *b = sg_op(w, in->b), *c = sg_op(w, in->c);
	int mode = host_mode(in->rnd);
	if (mode != FE_TONEAREST)
		fesetround(mode);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		volatile double x = a[i], y = b[i], z = c[i], r;
		if (in->flags & SG_APPROX)
			x = coarse(x);
		r = op64(in, x, y, z);
		if (in->op <= SG_F_FMA && (x != x || y != y || z != z))
			r = y != y ? y + y : in->op == SG_F_FMA && z != z ? z + z : x + x;
		d[i] = in->flags & SG_APPROX ? coarse(r) : r;
	}
	if (mode != FE_TONEAREST)
		fesetround(FE_TONEAREST);
}

/* testp; sub: 0 finite, 1 infinite, 2 number, 3 notanumber, 4 normal, 5 subnormal. */
static bool test_class(double v, bool subnormal, uint8_t what)
{
	switch (what) {
	case 0:
		return isfinite(v);
	case 1:
		return isinf(v);
	case 2:
		return !isnan(v);
	case 3:
		return isnan(v);
	case 4:
		return isfinite(v) && !subnormal; /* zeros are normal (PTX ISA, testp) */
	default:
		return subnormal;
	}
}

static void put_pred(uint32_t *p, uint32_t mask, uint32_t bits)
{
	*p = (*p & ~mask) | (bits & mask);
}

SG_HANDLER(sg_testp32)
{
	const float *a = sg_op(w, in->a);
	uint32_t r = 0;
	for (int i = 0; i < 32; i++)
		r |= (uint32_t)test_class(a[i], fpclassify(a[i]) == FP_SUBNORMAL, in->sub) << i;
	put_pred(sg_op(w, in->d), mask, r);
}

SG_HANDLER(sg_testp64)
{
	const double *a = sg_op(w, in->a);
	uint32_t r = 0;
	for (int i = 0; i < 32; i++)
		r |= (uint32_t)test_class(a[i], fpclassify(a[i]) == FP_SUBNORMAL, in->sub) << i;
	put_pred(sg_op(w, in->d), mask, r);
}
