/* instrument_run.c - a variant runs on softgpu: same results as the original, and every field that probes see
 * equals what the host computes for the same launch. */
#include "instrument.h"
#include "egpu/probe.bpf.h"
#include "softgpu_run.h"

/* Sites, in text order. */
enum {
	SITE_CALLED_STORE, /* in a function */
	SITE_ENTRY,
	SITE_GUARD_EXIT, /* @%p1 ret */
	SITE_BIAS,	 /* the same word for every lane */
	SITE_WEIGHT,	 /* .const, 4 words */
	SITE_TILE,	 /* shared, unit stride */
	SITE_STRIDED,	 /* odd lanes, 128 bytes apart */
	SITE_GENERIC,	 /* a generic address that is shared memory */
	SITE_GENERIC_OUT, /* and one that is global */
	SITE_VECTOR,
	SITE_SELF,  /* ld %rd, [%rd] */
	SITE_COUNT, /* atomic */
	SITE_EXIT,
	N_SITES,
};

static const char original[] = PTX_HEAD
	".global .align 4 .u32 bias = 5;\n"
	".global .align 4 .u32 total;\n"
	".const .align 4 .b8 weights[16] = {1,0,0,0, 2,0,0,0, 3,0,0,0, 4,0,0,0};\n"
	".shared .align 16 .b8 tile[4096];\n"
	".func put(.param .b64 p, .param .b32 v)\n"
	"{\n .reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
	" ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v];\n"
	" st.global.u32 [%rd1+4], %r1;\n ret;\n}\n"
	".visible .entry k(.param .u64 out, .param .u32 n)\n"
	"{\n"
	" .reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>;\n"
	" ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [n];\n"
	" mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	" mad.lo.u32 %r5, %r2, %r3, %r4;\n"
	" setp.ge.u32 %p1, %r5, %r1;\n"
	" @%p1 ret;\n"
	" mul.wide.u32 %rd2, %r5, 128; add.s64 %rd3, %rd1, %rd2;\n"
	" ld.global.u32 %r6, [bias];\n"
	" and.b32 %r7, %r5, 3; mul.wide.u32 %rd4, %r7, 4; mov.u64 %rd5, weights; add.s64 %rd5, %rd5, %rd4;\n"
	" ld.const.u32 %r8, [%rd5];\n"
	" mad.lo.u32 %r9, %r6, %r8, %r5;\n"
	" mov.u32 %r10, tile; shl.b32 %r11, %r4, 2; add.u32 %r10, %r10, %r11;\n"
	" st.shared.u32 [%r10+8], %r9;\n"
	" and.b32 %r7, %r5, 1; setp.eq.u32 %p2, %r7, 1;\n"
	" @%p2 st.global.u32 [%rd3], %r9;\n"
	" mov.u64 %rd6, tile; cvta.shared.u64 %rd6, %rd6; cvt.u64.u32 %rd7, %r11; add.s64 %rd6, %rd6, %rd7;\n"
	" st.u16 [%rd6+8], 7;\n"
	" st.u8 [%rd3+8], %r9;\n"
	" cvt.u16.u32 %rs1, %r5;\n"
	" st.global.v4.u16 [%rd3+16], {%rs1, 2, %rs1, 0xfff0};\n"
	" mov.u64 %rd8, %rd3;\n"
	" ld.global.u64 %rd8, [%rd8+16];\n"
	" atom.global.add.u32 %r7, [total], %r8;\n"
	" call put, (%rd3, %r9);\n"
	" ret;\n"
	"}\n";

/* Per site, 128 bytes apart: sums over everything a probe sees. */
struct record {
	uint64_t count, address, bytes, space, op, value, launch, value_bytes;
	uint64_t requests, lanes, distinct, sectors, elected, masks, pad[2];
};

#define ADD32(field, offset)                                                                       \
	" cvt.u64.u32 %egpu_r2, %egpu_" field ";\n red.global.add.u64 [%egpu_r1+" offset "], %egpu_r2;\n"
