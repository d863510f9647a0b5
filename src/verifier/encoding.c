/* encoding.c - every instruction by itself: opcode known, unused fields zero, registers and maps exist.
 *
 * Requires nothing. Leaves: later passes and translators meet RFC 9669 instructions only (without callx and the
 * legacy packet loads), each ld_imm64 has its second half, each map index is below n_maps.
 */
#include "map/layout.h"
#include "verifier/state.h"

#include <errno.h>

static int unknown(struct verifier *v, const struct bpf_insn *i)
{
	return refuse(v, EINVAL, "insn", "unknown opcode %02x; only RFC 9669 instructions up to cpu v4 are known", i->code);
}

static int reserved(struct verifier *v, const char *what)
{
	return refuse(v, EINVAL, "insn", "%s uses reserved fields; they must be zero", what);
}

static int check_endian(struct verifier *v, const struct bpf_insn *i)
{
	if (BPF_CLASS(i->code) == BPF_ALU64 && BPF_SRC(i->code) != BPF_TO_LE)
		return reserved(v, "BPF_END");
	if (i->src_reg || i->off || (i->imm != 16 && i->imm != 32 && i->imm != 64))
		return reserved(v, "BPF_END");
	return 0;
}

static int check_mov(struct verifier *v, const struct bpf_insn *i)
{
	bool wide = BPF_CLASS(i->code) == BPF_ALU64;
	if (BPF_SRC(i->code) == BPF_K)
		return i->src_reg || i->off ? reserved(v, "BPF_MOV") : 0;
	if (i->imm || (i->off && i->off != 8 && i->off != 16 && !(i->off == 32 && wide)))
		return reserved(v, "BPF_MOV");
	return 0;
}

static int check_alu(struct verifier *v, const struct bpf_insn *i)
{
	uint8_t op = BPF_OP(i->code);
	int width = BPF_CLASS(i->code) == BPF_ALU64 ? 64 : 32;
	bool imm = BPF_SRC(i->code) == BPF_K;
	if (op > BPF_END)
		return unknown(v, i);
	if (op == BPF_END)
		return check_endian(v, i);
	if (op == BPF_NEG)
		return !imm || i->src_reg || i->off || i->imm ? reserved(v, "BPF_NEG") : 0;
	if (op == BPF_MOV)
		return check_mov(v, i);
	bool divides = op == BPF_DIV || op == BPF_MOD;
	if ((imm ? i->src_reg : i->imm) || (i->off && !(divides && i->off == 1)))
		return reserved(v, "BPF_ALU");
	if (divides && imm && !i->imm)
		return refuse(v, EINVAL, "insn", "div by zero; divide by a register to have 0 as the result");
	if ((op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH) && imm && (i->imm < 0 || i->imm >= width))
		return refuse(v, EINVAL, "insn", "invalid shift %d; shift by 0 to %d", i->imm, width - 1);
	return 0;
}

static int check_atomic(struct verifier *v, const struct bpf_insn *i)
{
	switch (i->imm) {
	case BPF_ADD:
	case BPF_AND:
	case BPF_OR:
	case BPF_XOR:
	case BPF_ADD | BPF_FETCH:
	case BPF_AND | BPF_FETCH:
	case BPF_OR | BPF_FETCH:
	case BPF_XOR | BPF_FETCH:
	case BPF_XCHG:
	case BPF_CMPXCHG:
		break;
	default:
		return refuse(v, EINVAL, "insn", "BPF_ATOMIC uses invalid atomic opcode %02x", (unsigned)i->imm);
	}
	if (BPF_SIZE(i->code) != BPF_W && BPF_SIZE(i->code) != BPF_DW)
		return refuse(v, EINVAL, "insn", "invalid atomic operand size; use 4 or 8 bytes");
	return 0;
}

static int check_memory(struct verifier *v, const struct bpf_insn *i)
{
	uint8_t class = BPF_CLASS(i->code), mode = BPF_MODE(i->code);
	if (mode == BPF_ATOMIC && class == BPF_STX)
		return check_atomic(v, i);
	if (mode != BPF_MEM && !(mode == EBPF_MEMSX && class == BPF_LDX && BPF_SIZE(i->code) != BPF_DW))
		return unknown(v, i);
	if (class == BPF_LDX && i->imm)
		return reserved(v, "BPF_LDX");
	if (class == BPF_STX && i->imm)
		return reserved(v, "BPF_STX");
	if (class == BPF_ST && i->src_reg)
		return reserved(v, "BPF_ST");
	return 0;
}

static int check_map_value(struct verifier *v, const struct ebpf_map *m, uint32_t off)
{
	if (m->type != BPF_MAP_TYPE_ARRAY || map_threads_of(m))
		return refuse(v, EINVAL, "map", "no direct value access support for this map type; look the key up instead");
	if (m->max_entries != 1 || off >= m->value_size)
		return refuse(v, EINVAL, "map",
			"invalid access to map value pointer, value_size=%u off=%u; only arrays of one entry have direct values",
			m->value_size, off);
	return 0;
}

