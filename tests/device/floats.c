/* floats - kernels full of products and sums in many arrangements, written in PTX, and what they
 *compute.
 *
 *	floats --ptx                    the module's text
 *	floats --run OUT [FILE.ptx...]  runs every kernel, of the files as well, and writes a line
 *for each: its name and the bits of what its threads stored
 *
 * Each arrangement is written once and made for every type of floating point: @ stands for the type
 *of arithmetic, $ for that of loads and stores. A kernel's parameters are two addresses, 64 bytes a
 *thread each, and a number of rounds that is not known when it is compiled.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device.h"

enum { BLOCKS = 6, THREADS = 64, CELLS = 8, ROUNDS = 5, MAX_TEXT = 1 << 20 };

static const struct type {
	const char *name, *math, *move, *reg;
} types[] = {
	{ "f32", ".f32", ".f32", ".f32" },
	{ "f32ftz", ".ftz.f32", ".f32", ".f32" },
	{ "f64", ".f64", ".f64", ".f64" },
	{ "f16", ".f16", ".b16", ".b16" },
	{ "f16x2", ".f16x2", ".b32", ".b32" },
	{ "bf16x2", ".bf16x2", ".b32", ".b32" },
};
enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

/* The result is %x. A store of %c is a memory access between two things. */
static const struct arrangement {
	const char *name, *body;
} arrangements[] = {
	{ "together", "mul@ %x, %a, %b; add@ %x, %x, %c;" },
	{ "store_between", "mul@ %x, %a, %b; st.global$ [%out], %c; add@ %x, %x, %d;" },
	{ "load_between", "mul@ %x, %a, %b; ld.global$ %y, [%in+32]; add@ %x, %x, %y;" },
	{ "minuend", "mul@ %x, %a, %b; st.global$ [%out], %c; sub@ %x, %x, %d;" },
	{ "subtrahend", "mul@ %x, %a, %b; st.global$ [%out], %c; sub@ %x, %d, %x;" },
	{ "negated", "mul@ %x, %a, %b; neg@ %y, %x; st.global$ [%out], %c; add@ %x, %y, %d;" },
	{ "absolute", "mul@ %x, %a, %b; abs@ %y, %x; st.global$ [%out], %c; add@ %x, %y, %d;" },
	{ "moved", "mul@ %x, %a, %b; mov$ %y, %x; mov$ %z, %y; st.global$ [%out], %c; add@ %x, %z, "
		   "%d;" },
	{ "chosen",
		"mul@ %x, %a, %b; selp$ %y, %x, %c, %p; st.global$ [%out], %c; add@ %x, %y, %d;" },
	{ "two_sums", "mul@ %x, %a, %b; st.global$ [%out], %c; add@ %y, %x, %d; st.global$ "
		      "[%out+8], %y; sub@ %z, %x, %c; add@ %x, %y, %z;" },
	{ "product_stored", "mul@ %x, %a, %b; st.global$ [%out], %x; add@ %x, %x, %d;" },
	{ "overlapping",
		"mul@ %x, %a, %b; st.global$ [%out], %c; mul@ %y, %c, %d; add@ %x, %x, %d; "
		"st.global$ [%out+8], %x; add@ %y, %y, %a; st.global$ [%out+16], %y;" },
	{ "sum_of_products", "mul@ %x, %a, %b; mul@ %y, %c, %d; ld.global$ %z, [%in+32]; add@ %x, "
			     "%x, %y; add@ %x, %x, %z;" },
	{ "complex", "mul@ %x, %a, %c; mul@ %y, %b, %d; ld.global$ %w, [%in+32]; sub@ %z, %x, %y; "
		     "mul@ %x, %a, %d;"
		     " st.global$ [%out], %z; mul@ %y, %b, %c; add@ %x, %x, %y; add@ %x, %x, %w;" },
	{ "horner",
		"mov$ %x, %a; mul@ %x, %x, %b; ld.global$ %y, [%in+32]; add@ %x, %x, %y; mul@ %x, "
		"%x, %b; ld.global$ %y, [%in+40];"
		" add@ %x, %x, %y; mul@ %x, %x, %b; ld.global$ %y, [%in+48]; add@ %x, %x, %y;" },
	{ "guarded_store", "mul@ %x, %a, %b; @%p st.global$ [%out], %c; add@ %x, %x, %d;" },
	{ "guarded_product",
		"mov$ %x, %c; @%p mul@ %x, %a, %b; st.global$ [%out], %c; add@ %x, %x, %d;" },
	{ "guarded_sum", "mul@ %x, %a, %b; st.global$ [%out], %c; @%p add@ %x, %x, %d;" },
	{ "in_a_branch", "mov$ %x, %c; @%p bra L; mul@ %x, %a, %b; st.global$ [%out], %c; add@ %x, "
			 "%x, %d; L:" },
	{ "over_a_branch",
		"mul@ %x, %a, %b; @%p bra L; st.global$ [%out], %c; L: add@ %x, %x, %d;" },
	{ "both_ways", "mul@ %x, %a, %b; @%p bra L; add@ %x, %x, %c; bra M; L: st.global$ [%out], "
		       "%c; sub@ %x, %x, %d; M:" },
	{ "one_of_two", "@%p bra L; mul@ %x, %a, %b; bra M; L: mul@ %x, %a, %c; M: st.global$ "
			"[%out], %c; add@ %x, %x, %d;" },
	{ "product_or_sum", "@%p bra L; mul@ %x, %a, %b; bra M; L: add@ %x, %a, %c; M: st.global$ "
			    "[%out], %c; add@ %x, %x, %d;" },
	{ "overwritten_on_one_way", "mul@ %x, %a, %b; @%p bra L; st.global$ [%out], %x; mov$ %x, "
				    "%c; L: add@ %x, %x, %d;" },
	{ "backwards", "bra B; A: add@ %x, %x, %d; st.global$ [%out], %x; bra C; B: mul@ %x, %a, "
		       "%b; bra A; C:" },
	{ "next_block", "mul@ %x, %a, %b; bra A; A: add@ %x, %x, %d; st.global$ [%out], %x;" },
	{ "may_leave", "mul@ %x, %a, %b; @%p exit; add@ %x, %x, %d; st.global$ [%out], %x;" },
	{ "barrier_between", "mul@ %x, %a, %b; bar.sync 0; add@ %x, %x, %d;" },
	{ "fence_between", "mul@ %x, %a, %b; membar.gl; add@ %x, %x, %d;" },
	{ "atomic_between", "mul@ %x, %a, %b; red.global.add.u32 [%out+24], 3; add@ %x, %x, %d;" },
	{ "volatile_between",
		"mul@ %x, %a, %b; ld.volatile.global$ %y, [%in+32]; add@ %x, %x, %y;" },
	{ "shared_between", "mul@ %x, %a, %b; st.shared$ [%sh], %c; bar.warp.sync -1; ld.shared$ "
			    "%y, [%sh]; add@ %x, %x, %y;" },
	{ "call_between", "mul@ %x, %a, %b; { .param .b32 p; st.param.b32 [p], %n; call touch, "
			  "(p); } add@ %x, %x, %d;" },
	{ "inner_scope", "{ .reg$ %x; mul@ %x, %a, %b; st.global$ [%out], %x; } mul@ %x, %a, %c; { "
			 "st.global$ [%out+8], %c; } add@ %x, %x, %d;" },
	{ "shadowed_sum", "mul@ %x, %a, %b; { .reg$ %x; mov$ %x, %c; st.global$ [%out], %c; add@ "
			  "%x, %x, %d; st.global$ [%out+8], %x; } add@ %x, %x, %d;" },
	{ "loop", "mov$ %x, %c; L: mul@ %y, %x, %b; add@ %x, %y, %d; sub.u32 %n, %n, 1; "
		  "setp.ne.u32 %q, %n, 0; @%q bra L;" },
	{ "loop_with_store", "mov$ %x, %c; L: mul@ %y, %x, %b; st.global$ [%out], %x; add@ %x, %y, "
			     "%d; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L;" },
	{ "dot_product",
		"mov$ %x, %c; L: ld.global$ %y, [%in]; ld.global$ %z, [%in+8]; mul@ %y, %y, %z; "
		"add@ %x, %x, %y;"
		" add.s64 %in, %in, 8; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L;" },
	{ "carried", "mov$ %x, %c; mul@ %y, %a, %b; L: add@ %x, %x, %y; mul@ %y, %x, %b; sub.u32 "
		     "%n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L; add@ %x, %x, %y;" },
	{ "carried_known",
		"mov.u32 %n, 4; mov$ %x, %c; mul@ %y, %a, %b; L: add@ %x, %x, %y; mul@ %y, %x, %b; "
		"st.global$ [%out], %c; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L;" },
	{ "carried_only", "mov.u32 %n, 4; mov$ %x, %c; mov$ %y, %a; L: add@ %x, %x, %y; mul@ %y, "
			  "%x, %b; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L;" },
	{ "known_rounds", "mov.u32 %n, 4; mov$ %x, %c; L: mul@ %y, %x, %b; add@ %x, %y, %d; "
			  "sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L;" },
	{ "chain", "mov$ %x, %c; st.global$ [%out], %d; mul@ %y, %x, %b; add@ %x, %y, %d; st.global$ [%out+8], %c; "
		   "mul@ %y, %x, %b; add@ %x, %y, %d; st.global$ [%out+16], %c; mul@ %y, %x, %b; add@ %x, %y, %d; "
		   "st.global$ [%out+24], %c; mul@ %y, %x, %b; add@ %x, %y, %d;" },
	{ "rounds_with_store", "mov.u32 %n, 4; mov$ %x, %c; L: st.global$ [%out], %c; mul@ %y, %x, %b; add@ %x, %y, %d; "
			       "sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L; st.global$ [%out+8], %c;" },
	{ "three_ways", "mul@ %x, %a, %b; @%p bra L; setp.le.u32 %q, %t, 1; @%q bra M; sub@ %x, %x, %c; bra M; L: "
			"st.global$ [%out], %x; M: add@ %x, %x, %d;" },
	{ "read_as_product", "mul@ %x, %a, %b; add@ %y, %x, %c; mul@ %y, %y, %d; add@ %z, %y, %a; add@ %x, %y, %b; "
			     "st.global$ [%out], %z;" },
	{ "nested_loops",
		"mov$ %x, %c; L: mov.u32 %m, 3; mul@ %y, %x, %b; K: mul@ %z, %x, %a; add@ %x, %z, "
		"%d; sub.u32 %m, %m, 1; setp.ne.u32 %q, %m, 0; @%q bra K;"
		" add@ %x, %x, %y; sub.u32 %n, %n, 1; setp.ne.u32 %q, %n, 0; @%q bra L;" },
	{ "table", "mul@ %x, %a, %b; and.b32 %m, %i, 1; T: .branchtargets L, M; brx.idx %m, T; L: "
		   "add@ %x, %x, %c; bra N; M: sub@ %x, %d, %x; N:" },
	{ "returned", "{ .param$ p; .param$ q; .param$ r; st.param$ [p], %a; st.param$ [q], %b; "
		      "call (r), product_$N, (p, q); ld.param$ %x, [r]; } add@ %x, %x, %d;" },
	{ "passed", "mul@ %y, %a, %b; { .param$ p; .param$ q; .param$ r; st.param$ [p], %y; "
		    "st.param$ [q], %c; call (r), sum_$N, (p, q); ld.param$ %x, [r]; }" },
	{ "rounded", "mul.rn@ %x, %a, %b; st.global$ [%out], %c; add@ %x, %x, %d;" },
	{ "with_fma", "mul@ %x, %a, %b; st.global$ [%out], %c; fma.rn@ %y, %x, %c, %d; st.global$ "
		      "[%out+8], %y; add@ %x, %x, %y;" },
};
enum { N_ARRANGEMENTS = sizeof(arrangements) / sizeof(arrangements[0]) };

