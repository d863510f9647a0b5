/* Streams and events: what waits for what, and that nothing else does. */
#include <pthread.h>

#include "driver_test.h"

static CUstream blocking, other, free_stream;

/* Work that cannot end before its gate opens, in one stream; whether work in another ends
 * meanwhile. */
static bool passes(CUstream stuck, CUstream tried)
{
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0), q = device_word(0);
	void *params[] = { &q, &(uint32_t){ 1 } };
	CUevent e;
	bool ended = false;
	need(cuCtxSynchronize());
	need(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	need(launch_gated(gate, p, 1, stuck));
	need(launch(kernel("set"), 1, 1, tried, params));
	need(cuEventRecord(e, tried));
	for (int i = 0; i < 40 && !ended; i++) {
		sleep_ms(5);
		ended = !cuEventQuery(e);
	}
	gate_set(gate, 1);
	need(cuCtxSynchronize());
	is_int(read_word(q), 1, "(it ends)");
	need(cuEventDestroy(e));
	return ended;
}

static void who_waits(void)
{
	ok(passes(blocking, other), "two streams run side by side");
	ok(!passes(blocking, blocking), "within a stream there is an order");
	ok(!passes(NULL, blocking), "a blocking stream waits for the legacy one");
	ok(!passes(blocking, NULL), "and the legacy one for it");
	ok(passes(NULL, free_stream), "a non-blocking stream does not wait");
	ok(passes(free_stream, NULL), "nor is it waited for");
	ok(passes(CU_STREAM_PER_THREAD, blocking), "the thread's own stream is one of many");
	ok(!passes(NULL, CU_STREAM_PER_THREAD), "but waits for the legacy one");
	ok(!passes(CU_STREAM_LEGACY, NULL), "0 is the legacy one");
}

static void queries(void)
{
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0);
	CUevent e;
	need(cuEventCreate(&e, 0));
	is_int(cuEventQuery(e), 0, "an event that was never recorded is past");
	is_int(cuEventSynchronize(e), 0, "and not waited for");
	is_int(cuStreamQuery(blocking), 0, "nothing to do");
	need(launch_gated(gate, p, 7, blocking));
	need(cuEventRecord(e, blocking));
	is_int(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY, "work");
	is_int(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY, "counts for the legacy stream too");
	is_int(cuStreamQuery(free_stream), 0, "not for another");
	is_int(cuEventQuery(e), CUDA_ERROR_NOT_READY, "the event is to come");
	gate_set(gate, 1);
	is_int(cuEventSynchronize(e), 0, "wait for the event");
	is_int(read_word(p), 7, "then what was before it is done");
	is_int(cuStreamSynchronize(blocking), 0, "and the stream");
	is_int(cuStreamQuery((CUstream)&e), CUDA_ERROR_INVALID_HANDLE, "no stream at all");
	is_int(cuStreamQuery((CUstream)e), CUDA_ERROR_INVALID_HANDLE, "an event is no stream");
	is_int(cuEventDestroy(e), 0, "destroy");
	is_int(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE, "gone");
}

static void events(void)
{
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(1);
	CUevent a, b, blind;
	float ms = -1;
	need(cuEventCreate(&a, 0));
	need(cuEventCreate(&b, 0));
	is_int(cuEventCreate(&blind, CU_EVENT_DISABLE_TIMING), 0, "create");
	is_int(cuEventCreate(&blind, 0x80), CUDA_ERROR_INVALID_VALUE, "unknown flags");
	is_int(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE, "no time before a record");
	/* The second stream goes on only when the first has. */
	need(launch_gated(gate, p, 5, other));
	need(cuEventRecord(a, other));
	is_int(cuStreamWaitEvent(free_stream, a, 0), 0, "wait for it elsewhere");
	void *params[] = { &p, &(uint32_t){ 10 } };
	need(launch(kernel("add"), 1, 1, free_stream, params));
	need(cuEventRecord(b, free_stream));
	sleep_ms(30);
	is_int(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY, "it waits");
	is_int(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY, "no time yet");
	gate_set(gate, 1);
	need(cuStreamSynchronize(free_stream));
	is_int(read_word(p), 15, "first the one, then the other");
	is_int(cuEventElapsedTime(&ms, a, b), 0, "the time between them");
	ok(ms >= 0 && ms < 20000, "is plausible (%g ms)", (double)ms);
	need(cuEventRecord(a, free_stream));
	sleep_ms(20);
	need(cuEventRecord(b, free_stream));
	need(cuEventSynchronize(b));
	need(cuEventElapsedTime(&ms, a, b));
	ok(ms >= 19, "20 ms apart (%g ms)", (double)ms);
	is_int(cuEventElapsedTime(&ms, a, blind), CUDA_ERROR_INVALID_HANDLE,
		"an event without a time");
	/* A wait holds for the record that it saw. */
	gate_set(gate, 0);
	need(cuMemcpyHtoD(p, &(uint32_t){ 0 }, 4));
	need(launch_gated(gate, p, 1, other));
	need(cuEventRecord(blind, other));
	need(cuStreamWaitEvent(free_stream, blind, 0));
	need(cuEventRecord(blind, blocking));
	sleep_ms(20);
	is_int(cuEventQuery(blind), 0, "recorded anew, in an idle stream");
	is_int(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY,
		"the wait is for the first record");
	gate_set(gate, 1);
	need(cuStreamSynchronize(free_stream));
	is_int(cuEventRecord(a, (CUstream)1234), CUDA_ERROR_INVALID_HANDLE, "no such stream");
	is_int(cuStreamWaitEvent(blocking, (CUevent)blocking, 0), CUDA_ERROR_INVALID_HANDLE,
		"no such event");
	need(cuEventDestroy(a));
	need(cuEventDestroy(b));
	need(cuEventDestroy(blind));
}

