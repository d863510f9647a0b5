/* idiom.c - `(*v)++`, `*v += x`, `*v -= x` on map values and globals become one atomic add.
 *
 * Clang compiles them to a load, additions, and a store to the same place. A pair (load, store) is
 * turned into an atomic add at the store when, on every path from the load, until the store or
 * until the loaded value is no longer needed:
 *   - the value and its copies are only moved and added to or subtracted from, each copy being
 * "loaded + delta";
 *   - no call, and no store that could touch the same bytes;
 *   - control flow only goes forward, and enters nowhere but at the load, or at another of the same place: of `if (c) *v += x; else
 *     *v -= y;` clang leaves a load on each way and one store behind both.
 * Then nothing can tell the load from one made at the store, and the sum of the deltas is what is
 * added. The deltas are kept in temporaries (lower.c); registers which are still read after the
 * store are made from the old value that the atomic returns.
 */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

enum { REGION_MAX = 192, MAX_STEPS = 64, MAX_LOADS = 8 };

/* What is known before an instruction of the region. */
struct state {
	uint16_t in_edges;
	uint16_t tracked;      /* loaded value + delta */
	uint16_t mixed;        /* tracked on one path only: must not be read */
	uint16_t wide, narrow; /* below 8 bytes: those whose sum was formed in 64, in 32 bits */
	struct tr_bases bases; /* of the place */
};

/* Instructions such that each comes behind those that lead to it, but for the ways back of loops. The text is not always so: what is rarely
 * run may lie at its end. */
struct order {
	uint32_t *at, *place, n; /* by place, and by index; place: UINT32_MAX: nothing leads there */
};

struct walk {
	const struct tr *t;
	struct tr_inst *inst;
	const uint16_t *n_preds;
	const struct order *order;
	uint32_t load; /* the first in that order */
	uint32_t loads[MAX_LOADS], n_loads;
	struct tr_bases bases; /* before it */
	bool several;  /* others may be found on ways that do not pass the first */
	bool apart;    /* they may be of different places, each way's that of the store */
	uint32_t bytes;
	uint16_t touched; /* registers that were tracked at some time */
	bool straight;    /* neither jump nor join so far */
	uint32_t steps[MAX_STEPS];
	bool dst_tracked[MAX_STEPS];
	uint32_t n_steps;
	uint32_t last; /* highest place with a state */
	struct state state[REGION_MAX]; /* by place, from the load's */
};

bool tr_single_value(const struct tr *t, int32_t map)
{
	return map >= 0 && t->p->maps[map].type == BPF_MAP_TYPE_ARRAY &&
	       t->p->maps[map].max_entries == 1;
}

/* Two accesses of known places in the one value of a map. */
static bool same_fixed(const struct walk *w, uint32_t a, uint32_t b)
{
	const struct ebpf_fact *fa = tr_fact(w->t, w->inst, a), *fb = tr_fact(w->t, w->inst, b);
	return fa->map == fb->map && tr_single_value(w->t, fa->map) && fa->fixed && fb->fixed && fa->offset == fb->offset;
}

