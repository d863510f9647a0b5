/* interp.h - runs a program on the CPU: `egpu test-run`, host-side probes and the reference that tests compare with.
 *
 * Semantics are those of RFC 9669: division by zero gives 0, modulo by zero the dividend, shift counts are masked, the smallest
 * number divided by -1 is itself. Registers hold addresses of this process. An unchecked run may only be given verified programs; a checked one
 * takes any bytes and stops at the first thing that a verified program never does.
 */
#ifndef EGPU_CPU_INTERP_H
#define EGPU_CPU_INTERP_H

#include "bpf/program.h"

/* Maps and services. Each may be NULL: look-ups and reservations then find nothing, the others answer -EOPNOTSUPP (time and random
 * numbers: 0). `map` is an index in program->maps; returned values stay valid and in place until the run ends, 8-byte aligned. */
struct interp_ops {
	void *(*lookup)(void *self, uint32_t map, const void *key);
	int64_t (*update)(void *self, uint32_t map, const void *key, const void *value, uint64_t flags);
	int64_t (*delete)(void *self, uint32_t map, const void *key);
	void *(*value)(void *self, uint32_t map); /* the only value of an array: BPF_PSEUDO_MAP_VALUE */
	void *(*ring_reserve)(void *self, uint32_t map, uint64_t bytes);
	void (*ring_commit)(void *self, void *record, bool discard, uint64_t flags);
	int64_t (*ring_output)(void *self, uint32_t map, const void *data, uint64_t bytes, uint64_t flags);
	uint64_t (*ring_query)(void *self, uint32_t map, uint64_t flags);
	uint64_t (*time_ns)(void *self);
	uint32_t (*random)(void *self);
	uint32_t (*cpu)(void *self);
	/* format is not NUL-terminated beyond `bytes` */
	int64_t (*trace)(void *self, const char *format, uint32_t bytes, const uint64_t args[3]);
	/* The index-th element of a map for bpf_for_each_map_elem: its value, *key its key; NULL: no more. Left out, arrays are walked
	 * through lookup, and others have no elements. */
	void *(*each)(void *self, uint32_t map, uint32_t index, const void **key);
	/* QUEUE, STACK, BLOOM_FILTER: BPF_FUNC_map_push_elem, map_pop_elem or map_peek_elem; value: read, or what is to be set. */
	int64_t (*keyless)(void *self, uint32_t map, uint32_t number, void *value, uint64_t flags);
	/* Helpers 502 to 511, and 600 and up, by number; out: what those with three results set. Left out: 0. */
	uint64_t (*gpu)(void *self, uint32_t number, const uint64_t args[2], uint64_t out[3]);
};

struct interp {
	const struct ebpf_program *program;
	void *memory; /* context, or for EBPF_CONTEXT_NONE the buffer of program->memory_bytes */
	const struct interp_ops *ops;
	void *self;
	uint64_t max_insns; /* 0: unlimited; helpers count by their cost */
	bool check;	    /* every access against the regions that the program may reach, every read against what was written */
	/* NULL, or called before each instruction, for tests and traces. r[10] tells the frame. */
	void (*step)(void *self, uint32_t at, const uint64_t r[11]);
	bool any_alignment; /* checked runs: let misaligned loads and stores pass, as a CPU does */
};

struct interp_result {
	uint64_t r0;
	uint64_t insns;	       /* executed, helpers by their cost: what the verifier's max_run_insns bounds */
	uint32_t at;	       /* instruction that stopped the run */
	const char *violation; /* why, in a few words; NULL when the program ended by itself */
};

/* 0; -EFAULT: a check failed; -ELOOP: max_insns are used up; -EINVAL: no such instruction, helper or map; -ENOMEM. */
int interp_run(const struct interp *run, struct interp_result *out);

#endif
