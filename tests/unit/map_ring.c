/* Ring buffers: from a device ring's copy to a consumer. */
#include "map_fixture.h"

#include <pthread.h>

enum { RING = 4096 };

struct device_ring {
	struct map_image head;
	uint8_t data[RING];
};

/* What device code does: reserves, writes, commits. Zeroed room is assumed, as the agent leaves it.
 * False: full. */
static bool device_put(struct device_ring *r, uint32_t bytes, uint8_t fill, uint32_t flags)
{
	uint64_t n = MAP_RING_HEADER + map_round_up(bytes, 8), at = r->head.produced & (RING - 1);
	uint64_t skip = n > RING - at ? RING - at : 0;
	if (r->head.produced + skip + n - r->head.consumed > RING) {
		r->head.lost++;
		return false;
	}
	if (skip) {
		uint32_t head = (uint32_t)(skip - MAP_RING_HEADER) | MAP_RING_DISCARD;
		memcpy(r->data + at, &head, 4);
		r->head.produced += skip;
		at = 0;
	}
	uint32_t head = bytes | flags;
	memset(r->data + at + 8, fill, bytes);
	memcpy(r->data + at, &head, 4);
	r->head.produced += n;
	return true;
}

static void device_taken(struct device_ring *r, uint64_t consumed)
{
	for (uint64_t p = r->head.consumed; p != consumed; p++)
		r->data[p & (RING - 1)] = 0;
	r->head.consumed = consumed;
}

struct seen {
	uint32_t n, bytes, bad, limit;
	uint8_t next;
};

static int on_record(void *arg, const void *data, uint32_t bytes)
{
	struct seen *s = arg;
	for (uint32_t i = 0; i < bytes; i++)
		s->bad += ((const uint8_t *)data)[i] != s->next;
	s->next++;
	s->n++;
	s->bytes += bytes;
	return s->limit && s->n >= s->limit;
}

static struct device_ring *ring_new(void)
{
	struct device_ring *r = calloc(1, sizeof(*r));
	map_image_init(&r->head, BPF_MAP_TYPE_RINGBUF, 0, 0, RING, 1);
	return r;
}

static void test_order_and_wrap(struct session *s, uint32_t id)
{
	struct device_ring *r = ring_new();
	struct map *m;
	struct seen seen = { 0 };
	uint64_t consumed = 0;
	uint32_t put = 0;
	map_open(s, id, &m, NULL);
	for (int round = 0; round < 500; round++) {
		for (uint32_t k = 0; k < 5; k++)
			put += device_put(r, 1 + (round * 37 + k * 101) % 300, (uint8_t)put, 0);
		map_ring_drain(s, id, &r->head, &consumed);
		device_taken(r, consumed);
		map_ring_consume(m, on_record, &seen);
	}
	is_int(put, 2500, "2500 records of mixed sizes");
	is_int(seen.n, put, "all arrive");
	is_int(seen.bad, 0, "in order and whole, around the end of both rings");
	is_int(map_lost(m), 0, "none lost");
	/* Discarded and busy records. */
	device_put(r, 16, 0, MAP_RING_DISCARD);
	device_put(r, 16, seen.next, 0);
	uint64_t busy = r->head.produced;
	device_put(r, 16, (uint8_t)(seen.next + 1), MAP_RING_BUSY);
	device_put(r, 16, (uint8_t)(seen.next + 2), 0);
	is_int(map_ring_committed(&r->head, consumed), busy,
		"what is committed ends at the busy record");
	is_int(map_ring_drain(s, id, &r->head, &consumed), 1,
		"a discarded record is passed over, a busy one stops");
	is_int(consumed, busy, "there");
	r->data[(busy & (RING - 1)) + 3] &= 0x7f;
	is_int(map_ring_drain(s, id, &r->head, &consumed), 2,
		"committed, it and the one behind it come");
	device_taken(r, consumed);
	seen.limit = seen.n + 1;
	is_int(map_ring_consume(m, on_record, &seen), 1, "a consumer may stop");
	seen.limit = 0;
	is_int(map_ring_consume(m, on_record, &seen), 2, "and go on");
	is_int(seen.bad, 0, "where it was");
	r->head.produced += 64; /* reserved, nothing written yet: the header reads zero */
	is_int(map_ring_drain(s, id, &r->head, &consumed), 0,
		"a header that has not arrived stops");
	map_close(m);
	free(r);
}

static void test_full(struct session *s, uint32_t id)
{
	struct device_ring *r = ring_new();
	struct map *m;
	struct seen seen = { 0 };
	uint64_t consumed = 0;
	uint32_t put = 0;
	map_open(s, id, &m, NULL);
	while (device_put(r, 56, (uint8_t)put, 0))
		put++;
	is_int(put, 64, "a ring of 4096 holds 64 records of 56 bytes");
	is_int(map_ring_drain(s, id, &r->head, &consumed), 64, "all move to the session");
	device_taken(r, consumed);
	while (device_put(r, 56, (uint8_t)put, 0))
		put++;
	is_int(map_ring_drain(s, id, &r->head, &consumed), -EAGAIN, "which is full then");
	is_int(consumed, r->head.consumed, "and takes nothing");
	seen.limit = 10;
	map_ring_consume(m, on_record, &seen);
	is_int(map_ring_drain(s, id, &r->head, &consumed), 10, "until room is made");
	map_ring_give_up(s, id, &r->head, consumed);
	is_int(map_lost(m), 54, "what nobody will take is counted");
	seen.limit = 0;
	map_ring_consume(m, on_record, &seen);
	ok(seen.n == 74 && !seen.bad, "what was moved stays readable: %u", seen.n);
	map_close(m);
	free(r);
}

