/* driver_graph.c - graphs: nodes, what they do, and the edges between them. */
#include "softgpu/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t last_node_id;

/* Objects whose destructors are to run: with the lock, until drv_user_objects_run. */
static struct {
	struct CUuserObject_st **list;
	size_t n, cap;
} dead;

/* -- work ------------------------------------------------------------------------------ */

static void mem_put(struct drv_graph_mem *m)
{
	if (!m || --m->refs)
		return;
	struct drv_alloc *a = drv_alloc_at(m->addr);
	if (a && a->kind == DRV_MEM_GRAPH)
		drv_alloc_release(a);
	free(m);
}

void drv_work_free(struct drv_work *w)
{
	switch (w->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		free(w->kernel.packed);
		free(w->kernel.pointers);
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (w->child)
			drv_graph_free(w->child);
		break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		mem_put(w->mem.mem);
		break;
	default:
		break;
	}
	memset(w, 0, sizeof(*w));
	w->type = CU_GRAPH_NODE_TYPE_EMPTY;
}

int drv_work_copy(const struct drv_work *from, struct drv_work *to)
{
	*to = *from;
	if (from->type == CU_GRAPH_NODE_TYPE_KERNEL) {
		to->kernel.packed = malloc(from->kernel.n_packed + 1);
		to->kernel.pointers = calloc(from->kernel.n_params + 1, sizeof(void *));
		if (!to->kernel.packed || !to->kernel.pointers) {
			drv_work_free(to);
			return -1;
		}
		memcpy(to->kernel.packed, from->kernel.packed, from->kernel.n_packed);
		for (uint32_t i = 0; i < from->kernel.n_params; i++)
			to->kernel.pointers[i] =
				to->kernel.packed +
				((uint8_t *)from->kernel.pointers[i] - from->kernel.packed);
	} else if (from->type == CU_GRAPH_NODE_TYPE_GRAPH) {
		to->child = drv_graph_clone(from->child);
		if (!to->child)
			return -1;
		to->child->owned = true;
	} else if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
		to->mem.mem->refs++;
	}
	return 0;
}

CUresult drv_work_kernel(struct CUctx_st *ctx, void *fn, const struct drv_shape *shape,
	void **params, void **extra, struct drv_work *out)
{
	struct drv_shape s = *shape;
	struct CUfunc_st *f;
	CUresult r = drv_kernel_check(ctx, fn, &s, &f);
	if (r)
		return r;
	*out = (struct drv_work){ .type = CU_GRAPH_NODE_TYPE_KERNEL };
	out->kernel.fn = fn;
	out->kernel.shape = *shape;
	out->kernel.n_packed = f->info.param_bytes;
	out->kernel.n_params = f->info.n_params;
	out->kernel.packed = calloc(1, f->info.param_bytes + 1);
	out->kernel.pointers = calloc(f->info.n_params + 1, sizeof(void *));
	r = out->kernel.packed && out->kernel.pointers
		    ? drv_kernel_pack(f, params, extra, out->kernel.packed)
		    : CUDA_ERROR_OUT_OF_MEMORY;
	if (r) {
		drv_work_free(out);
		return r;
	}
	for (uint32_t i = 0; i < f->info.n_params; i++)
		out->kernel.pointers[i] = out->kernel.packed + f->info.param_offset[i];
	return CUDA_SUCCESS;
}

