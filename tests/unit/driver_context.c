/* Contexts: the stack of each thread, the primary one, what ends and what stays. */
#include <pthread.h>

#include "driver_test.h"

static void stack(void)
{
	CUcontext a, b, c = (CUcontext)1;
	is_int(cuCtxGetCurrent(&c), 0, "current");
	ok(!c, "there is none at first");
	is_int(cuCtxPopCurrent(&c), CUDA_ERROR_INVALID_CONTEXT, "nothing to pop");
	is_int(cuCtxCreate(&a, NULL, 0, 0), 0, "create");
	is_int(cuCtxCreate(&b, NULL, CU_CTX_SCHED_SPIN, 0), 0, "another");
	cuCtxGetCurrent(&c);
	ok(c == b, "the newest is current");
	unsigned flags;
	is_int(cuCtxGetFlags(&flags), 0, "flags");
	is_int(flags, CU_CTX_SCHED_SPIN, "as given");
	is_int(cuCtxPopCurrent(&c), 0, "pop");
	ok(c == b, "gives what was on top");
	cuCtxGetCurrent(&c);
	ok(c == a, "then the one below is current");
	is_int(cuCtxPushCurrent(b), 0, "push");
	is_int(cuCtxSetCurrent(a), 0, "set replaces the top");
	is_int(cuCtxPopCurrent(&c), 0, "pop");
	cuCtxGetCurrent(&c);
	ok(c == a, "what was below is untouched");
	is_int(cuCtxCreate(&c, NULL, 3, 0), CUDA_ERROR_INVALID_VALUE, "two schedules");
	is_int(cuCtxCreate(&c, NULL, 0, 1), CUDA_ERROR_INVALID_DEVICE, "no such device");
	is_int(cuCtxDestroy(b), 0, "destroy one that is not current");
	is_int(cuCtxPushCurrent(b), CUDA_ERROR_INVALID_CONTEXT, "it is gone");
	is_int(cuCtxDestroy(b), CUDA_ERROR_INVALID_CONTEXT, "for good");
	is_int(cuCtxDestroy((CUcontext)&flags), CUDA_ERROR_INVALID_CONTEXT, "no context at all");
	is_int(cuCtxDestroy(a), 0, "destroy the current one");
	cuCtxGetCurrent(&c);
	ok(!c, "none is current");
}

static void *use_it(void *arg)
{
	CUcontext c;
	CUdeviceptr p;
	int *r = arg;
	cuCtxGetCurrent(&c);
	r[0] = c == NULL;
	cuCtxSetCurrent(ctx);
	r[1] = cuMemAlloc(&p, 16);
	r[2] = cuMemFree(p);
	return NULL;
}

static void *wait_in_it(void *arg)
{
	cuCtxSetCurrent(ctx);
	*(int *)arg = cuCtxSynchronize();
	return NULL;
}

static void primary(void)
{
	CUcontext a, b;
	unsigned flags;
	int active, r[3] = { 0 };
	is_int(cuDevicePrimaryCtxGetState(0, &flags, &active), 0, "state");
	is_int(active, 0, "inactive at first");
	is_int(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT, "nothing to release");
	is_int(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_YIELD), 0, "flags for it");
	is_int(cuDevicePrimaryCtxRetain(&a, 0), 0, "retain");
	is_int(cuDevicePrimaryCtxRetain(&b, 0), 0, "twice");
	ok(a == b, "the same context");
	cuDevicePrimaryCtxGetState(0, &flags, &active);
	ok(active && flags == CU_CTX_SCHED_YIELD, "active, with the flags");
	is_int(cuCtxDestroy(a), CUDA_ERROR_INVALID_CONTEXT, "it is not destroyed by cuCtxDestroy");
	ctx = a;
	pthread_t t;
	pthread_create(&t, NULL, use_it, r);
	pthread_join(t, NULL);
	ok(r[0] && !r[1] && !r[2], "another thread starts without and then uses it");
	need(cuCtxSetCurrent(a));
	CUdeviceptr p;
	need(cuMemAlloc(&p, 4));
	is_int(cuDevicePrimaryCtxRelease(0), 0, "release");
	is_int(cuMemFree(p), 0, "one retain is left");
	need(cuMemAlloc(&p, 4));
	is_int(cuDevicePrimaryCtxRelease(0), 0, "release the last");
	is_int(cuMemFree(p), CUDA_ERROR_CONTEXT_IS_DESTROYED, "it is gone, and its memory with it");
	is_int(cuDevicePrimaryCtxRetain(&b, 0), 0, "retain again");
	ok(b == a, "the handle is the same, as on hardware");
	is_int(cuMemAlloc(&p, 4), 0, "and valid where it was current");
	is_int(cuDevicePrimaryCtxReset(0), 0, "reset");
	is_int(cuMemFree(p), CUDA_ERROR_CONTEXT_IS_DESTROYED, "ends it whatever its count");
}

