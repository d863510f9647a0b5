/* clang: an asynchronous copy */
// sm: 80
#include "../../samples/kernel.h"
KERNEL kernel(const int *a, int *b)
{
	static SHARED int tile[128];
	unsigned p = (unsigned)(unsigned long)(SHARED int *)tile;
	__asm__ volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.commit_group; cp.async.wait_group 0;"
		:: "r"(p), "l"(a + thread_x()) : "memory");
	__nvvm_bar_sync(0);
	b[thread_x()] = tile[thread_x()];
}
