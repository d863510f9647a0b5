/* alu.c - arithmetic on scalars and pointers, and branches.
 *
 * The rules for pointers are Linux's (adjust_ptr_min_max_vals), as for a program without privileges where addresses could leak.
 */
#include "verifier/state.h"

#include <errno.h>

static const char *const op_name[16] = { "+=", "-=", "*=", "/=", "|=", "&=", "<<=", ">>=", "neg", "%=", "^=", "=", "s>>=", "endian" };

void link_scalar(struct verifier *v, struct vreg *src)
{
	if (src->type == V_SCALAR && !src->id && !range_is_const(&src->r))
		src->id = ++v->next_id;
}

static int move_narrow(struct verifier *v, const struct bpf_insn *i, struct vreg *src, struct vreg *out)
{
	bool wide = BPF_CLASS(i->code) == BPF_ALU64;
	if (is_pointer(src))
		return refuse(v, EACCES, "leak", i->off ? "R%d sign-extension part of pointer" : "R%d partial copy of pointer; move all 64 bits", i->src_reg);
	if (!wide && !i->off)
		link_scalar(v, src);
	*out = *src;
	if (i->off)
		range_sext(&out->r, (uint32_t)i->off / 8);
	if (!wide)
		range_zext(&out->r, 4);
	if (range_equal(&out->r, &src->r))
		return 0;
	forget_equals(out);
	if (!wide && !i->off && src->id && !v->opts.linux_ranges) {
		out->part = PART_LOW;
		out->of = src->id;
	}
	return 0;
}

static int step_mov(struct verifier *v, const struct bpf_insn *i)
{
	bool wide = BPF_CLASS(i->code) == BPF_ALU64;
	struct vreg out, *src;
	if (BPF_SRC(i->code) == BPF_K) {
		out = scalar_const(wide ? (uint64_t)(int64_t)i->imm : (uint32_t)i->imm);
	} else {
		int err = read_reg(v, i->src_reg, &src);
		if (err)
			return err;
		if (wide && !i->off) {
			link_scalar(v, src);
			out = *src;
		} else if ((err = move_narrow(v, i, src, &out))) {
			return err;
		}
	}
	int err = check_written(v, i->dst_reg);
	if (!err)
		frame_now(v)->regs[i->dst_reg] = out;
	return err;
}

/* A number or the sum of a number and a pointer must stay where adding offsets cannot overflow. */
static int check_sane_offset(struct verifier *v, const struct vreg *r, const struct vreg *ptr)
{
	const char *name = vtype_name(ptr->type);
	int64_t smin = r->r.b64.smin;
	if (range_is_const(&r->r) && (smin >= MAX_VAR_OFF || smin <= -MAX_VAR_OFF))
		return refuse(v, EACCES, "oob", "math between %s pointer and %lld is not allowed", name, (long long)smin);
	if (is_pointer(r) && (r->off >= MAX_VAR_OFF || r->off <= -MAX_VAR_OFF))
		return refuse(v, EACCES, "oob", "%s pointer offset %d is not allowed", name, r->off);
	if (smin == INT64_MIN)
		return refuse(v, EACCES, "oob",
			"math between %s pointer and register with unbounded min value is not allowed; check it against 0 or use an unsigned type", name);
	if (smin >= MAX_VAR_OFF || smin <= -MAX_VAR_OFF)
		return refuse(v, EACCES, "oob", "value %lld makes %s pointer be out of bounds", (long long)smin, name);
	return 0;
}

static int check_pointer_op(struct verifier *v, uint8_t op, uint32_t dst, const struct vreg *ptr, const struct vreg *num)
{
	const char *name = vtype_name(ptr->type);
	if (is_or_null(ptr))
		return refuse(v, EACCES, "null", "R%u pointer arithmetic on %s prohibited, null-check it first", dst, name);
	if ((ptr->type == V_MAP || ptr->type == V_FUNC) && !(op == BPF_ADD && range_is_value(&num->r, 0)))
		return refuse(v, EACCES, "type", "R%u pointer arithmetic on %s prohibited", dst, name);
	switch (op) {
	case BPF_ADD:
		return 0;
	case BPF_SUB:
		if (ptr->type == V_STACK)
			return refuse(v, EACCES, "type", "R%u subtraction from stack pointer prohibited; add a negative number", dst);
		return 0;
	case BPF_AND:
	case BPF_OR:
	case BPF_XOR:
		return refuse(v, EACCES, "type", "R%u bitwise operator %s on pointer prohibited", dst, op_name[op >> 4]);
	default:
		return refuse(v, EACCES, "type", "R%u pointer arithmetic with %s operator prohibited", dst, op_name[op >> 4]);
	}
}

