/* The sum of n numbers: a grid-stride loop, a tree in shared memory, one atomic add a block. */
#include "kernel.h"

#define THREADS 256

KERNEL reduce(const int *RESTRICT in, unsigned long n, int *total)
{
	static SHARED int part[THREADS];
	int sum = 0;
	for (unsigned long i = index_x(); i < n; i += (unsigned long)blocks_x() * threads_x())
		sum += in[i];
	part[thread_x()] = sum;
	__syncthreads();
	for (unsigned half = THREADS / 2; half; half /= 2) {
		if (thread_x() < half)
			part[thread_x()] += part[thread_x() + half];
		__syncthreads();
	}
	if (thread_x() == 0)
		__nvvm_atom_add_gen_i(total, part[0]);
}