CUresult drv_work_alloc(struct CUctx_st *ctx, size_t bytes, struct drv_work *out)
{
	struct drv_graph_mem *m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = sg_mem_alloc(drv.dev, bytes, &m->addr);
	if (!r && !drv_alloc_add(ctx, m->addr, bytes, DRV_MEM_GRAPH, 0)) {
		sg_mem_free(drv.dev, m->addr);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (r) {
		free(m);
		return r;
	}
	m->refs = 1;
	*out = (struct drv_work){ .type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
		.mem = { m->addr, bytes, m } };
	return CUDA_SUCCESS;
}

static CUresult kernel_work(
	struct CUctx_st *ctx, const CUDA_KERNEL_NODE_PARAMS *p, struct drv_work *out)
{
	struct drv_shape s = { .grid = { p->gridDimX, p->gridDimY, p->gridDimZ },
		.block = { p->blockDimX, p->blockDimY, p->blockDimZ },
		.shared = p->sharedMemBytes };
	struct CUctx_st *in = p->ctx ? drv_find(p->ctx, DRV_CONTEXT) : ctx;
	if (!in)
		return CUDA_ERROR_INVALID_CONTEXT;
	return drv_work_kernel(in, p->func ? (void *)p->func : (void *)p->kern, &s, p->kernelParams,
		p->extra, out);
}

static CUresult event_work(CUgraphNodeType type, CUevent event, struct drv_work *out)
{
	*out = (struct drv_work){ .type = type, .event = event };
	return drv_find(event, DRV_EVENT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult child_work(CUgraph handle, struct drv_work *out)
{
	struct CUgraph_st *g = drv_find(handle, DRV_GRAPH);
	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (struct drv_work){ .type = CU_GRAPH_NODE_TYPE_GRAPH, .child = drv_graph_clone(g) };
	if (!out->child)
		return CUDA_ERROR_OUT_OF_MEMORY;
	out->child->owned = true;
	return CUDA_SUCCESS;
}

CUresult drv_work_from(struct CUctx_st *ctx, const CUgraphNodeParams *p, struct drv_work *out)
{
	*out = (struct drv_work){ .type = p->type };
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_work(ctx, &p->kernel, out);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		out->copy = p->memcpy.copyParams;
		return drv_copy_check(&out->copy);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&out->set, &p->memset, sizeof(out->set));
		return drv_set_check(&out->set);
	case CU_GRAPH_NODE_TYPE_HOST:
		out->host.fn = p->host.fn;
		out->host.data = p->host.userData;
		return p->host.fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return child_work(p->graph.graph, out);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return event_work(p->type, p->eventWait.event, out);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return event_work(p->type, p->eventRecord.event, out);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return p->alloc.bytesize ? drv_work_alloc(ctx, p->alloc.bytesize, out)
					 : CUDA_ERROR_INVALID_VALUE;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		out->mem.addr = p->free.dptr;
		return drv_alloc_at(p->free.dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

/* -- graphs ------------------------------------------------------------------------------ */

struct CUgraph_st *drv_graph_new(void)
{
	struct CUgraph_st *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->object.kind = DRV_GRAPH;
	g->tail = &g->nodes;
	if (drv_add_handle(&g->object)) {
		free(g);
		return NULL;
	}
	return g;
}

static void node_free(struct CUgraphNode_st *n)
{
	drv_remove_handle(&n->object);
	drv_work_free(&n->work);
	drv_mark_put(n->mark);
	free(n->deps);
	free(n);
}

static void user_put(struct CUuserObject_st *o, unsigned int count)
{
	o->count -= count;
	if (o->count)
		return;
	drv_remove_handle(&o->object);
	if (dead.n == dead.cap) {
		size_t cap = dead.cap ? dead.cap * 2 : 8;
		void *list = realloc(dead.list, cap * sizeof(*dead.list));
		if (!list) /* its destructor is never called: better than to call it with the lock
			    */
			return;
		dead.list = list;
		dead.cap = cap;
	}
	dead.list[dead.n++] = o;
}

void drv_user_objects_run(void)
{
	while (dead.n) {
		struct CUuserObject_st *o = dead.list[--dead.n];
		pthread_mutex_unlock(&drv.lock);
		drv_callback(true);
		o->destroy(o->data);
		drv_callback(false);
		free(o);
		pthread_mutex_lock(&drv.lock);
	}
}

void drv_graph_free(struct CUgraph_st *g)
{
	drv_remove_handle(&g->object);
	while (g->nodes) {
		struct CUgraphNode_st *n = g->nodes;
		g->nodes = n->next;
		node_free(n);
	}
	for (size_t i = 0; i < g->n_users; i++)
		user_put(g->users[i].object, g->users[i].count);
	free(g->users);
	free(g);
}

/* Work is taken over, on failure too. */
static struct CUgraphNode_st *node_new(struct CUgraph_st *g, size_t n_deps, struct drv_work *work)
{
	struct CUgraphNode_st *node = calloc(1, sizeof(*node));
	struct drv_edge *deps = calloc(n_deps + 1, sizeof(*deps));
	if (node)
		node->object.kind = DRV_NODE;
	if (!node || !deps || drv_add_handle(&node->object)) {
		drv_work_free(work);
		free(deps);
		free(node);
		return NULL;
	}
	node->graph = g;
	node->id = ++last_node_id;
	node->deps = deps;
	node->work = *work;
	*g->tail = node;
	g->tail = &node->next;
	g->n_nodes++;
	return node;
}

CUresult drv_graph_add(struct CUgraph_st *g, struct CUgraphNode_st *const *deps, size_t n,
	struct drv_work *work, struct CUgraphNode_st **out)
{
	struct CUgraphNode_st *node = node_new(g, n, work);
	if (!node)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < n; i++)
		node->deps[node->n_deps++].from = deps[i];
	*out = node;
	return CUDA_SUCCESS;
}

static bool hold_users(const struct CUgraph_st *from, struct CUgraph_st *to)
{
	to->users = calloc(from->n_users + 1, sizeof(*to->users));
	if (!to->users)
		return false;
	for (size_t i = 0; i < from->n_users; i++) {
		to->users[i] = (struct drv_graph_user){ from->users[i].object, 1 };
		to->users[i].object->count++;
	}
	to->n_users = from->n_users;
	return true;
}

struct CUgraph_st *drv_graph_clone(const struct CUgraph_st *from)
{
	struct CUgraph_st *g = drv_graph_new();
	struct table *map = table_new();
	bool ok = g && map && hold_users(from, g);
	for (const struct CUgraphNode_st *n = from->nodes; ok && n; n = n->next) {
		struct drv_work work;
		struct CUgraphNode_st *node = NULL;
		ok = !drv_work_copy(&n->work, &work) && (node = node_new(g, n->n_deps, &work)) &&
		     !table_put(map, &n, sizeof(n), node);
		if (ok)
			node->origin_id = n->id;
	}
	struct CUgraphNode_st *to = g ? g->nodes : NULL;
	for (const struct CUgraphNode_st *n = from->nodes; ok && n; n = n->next, to = to->next)
		for (size_t i = 0; i < n->n_deps; i++)
			to->deps[to->n_deps++] =
				(struct drv_edge){ table_get(map, &n->deps[i].from, sizeof(void *)),
					n->deps[i].data };
	table_free(map);
	if (ok)
		return g;
	if (g)
		drv_graph_free(g);
	return NULL;
}

/* Kahn's way, by the order of creation among those that are ready. */
struct CUgraphNode_st **drv_graph_order(struct CUgraph_st *g)
{
	size_t n = 0, ready = 0, edges = 0;
	struct CUgraphNode_st **order = calloc(g->n_nodes + 1, sizeof(*order));
	for (struct CUgraphNode_st *node = g->nodes; node; node = node->next)
		edges += node->n_deps;
	/* Followers of each node, as a list of edges by where they start. */
	struct follow {
		struct CUgraphNode_st *to;
		size_t next; /* index + 1 */
	} *follow = calloc(edges + 1, sizeof(*follow));
	size_t *first = calloc(g->n_nodes + 1, sizeof(*first)),
	       *wait = calloc(g->n_nodes + 1, sizeof(*wait));
	if (!order || !follow || !first || !wait)
		goto fail;
	uint32_t number = 0;
	for (struct CUgraphNode_st *node = g->nodes; node; node = node->next)
		node->state = number++;
	edges = 0;
	for (struct CUgraphNode_st *node = g->nodes; node; node = node->next) {
		wait[node->state] = node->n_deps;
		if (!node->n_deps)
			order[ready++] = node;
		for (size_t i = 0; i < node->n_deps; i++) {
			size_t *at = &first[node->deps[i].from->state];
			follow[edges] = (struct follow){ node, *at };
			*at = ++edges;
		}
	}
	for (; n < ready; n++)
		for (size_t e = first[order[n]->state]; e; e = follow[e - 1].next)
			if (!--wait[follow[e - 1].to->state])
				order[ready++] = follow[e - 1].to;
	if (n < g->n_nodes)
		goto fail;
	free(follow);
	free(first);
	free(wait);
	return order;
fail:
	free(follow);
	free(first);
	free(wait);
	free(order);
	return NULL;
}

/* -- calls on whole graphs ---------------------------------------------------------------- */

static CUresult enter_graph(CUgraph handle, struct CUgraph_st **g)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*g = drv_find(handle, DRV_GRAPH);
	return *g ? CUDA_SUCCESS : drv_leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphCreate(CUgraph *out, unsigned int flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out || flags)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct CUgraph_st *g = drv_graph_new();
	if (g)
		*out = g;
	return drv_leave(g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(handle, &g);
	if (r)
		return r;
	if (g->owned || g->captures)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	drv_graph_free(g);
	drv_user_objects_run();
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphClone(CUgraph *out, CUgraph handle)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(handle, &g);
	if (r)
		return r;
	if (!out)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct CUgraph_st *copy = drv_graph_clone(g);
	if (copy)
		*out = copy;
	return drv_leave(copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode original, CUgraph clone)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(clone, &g);
	if (r)
		return r;
	const struct CUgraphNode_st *from = drv_find(original, DRV_NODE);
	if (!out || !from)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (struct CUgraphNode_st *n = g->nodes; n; n = n->next)
		if (n->origin_id == from->id) {
			*out = n;
			return drv_leave(CUDA_SUCCESS);
		}
	return drv_leave(CUDA_ERROR_INVALID_VALUE);
}

/* -- adding -------------------------------------------------------------------------------- */

static bool nodes_ok(const struct CUgraph_st *g, const CUgraphNode *nodes, size_t n)
{
	if (n && !nodes)
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct CUgraphNode_st *node = drv_find(nodes[i], DRV_NODE);
		if (!node || node->graph != g)
			return false;
		for (size_t k = 0; n < 64 && k < i; k++)
			if (nodes[k] == nodes[i])
				return false;
	}
	return true;
}

static CUresult add(CUgraphNode *out, CUgraph handle, const CUgraphNode *deps,
	const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *p)
{
	struct CUctx_st *ctx;
	struct CUgraphNode_st *node;
	struct drv_work work;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(handle, DRV_GRAPH);
	if (!out || !g || !nodes_ok(g, deps, n))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = drv_work_from(ctx, p, &work)) || (r = drv_graph_add(g, deps, n, &work, &node)))
		return drv_leave(r);
	for (size_t i = 0; edges && i < n; i++)
		node->deps[i].data = edges[i];
	if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		p->alloc.dptr = node->work.mem.addr;
	if (p->type == CU_GRAPH_NODE_TYPE_GRAPH)
		p->graph.graph = node->work.child;
	*out = node;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
	return params ? add(node, graph, deps, edges, n, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
	CUgraphNodeParams *params)
{
	return cuGraphAddNode_v2(node, graph, deps, NULL, n, params);
}

/* The calls by type are the general one with its parameters made here. */
#define NEW(kind) CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_##kind }

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t n, const CUDA_KERNEL_NODE_PARAMS *params)
{
	NEW(KERNEL);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.kernel = *params;
	return add(node, graph, deps, NULL, n, &p);
}

