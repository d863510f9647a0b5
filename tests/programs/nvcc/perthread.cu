/* Threads of the host with a default stream each (built with --default-stream per-thread). */
#include "program.h"
#include <thread>

__global__ void work(int *p, int n, int rounds)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	for (int r = 0; r < rounds && i < n; r++)
		p[i] = p[i] * 3 + r;
}

static void run(int id, long *wrong)
{
	const int n = 1000, rounds = 5;
	std::vector<int> v(n), got(n);
	for (int i = 0; i < n; i++)
		v[i] = i + id;
	int *d;
	CHECK(cudaMalloc(&d, n * 4));
	CHECK(cudaMemcpyAsync(d, v.data(), n * 4, cudaMemcpyHostToDevice));
	work<<<8, 128>>>(d, n, rounds);
	CHECK(cudaMemcpyAsync(got.data(), d, n * 4, cudaMemcpyDeviceToHost));
	CHECK(cudaStreamSynchronize(0));
	for (int i = 0; i < n; i++) {
		for (int r = 0; r < rounds; r++)
			v[i] = v[i] * 3 + r;
		*wrong += got[i] != v[i];
	}
	CHECK(cudaFree(d));
}

int main()
{
	long wrong[4] = {};
	std::thread t[4];
	for (int i = 0; i < 4; i++)
		t[i] = std::thread(run, i, &wrong[i]);
	for (std::thread &x : t)
		x.join();
	return result("perthread", 4000, wrong[0] + wrong[1] + wrong[2] + wrong[3]);
}
