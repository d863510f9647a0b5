/* carry chains and 128-bit products */
extern "C" __global__ void kernel(unsigned *a)
{
	unsigned i = threadIdx.x * 4, r0, r1, r2, r3;
	asm("add.cc.u32 %0, %4, %6;\n\taddc.cc.u32 %1, %5, %7;\n\taddc.u32 %2, %4, 0;\n\tsub.cc.u32 %3, %4, %5;"
	    : "=&r"(r0), "=&r"(r1), "=&r"(r2), "=&r"(r3) : "r"(a[i]), "r"(a[i + 1]), "r"(a[i + 2]), "r"(a[i + 3]));
	unsigned __int128 w = (unsigned __int128)r0 << 64 | r1;
	w = w * w + r2;
	a[i] = (unsigned)(w >> 70), a[i + 1] = r3, a[i + 2] = (unsigned)w;
}