#define ADD64(field, offset) " red.global.add.u64 [%egpu_r1+" offset "], %egpu_" field ";\n"
#define RECORD                                                                                     \
	"{\n .reg .b64 %egpu_r1, %egpu_r2;\n ld.const.u64 %egpu_r1, [__egpu_table];\n"             \
	" mul.wide.u32 %egpu_r2, %egpu_site, 128;\n add.s64 %egpu_r1, %egpu_r1, %egpu_r2;\n"

static const struct ebpf_fragment thread_mem = { .name = "mem", .point = EBPF_POINT_MEM,
	.fields = BIT(SITE) | BIT(ADDRESS) | BIT(BYTES) | BIT(SPACE) | BIT(OP) | BIT(VALUE0) |
		BIT(LAUNCH) | BIT(VALUE_BYTES),
	.body = RECORD " red.global.add.u64 [%egpu_r1], 1;\n" ADD64("address", "8") ADD32("bytes", "16")
		ADD32("space", "24") ADD32("op", "32") ADD64("value0", "40") ADD64("launch", "48")
			ADD32("value_bytes", "56") "}" };
static const struct ebpf_fragment warp_mem = { .name = "warp", .point = EBPF_POINT_MEM, .warp = true,
	.fields = BIT(SITE) | BIT(MEM_MASK) | BIT(MEM_LANES) | BIT(DISTINCT_BYTES) | BIT(SECTORS) |
		BIT(LANE),
	.body = RECORD " red.global.add.u64 [%egpu_r1+64], 1;\n" ADD32("mem_lanes", "72")
		ADD32("distinct_bytes", "80") ADD32("sectors", "88") ADD32("lane", "96")
			ADD32("mem_mask", "104") "}" };
static const struct ebpf_fragment thread_edge[] = {
	{ .name = "entry", .point = EBPF_POINT_ENTRY, .fields = BIT(SITE) | BIT(LAUNCH),
		.body = RECORD " red.global.add.u64 [%egpu_r1], 1;\n" ADD64("launch", "48") "}" },
	{ .name = "exit", .point = EBPF_POINT_EXIT, .fields = BIT(SITE),
		.body = RECORD " red.global.add.u64 [%egpu_r1], 1;\n}" },
	{ .name = "warp_entry", .point = EBPF_POINT_ENTRY, .warp = true,
		.fields = BIT(SITE) | BIT(LANES) | BIT(WARP),
		.body = RECORD " red.global.add.u64 [%egpu_r1+64], 1;\n" ADD32("lanes", "72")
			ADD32("warp", "80") "}" },
};

enum { GRID = 3, BLOCK = 48, N = 130, LAUNCH = 9 };

struct params {
	uint64_t out;
	uint32_t n, pad;
	uint64_t launch;
};

/* Adds one access of a warp's lanes to the expectation. */
struct lanes {
	uint64_t address[32], value[32];
	uint32_t lane[32], n;
};

static void expect_access(struct record *r, const struct lanes *w, uint32_t bytes, uint32_t space,
	uint32_t op)
{
	uint32_t distinct = 0, sectors = 0;
	if (!w->n)
		return;
	for (uint32_t i = 0; i < w->n; i++) {
		bool new_address = true, new_sector = true;
		r->count++;
		r->address += w->address[i];
		r->bytes += bytes;
		r->space += space;
		r->op += op;
		r->launch += LAUNCH;
		if (op != EGPU_OP_LOAD) {
			r->value += w->value[i];
			r->value_bytes += bytes;
		}
		r->masks += UINT64_C(1) << w->lane[i];
		for (uint32_t k = 0; k < i; k++) {
			new_address &= w->address[k] != w->address[i];
			new_sector &= w->address[k] / 32 != w->address[i] / 32;
		}
		distinct += new_address ? bytes : 0;
		sectors += new_sector;
	}
	r->requests++;
	r->lanes += w->n;
	r->distinct += distinct;
	r->sectors += sectors;
	r->elected += w->lane[0];
}

