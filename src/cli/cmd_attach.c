/* cmd_attach.c - `egpu attach`: a probe into a process that runs. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/filter.h"
#include "cli/guards.h"
#include "cli/join.h"
#include "cli/probe.h"
#include "cli/report.h"
#include "cli/rules.h"
#include "cli/watch.h"
#include "live/program.h"
#include "map/file.h"

enum { TICK_MS = 50, DRAIN_MS = 2000, LOOK_MS = 20000, ARM_SECONDS = 5 };

struct opts {
	const char *pattern, *json, *out, *time;
	struct opt_list set;
	bool detached, allow_empty;
	struct opt_maybe live;
	int verbose;
	struct rules_opts rules;
	struct filter_opts filter; /* of which device, and part of the warps */
};

static const struct opt options[] = {
	{ 'k', "kernel", OPT_STRING, offsetof(struct opts, pattern), "PATTERN",
		"kernels to probe: a name, a shell pattern or /regex/ (default: all)" },
	{ 0, "for", OPT_STRING, offsetof(struct opts, time), "TIME",
		"detach and report after that time, with --live from when it is armed: 10, 500ms, 2m "
		"(default: at Ctrl-C, or when the process ends)" },
	{ 0, "device", OPT_STRING, offsetof(struct opts, filter.device), "N",
		"only kernels on device N (as the process counts them)" },
	{ 'd', "detached", OPT_FLAG, offsetof(struct opts, detached), NULL,
		"leave the probe attached and return at once; egpu detach ends it" },
	{ 0, "live", OPT_MAYBE, offsetof(struct opts, live), "POINTS",
		"into kernels that run already; kernels without guards get them at POINTS (see below)" },
	{ 0, "set", OPT_LIST, offsetof(struct opts, set), "VAR=VALUE",
		"initial value of a global variable of the probe" },
	{ 0, "json", OPT_STRING, offsetof(struct opts, json), "FILE",
		"also write the report as JSON" },
	{ 'o', NULL, OPT_STRING, offsetof(struct opts, out), "FILE",
		"write the report there, not to standard error" },
	{ 0, "allow-empty", OPT_FLAG, offsetof(struct opts, allow_empty), NULL,
		"no failure when no kernel was probed" },
	SAMPLE_OPTIONS(struct opts, filter),
	RULES_OPTIONS(struct opts, rules),
	{ 'v', "verbose", OPT_COUNT, offsetof(struct opts, verbose), NULL,
		"say more; per-CPU maps show every slot" },
	{ 0 },
};

struct attached {
	struct joined in;
	uint64_t graphs_before, holds_before;
	bool armed; /* --live: some kernel could run it */
	struct snapshot *before, *during; /* at the beginning, and just before the end */
};

/* -- devices ------------------------------------------------------------------------- */

static bool others_attached(const struct attached *a)
{
	const struct session_file *f = session_data(a->in.session);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (__atomic_load_n(&f->links[i].state, __ATOMIC_ACQUIRE) == SESSION_LINK_ATTACHED &&
			f->links[i].owner != session_client_number(a->in.session))
			return true;
	return false;
}

/* All probes of a process are on one device, or on all: device is its ordinal + 1, 0 or SESSION_NO_DEVICE. Whoever only looks
 * (egpu list) is soon gone. */
static int choose_device(struct attached *a, uint32_t device)
{
	struct session_filter *f = &session_data(a->in.session)->filter;
	for (int ms = 0; f->device != device && others_attached(a); ms += 10) {
		if (f->device != SESSION_NO_DEVICE || ms > LOOK_MS)
			return say_fail("other probes are attached to process %d on %s: detach them, or give the same --device", (int)a->in.pid,
				f->device ? "another device" : "all devices");
		file_sleep_ms(10);
	}
	f->device = device;
	__atomic_store_n(&f->active, filter_chooses(f), __ATOMIC_RELEASE);
	return 0;
}

/* All probes of a process run in all warps, or in the same part of them. */
static int choose_sample(struct attached *a, const struct session_filter *wanted, bool any_seed)
{
	struct session_filter *f = &session_data(a->in.session)->filter;
	bool same = f->sample_warps == wanted->sample_warps && f->max_overhead_ppm == wanted->max_overhead_ppm &&
		    (any_seed || f->sample_seed == wanted->sample_seed);
	if (!same && others_attached(a))
		return say_fail("other probes are attached to process %d, in %s: detach them, or give the same --sample-warps, --max-overhead, --seed",
			(int)a->in.pid, session_samples(f) ? "a part of the warps" : "all warps");
	if (same)
		return 0;
	f->sample_warps = wanted->sample_warps;
	f->max_overhead_ppm = wanted->max_overhead_ppm;
	f->sample_seed = wanted->sample_seed;
	__atomic_store_n(&f->active, filter_chooses(f), __ATOMIC_RELEASE);
	return 0;
}

