/* exec_sync.c - operations between the lanes of a warp, and barriers of a block.
 *
 * A .sync operation waits until every lane named in its member mask that has not exited arrives at
 * the same operation, from whatever path. It then runs in three steps: values are gathered from the
 * frame of each path, results are computed for all lanes at once, and scattered back.
 */
#include "softgpu/internal.h"

#include <string.h>

struct lanes {
	uint32_t mask;      /* lanes that take part */
	uint32_t group[32]; /* those each lane works with; it is one of them */
	uint64_t a[32], d[32];
	uint32_t b[32], c[32];
	uint32_t p; /* predicate results */
};

static bool is_vote(uint8_t op)
{
	return op >= SG_W_ALL && op <= SG_W_BALLOT;
}

static bool is_shfl(uint8_t op)
{
	return op <= SG_W_SHFL_IDX;
}

static void gather_a(
	const struct sg_warp *w, const struct sg_insn *in, uint32_t mask, struct lanes *l)
{
	const void *a = sg_op(w, in->a);
	if (is_vote(in->op)) {
		uint32_t p = *(const uint32_t *)a;
		if (in->flags & SG_NOT_A)
			p = ~p;
		SG_LANES(mask, l->a[i] = p >> i & 1;);
	} else if (in->width == 8) {
		SG_LANES(mask, l->a[i] = ((const uint64_t *)a)[i];);
	} else {
		SG_LANES(mask, l->a[i] = ((const uint32_t *)a)[i];);
	}
}

static void gather(
	const struct sg_warp *w, const struct sg_insn *in, uint32_t mask, struct lanes *l)
{
	if (in->op != SG_W_BAR && in->op != SG_W_ELECT)
		gather_a(w, in, mask, l);
	if (is_shfl(in->op)) {
		const uint32_t *b = sg_op(w, in->b), *c = sg_op(w, in->c);
		SG_LANES(mask, l->b[i] = b[i]; l->c[i] = c[i];);
	}
}

static void members(
	const struct sg_warp *w, const struct sg_insn *in, uint32_t mask, uint32_t *group)
{
	if (!(in->flags & SG_SYNC)) {
		SG_LANES(mask, group[i] = mask;);
		return;
	}
	const uint32_t *m = sg_op(w, in->e);
	SG_LANES(mask, group[i] = m[i] | 1u << i;);
}

static void scatter(
	struct sg_warp *w, const struct sg_insn *in, uint32_t mask, const struct lanes *l)
{
	bool pred = in->op == SG_W_ALL || in->op == SG_W_ANY || in->op == SG_W_UNI;
	if (in->op == SG_W_BAR)
		return;
	if (pred) {
		uint32_t *d = sg_op(w, in->d);
		*d = (*d & ~mask) | (l->p & mask);
		return;
	}
	uint32_t *d = sg_op(w, in->d);
	SG_LANES(mask, d[i] = (uint32_t)l->d[i];);
	if (in->has & 1) {
		uint32_t *p = sg_op(w, in->d2);
		*p = (*p & ~mask) | (l->p & mask);
	}
}

/* -- results ----------------------------------------------------------------- */

static void shfl_lane(uint8_t op, struct lanes *l, uint32_t i)
{
	uint32_t bval = l->b[i] & 31, clamp = l->c[i] & 31, seg = l->c[i] >> 8 & 31;
	uint32_t max = (i & seg) | (clamp & ~seg), min = i & seg;
	int32_t j;
	bool in_range;
	switch (op) {
	case SG_W_SHFL_UP:
		j = (int32_t)i - (int32_t)bval;
		in_range = j >= (int32_t)max;
		break;
	case SG_W_SHFL_DOWN:
		j = (int32_t)(i + bval);
		in_range = j <= (int32_t)max;
		break;
	case SG_W_SHFL_BFLY:
		j = (int32_t)(i ^ bval);
		in_range = j <= (int32_t)max;
		break;
	default:
		j = (int32_t)(min | (bval & ~seg));
		in_range = j <= (int32_t)max;
		break;
	}
	if (!in_range || j < 0 || j > 31)
		j = (int32_t)i;
	l->p |= (uint32_t)in_range << i;
	/* A lane that does not take part has no value: undefined in PTX, its own here. */
	l->d[i] = l->mask & l->group[i] & 1u << j ? l->a[j] : l->a[i];
}

