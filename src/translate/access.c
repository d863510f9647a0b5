/* access.c - egpu_access_output: one record for an access of all lanes that are here
 * (egpu/access.h).
 *
 * Everything that lanes tell each other, up to the record's commit, happens in one basic block,
 * whose activemask is the mask of all: what they find in common is true of exactly the lanes that
 * the record names. Lanes whose site, bytes or operation is not the first one's come again.
 *
 * There are two such blocks. The first knows one shape, lanes side by side, which is nearly every
 * access and is the lowest lane's to write; where that is not what they are, the second finds out
 * what they are. Both go the same way when the bin has no room.
 */
#include "translate/ring.h"

#include <stdio.h>

#include "egpu/access.h"

enum { EAGAIN_ = -11, LOG_OTHER = 7, MAX_LOG = 6 };

struct access {
	struct tr_group l;
	struct tr_name site, op, log; /* .b32 */
	bool same;                    /* of all lanes: site, bytes and operation */
	struct tr_name members, is_member, stranger; /* lanes of the record; predicates */
	struct tr_name address, base, lane;          /* .b64, .b64, .b32 */
	struct tr_name bytes;                        /* .b32, of a lane */
	struct tr_name stride;                       /* .b32 */
	struct tr_name quarter, offset,
		delta; /* .b32: lowest lane of this quarter, its address and ours beyond base */
	struct tr_name shape, size; /* .b32 */
};

static struct tr_name word_arg(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a)
{
	struct tr_name wide = tr_t64(t), w = tr_t32(t);
	tr_emit(t, "mov.u64 %s, %s;", wide.s, tr_scalar_arg(t, inst, i, a).s);
	tr_emit(t, "cvt.u32.u64 %s, %s;", w.s, wide.s);
	return w;
}

/* A 64-bit value of another lane. */
static struct tr_name of_lane(
	struct tr *t, const struct tr_group *l, struct tr_name from, struct tr_name lane)
{
	struct tr_name lo = tr_t32(t), hi = tr_t32(t), r = tr_t64(t);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", lo.s, hi.s, from.s);
	tr_from_lane(t, l, lo, lo, lane);
	tr_from_lane(t, l, hi, hi, lane);
	tr_emit(t, "mov.b64 %s, {%s, %s};", r.s, lo.s, hi.s);
	return r;
}

/* The distance of the two lowest lanes' addresses, divided by that of their numbers; of one lane
 * its own bytes. A quotient that does not come out even fits nobody later. */
static void find_stride(struct tr *t, struct access *x)
{
	struct tr_name rest = tr_t32(t), second = tr_t32(t), n = tr_t32(t), alone = tr_pred(t),
		       far = tr_t64(t), apart = tr_t64(t);
	x->stride = tr_t32(t);
	tr_emit(t, "sub.u32 %s, %s, 1;", rest.s, x->members.s);
	tr_emit(t, "and.b32 %s, %s, %s;", rest.s, rest.s, x->members.s);
	tr_lowest(t, second, rest);
	tr_emit(t, "setp.eq.u32 %s, %s, 0;", alone.s, rest.s);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", second.s, x->l.first.s, second.s, alone.s);
	far = of_lane(t, &x->l, x->address, second);
	tr_emit(t, "sub.s64 %s, %s, %s;", apart.s, far.s, x->base.s);
	tr_emit(t, "cvt.u32.u64 %s, %s;", x->stride.s, apart.s);
	tr_emit(t, "sub.u32 %s, %s, %s;", n.s, second.s, x->l.first.s);
	tr_emit(t, "max.u32 %s, %s, 1;", n.s, n.s);
	tr_emit(t, "cvt.rn.f32.s32 %s, %s;", x->stride.s, x->stride.s);
	tr_emit(t, "cvt.rn.f32.u32 %s, %s;", n.s, n.s);
	tr_emit(t, "rcp.approx.f32 %s, %s;", n.s, n.s);
	tr_emit(t, "mul.rn.f32 %s, %s, %s;", x->stride.s, x->stride.s, n.s);
	tr_emit(t, "cvt.rni.s32.f32 %s, %s;", x->stride.s, x->stride.s);
	tr_emit(t, "@%s mov.u32 %s, %s;", alone.s, x->stride.s, x->bytes.s);
}

