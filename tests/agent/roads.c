/* Every way in which a program loads a kernel ends in an exact count, and the session says where
 * its PTX was. */
#include "fatbin_build.h"
#include "harness.h"

enum { N = 300, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS, LAUNCHES = 3 };

static const char text[] = PTX_HEAD PTX_FILL("fill");
static const char *const names[] = { "fill" };

/* -- images ---------------------------------------------------------------------- */

static struct buf region(uint64_t flags)
{
	struct build_entry e = { .kind = FATBIN_KIND_PTX,
		.sm = 75,
		.flags = flags,
		.data = text,
		.bytes = sizeof(text) };
	struct buf b = { 0 };
	build_region(&b, &e, 1);
	return b;
}

struct wrapper {
	uint32_t magic, version;
	const void *data, *aux;
};

static const char *write_temp(const void *data, size_t n)
{
	static char path[64];
	snprintf(path, sizeof(path), "/tmp/egpu-roads-%d", (int)getpid());
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (write(fd, data, n) != (ssize_t)n)
		exit(98);
	close(fd);
	return path;
}

/* -- use --------------------------------------------------------------------------- */

static int use(CUfunction fn)
{
	CUdeviceptr buf;
	uint32_t add = 3, n = N;
	CU(cuMemAlloc(&buf, N * 4));
	void *params[] = { &buf, &add, &n };
	for (int i = 0; i < LAUNCHES; i++)
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	return check_fill(buf, add, N);
}

static int use_module(CUmodule mod)
{
	CUfunction fn;
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	return use(fn);
}

static int load_data(const void *image)
{
	CUmodule mod;
	target_context();
	CU(cuModuleLoadData(&mod, image));
	return use_module(mod);
}

static int data(void)
{
	return load_data(text);
}

static int data_ex(void)
{
	CUmodule mod;
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *value = (void *)(uintptr_t)64;
	target_context();
	CU(cuModuleLoadDataEx(&mod, text, 1, &option, &value));
	return use_module(mod);
}

static int fatbin_raw(void)
{
	return load_data(region(0x11).data);
}

static int fatbin_lz4(void)
{
	return load_data(region(0x2011).data);
}

static int fatbin_zstd(void)
{
	return load_data(region(0x8011).data);
}

static int wrapped(void)
{
	struct wrapper w = { FATBIN_WRAPPER_MAGIC, 1, region(0x8011).data, NULL };
	return load_data(&w);
}

static int fat_binary(void)
{
	CUmodule mod;
	target_context();
	CU(cuModuleLoadFatBinary(&mod, region(0x2011).data));
	return use_module(mod);
}

static int cubin(void)
{
	struct buf b = { 0 };
	build_cubin(&b, 90, names, 1, text);
	return load_data(b.data);
}

static int file(void)
{
	CUmodule mod;
	const char *path = write_temp(text, sizeof(text) - 1);
	target_context();
	CU(cuModuleLoad(&mod, path));
	unlink(path);
	return use_module(mod);
}

static int linked(void)
{
	CUlinkState state;
	CUmodule mod;
	void *out;
	size_t bytes;
	target_context();
	CU(cuLinkCreate(0, NULL, NULL, &state));
	CU(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, sizeof(text), "a.ptx", 0,
		NULL, NULL));
	CU(cuLinkComplete(state, &out, &bytes));
	CU(cuModuleLoadData(&mod, out));
	CU(cuLinkDestroy(state));
	return use_module(mod);
}

static int linked_file(void)
{
	CUlinkState state;
	CUmodule mod;
	void *out;
	size_t bytes;
	const char *path = write_temp(text, sizeof(text) - 1);
	target_context();
	CU(cuLinkCreate(0, NULL, NULL, &state));
	CU(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
	CU(cuLinkComplete(state, &out, &bytes));
	unlink(path);
	CU(cuModuleLoadData(&mod, out));
	CU(cuLinkDestroy(state));
	return use_module(mod);
}

static CUlibrary load_library(void)
{
	CUlibrary lib;
	struct wrapper w = { FATBIN_WRAPPER_MAGIC, 1, region(0x8011).data, NULL };
	CU(cuLibraryLoadData(&lib, &w, NULL, NULL, 0, NULL, NULL, 0));
	return lib;
}

/* As the CUDA runtime does: the kernel's handle itself is launched. */
static int library_kernel(void)
{
	CUkernel kernel;
	target_context();
	CU(cuLibraryGetKernel(&kernel, load_library(), "fill"));
	return use((CUfunction)kernel);
}

/* The library comes before any context. */
static int library_early(void)
{
	CUkernel kernel;
	CU(cuInit(0));
	CUlibrary lib = load_library();
	CU(cuLibraryGetKernel(&kernel, lib, "fill"));
	target_context();
	return use((CUfunction)kernel);
}

static int library_function(void)
{
	CUkernel kernel;
	CUfunction fn;
	target_context();
	CU(cuLibraryGetKernel(&kernel, load_library(), "fill"));
	CU(cuKernelGetFunction(&fn, kernel));
	return use(fn);
}

static int library_module(void)
{
	CUmodule mod;
	target_context();
	CU(cuLibraryGetModule(&mod, load_library()));
	return use_module(mod);
}

static int library_file(void)
{
	CUlibrary lib;
	CUkernel kernel;
	struct buf b = region(0x2011);
	const char *path = write_temp(b.data, b.len);
	target_context();
	CU(cuLibraryLoadFromFile(&lib, path, NULL, NULL, 0, NULL, NULL, 0));
	unlink(path);
	CU(cuLibraryGetKernel(&kernel, lib, "fill"));
	return use((CUfunction)kernel);
}

static int enumerated(void)
{
	CUmodule mod;
	CUfunction fn;
	target_context();
	CU(cuModuleLoadData(&mod, text));
	CU(cuModuleEnumerateFunctions(&fn, 1, mod));
	return use(fn);
}

static int enumerated_library(void)
{
	CUkernel kernel;
	target_context();
	CU(cuLibraryEnumerateKernels(&kernel, 1, load_library()));
	return use((CUfunction)kernel);
}

/* Loaded, unloaded, loaded again: the handles may come back with another meaning. */
static int again(void)
{
	int status = 0;
	target_context();
	for (int i = 0; i < LAUNCHES; i++) {
		CUmodule mod;
		CUfunction fn;
		CUdeviceptr buf;
		uint32_t add = 3, n = N;
		CU(cuModuleLoadData(&mod, text));
		CU(cuModuleGetFunction(&fn, mod, "fill"));
		CU(cuMemAlloc(&buf, N * 4));
		void *params[] = { &buf, &add, &n };
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		status |= check_fill(buf, add, N);
		CU(cuModuleUnload(mod));
		/* Another kernel, which nobody asked to probe, may get the handle. */
		CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("other")));
		CU(cuModuleGetFunction(&fn, mod, "other"));
		CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
		CU(cuCtxSynchronize());
		CU(cuModuleUnload(mod));
	}
	return status;
}

