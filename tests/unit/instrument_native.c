/* Programs as machine code for guards give what the interpreter gives: every field of every context, in lanes that came together and lanes that
 * did not, once a thread and once a warp, one program and several. And ptxas takes the text for every target. */
#include <linux/bpf.h>

#include "bpf/context.h"
#include "cuda/fatbin.h"
#include "driver_test.h"
#include "instrument/instrument.h"
#include "live/object.h"
#include "live/program.h"
#include "map/map.h"
#include "translate/translate.h"

enum { GRID = 2 * 1 * 2, BLOCK = 8 * 3 * 4, THREADS = GRID * BLOCK, SITE = 1234, KERNEL = 77, ROOM = 65536, OLD_LIST = 512, NUMBER = 3 };

struct value {
	struct {
		uint64_t runs, seen;
	} program[2];
};

#define I(c, d, s, o, i) ((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define LOAD(size, d, at) I(BPF_LDX | BPF_MEM | (size), d, 6, (int16_t)(at), 0)
#define OP(op, d, s) I(BPF_ALU64 | (op) | BPF_X, d, s, 0, 0)
#define OPI(op, d, i) I(BPF_ALU64 | (op) | BPF_K, d, 0, 0, i)

struct text {
	struct bpf_insn insns[512];
	uint32_t n;
};

static void add(struct text *t, struct bpf_insn i)
{
	t->insns[t->n++] = i;
}

/* r7 = (r7 * what `times` says) + what `plus` says. */
static void step(struct text *t, enum ebpf_field times, enum ebpf_field plus)
{
	add(t, LOAD(BPF_W, 2, ebpf_fields[times].offset));
	add(t, OP(BPF_MUL, 7, 2));
	add(t, LOAD(BPF_W, 2, ebpf_fields[plus].offset));
	add(t, OP(BPF_ADD, 7, 2));
}

