/* idiom.c - `(*v)++`, `*v += x`, `*v -= x` on map values and globals become one atomic add.
 *
 * Clang compiles them to a load, additions, and a store to the same place. A pair (load, store) is
 * turned into an atomic add at the store when, on every path from the load, until the store or
 * until the loaded value is no longer needed:
 *   - the value and its copies are only moved and added to or subtracted from, each copy being
 * "loaded + delta";
 *   - no call, and no store that could touch the same bytes;
 *   - control flow only goes forward, and enters nowhere but at the load.
 * Then nothing can tell the load from one made at the store, and the sum of the deltas is what is
 * added. The deltas are kept in temporaries (lower.c); registers which are still read after the
 * store are made from the old value that the atomic returns.
 */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

enum { REGION_MAX = 192, MAX_STEPS = 64 };

/* What is known before an instruction of the region. */
struct state {
	uint16_t in_edges;
	uint16_t tracked;      /* loaded value + delta */
	uint16_t mixed;        /* tracked on one path only: must not be read */
	uint16_t wide, narrow; /* below 8 bytes: those whose sum was formed in 64, in 32 bits */
};

struct walk {
	const struct tr *t;
	struct tr_inst *inst;
	const uint16_t *n_preds;
	uint32_t load;
	uint32_t bytes;
	uint16_t defs;    /* registers written so far anywhere in the region */
	uint16_t touched; /* registers that were tracked at some time */
	bool straight;    /* neither jump nor join so far */
	uint32_t steps[MAX_STEPS];
	bool dst_tracked[MAX_STEPS];
	uint32_t n_steps;
	uint32_t last; /* highest index with a state */
	struct state state[REGION_MAX];
};

bool tr_single_value(const struct tr *t, int32_t map)
{
	return map >= 0 && t->p->maps[map].type == BPF_MAP_TYPE_ARRAY &&
	       t->p->maps[map].max_entries == 1;
}

static bool base_kept(const struct walk *w, uint32_t i)
{
	uint8_t a = tr_base_reg(tr_bpf(w->t, w->inst, w->load)),
		b = tr_base_reg(tr_bpf(w->t, w->inst, i));
	return a == b && !(w->defs & reg_bit(a));
}

static bool same_place(const struct walk *w, uint32_t i)
{
	const struct bpf_insn *a = tr_bpf(w->t, w->inst, w->load), *b = tr_bpf(w->t, w->inst, i);
	if (base_kept(w, i))
		return a->off == b->off;
	const struct ebpf_fact *fa = tr_fact(w->t, w->inst, w->load),
			       *fb = tr_fact(w->t, w->inst, i);
	return fa->map == fb->map && tr_single_value(w->t, fa->map) && fa->fixed && fb->fixed &&
	       fa->offset == fb->offset;
}

/* Whether a store or atomic at i may touch the bytes of the load. */
static bool may_alias(const struct walk *w, uint32_t i)
{
	const struct bpf_insn *a = tr_bpf(w->t, w->inst, w->load), *b = tr_bpf(w->t, w->inst, i);
	const struct ebpf_fact *fa = tr_fact(w->t, w->inst, w->load),
			       *fb = tr_fact(w->t, w->inst, i);
	int32_t n = (int32_t)ebpf_insn_bytes(b->code), bytes = (int32_t)w->bytes;
	if (fb->region != EBPF_REGION_MAP_VALUE)
		return false;
	if (base_kept(w, i))
		return a->off < b->off + n && b->off < a->off + bytes;
	if (fa->map < 0 || fb->map < 0)
		return true;
	if (w->t->p->maps[fa->map].id != w->t->p->maps[fb->map].id)
		return false;
	/* Offsets count from the start of a value, and values do not overlap. */
	return !fa->fixed || !fb->fixed ||
	       (fa->offset < fb->offset + n && fb->offset < fa->offset + bytes);
}

/* The edge from `from` (a state) to index `to`: merges, or ends the path there. */
static bool edge(struct walk *w, const struct state *s, int32_t from, int32_t to)
{
	if (to < 0)
		return true;
	uint16_t open = s->tracked | s->mixed;
	if (!(w->inst->at[to].live_in & open))
		return true; /* nobody needs the value on this path any more */
	if (to <= from || (uint32_t)to - w->load >= REGION_MAX)
		return false;
	struct state *d = &w->state[(uint32_t)to - w->load];
	if (!d->in_edges++) {
		d->tracked = s->tracked;
		d->mixed = s->mixed;
		d->wide = s->wide;
		d->narrow = s->narrow;
	} else {
		d->mixed |= s->mixed | (d->tracked ^ s->tracked) | (d->wide & s->narrow) |
			    (d->narrow & s->wide);
		d->wide |= s->wide;
		d->narrow |= s->narrow;
		d->tracked &= s->tracked;
	}
	d->tracked &= ~d->mixed;
	if ((uint32_t)to > w->last)
		w->last = (uint32_t)to;
	return true;
}

