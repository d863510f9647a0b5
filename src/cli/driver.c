/* driver.c - see driver.h. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/driver.h"
#include "egpu/cuda.h"

enum { INIT_LIMIT_S = 60, PATIENCE_S = 2 };

static void child_setup(void)
{
	signal(SIGALRM, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Until the child that holds the other end has ended; false: it has not by then. A child inside a driver that does not come back outlives its
 * alarm, and SIGKILL too. */
static bool wait_end(int fd, pid_t pid, unsigned limit_s, int *status)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec now, end;
	int n = -1;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += limit_s;
	for (int64_t ms = (int64_t)limit_s * 1000; n < 0 && ms > 0;) {
		n = poll(&p, 1, (int)ms);
		clock_gettime(CLOCK_MONOTONIC, &now);
		ms = (end.tv_sec - now.tv_sec) * 1000 + (end.tv_nsec - now.tv_nsec) / 1000000;
	}
	if (n <= 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, status, n > 0 ? 0 : WNOHANG) < 0 && errno == EINTR)
		;
	return n > 0;
}

bool in_child(bool (*fn)(void *, void *), void *arg, void *out, size_t size, unsigned limit_s,
	char error[256])
{
	int ends[2];
	/* Shared pages rather than a pipe: what was found before a crash comes back too. */
	char *page =
		mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED) {
		snprintf(error, 256, "out of memory");
		return false;
	}
	if (pipe2(ends, O_CLOEXEC)) {
		snprintf(error, 256, "pipe: %s", strerror(errno));
		munmap(page, size + 1);
		return false;
	}
	memcpy(page, out, size);
	fflush(NULL);
	pid_t pid = fork();
	if (!pid) {
		close(ends[0]);
		child_setup();
		alarm(limit_s);
		page[size] = fn(arg, page);
		_exit(0);
	}
	int status = 0;
	error[0] = 0;
	close(ends[1]);
	bool ended = pid > 0 && wait_end(ends[0], pid, limit_s + PATIENCE_S, &status);
	close(ends[0]);
	if (pid < 0)
		snprintf(error, 256, "fork: %s", strerror(errno));
	else if (!ended || (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM))
		snprintf(error, 256, "no answer within %u seconds", limit_s);
	else if (pid > 0 && WIFSIGNALED(status))
		snprintf(error, 256, "crashed (%s)", strsignal(WTERMSIG(status)));
	else if (pid > 0 && WEXITSTATUS(status))
		snprintf(error, 256, "ended with status %d", WEXITSTATUS(status));
	bool good = pid > 0 && !error[0] && page[size];
	memcpy(out, page, size);
	munmap(page, size + 1);
	return good;
}

static void ask_device(void *lib, int ordinal, struct driver_device *dev)
{
	CUresult (*get_name)(char *, int, CUdevice) = dlsym(lib, "cuDeviceGetName");
	CUresult (*get_attr)(int *, int, CUdevice) = dlsym(lib, "cuDeviceGetAttribute");
	int major = 0, minor = 0;
	if (get_name)
		get_name(dev->name, sizeof(dev->name) - 1, ordinal);
	if (!get_attr)
		return;
	get_attr(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal);
	get_attr(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
	get_attr(&dev->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ordinal);
	dev->cc = 10 * major + minor;
}

static void library_path(void *lib, const char *symbol, char out[PATH_MAX])
{
	/* The library that holds the symbol, not the handle's: an alias may lead to it. */
	Dl_info where;
	void *at = dlsym(lib, symbol);
	if (at && dladdr(at, &where) && where.dli_fname && realpath(where.dli_fname, out))
		return;
	struct link_map *map = NULL;
	if (!dlinfo(lib, RTLD_DI_LINKMAP, &map) && map && realpath(map->l_name, out))
		return;
	out[0] = 0;
}

static bool ask(void *arg, void *out)
{
	struct driver_info *i = out;
	void *lib = dlopen(arg, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *why = dlerror();
		snprintf(i->error, sizeof(i->error), "%.200s", why ? why : "cannot be loaded");
		return false;
	}
	i->loads = true;
	library_path(lib, "cuInit", i->path);
	CUresult (*init)(unsigned) = dlsym(lib, "cuInit");
	CUresult (*version)(int *) = dlsym(lib, "cuDriverGetVersion");
	CUresult (*count)(int *) = dlsym(lib, "cuDeviceGetCount");
	CUresult (*name)(CUresult, const char **) = dlsym(lib, "cuGetErrorName");
	if (!init || !count) {
		snprintf(i->error, sizeof(i->error), "has no cuInit: not a CUDA driver");
		return false;
	}
	i->has_init = true;
	i->init = (int32_t)init(0);
	if (i->init) {
		const char *text = NULL;
		if (name)
			name((CUresult)i->init, &text);
		snprintf(i->error, sizeof(i->error), "cuInit: error %d (%s)", i->init,
			text ? text : "unknown");
		return false;
	}
	if (version)
		version(&i->version);
	count(&i->n_devices);
	for (int d = 0; d < i->n_devices && d < DRIVER_MAX_DEVICES; d++)
		ask_device(lib, d, &i->devices[d]);
	if (i->n_devices <= 0)
		snprintf(i->error, sizeof(i->error), "it has no device");
	return i->n_devices > 0;
}

void driver_probe(const char *library, struct driver_info *out)
{
	char why[256];
	memset(out, 0, sizeof(*out));
	if (!in_child(ask, (void *)library, out, sizeof(*out), INIT_LIMIT_S, why) && !out->error[0])
		snprintf(out->error, sizeof(out->error), "%s", why[0] ? why : "not usable");
}

unsigned driver_ptx_isa(int32_t version)
{
	/* CUDA release notes: the PTX ISA each release introduced. */
	static const struct {
		int32_t cuda;
		unsigned isa;
	} rows[] = { { 13000, 90 }, { 12090, 88 }, { 12080, 87 }, { 12070, 86 }, { 12050, 85 },
		{ 12040, 84 }, { 12030, 83 }, { 12020, 82 }, { 12010, 81 }, { 12000, 80 },
		{ 11080, 78 }, { 11070, 77 }, { 11060, 76 }, { 11050, 75 }, { 11040, 74 },
		{ 11030, 73 }, { 11020, 72 }, { 11010, 71 }, { 11000, 70 }, { 10020, 65 },
		{ 10010, 64 } };
	if (version >= 13010) /* 13.1 brought 9.1, and so on until somebody reads otherwise */
		return 90 + (unsigned)(version % 1000) / 10 +
		       (unsigned)(version - 13000) / 1000 * 10;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (version >= rows[i].cuda)
			return rows[i].isa;
	return 0;
}
