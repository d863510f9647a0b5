/* site.c - requires collect; leaves sites and spots: entry, ways out and memory accesses, in text
 * order, whatever the fragments are, so that an ordinal always names the same place. */
#include <string.h>

#include "instrument/variant.h"

enum {
	WAIT_LOOP_INSNS = 24, /* a loop this short around mbarrier.try_wait only waits */
	WAIT_LOOP_STMTS = 96,
};

static const char in_wgmma[] = "between wgmma.fence and the end of its wait";
static const char in_wait[] = "inside a loop that waits for an mbarrier";

static const char *const opaque[] = {
	[PTX_OPAQUE_TEXTURE] = "it goes by texture coordinates, not by an address",
	[PTX_OPAQUE_TENSOR] = "its addresses are in a tensor map",
	[PTX_OPAQUE_MATRIX] = "which lane touches which part of the matrix is not specified",
	[PTX_OPAQUE_DESCRIPTOR] = "its addresses are in matrix descriptors",
};

/* A label that is in scope. */
struct label {
	const char *name;
	uint32_t stmt;
};

/* One function as it is read. */
struct scan {
	struct variant *v;
	struct place *place;
	const struct ptx_stmt *loc; /* in effect, or NULL */
	bool in_wgmma;
	const char **skipped; /* per statement */
};

bool add_site(struct variant *v, struct place *place, const struct ptx_stmt *loc,
	enum ebpf_point point, uint32_t stmt, uint32_t at, uint32_t line)
{
	struct instrument_site *sites =
		arena_grow(v->arena, v->sites, v->n_sites, &v->sites_cap, sizeof(*sites));
	struct spot *spots =
		arena_grow(v->arena, v->spots, v->n_sites, &v->spots_cap, sizeof(*spots));

	if (!sites || !spots)
		return no_memory(v);
	v->sites = sites;
	v->spots = spots;
	struct instrument_site *site = &sites[v->n_sites];
	*site = (struct instrument_site){ .ordinal = v->n_sites,
		.point = point,
		.ptx_line = line,
		.function = place->func->name };
	if (loc) {
		site->file = ptx_file_name(v->m, loc->loc_file);
		site->line = loc->loc_line;
		site->column = loc->loc_column;
	}
	spots[v->n_sites] = (struct spot){ .place = place, .stmt = stmt, .at = at };
	v->n_sites++;
	return true;
}

/* -- places to leave alone -- */

static bool is_mbarrier_wait(const struct ptx_insn *insn)
{
	return !strcmp(insn->base, "mbarrier") && insn->n_mods &&
	       (!strcmp(insn->mods[0], "try_wait") || !strcmp(insn->mods[0], "test_wait"));
}

/* Marks [from, to] when it is a loop that does little beside waiting. A wait that an inner loop
 * already has does not make the loop around it one. */
static void mark_wait_loop(struct scan *s, uint32_t from, uint32_t to)
{
	const struct ptx_stmt *stmts = s->place->func->stmts;
	uint32_t n = 0;
	bool waits = false;

	for (uint32_t i = from; i <= to; i++) {
		n += stmts[i].insn != NULL;
		waits |= stmts[i].insn && is_mbarrier_wait(stmts[i].insn) && !s->skipped[i];
	}
	for (uint32_t i = from; waits && n <= WAIT_LOOP_INSNS && i <= to; i++)
		s->skipped[i] = in_wait;
}

/* The label that a branch at `stmt` goes back to, if it is near: labels are in scope on the stack.
 */
static const struct label *near_label(
	const struct label *labels, size_t n, const char *name, uint32_t stmt)
{
	for (; n && labels[n - 1].stmt + WAIT_LOOP_STMTS > stmt; n--) {
		if (!strcmp(labels[n - 1].name, name))
			return &labels[n - 1];
	}
	return NULL;
}

static bool find_wait_loops(struct scan *s)
{
	const struct ptx_func *f = s->place->func;
	struct label *labels = arena_array(s->v->arena, f->n_stmts, sizeof(*labels));
	size_t *heights = arena_array(s->v->arena, f->n_stmts, sizeof(*heights));
	size_t n = 0, depth = 0;

	if (!labels || !heights)
		return no_memory(s->v);
	for (uint32_t i = 0; i < f->n_stmts; i++) {
		const struct ptx_stmt *stmt = &f->stmts[i];
		if (stmt->kind == PTX_STMT_OPEN) {
			heights[depth++] = n;
		} else if (stmt->kind == PTX_STMT_CLOSE) {
			n = heights[--depth];
		} else if (stmt->kind == PTX_STMT_LABEL) {
			labels[n++] = (struct label){ stmt->name, i };
		} else if (stmt->insn && is_branch(stmt->insn) && stmt->insn->n_operands) {
			const struct ptx_operand *to = &stmt->insn->operands[0];
			const struct label *label =
				to->name ? near_label(labels, n, to->name, i) : NULL;
			if (label)
				mark_wait_loop(s, label->stmt, i);
		}
	}
	return true;
}

/* wgmma reads and writes registers behind the program's back from its fence until nothing is in
 * flight. */
static void follow_wgmma(struct scan *s, const struct ptx_insn *insn)
{
	if (strcmp(insn->base, "wgmma") || !insn->n_mods)
		return;
	if (!strcmp(insn->mods[0], "fence"))
		s->in_wgmma = true;
	else if (!strcmp(insn->mods[0], "wait_group") && insn->n_operands &&
		 insn->operands[0].kind == PTX_OPERAND_INT && !insn->operands[0].value)
		s->in_wgmma = false;
}

