/* maps.h - arrays and hashes inside a running kernel: map/layout.h, by the protocol of translate/hash.c. For live/interp.c alone. */
#ifndef EGPU_LIVE_DEVICE_MAPS_H
#define EGPU_LIVE_DEVICE_MAPS_H

#include "live/device/gpu.h"
#include "map/layout.h"

enum { TYPE_HASH = 1 };
enum { HASH_SPINS = 1 << 18, HASH_LOOKS = 16 };
enum { E_NOENT = -2, E_2BIG = -7, E_AGAIN = -11, E_BUSY = -16, E_EXIST = -17, E_INVAL = -22, E_OPNOTSUPP = -95 };

INLINE const struct map_image *image(u64 map)
{
	return (const struct map_image *)map;
}

INLINE u32 replica(u32 n)
{
	u32 sm = sm_id();
	return sm < n ? sm : n - 1;
}

INLINE u64 round_up(u64 n, u64 to)
{
	return (n + to - 1) & ~(to - 1);
}

/* 0: past the end. */
INLINE u64 array_value(u64 map, u32 index)
{
	const struct map_image *m = image(map);
	u64 stride = round_up(m->value_size, 8), at = map + MAP_IMAGE_HEADER;
	if (index >= m->max_entries)
		return 0;
	if (m->n_replicas > 1)
		at += replica(m->n_replicas) * round_up(m->max_entries * stride, 128);
	return at + index * stride;
}

struct slots {
	u64 first, value_at;
	u64 bytes;
	u32 mask, hash;
};

INLINE struct slots slots_of(u64 map)
{
	const struct map_image *m = image(map);
	struct slots s = { .first = map + MAP_IMAGE_HEADER };
	u64 n = 8;
	while (n < 2 * (u64)m->max_entries)
		n *= 2;
	s.mask = (u32)n - 1;
	s.value_at = 8 + round_up(m->key_size, 8);
	s.bytes = s.value_at + round_up(m->value_size, 8);
	return s;
}

INLINE u32 hash_key(u64 key, u32 size)
{
	u32 h = 0x9747b28cu;
	for (u32 i = 0; i < size; i += 4) {
		u32 w = 0;
		for (u32 k = 0; k < 4 && i + k < size; k++)
			w |= (u32) * (volatile u8 *)(key + i + k) << (8 * k);
		h = (h ^ w) * 0x85ebca6bu;
		h ^= h >> 13;
	}
	return h;
}

INLINE int same_key(u64 slot, u64 key, u32 size)
{
	for (u32 i = 0; i < size; i++)
		if (*(volatile u8 *)(slot + 8 + i) != *(volatile u8 *)(key + i))
			return 0;
	return 1;
}

INLINE void add32(u64 at, u32 v)
{
	__asm__ volatile("red.add.u32 [%0], %1;" : : "l"(at), "r"(v) : "memory");
}

INLINE void and32(u64 at, u32 v)
{
	__asm__ volatile("red.and.b32 [%0], %1;" : : "l"(at), "r"(v) : "memory");
}

/* The live slot of a key with its word; 0: none. *busy: a slot of its hash is being written. */
INLINE u64 hash_find(u64 map, u64 key, const struct slots *s, u64 *word, int *busy)
{
	u32 size = image(map)->key_size, hash = hash_key(key, size), i = hash & s->mask, reach = 0;
	*busy = 0;
	for (u32 n = 0; n <= reach; n++, i = (i + 1) & s->mask) {
		u64 slot = s->first + i * s->bytes, w = load64(slot);
		u32 state = (u32)w & MAP_SLOT_STATE;
		if (!n)
			reach = (u32)w >> MAP_SLOT_REACH;
		if ((u32)(w >> 32) != hash)
			continue;
		*busy |= state == MAP_SLOT_BUSY;
		if (state != MAP_SLOT_LIVE || !same_key(slot, key, size) || ((load64(slot) ^ w) & (0xffffffff00000000ull | MAP_SLOT_STATE)))
			continue;
		*word = w;
		return slot;
	}
	return 0;
}

INLINE u64 hash_lookup(u64 map, u64 key)
{
	struct slots s = slots_of(map);
	int busy;
	u64 word, slot = hash_find(map, key, &s, &word, &busy);
	return slot ? slot + s.value_at : 0;
}

#define LIVE_COUNT(map) ((map) + 40)
#define LOST(map) ((map) + 32)
#define DELETED(map) ((map) + 64)

INLINE s64 hash_delete(u64 map, u64 key)
{
	struct slots s = slots_of(map);
	for (u32 spins = HASH_SPINS; spins; spins--) {
		int busy;
		u64 word, slot = hash_find(map, key, &s, &word, &busy);
		if (!slot)
			return E_NOENT;
		if (cas64(slot, word, (word & ~(u64)(MAP_SLOT_STATE | MAP_SLOT_USED)) | MAP_SLOT_BUSY) != word)
			continue;
		add64(LIVE_COUNT(map), ~0ull);
		add64(DELETED(map), 1);
		fence();
		add32(slot, ~0u);
		return 0;
	}
	return E_BUSY;
}

