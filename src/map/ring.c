/* Ring buffers: groups of records that agents copy from devices into raw-ID, and the records of
 * these in ring-ID, for consumers of the kernel's layout.
 *
 * Both files are struct map_ring with max_entries bytes. The data are mapped twice in a row, so
 * that nothing ends at the end. raw-ID's lock word is held by whoever appends to either.
 */
#include "map/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "map/map.h"

static struct map_ring *map_ring_map(int fd, uint32_t max_entries, size_t *mapped)
{
	size_t once = sizeof(struct map_ring) + max_entries;
	char *p = mmap(NULL, once + max_entries, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	*mapped = once + max_entries;
	if (mmap(p, once, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED &&
		mmap(p + once, max_entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			sizeof(struct map_ring)) != MAP_FAILED)
		return (struct map_ring *)(void *)p;
	munmap(p, *mapped);
	return NULL;
}

static struct map_ring *map_ring_open(struct session *s, const char *pattern, uint32_t map,
	uint32_t max_entries, size_t *mapped, int *err)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	*err = session_file_path(s, path, pattern, map);
	int fd = *err ? *err : file_open(path, O_RDWR, s->owner, &size);
	if (fd < 0) {
		*err = fd;
		return NULL;
	}
	struct map_ring *r = NULL;
	*err = -EINVAL;
	if (size == sizeof(struct map_ring) + max_entries) {
		r = map_ring_map(fd, max_entries, mapped);
		*err = r ? 0 : -ENOMEM;
	}
	close(fd);
	return r;
}

void map_ring_forget(struct ring_mapping *r)
{
	if (r && r->ring)
		munmap(r->ring, r->mapped);
	if (r && r->raw)
		munmap(r->raw, r->mapped);
	free(r);
}

void map_ring_retire(struct session *s, struct ring_mapping *r)
{
	if (!r)
		return;
	/* The files may live on, under their number or another process's eyes. */
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	mmap(r->ring, r->mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
	mmap(r->raw, r->mapped, PROT_READ | PROT_WRITE, flags, -1, 0);
	r->next = __atomic_load_n(&s->retired, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(
		&s->retired, &r->next, r, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

static struct ring_mapping *map_ring_new(struct session *s, uint32_t map, int *err)
{
	struct session_map row;
	*err = session_map_row(s, map, &row);
	if (!*err && row.type != BPF_MAP_TYPE_RINGBUF)
		*err = -EINVAL;
	struct ring_mapping *r = *err ? NULL : calloc(1, sizeof(*r));
	if (!r) {
		*err = *err ? *err : -ENOMEM;
		return NULL;
	}
	r->max_entries = row.max_entries;
	r->ring = map_ring_open(s, "ring-%u", map, row.max_entries, &r->mapped, err);
	if (r->ring)
		r->raw = map_ring_open(s, "raw-%u", map, row.max_entries, &r->mapped, err);
	if (r->raw)
		return r;
	map_ring_forget(r);
	return NULL;
}

const struct ring_mapping *map_ring_get(struct session *s, uint32_t map, int *err)
{
	struct ring_mapping *have = NULL;
	*err = 0;
	if (map >= EBPF_MAX_MAPS) {
		*err = -ENOENT;
		return NULL;
	}
	have = __atomic_load_n(&s->rings[map], __ATOMIC_ACQUIRE);
	if (have)
		return have;
	struct ring_mapping *mine = map_ring_new(s, map, err);
	if (!mine)
		return NULL;
	if (__atomic_compare_exchange_n(
		    &s->rings[map], &have, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return mine;
	map_ring_forget(mine); /* another thread was first */
	return have;
}

int map_ring_file(struct session *s, uint32_t map)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	int err = session_file_path(s, path, "ring-%u", map);
	return err ? err : file_open(path, O_RDWR, s->owner, &size);
}

int map_ring_memory(struct session *s, uint32_t map, void **at, size_t *bytes)
{
	int err;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r)
		return err;
	*at = r->raw;
	*bytes = sizeof(struct map_ring) + r->max_entries;
	return 0;
}

/* A few tries, then -EAGAIN: the agent comes again. The lock of a dead process is taken over; what
 * it had begun is invisible, because the producer position moves last. */
static int map_ring_lock(struct map_ring *ring)
{
	uint32_t me = (uint32_t)process_self();
	for (int i = 0; i < 100; i++) {
		uint32_t holder = 0;
		if (__atomic_compare_exchange_n(
			    &ring->lock, &holder, me, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 0;
		if (holder != me && !process_alive((pid_t)holder, 0) &&
			__atomic_compare_exchange_n(&ring->lock, &holder, me, false,
				__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 0;
		file_sleep_ms(0);
	}
	return -EAGAIN;
}

static void map_ring_unlock(struct map_ring *ring)
{
	uint32_t me = (uint32_t)process_self();
	__atomic_compare_exchange_n(&ring->lock, &me, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void map_ring_lose(const struct ring_mapping *r, uint64_t n)
{
	__atomic_fetch_add(&r->ring->lost, n, __ATOMIC_RELAXED);
}

/* -- groups -- */

uint64_t map_ring_group_read(
	const void *at, uint64_t left, struct map_ring_group *out, uint32_t *bytes, uint32_t *n)
{
	uint64_t total;
	*bytes = *n = 0;
	if (left < sizeof(*out))
		return 0;
	memcpy(out, at, sizeof(*out)); /* once: somebody may be writing */
	if (out->head & MAP_RING_FILL) {
		total = out->head & ~MAP_RING_FILL;
		return total && !(total & 15) && total <= left ? total : 0;
	}
	*bytes = out->head & MAP_RING_SIZE_MASK;
	*n = (out->head >> MAP_RING_LANES_SHIFT) + 1;
	total = map_ring_group_bytes(*bytes, *n);
	if (!*bytes || *n > 32 || total > left)
		return 0;
	if (*n < 32)
		out->present &= (1u << *n) - 1;
	return total;
}

uint64_t map_ring_count(const void *groups, uint64_t bytes, bool *damaged)
{
	const uint8_t *at = groups;
	struct map_ring_group g;
	uint64_t records = 0;
	uint32_t size, n;
	*damaged = false;
	while (bytes) {
		uint64_t total = map_ring_group_read(at, bytes, &g, &size, &n);
		if (!total) {
			*damaged = true;
			break;
		}
		records += n ? (uint32_t)__builtin_popcount(g.present) : 0;
		at += total;
		bytes -= total;
	}
	return records;
}

static uint8_t *ring_data(struct map_ring *ring, uint64_t pos, uint32_t max_entries)
{
	return (uint8_t *)(ring + 1) + (pos & (max_entries - 1));
}

/* Bytes between two positions of a file that anybody may have scribbled over; too many: none. */
static uint64_t ring_used(
	const struct map_ring *ring, uint32_t max_entries, uint64_t *from, uint64_t align)
{
	uint64_t end = __atomic_load_n(&ring->producer, __ATOMIC_ACQUIRE);
	*from = __atomic_load_n(&ring->consumer, __ATOMIC_ACQUIRE);
	if (end - *from > max_entries || (*from & (align - 1)) || (end & (align - 1))) {
		*from = map_round_up(end, align);
		return 0;
	}
	return end - *from;
}

static void copy_words(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
	for (uint64_t k = 0; k < bytes; k += 8)
		memcpy(to + k, from + k, 8);
}

/* The group's records at a position of ring-ID; false: no room. */
static bool map_ring_put(const struct ring_mapping *r, const uint8_t *group,
	const struct map_ring_group *g, uint32_t bytes, uint32_t n, uint64_t *producer,
	uint64_t room)
{
	uint64_t padded = map_round_up(bytes, 8), each = MAP_RING_HEADER + padded;
	if (each * (uint32_t)__builtin_popcount(g->present) > room)
		return false;
	uint32_t head[2] = { bytes, (uint32_t)(g->time >> MAP_RING_TIME_SHIFT) };
	const uint8_t *from = group + MAP_RING_GROUP;
	for (uint32_t k = 0; k < n; k++, from += padded) {
		if (!(g->present >> k & 1))
			continue;
		uint8_t *to = ring_data(r->ring, *producer, r->max_entries);
		memcpy(to, head, sizeof(head));
		copy_words(to + MAP_RING_HEADER, from, padded);
		*producer += each;
	}
	return true;
}

/* Moves what raw-ID holds to ring-ID, as far as there is room; the records moved. The lock is held
 * and nobody reads raw-ID. */
static int map_ring_expand(const struct ring_mapping *r)
{
	uint64_t pos, consumer, left = ring_used(r->raw, r->max_entries, &pos, 16),
				used = ring_used(r->ring, r->max_entries, &consumer, 8), moved = 0;
	uint64_t producer = consumer + used, room = r->max_entries - used, start = producer;
	while (left) {
		struct map_ring_group g;
		uint32_t bytes, n;
		const uint8_t *at = ring_data(r->raw, pos, r->max_entries);
		uint64_t total = map_ring_group_read(at, left, &g, &bytes, &n);
		if (!total) { /* the target wrote over it: nothing behind it can be found */
			map_ring_lose(r, 1);
			total = left;
		} else if (n) {
			if (!map_ring_put(
				    r, at, &g, bytes, n, &producer, room - (producer - start)))
				break;
			moved += (uint32_t)__builtin_popcount(g.present);
		}
		pos += total;
		left -= total;
	}
	__atomic_store_n(&r->raw->consumer, pos, __ATOMIC_RELEASE);
	/* Pairs with the consumer's acquire of producer. */
	__atomic_store_n(&r->ring->producer, producer, __ATOMIC_RELEASE);
	return (int)moved;
}

/* -- the agent's side -- */

/* Whether somebody takes the groups themselves. A dead reader's mark is removed. */
static bool map_ring_has_reader(const struct ring_mapping *r)
{
	uint32_t pid = __atomic_load_n(&r->raw->reader, __ATOMIC_ACQUIRE);
	if (!pid)
		return false;
	if (pid == (uint32_t)process_self() || process_alive((pid_t)pid, 0))
		return true;
	__atomic_compare_exchange_n(
		&r->raw->reader, &pid, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	return false;
}

int map_ring_begin(struct session *s, uint32_t map, uint64_t least, struct map_ring_room *room)
{
	int err;
	uint64_t from;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r)
		return err;
	err = map_ring_lock(r->raw);
	if (err)
		return err;
	if (!map_ring_has_reader(r))
		map_ring_expand(r);
	uint64_t used = ring_used(r->raw, r->max_entries, &from, 16), pos = from + used;
	if (!used) /* positions that made no sense begin anew, and the reader's with them */
		__atomic_store_n(&r->raw->consumer, pos, __ATOMIC_RELEASE);
	room->bytes = r->max_entries - used;
	room->at = pos;
	if (room->bytes >= least)
		return 0;
	map_ring_unlock(r->raw);
	return -EAGAIN;
}

uint64_t map_ring_piece(struct session *s, uint32_t map, uint64_t at, uint64_t bytes, void **to)
{
	int err;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r)
		return 0;
	uint64_t first = r->max_entries - (at & (r->max_entries - 1));
	*to = ring_data(r->raw, at, r->max_entries);
	return bytes < first ? bytes : first;
}

int map_ring_end(struct session *s, uint32_t map, const struct map_ring_room *room, uint64_t bytes)
{
	int err, moved = 0;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r)
		return err;
	if (bytes) {
		__atomic_store_n(&r->raw->producer, room->at + bytes, __ATOMIC_RELEASE);
		if (!map_ring_has_reader(r))
			moved = map_ring_expand(r);
	}
	map_ring_unlock(r->raw);
	return moved;
}

int map_ring_flush(struct session *s, uint32_t map)
{
	int err, moved = 0;
	uint64_t from, left;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r)
		return err;
	if (!ring_used(r->raw, r->max_entries, &from, 16) || map_ring_has_reader(r))
		return 0;
	err = map_ring_lock(r->raw);
	if (err)
		return err;
	moved = map_ring_expand(r);
	left = ring_used(r->raw, r->max_entries, &from, 16);
	map_ring_unlock(r->raw);
	return left ? -EAGAIN : moved;
}

void map_ring_give_up(struct session *s, uint32_t map, uint64_t lost)
{
	int err;
	uint64_t from;
	bool damaged;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r)
		return;
	map_ring_lose(r, lost);
	if (map_ring_lock(r->raw))
		return;
	if (!map_ring_has_reader(r)) {
		map_ring_expand(r);
		uint64_t left = ring_used(r->raw, r->max_entries, &from, 16);
		uint64_t n =
			map_ring_count(ring_data(r->raw, from, r->max_entries), left, &damaged);
		map_ring_lose(r, n + damaged);
		__atomic_store_n(&r->raw->consumer, from + left, __ATOMIC_RELEASE);
	}
	map_ring_unlock(r->raw);
}

/* -- readers -- */

int map_ring_consume_ring(const struct ring_mapping *r,
	int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg)
{
	uint64_t pos, left = ring_used(r->ring, r->max_entries, &pos, 8);
	int n = 0, stop = 0;
	while (!stop && left && n < INT32_MAX) {
		const uint8_t *at = ring_data(r->ring, pos, r->max_entries);
		uint32_t head;
		memcpy(&head, at, sizeof(head));
		uint32_t bytes = head & ~(MAP_RING_BUSY | MAP_RING_DISCARD);
		uint64_t record = MAP_RING_HEADER + map_round_up(bytes, 8);
		if (record > left) { /* overwritten: begin anew */
			pos += left;
			break;
		}
		pos += record;
		left -= record;
		if (!(head & MAP_RING_DISCARD)) {
			stop = fn(arg, at + MAP_RING_HEADER, bytes);
			n++;
		}
		/* Frees the room; pairs with the producer's acquire. */
		__atomic_store_n(&r->ring->consumer, pos, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&r->ring->consumer, pos, __ATOMIC_RELEASE);
	return n;
}

struct stamped {
	uint64_t pos;
	int64_t time; /* relative to the first record's */
};

static int by_time(const void *a, const void *b)
{
	const struct stamped *x = a, *y = b;
	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->pos < y->pos ? -1 : x->pos > y->pos;
}

/* The records from *pos on, `left` bytes, as they arrived; NULL: no memory. */
static struct stamped *list_records(const struct ring_mapping *r, uint64_t pos, uint64_t left, size_t *n)
{
	struct stamped *all = malloc((size_t)(left / 16 + 1) * sizeof(*all));
	uint32_t head[2], first = 0;
	*n = 0;
	while (all && left) {
		memcpy(head, ring_data(r->ring, pos, r->max_entries), sizeof(head));
		uint64_t record = MAP_RING_HEADER +
				  map_round_up(head[0] & ~(MAP_RING_BUSY | MAP_RING_DISCARD), 8);
		if (record > left || record < 16)
			break;
		first = *n ? first : head[1];
		if (!(head[0] & MAP_RING_DISCARD))
			all[(*n)++] = (struct stamped){ pos, (int32_t)(head[1] - first) };
		pos += record;
		left -= record;
	}
	return all;
}

/* A record's bytes, no more than lie before `end`: somebody may have written since. */
static const uint8_t *record_at(
	const struct ring_mapping *r, uint64_t pos, uint64_t end, uint32_t *bytes)
{
	const uint8_t *at = ring_data(r->ring, pos, r->max_entries);
	memcpy(bytes, at, sizeof(*bytes));
	*bytes &= ~(MAP_RING_BUSY | MAP_RING_DISCARD);
	return *bytes <= end - pos - MAP_RING_HEADER ? at + MAP_RING_HEADER : NULL;
}

int map_ring_consume_sorted(const struct ring_mapping *r,
	int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg)
{
	uint64_t pos, left = ring_used(r->ring, r->max_entries, &pos, 8), end = pos + left;
	size_t n, k;
	int stop = 0;
	struct stamped *all = list_records(r, pos, left, &n);
	if (!all)
		return -ENOMEM;
	qsort(all, n, sizeof(*all), by_time);
	for (k = 0; k < n && !stop; k++) {
		uint32_t bytes;
		const uint8_t *data = record_at(r, all[k].pos, end, &bytes);
		if (data)
			stop = fn(arg, data, bytes);
	}
	free(all);
	__atomic_store_n(&r->ring->consumer, end, __ATOMIC_RELEASE);
	return (int)k;
}

/* The record as it was while nobody had taken it: false when somebody has. */
static bool copy_record(const struct ring_mapping *r, uint64_t pos, uint64_t end, uint8_t **to, size_t *cap,
	uint32_t *bytes)
{
	const uint8_t *data = record_at(r, pos, end, bytes);
	if (!data)
		return false;
	if (*cap < *bytes) {
		free(*to);
		*to = malloc(*bytes);
		*cap = *to ? *bytes : 0;
	}
	if (!*to)
		return false;
	memcpy(*to, data, *bytes);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return (int64_t)(__atomic_load_n(&r->ring->consumer, __ATOMIC_ACQUIRE) - pos) <= 0;
}

int map_ring_look_at(const struct ring_mapping *r, bool sorted,
	int (*fn)(void *arg, const void *data, uint32_t bytes, int64_t ns), void *arg)
{
	uint64_t pos, left = ring_used(r->ring, r->max_entries, &pos, 8), end = pos + left;
	size_t n, cap = 0;
	int stop = 0, shown = 0;
	uint8_t *copy = NULL;
	int64_t first = 0;
	struct stamped *all = list_records(r, pos, left, &n);
	if (!all)
		return -ENOMEM;
	if (sorted)
		qsort(all, n, sizeof(*all), by_time);
	for (size_t k = 0; k < n && !stop; k++) {
		uint32_t bytes;
		if (!copy_record(r, all[k].pos, end, &copy, &cap, &bytes))
			continue;
		first = shown++ ? first : all[k].time;
		stop = fn(arg, copy, bytes, (all[k].time - first) * (1 << MAP_RING_TIME_SHIFT));
	}
	free(copy);
	free(all);
	return shown;
}

static int by_group_time(const void *a, const void *b)
{
	const struct map_ring_group *x = *(const struct map_ring_group *const *)a,
				    *y = *(const struct map_ring_group *const *)b;
	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x < y ? -1 : x > y;
}

int map_ring_by_time(const void *groups, uint64_t bytes, const void ***sorted, size_t *n)
{
	const uint8_t *at = groups;
	int err = 0;
	/* None is shorter than its head and a padded record. */
	const void **all = malloc((size_t)(bytes / (2 * MAP_RING_GROUP) + 1) * sizeof(*all));
	*sorted = all;
	*n = 0;
	while (all && bytes && !err) {
		struct map_ring_group g;
		uint32_t size, records;
		uint64_t total = map_ring_group_read(at, bytes, &g, &size, &records);
		err = total ? 0 : -EBADMSG;
		if (total && records)
			all[(*n)++] = at;
		at += total;
		bytes -= total;
	}
	if (all)
		qsort(all, *n, sizeof(*all), by_group_time);
	return all ? err : -ENOMEM;
}

/* After the last agent has gone, its remainder is moved by who reads. */
void map_ring_refill(const struct ring_mapping *r)
{
	uint64_t from;
	if (!ring_used(r->raw, r->max_entries, &from, 16) || map_ring_has_reader(r) ||
		map_ring_lock(r->raw))
		return;
	map_ring_expand(r);
	map_ring_unlock(r->raw);
}

int map_ring_peek_raw(const struct ring_mapping *r, const void **groups, uint64_t *bytes)
{
	uint32_t nobody = 0, me = (uint32_t)process_self();
	uint64_t from;
	if (!__atomic_compare_exchange_n(
		    &r->raw->reader, &nobody, me, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) &&
		nobody != me) {
		if (process_alive((pid_t)nobody, 0))
			return -EBUSY;
		__atomic_store_n(&r->raw->reader, me, __ATOMIC_RELEASE);
	}
	*bytes = ring_used(r->raw, r->max_entries, &from, 16);
	*groups = ring_data(r->raw, from, r->max_entries);
	return 0;
}

void map_ring_advance_raw(const struct ring_mapping *r, uint64_t bytes)
{
	uint64_t from, used = ring_used(r->raw, r->max_entries, &from, 16);
	/* The agent sees the room once what was there has been read. */
	__atomic_store_n(&r->raw->consumer, from + (bytes < used ? bytes : used), __ATOMIC_RELEASE);
}

int map_ring_positions(struct session *s, uint32_t map, uint64_t *produced, uint64_t *consumed)
{
	int err;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	*produced = *consumed = 0;
	if (!r)
		return err;
	map_ring_refill(r);
	*produced = __atomic_load_n(&r->ring->producer, __ATOMIC_ACQUIRE);
	*consumed = __atomic_load_n(&r->ring->consumer, __ATOMIC_ACQUIRE);
	return 0;
}
