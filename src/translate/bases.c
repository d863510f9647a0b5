/* bases.c - by which registers a place in memory is reached.
 *
 * Clang reaches one value by several registers and offsets: it moves a base between a load and its store (`r2 += 8`), or keeps a copy of it.
 * Followed are moves and additions of constants, forwards; before the load only in the straight line that it ends.
 */
#include "translate/internal.h"

enum { BACK_MAX = 64 };

static bool is_copy(const struct bpf_insn *in)
{
	return in->code == (BPF_ALU64 | BPF_MOV | BPF_X) && !in->off;
}

static bool is_shift(const struct bpf_insn *in)
{
	return in->code == (BPF_ALU64 | BPF_ADD | BPF_K) || in->code == (BPF_ALU64 | BPF_SUB | BPF_K);
}

/* Offsets that may be written in an instruction are far from wrapping: a base that went elsewhere is none. */
static bool sane(int64_t to)
{
	return to >= INT16_MIN && to <= INT16_MAX;
}

void tr_bases_pass(const struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_bases *b)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	uint8_t d = in->dst_reg;
	if (inst->at[i].dead)
		return;
	if (is_copy(in) && b->regs >> in->src_reg & 1) {
		b->regs |= reg_bit(d);
		b->to[d] = b->to[in->src_reg];
	} else if (is_shift(in) && b->regs >> d & 1) {
		int64_t to = (int64_t)b->to[d] + (BPF_OP(in->code) == BPF_ADD ? -(int64_t)in->imm : (int64_t)in->imm);
		b->to[d] = (int32_t)to;
		if (!sane(to))
			b->regs &= (uint16_t)~reg_bit(d);
	} else {
		b->regs &= (uint16_t)~tr_defs(t, inst, i);
	}
}

void tr_bases_meet(struct tr_bases *b, const struct tr_bases *other)
{
	b->regs &= other->regs;
	for (uint32_t r = 0; r < TR_REGS; r++)
		if (b->regs >> r & 1 && b->to[r] != other->to[r])
			b->regs &= (uint16_t)~reg_bit(r);
}

/* The register, and where in the straight line before i, that the base at i was made of. */
static uint32_t look_back(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t *base)
{
	for (int n = 0; n < BACK_MAX && i && !inst->at[i].join && tr_next(t, inst, i - 1) == (int32_t)i; n++) {
		const struct bpf_insn *in = tr_bpf(t, inst, i - 1);
		if (!inst->at[i - 1].dead && tr_defs(t, inst, i - 1) >> *base & 1) {
			if (is_copy(in))
				*base = in->src_reg;
			else if (!is_shift(in))
				break;
		}
		i--;
	}
	return i;
}

void tr_bases_at(const struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_bases *b)
{
	uint8_t base = tr_base_reg(tr_bpf(t, inst, i)), first = base;
	uint32_t k = look_back(t, inst, i, &first);
	*b = (struct tr_bases){ .regs = reg_bit(first) };
	for (; k < i; k++)
		tr_bases_pass(t, inst, k, b);
	int32_t off = tr_bpf(t, inst, i)->off;
	if (!(b->regs >> base & 1)) {
		b->regs = reg_bit(base);
		b->to[base] = off;
		return;
	}
	/* From distances of what the first led to, to those of the place. */
	int32_t place = b->to[base] - off;
	for (uint32_t r = 0; r < TR_REGS; r++)
		b->to[r] -= place;
}

bool tr_bases_lead(const struct tr *t, const struct tr_inst *inst, uint32_t i, const struct tr_bases *b)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	uint8_t base = tr_base_reg(in);
	return b->regs >> base & 1 && b->to[base] == in->off;
}
