/* Attention of one head: a warp a query, scores in shared memory, softmax, weighted values. */
#include "program.h"

#define D 32
#define MAX_KEYS 128

__global__ void attention(const float *q, const float *k, const float *v, float *out, int keys)
{
	__shared__ float score[MAX_KEYS];
	int lane = threadIdx.x;
	float mine = q[blockIdx.x * D + lane], top = -1e30f, sum = 0, o = 0;
	for (int j = 0; j < keys; j++) {
		float s = mine * k[j * D + lane];
		for (int by = 16; by; by /= 2)
			s += __shfl_xor_sync(0xffffffffu, s, by);
		s *= 0.1767767f * 1.442695f; /* 1/sqrt(D), and to base 2 */
		if (lane == 0)
			score[j] = s;
		top = s > top ? s : top;
	}
	__syncwarp();
	for (int j = 0; j < keys; j++) {
		float e = exp2_fast(score[j] - top);
		sum += e;
		o += e * v[j * D + lane];
	}
	out[blockIdx.x * D + lane] = o / sum;
}

int main()
{
	const int queries = 24, keys = 80;
	unsigned seed = 12;
	std::vector<float> q(queries * D), k(keys * D), v(keys * D);
	for (std::vector<float> *x : { &q, &k, &v })
		for (float &f : *x)
			f = next_float(&seed) * 2 - 1;
	float *dq = device_copy(q), *dk = device_copy(k), *dv = device_copy(v),
	      *out = device_new<float>(queries * D);
	attention<<<queries, 32>>>(dq, dk, dv, out, keys);
	std::vector<float> got = host_copy(out, queries * D);
	long wrong = 0;
	for (int i = 0; i < queries; i++) {
		std::vector<double> w(keys);
		double sum = 0;
		for (int j = 0; j < keys; j++) {
			double s = 0;
			for (int d = 0; d < D; d++)
				s += (double)q[i * D + d] * k[j * D + d];
			sum += w[j] = exp(s / sqrt((double)D));
		}
		for (int d = 0; d < D; d++) {
			double want = 0;
			for (int j = 0; j < keys; j++)
				want += w[j] / sum * v[j * D + d];
			wrong += !near(got[i * D + d], (float)want, 1e-5f);
		}
	}
	return result("attention", queries * D, wrong);
}
