/* extreme.c - `if (x < *v) *v = x;` and its like on map values and globals become one atomic min or max.
 *
 * Clang compiles them to a load, a compared jump that looks at what was loaded, and a store; or, of `*v = x < *v ? x : *v`, to a jump
 * around a move of what was loaded, and a store behind both ways. As written they lose what others store between load and store: a
 * smaller value can be overwritten by a larger one. With the store made an atomic minimum, nothing is lost, whatever the load found.
 *
 *	L: old = *v			L: old = *v
 *	B: if old <= x goto J		B: if x < old goto J		x is in `kept` already; or old is, and
 *	S: *v = x			   kept = old			the other way moves x there
 *	J:				J: ...
 *					S: *v = kept
 *
 * Where nobody else wants old, load and jump go too, and each lane gives its x: S is on the way then, and `kept` is x.
 * Otherwise load and jump stay, and S alone becomes atomic: `kept` is then x or what was there at some time, which is no better than what is there now.
 * On the left there may be other conditions behind B that lead to J as well, and one S for several of these (`if (c) { if (x < *v) *v = x; } else
 * if (y < *v) *v = y;`), if nothing else leads there.
 *
 * Followed are, in a straight line: moves of old and of x, and what makes 32 bits comparable as 64 (shifts up and down, zero or
 * sign extension). The compared x and the stored one must be the same number that way.
 */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

enum { CHAIN_MAX = 16, AFTER_MAX = 64 };

/* How a register holds the loaded value. */
enum form { NOT_OLD, OLD, OLD_HIGH, OLD_SIGNED };

struct seek {
	struct tr *t;
	struct tr_inst *inst;
	const uint16_t *preds;
	uint32_t load, jump, store, bytes;
	struct tr_bases bases; /* of the place, where the jump is */
	uint8_t form[TR_REGS]; /* before the jump */
	uint32_t steps[CHAIN_MAX], n_steps; /* moves and extensions of old */
	uint8_t old, x;	       /* registers that are compared */
	bool is_signed;
	bool taken;	       /* the way that x is stored on, or kept, is the one that the jump takes */
	uint32_t join;
	bool alone;	       /* nothing but this wants old */
};

static const struct bpf_insn *at(const struct seek *s, uint32_t i)
{
	return tr_bpf(s->t, s->inst, i);
}

static bool is_alu(const struct bpf_insn *in)
{
	return BPF_CLASS(in->code) == BPF_ALU64 || BPF_CLASS(in->code) == BPF_ALU;
}

static bool is_move(const struct bpf_insn *in)
{
	return is_alu(in) && BPF_OP(in->code) == BPF_MOV && BPF_SRC(in->code) == BPF_X;
}

static bool is_shift(const struct bpf_insn *in, uint8_t op)
{
	return in->code == (BPF_ALU64 | op | BPF_K) && in->imm == 32;
}

/* -- old, from its load to the jump ----------------------------------------------- */

/* What becomes of old in `from` by an instruction: NOT_OLD: it is used up. */
static uint8_t step(const struct seek *s, const struct bpf_insn *in, uint8_t from)
{
	bool narrow = s->bytes == 4;
	if (is_move(in)) {
		if (in->off)
			return narrow && in->off == 32 && BPF_CLASS(in->code) == BPF_ALU64 && from != OLD_HIGH ? OLD_SIGNED : NOT_OLD;
		if (BPF_CLASS(in->code) == BPF_ALU64)
			return from;
		return narrow && from != OLD_HIGH ? OLD : NOT_OLD;
	}
	if (!narrow)
		return NOT_OLD;
	if (is_shift(in, BPF_LSH) && from != OLD_HIGH)
		return OLD_HIGH;
	if (from == OLD_HIGH && is_shift(in, BPF_RSH))
		return OLD;
	return from == OLD_HIGH && is_shift(in, BPF_ARSH) ? OLD_SIGNED : NOT_OLD;
}