/* What a context owns goes with it. */
static void owned(void)
{
	CUcontext c;
	CUdeviceptr p;
	CUstream s;
	CUevent e;
	CUmodule m;
	CUfunction f;
	size_t before, after, total;
	need(cuCtxCreate(&c, NULL, 0, 0));
	cuMemGetInfo(&before, &total);
	need(cuMemAlloc(&p, 1 << 20));
	need(cuStreamCreate(&s, 0));
	need(cuEventCreate(&e, 0));
	need(cuModuleLoadData(&m, test_ptx));
	need(cuModuleGetFunction(&f, m, "set"));
	cuMemGetInfo(&after, &total);
	ok(after < before, "an allocation lessens what is free");
	need(cuCtxDestroy(c));
	need(cuCtxCreate(&c, NULL, 0, 0));
	cuMemGetInfo(&after, &total);
	ok(after == before, "all is free again");
	is_int(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE, "the stream is gone");
	is_int(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE, "the event too");
	is_int(cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE, "the module too");
	int v;
	is_int(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, f), CUDA_ERROR_INVALID_HANDLE,
		"and its functions");
	is_int(cuMemFree(p), CUDA_ERROR_INVALID_VALUE, "and the memory");
	need(cuCtxDestroy(c));
}

/* A context that ends while another thread waits in it. */
static void ends_under_a_waiter(void)
{
	need(cuCtxCreate(&ctx, NULL, 0, 0));
	need(cuModuleLoadData(&module, test_ptx));
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0);
	need(launch_gated(gate, p, 1, NULL));
	pthread_t t;
	int r = -1;
	pthread_create(&t, NULL, wait_in_it, &r);
	sleep_ms(20);
	gate_set(gate, 1);
	is_int(cuCtxDestroy(ctx), 0, "destroyed with a waiter inside");
	pthread_join(t, NULL);
	ok(r == 0 || r == CUDA_ERROR_INVALID_CONTEXT || r == CUDA_ERROR_CONTEXT_IS_DESTROYED,
		"who returns (%d)", r);
}

static void properties(void)
{
	CUcontext c;
	size_t v;
	unsigned version;
	int least, greatest;
	unsigned long long id;
	need(cuCtxCreate(&c, NULL, 0, 0));
	is_int(cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE), 0, "stack limit");
	is_int(v, 1024, "its default");
	is_int(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), 0, "set");
	cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE);
	is_int(v, 4096, "and read back");
	is_int(cuCtxGetLimit(&v, (CUlimit)99), CUDA_ERROR_UNSUPPORTED_LIMIT, "no such limit");
	is_int(cuCtxGetApiVersion(c, &version), 0, "api version");
	is_int(cuCtxGetStreamPriorityRange(&least, &greatest), 0, "priorities");
	ok(least == 0 && greatest < 0, "smaller is more urgent");
	is_int(cuCtxGetId(c, &id), 0, "id");
	ok(id > 0, "is positive");
	need(cuCtxDestroy(c));
	is_int(cuCtxGetLimit(&v, CU_LIMIT_STACK_SIZE), CUDA_ERROR_INVALID_CONTEXT,
		"no context, no limit");
}

int main(void)
{
	need(cuInit(0));
	stack();
	primary();
	cuCtxSetCurrent(NULL);
	owned();
	ends_under_a_waiter();
	properties();
	return tap_done();
}
