/* ring.c - ring buffers (map/layout.h): reserving, committing, and the copy loop.
 *
 * Lanes that come here together and reserve records of the same size do so with one atomic of the
 * lowest of them, which adds to the head of a bin of this multiprocessor; the others get their
 * place, which says the bin too, by a shuffle in the same basic block as the activemask. Where the
 * bin is closed they try others, a few times, and then count what they drop. Nobody waits.
 *
 * Nor does anybody wait for what was stored: a fence at each record costs more than the rest. Bytes
 * are counted as committed right behind their stores, and the agent leaves them alone until no
 * store can be on its way any more (map/layout.h).
 *
 * The bin to try is a hint in a line that only this multiprocessor writes: it may come from
 * the L1 cache, and a wrong one costs one atomic. Where all that were tried were closed it says so,
 * and of what comes then most is dropped without a look at a bin.
 */
#include "translate/ring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each try is a way to the second-level cache and back, and where a ring is full all warps make all of them at once: with 16, that was a
 * quarter of a short kernel. Those who look find what so few tries miss. */
enum { TRIES = 6, LOOK_TRIES = 2, LOOK_EVERY = 16, EINVAL_ = -22, EAGAIN_ = -11 };

const char *tr_func_add(struct tr *t, const char *name, const struct buf *text)
{
	for (size_t k = 0; k < t->n_helper_funcs; k++)
		if (!strcmp(t->helper_funcs[k].name, name))
			return t->helper_funcs[k].name;
	struct ebpf_fragment_func *all = arena_grow(
		t->arena, t->helper_funcs, t->n_helper_funcs, &t->cap_helper_funcs, sizeof(*all));
	char *own_name = arena_strdup(t->arena, name),
	     *own_text = arena_strndup(t->arena, text->data, text->len);
	if (!all || !own_name || !own_text) {
		t->body.failed = true;
		return "";
	}
	t->helper_funcs = all;
	all[t->n_helper_funcs++] = (struct ebpf_fragment_func){ own_name, own_text };
	return own_name;
}

/* -- places ------------------------------------------------------------------ */

struct tr_name tr_wide(struct tr *t, struct tr_name index, uint32_t stride, struct tr_name base)
{
	struct tr_name at = tr_t64(t);
	tr_emit(t, "mad.wide.u32 %s, %s, %u, %s;", at.s, index.s, stride, base.s);
	return at;
}

/* base + sms * stride, of which ptxas makes more where it is one instruction here. */
static struct tr_name behind(struct tr *t, const struct tr_ring *g, uint32_t stride)
{
	struct tr_name at = tr_t64(t);
	tr_emit(t, "mul.wide.u32 %s, %s, %u;", at.s, g->sms.s, stride);
	tr_emit(t, "add.s64 %s, %s, %s;", at.s, at.s, g->base.s);
	return at;
}

struct tr_ring tr_ring_of(struct tr *t, const struct ebpf_map *m)
{
	struct tr_ring g = { .bin_bytes = map_ring_bin_bytes(m->max_entries), .sms = tr_t32(t) };
	struct tr_name sms = tr_table(t, EBPF_TABLE_SMS);
	g.base = tr_map_base(t, m);
	tr_emit(t, "cvt.u32.u64 %s, %s;", g.sms.s, sms.s);
	g.counts = behind(t, &g, MAP_RING_LINE);
	return g;
}

struct tr_name tr_ring_heads(struct tr *t, const struct tr_ring *g)
{
	return behind(t, g, MAP_RING_LINE + MAP_RING_BINS * MAP_RING_COUNT_LINE);
}

struct tr_name tr_ring_data(struct tr *t, const struct tr_ring *g)
{
	return behind(t, g, MAP_RING_LINE + 2 * MAP_RING_BINS * MAP_RING_COUNT_LINE);
}

struct tr_hint tr_ring_hint(struct tr *t, const struct tr_ring *g)
{
	struct tr_hint h = { .word = tr_t32(t), .home = tr_t32(t), .bins = tr_t32(t), .bin = tr_t32(t), .full = tr_pred(t) };
	struct tr_name last = tr_t32(t), sm = tr_t32(t);
	tr_emit(t, "sub.u32 %s, %s, 1;", last.s, g->sms.s);
	tr_emit(t, "mov.u32 %s, %%smid;", sm.s);
	tr_emit(t, "min.u32 %s, %s, %s;", sm.s, sm.s, last.s);
	h.line = tr_wide(t, sm, MAP_RING_LINE, g->base);
	tr_emit(t, "ld.global.u32 %s, [%s+%d];", h.word.s, h.line.s, MAP_IMAGE_HEADER);
	tr_emit(t, "mul.lo.u32 %s, %s, %d;", h.home.s, sm.s, MAP_RING_BINS);
	tr_emit(t, "mul.lo.u32 %s, %s, %d;", h.bins.s, g->sms.s, MAP_RING_BINS);
	tr_emit(t, "xor.b32 %s, %s, %s;", h.bin.s, h.home.s, h.word.s);
	/* MAP_RING_FULL, or a damaged word: no such bin. */
	tr_emit(t, "setp.ge.u32 %s, %s, %s;", h.full.s, h.bin.s, h.bins.s);
	return h;
}

void tr_ring_keep_hint(
	struct tr *t, const struct tr_hint *h, const struct tr_name *leads, bool full)
{
	struct tr_name p = tr_pred(t), word = tr_t32(t);
	if (full)
		tr_emit(t, "mov.u32 %s, 0x%x;", word.s, MAP_RING_FULL);
	else
		tr_emit(t, "xor.b32 %s, %s, %s;", word.s, h->bin.s, h->home.s);
	if (leads)
		tr_emit(t, "setp.ne.and.u32 %s, %s, %s, %s;", p.s, word.s, h->word.s, leads->s);
	else
		tr_emit(t, "setp.ne.u32 %s, %s, %s;", p.s, word.s, h->word.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, h->line.s, MAP_IMAGE_HEADER, word.s);
}

