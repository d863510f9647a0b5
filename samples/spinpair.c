/* spinpair [ROUNDS]: two kernels on two streams that wait for each other. Whatever stops one from
 * running beside the other, a module load by a tool for instance, would hang it; after a minute it
 * says so and ends. */
#include "common.h"
#include "spinpair.h"

static void wait_for(CUstream stream, const char *name)
{
	time_t start = time(NULL);
	CUresult r;
	while ((r = cu.StreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
		if (time(NULL) - start > 60) {
			fprintf(stderr, "%s: %s has waited for its partner for a minute\n",
				sample_name, name);
			_Exit(1); /* a context with a kernel that never ends cannot be torn down */
		}
		nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
	}
	check(r, "cuStreamQuery");
}

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 1,
		"[ROUNDS]    two kernels hand a number to and fro ROUNDS times (default 1000)");
	int rounds = argc > 1 ? (int)number(argv[1], "ROUNDS", 1, 1 << 30) : 1000;
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	CUfunction ping = get_kernel(module, "ping"), pong = get_kernel(module, "pong");
	CUstream a, b;
	CHECK(StreamCreate(&a, CU_STREAM_NON_BLOCKING));
	CHECK(StreamCreate(&b, CU_STREAM_NON_BLOCKING));
	CUdeviceptr flags = device_memory(2 * sizeof(int));
	CHECK(MemsetD32(flags, 0, 2));
	CHECK(CtxSynchronize());
	void *params[] = { &flags, &rounds };
	CHECK(LaunchKernel(ping, 1, 1, 1, 32, 1, 1, 0, a, params, NULL));
	CHECK(LaunchKernel(pong, 1, 1, 1, 32, 1, 1, 0, b, params, NULL));
	wait_for(a, "ping");
	wait_for(b, "pong");
	int got[2];
	CHECK(MemcpyDtoH(got, flags, sizeof(got)));
	if (got[0] != rounds || got[1] != rounds)
		die("the flags are %d and %d, not %d", got[0], got[1], rounds);
	printf("spinpair: rounds=%d ok\n", rounds);
	CHECK(StreamDestroy(a));
	CHECK(StreamDestroy(b));
	CHECK(MemFree(flags));
	close_device(module, dev);
	return 0;
}