static CUDA_KERNEL_NODE_PARAMS widen(const CUDA_KERNEL_NODE_PARAMS_v1 *v1)
{
	CUDA_KERNEL_NODE_PARAMS v2 = { 0 };
	memcpy(&v2, v1, sizeof(*v1));
	return v2;
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t n, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS wide = widen(params);
	return cuGraphAddKernelNode_v2(node, graph, deps, n, &wide);
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t n, const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
	NEW(MEMCPY);
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	p.memcpy.copyParams = *copy;
	return add(node, graph, deps, NULL, n, &p);
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t n, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	NEW(MEMSET);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&p.memset, params, sizeof(*params));
	return add(node, graph, deps, NULL, n, &p);
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t n, const CUDA_HOST_NODE_PARAMS *params)
{
	NEW(HOST);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.host = *params;
	return add(node, graph, deps, NULL, n, &p);
}

CUresult CUDAAPI cuGraphAddChildGraphNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUgraph child)
{
	NEW(GRAPH);
	p.graph.graph = child;
	return add(node, graph, deps, NULL, n, &p);
}

CUresult CUDAAPI cuGraphAddEmptyNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n)
{
	NEW(EMPTY);
	return add(node, graph, deps, NULL, n, &p);
}

CUresult CUDAAPI cuGraphAddEventRecordNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event)
{
	NEW(EVENT_RECORD);
	p.eventRecord.event = event;
	return add(node, graph, deps, NULL, n, &p);
}

