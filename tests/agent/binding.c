/* A variant works on the program's own variables, limits and attributes; its maps arrive whole. */
#include "harness.h"

enum { N = 96 };

/* total += table[i % 4]; both belong to the module, and its host changes them between launches. */
static const char text[] =
	PTX_HEAD ".visible .global .align 4 .u32 total;\n.global .align 4 .u32 hidden = 5;\n.const "
		 ".align 4 .u32 weights[4];\n"
		 ".visible .entry sum()\n{\n\t.reg .b32 %r<8>;\n\t.reg .b64 %rd<8>;\n"
		 "\tmov.u32 %r1, %tid.x;\n\tand.b32 %r2, %r1, 3;\n\tmul.wide.u32 %rd1, %r2, "
		 "4;\n\tmov.u64 %rd2, weights;\n"
		 "\tadd.u64 %rd3, %rd2, %rd1;\n\tld.const.u32 %r3, [%rd3];\n\tatom.global.add.u32 "
		 "%r4, [total], %r3;\n"
		 "\tld.global.u32 %r5, [hidden];\n\tadd.u32 %r6, %r5, %r3;\n\tatom.global.add.u32 "
		 "%r7, [total], %r6;\n\tret;\n}\n";

static int variables(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr total, weights, hidden;
	uint32_t sum = 0, w[4] = { 1, 2, 3, 4 }, h = 5, want = 0;
	target_context();
	CU(cuModuleLoadData(&mod, text));
	CU(cuModuleGetFunction(&fn, mod, "sum"));
	CU(cuModuleGetGlobal(&total, NULL, mod, "total"));
	CU(cuModuleGetGlobal(&weights, NULL, mod, "weights"));
	CU(cuModuleGetGlobal(&hidden, NULL, mod, "hidden"));
	for (int round = 0; round < 4; round++) {
		CU(cuMemcpyHtoD(weights, w, sizeof(w)));
		CU(cuMemcpyHtoD(hidden, &h, sizeof(h)));
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, NULL, NULL));
		CU(cuCtxSynchronize());
		for (int i = 0; i < N; i++)
			want += 2 * w[i % 4] + h;
		for (int i = 0; i < 4; i++)
			w[i] += (uint32_t)round + 1;
		h += 7;
	}
	CU(cuMemcpyDtoH(&sum, total, 4));
	return sum == want ? 0 : 2;
}

/* Two modules with a kernel of the same name and variables of the same name. */
static int twins(void)
{
	CUmodule mod[2];
	CUfunction fn[2];
	CUdeviceptr total[2], weights;
	uint32_t sum[2], w[4] = { 1, 1, 1, 1 };
	target_context();
	for (int i = 0; i < 2; i++) {
		CU(cuModuleLoadData(&mod[i], text));
		CU(cuModuleGetFunction(&fn[i], mod[i], "sum"));
		CU(cuModuleGetGlobal(&total[i], NULL, mod[i], "total"));
		CU(cuModuleGetGlobal(&weights, NULL, mod[i], "weights"));
		w[0] = 1 + (uint32_t)i * 100;
		CU(cuMemcpyHtoD(weights, w, sizeof(w)));
	}
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 2; i++)
			CU(cuLaunchKernel(fn[i], 1, 1, 1, N, 1, 1, 0, NULL, NULL, NULL));
	CU(cuCtxSynchronize());
	for (int i = 0; i < 2; i++)
		CU(cuMemcpyDtoH(&sum[i], total[i], 4));
	return sum[0] == 2 * N * 7 && sum[1] == 2 * (N * 7 + N / 4 * 200) ? 0 : 2;
}

/* Dynamic shared memory beyond the default limit, allowed before and after the first launch. */
static const char shared_text[] =
	PTX_HEAD ".extern .shared .align 16 .b8 dyn[];\n"
		 ".visible .entry sum(.param .u64 out, .param .u32 last)\n{\n\t.reg .b32 "
		 "%r<4>;\n\t.reg .b64 %rd<6>;\n"
		 "\tld.param.u64 %rd1, [out];\n\tld.param.u32 %r1, [last];\n\tcvt.u64.u32 %rd2, "
		 "%r1;\n\tmov.u64 %rd3, dyn;\n"
		 "\tadd.u64 %rd4, %rd3, %rd2;\n\tmov.u32 %r2, 77;\n\tst.shared.u32 [%rd4], "
		 "%r2;\n\tbar.sync 0;\n"
		 "\tld.shared.u32 %r3, [%rd4];\n\tst.global.u32 [%rd1], %r3;\n\tret;\n}\n";

