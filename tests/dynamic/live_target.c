/* Kernels that run until they are told to stop, in two contexts: what tests/dynamic/live_protocol.c attaches to.
 *
 * Lines of standard input, each answered when it is done:
 *	start C NAME T  kernel NAME (alpha, beta) in context C (0, 1), T threads      "started C NAME N"
 *	stop C          the context's kernels end                          "stopped C N"
 * with N the number of the answer, so that each is another text. The end of the input stops all.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"

/* A pass stores its number. */
#define KERNEL(name)                                                                                                 \
	".visible .entry " name "(.param .u64 stop, .param .u64 out)\n"                                              \
	"{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<2>;\n\t.reg .b64 %rd<4>;\n"                                          \
	"\tld.param.u64 %rd1, [stop];\n\tld.param.u64 %rd2, [out];\n\tmov.u64 %rd3, 0;\n"                            \
	"LOOP:\n\tadd.u64 %rd3, %rd3, 1;\n\tst.volatile.global.u64 [%rd2], %rd3;\n"                                  \
	"\tld.volatile.global.u32 %r1, [%rd1];\n\tsetp.eq.u32 %p1, %r1, 0;\n\t@%p1 bra LOOP;\n\tret;\n}\n"

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n" KERNEL("alpha") KERNEL("beta");

enum { CONTEXTS = 2, STREAMS = 2 };

static struct side {
	CUcontext ctx;
	CUstream streams[STREAMS], control;
	CUmodule module;
	CUdeviceptr stop, out;
	int n;
} sides[CONTEXTS];

static void must(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	printf("%s gave %d\n", what, (int)r);
	fflush(stdout);
	exit(3);
}
#define CU(call) must(call, #call)

static void set_stop(struct side *s, unsigned value)
{
	CU(cuMemcpyHtoDAsync_v2(s->stop, &value, sizeof(value), s->control));
	CU(cuStreamSynchronize(s->control));
}

static void prepare(struct side *s, CUdevice dev)
{
	CU(cuCtxCreate_v2(&s->ctx, 0, dev));
	CU(cuModuleLoadData(&s->module, ptx));
	CU(cuMemAlloc_v2(&s->stop, 8));
	CU(cuMemAlloc_v2(&s->out, 64));
	/* One is launched while the other runs. */
	for (int i = 0; i < 2; i++) {
		CUfunction fn;
		CU(cuModuleGetFunction(&fn, s->module, i ? "beta" : "alpha"));
		CU(cuFuncLoad(fn));
	}
	for (int i = 0; i < STREAMS; i++)
		CU(cuStreamCreate(&s->streams[i], CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&s->control, CU_STREAM_NON_BLOCKING));
	set_stop(s, 0);
}

static void start(struct side *s, const char *name, unsigned threads)
{
	CUfunction fn;
	CUdeviceptr out = s->out + 8 * (CUdeviceptr)s->n;
	void *params[] = { &s->stop, &out };
	CU(cuCtxSetCurrent(s->ctx));
	CU(cuModuleGetFunction(&fn, s->module, name));
	CU(cuLaunchKernel(fn, 1, 1, 1, threads, 1, 1, 0, s->streams[s->n++ % STREAMS], params, NULL));
}

static void stop(struct side *s)
{
	CU(cuCtxSetCurrent(s->ctx));
	set_stop(s, 1);
	CU(cuCtxSynchronize());
	set_stop(s, 0);
	s->n = 0;
}

int main(void)
{
	char line[64], name[16];
	int c, n = 0;
	unsigned threads;
	CUdevice dev;
	CU(cuInit(0));
	CU(cuDeviceGet(&dev, 0));
	for (int i = 0; i < CONTEXTS; i++)
		prepare(&sides[i], dev);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "start %1d %15s %u", &c, name, &threads) == 3) {
			start(&sides[c % CONTEXTS], name, threads);
			printf("started %d %s %d\n", c, name, n++);
		} else if (sscanf(line, "stop %1d", &c) == 1) {
			stop(&sides[c % CONTEXTS]);
			printf("stopped %d %d\n", c, n++);
		}
		fflush(stdout);
	}
	for (int i = 0; i < CONTEXTS; i++)
		stop(&sides[i]);
	printf("ended well\n");
	return 0;
}
