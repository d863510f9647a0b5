/* flow.c - functions of a program, their instances, and what follows what. */
#include "translate/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FUNCS = 4096 };

int tr_unsupported(struct tr *t, uint32_t pc, const char *why)
{
	struct buf text = { 0 };
	ebpf_insn_print(t->p, pc, &text);
	int err =
		diag_set(t->d, EOPNOTSUPP, "insn %u: %s: %s", pc, text.data ? text.data : "?", why);
	buf_free(&text);
	return err;
}

static bool live_pc(const struct tr *t, int64_t pc)
{
	return pc >= 0 && pc < t->p->n_insns && t->v->facts[pc].reached;
}

/* Instruction that is executed after pc when no jump is taken, -1: none. */
static int64_t fall_pc(const struct tr *t, uint32_t pc)
{
	const struct bpf_insn *in = &t->p->insns[pc];
	if (tr_is_exit(in) || tr_is_goto(in))
		return -1;
	int64_t next = (int64_t)pc + (ebpf_is_imm64(in) ? 2 : 1);
	return live_pc(t, next) ? next : -1;
}

static int64_t jump_pc(const struct tr *t, uint32_t pc)
{
	const struct bpf_insn *in = &t->p->insns[pc];
	if (!tr_is_jump(in) || tr_is_exit(in) || BPF_OP(in->code) == BPF_CALL)
		return -1;
	bool far = in->code == (BPF_JMP32 | BPF_JA);
	int64_t to = (int64_t)pc + 1 + (far ? in->imm : in->off);
	return live_pc(t, to) ? to : -1;
}

static int64_t callee_pc(const struct tr *t, uint32_t pc)
{
	const struct bpf_insn *in = &t->p->insns[pc];
	if (tr_is_call(in) && !in->src_reg && t->v->facts[pc].callback)
		return live_pc(t, t->v->facts[pc].callback) ? (int64_t)t->v->facts[pc].callback : -1;
	if (!tr_is_call(in) || in->src_reg != BPF_PSEUDO_CALL)
		return -1;
	return (int64_t)pc + 1 + in->imm;
}

static int32_t index_at(const struct tr *t, const struct tr_inst *inst, int64_t pc)
{
	return pc >= 0 && t->func_of[pc] == inst->func + 1 ? (int32_t)t->index_of[pc] : -1;
}

int32_t tr_next(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return index_at(t, inst, fall_pc(t, inst->at[i].pc));
}

int32_t tr_jump(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return index_at(t, inst, jump_pc(t, inst->at[i].pc));
}

