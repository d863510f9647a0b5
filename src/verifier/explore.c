/* explore.c - walks every path of the program, depth first, the way that falls through first.
 *
 * Requires check_encoding, check_layout and find_live. Leaves the facts of every instruction that some path reaches, and the
 * length of the longest path; or a refusal, with the decisions that lead to it.
 */
#include "verifier/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void start_path(struct verifier *v)
{
	const struct ebpf_program *p = v->p;
	struct vframe *f = &v->cur.frames[0];
	v->cur.insn = v->cur.n_refs = 0;
	v->cur.length = 0;
	v->cur.n_frames = 1;
	f->callsite = f->subprog = f->n_slots = f->iteration = f->refs = 0;
	f->callback = false;
	f->entered = 0;
	for (int k = 0; k <= 10; k++)
		f->regs[k] = (struct vreg){ .type = V_UNSET, .map = -1 };
	f->regs[10] = (struct vreg){ .type = V_STACK, .map = -1, .r = range_const(0) };
	if (p->context != EBPF_CONTEXT_NONE) {
		f->regs[1] = (struct vreg){ .type = V_CTX, .map = -1, .r = range_const(0) };
		return;
	}
	f->regs[1] = p->memory_bytes ? (struct vreg){ .type = V_MEMORY, .map = -1, .bytes = p->memory_bytes, .r = range_const(0) } : scalar_const(0);
	f->regs[2] = scalar_const(p->memory_bytes);
}

static int decide(struct verifier *v, bool taken)
{
	if (v->n_decisions >= v->cap_decisions) {
		size_t cap = v->cap_decisions ? v->cap_decisions * 2 : 1024;
		uint8_t *p = realloc(v->decisions, cap);
		if (!p)
			return out_of_memory(v);
		v->decisions = p;
		v->cap_decisions = cap;
	}
	v->decisions[v->n_decisions++] = taken;
	return 0;
}

static int put_off(struct verifier *v)
{
	if (v->n_pending >= MAX_PENDING)
		return refuse(v, E2BIG, "size", "The sequence of %d jumps is too complex; have fewer branches in loops", MAX_PENDING + 1);
	if (v->n_pending >= v->cap_pending) {
		size_t cap = v->cap_pending ? v->cap_pending * 2 : 64;
		struct pending *p = realloc(v->pending, cap * sizeof(*p));
		if (!p)
			return out_of_memory(v);
		v->pending = p;
		v->cap_pending = cap;
	}
	struct snapshot *s = snapshot_take(&v->cur);
	if (!s)
		return out_of_memory(v);
	v->pending[v->n_pending++] = (struct pending){ s, v->parent, v->n_decisions, v->path_insns };
	v->parent->open++;
	return 0;
}

int fork_path(struct verifier *v, bool *taken)
{
	if (v->replay) {
		*taken = v->decisions[v->n_decisions++];
		return 0;
	}
	*taken = v->resumed;
	int err = v->resumed ? 0 : put_off(v);
	return err ? err : decide(v, *taken);
}

/* Goes on with the fork put off last. False: none is left. */
static bool resume(struct verifier *v)
{
	if (!v->n_pending)
		return false;
	struct pending *p = &v->pending[--v->n_pending];
	snapshot_restore(p->state, &v->cur);
	free(p->state);
	v->parent = p->parent;
	v->n_decisions = p->decisions;
	v->path_insns = p->path_insns;
	drop_widened(v, v->path_insns);
	v->resumed = true;
	return true;
}

static int step_imm64(struct verifier *v, const struct bpf_insn *i)
{
	int err = check_written(v, i->dst_reg);
	struct vreg out;
	if (!i->src_reg) {
		out = scalar_const((uint64_t)(uint32_t)i[1].imm << 32 | (uint32_t)i->imm);
	} else {
		bool value = i->src_reg == BPF_PSEUDO_MAP_VALUE;
		if (i->src_reg == BPF_PSEUDO_FUNC)
			out = (struct vreg){ .type = V_FUNC, .map = -1, .off = (int32_t)v->cur.insn + 1 + i->imm, .r = range_const(0) };
		else
			out = (struct vreg){ .type = value ? V_VALUE : V_MAP, .map = i->imm, .off = value ? i[1].imm : 0, .r = range_const(0) };
	}
	if (!err)
		frame_now(v)->regs[i->dst_reg] = out;
	v->cur.insn += 2;
	return err;
}

