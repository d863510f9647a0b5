/* Where guards of --live go, and which kernels have none. */
#include "instrument.h"

#include "live/program.h"

enum { MAP = 3 };

struct guards {
	uint32_t loops, kept; /* loop heads with and without a guard */
	char reason[256];     /* of the last without */
	int err;
	struct diag d;
};

static uint32_t count(const char *text, const char *what)
{
	uint32_t n = 0;
	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* Puts guards at all points into `kernel` of the text. */
static struct guards guard(const char *text)
{
	struct guards g = { 0 };
	struct arena *a = arena_new();
	struct ebpf_fragment guards[LIVE_POINTS];
	const struct ebpf_fragment *list[LIVE_POINTS];
	struct instrument_result r;
	struct ptx_module *m = parse_text(text);
	for (int p = 0; p < LIVE_POINTS; p++) {
		live_guard(a, p, MAP, &guards[p], NULL);
		list[p] = &guards[p];
	}
	struct instrument_request req = { .module = m, .kernel = "kernel", .fragments = list, .n_fragments = LIVE_POINTS };
	g.err = m ? instrument_kernel(a, &req, &r, &g.d) : -1;
	for (uint32_t i = 0; !g.err && i < r.n_sites; i++) {
		if (r.sites[i].point != EBPF_POINT_BLOCK)
			continue;
		g.loops += !r.sites[i].skipped;
		if (r.sites[i].skipped && strstr(r.sites[i].skipped, "no guard")) {
			g.kept++;
			snprintf(g.reason, sizeof(g.reason), "%s", r.sites[i].skipped);
		}
	}
	if (!g.err)
		is_int(count(r.ptx, "fence.acq_rel.sys;"), g.loops, "loop heads with a guard look at the bell, and no other place does");
	ptx_module_free(m);
	arena_free(a);
	return g;
}

#define HEAD                                                                                             \
	".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry kernel(.param .u64 p, .param .u32 n)\n{\n" \
	".reg .pred %p<9>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\n"                              \
	"ld.param.u64 %rd1, [p];\nld.param.u32 %r7, [n];\nmov.f32 %f1, 0f3F800000;\nmov.u32 %r8, 2000;\n"
/* A loop around `inner`, until the host says stop. */
#define AROUND(inner) HEAD "OUTER:\n" inner "ld.volatile.global.u32 %r1, [%rd1];\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 bra OUTER;\nret;\n}\n"
#define FMA "fma.rn.f32 %f1, %f1, %f1, %f1;\n"

static const struct {
	const char *name, *text;
	uint32_t loops, kept;
} cases[] = {
	{ "a count up to a literal", AROUND("mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 8;\nsetp.ne.s32 %p2, %r2, 1000;\n@%p2 bra IN;\n"), 1, 1 },
	{ "a count down from a register that is a literal's",
		AROUND("mov.u32 %r2, %r8;\nIN:\n" FMA "add.s32 %r2, %r2, -10;\nsetp.eq.s32 %p2, %r2, 0;\n@%p2 bra OUT;\nbra.uni IN;\nOUT:\n"), 1, 1 },
	{ "less than a literal, unsigned", AROUND("mov.u32 %r2, 3;\nIN:\n" FMA "add.s32 %r2, %r2, 2;\nsetp.lt.u32 %p2, %r2, 77;\n@%p2 bra IN;\n"), 1, 1 },
	{ "a negated branch", AROUND("mov.u32 %r2, 3;\nIN:\n" FMA "add.s32 %r2, %r2, 2;\nsetp.ge.u32 %p2, %r2, 77;\n@!%p2 bra IN;\n"), 1, 1 },
	{ "no loop around it", HEAD "mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 8;\nsetp.ne.s32 %p2, %r2, 1000;\n@%p2 bra IN;\nret;\n}\n", 1, 0 },
	{ "a count to a parameter", AROUND("mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 1;\nsetp.ne.s32 %p2, %r2, %r7;\n@%p2 bra IN;\n"), 2, 0 },
	{ "a count from a parameter", AROUND("mov.u32 %r2, %r7;\nIN:\n" FMA "add.s32 %r2, %r2, 1;\nsetp.ne.s32 %p2, %r2, 9;\n@%p2 bra IN;\n"), 2, 0 },
	{ "steps that miss the end", AROUND("mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 3;\nsetp.ne.s32 %p2, %r2, 1000;\n@%p2 bra IN;\n"), 2, 0 },
	{ "steps away from the end", AROUND("mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, -1;\nsetp.lt.s32 %p2, %r2, 1000;\n@%p2 bra IN;\n"), 2, 0 },
	{ "unsigned, below zero", AROUND("mov.u32 %r2, 5;\nIN:\n" FMA "add.s32 %r2, %r2, -2;\nsetp.gt.u32 %p2, %r2, 0;\n@%p2 bra IN;\n"), 2, 0 },
	{ "a step that a guard may leave out",
		AROUND("mov.u32 %r2, 0;\nsetp.eq.s32 %p3, %r7, 0;\nIN:\n" FMA "@%p3 add.s32 %r2, %r2, 1;\nsetp.ne.s32 %p2, %r2, 9;\n@%p2 bra IN;\n"), 2, 0 },
	{ "a step that some ways miss",
		AROUND("mov.u32 %r2, 0;\nsetp.eq.s32 %p3, %r7, 0;\nIN:\n" FMA "@%p3 bra MISS;\nadd.s32 %r2, %r2, 1;\nMISS:\n"
		       "setp.ne.s32 %p2, %r2, 9;\n@%p2 bra IN;\n"), 2, 0 },
	{ "a counter that is set in the loop",
		AROUND("mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 1;\nmov.u32 %r2, 0;\nsetp.ne.s32 %p2, %r2, 9;\n@%p2 bra IN;\n"), 2, 0 },
	{ "a test that is for another register",
		AROUND("mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 1;\nsetp.ne.s32 %p2, %r3, 9;\n@%p2 bra IN;\n"), 2, 0 },
	{ "memory in it", AROUND("mov.u32 %r2, 0;\nIN:\nld.global.f32 %f1, [%rd1];\nadd.s32 %r2, %r2, 8;\nsetp.ne.s32 %p2, %r2, 1000;\n@%p2 bra IN;\n"), 2, 0 },
	{ "a barrier in it", AROUND("mov.u32 %r2, 0;\nIN:\nbar.sync 0;\nadd.s32 %r2, %r2, 8;\nsetp.ne.s32 %p2, %r2, 1000;\n@%p2 bra IN;\n"), 2, 0 },
	{ "too many rounds", AROUND("mov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 1;\nsetp.ne.s32 %p2, %r2, 1000000;\n@%p2 bra IN;\n"), 2, 0 },
	{ "a wait for the clock", AROUND("mov.u32 %r3, 0;\nIN:\nmov.u32 %r2, %clock;\nsetp.lt.u32 %p2, %r2, 1000;\n@%p2 bra IN;\n"), 2, 0 },
	{ "the middle of three",
		AROUND("mov.u32 %r3, 0;\nMID:\nmov.u32 %r2, 0;\nIN:\n" FMA "add.s32 %r2, %r2, 8;\nsetp.ne.s32 %p2, %r2, 80;\n@%p2 bra IN;\n"
		       "add.s32 %r3, %r3, 1;\nsetp.ne.s32 %p3, %r3, 5;\n@%p3 bra MID;\n"), 2, 1 },
	{ "two entries",
		AROUND("mov.u32 %r2, 0;\nsetp.eq.s32 %p3, %r7, 0;\n@%p3 bra SIDE;\nIN:\n" FMA "SIDE:\nadd.s32 %r2, %r2, 8;\nsetp.ne.s32 %p2, %r2, 80;\n"
		       "@%p2 bra IN;\n"), 2, 0 },
};

static void refused(const char *what, const char *insn, const char *says)
{
	char text[1024];
	snprintf(text, sizeof(text),
		".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry kernel()\n.maxntid 128, 1, 1\n{\n.reg .f32 %%f<9>;\n.reg .b64 %%rd<9>;\n%s\nret;\n}\n",
		insn);
	struct guards g = guard(text);
	ok(g.err == -EOPNOTSUPP && strstr(g.d.text, says) && strstr(g.d.text, "from its next launch on"), "%s is refused by name: %s", what,
		g.d.text);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct guards g = guard(cases[i].text);
		if (!ok(!g.err && g.loops == cases[i].loops && g.kept == cases[i].kept, "%s: %u loop heads have a guard, %u have none", cases[i].name,
			    cases[i].loops, cases[i].kept))
			printf("# %d %s: %u with, %u without: %s\n", g.err, g.d.text, g.loops, g.kept, g.reason);
		ok(!cases[i].kept || strstr(g.reason, "without memory accesses, at most"), "and it says why: %s", g.reason);
	}
	refused("wgmma", "wgmma.fence.sync.aligned;", "wgmma");
	refused("setmaxnreg", "setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg");
	struct guards g = guard(".version 6.0\n.target sm_60\n.address_size 64\n.visible .entry kernel()\n{\nret;\n}\n");
	ok(g.err == -EOPNOTSUPP && strstr(g.d.text, "sm_70"), "so is what is older than the interpreter: %s", g.d.text);
	return tap_done();
}
