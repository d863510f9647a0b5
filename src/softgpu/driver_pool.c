/* driver_pool.c - stream-ordered allocation. Memory is found when the call is made, which is
 * earlier than the stream needs it, and given back when the stream gets to the free. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

static CUresult enter_pool(CUmemoryPool handle, struct CUmemPoolHandle_st **pool)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*pool = drv_find(handle, DRV_POOL);
	return *pool ? CUDA_SUCCESS : drv_leave(CUDA_ERROR_INVALID_VALUE);
}

static CUresult alloc_from(
	struct CUctx_st *ctx, struct CUmemPoolHandle_st *pool, CUdeviceptr *out, size_t bytes)
{
	uint64_t addr;
	if (pool->max_bytes && (bytes > pool->max_bytes || pool->used > pool->max_bytes - bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = drv_device_room(pool->device, bytes) ? sg_mem_alloc(drv.dev, bytes, &addr)
							  : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_ERROR_OUT_OF_MEMORY) {
		/* What queued frees hold becomes free when they have run. */
		if ((r = drv_ctx_drain(ctx)))
			return r;
		r = drv_device_room(pool->device, bytes) ? sg_mem_alloc(drv.dev, bytes, &addr)
							 : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r)
		return r;
	struct drv_alloc *a = drv_alloc_add(ctx, addr, bytes, DRV_MEM_POOL, 0);
	if (!a) {
		sg_mem_free(drv.dev, addr);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	a->pool = pool;
	pool->used += bytes;
	if (pool->used > pool->used_high)
		pool->used_high = pool->used;
	*out = addr;
	return CUDA_SUCCESS;
}

