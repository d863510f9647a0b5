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
 *	                    With R > 1 replicas, on devices, where programs only fold into it: replica r (one per multiprocessor) at 128 + r *
 *	                    round_up(max_entries * stride, 128); each begins as the host's value, and a write from the host goes to all. The
 *	                    reader makes one value of them as of several devices' (map_fold_value).
 *	ARRAY, extra T > 0  elements of T threads: map_threads()
 *	PERCPU_ARRAY        replica r (one per multiprocessor) at 128 + r * round_up(max_entries * stride, 128),
 *	                    value i in it at i * stride
 *	HASH, LRU_HASH      n_slots = the power of two >= 2 * max_entries (at least 8); slot s at
 *	                    128 + s * slot_bytes: u32 state, u32 hash, key (padded to 8), value (padded to 8).
 *	                    state: bits 0-1 of this slot: 0 empty, 1 being written or taken out, 2 live; MAP_SLOT_USED of its key, in LRU maps:
 *	                    looked at since eviction last came by. Of the keys whose home is this slot (hash & (n_slots - 1)): MAP_SLOT_LOCK,
 *	                    one of them is being inserted; bits 8-31, the *reach*: all of them lie in this slot and the next `reach` ones
 *	                    (cyclically). A key never moves while it is live; a deleted one leaves its slot empty for any other. The reach
 *	                    only grows.
 *	HASH                With R > 1 replicas, on devices, where programs only fold into values in ways that begin with zero, and no key is deleted or
 *	                    overwritten by a program: behind the slots, at map_hash_replicas_at(), replica r (one per multiprocessor) at r *
 *	                    map_hash_replica_bytes(), in it for slot s at s * stride what is to be folded into the slot's value; zeros where no key is.
 *	                    Keys of slots that are not live have all bits set there: a look-up through a cache that is not coherent finds
 *	                    a key's bytes or these.
 *	PERCPU_HASH,        slots as above without values, at 128 + s * slot_bytes; behind them, at the next multiple of 128 bytes of data, replica r
 *	LRU_PERCPU_HASH     (one per multiprocessor) at r * round_up(n_slots * stride, 128), in it the value of slot s at s * stride.
 *	QUEUE, STACK        n_slots = the power of two >= max_entries (STACK: max_entries); slot s at 128 + s * map_queue_slot_bytes(): u64 changes, odd:
 *	                    there is a value; then the value. In the header, `live`: values in its low half, with MAP_STACK_LOCK while a
 *	                    full stack loses its oldest; in its high half of a queue the number of the oldest, of a stack a count of changes.
 *	                    Value k from the oldest on is in slot (number + k) & (n_slots - 1) of a queue, and of a stack in slot
 *	                    (first + k) mod n_slots. max_entries counts for each image by itself. An instance takes the values that the
 *	                    host's image has when it is made: no value is in two images.
 *	STACK_TRACE         n = the power of two >= max_entries; id i at 128 + i * 8: u32 site + 1 (0: none), u32 frames to leave out. A site's
 *	                    id is its number & (n - 1).
 *	BLOOM_FILTER        map_bloom_bits() bits; value v is there when the bits map_bloom_bit(map_hash_key(v), 0, 1, ...) are 1, as many as its
 *	                    map_extra says. What is in any image is in the map.
 *	RINGBUF             a control part, in device memory and sessions, and behind it bins with records, in device memory alone. For R replicas
 *	                    (one per multiprocessor) there are B = 2 * R bins of map_ring_bin_bytes():
 *	                      R times 256: u32 hint (see below), at 128 u64 records dropped here: an atomic would take the hint out of the L1 cache
 *	                      B lines of 64: u64 committed bytes of the bin
 *	                      B lines of 64: u64 head: bytes reserved in the bin
 *	                      bin b's data at map_ring_data_at(R) + b * map_ring_bin_bytes()
 *	                    Reserving n bytes adds n to a head; old head + n <= size of the bin: they are [old head, + n). Else the bin is
 *	                    *closed*, and whoever closed it (old head < size) fills the rest with MAP_RING_FILL. Adding to a closed bin's head
 *	                    reserves nothing, so that the agent may empty it by storing 0 in committed, then in head, while the device goes on.
 *	                    Bytes are added to `committed` once they are written for good: a bin whose committed (read first) equals its
 *	                    head (read second), or its size when closed, holds nothing half-written.
 *	                    Multiprocessor m tries bin (2 * m) xor hint; where that is closed its own two, 2 * m and 2 * m + 1, then a few others
 *	                    at random, and keeps what it found as its hint. (In turn, multiprocessors that meet would stay together for good,
 *	                    at one head for all.) Where it found none it sets MAP_RING_FULL and then mostly drops without a look; the agent
 *	                    has such a hint name a bin with room when there is one.
 *	                    A bin holds groups, each a multiple of 16 bytes: struct map_ring_group, then the records of a warp's lanes, each
 *	                    padded to 8. Groups of one bin are in the order of reservation.
 */
