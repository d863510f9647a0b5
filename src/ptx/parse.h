/* parse.h - what the parser's passes share. Private to src/ptx.
 *
 * parse.c          the module: directives, sections, the driver
 * parse_decl.c     variables, registers, parameter lists, function headers
 * parse_body.c     statements and instructions
 * parse_operand.c  operands and constant expressions
 * names.c          interned strings and opcodes, which names are registers where
 * number.c         literals to values, without the C library's locale
 *
 * A function that returns bool returns false after it has recorded a diagnostic
 * (fail, fail_memory); the caller only passes it on.
 */
#ifndef EGPU_PTX_PARSE_H
#define EGPU_PTX_PARSE_H

#include "base/table.h"
#include "ptx/lex.h"
#include "ptx/ptx.h"

enum {
	OPERAND_DEPTH = 64, /* nesting of braces, parentheses and expressions in one operand */
	SCOPE_DEPTH = 512,  /* nesting of { } in one body */
};

/* A growing array outside the arena; it is copied there once its length is known. */
struct vec {
	char *data;
	size_t n, cap, elem;
};

void *vec_push(struct vec *v); /* a zeroed element; NULL when memory is out */
void vec_free(struct vec *v);
/* Moves elements [from, n) into the arena; *ok tells an empty result from failure. */
void *vec_take(struct vec *v, size_t from, struct arena *a, bool *ok);

struct opcode {
	const char *text, *base;
	const char **mods;
	uint32_t n_mods;
};

struct decl {
	const char *name;
	struct decl *shadowed;
	const struct ptx_reg *reg; /* NULL: a variable, or a parameter in .reg space */
	const struct ptx_var *var; /* NULL: a register */
	uint32_t count;            /* registers: %r<count>; 0: the plain name */
	bool is_reg;
	size_t order; /* of what is in scope, the inner ones have the higher numbers */
};

/* An open '{' of a body. */
struct scope {
	uint32_t stmt, line, column; /* its OPEN statement */
	size_t undo;                 /* declarations made before it */
};

struct parser {
	struct lexer lx;
	struct tok cur;
	uint32_t prev_end; /* where the token before cur ended */
	struct ptx_module *m;
	struct arena *arena;
	struct diag *d;
	int err; /* -errno of the first failure */
	uint32_t depth;
	struct table *strings, *opcodes; /* interned */
	struct table *decls;             /* name -> struct decl, of the current function */
	struct vec undo;                 /* struct decl *, in order of declaration */
	struct vec operands;             /* struct ptx_operand; a stack, nested lists on top */
	struct vec stmts;                /* struct ptx_stmt of the current function */
	struct vec scopes;               /* struct scope of the current function */
	struct vec items;
};

/* parse.c */
bool fail(struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool fail_at(struct parser *p, uint32_t line, uint32_t column, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
bool fail_memory(struct parser *p);
/* "expected WHAT, found ..." at the current token. */
bool fail_expected(struct parser *p, const char *what);
bool advance(struct parser *p);
bool at_punct(const struct parser *p, char c);
bool at_dotted(const struct parser *p, const char *word); /* word without the dot */
bool expect_punct(struct parser *p, char c, const char *what);
bool expect_uint(struct parser *p, uint32_t *out, const char *what);
/* From an opening bracket to after the one that closes it. */
bool skip_balanced(struct parser *p);
/* An unknown directive, from its name to its ';', closing '}' or the end of its line. */
bool skip_directive(struct parser *p);
struct ptx_span span_from(
	const struct parser *p, uint32_t begin); /* to the end of the last token */

/* names.c */
const char *intern(struct parser *p, const char *s, size_t n); /* NULL: memory */
const char *intern_tok(struct parser *p, struct tok t);
const struct opcode *intern_opcode(struct parser *p, const char *s, size_t n);
bool names_declare_reg(struct parser *p, const struct ptx_reg *reg);
bool names_declare_var(struct parser *p, const struct ptx_var *var);
void names_unwind(struct parser *p, size_t to); /* drops declarations until `to` are left */
/* Whether the name is a register where the parser stands; *decl: its declaration, if it has one. */
bool names_is_reg(const struct parser *p, const char *name, const struct decl **decl);

/* number.c */
struct number {
	bool is_float, is_unsigned;
	uint8_t bits;   /* floating point: 32 or 64 */
	uint64_t value; /* integer, or the pattern */
};
bool number_parse(const char *s, size_t n, struct number *out);

/* parse_operand.c: pushes one operand on p->operands. */
bool parse_operand(struct parser *p, bool is_call);
/* Comma-separated operands up to (not over) `close`, taken from the stack. */
bool parse_operand_list(
	struct parser *p, char close, bool is_call, struct ptx_operand **out, uint32_t *n);
/* A constant integer expression, as in array dimensions. */
bool parse_constant(struct parser *p, int64_t *out);

/* parse_decl.c */
struct decl_prefix {
	uint32_t begin, line;
	enum ptx_linkage linkage;
};
bool parse_linkage(struct parser *p, struct decl_prefix *prefix); /* also when none is written */
bool at_space(const struct parser *p);
/* `.space ... name[..] = init, name2 ...;` Calls add for each name with the span of its part. */
bool parse_vars(struct parser *p, const struct decl_prefix *prefix,
	bool (*add)(struct parser *p, struct ptx_var *var, struct ptx_span part, uint32_t line));
bool parse_regs(
	struct parser *p, struct ptx_reg **regs, uint32_t *n); /* after ".reg", to after ';' */
bool parse_func(struct parser *p, const struct decl_prefix *prefix, struct ptx_func **out);

/* parse_body.c: after '{', to after the '}' that ends the function. */
bool parse_body(struct parser *p, struct ptx_func *f, struct tok open);

#endif
