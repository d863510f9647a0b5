/* state.h - what the verifier knows at one point of one path, and the run that explores all paths.
 *
 * Passes: encoding (each instruction by itself) -> layout (subprograms, jumps, reachability) -> liveness -> explore
 * (every path, with states remembered at join points) -> stack (combined depth). explore is the proof; its step is
 * alu.c for arithmetic and branches, access.c for memory, call.c for helpers and frames.
 */
#ifndef EGPU_VERIFIER_STATE_H
#define EGPU_VERIFIER_STATE_H

#include "bpf/helpers.h"
#include "bpf/insns.h"
#include "verifier/range.h"
#include "verifier/verifier.h"

enum {
	MAX_FRAMES = 8,
	MAX_REFS = 64,
	SLOTS = EBPF_STACK_BYTES / 8,
	MAX_PENDING = 8192,		 /* branches put off on one path; Linux's BPF_COMPLEXITY_LIMIT_JMP_SEQ */
	MAX_VAR_OFF = 1 << 29,		 /* pointer offsets beyond it are refused; Linux's BPF_MAX_VAR_OFF */
	MAX_SAVED_BYTES = 192 << 20,	 /* remembered states; beyond it none are added, which costs time, not soundness */
	MAX_NODES = 16 << 20,
};

enum vtype {
	V_UNSET,
	V_SCALAR,
	V_CTX,
	V_STACK,
	V_MAP, /* the map itself */
	V_VALUE,
	V_VALUE_OR_NULL,
	V_RECORD,
	V_RECORD_OR_NULL,
	V_MEMORY, /* test-run buffer */
	V_KEY,	  /* of a map, in a function called for its elements; `bytes` is its size */
	V_FUNC,	  /* a function; `off` is its first instruction */
};

/* What a scalar is of the number x that `of` is the id of, c being `by`: its low half; x / c; x / c * c; the negative of that. Compilers
 * without a remainder write x - x / c * c. */
enum vpart { PART_NONE, PART_LOW, PART_QUOTIENT, PART_MULTIPLE, PART_NEGATIVE };

struct vreg {
	uint8_t type;  /* enum vtype */
	uint8_t frame; /* V_STACK: whose */
	uint8_t part;  /* enum vpart */
	bool part_wide, part_signed; /* the division's width and kind */
	int32_t by;
	uint32_t of;
	int32_t off;   /* pointers: constant part of the offset; V_STACK: from the frame's top */
	int32_t map;   /* V_MAP, V_VALUE*: index in program->maps; else -1 */
	uint32_t id;   /* scalars with one id are equal; *_OR_NULL with one id are null together; 0: alone */
	uint32_t ref;  /* V_RECORD*: the reservation; else 0 */
	uint32_t bytes; /* V_RECORD*, V_MEMORY: size */
	uint32_t node; /* scalars: provenance (marks.c); 0: none */
	struct range r; /* scalars: the value; pointers: the variable part of the offset */
};

/* SLOT_PART: what is left of a pointer of which other bytes were overwritten; nobody may read it. */
enum slot_kind { SLOT_UNSET, SLOT_MISC, SLOT_ZERO, SLOT_SPILL, SLOT_PART };

/* Eight bytes of stack; kind[0] is the byte of the lowest address. Where kind[0] is SLOT_SPILL, `spill` was stored there, with as many
 * bytes as there are SLOT_SPILL from kind[0] on (8 for pointers). */
struct vslot {
	uint8_t kind[8];
	uint32_t live; /* read marks (marks.c) */
	struct vreg spill;
};

struct vframe {
	struct vreg regs[11];
	uint32_t callsite; /* instruction of the call that made this frame */
	uint32_t subprog;
	bool callback;	    /* called by the helper at callsite, which will be executed again */
	uint32_t iteration; /* times that the helper at this frame's instruction has called */
	uint32_t refs;	    /* callback: references held when it was called */
	uint64_t entered;   /* callback: length of the path then */
	uint32_t n_slots; /* slots[i] is at fp - 8 * (i + 1); those beyond are unset */
	struct vslot slots[SLOTS];
};

struct vref {
	uint32_t id, insn;
};

struct vstate {
	uint32_t insn;
	uint32_t n_frames, n_refs;
	uint64_t length; /* instructions of the path so far, helpers by cost */
	struct vref refs[MAX_REFS];
	struct vframe frames[MAX_FRAMES];
};

/* A state packed: frames with their used slots only. */
struct snapshot;
struct snapshot *snapshot_take(const struct vstate *s); /* malloc'ed; NULL: no memory */
void snapshot_restore(const struct snapshot *p, struct vstate *s);
size_t snapshot_bytes(const struct snapshot *p);

/* A state remembered at a join point. While paths that went through it are open it is part of the tree that they
 * form; when the last one has ended, a later state within it needs no look. */
