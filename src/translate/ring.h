/* ring.h - what device code for ring buffers is made of (ring.c, access.c). */
#ifndef EGPU_TRANSLATE_RING_H
#define EGPU_TRANSLATE_RING_H

#include "translate/internal.h"

/* Registers that hold addresses do so less MAP_IMAGE_HEADER, which every access adds. */
struct tr_ring {
	uint32_t bin_bytes;
	struct tr_name base, sms; /* .b64; .b32 */
	struct tr_name counts;    /* committed bytes of bin 0 */
};

/* This multiprocessor's line, the word in it (next bin | MAP_RING_FULL: all that were tried were closed), and the bin that it names. */
struct tr_hint {
	struct tr_name line, word, next, bins, bin;
	struct tr_name full; /* predicate */
};

/* Lanes that are here together; good to the end of the basic block. */
struct tr_group {
	struct tr_name mask, first; /* first: number of the lowest */
	struct tr_name rank, n;
	struct tr_name leads; /* predicate: this is the lowest */
};

/* Jumps to `dropped` most of the times that the ring was full the last time: a look at the cached word then is all it costs. */
void tr_ring_skip(struct tr *t, const struct tr_hint *h, struct tr_name dropped);
/* Stores the hint where it is not what it was. leads: who may, NULL: everyone. full: nothing was found. */
void tr_ring_keep_hint(struct tr *t, const struct tr_hint *h, const struct tr_name *leads, bool full);
/* Counts a record for each lane that is here, or one for all of them. */
void tr_ring_drop(struct tr *t, const struct tr_hint *h, bool one);
struct tr_ring tr_ring_of(struct tr *t, const struct ebpf_map *m);
/* Heads and data of bin 0. */
struct tr_name tr_ring_heads(struct tr *t, const struct tr_ring *g);
struct tr_name tr_ring_data(struct tr *t, const struct tr_ring *g);
struct tr_hint tr_ring_hint(struct tr *t, const struct tr_ring *g);
/* base + index * stride. */
struct tr_name tr_wide(struct tr *t, struct tr_name index, uint32_t stride, struct tr_name base);
/* What was written before is there for whoever sees what is written after. */
void tr_fence(struct tr *t);
/* Adds to a bin's committed bytes; pred: "" or "@predicate ". */
void tr_ring_add(struct tr *t, const char *pred, struct tr_name count, struct tr_name bytes);

struct tr_group tr_lanes_here(struct tr *t);
/* lane = the number of the lowest in mask, 32 for none. */
void tr_lowest(struct tr *t, struct tr_name lane, struct tr_name mask);
/* In the basic block of tr_lanes_here. */
void tr_from_lane(struct tr *t, const struct tr_group *l, struct tr_name to, struct tr_name from, struct tr_name lane);

/* The map argument of a ring helper; NULL: none, and tr_no_ring says why. */
const struct ebpf_map *tr_ring_arg(const struct tr *t, const struct tr_inst *inst, uint32_t i);
int tr_no_ring(struct tr *t, const struct tr_inst *inst, uint32_t i);

#endif
