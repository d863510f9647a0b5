/* Fourier transform of 512 points in shared memory, radix 2; the inverse gives the input back. */
#include "program.h"

#define N 512

__global__ void fft(const float2 *in, float2 *out, const float2 *twiddle, float sign)
{
	__shared__ float2 v[N];
	const float2 *from = in + blockIdx.x * N;
	for (int i = threadIdx.x; i < N; i += blockDim.x) {
		int r = 0;
		for (int b = 0; b < 9; b++)
			r |= (i >> b & 1) << (8 - b);
		v[r] = from[i];
	}
	for (int half = 1; half < N; half *= 2) {
		__syncthreads();
		for (int i = threadIdx.x; i < N / 2; i += blockDim.x) {
			int k = i % half, at = i / half * half * 2 + k;
			float2 w = twiddle[k * (N / 2 / half)], a = v[at], b = v[at + half];
			w.y *= sign;
			float2 t = make_float2(b.x * w.x - b.y * w.y, b.x * w.y + b.y * w.x);
			v[at] = make_float2(a.x + t.x, a.y + t.y);
			v[at + half] = make_float2(a.x - t.x, a.y - t.y);
		}
	}
	__syncthreads();
	for (int i = threadIdx.x; i < N; i += blockDim.x)
		out[blockIdx.x * N + i] = v[i];
}

int main()
{
	const int batch = 4;
	unsigned seed = 8;
	std::vector<float2> in(batch * N), tw(N / 2);
	for (float2 &v : in)
		v = make_float2(next_float(&seed) - 0.5f, next_float(&seed) - 0.5f);
	for (int i = 0; i < N / 2; i++)
		tw[i] = make_float2((float)cos(2 * M_PI * i / N), (float)-sin(2 * M_PI * i / N));
	float2 *d = device_copy(in), *t = device_copy(tw), *f = device_new<float2>(batch * N),
	       *back = device_new<float2>(batch * N);
	fft<<<batch, 128>>>(d, f, t, 1);
	fft<<<batch, 128>>>(f, back, t, -1);
	std::vector<float2> got = host_copy(f, batch * N), inverse = host_copy(back, batch * N);
	long wrong = 0;
	for (int k = 0; k < N; k += 7) { /* of the first, by definition */
		double re = 0, im = 0;
		for (int i = 0; i < N; i++) {
			double c = cos(2 * M_PI * k * i / N), s = -sin(2 * M_PI * k * i / N);
			re += in[i].x * c - in[i].y * s;
			im += in[i].x * s + in[i].y * c;
		}
		wrong += !near(got[k].x, (float)re, 1e-4f) || !near(got[k].y, (float)im, 1e-4f);
	}
	for (int i = 0; i < batch * N; i++)
		wrong += !near(inverse[i].x / N, in[i].x, 1e-5f) || !near(inverse[i].y / N, in[i].y, 1e-5f);
	return result("fft", batch * N, wrong);
}