static int compare_pcs(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Index of the function that starts at entry, found or new; -errno. */
static int64_t func_at(struct tr *t, int64_t entry)
{
	if (!live_pc(t, entry))
		return diag_set(t->d, EINVAL, "a call leads to no instruction");
	if (t->entry_of[entry])
		return (int64_t)t->entry_of[entry] - 1;
	if (t->n_funcs >= MAX_FUNCS)
		return diag_set(t->d, EOPNOTSUPP, "more than %d subprograms", MAX_FUNCS);
	struct tr_func *all =
		arena_grow(t->arena, t->funcs, t->n_funcs, &t->cap_funcs, sizeof(*all));
	if (!all)
		return diag_set(t->d, ENOMEM, "out of memory");
	t->funcs = all;
	all[t->n_funcs] = (struct tr_func){ .entry = (uint32_t)entry };
	t->entry_of[entry] = (uint32_t)++t->n_funcs;
	return (int64_t)t->n_funcs - 1;
}

/* Walks what is reached from the entry without entering calls; stack and found have room for every
 * instruction. */
static int collect(struct tr *t, uint32_t func, uint32_t *stack, uint32_t *found)
{
	uint32_t n = 0, depth = 0;
	uint32_t entry = t->funcs[func].entry;
	if (t->func_of[entry] && t->func_of[entry] != func + 1)
		return tr_unsupported(t, entry, "two functions share this instruction");
	if (!t->func_of[entry])
		stack[depth++] = entry;
	t->func_of[entry] = func + 1;
	while (depth) {
		uint32_t pc = stack[--depth];
		found[n++] = pc;
		int64_t callee = callee_pc(t, pc);
		if (callee >= 0) {
			int64_t f = func_at(t, callee);
			if (f < 0)
				return (int)f;
		}
		int64_t next[2] = { fall_pc(t, pc), jump_pc(t, pc) };
		for (int k = 0; k < 2; k++) {
			if (next[k] < 0 || t->func_of[next[k]] == func + 1)
				continue;
			if (t->func_of[next[k]])
				return tr_unsupported(t, (uint32_t)next[k],
					"two functions share this instruction");
			t->func_of[next[k]] = func + 1;
			stack[depth++] = (uint32_t)next[k];
		}
	}
	uint32_t *pcs = arena_array(t->arena, n, sizeof(*pcs));
	if (!pcs)
		return diag_set(t->d, ENOMEM, "out of memory");
	if (n)
		memcpy(pcs, found, n * sizeof(*pcs));
	qsort(pcs, n, sizeof(*pcs), compare_pcs);
	for (uint32_t i = 0; i < n; i++)
		t->index_of[pcs[i]] = i;
	t->funcs[func].pcs = pcs;
	t->funcs[func].n_pcs = n;
	return 0;
}

/* Instructions of f with every call copied; finds recursion. */
static int size_func(struct tr *t, uint32_t f, uint32_t depth)
{
	struct tr_func *fn = &t->funcs[f];
	if (fn->mark == 2)
		return 0;
	if (fn->mark == 1 || depth > TR_MAX_DEPTH)
		return diag_set(
			t->d, EOPNOTSUPP, "insn %u: subprogram calls nest too deeply", fn->entry);
	fn->mark = 1;
	uint64_t sum = fn->n_pcs;
	for (uint32_t i = 0; i < fn->n_pcs; i++) {
		int64_t callee = callee_pc(t, fn->pcs[i]);
		if (callee < 0)
			continue;
		uint32_t c = t->func_of[callee] - 1;
		int err = size_func(t, c, depth + 1);
		if (err)
			return err;
		sum += t->funcs[c].expanded;
		if (sum > UINT32_MAX)
			sum = UINT32_MAX;
	}
	fn->expanded = sum;
	fn->mark = 2;
	return 0;
}

static struct tr_inst *new_inst(struct tr *t, uint32_t func, int32_t depth)
{
	struct tr_inst *inst = arena_alloc(t->arena, sizeof(*inst));
	struct tr_inst **all =
		arena_grow(t->arena, t->insts, t->n_insts, &t->cap_insts, sizeof(*all));
	struct tr_func *fn = &t->funcs[func];
	struct tr_insn *at = arena_array(t->arena, fn->n_pcs, sizeof(*at));
	if (!inst || !all || !at)
		return NULL;
	t->insts = all;
	*inst = (struct tr_inst){
		.id = (uint32_t)t->n_insts, .func = func, .depth = depth, .at = at, .n = fn->n_pcs
	};
	for (uint32_t i = 0; i < fn->n_pcs; i++)
		at[i].pc = fn->pcs[i];
	all[t->n_insts++] = inst;
	return inst;
}

static int add_caller(struct tr *t, struct tr_inst *callee, struct tr_inst *inst, uint32_t at)
{
	struct tr_caller *c = arena_grow(
		t->arena, callee->callers, callee->n_callers, &callee->cap_callers, sizeof(*c));
	if (!c)
		return diag_set(t->d, ENOMEM, "out of memory");
	callee->callers = c;
	c[callee->n_callers++] = (struct tr_caller){ inst, at };
	inst->at[at].callee = callee;
	return 0;
}

/* A shared function whose callers differ in depth has none; neither has what it calls. */
static void set_depth(struct tr_inst *inst, int32_t depth)
{
	if (inst->depth == depth)
		return;
	inst->depth = -1;
	for (uint32_t i = 0; i < inst->n; i++)
		if (inst->at[i].callee)
			set_depth(inst->at[i].callee, -1);
}

static struct tr_inst *instantiate(struct tr *t, uint32_t func, int32_t depth)
{
	struct tr_inst *inst = new_inst(t, func, depth);
	if (!inst) {
		diag_set(t->d, ENOMEM, "out of memory");
		return NULL;
	}
	if (t->share)
		t->funcs[func].shared = inst;
	int32_t below = depth < 0 ? -1 : depth + 1;
	for (uint32_t i = 0; i < inst->n; i++) {
		int64_t callee = callee_pc(t, inst->at[i].pc);
		if (callee < 0)
			continue;
		uint32_t f = t->func_of[callee] - 1;
		struct tr_inst *c = t->funcs[f].shared;
		if (c)
			set_depth(c, below);
		else
			c = instantiate(t, f, below);
		if (!c || add_caller(t, c, inst, i))
			return NULL;
	}
	return inst;
}

static void mark_targets(struct tr *t, struct tr_inst *inst)
{
	uint32_t entry = t->index_of[t->funcs[inst->func].entry];
	inst->at[entry].join = true;
	inst->at[entry].target = entry > 0;
	for (uint32_t i = 0; i < inst->n; i++) {
		int32_t to = tr_jump(t, inst, i);
		if (to >= 0)
			inst->at[to].target = inst->at[to].join = true;
	}
}

int tr_flow(struct tr *t)
{
	uint32_t n = t->p->n_insns;
	t->func_of = arena_array(t->arena, n, sizeof(*t->func_of));
	t->index_of = arena_array(t->arena, n, sizeof(*t->index_of));
	t->entry_of = arena_array(t->arena, n, sizeof(*t->entry_of));
	uint32_t *stack = arena_array(t->arena, n, sizeof(*stack));
	uint32_t *found = arena_array(t->arena, n, sizeof(*found));
	if (!t->func_of || !t->index_of || !t->entry_of || !stack || !found)
		return diag_set(t->d, ENOMEM, "out of memory");
	int64_t main_func = func_at(t, 0);
	if (main_func < 0)
		return (int)main_func;
	for (uint32_t f = 0; f < t->n_funcs; f++) { /* grows as calls are found */
		int err = collect(t, f, stack, found);
		if (err)
			return err;
	}
	int err = size_func(t, 0, 0);
	if (err)
		return err;
	uint64_t limit = (uint64_t)n * TR_COPY_FACTOR;
	t->share = t->funcs[0].expanded > (limit > TR_COPY_MIN ? limit : TR_COPY_MIN);
	if (!instantiate(t, 0, 0))
		return -ENOMEM;
	for (size_t i = 0; i < t->n_insts; i++)
		mark_targets(t, t->insts[i]);
	return 0;
}
