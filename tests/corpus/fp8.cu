/* eight-bit floating point */
// include: cuda_fp8.h
extern "C" __global__ void kernel(__nv_fp8_e4m3 *a, __nv_fp8x4_e5m2 *b, float4 *c)
{
	int i = threadIdx.x;
	a[i] = __nv_fp8_e4m3((float)a[i + 1] * 2);
	b[i] = __nv_fp8x4_e5m2(c[i]);
	c[i + 1] = (float4)b[i + 1];
}
