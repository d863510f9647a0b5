/* atomics on half types */
// include: cuda_fp16.h cuda_bf16.h
extern "C" __global__ void kernel(__half2 *a, __half *b, __nv_bfloat162 *c, __nv_bfloat16 *d)
{
	atomicAdd(a, __float2half2_rn(1)), atomicAdd(b, __float2half(1));
	atomicAdd(c, __float2bfloat162_rn(1)), atomicAdd(d, __float2bfloat16(1));
}
