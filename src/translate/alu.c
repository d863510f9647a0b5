/* alu.c - arithmetic: moves, byte swaps, division and the rest, 64 and 32 bits wide.
 *
 * 32-bit operations take the low halves and zero-extend their result. Nothing here traps or is undefined: division by zero
 * gives 0, the remainder by zero the dividend, INT_MIN / -1 wraps, shift counts are masked (PTX would clamp them).
 */
#include "translate/internal.h"

/* The source operand as 64 bits: a register or a sign-extended constant. */
struct tr_name tr_src64(const struct tr_inst *inst, const struct bpf_insn *in)
{
	return BPF_SRC(in->code) == BPF_X ? tr_reg(inst, in->src_reg) : tr_imm(in->imm);
}

/* The low half of a register. */
struct tr_name tr_low32(struct tr *t, struct tr_name reg)
{
	struct tr_name w = tr_t32(t);
	tr_emit(t, "cvt.u32.u64 %s, %s;", w.s, reg.s);
	return w;
}

struct tr_name tr_src32(struct tr *t, const struct tr_inst *inst, const struct bpf_insn *in)
{
	return BPF_SRC(in->code) == BPF_X ? tr_low32(t, tr_reg(inst, in->src_reg)) : tr_imm32(in->imm);
}

/* -- division ---------------------------------------------------------------- */

struct width {
	uint32_t bits;
	const char *s, *u; /* type suffixes */
};

static const struct width width32 = { 32, "s32", "u32" }, width64 = { 64, "s64", "u64" };

static struct tr_name temp(struct tr *t, const struct width *w)
{
	return w->bits == 64 ? tr_t64(t) : tr_t32(t);
}

/* q = -a. In 32 bits not as neg, mul by -1 or a subtraction from 0: ptxas 13.0 (-O1 and above, sm_90) loses such a one
 * under a branch when a is known to be 0x7fffffff, and the old value goes on (seen on an H200). */
static void negate(struct tr *t, const struct width *w, struct tr_name q, struct tr_name a)
{
	if (w->bits == 64) {
		tr_emit(t, "neg.s64 %s, %s;", q.s, a.s);
		return;
	}
	tr_emit(t, "not.b32 %s, %s;", q.s, a.s);
	tr_emit(t, "add.s32 %s, %s, 1;", q.s, q.s);
}

/* q = a / b or a % b for a divisor that is a constant. */
static void divide_constant(struct tr *t, const struct width *w, bool is_signed, bool rem,
	struct tr_name q, struct tr_name a, int64_t b)
{
	if (!b || (is_signed && b == -1)) {
		if (!b)
			tr_emit(t, "mov.b%u %s, %s;", w->bits, q.s, rem ? a.s : "0");
		else if (rem)
			tr_emit(t, "mov.b%u %s, 0;", w->bits, q.s);
		else
			negate(t, w, q, a);
		return;
	}
	struct tr_name k = w->bits == 64 ? tr_imm(b) : tr_imm32((int32_t)b);
	tr_emit(t, "%s.%s %s, %s, %s;", rem ? "rem" : "div", is_signed ? w->s : w->u, q.s, a.s,
		k.s);
}

/* The divisor is replaced by 1 where the quotient is fixed up afterwards. */
static void divide(struct tr *t, const struct width *w, bool is_signed, bool rem, struct tr_name q,
	struct tr_name a, struct tr_name b)
{
	struct tr_name zero = tr_pred(t), safe = temp(t, w), r = temp(t, w);
	tr_emit(t, "setp.eq.%s %s, %s, 0;", w->u, zero.s, b.s);
	tr_emit(t, "selp.b%u %s, 1, %s, %s;", w->bits, safe.s, b.s, zero.s);
	struct tr_name minus = tr_pred(t);
	if (is_signed) {
		tr_emit(t, "setp.eq.%s %s, %s, -1;", w->s, minus.s, b.s);
		tr_emit(t, "selp.b%u %s, 1, %s, %s;", w->bits, safe.s, safe.s, minus.s);
	}
	tr_emit(t, "%s.%s %s, %s, %s;", rem ? "rem" : "div", is_signed ? w->s : w->u, r.s, a.s,
		safe.s);
	if (is_signed && !rem) { /* a % 1 is 0 already */
		struct tr_name n = temp(t, w);
		negate(t, w, n, a);
		tr_emit(t, "selp.b%u %s, %s, %s, %s;", w->bits, r.s, n.s, r.s, minus.s);
	}
	tr_emit(t, "selp.b%u %s, %s, %s, %s;", w->bits, q.s, rem ? a.s : "0", r.s, zero.s);
}

/* -- arithmetic -------------------------------------------------------------- */

static const char *alu_name(uint8_t op, bool wide)
{
	switch (op) {
	case BPF_ADD:
		return wide ? "add.s64" : "add.s32";
	case BPF_SUB:
		return wide ? "sub.s64" : "sub.s32";
	case BPF_MUL:
		return wide ? "mul.lo.s64" : "mul.lo.s32";
	case BPF_OR:
		return wide ? "or.b64" : "or.b32";
	case BPF_AND:
		return wide ? "and.b64" : "and.b32";
	case BPF_XOR:
		return wide ? "xor.b64" : "xor.b32";
	case BPF_LSH:
		return wide ? "shl.b64" : "shl.b32";
	case BPF_RSH:
		return wide ? "shr.u64" : "shr.u32";
	case BPF_ARSH:
		return wide ? "shr.s64" : "shr.s32";
	default:
		return NULL;
	}
}

static bool is_shift(uint8_t op)
{
	return op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH;
}

