/* Many threads at once: every call from everywhere, and the counts still come out exact. */
#include <pthread.h>

#include "driver_test.h"

enum { THREADS = 8, ROUNDS = 60 };

static CUdeviceptr total;
static CUlibrary library;

static void own_work(unsigned round)
{
	CUstream s;
	CUevent e;
	CUdeviceptr p;
	CUmodule m;
	CUfunction f;
	uint32_t v = 0, *host;
	need(cuStreamCreate(&s, round & 1 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
	need(cuEventCreate(&e, 0));
	need(cuMemAllocAsync(&p, 4, s));
	need(cuMemHostAlloc((void **)&host, 4, 0));
	need(cuMemsetD32Async(p, round, 1, s));
	need(cuModuleLoadData(&m, test_ptx));
	need(cuModuleGetFunction(&f, m, "add"));
	void *params[] = { &p, &(uint32_t){ 1 } }, *shared[] = { &total, &(uint32_t){ 1 } };
	need(launch(f, 2, 32, s, params));
	need(launch(f, 1, 1, s, shared));
	need(cuEventRecord(e, s));
	need(cuMemcpyDtoHAsync(host, p, 4, s));
	if (round % 6 == 0)
		need(cuMemcpyDtoH(&v, p, 4)); /* the legacy stream, waits for the blocking one */
	need(cuStreamSynchronize(s));
	if (*host != round + 64)
		printf("not ok - round %u gave %u\n", round, *host);
	need(cuMemFreeAsync(p, s));
	need(cuEventDestroy(e));
	need(cuStreamDestroy(s));
	need(cuModuleUnload(m));
	need(cuMemFreeHost(host));
}

static void *worker(void *arg)
{
	CUkernel k;
	void *params[] = { &total, &(uint32_t){ 1 } };
	need(cuCtxSetCurrent(ctx));
	for (unsigned i = 0; i < ROUNDS; i++) {
		own_work(i);
		need(cuLibraryGetKernel(&k, library, "add"));
		need(cuLaunchKernel_ptsz((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	}
	need(cuStreamSynchronize_ptsz(NULL));
	return NULL;
}

/* Contexts of their own, beside the shared one. */
static void *loner(void *arg)
{
	for (unsigned i = 0; i < ROUNDS / 4; i++) {
		CUcontext c;
		need(cuCtxCreate(&c, NULL, 0, dev));
		own_work(i * 2 + 1);
		need(cuCtxDestroy(c));
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	test_open();
	total = device_word(0);
	need(cuLibraryLoadData(&library, test_ptx, NULL, NULL, 0, NULL, NULL, 0));
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, i < THREADS - 2 ? worker : loner, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	need(cuCtxSynchronize());
	is_int(read_word(total), (THREADS - 2) * ROUNDS * 2 + 2 * (ROUNDS / 4),
		"every launch of every thread counted once");
	need(cuLibraryUnload(library));
	need(cuMemFree(total));
	need(cuModuleUnload(module));
	is_int(cuDevicePrimaryCtxRelease(dev), 0, "and all of it ends");
	return tap_done();
}