/* Whether i may write the place that was loaded. Offsets count from the start of a value, and values do not overlap. */
static bool may_touch(const struct seek *s, uint32_t i)
{
	const struct ebpf_fact *a = tr_fact(s->t, s->inst, s->load), *b = tr_fact(s->t, s->inst, i);
	if (!tr_is_store(at(s, i)) || b->region != EBPF_REGION_MAP_VALUE)
		return false;
	if (b->map >= 0 && s->t->p->maps[a->map].id != s->t->p->maps[b->map].id)
		return false;
	return b->map < 0 || !a->fixed || !b->fixed ||
	       (a->offset < b->offset + (int32_t)ebpf_insn_bytes(at(s, i)->code) && b->offset < a->offset + (int32_t)s->bytes);
}

static uint16_t holders(const struct seek *s)
{
	uint16_t regs = 0;
	for (uint32_t r = 0; r < TR_REGS; r++)
		if (s->form[r])
			regs |= reg_bit(r);
	return regs;
}

static bool pass(struct seek *s, uint32_t i)
{
	const struct bpf_insn *in = at(s, i);
	uint16_t old = holders(s), uses = tr_uses(s->t, s->inst, i), defs = tr_defs(s->t, s->inst, i);
	if (s->inst->at[i].dead)
		return true;
	if (tr_is_call(in) || tr_is_exit(in) || may_touch(s, i))
		return false;
	if (uses & old) {
		uint8_t from = is_alu(in) ? s->form[is_move(in) ? in->src_reg : in->dst_reg] : NOT_OLD,
			form = from ? step(s, in, from) : NOT_OLD;
		if (!form || s->n_steps + 1 == CHAIN_MAX || s->inst->at[i].role != TR_PLAIN)
			return false;
		s->form[in->dst_reg] = form;
		s->steps[s->n_steps++] = i;
		return true;
	}
	for (uint32_t r = 0; r < TR_REGS; r++)
		if (defs >> r & 1)
			s->form[r] = NOT_OLD;
	return true;
}

static bool is_compare(const struct bpf_insn *in)
{
	uint8_t op = BPF_OP(in->code);
	return tr_is_jump(in) && BPF_SRC(in->code) == BPF_X && op != BPF_JA && op != BPF_CALL && op != BPF_EXIT && op != BPF_JSET &&
	       op != BPF_JEQ && op != BPF_JNE;
}

/* The jump that old is first compared in, if the verifier has not decided it: then what it compares may never be computed. */
static bool find_jump(struct seek *s)
{
	s->form[at(s, s->load)->dst_reg] = OLD;
	for (uint32_t i = s->load + 1; i < s->inst->n; i++) {
		if (tr_next(s->t, s->inst, i - 1) != (int32_t)i || s->inst->at[i].join)
			return false;
		const struct bpf_insn *in = at(s, i);
		if (tr_is_jump(in) && !tr_is_call(in)) {
			s->jump = i;
			return is_compare(in) && s->inst->at[i].role == TR_PLAIN && !s->form[in->dst_reg] != !s->form[in->src_reg] &&
			       tr_next(s->t, s->inst, i) >= 0 && tr_jump(s->t, s->inst, i) >= 0;
		}
		if (!pass(s, i) || !holders(s))
			return false;
	}
	return false;
}

/* -- the number in a register -------------------------------------------------------- */

/* Where it came from: register r before instruction i of the jump's block; 8 bytes: unchanged, 4: its low half. */
struct origin {
	uint8_t r;
	uint32_t i;
};

/* The instruction that is always run last before i, but for some that jumps go around and that leave the register alone; -1. */
static int32_t before(const struct seek *s, uint8_t r, uint32_t i)
{
	if (!i || tr_next(s->t, s->inst, i - 1) != (int32_t)i)
		return -1;
	if (!s->inst->at[i].join)
		return (int32_t)i - 1;
	for (uint32_t k = i - 1; s->preds[i] == 2; k--) {
		if (tr_jump(s->t, s->inst, k) == (int32_t)i)
			return (int32_t)k;
		if (!k || s->inst->at[k].join || tr_next(s->t, s->inst, k - 1) != (int32_t)k || tr_defs(s->t, s->inst, k) >> r & 1)
			return -1;
	}
	return -1;
}

