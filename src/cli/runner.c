/* runner.c - see runner.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/driver.h"
#include "cli/paths.h"
#include "cli/runner.h"
#include "cli/target.h"

#define REAL_DRIVER "libcuda.so.1"
#define ALIAS "libegpu-driver.so.1"

static int no_driver(const struct driver_info *i)
{
	if (!i->loads)
		return say_fail("no CUDA driver on this machine (%s); --softgpu runs the program "
				"on the CPU instead",
			i->error);
	return say_fail("the CUDA driver %s does not work here (%s); --softgpu runs the program on "
			"the CPU instead",
		i->path, i->error);
}

static int choose_driver(struct runner *r, const struct driver_choice *c)
{
	struct driver_info info;
	struct diag d = { 0 };
	if (c->gpu && c->softgpu.given)
		return say_fail("--gpu and --softgpu exclude each other: give one of them");
	if (c->softgpu.given) {
		r->softgpu = true;
		if (path_find(PATH_SOFTGPU, r->driver, &d))
			return say_diag("--softgpu", &d);
		/* What the option does not say, the environment may: EGPU_SOFTGPU=sm_80,sms=4. */
		if (c->softgpu.value && setenv("EGPU_SOFTGPU", c->softgpu.value, 1))
			return say_fail("out of memory");
		driver_probe(r->driver, &info);
		r->n_devices = info.n_devices;
		return driver_usable(&info)
			       ? 0
			       : say_fail("--softgpu%s%s: %s", c->softgpu.value ? "=" : "",
					 c->softgpu.value ? c->softgpu.value : "", info.error);
	}
	driver_probe(REAL_DRIVER, &info);
	if (!driver_usable(&info))
		return no_driver(&info);
	snprintf(r->driver, sizeof(r->driver), "%s", info.path);
	r->n_devices = info.n_devices;
	return 0;
}

static int link_in_session(struct runner *r, const char *to, const char *name)
{
	char at[PATH_MAX];
	snprintf(at, sizeof(at), "%s/%s", session_path(r->session), name);
	return symlink(to, at) ? say_fail("%s: %s", at, strerror(errno)) : 0;
}

/* The agent is preloaded by a link beside the driver's alias, so that the loader finds both or
 * neither, whatever the command makes of LD_LIBRARY_PATH or its user: the agent without the alias
 * would stand for a driver that lacks most calls. It answers to libcuda.so.1; programs that open
 * the development name must meet it too. */
static int place_agent(struct runner *r)
{
	struct diag d = { 0 };
	char path[PATH_MAX];
	const char *session = session_path(r->session);
	if (strpbrk(session, ": ;$"))
		return say_fail("%s: LD_PRELOAD and LD_LIBRARY_PATH cannot hold this name; set "
				"EGPU_DIR to a directory without blank, colon, semicolon and "
				"dollar sign",
			session);
	if (path_find(PATH_AGENT, path, &d))
		return say_diag("agent", &d);
	snprintf(r->agent, sizeof(r->agent), "%s/libegpu-agent.so", session);
	return link_in_session(r, path, "libcuda.so") ||
			       link_in_session(r, path, "libegpu-agent.so")
		       ? EGPU_FAILED
		       : 0;
}

/* Beside the software GPU is a CUDA runtime for programs that load a shared one. NVIDIA's works
 * only with NVIDIA's driver; the session comes first on the library path. */
static int place_runtime(struct runner *r)
{
	static const char *const names[] = { "libcudart.so.13", "libcudart.so.12" };
	char path[PATH_MAX];
	const char *slash = strrchr(r->driver, '/');
	int n = slash ? (int)(slash - r->driver) : 0, status = 0;
	for (size_t i = 0; r->softgpu && i < 2 && !status; i++)
		if (snprintf(path, sizeof(path), "%.*s/%s", n, r->driver, names[i]) <
				(int)sizeof(path) &&
			!access(path, R_OK))
			status = link_in_session(r, path, names[i]);
	return status;
}

int runner_open(struct runner *r, const struct driver_choice *choice)
{
	struct diag d = { 0 };
	memset(r, 0, sizeof(*r));
	session_gc();
	int status = choose_driver(r, choice);
	if (status)
		return status;
	if (session_create(&r->session, &d))
		return say_diag("session", &d);
	status = place_agent(r);
	if (!status)
		status = link_in_session(r, r->driver, ALIAS);
	if (!status)
		status = place_runtime(r);
	if (status)
		runner_close(r);
	return status;
}

void runner_close(struct runner *r)
{
	session_destroy(r->session);
	r->session = NULL;
}

int runner_run(struct runner *r, char **command, void (*tick)(void *), void *arg, bool *started,
	struct target **target)
{
	struct diag d = { 0 };
	struct target_env env = { .session = session_path(r->session), .preload = r->agent };
	*started = false;
	if (target_start(command, &env, target, &d))
		return say_diag(command[0], &d);
	*started = true;
	return target_wait(*target, tick, arg);
}
