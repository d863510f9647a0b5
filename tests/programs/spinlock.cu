/* Threads of one warp take a lock one after the other: lanes that wait must not keep the holder from
 * going on. */
#include "program.h"

__global__ void locked(int *lock, volatile int *sum, int rounds)
{
	for (int r = 0; r < rounds; r++) {
		bool done = false;
		while (!done) {
			if (atomicCAS(lock, 0, 1) == 0) {
				*sum = *sum + 1;
				__threadfence();
				atomicExch(lock, 0);
				done = true;
			}
		}
	}
}

int main()
{
	const int blocks = 3, threads = 64, rounds = 2;
	int *lock = device_new<int>(1), *sum = device_new<int>(1);
	locked<<<blocks, threads>>>(lock, sum, rounds);
	return result("spinlock", blocks * threads * rounds,
		host_copy(sum, 1)[0] != blocks * threads * rounds);
}