/* -- staying ------------------------------------------------------------------------ */

static bool any_armed(struct session *s)
{
	const struct session_file *f = session_data(s);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (f->links[i].state == SESSION_LINK_ATTACHED && f->links[i].owner == session_client_number(s) &&
			__atomic_load_n(&f->links[i].armed, __ATOMIC_ACQUIRE))
			return true;
	return false;
}

static double seconds_between(const struct timespec *a, const struct timespec *b)
{
	return (double)(b->tv_sec - a->tv_sec) + (double)(b->tv_nsec - a->tv_nsec) / 1e9;
}

/* Programs for kernels that run begin a moment after the attach: their time begins then too. */
static bool may_yet_arm(struct session *s)
{
	const struct session_file *f = session_data(s);
	bool wait = false;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		wait |= f->links[i].state == SESSION_LINK_ATTACHED && f->links[i].owner == session_client_number(s) && f->links[i].live &&
			!f->links[i].why;
	return wait && !any_armed(s);
}

/* Until a signal, the end of the time, or of the process. */
static void stay(struct attached *a, struct watch *w, int signals, double seconds)
{
	struct pollfd p = { .fd = signals, .events = POLLIN };
	struct timespec attached, start, now;
	clock_gettime(CLOCK_MONOTONIC, &attached);
	start = attached;
	for (;;) {
		struct signalfd_siginfo si;
		poll(&p, 1, TICK_MS);
		watch_tick(w);
		if (read(signals, &si, sizeof(si)) == sizeof(si) || !join_alive(&a->in))
			return;
		const struct session_agent *agent = join_agent(a->in.session, a->in.pid);
		if (!agent || agent->ended)
			return;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (seconds_between(&attached, &now) < ARM_SECONDS && may_yet_arm(a->in.session))
			start = now;
		else if (seconds > 0 && seconds_between(&start, &now) >= seconds)
			return;
	}
}

static int hold_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* -- the end -------------------------------------------------------------------------- */

static uint64_t graphs_unseen(const struct attached *a)
{
	const struct session_agent *agent = join_agent(a->in.session, a->in.pid);
	return agent ? __atomic_load_n(&agent->graphs_unseen, __ATOMIC_RELAXED) : 0;
}

static uint64_t holds(const struct attached *a)
{
	const struct session_agent *agent = join_agent(a->in.session, a->in.pid);
	return agent ? __atomic_load_n(&agent->holds, __ATOMIC_RELAXED) : 0;
}

/* What waiting for a device that is never idle has cost. */
static void held(const struct attached *a, struct buf *text)
{
	const struct session_agent *agent = join_agent(a->in.session, a->in.pid);
	uint64_t n = holds(a) - a->holds_before;
	if (n)
		buf_printf(text, "launches were held back %llu time%s until the device was idle: %.1f ms at most\n",
			(unsigned long long)n, n == 1 ? "" : "s", (double)agent->held_max_ns / 1e6);
}

/* By now nothing is attached any more: what kernels were is told by the moment before. */
static void as_attached(struct attached *a, struct snapshot *snap)
{
	snap->n_probed = a->during ? a->during->n_probed : 0;
	for (uint32_t i = 0; a->during && i < a->during->n_kernels; i++) {
		const struct snap_kernel *was = &a->during->kernels[i];
		for (uint32_t k = 0; k < snap->n_kernels; k++) {
			struct snap_kernel *is = &snap->kernels[k];
			if (is->id != was->id)
				continue;
			is->state = was->state;
			is->since_ns = was->since_ns;
			is->reason = was->reason;
			is->links = was->links;
		}
	}
}

