/* tensor copies */
// sm: 90
struct alignas(64) map {
	unsigned long long v[16];
};
extern "C" __global__ void kernel(const __grid_constant__ map m, float *out)
{
	__shared__ __align__(128) float tile[1024];
	__shared__ unsigned long long gate;
	unsigned p = (unsigned)__cvta_generic_to_shared(tile), g = (unsigned)__cvta_generic_to_shared(&gate);
	asm volatile("prefetch.tensormap [%0];\n\tcp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%1], [%0, {%2, %3}], [%4];"
		:: "l"(&m), "r"(p), "r"(0), "r"(threadIdx.x), "r"(g) : "memory");
	asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%0, {%1}], [%2];\n\t"
		"cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group [%0, {%1}], [%2];" :: "l"(&m), "r"(0), "r"(p) : "memory");
	out[threadIdx.x] = tile[threadIdx.x];
}
