/* loops.c - requires find_points; leaves, at blocks, why a guard of --live is not there (struct instrument_site, unguarded).
 *
 * Every way through a kernel that could take long passes a guard: all loop heads have one, but for those of innermost loops
 * that touch no memory, wait for nothing, call nothing, make a number of passes that the text states, and lie in another loop. In a
 * loop of a few multiplications a guard costs more than the loop, and such a loop ends soon.
 */
#include <string.h>

#include "instrument/variant.h"

enum { SHORT_INSNS = 65536 }; /* of all passes: some 0.1 ms */

struct loops {
	struct variant *v;
	const struct ptx_func *f;
	const struct ptx_cfg *g;
	bool *in;	  /* per block: in the loop that is looked at */
	uint32_t *queue;
	uint32_t head;
};

/* -- bodies ---------------------------------------------------------------------- */

static void mark_body(struct loops *l, uint32_t head)
{
	l->head = head;
	ptx_cfg_loop(l->g, head, l->in, l->queue);
}

/* Whether a block is passed in every round. */
static bool every_round(const struct loops *l, uint32_t block)
{
	const struct ptx_block *head = &l->g->blocks[l->head];

	for (uint32_t k = 0; k < head->n_pred; k++)
		if (l->in[head->pred[k]] && !ptx_cfg_dominates(l->g, block, head->pred[k]))
			return false;
	return l->in[block];
}

/* -- what a loop does --------------------------------------------------------------- */

static bool is_plain(const struct ptx_insn *insn)
{
	static const char *const special[] = { "bar", "barrier", "mbarrier", "nanosleep", "vote", "match", "redux", "shfl", "wgmma", "mma",
		"cp", "membar", "fence", "griddepcontrol", "brx", "activemask", "elect" };
	struct ptx_access a;

	ptx_insn_access(insn, &a);
	if (is_call(insn) || (a.op != PTX_ACCESS_NONE && a.space != PTX_SPACE_PARAM && a.space != PTX_SPACE_CONST))
		return false;
	for (uint32_t i = 0; i < sizeof(special) / sizeof(special[0]); i++)
		if (!strcmp(insn->base, special[i]))
			return false;
	return true;
}

/* Its instructions, when it has no other loop in it and nothing but arithmetic; else 0. */
static uint32_t count_plain(const struct loops *l)
{
	uint32_t n = 0;

	for (uint32_t b = 0; b < l->g->n_blocks; b++) {
		const struct ptx_block *block = &l->g->blocks[b];
		if (!l->in[b])
			continue;
		if (block->loop_head && b != l->head)
			return 0;
		for (uint32_t i = block->first; i <= block->last; i++) {
			if (l->f->stmts[i].insn && !is_plain(l->f->stmts[i].insn))
				return 0;
		}
		n += block->n_insns;
	}
	return n;
}

/* -- how often it goes round --------------------------------------------------------- */

static bool same_reg(const struct ptx_operand *a, const struct ptx_operand *b)
{
	return a->kind == PTX_OPERAND_REG && b->kind == PTX_OPERAND_REG && a->reg == b->reg && a->component == b->component &&
	       !strcmp(a->name, b->name);
}

/* By its name alone: one of the same name in another scope makes us know less. */
static bool holds_reg(const struct ptx_operand *op, const char *name)
{
	if (op->kind == PTX_OPERAND_ADDRESS)
		return false;
	if (op->name && !strcmp(op->name, name))
		return true;
	for (uint32_t i = 0; i < op->n_sub; i++)
		if (holds_reg(&op->sub[i], name))
			return true;
	return false;
}

static bool defines(const struct ptx_insn *insn, const char *name)
{
	uint32_t n = is_call(insn) ? insn->n_operands : insn->n_operands ? 1 : 0;

	for (uint32_t i = 0; i < n; i++)
		if (holds_reg(&insn->operands[i], name))
			return true;
	return false;
}

