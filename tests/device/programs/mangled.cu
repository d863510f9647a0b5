// Templated kernels in a namespace: two instantiations of one template, mangled names.
#include "common.h"

namespace lin {
template <typename T, int K> __global__ void axpy(T *y, const T *x, T a, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) {
		T t = x[i];
#pragma unroll
		for (int k = 0; k < K; k++)
			t = t * a + T(k);
		y[i] += t;
	}
}
} // namespace lin

template <typename T, int K> static void run(const char *name, int n, int launches)
{
	T *x, *y, *host = (T *)malloc(n * sizeof(T));
	CHECK(cudaMalloc(&x, n * sizeof(T)));
	CHECK(cudaMalloc(&y, n * sizeof(T)));
	for (int i = 0; i < n; i++)
		host[i] = T((i * 2654435761u) % 1000) / T(7);
	CHECK(cudaMemcpy(x, host, n * sizeof(T), cudaMemcpyHostToDevice));
	CHECK(cudaMemset(y, 0, n * sizeof(T)));
	for (int l = 0; l < launches; l++)
		lin::axpy<T, K><<<(n + 127) / 128, 128>>>(y, x, T(1.1), n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, y, n * sizeof(T), cudaMemcpyDeviceToHost));
	printf("%s %016llx\n", name, (unsigned long long)hash(host, n * sizeof(T)));
	expect(name, "load", "global", 2ull * n * launches, 2ull * n * launches * sizeof(T));
	expect(name, "store", "global", 1ull * n * launches, 1ull * n * launches * sizeof(T));
}

int main()
{
	run<float, 3>("axpyIfLi3E", 100003, 3);
	run<double, 5>("axpyIdLi5E", 77777, 2);
	return 0;
}