/* The one that sets the register last; -1: it is not known, and the register is what it was before *i. */
static int32_t setter(const struct seek *s, uint8_t r, uint32_t *i)
{
	for (int32_t k; (k = before(s, r, *i)) >= 0; *i = (uint32_t)k)
		if (!s->inst->at[k].dead && tr_defs(s->t, s->inst, (uint32_t)k) >> r & 1)
			return k;
	return -1;
}

/* *sign: as which kind of 64-bit number the register holds its low half; 0: neither is known. */
static struct origin origin_of(const struct seek *s, uint8_t r, uint32_t i, char *sign)
{
	bool narrow = s->bytes == 4;
	for (*sign = 0;;) {
		int32_t set = setter(s, r, &i);
		const struct bpf_insn *in = set < 0 ? NULL : at(s, (uint32_t)set);
		bool whole = in && is_move(in) && BPF_CLASS(in->code) == BPF_ALU64 && !in->off;
		bool half = in && narrow && is_move(in) && !whole && (!in->off || in->off == 32);
		bool down = in && narrow && (is_shift(in, BPF_RSH) || is_shift(in, BPF_ARSH));
		if (!*sign && (half || down))
			*sign = in->off || is_shift(in, BPF_ARSH) ? 's' : 'u';
		uint32_t at_shift = set < 0 ? 0 : (uint32_t)set;
		int32_t up = down ? setter(s, r, &at_shift) : -1;
		if (whole || half)
			r = in->src_reg;
		if (up >= 0 && is_shift(at(s, (uint32_t)up), BPF_LSH))
			i = (uint32_t)up;
		else if (whole || half)
			i = (uint32_t)set;
		else
			break;
	}
	if (!*sign && tr_known_bits(s->t, s->inst, i, r) <= 32)
		*sign = 'u';
	return (struct origin){ r, i };
}

/* Whether register y, where the jump is, is the x that is compared there. */
static bool is_x(const struct seek *s, uint8_t y)
{
	char sign;
	struct origin a = origin_of(s, s->x, s->jump, &sign), b = origin_of(s, y, s->jump, &sign);
	return a.r == b.r && a.i == b.i;
}

/* Whether the jump compares all of old with all of x, as numbers of old's width. */
static bool comparable(struct seek *s)
{
	const struct bpf_insn *in = at(s, s->jump);
	bool dst_is_old = s->form[in->dst_reg];
	char sign;
	s->old = dst_is_old ? in->dst_reg : in->src_reg;
	s->x = dst_is_old ? in->src_reg : in->dst_reg;
	s->is_signed = BPF_OP(in->code) >= BPF_JSGT && BPF_OP(in->code) <= BPF_JSGE;
	s->is_signed |= BPF_OP(in->code) == BPF_JSLT || BPF_OP(in->code) == BPF_JSLE;
	origin_of(s, s->x, s->jump, &sign);
	if (s->bytes == 8)
		return BPF_CLASS(in->code) == BPF_JMP && s->form[s->old] == OLD;
	if (BPF_CLASS(in->code) == BPF_JMP32)
		return s->form[s->old] != OLD_HIGH;
	return s->is_signed ? s->form[s->old] == OLD_SIGNED && sign == 's' : s->form[s->old] == OLD && sign == 'u';
}

/* Whether x < old (or equal) where the jump is taken, else x > old (or equal). */
static bool taken_if_less(const struct seek *s)
{
	const struct bpf_insn *in = at(s, s->jump);
	uint8_t op = BPF_OP(in->code);
	bool dst_less = op == BPF_JLT || op == BPF_JLE || op == BPF_JSLT || op == BPF_JSLE;
	return dst_less == (in->dst_reg == s->x);
}

/* -- the two ways behind the jump ----------------------------------------------------- */

