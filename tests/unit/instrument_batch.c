/* instrument_batch.c - records of several places in one reservation are the records that each place by itself would have made: of
 * lanes side by side and anywhere, of warps in part, of places that do not take part, and in rings without room.
 */
#include "instrument.h"
#include "softgpu_run.h"

#include "egpu/access.h"
#include "map/map.h"
#include "probe.h"
#include "ringwalk.h"
#include "translate/translate.h"

static const char original[] = PTX_HEAD
	".visible .entry k(.param .u64 data, .param .u32 n)\n"
	"{\n"
	" .reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>;\n"
	" .shared .align 16 .b8 tile[1024];\n"
	" ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [n];\n"
	" mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	" mad.lo.u32 %r5, %r2, %r3, %r4;\n"
	" setp.ge.u32 %p1, %r5, %r1;\n"
	" @%p1 bra $out;\n"
	" mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;\n"
	" ld.global.u32 %r6, [%rd3];\n"
	" add.s64 %rd4, %rd3, 65536;\n"
	" ld.global.u32 %r7, [%rd4+-16];\n"
	" add.u32 %r8, %r6, %r7;\n"
	" shl.b64 %rd5, %rd2, 1; add.s64 %rd6, %rd1, %rd5; add.s64 %rd6, %rd6, 131072;\n" /* %rd6 is written twice */
	" st.global.u32 [%rd6], %r8;\n"
	" cvta.to.global.u64 %rd7, %rd1; add.s64 %rd8, %rd7, %rd2;\n"
	" st.global.u32 [%rd8+262144], %r8;\n"		  /* lanes side by side, of what comes after the loads */
	" mul.wide.u32 %rd9, %r5, 128; add.s64 %rd10, %rd1, %rd9;\n"
	" st.global.u16 [%rd10+294912], %r6;\n"	  /* 128 bytes apart */
	" bar.sync 0;\n"
	" and.b32 %r9, %r5, 7; shr.u32 %r10, %r5, 3; mad.lo.u32 %r9, %r10, 1024, %r9; mul.wide.u32 %rd11, %r9, 4;\n"
	" add.s64 %rd11, %rd1, %rd11;\n"
	" ld.global.u32 %r11, [%rd11];\n"		  /* tiles of eight */
	" mul.lo.u32 %r12, %r5, 2654435761; and.b32 %r12, %r12, 65532; cvt.u64.u32 %rd12, %r12; add.s64 %rd12, %rd1, %rd12;\n"
	" ld.global.u32 %r13, [%rd12];\n"		  /* anywhere */
	" add.s64 %rd13, %rd3, %rd2;\n"
	" ld.global.u64 %rd13, [%rd13+524288];\n"	  /* its own address */
	" and.b64 %rd13, %rd13, 1020; add.s64 %rd13, %rd13, %rd1;\n"
	" ld.global.u32 %r14, [%rd13];\n"		  /* of what was loaded */
	" ld.u32 %r15, [%rd4];\n"			  /* generic */
	" shl.b32 %r16, %r4, 2; mov.u32 %r17, tile; add.u32 %r16, %r16, %r17;\n"
	" st.shared.u32 [%r16], %r15;\n"
	" setp.gt.u32 %p2, %r5, 77;\n"
	" @%p2 ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd1];\n"
	" red.global.add.u32 [%rd1+1048576], 1;\n"
	" { .reg .b64 %rd3; mov.u64 %rd3, %rd1; ld.global.v2.u32 {%r6, %r7}, [%rd3+64]; }\n"
	" add.s64 %rd3, %rd3, 8;\n"
	" st.global.u8 [%rd3+786432], %r6;\n"
	" mov.u32 %r18, 0;\n"
	"$loop:\n"
	" ld.global.u32 %r19, [%rd8];\n"
	" ld.global.u32 %r19, [%rd8+4096];\n"
	" add.s64 %rd8, %rd8, 256;\n"
	" st.global.u32 [%rd8+800000], %r19;\n"
	" add.u32 %r18, %r18, 1; setp.lt.u32 %p3, %r18, 5;\n"
	" @%p3 bra $loop;\n"
	" ld.shared.u32 %r18, [%r16]; ld.shared.u16 %rs1, [%r16+2];\n"	  /* 32-bit addresses, together */
	" mov.u64 %rd14, %rd2; mov.u32 %r16, 0xffffffff;\n"
	" bar.sync 0;\n"
	" ld.global.u32 %r6, [%rd3];\n"
	" add.s64 %rd15, %rd14, %rd1; mov.u64 %rd14, 64; add.s64 %rd16, %rd15, %rd14;\n" /* %rd14 is read before it is written */
	" st.global.u32 [%rd16+900000], %r6;\n"
	" bar.sync 0;\n"
	" add.cc.u32 %r16, %r16, 1;\n"
	" ld.global.u32 %r6, [%rd3];\n"
	" addc.u32 %r17, %r4, 0;\n" /* the sum before carries */
	" add.cc.u32 %r18, %r4, %r4; cvt.u64.u32 %rd17, %r18; add.s64 %rd18, %rd17, %rd1;\n"
	" st.global.u8 [%rd18+1000000], %r17;\n"
	"$out:\n"
	" ret;\n"
	"}\n"
	/* Pairs of places, of which the second's address is the first's and a number, or looks like it. */
	".visible .entry pairs(.param .u64 data, .param .u32 n)\n"
	"{\n"
	" .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<40>;\n"
	" ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [n];\n"
	" mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	" mad.lo.u32 %r5, %r2, %r3, %r4;\n"
	" setp.ge.u32 %p1, %r5, %r1;\n"
	" @%p1 bra $out;\n"
	" mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2;\n"
	" bar.sync 0;\n"
	" add.s64 %rd4, %rd1, %rd2; ld.global.u32 %r6, [%rd4]; shl.b64 %rd2, %rd2, 1; add.s64 %rd5, %rd1, %rd2;\n"
	" ld.global.u32 %r7, [%rd5+65536]; shr.u64 %rd2, %rd2, 1;\n" /* the register in common was written between */
	" bar.sync 0;\n"
	" and.b32 %r8, %r4, 1; setp.eq.u32 %p2, %r8, 1; add.s64 %rd6, %rd1, %rd2; @%p2 add.s64 %rd6, %rd6, 64;\n"
	" ld.global.u32 %r6, [%rd3]; ld.global.u32 %r7, [%rd6+131072];\n" /* in some lanes */
	" bar.sync 0;\n"
	" shl.b32 %r9, %r5, 3; add.u32 %r9, %r9, 64; cvt.u64.u32 %rd7, %r9; add.s64 %rd8, %rd1, %rd7;\n"
	" ld.global.u32 %r6, [%rd3]; ld.global.u32 %r7, [%rd8+262144];\n" /* of something else */
	" bar.sync 0;\n"
	" sub.s64 %rd9, %rd3, %rd2; ld.global.u32 %r6, [%rd3]; ld.global.u32 %r7, [%rd9];\n" /* less what lanes differ in */
	" bar.sync 0;\n"
	" sub.s64 %rd10, %rd3, 64; ld.global.u32 %r6, [%rd3]; ld.global.u32 %r7, [%rd10+4096];\n" /* ALIKE: less a number */
	" bar.sync 0;\n"
	" mul.wide.s32 %rd11, %r5, 4; mul.wide.s32 %rd12, %r5, -4; add.s64 %rd11, %rd11, %rd1; add.s64 %rd12, %rd12, %rd1;\n"
	" ld.global.u32 %r6, [%rd11]; ld.global.u32 %r7, [%rd12+65536];\n" /* the other way round */
	" bar.sync 0;\n"
	" ld.global.u32 %r6, [%rd3]; ld.global.u16 %r7, [%rd3+4096];\n" /* fewer bytes */
	" bar.sync 0;\n"
	" ld.param.u64 %rd13, [data]; add.s64 %rd13, %rd13, %rd2; ld.global.u32 %r6, [%rd3]; add.s64 %rd14, %rd2, %rd1;\n"
	" ld.global.u32 %r7, [%rd13+4096]; ld.global.u32 %r7, [%rd14+8192];\n" /* ALIKE, %rd3 not: its sum is not seen here */
	" bar.sync 0;\n"
	" mov.u32 %r10, %ctaid.x; mul.wide.u32 %rd15, %r10, 4096; add.s64 %rd15, %rd15, %rd3;\n"
	" ld.global.u32 %r6, [%rd3]; ld.global.u32 %r7, [%rd15];\n" /* ALIKE: farther in each block */
	" bar.sync 0;\n"
	" mov.u32 %r11, %laneid; mul.wide.u32 %rd16, %r11, 4; add.s64 %rd16, %rd16, %rd3;\n"
	" ld.global.u32 %r6, [%rd3]; ld.global.u32 %r7, [%rd16+16384];\n" /* farther in each lane */
	" bar.sync 0;\n"
	" add.s64 %rd17, %rd1, 4096; mad.wide.s32 %rd18, %r5, 4, %rd1; mad.wide.s32 %rd19, %r5, 4, %rd17;\n"
	" ld.global.u32 %r6, [%rd18]; ld.global.u32 %r7, [%rd19];\n" /* ALIKE: products */
	" bar.sync 0;\n"
	" mad.wide.s32 %rd20, %r5, 4, %rd1; add.u32 %r12, %r5, %r4; mad.wide.s32 %rd21, %r12, 4, %rd1;\n"
	" ld.global.u32 %r6, [%rd20]; ld.global.u32 %r7, [%rd21+32768];\n" /* of another number */
	" bar.sync 0;\n"
	" ld.global.u32 %r6, [%rd3]; { .reg .b64 %rd2; mul.wide.u32 %rd2, %r4, 8; add.s64 %rd22, %rd1, %rd2; }\n"
	" ld.global.u32 %r7, [%rd22+65536]; add.s64 %rd23, %rd1, %rd2; ld.global.u32 %r7, [%rd23+8192];\n" /* one name, two registers */
	" bar.sync 0;\n"
	" ld.global.u32 %r6, [%rd3]; add.s64 %rd3, %rd3, %rd2; ld.global.u32 %r7, [%rd3+16384]; sub.s64 %rd3, %rd3, %rd2;\n" /* its own register */
	" bar.sync 0;\n"
	" ld.global.u32 %r6, [%rd3]; ld.global.u32 %r7, [%rd3+128]; st.global.u32 [%rd3+2097152], %r6;\n" /* ALIKE: both */
	"$out:\n"
	" ret;\n"
	"}\n";

