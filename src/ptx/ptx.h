/* ptx.h - the PTX front end: a parse tree laid over the source text.
 *
 * The parser understands what it must and carries everything else through: each
 * node names a span of the text, and printing joins the spans, so
 * print(parse(x)) equals x byte for byte. Rewriting is a list of edits (edit.h)
 * against the same text. Unknown opcodes are instructions like any other; an
 * unknown directive is a node of kind OTHER.
 *
 * Everything lives in the module's arena: one ptx_module_free ends it all.
 */
#ifndef EGPU_PTX_PTX_H
#define EGPU_PTX_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"

struct table;

/* Byte offsets into ptx_module.text: [begin, end). */
struct ptx_span {
	uint32_t begin, end;
};

/* State spaces (PTX ISA 5.1). GENERIC: none was written, resolved at run time. */
enum ptx_space {
	PTX_SPACE_GENERIC,
	PTX_SPACE_REG,
	PTX_SPACE_SREG,
	PTX_SPACE_CONST,
	PTX_SPACE_GLOBAL,
	PTX_SPACE_LOCAL,
	PTX_SPACE_PARAM,
	PTX_SPACE_SHARED, /* .shared and .shared::cta */
	PTX_SPACE_SHARED_CLUSTER,
	PTX_SPACE_TEX,
};

enum ptx_linkage {
	PTX_LINK_NONE,
	PTX_LINK_VISIBLE,
	PTX_LINK_EXTERN,
	PTX_LINK_WEAK,
	PTX_LINK_COMMON,
};

/* A fundamental type (PTX ISA 5.2): kind letter and width. */
struct ptx_type {
	char kind;     /* 's' 'u' 'b' 'f' 'p'(.pred) 'o'(other: .f16x2, .bf16, .tf32, .e4m3, .texref...); 0: none */
	uint16_t bits; /* 1 for .pred; 0 where unknown */
	const char *name; /* as written without the dot: "f32", "bf16x2" */
};

/* A variable: module scope, function scope, or a parameter (PTX ISA 5.4). */
struct ptx_var {
	const char *name;
	/* The whole declaration with its ';' (a parameter: without ','). `.shared .u32 a, b;` makes one
	 * node for each name: their variables share this span, while the nodes' spans split it. */
	struct ptx_span span;
	struct ptx_span init; /* the initialiser after '=', empty if none */
	enum ptx_space space;
	enum ptx_linkage linkage;
	struct ptx_type type;
	uint8_t vector;	      /* 1, 2, 4 or 8 elements */
	uint32_t align_bytes; /* the natural alignment of the (vector) type, or the written .align if that is more */
	uint64_t size_bytes;  /* all dimensions; 0 for an unsized `[]` */
	bool is_array, is_unsized; /* `a[] = {1, 2}` has the size of its initialiser */
	uint32_t line; /* 1-based */
};

/* A .reg declaration: `%r<10>` declares %r0..%r9 (count 10); `%p` has count 0. */
struct ptx_reg {
	const char *name;
	uint32_t count;
	struct ptx_type type;
	uint8_t vector;
};

enum ptx_operand_kind {
	PTX_OPERAND_REG,     /* %r1, %tid.x, a declared name without %, _ (sink); `name` */
	PTX_OPERAND_INT,     /* integer literal, constant expression or WARP_SZ: `value` (two's complement) */
	PTX_OPERAND_FLOAT,   /* 0f.., 0d.. (bits in `value`, `bits` 32 or 64) or decimal (converted to 64-bit bits) */
	PTX_OPERAND_SYMBOL,  /* identifier that is no register: label, variable, function; may have `+value` */
	PTX_OPERAND_ADDRESS, /* [reg], [reg+imm], [sym+imm], [imm]: name (NULL: immediate), value */
	PTX_OPERAND_VECTOR,  /* {a, b, ...}: sub[] */
	PTX_OPERAND_GROUP,   /* (a, b, ...) of a call: sub[] */
	PTX_OPERAND_PAIR,    /* a|b destination pair: sub[0], sub[1] */
	PTX_OPERAND_MULTI,   /* [a, {b, c}] of tex, surf and tensor forms: sub[] */
	PTX_OPERAND_OTHER,   /* anything else, kept as text */
};