struct saved {
	struct saved *next;   /* at the same instruction */
	struct saved *parent; /* the last one on the way here; valid while this one is open */
	struct saved *all, **all_link; /* of all that are kept */
	struct snapshot *state;
	uint64_t length;      /* of the path to it */
	uint64_t longest;     /* of the paths through it */
	uint64_t digest;      /* equal in equal states */
	uint32_t open;	      /* paths and children not ended */
	uint64_t body[MAX_FRAMES]; /* longest path through it up to the return of the callback in each frame; 0: none returned */
	uint32_t hits, misses;
	bool listed;
};

/* A fork whose jump is yet to be taken: the state before the branch instruction. */
struct pending {
	struct snapshot *state;
	struct saved *parent;
	uint32_t decisions, path_insns;
};

struct node { /* provenance: see marks.c */
	uint32_t from[2];
};

struct vflow { /* what is known of an instruction before any path is walked */
	uint16_t live; /* registers that may be read from here on */
	bool join;     /* several ways lead here */
	bool second;   /* second half of an ld_imm64 */
	bool called;   /* a helper call with facts */
	bool loops;    /* a helper call that calls back */
};

struct subprog {
	uint32_t start, end; /* instructions [start, end) */
	uint32_t depth;	     /* bytes of stack used */
	uint32_t deepest;    /* with what it calls; 0: not computed */
	uint32_t levels;     /* of calls below it */
	uint8_t visit;
};

struct verifier {
	struct arena *arena;
	const struct ebpf_program *p;
	struct verifier_options opts;
	struct verifier_result *out;
	struct buf *log;
	struct diag *d;

	struct vflow *flow;
	struct subprog *subprogs;
	uint32_t n_subprogs;

	struct vstate cur;
	struct saved *parent;  /* last remembered state on this path */
	struct saved **saved;  /* lists by instruction */
	struct saved *all_saved;
	struct saved root; /* the start: open until all is walked; has no state */
	struct pending *pending;
	uint32_t n_pending;
	size_t cap_pending;
	size_t saved_bytes;
	uint32_t n_saved;
	uint32_t jumps, last_jumps, last_insns; /* since the last remembered state */
	uint32_t next_id;

	/* The way of the current path at its forks, a bit each: what a second walk for the log follows. */
	uint8_t *decisions;
	uint32_t n_decisions;
	size_t cap_decisions;
	uint32_t path_insns;
	/* States that were widened on this path, each before the instruction number `at` of it (callback.c). */
	struct widened *widened;
	uint32_t n_widened;
	size_t cap_widened;
	/* Longest call of the function at each helper that calls back: used for lengths, and seen in this walk. NULL: no such helper. */
	uint64_t *loop_cost, *loop_seen;
	struct buf trail; /* log_level 2: every instruction walked */
	uint32_t trail_insns;

	bool resumed; /* cur is a fork put off: its instruction is counted already, and now it jumps */
	bool replay;

	struct node *nodes; /* nodes[0] is not used */
	uint8_t *marks;
	uint32_t n_nodes;
	size_t cap_nodes;
	uint32_t *mark_stack;
	size_t cap_mark_stack;

	int err; /* of the first refusal */
	bool in_step; /* it came from the last instruction of the path, not from the point before the next one */
	char reason[sizeof(((struct diag *)0)->text)];
};

static inline struct vframe *frame_now(struct verifier *v)
{
	return &v->cur.frames[v->cur.n_frames - 1];
}

static inline bool is_pointer(const struct vreg *r)
{
	return r->type > V_SCALAR;
}

static inline bool is_or_null(const struct vreg *r)
{
	return r->type == V_VALUE_OR_NULL || r->type == V_RECORD_OR_NULL;
}

/* The number was cut or extended to another one: what it equalled, and was a part of, is no longer. */
static inline void forget_equals(struct vreg *r)
{
	r->id = r->of = 0;
	r->part = PART_NONE;
}

static inline struct vreg scalar_of(struct range r)
{
	return (struct vreg){ .type = V_SCALAR, .map = -1, .r = r };
}

static inline struct vreg scalar_unknown(void)
{
	return scalar_of(range_unknown());
}

static inline struct vreg scalar_const(uint64_t value)
{
	return scalar_of(range_const(value));
}

/* The type's name in messages: "scalar", "fp", "map_value", ... */
const char *vtype_name(uint8_t type);

