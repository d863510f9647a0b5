/* driver_function.c - what a function is: attributes, parameters, occupancy. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

static CUresult enter_function(const void *handle, struct CUfunc_st **f)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	r = drv_function_of(ctx, handle, f);
	return r ? drv_leave(r) : CUDA_SUCCESS;
}

CUresult drv_function_attribute(const struct CUfunc_st *f, CUfunction_attribute attr, int *value)
{
	const struct sg_kernel_info *i = &f->info;
	bool fixed_cluster = i->cluster[0];
	switch (attr) {
	case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
		*value = (int)i->max_threads;
		break;
	case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
		*value = (int)i->static_shared_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
		*value = (int)i->const_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
		*value = (int)i->local_bytes;
		break;
	case CU_FUNC_ATTRIBUTE_NUM_REGS:
		*value = (int)i->n_regs;
		break;
	case CU_FUNC_ATTRIBUTE_PTX_VERSION:
		*value = (int)i->ptx_version;
		break;
	case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
		*value = (int)drv.config.sm;
		break;
	case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
		*value = 0;
		break;
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		*value = f->max_dynamic_shared;
		break;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		*value = f->carveout;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
		*value = 0;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
		*value = fixed_cluster ? (int)i->cluster[0] : f->cluster_width;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
		*value = fixed_cluster ? (int)i->cluster[1] : f->cluster_height;
		break;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		*value = fixed_cluster ? (int)i->cluster[2] : f->cluster_depth;
		break;
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		*value = f->non_portable_cluster;
		break;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		*value = f->cluster_policy;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult set_cluster(struct CUfunc_st *f, int *field, int value)
{
	if (value < 0 || f->info.cluster[0]) /* fixed when it was compiled */
		return CUDA_ERROR_INVALID_VALUE;
	*field = value;
	return CUDA_SUCCESS;
}

CUresult drv_function_set(struct CUfunc_st *f, CUfunction_attribute attr, int value)
{
	switch (attr) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		if (value < 0 || (uint64_t)value + f->info.static_shared_bytes > drv_shared_limit())
			return CUDA_ERROR_INVALID_VALUE;
		f->max_dynamic_shared = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		if (value < -1 || value > 100)
			return CUDA_ERROR_INVALID_VALUE;
		f->carveout = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
		return set_cluster(f, &f->cluster_width, value);
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
		return set_cluster(f, &f->cluster_height, value);
	case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
		return set_cluster(f, &f->cluster_depth, value);
	case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
		if (value != 0 && value != 1)
			return CUDA_ERROR_INVALID_VALUE;
		f->non_portable_cluster = value;
		return CUDA_SUCCESS;
	case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
		if (value < CU_CLUSTER_SCHEDULING_POLICY_DEFAULT ||
			value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
			return CUDA_ERROR_INVALID_VALUE;
		f->cluster_policy = value;
		return CUDA_SUCCESS;
	default: /* the others are properties of the code */
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attr, CUfunction fn)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	return drv_leave(value ? drv_function_attribute(f, attr, value) : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction fn, CUfunction_attribute attr, int value)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	return r ? r : drv_leave(drv_function_set(f, attr, value));
}

CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction fn, CUfunc_cache config)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	return drv_leave((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL
				 ? CUDA_ERROR_INVALID_VALUE
				 : CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncSetSharedMemConfig(CUfunction fn, CUsharedconfig config)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	return drv_leave((unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
				 ? CUDA_ERROR_INVALID_VALUE
				 : CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetModule(CUmodule *m, CUfunction fn)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!m)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*m = f->module;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetName(const char **name, CUfunction fn)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!name)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*name = f->info.name;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction fn, size_t index, size_t *offset, size_t *bytes)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!offset || index >= f->info.n_params)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*offset = f->info.param_offset[index];
	if (bytes)
		*bytes = f->info.param_size[index];
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction fn)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!state)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*state = drv.strict && !f->loaded ? CU_FUNCTION_LOADING_STATE_UNLOADED : CU_FUNCTION_LOADING_STATE_LOADED;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncLoad(CUfunction fn)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	bool first = !f->loaded;
	f->loaded = true;
	drv_leave(CUDA_SUCCESS);
	if (first)
		drv_hold();
	return CUDA_SUCCESS;
}

/* -- occupancy ------------------------------------------------------------------------------- */

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *blocks, CUfunction fn, int threads, size_t shared, unsigned int flags)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!blocks || threads <= 0 || flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*blocks = shared > UINT32_MAX || (uint32_t)threads > f->info.max_threads
			  ? 0
			  : (int)sg_occupancy(
				    drv.dev, f->kernel, (uint32_t)threads, (uint32_t)shared);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, CUfunction fn, int threads, size_t shared)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, fn, threads, shared, 0);
}

/* The block size that keeps most threads resident, the largest of equals; the grid that fills the
 * device. */