enum { ALIKE = 6 };

enum { GRID = 5, BLOCK = 112, N = 517, DATA = 4 << 20, SMS = 4, MAX_RECORDS = 1 << 17, RECORD = 64 };

/* Records, or accesses of lanes: how lanes that part come together in records is chance. */
struct got {
	uint8_t (*all)[RECORD];
	uint32_t n;
	bool accesses, bad;
	uint64_t *order; /* by thread: of the sites that it sent from, as they lie in the ring; where the program says which thread */
	uint64_t memory; /* what the kernel left there */
	uint32_t shuffles, calls; /* instructions of the variant's text */
};

struct wide { /* of the probe */
	uint64_t address;
	uint32_t site, thread, block, op, space;
};

static void take(void *arg, const void *record, uint32_t bytes)
{
	struct got *g = arg;
	struct egpu_access x;
	if (g->accesses && egpu_access_decode(record, bytes, &x))
		g->bad = true;
	for (uint32_t lane = 0; g->accesses && !g->bad && lane < 32; lane++) {
		if (!(x.mask >> lane & 1) || g->n == MAX_RECORDS)
			continue;
		const uint64_t one[] = { x.address[lane], (uint64_t)x.site << 32 | lane, (uint64_t)x.bytes << 32 | x.op };
		memset(g->all[g->n], 0, RECORD);
		memcpy(g->all[g->n++], one, sizeof(one));
	}
	struct wide w;
	if (!g->accesses && bytes == 28) {
		memcpy(&w, record, bytes);
		uint64_t *order = &g->order[(w.block % GRID) * BLOCK + w.thread % BLOCK];
		*order = *order * 1000003 + w.site;
	}
	g->bad |= g->n == MAX_RECORDS || bytes > RECORD - 4u + (g->accesses ? 256u : 0);
	if (g->accesses || g->bad)
		return;
	memset(g->all[g->n], 0, RECORD);
	memcpy(g->all[g->n], &bytes, 4);
	memcpy(g->all[g->n++] + 4, record, bytes);
}

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, RECORD);
}

