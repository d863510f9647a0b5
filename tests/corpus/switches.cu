/* a switch that becomes brx.idx */
extern "C" __global__ void kernel(int *a, int n)
{
	int i = threadIdx.x, x = a[i];
	switch (n) {
	case 0: x += a[1]; break;
	case 1: x *= 3;
	case 2: x ^= a[2]; break;
	case 3: x = a[x & 7]; break;
	case 4: a[5] = x; break;
	case 5: x = -x; break;
	case 6: x <<= 2; break;
	case 7: x = x * x * x; break;
	case 8: atomicAdd(a, x); break;
	default: x = 0;
	}
	a[i] = x;
}
