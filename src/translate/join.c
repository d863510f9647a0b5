/* join.c - additions to several words of one value go in one instruction.
 *
 * One lane adds for all (warp.c), so the others are free: where a program adds to words of one
 * value in a straight line, the k-th lane that is here adds to the k-th of them. The memory system
 * is asked once for the words of a sector instead of once a word. Where fewer lanes are here than
 * words, the first lane does those left over.
 *
 * In a body for many runs lanes are given words beforehand: several sites' go in one instruction then (instrument/fan.c).
 *
 * Requires roles and facts. Joined are 64-bit additions at constant distances from one register,
 * whose address and addend are the same in all lanes, with nothing between them that may jump,
 * call, or touch memory of maps.
 */
#include "translate/internal.h"

#include <string.h>

static bool is_addition(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct tr_insn *at = &inst->at[i];
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	/* Many runs: each lane for itself, or the same in all. */
	if (at->dead || f->region != EBPF_REGION_MAP_VALUE || (!t->repeat && !(f->uniform >> in->dst_reg & 1)))
		return false;
	if (at->role == TR_RMW_STORE)
		return at->rmw->op == TR_ADD && at->rmw->bytes == 8 && !at->rmw->tracked && (t->repeat || at->rmw->constant || at->rmw->uniform);
	return tr_is_atomic(in) && in->imm == BPF_ADD && BPF_SIZE(in->code) == BPF_DW && (t->repeat || f->uniform >> in->src_reg & 1);
}

/* Whether an instruction may stand between two that are joined: it goes on to the next, and touches
 * no memory of maps. */
static bool may_stand_between(
	const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t base)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct tr_insn *at = &inst->at[i];
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	if (at->dead)
		return true;
	if (tr_defs(t, inst, i) >> base & 1)
		return false;
	switch (BPF_CLASS(in->code)) {
	case BPF_ALU:
	case BPF_ALU64:
	case BPF_LD:
		return true;
	case BPF_LDX:
		return at->role == TR_RMW_LOAD || f->region == EBPF_REGION_CONTEXT ||
		       f->region == EBPF_REGION_STACK ||
		       (f->region == EBPF_REGION_MAP_VALUE && f->map >= 0 &&
			       t->p->maps[f->map].frozen);
	case BPF_ST:
	case BPF_STX:
		return f->region == EBPF_REGION_STACK;
	default:
		return false;
	}
}

/* The addition after i that goes with it. */
static bool next_addition(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	uint8_t base = tr_bpf(t, inst, i)->dst_reg;
	for (uint32_t k = i + 1; k < inst->n; k++) {
		if (inst->at[k].target || inst->at[k].join || tr_next(t, inst, k - 1) != (int32_t)k)
			return false;
		if (is_addition(t, inst, k) && tr_bpf(t, inst, k)->dst_reg == base)
			return true;
		if (!may_stand_between(t, inst, k, base))
			return false;
	}
	return false;
}

static bool apart(const struct tr_joined *j, int32_t displacement)
{
	for (uint32_t k = 0; k < j->n; k++)
		if (displacement > j->at[k] - 8 && displacement < j->at[k] + 8)
			return false;
	return true;
}

static void each(struct tr *t, struct tr_name base)
{
	const struct tr_joined *j = &t->joined;
	for (uint32_t k = 0; k < j->n; k++)
		tr_emit(t, "@%s red.global.add.u64 [%s+%d], %s;", j->lead[k].pred.s, base.s,
			j->at[k], j->lead[k].value.s);
}

/* Where this lane's word is, in bytes from the base: words that follow each other need no choice.
 */
static struct tr_name place_of(
	struct tr *t, struct tr_name base, struct tr_name rank, int32_t *displacement)
{
	const struct tr_joined *j = &t->joined;
	struct tr_name at = tr_t64(t), p = tr_pred(t);
	bool row = true;
	for (uint32_t k = 1; k < j->n; k++)
		row &= j->at[k] == j->at[0] + 8 * (int32_t)k;
	*displacement = row ? j->at[0] : 0;
	if (row) {
		tr_emit(t, "mad.wide.u32 %s, %s, 8, %s;", at.s, rank.s, base.s);
		return at;
	}
	tr_emit(t, "mov.u64 %s, %d;", at.s, j->at[0]);
	for (uint32_t k = 1; k < j->n; k++) {
		tr_emit(t, "setp.eq.u32 %s, %s, %u;", p.s, rank.s, k);
		tr_emit(t, "selp.b64 %s, %d, %s, %s;", at.s, j->at[k], at.s, p.s);
	}
	tr_emit(t, "add.s64 %s, %s, %s;", at.s, base.s, at.s);
	return at;
}

