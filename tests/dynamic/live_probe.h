/* live_probe.h - live.bpf.o on a run of samples/persistent, for the test of --live and for what measures it. */
#ifndef TEST_LIVE_PROBE_H
#define TEST_LIVE_PROBE_H

#include "live.h"

enum { SMS = 256, BLOCKS = 4096, GAPS = 4, CLOCK_NS = 100000 /* by which the device's may be off */ };

struct seen {
	uint64_t count, last, when, gaps;
	struct {
		uint64_t from, to;
	} gap[GAPS];
};

static struct {
	bool gpu;
	int cycles;
	unsigned seed; /* of the software GPU's schedule, another one for each run; 0: in order */
	const char *build, *dir;
	const char *only; /* this kind of kernel; NULL: each */
} opt;

static bool wanted(const char *mode)
{
	return !opt.only || !strcmp(opt.only, mode);
}

/* Starts the sample, under a command egpu (NULL: the build's) with guards at `points` when they are given. */
static void start_with(struct target *t, const char *command, const char *mode, const char *points, const char *ms)
{
	char egpu[600], sample[600], live[64], driver[64] = "--gpu";
	if (!opt.gpu)
		snprintf(driver, sizeof(driver), "--softgpu=sm_90,sms=2,strict,seed=%u", opt.seed++);
	snprintf(egpu, sizeof(egpu), "%s/egpu", opt.build);
	snprintf(sample, sizeof(sample), "%s/samples/persistent", opt.build);
	snprintf(live, sizeof(live), "--live=%s", points ? points : "");
	char *alone[] = { sample, (char *)mode, (char *)ms, NULL };
	char *under[] = { command ? (char *)command : egpu, "run", driver, live, "-k", (char *)mode, "--", sample, (char *)mode, (char *)ms, NULL };
	start_command(t, points ? under : alone);
}

static void start(struct target *t, const char *mode, const char *points, const char *ms)
{
	start_with(t, NULL, mode, points, ms);
}

/* A directory of its own for sessions. -1: the environment does not say where the build is. */
static int prepare(void)
{
	static char dir[] = "/tmp/egpu-live-XXXXXX";
	opt.build = getenv("EGPU_BUILD");
	if (!opt.build || !mkdtemp(dir))
		return -1;
	opt.dir = dir;
	setenv("EGPU_DIR", dir, 1);
	if (!opt.gpu)
		setenv("EGPU_SAMPLE_SMALL", "1", 1);
	return 0;
}

/* -- the loader ---------------------------------------------------------------- */

enum { PROGRAMS = 9 };
static const char *const programs[PROGRAMS] = { "loop", "store", "leave", "other", "nothing", "count", "clock", "together", "longest" };
static const char *const recorders[PROGRAMS] = { "submit", "output", "print" };

struct probe {
	struct session *session;
	struct bpf_object *object;
	struct bpf_link *link[PROGRAMS];
	const char *const *names;
	struct map *first, *last, *stores;
};

static bool load_object(struct probe *p, struct session *s, const char *object, const char *const *names)
{
	struct loader_options o = { .session = s, .default_pattern = "*", .verifier = { .allow_races = true }, .live = true };
	struct diag d = { 0 };
	char path[600];
	memset(p, 0, sizeof(*p));
	p->session = s;
	p->names = names;
	if (session_enter(s, object, &d))
		return false;
	snprintf(path, sizeof(path), "%s/tests/dynamic/%s", opt.build, object);
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

static bool load(struct probe *p, struct session *s)
{
	if (!load_object(p, s, "live.bpf.o", programs))
		return false;
	p->first = find_map(s, p->object, "first");
	p->last = find_map(s, p->object, "last");
	p->stores = find_map(s, p->object, "stores");
	return true;
}

static bool attach(struct probe *p, int which)
{
	struct diag d = { 0 };
	struct bpf_program *prog = bpf_object__find_program_by_name(p->object, p->names[which]);
	p->link[which] = bpf_program__attach(prog);
	loader_last_error(&d);
	if (!p->link[which])
		printf("# %s: %s\n", p->names[which], d.text);
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
	for (int k = 0; k < PROGRAMS; k++)
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

/* Multiprocessors that have run the program since, and the time of the last of them to begin or to end. */
static uint32_t count_sms(struct map *m, uint64_t since, uint64_t *latest)
{
	uint32_t n = 0;
	*latest = 0;
	for (uint32_t sm = 0; sm < SMS; sm++) {
		uint64_t v = word(m, sm);
		n += v > since;
		*latest = v > *latest ? v : *latest;
	}
	return n;
}

/* Waits until the program has run on `sms` multiprocessors; nanoseconds from t0 to the last one's first run, 0: too late. */
static uint64_t until_everywhere(struct probe *p, uint32_t sms, uint64_t t0)
{
	uint64_t latest;
	for (int tries = 0; tries < 5000; tries++) {
		if (count_sms(p->first, t0 - CLOCK_NS, &latest) >= sms)
			return latest > t0 ? latest - t0 : 1;
		sleep_ms(1);
	}
	return 0;
}

#endif
