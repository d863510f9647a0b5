/* runtime_graph.c - graphs. Kernel nodes name host stubs here and kernels in the driver. */
#include "softgpu/runtime.h"

#include <string.h>

#define ADDR(p) ((CUdeviceptr)(uintptr_t)(p))

/* Parameters that begin a call which adds a node. */
#define ADD cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *deps, size_t n

RT_PASS(cudaGraphCreate, (cudaGraph_t * graph, unsigned int flags), cuGraphCreate, (graph, flags))
RT_PASS(cudaGraphDestroy, (cudaGraph_t graph), cuGraphDestroy, (graph))
RT_PASS(cudaGraphClone, (cudaGraph_t * clone, cudaGraph_t graph), cuGraphClone, (clone, graph))
RT_PASS(cudaGraphNodeFindInClone,
	(cudaGraphNode_t * node, cudaGraphNode_t original, cudaGraph_t clone),
	cuGraphNodeFindInClone, (node, original, clone))
RT_PASS(cudaGraphNodeGetType, (cudaGraphNode_t node, CUgraphNodeType *type), cuGraphNodeGetType,
	(node, type))
RT_PASS(cudaGraphGetNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n), cuGraphGetNodes,
	(graph, nodes, n))
RT_PASS(cudaGraphGetRootNodes, (cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n),
	cuGraphGetRootNodes, (graph, nodes, n))
RT_PASS(cudaGraphGetEdges,
	(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, CUgraphEdgeData *edges,
		size_t *n),
	cuGraphGetEdges_v2, (graph, from, to, edges, n))
RT_PASS(cudaGraphNodeGetDependencies,
	(cudaGraphNode_t node, cudaGraphNode_t *deps, CUgraphEdgeData *edges, size_t *n),
	cuGraphNodeGetDependencies_v2, (node, deps, edges, n))
RT_PASS(cudaGraphNodeGetDependentNodes,
	(cudaGraphNode_t node, cudaGraphNode_t *nodes, CUgraphEdgeData *edges, size_t *n),
	cuGraphNodeGetDependentNodes_v2, (node, nodes, edges, n))
RT_PASS(cudaGraphAddDependencies,
	(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
		const CUgraphEdgeData *edges, size_t n),
	cuGraphAddDependencies_v2, (graph, from, to, edges, n))
RT_PASS(cudaGraphRemoveDependencies,
	(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to,
		const CUgraphEdgeData *edges, size_t n),
	cuGraphRemoveDependencies_v2, (graph, from, to, edges, n))
RT_PASS(cudaGraphDestroyNode, (cudaGraphNode_t node), cuGraphDestroyNode, (node))
RT_PASS(cudaGraphDebugDotPrint, (cudaGraph_t graph, const char *path, unsigned int flags),
	cuGraphDebugDotPrint, (graph, path, flags))
RT_PASS(cudaUserObjectCreate,
	(CUuserObject * object, void *data, CUhostFn destroy, unsigned int count,
		unsigned int flags),
	cuUserObjectCreate, (object, data, destroy, count, flags))
RT_PASS(cudaUserObjectRetain, (CUuserObject object, unsigned int count), cuUserObjectRetain,
	(object, count))
RT_PASS(cudaUserObjectRelease, (CUuserObject object, unsigned int count), cuUserObjectRelease,
	(object, count))
RT_PASS(cudaGraphRetainUserObject,
	(cudaGraph_t graph, CUuserObject object, unsigned int count, unsigned int flags),
	cuGraphRetainUserObject, (graph, object, count, flags))
RT_PASS(cudaGraphReleaseUserObject, (cudaGraph_t graph, CUuserObject object, unsigned int count),
	cuGraphReleaseUserObject, (graph, object, count))

/* -- kernel nodes ----------------------------------------------------------------------- */

static cudaError_t kernel_params(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS *out)
{
	CUkernel k;
	if (!p)
		return cudaErrorInvalidValue;
	cudaError_t r = rt_kernel(p->func, &k);
	if (r)
		return r;
	*out = (CUDA_KERNEL_NODE_PARAMS){ .kern = k,
		.gridDimX = p->gridDim.x,
		.gridDimY = p->gridDim.y,
		.gridDimZ = p->gridDim.z,
		.blockDimX = p->blockDim.x,
		.blockDimY = p->blockDim.y,
		.blockDimZ = p->blockDim.z,
		.sharedMemBytes = p->sharedMemBytes,
		.kernelParams = p->kernelParams,
		.extra = p->extra };
	return cudaSuccess;
}

