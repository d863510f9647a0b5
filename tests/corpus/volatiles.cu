/* volatile and ordered accesses, fences */
extern "C" __global__ void kernel(volatile int *a, int *b)
{
	__shared__ volatile int s[64];
	int i = threadIdx.x, r;
	s[i] = a[i];
	asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];\n\tst.release.sys.global.u32 [%1+4], %0;\n\tld.acquire.cta.u32 %0, [%1];"
		: "=&r"(r) : "l"(b + i) : "memory");
	__threadfence(), __threadfence_block(), __threadfence_system();
	a[i + 1] = s[63 - i] + r;
}