/* Whether our address is from + stride * (lane - at). */
static void fits_stride(struct tr *t, const struct access *x, struct tr_name from,
	struct tr_name at, struct tr_name p)
{
	struct tr_name n = tr_t32(t), want = tr_t64(t);
	tr_emit(t, "sub.u32 %s, %s, %s;", n.s, x->lane.s, at.s);
	tr_emit(t, "mad.wide.s32 %s, %s, %s, %s;", want.s, x->stride.s, n.s, from.s);
	tr_emit(t, "setp.eq.s64 %s, %s, %s;", p.s, want.s, x->address.s);
}

/* to = at - base in 32 bits; p: it is no more. and: what p must be beside. */
static struct tr_name beyond_base(
	struct tr *t, const struct access *x, struct tr_name at, struct tr_name p, const char *and)
{
	struct tr_name d = tr_t64(t), back = tr_t64(t), to = tr_t32(t);
	tr_emit(t, "sub.s64 %s, %s, %s;", d.s, at.s, x->base.s);
	tr_emit(t, "cvt.u32.u64 %s, %s;", to.s, d.s);
	tr_emit(t, "cvt.s64.s32 %s, %s;", back.s, to.s);
	if (and)
		tr_emit(t, "setp.eq.and.s64 %s, %s, %s, %s;", p.s, back.s, d.s, and);
	else
		tr_emit(t, "setp.eq.s64 %s, %s, %s;", p.s, back.s, d.s);
	return to;
}

static void in_all(struct tr *t, const struct access *x, struct tr_name p)
{
	if (!x->same)
		tr_emit(t, "or.pred %s, %s, %s;", p.s, p.s, x->stranger.s);
	tr_emit(t, "vote.sync.all.pred %s, %s, %s;", p.s, p.s, x->l.mask.s);
}

static void choose(struct tr *t, const struct access *x, struct tr_name p,
	enum egpu_access_shape shape, uint32_t size)
{
	tr_emit(t, "@%s mov.u32 %s, %d;", p.s, x->shape.s, (int)shape);
	tr_emit(t, "@%s mov.u32 %s, %u;", p.s, x->size.s, size);
}

/* From the most general shape to the smallest. */
static void find_shape(struct tr *t, struct access *x)
{
	struct tr_name p = tr_pred(t), mine = tr_t32(t), eight = tr_t32(t);
	x->shape = tr_t32(t);
	x->size = tr_t32(t);
	x->quarter = tr_t32(t);
	tr_emit(t, "mov.u32 %s, %d;", x->shape.s, EGPU_ACCESS_FAR);
	tr_emit(t, "mad.lo.u32 %s, %s, 8, 16;", x->size.s, x->l.n.s);
	x->delta = beyond_base(t, x, x->address, p, NULL);
	in_all(t, x, p);
	tr_emit(t, "@%s mov.u32 %s, %d;", p.s, x->shape.s, EGPU_ACCESS_NEAR);
	tr_emit(t, "@%s mad.lo.u32 %s, %s, 4, 16;", p.s, x->size.s, x->l.n.s);
	tr_emit(t, "and.b32 %s, %s, 24;", mine.s, x->lane.s);
	tr_emit(t, "shl.b32 %s, 0xff, %s;", eight.s, mine.s);
	tr_emit(t, "and.b32 %s, %s, %s;", eight.s, eight.s, x->members.s);
	tr_lowest(t, x->quarter, eight);
	struct tr_name from = of_lane(t, &x->l, x->address, x->quarter), even = tr_pred(t);
	fits_stride(t, x, from, x->quarter, even);
	x->offset = beyond_base(t, x, from, p, even.s);
	in_all(t, x, p);
	choose(t, x, p, EGPU_ACCESS_QUARTERS, 32);
	fits_stride(t, x, x->base, x->l.first, p);
	in_all(t, x, p);
	choose(t, x, p, EGPU_ACCESS_LINEAR, 24);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %s, %s;", p.s, x->stride.s, x->bytes.s, p.s);
	tr_emit(t, "setp.ne.and.u32 %s, %s, %d, %s;", p.s, x->log.s, LOG_OTHER, p.s);
	choose(t, x, p, EGPU_ACCESS_DENSE, 16);
}

/* log2 of the bytes of a lane, as the record has it. */
static struct tr_name log_of(struct tr *t, struct tr_name bytes)
{
	struct tr_name log = tr_t32(t), low = tr_t32(t), p = tr_pred(t);
	tr_emit(t, "bfind.u32 %s, %s;", log.s, bytes.s);
	tr_emit(t, "sub.u32 %s, %s, 1;", low.s, bytes.s);
	tr_emit(t, "and.b32 %s, %s, %s;", low.s, low.s, bytes.s);
	tr_emit(t, "setp.ne.u32 %s, %s, 0;", p.s, low.s);
	tr_emit(t, "setp.gt.or.u32 %s, %s, %d, %s;", p.s, log.s, MAX_LOG, p.s);
	tr_emit(t, "@%s mov.u32 %s, %d;", p.s, log.s, LOG_OTHER);
	return log;
}

