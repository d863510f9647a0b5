/* driver_capture.c - stream capture: what is called on a stream becomes nodes of a graph.
 *
 * A captured stream holds the nodes that its next one will depend on. Recording an event copies
 * that set; waiting for such an event adds it to the waiting stream's, which joins the capture if
 * it was not part of it. The capture ends well when everything that other streams added comes
 * before what its first stream depends on.
 */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

struct drv_capture {
	struct drv_capture *next; /* in captures */
	uint64_t id;
	struct CUgraph_st *graph;
	bool given; /* the graph is the program's (cuStreamBeginCaptureToGraph) */
	struct CUstream_st *first;
	CUstreamCaptureMode mode;
	pthread_t thread;
	bool invalid;
};

static struct drv_capture *captures; /* all that have begun, with the lock */
static uint64_t last_id;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

uint64_t drv_capture_id(const struct CUstream_st *s)
{
	return s->capture->id;
}

static struct drv_capture *capture_of_id(uint64_t id)
{
	struct drv_capture *c = captures;
	while (c && c->id != id)
		c = c->next;
	return c;
}

bool drv_capture_active(uint64_t id)
{
	return id && capture_of_id(id);
}

void drv_capture_invalidate(struct drv_capture *c)
{
	c->invalid = true;
}

static void leave_capture(struct CUstream_st *s)
{
	s->capture = NULL;
	free(s->cap_deps);
	s->cap_deps = NULL;
	s->n_cap_deps = 0;
}

/* Of every context: a capture may span devices. */
static void end_capture(struct drv_capture *c)
{
	for (struct CUctx_st *ctx = drv.contexts; ctx; ctx = ctx->next)
		for (struct CUstream_st *s = ctx->streams; s; s = s->next)
			if (s->capture == c)
				leave_capture(s);
	for (struct drv_capture **at = &captures; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			break;
		}
	c->graph->captures--;
	free(c);
}

void drv_capture_forget(struct CUstream_st *s)
{
	struct drv_capture *c = s->capture;
	if (!c)
		return;
	leave_capture(s);
	c->invalid = true;
	if (c->first != s)
		return;
	struct CUgraph_st *g = c->given ? NULL : c->graph;
	end_capture(c);
	if (g)
		drv_graph_free(g);
}

