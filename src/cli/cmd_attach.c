/* cmd_attach.c - `egpu attach`: a probe into a process that runs. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/native.h"
#include "cli/paths.h"
#include "cli/probe.h"
#include "cli/filter.h"
#include "cli/report.h"
#include "cli/rules.h"
#include "cli/watch.h"
#include "inject/inject.h"
#include "live/program.h"
#include "map/file.h"
#include "map/session.h"

enum { TICK_MS = 50, COME_MS = 5000, DRAIN_MS = 2000, LOCK_MS = 15000, LOCK_TICK_MS = 5, LATE_MS = 1500, LOOK_MS = 20000 };

struct opts {
	const char *pattern, *json, *out, *time, *device;
	struct opt_list set;
	bool detached, allow_empty;
	struct opt_maybe live;
	int verbose;
	struct rules_opts rules;
	struct filter_opts filter; /* of which part of the warps */
};

static const struct opt options[] = {
	{ 'k', "kernel", OPT_STRING, offsetof(struct opts, pattern), "PATTERN",
		"kernels to probe: a name, a shell pattern or /regex/ (default: all)" },
	{ 0, "for", OPT_STRING, offsetof(struct opts, time), "TIME",
		"detach and report after that time: 10, 500ms, 2m (default: at Ctrl-C, or when the process "
		"ends)" },
	{ 0, "device", OPT_STRING, offsetof(struct opts, device), "N",
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

/* -- the session ------------------------------------------------------------------ */

struct attached {
	pid_t pid;
	struct inject_target target;
	struct session *session;
	char root[64]; /* target.other_root: its root directory as we see it */
	int lock; /* the process's, while we look for its agent and bring it */
	bool fresh; /* the agent has yet to be brought there */
	bool copied; /* in a file of its own */
	uint64_t graphs_before, holds_before;
	bool armed; /* --live: some kernel could run it */
	struct snapshot *before, *during; /* at the beginning, and just before the end */
};

static int put_link(const struct session *s, const char *to, const char *name)
{
	char at[PATH_MAX];
	snprintf(at, sizeof(at), "%s/%s", session_path(s), name);
	return symlink(to, at) ? say_fail("%s: %s", at, strerror(errno)) : 0;
}

/* A copy, where the target does not see our files. */
static int put_copy(const struct session *s, const char *from, const char *name)
{
	char at[PATH_MAX], *data;
	size_t size;
	struct diag d = { 0 };
	snprintf(at, sizeof(at), "%s/%s", session_path(s), name);
	if (read_file(from, 1 << 30, &data, &size, &d))
		return say_diag(from, &d);
	int fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0700);
	bool done = fd >= 0 && write(fd, data, size) == (ssize_t)size;
	if (fd >= 0)
		close(fd);
	free(data);
	return done ? 0 : say_fail("%s: %s", at, strerror(errno));
}

/* The target's user owns the session, since its agent opens it; root becomes that user for as long
 * as files are made. */
static int become(uid_t uid, gid_t gid)
{
	if (geteuid() || !uid)
		return 0;
	return setegid(gid) || seteuid(uid)
		       ? say_fail("cannot act as user %u: %s", uid, strerror(errno))
		       : 0;
}

static void be_again(void)
{
	if (geteuid() != getuid() && !getuid())
		if (seteuid(0) || setegid(0))
			say("cannot be root again");
}

/* Where the target's paths are for us, kept open so that it outlives the process. */
static int foreign_root(pid_t pid, char root[64])
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
	int fd = open(path, O_PATH | O_DIRECTORY);
	if (fd < 0)
		return say_fail("%s: %s", path, strerror(errno));
	snprintf(root, 64, "/proc/self/fd/%d", fd);
	return 0;
}

/* Directories in which a container's process may have its session: writable, and code may be mapped from there. */
static const char *const foreign_dirs[] = { "/tmp", "/dev/shm", "/var/tmp", "/run" };

static bool may_hold_session(const char *dir)
{
	struct statvfs v;
	return !statvfs(dir, &v) && !(v.f_flag & (ST_RDONLY | ST_NOEXEC)) && !faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS);
}

/* From here on our sessions are those of the container. */
static int choose_foreign_dir(const struct attached *a)
{
	char dir[96];
	for (size_t i = 0; i < sizeof(foreign_dirs) / sizeof(foreign_dirs[0]); i++) {
		snprintf(dir, sizeof(dir), "%s%s", a->root, foreign_dirs[i]);
		if (may_hold_session(dir)) {
			setenv("EGPU_DIR", dir, 1);
			return 0;
		}
	}
	return say_fail("process %d: its container has no directory that can be written to and allows code: /tmp, /dev/shm, /var/tmp, /run",
		(int)a->pid);
}

