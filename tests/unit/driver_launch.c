/* Launches: how parameters travel, what shapes are allowed, all the forms. */
#include "driver_test.h"

static CUdeviceptr out;

static void parameters(void)
{
	CUfunction f = kernel("mixed");
	uint8_t a = 200;
	uint64_t b = 1ull << 40;
	uint16_t c = 50000;
	uint32_t d = 4000000000u;
	uint64_t want = a + b + c + d, got = 0;
	void *params[] = { &a, &b, &c, &d, &out };
	is_int(launch(f, 1, 1, NULL, params), 0, "an array of addresses");
	need(cuMemcpyDtoH(&got, out, 8));
	ok(got == want, "each parameter with its size");
	struct {
		uint8_t a;
		uint64_t b;
		uint16_t c;
		uint32_t d;
		uint64_t out;
	} block = { a, b, c, d + 1, out };
	size_t bytes = sizeof(block);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE,
		&bytes, CU_LAUNCH_PARAM_END };
	is_int(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), 0, "a packed block");
	need(cuMemcpyDtoH(&got, out, 8));
	ok(got == want + 1, "the same");
	bytes = 31;
	is_int(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), CUDA_ERROR_INVALID_VALUE,
		"a block too short");
	bytes = 32;
	is_int(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, extra),
		CUDA_ERROR_INVALID_VALUE, "both at once");
	is_int(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE,
		"neither");
	params[2] = NULL;
	is_int(launch(f, 1, 1, NULL, params), CUDA_ERROR_INVALID_VALUE, "a hole");
	void *odd[] = { (void *)9, &block, CU_LAUNCH_PARAM_END };
	is_int(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, odd), CUDA_ERROR_INVALID_VALUE,
		"an unknown word");
	/* The parameters are taken at the call. */
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0);
	uint32_t v = 6;
	void *late[] = { &p, &v };
	need(launch_gated(gate, p, 1, NULL));
	need(launch(kernel("set"), 1, 1, NULL, late));
	v = 7;
	gate_set(gate, 1);
	need(cuCtxSynchronize());
	is_int(read_word(p), 6, "parameters are those of the call");
}