/* -- sites -- */

static bool is_way_out(const struct scan *s, const struct ptx_insn *insn)
{
	return !strcmp(insn->base, "exit") || (s->place->is_kernel && !strcmp(insn->base, "ret"));
}

static enum ebpf_point access_point(enum ptx_access_op op)
{
	return op == PTX_ACCESS_LOAD    ? EBPF_POINT_LOAD
	       : op == PTX_ACCESS_STORE ? EBPF_POINT_STORE
					: EBPF_POINT_ATOMIC;
}

/* Parameters are no memory to look at; what waits belongs to barriers. */
static bool is_data(const struct ptx_access *a)
{
	return a->op != PTX_ACCESS_NONE && a->op != PTX_ACCESS_PREFETCH && !a->sync &&
	       a->space != PTX_SPACE_PARAM;
}

static bool visit_insn(struct scan *s, uint32_t i)
{
	const struct ptx_func *f = s->place->func;
	const struct ptx_stmt *stmt = &f->stmts[i];
	struct variant *v = s->v;
	struct ptx_access a;
	enum ebpf_point point = EBPF_POINT_EXIT;

	ptx_insn_access(stmt->insn, &a);
	if (is_data(&a))
		point = access_point(a.op);
	else if (!is_way_out(s, stmt->insn))
		return true;
	if (!add_site(v, s->place, s->loc, point, i, insert_point(v, f, i), stmt->line))
		return false;
	struct instrument_site *site = &v->sites[v->n_sites - 1];
	site->opcode = stmt->insn->opcode;
	site->skipped = s->skipped[i];
	if (!site->skipped && point != EBPF_POINT_EXIT)
		site->skipped = opaque[a.opaque];
	if (point != EBPF_POINT_EXIT) {
		site->space = a.space;
		site->bytes = a.bytes;
		v->spots[v->n_sites - 1].access = a;
	}
	return true;
}

static bool is_declaration(const struct ptx_stmt *s)
{
	return s->kind == PTX_STMT_REG || s->kind == PTX_STMT_VAR || s->kind == PTX_STMT_LOC;
}

static bool add_entry(struct scan *s)
{
	const struct ptx_func *f = s->place->func;
	uint32_t i = 0;

	while (i < f->n_stmts && is_declaration(&f->stmts[i])) {
		if (f->stmts[i].kind == PTX_STMT_LOC && !s->loc)
			s->loc = &f->stmts[i];
		i++;
	}
	uint32_t at = i < f->n_stmts ? f->stmts[i].span.begin : f->body.end - 1;
	bool ok = add_site(s->v, s->place, s->loc, EBPF_POINT_ENTRY, NO_STMT, at,
		i < f->n_stmts ? f->stmts[i].line : s->place->item->line);
	if (ok)
		s->v->sites[s->v->n_sites - 1].opcode = "entry";
	return ok;
}

static bool ends_control(const struct ptx_insn *insn)
{
	static const char *const bases[] = { "ret", "exit", "bra", "brx", "trap" };

	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		if (!insn->pred && !strcmp(insn->base, bases[i]))
			return true;
	}
	return false;
}

/* Control that reaches the closing brace leaves the kernel too. */
static bool add_fall_off(struct scan *s)
{
	const struct ptx_func *f = s->place->func;
	uint32_t i = f->n_stmts, line = s->place->item->line;

	for (; i > 0; i--) {
		const struct ptx_stmt *stmt = &f->stmts[i - 1];
		line = stmt->line;
		if (stmt->kind == PTX_STMT_LABEL)
			break;
		if (stmt->kind == PTX_STMT_INSN && ends_control(stmt->insn))
			return true;
		if (stmt->kind == PTX_STMT_INSN)
			break;
	}
	bool ok = add_site(s->v, s->place, s->loc, EBPF_POINT_EXIT, NO_STMT, f->body.end - 1, line);
	if (ok)
		s->v->sites[s->v->n_sites - 1].opcode = "}";
	return ok;
}

static bool scan_place(struct scan *s)
{
	const struct ptx_func *f = s->place->func;

	s->loc = NULL;
	s->in_wgmma = false;
	s->skipped = arena_array(s->v->arena, f->n_stmts, sizeof(*s->skipped));
	if (!s->skipped)
		return no_memory(s->v);
	s->place->skipped = s->skipped;
	if (!find_wait_loops(s))
		return false;
	if (s->place->is_kernel && !add_entry(s))
		return false;
	for (uint32_t i = 0; i < f->n_stmts; i++) {
		if (f->stmts[i].kind == PTX_STMT_LOC)
			s->loc = &f->stmts[i];
		if (!f->stmts[i].insn)
			continue;
		follow_wgmma(s, f->stmts[i].insn);
		if (s->in_wgmma)
			s->skipped[i] = in_wgmma;
		if (!visit_insn(s, i))
			return false;
	}
	return !s->place->is_kernel || add_fall_off(s);
}

bool find_sites(struct variant *v)
{
	struct scan s = { .v = v };

	for (uint32_t i = 0; i < v->n_places; i++) {
		s.place = &v->places[i];
		if (!scan_place(&s))
			return false;
	}
	return true;
}
