/* Functions that helpers call: what is accepted, how long a run is promised to be, and each refusal. */
#include "bpf/helpers.h"
#include "verifier_case.h"

#define FUNC(dst, ahead) I(BPF_LD | BPF_IMM | BPF_DW, dst, BPF_PSEUDO_FUNC, 0, ahead), I(0, 0, 0, 0, 0)
#define HELPER(number) I(BPF_JMP | BPF_CALL, 0, 0, 0, number)
#define LOOP() HELPER(EBPF_FUNC_loop)
#define EACH() HELPER(EBPF_FUNC_for_each_map_elem)
/* bpf_loop(r1, the function behind this, fp - 8, 0). */
#define LOOP_OVER_NEXT() FUNC(2, 6), MOV(3, 10), ALUI(BPF_ADD, 3, -8), MOVI(4, 0), LOOP(), EXIT()

static void test_loops(void)
{
	accepted("a sum in the caller's frame", STI(BPF_DW, 10, -8, 0), MOVI(1, 10), LOOP_OVER_NEXT(), LD(BPF_DW, 4, 2, 0), ALU(BPF_ADD, 4, 1),
		ST(BPF_DW, 2, 0, 4), MOVI(0, 0), EXIT());
	is_int(case_result.max_run_insns, 8 + 8 + 10 * 5, "ten calls of five instructions");
	accepted("no call at all", STI(BPF_DW, 10, -8, 0), MOVI(1, 0), LOOP_OVER_NEXT(), MOVI(0, 1), EXIT());
	is_int(case_result.max_run_insns, 8 + 8, "costs the helper only");
	accepted("an index that is checked", STI(BPF_DW, 10, -8, 0), MOVI(1, 100), LOOP_OVER_NEXT(), GLOBAL(3, DATA, 0), JMPI(BPF_JGE, 1, 64, 3),
		ALU(BPF_ADD, 3, 1), LD(BPF_B, 0, 3, 0), ALUI(BPF_AND, 0, 1), MOVI(0, 0), EXIT());
	accepted("an index that the function counts itself", STI(BPF_DW, 10, -8, 0), MOVI(1, 100), LOOP_OVER_NEXT(), LD(BPF_DW, 4, 2, 0), JMPI(BPF_JGE, 4, 60, 6),
		GLOBAL(3, DATA, 0), ALU(BPF_ADD, 3, 4), LD(BPF_B, 0, 3, 0), ALUI(BPF_ADD, 4, 1), ST(BPF_DW, 2, 0, 4), MOVI(0, 0), EXIT());
	accepted("one loop in another", STI(BPF_DW, 10, -8, 0), MOVI(1, 10), LOOP_OVER_NEXT(), MOVI(1, 5), FUNC(2, 6), MOVI(3, 0), MOVI(4, 0), LOOP(), MOVI(0, 0), EXIT(),
		MOVI(0, 0), EXIT());
	is_int(case_result.max_run_insns, 8 + 8 + 10 * (7 + 8 + 5 * 2), "are multiplied");
}

/* Branches in the functions make states that later calls meet. */
static void test_two_loops(void)
{
#define BRANCHY(k) LD(BPF_DW, 4, 2, 0), ALU(BPF_ADD, 4, 1), JMPI(BPF_JSET, 1, 1, 1), ALUI(BPF_ADD, 4, k), JMPI(BPF_JSET, 1, 2, 1), ALUI(BPF_ADD, 4, k), \
	JMPI(BPF_JSET, 1, 4, 1), ALUI(BPF_ADD, 4, k), ST(BPF_DW, 2, 0, 4), MOVI(0, 0), EXIT()
	accepted("one loop after another, with branches", STI(BPF_DW, 10, -8, 0), MOVI(1, 10), FUNC(2, 13), MOV(3, 10), ALUI(BPF_ADD, 3, -8), MOVI(4, 0), LOOP(),
		MOVI(1, 20), FUNC(2, 17), MOV(3, 10), ALUI(BPF_ADD, 3, -8), MOVI(4, 0), LOOP(), EXIT(), BRANCHY(1), BRANCHY(2));
	ok(case_result.max_run_insns >= 14 + 16 + 30 * 11 && case_result.max_run_insns < 14 + 16 + 30 * 11 + 30, "is as long as both (%llu)",
		(unsigned long long)case_result.max_run_insns);
}