/* Where the record's group goes. */
struct target {
	struct tr_ring g;
	struct tr_hint h;
	struct tr_name total; /* .b32 */
	struct tr_place at;
};

static void find_room(struct tr *t, const struct access *x, struct target *w)
{
	w->total = tr_t32(t);
	tr_emit(t, "add.u32 %s, %s, %d;", w->total.s, x->size.s, MAP_RING_GROUP + 15);
	tr_emit(t, "and.b32 %s, %s, 0xfffffff0;", w->total.s, w->total.s);
	w->at = tr_ring_ask(t, &w->g, w->h.bin, w->total, &x->l, &x->l.leads);
}

enum { RECORD = MAP_IMAGE_HEADER + MAP_RING_GROUP };

/* The record's word of the lowest lane's address, shape, size and operation. shape: .b32 or a number. */
static void record_word(struct tr *t, const struct access *x, const char *shape, struct tr_name lo, struct tr_name hi)
{
	struct tr_name info = tr_t32(t), k = tr_t32(t);
	tr_emit(t, "mad.lo.u32 %s, %s, 8, %s;", info.s, x->log.s, shape);
	tr_emit(t, "shl.b32 %s, %s, 6;", k.s, x->op.s);
	tr_emit(t, "or.b32 %s, %s, %s;", info.s, info.s, k.s);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", lo.s, hi.s, x->base.s);
	tr_emit(t, "prmt.b32 %s, %s, %s, 0x4210;", hi.s, hi.s, info.s); /* the highest byte */
}

/* The group's head and the record's first 16 bytes, which `who` writes. shape, size: .b32 or numbers. */
static void write_head(struct tr *t, const struct access *x, struct tr_name at, const char *who,
	const char *shape, const char *size)
{
	struct tr_name head = tr_t64(t), time = tr_t64(t), ids = tr_t64(t), word = tr_t64(t), lo = tr_t32(t), hi = tr_t32(t), k = tr_t32(t);
	tr_emit(t, "mov.b32 %s, %s;", k.s, size);
	tr_emit(t, "mov.b64 %s, {%s, 1};", head.s, k.s);
	tr_emit(t, "mov.u64 %s, %%globaltimer;", time.s);
	tr_emit(t, "%sst.global.v2.u64 [%s+%d], {%s, %s};", who, at.s, MAP_IMAGE_HEADER, head.s,
		time.s);
	tr_emit(t, "mov.b64 %s, {%s, %s};", ids.s, x->site.s, x->members.s);
	record_word(t, x, shape, lo, hi);
	tr_emit(t, "mov.b64 %s, {%s, %s};", word.s, lo.s, hi.s);
	tr_emit(t, "%sst.global.v2.u64 [%s+%d], {%s, %s};", who, at.s, RECORD, ids.s, word.s);
}

/* What a shape has beyond that, by the lanes that hold it. got: there is a place. */
static void write_rest(struct tr *t, const struct access *x, struct tr_name at, struct tr_name lead,
	struct tr_name got)
{
	struct tr_name p = tr_pred(t), own, k = tr_t32(t);
	/* LINEAR and QUARTERS: the distance; the latter's second word is then quarter 1's. */
	tr_emit(t, "setp.eq.and.u32 %s, %s, %d, %s;", p.s, x->shape.s, EGPU_ACCESS_LINEAR, lead.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], 0;", p.s, at.s, RECORD + 20);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, at.s, RECORD + 16, x->stride.s);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %d, %s;", p.s, x->shape.s, EGPU_ACCESS_QUARTERS,
		lead.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, at.s, RECORD + 16, x->stride.s);
	tr_emit(t, "shr.u32 %s, %s, 3;", k.s, x->lane.s);
	own = tr_wide(t, k, 4, at);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %d, %s;", p.s, x->shape.s, EGPU_ACCESS_QUARTERS, got.s);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %s, %s;", p.s, x->lane.s, x->quarter.s, p.s);
	tr_emit(t, "setp.ne.and.u32 %s, %s, 0, %s;", p.s, k.s, p.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, own.s, RECORD + 16, x->offset.s);
	own = tr_wide(t, x->l.rank, 4, at);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %d, %s;", p.s, x->shape.s, EGPU_ACCESS_NEAR, got.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, own.s, RECORD + 16, x->delta.s);
	own = tr_wide(t, x->l.rank, 8, at);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %d, %s;", p.s, x->shape.s, EGPU_ACCESS_FAR, got.s);
	tr_emit(t, "@%s st.global.u64 [%s+%d], %s;", p.s, own.s, RECORD + 16, x->address.s);
}