/* For one type or two: what the hardware has no instruction of its own for. */
static const struct special {
	const char *name, *body;
} specials[] = {
	{ "quotient", "div.full.f32 %x, %a, %b; st.global.f32 [%out], %c; add.f32 %x, %x, %d;" },
	{ "approx_quotient",
		"div.approx.f32 %x, %a, %b; st.global.f32 [%out], %c; add.f32 %x, %x, %d;" },
	{ "approx_root", "abs.f32 %a, %a; sqrt.approx.f32 %x, %a; st.global.f32 [%out], %c; "
			 "add.f32 %x, %x, %d;" },
	{ "power", "ex2.approx.f32 %x, %a; st.global.f32 [%out], %c; add.f32 %x, %x, %d;" },
	{ "logarithm", "abs.f32 %a, %a; lg2.approx.f32 %x, %a; mul.f32 %x, %x, 0f3F317218; "
		       "st.global.f32 [%out], %c; add.f32 %x, %x, %d;" },
	{ "shuffled",
		"mul.f32 %x, %a, %b; shfl.sync.bfly.b32 %y, %x, 1, 31, -1; add.f32 %x, %x, %y;" },
	{ "vector_store", "mul.f32 %x, %a, %b; mul.f32 %y, %a, %c; st.global.v2.f32 [%out], {%x, "
			  "%y}; add.f32 %x, %x, %d; add.f32 %x, %x, %y;" },
	{ "saturated", "mul.sat.f32 %x, %a, %b; st.global.f32 [%out], %c; add.f32 %x, %x, %d;" },
	{ "saturated_sum",
		"mul.f32 %x, %a, %b; st.global.f32 [%out], %c; add.sat.f32 %x, %x, %d;" },
};
enum { N_SPECIALS = sizeof(specials) / sizeof(specials[0]) };