/* Each thread's own value: counts, and mixes all fields of the context. */
static void write_program(struct text *t, enum ebpf_context context, uint32_t k)
{
	bool one_lane = context == EBPF_CONTEXT_WARP || context == EBPF_CONTEXT_WARP_MEM;
	t->n = 0;
	add(t, OP(BPF_MOV, 6, 1));
	add(t, LOAD(BPF_W, 7, ebpf_fields[EBPF_FIELD_BLOCK_Z].offset));
	step(t, EBPF_FIELD_GRID_DIM_Y, EBPF_FIELD_BLOCK_Y);
	step(t, EBPF_FIELD_GRID_DIM_X, EBPF_FIELD_BLOCK_X);
	add(t, OPI(BPF_MUL, 7, BLOCK / 32));
	add(t, LOAD(BPF_W, 2, ebpf_fields[EBPF_FIELD_WARP].offset));
	add(t, OP(BPF_ADD, 7, 2));
	add(t, OPI(BPF_MUL, 7, 32));
	add(t, LOAD(BPF_W, 2, ebpf_fields[EBPF_FIELD_LANE].offset));
	add(t, OP(BPF_ADD, 7, 2));
	add(t, I(BPF_STX | BPF_MEM | BPF_W, 10, 7, -4, 0));
	add(t, I(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, 0));
	add(t, I(0, 0, 0, 0, 0));
	add(t, OP(BPF_MOV, 2, 10));
	add(t, OPI(BPF_ADD, 2, -4));
	add(t, I(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem));
	uint32_t jump = t->n;
	add(t, I(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 0, 0));
	add(t, OPI(BPF_MOV, 8, (int32_t)k));
	for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
		const struct ebpf_field_row *row = &ebpf_fields[f];
		if (!(row->contexts >> context & 1) || (one_lane && f >= EBPF_FIELD_THREAD_X && f <= EBPF_FIELD_THREAD_Z))
			continue;
		add(t, LOAD(row->bytes == 8 ? BPF_DW : BPF_W, 2, row->offset));
		add(t, OPI(BPF_MUL, 8, 0x1e3779b1));
		add(t, OP(BPF_ADD, 8, 2));
	}
	add(t, I(BPF_STX | BPF_MEM | BPF_DW, 0, 8, (int16_t)offsetof(struct value, program[k].seen), 0));
	add(t, OPI(BPF_MOV, 1, 1));
	add(t, I(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, (int16_t)offsetof(struct value, program[k].runs), BPF_ADD));
	t->insns[jump].off = (int16_t)(t->n - jump - 1);
	add(t, OPI(BPF_MOV, 0, 0));
	add(t, I(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
}

/* -- the kernel ------------------------------------------------------------------ */

/* Guards without their words: each of the ways to come there calls what the list says. Addresses meet in part. */
#define CALL_AT                                                                                                                          \
	"\t{ .param .b64 p0; st.param.b64 [p0], %list; .param .b64 p1; st.param.b64 [p1], %where; .param .b64 p2; st.param.b64 [p2], %block;\n" \
	"\tcall " LIVE_CALL_AT ", (p0, p1, p2); }\n"
#define CALL_RUN                                                                                                                         \
	"\t{ .param .b64 p0; st.param.b64 [p0], %list; .param .b32 p1; st.param.b32 [p1], 2; .param .b32 p2; st.param.b32 [p2], 1234;\n"     \
	"\t.param .b32 p3; st.param.b32 [p3], 77; .param .b64 p4; st.param.b64 [p4], %address; .param .b32 p5; st.param.b32 [p5], %bytes;\n" \
	"\t.param .b32 p6; st.param.b32 [p6], 1; .param .b32 p7; st.param.b32 [p7], %op; .param .b32 p8; st.param.b32 [p8], 8;\n"            \
	"\t.param .b64 p9; st.param.b64 [p9], %value; .param .b64 p10; st.param.b64 [p10], %address; .param .b64 p11; st.param.b64 [p11], 3;\n" \
	"\t.param .b64 p12; st.param.b64 [p12], %value;\n"                                                                                   \
	"\tcall " LIVE_CALL_RUN ", (p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12); }\n"
#define ENTRY(name, CALL)                                                                                                                \
	".visible .entry " name "(.param .u64 list, .param .u64 where, .param .u64 block, .param .u32 bytes, .param .u32 op)\n{\n"             \
	"\t.reg .pred %p; .reg .b32 %t, %bytes, %op; .reg .b64 %list, %where, %block, %address, %value;\n"                                   \
	"\tld.param.u64 %list, [list]; ld.param.u64 %where, [where]; ld.param.u64 %block, [block]; ld.param.u32 %bytes, [bytes];\n"          \
	"\tld.param.u32 %op, [op]; mov.u32 %t, %laneid; mul.wide.u32 %value, %t, 77777; shr.u32 %t, %t, 1; mul.wide.u32 %address, %t, %bytes;\n" \
	CALL "\tmov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 3; @%p bra FEW;\n" CALL "\tbra DONE;\nFEW:\n" CALL CALL "DONE:\n\tret;\n}\n"

static CUfunction load_kernels(CUfunction *access)
{
	struct buf ptx = { 0 };
	CUmodule m;
	CUfunction f;
	static const char *const functions[] = { LIVE_RUN, LIVE_AT, LIVE_CALL_RUN, LIVE_CALL_AT };
	buf_puts(&ptx, PTX_HEAD);
	for (int i = 0; i < 4; i++)
		buf_puts(&ptx, live_function_text(functions[i]));
	buf_puts(&ptx, ENTRY("place", CALL_AT) ENTRY("access", CALL_RUN));
	need(cuModuleLoadData(&m, ptx.data));
	need(cuModuleGetFunction(&f, m, "place"));
	need(cuModuleGetFunction(access, m, "access"));
	buf_free(&ptx);
	return f;
}

/* -- one case ---------------------------------------------------------------------- */

struct one {
	const char *what;
	enum ebpf_context context;
	enum ebpf_point point;
	bool warp;
	uint32_t bytes, op, programs;
};

static CUdeviceptr image, code, lists, inside, word;
static CUfunction at_place, at_access;
static struct ebpf_map map = {
	.name = "m", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = sizeof(struct value), .max_entries = THREADS
};

static void run(const struct one *x, enum live_point point, CUdeviceptr list, struct value *out)
{
	struct map_image header = { 0 };
	static const struct value zeros[THREADS];
	uint64_t where = SITE | (uint64_t)KERNEL << 32 | (uint64_t)point << 48, block = point == LIVE_LOOP ? 5 | (uint64_t)9 << 32 : 0;
	uint32_t bytes = x->bytes, op = x->op;
	void *params[] = { &list, &where, &block, &bytes, &op };
	map_image_init(&header, map.type, 4, map.value_size, THREADS, 1);
	need(cuMemcpyHtoD(image, &header, sizeof(header)));
	need(cuMemcpyHtoD(image + MAP_IMAGE_HEADER, zeros, sizeof(zeros)));
	need(cuLaunchKernel(point == LIVE_MEM ? at_access : at_place, 2, 1, 2, 8, 3, 4, 0, NULL, params, NULL));
	need(cuCtxSynchronize());
	need(cuMemcpyDtoH(out, image + MAP_IMAGE_HEADER, sizeof(zeros)));
}

static void lead_to(CUdeviceptr list)
{
	need(cuMemcpyHtoD(word, &list, sizeof(list)));
}

static void open_list(uint32_t number, uint64_t rest_until)
{
	static struct live_line open[LIVE_SMS];
	for (uint32_t i = 0; i < LIVE_SMS; i++)
		open[i] = (struct live_line){ .n = number | (rest_until ? LIVE_RESTS : 0), .rest_until = rest_until };
	need(cuMemcpyHtoD(inside + offsetof(struct live_inside, open), open, sizeof(open)));
}

static bool any_inside(void)
{
	static struct live_line counts[LIVE_SMS];
	uint64_t n = 0;
	need(cuMemcpyDtoH(counts, inside, sizeof(counts)));
	for (uint32_t i = 0; i < LIVE_SMS; i++)
		n |= counts[i].n;
	return n != 0;
}

static CUdeviceptr put_data(const struct buf *object, CUdeviceptr at)
{
	const struct live_object *o;
	const struct live_reloc *relocs;
	const uint64_t *insns;
	static uint64_t words[1024];
	struct live_program *p = (struct live_program *)words;
	if (live_object_parse(object->data, object->len, &o, &relocs, &insns, NULL))
		return 0;
	*p = (struct live_program){ .n_insns = o->n_insns, .flags = o->flags, .budget = o->budget, .sms = 1, .ops = o->ops };
	memcpy(p->insns, insns, o->n_insns * 8);
	for (uint32_t k = 0; k < o->n_relocs; k++) {
		uint64_t to = image + relocs[k].offset, *lo = &p->insns[relocs[k].insn];
		lo[0] |= to << 32;
		lo[1] |= to >> 32 << 32;
	}
	need(cuMemcpyHtoD(at, words, sizeof(*p) + o->n_insns * 8));
	return at;
}

static bool put_code(const struct buf *ptx, CUdeviceptr at)
{
	CUlinkState s;
	void *cubin;
	size_t bytes;
	struct cubin_code c;
	static char text[ROOM];
	need(cuLinkCreate(0, NULL, NULL, &s));
	CUresult r = cuLinkAddData(s, CU_JIT_INPUT_PTX, ptx->data, ptx->len + 1, "native", 0, NULL, NULL);
	if (!r)
		r = cuLinkComplete(s, &cubin, &bytes);
	bool good = !r && !cubin_code(cubin, bytes, NATIVE_NAME, at, text, sizeof(text), &c);
	if (good)
		need(cuMemcpyHtoD(at, text, c.bytes));
	need(cuLinkDestroy(s));
	return good;
}

/* ptxas is asked for other targets than softgpu's device. */
static bool judged(const struct native_request *r)
{
	static const uint32_t ccs[] = { 70, 75, 80, 86, 89, 90, 100 };
	char path[] = "/tmp/egpu-native-XXXXXX", command[256];
	bool good = true;
	int fd = mkstemp(path);
	for (int i = 0; i < 7 && fd >= 0; i++) {
		struct native_request other = *r;
		struct buf ptx = { 0 };
		other.cc = ccs[i] < 75 ? 75 : ccs[i]; /* ptxas 13 knows no sm_70 */
		good = good && !instrument_native(&other, &ptx, NULL) && !ftruncate(fd, 0) &&
		       pwrite(fd, ptx.data, ptx.len, 0) == (ssize_t)ptx.len;
		snprintf(command, sizeof(command), "PATH=$PATH:/usr/local/cuda/bin ptxas -c -arch=sm_%u -o /dev/null %s", other.cc, path);
		good = good && !system(command);
		buf_free(&ptx);
	}
	close(fd);
	unlink(path);
	return good;
}

static void try(const struct one *x, bool ptxas)
{
	struct arena *arena = arena_new();
	struct ebpf_fragment fragments[2];
	const struct ebpf_fragment *list[] = { &fragments[0], &fragments[1] };
	uint64_t table[EBPF_TABLE_SYMBOLS] = { image };
	uint32_t ops[2] = { ~0u, ~0u };
	enum live_point point = LIVE_ENTRY;
	struct live_list words = { .n = x->programs };
	static struct value by_data[THREADS], by_code[THREADS], by_word[THREADS], gone[THREADS], rest[THREADS];
	struct buf ptx = { 0 };
	struct diag d = { 0 };
	uint64_t rested = 0;
	bool good = true;
	table[EBPF_TABLE_SMS] = 1;
	for (uint32_t k = 0; k < x->programs && good; k++) {
		static struct text t;
		struct verifier_result v;
		struct buf object = { 0 };
		write_program(&t, x->context, k);
		struct ebpf_program p = {
			.name = "p", .insns = t.insns, .n_insns = t.n, .context = x->context, .maps = &map, .n_maps = 1
		};
		good = !verifier_check(arena, &p, NULL, &v, NULL, &d) && !live_point_of(x->point, &point, &ops[k], &d) &&
		       !live_encode(&p, &v, NULL, 0, x->point, x->warp, &object, &d) &&
		       !translate_program(arena, &p, &v, x->point == EBPF_POINT_ENTRY ? EBPF_POINT_EXIT : x->point, x->warp, &fragments[k], &d);
		words.programs[k] = good ? put_data(&object, lists + 4096 * (1 + k)) : 0;
		good = words.programs[k] != 0;
		buf_free(&object);
	}
	struct native_request r = { .fragments = list, .ops = ops, .n = x->programs, .point = point, .table = table, .cc = 80 };
	good = good && !instrument_native(&r, &ptx, &d) && put_code(&ptx, code);
	words.inside = inside;
	words.number = NUMBER;
	words.words = word - LIVE_WORD(point, KERNEL);
	if (good) {
		lead_to(lists);
		open_list(NUMBER, 0);
		need(cuMemcpyHtoD(lists, &words, sizeof(words)));
		run(x, point, lists, by_data);
		words.code = code;
		need(cuMemcpyHtoD(lists, &words, sizeof(words)));
		run(x, point, lists, by_code);
		/* What the guard saw is old: another list, or none, has taken its place. */
		words.n = words.code = 0;
		words.number--;
		need(cuMemcpyHtoD(lists + OLD_LIST, &words, sizeof(words)));
		run(x, point, lists + OLD_LIST, by_word);
		lead_to(0);
		open_list(0, 0);
		run(x, point, lists, gone);
		/* A word may also say that whoever comes upon it sleeps: instead of a list, or behind one that is closed. */
		lead_to(LIVE_REST_UNTIL(UINT64_MAX / 2));
		const uint64_t seen[] = { LIVE_REST_UNTIL(0), LIVE_REST_UNTIL(UINT64_MAX / 2), lists };
		for (int k = 0; k < 3; k++) {
			run(x, point, seen[k], rest);
			for (uint32_t i = 0; i < THREADS; i++)
				rested += rest[i].program[0].runs;
		}
		/* Who comes to a list that is open sleeps first. */
		open_list(NUMBER, UINT64_MAX / 2);
		run(x, point, lists, rest);
	}
	uint64_t runs = 0, differ = 0, old = 0;
	for (uint32_t i = 0; i < THREADS && good; i++) {
		runs += by_code[i].program[0].runs;
		differ += memcmp(&by_data[i], &by_code[i], sizeof(by_data[i])) != 0;
		old += memcmp(&by_word[i], &by_code[i], sizeof(by_data[i])) || gone[i].program[0].runs;
	}
	ok(good && !differ && (runs != 0) == (x->what[0] != 'n'), "%s: %llu runs, interpreted and as machine code%s%s", x->what,
		(unsigned long long)runs, d.err ? ": " : "", d.text);
	ok(good && !old && !any_inside(), "and what the word leads to decides, not what the guard saw; all who came in have left");
	ok(good && !rested && !memcmp(rest, by_code, sizeof(rest)) && !any_inside(), "a word that has lanes rest leads to nothing, a list that has to what is in it");
	if (ptxas && good)
		ok(judged(&r), "ptxas takes it");
	buf_free(&ptx);
	arena_free(arena);
}

int main(void)
{
	static const struct one cases[] = {
		{ "entries", EBPF_CONTEXT_ENTRY, EBPF_POINT_ENTRY, false, 4, 1, 1 },
		{ "exits", EBPF_CONTEXT_EXIT, EBPF_POINT_EXIT, false, 4, 1, 1 },
		{ "loop heads", EBPF_CONTEXT_BLOCK, EBPF_POINT_BLOCK, false, 4, 1, 1 },
		{ "loop heads, two programs", EBPF_CONTEXT_BLOCK, EBPF_POINT_BLOCK, false, 4, 1, 2 },
		{ "loop heads of warps", EBPF_CONTEXT_WARP, EBPF_POINT_BLOCK, true, 4, 1, 1 },
		{ "entries of warps, two programs", EBPF_CONTEXT_WARP, EBPF_POINT_ENTRY, true, 4, 1, 2 },
		{ "accesses", EBPF_CONTEXT_MEM, EBPF_POINT_MEM, false, 8, 3, 1 },
		{ "stores among stores", EBPF_CONTEXT_MEM, EBPF_POINT_STORE, false, 2, 2, 1 },
		{ "no loads among stores", EBPF_CONTEXT_MEM, EBPF_POINT_LOAD, false, 2, 2, 1 },
		{ "accesses of warps, 4 bytes", EBPF_CONTEXT_WARP_MEM, EBPF_POINT_MEM, true, 4, 1, 1 },
		{ "accesses of warps, 16 bytes", EBPF_CONTEXT_WARP_MEM, EBPF_POINT_ATOMIC, true, 16, 3, 2 },
		{ "accesses of warps, 128 bytes", EBPF_CONTEXT_WARP_MEM, EBPF_POINT_LOAD, true, 128, 1, 1 },
	};
	bool ptxas = !system("PATH=$PATH:/usr/local/cuda/bin; ptxas --version >/dev/null 2>&1");
	setenv("EGPU_SOFTGPU", "sm_80,sms=1", 1);
	test_open();
	need(cuMemAlloc(&image, MAP_IMAGE_HEADER + THREADS * sizeof(struct value)));
	need(cuMemAlloc(&code, ROOM));
	need(cuMemAlloc(&lists, 16384));
	need(cuMemAlloc(&inside, sizeof(struct live_inside)));
	need(cuMemsetD8(inside, 0, sizeof(struct live_inside)));
	need(cuMemAlloc(&word, 8));
	at_place = load_kernels(&at_access);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		try(&cases[i], ptxas && i % 3 == 0);
	if (!ptxas)
		tap_skip("no ptxas");
	return tap_done();
}
