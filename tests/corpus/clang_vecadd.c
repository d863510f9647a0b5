/* clang: a guarded product and sum */
#include "../../samples/kernel.h"
KERNEL kernel(const float *RESTRICT a, const float *b, float *c, unsigned n)
{
	unsigned long i = index_x();
	if (i < n)
		c[i] = a[i] * b[i] + 1.0f;
}