struct text {
	char *at;
	size_t n;
};

static void put(struct text *t, const char *s, size_t n)
{
	if (t->n + n >= MAX_TEXT)
		abort();
	memcpy(t->at + t->n, s, n);
	t->at[t->n += n] = 0;
}

/* $N: the type's name, $: of loads, @ that no guard's % follows: of arithmetic. */
static void put_body(struct text *t, const char *s, const struct type *type)
{
	for (; *s; s++) {
		if (s[0] == '$' && s[1] == 'N')
			put(t, type->name, strlen(type->name)), s++;
		else if (*s == '$')
			put(t, type->move, strlen(type->move));
		else if (*s == '@' && s[1] != '%')
			put(t, type->math, strlen(type->math));
		else if (*s == ';')
			put(t, ";\n\t", 3);
		else
			put(t, s, 1);
	}
}

static const char preamble[] =
	".version 7.8\n.target sm_90\n.address_size 64\n"
	".visible .global .u32 touched;\n"
	".func touch(.param .b32 p)\n{\n\t.reg .b32 %r;\n\t.reg .b64 %g;\n\tld.param.b32 %r, [p];\n"
	"\tmov.u64 %g, touched;\n\tred.global.add.u32 [%g], %r;\n\tret;\n}\n";

static const char functions[] = ".func (.param$ r) product_$N(.param$ p, .param$ q)\n{ .reg$ %a; "
				".reg$ %b; ld.param$ %a, [p]; ld.param$ %b, [q];"
				" mul@ %a, %a, %b; st.param$ [r], %a; ret; }\n"
				".func (.param$ r) sum_$N(.param$ p, .param$ q)\n{ .reg$ %a; .reg$ "
				"%b; ld.param$ %a, [p]; ld.param$ %b, [q];"
				" add@ %a, %a, %b; st.param$ [r], %a; ret; }\n";

