/* begin.c - a key that another thread made between a look-up and the update that it led to.
 *
 *	v = bpf_map_lookup_elem(&m, &k);
 *	if (v)
 *		__sync_fetch_and_add(v, 1);
 *	else
 *		bpf_map_update_elem(&m, &k, &one, BPF_ANY);
 *
 * is how programs for the kernel count by key, and on a GPU the 32 lanes of a warp, and many warps, all find nothing. Were each to
 * store its 1, what others have counted since would be lost. So an update that a null check led to, and that finds its key there, changes
 * nothing: it goes to the other way of the check, with the value's address, as if the look-up had come later. What the
 * program does then is what it would have done, had threads run one after the other.
 *
 * That is possible where, between check and update, on a path without joins,
 *   - the key stays, which both calls take from the same place of the stack;
 *   - no register is set that the other way reads, but those that hold the look-up's result;
 *   - nothing is stored but to the stack, to bytes that the other way does not read;
 *   - the look-up's result is copied to registers alone, or to such bytes;
 *   - nothing is called that acts, or writes to the stack.
 * Nobody reads the update's answer. Its flags are BPF_ANY; or BPF_NOEXIST, if the key is not looked up again behind it.
 *
 * An update that stores a value which was looked up back into its own key is none: it is dead.
 *
 * Requires live; leaves `begins`, and the targets that come with it.
 */
#include "translate/internal.h"

#include <errno.h>

enum { PATH_MAX = 48, RETURNED = 0x3f };

struct path {
	struct tr *t;
	struct tr_inst *inst;
	const uint16_t *n_preds;
	uint32_t at[PATH_MAX]; /* backwards from the update, which is at[0] */
	uint32_t n;
	uint32_t other;	       /* where the other way of the check leads */
	uint32_t *stack, *seen, look; /* of is_read() */
};

static bool is_lookup(const struct bpf_insn *in)
{
	return tr_is_call(in) && !in->src_reg && in->imm == BPF_FUNC_map_lookup_elem;
}

/* The instruction before i, where only one leads to it; -1. */
static int32_t before(const struct path *p, uint32_t i)
{
	if (p->n_preds[i] != 1)
		return -1;
	if (i && tr_next(p->t, p->inst, i - 1) == (int32_t)i)
		return (int32_t)i - 1;
	for (uint32_t k = 0; k < p->inst->n; k++)
		if (tr_jump(p->t, p->inst, k) == (int32_t)i)
			return (int32_t)k;
	return -1;
}

static bool extend(struct path *p)
{
	int32_t i = before(p, p->at[p->n - 1]);
	if (i < 0 || p->n == PATH_MAX)
		return false;
	p->at[p->n++] = (uint32_t)i;
	return true;
}

/* Whether the last instruction of the path is a check against 0 whose way "it is 0" the path takes; *other is where the other leads. */
static bool is_null_check(const struct path *p, int32_t *other)
{
	uint32_t i = p->at[p->n - 1];
	const struct bpf_insn *in = tr_bpf(p->t, p->inst, i);
	int32_t next = tr_next(p->t, p->inst, i), jump = tr_jump(p->t, p->inst, i);
	bool equal = BPF_OP(in->code) == BPF_JEQ;
	if (BPF_CLASS(in->code) != BPF_JMP || BPF_SRC(in->code) != BPF_K || in->imm || (!equal && BPF_OP(in->code) != BPF_JNE) ||
		next < 0 || jump < 0 || next == jump)
		return false;
	*other = equal ? next : jump;
	return (equal ? jump : next) == (int32_t)p->at[p->n - 2];
}

static bool same_key(const struct path *p, uint32_t lookup)
{
	const struct ebpf_fact *a = tr_fact(p->t, p->inst, p->at[0]), *b = tr_fact(p->t, p->inst, lookup);
	return a->map >= 0 && a->map == b->map && a->args[1].region == EBPF_REGION_STACK && b->args[1].region == EBPF_REGION_STACK &&
	       a->args[1].fixed && b->args[1].fixed && a->args[1].frame == b->args[1].frame && a->args[1].frame != 255 &&
	       a->args[1].offset == b->args[1].offset;
}

static bool overlap(int32_t a, uint32_t a_bytes, int32_t b, uint32_t b_bytes)
{
	return a < b + (int32_t)b_bytes && b < a + (int32_t)a_bytes;
}

/* Whether helper call i reads, or writes, some of these bytes of a frame, or may. */
static bool call_touches(const struct path *p, uint32_t i, uint8_t frame, int32_t offset, uint32_t bytes)
{
	const struct ebpf_fact *f = tr_fact(p->t, p->inst, i);
	for (uint32_t a = 0; a < 5; a++) {
		uint32_t n = 0;
		if (f->args[a].region != EBPF_REGION_STACK)
			continue;
		if (!f->args[a].fixed || f->args[a].frame != frame || !tr_helper_arg_memory(p->t, p->inst, i, a) ||
			!tr_helper_arg_bytes(p->t, p->inst, i, a, &n) || overlap(f->args[a].offset, n, offset, bytes))
			return true;
	}
	return false;
}

