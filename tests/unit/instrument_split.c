/* instrument_split.c - a function whose programs run in chosen warps has two versions: what the others run is the text as it was, the programs
 * are in the other, and where that cannot be they are skipped one by one. That sums come out right is tests/cli/sample.t's and passes.t's. */
#include "instrument/readback.h"
#include "instrument.h"

#define HEAD ".version 8.0\n.target sm_90a\n.address_size 64\n"
#define ENTRY ".visible .entry kernel(.param .u64 data)\n{\n"
#define REGS "\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<9>;\n\t.reg .f32 %f<9>;\n\t.reg .pred %p<4>;\n"
#define BEGIN "\tld.param.u64 %rd1, [data];\n\tmov.u32 %r1, %tid.x;\n\tsetp.gt.u32 %p1, %r1, 99;\n"

static struct arena *arena;
static struct ebpf_fragment fragments[2];
static uint32_t n_fragments = 1;
static struct instrument_result result, bound;

/* Of a mem program that adds, in chosen warps: or NULL, said why. */
static const char *instrumented(const char *text)
{
	const struct ebpf_fragment *list[] = { &fragments[0], &fragments[1] };
	struct ptx_module *m = parse_text(text);
	struct instrument_request req = { .module = m, .kernel = "kernel", .fragments = list, .n_fragments = n_fragments }, none = { .module = m, .kernel = "kernel" };
	struct diag d = { 0 };
	bool good = m && !instrument_kernel(arena, &none, &bound, &d) && !instrument_kernel(arena, &req, &result, &d);
	if (!good)
		printf("# %s\n", d.text);
	ptx_module_free(m);
	return good ? result.ptx : "";
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;
	for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

static bool is_split(const char *ptx)
{
	return count(ptx, "{ // egpu plain\n") && !count(ptx, "@!%egpu_chosen");
}

/* Whether a comes before b, and b before c. */
static bool in_order(const char *text, const char *a, const char *b, const char *c)
{
	const char *x = strstr(text, a), *y = x ? strstr(x, b) : NULL;
	return y && strstr(y, c);
}

/* The text between the first a and the b behind it. */
static char *between(const char *text, const char *a, const char *b)
{
	const char *x = strstr(text, a), *y = x ? strstr(x, b) : NULL;
	return y ? arena_strndup(arena, x + strlen(a), (size_t)(y - x) - strlen(a)) : arena_strdup(arena, "");
}

static const char loads[] = HEAD ENTRY REGS BEGIN
	"\t@%p1 bra $end;\n"
	"\tmov.u32 %r3, 0;\n"
	"$loop:\n"
	"\tld.global.u32 %r2, [%rd1];\n"
	"\tadd.u32 %r3, %r3, 1;\n"
	"\tsetp.lt.u32 %p2, %r3, 9;\n"
	"\t@%p2 bra $loop;\n"
	"\tst.global.u32 [%rd1+8], %r2;\n"
	"$end:\n"
	"\tret;\n}\n";

static void test_text(void)
{
	const char *ptx = instrumented(loads);
	char *plain = between(ptx, "{ // egpu plain\n", "\n}\n$egpu_probed:"), *probed = between(ptx, "$egpu_probed:\n", "\n}\n\0");
	ok(is_split(ptx) && count(ptx, "$egpu_probed:\n") == 1, "two versions");
	ok(count(plain, "$loop") == 2 && count(plain, "ld.global.u32 %r2, [%rd1];") == 1 && !count(plain, "egpu"), "the one without programs has the loop as it was");
	ok(count(ptx, "{ // egpu site") >= 2 && in_order(ptx, "$egpu_probed:", "{ // egpu site 1", "ld.global.u32 %r2"), "the other has them");
	ok(in_order(ptx, "@%p1 bra $end;", "@%egpu_chosen bra.uni $egpu_probed;", "$loop:"), "they part as late as the first site allows, before the loop");
	ok(in_order(ptx, "%egpu_start, %clock;", "ld.param.u64 %rd1", "%egpu_xt3, %egpu_start;"), "where lanes may have parted, they choose by what they had together");
	ok(result.sampled && result.launch_param, "said so");
	ok(*probed, "and it ends");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
	struct instrument_work cost = instrument_work(&result.cost, 64), all;
	fragments[0].sampled = false;
	instrumented(loads);
	all = instrument_work(&result.cost, 64);
	ok(cost.insns == all.insns && cost.bytes == all.bytes && cost.bytes > 4 * 9, "the kernel's own work is counted once");
	fragments[0].sampled = true;
}

static void test_where(void)
{
	const char *ptx = instrumented(HEAD ENTRY REGS BEGIN "\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n");
	ok(is_split(ptx) && in_order(ptx, "ld.param.u64 %rd1", "@%egpu_chosen", "st.global"), "in the first block: there");
	ok(!count(ptx, "%egpu_start"), "lanes are together");
	ptx = instrumented(HEAD ENTRY REGS "$again:\n" BEGIN "\tst.global.u32 [%rd1], %r1;\n\t@%p1 bra $again;\n\tret;\n}\n");
	ok(is_split(ptx) && in_order(ptx, "@%egpu_chosen", "$again:", "ld.param.u64 %rd1"), "a loop is all that there is: before it");
	ptx = instrumented(HEAD ENTRY REGS BEGIN "\tbra $middle;\n$back:\n\tret;\n$middle:\n\tst.global.u32 [%rd1], %r1;\n\tbra $back;\n}\n");
	ok(is_split(ptx) && in_order(ptx, "@%egpu_chosen", "ld.param.u64 %rd1", "$back:"), "what follows goes back in the text: at the beginning");
	ptx = instrumented(HEAD ENTRY REGS BEGIN "\t{\n\t.reg .b32 %q;\n\tmov.u32 %q, 1;\n\tst.global.u32 [%rd1], %q;\n\t}\n\tret;\n}\n");
	ok(is_split(ptx) && in_order(ptx, "@%egpu_chosen", "ld.param.u64 %rd1", "st.global"), "a scope: at the beginning");
	ptx = instrumented(HEAD ENTRY REGS BEGIN "\tmul.f32 %f3, %f1, %f2;\n\tadd.f32 %f4, %f3, %f1;\n\tst.global.f32 [%rd1], %f4;\n\tret;\n}\n");
	ok(is_split(ptx) && in_order(ptx, "@%egpu_chosen", "mul.f32", "add.f32"), "a product before its sum: at the beginning");
	ptx = instrumented(HEAD ENTRY REGS "\t.shared .align 4 .b8 own[64];\n" BEGIN "\tst.shared.u32 [own], %r1;\n\tbar.sync 0;\n\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n");
	ok(is_split(ptx) && count(ptx, "own[64]") == 1 && count(ptx, "bar.sync 0;") == 2, "shared arrays are declared once, barriers stand in both");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
	ptx = instrumented(HEAD ENTRY REGS BEGIN "\tT: .branchtargets $a, $b;\n\tbrx.idx %r1, T;\n$a:\n\tst.global.u32 [%rd1], %r1;\n$b:\n\tret;\n}\n");
	ok(is_split(ptx) && in_order(ptx, "@%egpu_chosen", "T: .branchtargets", "brx.idx"), "a table of labels: at the beginning");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "and ptxas takes two of them");
}

