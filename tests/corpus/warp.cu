/* votes, shuffles, matches */
extern "C" __global__ void kernel(int *a)
{
	int i = threadIdx.x, x = a[i];
	unsigned m = __activemask(), v = __ballot_sync(~0u, x > 0);
	x += __shfl_sync(~0u, x, 3) + __shfl_up_sync(~0u, x, 1) + __shfl_down_sync(~0u, x, 2) + __shfl_xor_sync(~0u, x, 16);
	x += __any_sync(~0u, x) + __all_sync(~0u, x) + __popc(v) + __popc(m);
	int p;
	x += __match_any_sync(~0u, x) + __match_all_sync(~0u, x, &p) + p;
	a[i] = x + __fns(m, 0, 1);
}