/* An addition, subtraction or copy of a tracked register. */
static bool step(struct walk *w, struct state *s, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(w->t, w->inst, i);
	uint8_t class = BPF_CLASS(in->code), op = BPF_OP(in->code);
	bool is_reg = BPF_SRC(in->code) == BPF_X, narrow = class == BPF_ALU;
	uint16_t dst = reg_bit(in->dst_reg), src = is_reg ? reg_bit(in->src_reg) : 0;
	if ((class != BPF_ALU && class != BPF_ALU64) || in->off || (narrow && w->bytes == 8))
		return false;
	if (w->n_steps == MAX_STEPS || (op != BPF_MOV && op != BPF_ADD && op != BPF_SUB))
		return false;
	uint16_t from = s->tracked & dst ? dst : src; /* the operand that holds the value */
	if (op == BPF_MOV)
		from = src;
	else if ((s->tracked & dst && s->tracked & src) || (op == BPF_SUB && !(s->tracked & dst)))
		return false; /* twice the value, or its negative */
	uint16_t wide = s->wide & from ? dst : 0, thin = s->narrow & from ? dst : 0;
	if (op != BPF_MOV)
		*(narrow ? &thin : &wide) |= dst;
	if (w->bytes < 8 && wide && (thin || narrow))
		return false;
	w->dst_tracked[w->n_steps] = s->tracked & dst;
	s->tracked |= dst;
	s->mixed &= ~dst;
	s->wide = (uint16_t)((s->wide & ~dst) | wide);
	s->narrow = (uint16_t)((s->narrow & ~dst) | thin);
	w->touched |= dst;
	w->steps[w->n_steps++] = i;
	return true;
}

/* Goes over an instruction that is not the store: false when the idiom is off. */
static bool pass(struct walk *w, struct state *s, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(w->t, w->inst, i);
	if (w->inst->at[i].dead)
		return true;
	if (tr_is_call(in) || (tr_is_store(in) && may_alias(w, i)))
		return false;
	uint16_t uses = tr_uses(w->t, w->inst, i), defs = tr_defs(w->t, w->inst, i);
	if (uses & s->mixed)
		return false;
	if (uses & s->tracked) {
		if (!step(w, s, i))
			return false;
	} else {
		s->tracked &= ~defs;
		s->mixed &= ~defs;
		s->wide &= ~defs;
		s->narrow &= ~defs;
	}
	w->defs |= defs;
	return true;
}

static bool is_store(const struct walk *w, const struct state *s, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(w->t, w->inst, i);
	return in->code == (BPF_STX | BPF_MEM | BPF_SIZE(tr_bpf(w->t, w->inst, w->load)->code)) &&
	       tr_fact(w->t, w->inst, i)->region == EBPF_REGION_MAP_VALUE &&
	       s->tracked & reg_bit(in->src_reg) && same_place(w, i);
}

/* After the store was found: what else the walk left open must not need the value. */
static bool rest_closed(const struct walk *w, uint32_t store)
{
	for (uint32_t i = store + 1; i <= w->last; i++)
		if (w->state[i - w->load].in_edges)
			return false;
	return true;
}

/* Finds the store that belongs to w->load; *s is the state before it. */
static bool find_store(struct walk *w, uint32_t *store, struct state *s)
{
	struct state first = { .tracked = reg_bit(tr_bpf(w->t, w->inst, w->load)->dst_reg) };
	w->defs = w->touched = first.tracked;
	w->straight = true;
	w->last = w->load;
	if (!edge(w, &first, (int32_t)w->load, tr_next(w->t, w->inst, w->load)))
		return false;
	for (uint32_t i = w->load + 1; i <= w->last; i++) {
		*s = w->state[i - w->load];
		if (!s->in_edges)
			continue;
		if (s->in_edges != w->n_preds[i])
			return false; /* entered from elsewhere while the value is needed */
		if (w->inst->at[i].join)
			w->straight = false;
		if (is_store(w, s, i)) {
			*store = i;
			return !(s->mixed & w->inst->at[i].live_out) && rest_closed(w, i);
		}
		if (!pass(w, s, i))
			return false;
		if (tr_is_jump(tr_bpf(w->t, w->inst, i)))
			w->straight = false;
		if (!edge(w, s, (int32_t)i, tr_next(w->t, w->inst, i)) ||
			!edge(w, s, (int32_t)i, tr_jump(w->t, w->inst, i)))
			return false;
	}
	return false;
}

