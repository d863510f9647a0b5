/* compile.c - see compile.h. The object comes back through a pipe: nothing is left in any
 * directory. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/compile.h"
#include "cli/paths.h"

enum { MAX_OBJECT = 256 << 20 };

bool program_in_path(const char *name)
{
	if (strchr(name, '/'))
		return !access(name, X_OK);
	char *path = strdup(getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin"), *save = NULL,
	     file[PATH_MAX];
	bool found = false;
	for (char *dir = path ? strtok_r(path, ":", &save) : NULL; dir && !found;
		dir = strtok_r(NULL, ":", &save)) {
		snprintf(file, sizeof(file), "%s/%s", dir, name);
		found = !access(file, X_OK);
	}
	free(path);
	return found;
}

const char *compile_find_clang(void)
{
	static const char *const names[] = { "clang", "clang-22", "clang-21", "clang-20",
		"clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14", NULL };
	const char *own = getenv("EGPU_CLANG");
	if (own && *own)
		return program_in_path(own) ? own : NULL;
	for (int i = 0; names[i]; i++)
		if (program_in_path(names[i]))
			return names[i];
	return NULL;
}

static int drain(int fd, char **data, size_t *size)
{
	size_t cap = 1 << 16, len = 0;
	char *p = malloc(cap);
	for (;;) {
		ssize_t n = p ? read(fd, p + len, cap - len) : -1;
		if (n < 0 && p && errno == EINTR)
			continue;
		if (n < 0 || len + (size_t)(n < 0 ? 0 : n) > MAX_OBJECT) {
			free(p);
			return -EFBIG;
		}
		len += (size_t)n;
		if (!n)
			break;
		if (len == cap) {
			char *q = realloc(p, cap *= 2);
			if (!q)
				free(p);
			p = q;
		}
	}
	*data = p;
	*size = len;
	return 0;
}

static void exec_clang(const char *clang, const char *source, const char *include, int out)
{
	char own[PATH_MAX + 2];
	snprintf(own, sizeof(own), "-I%s", include);
	/* Debian keeps <asm/types.h> in a directory of the machine, which clang leaves out for
	 * -target bpf. */
	const char *argv[] = { clang, "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", own,
		"-idirafter", "/usr/include/x86_64-linux-gnu", "-idirafter",
		"/usr/include/aarch64-linux-gnu", "-c", source, "-o", "-", NULL };
	if (dup2(out, 1) >= 0)
		execvp(clang, (char **)argv);
	_exit(127);
}

int compile_probe(const char *source, char **object, size_t *size, struct diag *d)
{
	char include[PATH_MAX];
	int fds[2], status = 0;
	const char *clang = compile_find_clang();
	if (access(source, R_OK))
		return diag_set(d, errno, "%s", strerror(errno));
	if (!clang)
		return diag_set(d, ENOENT,
			"no clang in PATH to compile it: install clang, or name one with "
			"EGPU_CLANG=");
	if (path_find(PATH_INCLUDE, include, d))
		return -ENOENT;
	if (pipe(fds))
		return diag_set(d, errno, "pipe: %s", strerror(errno));
	fflush(NULL);
	pid_t pid = fork();
	if (!pid)
		exec_clang(clang, source, include, fds[1]);
	close(fds[1]);
	int err = pid < 0 ? -EAGAIN : drain(fds[0], object, size);
	close(fds[0]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (err)
		return diag_set(d, -err, "cannot compile: %s", strerror(-err));
	if (status) {
		free(*object);
		*object = NULL;
		return diag_set(d, EINVAL,
			"does not compile (%s's messages are above; <bpf/bpf_helpers.h> is in "
			"libbpf-dev)",
			clang);
	}
	return 0;
}
