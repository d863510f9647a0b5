#include "cpu/interp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/arithmetic.h"
#include "cpu/state.h"

int interp_stop(struct interp_state *s, int err, const char *why)
{
	if (!s->out->violation) {
		s->out->violation = why;
		s->out->at = s->at;
	}
	return -err;
}

static int do_alu(struct interp_state *s, const struct bpf_insn *i)
{
	bool wide = BPF_CLASS(i->code) == BPF_ALU64, reg = BPF_SRC(i->code) == BPF_X;
	uint8_t op = BPF_OP(i->code);
	int err = op == BPF_MOV ? 0 : interp_reg_set(s, i->dst_reg);
	if (!err && reg && op != BPF_END && op != BPF_NEG)
		err = interp_reg_set(s, i->src_reg);
	bool odd = op == BPF_END ? i->imm != 16 && i->imm != 32 && i->imm != 64 :
		op == BPF_MOV && reg && i->off != 0 && i->off != 8 && i->off != 16 && i->off != 32;
	if (op > BPF_END || odd || i->dst_reg == 10)
		err = interp_stop(s, EINVAL, "no such instruction");
	if (err)
		return err;
	uint64_t a = s->reg[i->dst_reg], b = reg ? s->reg[i->src_reg] : (uint64_t)(int64_t)i->imm;
	s->reg[i->dst_reg] = op == BPF_END ? arith_end(i->code, wide, (uint32_t)i->imm, a) : arith_alu(i->code, wide, (uint16_t)i->off, a, b);
	s->set |= (uint16_t)(1 << i->dst_reg);
	return 0;
}

static int do_call(struct interp_state *s, const struct bpf_insn *i)
{
	if (i->src_reg != BPF_PSEUDO_CALL)
		return i->src_reg ? interp_stop(s, EINVAL, "no such call") : interp_helper(s, (uint32_t)i->imm);
	if (s->n_frames == INTERP_FRAMES)
		return interp_stop(s, EFAULT, "calls nested too deep");
	struct interp_frame *f = &s->frames[s->n_frames++];
	f->helper = NULL;
	memcpy(f->saved, &s->reg[6], sizeof(f->saved));
	memset(f->set, 0, sizeof(f->set));
	f->back = s->at;
	s->set = (uint16_t)((s->set & 0x3e) | 1 << 10);
	s->reg[10] = (uint64_t)(uintptr_t)(f->stack + EBPF_STACK_BYTES);
	s->at += (uint32_t)i->imm;
	return 0;
}

/* 1 when the program is over. */
static int do_exit(struct interp_state *s)
{
	struct interp_frame *f = &s->frames[s->n_frames - 1];
	if (s->n_frames == 1) {
		int err = interp_reg_set(s, 0);
		for (uint32_t k = 0; !err && k < s->n_regions; k++)
			if (s->regions[k].record)
				err = interp_stop(s, EFAULT, "a reserved record is neither submitted nor discarded");
		s->out->r0 = s->reg[0];
		return err ? err : 1;
	}
	if (f->helper) {
		int err = interp_reg_set(s, 0);
		if (!err && s->run->check && s->reg[0] > 1)
			err = interp_stop(s, EFAULT, "a function that a helper calls returned neither 0 nor 1");
		return err ? err : interp_call_back(s);
	}
	memcpy(&s->reg[6], f->saved, sizeof(f->saved));
	s->n_frames--;
	s->at = f->back;
	s->reg[10] = (uint64_t)(uintptr_t)(s->frames[s->n_frames - 1].stack + EBPF_STACK_BYTES);
	/* Which of r6 to r9 the caller had set is not kept: it set them, or a verifier refused the program. */
	s->set = (uint16_t)((s->set & 1) | 0x7c0);
	return 0;
}

static int do_jump(struct interp_state *s, const struct bpf_insn *i)
{
	bool wide = BPF_CLASS(i->code) == BPF_JMP, reg = BPF_SRC(i->code) == BPF_X;
	uint8_t op = BPF_OP(i->code);
	if (op == BPF_JA) {
		s->at += (uint32_t)(wide ? i->off : i->imm);
		return 0;
	}
	if ((op == BPF_CALL || op == BPF_EXIT) && wide && !reg)
		return op == BPF_CALL ? do_call(s, i) : do_exit(s);
	if (op == BPF_CALL || op == BPF_EXIT || op > BPF_JSLE)
		return interp_stop(s, EINVAL, "no such instruction");
	int err = interp_reg_set(s, i->dst_reg);
	if (!err && reg)
		err = interp_reg_set(s, i->src_reg);
	if (!err && arith_holds(i->code, wide, s->reg[i->dst_reg], reg ? s->reg[i->src_reg] : (uint64_t)(int64_t)i->imm))
		s->at += (uint32_t)(int32_t)i->off;
	return err;
}

