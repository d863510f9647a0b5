/* readback_bind.c - proof (a) of readback.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/fragment.h"
#include "instrument/readback.h"

#define TABLE "__egpu_table"

/* An operand of the source where a symbol may stand. */
struct place_of {
	const struct ptx_operand *op;
	uint32_t stmt;
};

struct def {
	uint32_t entry, stmt;
	int64_t offset;
	bool used;
};

struct proof {
	const struct ptx_module *m, *b; /* source and bound */
	const char *const *symbols;
	uint32_t n_symbols;
	bool const_bound;
	struct diag *d;
	struct arena *arena;
	int err;
	/* one function */
	const struct ptx_func *f;
	struct place_of *ops;
	size_t n_ops, ops_cap;
	struct def *defs;
	size_t n_defs, defs_cap;
};

static bool fail(struct proof *p, uint32_t line, const char *what, const char *name)
{
	diag_set_at(p->d, EOPNOTSUPP, line, 0, "internal check failed: %s%s%s%s", what,
		name ? " '" : "", name ? name : "", name ? "'" : "");
	p->err = -EOPNOTSUPP;
	return false;
}

static bool out_of_memory(struct proof *p)
{
	p->err = diag_set(p->d, ENOMEM, "out of memory while checking a variant");
	return false;
}

static bool is_bound(const struct proof *p, const char *name)
{
	for (uint32_t i = 0; i < p->n_symbols; i++) {
		if (!strcmp(p->symbols[i], name))
			return true;
	}
	return false;
}

/* -- one function: a cursor in each text -- */

struct cursor {
	const char *s, *t, *s_end, *t_end; /* source and bound */
};

static bool take(struct cursor *c, const char *text)
{
	size_t n = strlen(text);

	if ((size_t)(c->t_end - c->t) < n || memcmp(c->t, text, n))
		return false;
	c->t += n;
	return true;
}

static bool take_unsigned(struct cursor *c, uint32_t *out)
{
	const char *from = c->t;
	uint64_t n = 0;

	for (; c->t < c->t_end && *c->t >= '0' && *c->t <= '9' && n <= UINT32_MAX; c->t++)
		n = n * 10 + (uint64_t)(*c->t - '0');
	*out = (uint32_t)n;
	return c->t > from && n <= UINT32_MAX;
}

static bool take_signed(struct cursor *c, int64_t *out)
{
	bool negative = take(c, "-");
	const char *from = c->t;
	uint64_t n = 0;

	for (; c->t < c->t_end && *c->t >= '0' && *c->t <= '9' && c->t - from < 20; c->t++)
		n = n * 10 + (uint64_t)(*c->t - '0');
	*out = (int64_t)(negative ? 0 - n : n);
	return c->t > from;
}

static bool add_operand(struct proof *p, const struct ptx_operand *op, uint32_t stmt)
{
	bool names = op->kind == PTX_OPERAND_SYMBOL ||
		     (op->kind == PTX_OPERAND_ADDRESS && op->name && !op->base_is_reg);

	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (!add_operand(p, &op->sub[i], stmt))
			return false;
	}
	if (!names || op->var || !ptx_find_var(p->m, op->name))
		return true;
	struct place_of *ops = arena_grow(p->arena, p->ops, p->n_ops, &p->ops_cap, sizeof(*ops));
	if (!ops)
		return out_of_memory(p);
	p->ops = ops;
	ops[p->n_ops++] = (struct place_of){ op, stmt };
	return true;
}

/* Uses of module-scope variables, in text order. Labels and callees are no variables. */
static bool list_operands(struct proof *p)
{
	p->n_ops = 0;
	for (uint32_t i = 0; i < p->f->n_stmts; i++) {
		const struct ptx_insn *insn = p->f->stmts[i].insn;
		if (!insn || !strcmp(insn->base, "bra") || !strcmp(insn->base, "brx"))
			continue;
		bool is_call = !strcmp(insn->base, "call");
		for (uint32_t k = 0; k < insn->n_operands; k++) {
			if (is_call && insn->operands[k].kind != PTX_OPERAND_GROUP)
				continue;
			if (!add_operand(p, &insn->operands[k], i))
				return false;
		}
	}
	return true;
}

