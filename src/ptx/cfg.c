#include "ptx/cfg.h"

#include <errno.h>
#include <string.h>

#include "base/table.h"

bool ptx_insn_ends_block(const struct ptx_insn *insn)
{
	static const char *const bases[] = { "bra", "brx", "ret", "exit", "trap" };

	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		if (!strcmp(insn->base, bases[i]))
			return true;
	}
	return false;
}

/* An edge from a statement to a label's statement. */
struct jump {
	uint32_t from, to;
};

struct build {
	struct arena *arena;
	const struct ptx_func *f;
	struct ptx_cfg *g;
	struct table *names; /* label or table in scope -> statement + 1 */
	uint32_t *scope;     /* per OPEN: its first LABEL or TABLE + 1, then chained by next */
	uint32_t *next, *shadowed;
	uint32_t root;
	bool *targeted; /* per statement */
	struct jump *jumps;
	size_t n_jumps, cap;
};

static bool is_name(const struct ptx_stmt *s)
{
	return (s->kind == PTX_STMT_LABEL || s->kind == PTX_STMT_TABLE) && s->name;
}

/* Which names each scope declares: a branch may come before its label. */
static bool list_scopes(struct build *b)
{
	uint32_t n = b->f->n_stmts, depth = 0;
	uint32_t *open = arena_array(b->arena, (size_t)n + 1, sizeof(*open));

	if (!open)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const struct ptx_stmt *s = &b->f->stmts[i];
		if (s->kind == PTX_STMT_OPEN) {
			open[depth++] = i;
		} else if (s->kind == PTX_STMT_CLOSE && depth) {
			depth--;
		} else if (is_name(s)) {
			uint32_t *head = depth ? &b->scope[open[depth - 1]] : &b->root;
			b->next[i] = *head;
			*head = i + 1;
		}
	}
	return true;
}

static bool enter(struct build *b, uint32_t head)
{
	for (uint32_t at = head; at; at = b->next[at - 1]) {
		const char *name = b->f->stmts[at - 1].name;
		b->shadowed[at - 1] = (uint32_t)(uintptr_t)table_gets(b->names, name);
		if (table_puts(b->names, name, (void *)(uintptr_t)at))
			return false;
	}
	return true;
}

/* A put of an existing key allocates nothing. A name declared twice unwinds in the order it was
 * entered: the last one first would be exact, but such text does not compile. */
static void leave(struct build *b, uint32_t head)
{
	for (uint32_t at = head; at; at = b->next[at - 1]) {
		const char *name = b->f->stmts[at - 1].name;
		if (b->shadowed[at - 1])
			table_puts(b->names, name, (void *)(uintptr_t)b->shadowed[at - 1]);
		else
			table_remove(b->names, name, strlen(name));
	}
}

static bool add_jump(struct build *b, uint32_t from, const char *name)
{
	uint32_t to = name ? (uint32_t)(uintptr_t)table_gets(b->names, name) : 0;

	if (!to || b->f->stmts[to - 1].kind != PTX_STMT_LABEL) {
		b->g->unknown_targets = true;
		return true;
	}
	struct jump *jumps = arena_grow(b->arena, b->jumps, b->n_jumps, &b->cap, sizeof(*jumps));
	if (!jumps)
		return false;
	b->jumps = jumps;
	jumps[b->n_jumps++] = (struct jump){ from, to - 1 };
	b->targeted[to - 1] = true;
	return true;
}

static bool add_indexed(struct build *b, uint32_t from, const struct ptx_operand *op)
{
	uint32_t at = op->name ? (uint32_t)(uintptr_t)table_gets(b->names, op->name) : 0;

	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (!add_jump(b, from, op->sub[i].name))
			return false;
	}
	if (op->n_sub)
		return true;
	if (!at || b->f->stmts[at - 1].kind != PTX_STMT_TABLE) {
		b->g->unknown_targets = true;
		return true;
	}
	for (uint32_t i = 0; i < b->f->stmts[at - 1].n_targets; i++) {
		if (!add_jump(b, from, b->f->stmts[at - 1].targets[i]))
			return false;
	}
	return true;
}

static bool list_jumps(struct build *b)
{
	if (!enter(b, b->root))
		return false;
	for (uint32_t i = 0; i < b->f->n_stmts; i++) {
		const struct ptx_stmt *s = &b->f->stmts[i];
		const struct ptx_insn *insn = s->insn;
		if (s->kind == PTX_STMT_OPEN && !enter(b, b->scope[i]))
			return false;
		if (s->kind == PTX_STMT_CLOSE)
			leave(b, b->scope[s->match]);
		if (!insn || !insn->n_operands)
			continue;
		if (!strcmp(insn->base, "bra") && !add_jump(b, i, insn->operands[0].name))
			return false;
		if (!strcmp(insn->base, "brx") &&
			!add_indexed(b, i, &insn->operands[insn->n_operands - 1]))
			return false;
	}
	return true;
}

/* -- blocks -- */

static struct ptx_block *begin_block(struct build *b, uint32_t stmt)
{
	struct ptx_block *block = &b->g->blocks[b->g->n_blocks++];

