/* bf16 and bf16x2 */
// include: cuda_bf16.h
extern "C" __global__ void kernel(__nv_bfloat16 *a, __nv_bfloat162 *b)
{
	int i = threadIdx.x;
	a[i] = __hadd(a[i], a[i + 1]) * a[i] - __hmin(a[i], a[i + 1]);
	b[i] = __hfma2(b[i], b[i + 1], b[i]) + __floats2bfloat162_rn(1.5f, __bfloat162float(a[i]));
}
