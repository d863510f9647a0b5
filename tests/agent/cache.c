/* Compiled variants on disk: the second run compiles nothing; whatever is wrong with the cache, the
 * program runs and is probed as without it. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "harness.h"

enum { N = 200, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS };

static int fill(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr buf;
	uint32_t add = 5, n = N;
	void *params[] = { &buf, &add, &n };
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	return check_fill(buf, add, N);
}

/* The same with so small a limit on files that writing an entry would be a signal. */
static int limited(void)
{
	struct rlimit r = { .rlim_cur = 64, .rlim_max = RLIM_INFINITY };
	return setrlimit(RLIMIT_FSIZE, &r) ? 2 : fill();
}

/* Without EGPU_CACHE, where a run's own place for caches is. */
static int placed(void)
{
	unsetenv("EGPU_CACHE");
	return fill();
}

/* A library of the program's is being loaded, and its loading waits for what another thread does on the device. */
static atomic_int inside, filled, gave_up;

static void wait_for_fill(void)
{
	atomic_store(&inside, 1);
	for (int ms = 0; !atomic_load(&filled) && ms < 5000; ms++)
		usleep(1000);
	atomic_store(&gave_up, !atomic_load(&filled));
}

static void *load_library(void *arg)
{
	if (!dlopen(WAITING_LIB, RTLD_NOW))
		printf("# %s\n", dlerror());
	return NULL;
}

static int loading(void)
{
	char text[32];
	pthread_t thread;
	target_context();
	snprintf(text, sizeof(text), "%p", (void *)(uintptr_t)wait_for_fill);
	setenv("EGPU_TEST_CALL", text, 1);
	if (pthread_create(&thread, NULL, load_library, NULL))
		return 2;
	for (int ms = 0; !atomic_load(&inside) && ms < 5000; ms++)
		usleep(1000);
	int bad = fill();
	atomic_store(&filled, 1);
	pthread_join(thread, NULL);
	return bad ? bad : !atomic_load(&inside) ? 3 : atomic_load(&gave_up) ? 4 : 0;
}

static const struct role roles[] = { { "fill", fill }, { "limited", limited }, { "placed", placed }, { "loading", loading },
	{ 0 } };

static char top[] = "/tmp/egpu-cache-XXXXXX", dir[64], setting[128];

struct seen {
	int status, cached;
	uint64_t count;
};

static const char *another_agent; /* NULL: that of this build */

/* One run with one counter at the kernel's entry. more: one further NAME=VALUE, or NULL. */
static struct seen probe_role(const char *role, const char *env, const char *more)
{
	struct run r;
	uint32_t map = run_begin_counted(&r, "fill");
	r.env[0] = env;
	r.env[1] = more;
	r.agent = another_agent;
	struct seen s = { .status = run_role(&r, role), .cached = -1 };
	s.count = run_count(&r, map, 0);
	struct session_kernel *k = run_kernel(&r, "fill");
	if (k && k->compile_ns)
		s.cached = (int)k->compile_cached;
	run_end(&r);
	return s;
}

static struct seen probe(const char *env, const char *more)
{
	return probe_role("fill", env, more);
}

static bool is(struct seen s, int cached)
{
	if (s.status || s.cached != cached || s.count != BLOCKS * THREADS)
		printf("# status %d cached %d count %llu\n", s.status, s.cached,
			(unsigned long long)s.count);
	return !s.status && s.cached == cached && s.count == BLOCKS * THREADS;
}

/* Calls fn for every file of the directory; the number of files. */
static int each(const char *where, void (*fn)(const char *path))
{
	char path[400];
	int n = 0;
	DIR *d = opendir(where);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", where, e->d_name);
		n++;
		if (fn)
			fn(path);
	}
	if (d)
		closedir(d);
	return n;
}

static off_t flip_at; /* negative: from the end */

static void flip(const char *path)
{
	char byte;
	int fd = open(path, O_RDWR);
	off_t at = flip_at < 0 ? lseek(fd, 0, SEEK_END) + flip_at : flip_at;
	if (pread(fd, &byte, 1, at) == 1) {
		byte ^= 0x10;
		ok(pwrite(fd, &byte, 1, at) == 1, "a byte of %s is changed at %lld", "an entry",
			(long long)at);
	}
	close(fd);
}

static off_t cut_to;
static void cut(const char *path)
{
	if (truncate(path, cut_to))
		printf("# truncate\n");
}

static void append(const char *path)
{
	int fd = open(path, O_WRONLY | O_APPEND);
	if (write(fd, "x", 1) != 1)
		printf("# append\n");
	close(fd);
}

static void to_fifo(const char *path)
{
	unlink(path);
	if (mkfifo(path, 0600))
		printf("# mkfifo\n");
}

static void to_link(const char *path)
{
	char aside[500];
	snprintf(aside, sizeof(aside), "%s-aside", top);
	rename(path, aside);
	if (symlink(aside, path))
		printf("# symlink\n");
}

