/* parameters of every width, address tests */
extern "C" __global__ void kernel(int *a, int n, float f, double d, char c, short s, long l, int *b)
{
	if (n > 3 && f < 2 && d != 1 && c && s > 1 && l)
		a[threadIdx.x] = __isGlobal(b) + __isShared(b) + __isLocal(b) + __isConstant(b) + __isGridConstant(b);
}