cudaError_t RTAPI cudaGraphAddKernelNode(ADD, const struct cudaKernelNodeParams *params);
cudaError_t RTAPI cudaGraphAddKernelNode(ADD, const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS p;
	RT_ENTER;
	cudaError_t r = kernel_params(params, &p);
	return rt_end(r ? r : (cudaError_t)CU(cuGraphAddKernelNode_v2)(node, graph, deps, n, &p));
}

cudaError_t RTAPI cudaGraphKernelNodeGetParams(
	cudaGraphNode_t node, struct cudaKernelNodeParams *out);
cudaError_t RTAPI cudaGraphKernelNodeGetParams(
	cudaGraphNode_t node, struct cudaKernelNodeParams *out)
{
	CUDA_KERNEL_NODE_PARAMS p;
	RT_ENTER;
	CUresult r = out ? CU(cuGraphKernelNodeGetParams_v2)(node, &p) : CUDA_ERROR_INVALID_VALUE;
	if (r)
		return rt_end(r);
	*out = (struct cudaKernelNodeParams){ p.kern ? (void *)rt_host_function(p.kern)
						     : (void *)p.func,
		{ p.gridDimX, p.gridDimY, p.gridDimZ }, { p.blockDimX, p.blockDimY, p.blockDimZ },
		p.sharedMemBytes, p.kernelParams, p.extra };
	return cudaSuccess;
}

cudaError_t RTAPI cudaGraphKernelNodeSetParams(
	cudaGraphNode_t node, const struct cudaKernelNodeParams *params);
cudaError_t RTAPI cudaGraphKernelNodeSetParams(
	cudaGraphNode_t node, const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS p;
	RT_ENTER;
	cudaError_t r = kernel_params(params, &p);
	return rt_end(r ? r : (cudaError_t)CU(cuGraphKernelNodeSetParams_v2)(node, &p));
}

cudaError_t RTAPI cudaGraphExecKernelNodeSetParams(
	cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *params);
cudaError_t RTAPI cudaGraphExecKernelNodeSetParams(
	cudaGraphExec_t exec, cudaGraphNode_t node, const struct cudaKernelNodeParams *params)
{
	CUDA_KERNEL_NODE_PARAMS p;
	RT_ENTER;
	cudaError_t r = kernel_params(params, &p);
	return rt_end(r ? r : (cudaError_t)CU(cuGraphExecKernelNodeSetParams_v2)(exec, node, &p));
}

RT_PASS(cudaGraphKernelNodeSetAttribute,
	(cudaGraphNode_t node, CUkernelNodeAttrID attr, const CUkernelNodeAttrValue *value),
	cuGraphKernelNodeSetAttribute, (node, attr, value))
RT_PASS(cudaGraphKernelNodeGetAttribute,
	(cudaGraphNode_t node, CUkernelNodeAttrID attr, CUkernelNodeAttrValue *value),
	cuGraphKernelNodeGetAttribute, (node, attr, value))
RT_PASS(cudaGraphKernelNodeCopyAttributes, (cudaGraphNode_t dst, cudaGraphNode_t src),
	cuGraphKernelNodeCopyAttributes, (dst, src))

/* -- copies ------------------------------------------------------------------------------- */

static CUcontext current(void)
{
	CUcontext ctx = NULL;
	CU(cuCtxGetCurrent)(&ctx);
	return ctx;
}

static cudaError_t symbol_at(const void *symbol, size_t n, size_t offset, void **at)
{
	CUdeviceptr addr;
	size_t size;
	cudaError_t r = rt_symbol(symbol, &addr, &size);
	if (r)
		return r;
	*at = (void *)(uintptr_t)(addr + offset);
	return offset > size || n > size - offset ? cudaErrorInvalidValue : cudaSuccess;
}

/* Each way to describe a copy, in three calls: add a node, set its parameters, set those of an
 * executable. `make` fills c or gives an error. */
