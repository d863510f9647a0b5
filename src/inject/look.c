/* look.c - what can be learned about a process from /proc, and why it cannot be attached to. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/internal.h"

int proc_read(pid_t pid, const char *what, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, what);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	size_t n = 0;
	ssize_t got;
	while (n + 1 < size && (got = read(fd, text + n, size - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = 0;
	close(fd);
	return (int)n;
}

/* "Name:\t..." of /proc/PID/status, or NULL. */
static const char *field(const char *status, const char *name)
{
	size_t n = strlen(name);
	for (const char *at = status; at; at = strchr(at, '\n'), at = at ? at + 1 : NULL)
		if (!strncmp(at, name, n) && at[n] == ':')
			return at + n + 1 + strspn(at + n + 1, " \t");
	return NULL;
}

static long number(const char *status, const char *name)
{
	const char *at = field(status, name);
	return at ? strtol(at, NULL, 10) : 0;
}

static int say_traced(pid_t pid, long tracer, struct diag *d)
{
	char name[32] = "";
	proc_read((pid_t)tracer, "comm", name, sizeof(name));
	name[strcspn(name, "\n")] = 0;
	return diag_set(d, EBUSY, "process %d is traced by process %ld%s%s%s, and only one can: end that first",
		(int)pid, tracer, *name ? " (" : "", name, *name ? ")" : "");
}

int look_tracer(pid_t pid, pid_t tid, struct diag *d)
{
	char status[8192], what[32];
	snprintf(what, sizeof(what), "task/%d/status", (int)tid);
	if (proc_read(pid, what, status, sizeof(status)) <= 0)
		return 0;
	long tracer = number(status, "TracerPid");
	return tracer ? say_traced(pid, tracer, d) : 0;
}

bool look_waits(pid_t pid, pid_t tid)
{
	char stat[512], what[32];
	snprintf(what, sizeof(what), "task/%d/stat", (int)tid);
	const char *state = proc_read(pid, what, stat, sizeof(stat)) > 0 ? strrchr(stat, ')') : NULL;
	return state && state[1] == ' ' && state[2] == 'D';
}

static uint64_t signals(const char *status, const char *name)
{
	const char *at = field(status, name);
	return at ? strtoull(at, NULL, 16) : 0;
}

bool look_signalled(pid_t pid, pid_t tid)
{
	char status[8192], what[32];
	snprintf(what, sizeof(what), "task/%d/status", (int)tid);
	if (proc_read(pid, what, status, sizeof(status)) <= 0)
		return true;
	return (signals(status, "SigPnd") | signals(status, "ShdPnd")) & ~signals(status, "SigBlk");
}

/* One that vfork(2) has made runs in its parent's memory until it begins a program of its own. */
static int check_memory(pid_t pid, const char *status, struct diag *d)
{
	long parent = number(status, "PPid");
	if (parent <= 0 || syscall(SYS_kcmp, (long)pid, parent, (long)KCMP_VM, 0L, 0L) != 0)
		return 0;
	return diag_set(d, EAGAIN, "process %d is about to begin a program, and runs in the memory of process %ld until then: try again", (int)pid,
		parent);
}

/* The executable's machine. */
static int check_machine(pid_t pid, struct diag *d)
{
	Elf64_Ehdr h;
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return diag_set(d, EINVAL, "process %d is a thread of the kernel", (int)pid);
	if (fd < 0)
		return diag_set(d, errno,
			"process %d may not be looked at (%s): it belongs to somebody else, or has "
			"shut itself off; root may",
			(int)pid, strerror(errno));
	ssize_t n = read(fd, &h, sizeof(h));
	close(fd);
	if (n != sizeof(h) || memcmp(h.e_ident, ELFMAG, SELFMAG))
		return diag_set(d, ENOTSUP, "process %d: its program is no ELF file", (int)pid);
#ifdef __x86_64__
	if (h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_machine == EM_X86_64)
		return 0;
#endif
	return diag_set(d, ENOTSUP,
		"process %d runs code of another machine (ELF machine %u): attaching works for "
		"64-bit x86 programs",
		(int)pid, h.e_machine);
}

