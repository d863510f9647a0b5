/* instrument_tally.c - which probes in loops become a count in a register, where they run instead, and that lanes share what stands together. What
 * they count is tests/cli/adds.t's. */
#include "instrument.h"

static const char head[] =
	".version 8.0\n.target sm_90\n.address_size 64\n"
	".visible .entry kernel(.param .u64 data)\n{\n"
	"\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<9>;\n\t.reg .pred %p<4>;\n"
	"\tld.param.u64 %rd1, [data];\n\tmov.u32 %r1, 0;\n"
	"\tsetp.eq.u64 %p2, %rd1, 64;\n\tsetp.eq.u64 %p3, %rd1, 128;\n";

/* Two accesses a round, left in the middle for lanes of p2, and at the end. */
static const char calm[] =
	"$loop:\n"
	"\tld.global.u32 %r2, [%rd1];\n"
	"\t@%p2 bra $out;\n"
	"\tst.global.u32 [%rd1+4], %r2;\n"
	"\tst.global.u32 [%rd1+8], %r2;\n"
	"\tadd.u32 %r1, %r1, 1;\n"
	"\tsetp.lt.u32 %p1, %r1, 9;\n"
	"\t@%p1 bra $loop;\n"
	"$out:\n"
	"\t@!%p3 ret;\n"
	"\tst.global.u32 [%rd1+12], %r1;\n";
static const char leaves[] = "\tret;\n}\n";
static const char asks[] = "\tatom.global.add.u32 %r3, [%rd1+64], 1;\n\tret;\n}\n";

static struct arena *arena;
static struct ebpf_fragment fragments[2];
static uint32_t n_fragments;

static struct ebpf_fragment adder(enum ebpf_point point, uint64_t fields, bool repeat)
{
	struct ebpf_fragment f = make_fragment(arena, point, false, fields);
	f.anywhere = true;
	f.maps = 2;
	f.repeat = repeat ? "{\n\t.reg .b64 %egpu_r1;\n\tld.const.u64 %egpu_r1, [__egpu_table+8];\n"
			    "\tred.global.add.u64 [%egpu_r1+128], %egpu_passes;\n}" : NULL;
	f.words = 2;
	return f;
}

