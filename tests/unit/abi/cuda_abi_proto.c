/* Compiles only if each row of the table of driver calls agrees with NVIDIA's prototype, where the
 * newest version of NVIDIA's header still declares the symbol. */
#define EGPU_CUDA_NO_ALIASES
#define EGPU_CUDA_H
#define __CUDA_API_VERSION_INTERNAL
#include CUDA_HEADER

#include "cuda/calls.h"
#undef cuStreamGetCtx_v2

#define TWIN_(...)
#define TWIN__ptsz(symbol, params) CUresult symbol##_ptsz params;
#define TWIN__ptds(symbol, params) CUresult symbol##_ptds params;
#define AGREE(name, suffix, since, ptds, flags, params, args)                                      \
	CUresult name##suffix params;                                                              \
	TWIN_##ptds(name##suffix, params)
CUDA_CALLS(AGREE)
