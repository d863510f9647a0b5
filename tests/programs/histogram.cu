/* A histogram in shared memory, merged with atomics. */
#include "program.h"

__global__ void histogram(const unsigned char *in, int n, unsigned *bins)
{
	__shared__ unsigned mine[256];
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		mine[i] = 0;
	__syncthreads();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		atomicAdd(&mine[in[i]], 1u);
	__syncthreads();
	for (int i = threadIdx.x; i < 256; i += blockDim.x)
		atomicAdd(&bins[i], mine[i]);
}

int main()
{
	unsigned seed = 5;
	std::vector<unsigned char> in(40000);
	std::vector<unsigned> want(256);
	for (unsigned char &v : in)
		want[v = (unsigned char)(next_random(&seed) * next_random(&seed) >> 9)]++;
	unsigned char *d = device_copy(in);
	unsigned *bins = device_new<unsigned>(256);
	histogram<<<8, 128>>>(d, (int)in.size(), bins);
	std::vector<unsigned> got = host_copy(bins, 256);
	long wrong = 0;
	for (int i = 0; i < 256; i++)
		wrong += got[i] != want[i];
	return result("histogram", 256, wrong);
}