/* min or max of f32; has bit 2: of magnitudes. */
static uint64_t redux_float(const struct sg_insn *in, const struct lanes *l, uint32_t group)
{
	float best = 0, v;
	bool any = false, nan = false;
	uint32_t u;
	for (uint32_t m = group; m; m &= m - 1) {
		u = (uint32_t)l->a[__builtin_ctz(m)];
		if (in->has & 4)
			u &= 0x7fffffff;
		memcpy(&v, &u, 4);
		nan |= v != v;
		if (v != v)
			continue;
		/* -0 is less than +0. */
		bool less = v < best || (v == best && u >> 31);
		if (!any || less == (in->sub == SG_A_MIN))
			best = v;
		any = true;
	}
	memcpy(&u, &best, 4);
	return !any || (nan && in->flags & SG_NAN) ? 0x7fffffff : u;
}

static uint64_t redux(const struct sg_insn *in, const struct lanes *l, uint32_t group)
{
	if (in->type == T_F32)
		return redux_float(in, l, group);
	uint32_t r = (uint32_t)l->a[__builtin_ctz(group)];
	for (uint32_t m = group & (group - 1); m; m &= m - 1) {
		uint32_t v = (uint32_t)l->a[__builtin_ctz(m)];
		bool is_less = in->type == T_S32 ? (int32_t)v < (int32_t)r : v < r;
		switch (in->sub) {
		case SG_A_ADD:
			r += v;
			break;
		case SG_A_MIN:
			r = is_less ? v : r;
			break;
		case SG_A_MAX:
			r = is_less ? r : v;
			break;
		case SG_A_AND:
			r &= v;
			break;
		case SG_A_OR:
			r |= v;
			break;
		default:
			r ^= v;
			break;
		}
	}
	return r;
}

/* Lanes of the group whose value is v. */
static uint32_t equal(const struct lanes *l, uint32_t group, uint64_t v)
{
	uint32_t r = 0;
	for (uint32_t m = group; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m);
		r |= (uint32_t)(l->a[i] == v) << i;
	}
	return r;
}

/* The result that is the same for every lane of a group, or of one lane. */
static void group_lane(const struct sg_insn *in, struct lanes *l, uint32_t i, uint32_t group)
{
	uint32_t yes = is_vote(in->op) ? equal(l, group, 1) : 0, bit = 1u << i;
	uint32_t same;
	switch (in->op) {
	case SG_W_ALL:
		l->p |= yes == group ? bit : 0;
		break;
	case SG_W_ANY:
		l->p |= yes ? bit : 0;
		break;
	case SG_W_UNI:
		l->p |= yes == group || !yes ? bit : 0;
		break;
	case SG_W_BALLOT:
		l->d[i] = yes;
		break;
	case SG_W_MATCH_ANY:
		l->d[i] = equal(l, group, l->a[i]);
		break;
	case SG_W_MATCH_ALL:
		same = equal(l, group, l->a[i]);
		l->d[i] = same == group ? group : 0;
		l->p |= same == group ? bit : 0;
		break;
	case SG_W_REDUX:
		l->d[i] = redux(in, l, group);
		break;
	case SG_W_ELECT:
		l->d[i] = (uint32_t)__builtin_ctz(group);
		l->p |= (uint32_t)__builtin_ctz(group) == i ? bit : 0;
		break;
	default:
		break;
	}
}

static void compute(const struct sg_insn *in, struct lanes *l)
{
	uint32_t last_group = 0, last = 0;
	l->p = 0;
	for (uint32_t m = l->mask; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m), group = l->group[i] & l->mask;
		bool uniform = in->op != SG_W_MATCH_ANY && in->op != SG_W_ELECT;
		if (is_shfl(in->op)) {
			shfl_lane(in->op, l, i);
		} else if (uniform && group == last_group) {
			l->d[i] = l->d[last];
			l->p |= (l->p >> last & 1) << i;
		} else {
			group_lane(in, l, i, group);
			last_group = group;
			last = i;
		}
	}
}

/* -- waiting ----------------------------------------------------------------- */

static bool same_operation(const struct sg_insn *a, const struct sg_insn *b)
{
	const uint32_t kind = SG_SYNC;
	return a->fn == b->fn && a->op == b->op && a->sub == b->sub && a->type == b->type &&
	       (a->flags & kind) == (b->flags & kind);
}