#define COPY_CALLS(add, set, exec_set, params, make)                                               \
	cudaError_t RTAPI add(ADD, UNWRAP params);                                                 \
	cudaError_t RTAPI add(ADD, UNWRAP params)                                                  \
	{                                                                                          \
		CUDA_MEMCPY3D c;                                                                   \
		RT_ENTER;                                                                          \
		cudaError_t r = make;                                                              \
		return rt_end(r ? r                                                                \
				: (cudaError_t)CU(cuGraphAddMemcpyNode)(                           \
					  node, graph, deps, n, &c, current()));                   \
	}                                                                                          \
	cudaError_t RTAPI set(cudaGraphNode_t node, UNWRAP params);                                \
	cudaError_t RTAPI set(cudaGraphNode_t node, UNWRAP params)                                 \
	{                                                                                          \
		CUDA_MEMCPY3D c;                                                                   \
		RT_ENTER;                                                                          \
		cudaError_t r = make;                                                              \
		return rt_end(r ? r : (cudaError_t)CU(cuGraphMemcpyNodeSetParams)(node, &c));      \
	}                                                                                          \
	cudaError_t RTAPI exec_set(cudaGraphExec_t exec, cudaGraphNode_t node, UNWRAP params);     \
	cudaError_t RTAPI exec_set(cudaGraphExec_t exec, cudaGraphNode_t node, UNWRAP params)      \
	{                                                                                          \
		CUDA_MEMCPY3D c;                                                                   \
		RT_ENTER;                                                                          \
		cudaError_t r = make;                                                              \
		return rt_end(r ? r                                                                \
				: (cudaError_t)CU(cuGraphExecMemcpyNodeSetParams)(                 \
					  exec, node, &c, current()));                             \
	}
#define UNWRAP(...) __VA_ARGS__

static cudaError_t to_symbol(CUDA_MEMCPY3D *c, const void *symbol, const void *src, size_t count,
	size_t offset, int kind)
{
	void *at;
	cudaError_t r = symbol_at(symbol, count, offset, &at);
	return r ? r : rt_copy_1d(c, at, src, count, kind);
}

static cudaError_t from_symbol(
	CUDA_MEMCPY3D *c, void *dst, const void *symbol, size_t count, size_t offset, int kind)
{
	void *at;
	cudaError_t r = symbol_at(symbol, count, offset, &at);
	return r ? r : rt_copy_1d(c, dst, at, count, kind);
}

COPY_CALLS(cudaGraphAddMemcpyNode, cudaGraphMemcpyNodeSetParams, cudaGraphExecMemcpyNodeSetParams,
	(const struct cudaMemcpy3DParms *params), rt_copy_3d(params, &c))
COPY_CALLS(cudaGraphAddMemcpyNode1D, cudaGraphMemcpyNodeSetParams1D,
	cudaGraphExecMemcpyNodeSetParams1D, (void *dst, const void *src, size_t count, int kind),
	rt_copy_1d(&c, dst, src, count, kind))
COPY_CALLS(cudaGraphAddMemcpyNodeToSymbol, cudaGraphMemcpyNodeSetParamsToSymbol,
	cudaGraphExecMemcpyNodeSetParamsToSymbol,
	(const void *symbol, const void *src, size_t count, size_t offset, int kind),
	to_symbol(&c, symbol, src, count, offset, kind))
COPY_CALLS(cudaGraphAddMemcpyNodeFromSymbol, cudaGraphMemcpyNodeSetParamsFromSymbol,
	cudaGraphExecMemcpyNodeSetParamsFromSymbol,
	(void *dst, const void *symbol, size_t count, size_t offset, int kind),
	from_symbol(&c, dst, symbol, count, offset, kind))

cudaError_t RTAPI cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *out);
cudaError_t RTAPI cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *out)
{
	CUDA_MEMCPY3D c;
	RT_ENTER;
	CUresult r = out ? CU(cuGraphMemcpyNodeGetParams)(node, &c) : CUDA_ERROR_INVALID_VALUE;
	if (!r)
		rt_copy_parms(&c, out);
	return rt_end(r);
}

/* -- other nodes ----------------------------------------------------------------------------- */

RT_PASS(cudaGraphAddMemsetNode, (ADD, const CUDA_MEMSET_NODE_PARAMS *params), cuGraphAddMemsetNode,
	(node, graph, deps, n, params, current()))
RT_PASS(cudaGraphMemsetNodeGetParams, (cudaGraphNode_t node, CUDA_MEMSET_NODE_PARAMS *params),
	cuGraphMemsetNodeGetParams, (node, params))
RT_PASS(cudaGraphMemsetNodeSetParams, (cudaGraphNode_t node, const CUDA_MEMSET_NODE_PARAMS *params),
	cuGraphMemsetNodeSetParams, (node, params))
RT_PASS(cudaGraphExecMemsetNodeSetParams,
	(cudaGraphExec_t exec, cudaGraphNode_t node, const CUDA_MEMSET_NODE_PARAMS *params),
	cuGraphExecMemsetNodeSetParams, (exec, node, params, current()))
