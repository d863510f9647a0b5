/* state.c - the agent's one state struct: start, fork, exit, log. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "map/file.h"

struct agent agent = { .log_fd = -1 };

int agent_thread(pthread_t *thread, void *(*run)(void *), void *arg)
{
	pthread_t detached;
	pthread_attr_t attr;
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	if (!thread)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	int err = pthread_create(thread ? thread : &detached, &attr, run, arg);
	pthread_attr_destroy(&attr);
	sigprocmask(SIG_SETMASK, &old, NULL);
	return -err;
}

void agent_log(const char *fmt, ...)
{
	char line[1024];
	if (agent.log_fd < 0)
		return;
	int keep = errno;
	uint64_t us = now_ns() / 1000;
	int n = snprintf(line, sizeof(line), "[%d %d %llu.%06llu] ", (int)getpid(), thread_id(),
		(unsigned long long)us / 1000000, (unsigned long long)us % 1000000);
	va_list ap;
	va_start(ap, fmt);
	int m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	size_t len = (size_t)n + (m < 0 ? 0 : (size_t)m);
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	if (file_append(agent.log_fd, line, len))
		agent.log_fd = -1;
	errno = keep;
}

/* The child has none of our threads and, once the driver was initialised, no usable device: it
 * passes through until an cuInit of its own succeeds. What the parent's state points to stays where
 * it is. */
static void forked(void)
{
	int log = agent.log_fd;
	thread_forked();
	memset(&agent, 0, sizeof(agent));
	agent.log_fd = log;
}

static void leave(void)
{
	/* Not in a child that inherited the handler with the parent's memory. */
	if (!agent_on() || agent.pid != process_self())
		return;
	blackbox_last_look();
	devmap_stop();
	gputime_collect(NULL);
	atomic_store(&agent.mode, AGENT_OFF);
	session_leave(agent.session, agent.pid);
	agent_log("left");
}

void agent_stay_last(void)
{
	atexit(leave);
}

static bool switched_off(const char *name)
{
	const char *value = getenv(name);
	return value && *value && strcmp(value, "0");
}

static void open_log(void)
{
	const char *log = getenv("EGPU_AGENT_LOG");
	if (log && *log && agent.log_fd < 0)
		agent.log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* Handlers of the process's end and of forks, once. */
static void register_handlers(void)
{
	static atomic_int registered;
	if (!atomic_exchange(&registered, 1)) {
		pthread_atfork(NULL, NULL, forked);
		atexit(leave);
	}
}

static int join(const char *dir)
{
	struct diag d = { 0 };
	int err = session_open(dir, &agent.session, &d);
	if (err) {
		agent_log("no session: %s", d.text);
		return err;
	}
	agent.shared = session_data(agent.session);
	if (agent.shared->known_as)
		process_known_as((pid_t)agent.shared->known_as);
	agent.pid = process_self();
	atomic_store(
		&agent.generation, __atomic_load_n(&agent.shared->generation, __ATOMIC_ACQUIRE));
	agent.arena = arena_new();
	err = agent.arena ? session_join(agent.session, agent.pid) : -ENOMEM;
	if (err) {
		agent_log("cannot join %s: %d", dir, err);
		session_close(agent.session);
		agent.session = NULL;
		return err;
	}
	for (uint32_t i = 0; i < SESSION_MAX_AGENTS; i++)
		if (agent.shared->agents[i].pid == (uint32_t)agent.pid)
			agent.row = &agent.shared->agents[i];
	if (agent.row)
		__atomic_store_n(&agent.row->seen, atomic_load(&agent.generation), __ATOMIC_RELEASE);
	return 0;
}

void agent_start(void)
{
	int idle = AGENT_IDLE;
	if (atomic_load(&agent.mode) != AGENT_IDLE)
		return;
	lock_take(&agent.lock);
	if (atomic_load(&agent.mode) == idle) {
		open_log();
		bool wanted = getenv(SESSION_ENV) && *getenv(SESSION_ENV) &&
			      !switched_off("EGPU_DISABLE");
		if (wanted && !join(getenv(SESSION_ENV))) {
			/* After the driver's own handlers, so it runs before them. */
			register_handlers();
			agent_log("joined %s", session_path(agent.session));
			atomic_store_explicit(&agent.mode, AGENT_ON, memory_order_release);
		} else {
			atomic_store_explicit(&agent.mode, AGENT_OFF, memory_order_release);
		}
	}
	lock_drop(&agent.lock);
}

bool agent_start_late(const char *dir)
{
	bool done = false;
	lock_take(&agent.lock);
	if (atomic_load(&agent.mode) != AGENT_ON) {
		open_log();
		/* What the links are has yet to be seen. */
		if (!join(dir)) {
			atomic_store(&agent.generation, 0);
			agent.row->late = 1;
			atomic_store(&agent.late, 1);
			register_handlers();
			agent_log("came late, joined %s", session_path(agent.session));
			atomic_store_explicit(&agent.mode, AGENT_ON, memory_order_release);
			done = true;
		}
	}
	lock_drop(&agent.lock);
	return done;
}

void agent_moment(enum load_hurry hurry)
{
	if (atomic_load_explicit(&agent.n_queued, memory_order_relaxed) ||
		atomic_load_explicit(&agent.n_retired, memory_order_relaxed) ||
		atomic_load_explicit(&agent.sweep_due, memory_order_relaxed) || (hurry == LOAD_SYNC && live_wants_idle()))
		variant_load_queued(hurry);
}
