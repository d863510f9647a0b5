/* decode.h - what the files of the decoder share.
 *
 * One decoded instruction for each PTX instruction, in order, and one `ret` after each function, so
 * that a label's pc is the count of instructions before it.
 */
#ifndef EGPU_SOFTGPU_DECODE_H
#define EGPU_SOFTGPU_DECODE_H

#include "softgpu/internal.h"

enum sg_sym_kind { SYM_REG, SYM_FAMILY, SYM_PARAM, SYM_LOCAL, SYM_SHARED, SYM_GLOBAL };

/* What a name stands for in a function. */
struct sg_sym {
	enum sg_sym_kind kind;
	const char *name;
	struct sg_sym *shadowed; /* of an outer scope */
	struct sg_sym *next;     /* of the same scope */
	struct sg_scope *scope;
	struct ptx_type type;
	uint32_t count; /* FAMILY */
	uint8_t vector; /* registers of a vector register: 2, 4, else 1 */
	uint32_t op;    /* REG: operand */
	uint32_t life;
	uint32_t first, last; /* REG: pcs of its first and last use */
	bool own;             /* PARAM: of the function itself, not of a call */
	uint64_t at;          /* offset or address; SHARED: index */
	uint64_t bytes;
	struct sg_sym *all; /* every REG of the function */
};

/* How a register is used, by order of first use; found in a first pass over the function. */
struct sg_life {
	uint32_t first, last; /* pcs */
	uint32_t block;       /* the only basic block that uses it, or SG_NO_PC */
	bool starts_written;  /* its first use writes it in every lane that comes by, and does not
				 read it */
};

struct sg_scope {
	struct sg_scope *up;
	uint32_t id; /* statement index of its brace + 1; 0: the body */
	struct sg_sym *syms;
	uint32_t param_bytes; /* when it was opened */
};

enum sg_decoded { DEC_OK, DEC_UNSUPPORTED, DEC_INVALID };

struct sg_dec {
	struct sg_module *m;
	struct diag *d;
	struct arena *arena;  /* the module's */
	struct table *rows;   /* opcode -> struct sg_row */
	struct table *consts; /* bits and width -> offset + 1 */
	struct buf pool;
	size_t cap_code, cap_shared, cap_allocs;
	/* the function being decoded */
	struct sg_func *f;
	struct arena *scratch;
	struct table *names, *labels;
	struct sg_scope *scope;
	struct sg_sym *all_regs;
	struct table *placed; /* variables that have their place already: ptx_var -> place + 1 */
	/* Registers that live within one basic block share storage: a second pass over the function
	 * gives it back after the last use. */
	struct sg_life *lives;
	size_t n_lives, cap_lives;
	uint32_t *expire;      /* by pc: first of the lives that end there + 1 */
	uint32_t *expire_next; /* by life */
	struct sg_free {
		uint32_t *op;
		size_t n, cap;
	} free[4];         /* storage that is free, by kind */
	uint32_t *storage; /* by life */
	bool second_pass, writing, guarded;
	uint32_t block;
	uint32_t pred_at, pred_left; /* room in the current group of predicates */
	uint32_t trash_pred, trash_reg;
	uint32_t line;
	uint32_t pc;
	CUresult error;
};

/* A resolved operand. */
struct sg_opnd {
	uint32_t op;
	uint8_t width; /* bytes a lane: 4, 8, 16; 1: predicate */
	uint8_t bits;  /* declared */
	char kind;     /* of its type */
};

/* decode.c */
CUresult sg_dec_alloc(struct sg_dec *c, const struct ptx_var *v, uint64_t *addr);
uint32_t sg_dec_shared(struct sg_dec *c, const struct ptx_var *v);
/* decode_func.c */
bool sg_dec_function(struct sg_dec *c, struct sg_func *f);
bool sg_dec_invalid(struct sg_dec *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct sg_sym *sg_dec_find(struct sg_dec *c, const char *name);
struct sg_sym *sg_dec_register(struct sg_dec *c, const char *name);
bool sg_dec_label(struct sg_dec *c, const char *name, uint32_t *pc);
/* The function of that name, or NULL. */
struct sg_func *sg_dec_func(struct sg_dec *c, const char *name);
bool sg_dec_note(struct sg_dec *c, uint32_t **list, uint32_t *n, uint32_t v);
/* decode_lines.c: lines of instructions that a comment says are another text's. */
void sg_dec_lines(struct sg_module *m);
/* decode_operand.c */
uint32_t sg_dec_const(struct sg_dec *c, uint64_t bits, uint8_t width);
/* A register or special register. INVALID: undeclared. */
enum sg_decoded sg_dec_reg(struct sg_dec *c, const struct ptx_operand *o, struct sg_opnd *out);
/* The same for a register that is written. */
enum sg_decoded sg_dec_reg_written(
	struct sg_dec *c, const struct ptx_operand *o, struct sg_opnd *out);
/* A source of class cls (see sg_row); '4' and '8' take float literals as bits, 'f' and 'd' as
 * values. */
enum sg_decoded sg_dec_src(struct sg_dec *c, const struct ptx_operand *o, char cls, uint32_t *op);
enum sg_decoded sg_dec_dst(struct sg_dec *c, const struct ptx_operand *o, char cls, uint32_t *op);
/* A predicate source; sets `flag` in in->flags when it is negated. */
enum sg_decoded sg_dec_pred(struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in,
	uint32_t flag, uint32_t *op);
/* An address operand into a, imm, addr, target, flags and perhaps space. */
enum sg_decoded sg_dec_address(struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in);
/* A source of any register width: width of its lanes in *width. Literals take `bits`. */
enum sg_decoded sg_dec_any(
	struct sg_dec *c, const struct ptx_operand *o, uint8_t bits, uint32_t *op, uint8_t *width);
/* decode_ops.c */
enum sg_decoded sg_dec_insn(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in);
/* decode_bulk.c */
enum sg_decoded sg_dec_bulk(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in);
/* decode_video.c */
enum sg_decoded sg_dec_video(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in);
/* decode_mem.c, decode_float.c, decode_sync.c: decoders by base opcode */
typedef enum sg_decoded (*sg_decoder)(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in);
struct sg_decoder_row {
	const char *base;
	sg_decoder fn;
};
extern const struct sg_decoder_row sg_mem_decoders[], sg_float_decoders[], sg_sync_decoders[],
	sg_mma_decoders[], sg_tex_decoders[];
uint8_t sg_dec_type(const char *name); /* T_NONE when it is none */
uint32_t sg_type_bits(uint8_t type);
bool sg_type_signed(uint8_t type);
bool sg_type_float(uint8_t type);
/* The last modifier that is a type, and the one before it (0 for none). */
uint8_t sg_dec_types(const struct ptx_insn *p, uint8_t *before);
/* Its class of lanes. */
char sg_type_class(uint8_t type);

#define TRY(x)                                                                                     \
	do {                                                                                       \
		enum sg_decoded try_ = (x);                                                        \
		if (try_ != DEC_OK)                                                                \
			return try_;                                                               \
	} while (0)

#endif
