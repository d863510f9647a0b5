/* Conditional nodes of graphs: if with and without else, while, switch, nested, captured bodies,
 * parameters changed inside bodies, and what is refused. */
#include "driver_test.h"

/* count(h, p, n): *p += 1; the condition becomes *p < n.
 * cond(h, v): the condition becomes v. */
static const char cond_ptx[] = PTX_HEAD
	".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n"
	".visible .entry count(.param .u64 h, .param .u64 p, .param .u32 n) {\n"
	" .reg .b64 %rd<3>; .reg .b32 %r<4>; .reg .pred %p<2>;\n"
	" ld.param.u64 %rd1, [h]; ld.param.u64 %rd2, [p]; ld.param.u32 %r1, [n];\n"
	" ld.global.u32 %r2, [%rd2]; add.u32 %r2, %r2, 1; st.global.u32 [%rd2], %r2;\n"
	" setp.lt.u32 %p1, %r2, %r1; selp.u32 %r3, 1, 0, %p1;\n"
	" { .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %rd1; st.param.b32 [p1], %r3;\n"
	" call.uni cudaGraphSetConditional, (p0, p1); }\n ret;\n}\n"
	".visible .entry cond(.param .u64 h, .param .u32 v) {\n"
	" .reg .b64 %rd<2>; .reg .b32 %r<2>;\n"
	" ld.param.u64 %rd1, [h]; ld.param.u32 %r1, [v];\n"
	" { .param .b64 p0; .param .b32 p1; st.param.b64 [p0], %rd1; st.param.b32 [p1], %r1;\n"
	" call.uni cudaGraphSetConditional, (p0, p1); }\n ret;\n}\n";

static CUfunction count_fn, cond_fn;
static CUstream stream;

static CUgraphNode add_kernel(CUgraph g, CUgraphNode after, CUfunction f, void **params)
{
	CUgraphNode n;
	CUDA_KERNEL_NODE_PARAMS k = { .func = f,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = params };
	need(cuGraphAddKernelNode(&n, g, &after, after ? 1 : 0, &k));
	return n;
}

static CUgraphNode add_add(CUgraph g, CUdeviceptr p, uint32_t v)
{
	void *params[] = { &p, &v };
	return add_kernel(g, NULL, kernel("add"), params);
}

static CUgraphConditionalHandle condition(CUgraph g, uint32_t value, unsigned int flags)
{
	CUgraphConditionalHandle h;
	need(cuGraphConditionalHandleCreate(&h, g, ctx, value, flags));
	return h;
}

static CUresult try_cond(CUgraph g, CUgraphNode after, CUgraphConditionalHandle h,
	CUgraphConditionalNodeType type, unsigned int n, CUgraph *bodies)
{
	CUgraphNode node;
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
		.conditional = { .handle = h, .type = type, .size = n, .ctx = ctx } };
	CUresult r = cuGraphAddNode(&node, g, &after, NULL, after ? 1 : 0, &p);
	for (unsigned int i = 0; !r && i < n; i++)
		bodies[i] = p.conditional.phGraph_out[i];
	return r;
}

static CUgraph new_graph(void)
{
	CUgraph g;
	need(cuGraphCreate(&g, 0));
	return g;
}

static void run(CUgraphExec e)
{
	need(cuGraphLaunch(e, stream));
	need(cuStreamSynchronize(stream));
}

static CUgraphExec instance(CUgraph g)
{
	CUgraphExec e;
	need(cuGraphInstantiate(&e, g, 0));
	return e;
}

/* A kernel sets the condition; afterwards a node that depends on the conditional one runs. */
static void if_else(void)
{
	CUgraph g = new_graph(), body[2];
	CUdeviceptr p = device_word(0);
	CUgraphConditionalHandle h = condition(g, 0, 0);
	uint32_t v = 5;
	void *params[] = { &h, &v };
	CUgraphNode set = add_kernel(g, NULL, cond_fn, params);
	need(try_cond(g, set, h, CU_GRAPH_COND_TYPE_IF, 2, body));
	add_add(body[0], p, 1);
	add_add(body[1], p, 100);
	CUgraphExec e = instance(g);
	run(e);
	is_int(read_word(p), 1, "if: the body");
	v = 0;
	CUDA_KERNEL_NODE_PARAMS k = { cond_fn, 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL };
	need(cuGraphExecKernelNodeSetParams(e, set, &k));
	run(e);
	is_int(read_word(p), 101, "else: the other body");
	need(cuGraphExecDestroy(e));
	need(cuGraphDestroy(g));
}

