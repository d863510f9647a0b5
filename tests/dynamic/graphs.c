/* Kernels of executable graphs are counted exactly, whatever way the graph was built, and with
 * probes that come and go between launches. The program sees its own kernels in its nodes
 * throughout. */
#include "../agent/harness.h"

enum { N = 200, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS, RUN = BLOCKS * THREADS };

static CUfunction fill, other;
static CUdeviceptr buf;
static uint32_t add = 5, n = N;
static void *params[3] = { &buf, &add, &n };
static CUgraph graph;
static CUgraphExec exec;
static CUgraphNode node;

static void start(void)
{
	CUmodule mod;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill") PTX_FILL("other")));
	CU(cuModuleGetFunction(&fill, mod, "fill"));
	CU(cuModuleGetFunction(&other, mod, "other"));
	CU(cuMemAlloc(&buf, N * 4));
	CU(cuGraphCreate(&graph, 0));
}

static CUDA_KERNEL_NODE_PARAMS kernel_of(CUfunction fn)
{
	return (CUDA_KERNEL_NODE_PARAMS){ .func = fn,
		.gridDimX = BLOCKS,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = THREADS,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = params };
}

static CUgraphNode add_to(CUgraph g, const CUgraphNode *after, CUfunction fn)
{
	CUgraphNode out;
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(fn);
	CU(cuGraphAddKernelNode(&out, g, after, after != NULL, &p));
	return out;
}

static void instantiate(void)
{
	CU(cuGraphInstantiate(&exec, graph, 0));
}

static void launch(int times)
{
	for (int i = 0; i < times; i++)
		CU(cuGraphLaunch(exec, NULL));
	CU(cuCtxSynchronize());
}

/* The node still names the program's function. */
static int finish(void)
{
	CUDA_KERNEL_NODE_PARAMS p;
	if (node) {
		CU(cuGraphKernelNodeGetParams(node, &p));
		if (p.func != fill && p.func != other)
			return 2;
	}
	return check_fill(buf, add, N);
}

/* Two launches of one kernel each, in all of the following. */
static int explicit_node(void)
{
	start();
	node = add_to(graph, NULL, fill);
	instantiate();
	launch(2);
	return finish();
}

static int first_form(void)
{
	CUresult (*old)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
		const CUDA_KERNEL_NODE_PARAMS_v1 *);
	CUdriverProcAddressQueryResult found;
	start();
	CU(cuGetProcAddress_v2("cuGraphAddKernelNode", (void **)&old, 11000, 0, &found));
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(fill);
	CUDA_KERNEL_NODE_PARAMS_v1 one;
	memcpy(&one, &p, sizeof(one));
	CU(old(&node, graph, NULL, 0, &one));
	instantiate();
	launch(2);
	return finish();
}

static int general_node(void)
{
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_KERNEL };
	start();
	p.kernel = kernel_of(fill);
	CU(cuGraphAddNode(&node, graph, NULL, NULL, 0, &p));
	instantiate();
	launch(2);
	return finish();
}

static int block_of_params(void)
{
	struct {
		CUdeviceptr buf;
		uint32_t add, n;
	} values;
	size_t bytes = sizeof(values);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &values, CU_LAUNCH_PARAM_BUFFER_SIZE,
		&bytes, CU_LAUNCH_PARAM_END };
	start();
	values.buf = buf;
	values.add = add;
	values.n = n;
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(fill);
	p.kernelParams = NULL;
	p.extra = extra;
	CU(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
	instantiate();
	launch(2);
	return finish();
}

static int node_set(void)
{
	uint32_t wrong = 77;
	void *first[3] = { &buf, &wrong, &n };
	start();
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(other);
	p.kernelParams = first;
	CU(cuGraphAddKernelNode(&node, graph, NULL, 0, &p));
	p = kernel_of(fill);
	CU(cuGraphKernelNodeSetParams(node, &p));
	instantiate();
	launch(2);
	return finish();
}

/* The graph's own node changes afterwards, and then is gone: the executable stays as it was made.
 */
static int node_changes_later(void)
{
	uint32_t wrong = 77;
	void *second[3] = { &buf, &wrong, &n };
	start();
	node = add_to(graph, NULL, fill);
	instantiate();
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(other);
	p.kernelParams = second;
	CU(cuGraphKernelNodeSetParams(node, &p));
	launch(1);
	CU(cuGraphDestroy(graph));
	node = NULL;
	launch(1);
	return finish();
}

static int exec_set(void)
{
	uint32_t more = 11;
	void *second[3] = { &buf, &more, &n };
	start();
	node = add_to(graph, NULL, fill);
	instantiate();
	launch(1);
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(fill);
	p.kernelParams = second;
	CU(cuGraphExecKernelNodeSetParams(exec, node, &p));
	add = more;
	launch(1);
	return finish();
}

static int clone(void)
{
	CUgraph copy;
	start();
	node = add_to(graph, NULL, fill);
	CU(cuGraphClone(&copy, graph));
	CU(cuGraphDestroy(graph));
	node = NULL;
	graph = copy;
	instantiate();
	launch(2);
	return finish();
}