/* Any bin. */
static void choose_any(struct tr *t, const struct tr_hint *h, struct tr_name tries, struct tr_name to)
{
	struct tr_name n = tr_t32(t);
	tr_emit(t, "mov.u32 %s, %%clock;", n.s);
	tr_emit(t, "mad.lo.u32 %s, %s, 0x9e3779b9, %s;", n.s, tries.s, n.s);
	tr_emit(t, "mul.lo.u32 %s, %s, 0x85ebca6b;", n.s, n.s);
	tr_emit(t, "mul.hi.u32 %s, %s, %s;", to.s, n.s, h->bins.s);
}

/* The multiprocessor's own bins one after the other, the last first, less the one that the hint named; then any. tries: that are left. */
static void choose_next(struct tr *t, const struct tr_hint *h, struct tr_name tries)
{
	struct tr_name k = tr_t32(t), own = tr_t32(t), p = tr_pred(t);
	choose_any(t, h, tries, h->bin);
	tr_emit(t, "sub.u32 %s, %s, %d;", k.s, tries.s, TRIES - MAP_RING_BINS);
	tr_emit(t, "setp.lt.u32 %s, %s, %d;", p.s, k.s, MAP_RING_BINS);
	tr_emit(t, "setp.ne.and.u32 %s, %s, %s, %s;", p.s, k.s, h->word.s, p.s);
	tr_emit(t, "add.u32 %s, %s, %s;", own.s, h->home.s, k.s);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", h->bin.s, own.s, h->bin.s, p.s);
}

/* Lanes of the group wait for each other: what each has stored comes before what its leader does
 * next. */
void tr_ring_together(struct tr *t, const struct tr_group *l)
{
	tr_emit(t, "bar.warp.sync %s;", l->mask.s);
}

/* -- warps ------------------------------------------------------------------- */

void tr_lowest(struct tr *t, struct tr_name lane, struct tr_name mask)
{
	tr_emit(t, "brev.b32 %s, %s;", lane.s, mask.s);
	tr_emit(t, "clz.b32 %s, %s;", lane.s, lane.s);
}

struct tr_name tr_mask_here(struct tr *t)
{
	struct tr_name mask = tr_t32(t), all = tr_pred(t);
	buf_printf(&t->body,
		"#if ptx 6.2\n\tactivemask.b32 %s;\n#else\n\tsetp.eq.u32 %s, 0, 0;\n"
		"\tvote.ballot.b32 %s, %s;\n#endif\n",
		mask.s, all.s, mask.s, all.s);
	return mask;
}

struct tr_group tr_lanes_here(struct tr *t)
{
	struct tr_group l = { .mask = tr_mask_here(t),
		.first = tr_t32(t),
		.rank = tr_t32(t),
		.n = tr_t32(t),
		.leads = tr_pred(t) };
	tr_lowest(t, l.first, l.mask);
	tr_emit(t, "mov.u32 %s, %%lanemask_lt;", l.rank.s);
	tr_emit(t, "and.b32 %s, %s, %s;", l.rank.s, l.rank.s, l.mask.s);
	tr_emit(t, "popc.b32 %s, %s;", l.rank.s, l.rank.s);
	tr_emit(t, "popc.b32 %s, %s;", l.n.s, l.mask.s);
	tr_emit(t, "setp.eq.u32 %s, %s, 0;", l.leads.s, l.rank.s);
	return l;
}

void tr_from_lane(struct tr *t, const struct tr_group *l, struct tr_name to, struct tr_name from,
	struct tr_name lane)
{
	tr_emit(t, "shfl.sync.idx.b32 %s, %s, %s, 31, %s;", to.s, from.s, lane.s, l->mask.s);
}

/* -- reserving --------------------------------------------------------------- */

enum shape {
	SHAPE_SHARED, /* one group for all lanes */
	SHAPE_OWN,    /* a group for each, all with one atomic */
	SHAPE_ALONE,  /* each lane by itself: sizes differ, or 32 records are a large part of a bin
		       */
};

static uint64_t own_bytes(uint64_t bytes)
{
	return map_ring_group_bytes(bytes, 1);
}

static enum shape shape_of(const struct ebpf_map *m, bool constant, uint64_t bytes, bool own)
{
	if (!constant || 32 * own_bytes(bytes) > map_ring_bin_bytes(m->max_entries) / 4)
		return SHAPE_ALONE;
	return own ? SHAPE_OWN : SHAPE_SHARED;
}

bool tr_ring_shares(const struct ebpf_map *m, uint64_t bytes)
{
	return shape_of(m, true, bytes, false) == SHAPE_SHARED;
}

/* A reservation under way. */
struct reserve {
	struct tr_ring g;
	struct tr_hint h;
	enum shape shape;
	uint64_t each;         /* SHARED, OWN: bytes a lane: of its record, of its group */
	uint64_t bytes;        /* SHARED, OWN: of a record */
	struct tr_name total;  /* .b32: bytes that are asked for at once */
	struct tr_name length; /* ALONE: bytes of the record, .b64 or a constant */
	struct tr_place at;
	struct tr_group l;
};

static const char *guard(const struct reserve *v, char text[48])
{
	if (v->shape == SHAPE_ALONE)
		return "";
	snprintf(text, 48, "@%s ", v->l.leads.s);
	return text;
}

