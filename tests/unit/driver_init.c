/* Starting the driver: order of calls, settings, look-ups, names of errors. */
#include <sys/wait.h>

#include "driver_test.h"

/* cuInit in a child with EGPU_SOFTGPU set; the result, and what it says on stderr. */
static int init_with(
	const char *name, const char *value, char *said, size_t room, int *sms, int *major)
{
	int out[2], results[2], r[3] = { -1, -1, -1 };
	if (pipe(out) || pipe(results))
		return -1;
	pid_t pid = fork();
	if (!pid) {
		dup2(out[1], 2);
		setenv(name, value, 1);
		r[0] = cuInit(0);
		if (!r[0]) {
			cuDeviceGetAttribute(&r[1], CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);
			cuDeviceGetAttribute(
				&r[2], CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
		}
		if (write(results[1], r, sizeof(r)) != sizeof(r))
			_exit(1);
		_exit(0);
	}
	close(out[1]);
	close(results[1]);
	ssize_t n = read(out[0], said, room - 1);
	said[n > 0 ? n : 0] = 0;
	if (read(results[0], r, sizeof(r)) != sizeof(r))
		r[0] = -1;
	close(out[0]);
	close(results[0]);
	waitpid(pid, NULL, 0);
	*sms = r[1];
	*major = r[2];
	return r[0];
}

static void settings(void)
{
	char said[1024];
	int sms, major;
	is_int(init_with("EGPU_SOFTGPU", "sm_80,sms=3,workers=1,memory=64M,strict,seed=7", said,
		       sizeof(said), &sms, &major),
		0, "settings are accepted");
	is_int(sms, 3, "sms=3");
	is_int(major, 8, "sm_80");
	is_int(init_with("EGPU_SOFTGPU", "", said, sizeof(said), &sms, &major), 0,
		"an empty value means the defaults");
	is_int(major, 9, "the default is sm_90");
	is_int(init_with("EGPU_SOFTGPU", "sm_90a", said, sizeof(said), &sms, &major), 0, "sm_90a");
	static const char *const bad[] = { "sm_91", "sm_", "sm_9", "sm_70", "sms=0",
		"sms=", "sms=-1", "sms=1025", "sms=8x", "memory=1", "memory=1T",
		"memory=99999999999999999999", "workers=0", "fast", "sms=8,", ",sms=8",
		"sms=8,,seed=1", "SMS=8", "sms= 8", "seed=4294967296" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		int r = init_with("EGPU_SOFTGPU", bad[i], said, sizeof(said), &sms, &major);
		ok(r == CUDA_ERROR_INVALID_VALUE && strstr(said, "EGPU_SOFTGPU") &&
				strstr(said, "expected"),
			"'%s' is refused with a message", bad[i]);
	}
	is_int(init_with("CUDA_VISIBLE_DEVICES", "", said, sizeof(said), &sms, &major),
		CUDA_ERROR_NO_DEVICE, "no visible device");
	is_int(init_with("CUDA_VISIBLE_DEVICES", "1", said, sizeof(said), &sms, &major),
		CUDA_ERROR_NO_DEVICE, "only a device that is not there");
	is_int(init_with("CUDA_VISIBLE_DEVICES", "0", said, sizeof(said), &sms, &major), 0,
		"device 0 visible");
}

static void before_init(void)
{
	int v;
	CUdeviceptr p;
	CUcontext c;
	CUmodule m;
	is_int(cuDeviceGetCount(&v), CUDA_ERROR_NOT_INITIALIZED, "cuDeviceGetCount before cuInit");
	is_int(cuMemAlloc(&p, 4), CUDA_ERROR_NOT_INITIALIZED, "cuMemAlloc before cuInit");
	is_int(cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_NOT_INITIALIZED, "retain before cuInit");
	is_int(cuModuleLoadData(&m, test_ptx), CUDA_ERROR_NOT_INITIALIZED,
		"module load before cuInit");
	is_int(cuDriverGetVersion(&v), CUDA_SUCCESS, "cuDriverGetVersion needs no cuInit");
	is_int(v, 13000, "it is 13.0");
	is_int(cuInit(1), CUDA_ERROR_INVALID_VALUE, "cuInit flags");
}

static void *look_up(const char *name, int version, uint64_t flags, int *status)
{
	void *fn = (void *)1;
	CUdriverProcAddressQueryResult s = (CUdriverProcAddressQueryResult)9;
	CUresult r = cuGetProcAddress(name, &fn, version, flags, &s);
	*status = r ? -(int)r : (int)s;
	return fn;
}

static void look_ups(void)
{
	int s;
	ok(look_up("cuMemAlloc", 12000, 0, &s) == (void *)cuMemAlloc_v2 && !s,
		"cuMemAlloc is cuMemAlloc_v2");
	ok(!look_up("cuMemAlloc", 2000, 0, &s) && s == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
		"not before 3.2, and the status says so");
	ok(!look_up("cuNoSuchCall", 13000, 0, &s) && s == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
		"unknown name");
	ok(look_up("cuCtxCreate", 11000, 0, &s) == (void *)cuCtxCreate_v2, "cuCtxCreate for 11.0");
	ok(look_up("cuCtxCreate", 11040, 0, &s) == (void *)cuCtxCreate_v3, "cuCtxCreate for 11.4");
	ok(look_up("cuCtxCreate", 13000, 0, &s) == (void *)cuCtxCreate_v4, "cuCtxCreate for 13.0");
	ok(look_up("cuGetProcAddress", 12000, 0, &s) == (void *)cuGetProcAddress_v2,
		"cuGetProcAddress for 12.0");
	ok(look_up("cuLaunchKernel", 12000, 0, &s) == (void *)cuLaunchKernel, "cuLaunchKernel");
	ok(look_up("cuLaunchKernel", 12000, 1, &s) == (void *)cuLaunchKernel,
		"legacy stream asked for");
	ok(look_up("cuLaunchKernel", 12000, 2, &s) == (void *)cuLaunchKernel_ptsz,
		"per-thread stream asked for");
	ok(look_up("cuLaunchKernel", 6050, 2, &s) == (void *)cuLaunchKernel,
		"before 7.0 there was none");
	ok(look_up("cuMemcpyHtoD", 12000, 2, &s) == (void *)cuMemcpyHtoD_v2_ptds,
		"per-thread copy");
	ok(look_up("cuInit", 12000, 2, &s) == (void *)cuInit, "no twin: the plain one");
	look_up("cuInit", 12000, 7, &s);
	is_int(s, -CUDA_ERROR_INVALID_VALUE, "unknown flags");
	void *fn;
	is_int(cuGetProcAddress(NULL, &fn, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE, "no name");
	is_int(cuGetProcAddress("cuInit", NULL, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE,
		"no place");
}

static void errors(void)
{
	const char *s;
	is_int(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &s), 0, "a name");
	is_str(s, "CUDA_ERROR_ILLEGAL_ADDRESS", "is the enumerator's");
	is_int(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &s), 0, "a sentence");
	is_str(s, "invalid argument", "as NVIDIA's driver has it");
	is_int(cuGetErrorName((CUresult)12345, &s), CUDA_ERROR_INVALID_VALUE, "no such error");
	ok(!s, "and no name");
	is_int(cuGetErrorString(CUDA_SUCCESS, NULL), CUDA_ERROR_INVALID_VALUE, "no place for it");
}

static void device(void)
{
	char name[64], small[5], bus[16];
	int v, bad = 0;
	size_t bytes;
	CUuuid uuid;
	CUdevice d;
	is_int(cuDeviceGetCount(&v), 0, "count");
	is_int(v, 1, "one device");
	is_int(cuDeviceGet(&d, 1), CUDA_ERROR_INVALID_DEVICE, "no second one");
	is_int(cuDeviceGet(&d, -1), CUDA_ERROR_INVALID_DEVICE, "none before the first");
	is_int(cuDeviceGetName(name, sizeof(name), 0), 0, "name");
	is_str(name, "egpu softgpu sm_90", "says what it is");
	is_int(cuDeviceGetName(small, sizeof(small), 0), 0, "in a small buffer");
	is_str(small, "egpu", "it is cut");
	is_int(cuDeviceTotalMem(&bytes, 0), 0, "total memory");
	ok(bytes >= 256u << 20, "of a sensible size");
	is_int(cuDeviceGetUuid(&uuid, 0), 0, "uuid");
	is_int(cuDeviceGetPCIBusId(bus, sizeof(bus), 0), 0, "bus id");
	is_int(cuDeviceGetByPCIBusId(&d, bus), 0, "leads back");
	for (int a = 1; a < CU_DEVICE_ATTRIBUTE_MAX; a++)
		bad += cuDeviceGetAttribute(&v, (CUdevice_attribute)a, 0) != 0;
	is_int(bad, 0, "every attribute has a value");
	is_int(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE,
		"none past the last");
	is_int(cuDeviceGetAttribute(&v, (CUdevice_attribute)0, 0), CUDA_ERROR_INVALID_VALUE,
		"none at 0");
	is_int(cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 5),
		CUDA_ERROR_INVALID_DEVICE, "of another device");
	cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0);
	is_int(v, 232448, "227 KiB of shared memory to opt in to");
}

static void after_fork(void)
{
	pid_t pid = fork();
	if (!pid) {
		int n;
		_exit(cuDeviceGetCount(&n) == CUDA_ERROR_NOT_INITIALIZED &&
					cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
				? 0
				: 1);
	}
	int status = -1;
	waitpid(pid, &status, 0);
	is_int(status, 0, "in a child of fork nothing works, and nothing hangs");
}

int main(void)
{
	unsetenv("EGPU_SOFTGPU");
	unsetenv("CUDA_VISIBLE_DEVICES");
	settings();
	before_init();
	is_int(cuInit(0), CUDA_SUCCESS, "cuInit");
	is_int(cuInit(0), CUDA_SUCCESS, "and again");
	look_ups();
	errors();
	device();
	CUdeviceptr p;
	is_int(cuMemAlloc(&p, 4), CUDA_ERROR_INVALID_CONTEXT, "no context yet");
	after_fork();
	return tap_done();
}