static int report(const struct opts *o, const struct probe *p, struct attached *a, struct watch *w)
{
	char what[128];
	char *command[] = { what, NULL };
	struct buf text = { 0 }, json_text = { 0 };
	struct json j;
	struct diag d = { 0 };
	struct run_report rep = { .session = a->in.session,
		.snap = snap_take(a->in.session),
		.dump = w->dump,
		.tool = p->tool,
		.programs = p,
		.probe = p->options->name,
		.command = command,
		.attached = true,
		.per_cpu = o->verbose > 0 };
	if (!rep.snap)
		return say_fail("out of memory");
	snprintf(what, sizeof(what), "process %d", (int)a->in.pid);
	uint64_t graphs = graphs_unseen(a) - a->graphs_before;
	/* What was launched before this attach is not its business. */
	snap_since(rep.snap, a->before);
	as_attached(a, rep.snap);
	json_init(&j, &json_text, JSON_PRETTY);
	int status = report_make(&rep, &text, &j, &d) ? say_diag("report", &d) : 0;
	if (graphs)
		buf_printf(&text,
			"%llu launches of graphs ran unprobed: the graphs were made before the "
			"attach, or "
			"have nodes that egpu does not follow\n",
			(unsigned long long)graphs);
	if (o->verbose)
		held(a, &text);
	if (write_out(o->out, stderr, &text))
		status = EGPU_FAILED;
	if (o->json && write_out(o->json, NULL, &json_text))
		status = EGPU_FAILED;
	if (!status && !o->allow_empty && !rep.snap->launches_instrumented && !a->armed) {
		say("no launch was probed%s%s", rep.snap->launches ? "" : ": the process launched no kernel meanwhile",
			o->live.given ? ", and no multiprocessor has said that it heard of the programs for kernels that run" : "");
		status = EGPU_FAILED;
	}
	buf_free(&text);
	buf_free(&json_text);
	snap_free(rep.snap);
	return status;
}

/* Why programs for kernels that run did not come to them. */
static void say_why(struct session *s)
{
	const struct session_file *f = session_data(s);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &f->links[i];
		if (l->state == SESSION_LINK_ATTACHED && l->owner == session_client_number(s) && l->why && l->prog < SESSION_MAX_PROGS)
			say("%.*s: %s", (int)sizeof(f->progs[0].name), f->progs[l->prog].name, session_text(s, l->why));
	}
}

static int finish(const struct opts *o, struct probe *p, struct attached *a, struct watch *w)
{
	a->during = snap_take(a->in.session);
	a->armed = any_armed(a->in.session);
	say_why(a->in.session);
	session_detach_client(a->in.session, session_client_number(a->in.session));
	if (join_alive(&a->in) && !session_drained(a->in.session, DRAIN_MS))
		say("kernels of the process still run what was attached: counts may be a moment "
		    "old");
	watch_end(w);
	return report(o, p, a, w);
}

static int stay_attached(const struct opts *o, struct probe *p, struct attached *a, double seconds)
{
	struct watch w;
	if (watch_begin(&w, a->in.session, o->verbose > 0))
		return EGPU_FAILED;
	/* Whoever reads that it is attached may end it at once. */
	int signals = hold_signals();
	say("attached to process %d%s", (int)a->in.pid, seconds > 0 ? "" : "; Ctrl-C detaches and reports");
	stay(a, &w, signals, seconds);
	int status = finish(o, p, a, &w);
	watch_free(&w);
	if (signals >= 0)
		close(signals);
	return status;
}

static int attach(const struct opts *o, const struct session_filter *wanted, struct probe *p, struct attached *a, double seconds)
{
	int status = choose_device(a, wanted->device);
	status = status ? status : choose_sample(a, wanted, !o->filter.seed);
	status = status ? status : guards_add(a->in.session, &o->live, o->pattern, o->verbose > 0);
	status = status ? status : probe_open(p, a->in.session);
	status = status ? status : probe_load(p);
	a->before = snap_take(a->in.session);
	a->graphs_before = graphs_unseen(a);
	a->holds_before = holds(a);
	status = status ? status : probe_attach(p);
	if (!status && a->in.fresh)
		status = join_bring_agent(&a->in, o->verbose > 0);
	join_unlock(&a->in);
	if (!status && o->detached) {
		/* What a loader has attached goes with it, unless it just ends. */
		session_stay(a->in.session);
		say("attached to process %d; egpu detach %d ends it", (int)a->in.pid, (int)a->in.pid);
		fflush(NULL);
		_exit(0);
	}
	if (!status)
		status = stay_attached(o, p, a, seconds);
	probe_close(p);
	snap_free(a->before);
	snap_free(a->during);
	return status;
}

