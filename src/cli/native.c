/* native.c - see native.h. */
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/driver.h"
#include "cli/native.h"
#include "cuda/fatbin.h"
#include "instrument/instrument.h"
#include "live/object.h"
#include "map/layout.h"
#include "translate/translate.h"

#define EGPU_CUDA_NO_ALIASES
#include "egpu/cuda.h"
#include "egpu/probe.bpf.h"

enum {
	THREADS = 64, /* a block; one block a multiprocessor */
	LIMIT_S = 10, /* for all devices */
	WAIT_MS = 2000, /* for one step of a kernel */
	LISTS = 3,    /* the program as code, interpreted, and as code in another place */
	KERNEL = 77,
	LIST_NUMBER = 5,
	BLOCK = 3,
	INSNS = 5,
	CODE_ROOM = 2 * (LIVE_NATIVE_BYTES + LIVE_NATIVE_GAP),
};

/* -- the program ---------------------------------------------------------------- */

struct value {
	uint64_t runs, seen;
};

#define I(c, d, s, o, i) ((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define LOAD32(d, field) I(BPF_LDX | BPF_MEM | BPF_W, d, 6, offsetof(struct egpu_block, field), 0)
#define OP(op, d, s) I(BPF_ALU64 | (op) | BPF_X, d, s, 0, 0)
#define OPI(op, d, i) I(BPF_ALU64 | (op) | BPF_K, d, 0, 0, i)

