/* ptxas.c - the toolkit's compiler, for PTX that is newer than the driver's.
 *
 * The target may wait for its children and may have a handler for SIGCHLD: ours is made with no
 * exit signal, which wait() does not see, and shares our memory until it has become ptxas, so
 * nothing of the target is copied. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "map/file.h"

enum { CHILD_STACK = 64 << 10, TIMEOUT_MS = 120000 };

extern char **environ;

struct child {
	const char *path;
	char *const *argv;
	char *const *envp;
	const sigset_t *mask; /* of the target, which a program it starts would get */
};

/* Only system calls between the clone and the exec. */
static int run_child(void *arg)
{
	const struct child *c = arg;
	int null = open("/dev/null", O_RDWR);
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
	}
	/* Our table of handlers is a copy, so this changes nothing in the target. */
	for (int sig = 1; sig < 65; sig++)
		signal(sig, SIG_DFL);
	sigprocmask(SIG_SETMASK, c->mask, NULL);
	execve(c->path, c->argv, c->envp);
	_exit(127);
}

static bool find_in_path(char *out, size_t size)
{
	const char *path = getenv("PATH");
	while (path && *path) {
		size_t n = strcspn(path, ":");
		if (n && n + 8 < size) {
			memcpy(out, path, n);
			strcpy(out + n, "/ptxas");
			if (!access(out, X_OK))
				return true;
		}
		path += n + (path[n] == ':');
	}
	return false;
}

static bool find_ptxas(char *out, size_t size)
{
	if (find_in_path(out, size))
		return true;
	snprintf(out, size, "/usr/local/cuda/bin/ptxas");
	return !access(out, X_OK);
}

static int write_file(const char *path, const char *data, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	int err = file_write_at(fd, data, n, 0);
	return close(fd) || err ? -EIO : 0;
}

static int read_file(const char *path, char **data, size_t *n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	char *p = size > 0 ? malloc((size_t)size + 1) : NULL;
	int err = p ? file_read_at(fd, p, (size_t)size, 0) : -EIO;
	if (fd >= 0)
		close(fd);
	if (err) {
		free(p);
		return -EIO;
	}
	p[size] = 0;
	*data = p;
	*n = (size_t)size;
	return 0;
}

/* The environment without what would put us into the compiler. */
static char **clean_environment(void)
{
	size_t n = 0, k = 0;
	while (environ && environ[n])
		n++;
	char **out = calloc(n + 1, sizeof(*out));
	for (size_t i = 0; out && i < n; i++)
		if (strncmp(environ[i], "LD_PRELOAD=", 11) && strncmp(environ[i], "EGPU_", 5))
			out[k++] = environ[i];
	return out;
}

static int wait_child(pid_t pid)
{
	int status;
	for (int ms = 0; ms < TIMEOUT_MS; ms++) {
		pid_t got = waitpid(pid, &status, __WCLONE | WNOHANG);
		if (got == pid)
			return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EINVAL;
		if (got < 0 && errno != EINTR)
			return -ECHILD;
		atomic_int never = 0;
		word_wait(&never, 0, 1);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, __WCLONE);
	return -ETIMEDOUT;
}

static int run(const char *path, char *const argv[])
{
	sigset_t all, old;
	struct child c = { path, argv, clean_environment(), &old };
	char *stack = mmap(NULL, CHILD_STACK, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (!c.envp || stack == MAP_FAILED) {
		free((void *)c.envp);
		return -ENOMEM;
	}
	/* A handler of the target must not run in the child, which shares its memory. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid_t pid = clone(run_child, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK, &c);
	int err = pid < 0 ? -errno : 0;
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (!err)
		err = wait_child(pid);
	munmap(stack, CHILD_STACK);
	free((void *)c.envp);
	return err;
}

int ptxas_compile(const char *ptx, size_t bytes, const char *target, uint32_t max_regs,
	char **cubin, size_t *cubin_bytes, struct diag *d)
{
	static atomic_uint serial;
	char tool[4096], in[512], out[512], arch[64], regs[64];
	if (!find_ptxas(tool, sizeof(tool)))
		return diag_set(d, ENOENT, "no ptxas is in PATH or /usr/local/cuda/bin");
	unsigned int n = atomic_fetch_add(&serial, 1);
	snprintf(in, sizeof(in), "%s/ptxas-%d-%u.ptx", session_path(agent.session), (int)getpid(),
		n);
	snprintf(out, sizeof(out), "%s/ptxas-%d-%u.cubin", session_path(agent.session),
		(int)getpid(), n);
	snprintf(arch, sizeof(arch), "-arch=%s", target);
	snprintf(regs, sizeof(regs), "-maxrregcount=%u", max_regs);
	char *argv[] = { tool, arch, "-o", out, in, max_regs ? regs : NULL, NULL };
	int err = write_file(in, ptx, bytes);
	if (!err)
		err = run(tool, argv);
	if (!err)
		err = read_file(out, cubin, cubin_bytes);
	unlink(in);
	unlink(out);
	return err ? diag_set(d, -err, "%s fails on it too (-arch=%s)", tool, target) : 0;
}
