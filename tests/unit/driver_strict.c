/* With `strict`, calls wait for kernels that run as those of NVIDIA's driver do: what waits, and what must not. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "driver_test.h"

enum { THREADS = 1024 };

static CUfunction first;
static CUmodule second;
static CUdeviceptr cell;

static CUresult load(void)
{
	CUmodule m;
	return cuModuleLoadData(&m, test_ptx);
}

static CUresult allocate(void)
{
	CUdeviceptr p;
	return cuMemAlloc(&p, 4096);
}

static CUresult pin(void)
{
	static _Alignas(4096) char page[4096];
	return cuMemHostRegister(page, sizeof(page), 0);
}

static CUresult launch_first(void)
{
	CUstream s;
	void *params[] = { &cell, &(uint32_t){ 1 } };
	CUresult r = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	return r ? r : launch(first, 1, 1, s, params);
}

static CUresult copy(void)
{
	static char from[128 << 10];
	static CUdeviceptr to;
	CUstream s;
	CUresult r = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	if (!to)
		return cuMemAlloc(&to, sizeof(from));
	r = r ? r : cuMemcpyHtoDAsync(to, from, sizeof(from), s);
	r = r ? r : cuMemcpyDtoHAsync(from, to, sizeof(from), s);
	return r ? r : cuStreamSynchronize(s);
}

static CUresult compile(void)
{
	CUlinkState s;
	void *cubin;
	size_t n;
	CUresult r = cuLinkCreate(0, NULL, NULL, &s);
	r = r ? r : cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)test_ptx, sizeof(test_ptx), "test", 0, NULL, NULL);
	r = r ? r : cuLinkComplete(s, &cubin, &n);
	return r ? r : cuLinkDestroy(s);
}

static CUresult set(void)
{
	static CUdeviceptr at;
	CUstream s;
	if (!at)
		return cuMemAlloc(&at, 4096);
	CUresult r = cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
	r = r ? r : cuMemsetD8Async(at, 1, 4096, s);
	return r ? r : cuStreamSynchronize(s);
}

struct call {
	CUresult (*fn)(void);
	atomic_bool done;
	CUresult result;
};

static void *run(void *arg)
{
	struct call *c = arg;
	cuCtxSetCurrent(ctx);
	c->result = c->fn();
	atomic_store(&c->done, true);
	return NULL;
}

/* Whether it returns beside a kernel with so many blocks. */
static bool returns(CUresult (*fn)(void), unsigned int blocks, const char *what)
{
	struct call c = { .fn = fn };
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0);
	CUstream s;
	pthread_t thread;
	need(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	void *params[] = { &gate, &p, &(uint32_t){ 1 } };
	need(launch(kernel("wait_set"), blocks, THREADS, s, params));
	sleep_ms(150); /* until its blocks have their places */
	pthread_create(&thread, NULL, run, &c);
	for (int i = 0; i < 30 && !atomic_load(&c.done); i++)
		sleep_ms(5);
	bool came = atomic_load(&c.done);
	gate_set(gate, 1);
	pthread_join(thread, NULL);
	need(cuCtxSynchronize());
	is_int(c.result, 0, "%s: it ends", what);
	return came;
}

int main(void)
{
	setenv("EGPU_SOFTGPU", "sm_90,sms=2,strict", 1);
	test_open();
	need(cuModuleLoadData(&second, test_ptx));
	need(cuModuleGetFunction(&first, second, "set"));
	cell = device_word(0);
	need(copy());
	need(set());
	ok(!returns(load, 1, "load"), "a load waits for a kernel that runs");
	ok(!returns(allocate, 1, "allocate"), "so does memory");
	ok(!returns(pin, 1, "pin"), "and memory of the host that is mapped");
	ok(!returns(launch_first, 1, "first launch"), "and the first launch of a function");
	ok(returns(launch_first, 1, "second launch"), "not the second");
	ok(returns(copy, 4, "copy"), "copies do not, where it fills the device");
	ok(returns(compile, 4, "compile"), "nor does the linker");
	ok(returns(set, 1, "set"), "memory is set where there is room");
	ok(!returns(set, 4, "set"), "and not where there is none");
	return tap_done();
}
