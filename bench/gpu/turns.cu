/* How long a warp that waits for memory takes beside warps that only compute: why programs in kernels that run have others rest (docs/dynamic.md).
 * Nothing of egpu is in it.
 *
 *	nvcc -arch=sm_90 -o turns bench/gpu/turns.cu && ./turns
 *
 * As many threads as fit multiply, 1,000 times a pass. Four times the host has one warp in 16, or each, do something else once, and the
 * warp notes how long that took: 200 loads, each of an address that the one before it gave, by all lanes or by one; or 20,000 steps of arithmetic.
 * Printed: the time of the last of these, over warps.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>

enum work { LOADS, ONE_LANE, ARITHMETIC };
enum { THREADS = 256, WORDS = 1 << 20 };

struct host_words {
	volatile int stop, go;
};

static __device__ unsigned long long now_ns()
{
	unsigned long long t;
	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
	return t;
}

static __device__ unsigned chase(const volatile unsigned *words, unsigned at)
{
	for (int i = 0; i < 200; i++)
		at = words[at % WORDS] * 2654435761u >> 12;
	return at;
}

template <work W> static __device__ unsigned something_else(const unsigned *words, unsigned warp)
{
	unsigned at = warp;
	if (W == LOADS)
		at = chase(words, warp);
	else if (W == ONE_LANE && threadIdx.x % 32 == 0)
		at = chase(words, warp);
	for (int i = 0; W == ARITHMETIC && i < 20000; i++) {
		at = at * 2654435761u + i;
		at ^= at >> 7;
	}
	__syncwarp();
	return at;
}

template <work W>
static __global__ void multiply(host_words *host, const unsigned *words, unsigned long long *took, float *out, unsigned every)
{
	unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
	float x = 1, y = threadIdx.x;
	int seen = 0;
	while (!host->stop) {
		for (int i = 0; i < 1000; i++)
			x = x * 0.999f + y;
		int go = host->go;
		if (go == seen || warp % every)
			continue;
		seen = go;
		unsigned long long begin = now_ns();
		if (something_else<W>(words, warp) == WORDS)
			out[0] = 0;
		if (threadIdx.x % 32 == 0)
			took[warp] = now_ns() - begin;
	}
	out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

static void check(cudaError_t e)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "turns: %s\n", cudaGetErrorString(e));
	exit(1);
}

template <work W> static void measure(const char *what, unsigned every)
{
	int sms, fit;
	host_words *host;
	unsigned *words;
	unsigned long long *took;
	float *out;
	check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
	check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, multiply<W>, THREADS, 0));
	const unsigned blocks = sms * fit, warps = blocks * THREADS / 32;
	std::vector<unsigned> random(WORDS);
	for (unsigned &v : random)
		v = rand();
	check(cudaHostAlloc(&host, sizeof(*host), cudaHostAllocMapped));
	host->stop = host->go = 0;
	check(cudaMalloc(&words, WORDS * sizeof(*words)));
	check(cudaMalloc(&took, warps * sizeof(*took)));
	check(cudaMalloc(&out, blocks * THREADS * sizeof(*out)));
	check(cudaMemcpy(words, random.data(), WORDS * sizeof(*words), cudaMemcpyHostToDevice));
	check(cudaMemset(took, 0, warps * sizeof(*took)));
	multiply<W><<<blocks, THREADS>>>(host, words, took, out, every);
	usleep(500000);
	for (int i = 1; i <= 4; i++) {
		host->go = i;
		usleep(700000);
	}
	host->stop = 1;
	check(cudaDeviceSynchronize());
	std::vector<unsigned long long> all(warps), t;
	check(cudaMemcpy(all.data(), took, warps * sizeof(*took), cudaMemcpyDeviceToHost));
	for (unsigned w = 0; w < warps; w += every)
		t.push_back(all[w]);
	std::sort(t.begin(), t.end());
	printf("%s, %zu of %u warps: median %.2f ms, 99 of 100 in %.2f, all in %.2f\n", what, t.size(), warps, t[t.size() / 2] / 1e6,
		t[t.size() * 99 / 100] / 1e6, t.back() / 1e6);
	check(cudaFree(out));
	check(cudaFree(took));
	check(cudaFree(words));
	check(cudaFreeHost(host));
}

int main()
{
	setvbuf(stdout, NULL, _IONBF, 0);
	measure<ARITHMETIC>("20,000 steps of arithmetic", 16);
	measure<LOADS>("200 loads", 16);
	measure<ONE_LANE>("200 loads by one lane", 16);
	measure<LOADS>("200 loads", 1);
}
