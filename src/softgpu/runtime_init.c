/* runtime_init.c - the driver behind the runtime, the calling thread's device, the last error. */
#include "softgpu/runtime.h"

#include <dlfcn.h>
#include <stdlib.h>

#define MAX_DEVICES 64

struct rt_calls rt_calls[2];
__thread int rt_twin;

static struct {
	pthread_once_t once;
	pthread_mutex_t lock;
	int error, n_devices;
	bool exiting;
	CUcontext primary[MAX_DEVICES];
	unsigned int flags[MAX_DEVICES];
} rt = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static __thread cudaError_t last_error;
static __thread int device; /* that the thread has chosen */

cudaError_t rt_end(int error)
{
	if (error)
		last_error = error;
	return error;
}

int rt_device(void)
{
	return device;
}

/* One row after the other, as NVIDIA's runtime asks for them. */
static int look_up(void *lib)
{
	CUresult (*ask)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	CUdriverProcAddressQueryResult status;
	void *fn;
	*(void **)&ask = dlsym(lib, "cuGetProcAddress_v2");
	if (!ask)
		return cudaErrorInsufficientDriver;
#define RT_ASK(name, suffix, since, ptds, flags, params, args)                                     \
	for (int twin = 0; twin < 2; twin++) {                                                     \
		fn = NULL;                                                                         \
		ask(#name, &fn, since, twin ? 2 : 0, &status);                                     \
		*(void **)&rt_calls[twin].name##suffix = fn;                                       \
	}
	CUDA_CALLS(RT_ASK)
	return rt_calls[0].cuInit && rt_calls[0].cuLibraryLoadData ? cudaSuccess
								   : cudaErrorInsufficientDriver;
}

/* Runs before what the program's constructors registered, since it is registered later. */
static void leave(void)
{
	rt.exiting = true;
}

bool rt_exiting(void)
{
	return rt.exiting;
}

static void start(void)
{
	atexit(leave);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		rt.error = cudaErrorInsufficientDriver;
		return;
	}
	if ((rt.error = look_up(lib)) || (rt.error = rt_calls[0].cuInit(0)))
		return;
	rt.error = rt_calls[0].cuDeviceGetCount(&rt.n_devices);
	if (rt.n_devices > MAX_DEVICES)
		rt.n_devices = MAX_DEVICES;
	if (!rt.error && !rt.n_devices)
		rt.error = cudaErrorNoDevice;
}

cudaError_t rt_enter_driver(void)
{
	pthread_once(&rt.once, start);
	return rt.error;
}

cudaError_t rt_context(int dev, CUcontext *ctx)
{
	cudaError_t r = rt_enter_driver();
	if (r)
		return r;
	if (dev < 0 || dev >= rt.n_devices)
		return cudaErrorInvalidDevice;
	unsigned int flags;
	int active = 0;
	pthread_mutex_lock(&rt.lock);
	/* The program may have reset the device through the driver API. */
	if (rt.primary[dev])
		r = rt_calls[0].cuDevicePrimaryCtxGetState(dev, &flags, &active);
	if (!r && !active) {
		if (rt.flags[dev])
			rt_calls[0].cuDevicePrimaryCtxSetFlags_v2(dev, rt.flags[dev]);
		r = rt_calls[0].cuDevicePrimaryCtxRetain(&rt.primary[dev], dev);
	}
	*ctx = rt.primary[dev];
	pthread_mutex_unlock(&rt.lock);
	return r;
}

cudaError_t rt_enter(void)
{
	CUcontext ctx = NULL;
	cudaError_t r = rt_enter_driver();
	if (r)
		return r;
	/* Whatever context the program has made current is the one to use. */
	if ((r = rt_calls[0].cuCtxGetCurrent(&ctx)) || ctx)
		return r;
	if ((r = rt_context(device, &ctx)))
		return r;
	return rt_calls[0].cuCtxSetCurrent(ctx);
}

/* -- last errors ----------------------------------------------------------------------------- */

cudaError_t RTAPI cudaGetLastError(void);
cudaError_t RTAPI cudaGetLastError(void)
{
	cudaError_t e = last_error;
	last_error = cudaSuccess;
	return e;
}

cudaError_t RTAPI cudaPeekAtLastError(void);
cudaError_t RTAPI cudaPeekAtLastError(void)
{
	return last_error;
}

/* -- the thread's device ------------------------------------------------------------------------
 */

cudaError_t RTAPI cudaGetDeviceCount(int *count);
cudaError_t RTAPI cudaGetDeviceCount(int *count)
{
	if (!count)
		return rt_end(cudaErrorInvalidValue);
	cudaError_t r = rt_enter_driver();
	*count = rt.n_devices;
	return rt_end(r);
}

cudaError_t RTAPI cudaSetDevice(int dev);
cudaError_t RTAPI cudaSetDevice(int dev)
{
	CUcontext ctx;
	cudaError_t r = rt_context(dev, &ctx);
	if (!r)
		r = rt_calls[0].cuCtxSetCurrent(ctx);
	if (!r)
		device = dev;
	return rt_end(r);
}

cudaError_t RTAPI cudaInitDevice(int dev, unsigned int device_flags, unsigned int flags);
cudaError_t RTAPI cudaInitDevice(int dev, unsigned int device_flags, unsigned int flags)
{
	CUcontext ctx;
	return rt_end(rt_context(dev, &ctx));
}

