/* softgpu.c - how many thread-instructions a second one core executes, and what each class of
 * instruction costs.
 *
 *   bench_softgpu [SECONDS]     seconds for each line, 0.3 unless given
 *
 * One worker, so figures are for a core. Counted are PTX instructions times threads, loop overhead
 * included; the cost of a class is the time of its loop without that of an empty one, for a warp.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "softgpu/softgpu.h"

#define HEAD                                                                                       \
	".version 8.1\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 pa, .param " \
	".u64 pb, "                                                                                \
	".param .u64 pc, .param .u32 pn)\n{\n.shared .align 16 .b8 s[16384];\n.reg .pred %p<8>;\n" \
	".reg .b16 %h<8>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<32>;\n.reg .f32 %f<32>;\n.reg .f64 "   \
	"%d<16>;\n"

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct wait {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool done;
	CUresult error;
};

static void ended(void *arg, CUresult error)
{
	struct wait *w = arg;
	pthread_mutex_lock(&w->lock);
	w->done = true;
	w->error = error;
	pthread_cond_signal(&w->cond);
	pthread_mutex_unlock(&w->lock);
}

static struct sg_device *device;

static bool run(const struct sg_kernel *k, uint32_t grid, uint32_t block, const void *params)
{
	struct wait w = { .lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER };
	struct sg_launch l = {
		.kernel = k, .grid = { grid, 1, 1 }, .block = { block, 1, 1 }, .params = params
	};
	if (sg_grid_start(device, &l, ended, &w) != CUDA_SUCCESS)
		return false;
	pthread_mutex_lock(&w.lock);
	while (!w.done)
		pthread_cond_wait(&w.cond, &w.lock);
	pthread_mutex_unlock(&w.lock);
	return w.error == CUDA_SUCCESS;
}

struct params {
	uint64_t a, b, c;
	uint32_t n;
};

/* Best seconds of a launch, over at least `seconds`; 0: it does not run. */
static double measure(
	const char *text, uint32_t grid, uint32_t block, const struct params *p, double seconds)
{
	struct sg_module *m = NULL;
	struct diag d = { 0 };
	double best = 0, start = now();
	if (sg_module_load(device, text, strlen(text), &m, &d) != CUDA_SUCCESS) {
		fprintf(stderr, "line %u: %s\n", d.line, d.text);
		return 0;
	}
	struct sg_kernel *k = sg_module_kernel(m, "k");
	do {
		double t = now();
		if (!run(k, grid, block, p)) {
			best = 0;
			break;
		}
		t = now() - t;
		best = best == 0 || t < best ? t : best;
	} while (now() - start < seconds);
	sg_module_free(m);
	return best;
}

/* A loop of `trips` passes over 16 copies of the text. */
static void looped(char *out, size_t size, const char *before, const char *once, uint32_t trips)
{
	size_t n = (size_t)snprintf(out, size,
		"%smov.u32 %%r60, %u;\nmov.u32 %%r0, %%tid.x;\nmov.u32 %%r1, s;\nmad.lo.u32 %%r1, "
		"%%r0, 4, %%r1;\n"
		"ld.param.u64 %%rd0, [pa];\nmad.wide.u32 %%rd1, %%r0, 4, %%rd0;\n"
		"mov.f32 %%f0, 0f3F800001;\nmov.f32 %%f1, 0f3F7FFFFF;\nmov.f32 %%f2, 0f3DCCCCCD;\n"
		"mov.f64 %%d0, 0d3FF0000000000001;\nmov.f64 %%d1, 0d3FEFFFFFFFFFFFFF;\n"
		"mov.u32 %%r2, 7;\nmov.u32 %%r3, 12345;\nmov.u64 %%rd2, 99;\nsetp.ne.u32 %%p1, "
		"%%r0, 5;\n%s\nLOOP:\n",
		HEAD, trips, before);
	for (int i = 0; i < 16; i++)
		n += (size_t)snprintf(out + n, size - n, "%s\n", once);
	snprintf(out + n, size - n,
		"sub.u32 %%r60, %%r60, 1;\nsetp.ne.u32 %%p7, %%r60, 0;\n@%%p7 bra "
		"LOOP;\nst.shared.f32 [%%r1], %%f0;\nret;\n}\n");
}

