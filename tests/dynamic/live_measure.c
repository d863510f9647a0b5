/* What guards cost and how long attaching and detaching take (docs/dynamic.md).
 *
 * usage: live_measure [--gpu] [--egpu COMMAND]... WHAT [ARGUMENT]...
 *
 *	rates MODE ROUNDS     passes a second without egpu and under each command, with guards but for accesses, and with those; in turns
 *	latency MODE TIMES    attach and detach
 *	around MODE [NN...]   rates of one run before an attach, while a program is attached, after the detach: of each whose digit is there (45678)
 *	after MODE N          rates of one run before program N is attached, while it is, for 3 s after the detach, and after another attach and
 *	                      detach; and how many lanes of a warp are together at loop heads before and after
 *	longest MODE          how long one run of a program takes at most, from one look at the clock to the next
 *	bell MODE             how long an attach takes until it is armed where the doorbell kernel alone tells of it: guards at entry and exits
 *	cycles MODE TIMES     attach, another takes its place, detach; what each process holds before and after
 *
 * MODE is one of samples/persistent. Lines come one by one, so that what was measured before a timeout is not lost.
 */
#include "live/program.h"
#include "live_probe.h"

#include <dirent.h>
#include <stdio.h>

enum { MAX_RATES = 4096, MAX_COMMANDS = 6, RATE_MS = 750 };

static const char *commands[MAX_COMMANDS];
static int n_commands;

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* Whether the programs of all links are machine code, or say why not; at most a second. */
static const char *tier(struct session *s)
{
	const struct session_file *f = session_data(s);
	uint32_t id;
	if (!live_find_map(s, &id) || f->maps[id].live != LIVE_TIER_NATIVE)
		return "interpreted";
	for (int ms = 0; ms < 1000; ms++, sleep_ms(1)) {
		bool all = true;
		for (int i = 0; i < SESSION_MAX_LINKS; i++) {
			const struct session_link *l = &f->links[i];
			if (l->live && l->state == SESSION_LINK_ATTACHED && l->native_why)
				return session_text(s, l->native_why);
			all &= !l->live || l->state != SESSION_LINK_ATTACHED || __atomic_load_n(&l->native, __ATOMIC_ACQUIRE);
		}
		if (all)
			return "machine code";
	}
	return "not yet machine code";
}

/* Median of the rates that were printed; the first is of a window in which the kernel began. */
static double median_rate(const char *text)
{
	static double rates[MAX_RATES];
	int n = 0;
	const char *s = strstr(text, "rate ");
	for (s = s ? s + 5 : text; (s = strstr(s, "rate ")) && n < MAX_RATES; s++)
		rates[n++] = atof(s + 5);
	qsort(rates, (size_t)n, sizeof(*rates), ascending);
	return n ? rates[n / 2] : 0;
}

/* -- rates ------------------------------------------------------------------------ */

/* Whether the kernel that runs has guards. */
static bool has_guards(struct target *t, const char *mode, bool tell)
{
	struct session *s = find_session(t, "rate");
	const struct session_file *f = s ? session_data(s) : NULL;
	bool probed = false;
	for (int i = 0; f && i < SESSION_MAX_KERNELS; i++) {
		const struct session_kernel *k = &f->kernels[i];
		if (!k->launches)
			continue;
		probed = k->launches_instrumented == k->launches;
		if (tell)
			printf("# %s: registers %u, with guards %u; bytes of local memory %u, %u; compiled in %.0f ms\n", mode, k->regs_before,
				k->regs_after, k->local_before, k->local_after, (double)k->compile_ns / 1e6);
	}
	if (s)
		session_close(s);
	return probed;
}

static double rate_of(const char *command, const char *mode, const char *points, bool tell)
{
	struct target t;
	char ms[16];
	snprintf(ms, sizeof(ms), "%d", RATE_MS);
	start_with(&t, command, mode, points, ms);
	if (points && !has_guards(&t, mode, tell))
		printf("# %s under %s ran without guards\n", mode, points);
	int status = finish(&t);
	printf("# %s %s: %.1f\n", mode, points ? points : "without egpu", median_rate(t.text));
	if (status || !strstr(t.text, " ok\n"))
		printf("# %s under %s ended with %d\n", mode, points ? points : "nothing", status);
	return median_rate(t.text);
}

