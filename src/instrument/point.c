/* point.c - requires find_sites; leaves sites of the other points, behind all those of find_sites
 * so that ordinals of entries, exits and accesses never depend on them: blocks, branches, barriers,
 * calls, instructions by opcode, and loads that are done. Only points that `numbering` names are
 * listed: there may be as many as instructions. */
#include <stdio.h>
#include <string.h>

#include "instrument/variant.h"

static const char in_call[] =
	"between a call's arguments and the call, or before its result is read";

struct wanted {
	struct variant *v;
	const struct ebpf_fragment *const *list;
	uint32_t n;
	struct place *place;
	const struct ptx_stmt *loc;
};

static bool wants(const struct wanted *w, enum ebpf_point point)
{
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->list[i]->point == point)
			return true;
	}
	return false;
}

bool opcode_matches(const struct ebpf_fragment *f, const char *opcode)
{
	return !f->opcode || !strncmp(opcode, f->opcode, strlen(f->opcode));
}

static bool wants_opcode(const struct wanted *w, const char *opcode)
{
	for (uint32_t i = 0; i < w->n; i++) {
		if (w->list[i]->point == EBPF_POINT_INSN && opcode_matches(w->list[i], opcode))
			return true;
	}
	return false;
}

static bool add_point(struct wanted *w, enum ebpf_point point, uint32_t stmt, uint32_t at)
{
	struct variant *v = w->v;
	const struct ptx_stmt *s = &w->place->func->stmts[stmt];

	if (!add_site(v, w->place, w->loc, point, stmt, at, s->line))
		return false;
	struct instrument_site *site = &v->sites[v->n_sites - 1];
	site->skipped = w->place->skipped[stmt];
	site->opcode = s->insn->opcode;
	return true;
}

static struct instrument_site *last_site(const struct wanted *w)
{
	return &w->v->sites[w->v->n_sites - 1];
}

static bool is_param_access(const struct ptx_insn *insn)
{
	for (uint32_t i = 0; i < insn->n_mods; i++) {
		if (!strncmp(insn->mods[i], "param", 5))
			return true;
	}
	return false;
}

static bool is_one_of(const struct ptx_var *var, const struct ptx_var *list, uint32_t n)
{
	return n && var >= list && var < list + n;
}

/* Whether an access to .param space belongs to a call, not to the function's own parameters. */
static bool is_call_param(const struct ptx_func *f, const struct ptx_insn *insn)
{
	bool own = false;

	if (!is_param_access(insn))
		return false;
	for (uint32_t i = 0; i < insn->n_operands; i++) {
		const struct ptx_var *var = insn->operands[i].var;
		own |= var && (is_one_of(var, f->params, f->n_params) ||
				      is_one_of(var, f->results, f->n_results));
	}
	return !own;
}

static bool is_argument(const struct ptx_func *f, const struct ptx_stmt *s)
{
	return s->insn && is_call_param(f, s->insn) && !strcmp(s->insn->base, "st");
}

/* Arguments are stored right before their call: a probe of the call goes before the first. */
static uint32_t before_call(const struct wanted *w, uint32_t stmt)
{
	const struct ptx_func *f = w->place->func;
	uint32_t i = stmt;

	for (; i > 0; i--) {
		const struct ptx_stmt *s = &f->stmts[i - 1];
		if (s->kind != PTX_STMT_REG && s->kind != PTX_STMT_VAR && !is_argument(f, s))
			break;
	}
	/* What registers a guard or an operand names must still be declared behind it. */
	while (i < stmt && f->stmts[i].kind == PTX_STMT_REG)
		i++;
	return insert_point(w->v, f, i);
}

/* Whether no argument of its call is stored before that of this statement. */
static bool is_first_argument(const struct ptx_func *f, uint32_t stmt)
{
	uint32_t i = stmt;

	while (i > 0 && !f->stmts[i - 1].insn)
		i--;
	return is_argument(f, &f->stmts[stmt]) && (!i || !is_argument(f, &f->stmts[i - 1]));
}

/* -- each point -- */

static bool visit_block(struct wanted *w, uint32_t i)
{
	const struct ptx_cfg *cfg = &w->place->cfg;
	const struct ptx_block *block = &cfg->blocks[cfg->block_of[i]];

	if (block->first_insn != i)
		return true;
	const struct ptx_func *f = w->place->func;
	bool first = is_first_argument(f, i);
	if (!add_point(w, EBPF_POINT_BLOCK, i, first ? before_call(w, i) : insert_point(w->v, f, i)))
		return false;
	last_site(w)->opcode = "block";
	if (!last_site(w)->skipped && !first && is_call_param(f, f->stmts[i].insn))
		last_site(w)->skipped = in_call;
	return true;
}