static struct tr_name line_at(struct tr *t, const struct tr_place *a, struct tr_name lines)
{
	struct tr_name at = tr_t64(t);
	tr_emit(t, "cvt.u64.u32 %s, %s;", at.s, a->line.s);
	tr_emit(t, "add.s64 %s, %s, %s;", at.s, at.s, lines.s);
	return at;
}

struct tr_place tr_ring_ask(struct tr *t, const struct tr_ring *g, struct tr_name bin,
	struct tr_name total, const struct tr_group *l, const struct tr_name *asks)
{
	struct tr_place a = { .line = tr_t32(t), .old = tr_t64(t), .slot = tr_t32(t), .got = tr_pred(t) };
	char who[48] = "";
	struct tr_name add = tr_t64(t), p = tr_pred(t), pos = tr_t32(t), high = tr_t32(t), most = tr_t32(t);
	uint32_t lines = g->bin_bytes / MAP_RING_GROUP;
	/* As ptxas does not see that all lanes mean one address: it would elect one of them once more (tr_nudge). */
	tr_emit(t, "mad.lo.u32 %s, %s, %d, %s;", a.line.s, bin.s, MAP_RING_COUNT_LINE, l ? l->rank.s : "0");
	struct tr_name word = line_at(t, &a, tr_ring_heads(t, g));
	tr_emit(t, "cvt.u64.u32 %s, %s;", add.s, total.s);
	if (asks)
		snprintf(who, sizeof(who), "@%s ", asks->s);
	tr_emit(t, "%satom.global.add.u64 %s, [%s+%d], %s;", who, a.old.s, word.s, MAP_IMAGE_HEADER, add.s);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", pos.s, high.s, a.old.s);
	tr_emit(t, "sub.u32 %s, %u, %s;", most.s, g->bin_bytes, total.s);
	tr_emit(t, asks ? "setp.le.and.u32 %s, %s, %s, %s;" : "setp.le.u32 %s, %s, %s;", p.s, pos.s, most.s, asks ? asks->s : "");
	tr_emit(t, "setp.eq.and.u32 %s, %s, 0, %s;", p.s, high.s, p.s);
	tr_emit(t, "shr.u32 %s, %s, 4;", pos.s, pos.s);
	tr_emit(t, "mad.lo.u32 %s, %s, %u, %s;", a.slot.s, bin.s, lines, pos.s);
	tr_emit(t, "selp.b32 %s, %s, 0x%x, %s;", a.slot.s, a.slot.s, TR_NO_SLOT, p.s);
	if (l)
		tr_from_lane(t, l, a.slot, a.slot, l->first);
	tr_emit(t, "setp.ne.u32 %s, %s, 0x%x;", a.got.s, a.slot.s, TR_NO_SLOT);
	return a;
}

struct tr_name tr_ring_at(struct tr *t, const struct tr_ring *g, const struct tr_place *a)
{
	return tr_wide(t, a->slot, MAP_RING_GROUP, tr_ring_data(t, g));
}

struct tr_name tr_ring_count(struct tr *t, const struct tr_ring *g, const struct tr_place *a)
{
	struct tr_name bin = tr_t32(t);
	tr_emit(t, "shr.u32 %s, %s, %d;", bin.s, a->slot.s,
		__builtin_ctz(g->bin_bytes / MAP_RING_GROUP));
	return tr_wide(t, bin, MAP_RING_COUNT_LINE, g->counts);
}

void tr_ring_commit_asked(
	struct tr *t, const struct tr_ring *g, const char *pred, const struct tr_place *a, struct tr_name total)
{
	struct tr_name bytes = tr_t64(t);
	tr_emit(t, "cvt.u64.u32 %s, %s;", bytes.s, total.s);
	tr_ring_add(t, pred, line_at(t, a, g->counts), bytes);
}

void tr_ring_add(struct tr *t, const char *pred, struct tr_name count, struct tr_name bytes)
{
	tr_emit(t, "%sred.global.add.u64 [%s+%d], %s;", pred, count.s, MAP_IMAGE_HEADER, bytes.s);
}

void tr_ring_close(struct tr *t, const struct tr_ring *g, struct tr_name bin,
	const struct tr_place *a, const char *and)
{
	struct tr_name p = tr_pred(t), rest = tr_t64(t), at = tr_t64(t), head = tr_t32(t);
	char pred[48];
	tr_emit(t, "setp.lt.u64 %s, %s, %u;", p.s, a->old.s, g->bin_bytes);
	if (and)
		tr_emit(t, "and.pred %s, %s, %s;", p.s, p.s, and);
	snprintf(pred, sizeof(pred), "@%s ", p.s);
	struct tr_name data = tr_wide(t, bin, g->bin_bytes, tr_ring_data(t, g));
	tr_emit(t, "add.s64 %s, %s, %s;", at.s, data.s, a->old.s);
	tr_emit(t, "sub.s64 %s, %u, %s;", rest.s, g->bin_bytes, a->old.s);
	tr_emit(t, "cvt.u32.u64 %s, %s;", head.s, rest.s);
	tr_emit(t, "or.b32 %s, %s, 0x%x;", head.s, head.s, MAP_RING_FILL);
	tr_emit(t, "%sst.global.u32 [%s+%d], %s;", pred, at.s, MAP_IMAGE_HEADER, head.s);
	tr_ring_add(t, pred, tr_wide(t, bin, MAP_RING_COUNT_LINE, g->counts), rest);
}

