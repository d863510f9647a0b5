/* Two-dimensional convolution; the weights are in constant memory, borders are clamped. */
#include "program.h"

__constant__ float weights[25];

__global__ void convolve(const float *in, float *out, int w, int h)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x >= w || y >= h)
		return;
	float sum = 0;
	for (int j = -2; j <= 2; j++)
		for (int i = -2; i <= 2; i++) {
			int xx = min(max(x + i, 0), w - 1), yy = min(max(y + j, 0), h - 1);
			sum += in[yy * w + xx] * weights[(j + 2) * 5 + i + 2];
		}
	out[y * w + x] = sum;
}

int main()
{
	const int w = 80, h = 61;
	unsigned seed = 7;
	std::vector<float> in(w * h), k(25);
	for (float &v : in)
		v = next_float(&seed);
	for (float &v : k)
		v = next_float(&seed) - 0.4f;
	float *d = device_copy(in), *out = device_new<float>(w * h);
	CHECK(cudaMemcpyToSymbol(weights, k.data(), 25 * sizeof(float)));
	convolve<<<dim3((w + 15) / 16, (h + 7) / 8), dim3(16, 8)>>>(d, out, w, h);
	std::vector<float> got = host_copy(out, w * h);
	long wrong = 0;
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++) {
			double want = 0;
			for (int j = -2; j <= 2; j++)
				for (int i = -2; i <= 2; i++) {
					int xx = x + i < 0 ? 0 : x + i >= w ? w - 1 : x + i;
					int yy = y + j < 0 ? 0 : y + j >= h ? h - 1 : y + j;
					want += (double)in[yy * w + xx] * k[(j + 2) * 5 + i + 2];
				}
			wrong += !near(got[y * w + x], (float)want, 1e-5f);
		}
	return result("convolution", w * h, wrong);
}