static const char before[] =
	"(.param .u64 from, .param .u64 to, .param .u32 rounds)\n{\n"
	"\t.reg .pred %p, %q;\n\t.reg .b32 %i, %n, %m, %t;\n\t.reg .b64 %in, %out, %o, %sh;\n"
	"\t.reg$ %a; .reg$ %b; .reg$ %c; .reg$ %d; .reg$ %x; .reg$ %y; .reg$ %z; .reg$ %w;\n"
	".shared .align 8 .b8 cells[512];\n"
	"ld.param.u64 %in, [from]; ld.param.u64 %out, [to]; ld.param.u32 %n, [rounds];"
	"cvta.to.global.u64 %in, %in; cvta.to.global.u64 %out, %out;"
	"mov.u32 %i, %ctaid.x; mov.u32 %t, %ntid.x; mov.u32 %m, %tid.x; mad.lo.u32 %i, %i, %t, %m;"
	"mul.wide.u32 %o, %i, 64; add.s64 %in, %in, %o; add.s64 %out, %out, %o;"
	"mul.wide.u32 %o, %m, 8; mov.u64 %sh, cells; add.s64 %sh, %sh, %o;"
	"and.b32 %t, %i, 3; setp.eq.u32 %p, %t, 1;"
	"ld.global$ %a, [%in]; ld.global$ %b, [%in+8]; ld.global$ %c, [%in+16]; ld.global$ %d, "
	"[%in+24];\n\t";

static const char after[] = "\n\tst.global$ [%out+56], %x; ret;\n}\n";

static void put_kernel(struct text *t, const char *name, const char *body, const struct type *type)
{
	put(t, ".visible .entry ", 16);
	put(t, name, strlen(name));
	put(t, "_", 1);
	put(t, type->name, strlen(type->name));
	put_body(t, before, type);
	put_body(t, body, type);
	put_body(t, after, type);
}

static char *module_text(void)
{
	struct text t = { .at = malloc(MAX_TEXT) };

	if (!t.at)
		abort();
	put(&t, preamble, strlen(preamble));
	for (size_t k = 0; k < N_TYPES; k++) {
		put_body(&t, functions, &types[k]);
		for (size_t i = 0; i < N_ARRANGEMENTS; i++) {
			/* Explicit rounding and ftz are written in that order. */
			if (strstr(arrangements[i].body, ".rn") && !strcmp(types[k].name, "bf16x2"))
				continue;
			put_kernel(&t, arrangements[i].name, arrangements[i].body, &types[k]);
		}
	}
	for (size_t i = 0; i < N_SPECIALS; i++)
		put_kernel(&t, specials[i].name, specials[i].body, &types[0]);
	return t.at;
}

