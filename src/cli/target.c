/* target.c - see target.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/target.h"

enum { TICK_MS = 50 };

struct target {
	pid_t pid;
	int signals;     /* signalfd */
	sigset_t before; /* mask to put back */
	int signal;
};

/* Signals that would end egpu before its report, or, when nobody reads that, before it has put its
 * session away. */
static const int held[] = { SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGCHLD, SIGPIPE };

static int prepend(const char *name, const char *value)
{
	const char *old = getenv(name);
	char *joined = NULL;
	if (asprintf(&joined, "%s%s%s", value, old && *old ? ":" : "", old ? old : "") < 0)
		return -ENOMEM;
	int err = setenv(name, joined, 1);
	free(joined);
	return err ? -ENOMEM : 0;
}

static int set_env(const struct target_env *env)
{
	int err = setenv("EGPU_SESSION", env->session, 1) ? -ENOMEM : 0;
	err = err ? err : prepend("LD_LIBRARY_PATH", env->session);
	return err ? err : prepend("LD_PRELOAD", env->preload);
}

static void exec_child(
	char **command, const struct target_env *env, const sigset_t *mask, int report)
{
	int err = env ? -set_env(env) : 0;
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (!err) {
		execvp(command[0], command);
		err = errno;
	}
	ssize_t n = write(report, &err, sizeof(err));
	(void)n;
	_exit(EXIT_FAILURE);
}

static int exec_result(int fd, pid_t pid, const char *name, struct diag *d)
{
	int err = 0;
	ssize_t n;
	do
		n = read(fd, &err, sizeof(err));
	while (n < 0 && errno == EINTR);
	if (n != sizeof(err))
		return 0; /* closed by a successful exec */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (err == ENOENT && !strchr(name, '/'))
		return diag_set(d, err,
			"no command of this name in PATH; a program in this directory is ./%s",
			name);
	return diag_set(d, err, "cannot be run: %s", strerror(err));
}

int target_start(char **command, const struct target_env *env, struct target **out, struct diag *d)
{
	struct target *t = calloc(1, sizeof(*t));
	int report[2] = { -1, -1 }, err = 0;
	if (!t)
		return diag_set(d, ENOMEM, "out of memory");
	sigset_t set;
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(held) / sizeof(*held); i++)
		sigaddset(&set, held[i]);
	sigprocmask(SIG_BLOCK, &set, &t->before);
	t->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (t->signals < 0 || pipe2(report, O_CLOEXEC)) {
		err = diag_set(d, errno, "no file descriptor left: %s", strerror(errno));
		goto fail;
	}
	fflush(NULL);
	t->pid = fork();
	if (t->pid < 0) {
		err = diag_set(d, errno, "fork: %s", strerror(errno));
		goto fail;
	}
	if (!t->pid)
		exec_child(command, env, &t->before, report[1]);
	close(report[1]);
	report[1] = -1;
	err = exec_result(report[0], t->pid, command[0], d);
	if (err)
		goto fail;
	close(report[0]);
	*out = t;
	return 0;
fail:
	for (int i = 0; i < 2; i++)
		if (report[i] >= 0)
			close(report[i]);
	t->pid = -1;
	target_free(t);
	return err;
}

/* What the terminal sends reaches the whole foreground group, the command included; what somebody
 * sends to egpu alone is passed on, so that `kill` and `timeout` act on the command. */
static void pass_signals(struct target *t)
{
	struct signalfd_siginfo si;
	while (read(t->signals, &si, sizeof(si)) == sizeof(si))
		if (si.ssi_signo != SIGCHLD && si.ssi_signo != SIGPIPE && si.ssi_code != SI_KERNEL)
			kill(t->pid, (int)si.ssi_signo);
}

int target_wait(struct target *t, void (*tick)(void *), void *arg)
{
	struct pollfd p = { .fd = t->signals, .events = POLLIN };
	for (;;) {
		int status;
		pid_t got = waitpid(t->pid, &status, WNOHANG);
		if (got == t->pid || (got < 0 && errno != EINTR)) {
			t->pid = -1;
			if (got < 0)
				return 125;
			t->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
			return t->signal ? 128 + t->signal : WEXITSTATUS(status);
		}
		poll(&p, 1, TICK_MS);
		pass_signals(t);
		if (tick)
			tick(arg);
	}
}

int target_signal(const struct target *t)
{
	return t->signal;
}

void target_free(struct target *t)
{
	if (!t)
		return;
	if (t->signals >= 0) {
		/* Pending terminal signals were meant for the command: do not let them end the
		 * report. */
		struct signalfd_siginfo si;
		while (read(t->signals, &si, sizeof(si)) == sizeof(si))
			;
		close(t->signals);
	}
	sigprocmask(SIG_SETMASK, &t->before, NULL);
	free(t);
}
