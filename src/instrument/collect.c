/* collect.c - requires a parsed module; leaves the functions that the kernel reaches (places, in
 * text order) and the module-scope variables they use (symbols). Refuses what a variant cannot
 * contain. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "instrument/variant.h"
#include "ptx/lex.h"

/* Functions that the driver itself defines for every module. */
static const char *const driver_functions[] = { "vprintf", "malloc", "free", "__assertfail" };

bool variant_refuse(struct variant *v, uint32_t line, const char *fmt, ...)
{
	char text[sizeof(v->d->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	diag_set_at(v->d, EOPNOTSUPP, line, 0, "%s", text);
	v->err = -EOPNOTSUPP;
	return false;
}

bool no_memory(struct variant *v)
{
	diag_set(v->d, ENOMEM, "out of memory while instrumenting");
	v->err = -ENOMEM;
	return false;
}

bool is_call(const struct ptx_insn *insn)
{
	return !strcmp(insn->base, "call");
}

bool is_branch(const struct ptx_insn *insn)
{
	return !strcmp(insn->base, "bra") || !strcmp(insn->base, "brx");
}

const struct ptx_operand *call_target(const struct ptx_insn *insn)
{
	uint32_t i = insn->n_operands && insn->operands[0].kind == PTX_OPERAND_GROUP;

	return i < insn->n_operands ? &insn->operands[i] : NULL;
}

struct symbol *variant_symbol(const struct variant *v, const struct ptx_operand *op)
{
	bool names_symbol = op->kind == PTX_OPERAND_SYMBOL ||
			    (op->kind == PTX_OPERAND_ADDRESS && !op->base_is_reg);

	return names_symbol && op->name && !op->var ? table_gets(v->symbols, op->name) : NULL;
}

/* -- symbols -- */

static bool is_opaque(const struct ptx_type *type)
{
	return type->name && strstr(type->name, "ref") && type->kind == 'o';
}

static bool add_symbol(struct variant *v, const struct ptx_var *var, uint32_t line)
{
	struct symbol *s, **list;

	if (table_gets(v->symbols, var->name))
		return true;
	if (is_opaque(&var->type) || var->space == PTX_SPACE_TEX)
		return variant_refuse(
			v, line, "it uses the texture, surface or sampler '%s'", var->name);
	s = arena_alloc(v->arena, sizeof(*s));
	list = arena_grow(v->arena, v->symbol_list, v->n_symbols, &v->symbols_cap, sizeof(*list));
	if (!s || !list || table_puts(v->symbols, var->name, s))
		return no_memory(v);
	s->var = var;
	v->symbol_list = list;
	list[v->n_symbols++] = s;
	return true;
}

static bool visit_name(struct variant *v, const char *name, uint32_t line)
{
	const struct ptx_var *var = ptx_find_var(v->m, name);

	if (var)
		return add_symbol(v, var, line);
	if (ptx_find_func(v->m, name))
		return variant_refuse(v, line, "it takes the address of the function '%s'", name);
	return true;
}

/* An operand of a form we do not know must not name anything that would need rewriting. */
static bool visit_text(struct variant *v, struct ptx_span span, uint32_t line)
{
	struct lexer lx = { .text = v->m->text, .size = span.end, .pos = span.begin };
	struct tok t;

	while ((t = lex_next(&lx)).kind != TOK_EOF && t.kind != TOK_ERROR) {
		if (t.kind != TOK_IDENT)
			continue;
		char *name = arena_strndup(v->arena, v->m->text + t.begin, t.end - t.begin);
		if (!name)
			return no_memory(v);
		const struct ptx_var *var = ptx_find_var(v->m, name);
		if (var && var->space != PTX_SPACE_SHARED)
			return variant_refuse(
				v, line, "it uses '%s' in a form that cannot be rewritten", name);
		if (!visit_name(v, name, line))
			return false;
	}
	return true;
}

static bool visit_operand(struct variant *v, const struct ptx_operand *op, uint32_t line)
{
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (!visit_operand(v, &op->sub[i], line))
			return false;
	}
	if (op->kind == PTX_OPERAND_OTHER)
		return visit_text(v, op->span, line);
	if (op->kind == PTX_OPERAND_SYMBOL ||
		(op->kind == PTX_OPERAND_ADDRESS && op->name && !op->base_is_reg))
		return op->var ? true : visit_name(v, op->name, line);
	return true;
}

/* -- functions -- */

struct worklist {
	const struct ptx_func **list;
	size_t n, cap;
};

static bool push(struct variant *v, struct worklist *w, const struct ptx_func *f)
{
	const struct ptx_func **list = arena_grow(v->arena, w->list, w->n, &w->cap, sizeof(*list));

	if (!list || table_puts(v->functions, f->name, (void *)f->name))
		return no_memory(v);
	w->list = list;
	list[w->n++] = f;
	return true;
}

static const char *alias_target(const struct variant *v, const char *name)
{
	for (uint32_t i = 0; i < v->m->n_items; i++) {
		const struct ptx_item *item = &v->m->items[i];
		if (item->kind == PTX_ITEM_ALIAS && !strcmp(item->file_name, name))
			return item->alias_of;
	}
	return NULL;
}

static bool is_driver_function(const char *name)
{
	for (size_t i = 0; i < sizeof(driver_functions) / sizeof(driver_functions[0]); i++) {
		if (!strcmp(name, driver_functions[i]))
			return true;
	}
	return false;
}

static bool add_function(struct variant *v, struct worklist *w, const char *name, uint32_t line)
{
	if (table_gets(v->functions, name))
		return true;
	const struct ptx_func *f = ptx_find_func(v->m, name);
	if (f && !f->is_decl)
		return push(v, w, f);
	const char *target = alias_target(v, name);
	if (target || (f && is_driver_function(name))) {
		if (table_puts(v->functions, name, (void *)(target ? target : f->name)))
			return no_memory(v);
		return target ? add_function(v, w, target, line) : true;
	}
	return variant_refuse(v, line, "it calls '%s', which its module does not define", name);
}

static bool visit_call(struct variant *v, struct worklist *w, const struct ptx_stmt *s)
{
	const struct ptx_operand *target = call_target(s->insn);

	if (!target || target->kind != PTX_OPERAND_SYMBOL || target->value)
		return variant_refuse(v, s->line, "it calls a function through a pointer");
	for (uint32_t i = 0; i < s->insn->n_operands; i++) {
		const struct ptx_operand *op = &s->insn->operands[i];
		if (op != target && op->kind == PTX_OPERAND_GROUP && !visit_operand(v, op, s->line))
			return false;
	}
	return add_function(v, w, target->name, s->line);
}

static bool visit_stmt(struct variant *v, struct worklist *w, const struct ptx_stmt *s)
{
	if (s->kind == PTX_STMT_VAR &&
		(s->var->space == PTX_SPACE_GLOBAL || s->var->space == PTX_SPACE_CONST))
		return variant_refuse(v, s->line,
			"its variable '%s' is in .%s space but local to a function", s->var->name,
			ptx_space_name(s->var->space));
	if (s->kind != PTX_STMT_INSN || is_branch(s->insn))
		return true;
	if (is_call(s->insn))
		return visit_call(v, w, s);
	for (uint32_t i = 0; i < s->insn->n_operands; i++) {
		if (!visit_operand(v, &s->insn->operands[i], s->line))
			return false;
	}
	return true;
}

/* The functions with a body, in the order of the text. */
static bool list_places(struct variant *v, size_t n)
{
	v->places = arena_array(v->arena, n, sizeof(*v->places));
	if (!v->places)
		return no_memory(v);
	for (uint32_t i = 0; i < v->m->n_items; i++) {
		const struct ptx_item *item = &v->m->items[i];
		const struct ptx_func *f = item->func;
		if (item->kind != PTX_ITEM_FUNC || f->is_decl ||
			!table_gets(v->functions, f->name) || ptx_find_func(v->m, f->name) != f)
			continue;
		v->places[v->n_places++] =
			(struct place){ .item = item, .func = f, .is_kernel = f == v->kernel };
		if (ptx_cfg_build(v->arena, f, &v->places[v->n_places - 1].cfg))
			return no_memory(v);
	}
	return true;
}

static bool says_registers(const struct ptx_func *kernel)
{
	static const char *const names[] = { "maxntid", "reqntid", "maxnreg" };

	for (uint32_t i = 0; i < kernel->n_attrs; i++) {
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			if (!strcmp(kernel->attrs[i].name, names[k]))
				return true;
		}
	}
	return false;
}

