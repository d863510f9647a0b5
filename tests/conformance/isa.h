/* isa.h - one executor of instruction sequences, as the isa test drives it. */
#ifndef EGPU_TEST_ISA_H
#define EGPU_TEST_ISA_H

#include <stddef.h>
#include <stdint.h>

#include "bpf/program.h"

struct isa_case {
	const char *name;
	struct ebpf_program program; /* context NONE; memory_bytes is the size of mem */
	uint8_t *mem;		     /* input, and output in place */
	uint64_t r0;		     /* set by the executor */
};

enum { ISA_MISSING = 1, ISA_REFUSED };

/* 0; ISA_MISSING: the machine has no such executor; ISA_REFUSED: the program is not safe to run; *why says in a few words for what reason.
 * Negative: it failed, *why says how. */
typedef int isa_run_fn(struct isa_case *c, const char **why);

struct isa_executor {
	const char *name; /* as in --on NAME */
	isa_run_fn *run;
};

extern const struct isa_executor isa_cpu, isa_softgpu, isa_gpu;

#endif
