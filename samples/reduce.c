/* reduce [N]: the sum of N numbers, through shared memory and barriers, checked. */
#include "common.h"
#include "reduce.h"

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 1, "[N]    adds up N numbers (default 1000003)");
	uint64_t n = argc > 1 ? number(argv[1], "N", 0, 1ull << 40) : 1000003;
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	int *in = host_memory(n, sizeof(*in)), sum = 0, want = 0;
	for (uint64_t i = 0; i < n; i++) {
		in[i] = (int)(i % 201) - 100;
		want += in[i];
	}
	CUdeviceptr din = device_memory(n ? n * sizeof(int) : 1),
		    total = device_memory(sizeof(int));
	if (n)
		CHECK(MemcpyHtoD(din, in, n * sizeof(int)));
	CHECK(MemsetD32(total, 0, 1));
	uint64_t blocks = (n + 2047) / 2048;
	void *params[] = { &din, &n, &total };
	CHECK(LaunchKernel(get_kernel(module, "reduce"),
		blocks < 1      ? 1
		: blocks > 1024 ? 1024
				: (unsigned)blocks,
		1, 1, 256, 1, 1, 0, NULL, params, NULL));
	CHECK(MemcpyDtoH(&sum, total, sizeof(sum)));
	if (sum != want)
		die("the sum is %d, not %d", sum, want);
	printf("reduce: n=%" PRIu64 " sum=%d ok\n", n, sum);
	CHECK(MemFree(din));
	CHECK(MemFree(total));
	close_device(module, dev);
	free(in);
	return 0;
}
