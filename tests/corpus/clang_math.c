/* clang: arithmetic */
#include "../../samples/kernel.h"
KERNEL kernel(float *a, double *b, long *c, short *d)
{
	unsigned i = thread_x();
	a[i] = __builtin_fabsf(a[i]) + __nvvm_sqrt_rn_f(a[i]) + __nvvm_ex2_approx_f(a[i]) + (float)b[i] / a[i + 1];
	b[i] = __builtin_fma(b[i], b[i + 1], 2.0) + (double)c[i];
	c[i] = c[i] / (c[i + 1] | 1) + c[i] % 7 + __builtin_popcountl(c[i]) + __builtin_clzl(c[i] | 1) + (long)a[i];
	d[i] = (short)(d[i] * d[i + 1]);
}
