// Dynamic shared memory above 48 KiB, allowed by an attribute that the host sets on the original.
#include "common.h"

__global__ void reverse(int *data, int n)
{
	extern __shared__ int tile[];
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		tile[i] = data[blockIdx.x * n + i];
	__syncthreads();
	for (int i = threadIdx.x; i < n; i += blockDim.x)
		data[blockIdx.x * n + i] = tile[n - 1 - i] + int(blockIdx.x);
}

int main()
{
	const int n = 24576, blocks = 20; /* 96 KiB a block */
	size_t bytes = size_t(n) * blocks * sizeof(int);
	int *data, *host = (int *)malloc(bytes);
	for (int i = 0; i < n * blocks; i++)
		host[i] = i * 7;
	CHECK(cudaMalloc(&data, bytes));
	CHECK(cudaMemcpy(data, host, bytes, cudaMemcpyHostToDevice));
	CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, n * 4));
	reverse<<<blocks, 512, n * 4>>>(data, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, data, bytes, cudaMemcpyDeviceToHost));
	printf("reverse %016llx\n", (unsigned long long)hash(host, bytes));
	uint64_t each = uint64_t(n) * blocks;
	expect("reverse", "load", "global", each, 4 * each);
	expect("reverse", "store", "global", each, 4 * each);
	expect("reverse", "load", "shared", each, 4 * each);
	expect("reverse", "store", "shared", each, 4 * each);
	return 0;
}