/* The session of the agent in a process, wherever it lies. */
static int find_session(pid_t pid, struct session **s, struct diag *d)
{
	char root[64], dir[96];
	int err = session_of_process(pid, s, d);
	if (err != -ESRCH || inject_same_namespace(pid, "mnt") || foreign_root(pid, root))
		return err;
	for (size_t i = 0; err == -ESRCH && i < sizeof(foreign_dirs) / sizeof(foreign_dirs[0]); i++) {
		snprintf(dir, sizeof(dir), "%s%s", root, foreign_dirs[i]);
		setenv("EGPU_DIR", dir, 1);
		if (d)
			*d = (struct diag){ 0 };
		err = session_of_process(pid, s, d);
	}
	if (err)
		unsetenv("EGPU_DIR");
	return err;
}

static int make_session(struct attached *a)
{
	const struct inject_target *t = &a->target;
	char agent[PATH_MAX];
	struct diag d = { 0 };
	if (path_find(PATH_AGENT, agent, &d))
		return say_diag("agent", &d);
	int status = t->other_root ? foreign_root(a->pid, a->root) : 0;
	if (status)
		return status;
	if (become(t->uid, t->gid) || (t->other_root && choose_foreign_dir(a)))
		return EGPU_FAILED;
	if (session_create(&a->session, &d))
		status = say_diag("session", &d);
	if (!status && t->other_pids)
		session_data(a->session)->known_as = (uint32_t)a->pid;
	if (!status)
		status = t->other_root || a->copied ? put_copy(a->session, agent, "libegpu-attach.so")
						    : put_link(a->session, agent, "libegpu-attach.so");
	if (!status)
		status = put_link(a->session, t->driver, "libegpu-driver.so.1");
	a->fresh = !status;
	return status;
}

int attach_find(pid_t pid, struct session **s)
{
	struct diag d = { 0 };
	int err = find_session(pid, s, &d);
	return err ? say_fail("%s%s", d.text, err == -EPROTO ? "" : ": nothing is attached to it") : 0;
}

static void unlock_target(struct attached *a)
{
	if (a->lock > 0)
		close(a->lock);
	a->lock = 0;
}

/* One command at a time looks for the agent and brings it; others find it there then. The lock is on the
 * process's directory in /proc, so that there is nothing to clean up. */
static int lock_target(struct attached *a)
{
	char path[32];
	snprintf(path, sizeof(path), "/proc/%d", (int)a->pid);
	a->lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a->lock < 0)
		return say_fail("no process %d", (int)a->pid);
	for (int ms = 0; flock(a->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; ms += LOCK_TICK_MS) {
		if (ms > LOCK_MS)
			return say_fail(
				"another egpu attach to process %d has not come to an end in %d s; try again",
				(int)a->pid, LOCK_MS / 1000);
		file_sleep_ms(LOCK_TICK_MS);
	}
	return 0;
}

static const struct session_agent *agent_of(const struct session *s, pid_t pid)
{
	const struct session_file *f = session_data((struct session *)s);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (f->agents[i].pid == (uint32_t)pid)
			return &f->agents[i];
	return NULL;
}

/* The session of a program that egpu run has started, which may lie elsewhere (EGPU_DIR). */
static bool started_with(struct attached *a)
{
	char path[64], *text, dir[PATH_MAX] = "";
	size_t n = 0, name = sizeof(SESSION_ENV "=") - 1;
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)a->pid);
	if (read_file(path, 1 << 22, &text, &n, NULL))
		return false;
	for (const char *p = text; p < text + n; p += strnlen(p, (size_t)(text + n - p)) + 1)
		if (!strncmp(p, SESSION_ENV "=", name))
			snprintf(dir, sizeof(dir), "%s", p + name);
	free(text);
	if (dir[0] != '/' || session_open(dir, &a->session, NULL))
		return false;
	if (agent_of(a->session, a->pid))
		return true;
	session_close(a->session);
	a->session = NULL;
	return false;
}

/* An agent that another command has brought, which was killed on the way, may be about to come. One that has found its session
 * gone never will, and its library is not loaded twice: then it takes a copy. */
