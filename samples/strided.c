/* strided N STRIDE [OUT]: the same sums with neighbouring threads one float apart (kernel unit) and
 * STRIDE floats apart (kernel strided). With 32 lanes 8 or more floats apart, each lane is in a
 * 32-byte sector of its own: 32 sectors a request where the unit stride needs 4. */
#include "common.h"
#include "strided.h"

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 3,
		"[N [STRIDE [OUT]]]    adds 1 to N floats, adjacent and STRIDE apart (default "
		"32768 and 32)");
	uint64_t n = argc > 1 ? number(argv[1], "N", 1, 1ull << 40) : 32768;
	uint64_t stride = argc > 2 ? number(argv[2], "STRIDE", 1, 1ull << 20) : 32;
	uint64_t span = (n - 1) * stride + 1;
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	CUfunction unit = get_kernel(module, "unit"), strided = get_kernel(module, "strided");
	size_t bytes = span * sizeof(float);
	CUdeviceptr din = device_memory(bytes), dout = device_memory(bytes);
	float *in = host_memory(span, sizeof(*in)), *out = host_memory(span, sizeof(*out));
	for (uint64_t i = 0; i < span; i++)
		in[i] = (float)(i % 4093);
	CHECK(MemcpyHtoD(din, in, bytes));

	CHECK(MemsetD8(dout, 0, bytes));
	launch_1d(unit, n, 256, NULL, (void *[]){ &din, &dout, &n });
	CHECK(MemcpyDtoH(out, dout, bytes));
	for (uint64_t i = 0; i < span; i++)
		if (out[i] != (i < n ? in[i] + 1.0f : 0.0f))
			die("unit: element %" PRIu64 " is %g", i, out[i]);

	CHECK(MemsetD8(dout, 0, bytes));
	launch_1d(strided, n, 256, NULL, (void *[]){ &din, &dout, &n, &stride });
	CHECK(MemcpyDtoH(out, dout, bytes));
	for (uint64_t i = 0; i < span; i++)
		if (out[i] != (i % stride ? 0.0f : in[i] + 1.0f))
			die("strided: element %" PRIu64 " is %g", i, out[i]);

	if (argc > 3)
		write_file(argv[3], out, bytes);
	printf("strided: n=%" PRIu64 " stride=%" PRIu64 " ok\n", n, stride);
	CHECK(MemFree(din));
	CHECK(MemFree(dout));
	close_device(module, dev);
	free(in);
	free(out);
	return 0;
}