static CUresult alloc_async(CUdeviceptr *addr, size_t bytes, CUmemoryPool handle, CUstream stream)
{
	struct CUctx_st *ctx;
	struct CUstream_st *s;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUmemPoolHandle_st *pool =
		handle ? drv_find(handle, DRV_POOL) : drv.devices[ctx->device].current_pool;
	if (!addr || !bytes || !pool)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = drv_stream_of(ctx, stream, &s)))
		return drv_leave(r);
	if (s->capture)
		return drv_leave(drv_capture_alloc(s, bytes, addr));
	return drv_leave(alloc_from(s->ctx, pool, addr, bytes));
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *addr, size_t bytes, CUstream stream)
{
	return alloc_async(addr, bytes, NULL, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(
	CUdeviceptr *addr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return pool ? alloc_async(addr, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

static bool run_free(struct drv_op *op, bool skip)
{
	struct drv_alloc *a;
	memcpy(&a, op->data, sizeof(a));
	pthread_mutex_lock(&drv.lock);
	drv_alloc_release(a);
	pthread_mutex_unlock(&drv.lock);
	return true;
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr addr, CUstream stream)
{
	struct CUctx_st *ctx;
	struct CUstream_st *s;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct drv_alloc *a = drv_alloc_at(addr);
	if (!addr)
		return drv_leave(CUDA_SUCCESS);
	if (!a || a->freeing ||
		(a->kind != DRV_MEM_POOL && a->kind != DRV_MEM_DEVICE && a->kind != DRV_MEM_GRAPH))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = drv_stream_of(ctx, stream, &s)))
		return drv_leave(r);
	if (s->capture) {
		struct drv_work work = { .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
			.mem = { .addr = addr } };
		return drv_leave(drv_capture_add(s, &work, NULL));
	}
	if (a->kind == DRV_MEM_GRAPH) /* the graph's: it keeps it for its next launch */
		return drv_leave(CUDA_SUCCESS);
	struct drv_op *op = drv_op_new(run_free, sizeof(a));
	if (!op)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	memcpy(op->data, &a, sizeof(a));
	a->freeing = true;
	if ((r = drv_submit(s, op, true)))
		a->freeing = false;
	return drv_leave(r);
}

/* -- pools ----------------------------------------------------------------------------- */

static CUresult give_pool(CUmemoryPool *out, CUdevice dev, bool standard)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	*out = standard ? drv.devices[dev].default_pool : drv.devices[dev].current_pool;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
	return give_pool(pool, dev, true);
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	return give_pool(pool, dev, false);
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool handle)
{
	struct CUmemPoolHandle_st *pool;
	CUresult r = enter_pool(handle, &pool);
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	if (pool->device != dev)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	drv.devices[dev].current_pool = pool;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
		props->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		!drv_device_ok(props->location.id))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (props->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
		return drv_leave(CUDA_ERROR_NOT_SUPPORTED);
	struct CUmemPoolHandle_st *p = calloc(1, sizeof(*p));
	if (!p)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*p = (struct CUmemPoolHandle_st){ .object.kind = DRV_POOL,
		.device = props->location.id,
		.max_bytes = props->maxSize,
		.follow_events = 1,
		.opportunistic = 1,
		.internal_deps = 1 };
	if (drv_add_handle(&p->object)) {
		free(p);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	p->next = drv.pools;
	drv.pools = p;
	*out = p;
	return drv_leave(CUDA_SUCCESS);
}

/* What is still allocated stays until it is freed: the default pool takes it over. */
static void hand_over(struct CUmemPoolHandle_st *from, struct CUmemPoolHandle_st *to)
{
	size_t pos = 0;
	struct drv_alloc *a;
	while ((a = table_next(drv.allocs, &pos, NULL, NULL)))
		if (a->pool == from)
			a->pool = to;
	to->used += from->used;
	if (to->used > to->used_high)
		to->used_high = to->used;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle)
{
	struct CUmemPoolHandle_st *pool;
	CUresult r = enter_pool(handle, &pool);
	if (r)
		return r;
	if (pool->is_default)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct drv_device *d = &drv.devices[pool->device];
	if (d->current_pool == pool)
		d->current_pool = d->default_pool;
	hand_over(pool, d->default_pool);
	for (struct CUmemPoolHandle_st **at = &drv.pools; *at; at = &(*at)->next)
		if (*at == pool) {
			*at = pool->next;
			break;
		}
	drv_remove_handle(&pool->object);
	free(pool);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, size_t keep)
{
	struct CUmemPoolHandle_st *pool;
	CUresult r = enter_pool(handle, &pool);
	return r ? r : drv_leave(CUDA_SUCCESS); /* nothing is held back that could be trimmed */
}

static int *int_attribute(struct CUmemPoolHandle_st *p, CUmemPool_attribute attr)
{
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
		return &p->follow_events;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
		return &p->opportunistic;
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		return &p->internal_deps;
	default:
		return NULL;
	}
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	struct CUmemPoolHandle_st *p;
	CUresult r = enter_pool(handle, &p);
	if (r)
		return r;
	const int *flag = int_attribute(p, attr);
	if (!value)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (flag)
		memcpy(value, flag, sizeof(*flag));
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		memcpy(value, &p->threshold, 8);
	else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ||
		 attr == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
		memcpy(value, &p->used, 8);
	else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		memcpy(value, &p->used_high, 8);
	else
		r = CUDA_ERROR_INVALID_VALUE;
	return drv_leave(r);
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attr, void *value)
{
	struct CUmemPoolHandle_st *p;
	CUresult r = enter_pool(handle, &p);
	if (r)
		return r;
	int *flag = int_attribute(p, attr);
	uint64_t v;
	if (!value)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (flag)
		memcpy(flag, value, sizeof(*flag));
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		memcpy(&p->threshold, value, 8);
	else if (attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
		 attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
		memcpy(&v, value, 8);
		if (v) /* a high-water mark can only be reset */
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
		p->used_high = p->used;
	} else
		r = CUDA_ERROR_INVALID_VALUE;
	return drv_leave(r);
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *descs, size_t n)
{
	struct CUmemPoolHandle_st *p;
	CUresult r = enter_pool(handle, &p);
	if (r)
		return r;
	if (!descs && n)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n; i++) {
		if (descs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
		if (!drv_device_ok(descs[i].location.id))
			return drv_leave(CUDA_ERROR_INVALID_DEVICE);
		if (descs[i].flags !=
			CU_MEM_ACCESS_FLAGS_PROT_READWRITE) /* its own device keeps access */
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemPoolGetAccess(
	CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location)
{
	struct CUmemPoolHandle_st *p;
	CUresult r = enter_pool(handle, &p);
	if (r)
		return r;
	if (!flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
		!drv_device_ok(location->id))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return drv_leave(CUDA_SUCCESS);
}
