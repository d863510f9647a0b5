/* products and sums the compiler did not fuse */
// flags: -fmad=false
extern "C" __global__ void kernel(float *a, double *b, int n)
{
	int i = threadIdx.x;
	float s = 0;
	for (int k = 0; k < n; k++)
		s += a[i + k] * a[k];
	a[i] = s * a[i] - a[i + 1];
	b[i] = b[i] * b[i + 1] + b[i + 2];
}
