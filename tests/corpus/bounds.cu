/* performance directives, an empty kernel */
extern "C" __global__ __launch_bounds__(128, 4) void kernel(float *a) { a[threadIdx.x] = a[blockIdx.x] * 2; }
extern "C" __global__ void __maxnreg__(40) capped(float *a) { a[threadIdx.x] *= 3; }
extern "C" __global__ void empty() {}
