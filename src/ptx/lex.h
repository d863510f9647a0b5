/* lex.h - PTX text to tokens, one at a time, with line numbers kept on the way.
 *
 * White space, comments and lines that begin with '#' lie between tokens. A
 * run of NULs that ends the text is white space too (drivers are given
 * NUL-terminated text); a NUL before that is an ERROR token.
 */
#ifndef EGPU_PTX_LEX_H
#define EGPU_PTX_LEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"

enum tok_kind {
	TOK_EOF,
	TOK_IDENT,  /* [A-Za-z_$%][A-Za-z0-9_$]* */
	TOK_DOTTED, /* .word: a directive, modifier or component */
	TOK_NUMBER, /* integer or floating point, any PTX spelling */
	TOK_STRING, /* "..." with its quotes */
	TOK_PUNCT,  /* one character */
	TOK_ERROR,  /* problem: see lexer.problem */
};

struct tok {
	enum tok_kind kind;
	uint32_t begin, end; /* byte offsets */
	uint32_t line, column;
	bool first_on_line; /* no token before it on its line */
	char punct;         /* PUNCT: the character */
};

struct lexer {
	const char *text; /* NUL at text[size] */
	uint32_t size;    /* without trailing NULs */
	uint32_t pos;
	uint32_t line;       /* of pos, 1-based */
	uint32_t line_begin; /* offset of that line's first byte */
	uint32_t last_line;  /* line on which the last token ended; 0: none yet */
	const char *problem; /* why the last token was an ERROR */
};

void lex_init(struct lexer *lx, const char *text, uint32_t size);
/* Reads the next token. A TOK_ERROR does not advance: every further call returns it again. */
struct tok lex_next(struct lexer *lx);

/* Bytes that continue an identifier; no locale is asked. */
bool lex_is_word(char c);

#endif
