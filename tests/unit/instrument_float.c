/* instrument_float.c - a product and its sum stay together: where a probe would part them it goes
 * behind the sum, and where it cannot, the kernel is named. ptxas is the judge where it is there. */
#include <elf.h>

#include "instrument.h"

static const char frame[] =
	".version 8.6\n.target %s\n.address_size 64\n"
	".visible .entry kernel(.param .u64 p, .param .f32 q)\n{\n"
	"\t.reg .pred %%p<3>;\n\t.reg .b16 %%h<9>;\n\t.reg .b32 %%r<9>;\n\t.reg .f32 %%f<9>;\n"
	"\t.reg .f64 %%fd<9>;\n\t.reg .b64 %%rd<9>;\n"
	"\tld.param.u64 %%rd1, [p];\n\tcvta.to.global.u64 %%rd1, %%rd1;\n\tmov.u32 %%r1, %%tid.x;\n"
	"\tmul.wide.u32 %%rd2, %%r1, 64;\n\tadd.s64 %%rd1, %%rd1, %%rd2;\n"
	"\tld.global.v4.f32 {%%f1, %%f2, %%f3, %%f4}, [%%rd1];\n"
	"\tld.global.v2.f64 {%%fd1, %%fd2}, [%%rd1+16];\n\tld.global.b32 %%r2, [%%rd1+32];\n"
	"\tld.global.b16 %%h1, [%%rd1+36];\n\tld.global.b16 %%h2, [%%rd1+38];\n"
	"\tsetp.lt.f32 %%p1, %%f1, %%f2;\n"
	"// here\n%s\n// there\n"
	"\tst.global.v4.f32 [%%rd1+64], {%%f6, %%f6, %%f8, %%f8};\n"
	"\tst.global.v2.f64 [%%rd1+80], {%%fd6, %%fd6};\n\tst.global.b32 [%%rd1+96], %%r5;\n"
	"\tst.global.b16 [%%rd1+100], %%h5;\n\tret;\n}\n";

