/* Tiled matrix product in shared memory. */
#include "program.h"

#define TILE 16

__global__ void product(const float *a, const float *b, float *c, int n)
{
	__shared__ float ta[TILE][TILE], tb[TILE][TILE];
	int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
	float sum = 0;
	for (int t = 0; t < n; t += TILE) {
		ta[threadIdx.y][threadIdx.x] = y < n && t + threadIdx.x < n ? a[y * n + t + threadIdx.x] : 0;
		tb[threadIdx.y][threadIdx.x] = x < n && t + threadIdx.y < n ? b[(t + threadIdx.y) * n + x] : 0;
		__syncthreads();
		for (int k = 0; k < TILE; k++)
			sum += ta[threadIdx.y][k] * tb[k][threadIdx.x];
		__syncthreads();
	}
	if (x < n && y < n)
		c[y * n + x] = sum;
}

int main()
{
	const int n = 70;
	unsigned seed = 6;
	std::vector<float> a(n * n), b(n * n);
	for (float &v : a)
		v = next_float(&seed) - 0.5f;
	for (float &v : b)
		v = next_float(&seed) - 0.5f;
	float *da = device_copy(a), *db = device_copy(b), *dc = device_new<float>(n * n);
	product<<<dim3((n + TILE - 1) / TILE, (n + TILE - 1) / TILE), dim3(TILE, TILE)>>>(da, db, dc, n);
	std::vector<float> c = host_copy(dc, n * n);
	long wrong = 0;
	for (int y = 0; y < n; y++)
		for (int x = 0; x < n; x++) {
			double want = 0;
			for (int k = 0; k < n; k++)
				want += (double)a[y * n + k] * b[k * n + x];
			wrong += !near(c[y * n + x], (float)want, 1e-5f);
		}
	return result("matmul", n * n, wrong);
}
