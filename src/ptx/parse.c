/* parse.c - the module level of the parser (PTX ISA 4 and 11), and what all its passes use. */
#include "ptx/parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 1 << 30 };

/* -- vectors -- */

void *vec_push(struct vec *v)
{
	if (v->n == v->cap) {
		size_t cap = v->cap ? v->cap * 2 : 64;
		char *data = realloc(v->data, cap * v->elem);
		if (!data)
			return NULL;
		v->data = data;
		v->cap = cap;
	}
	void *p = v->data + v->n++ * v->elem;
	memset(p, 0, v->elem);
	return p;
}

void vec_free(struct vec *v)
{
	free(v->data);
	v->data = NULL;
	v->n = v->cap = 0;
}

void *vec_take(struct vec *v, size_t from, struct arena *a, bool *ok)
{
	size_t n = v->n - from;
	void *p = arena_array(a, n, v->elem);

	*ok = p;
	if (p && n)
		memcpy(p, v->data + from * v->elem, n * v->elem);
	v->n = from;
	return p;
}

/* -- diagnostics -- */

static bool vfail(struct parser *p, uint32_t line, uint32_t column, const char *fmt, va_list ap)
{
	char text[sizeof(p->d->text)];

	vsnprintf(text, sizeof(text), fmt, ap);
	diag_set_at(p->d, EINVAL, line, column, "%s", text);
	if (!p->err)
		p->err = -EINVAL;
	return false;
}

bool fail(struct parser *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfail(p, p->cur.line, p->cur.column, fmt, ap);
	va_end(ap);
	return false;
}

bool fail_at(struct parser *p, uint32_t line, uint32_t column, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfail(p, line, column, fmt, ap);
	va_end(ap);
	return false;
}

bool fail_memory(struct parser *p)
{
	diag_set(p->d, ENOMEM, "out of memory while reading PTX");
	if (!p->err)
		p->err = -ENOMEM;
	return false;
}

bool fail_expected(struct parser *p, const char *what)
{
	uint32_t n = p->cur.end - p->cur.begin;

	if (p->cur.kind == TOK_EOF)
		return fail(p, "expected %s, found the end of the text", what);
	return fail(p, "expected %s, found '%.*s'", what, n > 60 ? 60 : (int)n,
		p->m->text + p->cur.begin);
}

/* -- tokens -- */

bool advance(struct parser *p)
{
	p->prev_end = p->cur.end;
	p->cur = lex_next(&p->lx);
	return p->cur.kind == TOK_ERROR ? fail(p, "%s", p->lx.problem) : true;
}

bool at_punct(const struct parser *p, char c)
{
	return p->cur.kind == TOK_PUNCT && p->cur.punct == c;
}

static bool tok_is(const struct parser *p, const char *s, size_t skip)
{
	size_t n = strlen(s);

	return p->cur.end - p->cur.begin == n + skip &&
	       !memcmp(p->m->text + p->cur.begin + skip, s, n);
}

bool at_dotted(const struct parser *p, const char *word)
{
	return p->cur.kind == TOK_DOTTED && tok_is(p, word, 1);
}

bool expect_punct(struct parser *p, char c, const char *what)
{
	return at_punct(p, c) ? advance(p) : fail_expected(p, what);
}

bool expect_uint(struct parser *p, uint32_t *out, const char *what)
{
	struct number num;

	if (p->cur.kind != TOK_NUMBER)
		return fail_expected(p, what);
	if (!number_parse(p->m->text + p->cur.begin, p->cur.end - p->cur.begin, &num) ||
		num.is_float || num.value > UINT32_MAX)
		return fail_expected(p, what);
	*out = (uint32_t)num.value;
	return advance(p);
}

struct ptx_span span_from(const struct parser *p, uint32_t begin)
{
	return (struct ptx_span){ begin, p->prev_end };
}

static bool is_open(const struct parser *p)
{
	return at_punct(p, '{') || at_punct(p, '(') || at_punct(p, '[');
}

static bool is_close(const struct parser *p)
{
	return at_punct(p, '}') || at_punct(p, ')') || at_punct(p, ']');
}

bool skip_balanced(struct parser *p)
{
	struct tok open = p->cur;
	uint32_t depth = 0;

	do {
		if (p->cur.kind == TOK_EOF)
			return fail_at(
				p, open.line, open.column, "this '%c' is never closed", open.punct);
		if (is_open(p))
			depth++;
		else if (is_close(p))
			depth--;
		if (!advance(p))
			return false;
	} while (depth);
	return true;
}