static uint64_t global_of(struct sg_module *m, const char *name)
{
	uint64_t address = 0;
	size_t bytes;
	sg_module_global(m, name, &address, &bytes);
	return address;
}

static struct arena *arena;
static struct ptx_module *module;
static const char *kernel = "k";
static uint64_t data;

/* Runs the kernel with the program; `batches`: how many reservations for several places the variant has. */
static struct ringwalk run_with(const struct probe_object *o, const struct ebpf_fragment *f, int launches, struct got *got, uint32_t *batches)
{
	const struct ebpf_fragment *list[] = { f };
	struct instrument_request req = { .module = module, .kernel = kernel, .fragments = list, .n_fragments = 1, .first_site = 40 };
	struct instrument_result result;
	struct diag d = { 0 };
	struct ringwalk none = { .bad = 1 };
	const struct { uint64_t data; uint32_t n; } params = { data, N };
	uint64_t memory[8] = { 0 };
	struct run r;
	got->n = *batches = got->shuffles = got->calls = 0;
	got->bad = false;
	memset(got->order, 0, GRID * BLOCK * sizeof(*got->order));
	if (instrument_kernel(arena, &req, &result, &d)) {
		printf("# %s\n", d.text);
		return none;
	}
	for (const char *p = result.ptx; (p = strstr(p, "mov.b32 %egpu_items")); p++)
		++*batches;
	for (const char *p = result.ptx; (p = strstr(p, "shfl.sync")); p++)
		got->shuffles++;
	for (const char *p = result.ptx; (p = strstr(p, "call __egpu_program")); p++)
		got->calls++;
	struct sg_module *m = load(result.ptx);
	if (!m)
		return none;
	uint64_t *table = (uint64_t *)global_of(m, "__egpu_table");
	table[EBPF_TABLE_SMS] = SMS;
	for (uint32_t k = 0; k < o->n_maps && k < 8; k++) {
		const struct ebpf_map *def = &o->maps[k];
		bool ring = def->type == BPF_MAP_TYPE_RINGBUF;
		memory[k] = table[k] = alloc(map_device_bytes(def->type, def->key_size, def->value_size, def->max_entries, ring ? SMS : 1));
		map_image_init((struct map_image *)memory[k], def->type, def->key_size, def->value_size, def->max_entries, ring ? SMS : 1);
	}
	memset((void *)data, 0, DATA);
	for (uint32_t k = 0; k < DATA / 8; k++)
		((uint64_t *)data)[k] = k * UINT64_C(0x9e3779b97f4a7c15);
	CUresult e = CUDA_SUCCESS;
	for (int k = 0; k < launches && e == CUDA_SUCCESS; k++) {
		e = run_start(&r, sg_module_kernel(m, kernel), GRID, BLOCK, 0, &params, false);
		if (e == CUDA_SUCCESS)
			e = run_wait(&r);
	}
	struct ringwalk all = { .bad = e };
	got->memory = 0;
	for (uint32_t k = 0; k < DATA / 8; k++)
		got->memory = (got->memory ^ ((uint64_t *)data)[k]) * UINT64_C(0x100000001b3);
	for (uint32_t k = 0; k < o->n_maps && k < 8; k++) {
		if (o->maps[k].type == BPF_MAP_TYPE_RINGBUF) {
			struct ringwalk w = ring_walk((void *)memory[k], take, got);
			all.records += w.records;
			all.lost += w.lost;
			all.bad += w.bad;
			all.groups += w.groups;
			all.closed += w.closed;
		}
		sg_mem_free(device, memory[k]);
	}
	sg_module_free(m);
	all.bad += got->bad;
	qsort(got->all, got->n, RECORD, compare);
	return all;
}

