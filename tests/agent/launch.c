/* Every form of launch is swapped: parameter lists and blocks, Ex, cooperative, per-thread twins,
 * look-ups; launch ids are passed; what cannot run as a variant runs as the original. */
#include <dlfcn.h>

#include "harness.h"

enum { N = 200, THREADS = 64, BLOCKS = (N + THREADS - 1) / THREADS };

static CUfunction fn;
static CUdeviceptr buf;
static uint32_t add = 5, n = N;
static void *params[3] = { &buf, &add, &n };

static void start(void)
{
	CUmodule mod;
	target_context();
	CU(cuModuleLoadData(&mod, PTX_HEAD PTX_FILL("fill")));
	CU(cuModuleGetFunction(&fn, mod, "fill"));
	CU(cuMemAlloc(&buf, N * 4));
}

static int finish(void)
{
	CU(cuCtxSynchronize());
	return check_fill(buf, add, N);
}

static int plain(void)
{
	start();
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	return finish();
}

static int block(void)
{
	struct {
		CUdeviceptr buf;
		uint32_t add, n;
	} p;
	size_t bytes = sizeof(p);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, &p, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
		CU_LAUNCH_PARAM_END };
	start();
	p.buf = buf;
	p.add = add;
	p.n = n;
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, NULL, extra));
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, NULL, extra));
	return finish();
}

static int extended(void)
{
	start();
	CUlaunchConfig c = { .gridDimX = BLOCKS,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = THREADS,
		.blockDimY = 1,
		.blockDimZ = 1 };
	CUlaunchAttribute a = { .id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
		.value = { .cooperative = 1 } };
	CU(cuLaunchKernelEx(&c, fn, params, NULL));
	c.attrs = &a;
	c.numAttrs = 1;
	CU(cuLaunchKernelEx(&c, fn, params, NULL));
	return finish();
}

static int cooperative(void)
{
	start();
	CU(cuLaunchCooperativeKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params));
	CU(cuLaunchCooperativeKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params));
	return finish();
}

typedef CUresult (*launch_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
	unsigned, unsigned, CUstream, void **, void **);

/* The twins with their own default stream, found as a program finds them. */
static int per_thread(void)
{
	start();
	launch_fn by_name = (launch_fn)dlsym(RTLD_DEFAULT, "cuLaunchKernel_ptsz");
	launch_fn by_call = NULL;
	CUdriverProcAddressQueryResult found;
	CU(cuGetProcAddress_v2("cuLaunchKernel", (void **)&by_call, 12000,
		CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &found));
	if (!by_name || by_name != by_call)
		return 2;
	CU(by_name(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, CU_STREAM_PER_THREAD, params, NULL));
	return finish();
}

/* As the CUDA runtime does: its own copy of the library, one dlsym, the rest from cuGetProcAddress.
 */
static int looked_up(void)
{
	CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	CUresult (*old_get)(const char *, void **, int, cuuint64_t);
	launch_fn launch = NULL, launch2 = NULL;
	CUdriverProcAddressQueryResult found;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);
	start();
	if (!lib)
		return 2;
	*(void **)&get = dlsym(lib, "cuGetProcAddress_v2");
	*(void **)&old_get = dlsym(lib, "cuGetProcAddress");
	if (!get || !old_get)
		return 3;
	CU(get("cuLaunchKernel", (void **)&launch, 12000, 0, &found));
	CU(old_get("cuLaunchKernel", (void **)&launch2, 7000, 0));
	if (launch != launch2 || (void *)launch != dlsym(lib, "cuLaunchKernel") ||
		found != CU_GET_PROC_ADDRESS_SUCCESS)
		return 4;
	void *nothing = &nothing;
	if (get("cuNoSuchCall", &nothing, 12000, 0, &found) == CUDA_SUCCESS &&
		found == CU_GET_PROC_ADDRESS_SUCCESS)
		return 5;
	/* Data and calls that the agent does not define come from the driver. */
	if (!dlsym(lib, "cuMemAlloc_v2") || !dlsym(lib, "cuDeviceGetAttribute"))
		return 6;
	CU(launch(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(launch2(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	return finish();
}

/* As before CUDA 4.0: what a launch has is set before, and stays. */
static int set_before(void)
{
	start();
	CU(cuFuncSetBlockShape(fn, THREADS, 1, 1));
	CU(cuParamSetSize(fn, 16));
	CU(cuParamSetv(fn, 0, &buf, sizeof(buf)));
	CU(cuParamSeti(fn, 8, add + 1));
	CU(cuParamSeti(fn, 12, n));
	CU(cuLaunchGridAsync(fn, BLOCKS, 1, NULL));
	CU(cuParamSeti(fn, 8, add));
	CU(cuLaunchGrid(fn, BLOCKS, 1));
	return finish();
}

/* What the driver refuses stays refused, with its error. */
static int wrong(void)
{
	start();
	if (cuLaunchKernel(fn, 1, 1, 1, 100000, 1, 1, 0, NULL, params, NULL) !=
		CUDA_ERROR_INVALID_VALUE)
		return 2;
	if (cuLaunchKernel(fn, 0, 1, 1, 32, 1, 1, 0, NULL, params, NULL) !=
		CUDA_ERROR_INVALID_VALUE)
		return 3;
	if (cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL) == CUDA_SUCCESS)
		return 4;
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	CU(cuLaunchKernel(fn, BLOCKS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
	return finish();
}

static const struct role roles[] = { { "plain", plain }, { "block", block },
	{ "extended", extended }, { "cooperative", cooperative }, { "per_thread", per_thread },
	{ "looked_up", looked_up }, { "set_before", set_before }, { "wrong", wrong }, { 0 } };

/* Adds the launch id: the sum over threads tells whether each launch had its own. */
static struct ebpf_fragment launch_ids(void)
{
	return (struct ebpf_fragment){ .name = "ids",
		.point = EBPF_POINT_ENTRY,
		.fields = (uint64_t)1 << EBPF_FIELD_LAUNCH,
		.maps = 1,
		.max_insns = 3,
		.body = "{\n\t.reg .b64 %egpu_r<1>;\n\tld.const.b64 %egpu_r0, [__egpu_table];\n"
			"\tred.global.add.u64 [%egpu_r0+128], %egpu_launch;\n}\n" };
}

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	for (int with_id = 0; with_id < 2; with_id++) {
		for (const struct role *x = roles; x->name; x++) {
			struct run r;
			run_begin(&r);
			uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
			struct ebpf_fragment f =
				with_id ? launch_ids() : counter(map, EBPF_POINT_ENTRY);
			run_attach(&r, &f, "fill");
			is_int(run_role(&r, x->name), 0, "%s: results are right", x->name);
			struct session_kernel *k = run_kernel(&r, "fill");
			is_int(k ? k->launches_instrumented : 0, 2, "%s: both launches", x->name);
			uint64_t first = r.file->next_launch - 1;
			is_int(run_count(&r, map, 0),
				(with_id ? 2 * first + 1 : 2) * BLOCKS * THREADS, "%s: %s", x->name,
				with_id ? "each with its id" : "one count a thread");
			run_end(&r);
		}
	}
	return tap_done();
}