/* A program that does nothing, for all kernels, on no device: the agent takes its place and looks for PTX. */
static int add_look(struct attached *a)
{
	struct ebpf_fragment f = { .name = "list", .point = EBPF_POINT_ENTRY, .max_insns = 1, .body = "{\n}\n" };
	struct buf text = { 0 };
	struct diag d = { 0 };
	uint32_t prog, link;
	if (choose_device(a, SESSION_NO_DEVICE))
		return EGPU_FAILED;
	ebpf_fragment_print(&f, &text);
	int err = session_add_prog(a->in.session, text.data, text.len, f.name, f.point, f.warp, &prog, &d);
	err = err ? err : session_add_link(a->in.session, prog, f.point, f.warp, "*", &link, &d);
	buf_free(&text);
	return err ? say_diag("list", &d) : 0;
}

/* Who reports later was on all devices. */
static void forget_look(struct attached *a)
{
	if (session_data(a->in.session)->filter.device == SESSION_NO_DEVICE && !others_attached(a))
		choose_device(a, 0);
}

int attach_look(pid_t pid, double seconds, struct snapshot **out)
{
	struct attached a = { .in.pid = pid };
	int status = join(&a.in, "list");
	/* Where probes are attached already, all is seen. */
	if (!status && (a.in.fresh || !others_attached(&a)))
		status = add_look(&a);
	if (!status && a.in.fresh)
		status = join_bring_agent(&a.in, false);
	join_unlock(&a.in);
	struct snapshot *before = status ? NULL : snap_take(a.in.session);
	for (double left = seconds; !status && left > 0 && join_alive(&a.in); left -= 0.01)
		file_sleep_ms(10);
	*out = status ? NULL : snap_take(a.in.session);
	if (*out)
		snap_since(*out, before);
	snap_free(before);
	if (a.in.session) {
		session_detach_client(a.in.session, session_client_number(a.in.session));
		forget_look(&a);
	}
	join_leave(&a.in);
	return status ? status : *out ? 0 : say_fail("out of memory");
}

int attach_pid(const char *text, pid_t *pid)
{
	char *end;
	long n = strtol(text, &end, 10);
	if (*end || end == text || n <= 0 || n > INT32_MAX)
		return say_fail("%s: not the number of a process", text);
	*pid = (pid_t)n;
	return 0;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	struct probe_options po = { .name = rest->args[1],
		.pattern = o->pattern,
		.set = &o->set,
		.rules = { .log_level = 1 },
		.live = o->live.given,
		.verbose = o->verbose > 1 };
	struct attached a = { 0 };
	struct session_filter wanted;
	struct probe p;
	uint64_t ns;
	if (attach_pid(rest->args[0], &a.in.pid) || filter_duration(o->time, &ns) || filter_samples_live(&o->filter, o->live.given) ||
		filter_read(&o->filter, &wanted))
		return EGPU_FAILED;
	if (o->detached && (o->json || o->out || o->time))
		return say_fail("-d returns at once, without a report: leave out %s, or -d",
			o->json ? "--json" : o->out ? "-o" : "--for");
	if (a.in.pid == getpid())
		return say_fail("process %d is egpu itself", (int)a.in.pid);
	if (check_out(o->out) || check_out(o->json))
		return EGPU_FAILED;
	int status = rules_read(&o->rules, &po.rules);
	status = status ? status : probe_read(&p, &po);
	if (status)
		return status;
	status = join(&a.in, po.name);
	if (!status)
		status = attach(o, &wanted, &p, &a, (double)ns / 1e9);
	join_leave(&a.in);
	probe_free(&p);
	return status;
}

const struct command cmd_attach = {
	.name = "attach",
	.synopsis = "attach [options] PID PROBE",
	.summary = "puts a probe into the kernels of a process that runs",
	.help = "The process needs no preparation: one of its threads is borrowed for a moment to "
		"load the "
		"agent, and kernels are\n"
		"probed from their next launch on. Several probes may be attached at once, each by "
		"its "
		"own egpu attach.\n"
		"  egpu attach 4711 memtrace\n"
		"  egpu attach --for 10 -k 'gemm*' 4711 count.bpf.c\n"
		"  egpu attach -d 4711 count.bpf.o; egpu ps; egpu detach 4711\n"
		"  egpu attach --live 4711 loops.bpf.c          into what runs at this moment\n"
		"Where the process has no guards yet (egpu run --live), --live gives them to the kernels that -k names, from their next\n"
		"launch on, at POINTS of entry, exit, loop, mem (default: " LIVE_POINTS_DEFAULT ").\n"
		"docs/dynamic.md says what is probed when, and what cannot be.\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.min_args = 2,
	.max_args = 2,
};
