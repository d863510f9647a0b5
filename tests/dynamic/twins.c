/* A program that has two PTX texts of one kernel's name in memory, started without egpu: what `egpu attach` has to tell apart.
 *
 *	twins WHAT
 *
 * The loaded text adds, the other one subtracts and is otherwise alike, but for WHAT:
 *
 *	params bounds shared registers	they differ in that as well
 *	comments	the other one adds too: they differ in what does nothing, and in a version that agrees with no other
 *	linked		both are linked and only the code of the loaded one is kept, as libraries do that compile for themselves
 *	kept		both codes are kept, which takes as many registers: nothing tells
 *	alone		neither is: nothing tells
 *	foreign		neither is, but registers would tell; memory has code of the name that is of neither text
 *	both		both are loaded and launched, and differ in registers
 *	contexts	there is only one, loaded in two contexts; launches in the second begin at SIGUSR1, of a graph too, which
 *			is launched while the first is current
 *	graph		there is only one, launched by a graph from before too, which is updated once at SIGUSR1
 *	broken		the other one is a text that memory has been used for something else within
 *
 * One line at the end says how many steps there were, and how many results were wrong. */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "must.h"

enum { N = 256, THREADS = 64, BLOCKS = N / THREADS };

static volatile sig_atomic_t over, more;

static void end(int sig)
{
	over = 1;
}

static void begin(int sig)
{
	more = 1;
}

/* What one of the two texts differs in. The parts are put together on the heap, so that there are no other texts of the name. */
struct form {
	const char *version, *op, *more_params, *bounds, *shared, *comment;
	int regs; /* additions that keep so many registers alive */
};

static char *make(const struct form *f)
{
	char *text = malloc(16384), *p = text;
	p += sprintf(p, ".version %s\n.target sm_75\n.address_size 64\n.visible .ent", f->version);
	p += sprintf(p, "ry twin(.param .u64 out, .param .u32 add%s)\n%s\n{\n\t.reg .b32 %%r<100>;\n\t.reg .b64 %%rd<4>;\n%s", f->more_params, f->bounds, f->shared);
	p += sprintf(p, "\tld.param.u64 %%rd1, [out];\n\tld.param.u32 %%r1, [add];\n\tmov.u32 %%r3, %%ctaid.x;\n\tmov.u32 %%r4, %%ntid.x;\n\tmov.u32 %%r5, %%tid.x;\n");
	p += sprintf(p, "\tmad.lo.s32 %%r6, %%r3, %%r4, %%r5;\n%s\tmul.wide.u32 %%rd2, %%r6, 4;\n\tadd.u64 %%rd3, %%rd1, %%rd2;\n", f->comment);
	for (int i = 0; i < f->regs; i++)
		p += sprintf(p, "\tld.volatile.global.u32 %%r%d, [%%rd3];\n", 20 + i);
	p += sprintf(p, "\t%s.s32 %%r7, %%r6, %%r1;\n", f->op);
	for (int i = 0; i < f->regs; i++)
		p += sprintf(p, "\tst.volatile.global.u32 [%%rd3], %%r%d;\n", 20 + i);
	sprintf(p, "\tst.global.u32 [%%rd3], %%r7;\n\tret;\n}\n");
	return text;
}

/* Machine code of a text; what the linker has of it is given back. */
static void *link_text(const char *text)
{
	CUlinkState state;
	void *out, *copy;
	size_t bytes;
	CU(cuLinkCreate(0, NULL, NULL, &state));
	CU(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text) + 1, "twin", 0, NULL, NULL));
	CU(cuLinkComplete(state, &out, &bytes));
	copy = malloc(bytes);
	memcpy(copy, out, bytes);
	memset(out, 0, bytes);
	CU(cuLinkDestroy(state));
	return copy;
}

static CUfunction load(const void *image)
{
	CUmodule mod;
	CUfunction fn;
	CU(cuModuleLoadData(&mod, image));
	CU(cuModuleGetFunction(&fn, mod, "twin"));
	return fn;
}

static void *kept[4];

/* The same kernel in another context, of which nothing is launched before the signal. */
static struct {
	CUcontext first, context;
	CUfunction fn;
	CUdeviceptr out;
	CUgraph graph;
	CUgraphExec exec;
	CUstream stream;
} second;

static void prepare_second(const char *text)
{
	CU(cuCtxGetCurrent(&second.first));
	CU(cuCtxCreate(&second.context, NULL, 0, 0));
	second.fn = load(text);
	CU(cuMemAlloc(&second.out, N * 4));
	CU(cuStreamCreate(&second.stream, CU_STREAM_NON_BLOCKING));
	CU(cuCtxSetCurrent(second.first));
}

