/* driver_event.c - events. An event's state is the mark of its last record: recording replaces the
 * mark, so that a wait which was queued earlier keeps waiting for what it saw. */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

struct CUevent_st *drv_event_new(struct CUctx_st *ctx, unsigned int flags, struct drv_share *share)
{
	struct CUevent_st *e = calloc(1, sizeof(*e));
	if (e)
		*e = (struct CUevent_st){
			.object.kind = DRV_EVENT, .ctx = ctx, .flags = flags, .share = share
		};
	if (!e || drv_add_handle(&e->object)) {
		drv_share_put(share);
		free(e);
		return NULL;
	}
	e->next = ctx->events;
	ctx->events = e;
	return e;
}

void drv_event_free(struct CUevent_st *e)
{
	drv_remove_handle(&e->object);
	drv_mark_put(e->mark);
	drv_share_put(e->share);
	free(e->cap_deps);
	free(e);
}

CUresult CUDAAPI cuEventCreate(CUevent *out, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	const unsigned int known =
		CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
	if (!out || flags & ~known ||
		(flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct drv_share *share = flags & CU_EVENT_INTERPROCESS ? drv_share_new() : NULL;
	if (flags & CU_EVENT_INTERPROCESS && !share)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	struct CUevent_st *e = drv_event_new(ctx, flags, share);
	if (e)
		*out = e;
	return drv_leave(e ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuEventDestroy_v2(CUevent handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUevent_st *e = drv_find(handle, DRV_EVENT);
	if (!e)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	for (struct CUevent_st **at = &e->ctx->events; *at; at = &(*at)->next)
		if (*at == e) {
			*at = e->next;
			break;
		}
	r = e->ctx->error;
	drv_event_free(e);
	return drv_leave(r);
}

CUresult CUDAAPI cuEventDestroy(CUevent event)
{
	return cuEventDestroy_v2(event);
}

/* -- recording ---------------------------------------------------------------------------- */

struct record {
	struct drv_mark *mark; /* counted, as is the other */
	struct drv_share *share;
	uint64_t seq;
};

static bool run_record(struct drv_op *op, bool skip)
{
	struct record *of = (void *)op->data;
	pthread_mutex_lock(&drv.lock);
	of->mark->time_ns = drv_now_ns();
	of->mark->done = true;
	drv_mark_put(of->mark);
	if (of->share)
		drv_share_end(of->share, of->seq);
	drv_share_put(of->share);
	pthread_mutex_unlock(&drv.lock);
	return true;
}

/* In a stream that is not captured, with the lock. */
CUresult drv_event_record(struct CUstream_st *s, CUevent handle)
{
	struct CUevent_st *e = drv_find(handle, DRV_EVENT);
	if (!e || s->ctx != e->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	struct drv_mark *m = drv_mark_new();
	struct drv_op *op = drv_op_new(run_record, sizeof(struct record));
	if (!m || !op) {
		free(m);
		drv_op_free(op);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	struct drv_share *share = drv_share_get(e->share);
	uint64_t seq = share ? drv_share_begin(share) : 0;
	*(struct record *)op->data = (struct record){ m, drv_share_get(share), seq };
	struct drv_mark *old = e->mark;
	e->mark = m;
	e->shared_seq = seq;
	e->cap_id = 0;
	m->refs += 2; /* the event's, and ours, beside the operation's */
	CUresult r = drv_submit(s, op, true);
	if (r) { /* it was not queued: the operation's count is ours too */
		if (e->mark == m)
			e->mark = old;
		m->refs -= 2;
		old = NULL;
		if (share)
			drv_share_end(share, seq);
		drv_share_put(share);
	}
	drv_share_put(share);
	drv_mark_put(m);
	drv_mark_put(old);
	return r;
}

/* In a captured stream the event stands for what the stream depends on, and no node is made. */
static CUresult record_captured(struct CUstream_st *s, struct CUevent_st *e)
{
	size_t bytes = s->n_cap_deps * sizeof(*s->cap_deps);
	struct CUgraphNode_st **deps = malloc(bytes + 1);
	if (!deps)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (bytes)
		memcpy(deps, s->cap_deps, bytes);
	free(e->cap_deps);
	e->cap_deps = deps;
	e->n_cap_deps = s->n_cap_deps;
	e->cap_id = drv_capture_id(s);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent handle, CUstream stream, bool external)
{
	struct CUctx_st *ctx;
	struct CUstream_st *s;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUevent_st *e = drv_find(handle, DRV_EVENT);
	if (!e)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if ((r = drv_stream_of(ctx, stream, &s)))
		return drv_leave(r);
	if (s->ctx != e->ctx)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (external && !s->capture)
		return drv_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (external) {
		struct drv_work work = { .type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = e };
		return drv_leave(drv_capture_add(s, &work, NULL));
	}
	return drv_leave(s->capture ? record_captured(s, e) : drv_event_record(s, e));
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream)
{
	return record(event, stream, false);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	if (flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	return record(event, stream, flags & CU_EVENT_RECORD_EXTERNAL); /* only inside a capture */
}

/* Whether the last record is another process's. */
static bool elsewhere(const struct CUevent_st *e)
{
	return e->share && drv_share_last(e->share) != e->shared_seq;
}

static bool nothing(struct drv_op *op, bool skip)
{
	return true;
}

CUresult drv_event_wait(struct CUstream_st *s, CUevent handle)
{
	struct CUevent_st *e = drv_find(handle, DRV_EVENT);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (elsewhere(e))
		return drv_share_queue(s, e->share, drv_share_last(e->share));
	if (!e->mark || e->mark->done) /* never recorded, or past: nothing to wait for */
		return CUDA_SUCCESS;
	struct drv_op *op = drv_op_new(nothing, 0);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = drv_op_wait_mark(op, e->mark);
	if (r) {
		drv_op_free(op);
		return r;
	}
	return drv_submit(s, op, true);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUevent_st *e = drv_find(handle, DRV_EVENT);
	struct CUstream_st *s;
	if (flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (!e)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if ((r = drv_stream_of(ctx, stream, &s)))
		return drv_leave(r);
	if (flags && !s->capture)
		return drv_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (flags) {
		struct drv_work work = { .type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = e };
		return drv_leave(drv_capture_add(s, &work, NULL));
	}
	if (s->capture || drv_capture_active(e->cap_id))
		return drv_leave(drv_capture_wait(s, e));
	return drv_leave(drv_event_wait(s, e));
}

/* -- asking --------------------------------------------------------------------------------- */

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUevent_st *e = drv_find(handle, DRV_EVENT);
	if (!e)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (drv_capture_active(e->cap_id))
		return drv_leave(CUDA_ERROR_CAPTURED_EVENT);
	if (e->ctx->error)
		return drv_leave(e->ctx->error);
	bool done = elsewhere(e) ? drv_share_done(e->share, drv_share_last(e->share))
				 : !e->mark || e->mark->done;
	return drv_leave(done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

/* With the lock, which is away meanwhile. */
static CUresult wait_elsewhere(struct CUevent_st *e)
{
	struct CUctx_st *ctx = e->ctx;
	struct drv_share *share = drv_share_get(e->share);
	uint64_t seq = drv_share_last(share);
	ctx->refs++;
	pthread_mutex_unlock(&drv.lock);
	drv_share_wait(share, seq, ctx);
	pthread_mutex_lock(&drv.lock);
	drv_share_put(share);
	CUresult r = ctx->error;
	drv_ctx_put(ctx);
	return r;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUevent_st *e = drv_find(handle, DRV_EVENT);
	if (!e)
		return drv_leave(CUDA_ERROR_INVALID_HANDLE);
	if (drv_capture_active(e->cap_id))
		return drv_leave(CUDA_ERROR_CAPTURED_EVENT);
	if (elsewhere(e))
		return drv_leave(wait_elsewhere(e));
	struct CUctx_st *ctx = e->ctx;
	struct drv_mark *m = e->mark;
	if (m) {
		m->refs++;
		ctx->refs++;
		while (!m->done)
			drv_wait();
		drv_mark_put(m);
		r = ctx->error;
		drv_ctx_put(ctx);
		return drv_leave(r);
	}
	return drv_leave(ctx->error);
}

static CUresult elapsed(float *ms, struct CUevent_st *a, struct CUevent_st *b)
{
	if (!a || !b || a->ctx != b->ctx || !a->mark || !b->mark ||
		(a->flags | b->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	if (a->ctx->error)
		return a->ctx->error;
	if (!a->mark->done || !b->mark->done)
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(b->mark->time_ns - a->mark->time_ns) / 1e6);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = drv_enter_init();
	if (r)
		return r;
	return drv_leave(elapsed(ms, drv_find(start, DRV_EVENT), drv_find(end, DRV_EVENT)));
}

CUresult CUDAAPI cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(ms, start, end);
}
