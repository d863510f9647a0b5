/* layout.c - the program as a graph, before any path is walked.
 *
 * Requires check_encoding. Leaves: subprograms [start, end), each ending in an exit or a jump; jumps that stay inside their
 * subprogram and miss the second halves of ld_imm64; no unreachable instruction; join points; live registers.
 */
#include "verifier/state.h"

#include <errno.h>
#include <stdlib.h>

static bool is_call(const struct bpf_insn *i)
{
	return i->code == (BPF_JMP | BPF_CALL) && i->src_reg == BPF_PSEUDO_CALL;
}

bool is_func_ref(const struct bpf_insn *i)
{
	return ebpf_is_imm64(i) && i->src_reg == BPF_PSEUDO_FUNC;
}

/* A call of a subprogram, or a mention of one that a helper will call. */
static bool names_subprog(const struct bpf_insn *i)
{
	return is_call(i) || is_func_ref(i);
}

static bool is_goto(const struct bpf_insn *i)
{
	return i->code == (BPF_JMP | BPF_JA) || i->code == (BPF_JMP32 | BPF_JA);
}

static bool is_exit(const struct bpf_insn *i)
{
	return i->code == (BPF_JMP | BPF_EXIT);
}

static bool is_jump(const struct bpf_insn *i)
{
	uint8_t class = BPF_CLASS(i->code);
	return (class == BPF_JMP || class == BPF_JMP32) && BPF_OP(i->code) != BPF_CALL && !is_exit(i);
}

static int64_t target_of(uint32_t at, const struct bpf_insn *i)
{
	return (int64_t)at + 1 + (i->code == (BPF_JMP32 | BPF_JA) || names_subprog(i) ? i->imm : i->off);
}

/* Where control goes within the subprogram; calls return to the next instruction. Returns how many of next[] are set. */
int successors(const struct ebpf_program *p, uint32_t at, uint32_t next[2])
{
	const struct bpf_insn *i = &p->insns[at];
	if (is_exit(i))
		return 0;
	if (is_goto(i)) {
		next[0] = (uint32_t)target_of(at, i);
		return 1;
	}
	next[0] = at + (ebpf_is_imm64(i) ? 2 : 1);
	if (!is_jump(i))
		return 1;
	next[1] = (uint32_t)target_of(at, i);
	return 2;
}

uint32_t subprog_of(const struct verifier *v, uint32_t insn)
{
	uint32_t low = 0, high = v->n_subprogs;
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		if (v->subprogs[mid].start < insn)
			low = mid + 1;
		else
			high = mid;
	}
	return low < v->n_subprogs && v->subprogs[low].start == insn ? low : v->n_subprogs;
}

static int find_subprogs(struct verifier *v)
{
	const struct ebpf_program *p = v->p;
	size_t cap = 0;
	bool *starts = calloc(p->n_insns, sizeof(*starts));
	if (!starts)
		return out_of_memory(v);
	starts[0] = true;
	int err = 0;
	for (uint32_t at = 0; at < p->n_insns && !err; at++) {
		if (v->flow[at].second || !names_subprog(&p->insns[at]))
			continue;
		int64_t to = target_of(at, &p->insns[at]);
		v->cur.insn = at;
		if (to < 0 || to >= p->n_insns)
			err = refuse(v, EINVAL, "insn", "call to invalid destination");
		else if (v->flow[to].second)
			err = refuse(v, EINVAL, "insn", "call into the middle of ld_imm64 insn %lld", (long long)to);
		else
			starts[to] = true;
	}
	for (uint32_t at = 0; at < p->n_insns && !err; at++) {
		if (!starts[at])
			continue;
		v->subprogs = arena_grow(v->arena, v->subprogs, v->n_subprogs, &cap, sizeof(*v->subprogs));
		if (!v->subprogs)
			err = out_of_memory(v);
		else
			v->subprogs[v->n_subprogs++] = (struct subprog){ .start = at };
	}
	free(starts);
	if (err)
		return err;
	for (uint32_t k = 0; k < v->n_subprogs; k++)
		v->subprogs[k].end = k + 1 < v->n_subprogs ? v->subprogs[k + 1].start : p->n_insns;
	return 0;
}

