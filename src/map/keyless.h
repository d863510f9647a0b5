/* keyless.h - one image of a QUEUE, STACK or BLOOM_FILTER (layout.h) that nobody else changes meanwhile: a file of the session that
 * no agent owns, or a device on which nothing runs.
 *
 * Images are read and written piece by piece, at offsets from their headers on, through functions that return 0 or -errno.
 */
#ifndef EGPU_MAP_KEYLESS_H
#define EGPU_MAP_KEYLESS_H

#include <stdint.h>

#include "map/layout.h"

struct keyless {
	uint32_t type, value_size, max_entries;
	uint64_t extra; /* map_extra */
	void *self;
	int (*read)(void *self, uint64_t at, void *to, uint64_t bytes);
	int (*write)(void *self, uint64_t at, const void *from, uint64_t bytes);
};

/* value_size bytes; flags BPF_ANY, or BPF_EXIST: a full queue or stack loses its oldest value. -E2BIG: it is full. */
int keyless_push(const struct keyless *k, const void *value, uint64_t flags);
/* -ENOENT: it is empty. */
int keyless_pop(const struct keyless *k, void *value);
/* The k-th value in the order in which they would be popped, of a QUEUE or STACK. -ENOENT: there are not so many; -EAGAIN: it is being
 * written. */
int keyless_at(const struct keyless *k, uint32_t n, void *value);
/* BLOOM_FILTER: which of the value's bits are set. */
int keyless_bits(const struct keyless *k, const void *value, uint32_t *set);

#endif