static int check_status(pid_t pid, const char *status, struct diag *d)
{
	const char *state = field(status, "State");
	long tracer = number(status, "TracerPid"), seccomp = number(status, "Seccomp");
	const char *features = field(status, "x86_Thread_features");
	if (state && *state == 'Z' && number(status, "Threads") > 1)
		return diag_set(d, ENOTSUP, "the first thread of process %d has ended, and others go on: without it there is no way in", (int)pid);
	if (state && (*state == 'Z' || *state == 'X'))
		return diag_set(d, ESRCH, "process %d has ended", (int)pid);
	if (state && (*state == 'T' || *state == 't') && !tracer)
		return diag_set(d, EAGAIN,
			"process %d is stopped: let it go on (kill -CONT %d), then attach",
			(int)pid, (int)pid);
	if (tracer)
		return say_traced(pid, tracer, d);
	if (seccomp == 1)
		return diag_set(d, EACCES,
			"process %d is in strict seccomp mode, which forbids every call that "
			"attaching needs",
			(int)pid);
	if (features && !strncmp(features, "shstk", 5))
		return diag_set(d, ENOTSUP,
			"process %d runs with a shadow stack, which forbids attaching", (int)pid);
	return 0;
}

/* -- mappings ------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

/* A line's end in a name is written as \\012 there. */
static void restore_newlines(char *path)
{
	for (char *at = path; (at = strstr(at, "\\012"));) {
		*at++ = '\n';
		memmove(at, at + 3, strlen(at + 3) + 1);
	}
}

/* Where its root directory is for us; "": the same, or nowhere that has a name. */
static void root_path(pid_t pid, char out[PATH_MAX])
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
	ssize_t n = readlink(path, out, PATH_MAX - 1);
	out[n > 1 ? n : 0] = 0;
}

/* A name that we see is not the process's where its root directory is another (chroot). */
static const char *below(const char *root, const char *path)
{
	size_t n = strlen(root);
	return n && !strncmp(path, root, n) && path[n] == '/' ? path + n : path;
}

int each_mapping(pid_t pid, int (*fn)(const struct mapping *m, void *arg), void *arg)
{
	char path[64], root[PATH_MAX], *line = NULL;
	size_t size = 0;
	int stop = 0;
	root_path(pid, root);
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return -errno;
	while (!stop && getline(&line, &size, f) > 0) {
		struct mapping m = { 0 };
		char perms[8] = "";
		unsigned long long ino;
		int at = 0;
		if (sscanf(line, "%llx-%llx %7s %llx %*x:%*x %llu %n",
			    (unsigned long long *)&m.start, (unsigned long long *)&m.end, perms,
			    (unsigned long long *)&m.offset, &ino, &at) < 5)
			continue;
		line[strcspn(line, "\n")] = 0;
		m.inode = ino;
		m.exec = perms[2] == 'x';
		restore_newlines(line);
		m.path = at ? below(root, line + at) : "";
		stop = fn(&m, arg);
	}
	free(line);
	fclose(f);
	return stop < 0 ? stop : 0;
}

struct seen {
	struct inject_target *t;
	bool libc, musl;
	char replaced[64]; /* of the C library and the driver, the one whose file is another one by now */
};

/* The file that the process has mapped is not there any more. */
static bool is_deleted(const char *path)
{
	static const char mark[] = " (deleted)";
	size_t n = strlen(path), m = sizeof(mark) - 1;
	return n > m && !strcmp(path + n - m, mark);
}

static int see(const struct mapping *m, void *arg)
{
	struct seen *s = arg;
	const char *name = base_name(m->path);
	bool libc = !strncmp(name, "libc.so.6", 9) || !strncmp(name, "libc-2.", 7), driver = !strncmp(name, "libcuda.so", 10);
	if ((libc || driver) && is_deleted(name))
		snprintf(s->replaced, sizeof(s->replaced), "%.*s", (int)strcspn(name, " "), name);
	s->libc |= libc;
	s->musl |= !strncmp(name, "ld-musl-", 8) || !strncmp(name, "libc.musl-", 10);
	if (!s->t->driver[0] && m->path[0] == '/' &&
		(driver || !strncmp(name, "libegpu-softgpu", 15)))
		snprintf(s->t->driver, sizeof(s->t->driver), "%s", m->path);
	return 0;
}

