/* internal.h - the state that the translator's passes share.
 *
 * Pipeline (translate.c): flow (functions, instances, what follows what) -> stack (slots become
 * registers or local memory) -> live (registers; dead instructions) -> begin (updates that give way to a key made meanwhile) -> idiom (load-add-store
 * becomes an atomic) -> extreme (comparisons with what is there become maxima and minima) -> races (refuses updates that lose
 * some) -> use (how maps are used) -> lower (text; once.c: whether one thread runs it for a block). when.c then says at which places it does nothing, and batch.c makes another text, for
 * the records of several sites.
 *
 * An instance is a copy of a BPF function in the output. A function with several callers is copied
 * for each of them while that stays small; else all callers share one instance, which returns
 * through a selector. Recursion is impossible, so that an instance is active at most once and its
 * registers and stack frame can be its own.
 */
#ifndef EGPU_TRANSLATE_INTERNAL_H
#define EGPU_TRANSLATE_INTERNAL_H

#include "translate/translate.h"

#include "bpf/helpers.h"
#include "bpf/insns.h"
#include "map/layout.h"

#include <stdio.h>

enum {
	TR_REGS = 11,     /* r0..r10 of an instance */
	TR_MAX_DEPTH = 8, /* nested calls, as in the kernel */
};

/* Where one way of doing something ends and the other begins. The tiny ones are for tests: rare
 * ways become the usual ones. */
#ifndef TR_TINY
enum {
	TR_BY_VALUE = 64,  /* keys and values up to this many bytes travel in registers */
	TR_BY_STORE = 256, /* memory of a helper up to this size is read from slots and stored piece
			      by piece */
	TR_MAX_ATOMS =
		4, /* pieces that one load or store may consist of before it goes to local memory */
	TR_INLINE_KEY = 16,  /* bytes of hash keys and values for operations that stand inline, */
	TR_INLINE_CALLS = 4, /* in programs with at most so many of them */
	TR_COPY_MIN = 2048, /* functions are copied for each caller while the program stays below
			       this many instructions, */
	TR_COPY_FACTOR = 4, /* or below this many times its length */
};
#else
enum { TR_BY_VALUE = 8, TR_BY_STORE = 16, TR_MAX_ATOMS = 1, TR_COPY_MIN = 0, TR_COPY_FACTOR = 0,
	TR_INLINE_KEY = 0, TR_INLINE_CALLS = 0 };
#endif

/* Register or operand text, by value so that expressions need no storage. */
struct tr_name {
	char s[40];
};

enum tr_op { TR_ADD, TR_AND, TR_OR, TR_XOR, TR_MIN, TR_MAX };

/* What an instruction does for the load-add-store (idiom.c) or load-compare-store (extreme.c) it belongs to. */
enum tr_role { TR_PLAIN, TR_RMW_LOAD, TR_RMW_STEP, TR_RMW_JUMP, TR_RMW_STORE };

struct tr_rmw {
	enum tr_op op;	      /* ADD, MIN or MAX; of the latter bytes, uniform, and these: */
	bool is_signed, jumps; /* jumps: the jump is always taken, else never */
	uint32_t load, store; /* indices into tr_inst.at */
	uint32_t bytes;       /* 1, 2, 4 or 8 */
	bool several;	      /* there are loads on other ways beside `load`; of a least or greatest value, which all stay */
	bool constant;        /* only immediates are added, in a straight line */
	int64_t addend;       /* constant: their sum */
	uint16_t tracked;     /* registers that hold the loaded value plus a delta at the store */
	uint16_t wide;        /* below 8 bytes: those of `tracked` whose sum is 64 bits wide */
	bool uniform;         /* what is added is the same in all lanes */
	uint32_t delta[TR_REGS]; /* temporaries, by register */
};

/* An update that, where it finds its key, goes on as the look-up before it would have (begin.c). */
struct tr_begin {
	uint32_t other;	  /* 1 + index of the instruction to go to; 0: an update like any other */
	uint16_t holders; /* registers that get the value's address for it */
};

