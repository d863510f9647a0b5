#include "map/keyless.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>

static int ends(const struct keyless *k, uint64_t *live, uint32_t *first)
{
	int err = k->read(k->self, offsetof(struct map_image, live), live, sizeof(*live));
	return err ? err : k->read(k->self, offsetof(struct map_image, first), first, sizeof(*first));
}

static uint64_t slot_at(const struct keyless *k, uint64_t slot)
{
	return MAP_IMAGE_HEADER + slot * map_queue_slot_bytes(k->value_size);
}

/* What a damaged header says is no more than there can be. */
static uint32_t count(const struct keyless *k, uint64_t live)
{
	uint32_t n = (uint32_t)live & ~MAP_STACK_LOCK;
	return n < k->max_entries ? n : k->max_entries;
}

/* Counts a change: the state is odd where there is a value. */
static int set_state(const struct keyless *k, uint64_t slot, bool full)
{
	uint64_t state;
	int err = k->read(k->self, slot_at(k, slot), &state, sizeof(state));
	if ((state & 1) != full)
		state++;
	return err ? err : k->write(k->self, slot_at(k, slot), &state, sizeof(state));
}

static int set_live(const struct keyless *k, uint64_t live)
{
	return k->write(k->self, offsetof(struct map_image, live), &live, sizeof(live));
}

static int drop_oldest(const struct keyless *k, uint64_t *live, uint32_t *first)
{
	int err = set_state(k, map_queue_slot(k->type, k->max_entries, *live, *first, 0), false);
	*live = map_queue_popped(*live);
	*first = k->type == MAP_KIND_STACK ? (uint32_t)(((uint64_t)*first + 1) % k->max_entries) : 0;
	if (!err)
		err = k->write(k->self, offsetof(struct map_image, first), first, sizeof(*first));
	return err ? err : set_live(k, *live);
}

/* The state goes after the value, so that a reader never finds one half-written. */
static int queue_push(const struct keyless *k, const void *value, uint64_t flags)
{
	uint64_t live;
	uint32_t first;
	int err = ends(k, &live, &first);
	if (!err && count(k, live) == k->max_entries)
		err = flags & BPF_EXIST ? drop_oldest(k, &live, &first) : -E2BIG;
	if (err)
		return err;
	uint64_t slot = map_queue_slot(k->type, k->max_entries, live, first, count(k, live));
	err = k->write(k->self, slot_at(k, slot) + 8, value, k->value_size);
	if (!err)
		err = set_state(k, slot, true);
	return err ? err : set_live(k, map_queue_pushed(k->type, live));
}

static uint64_t slot_of_nth(const struct keyless *k, uint64_t live, uint32_t first, uint32_t n)
{
	return map_queue_slot(k->type, k->max_entries, live, first,
		k->type == MAP_KIND_STACK ? count(k, live) - 1 - n : n);
}

int keyless_at(const struct keyless *k, uint32_t n, void *value)
{
	uint64_t live, state;
	uint32_t first;
	int err = ends(k, &live, &first);
	if (err)
		return err;
	if (n >= count(k, live))
		return -ENOENT;
	uint64_t at = slot_at(k, slot_of_nth(k, live, first, n));
	err = k->read(k->self, at, &state, sizeof(state));
	if (!err && !(state & 1))
		return -EAGAIN;
	return err ? err : k->read(k->self, at + 8, value, k->value_size);
}

int keyless_pop(const struct keyless *k, void *value)
{
	uint64_t live;
	uint32_t first;
	int err = keyless_at(k, 0, value);
	if (!err)
		err = ends(k, &live, &first);
	if (!err)
		err = set_state(k, slot_of_nth(k, live, first, 0), false);
	return err ? err : set_live(k, map_queue_popped(live));
}

/* -- Bloom filters -- */

/* The word that holds the i-th bit of the value with this hash, and the bit in it. */
static uint64_t bit_at(const struct keyless *k, uint32_t hash, uint32_t i, uint32_t *bit)
{
	uint64_t n = map_bloom_bit(hash, i, k->max_entries);
	*bit = 1u << (n & 31);
	return MAP_IMAGE_HEADER + n / 32 * 4;
}

int keyless_bits(const struct keyless *k, const void *value, uint32_t *set)
{
	uint32_t hash = map_hash_key(value, k->value_size), bit, word;
	*set = 0;
	for (uint32_t i = 0; i < map_bloom_hashes(k->extra); i++) {
		int err = k->read(k->self, bit_at(k, hash, i, &bit), &word, sizeof(word));
		if (err)
			return err;
		*set |= (word & bit ? 1u : 0) << i;
	}
	return 0;
}

static int bloom_push(const struct keyless *k, const void *value)
{
	uint32_t hash = map_hash_key(value, k->value_size), bit, word;
	int err = 0;
	for (uint32_t i = 0; i < map_bloom_hashes(k->extra) && !err; i++) {
		uint64_t at = bit_at(k, hash, i, &bit);
		err = k->read(k->self, at, &word, sizeof(word));
		word |= bit;
		if (!err)
			err = k->write(k->self, at, &word, sizeof(word));
	}
	return err;
}

int keyless_push(const struct keyless *k, const void *value, uint64_t flags)
{
	return k->type == MAP_KIND_BLOOM_FILTER ? bloom_push(k, value) : queue_push(k, value, flags);
}
