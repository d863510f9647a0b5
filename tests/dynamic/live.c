/* Programs come to a kernel that runs, go, and come again.
 *
 * usage: live [--gpu] [--cycles N] [--measure]
 *
 * The target is samples/persistent under `egpu run --live`; this process is the loader that attaches to its session. On softgpu the
 * same protocol runs with the same steps. --measure prints, for each kind of kernel, rates without egpu, with guards and with
 * programs, and how long attaching and detaching take.
 */
#include "live.h"

enum { SMS = 256, BLOCKS = 4096, GAPS = 4, MAX_RATES = 4096, CLOCK_NS = 100000 /* by which the device's may be off */ };

struct seen {
	uint64_t count, last, when, gaps;
	struct {
		uint64_t from, to;
	} gap[GAPS];
};

static struct {
	bool gpu, measure;
	int cycles;
	const char *build, *driver, *dir;
} opt;

/* Starts the sample, under egpu with guards at `points` when they are given. */
static void start(struct target *t, const char *mode, const char *points, const char *ms)
{
	char egpu[600], sample[600], live[64];
	snprintf(egpu, sizeof(egpu), "%s/egpu", opt.build);
	snprintf(sample, sizeof(sample), "%s/samples/persistent", opt.build);
	snprintf(live, sizeof(live), "--live=%s", points ? points : "");
	char *alone[] = { sample, (char *)mode, (char *)ms, NULL };
	char *under[] = { egpu, "run", (char *)opt.driver, live, "-k", "*", "--", sample, (char *)mode, (char *)ms, NULL };
	start_command(t, points ? under : alone);
}

/* Median of the rates that were printed from `from` on. */
static double median_rate(const char *text)
{
	static double rates[MAX_RATES];
	int n = 0;
	for (const char *s = text; (s = strstr(s, "rate ")) && n < MAX_RATES; s++)
		rates[n++] = atof(s + 5);
	for (int i = 1; i < n; i++)
		for (int k = i; k && rates[k] < rates[k - 1]; k--) {
			double x = rates[k];
			rates[k] = rates[k - 1];
			rates[k - 1] = x;
		}
	return n ? rates[n / 2] : 0;
}

/* -- the loader ---------------------------------------------------------------- */

struct probe {
	struct session *session;
	struct bpf_object *object;
	struct bpf_link *link[3];
	struct map *first, *last, *stores;
	uint32_t sms;
};

static const char *const programs[3] = { "loop", "store", "leave" };

static bool load(struct probe *p, struct session *s)
{
	struct loader_options o = { .session = s, .default_pattern = "*", .verifier = { .allow_races = true }, .live = true };
	struct diag d = { 0 };
	char path[600];
	memset(p, 0, sizeof(*p));
	p->session = s;
	if (session_enter(s, "live.bpf.o", &d))
		return false;
	snprintf(path, sizeof(path), "%s/tests/dynamic/live.bpf.o", opt.build);
	if (loader_start(&o, &d))
		return false;
	static bool registered;
	if (!registered && loader_register_sections(&d))
		return false;
	registered = true;
	libbpf_set_print(heed);
	p->object = bpf_object__open_file(path, NULL);
	return p->object && !bpf_object__load(p->object);
}

static bool attach(struct probe *p, int which)
{
	struct diag d = { 0 };
	struct bpf_program *prog = bpf_object__find_program_by_name(p->object, programs[which]);
	p->link[which] = bpf_program__attach(prog);
	loader_last_error(&d);
	if (!p->link[which])
		printf("# %s: %s\n", programs[which], d.text);
	if (!p->first) {
		p->first = find_map(p->session, p->object, "first");
		p->last = find_map(p->session, p->object, "last");
		p->stores = find_map(p->session, p->object, "stores");
	}
	return p->link[which];
}

static void detach(struct probe *p, int which)
{
	if (!p->link[which])
		return;
	bpf_link__detach(p->link[which]);
	bpf_link__destroy(p->link[which]);
	p->link[which] = NULL;
}

static void unload(struct probe *p)
{
	for (int k = 0; k < 3; k++)
		if (p->link[k])
			detach(p, k);
	map_close(p->first);
	map_close(p->last);
	map_close(p->stores);
	bpf_object__close(p->object);
	loader_stop();
	session_end_client(p->session);
}

static uint64_t word(struct map *m, uint32_t key)
{
	uint64_t v = 0;
	map_lookup(m, &key, &v);
	return v;
}

/* Multiprocessors that have run the program, and the time of the last of them to begin or to end. */
static uint32_t count_sms(struct map *m, uint64_t *latest)
{
	uint32_t n = 0;
	*latest = 0;
	for (uint32_t sm = 0; sm < SMS; sm++) {
		uint64_t v = word(m, sm);
		n += v != 0;
		*latest = v > *latest ? v : *latest;
	}
	return n;
}

