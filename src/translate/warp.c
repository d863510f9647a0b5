/* warp.c - what the lanes of a warp add to one place is added once, by one of them.
 *
 * Lanes that execute an instruction together are those of `activemask`, taken in the same basic
 * block as every warp operation that names it; the lowest of them is elected, whatever its number.
 *
 *	address		value		the elected lane adds
 *	the same	the same	lanes * value
 *	the same	varies		the sum: redux from sm_80 on, else shuffles
 *	unknown		the same	per group of equal addresses (match.any, sm_70): its lanes * value
 *	unknown		varies		the sum if all addresses are equal (match.all and redux, sm_80), else each its own
 *
 * The same holds for what ands, ors, minima and maxima give: of equal values, the value.
 *
 * In a body for many runs at once (bpf/fragment.h, repeat) nobody is elected: what is added is the addend times the runs, by the lane that has
 * the word (join.c), of several of them.
 *
 * Where a target does not know the instructions, each lane adds for itself. What "the same" is, the
 * verifier has proved (facts[].uniform). The table of targets is that of the #if lines written here
 * (bpf/fragment.h).
 */
#include "translate/internal.h"

#include <string.h>

#define IF_MASK "#if ptx 6.2\n"
#define IF_MATCH "#if ptx 6.2 sm 70\n"
#define IF_REDUX "#if ptx 7.0 sm 80\n"

enum { LANE_BITS = 5, PIECE_BITS = 32 - LANE_BITS }; /* 32 pieces of so many bits sum up to 32 bits */

static void line(struct tr *t, const char *text)
{
	buf_puts(&t->body, text);
}

static bool begins(const char *line, const char *end, const char *word)
{
	size_t n = strlen(word);
	return (size_t)(end - line) >= n && !memcmp(line, word, n);
}

/* Whether the text from `at` on is without labels, jumps and calls. */
static bool is_straight(const struct tr *t, size_t at)
{
	const char *line = t->body.data + at, *text_end = t->body.data + t->body.len;
	for (const char *end; (end = memchr(line, '\n', (size_t)(text_end - line))); line = end + 1) {
		if (end > line && end[-1] == ':')
			return false;
		line += line < end && *line == '\t';
		if (line < end && *line == '@') {
			const char *blank = memchr(line, ' ', (size_t)(end - line));
			line = blank ? blank + 1 : end;
		}
		if (begins(line, end, "bra ") || begins(line, end, "call "))
			return false;
	}
	return true;
}

/* The lanes that are here, once in a basic block. */
static const struct tr_lanes *lanes(struct tr *t)
{
	struct tr_lanes *l = &t->lanes;
	if (l->at && !t->body.failed && is_straight(t, l->at)) {
		l->at = t->body.len;
		return l;
	}
	l->mask = tr_t32(t);
	l->below = tr_t32(t);
	l->count = tr_t32(t);
	l->first = tr_pred(t);
	l->lower = tr_t32(t);
	line(t, IF_MASK);
	tr_emit(t, "activemask.b32 %s;", l->mask.s);
	tr_emit(t, "mov.u32 %s, %%lanemask_lt;", l->below.s);
	tr_emit(t, "and.b32 %s, %s, %s;", l->lower.s, l->mask.s, l->below.s);
	tr_emit(t, "setp.eq.u32 %s, %s, 0;", l->first.s, l->lower.s);
	tr_emit(t, "popc.b32 %s, %s;", l->count.s, l->mask.s);
	line(t, "#endif\n");
	l->at = t->body.len;
	return l;
}

struct tr_name tr_nudge(struct tr *t, struct tr_name base, struct tr_name nudge)
{
	struct tr_name at = tr_t64(t);
	tr_emit(t, "mad.wide.u32 %s, %s, 8, %s;", at.s, nudge.s, base.s);
	return at;
}

/* -- equal values ------------------------------------------------------------ */

static const char *type_of(const struct tr_sum *s, const char *b64, const char *b32)
{
	return s->wide ? b64 : b32;
}

/* out = count * value, modulo its width. */
static void times(struct tr *t, const struct tr_sum *s, struct tr_name count, struct tr_name out)
{
	if (!s->constant) {
		struct tr_name n = count;
		if (s->wide) {
			n = tr_t64(t);
			tr_emit(t, "cvt.u64.u32 %s, %s;", n.s, count.s);
		}
		tr_emit(t, "mul.lo.%s %s, %s, %s;", type_of(s, "u64", "u32"), out.s, n.s, s->value.s);
	} else if (!s->wide) {
		tr_emit(t, "mul.lo.u32 %s, %s, %s;", out.s, count.s, s->value.s);
	} else if (s->addend >= 0 && s->addend <= UINT32_MAX) {
		tr_emit(t, "mul.wide.u32 %s, %s, %lld;", out.s, count.s, (long long)s->addend);
	} else {
		tr_emit(t, "cvt.u64.u32 %s, %s;", out.s, count.s);
		tr_emit(t, "mul.lo.u64 %s, %s, %s;", out.s, out.s, s->value.s);
	}
}

