/* instrument_cost.c - what is counted in a variant's text: loops, neighbours in shared memory, what a program's inputs decide, called
 * functions; and that an estimate follows the counts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "instrument/instrument.h"
#include "tap.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n.visible .const .align 8 .u64 __egpu_table[140];\n"
#define BEGIN ".visible .entry k(.param .u64 p)\n{\n\t.reg .pred %p<4>;\n\t.reg .b32 %r<8>;\n\t.reg .f32 %f<8>;\n\t.reg .b64 %d<4>;\n"
#define SITE "{ // egpu site 1\n\t.reg .b32 %egpu_space, %egpu_t<4>;\n\t.reg .pred %egpu_p<4>;\n\t.reg .b64 %egpu_r<4>;\n"

/* Where loops that do not say it go round 64 times. */
static struct instrument_work count(const char *what, const char *text)
{
	struct instrument_cost c;
	struct diag d = { 0 };
	int err = instrument_count(text, strlen(text), "k", &c, &d);
	ok(!err, "%s: is counted%s%s", what, err ? ": " : "", d.text);
	return instrument_work(&c, 64);
}

static bool is(double a, double b)
{
	return a > b - 1e-9 && a < b + 1e-9;
}

static void own(void)
{
	struct instrument_work c = count("straight", HEAD BEGIN
		"\tadd.u32 %r1, %r1, 1;\n\tmul.lo.u64 %d1, %d1, 3;\n\tld.global.v2.f32 {%f1, %f2}, [%d1];\n\tst.global.f32 [%d1], %f1;\n\tret;\n}\n");
	ok(is(c.insns, 1 + 4 + 1 + 1) && is(c.bytes, 12) && is(c.probe_insns, 0), "instructions and bytes");
	c = count("two loops", HEAD BEGIN
		"A:\n\tadd.u32 %r1, %r1, 1;\nB:\n\tadd.u32 %r2, %r2, 1;\n\tsetp.lt.u32 %p1, %r2, %r3;\n\t@%p1 bra B;\n"
		"\tsetp.lt.u32 %p2, %r1, %r3;\n\t@%p2 bra A;\n\tret;\n}\n");
	ok(is(c.insns, 64 * 3 + 64 * 64 * 3), "an inner loop goes round 64 times 64 times");
	c = count("shared memory", HEAD ".shared .align 16 .b8 s[1024];\n" BEGIN
		"\tld.shared.f32 %f1, [%r1];\n\tld.shared.f32 %f2, [%r1+4];\n\tld.shared.f32 %f3, [%r1+8];\n\tld.shared.f32 %f4, [%r1+12];\n"
		"\tld.shared.f32 %f5, [%r1+16];\n\tld.shared.f32 %f6, [%r2];\n\tret;\n}\n");
	ok(is(c.shared, 3) && is(c.bytes, 0), "neighbours go together, 16 bytes at most");
	c = count("what nothing reaches", HEAD BEGIN "\tret;\n\tadd.u32 %r1, %r1, 1;\n\tret;\n}\n");
	ok(is(c.insns, 0), "does not count");
}

/* A loop that says how often it goes round, and others that seem to. */
static void rounds(void)
{
	static const struct {
		const char *what, *begin, *step, *test;
		double n;
	} loops[] = {
		{ "up", "mov.u32 %r1, 4;", "add.s32 %r1, %r1, 2;", "setp.lt.u32 %p1, %r1, 30;", 13 },
		{ "down to zero", "mov.u32 %r1, 512;", "add.s32 %r1, %r1, -4;", "setp.ne.s32 %p1, %r1, 0;", 128 },
		{ "a step that is not known", "mov.u32 %r1, 4;", "add.s32 %r1, %r1, %r2;", "setp.lt.u32 %p1, %r1, 30;", 64 },
		{ "a beginning that is not", "mov.u32 %r1, %r3;", "add.s32 %r1, %r1, 2;", "setp.lt.u32 %p1, %r1, 30;", 64 },
		{ "an end that is not", "mov.u32 %r1, 4;", "add.s32 %r1, %r1, 2;", "setp.lt.u32 %p1, %r1, %r3;", 64 },
		{ "two steps", "mov.u32 %r1, 4;", "add.s32 %r1, %r1, 2;\n\tadd.s32 %r1, %r1, 1;", "setp.lt.u32 %p1, %r1, 30;", 64 },
		{ "a step for some", "mov.u32 %r1, 4;", "@%p2 add.s32 %r1, %r1, 2;", "setp.lt.u32 %p1, %r1, 30;", 64 },
		{ "away from its end", "mov.u32 %r1, 4;", "add.s32 %r1, %r1, -2;", "setp.lt.u32 %p1, %r1, 30;", 64 },
	};
	for (size_t i = 0; i < sizeof(loops) / sizeof(*loops); i++) {
		char text[1024];
		snprintf(text, sizeof(text), "%s\t%s\nL:\n\tld.global.f32 %%f1, [%%d1];\n\t%s\n\t%s\n\t@%%p1 bra L;\n\tret;\n}\n", HEAD BEGIN, loops[i].begin, loops[i].step, loops[i].test);
		struct instrument_work c = count(loops[i].what, text);
		ok(is(c.bytes, 4 * loops[i].n), "goes round %g times", c.bytes / 4);
	}
}

