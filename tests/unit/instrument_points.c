/* instrument_points.c - blocks, branches, barriers, calls, instructions and loads that are done: on
 * softgpu, 48 threads in one block, every sum equals what the program's text says. */
#include "instrument.h"
#include "egpu/probe.bpf.h"
#include "softgpu_run.h"

enum { THREADS = 48 };

static const char original[] = PTX_HEAD
	".shared .align 8 .b64 gate;\n"
	".func (.param .b32 r) twice(.param .b32 x)\n"
	"{\n .reg .b32 %r<3>;\n ld.param.u32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;\n}\n"
	".visible .entry k(.param .u64 out)\n"
	"{\n"
	" .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .f32 %f<4>;\n"
	" ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mov.u32 %r2, 0;\n"
	"LOOP:\n" /* 3 times */
	" add.u32 %r2, %r2, 1;\n"
	" fma.rn.f32 %f1, 0f3F800000, 0f40000000, %f2;\n"
	" setp.lt.u32 %p1, %r2, 3;\n"
	" @%p1 bra LOOP;\n"
	" setp.ge.u32 %p2, %r1, 40;\n"
	" @!%p2 bra SMALL;\n"
	" mad.lo.u32 %r3, %r1, 3, 5;\n"
	"SMALL:\n"
	" bar.sync 3, 64;\n"
	" bar.red.popc.u32 %r4, 2, 64, %p2;\n"
	" { .param .b32 a; st.param.b32 [a], %r1; .param .b32 r; call.uni (r), twice, (a); ld.param.b32 %r5, [r]; }\n"
	" @!%p2 bra OVER;\n" /* a block that begins with the arguments of a call */
	" { .reg .b32 %twice; .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call.uni (r), twice, (a); ld.param.b32 %twice, [r]; }\n"
	"OVER:\n"
	" mul.wide.u32 %rd2, %r1, 16; add.s64 %rd3, %rd1, %rd2;\n"
	" @%p2 st.global.u32 [%rd3+8], %r5;\n"
	" ld.global.u64 %rd3, [%rd3];\n" /* overwrites its address */
	" @%p2 ld.global.v2.u32 {%r6, %r7}, [%rd1+8];\n"
	" ret;\n"
	"}\n";

struct sums {
	uint64_t count, a, b, c, d;
};

enum { BLOCK_SUMS, BRANCH_SUMS, BARRIER_SUMS, CALL_SUMS, MAD_SUMS, FMA_SUMS, DONE_SUMS, WARP_SUMS, N_SUMS };

#define AT(n) "ld.const.u64 %egpu_r1, [__egpu_table]; add.s64 %egpu_r1, %egpu_r1, " #n "*40;\n"
#define HEAD(n) "{\n .reg .b64 %egpu_r1, %egpu_r2;\n" AT(n) " red.global.add.u64 [%egpu_r1], 1;\n"
#define ADD32(field, offset)                                                                       \
	" cvt.u64.u32 %egpu_r2, %egpu_" field ";\n red.global.add.u64 [%egpu_r1+" offset "], %egpu_r2;\n"
#define ADD64(field, offset) " red.global.add.u64 [%egpu_r1+" offset "], %egpu_" field ";\n"

static const struct ebpf_fragment probes[] = {
	{ .name = "block", .point = EBPF_POINT_BLOCK, .fields = BIT(BLOCK_INDEX) | BIT(BLOCK_INSNS) | BIT(LOOP_HEAD),
		.body = HEAD(0) ADD32("block_index", "8") ADD32("block_insns", "16") ADD32("loop_head", "24") "}" },
	{ .name = "branch", .point = EBPF_POINT_BRANCH, .fields = BIT(TAKEN) | BIT(TARGET),
		.body = HEAD(1) ADD32("taken", "8") ADD32("target", "16") "}" },
	{ .name = "barrier", .point = EBPF_POINT_BARRIER,
		.fields = BIT(BARRIER_KIND) | BIT(BARRIER_ID) | BIT(BARRIER_THREADS),
		.body = HEAD(2) ADD32("barrier_kind", "8") ADD32("barrier_id", "16") ADD32("barrier_threads", "24") "}" },
	{ .name = "call", .point = EBPF_POINT_CALL, .fields = BIT(CALLEE), .body = HEAD(3) ADD32("callee", "8") "}" },
	{ .name = "mad", .point = EBPF_POINT_INSN, .opcode = "mad.lo",
		.fields = BIT(OPERANDS) | BIT(VALUE0) | BIT(VALUE1) | BIT(VALUE2),
		.body = HEAD(4) ADD32("operands", "8") ADD64("value0", "16") ADD64("value1", "24") ADD64("value2", "32") "}" },
	{ .name = "fma", .point = EBPF_POINT_INSN, .opcode = "fma",
		.fields = BIT(OPERANDS) | BIT(VALUE0) | BIT(VALUE1) | BIT(VALUE3),
		.body = HEAD(5) ADD32("operands", "8") ADD64("value0", "16") ADD64("value1", "24") ADD64("value3", "32") "}" },
	{ .name = "done", .point = EBPF_POINT_LOAD_DONE,
		.fields = BIT(ADDRESS) | BIT(VALUE0) | BIT(VALUE_BYTES) | BIT(SPACE) | BIT(CYCLES),
		.body = HEAD(6) ADD64("address", "8") ADD64("value0", "16") ADD32("value_bytes", "24") ADD32("space", "32") "}" },
	{ .name = "warp", .point = EBPF_POINT_BLOCK, .warp = true, .fields = BIT(LANES) | BIT(MASK),
		.body = HEAD(7) ADD32("lanes", "8") "}" },
};