/* out = value * %egpu_passes, modulo its width. */
static void times_passes(struct tr *t, const struct tr_sum *s, struct tr_name out)
{
	struct tr_name n = tr_text("%egpu_passes");
	if (!s->wide) {
		n = tr_t32(t);
		tr_emit(t, "cvt.u32.u64 %s, %%egpu_passes;", n.s);
	}
	tr_emit(t, "mul.lo.%s %s, %s, %s;", type_of(s, "u64", "u32"), out.s, n.s, s->value.s);
}

/* out = what `count` lanes do together: of an even number of equal xors nothing is left, and or, and,
 * minimum and maximum are as good once as often. */
static void together(struct tr *t, const struct tr_sum *s, struct tr_name count, struct tr_name out)
{
	const char *b = type_of(s, "b64", "b32");
	if (s->op == TR_ADD) {
		times(t, s, count, out);
	} else if (s->op == TR_XOR) {
		struct tr_name odd = tr_t32(t), p = tr_pred(t);
		tr_emit(t, "and.b32 %s, %s, 1;", odd.s, count.s);
		tr_emit(t, "setp.ne.u32 %s, %s, 0;", p.s, odd.s);
		tr_emit(t, "selp.%s %s, %s, 0, %s;", b, out.s, s->value.s, p.s);
	} else {
		tr_emit(t, "mov.%s %s, %s;", b, out.s, s->value.s);
	}
}

/* The lowest lane that is here, where all lanes mean one address. */
static void elect_first(struct tr *t, struct tr_lead *out)
{
	tr_emit(t, "mov.pred %s, %s;", out->pred.s, t->lanes.first.s);
	tr_emit(t, "mov.u32 %s, %s;", out->nudge.s, t->lanes.lower.s);
}

static void equal_all(struct tr *t, const struct tr_sum *s, struct tr_lead *out)
{
	const struct tr_lanes *l = lanes(t);
	line(t, IF_MASK);
	together(t, s, l->count, out->value);
	elect_first(t, out);
}

static void equal_groups(struct tr *t, const struct tr_sum *s, struct tr_lead *out)
{
	const struct tr_lanes *l = lanes(t);
	struct tr_name group = tr_t32(t), lower = tr_t32(t), count = tr_t32(t);
	line(t, IF_MATCH);
	tr_emit(t, "match.any.sync.b64 %s, %s, %s;", group.s, s->address.s, l->mask.s);
	tr_emit(t, "and.b32 %s, %s, %s;", lower.s, group.s, l->below.s);
	tr_emit(t, "popc.b32 %s, %s;", count.s, group.s);
	together(t, s, count, out->value);
	tr_emit(t, "setp.eq.u32 %s, %s, 0;", out->pred.s, lower.s);
}

/* -- values that vary --------------------------------------------------------- */

static void redux(struct tr *t, const char *op, struct tr_name out, struct tr_name value)
{
	tr_emit(t, "redux.sync.%s %s, %s, %s;", op, out.s, value.s, t->lanes.mask.s);
}

/* Pieces of a 64-bit value, so small that their sums do not overflow. */
static void redux_wide(struct tr *t, const struct tr_sum *s, struct tr_name out)
{
	for (uint32_t at = 0; at < s->bits; at += PIECE_BITS) {
		struct tr_name piece = tr_t64(t), low = tr_t32(t), sum = tr_t32(t);
		tr_emit(t, "shr.u64 %s, %s, %u;", piece.s, s->value.s, at);
		tr_emit(t, "cvt.u32.u64 %s, %s;", low.s, piece.s);
		if (at + PIECE_BITS < s->bits)
			tr_emit(t, "and.b32 %s, %s, 0x%x;", low.s, low.s, (1u << PIECE_BITS) - 1);
		redux(t, "add.u32", sum, low);
		if (!at) {
			tr_emit(t, "cvt.u64.u32 %s, %s;", out.s, sum.s);
			continue;
		}
		tr_emit(t, "cvt.u64.u32 %s, %s;", piece.s, sum.s);
		tr_emit(t, "shl.b64 %s, %s, %u;", piece.s, piece.s, at);
		tr_emit(t, "add.s64 %s, %s, %s;", out.s, out.s, piece.s);
	}
}

static const char *bits_name(enum tr_op op)
{
	return op == TR_AND ? "and.b32" : op == TR_OR ? "or.b32" : "xor.b32";
}

