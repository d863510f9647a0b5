/* layout.h - a map's image: the bytes that live on a device and, as a copy, in the session.
 *
 * One layout for device memory, softgpu memory and shared memory, so that moving a map is a plain
 * copy and only the reader knows its meaning. Little-endian, fixed width. The translator's code and the
 * readers (map.h) both follow this page.
 *
 *	offset 0            struct map_image (128 bytes)
 *	offset 128          data, by type:
 *
 *	ARRAY               value i at 128 + i * stride, stride = round_up(value_size, 8)
 *	PERCPU_ARRAY        replica r (one per multiprocessor) at 128 + r * round_up(max_entries * stride, 128),
 *	                    value i in it at i * stride
 *	HASH                n_slots = the power of two >= 2 * max_entries (at least 8); slot s at
 *	                    128 + s * slot_bytes: u32 state, u32 hash, key (padded to 8), value (padded to 8).
 *	                    state: 0 empty, 1 being written, 2 live, 3 dead (deleted; its key stays, and only the same key
 *	                    takes it again, so a key never moves and never has two slots). Linear probing from hash & (n_slots - 1).
 *	RINGBUF             max_entries (a power of two >= 4096) bytes of records; positions grow without bound. A record is u32 length |
 *	                    MAP_RING_BUSY | MAP_RING_DISCARD, u32 0, payload padded to 8; it never wraps: the rest of the ring is
 *	                    filled with a discarded record. `produced` moves before the header is written: a header of 0 is a record not
 *	                    yet marked busy. Whoever moves `consumed` on a device zeroes the bytes it has taken first.
 */
#ifndef EGPU_MAP_LAYOUT_H
#define EGPU_MAP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define MAP_IMAGE_MAGIC 0x494d4745u /* "EGMI" */
#define MAP_RING_BUSY 0x80000000u
#define MAP_RING_DISCARD 0x40000000u

enum { MAP_IMAGE_HEADER = 128, MAP_RING_HEADER = 8 };

enum { MAP_SLOT_EMPTY, MAP_SLOT_BUSY, MAP_SLOT_LIVE, MAP_SLOT_DEAD };

struct map_image {
	uint32_t magic;
	uint32_t type; /* enum bpf_map_type */
	uint32_t key_size, value_size, max_entries;
	uint32_t n_replicas; /* PERCPU: on a device its multiprocessors, in the host's own image the possible CPUs; else 1 */
	uint64_t data_bytes; /* after the header */
	uint64_t lost;	     /* records dropped (RINGBUF) or insertions refused for want of room (HASH); device atomics */
	uint64_t live;	     /* HASH: live keys in the low 32 bits; device atomics. High: insertions under way on the device, 0 at rest */
	uint64_t produced;   /* RINGBUF: reserved so far, bytes; device atomics */
	uint64_t consumed;   /* RINGBUF: taken so far, bytes; written by the agent only */
	uint64_t reserved[8];
};
_Static_assert(sizeof(struct map_image) == MAP_IMAGE_HEADER, "image header");
_Static_assert(offsetof(struct map_image, lost) == 32, "lost");
_Static_assert(offsetof(struct map_image, live) == 40, "live");
_Static_assert(offsetof(struct map_image, produced) == 48, "produced");
_Static_assert(offsetof(struct map_image, consumed) == 56, "consumed");

static inline uint64_t map_round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static inline uint64_t map_stride(uint32_t value_size)
{
	return map_round_up(value_size, 8);
}

static inline uint64_t map_replica_bytes(uint32_t max_entries, uint32_t value_size)
{
	return map_round_up(max_entries * map_stride(value_size), 128);
}

static inline uint64_t map_hash_slots(uint32_t max_entries)
{
	uint64_t n = 8;
	while (n < 2 * (uint64_t)max_entries)
		n *= 2;
	return n;
}

static inline uint64_t map_hash_slot_bytes(uint32_t key_size, uint32_t value_size)
{
	return 8 + map_round_up(key_size, 8) + map_stride(value_size);
}

/* The hash of a key: 32-bit words of the zero-padded key, folded; the device code computes the same.
 * h = 0x9747b28c; for each 4-byte little-endian word w of the key padded with zeros to a multiple of 4:
 * h = (h ^ w) * 0x85ebca6b; h ^= h >> 13. */
static inline uint32_t map_hash_key(const void *key, uint32_t key_size)
{
	const uint8_t *p = (const uint8_t *)key;
	uint32_t h = 0x9747b28cu;
	for (uint32_t i = 0; i < key_size; i += 4) {
		uint32_t w = 0;
		for (uint32_t k = 0; k < 4 && i + k < key_size; k++)
			w |= (uint32_t)p[i + k] << (8 * k);
		h = (h ^ w) * 0x85ebca6bu;
		h ^= h >> 13;
	}
	return h;
}

#endif