/* Claims the first empty slot from the key's home on; how far behind it in *far. 0: none. */
INLINE u64 hash_claim(u32 hash, const struct slots *s, u32 *far)
{
	u32 i = hash & s->mask;
	for (*far = 0; *far <= s->mask && *far <= MAP_SLOT_MAX_REACH; ++*far, i = (i + 1) & s->mask) {
		u64 slot = s->first + i * s->bytes, w = load64(slot);
		if (w & MAP_SLOT_STATE)
			continue;
		if (cas64(slot, w, (u64)hash << 32 | ((u32)w & ~(u32)MAP_SLOT_USED) | MAP_SLOT_BUSY) == w)
			return slot;
	}
	return 0;
}

/* Under the lock of its home a key that is not there. 0 done, 1 try again. */
INLINE s64 hash_insert(u64 map, u64 home, u32 hash, u64 key, u64 value, const struct slots *s)
{
	const struct map_image *m = image(map);
	u64 count = load64(LIVE_COUNT(map)), padded = s->value_at - 8;
	u32 reach = (u32)load64(home) >> MAP_SLOT_REACH, far;
	if ((u32)count + (count >> 32) >= m->max_entries || cas64(LIVE_COUNT(map), count, count + (1ull << 32)) != count)
		return 1;
	u64 slot = hash_claim(hash, s, &far);
	if (!slot) {
		add64(LIVE_COUNT(map), 0xffffffff00000000ull);
		return 1;
	}
	copy(slot + 8, key, m->key_size);
	for (u64 i = m->key_size; i < padded; i++)
		*(volatile u8 *)(slot + 8 + i) = 0;
	copy(slot + s->value_at, value, m->value_size);
	if (far > reach)
		add32(home, (far - reach) << MAP_SLOT_REACH);
	add64(LIVE_COUNT(map), 0xffffffff00000001ull);
	fence();
	add32(slot, MAP_SLOT_LIVE - MAP_SLOT_BUSY);
	fence();
	return 0;
}

INLINE s64 hash_update(u64 map, u64 key, u64 value, u64 flags)
{
	const struct map_image *m = image(map);
	struct slots s = slots_of(map);
	u32 hash = hash_key(key, m->key_size);
	u64 home = s.first + (hash & s.mask) * s.bytes;
	int locked = 0, full = 0;
	u32 looks = HASH_LOOKS;
	u64 deleted = 0;
	s64 result = E_BUSY;
	if (flags > 2)
		return E_INVAL;
	for (u32 spins = HASH_SPINS; spins; spins--) {
		int busy;
		u64 word, slot = hash_find(map, key, &s, &word, &busy), w;
		if (slot || locked) {
			s64 r = slot ? 0 : hash_insert(map, home, hash, key, value, &s);
			if (locked)
				and32(home, ~(u32)MAP_SLOT_LOCK);
			locked = full = 0;
			if (slot && flags == 1)
				return E_EXIST;
			if (slot)
				copy(slot + s.value_at, value, m->value_size);
			if (!r)
				return 0;
			continue;
		}
		if (flags == 2)
			return E_NOENT;
		if (busy) {
			full = 0;
			continue;
		}
		if (full) {
			full = 0;
			fence();
			if (load64(DELETED(map)) != deleted && looks--)
				continue;
			result = E_2BIG;
			break;
		}
		deleted = load64(DELETED(map));
		if ((u32)load64(LIVE_COUNT(map)) >= m->max_entries) {
			full = 1;
			fence();
			continue;
		}
		w = load64(home);
		locked = !(w & MAP_SLOT_LOCK) && cas64(home, w, w | MAP_SLOT_LOCK) == w;
		if (locked)
			fence();
		full = 0;
	}
	if (locked)
		and32(home, ~(u32)MAP_SLOT_LOCK);
	add64(LOST(map), 1);
	return result;
}

INLINE u64 map_lookup(u64 map, u64 key)
{
	return image(map)->type == TYPE_HASH ? hash_lookup(map, key) : array_value(map, *(volatile u32 *)key);
}

INLINE s64 map_update(u64 map, u64 key, u64 value, u64 flags)
{
	if (image(map)->type == TYPE_HASH)
		return hash_update(map, key, value, flags);
	u64 at = array_value(map, *(volatile u32 *)key);
	if (flags > 2)
		return E_INVAL;
	if (!at)
		return E_2BIG;
	if (flags == 1)
		return E_EXIST;
	copy(at, value, image(map)->value_size);
	return 0;
}

#endif