struct ptx_operand {
	enum ptx_operand_kind kind;
	struct ptx_span span;
	const char *name; /* REG, SYMBOL, ADDRESS base */
	/* What a register's or a symbol's name refers to in its scope: its .reg declaration (NULL for special
	 * registers and parameters in .reg space), or the function's own variable or parameter (NULL:
	 * something of the module, or a label). */
	const struct ptx_reg *reg;
	const struct ptx_var *var;
	bool base_is_reg; /* ADDRESS: name is a register, not a symbol */
	bool negated;	  /* !p or -r before a register; a literal's `value` has its sign already */
	uint8_t bits;	  /* FLOAT: width of the pattern */
	/* REG: component of a vector register (`%v.x`, 0..3), -1 when none. Special registers keep
	 * their dotted name in `name` ("%tid.x") and have -1. */
	int8_t component;
	int64_t value; /* offset of an ADDRESS or SYMBOL, literal of an INT or FLOAT */
	struct ptx_operand *sub;
	uint32_t n_sub;
};

struct ptx_insn {
	const char *opcode;   /* full text "ld.global.v2.f32" */
	const char *base;     /* up to the first dot: "ld" */
	const char **mods;    /* "global", "v2", "f32"; "shared::cta" is one */
	uint32_t n_mods;
	const char *pred;     /* guard register or NULL */
	bool pred_negated;    /* @!p */
	struct ptx_span opcode_span;
	struct ptx_operand *operands;
	uint32_t n_operands;
};

enum ptx_stmt_kind {
	PTX_STMT_INSN,
	PTX_STMT_LABEL,	 /* name */
	PTX_STMT_REG,	 /* regs[] */
	PTX_STMT_VAR,	 /* var: .local .shared .param .const .global inside a body */
	PTX_STMT_OPEN,	 /* { ; match = index of its CLOSE */
	PTX_STMT_CLOSE,	 /* } ; match = index of its OPEN */
	PTX_STMT_LOC,	 /* .loc file line column [, function_name..., inlined_at...] */
	PTX_STMT_TABLE,	 /* label: .branchtargets / .calltargets / .callprototype; name, targets[] */
	PTX_STMT_OTHER,	 /* .pragma and any directive we do not know */
};

struct ptx_stmt {
	enum ptx_stmt_kind kind;
	struct ptx_span span; /* from its first token to its ';' (or ':' or brace); no leading space */
	uint32_t line;	      /* 1-based line of the first token in the PTX text */
	uint32_t match;	      /* OPEN, CLOSE */
	const char *name;     /* LABEL, TABLE */
	struct ptx_insn *insn;
	struct ptx_var *var;
	struct ptx_reg *regs;
	uint32_t n_regs;
	const char **targets; /* TABLE */
	uint32_t n_targets;
	uint32_t loc_file, loc_line, loc_column; /* LOC */
};

/* A performance directive: ".maxntid 256, 1, 1" gives name "maxntid", values {256,1,1}. */
struct ptx_attr {
	const char *name;
	uint32_t values[4];
	uint32_t n_values;
	struct ptx_span span;
};

struct ptx_func {
	bool is_entry;
	bool is_decl; /* no body */
	enum ptx_linkage linkage;
	const char *name;
	struct ptx_var *params, *results; /* in declaration order; space PARAM or REG */
	uint32_t n_params, n_results;
	struct ptx_attr *attrs;
	uint32_t n_attrs;
	struct ptx_span params_span; /* parameters with their parentheses; empty, behind the name, when none are written */
	struct ptx_span body;	 /* from '{' to after '}', empty for a declaration */
	struct ptx_stmt *stmts;	 /* between the outer braces, in order; nested scopes by OPEN/CLOSE */
	uint32_t n_stmts;
};

enum ptx_item_kind {
	PTX_ITEM_VERSION,
	PTX_ITEM_TARGET,
	PTX_ITEM_ADDRESS_SIZE,
	PTX_ITEM_VAR,
	PTX_ITEM_FUNC,
	PTX_ITEM_FILE,	  /* .file index "name" ... */
	PTX_ITEM_SECTION, /* .section name { ... } */
	PTX_ITEM_ALIAS,
	PTX_ITEM_OTHER,	  /* .pragma and directives we do not know */
};

