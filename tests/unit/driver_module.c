/* Modules and libraries: what loads, what is found in it, and who owns it. */
#include "driver_test.h"

static void look_ups(void)
{
	CUmodule m;
	CUfunction f, list[16];
	CUdeviceptr p;
	size_t bytes, offset;
	unsigned n;
	const char *name;
	uint32_t w[3];
	is_int(cuModuleGetFunctionCount(&n, module), 0, "functions");
	is_int(n, 7, "seven");
	is_int(cuModuleEnumerateFunctions(list, 16, module), 0, "all of them");
	is_int(cuFuncGetName(&name, list[0]), 0, "name of the first");
	is_str(name, "set", "is the first in the text");
	is_int(cuModuleGetFunction(&f, module, "nothing"), CUDA_ERROR_NOT_FOUND,
		"no such function");
	is_int(cuModuleGetFunction(&f, module, ""), CUDA_ERROR_NOT_FOUND, "nor one without a name");
	is_int(cuModuleGetFunction(&f, module, NULL), CUDA_ERROR_INVALID_VALUE, "nor NULL");
	is_int(cuModuleGetFunction(&f, (CUmodule)ctx, "set"), CUDA_ERROR_INVALID_HANDLE,
		"a context is no module");
	is_int(cuModuleGetFunction(&f, module, "mixed"), 0, "one with parameters");
	is_int(cuFuncGetModule(&m, f), 0, "its module");
	ok(m == module, "is this one");
	static const size_t want[5][2] = { { 0, 1 }, { 8, 8 }, { 16, 2 }, { 20, 4 }, { 24, 8 } };
	for (size_t i = 0; i < 5; i++) {
		need(cuFuncGetParamInfo(f, i, &offset, &bytes));
		ok(offset == want[i][0] && bytes == want[i][1], "parameter %zu at %zu, %zu bytes",
			i, offset, bytes);
	}
	is_int(cuFuncGetParamInfo(f, 5, &offset, &bytes), CUDA_ERROR_INVALID_VALUE, "no sixth");
	is_int(cuModuleGetGlobal(&p, &bytes, module, "counter"), 0, "a variable");
	is_int(bytes, 4, "of four bytes");
	is_int(read_word(p), 5, "initialised");
	is_int(cuModuleGetGlobal(NULL, &bytes, module, "table"), 0, "a constant, its size alone");
	is_int(bytes, 12, "three words");
	is_int(cuModuleGetGlobal(&p, NULL, module, "table"), 0, "its address alone");
	need(cuMemcpyDtoH(w, p, 12));
	ok(w[0] == 1 && w[1] == 2 && w[2] == 3, "its values");
	is_int(cuModuleGetGlobal(&p, &bytes, module, "set"), CUDA_ERROR_NOT_FOUND,
		"a function is no variable");
}

static void attributes(void)
{
	CUfunction f = kernel("shared");
	int v;
	is_int(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f), 0, "threads");
	is_int(v, 1024, "a full block");
	cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f);
	is_int(v, 48 << 10, "48 KiB of shared memory without asking");
	is_int(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448), 0,
		"227 KiB when asked");
	is_int(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449),
		CUDA_ERROR_INVALID_VALUE, "not a byte more");
	is_int(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 10), CUDA_ERROR_INVALID_VALUE,
		"registers are what they are");
	is_int(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_PTX_VERSION, f), 0, "PTX version");
	is_int(v, 75, "sm_75");
	is_int(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f), 0, "binary version");
	is_int(v, 90, "that of the device");
	is_int(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_MAX, f), CUDA_ERROR_INVALID_VALUE,
		"no further attribute");
	is_int(cuFuncGetAttribute(&v, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL), CUDA_ERROR_INVALID_HANDLE,
		"of no function");
	is_int(cuFuncSetCacheConfig(f, CU_FUNC_CACHE_PREFER_L1), 0, "cache preference");
	need(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 48 << 10));
	int blocks, threads;
	is_int(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, 0), 0, "occupancy");
	is_int(blocks, 8, "8 blocks of 256 threads");
	is_int(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, f, NULL, 0, 0), 0,
		"best block size");
	is_int(threads, 1024, "the largest that fills the SM");
	size_t dynamic;
	is_int(cuOccupancyAvailableDynamicSMemPerBlock(&dynamic, f, 2, 256), 0,
		"shared memory for two blocks an SM");
	need(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 256, dynamic));
	is_int(blocks, 2, "lets two fit (%zu bytes)", dynamic);
}

