/* Heat in a plate: a five-point stencil, many steps between two buffers. */
#include "program.h"

__global__ void step(const float *in, float *out, int w, int h)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x >= w || y >= h)
		return;
	int i = y * w + x;
	bool edge = x == 0 || y == 0 || x == w - 1 || y == h - 1;
	out[i] = edge ? in[i] : 0.25f * (in[i - 1] + in[i + 1] + in[i - w] + in[i + w]);
}

int main()
{
	const int w = 64, h = 48, steps = 20;
	std::vector<float> a(w * h), b(w * h);
	for (int x = 0; x < w; x++)
		a[x] = b[x] = 100;
	float *da = device_copy(a), *db = device_copy(b);
	for (int s = 0; s < steps; s++) {
		step<<<dim3(w / 16, h / 8), dim3(16, 8)>>>(da, db, w, h);
		float *t = da;
		da = db;
		db = t;
		for (int y = 0; y < h; y++)
			for (int x = 0; x < w; x++) {
				int i = y * w + x;
				bool edge = x == 0 || y == 0 || x == w - 1 || y == h - 1;
				b[i] = edge ? a[i] : 0.25f * (a[i - 1] + a[i + 1] + a[i - w] + a[i + w]);
			}
		a.swap(b);
	}
	std::vector<float> got = host_copy(da, w * h);
	long wrong = 0;
	for (int i = 0; i < w * h; i++)
		wrong += !near(got[i], a[i], 1e-6f);
	return result("stencil", w * h, wrong);
}
