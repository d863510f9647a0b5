/* Every device takes a part; results go from device to device, with peer access where there is any.
 * With one device it does everything alone, and the line at the end is the same. */
#include "program.h"

__device__ int where;

__global__ void fill(int *p, int n, int from)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		p[i] = (from + i) * 7 + where;
}

int main()
{
	const int n = 4000, parts = 4;
	int devices;
	CHECK(cudaGetDeviceCount(&devices));
	std::vector<int *> part(parts);
	for (int i = 0; i < parts; i++) {
		int zero = 0, can = 0;
		CHECK(cudaSetDevice(i % devices));
		CHECK(cudaMemcpyToSymbol(where, &zero, sizeof(int)));
		part[i] = device_new<int>(n);
		fill<<<(n + 127) / 128, 128>>>(part[i], n, i * n);
		CHECK(cudaGetLastError());
		if (i % devices) {
			CHECK(cudaDeviceCanAccessPeer(&can, 0, i % devices));
			if (can) {
				CHECK(cudaSetDevice(0));
				cudaDeviceEnablePeerAccess(i % devices, 0);
				cudaGetLastError(); /* it may be enabled already */
			}
		}
	}
	for (int i = 0; i < devices; i++) {
		CHECK(cudaSetDevice(i));
		CHECK(cudaDeviceSynchronize());
	}
	CHECK(cudaSetDevice(0));
	int *all = device_new<int>(parts * n);
	for (int i = 0; i < parts; i++)
		CHECK(cudaMemcpyPeer(all + i * n, 0, part[i], i % devices, n * sizeof(int)));
	std::vector<int> got = host_copy(all, parts * n);
	long wrong = 0;
	for (int i = 0; i < parts * n; i++)
		wrong += got[i] != i * 7;
	return result("multidevice", parts * n, wrong);
}