struct seen {
	int calls, result, inner;
	CUstream stream;
	_Atomic int go;
};

static void host_function(void *data)
{
	struct seen *s = data;
	CUdeviceptr p;
	while (!s->go)
		sleep_ms(1);
	s->inner = cuMemAlloc(&p, 4);
	s->calls++;
}

static void callback(CUstream stream, CUresult status, void *data)
{
	struct seen *s = data;
	s->stream = stream;
	s->result = status;
	s->calls++;
}

static void host_work(void)
{
	struct seen s = { 0 }, c = { 0 };
	CUdeviceptr p = device_word(0);
	void *params[] = { &p, &(uint32_t){ 1 } };
	is_int(cuLaunchHostFunc(blocking, host_function, &s), 0, "a host function");
	need(launch(kernel("add"), 1, 1, blocking, params));
	is_int(cuStreamAddCallback(blocking, callback, &c, 0), 0, "and a callback");
	sleep_ms(20);
	is_int(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY, "the stream waits for the function");
	ok(!c.calls, "in order");
	s.go = 1;
	need(cuStreamSynchronize(blocking));
	ok(s.calls == 1 && c.calls == 1, "both were called once");
	is_int(s.inner, CUDA_ERROR_NOT_PERMITTED, "driver calls are not permitted in there");
	ok(c.stream == blocking && c.result == 0, "the callback was told its stream");
	is_int(read_word(p), 1, "the kernel between them ran");
	is_int(cuLaunchHostFunc(blocking, NULL, NULL), CUDA_ERROR_INVALID_VALUE, "no function");
}

static void values(void)
{
	CUdeviceptr p;
	uint32_t w;
	need(cuMemAlloc(&p, 16));
	need(cuMemsetD8(p, 0, 16));
	is_int(cuStreamWaitValue32(free_stream, p, 5, CU_STREAM_WAIT_VALUE_GEQ), 0,
		"wait for a value");
	is_int(cuStreamWriteValue32(free_stream, p + 4, 1, 0), 0, "then write one");
	sleep_ms(20);
	need(cuStreamSynchronize(other));
	is_int(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY, "it waits");
	is_int(cuStreamWriteValue32(other, p, 4, 0), 0, "too small a value");
	sleep_ms(20);
	is_int(cuStreamQuery(free_stream), CUDA_ERROR_NOT_READY, "still");
	is_int(cuStreamWriteValue32(other, p, 6, 0), 0, "a greater one");
	is_int(cuStreamSynchronize(free_stream), 0, "lets it go");
	need(cuMemcpyDtoH(&w, p + 4, 4));
	is_int(w, 1, "and the write is done");
	is_int(cuStreamWaitValue64(free_stream, p + 8, 0, CU_STREAM_WAIT_VALUE_EQ), 0, "64 bits");
	is_int(cuStreamWaitValue32(free_stream, p, 6, CU_STREAM_WAIT_VALUE_AND), 0, "any bit");
	is_int(cuStreamWaitValue32(free_stream, p, ~7u, CU_STREAM_WAIT_VALUE_NOR), 0, "a zero bit");
	is_int(cuStreamSynchronize(free_stream), 0, "all hold already");
	is_int(cuStreamWaitValue32(free_stream, p + 2, 0, 0), CUDA_ERROR_INVALID_VALUE,
		"not aligned");
	is_int(cuStreamWriteValue64(free_stream, p + 12, 0, 0), CUDA_ERROR_INVALID_VALUE,
		"past the end");
	CUstreamBatchMemOpParams ops[2] = {
		{ .writeValue = { CU_STREAM_MEM_OP_WRITE_VALUE_32, p, { 9 }, 0, 0 } },
		{ .waitValue = { CU_STREAM_MEM_OP_WAIT_VALUE_32, p, { 9 }, CU_STREAM_WAIT_VALUE_EQ,
			  0 } }
	};
	is_int(cuStreamBatchMemOp(free_stream, 2, ops, 0), 0, "several at once");
	is_int(cuStreamSynchronize(free_stream), 0, "done");
	need(cuMemFree(p));
}

