/* clang: calls, recursion, structs */
#include "../../samples/kernel.h"
__attribute__((device, noinline)) int leaf(int x, double y) { return x + (int)y; }
__attribute__((device, noinline)) int recurse(int n) { return n < 2 ? n : recurse(n - 1) + leaf(n, 2.0); }
struct pair { int a; long b; };
__attribute__((device, noinline)) struct pair make(struct pair p) { p.a += (int)p.b; return p; }
KERNEL kernel(int *a, struct pair *p)
{
	a[0] = leaf(a[1], 1.5) + recurse(a[2]);
	p[1] = make(p[0]);
}
