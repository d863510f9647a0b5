/* driver_exec.c - executable graphs.
 *
 * Instantiating clones the graph, child graphs put in their node's place, and gives each node a
 * lane: a stream of the executable's own. A node that follows one other continues its lane, so that
 * what may run side by side is in different lanes. A launch puts two operations into the program's
 * stream, one that marks its turn and one that waits for the graph's end; in the lanes, roots wait
 * for the turn and for the launch before, other nodes for the marks of their predecessors in other
 * lanes. Bodies of conditional nodes are executables too, started by the thread of the node's
 * lane (driver_cond.c).
 */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

#define MAX_LANES 64u

struct CUgraphExec_st {
	struct drv_object object;
	struct CUgraph_st *graph;
	struct CUgraphNode_st **order;
	size_t n;
	uint32_t n_lanes;
	struct CUstream_st *lanes[MAX_LANES]; /* counted; of ctx */
	struct CUctx_st *ctx;                 /* of the last launch, counted */
	struct drv_mark *last;                /* its end */
	uint64_t flags;
	bool busy; /* a thread is submitting a launch */
};

/* The context may have let go of it already. */
static void lane_put(struct CUstream_st **s)
{
	if (*s) {
		drv_stream_retire(*s);
		drv_stream_put(*s);
	}
	*s = NULL;
}

/* -- instantiating ------------------------------------------------------------------------ */

void drv_exec_free(struct CUgraphExec_st *e)
{
	for (uint32_t i = 0; i < MAX_LANES; i++)
		lane_put(&e->lanes[i]);
	if (e->ctx)
		drv_ctx_put(e->ctx);
	drv_mark_put(e->last);
	if (e->graph)
		drv_graph_free(e->graph);
	free(e->order);
	free(e);
}

/* A node continues the lane of a predecessor whose lane no other node has continued. */
static void give_lanes(struct CUgraphExec_st *e)
{
	struct CUgraphNode_st *ends[MAX_LANES] = { 0 };
	for (size_t i = 0; i < e->n; i++) {
		struct CUgraphNode_st *node = e->order[i];
		uint32_t lane = UINT32_MAX;
		for (size_t k = 0; k < node->n_deps && lane == UINT32_MAX; k++)
			if (ends[node->deps[k].from->lane] == node->deps[k].from)
				lane = node->deps[k].from->lane;
		if (lane == UINT32_MAX)
			lane = e->n_lanes < MAX_LANES ? e->n_lanes++ : (uint32_t)(i % MAX_LANES);
		node->lane = lane;
		ends[lane] = node;
	}
	for (size_t i = 0; i < e->n; i++)
		for (size_t k = 0; k < e->order[i]->n_deps; k++)
			if (e->order[i]->deps[k].from->lane != e->order[i]->lane)
				e->order[i]->deps[k].from->cross = true;
	for (uint32_t i = 0; i < e->n_lanes; i++) /* the end waits for them */
		ends[i]->cross = true;
	if (!e->n_lanes)
		e->n_lanes = 1;
}

