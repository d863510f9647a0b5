/* prune.c - states remembered at join points, and the two questions asked there.
 *
 * 1. Does a finished state cover this one? A finished state is one from which every path was walked to its end. If every
 *    concrete state of the current one is, in all that those paths relied on, also one of the old one, they stand for ours too.
 *    What they relied on is then relied on by this path as well, and is marked so.
 * 2. Does this path stand where it stood before, with nothing changed? Then it never ends.
 *
 * The comparisons follow Linux (states_equal): registers that are never read again do not count, nor stack slots
 * that were not read, nor the values of scalars that nothing rested upon.
 */
#include "verifier/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of equal scalars, null checks and reservations mean nothing by themselves: two states agree when one numbering can be
 * turned into the other. */
struct idmap {
	struct {
		uint32_t old, cur;
	} pair[MAX_FRAMES * 10 + SLOTS + MAX_REFS + 8];
	uint32_t n, fresh;
};

static bool same_id(struct idmap *m, uint32_t old, uint32_t cur)
{
	if (!old != !cur)
		return false;
	if (!old)
		return true;
	for (uint32_t k = 0; k < m->n; k++) {
		if (m->pair[k].old == old)
			return m->pair[k].cur == cur;
		if (m->pair[k].cur == cur)
			return false;
	}
	if (m->n == sizeof(m->pair) / sizeof(m->pair[0]))
		return false;
	m->pair[m->n].old = old;
	m->pair[m->n++].cur = cur;
	return true;
}

/* Equalities that the old state had must hold now; a scalar without equals gets a number of its own. */
static bool same_scalar_id(struct idmap *m, uint32_t old, uint32_t cur)
{
	return !old || same_id(m, old, cur ? cur : --m->fresh);
}

/* What the old state knew it to be a part of, it is now. */
static bool same_part(struct idmap *m, const struct vreg *old, const struct vreg *cur)
{
	if (!old->part)
		return true;
	return old->part == cur->part && old->by == cur->by && old->part_wide == cur->part_wide && old->part_signed == cur->part_signed &&
		same_id(m, old->of, cur->of);
}

static bool scalar_covers(struct verifier *v, struct idmap *m, const struct vreg *old, const struct vreg *cur, enum cover how)
{
	if (how == COVER_EXACT)
		return range_equal(&old->r, &cur->r) && same_id(m, old->id, cur->id) && old->part == cur->part && same_part(m, old, cur);
	if (how == COVER_RELIED && !node_marked(v, old->node, MARK_PRECISE))
		return true;
	return range_within(&old->r, &cur->r) && same_scalar_id(m, old->id, cur->id) && same_part(m, old, cur);
}

static bool reg_covers(struct verifier *v, struct idmap *m, const struct vreg *old, const struct vreg *cur, enum cover how)
{
	if (old->type == V_UNSET && how != COVER_EXACT)
		return true;
	if (old->type != cur->type)
		return false;
	if (old->type == V_UNSET)
		return true;
	if (old->type == V_SCALAR)
		return scalar_covers(v, m, old, cur, how);
	if (old->off != cur->off || old->frame != cur->frame || old->map != cur->map || old->bytes != cur->bytes)
		return false;
	if (old->type == V_STACK || how == COVER_EXACT ? !range_equal(&old->r, &cur->r) : !range_within(&old->r, &cur->r))
		return false;
	return same_id(m, old->id, cur->id) && same_id(m, old->ref, cur->ref);
}

/* A slot as the register that reading its first `bytes` bytes gives, where its bytes are numbers. */
static bool slot_scalar(const struct vslot *s, uint32_t bytes, struct vreg *out)
{
	uint32_t spilled = 0, zero = 0, set = 0;
	for (uint32_t k = 0; k < bytes; k++) {
		spilled += s->kind[k] == SLOT_SPILL;
		zero += s->kind[k] == SLOT_ZERO;
		set += s->kind[k] != SLOT_UNSET && s->kind[k] != SLOT_PART;
	}
	if (set < bytes || (spilled && is_pointer(&s->spill)))
		return false;
	if (spilled == bytes) {
		*out = s->spill;
		return true;
	}
	*out = zero == bytes ? scalar_const(0) : scalar_unknown();
	range_zext(&out->r, bytes);
	return true;
}