/* "%egpu_s<n>" of a use: defined just before this statement, for this symbol, and never used. */
static struct def *take_use(struct proof *p, struct cursor *c, const struct place_of *use)
{
	uint32_t n;

	if (!take(c, "%egpu_s") || !take_unsigned(c, &n) || n >= p->n_defs)
		return NULL;
	struct def *def = &p->defs[n];
	if (def->used || strcmp(p->symbols[def->entry], use->op->name))
		return NULL;
	for (uint32_t i = def->stmt; i < use->stmt; i++) {
		if (p->f->stmts[i].kind != PTX_STMT_OTHER)
			return NULL;
	}
	def->used = true;
	return def;
}

static bool substitute(struct proof *p, struct cursor *c, const struct place_of *use)
{
	const struct ptx_operand *op = use->op;
	uint32_t line = p->f->stmts[use->stmt].line;
	bool address = op->kind == PTX_OPERAND_ADDRESS;
	int64_t displacement = 0;
	struct def *def = NULL;

	if (!address || take(c, "["))
		def = take_use(p, c, use);
	if (!def)
		return fail(p, line, "no substitution for", op->name);
	if (address && ((take(c, "+") && !take_signed(c, &displacement)) || !take(c, "]")))
		return fail(p, line, "an address is cut short at", op->name);
	if (displacement + def->offset != op->value || (address && def->offset))
		return fail(p, line, "another offset than in the source at", op->name);
	c->s = p->m->text + op->span.end;
	return true;
}

/* Text that binding put before a statement. True with *took false when there is none. */
static bool take_def(struct proof *p, struct cursor *c, uint32_t stmt, bool *took)
{
	uint32_t n, m, at;
	int64_t offset;

	*took = true;
	if (take(c, "ld.const.u64 %egpu_s")) {
		struct def *defs =
			arena_grow(p->arena, p->defs, p->n_defs, &p->defs_cap, sizeof(*defs));
		if (!defs)
			return out_of_memory(p);
		p->defs = defs;
		if (!take_unsigned(c, &n) || n != p->n_defs || !take(c, ", [" TABLE "+") ||
			!take_unsigned(c, &at) || !take(c, "];\n\t") || at % 8 ||
			at / 8 < EBPF_TABLE_SYMBOLS || at / 8 - EBPF_TABLE_SYMBOLS >= p->n_symbols)
			return fail(p, p->f->stmts[stmt].line, "a load from no entry of the table",
				NULL);
		defs[p->n_defs++] = (struct def){ at / 8 - EBPF_TABLE_SYMBOLS, stmt, 0, false };
		return true;
	}
	if (take(c, "add.s64 %egpu_s")) {
		if (!take_unsigned(c, &n) || !take(c, ", %egpu_s") || !take_unsigned(c, &m) ||
			!take(c, ", ") || !take_signed(c, &offset) || !take(c, ";\n\t") || n != m ||
			n + 1 != p->n_defs || p->defs[n].offset || p->defs[n].stmt != stmt)
			return fail(p, p->f->stmts[stmt].line, "an addition to no symbol's address",
				NULL);
		p->defs[n].offset = offset;
		return true;
	}
	*took = false;
	return true;
}

/* With a .const symbol bound, all of .const space is global memory. */
static bool rename_opcode(struct proof *p, struct cursor *c, const struct ptx_stmt *s)
{
	const struct ptx_insn *insn = s->insn;
	bool ok = true;

	if (!strcmp(insn->base, "cvta")) {
		ok = take(c, "mov.b64");
	} else {
		ok = !strcmp(insn->base, "ld") && take(c, "ld");
		for (uint32_t i = 0; ok && i < insn->n_mods; i++)
			ok = take(c, ".") &&
			     take(c, strcmp(insn->mods[i], "const") ? insn->mods[i] : "global");
	}
	c->s = p->m->text + insn->opcode_span.end;
	return ok ? true : fail(p, s->line, "a use of .const space that was not turned", NULL);
}

