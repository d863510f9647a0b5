/* calls.h - the driver as programs of these tests find it: opened by name. */
#include <dlfcn.h>
#include <egpu/cuda.h>
#include <stdio.h>

static CUresult (*load)(CUmodule *, const void *);
static CUresult (*function)(CUfunction *, CUmodule, const char *);
static CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
static CUresult (*sync)(void);

/* Both: 0, or the status to end with. */
static int open_driver(const char *name)
{
	void *h = dlopen(name, RTLD_NOW);
	CUcontext ctx;
	if (!h)
		return fprintf(stderr, "%s\n", dlerror()), 2;
	CUresult (*init)(unsigned) = dlsym(h, "cuInit");
	CUresult (*retain)(CUcontext *, CUdevice) = dlsym(h, "cuDevicePrimaryCtxRetain");
	CUresult (*current)(CUcontext) = dlsym(h, "cuCtxSetCurrent");
	load = dlsym(h, "cuModuleLoadData");
	function = dlsym(h, "cuModuleGetFunction");
	launch = dlsym(h, "cuLaunchKernel");
	sync = dlsym(h, "cuCtxSynchronize");
	return init(0) || retain(&ctx, 0) || current(ctx);
}

static int run_kernel(const char *ptx, const char *name)
{
	CUmodule m;
	CUfunction f;
	return load(&m, ptx) || function(&f, m, name) || launch(f, 2, 1, 1, 32, 1, 1, 0, 0, 0, 0) || sync();
}
