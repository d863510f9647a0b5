/* transpose [N [OUT]]: an N by N matrix transposed by two kernels, both checked. */
#include "common.h"
#include "transpose.h"

enum { TILE = 32 };

static void run(
	CUfunction fn, const char *name, CUdeviceptr in, CUdeviceptr out, unsigned n, float *host)
{
	size_t bytes = (size_t)n * n * sizeof(float);
	unsigned tiles = (n + TILE - 1) / TILE;
	CHECK(MemsetD8(out, 0xff, bytes));
	void *params[] = { &in, &out, &n };
	CHECK(LaunchKernel(fn, tiles, tiles, 1, TILE, TILE, 1, 0, NULL, params, NULL));
	CHECK(MemcpyDtoH(host, out, bytes));
	for (size_t y = 0; y < n; y++)
		for (size_t x = 0; x < n; x++)
			if (host[y * n + x] != (float)((x * n + y) % 65521))
				die("%s: row %zu, column %zu is %g", name, y, x, host[y * n + x]);
}

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 2, "[N [OUT]]    transposes an N by N matrix of floats (default 256)");
	unsigned n = argc > 1 ? (unsigned)number(argv[1], "N", 1, 32768) : 256;
	size_t count = (size_t)n * n;
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	CUdeviceptr in = device_memory(count * sizeof(float)),
		    out = device_memory(count * sizeof(float));
	float *host = host_memory(count, sizeof(*host));
	for (size_t i = 0; i < count; i++)
		host[i] = (float)(i % 65521);
	CHECK(MemcpyHtoD(in, host, count * sizeof(float)));
	run(get_kernel(module, "transpose_naive"), "transpose_naive", in, out, n, host);
	run(get_kernel(module, "transpose_tiled"), "transpose_tiled", in, out, n, host);
	if (argc > 2)
		write_file(argv[2], host, count * sizeof(float));
	printf("transpose: n=%u ok\n", n);
	CHECK(MemFree(in));
	CHECK(MemFree(out));
	close_device(module, dev);
	free(host);
	return 0;
}