static bool take_registers(struct proof *p, struct cursor *c, uint32_t *n)
{
	if (!take(c, "\n\t.reg .b64 %egpu_s<"))
		return true;
	if (!take_unsigned(c, n) || !take(c, ">;\n") || !*n)
		return fail(p, 0, "no valid declaration of symbol registers", NULL);
	return true;
}

static uint32_t offset_of(const struct proof *p, const struct cursor *c)
{
	return (uint32_t)(c->s - p->m->text);
}

static bool is_shared_var(const struct ptx_stmt *s)
{
	return s->kind == PTX_STMT_VAR && s->var->space == PTX_SPACE_SHARED;
}

/* ".align N" of a shared variable: N, or a greater power of two up to 16. False: neither text has it here. */
static bool take_alignment(struct proof *p, struct cursor *c, bool *good)
{
	static const char word[] = ".align ";
	size_t n = sizeof(word) - 1;
	uint32_t was, is;

	if ((size_t)(c->s_end - c->s) < n || memcmp(c->s, word, n) || !take(c, word))
		return false;
	struct cursor source = { .t = c->s + n, .t_end = c->s_end };
	*good = take_unsigned(&source, &was) && take_unsigned(c, &is) && (is == was || (is > was && is <= 16 && !(is & (is - 1))));
	c->s = source.t;
	return true;
}

static bool check_text(struct proof *p, struct cursor *c)
{
	const struct ptx_func *f = p->f;
	uint32_t stmt = 0, n_regs = 0;
	size_t op = 0;
	bool took;

	while (c->s < c->s_end || c->t < c->t_end) {
		uint32_t at = offset_of(p, c);
		while (stmt < f->n_stmts && f->stmts[stmt].span.begin < at)
			stmt++;
		while (op < p->n_ops && p->ops[op].op->span.begin < at)
			op++;
		if (!n_regs && at == f->body.begin + 1) {
			if (!take_registers(p, c, &n_regs))
				return false;
		}
		bool begins = stmt < f->n_stmts && f->stmts[stmt].span.begin == at;
		if (begins) {
			do {
				if (!take_def(p, c, stmt, &took))
					return false;
			} while (took);
			const struct ptx_insn *insn = f->stmts[stmt].insn;
			begins = insn != NULL;
		}
		const struct ptx_stmt *in = stmt < f->n_stmts && begins ? &f->stmts[stmt]
					    : stmt                      ? &f->stmts[stmt - 1]
									: NULL;
		if (p->const_bound && in && in->insn && in->insn->opcode_span.begin == at &&
			ptx_insn_has_mod(in->insn, "const")) {
			if (!rename_opcode(p, c, in))
				return false;
			continue;
		}
		if (op < p->n_ops && p->ops[op].op->span.begin == at &&
			is_bound(p, p->ops[op].op->name)) {
			if (!substitute(p, c, &p->ops[op]))
				return false;
			continue;
		}
		const struct ptx_stmt *around = stmt < f->n_stmts && f->stmts[stmt].span.begin == at ? &f->stmts[stmt]
						: stmt					    ? &f->stmts[stmt - 1]
											    : NULL;
		bool good;
		if (around && is_shared_var(around) && at < around->span.end && take_alignment(p, c, &good)) {
			if (!good)
				return fail(p, around->line, "no valid alignment of", around->var->name);
			continue;
		}
		if (c->s >= c->s_end || c->t >= c->t_end || *c->s != *c->t)
			return fail(p, in ? in->line : 0, "the text differs from the source in",
				f->name);
		c->s++;
		c->t++;
	}
	if (n_regs != p->n_defs)
		return fail(p, 0, "symbol registers that are not used in", f->name);
	for (size_t i = 0; i < p->n_defs; i++) {
		if (!p->defs[i].used)
			return fail(p, 0, "a symbol's address that nothing uses in", f->name);
	}
	return true;
}