/* Lanes that go another way must find those again that were chosen: what all of them do later is done in one version. */
static void test_together(void)
{
	static const char half[] = "\t@%p1 bra $skip;\n\tld.global.u32 %r2, [%rd1];\n\tld.global.u32 %r3, [%rd1+4];\n$skip:\n";
	fragments[0].point = EBPF_POINT_LOAD;
	const char *ptx = instrumented(arena_printf(arena, "%s%s\tshfl.sync.bfly.b32 %%r3, %%r2, 1, 31, -1;\n\tst.shared.u32 [%%r1], %%r3;\n\tret;\n}\n", HEAD ENTRY REGS BEGIN, half));
	ok(is_split(ptx) && in_order(ptx, "setp.gt.u32", "@%egpu_chosen", "@%p1 bra $skip;"), "before lanes part that shuffle later");
	ptx = instrumented(arena_printf(arena, "%s%s\tret;\n}\n", HEAD ENTRY REGS BEGIN, half));
	ok(is_split(ptx) && in_order(ptx, "@%p1 bra $skip;", "@%egpu_chosen", "$skip:"), "behind, where the others only end");
	ptx = instrumented(arena_printf(arena, "%s\t@%%p2 bra $out;\n\tmov.u32 %%r4, 1;\n$again:\n\tadd.u32 %%r1, %%r1, 1;\n%s\tsetp.lt.u32 %%p3, %%r1, 9;\n\t@%%p3 bra $again;\n$out:\n\tbar.sync 0;\n\tret;\n}\n", HEAD ENTRY REGS BEGIN, half));
	ok(is_split(ptx) && in_order(ptx, "setp.gt.u32", "@%egpu_chosen", "@%p2 bra $out;"), "from loop to loop, until all are together");
	fragments[0].point = EBPF_POINT_MEM;
}

