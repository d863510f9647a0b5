/* Gravity between bodies, tiles of positions in shared memory. */
#include "program.h"

#define BLOCK 64

__global__ void forces(const float4 *bodies, float4 *acc, int n)
{
	__shared__ float4 tile[BLOCK];
	int i = blockIdx.x * BLOCK + threadIdx.x;
	float4 me = bodies[i], a = make_float4(0, 0, 0, 0);
	for (int t = 0; t < n; t += BLOCK) {
		tile[threadIdx.x] = bodies[t + threadIdx.x];
		__syncthreads();
		for (int k = 0; k < BLOCK; k++) {
			float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
			float inv = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
			float s = tile[k].w * inv * inv * inv;
			a.x += dx * s;
			a.y += dy * s;
			a.z += dz * s;
		}
		__syncthreads();
	}
	acc[i] = a;
}

int main()
{
	const int n = 256;
	unsigned seed = 9;
	std::vector<float4> b(n);
	for (float4 &v : b)
		v = make_float4(next_float(&seed), next_float(&seed), next_float(&seed), next_float(&seed));
	float4 *d = device_copy(b), *acc = device_new<float4>(n);
	forces<<<n / BLOCK, BLOCK>>>(d, acc, n);
	std::vector<float4> got = host_copy(acc, n);
	long wrong = 0;
	for (int i = 0; i < n; i++) {
		double ax = 0, ay = 0, az = 0;
		for (int k = 0; k < n; k++) {
			double dx = b[k].x - b[i].x, dy = b[k].y - b[i].y, dz = b[k].z - b[i].z;
			double s = b[k].w / pow(dx * dx + dy * dy + dz * dz + 0.01, 1.5);
			ax += dx * s;
			ay += dy * s;
			az += dz * s;
		}
		wrong += !near(got[i].x, (float)ax, 1e-4f) || !near(got[i].y, (float)ay, 1e-4f) ||
			 !near(got[i].z, (float)az, 1e-4f);
	}
	return result("nbody", n, wrong);
}
