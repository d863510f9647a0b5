/* Ring buffers: from a device's copy into ring-ID, and from there to a consumer. */
#include "map/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint32_t LENGTH_MASK = ~(MAP_RING_BUSY | MAP_RING_DISCARD);

static struct ring_mapping *map_ring_open(struct session *s, uint32_t map, int *err)
{
	struct session_map row;
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	*err = session_map_row(s, map, &row);
	if (!*err && row.type != BPF_MAP_TYPE_RINGBUF)
		*err = -EINVAL;
	if (!*err)
		*err = session_file_path(s, path, "ring-%u", map);
	int fd = *err ? *err : file_open(path, O_RDWR, s->owner, &size);
	if (fd < 0) {
		*err = fd;
		return NULL;
	}
	uint64_t bytes = sizeof(struct map_ring) + row.max_entries;
	struct ring_mapping *r = size == bytes ? malloc(sizeof(*r)) : NULL;
	void *p = r ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
		    : MAP_FAILED;
	close(fd);
	if (p == MAP_FAILED) {
		free(r);
		*err = size == bytes ? -ENOMEM : -EINVAL;
		return NULL;
	}
	*r = (struct ring_mapping){
		.ring = p, .bytes = (size_t)bytes, .max_entries = row.max_entries
	};
	return r;
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
	struct ring_mapping *mine = map_ring_open(s, map, err);
	if (!mine)
		return NULL;
	if (__atomic_compare_exchange_n(
		    &s->rings[map], &have, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return mine;
	munmap(mine->ring, mine->bytes); /* another thread was first */
	free(mine);
	return have;
}

/* A few tries, then -EAGAIN: the agent comes again. The lock of a dead process is taken over; what
 * it had begun is invisible, because the producer position moves last. */
static int map_ring_lock(struct map_ring *ring)
{
	uint32_t me = (uint32_t)getpid();
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
	uint32_t me = (uint32_t)getpid();
	__atomic_compare_exchange_n(&ring->lock, &me, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

enum record { RECORD_NONE, RECORD_DATA, RECORD_SKIP, RECORD_BAD };

/* The record at *pos of a device ring's copy; *pos moves past one that is committed. Records of a
 * device ring never wrap. */
static enum record map_ring_next(
	const struct map_image *image, uint64_t *pos, const uint8_t **data, uint32_t *bytes)
{
	const uint8_t *ring = (const uint8_t *)(image + 1);
	uint64_t left = image->produced - *pos, at = *pos & (image->max_entries - 1);
	uint32_t head;
	if (!left)
		return RECORD_NONE;
	if (left > image->max_entries || (*pos & 7))
		return RECORD_BAD;
	memcpy(&head, ring + at, sizeof(head));
	if (!head || (head & MAP_RING_BUSY))
		return RECORD_NONE;
	uint64_t n = MAP_RING_HEADER + map_round_up(head & LENGTH_MASK, 8);
	if (n > left || n > image->max_entries - at)
		return RECORD_BAD;
	*pos += n;
	*data = ring + at + MAP_RING_HEADER;
	*bytes = head & LENGTH_MASK;
	return head & MAP_RING_DISCARD ? RECORD_SKIP : RECORD_DATA;
}

static bool map_ring_image_ok(const struct map_image *image)
{
	return image->magic == MAP_IMAGE_MAGIC && image->type == BPF_MAP_TYPE_RINGBUF &&
	       image->max_entries >= 8 && !(image->max_entries & (image->max_entries - 1)) &&
	       image->data_bytes == image->max_entries;
}

uint64_t map_ring_committed(const struct map_image *image, uint64_t consumed)
{
	const uint8_t *data;
	uint32_t bytes;
	enum record r = RECORD_SKIP;
	while (map_ring_image_ok(image) && (r == RECORD_SKIP || r == RECORD_DATA))
		r = map_ring_next(image, &consumed, &data, &bytes);
	/* A damaged record ends here too; draining counts it. */
	return r == RECORD_BAD ? image->produced : consumed;
}

static void map_ring_lose(struct map_ring *ring, uint64_t n)
{
	__atomic_fetch_add(&ring->lost, n, __ATOMIC_RELAXED);
}

/* Copies n bytes to a position of the ring's data, around its end. */
static void map_ring_put(const struct ring_mapping *r, uint64_t pos, const void *from, uint64_t n)
{
	uint8_t *data = (uint8_t *)(r->ring + 1);
	uint64_t at = pos & (r->max_entries - 1), first = r->max_entries - at;
	if (first > n)
		first = n;
	memcpy(data + at, from, first);
	memcpy(data, (const uint8_t *)from + first, n - first);
}

/* Appends one record: false when there is no room. *producer is the caller's, published once for
 * all. */
static bool map_ring_append(
	const struct ring_mapping *r, uint64_t *producer, const void *data, uint32_t bytes)
{
	uint64_t consumer = __atomic_load_n(&r->ring->consumer, __ATOMIC_ACQUIRE);
	uint64_t used = *producer - consumer, n = MAP_RING_HEADER + map_round_up(bytes, 8);
	if (used > r->max_entries || n > r->max_entries - used)
		return false;
	uint32_t head[2] = { bytes, 0 };
	map_ring_put(r, *producer, head, sizeof(head));
	map_ring_put(r, *producer + MAP_RING_HEADER, data, map_round_up(bytes, 8));
	*producer += n;
	return true;
}

int map_ring_drain(
	struct session *s, uint32_t map, const struct map_image *image, uint64_t *consumed)
{
	int err, taken = 0;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r)
		return err;
	if (!map_ring_image_ok(image) || image->max_entries != r->max_entries)
		return -EINVAL;
	if (*consumed == image->produced)
		return 0;
	err = map_ring_lock(r->ring);
	if (err)
		return err;
	/* The position is rounded, because a hostile one must not make positions of records odd. */
	uint64_t producer = __atomic_load_n(&r->ring->producer, __ATOMIC_RELAXED) & ~7ull;
	bool full = false;
	for (;;) {
		const uint8_t *data;
		uint32_t bytes;
		uint64_t pos = *consumed;
		enum record kind = map_ring_next(image, &pos, &data, &bytes);
		if (kind == RECORD_NONE)
			break;
		if (kind ==
			RECORD_BAD) { /* the target wrote over it: nothing behind it can be found */
			map_ring_lose(r->ring, 1);
			*consumed = image->produced;
			break;
		}
		if (kind == RECORD_DATA) {
			full = !map_ring_append(r, &producer, data, bytes);
			if (full)
				break;
			taken++;
		}
		*consumed = pos;
	}
	/* Pairs with the consumer's acquire of producer. */
	__atomic_store_n(&r->ring->producer, producer, __ATOMIC_RELEASE);
	map_ring_unlock(r->ring);
	return !taken && full ? -EAGAIN : taken;
}

void map_ring_give_up(
	struct session *s, uint32_t map, const struct map_image *image, uint64_t consumed)
{
	const uint8_t *data;
	uint32_t bytes;
	uint64_t n = 0;
	int err;
	const struct ring_mapping *r = map_ring_get(s, map, &err);
	if (!r || !map_ring_image_ok(image) || image->max_entries != r->max_entries)
		return;
	for (;;) {
		enum record kind = map_ring_next(image, &consumed, &data, &bytes);
		n += kind == RECORD_DATA || kind == RECORD_BAD;
		if (kind == RECORD_NONE || kind == RECORD_BAD)
			break;
	}
	/* Reserved and never committed: one more, whatever its size. */
	n += consumed != image->produced && image->produced - consumed <= image->max_entries;
	map_ring_lose(r->ring, n);
}