static int check_imm64(struct verifier *v, uint32_t at)
{
	const struct bpf_insn *i = &v->p->insns[at], *high = i + 1;
	if (at + 1 >= v->p->n_insns)
		return refuse(v, EINVAL, "insn", "last insn is not an exit or jmp; a ld_imm64 lacks its second half");
	if (high->code || high->dst_reg || high->src_reg || high->off)
		return refuse(v, EINVAL, "insn", "invalid bpf_ld_imm64 insn");
	if (i->off)
		return reserved(v, "BPF_LD_IMM64");
	switch (i->src_reg) {
	case 0:
		return 0;
	case BPF_PSEUDO_MAP_FD:
		if (high->imm)
			return reserved(v, "BPF_LD_IMM64");
		break;
	case BPF_PSEUDO_MAP_VALUE:
		break;
	case BPF_PSEUDO_FUNC:
		return high->imm ? reserved(v, "BPF_LD_IMM64") : 0;
	default:
		return refuse(v, EINVAL, "insn", "BPF_LD_IMM64 of kind %d is not supported on a GPU", i->src_reg);
	}
	if ((uint32_t)i->imm >= v->p->n_maps)
		return refuse(v, EINVAL, "map", "fd %d is not pointing to valid bpf_map", i->imm);
	if (i->src_reg == BPF_PSEUDO_MAP_VALUE)
		return check_map_value(v, &v->p->maps[i->imm], (uint32_t)high->imm);
	return 0;
}

static int check_ld(struct verifier *v, uint32_t at)
{
	const struct bpf_insn *i = &v->p->insns[at];
	uint8_t mode = BPF_MODE(i->code);
	if (ebpf_is_imm64(i))
		return check_imm64(v, at);
	if (mode == BPF_ABS || mode == BPF_IND)
		return refuse(v, EINVAL, "insn", "BPF_LD_[ABS|IND] reads packets, which a GPU program has not");
	return unknown(v, i);
}

static int check_call_insn(struct verifier *v, const struct bpf_insn *i)
{
	v->flow[v->cur.insn].loops = !i->src_reg && ebpf_helper_calls_back(ebpf_helper_by_number((uint32_t)i->imm));
	if (BPF_SRC(i->code) == BPF_X)
		return refuse(v, EINVAL, "insn", "unknown opcode 8d (callx); calls through registers are not supported");
	if (i->off || i->dst_reg || (i->src_reg && i->src_reg != BPF_PSEUDO_CALL && i->src_reg != BPF_PSEUDO_KFUNC_CALL))
		return reserved(v, "BPF_CALL");
	if (i->src_reg == BPF_PSEUDO_KFUNC_CALL)
		return refuse(v, EINVAL, "helper", "calling kernel function %d is not allowed; a GPU has no kernel functions", i->imm);
	return 0;
}

static int check_jmp(struct verifier *v, const struct bpf_insn *i)
{
	uint8_t op = BPF_OP(i->code);
	bool wide = BPF_CLASS(i->code) == BPF_JMP, imm = BPF_SRC(i->code) == BPF_K;
	switch (op) {
	case BPF_CALL:
		return wide ? check_call_insn(v, i) : unknown(v, i);
	case BPF_EXIT:
		if (!wide || !imm)
			return unknown(v, i);
		return i->src_reg || i->dst_reg || i->imm || i->off ? reserved(v, "BPF_EXIT") : 0;
	case BPF_JA:
		if (!imm)
			return unknown(v, i);
		return i->src_reg || i->dst_reg || (wide ? i->imm : i->off) ? reserved(v, "BPF_JA") : 0;
	case 0xe0:
		return refuse(v, EINVAL, "insn", "unknown opcode %02x (may_goto); bound the loop by a counter", i->code);
	case 0xf0:
		return unknown(v, i);
	}
	return (imm ? i->src_reg : i->imm) ? reserved(v, "BPF_JMP/JMP32") : 0;
}

static int check_one(struct verifier *v, uint32_t at)
{
	const struct bpf_insn *i = &v->p->insns[at];
	uint8_t class = BPF_CLASS(i->code);
	int err = class == BPF_LD ? check_ld(v, at) :
		class == BPF_LDX || class == BPF_ST || class == BPF_STX ? check_memory(v, i) :
		class == BPF_JMP || class == BPF_JMP32 ? check_jmp(v, i) : check_alu(v, i);
	if (err)
		return err;
	if (i->dst_reg > 10 || (i->src_reg > 10 && class != BPF_LD))
		return refuse(v, EINVAL, "insn", "R%d is invalid", i->dst_reg > 10 ? i->dst_reg : i->src_reg);
	return 0;
}

int check_encoding(struct verifier *v)
{
	const struct ebpf_program *p = v->p;
	if (!p->n_insns)
		return refuse(v, EINVAL, "insn", "the program has no instructions");
	if (p->n_insns > EBPF_MAX_INSNS)
		return refuse(v, E2BIG, "size", "the program has %u instructions; at most %d are allowed", p->n_insns, EBPF_MAX_INSNS);
	if (p->n_maps > EBPF_MAX_MAPS)
		return refuse(v, E2BIG, "size", "the program uses %u maps; at most %d are allowed", p->n_maps, EBPF_MAX_MAPS);
	v->flow = arena_array(v->arena, p->n_insns, sizeof(*v->flow));
	if (!v->flow)
		return out_of_memory(v);
	for (uint32_t at = 0; at < p->n_insns; at++) {
		v->cur.insn = at;
		int err = check_one(v, at);
		if (err)
			return err;
		if (ebpf_is_imm64(&p->insns[at]))
			v->flow[++at].second = true;
	}
	return 0;
}