static void ask(struct tr *t, struct reserve *v)
{
	bool alone = v->shape == SHAPE_ALONE;
	if (!alone) {
		v->l = tr_lanes_here(t);
		tr_emit(t, "mad.lo.u32 %s, %s, %llu, %d;", v->total.s, v->l.n.s,
			(unsigned long long)v->each,
			v->shape == SHAPE_OWN ? 0 : MAP_RING_GROUP + 15);
		if (v->shape == SHAPE_SHARED)
			tr_emit(t, "and.b32 %s, %s, 0xfffffff0;", v->total.s, v->total.s);
	}
	v->at = tr_ring_ask(t, &v->g, v->h.bin, v->total, alone ? NULL : &v->l, alone ? NULL : &v->l.leads);
}

struct tr_group_head tr_ring_group_head(struct tr *t, struct tr_name n, uint64_t bytes)
{
	struct tr_group_head h = { tr_t64(t), tr_t64(t) };
	struct tr_name head = tr_t32(t), present = tr_t32(t);
	tr_emit(t, "mad.lo.u32 %s, %s, 0x%x, 0x%x;", head.s, n.s, 1u << MAP_RING_LANES_SHIFT,
		(uint32_t)bytes - (1u << MAP_RING_LANES_SHIFT));
	tr_emit(t, "shl.b32 %s, 1, %s;", present.s, n.s); /* 32 gives 0 */
	tr_emit(t, "sub.u32 %s, %s, 1;", present.s, present.s);
	tr_emit(t, "mov.b64 %s, {%s, %s};", h.word.s, head.s, present.s);
	tr_emit(t, "mov.u64 %s, %%globaltimer;", h.time.s);
	return h;
}

void tr_ring_put_head(
	struct tr *t, const struct tr_group_head *h, const char *pred, struct tr_name at)
{
	tr_emit(t, "%sst.global.v2.u64 [%s+%d], {%s, %s};", pred, at.s, MAP_IMAGE_HEADER, h->word.s,
		h->time.s);
}

/* What a group of records of all lanes begins with; `who` writes it. */
static void shared_head(struct tr *t, const struct reserve *v, struct tr_name at, const char *who)
{
	struct tr_group_head h = tr_ring_group_head(t, v->l.n, v->bytes);
	tr_ring_put_head(t, &h, who, at);
}

/* What a group of one record begins with. */
static void own_head(struct tr *t, const struct reserve *v, struct tr_name at)
{
	struct tr_name head = tr_t32(t), both = tr_t64(t), time = tr_t64(t);
	if (v->shape == SHAPE_OWN)
		tr_emit(t, "mov.u32 %s, %llu;", head.s, (unsigned long long)v->bytes);
	else if (v->length.s[0] == '%')
		tr_emit(t, "cvt.u32.u64 %s, %s;", head.s, v->length.s);
	else
		tr_emit(t, "mov.u32 %s, %s;", head.s, v->length.s);
	tr_emit(t, "mov.b64 %s, {%s, 1};", both.s, head.s);
	tr_emit(t, "mov.u64 %s, %%globaltimer;", time.s);
	tr_emit(t, "st.global.v2.u64 [%s+%d], {%s, %s};", at.s, MAP_IMAGE_HEADER, both.s, time.s);
}

/* The group's head; gives the record's address. */
static void open_group(struct tr *t, const struct reserve *v, struct tr_name count,
	struct tr_name record)
{
	struct tr_name at = tr_ring_at(t, &v->g, &v->at);
	char pred[48];
	if (v->shape == SHAPE_SHARED) {
		/* The bytes of the group itself are its leader's to commit. */
		struct tr_name rest = tr_t32(t), rest64 = tr_t64(t);
		shared_head(t, v, at, guard(v, pred));
		tr_emit(t, "mul.lo.u32 %s, %s, %llu;", rest.s, v->l.n.s,
			(unsigned long long)v->each);
		tr_emit(t, "sub.u32 %s, %s, %s;", rest.s, v->total.s, rest.s);
		tr_emit(t, "cvt.u64.u32 %s, %s;", rest64.s, rest.s);
		tr_ring_add(t, guard(v, pred), count, rest64);
	}
	if (v->shape != SHAPE_ALONE)
		at = tr_wide(t, v->l.rank, (uint32_t)v->each, at);
	if (v->shape != SHAPE_SHARED)
		own_head(t, v, at);
	tr_emit(t, "add.s64 %s, %s, %d;", record.s, at.s, MAP_IMAGE_HEADER + MAP_RING_GROUP);
}

void tr_ring_drop(
	struct tr *t, const struct tr_hint *h, bool one, const struct tr_name *times)
{
	struct tr_group l = tr_lanes_here(t);
	struct tr_name n = tr_imm(1), product = tr_t32(t);
	if (!one && times) {
		tr_emit(t, "mul.lo.u32 %s, %s, %s;", product.s, l.n.s, times->s);
		times = &product;
	} else if (!one) {
		times = &l.n;
	}
	if (times) {
		n = tr_t64(t);
		tr_emit(t, "cvt.u64.u32 %s, %s;", n.s, times->s);
	}
	tr_emit(t, "@%s red.global.add.u64 [%s+%d], %s;", l.leads.s, tr_nudge(t, h->line, l.rank).s,
		MAP_IMAGE_HEADER + MAP_RING_LOST, n.s);
}

struct tr_ways tr_ring_begin(struct tr *t, const struct tr_hint *h)
{
	struct tr_ways w = { .again = tr_label(t), .dropped = tr_label(t), .done = tr_label(t), .look = tr_label(t), .tries = tr_t32(t) };
	tr_emit(t, "mov.u32 %s, %d;", w.tries.s, TRIES);
	tr_emit(t, "@%s bra %s;", h->full.s, w.look.s);
	buf_printf(&t->body, "%s:\n", w.again.s);
	return w;
}

struct tr_name tr_ring_as_hinted(struct tr *t, const struct tr_ways *w)
{
	struct tr_name p = tr_pred(t);
	tr_emit(t, "setp.eq.u32 %s, %s, %d;", p.s, w->tries.s, TRIES);
	return p;
}

