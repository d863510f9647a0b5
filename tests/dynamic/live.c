/* Programs come to a kernel that runs, go, and come again.
 *
 * usage: live [--gpu] [--cycles N] [--seed N] [--only queue|full|memory]
 *
 * The target is samples/persistent under `egpu run --live`; this process is the loader that attaches to its session. On softgpu the
 * same protocol runs with the same steps, each kind of kernel in another shuffled order, from seed N on (0: not shuffled). live_measure.c measures.
 */
#include "live_probe.h"

/* Until some block has been seen to store twice since: a software GPU takes its time. */
static void wait_stores(struct probe *p, uint64_t since)
{
	for (uint64_t end = now_ns() + 60000000000u; now_ns() < end; sleep_ms(20)) {
		for (uint32_t b = 0; b < 64; b++) {
			struct seen s = { 0 };
			if (!map_lookup(p->stores, &b, &s) && s.count > 1 && s.when > since + CLOCK_NS)
				return;
		}
	}
}

/* -- the steps --------------------------------------------------------------------- */

/* From `armed` until `gone` no store may have been missed. */
static void check_stores(struct probe *p, const char *mode, uint64_t armed, uint64_t gone)
{
	uint32_t blocks = 0, wrong = 0, early = 0;
	struct seen s;
	for (uint32_t b = 0; b < BLOCKS; b++) {
		if (map_lookup(p->stores, &b, &s) || !s.count)
			continue;
		blocks++;
		early += s.gaps != 0;
		for (uint64_t g = 0; g < s.gaps && g < GAPS; g++) {
			if (s.gap[g].from < armed + CLOCK_NS || s.gap[g].to + CLOCK_NS > gone)
				continue;
			printf("# block %u: stores missed from %.3f to %.3f ms after it was armed\n", b,
				(double)(s.gap[g].from - armed) / 1e6, (double)(s.gap[g].to - armed) / 1e6);
			wrong++;
		}
	}
	ok(blocks && armed && !wrong, "%s: armed means that no store of %u blocks is missed (%u blocks have a gap, before that or after)", mode,
		blocks, early);
}

/* In "memory" all lanes of a warp go the same way, but for a store by one of them: programs there still part some for good (docs/dynamic.md). */
static void print_lanes(struct probe *p, struct session *s)
{
	uint32_t zero = 0, one = 1;
	uint64_t n = 0, runs = 0;
	struct map *m = find_map(s, p->object, "lanes");
	attach(p, 7);
	wait_settled(s);
	sleep_ms(100);
	detach(p, 7);
	wait_settled(s);
	if (m) {
		map_lookup_sum(m, &zero, &n);
		map_lookup_sum(m, &one, &runs);
		map_close(m);
	}
	printf("# memory: after that %.3f lanes of a warp are together, in %llu runs\n", runs ? (double)n / (double)runs : 0, (unsigned long long)runs);
}

static void each_kind(const char *mode)
{
	struct target t;
	struct probe p;
	uint64_t t0, took, latest;
	start(&t, mode, "entry,exit,loop,mem", opt.gpu ? "4000" : "600000");
	struct session *s = find_session(&t, "rate");
	if (!ok(s && load(&p, s), "%s: a loader comes to a run whose kernel is under way", mode))
		return;
	t0 = now_ns();
	ok(attach(&p, 0), "%s: a program is attached at loop heads", mode);
	took = until_everywhere(&p, opt.gpu ? 132 : 2, t0);
	ok(took, "%s: it has run on every multiprocessor", mode);
	printf("# %s: attach to first run everywhere %.2f ms\n", mode, (double)took / 1e6);
	t0 = now_ns();
	ok(attach(&p, 1), "%s: another comes at stores, beside it", mode);
	uint64_t armed = wait_settled(s);
	printf("# %s: attach to armed %.2f ms\n", mode, armed > t0 ? (double)(armed - t0) / 1e6 : 0.0);
	wait_stores(&p, armed);
	if (opt.gpu)
		sleep_ms(200);
	t0 = now_ns();
	detach(&p, 0);
	detach(&p, 1);
	uint64_t settled = wait_settled(s);
	printf("# %s: detach to gone %.2f ms\n", mode, settled > t0 ? (double)(settled - t0) / 1e6 : 0.0);
	sleep_ms(opt.gpu ? 300 : 100);
	uint32_t n = count_sms(p.last, 0, &latest);
	printf("# %s: detach to last run %.2f ms\n", mode, latest > t0 ? (double)(latest - t0) / 1e6 : 0.0);
	if (!ok(n && settled && latest <= settled + CLOCK_NS, "%s: gone means that it runs no more (%u multiprocessors)", mode, n))
		printf("# %s: the last run is of %.3f ms after it\n", mode, (double)(int64_t)(latest - settled) / 1e6);
	check_stores(&p, mode, armed, t0);
	if (opt.gpu && !strcmp(mode, "memory"))
		print_lanes(&p, s);
	ok(attach(&p, 2), "%s: a third comes at the exits", mode);
	wait_settled(s);
	stop(&t);
	int status = finish(&t);
	is_int(status, 0, "%s: the program ends as it would", mode);
	ok(strstr(t.text, " ok\n") != NULL, "%s: and says so", mode);
	unload(&p);
	session_close(s);
}

