/* exec_move.c - moves: registers, vectors packed into one register, addresses of variables, clocks.
 */
#include "softgpu/internal.h"

#include <string.h>
#include <time.h>

SG_HANDLER(sg_nop)
{
}

SG_HANDLER(sg_mov32)
{
	uint32_t *d = sg_op(w, in->d);
	const uint32_t *a = sg_op(w, in->a);
	SG_LANES(mask, d[i] = a[i];);
}

SG_HANDLER(sg_mov64)
{
	uint64_t *d = sg_op(w, in->d);
	const uint64_t *a = sg_op(w, in->a);
	SG_LANES(mask, d[i] = a[i];);
}

/* One lane of a register whose lanes have `width` bytes; 16: two planes of 8. */
static void lane_get(const uint8_t *reg, uint8_t width, int i, uint8_t *out)
{
	if (width == 16) {
		memcpy(out, reg + i * 8, 8);
		memcpy(out + 8, reg + 256 + i * 8, 8);
	} else {
		memcpy(out, reg + i * width, width);
	}
}

static void lane_put(uint8_t *reg, uint8_t width, int i, const uint8_t *v)
{
	if (width == 16) {
		memcpy(reg + i * 8, v, 8);
		memcpy(reg + 256 + i * 8, v + 8, 8);
	} else {
		memcpy(reg + i * width, v, width);
	}
}

/* d = {list[0], ...}: n elements of `bytes` bytes, first in the low bits. */
SG_HANDLER(sg_mov_pack)
{
	uint8_t src_width = in->bytes > 4 ? 8 : 4;
	SG_LANES(mask, {
		uint8_t v[16] = { 0 };
		uint8_t e[16];
		for (uint32_t k = 0; k < in->n; k++) {
			lane_get(sg_op(w, in->list[k]), src_width, i, e);
			memcpy(v + k * in->bytes, e, in->bytes);
		}
		lane_put(sg_op(w, in->d), in->width, i, v);
	});
}

/* {list[0], ...} = a */
SG_HANDLER(sg_mov_unpack)
{
	uint8_t dst_width = in->bytes > 4 ? 8 : 4;
	SG_LANES(mask, {
		uint8_t v[16] = { 0 };
		lane_get(sg_op(w, in->a), in->width, i, v);
		for (uint32_t k = 0; k < in->n; k++) {
			uint8_t e[8] = { 0 };
			memcpy(e, v + k * in->bytes, in->bytes);
			lane_put(sg_op(w, in->list[k]), dst_width, i, e);
		}
	});
}

/* The address, in its own space or (SG_SYNC, for cvta) the generic one, of a variable. */
SG_HANDLER(sg_mov_address)
{
	uint64_t v = (uint64_t)in->imm, window = 0;
	if (in->addr == SG_ADDR_SHARED) {
		v += w->block->grid->kernel->shared_offset[in->target];
		window = SG_WIN_SHARED << 32;
	} else {
		v += w->frame->local_base;
		window = SG_WIN_LOCAL << 32;
	}
	if (in->flags & SG_SYNC)
		v |= window;
	if (in->width == 8) {
		uint64_t *d = sg_op(w, in->d);
		SG_LANES(mask, d[i] = v;);
	} else {
		uint32_t *d = sg_op(w, in->d);
		SG_LANES(mask, d[i] = (uint32_t)v;);
	}
}

static uint64_t now_ns(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* op 0: the clock, 1: the global timer; sub 1: the upper half. */
SG_HANDLER(sg_mov_clock)
{
	uint64_t v = now_ns(in->op ? CLOCK_REALTIME : CLOCK_MONOTONIC);
	if (in->width == 8) {
		uint64_t *d = sg_op(w, in->d);
		SG_LANES(mask, d[i] = v;);
	} else {
		uint32_t half = (uint32_t)(in->sub ? v >> 32 : v);
		uint32_t *d = sg_op(w, in->d);
		SG_LANES(mask, d[i] = half;);
	}
}
