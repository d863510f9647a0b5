// Two kernels that wait for each other: neither ends unless both run. Loaded beforehand, as such a program must.
#include "common.h"

__device__ volatile int ping_flag, pong_flag;

__global__ void ping(int *out, int rounds)
{
	for (int r = 1; r <= rounds; r++) {
		ping_flag = r;
		while (pong_flag < r)
			;
	}
	out[0] = rounds;
}

__global__ void pong(int *out, int rounds)
{
	for (int r = 1; r <= rounds; r++) {
		while (ping_flag < r)
			;
		pong_flag = r;
	}
	out[1] = rounds;
}

int main()
{
	cudaFuncAttributes attr;
	CHECK(cudaFuncGetAttributes(&attr, ping));
	CHECK(cudaFuncGetAttributes(&attr, pong));
	int *out, host[2] = { 0, 0 };
	CHECK(cudaMalloc(&out, sizeof(host)));
	cudaStream_t a, b;
	CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
	for (int pass = 0; pass < 3; pass++) {
		int zero = 0;
		CHECK(cudaMemcpyToSymbol(ping_flag, &zero, sizeof(zero)));
		CHECK(cudaMemcpyToSymbol(pong_flag, &zero, sizeof(zero)));
		CHECK(cudaDeviceSynchronize());
		ping<<<1, 1, 0, a>>>(out, 1000);
		pong<<<1, 1, 0, b>>>(out, 1000);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
		printf("pass %d: %d %d\n", pass, host[0], host[1]);
	}
	expect("ping", "store", "global", 3 * 1001, 4 * 3 * 1001);
	expect("pong", "store", "global", 3 * 1001, 4 * 3 * 1001);
	return 0;
}
