/* access.c - egpu_access_output: one record for an access of all lanes that are here
 * (egpu/access.h).
 *
 * Everything that lanes tell each other, up to the record's place, happens in one basic block,
 * whose activemask is the mask of all: what they find in common is true of exactly the lanes that
 * the record names. So the bin and, where that is closed, the next one are tried without a loop.
 * Lanes whose site, bytes or operation is not the first one's come again.
 */
#include "translate/ring.h"

#include <stdio.h>

#include "egpu/access.h"

enum { EAGAIN_ = -11, LOG_OTHER = 7, MAX_LOG = 6 };

struct access {
	struct tr_group l;
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
static void find_shape(struct tr *t, struct access *x, struct tr_name log)
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
	tr_emit(t, "setp.ne.and.u32 %s, %s, %d, %s;", p.s, log.s, LOG_OTHER, p.s);
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
	struct tr_name total, pos, fits; /* .b32, .b32, predicate */
};

/* The lowest lane asks the bin for room, if `want` (NULL: always), and closes it where there is too
 * little. */
static void ask(struct tr *t, const struct access *x, struct target *w, struct tr_name heads,
	struct tr_name data, const char *want)
{
	struct tr_name word = tr_wide(t, w->h.bin, MAP_RING_COUNT_LINE, heads), add = tr_t64(t),
		       old = tr_t64(t), end = tr_t32(t), leads = x->l.leads, p = tr_pred(t), at,
		       rest = tr_t32(t), rest64 = tr_t64(t), head = tr_t32(t), off = tr_t64(t);
	char pred[48];
	if (want) {
		leads = tr_pred(t);
		tr_emit(t, "and.pred %s, %s, %s;", leads.s, x->l.leads.s, want);
	}
	tr_emit(t, "cvt.u64.u32 %s, %s;", add.s, w->total.s);
	tr_emit(t, "mov.u64 %s, 0;", old.s);
	tr_emit(t, "@%s atom.global.add.u64 %s, [%s+%d], %s;", leads.s, old.s, word.s,
		MAP_IMAGE_HEADER, add.s);
	tr_emit(t, "min.u64 %s, %s, 0x7fffffff;", old.s, old.s);
	tr_emit(t, "%s%s%scvt.u32.u64 %s, %s;", want ? "@" : "", want ? want : "", want ? " " : "",
		w->pos.s, old.s);
	tr_from_lane(t, &x->l, w->pos, w->pos, x->l.first);
	tr_emit(t, "add.u32 %s, %s, %s;", end.s, w->pos.s, w->total.s);
	tr_emit(t, "setp.le.u32 %s, %s, %u;", w->fits.s, end.s, w->g.bin_bytes);
	tr_emit(t, "setp.lt.and.u32 %s, %s, %u, %s;", p.s, w->pos.s, w->g.bin_bytes, leads.s);
	tr_emit(t, "setp.gt.and.u32 %s, %s, %u, %s;", p.s, end.s, w->g.bin_bytes, p.s);
	at = tr_wide(t, w->h.bin, w->g.bin_bytes, data);
	tr_emit(t, "cvt.u64.u32 %s, %s;", off.s, w->pos.s);
	tr_emit(t, "add.s64 %s, %s, %s;", at.s, at.s, off.s);
	tr_emit(t, "sub.u32 %s, %u, %s;", rest.s, w->g.bin_bytes, w->pos.s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", rest64.s, rest.s);
	tr_emit(t, "or.b32 %s, %s, 0x%x;", head.s, rest.s, MAP_RING_FILL);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, at.s, MAP_IMAGE_HEADER, head.s);
	snprintf(pred, sizeof(pred), "@%s ", p.s);
	buf_printf(&t->body,
		"#if ptx 6.0 sm 70\n\t%sfence.acq_rel.gpu;\n#else\n\t%smembar.gl;\n#endif\n", pred,
		pred);
	tr_ring_add(t, pred, tr_wide(t, w->h.bin, MAP_RING_COUNT_LINE, w->g.counts), rest64);
}

/* x = x + 1 or 0 at the end, unless `unless`. */
static void step_unless(struct tr *t, struct tr_name x, struct tr_name end, struct tr_name unless)
{
	struct tr_name p = tr_pred(t), next = tr_t32(t);
	tr_emit(t, "add.u32 %s, %s, 1;", next.s, x.s);
	tr_emit(t, "setp.eq.u32 %s, %s, %s;", p.s, next.s, end.s);
	tr_emit(t, "selp.b32 %s, 0, %s, %s;", next.s, next.s, p.s);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", x.s, x.s, next.s, unless.s);
}