/* Variables of the module stand for the same register in both versions. */
static void test_bound(void)
{
	const char *ptx = instrumented(HEAD ".global .align 4 .u32 own;\n" ENTRY REGS BEGIN "\tst.global.u32 [own], %r1;\n\tst.global.u32 [own+4], %r1;\n\tret;\n}\n");
	ok(is_split(ptx) && count(ptx, "ld.const.u64 %egpu_s0") == 1 && count(ptx, "ld.const.u64 %egpu_s1") == 2, "an address before the choice is loaded once");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
}

static const char calls[] = HEAD
	".func (.param .b32 out) twice(.param .b64 data)\n{\n" REGS
	"\tld.param.u64 %rd1, [data];\n\tld.global.u32 %r1, [%rd1];\n\tsetp.eq.u32 %p1, %r1, 0;\n\t@%p1 bra $done;\n\tst.global.u32 [%rd1], 1;\n"
	"$done:\n\tst.param.b32 [out], %r1;\n\tret;\n}\n"
	ENTRY REGS BEGIN
	"\t{\n\t.param .b64 p;\n\t.param .b32 q;\n\tst.param.b64 [p], %rd1;\n\tcall.uni (q), twice, (p);\n\tld.param.b32 %r2, [q];\n\t}\n"
	"\tst.global.u32 [%rd1], %r2;\n\tret;\n}\n";

static void test_calls(void)
{
	const char *ptx = instrumented(calls);
	ok(is_split(ptx) && count(ptx, "{ // egpu plain\n") == 2, "a function that is called has two versions as well");
	ok(count(ptx, "mov.b64 %egpu_call, %egpu_word;") == 2 && count(ptx, "call.uni (q), twice, (p, %egpu_call);") == 2, "both versions of the kernel tell it whether the warp is chosen");
	ok(in_order(ptx, ".entry kernel", "@%egpu_chosen", "ld.param.u64 %rd1, [data];"), "which is known before anything is called");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
}

/* Today's way: one version, in which sites are skipped. */
static void one_version(const char *body, const char *what)
{
	const char *ptx = instrumented(arena_printf(arena, "%s%s\tst.global.u32 [%%rd1], %%r1;\n\tret;\n}\n",
		HEAD ".visible .entry kernel(.param .u64 data) .maxntid 256\n{\n" REGS, body));
	ok(!count(ptx, "egpu plain") && count(ptx, "@!%egpu_chosen bra.uni $egpu_end"), "one version: %s", what);
}

