/* SPDX-License-Identifier: Apache-2.0 */
/* access.h - the records that egpu_access_output (probe.bpf.h) sends: one access to memory by the lanes of a warp.
 *
 * 16 bytes where the lanes' accesses lie side by side, 24 where they are an equal distance apart, 32 where that holds for each
 * quarter of the warp (tiles of 8 or 16 columns); else 16 bytes and 4 or 8 a lane. Little-endian:
 *
 *	u32 site, u32 mask	lanes that took part
 *	u64			bits 0-55 address of the lowest of them; 56-58 shape; 59-61 log2 of the bytes a lane, 7: another
 *				number; 62-63 operation (enum egpu_op)
 *	DENSE			nothing: lane distance times bytes
 *	LINEAR			s32 distance between neighbouring lanes, u32 0
 *	QUARTERS		the same s32, then s32 for quarters 1, 2, 3: what the address of its lowest lane is beyond the first
 *	NEAR			s32 for each lane of the mask, in order: what its address is beyond the first
 *	FAR			u64 for each lane: its address
 */
#ifndef EGPU_ACCESS_H
#define EGPU_ACCESS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum egpu_access_shape {
	EGPU_ACCESS_DENSE,
	EGPU_ACCESS_LINEAR,
	EGPU_ACCESS_QUARTERS,
	EGPU_ACCESS_NEAR,
	EGPU_ACCESS_FAR,
};

struct egpu_access {
	uint32_t site, mask;
	uint32_t bytes; /* of one lane; 0: not a power of two up to 64 */
	uint32_t op;	/* enum egpu_op */
	enum egpu_access_shape shape;
	uint64_t address[32]; /* of the lanes in mask; else 0 */
};

static inline int64_t egpu_access_s32(const void *record, size_t at)
{
	int32_t v;
	memcpy(&v, (const char *)record + at, sizeof(v));
	return v;
}

/* 0, or -1: no such record. */
static inline int egpu_access_decode(const void *record, size_t size, struct egpu_access *out)
{
	uint64_t word, base;
	size_t n = 0;
	if (size < 16)
		return -1;
	memset(out, 0, sizeof(*out));
	memcpy(&out->site, record, 4);
	memcpy(&out->mask, (const char *)record + 4, 4);
	memcpy(&word, (const char *)record + 8, 8);
	uint32_t shape = word >> 56 & 7, log = word >> 59 & 7, lanes = (uint32_t)__builtin_popcount(out->mask);
	base = word & 0x00ffffffffffffff;
	out->op = (uint32_t)(word >> 62);
	out->bytes = log < 7 ? 1u << log : 0;
	if (!lanes || shape > EGPU_ACCESS_FAR || (shape == EGPU_ACCESS_DENSE && log == 7 && lanes > 1))
		return -1;
	out->shape = (enum egpu_access_shape)shape;
	const size_t sizes[] = { 16, 24, 32, 16 + 4 * (size_t)lanes, 16 + 8 * (size_t)lanes };
	if (size != sizes[shape])
		return -1;
	uint32_t first = (uint32_t)__builtin_ctz(out->mask), quarter = 4, head = 0;
	uint64_t stride = shape == EGPU_ACCESS_DENSE ? out->bytes
			  : shape <= EGPU_ACCESS_QUARTERS ? (uint64_t)egpu_access_s32(record, 16)
							  : 0;
	for (uint32_t lane = 0; lane < 32; lane++) {
		if (!(out->mask >> lane & 1))
			continue;
		if (quarter != lane / 8) {
			quarter = lane / 8;
			head = lane;
		}
		uint64_t a = base;
		if (shape <= EGPU_ACCESS_LINEAR)
			a += stride * (lane - first);
		else if (shape == EGPU_ACCESS_QUARTERS)
			a += stride * (lane - head) + (quarter > first / 8 ? (uint64_t)egpu_access_s32(record, 16 + 4 * quarter) : 0);
		else if (shape == EGPU_ACCESS_NEAR)
			a += (uint64_t)egpu_access_s32(record, 16 + 4 * n);
		else
			memcpy(&a, (const char *)record + 16 + 8 * n, 8);
		out->address[lane] = a;
		n++;
	}
	return 0;
}

#endif
