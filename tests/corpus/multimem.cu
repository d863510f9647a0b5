/* multicast memory */
// sm: 90
extern "C" __global__ void kernel(float *a)
{
	float x;
	asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(x) : "l"(a) : "memory");
	asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;\n\tmultimem.red.relaxed.sys.global.add.f32 [%0], %1;" :: "l"(a), "f"(x) : "memory");
}
