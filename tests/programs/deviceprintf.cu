/* printf on the device, from one thread at a time so that the order is known. */
#include "program.h"

__global__ void say(int n)
{
	printf("line %d of %s: %5.2f %c %lld\n", n, "text", 1.5 * n, 'a' + n, 1234567890123ll * n);
}

int main()
{
	for (int i = 0; i < 3; i++)
		say<<<1, 1>>>(i);
	CHECK(cudaDeviceSynchronize());
	fflush(stdout);
	return result("deviceprintf", 3, 0);
}
