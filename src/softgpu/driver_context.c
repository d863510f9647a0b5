/* driver_context.c - contexts, the primary one, and each thread's stack of them. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

/* -- the thread's stack ------------------------------------------------------------
 * An entry remembers the context's number, since a destroyed context may still be on the stack of a
 * thread and its address may be used again.
 */
struct entry {
	struct CUctx_st *ctx;
	uint64_t id;
};

struct thread_state {
	struct entry *stack;
	size_t n, cap;
};
static __thread struct thread_state *self;

static void thread_end(void *arg)
{
	struct thread_state *t = arg;
	free(t->stack);
	free(t);
}

static void make_key(void)
{
	pthread_key_create(&drv.thread_key, thread_end);
}

static struct thread_state *thread_self(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (self)
		return self;
	pthread_once(&once, make_key);
	self = calloc(1, sizeof(*self));
	if (self)
		pthread_setspecific(drv.thread_key, self);
	return self;
}

static bool alive(const struct entry *e)
{
	for (struct CUctx_st *c = drv.contexts; c; c = c->next)
		if (c == e->ctx)
			/* The primary context keeps its address over its lives, as on hardware. */
			return (c->primary || c->id == e->id) && !c->closing;
	return false;
}

struct CUctx_st *drv_current(void)
{
	struct entry *top = self && self->n ? &self->stack[self->n - 1] : NULL;
	return top && top->ctx && alive(top) ? top->ctx : NULL;
}

static CUresult push(struct CUctx_st *ctx)
{
	struct thread_state *t = thread_self();
	if (!t)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (t->n == t->cap) {
		size_t cap = t->cap ? t->cap * 2 : 8;
		struct entry *stack = realloc(t->stack, cap * sizeof(*stack));
		if (!stack)
			return CUDA_ERROR_OUT_OF_MEMORY;
		t->stack = stack;
		t->cap = cap;
	}
	t->stack[t->n++] = (struct entry){ ctx, ctx ? ctx->id : 0 };
	return CUDA_SUCCESS;
}

/* -- making and ending --------------------------------------------------------------- */

void drv_ctx_put(struct CUctx_st *ctx)
{
	if (!--ctx->refs && !ctx->primary)
		free(ctx);
}

bool drv_ctx_destroyed(void)
{
	return self && self->n && self->stack[self->n - 1].ctx && !alive(&self->stack[self->n - 1]);
}

static void ctx_set(struct CUctx_st *c, CUdevice dev, unsigned int flags, bool primary)
{
	unsigned int refs =
		c->refs; /* of waiters that have yet to notice the end of an earlier life */
	memset(c, 0, sizeof(*c));
	c->object.kind = DRV_CONTEXT;
	c->refs = refs + 1;
	c->id = ++drv.next_ctx_id;
	c->flags = flags;
	c->primary = primary;
	c->device = dev;
	c->uses = 1;
	c->limits[CU_LIMIT_STACK_SIZE] = 1024;
	c->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	c->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	c->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	c->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	c->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
}

