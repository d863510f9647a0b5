/* atomics with scopes and orders */
extern "C" __global__ void kernel(int *a, unsigned long long *b)
{
	int i = threadIdx.x;
	atomicAdd_block(&a[0], i), atomicAdd_system(&a[1], i), atomicCAS_block(&a[2], 1, i), atomicOr_system(&a[3], i);
	int r;
	asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(r) : "l"(a) : "memory");
	asm volatile("red.relaxed.sys.global.min.u64 [%0], 5;\n\tred.global.add.u32 [%0+8], 1;" :: "l"(b) : "memory");
	a[4] = r;
}
