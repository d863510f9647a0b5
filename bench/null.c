/* null.c - the software GPU with launches that do nothing: what is left is the cost of whoever
 * stands between a program and its driver. The rest of the calls is found behind us. */
#include "egpu/cuda.h"

__attribute__((visibility("default"))) CUresult cuLaunchKernel(CUfunction fn, unsigned gx,
	unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
	CUstream s, void **params, void **extra);
CUresult cuLaunchKernel(CUfunction fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
	unsigned by, unsigned bz, unsigned shared, CUstream s, void **params, void **extra)
{
	return fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