static const struct {
	const char *name, *text, *before;
} classes[] = {
	{ "add.u32", "add.u32 %r4, %r2, %r3;", "" },
	{ "mad.lo.u32", "mad.lo.u32 %r4, %r2, %r3, %r4;", "" },
	{ "mul.hi.u32", "mul.hi.u32 %r4, %r2, %r3;", "" },
	{ "mad.wide.u32", "mad.wide.u32 %rd3, %r2, %r3, %rd2;", "" },
	{ "add.u64", "add.u64 %rd3, %rd2, %rd3;", "" },
	{ "shl.b32", "shl.b32 %r4, %r3, %r2;", "" },
	{ "lop3.b32", "lop3.b32 %r4, %r2, %r3, %r4, 0x96;", "" },
	{ "bfe.u32", "bfe.u32 %r4, %r3, 3, 5;", "" },
	{ "popc.b32", "popc.b32 %r4, %r3;", "" },
	{ "prmt.b32", "prmt.b32 %r4, %r3, %r2, 0x1230;", "" },
	{ "div.u32", "div.u32 %r4, %r3, %r2;", "" },
	{ "mov.b32", "mov.b32 %r4, %r3;", "" },
	{ "selp.b32", "selp.b32 %r4, %r3, %r2, %p1;", "" },
	{ "setp.lt.u32", "setp.lt.u32 %p2, %r3, %r2;", "" },
	{ "setp.lt.f32", "setp.lt.f32 %p2, %f1, %f2;", "" },
	{ "cvt.rn.f32.s32", "cvt.rn.f32.s32 %f4, %r3;", "" },
	{ "cvt.rzi.s32.f32", "cvt.rzi.s32.f32 %r4, %f1;", "" },
	{ "cvt.u64.u32", "cvt.u64.u32 %rd3, %r3;", "" },
	{ "cvt.rn.f16.f32", "cvt.rn.f16.f32 %h1, %f1;", "" },
	{ "add.f32", "add.f32 %f4, %f1, %f2;", "" },
	{ "fma.rn.f32", "fma.rn.f32 %f4, %f1, %f2, %f4;", "" },
	{ "add.ftz.f32", "add.ftz.f32 %f4, %f1, %f2;", "" },
	{ "fma.rn.ftz.f32", "fma.rn.ftz.f32 %f4, %f1, %f2, %f4;", "" },
	{ "max.f32", "max.f32 %f4, %f1, %f2;", "" },
	{ "div.rn.f32", "div.rn.f32 %f4, %f1, %f2;", "" },
	{ "sqrt.rn.f32", "sqrt.rn.f32 %f4, %f1;", "" },
	{ "rcp.approx.ftz.f32", "rcp.approx.ftz.f32 %f4, %f1;", "" },
	{ "ex2.approx.f32", "ex2.approx.f32 %f4, %f2;", "" },
	{ "sin.approx.f32", "sin.approx.f32 %f4, %f2;", "" },
	{ "add.rz.f32", "add.rz.f32 %f4, %f1, %f2;", "" },
	{ "fma.rn.f64", "fma.rn.f64 %d2, %d0, %d1, %d2;", "" },
	{ "add.f16x2", "add.f16x2 %r4, %r3, %r2;", "" },
	{ "fma.rn.f16x2", "fma.rn.f16x2 %r4, %r3, %r2, %r4;", "" },
	{ "ld.shared.u32", "ld.shared.u32 %r4, [%r1];", "" },
	{ "st.shared.u32", "st.shared.u32 [%r1], %r3;", "" },
	{ "ld.global.u32", "ld.global.u32 %r4, [%rd1];", "" },
	{ "ld.global.v4.u32", "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd4];",
		"mad.wide.u32 %rd4, %r0, 16, %rd0;" },
	{ "st.global.u32", "st.global.u32 [%rd1], %r3;", "" },
	{ "ld.u32 (generic)", "ld.u32 %r4, [%rd1];", "" },
	{ "ld.local.u32", "ld.local.u32 %r4, [v];", ".local .align 8 .b8 v[16];" },
	{ "ld.param.u64", "ld.param.u64 %rd3, [pb];", "" },
	{ "atom.global.add.u32", "atom.global.add.u32 %r4, [%rd1], 1;", "" },
	{ "red.shared.add.u32, one word", "red.shared.add.u32 [s], 1;", "" },
	{ "shfl.sync.down.b32", "shfl.sync.down.b32 %r4, %r3, 1, 31, -1;", "" },
	{ "vote.sync.ballot.b32", "vote.sync.ballot.b32 %r4, %p1, -1;", "" },
	{ "redux.sync.add.u32", "redux.sync.add.u32 %r4, %r3, -1;", "" },
	{ "bar.warp.sync", "bar.warp.sync -1;", "" },
	{ "bar.sync", "bar.sync 0;", "" },
	{ "guarded add.u32, one lane off", "@%p1 add.u32 %r4, %r2, %r3;", "" },
	{ "mma.m16n8k16.f32.f16",
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f8, %f9, %f10, %f11}, {%r4, "
		"%r5, %r6, %r7}, {%r8, %r9}, "
		"{%f8, %f9, %f10, %f11};",
		"" },
};

