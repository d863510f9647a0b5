/* clang: inline assembly */
#include "../../samples/kernel.h"
KERNEL kernel(int *a)
{
	int r;
	__asm__ volatile("{ .reg .pred p; .reg .b32 t; setp.gt.s32 p, %1, 3; @p ld.global.u32 t, [%2]; @!p mov.b32 t, 5; mov.b32 %0, t; }"
		: "=r"(r) : "r"(a[0]), "l"(a) : "memory");
	a[1] = r;
}