static uint32_t slot_spilled(const struct vslot *s)
{
	uint32_t n = 0;
	while (n < 8 && s->kind[n] == SLOT_SPILL)
		n++;
	return n;
}

/* A byte that the old state had as `old`; what follows relied on a zero, or only on its being set. */
static bool byte_covers(uint8_t old, uint8_t kind, const struct vslot *cur)
{
	bool number = kind != SLOT_UNSET && kind != SLOT_PART && !(kind == SLOT_SPILL && is_pointer(&cur->spill));
	if (old == SLOT_UNSET || old == SLOT_PART)
		return true;
	if (old == SLOT_ZERO)
		return kind == SLOT_ZERO || (kind == SLOT_SPILL && number && range_is_value(&cur->spill.r, 0));
	return number;
}

static bool slot_equals(struct verifier *v, struct idmap *m, const struct vslot *old, const struct vslot *cur)
{
	if (memcmp(old->kind, cur->kind, sizeof(old->kind)))
		return false;
	return old->kind[0] != SLOT_SPILL || reg_covers(v, m, &old->spill, &cur->spill, COVER_EXACT);
}

static bool slot_covers(struct verifier *v, struct idmap *m, const struct vslot *old, const struct vslot *cur, enum cover how)
{
	uint32_t n = slot_spilled(old);
	if (n && is_pointer(&old->spill))
		return slot_spilled(cur) == 8 && reg_covers(v, m, &old->spill, &cur->spill, how);
	if (n) {
		struct vreg r;
		if (!slot_scalar(cur, n, &r) || !scalar_covers(v, m, &old->spill, &r, how))
			return false;
		/* Reading fewer bytes than were stored gives what was stored only when both stored as many, or all is known. */
		if (slot_spilled(cur) != n && (how == COVER_ALL || node_marked(v, old->spill.node, MARK_PRECISE)) && !range_is_const(&r.r))
			return false;
	}
	for (uint32_t k = n; k < 8; k++)
		if (!byte_covers(old->kind[k], cur->kind[k], cur))
			return false;
	return true;
}

static bool slots_cover(struct verifier *v, struct idmap *m, const struct packed_frame *old, const struct vframe *cur, enum cover how)
{
	static const struct vslot unset;
	bool exact = how == COVER_EXACT;
	uint32_t n = exact && cur->n_slots > old->n_slots ? cur->n_slots : old->n_slots;
	for (uint32_t k = 0; k < n; k++) {
		const struct vslot *a = k < old->n_slots ? &old->slots[k] : &unset, *b = k < cur->n_slots ? &cur->slots[k] : &unset;
		if (exact ? !slot_equals(v, m, a, b) : (how == COVER_ALL || node_marked(v, a->live, MARK_READ)) && !slot_covers(v, m, a, b, how))
			return false;
	}
	return true;
}

/* Registers of frame k that may be read after this point. */
uint16_t live_regs(const struct verifier *v, uint32_t k)
{
	const struct vstate *s = &v->cur;
	if (k + 1 == s->n_frames)
		return v->flow[s->insn].live;
	/* A caller keeps r6 to r9; of a helper that calls back all, for the call is made again. */
	return v->flow[s->frames[k + 1].callsite].live & (s->frames[k + 1].callback ? 0x3fe : 0x3c0);
}

/* Of a loop's iterations an earlier one stands for later ones, which have fewer to come. */
static bool same_frame(const struct packed_frame *old, const struct vframe *cur, enum cover how)
{
	if (old->callback != cur->callback || (how == COVER_EXACT && old->iteration != cur->iteration))
		return false;
	return old->iteration <= cur->iteration && old->refs == cur->refs;
}

