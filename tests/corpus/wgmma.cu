/* warpgroup matrix products */
// sm: 90a
extern "C" __global__ void kernel(float *c, unsigned long long da, unsigned long long db)
{
	float r[4] = { 1, 2, 3, 4 };
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
	asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0; }"
		: "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "l"(da), "l"(db));
	asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
	c[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}
