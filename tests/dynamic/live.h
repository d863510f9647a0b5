/* live.h - what the tests of --live share: the target under `egpu run --live`, its session, and what settles there. */
#ifndef TEST_LIVE_H
#define TEST_LIVE_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "map/map.h"
#include "map/session.h"
#include "syscall/loader.h"
#include "tap.h"

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ms(int ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL);
}

struct target {
	pid_t pid;
	int in, out; /* its lines come from out */
	char text[1 << 16];
	size_t n;
};

/* In sanitizer builds: the agent comes first, and what the driver keeps is no leak. */
static void start_command(struct target *t, char *const argv[])
{
	int ends[2], stdin_ends[2];
	memset(t, 0, sizeof(*t));
	if (pipe2(ends, O_CLOEXEC) || pipe2(stdin_ends, O_CLOEXEC))
		exit(99);
	t->pid = fork();
	if (!t->pid) {
		dup2(ends[1], 1);
		dup2(stdin_ends[0], 0);
		setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0:abort_on_error=0", 1);
		execv(argv[0], argv);
		_exit(98);
	}
	close(ends[1]);
	close(stdin_ends[0]);
	t->in = stdin_ends[1];
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	t->out = ends[0];
}

/* What it has printed so far. */
static const char *heard(struct target *t)
{
	ssize_t n;
	while (t->n < sizeof(t->text) - 1 && (n = read(t->out, t->text + t->n, sizeof(t->text) - 1 - t->n)) > 0)
		t->n += (size_t)n;
	t->text[t->n] = 0;
	return t->text;
}

static int finish(struct target *t)
{
	int status = -1;
	waitpid(t->pid, &status, 0);
	heard(t);
	close(t->out);
	if (t->in >= 0)
		close(t->in);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Targets end when their standard input does. */
static void stop(struct target *t)
{
	close(t->in);
	t->in = -1;
}

static bool wait_word(struct target *t, const char *word)
{
	siginfo_t ended = { 0 };
	for (uint64_t end = now_ns() + 60000000000u; now_ns() < end && !ended.si_pid; sleep_ms(5)) {
		if (strstr(heard(t), word))
			return true;
		waitid(P_PID, (id_t)t->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
	}
	printf("# the target did not say \"%s\"\n", word);
	return false;
}

/* The session of the run, once the target has said that its kernels are under way. */
static struct session *find_session(struct target *t, const char *word)
{
	char dirs[4][256];
	struct session *s = NULL;
	struct diag d = { 0 };
	wait_word(t, word);
	if (session_list(dirs, 4) < 1 || session_open(dirs[0], &s, &d))
		printf("# no session: %s\n", d.text);
	return s;
}

static struct map *find_map(struct session *s, struct bpf_object *object, const char *name)
{
	uint32_t id;
	struct map *m = NULL;
	int fd = bpf_object__find_map_fd_by_name(object, name);
	if (loader_map_id(fd, &id) || map_open(s, id, &m, NULL))
		printf("# no map %s\n", name);
	return m;
}

/* Until what was attached or detached has settled on every multiprocessor; when the last of it did, 0: too late. */
static uint64_t wait_settled(struct session *s)
{
	struct session_file *f = session_data(s);
	uint64_t end = now_ns() + 60000000000u, latest = 0;
	for (bool all = false; !all && now_ns() < end; sleep_ms(1)) {
		all = true;
		latest = 0;
		for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
			const struct session_link *l = &f->links[i];
			if (!l->live || l->state == SESSION_LINK_FREE)
				continue;
			uint64_t at = __atomic_load_n(&l->armed_ns, __ATOMIC_ACQUIRE);
			if ((l->state == SESSION_LINK_ATTACHED) != (__atomic_load_n(&l->armed, __ATOMIC_ACQUIRE) != 0))
				all = false;
			latest = at > latest ? at : latest;
		}
		if (all)
			return latest ? latest : 1;
	}
	printf("# the session's links did not come to rest\n");
	return 0;
}

static int warnings;

static int heed(enum libbpf_print_level level, const char *fmt, va_list args)
{
	if (level != LIBBPF_WARN)
		return 0;
	warnings++;
	printf("# ");
	return vprintf(fmt, args);
}

#endif
