/* Counts until the host says stop, through memory that both see. */
#include "kernel.h"

KERNEL longrun(const volatile int *stop, volatile unsigned long *passes)
{
	unsigned long n = 0;
	while (!*stop)
		passes[index_x()] = ++n;
}
