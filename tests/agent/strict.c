/* strict.c - softgpu, and a line for each call of it that fails.
 *
 * Lies as libcuda.so.1 before softgpu, which egpu-shim-target links to. Each line of the file that
 * STRICT_LOG names is a call and its error. What is not ready (cuEventQuery, cuStreamQuery) is no error, and questions for names
 * (cuGetProcAddress) are none either: programs ask a driver for more than it has.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cuda/calls.h"

static CUresult note(const char *name, CUresult r)
{
	const char *path = getenv("STRICT_LOG");
	char line[128];
	if (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY || !path || !strncmp(name, "cuGetProcAddress", 16))
		return r;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int n = snprintf(line, sizeof(line), "%s %d\n", name, (int)r);
	if (fd >= 0) {
		if (write(fd, line, (size_t)n) != n)
			abort();
		close(fd);
	}
	return r;
}

/* NVIDIA's driver pins memory of files only where they live in memory (seen with a session on a disk). */
static bool lies_on_disk(const void *at)
{
	unsigned long from, to;
	char line[4200], path[4096];
	bool on_disk = false;
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && !on_disk && fgets(line, sizeof(line), f)) {
		struct statfs fs;
		if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %4095s", &from, &to, path) == 3 && (uintptr_t)at >= from &&
			(uintptr_t)at < to)
			on_disk = path[0] == '/' && !statfs(path, &fs) && fs.f_type != TMPFS_MAGIC;
	}
	if (f)
		fclose(f);
	return on_disk;
}

#define WRAP_ONE(sym, params, args)                                                                \
	__attribute__((visibility("default"))) CUresult sym params;                                \
	static CUresult(*real_##sym) params;                                                       \
	CUresult sym params                                                                        \
	{                                                                                          \
		if (!real_##sym)                                                                   \
			*(void **)&real_##sym = dlsym(RTLD_NEXT, #sym);                            \
		return note(#sym, real_##sym args);                                                \
	}
#define TWIN_(sym, params, args)
#define TWIN__ptsz(sym, params, args) WRAP_ONE(sym##_ptsz, params, args)
#define TWIN__ptds(sym, params, args) WRAP_ONE(sym##_ptds, params, args)
#define WRAP_STUB(name, suffix, ptds, params, args)
#define WRAP_HSTUB(name, suffix, ptds, params, args)
#define WRAP_SOFT(name, suffix, ptds, params, args)                                                \
	WRAP_ONE(name##suffix, params, args)                                                       \
	TWIN_##ptds(name##suffix, params, args)
#define WRAP_BOTH WRAP_SOFT
#define WRAP_ROW(name, suffix, since, ptds, flags, params, args)                                   \
	WRAP_##flags(name, suffix, ptds, params, args)

/* The answers of cuGetProcAddress are softgpu's own: they become ours below. */
#define cuMemHostRegister_v2 plain_cuMemHostRegister_v2
#define cuGetProcAddress hidden_cuGetProcAddress
#define cuGetProcAddress_v2 hidden_cuGetProcAddress_v2
CUDA_CALLS(WRAP_ROW)
#undef cuMemHostRegister_v2
#undef cuGetProcAddress
#undef cuGetProcAddress_v2

__attribute__((visibility("default"))) CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned int flags);
CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned int flags)
{
	CUresult (*real)(void *, size_t, unsigned int) = dlsym(RTLD_NEXT, "cuMemHostRegister_v2");
	return note("cuMemHostRegister_v2", lies_on_disk(at) ? CUDA_ERROR_INVALID_VALUE : real(at, bytes, flags));
}

/* Ours for an address of softgpu's. */
static void *ours(void *found)
{
	Dl_info info;
	void *self = dlopen(getenv("STRICT_SELF"), RTLD_NOW | RTLD_NOLOAD);
	void *mine = NULL;
	if (self && found && dladdr(found, &info) && info.dli_sname && info.dli_saddr == found)
		mine = dlsym(self, info.dli_sname);
	return mine ? mine : found;
}

__attribute__((visibility("default"))) CUresult cuGetProcAddress(
	const char *symbol, void **fn, int version, cuuint64_t flags);
__attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(
	const char *symbol, void **fn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status);

CUresult cuGetProcAddress(const char *symbol, void **fn, int version, cuuint64_t flags)
{
	CUresult (*real)(const char *, void **, int, cuuint64_t) = dlsym(RTLD_NEXT, "cuGetProcAddress");
	CUresult r = real(symbol, fn, version, flags);
	if (r == CUDA_SUCCESS && fn)
		*fn = ours(*fn);
	return r;
}

CUresult cuGetProcAddress_v2(
	const char *symbol, void **fn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	CUresult (*real)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
		dlsym(RTLD_NEXT, "cuGetProcAddress_v2");
	CUresult r = real(symbol, fn, version, flags, status);
	if (r == CUDA_SUCCESS && fn)
		*fn = ours(*fn);
	return r;
}
