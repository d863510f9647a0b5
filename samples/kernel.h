/* kernel.h - what the samples' kernels need of CUDA C++, so that clang alone compiles them: Debian
 * and Ubuntu ship clang with the NVPTX back end but not the CUDA toolkit.
 */
#ifndef EGPU_SAMPLES_KERNEL_H
#define EGPU_SAMPLES_KERNEL_H

#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE static __attribute__((device, always_inline, unused))
#define SHARED __attribute__((shared))
#define CONSTANT __attribute__((constant))
#define RESTRICT __restrict__

/* One-dimensional shapes are enough for most samples. */
DEVICE unsigned thread_x()
{
	return __nvvm_read_ptx_sreg_tid_x();
}
DEVICE unsigned thread_y()
{
	return __nvvm_read_ptx_sreg_tid_y();
}
DEVICE unsigned block_x()
{
	return __nvvm_read_ptx_sreg_ctaid_x();
}
DEVICE unsigned block_y()
{
	return __nvvm_read_ptx_sreg_ctaid_y();
}
DEVICE unsigned threads_x()
{
	return __nvvm_read_ptx_sreg_ntid_x();
}
DEVICE unsigned blocks_x()
{
	return __nvvm_read_ptx_sreg_nctaid_x();
}
DEVICE unsigned long index_x()
{
	return (unsigned long)block_x() * threads_x() + thread_x();
}

#endif
