/* dot products of bytes and packed video operations */
extern "C" __global__ void kernel(int *a, int *b)
{
	int i = threadIdx.x;
	a[i] = __dp4a(a[i], b[i], 3) + __dp2a_lo(a[i], b[i], 1) + __dp2a_hi(a[i], b[i], 1);
	a[i + 32] = __vadd4(a[i], b[i]) + __vabsdiffu2(a[i], b[i]) + __viaddmax_s32(a[i], b[i], 4);
}
