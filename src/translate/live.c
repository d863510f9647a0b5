/* live.c - which registers are read later, and instructions whose result nobody reads. */
#include "translate/internal.h"

enum { CALLER_SAVED = 0x3f };

/* Whether a load, store or atomic needs its base register. */
static bool needs_base(const struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	struct tr_inst *owner;
	if ((f->region == EBPF_REGION_CONTEXT && f->fixed) || tr_frozen_load(t, inst, i))
		return false;
	return !(f->region == EBPF_REGION_STACK && tr_in_slots(t, inst, i, &owner));
}

static uint16_t atomic_uses(const struct bpf_insn *in)
{
	return (uint16_t)(reg_bit(in->src_reg) | (in->imm == BPF_CMPXCHG ? reg_bit(BPF_REG_0) : 0));
}

static uint16_t memory_uses(const struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	uint16_t uses = needs_base(t, inst, i) ? reg_bit(tr_base_reg(in)) : 0;
	if (tr_is_atomic(in))
		uses |= atomic_uses(in);
	else if (BPF_CLASS(in->code) == BPF_STX)
		uses |= reg_bit(in->src_reg);
	return uses;
}

static uint16_t alu_uses(const struct bpf_insn *in)
{
	uint8_t op = BPF_OP(in->code);
	uint16_t uses = op == BPF_MOV ? 0 : reg_bit(in->dst_reg);
	if (op != BPF_NEG && op != BPF_END && BPF_SRC(in->code) == BPF_X)
		uses |= reg_bit(in->src_reg);
	return uses;
}

uint16_t tr_uses(const struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	switch (BPF_CLASS(in->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return alu_uses(in);
	case BPF_LDX:
	case BPF_ST:
	case BPF_STX:
		return memory_uses(t, inst, i);
	case BPF_JMP:
	case BPF_JMP32:
		break;
	default:
		return 0;
	}
	if (tr_is_goto(in))
		return 0;
	if (tr_is_exit(in))
		return inst->id || t->test ? reg_bit(BPF_REG_0) : 0;
	if (tr_is_call(in)) {
		struct tr_inst *callee = inst->at[i].callee;
		if (callee && !in->src_reg)
			return tr_loop_uses(t, inst, i);
		if (callee)
			return callee->at[t->index_of[t->funcs[callee->func].entry]].live_in & 0x3e;
		return tr_helper_uses(t, inst, i);
	}
	if (tr_jump(t, inst, i) < 0 || tr_next(t, inst, i) < 0)
		return 0; /* decided by the verifier */
	return (uint16_t)(reg_bit(in->dst_reg) |
			  (BPF_SRC(in->code) == BPF_X ? reg_bit(in->src_reg) : 0));
}

uint16_t tr_defs(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	switch (BPF_CLASS(in->code)) {
	case BPF_LD:
	case BPF_LDX:
	case BPF_ALU:
	case BPF_ALU64:
		return reg_bit(in->dst_reg);
	case BPF_STX:
		if (!tr_is_atomic(in))
			return 0;
		if (in->imm == BPF_CMPXCHG)
			return reg_bit(BPF_REG_0);
		return in->imm & BPF_FETCH ? reg_bit(in->src_reg) : 0;
	case BPF_JMP:
		return tr_is_call(in) ? CALLER_SAVED : 0;
	default:
		return 0;
	}
}

/* Without effects beyond its result. */
static bool is_pure(const struct bpf_insn *in)
{
	switch (BPF_CLASS(in->code)) {
	case BPF_LD:
		return ebpf_is_imm64(in);
	case BPF_LDX:
	case BPF_ALU:
	case BPF_ALU64:
		return true;
	default:
		return false;
	}
}

static bool visit(const struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct tr_insn *at = &inst->at[i];
	int32_t next = tr_next(t, inst, i), jump = tr_jump(t, inst, i);
	uint16_t out = (uint16_t)((next >= 0 ? inst->at[next].live_in : 0) |
				  (jump >= 0 ? inst->at[jump].live_in : 0));
	uint16_t defs = tr_defs(t, inst, i);
	at->dead = is_pure(tr_bpf(t, inst, i)) && !(defs & out);
	uint16_t in = at->dead ? out : (uint16_t)((out & ~defs) | tr_uses(t, inst, i));
	bool changed = in != at->live_in || out != at->live_out;
	at->live_in = in;
	at->live_out = out;
	return changed;
}

static void live_inst(const struct tr *t, struct tr_inst *inst)
{
	if (inst->live_done)
		return;
	inst->live_done = true;
	for (uint32_t i = 0; i < inst->n;
		i++) /* what a call reads depends on its callee; no recursion */
		if (inst->at[i].callee)
			live_inst(t, inst->at[i].callee);
	for (bool changed = true; changed;) {
		changed = false;
		for (uint32_t i = inst->n; i-- > 0;)
			changed |= visit(t, inst, i);
	}
}

int tr_live(struct tr *t)
{
	live_inst(t, t->insts[0]);
	return 0;
}
