/* The protocol of --live (live/live.h) on the software GPU: programs come to kernels that run and go in any order, several at a point, in two
 * contexts; lanes are left behind in them for long; room is used up and comes back; loaders are killed in the middle.
 *
 * usage: live_protocol [STEPS [SEED]]
 */
#include "live.h"

enum { CONTEXTS = 2, PROGRAMS = 5, BY_ORDER = 4 /* those that run in every pass */, BEHIND_MS = 60 };

static const char *build;
static const char *const names[PROGRAMS] = { "alpha_a", "alpha_b", "beta", "all", "left" };

struct probe {
	struct session *session;
	struct bpf_object *object;
	struct bpf_link *link[PROGRAMS];
	struct map *hits;
};

static int answers;
static unsigned long seed = 1; /* of the order of steps, and of the software GPU's schedule */

/* A line to the target, and its answer. */
static bool tell(struct target *t, const char *line, const char *answer)
{
	char all[64];
	snprintf(all, sizeof(all), "%s %d\n", answer, answers++);
	if (write(t->in, line, strlen(line)) != (ssize_t)strlen(line))
		return false;
	return wait_word(t, all);
}

static bool begin_kernels(struct target *t, unsigned threads)
{
	char line[64], answer[64];
	for (int k = 0; k < 4; k++) {
		snprintf(line, sizeof(line), "start %d %s %u\n", k / 2, k % 2 ? "beta" : "alpha", threads);
		snprintf(answer, sizeof(answer), "started %d %s", k / 2, k % 2 ? "beta" : "alpha");
		if (!tell(t, line, answer))
			return false;
	}
	return true;
}

static bool end_kernels(struct target *t)
{
	return tell(t, "stop 0\n", "stopped 0") && tell(t, "stop 1\n", "stopped 1");
}

/* behind_ms: for so long some lanes stand still now and then. */
static struct session *begin(struct target *t, unsigned threads, unsigned behind_ms)
{
	char egpu[600], target[600], driver[80];
	snprintf(egpu, sizeof(egpu), "%s/egpu", build);
	snprintf(target, sizeof(target), "%s/tests/dynamic/target_live", build);
	snprintf(driver, sizeof(driver), "--softgpu=sm_90,sms=2,strict,seed=%lu,behind=%u", seed & 0xffff, behind_ms);
	char *argv[] = { egpu, "run", driver, "--live=exit,loop", "-k", "*", "--", target, NULL };
	answers = 0;
	start_command(t, argv);
	struct session *s = find_session(t, "ready");
	return s && begin_kernels(t, threads) ? s : NULL;
}

static bool load(struct probe *p, struct session *s)
{
	struct loader_options o = { .session = s, .default_pattern = "*", .live = true };
	struct diag d = { 0 };
	char path[600];
	memset(p, 0, sizeof(*p));
	p->session = s;
	snprintf(path, sizeof(path), "%s/tests/dynamic/live_protocol.bpf.o", build);
	if (session_enter(s, "live_protocol.bpf.o", &d) || loader_start(&o, &d)) {
		printf("# %s\n", d.text);
		return false;
	}
	static bool registered;
	if (!registered && loader_register_sections(&d))
		return false;
	registered = true;
	libbpf_set_print(heed);
	p->object = bpf_object__open_file(path, NULL);
	if (!p->object || bpf_object__load(p->object))
		return false;
	p->hits = find_map(s, p->object, "hits");
	return p->hits;
}

static void unload(struct probe *p)
{
	for (int i = 0; i < PROGRAMS; i++)
		if (p->link[i])
			bpf_link__destroy(p->link[i]);
	map_close(p->hits);
	bpf_object__close(p->object);
	loader_stop();
	session_end_client(p->session);
}

static bool toggle(struct probe *p, int i)
{
	if (p->link[i]) {
		bpf_link__detach(p->link[i]);
		bpf_link__destroy(p->link[i]);
		p->link[i] = NULL;
		return true;
	}
	p->link[i] = bpf_program__attach(bpf_object__find_program_by_name(p->object, names[i]));
	return p->link[i];
}

static uint64_t hits(struct probe *p, uint32_t i)
{
	uint64_t n = 0;
	map_lookup(p->hits, &i, &n);
	return n;
}

/* A copy that began after this has reached the session: two copies of its image later. */
static void wait_copies(struct probe *p)
{
	const struct session_file *f = session_data(p->session);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++) {
		if (!f->agents[i].pid || f->agents[i].ended)
			continue;
		uint64_t since = f->agents[i].syncs, end = now_ns() + 10000000000u;
		while (__atomic_load_n(&f->agents[i].syncs, __ATOMIC_RELAXED) < since + 5 && now_ns() < end)
			sleep_ms(1);
	}
}

