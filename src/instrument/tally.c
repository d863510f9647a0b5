/* tally.c - requires sites; in loops, counting probes become one addition to a register, and run where the thread leaves.
 *
 * A program that only adds, of values that are the same whenever a thread comes by (`repeat` in bpf/fragment.h), may run once for many passes. So
 * each basic block in a loop that has such sites counts a thread's passes in a register, and where the thread leaves the sites' programs
 * run for as many:
 *
 *	a function in which nothing waits, nor calls another: at its ways out
 *	else, a loop in which nothing does, with no other such around it: on its edges out
 *
 * A loop that ends by what it loads is left alone.
 *
 * What waits may wait for somebody who reads a map meanwhile, or for ever: in such code, additions are not put off. Neither are those to a
 * map that another program here does more with than add. Edges are instrumented without new blocks: before a branch, for the lanes that take it, and
 * behind it for those that do not.
 */
#include <string.h>

#include "instrument/variant.h"

enum {
	MAX_LEAVES = 4,
	MAX_ROUNDS = 8, /* through a loop's text to see what comes of its loads */
	MAX_TEXTS = 64, /* programs that are written out at several leaves */
};

struct taller {
	struct variant *v;
	const struct instrument_request *req;
	struct place *place;
	const struct ptx_func *f;
	const struct ptx_cfg *g;
	uint32_t first, end; /* sites */
	bool *in;	     /* per block: in the loop that is looked at */
	uint32_t *queue;
	uint32_t *loop_size; /* per block: blocks of the largest loop that it counts for, 0: none */
	uint32_t *loop_of;   /* per block: that loop's head */
	uint32_t *depth;     /* per block: loops around it */
	uint32_t *counter_of; /* per block: 1 + the counter of its passes, 0: none */
	struct leave leaves[MAX_LEAVES];
	uint32_t n_leaves;
	bool too_many, failed;
};

/* -- which programs, which code ------------------------------------------------------- */

static bool may_repeat(const struct taller *t, const struct ebpf_fragment *f)
{
	if (!f->repeat || !f->anywhere || f->warp)
		return false;
	for (uint32_t i = 0; i < t->req->n_fragments; i++)
		if (t->req->fragments[i]->maps & f->maps && !t->req->fragments[i]->anywhere)
			return false;
	return true;
}

static bool site_repeats(const struct taller *t, uint32_t site)
{
	bool any = false;

	if (!is_same_in_block(t->v, site))
		return false;
	for (uint32_t i = 0; i < t->req->n_fragments; i++) {
		if (!fragment_runs_at(t->v, t->req->fragments[i], site))
			continue;
		if (!may_repeat(t, t->req->fragments[i]))
			return false;
		any = true;
	}
	return any;
}

/* Whether a thread that is here goes on by itself, and tells nobody how far it is: neither waits nor publishes. */
static bool is_calm(const struct taller *t, uint32_t block)
{
	static const char *const waits[] = { "atom", "mbarrier", "nanosleep", "griddepcontrol", "brkpt", "tcgen05", "clusterlaunchcontrol", "membar", "fence" };
	static const char *const strong[] = { "volatile", "acquire", "relaxed", "mmio", "release" };
	const struct ptx_block *b = &t->g->blocks[block];

	for (uint32_t i = b->first; i <= b->last; i++) {
		const struct ptx_insn *insn = t->f->stmts[i].insn;
		struct ptx_access a;
		if (!insn)
			continue;
		ptx_insn_access(insn, &a);
		if (is_call(insn) || a.sync || t->place->skipped[i])
			return false;
		for (size_t k = 0; k < sizeof(waits) / sizeof(*waits); k++)
			if (!strcmp(insn->base, waits[k]))
				return false;
		for (size_t k = 0; k < sizeof(strong) / sizeof(*strong); k++)
			if (a.op != PTX_ACCESS_NONE && ptx_insn_has_mod(insn, strong[k]))
				return false;
	}
	return true;
}