static int check_jumps(struct verifier *v, const struct subprog *s)
{
	const struct ebpf_program *p = v->p;
	for (uint32_t at = s->start; at < s->end; at++) {
		const struct bpf_insn *i = &p->insns[at];
		if (v->flow[at].second || !is_jump(i))
			continue;
		v->cur.insn = at;
		int64_t to = target_of(at, i), past = at + 1;
		if (to < s->start || to >= s->end)
			return refuse(v, EINVAL, "insn", "jump out of range from insn %u to %lld", at, (long long)to);
		if (!is_goto(i) && past >= s->end)
			return refuse(v, EINVAL, "insn", "jump out of range from insn %u to %lld", at, (long long)past);
		if (v->flow[to].second)
			return refuse(v, EINVAL, "insn", "jump into the middle of ld_imm64 insn %lld", (long long)to);
	}
	v->cur.insn = s->end - 1;
	const struct bpf_insn *last = &p->insns[s->end - 1];
	if (v->flow[s->end - 1].second || (!is_exit(last) && !is_goto(last)))
		return refuse(v, EINVAL, "insn", "last insn is not an exit or jmp");
	return 0;
}

/* Everything that some path could reach if all branches were open. */
static int check_reachable(struct verifier *v)
{
	const struct ebpf_program *p = v->p;
	uint8_t *seen = calloc(p->n_insns, 1);
	uint32_t *work = malloc(((size_t)p->n_insns + 1) * sizeof(*work));
	uint32_t n = 0;
	int err = seen && work ? 0 : out_of_memory(v);
	if (!err) {
		work[n++] = 0;
		seen[0] = 1;
		v->flow[0].join = true;
	}
	while (!err && n) {
		uint32_t at = work[--n], next[3];
		int k = successors(p, at, next);
		if (is_call(&p->insns[at]))
			v->flow[at + 1].join = true; /* of the returns */
		if (names_subprog(&p->insns[at]))
			next[k++] = (uint32_t)target_of(at, &p->insns[at]);
		if (v->flow[at].loops) {
			v->flow[at].join = true; /* of the calls that it makes */
			v->loop_cost = v->loop_cost ? v->loop_cost : arena_array(v->arena, p->n_insns, sizeof(*v->loop_cost));
			v->loop_seen = v->loop_seen ? v->loop_seen : arena_array(v->arena, p->n_insns, sizeof(*v->loop_seen));
			if (!v->loop_cost || !v->loop_seen)
				err = out_of_memory(v);
		}
		while (k--) {
			if (seen[next[k]])
				v->flow[next[k]].join = true;
			else
				work[n++] = next[k];
			seen[next[k]] = 1;
		}
	}
	for (uint32_t at = 0; at < p->n_insns && !err; at++)
		if (!seen[at] && !v->flow[at].second) {
			v->cur.insn = at;
			err = refuse(v, EINVAL, "insn", "unreachable insn %u; remove it", at);
		}
	free(seen);
	free(work);
	return err;
}

int check_layout(struct verifier *v)
{
	int err = find_subprogs(v);
	for (uint32_t k = 0; k < v->n_subprogs && !err; k++)
		err = check_jumps(v, &v->subprogs[k]);
	return err ? err : check_reachable(v);
}

enum { R0 = 1, ARGS = 0x3e };

