/* behind.c - requires sites; moves the counting probes of a stretch of code behind its loads.
 *
 * A probe before a load delays it, and what a memory-bound kernel has is loads in flight: a dozen
 * instructions before each cost as much as the access. Programs that only add, and read nothing
 * that changes within a basic block (`anywhere` in bpf/fragment.h), may run anywhere in the block.
 * They go behind the last load whose address does not come out of another load of the stretch:
 * there the threads wait anyway, and all loads are on their way.
 *
 * A stretch is a part of a basic block without calls, barriers and the like: whoever executes its
 * first instruction executes its last.
 */
#include <string.h>

#include "base/table.h"
#include "instrument/variant.h"

struct stretch {
	struct variant *v;
	const struct place *place;
	const uint32_t *parted;
	uint32_t from, to;    /* statements [from, to) */
	struct table *loaded; /* registers whose value waits for a load */
	uint32_t behind;      /* the statement before which probes go; `from`: nowhere */
	bool failed;
};

static bool bounds(const struct stretch *s, uint32_t i)
{
	const struct ptx_stmt *stmt = &s->place->func->stmts[i];
	struct ptx_access a;

	if (stmt->kind == PTX_STMT_VAR)
		return stmt->var->space == PTX_SPACE_PARAM;
	if (!stmt->insn)
		return stmt->kind == PTX_STMT_LABEL; /* whatever the text says of who goes there */
	if (keeps_order(stmt->insn) || s->place->skipped[i])
		return true;
	ptx_insn_access(stmt->insn, &a);
	return a.sync || a.opaque || (a.op == PTX_ACCESS_STORE && a.space == PTX_SPACE_PARAM);
}

static bool waits(const struct stretch *s, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (waits(s, &op->sub[i]))
			return true;
	}
	return op->name && table_gets(s->loaded, op->name);
}

static void set(struct stretch *s, const struct ptx_operand *op, bool loaded)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		set(s, &op->sub[i], loaded);
	if (!op->name || op->kind != PTX_OPERAND_REG)
		return;
	if (loaded)
		s->failed |= table_puts(s->loaded, op->name, s) != 0;
	else
		table_remove(s->loaded, op->name, strlen(op->name));
}

static bool is_slow(const struct ptx_access *a, bool result)
{
	bool reads = a->op == PTX_ACCESS_LOAD || (a->op == PTX_ACCESS_ATOMIC && result);

	return reads && (a->space == PTX_SPACE_GLOBAL || a->space == PTX_SPACE_GENERIC ||
				a->space == PTX_SPACE_LOCAL);
}

/* What is loaded of what; false: a load that waits for another. */
static bool follow(struct stretch *s, uint32_t i)
{
	const struct ptx_insn *insn = s->place->func->stmts[i].insn;
	bool late = insn->pred && table_gets(s->loaded, insn->pred),
	     result = insn->n_operands && insn->operands[0].kind != PTX_OPERAND_ADDRESS;
	struct ptx_access a;

	ptx_insn_access(insn, &a);
	for (uint32_t k = result; k < insn->n_operands; k++)
		late |= waits(s, &insn->operands[k]);
	if (is_slow(&a, result)) {
		if (late)
			return false;
		s->behind = i + 1;
		late = true;
	}
	if (result)
		set(s, &insn->operands[0], late || (insn->pred && waits(s, &insn->operands[0])));
	return true;
}

/* Past products that a probe here would part from their sums. */
static void find_behind(struct stretch *s)
{
	const struct ptx_func *f = s->place->func;

	s->behind = s->from;
	for (uint32_t i = s->from; i < s->to; i++) {
		if (f->stmts[i].insn && !follow(s, i))
			break;
	}
	while (s->behind > s->from && s->behind < s->to && s->parted[s->behind])
		s->behind++;
	if (s->behind >= f->n_stmts || s->parted[s->behind])
		s->behind = s->from;
}

/* -- sites -- */

/* What a program reads there is the same in all of the block. */
static bool is_movable(const struct stretch *s, uint32_t site)
{
	const struct spot *spot = &s->v->spots[site];
	const struct ptx_access *a = &spot->access;
	const struct ptx_insn *insn =
		spot->stmt == NO_STMT ? NULL : s->place->func->stmts[spot->stmt].insn;
	enum ebpf_point point = s->v->sites[site].point;

	if (!insn || s->v->sites[site].skipped)
		return false;
	if (point == EBPF_POINT_BLOCK)
		return true;
	return (point == EBPF_POINT_LOAD || point == EBPF_POINT_STORE ||
		       point == EBPF_POINT_ATOMIC) &&
	       !insn->pred && !a->lanes && a->size < 0 && a->space != PTX_SPACE_GENERIC &&
	       strcmp(insn->base, "cp") != 0;
}

static bool goes_anywhere(
	const struct stretch *s, const struct instrument_request *req, uint32_t site)
{
	bool any = false;

	for (uint32_t i = 0; i < req->n_fragments; i++) {
		if (!fragment_runs_at(s->v, req->fragments[i], site))
			continue;
		if (!req->fragments[i]->anywhere)
			return false;
		any = true;
	}
	return any;
}

/* Sites [first, end) are the place's, in text order by kind; moves those of the stretch. */
static void move(
	struct stretch *s, const struct instrument_request *req, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		struct spot *spot = &s->v->spots[i];
		if (spot->stmt < s->from || spot->stmt >= s->to || !is_movable(s, i) ||
			!goes_anywhere(s, req, i))
			continue;
		spot->at = insert_point(s->v, s->place->func, s->behind);
		spot->moved = true;
		spot->before = s->behind;
	}
}

bool next_stretch(struct variant *v, const struct place *place, const uint32_t *parted, struct stretch_span *out, bool *ok)
{
	const struct ptx_func *f = place->func;
	struct stretch s = { .v = v, .place = place, .parted = parted, .from = out->to };

	while (s.from < f->n_stmts && bounds(&s, s.from))
		s.from++;
	if (s.from >= f->n_stmts)
		return false;
	for (s.to = s.from + 1; s.to < f->n_stmts && place->cfg.block_of[s.to] == place->cfg.block_of[s.from] && !bounds(&s, s.to);)
		s.to++;
	s.loaded = table_new();
	s.failed = !s.loaded;
	if (!s.failed)
		find_behind(&s);
	table_free(s.loaded);
	*out = (struct stretch_span){ s.from, s.to, s.behind };
	*ok = s.failed ? no_memory(v) : true;
	return *ok;
}

bool put_behind_loads(struct variant *v, const struct instrument_request *req,
	const struct place *place, const uint32_t *parted, uint32_t first, uint32_t end)
{
	struct stretch_span span = { 0 };
	bool ok = true;

	while (next_stretch(v, place, parted, &span, &ok)) {
		struct stretch s = { .v = v, .place = place, .from = span.from, .to = span.to, .behind = span.behind };
		if (s.behind > s.from)
			move(&s, req, first, end);
	}
	return ok;
}
