/* queue.c - push, pop and peek of queues and stacks (map/layout.h).
 *
 * One 64-bit word says how many values there are and where the oldest is (of a stack: how often it changed), so that who reads it knows
 * for certain whether the map is full or empty, and a compare-and-swap of it claims slots: pushes those behind the newest value, pops
 * those of the oldest or newest. Only slots are claimed that are ready, empty for a push, full for a pop; so a slot has one owner at a
 * time, who writes or reads its value and then says so in its state. Nobody waits while owning one.
 *
 * Lanes that are here together claim slots next to each other, with one compare-and-swap of the lowest of them: each looks at its
 * own slot, and those before the first that is not ready go. Each pass ends in one place, behind the stores of those who went, also
 * on hardware that runs the lanes of a warp in lockstep. Who finds a slot that another still owns, or whose swap was beaten, tries
 * again, a bounded number of times.
 *
 * The word cannot become what it was while somebody looks away: the number in it changes with each pop of a queue, and with everything
 * that happens to a stack, and comes around after 2^32 of these. Where the oldest of a full stack goes, MAP_STACK_LOCK holds the others
 * off until `first` is the next slot.
 */
#include "translate/ring.h"

#include <stddef.h>

enum { SPINS = 1 << 18, ENOENT_ = -2, E2BIG_ = -7, EBUSY_ = -16, EINVAL_ = -22, PENDING = 1 };

struct queue {
	const struct ebpf_map *m;
	bool stack;
	struct tr_name base;
	struct tr_name r, spins;	   /* .b64: the answer, PENDING until it is known; .b32 */
	struct tr_name word, count, mark;  /* .b64, .b32, .b32: as this pass found them */
	struct tr_name first;		   /* .b32, stack: the slot of the oldest */
	struct tr_name slot;		   /* address of this lane's slot, less MAP_IMAGE_HEADER */
	struct tr_name state;		   /* .b64: what it was in: changes, odd with a value */
	struct tr_name mine;		   /* predicate: it is */
	struct tr_name again, end;
};

enum { LIVE = offsetof(struct map_image, live), FIRST = offsetof(struct map_image, first), LOST = offsetof(struct map_image, lost) };

static struct queue begin(struct tr *t, const struct ebpf_map *m)
{
	struct queue q = { .m = m, .stack = m->type == BPF_MAP_TYPE_STACK, .base = tr_map_base(t, m), .r = tr_t64(t), .spins = tr_t32(t),
		.word = tr_t64(t), .count = tr_t32(t), .mark = tr_t32(t), .first = tr_t32(t), .state = tr_t64(t), .mine = tr_pred(t),
		.again = tr_label(t), .end = tr_label(t) };
	tr_emit(t, "mov.u64 %s, %d;", q.r.s, PENDING);
	tr_emit(t, "mov.u32 %s, %u;", q.spins.s, SPINS);
	return q;
}

/* The word, and what is in it. `first` was not read before the word. */
static void read_word(struct tr *t, const struct queue *q)
{
	tr_emit(t, "ld.volatile.global.u64 %s, [%s+%d];", q->word.s, q->base.s, LIVE);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", q->count.s, q->mark.s, q->word.s);
}

static void read_first(struct tr *t, const struct queue *q)
{
	if (!q->stack)
		return;
	tr_emit(t, "membar.gl;");
	tr_emit(t, "ld.volatile.global.u32 %s, [%s+%d];", q->first.s, q->base.s, FIRST);
}

/* slot = that of the value which `older` (.b32) others are older than. */
static void slot_of(struct tr *t, struct queue *q, struct tr_name older)
{
	struct tr_name n = tr_t32(t);
	if (q->stack) {
		struct tr_name less = tr_t32(t);
		tr_emit(t, "add.u32 %s, %s, %s;", n.s, q->first.s, older.s);
		/* Below twice max_entries: the difference is larger where there is nothing to take off. */
		tr_emit(t, "sub.u32 %s, %s, %u;", less.s, n.s, q->m->max_entries);
		tr_emit(t, "min.u32 %s, %s, %s;", n.s, n.s, less.s);
		tr_emit(t, "min.u32 %s, %s, %u;", n.s, n.s, q->m->max_entries - 1);
	} else {
		tr_emit(t, "add.u32 %s, %s, %s;", n.s, q->mark.s, older.s);
		tr_emit(t, "and.b32 %s, %s, %u;", n.s, n.s, (uint32_t)map_queue_slots(q->m->type, q->m->max_entries) - 1);
	}
	q->slot = tr_wide(t, n, (uint32_t)map_queue_slot_bytes(q->m->value_size), q->base);
}