static void find_room(struct tr *t, const struct access *x, struct target *w)
{
	struct tr_name heads = tr_ring_heads(t, &w->g), data = tr_ring_data(t, &w->g),
		       full = tr_pred(t);
	w->total = tr_t32(t);
	w->pos = tr_t32(t);
	w->fits = tr_pred(t);
	tr_emit(t, "add.u32 %s, %s, %d;", w->total.s, x->size.s, MAP_RING_GROUP + 15);
	tr_emit(t, "and.b32 %s, %s, 0xfffffff0;", w->total.s, w->total.s);
	ask(t, x, w, heads, data, NULL);
	step_unless(t, w->h.bin, w->h.bins, w->fits);
	step_unless(t, w->h.next, w->h.bins, w->fits);
	tr_emit(t, "not.pred %s, %s;", full.s, w->fits.s);
	ask(t, x, w, heads, data, full.s);
}

/* The record's words; each shape's own by the lanes that hold them. */
static void write_record(struct tr *t, const struct access *x, struct tr_name at,
	struct tr_name site, struct tr_name log, struct tr_name op)
{
	enum { RECORD = MAP_IMAGE_HEADER + MAP_RING_GROUP };
	struct tr_name head = tr_t64(t), time = tr_t64(t), who = tr_t64(t), word = tr_t64(t),
		       info = tr_t32(t), info64 = tr_t64(t), p = tr_pred(t), own = tr_t64(t),
		       k = tr_t32(t);
	tr_emit(t, "mov.b64 %s, {%s, 1};", head.s, x->size.s);
	tr_emit(t, "mov.u64 %s, %%globaltimer;", time.s);
	tr_emit(t, "@%s st.global.v2.u64 [%s+%d], {%s, %s};", x->l.leads.s, at.s, MAP_IMAGE_HEADER,
		head.s, time.s);
	tr_emit(t, "mov.b64 %s, {%s, %s};", who.s, site.s, x->members.s);
	tr_emit(t, "mad.lo.u32 %s, %s, 8, %s;", info.s, log.s, x->shape.s);
	tr_emit(t, "shl.b32 %s, %s, 6;", k.s, op.s);
	tr_emit(t, "or.b32 %s, %s, %s;", info.s, info.s, k.s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", info64.s, info.s);
	tr_emit(t, "shl.b64 %s, %s, 56;", info64.s, info64.s);
	tr_emit(t, "and.b64 %s, %s, 0x00ffffffffffffff;", word.s, x->base.s);
	tr_emit(t, "or.b64 %s, %s, %s;", word.s, word.s, info64.s);
	tr_emit(t, "@%s st.global.v2.u64 [%s+%d], {%s, %s};", x->l.leads.s, at.s, RECORD, who.s,
		word.s);
	/* LINEAR and QUARTERS: the distance; the latter's second word is then quarter 1's. */
	tr_emit(t, "setp.eq.and.u32 %s, %s, %d, %s;", p.s, x->shape.s, EGPU_ACCESS_LINEAR,
		x->l.leads.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], 0;", p.s, at.s, RECORD + 20);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, at.s, RECORD + 16, x->stride.s);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %d, %s;", p.s, x->shape.s, EGPU_ACCESS_QUARTERS,
		x->l.leads.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, at.s, RECORD + 16, x->stride.s);
	tr_emit(t, "shr.u32 %s, %s, 3;", k.s, x->lane.s);
	own = tr_wide(t, k, 4, at);
	tr_emit(t, "setp.eq.u32 %s, %s, %d;", p.s, x->shape.s, EGPU_ACCESS_QUARTERS);
	tr_emit(t, "setp.eq.and.u32 %s, %s, %s, %s;", p.s, x->lane.s, x->quarter.s, p.s);
	tr_emit(t, "setp.ne.and.u32 %s, %s, 0, %s;", p.s, k.s, p.s);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, own.s, RECORD + 16, x->offset.s);
	own = tr_wide(t, x->l.rank, 4, at);
	tr_emit(t, "setp.eq.u32 %s, %s, %d;", p.s, x->shape.s, EGPU_ACCESS_NEAR);
	tr_emit(t, "@%s st.global.u32 [%s+%d], %s;", p.s, own.s, RECORD + 16, x->delta.s);
	own = tr_wide(t, x->l.rank, 8, at);
	tr_emit(t, "setp.eq.u32 %s, %s, %d;", p.s, x->shape.s, EGPU_ACCESS_FAR);
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

