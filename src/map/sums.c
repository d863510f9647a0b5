/* Arrays and hashes that programs only fold into: which they are, and how copies of their numbers become one.
 *
 * The loader tells how each program it loads uses a map; the agent asks when it makes an instance. Both write first and look
 * afterwards (seq_cst), so that one of them sees the other: either the instance has no replicas, or the program comes too late.
 */
#include "map/internal.h"

#include <errno.h>
#include <string.h>

#include "map/map.h"

/* Notes how a program changes the numbers; whether they agree (ebpf_folds_agree). */
static bool join_folds(uint8_t fold[EBPF_FOLD_HALVES], const uint8_t more[EBPF_FOLD_HALVES], bool from_zero)
{
	bool good = true;
	for (int i = 0; i < EBPF_FOLD_HALVES; i++) {
		uint8_t was = __atomic_load_n(&fold[i], __ATOMIC_SEQ_CST), now;
		do
			now = ebpf_fold_join(was, more[i]);
		while (!__atomic_compare_exchange_n(&fold[i], &was, now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
		good &= now != EBPF_FOLD_MIXED && (!from_zero || ebpf_folds_from_zero(now));
	}
	return good;
}

int session_map_use(
	struct session *s, uint32_t map, const struct ebpf_map_use *use, struct diag *d)
{
	struct session_map row;
	int err = session_map_row(s, map, &row);
	if (err || (!use->folded && !use->other && !use->inserted))
		return err;
	struct session_map *m = &s->file->maps[map];
	__atomic_or_fetch(&m->sampled,
		(use->weighed ? SESSION_WEIGHED : 0) | (use->unweighed ? SESSION_UNWEIGHED : 0), __ATOMIC_RELAXED);
	bool hash = row.type == BPF_MAP_TYPE_HASH, agree = join_folds(m->fold, use->fold, hash);
	uint32_t was = SESSION_SUMS_UNKNOWN;
	if ((hash || row.type == BPF_MAP_TYPE_ARRAY) && !use->other && !use->replaced && agree) {
		__atomic_compare_exchange_n(&m->sums, &was, SESSION_SUMS_YES, false, __ATOMIC_SEQ_CST,
			__ATOMIC_SEQ_CST);
		return 0;
	}
	was = __atomic_exchange_n(&m->sums, SESSION_SUMS_NO, __ATOMIC_SEQ_CST);
	if (!__atomic_load_n(&m->replicated, __ATOMIC_SEQ_CST))
		return 0;
	__atomic_store_n(&m->sums, was, __ATOMIC_RELAXED);
	for (int i = 0; i < EBPF_FOLD_HALVES; i++)
		__atomic_store_n(&m->fold[i], row.fold[i], __ATOMIC_RELAXED);
	return diag_set(d, EBUSY,
		"map %s: until now programs only added to it (or kept bits, a least or greatest value in it), so a device that uses it keeps a "
		"copy on each multiprocessor, and no program there can read it or change it in another way any more; load the program that does "
		"before the first launch",
		row.name);
}

uint32_t session_map_replicas(struct session *s, uint32_t map, uint32_t sms)
{
	struct session_map *m = &s->file->maps[map];
	bool hash = m->type == BPF_MAP_TYPE_HASH;
	/* Copies gain nothing where each thread has its own. */
	if ((!hash && m->type != BPF_MAP_TYPE_ARRAY) || map_threads_of(m) || (m->flags & MAP_FLAG_HOST) || sms < 2 || !m->max_entries || !m->value_size ||
		__atomic_load_n(&m->sums, __ATOMIC_RELAXED) != SESSION_SUMS_YES)
		return 1;
	uint64_t one = hash ? map_hash_replica_bytes(m->value_size, m->max_entries) : map_replica_bytes(m->max_entries, m->value_size);
	if (one > MAP_REPLICAS_BYTES / sms)
		return 1;
	__atomic_store_n(&m->replicated, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&m->sums, __ATOMIC_SEQ_CST) == SESSION_SUMS_YES ? sms : 1;
}

static uint32_t fold32(uint8_t fold, uint32_t a, uint32_t b)
{
	switch (fold) {
	case EBPF_FOLD_OR:
		return a | b;
	case EBPF_FOLD_AND:
		return a & b;
	case EBPF_FOLD_MIN_U32:
		return b < a ? b : a;
	case EBPF_FOLD_MAX_U32:
		return b > a ? b : a;
	case EBPF_FOLD_MIN_S32:
		return (int32_t)b < (int32_t)a ? b : a;
	default:
		return (int32_t)b > (int32_t)a ? b : a;
	}
}

static uint64_t fold64(uint8_t fold, uint64_t a, uint64_t b)
{
	switch (fold) {
	case EBPF_FOLD_MIN_U64:
		return b < a ? b : a;
	case EBPF_FOLD_MAX_U64:
		return b > a ? b : a;
	case EBPF_FOLD_MIN_S64:
		return (int64_t)b < (int64_t)a ? b : a;
	default:
		return (int64_t)b > (int64_t)a ? b : a;
	}
}

static bool is_wide(uint8_t fold)
{
	return fold == EBPF_FOLD_MIN_U64 || fold == EBPF_FOLD_MIN_S64 || fold == EBPF_FOLD_MAX_U64 || fold == EBPF_FOLD_MAX_S64;
}

static bool is_difference(uint8_t fold)
{
	return fold <= EBPF_FOLD_XOR || fold == EBPF_FOLD_MIXED;
}

/* How a copy's bits, least or greatest value is taken. Zero in a copy that began with it says nothing. */
struct taken {
	bool first, from_zero;
};

static bool says_nothing(const struct taken *how, uint64_t number)
{
	return how->from_zero && !number;
}

static uint32_t half(uint8_t fold, uint32_t to, uint32_t copy, uint32_t was, const struct taken *how)
{
	if (fold == EBPF_FOLD_XOR)
		return to ^ copy ^ was;
	if (is_difference(fold))
		return to + copy - was;
	if (how->first || says_nothing(how, to))
		return copy;
	return says_nothing(how, copy) ? to : fold32(fold, to, copy);
}

/* Halves of a word go by themselves where a program changes one of them by itself. */
static uint64_t word(uint8_t low, uint8_t high, uint64_t to, uint64_t copy, uint64_t was, const struct taken *how)
{
	if (low == high && is_wide(low) && (how->first || says_nothing(how, to)))
		return copy;
	if (low == high && is_wide(low))
		return says_nothing(how, copy) ? to : fold64(low, to, copy);
	bool whole = low == EBPF_FOLD_ADD64 || low == EBPF_FOLD_MIXED || low == EBPF_FOLD_NONE;
	if (low == high && whole)
		return to + copy - was;
	uint64_t upper = half(high, (uint32_t)(to >> 32), (uint32_t)(copy >> 32), (uint32_t)(was >> 32), how);
	return upper << 32 | half(low, (uint32_t)to, (uint32_t)copy, (uint32_t)was, how);
}

void map_fold_value(
	const uint8_t fold[EBPF_FOLD_HALVES], uint8_t *to, const uint8_t *copy, const uint8_t *was, bool first, size_t bytes)
{
	const struct taken how = { first, !was };
	for (size_t i = 0; i < bytes; i += 8) {
		const uint8_t *f = &fold[i / 4 % EBPF_FOLD_HALVES];
		uint64_t a, b, c = 0;
		memcpy(&a, to + i, 8);
		memcpy(&b, copy + i, 8);
		if (was)
			memcpy(&c, was + i, 8);
		a = word(f[0], f[1], a, b, c, &how);
		memcpy(to + i, &a, 8);
	}
}