/* -- running -- */

static uint32_t random32(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33) ^ (uint32_t)(*state >> 20);
}

/* Numbers near 1 of both signs with every bit of their mantissa in use, so that a product has bits
 * to lose. */
static uint64_t cell_of(const char *type, uint64_t *state)
{
	uint64_t bits = (uint64_t)random32(state) << 32 | random32(state);
	uint64_t near = random32(state) % 5;

	if (!strcmp(type, "f64"))
		return (bits & 0x800fffffffffffff) | (1021 + near) << 52;
	if (!strcmp(type, "bf16x2"))
		return (bits & 0x807f807f) | (125 + near) << 7 | (125 + near) << 23;
	if (!strncmp(type, "f16", 3))
		return (bits & 0x83ff83ff) | (13 + near) << 10 | (13 + near) << 26;
	return (bits & 0x807fffff) | (125 + near) << 23;
}

static const char *type_of(const char *kernel)
{
	const char *last = strrchr(kernel, '_');

	return last ? last + 1 : "f32";
}

static bool run_kernel(struct device *dev, struct device_module *m, const char *name, uint64_t in,
	uint64_t out, FILE *report)
{
	static uint64_t cells[BLOCKS * THREADS * CELLS];
	const uint32_t grid[3] = { BLOCKS, 1, 1 }, block[3] = { THREADS, 1, 1 };
	uint64_t args[3] = { in, out, ROUNDS }, state = 20261129;

	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
		cells[i] = cell_of(type_of(name), &state);
	if (!device_write(dev, in, cells, sizeof(cells)))
		return false;
	memset(cells, 0, sizeof(cells));
	if (!device_write(dev, out, cells, sizeof(cells)) ||
		!device_launch(dev, m, name, grid, block, args, 3) || !device_wait(dev) ||
		!device_read(dev, cells, out, sizeof(cells)))
		return false;
	fprintf(report, "%s", name);
	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
		fprintf(report, " %llx", (unsigned long long)cells[i]);
	fprintf(report, "\n");
	return true;
}

static bool run_module(struct device *dev, const char *ptx, uint64_t in, uint64_t out, FILE *report)
{
	struct device_module *m = device_load(dev, ptx);
	bool ok = m;

	for (const char *at = ptx; ok && (at = strstr(at, ".entry "));) {
		char name[256];
		size_t n = strcspn(at += 7, "( \n");
		snprintf(name, sizeof(name), "%.*s", (int)n, at);
		ok = run_kernel(dev, m, name, in, out, report);
		if (!ok)
			fprintf(stderr, "%s does not run\n", name);
	}
	if (m)
		device_unload(dev, m);
	return ok;
}

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "rb");
	char *text = f ? calloc(1, MAX_TEXT) : NULL;

	if (text && fread(text, 1, MAX_TEXT - 1, f) == 0)
		text[0] = 0;
	if (f)
		fclose(f);
	return text;
}

static bool run_all(const char *path, char **files, int n_files)
{
	const char *why = "";
	struct device *dev = device_open("libcuda.so.1", &why);
	FILE *report = fopen(path, "w");
	bool ok = dev && report;

	if (!ok)
		fprintf(stderr, "%s\n", dev ? path : why);
	uint64_t in = ok ? device_alloc(dev, BLOCKS * THREADS * CELLS * 8) : 0;
	uint64_t out = ok ? device_alloc(dev, BLOCKS * THREADS * CELLS * 8) : 0;
	for (int i = -1; ok && i < n_files; i++) {
		char *ptx = i < 0 ? module_text() : read_file(files[i]);
		ok = ptx && run_module(dev, ptx, in, out, report);
		free(ptx);
	}
	if (report && fclose(report))
		ok = false;
	if (in && out) {
		device_free(dev, in);
		device_free(dev, out);
	}
	if (dev)
		device_close(dev);
	return ok;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--ptx")) {
		char *text = module_text();
		fputs(text, stdout);
		free(text);
		return 0;
	}
	if (argc > 2 && !strcmp(argv[1], "--run"))
		return !run_all(argv[2], argv + 3, argc - 3);
	fprintf(stderr, "usage: floats --ptx | --run OUT [FILE.ptx...]\n");
	return 2;
}
