/* What softgpu says about a fault in a variant is what it says about the same fault in the
 * original: kernel, line, opcode, thread; and the table of lines says for every line of the
 * original where it stands. */
#include "instrument.h"
#include "softgpu_run.h"

/* A fault in the kernel for i = 0, in a function for i = 1, and none otherwise. Symbols, several
 * statements a line, a comment and a guard stand before it. */
static const char original[] = PTX_HEAD
	".global .align 4 .u32 bias = 5;\n"
	".func put(.param .b64 p, .param .b32 v)\n"
	"{\n"
	"	.reg .b32 %r<2>; .reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [p];\n"
	"	ld.param.u32 %r1, [v];\n"
	"	// a comment\n"
	"	st.global.u32 [%rd1],\n"
	"		%r1;\n"
	"	ret;\n"
	"}\n"
	"\n"
	".visible .entry k(.param .u64 out, .param .u32 i)\n"
	"{\n"
	"	.reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<12>;\n"
	"	ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [i];\n"
	"	ld.global.u32 %r2, [bias]; st.global.u32 [%rd1], %r2;\n"
	"	mov.u64 %rd2, 64;\n"
	"	setp.eq.u32 %p1, %r1, 0;\n"
	"	@%p1 ld.global.u32 %r3, [%rd2];\n"
	"	ld.global.u32 %r4, [%rd1];\n"
	"	setp.ne.u32 %p2, %r1, 1;\n"
	"	@%p2 bra DONE;\n"
	"	{ .param .b64 a; .param .b32 b; st.param.b64 [a], %rd2; st.param.b32 [b], %r2;\n"
	"	  call put, (a, b); }\n"
	"DONE:\n"
	"	st.global.u32 [%rd1+4], %r4;\n"
	"	ret;\n"
	"}\n";

struct params {
	uint64_t out;
	uint32_t i, pad;
	uint64_t launch;
};

static char *said(struct sg_module *m, const struct params *p)
{
	struct run r;
	stderr_capture();
	CUresult e = run_start(&r, sg_module_kernel(m, "k"), 2, 32, 0, p, false);
	if (!e)
		e = run_wait(&r);
	char *text = strdup(stderr_end());
	if (!e)
		*text = 0;
	return text;
}

static uint32_t line_at(const char *text, const char *at)
{
	uint32_t line = 1;
	for (; text < at; text++)
		line += *text == '\n';
	return line;
}

/* By hand, from the table's own text. */
static uint32_t mapped(const char *table, uint32_t line)
{
	uint32_t from, of, best = 0;
	char kind;
	int n;
	for (const char *s = table; sscanf(s, " %u%c%u%n", &from, &kind, &of, &n) == 3; s += n)
		if (from <= line)
			best = kind == ':' ? of + line - from : of;
	return best;
}

/* Each of these stands once in the original, and so in each version of the variant. */
static void table(const char *lined)
{
	static const char *const marks[] = { ".func put", "ld.param.u64 %rd1, [p]", "// a comment",
		"st.global.u32 [%rd1],\n", "\t\t%r1;", "mov.u64 %rd2, 64", "@%p1 ld.global.u32",
		"ld.global.u32 %r4", "setp.ne.u32 %p2, %r1, 1", "call put",
		"DONE:", "st.global.u32 [%rd1+4]" };
	const char *t = strstr(lined, "// egpu lines ");
	if (!ok(t && strchr(t, '\n') && !strchr(t, '\n')[1], "the table is the last line"))
		return;
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *a = strstr(original, marks[i]), *b = strstr(lined, marks[i]);
		is_int(b ? mapped(t + 13, line_at(lined, b)) : 0, line_at(original, a),
			"line of %.16s", marks[i]);
		const char *again = b ? strstr(b + 1, marks[i]) : NULL;
		if (again)
			is_int(mapped(t + 13, line_at(lined, again)), line_at(original, a), "and in the other version");
	}
	const char *probe = strstr(lined, "{ // egpu site");
	ok(probe && mapped(t + 13, line_at(lined, probe) + 1) > 1, "a probe has a line too");
}

/* Broken tables change nothing but numbers. */
static void broken(void)
{
	static const char *const tables[] = { "// egpu lines 1:", "// egpu lines 99999999999:1",
		"// egpu lines 5:7 4:3", "// egpu lines x", "// egpu lines 1;2",
		"// egpu lines 4=9 " };
	char text[4096];
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		snprintf(text, sizeof(text), "%s%s\n", original, tables[i]);
		struct sg_module *m = load(text);
		ok(m, "loads with %s", tables[i]);
		sg_module_free(m);
	}
}

/* Each way through the variant says what the original says. */
static void faults(struct sg_module *plain, struct sg_module *variant, uint64_t launch)
{
	struct params p = { .out = alloc(64), .launch = launch };
	for (p.i = 0; p.i < 3; p.i++) {
		char *want = said(plain, &p), *got = said(variant, &p);
		/* The block that comes first is a matter of chance. */
		char *end = strstr(want, " block "), *got_end = strstr(got, " block ");
		if (end && got_end)
			*end = *got_end = 0;
		ok(!strcmp(want, got) && !*want == (p.i == 2), "%s", *want ? want : "no fault");
		if (strcmp(want, got))
			printf("# variant: %s\n", got);
		free(want);
		free(got);
	}
}

/* Where warps are chosen there are two versions of each function. */
static void variant(bool sampled)
{
	struct arena *a = arena_new();
	struct ebpf_fragment mem = make_fragment(
				     a, EBPF_POINT_MEM, false, UINT64_C(1) << EBPF_FIELD_SITE),
			     entry = make_fragment(a, EBPF_POINT_ENTRY, false, 0);
	const struct ebpf_fragment *list[] = { &mem, &entry };
	struct ptx_module *ptx = parse_text(original);
	struct instrument_request req = {
		.module = ptx, .kernel = "k", .fragments = list, .n_fragments = 2
	};
	struct instrument_result result;
	struct diag d = { 0 };
	mem.sampled = entry.sampled = sampled;
	is_int(instrument_kernel(a, &req, &result, &d), 0, "instrumented %s", d.text);
	ok(!strncmp(result.lined, result.ptx, result.ptx_bytes), "the same text with more behind");
	is_int(strstr(result.ptx, "{ // egpu plain") != NULL, sampled, "versions");
	table(result.lined);
	struct sg_module *plain = load(original), *loaded = load(result.lined);
	uint64_t bias, records = alloc(1 << 20), addr;
	sg_module_global(plain, "bias", &bias, NULL);
	sg_module_global(loaded, "__egpu_table", &addr, NULL);
	for (uint32_t i = 0; i < EBPF_TABLE_SYMBOLS; i++)
		((uint64_t *)addr)[i] = records;
	((uint64_t *)addr)[EBPF_TABLE_SYMBOLS] = bias;
	faults(plain, loaded, instrument_launch_word(1, 1, 1, false));
	if (sampled)
		faults(plain, loaded, instrument_launch_word(1, INSTRUMENT_MAX_ONE_IN, 1, false));
	sg_module_free(plain);
	sg_module_free(loaded);
	ptx_module_free(ptx);
	arena_free(a);
}

int main(void)
{
	device_open(2, 0);
	variant(false);
	variant(true);
	broken();
	sg_device_free(device);
	return tap_done();
}
