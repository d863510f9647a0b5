/* verifier.h - proves that a program is safe to run inside someone else's kernel.
 *
 * Nothing reaches a translator or an interpreter without passing here. The facts that the
 * proof found about each instruction are handed on, because the code that follows relies on them.
 */
#ifndef EGPU_VERIFIER_VERIFIER_H
#define EGPU_VERIFIER_VERIFIER_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "bpf/program.h"

/* Memory an instruction or helper argument touches; the same on every path to it. */
enum ebpf_region {
	EBPF_REGION_NONE,
	EBPF_REGION_CONTEXT,
	EBPF_REGION_STACK,
	EBPF_REGION_MAP_VALUE, /* also globals */
	EBPF_REGION_RECORD,    /* reserved ring record */
	EBPF_REGION_KEY,       /* map key that bpf_for_each_map_elem hands to its function: of a hash in its slot, of an array a copy */
	EBPF_REGION_MEMORY,    /* test-run buffer: accesses but atomics at any address; elsewhere they are aligned to their size */
};

struct ebpf_fact {
	bool reached;	  /* some path comes here; else dead code */
	uint8_t region;	  /* enum ebpf_region of a load, store or atomic */
	bool fixed;	  /* offset below is the same on every path */
	int32_t offset;	  /* fixed: byte offset from the region's start (CONTEXT), or from the frame's top (STACK, negative).
			   * STACK offsets are relative to the frame of `frame`. */
	int32_t low, high; /* STACK and CONTEXT, fixed or not: the least and the greatest offset on any path */
	uint8_t frame;	  /* STACK: call depth of the frame that owns the slot, when every path agrees; 255: differs */
	int32_t map;	  /* index in program->maps of the map value or key touched, or of a call's map argument or record; -1: none or differs */
	uint32_t callback; /* helpers that call a function of the program: its first instruction; 0: none */
	/* What all lanes of a warp that execute the instruction together have in common (uniform.c). */
	uint16_t uniform;  /* registers with the same value before it, a bit each */
	bool converged;	   /* all lanes that run the program come here, or none */
	/* calls of helpers: region, fixed offset and frame of arguments 1..5 where they are memory */
	struct {
		uint8_t region, frame;
		bool fixed;
		int32_t offset;
		bool constant;	 /* a scalar argument with one known value; a ring record: of one known size, which is `value` */
		uint64_t value;	 /* that value */
		uint64_t max;	 /* upper bound of a scalar argument (sizes) */
		uint8_t align;	 /* memory: 1, 2, 4 or 8: what the address is a multiple of on every path */
	} args[5];
};

/* A function of the program: the one that begins at `start`, up to the next. */
struct ebpf_subprog {
	uint32_t start;
	uint32_t depth; /* bytes of its own stack frame that it uses */
};

struct verifier_options {
	uint32_t max_states_insns; /* instructions processed before giving up; 0: 1,000,000 */
	uint64_t max_run_insns;	   /* worst-case length of one run; 0: 65,536 */
	uint32_t max_local_bytes;  /* of stack and other memory of a thread's own that does not fit registers; 0: 1,024 (the translator
				    * checks it) */
	bool allow_perturb;	   /* helpers that slow, stop or alter the probed kernel */
	bool allow_races;	   /* updates of shared memory by load and store, which lose some when threads meet */
	/* To compare verdicts: divisions, negations, shifts by unknown counts and comparisons of a register with itself tell nothing, or
	 * little, as in Linux 6.18. */
	bool linux_ranges;
	uint32_t log_level;	   /* 0: reason only; 1: the failing path as the kernel's log; 2: the same with all that is known */
};

struct verifier_result {
	struct ebpf_fact *facts;   /* n_insns of them, in the arena */
	uint64_t max_run_insns;	   /* worst-case instructions of one run, helpers by their cost */
	uint32_t processed_insns, peak_states;
	uint32_t stack_bytes;	   /* deepest combined stack */
	struct ebpf_subprog *subprogs; /* by rising start, in the arena; set when the program is safe */
	uint32_t n_subprogs, max_frames; /* max_frames: most calls nested in one another, the program itself included */
	uint64_t fields;	   /* context fields read: bit per enum ebpf_field */
	uint64_t gathered;	   /* fields of other lanes read by egpu_lane_read; whether a point has them is its user's to ask */
	uint32_t max_local_bytes;  /* for the translator, from the options */
	bool allow_races;
	uint32_t failed_insn;	   /* on -EACCES etc. */
	uint32_t mixed;		   /* not 0: it failed because ways lead to the call at mixed - 1 with pointers to different kinds of memory (bpf/split.h) */
	/* Short stable reason: "oob" out of bounds, "uninit" read of what was not set, "null" unchecked pointer, "type" wrong kind of pointer,
	 * "leak" of an address, "align", "ctx" no such field, "map" rights or kind of a map, "stack" depth, "ref" reservation, "size" of an argument or
	 * of the program, "loop" that may not end, "length" of a run, "helper" unknown, "insn" malformed, "memory" is out. */
	const char *tag;
};

/* 0 when safe. -EACCES (unsafe), -EINVAL (malformed), -E2BIG (too large or too long), -ENOMEM; the log, if given, reads like the
 * kernel's and its last sentence is the reason, which d repeats. */
int verifier_check(struct arena *arena, const struct ebpf_program *p, const struct verifier_options *opts,
	struct verifier_result *out, struct buf *log, struct diag *d);

#endif
