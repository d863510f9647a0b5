/* gen.c - inputs and PTX text of the differential test's cases. */
#include "diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- numbers ------------------------------------------------------------------ */

uint64_t diff_hash(const void *data, size_t bytes, uint64_t seed)
{
	const uint8_t *p = data;
	uint64_t h = seed ^ 0xcbf29ce484222325ull;
	for (size_t i = 0; i < bytes; i++) {
		h = (h ^ p[i]) * 0x100000001b3ull;
		h ^= h >> 29;
	}
	return h;
}

static uint64_t next(uint64_t *s)
{
	uint64_t z = *s += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t diff_bytes(char cls)
{
	if (strchr("hHBEz", cls))
		return 2;
	return strchr("dFNIJW", cls) ? 8 : 4;
}

static uint64_t f32_bits(float v)
{
	uint32_t u;
	memcpy(&u, &v, 4);
	return u;
}

static uint64_t f64_bits(double v)
{
	uint64_t u;
	memcpy(&u, &v, 8);
	return u;
}

static const uint64_t edges16[] = { 0, 1, 2, 3, 7, 15, 16, 0x7f, 0x80, 0xff, 0x100, 0x7ffe, 0x7fff,
	0x8000, 0x8001, 0xaaaa, 0x5555, 0xff00, 0xff80, 0xfff0, 0xfffe, 0xffff };
static const uint64_t edges32[] = { 0, 1, 2, 3, 7, 31, 32, 0x7f, 0x80, 0xff, 0xffff, 0x10000,
	0x800000, 0xffffff, 0x7ffffffe, 0x7fffffff, 0x80000000, 0x80000001, 0xaaaaaaaa, 0x7f80ff01,
	0xffff0000, 0xffffff80, 0xfffffffe, 0xffffffff };
static const uint64_t edges64[] = { 0, 1, 2, 3, 63, 64, 0xff, 0xffff, 0x7fffffff, 0x80000000,
	0xffffffff, 0x100000000, 0x7ffffffffffffffe, 0x7fffffffffffffff, 0x8000000000000000,
	0x8000000000000001, 0xaaaaaaaaaaaaaaaa, 0x123456789abcdef0, 0xffffffff00000000,
	0xffffffff80000000, 0xffffffffffffff80, 0xfffffffffffffffe, 0xffffffffffffffff };
static const uint64_t edges_shift[] = { 0, 1, 2, 7, 8, 15, 16, 17, 24, 30, 31, 32, 33, 62, 63, 64,
	65, 127, 128, 255, 256, 0x7fffffff, 0x80000000, 0xffffffff };
static const uint64_t edges_f32[] = { 0, 0x80000000, 1, 0x80000001, 0x7fffff, 0x807fffff, 0x800000,
	0x80800000, 0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff, 0x3f000000, 0x40200000,
	0xbfc00000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
	0xffc12345, 0x4b000001, 0x34000000 };
static const uint64_t edges_f64[] = { 0, 1ull << 63, 1, 0x8000000000000001, 0xfffffffffffff,
	0x800fffffffffffff, 0x10000000000000, 0x8010000000000000, 0x3ff0000000000000,
	0xbff0000000000000, 0x3ff0000000000001, 0x3fefffffffffffff, 0x3fe0000000000000,
	0x4004000000000000, 0xbff8000000000000, 0x7fefffffffffffff, 0xffefffffffffffff,
	0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001,
	0xfff8000012345678, 0x4330000000000001, 0x36a0000000000000 };
static const uint64_t edges_f16[] = { 0, 0x8000, 1, 0x8001, 0x3ff, 0x83ff, 0x400, 0x8400, 0x3c00,
	0xbc00, 0x3c01, 0x3bff, 0x3800, 0x4100, 0xbe00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00,
	0x7c01, 0xfe12, 0x6401, 0x1400 };
static const uint64_t edges_bf16[] = { 0, 0x8000, 1, 0x8001, 0x7f, 0x807f, 0x80, 0x8080, 0x3f80,
	0xbf80, 0x3f81, 0x3f7f, 0x3f00, 0x4020, 0xbfc0, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0,
	0x7f81, 0xffc1, 0x4b01, 0x3400 };
/* Around the ends of integer types, as doubles. */
static const double edges_int[] = { 0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.75, 127.5, 128, -128.5,
	255.5, 256, 32767.5, -32768.5, 65535.5, 2147483520.0, 2147483648.0, -2147483648.0,
	4294967040.0, 4294967296.0, 9223371487098961920.0, 9223372036854775808.0,
	18446744073709551616.0 };

#define EDGE(table, i) table[(i) % (sizeof(table) / sizeof((table)[0]))]
#define EDGES 24

/* A float of that format with an exponent near 1. */
static uint64_t moderate(uint64_t r, int ebits, int mbits)
{
	uint64_t bias = (1u << (ebits - 1)) - 1, spread = ebits > 5 ? 24 : 10;
	uint64_t e = bias - spread / 2 + (r >> 40) % spread;
	return (r & 1) << (ebits + mbits) | e << mbits | (r >> 1 & ((1ull << mbits) - 1));
}

static uint64_t float_value(uint64_t r, int ebits, int mbits)
{
	uint64_t any = r >> 3 & ((2ull << (ebits + mbits)) - 1);
	if (ebits + mbits == 63)
		any = r * 0x9e3779b97f4a7c15ull;
	return r & 4 ? any : moderate(r >> 3, ebits, mbits);
}

static uint64_t edge(char cls, uint32_t i)
{
	switch (cls) {
	case 'h':
	case 'E':
		return EDGE(edges16, i);
	case 'z':
		return EDGE(edges16, i) ? EDGE(edges16, i) : 5;
	case 'r':
		return EDGE(edges32, i);
	case 'n':
		return EDGE(edges32, i) ? EDGE(edges32, i) : 5;
	case 'd':
		return EDGE(edges64, i);
	case 'N':
		return EDGE(edges64, i) ? EDGE(edges64, i) : 5;
	case 's':
		return EDGE(edges_shift, i);
	case 'F':
		return EDGE(edges_f64, i);
	case 'H':
		return EDGE(edges_f16, i);
	case 'X':
		return EDGE(edges_f16, i) | EDGE(edges_f16, i * 7 + 3) << 16;
	case 'B':
		return EDGE(edges_bf16, i);
	case 'Y':
		return EDGE(edges_bf16, i) | EDGE(edges_bf16, i * 7 + 3) << 16;
	case 'i':
		return f32_bits((float)EDGE(edges_int, i));
	case 'I':
		return f64_bits(EDGE(edges_int, i));
	default:
		return EDGE(edges_f32, i);
	}
}

static uint16_t small_half(uint64_t r, bool bf)
{
	static const uint16_t half[] = { 0, 0x3c00, 0x4000, 0x4200, 0x4400 },
			      brain[] = { 0, 0x3f80, 0x4000, 0x4040, 0x4080 };
	return (uint16_t)((bf ? brain : half)[(r >> 1) % 5] | (r & 1) << 15);
}

/* From [-1, 1]: exponents of the last eight below one. */
static uint16_t unit_half(uint64_t r, bool bf)
{
	uint64_t e = (bf ? 126 : 14) - (r >> 32) % 5, m = r >> 1;
	return (uint16_t)((r & 1) << 15 | e << (bf ? 7 : 10) | (m & (bf ? 127 : 1023)));
}

static uint64_t plain(char cls, uint64_t r)
{
	double unit = (double)(int64_t)r / 9223372036854775808.0;
	switch (cls) {
	case 'h':
	case 'E':
		return r & 0xffff;
	case 'z':
		return (r & 0xffff) | !(r & 0xffff);
	case 'r':
		return r & 0xffffffff;
	case 'n':
		r >>= r >> 59;
		return (r & 0xffffffff) | !(r & 0xffffffff);
	case 'd':
		return r;
	case 'N':
		r >>= r >> 58;
		return r | !r;
	case 's':
		return (r >> 8) % (r & 1 ? 40 : 70);
	case 'l':
		return r & 31;
	case 'c':
		return r & 3;
	case 'p':
		return r & 1;
	case 'F':
		return float_value(r, 11, 52);
	case 'H':
		return float_value(r, 5, 10) & 0xffff;
	case 'X':
		return (float_value(r, 5, 10) & 0xffff) | (float_value(next(&r), 5, 10) & 0xffff)
								  << 16;
	case 'B':
		return float_value(r, 8, 7) & 0xffff;
	case 'Y':
		return (float_value(r, 8, 7) & 0xffff) | (float_value(next(&r), 8, 7) & 0xffff)
								 << 16;
	case 'i':
		return f32_bits((float)ldexp(unit, (int)((r >> 3) % 68)));
	case 'I':
		return f64_bits(ldexp(unit, (int)((r >> 3) % 68)));
	case 'e':
		return f32_bits((float)ldexp(unit, (int)((r >> 3) % 12) - 3));
	case 'u':
		return float_value(r, 8, 23) & 0x7fffffff;
	case 'g':
		return small_half(r, false) | (uint64_t)small_half(r >> 20, false) << 16;
	case 'G':
		return small_half(r, true) | (uint64_t)small_half(r >> 20, true) << 16;
	case 'j':
		return f32_bits((float)((int)(r % 9) - 4));
	case 'J':
		return f64_bits((double)((int)(r % 9) - 4));
	case 'k':
		return unit_half(r, false) | (uint64_t)unit_half(next(&r), false) << 16;
	case 'K':
		return unit_half(r, true) | (uint64_t)unit_half(next(&r), true) << 16;
	case 'w':
		return f32_bits((float)unit);
	case 'W':
		return f64_bits(unit);
	default:
		return float_value(r, 8, 23) & 0xffffffff;
	}
}

void diff_inputs(const struct diff_case *c, uint32_t k, uint64_t *out)
{
	char cls = c->operands[k];
	bool has_edges = !strchr("lcpgGjJkKwW", cls), many = strlen(c->operands) > 1;
	uint64_t s = diff_hash(c->name, strlen(c->name), k + 1);
	for (uint32_t i = 0; i < DIFF_N; i++) {
		uint64_t r = next(&s);
		/* First every pair of edges of the first two operands, then mixtures. */
		if (!has_edges)
			out[i] = plain(cls, r);
		else if (k < 2 && i < (many ? EDGES * EDGES : EDGES))
			out[i] = edge(cls, k ? i / EDGES : i % EDGES);
		else if (r >> 60 < 6)
			out[i] = edge(cls, (uint32_t)(r >> 20) % EDGES);
		else
			out[i] = plain(cls, next(&s));
	}
}

/* -- text --------------------------------------------------------------------- */

static const char *reg_type(char cls)
{
	uint32_t n = diff_bytes(cls);
	return cls == 'p' ? "pred" : n == 2 ? "b16" : n == 4 ? "b32" : "b64";
}

static void kernel(FILE *f, const struct diff_case *c, uint32_t index)
{
	fprintf(f,
		"// %s\n.visible .entry k%u(.param .u64 p_in, .param .u64 p_out, .param .u64 "
		"p_scratch)\n{\n",
		c->name, index);
	fprintf(f, "\t.reg .b64 %%in, %%out, %%s, %%t;\n\t.reg .b32 %%x, %%y, %%z;\n");
	for (uint32_t k = 0; c->results[k] != ':'; k++)
		fprintf(f, "\t.reg .%s %%o%u;\n", reg_type(c->results[k]), k);
	for (uint32_t k = 0; c->operands[k]; k++)
		fprintf(f, "\t.reg .%s %%a%u;\n", reg_type(c->operands[k]), k);
	fprintf(f, "\tld.param.u64 %%in, [p_in];\n\tld.param.u64 %%out, [p_out];\n"
		   "\tld.param.u64 %%s, [p_scratch];\n\tmov.u32 %%x, %%ctaid.x;\n\tmov.u32 %%y, "
		   "%%ntid.x;\n"
		   "\tmov.u32 %%z, %%tid.x;\n\tmad.lo.u32 %%x, %%x, %%y, %%z;\n"
		   "\tmul.wide.u32 %%t, %%x, 8;\n\tadd.u64 %%in, %%in, %%t;\n\tadd.u64 %%out, "
		   "%%out, %%t;\n"
		   "\tmul.wide.u32 %%t, %%x, 64;\n\tadd.u64 %%s, %%s, %%t;\n");
	for (uint32_t k = 0; c->operands[k]; k++) {
		if (c->operands[k] == 'p')
			fprintf(f,
				"\tld.global.b32 %%y, [%%in+%u];\n\tsetp.ne.u32 %%a%u, %%y, 0;\n",
				k * DIFF_N * 8, k);
		else
			fprintf(f, "\tld.global.%s %%a%u, [%%in+%u];\n", reg_type(c->operands[k]),
				k, k * DIFF_N * 8);
	}
	fprintf(f, "\t{\n%s\n\t}\n", c->body);
	for (uint32_t k = 0; c->results[k] != ':'; k++) {
		if (c->results[k] == 'p')
			fprintf(f,
				"\tselp.u32 %%y, 1, 0, %%o%u;\n\tst.global.b32 [%%out+%u], %%y;\n",
				k, k * DIFF_N * 8);
		else
			fprintf(f, "\tst.global.%s [%%out+%u], %%o%u;\n", reg_type(c->results[k]),
				k * DIFF_N * 8, k);
	}
	fprintf(f, "\tret;\n}\n");
}

char *diff_ptx(const struct diff_list *list, uint32_t from, uint32_t to)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	if (!f)
		return NULL;
	fprintf(f, ".version 8.6\n.target sm_90\n.address_size 64\n");
	for (uint32_t i = from; i < to; i++)
		kernel(f, &list->cases[i], i - from);
	fclose(f);
	return text;
}
