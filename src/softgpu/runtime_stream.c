/* runtime_stream.c - streams, events, capture. */
#include "softgpu/runtime.h"

#define ADDR(p) ((CUdeviceptr)(uintptr_t)(p))

RT_PASS(cudaStreamCreate, (cudaStream_t * stream), cuStreamCreate, (stream, 0))
RT_PASS(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned int flags), cuStreamCreate,
	(stream, flags))
RT_PASS(cudaStreamCreateWithPriority, (cudaStream_t * stream, unsigned int flags, int priority),
	cuStreamCreateWithPriority, (stream, flags, priority))
RT_PASS(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy_v2, (stream))

/* A call and its twin. */
#define STREAM(name, params, call, args, own_args)                                                 \
	RT_PASS(name, params, call, args)                                                          \
	RT_TWIN(name, _ptsz, params, own_args)

STREAM(cudaStreamGetPriority, (cudaStream_t stream, int *priority), cuStreamGetPriority,
	(stream, priority), (stream, priority))
STREAM(cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags), cuStreamGetFlags,
	(stream, flags), (stream, flags))
STREAM(cudaStreamGetId, (cudaStream_t stream, unsigned long long *id), cuStreamGetId, (stream, id),
	(stream, id))
STREAM(cudaStreamGetDevice, (cudaStream_t stream, int *device), cuStreamGetDevice, (stream, device),
	(stream, device))
STREAM(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery, (stream), (stream))
STREAM(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize, (stream), (stream))
STREAM(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
	cuStreamWaitEvent, (stream, event, flags), (stream, event, flags))
STREAM(cudaStreamAddCallback,
	(cudaStream_t stream, CUstreamCallback callback, void *data, unsigned int flags),
	cuStreamAddCallback, (stream, callback, data, flags), (stream, callback, data, flags))
STREAM(cudaStreamAttachMemAsync, (cudaStream_t stream, void *p, size_t bytes, unsigned int flags),
	cuStreamAttachMemAsync, (stream, ADDR(p), bytes, flags), (stream, p, bytes, flags))
STREAM(cudaStreamCopyAttributes, (cudaStream_t dst, cudaStream_t src), cuStreamCopyAttributes,
	(dst, src), (dst, src))
STREAM(cudaStreamGetAttribute, (cudaStream_t stream, CUstreamAttrID attr, CUstreamAttrValue *v),
	cuStreamGetAttribute, (stream, attr, v), (stream, attr, v))
STREAM(cudaStreamSetAttribute,
	(cudaStream_t stream, CUstreamAttrID attr, const CUstreamAttrValue *v),
	cuStreamSetAttribute, (stream, attr, v), (stream, attr, v))

STREAM(cudaStreamBeginCapture, (cudaStream_t stream, CUstreamCaptureMode mode),
	cuStreamBeginCapture_v2, (stream, mode), (stream, mode))
STREAM(cudaStreamBeginCaptureToGraph,
	(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *deps,
		const CUgraphEdgeData *edges, size_t n, CUstreamCaptureMode mode),
	cuStreamBeginCaptureToGraph, (stream, graph, deps, edges, n, mode),
	(stream, graph, deps, edges, n, mode))
STREAM(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *graph), cuStreamEndCapture,
	(stream, graph), (stream, graph))
STREAM(cudaStreamIsCapturing, (cudaStream_t stream, CUstreamCaptureStatus *status),
	cuStreamIsCapturing, (stream, status), (stream, status))
STREAM(cudaStreamGetCaptureInfo,
	(cudaStream_t stream, CUstreamCaptureStatus *status, unsigned long long *id,
		cudaGraph_t *graph, const cudaGraphNode_t **deps, const CUgraphEdgeData **edges,
		size_t *n),
	cuStreamGetCaptureInfo_v3, (stream, status, (cuuint64_t *)id, graph, deps, edges, n),
	(stream, status, id, graph, deps, edges, n))
STREAM(cudaStreamUpdateCaptureDependencies,
	(cudaStream_t stream, cudaGraphNode_t *deps, const CUgraphEdgeData *edges, size_t n,
		unsigned int flags),
	cuStreamUpdateCaptureDependencies_v2, (stream, deps, edges, n, flags),
	(stream, deps, edges, n, flags))
RT_PASS(cudaThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode),
	cuThreadExchangeStreamCaptureMode, (mode))

RT_PASS(cudaEventCreate, (cudaEvent_t * event), cuEventCreate, (event, 0))
RT_PASS(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags), cuEventCreate,
	(event, flags))
RT_PASS(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy_v2, (event))
RT_PASS(cudaEventQuery, (cudaEvent_t event), cuEventQuery, (event))
RT_PASS(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize, (event))
RT_PASS(cudaEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end),
	cuEventElapsedTime_v2, (ms, start, end))
#if RT_MAJOR < 13
RT_PASS(cudaEventElapsedTime_v2, (float *ms, cudaEvent_t start, cudaEvent_t end),
	cuEventElapsedTime_v2, (ms, start, end))
#endif
STREAM(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord, (event, stream),
	(event, stream))
STREAM(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
	cuEventRecordWithFlags, (event, stream, flags), (event, stream, flags))