/* What a claim of `n` slots makes of the word. */
enum claim { CLAIM_PUSH, CLAIM_POP, CLAIM_OLDEST };

static struct tr_name new_word(struct tr *t, const struct queue *q, enum claim claim, struct tr_name n)
{
	struct tr_name count = tr_t32(t), mark = tr_t32(t), word = tr_t64(t);
	if (q->stack && claim == CLAIM_OLDEST)
		tr_emit(t, "or.b32 %s, %s, 0x%x;", count.s, q->count.s, MAP_STACK_LOCK);
	else
		tr_emit(t, "%s.u32 %s, %s, %s;", claim == CLAIM_PUSH ? "add" : "sub", count.s, q->count.s, n.s);
	if (q->stack)
		tr_emit(t, "add.u32 %s, %s, 1;", mark.s, q->mark.s);
	else if (claim == CLAIM_PUSH)
		tr_emit(t, "mov.u32 %s, %s;", mark.s, q->mark.s);
	else
		tr_emit(t, "add.u32 %s, %s, %s;", mark.s, q->mark.s, n.s);
	tr_emit(t, "mov.b64 %s, {%s, %s};", word.s, count.s, mark.s);
	return word;
}

/* bad = the state is not that of an empty slot, or a full one. */
static void is_not(struct tr *t, const struct queue *q, bool full, struct tr_name bad)
{
	struct tr_name odd = tr_t64(t);
	tr_emit(t, "ld.volatile.global.u64 %s, [%s+%d];", q->state.s, q->slot.s, MAP_IMAGE_HEADER);
	tr_emit(t, "and.b64 %s, %s, 1;", odd.s, q->state.s);
	tr_emit(t, "setp.ne.u64 %s, %s, %d;", bad.s, odd.s, full);
}

/* mine = the lane's slot was claimed. `free` (.b32): so many may be; full: what a slot must be. In the basic block of l; n: how
 * many were, got: predicate: some. */
static void claim_slots(struct tr *t, struct queue *q, const struct tr_group *l, enum claim claim, struct tr_name free, bool full,
	struct tr_name *n, struct tr_name *got)
{
	struct tr_name bad = tr_pred(t), stop = tr_t32(t), mask = tr_t32(t), asks = tr_pred(t), old = tr_t64(t),
		       told = tr_t32(t), lane = tr_t32(t);
	*n = tr_t32(t);
	*got = tr_pred(t);
	is_not(t, q, full, bad);
	tr_emit(t, "setp.ge.or.s32 %s, %s, %s, %s;", bad.s, l->rank.s, free.s, bad.s);
	tr_emit(t, "vote.sync.ballot.b32 %s, %s, %s;", stop.s, bad.s, l->mask.s);
	tr_lowest(t, stop, stop);
	tr_emit(t, "shl.b32 %s, 0xffffffff, %s;", mask.s, stop.s); /* 32 gives 0 */
	tr_emit(t, "not.b32 %s, %s;", mask.s, mask.s);
	tr_emit(t, "and.b32 %s, %s, %s;", mask.s, mask.s, l->mask.s);
	tr_emit(t, "popc.b32 %s, %s;", n->s, mask.s);
	tr_emit(t, "setp.ne.and.u32 %s, %s, 0, %s;", asks.s, n->s, l->leads.s);
	struct tr_name word = new_word(t, q, claim, *n);
	tr_emit(t, "not.b64 %s, %s;", old.s, q->word.s);
	tr_emit(t, "@%s atom.global.cas.b64 %s, [%s+%d], %s, %s;", asks.s, old.s, q->base.s, LIVE, q->word.s, word.s);
	tr_emit(t, "setp.eq.u64 %s, %s, %s;", got->s, old.s, q->word.s);
	tr_emit(t, "selp.b32 %s, 1, 0, %s;", told.s, got->s);
	tr_from_lane(t, l, told, told, l->first);
	tr_emit(t, "setp.ne.u32 %s, %s, 0;", got->s, told.s);
	tr_emit(t, "mov.u32 %s, %%laneid;", lane.s);
	tr_emit(t, "setp.lt.and.u32 %s, %s, %s, %s;", q->mine.s, lane.s, stop.s, got->s);
}

/* The word of the lowest lane for all. */
static void one_word(struct tr *t, const struct queue *q, const struct tr_group *l)
{
	tr_from_lane(t, l, q->count, q->count, l->first);
	tr_from_lane(t, l, q->mark, q->mark, l->first);
	tr_emit(t, "mov.b64 %s, {%s, %s};", q->word.s, q->count.s, q->mark.s);
}

