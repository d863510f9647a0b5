/* Graphs: what is built node by node or captured from streams runs in the order of its edges, can
 * be changed, and says what is wrong with it. */
#include "driver_test.h"

static CUstream stream, other;

static CUDA_KERNEL_NODE_PARAMS kernel_node(const char *name, void **params)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = kernel(name),
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = params };
}

static CUDA_MEMCPY3D copy_1d(CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
	return (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
		.srcDevice = src,
		.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
		.dstDevice = dst,
		.WidthInBytes = bytes,
		.Height = 1,
		.Depth = 1 };
}

static void host_add(void *data)
{
	*(uint32_t *)data += 100;
}

/* memset 5 -> add 3 -> copy to the host -> host adds 100 */
static void built(void)
{
	CUgraph g;
	CUgraphNode set, add, copy, host, nodes[8];
	CUgraphExec exec;
	CUdeviceptr p = device_word(0);
	uint32_t out = 0, three = 3, four = 4;
	size_t n = 8;
	void *params[] = { &p, &three }, *params4[] = { &p, &four };
	need(cuGraphCreate(&g, 0));
	CUDA_MEMSET_NODE_PARAMS m = {
		.dst = p, .value = 5, .elementSize = 4, .width = 1, .height = 1
	};
	CUDA_KERNEL_NODE_PARAMS k = kernel_node("add", params);
	CUDA_MEMCPY3D c = copy_1d((uintptr_t)&out, p, 4);
	CUDA_HOST_NODE_PARAMS h = { host_add, &out };
	need(cuGraphAddHostNode(&host, g, NULL, 0, &h));
	need(cuGraphAddMemcpyNode(&copy, g, NULL, 0, &c, ctx));
	need(cuGraphAddKernelNode(&add, g, NULL, 0, &k));
	need(cuGraphAddMemsetNode(&set, g, NULL, 0, &m, ctx));
	CUgraphNode from[] = { set, add, copy }, to[] = { add, copy, host };
	need(cuGraphAddDependencies(g, from, to, NULL, 3));
	is_int(cuGraphAddDependencies(g, from, to, NULL, 1), CUDA_ERROR_INVALID_VALUE,
		"an edge twice");
	need(cuGraphInstantiate(&exec, g, 0));
	for (int i = 0; i < 3; i++)
		need(cuGraphLaunch(exec, stream));
	need(cuStreamSynchronize(stream));
	is_int(out, 108, "nodes run in the order of their edges, each launch anew");
	need(cuGraphGetRootNodes(g, nodes, &n));
	ok(n == 1 && nodes[0] == set, "one root");
	need(cuGraphGetNodes(g, NULL, &n));
	is_int((long)n, 4, "four nodes");
	n = 8;
	need(cuGraphNodeGetDependentNodes(add, nodes, NULL, &n));
	ok(n == 1 && nodes[0] == copy, "who depends on a node");

	CUgraphNodeType type;
	CUDA_KERNEL_NODE_PARAMS got;
	need(cuGraphNodeGetType(add, &type));
	is_int(type, CU_GRAPH_NODE_TYPE_KERNEL, "its type");
	need(cuGraphKernelNodeGetParams(add, &got));
	ok(got.func == k.func && *(uint32_t *)got.kernelParams[1] == 3,
		"its parameters were copied");

	k.kernelParams = params4;
	need(cuGraphExecKernelNodeSetParams(exec, add, &k));
	need(cuGraphLaunch(exec, stream));
	need(cuStreamSynchronize(stream));
	is_int(out, 109, "parameters changed in the executable");
	need(cuGraphNodeSetEnabled(exec, add, 0));
	need(cuGraphLaunch(exec, stream));
	need(cuStreamSynchronize(stream));
	is_int(out, 105, "a disabled node does nothing");

	CUgraph copy_of;
	CUgraphNode in_clone;
	need(cuGraphClone(&copy_of, g));
	need(cuGraphNodeFindInClone(&in_clone, add, copy_of));
	need(cuGraphKernelNodeSetParams(in_clone, &k));
	CUgraphExecUpdateResultInfo info;
	is_int(cuGraphExecUpdate(exec, copy_of, &info), 0,
		"updated from a clone with other parameters");
	CUgraphNode extra;
	need(cuGraphAddEmptyNode(&extra, copy_of, &in_clone, 1));
	is_int(cuGraphExecUpdate(exec, copy_of, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
		"not with a node more");
	is_int(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, "which it says");

	CUgraph outer;
	CUgraphNode child, after;
	CUgraphExec outer_exec;
	need(cuGraphCreate(&outer, 0));
	need(cuGraphAddChildGraphNode(&child, outer, NULL, 0, g));
	need(cuGraphAddHostNode(&after, outer, &child, 1, &h));
	need(cuGraphInstantiate(&outer_exec, outer, 0));
	need(cuGraphDestroy(g));
	need(cuGraphDestroy(outer));
	need(cuGraphLaunch(outer_exec, stream));
	need(cuStreamSynchronize(stream));
	is_int(out, 208, "a child graph, after both graphs are gone");
	is_int(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE, "a graph is destroyed once");
	need(cuGraphExecDestroy(exec));
	need(cuGraphExecDestroy(outer_exec));
	need(cuGraphDestroy(copy_of));
	is_int(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE, "an executable too");
}

static void circle(void)
{
	CUgraph g;
	CUgraphNode a, b;
	CUgraphExec exec;
	need(cuGraphCreate(&g, 0));
	need(cuGraphAddEmptyNode(&a, g, NULL, 0));
	need(cuGraphAddEmptyNode(&b, g, &a, 1));
	need(cuGraphAddDependencies(g, &b, &a, NULL, 1));
	is_int(cuGraphInstantiate(&exec, g, 0), CUDA_ERROR_INVALID_VALUE, "a circle is refused");
	need(cuGraphRemoveDependencies(g, &b, &a, NULL, 1));
	is_int(cuGraphInstantiate(&exec, g, 0), 0, "and is none without the edge");
	need(cuGraphLaunch(exec, NULL));
	need(cuCtxSynchronize());
	need(cuGraphDestroyNode(a));
	size_t n;
	need(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	is_int((long)n, 0, "edges go with their node");
	need(cuGraphExecDestroy(exec));
	need(cuGraphDestroy(g));
}

/* Two branches that wait for each other's gate would hang if they ran one after the other. */
static void branches(void)
{
	CUgraph g;
	CUgraphNode root, a, b, join;
	CUgraphExec exec;
	CUdeviceptr f = device_word(0), p = device_word(0);
	uint32_t one = 1, two = 2;
	void *wait[] = { &f, &p, &two }, *open[] = { &f, &one };
	need(cuGraphCreate(&g, 0));
	CUDA_KERNEL_NODE_PARAMS k = kernel_node("wait_set", wait), s = kernel_node("set", open);
	need(cuGraphAddEmptyNode(&root, g, NULL, 0));
	need(cuGraphAddKernelNode(&a, g, &root, 1, &k));
	need(cuGraphAddKernelNode(&b, g, &root, 1, &s));
	CUgraphNode both[] = { a, b };
	need(cuGraphAddEmptyNode(&join, g, both, 2));
	need(cuGraphInstantiate(&exec, g, 0));
	need(cuGraphLaunch(exec, stream));
	need(cuStreamSynchronize(stream));
	is_int(read_word(p), 2, "branches run side by side");
	need(cuGraphExecDestroy(exec));
	need(cuGraphDestroy(g));
}

static void captured(void)
{
	CUgraph g;
	CUgraphExec exec;
	CUevent fork, join;
	CUdeviceptr p = device_word(0), q = device_word(0);
	uint32_t one = 1, out[2] = { 0, 0 };
	void *pp[] = { &p, &one }, *qq[] = { &q, &one };
	CUstreamCaptureStatus status;
	need(cuEventCreate(&fork, 0));
	need(cuEventCreate(&join, 0));
	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	need(cuMemsetD32Async(p, 10, 1, stream));
	need(cuEventRecord(fork, stream));
	need(cuStreamWaitEvent(other, fork, 0));
	need(cuStreamIsCapturing(other, &status));
	is_int(status, CU_STREAM_CAPTURE_STATUS_ACTIVE, "a stream joins by waiting");
	need(launch(kernel("add"), 1, 1, stream, pp));
	need(cuMemsetD32Async(q, 20, 1, other));
	need(launch(kernel("add"), 1, 1, other, qq));
	need(cuEventRecord(join, other));
	need(cuStreamWaitEvent(stream, join, 0));
	need(cuMemcpyDtoHAsync(&out[0], p, 4, stream));
	need(cuMemcpyDtoHAsync(&out[1], q, 4, stream));
	need(cuLaunchHostFunc(stream, host_add, &out[1]));
	is_int(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT, "a captured event has no time");
	need(cuStreamEndCapture(stream, &g));
	need(cuStreamIsCapturing(other, &status));
	is_int(status, CU_STREAM_CAPTURE_STATUS_NONE, "and leaves with the others");
	is_int(read_word(p), 0, "nothing has run");
	size_t n;
	need(cuGraphGetNodes(g, NULL, &n));
	is_int((long)n, 7, "seven nodes");
	need(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	is_int((long)n, 7,
		"seven edges"); /* set-add, set-set, set-add, add/add-copy, copy-copy, copy-host */
	need(cuGraphInstantiate(&exec, g, 0));
	need(cuGraphLaunch(exec, stream));
	need(cuGraphLaunch(exec, other));
	need(cuCtxSynchronize());
	is_int(out[0], 11, "one branch");
	is_int(out[1], 121, "the other, and the host's function");
	need(cuGraphExecDestroy(exec));
	need(cuGraphDestroy(g));
	need(cuEventDestroy(fork));
	need(cuEventDestroy(join));
}

static void refused(void)
{
	CUgraph g = NULL;
	CUdeviceptr p;
	CUevent e;
	need(cuEventCreate(&e, 0));
	is_int(cuStreamBeginCapture(NULL, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		"not the legacy stream");
	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	is_int(cuStreamBeginCapture(stream, 0), CUDA_ERROR_ILLEGAL_STATE, "not twice");
	is_int(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		"no waiting for it");
	is_int(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		"which ends it");
	ok(!g, "without a graph");

	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	is_int(cuMemAlloc(&p, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		"no allocation in global mode");
	is_int(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		"which ends it too");
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	need(cuThreadExchangeStreamCaptureMode(&mode));
	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	is_int(cuMemAlloc(&p, 4), 0, "but for a thread that has opted out");
	is_int(cuStreamEndCapture(stream, &g), 0, "and the capture goes on");
	need(cuGraphDestroy(g));
	need(cuThreadExchangeStreamCaptureMode(&mode));
	is_int(mode, CU_STREAM_CAPTURE_MODE_RELAXED, "the mode is exchanged");

	void *params[] = { &p, &(uint32_t){ 1 } };
	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	is_int(launch(kernel("add"), 1, 1, NULL, params), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
		"the legacy stream would have to wait for it");
	is_int(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		"that ends it");

	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	need(cuEventRecord(e, stream));
	need(cuStreamWaitEvent(other, e, 0));
	need(launch(kernel("add"), 1, 1, other, params));
	is_int(cuStreamEndCapture(other, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
		"the other cannot end it");
	cuStreamEndCapture(stream, &g);
	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	need(cuEventRecord(e, stream));
	need(cuStreamWaitEvent(other, e, 0));
	need(launch(kernel("add"), 1, 1, other, params));
	is_int(cuStreamEndCapture(stream, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
		"what forks has to join");
	need(cuStreamSynchronize(other));
	is_int(cuStreamEndCapture(stream, &g), CUDA_ERROR_ILLEGAL_STATE, "there is nothing to end");
	CUstream gone;
	need(cuStreamCreate(&gone, 0));
	need(cuStreamBeginCapture(gone, CU_STREAM_CAPTURE_MODE_RELAXED));
	need(launch(kernel("add"), 1, 1, gone, params));
	need(cuStreamDestroy(gone));
	need(cuCtxSynchronize());
	need(cuEventDestroy(e));
	need(cuMemFree(p));
}

static int destroyed;
static void destroy(void *data)
{
	destroyed += *(int *)data;
}

static void memory_and_objects(void)
{
	CUgraph g;
	CUgraphNode alloc, set, copy, release;
	CUgraphExec exec;
	uint32_t out = 0;
	uint64_t used;
	need(cuGraphCreate(&g, 0));
	CUDA_MEM_ALLOC_NODE_PARAMS a = { .poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
						 .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = 4096 };
	need(cuGraphAddMemAllocNode(&alloc, g, NULL, 0, &a));
	CUDA_MEMSET_NODE_PARAMS m = {
		.dst = a.dptr, .value = 7, .elementSize = 4, .width = 1024, .height = 1
	};
	CUDA_MEMCPY3D c = copy_1d((uintptr_t)&out, a.dptr + 4092, 4);
	need(cuGraphAddMemsetNode(&set, g, &alloc, 1, &m, ctx));
	need(cuGraphAddMemcpyNode(&copy, g, &set, 1, &c, ctx));
	need(cuGraphAddMemFreeNode(&release, g, &copy, 1, a.dptr));
	int one = 1;
	CUuserObject object;
	need(cuUserObjectCreate(&object, &one, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	need(cuGraphRetainUserObject(g, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	need(cuGraphInstantiate(&exec, g, 0));
	need(cuGraphLaunch(exec, NULL));
	need(cuGraphLaunch(exec, NULL));
	need(cuCtxSynchronize());
	is_int(out, 7, "memory of an allocation node");
	need(cuDeviceGetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	is_int((long)used, 4096, "it is counted");
	need(cuGraphDestroy(g));
	is_int(destroyed, 0, "the executable holds the object");
	need(cuGraphExecDestroy(exec));
	is_int(destroyed, 1, "and lets go of it");
	need(cuDeviceGetGraphMemAttribute(dev, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
	is_int((long)used, 0, "the memory goes with the last graph");
	CUdeviceptr p;
	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	need(cuMemAllocAsync(&p, 64, stream));
	need(cuMemsetD32Async(p, 9, 16, stream));
	need(cuMemcpyDtoHAsync(&out, p, 4, stream));
	need(cuMemFreeAsync(p, stream));
	need(cuStreamEndCapture(stream, &g));
	need(cuGraphInstantiate(&exec, g, 0));
	need(cuGraphLaunch(exec, stream));
	need(cuStreamSynchronize(stream));
	is_int(out, 9, "captured allocation");
	need(cuGraphExecDestroy(exec));
	need(cuGraphDestroy(g));
}

/* Launches in flight when the executable or the context goes. */
static void late(void)
{
	CUgraph g;
	CUgraphExec exec;
	CUdeviceptr p = device_word(0);
	void *params[] = { &p, &(uint32_t){ 1 } };
	need(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (int i = 0; i < 200; i++)
		need(launch(kernel("add"), 1, 32, stream, params));
	need(cuStreamEndCapture(stream, &g));
	need(cuGraphInstantiate(&exec, g, 0));
	for (int i = 0; i < 5; i++)
		need(cuGraphLaunch(exec, i % 2 ? stream : other));
	need(cuGraphExecDestroy(exec));
	need(cuCtxSynchronize());
	is_int(read_word(p), 5 * 200 * 32, "what was launched runs to its end");
	need(cuGraphInstantiate(&exec, g, 0));
	need(cuGraphLaunch(exec, stream));
	need(cuDevicePrimaryCtxReset(dev));
	need(cuDevicePrimaryCtxRetain(&ctx, dev));
	need(cuCtxSetCurrent(ctx));
	need(cuGraphExecDestroy(exec));
	need(cuGraphDestroy(g));
	ok(true, "a context goes while a graph runs");
}

int main(void)
{
	test_open();
	need(cuStreamCreate(&stream, 0));
	need(cuStreamCreate(&other, 0));
	built();
	circle();
	branches();
	captured();
	refused();
	memory_and_objects();
	late();
	return tap_done();
}