/* setmaxnreg moves registers between the warps of a block. How many there are follows from the
 * number a thread starts with; where the kernel does not say it, a variant may start with fewer,
 * and a warp that asks for more waits for ever. */
static bool check_registers(struct variant *v)
{
	if (says_registers(v->kernel))
		return true;
	for (uint32_t k = 0; k < v->n_places; k++) {
		const struct ptx_func *f = v->places[k].func;
		for (uint32_t i = 0; i < f->n_stmts; i++) {
			if (f->stmts[i].insn && !strcmp(f->stmts[i].insn->base, "setmaxnreg"))
				return variant_refuse(v, f->stmts[i].line,
					"it uses setmaxnreg, and no .maxntid, .reqntid or .maxnreg "
					"says how many registers it has to move");
		}
	}
	return true;
}

bool collect(struct variant *v)
{
	struct worklist w = { 0 };

	if (strstr(v->m->text, "__egpu_") || strstr(v->m->text, "%egpu_") ||
		strstr(v->m->text, "$egpu_") || strstr(v->m->text, "// egpu site ") || strstr(v->m->text, "// egpu plain"))
		return variant_refuse(v, 0,
			"its module has names that begin with egpu_: it was instrumented before");
	if (!push(v, &w, v->kernel))
		return false;
	for (size_t i = 0; i < w.n; i++) {
		const struct ptx_func *f = w.list[i];
		for (uint32_t k = 0; k < f->n_stmts; k++) {
			if (!visit_stmt(v, &w, &f->stmts[k]))
				return false;
		}
	}
	return list_places(v, w.n) && check_registers(v);
}
