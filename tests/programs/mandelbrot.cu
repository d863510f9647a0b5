/* The Mandelbrot set in fixed point: the same on every machine. */
#include "program.h"

__host__ __device__ static int steps(int px, int py, int w, int h)
{
	long long cx = (((long long)px * 3 << 24) / w) - (2ll << 24), cy = (((long long)py * 2 << 24) / h) - (1ll << 24);
	long long x = 0, y = 0;
	int n = 0;
	for (; n < 100; n++) {
		long long xx = x * x >> 24, yy = y * y >> 24;
		if (xx + yy > 4ll << 24)
			break;
		y = (x * y >> 23) + cy;
		x = xx - yy + cx;
	}
	return n;
}

__global__ void mandelbrot(int *out, int w, int h)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
	if (x < w && y < h)
		out[y * w + x] = steps(x, y, w, h);
}

int main()
{
	const int w = 72, h = 48;
	int *d = device_new<int>(w * h);
	mandelbrot<<<dim3((w + 15) / 16, (h + 15) / 16), dim3(16, 16)>>>(d, w, h);
	std::vector<int> got = host_copy(d, w * h);
	long wrong = 0;
	for (int i = 0; i < w * h; i++)
		wrong += got[i] != steps(i % w, i / w, w, h);
	return result("mandelbrot", w * h, wrong);
}
