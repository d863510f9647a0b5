/* clusters and distributed shared memory */
// sm: 90
extern "C" __global__ __cluster_dims__(2, 1, 1) void kernel(int *a)
{
	__shared__ int s[32];
	unsigned p = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]), q;
	s[threadIdx.x] = a[threadIdx.x];
	asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
	asm volatile("{ .reg .b32 t; mapa.shared::cluster.u32 %0, %1, 1; ld.shared::cluster.u32 t, [%0]; st.shared::cluster.u32 [%0], t; "
		"atom.shared::cluster.add.u32 t, [%0], 1; }" : "=&r"(q) : "r"(p) : "memory");
	unsigned rank;
	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	a[threadIdx.x + 32] = s[threadIdx.x] + rank + q;
}
