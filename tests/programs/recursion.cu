/* Functions that call themselves, and a call through a table. */
#include "program.h"

__host__ __device__ __attribute__((noinline)) static int ackermann(int m, int n)
{
	return m == 0 ? n + 1 : ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

__host__ __device__ __attribute__((noinline)) static int fibonacci(int n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__host__ __device__ __attribute__((noinline)) static int fold(const int *p, int n)
{
	return n == 1 ? p[0] : fold(p, n / 2) + fold(p + n / 2, n - n / 2);
}

typedef int (*unary)(int);
__device__ __attribute__((noinline)) static int twice(int x)
{
	return 2 * x;
}
__device__ __attribute__((noinline)) static int minus(int x)
{
	return -x;
}

__global__ void run(int *out)
{
	int i = threadIdx.x, data[10];
	for (int k = 0; k < 10; k++)
		data[k] = i * k;
	unary table[2] = { twice, minus };
	out[i * 4] = fibonacci(i % 12);
	out[i * 4 + 1] = ackermann(i % 3, i % 4);
	out[i * 4 + 2] = fold(data, 1 + i % 10);
	out[i * 4 + 3] = table[i & 1](i);
}

int main()
{
	const int n = 64;
	int *d = device_new<int>(n * 4);
	run<<<1, n>>>(d);
	std::vector<int> got = host_copy(d, n * 4);
	long wrong = 0;
	for (int i = 0; i < n; i++) {
		int data[10];
		for (int k = 0; k < 10; k++)
			data[k] = i * k;
		wrong += got[i * 4] != fibonacci(i % 12);
		wrong += got[i * 4 + 1] != ackermann(i % 3, i % 4);
		wrong += got[i * 4 + 2] != fold(data, 1 + i % 10);
		wrong += got[i * 4 + 3] != (i & 1 ? -i : 2 * i);
	}
	return result("recursion", n * 4, wrong);
}
