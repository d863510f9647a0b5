/* Memory: allocation, bounds, what a pointer is, host and managed memory, pools. */
#include "driver_test.h"

#include <sys/mman.h>

static void device_memory(void)
{
	CUdeviceptr p, q, base;
	size_t bytes, pitch;
	is_int(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE, "no bytes");
	is_int(cuMemAlloc(NULL, 4), CUDA_ERROR_INVALID_VALUE, "no place for the address");
	is_int(cuMemAlloc(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY, "too many bytes");
	is_int(cuMemAlloc(&p, 1000), 0, "1,000 bytes");
	ok(p % 256 == 0, "aligned to 256");
	is_int(cuMemGetAddressRange(&base, &bytes, p + 999), 0, "the range of its last byte");
	ok(base == p && bytes == 1000, "is the allocation, exactly");
	is_int(cuMemGetAddressRange(&base, &bytes, p + 1000), CUDA_ERROR_NOT_FOUND,
		"one byte further is none");
	is_int(cuMemFree(p + 256), CUDA_ERROR_INVALID_VALUE, "only the base is freed");
	is_int(cuMemFree(p), 0, "free");
	is_int(cuMemFree(p), CUDA_ERROR_INVALID_VALUE, "not twice");
	is_int(cuMemFree(0), 0, "0 is nothing to free");
	is_int(cuMemFree(12345678), CUDA_ERROR_INVALID_VALUE, "no allocation");
	is_int(cuMemAllocPitch(&p, &pitch, 100, 7, 4), 0, "pitched");
	ok(pitch >= 100 && pitch % 512 == 0, "rows are aligned (%zu)", pitch);
	is_int(cuMemAllocPitch(&q, &pitch, 100, 7, 3), CUDA_ERROR_INVALID_VALUE,
		"elements of 3 bytes");
	is_int(cuMemAllocPitch(&q, &pitch, SIZE_MAX - 600, 1000, 4), CUDA_ERROR_OUT_OF_MEMORY,
		"an overflow");
	is_int(cuMemFree(p), 0, "free");
}

static void copies(void)
{
	unsigned char in[1000], out[1000];
	CUdeviceptr p, q;
	for (int i = 0; i < 1000; i++)
		in[i] = (unsigned char)(i * 7);
	need(cuMemAlloc(&p, 1000));
	need(cuMemAlloc(&q, 1000));
	is_int(cuMemcpyHtoD(p, in, 1000), 0, "to the device");
	is_int(cuMemcpyDtoD(q, p, 1000), 0, "within it");
	is_int(cuMemcpyDtoH(out, q, 1000), 0, "and back");
	ok(!memcmp(in, out, 1000), "the bytes are the same");
	is_int(cuMemcpyHtoD(p, in, 1001), CUDA_ERROR_INVALID_VALUE, "one byte too many");
	is_int(cuMemcpyHtoD(p + 1, in, 1000), CUDA_ERROR_INVALID_VALUE, "or from one further");
	is_int(cuMemcpyDtoH(out, p + 999, 2), CUDA_ERROR_INVALID_VALUE, "past the end");
	is_int(cuMemcpyHtoD(p, NULL, 4), CUDA_ERROR_INVALID_VALUE, "from NULL");
	is_int(cuMemcpyHtoD(p, in, 0), 0, "nothing at all");
	is_int(cuMemcpyDtoH(out, 0, 4), CUDA_ERROR_INVALID_VALUE, "from device address 0");
	is_int(cuMemcpyDtoD(p, (CUdeviceptr)(uintptr_t)in, 4), CUDA_ERROR_INVALID_VALUE,
		"host memory is not device memory");
	memset(out, 0, sizeof(out));
	is_int(cuMemcpy((CUdeviceptr)(uintptr_t)out, p, 1000), 0, "the direction found by address");
	ok(!memcmp(in, out, 1000), "device to host");
	is_int(cuMemcpyPeer(q, ctx, p, ctx, 1000), 0, "between contexts");
	is_int(cuMemcpyPeer(q, NULL, p, ctx, 1000), CUDA_ERROR_INVALID_CONTEXT,
		"which have to exist");
	is_int(cuMemFree(p), 0, "free");
	is_int(cuMemcpyDtoH(out, p, 4), CUDA_ERROR_INVALID_VALUE, "freed memory is not read");
	is_int(cuMemFree(q), 0, "free");
}

static void memsets(void)
{
	CUdeviceptr p;
	uint32_t w[64];
	int bad = 0;
	need(cuMemAlloc(&p, sizeof(w)));
	is_int(cuMemsetD8(p, 0xab, sizeof(w)), 0, "bytes");
	is_int(cuMemsetD16(p + 2, 0x1234, 1), 0, "a half word");
	is_int(cuMemsetD32(p + 4, 0xcafe, 2), 0, "words");
	need(cuMemcpyDtoH(w, p, sizeof(w)));
	ok(w[0] == 0x1234abab && w[1] == 0xcafe && w[2] == 0xcafe && w[3] == 0xabababab,
		"each where it belongs");
	is_int(cuMemsetD32(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE, "a word at an odd address");
	is_int(cuMemsetD32(p, 0, 65), CUDA_ERROR_INVALID_VALUE, "too many");
	is_int(cuMemsetD8(p, 0, SIZE_MAX), CUDA_ERROR_INVALID_VALUE, "far too many");
	is_int(cuMemsetD32(p, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE,
		"more than can be counted");
	is_int(cuMemsetD8(p, 0, 0), 0, "none");
	need(cuMemsetD8(p, 0, sizeof(w)));
	is_int(cuMemsetD2D32(p, 64, 7, 4, 4), 0, "a box of 4 by 4 words in rows of 64 bytes");
	need(cuMemcpyDtoH(w, p, sizeof(w)));
	for (int i = 0; i < 64; i++)
		bad += w[i] != (i % 16 < 4 ? 7u : 0u);
	is_int(bad, 0, "the box and nothing else");
	is_int(cuMemsetD2D32(p, 8, 7, 4, 4), CUDA_ERROR_INVALID_VALUE, "rows that overlap");
	is_int(cuMemsetD2D32(p, 64, 7, 4, 5), CUDA_ERROR_INVALID_VALUE, "a row too many");
	is_int(cuMemFree(p), 0, "free");
}

static void boxes(void)
{
	unsigned char in[6][10], out[6][10];
	CUdeviceptr p;
	size_t pitch;
	int bad = 0;
	for (int i = 0; i < 60; i++)
		in[i / 10][i % 10] = (unsigned char)i;
	need(cuMemAllocPitch(&p, &pitch, 10, 6, 4));
	CUDA_MEMCPY2D c = { .srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = in,
		.srcPitch = 10,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = p,
		.dstPitch = pitch,
		.WidthInBytes = 10,
		.Height = 6 };
	is_int(cuMemcpy2D(&c), 0, "two dimensions");
	/* The middle 4 by 3, back to the corner of a cleared buffer. */
	memset(out, 0xee, sizeof(out));
	CUDA_MEMCPY2D b = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = p,
		.srcPitch = pitch,
		.srcXInBytes = 3,
		.srcY = 2,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = out,
		.dstPitch = 10,
		.dstXInBytes = 1,
		.dstY = 1,
		.WidthInBytes = 4,
		.Height = 3 };
	is_int(cuMemcpy2D(&b), 0, "a box out of the middle");
	for (int y = 0; y < 6; y++)
		for (int x = 0; x < 10; x++) {
			bool inside = x >= 1 && x < 5 && y >= 1 && y < 4;
			bad += out[y][x] != (inside ? in[y + 1][x + 2] : 0xee);
		}
	is_int(bad, 0, "the box and nothing else");
	b.Height = 5;
	is_int(cuMemcpy2D(&b), CUDA_ERROR_INVALID_VALUE, "a row that the allocation does not have");
	b.Height = 3;
	b.srcPitch = 6;
	is_int(cuMemcpy2D(&b), CUDA_ERROR_INVALID_VALUE, "a pitch below the width");
	b.srcPitch = pitch;
	b.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	is_int(cuMemcpy2D(&b), CUDA_ERROR_INVALID_HANDLE, "an array that is none");
	b.srcMemoryType = (CUmemorytype)9;
	is_int(cuMemcpy2D(&b), CUDA_ERROR_INVALID_VALUE, "nor a ninth kind of memory");
	b.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	b.WidthInBytes = SIZE_MAX;
	is_int(cuMemcpy2D(&b), CUDA_ERROR_INVALID_VALUE, "an overflow");
	is_int(cuMemcpy2D(NULL), CUDA_ERROR_INVALID_VALUE, "no descriptor");

	CUdeviceptr v;
	uint8_t cube[4][4][4], got[2][2][2];
	for (int i = 0; i < 64; i++)
		((uint8_t *)cube)[i] = (uint8_t)i;
	need(cuMemAlloc(&v, 64));
	need(cuMemcpyHtoD(v, cube, 64));
	CUDA_MEMCPY3D d = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = v,
		.srcPitch = 4,
		.srcHeight = 4,
		.srcXInBytes = 1,
		.srcY = 1,
		.srcZ = 1,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = got,
		.dstPitch = 2,
		.dstHeight = 2,
		.WidthInBytes = 2,
		.Height = 2,
		.Depth = 2 };
	is_int(cuMemcpy3D(&d), 0, "three dimensions");
	bad = 0;
	for (int i = 0; i < 8; i++)
		bad += got[i / 4][i / 2 % 2][i % 2] != cube[1 + i / 4][1 + i / 2 % 2][1 + i % 2];
	is_int(bad, 0, "the cube in the middle");
	d.srcZ = 3;
	is_int(cuMemcpy3D(&d), CUDA_ERROR_INVALID_VALUE, "a plane that is not there");
	need(cuMemFree(v));
	need(cuMemFree(p));
}

static void host_memory(void)
{
	void *h;
	CUdeviceptr d;
	unsigned flags;
	is_int(cuMemHostAlloc(&h, 8192, CU_MEMHOSTALLOC_PORTABLE), 0, "host memory");
	is_int(cuMemHostGetDevicePointer(&d, h, 0), 0, "its device address");
	ok(d == (uintptr_t)h, "is the same");
	is_int(cuMemHostGetFlags(&flags, (char *)h + 100), 0, "its flags");
	is_int(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP,
		"with mapping, which is always on");
	*(uint32_t *)h = 40;
	void *params[] = { &h, &(uint32_t){ 2 } };
	need(launch(kernel("add"), 1, 1, NULL, params));
	need(cuCtxSynchronize());
	is_int(*(uint32_t *)h, 42, "a kernel works on it");
	is_int(cuMemFree((uintptr_t)h), CUDA_ERROR_INVALID_VALUE, "cuMemFree does not free it");
	is_int(cuMemFreeHost(h), 0, "cuMemFreeHost does");
	is_int(cuMemFreeHost(h), CUDA_ERROR_INVALID_VALUE, "once");
	is_int(cuMemHostAlloc(&h, 16, 0x100), CUDA_ERROR_INVALID_VALUE, "unknown flags");
	is_int(cuMemHostAlloc(&h, 0, 0), CUDA_ERROR_INVALID_VALUE, "no bytes");

	char *own = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	is_int(cuMemHostGetDevicePointer(&d, own, 0), CUDA_ERROR_INVALID_VALUE,
		"our own memory is not known");
	is_int(cuMemHostRegister(own, 4096, CU_MEMHOSTREGISTER_DEVICEMAP), 0,
		"until it is registered");
	is_int(cuMemHostRegister(own, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "once");
	is_int(cuMemHostGetDevicePointer(&d, own + 8, 0), 0, "then it has a device address");
	is_int(cuMemHostUnregister(own + 8), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
		"only the base unregisters");
	is_int(cuMemHostUnregister(own), 0, "unregister");
	is_int(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "once");
	munmap(own, 8192);
}

static void pointers(void)
{
	CUdeviceptr p, m, addr;
	void *h;
	unsigned type, managed = 9;
	size_t size;
	CUcontext c;
	int x = 0, ordinal;
	need(cuMemAlloc(&p, 512));
	need(cuMemHostAlloc(&h, 512, 0));
	is_int(cuMemAllocManaged(&m, 512, CU_MEM_ATTACH_GLOBAL), 0, "managed memory");
	*(volatile uint32_t *)(uintptr_t)m = 1;
	void *params[] = { &m, &(uint32_t){ 2 } };
	need(launch(kernel("add"), 1, 1, NULL, params));
	need(cuCtxSynchronize());
	is_int(*(volatile uint32_t *)(uintptr_t)m, 3, "works on both sides");
	is_int(cuMemPrefetchAsync(
		       m, 512, (CUmemLocation){ CU_MEM_LOCATION_TYPE_DEVICE, 0 }, 0, NULL),
		0, "is prefetched");
	is_int(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 5), 0,
		"type of device memory");
	is_int(type, CU_MEMORYTYPE_DEVICE, "is device");
	cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)h);
	is_int(type, CU_MEMORYTYPE_HOST, "of host memory host");
	is_int(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, p), 0, "context");
	ok(c == ctx, "is ours");
	is_int(cuPointerGetAttribute(&addr, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 100), 0,
		"range start");
	cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 100);
	ok(addr == p && size == 512, "and size");
	is_int(cuPointerGetAttribute(&addr, CU_POINTER_ATTRIBUTE_HOST_POINTER, p),
		CUDA_ERROR_INVALID_VALUE, "device memory has no host pointer");
	managed = 0;
	cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, m);
	is_int(managed, 1, "managed memory says so");
	is_int(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&x),
		CUDA_ERROR_INVALID_VALUE, "the stack is none of ours");
	CUpointer_attribute attrs[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	void *data[] = { &type, &ordinal };
	is_int(cuPointerGetAttributes(2, attrs, data, (uintptr_t)&x), 0,
		"asked together that is no error");
	ok(type == 0 && ordinal == -2, "but nothing");
	need(cuMemFree(m));
	need(cuMemFree(p));
	need(cuMemFreeHost(h));
}

