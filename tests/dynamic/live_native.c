/* Programs in kernels that run, as machine code: they are interpreted first, and nothing is missed and nothing runs twice when code takes over.
 *
 * usage: live_native [--gpu] [--seed N] [--only queue|full|memory]
 *        live_native --gpu --measure MODE [TIMES]...
 *
 * --measure prints for one kind of kernel, for each tier: rates before an attach, while it is attached and after the detach, at loop heads
 * and at accesses; and how long attaching takes until each multiprocessor has run it, until it is armed, and until it is machine code.
 */
#include "live/program.h"
#include "live_probe.h"

static const char *const names[PROGRAMS] = { "count", "touch", "odd", "pass" };
enum { COUNT, TOUCH, ODD, PASS };

struct loaded {
	struct probe p;
	struct map *counts, *first, *stores;
};

static bool load_native(struct loaded *l, struct session *s)
{
	if (!load_object(&l->p, s, "live_native.bpf.o", names))
		return false;
	l->counts = find_map(s, l->p.object, "counts");
	l->first = find_map(s, l->p.object, "first");
	l->stores = find_map(s, l->p.object, "stores");
	return l->counts && l->first && l->stores;
}

static void unload_native(struct loaded *l)
{
	map_close(l->counts);
	map_close(l->first);
	map_close(l->stores);
	unload(&l->p);
}

static uint64_t total(struct loaded *l, uint32_t which)
{
	uint64_t n = 0;
	map_lookup_sum(l->counts, &which, &n);
	return n;
}

/* Whether the session's guards may call machine code. */
static bool tier(struct session *s, const char **why)
{
	const struct session_file *f = session_data(s);
	uint32_t id;
	if (!live_find_map(s, &id))
		return false;
	*why = f->maps[id].live_why ? session_text(s, f->maps[id].live_why) : "";
	return f->maps[id].live == LIVE_TIER_NATIVE;
}

static const struct session_link *link_of(struct session *s, int which)
{
	const struct session_file *f = session_data(s);
	for (int i = 0; i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &f->links[i];
		if (l->live && l->state == SESSION_LINK_ATTACHED && !strcmp(f->progs[l->prog].name, names[which]))
			return l;
	}
	return NULL;
}

/* Until the program is machine code, or is said to stay interpreted. Nanoseconds, 0: neither. */
static uint64_t until_native(struct session *s, int which, bool *native)
{
	uint64_t t0 = now_ns();
	for (; now_ns() < t0 + 20000000000u; sleep_ms(1)) {
		const struct session_link *l = link_of(s, which);
		*native = l && __atomic_load_n(&l->native, __ATOMIC_ACQUIRE);
		if (*native || (l && __atomic_load_n(&l->native_why, __ATOMIC_ACQUIRE)))
			return now_ns() - t0 + 1;
	}
	return 0;
}

static bool goes_on(struct loaded *l, uint32_t which)
{
	uint64_t before = total(l, which), end = now_ns() + 10000000000u;
	while (now_ns() < end && total(l, which) == before)
		sleep_ms(1);
	return total(l, which) != before;
}

/* -- the steps ------------------------------------------------------------------- */

static bool became(struct session *s, int which)
{
	bool native = false;
	return until_native(s, which, &native) && native;
}

static void check_passes(struct loaded *l, uint64_t armed, uint64_t gone)
{
	uint32_t blocks = 0, wrong = 0;
	uint64_t n = 0;
	struct seen x;
	for (uint32_t b = 0; b < BLOCKS; b++) {
		if (map_lookup(l->stores, &b, &x) || !x.count)
			continue;
		blocks++;
		n += x.count;
		for (uint64_t g = 0; g < x.gaps && g < GAPS; g++)
			wrong += x.gap[g].from >= armed + CLOCK_NS && x.gap[g].to + CLOCK_NS <= gone;
	}
	ok(blocks && n && !wrong, "no store was missed or seen twice when code took over (%llu stores of %u blocks, %u gaps)", (unsigned long long)n,
		blocks, wrong);
}

/* A program with more code than a function may have; the software GPU takes long to interpret it. */
static void too_large(struct session *s, struct loaded *l)
{
	bool odd = attach(&l->p, ODD) && wait_settled(s) && !became(s, ODD) && goes_on(l, ODD) && goes_on(l, COUNT);
	const struct session_link *it = link_of(s, ODD);
	ok(odd && it && it->native_why, "one that cannot be stays interpreted, with what is at the same place: %s",
		it ? session_text(s, it->native_why) : "");
	detach(&l->p, ODD);
	wait_settled(s);
	/* What takes the list's place is heard of a moment later. */
	for (uint64_t end = now_ns() + 10000000000u; now_ns() < end && !became(s, COUNT);)
		sleep_ms(1);
	ok(became(s, COUNT) && goes_on(l, COUNT), "which is code again when it has gone");
}

