/* streams [N [ROUNDS]]: two streams that work on two buffers, with an event between them. */
#include "common.h"
#include "streams.h"

int main(int argc, char **argv)
{
	usage(argc, argv, 0, 2,
		"[N [ROUNDS]]    two streams of ROUNDS kernels over N floats each (default 4096 "
		"and 20)");
	uint64_t n = argc > 1 ? number(argv[1], "N", 1, 1ull << 30) : 4096;
	unsigned rounds = argc > 2 ? (unsigned)number(argv[2], "ROUNDS", 1, 100000) : 20;
	CUdevice dev = open_device();
	CUmodule module = load_module(sample_ptx);
	CUfunction scale = get_kernel(module, "scale");
	size_t bytes = n * sizeof(float);
	CUstream stream[2];
	CUdeviceptr buffer[2];
	float *host[2];
	CUevent begin, end;
	CHECK(EventCreate(&begin, CU_EVENT_DEFAULT));
	CHECK(EventCreate(&end, CU_EVENT_DEFAULT));
	for (int s = 0; s < 2; s++) {
		CHECK(StreamCreate(&stream[s], CU_STREAM_NON_BLOCKING));
		buffer[s] = device_memory(bytes);
		CHECK(MemHostAlloc((void **)&host[s], bytes, 0));
		for (uint64_t i = 0; i < n; i++)
			host[s][i] = (float)(i % 7);
		CHECK(MemcpyHtoDAsync(buffer[s], host[s], bytes, stream[s]));
	}
	/* x = x / 2 + 1 tends to 2 from everywhere; the second stream starts with -x + 1 first. */
	float half = 0.5f, one = 1.0f, minus = -1.0f;
	CHECK(EventRecord(begin, stream[0]));
	launch_1d(scale, n, 128, stream[1], (void *[]){ &buffer[1], &n, &minus, &one });
	for (unsigned r = 0; r < rounds; r++)
		for (int s = 0; s < 2; s++)
			launch_1d(scale, n, 128, stream[s],
				(void *[]){ &buffer[s], &n, &half, &one });
	CHECK(MemcpyDtoHAsync(host[1], buffer[1], bytes, stream[1]));
	CHECK(EventRecord(end, stream[1]));
	CHECK(StreamWaitEvent(stream[0], end, 0));
	CHECK(MemcpyDtoHAsync(host[0], buffer[0], bytes, stream[0]));
	CHECK(StreamSynchronize(stream[0]));
	float ms;
	CHECK(EventElapsedTime(&ms, begin, end));
	if (ms < 0)
		die("time ran backwards: %g ms", ms);
	for (int s = 0; s < 2; s++)
		for (uint64_t i = 0; i < n; i++) {
			float x = (float)(i % 7);
			if (s)
				x = 1.0f - x;
			for (unsigned r = 0; r < rounds; r++)
				x = x * 0.5f +
				    1.0f; /* exact or rounded alike: a product by 0.5 is exact */
			if (host[s][i] != x)
				die("stream %d: element %" PRIu64 " is %.9g, not %.9g", s, i,
					host[s][i], x);
		}
	printf("streams: n=%" PRIu64 " rounds=%u ok\n", n, rounds);
	for (int s = 0; s < 2; s++) {
		CHECK(StreamDestroy(stream[s]));
		CHECK(MemFree(buffer[s]));
		CHECK(MemFreeHost(host[s]));
	}
	CHECK(EventDestroy(begin));
	CHECK(EventDestroy(end));
	close_device(module, dev);
	return 0;
}