static void cycles(const char *mode, int n)
{
	struct target t;
	struct probe p;
	int good = 0;
	start(&t, mode, "entry,exit,loop", opt.gpu ? "20000" : "15000");
	struct session *s = find_session(&t, "rate");
	if (!ok(s && load(&p, s), "%s: a loader for %d rounds", mode, n))
		return;
	for (int i = 0; i < n && good == i; i++) {
		/* A loader has room for a few dozen links: another one comes. */
		if (i % 20 == 19) {
			unload(&p);
			if (!load(&p, s))
				break;
		}
		good += attach(&p, 0);
		wait_settled(s);
		detach(&p, 0);
		wait_settled(s);
	}
	is_int(good, n, "%s: attached and detached %d times, by %d loaders one after another", mode, n, n / 20 + 1);
	is_int(warnings, 0, "%s: libbpf had nothing to complain about", mode);
	kill(t.pid, SIGTERM);
	finish(&t);
	unload(&p);
	session_close(s);
}

/* -- records ------------------------------------------------------------------------ */

enum { TRIED, TICKETS, DISCARDED, WRONG, WORDS = 6, MAX_TICKETS = 1 << 22 };

struct record {
	uint64_t ticket, words, word[WORDS];
};

static struct {
	uint64_t n, wrong, twice, beyond;
	uint8_t seen[MAX_TICKETS / 8];
} taken;

static int take_record(void *arg, const void *data, uint32_t bytes)
{
	const struct record *r = data;
	(void)arg;
	bool good = bytes >= 16 && r->words >= 1 && r->words <= WORDS && bytes == 16 + 8 * r->words;
	for (uint64_t i = 0; good && i < r->words; i++)
		good = r->word[i] == r->ticket * (i + 3);
	taken.n++;
	taken.wrong += !good;
	if (good && r->ticket < MAX_TICKETS) {
		taken.twice += taken.seen[r->ticket / 8] >> r->ticket % 8 & 1;
		taken.seen[r->ticket / 8] |= (uint8_t)(1 << r->ticket % 8);
	} else {
		taken.beyond += good;
	}
	return 0;
}

static int take_line(void *arg, const void *data, uint32_t bytes)
{
	const uint32_t *head = data;
	uint32_t *good = arg;
	static const char format[] = "ticket %llu of 100%% on %u";
	if (bytes >= 32 && head[0] == sizeof(format) && head[1] == 2 && bytes == 32 + sizeof(format))
		*good += !strcmp((const char *)data + 32, format) && ((const uint64_t *)data)[1] < 16 && ((const uint64_t *)data)[2] < SMS;
	return 0;
}

/* bpf_printk's ring: of this loader. */
static struct map *find_trace(struct session *s)
{
	const struct session_file *f = session_data(s);
	struct map *m = NULL;
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++)
		if (f->maps[id].used && f->maps[id].internal && f->maps[id].owner == session_client_number(s) &&
			f->maps[id].type == BPF_MAP_TYPE_RINGBUF)
			map_open(s, id, &m, NULL);
	return m;
}

