/* Ring buffers in the session: groups that agents copied, the records of them for consumers, bulk
 * readers. */
#include "map_fixture.h"

#include <pthread.h>

enum { RING = 4096 };

/* Groups as a device writes them. */
struct groups {
	uint8_t data[RING];
	uint64_t bytes;
};

static void put_group(
	struct groups *g, uint32_t bytes, uint32_t n, uint32_t present, uint8_t fill, uint64_t time)
{
	struct map_ring_group head = { bytes | (n - 1) << MAP_RING_LANES_SHIFT, present, time };
	uint8_t *at = g->data + g->bytes;
	memcpy(at, &head, sizeof(head));
	for (uint32_t k = 0; k < n; k++)
		memset(at + MAP_RING_GROUP + k * map_round_up(bytes, 8), (uint8_t)(fill + k),
			bytes);
	g->bytes += map_ring_group_bytes(bytes, n);
}

static void put_fill(struct groups *g, uint32_t bytes)
{
	uint32_t head = MAP_RING_FILL | bytes;
	memcpy(g->data + g->bytes, &head, sizeof(head));
	g->bytes += bytes;
}

/* What the agent does: the records moved, or -EAGAIN; *taken says whether the groups are in the
 * session. */
static int give(struct session *s, uint32_t id, const struct groups *g)
{
	struct map_ring_room room;
	int err = map_ring_begin(s, id, g->bytes, &room);
	if (err)
		return err;
	uint64_t done = 0;
	while (done < g->bytes) {
		void *to;
		uint64_t n = map_ring_piece(s, id, room.at + done, g->bytes - done, &to);
		memcpy(to, g->data + done, n);
		done += n;
	}
	return map_ring_end(s, id, &room, done);
}

struct seen {
	uint32_t n, bad, limit;
	uint8_t next;
};

static int on_record(void *arg, const void *data, uint32_t bytes)
{
	struct seen *s = arg;
	for (uint32_t i = 0; i < bytes; i++)
		s->bad += ((const uint8_t *)data)[i] != s->next;
	s->next++;
	s->n++;
	return s->limit && s->n >= s->limit;
}

static void test_groups(struct session *s, uint32_t id)
{
	struct seen seen = { 0 };
	struct map *m;
	uint32_t put = 0, bad = 0;
	map_open(s, id, &m, NULL);
	for (int round = 0; round < 500; round++) {
		struct groups g = { .bytes = 0 };
		uint32_t n = 1 + round % 5, bytes = 1 + (round * 37) % 120;
		put_group(&g, bytes, n, ~0u, (uint8_t)put, 0);
		put += n;
		if (round % 3 == 0)
			put_fill(&g, 16 * (1 + round % 4));
		put_group(&g, 8, 32, ~0u, (uint8_t)put, 0);
		put += 32;
		bad += give(s, id, &g) != (int)n + 32;
		map_ring_consume(m, on_record, &seen);
	}
	is_int(bad, 0, "each group is moved on at once");
	is_int(seen.n, put, "all records arrive");
	is_int(seen.bad, 0, "in order and whole, around the end of both rings");
	is_int(map_lost(m), 0, "none lost");
	struct groups g = { .bytes = 0 };
	put_group(&g, 24, 4, 0xa, 0, 0);
	seen = (struct seen){ .next = 1 };
	is_int(give(s, id, &g), 2, "discarded records are passed over");
	seen.limit = 1;
	is_int(map_ring_consume(m, on_record, &seen), 1, "a consumer may stop");
	seen.limit = 0;
	seen.next = 3;
	is_int(map_ring_consume(m, on_record, &seen), 1, "and go on");
	is_int(seen.bad, 0, "where it was");
	map_close(m);
}