RT_PASS(cudaGraphAddHostNode, (ADD, const CUDA_HOST_NODE_PARAMS *params), cuGraphAddHostNode,
	(node, graph, deps, n, params))
RT_PASS(cudaGraphHostNodeGetParams, (cudaGraphNode_t node, CUDA_HOST_NODE_PARAMS *params),
	cuGraphHostNodeGetParams, (node, params))
RT_PASS(cudaGraphHostNodeSetParams, (cudaGraphNode_t node, const CUDA_HOST_NODE_PARAMS *params),
	cuGraphHostNodeSetParams, (node, params))
RT_PASS(cudaGraphExecHostNodeSetParams,
	(cudaGraphExec_t exec, cudaGraphNode_t node, const CUDA_HOST_NODE_PARAMS *params),
	cuGraphExecHostNodeSetParams, (exec, node, params))
RT_PASS(cudaGraphAddChildGraphNode, (ADD, cudaGraph_t child), cuGraphAddChildGraphNode,
	(node, graph, deps, n, child))
RT_PASS(cudaGraphChildGraphNodeGetGraph, (cudaGraphNode_t node, cudaGraph_t *graph),
	cuGraphChildGraphNodeGetGraph, (node, graph))
RT_PASS(cudaGraphExecChildGraphNodeSetParams,
	(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child),
	cuGraphExecChildGraphNodeSetParams, (exec, node, child))
RT_PASS(cudaGraphAddEmptyNode, (ADD), cuGraphAddEmptyNode, (node, graph, deps, n))
RT_PASS(cudaGraphAddEventRecordNode, (ADD, cudaEvent_t event), cuGraphAddEventRecordNode,
	(node, graph, deps, n, event))
RT_PASS(cudaGraphEventRecordNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
	cuGraphEventRecordNodeGetEvent, (node, event))
RT_PASS(cudaGraphEventRecordNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
	cuGraphEventRecordNodeSetEvent, (node, event))
RT_PASS(cudaGraphExecEventRecordNodeSetEvent,
	(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
	cuGraphExecEventRecordNodeSetEvent, (exec, node, event))
RT_PASS(cudaGraphAddEventWaitNode, (ADD, cudaEvent_t event), cuGraphAddEventWaitNode,
	(node, graph, deps, n, event))
RT_PASS(cudaGraphEventWaitNodeGetEvent, (cudaGraphNode_t node, cudaEvent_t *event),
	cuGraphEventWaitNodeGetEvent, (node, event))
RT_PASS(cudaGraphEventWaitNodeSetEvent, (cudaGraphNode_t node, cudaEvent_t event),
	cuGraphEventWaitNodeSetEvent, (node, event))
RT_PASS(cudaGraphExecEventWaitNodeSetEvent,
	(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event),
	cuGraphExecEventWaitNodeSetEvent, (exec, node, event))
RT_PASS(cudaGraphAddMemAllocNode, (ADD, CUDA_MEM_ALLOC_NODE_PARAMS *params), cuGraphAddMemAllocNode,
	(node, graph, deps, n, params))
RT_PASS(cudaGraphMemAllocNodeGetParams, (cudaGraphNode_t node, CUDA_MEM_ALLOC_NODE_PARAMS *params),
	cuGraphMemAllocNodeGetParams, (node, params))
RT_PASS(cudaGraphAddMemFreeNode, (ADD, void *p), cuGraphAddMemFreeNode,
	(node, graph, deps, n, ADDR(p)))
RT_PASS(cudaGraphMemFreeNodeGetParams, (cudaGraphNode_t node, void *p), cuGraphMemFreeNodeGetParams,
	(node, (CUdeviceptr *)p))

cudaError_t RTAPI cudaGraphConditionalHandleCreate(
	CUgraphConditionalHandle *handle, cudaGraph_t graph, unsigned int value, unsigned int flags);
cudaError_t RTAPI cudaGraphConditionalHandleCreate(
	CUgraphConditionalHandle *handle, cudaGraph_t graph, unsigned int value, unsigned int flags)
{
	RT_ENTER;
	return rt_end((cudaError_t)CU(cuGraphConditionalHandleCreate)(
		handle, graph, current(), value, flags));
}

/* -- nodes of any type --------------------------------------------------------------------------
 */

static cudaError_t node_params(const struct cudaGraphNodeParams *p, CUgraphNodeParams *out)
{
	if (!p)
		return cudaErrorInvalidValue;
	memset(out, 0, sizeof(*out));
	out->type = p->type;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return kernel_params(&p->kernel, &out->kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		out->memcpy.flags = p->memcpy.flags;
		out->memcpy.copyCtx = current();
		return rt_copy_3d(&p->memcpy.copyParams, &out->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		memcpy(&out->memset, &p->memset, sizeof(p->memset));
		out->memset.ctx = current();
		return cudaSuccess;
	default: /* laid out alike */
		memcpy(out->reserved1, p->reserved1, sizeof(out->reserved1));
		return cudaSuccess;
	}
}

cudaError_t RTAPI cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
	const cudaGraphNode_t *deps, const CUgraphEdgeData *edges, size_t n,
	struct cudaGraphNodeParams *params);
cudaError_t RTAPI cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
	const cudaGraphNode_t *deps, const CUgraphEdgeData *edges, size_t n,
	struct cudaGraphNodeParams *params)
{
	CUgraphNodeParams p;
	RT_ENTER;
	cudaError_t r = node_params(params, &p);
	if (!r)
		r = CU(cuGraphAddNode_v2)(node, graph, deps, edges, n, &p);
	if (!r && p.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		params->alloc.dptr = p.alloc.dptr;
	if (!r && p.type == CU_GRAPH_NODE_TYPE_GRAPH)
		params->graph.graph = p.graph.graph;
	if (!r && p.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		params->conditional.phGraph_out = p.conditional.phGraph_out;
	return rt_end(r);
}

cudaError_t RTAPI cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *params);
cudaError_t RTAPI cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *params)
{
	CUgraphNodeParams p;
	RT_ENTER;
	cudaError_t r = node_params(params, &p);
	return rt_end(r ? r : (cudaError_t)CU(cuGraphNodeSetParams)(node, &p));
}