/* One program writes records for a while; what it counted is what comes, and what is said to be lost. */
static void recorder(struct session *s, int which, const char *ring_name, const char *text)
{
	struct probe p;
	memset(&taken, 0, sizeof(taken));
	if (!ok(load_object(&p, s, "live_records.bpf.o", recorders), "%s: a loader comes", text))
		return;
	struct map *counts = find_map(s, p.object, "counts"), *ring = ring_name ? find_map(s, p.object, ring_name) : find_trace(s);
	ok(attach(&p, which) && wait_settled(s), "%s: it is armed", text);
	uint32_t lines = 0;
	for (uint64_t end = now_ns() + (opt.gpu ? 300000000 : 150000000); now_ns() < end || !word(counts, TICKETS); sleep_ms(1))
		map_ring_consume(ring, ring_name ? take_record : take_line, &lines);
	uint64_t while_it_runs = ring_name ? taken.n : lines;
	detach(&p, which);
	ok(session_drained(s, 10000), "%s: it is gone", text);
	/* Nobody is inside: that is all. What the session's ring had no room for comes when there is some. */
	uint64_t tried = word(counts, TRIED), discarded = word(counts, DISCARDED), lost;
	for (uint64_t end = now_ns() + 10000000000u;; sleep_ms(5)) {
		while (map_ring_consume(ring, ring_name ? take_record : take_line, &lines) > 0)
			;
		lost = map_lost(ring);
		if (!ring_name || taken.n + discarded + lost == tried || now_ns() > end)
			break;
	}
	is_int((long long)(word(counts, TRIED) - tried), 0, "%s: nothing was tried after that", text);
	ok(while_it_runs, "%s: %llu came while the kernel ran", text, (unsigned long long)while_it_runs);
	if (ring_name) {
		printf("# %s: %llu tried, %llu discarded, %llu lost\n", text, (unsigned long long)tried, (unsigned long long)discarded,
			(unsigned long long)lost);
		ok(taken.n && taken.n + discarded + lost == tried, "%s: what was tried, less what was discarded and what is counted as lost, came (%llu)",
			text, (unsigned long long)taken.n);
		ok(!taken.wrong && !taken.twice, "%s: whole, and each once (%llu, %llu; %llu are not followed)", text,
			(unsigned long long)taken.wrong, (unsigned long long)taken.twice, (unsigned long long)taken.beyond);
		is_int((long long)word(counts, WRONG), 0, "%s: calls answer as they should", text);
		ok(which != 1 || lost, "%s: a ring of a page is too small", text);
	} else {
		is_int(lines, 16, "%s: each line came, with its arguments", text);
	}
	map_close(counts);
	map_close(ring);
	unload(&p);
}

static void records(const char *mode)
{
	struct target t;
	start(&t, mode, "loop", opt.gpu ? "20000" : "15000");
	struct session *s = find_session(&t, "rate");
	if (!ok(s, "%s: a run whose programs write records", mode))
		return;
	recorder(s, 0, "records", "reserved, submitted and discarded");
	recorder(s, 1, "small", "output of many sizes by all lanes");
	recorder(s, 2, NULL, "bpf_printk");
	kill(t.pid, SIGTERM);
	finish(&t);
	session_close(s);
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "queue", "full", "memory" };
	opt.cycles = 22;
	for (int i = 1; i < argc; i++) {
		opt.gpu |= !strcmp(argv[i], "--gpu");
		if (!strcmp(argv[i], "--cycles") && i + 1 < argc)
			opt.cycles = atoi(argv[i + 1]);
		if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			opt.seed = (unsigned)atoi(argv[i + 1]);
		if (!strcmp(argv[i], "--only") && i + 1 < argc)
			opt.only = argv[i + 1];
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (prepare()) {
		tap_skip("EGPU_BUILD does not name the build directory");
		return tap_done();
	}
	for (int i = 0; i < 3; i++)
		if (wanted(kinds[i]))
			each_kind(kinds[i]);
	if (wanted("queue")) {
		cycles("queue", opt.cycles);
		records("queue");
	}
	rmdir(opt.dir);
	return tap_done();
}
