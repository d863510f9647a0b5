/* driver_graph.c - graphs: their nodes and the edges between them. */
#include "softgpu/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t last_node_id;

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

void drv_graph_free(struct CUgraph_st *g)
{
	drv_remove_handle(&g->object);
	while (g->nodes) {
		struct CUgraphNode_st *n = g->nodes;
		g->nodes = n->next;
		node_free(n);
	}
	drv_conditions_free(g);
	for (size_t i = 0; i < g->n_users; i++)
		drv_user_put(g->users[i].object, g->users[i].count);
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
	bool ok = g && map && hold_users(from, g) && !drv_conditions_copy(from, g);
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
	if (drv_has_cond(g)) /* nor on hardware */
		return drv_leave(CUDA_ERROR_NOT_SUPPORTED);
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

/* -- structure --------------------------------------------------------------------------------- */

CUresult drv_enter_node(
	CUgraphNode handle, int type, const void *out, struct CUgraphNode_st **n)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	*n = drv_find(handle, DRV_NODE);
	if (!*n || !out || (type >= 0 && (*n)->work.type != (CUgraphNodeType)type))
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	return CUDA_SUCCESS;
}

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
	CUresult r = drv_enter_node(handle, -1, n, &node);
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
	CUresult r = drv_enter_node(handle, -1, n, &node);
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
	CUresult r = drv_enter_node(handle, -1, handle, &node);
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
		for (unsigned int i = 0; n->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
					 i < n->work.cond->n && depth < 16;
			i++)
			dot_nodes(f, n->work.cond->bodies[i], depth + 1);
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
