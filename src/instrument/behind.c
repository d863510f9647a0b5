/* behind.c - requires sites; moves the counting probes of a stretch of code behind its loads.
 *
 * A probe before a load delays it, and what a memory-bound kernel has is loads in flight: a dozen
 * instructions before each cost as much as the access. Programs that only add, and read nothing
 * that changes within a basic block (`anywhere` in bpf/fragment.h), may run anywhere in the block.
 * They go behind the last load whose address does not come out of another load of the stretch:
 * there the threads wait anyway, and all loads are on their way.
 *
 * Without such loads they go where the last of them is: several that stand together cost less (fan.c).
 *
 * A stretch is a part of a basic block without calls, barriers and the like: whoever executes its
 * first instruction executes its last.
 *
 * Such a program at a kernel's entry goes behind the first loads as well, where nothing stands between that others could notice: no
 * store, no probe that does more than add. Threads that branch off on the way run it before they do; kernels begin with a question whether
 * the thread has anything to do. (One with a hash map stays: behind the loads it needs more registers than are free, and took a vector add of
 * 2^27 from 1.14 to 1.39 on an H200.)
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
		late |= reads_any(s->loaded, &insn->operands[k]);
	if (is_slow(&a, result)) {
		if (late)
			return false;
		s->behind = i + 1;
		late = true;
	}
	if (result)
		set(s, &insn->operands[0], late || (insn->pred && reads_any(s->loaded, &insn->operands[0])));
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

bool is_same_in_block(const struct variant *v, uint32_t site)
{
	const struct spot *spot = &v->spots[site];
	const struct ptx_access *a = &spot->access;
	const struct ptx_insn *insn = insn_at(spot->place->func, spot->stmt);
	enum ebpf_point point = v->sites[site].point;

	if (!insn || v->sites[site].skipped)
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

static bool moves(const struct stretch *s, const struct instrument_request *req, uint32_t site)
{
	const struct spot *spot = &s->v->spots[site];

	return !spot->counter && spot->stmt >= s->from && spot->stmt < s->to && is_same_in_block(s->v, site) && goes_anywhere(s, req, site);
}

/* Before the last site of several. */
static void find_last(struct stretch *s, const struct instrument_request *req, uint32_t first, uint32_t end)
{
	uint32_t n = 0, last = s->from;

	for (uint32_t i = first; i < end; i++) {
		if (!moves(s, req, i))
			continue;
		n++;
		last = s->v->spots[i].stmt > last ? s->v->spots[i].stmt : last;
	}
	if (n > 1 && !s->parted[last])
		s->behind = last;
}

/* Sites [first, end) are the place's, in text order by kind; moves those of the stretch. */
static void move(
	struct stretch *s, const struct instrument_request *req, uint32_t first, uint32_t end)
{
	for (uint32_t i = first; i < end; i++) {
		struct spot *spot = &s->v->spots[i];
		if (!moves(s, req, i))
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

/* -- the entry -- */

/* Statements at which other programs look at what there is. */
static void find_looks(const struct stretch *s, const struct instrument_request *req, uint32_t first, uint32_t end, bool *looks)
{
	for (uint32_t i = first; i < end; i++) {
		uint32_t stmt = s->v->spots[i].stmt;
		for (uint32_t k = 0; stmt != NO_STMT && k < req->n_fragments; k++)
			if (!req->fragments[k]->anywhere && fragment_runs_at(s->v, req->fragments[k], i))
				looks[stmt] = true;
	}
}

/* Whether the entry's probes may run later than a statement, in threads that go on behind it. */
static bool may_follow(const struct stretch *s, uint32_t i)
{
	const struct ptx_insn *insn = s->place->func->stmts[i].insn;
	struct ptx_access a;

	if (!insn)
		return !bounds(s, i);
	ptx_insn_access(insn, &a);
	if ((a.op == PTX_ACCESS_STORE || a.op == PTX_ACCESS_ATOMIC) && a.space != PTX_SPACE_LOCAL)
		return false;
	if (!ptx_insn_ends_block(insn))
		return !bounds(s, i);
	return insn->pred && !table_gets(s->loaded, insn->pred) && strncmp(insn->base, "brx", 3) && !s->place->skipped[i];
}

/* Warps are chosen no earlier than the first site has to know (sample.c). */
static bool is_sampled(const struct stretch *s, const struct instrument_request *req, uint32_t site)
{
	for (uint32_t i = 0; i < req->n_fragments; i++)
		if (req->fragments[i]->sampled && fragment_runs_at(s->v, req->fragments[i], site))
			return true;
	return false;
}

static void move_entry(struct stretch *s, const bool *looks, struct spot *spot)
{
	const struct ptx_func *f = s->place->func;
	uint32_t n = 0;

	s->behind = 0;
	for (uint32_t i = 0; i < f->n_stmts && !looks[i] && may_follow(s, i); i++) {
		bool ends = f->stmts[i].insn && ptx_insn_ends_block(f->stmts[i].insn);
		uint32_t was = s->behind;
		if (ends && n == MAX_OFF)
			break;
		if (ends)
			spot->off[n++] = i;
		else if (f->stmts[i].insn && !follow(s, i))
			break;
		if (s->behind != was)
			spot->n_off = n;
	}
	if (!s->behind || s->behind >= f->n_stmts) {
		spot->n_off = 0;
		return;
	}
	spot->at = insert_point(s->v, f, s->behind);
	spot->moved = true;
	spot->before = s->behind;
}

bool put_entry_behind_loads(struct variant *v, const struct instrument_request *req, const struct place *place, uint32_t first, uint32_t end)
{
	struct stretch s = { .v = v, .place = place };
	bool *looks = arena_array(v->arena, place->func->n_stmts + 1, sizeof(*looks));

	s.loaded = looks ? table_new() : NULL;
	if (!s.loaded)
		return no_memory(v);
	find_looks(&s, req, first, end, looks);
	for (uint32_t i = first; i < end; i++) {
		if (v->sites[i].point == EBPF_POINT_ENTRY && !v->sites[i].skipped && goes_anywhere(&s, req, i) && !is_sampled(&s, req, i))
			move_entry(&s, looks, &v->spots[i]);
	}
	table_free(s.loaded);
	return s.failed ? no_memory(v) : true;
}

bool put_behind_loads(struct variant *v, const struct instrument_request *req,
	const struct place *place, const uint32_t *parted, uint32_t first, uint32_t end)
{
	struct stretch_span span = { 0 };
	bool any = false, ok = true;

	for (uint32_t i = 0; i < req->n_fragments; i++)
		any |= req->fragments[i]->anywhere;
	while (any && next_stretch(v, place, parted, &span, &ok)) {
		struct stretch s = { .v = v, .place = place, .parted = parted, .from = span.from, .to = span.to, .behind = span.behind };
		if (s.behind == s.from)
			find_last(&s, req, first, end);
		if (s.behind > s.from)
			move(&s, req, first, end);
	}
	return ok;
}