/* What stands on one way, up to where others may come in. */
struct way {
	uint32_t at[CHAIN_MAX], n;
	int32_t end; /* index; -1: the program ends on it, or it is too long */
};

/* Where a way goes on behind i: of a jump on something else, which leads to where the way ends anyhow, the side that stays on it. */
static int32_t onward(const struct seek *s, uint32_t i, int32_t end)
{
	int32_t next = tr_next(s->t, s->inst, i), jump = tr_jump(s->t, s->inst, i);
	if (tr_is_goto(at(s, i)))
		return jump;
	if (jump < 0 || next < 0)
		return jump < 0 ? next : jump;
	return jump == end ? next : next == end ? jump : -1;
}

static bool is_branch(const struct bpf_insn *in)
{
	return tr_is_jump(in) && !tr_is_goto(in) && !tr_is_call(in) && !tr_is_exit(in);
}

/* `end`: where the other way goes at once; -1. */
static void follow(const struct seek *s, int32_t i, int32_t end, struct way *w)
{
	w->n = 0;
	for (; i >= 0 && i != end && s->preds[i] == 1; i = onward(s, (uint32_t)i, end)) {
		const struct bpf_insn *in = at(s, (uint32_t)i);
		bool stays = tr_is_jump(in) && !tr_is_goto(in) && !(is_branch(in) && onward(s, (uint32_t)i, end) >= 0);
		if (stays || w->n == CHAIN_MAX) {
			w->end = stays ? i : -1;
			return;
		}
		if (!tr_is_goto(in) && !s->inst->at[i].dead)
			w->at[w->n++] = (uint32_t)i;
	}
	w->end = i;
}

static bool same_place(const struct seek *s, uint32_t store, const struct tr_bases *bases)
{
	const struct bpf_insn *a = at(s, s->load), *b = at(s, store);
	const struct ebpf_fact *fa = tr_fact(s->t, s->inst, s->load), *fb = tr_fact(s->t, s->inst, store);
	if (b->code != (BPF_STX | BPF_MEM | BPF_SIZE(a->code)) || fb->region != EBPF_REGION_MAP_VALUE || fa->map < 0 || fa->map != fb->map)
		return false;
	return tr_bases_lead(s->t, s->inst, store, bases) ||
	       (tr_single_value(s->t, fa->map) && fa->fixed && fb->fixed && fa->offset == fb->offset);
}

static void find_bases(struct seek *s)
{
	tr_bases_at(s->t, s->inst, s->load, &s->bases);
	for (uint32_t i = s->load; i < s->jump; i++)
		tr_bases_pass(s->t, s->inst, i, &s->bases);
}

static bool is_frozen(const struct seek *s, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(s->t, s->inst, i);
	return f->region == EBPF_REGION_MAP_VALUE && f->map >= 0 && s->t->p->maps[f->map].frozen;
}

/* Whether an instruction on the way to the store may run where the comparison would have said no. */
static bool may_be_idle(const struct seek *s, uint32_t i, int32_t end)
{
	const struct bpf_insn *in = at(s, i);
	uint8_t region = tr_fact(s->t, s->inst, i)->region;
	if (s->inst->at[i].role != TR_PLAIN)
		return false;
	if (BPF_CLASS(in->code) == BPF_LDX)
		return region == EBPF_REGION_CONTEXT || region == EBPF_REGION_STACK || is_frozen(s, i);
	return is_alu(in) || ebpf_is_imm64(in) || (is_branch(in) && onward(s, i, end) >= 0);
}

/* if (x < *v) *v = x: the store on the way. What else stands there may stay if all of it is undone by nobody: registers that nobody
 * reads behind it. */