struct tr_insn {
	uint32_t pc;
	uint16_t live_in, live_out; /* bit per register */
	bool target;                /* something jumps here: needs a label */
	bool join;                  /* a jump comes here, or it is the entry */
	bool dead;
	bool dst_tracked; /* TR_RMW_STEP: the destination held the loaded value before */
	uint8_t role;     /* enum tr_role */
	struct tr_rmw *rmw;
	struct tr_inst *callee; /* call of a subprogram */
	struct tr_begin begins;
};

/* A piece of a frame that lives in a register: bytes [offset, offset+bytes) from the frame's top.
 */
struct tr_atom {
	int32_t offset;
	uint32_t bytes; /* 1..8 */
	uint32_t reg;   /* %egpu_rs<reg> */
};

struct tr_frame {
	uint64_t cut[9];   /* bit per byte boundary, EBPF_STACK_BYTES + 1 of them */
	uint64_t used[8];  /* bit per byte that some access with a known place touches */
	uint64_t taken[8]; /* bit per byte that has to be in memory */
	struct tr_atom *atoms;
	uint32_t n_atoms;
	int32_t low, high; /* bytes in memory: [low, high) from the top; equal: none */
};

struct tr_caller {
	struct tr_inst *inst;
	uint32_t at; /* index of the call in inst->at */
};

struct tr_inst {
	uint32_t id;
	uint32_t func;
	int32_t depth;      /* call depth; -1: shared by callers of different depths */
	struct tr_insn *at; /* ascending pc */
	uint32_t n;
	struct tr_caller *callers;
	size_t n_callers, cap_callers;
	struct tr_frame frame;
	bool live_done;
};

struct tr_func {
	uint32_t entry;
	uint32_t *pcs; /* ascending */
	uint32_t n_pcs;
	uint64_t expanded; /* instructions when every call below is copied; saturates */
	uint8_t mark;      /* 1: being sized, 2: sized */
	struct tr_inst *shared;
};

/* Memory that a helper reads: where each byte of it is found (mem.c). */
enum tr_mem_kind {
	TR_MEM_SLOTS,  /* atoms of a frame */
	TR_MEM_LOCAL,  /* local-space address */
	TR_MEM_GLOBAL, /* global address */
	TR_MEM_CONST,  /* bytes known now */
};

struct tr_mem {
	enum tr_mem_kind kind;
	struct tr_inst *frame; /* SLOTS */
	int32_t offset;        /* SLOTS: of the first byte */
	struct tr_name base;   /* LOCAL, GLOBAL: register or symbol */
	int32_t displacement;  /* added to base */
	uint32_t align;        /* known alignment of base + displacement: 1, 2, 4 or 8 */
	const uint8_t *bytes;  /* CONST */
	uint64_t n_bytes;      /* CONST: how many are there */
	bool is_volatile;      /* GLOBAL: others may write it */
};

/* The lanes that execute a basic block together (warp.c): registers. */
struct tr_lanes {
	size_t at; /* length of the body up to which they hold; 0: none */
	struct tr_name mask, below, count, first; /* first: predicate of the elected one */
	struct tr_name lower;			  /* the lanes here below this one: 0 in the elected */
};

/* An update of memory whose old value nobody wants. */
struct tr_sum {
	enum tr_op op;
	bool is_signed;			 /* MIN, MAX */
	bool wide;			 /* of 64 bits; else 32 */
	bool same_address, same_value; /* in all lanes */
	bool constant;			 /* value is the number `addend` */
	int64_t addend;
	uint32_t bits; /* wide: that the value may have */
	struct tr_name address, value;
};

/* Who does it, and what with: all lanes, or those where pred holds. */
struct tr_lead {
	bool all;
	bool nudged; /* the address takes `nudge`, a .b32 that is 0 where pred holds (tr_nudge) */
	struct tr_name nudge;
	struct tr_name pred, value;
};

