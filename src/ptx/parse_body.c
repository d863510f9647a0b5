/* parse_body.c - the statements of a function (PTX ISA 4.3, 8, 9). */
#include <string.h>

#include "ptx/parse.h"

static struct ptx_stmt *new_stmt(struct parser *p, enum ptx_stmt_kind kind, struct tok at)
{
	struct ptx_stmt *s = vec_push(&p->stmts);

	if (!s) {
		fail_memory(p);
		return NULL;
	}
	s->kind = kind;
	s->line = at.line;
	s->span.begin = at.begin;
	return s;
}

static struct ptx_stmt *last_stmt(struct parser *p)
{
	return (struct ptx_stmt *)p->stmts.data + p->stmts.n - 1;
}

static bool end_stmt(struct parser *p)
{
	last_stmt(p)->span.end = p->prev_end;
	return true;
}

/* -- scopes -- */

static bool parse_open(struct parser *p)
{
	struct tok at = p->cur;

	if (p->scopes.n >= SCOPE_DEPTH)
		return fail(p, "scopes are nested more than %d deep", SCOPE_DEPTH);
	struct scope *scope = vec_push(&p->scopes);
	if (!scope)
		return fail_memory(p);
	*scope = (struct scope){ (uint32_t)p->stmts.n, at.line, at.column, p->undo.n };
	return new_stmt(p, PTX_STMT_OPEN, at) && advance(p) && end_stmt(p);
}

static bool parse_close(struct parser *p)
{
	struct scope scope = ((struct scope *)p->scopes.data)[--p->scopes.n];
	uint32_t index = (uint32_t)p->stmts.n;

	if (!new_stmt(p, PTX_STMT_CLOSE, p->cur))
		return false;
	((struct ptx_stmt *)p->stmts.data)[scope.stmt].match = index;
	last_stmt(p)->match = scope.stmt;
	names_unwind(p, scope.undo);
	return advance(p) && end_stmt(p);
}

/* -- directives -- */

/* Over ", function_name LABEL+4, inlined_at 1 2 3". */
static bool skip_loc_tail(struct parser *p)
{
	while (at_punct(p, ',')) {
		do {
			if (!advance(p))
				return false;
		} while (!p->cur.first_on_line && p->cur.kind != TOK_EOF && !at_punct(p, ',') &&
			 !at_punct(p, ';') && !at_punct(p, '{') && !at_punct(p, '}'));
	}
	return true;
}

static bool parse_loc(struct parser *p)
{
	uint32_t file, line, column;

	if (!new_stmt(p, PTX_STMT_LOC, p->cur) || !advance(p))
		return false;
	if (!expect_uint(p, &file, "a file number after .loc") ||
		!expect_uint(p, &line, "a line number in .loc") ||
		!expect_uint(p, &column, "a column number in .loc") || !skip_loc_tail(p))
		return false;
	struct ptx_stmt *s = last_stmt(p);
	s->loc_file = file;
	s->loc_line = line;
	s->loc_column = column;
	return end_stmt(p);
}

static bool parse_reg_stmt(struct parser *p)
{
	struct ptx_reg *regs;
	uint32_t n;

	if (!new_stmt(p, PTX_STMT_REG, p->cur) || !parse_regs(p, &regs, &n))
		return false;
	last_stmt(p)->regs = regs;
	last_stmt(p)->n_regs = n;
	return end_stmt(p);
}

static bool add_body_var(struct parser *p, struct ptx_var *var, struct ptx_span part, uint32_t line)
{
	struct ptx_stmt *s = new_stmt(p, PTX_STMT_VAR, p->cur);

	if (!s)
		return false;
	s->line = line;
	s->span = part;
	s->var = var;
	return names_declare_var(p, var);
}

