/* cmd_links.c - `egpu ps`, `link`, `detach`, `off`, `gc`: what is attached, and its end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/join.h"
#include "cli/snapshot.h"
#include "live/live.h"
#include "map/session.h"

enum { MAX_SESSIONS = 256, DRAIN_MS = 2000 };

/* -- sessions -------------------------------------------------------------------------- */

/* Calls fn for each session of this user (root: of everybody); the number of them. */
static int each_session(int (*fn)(struct session *s, void *arg), void *arg)
{
	char(*dirs)[256] = calloc(MAX_SESSIONS, sizeof(*dirs));
	int n = dirs ? session_list(dirs, MAX_SESSIONS) : 0, seen = 0;
	for (int i = 0; i < n && i < MAX_SESSIONS; i++) {
		struct session *s;
		int err = session_open(dirs[i], &s, NULL);
		if (err == -EPROTO)
			say("session %s was made by another version of egpu: it is left alone", dirs[i]);
		if (err)
			continue;
		seen++;
		int stop = fn(s, arg);
		session_close(s);
		if (stop)
			break;
	}
	free(dirs);
	return seen;
}

/* Session's number in what users type: its maker's process. */
static unsigned session_number(const struct session *s)
{
	return session_data((struct session *)s)->loader_pid;
}

static bool agent_lives(const struct session_agent *a)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%u", a->pid);
	return a->pid && !a->ended && !access(path, F_OK);
}

static void command_of(uint32_t pid, char *out, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%u/comm", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = 0;
	out[strcspn(out, "\n")] = 0;
}

/* -- ps ---------------------------------------------------------------------------------- */

static int n_attached(const struct session_file *f)
{
	int n = 0;
	for (int i = 0; i < SESSION_MAX_LINKS; i++)
		n += f->links[i].state == SESSION_LINK_ATTACHED;
	return n;
}

static const char *agent_state(const struct session_file *f, const struct session_agent *a)
{
	if (f->off)
		return "off";
	if (!n_attached(f))
		return "idle";
	return a->late && !a->hooked ? "arriving" : "attached";
}

static void pending_lines(const struct snapshot *snap, uint32_t pid)
{
	for (uint32_t i = 0; i < snap->n_kernels; i++) {
		const struct snap_kernel *k = &snap->kernels[i];
		if (k->pid == pid && k->state == SESSION_KERNEL_PENDING)
			printf("         pending for %.1f s: %s: %s\n", snap_seconds_since(k->since_ns),
				k->demangled, k->reason);
	}
}

static int ps_session(struct session *s, void *arg)
{
	const struct session_file *f = session_data(s);
	struct snapshot *snap = snap_take(s);
	for (int i = 0; snap && i < SESSION_MAX_AGENTS; i++) {
		const struct session_agent *a = &f->agents[i];
		char name[64];
		uint32_t probed = 0, pending = 0;
		if (!agent_lives(a))
			continue;
		if (!(*(int *)arg)++)
			printf("%8s %-9s %5s %8s %8s %12s  %s\n", "PID", "STATE", "LINKS", "PROBED",
				"PENDING", "LAUNCHES", "COMMAND");
		for (uint32_t k = 0; k < snap->n_kernels; k++) {
			probed += snap->kernels[k].state == SESSION_KERNEL_INSTRUMENTED;
			pending += snap->kernels[k].state == SESSION_KERNEL_PENDING;
		}
		command_of(a->pid, name, sizeof(name));
		printf("%8u %-9s %5d %8u %8u %12llu  %s\n", a->pid, agent_state(f, a),
			n_attached(f), probed, pending,
			(unsigned long long)snap->launches_instrumented, name);
		pending_lines(snap, a->pid);
	}
	snap_free(snap);
	return 0;
}

static int run_ps(const void *opts, const struct opt_rest *rest)
{
	int n = 0;
	each_session(ps_session, &n);
	if (!n)
		say("no process has the agent");
	return 0;
}

const struct command cmd_ps = {
	.name = "ps",
	.synopsis = "ps",
	.summary = "lists processes that have the agent, and what waits there",
	.help = "PROBED and PENDING count kernels, LAUNCHES those that ran with a probe. A pending "
		"kernel is "
		"compiled and waits for\n"
		"a moment when nothing runs on the device; the line below says what it waits for, "
		"and "
		"how long.\n",
	.run = run_ps,
};

/* -- link ---------------------------------------------------------------------------------- */