/* dst = ptr op num. Constants go to the pointer's constant part. */
static int pointer_math(struct verifier *v, uint8_t op, uint32_t dst, const struct vreg *ptr, const struct vreg *num)
{
	int err = check_pointer_op(v, op, dst, ptr, num);
	if (!err)
		err = check_sane_offset(v, num, ptr);
	if (!err)
		err = check_sane_offset(v, ptr, ptr);
	if (!err)
		err = mark_precise(v, num);
	if (err)
		return err;
	struct vreg out = *ptr;
	int64_t value = num->r.b64.smin; /* of a constant: within +-MAX_VAR_OFF now */
	if (range_is_const(&num->r))
		out.off += (int32_t)(op == BPF_ADD ? value : -value);
	else
		range_alu(op, true, &out.r, &num->r);
	err = check_sane_offset(v, &out, ptr);
	if (!err)
		frame_now(v)->regs[dst] = out;
	return err;
}

static int pointer_alu(struct verifier *v, const struct bpf_insn *i, struct vreg *dst, struct vreg *src)
{
	uint8_t op = BPF_OP(i->code);
	if (BPF_CLASS(i->code) != BPF_ALU64)
		return refuse(v, EACCES, "type", "R%d 32-bit pointer arithmetic prohibited", i->dst_reg);
	if (is_pointer(dst) && is_pointer(src))
		return refuse(v, EACCES, "leak", "R%d pointer %s pointer prohibited", i->dst_reg, op_name[op >> 4]);
	if (is_pointer(dst))
		return pointer_math(v, op, i->dst_reg, dst, src);
	if (op == BPF_SUB)
		return refuse(v, EACCES, "type", "R%d tried to subtract pointer from scalar", i->dst_reg);
	return pointer_math(v, op, i->dst_reg, src, dst);
}

/* Of a 64-bit dividend of which nothing is known no more is concluded than Linux 6.18 does, whose verdicts ours agree with: nothing.
 * What has 32 bits, or any bound, is what programs take an index from. */
static void divide(bool modulo, bool is_signed, bool wide, struct range *dst, const struct range *src)
{
	struct range all = range_unknown();
	if (!wide || !range_equal(dst, &all))
		range_divide(modulo, is_signed, wide, dst, src);
}

static bool tells_nothing(const struct verifier *v, uint8_t op, bool wide, const struct vreg *src)
{
	bool shift = op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH, counted = range_is_const(&src->r) && src->r.bits.value < (wide ? 64 : 32);
	return v->opts.linux_ranges && (op == BPF_DIV || op == BPF_MOD || op == BPF_NEG || (shift && !counted));
}

/* x / c, and what is made of it: x -= x / c * c is a remainder. */
static void find_part(const struct vreg *dst, const struct vreg *src, const struct bpf_insn *i, struct vreg *out)
{
	uint8_t op = BPF_OP(i->code);
	bool wide = BPF_CLASS(i->code) == BPF_ALU64, same = dst->part_wide == wide;
	int32_t by = (int32_t)src->r.bits.value;
	if (!range_is_const(&src->r) || (int64_t)by != (wide ? (int64_t)src->r.bits.value : (int32_t)src->r.bits.value))
		return;
	if (op == BPF_DIV && by > 0 && (dst->id || (dst->part == PART_LOW && !wide))) {
		out->part = PART_QUOTIENT;
		out->of = dst->id ? dst->id : dst->of;
		out->by = by;
		out->part_wide = wide;
		out->part_signed = i->off;
	} else if (op == BPF_MUL && dst->part == PART_QUOTIENT && same && (by == dst->by || by == -dst->by)) {
		out->part = by == dst->by ? PART_MULTIPLE : PART_NEGATIVE;
		out->of = dst->of;
		out->by = dst->by;
		out->part_wide = wide;
		out->part_signed = dst->part_signed;
	}
}

/* x is the number that the multiple is a part of, or has its low half. */
static bool divided(const struct vreg *x, const struct vreg *multiple, bool wide)
{
	bool half = x->part == PART_LOW && !wide && x->of == multiple->of;
	return multiple->part_wide == wide && (half || (x->id && x->id == multiple->of));
}