/* Begins a pass: the lanes that are here, and the word that the lowest of them read. */
static struct tr_group begin_pass(struct tr *t, const struct queue *q)
{
	buf_printf(&t->body, "%s:\n", q->again.s);
	struct tr_group l = tr_lanes_here(t);
	read_word(t, q);
	one_word(t, q, &l);
	read_first(t, q);
	return l;
}

/* How many values a pop may take: none while the word is locked. */
static struct tr_name there(struct tr *t, const struct queue *q)
{
	struct tr_name n = tr_t32(t);
	tr_emit(t, "max.s32 %s, %s, 0;", n.s, q->count.s);
	return n;
}

/* The slot's other state, which its owner alone can give it. */
static void turn(struct tr *t, const struct queue *q, const char *pred)
{
	tr_emit(t, "add.s64 %s, %s, 1;", q->state.s, q->state.s);
	tr_emit(t, "%sst.volatile.global.u64 [%s+%d], %s;", pred, q->slot.s, MAP_IMAGE_HEADER, q->state.s);
}

/* Ends a pass: who has no answer yet goes on, not for ever. */
static void end_pass(struct tr *t, const struct queue *q)
{
	struct tr_name last = tr_pred(t), pending = tr_pred(t);
	tr_emit(t, "sub.u32 %s, %s, 1;", q->spins.s, q->spins.s);
	tr_emit(t, "setp.eq.u64 %s, %s, %d;", pending.s, q->r.s, PENDING);
	tr_emit(t, "setp.eq.and.u32 %s, %s, 0, %s;", last.s, q->spins.s, pending.s);
	tr_emit(t, "@%s mov.u64 %s, %d;", last.s, q->r.s, EBUSY_);
	tr_emit(t, "setp.eq.u64 %s, %s, %d;", pending.s, q->r.s, PENDING);
	tr_emit(t, "@!%s bra %s;", pending.s, q->end.s);
	buf_puts(&t->body, "#if ptx 6.3 sm 70\n\tnanosleep.u32 100;\n#endif\n");
	tr_emit(t, "bra %s;", q->again.s);
	buf_printf(&t->body, "%s:\n", q->end.s);
}

/* -- push -------------------------------------------------------------------------- */

/* Takes the oldest values out of a full map, as many as lanes are here. `full`: predicate of those who want it. */
static void drop_oldest(struct tr *t, struct queue *q, struct tr_name full)
{
	struct tr_name skip = tr_label(t), n, got, leads = tr_pred(t);
	tr_emit(t, "@!%s bra %s;", full.s, skip.s);
	struct tr_group l = tr_lanes_here(t);
	one_word(t, q, &l); /* lanes of another pass may have come */
	if (q->stack)
		tr_from_lane(t, &l, q->first, q->first, l.first);
	slot_of(t, q, l.rank);
	char mine[48];
	snprintf(mine, sizeof(mine), "@%s ", q->mine.s);
	claim_slots(t, q, &l, CLAIM_OLDEST, q->count, true, &n, &got);
	tr_emit(t, "membar.gl;");
	turn(t, q, mine);
	if (q->stack) {
		struct tr_name first = tr_t32(t), less = tr_t32(t), count = tr_t32(t), mark = tr_t32(t), word = tr_t64(t);
		tr_emit(t, "and.pred %s, %s, %s;", leads.s, got.s, l.leads.s);
		tr_emit(t, "add.u32 %s, %s, %s;", first.s, q->first.s, n.s);
		tr_emit(t, "sub.u32 %s, %s, %u;", less.s, first.s, q->m->max_entries);
		tr_emit(t, "min.u32 %s, %s, %s;", first.s, first.s, less.s);
		tr_emit(t, "sub.u32 %s, %s, %s;", count.s, q->count.s, n.s);
		tr_emit(t, "add.u32 %s, %s, 2;", mark.s, q->mark.s);
		tr_emit(t, "mov.b64 %s, {%s, %s};", word.s, count.s, mark.s);
		tr_emit(t, "@%s st.volatile.global.u32 [%s+%d], %s;", leads.s, q->base.s, FIRST, first.s);
		tr_emit(t, "membar.gl;"); /* the slot before the word that others go by */
		tr_emit(t, "@%s st.volatile.global.u64 [%s+%d], %s;", leads.s, q->base.s, LIVE, word.s);
	}
	buf_printf(&t->body, "%s:\n", skip.s);
}