static void best_block(const struct CUfunc_st *f, const CUoccupancyB2DSize shared_of, size_t shared,
	uint32_t limit, int *grid, int *threads)
{
	uint32_t best = 0;
	*grid = *threads = 0;
	for (uint32_t n = limit; n; n = n % 32 ? n - n % 32 : n - 32) {
		size_t bytes = shared_of ? shared_of((int)n) : shared;
		uint32_t blocks = bytes > UINT32_MAX
					  ? 0
					  : sg_occupancy(drv.dev, f->kernel, n, (uint32_t)bytes);
		if (blocks * n <= best)
			continue;
		best = blocks * n;
		*threads = (int)n;
		*grid = (int)(blocks * drv.config.n_sms);
	}
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *threads, CUfunction fn,
	CUoccupancyB2DSize shared_of, size_t shared, int limit, unsigned int flags)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!grid || !threads || limit < 0 ||
		flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	uint32_t most = f->info.max_threads;
	if (limit && (uint32_t)limit < most)
		most = (uint32_t)limit;
	if (!shared_of) {
		best_block(f, NULL, shared, most, grid, threads);
		return drv_leave(CUDA_SUCCESS);
	}
	/* The application's function is called without the lock; the module is kept meanwhile. */
	f->module->running++;
	pthread_mutex_unlock(&drv.lock);
	best_block(f, shared_of, shared, most, grid, threads);
	pthread_mutex_lock(&drv.lock);
	f->module->running--;
	drv_broadcast();
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuOccupancyMaxPotentialBlockSize(int *grid, int *threads, CUfunction fn,
	CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(
		grid, threads, fn, shared_of, shared, limit, 0);
}

/* The most dynamic shared memory with which that many blocks still fit. */
CUresult CUDAAPI cuOccupancyAvailableDynamicSMemPerBlock(
	size_t *shared, CUfunction fn, int blocks, int threads)
{
	struct CUfunc_st *f;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!shared || blocks <= 0 || threads <= 0 || (uint32_t)threads > f->info.max_threads)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	uint32_t low = 0, high = drv_shared_limit();
	high = high > f->info.static_shared_bytes ? high - f->info.static_shared_bytes : 0;
	if (sg_occupancy(drv.dev, f->kernel, (uint32_t)threads, 0) < (uint32_t)blocks)
		high = 0;
	while (low < high) {
		uint32_t mid = low + (high - low + 1) / 2;
		if (sg_occupancy(drv.dev, f->kernel, (uint32_t)threads, mid) >= (uint32_t)blocks)
			low = mid;
		else
			high = mid - 1;
	}
	*shared = low;
	return drv_leave(CUDA_SUCCESS);
}

/* -- clusters ------------------------------------------------------------------------------------
 */

static CUresult cluster_blocks(const struct CUfunc_st *f, const CUlaunchConfig *c, uint32_t *blocks)
{
	*blocks = 1;
	if (f->info.cluster[0])
		*blocks = f->info.cluster[0] * f->info.cluster[1] * f->info.cluster[2];
	for (unsigned int i = 0; c->attrs && i < c->numAttrs; i++) {
		if (c->attrs[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			continue;
		uint32_t x = c->attrs[i].value.clusterDim.x, y = c->attrs[i].value.clusterDim.y;
		uint32_t z = c->attrs[i].value.clusterDim.z;
		if (!x || !y || !z || x > 16 || y > 16 || z > 16 || x * y * z > 16)
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		*blocks = x * y * z;
	}
	return CUDA_SUCCESS;
}

static CUresult blocks_per_sm(const struct CUfunc_st *f, const CUlaunchConfig *c, uint32_t *blocks)
{
	uint64_t threads = (uint64_t)c->blockDimX * c->blockDimY;
	if (!threads || !c->blockDimZ || threads > 1024 ||
		threads * c->blockDimZ > f->info.max_threads)
		return CUDA_ERROR_INVALID_VALUE;
	*blocks = sg_occupancy(
		drv.dev, f->kernel, (uint32_t)threads * c->blockDimZ, c->sharedMemBytes);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxPotentialClusterSize(
	int *out, CUfunction fn, const CUlaunchConfig *config)
{
	struct CUfunc_st *f;
	uint32_t blocks;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!out || !config)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (drv.config.sm < 90)
		return drv_leave(CUDA_ERROR_NOT_SUPPORTED);
	if ((r = blocks_per_sm(f, config, &blocks)))
		return drv_leave(r);
	uint64_t resident = (uint64_t)blocks * drv.config.n_sms;
	uint32_t limit = f->non_portable_cluster ? 16 : 8;
	*out = resident > limit ? (int)limit : (int)resident;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuOccupancyMaxActiveClusters(int *out, CUfunction fn, const CUlaunchConfig *config)
{
	struct CUfunc_st *f;
	uint32_t blocks, size;
	CUresult r = enter_function(fn, &f);
	if (r)
		return r;
	if (!out || !config)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (drv.config.sm < 90)
		return drv_leave(CUDA_ERROR_NOT_SUPPORTED);
	if ((r = cluster_blocks(f, config, &size)) || (r = blocks_per_sm(f, config, &blocks)))
		return drv_leave(r);
	*out = (int)((uint64_t)blocks * drv.config.n_sms / size);
	return drv_leave(CUDA_SUCCESS);
}