/* The first lane's word, and whether ours is the same. */
static void compare(struct tr *t, struct access *x, struct tr_name word, bool first)
{
	struct tr_name theirs = tr_t32(t);
	tr_from_lane(t, &x->l, theirs, word, x->l.first);
	if (first)
		tr_emit(t, "setp.eq.u32 %s, %s, %s;", x->is_member.s, word.s, theirs.s);
	else
		tr_emit(t, "setp.eq.and.u32 %s, %s, %s, %s;", x->is_member.s, word.s, theirs.s,
			x->is_member.s);
}

/* The lanes that are here, those that are the record's, and the first one's address. Begins a basic
 * block's conversation. */
static void meet(struct tr *t, struct access *x)
{
	x->l = tr_lanes_here(t);
	x->members = x->l.mask;
	if (!x->same) {
		struct tr_name below = tr_t32(t);
		x->is_member = tr_pred(t);
		x->stranger = tr_pred(t);
		x->members = tr_t32(t);
		compare(t, x, x->site, true);
		compare(t, x, x->op, false);
		compare(t, x, x->bytes, false);
		tr_emit(t, "not.pred %s, %s;", x->stranger.s, x->is_member.s);
		tr_emit(t, "vote.sync.ballot.b32 %s, %s, %s;", x->members.s, x->is_member.s,
			x->l.mask.s);
		tr_emit(t, "mov.u32 %s, %%lanemask_lt;", below.s);
		tr_emit(t, "and.b32 %s, %s, %s;", below.s, below.s, x->members.s);
		tr_emit(t, "popc.b32 %s, %s;", x->l.rank.s, below.s);
		tr_emit(t, "popc.b32 %s, %s;", x->l.n.s, x->members.s);
	}
	x->base = of_lane(t, &x->l, x->address, x->l.first);
}

/* What both blocks leave behind for a bin without room. */
struct outcome {
	struct tr_name old, leads, got; /* .b64, predicates */
};

static void leave(struct tr *t, const struct access *x, const struct target *w,
	const struct outcome *o)
{
	tr_emit(t, "mov.u64 %s, %s;", o->old.s, w->at.old.s);
	tr_emit(t, "mov.pred %s, %s;", o->leads.s, x->l.leads.s);
	tr_emit(t, "mov.pred %s, %s;", o->got.s, w->at.got.s);
}

static void commit(struct tr *t, const struct access *x, const struct target *w, struct tr_name lead)
{
	char who[48];
	snprintf(who, sizeof(who), "@%s ", lead.s);
	tr_ring_commit_asked(t, &w->g, who, &w->at, w->total);
	tr_ring_keep_hint(t, &w->h, &lead, false);
}

/* Lanes side by side, or `dense` is false and nothing has happened. */
static struct tr_name try_dense(
	struct tr *t, struct access *x, struct target *w, const struct outcome *o)
{
	struct tr_name dense = tr_pred(t), asks = tr_pred(t), lead = tr_pred(t), n = tr_t32(t),
		       want = tr_t64(t);
	char who[48], shape[8];
	meet(t, x);
	tr_emit(t, "sub.u32 %s, %s, %s;", n.s, x->lane.s, x->l.first.s);
	tr_emit(t, "mad.wide.u32 %s, %s, %s, %s;", want.s, n.s, x->bytes.s, x->base.s);
	tr_emit(t, "setp.eq.s64 %s, %s, %s;", dense.s, want.s, x->address.s);
	tr_emit(t, "setp.ne.and.u32 %s, %s, %d, %s;", dense.s, x->log.s, LOG_OTHER, dense.s);
	in_all(t, x, dense);
	tr_emit(t, "and.pred %s, %s, %s;", asks.s, dense.s, x->l.leads.s);
	w->total = tr_t32(t);
	tr_emit(t, "mov.u32 %s, %d;", w->total.s, MAP_RING_GROUP + 16);
	w->at = tr_ring_ask(t, &w->g, w->h.bin, w->total, &x->l, &asks);
	tr_emit(t, "and.pred %s, %s, %s;", lead.s, w->at.got.s, x->l.leads.s);
	snprintf(who, sizeof(who), "@%s ", lead.s);
	snprintf(shape, sizeof(shape), "%d", (int)EGPU_ACCESS_DENSE);
	write_head(t, x, tr_ring_at(t, &w->g, &w->at), who, shape, "16");
	commit(t, x, w, lead);
	leave(t, x, w, o);
	return dense;
}