bool state_covers(struct verifier *v, const struct snapshot *old, enum cover how)
{
	struct idmap m; /* not cleared: n says what is set */
	m.n = m.fresh = 0;
	const struct vstate *cur = &v->cur;
	if (old->n_frames != cur->n_frames || old->n_refs != cur->n_refs)
		return false;
	for (uint32_t k = 1; k < cur->n_frames; k++)
		if (snapshot_frame(old, k)->callsite != cur->frames[k].callsite)
			return false;
	for (uint32_t k = 0; k < cur->n_frames; k++)
		if (!same_frame(snapshot_frame(old, k), &cur->frames[k], how))
			return false;
	for (uint32_t k = 0; k < cur->n_refs; k++)
		if (!same_id(&m, old->refs[k].id, cur->refs[k].id))
			return false;
	for (uint32_t k = 0; k < cur->n_frames; k++) {
		const struct packed_frame *f = snapshot_frame(old, k);
		uint16_t live = live_regs(v, k);
		for (int r = 0; r < 10; r++)
			if ((live >> r & 1) && !reg_covers(v, &m, &f->regs[r], &cur->frames[k].regs[r], how))
				return false;
		if (!slots_cover(v, &m, f, &cur->frames[k], how))
			return false;
	}
	return true;
}

/* A number that equal states share: a quick no to the second question. */
static uint64_t digest(const struct verifier *v)
{
	uint64_t h = v->cur.n_refs;
	for (uint32_t k = 0; k < v->cur.n_frames; k++) {
		const struct vframe *f = &v->cur.frames[k];
		uint16_t live = live_regs(v, k);
		h = (h ^ f->callsite) * 0x100000001b3u;
		for (int r = 0; r < 10; r++) {
			const struct vreg *x = &f->regs[r];
			if (!(live >> r & 1) || x->type == V_UNSET)
				continue;
			h = (h ^ x->type ^ (uint64_t)(uint32_t)x->off << 8) * 0x100000001b3u;
			h = (h ^ x->r.bits.value ^ x->r.b64.umin << 7) * 0x100000001b3u;
			h = (h ^ x->r.bits.mask ^ x->r.b64.umax << 9) * 0x100000001b3u;
		}
	}
	return h;
}

/* The old state's continuations are ours now: what they relied on, our past must keep. */
static int adopt_marks(struct verifier *v, const struct snapshot *old)
{
	int err = 0;
	for (uint32_t k = 0; k < v->cur.n_frames; k++) {
		const struct packed_frame *f = snapshot_frame(old, k);
		struct vframe *cur = &v->cur.frames[k];
		uint16_t live = live_regs(v, k);
		for (int r = 0; r < 10 && !err; r++)
			if ((live >> r & 1) && f->regs[r].type == V_SCALAR && node_marked(v, f->regs[r].node, MARK_PRECISE))
				err = mark_precise(v, &cur->regs[r]);
		for (uint32_t s = 0; s < f->n_slots && s < cur->n_slots && !err; s++) {
			const struct vslot *a = &f->slots[s];
			struct vslot *b = &cur->slots[s];
			if (!node_marked(v, a->live, MARK_READ))
				continue;
			err = node_mark(v, b->live, MARK_READ);
			bool number = b->kind[0] == SLOT_SPILL && b->spill.type == V_SCALAR, zero = memchr(a->kind, SLOT_ZERO, 8) != NULL;
			bool precise = a->kind[0] == SLOT_SPILL && a->spill.type == V_SCALAR && node_marked(v, a->spill.node, MARK_PRECISE);
			if (!err && number && (zero || precise))
				err = mark_precise(v, &b->spill);
		}
	}
	return err;
}

/* Fresh nodes for all that is set, so that what is marked from here on is told apart by continuation. */
static void renew_nodes(struct verifier *v)
{
	for (uint32_t k = 0; k < v->cur.n_frames; k++) {
		struct vframe *f = &v->cur.frames[k];
		uint16_t live = live_regs(v, k);
		for (int r = 0; r < 10; r++)
			if ((live >> r & 1) && f->regs[r].type == V_SCALAR)
				f->regs[r].node = node_new(v, f->regs[r].node, 0);
		for (uint32_t s = 0; s < f->n_slots; s++) {
			f->slots[s].live = node_new(v, f->slots[s].live, 0);
			if (f->slots[s].kind[0] == SLOT_SPILL && f->slots[s].spill.type == V_SCALAR)
				f->slots[s].spill.node = node_new(v, f->slots[s].spill.node, 0);
		}
	}
}