static void find_members(struct tr *t, struct access *x, struct tr_name site, struct tr_name op)
{
	struct tr_name below = tr_t32(t);
	x->is_member = tr_pred(t);
	x->stranger = tr_pred(t);
	x->members = tr_t32(t);
	compare(t, x, site, true);
	compare(t, x, op, false);
	compare(t, x, x->bytes, false);
	tr_emit(t, "not.pred %s, %s;", x->stranger.s, x->is_member.s);
	tr_emit(t, "vote.sync.ballot.b32 %s, %s, %s;", x->members.s, x->is_member.s, x->l.mask.s);
	tr_emit(t, "mov.u32 %s, %%lanemask_lt;", below.s);
	tr_emit(t, "and.b32 %s, %s, %s;", below.s, below.s, x->members.s);
	tr_emit(t, "popc.b32 %s, %s;", x->l.rank.s, below.s);
	tr_emit(t, "popc.b32 %s, %s;", x->l.n.s, x->members.s);
}

int tr_access_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_ring_arg(t, inst, i);
	if (!m)
		return tr_no_ring(t, inst, i);
	struct tr_name site = word_arg(t, inst, i, 1), op = word_arg(t, inst, i, 4), rc = tr_t64(t),
		       done = tr_label(t), room = tr_label(t), again = tr_label(t),
		       dropped = tr_label(t), rest = tr_t64(t), off = tr_t64(t);
	struct access x = {
		.address = tr_t64(t), .lane = tr_t32(t), .bytes = word_arg(t, inst, i, 3)
	};
	struct target w = { .g = tr_ring_of(t, m) };
	char pred[48];
	tr_emit(t, "mov.u64 %s, %s;", x.address.s, tr_scalar_arg(t, inst, i, 2).s);
	tr_emit(t, "and.b32 %s, %s, 3;", op.s, op.s);
	tr_emit(t, "mov.u32 %s, %%laneid;", x.lane.s);
	struct tr_name log = log_of(t, x.bytes);
	buf_printf(&t->body, "%s:\n", again.s);
	w.h = tr_ring_hint(t, &w.g);
	tr_emit(t, "mov.u64 %s, %d;", rc.s, EAGAIN_);
	tr_ring_skip(t, &w.h, dropped);
	x.l = tr_lanes_here(t);
	find_members(t, &x, site, op);
	x.base = of_lane(t, &x.l, x.address, x.l.first);
	find_stride(t, &x);
	find_shape(t, &x, log);
	find_room(t, &x, &w);
	snprintf(pred, sizeof(pred), "@%s ", x.l.leads.s);
	tr_emit(t, "@%s bra %s;", x.stranger.s, again.s);
	tr_emit(t, "@%s bra %s;", w.fits.s, room.s);
	step_unless(t, w.h.next, w.h.bins, w.fits);
	tr_ring_keep_hint(t, &w.h, &x.l.leads, true);
	buf_printf(&t->body, "%s:\n", dropped.s);
	tr_ring_drop(t, &w.h, true);
	tr_emit(t, "bra %s;", done.s);
	buf_printf(&t->body, "%s:\n", room.s);
	tr_ring_keep_hint(t, &w.h, &x.l.leads, false);
	struct tr_name at = tr_wide(t, w.h.bin, w.g.bin_bytes, tr_ring_data(t, &w.g));
	tr_emit(t, "cvt.u64.u32 %s, %s;", off.s, w.pos.s);
	tr_emit(t, "add.s64 %s, %s, %s;", at.s, at.s, off.s);
	write_record(t, &x, at, site, log, op);
	/* Each lane answers for what it has written with one byte, the first with all others. */
	struct tr_ring_record r = { .at = at,
		.count = tr_wide(t, w.h.bin, MAP_RING_COUNT_LINE, w.g.counts),
		.bytes = tr_imm(1),
		.grouped = true };
	tr_ring_commit(t, &r);
	tr_emit(t, "sub.u32 %s, %s, %s;", w.total.s, w.total.s, x.l.n.s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", rest.s, w.total.s);
	tr_ring_add(t, pred, r.count, rest);
	tr_emit(t, "mov.u64 %s, 0;", rc.s);
	buf_printf(&t->body, "%s:\n", done.s);
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, rc.s);
	return 0;
}