/* Whether the current token's line goes on to what ends a directive by itself. A ';' in a comment
 * does not count; one inside a string makes no difference in practice: such a line has its own ';'.
 */
static bool line_has_semicolon(const struct parser *p)
{
	const char *text = p->m->text;

	for (uint32_t i = p->cur.begin; i < p->lx.size && text[i] != '\n'; i++) {
		if (text[i] == '/' && text[i + 1] == '/')
			return false;
		if (text[i] == ';' || text[i] == '{' || text[i] == '}')
			return true;
	}
	return false;
}

bool skip_directive(struct parser *p)
{
	bool by_semicolon = line_has_semicolon(p);

	if (!advance(p))
		return false;
	while (p->cur.kind != TOK_EOF) {
		if (at_punct(p, ';'))
			return advance(p);
		if (at_punct(p, '{'))
			return skip_balanced(p);
		if ((p->cur.first_on_line && !by_semicolon) || is_close(p))
			return true;
		if (is_open(p) ? !skip_balanced(p) : !advance(p))
			return false;
	}
	return true;
}

/* -- directives -- */

static bool parse_version(struct parser *p, struct ptx_item *item)
{
	const char *s = p->m->text + p->cur.begin;
	uint32_t n = p->cur.end - p->cur.begin;
	uint32_t part[2] = { 0, 0 }, i = 0;

	if (p->cur.kind != TOK_NUMBER)
		return fail_expected(p, "a version such as 8.7 after .version");
	for (uint32_t k = 0; k < n; k++) {
		if (s[k] == '.' && !i)
			i = 1;
		else if (s[k] >= '0' && s[k] <= '9' && part[i] < 10000)
			part[i] = part[i] * 10 + (uint32_t)(s[k] - '0');
		else
			return fail_expected(p, "a version such as 8.7 after .version");
	}
	item->kind = PTX_ITEM_VERSION;
	p->m->version_major = part[0];
	p->m->version_minor = part[1];
	return advance(p);
}

/* "sm_90a" -> 90, 'a' */
static void set_target(struct parser *p, const char *name)
{
	const char *s = name + 3;
	uint32_t sm = 0;

	for (; *s >= '0' && *s <= '9' && sm < 10000; s++)
		sm = sm * 10 + (uint32_t)(*s - '0');
	p->m->target = name;
	p->m->sm = sm;
	p->m->target_suffix = *s;
}

static bool parse_target(struct parser *p, struct ptx_item *item)
{
	item->kind = PTX_ITEM_TARGET;
	for (;;) {
		if (p->cur.kind != TOK_IDENT)
			return fail_expected(p, "a name such as sm_90 after .target");
		const char *name = intern_tok(p, p->cur);
		if (!name)
			return false;
		if (!p->m->target && !strncmp(name, "sm_", 3))
			set_target(p, name);
		if (!advance(p))
			return false;
		if (!at_punct(p, ','))
			return true;
		if (!advance(p))
			return false;
	}
}

static bool parse_file(struct parser *p, struct ptx_item *item)
{
	uint32_t ignored;

	item->kind = PTX_ITEM_FILE;
	if (!expect_uint(p, &item->file_index, "a file number after .file"))
		return false;
	if (p->cur.kind != TOK_STRING)
		return fail_expected(p, "a quoted file name");
	do { /* clang 14 writes the directory before the name */
		item->file_name =
			intern(p, p->m->text + p->cur.begin + 1, p->cur.end - p->cur.begin - 2);
		if (!item->file_name || !advance(p))
			return false;
	} while (p->cur.kind == TOK_STRING);
	while (at_punct(p, ',')) { /* time stamp and size, wider than 32 bits */
		if (!advance(p))
			return false;
		if (p->cur.kind != TOK_NUMBER)
			return expect_uint(p, &ignored, "a number after ','");
		if (!advance(p))
			return false;
	}
	return true;
}