static void free_one(struct verifier *v, struct saved *s)
{
	v->saved_bytes -= snapshot_bytes(s->state) + sizeof(*s);
	v->n_saved--;
	*s->all_link = s->all;
	if (s->all)
		s->all->all_link = s->all_link;
	free(s->state);
	free(s);
}

int remember(struct verifier *v)
{
	if (v->saved_bytes > MAX_SAVED_BYTES || v->n_nodes > MAX_NODES)
		return 0;
	renew_nodes(v);
	struct saved *s = v->err ? NULL : calloc(1, sizeof(*s));
	if (s)
		s->state = snapshot_take(&v->cur);
	if (!s || !s->state) {
		free(s);
		return out_of_memory(v);
	}
	v->saved_bytes += snapshot_bytes(s->state) + sizeof(*s);
	if (++v->n_saved > v->out->peak_states)
		v->out->peak_states = v->n_saved;
	s->next = v->saved[v->cur.insn];
	s->parent = v->parent;
	s->length = s->longest = v->cur.length;
	s->digest = digest(v);
	s->open = 1;
	s->listed = true;
	s->all = v->all_saved;
	s->all_link = &v->all_saved;
	if (s->all)
		s->all->all_link = &s->all;
	v->all_saved = s;
	v->saved[v->cur.insn] = v->parent = s;
	v->last_jumps = v->jumps;
	v->last_insns = v->out->processed_insns;
	return 0;
}

static void unlist(struct verifier *v, struct saved **at)
{
	struct saved *s = *at;
	*at = s->next;
	s->listed = false;
	if (!s->open)
		free_one(v, s);
}

int covered(struct verifier *v, struct saved *s)
{
	uint64_t length = v->cur.length + (s->longest - s->length);
	s->hits++;
	int err = adopt_marks(v, s->state);
	if (err)
		return err;
	if (length > v->opts.max_run_insns)
		return refuse(v, E2BIG, "length", "a run can take %llu instructions; at most %llu are allowed: shorten the loops",
			(unsigned long long)length, (unsigned long long)v->opts.max_run_insns);
	callback_covered(v, s);
	path_ended(v, length);
	return 1;
}

int check_seen(struct verifier *v)
{
	uint32_t jumps = v->jumps - v->last_jumps, insns = v->out->processed_insns - v->last_insns;
	bool loops = v->flow[v->cur.insn].loops, add = (jumps >= 2 && insns >= 8) || loops, digested = false;
	if (loops && frame_now(v)->iteration)
		return check_loop(v);
	uint64_t now = 0;
	for (struct saved **at = &v->saved[v->cur.insn]; *at;) {
		struct saved *s = *at;
		if (s->open && !digested) {
			now = digest(v);
			digested = true;
		}
		if (s->open && s->digest == now && state_covers(v, s->state, COVER_EXACT))
			return refuse(v, EACCES, "loop", "infinite loop detected at insn %u: nothing changes from one pass to the next; count a bounded variable",
				v->cur.insn);
		/* In a loop every pass has a state of its own, few of which help later. */
		if (s->open && jumps < 20 && insns < 100 && !loops)
			add = false;
		if (!s->open && state_covers(v, s->state, COVER_RELIED))
			return covered(v, s);
		/* A state that is looked at often and covers nothing is not worth looking at. */
		if (add && ++s->misses > s->hits * 3 + 3)
			unlist(v, at);
		else
			at = &s->next;
	}
	return add ? remember(v) : 0;
}

void path_ended(struct verifier *v, uint64_t longest)
{
	struct saved *s = v->parent;
	while (s) {
		struct saved *parent = s->parent;
		if (s->longest < longest)
			s->longest = longest;
		longest = s->longest;
		if (--s->open)
			break;
		if (!s->listed && s != &v->root)
			free_one(v, s);
		s = parent;
	}
	v->parent = NULL;
}

void free_saved(struct verifier *v)
{
	while (v->all_saved)
		free_one(v, v->all_saved);
}
