#include "bpf/split.h"

#include "bpf/insns.h"

#include <errno.h>
#include <string.h>

/* The instruction that a jump at i leads to; -1: it is none. */
static int64_t target(const struct bpf_insn *in, uint32_t i)
{
	uint8_t class = BPF_CLASS(in->code), op = BPF_OP(in->code);
	if ((class != BPF_JMP && class != BPF_JMP32) || op == BPF_CALL || op == BPF_EXIT)
		return -1;
	return (int64_t)i + 1 + (class == BPF_JMP32 && op == BPF_JA ? in->imm : in->off);
}

static bool is_jump(const struct bpf_insn *in)
{
	uint8_t class = BPF_CLASS(in->code);
	return (class == BPF_JMP || class == BPF_JMP32) && BPF_OP(in->code) != BPF_CALL;
}

static bool falls_through(const struct bpf_insn *in)
{
	uint8_t class = BPF_CLASS(in->code), op = BPF_OP(in->code);
	return !((class == BPF_JMP || class == BPF_JMP32) && (op == BPF_JA || op == BPF_EXIT));
}

static bool has_functions(const struct ebpf_program *p)
{
	for (uint32_t i = 0; i < p->n_insns; i++) {
		const struct bpf_insn *in = &p->insns[i];
		if ((in->code == (BPF_JMP | BPF_CALL) && in->src_reg == BPF_PSEUDO_CALL) || (ebpf_is_imm64(in) && in->src_reg == BPF_PSEUDO_FUNC))
			return true;
		i += ebpf_is_imm64(in);
	}
	return false;
}

/* Where the straight piece that ends with `insn` begins: at the last instruction before that a jump leads to. *jump: the first of those jumps,
 * *ways: how many ways lead there. */
static uint32_t piece(const struct ebpf_program *p, uint32_t insn, uint32_t *jump, uint32_t *ways)
{
	uint32_t start = 0, before = UINT32_MAX;
	*ways = 0;
	for (uint32_t i = 0; i < p->n_insns; i += 1u + ebpf_is_imm64(&p->insns[i])) {
		int64_t to = target(&p->insns[i], i);
		if (to >= 0 && to <= insn && to > start)
			start = (uint32_t)to;
		if (to >= 0 && i < insn && i + 1 > start)
			start = i + 1;
	}
	for (uint32_t i = 0; i < p->n_insns; i += 1u + ebpf_is_imm64(&p->insns[i])) {
		if (target(&p->insns[i], i) == start && !(*ways)++)
			*jump = i;
		if (i < start)
			before = i;
	}
	*ways += *ways && start && falls_through(&p->insns[before]);
	return start;
}

static int copy_lines(struct arena *arena, struct ebpf_program *p, uint32_t start, uint32_t insn)
{
	struct ebpf_line *lines = arena_array(arena, 2 * (size_t)p->n_lines + 1, sizeof(*lines));
	uint32_t n = p->n_lines;
	if (!lines)
		return -ENOMEM;
	memcpy(lines, p->lines, n * sizeof(*lines));
	for (uint32_t k = 0; k < p->n_lines; k++) {
		bool first = p->lines[k].insn <= start && (k + 1 == p->n_lines || p->lines[k + 1].insn > start);
		if (!first && (p->lines[k].insn <= start || p->lines[k].insn > insn))
			continue;
		lines[n] = p->lines[k];
		lines[n++].insn = p->n_insns + (first ? 0 : p->lines[k].insn - start);
	}
	p->lines = lines;
	p->n_lines = n;
	return 0;
}

int ebpf_split(struct arena *arena, struct ebpf_program *p, uint32_t insn, bool *done)
{
	uint32_t jump = 0, ways, start = piece(p, insn, &jump, &ways), end = p->n_insns;
	uint32_t next = insn + 1 + ebpf_is_imm64(&p->insns[insn]), n = next - start;
	int64_t there = (int64_t)end - jump - 1, back = (int64_t)next - (end + n) - 1;
	*done = false;
	if (ways < 2 || there > INT16_MAX || back < INT16_MIN || next >= end || is_jump(&p->insns[insn]) || has_functions(p) ||
		(BPF_CLASS(p->insns[jump].code) == BPF_JMP32 && BPF_OP(p->insns[jump].code) == BPF_JA) || end + n >= EBPF_MAX_INSNS)
		return 0;
	struct bpf_insn *insns = arena_array(arena, end + n + 1, sizeof(*insns));
	if (!insns || (p->n_lines && copy_lines(arena, p, start, insn)))
		return -ENOMEM;
	memcpy(insns, p->insns, end * sizeof(*insns));
	memcpy(insns + end, p->insns + start, n * sizeof(*insns));
	insns[end + n] = (struct bpf_insn){ .code = BPF_JMP | BPF_JA, .off = (int16_t)back };
	insns[jump].off = (int16_t)there;
	p->insns = insns;
	p->n_insns = end + n + 1;
	*done = true;
	return 0;
}
