/* ring.c - reading ring buffers: how fast records, and how fast bytes, reach a reader.
 *
 *   bench_ring [SECONDS]
 *       a producer in another process copies groups of 32 records of 16 bytes as the agent does; a
 *       consumer with a call a record, then a bulk reader
 *   bench_ring read MAP SECONDS [count | check]
 *       bulk reader of the map of that name in the newest session of this user, until nothing has
 *       come for a second or the time is over. count: walks all groups. check: that records are
 *       those of gpu/probes/record.bpf.c in a vector add: in a group the addresses of one access,
 *       4 bytes apart; what was torn or left from before is not
 *   bench_ring consume MAP SECONDS
 *       the same with a call a record
 *
 * A line of JSON each.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "map/map.h"

enum { RING_BYTES = 64 << 20, PIECE = 16 << 20, RECORD = 16, LANES = 32 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct got {
	uint64_t records, sum, bytes, torn;
	bool damaged;
};

static int on_record(void *arg, const void *data, uint32_t bytes)
{
	struct got *g = arg;
	uint64_t word;
	memcpy(&word, data, sizeof(word));
	g->records++;
	g->bytes += bytes;
	g->sum += word;
	return 0;
}

/* Something came. */
static bool take_records(struct map *m, struct got *g)
{
	return map_ring_consume(m, on_record, g) > 0;
}

static bool take_bytes(struct map *m, struct got *g)
{
	const void *at;
	uint64_t bytes;
	if (map_ring_peek(m, &at, &bytes) || !bytes)
		return false;
	g->bytes += bytes;
	map_ring_advance(m, bytes);
	return true;
}

static bool take_groups(struct map *m, struct got *g)
{
	const void *at;
	uint64_t bytes;
	bool damaged;
	if (map_ring_peek(m, &at, &bytes) || !bytes)
		return false;
	g->records += map_ring_count(at, bytes, &damaged);
	g->damaged |= damaged;
	g->bytes += bytes;
	map_ring_advance(m, bytes);
	return true;
}

/* Records of a group that are not what one instruction of a warp makes. */
static uint64_t torn_records(const uint8_t *at, const struct map_ring_group *g, uint32_t bytes, uint32_t n)
{
	struct {
		uint64_t address;
		uint32_t site, bytes;
	} first, r;
	uint64_t bad = bytes != sizeof(r) || g->present != (n < 32 ? (1u << n) - 1 : ~0u);
	memcpy(&first, at, sizeof(first));
	for (uint32_t k = 0; k < n && !bad; k++) {
		memcpy(&r, at + k * sizeof(r), sizeof(r));
		bad += r.address != first.address + 4 * k || r.site != first.site || r.bytes != 4;
	}
	return bad;
}

static bool take_checked(struct map *m, struct got *g)
{
	const void *at;
	uint64_t left, total;
	if (map_ring_peek(m, &at, &left) || !left)
		return false;
	g->bytes += left;
	for (uint64_t done = 0; done < left; done += total) {
		struct map_ring_group head;
		uint32_t bytes, n;
		const uint8_t *group = (const uint8_t *)at + done;
		total = map_ring_group_read(group, left - done, &head, &bytes, &n);
		if (!total) {
			g->damaged = true;
			break;
		}
		g->records += (uint32_t)__builtin_popcount(n ? head.present : 0);
		g->torn += n ? torn_records(group + sizeof(head), &head, bytes, n) : 0;
	}
	map_ring_advance(m, left);
	return true;
}

/* Until the time is over, or nothing came for `quiet` seconds after the first. The time ends with
 * the last that came. */
static void measure(const char *what, struct map *m, bool (*take)(struct map *, struct got *),
	double seconds, double quiet)
{
	struct got g = { 0 };
	double start = now(), first = 0, last = 0;
	while (now() < start + seconds && (!first || now() < last + quiet)) {
		if (take(m, &g)) {
			last = now();
			first = first ? first : last;
		} else {
			usleep(50);
		}
	}
	double took = last > first ? last - first : 1e-9;
	printf("{\"reader\": \"%s\", \"seconds\": %.3f, \"bytes\": %llu, \"records\": %llu, "
	       "\"GB_s\": %.2f, \"Mrecords_s\": %.1f, "
	       "\"lost\": %llu, \"torn\": %llu, \"damaged\": %s}\n",
		what, took, (unsigned long long)g.bytes, (unsigned long long)g.records,
		(double)g.bytes / took / 1e9, (double)g.records / took / 1e6,
		(unsigned long long)map_lost(m), (unsigned long long)g.torn, g.damaged ? "true" : "false");
	fflush(stdout);
}

