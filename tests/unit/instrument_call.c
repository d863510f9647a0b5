/* instrument_call.c - a large program at many sites is there once, as a function that they call: when, with what arguments, not where the site
 * leaves it nothing to do, and never beside instructions that several warps execute together. That it does what it does inline is instrument_run.c's, and
 * of records instrument_batch.c's.
 */
#include "instrument.h"
#include "instrument/readback.h"

enum { SITES = 81 };
#define HEAD ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry kernel(.param .u64 data)\n.reqntid 128, 1, 1\n{\n"

static struct arena *arena;
static struct instrument_result result, bound;

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;
	for (const char *p = text; (p = strstr(p, what)); p += strlen(what))
		n++;
	return n;
}

/* A kernel of so many accesses, each in a block of its own; every third of shared memory. */
static const char *kernel_of(unsigned sites, const char *first)
{
	struct buf b = { 0 };
	buf_printf(&b, HEAD "\t.reg .b32 %%r<9>;\n\t.reg .b64 %%rd<9>;\n\t.reg .f32 %%f<9>;\n\t.reg .pred %%p<4>;\n\t.shared .align 4 .b8 tile[4096];\n"
		"\tld.param.u64 %%rd1, [data];\n\tmov.u32 %%r1, %%tid.x;\n\tmov.u32 %%r2, tile;\n%s", first);
	for (unsigned i = 0; i < sites; i++) {
		buf_printf(&b, "\tand.b32 %%r3, %%r1, %u;\n\tsetp.eq.u32 %%p1, %%r3, 0;\n\t@%%p1 bra $next%u;\n", 1u << i % 9, i);
		if (i % 3 == 2)
			buf_printf(&b, "\tst.shared.u32 [%%r2+%u], %%r1;\n", 4 * i);
		else if (i % 3)
			buf_printf(&b, "\tst.global.u8 [%%rd1+%u], %%r1;\n", i);
		else
			buf_printf(&b, "\tld.global.u32 %%r4, [%%rd1+%u];\n\tadd.u32 %%r1, %%r1, %%r4;\n", 4 * i);
		buf_printf(&b, "$next%u:\n", i);
	}
	buf_puts(&b, "\tst.global.u32 [%rd1], %r1;\n\tret;\n}\n");
	const char *text = arena_strdup(arena, b.data);
	buf_free(&b);
	return text;
}

/* "" after it was said why. */
static const char *instrumented(const char *text, const struct ebpf_fragment *const *list, uint32_t n)
{
	struct ptx_module *m = parse_text(text);
	struct instrument_request req = { .module = m, .kernel = "kernel", .fragments = list, .n_fragments = n, .first_site = 7 };
	struct instrument_request none = { .module = m, .kernel = "kernel" };
	struct diag d = { 0 };
	bool good = m && !instrument_kernel(arena, &none, &bound, &d) && !instrument_kernel(arena, &req, &result, &d);
	if (!good)
		printf("# %s\n", d.text);
	ptx_module_free(m);
	return good ? result.ptx : "";
}

static const char *with(const char *text, const struct ebpf_fragment *f)
{
	const struct ebpf_fragment *list[] = { f };
	return instrumented(text, list, 1);
}

/* So many instructions, in a chain that nothing can shorten. */
static struct ebpf_fragment program_of(unsigned insns)
{
	struct buf b = { 0 };
	buf_puts(&b, "{\n\t.reg .b64 %egpu_r<3>;\n\tld.const.u64 %egpu_r1, [__egpu_table];\n\tcvt.u64.u32 %egpu_r2, %egpu_site;\n\tadd.s64 %egpu_r2, %egpu_r2, %egpu_address;\n");
	for (unsigned i = 0; i < insns; i++)
		buf_printf(&b, "\tmad.lo.s64 %%egpu_r2, %%egpu_r2, %%egpu_r2, %u;\n", i + 3);
	buf_puts(&b, "\tred.global.xor.b64 [%egpu_r1+1024], %egpu_r2;\n}\n");
	struct ebpf_fragment f = { .name = "chain", .point = EBPF_POINT_MEM, .fields = BIT(SITE) | BIT(ADDRESS) | BIT(SPACE) | BIT(SM) | BIT(KERNEL), .body = arena_strdup(arena, b.data) };
	buf_free(&b);
	return f;
}

/* -- when -- */