static void test_damage(struct session *s, uint32_t id)
{
	struct device_ring *r = ring_new();
	struct map *m;
	struct seen seen = { 0 };
	uint64_t consumed = 0, lost;
	map_open(s, id, &m, NULL);
	lost = map_lost(m);
	device_put(r, 8, 0, 0);
	device_put(r, 8, 1, 0);
	r->data[17] = 0xff; /* a length past the end */
	is_int(map_ring_drain(s, id, &r->head, &consumed), 1, "records before a damaged one come");
	is_int(consumed, r->head.produced, "what is behind it cannot be found");
	is_int(map_lost(m) - lost, 1, "and is counted as lost");
	r->head.produced = consumed + RING + 8;
	is_int(map_ring_drain(s, id, &r->head, &consumed), 0, "positions too far apart");
	is_int(consumed, r->head.produced, "start anew");
	r->head.produced = 5;
	is_int(map_ring_drain(s, id, &r->head, &consumed), 0, "positions that went back");
	r->head.max_entries = 8192;
	is_int(map_ring_drain(s, id, &r->head, &consumed), -EINVAL, "an image of another size");
	map_ring_consume(m, on_record, &seen);
	/* A session's ring that someone scribbled over. */
	char path[400];
	snprintf(path, sizeof(path), "%s/ring-%u", session_path(s), id);
	int fd = open(path, O_RDWR);
	uint64_t wild[] = { 12345, 1ull << 40 };
	ok(pwrite(fd, &wild[0], 8, 0) == 8 && pwrite(fd, &wild[1], 8, 4096) == 8, "wild positions");
	is_int(map_ring_consume(m, on_record, &seen), 0, "are passed over");
	is_int(map_ring_consume(m, on_record, &seen), 0, "once");
	close(fd);
	map_close(m);
	free(r);
}

/* A process that died holding the lock. */
static void test_dead_lock(struct session *s, uint32_t id)
{
	struct device_ring *r = ring_new();
	char path[400];
	uint64_t consumed = 0;
	uint32_t holder = 0x7ffffff0;
	snprintf(path, sizeof(path), "%s/ring-%u", session_path(s), id);
	int fd = open(path, O_RDWR);
	ok(pwrite(fd, &holder, 4, 4096 + 8) == 4, "the lock is held by a process that is gone");
	device_put(r, 8, 0, 0);
	is_int(map_ring_drain(s, id, &r->head, &consumed), 1, "it is taken over");
	holder = (uint32_t)getppid();
	ok(pwrite(fd, &holder, 4, 4096 + 8) == 4, "the lock is held by a living one");
	device_put(r, 8, 0, 0);
	is_int(map_ring_drain(s, id, &r->head, &consumed), -EAGAIN, "then the agent comes again");
	holder = 0;
	ok(pwrite(fd, &holder, 4, 4096 + 8) == 4, "until it is free");
	is_int(map_ring_drain(s, id, &r->head, &consumed), 1, "and gets its turn");
	close(fd);
	free(r);
}

struct producer {
	struct session *s;
	uint32_t id, moved;
};

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct device_ring *r = ring_new();
	uint64_t consumed = 0;
	for (uint32_t put = 0; put < 2000 || consumed != r->head.produced;) {
		if (put < 2000 && device_put(r, 24, 7, 0))
			put++;
		int n = map_ring_drain(p->s, p->id, &r->head, &consumed);
		p->moved += n > 0 ? (uint32_t)n : 0;
		device_taken(r, consumed);
	}
	free(r);
	return NULL;
}

static int on_any(void *arg, const void *data, uint32_t bytes)
{
	struct seen *s = arg;
	s->n++;
	s->bad +=
		bytes != 24 || ((const uint8_t *)data)[0] != 7 || ((const uint8_t *)data)[23] != 7;
	return 0;
}

static void test_two_producers(struct session *s, uint32_t id)
{
	struct producer p[2] = { { s, id, 0 }, { s, id, 0 } };
	struct seen seen = { 0 };
	struct map *m;
	pthread_t t[2];
	map_open(s, id, &m, NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, produce, &p[i]);
	for (int quiet = 0; seen.n < 4000 && quiet < 20000;) {
		int n = map_ring_consume(m, on_any, &seen);
		quiet = n ? 0 : quiet + 1;
		if (!n)
			usleep(100);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	is_int(seen.n, 4000, "two producers and a consumer: every record arrives");
	is_int(seen.bad, 0, "whole");
	map_close(m);
}

int main(void)
{
	struct session *s;
	uint32_t id[5];
	fixture_make();
	session_create(&s, NULL);
	for (int i = 0; i < 5; i++)
		fixture_map(s, BPF_MAP_TYPE_RINGBUF, 0, 0, RING, 0, &id[i]);
	test_order_and_wrap(s, id[0]);
	test_full(s, id[1]);
	test_damage(s, id[2]);
	test_dead_lock(s, id[3]);
	test_two_producers(s, id[4]);
	session_destroy(s);
	is_int(fixture_end(), 0, "nothing is left behind");
	return tap_done();
}
