/* f16 and f16x2 */
// include: cuda_fp16.h
extern "C" __global__ void kernel(__half *a, __half2 *b)
{
	int i = threadIdx.x;
	a[i] = __hadd(a[i], a[i + 1]) * a[i] - __hmax(a[i], a[i + 1]) + hsqrt(a[i]) + hexp(a[i]);
	b[i] = __hfma2(b[i], b[i + 1], b[i]) + __float22half2_rn(make_float2(1.5f, (float)a[i]));
	a[i + 32] = __float2half_rz(__half2float(a[i])) + __int2half_rn(i) + (__hlt(a[i], a[i + 1]) ? a[i] : __habs(a[i]));
}
