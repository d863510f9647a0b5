/* A histogram of bytes, counted in shared memory first. */
#include "kernel.h"

#define BINS 256u

KERNEL histogram(const unsigned char *RESTRICT in, unsigned long n, int *bins)
{
	static SHARED int local[BINS];
	for (unsigned i = thread_x(); i < BINS; i += threads_x())
		local[i] = 0;
	__syncthreads();
	for (unsigned long i = index_x(); i < n; i += (unsigned long)blocks_x() * threads_x())
		__nvvm_atom_add_gen_i(&local[in[i]], 1);
	__syncthreads();
	for (unsigned i = thread_x(); i < BINS; i += threads_x())
		if (local[i])
			__nvvm_atom_add_gen_i(&bins[i], local[i]);
}
