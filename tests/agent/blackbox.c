/* What a device fault leaves in the session: the launches that may be it, with parameters, stream and programs; what maps show; and
 * the program's own results and status. */
#include <pthread.h>

#include "harness.h"

enum { N = 64, GOOD = 3 };

#define PTX_OTHER                                                                                  \
	".visible .entry other ( .param .u64 .ptr .global .align 1 a,\n .param .align 8 .b8 pair[24] , .param .f32 x,\n"       \
	"\t.param .s16 small, .param .align 16 .f64 y, .param .align 4 .b8 large[200] ,.param .u8 last )\n{\n\tret;\n}\n"                 \
	".entry none\n{\n\tret;\n}\n.entry also_none()\n{\n\tret;\n}\n"

static CUfunction fill, other, none;
static CUdeviceptr buf, bad;
static uint32_t add = 5, n = N;
static CUstream streams[2];

static void start(void)
{
	CUmodule mod;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill") PTX_OTHER));
	CU(cuModuleGetFunction(&fill, mod, "fill"));
	CU(cuModuleGetFunction(&other, mod, "other"));
	CU(cuModuleGetFunction(&none, mod, "none"));
	CU(cuMemAlloc(&buf, N * 4));
	bad = buf + (UINT64_C(1) << 40);
	for (int i = 0; i < 2; i++)
		CU(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
}

static void launch(CUdeviceptr to, CUstream s)
{
	void *params[] = { &to, &add, &n };
	CU(cuLaunchKernel(fill, 1, 1, 1, N, 1, 1, 0, s, params, NULL));
}

/* The program sees its fault, and that it stays. */
static int fault(CUresult r)
{
	if (r != CUDA_ERROR_ILLEGAL_ADDRESS || cuMemFree(buf) != CUDA_ERROR_ILLEGAL_ADDRESS)
		return 2;
	return 41;
}

/* Good launches in one stream, synchronised; one in another; then the bad one. */
static int in_streams(void)
{
	start();
	for (int i = 0; i < GOOD; i++)
		launch(buf, streams[0]);
	CU(cuStreamSynchronize(streams[0]));
	launch(buf, streams[1]);
	launch(bad, streams[0]);
	return fault(cuStreamSynchronize(streams[0]));
}

static void *own_stream(void *arg)
{
	CU(cuCtxSetCurrent(arg));
	launch(buf, CU_STREAM_PER_THREAD);
	CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	launch(buf, CU_STREAM_PER_THREAD);
	return NULL;
}

/* Another thread's own stream is not this one's, nor the legacy one; what is in that is read, which waits. */
static int in_threads(void)
{
	pthread_t t;
	CUcontext ctx;
	uint32_t word;
	start();
	CU(cuCtxGetCurrent(&ctx));
	launch(buf, NULL);
	CU(cuMemcpyDtoH(&word, buf, 4));
	pthread_create(&t, NULL, own_stream, ctx);
	pthread_join(t, NULL);
	launch(buf, CU_STREAM_PER_THREAD);
	CU(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	launch(bad, NULL);
	return fault(cuCtxSynchronize());
}

struct pair {
	uint64_t a;
	uint32_t b[4];
};

/* Parameters of all kinds, in a list and in a block. */
static int with_values(void)
{
	struct {
		uint64_t a;
		struct pair pair;
		float x;
		int16_t small;
		_Alignas(16) double y;
		char large[200];
		uint8_t last;
	} v = { .a = 1, .pair = { 2, { 3, 4, 5, 6 } }, .x = 7.5f, .small = -8, .y = -9.25, .large = "ten", .last = 11 };
	size_t bytes = sizeof(v);
	void *list[] = { &v.a, &v.pair, &v.x, &v.small, &v.y, v.large, &v.last };
	void *block[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &v, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END };
	start();
	CU(cuLaunchKernel(other, 2, 3, 4, 5, 6, 7, 128, NULL, list, NULL));
	CU(cuLaunchKernel(other, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, block));
	CU(cuLaunchKernel(none, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	launch(bad, streams[0]);
	return fault(cuStreamSynchronize(streams[0]));
}

static int in_graph(void)
{
	CUgraph g;
	CUgraphExec e;
	CUgraphNode node[2];
	void *params[] = { &bad, &add, &n };
	start();
	CU(cuGraphCreate(&g, 0));
	CUDA_KERNEL_NODE_PARAMS p = {
		.func = fill, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = N, .blockDimY = 1, .blockDimZ = 1, .kernelParams = params
	};
	for (int i = 0; i < 2; i++)
		CU(cuGraphAddKernelNode_v2(&node[i], g, i ? &node[0] : NULL, (size_t)i, &p));
	CU(cuGraphInstantiateWithFlags(&e, g, 0));
	CU(cuGraphLaunch(e, streams[1]));
	return fault(cuStreamSynchronize(streams[1]));
}

/* No call that the agent looks at tells of it. */
static int unseen(void)
{
	start();
	launch(bad, NULL);
	for (int i = 0; i < 5000 && cuMemFree(buf) != CUDA_ERROR_ILLEGAL_ADDRESS; i++) {
		usleep(1000);
		CU(cuMemAlloc(&buf, N * 4));
	}
	return 41;
}

static const struct role roles[] = { { "in_streams", in_streams }, { "in_threads", in_threads }, { "with_values", with_values },
	{ "in_graph", in_graph }, { "unseen", unseen }, { 0 } };

/* -- expectations --------------------------------------------------------------------------- */

static struct session_blackbox *box(struct run *r)
{
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (r->file->agents[i].pid)
			return &r->file->boxes[i];
	static struct session_blackbox nothing;
	return &nothing;
}

/* Launch `number`, from 1. */
static const struct session_launch *nth(const struct session_blackbox *b, uint64_t number)
{
	static const struct session_launch nothing;
	for (int i = 0; i < SESSION_BOX_LANES * SESSION_LAST_LAUNCHES; i++)
		if (b->last[i].number == number)
			return &b->last[i];
	return &nothing;
}

/* Whether the value at `at` of launch `number` is this. */
static bool has(const struct session_blackbox *b, uint64_t number, size_t at, const void *value, size_t bytes)
{
	return !memcmp(nth(b, number)->params + at, value, bytes);
}

static uint32_t host_map(struct run *r)
{
	struct ebpf_map def = { .name = "host", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1, .flags = MAP_FLAG_HOST };
	struct diag d = { 0 };
	uint32_t id = 0;
	if (session_add_map(r->session, &def, &id, &d))
		printf("Bail out! %s\n", d.text);
	return id;
}

static void streams_apart(void)
{
	struct run r;
	uint64_t to;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1), host = host_map(&r);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY), g = counter(host, EBPF_POINT_ENTRY);
	uint32_t links = 1u << run_attach(&r, &f, "fill") | 1u << run_attach(&r, &g, "fill");
	is_int(run_role(&r, "in_streams"), 41, "streams: the program sees its fault, and has its own status");
	const struct session_blackbox *b = box(&r);
	is_int(b->fault, CUDA_ERROR_ILLEGAL_ADDRESS, "the fault");
	is_str(b->call, "cuStreamSynchronize", "and the call that told");
	is_int(b->launches_then, GOOD + 2, "launches until then");
	for (int i = 0; i < GOOD; i++)
		ok(nth(b, (uint64_t)i + 1)->ended && nth(b, (uint64_t)i + 1)->stream == 1, "launch %d has ended with its stream", i + 1);
	ok(!nth(b, GOOD + 1)->ended && nth(b, GOOD + 1)->stream == 2, "one in another stream is not known to have");
	ok(!nth(b, GOOD + 2)->ended && nth(b, GOOD + 2)->stream == 1, "nor the one that came later");
	is_int(nth(b, GOOD + 2)->links, links, "which ran both programs");
	is_int(nth(b, GOOD + 2)->param_bytes, 16, "its parameters");
	memcpy(&to, nth(b, GOOD + 1)->params, 8);
	to += UINT64_C(1) << 40;
	ok(has(b, GOOD + 2, 0, &to, 8) && has(b, GOOD + 2, 8, &add, 4) && has(b, GOOD + 2, 12, &n, 4), "and their values");
	struct session_kernel *k = run_kernel(&r, "fill");
	is_str(k ? session_text(r.session, k->params) : "", "u64 u32 u32", "and types");
	uint64_t shown = run_count(&r, map, 0);
	ok(b->maps_behind && b->maps_behind <= GOOD + 2 && shown + b->maps_behind * N >= (GOOD + 1) * N,
		"the map shows %d threads, and it is said that launches are missing: %d", (int)shown, (int)b->maps_behind);
	ok(b->maps_ns <= b->fault_ns && (b->maps_ns || !shown), "and since when");
	if (k && k->state == SESSION_KERNEL_INSTRUMENTED)
		ok(run_count(&r, host, 0) > (GOOD + 1) * N, "one in host memory has them, and what the last launch did before it failed");
	run_end(&r);
}

static void threads_apart(void)
{
	static const int ended[] = { 1, 1, 0, 1, 0 };
	struct run r;
	run_begin(&r);
	is_int(run_role(&r, "in_threads"), 41, "threads: the program sees its fault");
	const struct session_blackbox *b = box(&r);
	is_str(b->call, "cuCtxSynchronize", "and the call that told");
	for (int i = 0; i < 5; i++)
		ok((int)nth(b, (uint64_t)i + 1)->ended == ended[i] && nth(b, (uint64_t)i + 1)->stream == 0, "launch %d has%s ended", i + 1, ended[i] ? "" : " not");
	ok(nth(b, 2)->thread && nth(b, 2)->thread == nth(b, 3)->thread && nth(b, 4)->thread &&
			nth(b, 4)->thread != nth(b, 2)->thread && !nth(b, 1)->thread && !nth(b, 5)->thread,
		"whose stream it was");
	is_int(b->maps_behind + nth(b, 5)->links, 0, "nothing was probed");
	run_end(&r);
}

static void values(bool told)
{
	struct run r;
	struct pair pair = { 2, { 3, 4, 5, 6 } };
	uint64_t one = 1;
	float x = 7.5f;
	int16_t small = -8;
	double y = -9.25;
	run_begin(&r);
	run_use_shim(&r);
	r.env[0] = told ? NULL : "SHIM_FAULT=cuFuncGetParamInfo:1";
	is_int(run_role(&r, "with_values"), 41, "values%s", told ? "" : ", the driver does not tell of parameters");
	const struct session_blackbox *b = box(&r);
	is_int(nth(b, 1)->param_bytes, told ? 56 : 0, "a list: %s", told ? "what fits" : "is not read");
	for (int i = told ? 0 : 1; i < 2; i++)
		ok(has(b, (uint64_t)i + 1, 0, &one, 8) && has(b, (uint64_t)i + 1, 8, &pair, 24) && has(b, (uint64_t)i + 1, 32, &x, 4) &&
				has(b, (uint64_t)i + 1, 36, &small, 2) && has(b, (uint64_t)i + 1, 48, &y, 8),
			"values of a %s", i ? "block" : "list");
	is_int(nth(b, 2)->param_bytes, SESSION_PARAM_BYTES, "a block is cut");
	is_int(nth(b, 3)->param_bytes, 0, "a kernel without parameters");
	ok(nth(b, 1)->grid[2] == 4 && nth(b, 1)->block[1] == 6 && nth(b, 1)->shared_bytes == 128, "grid, block, shared memory");
	struct session_kernel *k = run_kernel(&r, "other"), *k2 = run_kernel(&r, "none");
	is_str(k ? session_text(r.session, k->params) : "", "u64 b8[24]@8 f32 s16 f64@16 b8[200]@4 u8", "types");
	is_str(k2 ? session_text(r.session, k2->params) : "", SESSION_NO_PARAMS, "and none");
	run_end(&r);
}

static void graph(void)
{
	struct run r;
	run_begin(&r);
	uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
	struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
	uint32_t link = run_attach(&r, &f, "fill");
	is_int(run_role(&r, "in_graph"), 41, "a graph: the program sees its fault");
	const struct session_blackbox *b = box(&r);
	struct session_kernel *k = run_kernel(&r, "fill");
	ok(b->launches_then == 1 && nth(b, 1)->graph_kernels == 2 && nth(b, 1)->stream == 1 && !nth(b, 1)->ended, "it is told");
	ok(k && &r.file->kernels[nth(b, 1)->kernel] == k, "with its first kernel");
	is_int(nth(b, 1)->links, 1u << link, "and programs");
	run_end(&r);
}

static void at_the_end(void)
{
	struct run r;
	run_begin(&r);
	is_int(run_role(&r, "unseen"), 41, "a fault that only other calls tell of");
	const struct session_blackbox *b = box(&r);
	is_int(b->fault, CUDA_ERROR_ILLEGAL_ADDRESS, "is found at the end of the process");
	is_str(b->call, "the end of the process", "which is said");
	run_end(&r);
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	streams_apart();
	threads_apart();
	values(true);
	values(false);
	graph();
	at_the_end();
	return tap_done();
}
