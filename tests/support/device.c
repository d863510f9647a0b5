#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egpu/cuda.h"

#define CALLS(CALL)                                                                                \
	CALL(cuInit)                                                                               \
	CALL(cuDeviceGet) CALL(cuDeviceGetAttribute) CALL(cuDevicePrimaryCtxRetain)                \
		CALL(cuCtxSetCurrent) CALL(cuDevicePrimaryCtxRelease_v2) CALL(cuModuleLoadDataEx)  \
			CALL(cuModuleUnload) CALL(cuModuleGetFunction) CALL(cuModuleGetGlobal_v2)  \
				CALL(cuMemAlloc_v2) CALL(cuMemFree_v2) CALL(cuMemcpyHtoD_v2)       \
					CALL(cuMemcpyDtoH_v2) CALL(cuLaunchKernel)                 \
						CALL(cuCtxSynchronize)

struct device {
	void *library;
	CUdevice id;
	CUcontext context;
	char target[16];
	uint32_t sms;
#define CALL(name) __typeof__(&name) name;
	CALLS(CALL)
#undef CALL
};

struct device_module {
	CUmodule module;
};

static bool check(CUresult r, const char *what)
{
	if (r != CUDA_SUCCESS)
		fprintf(stderr, "# %s: error %d\n", what, (int)r);
	return r == CUDA_SUCCESS;
}

static const char *start(struct device *dev)
{
	int major = 0, minor = 0, sms = 0;
#define CALL(name)                                                                                 \
	dev->name = (__typeof__(dev->name))dlsym(dev->library, #name);                             \
	if (!dev->name)                                                                            \
		return "the driver has no " #name;
	CALLS(CALL)
#undef CALL
	if (dev->cuInit(0) != CUDA_SUCCESS || dev->cuDeviceGet(&dev->id, 0) != CUDA_SUCCESS)
		return "the driver has no device";
	dev->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, dev->id);
	dev->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, dev->id);
	dev->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev->id);
	snprintf(dev->target, sizeof(dev->target), "sm_%d%d", major, minor);
	dev->sms = (uint32_t)sms;
	if (dev->cuDevicePrimaryCtxRetain(&dev->context, dev->id) != CUDA_SUCCESS)
		return "the device has no context";
	return dev->cuCtxSetCurrent(dev->context) == CUDA_SUCCESS ? NULL
								  : "the context cannot be used";
}

struct device *device_open(const char *library, const char **why)
{
	struct device *dev = calloc(1, sizeof(*dev));
	*why = "out of memory";
	if (!dev)
		return NULL;
	dev->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	*why = dev->library ? start(dev) : dlerror();
	if (!*why)
		return dev;
	free(dev);
	return NULL;
}

struct device *device_open_own(const char *library, const char **why)
{
	const char *build = getenv("EGPU_BUILD");
	char own[512];
	*why = "EGPU_BUILD does not name the build directory";
	if (!library && build) {
		snprintf(own, sizeof(own), "%s/src/softgpu/libcuda.so.1", build);
		library = own;
	}
	return library ? device_open(library, why) : NULL;
}

void device_close(struct device *dev)
{
	if (!dev)
		return;
	dev->cuDevicePrimaryCtxRelease_v2(dev->id);
	free(dev); /* the library stays: drivers do not like to be unloaded */
}

const char *device_target(const struct device *dev)
{
	return dev->target;
}

uint32_t device_sms(const struct device *dev)
{
	return dev->sms;
}

uint64_t device_alloc(struct device *dev, size_t bytes)
{
	CUdeviceptr at = 0;
	void *zero = calloc(1, bytes);
	if (!zero || !check(dev->cuMemAlloc_v2(&at, bytes), "cuMemAlloc") ||
		!device_write(dev, at, zero, bytes))
		at = 0;
	free(zero);
	return at;
}

void device_free(struct device *dev, uint64_t at)
{
	if (at)
		check(dev->cuMemFree_v2(at), "cuMemFree");
}

bool device_write(struct device *dev, uint64_t at, const void *from, size_t bytes)
{
	return check(dev->cuMemcpyHtoD_v2(at, from, bytes), "cuMemcpyHtoD");
}

bool device_read(struct device *dev, void *to, uint64_t at, size_t bytes)
{
	return check(dev->cuMemcpyDtoH_v2(to, at, bytes), "cuMemcpyDtoH");
}

struct device_module *device_load(struct device *dev, const char *ptx)
{
	struct device_module *m = calloc(1, sizeof(*m));
	static char log[8192];
	CUjit_option names[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
	log[0] = '\0';
	if (m && check(dev->cuModuleLoadDataEx(&m->module, ptx, 2, names, values),
			 "cuModuleLoadDataEx"))
		return m;
	fprintf(stderr, "# %s\n", log);
	free(m);
	return NULL;
}

void device_unload(struct device *dev, struct device_module *m)
{
	if (m)
		check(dev->cuModuleUnload(m->module), "cuModuleUnload");
	free(m);
}

uint64_t device_symbol(struct device *dev, struct device_module *m, const char *name, size_t *bytes)
{
	CUdeviceptr at = 0;
	size_t n = 0;
	if (!check(dev->cuModuleGetGlobal_v2(&at, &n, m->module, name), "cuModuleGetGlobal"))
		return 0;
	if (bytes)
		*bytes = n;
	return at;
}

bool device_launch(struct device *dev, struct device_module *m, const char *kernel,
	const uint32_t grid[3], const uint32_t block[3], const uint64_t *args, uint32_t n_args)
{
	CUfunction f;
	void *params[16];
	if (!check(dev->cuModuleGetFunction(&f, m->module, kernel), kernel))
		return false;
	for (uint32_t k = 0; k < n_args; k++)
		params[k] = (void *)(uintptr_t)&args[k];
	return check(dev->cuLaunchKernel(f, grid[0], grid[1], grid[2], block[0], block[1], block[2],
			     0, NULL, params, NULL),
		"cuLaunchKernel");
}

bool device_wait(struct device *dev)
{
	return check(dev->cuCtxSynchronize(), "cuCtxSynchronize");
}
