/* special registers and clocks */
extern "C" __global__ void kernel(unsigned *a, unsigned long long *b)
{
	unsigned r[6];
	asm volatile("mov.u32 %0, %%laneid;\n\tmov.u32 %1, %%smid;\n\tmov.u32 %2, %%warpid;\n\tmov.u32 %3, %%nsmid;\n\t"
		"mov.u32 %4, %%lanemask_lt;\n\tmov.u32 %5, %%dynamic_smem_size;"
		: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]));
	a[threadIdx.x] = r[0] + r[1] + r[2] + r[3] + r[4] + r[5] + gridDim.z + clock();
	b[0] = clock64(), __nanosleep(20);
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(b[1]));
}