static bool all_calm(const struct taller *t, const bool *in)
{
	for (uint32_t b = 0; b < t->g->n_blocks; b++)
		if ((in ? in[b] : t->g->blocks[b].reachable) && !is_calm(t, b))
			return false;
	return true;
}

/* -- loops ---------------------------------------------------------------------------------- */

bool reads_any(const struct table *regs, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		if (reads_any(regs, &op->sub[i]))
			return true;
	return op->name && table_gets(regs, op->name);
}

static bool put_all(struct table *regs, const struct ptx_operand *op, bool *changed)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		if (!put_all(regs, &op->sub[i], changed))
			return false;
	if (!op->name || op->kind != PTX_OPERAND_REG || table_gets(regs, op->name))
		return true;
	*changed = true;
	return !table_puts(regs, op->name, regs);
}

/* What the marked blocks compute of what they load. */
static bool follow_loads(struct taller *t, struct table *regs, bool *changed)
{
	for (uint32_t i = 0; i < t->f->n_stmts; i++) {
		const struct ptx_insn *insn = t->f->stmts[i].insn;
		struct ptx_access a;
		if (!insn || !t->in[t->g->block_of[i]] || !insn->n_operands || insn->operands[0].kind == PTX_OPERAND_ADDRESS)
			continue;
		ptx_insn_access(insn, &a);
		bool loaded = a.op == PTX_ACCESS_LOAD && a.space != PTX_SPACE_PARAM && a.space != PTX_SPACE_CONST;
		for (uint32_t k = 1; k < insn->n_operands; k++)
			loaded |= reads_any(regs, &insn->operands[k]);
		if (loaded && !put_all(regs, &insn->operands[0], changed))
			return false;
	}
	return true;
}

/* The branch or way out that ends a block, else NO_STMT. */
static uint32_t end_of(const struct taller *t, uint32_t block)
{
	uint32_t end = ptx_block_end(t->f, &t->g->blocks[block]);

	return end == PTX_NO_BLOCK ? NO_STMT : end;
}

/* Whether the marked loop ends by what it loads: lanes search, and stop apart from each other, most after a few rounds; putting off what
 * they count then costs more than counting. (A hash join on an H200: 1.15 of native instead of 1.05.) */
static bool ends_by_data(struct taller *t)
{
	struct table *regs = table_new();
	bool changed = true, by_data = !regs;

	for (int round = 0; regs && changed && round < MAX_ROUNDS; round++) {
		changed = false;
		t->failed |= !follow_loads(t, regs, &changed);
	}
	for (uint32_t b = 0; regs && b < t->g->n_blocks; b++) {
		uint32_t end = end_of(t, b);
		const struct ptx_insn *last = insn_at(t->f, end);
		bool out = last && (!strcmp(last->base, "ret") || !strcmp(last->base, "exit"));
		for (uint32_t k = 0; k < t->g->blocks[b].n_succ; k++)
			out |= !t->in[t->g->blocks[b].succ[k]];
		if (t->in[b] && out && last && last->pred)
			by_data |= table_gets(regs, last->pred) != NULL;
	}
	table_free(regs);
	return by_data || changed;
}

/* Each block gets the largest loop around it that will do. */
static void find_loops(struct taller *t)
{
	for (uint32_t head = 0; head < t->g->n_blocks; head++) {
		if (!t->g->blocks[head].loop_head || !t->g->blocks[head].reachable)
			continue;
		uint32_t n = ptx_cfg_loop(t->g, head, t->in, t->queue);
		for (uint32_t b = 0; b < t->g->n_blocks; b++)
			t->depth[b] += t->in[b];
		if (!all_calm(t, t->in) || ends_by_data(t))
			continue;
		for (uint32_t b = 0; b < t->g->n_blocks; b++) {
			if (t->in[b] && n > t->loop_size[b]) {
				t->loop_size[b] = n;
				t->loop_of[b] = head;
			}
		}
	}
}

