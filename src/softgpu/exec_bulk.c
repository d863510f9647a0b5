/* exec_bulk.c - cp.async.bulk and cp.reduce.async.bulk without tensor maps, st.async and red.async,
 * all done at once.
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

/* -- st.async, red.async ---------------------------------------------------------------- */

static uint64_t value_of(struct sg_warp *w, const struct sg_insn *in, uint32_t k, uint32_t lane)
{
	const struct sg_bulk *b = (const void *)in->list;
	const void *p = sg_op(w, b->values[k]);
	return in->width == 8 ? ((const uint64_t *)p)[lane] : ((const uint32_t *)p)[lane];
}

static bool async_lane(
	struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint64_t to, uint64_t bar)
{
	uint32_t bytes = (uint32_t)in->n * in->bytes;
	uint8_t *d = sg_resolve_or_fault(w, in, lane, SP_SHARED, to, bytes);
	uint64_t *m = d ? sg_resolve_or_fault(w, in, lane, SP_SHARED, bar, 8) : NULL;
	if (!m)
		return false;
	if (w->check)
		sg_check_access(w, in, lane, d, bytes,
			in->sub ? SG_READ | SG_WRITE | SG_STRONG : SG_WRITE,
			value_of(w, in, 0, lane));
	for (uint32_t k = 0; k < in->n; k++) {
		uint64_t v = value_of(w, in, k, lane);
		if (in->sub)
			sg_atom_apply(in, d, v, 0, false);
		else
			memcpy(d + k * in->bytes, &v, in->bytes);
	}
	if (w->check)
		sg_check_sync(w, lane, m, SG_RELEASES | SG_ALWAYS);
	sg_mbarrier_complete(m, bytes);
	return true;
}

/* list: struct sg_bulk; n elements of `bytes` bytes; sub: a reduction. */
SG_HANDLER(sg_store_async)
{
	const struct sg_bulk *b = (const void *)in->list;
	uint64_t to[32], bar[32];
	sg_addresses(w, &b->dst, mask, to);
	sg_addresses(w, &b->bar, mask, bar);
	for (uint32_t m = mask; m; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctz(m);
		if (!async_lane(w, in, i, to[i], bar[i]))
			return;
	}
}
