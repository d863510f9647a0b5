/* instrument_mutation.c - the two proofs catch what they are there to catch: a violation of each
 * kind is planted in a good variant, and each is found. */
#include "instrument/readback.h"
#include "instrument.h"

struct good {
	struct arena *arena;
	struct ptx_module *m;
	struct ebpf_fragment fragments[4];
	const struct ebpf_fragment *list[4];
	struct instrument_result bound, spliced;
};

static bool run(struct good *g, uint32_t n, struct instrument_result *out)
{
	struct instrument_request req = { .module = g->m, .kernel = "kernel", .fragments = g->list,
		.n_fragments = n, .first_site = 5 };
	struct diag d = { 0 };
	int err = instrument_kernel(g->arena, &req, out, &d);
	if (err)
		printf("# %d %u: %s\n", err, d.line, d.text);
	return !err;
}

static void make_good(struct good *g, const char *file)
{
	*g = (struct good){ .arena = arena_new(), .m = parse_golden(file, NULL, NULL) };
	g->fragments[0] = make_fragment(g->arena, EBPF_POINT_MEM, false, fields_of(EBPF_CONTEXT_MEM));
	g->fragments[1] = make_fragment(g->arena, EBPF_POINT_MEM, true, fields_of(EBPF_CONTEXT_WARP_MEM));
	g->fragments[2] = make_fragment(g->arena, EBPF_POINT_ENTRY, false, BIT(LAUNCH));
	for (int i = 0; i < 3; i++)
		g->list[i] = &g->fragments[i];
	ok(run(g, 0, &g->bound) && run(g, 3, &g->spliced), "%s has a good variant", file);
}

static void free_good(struct good *g)
{
	ptx_module_free(g->m);
	arena_free(g->arena);
}

/* The text with the first `from` behind the first `after` replaced. */
static char *mutate(const char *text, const char *after, const char *from, const char *to)
{
	const char *at = strstr(text, after);
	at = at ? strstr(at, from) : NULL;
	if (!at)
		return NULL;
	char *out = malloc(strlen(text) + strlen(to) + 1);
	sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	return out;
}

struct mutation {
	const char *name, *after, *from, *to;
	const char *says; /* part of the diagnostic */
};

static void check(const struct mutation *m, const char *text, int (*prove)(void *, const char *, struct diag *),
	void *arg)
{
	char *bad = mutate(text, m->after, m->from, m->to);
	struct diag d = { 0 };
	ok(bad, "%s: can be planted", m->name);
	if (!bad)
		return;
	is_int(prove(arg, bad, &d), -EOPNOTSUPP, "%s: is found", m->name);
	ok(strstr(d.text, "internal check failed: ") == d.text && strstr(d.text, m->says),
		"%s: and named", m->name);
	if (!strstr(d.text, m->says))
		printf("# %s\n", d.text);
	free(bad);
}

static int prove_binding(void *arg, const char *text, struct diag *d)
{
	struct good *g = arg;
	return readback_binding(g->m, "kernel", text, g->bound.symbols, g->bound.n_symbols, d);
}

static int prove_splice(void *arg, const char *text, struct diag *d)
{
	struct good *g = arg;
	return readback_splice(g->bound.ptx, text, g->spliced.launch_param, d);
}

