/* clang: loops and a switch */
#include "../../samples/kernel.h"
KERNEL kernel(int *a, int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) {
		switch (a[i] & 7) {
		case 0: s += a[i]; break;
		case 1: s -= 3; break;
		case 2: s ^= a[i + 1]; break;
		case 3: s <<= 1; break;
		case 4: a[i] = s; break;
		case 5: return;
		case 6: continue;
		default: s = s * s;
		}
	}
	a[thread_x()] = s;
}
