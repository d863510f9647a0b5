/* parse_decl.c - declarations: variables, registers, parameters, function headers (PTX ISA 5, 11).
 */
#include <string.h>

#include "ptx/parse.h"

static const struct {
	const char *word;
	enum ptx_space space;
} spaces[] = {
	{ "reg", PTX_SPACE_REG },
	{ "sreg", PTX_SPACE_SREG },
	{ "const", PTX_SPACE_CONST },
	{ "global", PTX_SPACE_GLOBAL },
	{ "local", PTX_SPACE_LOCAL },
	{ "param", PTX_SPACE_PARAM },
	{ "shared", PTX_SPACE_SHARED },
	{ "tex", PTX_SPACE_TEX },
};

static const struct {
	const char *word;
	enum ptx_linkage linkage;
} linkages[] = {
	{ "visible", PTX_LINK_VISIBLE },
	{ "extern", PTX_LINK_EXTERN },
	{ "weak", PTX_LINK_WEAK },
	{ "common", PTX_LINK_COMMON },
};

bool parse_linkage(struct parser *p, struct decl_prefix *prefix)
{
	*prefix = (struct decl_prefix){ p->cur.begin, p->cur.line, PTX_LINK_NONE };
	for (;;) {
		enum ptx_linkage found = PTX_LINK_NONE;
		for (size_t i = 0; i < sizeof(linkages) / sizeof(linkages[0]); i++) {
			if (at_dotted(p, linkages[i].word))
				found = linkages[i].linkage;
		}
		if (found == PTX_LINK_NONE)
			return true;
		prefix->linkage = found;
		if (!advance(p))
			return false;
	}
}

static bool find_space(const struct parser *p, enum ptx_space *out)
{
	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
		if (at_dotted(p, spaces[i].word)) {
			*out = spaces[i].space;
			return true;
		}
	}
	return false;
}

bool at_space(const struct parser *p)
{
	enum ptx_space ignored;

	return find_space(p, &ignored);
}

/* -- the specifiers before a variable's name -- */

/* Modifiers after .ptr describe what a pointer points to, not the parameter itself. */
static bool parse_pointer(struct parser *p)
{
	uint32_t ignored;

	if (!advance(p))
		return false;
	if (at_space(p) && !advance(p))
		return false;
	if (!at_dotted(p, "align"))
		return true;
	return advance(p) && expect_uint(p, &ignored, "an alignment");
}

static bool parse_align(struct parser *p, struct ptx_var *var)
{
	uint32_t line = p->cur.line, column = p->cur.column;

	if (!advance(p) || !expect_uint(p, &var->align_bytes, "an alignment"))
		return false;
	if (!var->align_bytes || (var->align_bytes & (var->align_bytes - 1)))
		return fail_at(
			p, line, column, "the alignment %u is no power of two", var->align_bytes);
	return true;
}

static int vector_of(const struct parser *p)
{
	return at_dotted(p, "v2") ? 2 : at_dotted(p, "v4") ? 4 : at_dotted(p, "v8") ? 8 : 0;
}

static bool parse_type(struct parser *p, struct ptx_type *type)
{
	const char *word = intern(p, p->m->text + p->cur.begin + 1, p->cur.end - p->cur.begin - 1);

	if (!word)
		return false;
	if (!ptx_type_parse(word, type) && !type->kind)
		*type = (struct ptx_type){ 'o', 0, word };
	return advance(p);
}

static bool parse_specifier(struct parser *p, struct ptx_var *var)
{
	if (at_dotted(p, "align"))
		return parse_align(p, var);
	if (at_dotted(p, "ptr"))
		return parse_pointer(p);
	if (at_dotted(p, "attribute"))
		return advance(p) && skip_balanced(p);
	if (vector_of(p)) {
		var->vector = (uint8_t)vector_of(p);
		return advance(p);
	}
	return parse_type(p, &var->type);
}

/* The space and all up to the name. */
static bool parse_specifiers(struct parser *p, struct ptx_var *var)
{
	if (!find_space(p, &var->space))
		return fail_expected(p, "a state space such as .param");
	var->vector = 1;
	if (!advance(p))
		return false;
	if (at_punct(p, '[') && !skip_balanced(p)) /* .const[2], an old form */
		return false;
	while (p->cur.kind == TOK_DOTTED) {
		if (!parse_specifier(p, var))
			return false;
	}
	if (!var->type.kind)
		return fail_expected(p, "a type such as .u32");
	return true;
}

/* -- one declarator: name, dimensions, initialiser -- */

/* Over '= ...' up to the ',' or ';' behind it; counts the outer elements. */
static bool skip_initialiser(struct parser *p, struct ptx_span *span, uint64_t *elements)
{
	uint32_t depth = 0;
	bool empty = true;

	*elements = 0;
	if (!advance(p))
		return false;
	span->begin = p->cur.begin;
	while (depth || (!at_punct(p, ';') && !at_punct(p, ','))) {
		if (p->cur.kind == TOK_EOF)
			return fail_expected(p, "';' after the initialiser");
		bool open = at_punct(p, '{') || at_punct(p, '('),
		     close = at_punct(p, '}') || at_punct(p, ')');
		if (close && !depth)
			return fail_expected(p, "';' after the initialiser");
		if (depth == 1 && at_punct(p, ','))
			++*elements;
		empty &= open || close;
		depth += open;
		depth -= close;
		if (!advance(p))
			return false;
	}
	*span = span_from(p, span->begin);
	*elements += !empty;
	return true;
}

