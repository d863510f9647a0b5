/* runtime_12.c - what CUDA 12's runtime has under names that CUDA 13 gave to newer forms. */
#include "softgpu/runtime.h"

#undef cudaMemAdvise
#undef cudaMemPrefetchAsync
#undef cudaMemPrefetchAsync_ptsz
#undef cudaStreamUpdateCaptureDependencies
#undef cudaStreamUpdateCaptureDependencies_ptsz
#undef cudaGraphGetEdges
#undef cudaGraphNodeGetDependencies
#undef cudaGraphNodeGetDependentNodes
#undef cudaGraphAddDependencies
#undef cudaGraphRemoveDependencies
#undef cudaGraphAddNode

#define ADDR(p) ((CUdeviceptr)(uintptr_t)(p))

RT_PASS(cudaMemAdvise, (const void *p, size_t bytes, CUmem_advise advice, int device), cuMemAdvise,
	(ADDR(p), bytes, advice, device))
RT_PASS(cudaMemPrefetchAsync, (const void *p, size_t bytes, int device, cudaStream_t stream),
	cuMemPrefetchAsync, (ADDR(p), bytes, device, stream))
RT_TWIN(cudaMemPrefetchAsync, _ptsz, (const void *p, size_t bytes, int device, cudaStream_t stream),
	(p, bytes, device, stream))
RT_PASS(cudaStreamGetCaptureInfo_v2,
	(cudaStream_t stream, CUstreamCaptureStatus *status, unsigned long long *id,
		cudaGraph_t *graph, const cudaGraphNode_t **deps, size_t *n),
	cuStreamGetCaptureInfo_v2, (stream, status, (cuuint64_t *)id, graph, deps, n))
RT_TWIN(cudaStreamGetCaptureInfo_v2, _ptsz,
	(cudaStream_t stream, CUstreamCaptureStatus *status, unsigned long long *id,
		cudaGraph_t *graph, const cudaGraphNode_t **deps, size_t *n),
	(stream, status, id, graph, deps, n))
RT_PASS(cudaStreamUpdateCaptureDependencies,
	(cudaStream_t stream, cudaGraphNode_t *deps, size_t n, unsigned int flags),
	cuStreamUpdateCaptureDependencies, (stream, deps, n, flags))
RT_TWIN(cudaStreamUpdateCaptureDependencies, _ptsz,
	(cudaStream_t stream, cudaGraphNode_t *deps, size_t n, unsigned int flags),
	(stream, deps, n, flags))
RT_PASS(cudaGraphGetEdges,
	(cudaGraph_t graph, cudaGraphNode_t *from, cudaGraphNode_t *to, size_t *n), cuGraphGetEdges,
	(graph, from, to, n))
RT_PASS(cudaGraphNodeGetDependencies, (cudaGraphNode_t node, cudaGraphNode_t *deps, size_t *n),
	cuGraphNodeGetDependencies, (node, deps, n))
RT_PASS(cudaGraphNodeGetDependentNodes, (cudaGraphNode_t node, cudaGraphNode_t *nodes, size_t *n),
	cuGraphNodeGetDependentNodes, (node, nodes, n))
RT_PASS(cudaGraphAddDependencies,
	(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t n),
	cuGraphAddDependencies, (graph, from, to, n))
RT_PASS(cudaGraphRemoveDependencies,
	(cudaGraph_t graph, const cudaGraphNode_t *from, const cudaGraphNode_t *to, size_t n),
	cuGraphRemoveDependencies, (graph, from, to, n))

RT_PASS(cudaThreadSynchronize, (void), cuCtxSynchronize, ())

#define cudaGraphAddNode_edges cudaGraphAddNode_v2
cudaError_t RTAPI cudaGraphAddNode_edges(cudaGraphNode_t *node, cudaGraph_t graph,
	const cudaGraphNode_t *deps, const CUgraphEdgeData *edges, size_t n,
	struct cudaGraphNodeParams *params);
cudaError_t RTAPI cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
	const cudaGraphNode_t *deps, size_t n, struct cudaGraphNodeParams *params);
cudaError_t RTAPI cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph,
	const cudaGraphNode_t *deps, size_t n, struct cudaGraphNodeParams *params)
{
	return cudaGraphAddNode_edges(node, graph, deps, NULL, n, params);
}
