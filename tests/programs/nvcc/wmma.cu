/* Matrix product on tensor cores: half inputs, float sums, a warp a 16x16 tile. */
#include "program.h"
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

__global__ void product(const half *a, const half *b, float *c, int n)
{
	wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
	wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
	wmma::fill_fragment(fc, 0.0f);
	for (int k = 0; k < n; k += 16) {
		wmma::load_matrix_sync(fa, a + blockIdx.y * 16 * n + k, n);
		wmma::load_matrix_sync(fb, b + blockIdx.x * 16 * n + k, n);
		wmma::mma_sync(fc, fa, fb, fc);
	}
	wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, fc, n, wmma::mem_row_major);
}

int main()
{
	const int n = 64;
	unsigned seed = 20;
	std::vector<half> a(n * n), b(n * n);
	for (half &v : a)
		v = __float2half((float)(next_random(&seed) % 17) / 8 - 1);
	for (half &v : b)
		v = __float2half((float)(next_random(&seed) % 17) / 8 - 1);
	half *da = device_copy(a), *db = device_copy(b);
	float *dc = device_new<float>(n * n);
	product<<<dim3(n / 16, n / 16), 32>>>(da, db, dc, n);
	std::vector<float> c = host_copy(dc, n * n);
	long wrong = 0;
	for (int y = 0; y < n; y++)
		for (int x = 0; x < n; x++) {
			float want = 0; /* exact: eighths */
			for (int k = 0; k < n; k++)
				want += __half2float(a[y * n + k]) * __half2float(b[x * n + k]);
			wrong += c[y * n + x] != want;
		}
	return result("wmma", n * n, wrong);
}
