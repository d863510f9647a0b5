/* memory barriers of sm_80 */
// sm: 80
extern "C" __global__ void kernel(int *a)
{
	__shared__ unsigned long long gate;
	unsigned g = (unsigned)__cvta_generic_to_shared(&gate);
	unsigned long long token;
	if (threadIdx.x == 0)
		asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(g) : "memory");
	__syncthreads();
	asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(g) : "memory");
	asm volatile("{ .reg .pred p; WAIT: mbarrier.test_wait.shared.b64 p, [%0], %1; @!p bra WAIT; }" :: "r"(g), "l"(token) : "memory");
	asm volatile("mbarrier.arrive_drop.noComplete.shared.b64 %0, [%1], 1;\n\tcp.async.mbarrier.arrive.shared.b64 [%1];" : "=l"(token) : "r"(g) : "memory");
	asm volatile("mbarrier.inval.shared.b64 [%0];" :: "r"(g) : "memory");
	a[threadIdx.x] = (int)token;
}