/* dst op src is a remainder: *out is what is known of it. */
static bool remainder_of(const struct verifier *v, const struct bpf_insn *i, const struct vreg *dst, const struct vreg *src, struct range *out)
{
	uint8_t op = BPF_OP(i->code);
	bool wide = BPF_CLASS(i->code) == BPF_ALU64;
	const struct vreg *x = NULL, *multiple = src;
	if (op == BPF_SUB && src->part == PART_MULTIPLE && divided(dst, src, wide))
		x = dst;
	else if (op == BPF_ADD && src->part == PART_NEGATIVE && divided(dst, src, wide))
		x = dst;
	else if (op == BPF_ADD && dst->part == PART_NEGATIVE && divided(src, dst, wide))
		x = src, multiple = dst;
	if (!x || v->opts.linux_ranges)
		return false;
	struct range by = range_const((uint64_t)multiple->by);
	*out = x->r;
	range_divide(true, multiple->part_signed, wide, out, &by);
	return true;
}

static int scalar_alu(struct verifier *v, const struct bpf_insn *i, struct vreg *dst, const struct vreg *src)
{
	uint8_t op = BPF_OP(i->code);
	struct vreg out = *dst;
	bool wide = BPF_CLASS(i->code) == BPF_ALU64;
	struct range remainder;
	if (op == BPF_END) {
		range_endian(&out.r, i->imm, wide || BPF_SRC(i->code) == BPF_TO_BE);
	} else if (tells_nothing(v, op, wide, src)) {
		out.r = range_unknown(); /* of 32 bits too, there */
	} else if (remainder_of(v, i, dst, src, &remainder)) {
		out.r = remainder;
	} else if (op == BPF_DIV || op == BPF_MOD) {
		divide(op == BPF_MOD, i->off, wide, &out.r, &src->r);
	} else {
		range_alu(op, wide, &out.r, &src->r);
	}
	forget_equals(&out);
	find_part(dst, src, i, &out);
	out.node = node_join(v, dst->node, src->node);
	*dst = out;
	return v->err ? -v->err : 0;
}

int step_alu(struct verifier *v, const struct bpf_insn *i)
{
	uint8_t op = BPF_OP(i->code);
	if (op == BPF_MOV)
		return step_mov(v, i);
	struct vreg *dst, *src, imm = scalar_const((uint64_t)(int64_t)i->imm);
	bool unary = op == BPF_NEG || op == BPF_END;
	int err = read_reg(v, i->dst_reg, &dst);
	src = &imm;
	if (!err && !unary && BPF_SRC(i->code) == BPF_X)
		err = read_reg(v, i->src_reg, &src);
	if (!err)
		err = check_written(v, i->dst_reg);
	if (err)
		return err;
	if (unary && is_pointer(dst))
		return refuse(v, EACCES, "leak", "R%d pointer arithmetic with %s operator prohibited", i->dst_reg, op_name[op >> 4]);
	if (is_pointer(dst) || is_pointer(src))
		return pointer_alu(v, i, dst, src);
	return scalar_alu(v, i, dst, src);
}

/* Branches. */

static void jump_to(struct verifier *v, const struct bpf_insn *i, bool taken)
{
	v->cur.insn += 1 + (taken ? (uint32_t)(int32_t)i->off : 0);
}

/* r's range is now `learned`, because of r's own value and of what `other` (may be NULL) was compared with; so is that of all that equal it. */
static int learn(struct verifier *v, struct vreg *r, const struct range *learned, uint32_t other)
{
	if (range_equal(&r->r, learned))
		return 0;
	uint32_t id = r->id;
	r->r = *learned;
	uint32_t node = r->node = node_join(v, r->node, other);
	for (uint32_t f = 0; id && f < v->cur.n_frames; f++) {
		struct vframe *frame = &v->cur.frames[f];
		for (uint32_t k = 0; k < 10 + frame->n_slots; k++) {
			struct vreg *o = k < 10 ? &frame->regs[k] : &frame->slots[k - 10].spill;
			if (k >= 10 && frame->slots[k - 10].kind[0] != SLOT_SPILL)
				continue;
			if (o == r || o->type != V_SCALAR || o->id != id)
				continue;
			o->r = *learned;
			o->node = node_join(v, o->node, node);
		}
	}
	return v->err ? -v->err : 0;
}

/* Both operands are one register: only a test of bits depends on its value. */
static int branch_self(struct verifier *v, const struct bpf_insn *i, uint8_t *op, struct vreg *zero)
{
	switch (*op) {
	case BPF_JSET:
		*op = BPF_JNE;
		*zero = scalar_const(0);
		return 0;
	case BPF_JEQ:
	case BPF_JGE:
	case BPF_JLE:
	case BPF_JSGE:
	case BPF_JSLE:
		jump_to(v, i, true);
		return 1;
	default:
		jump_to(v, i, false);
		return 1;
	}
}

