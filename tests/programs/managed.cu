/* Managed memory: a list that the host builds, the device changes and the host walks. */
#include "program.h"

struct item {
	int value;
	item *next;
};

__global__ void change(item *first)
{
	for (item *i = first; i; i = i->next)
		i->value = i->value * 3 + 1;
}

__global__ void fill(int *p, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] += i;
}

int main()
{
	const int n = 50, m = 3000;
	item *first = nullptr;
	for (int i = n; i--;) {
		item *x;
		CHECK(cudaMallocManaged(&x, sizeof(*x)));
		x->value = i;
		x->next = first;
		first = x;
	}
	change<<<1, 1>>>(first);
	CHECK(cudaDeviceSynchronize());
	long wrong = 0, at = 0;
	for (item *i = first, *next; i; i = next, at++) {
		wrong += i->value != at * 3 + 1;
		next = i->next;
		CHECK(cudaFree(i));
	}
	int *p;
	CHECK(cudaMallocManaged(&p, m * sizeof(int)));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < m; i++)
			p[i] = round;
		fill<<<(m + 255) / 256, 256>>>(p, m);
		CHECK(cudaDeviceSynchronize());
		for (int i = 0; i < m; i++)
			wrong += p[i] != round + i;
	}
	return result("managed", n + 3 * m, wrong + (at != n));
}