static uint32_t hash(const char *s)
{
	uint32_t h = 2166136261u;
	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h;
}

static void check(const struct sums *got, int which, struct sums want, const char *name)
{
	const struct sums *g = &got[which];
	is_int(g->count, want.count, "%s: times", name);
	is_int(g->a, want.a, "%s: first", name);
	is_int(g->b, want.b, "%s: second", name);
	is_int(g->c, want.c, "%s: third", name);
	is_int(g->d, want.d, "%s: fourth", name);
}

int main(void)
{
	enum { N = sizeof(probes) / sizeof(probes[0]) };
	const struct ebpf_fragment *list[N];
	struct arena *a = arena_new();
	struct ptx_module *ptx = parse_text(original);
	struct instrument_request req = { .module = ptx, .kernel = "k", .fragments = list, .n_fragments = N };
	struct instrument_result result;
	struct instrument_site *sites;
	uint32_t n_sites;
	struct diag d = { 0 };
	for (int i = 0; i < N; i++)
		list[i] = &probes[i];
	is_int(instrument_kernel(a, &req, &result, &d), 0, "instrumented %s", d.text);
	is_int(instrument_sites(a, ptx, "k", &sites, &n_sites, &d), 0, "sites of memory alone");
	is_int(n_sites, 5, "entry, exit and three accesses");
	for (uint32_t i = 0; i < n_sites; i++)
		ok(sites[i].point == result.sites[i].point && sites[i].ptx_line == result.sites[i].ptx_line,
			"site %u is the same with other points", i);
	is_int(result.n_sites, 5 + 8 + 3 + 2 + 2 + 2 + 2,
		"and blocks, branches, barriers, two calls, two opcodes, two loads");
	is_str(result.sites[n_sites - 1].opcode, "ret", "the last of the old sites");

	device_open(2, 0);
	struct sg_module *variant = load(result.ptx);
	ok(variant, "the variant loads");
	uint64_t sums = alloc(N_SUMS * sizeof(struct sums)), out = alloc(THREADS * 16 + 16), address;
	size_t bytes;
	for (int i = 0; i < THREADS; i++)
		((uint64_t *)out)[2 * i] = 1000 + i;
	((uint32_t *)out)[2] = 7;
	sg_module_global(variant, "__egpu_table", &address, &bytes);
	*(uint64_t *)address = sums;
	struct run r;
	CUresult e = run_start(&r, sg_module_kernel(variant, "k"), 1, THREADS, 0, &out, false);
	is_int(e ? e : run_wait(&r), CUDA_SUCCESS, "it runs");
	const struct sums *got = (const struct sums *)sums;
	/* Blocks of k: 0 start (3), 1 loop (4), 2 test (2), 3 big (1), 4 barriers, 5 calls again (3), 6 rest (6); of twice: 0 (4). */
	uint64_t barriers = 2 + 3 + 1; /* a call with its parameters, a branch */
	check(got, BLOCK_SUMS, (struct sums){ THREADS * 8 + 8 * 3, THREADS * (3 + 2 + 4 + 6) + 8 * (3 + 5),
		THREADS * (3 + 12 + 2 + barriers + 6 + 4) + 8 * (1 + 3 + 4), THREADS * 3, 0 }, "blocks");
	check(got, BRANCH_SUMS, (struct sums){ THREADS * 5, THREADS * 2 + 40 * 2, THREADS * (3 * 1 + 4 + 6), 0, 0 }, "branches");
	check(got, BARRIER_SUMS, (struct sums){ THREADS * 2, THREADS * 2, THREADS * (3 + 2), THREADS * 128, 0 }, "barriers");
	check(got, CALL_SUMS, (struct sums){ THREADS + 8, (uint64_t)(THREADS + 8) * hash("twice"), 0, 0, 0 }, "calls");
	check(got, MAD_SUMS, (struct sums){ 8, 24, 40 + 41 + 42 + 43 + 44 + 45 + 46 + 47, 24, 40 }, "mad.lo");
	check(got, FMA_SUMS, (struct sums){ 3 * THREADS, 9 * THREADS, 3ull * THREADS * 0x3f800000, 3ull * THREADS * 0x40000000, 0 }, "fma");
	uint64_t addresses = 0, values = 0;
	for (int i = 0; i < THREADS; i++) {
		addresses += out + 16 * i + (i >= 40 ? out + 8 : 0);
		values += 1000 + i + (i >= 40 ? 7 : 0);
	}
	check(got, DONE_SUMS, (struct sums){ THREADS + 8, addresses, values, (THREADS + 8) * 8,
		(THREADS + 8) * EGPU_SPACE_GLOBAL }, "loads that are done");
	is_int(got[WARP_SUMS].a, THREADS * 8 + 8 * 3, "lanes of the warps that enter blocks");
	ok(got[WARP_SUMS].count >= 15 && got[WARP_SUMS].count < THREADS, "few times each");
	sg_module_free(variant);
	sg_device_free(device);
	ptx_module_free(ptx);
	arena_free(a);
	return tap_done();
}
