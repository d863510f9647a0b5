/* uniform.c - which values are the same in all lanes of a warp that execute an instruction together.
 *
 * Requires the facts of explore(). Leaves in each fact the registers that are uniform before it, and whether all lanes come here.
 *
 * A register, or an 8-byte slot of a function's own frame, is uniform until shown otherwise (a greatest fixed point). It varies when
 * it is read from a context field that varies by its declaration, from memory that other threads write (all maps but
 * frozen ones), from a helper whose result varies, or is computed of what varies. And by control flow: where a branch on a varying
 * value splits the lanes, the instructions up to its post-dominator are its region; lanes meet again at the joins of the
 * region and at the post-dominator, and there whatever the region sets varies. Nothing makes lanes wait for each other there: in a
 * cycle those that are first go round and come to a place that others have not left yet. So where lanes part in a cycle, whatever the
 * cycle sets varies at each of its joins.
 *
 * Functions are looked at by themselves, their arguments joined over the calls. A store to the stack whose place is not
 * known makes all slots vary.
 */
#include "map/layout.h"
#include "verifier/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WORK_MAX = 4000000 }; /* steps; beyond it nothing is called uniform */

struct lanes { /* bits: what varies */
	uint64_t slots;
	uint16_t regs;
};

struct uniform {
	struct verifier *v;
	const struct ebpf_program *p;
	struct lanes *in;    /* before each instruction */
	struct lanes *meet;  /* varies from here on because lanes meet */
	struct lanes *args;  /* of each subprogram: r1..r5 */
	uint16_t *result;    /* of each subprogram: r0 varies */
	bool *split;	     /* per instruction */
	bool *split_func;    /* called where lanes are split */
	uint32_t *pdom;	     /* per instruction: its immediate post-dominator; n: the end */
	uint32_t *order;     /* of the subprogram's instructions in reverse post-order of the reversed graph */
	uint32_t *number;
	uint32_t *first, *preds; /* predecessors */
	bool *done;	     /* branch's region is spread */
	bool *cycle_done;    /* so is the cycle that the instruction is in, if any */
	bool *parting_func;  /* lanes may return from it one after the other */
	bool stack_lost, changed;
	uint64_t work;
};

static uint16_t bit(uint32_t r)
{
	return (uint16_t)(1u << r);
}

static bool reached(const struct uniform *u, uint32_t at)
{
	return u->v->out->facts[at].reached;
}

/* Ways on that some path takes. */
static int ways(const struct uniform *u, uint32_t at, uint32_t next[2])
{
	uint32_t all[2];
	int n = successors(u->p, at, all), k = 0;
	for (int i = 0; i < n; i++)
		if (reached(u, all[i]))
			next[k++] = all[i];
	if (k == 2 && next[0] == next[1])
		k = 1;
	return k;
}

/* The slot of the function's own frame that an access of a known place touches, -1: another place. */
static int own_slot(const struct uniform *u, uint32_t at, uint8_t base, int32_t off)
{
	const struct ebpf_fact *f = &u->v->out->facts[at];
	int32_t o = base == 10 ? off : f->offset;
	if (base != 10 && (!f->fixed || f->frame || at >= u->v->subprogs[0].end))
		return -1;
	return o < 0 && o >= -EBPF_STACK_BYTES ? (-o - 1) / 8 : -1;
}

static bool load_varies(const struct uniform *u, uint32_t at, const struct lanes *s)
{
	const struct bpf_insn *i = &u->p->insns[at];
	const struct ebpf_fact *f = &u->v->out->facts[at];
	uint32_t shift;
	switch (f->region) {
	case EBPF_REGION_CONTEXT: {
		int field = f->fixed ? ebpf_field_at(u->p->context, (uint32_t)f->offset, ebpf_insn_bytes(i->code), &shift) : -1;
		if (field >= 0)
			return ebpf_fields[field].uniform == EBPF_VARYING;
		return !f->fixed; /* parameters, reserved bytes */
	}
	case EBPF_REGION_STACK: {
		int slot = own_slot(u, at, i->src_reg, i->off);
		return slot < 0 || u->stack_lost || (s->slots >> slot & 1);
	}
	case EBPF_REGION_MAP_VALUE:
		return f->map < 0 || !u->p->maps[f->map].frozen || (s->regs & bit(i->src_reg));
	default:
		return true;
	}
}