static CUresult ctx_new(
	struct CUctx_st *c, CUdevice dev, unsigned int flags, bool primary, struct CUctx_st **out)
{
	if (!c && !(c = calloc(1, sizeof(*c))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx_set(c, dev, flags, primary);
	if (drv_add_handle(&c->object)) {
		drv_ctx_put(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->legacy = drv_stream_new(c, CU_STREAM_DEFAULT, 0);
	if (!c->legacy) {
		drv_remove_handle(&c->object);
		drv_ctx_put(c);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->next = drv.contexts;
	drv.contexts = c;
	*out = c;
	return CUDA_SUCCESS;
}

CUresult drv_ctx_drain(struct CUctx_st *ctx)
{
	/* The list may change while the lock is away, so each round starts over; work that is
	 * submitted during the wait does not prolong it. */
	struct point {
		struct CUstream_st *s;
		uint64_t seq;
	} *points = NULL;
	size_t n = 0;
	for (struct CUstream_st *s = ctx->streams; s; s = s->next)
		n++;
	points = calloc(n + 1, sizeof(*points));
	if (!points)
		return CUDA_ERROR_OUT_OF_MEMORY;
	n = 0;
	ctx->refs++;
	for (struct CUstream_st *s = ctx->streams; s; s = s->next) {
		points[n++] = (struct point){ s, s->submitted };
		s->refs++;
	}
	for (size_t i = 0; i < n; i++) {
		drv_stream_wait(points[i].s, points[i].seq);
		drv_stream_put(points[i].s);
	}
	free(points);
	CUresult error = ctx->error;
	drv_ctx_put(ctx);
	return error;
}

static void free_allocs(struct CUctx_st *ctx)
{
	for (;;) {
		size_t pos = 0;
		struct drv_alloc *a;
		while ((a = table_next(drv.allocs, &pos, NULL, NULL)) && a->ctx != ctx)
			;
		if (!a)
			return;
		drv_alloc_release(a);
	}
}

static void ctx_free(struct CUctx_st *ctx)
{
	ctx->closing = true;
	drv_remove_handle(&ctx->object);
	drv_broadcast();
	drv_ctx_drain(ctx);
	while (ctx->modules)
		drv_module_free(ctx->modules);
	while (ctx->events) {
		struct CUevent_st *e = ctx->events;
		ctx->events = e->next;
		drv_event_free(e);
	}
	while (ctx->streams)
		drv_stream_retire(ctx->streams);
	free_allocs(ctx);
	for (struct CUctx_st **at = &drv.contexts; *at; at = &(*at)->next)
		if (*at == ctx) {
			*at = ctx->next;
			break;
		}
	drv_ctx_put(ctx);
}

static bool flags_ok(unsigned int flags)
{
	unsigned int sched = flags & CU_CTX_SCHED_MASK;
	return !(flags & ~(unsigned int)CU_CTX_FLAGS_MASK) &&
	       (sched <= 2 || sched == CU_CTX_SCHED_BLOCKING_SYNC);
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice dev)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out || !flags_ok(flags))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	struct CUctx_st *ctx;
	r = ctx_new(NULL, dev, flags, false, &ctx);
	if (!r && (r = push(ctx)))
		ctx_free(ctx);
	else if (!r)
		*out = ctx;
	return drv_leave(r);
}

CUresult CUDAAPI cuCtxCreate_v3(
	CUcontext *ctx, CUexecAffinityParam *affinity, int n, unsigned int flags, CUdevice dev)
{
	if (n < 0 || (n && !affinity))
		return CUDA_ERROR_INVALID_VALUE;
	if (n) /* a share of the SMs: only under MPS on hardware */
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return cuCtxCreate_v2(ctx, flags, dev);
}

CUresult CUDAAPI cuCtxCreate_v4(
	CUcontext *ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	if (params && params->cigParams)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!params)
		return cuCtxCreate_v2(ctx, flags, dev);
	return cuCtxCreate_v3(
		ctx, params->execAffinityParams, params->numExecAffinityParams, flags, dev);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUctx_st *ctx = drv_find(handle, DRV_CONTEXT);
	if (!ctx || ctx->primary)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (self && self->n && self->stack[self->n - 1].ctx == ctx)
		self->n--;
	ctx_free(ctx);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

CUresult CUDAAPI cuCtxAttach(CUcontext *out, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!out || flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	ctx->uses++;
	*out = ctx;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxDetach(CUcontext handle)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter_failed(&ctx);
	if (r)
		return r;
	if (handle != ctx || ctx->primary)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!--ctx->uses) {
		self->n--;
		ctx_free(ctx);
	}
	return drv_leave(CUDA_SUCCESS);
}

/* -- the primary context ---------------------------------------------------------------- */

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	/* A reset or last release may be ending the old one. */
	struct drv_device *d = &drv.devices[dev];
	while (d->primary && d->primary->closing)
		drv_wait();
	if (d->primary)
		d->primary->uses++;
	else if (!(r = ctx_new(d->old_primary, dev, d->primary_flags, true, &d->primary)))
		d->old_primary = d->primary;
	if (!r)
		*out = d->primary;
	return drv_leave(r);
}

static void primary_free(struct drv_device *d)
{
	ctx_free(d->primary);
	d->primary = NULL;
	drv_broadcast();
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	struct drv_device *d = &drv.devices[dev];
	if (!d->primary || d->primary->closing || !d->primary->uses)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!--d->primary->uses)
		primary_free(d);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	struct drv_device *d = &drv.devices[dev];
	d->primary_flags = 0;
	if (d->primary && !d->primary->closing)
		primary_free(d);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxReset(CUdevice dev)
{
	return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!flags_ok(flags))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct drv_device *d = &drv.devices[dev];
	d->primary_flags = flags;
	if (d->primary)
		d->primary->flags = flags;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	if (drv_device_ok(dev) &&
		drv.devices[dev].primary) /* the first version could not change an active context */
		return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
	return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!flags || !active)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	const struct drv_device *d = &drv.devices[dev];
	*flags = d->primary ? d->primary->flags : d->primary_flags;
	*active = d->primary && !d->primary->closing;
	return drv_leave(CUDA_SUCCESS);
}

