/* variant.h - what the instrumenter's passes share. Private to src/instrument.
 *
 * In the order in which they run (instrument.c):
 *
 * collect.c  functions of the variant and the module's symbols they use
 * private.c  which symbols may be copied instead of bound
 * bind.c     uses of .global and .const symbols become addresses from __egpu_table
 * align.c    shared variables as aligned as the whole program's compilation sees them
 * site.c     the places where probes can run, and why some are left alone
 * point.c    the places of the other points: blocks, branches, barriers, calls, opcodes, loads done
 * running.c  what --live asks of a kernel
 * loops.c    which loop heads get a guard
 * splice.c   fragments at their sites, with
 *   float.c    products that a probe would part from their sum
 *   sink.c     where it would not, and what holds a sum before a probe
 *   tally.c    counting probes in loops: passes in a register, probes where the thread leaves
 *   behind.c   counting probes behind the loads of their code
 *   batch.c    ring records of several sites in one reservation
 *   fan.c      several sites' programs by a lane each
 *   call.c     large programs at many sites, as functions
 *   sample.c   which warps run programs that are sampled
 *   split.c    a version of the function for the other warps
 *   inputs.c   context fields as PTX
 *   operands.c the fields of the other points
 * lines.c    the original's lines in the variant
 *
 * target.c   what .version and .target allow
 * cost.c     what programs may cost
 * native.c   programs as a function, for guards of --live
 * readback*.c  the proofs about the text that came out (readback.h)
 * store.c    a result as bytes, for the agent's cache
 *
 * Passes record edits against the module's text; nothing is rewritten in place. A pass returns
 * false after it has left a diagnostic in d and -errno in err.
 */
#ifndef EGPU_INSTRUMENT_VARIANT_H
#define EGPU_INSTRUMENT_VARIANT_H

#include "base/table.h"
#include "instrument/instrument.h"
#include "ptx/cfg.h"
#include "ptx/edit.h"

#define TABLE_NAME "__egpu_table"
#define LAUNCH_PARAM "__egpu_launch"
#define SLOT_REG "%egpu_slot" /* the replica of this multiprocessor */
/* sample.c */
#define WEIGHT_REG "%egpu_weight"
#define CHOSEN_REG "%egpu_chosen"
#define WORD_REG "%egpu_word"
#define START_REG "%egpu_start" /* the clock when the kernel began */
/* split.c; readback_splice.c knows them too */
#define PROBED_LABEL "$egpu_probed"
#define PLAIN_MARK "{ // egpu plain\n\t"
#define PLAIN_END "\n\tret;\n}\n" PROBED_LABEL ":\n\t"
#define COUNT_REG "%egpu_n" /* and the counter's number: tally.c */
#define LANES_NAME "$egpu_lanes_" /* and the field: what all lanes hand over */
/* Set just before a load, read just behind it: its address and the clock. */
#define KEEP_REGS "%egpu_k<2>"
#define KEEP_ADDRESS "%egpu_k0"
#define KEEP_CLOCK "%egpu_k1"

struct printed {
	struct ptx_span span; /* of the original, printed with the edits in it */
	size_t at;	      /* where in the variant */
};

enum fate {
	FATE_KEEP, /* .shared, .local: declared again */
	FATE_BIND, /* .global, .const: the original's, through the table */
	FATE_COPY, /* private data that nothing writes */
};

struct symbol {
	const struct ptx_var *var;
	enum fate fate;
	uint32_t entry; /* BIND: index among the bound */
};

/* A place where probes run for the passes that registers have counted (tally.c). */
struct leave {
	uint32_t at;	   /* offset */
	uint32_t stmt;	   /* whose guard says which lanes leave; NO_STMT: all do */
	uint32_t counters; /* those that are added up here, a bit each */
	bool again;	   /* the thread may come back: they begin at 0 again */
};

/* Two registers each. Eight took the attention kernel of bench/gpu from 168 registers to 244. */
enum { MAX_COUNTERS = 4 };

/* A function with a body that the variant contains. */
struct place {
	const struct ptx_item *item;
	const struct ptx_func *func;
	bool is_kernel;
	uint32_t n_bound; /* registers %egpu_s<n> for symbol addresses */
	struct ptx_cfg cfg;
	const char **skipped; /* per statement: why no probe runs there, or NULL */
	bool slot;	      /* SLOT_REG is set where it begins */
	bool sampled;	      /* WEIGHT_REG and CHOSEN_REG are */
	bool summed;	      /* probes could part products from their sums */
	bool split;	      /* warps that are not chosen have a version of their own (split.c): */
	uint32_t split_stmt;  /* before this statement, where */
	uint32_t choice;      /* is the edit with the choice, */
	const char *choice_text;
	struct printed *plain; /* and what that version has of the original's text, offsets from its beginning */
	size_t n_plain, cap_plain;
	uint64_t gathered;    /* fields of all lanes, in arrays LANES_NAME<field> */
	bool keeps;	      /* has registers that outlive a splice: KEEP_REGS */
	struct leave *leaves; /* of what COUNT_REG<0>, ... count */
	size_t cap_leaves;
	uint32_t n_leaves, n_counters;
	uint32_t count_at[MAX_COUNTERS]; /* offset, by counter */
	uint32_t counted;		 /* counters that are counted so far, a bit each */
};