struct tr_name tr_ring_trusts(struct tr *t)
{
	struct tr_name p = tr_pred(t), clock = tr_t32(t);
	tr_emit(t, "mov.u32 %s, %%clock;", clock.s);
	tr_emit(t, "and.b32 %s, %s, %d;", clock.s, clock.s, LOOK_EVERY - 1);
	tr_emit(t, "setp.ne.u32 %s, %s, 0;", p.s, clock.s);
	return p;
}

void tr_ring_next(struct tr *t, const struct tr_ring *g, const struct tr_hint *h,
	const struct tr_place *at, const struct tr_name *leads, const struct tr_ways *w, bool one,
	const struct tr_name *times)
{
	struct tr_name p = tr_pred(t);
	tr_ring_close(t, g, h->bin, at, leads ? leads->s : NULL);
	tr_emit(t, "sub.u32 %s, %s, 1;", w->tries.s, w->tries.s);
	choose_next(t, h, w->tries);
	tr_emit(t, "setp.ne.u32 %s, %s, 0;", p.s, w->tries.s);
	tr_emit(t, "@%s bra %s;", p.s, w->again.s);
	tr_ring_keep_hint(t, h, leads, true);
	if (one && leads) { /* who asked for it, whoever is here now */
		tr_emit(t, "@%s red.global.add.u64 [%s+%d], 1;", leads->s, h->line.s, MAP_IMAGE_HEADER + MAP_RING_LOST);
		tr_emit(t, "bra %s;", w->done.s);
	}
	buf_printf(&t->body, "%s:\n", w->dropped.s);
	tr_ring_drop(t, h, one, times);
	tr_emit(t, "bra %s;", w->done.s);
	buf_printf(&t->body, "%s:\n", w->look.s);
	tr_emit(t, "@%s bra %s;", tr_ring_trusts(t).s, w->dropped.s);
	tr_emit(t, "mov.u32 %s, %d;", w->tries.s, LOOK_TRIES);
	choose_any(t, h, w->tries, h->bin);
	tr_emit(t, "bra %s;", w->again.s);
}

static void reserve_loop(struct tr *t, struct reserve *v, struct tr_ring_record *r)
{
	struct tr_name got = tr_label(t);
	struct tr_ways w = tr_ring_begin(t, &v->h);
	ask(t, v);
	tr_emit(t, "@%s bra %s;", v->at.got.s, got.s);
	tr_ring_next(t, &v->g, &v->h, &v->at, v->shape == SHAPE_ALONE ? NULL : &v->l.leads,
		&w, false, NULL);
	buf_printf(&t->body, "%s:\n", got.s);
	tr_ring_keep_hint(t, &v->h, v->shape == SHAPE_ALONE ? NULL : &v->l.leads, false);
	r->count = tr_ring_count(t, &v->g, &v->at);
	open_group(t, v, r->count, r->at);
	buf_printf(&t->body, "%s:\n", w.done.s);
}

/* Always NULL, but the proof of what is written sees a pointer that the program checks. */
static void no_record(struct tr *t, struct tr_name base, struct tr_name to)
{
	struct tr_name p = tr_pred(t);
	tr_emit(t, "setp.ne.u64 %s, %s, %s;", p.s, base.s, base.s);
	tr_emit(t, "selp.b64 %s, %s, 0, %s;", to.s, base.s, p.s);
}

struct tr_ring_record tr_ring_reserve(
	struct tr *t, const struct ebpf_map *m, struct tr_name len, bool own)
{
	bool constant = len.s[0] != '%';
	uint64_t bytes = constant ? strtoull(len.s, NULL, 0) : 0;
	struct tr_ring_record r = { .at = tr_t64(t) };
	struct reserve v = { .g = tr_ring_of(t, m),
		.shape = shape_of(m, constant, bytes, own),
		.bytes = bytes,
		.total = tr_t32(t),
		.length = len };
	v.h = tr_ring_hint(t, &v.g);
	v.each = v.shape == SHAPE_OWN ? own_bytes(bytes) : map_round_up(bytes, 8);
	r.grouped = v.shape != SHAPE_ALONE;
	r.bytes = tr_imm((int64_t)(v.shape == SHAPE_SHARED ? v.each : own_bytes(bytes)));
	tr_emit(t, "mov.u64 %s, 0;", r.at.s);
	struct tr_name fits = tr_label(t), done = tr_label(t), p = tr_pred(t);
	if (constant && own_bytes(bytes) > v.g.bin_bytes) {
		no_record(t, v.g.base, r.at);
		tr_ring_drop(t, &v.h, false, NULL);
		r.count = v.g.counts;
		return r;
	}
	if (!constant) { /* a record that fits no bin must not close them all */
		r.bytes = tr_t64(t);
		tr_emit(t, "add.s64 %s, %s, %d;", r.bytes.s, len.s, MAP_RING_GROUP + 15);
		tr_emit(t, "and.b64 %s, %s, 0xfffffffffffffff0;", r.bytes.s, r.bytes.s);
		tr_emit(t, "setp.le.u64 %s, %s, %u;", p.s, r.bytes.s, v.g.bin_bytes);
		tr_emit(t, "@%s bra %s;", p.s, fits.s);
		tr_ring_drop(t, &v.h, false, NULL);
		tr_emit(t, "bra %s;", done.s);
		buf_printf(&t->body, "%s:\n", fits.s);
		tr_emit(t, "cvt.u32.u64 %s, %s;", v.total.s, r.bytes.s);
	} else if (v.shape == SHAPE_ALONE) {
		tr_emit(t, "mov.u32 %s, %s;", v.total.s, r.bytes.s);
	}
	reserve_loop(t, &v, &r);
	if (!constant)
		buf_printf(&t->body, "%s:\n", done.s);
	return r;
}