static void test_elements(void)
{
	accepted("every element of an array", MAP(1, ARR), FUNC(2, 5), MOVI(3, 0), MOVI(4, 0), EACH(), EXIT(), LD(BPF_W, 0, 2, 0), LD(BPF_DW, 0, 3, 40), MOVI(0, 0), EXIT());
	is_int(case_result.max_run_insns, 6 + 8 + 4 * 4, "four calls");
	accepted("every element of a hash", MAP(1, HASH), FUNC(2, 5), MOVI(3, 0), MOVI(4, 0), EACH(), EXIT(), LD(BPF_DW, 0, 2, 0), LD(BPF_DW, 0, 3, 8), MOVI(0, 0), EXIT());
	is_int(case_result.max_run_insns, 6 + 8 + 16 * 4 + 32 * EBPF_SLOT_COST, "sixteen calls, and a look at 32 slots");
	case_options.max_run_insns = 100;
	refused("length", 6, "bpf_for_each_map_elem looks at the 32 slots of a hash of 16 entries, 4 instructions each, and a run has at most 100; make the map smaller, "
		"or raise the limit with --max-insns", "too many slots", MAP(1, HASH), FUNC(2, 5), MOVI(3, 0), MOVI(4, 0), EACH(), EXIT(), MOVI(0, 0), EXIT());
	case_options.max_run_insns = 0;
	refused("oob", 8, "R3 min value is outside of the allowed memory range: off=48 size=8 of 48 bytes of a value of arr",
		"past an element", MAP(1, ARR), FUNC(2, 5), MOVI(3, 0), MOVI(4, 0), EACH(), EXIT(), LD(BPF_DW, 0, 3, 48), MOVI(0, 0), EXIT());
	refused("map", 8, "write to change key R2 not allowed; keys are read-only", "a key", MAP(1, ARR), FUNC(2, 5), MOVI(3, 0), MOVI(4, 0), EACH(), EXIT(),
		STI(BPF_W, 2, 0, 1), MOVI(0, 0), EXIT());
	refused("map", 6, "cannot pass map_type 27 into func bpf_for_each_map_elem#164", "elements of a ring", MAP(1, RING), FUNC(2, 5), MOVI(3, 0), MOVI(4, 0), EACH(), EXIT(),
		MOVI(0, 0), EXIT());
}

static void test_refusals(void)
{
	refused("loop", 10, "At callback return the register R0 has smin=0 smax=4294967295 should have been in [0, 1]; return 0 to go on or 1 to stop",
		"any result", STI(BPF_DW, 10, -8, 0), MOVI(1, 10), LOOP_OVER_NEXT(), MOV32(0, 1), EXIT());
	refused("uninit", 9, "R0 !read_ok; return 0 to go on or 1 to stop on every path", "no result", STI(BPF_DW, 10, -8, 0), MOVI(1, 10), LOOP_OVER_NEXT(), EXIT());
	refused("type", 6, "R2 type=scalar expected=func", "no function", MOVI(1, 3), MOVI(2, 9), MOVI(3, 0), MOVI(4, 0), MOVI(5, 0), MOVI(0, 0), LOOP(), EXIT());
	refused("ref", 15, "Unreleased reference id=1 alloc_insn=13 in callback; submit or discard it in the function that reserves it", "a record kept",
		STI(BPF_DW, 10, -8, 0), MOVI(1, 10), LOOP_OVER_NEXT(), MAP(1, RING), MOVI(2, 8), MOVI(3, 0), CALL(ringbuf_reserve), MOVI(0, 0), EXIT());
	is_int(case_check(EBPF_CONTEXT_MEM, 0, (struct bpf_insn[]){ LD(BPF_W, 1, 1, 136), LOOP_OVER_NEXT(), MOVI(0, 0), EXIT() }, 10), -E2BIG, "a count without a bound");
	is_str(case_result.tag, "length", "is too long");
	is_int(case_check(EBPF_CONTEXT_MEM, 0,
		       (struct bpf_insn[]){ MOVI(1, 1), FUNC(2, 6), MOVI(3, 0), MOVI(4, 0), LOOP(), JMPI(BPF_JNE, 0, 99, -7), EXIT(), MOVI(0, 0), EXIT() }, 10) < 0, 1,
		"an endless loop around a helper's");
}

/* -- what is uniform -- */

static bool uniform(uint32_t insn, uint32_t reg)
{
	return case_result.facts[insn].uniform >> reg & 1;
}