static void memory(void)
{
	struct instrument_work c = count("addresses", HEAD BEGIN
		"\tld.global.u64 %d2, [%d1];\n\tadd.s64 %d3, %d2, %d1;\n\tld.global.f32 %f1, [%d3];\n\tatom.global.add.u32 %r1, [%d1], 1;\n"
		"\tmul.wide.u32 %d3, %r1, 4;\n\tst.global.v2.f32 [%d3], {%f1, %f1};\n\tld.shared.u32 %r2, [%r1];\n\tret;\n}\n");
	ok(is(c.bytes, 8 + 4) && is(c.gathered, 4 + 8), "what is read where memory says so is told apart");
	ok(is(c.atomics, 1), "and atomics are");
}

static void programs(void)
{
	struct instrument_work c = count("a program", HEAD BEGIN "L:\n" SITE
		"\tadd.u32 %egpu_t1, %egpu_t2, %egpu_t3;\n\tmul.lo.u32 %egpu_t2, %egpu_t2, 3;\n\tred.global.add.u32 [%egpu_r1], %egpu_t1;\n}\n\tsetp.lt.u32 %p1, %r1, 5;\n\t@%p1 bra L;\n\tret;\n}\n");
	ok(is(c.probe_insns, 64 * (1 + 1)) && is(c.adds, 64) && is(c.insns, 64 * 2), "as often as the loop that it is in, without what nothing uses");

	static const char asks[] = "\tsetp.ne.u32 %egpu_p1, %egpu_space, 1;\n\t@%egpu_p1 bra $egpu_f1;\n\tred.global.add.u64 [%egpu_r1], 1;\n"
				   "\tld.volatile.global.u32 %egpu_t1, [%egpu_r1];\n$egpu_f1:\n}\n\tret;\n}\n";
	char text[4096];
	snprintf(text, sizeof(text), "%s\tmov.b32 %%egpu_space, 1;\n%s", HEAD BEGIN SITE, asks);
	c = count("a question that is answered with yes", text);
	ok(is(c.adds, 1) && is(c.loads, 1) && c.probe_insns < 4, "costs what it does");
	snprintf(text, sizeof(text), "%s\tmov.b32 %%egpu_space, 2;\n%s", HEAD BEGIN SITE, asks);
	c = count("with no", text);
	ok(is(c.adds, 0) && is(c.loads, 0) && is(c.probe_insns, 0), "nothing");
	c = count("an input", HEAD BEGIN SITE "\tmov.b32 %egpu_space, 2;\n\tmatch.any.sync.b32 %egpu_t3, %egpu_t1, -1;\n\t@%egpu_p3 bra $egpu_w1;\n{\n"
		"\t@%egpu_p2 bra $egpu_f2;\n\tred.global.add.u64 [%egpu_r1], 1;\n$egpu_f2:\n\tsetp.ne.u32 %egpu_p1, %egpu_space, 1;\n\t@%egpu_p1 bra $egpu_f1;\n"
		"\tred.global.add.u32 [%egpu_r1], %egpu_t3;\n$egpu_f1:\n}\n$egpu_w1:\n}\n\tret;\n}\n");
	ok(is(c.adds, 1) && is(c.exchanges, 0), "is known behind a join as well, and what only the way not taken asks for is left out");
	snprintf(text, sizeof(text), "%s\tmov.b32 %%egpu_space, %%r1;\n%s", HEAD BEGIN SITE, asks);
	c = count("one that only the device answers", text);
	ok(is(c.adds, 1) && is(c.probe_insns, 1 + 1 + 2 + 1), "both");
	c = count("one thread for its block", HEAD BEGIN SITE "\tsetp.ne.u32 %egpu_p1, %egpu_t1, 0;\n\t@%egpu_p1 bra $egpu_others;\n"
		"\tred.global.add.u64 [%egpu_r1], 1;\n$egpu_others:\n}\n\tret;\n}\n");
	ok(c.adds > 0 && c.adds < 0.5, "is a part of a warp's");
}

