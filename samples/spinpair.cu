/* Two kernels that wait for each other: neither ends unless both run at the same time. */
#include "kernel.h"

DEVICE void rally(volatile int *mine, volatile int *theirs, int rounds)
{
	if (block_x() || thread_x())
		return;
	for (int i = 1; i <= rounds; i++) {
		*mine = i;
		while (*theirs < i)
			;
	}
}

KERNEL ping(volatile int *flags, int rounds)
{
	rally(flags, flags + 1, rounds);
}

KERNEL pong(volatile int *flags, int rounds)
{
	rally(flags + 1, flags, rounds);
}
