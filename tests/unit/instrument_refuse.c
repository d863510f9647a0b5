/* instrument_refuse.c - what cannot be instrumented, each by name and reason. */
#include "instrument.h"

static const struct {
	const char *header, *module, *body, *says;
} cases[] = {
	{ NULL, "", "call (%r1), %rd1, (%r2), proto;\nproto: .callprototype (.param .b32 _) _ (.param .b32 _);",
		"calls a function through a pointer" },
	{ NULL, ".func f() { ret; }", "mov.u64 %rd1, f;", "takes the address of the function 'f'" },
	{ NULL, ".func f() { ret; }\n.global .u64 g;", "mov.u64 %rd1, f; st.global.u64 [g], %rd1;",
		"address of the function 'f'" },
	{ NULL, ".extern .func other();", "call other, ();", "calls 'other', which its module does not define" },
	{ NULL, ".global .texref tex;", "tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [tex, {%r1}];",
		"texture, surface or sampler 'tex'" },
	{ NULL, ".global .samplerref smp;", "mov.u64 %rd1, smp;", "sampler 'smp'" },
	{ NULL, ".const .u32 c;", "ld.const.u32 %r1, [c]; isspacep.const %p1, %rd1;",
		"'isspacep.const' asks about .const space" },
	{ NULL, ".global .u32 g;", "mov.u32 %r1, g;", "32 bits of the address of 'g'" },
	{ NULL, ".global .u32 a[4];", "mov.u32 %r1, a[3];", "'a' in a form that cannot be rewritten" },
	{ NULL, "", ".global .u32 inner;", "'inner' is in .global space but local to a function" },
	{ ".version 8.0\n.target sm_90a\n", "", "setmaxnreg.dec.sync.aligned.u32 40;", "no .maxntid, .reqntid or .maxnreg says how many registers" },
	{ ".version 8.0\n.target sm_90a\n", ".func f() { setmaxnreg.inc.sync.aligned.u32 200; ret; }", "call f, ();", "setmaxnreg" },
	{ NULL, ".global .u32 __egpu_x;", "", "instrumented before" },
	{ ".version 5.0\n.target sm_60\n", "", "", "version 5.0" },
	{ ".version 6.0\n.target sm_35\n", "", "", "sm_35" },
	{ ".version 7.0\n.target sm_80\n.address_size 32\n", "", "", "32-bit addresses" },
};

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[1024];
		struct diag d = { 0 };
		struct instrument_site *sites;
		struct arena *a = arena_new();
		uint32_t n;
		snprintf(text, sizeof(text),
			"%s%s\n.entry kernel()\n{\n.reg .b32 %%r<3>;\n.reg .b64 %%rd<3>;\n"
			".reg .f32 %%f<5>;\n.reg .pred %%p<2>;\n%s\nret;\n}\n",
			cases[i].header ? cases[i].header : ".version 7.0\n.target sm_80\n",
			cases[i].module, cases[i].body);
		struct ptx_module *m = parse_text(text);
		int r = m ? instrument_sites(a, m, "kernel", &sites, &n, &d) : -1;
		if (!ok(r == -EOPNOTSUPP && strstr(d.text, cases[i].says), "refused: %s", cases[i].says))
			printf("# %d %s\n", r, d.text);
		d.err = 0;
		if (!i) {
			is_int(instrument_sites(a, m, "absent", &sites, &n, &d), -ENOENT, "no such kernel");
			ok(strstr(d.text, "'absent'"), "is named");
			is_int(instrument_sites(a, m, "absent", &sites, &n, NULL), -ENOENT, "no diag");
		}
		ptx_module_free(m);
		arena_free(a);
	}
	return tap_done();
}