static void calls(void)
{
	struct instrument_work c = count("functions", HEAD
		".func __egpu_f(.param .b64 a)\n{\n\t.reg .b64 %d<3>;\n\tld.param.u64 %d1, [a];\n\tatom.global.add.u64 %d2, [%d1], 1;\n\tret;\n}\n"
		".func g(.param .b64 a)\n{\n\t.reg .b32 %r<3>;\n" SITE "\tcall __egpu_f, (%egpu_r1);\n}\n\tadd.u32 %r1, %r1, 1;\n\tret;\n}\n" BEGIN
		"\tcall g, (%d1);\n\tcall g, (%d1);\n\tret;\n}\n");
	ok(is(c.atoms, 2) && c.insns >= 2 && c.insns < 8, "count at each call, also those of programs");
	c = count("one that calls itself", HEAD ".func r(.param .b32 a)\n{\n\t.reg .b32 %r<3>;\n\tadd.u32 %r1, %r1, 1;\n\tcall r, (%r1);\n\tret;\n}\n" BEGIN
		"\tcall r, (%r1);\n\tret;\n}\n");
	ok(c.insns >= 1 && c.insns < 10, "is counted once");
}

static void estimates(void)
{
	struct instrument_cost cost = { .in = { { .insns = 100, .bytes = 12 } } };
	struct instrument_work *c = &cost.in[0];
	struct instrument_estimate none, some, more;
	instrument_estimate(&cost, &none);
	c->probe_insns = 50;
	c->adds = 3;
	instrument_estimate(&cost, &some);
	c->atoms = 100;
	instrument_estimate(&cost, &more);
	ok(is(none.slowdown, 1) && is(none.least, 1) && is(none.most, 1), "nothing costs nothing");
	ok(some.slowdown > 1 && some.least > 1 && some.least < some.slowdown && some.most > some.slowdown, "something has a range");
	ok(more.slowdown > some.slowdown, "more costs more");
	struct instrument_cost loop = { .in = { { .insns = 100 }, { .insns = 100, .bytes = 4, .probe_insns = 1 } } }, *outside = &cost;
	instrument_estimate(&loop, &some);
	loop.in[1].looped = 1;
	instrument_estimate(&loop, &more);
	ok(more.most > some.most + 0.2 && more.slowdown == some.slowdown, "a loop may lose more than what stands in it");
	*outside = (struct instrument_cost){ .in = { { .insns = 10, .probe_insns = 10, .adds = 10 }, { .insns = 100 } } };
	instrument_estimate(outside, &some);
	ok(some.slowdown < 1.1 && some.most > 1.3, "a loop beside the program may go round a few times only");
	*outside = (struct instrument_cost){ .in = { { .insns = 10, .bytes = 40, .probe_insns = 10, .adds = 10 } } };
	instrument_estimate(outside, &some);
	outside->in[0].gathered = 40;
	outside->in[0].bytes = 0;
	instrument_estimate(outside, &more);
	ok(more.slowdown < some.slowdown, "addresses out of memory make a kernel that is slow itself");
	*c = (struct instrument_work){ .probe_insns = 10 };
	instrument_estimate(&cost, &some);
	ok(some.slowdown > 1 && some.most < 1e6, "a kernel that does nothing can be divided by");
}

int main(void)
{
	struct instrument_cost c;
	struct diag d = { 0 };
	own();
	rounds();
	memory();
	programs();
	calls();
	estimates();
	ok(instrument_count(HEAD, strlen(HEAD), "k", &c, &d) == -ENOENT && instrument_count("nonsense", 8, "k", &c, &d) < 0, "no kernel, no text: errors");
	return tap_done();
}
