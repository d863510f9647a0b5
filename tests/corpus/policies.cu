/* cache policies, discard */
// sm: 80
extern "C" __global__ void kernel(int *a)
{
	unsigned long long p;
	int x;
	asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p));
	asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;\n\tst.global.L2::cache_hint.u32 [%1+4], %0, %2;\n\tdiscard.global.L2 [%3], 128;\n\t"
		"applypriority.global.L2::evict_normal [%3], 128;" : "=&r"(x) : "l"(a), "l"(p), "l"(a + 32) : "memory");
	a[9] = x;
}