static void fma_loop(double seconds)
{
	char text[16384];
	struct params p = { .n = 0 };
	looped(text, sizeof(text), "", "fma.rn.f32 %f0, %f0, %f1, %f2;", 2000);
	double t = measure(text, 4, 256, &p, seconds * 3);
	double n = 4 * 256 * (2000.0 * 19 + 18);
	printf("%-34s %8.1f M thread-instructions/s a core\n", "FMA loop", n / t / 1e6);
}

static void vector_add(double seconds)
{
	static const char text[] = HEAD
		"ld.param.u64 %rd1, [pa];\nld.param.u64 %rd2, [pb];\nld.param.u64 %rd3, [pc];\n"
		"ld.param.u32 %r2, [pn];\nmov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ntid.x;\nmov.u32 "
		"%r5, %tid.x;\n"
		"mad.lo.s32 %r1, %r3, %r4, %r5;\nsetp.ge.s32 %p1, %r1, %r2;\n@%p1 bra END;\n"
		"cvta.to.global.u64 %rd4, %rd1;\nmul.wide.s32 %rd5, %r1, 4;\nadd.s64 %rd6, %rd4, "
		"%rd5;\n"
		"cvta.to.global.u64 %rd7, %rd2;\nadd.s64 %rd8, %rd7, %rd5;\nld.global.f32 %f1, "
		"[%rd8];\n"
		"ld.global.f32 %f2, [%rd6];\nadd.f32 %f3, %f2, %f1;\ncvta.to.global.u64 %rd9, "
		"%rd3;\n"
		"add.s64 %rd10, %rd9, %rd5;\nst.global.f32 [%rd10], %f3;\nEND: ret;\n}\n";
	const uint32_t n = 1 << 20;
	struct params p = { .n = n };
	uint64_t *at[3] = { &p.a, &p.b, &p.c };
	for (int i = 0; i < 3; i++)
		if (sg_mem_alloc(device, n * 4, at[i]) != CUDA_SUCCESS)
			return;
		else
			memset((void *)(uintptr_t)*at[i], 0, n * 4);
	double t = measure(text, n / 256, 256, &p, seconds * 3);
	printf("%-34s %8.1f M thread-instructions/s a core (%.2f ns an element)\n", "vector add",
		n * 22.0 / t / 1e6, t / n * 1e9);
	for (int i = 0; i < 3; i++)
		sg_mem_free(device, *at[i]);
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 0.3;
	struct sg_config c = { .sm = 90, .n_sms = 4, .n_workers = 1, .memory_bytes = 256u << 20 };
	struct params p = { .n = 0 };
	if (sg_device_new(&c, &device) != CUDA_SUCCESS ||
		sg_mem_alloc(device, 1 << 16, &p.a) != CUDA_SUCCESS)
		return 1;
	p.b = p.c = p.a;
	fma_loop(seconds);
	vector_add(seconds);
	char text[32768];
	const uint32_t trips = 200, warps = 8;
	looped(text, sizeof(text), "", "", trips);
	double empty = measure(text, 1, warps * 32, &p, seconds);
	printf("\n%-34s %8s %12s\n", "class", "ns/warp", "M thread-i/s");
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		looped(text, sizeof(text), classes[i].before, classes[i].text, trips);
		double t = measure(text, 1, warps * 32, &p, seconds);
		double each = (t - empty) / (trips * 16.0 * warps);
		if (t > 0)
			printf("%-34s %8.1f %12.1f\n", classes[i].name, each * 1e9,
				32 / each / 1e6);
		else
			printf("%-34s does not run\n", classes[i].name);
	}
	sg_mem_free(device, p.a);
	sg_device_free(device);
	return 0;
}
