/* softgpu_insn.h - tables of single instructions with exact results.
 *
 * Sources 1..4 are there in every class: %r1 (32 bits), %rd1 (64), %h1 (16), %f1, %d1, %p1 (whether
 * the low 32 bits are not 0). The destination is one of %r0 %rd0 %h0 %f0 %d0 %p0. Each case runs
 * once in all lanes and once, under a guard, in the odd ones; the even ones must then keep what
 * they had.
 */
#ifndef EGPU_TEST_SOFTGPU_INSN_H
#define EGPU_TEST_SOFTGPU_INSN_H

#include "softgpu_run.h"

struct insn_case {
	const char *text; /* without guard and semicolon; several instructions: ';' between, guard
			     on each */
	uint64_t in[4];
	uint64_t want;
};

#define SENTINEL 0x5a5a5a5a5a5a5a5aull

static uint32_t fbits(float f)
{
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}

static uint64_t dbits(double d)
{
	uint64_t u;
	memcpy(&u, &d, 8);
	return u;
}

/* Where the destination is written in the text: after the opcode. */
static const char *dst_class(const char *text)
{
	static const char *const classes[] = { "%rd0", "%r0", "%h0", "%f0", "%d0", "%p0" };
	for (int i = 0; i < 6; i++)
		if (strstr(text, classes[i]))
			return classes[i];
	return "%r0";
}

static size_t put_case(char *out, size_t size, const struct insn_case *c, int index, bool guarded)
{
	size_t n = 0;
	const char *d = dst_class(c->text);
	for (int k = 0; k < 4; k++)
		n += (size_t)snprintf(out + n, size - n,
			"mov.b64 %%rd%d, 0x%llx; cvt.u32.u64 %%r%d, %%rd%d; cvt.u16.u64 %%h%d, "
			"%%rd%d;"
			" mov.b32 %%f%d, %%r%d; mov.b64 %%d%d, %%rd%d; setp.ne.u32 %%p%d, %%r%d, "
			"0;\n",
			k + 1, (unsigned long long)c->in[k], k + 1, k + 1, k + 1, k + 1, k + 1,
			k + 1, k + 1, k + 1, k + 1, k + 1);
	n += (size_t)snprintf(out + n, size - n,
		"mov.b64 %%rd0, 0x%llx; cvt.u32.u64 %%r0, %%rd0; cvt.u16.u64 %%h0, %%rd0; mov.b32 "
		"%%f0, %%r0;"
		" mov.b64 %%d0, %%rd0; setp.eq.u32 %%p0, 1, 2;\n",
		SENTINEL);
	for (const char *s = c->text; *s;) {
		const char *e = strchr(s, ';');
		int len = e ? (int)(e - s) : (int)strlen(s);
		n += (size_t)snprintf(
			out + n, size - n, "%s%.*s;\n", guarded ? "@%odd " : "", len, s);
		s += len + (e != NULL);
	}
	const char *conv = !strcmp(d, "%rd0")  ? "mov.b64 %out, %rd0;"
			   : !strcmp(d, "%r0") ? "cvt.u64.u32 %out, %r0;"
			   : !strcmp(d, "%h0") ? "cvt.u64.u16 %out, %h0;"
			   : !strcmp(d, "%f0") ? "mov.b32 %r0, %f0; cvt.u64.u32 %out, %r0;"
			   : !strcmp(d, "%d0") ? "mov.b64 %out, %d0;"
					       : "selp.u64 %out, 1, 0, %p0;";
	n += (size_t)snprintf(
		out + n, size - n, "%s st.global.u64 [%%base+%d], %%out;\n", conv, index * 256);
	return n;
}

static uint64_t sentinel(const char *d)
{
	return !strcmp(d, "%rd0") || !strcmp(d, "%d0") ? SENTINEL
	       : !strcmp(d, "%h0")                     ? (uint16_t)SENTINEL
	       : !strcmp(d, "%p0")                     ? 0
						       : (uint32_t)SENTINEL;
}

static void check_case(const struct insn_case *c, const uint64_t *got, bool guarded)
{
	uint32_t bad = 0;
	int first = -1;
	for (int i = 0; i < 32; i++) {
		uint64_t want = guarded && i % 2 == 0 ? sentinel(dst_class(c->text)) : c->want;
		if (got[i] == want)
			continue;
		bad++;
		first = first < 0 ? i : first;
	}
	if (!ok(!bad, "%s%s (%llx, %llx, %llx, %llx) = %llx", guarded ? "@odd " : "", c->text,
		    (unsigned long long)c->in[0], (unsigned long long)c->in[1],
		    (unsigned long long)c->in[2], (unsigned long long)c->in[3],
		    (unsigned long long)c->want))
		printf("#   lane %d has %llx\n", first, (unsigned long long)got[first]);
}

static void run_cases(const struct insn_case *cases, uint32_t n)
{
	for (int guarded = 0; guarded < 2; guarded++) {
		size_t size = 4096 + n * 4096, at;
		char *text = malloc(size);
		uint64_t out = alloc(n * 256);
		at = (size_t)snprintf(text, size,
			PTX_HEAD
			".visible .entry k(.param .u64 out)\n{\n.reg .pred %%p<5>, %%odd; .reg "
			".b32 %%r<6>; .reg .b64"
			" %%rd<6>, %%base, %%out; .reg .b16 %%h<5>; .reg .f32 %%f<5>; .reg .f64 "
			"%%d<5>;\n"
			"ld.param.u64 %%base, [out]; mov.u32 %%r5, %%tid.x; mul.wide.u32 %%rd5, "
			"%%r5, 8; add.s64 %%base,"
			" %%base, %%rd5; and.b32 %%r5, %%r5, 1; setp.eq.u32 %%odd, %%r5, 1;\n");
		for (uint32_t i = 0; i < n; i++)
			at += put_case(text + at, size - at, &cases[i], (int)i, guarded);
		snprintf(text + at, size - at, "ret;\n}\n");
		is_int(run_ptx(text, 1, 32, 0, &out), CUDA_SUCCESS, "%u instructions run%s", n,
			guarded ? " in odd lanes" : "");
		for (uint32_t i = 0; i < n; i++)
			check_case(&cases[i], (const uint64_t *)out + i * 32, guarded);
		sg_mem_free(device, out);
		free(text);
	}
}

#define RUN_CASES(cases) run_cases(cases, sizeof(cases) / sizeof((cases)[0]))

#endif