/* -- committing -------------------------------------------------------------- */

/* Lanes whose records lie in the same bin as the lowest one's add them up. */
void tr_ring_commit(struct tr *t, const struct tr_ring_record *r)
{
	if (!r->grouped) {
		tr_ring_add(t, "", r->count, r->bytes);
		return;
	}
	struct tr_name mine = tr_t32(t), theirs = tr_t32(t), p = tr_pred(t), n = tr_t32(t),
		       sum = tr_t64(t), one = tr_t64(t);
	char pred[48];
	tr_emit(t, "cvt.u32.u64 %s, %s;", mine.s, r->count.s);
	struct tr_group l = tr_lanes_here(t);
	tr_from_lane(t, &l, theirs, mine, l.first);
	tr_emit(t, "setp.eq.u32 %s, %s, %s;", p.s, mine.s, theirs.s);
	tr_emit(t, "vote.sync.ballot.b32 %s, %s, %s;", n.s, p.s, l.mask.s);
	tr_emit(t, "popc.b32 %s, %s;", n.s, n.s);
	tr_emit(t, "mul.wide.u32 %s, %s, %s;", sum.s, n.s, r->bytes.s);
	tr_emit(t, "mov.u64 %s, %s;", one.s, r->bytes.s);
	tr_emit(t, "selp.b64 %s, %s, %s, %s;", sum.s, sum.s, one.s, l.leads.s);
	tr_emit(t, "setp.ne.or.u32 %s, %s, %s, %s;", p.s, mine.s, theirs.s, l.leads.s);
	snprintf(pred, sizeof(pred), "@%s ", p.s);
	tr_ring_add(t, pred, r->count, sum);
}

/* -- the kernel's helpers ---------------------------------------------------- */

int tr_no_ring(struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return tr_unsupported(t, inst->at[i].pc,
		tr_map_arg(t, inst, i) ? "this type of map has no such operation on a GPU"
				       : "which map is used differs between paths");
}

const struct ebpf_map *tr_ring_arg(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	return m && m->type == BPF_MAP_TYPE_RINGBUF ? m : NULL;
}

/* Whether records need groups of their own: some are discarded, or the size of a submitted one
 * differs between paths. */
static bool own_groups(const struct tr *t)
{
	for (uint32_t pc = 0; pc < t->p->n_insns; pc++) {
		const struct bpf_insn *in = &t->p->insns[pc];
		const struct ebpf_fact *f = &t->v->facts[pc];
		if (!f->reached || !tr_is_call(in) || in->src_reg)
			continue;
		if (in->imm == BPF_FUNC_ringbuf_discard ||
			(in->imm == BPF_FUNC_ringbuf_submit && !f->args[0].constant))
			return true;
	}
	return false;
}