/* Bodies become executables, which have their graphs. */
static CUresult make_bodies(struct CUgraph_st *g)
{
	for (struct CUgraphNode_st *node = g->nodes; node; node = node->next) {
		struct drv_cond *c = node->work.cond;
		if (node->work.type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		c->execs = calloc(c->n, sizeof(*c->execs));
		if (!c->execs)
			return CUDA_ERROR_OUT_OF_MEMORY;
		for (unsigned int i = 0; i < c->n; i++) {
			struct CUgraph_st *body = c->bodies[i];
			c->bodies[i] = NULL;
			CUresult r = drv_exec_new(body, &c->execs[i]);
			if (r)
				return r;
			c->bodies[i] = body;
		}
	}
	return CUDA_SUCCESS;
}

CUresult drv_exec_new(struct CUgraph_st *g, struct CUgraphExec_st **out)
{
	struct CUgraphExec_st *e = calloc(1, sizeof(*e));
	if (!e) {
		drv_graph_free(g);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	e->object.kind = DRV_EXEC;
	e->graph = g;
	g->owned = true;
	e->n = g->n_nodes;
	e->order = drv_graph_order(g);
	CUresult r = e->order ? make_bodies(g) : CUDA_ERROR_INVALID_VALUE;
	if (r) {
		drv_exec_free(e);
		return r;
	}
	give_lanes(e);
	*out = e;
	return CUDA_SUCCESS;
}

static CUresult instantiate(struct CUgraph_st *g, uint64_t flags, struct CUgraphExec_st **out)
{
	const uint64_t known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
			       CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
			       CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (flags & ~known || g->captures)
		return CUDA_ERROR_INVALID_VALUE;
	struct CUgraphExec_st *e;
	struct CUgraph_st *copy = drv_graph_clone(g);
	CUresult r = copy ? drv_exec_new(copy, &e) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r)
		return r;
	e->flags = flags;
	if (drv_add_handle(&e->object)) {
		drv_exec_free(e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = e;
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(
	CUgraphExec *out, CUgraph handle, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(handle, DRV_GRAPH);
	if (!out || !g || !params)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	params->hErrNode_out = NULL;
	params->result_out = drv_cond_check(g);
	if (params->result_out)
		return drv_leave(
			params->result_out == CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
				? CUDA_ERROR_NOT_SUPPORTED
				: CUDA_ERROR_INVALID_VALUE);
	r = instantiate(g, params->flags, out);
	params->result_out = !r ? CUDA_GRAPH_INSTANTIATE_SUCCESS
			     : r == CUDA_ERROR_INVALID_VALUE
				     ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
			     : r == CUDA_ERROR_NOT_SUPPORTED
				     ? CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED
				     : CUDA_GRAPH_INSTANTIATE_ERROR;
	return drv_leave(r);
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(
	CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS p = { .flags = flags };
	return cuGraphInstantiateWithParams(out, graph, &p);
}

CUresult CUDAAPI cuGraphInstantiate_v2(
	CUgraphExec *out, CUgraph graph, CUgraphNode *bad_node, char *log, size_t log_bytes)
{
	if (bad_node)
		*bad_node = NULL;
	if (log && log_bytes)
		*log = 0;
	return cuGraphInstantiateWithFlags(out, graph, 0);
}

CUresult CUDAAPI cuGraphInstantiate(
	CUgraphExec *out, CUgraph graph, CUgraphNode *bad_node, char *log, size_t log_bytes)
{
	return cuGraphInstantiate_v2(out, graph, bad_node, log, log_bytes);
}

static CUresult enter_exec(CUgraphExec handle, struct CUgraphExec_st **e)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	/* A launch in another thread may be reading it. */
	while ((*e = drv_find(handle, DRV_EXEC)) && (*e)->busy)
		drv_wait();
	return *e ? CUDA_SUCCESS : drv_leave(CUDA_ERROR_INVALID_VALUE);
}

/* What has been launched runs to its end: lanes outlive the handle. */
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUgraphExec_st *e;
	while ((e = drv_find(handle, DRV_EXEC)) && e->busy)
		drv_wait();
	if (!e)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	drv_remove_handle(&e->object);
	/* Memory of allocation nodes may still be in use. */
	struct drv_mark *m = e->last;
	if (m && !m->done && e->ctx) {
		m->refs++;
		while (!m->done && !e->ctx->closing)
			drv_wait();
		drv_mark_put(m);
	}
	drv_exec_free(e);
	drv_user_objects_run();
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t *flags)
{
	struct CUgraphExec_st *e;
	CUresult r = enter_exec(handle, &e);
	if (r)
		return r;
	if (!flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = e->flags;
	return drv_leave(CUDA_SUCCESS);
}

/* -- launching ------------------------------------------------------------------------------ */

static bool nothing(struct drv_op *op, bool skip)
{
	return true;
}

static bool run_mark(struct drv_op *op, bool skip)
{
	struct drv_mark *m;
	memcpy(&m, op->data, sizeof(m));
	pthread_mutex_lock(&drv.lock);
	m->time_ns = drv_now_ns();
	m->done = true;
	drv_mark_put(m);
	pthread_mutex_unlock(&drv.lock);
	return true;
}

/* An operation whose end marks m. */
static struct drv_op *mark_op(struct drv_mark *m)
{
	struct drv_op *op = drv_op_new(run_mark, sizeof(m));
	if (op) {
		memcpy(op->data, &m, sizeof(m));
		m->refs++;
	}
	return op;
}

/* m would never be marked: it is now. */
static CUresult submit_mark(
	struct CUstream_st *s, struct drv_op *op, struct drv_mark *m, bool quick)
{
	CUresult r = op ? drv_submit(s, op, quick) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!r)
		return r;
	m->done = true;
	if (op)
		drv_mark_put(m);
	drv_broadcast();
	return r;
}

static CUresult wait_marks(struct CUstream_st *s, struct drv_mark *const *marks, size_t n)
{
	struct drv_op *op = NULL;
	CUresult r = CUDA_SUCCESS;
	for (size_t i = 0; i < n && !r; i++) {
		if (!marks[i] || marks[i]->done)
			continue;
		if (!op && !(op = drv_op_new(nothing, 0)))
			return CUDA_ERROR_OUT_OF_MEMORY;
		r = drv_op_wait_mark(op, marks[i]);
	}
	if (r)
		drv_op_free(op);
	return r || !op ? r : drv_submit(s, op, true);
}

static CUresult run_work(struct CUstream_st *s, const struct drv_work *w);

/* A child graph's nodes one after the other, which is an order that its edges allow. */
static CUresult run_child(struct CUstream_st *s, struct CUgraph_st *g)
{
	struct CUgraphNode_st **order = drv_graph_order(g);
	CUresult r = order ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->n_nodes && !r; i++)
		r = run_work(s, &order[i]->work);
	free(order);
	return r;
}

static CUresult run_work(struct CUstream_st *s, const struct drv_work *w)
{
	switch (w->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return drv_kernel_run(s, w->kernel.fn, &w->kernel.shape, w->kernel.packed);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return drv_copy_run(s, &w->copy);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return drv_set_run(s, &w->set);
	case CU_GRAPH_NODE_TYPE_HOST:
		return drv_host_run(s, w);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return run_child(s, w->child);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return drv_event_wait(s, w->event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return drv_event_record(s, w->event);
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return drv_cond_run(s, w->cond);
	default: /* empty; memory of allocation nodes is there as long as the graph */
		return CUDA_SUCCESS;
	}
}

static CUresult run_node(
	struct CUgraphExec_st *e, struct CUgraphNode_st *node, struct drv_mark *const turn[2])
{
	struct CUstream_st *s = e->lanes[node->lane];
	struct drv_mark *few[8], **marks = few;
	size_t n = 0;
	CUresult r = CUDA_SUCCESS;
	if (node->n_deps > 8 && !(marks = calloc(node->n_deps, sizeof(*marks))))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < node->n_deps; i++)
		if (node->deps[i].from->lane != node->lane)
			marks[n++] = node->deps[i].from->mark;
	r = node->n_deps ? wait_marks(s, marks, n) : wait_marks(s, turn, 2);
	if (marks != few)
		free(marks);
	if (!r && !node->disabled)
		r = run_work(s, &node->work);
	return r;
}

/* Conditions have their first values before any node runs: nodes then wait for that. */
static CUresult assign_first(struct CUgraphExec_st *e, struct drv_mark *turn[2])
{
	struct drv_mark *m = drv_mark_new();
	CUresult r = m ? wait_marks(e->lanes[0], turn, 2) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!r)
		r = drv_conditions_assign(e->lanes[0], e->graph);
	if (m) {
		CUresult marked = submit_mark(e->lanes[0], mark_op(m), m, true);
		r = r ? r : marked;
		drv_mark_put(turn[0]);
		turn[0] = m;
	}
	return r;
}

/* turn: what the roots wait for; the first is counted. */
static CUresult run_nodes(struct CUgraphExec_st *e, struct drv_mark *turn[2])
{
	CUresult first = e->graph->n_conditions ? assign_first(e, turn) : CUDA_SUCCESS;
	for (size_t i = 0; i < e->n; i++) {
		struct CUgraphNode_st *node = e->order[i];
		CUresult r = first ? CUDA_SUCCESS : run_node(e, node, turn);
		if (!first)
			first = r;
		if (!node->cross)
			continue;
		drv_mark_put(node->mark);
		node->mark = drv_mark_new();
		r = node->mark ? submit_mark(e->lanes[node->lane], mark_op(node->mark), node->mark,
					 true)
			       : CUDA_ERROR_OUT_OF_MEMORY;
		if (!first)
			first = r;
	}
	return first;
}

/* The end comes when every lane is through. */
static CUresult run_end(
	struct CUgraphExec_st *e, struct drv_mark *const turn[2], struct drv_mark *end)
{
	struct drv_op *op = mark_op(end);
	CUresult r = CUDA_SUCCESS;
	for (size_t i = 0; op && i < e->n && !r; i++)
		if (e->order[i]->mark)
			r = drv_op_wait_mark(op, e->order[i]->mark);
	for (size_t i = 0; op && i < 2 && !r; i++)
		if (turn[i])
			r = drv_op_wait_mark(op, turn[i]);
	CUresult done = submit_mark(e->lanes[0], op, end, true);
	return r ? r : done;
}

static CUresult open_lanes(struct CUgraphExec_st *e, struct CUctx_st *ctx)
{
	if (e->ctx != ctx) {
		for (uint32_t i = 0; i < MAX_LANES; i++)
			lane_put(&e->lanes[i]);
		if (e->ctx)
			drv_ctx_put(e->ctx);
		e->ctx = ctx;
		ctx->refs++;
	}
	for (uint32_t i = 0; i < e->n_lanes; i++) {
		if (e->lanes[i] && e->lanes[i]->gone) /* of an earlier life of the context */
			lane_put(&e->lanes[i]);
		if (e->lanes[i])
			continue;
		e->lanes[i] = drv_stream_new(ctx, CU_STREAM_NON_BLOCKING, 0);
		if (!e->lanes[i])
			return CUDA_ERROR_OUT_OF_MEMORY;
		e->lanes[i]->refs++;
	}
	return CUDA_SUCCESS;
}

/* Both of the stream's operations at once: nothing that another thread submits comes between. */
static CUresult take_turn(struct CUstream_st *s, struct drv_mark *turn, struct drv_mark *end)
{
	struct drv_op *begin = mark_op(turn), *gate = drv_op_new(nothing, 0);
	CUresult r = begin && gate ? drv_op_wait_mark(gate, end) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r) {
		if (begin)
			drv_mark_put(turn);
		drv_op_free(begin);
		drv_op_free(gate);
		return r;
	}
	if ((r = drv_submit(s, begin, false))) {
		drv_mark_put(turn);
		drv_op_free(gate);
		return r;
	}
	r = drv_submit(s, gate, false);
	return r;
}