/* -- leaves --------------------------------------------------------------------------------- */

static void add_leave(struct taller *t, uint32_t at, uint32_t stmt, bool again)
{
	if (t->n_leaves == MAX_LEAVES) {
		t->too_many = true;
		return;
	}
	t->leaves[t->n_leaves++] = (struct leave){ .at = at, .stmt = stmt, .again = again };
}

static uint32_t before(const struct taller *t, uint32_t stmt)
{
	return stmt < t->f->n_stmts ? insert_point(t->v, t->f, stmt) : t->f->body.end - 1;
}

static uint32_t guard_of(const struct taller *t, uint32_t stmt)
{
	return t->f->stmts[stmt].insn->pred ? stmt : NO_STMT;
}

/* Where threads end. The closing brace ends those that no branch or way out before it has taken, and has no block. */
static void add_ends(struct taller *t, uint32_t block)
{
	uint32_t end = end_of(t, block);
	const struct ptx_insn *last = insn_at(t->f, end);

	if (last && (!strcmp(last->base, "ret") || !strcmp(last->base, "exit")))
		add_leave(t, before(t, end), guard_of(t, end), false);
	if (block + 1 == t->g->n_blocks && (!last || last->pred))
		add_leave(t, t->f->body.end - 1, NO_STMT, false);
}

/* Where threads go from the loop, whose blocks are marked, to others. */
static void add_edges(struct taller *t, uint32_t block)
{
	const struct ptx_block *b = &t->g->blocks[block];
	uint32_t end = end_of(t, block);
	const struct ptx_insn *last = insn_at(t->f, end);
	bool out = false;

	for (uint32_t k = 0; k < b->n_succ; k++)
		out |= !t->in[b->succ[k]];
	if (!out) {
		add_ends(t, block);
		return;
	}
	if (!last || strcmp(last->base, "bra")) {
		/* It goes on to what follows; a guarded way out, or a branch by a table: for all lanes, before it. */
		add_leave(t, before(t, last ? end : b->last + 1), NO_STMT, true);
		return;
	}
	if (!t->in[b->succ[0]])
		add_leave(t, before(t, end), guard_of(t, end), true);
	if (last->pred && b->n_succ > 1 && !t->in[b->succ[1]])
		add_leave(t, before(t, end + 1), NO_STMT, true);
}

/* -- counters ------------------------------------------------------------------------------- */

/* The block of a site that may be counted in the marked blocks, or PTX_NO_BLOCK. */
static uint32_t counted_block(const struct taller *t, uint32_t site)
{
	uint32_t stmt = t->v->spots[site].stmt, b = stmt == NO_STMT ? PTX_NO_BLOCK : t->g->block_of[stmt];

	return b != PTX_NO_BLOCK && t->in[b] && !t->v->spots[site].counter && site_repeats(t, site) ? b : PTX_NO_BLOCK;
}

/* At most: sites of one program may share its text (fan.c). */
static uint32_t texts(const struct taller *t)
{
	uint32_t n = 0;

	for (uint32_t i = t->first; i < t->end; i++)
		for (uint32_t k = 0; counted_block(t, i) != PTX_NO_BLOCK && k < t->req->n_fragments; k++)
			n += fragment_runs_at(t->v, t->req->fragments[k], i);
	return n * t->n_leaves;
}

/* Gives counters to the marked blocks of a depth that have sites, as long as there are any. */
static uint32_t give_counters(struct taller *t, uint32_t depth)
{
	struct place *p = t->place;
	uint32_t taken = 0;

	for (uint32_t i = t->first; i < t->end; i++) {
		uint32_t b = counted_block(t, i);
		if (b == PTX_NO_BLOCK || t->depth[b] != depth)
			continue;
		if (!t->counter_of[b]) {
			if (p->n_counters == MAX_COUNTERS)
				continue;
			p->count_at[p->n_counters] = before(t, t->g->blocks[b].first_insn);
			t->counter_of[b] = ++p->n_counters;
		}
		t->v->spots[i].counter = t->counter_of[b];
		taken |= 1u << (t->counter_of[b] - 1);
	}
	return taken;
}

