/* reductions over a warp */
// sm: 80
extern "C" __global__ void kernel(int *a)
{
	int i = threadIdx.x;
	a[i] = __reduce_add_sync(~0u, a[i]) + __reduce_max_sync(~0u, a[i]) + __reduce_xor_sync(~0u, (unsigned)a[i]);
}