/* The statements that set a register; their number, of which at most `max` are put out. */
static uint32_t definitions(const struct loops *l, const char *name, uint32_t *out, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->f->n_stmts; i++)
		if (l->f->stmts[i].insn && defines(l->f->stmts[i].insn, name)) {
			if (n < max)
				out[n] = i;
			n++;
		}
	return n;
}

static bool is_move(const struct ptx_insn *insn)
{
	return !strcmp(insn->base, "mov") && !insn->pred && insn->n_operands == 2;
}

/* A literal, or a register that is set once, to one. */
static bool constant(const struct loops *l, const struct ptx_operand *op, int64_t *out)
{
	uint32_t at;

	if (op->kind == PTX_OPERAND_REG && definitions(l, op->name, &at, 1) == 1 && is_move(l->f->stmts[at].insn))
		op = &l->f->stmts[at].insn->operands[1];
	*out = op->value;
	return op->kind == PTX_OPERAND_INT && op->value > -(INT64_C(1) << 31) && op->value < INT64_C(1) << 31;
}

struct counter {
	int64_t start, step;
};

/* A register that is set before the loop and stepped once in every round. */
static bool find_counter(const struct loops *l, const struct ptx_operand *reg, struct counter *c)
{
	const uint32_t *block_of = l->g->block_of;
	uint32_t at[2];

	if (reg->kind != PTX_OPERAND_REG || !reg->reg || definitions(l, reg->name, at, 2) != 2)
		return false;
	bool first = l->in[block_of[at[0]]];
	const struct ptx_insn *step = l->f->stmts[at[first ? 0 : 1]].insn, *start = l->f->stmts[at[first ? 1 : 0]].insn;
	uint32_t step_in = block_of[at[first ? 0 : 1]], start_in = block_of[at[first ? 1 : 0]];
	bool adds = !strcmp(step->base, "add"), takes = !strcmp(step->base, "sub");
	if ((!adds && !takes) || step->pred || step->n_operands != 3 || step->n_mods != 1 || !same_reg(&step->operands[1], reg) ||
		!every_round(l, step_in) || !is_move(start) || l->in[start_in] || !ptx_cfg_dominates(l->g, start_in, l->head))
		return false;
	if (!constant(l, &step->operands[2], &c->step) || !constant(l, &start->operands[1], &c->start) || !c->step)
		return false;
	c->step = takes ? -c->step : c->step;
	return true;
}

static const char *opposite(const char *cmp)
{
	static const char *const pairs[][2] = { { "eq", "ne" }, { "lt", "ge" }, { "gt", "le" } };

	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 2; k++)
			if (!strcmp(cmp, pairs[i][k]))
				return pairs[i][1 - k];
	return "";
}

/* Rounds after which `counter CMP limit` holds no longer; 0: not known. Numbers are small, so that nothing wraps before. */
static int64_t rounds(const struct counter *c, const char *cmp, int64_t limit)
{
	int64_t way = limit - c->start;

	if (!strcmp(cmp, "ne"))
		return way % c->step ? 0 : way / c->step > 0 ? way / c->step + 1 : 0;
	bool up = !strcmp(cmp, "lt") || !strcmp(cmp, "le"), down = !strcmp(cmp, "gt") || !strcmp(cmp, "ge");
	if (!(up && c->step > 0) && !(down && c->step < 0))
		return 0;
	return way / c->step > 0 ? way / c->step + 2 : 2;
}