static bool visit_call(struct wanted *w, uint32_t i)
{
	const struct ptx_insn *insn = w->place->func->stmts[i].insn;
	const struct ptx_operand *target = call_target(insn);

	if (!add_point(w, EBPF_POINT_CALL, i, before_call(w, i)))
		return false;
	last_site(w)->opcode = arena_printf(
		w->v->arena, "%s %s", insn->opcode, target && target->name ? target->name : "?");
	return last_site(w)->opcode ? true : no_memory(w->v);
}

static bool visit_opcode(struct wanted *w, uint32_t i)
{
	const struct ptx_func *f = w->place->func;
	const struct ptx_insn *insn = f->stmts[i].insn;
	uint32_t at = is_call(insn) ? before_call(w, i) : insert_point(w->v, f, i);

	if (!add_point(w, EBPF_POINT_INSN, i, at))
		return false;
	if (!last_site(w)->skipped && is_call_param(f, insn))
		last_site(w)->skipped = in_call;
	return true;
}

/* Behind the load, before whatever comes next. */
static bool visit_load(struct wanted *w, uint32_t i)
{
	const struct ptx_func *f = w->place->func;
	struct ptx_access a;

	ptx_insn_access(f->stmts[i].insn, &a);
	if (a.op != PTX_ACCESS_LOAD || a.space == PTX_SPACE_PARAM || a.opaque || a.sync ||
		a.lanes || a.value < 0)
		return true;
	uint32_t at = i + 1 < f->n_stmts ? insert_point(w->v, f, i + 1) : f->body.end - 1;
	if (!add_point(w, EBPF_POINT_LOAD_DONE, i, at))
		return false;
	last_site(w)->space = a.space;
	last_site(w)->bytes = a.bytes;
	w->v->spots[w->v->n_sites - 1].access = a;
	return true;
}

uint32_t barrier_kind(const struct ptx_insn *insn)
{
	bool has_cluster = ptx_insn_has_mod(insn, "cluster"),
	     has_warp = ptx_insn_has_mod(insn, "warp");

	if (!strcmp(insn->base, "bar") || !strcmp(insn->base, "barrier"))
		return has_cluster ? 3 : has_warp ? 2 : 1;
	/* Initialisation and counting are no barriers. */
	if (!strcmp(insn->base, "mbarrier") && insn->n_mods &&
		(!strncmp(insn->mods[0], "arrive", 6) || !strcmp(insn->mods[0], "test_wait") ||
			!strcmp(insn->mods[0], "try_wait")))
		return 4;
	return 0;
}

static bool visit_insn(struct wanted *w, uint32_t i)
{
	const struct ptx_func *f = w->place->func;
	const struct ptx_insn *insn = f->stmts[i].insn;
	uint32_t at = insert_point(w->v, f, i);

	if (wants(w, EBPF_POINT_BLOCK) && !visit_block(w, i))
		return false;
	if (wants(w, EBPF_POINT_BRANCH) && !strcmp(insn->base, "bra") && insn->pred &&
		!add_point(w, EBPF_POINT_BRANCH, i, at))
		return false;
	if (wants(w, EBPF_POINT_BARRIER) && barrier_kind(insn) &&
		!add_point(w, EBPF_POINT_BARRIER, i, at))
		return false;
	if (wants(w, EBPF_POINT_CALL) && is_call(insn) && !visit_call(w, i))
		return false;
	if (wants_opcode(w, insn->opcode) && !visit_opcode(w, i))
		return false;
	return !wants(w, EBPF_POINT_LOAD_DONE) || visit_load(w, i);
}

bool find_points(struct variant *v, const struct ebpf_fragment *const *list, uint32_t n)
{
	struct wanted w = { .v = v, .list = list, .n = n };
	bool any = false;

	for (uint32_t i = 0; i < n; i++)
		any |= list[i]->point > EBPF_POINT_MEM;
	for (uint32_t k = 0; any && k < v->n_places; k++) {
		w.place = &v->places[k];
		w.loc = NULL;
		for (uint32_t i = 0; i < w.place->func->n_stmts; i++) {
			const struct ptx_stmt *s = &w.place->func->stmts[i];
			if (s->kind == PTX_STMT_LOC)
				w.loc = s;
			if (s->insn && !visit_insn(&w, i))
				return false;
		}
	}
	return true;
}