static uint32_t kernels_of(const struct snapshot *snap, uint32_t link)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		n += snap->kernels[i].state == SESSION_KERNEL_INSTRUMENTED &&
		     snap->kernels[i].links >> link & 1;
	return n;
}

/* Why a program is interpreted: for the whole session, or this one. */
static const char *why_interpreted(struct session *s, const struct session_link *l)
{
	const struct session_file *f = session_data(s);
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (f->maps[i].used && f->maps[i].live == LIVE_TIER_INTERPRETED)
			return f->maps[i].live_why ? session_text(s, f->maps[i].live_why) : "";
	return l->native_why ? session_text(s, l->native_why) : "not compiled yet";
}

static void armed_line(struct session *s, const struct session_link *l, uint32_t armed)
{
	uint32_t native = __atomic_load_n(&l->native, __ATOMIC_ACQUIRE);
	printf("%-12s armed in %u context%s for %.1f s, ", "", armed, armed == 1 ? "" : "s", snap_seconds_since(l->armed_ns));
	if (native == armed)
		printf("as machine code\n");
	else
		printf("interpreted: %s\n", why_interpreted(s, l));
}

/* Detached, and not gone. */
static bool is_going(const struct session_link *l)
{
	return l->live && l->state == SESSION_LINK_DETACHED && __atomic_load_n(&l->armed, __ATOMIC_ACQUIRE);
}

/* Where a program for running kernels is. */
static void live_line(struct session *s, const struct session_link *l)
{
	uint32_t armed = __atomic_load_n(&l->armed, __ATOMIC_ACQUIRE), unheard = l->unheard, inside = l->inside;
	if (is_going(l))
		printf("%-12s going for %.1f s: %u lanes have not come to its end\n", "", snap_seconds_since(l->since_ns), inside);
	else if (armed)
		armed_line(s, l, armed);
	else if (l->why)
		printf("%-12s pending for %.1f s: %s\n", "", snap_seconds_since(l->since_ns), session_text(s, l->why));
	else if (unheard)
		printf("%-12s arming for %.1f s: %u multiprocessors have not heard of it; they run kernels without a guarded loop\n", "",
			snap_seconds_since(l->since_ns), unheard);
	else
		printf("%-12s pending for %.1f s: no kernel with guards has been loaded\n", "", snap_seconds_since(l->since_ns));
}

static int link_session(struct session *s, void *arg)
{
	const struct session_file *f = session_data(s);
	struct snapshot *snap = snap_take(s);
	for (uint32_t i = 0; snap && i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &f->links[i];
		char id[32], pids[64] = "";
		if ((l->state != SESSION_LINK_ATTACHED && !is_going(l)) || l->prog >= SESSION_MAX_PROGS)
			continue;
		for (int k = 0; k < SESSION_MAX_AGENTS; k++)
			if (agent_lives(&f->agents[k]) && strlen(pids) < 40)
				snprintf(pids + strlen(pids), sizeof(pids) - strlen(pids), "%s%u",
					*pids ? "," : "", f->agents[k].pid);
		if (!(*(int *)arg)++)
			printf("%-12s %-12s %8s %8s %9s  %-10s %-20s %s\n", "ID", "PID", "MATCHED",
				"PROBED", "SINCE", "POINT", "PROGRAM", "KERNELS");
		snprintf(id, sizeof(id), "%u.%u", session_number(s), i);
		printf("%-12s %-12s %8llu %8u %8.0fs  %-10s %-20.*s %.*s\n", id, pids,
			(unsigned long long)l->matched, kernels_of(snap, i),
			snap_seconds_since(l->since_ns), ebpf_point_name(l->point),
			(int)sizeof(f->progs[0].name), f->progs[l->prog].name,
			SESSION_PATTERN_BYTES, l->pattern);
		if (l->live)
			live_line(s, l);
	}
	snap_free(snap);
	return 0;
}

static int run_link(const void *opts, const struct opt_rest *rest)
{
	int n = 0;
	each_session(link_session, &n);
	if (!n)
		say("nothing is attached");
	return 0;
}

const struct command cmd_link = {
	.name = "link",
	.synopsis = "link",
	.summary = "lists what is attached where",
	.help = "One line a program and pattern; egpu detach --link ID ends one. A program for kernels that run (--live) is armed once every "
		"multiprocessor\nhas heard of it: from then on each pass of a probed place counts.\n",
	.run = run_link,
};

/* -- detach ---------------------------------------------------------------------------------- */

struct detach_opts {
	const char *link;
	bool all;
};