static void pools(void)
{
	CUmemoryPool standard, mine, now;
	CUstream s;
	CUdeviceptr p, q;
	uint64_t used;
	need(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	need(cuDeviceGetDefaultMemPool(&standard, 0));
	is_int(cuMemAllocAsync(&p, 1000, s), 0, "in stream order");
	is_int(cuMemsetD8Async(p, 1, 1000, s), 0, "used");
	is_int(cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), 0,
		"the pool knows");
	is_int(used, 1000, "how much is used");
	is_int(cuMemFreeAsync(p, s), 0, "freed");
	is_int(cuMemFreeAsync(p, s), CUDA_ERROR_INVALID_VALUE, "not twice");
	need(cuStreamSynchronize(s));
	cuMemPoolGetAttribute(standard, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
	is_int(used, 0, "nothing is left");
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
		.maxSize = 4096 };
	is_int(cuMemPoolCreate(&mine, &props), 0, "a pool");
	is_int(cuMemAllocFromPoolAsync(&p, 4000, mine, s), 0, "gives memory");
	is_int(cuMemAllocFromPoolAsync(&q, 4000, mine, s), CUDA_ERROR_OUT_OF_MEMORY,
		"up to its size");
	is_int(cuDeviceSetMemPool(0, mine), 0, "made the current one");
	cuDeviceGetMemPool(&now, 0);
	ok(now == mine, "it is");
	is_int(cuMemPoolDestroy(mine), 0, "destroyed");
	cuDeviceGetMemPool(&now, 0);
	ok(now == standard, "the default one takes over");
	is_int(cuMemPoolTrimTo(mine, 0), CUDA_ERROR_INVALID_VALUE, "its handle is dead");
	is_int(cuMemFree(p), 0, "what it gave is still there to free");
	is_int(cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE, "the default one stays");
	need(cuStreamDestroy(s));
}

int main(void)
{
	test_open();
	device_memory();
	copies();
	memsets();
	boxes();
	host_memory();
	pointers();
	pools();
	return tap_done();
}