static int shared_limit(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr out;
	uint32_t got = 0, last;
	target_context();
	CU(cuModuleLoadData(&mod, shared_text));
	CU(cuModuleGetFunction(&fn, mod, "sum"));
	CU(cuMemAlloc(&out, 4));
	void *params[] = { &out, &last };
	static const int sizes[] = { 16 << 10, 64 << 10, 96 << 10 };
	for (int i = 0; i < 3; i++) {
		if (sizes[i] > 48 << 10)
			CU(cuFuncSetAttribute(
				fn, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, sizes[i]));
		last = (uint32_t)sizes[i] - 4;
		CU(cuLaunchKernel(fn, 1, 1, 1, 1, 1, 1, (unsigned)sizes[i], NULL, params, NULL));
		CU(cuCtxSynchronize());
	}
	CU(cuMemcpyDtoH(&got, out, 4));
	return got == 77 ? 0 : 2;
}

static const char wide_text[] = PTX_HEAD ".visible .entry sum(.param .u64 out)\n.maxntid 1024, 1, "
					 "1\n{\n\t.reg .b32 %r<3>;\n\t.reg .b64 %rd<3>;\n"
					 "\tld.param.u64 %rd1, [out];\n\tmov.u32 %r1, "
					 "1;\n\tatom.global.add.u32 %r2, [%rd1], %r1;\n\tret;\n}\n";

static int wide(void)
{
	CUmodule mod;
	CUfunction fn;
	CUdeviceptr out;
	uint32_t got = 0;
	target_context();
	CU(cuModuleLoadData(&mod, wide_text));
	CU(cuModuleGetFunction(&fn, mod, "sum"));
	CU(cuMemAlloc(&out, 4));
	CU(cuMemsetD32(out, 0, 1));
	void *params[] = { &out };
	CU(cuLaunchKernel(fn, 3, 1, 1, 1024, 1, 1, 0, NULL, params, NULL));
	CU(cuCtxSynchronize());
	CU(cuMemcpyDtoH(&got, out, 4));
	return got == 3 * 1024 ? 0 : 2;
}

/* A context that is made anew: the first one's maps are final, the second has its own. */
static int two_contexts(void)
{
	for (int round = 0; round < 2; round++) {
		CUmodule mod;
		CUfunction fn;
		CUcontext ctx;
		CU(cuInit(0));
		CU(cuCtxCreate_v2(&ctx, 0, 0));
		CU(cuModuleLoadData(&mod, text));
		CU(cuModuleGetFunction(&fn, mod, "sum"));
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, NULL, NULL));
		CU(cuCtxDestroy(ctx));
	}
	return 0;
}

/* One library, two contexts at once. */
static int library_contexts(void)
{
	CUlibrary lib;
	CUkernel kernel;
	CUcontext ctx[2];
	CU(cuInit(0));
	CU(cuLibraryLoadData(&lib, text, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&kernel, lib, "sum"));
	for (int i = 0; i < 2; i++)
		CU(cuCtxCreate_v2(&ctx[i], 0, 0));
	for (int i = 0; i < 2; i++) {
		CU(cuCtxSetCurrent(ctx[i]));
		CU(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, N, 1, 1, 0, NULL, NULL, NULL));
		CU(cuCtxSynchronize());
	}
	return 0;
}

/* The kernel is in a cubin without PTX. */
static int reset(void)
{
	for (int round = 0; round < 2; round++) {
		CUmodule mod;
		CUfunction fn;
		target_context();
		CU(cuModuleLoadData(&mod, text));
		CU(cuModuleGetFunction(&fn, mod, "sum"));
		CU(cuLaunchKernel(fn, 1, 1, 1, N, 1, 1, 0, NULL, NULL, NULL));
		CU(cuCtxSynchronize());
		CU(cuDevicePrimaryCtxReset(0));
	}
	return 0;
}

static const struct role roles[] = { { "variables", variables }, { "twins", twins },
	{ "shared_limit", shared_limit }, { "wide", wide }, { "two_contexts", two_contexts },
	{ "library_contexts", library_contexts }, { "reset", reset }, { 0 } };

static const struct {
	const char *role;
	int threads, launches;
} want[] = { { "variables", 4 * N, 4 }, { "twins", 4 * N, 4 }, { "shared_limit", 3, 3 },
	{ "wide", 3 * 1024, 1 }, { "two_contexts", 2 * N, 2 }, { "library_contexts", 2 * N, 2 },
	{ "reset", 2 * N, 2 } };

int main(int argc, char **argv)
{
	harness_main(argc, argv, roles);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		struct run r;
		run_begin(&r);
		uint32_t map = run_map(&r, BPF_MAP_TYPE_ARRAY, 4, 8, 1);
		struct ebpf_fragment f = counter(map, EBPF_POINT_ENTRY);
		run_attach(&r, &f, "sum");
		is_int(run_role(&r, want[i].role), 0, "%s: results are right", want[i].role);
		is_int(run_count(&r, map, 0), want[i].threads, "%s: exact", want[i].role);
		struct session_kernel *k = run_kernel(&r, "sum");
		is_int(k ? k->launches_instrumented : 0, want[i].launches, "%s: launches (%s)",
			want[i].role, k ? session_text(r.session, k->reason) : "no row");
		run_end(&r);
	}
	return tap_done();
}
