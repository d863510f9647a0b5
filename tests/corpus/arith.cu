/* integer arithmetic of every width */
extern "C" __global__ void kernel(int *a, unsigned long long *b, short *c)
{
	int i = threadIdx.x, x = a[i], y = a[i + 1];
	a[i] = x / (y | 1) + x % (y | 3) + min(x, y) - max(x, 7) + abs(x) + __popc(x) + __clz(y) + __brev(x) + __ffs(y);
	b[i] = b[i] * b[i + 1] + __umul64hi(b[i], 12345) + (b[i] >> (x & 63)) + __popcll(b[i]) + __clzll(b[i]);
	c[i] = (short)(c[i] * c[i + 1]) >> 3;
}
