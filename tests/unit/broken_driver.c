/* softgpu, broken in the way that BROKEN names: what src/cli/native.c has to find out about a driver. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"

#define OWN __attribute__((visibility("default")))

static bool broken(const char *how)
{
	const char *s = getenv("BROKEN");

	return s && !strcmp(s, how);
}

/* softgpu is behind us because we need it. */
OWN CUresult (*const broken_needs)(unsigned int) = cuInit;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A kernel finds no room. */
OWN CUresult cuLaunchKernel(CUfunction fn, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
	unsigned int shared, CUstream s, void **params, void **extra)
{
	if (broken("room"))
		return CUDA_SUCCESS;
	return REAL(cuLaunchKernel)(fn, gx, gy, gz, bx, by, bz, shared, s, params, extra);
}

/* One value of many is another. */
OWN CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream s)
{
	CUresult r = REAL(cuMemcpyDtoHAsync_v2)(to, from, bytes, s);

	if (broken("value") && bytes > 1024)
		((uint64_t *)to)[bytes / 16 | 1] ^= 4;
	return r;
}

OWN CUresult cuLinkComplete(CUlinkState state, void **cubin, size_t *bytes)
{
	if (broken("crash"))
		abort();
	if (broken("linker"))
		return CUDA_ERROR_NOT_SUPPORTED;
	return REAL(cuLinkComplete)(state, cubin, bytes);
}