/* In turns, so that a drift of the machine meets all. */
static void rates(const char *mode, int rounds)
{
	enum { KINDS = 2 + MAX_COMMANDS, MAX_ROUNDS = 32 };
	static const char *const points[] = { "entry,exit,loop,mem", "entry,exit,loop" };
	double got[KINDS][MAX_ROUNDS];
	int kinds = n_commands + 2;
	rounds = rounds < 1 ? 1 : rounds > MAX_ROUNDS ? MAX_ROUNDS : rounds;
	for (int r = 0; r < rounds; r++)
		for (int k = 0; k < kinds; k++)
			got[k][r] = rate_of(commands[k > 1 ? k - 2 : 0], mode, k ? points[k > 1] : NULL, !r);
	for (int k = 0; k < kinds; k++)
		qsort(got[k], (size_t)rounds, sizeof(double), ascending);
	for (int k = 0; k < kinds; k++)
		printf("%s %s%s%s: %.1f passes/s (%.1f to %.1f), %.4f of uninstrumented\n", mode,
			k ? points[k > 1] : "without egpu", k > 1 && n_commands > 1 ? " " : "",
			k > 1 && n_commands > 1 ? commands[k - 2] : "", got[k][rounds / 2], got[k][0], got[k][rounds - 1],
			got[k][rounds / 2] / got[0][rounds / 2]);
}

/* Rates of a while from now on. */
static double rate_for(struct target *t, int ms)
{
	heard(t);
	size_t from = t->n;
	sleep_ms(ms);
	printf("#");
	for (const char *s = heard(t) + from; (s = strstr(s, "rate ")); s++)
		printf(" %.0f", atof(s + 5));
	printf("\n");
	return median_rate(t->text + from);
}

static void leave(struct target *t, struct probe *p, struct session *s)
{
	unload(p);
	session_close(s);
	kill(t->pid, SIGTERM);
	finish(t);
}

static void around(const char *mode, const char *which)
{
	struct target t;
	struct probe p;
	start_with(&t, commands[0], mode, "entry,exit,loop", "100000");
	struct session *s = find_session(&t, "rate");
	if (!s || !load(&p, s))
		return;
	double before = rate_for(&t, 1000), while_there, after;
	for (; *which >= '0' && *which < '0' + PROGRAMS; which++) {
		int k = *which - '0';
		attach(&p, k);
		wait_settled(s);
		printf("# %s\n", tier(s));
		while_there = rate_for(&t, 700);
		detach(&p, k);
		wait_settled(s);
		after = rate_for(&t, 1000);
		printf("%s around %s: before %.1f, attached %.1f (%.4f), after the detach %.1f (%.4f of before)\n", mode, programs[k], before,
			while_there, while_there / before, after, after / before);
	}
	leave(&t, &p, s);
}

/* -- latencies ---------------------------------------------------------------------- */

static void print_latency(const char *mode, const char *what, double *ms, int n)
{
	qsort(ms, (size_t)n, sizeof(*ms), ascending);
	if (n)
		printf("%s %s: median %.2f ms (%.2f to %.2f, %d times)\n", mode, what, ms[n / 2], ms[0], ms[n - 1], n);
}

static void latency(const char *mode, int times)
{
	enum { MAX = 256 };
	double in[MAX], armed[MAX], out[MAX], gone[MAX];
	struct target t;
	struct probe p;
	int n = 0, late = 0;
	start_with(&t, commands[0], mode, "entry,exit,loop", "100000");
	struct session *s = find_session(&t, "rate");
	if (!s || !load(&p, s))
		return;
	for (; n < times && n < MAX; n++) {
		uint64_t latest, t0, took, at;
		/* A loader has room for a few dozen links: another one comes. */
		if (n % 20 == 19) {
			unload(&p);
			if (!load(&p, s))
				break;
		}
		t0 = now_ns();
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
		sleep_ms(40);
		count_sms(p.last, 0, &latest);
		out[n] = latest > t0 ? (double)(latest - t0) / 1e6 : 0;
		gone[n] = at > t0 ? (double)(at - t0) / 1e6 : 0;
		late += latest > at + CLOCK_NS;
	}
	print_latency(mode, "attach to first run on every multiprocessor", in, n);
	print_latency(mode, "attach to armed", armed, n);
	print_latency(mode, "detach to last run", out, n);
	print_latency(mode, "detach to gone", gone, n);
	printf("%s: %d of %d detaches had a run after gone\n", mode, late, n);
	leave(&t, &p, s);
}

