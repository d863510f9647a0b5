/* driver_queue.c - calls on streams: make, query, wait, call back, write and wait for values. */
#include "softgpu/driver.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Enters with the stream that a handle names. */
static CUresult enter_stream(CUstream handle, struct CUstream_st **s)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	r = drv_stream_of(ctx, handle, s);
	return r ? drv_leave(r) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	if (!out || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct CUstream_st *s = drv_stream_new(ctx, flags, priority);
	if (!s)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	if (drv_add_handle(&s->object)) {
		drv_stream_put(s);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*out = s;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned int flags)
{
	return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter_failed(&ctx);
	if (r)
		return r;
	struct CUstream_st *s =
		drv_find(handle, DRV_STREAM); /* the default streams have no entry */
	if (!s)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	drv_capture_forget(s);
	drv_remove_handle(&s->object);
	drv_stream_retire(s);
	return drv_leave(ctx->error);
}

CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
	return cuStreamDestroy_v2(stream);
}

CUresult CUDAAPI cuStreamGetPriority(CUstream stream, int *priority)
{
	struct CUstream_st *s;
	if (!priority)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	*priority = s->priority;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
	struct CUstream_st *s;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	*flags = s->flags;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetId(CUstream stream, unsigned long long *id)
{
	struct CUstream_st *s;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	*id = s->ctx->id << 32 | s->id;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream stream, CUcontext *ctx)
{
	struct CUstream_st *s;
	if (!ctx)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	*ctx = s->ctx;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetDevice(CUstream stream, CUdevice *dev)
{
	struct CUstream_st *s;
	if (!dev)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	*dev = s->ctx->device;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamQuery(CUstream stream)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	if (s->capture)
		return drv_leave(drv_capture_refuse(s));
	return drv_leave(drv_stream_idle(s) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream stream)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	return drv_leave(s->capture ? drv_capture_refuse(s) : drv_stream_sync(s));
}

/* -- the application's functions ------------------------------------------------------ */

struct host_call {
	CUhostFn fn;
	CUstreamCallback callback;
	CUstream stream; /* as the application named it */
	void *data;
};

static bool run_host(struct drv_op *op, bool skip)
{
	struct host_call *c = (void *)op->data;
	drv_callback(true);
	if (c->callback) /* is told of a failure */
		c->callback(c->stream, op->stream->ctx->error, c->data);
	else if (!skip)
		c->fn(c->data);
	drv_callback(false);
	return true;
}

static CUresult queue_host(struct CUstream_st *s, const struct host_call *call)
{
	struct drv_op *op = drv_op_new(run_host, sizeof(*call));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(op->data, call, sizeof(*call));
	/* Never in the caller's thread: the function may wait for what the caller does next. */
	return drv_submit(s, op, false);
}

CUresult drv_host_run(struct CUstream_st *s, const struct drv_work *w)
{
	return queue_host(s,
		&(struct host_call){ w->host.fn, w->host.callback, w->host.stream, w->host.data });
}

static CUresult submit_host(CUstream stream, const struct host_call *call)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	if (s->capture) {
		struct drv_work work = { .type = CU_GRAPH_NODE_TYPE_HOST,
			.host = { call->fn, call->callback, call->stream, call->data } };
		return drv_leave(drv_capture_add(s, &work, NULL));
	}
	return drv_leave(queue_host(s, call));
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_host(stream, &(struct host_call){ .fn = fn, .data = data });
}

CUresult CUDAAPI cuStreamAddCallback(
	CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
	if (!callback || flags)
		return CUDA_ERROR_INVALID_VALUE;
	return submit_host(stream,
		&(struct host_call){ .callback = callback, .stream = stream, .data = data });
}

/* -- values in memory -------------------------------------------------------------------- */

struct value_op {
	uint64_t addr, value;
	unsigned int flags;
	bool wide;
};

static uint64_t load_value(const struct value_op *v)
{
	void *p = (void *)(uintptr_t)v->addr;
	return v->wide ? __atomic_load_n((uint64_t *)p, __ATOMIC_ACQUIRE)
		       : __atomic_load_n((uint32_t *)p, __ATOMIC_ACQUIRE);
}

/* The comparisons of cuStreamWaitValue, in the width of the value. */
static bool holds(const struct value_op *v)
{
	uint64_t got = load_value(v);
	uint64_t mask = v->wide ? UINT64_MAX : UINT32_MAX;
	switch (v->flags & 3) {
	case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
		return v->wide ? (int64_t)(got - v->value) >= 0
			       : (int32_t)((uint32_t)got - (uint32_t)v->value) >= 0;
	case CU_STREAM_WAIT_VALUE_EQ:
		return got == v->value;
	case CU_STREAM_WAIT_VALUE_AND:
		return got & v->value;
	default: /* NOR */
		return ~(got | v->value) & mask;
	}
}

/* Nobody says when a kernel or the host has written, so this looks: eagerly at first. */
static bool run_wait(struct drv_op *op, bool skip)
{
	const struct value_op *v = (void *)op->data;
	struct CUctx_st *ctx = op->stream->ctx;
	unsigned int tries = 0;
	while (!skip && !ctx->error && !ctx->closing) {
		/* The program may have freed the memory meanwhile. */
		if (!sg_mem_check(drv.dev, v->addr, v->wide ? 8 : 4) || holds(v))
			break;
		if (++tries < 64)
			sched_yield();
		else
			nanosleep(&(struct timespec){ .tv_nsec = tries < 1024 ? 20000 : 200000 },
				NULL);
	}
	return true;
}

static bool run_write(struct drv_op *op, bool skip)
{
	const struct value_op *v = (void *)op->data;
	void *p = (void *)(uintptr_t)v->addr;
	if (skip || !sg_mem_check(drv.dev, v->addr, v->wide ? 8 : 4))
		return true;
	if (v->wide)
		__atomic_store_n((uint64_t *)p, v->value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)p, (uint32_t)v->value, __ATOMIC_RELEASE);
	return true;
}

