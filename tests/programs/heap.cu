/* malloc and free on the device: each thread builds a list, sums and frees it. */
#include "program.h"

struct cell {
	int value;
	cell *next;
};

__global__ void lists(int *out)
{
	int n = threadIdx.x % 7 + 1, sum = 0;
	cell *first = nullptr;
	for (int i = 0; i < n; i++) {
		cell *c = (cell *)malloc(sizeof(cell));
		if (!c)
			return;
		c->value = (int)threadIdx.x + i;
		c->next = first;
		first = c;
	}
	while (first) {
		cell *next = first->next;
		sum += first->value;
		free(first);
		first = next;
	}
	out[threadIdx.x] = sum;
}

int main()
{
	const int n = 96;
	int *d = device_new<int>(n);
	lists<<<1, n>>>(d);
	std::vector<int> got = host_copy(d, n);
	long wrong = 0;
	for (int i = 0; i < n; i++) {
		int k = i % 7 + 1;
		wrong += got[i] != k * i + k * (k - 1) / 2;
	}
	return result("heap", n, wrong);
}