static int do_load(struct interp_state *s, const struct bpf_insn *i)
{
	uint32_t bytes = ebpf_insn_bytes(i->code);
	uint64_t address = s->reg[i->src_reg] + (uint64_t)(int64_t)i->off, value = 0;
	uint8_t mode = BPF_MODE(i->code);
	int err = interp_reg_set(s, i->src_reg);
	if ((mode != BPF_MEM && mode != EBPF_MEMSX) || i->dst_reg == 10)
		err = interp_stop(s, EINVAL, "no such instruction");
	if (!err)
		err = interp_readable(s, address, bytes, bytes);
	if (err)
		return err;
	memcpy(&value, (const void *)(uintptr_t)address, bytes);
	s->reg[i->dst_reg] = mode == EBPF_MEMSX ? arith_extended(value, bytes * 8) : value;
	s->set |= (uint16_t)(1 << i->dst_reg);
	return 0;
}

static int do_store(struct interp_state *s, const struct bpf_insn *i)
{
	uint32_t bytes = ebpf_insn_bytes(i->code);
	bool reg = BPF_CLASS(i->code) == BPF_STX;
	uint64_t address = s->reg[i->dst_reg] + (uint64_t)(int64_t)i->off;
	uint64_t value = reg ? s->reg[i->src_reg] : (uint64_t)(int64_t)i->imm;
	int err = interp_reg_set(s, i->dst_reg);
	if (!err && reg)
		err = interp_reg_set(s, i->src_reg);
	if (BPF_MODE(i->code) != BPF_MEM)
		err = interp_stop(s, EINVAL, "no such instruction");
	if (!err)
		err = interp_writable(s, address, bytes, bytes);
	if (!err)
		memcpy((void *)(uintptr_t)address, &value, bytes);
	return err;
}

/* Defines one width of the atomics: the value before, and whether the operation exists. */
#define ATOMIC(name, type)                                                                         \
	static bool name(int32_t op, type *p, type value, type expected, uint64_t *old)            \
	{                                                                                          \
		switch (op & ~BPF_FETCH) {                                                         \
		case BPF_ADD:                                                                      \
			*old = __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                     \
			return true;                                                               \
		case BPF_AND:                                                                      \
			*old = __atomic_fetch_and(p, value, __ATOMIC_SEQ_CST);                     \
			return true;                                                               \
		case BPF_OR:                                                                       \
			*old = __atomic_fetch_or(p, value, __ATOMIC_SEQ_CST);                      \
			return true;                                                               \
		case BPF_XOR:                                                                      \
			*old = __atomic_fetch_xor(p, value, __ATOMIC_SEQ_CST);                     \
			return true;                                                               \
		case BPF_XCHG & ~BPF_FETCH:                                                        \
			*old = __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                    \
			return op == BPF_XCHG;                                                     \
		case BPF_CMPXCHG & ~BPF_FETCH:                                                     \
			__atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST,  \
				__ATOMIC_SEQ_CST);                                                 \
			*old = expected;                                                           \
			return op == BPF_CMPXCHG;                                                  \
		default:                                                                           \
			return false;                                                              \
		}                                                                                  \
	}
ATOMIC(atomic32, uint32_t)
ATOMIC(atomic64, uint64_t)

static int do_atomic(struct interp_state *s, const struct bpf_insn *i)
{
	uint32_t bytes = ebpf_insn_bytes(i->code), result = i->imm == BPF_CMPXCHG ? 0 : i->src_reg;
	uint64_t address = s->reg[i->dst_reg] + (uint64_t)(int64_t)i->off, value = s->reg[i->src_reg], old = 0;
	int err = interp_reg_set(s, i->dst_reg);
	if (!err)
		err = interp_reg_set(s, i->src_reg);
	if (!err && i->imm == BPF_CMPXCHG)
		err = interp_reg_set(s, 0);
	if (!err)
		err = bytes < 4 || address & (bytes - 1) || (result == 10 && (i->imm & BPF_FETCH)) ?
			interp_stop(s, EINVAL, "no such atomic") : interp_readable(s, address, bytes, bytes);
	if (!err)
		err = interp_writable(s, address, bytes, bytes);
	if (err)
		return err;
	void *p = (void *)(uintptr_t)address;
	bool known = bytes == 4 ? atomic32(i->imm, p, (uint32_t)value, (uint32_t)s->reg[0], &old) :
		atomic64(i->imm, p, value, s->reg[0], &old);
	if (!known)
		return interp_stop(s, EINVAL, "no such atomic");
	if (i->imm & BPF_FETCH)
		s->reg[result] = old;
	return 0;
}