static CUresult load(const char *text, char *log, size_t room, size_t *written)
{
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_MAX_REGISTERS };
	void *values[] = { log, (void *)(uintptr_t)room, (void *)(uintptr_t)32 };
	CUmodule m = NULL;
	CUresult r = cuModuleLoadDataEx(&m, text, 3, options, values);
	*written = (size_t)(uintptr_t)values[1];
	if (!r)
		cuModuleUnload(m);
	return r;
}

static void bad_images(void)
{
	static const char nothing[64];
	char log[256], small[8];
	size_t n;
	CUmodule m;
	is_int(load(PTX_HEAD ".visible .entry k() { ret; }", log, sizeof(log), &n), 0,
		"a kernel that does nothing");
	is_int(n, 0, "no complaint");
	is_int(load(PTX_HEAD ".visible .entry k() {\n ret;\n", log, sizeof(log), &n),
		CUDA_ERROR_INVALID_PTX, "a body without an end");
	ok(n > 0 && strlen(log) == n && strstr(log, "line"), "the log says where: %.*s",
		(int)strcspn(log, "\n"), log);
	is_int(load(PTX_HEAD ".visible .entry k() {\n ret;\n", small, sizeof(small), &n),
		CUDA_ERROR_INVALID_PTX, "with a small log");
	ok(n == 7 && strlen(small) == 7, "it is cut");
	is_int(load(PTX_HEAD ".visible .entry k() { mov.u32 %r1, 1; ret; }", log, sizeof(log), &n),
		CUDA_ERROR_INVALID_PTX, "a register that was not declared");
	is_int(load(".version 7.8\n.target sm_100\n.address_size 64\n.visible .entry k() { ret; }",
		       log, sizeof(log), &n),
		CUDA_ERROR_NO_BINARY_FOR_GPU, "code for a newer device");
	is_int(cuModuleLoadData(&m, "this is no image"), CUDA_ERROR_INVALID_IMAGE,
		"text that is no PTX");
	is_int(cuModuleLoadData(&m, nothing), CUDA_ERROR_INVALID_IMAGE, "nothing");
	is_int(cuModuleLoadData(&m, NULL), CUDA_ERROR_INVALID_VALUE, "NULL");
	is_int(cuModuleLoadData(&m, (void *)16), CUDA_ERROR_INVALID_IMAGE,
		"memory that is not there");
	is_int(cuModuleLoadData(NULL, test_ptx), CUDA_ERROR_INVALID_VALUE,
		"no place for the handle");
	is_int(cuModuleLoad(&m, "/nonexistent/file"), CUDA_ERROR_FILE_NOT_FOUND, "no file");
	is_int(cuModuleLoad(&m, "/"), CUDA_ERROR_INVALID_IMAGE, "a directory");
	CUjit_option unknown[] = { (CUjit_option)77 };
	void *values[] = { NULL };
	is_int(cuModuleLoadDataEx(&m, test_ptx, 1, unknown, values), CUDA_ERROR_INVALID_VALUE,
		"an unknown option");
	is_int(cuModuleLoadDataEx(&m, test_ptx, 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE,
		"options that are not there");
}

static void files(void)
{
	char path[] = "/tmp/egpu-driver-XXXXXX";
	int fd = mkstemp(path);
	CUmodule m;
	CUlibrary lib;
	ok(fd >= 0 && write(fd, test_ptx, strlen(test_ptx)) == (ssize_t)strlen(test_ptx),
		"a file of PTX");
	is_int(cuModuleLoad(&m, path), 0, "loads as a module");
	is_int(cuModuleUnload(m), 0, "and goes");
	is_int(cuLibraryLoadFromFile(&lib, path, NULL, NULL, 0, NULL, NULL, 0), 0,
		"and as a library");
	is_int(cuLibraryUnload(lib), 0, "that goes too");
	close(fd);
	unlink(path);
}

/* Unloading waits for what runs, and only for that. */
static void unload(void)
{
	CUmodule m;
	CUfunction f;
	CUstream s;
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0), q = device_word(0);
	need(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	need(cuModuleLoadData(&m, test_ptx));
	need(cuModuleGetFunction(&f, m, "set"));
	need(launch_gated(gate, p, 1, s));
	void *params[] = { &q, &(uint32_t){ 3 } };
	CUstream t;
	need(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	need(launch(f, 1, 1, t, params));
	is_int(cuModuleUnload(m), 0, "unloaded while another module's kernel runs");
	gate_set(gate, 1);
	need(cuCtxSynchronize());
	is_int(read_word(q), 3, "its own kernel had run");
	is_int(launch(f, 1, 1, NULL, params), CUDA_ERROR_INVALID_HANDLE, "its functions are dead");
	is_int(cuModuleUnload(m), CUDA_ERROR_INVALID_HANDLE, "and so is its handle");
	need(cuStreamDestroy(s));
	need(cuStreamDestroy(t));
}

static void libraries(void)
{
	CUlibrary lib, back;
	CUkernel k, all[16];
	CUfunction f, g;
	CUmodule m;
	CUdeviceptr p = device_word(0), v;
	CUcontext second;
	size_t bytes;
	unsigned n;
	int value;
	const char *name;
	CUcontext none;
	need(cuCtxPopCurrent(&none));
	is_int(cuLibraryLoadData(&lib, test_ptx, NULL, NULL, 0, NULL, NULL, 0), 0,
		"a library, without a context");
	is_int(cuLibraryGetKernelCount(&n, lib), 0, "kernels");
	is_int(n, 7, "seven");
	is_int(cuLibraryEnumerateKernels(all, 16, lib), 0, "all of them");
	is_int(cuLibraryGetKernel(&k, lib, "add"), 0, "one");
	is_int(cuLibraryGetKernel(&k, lib, "none"), CUDA_ERROR_NOT_FOUND, "not another");
	need(cuLibraryGetKernel(&k, lib, "add"));
	is_int(cuKernelGetName(&name, k), 0, "its name");
	is_str(name, "add", "as asked");
	is_int(cuKernelGetLibrary(&back, k), 0, "its library");
	ok(back == lib, "this one");
	is_int(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k, 0), 0,
		"an attribute");
	is_int(value, 1024, "before it is anywhere");
	is_int(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000, k, 0),
		0, "set one");
	is_int(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, k, 3),
		CUDA_ERROR_INVALID_DEVICE, "on another device");
	is_int(cuKernelGetFunction(&f, k), CUDA_ERROR_INVALID_CONTEXT,
		"no function without a context");
	need(cuCtxPushCurrent(ctx));
	void *params[] = { &p, &(uint32_t){ 2 } };
	is_int(launch((CUfunction)k, 3, 5, NULL, params), 0, "launched by its kernel handle");
	need(cuCtxSynchronize());
	is_int(read_word(p), 30, "15 threads added 2");
	is_int(cuKernelGetFunction(&f, k), 0, "its function here");
	need(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
	is_int(value, 100000, "has the attribute that was set before");
	need(launch(f, 1, 1, NULL, params));
	is_int(cuLibraryGetModule(&m, lib), 0, "its module here");
	need(cuModuleGetFunction(&g, m, "add"));
	ok(f == g, "has the same function");
	is_int(cuModuleUnload(m), CUDA_ERROR_NOT_PERMITTED, "but is not unloaded by itself");
	is_int(cuLibraryGetGlobal(&v, &bytes, lib, "counter"), 0, "a variable");
	need(cuMemsetD32(v, 77, 1));
	/* A second context has variables of its own. */
	need(cuCtxCreate(&second, NULL, 0, 0));
	CUdeviceptr w;
	need(cuLibraryGetGlobal(&w, NULL, lib, "counter"));
	ok(v != w && read_word(w) == 5, "another context has its own");
	need(cuKernelGetFunction(&g, k));
	ok(f != g, "and its own function");
	need(cuCtxDestroy(second));
	is_int(read_word(v), 77, "the first one's is untouched");
	is_int(cuLibraryUnload(lib), 0, "unload");
	is_int(launch((CUfunction)k, 1, 1, NULL, params), CUDA_ERROR_INVALID_HANDLE,
		"the kernel is gone");
	is_int(cuKernelGetName(&name, k), CUDA_ERROR_INVALID_HANDLE, "so is its name");
	is_int(cuLibraryUnload(lib), CUDA_ERROR_INVALID_HANDLE, "not twice");
	is_int(cuMemcpyDtoH(&value, v, 4), CUDA_ERROR_INVALID_VALUE, "its variables are gone");
	is_int(cuLibraryLoadData(&lib, "garbage", NULL, NULL, 0, NULL, NULL, 0),
		CUDA_ERROR_INVALID_IMAGE, "no library");
}

int main(void)
{
	test_open();
	look_ups();
	attributes();
	bad_images();
	files();
	unload();
	libraries();
	need(cuDevicePrimaryCtxRelease(dev));
	return tap_done();
}