CUresult CUDAAPI cuGraphAddEventWaitNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUevent event)
{
	NEW(WAIT_EVENT);
	p.eventWait.event = event;
	return add(node, graph, deps, NULL, n, &p);
}

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
	size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	NEW(MEM_ALLOC);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.alloc = *params;
	CUresult r = add(node, graph, deps, NULL, n, &p);
	if (!r)
		params->dptr = p.alloc.dptr;
	return r;
}

CUresult CUDAAPI cuGraphAddMemFreeNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n, CUdeviceptr addr)
{
	NEW(MEM_FREE);
	p.free.dptr = addr;
	return add(node, graph, deps, NULL, n, &p);
}

/* -- parameters of nodes --------------------------------------------------------------------- */

static CUresult enter_node(CUgraphNode handle, int type, const void *out, struct CUgraphNode_st **n)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*n = drv_find(handle, DRV_NODE);
	if (!*n || !out || (type >= 0 && (*n)->work.type != (CUgraphNodeType)type))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

static CUresult set(CUgraphNode handle, const CUgraphNodeParams *p)
{
	struct CUctx_st *ctx;
	struct drv_work work;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUgraphNode_st *n = drv_find(handle, DRV_NODE);
	if (!n || n->work.type != p->type || p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if ((r = drv_work_from(ctx, p, &work)))
		return drv_leave(r);
	if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) { /* attributes stay */
		memcpy(work.kernel.shape.cluster, n->work.kernel.shape.cluster,
			sizeof(work.kernel.shape.cluster));
		work.kernel.shape.cooperative = n->work.kernel.shape.cooperative;
		work.kernel.priority = n->work.kernel.priority;
	}
	drv_work_free(&n->work);
	n->work = work;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
	return params ? set(node, params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, out, &n);
	if (r)
		return r;
	const struct drv_shape *s = &n->work.kernel.shape;
	bool kern = drv_find(n->work.kernel.fn, DRV_KERNEL);
	*out = (CUDA_KERNEL_NODE_PARAMS){ .func = kern ? NULL : n->work.kernel.fn,
		.kern = kern ? n->work.kernel.fn : NULL,
		.gridDimX = s->grid[0],
		.gridDimY = s->grid[1],
		.gridDimZ = s->grid[2],
		.blockDimX = s->block[0],
		.blockDimY = s->block[1],
		.blockDimZ = s->block[2],
		.sharedMemBytes = s->shared,
		.kernelParams = n->work.kernel.pointers };
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *out)
{
	CUDA_KERNEL_NODE_PARAMS wide;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = cuGraphKernelNodeGetParams_v2(node, &wide);
	if (r)
		return r;
	memcpy(out, &wide, sizeof(*out));
	if (!out->func)
		out->func = (CUfunction)wide.kern;
	return r;
}

CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(
	CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
	NEW(KERNEL);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.kernel = *params;
	return set(node, &p);
}

CUresult CUDAAPI cuGraphKernelNodeSetParams(
	CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_KERNEL_NODE_PARAMS wide = widen(params);
	return cuGraphKernelNodeSetParams_v2(node, &wide);
}

CUresult CUDAAPI cuGraphKernelNodeSetAttribute(
	CUgraphNode handle, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &n);
	if (r)
		return r;
	struct drv_shape *s = &n->work.kernel.shape;
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		s->cooperative = value->cooperative;
		break;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		s->cluster[0] = value->clusterDim.x;
		s->cluster[1] = value->clusterDim.y;
		s->cluster[2] = value->clusterDim.z;
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		n->work.kernel.priority = value->priority;
		break;
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: /* tunes hardware */
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		break;
	default:
		r = CUDA_ERROR_INVALID_VALUE;
	}
	return drv_leave(r);
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(
	CUgraphNode handle, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &n);
	if (r)
		return r;
	const struct drv_shape *s = &n->work.kernel.shape;
	memset(value, 0, sizeof(*value));
	switch (attr) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		value->cooperative = s->cooperative;
		break;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
		value->clusterDim.x = s->cluster[0];
		value->clusterDim.y = s->cluster[1];
		value->clusterDim.z = s->cluster[2];
		break;
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
		value->priority = n->work.kernel.priority;
		break;
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
		break;
	default:
		r = CUDA_ERROR_INVALID_VALUE;
	}
	return drv_leave(r);
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src)
{
	struct CUgraphNode_st *to, *from;
	CUresult r = enter_node(dst, CU_GRAPH_NODE_TYPE_KERNEL, src, &to);
	if (r)
		return r;
	from = drv_find(src, DRV_NODE);
	if (!from || from->work.type != CU_GRAPH_NODE_TYPE_KERNEL)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	to->work.kernel.shape.cooperative = from->work.kernel.shape.cooperative;
	memcpy(to->work.kernel.shape.cluster, from->work.kernel.shape.cluster,
		sizeof(to->work.kernel.shape.cluster));
	to->work.kernel.priority = from->work.kernel.priority;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_MEMCPY, out, &n);
	if (r)
		return r;
	*out = n->work.copy;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
	NEW(MEMCPY);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.memcpy.copyParams = *params;
	return set(node, &p);
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_MEMSET, out, &n);
	if (r)
		return r;
	*out = n->work.set;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params)
{
	NEW(MEMSET);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&p.memset, params, sizeof(*params));
	return set(node, &p);
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode handle, CUDA_HOST_NODE_PARAMS *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_HOST, out, &n);
	if (r)
		return r;
	*out = (CUDA_HOST_NODE_PARAMS){ n->work.host.fn, n->work.host.data };
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *params)
{
	NEW(HOST);
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	p.host = *params;
	return set(node, &p);
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_GRAPH, out, &n);
	if (r)
		return r;
	*out = n->work.child;
	return drv_leave(CUDA_SUCCESS);
}

