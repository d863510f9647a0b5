/* The same work with neighbouring threads on neighbouring floats, and `stride` floats apart. */
#include "kernel.h"

KERNEL unit(const float *RESTRICT in, float *RESTRICT out, unsigned long n)
{
	unsigned long i = index_x();
	if (i < n)
		out[i] = in[i] + 1.0f;
}

KERNEL strided(const float *RESTRICT in, float *RESTRICT out, unsigned long n, unsigned long stride)
{
	unsigned long i = index_x();
	if (i < n)
		out[i * stride] = in[i * stride] + 1.0f;
}