	block->first = stmt;
	block->first_insn = PTX_NO_BLOCK;
	block->idom = b->g->n_blocks - 1;
	return block;
}

static bool cut_blocks(struct build *b)
{
	uint32_t n = b->f->n_stmts, count = 1;
	struct ptx_block *block = NULL;
	bool ended = true, labelled = false;

	for (uint32_t i = 0; i < n; i++)
		count += b->targeted[i] ||
			 (b->f->stmts[i].insn && ptx_insn_ends_block(b->f->stmts[i].insn));
	b->g->blocks = arena_array(b->arena, count, sizeof(*b->g->blocks));
	if (!b->g->blocks)
		return false;
	for (uint32_t i = 0; i < n; i++) {
		const struct ptx_insn *insn = b->f->stmts[i].insn;
		bool starts = ended && (insn || b->targeted[i] || !block);
		starts |= b->targeted[i] && (block->n_insns || ended) &&
			  !(labelled && !block->n_insns);
		if (starts) {
			block = begin_block(b, i);
			ended = false;
		}
		labelled = b->targeted[i] || (labelled && !insn);
		b->g->block_of[i] = b->g->n_blocks - 1;
		block->last = i;
		if (!insn)
			continue;
		if (!block->n_insns++)
			block->first_insn = i;
		ended = ptx_insn_ends_block(insn);
	}
	return true;
}

uint32_t ptx_block_end(const struct ptx_func *f, const struct ptx_block *block)
{
	for (uint32_t i = block->last + 1; block->n_insns && i > block->first; i--) {
		const struct ptx_insn *insn = f->stmts[i - 1].insn;
		if (insn)
			return ptx_insn_ends_block(insn) ? i - 1 : PTX_NO_BLOCK;
	}
	return PTX_NO_BLOCK;
}

/* The instruction that ends the block, or NULL where it runs into the next. */
static const struct ptx_insn *terminator(const struct build *b, const struct ptx_block *block)
{
	uint32_t end = ptx_block_end(b->f, block);

	return end == PTX_NO_BLOCK ? NULL : b->f->stmts[end].insn;
}

static bool falls_through(const struct build *b, uint32_t i)
{
	const struct ptx_insn *end = terminator(b, &b->g->blocks[i]);

	return i + 1 < b->g->n_blocks && (!end || end->pred);
}

static void add_edge(struct ptx_cfg *g, uint32_t from, uint32_t to)
{
	struct ptx_block *a = &g->blocks[from], *b = &g->blocks[to];

	for (uint32_t i = a->n_succ; i > 0 && i + 8 > a->n_succ; i--) {
		if (a->succ[i - 1] == to)
			return;
	}
	a->succ[a->n_succ++] = to;
	b->pred[b->n_pred++] = from;
}

/* Room for the edges of all blocks, counted before. */
static bool reserve_edges(struct build *b)
{
	struct ptx_cfg *g = b->g;
	size_t n = b->n_jumps + g->n_blocks;
	uint32_t *room = arena_array(b->arena, 2 * n + 1, sizeof(*room));

	if (!room)
		return false;
	for (size_t i = 0; i < b->n_jumps; i++) {
		g->blocks[g->block_of[b->jumps[i].from]].n_succ++;
		g->blocks[g->block_of[b->jumps[i].to]].n_pred++;
	}
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		g->blocks[i].succ = room;
		room += g->blocks[i].n_succ + 1;
		g->blocks[i].pred = room;
		room += g->blocks[i].n_pred + 1;
		g->blocks[i].n_succ = g->blocks[i].n_pred = 0;
	}
	return true;
}

static bool connect(struct build *b)
{
	struct ptx_cfg *g = b->g;

	if (!reserve_edges(b))
		return false;
	for (size_t i = 0; i < b->n_jumps; i++) {
		const struct jump *j = &b->jumps[i];
		add_edge(g, g->block_of[j->from], g->block_of[j->to]);
		if (!strcmp(b->f->stmts[j->from].insn->base, "bra"))
			g->target_of[j->from] = g->block_of[j->to];
	}
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		if (falls_through(b, i))
			add_edge(g, i, i + 1);
	}
	return true;
}

/* -- dominators (Cooper, Harvey, Kennedy) -- */

struct order {
	uint32_t *list, n; /* postorder */
	uint32_t *number;  /* place in it + 1; 0: unreachable */
	uint32_t *stack, *at;
};

static void depth_first(struct ptx_cfg *g, struct order *o)
{
	uint32_t depth = 1;

	g->blocks[0].reachable = true;
	o->stack[0] = 0;
	while (depth) {
		uint32_t i = o->stack[depth - 1];
		if (o->at[i] < g->blocks[i].n_succ) {
			uint32_t to = g->blocks[i].succ[o->at[i]++];
			if (!g->blocks[to].reachable) {
				g->blocks[to].reachable = true;
				o->stack[depth++] = to;
			}
			continue;
		}
		o->list[o->n++] = i;
		o->number[i] = o->n;
		depth--;
	}
}