static bool multiply_size(struct parser *p, struct ptx_var *var, uint64_t by)
{
	if (__builtin_mul_overflow(var->size_bytes, by, &var->size_bytes))
		return fail(p, "the size of '%s' overflows 64 bits", var->name);
	return true;
}

static bool parse_dimensions(struct parser *p, struct ptx_var *var)
{
	while (at_punct(p, '[')) {
		int64_t n;
		if (!advance(p))
			return false;
		if (at_punct(p, ']') && !var->is_array) {
			var->is_unsized = true;
		} else {
			if (!parse_constant(p, &n))
				return false;
			if (n < 0)
				return fail(
					p, "the array '%s' has a negative dimension", var->name);
			if (!multiply_size(p, var, (uint64_t)n))
				return false;
		}
		var->is_array = true;
		if (!expect_punct(p, ']', "']'"))
			return false;
	}
	return true;
}

static bool parse_declarator(struct parser *p, struct ptx_var *var)
{
	uint64_t elements = 0;

	if (p->cur.kind != TOK_IDENT)
		return fail_expected(p, "the variable's name");
	var->line = p->cur.line;
	var->name = intern_tok(p, p->cur);
	var->size_bytes = (uint64_t)var->type.bits * var->vector / 8;
	if (var->align_bytes < var->size_bytes || !var->align_bytes)
		var->align_bytes = var->size_bytes ? (uint32_t)var->size_bytes : 1;
	if (!var->name || !advance(p))
		return false;
	if (at_punct(p, '<')) { /* `.local .u32 a<4>` declares a0..a3: none of ours to name */
		while (!at_punct(p, ',') && !at_punct(p, ';') && p->cur.kind != TOK_EOF) {
			if (!advance(p))
				return false;
		}
	}
	if (!parse_dimensions(p, var))
		return false;
	if (at_punct(p, '=') && !skip_initialiser(p, &var->init, &elements))
		return false;
	if (!var->is_unsized)
		return true;
	if (elements) {
		var->is_unsized = false;
		return multiply_size(p, var, elements);
	}
	var->size_bytes = 0;
	return true;
}

bool parse_vars(struct parser *p, const struct decl_prefix *prefix,
	bool (*add)(struct parser *p, struct ptx_var *var, struct ptx_span part, uint32_t line))
{
	struct ptx_var proto = { .linkage = prefix->linkage };
	struct ptx_var *first = NULL, *var;
	uint32_t begin = prefix->begin, line = prefix->line;
	struct vec all = { .elem = sizeof(var) };
	bool ok = false;

	if (!parse_specifiers(p, &proto))
		return false;
	for (;;) {
		struct ptx_var **slot = vec_push(&all);
		var = arena_alloc(p->arena, sizeof(*var));
		if (!slot || !var) {
			fail_memory(p);
			goto out;
		}
		*slot = var;
		first = first ? first : var;
		*var = proto;
		if (!parse_declarator(p, var))
			goto out;
		bool more = at_punct(p, ',');
		if (!more && !at_punct(p, ';')) {
			fail_expected(p, "';' after the variable");
			goto out;
		}
		if (!advance(p) || !add(p, var, span_from(p, begin), line))
			goto out;
		begin = p->cur.begin;
		line = p->cur.line;
		if (!more)
			break;
	}
	for (size_t i = 0; i < all.n; i++)
		((struct ptx_var **)all.data)[i]->span = span_from(p, prefix->begin);
	ok = true;
out:
	vec_free(&all);
	return ok;
}

/* -- registers -- */

static bool parse_reg_name(struct parser *p, struct ptx_reg *reg)
{
	if (p->cur.kind != TOK_IDENT)
		return fail_expected(p, "a register's name");
	reg->name = intern_tok(p, p->cur);
	if (!reg->name || !advance(p))
		return false;
	if (at_punct(p, '<')) {
		if (!advance(p) || !expect_uint(p, &reg->count, "a number of registers") ||
			!expect_punct(p, '>', "'>'"))
			return false;
	}
	return true;
}

bool parse_regs(struct parser *p, struct ptx_reg **regs, uint32_t *n)
{
	struct ptx_var proto = { 0 };
	struct vec list = { .elem = sizeof(struct ptx_reg) };
	bool ok = false;

	if (!parse_specifiers(p, &proto))
		return false;
	for (;;) {
		struct ptx_reg *reg = vec_push(&list);
		if (!reg) {
			fail_memory(p);
			goto out;
		}
		reg->type = proto.type;
		reg->vector = proto.vector;
		if (!parse_reg_name(p, reg))
			goto out;
		if (!at_punct(p, ','))
			break;
		if (!advance(p))
			goto out;
	}
	if (!expect_punct(p, ';', "';' after the registers"))
		goto out;
	*n = (uint32_t)list.n;
	*regs = vec_take(&list, 0, p->arena, &ok);
	if (!ok)
		fail_memory(p);
	for (uint32_t i = 0; ok && i < *n; i++)
		ok = names_declare_reg(p, &(*regs)[i]);
out:
	vec_free(&list);
	return ok;
}