enum { NO_STMT = UINT32_MAX, MAX_OFF = 2 };

/* The instruction of a statement; NULL: it is none, or NO_STMT. */
static inline const struct ptx_insn *insn_at(const struct ptx_func *f, uint32_t stmt)
{
	return stmt == NO_STMT ? NULL : f->stmts[stmt].insn;
}

/* A site with what the splice needs beside the public part. */
struct spot {
	struct place *place;
	uint32_t stmt; /* index in the function; NO_STMT: its start or its end */
	uint32_t at;   /* offset where probes go */
	struct ptx_access access;
	const struct held *held; /* NULL: nothing is */
	bool moved;		 /* behind loads (behind.c): the probes go before statement `before` */
	uint32_t before;
	bool sampled;		 /* some program here runs in chosen warps; */
	uint32_t probe;		 /* then: the statement before which programs go */
	const struct ebpf_fragment *batched; /* what this program does here a batch (batch.c) does; NULL: there is none */
	uint32_t batch_before;
	uint32_t off[MAX_OFF]; /* statements with which threads branch off on the way there: the probes go before them too, for those */
	uint32_t n_off;
	bool spliced;	/* with another site's */
	uint32_t counter; /* 1 + that of its passes (tally.c); 0: the probes run here */
};

struct target {
	uint32_t version; /* 100 * major + minor */
	uint32_t sm;
	bool activemask, match, clusters, shared_cluster;
	const char *here; /* register that holds the lanes that are here; NULL: they are asked for */
};

struct variant {
	struct arena *arena;
	const struct ptx_module *m;
	struct diag *d;
	int err;
	const char *const *unbound;
	uint32_t n_unbound;
	struct target target;

	const struct ptx_func *kernel;
	struct place *places; /* in text order */
	uint32_t n_places;
	struct table *functions; /* name -> what it stands for: an alias's target, else itself */
	struct table *symbols;   /* name -> struct symbol */
	struct symbol **symbol_list;
	size_t n_symbols, symbols_cap;
	uint32_t n_bound; /* symbols of FATE_BIND */
	bool sampled;	  /* some program runs in chosen warps only */
	bool weight_in_calls; /* functions get the weight with the launch id */
	bool const_bound; /* so .const addresses are global ones everywhere in the variant */
	struct table *bound_regs; /* &operand -> number of its register + 1 */

	struct instrument_site *sites;
	struct spot *spots; /* parallel to sites */
	uint32_t n_sites, first_site; /* the first one's id */
	size_t sites_cap, spots_cap;
	struct batch *batches, *last_batch; /* in the order of the text, for each program */
	const struct ebpf_fragment **called; /* that sites call (call.c) */
	uint32_t n_called;

	struct ptx_edits edits;
	struct printed *printed; /* of the text that was printed last */
	size_t n_printed, printed_cap;
};

/* target.c */
bool target_init(struct variant *v);
void emit_active_mask(const struct target *t, struct buf *b, const char *reg);
/* Counts the different values of 64-bit register `key` over the lanes of %egpu_xm into `out`.
 * `label` is unique in the function. Uses %egpu_xt1-4, %egpu_xp1. */
void emit_count_distinct(
	const struct target *t, struct buf *b, const char *key, const char *out, const char *label);

