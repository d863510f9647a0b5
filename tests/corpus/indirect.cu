/* a call through a table, and a kernel that needs none */
__device__ __noinline__ int f0(int x) { return x + 1; }
__device__ __noinline__ int f1(int x) { return x * 2; }
__device__ int (*table[2])(int) = { f0, f1 };
extern "C" __global__ void kernel(int *a) { a[threadIdx.x] = table[a[0] & 1](a[1]); }
extern "C" __global__ void direct(int *a) { a[threadIdx.x] = f0(a[1]); }
