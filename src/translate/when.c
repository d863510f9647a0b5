/* when.c - fields that registers hold, and at which places a program does anything at all.
 *
 * A program asks for its place first as a rule: a state space, a size, a kind of access. Where the instrumenter knows the answer, and nothing is done behind it,
 * it need not call the program (instrument/call.c); what stands inline vanishes by itself.
 */
#include "translate/internal.h"

#include <errno.h>

#define BIT(id) (1ull << EBPF_FIELD_##id)
/* Fields that the instrumenter knows at most places; of the address, that a register holds it. */
static const uint64_t known = BIT(SITE) | BIT(BYTES) | BIT(SPACE) | BIT(OP);

static void whole_field(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t *field)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint32_t shift, bytes = ebpf_insn_bytes(in->code);
	if (!f->fixed || f->offset < 0 || BPF_MODE(in->code) != BPF_MEM)
		return;
	int at = ebpf_field_at(t->p->context, (uint32_t)f->offset, bytes, &shift);
	if (at >= 0 && !shift && ebpf_fields[at].bytes == bytes && ((known | BIT(ADDRESS)) >> at & 1))
		*field = (uint8_t)(at + 1);
}

bool tr_holds(const struct tr_fields *f, uint8_t reg, enum ebpf_field field)
{
	return f->of[reg] == field + 1;
}

bool tr_is_move(const struct bpf_insn *in)
{
	uint8_t class = BPF_CLASS(in->code);
	return (class == BPF_ALU64 || class == BPF_ALU) && BPF_OP(in->code) == BPF_MOV && BPF_SRC(in->code) == BPF_X && !in->off;
}

void tr_follow(const struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_fields *f)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	uint8_t field = 0, class = BPF_CLASS(in->code);
	if (class == BPF_LDX && tr_fact(t, inst, i)->region == EBPF_REGION_CONTEXT)
		whole_field(t, inst, i, &field);
	if (tr_is_move(in))
		field = class == BPF_ALU && tr_holds(f, in->src_reg, EBPF_FIELD_ADDRESS) ? 0 : f->of[in->src_reg];
	for (uint32_t r = 0; r < TR_REGS; r++)
		if (tr_defs(t, inst, i) >> r & 1)
			f->of[r] = tr_is_move(in) || class == BPF_LDX ? field : 0;
}

static const struct {
	uint8_t op;
	uint8_t yes, no;
} tests[] = {
	{ BPF_JEQ, EBPF_TEST_EQ, EBPF_TEST_NE },
	{ BPF_JNE, EBPF_TEST_NE, EBPF_TEST_EQ },
	{ BPF_JLT, EBPF_TEST_LT, EBPF_TEST_GE },
	{ BPF_JLE, EBPF_TEST_LE, EBPF_TEST_GT },
	{ BPF_JGT, EBPF_TEST_GT, EBPF_TEST_LE },
	{ BPF_JGE, EBPF_TEST_GE, EBPF_TEST_LT },
	{ BPF_JSET, EBPF_TEST_ANY, EBPF_TEST_NONE },
};

bool tr_field_test(const struct tr *t, const struct tr_inst *inst, uint32_t i, bool taken, const struct tr_fields *f, struct ebpf_when *out)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	if (!f->of[in->dst_reg] || tr_holds(f, in->dst_reg, EBPF_FIELD_ADDRESS) || BPF_SRC(in->code) != BPF_K || in->imm < 0)
		return false;
	for (size_t k = 0; k < sizeof(tests) / sizeof(tests[0]); k++) {
		if (tests[k].op != BPF_OP(in->code))
			continue;
		*out = (struct ebpf_when){ (enum ebpf_field)(f->of[in->dst_reg] - 1), (enum ebpf_test)(taken ? tests[k].yes : tests[k].no),
			(uint32_t)in->imm };
		return true;
	}
	return false;
}

/* -- whether anything is done -- */

/* What can be seen of it outside of this run; a call of a function counts as such. */
static bool is_act(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	return tr_is_call(in) || tr_is_atomic(in) || (tr_is_store(in) && tr_fact(t, inst, i)->region != EBPF_REGION_STACK);
}

bool *tr_leads_to(const struct tr *t, struct tr_inst *inst, bool (*is)(const struct tr *t, const struct tr_inst *inst, uint32_t i))
{
	bool *to = arena_array(t->arena, inst->n, sizeof(*to));
	for (bool changed = to; changed;) {
		changed = false;
		for (uint32_t i = inst->n; i--;) {
			int32_t next = tr_next(t, inst, i), jump = tr_jump(t, inst, i);
			bool s = is(t, inst, i) || (next >= 0 && to[next]) || (jump >= 0 && to[jump]);
			changed |= s != to[i];
			to[i] = s;
		}
	}
	return to;
}

/* Where all that may act goes on, having asked what it asks there; -1: that is not known. */
static int32_t go_on(struct tr *t, struct tr_inst *inst, uint32_t i, const bool *acts, const struct tr_fields *f, struct ebpf_fragment *out)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	int32_t next = tr_next(t, inst, i), jump = tr_jump(t, inst, i);
	if (is_act(t, inst, i) || tr_is_exit(in))
		return -1;
	if (next < 0 || jump < 0)
		return next < 0 ? jump : next;
	if (acts[next] == acts[jump] || out->n_when == TR_MAX_WHEN || !tr_field_test(t, inst, i, acts[jump], f, &out->when[out->n_when]))
		return -1;
	out->n_when++;
	return acts[jump] ? jump : next;
}

int tr_when(struct tr *t, struct ebpf_fragment *out)
{
	struct tr_inst *inst = t->insts[0];
	struct tr_fields f = { 0 };
	bool *acts = tr_leads_to(t, inst, is_act);
	int32_t i = (int32_t)t->index_of[t->funcs[inst->func].entry];
	out->when = arena_array(t->arena, TR_MAX_WHEN, sizeof(*out->when));
	if (!out->when || !acts)
		return diag_set(t->d, ENOMEM, "out of memory");
	for (uint32_t n = 0; i >= 0 && n < inst->n; n++) {
		int32_t to = go_on(t, inst, (uint32_t)i, acts, &f, out);
		if (!inst->at[i].dead)
			tr_follow(t, inst, (uint32_t)i, &f);
		i = to;
	}
	return 0;
}
