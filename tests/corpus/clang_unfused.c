/* clang: products and sums kept apart */
// flags: -ffp-contract=off
#include "../../samples/kernel.h"
KERNEL kernel(float *a, double *b, int n)
{
	float s = 0;
	for (int k = 0; k < n; k++)
		s += a[k] * a[k + 1];
	a[0] = s;
	b[0] = b[1] * b[2] - b[3];
}