static void to_dir(const char *path)
{
	unlink(path);
	if (mkdir(path, 0700))
		printf("# mkdir\n");
}

static void to_writable(const char *path)
{
	chmod(path, 0666);
}

static void wipe(const char *path)
{
	if (unlink(path))
		rmdir(path);
}

static void check_mode(const char *path)
{
	struct stat st;
	ok(!stat(path, &st) && (st.st_mode & 07777) == 0600, "an entry has mode 0600");
}

static void damaged(void)
{
	static const struct {
		const char *what;
		void (*fn)(const char *path);
		off_t at;
	} ways[] = { { "a byte of the magic", flip, 0 }, { "a byte of the PTX's length", flip, 17 },
		{ "the top byte of the cubin's length", flip, 31 }, { "a byte of the sum", flip, 33 },
		{ "a byte of the key", flip, 50 }, { "the last byte", flip, -1 },
		{ "a byte in the middle", flip, -300 }, { "an empty file", cut, 0 },
		{ "half a head", cut, 20 }, { "only a head", cut, 40 }, { "a short cubin", cut, 700 },
		{ "a byte too many", append, 0 }, { "a FIFO", to_fifo, 0 },
		{ "a symbolic link", to_link, 0 }, { "others may write it", to_writable, 0 } };
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		flip_at = cut_to = ways[i].at;
		each(dir, ways[i].fn);
		ok(is(probe(setting, NULL), 0), "%s: compiled", ways[i].what);
		ok(is(probe(setting, NULL), 1), "%s: replaced by a good entry", ways[i].what);
	}
	each(dir, to_dir);
	ok(is(probe(setting, NULL), 0), "a directory in its place: compiled");
	each(dir, wipe);
}

static void two_at_once(void)
{
	struct run r[4];
	pid_t pid[4];
	uint32_t map[4];
	bool good = true;
	each(dir, wipe);
	for (int i = 0; i < 4; i++) {
		run_begin(&r[i]);
		map[i] = run_map(&r[i], BPF_MAP_TYPE_ARRAY, 4, 8, 1);
		struct ebpf_fragment f = counter(map[i], EBPF_POINT_ENTRY);
		run_attach(&r[i], &f, "fill");
		r[i].env[0] = setting;
	}
	for (int i = 0; i < 4; i++)
		pid[i] = run_start(&r[i], "fill");
	for (int i = 0; i < 4; i++) {
		good &= !run_wait(&r[i], pid[i], 60) &&
			run_count(&r[i], map[i], 0) == BLOCKS * THREADS;
		run_end(&r[i]);
	}
	ok(good, "four processes fill one cache at a time");
	ok(is(probe(setting, NULL), 1), "and leave a good entry");
}

static void old_file(const char *name, size_t bytes, time_t age)
{
	char path[200];
	struct timespec t[2] = { { .tv_sec = time(NULL) - age }, { .tv_sec = time(NULL) - age } };
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (ftruncate(fd, (off_t)bytes) || futimens(fd, t))
		printf("# old file\n");
	close(fd);
}

static bool there(const char *name)
{
	char path[200];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return !access(path, F_OK);
}

static void bounded(void)
{
	each(dir, wipe);
	old_file("0000000000000001.jit", 400 << 10, 3000);
	old_file("0000000000000002.jit", 400 << 10, 2000);
	old_file("0000000000000003.jit", 400 << 10, 1000);
	old_file("new-1-1-1", 100, 7200);
	old_file("new-1-1-2", 100, 60);
	old_file("notes.txt", 2 << 20, 9000);
	old_file("new-report", 100, 9000);
	old_file("new-1-2-3-4", 100, 9000);
	old_file("mine.jit", 2 << 20, 9000);
	ok(is(probe(setting, "EGPU_CACHE_MB=1"), 0), "a cache over its limit takes a new entry");
	ok(!there("0000000000000001.jit") && !there("0000000000000002.jit"), "the oldest went");
	ok(there("0000000000000003.jit"), "the newer stayed");
	ok(!there("new-1-1-1") && there("new-1-1-2"), "what a dead writer left went, a live one's stayed");
	ok(there("notes.txt") && there("new-report") && there("new-1-2-3-4") && there("mine.jit"),
		"files that are not the cache's are left alone");
	ok(is(probe(setting, "EGPU_CACHE_MB=1"), 1), "the new entry stayed");
	each(dir, wipe);
	ok(is(probe(setting, "EGPU_CACHE_MB=0"), 0) && !each(dir, NULL), "a limit of 0 keeps nothing");
}

