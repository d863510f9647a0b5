/* cooperative groups */
// include: cooperative_groups.h
namespace cg = cooperative_groups;
extern "C" __global__ void kernel(int *a)
{
	cg::thread_block b = cg::this_thread_block();
	auto t = cg::tiled_partition<8>(b);
	int x = a[threadIdx.x];
	x += t.shfl_down(x, 1) + t.any(x > 2);
	cg::coalesced_group c = cg::coalesced_threads();
	if (c.thread_rank() == 0)
		a[1] = c.size();
	cg::this_grid().sync();
	b.sync(), a[threadIdx.x] = x;
}