/* Lanes of `mask` whose members are all in it, dropping lanes until that holds. */
static uint32_t complete_lanes(const uint32_t *group, uint32_t live, uint32_t mask)
{
	for (bool changed = true; changed && mask;) {
		changed = false;
		for (uint32_t m = mask; m; m &= m - 1) {
			uint32_t i = (uint32_t)__builtin_ctz(m);
			if (group[i] & live & ~mask) {
				mask &= ~(1u << i);
				changed = true;
			}
		}
	}
	return mask;
}

/* Runs the operation of waiting path number `first` together with the paths that wait for the same,
 * as far as its member masks are complete. */
static bool try_group(struct sg_warp *w, uint32_t first)
{
	const struct sg_insn *in = sg_path_insn(&w->paths[first]);
	struct lanes l = { 0 };
	uint32_t take[32], n_take = 0, n_paths = w->n_paths;
	uint8_t *regs = w->base[0], *consts = w->base[1];

	for (uint32_t i = first; i < n_paths; i++) {
		struct sg_path *p = &w->paths[i];
		if (p->state != SG_WAIT_WARP || !p->mask || !same_operation(in, sg_path_insn(p)))
			continue;
		sg_use(w, p->frame);
		members(w, sg_path_insn(p), p->mask, l.group);
		l.mask |= p->mask;
		take[n_take++] = i;
	}
	l.mask = complete_lanes(l.group, w->live, l.mask);
	for (uint32_t k = 0; k < n_take && l.mask; k++) {
		struct sg_path *p = &w->paths[take[k]];
		sg_use(w, p->frame);
		gather(w, sg_path_insn(p), p->mask & l.mask, &l);
	}
	if (l.mask)
		compute(in, &l);
	if (w->check && l.mask)
		sg_check_warp_sync(w, l.mask);
	for (uint32_t k = 0; k < n_take && l.mask; k++) {
		struct sg_path *p = &w->paths[take[k]];
		uint32_t done = p->mask & l.mask;
		if (!done)
			continue;
		sg_use(w, p->frame);
		scatter(w, sg_path_insn(p), done, &l);
		if (done != p->mask) {
			struct sg_path *rest = &w->paths[w->n_paths++];
			*rest = *p;
			rest->mask &= ~done;
			p->mask = done;
		}
		p->pc++;
		p->state = SG_READY;
	}
	w->base[0] = regs;
	w->base[1] = consts;
	return l.mask != 0;
}

void sg_warp_sync_check(struct sg_warp *w)
{
	for (uint32_t i = 0; i < w->n_paths; i++)
		if (w->paths[i].state == SG_WAIT_WARP && w->paths[i].mask &&
			sg_path_insn(&w->paths[i])->fn == sg_warp_op)
			try_group(w, i);
	sg_aligned_check(w);
}

SG_HANDLER(sg_warp_op)
{
	struct lanes l;
	l.mask = mask;
	members(w, in, mask, l.group);
	uint32_t need = 0;
	for (uint32_t m = mask; m; m &= m - 1)
		need |= l.group[__builtin_ctz(m)];
	if (!(need & w->live & ~mask)) {
		gather(w, in, mask, &l);
		compute(in, &l);
		if (w->check)
			sg_check_warp_sync(w, mask);
		scatter(w, in, mask, &l);
		return;
	}
	sg_wait(w, mask, SG_WAIT_WARP);
	sg_warp_sync_check(w);
}

SG_HANDLER(sg_activemask)
{
	uint32_t *d = sg_op(w, in->d);
	SG_LANES(mask, d[i] = mask;);
}

/* -- block barriers ---------------------------------------------------------- */

static void release(struct sg_block *b, uint32_t id)
{
	struct sg_barrier *bar = &b->bars[id];
	if (b->check)
		sg_check_bar_release(b, id);
	for (uint32_t i = 0; i < b->n_warps; i++) {
		struct sg_warp *w = &b->warps[i];
		for (uint32_t j = 0; j < w->n_paths; j++) {
			struct sg_path *p = &w->paths[j];
			if (p->state != SG_WAIT_BAR || p->bar != id || !p->mask)
				continue;
			const struct sg_insn *in = sg_path_insn(p);
			p->bar_value = in->op == SG_BAR_POPC  ? bar->popc
				       : in->op == SG_BAR_AND ? (bar->all ? SG_FULL : 0)
							      : (bar->any ? SG_FULL : 0);
			p->bar_done = true;
			p->state = SG_READY;
		}
	}
	*bar = (struct sg_barrier){ .all = true };
}