#ifndef EGPU_MAP_LAYOUT_H
#define EGPU_MAP_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define MAP_IMAGE_MAGIC 0x494d4745u /* "EGMI" */
#define MAP_RING_BUSY 0x80000000u
#define MAP_RING_DISCARD 0x40000000u

enum { MAP_IMAGE_HEADER = 128, MAP_RING_HEADER = 8 };

/* A flag of arrays and hashes beside the kernel's own, EGPU_F_HOST in egpu/probe.bpf.h: the instance's image in the session is itself the device's. */
#define MAP_FLAG_HOST 0x40000000u

/* Arrays whose replicas would take more have one. */
enum { MAP_REPLICAS_BYTES = 16 << 20 };

enum {
	MAP_RING_LINE = 256,	    /* of a multiprocessor */
	MAP_RING_LOST = 128,	    /* in it */
	MAP_RING_COUNT_LINE = 64,   /* of a bin's committed bytes, and of its head */
	MAP_RING_BINS = 2,	    /* a multiprocessor */
	MAP_RING_MIN_BIN = 32 << 10, /* where the ring is that large */
	MAP_RING_SHARE = 256,	    /* a larger ring's bin is this part of it */
	MAP_RING_GROUP = 16,
	MAP_RING_LANES_SHIFT = 24,
};

/* Head of a group: bytes of one record | lanes - 1 << 24, or MAP_RING_FILL | bytes to skip, these included. */
#define MAP_RING_FILL 0x40000000u
#define MAP_RING_SIZE_MASK 0x00ffffffu
#define MAP_RING_FULL 0x80000000u

struct map_ring_group {
	uint32_t head;
	uint32_t present; /* bit k: record k was submitted; else it was discarded */
	uint64_t time;	  /* %globaltimer when it was reserved */
};

#define MAP_STACK_LOCK 0x80000000u

enum { MAP_SLOT_EMPTY, MAP_SLOT_BUSY, MAP_SLOT_LIVE };
enum {
	MAP_SLOT_STATE = 3, /* mask */
	MAP_SLOT_USED = 4,
	MAP_SLOT_LOCK = 8,
	MAP_SLOT_REACH = 8, /* shift */
	MAP_SLOT_MAX_REACH = 0xffffff,
};

struct map_image {
	uint32_t magic;
	uint32_t type; /* enum bpf_map_type */
	uint32_t key_size, value_size, max_entries;
	uint32_t n_replicas; /* per-CPU types, RINGBUF: on a device its multiprocessors, in the host's own image the possible CPUs (RINGBUF: 1); else 1 */
	uint64_t data_bytes; /* after the header */
	uint64_t lost;	     /* hashes: insertions refused for want of room, device atomics; RINGBUF, in sessions: records dropped on the device */
	uint64_t live;	     /* hashes: live keys in the low 32 bits; device atomics. High: insertions under way on the device, 0 at rest.
			      * QUEUE, STACK: see above */
	uint64_t produced;   /* RINGBUF, in sessions: bytes of groups known to be reserved so far */
	uint64_t consumed;   /* RINGBUF, in sessions: bytes of groups taken so far */
	uint64_t deleted;    /* hashes: keys taken out on the device; device atomics */
	uint32_t first;	     /* STACK: the slot of the oldest value */
	uint32_t pad;
	uint64_t reserved[6];
};
_Static_assert(sizeof(struct map_image) == MAP_IMAGE_HEADER, "image header");
_Static_assert(offsetof(struct map_image, lost) == 32, "lost");
_Static_assert(offsetof(struct map_image, live) == 40, "live");
_Static_assert(offsetof(struct map_image, produced) == 48, "produced");
_Static_assert(offsetof(struct map_image, consumed) == 56, "consumed");
_Static_assert(offsetof(struct map_image, deleted) == 64, "deleted");
_Static_assert(offsetof(struct map_image, first) == 72, "first");

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

