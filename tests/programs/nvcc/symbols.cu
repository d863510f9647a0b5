/* Variables of every kind: constant, device, managed, in templates; dynamic shared memory beyond
 * 48 KiB; attributes, occupancy and the errors that go with mistakes. */
#include "program.h"

__constant__ int table[4] = { 1, 2, 3, 4 };
__device__ int counter;
__managed__ int total = 7;
__managed__ float list[100];

/* 1 and a word about which check it is, when something is not as it should be. */
static long count_wrong(bool wrong, const char *what)
{
	if (wrong)
		fprintf(stderr, "symbols: not so: %s\n", what);
	return wrong;
}
#define IS(what) (wrong += count_wrong(!(what), #what))

template <int N> __global__ void scale(int *p, int n)
{
	extern __shared__ int buffer[];
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		buffer[i] = p[i];
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		p[i] = buffer[n - 1 - i] * N + table[i % 4];
	if (threadIdx.x == 0) {
		atomicAdd(&counter, 1);
		total += n;
		list[N] = 0.5f * N;
	}
}

int main()
{
	const int n = 20000;
	std::vector<int> in(n);
	for (int i = 0; i < n; i++)
		in[i] = i;
	int *d = device_copy(in), numbers[4] = { 10, 20, 30, 40 };
	size_t bytes = n * sizeof(int), size;
	void *at;
	long wrong = 0;
	total += 1; /* the host's turn */
	CHECK(cudaMemcpyToSymbol(table, numbers, sizeof(numbers)));
	CHECK(cudaGetSymbolSize(&size, table));
	CHECK(cudaGetSymbolAddress(&at, counter));
	IS(size == sizeof(numbers));
	IS(at);
	scale<3><<<1, 256, bytes>>>(d, n);
	IS(cudaGetLastError() == cudaErrorInvalidValue); /* not without opting in */
	CHECK(cudaFuncSetAttribute(scale<3>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
	cudaFuncAttributes fa;
	CHECK(cudaFuncGetAttributes(&fa, scale<3>));
	IS(fa.maxDynamicSharedSizeBytes == (int)bytes);
	IS(fa.maxThreadsPerBlock == 1024);
	scale<3><<<1, 256, bytes>>>(d, n);
	scale<5><<<1, 2048>>>(d, 10);
	/* CUDA 13 no longer tells a bad shape from other values. */
	IS(cudaGetLastError() == (CUDART_VERSION < 13000 ? cudaErrorInvalidConfiguration : cudaErrorInvalidValue));
	IS(cudaGetLastError() == cudaSuccess);
	std::vector<int> got = host_copy(d, n);
	for (int i = 0; i < n; i++)
		wrong += got[i] != (n - 1 - i) * 3 + numbers[i % 4];
	int c;
	CHECK(cudaMemcpyFromSymbol(&c, counter, sizeof(c)));
	IS(c == 1);
	IS(total == n + 8);
	IS(list[3] == 1.5f);
	int grid, block;
	CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, scale<5>, 0, 0));
	IS(block >= 32 && grid >= 1);
	cudaDeviceProp p;
	CHECK(cudaGetDeviceProperties(&p, 0));
	IS(p.warpSize == 32 && p.major >= 7 && p.maxThreadsPerBlock == 1024 && p.totalGlobalMem);
	cudaPointerAttributes pa;
	CHECK(cudaPointerGetAttributes(&pa, d));
	IS(pa.type == cudaMemoryTypeDevice);
	IS(pa.devicePointer == d);
	IS(cudaMemcpy(nullptr, d, 4, cudaMemcpyDeviceToHost) != cudaSuccess);
	cudaGetLastError();
	IS(!strcmp(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress"));
	return result("symbols", n, wrong);
}