static int branch_scalar(struct verifier *v, const struct bpf_insn *i, struct vreg *dst, struct vreg *src)
{
	uint8_t op = BPF_OP(i->code);
	bool wide = BPF_CLASS(i->code) == BPF_JMP, can[2], taken;
	struct vreg zero;
	if (dst == src && !v->opts.linux_ranges) {
		if (branch_self(v, i, &op, &zero))
			return 0;
		src = &zero;
	}
	struct range a[2] = { dst->r, dst->r }, b[2] = { src->r, src->r };
	for (int t = 0; t < 2; t++)
		can[t] = range_branch(op, wide, t, &a[t], &b[t]);
	if (!can[0] || !can[1]) {
		int err = mark_precise(v, dst);
		if (!err)
			err = mark_precise(v, src);
		if (err)
			return err;
		if (!can[0] && !can[1]) /* what is known is contradictory: no run comes here */
			return PATH_ENDED;
		jump_to(v, i, can[1]);
		return 0;
	}
	int err = fork_path(v, &taken);
	if (err)
		return err;
	uint32_t dst_node = dst->node;
	err = learn(v, dst, &a[taken], src->node);
	if (!err)
		err = learn(v, src, &b[taken], dst_node);
	jump_to(v, i, taken);
	return err;
}

/* All that is null together with a pointer of this id is now known to be a pointer, or to be 0. */
static void settle_null(struct verifier *v, uint32_t id, bool null)
{
	for (uint32_t f = 0; f < v->cur.n_frames; f++) {
		struct vframe *frame = &v->cur.frames[f];
		for (uint32_t k = 0; k < 10 + frame->n_slots; k++) {
			struct vreg *o = k < 10 ? &frame->regs[k] : &frame->slots[k - 10].spill;
			if (k >= 10 && frame->slots[k - 10].kind[0] != SLOT_SPILL)
				continue;
			if (!is_or_null(o) || o->id != id)
				continue;
			if (null)
				*o = scalar_const(0);
			else
				o->type--, o->id = 0;
		}
	}
	for (uint32_t k = 0; null && k < v->cur.n_refs; k++)
		if (v->cur.refs[k].id == id)
			v->cur.refs[k--] = v->cur.refs[--v->cur.n_refs];
}

/* Both lead to one known place, or to two places of the same stack frame or context: which way is known, and tells nothing of addresses. */
static bool same_base(const struct vreg *a, const struct vreg *b)
{
	return a->type == b->type && (a->type == V_STACK || a->type == V_CTX) && a->frame == b->frame && range_is_const(&a->r) && range_is_const(&b->r);
}

static int64_t place_of(const struct vreg *ptr)
{
	return ptr->off + ptr->r.b64.smin;
}

static int branch_pointer(struct verifier *v, const struct bpf_insn *i, struct vreg *dst, struct vreg *src)
{
	uint8_t op = BPF_OP(i->code);
	bool equal = op == BPF_JEQ, taken;
	struct vreg *ptr = is_pointer(dst) ? dst : src, *num = ptr == dst ? src : dst;
	if (is_pointer(num) && same_base(dst, src) && BPF_CLASS(i->code) == BPF_JMP && (equal || op == BPF_JNE)) {
		jump_to(v, i, equal == (place_of(dst) == place_of(src)));
		return 0;
	}
	if (is_pointer(num) || !range_is_value(&num->r, 0) || BPF_CLASS(i->code) != BPF_JMP || (!equal && op != BPF_JNE))
		return refuse(v, EACCES, "leak", "R%d pointer comparison prohibited; pointers may only be compared with NULL",
			ptr == dst ? i->dst_reg : i->src_reg);
	int err = mark_precise(v, num);
	if (err)
		return err;
	if (!is_or_null(ptr)) {
		jump_to(v, i, !equal);
		return 0;
	}
	uint32_t id = ptr->id;
	err = fork_path(v, &taken);
	if (err)
		return err;
	settle_null(v, id, taken == equal);
	jump_to(v, i, taken);
	return 0;
}

int step_branch(struct verifier *v, const struct bpf_insn *i)
{
	v->jumps++;
	if (BPF_OP(i->code) == BPF_JA) {
		v->cur.insn += 1 + (uint32_t)(BPF_CLASS(i->code) == BPF_JMP ? i->off : i->imm);
		return 0;
	}
	struct vreg *dst, *src, imm = scalar_const((uint64_t)(int64_t)i->imm);
	int err = read_reg(v, i->dst_reg, &dst);
	src = &imm;
	if (!err && BPF_SRC(i->code) == BPF_X)
		err = read_reg(v, i->src_reg, &src);
	if (err)
		return err;
	if (is_pointer(dst) || is_pointer(src))
		return branch_pointer(v, i, dst, src);
	return branch_scalar(v, i, dst, src);
}