static const char *instrumented(const char *body, const char *end)
{
	const struct ebpf_fragment *list[] = { &fragments[0], &fragments[1] };
	char *text = arena_printf(arena, "%s%s%s", head, body, end);
	struct ptx_module *m = parse_text(text);
	struct instrument_request req = { .module = m, .kernel = "kernel", .fragments = list, .n_fragments = n_fragments };
	struct instrument_result r;
	struct diag d = { 0 };
	const char *ptx = "";
	if (!m || instrument_kernel(arena, &req, &r, &d))
		printf("# %s\n", d.text);
	else
		ptx = r.ptx;
	ptx_module_free(m);
	return ptx;
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;
	for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

/* Whether `what` stands in the text between the first `from` and what follows it as `to`. */
static bool between(const char *text, const char *from, const char *what, const char *to)
{
	const char *a = strstr(text, from), *w = a ? strstr(a, what) : NULL, *b = a ? strstr(a + 1, to) : NULL;
	return a && w && b && w < b;
}

static void test_calm(void)
{
	const char *ptx = instrumented(calm, leaves);
	is_int(count(ptx, ", 1;\n}\n\tld.global.u32 %r2") + count(ptx, ", 1;\n}\n\tst.global.u32 [%rd1+4]"), 2, "a thread counts its passes by each block of the loop");
	is_int(count(ptx, "+128], %egpu_passes"), 2, "and the programs stand once at each way out");
	ok(between(ptx, "$out:", "@%p3 bra $egpu_end", "@!%p3 ret;"), "for the lanes that take it");
	ok(between(ptx, "@!%p3 ret;\n", "%egpu_passes", "\tret;\n}"), "and at the end for the others");
	ok(!between(ptx, "$loop:", "%egpu_passes", "$out:"), "none in the loop");
	ok(between(ptx, "@!%p3 ret;\n", "%egpu_site;", "st.global.u32 [%rd1+12]"), "an access outside of loops has its program where it is");
	is_int(count(ptx, "redux.sync"), 8, "what lanes have passed is summed: two blocks, two pieces, at two places");
	is_int(count(ptx, "mad.lo.u32 %egpu_site, %egpu_index, 1, 1;"), 2, "lanes for each site");
	is_int(count(ptx, "setp.ge.u32 %egpu_xp1, %egpu_turn, 6;"), 2, "one for each of its words");
}

static void test_edges(void)
{
	const char *ptx = instrumented(calm, asks);
	ok(between(ptx, "ld.global.u32 %r2", "@!%p2 bra $egpu_end", "@%p2 bra $out;"), "where an atomic is asked elsewhere: on the edge out, before the branch");
	ok(between(ptx, "@%p2 bra $out;", "add.s64 %egpu_n1", "st.global.u32 [%rd1+4]"), "the block behind it counts");
	ok(between(ptx, "@%p1 bra $loop;", "%egpu_passes", "$out:"), "and where the branch is not taken");
	is_int(count(ptx, "\t@%p2 mov.u64 %egpu_n0, 0;"), 1, "counters begin again for lanes that left");
	is_int(count(ptx, "\tmov.u64 %egpu_n0, 0;"), 2, "and for the others; and at the start");
	ok(!between(ptx, "$out:\n", "%egpu_passes", "@!%p3 ret;"), "nothing is left for the way out");
}

/* A thread that comes to the closing brace ends there, also behind a branch or a way out that others take. */
static void test_brace(void)
{
	static const char loop[] = "$loop:\n\tld.global.u32 %r2, [%rd1];\n\tadd.u32 %r1, %r1, 1;\n\tsetp.lt.u32 %p1, %r1, 9;\n";
	static const char asked[] = "\tatom.global.add.u32 %r3, [%rd1+64], 1;\n";
	const char *ptx = instrumented(loop, "\t@%p1 bra $loop;\n}\n");
	ok(between(ptx, "@%p1 bra $loop;", "%egpu_passes", "\n\t}"), "at the closing brace, behind a branch back");
	ptx = instrumented(arena_printf(arena, "%s%s", asked, loop), "\t@%p1 bra $loop;\n}\n");
	ok(between(ptx, "@%p1 bra $loop;", "%egpu_passes", "\n\t}"), "also where a loop's edges are its ways out");
	ptx = instrumented(loop, "\t@%p1 bra $loop;\n\t@%p3 ret;\n}\n");
	ok(between(ptx, "@%p3 ret;", "%egpu_passes", "\n\t}"), "behind a way out for some lanes");
	is_int(count(ptx, "+128], %egpu_passes"), 2, "which has its own");
	ptx = instrumented(arena_printf(arena, "\tbra $loop;\n$out:\n%s\tret;\n%s", asked, loop), "\t@!%p1 bra $out;\n\t@%p3 bra $loop;\n\t@%p2 bra $out;\n}\n");
	is_int(count(ptx, "+128], %egpu_passes"), 2, "a loop that is left before its last branch");
}

static void refused(const char *body, const char *end, const char *what)
{
	const char *ptx = instrumented(body, end);
	ok(*ptx && !count(ptx, "add.s64 %egpu_n"), "%s", what);
}

static const char *with(const char *insn)
{
	const char *at = strstr(calm, "\tadd.u32 %r1, %r1, 1;");
	return arena_printf(arena, "%.*s\t%s\n%s", (int)(at - calm), calm, insn, at);
}

static void test_refused(void)
{
	refused(with("ld.volatile.global.u32 %r4, [%rd1+16];"), leaves, "a loop that looks at what others write");
	refused(with("ld.acquire.gpu.global.u32 %r4, [%rd1+16];"), leaves, "or acquires it");
	refused(with("atom.global.add.u32 %r4, [%rd1+16], 1;"), leaves, "or asks for the result of an atomic");
	refused(with("nanosleep.u32 100;"), leaves, "or sleeps");
	refused(with("membar.gl;"), leaves, "or tells others how far it is");
	refused("$loop:\n\tld.global.u32 %r2, [%rd1];\n\tsetp.ne.u32 %p1, %r2, 9;\n\t@%p1 bra $loop;\n", leaves, "one that ends by what it loads");
	refused("$loop:\n\tld.global.u32 %r2, [%rd1];\n\tsetp.ne.u32 %p1, %r2, 9;\n\t@%p1 bra $loop;\n\t.loc 1 2 3\n", leaves, "whatever stands behind its branch");
	ok(count(instrumented(with("red.global.add.u32 [%rd1+16], 1;"), leaves), "add.s64 %egpu_n"), "one that adds may count");
	ok(count(instrumented(with("bar.sync 0;"), leaves), "add.s64 %egpu_n"), "one with a barrier too");

	fragments[0] = adder(EBPF_POINT_MEM, BIT(SITE) | BIT(BYTES), false);
	refused(calm, leaves, "a program that cannot be repeated");
	fragments[0] = adder(EBPF_POINT_MEM, BIT(SITE) | BIT(BYTES), true);
	fragments[1] = make_fragment(arena, EBPF_POINT_EXIT, false, 0);
	fragments[1].maps = 2;
	n_fragments = 2;
	refused(calm, leaves, "a map that another program reads");
	fragments[1].maps = 4;
	ok(count(instrumented(calm, leaves), "add.s64 %egpu_n"), "another map does not matter");
	fragments[1] = make_fragment(arena, EBPF_POINT_STORE, false, 0);
	fragments[1].maps = 4;
	const char *ptx = instrumented(calm, leaves);
	ok(between(ptx, "$loop:", "add.s64 %egpu_n0", "ld.global.u32 %r2") && !count(ptx, "add.s64 %egpu_n1"),
		"sites that also have another program keep both");
	n_fragments = 1;
}

static void test_lanes(void)
{
	static const char two[] = "\tst.global.u32 [%rd1], %r1;\n\tst.global.u64 [%rd1+8], %rd1;\n\tst.global.u32 [%rd1+16], %r1;\n";
	const char *ptx = instrumented(two, leaves);
	is_int(count(ptx, "{ // egpu site 1\n"), 1, "sites of one stretch stand together");
	is_int(count(ptx, "%egpu_passes, %egpu_step"), 1, "once");
	ok(count(ptx, "setp.eq.u32 %egpu_xp1, %egpu_index, 1;\n\t@%egpu_xp1 mov.b32 %egpu_bytes, 8;"), "one number of its own is chosen");
	fragments[0] = adder(EBPF_POINT_MEM, BIT(SITE) | BIT(BYTES) | BIT(THREAD_X), true);
	is_int(count(instrumented(two, leaves), "%egpu_index"), 0, "not where threads differ in what the program reads");
	ptx = instrumented(calm, leaves);
	is_int(count(ptx, "redux.sync"), 0, "and there each lane adds its own passes");
	ok(count(ptx, "mov.u32 %egpu_step, 1;"), "site by site");
	fragments[0] = adder(EBPF_POINT_MEM, BIT(SITE) | BIT(BYTES), true);
}

static void test_entry(void)
{
	static const char loads[] = "\t@%p2 bra $end;\n\t@%p3 ret;\n\tld.global.u32 %r2, [%rd1];\n\tadd.u32 %r2, %r2, 1;\n\tst.global.u32 [%rd1], %r2;\n$end:\n";
	static const char stores[] = "\tst.global.u32 [%rd1+4], %r1;\n\tld.global.u32 %r2, [%rd1];\n";
	fragments[0] = adder(EBPF_POINT_ENTRY, BIT(BLOCK_X), false);
	const char *ptx = instrumented(loads, leaves);
	is_int(count(ptx, "{ // egpu site 0\n"), 3, "an entry's program stands behind the first loads, and before the branches there");
	ok(between(ptx, "ld.global.u32 %r2", "egpu site 0", "add.u32 %r2"), "behind the load");
	ok(between(ptx, "setp.eq.u64 %p3", "@!%p2 bra $egpu_end0", "@%p2 bra $end;"), "for lanes that branch off");
	ok(between(ptx, "@%p2 bra $end;", "@!%p3 bra $egpu_end0", "@%p3 ret;"), "and for those that return");
	ptx = instrumented("\t@%p3 ret;\n\tld.global.u32 %r2, [%rd1];\n", "}\n");
	is_int(count(ptx, "{ // egpu site 0\n"), 1, "nor twice where the text ends with the load");
	ptx = instrumented(stores, leaves);
	ok(between(ptx, ".entry", "egpu site 0", "ld.param"), "not behind a store");
	fragments[0].anywhere = false;
	ptx = instrumented(loads, leaves);
	ok(between(ptx, ".entry", "egpu site 0", "ld.param") && count(ptx, "{ // egpu site 0\n") == 1, "a program that does more stays at the entry");
	fragments[0].anywhere = true;
	fragments[1] = make_fragment(arena, EBPF_POINT_LOAD, false, 0);
	n_fragments = 2;
	ptx = instrumented(loads, leaves);
	ok(between(ptx, ".entry", "egpu site 0", "ld.param"), "no program is passed that could notice");
	n_fragments = 1;
}

/* Whether a warp is chosen is known wherever somebody asks: before the branch that ends the last common block, whatever stands behind that. */
static void test_choice(void)
{
	static const char *const behind[] = { "", "\t.loc 1 2 3\n", "\t.reg .b32 %more;\n" };
	fragments[0] = adder(EBPF_POINT_MEM, BIT(SITE) | BIT(BYTES), true);
	fragments[0].sampled = true;
	for (int i = 0; i < 3; i++) {
		const char *ptx = instrumented(arena_printf(arena, "\t@%%p2 bra $other;\n%s\tld.global.u32 %%r2, [%%rd1];\n\tret;\n$other:\n", behind[i]),
			"\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n");
		ok(between(ptx, "setp.eq.u64 %p3", "setp.eq.u32 %egpu_chosen", "@%p2 bra $other;"), "sampled: chosen before the branch, %d", i);
	}
	/* A probe that goes to the end of its block stands before the label of the next one, and is not of that. */
	const char *ptx = instrumented("\t@%p2 bra $other;\n\tadd.u32 %r1, %r1, 1;\n\tbra $join;\n$other:\n\tld.global.u32 %r2, [%rd1];\n$join:\n",
		"\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n");
	ok(between(ptx, "setp.eq.u64 %p3", "setp.eq.u32 %egpu_chosen", "@%p2 bra $other;"), "a probe behind the loads of its block");
	ptx = instrumented("\t{\n\tT: .branchtargets $one, $other;\n\tbrx.idx %r1, T;\n\t}\n$one:\n\tld.global.u32 %r2, [%rd1];\n\tret;\n$other:\n",
		"\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n");
	ok(between(ptx, ".entry", "setp.eq.u32 %egpu_chosen", "brx.idx"), "before a scope that the branch ends");
	fragments[0].sampled = false;
}

int main(void)
{
	arena = arena_new();
	n_fragments = 1;
	fragments[0] = adder(EBPF_POINT_MEM, BIT(SITE) | BIT(BYTES), true);
	test_calm();
	test_edges();
	test_brace();
	test_refused();
	test_lanes();
	test_entry();
	test_choice();
	arena_free(arena);
	return tap_done();
}
