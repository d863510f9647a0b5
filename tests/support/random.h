/* random.h - random programs over a buffer and one map value, for comparing executors. Most pass the verifier. */
#ifndef EGPU_TEST_RANDOM_H
#define EGPU_TEST_RANDOM_H

#include <stdbool.h>

#include "bpf/program.h"

enum { RANDOM_INSNS = 600, RANDOM_MEMORY = 64, RANDOM_VALUE = 64 };

struct random_program {
	struct bpf_insn insns[RANDOM_INSNS];
	uint32_t n;
	uint32_t calls[16], n_calls; /* places of calls to function 0 */
	uint32_t loops[8], n_loops;  /* places where bpf_loop is given function 1 */
	bool in_function;
	_Alignas(8) uint8_t memory[RANDOM_MEMORY]; /* filled by the caller */
	_Alignas(8) uint8_t value[RANDOM_VALUE];   /* of maps[0], an array of one such value */
};

/* The generator's seed and state; not 0. */
extern uint64_t random_state;
/* Whether the buffer is only accessed at multiples of the size, as all other memory is. */
extern bool random_aligned;
/* A number below n. */
uint32_t random_next(uint32_t n);
/* The next program: r1 points to memory[RANDOM_MEMORY]. */
void random_program(struct random_program *p);

#endif
