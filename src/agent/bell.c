/* bell.c - tells multiprocessors that words have changed (live/live.h), and asks which have heard of it: guards at loop heads listen, and where
 * they may not come by a small kernel goes, the doorbell. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "agent/live_state.h"

enum {
	BELL_BLOCKS = 4, /* a multiprocessor */
	BELL_THREADS = 32,
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

/* The number first, then the fence, then it is heard. */
static const char bell_ptx[] =
	".version 6.2\n.target sm_70\n.address_size 64\n"
	".visible .entry egpu_bell(.param .u64 bell)\n{\n"
	"\t.reg .b32 %number, %sm;\n\t.reg .b64 %bell, %heard;\n"
	"\tld.param.u64 %bell, [bell];\n"
	"\tmov.u32 %sm, %smid;\n\tand.b32 %sm, %sm, 1023;\n"
	"\tmad.wide.u32 %heard, %sm, 4, %bell;\n"
	"\tld.volatile.global.u32 %number, [%bell];\n"
	"\tfence.acq_rel.sys;\n"
	"\tst.volatile.global.u32 [%heard+256], %number;\n"
	"\tret;\n}\n";
_Static_assert(sizeof(CUdeviceptr) == sizeof(uint64_t), "a word");
_Static_assert(LIVE_SMS == 1024 && offsetof(struct live_bell, heard) == 256, "the doorbell's text");

int bell_load(struct live *l, uint32_t cc, struct diag *d)
{
	char *cubin = NULL;
	size_t bytes;
	int least = 0, greatest = 0;
	int err = compile_ptx(bell_ptx, sizeof(bell_ptx) - 1, cc, &cubin, &bytes, d);
	if (err)
		return err;
	if (!ok(REAL(cuModuleLoadData)(&l->bell_module, cubin)) || !ok(REAL(cuModuleGetFunction)(&l->bell, l->bell_module, "egpu_bell")))
		err = diag_set(d, EIO, "the doorbell kernel cannot be loaded");
	/* A driver that loads functions when they are first launched would wait then for the kernel that runs. */
	else if (REAL(cuFuncLoad))
		REAL(cuFuncLoad)(l->bell);
	/* It runs beside kernels that have no shared memory or little: a multiprocessor divides its memory anew only when nothing runs on it. */
	if (!err && REAL(cuFuncSetAttribute))
		REAL(cuFuncSetAttribute)(l->bell, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0);
	free(cubin);
	/* Before the program's own blocks that wait for a place. */
	if (REAL(cuCtxGetStreamPriorityRange))
		REAL(cuCtxGetStreamPriorityRange)(&least, &greatest);
	if (!err && (!REAL(cuStreamCreateWithPriority) ||
			    !ok(REAL(cuStreamCreateWithPriority)(&l->bell_stream, CU_STREAM_NON_BLOCKING, greatest))))
		err = diag_set(d, EIO, "the driver gives egpu no stream");
	return err;
}

/* The doorbell kernel is not waited for: a full device runs it when there is room. Until then what the program launches into streams of
 * its priority may have to wait behind it, so it does not go where guards hear anyway. */
void bell_send(struct context *c)
{
	struct live *l = c->live;
	CUdeviceptr bell = l->value + LIVE_BELL;
	void *params[] = { &bell };
	CUresult r = REAL(cuStreamQuery)(l->bell_stream);
	l->sent_ns = now_ns();
	if (ok(r))
		r = REAL(cuLaunchKernel)(l->bell, c->sms * BELL_BLOCKS, 1, 1, BELL_THREADS, 1, 1, 0, l->bell_stream, params, NULL);
	if (!ok(r))
		agent_log("live: the doorbell kernel is not sent (%d)", (int)r); /* not ready: the last one waits for room */
}

bool bell_ring(struct context *c)
{
	struct live *l = c->live;
	uint32_t number = l->number + 1;
	if (!live_put(c, l->value + LIVE_BELL, &number, sizeof(number)) || !live_finished(c))
		return false;
	l->number = number;
	l->rung_ns = now_ns();
	l->sent_ns = 0;
	if (stream_context_idle(c->handle, true))
		bell_send(c);
	return true;
}

uint32_t bell_deaf(struct context *c)
{
	struct live *l = c->live;
	uint32_t n = live_sms(c), deaf = 0;
	if (!ok(REAL(cuMemcpyDtoHAsync_v2)(l->heard, l->value + LIVE_BELL + offsetof(struct live_bell, heard), n * sizeof(*l->heard),
		    c->stream)) ||
		!live_finished(c))
		return n;
	for (uint32_t i = 0; i < n; i++)
		deaf += l->heard[i] != l->number;
	return deaf;
}
