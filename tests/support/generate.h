/* generate.h - random programs that like edges: values near bounds, pointers near ends, partial spills, joined branches, callbacks.
 *
 * About half of them pass a verifier. What they may touch: generate_maps, and a context of which the first 24 bytes are read as
 * numbers (EBPF_CONTEXT_MEM), or a buffer of GENERATE_MEMORY bytes (EBPF_CONTEXT_NONE).
 */
#ifndef EGPU_TEST_GENERATE_H
#define EGPU_TEST_GENERATE_H

#include "bpf/program.h"

enum { GENERATE_MAX = 600, GENERATE_MEMORY = 64, GENERATE_ENTRIES = 4 };
enum { GENERATE_ARRAY, GENERATE_HASH, GENERATE_DATA, GENERATE_RING, GENERATE_MAPS };
extern const struct ebpf_map generate_maps[GENERATE_MAPS];

struct generated {
	struct bpf_insn code[GENERATE_MAX];
	struct ebpf_program program; /* of this code */
};

/* The same program for the same seed, in any process. */
void generate(uint64_t seed, struct generated *out);

#endif