static void loop(void)
{
	CUgraph g = new_graph(), body;
	CUdeviceptr p = device_word(0), q = device_word(0);
	CUgraphConditionalHandle h = condition(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	uint32_t n = 1000;
	void *params[] = { &h, &p, &n };
	CUgraphNode nodes[4];
	size_t n_nodes = 4;
	need(try_cond(g, NULL, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body));
	CUgraphNode first = add_kernel(body, NULL, count_fn, params);
	void *three[] = { &q, &(uint32_t){ 3 } };
	add_kernel(body, first, kernel("add"), three);
	need(cuGraphGetNodes(g, nodes, &n_nodes));
	CUgraphNodeType type;
	need(cuGraphNodeGetType(nodes[0], &type));
	ok(n_nodes == 1 && type == CU_GRAPH_NODE_TYPE_CONDITIONAL, "its type can be asked");
	void *after[] = { &q, &(uint32_t){ 1 } };
	add_kernel(g, nodes[0], kernel("add"), after);
	CUgraphExec e = instance(g);
	run(e);
	is_int(read_word(p), 1000, "while: as often as the kernel says");
	is_int(read_word(q), 3001, "with what follows in the body, and after the loop");
	need(cuGraphLaunch(e, stream));
	need(cuGraphLaunch(e, stream));
	need(cuStreamSynchronize(stream));
	is_int(read_word(p), 1002, "the first value holds at each launch");
	n = 1010;
	CUDA_KERNEL_NODE_PARAMS k = { count_fn, 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL };
	need(cuGraphExecKernelNodeSetParams(e, first, &k));
	run(e);
	is_int(read_word(p), 1010, "a node of the body has new parameters");
	need(cuGraphExecDestroy(e));
	is_int(cuGraphDestroy(body), CUDA_ERROR_INVALID_VALUE, "a body is the node's");
	need(cuGraphDestroy(g));
}

static void switches(void)
{
	CUgraph g = new_graph(), body[3];
	CUdeviceptr p = device_word(0);
	CUgraphConditionalHandle h = condition(g, 2, CU_GRAPH_COND_ASSIGN_DEFAULT);
	uint32_t v;
	void *params[] = { &h, &v };
	v = 2;
	CUgraphNode set = add_kernel(g, NULL, cond_fn, params);
	need(try_cond(g, set, h, CU_GRAPH_COND_TYPE_SWITCH, 3, body));
	for (int i = 0; i < 3; i++)
		add_add(body[i], p, (uint32_t)1 << (8 * i));
	CUgraphExec e = instance(g);
	CUDA_KERNEL_NODE_PARAMS k = { cond_fn, 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL };
	for (v = 0; v < 5; v++) {
		need(cuGraphExecKernelNodeSetParams(e, set, &k));
		run(e);
	}
	is_int(read_word(p), 0x10101, "switch: each body for its value, none beyond");
	need(cuGraphExecDestroy(e));
	need(cuGraphDestroy(g));
}

/* while (i < 3) { if (1) for j in 0..4: the inner loop's word is set back by a memset } */
static void nested(void)
{
	CUgraph g = new_graph(), outer, inner;
	CUdeviceptr i = device_word(0), j = device_word(0), all = device_word(0);
	CUgraphConditionalHandle h = condition(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT), h2;
	need(try_cond(g, NULL, h, CU_GRAPH_COND_TYPE_WHILE, 1, &outer));
	h2 = condition(outer, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	CUDA_MEMSET_NODE_PARAMS m = { .dst = j, .elementSize = 4, .width = 1, .height = 1 };
	CUgraphNode set;
	need(cuGraphAddMemsetNode(&set, outer, NULL, 0, &m, ctx));
	void *params[] = { &h, &i, &(uint32_t){ 3 } }, *params2[] = { &h2, &j, &(uint32_t){ 4 } };
	CUgraphNode last = add_kernel(outer, set, count_fn, params);
	need(try_cond(outer, last, h2, CU_GRAPH_COND_TYPE_WHILE, 1, &inner));
	need(cuStreamBeginCaptureToGraph(
		stream, inner, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
	need(launch(count_fn, 1, 1, stream, params2));
	void *one[] = { &all, &(uint32_t){ 1 } };
	need(launch(kernel("add"), 1, 1, stream, one));
	CUgraph captured;
	need(cuStreamEndCapture(stream, &captured));
	ok(captured == inner, "a body can be captured");
	CUgraphExec e = instance(g);
	run(e);
	ok(read_word(i) == 3 && read_word(j) == 4 && read_word(all) == 12, "a loop in a loop");
	need(cuGraphExecDestroy(e));
	need(cuGraphDestroy(g));
}

static CUgraph counting(CUdeviceptr p, uint32_t n, CUgraphConditionalNodeType type)
{
	CUgraph g = new_graph(), body;
	CUgraphConditionalHandle h = condition(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	void *params[] = { &h, &p, &n };
	need(try_cond(g, NULL, h, type, 1, &body));
	add_kernel(body, NULL, count_fn, params);
	return g;
}

static void updated(void)
{
	CUdeviceptr p = device_word(0), q = device_word(0);
	CUgraph a = counting(p, 5, CU_GRAPH_COND_TYPE_WHILE),
		b = counting(q, 7, CU_GRAPH_COND_TYPE_WHILE),
		c = counting(q, 7, CU_GRAPH_COND_TYPE_IF);
	CUgraphExec e = instance(a);
	CUgraphExecUpdateResultInfo info;
	run(e);
	need(cuGraphExecUpdate(e, b, &info));
	need(cuGraphDestroy(b));
	run(e);
	ok(read_word(p) == 5 && read_word(q) == 7, "an update takes bodies and handles over");
	is_int(cuGraphExecUpdate(e, c, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
		"not another kind of condition");
	need(cuGraphExecDestroy(e));
	need(cuGraphDestroy(a));
	need(cuGraphDestroy(c));
}

static void refused(void)
{
	CUgraph g = new_graph(), other = new_graph(), body[2], copy;
	CUgraphExec e;
	CUgraphNode node;
	CUgraphConditionalHandle h = condition(g, 0, 0), h2;
	CUDA_GRAPH_INSTANTIATE_PARAMS ip = { 0 };
	is_int(cuGraphConditionalHandleCreate(&h2, g, ctx, 0, 2), CUDA_ERROR_INVALID_VALUE,
		"an unknown flag");
	is_int(cuGraphInstantiateWithParams(&e, g, &ip), CUDA_ERROR_INVALID_VALUE,
		"a handle without a node");
	is_int(ip.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, "as it says");
	is_int(try_cond(other, NULL, h, CU_GRAPH_COND_TYPE_IF, 1, body), CUDA_ERROR_INVALID_VALUE,
		"a handle of another graph");
	is_int(try_cond(g, NULL, h + 4, CU_GRAPH_COND_TYPE_IF, 1, body), CUDA_ERROR_INVALID_VALUE,
		"an invented handle");
	is_int(try_cond(g, NULL, h, CU_GRAPH_COND_TYPE_WHILE, 2, body), CUDA_ERROR_INVALID_VALUE,
		"a loop with two bodies");
	need(try_cond(g, NULL, h, CU_GRAPH_COND_TYPE_IF, 1, body));
	is_int(try_cond(g, NULL, h, CU_GRAPH_COND_TYPE_IF, 1, body + 1), CUDA_ERROR_INVALID_VALUE,
		"a handle for two nodes");
	is_int(cuGraphClone(&copy, g), CUDA_ERROR_NOT_SUPPORTED, "no clone");
	is_int(cuGraphAddChildGraphNode(&node, other, NULL, 0, g), CUDA_ERROR_NOT_SUPPORTED,
		"nor a child graph");
	CUDA_HOST_NODE_PARAMS host = { (CUhostFn)test_open, NULL };
	need(cuGraphAddHostNode(&node, body[0], NULL, 0, &host));
	is_int(cuGraphInstantiate(&e, g, 0), CUDA_ERROR_NOT_SUPPORTED, "a host node in a body");
	need(cuGraphDestroy(g));
	need(cuGraphDestroy(other));
}

/* A loop that never ends by itself does when its context fails. */
static void fails(void)
{
	CUgraph g = new_graph(), body;
	CUgraphConditionalHandle h = condition(g, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	uint64_t nowhere = 16;
	void *params[] = { &nowhere };
	need(try_cond(g, NULL, h, CU_GRAPH_COND_TYPE_WHILE, 1, &body));
	add_kernel(body, NULL, kernel("wild"), params);
	CUgraphExec e = instance(g);
	need(cuGraphLaunch(e, stream));
	is_int(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS, "a fault ends a loop");
	cuGraphExecDestroy(e);
	cuGraphDestroy(g);
}

/* The context goes while an endless loop runs: nothing hangs. */
static void goes(void)
{
	CUcontext mine;
	CUmodule m;
	CUgraph g, body;
	CUgraphExec e;
	CUgraphNode node;
	CUgraphConditionalHandle h;
	CUfunction f;
	CUdeviceptr p;
	need(cuCtxCreate(&mine, NULL, 0, dev));
	need(cuModuleLoadData(&m, cond_ptx));
	need(cuModuleGetFunction(&f, m, "count"));
	p = device_word(0);
	need(cuGraphCreate(&g, 0));
	need(cuGraphConditionalHandleCreate(&h, g, mine, 1, 1));
	CUgraphNodeParams c = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
		.conditional = { h, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, mine } };
	need(cuGraphAddNode(&node, g, NULL, NULL, 0, &c));
	body = c.conditional.phGraph_out[0];
	void *params[] = { &h, &p, &(uint32_t){ UINT32_MAX } };
	add_kernel(body, NULL, f, params);
	need(cuGraphInstantiate(&e, g, 0));
	need(cuGraphLaunch(e, NULL));
	sleep_ms(20);
	need(cuCtxDestroy(mine));
	ok(1, "a context goes while a loop runs");
}

int main(void)
{
	CUmodule m;
	test_open();
	need(cuModuleLoadData(&m, cond_ptx));
	need(cuModuleGetFunction(&count_fn, m, "count"));
	need(cuModuleGetFunction(&cond_fn, m, "cond"));
	need(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if_else();
	loop();
	switches();
	nested();
	updated();
	refused();
	goes();
	need(cuCtxSetCurrent(ctx));
	fails();
	return tap_done();
}