static const struct mutation binding[] = {
	{ "a symbol bound to another's entry", "", "[__egpu_table+1088]", "[__egpu_table+1096]", "no substitution" },
	{ "an entry that is no symbol's", "", "[__egpu_table+1088]", "[__egpu_table+8]", "no entry" },
	{ "an entry behind the table", "", "[__egpu_table+1088]", "[__egpu_table+5760]", "no entry" },
	{ "another register", "", "st.relaxed.gpu.global.u32 [%egpu_s0]", "st.relaxed.gpu.global.u32 [%egpu_s1]", "no substitution" },
	{ "another displacement", "", "[%egpu_s7+16]", "[%egpu_s7+20]", "another offset" },
	{ "another addition", "", "%egpu_s5, %egpu_s5, 4;", "%egpu_s5, %egpu_s5, 8;", "another offset" },
	{ "a .const load left alone", "mov.b64 %rd6, %rd7;", "ld.global.f32 %f5", "ld.const.f32 %f5", "not turned" },
	{ "a cvta left alone", "", "mov.b64 %rd7, %rd6;", "cvta.const.u64 %rd7, %rd6;", "not turned" },
	{ "an instruction changed", "", "st.relaxed.gpu", "st.relaxed.sys", "differs from the source" },
	{ "an instruction added", "ret;", "ret;", "bar.sync 0;\n\tret;", "differs from the source" },
	{ "an instruction removed", "", "cvta.global.u64 %rd5, %egpu_s5;", "", "differs from the source" },
	{ "a variable of another size", "", "tile[128]", "tile[256]", "item differs" },
	{ "a variable left out", "", ".shared .align 16 .b8 tile[128];\n", "", "no declaration of 'tile'" },
	{ "a variable less aligned", "", ".shared .align 16 .b8 tile", ".shared .align 2 .b8 tile", "item differs" },
	{ "a variable too much aligned", "", ".shared .align 16 .b8 tile", ".shared .align 64 .b8 tile", "item differs" },
	{ "a directive left out", "", ".file\t1 \"memory.cu\"\n", "", "left out" },
	{ "the kernel renamed", "", ".entry kernel", ".entry kernal", "" },
	{ "a table of another size", "", "__egpu_table[140]", "__egpu_table[144]", "left out" },
	{ "a second definition", "", ".visible .const .align 8 .u64 __egpu_table", ".global .u32 extra;\n.visible .const .align 8 .u64 __egpu_table", "" },
	{ "more registers than uses", "", "%egpu_s<", "%egpu_s<9", "not used" },
	{ "a comment between items", "", "\n.file", "\n// x\n.file", "between two items" },
	{ "another target", "", ".target sm_80", ".target sm_86", "item differs" },
	{ "text that does not parse", "", ".entry kernel", ".entry kernel(", "does not parse" },
};

/* Behind the fragment's load of its map's address, so in its body. */
#define BODY "ld.const.u64 %egpu_r1, [__egpu_table+8];\n"
#define PLANT(name, text, says) { name, BODY, "\tred.global", "\t" text "\n\tred.global", says }
/* In the inputs. */
#define INPUT(name, text, says) { name, "// egpu site", "\t.reg .b64 %egpu_xu<3>;\n", "\t.reg .b64 %egpu_xu<3>;\n\t" text "\n", says }