/* Numbers of enum bpf_map_type, for device code that has no kernel headers. */
enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_KIND_ARRAY = 2,
	MAP_PERCPU_HASH = 5,
	MAP_PERCPU_ARRAY = 6,
	MAP_LRU_HASH = 9,
	MAP_LRU_PERCPU_HASH = 10,
	MAP_KIND_QUEUE = 22,
	MAP_KIND_STACK = 23,
	MAP_KIND_BLOOM_FILTER = 30,
};

static inline int map_is_array(uint32_t type)
{
	return type == MAP_KIND_ARRAY || type == MAP_PERCPU_ARRAY;
}

/* An ARRAY whose `extra` is T has elements of T threads, and max_entries counts all of them: that of key k and thread t, which is
 * numbered in its grid, x first, is k * T + t. 0: an array as any other. */
static inline uint32_t map_threads(uint32_t type, uint64_t extra, uint32_t max_entries)
{
	return type == MAP_KIND_ARRAY && extra && extra <= max_entries && !(max_entries % extra) ? (uint32_t)extra : 0;
}

/* The same of a struct with these members: a program's map, or a session's row. */
#define map_threads_of(m) map_threads((m)->type, (m)->extra, (m)->max_entries)

static inline int map_is_hash(uint32_t type)
{
	return type == MAP_HASH || type == MAP_PERCPU_HASH || type == MAP_LRU_HASH || type == MAP_LRU_PERCPU_HASH;
}

static inline int map_is_lru(uint32_t type)
{
	return type == MAP_LRU_HASH || type == MAP_LRU_PERCPU_HASH;
}

static inline int map_is_per_cpu(uint32_t type)
{
	return type == MAP_PERCPU_ARRAY || type == MAP_PERCPU_HASH || type == MAP_LRU_PERCPU_HASH;
}

static inline int map_is_queue(uint32_t type)
{
	return type == MAP_KIND_QUEUE || type == MAP_KIND_STACK;
}

/* Maps without keys, in the images of which values come and go or bits are set. */
static inline int map_is_keyless(uint32_t type)
{
	return map_is_queue(type) || type == MAP_KIND_BLOOM_FILTER;
}

static inline uint64_t map_stack_ids(uint32_t max_entries)
{
	uint64_t n = 1;
	while (n < max_entries)
		n *= 2;
	return n;
}

/* What stands for a frame's address: a site's row of the session, or a kernel's. Not an address of any machine. */
#define MAP_FRAME_SITE UINT64_C(0xe6b1000000000000)
#define MAP_FRAME_KERNEL UINT64_C(0xe6b2000000000000)

/* Positions of a queue wrap around at 2^32. */
static inline uint64_t map_queue_slots(uint32_t type, uint32_t max_entries)
{
	uint64_t n = 1;
	while (n < max_entries)
		n *= 2;
	return type == MAP_KIND_STACK ? max_entries : n;
}

static inline uint64_t map_queue_slot_bytes(uint32_t value_size)
{
	return 8 + map_stride(value_size);
}

/* The slot of the value that k others are older than, in an image whose header says live and first. */
static inline uint64_t map_queue_slot(uint32_t type, uint32_t max_entries, uint64_t live, uint32_t first, uint32_t k)
{
	if (type == MAP_KIND_STACK)
		return ((uint64_t)first + k) % max_entries;
	return ((uint32_t)(live >> 32) + k) & (map_queue_slots(type, max_entries) - 1);
}

/* `live` of a queue or stack when a value came, and when one was taken (of a stack also when its oldest went: then `first` is the next
 * slot). */
static inline uint64_t map_queue_pushed(uint32_t type, uint64_t live)
{
	return live + 1 + (type == MAP_KIND_STACK ? UINT64_C(1) << 32 : 0);
}