static void set_reg(struct lanes *s, uint32_t r, bool varies)
{
	s->regs = (uint16_t)((s->regs & ~bit(r)) | (varies ? bit(r) : 0));
}

static void store(struct uniform *u, uint32_t at, struct lanes *s, bool varies)
{
	const struct bpf_insn *i = &u->p->insns[at];
	if (u->v->out->facts[at].region != EBPF_REGION_STACK)
		return;
	int slot = own_slot(u, at, i->dst_reg, i->off);
	if (slot < 0) {
		u->changed |= !u->stack_lost;
		u->stack_lost = true;
	} else if (varies) {
		s->slots |= 1ull << slot;
	} else if (ebpf_insn_bytes(i->code) == 8) {
		s->slots &= ~(1ull << slot);
	}
}

static uint32_t callee(const struct uniform *u, uint32_t at)
{
	const struct bpf_insn *i = &u->p->insns[at];
	if (i->src_reg == BPF_PSEUDO_CALL)
		return subprog_of(u->v, at + 1 + (uint32_t)i->imm);
	return u->v->out->facts[at].callback ? subprog_of(u->v, u->v->out->facts[at].callback) : u->v->n_subprogs;
}

/* An array's value is found by its key alone, so equal keys, in a slot of main's own frame, give equal pointers. */
static bool array_value_varies(const struct uniform *u, uint32_t at, const struct lanes *s)
{
	const struct ebpf_fact *f = &u->v->out->facts[at];
	const struct ebpf_map *m = f->map >= 0 ? &u->p->maps[f->map] : NULL;
	if (!m || !map_is_array(m->type) || map_threads_of(m) || u->stack_lost)
		return true;
	if (f->args[1].region != EBPF_REGION_STACK || !f->args[1].fixed || f->args[1].frame || at >= u->v->subprogs[0].end)
		return true;
	int32_t first = (-f->args[1].offset - 1) / 8, last = (-f->args[1].offset - (int32_t)m->key_size) / 8;
	return first < 0 || first > 63 || last < 0 || (s->slots >> first & 1) || (s->slots >> last & 1);
}

static void call(struct uniform *u, uint32_t at, struct lanes *s)
{
	const struct bpf_insn *i = &u->p->insns[at];
	const struct ebpf_helper *h = i->src_reg ? NULL : ebpf_helper_by_number((uint32_t)i->imm);
	uint32_t f = callee(u, at);
	bool varies = true;
	if (f < u->v->n_subprogs) {
		uint16_t args = h ? 0x3e : s->regs & 0x3e;
		u->changed |= (u->args[f].regs | args) != u->args[f].regs || (u->split[at] && !u->split_func[f]);
		u->args[f].regs |= args;
		u->split_func[f] |= u->split[at] || h; /* lanes may be in different iterations */
		varies = h || u->result[f];
	} else if (h) {
		uint16_t args = 0;
		for (uint32_t k = 0; k < 5; k++)
			if (h->args[k] != EBPF_ARG_NONE)
				args |= bit(k + 1);
		varies = h->result == EBPF_RESULT_VARYING || (h->result == EBPF_RESULT_ARGS && (s->regs & args));
		if (i->imm == BPF_FUNC_map_lookup_elem)
			varies = array_value_varies(u, at, s);
		for (uint32_t k = 0; k < 5; k++) {
			const struct ebpf_fact *fact = &u->v->out->facts[at];
			bool value = h->args[k] == EBPF_ARG_VALUE_OUT;
			if ((h->args[k] != EBPF_ARG_OUT && !value) || fact->args[k].region != EBPF_REGION_STACK)
				continue;
			bool own = fact->args[k].fixed && !fact->args[k].frame && at < u->v->subprogs[0].end;
			uint32_t bytes = value && fact->map >= 0 ? u->p->maps[fact->map].value_size : 8;
			uint32_t high = own ? (uint32_t)(-fact->args[k].offset - 1) / 8 : 0, low = own ? (uint32_t)(-fact->args[k].offset - (int32_t)bytes) / 8 : 0;
			for (uint32_t slot = low; own && slot <= high && slot < 64; slot++)
				s->slots = (s->slots & ~(1ull << slot)) | (uint64_t)varies << slot;
			u->changed |= !own && !u->stack_lost;
			u->stack_lost |= !own;
		}
	}
	s->regs |= 0x3e;
	set_reg(s, 0, varies);
}

