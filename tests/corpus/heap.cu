/* malloc, free, new, assert */
// include: cassert
extern "C" __global__ void kernel(int **a, int n)
{
	int *p = (int *)malloc(n * sizeof(int));
	assert(p);
	p[threadIdx.x] = n, a[threadIdx.x] = p;
	if (n > 3) { free(p); int *q = new int[n]; a[1] = q; }
}