static void add_lane(struct lanes *w, uint32_t lane, uint64_t address, uint64_t value)
{
	w->lane[w->n] = lane;
	w->address[w->n] = address;
	w->value[w->n++] = value;
}

/* Addresses that the host cannot know (shared memory) are taken from the device's first record. */
struct bases {
	uint64_t out, bias, weights, total, tile, generic_tile;
};

static void expect_warp(struct record *want, const struct bases *b, uint32_t block, uint32_t first)
{
	struct lanes w[N_SITES];
	static const struct {
		uint32_t bytes, space, op;
	} facts[N_SITES] = {
		[SITE_CALLED_STORE] = { 4, EGPU_SPACE_GLOBAL, EGPU_OP_STORE },
		[SITE_BIAS] = { 4, EGPU_SPACE_GLOBAL, EGPU_OP_LOAD },
		[SITE_WEIGHT] = { 4, EGPU_SPACE_CONST, EGPU_OP_LOAD },
		[SITE_TILE] = { 4, EGPU_SPACE_SHARED, EGPU_OP_STORE },
		[SITE_STRIDED] = { 4, EGPU_SPACE_GLOBAL, EGPU_OP_STORE },
		[SITE_GENERIC] = { 2, EGPU_SPACE_SHARED, EGPU_OP_STORE },
		[SITE_GENERIC_OUT] = { 1, EGPU_SPACE_GLOBAL, EGPU_OP_STORE },
		[SITE_VECTOR] = { 8, EGPU_SPACE_GLOBAL, EGPU_OP_STORE },
		[SITE_SELF] = { 8, EGPU_SPACE_GLOBAL, EGPU_OP_LOAD },
		[SITE_COUNT] = { 4, EGPU_SPACE_GLOBAL, EGPU_OP_ATOMIC },
	};
	memset(w, 0, sizeof(w));
	for (uint32_t t = first; t < first + 32 && t < BLOCK; t++) {
		uint32_t i = block * BLOCK + t, lane = t - first;
		uint64_t row = b->out + i * UINT64_C(128), weight = (i & 3) + 1, x = 5 * weight + i;
		want[SITE_ENTRY].count++;
		want[SITE_ENTRY].launch += LAUNCH;
		want[SITE_ENTRY].lanes++;
		want[i >= N ? SITE_GUARD_EXIT : SITE_EXIT].count++;
		if (i >= N)
			continue;
		add_lane(&w[SITE_CALLED_STORE], lane, row + 4, x);
		add_lane(&w[SITE_BIAS], lane, b->bias, 0);
		add_lane(&w[SITE_WEIGHT], lane, b->weights + (i & 3) * 4, 0);
		add_lane(&w[SITE_TILE], lane, b->tile + 8 + t * 4, x);
		if (i & 1)
			add_lane(&w[SITE_STRIDED], lane, row, x);
		add_lane(&w[SITE_GENERIC], lane, b->generic_tile + 8 + t * 4, 7);
		add_lane(&w[SITE_GENERIC_OUT], lane, row + 8, x & 255);
		add_lane(&w[SITE_VECTOR], lane, row + 16,
			i | 2 << 16 | (uint64_t)i << 32 | UINT64_C(0xfff0) << 48);
		add_lane(&w[SITE_SELF], lane, row + 16, 0);
		add_lane(&w[SITE_COUNT], lane, b->total, weight);
	}
	want[SITE_ENTRY].requests++;
	want[SITE_ENTRY].distinct += first / 32;
	for (int s = 0; s < N_SITES; s++)
		expect_access(&want[s], &w[s], facts[s].bytes, facts[s].space, facts[s].op);
}

static void compare(const struct record *got, const struct record *want)
{
	static const char *const names[] = { "executions", "addresses", "bytes", "spaces", "operations",
		"values", "launch ids", "value bytes", "requests", "lanes", "distinct bytes", "sectors",
		"elected lanes", "masks" };
	for (int s = 0; s < N_SITES; s++) {
		const uint64_t *g = (const uint64_t *)&got[s], *w = (const uint64_t *)&want[s];
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
			/* Each block has its own window of shared memory among generic addresses. */
			if (s == SITE_GENERIC && k == 1)
				continue;
			is_int(g[k], w[k], "site %d: %s", s, names[k]);
		}
	}
}

