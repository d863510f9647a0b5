/* join.c - see join.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/join.h"
#include "cli/paths.h"
#include "map/file.h"

enum { COME_MS = 5000, LOCK_MS = 15000, LOCK_TICK_MS = 5, LATE_MS = 1500 };
enum { ROOM_FILES = 4, ROOM_BYTES = 512 << 20 }; /* what the agent needs, and more */

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
	int err = fd < 0 ? -errno : file_write_at(fd, data, size, 0);
	if (fd >= 0)
		close(fd);
	free(data);
	return err ? say_fail("%s: %s", at, strerror(-err)) : 0;
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
static int choose_foreign_dir(const struct joined *a)
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
	if (err != -ESRCH || inject_same_root(pid) || foreign_root(pid, root))
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

static int make_session(struct joined *a)
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

int join_find(pid_t pid, struct session **s)
{
	struct diag d = { 0 };
	int err = find_session(pid, s, &d);
	return err ? say_fail("%s%s", d.text, err == -EPROTO ? "" : ": nothing is attached to it") : 0;
}

void join_unlock(struct joined *a)
{
	if (a->lock > 0)
		close(a->lock);
	a->lock = 0;
}

/* One command at a time looks for the agent and brings it; others find it there then. The lock is on the
 * process's directory in /proc, so that there is nothing to clean up. */
static int lock_target(struct joined *a)
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

const struct session_agent *join_agent(const struct session *s, pid_t pid)
{
	const struct session_file *f = session_data((struct session *)s);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (f->agents[i].pid == (uint32_t)pid)
			return &f->agents[i];
	return NULL;
}

/* The session of a program that egpu run has started, which may lie elsewhere (EGPU_DIR). */
static bool started_with(struct joined *a)
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
	if (join_agent(a->session, a->pid))
		return true;
	session_close(a->session);
	a->session = NULL;
	return false;
}

/* An agent that another command has brought, which was killed on the way, may be about to come. One that has found its session
 * gone never will, and its library is not loaded twice: then it takes a copy. */
static bool came_late(struct joined *a)
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
static int enter_session(struct joined *a, const char *probe)
{
	struct diag d = { 0 };
	struct stat st;
	join_unlock(a);
	if (stat(session_path(a->session), &st))
		return say_fail("%s: %s", session_path(a->session), strerror(errno));
	if (become(st.st_uid, st.st_gid))
		return EGPU_FAILED;
	return session_enter(a->session, probe, &d) ? say_diag("session", &d) : 0;
}

int join(struct joined *a, const char *probe)
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
static void library_path(const struct joined *a, char out[PATH_MAX])
{
	const char *path = session_path(a->session);
	if (a->target.other_root)
		path += strlen(a->root);
	snprintf(out, PATH_MAX, "%s/libegpu-attach.so", path);
}

static uint64_t count_files(pid_t pid)
{
	char path[64];
	uint64_t n = 0;
	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	DIR *list = opendir(path);
	for (struct dirent *e; list && (e = readdir(list));)
		n += e->d_name[0] != '.';
	if (list)
		closedir(list);
	return n;
}

static uint64_t address_space(pid_t pid)
{
	char path[64];
	unsigned long pages = 0;
	snprintf(path, sizeof(path), "/proc/%d/statm", (int)pid);
	FILE *f = fopen(path, "re");
	if (f && fscanf(f, "%lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Which of its limits may have kept the agent out. */
static const char *tight_limit(const struct joined *a)
{
	const struct {
		enum __rlimit_resource which;
		uint64_t needs;
		const char *what;
	} limits[] = {
		{ RLIMIT_NOFILE, count_files(a->pid) + ROOM_FILES, "; it can hardly open a file more (RLIMIT_NOFILE): prlimit --pid=PID --nofile=N gives it room" },
		{ RLIMIT_AS, address_space(a->pid) + ROOM_BYTES, "; its address space is limited (RLIMIT_AS): prlimit --pid=PID --as=BYTES gives it room" },
		{ RLIMIT_NPROC, a->target.uid ? UINT64_MAX : 0, "; its user's threads are limited (RLIMIT_NPROC): prlimit --pid=PID --nproc=N gives it room" },
	};
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		struct rlimit now;
		if (!prlimit(a->pid, limits[i].which, NULL, &now) && now.rlim_cur != RLIM_INFINITY && now.rlim_cur < limits[i].needs)
			return limits[i].what;
	}
	return "";
}

int join_bring_agent(struct joined *a, bool verbose)
{
	char library[PATH_MAX];
	struct inject_result r;
	struct diag d = { 0 };
	library_path(a, library);
	be_again();
	int err = inject_library(&a->target, library, &r, &d);
	if (err)
		return say_fail("%s", d.text);
	for (int ms = 0; ms < COME_MS && !join_agent(a->session, a->pid); ms++)
		file_sleep_ms(1);
	const char *tight = join_agent(a->session, a->pid) ? NULL : tight_limit(a);
	if (become(a->target.uid, a->target.gid))
		return EGPU_FAILED;
	if (tight)
		return say_fail("process %d (%s) did not load the agent: it goes on unchanged%s",
			(int)a->pid, a->target.command, tight);
	if (verbose)
		say("%s was stopped for %.1f ms, after %.1f ms of waiting for a safe moment",
			a->target.command, (double)r.paused_ns / 1e6, (double)r.waited_ns / 1e6);
	return 0;
}

/* -- the end ------------------------------------------------------------------------- */

bool join_alive(const struct joined *a)
{
	return !kill(a->pid, 0) || errno == EPERM;
}

/* The session lives as long as its agent does, which knows it and no other. */
void join_leave(struct joined *a)
{
	join_unlock(a);
	if (!a->session)
		return;
	session_end_client(a->session);
	if (join_alive(a) && join_agent(a->session, a->pid))
		session_close(a->session);
	else
		session_destroy(a->session);
	be_again();
	session_gc();
}
