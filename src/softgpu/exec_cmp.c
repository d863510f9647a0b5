/* exec_cmp.c - comparisons, selections and predicate logic. */
#include "softgpu/internal.h"

#include <math.h>
#include <string.h>

#define CMP(name, L, T, EXPR)                                                                      \
	static uint32_t name(const void *va, const void *vb)                                       \
	{                                                                                          \
		const L *pa = va, *pb = vb;                                                        \
		uint32_t r = 0;                                                                    \
		for (int i = 0; i < 32; i++) {                                                     \
			T a = (T)pa[i], b = (T)pb[i];                                              \
			r |= (uint32_t)(EXPR) << i;                                                \
		}                                                                                  \
		return r;                                                                          \
	}
#define CMP6(suffix, L, T)                                                                         \
	CMP(eq_##suffix, L, T, a == b)                                                             \
	CMP(ne_##suffix, L, T, a != b)                                                             \
	CMP(lt_##suffix, L, T, a < b)                                                              \
	CMP(le_##suffix, L, T, a <= b)                                                             \
	CMP(gt_##suffix, L, T, a > b)                                                              \
	CMP(ge_##suffix, L, T, a >= b)
CMP6(u16, uint32_t, uint16_t)
CMP6(s16, uint32_t, int16_t)
CMP6(u32, uint32_t, uint32_t)
CMP6(s32, uint32_t, int32_t)
CMP6(u64, uint64_t, uint64_t)
CMP6(s64, uint64_t, int64_t)

/* Ordered comparisons are false and unordered ones true when an operand is NaN. */
#define CMP14(suffix, L, T)                                                                        \
	CMP(eq_##suffix, L, T, a == b)                                                             \
	CMP(ne_##suffix, L, T, a<b || a> b)                                                        \
	CMP(lt_##suffix, L, T, a < b)                                                              \
	CMP(le_##suffix, L, T, a <= b)                                                             \
	CMP(gt_##suffix, L, T, a > b)                                                              \
	CMP(ge_##suffix, L, T, a >= b)                                                             \
	CMP(equ_##suffix, L, T, !(a < b || a > b))                                                 \
	CMP(neu_##suffix, L, T, a != b)                                                            \
	CMP(ltu_##suffix, L, T, !(a >= b))                                                         \
	CMP(leu_##suffix, L, T, !(a > b))                                                          \
	CMP(gtu_##suffix, L, T, !(a <= b))                                                         \
	CMP(geu_##suffix, L, T, !(a < b))                                                          \
	CMP(num_##suffix, L, T, a == a && b == b)                                                  \
	CMP(nan_##suffix, L, T, a != a || b != b)
CMP14(f32, float, float)
CMP14(f64, double, double)

#define ROW6(s)                                                                                    \
	{                                                                                          \
		eq_##s, ne_##s, lt_##s, le_##s, gt_##s, ge_##s                                     \
	}
#define ROW14(s)                                                                                   \
	{                                                                                          \
		eq_##s, ne_##s, lt_##s, le_##s, gt_##s, ge_##s, equ_##s, neu_##s, ltu_##s,         \
			leu_##s, gtu_##s, geu_##s, num_##s, nan_##s                                \
	}
static const sg_compare table[T_COUNT][SG_CMP_COUNT] = {
	[T_U16] = ROW6(u16),
	[T_S16] = ROW6(s16),
	[T_B16] = ROW6(u16),
	[T_U32] = ROW6(u32),
	[T_S32] = ROW6(s32),
	[T_B32] = ROW6(u32),
	[T_U64] = ROW6(u64),
	[T_S64] = ROW6(s64),
	[T_B64] = ROW6(u64),
	[T_F32] = ROW14(f32),
	[T_F64] = ROW14(f64),
	/* 16-bit floats are widened first. */
	[T_F16] = ROW14(f32),
	[T_BF16] = ROW14(f32),
	[T_F16X2] = ROW14(f32),
	[T_BF16X2] = ROW14(f32),
};

sg_compare sg_compare_fn(uint8_t type, uint8_t cmp)
{
	return type < T_COUNT && cmp < SG_CMP_COUNT ? table[type][cmp] : NULL;
}

static bool is_half(uint8_t t)
{
	return t == T_F16 || t == T_F16X2 || t == T_BF16 || t == T_BF16X2;
}

static float flush(float v)
{
	return fabsf(v) < 0x1p-126f ? copysignf(0, v) : v;
}

/* Half number `part` (0 low, 1 high) of each lane as a float. */
static void widen(
	const struct sg_insn *in, uint32_t op, const struct sg_warp *w, int part, float *out)
{
	const uint32_t *p = sg_op(w, op);
	bool bf = in->type == T_BF16 || in->type == T_BF16X2;
	for (int i = 0; i < 32; i++) {
		uint16_t h = (uint16_t)(p[i] >> part * 16);
		out[i] = bf ? sg_bf16_to_float(h) : sg_half_to_float(h);
		if (in->flags & SG_FTZ && fabsf(out[i]) < 0x1p-14f && !bf)
			out[i] = copysignf(0, out[i]);
	}
}

static uint32_t compare_part(const struct sg_warp *w, const struct sg_insn *in, int part)
{
	float a[32], b[32];
	if (is_half(in->type)) {
		widen(in, in->a, w, part, a);
		widen(in, in->b, w, part, b);
		return in->compare(a, b);
	}
	if (!(in->flags & SG_FTZ))
		return in->compare(sg_op(w, in->a), sg_op(w, in->b));
	const float *pa = sg_op(w, in->a), *pb = sg_op(w, in->b);
	for (int i = 0; i < 32; i++) {
		a[i] = flush(pa[i]);
		b[i] = flush(pb[i]);
	}
	return in->compare(a, b);
}

/* sub: 0 none, 1 and, 2 or, 3 xor with predicate c. */
static uint32_t combine(const struct sg_warp *w, const struct sg_insn *in, uint32_t r)
{
	if (!in->sub)
		return r;
	uint32_t c = *(const uint32_t *)sg_op(w, in->c);
	if (in->flags & SG_NOT_C)
		c = ~c;
	return in->sub == 1 ? r & c : in->sub == 2 ? r | c : r ^ c;
}

static void put(struct sg_warp *w, uint32_t op, uint32_t mask, uint32_t bits)
{
	uint32_t *p = sg_op(w, op);
	*p = (*p & ~mask) | (bits & mask);
}

/* has bit 0: the second destination. */
SG_HANDLER(sg_setp)
{
	uint32_t r = compare_part(w, in, 0);
	uint32_t yes = combine(w, in, r), no = in->has & 1 ? combine(w, in, ~r) : 0;
	put(w, in->d, mask, yes);
	if (in->has & 1)
		put(w, in->d2, mask, no);
}

/* Pairs of halves: one destination for each. */
SG_HANDLER(sg_setp_x2)
{
	uint32_t lo = combine(w, in, compare_part(w, in, 0)),
		 hi = combine(w, in, compare_part(w, in, 1));
	put(w, in->d, mask, lo);
	put(w, in->d2, mask, hi);
}

/* set: imm is the value for true (all ones, 1.0 of a type), width the bytes of a destination lane.
 */
SG_HANDLER(sg_set)
{
	uint32_t r = combine(w, in, compare_part(w, in, 0)), hi = 0;
	bool pair = in->type == T_F16X2 || in->type == T_BF16X2;
	if (pair)
		hi = combine(w, in, compare_part(w, in, 1));
	uint32_t *d = sg_op(w, in->d), v = (uint32_t)in->imm;
	SG_LANES(mask, uint32_t x = r >> i & 1 ? v : 0;
		 d[i] = pair ? (x & 0xffff) | (hi >> i & 1 ? v << 16 : 0) : x;);
}

SG_HANDLER(sg_selp32)
{
	uint32_t *d = sg_op(w, in->d), p = *(const uint32_t *)sg_op(w, in->c);
	const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b);
	if (in->flags & SG_NOT_C)
		p = ~p;
	SG_LANES(mask, d[i] = p >> i & 1 ? a[i] : b[i];);
}

SG_HANDLER(sg_selp64)
{
	uint64_t *d = sg_op(w, in->d);
	uint32_t p = *(const uint32_t *)sg_op(w, in->c);
	const uint64_t *a = sg_op(w, in->a), *b = sg_op(w, in->b);
	if (in->flags & SG_NOT_C)
		p = ~p;
	SG_LANES(mask, d[i] = p >> i & 1 ? a[i] : b[i];);
}

/* slct: a when c >= 0 (type2 F32: -0 counts, NaN does not). */
SG_HANDLER(sg_slct)
{
	const uint32_t *c = sg_op(w, in->c);
	uint32_t p = 0;
	for (int i = 0; i < 32; i++) {
		float f;
		memcpy(&f, &c[i], 4);
		bool yes = in->type2 == T_F32 ? f >= 0 || (in->flags & SG_FTZ && flush(f) == 0)
					      : (int32_t)c[i] >= 0;
		p |= (uint32_t)yes << i;
	}
	if (in->width == 8) {
		uint64_t *d = sg_op(w, in->d);
		const uint64_t *a = sg_op(w, in->a), *b = sg_op(w, in->b);
		SG_LANES(mask, d[i] = p >> i & 1 ? a[i] : b[i];);
	} else {
		uint32_t *d = sg_op(w, in->d);
		const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b);
		SG_LANES(mask, d[i] = p >> i & 1 ? a[i] : b[i];);
	}
}

/* op: 0 mov, 1 and, 2 or, 3 xor, 4 not. */
SG_HANDLER(sg_pred_logic)
{
	uint32_t a = *(const uint32_t *)sg_op(w, in->a), b = *(const uint32_t *)sg_op(w, in->b);
	if (in->flags & SG_NOT_A)
		a = ~a;
	if (in->flags & SG_NOT_C)
		b = ~b;
	const uint32_t r[5] = { a, a & b, a | b, a ^ b, ~a };
	put(w, in->d, mask, r[in->op]);
}