/* Each thread has a value: how often it ran, and a number made of what it sees. It divides, which is a call within its machine code. */
static const struct bpf_insn program[] = {
	OP(BPF_MOV, 6, 1),
	LOAD32(7, block.x),
	LOAD32(2, block_dim.x),
	OP(BPF_MUL, 7, 2),
	LOAD32(2, thread.x),
	OP(BPF_ADD, 7, 2),
	I(BPF_STX | BPF_MEM | BPF_W, 10, 7, -4, 0),
	I(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, 0),
	I(0, 0, 0, 0, 0),
	OP(BPF_MOV, 2, 10),
	OPI(BPF_ADD, 2, -4),
	I(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem),
	I(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 18, 0),
	LOAD32(8, site),
	OPI(BPF_MUL, 8, 0x3779b9),
	LOAD32(2, lane),
	OP(BPF_ADD, 8, 2),
	OPI(BPF_MUL, 8, 0x1234567),
	LOAD32(2, kernel),
	OP(BPF_ADD, 8, 2),
	OPI(BPF_MUL, 8, 0x2b5a1),
	LOAD32(2, index),
	OP(BPF_XOR, 8, 2),
	LOAD32(3, insns),
	OP(BPF_MOV, 2, 8),
	OP(BPF_ADD, 7, 3),
	OP(BPF_DIV, 2, 7),
	OP(BPF_ADD, 8, 2),
	I(BPF_STX | BPF_MEM | BPF_DW, 0, 8, offsetof(struct value, seen), 0),
	OPI(BPF_MOV, 1, 1),
	I(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, offsetof(struct value, runs), BPF_ADD),
	OPI(BPF_MOV, 0, 0),
	I(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
};

/* The same by the host: thread i is site i. */
static uint64_t expected(uint64_t i)
{
	uint64_t v = i * 0x3779b9 + i % 32;
	v = (v * 0x1234567 + KERNEL) * 0x2b5a1;
	v ^= BLOCK;
	return v + v / (i + INSNS);
}

/* The guard's call without the guard: each thread runs each list that it sees once, and counts. */
static const char kernel_ptx[] =
	".visible .entry egpu_test(.param .u64 cell, .param .u32 kernel, .param .u64 block)\n{\n"
	"\t.reg .pred %p;\n\t.reg .b32 %i, %n, %k, %stop;\n\t.reg .b64 %cell, %list, %last, %where, %block, %done, %one;\n"
	"\tld.param.u64 %cell, [cell];\n\tmov.u64 %last, 0;\n\tmov.u64 %done, %cell;\n\tmov.u64 %one, 1;\n"
	"\tmov.u32 %i, %ctaid.x;\n\tmov.u32 %n, %ntid.x;\n\tmov.u32 %k, %tid.x;\n\tmad.lo.u32 %i, %i, %n, %k;\n"
	"\tld.param.u32 %k, [kernel];\n\tmov.b64 %where, {%i, %k};\n\tld.param.u64 %block, [block];\n"
	"LOOP:\n"
	"\tld.volatile.global.u64 %list, [%cell];\n\tsetp.eq.u64 %p, %list, %last;\n\t@%p bra SAME;\n"
	"\t{\n\t.param .b64 p0;\n\tst.param.b64 [p0], %list;\n\t.param .b64 p1;\n\tst.param.b64 [p1], %where;\n"
	"\t.param .b64 p2;\n\tst.param.b64 [p2], %block;\n\tcall " LIVE_CALL_AT ", (p0, p1, p2);\n\t}\n"
	"\tmov.u64 %last, %list;\n\tadd.u64 %done, %done, 8;\n\tmembar.gl;\n\tred.global.add.u64 [%done+8], %one;\n"
	"SAME:\n"
	"\tld.volatile.global.u32 %stop, [%cell+8];\n\tsetp.eq.u32 %p, %stop, 0;\n\t@%p bra LOOP;\n\tret;\n}\n";

/* What the kernel and the host share: the word, the flag, and how many threads have run each list. */
struct cell {
	uint64_t list, stop, done[LISTS];
};

struct text {
	struct arena *arena;
	struct ebpf_map map;
	struct ebpf_program p;
	struct verifier_result v;
	struct ebpf_fragment fragment;
	struct buf object;
};

static bool make_program(struct text *t, uint32_t threads, struct diag *d)
{
	struct verifier_options o = { 0 };
	struct buf log = { 0 };
	struct bpf_insn *insns = arena_array(t->arena, sizeof(program) / sizeof(program[0]), sizeof(program[0]));
	if (!insns)
		return false;
	memcpy(insns, program, sizeof(program));
	t->map = (struct ebpf_map){
		.name = "test", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = sizeof(struct value), .max_entries = threads
	};
	t->p = (struct ebpf_program){ .name = "test",
		.insns = insns,
		.n_insns = sizeof(program) / sizeof(program[0]),
		.context = EBPF_CONTEXT_BLOCK,
		.maps = &t->map,
		.n_maps = 1 };
	bool good = !verifier_check(t->arena, &t->p, &o, &t->v, &log, d) &&
		    !translate_program(t->arena, &t->p, &t->v, EBPF_POINT_BLOCK, false, &t->fragment, d) &&
		    !live_encode(&t->p, &t->v, t->fragment.updates, t->fragment.n_updates, EBPF_POINT_BLOCK, false, &t->object, d);
	buf_free(&log);
	return good;
}

/* -- a device ------------------------------------------------------------------- */

#define CALLS(X)                                                                                                                  \
	X(cuInit, cuInit, (unsigned))                                                                                             \
	X(cuDeviceGetCount, cuDeviceGetCount, (int *))                                                                            \
	X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int *, int, CUdevice))                                                     \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                            \
	X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext))                                                                          \
	X(cuLinkCreate, cuLinkCreate_v2, (unsigned, CUjit_option *, void **, CUlinkState *))                                      \
	X(cuLinkAddData, cuLinkAddData_v2, (CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned, CUjit_option *, void **)) \
	X(cuLinkComplete, cuLinkComplete, (CUlinkState, void **, size_t *))                                                       \
	X(cuModuleLoadData, cuModuleLoadData, (CUmodule *, const void *))                                                         \
	X(cuModuleGetFunction, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                       \
	X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                                     \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))                                 \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                                       \
	X(cuStreamCreate, cuStreamCreate, (CUstream *, unsigned))                                                                 \
	X(cuStreamSynchronize, cuStreamSynchronize, (CUstream))                                                                   \
	X(cuGetErrorName, cuGetErrorName, (CUresult, const char **))                                                              \
	X(cuLaunchKernel, cuLaunchKernel,                                                                                         \
		(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))

struct calls {
#define FIELD(field, name, args) CUresult(*field) args;
	CALLS(FIELD)
#undef FIELD
};

struct test {
	struct calls cu;
	char *why; /* 256 bytes */
	int cc, sms;
	uint32_t threads;
	CUstream runs, copies;
	CUdeviceptr map, cell, lists, code, inside;
	struct live_inside counts;
	struct text text;
	char *cubin;
	size_t cubin_bytes;
	void *kernel; /* machine code, of kernel_cc: the interpreter takes long to compile, and devices are mostly alike */
	int kernel_cc;
};

static bool fail(struct test *t, const char *what)
{
	if (!*t->why)
		snprintf(t->why, 256, "%.250s", what);
	return false;
}