static void test_when(void)
{
	const char *many = kernel_of(SITES, ""), *few = kernel_of(8, "");
	struct ebpf_fragment large = program_of(330), small = program_of(4);
	unsigned apart = (unsigned)strlen(with(few, &large));
	const char *ptx = with(many, &large);
	is_int(count(ptx, "\n.func __egpu_program0(") + count(ptx, "\t.func "), 1, "a large program at many sites is there once");
	is_int(count(ptx, "call __egpu_program0, ("), SITES + 1, "and all of them call it");
	is_int(count(ptx, "mad.lo.s64 %egpu_r2, %egpu_r2, %egpu_r2, 332;"), 1, "the text stands nowhere else");
	is_int(result.n_probed, SITES + 1, "they are probed");
	ok(strlen(ptx) < 16 * apart, "%zu bytes, of a kernel that takes %u with 9 sites", strlen(ptx), apart);
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
	is_int(count(ptx, "bar.warp.sync %egpu_came;") + count(ptx, "call __egpu_together, (%egpu_came);"), SITES + 1, "lanes that a call may have parted meet");
	ptx = with(few, &large);
	ok(*ptx && !strstr(ptx, "__egpu_program"), "at few sites it stands inline");
	ptx = with(many, &small);
	ok(*ptx && !strstr(ptx, "__egpu_program"), "a small one too");
	small = program_of(60);
	ptx = with(kernel_of(4 * SITES, ""), &small);
	ok(*ptx && !strstr(ptx, "__egpu_program"), "however many there are");
}

/* What a thread knows anywhere it asks in the function; the others are arguments. */
static void test_arguments(void)
{
	struct ebpf_fragment f = program_of(330);
	const char *ptx = with(kernel_of(SITES, ""), &f);
	ok(strstr(ptx, ".func __egpu_program0(.param .b32 a0, .param .b64 a1, .param .b32 a2)\n") != NULL, "site, address and space are arguments");
	is_int(count(ptx, "mov.u32 %egpu_sm, %smid;") + count(ptx, "mov.b32 %egpu_kernel, 0;"), 2, "the multiprocessor and the kernel are not");
	f.fields = 0;
	f.body = "";
	struct ebpf_fragment plain = program_of(0);
	plain.fields = 0;
	plain.body = "{\n\t.reg .b64 %egpu_r1;\n\tld.const.u64 %egpu_r1, [__egpu_table];\n\tred.global.add.u64 [%egpu_r1+1024], 1;\n}\n";
	f = make_large(arena, &plain);
	ptx = with(kernel_of(9, ""), &f);
	ok(strstr(ptx, ".func __egpu_program0\n{") && count(ptx, "call __egpu_program0;") == 10, "without arguments");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
}

/* Conditions that the site answers. */
static void test_idle(void)
{
	struct ebpf_fragment f = program_of(500);
	struct ebpf_when global = { EBPF_FIELD_SPACE, EBPF_TEST_EQ, 1 }, both[] = { global, { EBPF_FIELD_BYTES, EBPF_TEST_GT, 1 } };
	f.when = &global;
	f.n_when = 1;
	const char *many = kernel_of(SITES, ""), *ptx = with(many, &f);
	is_int(count(ptx, "call __egpu_program0"), SITES / 3 * 2 + 1, "no call where the memory is another");
	is_int(count(ptx, "{ // egpu site"), SITES / 3 * 2 + 1, "nothing at all");
	is_int(result.n_probed, SITES + 1, "which is as much as it would do there");
	f.when = both;
	f.n_when = 2;
	ptx = with(many, &f);
	ok(*ptx && !strstr(ptx, "__egpu_program"), "with fewer sites to do something at it stands inline");
	f = program_of(1000);
	f.when = both;
	f.n_when = 2;
	is_int(count(with(many, &f), "call __egpu_program0"), SITES / 3 + 1, "or is called there alone");
}

/* -- where not -- */

static void test_not(void)
{
	struct ebpf_fragment large = program_of(330), gathers = make_fragment(arena, EBPF_POINT_STORE, true, BIT(SITE)), entry = program_of(0);
	const char *joint[] = { "\tsetmaxnreg.inc.sync.aligned.u32 240;\n",
		"\twgmma.fence.sync.aligned;\n\twgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;\n" };
	for (int i = 0; i < 2; i++) {
		const char *ptx = with(kernel_of(SITES, joint[i]), &large);
		ok(*ptx && !strstr(ptx, "__egpu_program") && count(ptx, "egpu_r2, 332;") == SITES + 1, "beside %.*s: inline", (int)strcspn(joint[i], ".") - 1, joint[i] + 1);
	}
	ok(gathers.gathered != 0, "a program that reads what all lanes have,");
	gathers = make_large(arena, &gathers);
	const char *ptx = with(kernel_of(6, ""), &gathers);
	ok(*ptx && !strstr(ptx, "__egpu_program"), "inline");
	entry.point = EBPF_POINT_ENTRY;
	entry.fields = BIT(SITE);
	entry.body = "{\n\t.reg .b64 %egpu_r1;\n\tld.const.u64 %egpu_r1, [__egpu_table];\n\tred.global.add.u32 [%egpu_r1+1024], %egpu_site;\n}\n";
	entry = make_large(arena, &entry);
	ptx = with(kernel_of(6, ""), &entry);
	ok(*ptx && !strstr(ptx, "__egpu_program"), "at one site: inline");
}