/* Strong, as the loads are, while it is small: then there is no race, whatever the fences around it mean. */
static void write_value(struct tr *t, const struct queue *q, const struct tr_mem *value)
{
	uint32_t bytes = q->m->value_size;
	if (bytes > TR_BY_STORE) {
		tr_mem_copy(t, value, q->slot.s, MAP_IMAGE_HEADER + 8, bytes);
		return;
	}
	for (uint32_t at = 0; at < bytes; at += 8) {
		struct tr_name word = tr_mem_word(t, value, at, bytes - at < 8 ? bytes - at : 8);
		tr_emit(t, "st.volatile.global.u64 [%s+%u], %s;", q->slot.s, MAP_IMAGE_HEADER + 8 + at, word.s);
	}
}

static int push_pass(struct tr *t, struct queue *q, struct tr_inst *inst, uint32_t i, const struct tr_name *flags)
{
	struct tr_mem value;
	int err = tr_mem_arg(t, inst, i, 1, &value);
	if (err)
		return err;
	struct tr_name late = tr_label(t), room = tr_t32(t), behind = tr_t32(t), full = tr_pred(t), n, got;
	struct tr_group l = begin_pass(t, q);
	tr_emit(t, "sub.u32 %s, %u, %s;", room.s, q->m->max_entries, q->count.s);
	tr_emit(t, "setp.ge.s32 %s, %s, 0;", full.s, q->count.s); /* not locked */
	tr_emit(t, "selp.b32 %s, %s, 0, %s;", room.s, room.s, full.s);
	tr_emit(t, "add.u32 %s, %s, %s;", behind.s, q->count.s, l.rank.s);
	slot_of(t, q, behind);
	claim_slots(t, q, &l, CLAIM_PUSH, room, false, &n, &got);
	tr_emit(t, "@!%s bra %s;", q->mine.s, late.s);
	write_value(t, q, &value);
	tr_emit(t, "membar.gl;"); /* the value before the state */
	turn(t, q, "");
	tr_emit(t, "mov.u64 %s, 0;", q->r.s);
	buf_printf(&t->body, "%s:\n", late.s);
	tr_emit(t, "setp.ge.and.s32 %s, %s, %u, !%s;", full.s, q->count.s, q->m->max_entries, q->mine.s);
	if (!flags) {
		tr_emit(t, "@%s mov.u64 %s, %d;", full.s, q->r.s, E2BIG_);
	} else {
		struct tr_name f = tr_t64(t), only = tr_pred(t), drops = tr_pred(t);
		tr_emit(t, "mov.u64 %s, %s;", f.s, flags->s);
		tr_emit(t, "setp.eq.and.u64 %s, %s, 0, %s;", only.s, f.s, full.s);
		tr_emit(t, "@%s mov.u64 %s, %d;", only.s, q->r.s, E2BIG_);
		tr_emit(t, "setp.ne.and.u64 %s, %s, 0, %s;", drops.s, f.s, full.s);
		drop_oldest(t, q, drops);
	}
	end_pass(t, q);
	return 0;
}

/* Flags that are none of the two are refused, others than BPF_ANY cost code. */
static int push(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	struct tr_name flags = tr_scalar_arg(t, inst, i, 2), r0 = tr_reg(inst, 0), lost = tr_pred(t);
	bool plain = f->args[2].constant && !f->args[2].value;
	struct queue q = begin(t, m);
	struct tr_name refused = tr_label(t);
	if (!plain) {
		struct tr_name given = tr_t64(t), bad = tr_pred(t);
		tr_emit(t, "mov.u64 %s, %s;", given.s, flags.s);
		tr_emit(t, "setp.eq.u64 %s, %s, 1;", bad.s, given.s);
		tr_emit(t, "setp.gt.or.u64 %s, %s, 2, %s;", bad.s, given.s, bad.s);
		tr_emit(t, "@%s mov.u64 %s, %d;", bad.s, q.r.s, EINVAL_);
		tr_emit(t, "@%s bra %s;", bad.s, refused.s);
	}
	int err = push_pass(t, &q, inst, i, plain ? NULL : &flags);
	tr_emit(t, "setp.ne.u64 %s, %s, 0;", lost.s, q.r.s);
	tr_emit(t, "@%s red.global.add.u64 [%s+%d], 1;", lost.s, q.base.s, LOST);
	buf_printf(&t->body, "%s:\n", refused.s);
	tr_emit(t, "mov.u64 %s, %s;", r0.s, q.r.s);
	return err;
}

/* -- pop, peek --------------------------------------------------------------------- */

/* How many others are older than the rank-th that would be popped. */
static struct tr_name older(struct tr *t, const struct queue *q, struct tr_name rank)
{
	struct tr_name n = tr_t32(t);
	if (!q->stack)
		return rank;
	tr_emit(t, "sub.u32 %s, %s, %s;", n.s, q->count.s, rank.s);
	tr_emit(t, "sub.u32 %s, %s, 1;", n.s, n.s);
	tr_emit(t, "max.s32 %s, %s, 0;", n.s, n.s); /* an empty one has no such slot: any will do */
	return n;
}

