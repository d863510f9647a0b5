/* real.c - finds the driver behind us.
 *
 * We carry its SONAME, so it is asked for under an alias that the session's directory, first on
 * LD_LIBRARY_PATH, links to the real driver or to softgpu. Without a session the alias is our own
 * empty stub: then the driver is looked for by path.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"

#define ALIAS "libegpu-driver.so.1"

static struct real table;
static atomic_int resolved; /* 0 no, 1 being done, 2 done */
static bool present;

/* Where drivers are installed; the loader's cache knows more, but asking it for the SONAME gives us
 * ourselves. */
static const char *const places[] = {
	"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
	"/usr/lib64/libcuda.so.1",
	"/usr/lib/libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/local/nvidia/lib/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
};

static void *usable(void *lib)
{
	if (lib && dlsym(lib, "cuInit") && dlsym(lib, "cuDriverGetVersion"))
		return lib;
	return NULL;
}

/* A directory of LD_LIBRARY_PATH that has the driver under its own name. */
static void *from_path(void)
{
	const char *path = getenv("LD_LIBRARY_PATH");
	char file[4096];
	while (path && *path) {
		size_t n = strcspn(path, ":");
		if (n && n + sizeof("/libcuda.so.1") <= sizeof(file)) {
			memcpy(file, path, n);
			strcpy(file + n, "/libcuda.so.1");
			Dl_info self;
			void *lib = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
			/* Ourselves under another path? */
			if (usable(lib) && dladdr(dlsym(lib, "cuInit"), &self) &&
				strcmp(self.dli_fname, file) == 0)
				return lib;
		}
		path += n + (path[n] == ':');
	}
	return NULL;
}

static void *open_driver(void)
{
	void *lib = usable(dlopen(ALIAS, RTLD_NOW | RTLD_NOLOAD));
	if (!lib)
		lib = usable(dlopen(ALIAS, RTLD_NOW));
	if (!lib)
		lib = from_path();
	for (size_t i = 0; !lib && i < sizeof(places) / sizeof(places[0]); i++)
		lib = usable(dlopen(places[i], RTLD_NOW | RTLD_GLOBAL));
	return lib;
}

#define FILL_ONE(sym) *(void **)&table.sym = dlsym(lib, #sym);
#define FILL_TWIN(sym, ptds) FILL_TWIN_##ptds(sym)
#define FILL_TWIN_(sym)
#define FILL_TWIN__ptsz(sym) FILL_ONE(sym##_ptsz)
#define FILL_TWIN__ptds(sym) FILL_ONE(sym##_ptds)
#define FILL_ROW(name, suffix, since, ptds, flags, params, args)                                   \
	FILL_ONE(name##suffix)                                                                     \
	FILL_TWIN(name##suffix, ptds)

static void fill(void)
{
	void *lib = open_driver();
	if (!lib)
		return;
	CUDA_CALLS(FILL_ROW)
	present = true;
}

const struct real *real_calls(void)
{
	int none = 0;
	if (atomic_load_explicit(&resolved, memory_order_acquire) == 2)
		return &table;
	if (atomic_compare_exchange_strong(&resolved, &none, 1)) {
		fill();
		atomic_store_explicit(&resolved, 2, memory_order_release);
	}
	/* Another thread is at it: it takes microseconds, except when the dynamic loader runs the
	 * driver's constructors. A constructor that calls back here on the same thread would wait
	 * for itself, so the wait has an end. */
	for (int i = 0; i < 1000 && atomic_load_explicit(&resolved, memory_order_acquire) != 2;
		i++) {
		atomic_int never = 0;
		word_wait(&never, 0, 1);
	}
	return &table;
}

bool real_present(void)
{
	real_calls();
	return present;
}

/* The session is gone, with its alias, but its environment lives on in a process started late: a
 * program linked with the driver calls names that neither we nor the stub have. With the driver in
 * the global scope they are found when they are first called. */
__attribute__((constructor)) static void without_alias(void)
{
	const char *dir = getenv(SESSION_ENV);
	char path[512];
	if (!dir || snprintf(path, sizeof(path), "%s/" ALIAS, dir) >= (int)sizeof(path))
		return;
	const char *first = getenv("LD_LIBRARY_PATH");
	if (!first || strncmp(first, dir, strlen(dir)) || access(path, F_OK))
		real_calls();
}