/* -- producer ------------------------------------------------------------------- */

static void produce(const char *dir)
{
	struct session *s;
	size_t group = map_ring_group_bytes(RECORD, LANES), n = PIECE / group * group;
	char *piece = calloc(1, n);
	if (!piece || session_open(dir, &s, NULL))
		_exit(1);
	for (size_t at = 0; at < n; at += group) {
		struct map_ring_group head = { RECORD | (LANES - 1) << MAP_RING_LANES_SHIFT, ~0u,
			at };
		memcpy(piece + at, &head, sizeof(head));
		memset(piece + at + sizeof(head), 1, group - sizeof(head));
	}
	for (;;) {
		struct map_ring_room room;
		if (map_ring_begin(s, 0, n, &room)) {
			usleep(20);
			continue;
		}
		for (size_t done = 0; done < n;) {
			void *to;
			size_t part = map_ring_piece(s, 0, room.at + done, n - done, &to);
			memcpy(to, piece + done, part);
			done += part;
		}
		map_ring_end(s, 0, &room, n);
	}
}

static int synthetic(double seconds)
{
	struct session *s;
	struct diag d = { 0 };
	struct map *m;
	struct ebpf_map def = {
		.name = "ring", .type = BPF_MAP_TYPE_RINGBUF, .max_entries = RING_BYTES
	};
	uint32_t id;
	if (session_create(&s, &d) || session_add_map(s, &def, &id, &d) ||
		map_open(s, id, &m, &d)) {
		fprintf(stderr, "bench_ring: %s\n", d.text);
		return 1;
	}
	pid_t pid = fork();
	if (!pid)
		produce(session_path(s));
	measure("call a record", m, take_records, seconds, seconds);
	measure("bulk, groups counted", m, take_groups, seconds, seconds);
	measure("bulk", m, take_bytes, seconds, seconds);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	map_close(m);
	session_destroy(s);
	return 0;
}

/* -- a session's map ------------------------------------------------------------ */

static bool find(const char *name, struct session **s, struct map **m)
{
	static char dirs[16][256];
	int n = session_list(dirs, 16);
	for (int k = 0; k < n && k < 16; k++) {
		if (session_open(dirs[k], s, NULL))
			continue;
		for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++)
			if (session_data(*s)->maps[id].used &&
				!strncmp(session_data(*s)->maps[id].name, name, 15) &&
				!map_open(*s, id, m, NULL))
				return true;
		session_close(*s);
	}
	return false;
}

static int attach(const char *name, double seconds, bool (*take)(struct map *, struct got *),
	const char *what)
{
	struct session *s;
	struct map *m;
	double start = now();
	while (!find(name, &s, &m)) {
		if (now() > start + seconds) {
			fprintf(stderr, "bench_ring: no session has a map %s\n", name);
			return 1;
		}
		usleep(2000);
	}
	measure(what, m, take, seconds, 1);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc >= 4 && !strcmp(argv[1], "read")) {
		const char *what = argc > 4 ? argv[4] : "";
		if (!strcmp(what, "check"))
			return attach(argv[2], atof(argv[3]), take_checked, "bulk, records checked");
		return attach(argv[2], atof(argv[3]), *what ? take_groups : take_bytes,
			*what ? "bulk, groups counted" : "bulk");
	}
	if (argc == 4 && !strcmp(argv[1], "consume"))
		return attach(argv[2], atof(argv[3]), take_records, "call a record");
	if (argc > 2) {
		fprintf(stderr, "usage: bench_ring [SECONDS] | read MAP SECONDS [count | check] | consume "
				"MAP SECONDS\n");
		return 2;
	}
	return synthetic(argc > 1 ? atof(argv[1]) : 1);
}