static int child(void)
{
	CUgraph in, deeper;
	CUgraphNode at;
	start();
	CU(cuGraphCreate(&in, 0));
	CU(cuGraphCreate(&deeper, 0));
	add_to(deeper, NULL, fill);
	CU(cuGraphAddChildGraphNode(&at, in, NULL, 0, deeper));
	CU(cuGraphAddChildGraphNode(&at, graph, NULL, 0, in));
	instantiate();
	launch(2);
	return finish();
}

static int update(void)
{
	CUgraph second;
	CUgraphExecUpdateResultInfo info;
	uint32_t more = 21;
	void *values[3] = { &buf, &more, &n };
	start();
	node = add_to(graph, NULL, fill);
	instantiate();
	launch(1);
	CU(cuGraphCreate(&second, 0));
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(fill);
	p.kernelParams = values;
	CU(cuGraphAddKernelNode(&node, second, NULL, 0, &p));
	CU(cuGraphExecUpdate(exec, second, &info));
	add = more;
	launch(1);
	return finish();
}

/* What is given to a stream that is captured runs when the graph does, and counts then. */
static int capture(void)
{
	CUstream s;
	CUgraph got;
	start();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemsetD32Async(buf, 0, N, s));
	CU(cuLaunchKernel(fill, BLOCKS, 1, 1, THREADS, 1, 1, 0, s, params, NULL));
	CU(cuStreamEndCapture(s, &got));
	graph = got;
	instantiate();
	CU(cuGraphDestroy(graph));
	CU(cuGraphLaunch(exec, s));
	CU(cuGraphLaunch(exec, s));
	CU(cuStreamSynchronize(s));
	return finish();
}

/* An executable that runs variants is captured into another graph: the program's kernels go in. */
static int launched_into_capture(void)
{
	CUstream s;
	CUgraph got;
	CUgraphExec outer;
	start();
	node = add_to(graph, NULL, fill);
	instantiate();
	launch(1);
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuGraphLaunch(exec, s));
	CU(cuStreamEndCapture(s, &got));
	CU(cuGraphInstantiate(&outer, got, 0));
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphLaunch(outer, s));
	CU(cuStreamSynchronize(s));
	return finish();
}