/* Additions to one value that wait for the last of them (join.c). */
enum { TR_MAX_JOINED = 4 };
struct tr_joined {
	uint32_t n;
	struct tr_name mask;	   /* the lanes that they were elected among */
	int32_t at[TR_MAX_JOINED]; /* displacement */
	struct tr_lead lead[TR_MAX_JOINED];
};

/* The look-up in an array made last: where, and the predicate that its value is there. */
struct tr_found {
	const struct tr_inst *inst;
	uint32_t at;
	struct tr_name ok;
};

struct tr {
	struct arena *arena;
	const struct ebpf_program *p;
	const struct verifier_result *v;
	struct diag *d;
	bool one_lane;     /* runs in one lane a warp */
	bool test;         /* test-run: table by pointer, result stored */
	const char *table; /* test: register that holds the table's address */
	const char *end;   /* label text after the body */
	bool entry;	   /* runs where a kernel begins */
	bool once;	   /* in one thread of a block, for all */
	bool repeat;	   /* for as many runs as %egpu_passes says; each word by the lane whose %egpu_word it is */
	uint32_t words;	   /* repeat: most that are added to in one instruction */
	struct tr_name threads, threads64; /* once: threads of the block, .b32 and .b64 */
	struct tr_name slot;		   /* once: what %egpu_slot is elsewhere */
	struct tr_name zero;		   /* once: a .b32 that is 0, as ptxas does not see (tr_nudge) */

	struct tr_func *funcs;
	size_t n_funcs, cap_funcs;
	uint32_t *func_of;  /* by pc: 1 + index of the function it belongs to */
	uint32_t *entry_of; /* by pc: 1 + the function that starts there */
	uint32_t *index_of; /* by pc: index in its function's pcs */
	struct tr_inst **insts;
	size_t n_insts, cap_insts;
	bool share;            /* one instance a function */
	bool counts_calls;     /* get_prandom_u32 is used */
	bool frames_in_memory; /* some stack access has no known frame */

	struct buf body;
	bool batched; /* the text is a batch's (batch.c) */
	struct tr_lanes lanes;
	struct tr_found found;
	struct tr_joined joined;
	uint32_t n_t64, n_t32, n_pred, n_slots, n_labels, n_keys;
	uint64_t fields, gathered, maps;
	struct ebpf_map_use *use; /* by map id */
	bool replicates;          /* %egpu_slot is wanted */
	uint8_t param_bytes[EBPF_PARAM_COUNT];
	uint32_t hash_calls, hash_updates;
	struct ebpf_fragment_func *helper_funcs;
	size_t n_helper_funcs, cap_helper_funcs;
};

static inline const struct bpf_insn *tr_bpf(
	const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return &t->p->insns[inst->at[i].pc];
}

static inline const struct ebpf_fact *tr_fact(
	const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return &t->v->facts[inst->at[i].pc];
}

static inline bool tr_is_jump(const struct bpf_insn *in)
{
	uint8_t class = BPF_CLASS(in->code);
	return class == BPF_JMP || class == BPF_JMP32;
}

static inline bool tr_is_call(const struct bpf_insn *in)
{
	return in->code == (BPF_JMP | BPF_CALL);
}

static inline bool tr_is_exit(const struct bpf_insn *in)
{
	return in->code == (BPF_JMP | BPF_EXIT);
}

/* Unconditional jump, near or far. */
static inline bool tr_is_goto(const struct bpf_insn *in)
{
	return in->code == (BPF_JMP | BPF_JA) || in->code == (BPF_JMP32 | BPF_JA);
}

static inline bool tr_is_atomic(const struct bpf_insn *in)
{
	return BPF_CLASS(in->code) == BPF_STX && BPF_MODE(in->code) == BPF_ATOMIC;
}

static inline bool tr_is_store(const struct bpf_insn *in)
{
	uint8_t class = BPF_CLASS(in->code);
	return class == BPF_ST || class == BPF_STX;
}