/* -- beside others -- */

/* In chosen warps: the version without programs calls nothing, and the weight is handed on. */
static void test_sampled(void)
{
	struct ebpf_fragment f = program_of(330), beside = make_fragment(arena, EBPF_POINT_MEM, false, BIT(SITE) | BIT(BYTES));
	f.sampled = beside.sampled = true;
	f.slot = true;
	const struct ebpf_fragment *list[] = { &f, &beside };
	const char *ptx = instrumented(kernel_of(SITES, ""), list, 2), *plain = strstr(ptx, "{ // egpu plain\n"), *probed = plain ? strstr(plain, "$egpu_probed:") : NULL;
	ok(probed && count(plain, "call __egpu_program0") == SITES + 1 && count(probed, "call __egpu_program0") == SITES + 1, "two versions, and one of them calls");
	ok(strstr(ptx, "\tld.param.b32 %egpu_slot, [a3];\n") && strstr(ptx, "\tld.param.b32 %egpu_weight, [a4];\n"), "with the weight and the multiprocessor's replica");
	is_int(count(ptx, "call __egpu_helper"), SITES + 1, "the other stands inline and calls its own");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
}

/* One program twice is one function. */
static void test_twice(void)
{
	struct ebpf_fragment f = program_of(330), warp = program_of(320);
	warp.warp = true;
	warp.fields = BIT(SITE) | BIT(MEM_MASK) | BIT(LANE);
	warp.body = arena_printf(arena, "%s%s", "{\n\t.reg .b64 %egpu_address;\n\tcvt.u64.u32 %egpu_address, %egpu_mem_mask;\n", warp.body + 2);
	const struct ebpf_fragment *list[] = { &f, &warp, &f };
	const char *ptx = instrumented(kernel_of(SITES, ""), list, 3);
	is_int(count(ptx, "\n.func __egpu_program"), 2, "two functions for three programs, of which one is another again");
	ok(count(ptx, "call __egpu_program0") == 2 * (SITES + 1) && count(ptx, "call __egpu_program1") == SITES + 1, "that are called as often");
	ok(strstr(ptx, "@%egpu_xe bra $egpu_w1_1;\n{\n\t.param .b32 egpu_arg0;") != NULL, "that of a warp by the elected lane");
	ok(!have_ptxas() || ptxas_accepts(ptx, "sm_90a"), "ptxas takes it");
}

/* Neither is much; together they are, and the longer is called. */
static void test_together(void)
{
	struct ebpf_fragment one = program_of(200), two = program_of(250);
	const struct ebpf_fragment *list[] = { &one, &two };
	const char *many = kernel_of(SITES, ""), *ptx = with(many, &two);
	ok(*ptx && !strstr(ptx, "__egpu_program"), "what alone is inline");
	ptx = instrumented(many, list, 2);
	is_int(count(ptx, "call __egpu_program0"), SITES + 1, "is called beside another,");
	is_int(count(ptx, "egpu_r2, 252;"), 1, "being the longer;");
	is_int(count(ptx, "egpu_r2, 202;"), SITES + 1 + 1, "the other stays");
}

/* -- the proof -- */

static void test_proof(void)
{
	struct ebpf_fragment f = program_of(330);
	const char *ptx = with(kernel_of(SITES, ""), &f), *kernel = bound.ptx;
	static const struct {
		const char *what, *from, *to;
	} wrong[] = {
		{ "a function that writes anywhere", "red.global.xor.b64 [%egpu_r1+1024]", "red.global.xor.b64 [%egpu_r2]" },
		{ "one that writes where an argument says", "red.global.xor.b64 [%egpu_r1+1024]", "red.global.xor.b64 [%egpu_address]" },
		{ "one that waits", "\n\tret;\n", "\n\tbar.sync 0;\n\tret;\n" },
		{ "one that leaves the kernel", "\n\tret;\n", "\n\texit;\n" },
		{ "a call of another", "call __egpu_program0, (", "call __egpu_program1, (" },
		{ "a function of another name", ".func __egpu_program0(", ".func egpu_program0(" },
	};
	is_int(readback_splice(kernel, ptx, false, NULL), 0, "the variant holds");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *at = strstr(ptx, wrong[i].from), *bad = at ? planted_at(arena, ptx, at, wrong[i].from, wrong[i].to) : NULL;
		ok(bad && readback_splice(kernel, bad, false, NULL) == -EOPNOTSUPP, "not with %s", wrong[i].what);
	}
}

int main(void)
{
	arena = arena_new();
	test_when();
	test_arguments();
	test_idle();
	test_not();
	test_sampled();
	test_twice();
	test_together();
	test_proof();
	arena_free(arena);
	return tap_done();
}