static void test_full(struct session *s, uint32_t id)
{
	struct seen seen = { 0 };
	struct groups g;
	struct map *m;
	uint32_t moved = 0, given = 0;
	map_open(s, id, &m, NULL);
	for (;;) {
		g.bytes = 0;
		put_group(&g, 56, 8, 0xff, (uint8_t)given, 0); /* 464 bytes, 512 as records */
		int n = give(s, id, &g);
		if (n < 0)
			break;
		given += 8;
		moved += (uint32_t)n;
	}
	is_int(moved, 64, "a ring of 4096 holds 64 records of 56 bytes");
	is_int(given, 64 + 8 * 8, "and behind them eight groups wait");
	is_int(map_ring_flush(s, id), -EAGAIN, "which have no room");
	seen.limit = 10;
	is_int(map_ring_consume(m, on_record, &seen), 10, "ten are read");
	is_int(map_ring_flush(s, id), -EAGAIN, "then one group moves on");
	seen.limit = 0;
	is_int(map_ring_consume(m, on_record, &seen), 62, "and is read");
	map_ring_consume(m, on_record, &seen);
	is_int(seen.n, given, "a consumer takes what is left by itself");
	is_int(seen.bad, 0, "in order");
	is_int(map_lost(m), 0, "nothing is lost");
	for (uint32_t k = 0; k < 2; k++) {
		while (give(s, id, &g) >= 0)
			;
		map_ring_give_up(s, id, 5);
	}
	is_int(map_lost(m), 2 * (64 + 5),
		"what waits when the agent ends is lost, and what it says");
	map_close(m);
}

static uint64_t times[64];
static uint32_t n_times;

static int on_time(void *arg, const void *data, uint32_t bytes)
{
	if (n_times < 64)
		times[n_times++] = *(const uint8_t *)data;
	return 0;
}

static int64_t shown_ns[8];

static int on_look(void *arg, const void *data, uint32_t bytes, int64_t ns)
{
	if (n_times < 8)
		shown_ns[n_times] = ns;
	return on_time(arg, data, bytes);
}

/* Groups as a bulk reader has them. */
static void test_groups_by_time(const struct groups *g)
{
	const void **sorted;
	size_t n;
	uint8_t copy[1024];
	bool good = true;
	is_int(map_ring_by_time(g->data, g->bytes, &sorted, &n), 0, "groups are put in order");
	is_int(n, 8, "all of them");
	for (size_t k = 0; k < n; k++) {
		struct map_ring_group head;
		uint32_t bytes, records;
		good &= map_ring_group_read(sorted[k], 32, &head, &bytes, &records) == 32 && bytes == 16 && records == 1 &&
			head.time == (0xfffffffcull + k) << MAP_RING_TIME_SHIFT;
	}
	ok(good, "each by its own 64 bits of time");
	free((void *)sorted);
	memcpy(copy, g->data, g->bytes);
	memset(copy + 3 * 32, 0, 4);
	is_int(map_ring_by_time(copy, g->bytes, &sorted, &n), -EBADMSG, "a damaged one is told");
	is_int(n, 3, "with those before it");
	free((void *)sorted);
	is_int(map_ring_by_time(g->data, 0, &sorted, &n), 0, "nothing is in order");
	is_int(n, 0, "and nothing");
	free((void *)sorted);
}

static void test_time(struct session *s, uint32_t id)
{
	static const uint8_t order[] = { 7, 2, 5, 0, 6, 3, 1, 4 };
	struct groups g = { .bytes = 0 };
	struct map *m;
	bool sorted = true;
	map_open(s, id, &m, NULL);
	/* around the end of the 32 bits that are kept */
	for (uint32_t k = 0; k < 8; k++)
		put_group(
			&g, 16, 1, 1, order[k], (0xfffffffcull + order[k]) << MAP_RING_TIME_SHIFT);
	give(s, id, &g);
	test_groups_by_time(&g);
	is_int(map_ring_look(m, false, on_look, NULL), 8, "a look shows eight records");
	for (uint32_t k = 0; k < 8; k++)
		sorted &= times[k] == order[k] && shown_ns[k] == ((int64_t)order[k] - order[0]) * 32;
	ok(sorted && n_times == 8, "as they arrived, with their times");
	n_times = 0;
	is_int(map_ring_look(m, true, on_look, NULL), 8, "and again");
	for (uint32_t k = 0; k < 8; k++)
		sorted &= times[k] == k && shown_ns[k] == 32 * k;
	ok(sorted && n_times == 8, "by time");
	n_times = 0;
	is_int(map_ring_consume_by_time(m, on_time, NULL), 8, "eight records by time");
	for (uint32_t k = 0; k < 8; k++)
		sorted &= times[k] == k;
	ok(sorted && n_times == 8, "in its order, over its end");
	is_int(map_ring_consume(m, on_time, NULL), 0, "once");
	map_close(m);
}

