/* fault [OFFSET]: a kernel that stores out of bounds. The driver reports an illegal address, and so
 * does this program: it ends with status 0 only if the fault was seen. */
#include "common.h"
#include "fault.h"

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 1,
		"[OFFSET]    stores OFFSET ints beyond an array (default 1048576), and expects a "
		"fault");
	int64_t offset = argc > 1 ? (int64_t)number(argv[1], "OFFSET", 0, 1ull << 40) : 1 << 20;
	uint64_t n = 64;
	open_device();
	CUmodule module = load_module(sample_ptx);
	CUdeviceptr out = device_memory(n * sizeof(int));
	void *params[] = { &out, &n, &offset };
	launch_1d(get_kernel(module, "fault"), n, 64, NULL, params);
	CUresult r = cu.CtxSynchronize();
	if (!offset && !r) {
		printf("fault: offset=0 no fault\n");
		return 0;
	}
	if (r != CUDA_ERROR_ILLEGAL_ADDRESS)
		die("the store was not noticed: result %d", r);
	/* The context is unusable from now on. */
	r = cu.MemFree(out);
	if (r != CUDA_ERROR_ILLEGAL_ADDRESS)
		die("the error did not stick: result %d", r);
	printf("fault: illegal address reported\n");
	return 0;
}
