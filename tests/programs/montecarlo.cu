/* Pi by random points, each thread with a generator of its own; counts are exact on the host too. */
#include "program.h"

__host__ __device__ static int inside(unsigned id, int points)
{
	unsigned s = id * 747796405u + 2891336453u;
	int hits = 0;
	for (int i = 0; i < points; i++) {
		s = s * 1664525u + 1013904223u;
		unsigned x = s >> 16;
		s = s * 1664525u + 1013904223u;
		unsigned y = s >> 16;
		hits += (unsigned long long)x * x + (unsigned long long)y * y < 65536ull * 65536ull;
	}
	return hits;
}

__global__ void throw_points(int points, unsigned long long *hits)
{
	atomicAdd(hits, (unsigned long long)inside(blockIdx.x * blockDim.x + threadIdx.x, points));
}

int main()
{
	const int threads = 1024, points = 200;
	unsigned long long *d = device_new<unsigned long long>(1), want = 0;
	throw_points<<<threads / 128, 128>>>(points, d);
	for (int i = 0; i < threads; i++)
		want += inside(i, points);
	unsigned long long got = host_copy(d, 1)[0];
	double pi = 4.0 * (double)got / (threads * points);
	return result("montecarlo", threads * points, got != want || fabs(pi - M_PI) > 0.02);
}