static void check(struct sg_block *b, uint32_t id)
{
	struct sg_barrier *bar = &b->bars[id];
	uint32_t need = bar->expected ? bar->expected : 32 * b->live_warps;
	if (bar->used && bar->arrived && bar->arrived >= need)
		release(b, id);
}

/* A warp counts as 32 threads once all its lanes that have not exited arrived. */
static void count_warp(struct sg_warp *w, uint32_t id)
{
	if (!w->bar_partial[id] || w->live & ~w->bar_partial[id])
		return;
	w->bar_partial[id] = 0;
	w->block->bars[id].arrived += 32;
}

void sg_bar_recheck(struct sg_warp *w)
{
	for (uint32_t id = 0; id < 16; id++) {
		if (!w->block->bars[id].used)
			continue;
		count_warp(w, id);
		check(w->block, id);
	}
}

static uint32_t uniform(const struct sg_warp *w, uint32_t op, uint32_t mask)
{
	return ((const uint32_t *)sg_op(w, op))[__builtin_ctz(mask)];
}

static void reduce(
	struct sg_warp *w, const struct sg_insn *in, struct sg_barrier *bar, uint32_t mask)
{
	if (in->op < SG_BAR_POPC)
		return;
	uint32_t p = *(const uint32_t *)sg_op(w, in->c);
	if (in->flags & SG_NOT_C)
		p = ~p;
	bar->popc += (uint32_t)__builtin_popcount(p & mask);
	bar->any |= (p & mask) != 0;
	bar->all &= (p & mask) == mask;
}

static void finish(struct sg_warp *w, const struct sg_insn *in, uint32_t mask)
{
	struct sg_path *p = &w->paths[w->cur];
	uint32_t *d = sg_op(w, in->d);
	p->bar_done = false;
	if (in->op == SG_BAR_POPC) {
		uint32_t v = p->bar_value;
		SG_LANES(mask, d[i] = v;);
	} else if (in->op > SG_BAR_POPC) {
		*d = (*d & ~mask) | (p->bar_value & mask);
	}
	/* Paths that were kept apart while they had results to fetch may join again. */
	if (w->n_paths > 1)
		sg_resched(w);
}

/* a: barrier number; b: thread count (has bit 0); c: predicate of bar.red. */
SG_HANDLER(sg_bar)
{
	if (w->paths[w->cur].bar_done) {
		finish(w, in, mask);
		return;
	}
	uint32_t id = uniform(w, in->a, mask), count = in->has & 1 ? uniform(w, in->b, mask) : 0;
	if (id > 15 || count % 32 || count > 32 * w->block->n_warps) {
		sg_fault(w, in, CUDA_ERROR_LAUNCH_FAILED, __builtin_ctz(mask),
			"barrier %u with %u threads is not possible in a block of %u warps", id,
			count, w->block->n_warps);
		return;
	}
	struct sg_barrier *bar = &w->block->bars[id];
	if (!bar->used)
		*bar = (struct sg_barrier){ .all = true, .used = true };
	bar->used = true;
	bar->expected = count;
	reduce(w, in, bar, mask);
	w->bar_partial[id] |= mask;
	if (w->check)
		sg_check_bar_arrive(w, id, mask);
	if (in->op != SG_BAR_ARRIVE)
		sg_wait(w, mask, SG_WAIT_BAR)->bar = (uint8_t)id;
	count_warp(w, id);
	check(w->block, id);
}

/* -- cluster barrier --------------------------------------------------------- */

/* sub: 1 arrive, 2 wait. All threads of the cluster that have not exited arrive. */
SG_HANDLER(sg_cluster_bar)
{
	struct sg_cluster *c = w->block->cluster;
	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	if (in->sub == 1) {
		c->arrived += (uint32_t)__builtin_popcount(mask);
		SG_LANES(mask, w->cluster_phase[i] = c->phase;);
		if (c->arrived >= c->threads) {
			c->arrived = 0;
			c->phase++;
		}
	}
	bool open = c->phase != w->cluster_phase[__builtin_ctz(mask)];
	if (w->check && (in->sub == 1 || open))
		sg_check_cluster(w, mask, in->sub == 2);
	pthread_mutex_unlock(&c->lock);
	if (in->sub == 2 && !open) {
		/* Polled: the lanes come back to this instruction after others had their turn. */
		if (mask != w->mask)
			sg_split(w, w->mask & ~mask, w->pc);
		w->pc--;
		w->fuel = 0;
		sg_spin(w, 64);
		sg_resched(w);
	}
}
