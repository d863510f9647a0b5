/* device printf */
// include: cstdio
extern "C" __global__ void kernel(int *a, double d) { printf("%d %f %s\n", a[threadIdx.x], d, "text"); a[0] = 1; }