/* Of an atomic: whether somebody reads the value that it finds. */
static inline bool tr_wants_old(const struct tr_insn *at, const struct bpf_insn *in)
{
	uint32_t result = in->imm == BPF_CMPXCHG ? BPF_REG_0 : in->src_reg;
	return in->imm & BPF_FETCH && at->live_out >> result & 1;
}

/* Whether a load-add-store is an addition and nothing else: nobody reads a sum, and there is an atomic of its width. */
static inline bool tr_rmw_adds(const struct tr_rmw *rmw)
{
	return !rmw->tracked && rmw->bytes >= 4;
}

static inline uint16_t reg_bit(uint32_t r)
{
	return (uint16_t)(1u << r);
}

/* The low bytes of a word. */
static inline uint64_t tr_mask(uint32_t bytes)
{
	return bytes >= 8 ? UINT64_MAX : (1ull << (8 * bytes)) - 1;
}

/* Register that addresses the memory of a load, store or atomic. */
static inline uint8_t tr_base_reg(const struct bpf_insn *in)
{
	return BPF_CLASS(in->code) == BPF_LDX ? in->src_reg : in->dst_reg;
}

/* -- flow.c: requires a verified program; leaves funcs and insts, main first, callers before
 * callees in copies -- */
int tr_flow(struct tr *t);
/* Index of the instruction after i (fall through), and of a jump's target; -1 where no path goes.
 */
int32_t tr_next(const struct tr *t, const struct tr_inst *inst, uint32_t i);
int32_t tr_jump(const struct tr *t, const struct tr_inst *inst, uint32_t i);
/* -EOPNOTSUPP that names the instruction. */
int tr_unsupported(struct tr *t, uint32_t pc, const char *why);

/* -- stack.c: requires flow; leaves each frame's atoms and memory range -- */
int tr_stack(struct tr *t);
/* The instance whose frame a stack access touches, NULL when that is not one known frame. */
struct tr_inst *tr_frame_owner(const struct tr *t, struct tr_inst *inst, uint32_t i);
struct tr_inst *tr_frame_at(const struct tr *t, struct tr_inst *inst, uint32_t depth);
/* Whether any of the bytes is in memory (then all of them are). */
bool tr_frame_taken(const struct tr_frame *f, int32_t offset, uint32_t bytes);
/* Whether the access is to atoms, hence without an address. */
bool tr_in_slots(const struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_inst **owner);
/* Offset of a load, store or atomic of known place. */
int32_t tr_stack_offset(const struct tr *t, const struct tr_inst *inst, uint32_t i);

/* -- live.c: requires stack; leaves live_in, live_out, dead -- */
int tr_live(struct tr *t);
uint16_t tr_uses(const struct tr *t, struct tr_inst *inst, uint32_t i);
uint16_t tr_defs(const struct tr *t, const struct tr_inst *inst, uint32_t i);

/* -- bases.c: registers r with r + to[r] the address of a place -- */
struct tr_bases {
	uint16_t regs; /* bit per register */
	int32_t to[TR_REGS];
};

/* Those of the place that load i reads, before it. */
void tr_bases_at(const struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_bases *b);
/* What they are behind instruction i; where two ways meet; whether the load, store or atomic i goes to the place. */
void tr_bases_pass(const struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_bases *b);
void tr_bases_meet(struct tr_bases *b, const struct tr_bases *other);
bool tr_bases_lead(const struct tr *t, const struct tr_inst *inst, uint32_t i, const struct tr_bases *b);

/* -- begin.c: requires live; leaves begins -- */
int tr_begin(struct tr *t);

/* -- idiom.c: requires live; leaves roles -- */
int tr_idiom(struct tr *t);
/* By index, how many ways lead to an instruction; NULL: no memory. */
uint16_t *tr_preds(struct tr *t, const struct tr_inst *inst);
/* A load of a map's value that may begin one. */
bool tr_rmw_load(const struct tr *t, const struct tr_inst *inst, uint32_t i);
/* Whether a map has one value, so that offsets in it tell places apart. */
bool tr_single_value(const struct tr *t, int32_t map);

