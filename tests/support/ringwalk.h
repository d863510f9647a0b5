/* ringwalk.h - every record of a ring buffer's device memory, read back whole. */
#ifndef TEST_RINGWALK_H
#define TEST_RINGWALK_H

#include <string.h>

#include "map/map.h"

struct ringwalk {
	uint64_t records, discarded, groups, fills, closed, lost, bad;
};

/* fn is called for each submitted record. bad counts bins whose committed bytes are not what was reserved, and damaged groups. */
static inline struct ringwalk ring_walk(const void *memory, void (*fn)(void *arg, const void *record, uint32_t bytes), void *arg)
{
	const struct map_image *image = memory;
	const uint8_t *base = memory;
	uint32_t size = map_ring_bin_bytes(image->max_entries), bins = image->n_replicas * MAP_RING_BINS;
	struct ringwalk w = { 0 };
	for (uint32_t r = 0; r < image->n_replicas; r++) {
		uint64_t lost;
		memcpy(&lost, base + MAP_IMAGE_HEADER + r * MAP_RING_LINE + MAP_RING_LOST, 8);
		w.lost += lost;
	}
	for (uint32_t b = 0; b < bins; b++) {
		uint64_t committed, head;
		memcpy(&committed, base + map_ring_committed_at(image->n_replicas) + b * MAP_RING_COUNT_LINE, 8);
		memcpy(&head, base + map_ring_head_at(image->n_replicas) + b * MAP_RING_COUNT_LINE, 8);
		const uint8_t *at = base + map_ring_data_at(image->n_replicas) + (uint64_t)b * size;
		uint64_t left = head < size ? head : size;
		w.closed += head > size;
		w.bad += committed != left;
		while (left) {
			struct map_ring_group g;
			uint32_t bytes, n;
			uint64_t total = map_ring_group_read(at, left, &g, &bytes, &n);
			if (!total) {
				w.bad++;
				break;
			}
			w.groups += n != 0;
			w.fills += !n;
			for (uint32_t k = 0; k < n; k++) {
				if (!(g.present >> k & 1)) {
					w.discarded++;
					continue;
				}
				w.records++;
				if (fn)
					fn(arg, at + MAP_RING_GROUP + k * map_round_up(bytes, 8), bytes);
			}
			at += total;
			left -= total;
		}
	}
	return w;
}

/* What the agent does with a ring that it has emptied. */
static inline void ring_empty(void *memory)
{
	struct map_image *image = memory;
	uint8_t *from = (uint8_t *)memory + map_ring_committed_at(image->n_replicas);
	memset(from, 0, map_ring_data_at(image->n_replicas) - map_ring_committed_at(image->n_replicas));
	for (uint32_t r = 0; r < image->n_replicas; r++)
		memset((uint8_t *)memory + MAP_IMAGE_HEADER + r * MAP_RING_LINE, 0, 4);
}

#endif