static CUresult launch(struct CUgraphExec_st *e, struct CUstream_st *s)
{
	struct drv_mark *turn[2] = { drv_mark_new(), e->last }, *end = drv_mark_new();
	CUresult r = turn[0] && end ? open_lanes(e, s->ctx) : CUDA_ERROR_OUT_OF_MEMORY;
	if (!r)
		r = take_turn(s, turn[0], end);
	if (r) {
		drv_mark_put(turn[0]);
		drv_mark_put(end);
		return r;
	}
	e->busy = true;
	r = run_nodes(e, turn);
	CUresult done = run_end(e, turn, end);
	drv_mark_put(turn[0]);
	drv_mark_put(e->last);
	e->last = end;
	e->busy = false;
	drv_broadcast();
	return r ? r : done;
}

CUresult drv_exec_start(struct CUgraphExec_st *e, struct CUctx_st *ctx, struct drv_mark **end)
{
	struct drv_mark *turn[2] = { 0 };
	CUresult r = open_lanes(e, ctx);
	if (r)
		return r;
	*end = drv_mark_new();
	if (!*end)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = run_nodes(e, turn);
	CUresult done = run_end(e, turn, *end);
	drv_mark_put(turn[0]);
	return r ? r : done;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream)
{
	struct CUgraphExec_st *e;
	struct CUstream_st *s;
	CUresult r = enter_exec(handle, &e);
	if (r)
		return r;
	if ((r = drv_stream_of(drv_current(), stream, &s)))
		return drv_leave(r);
	if (!s->capture)
		return drv_leave(launch(e, s));
	if (drv_has_cond(e->graph))
		return drv_leave(drv_capture_refuse(s));
	struct drv_work work = { .type = CU_GRAPH_NODE_TYPE_GRAPH,
		.child = drv_graph_clone(e->graph) };
	if (!work.child)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	work.child->owned = true;
	return drv_leave(drv_capture_add(s, &work, NULL));
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream)
{
	struct CUgraphExec_st *e;
	struct CUstream_st *s;
	CUresult r = enter_exec(handle, &e);
	return r ? r : drv_leave(drv_stream_of(drv_current(), stream, &s));
}

