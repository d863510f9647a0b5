/* A kernel that faults: the error sticks to its context, everything queued ends, others live on. */
#include "driver_test.h"

static int called;

static void callback(CUstream stream, CUresult status, void *data)
{
	called = status;
}

static void quiet(void)
{
	/* The one line about each fault is not what is tested here. */
	if (!freopen("/dev/null", "w", stderr))
		exit(1);
}

int main(void)
{
	CUcontext other, back;
	CUdeviceptr p, there, elsewhere = 0;
	CUstream s, spin;
	CUevent e;
	CUmodule m;
	uint32_t v;
	quiet();
	need(cuInit(0));
	need(cuCtxCreate(&other, NULL, 0, 0));
	need(cuMemAlloc(&there, 4));
	need(cuMemsetD32(there, 11, 1));
	test_open();
	need(cuStreamCreate(&s, 0));
	need(cuStreamCreate(&spin, CU_STREAM_NON_BLOCKING));
	need(cuEventCreate(&e, 0));
	p = device_word(3);
	/* Another kernel waits for a gate that nobody opens, and one behind it. */
	volatile uint32_t *gate = gate_new();
	need(launch_gated(gate, p, 4, spin));
	need(launch_gated(gate, p, 5, spin));
	void *wild[] = { &elsewhere };
	CUfunction wild_kernel = kernel("wild");
	/* The fault comes when all of the following is queued. */
	volatile uint32_t *start = gate_new();
	need(launch_gated(start, p, 6, s));
	is_int(launch(wild_kernel, 1, 1, s, wild), 0, "the launch itself is fine");
	need(cuMemsetD32Async(p, 9, 1, s));
	need(cuStreamAddCallback(s, callback, NULL, 0));
	need(cuEventRecord(e, s));
	gate_set(start, 1);
	is_int(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS,
		"the fault is found when the stream is waited for");
	is_int(cuStreamSynchronize(spin), CUDA_ERROR_ILLEGAL_ADDRESS,
		"the other kernels of the context were ended");
	is_int(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS, "it sticks");
	is_int(cuMemAlloc(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS, "to allocations");
	is_int(cuMemcpyDtoH(&v, p, 4), CUDA_ERROR_ILLEGAL_ADDRESS, "to copies");
	is_int(launch(wild_kernel, 1, 1, s, wild), CUDA_ERROR_ILLEGAL_ADDRESS, "to launches");
	is_int(cuModuleLoadData(&m, test_ptx), CUDA_ERROR_ILLEGAL_ADDRESS, "to loads");
	is_int(cuEventQuery(e), CUDA_ERROR_ILLEGAL_ADDRESS, "to events");
	is_int(called, CUDA_ERROR_ILLEGAL_ADDRESS, "the callback was told");
	int n;
	is_int(cuDeviceGetCount(&n), 0, "questions about devices are answered");
	need(cuCtxSetCurrent(other));
	need(cuMemcpyDtoH(&v, there, 4));
	is_int(v, 11, "another context is unharmed");
	need(cuModuleLoadData(&module, test_ptx));
	void *params[] = { &there, &(uint32_t){ 1 } };
	is_int(launch(kernel("add"), 1, 1, NULL, params), 0, "and launches");
	is_int(cuCtxSynchronize(), 0, "and runs");
	is_int(cuDevicePrimaryCtxReset(dev), 0, "the failed one is reset");
	is_int(cuDevicePrimaryCtxRetain(&back, dev), 0, "and retained again");
	need(cuCtxSetCurrent(back));
	need(cuModuleLoadData(&module, test_ptx));
	p = device_word(1);
	params[0] = &p;
	is_int(launch(kernel("add"), 1, 1, NULL, params), 0, "it launches");
	is_int(read_word(p), 2, "and works");
	/* Faults of every address that is not ours. */
	static const uint64_t bad[] = { 0, 1, 0x1000, 0x7fffffffffffull, 0x800000000000ull,
		UINT64_MAX, UINT64_MAX - 3 };
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		CUcontext c;
		CUmodule mine;
		CUfunction f;
		elsewhere = bad[i];
		need(cuCtxCreate(&c, NULL, 0, 0));
		need(cuModuleLoadData(&mine, test_ptx));
		need(cuModuleGetFunction(&f, mine, "wild"));
		need(launch(f, 1, 1, NULL, wild));
		CUresult r = cuCtxSynchronize();
		ok(r == CUDA_ERROR_ILLEGAL_ADDRESS || r == CUDA_ERROR_MISALIGNED_ADDRESS,
			"a store at %#llx (%d)", (unsigned long long)bad[i], (int)r);
		need(cuCtxDestroy(c));
	}
	return tap_done();
}