static void test_uniform(void)
{
	accepted("fields", LD(BPF_W, 2, 1, 40), LD(BPF_W, 3, 1, 4), MOV(4, 2), ALU(BPF_ADD, 4, 3), MOVI(0, 0), EXIT());
	ok(uniform(1, 2) && uniform(1, 1), "block.x is uniform, and so is the context");
	ok(!uniform(2, 3) && uniform(3, 4) && !uniform(4, 4), "lane is not, nor a sum with it");
	accepted("a way by block", LD(BPF_W, 2, 1, 40), MOVI(3, 1), JMPI(BPF_JEQ, 2, 7, 1), MOVI(3, 2), MOV(0, 3), EXIT());
	ok(uniform(4, 3) && case_result.facts[3].converged, "all lanes go it");
	accepted("a way by lane", LD(BPF_W, 2, 1, 4), MOVI(3, 1), MOVI(4, 1), JMPI(BPF_JEQ, 2, 7, 1), MOVI(3, 2), MOV(0, 3), EXIT());
	ok(!uniform(5, 3) && uniform(5, 4), "what it sets varies where lanes meet; the rest does not");
	ok(!case_result.facts[4].converged && case_result.facts[5].converged, "only some lanes go it");
	accepted("a global's address", LD(BPF_W, 2, 1, 4), GLOBAL(3, DATA, 8), ATOMIC(BPF_DW, BPF_ADD, 3, 0, 2), LD(BPF_DW, 4, 3, 0), MOVI(0, 0), EXIT());
	ok(uniform(3, 3) && !uniform(3, 2) && !uniform(5, 4), "is uniform; what is there varies");
	accepted("constants", GLOBAL(3, RO, 0), LD(BPF_W, 4, 3, 0), MOVI(0, 0), EXIT());
	ok(uniform(3, 4), "of a frozen map are uniform");
	accepted("a slot", LD(BPF_W, 2, 1, 4), LD(BPF_W, 3, 1, 40), ST(BPF_DW, 10, -8, 2), ST(BPF_DW, 10, -16, 3), LD(BPF_DW, 4, 10, -8), LD(BPF_DW, 5, 10, -16),
		MOVI(0, 0), EXIT());
	ok(!uniform(6, 4) && uniform(6, 5), "keeps what was stored");
	accepted("passes by lane", LD(BPF_W, 2, 1, 4), ALUI(BPF_AND, 2, 3), MOVI(3, 0), ALUI(BPF_ADD, 3, 1), JMP(BPF_JLT, 3, 2, -2), MOV(0, 3), EXIT());
	ok(!uniform(5, 3), "end at different times");
	accepted("an argument", LD(BPF_W, 1, 1, 4), CALLF(1), EXIT(), MOV(0, 1), EXIT());
	ok(!uniform(3, 1) && !uniform(2, 0), "varies, and the result");
}

/* Where some lanes go round a cycle before others have left its body, they meet in different passes. */
static void test_passes(void)
{
	accepted("a way back by lane", LD(BPF_W, 2, 1, 4), LD(BPF_W, 5, 1, 40), MOVI(3, 0), JMPI(BPF_JA, 0, 0, 2), ALUI(BPF_ADD, 3, 1), JMPI(BPF_JEQ, 3, 3, 3),
		JMPI(BPF_JSET, 2, 1, -3), MOVI(4, 0), JMPI(BPF_JA, 0, 0, -5), MOVI(0, 0), EXIT());
	ok(!uniform(7, 3) && uniform(7, 5), "what the passes set varies in the body; the rest does not");
	accepted("a way back by block", LD(BPF_W, 2, 1, 40), LD(BPF_W, 5, 1, 40), MOVI(3, 0), JMPI(BPF_JA, 0, 0, 2), ALUI(BPF_ADD, 3, 1),
		JMPI(BPF_JEQ, 3, 3, 3), JMPI(BPF_JSET, 2, 1, -3), MOVI(4, 0), JMPI(BPF_JA, 0, 0, -5), MOVI(0, 0), EXIT());
	ok(uniform(7, 3) && uniform(9, 3), "all lanes go it: nothing varies");
	accepted("a wait in each pass", MOVI(6, 0), STI(BPF_DW, 10, -8, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), MAP(1, HASH), CALL(map_delete_elem),
		ALUI(BPF_ADD, 6, 1), JMPI(BPF_JLT, 6, 3, -8), MOVI(0, 0), EXIT());
	ok(!uniform(7, 6), "lanes come back from it one after the other");
	accepted("a count in each pass", MOVI(6, 0), GLOBAL(3, DATA, 8), MOVI(2, 1), ATOMIC(BPF_DW, BPF_ADD, 3, 0, 2), ALUI(BPF_ADD, 6, 1),
		JMPI(BPF_JLT, 6, 3, -4), MOVI(0, 0), EXIT());
	ok(!uniform(5, 6) && uniform(4, 3), "one lane makes it for all and may be late: the pass varies, the place does not");
	accepted("a look-up in an array in each pass", MOVI(6, 0), STI(BPF_W, 10, -8, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), MAP(1, ARR), CALL(map_lookup_elem),
		ALUI(BPF_ADD, 6, 1), JMPI(BPF_JLT, 6, 3, -8), MOVI(0, 0), EXIT());
	ok(uniform(7, 6), "lanes stay together");
	accepted("a function in which lanes part in each pass", MOV(7, 1), MOVI(6, 0), MOV(1, 7), CALLF(4), ALUI(BPF_ADD, 6, 1), JMPI(BPF_JLT, 6, 3, -4),
		MOVI(0, 0), EXIT(), LD(BPF_W, 2, 1, 4), JMPI(BPF_JSET, 2, 1, 1), MOVI(2, 0), MOVI(0, 0), EXIT());
	ok(!uniform(4, 6), "varies too");
}

int main(void)
{
	test_loops();
	test_two_loops();
	test_elements();
	test_refusals();
	test_uniform();
	test_passes();
	return tap_done();
}