/* Every record of b, with repetitions, is one of a. */
static bool contains(const struct got *a, const struct got *b)
{
	uint32_t i = 0;
	for (uint32_t k = 0; k < b->n; k++, i++) {
		while (i < a->n && memcmp(a->all[i], b->all[k], RECORD) < 0)
			i++;
		if (i == a->n || memcmp(a->all[i], b->all[k], RECORD))
			return false;
	}
	return true;
}

/* The same where each place is asked whether its lanes lie side by side. */
static void ask_all(const struct probe_object *o, const char *name, const struct ebpf_fragment *f, const struct got *want, struct got *got)
{
	struct ebpf_batch batch = *f->batch;
	struct ebpf_fragment asking = *f;
	uint32_t fewer = got->shuffles, batches;
	asking.batch = &batch;
	batch.like = NULL;
	struct ringwalk w = run_with(o, &asking, 1, got, &batches);
	ok(!w.bad && contains(want, got) && contains(got, want), "%s: and with every question", name);
	ok(fewer < got->shuffles, "%s: of which %u are %u", name, got->shuffles, fewer);
}

/* Where it is not asked. */
static void check_alike(const struct probe_object *o, const struct ebpf_fragment *f, struct got *want, struct got *got)
{
	struct ebpf_batch batch = *f->batch;
	struct ebpf_fragment asking = *f, plain = *f;
	uint32_t batches, fewer;
	asking.batch = &batch;
	plain.batch = NULL;
	batch.like = NULL;
	kernel = "pairs";
	struct ringwalk a = run_with(o, &plain, 1, want, &batches), b = run_with(o, f, 1, got, &batches);
	ok(!a.bad && !b.bad && got->n && contains(want, got) && contains(got, want), "pairs: the same accesses");
	fewer = got->shuffles;
	run_with(o, &asking, 1, got, &batches);
	is_int(got->shuffles - fewer, 2 * ALIKE, "pairs: two shuffles less where one address is another and a number");
	kernel = "k";
}