static void test_refused(void)
{
	one_version(BEGIN "\twgmma.fence.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;\n", "four warps execute one instruction");
	one_version(BEGIN "\tsetmaxnreg.inc.sync.aligned.u32 40;\n", "they hand registers over");
	one_version(BEGIN "\tbarrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;\n", "a barrier of a cluster");
	one_version(BEGIN "\t.shared .align 4 .b8 late[64];\n", "memory that is declared on the way");
	one_version(BEGIN "\t{\n\t.local .align 4 .b8 inner[64];\n\tst.local.u32 [inner], %r1;\n\t}\n", "and in a scope");
	n_fragments = 2;
	fragments[1] = make_fragment(arena, EBPF_POINT_EXIT, false, 0);
	const char *ptx = instrumented(loads);
	ok(!count(ptx, "egpu plain") && count(ptx, "@!%egpu_chosen"), "one version: another program runs in all warps");
	fragments[1].sampled = true;
	ok(is_split(instrumented(loads)), "two, when that does not");
	n_fragments = 1;
}

/* What the proof is for: each violation in a good variant, in the version without programs or at its edges. */
static void test_proof(void)
{
	static const struct {
		const char *what, *from, *to;
	} planted[] = {
		{ "an instruction changed", "\tadd.u32 %r3, %r3, 1;", "\tadd.u32 %r3, %r3, 2;" },
		{ "an instruction left out", "\tadd.u32 %r3, %r3, 1;\n", "" },
		{ "an instruction more", "$loop:\n", "$loop:\n\tbar.sync 0;\n" },
		{ "a label gone: its branch goes to the other version", "$loop:\n", "" },
		{ "a program", "$loop:\n", "$loop:\n\t{ // egpu site 1\n}\n\t" },
		{ "a variable", "$loop:\n", "\n\t.reg .b32 %egpu_slot;\n$loop:\n" },
		{ "no way out at its end", "\n\tret;\n}\n$egpu_probed", "\n}\n$egpu_probed" },
		{ "another at its end", "\n\tret;\n}\n$egpu_probed", "\n\ttrap;\n}\n$egpu_probed" },
		{ "something behind it", "\n\tret;\n}\n$egpu_probed", "\n\tret;\n}\n\ttrap;\n$egpu_probed" },
		{ "a branch for some lanes", "bra.uni $egpu_probed", "bra $egpu_probed" },
		{ "another guard", "@%egpu_chosen", "@%p1" },
		{ "the guard the other way round", "@%egpu_chosen", "@!%egpu_chosen" },
		{ "another label", "$egpu_probed:", "$egpu_other:\n$egpu_probed:" },
	};
	const char *ptx = instrumented(loads);
	struct diag d = { 0 };
	is_int(readback_splice(bound.ptx, ptx, true, &d), 0, "a good variant");
	for (size_t i = 0; i < sizeof(planted) / sizeof(planted[0]); i++) {
		const char *begin = strstr(ptx, "@%egpu_chosen"), *at = begin ? strstr(begin, planted[i].from) : NULL;
		if (!ok(at, "%s: can be planted", planted[i].what))
			continue;
		char *bad = planted_at(arena, ptx, at, planted[i].from, planted[i].to);
		d = (struct diag){ 0 };
		is_int(readback_splice(bound.ptx, bad, true, &d), -EOPNOTSUPP, "%s: is found", planted[i].what);
		ok(strstr(d.text, "internal check failed: ") == d.text, "%s: %s", planted[i].what, d.text);
	}
}

int main(void)
{
	arena = arena_new();
	fragments[0] = make_fragment(arena, EBPF_POINT_MEM, false, BIT(SITE) | BIT(BYTES));
	fragments[0].sampled = true;
	test_text();
	test_where();
	test_together();
	test_bound();
	test_calls();
	test_refused();
	test_proof();
	arena_free(arena);
	return tap_done();
}