static int is_inode(const struct mapping *m, void *arg)
{
	uint64_t *inode = arg;
	if (m->inode != *inode || !m->exec)
		return 0;
	*inode = 0;
	return 1;
}

bool inject_has_mapped(pid_t pid, const char *path)
{
	struct stat st;
	if (stat(path, &st))
		return false;
	uint64_t inode = st.st_ino;
	return !each_mapping(pid, is_inode, &inode) && !inode;
}

/* The root directory may differ within one namespace (chroot). */
bool inject_same_root(pid_t pid)
{
	char path[64];
	struct stat ours, theirs;
	snprintf(path, sizeof(path), "/proc/%d/root", (int)pid);
	if (!inject_same_namespace(pid, "mnt"))
		return false;
	return stat(path, &theirs) || stat("/", &ours) || (ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino);
}

bool inject_same_namespace(pid_t pid, const char *which)
{
	char path[64], a[64] = "", b[64] = "";
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, which);
	if (readlink(path, a, sizeof(a) - 1) < 0)
		return true;
	snprintf(path, sizeof(path), "/proc/self/ns/%s", which);
	return readlink(path, b, sizeof(b) - 1) < 0 || !strcmp(a, b);
}

/* What it has loaded it may not see any more, since it has changed its root directory. */
static int check_driver(const struct inject_target *t, struct diag *d)
{
	char path[PATH_MAX + 32];
	struct stat st;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)t->pid, t->driver);
	if (!t->other_root || !stat(path, &st))
		return 0;
	return diag_set(d, ENOTSUP, "process %d has changed its root directory (chroot) since it loaded %s, which cannot be found from there: the agent cannot "
		"come in", (int)t->pid, t->driver);
}

int inject_look(pid_t pid, struct inject_target *t, struct diag *d)
{
	char status[8192];
	struct seen s = { .t = t };
	memset(t, 0, sizeof(*t));
	t->pid = pid;
	if (pid <= 0 || proc_read(pid, "status", status, sizeof(status)) <= 0)
		return diag_set(d, ESRCH, "no process %d", (int)pid);
	const char *name = field(status, "Name");
	snprintf(t->command, sizeof(t->command), "%.*s", name ? (int)strcspn(name, "\n") : 0,
		name ? name : "");
	if (number(status, "Tgid") != pid)
		return diag_set(d, EINVAL, "%d is a thread of process %ld: give that number",
			(int)pid, number(status, "Tgid"));
	const char *uids = field(status, "Uid"), *gids = field(status, "Gid");
	/* Real, effective: a session belongs to the effective user. */
	if (uids)
		t->uid = (uid_t)strtoul(uids + strcspn(uids, "\t"), NULL, 10);
	if (gids)
		t->gid = (gid_t)strtoul(gids + strcspn(gids, "\t"), NULL, 10);
	int err = check_status(pid, status, d);
	err = err ? err : check_machine(pid, d);
	err = err ? err : check_memory(pid, status, d);
	if (err)
		return err;
	err = each_mapping(pid, see, &s);
	if (err)
		return diag_set(d, -err,
			"process %d may not be looked at (%s): it belongs to somebody else; root "
			"may",
			(int)pid, strerror(-err));
	if (s.musl)
		return diag_set(d, ENOTSUP,
			"process %d uses the C library musl: attaching works for programs with "
			"glibc",
			(int)pid);
	if (!t->driver[0])
		return diag_set(d, ENOENT,
			"process %d (%s) is not a CUDA process: it has not loaded libcuda.so.1 (a "
			"program may do so late: try again once it computes)",
			(int)pid, t->command);
	if (!s.libc)
		return diag_set(d, ENOTSUP,
			"process %d has no shared C library: a static program cannot be attached "
			"to",
			(int)pid);
	if (s.replaced[0])
		return diag_set(d, ESTALE,
			"process %d: its %s has been replaced or removed since it started: attaching works when it has been started anew",
			(int)pid, s.replaced);
	t->other_pids = !inject_same_namespace(pid, "pid");
	t->other_root = !inject_same_root(pid);
	return check_driver(t, d);
}