static const struct opt detach_options[] = {
	{ 0, "link", OPT_STRING, offsetof(struct detach_opts, link), "ID",
		"only this link (egpu link)" },
	{ 0, "all", OPT_FLAG, offsetof(struct detach_opts, all), NULL,
		"everything, in every process of yours" },
	{ 0 },
};

struct detaching {
	const char *link; /* NULL: all */
	int n;
	bool waits;
};

/* What is detached is gone when no kernel can run it any more. */
static void finish(struct session *s, struct detaching *d, int n)
{
	d->n += n;
	if (!n)
		return;
	d->waits |= !session_drained(s, DRAIN_MS);
	session_recycle(s);
}

static int detach_session(struct session *s, void *arg)
{
	struct detaching *d = arg;
	if (!d->link) {
		finish(s, d, session_detach_client(s, 0));
		return 0;
	}
	char *end;
	unsigned long number = strtoul(d->link, &end, 10), link = 0;
	if (*end == '.')
		link = strtoul(end + 1, &end, 10);
	if (number == session_number(s) && !*end && link < SESSION_MAX_LINKS)
		finish(s, d, !session_detach_link(s, (uint32_t)link));
	return d->n;
}

static int run_detach(const void *opts, const struct opt_rest *rest)
{
	const struct detach_opts *o = opts;
	struct detaching d = { .link = o->link };
	if (!!o->link + o->all + rest->n_args != 1)
		return say_fail("say what to detach: a PID, --link ID or --all");
	if (rest->n_args) {
		struct session *s;
		pid_t pid;
		if (attach_pid(rest->args[0], &pid) || join_find(pid, &s))
			return EGPU_FAILED;
		detach_session(s, &d);
		session_close(s);
	} else {
		each_session(detach_session, &d);
	}
	if (o->link && !d.n)
		return say_fail("no link %s (egpu link lists them)", o->link);
	say("%d link%s detached", d.n, d.n == 1 ? "" : "s");
	if (d.waits)
		say("kernels that run, or graphs that were made with the probe, still hold it; it "
		    "goes with "
		    "their end (egpu link)");
	session_gc();
	return 0;
}

const struct command cmd_detach = {
	.name = "detach",
	.synopsis = "detach PID | --link ID | --all",
	.summary = "ends what is attached to a process",
	.help = "Launches from here on are the program's own; kernels that run finish as they "
		"began.\n"
		"  egpu detach 4711\n"
		"  egpu detach --link 4702.1\n",
	.opts = detach_options,
	.opts_bytes = sizeof(struct detach_opts),
	.run = run_detach,
	.max_args = 1,
};

/* -- off, gc ------------------------------------------------------------------------------------
 */

struct off_opts {
	bool undo;
};

static const struct opt off_options[] = {
	{ 0, "undo", OPT_FLAG, offsetof(struct off_opts, undo), NULL, "switch on again" },
	{ 0 },
};

static int switch_session(struct session *s, void *arg)
{
	__atomic_store_n(&session_data(s)->off, *(const uint32_t *)arg, __ATOMIC_RELEASE);
	session_wake(s);
	return 0;
}

static int run_off(const void *opts, const struct opt_rest *rest)
{
	const struct off_opts *o = opts;
	uint32_t off = !o->undo;
	int n = each_session(switch_session, &off);
	say("probes are %s in %d session%s", off ? "off" : "on", n, n == 1 ? "" : "s");
	return 0;
}

const struct command cmd_off = {
	.name = "off",
	.synopsis = "off [--undo]",
	.summary = "stops every probe at once, whatever state it is in",
	.help = "From the next launch on every process of yours (of everybody, for root) runs its "
		"own "
		"kernels. Nothing is\n"
		"detached: egpu off --undo lets probes run again.\n",
	.opts = off_options,
	.opts_bytes = sizeof(struct off_opts),
	.run = run_off,
};

static int recycle_session(struct session *s, void *arg)
{
	*(int *)arg += session_recycle(s);
	return 0;
}

static int run_gc(const void *opts, const struct opt_rest *rest)
{
	int links = 0, dirs = session_gc();
	each_session(recycle_session, &links);
	say("%d session%s of processes that are gone removed, %d link%s freed", dirs,
		dirs == 1 ? "" : "s", links, links == 1 ? "" : "s");
	return 0;
}

const struct command cmd_gc = {
	.name = "gc",
	.synopsis = "gc",
	.summary = "removes what processes that are gone have left behind",
	.help = "Every egpu run and attach does this too.\n",
	.run = run_gc,
};
