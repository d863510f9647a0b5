/* clang: every state space */
#include "../../samples/kernel.h"
SHARED int tile[64];
CONSTANT float table[16];
typedef float quad __attribute__((ext_vector_type(4)));
KERNEL kernel(int *a, quad *b, long *c, unsigned char *d)
{
	unsigned i = thread_x();
	tile[i & 63] = a[i];
	__nvvm_bar_sync(0);
	a[i] = tile[63 - (i & 63)] + (int)table[i & 15];
	b[i + 1] = b[i] * 2.0f;
	c[i] = d[i] ? c[i + 1] : d[i + 2];
	volatile int stack[8];
	for (int k = 0; k < 8; k++)
		stack[k] = a[k];
	a[i + 64] = stack[i & 7];
}