static int do_imm64(struct interp_state *s, const struct bpf_insn *i)
{
	const struct interp *run = s->run;
	if (!ebpf_is_imm64(i) || s->at + 1 >= run->program->n_insns || i->dst_reg == 10)
		return interp_stop(s, EINVAL, "no such instruction");
	uint64_t *r = &s->reg[i->dst_reg];
	s->at++;
	s->set |= (uint16_t)(1 << i->dst_reg);
	if (!i->src_reg) {
		*r = (uint64_t)(uint32_t)i[1].imm << 32 | (uint32_t)i->imm;
		return 0;
	}
	if (i->src_reg == BPF_PSEUDO_FUNC) {
		*r = s->at + (uint32_t)i->imm; /* the instruction's index; s->at is the second half */
		return 0;
	}
	if ((uint32_t)i->imm >= run->program->n_maps)
		return interp_stop(s, EINVAL, "no such map");
	if (i->src_reg == BPF_PSEUDO_MAP_FD) {
		*r = interp_map_address(run, (uint32_t)i->imm);
		return 0;
	}
	uint8_t *value = i->src_reg == BPF_PSEUDO_MAP_VALUE && run->ops && run->ops->value ? run->ops->value(run->self, (uint32_t)i->imm) : NULL;
	if (!value)
		return interp_stop(s, EINVAL, "no such map value");
	const struct ebpf_map *m = &run->program->maps[i->imm];
	*r = (uint64_t)(uintptr_t)value + (uint32_t)i[1].imm;
	return interp_region(s, value, m->value_size, !m->frozen && !(m->flags & BPF_F_RDONLY_PROG), false);
}

static int execute(struct interp_state *s, const struct bpf_insn *i)
{
	if (i->dst_reg > 10 || i->src_reg > 10)
		return interp_stop(s, EINVAL, "no such register");
	switch (BPF_CLASS(i->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return do_alu(s, i);
	case BPF_JMP:
	case BPF_JMP32:
		return do_jump(s, i);
	case BPF_LDX:
		return do_load(s, i);
	case BPF_ST:
		return do_store(s, i);
	case BPF_STX:
		return BPF_MODE(i->code) == BPF_ATOMIC ? do_atomic(s, i) : do_store(s, i);
	default:
		return do_imm64(s, i);
	}
}

static int run_all(struct interp_state *s)
{
	const struct interp *run = s->run;
	for (;; s->at++) {
		if (s->at >= run->program->n_insns)
			return interp_stop(s, EINVAL, "jump out of the program");
		s->out->insns++;
		if (run->step)
			run->step(run->self, s->at, s->reg);
		int err = execute(s, &run->program->insns[s->at]);
		if (run->max_insns && s->out->insns > run->max_insns && err != 1)
			return interp_stop(s, ELOOP, "too many instructions");
		if (err)
			return err < 0 ? err : 0;
	}
}

int interp_run(const struct interp *run, struct interp_result *out)
{
	struct interp_state *s = malloc(sizeof(*s));
	*out = (struct interp_result){ 0 };
	if (!s)
		return -ENOMEM;
	s->run = run;
	s->out = out;
	s->at = s->n_regions = 0;
	s->cap_regions = 0;
	s->regions = NULL;
	s->n_frames = 1;
	memset(s->reg, 0, sizeof(s->reg));
	memset(s->frames[0].set, 0, sizeof(s->frames[0].set));
	s->reg[10] = (uint64_t)(uintptr_t)(s->frames[0].stack + EBPF_STACK_BYTES);
	s->set = 1 << 10 | 1 << 1;
	bool raw = run->program->context == EBPF_CONTEXT_NONE;
	uint32_t bytes = raw ? run->program->memory_bytes : ebpf_context_bytes(run->program->context);
	s->reg[1] = bytes ? (uint64_t)(uintptr_t)run->memory : 0;
	if (raw) {
		s->reg[2] = bytes;
		s->set |= 1 << 2;
	}
	int err = bytes ? interp_region(s, run->memory, bytes, raw, false) : 0;
	if (!err)
		err = run_all(s);
	free(s->regions);
	free(s);
	return err;
}
