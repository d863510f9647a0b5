/* A machine without memory: whichever allocation of the agent fails, alone or with all that follow, and however few threads or
 * addresses there are, the program's results and exit status are its own. STARVED_EVERY=1: each allocation, else a choice. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

#include "harness.h"

enum { N = 100, KERNELS = 5, NOT_REACHED = 50, FAILED = 99 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
static atomic_int allocations, threads_refused;
#else
enum { SANITIZED = 0 };

/* -- allocations of the agent, counted and made to fail ----------------------------------------- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
__attribute__((visibility("default"))) void *malloc(size_t n);
__attribute__((visibility("default"))) void *calloc(size_t n, size_t size);
__attribute__((visibility("default"))) void *realloc(void *p, size_t n);
__attribute__((visibility("default"))) int pthread_create(
	pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);

static uintptr_t agent_from, agent_to;
static atomic_int allocations, threads_refused;
static int fail_from = -1, fail_to;
static bool no_threads;

static int find_agent(struct dl_phdr_info *info, size_t size, void *arg)
{
	if (!info->dlpi_name || !strstr(info->dlpi_name, "libegpu-agent"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && p->p_flags & PF_X) {
			agent_from = info->dlpi_addr + p->p_vaddr;
			agent_to = agent_from + p->p_memsz;
		}
	}
	return 1;
}

static bool is_agents(void *caller)
{
	return (uintptr_t)caller >= agent_from && (uintptr_t)caller < agent_to;
}

static bool fails(void *caller)
{
	if (!is_agents(caller))
		return false;
	int n = atomic_fetch_add(&allocations, 1);
	if (fail_from < 0 || n < fail_from || n >= fail_to)
		return false;
	errno = ENOMEM;
	return true;
}

void *malloc(size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
	return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(p, n);
}

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
	if (no_threads && is_agents(__builtin_return_address(0))) {
		atomic_fetch_add(&threads_refused, 1);
		return EAGAIN;
	}
	return real(t, a, fn, arg);
}

/* FAIL=FROM-TO, before the agent does anything. */
__attribute__((constructor)) static void begin(void)
{
	const char *fail = getenv("FAIL");
	dl_iterate_phdr(find_agent, NULL);
	if (fail && sscanf(fail, "%d-%d", &fail_from, &fail_to) != 2)
		abort();
	no_threads = getenv("NO_THREADS");
}
#endif

/* -- the program --------------------------------------------------------------------------------- */

static int work(void)
{
	static const char text[] = PTX_HEAD ".global .align 4 .u32 total;\n" PTX_FILL("f0") PTX_FILL("f1") PTX_FILL("f2") PTX_FILL(
		"f3") PTX_FILL("f4");
	CUmodule mod;
	CUdeviceptr buf;
	uint32_t n = N, add = 3;
	int bad = 0;
	target_context();
	CU(cuModuleLoadData(&mod, text));
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < 2 * KERNELS && !bad; i++) {
		CUfunction fn;
		char name[] = { 'f', (char)('0' + i % KERNELS), 0 };
		CU(cuModuleGetFunction(&fn, mod, name));
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		bad = check_fill(buf, add, N);
	}
	CU(cuModuleUnload(mod));
	return bad;
}

static int starved(void)
{
	int bad = work();
#ifndef __SANITIZE_ADDRESS__
#ifndef __SANITIZE_THREAD__
	if (!bad && fail_from >= atomic_load(&allocations))
		return NOT_REACHED;
#endif
#endif
	return bad;
}

static int lonely(void)
{
	int bad = work();
	return bad ? bad : !atomic_load(&threads_refused);
}

/* So many MB of addresses more than there are in use. */
static int narrow(void)
{
	struct rlimit r = { 0, RLIM_INFINITY };
	unsigned long pages = 0;
	target_context();
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%lu", &pages) != 1)
		return 2;
	fclose(f);
	r.rlim_cur = pages * (unsigned long)getpagesize() + (strtoul(getenv("MORE_MB"), NULL, 10) << 20);
	return setrlimit(RLIMIT_AS, &r) ? 3 : work();
}

static const struct role roles[] = { { "starved", starved }, { "lonely", lonely }, { "narrow", narrow }, { 0 } };

/* -- runs ------------------------------------------------------------------------------------------ */

static uint64_t counted;

static int run_with(const char *role, const char *setting, const char *cache)
{
	struct run r;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_STORE);
	run_attach(&r, &f, "*");
	r.env[0] = setting;
	r.env[1] = cache;
	int status = run_role(&r, role);
	counted = run_count(&r, map, 0);
	run_end(&r);
	return status;
}

/* Whole launches are counted, whatever fails. */
static bool is_good(int status, const char *what)
{
	bool good = (status == 0 || status == NOT_REACHED) && (counted % N == 0 || counted == UINT64_MAX);
	if (!good)
		printf("# %s: status %d, counted %llu\n", what, status, (unsigned long long)counted);
	return good;
}

static void each_allocation(bool rest, const char *cache, const char *what)
{
	bool good = true;
	int status = 0, runs = 0;
	for (int at = 0; status != NOT_REACHED && at < 100000; runs++) {
		char setting[64];
		snprintf(setting, sizeof(setting), "FAIL=%d-%d", at, rest ? INT32_MAX : at + 1);
		status = run_with("starved", setting, cache);
		good &= is_good(status, setting);
		at += getenv("STARVED_EVERY") ? 1 : 1 + at / 5;
	}
	ok(good && runs > 10, "%s: %d places", what, runs);
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/egpu-starved-XXXXXX", cache[64], sweep[64];
	harness_main(argc, argv, roles);
	if (SANITIZED) {
		tap_skip("allocations are the sanitizer's");
		return tap_done();
	}
	if (!mkdtemp(dir))
		return 1;
	snprintf(cache, sizeof(cache), "EGPU_CACHE=%s", dir);
	ok(!run_with("starved", "A=b", cache) && counted == 2 * KERNELS * N, "with memory all is counted");
	each_allocation(false, "EGPU_CACHE=off", "one allocation fails");
	each_allocation(true, "EGPU_CACHE=off", "and all after it");
	each_allocation(false, cache, "with a cache");
	is_int(run_with("lonely", "NO_THREADS=1", "EGPU_CACHE=off"), 0, "no thread can be made: the program is right");
	bool good = true;
	for (int mb = 1; mb <= 256; mb *= 2) {
		char more[32];
		snprintf(more, sizeof(more), "MORE_MB=%d", mb);
		int status = run_with("narrow", more, "EGPU_CACHE=off");
		/* The program's own calls may fail too. */
		good &= (status == FAILED && mb < 64) || is_good(status, more);
	}
	ok(good, "few addresses: the program is right, or its own calls fail");
	snprintf(sweep, sizeof(sweep), "rm -rf %s", dir);
	if (system(sweep))
		printf("# %s\n", sweep);
	return tap_done();
}
