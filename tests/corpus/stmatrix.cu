/* stmatrix and movmatrix */
// sm: 90
extern "C" __global__ void kernel(unsigned *a)
{
	__shared__ __align__(16) unsigned tile[512];
	unsigned p = (unsigned)__cvta_generic_to_shared(tile) + (threadIdx.x & 31) * 16, r;
	r = a[threadIdx.x];
	asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%1};\n\t"
		"stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" :: "r"(p), "r"(r) : "memory");
	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(r));
	a[threadIdx.x + 64] = r;
	a[threadIdx.x] = tile[threadIdx.x];
}