static bool may_read(const struct path *p, uint32_t i, uint8_t frame, int32_t offset, uint32_t bytes)
{
	const struct bpf_insn *in = tr_bpf(p->t, p->inst, i);
	const struct ebpf_fact *f = tr_fact(p->t, p->inst, i);
	if (p->inst->at[i].dead)
		return false;
	if (tr_is_call(in))
		return in->src_reg || f->callback || call_touches(p, i, frame, offset, bytes);
	return (BPF_CLASS(in->code) == BPF_LDX || tr_is_atomic(in)) && f->region == EBPF_REGION_STACK &&
	       (!f->fixed || f->frame != frame || overlap(f->offset, ebpf_insn_bytes(in->code), offset, bytes));
}

/* Whether instruction i writes all these bytes. */
static bool replaces(const struct path *p, uint32_t i, uint8_t frame, int32_t offset, uint32_t bytes)
{
	const struct bpf_insn *in = tr_bpf(p->t, p->inst, i);
	const struct ebpf_fact *f = tr_fact(p->t, p->inst, i);
	return tr_is_store(in) && !tr_is_atomic(in) && !p->inst->at[i].dead && f->region == EBPF_REGION_STACK && f->fixed && f->frame == frame &&
	       f->offset <= offset && f->offset + (int32_t)ebpf_insn_bytes(in->code) >= offset + (int32_t)bytes;
}

/* Whether bytes of the stack that the path stores may be read on the other way before they are stored again: clang has many variables use them
 * one after the other. What is in a caller's frame the caller may read. */
static bool is_read(struct path *p, uint32_t store)
{
	const struct ebpf_fact *s = tr_fact(p->t, p->inst, store);
	uint32_t bytes = ebpf_insn_bytes(tr_bpf(p->t, p->inst, store)->code), n = 0;
	if (s->region != EBPF_REGION_STACK || p->inst->depth != s->frame)
		return true;
	p->look++;
	p->seen[p->other] = p->look;
	for (p->stack[n++] = p->other; n;) {
		uint32_t i = p->stack[--n];
		int32_t to[2] = { tr_next(p->t, p->inst, i), tr_jump(p->t, p->inst, i) };
		if (may_read(p, i, s->frame, s->offset, bytes))
			return true;
		if (replaces(p, i, s->frame, s->offset, bytes))
			continue;
		for (int k = 0; k < 2; k++)
			if (to[k] >= 0 && p->seen[to[k]] != p->look) {
				p->seen[to[k]] = p->look;
				p->stack[n++] = (uint32_t)to[k];
			}
	}
	return false;
}

/* What may stand between the look-up and the update; behind the check also what the other way does without, but for `kept`, registers that it reads. */
static bool harmless(struct path *p, uint32_t k, uint32_t key_bytes, bool behind, uint16_t kept)
{
	uint32_t i = p->at[k];
	const struct bpf_insn *in = tr_bpf(p->t, p->inst, i);
	const struct ebpf_fact *f = tr_fact(p->t, p->inst, i), *u = tr_fact(p->t, p->inst, p->at[0]);
	if (tr_is_call(in) || tr_is_exit(in) || tr_is_atomic(in))
		return false;
	if (!tr_is_store(in))
		return !behind || !(tr_defs(p->t, p->inst, i) & kept);
	return f->region == EBPF_REGION_STACK && f->fixed && f->frame == u->args[1].frame &&
	       !overlap(f->offset, ebpf_insn_bytes(in->code), u->args[1].offset, key_bytes) &&
	       (!behind || !is_read(p, i));
}

/* Registers that hold what the look-up at the path's end returned, at its instruction `check`; 0: something else may depend on it, which would
 * still be what it was when nothing had been found. */
static uint16_t holders(struct path *p, uint32_t check)
{
	uint16_t held = 1;
	for (uint32_t k = p->n - 2; k > check; k--) {
		const struct bpf_insn *in = tr_bpf(p->t, p->inst, p->at[k]);
		bool copies = in->code == (BPF_ALU64 | BPF_MOV | BPF_X) && !in->off && held >> in->src_reg & 1;
		if (tr_uses(p->t, p->inst, p->at[k]) & held && !copies && (!tr_is_store(in) || is_read(p, p->at[k])))
			return 0;
		held &= (uint16_t)~tr_defs(p->t, p->inst, p->at[k]);
		if (copies)
			held |= (uint16_t)(1u << in->dst_reg);
	}
	return held;
}

/* Registers that the look-up has left without a value, which nothing gives them up to the check: trace_printk reads some all the same. */
static uint16_t unset(const struct path *p, uint32_t check)
{
	uint16_t set = 1;
	for (uint32_t k = p->n - 2; k > check; k--)
		set |= tr_defs(p->t, p->inst, p->at[k]);
	return RETURNED & (uint16_t)~set;
}