static bool overlap(int32_t a, int32_t a_bytes, int32_t b, int32_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

/* Whether a store or atomic at i may touch the bytes of the load. */
static bool may_alias(const struct walk *w, const struct state *s, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(w->t, w->inst, i);
	const struct ebpf_fact *fa = tr_fact(w->t, w->inst, w->load), *fb = tr_fact(w->t, w->inst, i);
	int32_t n = (int32_t)ebpf_insn_bytes(in->code), bytes = (int32_t)w->bytes;
	if (fb->region != EBPF_REGION_MAP_VALUE)
		return false;
	if (s->bases.regs >> in->dst_reg & 1)
		return overlap(s->bases.to[in->dst_reg], bytes, in->off, n);
	if (fa->map < 0 || fb->map < 0)
		return true;
	if (w->t->p->maps[fa->map].id != w->t->p->maps[fb->map].id)
		return false;
	/* Offsets count from the start of a value, and values do not overlap. */
	return w->apart || !fa->fixed || !fb->fixed || overlap(fa->offset, bytes, fb->offset, n);
}

static uint32_t place(const struct walk *w, uint32_t i)
{
	return w->order->place[i];
}

/* The edge from `from` (a state) to index `to`: merges, or ends the path there. */
static bool edge(struct walk *w, const struct state *s, int32_t from, int32_t to)
{
	if (to < 0)
		return true;
	uint16_t open = s->tracked | s->mixed;
	if (!(w->inst->at[to].live_in & open))
		return true; /* nobody needs the value on this path any more */
	uint32_t at = place(w, (uint32_t)to), first = place(w, w->load);
	if (at <= place(w, (uint32_t)from) || at - first >= REGION_MAX)
		return false;
	struct state *d = &w->state[at - first];
	if (!d->in_edges) {
		*d = *s;
		d->in_edges = 1;
	} else {
		d->in_edges++;
		tr_bases_meet(&d->bases, &s->bases);
		d->mixed |= s->mixed | (d->tracked ^ s->tracked) | (d->wide & s->narrow) |
			    (d->narrow & s->wide);
		d->wide |= s->wide;
		d->narrow |= s->narrow;
		d->tracked &= s->tracked;
	}
	d->tracked &= ~d->mixed;
	if (at > w->last)
		w->last = at;
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
	if (tr_is_call(in) || (tr_is_store(in) && may_alias(w, s, i)))
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
	tr_bases_pass(w->t, w->inst, i, &s->bases);
	return true;
}

static bool is_store(const struct walk *w, const struct state *s, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(w->t, w->inst, i);
	return in->code == (BPF_STX | BPF_MEM | BPF_SIZE(tr_bpf(w->t, w->inst, w->load)->code)) &&
	       tr_fact(w->t, w->inst, i)->region == EBPF_REGION_MAP_VALUE &&
	       s->tracked & reg_bit(in->src_reg) &&
	       (tr_bases_lead(w->t, w->inst, i, &s->bases) || same_fixed(w, w->load, i));
}

/* After the store was found: what else the walk left open must not need the value. */
static bool rest_closed(const struct walk *w, uint32_t store)
{
	uint32_t first = place(w, w->load);
	for (uint32_t k = place(w, store) + 1; k <= w->last; k++)
		if (w->state[k - first].in_edges)
			return false;
	return true;
}

/* The walk goes on from a load, too. */
static bool begin_at(struct walk *w, uint32_t load, struct state *first)
{
	first->tracked = reg_bit(tr_bpf(w->t, w->inst, load)->dst_reg);
	first->bases.regs &= (uint16_t)~first->tracked;
	w->touched |= first->tracked;
	w->loads[w->n_loads++] = load;
	return edge(w, first, (int32_t)load, tr_next(w->t, w->inst, load));
}

/* Whether an instruction that no way from the loads so far leads to loads what one store behind may belong to. */
static bool is_other_load(struct walk *w, uint32_t i, struct state *first)
{
	const struct ebpf_fact *fa = tr_fact(w->t, w->inst, w->load), *fb = tr_fact(w->t, w->inst, i);
	if (!w->several || w->n_loads == MAX_LOADS || ebpf_insn_bytes(tr_bpf(w->t, w->inst, i)->code) != w->bytes ||
		!tr_rmw_load(w->t, w->inst, i) || fa->map != fb->map)
		return false;
	struct tr_bases common = w->bases;
	*first = (struct state){ 0 };
	tr_bases_at(w->t, w->inst, i, &first->bases);
	tr_bases_meet(&common, &first->bases);
	w->apart |= !fa->fixed || !fb->fixed || fa->offset != fb->offset;
	return common.regs || same_fixed(w, w->load, i);
}

/* Finds the store that belongs to w->load; *s is the state before it. */
static bool find_store(struct walk *w, uint32_t *store, struct state *s)
{
	uint32_t begin = place(w, w->load);
	struct state first = { 0 };
	w->straight = true;
	w->last = begin;
	tr_bases_at(w->t, w->inst, w->load, &first.bases);
	w->bases = first.bases;
	if (!begin_at(w, w->load, &first))
		return false;
	for (uint32_t k = begin + 1; k <= w->last; k++) {
		uint32_t i = w->order->at[k];
		*s = w->state[k - begin];
		if (!s->in_edges) {
			if (is_other_load(w, i, &first) && !begin_at(w, i, &first))
				return false;
			continue;
		}
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
		.several = w->n_loads > 1,
		.wide = s->wide,
		.tracked = s->tracked & at[store].live_out };
	rmw->constant = constant_sum(w, store, &rmw->addend);
	rmw->uniform = uniform_sum(w);
	for (uint32_t r = 0; r < TR_REGS && !rmw->constant; r++)
		if (w->touched & reg_bit(r))
			rmw->delta[r] = t->n_t64++;
	for (uint32_t k = 0; k < w->n_loads; k++) {
		at[w->loads[k]].role = TR_RMW_LOAD;
		at[w->loads[k]].rmw = rmw;
	}
	at[store].role = TR_RMW_STORE;
	at[store].rmw = rmw;
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

/* Depth first; what follows in the text is next to it. */
static int find_order(struct tr *t, const struct tr_inst *inst, struct order *o)
{
	uint32_t entry = t->index_of[t->funcs[inst->func].entry], depth = 0, count = 0;
	uint32_t *stack = arena_array(t->arena, inst->n, sizeof(*stack)), *after = arena_array(t->arena, inst->n, sizeof(*after));
	uint8_t *ways = arena_array(t->arena, inst->n, sizeof(*ways));
	o->at = arena_array(t->arena, inst->n, sizeof(*o->at));
	o->place = arena_array(t->arena, inst->n, sizeof(*o->place));
	if (!stack || !after || !ways || !o->at || !o->place)
		return diag_set(t->d, ENOMEM, "out of memory");
	memset(o->place, 0xff, inst->n * sizeof(*o->place));
	for (stack[depth++] = entry, ways[entry] = 1; depth;) {
		uint32_t i = stack[depth - 1];
		int32_t to = ways[i] == 1 ? tr_jump(t, inst, i) : ways[i] == 2 ? tr_next(t, inst, i) : -1;
		if (ways[i]++ > 2) {
			after[count++] = i;
			depth--;
		} else if (to >= 0 && !ways[to]) {
			ways[to] = 1;
			stack[depth++] = (uint32_t)to;
		}
	}
	for (o->n = 0; count--; o->n++) {
		o->at[o->n] = after[count];
		o->place[after[count]] = o->n;
	}
	return 0;
}

static int from_load(struct tr *t, struct tr_inst *inst, struct walk *w, const uint16_t *n_preds, const struct order *order, uint32_t load,
	bool several)
{
	uint32_t store;
	struct state s;
	memset(w, 0, sizeof(*w));
	w->t = t;
	w->inst = inst;
	w->n_preds = n_preds;
	w->order = order;
	w->load = load;
	w->several = several;
	w->bytes = ebpf_insn_bytes(tr_bpf(t, inst, load)->code);
	return find_store(w, &store, &s) ? commit(t, w, store, &s) : 0;
}

static int idiom_inst(struct tr *t, struct tr_inst *inst, struct walk *w)
{
	uint16_t *n_preds = tr_preds(t, inst);
	if (!n_preds)
		return -ENOMEM;
	struct order order;
	int err = find_order(t, inst, &order);
	for (int several = 0; several < 2; several++)
		for (uint32_t k = 0; !err && k < order.n; k++)
			if (tr_rmw_load(t, inst, order.at[k]))
				err = from_load(t, inst, w, n_preds, &order, order.at[k], several);
	return err;
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