/* Only immediates added to the loaded register itself: their sum. */
static bool constant_sum(const struct walk *w, uint32_t store, int64_t *sum)
{
	uint8_t reg = tr_bpf(w->t, w->inst, w->load)->dst_reg;
	if (!w->straight || tr_bpf(w->t, w->inst, store)->src_reg != reg)
		return false;
	uint64_t total = 0;
	for (uint32_t k = 0; k < w->n_steps; k++) {
		const struct bpf_insn *in = tr_bpf(w->t, w->inst, w->steps[k]);
		if (in->dst_reg != reg || BPF_SRC(in->code) == BPF_X)
			return false;
		total += BPF_OP(in->code) == BPF_ADD ? (uint64_t)(int64_t)in->imm
						     : -(uint64_t)(int64_t)in->imm;
	}
	*sum = (int64_t)total;
	return true;
}

/* Whether what the steps add is the same in all lanes. */
static bool uniform_sum(const struct walk *w)
{
	if (!w->straight)
		return false;
	for (uint32_t k = 0; k < w->n_steps; k++) {
		const struct bpf_insn *in = tr_bpf(w->t, w->inst, w->steps[k]);
		if (BPF_SRC(in->code) == BPF_K || BPF_OP(in->code) == BPF_MOV)
			continue;
		uint8_t reg = w->dst_tracked[k] ? in->src_reg : in->dst_reg;
		if (!(tr_fact(w->t, w->inst, w->steps[k])->uniform >> reg & 1))
			return false;
	}
	return true;
}

static int commit(struct tr *t, struct walk *w, uint32_t store, const struct state *s)
{
	struct tr_insn *at = w->inst->at;
	if (at[store].role != TR_PLAIN)
		return 0;
	for (uint32_t k = 0; k < w->n_steps; k++)
		if (at[w->steps[k]].role != TR_PLAIN)
			return 0;
	struct tr_rmw *rmw = arena_alloc(t->arena, sizeof(*rmw));
	if (!rmw)
		return diag_set(t->d, ENOMEM, "out of memory");
	*rmw = (struct tr_rmw){ .load = w->load,
		.store = store,
		.bytes = w->bytes,
		.wide = s->wide,
		.tracked = s->tracked & at[store].live_out };
	rmw->constant = constant_sum(w, store, &rmw->addend);
	rmw->uniform = uniform_sum(w);
	for (uint32_t r = 0; r < TR_REGS && !rmw->constant; r++)
		if (w->touched & reg_bit(r))
			rmw->delta[r] = t->n_t64++;
	at[w->load].role = TR_RMW_LOAD;
	at[store].role = TR_RMW_STORE;
	at[w->load].rmw = at[store].rmw = rmw;
	for (uint32_t k = 0; k < w->n_steps; k++) {
		at[w->steps[k]].role = TR_RMW_STEP;
		at[w->steps[k]].rmw = rmw;
		at[w->steps[k]].dst_tracked = w->dst_tracked[k];
	}
	return 0;
}

bool tr_rmw_load(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	if (BPF_CLASS(in->code) != BPF_LDX || BPF_MODE(in->code) != BPF_MEM)
		return false;
	return f->region == EBPF_REGION_MAP_VALUE && !inst->at[i].dead &&
	       inst->at[i].role == TR_PLAIN && !(f->map >= 0 && t->p->maps[f->map].frozen);
}

uint16_t *tr_preds(struct tr *t, const struct tr_inst *inst)
{
	uint16_t *n = arena_array(t->arena, inst->n, sizeof(*n));
	if (!n) {
		diag_set(t->d, ENOMEM, "out of memory");
		return NULL;
	}
	n[t->index_of[t->funcs[inst->func].entry]]++;
	for (uint32_t i = 0; i < inst->n; i++) {
		int32_t to[2] = { tr_next(t, inst, i), tr_jump(t, inst, i) };
		for (int k = 0; k < 2; k++)
			if (to[k] >= 0 && n[to[k]] < UINT16_MAX)
				n[to[k]]++;
	}
	return n;
}

static int idiom_inst(struct tr *t, struct tr_inst *inst, struct walk *w)
{
	uint16_t *n_preds = tr_preds(t, inst);
	if (!n_preds)
		return -ENOMEM;
	for (uint32_t i = 0; i < inst->n; i++) {
		if (!tr_rmw_load(t, inst, i))
			continue;
		memset(w, 0, sizeof(*w));
		w->t = t;
		w->inst = inst;
		w->n_preds = n_preds;
		w->load = i;
		w->bytes = ebpf_insn_bytes(tr_bpf(t, inst, i)->code);
		uint32_t store;
		struct state s;
		int err = find_store(w, &store, &s) ? commit(t, w, store, &s) : 0;
		if (err)
			return err;
	}
	return 0;
}

int tr_idiom(struct tr *t)
{
	struct walk *w = arena_alloc(t->arena, sizeof(*w));
	if (!w)
		return diag_set(t->d, ENOMEM, "out of memory");
	for (size_t k = 0; k < t->n_insts; k++) {
		int err = idiom_inst(t, t->insts[k], w);
		if (err)
			return err;
	}
	return 0;
}
