#include "ptx/lex.h"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alpha(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool lex_is_word(char c)
{
	return is_alpha(c) || is_digit(c) || c == '_' || c == '$';
}

void lex_init(struct lexer *lx, const char *text, uint32_t size)
{
	while (size && !text[size - 1])
		size--;
	*lx = (struct lexer){ .text = text, .size = size, .line = 1 };
}

static void newline(struct lexer *lx)
{
	lx->line++;
	lx->line_begin = lx->pos;
}

static void skip_line(struct lexer *lx)
{
	while (lx->pos < lx->size && lx->text[lx->pos] != '\n')
		lx->pos++;
}

/* Skips a C comment; false when it is never closed. */
static bool skip_block_comment(struct lexer *lx)
{
	struct lexer start = *lx;

	lx->pos += 2;
	while (lx->pos + 1 < lx->size) {
		const char *p = lx->text + lx->pos;
		if (p[0] == '*' && p[1] == '/') {
			lx->pos += 2;
			return true;
		}
		lx->pos++;
		if (*p == '\n')
			newline(lx);
	}
	*lx = start;
	return false;
}

/* Stops at the next token's first byte, or with problem set. */
static bool skip_space(struct lexer *lx)
{
	while (lx->pos < lx->size) {
		char c = lx->text[lx->pos], next = lx->text[lx->pos + 1];
		if (c == '\n') {
			lx->pos++;
			newline(lx);
		} else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
			lx->pos++;
		} else if (c == '/' && next == '/') {
			skip_line(lx);
		} else if (c == '/' && next == '*') {
			if (!skip_block_comment(lx)) {
				lx->problem = "this comment is never closed";
				return false;
			}
		} else if (c == '#' && lx->last_line != lx->line) {
			skip_line(lx);
		} else {
			break;
		}
	}
	return true;
}

static void skip_word(struct lexer *lx)
{
	while (lx->pos < lx->size && lex_is_word(lx->text[lx->pos]))
		lx->pos++;
}

/* Integers in every base, 0f/0d bit patterns, and decimal floating point. The parser judges the
 * spelling. */
static void skip_number(struct lexer *lx)
{
	const char *t = lx->text;
	bool exponent_ok = !(t[lx->pos] == '0' && (t[lx->pos + 1] | 0x20) == 'x');

	skip_word(lx);
	if (lx->pos + 1 < lx->size && t[lx->pos] == '.' && is_digit(t[lx->pos + 1])) {
		lx->pos++;
		skip_word(lx);
	} else if (lx->pos < lx->size && t[lx->pos] == '.' && !lex_is_word(t[lx->pos + 1])) {
		lx->pos++; /* "1." */
	}
	if (exponent_ok && lx->pos + 1 < lx->size && (t[lx->pos - 1] | 0x20) == 'e' &&
		(t[lx->pos] == '+' || t[lx->pos] == '-') && is_digit(t[lx->pos + 1])) {
		lx->pos++;
		skip_word(lx);
	}
}

static bool skip_string(struct lexer *lx)
{
	uint32_t p = lx->pos + 1;

	for (; p < lx->size; p++) {
		char c = lx->text[p];
		if (c == '\n')
			break;
		if (c == '\\' && p + 1 < lx->size && lx->text[p + 1] != '\n') {
			p++;
			continue;
		}
		if (c == '"') {
			lx->pos = p + 1;
			return true;
		}
	}
	lx->problem = "this string is not closed on its line";
	return false;
}

static enum tok_kind scan(struct lexer *lx)
{
	char c = lx->text[lx->pos], next = lx->text[lx->pos + 1];

	if (is_alpha(c) || c == '_' || c == '$' || c == '%') {
		lx->pos++;
		skip_word(lx);
		return TOK_IDENT;
	}
	if (is_digit(c)) {
		skip_number(lx);
		return TOK_NUMBER;
	}
	if (c == '.' && lex_is_word(next)) {
		lx->pos++;
		skip_word(lx);
		return TOK_DOTTED;
	}
	if (c == '"')
		return skip_string(lx) ? TOK_STRING : TOK_ERROR;
	if (c > ' ' && c < 127) {
		lx->pos++;
		return TOK_PUNCT;
	}
	lx->problem = c ? "this byte has no place in PTX" : "a NUL byte inside the text";
	return TOK_ERROR;
}

struct tok lex_next(struct lexer *lx)
{
	struct tok t = { .kind = TOK_ERROR };
	bool clean = skip_space(lx);

	t.begin = t.end = lx->pos;
	t.line = lx->line;
	t.column = lx->pos - lx->line_begin + 1;
	if (!clean)
		return t;
	if (lx->pos >= lx->size) {
		t.kind = TOK_EOF;
		return t;
	}
	t.first_on_line = lx->last_line != lx->line;
	t.punct = lx->text[lx->pos];
	t.kind = scan(lx);
	t.end = lx->pos;
	if (t.kind != TOK_PUNCT)
		t.punct = 0;
	if (t.kind != TOK_ERROR)
		lx->last_line = lx->line;
	return t;
}