static const struct mutation splices[] = {
	PLANT("a register of the kernel written", "mov.b32 %r1, 0;", "not its own: '%r1'"),
	PLANT("one written by a load", "ld.global.u32 %r1, [%egpu_r1];", "not its own: '%r1'"),
	PLANT("one written as half of a pair", "mov.b64 {%r1, %egpu_r2}, %egpu_r1;", "not its own: '%r1'"),
	PLANT("one written by an atomic", "atom.global.add.u32 %r1, [%egpu_r1], 1;", "not its own: '%r1'"),
	PLANT("a predicate of the kernel written", "setp.eq.u32 %p1, %egpu_r2, 0;", "not its own: '%p1'"),
	PLANT("a symbol's register written", "add.u64 %egpu_s0, %egpu_s0, 4;", "not its own: '%egpu_s0'"),
	PLANT("an input written by a fragment", "mov.b64 %egpu_address, 0;", "not its own: '%egpu_address'"),
	PLANT("a store through a kernel's pointer", "st.global.u32 [%rd1], 1;", "no map pointer"),
	PLANT("an atomic through a kernel's pointer", "red.global.add.u32 [%rd1], 1;", "no map pointer"),
	PLANT("a store through the observed address", "st.global.u32 [%egpu_address], 1;", "no map pointer"),
	PLANT("a store to address 0", "st.global.u32 [0], 1;", "no map pointer"),
	PLANT("a store through a sum of numbers", "{ .reg .b64 %q; mov.u64 %q, %clock64; add.s64 %q, %q, 8; st.global.u32 [%q], 1; }", "no map pointer"),
	PLANT("a pointer on one path only", "{ .reg .b64 %q; .reg .pred %t; mov.u64 %q, %egpu_r1; setp.eq.u32 %t, %lane, 0; @%t mov.u64 %q, %rd1; st.global.u32 [%q], 1; }", "no map pointer"),
	PLANT("a pointer lost at a join", "{ .reg .b64 %q; .reg .pred %t; mov.u64 %q, %egpu_r1; setp.eq.u64 %t, %rd1, 0; @%t bra $j; mov.u64 %q, %rd1; $j: st.global.u32 [%q], 1; }", "no map pointer"),
	PLANT("a pointer lost in a loop", "{ .reg .b64 %q; .reg .pred %t; mov.u64 %q, %egpu_r1; $l: st.global.u32 [%q], 1; ld.global.u64 %q, [%q]; setp.eq.u64 %t, %q, 0; @%t bra $l; }", "no map pointer"),
	PLANT("a pointer masked", "{ .reg .b64 %q; and.b64 %q, %egpu_r1, -4096; st.global.u32 [%q], 1; }", "no map pointer"),
	PLANT("a clock used as a pointer", "{ .reg .b64 %q; ld.const.u64 %q, [__egpu_table+520]; st.global.u32 [%q], 1; }", "no map pointer"),
	PLANT("an odd entry", "{ .reg .b64 %q; ld.const.u64 %q, [__egpu_table+12]; st.global.u32 [%q], 1; }", "no map pointer"),
	PLANT("a generic store", "st.u32 [%rd1], 1;", "no map pointer"),
	PLANT("a local variable of the kernel", "st.local.u32 [%rd1], 1;", "no map pointer"),
	PLANT("a call with a bad pointer", "{ .param .b64 egpu_a; st.param.b64 [egpu_a], %rd1; call __egpu_helper, (egpu_a); }", "no map pointer"),
	PLANT("a call of nobody's function", "{ .param .b64 egpu_a; st.param.b64 [egpu_a], %rd1; call helper, (egpu_a); }", "no fragment's"),
	PLANT("an indirect call", "call %egpu_r1, (%egpu_r1), $p;", "call"),
	PLANT("a shared load", "ld.shared.u32 %egpu_r2, [%egpu_r2];", "shared memory"),
	PLANT("a shared store", "st.shared.u32 [%egpu_r2], 1;", "shared memory"),
	PLANT("a shared atomic", "red.shared.add.u32 [%egpu_r2], 1;", "shared memory"),
	PLANT("a shared::cluster store", "st.shared::cluster.u32 [%egpu_r2], 1;", "shared memory"),
	PLANT("a generic load from anywhere", "ld.u32 %egpu_r2, [%rd1];", "no map pointer"),
	PLANT("a shared variable", ".shared .u32 mine;", "spliced variable"),
	PLANT("a barrier", "bar.sync 0;", "does not know: 'bar.sync'"),
	PLANT("a barrier of a warp", "bar.warp.sync -1;", "activemask"),
	PLANT("a barrier of a warp with a stale mask", "{ .reg .pred %t; .reg .b32 %m; activemask.b32 %m; setp.eq.u32 %t, 0, 0; @%t bra $k; bar.warp.sync %m; $k: }", "activemask"),
	PLANT("a barrier of the block with a mask", "{ .reg .b32 %m; activemask.b32 %m; bar.sync %m; }", "does not know"),
	PLANT("an arrival", "mbarrier.arrive.shared.b64 _, [%egpu_r2];", "does not know"),
	PLANT("a way out", "exit;", "way out of the kernel: 'exit'"),
	PLANT("a return", "ret;", "way out"),
	PLANT("a return in some lanes", "@%egpu_p ret;", "way out"),
	PLANT("a trap", "trap;", "way out of the kernel"),
	PLANT("a sleep", "nanosleep.u32 101;", "too long"),
	PLANT("a sleep of unknown length", "{ .reg .b32 %m; activemask.b32 %m; nanosleep.u32 %m; }", "too long"),
	PLANT("a branch to the kernel", "bra $elsewhere;", "out of its scope"),
	PLANT("a branch behind the fragment", "bra $egpu_end;", "out of its scope"),
	PLANT("a jump through a table", "brx.idx %egpu_r2, $t;", "does not know"),
	PLANT("a copy", "cp.async.ca.shared.global [%egpu_r2], [%egpu_r1], 4;", "does not know"),
	PLANT("a vote of all lanes", "{ .reg .pred %t; .reg .b32 %q; setp.eq.u32 %t, 0, 0; vote.sync.ballot.b32 %q, %t, -1; }", "activemask"),
	PLANT("a vote with a constant mask", "{ .reg .pred %t; .reg .b32 %q, %m; setp.eq.u32 %t, 0, 0; mov.b32 %m, -1; vote.sync.ballot.b32 %q, %t, %m; }", "activemask"),
	PLANT("a branch into a scope beside it", "{ $in: } { .reg .pred %t; setp.eq.u32 %t, 0, 0; @%t bra $in; }", "out of its scope"),
	PLANT("a branch into a scope within", "{ .reg .pred %t; setp.eq.u32 %t, 0, 0; @%t bra $in; { $in: } }", "out of its scope"),
	PLANT("a pointer lost at the nearer of two labels",
		"{ .reg .b64 %q; .reg .pred %t; mov.u64 %q, %egpu_r1; { setp.eq.u64 %t, %rd1, 0; @%t bra $two; mov.u64 %q, %rd1; $two: st.global.u32 [%q], 1; } mov.u64 %q, %egpu_r1; $two: }",
		"no map pointer"),
	PLANT("a mask of another block", "{ .reg .pred %t; .reg .b32 %q, %m; activemask.b32 %m; setp.eq.u32 %t, 0, 0; @%t bra $k; vote.sync.ballot.b32 %q, %t, %m; $k: }", "activemask"),
	PLANT("a mask that was changed", "{ .reg .pred %t; .reg .b32 %q, %m; activemask.b32 %m; or.b32 %m, %m, 1; setp.eq.u32 %t, 0, 0; vote.sync.ballot.b32 %q, %t, %m; }", "activemask"),
	PLANT("a shuffle of all lanes", "shfl.sync.idx.b32 %egpu_r2, %egpu_r2, 0, 31, -1;", "activemask"),
	PLANT("a match of all lanes", "match.any.sync.b32 %egpu_r2, %egpu_r2, -1;", "activemask"),
	PLANT("a reduction of all lanes", "redux.sync.add.u32 %egpu_r2, %egpu_r2, -1;", "activemask"),
	PLANT("an election of all lanes", "elect.sync %egpu_r2|%egpu_p, -1;", "activemask"),
	PLANT("a guarded shuffle", "{ .reg .b32 %m; activemask.b32 %m; @%egpu_p shfl.sync.idx.b32 %egpu_r2, %egpu_r2, 0, 31, %m; }", "does not know"),
	PLANT("an unknown opcode", "frobnicate.u32 %egpu_r2, 1;", "does not know"),
	PLANT("a directive", ".pragma \"nounroll\";", "directive"),
	PLANT("a kernel's parameter written", "st.param.b64 [kernel_param_0], %egpu_r1;", "parameter of the kernel"),
	PLANT("another constant", "ld.const.u64 %egpu_r1, [coefficients];", "beside the table"),
	INPUT("inputs that write memory", "ld.const.u64 %egpu_xu0, [__egpu_table+8];\n\tst.global.u32 [%egpu_xu0], 1;", "inputs of a probe write"),
	INPUT("inputs that count", "ld.const.u64 %egpu_xu0, [__egpu_table+8];\n\tred.global.add.u32 [%egpu_xu0], 1;", "inputs of a probe write"),
	INPUT("inputs that write a register of the kernel", "mov.b32 %r1, 0;", "not its own: '%r1'"),
	INPUT("inputs that wait", "bar.sync 0;", "does not know"),
	INPUT("inputs that leave", "ret;", "way out"),
	PLANT("a fragment that writes what lanes hand over", "st.local.u64 [$egpu_lanes_address], 1;", "no map pointer"),
	PLANT("one that does by its address", "{ .reg .b64 %q; mov.u64 %q, $egpu_lanes_address; add.s64 %q, %q, 8; st.local.u64 [%q], 1; }", "no map pointer"),
	PLANT("one that counts there", "{ .reg .b64 %q; mov.u64 %q, $egpu_lanes_address; red.add.u64 [%q], 1; }", "no map pointer"),
	PLANT("one that hands it to a function", "{ .reg .b64 %q; mov.u64 %q, $egpu_lanes_address; .param .b64 egpu_a; st.param.b64 [egpu_a], %q; call __egpu_helper, (egpu_a); }", "no map pointer"),
	PLANT("one that takes what it holds for a map", "{ .reg .b64 %q; ld.local.u64 %q, [$egpu_lanes_address]; st.global.u64 [%q], 1; }", "no map pointer"),
	PLANT("one that reads there globally", "{ .reg .b64 %q; mov.u64 %q, $egpu_lanes_address; ld.u64 %q, [%q]; }", "no map pointer"),
	PLANT("one that reads what nobody hands over", "{ .reg .b64 %q; ld.local.u64 %q, [$egpu_lanes_taken]; }", "no map pointer"),
	INPUT("inputs that write it from without", "st.global.b32 [$egpu_lanes_address], 1;", "inputs of a probe write"),
	INPUT("inputs that write through what they observe", "st.local.b32 [%egpu_address], 1;", "inputs of a probe write"),
	INPUT("inputs with memory of their own", ".local .b64 mine;", "spliced variable"),
	{ "an array of another size", "", "$egpu_lanes_address[256]", "$egpu_lanes_address[512]", "not that of the kernel alone" },
	{ "an array of another name", "", ".local .align 8 .b8 $egpu_lanes_address[256];", ".local .align 8 .b8 $egpu_lanes_other[256];", "not that of the kernel alone" },
	{ "lanes that meet by a mask of all", "", "bar.warp.sync %egpu_came;", "bar.warp.sync -1;", "activemask" },
	{ "lanes that meet by a mask that was changed", "", "activemask.b32 %egpu_came;", "activemask.b32 %egpu_came;\n\tor.b32 %egpu_came, %egpu_came, 1;", "activemask" },
	{ "lanes that meet by a mask that is changed later", "", "\tbar.warp.sync %egpu_came;", "\tor.b32 %egpu_came, %egpu_came, 1;\n\tbar.warp.sync %egpu_came;", "activemask" },
	{ "lanes that meet where not all pass", "", "\tbar.warp.sync %egpu_came;\n", "\t@%egpu_xp1 bra $k;\n\tbar.warp.sync %egpu_came;\n$k:\n", "activemask" },
	{ "lanes that meet where not all pass, at the end", "", "\tmov.u32 %egpu_own, %lanemask_eq;", "\tmov.u32 %egpu_own, %lanemask_lt;", "activemask" },
	{ "lanes that go round a meeting, others than those that are away", "", "@%egpu_away bra", "@!%egpu_away bra", "activemask" },
	{ "all lanes that go round a meeting", "", "@%egpu_away bra", "bra", "activemask" },
	{ "lanes that go round a meeting by another register", "", "setp.eq.u32 %egpu_away, %egpu_own, 0;", "setp.eq.u32 %egpu_away, %egpu_came, 0;", "activemask" },
	{ "lanes that go round a meeting where they are there", "", "setp.eq.u32 %egpu_away, %egpu_own, 0;", "setp.ne.u32 %egpu_away, %egpu_own, 0;", "activemask" },
	{ "lanes that go round a meeting by another bit", "", "and.b32 %egpu_own, %egpu_own, %egpu_came;", "and.b32 %egpu_own, %egpu_came, %egpu_came;", "activemask" },
	{ "lanes that are handed over by a mask of all", "st.local.v2.b32 [$egpu_lanes_address+24]", "31, %egpu_xm", "31, -1", "activemask" },
	{ "a function's pointer lost", ".func __egpu_helper", "red.global.add.u64 [%r+1024]", "mov.u64 %r, %clock64;\n\tred.global.add.u64 [%r+1024]", "no map pointer" },
	{ "a function that waits", ".func __egpu_helper", "\tret;", "\tbar.sync 0;\n\tret;", "does not know" },
	{ "a function that ends the thread", ".func __egpu_helper", "\tret;", "\texit;", "way out of the kernel" },
	{ "an instruction outside the splices", "", "{ // egpu site 5", "mov.b32 %r1, 0;\n\t{ // egpu site 5", "not that of the kernel alone" },
	{ "a splice in the kernel's place", "", "// egpu site 5", "// not ours", "not that of the kernel alone" },
	{ "the kernel's text cut", ".visible .entry kernel", "\tld.param.u64 %rd1, [kernel_param_0];\n", "", "not that of the kernel alone" },
	{ "an item added", "", ".func __egpu_helper", ".global .u32 extra;\n.func __egpu_helper", "not that of the kernel alone" },
	{ "a splice over the kernel's own text", "", "st.relaxed.gpu.global.u32 [%egpu_s0], %r2;", "", "not that of the kernel alone" },
	{ "text that does not parse", "", "// egpu site 5", "// egpu site 5\n(", "does not parse" },
};

static const struct mutation launch[] = {
	{ "another argument in a call", "", "recurse, (%r1, %egpu_call)", "recurse, (%r1, %rd1)", "not that of the kernel alone" },
	{ "another parameter", "", ",\n\t.param .u64 __egpu_launch)", ",\n\t.param .u32 __egpu_launch)", "no valid launch id" },
	{ "a register of the launch id written", "", "ld.param.u64 %egpu_call, [__egpu_launch];", "ld.param.u64 %egpu_call, [kernel_param_0];", "not that of the kernel alone" },
};

int main(void)
{
	struct good g;
	all_gather = true;
	make_good(&g, "memory.ptx");
	for (size_t i = 0; i < sizeof(binding) / sizeof(binding[0]); i++)
		check(&binding[i], g.bound.ptx, prove_binding, &g);
	for (size_t i = 0; i < sizeof(splices) / sizeof(splices[0]); i++)
		check(&splices[i], g.spliced.ptx, prove_splice, &g);
	free_good(&g);
	make_good(&g, "calls.ptx");
	for (size_t i = 0; i < sizeof(launch) / sizeof(launch[0]); i++)
		check(&launch[i], g.spliced.ptx, prove_splice, &g);
	free_good(&g);
	return tap_done();
}
