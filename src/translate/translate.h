/* translate.h - verified eBPF to PTX. */
#ifndef EGPU_TRANSLATE_TRANSLATE_H
#define EGPU_TRANSLATE_TRANSLATE_H

#include "bpf/fragment.h"
#include "bpf/program.h"
#include "verifier/verifier.h"

/* Requires: verifier_check(p) succeeded and gave v. Leaves *out complete for the instrumenter,
 * allocated from arena; point and warp are copied in. -EOPNOTSUPP with the instruction named for
 * what it cannot translate. */
int translate_program(struct arena *arena, const struct ebpf_program *p,
	const struct verifier_result *v, enum ebpf_point point, bool warp,
	struct ebpf_fragment *out, struct diag *d);

/* A whole PTX module for `egpu test-run`: `.visible .entry egpu_test(.param .u64 memory, .param
 * .u64 result, .param .u64 table)` runs the program once (one thread) on a buffer of
 * p->memory_bytes and stores r0 at result. target: e.g. "sm_75". */
int translate_test_kernel(struct arena *arena, const struct ebpf_program *p,
	const struct verifier_result *v, const char *target, struct buf *ptx, struct diag *d);

/* The same for many programs in one module: entries egpu_test0, egpu_test1, ... (egpu_test when n
 * is 1), results[k] being the facts of programs[k]. On an error d names the instruction, but not
 * the program. */
int translate_test_module(struct arena *arena, const struct ebpf_program *const *programs,
	const struct verifier_result *results, uint32_t n, const char *target, struct buf *ptx,
	struct diag *d);

#endif
