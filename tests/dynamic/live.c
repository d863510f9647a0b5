/* Programs come to a kernel that runs, go, and come again.
 *
 * usage: live [--gpu] [--cycles N]
 *
 * The target is samples/persistent under `egpu run --live`; this process is the loader that attaches to its session. On softgpu the
 * same protocol runs with the same steps. live_measure.c measures.
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
	uint32_t n = count_sms(p.last, &latest);
	printf("# %s: detach to last run %.2f ms\n", mode, latest > t0 ? (double)(latest - t0) / 1e6 : 0.0);
	/* Runs that had begun end after it: on a software GPU, whose threads wait for a processor, much later. */
	uint64_t before = latest;
	sleep_ms(opt.gpu ? 100 : 150);
	count_sms(p.last, &latest);
	ok(n && settled && latest == before && (!opt.gpu || latest <= settled + CLOCK_NS), "%s: gone means that it runs no more (%u multiprocessors)",
		mode, n);
	check_stores(&p, mode, armed, t0);
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

int main(int argc, char **argv)
{
	opt.cycles = 22;
	for (int i = 1; i < argc; i++) {
		opt.gpu |= !strcmp(argv[i], "--gpu");
		if (!strcmp(argv[i], "--cycles") && i + 1 < argc)
			opt.cycles = atoi(argv[i + 1]);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (prepare()) {
		tap_skip("EGPU_BUILD does not name the build directory");
		return tap_done();
	}
	each_kind("queue");
	each_kind("full");
	each_kind("memory");
	cycles("queue", opt.cycles);
	rmdir(opt.dir);
	return tap_done();
}
