#include "bpf/insns.h"

#include "bpf/helpers.h"

static const char *const alu_op[16] = { "+=", "-=", "*=", "/=", "|=", "&=", "<<=", ">>=", "neg",
	"%=", "^=", "=", "s>>=", "endian", "?", "?" };
static const char *const jmp_op[16] = { "jmp", "==", ">", ">=", "&", "!=", "s>", "s>=", "call",
	"exit", "<", "<=", "s<", "s<=", "?", "?" };

static const char *size_name(uint8_t code, bool sign)
{
	switch (BPF_SIZE(code)) {
	case BPF_B:
		return sign ? "s8" : "u8";
	case BPF_H:
		return sign ? "s16" : "u16";
	case BPF_W:
		return sign ? "s32" : "u32";
	default:
		return sign ? "s64" : "u64";
	}
}

static void print_endian(const struct bpf_insn *i, struct buf *out)
{
	if (BPF_CLASS(i->code) == BPF_ALU64)
		buf_printf(out, "r%d = bswap%d r%d", i->dst_reg, i->imm, i->dst_reg);
	else
		buf_printf(out, "r%d = %s%d r%d", i->dst_reg,
			BPF_SRC(i->code) == BPF_TO_BE ? "be" : "le", i->imm, i->dst_reg);
}

static void print_alu(const struct bpf_insn *i, struct buf *out)
{
	char reg = BPF_CLASS(i->code) == BPF_ALU64 ? 'r' : 'w';
	uint8_t op = BPF_OP(i->code);
	if (op == BPF_END) {
		print_endian(i, out);
	} else if (op == BPF_NEG) {
		buf_printf(out, "%c%d = -%c%d", reg, i->dst_reg, reg, i->dst_reg);
	} else if (op == BPF_MOV && BPF_SRC(i->code) == BPF_X && i->off) {
		buf_printf(out, "%c%d = (s%d)%c%d", reg, i->dst_reg, i->off, reg, i->src_reg);
	} else {
		const char *sign = (op == BPF_DIV || op == BPF_MOD) && i->off == 1 ? "s" : "";
		buf_printf(out, "%c%d %s%s ", reg, i->dst_reg, sign, alu_op[op >> 4]);
		if (BPF_SRC(i->code) == BPF_X)
			buf_printf(out, "%c%d", reg, i->src_reg);
		else
			buf_printf(out, "%d", i->imm);
	}
}

static void print_atomic(const struct bpf_insn *i, struct buf *out)
{
	const char *size = size_name(i->code, false);
	const char *wide = BPF_SIZE(i->code) == BPF_DW ? "64" : "";
	const char *name;
	switch (i->imm & ~BPF_FETCH) {
	case BPF_ADD:
		name = "add";
		break;
	case BPF_AND:
		name = "and";
		break;
	case BPF_OR:
		name = "or";
		break;
	case BPF_XOR:
		name = "xor";
		break;
	default:
		name = NULL;
	}
	if (i->imm == BPF_CMPXCHG)
		buf_printf(out, "r0 = atomic%s_cmpxchg((%s *)(r%d %+d), r0, r%d)", wide, size,
			i->dst_reg, i->off, i->src_reg);
	else if (i->imm == BPF_XCHG)
		buf_printf(out, "r%d = atomic%s_xchg((%s *)(r%d %+d), r%d)", i->src_reg, wide, size,
			i->dst_reg, i->off, i->src_reg);
	else if (name && (i->imm & BPF_FETCH))
		buf_printf(out, "r%d = atomic%s_fetch_%s((%s *)(r%d %+d), r%d)", i->src_reg, wide,
			name, size, i->dst_reg, i->off, i->src_reg);
	else if (name)
		buf_printf(out, "lock *(%s *)(r%d %+d) %s r%d", size, i->dst_reg, i->off,
			alu_op[i->imm >> 4 & 15], i->src_reg);
	else
		buf_printf(out, "BUG_%02x atomic 0x%x", i->code, (unsigned)i->imm);
}

