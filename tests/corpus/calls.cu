/* calls, recursion, structs by value */
__device__ __noinline__ int leaf(int x, float y) { return x * 3 + (int)y; }
__device__ __noinline__ int recurse(int n) { return n < 2 ? 1 : recurse(n - 1) + recurse(n - 2); }
struct big { int v[9]; double d; };
__device__ __noinline__ big by_value(big b) { b.v[3] = leaf(b.v[2], 1.5f); return b; }
extern "C" __global__ void kernel(int *a, big *b)
{
	a[threadIdx.x] = leaf(a[0], 2.0f) + recurse(a[1]);
	b[1] = by_value(b[0]);
}