static int lower_reserve(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_ring_arg(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	struct tr_name r0 = tr_reg(inst, 0), len = tr_scalar_arg(t, inst, i, 1);
	if (!m)
		return tr_no_ring(t, inst, i);
	if (!f->args[1].constant || !f->args[1].value)
		return tr_unsupported(
			t, inst->at[i].pc, "a ring buffer record needs at least one byte");
	if (f->args[2].constant && f->args[2].value) { /* the kernel knows no flags here */
		no_record(t, tr_map_base(t, m), r0);
		return 0;
	}
	struct tr_name p = tr_pred(t), done = tr_label(t), record = tr_t64(t);
	tr_emit(t, "mov.u64 %s, 0;", record.s);
	if (!f->args[2].constant) {
		tr_emit(t, "setp.ne.u64 %s, %s, 0;", p.s, tr_scalar_arg(t, inst, i, 2).s);
		tr_emit(t, "@%s bra %s;", p.s, done.s);
	}
	struct tr_ring_record r = tr_ring_reserve(t, m, len, own_groups(t));
	tr_emit(t, "mov.u64 %s, %s;", record.s, r.at.s);
	if (!f->args[2].constant)
		buf_printf(&t->body, "%s:\n", done.s);
	tr_emit(t, "mov.u64 %s, %s;", r0.s, record.s);
	return 0;
}

static int lower_release(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_ring_arg(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	bool own = own_groups(t), known = f->args[0].constant;
	struct tr_name record = tr_reg(inst, 1), off = tr_t64(t), bin = tr_t32(t);
	if (!m)
		return tr_no_ring(t, inst, i);
	struct tr_ring g = tr_ring_of(t, m);
	struct tr_ring_record r = { .at = record };
	tr_emit(t, "sub.s64 %s, %s, %s;", off.s, record.s, tr_ring_data(t, &g).s);
	tr_emit(t, "sub.s64 %s, %s, %d;", off.s, off.s, MAP_IMAGE_HEADER);
	tr_emit(t, "shr.u64 %s, %s, %d;", off.s, off.s, __builtin_ctz(g.bin_bytes));
	tr_emit(t, "cvt.u32.u64 %s, %s;", bin.s, off.s);
	r.count = tr_wide(t, bin, MAP_RING_COUNT_LINE, g.counts);
	if (known) {
		enum shape shape = shape_of(m, true, f->args[0].value, own);
		r.grouped = shape != SHAPE_ALONE;
		r.bytes = tr_imm((int64_t)(shape == SHAPE_SHARED ? map_round_up(f->args[0].value, 8)
								 : own_bytes(f->args[0].value)));
	} else {
		struct tr_name head = tr_t32(t);
		r.bytes = tr_t64(t);
		tr_emit(t, "ld.volatile.global.u32 %s, [%s+%d];", head.s, record.s,
			-MAP_RING_GROUP);
		tr_emit(t, "and.b32 %s, %s, 0x%x;", head.s, head.s, MAP_RING_SIZE_MASK);
		tr_emit(t, "add.u32 %s, %s, %d;", head.s, head.s, MAP_RING_GROUP + 15);
		tr_emit(t, "and.b32 %s, %s, 0xfffffff0;", head.s, head.s);
		tr_emit(t, "cvt.u64.u32 %s, %s;", r.bytes.s, head.s);
	}
	if (tr_bpf(t, inst, i)->imm == BPF_FUNC_ringbuf_discard)
		tr_emit(t, "st.global.u32 [%s+%d], 0;", record.s, 4 - MAP_RING_GROUP);
	tr_ring_commit(t, &r);
	return 0;
}

/* 16 bytes at a time where every record begins at such an address. pred: "" or "@predicate ". */
static void copy_wide(struct tr *t, const struct tr_mem *m, const char *pred, struct tr_name to,
	int32_t displacement, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at += 16) {
		struct tr_name w[2] = { tr_t64(t), tr_t64(t) };
		for (uint32_t k = 0; k < 2; k++)
			tr_emit(t, "mov.u64 %s, %s;", w[k].s, tr_mem_word(t, m, at + 8 * k, 8).s);
		tr_emit(t, "%sst.global.v2.u64 [%s+%d], {%s, %s};", pred, to.s,
			displacement + (int32_t)at, w[0].s, w[1].s);
	}
}

static void copy_pieces(struct tr *t, const struct tr_mem *m, const char *pred, struct tr_name to,
	int32_t displacement, uint32_t bytes)
{
	for (uint32_t at = 0, n; at < bytes; at += n) {
		uint32_t left = bytes - at;
		n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
		tr_emit(t, "%sst.global.u%u [%s+%d], %s;", pred, n * 8, to.s,
			displacement + (int32_t)at, tr_mem_word(t, m, at, n).s);
	}
}

void tr_ring_put(struct tr *t, const struct tr_mem *from, const char *pred, struct tr_name to,
	int32_t displacement, uint32_t bytes)
{
	(bytes & 15 ? copy_pieces : copy_wide)(t, from, pred, to, displacement, bytes);
}

int tr_ring_fill(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, struct tr_name record,
	int32_t at)
{
	struct tr_mem m;
	uint32_t bytes;
	int err = tr_mem_arg(t, inst, i, a, &m);
	if (err)
		return err;
	if (!tr_helper_arg_bytes(t, inst, i, a, &bytes))
		tr_mem_copy_call(t, &m, record.s, at, tr_reg(inst, a + 2).s);
	else if (!at && !(bytes & 15) && bytes <= TR_BY_STORE)
		copy_wide(t, &m, "", record, 0, bytes);
	else
		tr_mem_copy(t, &m, record.s, at, bytes);
	return 0;
}

/* Records of a known, small size that all lanes here write together: from the activemask to the
 * commit it is one basic block, so the group stays one and its leader commits for all. */
static bool is_perf(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return tr_bpf(t, inst, i)->imm == BPF_FUNC_perf_event_output;
}

/* Which argument of an output points to the data; the next is their size. */
static uint32_t data_arg(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return is_perf(t, inst, i) ? 3 : 1;
}

static int output_together(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m,
	uint32_t bytes, struct tr_name rc)
{
	struct reserve v = { .g = tr_ring_of(t, m),
		.shape = SHAPE_SHARED,
		.each = map_round_up(bytes, 8),
		.bytes = bytes,
		.total = tr_t32(t) };
	struct tr_name lead = tr_pred(t), mine, at;
	struct tr_mem from;
	char got[48], first[48];
	int err = tr_mem_arg(t, inst, i, data_arg(t, inst, i), &from);
	if (err)
		return err;
	v.h = tr_ring_hint(t, &v.g);
	tr_emit(t, "mov.u64 %s, %d;", rc.s, EAGAIN_);
	struct tr_ways w = tr_ring_begin(t, &v.h);
	ask(t, &v);
	at = tr_ring_at(t, &v.g, &v.at);
	tr_emit(t, "and.pred %s, %s, %s;", lead.s, v.at.got.s, v.l.leads.s);
	snprintf(got, sizeof(got), "@%s ", v.at.got.s);
	snprintf(first, sizeof(first), "@%s ", lead.s);
	shared_head(t, &v, at, first);
	mine = tr_wide(t, v.l.rank, (uint32_t)v.each, at);
	tr_ring_put(t, &from, got, mine, MAP_IMAGE_HEADER + MAP_RING_GROUP, bytes);
	tr_ring_together(t, &v.l);
	tr_ring_commit_asked(t, &v.g, first, &v.at, v.total);
	tr_ring_keep_hint(t, &v.h, &lead, false);
	tr_emit(t, "mov.u64 %s, 0;", rc.s);
	tr_emit(t, "@%s bra %s;", v.at.got.s, w.done.s);
	tr_emit(t, "mov.u64 %s, %d;", rc.s, EAGAIN_);
	tr_ring_next(t, &v.g, &v.h, &v.at, &v.l.leads, &w, false, NULL);
	buf_printf(&t->body, "%s:\n", w.done.s);
	return 0;
}

static int output_apart(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m,
	struct tr_name rc)
{
	struct tr_name p = tr_pred(t), done = tr_label(t);
	uint32_t data = data_arg(t, inst, i);
	struct tr_ring_record r = tr_ring_reserve(t, m, tr_scalar_arg(t, inst, i, data + 1), false);
	tr_emit(t, "mov.u64 %s, %d;", rc.s, EAGAIN_);
	tr_emit(t, "setp.eq.u64 %s, %s, 0;", p.s, r.at.s);
	tr_emit(t, "@%s bra %s;", p.s, done.s);
	int err = tr_ring_fill(t, inst, i, data, r.at, 0);
	if (err)
		return err;
	tr_ring_commit(t, &r);
	tr_emit(t, "mov.u64 %s, 0;", rc.s);
	buf_printf(&t->body, "%s:\n", done.s);
	return 0;
}

bool tr_ring_outputs_together(
	const struct tr *t, const struct tr_inst *inst, uint32_t i, const struct ebpf_map *m, uint32_t *bytes)
{
	return tr_helper_arg_bytes(t, inst, i, data_arg(t, inst, i), bytes) && *bytes && *bytes <= TR_BY_STORE && tr_ring_shares(m, *bytes);
}

static int lower_output(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_ring_arg(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	if (!m)
		return tr_no_ring(t, inst, i);
	struct tr_name rc = tr_t64(t), p = tr_pred(t), done = tr_label(t), r0 = tr_reg(inst, 0);
	bool flags = !is_perf(t, inst, i); /* those of perf_event_output choose a CPU's buffer: here is one */
	if (flags && f->args[3].constant && f->args[3].value > TR_WAKEUP_FLAGS) {
		tr_emit(t, "mov.u64 %s, %d;", r0.s, EINVAL_);
		return 0;
	}
	flags = flags && !f->args[3].constant;
	if (flags) {
		tr_emit(t, "mov.u64 %s, %d;", rc.s, EINVAL_);
		tr_emit(t, "setp.gt.u64 %s, %s, %d;", p.s, tr_scalar_arg(t, inst, i, 3).s,
			TR_WAKEUP_FLAGS);
		tr_emit(t, "@%s bra %s;", p.s, done.s);
	}
	uint32_t bytes;
	int err = tr_ring_outputs_together(t, inst, i, m, &bytes) ? output_together(t, inst, i, m, bytes, rc)
								   : output_apart(t, inst, i, m, rc);
	if (flags)
		buf_printf(&t->body, "%s:\n", done.s);
	tr_emit(t, "mov.u64 %s, %s;", r0.s, rc.s);
	return err;
}

/* BPF_RB_AVAIL_DATA 0, RING_SIZE 1, CONS_POS 2, PROD_POS 3; else 0. Of the bin that this
 * multiprocessor fills: nobody keeps a sum. */
static int lower_query(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_ring_arg(t, inst, i);
	if (!m)
		return tr_no_ring(t, inst, i);
	struct tr_ring g = tr_ring_of(t, m);
	struct tr_hint h = tr_ring_hint(t, &g);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", h.bin.s, h.home.s, h.bin.s, h.full.s);
	struct tr_name word = tr_wide(t, h.bin, MAP_RING_COUNT_LINE, tr_ring_heads(t, &g)),
		       what = tr_t64(t), made = tr_t64(t), r0 = tr_t64(t);
	char size[24];
	tr_emit(t, "mov.u64 %s, %s;", what.s, tr_scalar_arg(t, inst, i, 1).s);
	tr_emit(t, "ld.volatile.global.u64 %s, [%s+%d];", made.s, word.s, MAP_IMAGE_HEADER);
	tr_emit(t, "min.u64 %s, %s, %u;", made.s, made.s, g.bin_bytes);
	snprintf(size, sizeof(size), "%u", m->max_entries);
	const char *const answers[] = { made.s, size, "0", made.s };
	tr_emit(t, "mov.u64 %s, 0;", r0.s);
	for (uint32_t k = 0; k < 4; k++) {
		struct tr_name p = tr_pred(t);
		tr_emit(t, "setp.eq.u64 %s, %s, %u;", p.s, what.s, k);
		tr_emit(t, "@%s mov.u64 %s, %s;", p.s, r0.s, answers[k]);
	}
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, r0.s);
	return 0;
}

int tr_ring_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	switch (tr_bpf(t, inst, i)->imm) {
	case BPF_FUNC_ringbuf_reserve:
		return lower_reserve(t, inst, i);
	case BPF_FUNC_ringbuf_output:
	case BPF_FUNC_perf_event_output:
		return lower_output(t, inst, i);
	case BPF_FUNC_ringbuf_query:
		return lower_query(t, inst, i);
	default:
		return lower_release(t, inst, i);
	}
}