/* -- changing ---------------------------------------------------------------------------------- */

/* The executable's node for an original, also inside child graphs and bodies. */
static struct CUgraphNode_st *node_of(const struct CUgraph_st *g, uint64_t id)
{
	struct CUgraphNode_st *found = NULL;
	for (struct CUgraphNode_st *n = g->nodes; n && !found; n = n->next) {
		if (n->origin_id == id)
			return n;
		if (n->work.type == CU_GRAPH_NODE_TYPE_GRAPH)
			found = node_of(n->work.child, id);
		if (n->work.type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		for (unsigned int i = 0; i < n->work.cond->n && !found; i++)
			found = node_of(n->work.cond->bodies[i], id);
	}
	return found;
}

static struct CUgraphNode_st *node_in(const struct CUgraphExec_st *e, CUgraphNode handle)
{
	const struct CUgraphNode_st *original = drv_find(handle, DRV_NODE);
	return original ? node_of(e->graph, original->id) : NULL;
}

/* Enters to change the executable. Bodies are submitted while a launch runs, so that one must have
 * ended: it is to be unaffected. */
static CUresult enter_change(CUgraphExec handle, struct CUgraphExec_st **e)
{
	CUresult r = enter_exec(handle, e);
	while (!r && drv_has_cond((*e)->graph) && (*e)->last && !(*e)->last->done) {
		drv_wait();
		while ((*e = drv_find(handle, DRV_EXEC)) && (*e)->busy)
			drv_wait();
		if (!*e)
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
	}
	return r;
}

static CUresult exec_set(CUgraphExec handle, CUgraphNode node, const CUgraphNodeParams *p)
{
	struct CUgraphExec_st *e;
	struct drv_work work;
	CUresult r = enter_change(handle, &e);
	if (r)
		return r;
	struct CUgraphNode_st *n = node_in(e, node);
	if (!n || n->work.type != p->type || p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
		p->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = drv_work_from(drv_current(), p, &work)))
		return drv_leave(r);
	if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) { /* attributes stay */
		work.kernel.shape.cooperative = n->work.kernel.shape.cooperative;
		memcpy(work.kernel.shape.cluster, n->work.kernel.shape.cluster,
			sizeof(work.kernel.shape.cluster));
	}
	drv_work_free(&n->work);
	n->work = work;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecNodeSetParams(
	CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	return params ? exec_set(exec, node, params) : CUDA_ERROR_INVALID_VALUE;
}

