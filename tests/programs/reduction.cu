/* The sum of integers: shuffles in a warp, shared memory in a block, one atomic add a block. */
#include "program.h"

__global__ void sum(const int *in, int n, int *total)
{
	__shared__ int part[32];
	int v = 0;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		v += in[i];
	for (int by = 16; by; by /= 2)
		v += __shfl_down_sync(0xffffffffu, v, by);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = v;
	__syncthreads();
	if (threadIdx.x < 32) {
		v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
		for (int by = 16; by; by /= 2)
			v += __shfl_down_sync(0xffffffffu, v, by);
		if (threadIdx.x == 0)
			atomicAdd(total, v);
	}
}

int main()
{
	unsigned seed = 1;
	std::vector<int> in(100003);
	int want = 0;
	for (int &v : in)
		want += v = (int)(next_random(&seed) % 2001) - 1000;
	int *d = device_copy(in), *total = device_new<int>(1);
	sum<<<24, 256>>>(d, (int)in.size(), total);
	return result("reduction", (long)in.size(), host_copy(total, 1)[0] != want);
}
