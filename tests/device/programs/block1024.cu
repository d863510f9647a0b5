// A 1,024-thread block with __launch_bounds__ and a kernel heavy in registers: the variant must keep the launch limit.
#include "common.h"

__global__ void __launch_bounds__(1024) heavy(const float *in, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float acc[24];
#pragma unroll
	for (int k = 0; k < 24; k++)
		acc[k] = in[(i + k * 1024) % n];
#pragma unroll 1
	for (int r = 0; r < 50; r++)
#pragma unroll
		for (int k = 0; k < 24; k++)
			acc[k] = acc[k] * 0.999f + acc[(k + 7) % 24] * 0.001f;
	float s = 0;
#pragma unroll
	for (int k = 0; k < 24; k++)
		s += acc[k];
	out[i] = s;
}

// No launch bounds, yet launched with 1,024 threads.
__global__ void unbounded(const float *in, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	float acc[40];
#pragma unroll
	for (int k = 0; k < 40; k++)
		acc[k] = in[(i + k * 512) % n];
#pragma unroll 1
	for (int r = 0; r < 20; r++)
#pragma unroll
		for (int k = 0; k < 40; k++)
			acc[k] = acc[k] * 0.99f + acc[(k + 11) % 40] * 0.01f;
	float s = 0;
#pragma unroll
	for (int k = 0; k < 40; k++)
		s += acc[k];
	out[i] = s;
}

int main()
{
	const int blocks = 64, n = blocks * 1024;
	float *in, *out, *host = (float *)malloc(n * sizeof(float));
	for (int i = 0; i < n; i++)
		host[i] = float((i * 2654435761u) >> 20) / 4096.0f;
	CHECK(cudaMalloc(&in, n * sizeof(float)));
	CHECK(cudaMalloc(&out, n * sizeof(float)));
	CHECK(cudaMemcpy(in, host, n * sizeof(float), cudaMemcpyHostToDevice));
	heavy<<<blocks, 1024>>>(in, out, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, out, n * sizeof(float), cudaMemcpyDeviceToHost));
	printf("heavy %016llx\n", (unsigned long long)hash(host, n * sizeof(float)));
	cudaFuncAttributes attr;
	CHECK(cudaFuncGetAttributes(&attr, unbounded));
	int threads = attr.maxThreadsPerBlock >= 1024 ? 1024 : 512;
	unbounded<<<n / threads, threads>>>(in, out, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, out, n * sizeof(float), cudaMemcpyDeviceToHost));
	printf("unbounded %016llx\n", (unsigned long long)hash(host, n * sizeof(float)));
	expect("heavy", "load", "global", 24ull * n, 96ull * n);
	expect("heavy", "store", "global", n, 4ull * n);
	expect("unbounded", "load", "global", 40ull * n, 160ull * n);
	expect("unbounded", "store", "global", n, 4ull * n);
	return 0;
}
