/* driver_stub.c - what the table of calls gives by itself: the twins whose default stream is the
 * thread's own, and the calls that softgpu does not do. */
#include "softgpu/driver.h"

#define STUB_SOFT(...)
#define STUB_BOTH(...)
#define STUB_STUB(symbol, params)                                                                  \
	CUresult CUDAAPI symbol params                                                             \
	{                                                                                          \
		return CUDA_ERROR_NOT_SUPPORTED;                                                   \
	}
#define STUB_HSTUB STUB_STUB

#define TWIN_(...)
#define TWIN__ptsz(symbol, params, args) TWIN(symbol, _ptsz, params, args)
#define TWIN__ptds(symbol, params, args) TWIN(symbol, _ptds, params, args)
#define TWIN(symbol, suffix, params, args)                                                         \
	CUresult CUDAAPI symbol##suffix params                                                     \
	{                                                                                          \
		drv_per_thread(true);                                                              \
		CUresult result = symbol args;                                                     \
		drv_per_thread(false);                                                             \
		return result;                                                                     \
	}

#define EXPORT(name, suffix, since, ptds, flags, params, args)                                     \
	STUB_##flags(name##suffix, params) TWIN_##ptds(name##suffix, params, args)

CUDA_CALLS(EXPORT)
