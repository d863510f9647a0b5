/* bit fields, permutes, funnel shifts, lop3 */
extern "C" __global__ void kernel(unsigned *a)
{
	unsigned i = threadIdx.x, x = a[i], y = a[i + 1];
	a[i] = __byte_perm(x, y, 0x5140) ^ __funnelshift_l(x, y, i) ^ __funnelshift_rc(x, y, 5) ^ (x & ~y | 0x55);
	a[i + 32] = __sad(x, y, i) + __usad(x, y, i) + __mulhi((int)x, (int)y) + __umulhi(x, y) + __hadd(x, y) + __rhadd(x, y);
	unsigned f;
	asm("bfe.u32 %0, %1, 3, 9;" : "=r"(f) : "r"(x));
	asm("bfi.b32 %0, %1, %0, 8, 8;" : "+r"(f) : "r"(y));
	asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(f) : "r"(x), "r"(y), "r"(f));
	a[i + 64] = f;
}
