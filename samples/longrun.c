/* longrun [MS]: one kernel that runs until the host tells it to stop, after MS milliseconds. */
#include "common.h"
#include "longrun.h"

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 1,
		"[MS]    one kernel that the host ends after MS milliseconds (default 500)");
	unsigned ms = argc > 1 ? (unsigned)number(argv[1], "MS", 0, 3600000) : 500;
	enum { THREADS = 64 };
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	CUfunction fn = get_kernel(module, "longrun");
	volatile int *stop;
	volatile uint64_t *passes;
	CUdeviceptr dstop, dpasses;
	CHECK(MemHostAlloc((void **)&stop, sizeof(*stop), CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(MemHostAlloc((void **)&passes, THREADS * sizeof(*passes), CU_MEMHOSTALLOC_DEVICEMAP));
	CHECK(MemHostGetDevicePointer(&dstop, (void *)stop, 0));
	CHECK(MemHostGetDevicePointer(&dpasses, (void *)passes, 0));
	*stop = 0;
	memset((void *)passes, 0, THREADS * sizeof(*passes));
	CUstream stream;
	CHECK(StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	void *params[] = { &dstop, &dpasses };
	CHECK(LaunchKernel(fn, 1, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
	/* The kernel is alive: its counts still grow. A slow machine gets the time it needs. */
	for (int i = 0; i < 1000 && !passes[0]; i++)
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	if (cu.StreamQuery(stream) != CUDA_ERROR_NOT_READY)
		die("the kernel ended by itself");
	*stop = 1;
	CHECK(StreamSynchronize(stream));
	for (int i = 0; i < THREADS; i++)
		if (!passes[i])
			die("thread %d did not run", i);
	printf("longrun: ms=%u ok\n", ms);
	CHECK(StreamDestroy(stream));
	CHECK(MemFreeHost((void *)stop));
	CHECK(MemFreeHost((void *)passes));
	close_device(module, dev);
	return 0;
}