static CUresult submit_value(struct CUstream_st *s, drv_run run, const struct value_op *v)
{
	unsigned int known = run == run_wait ? 3 | CU_STREAM_WAIT_VALUE_FLUSH
					     : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
	size_t bytes = v->wide ? 8 : 4;
	if (v->flags & ~known || v->addr % bytes || !sg_mem_check(drv.dev, v->addr, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (s->capture)
		return drv_capture_refuse(s);
	struct drv_op *op = drv_op_new(run, sizeof(*v));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(op->data, v, sizeof(*v));
	return drv_submit(s, op, run == run_write);
}

static CUresult value_call(CUstream stream, drv_run run, const struct value_op *v)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	return r ? r : drv_leave(submit_value(s, run, v));
}

CUresult CUDAAPI cuStreamWaitValue32_v2(
	CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return value_call(stream, run_wait, &(struct value_op){ addr, value, flags, false });
}

CUresult CUDAAPI cuStreamWaitValue64_v2(
	CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return value_call(stream, run_wait, &(struct value_op){ addr, value, flags, true });
}

CUresult CUDAAPI cuStreamWriteValue32_v2(
	CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return value_call(stream, run_write, &(struct value_op){ addr, value, flags, false });
}

CUresult CUDAAPI cuStreamWriteValue64_v2(
	CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return value_call(stream, run_write, &(struct value_op){ addr, value, flags, true });
}

CUresult CUDAAPI cuStreamWaitValue32(
	CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return cuStreamWaitValue32_v2(stream, addr, value, flags);
}

CUresult CUDAAPI cuStreamWaitValue64(
	CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return cuStreamWaitValue64_v2(stream, addr, value, flags);
}

CUresult CUDAAPI cuStreamWriteValue32(
	CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return cuStreamWriteValue32_v2(stream, addr, value, flags);
}

CUresult CUDAAPI cuStreamWriteValue64(
	CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return cuStreamWriteValue64_v2(stream, addr, value, flags);
}

static CUresult batch_op(CUstream stream, const CUstreamBatchMemOpParams *p)
{
	struct value_op v = { p->waitValue.address, p->waitValue.value64, p->waitValue.flags,
		true };
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		v.value = p->waitValue.value;
		v.wide = false;
		return value_call(stream, run_wait, &v);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		return value_call(stream, run_wait, &v);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		v.value = p->writeValue.value;
		v.wide = false;
		return value_call(stream, run_write, &v);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		return value_call(stream, run_write, &v);
	case CU_STREAM_MEM_OP_BARRIER:
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: /* memory here is coherent */
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuStreamBatchMemOp_v2(
	CUstream stream, unsigned int n, CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	if (!ops || n > 256 || flags)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = CUDA_SUCCESS;
	for (unsigned int i = 0; i < n && !r; i++)
		r = batch_op(stream, &ops[i]);
	return r;
}

CUresult CUDAAPI cuStreamBatchMemOp(
	CUstream stream, unsigned int n, CUstreamBatchMemOpParams *ops, unsigned int flags)
{
	return cuStreamBatchMemOp_v2(stream, n, ops, flags);
}

/* -- attributes ------------------------------------------------------------------------------- */

static CUstreamAttrValue *attribute(struct CUstream_st *s, CUstreamAttrID attr)
{
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		return &s->window;
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
		return &s->policy;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
		return &s->domain;
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
		return &s->domain_map;
	default:
		return NULL;
	}
}

CUresult CUDAAPI cuStreamGetAttribute(
	CUstream stream, CUstreamAttrID attr, CUstreamAttrValue *value)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	if (!value)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
		value->priority = s->priority;
		return drv_leave(CUDA_SUCCESS);
	}
	const CUstreamAttrValue *at = attribute(s, attr);
	if (!at)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*value = *at;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamSetAttribute(
	CUstream stream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	CUstreamAttrValue *at = attribute(s, attr);
	if (value && attr == CU_LAUNCH_ATTRIBUTE_PRIORITY)
		s->priority = value->priority > 0 ? 0 : value->priority < -5 ? -5 : value->priority;
	else if (!value || !at)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	else
		*at = *value;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamCopyAttributes(CUstream dst, CUstream src)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUstream_st *to, *from;
	if ((r = drv_stream_of(ctx, dst, &to)) || (r = drv_stream_of(ctx, src, &from)))
		return drv_leave(r);
	to->policy = from->policy;
	to->window = from->window;
	to->domain = from->domain;
	to->domain_map = from->domain_map;
	to->priority = from->priority;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamAttachMemAsync(
	CUstream stream, CUdeviceptr addr, size_t bytes, unsigned int flags)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	struct drv_alloc *a = drv_alloc_holding(addr);
	if (!a || a->kind != DRV_MEM_MANAGED ||
		(flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
			flags != CU_MEM_ATTACH_SINGLE))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_leave(
		CUDA_SUCCESS); /* managed memory is reachable from everywhere at any time */
}
