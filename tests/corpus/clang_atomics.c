/* clang: atomics */
#include "../../samples/kernel.h"
KERNEL kernel(int *a, unsigned long *b, float *c)
{
	__atomic_fetch_add(a, 1, __ATOMIC_RELAXED);
	__atomic_fetch_or(a + 1, 1, __ATOMIC_RELAXED);
	__atomic_exchange_n(a + 2, 5, __ATOMIC_RELAXED);
	long seen = 0;
	__atomic_compare_exchange_n((long *)b, &seen, 7, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	*c = __nvvm_atom_add_gen_f(c + 1, 2.0f) + (float)seen;
	a[3] = __nvvm_atom_inc_gen_ui((unsigned *)a + 4, 9);
}
