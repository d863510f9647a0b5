/* callback.c - functions that a helper calls once for each iteration (bpf_loop, bpf_for_each_map_elem).
 *
 * As in Linux the helper's instruction is the head of a loop: from it a path goes on behind the call, and another one into the
 * function, whose return leads back to the head.
 *
 *	head --(iterations left)--> frame of the function --exit, r0 in [0, 1]--> head, iteration + 1
 *	head --> behind the call
 *
 * A head reached again is compared with the earlier ones of the path, which are still open: where one covers it entirely, all
 * that can follow is looked at already and the path ends. What then was relied on is all of it, and is marked so. Where
 * none does, numbers that changed and that nothing rested upon are forgotten (widened), so that the loop closes.
 * Every iteration counts against the bound of the helper, so such a cycle ends when it runs.
 *
 * Length: the longest call of the function (loop_seen) times the iterations left. It is known after a walk over the program;
 * explore() walks again until it stays the same.
 */
#include "map/layout.h"
#include "verifier/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { UNROLL = 16 }; /* iterations in which numbers that something rested upon keep their values */

struct widened {
	uint32_t at;
	struct snapshot *state;
};

void drop_widened(struct verifier *v, uint32_t from)
{
	while (v->n_widened && v->widened[v->n_widened - 1].at >= from)
		free(v->widened[--v->n_widened].state);
}

static int keep_widened(struct verifier *v)
{
	if (v->n_widened >= v->cap_widened) {
		size_t cap = v->cap_widened ? v->cap_widened * 2 : 16;
		struct widened *p = realloc(v->widened, cap * sizeof(*p));
		if (!p)
			return out_of_memory(v);
		v->widened = p;
		v->cap_widened = cap;
	}
	struct snapshot *s = snapshot_take(&v->cur);
	if (!s)
		return out_of_memory(v);
	v->widened[v->n_widened++] = (struct widened){ v->path_insns, s };
	return 0;
}

void widen_again(struct verifier *v, uint32_t at)
{
	for (uint32_t k = 0; k < v->n_widened; k++)
		if (v->widened[k].at == at)
			snapshot_restore(v->widened[k].state, &v->cur);
}

/* Into the function. */
static int enter(struct verifier *v, const struct callback *c)
{
	struct vframe *caller = frame_now(v), *f = &v->cur.frames[v->cur.n_frames];
	if (v->cur.n_frames == MAX_FRAMES)
		return refuse(v, E2BIG, "stack", "the call stack of %d frames is too deep; inline some of the functions", MAX_FRAMES + 1);
	for (uint32_t k = 0; k <= 10; k++)
		f->regs[k] = (struct vreg){ .type = V_UNSET, .map = -1 };
	f->regs[10] = (struct vreg){ .type = V_STACK, .frame = (uint8_t)v->cur.n_frames, .map = -1, .r = range_const(0) };
	uint32_t context = 2;
	if (c->map >= 0) {
		const struct ebpf_map *m = &v->p->maps[c->map];
		f->regs[1] = (struct vreg){ .type = V_MAP, .map = c->map, .r = range_const(0) };
		f->regs[2] = (struct vreg){ .type = V_KEY, .map = c->map, .bytes = m->key_size, .r = range_const(0) };
		f->regs[3] = (struct vreg){ .type = V_VALUE, .map = c->map, .r = range_const(0) };
		context = 4;
	} else {
		f->regs[1] = scalar_unknown();
	}
	f->regs[context] = caller->regs[3];
	f->callsite = v->cur.insn;
	f->subprog = subprog_of(v, c->start);
	f->callback = true;
	f->n_slots = f->iteration = 0;
	f->refs = v->cur.n_refs;
	f->entered = v->cur.length;
	v->cur.n_frames++;
	v->cur.insn = c->start;
	v->jumps++;
	return 0;
}

/* A hash is walked slot by slot, whatever is in it. */
static uint64_t slots_of(const struct verifier *v, const struct callback *c)
{
	bool hash = c->map >= 0 && v->p->maps[c->map].type == BPF_MAP_TYPE_HASH;
	return hash ? map_hash_slots(v->p->maps[c->map].max_entries) : 0;
}

