/* Kernels that run until the host says stop. `passes` has a cell for each block, written by its first thread. */
#include "kernel.h"

DEVICE unsigned long ticket(unsigned long *head)
{
	return __nvvm_atom_add_gen_ll((long long *)head, 1);
}

/* Takes numbered items that the host offers by raising *tail, one a block and time; an item is 2,000 steps of arithmetic in each thread. */
KERNEL queue(const volatile int *stop, const volatile unsigned long *tail, unsigned long *head, volatile unsigned long *passes, float *out)
{
	static SHARED unsigned long item;
	unsigned long n = 0;
	for (;;) {
		if (!thread_x())
			item = *stop ? ~0ul : ticket(head);
		__nvvm_bar_sync(0);
		unsigned long mine = item;
		__nvvm_bar_sync(0);
		if (mine == ~0ul)
			return;
		while (mine >= *tail && !*stop)
			;
		float x = (float)mine, y = (float)thread_x();
		for (int i = 0; i < 2000; i++)
			x = x * 0.999f + y;
		out[index_x()] = x;
		if (!thread_x())
			passes[block_x()] = ++n;
	}
}

/* As many threads as the device holds: nothing else finds room. */
KERNEL full(const volatile int *stop, const volatile unsigned long *tail, unsigned long *head, volatile unsigned long *passes, float *out)
{
	unsigned long n = 0;
	float x = 1, y = (float)thread_x();
	while (!*stop) {
		for (int i = 0; i < 1000; i++)
			x = x * 0.999f + y;
		n++;
		if (!thread_x())
			passes[block_x()] = n;
	}
	out[index_x()] = x;
}

/* Copies `words` floats over and over: limited by memory. A pass is one sweep of the grid. */
KERNEL memory(const volatile int *stop, const float *RESTRICT from, float *RESTRICT to, volatile unsigned long *passes, unsigned long words)
{
	unsigned long n = 0, step = (unsigned long)threads_x() * blocks_x();
	while (!*stop) {
		for (unsigned long i = index_x(); i < words; i += step)
			to[i] = from[i] + 1;
		n++;
		if (!thread_x())
			passes[block_x()] = n;
	}
}