static inline uint64_t map_queue_popped(uint64_t live)
{
	return live - 1 + (UINT64_C(1) << 32);
}

/* As many bits as the kernel's filter of the most hash functions has, at least. */
enum { MAP_BLOOM_BITS_A_VALUE = 21, MAP_BLOOM_HASHES = 5, MAP_BLOOM_MAX_HASHES = 15 };

static inline uint64_t map_bloom_bits(uint32_t max_entries)
{
	uint64_t n = 64;
	while (n < (uint64_t)max_entries * MAP_BLOOM_BITS_A_VALUE && n < UINT64_C(1) << 32)
		n *= 2;
	return n;
}

static inline uint32_t map_bloom_hashes(uint64_t extra)
{
	return extra ? (uint32_t)extra : MAP_BLOOM_HASHES;
}

/* The i-th bit of a value, from its hash; device code computes the same. */
static inline uint64_t map_bloom_bit(uint32_t hash, uint32_t i, uint32_t max_entries)
{
	uint32_t x = hash + i * 0x9e3779b9u;
	x = (x ^ x >> 16) * 0x85ebca6bu;
	x = (x ^ x >> 13) * 0xc2b2ae35u;
	x ^= x >> 16;
	return x & (map_bloom_bits(max_entries) - 1);
}

static inline uint64_t map_hash_slot_bytes(uint32_t type, uint32_t key_size, uint32_t value_size)
{
	return 8 + map_round_up(key_size, 8) + (map_is_per_cpu(type) ? 0 : map_stride(value_size));
}

/* Bytes of the slots of a per-CPU hash, behind which its replicas begin; and of a replica. */
static inline uint64_t map_hash_slots_bytes(uint32_t key_size, uint32_t max_entries)
{
	return map_round_up(map_hash_slots(max_entries) * map_hash_slot_bytes(MAP_PERCPU_HASH, key_size, 0), 128);
}

/* Where the replicas of a HASH begin in its data, behind the slots. */
static inline uint64_t map_hash_replicas_at(uint32_t key_size, uint32_t value_size, uint32_t max_entries)
{
	return map_round_up(map_hash_slots(max_entries) * map_hash_slot_bytes(MAP_HASH, key_size, value_size), 128);
}

static inline uint64_t map_hash_replica_bytes(uint32_t value_size, uint32_t max_entries)
{
	return map_round_up(map_hash_slots(max_entries) * map_stride(value_size), 128);
}

/* Where in the data a slot's value is; replica: of a per-CPU hash, else 0. */
static inline uint64_t map_hash_value_at(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries, uint64_t slot,
	uint32_t replica)
{
	if (map_is_per_cpu(type))
		return map_hash_slots_bytes(key_size, max_entries) + replica * map_hash_replica_bytes(value_size, max_entries) +
		       slot * map_stride(value_size);
	return slot * map_hash_slot_bytes(type, key_size, value_size) + 8 + map_round_up(key_size, 8);
}

/* A record of more than this less MAP_RING_GROUP bytes never fits. */
static inline uint32_t map_ring_bin_bytes(uint32_t max_entries)
{
	uint32_t n = max_entries / MAP_RING_SHARE;
	if (n < MAP_RING_MIN_BIN)
		n = MAP_RING_MIN_BIN;
	return n < max_entries ? n : max_entries;
}

/* Offsets in an image of n_replicas; the control part ends where the data begin. */
static inline uint64_t map_ring_committed_at(uint32_t n_replicas)
{
	return MAP_IMAGE_HEADER + (uint64_t)n_replicas * MAP_RING_LINE;
}

static inline uint64_t map_ring_head_at(uint32_t n_replicas)
{
	return map_ring_committed_at(n_replicas) + (uint64_t)n_replicas * MAP_RING_BINS * MAP_RING_COUNT_LINE;
}

static inline uint64_t map_ring_data_at(uint32_t n_replicas)
{
	return map_ring_head_at(n_replicas) + (uint64_t)n_replicas * MAP_RING_BINS * MAP_RING_COUNT_LINE;
}

/* Bytes of a group of n records of this size. */
static inline uint64_t map_ring_group_bytes(uint64_t bytes, uint32_t n)
{
	return map_round_up(MAP_RING_GROUP + n * map_round_up(bytes, 8), 16);
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
