/* snapshot.h - a state packed: only the frames in use and of each only the slots in use. */
#ifndef EGPU_VERIFIER_SNAPSHOT_H
#define EGPU_VERIFIER_SNAPSHOT_H

#include "verifier/state.h"

struct packed_frame {
	struct vreg regs[10]; /* r10 follows from the frame's place */
	uint32_t callsite, subprog, n_slots, iteration, refs;
	bool callback;
	uint64_t entered;
	struct vslot slots[];
};

struct snapshot {
	size_t bytes;
	uint32_t insn, n_frames, n_refs;
	uint64_t length;
	uint32_t frame_at[MAX_FRAMES]; /* offsets in this struct */
	struct vref refs[];
};

static inline struct packed_frame *snapshot_frame(const struct snapshot *p, uint32_t k)
{
	return (struct packed_frame *)((char *)p + p->frame_at[k]);
}

#endif