#define NEW(kind) CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_##kind }

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(
	CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	NEW(KERNEL);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.kernel = *params;
	return exec_set(exec, node, &p);
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS wide = { 0 };
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&wide, params, sizeof(*params));
	return cuGraphExecKernelNodeSetParams_v2(exec, node, &wide);
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext ctx)
{
	NEW(MEMCPY);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.memcpy.copyParams = *params;
	return exec_set(exec, node, &p);
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	NEW(MEMSET);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&p.memset, params, sizeof(*params));
	return exec_set(exec, node, &p);
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(
	CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	NEW(HOST);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.host = *params;
	return exec_set(exec, node, &p);
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(
	CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	NEW(GRAPH);
	p.graph.graph = child;
	return exec_set(exec, node, &p);
}

CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(
	CUgraphExec exec, CUgraphNode node, CUevent event)
{
	NEW(EVENT_RECORD);
	p.eventRecord.event = event;
	return exec_set(exec, node, &p);
}

CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
	NEW(WAIT_EVENT);
	p.eventWait.event = event;
	return exec_set(exec, node, &p);
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled)
{
	struct CUgraphExec_st *e;
	CUresult r = enter_change(handle, &e);
	if (r)
		return r;
	struct CUgraphNode_st *n = node_in(e, node);
	if (!n || n->work.type > CU_GRAPH_NODE_TYPE_MEMSET)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	n->disabled = !enabled;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int *enabled)
{
	struct CUgraphExec_st *e;
	CUresult r = enter_exec(handle, &e);
	if (r)
		return r;
	struct CUgraphNode_st *n = node_in(e, node);
	if (!n || !enabled || n->work.type > CU_GRAPH_NODE_TYPE_MEMSET)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*enabled = !n->disabled;
	return drv_leave(CUDA_SUCCESS);
}

/* -- updating as a whole -------------------------------------------------------------------------
 */

static CUgraphExecUpdateResult compare(
	const struct CUgraph_st *was, const struct CUgraph_st *is, CUgraphNode *bad);