static CUresult launch(struct sg_module *m, const struct params *p)
{
	struct run r;
	CUresult e = run_start(&r, sg_module_kernel(m, "k"), GRID, BLOCK, 0, p, false);
	return e ? e : run_wait(&r);
}

static uint64_t global_of(struct sg_module *m, const char *name)
{
	uint64_t address = 0;
	size_t bytes;
	sg_module_global(m, name, &address, &bytes);
	return address;
}

/* large: as functions. */
static void test(bool large)
{
	const struct ebpf_fragment *all[] = { &thread_mem, &warp_mem, &thread_edge[0], &thread_edge[1], &thread_edge[2] }, *list[5];
	struct ebpf_fragment other[5];
	struct arena *a = arena_new();
	struct ptx_module *ptx = parse_text(original);
	struct instrument_request req = { .module = ptx, .kernel = "k", .fragments = list, .n_fragments = 5 };
	struct instrument_result result;
	struct diag d = { 0 };
	for (int i = 0; i < 5; i++) {
		other[i] = large ? make_large(a, all[i]) : *all[i];
		list[i] = &other[i];
	}
	is_int(instrument_kernel(a, &req, &result, &d), 0, "instrumented %s", d.text);
	is_int(strstr(result.ptx, "call __egpu_program2, (") != NULL, large, "whether sites call: both for accesses, the one at both exits, not those at the entry");
	ok(!strstr(result.ptx, "__egpu_program3"), "and no more");
	is_int(result.n_sites, N_SITES, "sites");
	is_int(result.n_probed, N_SITES, "all probed");
	is_int(result.launch_param_offset, offsetof(struct params, launch), "place of the launch id");

	device_open(2, 0);
	struct sg_module *plain = load(original), *variant = load(result.ptx);
	ok(plain && variant, "both modules load");
	size_t bytes = (size_t)GRID * BLOCK * 128;
	uint64_t records = alloc(N_SITES * sizeof(struct record));
	struct params first = { alloc(bytes), N, 0, 0 }, second = { alloc(bytes), N, 0, LAUNCH };
	uint64_t *table = (uint64_t *)global_of(variant, "__egpu_table");
	table[0] = records;
	for (uint32_t i = 0; i < result.n_symbols; i++)
		table[EBPF_TABLE_SYMBOLS + i] = global_of(plain, result.symbols[i]);
	is_int(launch(plain, &first), CUDA_SUCCESS, "the original runs");
	is_int(launch(variant, &second), CUDA_SUCCESS, "the variant runs");
	ok(!memcmp((void *)first.out, (void *)second.out, bytes), "same results");
	is_int(*(uint32_t *)global_of(plain, "total"), 2 * 323, "both count in the original's variable");

	struct record want[N_SITES] = { { 0 } };
	const struct record *got = (const struct record *)records;
	struct bases bases = { .out = second.out };
	bases.bias = global_of(plain, "bias");
	bases.weights = global_of(plain, "weights");
	bases.total = global_of(plain, "total");
	/* Shared memory's addresses are softgpu's own business: 8 + 4t on average. */
	uint64_t offsets = 0;
	for (uint32_t i = 0; i < N; i++)
		offsets += 8 + i % BLOCK * 4;
	bases.tile = (got[SITE_TILE].address - offsets) / N;
	bases.generic_tile = bases.tile;
	for (uint32_t block = 0; block < GRID; block++) {
		for (uint32_t t = 0; t < BLOCK; t += 32)
			expect_warp(want, &bases, block, t);
	}
	compare(got, want);
	sg_module_free(plain);
	sg_module_free(variant);
	sg_device_free(device);
	ptx_module_free(ptx);
	arena_free(a);
}

int main(void)
{
	test(false);
	test(true);
	return tap_done();
}
