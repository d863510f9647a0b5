/* ldmatrix in its sizes */
extern "C" __global__ void kernel(unsigned *a)
{
	__shared__ __align__(16) unsigned tile[512];
	unsigned p = (unsigned)__cvta_generic_to_shared(tile) + (threadIdx.x & 31) * 16, r[4];
	tile[threadIdx.x] = a[threadIdx.x];
	__syncthreads();
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(p));
	asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1+16];" : "=r"(r[0]) : "r"(p));
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%0,%1}, [%2];" : "=r"(r[1]), "=r"(r[2]) : "r"(p));
	a[threadIdx.x] = r[0] ^ r[1] ^ r[2] ^ r[3];
}
