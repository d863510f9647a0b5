/* asynchronous copies of 4, 8 and 16 bytes */
// sm: 80
extern "C" __global__ void kernel(const float4 *a, float4 *b, int n)
{
	__shared__ float4 tile[128];
	unsigned p = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n\tcp.async.ca.shared.global.L2::128B [%0], [%1+16], 8, %2;\n\t"
		"cp.async.ca.shared.global [%0], [%1], 4;\n\tcp.async.commit_group;\n\tcp.async.wait_group 0;\n\tcp.async.wait_all;"
		:: "r"(p), "l"(a + threadIdx.x), "r"(n) : "memory");
	__syncthreads();
	b[threadIdx.x] = tile[threadIdx.x ^ 1];
}
