/* Cooperative groups: tiles, coalesced groups, and a grid that synchronises between its phases. */
#include "program.h"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void phases(int *data, int *sums, int n)
{
	cg::grid_group grid = cg::this_grid();
	cg::thread_block block = cg::this_thread_block();
	cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
	int rank = (int)grid.thread_rank(), size = (int)grid.size();
	for (int i = rank; i < n; i += size)
		data[i] = i;
	grid.sync();
	int sum = 0;
	for (int i = rank; i < n; i += size)
		sum += data[n - 1 - i]; /* another thread's */
	sum = cg::reduce(tile, sum, cg::plus<int>());
	if (tile.thread_rank() == 0)
		atomicAdd(&sums[0], sum);
	if (rank % 3 == 0) {
		cg::coalesced_group active = cg::coalesced_threads();
		if (active.thread_rank() == 0)
			atomicAdd(&sums[1], (int)active.size());
	}
	grid.sync();
	if (rank == 0)
		sums[2] = sums[0] + sums[1];
}

int main()
{
	int n = 5000, *data = device_new<int>(n), *sums = device_new<int>(3), threads = 128, blocks;
	CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, phases, threads, 0));
	blocks = blocks < 4 ? blocks : 4;
	void *args[] = { &data, &sums, &n };
	CHECK(cudaLaunchCooperativeKernel((const void *)phases, dim3(blocks), dim3(threads), args));
	std::vector<int> got = host_copy(sums, 3);
	int want = n * (n - 1) / 2, thirds = (blocks * threads + 2) / 3;
	return result("cooperative", 3,
		(got[0] != want) + (got[1] != thirds) + (got[2] != want + thirds));
}