static uint32_t intersect(const struct ptx_cfg *g, const struct order *o, uint32_t a, uint32_t b)
{
	while (a != b) {
		while (o->number[a] < o->number[b])
			a = g->blocks[a].idom;
		while (o->number[b] < o->number[a])
			b = g->blocks[b].idom;
	}
	return a;
}

static uint32_t new_idom(
	const struct ptx_cfg *g, const struct order *o, const bool *done, uint32_t i)
{
	uint32_t idom = PTX_NO_BLOCK;

	for (uint32_t k = 0; k < g->blocks[i].n_pred; k++) {
		uint32_t p = g->blocks[i].pred[k];
		if (done[p])
			idom = idom == PTX_NO_BLOCK ? p : intersect(g, o, idom, p);
	}
	return idom;
}

static void find_dominators(struct ptx_cfg *g, const struct order *o, bool *done)
{
	bool changed = true;

	done[0] = true;
	while (changed) {
		changed = false;
		for (uint32_t k = o->n - 1; k > 0; k--) {
			uint32_t i = o->list[k - 1];
			uint32_t idom = new_idom(g, o, done, i);
			changed |= idom != g->blocks[i].idom || !done[i];
			g->blocks[i].idom = idom;
			done[i] = true;
		}
	}
}

bool ptx_cfg_dominates(const struct ptx_cfg *g, uint32_t a, uint32_t b)
{
	while (b != a && g->blocks[b].idom != b)
		b = g->blocks[b].idom;
	return a == b;
}

/* An edge that goes back in the order of the search ends a loop. */
static void find_loops(struct ptx_cfg *g, const struct order *o)
{
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		for (uint32_t k = 0; o->number[i] && k < g->blocks[i].n_succ; k++) {
			uint32_t to = g->blocks[i].succ[k];
			g->blocks[to].loop_head |= o->number[to] >= o->number[i];
		}
	}
}

static bool search(struct arena *arena, struct ptx_cfg *g, struct order *o)
{
	size_t n = (size_t)g->n_blocks + 1;

	*o = (struct order){ .list = arena_array(arena, n, sizeof(uint32_t)),
		.number = arena_array(arena, n, sizeof(uint32_t)),
		.stack = arena_array(arena, n, sizeof(uint32_t)),
		.at = arena_array(arena, n, sizeof(uint32_t)) };
	if (!o->list || !o->number || !o->stack || !o->at)
		return false;
	for (uint32_t i = 0; i < g->n_blocks; i++)
		g->blocks[i].reachable = false;
	if (g->n_blocks)
		depth_first(g, o);
	return true;
}

int ptx_cfg_dominators(struct arena *arena, struct ptx_cfg *g)
{
	struct order o;
	bool *done = arena_array(arena, (size_t)g->n_blocks + 1, sizeof(*done));

	if (!done || !search(arena, g, &o))
		return -ENOMEM;
	if (!g->n_blocks)
		return 0;
	find_dominators(g, &o, done);
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		for (uint32_t k = 0; o.number[i] && k < g->blocks[i].n_succ; k++) {
			uint32_t to = g->blocks[i].succ[k];
			if (o.number[to] >= o.number[i])
				g->irreducible |= !ptx_cfg_dominates(g, to, i);
		}
	}
	return 0;
}

int ptx_cfg_build(struct arena *arena, const struct ptx_func *f, struct ptx_cfg *out)
{
	size_t n = (size_t)f->n_stmts + 1;
	struct order o;
	struct build b = { .arena = arena,
		.f = f,
		.g = out,
		.names = table_new(),
		.scope = arena_array(arena, n, sizeof(uint32_t)),
		.next = arena_array(arena, n, sizeof(uint32_t)),
		.shadowed = arena_array(arena, n, sizeof(uint32_t)),
		.targeted = arena_array(arena, n, sizeof(bool)) };

	*out = (struct ptx_cfg){ .block_of = arena_array(arena, n, sizeof(uint32_t)),
		.target_of = arena_array(arena, n, sizeof(uint32_t)) };
	bool ok = b.names && b.scope && b.next && b.shadowed && b.targeted && out->block_of &&
		  out->target_of;
	if (ok)
		memset(out->target_of, 0xff, n * sizeof(uint32_t));
	ok = ok && list_scopes(&b) && list_jumps(&b) && cut_blocks(&b) && connect(&b) &&
	     search(arena, out, &o);
	if (ok)
		find_loops(out, &o);
	table_free(b.names);
	return ok ? 0 : -ENOMEM;
}

uint32_t ptx_cfg_loop(const struct ptx_cfg *g, uint32_t head, bool *in, uint32_t *out)
{
	uint32_t n = 0;

	memset(in, 0, g->n_blocks * sizeof(*in));
	in[head] = true;
	out[n++] = head;
	for (uint32_t at = 0; at < n; at++) {
		const struct ptx_block *b = &g->blocks[out[at]];
		for (uint32_t k = 0; k < b->n_pred; k++) {
			uint32_t p = b->pred[k];
			if (in[p] || !g->blocks[p].reachable || !ptx_cfg_dominates(g, head, p))
				continue;
			in[p] = true;
			out[n++] = p;
		}
	}
	return n;
}
