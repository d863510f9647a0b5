/* paths.c - candidates for each of egpu's own files, relative to the command's directory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/paths.h"

static const struct {
	const char *what;
	const char *places[4]; /* installed; command in build/src/cli; command in build; unpacked
				  tarball */
	const char *probe;     /* a file that must exist below it */
} rows[PATH_COUNT] = {
	[PATH_AGENT] = { "the agent library",
		{ "../" EGPU_LIBDIR "/egpu/libegpu-agent.so", "../agent/libegpu-agent.so",
			"src/agent/libegpu-agent.so", "../lib/egpu/libegpu-agent.so" },
		"" },
	[PATH_SOFTGPU] = { "the software GPU",
		{ "../" EGPU_LIBDIR "/egpu/softgpu/libcuda.so.1", "../softgpu/libcuda.so.1",
			"src/softgpu/libcuda.so.1", "../lib/egpu/softgpu/libcuda.so.1" },
		"" },
	[PATH_TOOLS] = { "the shipped tools",
		{ "../" EGPU_LIBDIR "/egpu/tools", "../../tools", "tools", "../lib/egpu/tools" },
		"/memtrace.bpf.o" },
	[PATH_INCLUDE] = { "the probe header egpu/probe.bpf.h",
		{ "../include", "include", "src/cli/include" }, "/egpu/probe.bpf.h" },
};

static int own_directory(char out[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
	if (n <= 0)
		return -ENOENT;
	out[n] = 0;
	char *slash = strrchr(out, '/');
	if (!slash)
		return -ENOENT;
	*slash = 0;
	return 0;
}

int path_find(enum egpu_path what, char out[PATH_MAX], struct diag *d)
{
	char dir[PATH_MAX], try[2 * PATH_MAX];
	if (own_directory(dir))
		return diag_set(d, ENOENT, "cannot read /proc/self/exe: is /proc mounted?");
	for (int i = 0; i < 4 && rows[what].places[i]; i++) {
		snprintf(try, sizeof(try), "%s/%s%s", dir, rows[what].places[i], rows[what].probe);
		if (access(try, R_OK))
			continue;
		snprintf(try, sizeof(try), "%s/%s", dir, rows[what].places[i]);
		if (realpath(try, out))
			return 0;
	}
	return diag_set(d, ENOENT,
		"%s is not where it should be: %s (from %s); install or build egpu again, and keep "
		"bin and lib together",
		rows[what].what, rows[what].places[0], dir);
}