/* Whether what comes next is a look at the same key: then one who was late with BPF_NOEXIST counts as well as the others. */
static bool looks_again(const struct path *p, uint32_t update)
{
	int32_t i = tr_next(p->t, p->inst, update);
	for (int n = 0; i >= 0 && n < PATH_MAX; n++) {
		const struct bpf_insn *in = tr_bpf(p->t, p->inst, (uint32_t)i);
		if (tr_is_call(in))
			return is_lookup(in) && same_key(p, (uint32_t)i);
		if (tr_is_exit(in) || tr_is_store(in) || (tr_is_jump(in) && !tr_is_goto(in)))
			return false;
		i = tr_is_goto(in) ? tr_jump(p->t, p->inst, (uint32_t)i) : tr_next(p->t, p->inst, (uint32_t)i);
	}
	return false;
}

static bool may_begin(const struct path *p, uint32_t update)
{
	const struct ebpf_fact *f = tr_fact(p->t, p->inst, update);
	if (!f->args[3].constant || p->inst->at[update].live_out & 1)
		return false;
	return f->args[3].value == BPF_ANY || (f->args[3].value == BPF_NOEXIST && !looks_again(p, update));
}

/* The path from the update at[0] to a null check of a look-up of its key. */
static void look_back(struct path *p)
{
	int32_t other = -1, way;
	uint32_t check = 0;
	const struct ebpf_map *m = tr_map_arg(p->t, p->inst, p->at[0]);
	while (extend(p)) {
		uint32_t last = p->at[p->n - 1];
		if (is_null_check(p, &way))
			check = p->n - 1, other = way;
		if (!tr_is_call(tr_bpf(p->t, p->inst, last)))
			continue;
		if (!check || !is_lookup(tr_bpf(p->t, p->inst, last)) || !same_key(p, last))
			return;
		p->other = (uint32_t)other;
		uint16_t held = holders(p, check), wanted = p->inst->at[other].live_in & (uint16_t)~unset(p, check), kept = wanted & (uint16_t)~held;
		if (!(held >> tr_bpf(p->t, p->inst, p->at[check])->dst_reg & 1) || kept & RETURNED)
			return;
		for (uint32_t k = 1; k < p->n - 1; k++)
			if (!harmless(p, k, m->key_size, k < check, kept))
				return;
		p->inst->at[p->at[0]].begins = (struct tr_begin){ .other = (uint32_t)other + 1, .holders = held & wanted };
		p->inst->at[other].target = p->inst->at[other].join = true;
		return;
	}
}

/* Whether the update stores what it has from the look-up of its own key back into it, which changes nothing; what others add to it
 * meanwhile would be lost. */
static bool is_own_value(struct path *p)
{
	const struct ebpf_fact *u = tr_fact(p->t, p->inst, p->at[0]);
	const struct ebpf_map *m = tr_map_arg(p->t, p->inst, p->at[0]);
	uint8_t held = 3;
	if (u->args[2].region != EBPF_REGION_MAP_VALUE || !u->args[2].fixed || u->args[2].offset || !u->args[3].constant ||
		u->args[3].value == BPF_NOEXIST || p->inst->at[p->at[0]].live_out & 1)
		return false;
	while (extend(p)) {
		uint32_t i = p->at[p->n - 1];
		const struct bpf_insn *in = tr_bpf(p->t, p->inst, i);
		const struct ebpf_fact *f = tr_fact(p->t, p->inst, i);
		if (is_lookup(in))
			return !held && same_key(p, i);
		if (tr_is_call(in) && (in->src_reg || f->callback || call_touches(p, i, u->args[1].frame, u->args[1].offset, m->key_size)))
			return false;
		if (tr_is_store(in) && f->region == EBPF_REGION_STACK &&
			(!f->fixed || f->frame == 255 || (f->frame == u->args[1].frame &&
				overlap(f->offset, ebpf_insn_bytes(in->code), u->args[1].offset, m->key_size))))
			return false;
		if (!(tr_defs(p->t, p->inst, i) >> held & 1))
			continue;
		if (in->code != (BPF_ALU64 | BPF_MOV | BPF_X) || in->off)
			return false;
		held = in->src_reg;
	}
	return false;
}

int tr_begin(struct tr *t)
{
	for (size_t k = 0; k < t->n_insts; k++) {
		struct tr_inst *inst = t->insts[k];
		struct path p = { .t = t, .inst = inst };
		for (uint32_t i = 0; i < inst->n; i++) {
			const struct bpf_insn *in = tr_bpf(t, inst, i);
			const struct ebpf_map *m;
			if (!tr_is_call(in) || in->src_reg || in->imm != BPF_FUNC_map_update_elem || !(m = tr_map_arg(t, inst, i)) ||
				!map_is_hash(m->type))
				continue;
			if (!p.n_preds && !(p.n_preds = tr_preds(t, inst)))
				return -ENOMEM;
			if (!p.seen && (!(p.seen = arena_array(t->arena, inst->n, sizeof(*p.seen))) ||
					       !(p.stack = arena_array(t->arena, inst->n, sizeof(*p.stack)))))
				return diag_set(t->d, ENOMEM, "out of memory");
			p.at[0] = i;
			p.n = 1;
			inst->at[i].dead |= is_own_value(&p);
			if (inst->at[i].dead)
				continue;
			p.n = 1;
			if (may_begin(&p, i))
				look_back(&p);
		}
	}
	return 0;
}