static void redux_bits(struct tr *t, const struct tr_sum *s, struct tr_name out)
{
	const char *op = bits_name(s->op);
	struct tr_name lo = tr_t32(t), hi = tr_t32(t);
	if (!s->wide) {
		redux(t, op, out, s->value);
		return;
	}
	tr_emit(t, "mov.b64 {%s, %s}, %s;", lo.s, hi.s, s->value.s);
	redux(t, op, lo, lo);
	redux(t, op, hi, hi);
	tr_emit(t, "mov.b64 %s, {%s, %s};", out.s, lo.s, hi.s);
}

/* Of 64 bits: the upper halves decide, and among those lanes that have the best of them the lower ones. */
static void redux_extreme(struct tr *t, const struct tr_sum *s, struct tr_name out)
{
	bool min = s->op == TR_MIN;
	char op[16], low[16];
	snprintf(op, sizeof(op), "%s.%c32", min ? "min" : "max", s->is_signed ? 's' : 'u');
	snprintf(low, sizeof(low), "%s.u32", min ? "min" : "max");
	if (!s->wide) {
		redux(t, op, out, s->value);
		return;
	}
	struct tr_name lo = tr_t32(t), hi = tr_t32(t), best = tr_t32(t), p = tr_pred(t);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", lo.s, hi.s, s->value.s);
	redux(t, op, best, hi);
	tr_emit(t, "setp.eq.u32 %s, %s, %s;", p.s, hi.s, best.s);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", lo.s, lo.s, min ? "0xffffffff" : "0", p.s);
	redux(t, low, lo, lo);
	tr_emit(t, "mov.b64 %s, {%s, %s};", out.s, lo.s, best.s);
}

static void redux_sum(struct tr *t, const struct tr_sum *s, struct tr_name out)
{
	if (s->op == TR_MIN || s->op == TR_MAX)
		redux_extreme(t, s, out);
	else if (s->op != TR_ADD)
		redux_bits(t, s, out);
	else if (s->wide)
		redux_wide(t, s, out);
	else
		redux(t, "add.u32", out, s->value);
}

/* The instruction for two lanes' values. */
static struct tr_name both_name(const struct tr_sum *s)
{
	static const char *const names[] = { [TR_ADD] = "add.s", [TR_AND] = "and.b", [TR_OR] = "or.b", [TR_XOR] = "xor.b" };
	struct tr_name out;
	if (s->op == TR_MIN || s->op == TR_MAX)
		snprintf(out.s, sizeof(out.s), "%s.%c%d", s->op == TR_MIN ? "min" : "max", s->is_signed ? 's' : 'u', s->wide ? 64 : 32);
	else
		snprintf(out.s, sizeof(out.s), "%s%d", names[s->op], s->wide ? 64 : 32);
	return out;
}

/* part = the value that lane `from` has in `part`. */
static void shuffle(struct tr *t, struct tr_name to, struct tr_name part, struct tr_name from)
{
	tr_emit(t, "shfl.sync.idx.b32 %s, %s, %s, 31, %s;", to.s, part.s, from.s, t->lanes.mask.s);
}

/* The lane's sum plus that of the next lane that is here, which then stands for twice as many: five times. Lanes that
 * stand last (next = 32) take from themselves, and nothing. */
static void shuffle_step(struct tr *t, const struct tr_sum *s, struct tr_name sum, struct tr_name next, struct tr_name self)
{
	struct tr_name op = both_name(s);
	struct tr_name has = tr_pred(t), from = tr_t32(t), after = tr_t32(t), lo = tr_t32(t), hi = tr_t32(t);
	tr_emit(t, "setp.ne.u32 %s, %s, 32;", has.s, next.s);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", from.s, next.s, self.s, has.s);
	shuffle(t, after, next, from);
	if (s->wide) {
		struct tr_name more = tr_t64(t);
		tr_emit(t, "mov.b64 {%s, %s}, %s;", lo.s, hi.s, sum.s);
		shuffle(t, lo, lo, from);
		shuffle(t, hi, hi, from);
		tr_emit(t, "mov.b64 %s, {%s, %s};", more.s, lo.s, hi.s);
		tr_emit(t, "@%s %s %s, %s, %s;", has.s, op.s, sum.s, sum.s, more.s);
	} else {
		shuffle(t, lo, sum, from);
		tr_emit(t, "@%s %s %s, %s, %s;", has.s, op.s, sum.s, sum.s, lo.s);
	}
	tr_emit(t, "@%s mov.u32 %s, %s;", has.s, next.s, after.s);
}

