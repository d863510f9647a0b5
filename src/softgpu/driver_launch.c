/* driver_launch.c - kernel launches. Everything that hardware reports at the call is checked at the
 * call: once queued, a grid can only fail by what it does. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

struct launch {
	struct sg_launch start;
	struct CUmod_st *module;
	uint8_t params[];
};

/* -- checks ------------------------------------------------------------------------------- */

static CUresult check_shape(const struct CUfunc_st *f, const struct drv_shape *s)
{
	const struct sg_kernel_info *info = &f->info;
	for (int i = 0; i < 3; i++)
		if (!s->grid[i] || !s->block[i] || s->block[i] > (i == 2 ? 64u : 1024u) ||
			s->grid[i] > (i ? 65535u : 0x7fffffffu))
			return CUDA_ERROR_INVALID_VALUE;
	uint64_t threads = (uint64_t)s->block[0] * s->block[1] * s->block[2];
	if (threads > 1024 || threads > info->max_threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (info->reqntid[0])
		for (int i = 0; i < 3; i++)
			if (s->block[i] != (info->reqntid[i] ? info->reqntid[i] : 1))
				return CUDA_ERROR_INVALID_VALUE;
	if (s->shared > (uint32_t)f->max_dynamic_shared)
		return CUDA_ERROR_INVALID_VALUE;
	if (!sg_occupancy(drv.dev, f->kernel, (uint32_t)threads, s->shared))
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	return CUDA_SUCCESS;
}

/* A cluster comes from the launch, from an attribute of the function or from the code. */
static CUresult check_cluster(const struct CUfunc_st *f, struct drv_shape *s)
{
	const uint32_t *fixed = f->info.cluster;
	if (fixed[0]) {
		for (int i = 0; i < 3; i++) {
			uint32_t want = fixed[i] ? fixed[i] : 1;
			if (s->cluster[0] && s->cluster[i] != want)
				return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		}
		for (int i = 0; i < 3; i++)
			s->cluster[i] = fixed[i] ? fixed[i] : 1;
	} else if (!s->cluster[0] && f->cluster_width) {
		s->cluster[0] = (uint32_t)f->cluster_width;
		s->cluster[1] = f->cluster_height ? (uint32_t)f->cluster_height : 1;
		s->cluster[2] = f->cluster_depth ? (uint32_t)f->cluster_depth : 1;
	}
	if (!s->cluster[0])
		return CUDA_SUCCESS;
	uint64_t blocks = 1;
	for (int i = 0; i < 3; i++) {
		if (!s->cluster[i] || s->cluster[i] > 16 || s->grid[i] % s->cluster[i])
			return CUDA_ERROR_INVALID_CLUSTER_SIZE;
		blocks *= s->cluster[i];
	}
	if (blocks > (f->non_portable_cluster ? 16 : 8))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	if (blocks > 1 && drv.config.sm < 90)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult check_cooperative(const struct CUfunc_st *f, const struct drv_shape *s)
{
	if (!s->cooperative)
		return CUDA_SUCCESS;
	uint32_t threads = s->block[0] * s->block[1] * s->block[2];
	uint64_t room =
		(uint64_t)sg_occupancy(drv.dev, f->kernel, threads, s->shared) * drv.config.n_sms;
	uint64_t blocks = (uint64_t)s->grid[0] * s->grid[1] * s->grid[2];
	return blocks > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

/* -- parameters ----------------------------------------------------------------------------- */

/* The packed block of `extra`: {BUFFER_POINTER, p, BUFFER_SIZE, &n, END}. */
static CUresult extra_params(const struct sg_kernel_info *info, void **extra, uint8_t *to)
{
	const void *buffer = NULL;
	const size_t *bytes = NULL;
	int i = 0;
	for (; i < 4 && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
		if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[i + 1];
		else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			bytes = extra[i + 1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (extra[i] != CU_LAUNCH_PARAM_END ||
		(info->param_bytes && (!buffer || !bytes || *bytes < info->param_bytes)))
		return CUDA_ERROR_INVALID_VALUE;
	if (info->param_bytes)
		memcpy(to, buffer, info->param_bytes);
	return CUDA_SUCCESS;
}

static CUresult pack_params(
	const struct sg_kernel_info *info, void **params, void **extra, uint8_t *to)
{
	if (params && extra)
		return CUDA_ERROR_INVALID_VALUE;
	if (extra)
		return extra_params(info, extra, to);
	if (info->n_params && !params)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < info->n_params; i++) {
		if (!params[i])
			return CUDA_ERROR_INVALID_VALUE;
		memcpy(to + info->param_offset[i], params[i], info->param_size[i]);
	}
	return CUDA_SUCCESS;
}

/* -- starting -------------------------------------------------------------------------------- */

/* The module may go from now on. */
static void account(struct drv_op *op, CUresult error)
{
	struct launch *l = (void *)op->data;
	if (error)
		drv_fail(op->stream->ctx, error);
	pthread_mutex_lock(&drv.lock);
	l->module->running--;
	op->stream->ctx->n_launched--;
	pthread_mutex_unlock(&drv.lock);
}

static void ended(void *arg, CUresult error)
{
	account(arg, error);
	drv_op_end(arg);
}

static bool run_launch(struct drv_op *op, bool skip)
{
	struct launch *l = (void *)op->data;
	CUresult r = CUDA_SUCCESS;
	if (!skip && !(r = sg_grid_start(drv.dev, &l->start, ended, op)))
		return false;
	account(op, r);
	return true;
}

/* Everything that can be said against the launch. A kernel of a library goes where ctx is. */
CUresult drv_kernel_check(
	struct CUctx_st *ctx, const void *handle, struct drv_shape *s, struct CUfunc_st **f)
{
	CUresult r = drv_function_of(ctx, handle, f);
	if (r)
		return r;
	if ((*f)->module->ctx != ctx && drv_find(handle, DRV_FUNCTION))
		return CUDA_ERROR_INVALID_HANDLE;
	if ((r = check_shape(*f, s)) || (r = check_cluster(*f, s)))
		return r;
	return check_cooperative(*f, s);
}

CUresult drv_kernel_pack(const struct CUfunc_st *f, void **params, void **extra, uint8_t *packed)
{
	return pack_params(&f->info, params, extra, packed);
}

static CUresult submit_launch(struct CUstream_st *stream, struct CUfunc_st *f,
	const struct drv_shape *s, struct drv_op *op)
{
	struct launch *l = (void *)op->data;
	l->module = f->module;
	l->start = (struct sg_launch){ .kernel = f->kernel,
		.dynamic_shared_bytes = s->shared,
		.params = l->params,
		.cooperative = s->cooperative };
	memcpy(l->start.grid, s->grid, sizeof(s->grid));
	memcpy(l->start.block, s->block, sizeof(s->block));
	memcpy(l->start.cluster, s->cluster, sizeof(s->cluster));
	f->module->running++;
	stream->ctx->n_launched++;
	CUresult r = drv_submit(stream, op, true);
	if (r) {
		f->module->running--;
		stream->ctx->n_launched--;
	}
	return r;
}

CUresult drv_kernel_run(struct CUstream_st *stream, const void *handle,
	const struct drv_shape *shape, const uint8_t *packed)
{
	struct CUfunc_st *f;
	struct drv_shape s = *shape;
	CUresult r = drv_kernel_check(stream->ctx, handle, &s, &f);
	if (r)
		return r;
	struct drv_op *op = drv_op_new(run_launch, sizeof(struct launch) + f->info.param_bytes);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(((struct launch *)op->data)->params, packed, f->info.param_bytes);
	return submit_launch(stream, f, &s, op);
}

void drv_hold(void)
{
	struct CUctx_st *ctx;
	if (!drv.strict || drv_enter(&ctx))
		return;
	ctx->refs++;
	while (ctx->n_launched && !ctx->closing)
		drv_wait();
	drv_ctx_put(ctx);
	drv_leave(CUDA_SUCCESS);
}

/* NVIDIA's driver loads a function when it is launched for the first time. */
static void load_lazily(void *handle)
{
	struct CUctx_st *ctx;
	struct CUfunc_st *f;
	if (drv_enter(&ctx))
		return;
	bool first = !drv_function_of(ctx, handle, &f) && !f->loaded;
	if (first)
		f->loaded = true;
	drv_leave(CUDA_SUCCESS);
	if (first)
		drv_hold();
}

/* Holds the lock. */
static CUresult launch(
	struct CUctx_st *ctx, void *handle, struct drv_shape *s, void **params, void **extra)
{
	struct CUfunc_st *f;
	struct CUstream_st *stream;
	CUresult r;
	if ((r = drv_stream_of(ctx, s->stream, &stream)))
		return r;
	if (stream->capture) {
		struct drv_work work;
		r = drv_work_kernel(stream->ctx, handle, s, params, extra, &work);
		return r ? r : drv_capture_add(stream, &work, NULL);
	}
	if ((r = drv_kernel_check(stream->ctx, handle, s, &f)))
		return r;
	struct drv_op *op = drv_op_new(run_launch, sizeof(struct launch) + f->info.param_bytes);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if ((r = pack_params(&f->info, params, extra, ((struct launch *)op->data)->params))) {
		drv_op_free(op);
		return r;
	}
	return submit_launch(stream, f, s, op);
}

static CUresult launch_call(void *handle, struct drv_shape *s, void **params, void **extra)
{
	struct CUctx_st *ctx;
	if (drv.strict)
		load_lazily(handle);
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	r = drv_leave(launch(ctx, handle, s, params, extra));
	if (!r && s->event)
		r = cuEventRecord(s->event, s->stream);
	return r;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction fn, unsigned int grid_x, unsigned int grid_y,
	unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
	unsigned int shared, CUstream stream, void **params, void **extra)
{
	struct drv_shape s = { .grid = { grid_x, grid_y, grid_z },
		.block = { block_x, block_y, block_z },
		.shared = shared,
		.stream = stream };
	return launch_call(fn, &s, params, extra);
}

CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction fn, unsigned int grid_x, unsigned int grid_y,
	unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
	unsigned int shared, CUstream stream, void **params)
{
	struct drv_shape s = { .grid = { grid_x, grid_y, grid_z },
		.block = { block_x, block_y, block_z },
		.shared = shared,
		.stream = stream,
		.cooperative = true };
	return launch_call(fn, &s, params, NULL);
}

/* What only tunes hardware has no effect here. */
static CUresult apply(const CUlaunchAttribute *a, struct drv_shape *s)
{
	switch (a->id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		s->cooperative = a->value.cooperative;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		s->cluster[0] = a->value.clusterDim.x;
		s->cluster[1] = a->value.clusterDim.y;
		s->cluster[2] = a->value.clusterDim.z;
		return s->cluster[0] ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: /* recorded at the end, later than it might be
						      */
		s->event = a->value.programmaticEvent.event;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
		s->event = a->value.launchCompletionEvent.event;
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
		return a->value.deviceUpdatableKernelNode.deviceUpdatable ? CUDA_ERROR_NOT_SUPPORTED
									  : CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuLaunchKernelEx(
	const CUlaunchConfig *c, CUfunction fn, void **params, void **extra)
{
	if (!c || (c->numAttrs && !c->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	struct drv_shape s = { .grid = { c->gridDimX, c->gridDimY, c->gridDimZ },
		.block = { c->blockDimX, c->blockDimY, c->blockDimZ },
		.shared = c->sharedMemBytes,
		.stream = c->hStream };
	CUresult r = CUDA_SUCCESS;
	for (unsigned int i = 0; i < c->numAttrs && !r; i++)
		r = apply(&c->attrs[i], &s);
	return r ? r : launch_call(fn, &s, params, extra);
}

/* -- the way before 4.0: shape and parameters are state of the function ---------------------------
 */

static CUresult enter_old(CUfunction handle, struct CUfunc_st **f)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	r = drv_function_of(ctx, handle, f);
	if (!r && !(*f)->old_params && !((*f)->old_params = calloc(1, (*f)->info.param_bytes + 1)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	return r ? drv_leave(r) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncSetBlockShape(CUfunction fn, int x, int y, int z)
{
	struct CUfunc_st *f;
	CUresult r = enter_old(fn, &f);
	if (r)
		return r;
	if (x <= 0 || y <= 0 || z <= 0)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	f->shape[0] = x;
	f->shape[1] = y;
	f->shape[2] = z;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncSetSharedSize(CUfunction fn, unsigned int bytes)
{
	struct CUfunc_st *f;
	CUresult r = enter_old(fn, &f);
	if (r)
		return r;
	f->old_shared = bytes;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuParamSetSize(CUfunction fn, unsigned int bytes)
{
	struct CUfunc_st *f;
	CUresult r = enter_old(fn, &f);
	return r ? r
		 : drv_leave(bytes < f->info.param_bytes ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
}

CUresult CUDAAPI cuParamSetv(CUfunction fn, int offset, void *data, unsigned int bytes)
{
	struct CUfunc_st *f;
	CUresult r = enter_old(fn, &f);
	if (r)
		return r;
	if (offset < 0 || !data || (uint64_t)offset + bytes > f->info.param_bytes)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	memcpy(f->old_params + offset, data, bytes);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuParamSeti(CUfunction fn, int offset, unsigned int value)
{
	return cuParamSetv(fn, offset, &value, sizeof(value));
}

CUresult CUDAAPI cuParamSetf(CUfunction fn, int offset, float value)
{
	return cuParamSetv(fn, offset, &value, sizeof(value));
}

CUresult CUDAAPI cuLaunchGridAsync(CUfunction fn, int width, int height, CUstream stream)
{
	struct CUctx_st *ctx;
	struct CUfunc_st *f;
	CUresult r = enter_old(fn, &f);
	if (r)
		return r;
	if (width <= 0 || height <= 0)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	ctx = drv_current();
	struct drv_shape s = { .grid = { (uint32_t)width, (uint32_t)height, 1 },
		.block = { (uint32_t)f->shape[0], (uint32_t)f->shape[1], (uint32_t)f->shape[2] },
		.shared = f->old_shared,
		.stream = stream };
	size_t bytes = f->info.param_bytes;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, f->old_params,
		CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	return drv_leave(launch(ctx, fn, &s, NULL, extra));
}

CUresult CUDAAPI cuLaunchGrid(CUfunction fn, int width, int height)
{
	return cuLaunchGridAsync(fn, width, height, NULL);
}

CUresult CUDAAPI cuLaunch(CUfunction fn)
{
	return cuLaunchGridAsync(fn, 1, 1, NULL);
}
