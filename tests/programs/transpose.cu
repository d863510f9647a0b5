/* A matrix transposed through padded shared tiles, in memory with a pitch. */
#include "program.h"

#define TILE 32

__global__ void transpose(const float *in, size_t in_pitch, float *out, size_t out_pitch, int w, int h)
{
	__shared__ float tile[TILE][TILE + 1];
	int x = blockIdx.x * TILE + threadIdx.x;
	for (int i = threadIdx.y; i < TILE; i += blockDim.y) {
		int y = blockIdx.y * TILE + i;
		if (x < w && y < h)
			tile[i][threadIdx.x] = *(const float *)((const char *)in + y * in_pitch + x * 4);
	}
	__syncthreads();
	int tx = blockIdx.y * TILE + threadIdx.x;
	for (int i = threadIdx.y; i < TILE; i += blockDim.y) {
		int ty = blockIdx.x * TILE + i;
		if (tx < h && ty < w)
			*(float *)((char *)out + ty * out_pitch + tx * 4) = tile[threadIdx.x][i];
	}
}

int main()
{
	const int w = 150, h = 97;
	std::vector<float> in(w * h), got(w * h);
	for (int i = 0; i < w * h; i++)
		in[i] = (float)i;
	float *a, *b;
	size_t pa, pb;
	CHECK(cudaMallocPitch(&a, &pa, w * sizeof(float), h));
	CHECK(cudaMallocPitch(&b, &pb, h * sizeof(float), w));
	CHECK(cudaMemcpy2D(a, pa, in.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
	transpose<<<dim3((w + TILE - 1) / TILE, (h + TILE - 1) / TILE), dim3(TILE, 8)>>>(
		a, pa, b, pb, w, h);
	CHECK(cudaMemcpy2D(got.data(), h * 4, b, pb, h * 4, w, cudaMemcpyDeviceToHost));
	long wrong = 0;
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++)
			wrong += got[x * h + y] != in[y * w + x];
	return result("transpose", w * h, wrong);
}
