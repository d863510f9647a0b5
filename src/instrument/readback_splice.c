/* readback_splice.c - proof (b) of readback.h: the text without its splices, and the walk over the
 * splices. What single instructions may do is readback_flow.c's. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/context.h"
#include "instrument/readback_flow.h"

static const char marker[] = "{ // egpu site ";
enum { MAX_COUNTERS = 4 }; /* registers of tally.c */

/* -- deletion -- */

struct cut {
	uint32_t begin, end;
	const char *unless; /* the bound text continues so: then it goes on with [end, ...) as
			       `other` */
	struct ptx_span other;
};

struct deletion {
	struct readback *r;
	struct cut *cuts;
	size_t n, cap;
	bool launch_param;
	bool plain; /* where a function has two versions: the one with programs is cut, else the other */
	bool any_split;
};

static bool add_cut(struct deletion *x, struct cut cut)
{
	struct cut *cuts = arena_grow(x->r->arena, x->cuts, x->n, &x->cap, sizeof(*cuts));

	if (!cuts)
		return readback_no_memory(x->r);
	x->cuts = cuts;
	cuts[x->n++] = cut;
	return true;
}

static bool text_at(const struct readback *r, uint32_t at, const char *text)
{
	size_t n = strlen(text);

	return at <= r->m->size && r->m->size - at >= n && !memcmp(r->m->text + at, text, n);
}

bool readback_is_splice(const struct readback *r, const struct ptx_stmt *s)
{
	return s->kind == PTX_STMT_OPEN && text_at(r, s->span.begin, marker);
}

static bool span_is(const struct readback *r, struct ptx_span span, const char *text)
{
	return span.end - span.begin == strlen(text) && text_at(r, span.begin, text);
}

static bool cut_scope(struct deletion *x, const struct ptx_func *f, uint32_t open)
{
	uint32_t end = f->stmts[f->stmts[open].match].span.end;

	if (!text_at(x->r, end, "\n\t"))
		return readback_fail(x->r, f->stmts[open].line, "a splice without its end", NULL);
	return add_cut(x, (struct cut){ f->stmts[open].span.begin, end + 2, NULL, { 0, 0 } });
}

/* ", .param .u64 __egpu_launch", with the parentheses when the source wrote none. */
static bool cut_param(struct deletion *x, const struct ptx_func *f)
{
	static const char first[] = "(.param .u64 __egpu_launch)",
			  later[] = ",\n\t.param .u64 __egpu_launch)";
	uint32_t end = f->params_span.end, n = sizeof(first) - 1;

	if (!f->n_params || strcmp(f->params[f->n_params - 1].name, "__egpu_launch"))
		return true;
	if (f->n_params == 1 && end >= n && text_at(x->r, end - n, first))
		return add_cut(x, (struct cut){ end - n, end, "(", { end - n + 1, end - 1 } });
	n = sizeof(later) - 1;
	if (end < n || !text_at(x->r, end - n, later))
		return readback_fail(
			x->r, 0, "no valid launch id among the parameters of", f->name);
	return add_cut(x, (struct cut){ end - n, end - 1, NULL, { 0, 0 } });
}

static bool names_call_reg(const struct ptx_operand *op)
{
	return op->kind == PTX_OPERAND_REG && op->name && !strcmp(op->name, "%egpu_call");
}

/* The launch id as the last argument of a call. */
static bool cut_argument(struct deletion *x, const struct ptx_stmt *s)
{
	const struct ptx_insn *insn = s->insn;
	const struct ptx_operand *group =
		insn->n_operands ? &insn->operands[insn->n_operands - 1] : NULL;
	uint32_t n = sizeof("%egpu_call") - 1;

	for (uint32_t k = 1; k < insn->n_operands; k++) {
		if (insn->operands[k].kind == PTX_OPERAND_GROUP)
			group = &insn->operands[k];
	}
	if (!group || group->kind != PTX_OPERAND_GROUP || !group->n_sub ||
		!names_call_reg(&group->sub[group->n_sub - 1]))
		return true;
	uint32_t begin = group->sub[group->n_sub - 1].span.begin;
	if (group->n_sub > 1)
		return text_at(x->r, begin - 2, ", ")
			       ? add_cut(x, (struct cut){ begin - 2, begin + n, NULL, { 0, 0 } })
			       : readback_fail(x->r, s->line, "no valid launch id in a call", NULL);
	if (text_at(x->r, begin - 3, ", ("))
		return add_cut(
			x, (struct cut){ begin - 3, begin + n + 1, ",", { begin, begin + n } });
	return add_cut(x, (struct cut){ begin, begin + n, NULL, { 0, 0 } });
}

static bool cut_stmt(struct deletion *x, const struct ptx_stmt *s)
{
	uint32_t at = s->span.begin, end = s->span.end;

	if (s->kind == PTX_STMT_REG && span_is(x->r, s->span, ".reg .b64 %egpu_call;") &&
		text_at(x->r, at - 2, "\n\t") && text_at(x->r, end, "\n"))
		return add_cut(x, (struct cut){ at - 2, end + 1, NULL, { 0, 0 } });
	if (s->insn &&
		(span_is(x->r, s->span, "ld.param.u64 %egpu_call, [__egpu_launch];") ||
			span_is(x->r, s->span, "mov.b64 %egpu_call, %egpu_word;")) &&
		text_at(x->r, end, "\n\t"))
		return add_cut(x, (struct cut){ at, end + 2, NULL, { 0, 0 } });
	return s->insn && !strcmp(s->insn->base, "call") ? cut_argument(x, s) : true;
}