static void shapes(void)
{
	CUfunction f = kernel("set"), s = kernel("shared");
	void *params[] = { &out, &(uint32_t){ 1 } };
	static const struct {
		unsigned g[3], b[3];
		const char *what;
	} bad[] = {
		{ { 0, 1, 1 }, { 1, 1, 1 }, "no blocks" },
		{ { 1, 1, 0 }, { 1, 1, 1 }, "no blocks in z" },
		{ { 1, 1, 1 }, { 0, 1, 1 }, "no threads" },
		{ { 1, 1, 1 }, { 1025, 1, 1 }, "1,025 threads" },
		{ { 1, 1, 1 }, { 1, 1, 65 }, "65 in z" },
		{ { 1, 1, 1 }, { 32, 33, 1 }, "32 by 33" },
		{ { 1, 65536, 1 }, { 1, 1, 1 }, "65,536 blocks in y" },
		{ { 0x80000000u, 1, 1 }, { 1, 1, 1 }, "2^31 blocks" },
		{ { 1, 1, 1 }, { 0x10000, 0x10000, 1 }, "a product that overflows" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		is_int(cuLaunchKernel(f, bad[i].g[0], bad[i].g[1], bad[i].g[2], bad[i].b[0],
			       bad[i].b[1], bad[i].b[2], 0, NULL, params, NULL),
			CUDA_ERROR_INVALID_VALUE, "%s", bad[i].what);
	is_int(launch((CUfunction)&out, 1, 1, NULL, params), CUDA_ERROR_INVALID_HANDLE,
		"no function");
	is_int(launch(NULL, 1, 1, NULL, params), CUDA_ERROR_INVALID_HANDLE, "NULL");
	is_int(launch(f, 1, 1, (CUstream)&out, params), CUDA_ERROR_INVALID_HANDLE, "no stream");
	is_int(cuLaunchKernel(s, 1, 1, 1, 1, 1, 1, 49152, NULL, params, NULL), 0,
		"48 KiB of shared memory");
	is_int(read_word(out), 49152, "are there");
	is_int(cuLaunchKernel(s, 1, 1, 1, 1, 1, 1, 49153, NULL, params, NULL),
		CUDA_ERROR_INVALID_VALUE, "a byte more");
	need(cuFuncSetAttribute(s, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200000));
	is_int(cuLaunchKernel(s, 1, 1, 1, 1, 1, 1, 200000, NULL, params, NULL), 0,
		"after opting in");
	is_int(read_word(out), 200000, "are there too");
	CUdeviceptr p;
	uint32_t w[2310], wrong = 0;
	need(cuMemAlloc(&p, sizeof(w)));
	void *where[] = { &p };
	is_int(launch(kernel("index"), 7, 330, NULL, where), 0, "7 blocks of 330 threads");
	need(cuMemcpyDtoH(w, p, sizeof(w)));
	for (uint32_t i = 0; i < 2310; i++)
		wrong += w[i] != i;
	is_int(wrong, 0, "each thread ran once");
	need(cuMemFree(p));
}

static void extended(void)
{
	CUfunction f = kernel("add");
	CUevent e;
	CUdeviceptr p = device_word(0);
	void *params[] = { &p, &(uint32_t){ 1 } };
	need(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CUlaunchAttribute attrs[4] = { { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = -1 },
		{ .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1 },
		{ .id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT,
			.value.launchCompletionEvent = { e, 0 } },
		{ .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = { 2, 1, 1 } } };
	CUlaunchConfig c = { .gridDimX = 4,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 8,
		.blockDimY = 1,
		.blockDimZ = 1,
		.attrs = attrs,
		.numAttrs = 3 };
	is_int(cuLaunchKernelEx(&c, f, params, NULL), 0, "priority, cooperative, event");
	is_int(cuEventSynchronize(e), 0, "the event comes");
	is_int(read_word(p), 32, "32 threads");
	c.attrs = attrs + 3;
	c.numAttrs = 1;
	is_int(cuLaunchKernelEx(&c, f, params, NULL), 0, "clusters of two");
	is_int(read_word(p), 64, "32 more");
	c.gridDimX = 3;
	is_int(cuLaunchKernelEx(&c, f, params, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE,
		"that do not divide the grid");
	c.gridDimX = 32;
	attrs[3].value.clusterDim.x = 16;
	is_int(cuLaunchKernelEx(&c, f, params, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE,
		"16 blocks have to be allowed");
	need(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	is_int(cuLaunchKernelEx(&c, f, params, NULL), 0, "then they may be");
	attrs[3].id = (CUlaunchAttributeID)500;
	is_int(cuLaunchKernelEx(&c, f, params, NULL), CUDA_ERROR_INVALID_VALUE,
		"an unknown attribute");
	is_int(cuLaunchKernelEx(NULL, f, params, NULL), CUDA_ERROR_INVALID_VALUE,
		"no configuration");
	int sms, blocks;
	need(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev));
	need(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
	is_int(cuLaunchCooperativeKernel(
		       f, (unsigned)(sms * blocks), 1, 1, 1024, 1, 1, 0, NULL, params),
		0, "as many blocks as fit, together");
	is_int(cuLaunchCooperativeKernel(
		       f, (unsigned)(sms * blocks + 1), 1, 1, 1024, 1, 1, 0, NULL, params),
		CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "one more does not");
	need(cuCtxSynchronize());
	need(cuEventDestroy(e));
}

static void before_four(void)
{
	CUfunction f = kernel("mixed");
	uint64_t got, b = 1000;
	need(cuMemsetD8(out, 0, 8));
	is_int(cuFuncSetBlockShape(f, 1, 1, 1), 0, "block shape");
	is_int(cuParamSeti(f, 0, 1), 0, "a parameter");
	is_int(cuParamSetv(f, 8, &b, 8), 0, "another");
	is_int(cuParamSetv(f, 16, &(uint16_t){ 10 }, 2), 0, "and");
	is_int(cuParamSeti(f, 20, 100), 0, "so");
	is_int(cuParamSetv(f, 24, &out, 8), 0, "on");
	is_int(cuParamSetv(f, 28, &out, 8), CUDA_ERROR_INVALID_VALUE, "not past the end");
	is_int(cuParamSetSize(f, 32), 0, "size");
	is_int(cuLaunchGrid(f, 1, 1), 0, "launched as before CUDA 4.0");
	need(cuMemcpyDtoH(&got, out, 8));
	is_int(got, 1111, "works");
}

int main(void)
{
	test_open();
	need(cuMemAlloc(&out, 8));
	parameters();
	shapes();
	extended();
	before_four();
	need(cuDevicePrimaryCtxRelease(dev));
	return tap_done();
}
