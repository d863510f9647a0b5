/* static and dynamic shared memory, generic addresses */
extern __shared__ int dynamic[];
__shared__ double fixed[33];
extern "C" __global__ void kernel(int *a, double *b)
{
	int i = threadIdx.x;
	dynamic[i] = a[i], fixed[i & 31] = b[i];
	__syncthreads();
	a[i] = dynamic[(i * 7) & 63], b[i] = fixed[(i + 1) & 31];
	int *generic = i & 1 ? dynamic : a;
	generic[i] = 3;
}