static const struct {
	const char *name, *body;
	bool differs;
	/* The part between the marks with each splice as "@", or NULL. */
	const char *placed;
	const char *fused; /* opcode of the fused instruction, NULL: not compared */
} cases[] = {
	{ "a store between", "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;",
		false, "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\n// there\n\t@", "FFMA" },
	{ "together already", "mul.f32 %f5, %f1, %f2;\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+4], %f6;",
		false, "mul.f32 %f5, %f1, %f2;\nadd.f32 %f6, %f5, %f4;\n@st.global.f32 [%rd1+4], %f6;\n// there\n\t@", "FFMA" },
	{ "rounded products", "mul.rn.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;",
		false, "mul.rn.f32 %f5, %f1, %f2;\n@st.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\n// there\n\t@", "FFMA" },
	{ "a product overwritten", "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f5;\nmov.f32 %f5, %f3;\nadd.f32 %f6, %f5, %f4;",
		false, "mul.f32 %f5, %f1, %f2;\n@st.global.f32 [%rd1+4], %f5;\nmov.f32 %f5, %f3;\nadd.f32 %f6, %f5, %f4;\n// there\n\t@", NULL },
	{ "through a mov", "mul.ftz.f32 %f5, %f1, %f2;\nmov.f32 %f7, %f5;\nst.global.f32 [%rd1+4], %f3;\nsub.ftz.f32 %f6, %f4, %f7;",
		false, "mul.ftz.f32 %f5, %f1, %f2;\nmov.f32 %f7, %f5;\nst.global.f32 [%rd1+4], %f3;\nsub.ftz.f32 %f6, %f4, %f7;\n// there\n\t@", "FFMA" },
	{ "a label that nothing names", "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nL:\nadd.f32 %f6, %f5, %f4;",
		false, "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nL:\nadd.f32 %f6, %f5, %f4;\n// there\n\t@", "FFMA" },
	{ "a label that a branch names", "mul.f32 %f5, %f1, %f2;\n@%p1 bra L;\nst.global.f32 [%rd1+4], %f3;\nL:\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
	{ "two uses of a product", "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+8], %f3;\nsub.f32 %f8, %f5, %f1;",
		false, "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+8], %f3;\nsub.f32 %f8, %f5, %f1;\n// there\n\t@@", "FFMA" },
	{ "two pairs that overlap", "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nmul.f32 %f7, %f3, %f4;\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+8], %f3;\nadd.f32 %f8, %f7, %f1;",
		false, "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nmul.f32 %f7, %f3, %f4;\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+8], %f3;\nadd.f32 %f8, %f7, %f1;\n// there\n\t@@", "FFMA" },
	{ "double precision", "mul.f64 %fd5, %fd1, %fd2;\nst.global.f32 [%rd1+4], %f3;\nadd.f64 %fd6, %fd5, %fd1;",
		false, "mul.f64 %fd5, %fd1, %fd2;\nst.global.f32 [%rd1+4], %f3;\nadd.f64 %fd6, %fd5, %fd1;\n// there\n\t@", "DFMA" },
	{ "half precision", "mul.f16 %h5, %h1, %h2;\nst.global.f32 [%rd1+4], %f3;\nadd.f16 %h5, %h5, %h1;",
		false, "mul.f16 %h5, %h1, %h2;\nst.global.f32 [%rd1+4], %f3;\nadd.f16 %h5, %h5, %h1;\n// there\n\t@", "HFMA2" },
	{ "two halves", "mul.f16x2 %r5, %r2, %r2;\nst.global.f32 [%rd1+4], %f3;\nsub.f16x2 %r5, %r5, %r2;",
		false, "mul.f16x2 %r5, %r2, %r2;\nst.global.f32 [%rd1+4], %f3;\nsub.f16x2 %r5, %r5, %r2;\n// there\n\t@", "HFMA2" },
	{ "bfloat16", "mul.bf16 %h5, %h1, %h2;\nst.global.f32 [%rd1+4], %f3;\nadd.bf16 %h5, %h5, %h1;",
		false, "mul.bf16 %h5, %h1, %h2;\nst.global.f32 [%rd1+4], %f3;\nadd.bf16 %h5, %h5, %h1;\n// there\n\t@", "HFMA2" },
	{ "behind the sum only, past a scope", "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\n{\n.reg .b32 %t;\nmov.b32 %t, 7;\n}\nadd.f32 %f6, %f5, %f4;\nmov.b32 %r5, %r2;",
		false, "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\n{\n.reg .b32 %t;\nmov.b32 %t, 7;\n}\nadd.f32 %f6, %f5, %f4;\n@mov.b32 %r5, %r2;", "FFMA" },
	{ "a quotient that ends with a product", "div.full.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;",
		false, "div.full.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\n// there\n\t@", "FFMA" },
	{ "a quotient that is rounded", "div.rn.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;",
		false, "div.rn.f32 %f5, %f1, %f2;\n@st.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\n// there\n\t@", NULL },
	{ "a loop that keeps its products to itself", "L:\nmul.f32 %f5, %f1, %f2;\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+4], %f6;\n@%p1 bra L;",
		false, "L:\nmul.f32 %f5, %f1, %f2;\nadd.f32 %f6, %f5, %f4;\n@st.global.f32 [%rd1+4], %f6;\n@%p1 bra L;\n// there\n\t@", NULL },
	{ "a product that is clamped", "mul.sat.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;",
		false, "mul.sat.f32 %f5, %f1, %f2;\n@st.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\n// there\n\t@", "FFMA" },
	{ "a sum that ends its block", "mov.f32 %f6, %f3;\n@%p1 bra L;\nmul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\nL:",
		false, "mov.f32 %f6, %f3;\n@%p1 bra L;\nmul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nadd.f32 %f6, %f5, %f4;\n@L:", "FFMA" },
	/* The first sum would go behind the probe that comes before its use. */
	{ "sums that are used behind a probe", "mov.f32 %f6, %f3;\nst.global.f32 [%rd1+4], %f3;\nmul.f32 %f5, %f6, %f2;\nadd.f32 %f6, %f5, %f4;\n"
		"st.global.f32 [%rd1+8], %f3;\nmul.f32 %f5, %f6, %f2;\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+12], %f3;\nmul.f32 %f5, %f6, %f2;\nadd.f32 %f6, %f5, %f4;\n"
		"st.global.f32 [%rd1+16], %f3;\nmul.f32 %f5, %f6, %f2;\nadd.f32 %f6, %f5, %f4;",
		false, NULL, "FFMA" },
	{ "a sum in the round before", "mov.f32 %f6, %f3;\nmov.u32 %r3, 4;\nL:\nst.global.f32 [%rd1+4], %f3;\nmul.f32 %f5, %f6, %f2;\nadd.f32 %f6, %f5, %f4;\n"
		"sub.u32 %r3, %r3, 1;\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra L;",
		false, NULL, NULL },
	{ "a sum whose register is a product by the time of a probe", "mul.f32 %f5, %f1, %f2;\nadd.f32 %f7, %f5, %f3;\nmul.f32 %f7, %f7, %f4;\nadd.f32 %f6, %f7, %f1;\n"
		"add.f32 %f8, %f7, %f2;\nst.global.f32 [%rd1+4], %f3;",
		false, NULL, "FFMA" },
	/* Where the probe cannot move. */
	{ "overwritten on one way only", "mul.f32 %f5, %f1, %f2;\n@%p1 bra A;\nsub.f32 %f5, %f5, %f3;\nbra B;\nA:\nst.global.f32 [%rd1+4], %f3;\nB:\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
	{ "copied in another block", "mul.f32 %f5, %f1, %f2;\n@%p1 bra A;\nmov.f32 %f7, %f5;\nst.global.f32 [%rd1+4], %f3;\nbra B;\nA:\nmov.f32 %f7, %f3;\nB:\nadd.f32 %f6, %f7, %f4;", true, NULL, NULL },
	{ "a product that the next round multiplies", "mov.f32 %f5, %f1;\nmov.f32 %f6, %f2;\nmov.u32 %r3, 3;\nst.global.f32 [%rd1+4], %f3;\nL:\nmul.f32 %f5, %f6, %f5;\n"
		"add.f32 %f6, %f3, %f5;\nsub.u32 %r3, %r3, 1;\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra L;", true, NULL, NULL },
	{ "between a constant and the loop that counts from it", "mov.f32 %f6, %f3;\nmov.u32 %r3, 4;\nst.global.f32 [%rd1+4], %f3;\nmul.f32 %f5, %f1, %f2;\nL:\nadd.f32 %f6, %f6, %f5;\n"
		"mul.f32 %f5, %f6, %f2;\nsub.u32 %r3, %r3, 1;\nsetp.ne.u32 %p2, %r3, 0;\n@%p2 bra L;", true, NULL, NULL },
	{ "a name declared again", "mul.f32 %f5, %f1, %f2;\n{\n.reg .f32 %f5;\nmov.f32 %f5, %f3;\nst.global.f32 [%rd1+4], %f5;\n}\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
	{ "the sum is at the start of a loop", "mov.f32 %f5, %f1;\nL:\nadd.f32 %f6, %f5, %f4;\nst.global.f32 [%rd1+4], %f3;\nmul.f32 %f5, %f6, %f2;\n@%p1 bra L;", true, NULL, NULL },
	{ "two blocks further on in a loop", "mov.f32 %f5, %f1;\nL:\nadd.f32 %f6, %f5, %f4;\n@%p1 bra M;\nmul.f32 %f5, %f6, %f2;\nM:\nst.global.f32 [%rd1+4], %f3;\n@%p1 bra L;", true, NULL, NULL },
	{ "the sum stands before the product", "bra B;\nA:\nadd.f32 %f6, %f5, %f4;\nbra C;\nB:\nmul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1+4], %f3;\nbra A;\nC:", true, NULL, NULL },
	{ "a guarded load", "mul.f32 %f5, %f1, %f2;\n@%p1 ld.global.f32 %f8, [%rd1+4];\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
	{ "the address changes", "mul.f32 %f5, %f1, %f2;\nld.global.u64 %rd3, [%rd1];\nld.global.f32 %f7, [%rd3];\nadd.s64 %rd3, %rd3, 4;\nadd.f32 %f6, %f5, %f4;",
		true, NULL, NULL },
	{ "the load overwrites its address", "mul.f32 %f5, %f1, %f2;\nld.global.u64 %rd1, [%rd1];\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
	{ "the value stored changes", "mul.f32 %f5, %f1, %f2;\nst.global.f32 [%rd1], %f3;\nmov.f32 %f3, %f1;\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
	{ "the guard changes", "mul.f32 %f5, %f1, %f2;\n@%p1 st.global.f32 [%rd1], %f3;\nsetp.gt.f32 %p1, %f1, 0f00000000;\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
	{ "the scope of the address ends", "mul.f32 %f5, %f1, %f2;\n{\n.reg .b64 %t;\nadd.s64 %t, %rd1, 8;\nst.global.f32 [%t], %f3;\n}\nadd.f32 %f6, %f5, %f4;", true, NULL, NULL },
};

struct variant_of {
	struct arena *arena;
	struct ptx_module *m;
	struct instrument_result result;
};

static bool build(struct variant_of *v, const char *text, bool probes)
{
	struct ebpf_fragment f;
	const struct ebpf_fragment *list = &f;
	struct diag d = { 0 };
	*v = (struct variant_of){ .arena = arena_new(), .m = parse_text(text) };
	struct instrument_request req = { .module = v->m, .kernel = "kernel", .fragments = &list,
		.n_fragments = probes };
	f = make_fragment(v->arena, EBPF_POINT_MEM, false, BIT(ADDRESS) | BIT(VALUE0));
	int err = instrument_kernel(v->arena, &req, &v->result, &d);
	if (err)
		printf("# %s\n", d.text);
	return !err;
}

static void drop(struct variant_of *v)
{
	ptx_module_free(v->m);
	arena_free(v->arena);
}

/* The text from "// here" on with "@" for each splice. */
static char *placement(const char *ptx)
{
	const char *from = strstr(ptx, "// here\n") + 8;
	char *out = calloc(1, strlen(ptx) + 1), *to = out;
	while (*from) {
		if (strncmp(from, "{ // egpu", 9)) {
			*to++ = *from++;
			continue;
		}
		int depth = 0;
		do {
			depth += *from == '{';
			depth -= *from++ == '}';
		} while (depth);
		*to++ = '@';
		from += strspn(from, "\n\t");
	}
	return out;
}

/* Bits 0-8 of an instruction of 16 bytes, whatever the form of its operands. */
static uint32_t opcode_bits(const char *opcode)
{
	static const struct {
		const char *name;
		uint32_t bits;
	} known[] = { { "FFMA", 0x023 }, { "DFMA", 0x02b }, { "HFMA2", 0x031 } };
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, opcode))
			return known[i].bits;
	return 0;
}

/* Times the opcode stands in the cubin's only function; HFMA2 has a second number on other units. */
static int count_opcode(const uint8_t *elf, size_t size, const char *opcode)
{
	const Elf64_Ehdr *h = (const Elf64_Ehdr *)elf;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(elf + h->e_shoff);
	const char *names = (const char *)elf + sections[h->e_shstrndx].sh_offset;
	uint32_t want = opcode_bits(opcode);
	int n = -1;
	for (int i = 0; i < h->e_shnum; i++) {
		if (strcmp(names + sections[i].sh_name, ".text.kernel") || sections[i].sh_offset + sections[i].sh_size > size)
			continue;
		n = 0;
		for (const uint8_t *at = elf + sections[i].sh_offset; at < elf + sections[i].sh_offset + sections[i].sh_size; at += 16) {
			uint32_t bits = (at[0] | (uint32_t)at[1] << 8) & 0x1ff;
			n += bits == want || (want == 0x031 && bits == 0x035);
		}
	}
	return n;
}

/* How often the opcode stands in the machine code, -1 when it does not compile. */
static int count_machine(const char *ptx, const char *opcode)
{
	static uint8_t elf[1 << 20] __attribute__((aligned(8)));
	char path[] = "/tmp/egpu-float-XXXXXX", command[512];
	int fd = mkstemp(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	size_t n = 0;
	if (!f)
		return -1;
	fputs(ptx, f);
	fclose(f);
	snprintf(command, sizeof(command), "PATH=$PATH:/usr/local/cuda/bin; ptxas -arch=sm_90 %s -o %s.cubin >&2", path, path);
	bool compiles = !system(command);
	unlink(path);
	snprintf(command, sizeof(command), "%s.cubin", path);
	f = compiles ? fopen(command, "rb") : NULL;
	if (f) {
		n = fread(elf, 1, sizeof(elf), f);
		fclose(f);
	}
	unlink(command);
	return n > sizeof(Elf64_Ehdr) ? count_opcode(elf, n, opcode) : -1;
}

static void test_placement(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[4096];
		struct variant_of with;
		snprintf(text, sizeof(text), frame, "sm_90", cases[i].body);
		ok(build(&with, text, true), "%s", cases[i].name);
		is_int(with.result.last_bit_may_differ, cases[i].differs, "last bit may differ");
		if (cases[i].placed) {
			char *at = placement(with.result.ptx);
			ok(!strncmp(at, cases[i].placed, strlen(cases[i].placed)), "placed as expected");
			if (strncmp(at, cases[i].placed, strlen(cases[i].placed)))
				printf("# %.300s\n", at);
			free(at);
		}
		if (strstr(cases[i].name, "behind a probe"))
			ok(strstr(with.result.ptx, "setp.eq.and.b32 %egpu_xp1, %f6, 0, %egpu_xp1;"), "a probe waits for the sum");
		drop(&with);
	}
}

/* The machine code of the kernel with probes fuses as often as that of the kernel alone. */
static void test_machine_code(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[4096];
		struct variant_of alone, with;
		if (!cases[i].fused)
			continue;
		if (!have_ptxas()) {
			tap_skip("no ptxas");
			continue;
		}
		snprintf(text, sizeof(text), frame, "sm_90", cases[i].body);
		ok(build(&alone, text, false) && build(&with, text, true), "%s", cases[i].name);
		int before = count_machine(alone.result.ptx, cases[i].fused);
		printf("# %d %s\n", before, cases[i].fused);
		is_int(count_machine(with.result.ptx, cases[i].fused), before, "%s: as many %s",
			cases[i].name, cases[i].fused);
		ok(before >= 0, "it compiles");
		drop(&alone);
		drop(&with);
	}
}

int main(void)
{
	test_placement();
	test_machine_code();
	return tap_done();
}