static void each_kind(const char *mode)
{
	struct target t;
	struct loaded l;
	const char *why = "";
	start(&t, mode, "entry,exit,loop,mem", "600000");
	struct session *s = find_session(&t, "rate");
	if (!ok(s && load_native(&l, s), "%s: a kernel is under way", mode))
		return;
	if (!ok(tier(s, &why), "%s: the device runs machine code that came meanwhile: %s", mode, why))
		return;
	ok(attach(&l.p, PASS), "%s: a program at stores", mode);
	uint64_t armed = wait_settled(s);
	ok(became(s, PASS), "%s: it becomes machine code", mode);
	ok(attach(&l.p, COUNT) && wait_settled(s) && became(s, COUNT) && goes_on(&l, COUNT), "%s: another, at loop heads", mode);
	ok(attach(&l.p, TOUCH) && wait_settled(s) && became(s, TOUCH) && became(s, PASS) && goes_on(&l, TOUCH),
		"%s: a third, beside the first: both are one piece of code", mode);
	if (!strcmp(mode, "queue"))
		too_large(s, &l);
	sleep_ms(opt.gpu ? 300 : 100);
	uint64_t gone = now_ns();
	detach(&l.p, PASS);
	wait_settled(s);
	check_passes(&l, armed, gone);
	detach(&l.p, COUNT);
	detach(&l.p, TOUCH);
	wait_settled(s);
	uint64_t n = total(&l, COUNT) + total(&l, TOUCH);
	sleep_ms(opt.gpu ? 150 : 200);
	is_int((long long)(total(&l, COUNT) + total(&l, TOUCH) - n), 0, "%s: what is gone runs no more", mode);
	stop(&t);
	is_int(finish(&t), 0, "%s: the program ends as it would", mode);
	ok(strstr(t.text, " ok\n"), "%s: and says so", mode);
	unload_native(&l);
	session_close(s);
}

/* Guards at accesses alone, in a kernel that leaves the doorbell no room. */
static void at_accesses(void)
{
	struct target t;
	struct loaded l;
	start(&t, "full", "mem", "600000");
	struct session *s = find_session(&t, "rate");
	if (!ok(s && load_native(&l, s), "a kernel that fills the device, with guards at accesses"))
		return;
	ok(attach(&l.p, TOUCH) && wait_settled(s) && became(s, TOUCH) && goes_on(&l, TOUCH), "it hears of a program there, which becomes machine code");
	detach(&l.p, TOUCH);
	ok(wait_settled(s), "and that it has gone");
	kill(t.pid, SIGTERM);
	finish(&t);
	unload_native(&l);
	session_close(s);
}

/* Room for a few functions: then programs stay interpreted, and run. */
static void little_room(void)
{
	struct target t;
	struct loaded l;
	int native = 0, interpreted = 0, dead = 0;
	setenv("EGPU_LIVE_CODE_ROOM", "40960", 1);
	start(&t, "queue", "loop", "600000");
	unsetenv("EGPU_LIVE_CODE_ROOM");
	struct session *s = find_session(&t, "rate");
	if (!ok(s && load_native(&l, s), "a kernel under way, and little room for code"))
		return;
	for (int i = 0; i < 12; i++) {
		bool is = false;
		attach(&l.p, COUNT);
		wait_settled(s);
		until_native(s, COUNT, &is);
		native += is;
		interpreted += !is;
		dead += !goes_on(&l, COUNT);
		if (interpreted == 1 && !is)
			printf("# %s\n", session_text(s, link_of(s, COUNT)->native_why));
		detach(&l.p, COUNT);
		wait_settled(s);
	}
	ok(native && interpreted && !dead, "%d times machine code, then %d times interpreted; always run", native, interpreted);
	kill(t.pid, SIGTERM);
	finish(&t);
	unload_native(&l);
	session_close(s);
}