static bool find_branch_store(struct seek *s, const struct way *w, const struct way *rest)
{
	struct tr_bases bases = s->bases;
	uint16_t extra = 0;
	bool found = false;
	s->alone = w->end >= 0 && !rest->n && rest->end == w->end;
	for (uint32_t k = 0; k < w->n; k++) {
		uint32_t i = w->at[k];
		const struct bpf_insn *in = at(s, i);
		if (!found && same_place(s, i, &bases) && !(extra >> in->src_reg & 1) && is_x(s, in->src_reg)) {
			s->store = i;
			found = true;
			continue;
		}
		if (!found && may_touch(s, i))
			return false;
		tr_bases_pass(s->t, s->inst, i, &bases);
		extra |= tr_defs(s->t, s->inst, i);
		s->alone &= may_be_idle(s, i, w->end);
	}
	if (!found)
		return false;
	uint16_t old = holders(s);
	for (uint32_t k = 0; k < w->n; k++) {
		s->alone &= !(tr_uses(s->t, s->inst, w->at[k]) & old);
		old &= ~tr_defs(s->t, s->inst, w->at[k]);
	}
	s->alone = s->alone && !(s->inst->at[w->end].live_in & (holders(s) | extra));
	return true;
}

/* Whether the instruction moves a whole number, of the loaded width, into a register. */
static bool moves(const struct seek *s, const struct bpf_insn *in)
{
	return is_move(in) && (s->bytes == 8 ? BPF_CLASS(in->code) == BPF_ALU64 && !in->off : !in->off || in->off == 32);
}

/* kept = old on one way, x on the other: the register, and the move of old, -1 where `kept` is what was loaded into. */
static bool find_kept(const struct seek *s, const struct way *old, const struct way *x, uint8_t *kept, int32_t *move)
{
	if (old->n + x->n == 0 || old->n > 1 || x->n > 1 || old->end < 0 || old->end != x->end)
		return false;
	const struct bpf_insn *of_old = old->n ? at(s, old->at[0]) : NULL, *of_x = x->n ? at(s, x->at[0]) : NULL;
	*kept = of_old ? of_old->dst_reg : of_x->dst_reg;
	*move = of_old ? (int32_t)old->at[0] : -1;
	uint8_t form = s->form[of_old ? of_old->src_reg : *kept];
	if ((of_old && !moves(s, of_old)) || !form || form == OLD_HIGH)
		return false;
	if (!of_x)
		return is_x(s, *kept);
	return moves(s, of_x) && of_x->dst_reg == *kept && !s->form[of_x->src_reg] && is_x(s, of_x->src_reg);
}

/* How many ways lead from [from, to) to instruction i. */
static uint32_t ways_from(const struct seek *s, uint32_t from, uint32_t to, uint32_t i)
{
	uint32_t n = 0;
	for (uint32_t k = from; k < to; k++)
		n += (tr_next(s->t, s->inst, k) == (int32_t)i) + (tr_jump(s->t, s->inst, k) == (int32_t)i);
	return n;
}

/* Whether the register is wanted nowhere outside of [join, store]. */
static bool ends_with_store(const struct seek *s, uint8_t r)
{
	if (s->inst->at[s->store].live_out >> r & 1)
		return false;
	for (uint32_t k = s->join; k < s->store; k++) {
		int32_t to = tr_jump(s->t, s->inst, k);
		if (to >= 0 && ((uint32_t)to <= k || ((uint32_t)to > s->store && s->inst->at[to].live_in >> r & 1)))
			return false;
	}
	return true;
}

/* The store of `kept` behind the join: to what stands between nothing leads from elsewhere, and nothing of it changes `kept`. */
static bool find_store_behind(struct seek *s, uint8_t kept)
{
	struct tr_bases bases = s->bases;
	bool straight = true;
	bases.regs &= (uint16_t)~reg_bit(kept);
	for (uint32_t i = s->join; i < s->inst->n && i < s->join + AFTER_MAX; i++) {
		const struct bpf_insn *in = at(s, i);
		if ((i == s->join ? 2 : ways_from(s, s->join, i, i)) != s->preds[i])
			return false;
		if (s->inst->at[i].dead)
			continue;
		if (same_place(s, i, &bases) && in->src_reg == kept) {
			s->store = i;
			s->alone &= ends_with_store(s, kept);
			return true;
		}
		uint16_t d = tr_defs(s->t, s->inst, i);
		if (tr_is_call(in) || tr_is_exit(in) || (d | tr_uses(s->t, s->inst, i)) >> kept & 1 || may_touch(s, i))
			return false;
		straight &= !tr_is_jump(in);
		if (straight)
			tr_bases_pass(s->t, s->inst, i, &bases);
		else
			bases.regs &= (uint16_t)~d;
	}
	return false;
}