struct ptx_item {
	enum ptx_item_kind kind;
	struct ptx_span span; /* no leading space or comments */
	uint32_t line;
	struct ptx_var *var;
	struct ptx_func *func;
	uint32_t file_index;   /* FILE */
	const char *file_name; /* FILE: without quotes; SECTION: name; ALIAS: the alias */
	const char *alias_of;  /* ALIAS */
};

struct ptx_module {
	struct arena *arena;
	const char *text; /* our NUL-terminated copy */
	uint32_t size;
	uint32_t version_major, version_minor; /* .version 8.7 */
	const char *target;		       /* "sm_90a", without the other words of .target */
	uint32_t sm;			       /* 90 */
	char target_suffix;		       /* 'a', 'f' or 0 */
	uint32_t address_size;		       /* 32 or 64; 64 when not written */
	struct ptx_item *items;
	uint32_t n_items;
	struct table *funcs, *vars, *files; /* behind ptx_find_*; look nowhere else */
};

/* Parses size bytes of PTX text (a trailing NUL, as drivers are given, is fine).
 * Copies the text. 0, -EINVAL (malformed; d has line and column), -ENOMEM, -EFBIG (over 1 GiB). */
int ptx_parse(const char *text, size_t size, struct ptx_module **out, struct diag *d);
void ptx_module_free(struct ptx_module *m);

/* Appends the module's text, rebuilt from its nodes and the gaps between them. */
void ptx_print(const struct ptx_module *m, struct buf *out);

/* The function or kernel of that name with a body (or, if there is none, its declaration), or NULL. */
const struct ptx_func *ptx_find_func(const struct ptx_module *m, const char *name);
/* The module-scope variable of that name or NULL. */
const struct ptx_var *ptx_find_var(const struct ptx_module *m, const char *name);
/* Name of a .file index, or NULL. */
const char *ptx_file_name(const struct ptx_module *m, uint32_t index);
bool ptx_insn_has_mod(const struct ptx_insn *insn, const char *mod);
/* The last modifier that is a type ("f32"), zeroed when there is none. */
struct ptx_type ptx_insn_type(const struct ptx_insn *insn);
/* Turns "f32", "b64", "pred", "f16x2" into a type; false when it is none. */
bool ptx_type_parse(const char *name, struct ptx_type *out);

/* -- memory accesses (ops.c): from an instruction's name and operands alone -- */

enum ptx_access_op {
	PTX_ACCESS_NONE,
	PTX_ACCESS_LOAD,
	PTX_ACCESS_STORE,
	PTX_ACCESS_ATOMIC,
	PTX_ACCESS_PREFETCH, /* moves nothing the program sees: prefetch, discard, bulk prefetch */
};

/* Why nobody can say from outside which bytes each lane touches. */
enum ptx_opaque {
	PTX_OPAQUE_NO,
	PTX_OPAQUE_TEXTURE, /* tex, tld4, suld, sust, sured: coordinates, no address */
	PTX_OPAQUE_TENSOR,  /* the box and its strides are in a tensor map */
	PTX_OPAQUE_MATRIX,  /* wmma.load, wmma.store: which lane has which element is unspecified */
	PTX_OPAQUE_DESCRIPTOR, /* wgmma, tcgen05: shared memory by matrix descriptors */
};

struct ptx_access {
	enum ptx_access_op op;
	enum ptx_space space;
	uint32_t bytes;	      /* per lane, all vector elements; 0: known only at run time, see `size` */
	uint8_t vector;	      /* elements */
	struct ptx_type type; /* of one element */
	int32_t address;      /* operand index of the ADDRESS, -1: none (opaque) */
	int32_t value;	      /* operand index of the data written (store, atomic) or read (load), -1: none */
	int32_t size;	      /* operand index of the size in bytes of a bulk operation, -1: none */
	uint8_t lanes;	      /* only the lowest so many lanes give an address (ldmatrix); 0: all */
	bool sync;	      /* mbarrier and what belongs to it: memory used to wait */
	enum ptx_opaque opaque;
};

/* Describes the access; op NONE when the instruction touches no memory. Copies have two sides: the
 * one outside the block's own shared memory is described; a copy from a block's shared memory to
 * another's is a store. Every state space counts, .param too. */
void ptx_insn_access(const struct ptx_insn *insn, struct ptx_access *out);

const char *ptx_space_name(enum ptx_space space); /* "global", "generic", ... */

#endif
