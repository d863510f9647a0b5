/* Merge sort: each thread merges two sorted runs of the pass; runs double. */
#include "program.h"
#include <algorithm>

__global__ void merge(const int *in, int *out, int n, int run)
{
	int first = (blockIdx.x * blockDim.x + threadIdx.x) * 2 * run;
	if (first >= n)
		return;
	int a = first, a_end = min(first + run, n), b = a_end, b_end = min(first + 2 * run, n);
	for (int i = first; i < b_end; i++)
		out[i] = a < a_end && (b == b_end || in[a] <= in[b]) ? in[a++] : in[b++];
}

int main()
{
	unsigned seed = 4;
	std::vector<int> in(3000);
	for (int &v : in)
		v = (int)next_random(&seed) - (1 << 23);
	int n = (int)in.size(), *a = device_copy(in), *b = device_new<int>(n);
	for (int run = 1; run < n; run *= 2, std::swap(a, b)) {
		int threads = (n + 2 * run - 1) / (2 * run);
		merge<<<(threads + 63) / 64, 64>>>(a, b, n, run);
	}
	std::vector<int> got = host_copy(a, n);
	std::sort(in.begin(), in.end());
	long wrong = 0;
	for (int i = 0; i < n; i++)
		wrong += got[i] != in[i];
	return result("mergesort", n, wrong);
}