static bool parse_section(struct parser *p, struct ptx_item *item)
{
	struct tok name = p->cur;

	item->kind = PTX_ITEM_SECTION;
	if (name.kind != TOK_DOTTED && name.kind != TOK_IDENT)
		return fail_expected(p, "a section name after .section");
	item->file_name = intern_tok(p, name);
	if (!item->file_name)
		return false;
	while (!at_punct(p, '{')) {
		if (p->cur.kind == TOK_EOF || at_punct(p, ';') || at_punct(p, '}'))
			return fail_expected(p, "'{' after the section's name");
		if (!advance(p))
			return false;
	}
	return skip_balanced(p);
}

static bool parse_alias(struct parser *p, struct ptx_item *item)
{
	item->kind = PTX_ITEM_ALIAS;
	if (p->cur.kind != TOK_IDENT)
		return fail_expected(p, "a function name after .alias");
	item->file_name = intern_tok(p, p->cur);
	if (!item->file_name || !advance(p) || !expect_punct(p, ',', "','"))
		return false;
	if (p->cur.kind != TOK_IDENT)
		return fail_expected(p, "the function that the alias names");
	item->alias_of = intern_tok(p, p->cur);
	return item->alias_of && advance(p) && expect_punct(p, ';', "';' after .alias");
}

static bool parse_address_size(struct parser *p, struct ptx_item *item)
{
	item->kind = PTX_ITEM_ADDRESS_SIZE;
	if (!expect_uint(p, &p->m->address_size, "32 or 64 after .address_size"))
		return false;
	if (p->m->address_size != 32 && p->m->address_size != 64)
		return fail_at(p, item->line, 0, ".address_size is %u; it must be 32 or 64",
			p->m->address_size);
	return true;
}

static struct ptx_item *new_item(struct parser *p, uint32_t line)
{
	struct ptx_item *item = vec_push(&p->items);

	if (!item)
		fail_memory(p);
	else
		item->line = line;
	return item;
}

static bool add_module_var(
	struct parser *p, struct ptx_var *var, struct ptx_span part, uint32_t line)
{
	struct ptx_item *item = new_item(p, line);

	if (!item)
		return false;
	item->kind = PTX_ITEM_VAR;
	item->var = var;
	item->span = part;
	return true;
}

static bool parse_func_item(struct parser *p, const struct decl_prefix *prefix)
{
	struct ptx_func *func;

	if (!parse_func(p, prefix, &func))
		return false;
	struct ptx_item *item = new_item(p, prefix->line);
	if (!item)
		return false;
	item->kind = PTX_ITEM_FUNC;
	item->func = func;
	item->span = span_from(p, prefix->begin);
	return true;
}

typedef bool (*directive_fn)(struct parser *p, struct ptx_item *item);

static const struct {
	const char *word;
	directive_fn parse;
} directives[] = {
	{ "version", parse_version },
	{ "target", parse_target },
	{ "address_size", parse_address_size },
	{ "file", parse_file },
	{ "section", parse_section },
	{ "alias", parse_alias },
};

static bool parse_directive(struct parser *p)
{
	uint32_t begin = p->cur.begin, line = p->cur.line;
	struct ptx_item item = { .kind = PTX_ITEM_OTHER, .line = line };
	directive_fn parse = NULL;

	for (size_t i = 0; i < sizeof(directives) / sizeof(directives[0]); i++) {
		if (at_dotted(p, directives[i].word))
			parse = directives[i].parse;
	}
	if (parse ? !advance(p) || !parse(p, &item) : !skip_directive(p))
		return false;
	item.span = span_from(p, begin);
	struct ptx_item *slot = new_item(p, line);
	if (slot)
		*slot = item;
	return slot;
}

static bool parse_item(struct parser *p)
{
	struct decl_prefix prefix;

	if (at_punct(p, ';'))
		return advance(p);
	if (p->cur.kind != TOK_DOTTED)
		return fail_expected(p, "a directive at module scope");
	if (!parse_linkage(p, &prefix))
		return false;
	if (at_dotted(p, "entry") || at_dotted(p, "func"))
		return parse_func_item(p, &prefix);
	if (at_space(p))
		return parse_vars(p, &prefix, add_module_var);
	if (prefix.linkage != PTX_LINK_NONE)
		return fail_expected(p, "a function or variable after the linkage");
	return parse_directive(p);
}

/* -- the look-up tables of ptx_find_* -- */

static bool index_func(struct parser *p, struct ptx_func *f)
{
	struct ptx_func *known = table_gets(p->m->funcs, f->name);

	if (known && !known->is_decl)
		return true;
	return table_puts(p->m->funcs, f->name, f) ? fail_memory(p) : true;
}