static void shuffle_sum(struct tr *t, const struct tr_sum *s, struct tr_name out)
{
	struct tr_name next = tr_t32(t), self = tr_t32(t);
	tr_emit(t, "mov.%s %s, %s;", type_of(s, "b64", "b32"), out.s, s->value.s);
	tr_emit(t, "mov.u32 %s, %%lanemask_gt;", next.s);
	tr_emit(t, "mov.u32 %s, %%laneid;", self.s);
	tr_emit(t, "and.b32 %s, %s, %s;", next.s, next.s, t->lanes.mask.s);
	tr_emit(t, "brev.b32 %s, %s;", next.s, next.s);
	tr_emit(t, "clz.b32 %s, %s;", next.s, next.s); /* 32 of none */
	for (int k = 0; k < LANE_BITS; k++)
		shuffle_step(t, s, out, next, self);
}

static void varying_all(struct tr *t, const struct tr_sum *s, struct tr_lead *out)
{
	lanes(t);
	line(t, IF_REDUX);
	redux_sum(t, s, out->value);
	elect_first(t, out);
	line(t, "#elif ptx 6.2\n");
	shuffle_sum(t, s, out->value);
	elect_first(t, out);
}

static void varying_perhaps(struct tr *t, const struct tr_sum *s, struct tr_lead *out)
{
	const struct tr_lanes *l = lanes(t);
	struct tr_name group = tr_t32(t), same = tr_pred(t), sum = s->wide ? tr_t64(t) : tr_t32(t);
	line(t, IF_REDUX);
	tr_emit(t, "match.all.sync.b64 %s|%s, %s, %s;", group.s, same.s, s->address.s, l->mask.s);
	redux_sum(t, s, sum);
	tr_emit(t, "selp.%s %s, %s, %s, %s;", type_of(s, "b64", "b32"), out->value.s, sum.s, s->value.s, same.s);
	tr_emit(t, "not.pred %s, %s;", out->pred.s, same.s);
	tr_emit(t, "or.pred %s, %s, %s;", out->pred.s, out->pred.s, l->first.s);
}

void tr_elect(struct tr *t, const struct tr_sum *s, struct tr_lead *out)
{
	*out = (struct tr_lead){ .pred = tr_pred(t), .value = s->value, .all = t->one_lane };
	if (out->all)
		return;
	if (t->repeat) {
		out->all = false;
		out->value = s->wide ? tr_t64(t) : tr_t32(t);
		times_passes(t, s, out->value);
		tr_emit(t, "setp.eq.u32 %s, %%egpu_word, 0;", out->pred.s);
		return;
	}
	if (t->once) {
		out->all = out->nudged = true;
		out->nudge = t->zero;
		out->value = s->wide ? tr_t64(t) : tr_t32(t);
		together(t, s, t->threads, out->value);
		return;
	}
	out->value = s->wide ? tr_t64(t) : tr_t32(t);
	out->nudged = s->same_address;
	if (out->nudged)
		out->nudge = tr_t32(t);
	if (s->same_value)
		(s->same_address ? equal_all : equal_groups)(t, s, out);
	else
		(s->same_address ? varying_all : varying_perhaps)(t, s, out);
	line(t, "#else\n");
	tr_emit(t, "mov.%s %s, %s;", type_of(s, "b64", "b32"), out->value.s, s->value.s);
	tr_emit(t, "setp.eq.u32 %s, 0, 0;", out->pred.s);
	if (out->nudged)
		tr_emit(t, "mov.u32 %s, 0;", out->nudge.s);
	line(t, "#endif\n");
}

/* Bits that the register's value may have, by what set it in this block: zero-extended loads, 32-bit arithmetic. */
uint32_t tr_known_bits(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t reg)
{
	for (; i > 0 && !inst->at[i].join && tr_next(t, inst, i - 1) == (int32_t)i; i--) {
		const struct bpf_insn *in = tr_bpf(t, inst, i - 1);
		if (!(tr_defs(t, inst, i - 1) >> reg & 1))
			continue;
		switch (BPF_CLASS(in->code)) {
		case BPF_LDX:
			return BPF_MODE(in->code) == BPF_MEM ? 8 * ebpf_insn_bytes(in->code) : 64;
		case BPF_ALU:
			return BPF_OP(in->code) == BPF_END ? 64 : 32;
		case BPF_ALU64:
			if (in->code == (BPF_ALU64 | BPF_MOV | BPF_X) && !in->off) {
				reg = in->src_reg;
				continue;
			}
			if (in->code == (BPF_ALU64 | BPF_RSH | BPF_K))
				return 64 - (in->imm & 63);
			if (in->code == (BPF_ALU64 | BPF_AND | BPF_K) && in->imm > 0)
				return 32 - (uint32_t)__builtin_clz((uint32_t)in->imm);
			return 64;
		default:
			return 64;
		}
	}
	return 64;
}