cudaError_t RTAPI cudaGraphExecNodeSetParams(
	cudaGraphExec_t exec, cudaGraphNode_t node, struct cudaGraphNodeParams *params);
cudaError_t RTAPI cudaGraphExecNodeSetParams(
	cudaGraphExec_t exec, cudaGraphNode_t node, struct cudaGraphNodeParams *params)
{
	CUgraphNodeParams p;
	RT_ENTER;
	cudaError_t r = node_params(params, &p);
	return rt_end(r ? r : (cudaError_t)CU(cuGraphExecNodeSetParams)(exec, node, &p));
}

/* -- executables ----------------------------------------------------------------------------------
 */

RT_PASS(cudaGraphInstantiateWithFlags,
	(cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
	cuGraphInstantiateWithFlags, (exec, graph, flags))
RT_PASS(cudaGraphInstantiate, (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
	cuGraphInstantiateWithFlags, (exec, graph, flags))
RT_PASS(cudaGraphInstantiateWithParams,
	(cudaGraphExec_t * exec, cudaGraph_t graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	cuGraphInstantiateWithParams, (exec, graph, params))
RT_TWIN(cudaGraphInstantiateWithParams, _ptsz,
	(cudaGraphExec_t * exec, cudaGraph_t graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
	(exec, graph, params))
RT_PASS(cudaGraphExecGetFlags, (cudaGraphExec_t exec, unsigned long long *flags),
	cuGraphExecGetFlags, (exec, (cuuint64_t *)flags))
RT_PASS(cudaGraphExecUpdate,
	(cudaGraphExec_t exec, cudaGraph_t graph, CUgraphExecUpdateResultInfo *info),
	cuGraphExecUpdate_v2, (exec, graph, info))
RT_PASS(cudaGraphNodeSetEnabled, (cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int enabled),
	cuGraphNodeSetEnabled, (exec, node, enabled))
RT_PASS(cudaGraphNodeGetEnabled,
	(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned int *enabled), cuGraphNodeGetEnabled,
	(exec, node, enabled))
RT_PASS(cudaGraphUpload, (cudaGraphExec_t exec, cudaStream_t stream), cuGraphUpload, (exec, stream))
RT_TWIN(cudaGraphUpload, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream))
RT_PASS(cudaGraphLaunch, (cudaGraphExec_t exec, cudaStream_t stream), cuGraphLaunch, (exec, stream))
RT_TWIN(cudaGraphLaunch, _ptsz, (cudaGraphExec_t exec, cudaStream_t stream), (exec, stream))
RT_PASS(cudaGraphExecDestroy, (cudaGraphExec_t exec), cuGraphExecDestroy, (exec))
