/* state.h - one run of the interpreter, shared by its parts. */
#ifndef EGPU_CPU_STATE_H
#define EGPU_CPU_STATE_H

#include "bpf/helpers.h"
#include "bpf/insns.h"
#include "cpu/interp.h"

enum { INTERP_FRAMES = 8 };

struct region { /* memory that the program was given a pointer to */
	uint8_t *start;
	uint64_t bytes;
	bool writable, record;
};

struct interp_frame {
	_Alignas(16) uint8_t stack[EBPF_STACK_BYTES];
	uint8_t set[EBPF_STACK_BYTES]; /* checked runs: bytes written */
	uint64_t saved[4];	       /* the caller's r6 to r9 */
	uint32_t back;		       /* where the caller goes on */
	/* A function that a helper calls: the frame stays for all of its calls. */
	const struct ebpf_helper *helper; /* NULL: an ordinary call */
	uint64_t n, limit;		  /* calls begun, and most of them */
	uint64_t args[6];		  /* the helper's, r1 to r5 */
	uint32_t map;
	uint32_t array_key;
};

struct interp_state {
	const struct interp *run;
	struct interp_result *out;
	uint64_t reg[11];
	uint16_t set; /* checked runs: registers written */
	uint32_t at;
	uint32_t n_frames;
	struct region *regions;
	uint32_t n_regions;
	size_t cap_regions;
	struct interp_frame frames[INTERP_FRAMES];
};

int interp_stop(struct interp_state *s, int err, const char *why);
/* memory.c: in unchecked runs these always succeed. */
int interp_region(struct interp_state *s, void *start, uint64_t bytes, bool writable, bool record);
void interp_forget(struct interp_state *s, const void *start);
bool interp_is_record(const struct interp_state *s, uint64_t address);
int interp_readable(struct interp_state *s, uint64_t address, uint64_t bytes, uint32_t align);
int interp_writable(struct interp_state *s, uint64_t address, uint64_t bytes, uint32_t align);
int interp_reg_set(struct interp_state *s, uint32_t reg);
/* helpers.c */
int interp_helper(struct interp_state *s, uint32_t number);
int interp_call_back(struct interp_state *s); /* the frame's next call, or back behind the helper */
uint64_t interp_map_address(const struct interp *run, uint32_t map); /* what a register holds for a map itself */

#endif