/* Waits until the program has run on `sms` multiprocessors; nanoseconds from t0 to the last one's first run, 0: too late. */
static uint64_t until_everywhere(struct probe *p, uint32_t sms, uint64_t t0)
{
	uint64_t latest;
	for (int tries = 0; tries < 5000; tries++) {
		if (count_sms(p->first, &latest) >= sms)
			return latest > t0 ? latest - t0 : 1;
		sleep_ms(1);
	}
	return 0;
}

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

/* -- measuring ----------------------------------------------------------------------- */

static double rate_of(const char *mode, const char *points)
{
	struct target t;
	start(&t, mode, points, "3000");
	finish(&t);
	return median_rate(t.text);
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* Rates in turns, so that a drift of the machine meets all. */
static void measure_rates(const char *mode)
{
	static const char *const points[] = { NULL, "entry,exit,loop", "entry,exit,loop,mem" };
	enum { ROUNDS = 3 };
	double rates[3][ROUNDS];
	for (int r = 0; r < ROUNDS; r++)
		for (int k = 0; k < 3; k++)
			rates[k][r] = rate_of(mode, points[k]);
	for (int k = 0; k < 3; k++) {
		qsort(rates[k], ROUNDS, sizeof(double), ascending);
		printf("%s %s: %.1f passes/s (%.1f to %.1f), %.4f of uninstrumented\n", mode, points[k] ? points[k] : "without egpu",
			rates[k][ROUNDS / 2], rates[k][0], rates[k][ROUNDS - 1], rates[k][ROUNDS / 2] / rates[0][ROUNDS / 2]);
	}
}

static void clear(struct probe *p)
{
	uint64_t zero = 0;
	for (uint32_t sm = 0; sm < SMS; sm++) {
		map_update(p->first, &sm, &zero, 0);
		map_update(p->last, &sm, &zero, 0);
	}
}

static void print_latency(const char *mode, const char *what, double *ms, int n)
{
	qsort(ms, (size_t)n, sizeof(*ms), ascending);
	if (n)
		printf("%s %s: median %.2f ms (%.2f to %.2f, %d times)\n", mode, what, ms[n / 2], ms[0], ms[n - 1], n);
}

static void measure_latency(const char *mode)
{
	enum { MAX = 256 };
	double in[MAX], armed[MAX], out[MAX], gone[MAX];
	struct target t;
	struct probe p;
	int n = 0, late = 0;
	start(&t, mode, "entry,exit,loop", "100000");
	struct session *s = find_session(&t, "rate");
	if (s && load(&p, s)) {
		for (; n < opt.cycles && n < MAX; n++) {
			uint64_t latest, t0 = now_ns(), took, at;
			attach(&p, 0);
			took = until_everywhere(&p, opt.gpu ? 132 : 2, t0);
			at = wait_settled(s);
			if (!took || !at)
				break;
			in[n] = (double)took / 1e6;
			armed[n] = (double)(at - t0) / 1e6;
			t0 = now_ns();
			detach(&p, 0);
			at = wait_settled(s);
			sleep_ms(100);
			count_sms(p.last, &latest);
			out[n] = latest > t0 ? (double)(latest - t0) / 1e6 : 0;
			gone[n] = at > t0 ? (double)(at - t0) / 1e6 : 0;
			late += latest > at + CLOCK_NS;
			clear(&p);
			sleep_ms(30);
		}
		unload(&p);
	}
	print_latency(mode, "attach to first run on every multiprocessor", in, n);
	print_latency(mode, "attach to armed", armed, n);
	print_latency(mode, "detach to last run", out, n);
	print_latency(mode, "detach to gone", gone, n);
	printf("%s: %d of %d detaches had a run after gone\n", mode, late, n);
	session_close(s);
	kill(t.pid, SIGTERM);
	finish(&t);
}

static int measure_all(void)
{
	static const char *const modes[] = { "queue", "full", "memory" };
	for (int k = 0; k < 3; k++) {
		measure_rates(modes[k]);
		measure_latency(modes[k]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	opt.build = getenv("EGPU_BUILD");
	opt.cycles = 22;
	for (int i = 1; i < argc; i++) {
		opt.gpu |= !strcmp(argv[i], "--gpu");
		opt.measure |= !strcmp(argv[i], "--measure");
		if (!strcmp(argv[i], "--cycles") && i + 1 < argc)
			opt.cycles = atoi(argv[i + 1]);
	}
	if (!opt.build) {
		tap_skip("EGPU_BUILD does not name the build directory");
		return tap_done();
	}
	char dir[] = "/tmp/egpu-live-XXXXXX";
	if (!mkdtemp(dir))
		return 99;
	setenv("EGPU_DIR", dir, 1);
	opt.driver = opt.gpu ? "--gpu" : "--softgpu=sm_90,sms=2";
	if (!opt.gpu)
		setenv("EGPU_SAMPLE_SMALL", "1", 1);
	if (opt.measure)
		return measure_all();
	each_kind("queue");
	each_kind("full");
	each_kind("memory");
	cycles("queue", opt.cycles);
	rmdir(dir);
	return tap_done();
}