/* A shift count within 0..mask. */
static struct tr_name shift_count(
	struct tr *t, const struct tr_inst *inst, const struct bpf_insn *in, int32_t mask)
{
	if (BPF_SRC(in->code) == BPF_K)
		return tr_imm32(in->imm & mask);
	struct tr_name w = tr_low32(t, tr_reg(inst, in->src_reg));
	tr_emit(t, "and.b32 %s, %s, %d;", w.s, w.s, mask);
	return w;
}

static void sign_extend(struct tr *t, struct tr_name dst, struct tr_name src, int bits, bool wide)
{
	tr_emit(t, "shl.b64 %s, %s, %d;", dst.s, src.s, 64 - bits);
	tr_emit(t, "shr.s64 %s, %s, %d;", dst.s, dst.s, 64 - bits);
	if (!wide)
		tr_emit(t, "and.b64 %s, %s, 0xffffffff;", dst.s, dst.s);
}

static int lower_mov(struct tr *t, struct tr_inst *inst, uint32_t i, bool wide)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	struct tr_name dst = tr_reg(inst, in->dst_reg), src = tr_src64(inst, in);
	bool is_reg = BPF_SRC(in->code) == BPF_X;
	if (is_reg && (in->off == 8 || in->off == 16 || (in->off == 32 && wide)))
		sign_extend(t, dst, src, in->off, wide);
	else if (in->off)
		return tr_unsupported(t, inst->at[i].pc, "unknown kind of move");
	else if (!is_reg && !wide)
		tr_emit(t, "mov.u64 %s, %u;", dst.s, (uint32_t)in->imm);
	else if (wide)
		tr_emit(t, "mov.u64 %s, %s;", dst.s, src.s);
	else
		tr_emit(t, "and.b64 %s, %s, 0xffffffff;", dst.s, src.s);
	return 0;
}

/* Reverses the bytes of the low or of both halves. */
static void swap_bytes(struct tr *t, struct tr_name dst, int bits)
{
	struct tr_name lo = tr_t32(t), hi = tr_t32(t);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", lo.s, hi.s, dst.s);
	tr_emit(t, "prmt.b32 %s, %s, 0, 0x0123;", lo.s, lo.s);
	if (bits == 64) {
		tr_emit(t, "prmt.b32 %s, %s, 0, 0x0123;", hi.s, hi.s);
		tr_emit(t, "mov.b64 %s, {%s, %s};", dst.s, hi.s, lo.s);
		return;
	}
	if (bits == 16)
		tr_emit(t, "shr.u32 %s, %s, 16;", lo.s, lo.s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", dst.s, lo.s);
}

static int lower_end(struct tr *t, struct tr_inst *inst, uint32_t i, bool always)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	struct tr_name dst = tr_reg(inst, in->dst_reg);
	if ((in->imm != 16 && in->imm != 32 && in->imm != 64) ||
		(always && BPF_SRC(in->code) == BPF_X))
		return tr_unsupported(t, inst->at[i].pc, "unknown byte swap");
	if (always || BPF_SRC(in->code) == BPF_TO_BE)
		swap_bytes(t, dst, in->imm);
	else if (in->imm != 64)
		tr_emit(t, "and.b64 %s, %s, %s;", dst.s, dst.s,
			in->imm == 16 ? "0xffff" : "0xffffffff");
	return 0;
}

static int lower_divide(struct tr *t, struct tr_inst *inst, uint32_t i, bool wide)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	bool rem = BPF_OP(in->code) == BPF_MOD;
	/* There is no 64-bit division in hardware, only a call of some hundred instructions. */
	if (wide && !in->off && BPF_SRC(in->code) == BPF_K && in->imm > 0 && tr_known_bits(t, inst, i, in->dst_reg) <= 32)
		wide = false;
	const struct width *w = wide ? &width64 : &width32;
	if (in->off != 0 && in->off != 1)
		return tr_unsupported(t, inst->at[i].pc, "unknown kind of division");
	struct tr_name dst = tr_reg(inst, in->dst_reg);
	struct tr_name a = wide ? dst : tr_low32(t, dst), q = wide ? dst : tr_t32(t);
	if (BPF_SRC(in->code) == BPF_K)
		divide_constant(t, w, in->off, rem, q, a, in->imm);
	else
		divide(t, w, in->off, rem, q, a,
			wide ? tr_reg(inst, in->src_reg) : tr_low32(t, tr_reg(inst, in->src_reg)));
	if (!wide)
		tr_emit(t, "cvt.u64.u32 %s, %s;", dst.s, q.s);
	return 0;
}

int tr_lower_alu(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	bool wide = BPF_CLASS(in->code) == BPF_ALU64;
	uint8_t op = BPF_OP(in->code);
	switch (op) {
	case BPF_MOV:
		return lower_mov(t, inst, i, wide);
	case BPF_END:
		return lower_end(t, inst, i, wide);
	case BPF_DIV:
	case BPF_MOD:
		return lower_divide(t, inst, i, wide);
	}
	struct tr_name dst = tr_reg(inst, in->dst_reg);
	const char *name = alu_name(op, wide);
	if (in->off || (!name && op != BPF_NEG))
		return tr_unsupported(t, inst->at[i].pc, "unknown operation");
	if (wide) {
		if (op == BPF_NEG)
			negate(t, &width64, dst, dst);
		else
			tr_emit(t, "%s %s, %s, %s;", name, dst.s, dst.s,
				is_shift(op) ? shift_count(t, inst, in, 63).s : tr_src64(inst, in).s);
		return 0;
	}
	struct tr_name a = tr_low32(t, dst);
	if (op == BPF_NEG)
		negate(t, &width32, a, a);
	else
		tr_emit(t, "%s %s, %s, %s;", name, a.s, a.s,
			is_shift(op) ? shift_count(t, inst, in, 31).s : tr_src32(t, inst, in).s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", dst.s, a.s);
	return 0;
}