/* Sites of the marked blocks, which all have to pass one of the leaves. */
static bool count_passes(struct taller *t)
{
	struct place *p = t->place;
	uint32_t n = t->n_leaves, taken = 0, deepest = 0;

	if (t->too_many || !n || (n > 1 && texts(t) > MAX_TEXTS))
		return true;
	for (uint32_t b = 0; b < t->g->n_blocks; b++)
		deepest = t->depth[b] > deepest ? t->depth[b] : deepest;
	for (uint32_t d = deepest; d > 0; d--)
		taken |= give_counters(t, d);
	for (uint32_t i = 0; taken && i < n; i++) {
		p->leaves = arena_grow(t->v->arena, p->leaves, p->n_leaves, &p->cap_leaves, sizeof(*p->leaves));
		if (!p->leaves)
			return no_memory(t->v);
		t->leaves[i].counters = taken;
		p->leaves[p->n_leaves++] = t->leaves[i];
	}
	return true;
}

static bool count_function(struct taller *t)
{
	for (uint32_t b = 0; b < t->g->n_blocks; b++) {
		t->in[b] = t->loop_size[b];
		if (t->g->blocks[b].reachable)
			add_ends(t, b);
	}
	return count_passes(t);
}

static bool count_loop(struct taller *t, uint32_t head)
{
	t->n_leaves = 0;
	t->too_many = false;
	for (uint32_t b = 0; b < t->g->n_blocks; b++)
		t->in[b] = t->loop_size[b] && t->loop_of[b] == head;
	for (uint32_t b = 0; b < t->g->n_blocks; b++)
		if (t->in[b])
			add_edges(t, b);
	return count_passes(t);
}

static bool has_repeat(const struct instrument_request *req)
{
	bool any = false;

	for (uint32_t i = 0; i < req->n_fragments; i++) {
		if (is_guard(req->fragments[i]))
			return false;
		any |= req->fragments[i]->repeat != NULL;
	}
	return any;
}

bool tally(struct variant *v, const struct instrument_request *req, struct place *place, uint32_t first, uint32_t end)
{
	struct ptx_cfg *g = &place->cfg;
	struct taller t = { .v = v,
		.req = req,
		.place = place,
		.f = place->func,
		.g = g,
		.first = first,
		.end = end,
		.in = arena_array(v->arena, g->n_blocks + 1, sizeof(*t.in)),
		.queue = arena_array(v->arena, g->n_blocks + 1, sizeof(*t.queue)),
		.loop_size = arena_array(v->arena, g->n_blocks + 1, sizeof(*t.loop_size)),
		.loop_of = arena_array(v->arena, g->n_blocks + 1, sizeof(*t.loop_of)),
		.depth = arena_array(v->arena, g->n_blocks + 1, sizeof(*t.depth)),
		.counter_of = arena_array(v->arena, g->n_blocks + 1, sizeof(*t.counter_of)) };

	if (!has_repeat(req) || !v->target.activemask)
		return true;
	if (!t.in || !t.queue || !t.loop_size || !t.loop_of || !t.depth || !t.counter_of || ptx_cfg_dominators(v->arena, g))
		return no_memory(v);
	if (g->irreducible || g->unknown_targets)
		return true;
	find_loops(&t);
	if (t.failed)
		return no_memory(v);
	if (all_calm(&t, NULL))
		return count_function(&t);
	for (uint32_t b = 0; b < g->n_blocks; b++)
		if (t.loop_size[b] && t.loop_of[b] == b && !count_loop(&t, b))
			return false;
	return true;
}
