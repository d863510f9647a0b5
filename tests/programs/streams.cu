/* A pipeline over streams: copies in, kernels and copies out overlap; events order two of them. */
#include "program.h"

__global__ void square(int *p, int n)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		p[i] = p[i] * p[i] + 1;
}

static void count(void *data)
{
	++*(int *)data;
}

int main()
{
	const int parts = 6, n = 2000;
	int *host, *d = device_new<int>(parts * n), called = 0;
	CHECK(cudaDeviceSynchronize()); /* streams that do not block would not wait for its zeros */
	CHECK(cudaMallocHost(&host, parts * n * sizeof(int)));
	for (int i = 0; i < parts * n; i++)
		host[i] = i % 100;
	cudaStream_t s[3];
	for (cudaStream_t &x : s)
		CHECK(cudaStreamCreateWithFlags(&x, cudaStreamNonBlocking));
	for (int i = 0; i < parts; i++) {
		int *at = d + i * n, *from = host + i * n;
		CHECK(cudaMemcpyAsync(at, from, n * 4, cudaMemcpyHostToDevice, s[i % 3]));
		square<<<4, 128, 0, s[i % 3]>>>(at, n);
		CHECK(cudaMemcpyAsync(from, at, n * 4, cudaMemcpyDeviceToHost, s[i % 3]));
		CHECK(cudaLaunchHostFunc(s[0], count, &called));
	}
	cudaEvent_t begin, end;
	CHECK(cudaEventCreate(&begin));
	CHECK(cudaEventCreate(&end));
	CHECK(cudaEventRecord(begin, s[1]));
	CHECK(cudaStreamWaitEvent(s[2], begin, 0));
	CHECK(cudaEventRecord(end, s[2]));
	CHECK(cudaEventSynchronize(end));
	CHECK(cudaDeviceSynchronize());
	float ms = -1;
	CHECK(cudaEventElapsedTime(&ms, begin, end));
	long wrong = (ms < 0) + (called != parts);
	for (int i = 0; i < parts * n; i++)
		wrong += host[i] != (i % 100) * (i % 100) + 1;
	int *late;
	CHECK(cudaMallocAsync(&late, n * 4, s[0]));
	CHECK(cudaMemsetAsync(late, 0, n * 4, s[0]));
	square<<<4, 128, 0, s[0]>>>(late, n);
	CHECK(cudaMemcpyAsync(host, late, n * 4, cudaMemcpyDeviceToHost, s[0]));
	CHECK(cudaFreeAsync(late, s[0]));
	CHECK(cudaStreamSynchronize(s[0]));
	for (int i = 0; i < n; i++)
		wrong += host[i] != 1;
	for (cudaStream_t x : s)
		CHECK(cudaStreamDestroy(x));
	CHECK(cudaFreeHost(host));
	return result("streams", (parts + 1) * n, wrong);
}
