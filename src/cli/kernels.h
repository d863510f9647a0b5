/* kernels.h - the kernels in a file: where their PTX is, and whether probes can go into them. */
#ifndef EGPU_CLI_KERNELS_H
#define EGPU_CLI_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/diag.h"

/* Places of one kernel that probes are kept out of, for one reason. */
struct file_skip {
	const char *reason;
	uint32_t sites;
};

struct file_kernel {
	const char *name, *demangled; /* mangled as in the image */
	const char *source; /* "fatbin compute_90 PTX", "cubin sm_90 .nv_debug_ptx_txt", "PTX text",
			       "none" */
	const char *targets; /* what machine code there is: "sm_80 sm_90"; "" without */
	const char *object;  /* name the compiler gave the entry (source file), "" without */
	uint32_t n_sites;    /* instrumentable places, entry and exits included */
	struct file_skip *skips; /* of these places, those left alone */
	uint32_t n_skips;
	uint32_t parting; /* of these places, those where a probe may change the last bit of floating-point results */
	bool before_link;    /* its PTX is that of a unit before the device link (-rdc) */
	const char *reason;  /* why no probe can go in; NULL when it can */
};

struct kernel_file {
	struct arena *arena;
	struct file_kernel *kernels;
	uint32_t n_kernels;
	const char **problems; /* parts that could not be read: "compute_90 PTX of region 0: line 3,
				  column 7: ..." */
	uint32_t n_problems;
	const char *
		*notes; /* parts of a kind whose kernels cannot be named: "sm_90: LTO-IR, ..." */
	uint32_t n_notes;
};

struct kernel_query {
	uint32_t cc;      /* compute capability that the code is for, 90 for 9.0 */
	uint32_t ptx_isa; /* newest PTX ISA that can be compiled here, 90 for 9.0; 0: not known, not
			     checked */
	bool have_ptxas;  /* a ptxas is there, for PTX newer than that */
};

/* 0; -EINVAL when the file holds no CUDA code in any form we know, -ENOMEM; d says what and where.
 */
int kernels_read(const void *data, size_t size, const struct kernel_query *q,
	struct kernel_file **out, struct diag *d);
void kernels_free(struct kernel_file *f);

#endif