cudaError_t RTAPI cudaGetDevice(int *dev);
cudaError_t RTAPI cudaGetDevice(int *dev)
{
	CUcontext ctx = NULL;
	cudaError_t r = rt_enter_driver();
	if (!dev)
		return rt_end(cudaErrorInvalidValue);
	if (r)
		return rt_end(r);
	*dev = device;
	if (!rt_calls[0].cuCtxGetCurrent(&ctx) && ctx)
		r = rt_calls[0].cuCtxGetDevice(dev);
	return rt_end(r);
}

cudaError_t RTAPI cudaSetDeviceFlags(unsigned int flags);
cudaError_t RTAPI cudaSetDeviceFlags(unsigned int flags)
{
	cudaError_t r = rt_enter_driver();
	if (r)
		return rt_end(r);
	rt.flags[device] = flags & ~(unsigned int)CU_CTX_MAP_HOST;
	return rt_end(rt_calls[0].cuDevicePrimaryCtxSetFlags_v2(device, rt.flags[device]));
}

cudaError_t RTAPI cudaGetDeviceFlags(unsigned int *flags);
cudaError_t RTAPI cudaGetDeviceFlags(unsigned int *flags)
{
	int active;
	cudaError_t r = rt_enter_driver();
	if (!r)
		r = flags ? (cudaError_t)rt_calls[0].cuDevicePrimaryCtxGetState(
				    device, flags, &active)
			  : cudaErrorInvalidValue;
	if (!r)
		*flags |= CU_CTX_MAP_HOST;
	return rt_end(r);
}

cudaError_t RTAPI cudaSetValidDevices(int *devices, int n);
cudaError_t RTAPI cudaSetValidDevices(int *devices, int n)
{
	cudaError_t r = rt_enter_driver();
	if (!r && (n < 0 || (n && !devices)))
		r = cudaErrorInvalidValue;
	for (int i = 0; !r && i < n; i++)
		if (devices[i] < 0 || devices[i] >= rt.n_devices)
			r = cudaErrorInvalidDevice;
	return rt_end(r);
}

cudaError_t RTAPI cudaChooseDevice(int *dev, const struct cudaDeviceProp *prop);
cudaError_t RTAPI cudaChooseDevice(int *dev, const struct cudaDeviceProp *prop)
{
	cudaError_t r = rt_enter_driver();
	if (!r && (!dev || !prop))
		r = cudaErrorInvalidValue;
	if (!r) /* all software devices are alike */
		*dev = 0;
	return rt_end(r);
}

cudaError_t RTAPI cudaDeviceReset(void);
cudaError_t RTAPI cudaDeviceReset(void)
{
	cudaError_t r = rt_enter_driver();
	int dev = device;
	if (r)
		return rt_end(r);
	cudaGetDevice(&dev);
	pthread_mutex_lock(&rt.lock);
	rt.primary[dev] = NULL;
	pthread_mutex_unlock(&rt.lock);
	r = rt_calls[0].cuDevicePrimaryCtxReset_v2(dev);
	rt_calls[0].cuCtxSetCurrent(NULL);
	last_error = cudaSuccess;
	return rt_end(r);
}

RT_PASS(cudaDeviceSynchronize, (void), cuCtxSynchronize, ())

/* -- versions and entry points
 * --------------------------------------------------------------------- */

cudaError_t RTAPI cudaRuntimeGetVersion(int *version);
cudaError_t RTAPI cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return rt_end(cudaErrorInvalidValue);
	*version = RT_MAJOR >= 13 ? 13000 : 12080;
	return cudaSuccess;
}

cudaError_t RTAPI cudaDriverGetVersion(int *version);
cudaError_t RTAPI cudaDriverGetVersion(int *version)
{
	if (!version)
		return rt_end(cudaErrorInvalidValue);
	*version = 0; /* no driver is no error here */
	cudaError_t r = rt_enter_driver();
	if (rt_calls[0].cuDriverGetVersion)
		return rt_end(rt_calls[0].cuDriverGetVersion(version));
	return r == cudaErrorInsufficientDriver ? cudaSuccess : rt_end(r);
}

cudaError_t RTAPI cudaGetDriverEntryPointByVersion(const char *symbol, void **fn,
	unsigned int version, unsigned long long flags, CUdriverProcAddressQueryResult *status);
cudaError_t RTAPI cudaGetDriverEntryPointByVersion(const char *symbol, void **fn,
	unsigned int version, unsigned long long flags, CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult unused;
	cudaError_t r = rt_enter_driver();
	if (r)
		return rt_end(r);
	if (!flags && rt_twin)
		flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	return rt_end(rt_calls[0].cuGetProcAddress_v2(
		symbol, fn, (int)version, flags, status ? status : &unused));
}
RT_TWIN(cudaGetDriverEntryPointByVersion, _ptsz,
	(const char *symbol, void **fn, unsigned int version, unsigned long long flags,
		CUdriverProcAddressQueryResult *status),
	(symbol, fn, version, flags, status))

cudaError_t RTAPI cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags,
	CUdriverProcAddressQueryResult *status);
cudaError_t RTAPI cudaGetDriverEntryPoint(const char *symbol, void **fn, unsigned long long flags,
	CUdriverProcAddressQueryResult *status)
{
	return cudaGetDriverEntryPointByVersion(symbol, fn, RT_MAJOR * 1000, flags, status);
}
RT_TWIN(cudaGetDriverEntryPoint, _ptsz,
	(const char *symbol, void **fn, unsigned long long flags,
		CUdriverProcAddressQueryResult *status),
	(symbol, fn, flags, status))
