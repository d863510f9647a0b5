/* A matrix transposed twice: each thread writes a column, or a tile goes through shared memory. */
#include "kernel.h"

#define TILE 32u

KERNEL transpose_naive(const float *RESTRICT in, float *RESTRICT out, unsigned n)
{
	unsigned x = block_x() * TILE + thread_x(), y = block_y() * TILE + thread_y();
	if (x < n && y < n)
		out[(unsigned long)x * n + y] = in[(unsigned long)y * n + x];
}

KERNEL transpose_tiled(const float *RESTRICT in, float *RESTRICT out, unsigned n)
{
	/* One column more than needed, so that a column's 32 elements lie in 32 banks. */
	static SHARED float tile[TILE][TILE + 1];
	unsigned x = block_x() * TILE + thread_x(), y = block_y() * TILE + thread_y();
	if (x < n && y < n)
		tile[thread_y()][thread_x()] = in[(unsigned long)y * n + x];
	__syncthreads();
	x = block_y() * TILE + thread_x();
	y = block_x() * TILE + thread_y();
	if (x < n && y < n)
		out[(unsigned long)y * n + x] = tile[thread_x()][thread_y()];
}