static bool came_late(struct attached *a)
{
	char agent[PATH_MAX];
	if (path_find(PATH_AGENT, agent, NULL) || !inject_has_mapped(a->pid, agent))
		return false;
	if (started_with(a))
		return true;
	for (int ms = 0; ms < LATE_MS; ms += 10) {
		if (!find_session(a->pid, &a->session, NULL))
			return true;
		file_sleep_ms(10);
	}
	a->copied = true;
	return false;
}

/* A session of another user's process is that user's, and so is what is added to it. */
static int enter_session(struct attached *a, const char *probe)
{
	struct diag d = { 0 };
	struct stat st;
	unlock_target(a);
	if (stat(session_path(a->session), &st))
		return say_fail("%s: %s", session_path(a->session), strerror(errno));
	if (become(st.st_uid, st.st_gid))
		return EGPU_FAILED;
	return session_enter(a->session, probe, &d) ? say_diag("session", &d) : 0;
}

static int join_session(struct attached *a, const char *probe)
{
	struct diag d = { 0 };
	session_gc();
	if (lock_target(a))
		return EGPU_FAILED;
	int err = find_session(a->pid, &a->session, &d);
	if (!err)
		return enter_session(a, probe);
	if (err == -EPROTO)
		return say_fail("%s; that one can detach from it, and this one attach when the process has been started anew", d.text);
	d = (struct diag){ 0 };
	if (inject_look(a->pid, &a->target, &d))
		return say_fail("%s", d.text);
	return came_late(a) ? enter_session(a, probe) : make_session(a);
}

/* -- the agent ---------------------------------------------------------------------- */

/* The path as the target sees it. */
static void library_path(const struct attached *a, char out[PATH_MAX])
{
	const char *path = session_path(a->session);
	if (a->target.other_root)
		path += strlen(a->root);
	snprintf(out, PATH_MAX, "%s/libegpu-attach.so", path);
}

static int bring_agent(struct attached *a, bool verbose)
{
	char library[PATH_MAX];
	struct inject_result r;
	struct diag d = { 0 };
	library_path(a, library);
	be_again();
	int err = inject_library(&a->target, library, &r, &d);
	if (err)
		return say_fail("%s", d.text);
	for (int ms = 0; ms < COME_MS && !agent_of(a->session, a->pid); ms++)
		file_sleep_ms(1);
	if (become(a->target.uid, a->target.gid))
		return EGPU_FAILED;
	if (!agent_of(a->session, a->pid))
		return say_fail("process %d (%s) did not load the agent: it goes on unchanged",
			(int)a->pid, a->target.command);
	if (verbose)
		say("%s was stopped for %.1f ms, after %.1f ms of waiting for a safe moment",
			a->target.command, (double)r.paused_ns / 1e6, (double)r.waited_ns / 1e6);
	return 0;
}

/* -- devices ------------------------------------------------------------------------- */

static bool others_attached(const struct attached *a)
{
	const struct session_file *f = session_data(a->session);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (__atomic_load_n(&f->links[i].state, __ATOMIC_ACQUIRE) == SESSION_LINK_ATTACHED &&
			f->links[i].owner != session_client_number(a->session))
			return true;
	return false;
}

/* All probes of a process are on one device, or on all: device is its ordinal + 1, 0 or SESSION_NO_DEVICE. Whoever only looks
 * (egpu list) is soon gone. */
static int choose_device(struct attached *a, uint32_t device)
{
	struct session_filter *f = &session_data(a->session)->filter;
	for (int ms = 0; f->device != device && others_attached(a); ms += 10) {
		if (f->device != SESSION_NO_DEVICE || ms > LOOK_MS)
			return say_fail("other probes are attached to process %d on %s: detach them, or give the same --device", (int)a->pid,
				f->device ? "another device" : "all devices");
		file_sleep_ms(10);
	}
	f->device = device;
	__atomic_store_n(&f->active, f->active || device, __ATOMIC_RELEASE);
	return 0;
}

/* All probes of a process run in all warps, or in the same part of them. */
static int choose_sample(struct attached *a, const struct opts *o)
{
	struct session_filter *f = &session_data(a->session)->filter, wanted;
	int status = filter_samples_live(&o->filter, o->live.given) ? EGPU_FAILED : filter_read(&o->filter, &wanted);
	if (status)
		return status;
	bool same = f->sample_warps == wanted.sample_warps && f->max_overhead_ppm == wanted.max_overhead_ppm &&
		    (!o->filter.seed || f->sample_seed == wanted.sample_seed);
	if (!same && others_attached(a))
		return say_fail("other probes are attached to process %d, in %s: detach them, or give the same --sample-warps, --max-overhead, --seed",
			(int)a->pid, session_samples(f) ? "a part of the warps" : "all warps");
	if (same)
		return 0;
	f->sample_warps = wanted.sample_warps;
	f->max_overhead_ppm = wanted.max_overhead_ppm;
	f->sample_seed = wanted.sample_seed;
	__atomic_store_n(&f->active, f->active || session_samples(f), __ATOMIC_RELEASE);
	return 0;
}