static bool good(struct test *t, CUresult r, const char *what)
{
	const char *name = NULL;
	if (r == CUDA_SUCCESS)
		return true;
	t->cu.cuGetErrorName(r, &name);
	if (!*t->why)
		snprintf(t->why, 256, "%s: %s", what, name ? name : "unknown error");
	return false;
}

static bool open_driver(struct test *t, const char *library)
{
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL), *at;
	if (!lib)
		return fail(t, "the driver cannot be loaded");
#define TAKE(field, name, args)                                                                                                   \
	at = dlsym(lib, #name);                                                                                                   \
	if (!at)                                                                                                                  \
		return fail(t, "the driver has no " #name);                                                                       \
	memcpy(&t->cu.field, &at, sizeof(at));
	CALLS(TAKE)
#undef TAKE
	return good(t, t->cu.cuInit(0), "cuInit");
}

static bool put(struct test *t, CUdeviceptr at, const void *from, size_t bytes)
{
	return good(t, t->cu.cuMemcpyHtoDAsync(at, from, bytes, t->copies), "copy") &&
	       good(t, t->cu.cuStreamSynchronize(t->copies), "copy");
}

static bool get(struct test *t, void *to, CUdeviceptr at, size_t bytes)
{
	return good(t, t->cu.cuMemcpyDtoHAsync(to, at, bytes, t->copies), "copy") &&
	       good(t, t->cu.cuStreamSynchronize(t->copies), "copy");
}

static bool link_ptx(struct test *t, struct buf *ptx, uint32_t regs, void **cubin, size_t *bytes)
{
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *value = (void *)(uintptr_t)regs;
	CUlinkState state;
	return good(t, t->cu.cuLinkCreate(regs ? 1 : 0, &option, &value, &state), "cuLinkCreate") &&
	       good(t, t->cu.cuLinkAddData(state, CU_JIT_INPUT_PTX, ptx->data, ptx->len + 1, "test", 0, NULL, NULL), "compiling") &&
	       good(t, t->cu.cuLinkComplete(state, cubin, bytes), "linking");
}

/* -- its parts -------------------------------------------------------------------- */

static bool prepare(struct test *t, int device)
{
	CUcontext ctx;
	if (!good(t, t->cu.cuDeviceGetAttribute(&t->sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "device"))
		return false;
	int major = 0, minor = 0;
	t->cu.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
	t->cu.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
	t->cc = 10 * major + minor;
	if (t->cc < 70)
		return fail(t, "devices before sm_70 have no guards");
	t->threads = (uint32_t)t->sms * THREADS;
	return good(t, t->cu.cuDevicePrimaryCtxRetain(&ctx, device), "a context") && good(t, t->cu.cuCtxSetCurrent(ctx), "a context") &&
	       good(t, t->cu.cuStreamCreate(&t->runs, CU_STREAM_NON_BLOCKING), "a stream") &&
	       good(t, t->cu.cuStreamCreate(&t->copies, CU_STREAM_NON_BLOCKING), "a stream") &&
	       good(t, t->cu.cuMemAlloc(&t->map, MAP_IMAGE_HEADER + t->threads * sizeof(struct value)), "memory") &&
	       good(t, t->cu.cuMemAlloc(&t->cell, sizeof(struct cell)), "memory") &&
	       good(t, t->cu.cuMemAlloc(&t->lists, 16384), "memory") &&
	       good(t, t->cu.cuMemAlloc(&t->inside, sizeof(t->counts)), "memory") && good(t, t->cu.cuMemAlloc(&t->code, CODE_ROOM), "memory");
}

static bool clear(struct test *t)
{
	size_t bytes = MAP_IMAGE_HEADER + t->threads * sizeof(struct value);
	struct map_image *image = calloc(1, bytes);
	struct cell cell = { 0 };
	memset(&t->counts, 0, sizeof(t->counts));
	for (uint32_t i = 0; i < LIVE_SMS; i++)
		t->counts.open[i].n = LIST_NUMBER;
	if (!image)
		return fail(t, "out of memory");
	image->type = BPF_MAP_TYPE_ARRAY;
	image->key_size = 4;
	image->value_size = sizeof(struct value);
	image->max_entries = t->threads;
	image->n_replicas = 1;
	bool done = put(t, t->map, image, bytes) && put(t, t->cell, &cell, sizeof(cell)) && put(t, t->inside, &t->counts, sizeof(t->counts));
	free(image);
	return done;
}

static bool compile_program(struct test *t)
{
	uint64_t table[EBPF_TABLE_SYMBOLS] = { t->map };
	const struct ebpf_fragment *list[] = { &t->text.fragment };
	const uint32_t ops[] = { ~0u };
	struct native_request r = { .fragments = list, .ops = ops, .n = 1, .point = LIVE_LOOP, .table = table, .cc = (uint32_t)t->cc };
	struct buf ptx = { 0 };
	struct diag d = { 0 };
	void *cubin = NULL;
	table[EBPF_TABLE_SMS] = (uint64_t)t->sms;
	bool done = !instrument_native(&r, &ptx, &d) || fail(t, d.text);
	done = done && link_ptx(t, &ptx, LIVE_NATIVE_REGS, &cubin, &t->cubin_bytes);
	buf_free(&ptx);
	t->cubin = cubin; /* its link state stays */
	return done;
}

static bool place_code(struct test *t, CUdeviceptr at)
{
	struct cubin_code code;
	static char bytes[LIVE_NATIVE_BYTES];
	int err = cubin_code(t->cubin, t->cubin_bytes, NATIVE_NAME, at, bytes, sizeof(bytes), &code);
	if (err)
		return fail(t, err == -ENOTSUP ? "machine code of this compiler needs more than itself" : "the compiler's output is not known");
	if (code.regs > LIVE_NATIVE_REGS || code.frame_bytes > LIVE_NATIVE_FRAME)
		return fail(t, "machine code takes more registers or stack than there are");
	return put(t, at, bytes, code.bytes);
}

/* The program as data, behind the lists. */
static bool place_program(struct test *t, CUdeviceptr at)
{
	const struct live_object *o;
	const struct live_reloc *relocs;
	const uint64_t *insns;
	struct diag d = { 0 };
	if (live_object_parse(t->text.object.data, t->text.object.len, &o, &relocs, &insns, &d))
		return fail(t, d.text);
	size_t bytes = sizeof(struct live_program) + o->n_insns * sizeof(uint64_t);
	struct live_program *p = calloc(1, bytes);
	if (!p)
		return fail(t, "out of memory");
	*p = (struct live_program){
		.n_insns = o->n_insns, .flags = o->flags, .budget = o->budget, .sms = (uint32_t)t->sms, .ops = o->ops
	};
	memcpy(p->insns, insns, o->n_insns * sizeof(uint64_t));
	for (uint32_t i = 0; i < o->n_relocs; i++)
		live_put_address(p->insns, &relocs[i], t->map);
	bool done = put(t, at, p, bytes);
	free(p);
	return done;
}

static bool compile_kernel(struct test *t)
{
	struct buf ptx = { 0 };
	size_t bytes;
	if (t->kernel_cc == t->cc)
		return true;
	buf_printf(&ptx, ".version 6.3\n.target sm_70\n.address_size 64\n%s%s", live_function_text(LIVE_AT), live_function_text(LIVE_CALL_AT));
	buf_puts(&ptx, kernel_ptx);
	bool done = link_ptx(t, &ptx, 0, &t->kernel, &bytes);
	t->kernel_cc = done ? t->cc : 0;
	buf_free(&ptx);
	return done;
}

static bool launch(struct test *t)
{
	CUmodule module;
	CUfunction fn;
	uint32_t kernel = KERNEL | (uint32_t)LIVE_LOOP << 16;
	uint64_t block = BLOCK | (uint64_t)INSNS << 32;
	void *params[] = { &t->cell, &kernel, &block };
	return compile_kernel(t) && good(t, t->cu.cuModuleLoadData(&module, t->kernel), "loading") &&
	       good(t, t->cu.cuModuleGetFunction(&fn, module, "egpu_test"), "loading") &&
	       good(t, t->cu.cuLaunchKernel(fn, (unsigned)t->sms, 1, 1, THREADS, 1, 1, 0, t->runs, params, NULL), "launch");
}

/* -- the test ---------------------------------------------------------------------- */

static bool wait_done(struct test *t, uint32_t list)
{
	struct cell cell;
	for (int ms = 0; ms < WAIT_MS; ms++) {
		if (!get(t, &cell, t->cell, sizeof(cell)))
			return false;
		if (cell.done[list] == t->threads)
			return true;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	return fail(t, "a kernel that runs did not come to its end with a program that came meanwhile");
}

static bool check_values(struct test *t, uint32_t runs, const char *how)
{
	size_t bytes = t->threads * sizeof(struct value);
	struct value *values = malloc(bytes);
	if (!values)
		return fail(t, "out of memory");
	bool done = get(t, values, t->map + MAP_IMAGE_HEADER, bytes);
	for (uint32_t i = 0; done && i < t->threads; i++) {
		if (values[i].runs == runs && values[i].seen == expected(i))
			continue;
		snprintf(t->why, 256, "%s: thread %u ran %llu times and computed 0x%llx, not %u and 0x%llx", how, i,
			(unsigned long long)values[i].runs, (unsigned long long)values[i].seen, runs, (unsigned long long)expected(i));
		done = false;
	}
	memset(values, 0, bytes);
	done = done && put(t, t->map + MAP_IMAGE_HEADER, values, bytes);
	free(values);
	return done;
}

/* Whoever was counted in was counted out. */
static bool check_empty(struct test *t)
{
	uint32_t n = 0;
	bool done = get(t, &t->counts, t->inside, sizeof(t->counts));
	for (uint32_t i = 0; i < LIVE_SMS; i++)
		n |= t->counts.count[i].n;
	return done && (!n || fail(t, "lanes seem to be inside programs when the kernel has ended"));
}

static bool publish(struct test *t, uint32_t k, const struct live_list *list)
{
	CUdeviceptr at = t->lists + LIVE_ALIGN * k;
	return put(t, at, list, sizeof(*list)) && put(t, t->cell, &at, sizeof(at)) && wait_done(t, k);
}

static bool run_lists(struct test *t)
{
	CUdeviceptr data = t->lists + LIVE_ALIGN * LISTS, second = t->code + LIVE_NATIVE_BYTES + LIVE_NATIVE_GAP;
	struct live_list list = { .n = 1,
		.programs = { data },
		.code = t->code,
		.inside = t->inside,
		.number = LIST_NUMBER,
		.words = t->cell - LIVE_WORD(LIVE_LOOP, KERNEL) };
	uint64_t one = 1;
	bool done = place_program(t, data) && place_code(t, t->code) && publish(t, 0, &list) &&
		    check_values(t, 1, "machine code under a running kernel");
	list.code = 0;
	done = done && publish(t, 1, &list) && check_values(t, 1, "the interpreter");
	list.code = second;
	done = done && place_code(t, second) && publish(t, 2, &list) && check_values(t, 1, "machine code in a second place");
	return put(t, t->cell + offsetof(struct cell, stop), &one, sizeof(one)) && done &&
	       good(t, t->cu.cuStreamSynchronize(t->runs), "the kernel") && check_empty(t);
}

static bool test_device(struct test *t, int device)
{
	struct diag d = { 0 };
	if (!prepare(t, device))
		return false;
	t->text.arena = arena_new();
	if (!t->text.arena || !make_program(&t->text, t->threads, &d))
		return fail(t, d.text[0] ? d.text : "out of memory");
	return clear(t) && compile_program(t) && launch(t) && run_lists(t);
}

/* In the child: nothing is given back. */
static bool test_all(void *driver, void *why)
{
	struct test t = { .why = why };
	int n = 0;
	bool done = open_driver(&t, driver) && good(&t, t.cu.cuDeviceGetCount(&n), "cuDeviceGetCount");
	for (int k = 0; k < n && done; k++) {
		t.text = (struct text){ 0 };
		done = test_device(&t, k);
	}
	return done && n > 0;
}

void native_choose(const char *driver, struct live_choice *out, char why[256])
{
	const char *tier = getenv("EGPU_LIVE_TIER");
	char error[256] = "", failed[256] = "";
	*out = (struct live_choice){ LIVE_TIER_NATIVE, NULL };
	if (tier && !strcmp(tier, "interpreted"))
		snprintf(why, 256, "EGPU_LIVE_TIER=interpreted asks for it");
	else if (tier && *tier && strcmp(tier, "native")) /* whoever sets it has a reason to, and this is what does no harm */
		snprintf(why, 256, "EGPU_LIVE_TIER is neither interpreted nor native: %.64s", tier);
	else if (in_child(test_all, (void *)driver, failed, sizeof(failed), LIMIT_S, error))
		return;
	else
		snprintf(why, 256, "%.200s", *failed ? failed : *error ? error : "the test says no");
	*out = (struct live_choice){ LIVE_TIER_INTERPRETED, why };
}