static void async_copies(void)
{
	uint32_t pageable[4] = { 1, 2, 3, 4 }, back[4] = { 0 };
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p, g = device_word(0);
	uint32_t *pinned;
	need(cuMemAlloc(&p, 16));
	need(cuMemHostAlloc((void **)&pinned, 16, 0));
	pinned[0] = 100;
	need(launch_gated(gate, g, 1, other));
	is_int(cuMemcpyHtoDAsync(p, pageable, 16, other), 0,
		"pageable memory to the device, behind a kernel");
	pageable[0] = 99;
	is_int(cuMemcpyHtoDAsync(p + 12, pinned, 4, other), 0, "and pinned memory");
	pinned[0] = 101;
	is_int(cuStreamQuery(other), CUDA_ERROR_NOT_READY, "neither call waited");
	gate_set(gate, 1);
	is_int(cuMemcpyDtoHAsync(back, p, 16, other), 0, "back into pageable memory");
	ok(back[0] == 1 && back[1] == 2,
		"which is there when the call returns, as it was when it was given");
	is_int(back[3], 101, "pinned memory is read when its turn comes");
	need(cuMemFreeHost(pinned));
	need(cuMemFree(p));
}

/* Destroying is no waiting: the work goes on. */
static void destroy(void)
{
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0);
	CUstream s;
	need(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	need(launch_gated(gate, p, 3, s));
	need(cuMemsetD32Async(p, 0, 1, s));
	need(cuMemsetD32Async(p, 4, 1, s));
	is_int(cuStreamDestroy(s), 0, "destroyed with work in it");
	is_int(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE, "the handle is dead");
	is_int(cuStreamDestroy(s), CUDA_ERROR_INVALID_HANDLE, "for good");
	gate_set(gate, 1);
	is_int(cuCtxSynchronize(), 0, "the context waits for it");
	is_int(read_word(p), 4, "all of it was done");
	is_int(cuStreamDestroy(CU_STREAM_LEGACY), CUDA_ERROR_INVALID_HANDLE,
		"the legacy stream is not destroyed");
	is_int(cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE, "nor 0");
}

static void *own_stream(void *arg)
{
	CUdeviceptr *p = arg;
	need(cuCtxSetCurrent(ctx));
	void *params[] = { p, &(uint32_t){ 1 } };
	unsigned long long id;
	/* As a program compiled for per-thread default streams calls it. */
	for (int i = 0; i < 100; i++)
		need(cuLaunchKernel_ptsz(kernel("add"), 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	need(cuStreamGetId_ptsz(NULL, &id));
	need(cuStreamSynchronize_ptsz(NULL));
	uint32_t v;
	need(cuMemcpyDtoH_v2_ptds(&v, *p, 4));
	return (void *)(uintptr_t)id;
}

static void per_thread(void)
{
	CUdeviceptr p[2] = { device_word(0), device_word(0) };
	pthread_t t[2];
	void *id[2];
	unsigned long long legacy;
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, own_stream, &p[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], &id[i]);
	is_int(read_word(p[0]) + read_word(p[1]), 200, "two threads with streams of their own");
	need(cuStreamGetId(NULL, &legacy));
	ok(id[0] != id[1] && (uintptr_t)id[0] != legacy, "different ones");
}

static void attributes(void)
{
	unsigned flags;
	int priority;
	CUcontext c;
	CUstream s;
	is_int(cuStreamGetFlags(free_stream, &flags), 0, "flags");
	is_int(flags, CU_STREAM_NON_BLOCKING, "as given");
	is_int(cuStreamCreateWithPriority(&s, 0, -100), 0, "a priority beyond the range");
	need(cuStreamGetPriority(s, &priority));
	is_int(priority, -5, "is brought into it");
	is_int(cuStreamGetCtx(s, &c), 0, "context");
	ok(c == ctx, "ours");
	CUstreamAttrValue v = { .syncPolicy = CU_SYNC_POLICY_YIELD }, got;
	is_int(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v), 0,
		"an attribute");
	is_int(cuStreamCopyAttributes(free_stream, s), 0, "copied");
	need(cuStreamGetAttribute(free_stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
	is_int(got.syncPolicy, CU_SYNC_POLICY_YIELD, "and read back");
	CUstreamCaptureStatus capture;
	is_int(cuStreamIsCapturing(s, &capture), 0, "capturing");
	is_int(capture, CU_STREAM_CAPTURE_STATUS_NONE, "has not begun");
	is_int(cuStreamCreate(&s, 2), CUDA_ERROR_INVALID_VALUE, "unknown flags");
}

int main(void)
{
	test_open();
	need(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	need(cuStreamCreate(&other, CU_STREAM_DEFAULT));
	need(cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
	who_waits();
	queries();
	events();
	host_work();
	values();
	async_copies();
	destroy();
	per_thread();
	attributes();
	need(cuDevicePrimaryCtxRelease(dev));
	return tap_done();
}