static CUresult get_event(CUgraphNode handle, CUgraphNodeType type, CUevent *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, (int)type, out, &n);
	if (r)
		return r;
	*out = n->work.event;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
	return get_event(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
	return get_event(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult CUDAAPI cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
	NEW(EVENT_RECORD);
	p.eventRecord.event = event;
	return set(node, &p);
}

CUresult CUDAAPI cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
	NEW(WAIT_EVENT);
	p.eventWait.event = event;
	return set(node, &p);
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out, &n);
	if (r)
		return r;
	*out = (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = n->work.mem.bytes,
		.dptr = n->work.mem.addr
	};
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, out, &n);
	if (r)
		return r;
	*out = n->work.mem.addr;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *out)
{
	struct CUgraphNode_st *n;
	CUresult r = enter_node(handle, -1, out, &n);
	if (r)
		return r;
	*out = n->work.type;
	return drv_leave(CUDA_SUCCESS);
}

/* -- structure --------------------------------------------------------------------------------- */

/* Gives up to *n of what there is, zeros beyond; with NULL lists only the count. */
struct giver {
	CUgraphNode *nodes, *others; /* others: the far ends of edges, or NULL */
	CUgraphEdgeData *edges;
	size_t room, n;
};

static void give(struct giver *g, CUgraphNode node, CUgraphNode other, const CUgraphEdgeData *data)
{
	if (g->n < g->room) {
		if (g->nodes)
			g->nodes[g->n] = node;
		if (g->others)
			g->others[g->n] = other;
		if (g->edges)
			g->edges[g->n] = data ? *data : (CUgraphEdgeData){ 0 };
	}
	g->n++;
}

static CUresult given(struct giver *g, size_t *n)
{
	if (!g->nodes) {
		*n = g->n;
		return drv_leave(CUDA_SUCCESS);
	}
	for (size_t i = g->n; i < g->room; i++) {
		g->nodes[i] = NULL;
		if (g->others)
			g->others[i] = NULL;
	}
	if (g->n < g->room)
		*n = g->n;
	return drv_leave(CUDA_SUCCESS);
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *n, bool roots)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(handle, &g);
	if (r)
		return r;
	if (!n)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct giver out = { .nodes = nodes, .room = nodes ? *n : 0 };
	for (struct CUgraphNode_st *node = g->nodes; node; node = node->next)
		if (!roots || !node->n_deps)
			give(&out, node, NULL, NULL);
	return given(&out, n);
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	return get_nodes(graph, nodes, n, false);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	return get_nodes(graph, nodes, n, true);
}