/* Registers that the instruction reads and writes. */
static void use_def(const struct bpf_insn *i, uint16_t *use, uint16_t *def)
{
	uint16_t dst = (uint16_t)(1 << i->dst_reg), src = (uint16_t)(1 << i->src_reg);
	bool reg = BPF_SRC(i->code) == BPF_X;
	uint8_t op = BPF_OP(i->code);
	*use = *def = 0;
	switch (BPF_CLASS(i->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		*def = dst;
		if (op == BPF_MOV)
			*use = reg ? src : 0;
		else
			*use = (uint16_t)(dst | (reg && op != BPF_END ? src : 0));
		return;
	case BPF_LD:
		*def = dst;
		return;
	case BPF_LDX:
		*def = dst;
		*use = src;
		return;
	case BPF_ST:
		*use = dst;
		return;
	case BPF_STX:
		*use = dst | src;
		if (BPF_MODE(i->code) == BPF_ATOMIC && i->imm == BPF_CMPXCHG) {
			*use |= R0;
			*def = R0;
		} else if (BPF_MODE(i->code) == BPF_ATOMIC && (i->imm & BPF_FETCH)) {
			*def = src;
		}
		return;
	}
	if (op == BPF_EXIT) {
		*use = R0;
	} else if (op == BPF_CALL) {
		*use = ARGS;
		*def = R0 | ARGS;
	} else if (op != BPF_JA) {
		*use = (uint16_t)(dst | (reg ? src : 0));
	}
}

/* Backwards until nothing changes. A predecessor is looked at again only when one of its successors gained a register, so the work
 * is bounded by ten rounds over the edges, whatever the jumps. */
int find_live(struct verifier *v)
{
	const struct ebpf_program *p = v->p;
	size_t n = p->n_insns;
	uint32_t *first = calloc(n + 2, sizeof(*first)), *preds = malloc(2 * n * sizeof(*preds));
	uint32_t *work = malloc(n * sizeof(*work));
	uint8_t *queued = calloc(n, 1);
	int err = first && preds && work && queued ? 0 : out_of_memory(v);
	uint32_t next[2];
	for (uint32_t at = 0; at < n && !err; at++)
		for (int k = v->flow[at].second ? 0 : successors(p, at, next); k--;)
			first[next[k] + 2]++;
	for (size_t at = 0; at < n && !err; at++)
		first[at + 2] += first[at + 1];
	for (uint32_t at = 0; at < n && !err; at++)
		for (int k = v->flow[at].second ? 0 : successors(p, at, next); k--;)
			preds[first[next[k] + 1]++] = at;
	/* A ring of instructions; each is in it at most once. */
	size_t head = 0, count = 0;
	for (uint32_t at = (uint32_t)n; at-- > 0 && !err;)
		if (!v->flow[at].second) {
			work[count++] = at;
			queued[at] = 1;
		}
	while (!err && count) {
		uint32_t at = work[head];
		head = (head + 1) % n;
		count--;
		queued[at] = 0;
		uint16_t use, def, after = 0;
		use_def(&p->insns[at], &use, &def);
		for (int k = successors(p, at, next); k--;)
			after |= v->flow[next[k]].live;
		uint16_t live = (uint16_t)(use | (after & ~def));
		bool changed = live != v->flow[at].live;
		v->flow[at].live = live;
		for (uint32_t k = first[at]; changed && k < first[at + 1]; k++)
			if (!queued[preds[k]]) {
				queued[preds[k]] = 1;
				work[(head + count++) % n] = preds[k];
			}
	}
	free(first);
	free(preds);
	free(work);
	free(queued);
	return err;
}

/* Frames as Linux's JIT rounds them: an empty one still costs 16 bytes. */
static uint32_t frame_bytes(uint32_t depth)
{
	return (depth < 1 ? 16 : (depth + 15) / 16 * 16);
}

struct walk {
	uint32_t subprog, at;
};

static void take_callee(struct subprog *s, const struct subprog *callee)
{
	if (callee->deepest > s->deepest)
		s->deepest = callee->deepest;
	if (callee->levels + 1 > s->levels)
		s->levels = callee->levels + 1;
}

static int list_subprogs(struct verifier *v)
{
	struct ebpf_subprog *list = arena_array(v->arena, v->n_subprogs, sizeof(*list));
	if (!list)
		return out_of_memory(v);
	for (uint32_t k = 0; k < v->n_subprogs; k++)
		list[k] = (struct ebpf_subprog){ v->subprogs[k].start, v->subprogs[k].depth };
	v->out->subprogs = list;
	v->out->n_subprogs = v->n_subprogs;
	v->out->max_frames = v->subprogs[0].levels + 1;
	return 0;
}

/* Depth-first over the calls, callees before callers; deepest[] is then a maximum over the calls of a subprogram. */
int check_stack_depth(struct verifier *v)
{
	struct walk *stack = malloc(((size_t)v->n_subprogs + 1) * sizeof(*stack));
	if (!stack)
		return out_of_memory(v);
	uint32_t n = 0;
	int err = 0;
	stack[n++] = (struct walk){ 0, 0 };
	v->subprogs[0].visit = 1;
	while (n && !err) {
		struct walk *w = &stack[n - 1];
		struct subprog *s = &v->subprogs[w->subprog];
		uint32_t at = s->start + w->at;
		while (at < s->end && (v->flow[at].second || !names_subprog(&v->p->insns[at])))
			at++;
		w->at = at + 1 - s->start;
		if (at >= s->end) {
			s->visit = 2;
			s->deepest += frame_bytes(s->depth);
			n--;
			struct subprog *up = n ? &v->subprogs[stack[n - 1].subprog] : NULL;
			if (up)
				take_callee(up, s);
			continue;
		}
		uint32_t to = subprog_of(v, (uint32_t)target_of(at, &v->p->insns[at]));
		struct subprog *callee = &v->subprogs[to];
		if (callee->visit == 1) {
			v->cur.insn = at;
			err = refuse(v, EACCES, "stack", "recursive call from insn %u; write a bounded loop instead", at);
		} else if (!callee->visit) {
			callee->visit = 1;
			stack[n++] = (struct walk){ to, 0 };
		} else {
			take_callee(s, callee);
		}
	}
	free(stack);
	if (err)
		return err;
	v->out->stack_bytes = v->n_subprogs > 1 ? v->subprogs[0].deepest : (v->subprogs[0].depth + 7) / 8 * 8;
	if (v->subprogs[0].deepest > EBPF_STACK_BYTES)
		return refuse(v, EACCES, "stack", "combined stack size of calls is %u. Too large; at most %d bytes are allowed",
			v->subprogs[0].deepest, EBPF_STACK_BYTES);
	return list_subprogs(v);
}