int step(struct verifier *v)
{
	const struct bpf_insn *i = &v->p->insns[v->cur.insn];
	int err;
	switch (BPF_CLASS(i->code)) {
	case BPF_LD:
		return step_imm64(v, i);
	case BPF_JMP:
	case BPF_JMP32:
		if (BPF_OP(i->code) == BPF_CALL)
			return step_call(v, i);
		return BPF_OP(i->code) == BPF_EXIT ? step_exit(v) : step_branch(v, i);
	case BPF_LDX:
		err = step_load(v, i);
		break;
	case BPF_ST:
		err = step_store(v, i);
		break;
	case BPF_STX:
		err = BPF_MODE(i->code) == BPF_ATOMIC ? step_atomic(v, i) : step_store(v, i);
		break;
	default:
		err = step_alu(v, i);
	}
	if (!err)
		v->cur.insn++;
	return err;
}

static int count(struct verifier *v)
{
	v->path_insns++;
	if (!v->flow[v->cur.insn].loops || !frame_now(v)->iteration) /* a helper's call is one instruction */
		v->cur.length++;
	if (++v->out->processed_insns > v->opts.max_states_insns)
		return refuse(v, E2BIG, "loop", "BPF program is too large. Processed %u insn, the limit is %u: a loop has too many passes, or branches leave too many "
			"different values behind",
			v->out->processed_insns, v->opts.max_states_insns);
	return 0;
}

static int check_length(struct verifier *v, uint32_t insn)
{
	if (v->cur.length <= v->opts.max_run_insns)
		return 0;
	v->cur.insn = insn;
	return refuse(v, E2BIG, "length", "a run can take more than %llu instructions; shorten the loops",
		(unsigned long long)v->opts.max_run_insns);
}

/* One instruction, or what takes its place at a join point. PATH_ENDED when the path is over. */
static int advance(struct verifier *v)
{
	if (!v->resumed) {
		v->in_step = false;
		int seen = v->flow[v->cur.insn].join ? check_seen(v) : 0;
		if (seen)
			return seen;
		v->in_step = true;
		int err = count(v);
		if (err)
			return err;
	}
	v->in_step = true;
	uint32_t insn = v->cur.insn;
	v->out->facts[insn].reached = true;
	bool shown = v->log && v->opts.log_level > 1 && !v->resumed;
	int err = step(v);
	if (shown && err >= 0)
		log_step(v, insn);
	v->resumed = false;
	if (err >= 0) {
		int too_long = check_length(v, insn);
		if (too_long)
			return too_long;
	}
	if (err == PATH_ENDED)
		path_ended(v, v->cur.length);
	return err;
}

static int explore_once(struct verifier *v)
{
	start_path(v);
	v->root.open = 1;
	v->parent = &v->root;
	for (;;) {
		int err = advance(v);
		if (err < 0)
			return err;
		if (err == PATH_ENDED && !resume(v))
			break;
	}
	v->out->max_run_insns = v->root.longest;
	return 0;
}

static void start_again(struct verifier *v)
{
	free_saved(v);
	drop_widened(v, 0);
	memset(v->saved, 0, v->p->n_insns * sizeof(*v->saved));
	memset(v->loop_seen, 0, v->p->n_insns * sizeof(*v->loop_seen));
	v->root = (struct saved){ 0 };
	v->n_nodes = v->n_decisions = v->path_insns = v->next_id = 0;
	v->jumps = v->last_jumps = v->last_insns = 0;
	v->out->processed_insns = v->out->peak_states = 0;
	v->trail.len = v->trail_insns = 0;
}

/* How long the functions that helpers call take is known after a walk; lengths of whole runs after one more for each level of
 * nesting. */
int explore(struct verifier *v)
{
	int err = explore_once(v);
	for (int walks = 1; !err && v->loop_cost; walks++) {
		size_t bytes = v->p->n_insns * sizeof(*v->loop_cost);
		if (!memcmp(v->loop_cost, v->loop_seen, bytes))
			break;
		if (walks > MAX_FRAMES + 2)
			return refuse(v, E2BIG, "length", "the length of a run cannot be bounded; nest fewer functions that helpers call");
		memcpy(v->loop_cost, v->loop_seen, bytes);
		start_again(v);
		err = explore_once(v);
	}
	return err;
}