static void make_second_graph(void **params)
{
	CUgraphNode node;
	CUDA_KERNEL_NODE_PARAMS p = { .func = second.fn,
		.gridDimX = BLOCKS,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = THREADS,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = params };
	CU(cuGraphCreate(&second.graph, 0));
	CU(cuGraphAddKernelNode(&node, second.graph, NULL, 0, &p));
	CU(cuGraphInstantiate(&second.exec, second.graph, 0));
}

/* Once by itself, and once as a graph while the first context is current. */
static unsigned long launch_second(void)
{
	uint32_t host[N], add = 7;
	unsigned long wrong = 0;
	void *params[] = { &second.out, &add };
	CU(cuCtxSetCurrent(second.context));
	if (!second.exec)
		make_second_graph(params);
	CU(cuCtxSetCurrent(second.first));
	CU(cuGraphLaunch(second.exec, second.stream));
	CU(cuCtxSetCurrent(second.context));
	CU(cuLaunchKernel(second.fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, second.stream, params, NULL));
	CU(cuStreamSynchronize(second.stream));
	CU(cuMemcpyDtoH(host, second.out, sizeof(host)));
	for (uint32_t k = 0; k < N; k++)
		wrong += host[k] != k + add;
	CU(cuCtxSetCurrent(second.first));
	return wrong;
}

int main(int argc, char **argv)
{
	struct form own = { "7.0", "add", "", "", "", "", 0 }, other = own;
	const char *what = argc > 1 ? argv[1] : "";
	unsigned long steps = 0, wrong = 0;
	CUdevice dev;
	CUcontext ctx;
	CUdeviceptr out;
	CUfunction fn, also = NULL;
	signal(SIGTERM, end);
	signal(SIGUSR1, begin);
	other.op = "sub";
	if (!strcmp(what, "params"))
		other.more_params = ", .param .u32 unused";
	if (!strcmp(what, "bounds"))
		own.bounds = ".maxntid 128, 1, 1", other.bounds = ".maxntid 64, 1, 1";
	if (!strcmp(what, "shared"))
		own.shared = "\t.shared .align 4 .b8 room[512];\n\tst.shared.u32 [room], 0;\n";
	if (!strcmp(what, "registers") || !strcmp(what, "foreign") || !strcmp(what, "both"))
		other.regs = 40;
	if (!strcmp(what, "comments"))
		other.op = "add", other.version = "7.1", other.comment = "\t// the sum\n";
	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	CU(cuDevicePrimaryCtxRetain(&ctx, dev));
	CU(cuCtxSetCurrent(ctx));
	char *text = make(&own), *twin = make(&other);
	if (!strcmp(what, "broken"))
		memcpy(strstr(twin, "mad.lo"), "{\"a\":1}", 7);
	if (!strcmp(what, "linked") || !strcmp(what, "kept")) {
		kept[0] = link_text(text);
		fn = load(kept[0]);
		kept[1] = link_text(twin);
		if (!strcmp(what, "linked")) {
			memset(kept[1], 0, 64);
			free(kept[1]);
		}
	} else {
		fn = load(text);
	}
	if (!strcmp(what, "foreign")) {
		struct form third = { "7.0", "min", "", "", "", "", 0 };
		char *gone = make(&third);
		kept[0] = link_text(gone);
		memset(gone, 0, strlen(gone));
	}
	if (!strcmp(what, "both"))
		also = load(twin);
	if (!strcmp(what, "contexts")) {
		memset(twin, 0, strlen(twin));
		prepare_second(text);
	}
	CU(cuMemAlloc(&out, N * 4));
	if (!strcmp(what, "graph")) {
		uint32_t any = 1;
		void *params[] = { &out, &any };
		memset(twin, 0, strlen(twin));
		second.fn = fn;
		make_second_graph(params);
	}
	for (uint32_t add = 0; !over; add++, steps++) {
		uint32_t host[N], unused = 0;
		void *params[] = { &out, &add, &unused };
		for (int i = 0; i < 2; i++) {
			if (i && !also)
				break;
			CU(cuLaunchKernel(i ? also : fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
			CU(cuMemcpyDtoH(host, out, sizeof(host)));
			for (uint32_t k = 0; k < N; k++)
				wrong += host[k] != (i ? k - add : k + add);
		}
		CUgraphExecUpdateResultInfo info = { 0 };
		if (more && second.graph && !second.context) {
			CU(cuGraphExecUpdate(second.exec, second.graph, &info));
			more = 0;
		}
		if (second.exec && !second.context)
			CU(cuGraphLaunch(second.exec, NULL));
		if (more && second.context)
			wrong += launch_second();
		if (!steps)
			printf("running\n");
		fflush(stdout);
		usleep(1000);
	}
	printf("steps %lu wrong %lu\n", steps, wrong);
	return wrong != 0;
}
