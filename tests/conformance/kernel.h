/* kernel.h - the verifier of the running kernel, asked through bpf(2). */
#ifndef EGPU_TEST_KERNEL_H
#define EGPU_TEST_KERNEL_H

#include "bpf/program.h"

#include <stddef.h>

enum kernel_privilege {
	KERNEL_ROOT,  /* as root: leaks of addresses and reads of unset stack are let through */
	KERNEL_PLAIN, /* CAP_BPF alone: they are refused. Socket filters only. */
};

struct kernel_program {
	const struct ebpf_program *program;
	uint32_t type;	/* BPF_PROG_TYPE_* */
	uint32_t flags; /* BPF_F_STRICT_ALIGNMENT, ... */
};

/* NULL: programs can be loaded here. Else the reason why not, in a few words. */
const char *kernel_missing(void);
/* 0 accepted; -errno refused, `why` has the last lines of the log (why_bytes >= 64). 1: not translatable, `why` says for what reason.
 * A program for the test-run buffer (EBPF_CONTEXT_NONE) gets the value of an array map in place of it. */
int kernel_verdict(const struct kernel_program *k, enum kernel_privilege as, char *why, size_t why_bytes);
/* The maps of the program asked about last are kept for the next one with the same `maps`; this removes them. */
void kernel_release(void);

#endif