/* Images that no driver takes: the program gets the driver's error, the next image loads. */
static int broken(void)
{
	CUmodule mod;
	struct buf b = region(0x8011);
	target_context();
	if (cuModuleLoadData(&mod, "neither PTX nor anything else") == CUDA_SUCCESS)
		return 2;
	if (cuModuleLoadData(&mod, PTX_HEAD ".visible .entry fill() { this is no instruction") ==
		CUDA_SUCCESS)
		return 3;
	for (size_t at = 16; at < b.len; at += 7) {
		struct buf copy = { 0 };
		buf_add(&copy, b.data, b.len);
		copy.data[at] ^= 0x41;
		if (cuModuleLoadData(&mod, copy.data) == CUDA_SUCCESS)
			CU(cuModuleUnload(mod));
		buf_free(&copy);
	}
	if (cuModuleLoad(&mod, "/nonexistent.ptx") != CUDA_ERROR_FILE_NOT_FOUND)
		return 4;
	return load_data(text);
}

static const struct role roles[] = {
	{ "data", data },
	{ "data_ex", data_ex },
	{ "fatbin_raw", fatbin_raw },
	{ "fatbin_lz4", fatbin_lz4 },
	{ "fatbin_zstd", fatbin_zstd },
	{ "wrapped", wrapped },
	{ "fat_binary", fat_binary },
	{ "cubin", cubin },
	{ "file", file },
	{ "linked", linked },
	{ "linked_file", linked_file },
	{ "library_kernel", library_kernel },
	{ "library_early", library_early },
	{ "library_function", library_function },
	{ "library_module", library_module },
	{ "library_file", library_file },
	{ "enumerated", enumerated },
	{ "enumerated_library", enumerated_library },
	{ "again", again },
	{ "broken", broken },
	{ 0 },
};

static const struct {
	const char *role, *source;
} want[] = {
	{ "data", "PTX text" },
	{ "data_ex", "PTX text" },
	{ "fatbin_raw", "fatbin compute_75 PTX" },
	{ "fatbin_lz4", "fatbin compute_75 PTX" },
	{ "fatbin_zstd", "fatbin compute_75 PTX" },
	{ "wrapped", "fatbin compute_75 PTX" },
	{ "fat_binary", "fatbin compute_75 PTX" },
	{ "cubin", "cubin .nv_debug_ptx_txt" },
	{ "file", "PTX text" },
	{ "linked", "cubin .nv_debug_ptx_txt" },
	{ "linked_file", "cubin .nv_debug_ptx_txt" },
	{ "library_kernel", "fatbin compute_75 PTX" },
	{ "library_early", "fatbin compute_75 PTX" },
	{ "library_function", "fatbin compute_75 PTX" },
	{ "library_module", "fatbin compute_75 PTX" },
	{ "library_file", "fatbin compute_75 PTX" },
	{ "enumerated", "PTX text" },
	{ "enumerated_library", "fatbin compute_75 PTX" },
	{ "again", "PTX text" },
	{ "broken", "PTX text" },
};

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		const char *role = want[i].role;
		struct run r;
		run_begin(&r);
		uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
		struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
		run_attach(&r, &f, "fill");
		is_int(run_role(&r, role), 0, "%s: the program's results are right", role);
		is_int(run_count(&r, map, 0), LAUNCHES * BLOCKS * THREADS, "%s: one count a thread",
			role);
		struct session_kernel *k = run_kernel(&r, "fill");
		if (!strcmp(role, "broken")) {
			/* Damaged copies of the image may have left rows of their own. */
			run_end(&r);
			continue;
		}
		ok(k && k->state == SESSION_KERNEL_INSTRUMENTED, "%s: instrumented %s", role,
			k ? session_text(r.session, k->reason) : "");
		is_str(k ? session_text(r.session, k->source) : "", want[i].source, "%s: source",
			role);
		is_int(k ? k->launches_instrumented : 0, LAUNCHES, "%s: launches", role);
		run_end(&r);
	}
	return tap_done();
}
