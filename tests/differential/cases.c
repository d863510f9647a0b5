/* cases.c - which instructions the differential test runs, family by family. */
#include "diff.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct diff_list *l, const char *family, const char *bound, const char *sig,
	char *name, char *body)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 256;
		l->cases = realloc(l->cases, l->cap * sizeof(*l->cases));
	}
	struct diff_case *c = &l->cases[l->n++];
	*c = (struct diff_case){ .family = family, .name = name, .body = body, .bound = bound };
	c->sig = strdup(sig);
	c->results = c->sig;
	c->operands = strchr(c->sig, ':') + 1;
}

void diff_cases_free(struct diff_list *l)
{
	for (uint32_t i = 0; i < l->n; i++) {
		free(l->cases[i].name);
		free(l->cases[i].body);
		free(l->cases[i].sig);
	}
	free(l->cases);
	*l = (struct diff_list){ 0 };
}

/* One instruction, its operands in order. Text after '|' in the format follows the operands. */
__attribute__((format(printf, 5, 6))) static void op(struct diff_list *l, const char *family,
	const char *bound, const char *sig, const char *fmt, ...)
{
	char text[256], body[512];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	char *tail = strchr(text, '|');
	int opcode = tail ? (int)(tail - text) : (int)strlen(text);
	int n = snprintf(body, sizeof(body), "\t%.*s ", opcode, text);
	const char *p = sig;
	bool pair = sig[1] == 'p' && sig[0] != 'p';
	for (int k = 0; *p != ':'; p++, k++)
		n += snprintf(body + n, sizeof(body) - (size_t)n, "%s%%o%d",
			!k                        ? ""
			: pair || (sig[0] == 'p') ? "|"
						  : ", ",
			k);
	p++;
	for (int k = 0; *p; p++, k++)
		n += snprintf(body + n, sizeof(body) - (size_t)n, ", %%a%d", k);
	snprintf(body + n, sizeof(body) - (size_t)n, "%s;", tail ? tail + 1 : "");
	add(l, family, bound, sig, strdup(text), strdup(body));
}

/* Several instructions under one name. */
__attribute__((format(printf, 6, 7))) static void text(struct diff_list *l, const char *family,
	const char *bound, const char *sig, const char *name, const char *fmt, ...)
{
	char *body = NULL;
	va_list ap;
	va_start(ap, fmt);
	if (vasprintf(&body, fmt, ap) < 0)
		abort();
	va_end(ap);
	add(l, family, bound, sig, strdup(name), body);
}

