/* Softmax of rows: a warp a row. */
#include "program.h"

__global__ void softmax(const float *in, float *out, int width)
{
	const float *row = in + blockIdx.x * width;
	float top = -1e30f, sum = 0;
	for (int i = threadIdx.x; i < width; i += 32)
		top = row[i] > top ? row[i] : top;
	for (int by = 16; by; by /= 2) {
		float o = __shfl_xor_sync(0xffffffffu, top, by);
		top = o > top ? o : top;
	}
	for (int i = threadIdx.x; i < width; i += 32)
		sum += exp2_fast((row[i] - top) * 1.442695f);
	for (int by = 16; by; by /= 2)
		sum += __shfl_xor_sync(0xffffffffu, sum, by);
	for (int i = threadIdx.x; i < width; i += 32)
		out[blockIdx.x * width + i] = exp2_fast((row[i] - top) * 1.442695f) / sum;
}

int main()
{
	const int rows = 40, width = 100;
	unsigned seed = 14;
	std::vector<float> in(rows * width);
	for (float &v : in)
		v = next_float(&seed) * 20 - 10;
	float *d = device_copy(in), *out = device_new<float>(rows * width);
	softmax<<<rows, 32>>>(d, out, width);
	std::vector<float> got = host_copy(out, rows * width);
	long wrong = 0;
	for (int r = 0; r < rows; r++) {
		double sum = 0;
		for (int i = 0; i < width; i++)
			sum += exp(in[r * width + i]);
		for (int i = 0; i < width; i++)
			wrong += !near(got[r * width + i], (float)(exp(in[r * width + i]) / sum), 1e-5f);
	}
	return result("softmax", rows * width, wrong);
}
