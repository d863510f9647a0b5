/* c = a + b, one thread an element: two loads and one store for each of n elements. */
#include "kernel.h"

KERNEL vecadd(const float *RESTRICT a, const float *RESTRICT b, float *RESTRICT c, unsigned long n)
{
	unsigned long i = index_x();
	if (i < n)
		c[i] = a[i] + b[i];
}
