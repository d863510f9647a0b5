/* vecadd N [OUT]: c = a + b for N floats, checked; OUT gets the bytes of c. */
#include "common.h"
#include "vecadd.h"

static float value_a(uint64_t i)
{
	return (float)(i % 1021) * 0.5f;
}

static float value_b(uint64_t i)
{
	return (float)(i % 509) - 254.0f;
}

int main(int argc, char **argv)
{
	usage(argc, argv, 1, 2,
		"N [OUT]    adds two vectors of N floats; OUT gets the sum's bytes");
	uint64_t n = number(argv[1], "N", 0, UINT64_MAX / sizeof(float));
	if (!n) {
		printf("vecadd: n=0: nothing to add\n");
		if (argc > 2)
			write_file(argv[2], "", 0);
		return 0;
	}
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	CUfunction fn = get_kernel(module, "vecadd");
	size_t bytes = n * sizeof(float);
	/* Device memory first: too large an N then fails before the host is filled. */
	CUdeviceptr da = device_memory(bytes), db = device_memory(bytes), dc = device_memory(bytes);
	float *a = host_memory(n, sizeof(*a)), *b = host_memory(n, sizeof(*b)),
	      *c = host_memory(n, sizeof(*c));
	for (uint64_t i = 0; i < n; i++) {
		a[i] = value_a(i);
		b[i] = value_b(i);
	}
	CHECK(MemcpyHtoD(da, a, bytes));
	CHECK(MemcpyHtoD(db, b, bytes));
	CHECK(MemsetD8(dc, 0xff, bytes));
	void *params[] = { &da, &db, &dc, &n };
	launch_1d(fn, n, 256, NULL, params);
	CHECK(CtxSynchronize());
	CHECK(MemcpyDtoH(c, dc, bytes));
	for (uint64_t i = 0; i < n; i++)
		if (c[i] != value_a(i) + value_b(i))
			die("c[%" PRIu64 "] is %g, not %g", i, c[i], value_a(i) + value_b(i));
	if (argc > 2)
		write_file(argv[2], c, bytes);
	printf("vecadd: n=%" PRIu64 " ok\n", n);
	CHECK(MemFree(da));
	CHECK(MemFree(db));
	CHECK(MemFree(dc));
	close_device(module, dev);
	free(a);
	free(b);
	free(c);
	return 0;
}