/* s goes over the instruction. */
static void transfer(struct uniform *u, uint32_t at, struct lanes *s)
{
	const struct bpf_insn *i = &u->p->insns[at];
	bool reg = BPF_SRC(i->code) == BPF_X, dst = s->regs & bit(i->dst_reg), src = s->regs & bit(i->src_reg);
	uint8_t op = BPF_OP(i->code);
	switch (BPF_CLASS(i->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		if (op == BPF_MOV)
			set_reg(s, i->dst_reg, reg && src);
		else if (op != BPF_NEG && op != BPF_END)
			set_reg(s, i->dst_reg, dst || (reg && src));
		return;
	case BPF_LD:
		set_reg(s, i->dst_reg, false);
		return;
	case BPF_LDX:
		set_reg(s, i->dst_reg, load_varies(u, at, s));
		return;
	case BPF_ST:
		store(u, at, s, false);
		return;
	case BPF_STX:
		if (BPF_MODE(i->code) != BPF_ATOMIC) {
			store(u, at, s, src);
			return;
		}
		store(u, at, s, true);
		if (i->imm == BPF_CMPXCHG)
			set_reg(s, 0, true);
		else if (i->imm & BPF_FETCH)
			set_reg(s, i->src_reg, true);
		return;
	default:
		if (op == BPF_CALL && BPF_CLASS(i->code) == BPF_JMP)
			call(u, at, s);
	}
}

/* What an instruction may set. */
static struct lanes defs_of(const struct uniform *u, uint32_t at)
{
	const struct bpf_insn *i = &u->p->insns[at];
	struct lanes d = { 0 };
	uint8_t class = BPF_CLASS(i->code);
	if (class == BPF_ALU || class == BPF_ALU64 || class == BPF_LD || class == BPF_LDX)
		d.regs = bit(i->dst_reg);
	else if (class == BPF_JMP && BPF_OP(i->code) == BPF_CALL)
		d.regs = 0x3f;
	else if (class == BPF_STX && BPF_MODE(i->code) == BPF_ATOMIC)
		d.regs = i->imm == BPF_CMPXCHG ? 1 : i->imm & BPF_FETCH ? bit(i->src_reg) : 0;
	if ((class == BPF_ST || class == BPF_STX) && u->v->out->facts[at].region == EBPF_REGION_STACK) {
		int slot = own_slot(u, at, i->dst_reg, i->off);
		d.slots = slot >= 0 ? 1ull << slot : 0;
	}
	if (class == BPF_JMP && BPF_OP(i->code) == BPF_CALL)
		for (uint32_t k = 0; k < 5; k++)
			if (u->v->out->facts[at].args[k].region == EBPF_REGION_STACK && u->v->out->facts[at].args[k].fixed)
				d.slots |= 1ull << ((uint32_t)(-u->v->out->facts[at].args[k].offset - 1) / 8 & 63);
	return d;
}

/* Post-dominators (Cooper, Harvey, Kennedy) of one subprogram; the end is instruction n. */

static uint32_t intersect(struct uniform *u, uint32_t a, uint32_t b)
{
	while (a != b) {
		u->work++;
		if (u->number[a] > u->number[b])
			a = u->pdom[a];
		else
			b = u->pdom[b];
	}
	return a;
}

/* Post-order from the end backwards. */
static uint32_t order_backwards(struct uniform *u, const struct subprog *s, uint32_t *stack, uint32_t *next)
{
	uint32_t n = u->p->n_insns, count = 0;
	u->number[n] = 1; /* the end comes first */
	for (uint32_t e = s->start; e < s->end; e++) {
		uint32_t w[2], depth = 0;
		if (!reached(u, e) || u->v->flow[e].second || ways(u, e, w) || u->number[e])
			continue;
		stack[depth++] = e;
		u->number[e] = 2;
		next[e] = u->first[e];
		while (depth) {
			uint32_t at = stack[depth - 1];
			u->work++;
			if (next[at] == u->first[at + 1]) {
				u->order[count++] = at;
				depth--;
				continue;
			}
			uint32_t pred = u->preds[next[at]++];
			if (u->number[pred])
				continue;
			u->number[pred] = 2;
			next[pred] = u->first[pred];
			stack[depth++] = pred;
		}
	}
	return count;
}

static void post_dominators(struct uniform *u, const struct subprog *s, uint32_t *stack, uint32_t *next)
{
	uint32_t n = u->p->n_insns, count = order_backwards(u, s, stack, next);
	/* Reverse post-order numbers: smaller is nearer to the end. */
	for (uint32_t k = 0; k < count; k++)
		u->number[u->order[k]] = count - k + 1;
	u->number[n] = 1;
	u->pdom[n] = n;
	for (bool again = true; again && u->work < WORK_MAX;) {
		again = false;
		for (uint32_t k = count; k-- > 0;) {
			uint32_t at = u->order[k], w[2], new = UINT32_MAX;
			int ways_n = ways(u, at, w);
			if (!ways_n)
				new = n;
			for (int i = 0; i < ways_n; i++) {
				if (u->pdom[w[i]] == UINT32_MAX)
					continue;
				new = new == UINT32_MAX ? w[i] : intersect(u, new, w[i]);
			}
			u->work++;
			again |= new != u->pdom[at];
			u->pdom[at] = new;
		}
	}
}

/* A branch on what varies: its region up to the post-dominator, and where lanes meet in it. */
static void spread(struct uniform *u, uint32_t branch, uint32_t *stack, uint32_t *mark)
{
	uint32_t end = u->pdom[branch], n = 0, count = 0, w[2];
	struct lanes defs = { 0 };
	uint32_t *list = u->order; /* free by now */
	for (int k = ways(u, branch, w); k--;)
		if (w[k] != end && mark[w[k]] != branch + 1) {
			mark[w[k]] = branch + 1;
			stack[n++] = w[k];
		}
	while (n) {
		uint32_t at = stack[--n];
		struct lanes d = defs_of(u, at);
		defs.regs |= d.regs;
		defs.slots |= d.slots;
		list[count++] = at;
		u->work++;
		for (int k = ways(u, at, w); k--;)
			if (w[k] != end && mark[w[k]] != branch + 1) {
				mark[w[k]] = branch + 1;
				stack[n++] = w[k];
			}
	}
	for (uint32_t k = 0; k <= count; k++) {
		uint32_t at = k < count ? list[k] : end;
		if (at >= u->p->n_insns)
			continue;
		if (k < count)
			u->split[at] = true;
		if (k == count || u->first[at + 1] - u->first[at] > 1) {
			u->meet[at].regs |= defs.regs;
			u->meet[at].slots |= defs.slots;
		}
	}
	u->changed = true;
}

/* Lanes part at an instruction: the cycle that it is in, all ways from it that lead back to it. `forth` and `back` are marks, of
 * which spread() uses the first as well. */
static void spread_cycle(struct uniform *u, uint32_t part, uint32_t start, uint32_t *stack, uint32_t *forth, uint32_t *back)
{
	uint32_t n = 0, count = 0, w[2], stamp = u->p->n_insns + 1 + part, *list = u->order; /* free by now */
	struct lanes defs = { 0 };
	for (stack[n++] = part; n;) {
		uint32_t at = stack[--n];
		u->work++;
		for (int k = ways(u, at, w); k--;)
			if (forth[w[k]] != stamp) {
				forth[w[k]] = stamp;
				stack[n++] = w[k];
			}
	}
	if (forth[part] != stamp)
		return; /* no way leads back */
	for (stack[n++] = part, back[part] = stamp; n;) {
		uint32_t at = stack[--n];
		struct lanes d = defs_of(u, at);
		defs.regs |= d.regs;
		defs.slots |= d.slots;
		list[count++] = at;
		u->cycle_done[at] = true;
		u->work++;
		for (uint32_t k = u->first[at]; k < u->first[at + 1]; k++) {
			uint32_t pred = u->preds[k];
			if (forth[pred] != stamp || back[pred] == stamp)
				continue;
			back[pred] = stamp;
			stack[n++] = pred;
		}
	}
	while (count--) {
		uint32_t at = list[count];
		if (at != start && u->first[at + 1] - u->first[at] < 2)
			continue;
		u->meet[at].regs |= defs.regs;
		u->meet[at].slots |= defs.slots;
	}
	u->changed = true;
}

/* What some lanes may come back from before others: updates of shared memory, which one lane may make for those that are here, helpers that wait
 * for their turn in a map, functions in which lanes part. Seen on an H200 with a sum of bytes, in a loop of ten passes. */
static bool parts(const struct uniform *u, uint32_t at)
{
	const struct bpf_insn *i = &u->p->insns[at];
	if (BPF_CLASS(i->code) == BPF_ST || BPF_CLASS(i->code) == BPF_STX)
		return u->v->out->facts[at].region == EBPF_REGION_MAP_VALUE;
	if (BPF_CLASS(i->code) != BPF_JMP || BPF_OP(i->code) != BPF_CALL)
		return false;
	uint32_t f = callee(u, at);
	if (f < u->v->n_subprogs)
		return i->src_reg != BPF_PSEUDO_CALL || u->parting_func[f];
	const struct ebpf_helper *h = ebpf_helper_by_number((uint32_t)i->imm);
	int32_t map = u->v->out->facts[at].map;
	bool array = map >= 0 && map_is_array(u->p->maps[map].type);
	for (uint32_t k = 0; h && k < 5; k++)
		if (h->args[k] == EBPF_ARG_MAP)
			return !array;
	return false;
}

static bool branch_varies(const struct uniform *u, uint32_t at)
{
	const struct bpf_insn *i = &u->p->insns[at];
	uint16_t uses = bit(i->dst_reg) | (BPF_SRC(i->code) == BPF_X ? bit(i->src_reg) : 0);
	return u->in[at].regs & uses;
}

/* One round over a subprogram; values only ever become varying. */
static void round_over(struct uniform *u, uint32_t f, uint32_t *stack, uint32_t *mark, uint32_t *back)
{
	const struct subprog *s = &u->v->subprogs[f];
	struct lanes entry = u->args[f];
	if (reached(u, s->start)) {
		u->in[s->start].regs |= entry.regs;
		if (u->split_func[f])
			for (uint32_t at = s->start; at < s->end; at++)
				u->split[at] = true;
	}
	for (uint32_t at = s->start; at < s->end; at++) {
		uint32_t w[2];
		if (!reached(u, at) || u->v->flow[at].second)
			continue;
		u->work++;
		u->in[at].regs |= u->meet[at].regs;
		u->in[at].slots |= u->meet[at].slots;
		struct lanes out = u->in[at];
		int k = ways(u, at, w);
		bool branch = k == 2 && branch_varies(u, at);
		if (branch && !u->done[at]) {
			u->done[at] = true;
			spread(u, at, stack, mark);
		}
		if (branch || parts(u, at)) {
			u->changed |= !u->parting_func[f];
			u->parting_func[f] = true;
			if (!u->cycle_done[at]) {
				u->cycle_done[at] = true;
				spread_cycle(u, at, s->start, stack, mark, back);
			}
		}
		transfer(u, at, &out);
		if (!k) {
			bool varies = out.regs & 1 || u->split[at];
			u->changed |= varies && !u->result[f];
			u->result[f] |= varies;
		}
		while (k--) {
			struct lanes *to = &u->in[w[k]];
			u->changed |= (to->regs | out.regs) != to->regs || (to->slots | out.slots) != to->slots;
			to->regs |= out.regs;
			to->slots |= out.slots;
		}
	}
}

static int make_preds(struct uniform *u)
{
	uint32_t n = u->p->n_insns, w[2];
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t at = 0; at < n; at++) {
			int k = reached(u, at) && !u->v->flow[at].second ? ways(u, at, w) : 0;
			while (k--) {
				if (pass)
					u->preds[u->first[w[k] + 1]++] = at;
				else
					u->first[w[k] + 2]++;
			}
		}
		for (uint32_t at = 0; !pass && at < n; at++)
			u->first[at + 2] += u->first[at + 1];
	}
	return 0;
}