int step_callback(struct verifier *v, const struct callback *c, bool *leave)
{
	struct vframe *f = frame_now(v);
	uint64_t left, cost = v->loop_cost[v->cur.insn], all;
	bool taken = true;
	if (f->iteration < c->limit) {
		int err = fork_path(v, &taken);
		if (err)
			return err;
	}
	*leave = taken;
	if (!taken)
		return enter(v, c);
	left = f->iteration < c->limit ? c->limit - f->iteration : 0;
	f->iteration = 0;
	uint64_t slots = slots_of(v, c), search = slots * EBPF_SLOT_COST;
	if (__builtin_mul_overflow(left, cost, &all) || all > v->opts.max_run_insns)
		return refuse(v, E2BIG, "length",
			"bpf_%s may call its function %llu times, %llu instructions each, and a run has at most %llu; %s, or raise the limit with --max-insns",
			c->helper->name, (unsigned long long)c->limit, (unsigned long long)cost, (unsigned long long)v->opts.max_run_insns,
			c->map >= 0 ? "make the map smaller" : "check the count against a smaller constant");
	if (search > v->opts.max_run_insns)
		return refuse(v, E2BIG, "length",
			"bpf_%s looks at the %llu slots of a hash of %llu entries, %d instructions each, and a run has at most %llu; make the map smaller, or raise the limit with --max-insns",
			c->helper->name, (unsigned long long)slots, (unsigned long long)c->limit, EBPF_SLOT_COST, (unsigned long long)v->opts.max_run_insns);
	v->cur.length += all + search;
	return 0;
}

/* The function in frame `level` returns when the path is `length` long. */
static void note_body(struct verifier *v, uint32_t level, uint64_t length)
{
	const struct vframe *f = &v->cur.frames[level];
	uint64_t *seen = &v->loop_seen[f->callsite];
	if (length - f->entered > *seen)
		*seen = length - f->entered;
	/* States of this very call; those before it know nothing of its return. */
	for (struct saved *s = v->parent; s && s != &v->root; s = s->parent) {
		if (s->state->n_frames <= level)
			return;
		const struct packed_frame *then = snapshot_frame(s->state, level);
		if (!then->callback || then->callsite != f->callsite || then->entered != f->entered)
			return;
		if (s->body[level] < length)
			s->body[level] = length;
	}
}

/* This path ends at s: the functions it is in return as they did from there. */
void callback_covered(struct verifier *v, const struct saved *s)
{
	for (uint32_t k = 1; k < v->cur.n_frames; k++)
		if (v->cur.frames[k].callback && s->body[k] > s->length)
			note_body(v, k, v->cur.length + (s->body[k] - s->length));
}

int callback_return(struct verifier *v)
{
	struct vframe *f = frame_now(v), *caller = f - 1;
	struct vreg *r0 = &f->regs[0];
	if (r0->type == V_UNSET)
		return refuse(v, EACCES, "uninit", "R0 !read_ok; return 0 to go on or 1 to stop on every path");
	if (is_pointer(r0))
		return refuse(v, EACCES, "callback", "At callback return the register R0 is not a known value (%s); return 0 to go on or 1 to stop",
			vtype_name(r0->type));
	if (r0->r.b64.umax > 1)
		return refuse(v, EACCES, "loop",
			"At callback return the register R0 has smin=%lld smax=%lld should have been in [0, 1]; return 0 to go on or 1 to stop",
			(long long)r0->r.b64.smin, (long long)r0->r.b64.smax);
	if (v->cur.n_refs != f->refs)
		return refuse(v, EACCES, "ref", "Unreleased reference id=%u alloc_insn=%u in callback; submit or discard it in the function that reserves it",
			v->cur.n_refs ? v->cur.refs[v->cur.n_refs - 1].id : 0, v->cur.n_refs ? v->cur.refs[v->cur.n_refs - 1].insn : 0);
	int err = mark_precise(v, r0);
	if (err)
		return err;
	if (!v->replay)
		note_body(v, v->cur.n_frames - 1, v->cur.length);
	caller->iteration++;
	v->cur.insn = f->callsite;
	v->cur.n_frames--;
	v->jumps++;
	return 0;
}

/* Coming back to a head. */

static bool says_nothing(const struct range *r)
{
	struct range all = range_unknown();
	return range_equal(r, &all);
}