/* Every variable that the function names is bound or declared. */
static bool check_declared(struct proof *p)
{
	for (size_t i = 0; i < p->n_ops; i++) {
		const char *name = p->ops[i].op->name;
		if (!is_bound(p, name) && !ptx_find_var(p->b, name))
			return fail(p, 0, "no declaration of", name);
	}
	for (uint32_t i = 0; i < p->f->n_stmts; i++) {
		const struct ptx_insn *insn = p->f->stmts[i].insn;
		if (!insn || strcmp(insn->base, "call"))
			continue;
		for (uint32_t k = 0; k < insn->n_operands; k++) {
			const struct ptx_operand *op = &insn->operands[k];
			if (op->kind == PTX_OPERAND_SYMBOL && ptx_find_func(p->m, op->name) &&
				!ptx_find_func(p->b, op->name))
				return fail(p, p->f->stmts[i].line, "no definition of", op->name);
		}
	}
	return true;
}

static bool check_function(struct proof *p, const struct ptx_item *from, const struct ptx_item *to)
{
	struct cursor c = { p->m->text + from->span.begin, p->b->text + to->span.begin,
		p->m->text + from->span.end, p->b->text + to->span.end };

	p->f = from->func;
	p->n_defs = 0;
	return list_operands(p) && check_text(p, &c) && check_declared(p);
}

/* -- items -- */

static const char *item_name(const struct ptx_item *item)
{
	switch (item->kind) {
	case PTX_ITEM_VAR:
		return item->var->name;
	case PTX_ITEM_FUNC:
		return item->func->name;
	case PTX_ITEM_SECTION:
	case PTX_ITEM_ALIAS:
		return item->file_name;
	default:
		return "";
	}
}

static bool same_item(const struct ptx_item *a, const struct ptx_item *b)
{
	return a->kind == b->kind && !strcmp(item_name(a), item_name(b)) &&
	       (a->kind != PTX_ITEM_FUNC || a->func->is_decl == b->func->is_decl);
}

static struct ptx_span item_span(const struct ptx_item *item)
{
	return item->kind == PTX_ITEM_VAR ? item->var->span : item->span;
}

static bool same_shared(struct proof *p, struct ptx_span s, struct ptx_span t)
{
	struct cursor c = { p->m->text + s.begin, p->b->text + t.begin, p->m->text + s.end, p->b->text + t.end };
	bool good = true;

	while (good && c.s < c.s_end && c.t < c.t_end) {
		if (take_alignment(p, &c, &good))
			continue;
		good = *c.s++ == *c.t++;
	}
	return good && c.s == c.s_end && c.t == c.t_end;
}

static bool same_text(struct proof *p, const struct ptx_item *a, const struct ptx_item *b)
{
	struct ptx_span s = item_span(a), t = item_span(b);

	if (a->kind == PTX_ITEM_VAR && a->var->space == PTX_SPACE_SHARED)
		return same_shared(p, s, t);
	return s.end - s.begin == t.end - t.begin &&
	       !memcmp(p->m->text + s.begin, p->b->text + t.begin, s.end - s.begin);
}

static bool may_be_left_out(const struct ptx_item *item, const char *kernel)
{
	switch (item->kind) {
	case PTX_ITEM_VAR:
	case PTX_ITEM_ALIAS:
		return true;
	case PTX_ITEM_FUNC:
		return item->func->is_decl || strcmp(item->func->name, kernel);
	case PTX_ITEM_SECTION:
		return strcmp(item->file_name, ".debug_str");
	default:
		return false;
	}
}