/* Lanes anywhere. */
static void record_any(struct tr *t, struct access *x, struct target *w, const struct outcome *o)
{
	struct tr_name lead = tr_pred(t), at;
	char who[48];
	meet(t, x);
	find_stride(t, x);
	find_shape(t, x);
	find_room(t, x, w);
	at = tr_ring_at(t, &w->g, &w->at);
	tr_emit(t, "and.pred %s, %s, %s;", lead.s, w->at.got.s, x->l.leads.s);
	snprintf(who, sizeof(who), "@%s ", lead.s);
	struct tr_name got = w->at.got;
	if (!x->same) {
		got = tr_pred(t);
		tr_emit(t, "and.pred %s, %s, %s;", got.s, w->at.got.s, x->is_member.s);
	}
	write_head(t, x, at, who, x->shape.s, x->size.s);
	write_rest(t, x, at, lead, got);
	tr_ring_together(t, &x->l);
	commit(t, x, w, lead);
	leave(t, x, w, o);
}

static bool same_in_all(const struct ebpf_fact *f, uint32_t a)
{
	return f->args[a].constant || f->uniform >> (a + 1) & 1;
}

static struct access begin_access(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	struct access x = { .address = tr_t64(t),
		.lane = tr_t32(t),
		.site = word_arg(t, inst, i, 1),
		.bytes = word_arg(t, inst, i, 3),
		.op = word_arg(t, inst, i, 4),
		.same = same_in_all(f, 1) && same_in_all(f, 3) && same_in_all(f, 4) };
	tr_emit(t, "mov.u64 %s, %s;", x.address.s, tr_scalar_arg(t, inst, i, 2).s);
	tr_emit(t, "and.b32 %s, %s, 3;", x.op.s, x.op.s);
	tr_emit(t, "mov.u32 %s, %%laneid;", x.lane.s);
	x.log = log_of(t, x.bytes);
	return x;
}

/* -- several accesses in one reservation (batch.c) -- */

/* A number that most items have in common with the first, or with it and their own number: ptxas sees which do. */
static void put_common(struct tr *t, struct tr_name to, struct tr_name value, struct tr_name expected, struct tr_name ours)
{
	struct tr_name p = tr_pred(t);
	tr_emit(t, "setp.ne.and.u32 %s, %s, %s, %s;", p.s, value.s, expected.s, ours.s);
	tr_emit(t, "@%s mov.b32 %s, %s;", p.s, to.s, value.s);
}

static void put_numbers(struct tr *t, const struct access *x, const struct tr_pieces *p, struct tr_name ours)
{
	struct tr_name first = tr_pred(t), info = tr_t32(t), k = tr_t32(t);
	tr_emit(t, "setp.eq.u32 %s, %%egpu_item, 0;", first.s);
	tr_emit(t, "mad.lo.u32 %s, %s, 8, %d;", info.s, x->log.s, (int)EGPU_ACCESS_DENSE);
	tr_emit(t, "shl.b32 %s, %s, 6;", k.s, x->op.s);
	tr_emit(t, "or.b32 %s, %s, %s;", info.s, info.s, k.s);
	tr_emit(t, "@%s mov.b32 %s, %s;", first.s, p->first_site.s, x->site.s);
	tr_emit(t, "@%s mov.b32 %s, %s;", first.s, p->first_info.s, info.s);
	tr_emit(t, "sub.u32 %s, %s, 1;", k.s, x->site.s);
	tr_emit(t, "@%s add.u32 %s, %s, %s;", first.s, p->site.s, p->lane.s, k.s);
	tr_emit(t, "@%s mov.b32 %s, %s;", first.s, p->info.s, info.s);
	tr_emit(t, "add.u32 %s, %s, %%egpu_item;", k.s, p->first_site.s);
	put_common(t, p->site, x->site, k, ours);
	put_common(t, p->info, info, p->first_info, ours);
}