/* *v = x < *v ? x : *v. */
static bool find_select_store(struct seek *s, const struct way *taken, const struct way *next, int32_t *move)
{
	uint8_t kept;
	bool taken_is_old = find_kept(s, taken, next, &kept, move);
	if (!taken_is_old && !find_kept(s, next, taken, &kept, move))
		return false;
	s->join = (uint32_t)next->end;
	s->taken = !taken_is_old;
	s->alone = !(s->inst->at[s->join].live_in & holders(s) & ~reg_bit(kept));
	return find_store_behind(s, kept);
}

/* -- marks ------------------------------------------------------------------------------ */

static int commit(struct seek *s, int32_t move)
{
	struct tr_insn *insns = s->inst->at;
	struct tr_rmw *rmw = arena_alloc(s->t->arena, sizeof(*rmw));
	if (!rmw)
		return diag_set(s->t->d, ENOMEM, "out of memory");
	*rmw = (struct tr_rmw){ .op = taken_if_less(s) == s->taken ? TR_MIN : TR_MAX, .is_signed = s->is_signed, .load = s->load,
		.store = s->store, .bytes = s->bytes, .jumps = s->taken,
		.uniform = !s->alone || tr_fact(s->t, s->inst, s->jump)->uniform >> s->x & 1 };
	insns[s->store].role = TR_RMW_STORE;
	insns[s->store].rmw = rmw;
	if (!s->alone)
		return 0;
	insns[s->load].role = TR_RMW_LOAD;
	insns[s->load].rmw = rmw;
	insns[s->jump].role = TR_RMW_JUMP;
	insns[s->jump].rmw = rmw;
	if (move >= 0)
		s->steps[s->n_steps++] = (uint32_t)move;
	for (uint32_t k = 0; k < s->n_steps; k++) {
		insns[s->steps[k]].role = TR_RMW_STEP;
		insns[s->steps[k]].rmw = rmw;
	}
	return 0;
}

/* Ways that come to an instruction, all to make one store of the same kind. */
struct arrivals {
	uint32_t n, store, load;
	enum tr_op op;
	bool is_signed, mixed;
};

/* The store behind the way's end, where others come in: it is x that is stored there for those who come this way. */
static bool find_common_store(struct seek *s, const struct way *w)
{
	struct tr_bases bases = s->bases;
	uint16_t extra = 0;
	if (w->end < 0 || s->preds[w->end] < 2)
		return false;
	for (uint32_t k = 0; k < w->n; k++) {
		if (may_touch(s, w->at[k]) || tr_is_call(at(s, w->at[k])) || is_branch(at(s, w->at[k])))
			return false;
		tr_bases_pass(s->t, s->inst, w->at[k], &bases);
		extra |= tr_defs(s->t, s->inst, w->at[k]);
	}
	uint32_t i = (uint32_t)w->end;
	for (int n = 0; n < CHAIN_MAX; n++) {
		const struct bpf_insn *in = at(s, i);
		if (same_place(s, i, &bases) && !(extra >> in->src_reg & 1) && is_x(s, in->src_reg)) {
			s->store = i;
			return s->inst->at[i].role == TR_PLAIN;
		}
		if (may_touch(s, i) || tr_is_jump(in) || tr_next(s->t, s->inst, i) != (int32_t)i + 1 || s->preds[i + 1] > 1)
			return false;
		tr_bases_pass(s->t, s->inst, i, &bases);
		extra |= tr_defs(s->t, s->inst, i);
		i++;
	}
	return false;
}