/* -- current ---------------------------------------------------------------------------- */

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUctx_st *ctx = drv_find(handle, DRV_CONTEXT);
	return drv_leave(ctx ? push(ctx) : CUDA_ERROR_INVALID_CONTEXT);
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *out)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!self || !self->n)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (out)
		*out = drv_current();
	self->n--;
	return drv_leave(CUDA_SUCCESS);
}

/* NULL pops what is on top; a context replaces it. */
CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUctx_st *ctx = NULL;
	if (handle && !(ctx = drv_find(handle, DRV_CONTEXT)))
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (self && self->n)
		self->n--;
	return drv_leave(ctx ? push(ctx) : CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*out = drv_current();
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *dev)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter_failed(&ctx);
	if (r)
		return r;
	if (!dev)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*dev = ctx->device;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *dev, CUcontext handle)
{
	if (!handle)
		return cuCtxGetDevice(dev);
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!dev)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	const struct CUctx_st *ctx = drv_find(handle, DRV_CONTEXT);
	if (!ctx)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	*dev = ctx->device;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	r = drv_capture_unsafe();
	return drv_leave(r ? r : drv_ctx_drain(ctx));
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle)
{
	if (!handle)
		return cuCtxSynchronize();
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUctx_st *ctx = drv_find(handle, DRV_CONTEXT);
	return drv_leave(ctx ? drv_ctx_drain(ctx) : CUDA_ERROR_INVALID_CONTEXT);
}

/* -- properties ------------------------------------------------------------------------- */

CUresult CUDAAPI cuCtxGetFlags(unsigned int *flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = ctx->flags;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetFlags(unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!flags_ok(flags))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	ctx->flags = flags;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long *id)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUctx_st *ctx = handle ? drv_find(handle, DRV_CONTEXT) : drv_current();
	if (!ctx)
		return drv_leave(CUDA_ERROR_CONTEXT_IS_DESTROYED);
	if (!id)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*id = ctx->id;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext handle, unsigned int *version)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!(handle ? drv_find(handle, DRV_CONTEXT) : drv_current()))
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!version)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*version = 3020;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!value)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((unsigned int)limit >= DRV_N_LIMITS)
		return drv_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
	*value = ctx->limits[limit];
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if ((unsigned int)limit > CU_LIMIT_PERSISTING_L2_CACHE_SIZE)
		return drv_leave(CUDA_ERROR_UNSUPPORTED_LIMIT);
	if (limit == CU_LIMIT_STACK_SIZE && value > 512 << 10)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	ctx->limits[limit] = value;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *config)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!config)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*config = ctx->cache;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if ((unsigned int)config > CU_FUNC_CACHE_PREFER_EQUAL)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	ctx->cache = config;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!config)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE; /* fixed since Maxwell */
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	return drv_leave((unsigned int)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
				 ? CUDA_ERROR_INVALID_VALUE
				 : CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxResetPersistingL2Cache(void)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	return r ? r : drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetExecAffinity(CUexecAffinityParam *affinity, CUexecAffinityType type)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!affinity || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	affinity->type = type;
	affinity->param.smCount.val = drv.config.n_sms;
	return drv_leave(CUDA_SUCCESS);
}

/* A context reaches all memory as it is; that access was asked for is remembered, no more. A device
 * is no peer of itself. */
static CUresult peer_of(CUcontext handle, struct CUctx_st **ctx, uint32_t *bit)
{
	CUresult r = drv_enter(ctx);
	if (r)
		return r;
	const struct CUctx_st *peer = drv_find(handle, DRV_CONTEXT);
	if (!peer)
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	*bit = peer->device == (*ctx)->device ? 0 : 1u << peer->device;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	struct CUctx_st *ctx;
	uint32_t bit;
	CUresult r = peer_of(peer, &ctx, &bit);
	if (r)
		return r;
	if (flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!bit)
		return drv_leave(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	if (ctx->peers & bit)
		return drv_leave(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	ctx->peers |= bit;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer)
{
	struct CUctx_st *ctx;
	uint32_t bit;
	CUresult r = peer_of(peer, &ctx, &bit);
	if (r)
		return r;
	if (!(ctx->peers & bit))
		return drv_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	ctx->peers &= ~bit;
	return drv_leave(CUDA_SUCCESS);
}