/* The address that lane 0 has if all lie side by side, which is then what every lane finds. */
void tr_access_piece(struct tr *t, struct tr_inst *inst, uint32_t i, const struct tr_pieces *p, bool like)
{
	struct access x = begin_access(t, inst, i);
	struct tr_name n = tr_t32(t), far = tr_t64(t), base = tr_t64(t), ours = tr_pred(t);
	struct tr_name word[2] = { tr_t32(t), tr_t32(t) }, theirs = tr_t32(t);
	tr_emit(t, "mul.wide.u32 %s, %s, %s;", far.s, p->lane.s, x.bytes.s);
	tr_emit(t, "sub.s64 %s, %s, %s;", base.s, x.address.s, far.s);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", word[0].s, word[1].s, base.s);
	for (int k = 0; k < 2 && !like; k++) {
		tr_emit(t, "shfl.sync.idx.b32 %s, %s, 0, 31, %s;", theirs.s, word[k].s, p->mask.s);
		tr_emit(t, "setp.eq.and.u32 %s, %s, %s, %s;", p->dense.s, theirs.s, word[k].s, p->dense.s);
	}
	tr_emit(t, "setp.ne.and.u32 %s, %s, %d, %s;", p->dense.s, x.log.s, LOG_OTHER, p->dense.s);
	tr_emit(t, "add.u32 %s, %%egpu_item, 1;", n.s);
	tr_emit(t, "setp.eq.u32 %s, %s, %s;", ours.s, p->lane.s, n.s);
	put_numbers(t, &x, p, ours);
	tr_emit(t, "@%s mov.b32 %s, %s;", ours.s, p->lo.s, word[0].s);
	tr_emit(t, "@%s mov.b32 %s, %s;", ours.s, p->hi.s, word[1].s);
}

/* Lanes whose record stands leave with 0 in rc; others try the next bin, or leave with -EAGAIN. Those of another stretch go round again. */
static void leave_or_next(struct tr *t, const struct access *x, struct target *w, const struct outcome *o, struct tr_ways *ways, struct tr_name rc)
{
	struct tr_place none = { .old = o->old };
	if (!x->same)
		tr_emit(t, "@%s bra %s;", x->stranger.s, ways->again.s);
	tr_emit(t, "mov.u64 %s, 0;", rc.s);
	tr_emit(t, "@%s bra %s;", o->got.s, ways->done.s);
	tr_emit(t, "mov.u64 %s, %d;", rc.s, EAGAIN_);
	tr_ring_next(t, &w->g, &w->h, &none, &o->leads, ways, true, NULL);
}

int tr_access_alone(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct access x = begin_access(t, inst, i);
	struct target w = { .g = tr_ring_of(t, tr_ring_arg(t, inst, i)) };
	struct outcome o = { tr_t64(t), tr_pred(t), tr_pred(t) };
	struct tr_name r0 = tr_reg(inst, 0);
	w.h = tr_ring_hint(t, &w.g);
	struct tr_ways ways = tr_ring_begin(t, &w.h);
	record_any(t, &x, &w, &o);
	leave_or_next(t, &x, &w, &o, &ways, r0);
	buf_printf(&t->body, "%s:\n", ways.done.s);
	return 0;
}

int tr_access_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_ring_arg(t, inst, i);
	if (!m)
		return tr_no_ring(t, inst, i);
	struct access x = begin_access(t, inst, i);
	struct target w = { .g = tr_ring_of(t, m) };
	struct outcome o = { tr_t64(t), tr_pred(t), tr_pred(t) };
	struct tr_name rc = tr_t64(t), any = tr_label(t), full = tr_label(t);
	w.h = tr_ring_hint(t, &w.g);
	tr_emit(t, "mov.u64 %s, %d;", rc.s, EAGAIN_);
	struct tr_ways ways = tr_ring_begin(t, &w.h);
	struct tr_name dense = try_dense(t, &x, &w, &o);
	tr_emit(t, "@!%s bra %s;", dense.s, any.s);
	buf_printf(&t->body, "%s:\n", full.s);
	leave_or_next(t, &x, &w, &o, &ways, rc);
	buf_printf(&t->body, "%s:\n", any.s);
	struct access y = x;
	record_any(t, &y, &w, &o);
	if (!x.same)
		tr_emit(t, "mov.pred %s, %s;", x.stranger.s, y.stranger.s);
	tr_emit(t, "bra %s;", full.s);
	buf_printf(&t->body, "%s:\n", ways.done.s);
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, rc.s);
	return 0;
}
