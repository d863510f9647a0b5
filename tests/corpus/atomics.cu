/* atomics of every operation and type */
extern "C" __global__ void kernel(int *a, unsigned *b, unsigned long long *c, float *d, double *e)
{
	__shared__ int s;
	int i = threadIdx.x;
	s = 0;
	__syncthreads();
	atomicAdd(&s, i), atomicSub(&a[0], 1), atomicExch(&a[1], i), atomicMin(&a[2], i), atomicMax(&a[3], i);
	atomicInc(&b[0], 7), atomicDec(&b[1], 7), atomicAnd(&b[2], i), atomicOr(&b[3], i), atomicXor(&b[4], i);
	c[i] = atomicCAS(&c[0], 1ull, 2ull) + atomicAdd(&c[1], 3ull) + atomicExch(&c[2], 4ull) + atomicMax(&c[3], 5ull);
	d[i] = atomicAdd(&d[0], 1.0f) + atomicExch(&d[1], 2.0f);
	e[i] = atomicAdd(&e[0], 1.0);
	a[4] = s + atomicCAS(&a[5], 1, 2);
}