static void test_damage(struct session *s, uint32_t id)
{
	struct groups g = { .bytes = 0 };
	struct seen seen = { 0 };
	struct map *m;
	uint64_t lost;
	map_open(s, id, &m, NULL);
	lost = map_lost(m);
	put_group(&g, 8, 1, 1, 0, 0);
	uint64_t at = g.bytes;
	put_group(&g, 8, 1, 1, 1, 0);
	memset(g.data + at, 0xff, 4);
	is_int(give(s, id, &g), 1, "records before a damaged group come");
	is_int(map_lost(m) - lost, 1, "what is behind it is counted as lost");
	memset(g.data + at, 0, 4);
	is_int(give(s, id, &g), 1, "a group of empty records is damaged");
	is_int(map_lost(m) - lost, 2, "and counted");
	*(uint32_t *)(void *)(g.data + at) = MAP_RING_FILL | 1 << 20;
	is_int(give(s, id, &g), 1, "so is one that is filled beyond the end");
	map_ring_consume(m, on_record, &seen);
	/* A session's rings that someone scribbled over. */
	static const uint64_t wild[][2] = { { 12345, 1ull << 40 }, { 0, ~0ull }, { 8, 24 },
		{ 1, 1 }, { 1ull << 63, 0 } };
	static const char *const names[] = { "ring", "raw" };
	bool fine = true;
	for (size_t k = 0; k < 10; k++) {
		char path[400];
		snprintf(path, sizeof(path), "%s/%s-%u", session_path(s), names[k % 2], id);
		int fd = open(path, O_RDWR);
		fine &= pwrite(fd, &wild[k / 2][0], 8, 0) == 8 &&
			pwrite(fd, &wild[k / 2][1], 8, 4096) == 8;
		close(fd);
		g.bytes = 0;
		put_group(&g, 8, 1, 1, 0, 0);
		map_ring_consume(m, on_record, &seen);
		map_ring_flush(s, id);
		map_ring_consume(m, on_record, &seen);
		seen = (struct seen){ 0 };
		fine &= give(s, id, &g) >= 0;
		map_ring_consume(m, on_record, &seen);
		if (!ok(fine && seen.n == 1 && !seen.bad,
			    "wild positions in %s-ID (%zu): the next record arrives", names[k % 2],
			    k / 2))
			printf("# %u records, %u bad\n", seen.n, seen.bad);
	}
	map_close(m);
}

/* A process that died holding the lock. */
static void test_dead_lock(struct session *s, uint32_t id)
{
	struct groups g = { .bytes = 0 };
	char path[400];
	uint32_t holder = 0x7ffffff0;
	put_group(&g, 8, 1, 1, 0, 0);
	snprintf(path, sizeof(path), "%s/raw-%u", session_path(s), id);
	int fd = open(path, O_RDWR);
	ok(pwrite(fd, &holder, 4, 4096 + 8) == 4, "the lock is held by a process that is gone");
	is_int(give(s, id, &g), 1, "it is taken over");
	holder = (uint32_t)getppid();
	ok(pwrite(fd, &holder, 4, 4096 + 8) == 4, "the lock is held by a living one");
	is_int(give(s, id, &g), -EAGAIN, "then the agent comes again");
	holder = 0;
	ok(pwrite(fd, &holder, 4, 4096 + 8) == 4, "until it is free");
	is_int(give(s, id, &g), 1, "and gets its turn");
	close(fd);
}