static void places(void)
{
	char xdg[96], home[96], made[96];
	snprintf(xdg, sizeof(xdg), "XDG_CACHE_HOME=%s/xdg", top);
	snprintf(home, sizeof(home), "HOME=%s/home", top);
	ok(is(probe_role("placed", xdg, home), 0) && is(probe_role("placed", xdg, home), 1),
		"$XDG_CACHE_HOME/egpu, made where it is missing");
	mkdir(home + 5, 0700);
	ok(is(probe_role("placed", "XDG_CACHE_HOME=", home), 0) &&
			is(probe_role("placed", "XDG_CACHE_HOME=", home), 1),
		"$HOME/.cache/egpu");
	snprintf(made, sizeof(made), "%s/home/.cache/egpu", top);
	ok(each(made, NULL) > 0, "the entries are there");
	ok(is(probe_role("placed", "XDG_CACHE_HOME=relative", "HOME="), 0), "no home: no cache");
	each(dir, wipe);
	/* There is no room for the map either, so nothing is probed. */
	ok(!probe_role("limited", setting, NULL).status && !each(dir, NULL),
		"a limit on the size of files: no entry, no signal");
	chmod(dir, 0755);
	ok(is(probe(setting, NULL), 0) && is(probe(setting, NULL), 0),
		"a directory that others may read is not used");
	chmod(dir, 0500);
	struct seen s = probe(setting, NULL);
	ok(!s.status && s.count == BLOCKS * THREADS, "a directory that cannot be written");
	chmod(dir, 0700);
	ok(is(probe("EGPU_CACHE=off", NULL), 0), "EGPU_CACHE=off: no cache");
	ok(is(probe("EGPU_CACHE=relative", NULL), 0) && access("relative", F_OK),
		"a relative path: no cache");
	ok(is(probe("EGPU_CACHE=/nonexistent/a/b", NULL), 0), "a place that cannot be made: no cache");
}

static void held_up(void)
{
	each(dir, wipe);
	ok(is(probe_role("loading", setting, NULL), 0), "what is asked of the cache does not wait for a library that is being loaded");
	each(dir, wipe);
}

/* The agent's file with other contents of the same size and time: what the linker made of it is changed. */
static bool rebuild(const char *path)
{
	static const char note[] = "GNU";
	struct stat st;
	bool done = false;
	int fd = open(path, O_RDWR);
	char *text = fd >= 0 && !fstat(fd, &st) ? malloc((size_t)st.st_size) : NULL;
	if (text && pread(fd, text, (size_t)st.st_size, 0) == st.st_size)
		for (off_t i = 0; !done && i + 32 < st.st_size; i++) {
			uint32_t type;
			memcpy(&type, text + i, 4);
			if (type != 3 || memcmp(text + i + 4, note, sizeof(note)))
				continue;
			text[i + 10] ^= 1;
			done = pwrite(fd, text, (size_t)st.st_size, 0) == st.st_size;
		}
	const struct timespec times[2] = { st.st_atim, st.st_mtim };
	done = done && !futimens(fd, times);
	free(text);
	close(fd);
	return done;
}

static void another_build(void)
{
	char path[96], copy[1200];
	snprintf(path, sizeof(path), "%s/libegpu-agent.so", top);
	snprintf(copy, sizeof(copy), "cp %s %s", AGENT_LIB, path);
	if (system(copy))
		printf("# %s\n", copy);
	another_agent = path;
	each(dir, wipe);
	ok(is(probe(setting, NULL), 0) && is(probe(setting, NULL), 1), "an agent elsewhere");
	ok(rebuild(path), "its file is that of another build, with the size and the time of the old one");
	ok(is(probe(setting, NULL), 0) && is(probe(setting, NULL), 1), "which uses nothing that the old one made");
	another_agent = NULL;
	each(dir, wipe);
}

int main(int argc, char **argv)
{
	char link_to[96];
	harness_main(argc, argv, roles);
	if (!mkdtemp(top))
		return 1;
	snprintf(dir, sizeof(dir), "%s/c", top);
	snprintf(setting, sizeof(setting), "EGPU_CACHE=%s", dir);
	ok(is(probe(setting, NULL), 0), "the first run compiles");
	ok(each(dir, check_mode) >= 1, "and leaves an entry");
	struct stat st;
	ok(!stat(dir, &st) && (st.st_mode & 07777) == 0700, "the directory has mode 0700");
	ok(is(probe(setting, NULL), 1), "the second run takes it");
	each(dir, wipe);
	probe(setting, NULL);
	damaged();
	two_at_once();
	bounded();
	another_build();
	held_up();
	places();
	snprintf(link_to, sizeof(link_to), "%s/l", top);
	if (symlink(dir, link_to))
		return 1;
	snprintf(setting, sizeof(setting), "EGPU_CACHE=%s", link_to);
	ok(is(probe(setting, NULL), 0) && is(probe(setting, NULL), 0), "a link to a directory is not used");
	char sweep[120];
	snprintf(sweep, sizeof(sweep), "rm -rf %s %s-aside", top, top);
	if (system(sweep))
		printf("# %s\n", sweep);
	return tap_done();
}
