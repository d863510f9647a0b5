/* exec_video.c - video instructions: scalar ones on selected bytes or halves with a second
 * operation, and their SIMD forms on two or four parts.
 *
 * insn.op: what; type, type2, sub: signedness (T_S32 or T_U32) of the result, of a and of b; n:
 * parts, 1: scalar; has: flags below; bytes: second operation (enum sg_video_second); rnd: scale of
 * vmad or the comparison of vset; imm: selectors of a, b and d, four bits each (0: the whole, 1..4:
 * a byte, 5, 6: a half), or for SIMD forms the mask of parts that d takes; e, d2: of SIMD forms,
 * four bits for each part of the operands, which of the parts of a and then b it is.
 */
#include "softgpu/internal.h"

static int64_t select_part(uint32_t v, uint32_t sel, bool is_signed)
{
	uint32_t bits = !sel      ? 32
			: sel < 5 ? 8
				  : 16,
		 at = !sel      ? 0
		      : sel < 5 ? (sel - 1) * 8
				: (sel - 5) * 16;
	uint32_t part = v >> at;
	if (bits == 32)
		return is_signed ? (int64_t)(int32_t)part : (int64_t)part;
	part &= (1u << bits) - 1;
	return is_signed && part >> (bits - 1) ? (int64_t)part - (1 << bits) : (int64_t)part;
}

static int64_t clamp_to(int64_t v, uint32_t bits, bool is_signed)
{
	int64_t max = is_signed ? (1ll << (bits - 1)) - 1 : (1ll << bits) - 1,
		min = is_signed ? -max - 1 : 0;
	return v > max ? max : v < min ? min : v;
}

static bool compare(uint8_t cmp, int64_t a, int64_t b)
{
	switch (cmp) {
	case SG_EQ:
		return a == b;
	case SG_NE:
		return a != b;
	case SG_LT:
		return a < b;
	case SG_LE:
		return a <= b;
	case SG_GT:
		return a > b;
	default:
		return a >= b;
	}
}

static int64_t shift(const struct sg_insn *in, int64_t a, int64_t b)
{
	uint32_t n = (uint32_t)b;
	n = in->has & SG_V_WRAP ? n & 31 : n > 32 ? 32 : n;
	return in->op == SG_V_SHL ? (int64_t)((uint64_t)a << n) : a >> n;
}

static int64_t operate(const struct sg_insn *in, int64_t a, int64_t b)
{
	switch (in->op) {
	case SG_V_ADD:
		return a + b;
	case SG_V_SUB:
		return a - b;
	case SG_V_AVRG:
		return (a + b + (a + b >= 0)) >> 1;
	case SG_V_ABSDIFF:
		return a > b ? a - b : b - a;
	case SG_V_MIN:
		return a < b ? a : b;
	case SG_V_MAX:
		return a > b ? a : b;
	case SG_V_SET:
		return compare(in->rnd, a, b);
	default:
		return shift(in, a, b);
	}
}

static uint32_t second(const struct sg_insn *in, int64_t wide, uint32_t c, uint32_t dsel)
{
	/* An unsigned result that is negative counts as larger than any word. */
	uint32_t v = (uint32_t)wide, keep;
	bool less = in->type == T_S32 ? (int32_t)v < (int32_t)c : wide >= 0 && v < c;
	switch (in->bytes) {
	case SG_V_PLUS:
		return v + c;
	case SG_V_LEAST:
		return less ? v : c;
	case SG_V_MOST:
		return less ? c : v;
	default:
		if (!dsel)
			return v;
		/* A byte is moved to its place; the upper half is taken where it stands, as an H200
		 * does. */
		if (dsel > 4)
			return dsel == 5 ? (c & 0xffff0000) | (v & 0xffff)
					 : (c & 0xffff) | (v & 0xffff0000);
		keep = 0xffu << (dsel - 1) * 8;
		return (c & ~keep) | (v << __builtin_ctz(keep) & keep);
	}
}

static uint32_t scalar(const struct sg_insn *in, uint32_t va, uint32_t vb, uint32_t c)
{
	uint32_t dsel = (uint32_t)in->imm >> 8 & 15;
	int64_t a = select_part(va, in->imm & 15, in->type2 == T_S32),
		b = select_part(vb, in->imm >> 4 & 15, in->sub == T_S32), v;
	if (in->op == SG_V_MAD) {
		/* 65 bits would be needed only for products of whole words. */
		__int128 wide =
			(__int128)a * b +
			(in->type == T_S32 || in->rnd || in->has & SG_V_SAT ? (int64_t)(int32_t)c
									    : (int64_t)c) +
			(in->has & SG_V_PO ? 1 : 0);
		wide >>= in->rnd;
		v = wide > INT64_MAX ? INT64_MAX : wide < INT64_MIN ? INT64_MIN : (int64_t)wide;
		if (!(in->has & SG_V_SAT))
			return (uint32_t)wide;
		/* As above: negative is more than any word. */
		if (in->rnd && in->type == T_U32 && v < 0)
			return UINT32_MAX;
		return (uint32_t)clamp_to(v, 32, in->type == T_S32);
	}
	v = operate(in, a, b);
	/* On an H200 an unsigned word is not clamped at its upper end: it wraps. */
	if (in->has & SG_V_SAT && in->type == T_U32 && !dsel)
		v = v < 0 ? 0 : (uint32_t)v;
	else if (in->has & SG_V_SAT)
		v = clamp_to(v, !dsel ? 32 : dsel < 5 ? 8 : 16, in->type == T_S32);
	return second(in, v, c, dsel);
}

static int64_t any_part(
	const struct sg_insn *in, uint32_t a, uint32_t b, uint32_t which, bool is_signed)
{
	uint32_t k = which & (in->n - 1u);
	return select_part(which < in->n ? a : b, in->n == 2 ? 5 + k : 1 + k, is_signed);
}

static uint32_t parts(const struct sg_insn *in, uint32_t va, uint32_t vb, uint32_t c)
{
	const uint32_t bits = 32 / in->n, part = bits == 8 ? 0xff : 0xffff;
	uint32_t packed = 0, sum = c, keep = 0;
	for (uint32_t k = 0; k < in->n; k++) {
		int64_t v =
			operate(in, any_part(in, va, vb, in->e >> 4 * k & 15, in->type2 == T_S32),
				any_part(in, va, vb, in->d2 >> 4 * k & 15, in->sub == T_S32));
		if (in->has & SG_V_SAT)
			v = clamp_to(v, bits, in->type == T_S32);
		if (in->imm >> k & 1) {
			sum += (uint32_t)v;
			packed |= ((uint32_t)v & part) << bits * k;
			keep |= part << bits * k;
		}
	}
	return in->bytes == SG_V_PLUS ? sum : packed | (c & ~keep);
}

SG_HANDLER(sg_video)
{
	uint32_t *d = sg_op(w, in->d);
	const uint32_t *a = sg_op(w, in->a), *b = sg_op(w, in->b), *c = sg_op(w, in->c);
	SG_LANES(mask,
		 d[i] = in->n == 1 ? scalar(in, a[i], b[i], c[i]) : parts(in, a[i], b[i], c[i]););
}