static void empty_answer(struct tr *t, const struct queue *q)
{
	struct tr_name empty = tr_pred(t);
	tr_emit(t, "setp.eq.u32 %s, %s, 0;", empty.s, q->count.s);
	tr_emit(t, "@%s mov.u64 %s, %d;", empty.s, q->r.s, ENOENT_);
}

static void pop_pass(struct tr *t, struct queue *q, const struct tr_mem *to)
{
	struct tr_name late = tr_label(t), n, got;
	struct tr_group l = begin_pass(t, q);
	slot_of(t, q, older(t, q, l.rank));
	claim_slots(t, q, &l, CLAIM_POP, there(t, q), true, &n, &got);
	empty_answer(t, q);
	tr_emit(t, "@!%s bra %s;", q->mine.s, late.s);
	tr_emit(t, "membar.gl;"); /* the state before the value */
	tr_mem_fill(t, to, &q->slot, MAP_IMAGE_HEADER + 8, q->m->value_size);
	tr_emit(t, "membar.gl;"); /* the value before the state */
	turn(t, q, "");
	tr_emit(t, "mov.u64 %s, 0;", q->r.s);
	buf_printf(&t->body, "%s:\n", late.s);
	end_pass(t, q);
}

/* The value counts when its slot did not change while it was read. What is at the top of a stack then was that when it was pushed, or when
 * the word was read; the oldest of a queue is still that after its slot was seen. */
static void peek_pass(struct tr *t, struct queue *q, const struct tr_mem *to)
{
	struct tr_name late = tr_label(t), zero = tr_t32(t), bad = tr_pred(t), now = tr_t64(t), same = tr_pred(t);
	buf_printf(&t->body, "%s:\n", q->again.s);
	read_word(t, q);
	read_first(t, q);
	empty_answer(t, q);
	tr_emit(t, "mov.u32 %s, 0;", zero.s);
	slot_of(t, q, older(t, q, zero));
	is_not(t, q, true, bad);
	tr_emit(t, "setp.le.or.s32 %s, %s, 0, %s;", bad.s, q->count.s, bad.s);
	tr_emit(t, "membar.gl;");
	if (!q->stack) {
		struct tr_name word = tr_t64(t), mark = tr_t32(t), count = tr_t32(t);
		tr_emit(t, "ld.volatile.global.u64 %s, [%s+%d];", word.s, q->base.s, LIVE);
		tr_emit(t, "mov.b64 {%s, %s}, %s;", count.s, mark.s, word.s);
		tr_emit(t, "setp.ne.or.u32 %s, %s, %s, %s;", bad.s, mark.s, q->mark.s, bad.s);
	}
	tr_emit(t, "@%s bra %s;", bad.s, late.s);
	tr_mem_fill(t, to, &q->slot, MAP_IMAGE_HEADER + 8, q->m->value_size);
	tr_emit(t, "membar.gl;");
	tr_emit(t, "ld.volatile.global.u64 %s, [%s+%d];", now.s, q->slot.s, MAP_IMAGE_HEADER);
	tr_emit(t, "setp.eq.u64 %s, %s, %s;", same.s, now.s, q->state.s);
	tr_emit(t, "@%s mov.u64 %s, 0;", same.s, q->r.s);
	buf_printf(&t->body, "%s:\n", late.s);
	end_pass(t, q);
}

/* As in the kernel, the value is zeros where there is none. */
static int take(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m, bool pops)
{
	struct tr_mem to;
	int err = tr_mem_arg(t, inst, i, 1, &to);
	if (err)
		return err;
	struct queue q = begin(t, m);
	if (pops)
		pop_pass(t, &q, &to);
	else
		peek_pass(t, &q, &to);
	struct tr_name some = tr_pred(t), done = tr_label(t);
	tr_emit(t, "setp.eq.u64 %s, %s, 0;", some.s, q.r.s);
	tr_emit(t, "@%s bra %s;", some.s, done.s);
	tr_mem_fill(t, &to, NULL, 0, m->value_size);
	buf_printf(&t->body, "%s:\n", done.s);
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, q.r.s);
	return 0;
}

int tr_queue_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	int32_t number = tr_bpf(t, inst, i)->imm;
	return number == BPF_FUNC_map_push_elem ? push(t, inst, i, m) : take(t, inst, i, m, number == BPF_FUNC_map_pop_elem);
}