/* -- extreme.c: requires idiom; leaves more roles -- */
int tr_extreme(struct tr *t);

/* -- use.c: requires begin and extreme; leaves use -- */
int tr_use(struct tr *t);
/* Such a map may have a replica on each multiprocessor. */
bool tr_only_folds(const struct tr *t, const struct ebpf_map *m);

/* -- once.c: requires use; leaves once -- */
void tr_once(struct tr *t);
/* Whether the program only adds, of what is the same at all places of a basic block. */
bool tr_anywhere(struct tr *t);
/* Whether many runs, under whatever masks, may be added at once. */
bool tr_repeats(struct tr *t);
/* Lets one thread of the block on; leaves threads and slot. */
void tr_once_begin(struct tr *t);

/* -- alu.c: an instruction of BPF_ALU or BPF_ALU64, and what others share with it -- */
int tr_lower_alu(struct tr *t, struct tr_inst *inst, uint32_t i);
/* The source operand, a register or a sign-extended constant, as 64 bits and as 32. */
struct tr_name tr_src64(const struct tr_inst *inst, const struct bpf_insn *in);
struct tr_name tr_src32(struct tr *t, const struct tr_inst *inst, const struct bpf_insn *in);
/* The low half of a register. */
struct tr_name tr_low32(struct tr *t, struct tr_name reg);

/* -- lower.c: requires all of the above; leaves the body -- */
int tr_lower(struct tr *t);
/* What main finds in its registers. */
void tr_lower_main(struct tr *t);
/* One instruction, without its label. */
int tr_lower_insn(struct tr *t, struct tr_inst *inst, uint32_t i);

/* -- when.c: requires all of the above; leaves the fragment's when -- */
enum { TR_MAX_WHEN = 8 }; /* of a fragment, and of its batch */
int tr_when(struct tr *t, struct ebpf_fragment *out);
/* By index, whether something like this is done from there on, perhaps. NULL: no memory. */
bool *tr_leads_to(const struct tr *t, struct tr_inst *inst, bool (*is)(const struct tr *t, const struct tr_inst *inst, uint32_t i));
/* Which fields of the context registers hold, whole: 1 + the field, 0: none. Those that the instrumenter may know, and the address. */
struct tr_fields {
	uint8_t of[TR_REGS];
};
bool tr_holds(const struct tr_fields *f, uint8_t reg, enum ebpf_field field);
/* A register copied to another. */
bool tr_is_move(const struct bpf_insn *in);
/* What they hold behind an instruction. */
void tr_follow(const struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_fields *f);
/* What a jump that is taken, or is not, says about one of them but the address. False: nothing of a form that there is a test for. */
bool tr_field_test(const struct tr *t, const struct tr_inst *inst, uint32_t i, bool taken, const struct tr_fields *f, struct ebpf_when *out);

/* -- batch.c: requires all of the above; leaves the fragment's batch, or NULL -- */
int tr_batch(struct tr *t, struct ebpf_fragment *out);

/* Writes a value over the atoms of a slot access. */
void tr_store_slots(
	struct tr *t, const struct tr_frame *f, int32_t offset, uint32_t bytes, struct tr_name src);
/* The callee's body for a call whose arguments are in its registers. */
int tr_lower_callee(struct tr *t, struct tr_inst *inst, uint32_t i);

/* -- loop.c: helpers that call a function of the program -- */
/* Registers that such a call reads. */
uint16_t tr_loop_uses(const struct tr *t, const struct tr_inst *inst, uint32_t i);
int tr_loop_lower(struct tr *t, struct tr_inst *inst, uint32_t i);

/* -- warp.c: one lane for all -- */
void tr_elect(struct tr *t, const struct tr_sum *s, struct tr_lead *out);
/* base + 8 * nudge, which is 0. Where ptxas sees that all lanes add to one address, it elects one of them itself, after us: a vote, a branch and
 * a barrier for nothing. This address it does not see through. */