static bool parse_directive_stmt(struct parser *p)
{
	struct decl_prefix prefix;
	struct tok at = p->cur;

	if (at_dotted(p, "loc"))
		return parse_loc(p);
	if (at_dotted(p, "reg"))
		return parse_reg_stmt(p);
	if (!parse_linkage(p, &prefix))
		return false;
	if (at_space(p))
		return parse_vars(p, &prefix, add_body_var);
	if (at_dotted(p, "entry") || at_dotted(p, "func"))
		return fail(p, "a function begins before the '}' of the one around it");
	return new_stmt(p, PTX_STMT_OTHER, at) && skip_directive(p) && end_stmt(p);
}

/* -- labels and tables -- */

static bool at_table(const struct parser *p)
{
	return at_dotted(p, "branchtargets") || at_dotted(p, "calltargets") ||
	       at_dotted(p, "callprototype");
}

/* Names up to ';'. A prototype's parameters are none. */
static bool parse_targets(struct parser *p, struct vec *names, bool is_prototype)
{
	while (!at_punct(p, ';')) {
		if (p->cur.kind == TOK_EOF || at_punct(p, '}'))
			return fail_expected(p, "';' after the table");
		if (p->cur.kind == TOK_IDENT && !is_prototype) {
			const char **slot = vec_push(names);
			if (!slot)
				return fail_memory(p);
			*slot = intern_tok(p, p->cur);
			if (!*slot)
				return false;
		}
		if (at_punct(p, '(') ? !skip_balanced(p) : !advance(p))
			return false;
	}
	return advance(p);
}

static bool parse_table(struct parser *p)
{
	struct vec names = { .elem = sizeof(char *) };
	bool is_prototype = at_dotted(p, "callprototype"), ok;
	struct ptx_stmt *s = last_stmt(p);

	s->kind = PTX_STMT_TABLE;
	ok = advance(p) && parse_targets(p, &names, is_prototype);
	if (ok) {
		s->n_targets = (uint32_t)names.n;
		s->targets = vec_take(&names, 0, p->arena, &ok);
		if (!ok)
			fail_memory(p);
	}
	vec_free(&names);
	return ok && end_stmt(p);
}

/* At ':' after a name. */
static bool parse_label(struct parser *p, struct tok name)
{
	struct ptx_stmt *s = new_stmt(p, PTX_STMT_LABEL, name);

	if (!s)
		return false;
	s->name = intern_tok(p, name);
	if (!s->name || !advance(p))
		return false;
	return at_table(p) ? parse_table(p) : end_stmt(p);
}

/* -- instructions -- */

static bool at_double_colon(const struct parser *p)
{
	return at_punct(p, ':') && p->m->text[p->cur.end] == ':';
}

/* The opcode's spelling when white space lies inside it. */
static const struct opcode *join_opcode(struct parser *p, uint32_t begin, uint32_t end)
{
	struct lexer lx = { .text = p->m->text, .size = end, .pos = begin };
	struct buf b = { 0 };
	const struct opcode *op = NULL;

	for (struct tok t = lex_next(&lx); t.kind != TOK_EOF; t = lex_next(&lx))
		buf_add(&b, lx.text + t.begin, t.end - t.begin);
	if (b.failed)
		fail_memory(p);
	else
		op = intern_opcode(p, b.data, b.len);
	buf_free(&b);
	return op;
}

/* The current token follows the opcode's first word. */
static const struct opcode *parse_opcode(struct parser *p, struct tok word)
{
	bool spaced = false;

	while (p->cur.kind == TOK_DOTTED || at_double_colon(p)) {
		spaced |= p->cur.begin != p->prev_end;
		if (p->cur.kind == TOK_DOTTED) {
			if (!advance(p))
				return NULL;
			continue;
		}
		if (!advance(p) || !advance(p))
			return NULL;
		spaced |= p->cur.begin != p->prev_end;
		if (p->cur.kind != TOK_IDENT && p->cur.kind != TOK_NUMBER) {
			fail_expected(p, "a word after '::'");
			return NULL;
		}
		if (!advance(p))
			return NULL;
	}
	if (spaced)
		return join_opcode(p, word.begin, p->prev_end);
	return intern_opcode(p, p->m->text + word.begin, p->prev_end - word.begin);
}