/* What is attached runs, the rest does not. */
static int wrong(struct probe *p)
{
	uint64_t before[BY_ORDER];
	int n = 0;
	wait_copies(p);
	for (uint32_t i = 0; i < BY_ORDER; i++)
		before[i] = hits(p, i);
	wait_copies(p);
	for (uint32_t i = 0; i < BY_ORDER; i++) {
		uint64_t end = now_ns() + 10000000000u;
		while (p->link[i] && hits(p, i) == before[i] && now_ns() < end)
			sleep_ms(1);
		if ((hits(p, i) != before[i]) == (p->link[i] != NULL))
			continue;
		printf("# %s is %s and has %s\n", names[i], p->link[i] ? "attached" : "detached", p->link[i] ? "not run" : "run");
		n++;
	}
	return n;
}

/* -- any order ------------------------------------------------------------------------- */

static unsigned random_below(unsigned n)
{
	seed = seed * 6364136223846793005ul + 1442695040888963407ul;
	return (unsigned)(seed >> 33) % n;
}

static void any_order(struct session *s, int steps)
{
	struct probe p;
	int bad = 0;
	ok(load(&p, s), "a loader for four programs on two kernels in two contexts");
	for (int i = 0; i < steps && !bad; i++) {
		/* Sometimes several before the first of them has settled: one takes another's place. */
		for (unsigned n = 1 + random_below(3); n; n--)
			bad += !toggle(&p, (int)random_below(BY_ORDER));
		bad += !wait_settled(s) + wrong(&p);
	}
	ok(!bad, "%d changes: what is attached runs, what is detached does not", steps);
	ok(toggle(&p, 4) && wait_settled(s), "a program comes at exits");
	unload(&p);
}

/* -- lanes that are left behind ------------------------------------------------------------ */

/* Runs of programs that are gone, by lanes that may have stood still between the guard's load and the program's end. */
static int late(struct probe *p)
{
	uint64_t before[BY_ORDER];
	int n = 0;
	for (uint32_t i = 0; i < BY_ORDER; i++)
		before[i] = hits(p, i); /* all that was counted is there */
	sleep_ms(2 * BEHIND_MS);
	wait_copies(p);
	for (uint32_t i = 0; i < BY_ORDER; i++)
		if (!p->link[i] && hits(p, i) != before[i])
			n++, printf("# %s has run %llu times after it was gone\n", names[i], (unsigned long long)(hits(p, i) - before[i]));
	return n;
}

/* What egpu detach waits for; *said: that links say how many are inside. */
static bool wait_gone(struct session *s, bool *said)
{
	const struct session_file *f = session_data(s);
	for (uint64_t end = now_ns() + 20000000000u; now_ns() < end;) {
		if (session_drained(s, 1))
			return true;
		for (int i = 0; i < SESSION_MAX_LINKS; i++)
			*said |= f->links[i].state == SESSION_LINK_DETACHED && f->links[i].armed && f->links[i].inside;
	}
	return false;
}

/* As machine code programs are so short that a lane that stands still often stands between the guard and the program. At most a second. */
static void wait_native(struct session *s)
{
	const struct session_file *f = session_data(s);
	bool all = false;
	for (int ms = 0; ms < 1000 && !all; ms++, sleep_ms(1)) {
		all = true;
		for (int i = 0; i < SESSION_MAX_LINKS; i++)
			if (f->links[i].live && f->links[i].state == SESSION_LINK_ATTACHED)
				all &= __atomic_load_n(&f->links[i].native, __ATOMIC_ACQUIRE) == CONTEXTS;
	}
}

static void left_behind(struct session *s, int steps)
{
	struct probe p;
	int bad = 0, after = 0;
	bool said = false;
	ok(load(&p, s), "a loader where lanes are left behind");
	for (int i = 0; i < steps && !bad; i++) {
		for (unsigned n = 1 + random_below(3); n; n--)
			bad += !toggle(&p, (int)random_below(BY_ORDER));
		bad += !wait_settled(s);
		if (random_below(4))
			wait_native(s);
		sleep_ms((int)random_below(BEHIND_MS));
		for (int k = 0; k < BY_ORDER; k++)
			if (p.link[k] && random_below(4))
				toggle(&p, k);
		bad += !wait_gone(s, &said);
		after += late(&p);
	}
	ok(!bad, "%d changes there come to rest", 2 * steps);
	ok(said, "links say meanwhile that somebody is inside");
	is_int(after, 0, "and what is gone runs no more");
	unload(&p);
}

/* -- room -------------------------------------------------------------------------------- */