/* The value of the lane's word. */
static struct tr_name value_of(struct tr *t, struct tr_name rank)
{
	const struct tr_joined *j = &t->joined;
	struct tr_name value = tr_t64(t), p = tr_pred(t);
	tr_emit(t, "mov.u64 %s, %s;", value.s, j->lead[0].value.s);
	for (uint32_t k = 1; k < j->n; k++) {
		tr_emit(t, "setp.eq.u32 %s, %s, %u;", p.s, rank.s, k);
		tr_emit(t, "selp.b64 %s, %s, %s, %s;", value.s, j->lead[k].value.s, value.s, p.s);
	}
	return value;
}

/* Many runs: lanes have been given words. */
static void by_word(struct tr *t, struct tr_name base)
{
	const struct tr_joined *j = &t->joined;
	struct tr_name word = tr_text("%egpu_word"), value = value_of(t, word), p = tr_pred(t);
	int32_t displacement;
	struct tr_name at = place_of(t, base, word, &displacement);
	tr_emit(t, "setp.lt.u32 %s, %s, %u;", p.s, word.s, j->n);
	tr_emit(t, "@%s red.global.add.u64 [%s+%d], %s;", p.s, at.s, displacement, value.s);
	t->words = j->n > t->words ? j->n : t->words;
}

static void all_at_once(struct tr *t, struct tr_name base)
{
	if (t->repeat) {
		by_word(t, base);
		return;
	}
	const struct tr_joined *j = &t->joined;
	const struct tr_lanes *l = &t->lanes;
	struct tr_name rank = tr_t32(t), value, p = tr_pred(t), done = tr_label(t), at, first;
	int32_t displacement;
	buf_puts(&t->body, "#if ptx 6.2\n");
	tr_emit(t, "popc.b32 %s, %s;", rank.s, l->lower.s);
	value = value_of(t, rank);
	at = place_of(t, base, rank, &displacement);
	tr_emit(t, "setp.ge.u32 %s, %s, %u;", p.s, rank.s, j->n);
	tr_emit(t, "@%s bra %s;", p.s, done.s);
	tr_emit(t, "red.global.add.u64 [%s+%d], %s;", at.s, displacement, value.s);
	for (uint32_t k = j->n - 1; k > 0; k--) {
		tr_emit(t, "setp.gt.u32 %s, %s, %u;", p.s, l->count.s, k);
		tr_emit(t, "@%s bra %s;", p.s, done.s);
		if (k == j->n - 1)
			first = tr_nudge(t, base, l->lower);
		tr_emit(t, "setp.eq.u32 %s, %s, 0;", p.s, rank.s);
		tr_emit(t, "@%s red.global.add.u64 [%s+%d], %s;", p.s, first.s, j->at[k],
			j->lead[k].value.s);
	}
	buf_printf(&t->body, "#else\n");
	each(t, base);
	buf_printf(&t->body, "#endif\n%s:\n", done.s);
}

bool tr_join(struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_name base,
	int32_t displacement, const struct tr_sum *sum)
{
	struct tr_joined *j = &t->joined;
	bool more = j->n + 1 < TR_MAX_JOINED && next_addition(t, inst, i);
	if (t->once || t->one_lane || !is_addition(t, inst, i) || (!j->n && !more))
		return false;
	/* The same word again: what is there is added before. */
	if (!apart(j, displacement)) {
		all_at_once(t, base);
		j->n = 0;
		return tr_join(t, inst, i, base, displacement, sum);
	}
	struct tr_lead lead;
	tr_elect(t, sum, &lead);
	if (!t->repeat && j->n && strcmp(j->mask.s, t->lanes.mask.s)) {
		each(t, base);
		j->n = 0;
	}
	j->mask = t->lanes.mask;
	j->lead[j->n] = lead;
	j->at[j->n++] = displacement;
	if (!more) {
		all_at_once(t, base);
		j->n = 0;
	}
	return true;
}