static CUgraphExecUpdateResult compare_cond(const struct drv_cond *was, const struct drv_cond *is)
{
	CUgraphNode inner;
	CUgraphExecUpdateResult u = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	if (was->type != is->type || was->n != is->n)
		return CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
	for (unsigned int i = 0; i < was->n && !u; i++)
		u = compare(was->bodies[i], is->bodies[i], &inner);
	return u;
}

/* Nodes are paired by the order in which they were added, with the same edges. */
static CUgraphExecUpdateResult compare(
	const struct CUgraph_st *was, const struct CUgraph_st *is, CUgraphNode *bad)
{
	const struct CUgraphNode_st *a = was->nodes, *b = is->nodes;
	uint32_t number = 0;
	*bad = NULL;
	if (was->n_nodes != is->n_nodes)
		return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (struct CUgraphNode_st *n = was->nodes; n; n = n->next)
		n->state = number++;
	number = 0;
	for (struct CUgraphNode_st *n = is->nodes; n; n = n->next)
		n->state = number++;
	for (; a; a = a->next, b = b->next) {
		*bad = (CUgraphNode)b;
		if (a->work.type != b->work.type)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
		if (a->n_deps != b->n_deps)
			return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		for (size_t i = 0; i < a->n_deps; i++) {
			size_t k = 0;
			while (k < b->n_deps && b->deps[k].from->state != a->deps[i].from->state)
				k++;
			if (k == b->n_deps)
				return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		}
		if (a->work.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
			a->work.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
		if (a->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			CUgraphNode inner;
			CUgraphExecUpdateResult u = compare(a->work.child, b->work.child, &inner);
			if (u)
				return u;
		}
		if (a->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
			CUgraphExecUpdateResult u = compare_cond(a->work.cond, b->work.cond);
			if (u)
				return u;
		}
	}
	*bad = NULL;
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUresult take_work(struct CUgraph_st *to, const struct CUgraph_st *from);

/* Bodies stay the executables that they are. */
static CUresult take_cond(struct drv_cond *to, const struct drv_cond *from)
{
	CUresult r = CUDA_SUCCESS;
	for (unsigned int i = 0; i < to->n && !r; i++)
		r = take_work(to->bodies[i], from->bodies[i]);
	drv_graph_mem_put(to->value);
	to->value = from->value;
	to->value->refs++;
	return r;
}

/* The executable has the new work, and afterwards answers to nodes of both graphs' places. */
static CUresult take_work(struct CUgraph_st *to, const struct CUgraph_st *from)
{
	struct drv_work *fresh = calloc(to->n_nodes + 1, sizeof(*fresh));
	CUresult r = CUDA_SUCCESS;
	size_t n = 0;
	if (!fresh)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (const struct CUgraphNode_st *b = from->nodes; b; b = b->next, n++) {
		if (b->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
			continue;
		if (drv_work_copy(&b->work, &fresh[n])) {
			while (n--)
				drv_work_free(&fresh[n]);
			free(fresh);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	drv_conditions_free(to);
	if (drv_conditions_copy(from, to))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	n = 0;
	const struct CUgraphNode_st *b = from->nodes;
	for (struct CUgraphNode_st *a = to->nodes; a; a = a->next, b = b->next, n++) {
		if (a->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
			CUresult took = take_cond(a->work.cond, b->work.cond);
			r = r ? r : took;
			continue;
		}
		drv_work_free(&a->work);
		a->work = fresh[n];
	}
	free(fresh);
	return r;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(
	CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	struct CUgraphExec_st *e;
	CUgraphNode bad;
	CUresult r = enter_change(handle, &e);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(graph, DRV_GRAPH);
	if (!g || !info || drv_cond_check(g))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	*info = (CUgraphExecUpdateResultInfo){ .result = compare(e->graph, g, &bad) };
	info->errorNode = bad;
	if (info->result)
		return drv_leave(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	return drv_leave(take_work(e->graph, g));
}

CUresult CUDAAPI cuGraphExecUpdate(
	CUgraphExec exec, CUgraph graph, CUgraphNode *bad_node, CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info = { .result = CU_GRAPH_EXEC_UPDATE_ERROR };
	CUresult r = cuGraphExecUpdate_v2(exec, graph, &info);
	if (bad_node)
		*bad_node = info.errorNode;
	if (result)
		*result = info.result;
	return r;
}
