/* separate compilation: what another unit defines */
// flags: -rdc=true
extern __device__ int elsewhere(int);
__device__ int exported = 3;
extern __device__ int imported;
__device__ __noinline__ int here(int x) { return x + exported; }
extern "C" __global__ void kernel(int *a) { a[threadIdx.x] = here(a[0]); }
extern "C" __global__ void outside(int *a) { a[threadIdx.x] = elsewhere(a[0]) + imported; }