static void arrive(struct seek *s, const struct way *w, bool taken, struct arrivals *all)
{
	if (!find_common_store(s, w))
		return;
	struct arrivals *a = &all[w->end];
	enum tr_op op = taken_if_less(s) == taken ? TR_MIN : TR_MAX;
	a->mixed |= a->n && (a->store != s->store || a->op != op || a->is_signed != s->is_signed);
	if (!a->n++)
		*a = (struct arrivals){ .n = 1, .store = s->store, .load = s->load, .op = op, .is_signed = s->is_signed };
}

/* Stores to which nothing else leads. */
static int commit_common(struct tr *t, struct tr_inst *inst, const uint16_t *preds, const struct arrivals *all)
{
	for (uint32_t i = 0; i < inst->n; i++) {
		const struct arrivals *a = &all[i];
		if (!a->n || a->n != preds[i] || a->mixed || inst->at[a->store].role != TR_PLAIN)
			continue;
		struct tr_rmw *rmw = arena_alloc(t->arena, sizeof(*rmw));
		if (!rmw)
			return diag_set(t->d, ENOMEM, "out of memory");
		*rmw = (struct tr_rmw){ .op = a->op, .is_signed = a->is_signed, .load = a->load, .store = a->store, .several = true,
			.bytes = ebpf_insn_bytes(tr_bpf(t, inst, a->store)->code) };
		inst->at[a->store].role = TR_RMW_STORE;
		inst->at[a->store].rmw = rmw;
	}
	return 0;
}

static int from_load(struct seek *s, struct arrivals *arrivals)
{
	struct way taken, next;
	int32_t move;
	if (!find_jump(s) || !comparable(s))
		return 0;
	find_bases(s);
	int32_t jump = tr_jump(s->t, s->inst, s->jump), fall = tr_next(s->t, s->inst, s->jump);
	follow(s, jump, s->preds[fall] > 1 ? fall : -1, &taken);
	follow(s, fall, s->preds[jump] > 1 ? jump : -1, &next);
	s->taken = find_branch_store(s, &taken, &next);
	if (s->taken || find_branch_store(s, &next, &taken)) {
		return s->inst->at[s->store].role == TR_PLAIN ? commit(s, -1) : 0;
	}
	if (find_select_store(s, &taken, &next, &move))
		return s->inst->at[s->store].role != TR_PLAIN || (move >= 0 && s->inst->at[move].role != TR_PLAIN) ? 0 : commit(s, move);
	arrive(s, &taken, true, arrivals);
	arrive(s, &next, false, arrivals);
	return 0;
}

/* Values of which the host knows all copies. */
static bool may_be_folded(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	int32_t map = tr_fact(t, inst, i)->map;
	uint32_t bytes = ebpf_insn_bytes(tr_bpf(t, inst, i)->code);
	if (map < 0 || bytes < 4 || inst->at[i].role != TR_PLAIN)
		return false;
	return !map_is_hash(t->p->maps[map].type) || !map_is_per_cpu(t->p->maps[map].type);
}

int tr_extreme(struct tr *t)
{
	for (size_t k = 0; k < t->n_insts; k++) {
		struct tr_inst *inst = t->insts[k];
		const uint16_t *preds = tr_preds(t, inst);
		struct arrivals *arrivals = arena_array(t->arena, inst->n, sizeof(*arrivals));
		if (!preds || !arrivals)
			return diag_set(t->d, ENOMEM, "out of memory");
		int err = 0;
		for (uint32_t i = 0; i < inst->n; i++) {
			if (!tr_rmw_load(t, inst, i) || !may_be_folded(t, inst, i))
				continue;
			struct seek s = { .t = t, .inst = inst, .preds = preds, .load = i, .bytes = ebpf_insn_bytes(tr_bpf(t, inst, i)->code) };
			err = from_load(&s, arrivals);
			if (err)
				return err;
		}
		err = commit_common(t, inst, preds, arrivals);
		if (err)
			return err;
	}
	return 0;
}