bool readback_is_lanes(const struct readback *r, const struct ptx_stmt *s)
{
	char text[96];

	if (s->kind != PTX_STMT_VAR)
		return false;
	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		snprintf(text, sizeof(text), ".local .align 8 .b8 $egpu_lanes_%s[%u];", ebpf_fields[f].name,
			32u * ebpf_fields[f].bytes);
		if (span_is(r, s->span, text))
			return true;
	}
	return false;
}

static bool is_counters(const struct deletion *x, const struct ptx_stmt *s)
{
	char text[48];

	for (int n = 1; n <= MAX_COUNTERS; n++) {
		snprintf(text, sizeof(text), ".reg .b64 %%egpu_n<%d>;", n);
		if (span_is(x->r, s->span, text))
			return true;
	}
	return false;
}

/* Registers that carry inputs over an instruction, what lanes hand over, and the one that is set where a function begins. */
static bool is_kept(const struct deletion *x, const struct ptx_stmt *s)
{
	bool reg = s->kind == PTX_STMT_REG &&
		   (span_is(x->r, s->span, ".reg .b64 %egpu_k<2>;") || span_is(x->r, s->span, ".reg .b32 %egpu_slot;") ||
			   span_is(x->r, s->span, ".reg .b32 %egpu_weight;") ||
			   span_is(x->r, s->span, ".reg .pred %egpu_chosen;") ||
			   span_is(x->r, s->span, ".reg .b64 %egpu_word;") || span_is(x->r, s->span, ".reg .b32 %egpu_start;") || is_counters(x, s));

	return (reg || readback_is_lanes(x->r, s)) &&
	       text_at(x->r, s->span.begin - 2, "\n\t") && text_at(x->r, s->span.end, "\n");
}

/* -- two versions -- */

static const char split_branch[] = "@%egpu_chosen bra.uni $egpu_probed;\n{ // egpu plain\n\t", split_end[] = "\n\tret;\n}\n$egpu_probed:\n\t";

/* "@%egpu_chosen bra.uni $egpu_probed; { // egpu plain ... ret; } $egpu_probed:", from statement i on. */
static bool is_split(const struct readback *r, const struct ptx_func *f, uint32_t i)
{
	const struct ptx_stmt *s = &f->stmts[i];

	return s->kind == PTX_STMT_INSN && text_at(r, s->span.begin, split_branch) && i + 1 < f->n_stmts && f->stmts[i + 1].kind == PTX_STMT_OPEN;
}

/* Whether it names labels of these, or a list of them. */
static bool is_local(struct table *labels, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		if (!is_local(labels, &op->sub[i]))
			return false;
	return op->n_sub || (op->name && table_gets(labels, op->name));
}

/* No branch leaves the version for a label of the other, which has the same names. */
static bool stays_inside(struct readback *r, const struct ptx_func *f, uint32_t open)
{
	struct table *labels = table_new();
	bool memory = labels, good = true;

	for (uint32_t i = open; memory && i < f->stmts[open].match; i++)
		if (f->stmts[i].kind == PTX_STMT_LABEL || f->stmts[i].kind == PTX_STMT_TABLE)
			memory = !table_puts(labels, f->stmts[i].name, r);
	for (uint32_t i = open; memory && good && i < f->stmts[open].match; i++) {
		const struct ptx_insn *insn = f->stmts[i].insn;
		for (uint32_t k = 0; f->stmts[i].kind == PTX_STMT_TABLE && k < f->stmts[i].n_targets; k++)
			good &= table_gets(labels, f->stmts[i].targets[k]) != NULL;
		bool direct = insn && !strcmp(insn->base, "bra"), indexed = insn && !strcmp(insn->base, "brx");
		if (direct || indexed)
			good &= insn->n_operands > indexed && is_local(labels, &insn->operands[indexed]);
		if (!good)
			readback_fail(r, f->stmts[i].line, "a way out of the version without programs in", f->name);
	}
	table_free(labels);
	return memory ? good : readback_no_memory(r);
}

/* Cuts one version; leaves *i at the last statement that is done with. */
static bool cut_version(struct deletion *x, const struct ptx_func *f, uint32_t *i)
{
	uint32_t begin = f->stmts[*i].span.begin, open = *i + 1, close = f->stmts[open].match, ret = close - 1;
	uint32_t end = f->stmts[ret].span.begin - 2;

	if (ret <= open || !text_at(x->r, end, split_end) || !stays_inside(x->r, f, open))
		return x->r->err ? false : readback_fail(x->r, f->stmts[open].line, "no valid version without programs in", f->name);
	x->any_split = true;
	if (!x->plain) {
		*i = close + 1;
		return add_cut(x, (struct cut){ begin, end + sizeof(split_end) - 1, NULL, { 0, 0 } });
	}
	if (!add_cut(x, (struct cut){ begin, begin + sizeof(split_branch) - 1, NULL, { 0, 0 } }))
		return false;
	for (uint32_t k = open + 1; x->launch_param && k < ret; k++)
		if (!cut_stmt(x, &f->stmts[k]))
			return false;
	*i = f->n_stmts;
	return add_cut(x, (struct cut){ end, f->body.end - 1, NULL, { 0, 0 } });
}

