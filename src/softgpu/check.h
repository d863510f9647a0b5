/* check.h - what a checked device looks for while kernels run (struct sg_config.check).
 *
 * Handlers report each access to shared and global memory with its host address, and each
 * synchronisation; check.c keeps who touched what last, and what each thread knows of the others,
 * and prints one line for each pair of instructions that race, for reads of shared memory that
 * nothing has written, and for warps that come to a barrier divided. A line does not end the
 * launch. Out of bounds and misaligned accesses are faults on every device.
 *
 * It errs towards silence: a fence before an atomic operation is taken to publish everything before
 * it, and what is evicted from the four accesses kept for eight bytes is forgotten.
 */
#ifndef EGPU_SOFTGPU_CHECK_H
#define EGPU_SOFTGPU_CHECK_H

#include <stdbool.h>
#include <stdint.h>

struct sg_block;
struct sg_device;
struct sg_insn;
struct sg_warp;

enum sg_access { SG_READ = 1, SG_WRITE = 2, SG_STRONG = 4 }; /* atomic, volatile or with an order */
enum sg_order { SG_ACQUIRES = 1, SG_RELEASES = 2, SG_ALWAYS = 4 }; /* ALWAYS: without a fence too */

/* The device's part; NULL: out of memory. */
struct sg_check *sg_check_new(struct sg_device *dev);
void sg_check_free(struct sg_check *c);
/* Lines printed so far. */
uint64_t sg_check_count(const struct sg_check *c);

bool sg_check_block_new(struct sg_block *b);
void sg_check_block_free(struct sg_block *b);

/* An access of one lane to bytes at a host address; value: of what is written, any hash of it. */
void sg_check_access(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, const void *at,
	uint32_t bytes, uint32_t access, uint64_t value);
/* A lane's operation on a synchronising location; order: of enum sg_order. */
void sg_check_sync(struct sg_warp *w, uint32_t lane, const void *at, uint32_t order);
void sg_check_fence(struct sg_warp *w, uint32_t mask);
/* Lanes that have met in a .sync operation. */
void sg_check_warp_sync(struct sg_warp *w, uint32_t mask);
void sg_check_bar_arrive(struct sg_warp *w, uint32_t id, uint32_t mask);
/* Before the waiting paths of barrier `id` go on. */
void sg_check_bar_release(struct sg_block *b, uint32_t id);
/* Arrival at the cluster's barrier, and its passing. */
void sg_check_cluster(struct sg_warp *w, uint32_t mask, bool passed);

#endif
