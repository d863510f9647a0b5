/* driver_node.c - nodes by kind: the calls that add one to a graph and that read or set its
 * parameters. */
#include "softgpu/driver.h"

#include <string.h>

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
	r = p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? drv_cond_work(g, &p->conditional, &work)
						      : drv_work_from(ctx, p, &work);
	if (r || (r = drv_graph_add(g, deps, n, &work, &node)))
		return drv_leave(r);
	for (size_t i = 0; edges && i < n; i++)
		node->deps[i].data = edges[i];
	if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		p->alloc.dptr = node->work.mem.addr;
	if (p->type == CU_GRAPH_NODE_TYPE_GRAPH)
		p->graph.graph = node->work.child;
	if (p->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		p->conditional.phGraph_out = node->work.cond->bodies;
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, out, &n);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &n);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_KERNEL, value, &n);
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
	CUresult r = drv_enter_node(dst, CU_GRAPH_NODE_TYPE_KERNEL, src, &to);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_MEMCPY, out, &n);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_MEMSET, out, &n);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_HOST, out, &n);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_GRAPH, out, &n);
	if (r)
		return r;
	*out = n->work.child;
	return drv_leave(CUDA_SUCCESS);
}

static CUresult get_event(CUgraphNode handle, CUgraphNodeType type, CUevent *out)
{
	struct CUgraphNode_st *n;
	CUresult r = drv_enter_node(handle, (int)type, out, &n);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out, &n);
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
	CUresult r = drv_enter_node(handle, CU_GRAPH_NODE_TYPE_MEM_FREE, out, &n);
	if (r)
		return r;
	*out = n->work.mem.addr;
	return drv_leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *out)
{
	struct CUgraphNode_st *n;
	CUresult r = drv_enter_node(handle, -1, out, &n);
	if (r)
		return r;
	*out = n->work.type;
	return drv_leave(CUDA_SUCCESS);
}