#define FOR(var, ...) /* for each string of a list */                                              \
	for (const char *const *var##_p = (const char *const[]){ __VA_ARGS__, NULL },              \
			       *var = *var##_p;                                                    \
		var; var = *++var##_p)

/* Class of an integer type, as one letter of a signature. */
static char cls(const char *type)
{
	int bits = atoi(type + 1);
	return bits == 16 ? 'h' : bits == 64 ? 'd' : 'r';
}

static const char *sig(const char *results, const char *operands)
{
	static char s[4][64];
	static int at;
	char *r = s[at++ % 4];
	snprintf(r, sizeof(s[0]), "%s:%s", results, operands);
	return r;
}

/* n times the same class. */
static const char *same(char c, int results, int operands)
{
	char r[16] = { 0 }, o[16] = { 0 };
	memset(r, c, (size_t)results);
	memset(o, c, (size_t)operands);
	return sig(r, o);
}

/* -- integers ----------------------------------------------------------------- */

static void integers(struct diff_list *l)
{
	const char *f = "integer";
	FOR(t, "u16", "s16", "u32", "s32", "u64", "s64") {
		char c = cls(t);
		FOR(o, "add", "sub", "mul.lo", "mul.hi", "min", "max")
			op(l, f, NULL, same(c, 1, 2), "%s.%s", o, t);
		FOR(o, "mad.lo", "mad.hi", "sad")
			op(l, f, NULL, same(c, 1, 3), "%s.%s", o, t);
		char nz[3] = { c, c == 'h' ? 'z' : c == 'r' ? 'n' : 'N', 0 };
		FOR(o, "div", "rem")
			op(l, f, NULL, sig((char[]){ c, 0 }, nz), "%s.%s", o, t);
		if (t[0] == 's')
			FOR(o, "abs", "neg")
				op(l, f, NULL, same(c, 1, 1), "%s.%s", o, t);
	}
	FOR(t, "u16", "s16") {
		op(l, f, NULL, "r:hh", "mul.wide.%s", t);
		op(l, f, NULL, "r:hhr", "mad.wide.%s", t);
	}
	FOR(t, "u32", "s32") {
		op(l, f, NULL, "d:rr", "mul.wide.%s", t);
		op(l, f, NULL, "d:rrd", "mad.wide.%s", t);
		FOR(h, "lo", "hi") {
			op(l, f, NULL, "r:rr", "mul24.%s.%s", h, t);
			op(l, f, NULL, "r:rrr", "mad24.%s.%s", h, t);
		}
	}
	FOR(o, "add.sat.s32", "sub.sat.s32")
		op(l, f, NULL, "r:rr", "%s", o);
	FOR(o, "mad.hi.sat.s32", "mad24.hi.sat.s32")
		op(l, f, NULL, "r:rrr", "%s", o);
	FOR(t, "b16", "b32", "b64") {
		char c = cls(t);
		FOR(o, "and", "or", "xor")
			op(l, f, NULL, same(c, 1, 2), "%s.%s", o, t);
		FOR(o, "not", "cnot")
			op(l, f, NULL, same(c, 1, 1), "%s.%s", o, t);
	}
	FOR(o, "shl.b", "shr.b", "shr.u", "shr.s") {
		op(l, f, NULL, "h:hs", "%s16", o);
		op(l, f, NULL, "r:rs", "%s32", o);
		op(l, f, NULL, "d:ds", "%s64", o);
	}
	FOR(o, "popc.b", "clz.b", "bfind.u", "bfind.s", "bfind.shiftamt.u", "bfind.shiftamt.s") {
		op(l, f, NULL, "r:r", "%s32", o);
		op(l, f, NULL, "r:d", "%s64", o);
	}
	op(l, f, NULL, "r:r", "brev.b32");
	op(l, f, NULL, "d:d", "brev.b64");
	FOR(t, "u32", "s32", "u64", "s64") {
		char c = cls(t), o[4] = { c, 's', 's', 0 };
		op(l, f, NULL, sig((char[]){ c, 0 }, o), "bfe.%s", t);
	}
	op(l, f, NULL, "r:rrss", "bfi.b32");
	op(l, f, NULL, "d:ddss", "bfi.b64");
	FOR(m, "clamp", "wrap") {
		op(l, f, NULL, "r:ss", "bmsk.%s.b32", m);
		op(l, f, NULL, "r:rs", "szext.%s.u32", m);
		op(l, f, NULL, "r:rs", "szext.%s.s32", m);
		op(l, f, NULL, "r:rrs", "shf.l.%s.b32", m);
		op(l, f, NULL, "r:rrs", "shf.r.%s.b32", m);
	}
	text(l, f, NULL, "r:rlr", "fns.b32",
		"\t.reg .b32 %%n;\n\tshr.s32 %%n, %%a2, 29;\n\tfns.b32 %%o0, %%a0, %%a1, %%n;");
	FOR(m, "", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16")
		op(l, f, NULL, "r:rrr", "prmt.b32%s", m);
	for (int k = 1; k < 256; k += 23)
		op(l, f, NULL, "r:rrr", "lop3.b32|, %d", k);
	FOR(o, "or", "and")
		text(l, f, NULL, "rp:rrrp", o[0] == 'o' ? "lop3.or.b32" : "lop3.and.b32",
			"\tlop3.%s.b32 %%o0|%%o1, %%a0, %%a1, %%a2, 0x96, %%a3;", o);
	FOR(a, "u32", "s32")
		FOR(b, "u32", "s32") {
			op(l, f, NULL, "r:rrr", "dp4a.%s.%s", a, b);
			op(l, f, NULL, "r:rrr", "dp2a.lo.%s.%s", a, b);
			op(l, f, NULL, "r:rrr", "dp2a.hi.%s.%s", a, b);
		}
	FOR(t, "u16x2", "s16x2") {
		op(l, f, NULL, "r:rr", "add.%s", t);
		FOR(o, "min", "max")
			op(l, f, NULL, "r:rr", "%s.%s", o, t);
	}
	FOR(t, "s16x2", "s32")
		FOR(o, "min", "max")
			op(l, f, NULL, "r:rr", "%s.relu.%s", o, t);
}

static void carries(struct diff_list *l)
{
	const char *f = "carry";
	FOR(t, "u32", "s32", "u64", "s64") {
		char c = cls(t), name[64];
		FOR(o, "add", "sub") {
			snprintf(name, sizeof(name), "%s.cc.%s", o, t);
			text(l, f, NULL, same(c, 3, 6), name,
				"\t%s.cc.%s %%o0, %%a0, %%a1;\n\t%sc.cc.%s %%o1, %%a2, "
				"%%a3;\n\t%sc.%s %%o2, %%a4, %%a5;",
				o, t, o, t, o, t);
		}
		FOR(h, "lo", "hi") {
			snprintf(name, sizeof(name), "mad.%s.cc.%s", h, t);
			text(l, f, NULL, same(c, 3, 6), name,
				"\tmad.%s.cc.%s %%o0, %%a0, %%a1, %%a2;\n"
				"\tmadc.hi.cc.%s %%o1, %%a3, %%a4, %%a5;\n\tmadc.%s.%s %%o2, %%a1, "
				"%%a2, %%a3;",
				h, t, t, h, t);
		}
	}
}

static void video(struct diff_list *l)
{
	const char *f = "video";
	FOR(n, "2", "4")
		FOR(t, "u32.u32.u32", "s32.s32.s32", "u32.s32.u32", "s32.u32.s32", "s32.u32.u32") {
			FOR(o, "vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax") {
				bool add_ok = (t[0] == 'u' ? !strchr(t, 's') : true);
				op(l, f, NULL, "r:rrr", "%s%s.%s", o, n, t);
				op(l, f, NULL, "r:rrr", "%s%s.%s.sat", o, n, t);
				if (add_ok)
					op(l, f, NULL, "r:rrr", "%s%s.%s.add", o, n, t);
			}
		}
	FOR(n, "2", "4")
		FOR(t, "u32.u32", "s32.s32")
			FOR(c, "eq", "ne", "lt", "le", "gt", "ge") {
				op(l, f, NULL, "r:rrr", "vset%s.%s.%s", n, t, c);
				op(l, f, NULL, "r:rrr", "vset%s.%s.%s.add", n, t, c);
			}
	FOR(t, "u32.u32.u32", "s32.s32.s32", "u32.s32.u32", "s32.u32.s32")
		FOR(o, "vadd", "vsub", "vabsdiff", "vmin", "vmax") {
			char name[96];
			FOR(s, "", ".sat")
				FOR(x, ".b0|.b3", ".h0|.h1", "|.b1", ".h1|") {
					const char *second = strchr(x, '|') + 1;
					int first = (int)(second - x - 1);
					snprintf(name, sizeof(name), "%s.%s%s %s", o, t, s, x);
					text(l, f, NULL, "r:rr", name,
						"\t%s.%s%s %%o0, %%a0%.*s, %%a1%s;", o, t, s, first,
						x, second);
				}
			FOR(s, ".add", ".min", ".max") {
				snprintf(name, sizeof(name), "%s.%s%s", o, t, s);
				text(l, f, NULL, "r:rrr", name,
					"\t%s.%s%s %%o0, %%a0.b2, %%a1.h0, %%a2;", o, t, s);
			}
			FOR(d, ".b1", ".h1") {
				snprintf(name, sizeof(name), "%s.%s merge %s", o, t, d);
				text(l, f, NULL, "r:rrr", name,
					"\t%s.%s %%o0%s, %%a0.b2, %%a1.h0, %%a2;", o, t, d);
			}
		}
	FOR(o, "vshl", "vshr")
		FOR(m, "clamp", "wrap")
			FOR(t, "u32.u32.u32", "s32.s32.u32") {
				char name[96];
				snprintf(name, sizeof(name), "%s.%s.%s", o, t, m);
				text(l, f, NULL, "r:rs", name, "\t%s.%s.%s %%o0, %%a0, %%a1;", o, t,
					m);
			}
	FOR(t, "u32.u32.u32", "s32.s32.s32")
		FOR(s, "", ".sat", ".shr7", ".sat.shr15") {
			char name[96];
			snprintf(name, sizeof(name), "vmad.%s%s", t, s);
			text(l, f, NULL, "r:rrr", name, "\tvmad.%s%s %%o0, %%a0.h0, %%a1.h1, %%a2;",
				t, s);
		}
	FOR(t, "u32.u32", "s32.s32")
		FOR(c, "eq", "ne", "lt", "le", "gt", "ge") {
			char name[96];
			snprintf(name, sizeof(name), "vset.%s.%s", t, c);
			text(l, f, NULL, "r:rr", name, "\tvset.%s.%s %%o0, %%a0.b1, %%a1.b2;", t,
				c);
		}
}

/* -- floats ------------------------------------------------------------------- */

static void floats(struct diff_list *l)
{
	const char *f = "float";
	FOR(r, ".rn", ".rz", ".rm", ".rp") {
		FOR(z, "", ".ftz") {
			FOR(s, "", ".sat") {
				FOR(o, "add", "sub", "mul")
					op(l, f, NULL, "f:ff", "%s%s%s%s.f32", o, r, z, s);
				op(l, f, NULL, "f:fff", "fma%s%s%s.f32", r, z, s);
			}
			op(l, f, NULL, "f:ff", "div%s%s.f32", r, z);
			FOR(o, "rcp", "sqrt")
				op(l, f, NULL, "f:f", "%s%s%s.f32", o, r, z);
		}
		FOR(o, "add", "sub", "mul", "div")
			op(l, f, NULL, "F:FF", "%s%s.f64", o, r);
		op(l, f, NULL, "F:FFF", "fma%s.f64", r);
		FOR(o, "rcp", "sqrt")
			op(l, f, NULL, "F:F", "%s%s.f64", o, r);
	}
	FOR(z, "", ".ftz") {
		FOR(o, "abs", "neg")
			op(l, f, NULL, "f:f", "%s%s.f32", o, z);
		FOR(o, "min", "max")
			FOR(n, "", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")
				op(l, f, NULL, "f:ff", "%s%s%s.f32", o, z, n);
	}
	FOR(o, "abs", "neg")
		op(l, f, NULL, "F:F", "%s.f64", o);
	FOR(o, "min", "max")
		op(l, f, NULL, "F:FF", "%s.f64", o);
	op(l, f, NULL, "f:ff", "copysign.f32");
	op(l, f, NULL, "F:FF", "copysign.f64");
	FOR(c, "finite", "infinite", "number", "notanumber", "normal", "subnormal") {
		op(l, f, NULL, "p:f", "testp.%s.f32", c);
		op(l, f, NULL, "p:F", "testp.%s.f64", c);
	}
}

static void approximations(struct diff_list *l)
{
	const char *f = "approx";
	FOR(z, "", ".ftz") {
		op(l, f, "div.approx", "f:ff", "div.approx%s.f32", z);
		op(l, f, "div.full", "f:ff", "div.full%s.f32", z);
		op(l, f, "rcp.approx", "f:f", "rcp.approx%s.f32", z);
		op(l, f, "sqrt.approx", "f:u", "sqrt.approx%s.f32", z);
		op(l, f, "rsqrt.approx", "f:u", "rsqrt.approx%s.f32", z);
		op(l, f, "sin.approx", "f:e", "sin.approx%s.f32", z);
		op(l, f, "cos.approx", "f:e", "cos.approx%s.f32", z);
		op(l, f, "lg2.approx", "f:u", "lg2.approx%s.f32", z);
		op(l, f, "ex2.approx", "f:e", "ex2.approx%s.f32", z);
		op(l, f, "rsqrt.f64", "F:F", "rsqrt.approx%s.f64", z);
	}
	op(l, f, "tanh.approx", "f:e", "tanh.approx.f32");
	op(l, f, "rcp.f64", "F:F", "rcp.approx.ftz.f64");
	op(l, f, "ex2.f16", "H:H", "ex2.approx.f16");
	op(l, f, "ex2.f16", "X:X", "ex2.approx.f16x2");
	op(l, f, "ex2.bf16", "B:B", "ex2.approx.ftz.bf16");
	op(l, f, "ex2.bf16", "Y:Y", "ex2.approx.ftz.bf16x2");
	op(l, f, "tanh.f16", "H:H", "tanh.approx.f16");
	op(l, f, "tanh.f16", "X:X", "tanh.approx.f16x2");
	op(l, f, "tanh.bf16", "B:B", "tanh.approx.bf16");
	op(l, f, "tanh.bf16", "Y:Y", "tanh.approx.bf16x2");
}

static void halves(struct diff_list *l)
{
	const char *f = "half";
	FOR(t, "f16", "f16x2") {
		char c = t[3] ? 'X' : 'H';
		FOR(z, "", ".ftz") {
			FOR(s, "", ".sat") {
				FOR(o, "add", "sub", "mul", "add.rn", "mul.rn")
					op(l, f, NULL, same(c, 1, 2), "%s%s%s.%s", o, z, s, t);
				op(l, f, NULL, same(c, 1, 3), "fma.rn%s%s.%s", z, s, t);
			}
			op(l, f, NULL, same(c, 1, 3), "fma.rn%s.relu.%s", z, t);
			FOR(o, "abs", "neg")
				op(l, f, NULL, same(c, 1, 1), "%s%s.%s", o, z, t);
			FOR(o, "min", "max")
				FOR(n, "", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")
					op(l, f, NULL, same(c, 1, 2), "%s%s%s.%s", o, z, n, t);
		}
	}
	FOR(t, "bf16", "bf16x2") {
		char c = t[4] ? 'Y' : 'B';
		FOR(o, "add", "sub", "mul", "add.rn")
			op(l, f, NULL, same(c, 1, 2), "%s.%s", o, t);
		op(l, f, NULL, same(c, 1, 3), "fma.rn.%s", t);
		op(l, f, NULL, same(c, 1, 3), "fma.rn.relu.%s", t);
		FOR(o, "abs", "neg")
			op(l, f, NULL, same(c, 1, 1), "%s.%s", o, t);
		FOR(o, "min", "max")
			FOR(n, "", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")
				op(l, f, NULL, same(c, 1, 2), "%s%s.%s", o, n, t);
	}
}

/* -- conversions -------------------------------------------------------------- */

static void convert_ints(struct diff_list *l)
{
	const char *f = "cvt";
	FOR(d, "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64") {
		char dc[2] = { cls(d), 0 };
		FOR(s, "u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64") {
			char sc[2] = { cls(s), 0 };
			if (!strcmp(d, s))
				continue;
			op(l, f, NULL, sig(dc, sc), "cvt.%s.%s", d, s);
			/* .sat is only for conversions that can leave the range. */
			int to = atoi(d + 1), from = atoi(s + 1);
			if (d[0] == s[0] ? to < from : s[0] == 's' || to <= from)
				op(l, f, NULL, sig(dc, sc), "cvt.sat.%s.%s", d, s);
		}
		FOR(r, "rni", "rzi", "rmi", "rpi") {
			op(l, f, NULL, sig(dc, "i"), "cvt.%s.%s.f32", r, d);
			op(l, f, NULL, sig(dc, "f"), "cvt.%s.ftz.%s.f32", r, d);
			op(l, f, NULL, sig(dc, "I"), "cvt.%s.%s.f64", r, d);
			op(l, f, NULL, sig(dc, "H"), "cvt.%s.%s.f16", r, d);
			if (d[1] != '8')
				op(l, f, NULL, sig(dc, "B"), "cvt.%s.%s.bf16", r, d);
		}
		FOR(r, "rn", "rz", "rm", "rp") {
			op(l, f, NULL, sig("f", dc), "cvt.%s.f32.%s", r, d);
			op(l, f, NULL, sig("F", dc), "cvt.%s.f64.%s", r, d);
			op(l, f, NULL, sig("H", dc), "cvt.%s.f16.%s", r, d);
			if (d[1] != '8')
				op(l, f, NULL, sig("B", dc), "cvt.%s.bf16.%s", r, d);
		}
		op(l, f, NULL, sig("f", dc), "cvt.rn.sat.f32.%s", d);
	}
}

static void convert_floats(struct diff_list *l)
{
	const char *f = "cvt";
	FOR(r, "rn", "rz", "rm", "rp") {
		FOR(z, "", ".ftz")
			FOR(s, "", ".sat")
				op(l, f, NULL, "f:F", "cvt.%s%s%s.f32.f64", r, z, s);
		op(l, f, NULL, "H:F", "cvt.%s.f16.f64", r);
		op(l, f, NULL, "B:F", "cvt.%s.bf16.f64", r);
	}
	FOR(r, "rn", "rz") {
		FOR(z, "", ".ftz")
			op(l, f, NULL, "H:f", "cvt.%s%s.f16.f32", r, z);
		FOR(u, "", ".relu") {
			op(l, f, NULL, "H:f", "cvt.%s%s.f16.f32 ", r, u);
			op(l, f, NULL, "B:f", "cvt.%s%s.bf16.f32", r, u);
			op(l, f, NULL, "X:ff", "cvt.%s%s.f16x2.f32", r, u);
			op(l, f, NULL, "Y:ff", "cvt.%s%s.bf16x2.f32", r, u);
			op(l, f, NULL, "f:f", "cvt.%s%s.tf32.f32", r, u);
		}
	}
	op(l, f, NULL, "f:f", "cvt.rna.tf32.f32");
	op(l, f, NULL, "f:f", "cvt.rna.satfinite.tf32.f32");
	op(l, f, NULL, "H:f", "cvt.rn.sat.f16.f32");
	FOR(z, "", ".ftz") {
		FOR(s, "", ".sat") {
			op(l, f, NULL, "f:H", "cvt%s%s.f32.f16", z, s);
			op(l, f, NULL, "F:f", "cvt%s%s.f64.f32", z, s);
			FOR(r, "rni", "rzi", "rmi", "rpi")
				op(l, f, NULL, "f:f", "cvt.%s%s%s.f32.f32", r, z, s);
		}
	}
	op(l, f, NULL, "f:B", "cvt.f32.bf16");
	op(l, f, NULL, "F:H", "cvt.f64.f16");
	op(l, f, NULL, "F:B", "cvt.f64.bf16");
	FOR(r, "rni", "rzi", "rmi", "rpi") {
		FOR(s, "", ".sat")
			op(l, f, NULL, "F:F", "cvt.%s%s.f64.f64", r, s);
		op(l, f, NULL, "H:H", "cvt.%s.f16.f16", r);
		op(l, f, NULL, "B:B", "cvt.%s.bf16.bf16", r);
	}
	FOR(u, "", ".relu")
		FOR(t, "e4m3x2", "e5m2x2") {
			op(l, "fp8", NULL, "h:ff", "cvt.rn.satfinite%s.%s.f32", u, t);
			op(l, "fp8", NULL, "h:X", "cvt.rn.satfinite%s.%s.f16x2", u, t);
			op(l, "fp8", NULL, "X:E", "cvt.rn%s.f16x2.%s", u, t);
		}
	FOR(d, "u8", "s8", "u4", "s4", "u2", "s2")
		op(l, "cvt.pack", NULL, "r:rrr", "cvt.pack.sat.%s.s32.b32", d);
	FOR(d, "u16", "s16")
		op(l, "cvt.pack", NULL, "r:rr", "cvt.pack.sat.%s.s32", d);
}

/* -- predicates and selections ------------------------------------------------- */

static void compares(struct diff_list *l)
{
	const char *f = "compare";
	static const struct {
		const char *type;
		char cls;
	} types[] = { { "b16", 'h' }, { "b32", 'r' }, { "b64", 'd' }, { "u16", 'h' },
		{ "s16", 'h' }, { "u32", 'r' }, { "s32", 'r' }, { "u64", 'd' }, { "s64", 'd' },
		{ "f32", 'f' }, { "ftz.f32", 'f' }, { "f64", 'F' }, { "f16", 'H' },
		{ "ftz.f16", 'H' }, { "bf16", 'B' }, { "f16x2", 'X' }, { "bf16x2", 'Y' } };
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const char *t = types[i].type;
		char c = types[i].cls, two[3] = { c, c, 0 }, three[4] = { c, c, 'p', 0 };
		bool bits = t[0] == 'b' && t[1] != 'f', uns = t[0] == 'u',
		     flt = strchr("fFHBXY", c);
		FOR(o, "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu",
			"ltu", "leu", "gtu", "geu", "num", "nan") {
			bool basic = !strcmp(o, "eq") || !strcmp(o, "ne"),
			     order = strlen(o) == 2 && !basic;
			bool sign_only = o[1] == 'o' || o[1] == 's' || o[0] == 'h';
			if (!basic && (order ? bits || (sign_only && !uns) : !flt))
				continue;
			if (c == 'X' || c == 'Y') {
				op(l, f, NULL, sig("pp", two), "setp.%s.%s", o, t);
				op(l, f, NULL, sig("r", two), "set.%s.%s.%s", o,
					c == 'X' ? "f16x2" : "bf16x2", t);
				continue;
			}
			const char *results = c == 'H' || c == 'B' ? "p" : "pp";
			op(l, f, NULL, sig(results, two), "setp.%s.%s", o, t);
			FOR(b, "and", "or", "xor")
				if (basic)
					op(l, f, NULL, sig(results, three), "setp.%s.%s.%s", o, b,
						t);
			const char *last = strchr(t, '.') ? strchr(t, '.') + 1 : t;
			const char *z = strchr(t, '.') ? ".ftz" : "";
			if (c != 'H' && c != 'B') {
				op(l, f, NULL, sig("r", two), "set.%s%s.u32.%s", o, z, last);
				op(l, f, NULL, sig("f", two), "set.%s%s.f32.%s", o, z, last);
			} else {
				op(l, f, NULL, sig("h", two), "set.%s%s.u16.%s", o, z, last);
				op(l, f, NULL, sig(c == 'H' ? "H" : "B", two), "set.%s%s.%s.%s", o,
					z, c == 'H' ? "f16" : "bf16", last);
			}
			if (basic)
				op(l, f, NULL, sig("r", three), "set.%s.xor%s.s32.%s", o, z, last);
		}
	}
	FOR(t, "b16", "b32", "b64", "s16", "u32", "s64") {
		char c = cls(t), o[4] = { c, c, 'p', 0 };
		op(l, f, NULL, sig((char[]){ c, 0 }, o), "selp.%s", t);
		FOR(s, "s32", "f32") {
			char o2[4] = { c, c, s[0] == 'f' ? 'f' : 'r', 0 };
			op(l, f, NULL, sig((char[]){ c, 0 }, o2), "slct.%s.%s", t, s);
		}
	}
	op(l, f, NULL, "f:fff", "slct.ftz.f32.f32");
	FOR(o, "and", "or", "xor")
		op(l, f, NULL, "p:pp", "%s.pred", o);
	op(l, f, NULL, "p:p", "not.pred");
}

/* -- between lanes -------------------------------------------------------------- */

static void warps(struct diff_list *l)
{
	const char *f = "warp";
	FOR(m, "up", "down", "bfly", "idx") {
		/* Segments of 32, 16, 8, 4 lanes. */
		for (int seg = 32; seg >= 4; seg /= 2) {
			int c = (32 - seg) << 8 | (m[0] == 'u' ? 0 : 31);
			op(l, f, NULL, "rp:rl", "shfl.sync.%s.b32|, %d, -1", m, c);
		}
		op(l, f, NULL, "rp:rll", "shfl.sync.%s.b32|, -1", m);
	}
	FOR(v, "all", "any", "uni")
		text(l, f, NULL, "ppp:pll",
			v[1] == 'l'                  ? "vote.sync.all"
			: v[1] == 'n' && v[0] == 'a' ? "vote.sync.any"
						     : "vote.sync.uni",
			"\t.reg .pred %%q, %%r;\n\tsetp.lt.u32 %%q, %%a1, 31;\n\tsetp.gt.u32 %%r, "
			"%%a2, "
			"40;\n"
			"\tvote.sync.%s.pred %%o0, %%a0, -1;\n\tvote.sync.%s.pred %%o1, !%%q, -1;\n"
			"\tvote.sync.%s.pred %%o2, %%r, -1;",
			v, v, v);
	op(l, f, NULL, "r:p", "vote.sync.ballot.b32|, -1");
	text(l, f, NULL, "rr:p", "vote.sync.ballot.b32 halves",
		"\t.reg .b32 %%m;\n\t.reg .pred %%h;\n\tand.b32 %%m, %%x, 16;\n\tsetp.ne.u32 %%h, "
		"%%m, 0;\n"
		"\tselp.b32 %%m, 0xffff0000, 0xffff, %%h;\n\tvote.sync.ballot.b32 %%o0, !%%a0, "
		"%%m;\n"
		"\t@%%h vote.sync.ballot.b32 %%o1, %%a0, %%m;\n\t@!%%h mov.u32 %%o1, 7;");
	op(l, f, NULL, "r:c", "match.any.sync.b32|, -1");
	op(l, f, NULL, "rp:c", "match.all.sync.b32|, -1");
	text(l, f, NULL, "rrp:ccr", "match.sync.b64",
		"\t.reg .b64 %%v, %%u;\n\tcvt.u64.u32 %%v, %%a0;\n\tshl.b64 %%v, %%v, 40;\n"
		"\tcvt.u64.u32 %%u, %%a1;\n\tmul.lo.u64 %%u, %%u, 0;\n\tmatch.any.sync.b64 %%o0, "
		"%%v, -1;\n"
		"\tmatch.all.sync.b64 %%o1|%%o2, %%u, -1;");
	FOR(o, "add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32",
		"or.b32", "xor.b32") {
		op(l, f, NULL, "r:r", "redux.sync.%s|, -1", o);
		char name[64];
		snprintf(name, sizeof(name), "redux.sync.%s part", o);
		text(l, f, NULL, "r:r", name,
			"\t.reg .b32 %%m;\n\t.reg .pred %%h;\n\tand.b32 %%m, %%x, "
			"3;\n\tsetp.ne.u32 %%h, %%m, 0;\n"
			"\tmov.u32 %%o0, 0;\n\t@%%h redux.sync.%s %%o0, %%a0, 0xeeeeeeee;",
			o);
	}
	text(l, f, NULL, "rp:", "elect.sync", "\telect.sync %%o0|%%o1, -1;");
	text(l, f, NULL, "r:", "activemask", "\tactivemask.b32 %%o0;");
	text(l, f, NULL, "rrrrrr:", "lane masks",
		"\tmov.u32 %%o0, %%lanemask_eq;\n\tmov.u32 %%o1, %%lanemask_le;\n\tmov.u32 %%o2, "
		"%%lanemask_lt;\n"
		"\tmov.u32 %%o3, %%lanemask_ge;\n\tmov.u32 %%o4, %%lanemask_gt;\n\tmov.u32 %%o5, "
		"%%laneid;");
	FOR(r, "popc.u32", "and.pred", "or.pred") {
		char name[64];
		snprintf(name, sizeof(name), "barrier.red.%s", r);
		if (r[0] == 'p')
			text(l, f, NULL, "rr:pl", name,
				"\t.reg .pred %%q;\n\tsetp.gt.u32 %%q, %%a1, "
				"40;\n\tbarrier.red.popc.u32 %%o0, 0, %%a0;\n"
				"\tbarrier.red.popc.u32 %%o1, 1, !%%q;");
		else
			text(l, f, NULL, "ppp:pl", name,
				"\t.reg .pred %%q;\n\tsetp.gt.u32 %%q, %%a1, 40;\n\tbarrier.red.%s "
				"%%o0, 0, %%a0;\n"
				"\tbarrier.red.%s %%o1, 1, !%%q;\n\tbarrier.red.%s %%o2, 2, %%q;",
				r, r, r);
	}
}

/* -- atomics ---------------------------------------------------------------- */

/* On a cell of the thread's own: %a0 in memory, then %a1 (and %a2); the old value and what is left.
 * With `shared` the cell is in shared memory. */
static void atomic(struct diff_list *l, const char *opcode, const char *type, char c, bool shared)
{
	bool cas = !strncmp(opcode, "cas", 3);
	uint32_t bytes = diff_bytes(c);
	char name[64],
		b = bytes == 2   ? '1'
		    : bytes == 4 ? '3'
				 : '6',
		e = b == '1'   ? '6'
		    : b == '3' ? '2'
			       : '4';
	const char *space = shared ? "shared" : "global";
	snprintf(name, sizeof(name), "atom.%s.%s.%s", space, opcode, type);
	/* A third of the compare-and-swaps find what they expect; everything but those and exch has
	 * a form without result. */
	char reduce[128] = "";
	if (!cas && strcmp(opcode, "exch"))
		snprintf(reduce, sizeof(reduce), "\tred.%s.%s.%s [%%p], %%a2;\n", space, opcode,
			type);
	text(l, "atomic", NULL, same(c, 3, 3), name,
		"%s\t.reg .b64 %%p;\n%s\tst.%s.b%c%c [%%p], %%a0;\n"
		"%s%s\tatom.%s.%s.%s %%o0, [%%p], %%a1%s;\n\tld.%s.b%c%c %%o1, [%%p];\n"
		"%s\tld.%s.b%c%c %%o2, [%%p];",
		shared ? "\t.shared .align 8 .b8 cells[1024];\n" : "",
		shared ? "\tmov.u64 %p, cells;\n\tmov.u32 %y, %tid.x;\n\tmul.wide.u32 %t, %y, "
			 "8;\n\tadd.u64 %p, %p, %t;\n"
		       : "\tmov.u64 %p, %s;\n",
		space, b, e,
		cas ? "\t.reg .pred %q;\n\trem.u32 %y, %x, 3;\n\tsetp.eq.u32 %q, %y, 0;\n" : "",
		cas ? (bytes == 2          ? "\t@%q mov.b16 %a1, %a0;\n"
			      : bytes == 4 ? "\t@%q mov.b32 %a1, %a0;\n"
					   : "\t@%q mov.b64 %a1, %a0;\n")
		    : "",
		space, opcode, type, cas ? ", %a2" : "", space, b, e, reduce, space, b, e);
}

static void atomics(struct diff_list *l)
{
	for (int shared = 0; shared < 2; shared++) {
		FOR(t, "u32", "s32", "u64")
			atomic(l, "add", t, cls(t), shared);
		FOR(t, "u32", "s32", "u64", "s64") {
			atomic(l, "min", t, cls(t), shared);
			atomic(l, "max", t, cls(t), shared);
		}
		FOR(o, "and", "or", "xor", "exch", "cas") {
			atomic(l, o, "b32", 'r', shared);
			atomic(l, o, "b64", 'd', shared);
		}
		atomic(l, "cas", "b16", 'h', shared);
		atomic(l, "inc", "u32", 'r', shared);
		atomic(l, "dec", "u32", 'r', shared);
		atomic(l, "add", "f32", 'f', shared);
		atomic(l, "add", "f64", 'F', shared);
		atomic(l, "add.noftz", "f16", 'H', shared);
		atomic(l, "add.noftz", "f16x2", 'X', shared);
		atomic(l, "add.noftz", "bf16", 'B', shared);
		atomic(l, "add.noftz", "bf16x2", 'Y', shared);
	}
	FOR(o, "add", "min", "max")
		FOR(t, "f16", "bf16x2") {
			char name[64];
			bool bf = t[0] == 'b';
			snprintf(name, sizeof(name), "atom.global.%s.noftz.v2.%s", o, t);
			text(l, "atomic", NULL, bf ? "YYYY:YYYY" : "HHHH:HHHH", name,
				"\tst.global.v2.b%s [%%s], {%%a0, %%a1};\n"
				"\tatom.global.%s.noftz.v2.%s {%%o0, %%o1}, [%%s], {%%a2, %%a3};\n"
				"\tld.global.v2.b%s {%%o2, %%o3}, [%%s];",
				bf ? "32" : "16", o, t, bf ? "32" : "16");
		}
	text(l, "atomic", NULL, "ffff:ffff", "atom.global.add.v2.f32",
		"\tst.global.v2.b32 [%%s], {%%a0, %%a1};\n"
		"\tatom.global.add.v2.f32 {%%o0, %%o1}, [%%s], {%%a2, %%a3};\n\tld.global.v2.b32 "
		"{%%o2, %%o3}, [%%s];");
	FOR(o, "exch", "cas") {
		char name[64];
		snprintf(name, sizeof(name), "atom.global.%s.b128", o);
		text(l, "atomic", NULL, "dddd:dddd", name,
			"\t.reg .b128 %%q, %%r, %%u;\n\t.reg .pred %%w;\n\tand.b32 %%y, %%x, 1;\n"
			"\tsetp.eq.u32 %%w, %%y, 0;\n\tst.global.v2.b64 [%%s], {%%a0, %%a1};\n"
			"\tmov.b128 %%r, {%%a2, %%a3};\n\tmov.b128 %%u, {%%a0, %%a1};\n\t@%%w "
			"mov.b128 %%u, {%%a3, %%a1};\n"
			"\tatom.global.%s.b128 %%q, [%%s], %s%%r;\n\tmov.b128 {%%o0, %%o1}, %%q;\n"
			"\tld.global.v2.b64 {%%o2, %%o3}, [%%s];",
			o, o[0] == 'c' ? "%u, " : "");
	}
	/* All threads of a block on one word: only the sum is the same everywhere. */
	text(l, "atomic", NULL, "rrr:rrr", "red.shared, all threads",
		"\t.shared .align 4 .b32 sum[3];\n\tmov.u32 %%y, %%tid.x;\n\tsetp.ge.u32 %%q, %%y, "
		"3;\n"
		"\tmov.u64 %%t, sum;\n\tmad.wide.u32 %%t, %%y, 4, %%t;\n\t@!%%q st.shared.u32 "
		"[%%t], 0;\n"
		"\tbar.sync 0;\n\tred.shared.add.u32 [sum], %%a0;\n\tred.shared.max.u32 [sum+4], "
		"%%a1;\n"
		"\tred.shared.xor.b32 [sum+8], %%a2;\n\tbar.sync 0;\n\tld.shared.u32 %%o0, [sum];\n"
		"\tld.shared.u32 %%o1, [sum+4];\n\tld.shared.u32 %%o2, [sum+8];");
	struct diff_case *c = &l->cases[l->n - 1];
	char *body = NULL;
	if (asprintf(&body, "\t.reg .pred %%q;\n%s", c->body) < 0)
		abort();
	free(c->body);
	c->body = body;
}

/* -- matrices ---------------------------------------------------------------- */

static const char *list(char *out, char name, int from, int n)
{
	int at = sprintf(out, "{");
	for (int i = 0; i < n; i++)
		at += sprintf(out + at, "%s%%%c%d", i ? ", " : "", name, from + i);
	sprintf(out + at, "}");
	return out;
}

/* One mma with n_d, n_a, n_b, n_c registers of the classes. */
static void mma(struct diff_list *l, const char *bound, const char *shape, const char *types,
	const char *more, const char *classes, int n_d, int n_a, int n_b, int n_c)
{
	char s[40] = { 0 }, d[96], a[96], b[96], c[96], name[128];
	memset(s, classes[0], (size_t)n_d);
	s[n_d] = ':';
	memset(s + n_d + 1, classes[1], (size_t)(n_a + n_b));
	memset(s + n_d + 1 + n_a + n_b, classes[2], (size_t)n_c);
	snprintf(name, sizeof(name), "mma.sync.aligned.%s.row.col%s.%s %s", shape, more, types,
		classes);
	text(l, "mma", bound, s, name, "\tmma.sync.aligned.%s.row.col%s.%s %s, %s, %s, %s;", shape,
		more, types, list(d, 'o', 0, n_d), list(a, 'a', 0, n_a), list(b, 'a', n_a, n_b),
		list(c, 'a', n_a + n_b, n_c));
}

/* Small whole numbers, whose products and sums are exact in any order; then random ones, within a
 * bound. */
static void matrices(struct diff_list *l)
{
	FOR(k, "m16n8k8", "m16n8k16") {
		int a = k[6] == '8' ? 2 : 4, b = a / 2;
		mma(l, NULL, k, "f32.f16.f16.f32", "", "fgj", 4, a, b, 4);
		mma(l, "mma.f32", k, "f32.f16.f16.f32", "", "fkw", 4, a, b, 4);
		mma(l, NULL, k, "f16.f16.f16.f16", "", "Xgg", 2, a, b, 2);
		mma(l, "mma.f16", k, "f16.f16.f16.f16", "", "Xkk", 2, a, b, 2);
		mma(l, NULL, k, "f32.bf16.bf16.f32", "", "fGj", 4, a, b, 4);
		mma(l, "mma.f32", k, "f32.bf16.bf16.f32", "", "fKw", 4, a, b, 4);
	}
	FOR(k, "m16n8k4", "m16n8k8") {
		int a = k[6] == '4' ? 2 : 4, b = a / 2;
		mma(l, NULL, k, "f32.tf32.tf32.f32", "", "fjj", 4, a, b, 4);
		mma(l, "mma.f32", k, "f32.tf32.tf32.f32", "", "fww", 4, a, b, 4);
	}
	FOR(t, "s32.s8.s8.s32", "s32.u8.u8.s32", "s32.s8.u8.s32", "s32.u8.s8.s32")
		FOR(s, "", ".satfinite") {
			mma(l, NULL, "m16n8k16", t, s, "rrr", 4, 2, 1, 4);
			mma(l, NULL, "m16n8k32", t, s, "rrr", 4, 4, 2, 4);
			mma(l, NULL, "m8n8k16", t, s, "rrr", 2, 1, 1, 2);
		}
	FOR(t, "s32.s4.s4.s32", "s32.u4.s4.s32") {
		mma(l, NULL, "m16n8k32", t, "", "rrr", 4, 2, 1, 4);
		mma(l, NULL, "m16n8k64", t, ".satfinite", "rrr", 4, 4, 2, 4);
		mma(l, NULL, "m8n8k32", t, "", "rrr", 2, 1, 1, 2);
	}
	FOR(o, ".xor.popc", ".and.popc")
		FOR(k, "m8n8k128", "m16n8k128", "m16n8k256") {
			int d = k[1] == '8' ? 2 : 4,
			    a = d == 2        ? 1
				: k[6] == '1' ? 2
					      : 4,
			    b = a == 4 ? 2 : 1;
			char sg[40] = { 0 }, dd[96], aa[96], bb[96], cc[96], name[128];
			memset(sg, 'r', (size_t)d);
			sg[d] = ':';
			memset(sg + d + 1, 'r', (size_t)(a + b + d));
			snprintf(name, sizeof(name), "mma.sync.aligned.%s.row.col.s32.b1.b1.s32%s",
				k, o);
			text(l, "mma", NULL, sg, name, "\t%s %s, %s, %s, %s;", name,
				list(dd, 'o', 0, d), list(aa, 'a', 0, a), list(bb, 'a', a, b),
				list(cc, 'a', a + b, d));
		}
	mma(l, NULL, "m8n8k4", "f64.f64.f64.f64", "", "FJJ", 2, 1, 1, 2);
	mma(l, "mma.f64", "m8n8k4", "f64.f64.f64.f64", "", "FWW", 2, 1, 1, 2);
	FOR(k, "m16n8k4", "m16n8k8", "m16n8k16") {
		int n = k[6] == '4' ? 2 : k[6] == '8' ? 4 : 8;
		if (n + n / 2 + 4 > DIFF_SLOTS)
			continue;
		mma(l, NULL, k, "f64.f64.f64.f64", "", "FJJ", 4, n, n / 2, 4);
		mma(l, "mma.f64", k, "f64.f64.f64.f64", "", "FWW", 4, n, n / 2, 4);
	}
	/* Matrices through shared memory. */
	FOR(x, "x1", "x2", "x4")
		FOR(t, "", ".trans") {
			int n = x[1] - '0';
			char dst[96], src[96], name[96], sg[24] = "rrrr";
			sg[n] = ':';
			memcpy(sg + n + 1, "rrrr", 4);
			sg[n + 5] = 0;
			snprintf(name, sizeof(name), "ldmatrix.sync.aligned.m8n8.%s%s.shared.b16",
				x, t);
			text(l, "mma", NULL, sg, name,
				"\t.shared .align 16 .b8 m[2048];\n\tmov.u32 %%y, "
				"%%tid.x;\n\tmov.u64 %%t, "
				"m;\n"
				"\tmad.wide.u32 %%t, %%y, 16, %%t;\n\tst.shared.v4.b32 [%%t], "
				"{%%a0, %%a1, "
				"%%a2, %%a3};\n"
				"\tbar.warp.sync -1;\n\t%s %s, [%%t];",
				name, list(dst, 'o', 0, n));
			snprintf(name, sizeof(name), "stmatrix.sync.aligned.m8n8.%s%s.shared.b16",
				x, t);
			text(l, "mma", NULL, "rrrr:rrrr", name,
				"\t.shared .align 16 .b8 m[2048];\n\tmov.u32 %%y, "
				"%%tid.x;\n\tmov.u64 %%t, "
				"m;\n"
				"\tmad.wide.u32 %%t, %%y, 16, %%t;\n\tst.shared.v4.b32 [%%t], {0, "
				"1, 2, "
				"3};\n"
				"\tbar.warp.sync -1;\n\t%s [%%t], %s;\n\tbar.warp.sync -1;\n"
				"\tld.shared.v4.b32 {%%o0, %%o1, %%o2, %%o3}, [%%t];",
				name, list(src, 'a', 0, n));
		}
}

/* wmma through shared memory: loads of A, B and C, the product, a store of D. Each warp has 512
 * bytes a matrix; 8 registers of input a thread fill 1,024 bytes for A and B each half; C is
 * zero-extended whole numbers. */
static void wmma(struct diff_list *l, const char *bound, const char *shape, const char *ab,
	const char *cd, const char *al, const char *bl, const char *cl, const char *operands,
	int n_a, int n_b, int n_c, int lda, int ldb, int ldc)
{
	char ra[128], rb[128], rc[128], name[160], body[4096];
	bool f64 = !strcmp(ab, "f64"), half = !strcmp(cd, "f16");
	const char *reg = f64 ? "f64" : "b32";
	const char *creg = f64 ? "f64" : !strcmp(cd, "f32") ? "f32" : "b32";
	bool untyped = !strcmp(ab, "f16") && half;
	snprintf(name, sizeof(name), "wmma.%s.%s.%s.%s.%s.%s %s", shape, al, bl, cl, ab, cd,
		operands);
	int n = 0;
#define OUT(...) n += snprintf(body + n, sizeof(body) - (size_t)n, __VA_ARGS__)
	OUT("\t.shared .align 32 .b8 ma[8192];\n\t.shared .align 32 .b8 mb[8192];\n\t.shared "
	    ".align 32 .b8 mc[8192];\n");
	OUT("\t.reg .%s %%fa<%d>;\n\t.reg .%s %%fb<%d>;\n\t.reg .%s %%fc<%d>;\n\t.reg .b64 %%pa, "
	    "%%pb, %%pc;\n\t.reg .b32 %%w;\n",
		reg, n_a, reg, n_b, creg, n_c);
	/* 2,048 bytes a warp and matrix; a thread fills 64 bytes of each. */
	OUT("\tmov.u32 %%y, %%tid.x;\n\tmov.u64 %%pa, ma;\n\tmov.u64 %%pb, mb;\n\tmov.u64 %%pc, "
	    "mc;\n"
	    "\tmul.wide.u32 %%t, %%y, 64;\n\tadd.u64 %%pa, %%pa, %%t;\n\tadd.u64 %%pb, %%pb, "
	    "%%t;\n\tadd.u64 %%pc, %%pc, %%t;\n");
	for (int k = 0; k < (f64 ? 8 : 16); k++) {
		int step = f64 ? 8 : 4;
		const char *w = f64 ? "b64" : "b32";
		OUT("\tst.shared.%s [%%pa+%d], %%a%d;\n\tst.shared.%s [%%pb+%d], "
		    "%%a%d;\n\tst.shared.%s [%%pc+%d], %%a%d;\n",
			w, k * step, (k * 5 + 1) % 6, w, k * step, (k * 3 + 2) % 6, w, k * step,
			6 + k % 2);
	}
	OUT("\tbar.warp.sync -1;\n\tand.b32 %%w, %%y, 0xffffffe0;\n\tmul.wide.u32 %%t, %%w, "
	    "64;\n\tmov.u64 %%pa, ma;\n"
	    "\tmov.u64 %%pb, mb;\n\tmov.u64 %%pc, mc;\n\tadd.u64 %%pa, %%pa, %%t;\n\tadd.u64 %%pb, "
	    "%%pb, %%t;\n"
	    "\tadd.u64 %%pc, %%pc, %%t;\n");
#define REGS(out, p, count)                                                                        \
	do {                                                                                       \
		int at_ = sprintf(out, "{");                                                       \
		for (int k_ = 0; k_ < (count); k_++)                                               \
			at_ += sprintf(out + at_, "%s%%%s%d", k_ ? "," : "", p, k_);               \
		sprintf(out + at_, "}");                                                           \
	} while (0)
	REGS(ra, "fa", n_a);
	REGS(rb, "fb", n_b);
	REGS(rc, "fc", n_c);
	OUT("\twmma.load.a.sync.aligned.%s.%s.shared.%s %s, [%%pa], %d;\n", al, shape, ab, ra, lda);
	OUT("\twmma.load.b.sync.aligned.%s.%s.shared.%s %s, [%%pb], %d;\n", bl, shape, ab, rb, ldb);
	OUT("\twmma.load.c.sync.aligned.%s.%s.shared.%s %s, [%%pc], %d;\n", cl, shape, cd, rc, ldc);
	if (untyped || (!strcmp(ab, "f16")))
		OUT("\twmma.mma.sync.aligned.%s.%s.%s.%s.%s %s, %s, %s, %s;\n", al, bl, shape, cd,
			cd, rc, ra, rb, rc);
	else
		OUT("\twmma.mma.sync.aligned.%s.%s.%s%s.%s.%s.%s.%s %s, %s, %s, %s;\n", al, bl,
			shape, f64 ? ".rn" : "", cd, ab, ab, cd, rc, ra, rb, rc);
	OUT("\tbar.warp.sync -1;\n\twmma.store.d.sync.aligned.%s.%s.shared.%s [%%pc], %s, "
	    "%d;\n\tbar.warp.sync -1;\n",
		cl, shape, cd, rc, ldc);
	OUT("\tand.b32 %%w, %%y, 31;\n\tmad.wide.u32 %%pc, %%w, %d, %%pc;\n", f64    ? 16
									      : half ? 16
										     : 32);
	const char *sg;
	if (f64) {
		OUT("\tld.shared.v2.b64 {%%o0, %%o1}, [%%pc];");
		sg = sig("FF", operands);
	} else if (half) {
		OUT("\tld.shared.v4.b32 {%%o0, %%o1, %%o2, %%o3}, [%%pc];");
		sg = sig("XXXX", operands);
	} else {
		OUT("\tld.shared.v4.b32 {%%o0, %%o1, %%o2, %%o3}, [%%pc];\n"
		    "\tld.shared.v4.b32 {%%o4, %%o5, %%o6, %%o7}, [%%pc+16];");
		sg = sig(cd[0] == 'f' ? "ffffffff" : "rrrrrrrr", operands);
	}
	text(l, "wmma", bound, sg, name, "%s", body);
}

static void wmmas(struct diff_list *l)
{
	FOR(s, "m16n16k16", "m32n8k16", "m8n32k16")
		FOR(x, "row.col.row", "col.row.col", "row.row.col", "col.col.row") {
			int m = s[1] == '1' ? 16 : s[1] == '3' ? 32 : 8, n = 256 / m;
			char al[4] = { 0 }, bl[4] = { 0 }, cl[4] = { 0 };
			memcpy(al, x, 3);
			memcpy(bl, x + 4, 3);
			memcpy(cl, x + 8, 3);
			int lda = al[0] == 'r' ? 16 : m, ldb = bl[0] == 'c' ? 16 : n,
			    ldc = cl[0] == 'r' ? n : m;
			int ba = m == 16 ? 4 : m == 32 ? 8 : 2, bb = m == 16 ? 4 : m == 32 ? 2 : 8;
			wmma(l, NULL, s, "f16", "f32", al, bl, cl, "ggggggjj", 8, 8, 8, lda, ldb,
				ldc);
			wmma(l, NULL, s, "f16", "f16", al, bl, cl, "gggggggg", 8, 8, 4, lda, ldb,
				ldc);
			wmma(l, "mma.f32", s, "f16", "f32", al, bl, cl, "kkkkkkww", 8, 8, 8, lda,
				ldb, ldc);
			wmma(l, NULL, s, "bf16", "f32", al, bl, cl, "GGGGGGjj", ba, bb, 8, lda, ldb,
				ldc);
			int sa = m == 16 ? 2 : m == 32 ? 4 : 1, sb = m == 16 ? 2 : m == 32 ? 1 : 4;
			wmma(l, NULL, s, "s8", "s32", al, bl, cl, "rrrrrrrr", sa, sb, 8, lda, ldb,
				ldc);
			wmma(l, NULL, s, "u8", "s32", al, bl, cl, "rrrrrrrr", sa, sb, 8, lda, ldb,
				ldc);
		}
	FOR(x, "row.col.row", "col.row.col") {
		char al[4] = { 0 }, bl[4] = { 0 }, cl[4] = { 0 };
		memcpy(al, x, 3);
		memcpy(bl, x + 4, 3);
		memcpy(cl, x + 8, 3);
		wmma(l, NULL, "m16n16k8", "tf32", "f32", al, bl, cl, "jjjjjjjj", 4, 4, 8,
			al[0] == 'r' ? 8 : 16, bl[0] == 'c' ? 8 : 16, 16);
		wmma(l, "mma.f64", "m8n8k4", "f64", "f64", al, bl, cl, "WWWWWWWW", 1, 1, 2,
			al[0] == 'r' ? 4 : 8, bl[0] == 'c' ? 4 : 8, 8);
	}
}

/* -- memory ------------------------------------------------------------------ */

static void memory(struct diff_list *l)
{
	const char *f = "memory";
	text(l, f, NULL, "rrrrrrdd:rrrr", "loads of narrow types",
		"\tst.global.v4.b32 [%%s], {%%a0, %%a1, %%a2, %%a3};\n\tld.global.u8 %%o0, [%%s];\n"
		"\tld.global.s8 %%o1, [%%s+1];\n\tld.global.u16 %%o2, [%%s+2];\n\tld.global.s16 "
		"%%o3, [%%s+4];\n"
		"\tld.global.b8 %%o4, [%%s+7];\n\tld.global.b16 %%o5, [%%s+8];\n\tld.global.s32 "
		"%%o6, [%%s+12];\n"
		"\tld.global.s8 %%o7, [%%s+13];");
	text(l, f, NULL, "rrrr:rrrr", "stores of narrow types",
		"\tst.global.v4.b32 [%%s], {%%a0, %%a0, %%a0, %%a0};\n\tst.global.u8 [%%s+1], "
		"%%a1;\n"
		"\tst.global.b16 [%%s+4], %%a2;\n\tst.global.v2.u8 [%%s+8], {%%a1, %%a3};\n"
		"\tst.global.v4.u8 [%%s+12], {%%a0, %%a1, %%a2, %%a3};\n"
		"\tld.global.v4.b32 {%%o0, %%o1, %%o2, %%o3}, [%%s];");
	FOR(n, "4", "8", "16") {
		char name[64];
		snprintf(name, sizeof(name), "cp.async of %s bytes", n);
		text(l, f, NULL, "rrrr:rrrrl", name,
			"\t.shared .align 16 .b8 m[2048];\n\t.reg .b32 %%g;\n\tst.global.v4.b32 "
			"[%%s], {%%a0, %%a1, %%a2, %%a3};\n"
			"\tmov.u32 %%y, %%tid.x;\n\tmov.u64 %%t, m;\n\tmad.wide.u32 %%t, %%y, 16, "
			"%%t;\n"
			"\tst.shared.v4.b32 [%%t], {1, 2, 3, 4};\n\tmin.u32 %%g, %%a4, %s;\n"
			"\tcp.async.ca.shared.global [%%t], [%%s], %s, "
			"%%g;\n\tcp.async.commit_group;\n\tcp.async.wait_group 0;\n"
			"\tld.shared.v4.b32 {%%o0, %%o1, %%o2, %%o3}, [%%t];",
			n, n);
	}
	text(l, f, NULL, "rrrr:rrrr", "cp.async.bulk with an mbarrier",
		"\t.shared .align 16 .b8 m[2048];\n\t.shared .align 8 .b64 bar;\n\t.reg .pred %%q, "
		"%%w;\n"
		"\t.reg .b32 %%sm, %%sb;\n\tst.global.v4.b32 [%%s], {%%a0, %%a1, %%a2, %%a3};\n"
		"\tfence.proxy.async;\n\tmov.u32 %%y, %%tid.x;\n\tmov.u32 %%sm, m;\n\tmov.u32 "
		"%%sb, bar;\n"
		"\tmad.lo.u32 %%sm, %%y, 16, %%sm;\n\tsetp.eq.u32 %%q, %%y, 0;\n\t@%%q "
		"mbarrier.init.shared.b64 [%%sb], 128;\n"
		"\tfence.proxy.async;\n\tbar.sync 0;\n\tmbarrier.arrive.expect_tx.shared.b64 _, "
		"[%%sb], 16;\n"
		"\tcp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%%sm], "
		"[%%s], 16, [%%sb];\n"
		"again:\n\tmbarrier.try_wait.parity.shared.b64 %%w, [%%sb], 0;\n\t@!%%w bra "
		"again;\n"
		"\tld.shared.v4.b32 {%%o0, %%o1, %%o2, %%o3}, [%%sm];");
	text(l, f, NULL, "rrrr:rrrr", "local memory by index",
		"\t.local .align 4 .b32 v[8];\n\t.reg .b64 %%p;\n\tst.local.b32 [v], "
		"%%a0;\n\tst.local.b32 [v+4], %%a1;\n"
		"\tst.local.b32 [v+8], %%a2;\n\tst.local.b32 [v+12], %%a3;\n\tmov.u64 %%p, "
		"v;\n\tand.b32 %%y, %%a0, 3;\n"
		"\tmad.wide.u32 %%p, %%y, 4, %%p;\n\tld.local.b32 %%o0, [%%p];\n\tmov.u64 %%p, "
		"v;\n\tcvta.local.u64 %%p, %%p;\n"
		"\tand.b32 %%y, %%a1, 3;\n\tmad.wide.u32 %%p, %%y, 4, %%p;\n\tld.b32 %%o1, "
		"[%%p];\n\tst.b32 [%%p], 9;\n"
		"\tld.local.b32 %%o2, [v+4];\n\tld.local.b32 %%o3, [v+8];");
}

/* Any bits as metadata: of two elements of four, one of the first two and one of the last two; of one
 * of two, any. Whole numbers throughout: results are exact in any order. */
static void sparse(struct diff_list *l, const char *shape, const char *types, const char *classes,
	int n, int selector, const char *kind)
{
	char s[40] = { 0 }, d[96], a[96], b[96], c[96], name[160];
	bool one_of_two = strstr(types, "tf32");
	s[0] = s[1] = s[2] = s[3] = classes[0];
	s[4] = ':';
	memset(s + 5, classes[1], (size_t)n * 2);
	memset(s + 5 + n * 2, classes[2], 4);
	s[9 + n * 2] = 'r';
	snprintf(name, sizeof(name), "mma.%s.sync.aligned.%s.row.col.%s, %d", kind, shape, types,
		selector);
	text(l, "sparse", NULL, s, name,
		"\tand.b32 %%y, %%a%d, %s;\n\t%s\n"
		"\tmma.%s.sync.aligned.%s.row.col.%s %s, %s, %s, %s, %%y, %d;",
		n * 2 + 4, one_of_two ? "0x11111111" : "0x55555555",
		one_of_two ? "mad.lo.u32 %y, %y, 10, 0x44444444;" : "or.b32 %y, %y, 0x88888888;",
		kind, shape, types, list(d, 'o', 0, 4), list(a, 'a', 0, n), list(b, 'a', n, n),
		list(c, 'a', n * 2, 4), selector);
}

static void sparse_matrices(struct diff_list *l)
{
	FOR(k, "sp", "sp::ordered_metadata") {
		for (int i = 0; i < 4; i++) {
			sparse(l, "m16n8k16", "f32.f16.f16.f32", "fgj", 2, i, k);
			sparse(l, "m16n8k8", "f32.tf32.tf32.f32", "fjj", 2, i, k);
		}
		for (int i = 0; i < 2; i++) {
			sparse(l, "m16n8k32", "f32.bf16.bf16.f32", "fGj", 4, i, k);
			sparse(l, "m16n8k16", "f32.tf32.tf32.f32", "fjj", 4, i, k);
			sparse(l, "m16n8k32", "s32.s8.u8.s32", "rrr", 2, i, k);
			sparse(l, "m16n8k64", "s32.u4.s4.s32", "rrr", 2, i, k);
		}
		sparse(l, "m16n8k64", "s32.s8.s8.s32", "rrr", 4, 0, k);
		sparse(l, "m16n8k128", "s32.s4.s4.s32", "rrr", 4, 0, k);
	}
}

/* The forms that the other families leave out. */
static void rest(struct diff_list *l)
{
	char name[160], d[96], c[96];
	FOR(x, "row", "col")
		FOR(y, "row", "col") {
			snprintf(name, sizeof(name), "mma.sync.aligned.m8n8k4.%s.%s.f32.f16.f16.f32", x, y);
			text(l, "sparse", NULL, "ffffffff:ggggjjjjjjjj", name,
				"\t%s %s, {%%a0, %%a1}, {%%a2, %%a3}, %s;", name, list(d, 'o', 0, 8),
				list(c, 'a', 4, 8));
			snprintf(name, sizeof(name), "mma.sync.aligned.m8n8k4.%s.%s.f16.f16.f16.f16", x, y);
			text(l, "sparse", NULL, "XXXX:gggggggg", name,
				"\t%s %s, {%%a0, %%a1}, {%%a2, %%a3}, %s;", name, list(d, 'o', 0, 4),
				list(c, 'a', 4, 4));
		}
	FOR(r, "rn", "rz", "rm", "rp")
		FOR(k, "m16n8k4", "m16n8k8", "m16n8k16") {
			int a = k[6] == '4' ? 2 : k[6] == '8' ? 4 : 8;
			char s[40] = "FFFF:", ra[96], rb[96];
			memset(s + 5, 'J', (size_t)(a + a / 2 + 4));
			snprintf(name, sizeof(name), "mma.sync.aligned.%s.row.col.%s.f64.f64.f64.f64", k, r);
			text(l, "sparse", NULL, s, name, "\t%s %s, %s, %s, %s;", name,
				list(d, 'o', 0, 4), list(ra, 'a', 0, a), list(rb, 'a', a, a / 2),
				list(c, 'a', a + a / 2, 4));
		}
	text(l, "sparse", NULL, "r:r", "movmatrix",
		"\tmovmatrix.sync.aligned.m8n8.trans.b16 %%o0, %%a0;");
	FOR(o, "vadd2", "vsub2", "vavrg2", "vabsdiff2", "vmin2", "vmax2") {
		snprintf(name, sizeof(name), "%s selectors", o);
		text(l, "sparse", NULL, "r:rrr", name,
			"\t%s.s32.s32.s32 %%o0.h10, %%a0.h30, %%a1.h12, %%a2;", o);
	}
	FOR(o, "vadd4", "vsub4", "vavrg4", "vabsdiff4", "vmin4", "vmax4") {
		snprintf(name, sizeof(name), "%s selectors", o);
		text(l, "sparse", NULL, "r:rrr", name,
			"\t%s.u32.u32.u32 %%o0.b3210, %%a0.b7520, %%a1.b1346, %%a2;", o);
	}
}

void diff_cases(struct diff_list *l)
{
	integers(l);
	carries(l);
	video(l);
	floats(l);
	approximations(l);
	halves(l);
	convert_ints(l);
	convert_floats(l);
	compares(l);
	warps(l);
	atomics(l);
	matrices(l);
	wmmas(l);
	memory(l);
	sparse_matrices(l);
	rest(l);
}
