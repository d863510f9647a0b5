/* Radix sort, one bit a pass: a block counts, ranks by ballots and scatters. Stable, so it sorts. */
#include "program.h"
#include <algorithm>

#define BLOCK 128

__global__ void count_zeros(const unsigned *in, int n, int bit, int *zeros)
{
	int i = blockIdx.x * BLOCK + threadIdx.x;
	unsigned b = __ballot_sync(0xffffffffu, i < n && !(in[i] >> bit & 1));
	if (threadIdx.x % 32 == 0)
		atomicAdd(&zeros[blockIdx.x], __popc(b));
}

__global__ void offsets(const int *zeros, int *zero_at, int *one_at, int blocks, int n)
{
	int z = 0, o = 0, all = 0;
	for (int i = 0; i < blocks; i++)
		all += zeros[i];
	for (int i = 0; i < blocks; i++) {
		int in_block = min(BLOCK, n - i * BLOCK);
		zero_at[i] = z;
		one_at[i] = all + o;
		z += zeros[i];
		o += in_block - zeros[i];
	}
}

__global__ void scatter(const unsigned *in, unsigned *out, int n, int bit, const int *zero_at,
	const int *one_at)
{
	__shared__ int zeros_of_warp[BLOCK / 32];
	int i = blockIdx.x * BLOCK + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	bool here = i < n;
	unsigned v = here ? in[i] : ~0u;
	bool zero = here && !(v >> bit & 1);
	unsigned b = __ballot_sync(0xffffffffu, zero);
	if (lane == 0)
		zeros_of_warp[warp] = __popc(b);
	__syncthreads();
	int before = __popc(b & ((1u << lane) - 1));
	for (int w = 0; w < warp; w++)
		before += zeros_of_warp[w];
	if (here)
		out[zero ? zero_at[blockIdx.x] + before
			 : one_at[blockIdx.x] + (int)threadIdx.x - before] = v;
}

int main()
{
	unsigned seed = 3;
	std::vector<unsigned> in(5000);
	for (unsigned &v : in)
		v = next_random(&seed) & 0xffff;
	int n = (int)in.size(), blocks = (n + BLOCK - 1) / BLOCK;
	unsigned *a = device_copy(in), *b = device_new<unsigned>(n);
	int *zeros = device_new<int>(blocks), *zero_at = device_new<int>(blocks),
	    *one_at = device_new<int>(blocks);
	for (int bit = 0; bit < 16; bit++) {
		CHECK(cudaMemset(zeros, 0, blocks * sizeof(int)));
		count_zeros<<<blocks, BLOCK>>>(a, n, bit, zeros);
		offsets<<<1, 1>>>(zeros, zero_at, one_at, blocks, n);
		scatter<<<blocks, BLOCK>>>(a, b, n, bit, zero_at, one_at);
		std::swap(a, b);
	}
	std::vector<unsigned> got = host_copy(a, n);
	std::sort(in.begin(), in.end());
	long wrong = 0;
	for (int i = 0; i < n; i++)
		wrong += got[i] != in[i];
	return result("radixsort", n, wrong);
}