static void print_lanes(struct probe *p, struct target *t, struct session *s, const char *mode, const char *when)
{
	uint32_t zero = 0, one = 1;
	uint64_t n0 = 0, runs0 = 0, n = 0, runs = 0;
	struct map *m = find_map(s, p->object, "lanes");
	if (!m)
		return;
	map_lookup_sum(m, &zero, &n0);
	map_lookup_sum(m, &one, &runs0);
	attach(p, 7);
	wait_settled(s);
	printf("# %s\n", tier(s));
	rate_for(t, 300);
	detach(p, 7);
	wait_settled(s);
	map_lookup_sum(m, &zero, &n);
	map_lookup_sum(m, &one, &runs);
	printf("%s after %s: %.3f lanes are together at loop heads, in %llu runs\n", mode, when, runs > runs0 ? (double)(n - n0) / (double)(runs - runs0) : 0,
		(unsigned long long)(runs - runs0));
	map_close(m);
}

static void after(const char *mode, int which)
{
	struct target t;
	struct probe p;
	start_with(&t, commands[0], mode, "entry,exit,loop", "100000");
	struct session *s = find_session(&t, "rate");
	if (!s || !load(&p, s))
		return;
	double before = rate_for(&t, 800);
	print_lanes(&p, &t, s, mode, "the start");
	double then = rate_for(&t, 800);
	attach(&p, which);
	wait_settled(s);
	const char *how = tier(s);
	double during = rate_for(&t, 700);
	detach(&p, which);
	wait_settled(s);
	double first = rate_for(&t, 1000), later = rate_for(&t, 2000);
	printf("%s after %s, %s: before %.1f, when lanes had been counted %.4f of it, attached %.4f, in the second after the detach %.4f, then %.4f\n", mode,
		programs[which], how, before, then / before, during / before, first / before, later / before);
	print_lanes(&p, &t, s, mode, programs[which]);
	printf("%s after that: %.4f\n", mode, rate_for(&t, 1000) / before);
	leave(&t, &p, s);
}

static void longest(const char *mode)
{
	struct target t;
	struct probe p;
	double ms[SMS];
	int n = 0;
	start_with(&t, commands[0], mode, "entry,exit,loop", "100000");
	struct session *s = find_session(&t, "rate");
	if (!s || !load(&p, s))
		return;
	struct map *took = find_map(s, p.object, "took");
	attach(&p, 8);
	wait_settled(s);
	const char *how = tier(s);
	sleep_ms(1000);
	detach(&p, 8);
	wait_settled(s);
	sleep_ms(100);
	for (uint32_t sm = 0; sm < SMS; sm++)
		if (word(took, sm))
			ms[n++] = (double)word(took, sm) / 1e6;
	qsort(ms, (size_t)n, sizeof(*ms), ascending);
	printf("%s, %s: a run takes at most %.3f ms, on half of %d multiprocessors %.3f\n", mode, how, n ? ms[n - 1] : 0, n, n ? ms[n / 2] : 0);
	map_close(took);
	leave(&t, &p, s);
}

static void bell(const char *mode)
{
	struct target t;
	struct probe p;
	start_with(&t, commands[0], mode, "entry,exit", "100000");
	struct session *s = find_session(&t, "rate");
	const struct session_file *f = s ? session_data(s) : NULL;
	if (!s || !load(&p, s))
		return;
	for (int k = 0; k < 3; k++) {
		uint64_t t0 = now_ns(), ms = 0;
		uint32_t armed = 0, unheard = 0;
		attach(&p, 2);
		for (; !armed && ms < 1500; sleep_ms(1), ms = (now_ns() - t0) / 1000000)
			for (int i = 0; i < SESSION_MAX_LINKS; i++)
				if (f->links[i].live && f->links[i].state == SESSION_LINK_ATTACHED) {
					armed = __atomic_load_n(&f->links[i].armed, __ATOMIC_ACQUIRE);
					unheard = __atomic_load_n(&f->links[i].unheard, __ATOMIC_RELAXED);
				}
		printf("%s by the doorbell alone: %s after %llu ms, %u multiprocessors had not heard\n", mode, armed ? "armed" : "not armed",
			(unsigned long long)ms, unheard);
		detach(&p, 2);
		sleep_ms(100);
	}
	leave(&t, &p, s);
}