static void hand_over(struct uniform *u)
{
	bool lost = u->work >= WORK_MAX;
	for (uint32_t at = 0; at < u->p->n_insns; at++) {
		struct ebpf_fact *f = &u->v->out->facts[at];
		if (!f->reached)
			continue;
		f->uniform = lost ? 1 << 10 : (uint16_t)(~u->in[at].regs & 0x7ff);
		f->converged = !lost && !u->split[at];
	}
}

int find_uniform(struct verifier *v)
{
	size_t n = v->p->n_insns + 2;
	struct uniform u = { .v = v, .p = v->p };
	struct arena *a = arena_new();
	if (!a)
		return out_of_memory(v);
	u.in = arena_array(a, n, sizeof(*u.in));
	u.meet = arena_array(a, n, sizeof(*u.meet));
	u.args = arena_array(a, v->n_subprogs, sizeof(*u.args));
	u.result = arena_array(a, v->n_subprogs, sizeof(*u.result));
	u.split = arena_array(a, n, sizeof(*u.split));
	u.split_func = arena_array(a, v->n_subprogs, sizeof(*u.split_func));
	u.pdom = arena_array(a, n, sizeof(*u.pdom));
	u.order = arena_array(a, n, sizeof(*u.order));
	u.number = arena_array(a, n, sizeof(*u.number));
	u.first = arena_array(a, n + 1, sizeof(*u.first));
	u.preds = arena_array(a, 2 * n, sizeof(*u.preds));
	u.done = arena_array(a, n, sizeof(*u.done));
	u.cycle_done = arena_array(a, n, sizeof(*u.cycle_done));
	u.parting_func = arena_array(a, v->n_subprogs, sizeof(*u.parting_func));
	uint32_t *stack = arena_array(a, 2 * n, sizeof(*stack)), *mark = arena_array(a, n, sizeof(*mark)), *back = arena_array(a, n, sizeof(*back));
	if (!u.in || !u.meet || !u.args || !u.result || !u.split || !u.split_func || !u.pdom || !u.order || !u.number || !u.first || !u.preds ||
		!u.done || !u.cycle_done || !u.parting_func || !stack || !mark || !back) {
		arena_free(a);
		return out_of_memory(v);
	}
	memset(u.pdom, 0xff, n * sizeof(*u.pdom));
	make_preds(&u);
	for (uint32_t f = 0; f < v->n_subprogs && u.work < WORK_MAX; f++)
		post_dominators(&u, &v->subprogs[f], stack, mark);
	memset(mark, 0, n * sizeof(*mark));
	do {
		u.changed = false;
		for (uint32_t f = 0; f < v->n_subprogs; f++)
			round_over(&u, f, stack, mark, back);
	} while (u.changed && u.work < WORK_MAX);
	hand_over(&u);
	arena_free(a);
	return 0;
}
