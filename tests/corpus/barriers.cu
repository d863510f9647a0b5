/* barriers of a block and of a warp */
extern "C" __global__ void kernel(int *a)
{
	__shared__ int s[128];
	int i = threadIdx.x;
	s[i] = a[i];
	__syncthreads();
	int n = __syncthreads_count(a[i] > 3) + __syncthreads_or(a[i]) + __syncthreads_and(a[i]);
	asm volatile("bar.arrive 1, 128;\n\tbar.sync 1, 128;\n\tbarrier.sync 2;\n\tbar.sync %0;" :: "r"(n & 3) : "memory");
	__syncwarp();
	a[i] = s[127 - i] + n;
}
