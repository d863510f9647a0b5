/* Functions that kernels call where somebody has put them: out of a linked image, in plain device memory. */
#include "cuda/fatbin.h"
#include "driver_test.h"

/* Adds a number to a word, by way of a local variable and a function of its own. */
#define ADDER(number)                                                                                                                    \
	PTX_HEAD ".func (.param .b32 r) twice(.param .b32 x)\n{\n\t.reg .b32 %x;\n\tld.param.b32 %x, [x];\n\tadd.u32 %x, %x, %x;\n"         \
		 "\tst.param.b32 [r], %x;\n\tret;\n}\n"                                                                               \
		 ".visible .func adder(.param .b64 at)\n{\n\t.local .align 4 .b8 mine[64];\n\t.reg .b32 %x;\n\t.reg .b64 %at, %m;\n"          \
		 "\tld.param.b64 %at, [at];\n\tmov.u64 %m, mine;\n\tst.local.u32 [%m+8], " number ";\n"                                       \
		 "\t{ .param .b32 a; .param .b32 b; ld.local.u32 %x, [%m+8]; st.param.b32 [a], %x; call (b), twice, (a);\n"                 \
		 "\tld.param.b32 %x, [b]; }\n\tred.global.add.u32 [%at], %x;\n\tret;\n}\n"

/* Calls what [cell] holds until [cell+8] says stop; each call takes turns with a division of the warp. */
static const char caller[] = PTX_HEAD
	".visible .entry caller(.param .u64 cell, .param .u64 out)\n{\n"
	"\t.reg .pred %p, %odd;\n\t.reg .b32 %stop, %t;\n\t.reg .b64 %cell, %out, %f, %last;\n"
	"\tld.param.u64 %cell, [cell];\n\tld.param.u64 %out, [out];\n\tmov.u64 %last, 0;\n\tmov.u32 %t, %tid.x;\n\tand.b32 %t, %t, 1;\n"
	"\tsetp.eq.u32 %odd, %t, 1;\n"
	"LOOP:\n\tld.volatile.global.u64 %f, [%cell];\n\tsetp.eq.u64 %p, %f, %last;\n\t@%p bra SAME;\n\tmov.u64 %last, %f;\n"
	"\t@%odd bra ODD;\n"
	"\t{\n\tE: .callprototype _ (.param .b64 _);\n\t.param .b64 a;\n\tst.param.b64 [a], %out;\n\tcall %f, (a), E;\n\t}\n\tbra DONE;\n"
	"ODD:\n\t{\n\tO: .callprototype _ (.param .b64 _);\n\t.param .b64 a;\n\tst.param.b64 [a], %out;\n\tcall %f, (a), O;\n\t}\n"
	"DONE:\n\tred.global.add.u32 [%cell+12], 1;\n"
	"SAME:\n\tld.volatile.global.u32 %stop, [%cell+8];\n\tsetp.eq.u32 %p, %stop, 0;\n\t@%p bra LOOP;\n\tret;\n}\n";

enum { THREADS = 96, ROOM = 8192 };

static struct cubin_code adder_code(const char *ptx, uint64_t at, char *code)
{
	CUlinkState s;
	void *cubin;
	size_t bytes;
	struct cubin_code c = { 0 };
	need(cuLinkCreate(0, NULL, NULL, &s));
	need(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)ptx, strlen(ptx) + 1, "part", 0, NULL, NULL));
	need(cuLinkComplete(s, &cubin, &bytes));
	need(cubin_code(cubin, bytes, "adder", at, code, ROOM, &c) ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS);
	need(cuLinkDestroy(s));
	return c;
}

struct cell {
	uint64_t f;
	uint32_t stop, calls;
};

struct run {
	CUstream runs, copies;
	CUdeviceptr cell, out, code;
	uint32_t calls;
};

static void begin(struct run *r)
{
	CUmodule m;
	CUfunction f;
	struct cell zero = { 0 };
	need(cuStreamCreate(&r->runs, CU_STREAM_NON_BLOCKING));
	need(cuStreamCreate(&r->copies, CU_STREAM_NON_BLOCKING));
	need(cuMemAlloc(&r->cell, sizeof(zero)));
	need(cuMemcpyHtoD(r->cell, &zero, sizeof(zero)));
	r->out = device_word(0);
	need(cuMemAlloc(&r->code, 4 * ROOM));
	void *params[] = { &r->cell, &r->out };
	need(cuModuleLoadData(&m, caller));
	need(cuModuleGetFunction(&f, m, "caller"));
	need(cuLaunchKernel(f, 1, 1, 1, THREADS, 1, 1, 0, r->runs, params, NULL));
	r->calls = 0;
}

static void put(struct run *r, CUdeviceptr at, const void *data, size_t bytes)
{
	need(cuMemcpyHtoDAsync(at, data, bytes, r->copies));
	need(cuStreamSynchronize(r->copies));
}

/* All threads call what lies at `at`; what that has added for each. */
static uint32_t call(struct run *r, CUdeviceptr at)
{
	struct cell c;
	uint32_t before = read_word(r->out);
	r->calls += THREADS;
	put(r, r->cell, &at, sizeof(at));
	do {
		need(cuMemcpyDtoHAsync(&c, r->cell, sizeof(c), r->copies));
		need(cuStreamSynchronize(r->copies));
	} while (c.calls < r->calls);
	return (read_word(r->out) - before) / THREADS;
}

static void end(struct run *r)
{
	uint32_t one = 1;
	put(r, r->cell + 8, &one, sizeof(one));
	need(cuStreamSynchronize(r->runs));
}

static void places(void)
{
	struct run r;
	char code[ROOM];
	struct cubin_code c = adder_code(ADDER("5"), 0, code);
	ok(c.bytes > 64 && c.regs && c.frame_bytes >= 64, "a linked image has a function's code: %zu bytes, %u registers, %u bytes of stack", c.bytes,
		c.regs, c.frame_bytes);
	begin(&r);
	put(&r, r.code, code, c.bytes);
	is_int(call(&r, r.code), 10, "a kernel that runs calls it where it was put");
	put(&r, r.code + ROOM, code, c.bytes);
	is_int(call(&r, r.code + ROOM), 10, "and in another place");
	c = adder_code(ADDER("7"), 0, code);
	put(&r, r.code + 2 * ROOM, code, c.bytes);
	is_int(call(&r, r.code + 2 * ROOM), 14, "another function in a third");
	put(&r, r.code, code, c.bytes);
	is_int(call(&r, r.code), 10, "a place that is written again stays the old function for a kernel that has called it");
	end(&r);
	begin(&r);
	put(&r, r.code, code, c.bytes);
	is_int(call(&r, r.code), 14, "the next kernel finds the new one");
	end(&r);
}

static void nothing_there(void)
{
	struct run r;
	CUdeviceptr at;
	char code[ROOM];
	struct cubin_code c = adder_code(ADDER("5"), 0, code);
	begin(&r);
	memset(code, 0, 16);
	put(&r, r.code, code, c.bytes);
	at = r.code;
	need(cuMemcpyHtoDAsync(r.cell, &at, sizeof(at), r.copies));
	is_int(cuStreamSynchronize(r.runs), CUDA_ERROR_INVALID_PC, "what is no function cannot be called");
}

int main(void)
{
	test_open();
	places();
	nothing_there();
	return tap_done();
}