/* Records why the program is refused; returns -err. The text is one sentence in the kernel's words, and after "; " what to do. */
int refuse(struct verifier *v, int err, const char *tag, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
int out_of_memory(struct verifier *v);

/* encoding.c: every instruction's bytes are those of RFC 9669 (cpu v4), its registers and map indices exist. */
int check_encoding(struct verifier *v);
/* layout.c: subprograms, jump targets, no unreachable instruction; join points. Then which registers are live. */
int check_layout(struct verifier *v);
int find_live(struct verifier *v);
int check_stack_depth(struct verifier *v);
uint32_t subprog_of(const struct verifier *v, uint32_t insn); /* the one that starts there; n_subprogs: none */

/* marks.c: which scalars' values, and which stack slots, later instructions relied on. */
enum { MARK_PRECISE = 1, MARK_READ = 2 };
uint32_t node_new(struct verifier *v, uint32_t from0, uint32_t from1); /* 0: no memory or too many, v->err set on the former */
uint32_t node_join(struct verifier *v, uint32_t a, uint32_t b);
int node_mark(struct verifier *v, uint32_t node, uint8_t mark);
static inline bool node_marked(const struct verifier *v, uint32_t node, uint8_t mark)
{
	return node && (v->marks[node] & mark);
}
static inline int mark_precise(struct verifier *v, const struct vreg *r)
{
	return r->type == V_SCALAR ? node_mark(v, r->node, MARK_PRECISE) : 0;
}

/* Step functions return 0, PATH_ENDED or -errno; they set registers and leave cur.insn to the caller unless they say so. */
enum { PATH_ENDED = 1 };

/* alu.c */
int step_alu(struct verifier *v, const struct bpf_insn *i);
int step_branch(struct verifier *v, const struct bpf_insn *i); /* sets cur.insn */

/* Before a copy: copies of an unknown number stay equal to it, so what a branch says of one holds for the others. */
void link_scalar(struct verifier *v, struct vreg *src);

/* access.c */
int step_load(struct verifier *v, const struct bpf_insn *i);
int step_store(struct verifier *v, const struct bpf_insn *i);
int step_atomic(struct verifier *v, const struct bpf_insn *i);
/* Register `reg` must have been set; *out points to it. */
int read_reg(struct verifier *v, uint32_t reg, struct vreg **out);
/* Register `reg` may be written. */
int check_written(struct verifier *v, uint32_t reg);
/* Memory of `bytes` bytes at a register, read by a helper as its argument `arg` (0..4). At most `bytes` are read, of any number
 * when it is a bound. */
int check_helper_memory(struct verifier *v, uint32_t reg, uint64_t bytes, int arg);
/* 8 bytes that a helper writes. */
int check_helper_out(struct verifier *v, uint32_t reg, uint32_t bytes, uint32_t align, int arg);
/* A constant scalar of 4 bytes at a stack pointer, if it is known; marks it. */
bool stack_constant(struct verifier *v, const struct vreg *ptr, uint32_t *value, int *err);

/* call.c */
int step_call(struct verifier *v, const struct bpf_insn *i); /* sets cur.insn */
int step_exit(struct verifier *v);			      /* sets cur.insn */

/* callback.c: functions that a helper calls, once for each iteration. */
struct callback {
	const struct ebpf_helper *helper;
	uint32_t start; /* the function */
	uint64_t limit; /* most calls */
	int32_t map;	/* for_each: whose elements */
};
int step_callback(struct verifier *v, const struct callback *c, bool *leave); /* calls (sets cur.insn) or goes on: *leave */
int callback_return(struct verifier *v);					/* sets cur.insn */
int check_loop(struct verifier *v); /* like check_seen, at a helper that has called */
void callback_covered(struct verifier *v, const struct saved *s);
void widen_again(struct verifier *v, uint32_t at);
void drop_widened(struct verifier *v, uint32_t from);

/* facts.c */
enum { NO_ARG = -1 };
/* The instruction (arg == NO_ARG) or its argument touches this memory at pointer + off. */
int fact_memory(struct verifier *v, const struct vreg *ptr, int32_t off, int arg);
void fact_map(struct verifier *v, int32_t map); /* of a call */
/* constant: the caller made sure that the value counts in comparisons of states (mark_precise). */
void fact_scalar(struct verifier *v, int arg, const struct vreg *r, bool constant);
int fact_callback(struct verifier *v, uint32_t start);
void fact_called(struct verifier *v); /* all arguments are recorded */

/* prune.c: at a join point. 1: a finished state covers this one, the path ends here; 0: go on. */
int check_seen(struct verifier *v);
enum cover { COVER_RELIED, COVER_EXACT, COVER_ALL };
/* Every concrete state of cur is one of old: in what old's continuations relied on; or in all; or both are the same. */
bool state_covers(struct verifier *v, const struct snapshot *old, enum cover how);
int covered(struct verifier *v, struct saved *s);
int remember(struct verifier *v);
uint16_t live_regs(const struct verifier *v, uint32_t k);
void path_ended(struct verifier *v, uint64_t longest);
void free_saved(struct verifier *v);

/* explore.c: called before the state changes, at a fork that both ways can take. *taken: which way this path goes now; the other
 * one, if it has not been walked, is put off. */
int fork_path(struct verifier *v, bool *taken);
void start_path(struct verifier *v); /* cur is the program's start */
int step(struct verifier *v);	       /* executes the instruction at cur.insn */
int explore(struct verifier *v);

/* log.c: appends to v->log; a failing path is walked again to show what was known on it. */
void log_failure(struct verifier *v);
void log_success(struct verifier *v);
/* log_level 2: after step(): the instruction, and the state behind it. */
void log_step(struct verifier *v, uint32_t insn);

/* uniform.c: requires the facts; sets `uniform` and `converged` in them. */
int find_uniform(struct verifier *v);
/* layout.c: control flow within a subprogram, for passes after it. */
int successors(const struct ebpf_program *p, uint32_t at, uint32_t next[2]);
bool is_func_ref(const struct bpf_insn *i);


#endif