static void test_bulk(struct session *s, uint32_t id)
{
	struct groups g = { .bytes = 0 };
	struct map *m;
	const void *at;
	uint64_t bytes;
	bool damaged;
	map_open(s, id, &m, NULL);
	is_int(map_ring_peek(m, &at, &bytes), 0, "a bulk reader");
	is_int(bytes, 0, "finds nothing yet");
	put_group(&g, 16, 32, ~0u, 3, 0);
	for (int round = 0; round < 30; round++) {
		is_int(give(s, id, &g) + give(s, id, &g), 0, "groups are left to it");
		map_ring_peek(m, &at, &bytes);
		bool same = bytes == 2 * g.bytes && !memcmp(at, g.data, g.bytes) &&
			    !memcmp((const char *)at + g.bytes, g.data, g.bytes);
		ok(same && map_ring_count(at, bytes, &damaged) == 64 && !damaged, "in one piece");
		map_ring_advance(m, bytes);
	}
	pid_t other = fork();
	if (!other) {
		struct session *t;
		struct map *n;
		_exit(session_open(session_path(s), &t, NULL) || map_open(t, id, &n, NULL) ||
			map_ring_peek(n, &at, &bytes) != -EBUSY);
	}
	int status;
	waitpid(other, &status, 0);
	is_int(status, 0, "a second bulk reader is refused");
	/* A reader that is gone. */
	char path[400];
	uint32_t gone = 0x7ffffff0;
	snprintf(path, sizeof(path), "%s/raw-%u", session_path(s), id);
	int fd = open(path, O_RDWR);
	ok(pwrite(fd, &gone, 4, 8) == 4, "the bulk reader dies");
	close(fd);
	is_int(give(s, id, &g), 32, "then records move on");
	map_close(m);
}

struct producer {
	struct session *s;
	uint32_t id, groups;
};

static void *produce(void *arg)
{
	struct producer *p = arg;
	struct groups g = { .bytes = 0 };
	put_group(&g, 24, 4, 0xd, 7, 0);
	for (uint32_t put = 0; put < p->groups;)
		put += give(p->s, p->id, &g) >= 0;
	return NULL;
}

static int on_any(void *arg, const void *data, uint32_t bytes)
{
	struct seen *s = arg;
	const uint8_t *at = data;
	s->n++;
	s->bad += bytes != 24 || at[0] < 7 || at[0] > 10 || at[0] == 8 || at[23] != at[0];
	return 0;
}

static void test_two_producers(struct session *s, uint32_t id)
{
	struct producer p[2] = { { s, id, 2000 }, { s, id, 2000 } };
	struct seen seen = { 0 };
	struct map *m;
	pthread_t t[2];
	map_open(s, id, &m, NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, produce, &p[i]);
	for (int quiet = 0; seen.n < 12000 && quiet < 20000;) {
		int n = map_ring_consume(m, on_any, &seen);
		quiet = n ? 0 : quiet + 1;
		if (!n)
			usleep(100);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	is_int(seen.n, 12000, "two producers and a consumer: every record arrives");
	is_int(seen.bad, 0, "whole");
	map_close(m);
}

/* A thread that was about to look at a ring which is removed meanwhile. */
static void test_removed(struct session *s, uint32_t id)
{
	uint64_t produced, consumed;
	size_t bytes;
	void *at;
	struct map_ring_room room;
	is_int(map_ring_begin(s, id, 16, &room), 0, "room in a ring");
	map_ring_end(s, id, &room, 0);
	is_int(map_ring_memory(s, id, &at, &bytes), 0, "its memory");
	memset((char *)at + sizeof(struct map_ring), 7, 64);
	session_remove_map(s, id);
	is_int(((volatile char *)at)[sizeof(struct map_ring)], 0, "a removed ring's memory is given back, its addresses are not");
	ok(map_ring_positions(s, id, &produced, &consumed) < 0, "who asks for it anew is told");
	uint32_t again;
	is_int(fixture_map(s, BPF_MAP_TYPE_RINGBUF, 0, 0, RING, 0, &again), 0, "another in its place");
	is_int(map_ring_positions(s, again, &produced, &consumed), 0, "is a ring of its own");
	is_int(produced + consumed, 0, "and empty");
}

int main(void)
{
	struct session *s;
	uint32_t id[7];
	fixture_make();
	session_create(&s, NULL);
	for (int i = 0; i < 7; i++)
		fixture_map(s, BPF_MAP_TYPE_RINGBUF, 0, 0, RING, 0, &id[i]);
	test_groups(s, id[0]);
	test_full(s, id[1]);
	test_time(s, id[2]);
	test_damage(s, id[3]);
	test_dead_lock(s, id[4]);
	test_bulk(s, id[5]);
	test_two_producers(s, id[6]);
	test_removed(s, id[0]);
	session_destroy(s);
	is_int(fixture_end(), 0, "nothing is left behind");
	return tap_done();
}
