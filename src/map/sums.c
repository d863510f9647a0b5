/* Arrays that programs only add to: which they are, and how their words are summed.
 *
 * The loader tells how each program it loads uses a map; the agent asks when it makes an instance. Both write first and look
 * afterwards (seq_cst), so that one of them sees the other: either the instance has no replicas, or the program comes too late.
 */
#include "map/internal.h"

#include <errno.h>
#include <string.h>

#include "map/map.h"

int session_map_use(
	struct session *s, uint32_t map, const struct ebpf_map_use *use, struct diag *d)
{
	struct session_map row;
	int err = session_map_row(s, map, &row);
	if (err || (!use->added && !use->other && !use->inserted))
		return err;
	struct session_map *m = &s->file->maps[map];
	__atomic_or_fetch(&m->sampled,
		(use->weighed ? SESSION_WEIGHED : 0) | (use->unweighed ? SESSION_UNWEIGHED : 0), __ATOMIC_RELAXED);
	uint64_t whole = __atomic_or_fetch(&m->whole, use->whole, __ATOMIC_SEQ_CST);
	uint64_t halves = __atomic_or_fetch(&m->halves, use->halves, __ATOMIC_SEQ_CST);
	uint32_t was = SESSION_SUMS_UNKNOWN;
	if (row.type == BPF_MAP_TYPE_ARRAY && !use->other && !(whole & halves)) {
		__atomic_compare_exchange_n(&m->sums, &was, SESSION_SUMS_YES, false, __ATOMIC_SEQ_CST,
			__ATOMIC_SEQ_CST);
		return 0;
	}
	was = __atomic_exchange_n(&m->sums, SESSION_SUMS_NO, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&m->replicated, __ATOMIC_SEQ_CST))
		return 0;
	__atomic_store_n(&m->sums, was, __ATOMIC_RELAXED);
	__atomic_store_n(&m->whole, row.whole, __ATOMIC_RELAXED);
	__atomic_store_n(&m->halves, row.halves, __ATOMIC_RELAXED);
	return diag_set(d, EBUSY,
		"map %s: until now programs only added to it, so a device that uses it keeps a copy on each multiprocessor, "
		"and no program there can read it any more; load the program that does before the first launch",
		row.name);
}

uint32_t session_map_replicas(struct session *s, uint32_t map, uint32_t sms)
{
	struct session_map *m = &s->file->maps[map];
	if (m->type != BPF_MAP_TYPE_ARRAY || (m->flags & MAP_FLAG_HOST) || sms < 2 || !m->max_entries || !m->value_size ||
		__atomic_load_n(&m->sums, __ATOMIC_RELAXED) != SESSION_SUMS_YES)
		return 1;
	uint64_t one = map_replica_bytes(m->max_entries, m->value_size);
	if (one > MAP_REPLICAS_BYTES / sms)
		return 1;
	__atomic_store_n(&m->replicated, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&m->sums, __ATOMIC_SEQ_CST) == SESSION_SUMS_YES ? sms : 1;
}

/* Two sums in one word do not carry into each other. */
static uint64_t halves_add(uint64_t a, uint64_t b, uint64_t c)
{
	uint32_t low = (uint32_t)a + (uint32_t)b - (uint32_t)c;
	uint32_t high = (uint32_t)(a >> 32) + (uint32_t)(b >> 32) - (uint32_t)(c >> 32);
	return (uint64_t)high << 32 | low;
}

void map_words_add(
	uint64_t halves, uint8_t *to, const uint8_t *from, const uint8_t *minus, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t a, b, c = 0;
		memcpy(&a, to + i, 8);
		memcpy(&b, from + i, 8);
		if (minus)
			memcpy(&c, minus + i, 8);
		a = halves >> (i / 8 & 63) & 1 ? halves_add(a, b, c) : a + b - c;
		memcpy(to + i, &a, 8);
	}
}