CUresult CUDAAPI cuGraphGetEdges_v2(
	CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges, size_t *n)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(handle, &g);
	if (r)
		return r;
	if (!n || !from != !to)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct giver out = { from, to, edges, from ? *n : 0, 0 };
	for (struct CUgraphNode_st *node = g->nodes; node; node = node->next)
		for (size_t i = 0; i < node->n_deps; i++)
			give(&out, node->deps[i].from, node, &node->deps[i].data);
	return given(&out, n);
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *n)
{
	return cuGraphGetEdges_v2(graph, from, to, NULL, n);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(
	CUgraphNode handle, CUgraphNode *deps, CUgraphEdgeData *edges, size_t *n)
{
	struct CUgraphNode_st *node;
	CUresult r = enter_node(handle, -1, n, &node);
	if (r)
		return r;
	struct giver out = { deps, NULL, edges, deps ? *n : 0, 0 };
	for (size_t i = 0; i < node->n_deps; i++)
		give(&out, node->deps[i].from, NULL, &node->deps[i].data);
	return given(&out, n);
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *deps, size_t *n)
{
	return cuGraphNodeGetDependencies_v2(node, deps, NULL, n);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(
	CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edges, size_t *n)
{
	struct CUgraphNode_st *node;
	CUresult r = enter_node(handle, -1, n, &node);
	if (r)
		return r;
	struct giver out = { nodes, NULL, edges, nodes ? *n : 0, 0 };
	for (struct CUgraphNode_st *o = node->graph->nodes; o; o = o->next)
		for (size_t i = 0; i < o->n_deps; i++)
			if (o->deps[i].from == node)
				give(&out, o, NULL, &o->deps[i].data);
	return given(&out, n);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *n)
{
	return cuGraphNodeGetDependentNodes_v2(node, nodes, NULL, n);
}

static struct drv_edge *edge_of(struct CUgraphNode_st *to, const struct CUgraphNode_st *from)
{
	for (size_t i = 0; i < to->n_deps; i++)
		if (to->deps[i].from == from)
			return &to->deps[i];
	return NULL;
}

static CUresult add_edge(
	struct CUgraphNode_st *from, struct CUgraphNode_st *to, const CUgraphEdgeData *data)
{
	if (edge_of(to, from) || from == to)
		return CUDA_ERROR_INVALID_VALUE;
	struct drv_edge *deps = realloc(to->deps, (to->n_deps + 1) * sizeof(*deps));
	if (!deps)
		return CUDA_ERROR_OUT_OF_MEMORY;
	to->deps = deps;
	deps[to->n_deps++] = (struct drv_edge){ from, data ? *data : (CUgraphEdgeData){ 0 } };
	return CUDA_SUCCESS;
}

static void remove_edge(struct CUgraphNode_st *to, struct drv_edge *e)
{
	size_t at = (size_t)(e - to->deps);
	memmove(e, e + 1, (--to->n_deps - at) * sizeof(*e));
}

static bool ends_ok(const struct CUgraph_st *g, const CUgraphNode *nodes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct CUgraphNode_st *node = nodes ? drv_find(nodes[i], DRV_NODE) : NULL;
		if (!node || node->graph != g)
			return false;
	}
	return true;
}

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph handle, const CUgraphNode *from,
	const CUgraphNode *to, const CUgraphEdgeData *edges, size_t n)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(handle, &g);
	if (r)
		return r;
	if (!ends_ok(g, from, n) || !ends_ok(g, to, n))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n && !r; i++)
		r = add_edge(from[i], to[i], edges ? &edges[i] : NULL);
	return drv_leave(r);
}

CUresult CUDAAPI cuGraphAddDependencies(
	CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	return cuGraphAddDependencies_v2(graph, from, to, NULL, n);
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph handle, const CUgraphNode *from,
	const CUgraphNode *to, const CUgraphEdgeData *edges, size_t n)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(handle, &g);
	if (r)
		return r;
	if (!ends_ok(g, from, n) || !ends_ok(g, to, n))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n; i++) {
		struct drv_edge *e = edge_of(to[i], from[i]);
		if (!e)
			return drv_leave(CUDA_ERROR_INVALID_VALUE);
		remove_edge(to[i], e);
	}
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphRemoveDependencies(
	CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
	return cuGraphRemoveDependencies_v2(graph, from, to, NULL, n);
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode handle)
{
	struct CUgraphNode_st *node;
	CUresult r = enter_node(handle, -1, handle, &node);
	if (r)
		return r;
	struct CUgraph_st *g = node->graph;
	if (g->captures) /* a captured stream may depend on it */
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	for (struct CUgraphNode_st *o = g->nodes; o; o = o->next) {
		struct drv_edge *e = edge_of(o, node);
		if (e)
			remove_edge(o, e);
	}
	struct CUgraphNode_st **at = &g->nodes;
	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	if (!*at)
		g->tail = at;
	g->n_nodes--;
	node_free(node);
	drv_user_objects_run();
	return drv_leave(CUDA_SUCCESS);
}

/* -- a picture -----------------------------------------------------------------------------------
 */

static const char *const type_names[] = { "kernel", "memcpy", "memset", "host", "graph", "empty",
	"wait event", "event record", "semaphore signal", "semaphore wait", "alloc", "free",
	"memory op", "conditional" };