/* -- leaks --------------------------------------------------------------------------- */

struct held {
	long rss_kb, fds, shm, device_mib;
};

static long count_dir(const char *path)
{
	long n = 0;
	DIR *d = opendir(path);
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static struct held held_by(pid_t pid)
{
	struct held h = { 0 };
	char path[64], line[256];
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "VmRSS: %ld", &h.rss_kb);
	if (f)
		fclose(f);
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	h.fds = count_dir(path);
	h.shm = count_dir("/dev/shm");
	if (opt.gpu && (f = popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits", "r"))) {
		for (long mib; fscanf(f, "%ld", &mib) == 1;)
			h.device_mib += mib; /* of all devices: which one is ours is not said */
		pclose(f);
	}
	return h;
}

static pid_t pid_of_agent(struct session *s)
{
	const struct session_file *f = session_data(s);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (f->agents[i].pid && !f->agents[i].ended)
			return (pid_t)f->agents[i].pid;
	return 0;
}

static bool once(struct probe *p, struct session *s, int *coded)
{
	bool good = attach(p, 0) && wait_settled(s);
	*coded += !strcmp(tier(s), "machine code");
	good = good && attach(p, 3);
	detach(p, 0);
	good = good && wait_settled(s);
	*coded += !strcmp(tier(s), "machine code");
	detach(p, 3);
	return good && wait_settled(s);
}

static void cycles(const char *mode, int times)
{
	struct target t;
	struct probe p;
	struct held first = { 0 }, last;
	int good = 0, coded = 0;
	start_with(&t, commands[0], mode, "entry,exit,loop", "100000");
	struct session *s = find_session(&t, "rate");
	if (!s || !load(&p, s))
		return;
	uint64_t t0 = now_ns();
	for (int i = 0; i < times && good == i; i++) {
		if (i % 10 == 9) {
			unload(&p);
			if (!load(&p, s))
				break;
		}
		good += once(&p, s, &coded);
		if (i == times / 10)
			first = held_by(pid_of_agent(s));
	}
	double ms = (double)(now_ns() - t0) / 1e6;
	last = held_by(pid_of_agent(s));
	printf("%s: attached, replaced and detached %d times of %d, %.1f ms each, %d times machine code; libbpf complained %d times\n", mode, good,
		times, ms / times, coded, warnings);
	printf("%s held by the target after %d rounds and after %d: resident %ld and %ld KiB, descriptors %ld and %ld, /dev/shm %ld and %ld, device "
	       "memory %ld and %ld MiB\n", mode, times / 10 + 1, times, first.rss_kb, last.rss_kb, first.fds, last.fds, first.shm, last.shm,
		first.device_mib, last.device_mib);
	leave(&t, &p, s);
}

int main(int argc, char **argv)
{
	int i = 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (; i < argc && !strncmp(argv[i], "--", 2); i++) {
		opt.gpu |= !strcmp(argv[i], "--gpu");
		if (!strcmp(argv[i], "--egpu") && i + 1 < argc && n_commands < MAX_COMMANDS)
			commands[n_commands++] = argv[++i];
	}
	if (prepare()) {
		fprintf(stderr, "EGPU_BUILD does not name the build directory\n");
		return 1;
	}
	if (!n_commands) {
		static char own[600];
		snprintf(own, sizeof(own), "%s/egpu", opt.build);
		commands[n_commands++] = own;
	}
	const char *what = i < argc ? argv[i] : "", *mode = i + 1 < argc ? argv[i + 1] : "queue";
	int times = i + 2 < argc ? atoi(argv[i + 2]) : 3;
	if (!strcmp(what, "rates"))
		rates(mode, times);
	else if (!strcmp(what, "latency"))
		latency(mode, times);
	else if (!strcmp(what, "around"))
		around(mode, i + 2 < argc ? argv[i + 2] : "45678");
	else if (!strcmp(what, "longest"))
		longest(mode);
	else if (!strcmp(what, "bell"))
		bell(mode);
	else if (!strcmp(what, "after"))
		after(mode, times >= 0 && times < PROGRAMS ? times : 0);
	else if (!strcmp(what, "cycles"))
		cycles(mode, times);
	else
		fprintf(stderr, "usage: live_measure [--gpu] [--egpu COMMAND]... rates|latency|around|after|longest|bell|cycles MODE [TIMES]\n");
	rmdir(opt.dir);
	return 0;
}