static bool index_item(struct parser *p, struct ptx_item *item)
{
	if (item->kind == PTX_ITEM_FUNC)
		return index_func(p, item->func);
	if (item->kind == PTX_ITEM_VAR) {
		struct ptx_var *known = table_gets(p->m->vars, item->var->name);
		if (known && known->linkage != PTX_LINK_EXTERN)
			return true;
		return table_puts(p->m->vars, item->var->name, item->var) ? fail_memory(p) : true;
	}
	if (item->kind == PTX_ITEM_FILE)
		return table_put(p->m->files, &item->file_index, sizeof(item->file_index),
			       (char *)item->file_name)
			       ? fail_memory(p)
			       : true;
	return true;
}

static bool finish(struct parser *p)
{
	struct ptx_module *m = p->m;
	bool ok;

	m->n_items = (uint32_t)p->items.n;
	m->items = vec_take(&p->items, 0, p->arena, &ok);
	m->funcs = table_new();
	m->vars = table_new();
	m->files = table_new();
	if (!ok || !m->funcs || !m->vars || !m->files)
		return fail_memory(p);
	for (uint32_t i = 0; i < m->n_items; i++) {
		if (!index_item(p, &m->items[i]))
			return false;
	}
	return true;
}

static bool parse_module(struct parser *p)
{
	if (!advance(p))
		return false;
	while (p->cur.kind != TOK_EOF) {
		if (!parse_item(p))
			return false;
	}
	if (!p->m->version_major)
		return fail_at(p, 1, 1, "no .version directive: this is not PTX");
	if (!p->m->target)
		return fail_at(p, 1, 1, "no .target directive names an sm_ architecture");
	return finish(p);
}

static void parser_free(struct parser *p)
{
	table_free(p->strings);
	table_free(p->opcodes);
	table_free(p->decls);
	vec_free(&p->undo);
	vec_free(&p->operands);
	vec_free(&p->stmts);
	vec_free(&p->scopes);
	vec_free(&p->items);
}

static struct ptx_module *new_module(const char *text, size_t size)
{
	struct arena *a = arena_new();
	struct ptx_module *m = a ? arena_alloc(a, sizeof(*m)) : NULL;

	if (m) {
		m->arena = a;
		m->text = arena_strndup(a, text, size);
		m->size = (uint32_t)size;
		m->address_size = 64;
	}
	if (m && m->text)
		return m;
	arena_free(a);
	return NULL;
}

int ptx_parse(const char *text, size_t size, struct ptx_module **out, struct diag *d)
{
	*out = NULL;
	if (size > MAX_TEXT)
		return diag_set(d, EFBIG, "PTX text of %zu bytes; the limit is 1 GiB", size);
	struct diag local = { 0 };
	struct parser p = { .d = d ? d : &local };
	p.m = new_module(text, size);
	p.strings = table_new();
	p.opcodes = table_new();
	p.decls = table_new();
	p.undo.elem = sizeof(struct decl *);
	p.operands.elem = sizeof(struct ptx_operand);
	p.stmts.elem = sizeof(struct ptx_stmt);
	p.scopes.elem = sizeof(struct scope);
	p.items.elem = sizeof(struct ptx_item);
	if (!p.m || !p.strings || !p.opcodes || !p.decls) {
		fail_memory(&p);
	} else {
		p.arena = p.m->arena;
		lex_init(&p.lx, p.m->text, p.m->size);
		parse_module(&p);
	}
	parser_free(&p);
	if (p.err) {
		ptx_module_free(p.m);
		return p.err;
	}
	*out = p.m;
	return 0;
}

void ptx_module_free(struct ptx_module *m)
{
	if (!m)
		return;
	table_free(m->funcs);
	table_free(m->vars);
	table_free(m->files);
	arena_free(m->arena);
}

const struct ptx_func *ptx_find_func(const struct ptx_module *m, const char *name)
{
	return table_gets(m->funcs, name);
}

const struct ptx_var *ptx_find_var(const struct ptx_module *m, const char *name)
{
	return table_gets(m->vars, name);
}

const char *ptx_file_name(const struct ptx_module *m, uint32_t index)
{
	return table_get(m->files, &index, sizeof(index));
}
