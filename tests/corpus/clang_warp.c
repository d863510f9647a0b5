/* clang: warp operations */
#include "../../samples/kernel.h"
KERNEL kernel(int *a)
{
	int x = a[thread_x()];
	x += __nvvm_shfl_sync_idx_i32(~0u, x, 3, 31) + __nvvm_shfl_sync_bfly_i32(~0u, x, 16, 31);
	x += __nvvm_vote_any_sync(~0u, x > 3) + (int)__nvvm_vote_ballot_sync(~0u, x > 1);
	__nvvm_bar_warp_sync(~0u);
	a[thread_x()] = x + __nvvm_read_ptx_sreg_laneid();
}
