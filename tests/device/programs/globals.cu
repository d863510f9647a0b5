// __device__ and __constant__ variables that the host changes between launches, and one that only the device
// changes: a variant must see and leave the same bytes as the original would.
#include "common.h"

__device__ int bias;
__device__ unsigned long long total;
__constant__ float coef[4];
__device__ float table[256];
static __device__ int hidden[4] = { 3, 1, 4, 1 };

__global__ void poly(float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	float x = float(i % 97) * 0.25f;
	float v = coef[0] + x * (coef[1] + x * (coef[2] + x * coef[3]));
	out[i] = v + float(bias + hidden[i & 3]) + table[i & 255];
	atomicAdd(&total, 1ull);
}

__global__ void fill(float base)
{
	table[threadIdx.x] = base + float(threadIdx.x);
}

int main()
{
	const int n = 50001;
	float *out, *host = (float *)malloc(n * sizeof(float));
	CHECK(cudaMalloc(&out, n * sizeof(float)));
	for (int round = 0; round < 5; round++) {
		float c[4] = { 1.0f + round, 0.5f, -0.25f * round, 0.125f };
		int b = 10 * round;
		CHECK(cudaMemcpyToSymbol(coef, c, sizeof(c)));
		CHECK(cudaMemcpyToSymbol(bias, &b, sizeof(b)));
		fill<<<1, 256>>>(float(round));
		poly<<<(n + 255) / 256, 256>>>(out, n);
		CHECK(cudaGetLastError());
		CHECK(cudaMemcpy(host, out, n * sizeof(float), cudaMemcpyDeviceToHost));
		printf("round %d %016llx\n", round, (unsigned long long)hash(host, n * sizeof(float)));
	}
	unsigned long long t;
	CHECK(cudaMemcpyFromSymbol(&t, total, sizeof(t)));
	printf("total %llu\n", t);
	expect("poly", "store", "global", 5ull * n, 20ull * n);
	expect("poly", "atomic", "global", 5ull * n, 40ull * n);
	expect("fill", "store", "global", 5ull * 256, 20ull * 256);
	return 0;
}
