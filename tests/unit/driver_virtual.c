/* Virtual memory calls, memory between processes, arrays, several devices. */
#include <sys/wait.h>

#include "driver_test.h"

static void mapped(void)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 },
		CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle a, b, other;
	CUdeviceptr range, again;
	size_t grain;
	unsigned long long flags;
	need(cuMemGetAllocationGranularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	is_int(cuMemCreate(&a, grain + 1, &prop, 0), CUDA_ERROR_INVALID_VALUE, "not a multiple");
	need(cuMemCreate(&a, grain, &prop, 0));
	need(cuMemCreate(&b, grain, &prop, 0));
	need(cuMemAddressReserve(&range, 4 * grain, 0, 0, 0));
	is_int(cuMemMap(range + 4 * grain, grain, 0, a, 0), CUDA_ERROR_INVALID_VALUE,
		"beyond the reservation");
	need(cuMemMap(range, grain, 0, a, 0));
	need(cuMemMap(range + grain, grain, 0, b, 0));
	is_int(cuMemMap(range, grain, 0, b, 0), CUDA_ERROR_INVALID_VALUE, "twice");
	is_int(cuMemsetD32(range, 1, 1), CUDA_ERROR_INVALID_VALUE, "no access yet");
	need(cuMemSetAccess(range, 2 * grain, &access, 1));
	need(cuMemGetAccess(&flags, &access.location, range + grain));
	is_int((long)flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access");
	void *params[] = { &range, &(uint32_t){ 77 } };
	need(launch(kernel("set"), 1, 1, NULL, params));
	need(cuMemsetD32(range + grain, 88, grain / 4));
	is_int(read_word(range), 77, "a kernel writes to it");
	is_int(read_word(range + 2 * grain - 4), 88, "and a memset, to its end");

	/* the same memory at a second place */
	need(cuMemAddressReserve(&again, grain, 0, 0, 0));
	need(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)range));
	ok(other == a, "the handle of an address");
	need(cuMemMap(again, grain, 0, a, 0));
	need(cuMemSetAccess(again, grain, &access, 1));
	is_int(read_word(again), 77, "one memory, two addresses");
	int fd;
	need(cuMemExportToShareableHandle(&fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	need(cuMemUnmap(again, grain));
	need(cuMemImportFromShareableHandle(
		&other, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	need(cuMemMap(again, grain, 0, other, 0));
	need(cuMemSetAccess(again, grain, &access, 1));
	is_int(read_word(again), 77, "through a file descriptor too");
	is_int(cuMemAddressFree(again, grain), CUDA_ERROR_INVALID_VALUE, "not while it is mapped");
	need(cuMemUnmap(again, grain));
	need(cuMemAddressFree(again, grain));
	need(cuMemRelease(other));
	need(cuMemRelease(a));
	need(cuMemRelease(a));
	need(cuMemRelease(b));
	is_int(read_word(range), 77, "a mapping keeps released memory");
	need(cuMemUnmap(range, 2 * grain));
	is_int(cuMemRelease(b), CUDA_ERROR_INVALID_VALUE, "which then goes");
	is_int(cuMemsetD32(range, 1, 1), CUDA_ERROR_INVALID_VALUE, "unmapped");
	need(cuMemAddressFree(range, 4 * grain));
}

/* The child starts a driver of its own: it is forked before this process has one. */
static int child(int in, int out)
{
	CUipcMemHandle h;
	CUdeviceptr p;
	if (read(in, &h, sizeof(h)) != sizeof(h))
		return 10;
	test_open();
	if (cuIpcOpenMemHandle(&p, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
		return 11;
	if (read_word(p) != 41 || read_word(p + 996) != 42)
		return 12;
	void *params[] = { &p, &(uint32_t){ 43 } };
	if (launch(kernel("add"), 1, 32, NULL, params) || cuCtxSynchronize())
		return 13;
	if (cuIpcCloseMemHandle(p) || cuIpcCloseMemHandle(p) != CUDA_ERROR_INVALID_VALUE)
		return 14;
	char c = 1;
	return write(out, &c, 1) != 1;
}

static void processes(int to, int from, pid_t pid)
{
	CUdeviceptr before = device_word(7), p, after;
	CUipcMemHandle h;
	char c;
	int status;
	need(cuMemAlloc(&p, 1000));
	after = device_word(8);
	need(cuMemsetD32(p, 41, 1));
	need(cuMemsetD32(p + 996, 42, 1));
	need(cuIpcGetMemHandle(&h, p));
	CUdeviceptr own;
	is_int(cuIpcOpenMemHandle(&own, h, 0), CUDA_ERROR_INVALID_CONTEXT,
		"not in the same process");
	is_int((long)write(to, &h, sizeof(h)), sizeof(h), "the handle goes to another process");
	is_int((long)read(from, &c, 1), 1, "it has used the memory");
	waitpid(pid, &status, 0);
	is_int(status, 0, "as it should");
	is_int(read_word(p), 41 + 32 * 43, "its kernel's sums are here");
	ok(read_word(before) == 7 && read_word(after) == 8, "neighbours are as they were");
	need(cuMemFree(p));
	memset(&h, 0x5a, sizeof(h));
	is_int(cuIpcOpenMemHandle(&own, h, 0), CUDA_ERROR_INVALID_VALUE, "an invented handle");
}

static void arrays(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = 5, .Height = 4, .Depth = 3, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2
	};
	float in[3][4][10], out[3][4][10] = { { { 0 } } };
	CUarray a;
	for (int i = 0; i < 120; i++)
		(&in[0][0][0])[i] = (float)i;
	need(cuArray3DCreate(&a, &d));
	CUDA_MEMCPY3D c = { .srcMemoryType = CU_MEMORYTYPE_HOST,
		.srcHost = in,
		.srcPitch = 40,
		.srcHeight = 4,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstArray = a,
		.WidthInBytes = 40,
		.Height = 4,
		.Depth = 3 };
	need(cuMemcpy3D(&c));
	CUDA_MEMCPY3D back = { .srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.srcArray = a,
		.srcXInBytes = 8,
		.srcY = 1,
		.srcZ = 2,
		.dstMemoryType = CU_MEMORYTYPE_HOST,
		.dstHost = out,
		.dstPitch = 40,
		.dstHeight = 4,
		.WidthInBytes = 16,
		.Height = 2,
		.Depth = 1 };
	need(cuMemcpy3D(&back));
	ok(out[0][0][0] == in[2][1][2] && out[0][1][3] == in[2][2][5] && !out[0][0][4],
		"a box of an array");
	back.Depth = 2;
	is_int(cuMemcpy3D(&back), CUDA_ERROR_INVALID_VALUE, "not beyond its end");
	CUDA_ARRAY3D_DESCRIPTOR got;
	need(cuArray3DGetDescriptor(&got, a));
	ok(got.Width == 5 && got.Depth == 3 && got.NumChannels == 2, "its description");
	need(cuArrayDestroy(a));
	is_int(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE, "destroyed once");
	d.NumChannels = 3;
	is_int(cuArray3DCreate(&a, &d), CUDA_ERROR_INVALID_VALUE, "three channels do not exist");
	CUmipmappedArray m;
	CUarray level;
	d = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = 16, .Height = 8, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 4
	};
	need(cuMipmappedArrayCreate(&m, &d, 10));
	need(cuMipmappedArrayGetLevel(&level, m, 4));
	need(cuArray3DGetDescriptor(&got, level));
	ok(got.Width == 1 && got.Height == 1, "the last level");
	is_int(cuMipmappedArrayGetLevel(&level, m, 5), CUDA_ERROR_INVALID_VALUE, "is the last");
	need(cuMipmappedArrayDestroy(m));
	CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_LINEAR };
	CUDA_TEXTURE_DESC t = { .flags = CU_TRSF_READ_AS_INTEGER }, t2;
	CUtexObject tex;
	CUdeviceptr p;
	need(cuMemAlloc(&p, 400));
	r.res.linear.devPtr = p;
	r.res.linear.format = CU_AD_FORMAT_SIGNED_INT32;
	r.res.linear.numChannels = 1;
	r.res.linear.sizeInBytes = 404;
	is_int(cuTexObjectCreate(&tex, &r, &t, NULL), CUDA_ERROR_INVALID_VALUE,
		"a buffer that is too small");
	r.res.linear.sizeInBytes = 400;
	need(cuTexObjectCreate(&tex, &r, &t, NULL));
	need(cuTexObjectGetTextureDesc(&t2, tex));
	is_int(t2.flags, CU_TRSF_READ_AS_INTEGER, "a texture says what it is");
	need(cuTexObjectDestroy(tex));
	is_int(cuTexObjectDestroy(tex), CUDA_ERROR_INVALID_HANDLE, "destroyed once");
	need(cuMemFree(p));
}

static void devices(void)
{
	int n, can;
	CUdevice second, got;
	CUcontext c;
	CUdeviceptr here = device_word(5), there;
	char bus[32];
	size_t free1, free2, total;
	need(cuDeviceGetCount(&n));
	is_int(n, 2, "two devices");
	need(cuDeviceGet(&second, 1));
	is_int(cuDeviceGet(&got, 2), CUDA_ERROR_INVALID_DEVICE, "no third");
	need(cuDeviceGetPCIBusId(bus, sizeof(bus), second));
	need(cuDeviceGetByPCIBusId(&got, bus));
	is_int(got, 1, "each has an address");
	need(cuDeviceCanAccessPeer(&can, 0, 1));
	is_int(can, 1, "they reach each other");
	need(cuDevicePrimaryCtxRetain(&c, second));
	ok(c != ctx, "each has a context");
	need(cuCtxPushCurrent(c));
	need(cuCtxGetDevice(&got));
	is_int(got, 1, "of its own");
	need(cuMemGetInfo(&free1, &total));
	need(cuMemAlloc(&there, 1 << 20));
	need(cuMemGetInfo(&free2, &total));
	is_int((long)(free1 - free2), 1 << 20, "and memory of its own");
	is_int(cuMemAlloc(&there, total + 1), CUDA_ERROR_OUT_OF_MEMORY, "with an end");
	CUmodule m;
	CUfunction f;
	need(cuModuleLoadData(&m, test_ptx));
	need(cuModuleGetFunction(&f, m, "add"));
	is_int(cuCtxEnablePeerAccess(ctx, 0), 0, "peer access");
	is_int(cuCtxEnablePeerAccess(ctx, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "once");
	void *params[] = { &here, &(uint32_t){ 6 } };
	need(launch(f, 1, 1, NULL, params));
	need(cuCtxSynchronize());
	int ordinal = -1;
	need(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, here));
	is_int(ordinal, 0, "whose memory it is");
	need(cuMemcpyPeer(there, c, here, ctx, 4));
	is_int(read_word(there), 11,
		"a kernel of one device in memory of the other, and a copy back");
	need(cuCtxPopCurrent(NULL));
	need(cuDevicePrimaryCtxRelease(second));
	is_int(read_word(here), 11, "the first goes on when the second has gone");
}

int main(void)
{
	int to[2], from[2];
	setenv("EGPU_SOFTGPU", "devices=2,memory=64M", 1);
	if (pipe(to) || pipe(from))
		return 1;
	fflush(stdout);
	pid_t pid = fork();
	if (!pid)
		_exit(child(to[0], from[1]));
	test_open();
	processes(to[1], from[0], pid);
	mapped();
	arrays();
	devices();
	return tap_done();
}