static void dot_nodes(FILE *f, const struct CUgraph_st *g, int depth)
{
	for (const struct CUgraphNode_st *n = g->nodes; n; n = n->next) {
		const char *name = NULL;
		const struct CUfunc_st *fn = n->work.type == CU_GRAPH_NODE_TYPE_KERNEL
						     ? drv_find(n->work.kernel.fn, DRV_FUNCTION)
						     : NULL;
		const struct CUkern_st *k = n->work.type == CU_GRAPH_NODE_TYPE_KERNEL
						    ? drv_find(n->work.kernel.fn, DRV_KERNEL)
						    : NULL;
		name = fn ? fn->info.name : k ? k->name : "";
		fprintf(f, "\tn%llu [label=\"%s%s%s\"];\n", (unsigned long long)n->id,
			type_names[n->work.type], *name ? "\\n" : "", name);
		for (size_t i = 0; i < n->n_deps; i++)
			fprintf(f, "\tn%llu -> n%llu;\n", (unsigned long long)n->deps[i].from->id,
				(unsigned long long)n->id);
		if (n->work.type == CU_GRAPH_NODE_TYPE_GRAPH && depth < 16)
			dot_nodes(f, n->work.child, depth + 1);
	}
}

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
	struct CUgraph_st *g;
	CUresult r = enter_graph(handle, &g);
	if (r)
		return r;
	FILE *f = path ? fopen(path, "we") : NULL;
	if (!f)
		return drv_leave(CUDA_ERROR_OPERATING_SYSTEM);
	fputs("digraph g {\n", f);
	dot_nodes(f, g, 0);
	fputs("}\n", f);
	return drv_leave(fclose(f) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS);
}

/* -- user objects
 * ----------------------------------------------------------------------------------- */

CUresult CUDAAPI cuUserObjectCreate(
	CUuserObject *out, void *data, CUhostFn destroy, unsigned int count, unsigned int flags)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!out || !destroy || !count || count > INT32_MAX ||
		flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	struct CUuserObject_st *o = calloc(1, sizeof(*o));
	if (!o)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*o = (struct CUuserObject_st){ { DRV_USER_OBJECT }, count, destroy, data };
	if (drv_add_handle(&o->object)) {
		free(o);
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	*out = o;
	return drv_leave(CUDA_SUCCESS);
}

static CUresult enter_user(CUuserObject handle, unsigned int count, struct CUuserObject_st **o)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*o = drv_find(handle, DRV_USER_OBJECT);
	if (!*o || !count || count > INT32_MAX)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject handle, unsigned int count)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	if (o->count > INT32_MAX - count)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	o->count += count;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject handle, unsigned int count)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	if (count > o->count)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	user_put(o, count);
	drv_user_objects_run();
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphRetainUserObject(
	CUgraph graph, CUuserObject handle, unsigned int count, unsigned int flags)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(graph, DRV_GRAPH);
	if (!g || flags > CU_GRAPH_USER_OBJECT_MOVE || (!flags && o->count > INT32_MAX - count))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	size_t i = 0;
	while (i < g->n_users && g->users[i].object != o)
		i++;
	if (i == g->n_users) {
		void *users = realloc(g->users, (i + 1) * sizeof(*g->users));
		if (!users)
			return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
		g->users = users;
		g->users[g->n_users++] = (struct drv_graph_user){ o, 0 };
	}
	g->users[i].count += count;
	if (!flags)
		o->count += count;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject handle, unsigned int count)
{
	struct CUuserObject_st *o;
	CUresult r = enter_user(handle, count, &o);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(graph, DRV_GRAPH);
	for (size_t i = 0; g && i < g->n_users; i++) {
		if (g->users[i].object != o || g->users[i].count < count)
			continue;
		g->users[i].count -= count;
		if (!g->users[i].count)
			g->users[i] = g->users[--g->n_users];
		user_put(o, count);
		drv_user_objects_run();
		return drv_leave(CUDA_SUCCESS);
	}
	return drv_leave(CUDA_ERROR_INVALID_VALUE);
}

/* -- memory of graphs
 * ---------------------------------------------------------------------------------- */

CUresult CUDAAPI cuDeviceGraphMemTrim(CUdevice dev)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	return drv_leave(drv_device_ok(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
}

CUresult CUDAAPI cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	uint64_t used = 0;
	size_t pos = 0;
	struct drv_alloc *a;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!value || (unsigned int)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	while ((a = table_next(drv.allocs, &pos, NULL, NULL)))
		if (a->kind == DRV_MEM_GRAPH)
			used += a->bytes;
	memcpy(value, &used, sizeof(used));
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	if (!drv_device_ok(dev))
		return drv_leave(CUDA_ERROR_INVALID_DEVICE);
	bool high = attr == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
		    attr == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
	return drv_leave(high && value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