/* -- measuring ------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double rate_for(struct target *t, int ms)
{
	static double rates[4096];
	heard(t);
	const char *s = t->text + t->n;
	int n = 0;
	sleep_ms(ms);
	heard(t);
	for (s = strstr(s, "rate "); s && (s = strstr(s, "rate ")) && n < 4096; s += 5)
		rates[n++] = atof(s + 5);
	qsort(rates, (size_t)n, sizeof(*rates), ascending);
	return n ? rates[n / 2] : 0;
}

static void rates(const char *mode, int which, const char *points)
{
	struct target t;
	struct loaded l;
	bool native = false;
	start(&t, mode, points, "100000");
	struct session *s = find_session(&t, "rate");
	if (!s || !load_native(&l, s))
		return;
	double before = rate_for(&t, 600);
	attach(&l.p, which);
	wait_settled(s);
	const char *why;
	if (tier(s, &why))
		until_native(s, which, &native);
	double during = rate_for(&t, 600);
	detach(&l.p, which);
	wait_settled(s);
	double after = rate_for(&t, 500);
	printf("%s %s %s: before %.0f passes/s, attached %.0f (%.4f), after the detach %.0f (%.4f)\n", mode, names[which],
		native ? "machine code" : "interpreted", before, during, during / before, after, after / before);
	fflush(stdout);
	kill(t.pid, SIGTERM);
	finish(&t);
	unload_native(&l);
	session_close(s);
}

static void latency(const char *mode, int times)
{
	enum { MAX = 256 };
	double first[MAX], armed[MAX], coded[MAX];
	struct target t;
	struct loaded l;
	int n = 0, native = 0;
	const char *why = "";
	start(&t, mode, "entry,exit,loop", "100000");
	struct session *s = find_session(&t, "rate");
	if (!s || !load_native(&l, s))
		return;
	bool can = tier(s, &why);
	for (; n < times && n < MAX; n++) {
		uint64_t zero = 0, t0, took, at;
		bool is = false;
		if (n % 20 == 19) {
			unload_native(&l);
			if (!load_native(&l, s))
				break;
		}
		for (uint32_t sm = 0; sm < SMS; sm++)
			map_update(l.first, &sm, &zero, 0);
		sleep_ms(10);
		l.p.first = l.first;
		t0 = now_ns();
		attach(&l.p, COUNT);
		took = until_everywhere(&l.p, opt.gpu ? 132 : 2, t0);
		at = wait_settled(s);
		if (can)
			until_native(s, COUNT, &is);
		coded[n] = (double)(now_ns() - t0) / 1e6;
		native += is;
		l.p.first = NULL;
		first[n] = (double)took / 1e6;
		armed[n] = (double)(at - t0) / 1e6;
		detach(&l.p, COUNT);
		wait_settled(s);
	}
	printf("%s: %d attaches, %d became machine code %s\n", mode, n, native, why);
	double *all[] = { first, armed, coded };
	static const char *const what[] = { "first run on every multiprocessor", "armed", "machine code and settled" };
	for (int k = 0; k < 3 && n; k++) {
		qsort(all[k], (size_t)n, sizeof(double), ascending);
		printf("%s attach to %s: median %.2f ms (%.2f to %.2f)\n", mode, what[k], all[k][n / 2], all[k][0], all[k][n - 1]);
	}
	fflush(stdout);
	kill(t.pid, SIGTERM);
	finish(&t);
	unload_native(&l);
	session_close(s);
}

static int measure(const char *mode, int times)
{
	for (int k = 0; k < 2; k++) {
		if (k)
			setenv("EGPU_LIVE_TIER", "interpreted", 1);
		rates(mode, COUNT, "entry,exit,loop");
		rates(mode, TOUCH, "mem");
		if (!k)
			latency(mode, times);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = NULL;
	int times = 50;
	opt.seed = 1;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--gpu"))
			opt.gpu = true;
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			opt.seed = (unsigned)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--only") && i + 1 < argc)
			opt.only = argv[++i];
		else if (!strcmp(argv[i], "--measure") && i + 1 < argc)
			mode = argv[++i];
		else
			times = atoi(argv[i]);
	}
	setenv("EGPU_LIVE_TIER", "native", 0);
	if (prepare()) {
		tap_skip("EGPU_BUILD does not name the build directory");
		return tap_done();
	}
	if (mode)
		return measure(mode, times);
	if (wanted("queue"))
		each_kind("queue");
	/* Those have more threads, and take long with a sanitizer. */
	if (wanted("full") && !getenv("EGPU_SANITIZED"))
		each_kind("full");
	if (wanted("memory") && !getenv("EGPU_SANITIZED"))
		each_kind("memory");
	if (wanted("full"))
		at_accesses();
	if (wanted("queue"))
		little_room();
	is_int(warnings, 0, "libbpf had nothing to complain about");
	rmdir(opt.dir);
	return tap_done();
}