struct tr_name tr_nudge(struct tr *t, struct tr_name base, struct tr_name nudge);
uint32_t tr_known_bits(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t reg);

/* -- weigh.c: requires use. What a program of chosen warps adds stands for all warps -- */
/* Whether additions to this map are multiplied. */
bool tr_weighs(const struct tr *t, const struct ebpf_map *m);
/* An addition to the map of the instruction's fact, weighed where it is to be. */
void tr_weigh_sum(struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_sum *sum);
/* A 64-bit number times the weight. */
struct tr_name tr_weigh(struct tr *t, struct tr_name n);
/* The word at so many bytes of a value that is inserted: the first addition to it. */
struct tr_name tr_weigh_word(struct tr *t, const struct ebpf_map *m, uint32_t at, struct tr_name word);

/* -- join.c: additions to one value in one instruction. False: this one is not among them; else it is done, or will be with the next -- */
bool tr_join(struct tr *t, const struct tr_inst *inst, uint32_t i, struct tr_name base, int32_t displacement, const struct tr_sum *sum);

/* -- special.c: what a GPU knows of itself, and helpers that stop it -- */
int tr_special_lower(struct tr *t, struct tr_inst *inst, uint32_t i);

/* -- races.c: requires idiom; refuses updates of shared memory that lose some -- */
int tr_races(struct tr *t);

/* -- helper.c: calls of helpers -- */
/* The map that a call is given, NULL when that differs between paths. */
const struct ebpf_map *tr_map_arg(const struct tr *t, const struct tr_inst *inst, uint32_t i);
/* Adds the place of this multiprocessor's replica to an address in a map that the program only adds to. */
struct tr_name tr_replica(struct tr *t, const struct ebpf_map *m, struct tr_name at);
/* Address of an array's value; the index is in range. */
struct tr_name tr_array_value(struct tr *t, const struct ebpf_map *m, struct tr_name index);
/* The value of a slot of a per-CPU hash on this multiprocessor. */
struct tr_name tr_hash_cpu_value(struct tr *t, const struct ebpf_map *m, struct tr_name slot);
/* A scalar argument: a constant where it is known. */
struct tr_name tr_scalar_arg(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a);
/* Whether argument a (0..4) is memory that the helper reads. */
bool tr_helper_arg_memory(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a);
/* Its size; false when that varies (*bytes is 0). */
bool tr_helper_arg_bytes(
	const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a, uint32_t *bytes);
/* Most bytes that argument a is read from registers with. */
uint32_t tr_helper_by_value(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a);
/* Registers a call reads. */
uint16_t tr_helper_uses(const struct tr *t, struct tr_inst *inst, uint32_t i);
int tr_helper_lower(struct tr *t, struct tr_inst *inst, uint32_t i);

/* -- mem.c: reading the memory a helper is given -- */
int tr_mem_arg(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, struct tr_mem *out);
/* Whether argument a needs its register. */
bool tr_mem_needs_reg(const struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a);
/* Copies a number of bytes that is large or known only when it runs. */
void tr_mem_copy_call(struct tr *t, const struct tr_mem *m, const char *to, int32_t displacement,
	const char *bytes);
/* bytes (1..8) at `at`, zero-extended: a 64-bit register or a constant. */
struct tr_name tr_mem_word(struct tr *t, const struct tr_mem *m, uint32_t at, uint32_t bytes);
/* Writes 8 bytes at an argument that a helper sets. */
int tr_mem_set(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, struct tr_name value);
/* Writes `bytes` bytes at an argument that a helper sets: those at global, 8-aligned from + displacement, which others may write; from
 * NULL: zeros. */
void tr_mem_fill(struct tr *t, const struct tr_mem *to, const struct tr_name *from, int32_t displacement, uint32_t bytes);
/* Copies bytes to global memory at address register `to` + displacement, which is 8-aligned. */
void tr_mem_copy(
	struct tr *t, const struct tr_mem *m, const char *to, int32_t displacement, uint32_t bytes);
