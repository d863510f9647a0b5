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

/* This multiprocessor's line, the word in it (map/layout.h), the bin that it names and the first of its own. */
struct tr_hint {
	struct tr_name line, word, home, bins, bin;
	struct tr_name full; /* predicate: it names none */
};

enum { TR_NO_SLOT = 0xffffffffu };

/* What one who asked a bin for room was told. */
struct tr_place {
	struct tr_name line; /* .b32: where the bin's line is among heads as among counts, for who asked */
	struct tr_name old;  /* .b64: the head before; nothing in lanes that did not ask */
	struct tr_name slot; /* .b32: position in all bins' data, in units of MAP_RING_GROUP, or TR_NO_SLOT; the same for all lanes of a group */
	struct tr_name got;  /* predicate: there is room */
};

/* Lanes that are here together; good to the end of the basic block. */
struct tr_group {
	struct tr_name mask, first; /* first: number of the lowest */
	struct tr_name rank, n;
	struct tr_name leads; /* predicate: this is the lowest */
};

/* Stores the hint where it is not what it was. leads: who may, NULL: everyone. full: nothing was found. */
void tr_ring_keep_hint(struct tr *t, const struct tr_hint *h, const struct tr_name *leads, bool full);
/* Counts records for each lane that is here, or for all of them: `times` (.b32), or 1 where it is NULL. */
void tr_ring_drop(struct tr *t, const struct tr_hint *h, bool one, const struct tr_name *times);
struct tr_ring tr_ring_of(struct tr *t, const struct ebpf_map *m);
/* Heads and data of bin 0. */
struct tr_name tr_ring_heads(struct tr *t, const struct tr_ring *g);
struct tr_name tr_ring_data(struct tr *t, const struct tr_ring *g);
struct tr_hint tr_ring_hint(struct tr *t, const struct tr_ring *g);
/* base + index * stride. */
struct tr_name tr_wide(struct tr *t, struct tr_name index, uint32_t stride, struct tr_name base);
/* Adds to a bin's committed bytes; pred: "" or "@predicate ". */
void tr_ring_add(struct tr *t, const char *pred, struct tr_name count, struct tr_name bytes);

/* The same, total (.b32) bytes, by whoever asked, whom pred holds for at most. */
void tr_ring_commit_asked(struct tr *t, const struct tr_ring *g, const char *pred, const struct tr_place *a, struct tr_name total);

/* Asks a bin for total (.b32) bytes, at most its size; asks: predicate of whom, NULL: everyone. With l, within the basic block of tr_lanes_here,
 * all of the group learn what its lowest lane was told, who alone asks, if anyone: lanes may have come with different hints, so of the bin they
 * know only what the slot says. */
struct tr_place tr_ring_ask(struct tr *t, const struct tr_ring *g, struct tr_name bin, struct tr_name total, const struct tr_group *l, const struct tr_name *asks);
/* Address of the place, and the bin's line of committed bytes. */
struct tr_name tr_ring_at(struct tr *t, const struct tr_ring *g, const struct tr_place *a);
struct tr_name tr_ring_count(struct tr *t, const struct tr_ring *g, const struct tr_place *a);
/* Whoever asked for more than was left, but something was, fills it. and: predicate beside that, or NULL. */
void tr_ring_close(struct tr *t, const struct tr_ring *g, struct tr_name bin, const struct tr_place *a, const char *and);
/* What the group's lanes stored before comes before what its leader does next. In the basic block of tr_lanes_here. */
void tr_ring_together(struct tr *t, const struct tr_group *l);

/* What a group begins with. */
struct tr_group_head {
	struct tr_name word, time; /* .b64 */
};

/* Of n (.b32) records, all submitted. */
struct tr_group_head tr_ring_group_head(struct tr *t, struct tr_name n, uint64_t bytes);
/* pred: "" or "@predicate ". */
void tr_ring_put_head(struct tr *t, const struct tr_group_head *head, const char *pred, struct tr_name at);
/* Stores what a helper is given, of that many bytes, where a record is. */
void tr_ring_put(struct tr *t, const struct tr_mem *from, const char *pred, struct tr_name to, int32_t displacement, uint32_t bytes);
/* Whether records of so many bytes share a group. */
bool tr_ring_shares(const struct ebpf_map *m, uint64_t bytes);
/* Flags that ringbuf helpers take: BPF_RB_NO_WAKEUP, BPF_RB_FORCE_WAKEUP. */
enum { TR_WAKEUP_FLAGS = 3 };
/* Whether the record of a ringbuf_output is of one size, *bytes, and shares a group. */
bool tr_ring_outputs_together(
	const struct tr *t, const struct tr_inst *inst, uint32_t i, const struct ebpf_map *m, uint32_t *bytes);

/* The ways through a reservation; rc of a drop is the caller's to set before `dropped`. */
struct tr_ways {
	struct tr_name again; /* lanes meet and ask */
	struct tr_name dropped, done, look;
	struct tr_name tries; /* .b32 */
};

/* Leaves `again` as the place where the code is. */
struct tr_ways tr_ring_begin(struct tr *t, const struct tr_hint *h);
/* Predicate: the bin that was asked first was the hint's, which needs no keeping then. */
struct tr_name tr_ring_as_hinted(struct tr *t, const struct tr_ways *w);
/* Behind an attempt that found no room: closes the bin where that is ours to do, and goes to `again` with another one, or counts what is
 * dropped (a record of each lane here, or one of all) and goes to `done`. Where the ring was full the last time, one in some looks again.
 * leads: who asked, NULL: each lane. */
void tr_ring_next(struct tr *t, const struct tr_ring *g, const struct tr_hint *h, const struct tr_place *at, const struct tr_name *leads,
	const struct tr_ways *w, bool one, const struct tr_name *times);
/* Predicate: not one of the few that look whether a ring that was full still is. */
struct tr_name tr_ring_trusts(struct tr *t);

/* .b32: the lanes that are here. */
struct tr_name tr_mask_here(struct tr *t);
struct tr_group tr_lanes_here(struct tr *t);
/* lane = the number of the lowest in mask, 32 for none. */
void tr_lowest(struct tr *t, struct tr_name lane, struct tr_name mask);
/* In the basic block of tr_lanes_here. */
void tr_from_lane(struct tr *t, const struct tr_group *l, struct tr_name to, struct tr_name from, struct tr_name lane);

/* The map argument of a ring helper; NULL: none, and tr_no_ring says why. */
const struct ebpf_map *tr_ring_arg(const struct tr *t, const struct tr_inst *inst, uint32_t i);
int tr_no_ring(struct tr *t, const struct tr_inst *inst, uint32_t i);

/* access.c: the records of accesses that one group has, 16 bytes each, in the lanes above the lowest, of the first on: lane 0 and those above it
 * are here. */
struct tr_pieces {
	struct tr_name lane, mask;	/* .b32 */
	struct tr_name site, info;	/* .b32, of this lane's record: and shape, size and operation */
	struct tr_name first_site, first_info;
	struct tr_name lo, hi;		/* .b32: of its address; and in lane 0 what they were before */
	struct tr_name dense;		/* predicate: as far as this lane knows all lie side by side. Then what a lane has is right */
};
/* Gives the record of item %egpu_item to its lane. like: its address is that of an earlier item and a number that is the same in all lanes,
 * and so are its bytes, so that it is dense if that one is. */
void tr_access_piece(struct tr *t, struct tr_inst *inst, uint32_t i, const struct tr_pieces *p, bool like);
/* The helper without a way for lanes that lie side by side alone. */
int tr_access_alone(struct tr *t, struct tr_inst *inst, uint32_t i);

#endif
