/* Layer normalisation: a block a row, mean and variance by shuffles. */
#include "program.h"

__device__ float block_sum(float v, float *shared)
{
	for (int by = 16; by; by /= 2)
		v += __shfl_xor_sync(0xffffffffu, v, by);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		shared[threadIdx.x / 32] = v;
	__syncthreads();
	float sum = 0;
	for (unsigned i = 0; i < blockDim.x / 32; i++)
		sum += shared[i];
	return sum;
}

__global__ void normalise(const float *in, float *out, int width)
{
	__shared__ float shared[4];
	const float *row = in + blockIdx.x * width;
	float sum = 0, squares = 0;
	for (int i = threadIdx.x; i < width; i += blockDim.x)
		sum += row[i];
	float mean = block_sum(sum, shared) / width;
	for (int i = threadIdx.x; i < width; i += blockDim.x)
		squares += (row[i] - mean) * (row[i] - mean);
	float scale = rsqrtf(block_sum(squares, shared) / width + 1e-5f);
	for (int i = threadIdx.x; i < width; i += blockDim.x)
		out[blockIdx.x * width + i] = (row[i] - mean) * scale;
}

int main()
{
	const int rows = 20, width = 300;
	unsigned seed = 13;
	std::vector<float> in(rows * width);
	for (float &v : in)
		v = next_float(&seed) * 4 - 1;
	float *d = device_copy(in), *out = device_new<float>(rows * width);
	normalise<<<rows, 128>>>(d, out, width);
	std::vector<float> got = host_copy(out, rows * width);
	long wrong = 0;
	for (int r = 0; r < rows; r++) {
		double mean = 0, var = 0;
		for (int i = 0; i < width; i++)
			mean += in[r * width + i] / (double)width;
		for (int i = 0; i < width; i++)
			var += pow(in[r * width + i] - mean, 2) / width;
		for (int i = 0; i < width; i++)
			wrong += !near(got[r * width + i],
				(float)((in[r * width + i] - mean) / sqrt(var + 1e-5)), 1e-4f);
	}
	return result("layernorm", rows * width, wrong);
}