static int read_device(const char *text, uint32_t *device)
{
	char *end = NULL;
	unsigned long n = text ? strtoul(text, &end, 10) : 0;
	if (text && (*end || end == text || *text == '-' || n >= SESSION_NO_DEVICE - 1))
		return say_fail("--device %s: not the number of a device", text);
	*device = text ? (uint32_t)n + 1 : 0;
	return 0;
}

/* -- staying ------------------------------------------------------------------------ */

static bool alive(pid_t pid)
{
	return !kill(pid, 0) || errno == EPERM;
}

/* Until a signal, the end of the time, or of the process. */
static void stay(struct attached *a, struct watch *w, int signals, double seconds)
{
	struct pollfd p = { .fd = signals, .events = POLLIN };
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (;;) {
		struct signalfd_siginfo si;
		poll(&p, 1, TICK_MS);
		watch_tick(w);
		if (read(signals, &si, sizeof(si)) == sizeof(si) || !alive(a->pid))
			return;
		const struct session_agent *agent = agent_of(a->session, a->pid);
		if (!agent || agent->ended)
			return;
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (seconds > 0 && (double)(now.tv_sec - start.tv_sec) +
						   (double)(now.tv_nsec - start.tv_nsec) / 1e9 >=
					   seconds)
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
	const struct session_agent *agent = agent_of(a->session, a->pid);
	return agent ? __atomic_load_n(&agent->graphs_unseen, __ATOMIC_RELAXED) : 0;
}

static uint64_t holds(const struct attached *a)
{
	const struct session_agent *agent = agent_of(a->session, a->pid);
	return agent ? __atomic_load_n(&agent->holds, __ATOMIC_RELAXED) : 0;
}

/* What waiting for a device that is never idle has cost. */
static void held(const struct attached *a, struct buf *text)
{
	const struct session_agent *agent = agent_of(a->session, a->pid);
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
	struct run_report rep = { .session = a->session,
		.snap = snap_take(a->session),
		.dump = w->dump,
		.tool = p->tool,
		.probe = p->options->name,
		.command = command,
		.attached = true,
		.per_cpu = o->verbose > 0 };
	if (!rep.snap)
		return say_fail("out of memory");
	snprintf(what, sizeof(what), "process %d", (int)a->pid);
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
		say("no launch was probed%s",
			rep.snap->launches ? "" : ": the process launched no kernel meanwhile");
		status = EGPU_FAILED;
	}
	buf_free(&text);
	buf_free(&json_text);
	snap_free(rep.snap);
	return status;
}

static bool any_armed(struct session *s)
{
	const struct session_file *f = session_data(s);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (f->links[i].state == SESSION_LINK_ATTACHED && f->links[i].owner == session_client_number(s) &&
			__atomic_load_n(&f->links[i].armed, __ATOMIC_ACQUIRE))
			return true;
	return false;
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
	a->during = snap_take(a->session);
	a->armed = any_armed(a->session);
	say_why(a->session);
	session_detach_client(a->session, session_client_number(a->session));
	if (alive(a->pid) && !session_drained(a->session, DRAIN_MS))
		say("kernels of the process still run what was attached: counts may be a moment "
		    "old");
	watch_end(w);
	return report(o, p, a, w);
}

static int stay_attached(const struct opts *o, struct probe *p, struct attached *a, double seconds)
{
	struct watch w;
	if (watch_begin(&w, a->session, o->verbose > 0))
		return EGPU_FAILED;
	int signals = hold_signals();
	stay(a, &w, signals, seconds);
	int status = finish(o, p, a, &w);
	watch_free(&w);
	if (signals >= 0)
		close(signals);
	return status;
}

/* The session lives as long as its agent does, which knows it and no other. */
static void leave_session(struct attached *a)
{
	unlock_target(a);
	if (!a->session)
		return;
	session_end_client(a->session);
	if (alive(a->pid) && agent_of(a->session, a->pid))
		session_close(a->session);
	else
		session_destroy(a->session);
	be_again();
	session_gc();
}