static const struct session_link *latest(struct session *s)
{
	const struct session_file *f = session_data(s);
	const struct session_link *l = NULL;
	for (int i = 0; i < SESSION_MAX_LINKS; i++)
		if (f->links[i].live && f->links[i].state == SESSION_LINK_ATTACHED)
			l = &f->links[i];
	return l;
}

static void room(struct target *t, struct session *s)
{
	struct probe p;
	const struct session_link *l = NULL;
	int n = 0;
	ok(load(&p, s), "a loader while there is little room");
	for (; n < 40 && !(l && l->why); n++) {
		if (p.link[0]) {
			toggle(&p, 0);
			wait_settled(s);
		}
		toggle(&p, 0);
		l = latest(s);
		for (int k = 0; k < 20000 && l && !l->armed && !l->why; k++)
			sleep_ms(1);
	}
	/* In one of the two contexts, which did not see changes that came together apart, there may be more. */
	ok(n > 2 && l && l->why && l->armed < CONTEXTS && strstr(session_text(s, l->why), "room"), "the room is used up after a few programs: %s",
		l ? session_text(s, l->why) : "");
	sleep_ms(100);
	ok(l && l->armed < CONTEXTS, "while the kernels run it stays so");
	ok(end_kernels(t) && begin_kernels(t, 1), "they end, and run again");
	ok(wait_settled(s) && !wrong(&p), "then it is armed, and runs");
	ok(l && !l->why, "and no reason is left");
	unload(&p);
}

/* -- loaders that are killed ------------------------------------------------------------------ */

/* What a loader does, up to a step, or for some microseconds. */
static void loader_until(const char *dir, int step, unsigned us)
{
	struct session *s;
	struct probe p;
	if (us)
		ualarm(us, 0); /* its default action is death */
	if (session_open(dir, &s, NULL))
		_exit(1);
	for (int at = 0; at < 8; at++) {
		if (at == step)
			raise(SIGKILL);
		if (at == 0 && !load(&p, s))
			_exit(2);
		if (at >= 1 && at <= 3)
			toggle(&p, at == 1 ? 0 : at == 2 ? 3 : 0);
		if (at == 4)
			wait_settled(s);
		if (at == 5)
			toggle(&p, 3);
		if (at == 6)
			unload(&p);
	}
	_exit(0);
}

static void killed(struct session *s)
{
	int bad = 0, n = 0, late = 0;
	for (int k = 0; k < 16; k++, n++) {
		pid_t pid = fork();
		int status;
		if (!pid)
			loader_until(session_path(s), k < 8 ? k : -1, k < 8 ? 0 : 1000 + random_below(60000));
		waitpid(pid, &status, 0);
		late += WIFEXITED(status);
		session_reap(s);
	}
	struct probe p;
	ok(load(&p, s), "after %d loaders that were killed at each step or after some milliseconds (%d came to their end)", n, late);
	ok(wait_settled(s), "what they left is taken away");
	bad += !toggle(&p, 0) + !toggle(&p, 2);
	ok(wait_settled(s) && !bad && !wrong(&p), "and the next one's programs run, alone");
	unload(&p);
}

int main(int argc, char **argv)
{
	struct target t;
	build = getenv("EGPU_BUILD");
	int steps = argc > 1 ? atoi(argv[1]) : 12;
	if (argc > 2)
		seed = strtoul(argv[2], NULL, 0);
	if (!build) {
		tap_skip("EGPU_BUILD does not name the build directory");
		return tap_done();
	}
	char dir[] = "/tmp/egpu-live-XXXXXX";
	if (!mkdtemp(dir))
		return 99;
	setenv("EGPU_DIR", dir, 1);
	setenv("EGPU_SOFTGPU_QUIET", "1", 1);
	signal(SIGPIPE, SIG_IGN);
	printf("# seed %lu\n", seed);
	struct session *s = begin(&t, 1, 0);
	if (ok(s, "kernels run in two contexts")) {
		any_order(s, steps);
		killed(s);
		session_close(s);
	}
	stop(&t);
	is_int(finish(&t), 0, "the target ends as it would");
	ok(strstr(t.text, "ended well"), "and says so");
	s = begin(&t, 40, BEHIND_MS);
	if (ok(s, "kernels of two warps, whose lanes are left behind")) {
		left_behind(s, steps);
		session_close(s);
	}
	stop(&t);
	is_int(finish(&t), 0, "the target ends as it would");
	setenv("EGPU_LIVE_ROOM", "8192", 1);
	s = begin(&t, 1, 0);
	if (ok(s, "a run with little room for programs")) {
		room(&t, s);
		session_close(s);
	}
	stop(&t);
	is_int(finish(&t), 0, "it ends as it would");
	is_int(warnings, 0, "libbpf had nothing to complain about");
	rmdir(dir);
	return tap_done();
}