static bool is_table(const struct proof *p, const struct ptx_item *item)
{
	struct ptx_span span = item_span(item);
	char *text = arena_printf(p->arena, ".visible .const .align 8 .u64 " TABLE "[%u];",
		EBPF_TABLE_SYMBOLS + p->n_symbols);

	return item->kind == PTX_ITEM_VAR && text && span.end - span.begin == strlen(text) &&
	       !memcmp(p->b->text + span.begin, text, strlen(text));
}

static bool is_debug_stub(const struct ptx_item *item)
{
	return item->kind == PTX_ITEM_SECTION && (!strcmp(item->file_name, ".debug_abbrev") ||
							 !strcmp(item->file_name, ".debug_info"));
}

static bool check_items(struct proof *p, const char *kernel)
{
	const struct ptx_module *m = p->m, *b = p->b;
	uint32_t j = 0, tables = 0;

	for (uint32_t i = 0; i < m->n_items; i++) {
		const struct ptx_item *item = &m->items[i];
		while (j < b->n_items && is_table(p, &b->items[j])) {
			tables++;
			j++;
		}
		/* Sections but the strings stay behind; an empty pair of the variant's own has
		 * their names. */
		if (item->kind == PTX_ITEM_SECTION && strcmp(item->file_name, ".debug_str"))
			continue;
		if (j >= b->n_items || !same_item(item, &b->items[j])) {
			if (!may_be_left_out(item, kernel))
				return fail(p, item->line, "left out, though it is needed:",
					*item_name(item) ? item_name(item) : "a directive");
			continue;
		}
		const struct ptx_item *copy = &b->items[j++];
		bool is_body = item->kind == PTX_ITEM_FUNC && !item->func->is_decl;
		if (is_body ? !check_function(p, item, copy) : !same_text(p, item, copy))
			return p->err ? false
				      : fail(p, item->line, "an item differs from the source:",
						item_name(item));
	}
	while (j < b->n_items && is_debug_stub(&b->items[j]))
		j++;
	if (j < b->n_items && is_table(p, &b->items[j])) {
		tables++;
		j++;
	}
	if (j < b->n_items)
		return fail(p, 0, "something that is not in the source:", item_name(&b->items[j]));
	return tables == 1 ? true : fail(p, 0, "no single declaration of the table", NULL);
}

/* Between items there is one newline, nothing else. */
static bool check_gaps(struct proof *p)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i <= p->b->n_items; i++) {
		struct ptx_span span = i < p->b->n_items
					       ? p->b->items[i].span
					       : (struct ptx_span){ p->b->size, p->b->size };
		for (; at < span.begin; at++) {
			char ch = p->b->text[at];
			bool in_group =
				i && i < p->b->n_items && p->b->items[i].kind == PTX_ITEM_VAR;
			if (ch != '\n' && !(in_group && (ch == ' ' || ch == '\t' || ch == '\r')))
				return fail(p, 0, "text between two items", NULL);
		}
		at = span.end > at ? span.end : at;
	}
	return true;
}

int readback_binding(const struct ptx_module *source, const char *kernel, const char *bound,
	const char *const *symbols, uint32_t n_symbols, struct diag *d)
{
	struct ptx_module *b = NULL;
	struct diag parse = { 0 };
	struct proof p = { .m = source,
		.symbols = symbols,
		.n_symbols = n_symbols,
		.d = d,
		.arena = arena_new() };
	int err = p.arena ? ptx_parse(bound, strlen(bound), &b, &parse) : -ENOMEM;

	p.b = b;
	for (uint32_t i = 0; i < n_symbols; i++) {
		const struct ptx_var *var = ptx_find_var(source, symbols[i]);
		p.const_bound |= var && var->space == PTX_SPACE_CONST;
	}
	if (err == -ENOMEM)
		out_of_memory(&p);
	else if (err)
		fail(&p, parse.line, "the variant does not parse:", parse.text);
	else if (check_gaps(&p))
		check_items(&p, kernel);
	ptx_module_free(b);
	arena_free(p.arena);
	return p.err;
}
