/* exec_bulk.c - cp.async.bulk and cp.reduce.async.bulk without tensor maps, done at once.
 *
 * A lane copies `size` bytes, 16 at a time, and then completes as many bytes of the mbarrier's
 * transaction. With .multicast each block of the cluster that the mask names gets the bytes, and
 * its own mbarrier, at the same offsets.
 */
#include "softgpu/internal.h"

#include <string.h>

/* The address in block number `rank` of the cluster. */
static uint64_t in_block(uint64_t addr, uint32_t rank)
{
	const uint64_t low = (1u << SG_RANK_SHIFT) - 1;
	return (addr & (~0xffffffffull | low)) | (uint64_t)(rank + 1) << SG_RANK_SHIFT;
}

static void check(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, const void *d,
	const void *s, uint32_t access)
{
	sg_check_access(w, in, lane, s, 16, SG_READ, 0);
	sg_check_access(w, in, lane, d, 16, access, (uintptr_t)s);
}

static bool reduce(
	struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint64_t to, uint64_t from)
{
	const struct sg_bulk *b = (const void *)in->list;
	uint8_t *d = sg_resolve_or_fault(w, in, lane, b->dst.space, to, 16);
	const uint8_t *s = d ? sg_resolve_or_fault(w, in, lane, b->src.space, from, 16) : NULL;
	if (s && w->check)
		check(w, in, lane, d, s, SG_READ | SG_WRITE | SG_STRONG);
	for (uint32_t at = 0; s && at < 16; at += in->bytes) {
		uint64_t v = 0;
		memcpy(&v, s + at, in->bytes);
		sg_atom_apply(in, d + at, v, 0, b->dst.space == SP_GLOBAL);
	}
	return s;
}

static bool copy(
	struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint64_t to, uint64_t from)
{
	const struct sg_bulk *b = (const void *)in->list;
	uint8_t *d = sg_resolve_or_fault(w, in, lane, b->dst.space, to, 16);
	const uint8_t *s = d ? sg_resolve_or_fault(w, in, lane, b->src.space, from, 16) : NULL;
	if (s && w->check)
		check(w, in, lane, d, s, SG_WRITE);
	if (s)
		memmove(d, s, 16);
	return s;
}

static bool bulk_lane(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint64_t to,
	uint64_t from, uint64_t bar)
{
	const struct sg_bulk *b = (const void *)in->list;
	uint32_t size = ((const uint32_t *)sg_op(w, in->b))[lane];
	if (size % 16) {
		sg_fault(w, in, CUDA_ERROR_MISALIGNED_ADDRESS, (int)lane,
			"a bulk copy of %u bytes, which is no multiple of 16", size);
		return false;
	}
	for (uint32_t at = 0; at < size; at += 16)
		if (!(in->sub ? reduce(w, in, lane, to + at, from + at)
			      : copy(w, in, lane, to + at, from + at)))
			return false;
	if (!(in->has & 1))
		return true;
	uint64_t *p = sg_resolve_or_fault(w, in, lane, b->bar.space, bar, 8);
	if (p && w->check)
		sg_check_sync(w, lane, p, SG_RELEASES | SG_ALWAYS);
	if (p)
		sg_mbarrier_complete(p, size);
	return p;
}

/* list: struct sg_bulk; b: size; c: mask of blocks (has bit 1); has bit 0: an mbarrier; sub: a
 * reduction. */
SG_HANDLER(sg_bulk)
{
	const struct sg_bulk *b = (const void *)in->list;
	const uint32_t *blocks = in->has & 2 ? sg_op(w, in->c) : NULL;
	uint64_t to[32], from[32], bar[32] = { 0 };
	sg_addresses(w, &b->dst, mask, to);
	sg_addresses(w, &b->src, mask, from);
	if (in->has & 1)
		sg_addresses(w, &b->bar, mask, bar);
	for (uint32_t m = mask; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m);
		uint32_t all = blocks ? blocks[i] & 0xffff : 1;
		for (; all; all &= all - 1) {
			uint32_t rank = (uint32_t)__builtin_ctz(all);
			if (!bulk_lane(w, in, i, blocks ? in_block(to[i], rank) : to[i], from[i],
				    blocks ? in_block(bar[i], rank) : bar[i]))
				return;
		}
	}
}
