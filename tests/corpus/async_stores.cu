/* st.async and red.async */
// sm: 90
extern "C" __global__ void kernel(int *a)
{
	__shared__ __align__(16) int s[32];
	__shared__ unsigned long long gate;
	unsigned p = (unsigned)__cvta_generic_to_shared(s), g = (unsigned)__cvta_generic_to_shared(&gate);
	asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%0], {%2,%2,%2,%2}, [%1];\n\t"
		"red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster.add.u32 [%0], %2, [%1];" :: "r"(p), "r"(g), "r"(5) : "memory");
	a[threadIdx.x] = s[threadIdx.x];
}
