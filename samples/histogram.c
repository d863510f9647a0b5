/* histogram [N]: how often each byte occurs among N, by atomics, checked. */
#include "common.h"
#include "histogram.h"

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 1, "[N]    counts the values of N bytes (default 1000003)");
	uint64_t n = argc > 1 ? number(argv[1], "N", 0, 1ull << 40) : 1000003;
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	unsigned char *in = host_memory(n, 1);
	int want[256] = { 0 }, got[256];
	uint32_t random = 12345;
	for (uint64_t i = 0; i < n; i++) {
		random = random * 1664525u + 1013904223u;
		in[i] = (unsigned char)(random >> 24 &
					(random >> 16)); /* low values are frequent */
		want[in[i]]++;
	}
	CUdeviceptr din = device_memory(n ? n : 1), bins = device_memory(sizeof(got));
	if (n)
		CHECK(MemcpyHtoD(din, in, n));
	CHECK(MemsetD32(bins, 0, 256));
	uint64_t blocks = (n + 4095) / 4096;
	void *params[] = { &din, &n, &bins };
	CHECK(LaunchKernel(get_kernel(module, "histogram"),
		blocks < 1      ? 1
		: blocks > 1024 ? 1024
				: (unsigned)blocks,
		1, 1, 256, 1, 1, 0, NULL, params, NULL));
	CHECK(MemcpyDtoH(got, bins, sizeof(got)));
	for (int i = 0; i < 256; i++)
		if (got[i] != want[i])
			die("bin %d is %d, not %d", i, got[i], want[i]);
	printf("histogram: n=%" PRIu64 " ok\n", n);
	CHECK(MemFree(din));
	CHECK(MemFree(bins));
	close_device(module, dev);
	free(in);
	return 0;
}
