/* split.c - two versions of a function whose programs run in chosen warps: with programs, and without.
 *
 * Requires that the function's programs all are sampled, and that edits of bind.c and the launch ids of calls are made; leaves
 *
 *	(the choice, sample.c)
 *	@%egpu_chosen bra.uni $egpu_probed;
 *	{ // egpu plain
 *		(the function's own text from here on)
 *		ret;
 *	}
 *	$egpu_probed:
 *	(the same text, where programs are spliced)
 *
 * so that a warp that is not chosen pays the choice, and nothing at the sites, however many there are. A scope has its own labels, so
 * that the copy is the text as it stands; registers, shared and local variables are declared before the split, once for both. The whole warp goes one way, and
 * barriers count threads wherever they come from; what wants several warps at one instruction cannot be split.
 */
#include <string.h>

#include "instrument/variant.h"

/* -- whether --------------------------------------------------------------------------- */

/* All warps of a group, or of a cluster, execute the same one. */
static bool is_joint(const struct ptx_insn *insn)
{
	static const char *const bases[] = { "wgmma", "setmaxnreg", "tcgen05", "clusterlaunchcontrol" };

	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++)
		if (!strcmp(insn->base, bases[i]))
			return true;
	return (!strcmp(insn->base, "bar") || !strcmp(insn->base, "barrier")) && ptx_insn_has_mod(insn, "cluster");
}

bool joins_warps(const struct variant *v)
{
	for (uint32_t k = 0; k < v->n_places; k++) {
		const struct ptx_func *f = v->places[k].func;
		for (uint32_t i = 0; i < f->n_stmts; i++)
			if (f->stmts[i].insn && is_joint(f->stmts[i].insn))
				return true;
	}
	return false;
}

static uint32_t first_stmt(const struct ptx_func *f)
{
	uint32_t i = 0;

	while (i < f->n_stmts && (f->stmts[i].kind == PTX_STMT_REG || f->stmts[i].kind == PTX_STMT_VAR || f->stmts[i].kind == PTX_STMT_LOC))
		i++;
	return i;
}

/* A variable that is declared from here on would be there twice. */
static bool declares_memory(const struct ptx_func *f, uint32_t from)
{
	for (uint32_t i = from; i < f->n_stmts; i++)
		if (f->stmts[i].kind == PTX_STMT_VAR && f->stmts[i].var->space != PTX_SPACE_PARAM && f->stmts[i].var->space != PTX_SPACE_REG)
			return true;
	return false;
}

bool may_split(const struct variant *v, const struct place *place)
{
	uint32_t first = first_stmt(place->func);

	return first < place->func->n_stmts && !place->cfg.unknown_targets && !declares_memory(place->func, first) && !joins_warps(v);
}

/* -- where ----------------------------------------------------------------------------- */

/* Whether what follows in the text goes nowhere before it. */
static bool stays_behind(const struct place *place, uint32_t stmt)
{
	const struct ptx_cfg *g = &place->cfg;

	for (uint32_t b = 0; b < g->n_blocks; b++)
		for (uint32_t k = 0; g->blocks[b].last >= stmt && k < g->blocks[b].n_succ; k++)
			if (g->blocks[g->blocks[b].succ[k]].first < stmt)
				return false;
	return true;
}

static bool only_leaves(const struct place *place, uint32_t block)
{
	const struct ptx_block *b = &place->cfg.blocks[block];

	for (uint32_t i = b->first; i <= b->last; i++) {
		const struct ptx_insn *insn = place->func->stmts[i].insn;
		if (insn && strcmp(insn->base, "ret") && strcmp(insn->base, "exit"))
			return false;
	}
	return true;
}