/* Of the driver that the process has. A session with guards keeps its tier. */
static void choose_tier(struct session *s, struct live_choice *tier, char why[256])
{
	char path[PATH_MAX], driver[PATH_MAX];
	uint32_t map;
	snprintf(path, sizeof(path), "%s/libegpu-driver.so.1", session_path(s));
	*tier = (struct live_choice){ LIVE_TIER_INTERPRETED, "its driver is not known" };
	if (!live_find_map(s, &map) && realpath(path, driver))
		native_choose(driver, tier, why);
}

/* --live=POINTS always adds guards, --live where there are none. */
static int add_guards(const struct opts *o, struct session *s)
{
	struct live_choice tier;
	char why[256];
	struct diag d = { 0 };
	uint32_t points, map;
	if (!o->live.given || (live_find_map(s, &map) && !o->live.value))
		return 0;
	if (!o->pattern)
		return say_fail("--live puts guards into the kernels that you name, and this process has none: give -k KERNEL");
	if (live_parse_points(o->live.value ? o->live.value : LIVE_POINTS_DEFAULT, &points, &d))
		return say_fail("%s", d.text);
	choose_tier(s, &tier, why);
	if (o->verbose && !live_find_map(s, &map))
		say("programs for kernels that run are %s%s", tier.why ? "interpreted: " : "compiled to machine code", tier.why ? tier.why : "");
	return live_add_guards(s, points, o->pattern, &tier, &d) ? say_diag("--live", &d) : 0;
}

static int attach(const struct opts *o, struct probe *p, struct attached *a, double seconds)
{
	uint32_t device = 0;
	int status = read_device(o->device, &device);
	status = status ? status : choose_device(a, device);
	status = status ? status : choose_sample(a, o);
	status = status ? status : add_guards(o, a->session);
	status = status ? status : probe_open(p, a->session);
	status = status ? status : probe_load(p);
	a->before = snap_take(a->session);
	a->graphs_before = graphs_unseen(a);
	a->holds_before = holds(a);
	status = status ? status : probe_attach(p);
	if (!status && a->fresh)
		status = bring_agent(a, o->verbose > 0);
	unlock_target(a);
	if (!status && o->detached) {
		/* What a loader has attached goes with it, unless it just ends. */
		session_stay(a->session);
		say("attached to process %d; egpu detach %d ends it", (int)a->pid, (int)a->pid);
		fflush(NULL);
		_exit(0);
	}
	if (!status) {
		say("attached to process %d%s", (int)a->pid,
			seconds > 0 ? "" : "; Ctrl-C detaches and reports");
		status = stay_attached(o, p, a, seconds);
	}
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
	int err = session_add_prog(a->session, text.data, text.len, f.name, f.point, f.warp, &prog, &d);
	err = err ? err : session_add_link(a->session, prog, f.point, f.warp, "*", &link, &d);
	buf_free(&text);
	return err ? say_diag("list", &d) : 0;
}

int attach_look(pid_t pid, double seconds, struct snapshot **out)
{
	struct attached a = { .pid = pid };
	int status = join_session(&a, "list");
	/* Where probes are attached already, all is seen. */
	if (!status && (a.fresh || !others_attached(&a)))
		status = add_look(&a);
	if (!status && a.fresh)
		status = bring_agent(&a, false);
	unlock_target(&a);
	struct snapshot *before = status ? NULL : snap_take(a.session);
	for (double left = seconds; !status && left > 0 && alive(pid); left -= 0.01)
		file_sleep_ms(10);
	*out = status ? NULL : snap_take(a.session);
	if (*out)
		snap_since(*out, before);
	snap_free(before);
	if (a.session)
		session_detach_client(a.session, session_client_number(a.session));
	leave_session(&a);
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
	struct probe p;
	uint64_t ns;
	if (attach_pid(rest->args[0], &a.pid) || filter_duration(o->time, &ns))
		return EGPU_FAILED;
	if (o->detached && (o->json || o->out || o->time))
		return say_fail("-d returns at once, without a report: leave out %s, or -d",
			o->json ? "--json" : o->out ? "-o" : "--for");
	if (a.pid == getpid())
		return say_fail("process %d is egpu itself", (int)a.pid);
	if (check_out(o->out) || check_out(o->json))
		return EGPU_FAILED;
	int status = rules_read(&o->rules, &po.rules);
	status = status ? status : probe_read(&p, &po);
	if (status)
		return status;
	status = join_session(&a, po.name);
	if (!status)
		status = attach(o, &p, &a, (double)ns / 1e9);
	leave_session(&a);
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