/* What the way out at the end of a block says about the number of rounds; 0: nothing. */
static int64_t rounds_by(const struct loops *l, uint32_t b)
{
	const struct ptx_block *block = &l->g->blocks[b];
	uint32_t end = ptx_block_end(l->f, block);
	const struct ptx_insn *branch = end == PTX_NO_BLOCK ? NULL : l->f->stmts[end].insn;
	struct counter c;
	int64_t limit;

	if (!branch || strcmp(branch->base, "bra") || !branch->pred || block->n_succ != 2 || !every_round(l, b) ||
		l->in[block->succ[0]] == l->in[block->succ[1]])
		return 0;
	uint32_t found = 0;
	const struct ptx_insn *test = definitions(l, branch->pred, &found, 1) == 1 ? l->f->stmts[found].insn : NULL;
	if (!test || strcmp(test->base, "setp") || test->pred || test->n_mods != 2 || test->n_operands != 3 ||
		!every_round(l, l->g->block_of[found]))
		return 0;
	const char *type = test->mods[1], *cmp = test->mods[0];
	bool is_unsigned = type[0] == 'u';
	if (strcmp(type + 1, "32") && strcmp(type + 1, "64"))
		return 0;
	if (!find_counter(l, &test->operands[1], &c) || !constant(l, &test->operands[2], &limit))
		return 0;
	/* Numbers with a margin on both sides. */
	if (limit > INT32_MAX / 2 || limit < (is_unsigned ? 0 : INT32_MIN / 2) || c.start > INT32_MAX / 2 ||
		c.start < (is_unsigned ? 0 : INT32_MIN / 2) || c.step > INT32_MAX / 4 || c.step < -INT32_MAX / 4 ||
		(is_unsigned && limit + c.step < 0))
		return 0;
	/* It goes on while the branch leads into the loop. */
	bool on_when_true = l->in[block->succ[0]] != branch->pred_negated;
	return rounds(&c, on_when_true ? cmp : opposite(cmp), limit);
}

static int64_t count_rounds(const struct loops *l)
{
	int64_t least = 0;

	for (uint32_t b = 0; b < l->g->n_blocks; b++) {
		int64_t n = l->in[b] ? rounds_by(l, b) : 0;
		if (n && (!least || n < least))
			least = n;
	}
	return least;
}

/* -- choosing -------------------------------------------------------------------------- */

/* Whether another loop is around this one, whose body is marked. */
static bool is_nested(struct loops *l, uint32_t head)
{
	for (uint32_t b = 0; b < l->g->n_blocks; b++) {
		if (b == head || !l->g->blocks[b].loop_head || !ptx_cfg_dominates(l->g, b, head))
			continue;
		mark_body(l, b);
		if (l->in[head])
			return true;
	}
	return false;
}

/* NULL: the head has a guard. */
static const char *why_no_guard(struct loops *l, uint32_t head)
{
	if (l->g->irreducible || l->g->unknown_targets)
		return NULL;
	mark_body(l, head);
	uint32_t insns = count_plain(l);
	int64_t n = insns ? count_rounds(l) : 0;
	if (!n || n > SHORT_INSNS / insns || !is_nested(l, head))
		return NULL;
	return arena_printf(l->v->arena,
		"no guard: a loop of %u instructions without memory accesses, at most %lld times, inside a loop that has one", insns, (long long)n);
}

static void choose(struct loops *l, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct instrument_site *site = &l->v->sites[i];
		const struct spot *spot = &l->v->spots[i];
		uint32_t b = spot->stmt == NO_STMT ? 0 : l->g->block_of[spot->stmt];
		if (site->point == EBPF_POINT_BLOCK)
			site->unguarded = l->g->blocks[b].loop_head ? why_no_guard(l, b) : "no loop begins here";
	}
}

bool choose_guards(struct variant *v, const struct instrument_request *req)
{
	uint32_t from = 0, to;
	bool any = false;

	for (uint32_t i = 0; i < req->n_fragments; i++)
		any |= is_guard(req->fragments[i]) && req->fragments[i]->point == EBPF_POINT_BLOCK;
	for (; any && from < v->n_sites; from = to) {
		struct place *place = v->spots[from].place;
		struct ptx_cfg *g = &place->cfg;
		for (to = from; to < v->n_sites && v->spots[to].place == place;)
			to++;
		struct loops l = { .v = v,
			.f = place->func,
			.g = g,
			.in = arena_array(v->arena, g->n_blocks + 1, sizeof(*l.in)),
			.queue = arena_array(v->arena, g->n_blocks + 1, sizeof(*l.queue)) };
		if (!l.in || !l.queue || ptx_cfg_dominators(v->arena, g))
			return no_memory(v);
		choose(&l, from, to);
	}
	return true;
}
