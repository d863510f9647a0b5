/* bulk copies and reductions */
// sm: 90
extern "C" __global__ void kernel(const char *a, char *b, unsigned n)
{
	__shared__ __align__(128) char tile[4096];
	__shared__ unsigned long long gate;
	unsigned p = (unsigned)__cvta_generic_to_shared(tile), g = (unsigned)__cvta_generic_to_shared(&gate);
	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" :: "r"(g) : "memory");
		asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(g), "r"(n) : "memory");
		asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(p), "l"(a), "r"(n), "r"(g) : "memory");
		asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(a), "r"(n) : "memory");
	}
	asm volatile("{ .reg .pred p; LAB: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @p bra DONE; bra LAB; DONE: }" :: "r"(g) : "memory");
	asm volatile("fence.proxy.async.shared::cta;\n\tcp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;\n\t"
		"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 64;\n\t"
		"cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group.read 0;" :: "l"(b), "r"(p) : "memory");
}