/* The word has been read; `at` is where the statement began, at its guard if there is one. */
static bool parse_insn(
	struct parser *p, struct tok at, struct tok word, const char *pred, bool negated)
{
	struct ptx_insn *insn = arena_alloc(p->arena, sizeof(*insn));
	struct ptx_stmt *s = new_stmt(p, PTX_STMT_INSN, at);

	if (!insn)
		return fail_memory(p);
	if (!s)
		return false;
	s->insn = insn;
	const struct opcode *op = parse_opcode(p, word);
	if (!op)
		return false;
	insn->opcode = op->text;
	insn->base = op->base;
	insn->mods = op->mods;
	insn->n_mods = op->n_mods;
	insn->pred = pred;
	insn->pred_negated = negated;
	insn->opcode_span = span_from(p, word.begin);
	if (!at_punct(p, ';') && p->cur.first_on_line && p->cur.kind != TOK_IDENT &&
		p->cur.kind != TOK_NUMBER && !at_punct(p, '{') && !at_punct(p, '(') &&
		!at_punct(p, '['))
		return fail_expected(p, "';' after the opcode");
	if (!parse_operand_list(
		    p, ';', !strcmp(op->base, "call"), &insn->operands, &insn->n_operands))
		return false;
	return advance(p) && end_stmt(p);
}

/* @p, @!p before an opcode. */
static bool parse_guarded(struct parser *p)
{
	struct tok at = p->cur, word;
	bool negated = false;

	if (!advance(p))
		return false;
	if (at_punct(p, '!')) {
		negated = true;
		if (!advance(p))
			return false;
	}
	if (p->cur.kind != TOK_IDENT)
		return fail_expected(p, "a predicate register after '@'");
	const char *pred = intern_tok(p, p->cur);
	if (!pred || !advance(p))
		return false;
	word = p->cur;
	if (word.kind != TOK_IDENT)
		return fail_expected(p, "an opcode after the guard");
	return advance(p) && parse_insn(p, at, word, pred, negated);
}

static bool parse_word(struct parser *p)
{
	struct tok word = p->cur;

	if (!advance(p))
		return false;
	if (at_punct(p, ':') && !at_double_colon(p))
		return parse_label(p, word);
	return parse_insn(p, word, word, NULL, false);
}

static bool parse_stmt(struct parser *p)
{
	if (p->cur.kind == TOK_IDENT)
		return parse_word(p);
	if (p->cur.kind == TOK_DOTTED)
		return parse_directive_stmt(p);
	if (at_punct(p, '@'))
		return parse_guarded(p);
	if (at_punct(p, '{'))
		return parse_open(p);
	if (at_punct(p, '}'))
		return parse_close(p);
	if (at_punct(p, ';')) /* an empty statement is text between nodes */
		return advance(p);
	return fail_expected(p, "an instruction, a label or a directive");
}

bool parse_body(struct parser *p, struct ptx_func *f, struct tok open)
{
	bool ok;

	p->stmts.n = 0;
	p->scopes.n = 0;
	while (p->scopes.n || !at_punct(p, '}')) {
		if (p->cur.kind == TOK_EOF) {
			if (!p->scopes.n)
				return fail_at(p, open.line, open.column,
					"the body of '%s' is never closed", f->name);
			const struct scope *s = (struct scope *)p->scopes.data + p->scopes.n - 1;
			return fail_at(
				p, s->line, s->column, "this '{' in '%s' is never closed", f->name);
		}
		if (!parse_stmt(p))
			return false;
	}
	f->n_stmts = (uint32_t)p->stmts.n;
	f->stmts = vec_take(&p->stmts, 0, p->arena, &ok);
	if (!ok)
		return fail_memory(p);
	if (!advance(p))
		return false;
	f->body = span_from(p, open.begin);
	return true;
}