/* -- copying ----------------------------------------------------------------- */

static const char *add_text(struct tr *t, const char *name, const char *text)
{
	struct buf b = { .data = (char *)text, .len = strlen(text) };
	return tr_func_add(t, name, &b);
}

static const char copy_text[] =
	".func __egpu_copy(.param .b64 to, .param .b64 from, .param .b64 bytes)\n"
	"{\n"
	"\t.reg .pred %p;\n"
	"\t.reg .b32 %b;\n"
	"\t.reg .b64 %to, %from, %end;\n"
	"\tld.param.b64 %to, [to];\n"
	"\tld.param.b64 %from, [from];\n"
	"\tld.param.b64 %end, [bytes];\n"
	"\tadd.s64 %end, %end, %to;\n"
	"$copy:\n"
	"\tsetp.ge.u64 %p, %to, %end;\n"
	"\t@%p bra $done;\n"
	"\tld.u8 %b, [%from];\n"
	"\tst.global.u8 [%to], %b;\n"
	"\tadd.s64 %to, %to, 1;\n"
	"\tadd.s64 %from, %from, 1;\n"
	"\tbra $copy;\n"
	"$done:\n"
	"\tret;\n"
	"}\n";

const char *tr_copy_func(struct tr *t)
{
	return add_text(t, "__egpu_copy", copy_text);
}