/* A generic address of the memory (LOCAL and GLOBAL only). */
struct tr_name tr_mem_generic(struct tr *t, const struct tr_mem *m);
/* The constant map and offset that a register holds before instruction i, found in its own block.
 */
bool tr_const_pointer(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint8_t reg,
	uint32_t *map, int64_t *offset);
/* The bytes of a frozen map from offset on, NULL when they can change or are not there. */
const uint8_t *tr_frozen(const struct ebpf_map *m, int64_t offset, uint32_t bytes, uint64_t *left);
/* The bytes of a load from a frozen map whose place is known. */
const uint8_t *tr_frozen_load(const struct tr *t, const struct tr_inst *inst, uint32_t i);

/* -- ring.c: ring buffers -- */
struct tr_ring_record {
	struct tr_name at;    /* of the payload, 16-aligned in steps of its padded size; 0: dropped */
	struct tr_name count; /* of the bin's committed bytes, less MAP_IMAGE_HEADER */
	struct tr_name bytes; /* that its commit adds */
	bool grouped;         /* lanes may commit together */
};
/* A record of len bytes: a constant, the same in all lanes, or a register. own: not in a group with other lanes' records. */
struct tr_ring_record tr_ring_reserve(
	struct tr *t, const struct ebpf_map *m, struct tr_name len, bool own);
void tr_ring_commit(struct tr *t, const struct tr_ring_record *r);
/* Copies memory argument a behind `at` bytes of a record. */
int tr_ring_fill(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, struct tr_name record, int32_t at);
int tr_ring_lower(struct tr *t, struct tr_inst *inst, uint32_t i);
/* access.c */
int tr_access_lower(struct tr *t, struct tr_inst *inst, uint32_t i);

/* -- queue.c, bloom.c: push, pop, peek -- */
int tr_queue_lower(struct tr *t, struct tr_inst *inst, uint32_t i);
int tr_bloom_lower(struct tr *t, struct tr_inst *inst, uint32_t i);

/* -- hash.c, ring.c: module-scope functions -- */
const char *tr_func_add(struct tr *t, const char *name, const struct buf *text);
/* Leaves the function defined and returns its name, "" when memory is out (buffers have failed then). */
const char *tr_copy_func(struct tr *t);
/* Operations on a hash map; arguments: image, slots - 1, of a per-CPU one the multiprocessor, of an update also max_entries and flags, then the key and the value, in
 * 8-byte words or as a generic address. */
void tr_hash_lookup(
	struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result);
void tr_hash_update(
	struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result);
/* An update that changes nothing where the key is there: the answer is its value's address, else 0. Flags are as begin.c takes them. */
void tr_hash_begin(
	struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result);
/* Whether an update stands in the program's own text. */
bool tr_hash_update_inline(struct tr *t, const struct ebpf_map *m);
void tr_hash_delete(
	struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result);
/* A call with 64-bit arguments; result: register or NULL. */
void tr_emit_call(
	struct tr *t, const char *func, const char *result, const struct tr_name *args, uint32_t n);

/* -- emit.c: text -- */
/* One instruction: tab, text, newline. */
void tr_emit(struct tr *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct tr_name tr_reg(const struct tr_inst *inst, uint32_t r); /* .b64 of r0..r10 */
struct tr_name tr_t64(struct tr *t);                           /* fresh temporaries */
struct tr_name tr_t32(struct tr *t);
struct tr_name tr_pred(struct tr *t);
struct tr_name tr_label(struct tr *t);                              /* fresh "$egpu_l<N>" */
struct tr_name tr_at_label(const struct tr_inst *inst, uint32_t i); /* of an instruction */
struct tr_name tr_imm(int64_t value);
struct tr_name tr_imm32(int32_t value);
struct tr_name tr_text(const char *s);
/* Loads entry `entry` of the table into a fresh register. */
struct tr_name tr_table(struct tr *t, uint32_t entry);
struct tr_name tr_map_base(struct tr *t, const struct ebpf_map *m);

#endif