bool splits_warps(struct variant *v, const struct place *place, uint32_t block)
{
	const struct ptx_cfg *g = &place->cfg;
	bool *seen = arena_array(v->arena, g->n_blocks + 1, sizeof(*seen)), apart = false;
	uint32_t *queue = arena_array(v->arena, g->n_blocks + 1, sizeof(*queue)), n = 0;

	v->edits.failed |= !seen || !queue;
	if (!seen || !queue)
		return false;
	seen[block] = true;
	queue[n++] = block;
	for (uint32_t i = 0; i < n && !apart; i++) {
		const struct ptx_block *b = &g->blocks[queue[i]];
		apart = !ptx_cfg_dominates(g, block, queue[i]) && !only_leaves(place, queue[i]);
		for (uint32_t k = 0; k < b->n_succ; k++) {
			if (!seen[b->succ[k]])
				queue[n++] = b->succ[k];
			seen[b->succ[k]] = true;
		}
	}
	return apart;
}

/* Neither in a scope, nor with a table of labels before it that a branch behind it may name. */
static bool is_outermost(const struct ptx_func *f, uint32_t stmt)
{
	uint32_t depth = 0;

	for (uint32_t i = 0; i < stmt; i++) {
		if (f->stmts[i].kind == PTX_STMT_TABLE)
			return false;
		depth += f->stmts[i].kind == PTX_STMT_OPEN;
		depth -= f->stmts[i].kind == PTX_STMT_CLOSE;
	}
	return !depth;
}

uint32_t stmt_from(const struct ptx_func *f, uint32_t at)
{
	uint32_t i = 0;

	while (i < f->n_stmts && f->stmts[i].span.begin < at)
		i++;
	return i;
}

/* A sum before the split, that is used behind it, could be moved there by ptxas, away from its product (float.c). */
uint32_t split_point(const struct variant *v, struct place *place, uint32_t at)
{
	const struct ptx_func *f = place->func;
	uint32_t first = first_stmt(f), stmt = stmt_from(f, at);
	bool late = stmt > first && stmt < f->n_stmts && !place->summed && is_outermost(f, stmt) && stays_behind(place, stmt);

	place->split_stmt = late ? stmt : first;
	return insert_point(v, f, place->split_stmt);
}

/* -- the copy -------------------------------------------------------------------------- */

struct copying {
	struct variant *v;
	struct place *place;
	size_t skipped; /* of what was written */
};

static void note_kept(void *arg, size_t at, struct ptx_span span)
{
	struct copying *c = arg;
	struct place *p = c->place;

	p->plain = arena_grow(c->v->arena, p->plain, p->n_plain, &p->cap_plain, sizeof(*p->plain));
	if (p->plain)
		p->plain[p->n_plain++] = (struct printed){ span, at - c->skipped };
	c->v->edits.failed |= !p->plain;
}

/* What bind.c has put before the first statement stands before the choice, for both. */
static size_t put_before(const struct variant *v, const struct place *place, uint32_t at)
{
	size_t n = 0;

	for (size_t i = 0; i < v->edits.n; i++) {
		const struct ptx_edit *e = &v->edits.list[i];
		if (e->span.begin == at && e->span.end == at && e->order < place->choice)
			n += strlen(e->text);
	}
	return n;
}

static bool split_place(struct variant *v, struct place *place)
{
	const struct ptx_func *f = place->func;
	struct ptx_span span = { insert_point(v, f, place->split_stmt), f->body.end - 1 };
	struct copying c = { v, place, put_before(v, place, span.begin) };
	struct buf own = { 0 }, all = { 0 };
	bool good = !ptx_edits_apply(&v->edits, v->m->text, span, &own);

	if (good) {
		ptx_edits_kept(&v->edits, span, 0, note_kept, &c);
		buf_printf(&all, "%s@%" CHOSEN_REG " bra.uni " PROBED_LABEL ";\n" PLAIN_MARK, place->choice_text);
		buf_add(&all, own.data + c.skipped, own.len - c.skipped);
		buf_puts(&all, PLAIN_END);
	}
	char *text = good && !all.failed && !v->edits.failed ? arena_strndup(v->arena, all.data, all.len) : NULL;
	buf_free(&own);
	buf_free(&all);
	if (!text)
		return no_memory(v);
	ptx_edit_fill(&v->edits, place->choice, text);
	return true;
}

bool split_places(struct variant *v)
{
	for (uint32_t i = 0; i < v->n_places; i++)
		if (v->places[i].split && !split_place(v, &v->places[i]))
			return false;
	return true;
}
