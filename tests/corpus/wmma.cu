/* warp matrix products by wmma */
// include: mma.h
using namespace nvcuda::wmma;
extern "C" __global__ void kernel(const __half *a, const __half *b, float *c)
{
	__shared__ __half tile[256];
	fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
	fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
	fragment<accumulator, 16, 16, 16, float> fc;
	tile[threadIdx.x] = a[threadIdx.x];
	__syncthreads();
	load_matrix_sync(fa, tile, 16), load_matrix_sync(fb, b, 32), fill_fragment(fc, 0.0f);
	mma_sync(fc, fa, fb, fc);
	store_matrix_sync(c, fc, 16, mem_row_major);
}
