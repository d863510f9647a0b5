/* Kernels are being compiled, on several threads, while the program forks, ends, loads and unloads on others, and takes signals: it
 * has its results, its exit status and its children. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#include "harness.h"

enum { N = 100, KERNELS = 40, FORKS_AT_MOST = 200, CHILD_S = 20 };

static atomic_int compiling, over;

/* The agent takes as many threads as a large machine has processors. */
long __sysconf(int name);
__attribute__((visibility("default"), no_sanitize("thread", "address", "undefined"))) long sysconf(int name)
{
	return name == _SC_NPROCESSORS_ONLN ? 16 : __sysconf(name);
}

static char *text_of_many(void)
{
	char *text = malloc(KERNELS * 1200);
	size_t n = (size_t)sprintf(text, "%s", PTX_HEAD);
	for (int i = 0; i < KERNELS; i++) {
		char one[] = PTX_FILL("f????"), name[16];
		snprintf(name, sizeof(name), "%04d", i);
		memcpy(strstr(one, "????"), name, 4);
		n += (size_t)sprintf(text + n, "%s", one);
	}
	return text;
}

static int load_many(void)
{
	CUmodule mod;
	CUdeviceptr buf;
	uint32_t n = N, add = 3;
	int bad = 0;
	void *params[] = { &buf, &add, &n };
	char *text = text_of_many();
	atomic_store(&compiling, 1);
	CU(cuModuleLoadData(&mod, text));
	atomic_store(&over, 1);
	CU(cuMemAlloc(&buf, N * 4));
	for (int i = 0; i < KERNELS && !bad; i++) {
		CUfunction fn;
		char name[16];
		snprintf(name, sizeof(name), "f%04d", i);
		CU(cuModuleGetFunction(&fn, mod, name));
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		bad = check_fill(buf, add, N);
	}
	CU(cuModuleUnload(mod));
	free(text);
	return bad;
}

/* -- children ---------------------------------------------------------------------------------------- */

static atomic_int forked, children_failed;

/* Takes memory, runs what runs at the end. */
static void child(int how)
{
	alarm(CHILD_S);
	free(malloc(1000));
	if (how % 3 == 0)
		_exit(0);
	if (how % 3 == 1)
		exit(0);
	execl("/bin/true", "true", (char *)NULL);
	_exit(1);
}

static void *fork_on(void *arg)
{
	while (!atomic_load(&compiling))
		usleep(100);
	while (!atomic_load(&over) && atomic_load(&forked) < FORKS_AT_MOST) {
		int status, n = atomic_fetch_add(&forked, 1);
		pid_t pid = fork();
		if (!pid)
			child(n);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
			atomic_fetch_add(&children_failed, 1);
	}
	return NULL;
}

static int forking(void)
{
	pthread_t t;
	target_context();
	if (pthread_create(&t, NULL, fork_on, NULL))
		return 2;
	int bad = load_many();
	pthread_join(t, NULL);
	return bad ? bad : !atomic_load(&forked) ? 3 : atomic_load(&children_failed) ? 4 : 0;
}

/* -- the end ------------------------------------------------------------------------------------------- */

static void *end_soon(void *arg)
{
	while (!atomic_load(&compiling))
		usleep(100);
	usleep((useconds_t)strtoul(getenv("AFTER_US"), NULL, 10));
	exit(7);
}

static int ending(void)
{
	pthread_t t;
	target_context();
	if (pthread_create(&t, NULL, end_soon, NULL))
		return 2;
	load_many();
	pause();
	return 3;
}

/* -- others ---------------------------------------------------------------------------------------------- */

static void *load_other(void *arg)
{
	static const char text[] = PTX_HEAD PTX_FILL("other");
	CUmodule mod;
	CU(cuCtxSetCurrent(arg));
	while (!atomic_load(&compiling))
		usleep(100);
	while (!atomic_load(&over)) {
		CU(cuModuleLoadData(&mod, text));
		CU(cuModuleUnload(mod));
	}
	return NULL;
}

static int others(void)
{
	pthread_t t[2];
	CUcontext ctx = target_context();
	for (int i = 0; i < 2; i++)
		if (pthread_create(&t[i], NULL, load_other, ctx))
			return 2;
	int bad = load_many();
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	return bad;
}

/* The driver has no compiler, so ptxas is asked; and its input is larger than a file may be. */
static int small_files(void)
{
	struct rlimit r = { .rlim_cur = 64, .rlim_max = RLIM_INFINITY };
	target_context();
	return setrlimit(RLIMIT_FSIZE, &r) ? 2 : load_many();
}

static const struct role roles[] = { { "forking", forking }, { "ending", ending }, { "others", others }, { "small_files", small_files }, { 0 } };

static int run_with(const char *role, const char *setting, const char *more)
{
	struct run r;
	run_begin(&r);
	if (more)
		run_use_shim(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_STORE);
	run_attach(&r, &f, "*");
	r.env[0] = setting;
	r.env[1] = setting ? more : NULL;
	int status = run_wait(&r, run_start(&r, role), 60);
	if (!strcmp(role, "forking") || !strcmp(role, "others"))
		is_int(run_count(&r, map, 0), KERNELS * N, "all that ran is counted");
	run_end(&r);
	return status;
}

static void small(void)
{
	char dir[] = "/tmp/egpu-midst-XXXXXX", tool[64], path[1200];
	if (!mkdtemp(dir))
		return;
	snprintf(tool, sizeof(tool), "%s/ptxas", dir);
	FILE *f = fopen(tool, "w");
	fprintf(f, "#!/bin/sh\nexit 1\n");
	fclose(f);
	chmod(tool, 0700);
	snprintf(path, sizeof(path), "PATH=%s:%s", dir, getenv("PATH"));
	is_int(run_with("small_files", "SHIM_FAULT=cuLinkCreate_v2:1", path), 0, "files may not be large: no signal");
	char log[64];
	snprintf(log, sizeof(log), "%s/log", dir);
	setenv("EGPU_AGENT_LOG", log, 1);
	is_int(run_with("small_files", "SHIM_FAULT=cuLinkCreate_v2:1", path), 0, "nor for the log");
	unsetenv("EGPU_AGENT_LOG");
	unlink(log);
	unlink(tool);
	rmdir(dir);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	is_int(run_with("forking", NULL, NULL), 0, "forks while kernels are compiled");
	is_int(run_with("others", NULL, NULL), 0, "modules come and go meanwhile");
	for (int us = 0; us < 40000; us = us * 2 + 500) {
		char after[32];
		snprintf(after, sizeof(after), "AFTER_US=%d", us);
		is_int(run_with("ending", after, NULL), 7, "it ends %d us after they began", us);
	}
	small();
	return tap_done();
}
