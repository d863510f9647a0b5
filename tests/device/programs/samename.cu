// Loads the fatbins of samename_a.cu and samename_b.cu (argv[1], argv[2]) through the driver API.
#include "common.h"
#include <cuda.h>

#define DRV(call)                                                                       \
	do {                                                                            \
		CUresult err_ = (call);                                                 \
		if (err_ != CUDA_SUCCESS) {                                             \
			fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__,     \
				#call, (int)err_);                                      \
			exit(1);                                                        \
		}                                                                       \
	} while (0)

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	const int n = 12345;
	CUdevice dev;
	CUcontext ctx;
	CUmodule ma, mb;
	CUfunction fa, fb;
	DRV(cuInit(0));
	DRV(cuDeviceGet(&dev, 0));
	DRV(cuDevicePrimaryCtxRetain(&ctx, dev));
	DRV(cuCtxSetCurrent(ctx));
	DRV(cuModuleLoad(&ma, argv[1]));
	DRV(cuModuleLoad(&mb, argv[2]));
	DRV(cuModuleGetFunction(&fa, ma, "work"));
	DRV(cuModuleGetFunction(&fb, mb, "work"));
	CUdeviceptr data, more, scale;
	size_t bytes;
	int *host = (int *)malloc(n * sizeof(int)), count = n;
	for (int i = 0; i < n; i++)
		host[i] = i;
	DRV(cuMemAlloc(&data, n * sizeof(int)));
	DRV(cuMemAlloc(&more, n * sizeof(int)));
	DRV(cuMemcpyHtoD(data, host, n * sizeof(int)));
	DRV(cuMemcpyHtoD(more, host, n * sizeof(int)));
	void *pa[] = { &data, &count }, *pb[] = { &data, &more, &count };
	DRV(cuLaunchKernel(fa, (n + 63) / 64, 1, 1, 64, 1, 1, 0, 0, pa, 0));
	DRV(cuLaunchKernel(fb, (n + 63) / 64, 1, 1, 64, 1, 1, 0, 0, pb, 0));
	/* The host changes one module's variable; the other's of the same name stays. */
	int ten = 10;
	DRV(cuModuleGetGlobal(&scale, &bytes, ma, "scale"));
	DRV(cuMemcpyHtoD(scale, &ten, sizeof(ten)));
	DRV(cuLaunchKernel(fa, (n + 63) / 64, 1, 1, 64, 1, 1, 0, 0, pa, 0));
	DRV(cuLaunchKernel(fb, (n + 63) / 64, 1, 1, 64, 1, 1, 0, 0, pb, 0));
	DRV(cuMemcpyDtoH(host, data, n * sizeof(int)));
	printf("work %016llx\n", (unsigned long long)hash(host, n * sizeof(int)));
	uint64_t a = 2ull * n, b = 2ull * n;
	/* data, scale by a; data, more, scale by b */
	expect("work", "load", "global", 2 * a + 3 * b, 8 * a + 12 * b);
	expect("work", "store", "global", a + b, 4 * (a + b));
	return 0;
}