/* collect.c */
bool collect(struct variant *v);
bool variant_refuse(struct variant *v, uint32_t line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool no_memory(struct variant *v);
struct symbol *variant_symbol(const struct variant *v, const struct ptx_operand *op);
/* The called function's operand, NULL when the call has none. */
const struct ptx_operand *call_target(const struct ptx_insn *insn);
bool is_call(const struct ptx_insn *insn);
/* Whether operands name labels: bra, brx. */
bool is_branch(const struct ptx_insn *insn);

/* private.c */
bool private_copyable(struct variant *v, const struct ptx_var *var);

/* bind.c */
bool bind(struct variant *v);
/* The register number that holds the symbol's address for this operand, or -1. */
int64_t bound_reg(const struct variant *v, const struct ptx_operand *op);
/* Where text that belongs before a statement goes: before the pragmas that speak of it. */
uint32_t insert_point(const struct variant *v, const struct ptx_func *f, uint32_t stmt);

/* lines.c */
/* Adds the table behind the text that was printed last. */
bool add_lines(struct variant *v, struct instrument_result *out);

/* site.c */
bool find_sites(struct variant *v);
bool add_site(struct variant *v, struct place *place, const struct ptx_stmt *loc,
	enum ebpf_point point, uint32_t stmt, uint32_t at, uint32_t line);

/* point.c */
bool find_points(struct variant *v, const struct ebpf_fragment *const *list, uint32_t n);
bool opcode_matches(const struct ebpf_fragment *f, const char *opcode);
/* enum egpu_barrier_kind, 0: no barrier. */
uint32_t barrier_kind(const struct ptx_insn *insn);

/* inputs.c */
struct inputs {
	const struct variant *v;
	uint64_t fields;
	uint64_t gathered; /* of `fields`: handed to the elected lane */
	bool warp; /* an elected lane runs some fragment */
	uint32_t site, kernel_id;
	const struct spot *spot;
	uint32_t ordinal; /* for label names */
	const char *address_reg; /* that holds what the address's own will; NULL: its own */
};
/* Declarations and computations, for lanes that pass the site; leaves %egpu_xe true in the lanes
 * that are not elected when warp. */
void emit_declarations(const struct inputs *in, struct buf *b);
void emit_inputs(const struct inputs *in, struct buf *b);
/* Fields that a thread knows of itself wherever it is, given the kernel. */
uint64_t fields_anywhere(void);
/* Of that, what does not depend on the place: the lanes that are here, and what threads know of themselves. */
void emit_everywhere(const struct inputs *in, struct buf *b);
/* What a load_done site keeps from before its load. */
void emit_kept(const struct inputs *in, struct buf *b);
bool inputs_keep(const struct inputs *in);
/* What a field will be at a site, if that is known: SITE, BYTES, SPACE and OP of accesses. */
bool known_field(const struct variant *v, uint32_t site, uint32_t id, enum ebpf_field field, uint32_t *value);
/* One operand of at most 64 bits into %egpu_xu0, as it lies in memory as `type`. */
void emit_element(
	const struct inputs *in, struct buf *b, const struct ptx_operand *op, const struct ptx_type *type);

/* operands.c */
void emit_point(const struct inputs *in, struct buf *b);

/* align.c */
bool align_shared(struct variant *v);

/* running.c */
bool check_running(struct variant *v, const struct instrument_request *req);
bool is_guard(const struct ebpf_fragment *f);

/* loops.c */
bool choose_guards(struct variant *v, const struct instrument_request *req);

/* tally.c */
/* Whether an operand has a register of the table. */
bool reads_any(const struct table *regs, const struct ptx_operand *op);
/* Sites [first, end) are those of the place. */
bool tally(struct variant *v, const struct instrument_request *req, struct place *place, uint32_t first, uint32_t end);

/* fan.c */
enum { MAX_FAN = 64 };
/* Whether lanes can stand for sites: they differ in nothing that a program with these fields reads. */
bool fan_fits(const struct variant *v, uint64_t fields);
/* Whether the counters of all lanes can be summed for them. */
bool fan_sums(const struct variant *v, uint64_t fields);
/* The inputs of site %egpu_index, of what emit_inputs wrote for each. False: they differ in more than a few numbers. */
bool fan_inputs(const char *const *texts, uint32_t n, struct buf *out);
void fan_declare(struct buf *b);
/* Sets %egpu_turn and %egpu_step; the mask is in %egpu_xm. */
void fan_lanes(const struct variant *v, struct buf *b);
/* Sets %egpu_index and %egpu_word; words: 1, 2 or 4. */
void fan_turn(uint32_t words, struct buf *b);
/* The same, or each lane for itself, and %egpu_xs<c> for the counters whose bit is set. */
void fan_counters(const struct variant *v, bool sums, uint32_t counters, struct buf *b);
/* %egpu_passes of site %egpu_index, given each site's counter, in rising order. */
void fan_passes(const uint32_t *counter, uint32_t n, struct buf *b);

/* behind.c */
/* A part of a basic block without calls, barriers and the like: statements [from, to); probes that may run anywhere in it go before
 * `behind`; equal to from: it has no loads to go behind. */
struct stretch_span {
	uint32_t from, to, behind;
};
/* The stretch behind s->to. False: there is none, or *ok is. */
bool next_stretch(struct variant *v, const struct place *place, const uint32_t *parted, struct stretch_span *s, bool *ok);
/* Whether all that a program may read there (bpf/fragment.h, anywhere) is the same in all of the basic block, and all lanes run it. */
bool is_same_in_block(const struct variant *v, uint32_t site);
/* Sites [first, end) are those of the place. The first only where no product waits for its sum. */
bool put_entry_behind_loads(struct variant *v, const struct instrument_request *req, const struct place *place, uint32_t first, uint32_t end);
bool put_behind_loads(struct variant *v, const struct instrument_request *req, const struct place *place, const uint32_t *parted,
	uint32_t first, uint32_t end);

/* alike.c */
struct alike;
/* NULL: memory is out. To be freed with its table. */
struct alike *alike_new(struct variant *v, const struct place *place);
void alike_free(struct alike *a);
/* Whether the addresses of two accesses of a stretch that begins at statement `from` differ by a number that is the same in all threads of a block,
 * and their bytes do not. */
bool alike_accesses(struct alike *a, uint32_t from, const struct spot *x, const struct spot *y);

/* sample.c */
/* Before sites are spliced. */
bool set_samples(struct variant *v);

/* split.c */
/* Whether the function can have two versions: a question of its text alone. */
bool may_split(const struct variant *v, const struct place *place);
/* Whether several warps execute some instruction of the variant together. */
bool joins_warps(const struct variant *v);
/* Whether lanes that pass the block meet others of their warp later, who have not: they would not find them in the other version. */
bool splits_warps(struct variant *v, const struct place *place, uint32_t block);
/* Where they part, at `at` or before it: the offset; sets split_stmt. */
uint32_t split_point(const struct variant *v, struct place *place, uint32_t at);
/* Fills the choices in. To be called when calls have their launch ids, before anything is spliced. */
bool split_places(struct variant *v);
/* The first statement from an offset on; n_stmts: none. */
uint32_t stmt_from(const struct ptx_func *f, uint32_t at);

/* batch.c */
/* Sites [first, end) are those of the place; to be called for all places before anything is spliced. */
bool form_batches(struct variant *v, const struct instrument_request *req, const struct place *place, const uint32_t *parted,
	uint32_t first, uint32_t end);
bool splice_batches(struct variant *v, const struct instrument_request *req);
bool when_holds(const struct ebpf_when *w, uint32_t value);
/* Instructions of a program's batches. */
uint64_t batched_insns(const struct variant *v, const struct instrument_request *req, const struct ebpf_fragment *f);
/* Those of less than so many sites, which are then like others. */
void drop_batches(struct variant *v, const struct instrument_request *req, const struct ebpf_fragment *f, uint32_t least);

/* call.c */
/* When batches are formed. */
bool choose_calls(struct variant *v, const struct instrument_request *req);
bool is_called(const struct variant *v, const struct ebpf_fragment *f);
/* Fields that a site sets for a program that is called. */
uint64_t call_fields(const struct ebpf_fragment *f);
/* Whether it may do anything at a site. */
bool acts_at(const struct variant *v, const struct ebpf_fragment *f, uint32_t site);
uint32_t count_lines(const char *text);
/* A scope. */
void emit_call(const struct variant *v, const struct ebpf_fragment *f, struct buf *b);
/* The functions. */
void emit_programs(const struct variant *v, const struct instrument_request *req, struct buf *b);

/* splice.c */
/* Sets parts_product of the sites; nothing may be spliced afterwards. */
bool mark_parting(struct variant *v);
/* Whether the program is among those of a site. */
bool fragment_runs_at(struct variant *v, const struct ebpf_fragment *f, uint32_t site);
bool splice(struct variant *v, const struct instrument_request *req, struct instrument_result *out);

/* float.c */
struct products {
	uint32_t *parted; /* per statement: how many products a probe before it would part from their sums */
	bool *sums;	  /* per statement: it adds to a product */
	bool any;	  /* there are such */
	bool *probed;	  /* per statement: a probe goes before it; the caller's to set */
};
bool products_find(struct variant *v, const struct place *place, struct products *out);

/* sink.c */
/* Whether an operand has the register. */
bool names_reg(const struct ptx_operand *op, const char *name);
/* No probe is moved past one. */
bool keeps_order(const struct ptx_insn *insn);
/* The first statement from the spot's own on before which a probe with these fields parts nothing and still
 * sees the same. False: there is none. */
bool sink_past_products(
	const struct place *place, const struct products *p, const struct spot *spot, uint64_t fields, uint32_t *to);
/* Registers with sums since the last probe, at a probe before the statement. */
struct held {
	const struct ptx_operand **regs;
	uint32_t n;
	bool some_missing; /* there are sums that the probe cannot name */
};
bool products_held(struct variant *v, const struct place *place, const struct products *p, uint32_t before,
	struct held *out);
void emit_held(const struct held *held, uint32_t site, struct buf *b);
/* batch.c: the same for the place's batches. */
void batches_probed(const struct variant *v, const struct place *place, struct products *p);
bool batches_held(struct variant *v, const struct place *place, const struct products *p, bool *some_missing);

#endif
