/* x = x * factor + term, for two streams to work on two buffers. */
#include "kernel.h"

KERNEL scale(float *x, unsigned long n, float factor, float term)
{
	unsigned long i = index_x();
	if (i < n)
		x[i] = x[i] * factor + term;
}