/* Two launches of fill while an executable is there whose work the device launches itself, three when it has gone. */
static int conditional(void)
{
	CUgraph g;
	CUgraphExec e;
	CUgraphConditionalHandle h;
	CUgraphNode at;
	CUcontext ctx;
	target_context();
	CU(cuCtxGetCurrent(&ctx));
	CU(cuGraphCreate(&g, 0));
	CU(cuGraphConditionalHandleCreate(&h, g, ctx, 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
	CUgraphNodeParams p = { .type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
		.conditional = { .handle = h, .type = CU_GRAPH_COND_TYPE_IF, .size = 1, .ctx = ctx } };
	CU(cuGraphAddNode(&at, g, NULL, NULL, 0, &p));
	CU(cuGraphInstantiate(&e, g, 0));
	CUmodule mod;
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill") PTX_FILL("other")));
	CU(cuModuleGetFunction(&fill, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
	for (int i = 0; i < 5; i++) {
		if (i == 2)
			CU(cuGraphExecDestroy(e));
		else if (i < 2)
			CU(cuGraphLaunch(e, NULL));
		CU(cuLaunchKernel(fill, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
	}
	return check_fill(buf, add, N);
}

static const struct role roles[];

static int paused(void)
{
	raise(SIGSTOP);
	return 0;
}

/* Launches, stops for the test to do something, and so on: 2, 3, 4 and 5 launches of two kernels.
 */
static int stages(void)
{
	start();
	node = add_to(graph, NULL, fill);
	add_to(graph, &node, other);
	instantiate();
	for (int i = 2; i < 6; i++) {
		launch(i);
		paused();
	}
	CU(cuGraphExecDestroy(exec));
	CU(cuGraphDestroy(graph));
	node = NULL;
	return finish();
}

/* The executable is changed while it holds variants, in ways that are followed and in some that are
 * not; results stay right. */
static int changes(void)
{
	CUgraphNode set, end;
	CUDA_MEMSET_NODE_PARAMS m = { .dst = 0, .elementSize = 4, .width = N, .height = 1 };
	uint32_t more = 9;
	void *values[3] = { &buf, &more, &n };
	CUcontext ctx;
	start();
	CU(cuCtxGetCurrent(&ctx));
	m.dst = buf;
	node = add_to(graph, NULL, fill);
	CU(cuGraphAddMemsetNode(&set, graph, &node, 1, &m, ctx));
	end = add_to(graph, &set, other);
	instantiate();
	launch(1);
	m.value = 3;
	CU(cuGraphExecMemsetNodeSetParams(exec, set, &m, ctx));
	launch(1);
	CUDA_KERNEL_NODE_PARAMS p = kernel_of(other);
	p.kernelParams = values;
	CU(cuGraphExecKernelNodeSetParams(exec, end, &p));
	launch(1);
	if (check_fill(buf, 9, N))
		return 3;
	CU(cuGraphNodeSetEnabled(exec, end, 0));
	launch(1);
	uint32_t *host = malloc(N * 4);
	CU(cuMemcpyDtoH(host, buf, N * 4));
	for (int i = 0; i < N; i++)
		if (host[i] != 3)
			return 4;
	CU(cuGraphNodeSetEnabled(exec, end, 1));
	launch(1);
	add = more;
	return finish();
}

static const struct role roles[] = { { "explicit_node", explicit_node },
	{ "first_form", first_form }, { "general_node", general_node },
	{ "block_of_params", block_of_params }, { "node_set", node_set },
	{ "node_changes_later", node_changes_later }, { "exec_set", exec_set }, { "clone", clone },
	{ "child", child }, { "update", update }, { "capture", capture },
	{ "launched_into_capture", launched_into_capture }, { "stages", stages },
	{ "changes", changes }, { "conditional", conditional }, { 0 } };

static struct ebpf_fragment launch_ids(void)
{
	return (struct ebpf_fragment){ .name = "ids",
		.point = EBPF_POINT_ENTRY,
		.fields = (uint64_t)1 << EBPF_FIELD_LAUNCH,
		.maps = 1,
		.max_insns = 3,
		.body = "{\n\t.reg .b64 %egpu_r<1>;\n\tld.const.b64 %egpu_r0, [__egpu_table];\n"
			"\tred.global.add.u64 [%egpu_r0+128], %egpu_launch;\n}\n" };
}

static void built(const char *role, bool with_id)
{
	struct run r;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = with_id ? launch_ids() : counter(map, EBPF_POINT_ENTRY);
	run_attach(&r, &f, "fill");
	is_int(run_role(&r, role), 0, "%s: results are right", role);
	struct session_kernel *k = run_kernel(&r, "fill");
	is_int(k ? k->launches_instrumented : 0, 2, "%s: both launches", role);
	is_int(k ? k->launches : 0, 2, "%s: and no more", role);
	is_int(run_count(&r, map, 0), (with_id ? 3 : 2) * RUN, "%s: %s", role,
		with_id ? "each with its id" : "one count a thread");
	run_end(&r);
}

static bool stopped(pid_t pid)
{
	int status;
	return waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status);
}

/* fill: probed at the second and third stage; other: at the third and fourth. The executable was
 * made before either came. */
static void come_and_go(void)
{
	struct run r;
	run_begin(&r);
	uint32_t a = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1),
		 b = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment fa = counter(a, EBPF_POINT_ENTRY), fb = counter(b, EBPF_POINT_ENTRY);
	pid_t pid = run_start(&r, "stages");
	ok(stopped(pid), "stage 1: nothing attached");
	uint32_t link = run_attach(&r, &fa, "fill");
	kill(pid, SIGCONT);
	ok(stopped(pid), "stage 2: one kernel of a graph made before");
	run_attach(&r, &fb, "other");
	kill(pid, SIGCONT);
	ok(stopped(pid), "stage 3: both kernels");
	session_detach_link(r.session, link);
	kill(pid, SIGCONT);
	ok(stopped(pid), "stage 4: the first has gone");
	kill(pid, SIGCONT);
	is_int(run_wait(&r, pid, 20), 0, "results are right");
	is_int(run_count(&r, a, 0), (3 + 4) * RUN, "first probe: stages 2 and 3");
	is_int(run_count(&r, b, 0), (4 + 5) * RUN, "second probe: stages 3 and 4");
	struct session_kernel *k = run_kernel(&r, "other");
	is_int(k ? k->launches : 0, 14, "every launch was seen");
	is_int(k ? k->launches_instrumented : 0, 9, "the second kernel ran probed 9 times");
	run_end(&r);
}

static void changed(void)
{
	struct run r;
	run_begin(&r);
	uint32_t a = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment fa = counter(a, EBPF_POINT_ENTRY);
	run_attach(&r, &fa, "*");
	is_int(run_role(&r, "changes"), 0, "an executable that changes: results are right");
	is_int(run_count(&r, a, 0), 6 * RUN, "probed until it was changed beyond following");
	run_end(&r);
}

static void rigid(void)
{
	struct run r;
	run_begin(&r);
	uint32_t a = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment fa = counter(a, EBPF_POINT_ENTRY);
	run_attach(&r, &fa, "fill");
	is_int(run_role(&r, "conditional"), 0, "beside a graph with conditional nodes: results are right");
	struct session_kernel *k = run_kernel(&r, "fill");
	is_int(k ? k->launches : 0, 5, "every launch was seen");
	is_int(run_count(&r, a, 0), 3 * RUN, "nothing was loaded as long as its executable was there");
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	for (int with_id = 0; with_id < 2; with_id++)
		for (const struct role *x = roles; strcmp(x->name, "stages"); x++)
			built(x->name, with_id);
	come_and_go();
	changed();
	rigid();
	return tap_done();
}