static bool cut_function(struct deletion *x, const struct ptx_func *f)
{
	if (x->launch_param && !cut_param(x, f))
		return false;
	for (uint32_t i = 0; i < f->n_stmts; i++) {
		const struct ptx_stmt *s = &f->stmts[i];
		if (is_split(x->r, f, i)) {
			if (!cut_version(x, f, &i))
				return false;
		} else if (readback_is_splice(x->r, s)) {
			if (!cut_scope(x, f, i))
				return false;
			i = s->match;
		} else if (is_kept(x, s)) {
			if (!add_cut(x, (struct cut){ s->span.begin - 2, s->span.end + 1, NULL,
						{ 0, 0 } }))
				return false;
		} else if (x->launch_param && !cut_stmt(x, s)) {
			return false;
		}
	}
	return true;
}

static bool list_cuts(struct deletion *x)
{
	const struct ptx_module *m = x->r->m;

	for (uint32_t i = 0; i < m->n_items; i++) {
		const struct ptx_item *item = &m->items[i];
		uint32_t end = i + 1 < m->n_items ? m->items[i + 1].span.begin : m->size;
		if (item->kind != PTX_ITEM_FUNC)
			continue;
		if (!readback_is_own_function(item->func)) {
			if (!cut_function(x, item->func))
				return false;
			continue;
		}
		for (uint32_t at = item->span.end; at < end; at++) {
			if (m->text[at] != '\n')
				return readback_fail(x->r, item->line, "text behind the function",
					item->func->name);
		}
		if (!add_cut(x, (struct cut){ item->span.begin, end, NULL, { 0, 0 } }))
			return false;
	}
	return true;
}

static bool same_without_cuts(struct deletion *x, const char *bound)
{
	const char *text = x->r->m->text, *b = bound;
	uint32_t at = 0;

	for (size_t i = 0; i <= x->n; i++) {
		uint32_t stop = i < x->n ? x->cuts[i].begin : x->r->m->size;
		if (stop < at || strncmp(text + at, b, stop - at))
			return readback_fail(x->r, 0,
				"without the splices the text is not that of the kernel alone",
				NULL);
		b += stop - at;
		if (i == x->n)
			break;
		const struct cut *cut = &x->cuts[i];
		at = cut->end;
		if (cut->unless && !strncmp(b, cut->unless, strlen(cut->unless))) {
			/* Only the inner part was added: what is around it stays. */
			uint32_t before = cut->other.begin - cut->begin,
				 after = cut->end - cut->other.end;
			if (strncmp(text + cut->begin, b, before) ||
				strncmp(text + cut->other.end, b + before, after))
				return readback_fail(
					x->r, 0, "a launch id in a strange place", NULL);
			b += before + after;
		}
	}
	return *b ? readback_fail(x->r, 0, "the kernel's own text is cut short", NULL) : true;
}

static bool same_without(struct deletion *x, const char *bound)
{
	return list_cuts(x) && same_without_cuts(x, bound);
}

/* -- all splices -- */

static bool check_functions(struct readback *r)
{
	for (uint32_t i = 0; i < r->m->n_items; i++) {
		const struct ptx_func *f = r->m->items[i].func;
		if (r->m->items[i].kind != PTX_ITEM_FUNC)
			continue;
		if (readback_is_own_function(f)) {
			if (!readback_function(r, f))
				return false;
			continue;
		}
		for (uint32_t k = 0; k < f->n_stmts; k++) {
			if (!readback_is_splice(r, &f->stmts[k]))
				continue;
			if (!readback_scope(r, f, k))
				return false;
			k = f->stmts[k].match;
		}
	}
	return true;
}

int readback_splice(const char *bound, const char *variant, bool launch_param, struct diag *d)
{
	struct ptx_module *m = NULL;
	struct diag parse = { 0 };
	struct readback r = {
		.d = d, .arena = arena_new(), .bodies = table_new(), .functions = table_new()
	};
	struct deletion x = { .r = &r, .launch_param = launch_param }, other = { .r = &r, .launch_param = launch_param, .plain = true };
	int err = r.arena && r.bodies && r.functions
			  ? ptx_parse(variant, strlen(variant), &m, &parse)
			  : -ENOMEM;

	r.m = m;
	if (err == -ENOMEM)
		readback_no_memory(&r);
	else if (err)
		readback_fail(&r, parse.line, "the variant does not parse:", parse.text);
	else if (same_without(&x, bound) && (!x.any_split || same_without(&other, bound)))
		check_functions(&r);
	ptx_module_free(m);
	table_free(r.bodies);
	table_free(r.functions);
	arena_free(r.arena);
	return r.err;
}
