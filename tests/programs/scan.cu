/* Prefix sums: blocks scan their parts, one block scans the parts' sums, all add them. */
#include "program.h"

#define BLOCK 256

__device__ int scan_block(int v, int *shared)
{
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	for (int by = 1; by < 32; by *= 2) {
		int other = __shfl_up_sync(0xffffffffu, v, by);
		if (lane >= by)
			v += other;
	}
	if (lane == 31)
		shared[warp] = v;
	__syncthreads();
	if (threadIdx.x == 0)
		for (int i = 1; i < BLOCK / 32; i++)
			shared[i] += shared[i - 1];
	__syncthreads();
	return warp ? v + shared[warp - 1] : v;
}

__global__ void scan(const int *in, int *out, int *sums, int n)
{
	__shared__ int shared[BLOCK / 32];
	int i = blockIdx.x * BLOCK + threadIdx.x;
	int v = scan_block(i < n ? in[i] : 0, shared);
	if (i < n)
		out[i] = v;
	if (sums && threadIdx.x == BLOCK - 1)
		sums[blockIdx.x] = v;
}

__global__ void add(int *out, const int *sums, int n)
{
	int i = blockIdx.x * BLOCK + threadIdx.x;
	if (i < n && blockIdx.x)
		out[i] += sums[blockIdx.x - 1];
}

int main()
{
	unsigned seed = 2;
	std::vector<int> in(50001);
	for (int &v : in)
		v = (int)(next_random(&seed) % 100);
	int n = (int)in.size(), blocks = (n + BLOCK - 1) / BLOCK;
	int *d = device_copy(in), *out = device_new<int>(n), *sums = device_new<int>(blocks);
	scan<<<blocks, BLOCK>>>(d, out, sums, n);
	scan<<<1, BLOCK>>>(sums, sums, nullptr, blocks);
	add<<<blocks, BLOCK>>>(out, sums, n);
	std::vector<int> got = host_copy(out, n);
	long wrong = 0;
	int sum = 0;
	for (int i = 0; i < n; i++)
		wrong += got[i] != (sum += in[i]);
	return result("scan", n, wrong);
}