static void print_imm64(const struct ebpf_program *p, uint32_t at, struct buf *out)
{
	const struct bpf_insn *i = &p->insns[at];
	int32_t high = at + 1 < p->n_insns ? p->insns[at + 1].imm : 0;
	buf_printf(out, "r%d = ", i->dst_reg);
	bool map = i->src_reg == BPF_PSEUDO_MAP_FD || i->src_reg == BPF_PSEUDO_MAP_VALUE;
	const char *name = map && p->maps && (uint32_t)i->imm < p->n_maps && p->maps[i->imm].name ?
		p->maps[i->imm].name : "?";
	if (!map)
		buf_printf(out, "0x%llx",
			(unsigned long long)((uint64_t)(uint32_t)high << 32 | (uint32_t)i->imm));
	else if (i->src_reg == BPF_PSEUDO_MAP_FD)
		buf_printf(out, "map[%s]", name);
	else
		buf_printf(out, "map[%s][0]%+d", name, high);
}

static void print_call(const struct bpf_insn *i, struct buf *out)
{
	const struct ebpf_helper *h = ebpf_helper_by_number((uint32_t)i->imm);
	if (BPF_SRC(i->code) == BPF_X)
		buf_printf(out, "callx r%d", i->dst_reg);
	else if (i->src_reg == BPF_PSEUDO_CALL)
		buf_printf(out, "call pc%+d", i->imm);
	else if (i->src_reg == BPF_PSEUDO_KFUNC_CALL)
		buf_printf(out, "call kernel-function#%d", i->imm);
	else
		buf_printf(out, "call bpf_%s#%d", h ? h->name : "unknown", i->imm);
}

static void print_jmp(const struct bpf_insn *i, struct buf *out)
{
	char reg = BPF_CLASS(i->code) == BPF_JMP ? 'r' : 'w';
	switch (BPF_OP(i->code)) {
	case BPF_CALL:
		print_call(i, out);
		return;
	case BPF_EXIT:
		buf_puts(out, "exit");
		return;
	case BPF_JA:
		if (BPF_CLASS(i->code) == BPF_JMP)
			buf_printf(out, "goto pc%+d", i->off);
		else
			buf_printf(out, "gotol pc%+d", i->imm);
		return;
	case 0xe0:
		buf_printf(out, "may_goto pc%+d", i->off);
		return;
	}
	buf_printf(out, "if %c%d %s ", reg, i->dst_reg, jmp_op[BPF_OP(i->code) >> 4]);
	if (BPF_SRC(i->code) == BPF_X)
		buf_printf(out, "%c%d goto pc%+d", reg, i->src_reg, i->off);
	else
		buf_printf(out, "0x%x goto pc%+d", (unsigned)i->imm, i->off);
}

static void print_load(const struct ebpf_program *p, uint32_t at, struct buf *out)
{
	const struct bpf_insn *i = &p->insns[at];
	if (ebpf_is_imm64(i))
		print_imm64(p, at, out);
	else if (BPF_MODE(i->code) == BPF_ABS)
		buf_printf(out, "r0 = *(%s *)skb[%d]", size_name(i->code, false), i->imm);
	else if (BPF_MODE(i->code) == BPF_IND)
		buf_printf(out, "r0 = *(%s *)skb[r%d + %d]", size_name(i->code, false), i->src_reg,
			i->imm);
	else
		buf_printf(out, "BUG_ld_%02x", i->code);
}

void ebpf_insn_print(const struct ebpf_program *p, uint32_t at, struct buf *out)
{
	const struct bpf_insn *i = &p->insns[at];
	buf_printf(out, "(%02x) ", i->code);
	switch (BPF_CLASS(i->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		print_alu(i, out);
		return;
	case BPF_STX:
		if (BPF_MODE(i->code) == BPF_ATOMIC)
			print_atomic(i, out);
		else
			buf_printf(out, "*(%s *)(r%d %+d) = r%d", size_name(i->code, false),
				i->dst_reg, i->off, i->src_reg);
		return;
	case BPF_ST:
		buf_printf(out, "*(%s *)(r%d %+d) = %d", size_name(i->code, false), i->dst_reg,
			i->off, i->imm);
		return;
	case BPF_LDX:
		buf_printf(out, "r%d = *(%s *)(r%d %+d)", i->dst_reg,
			size_name(i->code, BPF_MODE(i->code) == EBPF_MEMSX), i->src_reg, i->off);
		return;
	case BPF_LD:
		print_load(p, at, out);
		return;
	default:
		print_jmp(i, out);
	}
}

void ebpf_program_print(const struct ebpf_program *p, struct buf *out)
{
	for (uint32_t at = 0; at < p->n_insns; at++) {
		buf_printf(out, "%u: ", at);
		ebpf_insn_print(p, at, out);
		buf_puts(out, "\n");
		if (ebpf_is_imm64(&p->insns[at]))
			at++;
	}
}