/* The path ends because the old head covers all of this one. */
static int rely_on_all(struct verifier *v, const struct snapshot *old)
{
	int err = 0;
	for (uint32_t k = 0; k < v->cur.n_frames && !err; k++) {
		const struct packed_frame *f = snapshot_frame(old, k);
		struct vframe *cur = &v->cur.frames[k];
		uint16_t live = live_regs(v, k);
		for (int r = 0; r < 10 && !err; r++)
			if ((live >> r & 1) && f->regs[r].type == V_SCALAR && (f->regs[r].part || !says_nothing(&f->regs[r].r)))
				err = mark_precise(v, &cur->regs[r]);
		for (uint32_t s = 0; s < f->n_slots && s < cur->n_slots && !err; s++) {
			err = node_mark(v, cur->slots[s].live, MARK_READ);
			if (!err && cur->slots[s].kind[0] == SLOT_SPILL)
				err = mark_precise(v, &cur->slots[s].spill);
		}
	}
	return err;
}

static bool widen_scalar(struct verifier *v, const struct vreg *old, struct vreg *cur, bool keep)
{
	if (old->type != V_SCALAR || cur->type != V_SCALAR || range_within(&old->r, &cur->r))
		return false;
	if (keep && node_marked(v, old->node, MARK_PRECISE))
		return false;
	*cur = scalar_unknown();
	return true;
}

/* Forgets what changed since the head before. */
static bool widen(struct verifier *v, const struct snapshot *old, bool keep)
{
	bool changed = false;
	for (uint32_t k = 0; k < v->cur.n_frames; k++) {
		const struct packed_frame *f = snapshot_frame(old, k);
		struct vframe *cur = &v->cur.frames[k];
		uint16_t live = live_regs(v, k);
		for (int r = 0; r < 10; r++)
			if (live >> r & 1)
				changed |= widen_scalar(v, &f->regs[r], &cur->regs[r], keep);
		for (uint32_t s = 0; s < f->n_slots && s < cur->n_slots; s++) {
			struct vslot *b = &cur->slots[s];
			if (f->slots[s].kind[0] != SLOT_SPILL || b->kind[0] != SLOT_SPILL)
				continue;
			struct vreg before = b->spill;
			if (!widen_scalar(v, &f->slots[s].spill, &b->spill, keep))
				continue;
			/* Of fewer bytes only those are forgotten. */
			uint32_t bytes = 0;
			while (bytes < 8 && b->kind[bytes] == SLOT_SPILL)
				bytes++;
			b->spill = before;
			for (uint32_t n = 0; n < bytes; n++)
				b->kind[n] = SLOT_MISC;
			b->spill = (struct vreg){ .type = V_UNSET, .map = -1 };
			changed = true;
		}
	}
	return changed;
}

/* The head of the iteration before on this path: open ones are its past. */
static struct saved *head_before(struct verifier *v)
{
	for (struct saved *s = v->saved[v->cur.insn]; s; s = s->next) {
		if (!s->open || s->state->n_frames != v->cur.n_frames)
			continue;
		bool same = true;
		for (uint32_t k = 1; k < v->cur.n_frames; k++)
			same &= snapshot_frame(s->state, k)->callsite == v->cur.frames[k].callsite;
		if (same && snapshot_frame(s->state, v->cur.n_frames - 1)->iteration + 1 == frame_now(v)->iteration)
			return s;
	}
	return NULL;
}

static int closes(struct verifier *v)
{
	for (struct saved *s = v->saved[v->cur.insn]; s; s = s->next) {
		if (!s->open && state_covers(v, s->state, COVER_RELIED))
			return covered(v, s);
		if (!s->open || s->state->n_frames != v->cur.n_frames ||
			snapshot_frame(s->state, v->cur.n_frames - 1)->iteration >= frame_now(v)->iteration ||
			!state_covers(v, s->state, COVER_ALL))
			continue;
		int err = rely_on_all(v, s->state);
		if (err)
			return err;
		path_ended(v, v->cur.length);
		return PATH_ENDED;
	}
	return 0;
}

int check_loop(struct verifier *v)
{
	int end = closes(v);
	if (end)
		return end;
	struct saved *before = head_before(v);
	if (before && widen(v, before->state, frame_now(v)->iteration < UNROLL)) {
		int err = keep_widened(v);
		if (err)
			return err;
		end = closes(v);
		if (end)
			return end;
	}
	return remember(v);
}
