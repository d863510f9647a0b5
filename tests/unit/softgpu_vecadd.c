/* Vector add with a bounds check, at sizes around the warp and block sizes. */
#include "softgpu_run.h"

static const char ptx[] = PTX_HEAD
	".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
	"{\n"
	" .reg .pred %p<2>; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %rd<11>;\n"
	" ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c]; ld.param.u32 "
	"%r2, [n];\n"
	" mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n"
	" mad.lo.s32 %r1, %r3, %r4, %r5;\n"
	" setp.ge.s32 %p1, %r1, %r2;\n"
	" @%p1 bra $done;\n"
	" cvta.to.global.u64 %rd4, %rd1; mul.wide.s32 %rd5, %r1, 4; add.s64 %rd6, %rd4, %rd5;\n"
	" cvta.to.global.u64 %rd7, %rd2; add.s64 %rd8, %rd7, %rd5;\n"
	" ld.global.f32 %f1, [%rd8]; ld.global.f32 %f2, [%rd6]; add.f32 %f3, %f2, %f1;\n"
	" cvta.to.global.u64 %rd9, %rd3; add.s64 %rd10, %rd9, %rd5;\n"
	" st.global.f32 [%rd10], %f3;\n"
	"$done:\n"
	" ret;\n"
	"}\n";

struct params {
	uint64_t a, b, c;
	uint32_t n;
};

static void add(struct sg_kernel *k, uint32_t n, uint32_t block)
{
	struct params p = { alloc(n * 4), alloc(n * 4), alloc(n * 4), n };
	float *a = (float *)p.a, *b = (float *)p.b, *c = (float *)p.c;
	struct run r;
	uint32_t bad = 0;
	for (uint32_t i = 0; i < n; i++) {
		a[i] = (float)i * 0.5f;
		b[i] = (float)(n - i);
	}
	CUresult e = run_start(&r, k, (n + block - 1) / block, block, 0, &p, false);
	is_int(e, CUDA_SUCCESS, "%u elements start", n);
	is_int(run_wait(&r), CUDA_SUCCESS, "%u elements in blocks of %u end", n, block);
	for (uint32_t i = 0; i < n; i++)
		bad += c[i] != a[i] + b[i];
	is_int(bad, 0, "every sum is right");
	sg_mem_free(device, p.a);
	sg_mem_free(device, p.b);
	sg_mem_free(device, p.c);
}

int main(void)
{
	device_open(2, 0);
	struct sg_module *m = load(ptx);
	ok(m != NULL, "the module loads");
	struct sg_kernel *k = sg_module_kernel(m, "k");
	struct sg_kernel_info info;
	sg_kernel_get_info(k, &info);
	is_int(info.n_params, 4, "four parameters");
	is_int(info.param_bytes, 28, "28 bytes of parameters");
	is_int(info.param_offset[3], 24, "the last at 24");
	is_int(info.max_threads, 1024, "1,024 threads at most");
	add(k, 1, 128);
	add(k, 31, 32);
	add(k, 33, 64);
	add(k, 1000, 1024);
	add(k, 100003, 256);
	add(k, 5000, 37);
	sg_module_free(m);
	size_t free_bytes, total;
	sg_mem_info(device, &free_bytes, &total);
	is_int(free_bytes, total, "everything is freed");
	sg_device_free(device);
	return tap_done();
}
