/* single precision: rounding, approximations, conversions */
extern "C" __global__ void kernel(float *a, int n)
{
	int i = threadIdx.x;
	float x = a[i], y = a[i + 1];
	a[i] = __fmul_rn(x, y) + __fadd_rz(x, y) + __fdividef(x, y) + x / y + sqrtf(x) + rsqrtf(y) + __fmaf_ru(x, y, x);
	a[i + 32] = sinf(x) + __expf(y) + __log2f(x) + fminf(x, y) + floorf(x) + copysignf(x, y) + (isnan(x) ? 1 : 0);
	a[i + 64] = __int2float_rn(n) + __float2int_rz(x) + __saturatef(y) + fmodf(x, y) + __tanf(x) + tanhf(x);
}
