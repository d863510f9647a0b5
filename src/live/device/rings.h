/* rings.h - ring buffers and bpf_printk's records inside a running kernel, by the protocol of translate/ring.c. For live/interp.c alone. */
#ifndef EGPU_LIVE_DEVICE_RINGS_H
#define EGPU_LIVE_DEVICE_RINGS_H

#include "live/device/maps.h"

enum { RING_TRIES = 6, RING_LOOK_TRIES = 2, RING_LOOK_EVERY = 16, RING_MAX_FLAG = 3 }; /* of translate/ring.c */
enum { PRINT_HEADER = 32, PRINT_ARGS = 3, MAX_STRING = 512 };

/* Any bin. */
INLINE u32 ring_any(u32 bins, u32 tries)
{
	return (u32)((u64)((u32)clock64() + tries * 0x9e3779b9u) * 0x85ebca6bu % bins);
}

/* Each lane by itself, with a group of its own for each record; 0: dropped, and counted. */
INLINE u64 ring_reserve(u64 map, u64 bytes)
{
	const struct map_image *m = image(map);
	u32 sms = m->n_replicas, size = map_ring_bin_bytes(m->max_entries), bins = sms * MAP_RING_BINS, sm = replica(sms), fits;
	u64 line = map + MAP_IMAGE_HEADER + (u64)sm * MAP_RING_LINE, need = map_ring_group_bytes(bytes, 1);
	u32 home = sm * MAP_RING_BINS, word = *(volatile u32 *)line, bin = home ^ word, tries = RING_TRIES;
	if (bin >= bins) {
		tries = (u32)clock64() % RING_LOOK_EVERY ? 0 : RING_LOOK_TRIES;
		bin = ring_any(bins, tries);
	}
	fits = bytes <= size && need <= size; /* what fits no bin must not close them all */
	for (; fits && tries; tries--) {
		u64 data = map + map_ring_data_at(sms) + (u64)bin * size, old = add64(map + map_ring_head_at(sms) + (u64)bin * MAP_RING_COUNT_LINE, need);
		if (old + need <= size) {
			if ((bin ^ home) != word)
				*(volatile u32 *)line = bin ^ home;
			*(volatile u32 *)(data + old) = (u32)bytes;
			*(volatile u32 *)(data + old + 4) = 1;
			store64(data + old + 8, global_timer());
			return data + old + MAP_RING_GROUP;
		}
		if (old < size) {
			*(volatile u32 *)(data + old) = MAP_RING_FILL | (u32)(size - old);
			add64(map + map_ring_committed_at(sms) + (u64)bin * MAP_RING_COUNT_LINE, size - old);
		}
		u32 own = tries - 1 - (RING_TRIES - MAP_RING_BINS);
		bin = own < MAP_RING_BINS && own != word ? home + own : ring_any(bins, tries);
		if (tries == 1)
			*(volatile u32 *)line = MAP_RING_FULL;
	}
	add64(line + MAP_RING_LOST, 1);
	return 0;
}

INLINE void ring_commit(u64 map, u64 record)
{
	const struct map_image *m = image(map);
	u32 sms = m->n_replicas, bytes = *(volatile u32 *)(record - MAP_RING_GROUP) & MAP_RING_SIZE_MASK;
	u32 bin = (u32)((record - map - map_ring_data_at(sms)) / map_ring_bin_bytes(m->max_entries));
	add64(map + map_ring_committed_at(sms) + (u64)bin * MAP_RING_COUNT_LINE, map_ring_group_bytes(bytes, 1));
}

INLINE s64 ring_output(u64 map, u64 from, u64 bytes, u64 flags)
{
	if (flags > RING_MAX_FLAG)
		return E_INVAL;
	u64 record = ring_reserve(map, bytes);
	if (!record)
		return E_AGAIN;
	copy(record, from, bytes);
	ring_commit(map, record);
	return 0;
}

/* BPF_RB_AVAIL_DATA 0, RING_SIZE 1, CONS_POS 2, PROD_POS 3: of the bin that this multiprocessor fills. */
INLINE u64 ring_query(u64 map, u64 what)
{
	const struct map_image *m = image(map);
	u32 sms = m->n_replicas, size = map_ring_bin_bytes(m->max_entries), bins = sms * MAP_RING_BINS, sm = replica(sms);
	u32 home = sm * MAP_RING_BINS, bin = home ^ *(volatile u32 *)(map + MAP_IMAGE_HEADER + (u64)sm * MAP_RING_LINE);
	u64 made = load64(map + map_ring_head_at(sms) + (u64)(bin < bins ? bin : home) * MAP_RING_COUNT_LINE);
	if (what == 1)
		return m->max_entries;
	return what != 0 && what != 3 ? 0 : made < size ? made : size;
}

/* A line of text: u32 bytes of the format, u32 arguments, u64 args[3], format (translate/helper.c). twice: each % stands for itself. */
INLINE s64 print(u64 map, u64 format, u64 bytes, const u64 *args, int twice)
{
	u64 percents = 0, n = 0, length = bytes;
	for (u64 i = 0; i < bytes; i++) {
		int is = *(volatile u8 *)(format + i) == '%', pair = is && i + 1 < bytes && *(volatile u8 *)(format + i + 1) == '%';
		percents += is;
		n += is && !pair;
		i += !twice && pair;
	}
	length += twice ? percents : 0;
	u64 record = map ? ring_reserve(map, PRINT_HEADER + length) : 0;
	if (!record)
		return E_AGAIN;
	*(volatile u32 *)record = (u32)length;
	*(volatile u32 *)(record + 4) = twice ? 0 : n < PRINT_ARGS ? (u32)n : PRINT_ARGS;
	for (u64 i = 0; i < PRINT_ARGS; i++)
		store64(record + 8 + 8 * i, i < n && !twice ? args[i] : 0);
	u64 to = record + PRINT_HEADER;
	for (u64 i = 0; i < bytes; i++) {
		u8 c = *(volatile u8 *)(format + i);
		*(volatile u8 *)to++ = c;
		if (twice && c == '%')
			*(volatile u8 *)to++ = c;
	}
	ring_commit(map, record);
	return (s64)bytes;
}

INLINE u64 string_bytes(u64 at)
{
	u64 n = 1;
	while (n < MAX_STRING && *(volatile u8 *)(at + n - 1))
		n++;
	return n;
}

#endif