/* The same as a function that sites call, in chosen ones together. */
static void call_it(const struct probe_object *o, const char *name, const struct ebpf_fragment *f, const struct got *want, struct got *got, bool tiny)
{
	struct ebpf_fragment large = make_large(arena, f);
	uint32_t batches;
	struct ringwalk w = run_with(o, &large, 1, got, &batches);
	ok(!w.bad && got->calls > 1, "%s: as a function, called at %u places", name, got->calls);
	ok(tiny || (!w.lost && contains(want, got) && contains(got, want)), "%s: which sends the same records", name);
	is_int(batches, 0, "%s: none of them together: that would be as long", name);
}

static void check(const struct probe_object *o, uint32_t k)
{
	static const char *const alone[] = { "counts_too", "some_lanes", "twice", "changes_its_mind" };
	const struct ebpf_program *p = &o->progs[k].program;
	struct verifier_result v;
	struct ebpf_fragment f, plain;
	struct diag d = { 0 };
	struct got want = { .all = calloc(MAX_RECORDS, RECORD), .order = calloc(GRID * BLOCK, 8) };
	struct got got = { .all = calloc(MAX_RECORDS, RECORD), .order = calloc(GRID * BLOCK, 8) };
	bool expected = true, tiny = strstr(p->name, "tiny"), accesses = strstr(p->name, "access");
	want.accesses = got.accesses = accesses;
	uint32_t none, batches;
	for (size_t i = 0; i < sizeof(alone) / sizeof(alone[0]); i++)
		expected &= strcmp(p->name, alone[i]) != 0;
	if (verifier_check(arena, p, NULL, &v, NULL, &d) || translate_program(arena, p, &v, o->progs[k].point, false, &f, &d)) {
		ok(0, "%s: %s", p->name, d.text);
		return;
	}
	is_int(f.batch != NULL, expected, "%s: whether it can have its records together", p->name);
	struct buf text = { 0 };
	ebpf_fragment_print(&f, &text);
	is_int(ebpf_fragment_parse(arena, text.data, text.len, &f, &d), 0, "%s: its text is read back %s", p->name, d.text);
	buf_free(&text);
	plain = f;
	plain.batch = NULL;
	is_int(f.batch && f.batch->like, expected && accesses, "%s: whether it can leave out a question", p->name);
	for (uint32_t seed = 0; seed < 3; seed++) {
		device_open(1 + seed, seed);
		data = alloc(DATA);
		struct ringwalk a = run_with(o, &plain, tiny ? 4 : 1, &want, &none), b = run_with(o, &f, tiny ? 4 : 1, &got, &batches);
		printf("# %s: %u batches, %u groups with and %u without, %u records, %u lost\n", p->name, batches, (unsigned)b.groups,
			(unsigned)a.groups, (unsigned)b.records, (unsigned)b.lost);
		ok(!a.bad && !b.bad && !none && (batches > 0) == expected, "%s: whole groups", p->name);
		if (!accesses || !seed)
			is_int(b.records + b.lost, a.records + a.lost, "%s: as many, had or lost", p->name);
		if (tiny)
			ok(b.lost && b.records, "%s: there is no room for all", p->name);
		else
			ok(!a.lost && !b.lost && got.n && contains(&want, &got) && contains(&got, &want), "%s: the same records", p->name);
		if (f.batch && f.batch->like && !tiny)
			ask_all(o, p->name, &f, &want, &got);
		ok(want.memory == got.memory, "%s: the kernel does what it did", p->name);
		ok(!memcmp(want.order, got.order, GRID * BLOCK * sizeof(*got.order)), "%s: in the same order", p->name);
		if (!seed)
			call_it(o, p->name, &f, &want, &got, tiny);
		if (!strcmp(p->name, "access_global"))
			check_alike(o, &f, &want, &got);
		sg_device_free(device);
	}
	free(want.all);
	free(got.all);
	free(want.order);
	free(got.order);
}

int main(void)
{
	const char *clang = probe_clang(false);
	char object[] = "/tmp/egpu-batch-XXXXXX";
	struct probe_object o;
	if (!clang) {
		printf("1..0 # SKIP no clang that knows BPF\n");
		return 0;
	}
	arena = arena_new();
	module = parse_text(original);
	close(mkstemp(object));
	bool fine = arena && module && probe_compile(clang, PROBE_SOURCES "/batch.bpf.c", "v3", object) && probe_read(arena, object, &o);
	ok(fine, "the programs are there");
	for (uint32_t k = 0; fine && k < o.n_progs; k++)
		check(&o, k);
	unlink(object);
	ptx_module_free(module);
	arena_free(arena);
	return tap_done();
}