CUresult drv_capture_refuse(struct CUstream_st *s)
{
	if (!s->capture)
		return CUDA_SUCCESS;
	s->capture->invalid = true;
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* A capture in global mode forbids what may synchronise in every thread that has not opted out, one
 * in the mode of its thread only there. */
CUresult drv_capture_unsafe(void)
{
	CUresult r = CUDA_SUCCESS;
	for (struct drv_capture *c = captures; c; c = c->next) {
		bool own = pthread_equal(c->thread, pthread_self());
		if (c->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
			thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
			continue;
		if (!own && (c->mode != CU_STREAM_CAPTURE_MODE_GLOBAL ||
				    thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL))
			continue;
		c->invalid = true;
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return r;
}

static bool set_deps(struct CUstream_st *s, struct CUgraphNode_st *const *deps, size_t n)
{
	struct CUgraphNode_st **copy = malloc(n * sizeof(*copy) + 1);
	if (!copy)
		return false;
	if (n)
		memcpy(copy, deps, n * sizeof(*copy));
	free(s->cap_deps);
	s->cap_deps = copy;
	s->n_cap_deps = n;
	return true;
}

static bool add_deps(struct CUstream_st *s, struct CUgraphNode_st *const *deps, size_t n)
{
	struct CUgraphNode_st **all = realloc(s->cap_deps, (s->n_cap_deps + n) * sizeof(*all) + 1);
	if (!all)
		return false;
	s->cap_deps = all;
	for (size_t i = 0; i < n; i++) {
		size_t k = 0;
		while (k < s->n_cap_deps && all[k] != deps[i])
			k++;
		if (k == s->n_cap_deps)
			all[s->n_cap_deps++] = deps[i];
	}
	return true;
}

CUresult drv_capture_add(struct CUstream_st *s, struct drv_work *work, struct CUgraphNode_st **out)
{
	struct drv_capture *c = s->capture;
	struct CUgraphNode_st *node;
	if (c->invalid) {
		drv_work_free(work);
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	}
	CUresult r = drv_graph_add(c->graph, s->cap_deps, s->n_cap_deps, work, &node);
	if (!r && !set_deps(s, &node, 1))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r)
		c->invalid = true;
	else if (out)
		*out = node;
	return r;
}

CUresult drv_capture_alloc(struct CUstream_st *s, size_t bytes, CUdeviceptr *addr)
{
	struct drv_work work;
	CUresult r = drv_work_alloc(s->ctx, bytes, &work);
	if (r)
		return r;
	uint64_t at = work.mem.addr;
	if (!(r = drv_capture_add(s, &work, NULL)))
		*addr = at;
	return r;
}

CUresult drv_capture_wait(struct CUstream_st *s, struct CUevent_st *e)
{
	struct drv_capture *c = e->cap_id ? capture_of_id(e->cap_id) : NULL;
	if (!c) { /* an event from outside: its work is no part of the graph */
		s->capture->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (s->capture && s->capture != c) {
		s->capture->invalid = c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (c->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s == s->ctx->legacy) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (!add_deps(s, e->cap_deps, e->n_cap_deps))
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->capture = c;
	return CUDA_SUCCESS;
}

/* -- begin and end --------------------------------------------------------------------- */

static CUresult enter_stream(CUstream handle, struct CUstream_st **s)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	r = drv_stream_of(ctx, handle, s);
	return r ? drv_leave(r) : CUDA_SUCCESS;
}

/* graph NULL: a new one. */
static CUresult begin(struct CUstream_st *s, CUstreamCaptureMode mode, struct CUgraph_st *graph,
	struct CUgraphNode_st *const *deps, size_t n)
{
	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (s == s->ctx->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	struct drv_capture *c = calloc(1, sizeof(*c));
	struct CUgraph_st *g = graph ? graph : drv_graph_new();
	if (!c || !g || !set_deps(s, deps, n)) {
		free(c);
		if (g && !graph)
			drv_graph_free(g);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*c = (struct drv_capture){ .next = captures,
		.id = ++last_id,
		.graph = g,
		.given = graph,
		.first = s,
		.mode = mode,
		.thread = pthread_self() };
	g->captures++;
	captures = c;
	s->capture = c;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	return r ? r : drv_leave(begin(s, mode, NULL, NULL, 0));
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream stream)
{
	return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static bool nodes_of(const struct CUgraph_st *g, const CUgraphNode *nodes, size_t n)
{
	if (n && !nodes)
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct CUgraphNode_st *node = drv_find(nodes[i], DRV_NODE);
		if (!node || node->graph != g)
			return false;
	}
	return true;
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph handle,
	const CUgraphNode *deps, const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(handle, DRV_GRAPH);
	if (!g || !nodes_of(g, deps, n))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return drv_leave(begin(s, mode, g, deps, n));
}

/* Whether everything that other streams of the capture did comes before the first one's end. */
static bool joined(const struct drv_capture *c)
{
	struct CUgraphNode_st **order = drv_graph_order(c->graph);
	bool all = order;
	for (struct CUgraphNode_st *n = c->graph->nodes; n; n = n->next)
		n->state = 0;
	for (size_t i = 0; i < c->first->n_cap_deps; i++)
		c->first->cap_deps[i]->state = 1;
	for (size_t i = order ? c->graph->n_nodes : 0; i-- > 0;)
		for (size_t k = 0; order[i]->state && k < order[i]->n_deps; k++)
			order[i]->deps[k].from->state = 1;
	free(order);
	for (struct CUctx_st *ctx = drv.contexts; ctx; ctx = ctx->next)
		for (struct CUstream_st *s = ctx->streams; s; s = s->next)
			for (size_t i = 0; s->capture == c && i < s->n_cap_deps; i++)
				all = all && s->cap_deps[i]->state;
	return all;
}

static CUresult end(struct CUstream_st *s, CUgraph *out)
{
	struct drv_capture *c = s->capture;
	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->first != s) {
		c->invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	CUresult r = c->invalid   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
		     : !joined(c) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
				  : CUDA_SUCCESS;
	struct CUgraph_st *g = c->graph;
	bool given = c->given;
	end_capture(c);
	if (r && !given)
		drv_graph_free(g);
	if (out)
		*out = r ? NULL : g;
	return r;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *out)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	return drv_leave(out ? end(s, out) : CUDA_ERROR_INVALID_VALUE);
}

/* -- asking and changing ------------------------------------------------------------------ */

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode old = thread_mode;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

static CUstreamCaptureStatus status_of(const struct CUstream_st *s)
{
	return !s->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
	       : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

/* Asking about the legacy stream while it would wait for a captured one is a mistake too. */
static CUresult check_implicit(const struct CUstream_st *s)
{
	if (s != s->ctx->legacy)
		return CUDA_SUCCESS;
	for (struct CUstream_st *o = s->ctx->streams; o; o = o->next)
		if (o->capture && !o->non_blocking)
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	if (!status)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = check_implicit(s)))
		return drv_leave(r);
	*status = status_of(s);
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
	cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, const CUgraphEdgeData **edges,
	size_t *n)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	if (!status)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = check_implicit(s)))
		return drv_leave(r);
	*status = status_of(s);
	if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return drv_leave(CUDA_SUCCESS);
	if (id)
		*id = s->capture->id;
	if (graph)
		*graph = s->capture->graph;
	if (deps)
		*deps = s->cap_deps;
	if (edges) /* all are plain */
		*edges = NULL;
	if (n)
		*n = s->n_cap_deps;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
	cuuint64_t *id, CUgraph *graph, const CUgraphNode **deps, size_t *n)
{
	return cuStreamGetCaptureInfo_v3(stream, status, id, graph, deps, NULL, n);
}

CUresult CUDAAPI cuStreamGetCaptureInfo(
	CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *deps,
	const CUgraphEdgeData *edges, size_t n, unsigned int flags)
{
	struct CUstream_st *s;
	CUresult r = enter_stream(stream, &s);
	if (r)
		return r;
	if (!s->capture)
		return drv_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (s->capture->invalid)
		return drv_leave(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || !nodes_of(s->capture->graph, deps, n))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	bool ok = flags ? set_deps(s, deps, n) : add_deps(s, deps, n);
	return drv_leave(ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies(
	CUstream stream, CUgraphNode *deps, size_t n, unsigned int flags)
{
	return cuStreamUpdateCaptureDependencies_v2(stream, deps, NULL, n, flags);
}