/* -- function headers -- */

static bool parse_param(struct parser *p, struct ptx_var *var)
{
	uint32_t begin = p->cur.begin;

	if (!parse_specifiers(p, var) || !parse_declarator(p, var))
		return false;
	var->span = span_from(p, begin);
	return true;
}

/* A parenthesised list of parameters, if there is one. */
static bool parse_params(struct parser *p, struct ptx_var **params, uint32_t *n)
{
	struct vec list = { .elem = sizeof(struct ptx_var) };
	bool ok = false;

	if (!at_punct(p, '('))
		return true;
	if (!advance(p))
		return false;
	while (!at_punct(p, ')')) {
		struct ptx_var *var = vec_push(&list);
		if (!var) {
			fail_memory(p);
			goto out;
		}
		if (!parse_param(p, var))
			goto out;
		if (at_punct(p, ')'))
			break;
		if (!expect_punct(p, ',', "',' or ')' after a parameter"))
			goto out;
	}
	if (!advance(p))
		goto out;
	*n = (uint32_t)list.n;
	*params = vec_take(&list, 0, p->arena, &ok);
	if (!ok)
		fail_memory(p);
	for (uint32_t i = 0; ok && i < *n; i++)
		ok = names_declare_var(p, &(*params)[i]);
out:
	vec_free(&list);
	return ok;
}

/* `.maxntid 256, 1, 1`, `.pragma "x";`, `.noreturn`, `.attribute(...)` */
static bool parse_attr(struct parser *p, struct ptx_attr *attr)
{
	uint32_t begin = p->cur.begin;
	bool is_pragma = at_dotted(p, "pragma");

	attr->name = intern(p, p->m->text + begin + 1, p->cur.end - begin - 1);
	if (!attr->name || !advance(p))
		return false;
	for (;;) {
		uint32_t value;
		if (p->cur.kind == TOK_NUMBER) {
			if (!expect_uint(p, &value, "a 32-bit number"))
				return false;
			if (attr->n_values < 4)
				attr->values[attr->n_values++] = value;
		} else if (p->cur.kind == TOK_STRING || p->cur.kind == TOK_IDENT) {
			if (!advance(p))
				return false;
		} else if (at_punct(p, '(')) {
			if (!skip_balanced(p))
				return false;
		}
		if (!at_punct(p, ','))
			break;
		if (!advance(p))
			return false;
	}
	if (is_pragma && at_punct(p, ';') && !advance(p))
		return false;
	attr->span = span_from(p, begin);
	return true;
}

static bool parse_attrs(struct parser *p, struct ptx_func *f)
{
	struct vec list = { .elem = sizeof(struct ptx_attr) };
	bool ok = false;

	while (p->cur.kind == TOK_DOTTED) {
		struct ptx_attr *attr = vec_push(&list);
		if (!attr) {
			fail_memory(p);
			goto out;
		}
		if (!parse_attr(p, attr))
			goto out;
	}
	f->n_attrs = (uint32_t)list.n;
	f->attrs = vec_take(&list, 0, p->arena, &ok);
	if (!ok)
		fail_memory(p);
out:
	vec_free(&list);
	return ok;
}

static bool parse_header(struct parser *p, struct ptx_func *f)
{
	f->is_entry = at_dotted(p, "entry");
	if (!advance(p))
		return false;
	while (p->cur.kind ==
		TOK_DOTTED) { /* .attribute(.unified(..)), .noreturn before the name */
		struct ptx_attr ignored = { 0 };
		if (!parse_attr(p, &ignored))
			return false;
	}
	if (!f->is_entry && !parse_params(p, &f->results, &f->n_results))
		return false;
	if (p->cur.kind != TOK_IDENT)
		return fail_expected(p, "the function's name");
	f->name = intern_tok(p, p->cur);
	if (!f->name || !advance(p))
		return false;
	uint32_t begin = at_punct(p, '(') ? p->cur.begin : p->prev_end;
	if (!parse_params(p, &f->params, &f->n_params))
		return false;
	f->params_span = span_from(p, begin);
	return parse_attrs(p, f);
}

bool parse_func(struct parser *p, const struct decl_prefix *prefix, struct ptx_func **out)
{
	struct ptx_func *f = arena_alloc(p->arena, sizeof(*f));

	if (!f)
		return fail_memory(p);
	*out = f;
	f->linkage = prefix->linkage;
	if (!parse_header(p, f))
		return false;
	struct tok open = p->cur;
	bool ok;
	if (at_punct(p, ';')) {
		f->is_decl = true;
		ok = advance(p);
	} else {
		ok = expect_punct(p, '{', "'{' or ';' after the function's header") &&
		     parse_body(p, f, open);
	}
	names_unwind(p, 0);
	return ok;
}
