/* Every thread stores `offset` elements away from where it should. */
#include "kernel.h"

KERNEL fault(int *out, unsigned long n, long offset)
{
	unsigned long i = index_x();
	if (i < n)
		out[(long)i + offset] = (int)i;
}
