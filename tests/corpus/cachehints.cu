/* cache operators, read-only loads, prefetch */
extern "C" __global__ void kernel(float4 *a, const float4 *__restrict__ b, int *c, int *d)
{
	int i = threadIdx.x;
	a[i] = __ldg(&b[i]);
	__stcs(&c[i], __ldcs(&d[i]) + __ldcg(&d[i + 1]) + __ldlu(&d[i + 2]) + __ldcv(&d[i + 3]));
	__stwt(&c[i + 32], 1), __stcg(&c[i + 64], 2);
	unsigned r;
	asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(r) : "l"(d + i));
	asm volatile("prefetch.global.L2 [%0];\n\tprefetch.global.L1 [%0+128];" :: "l"(d));
	c[i + 96] = r;
}
