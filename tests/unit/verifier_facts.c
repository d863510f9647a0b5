/* Facts: what an accepted program's instructions and arguments touch, joined over all paths. */
#include "bpf/helpers.h"
#include "verifier_case.h"

#define FACT(insn) (&case_result.facts[insn])

static void test_places(void)
{
	accepted("a field, a slot, a global", LD(BPF_DW, 6, 1, 128), ST(BPF_DW, 10, -16, 6), GLOBAL(2, DATA, 8), ATOMIC(BPF_DW, BPF_ADD, 2, 16, 6), MOVI(0, 0), EXIT());
	ok(FACT(0)->region == EBPF_REGION_CONTEXT && FACT(0)->fixed && FACT(0)->offset == 128, "context: offset of the field");
	ok(FACT(1)->region == EBPF_REGION_STACK && FACT(1)->fixed && FACT(1)->offset == -16 && FACT(1)->frame == 0, "stack: offset from the frame's top");
	ok(FACT(4)->region == EBPF_REGION_MAP_VALUE && FACT(4)->fixed && FACT(4)->offset == 24 && FACT(4)->map == DATA, "map value: offset in it, and the map");
	ok(FACT(5)->map == -1 && !FACT(5)->region && FACT(5)->reached, "none");
	accepted("a variable offset", LD(BPF_W, 6, 1, 4), ALUI(BPF_AND, 6, 56), GLOBAL(2, DATA, 0), ALU(BPF_ADD, 2, 6), LD(BPF_DW, 0, 2, 0), EXIT());
	ok(FACT(5)->region == EBPF_REGION_MAP_VALUE && !FACT(5)->fixed && FACT(5)->map == DATA, "is not fixed");
	accepted("an array on the stack", LD(BPF_W, 6, 1, 4), ALUI(BPF_AND, 6, 24), STI(BPF_DW, 10, -8, 0), STI(BPF_DW, 10, -16, 0), STI(BPF_DW, 10, -24, 0),
		STI(BPF_DW, 10, -32, 0), MOV(2, 10), ALU(BPF_ADD, 2, 6), LD(BPF_DW, 0, 2, -32), EXIT());
	ok(FACT(8)->region == EBPF_REGION_STACK && !FACT(8)->fixed && FACT(8)->low == -32 && FACT(8)->high == -8, "the bounds of where it begins");
}

static void test_joined(void)
{
	accepted("two offsets by two ways", STI(BPF_DW, 10, -8, 0), STI(BPF_DW, 10, -16, 0), LD(BPF_W, 0, 1, 0), MOV(2, 10), JMPI(BPF_JEQ, 0, 1, 1), ALUI(BPF_ADD, 2, -8),
		LD(BPF_DW, 0, 2, -8), EXIT());
	ok(FACT(6)->region == EBPF_REGION_STACK && !FACT(6)->fixed && FACT(6)->low == -16 && FACT(6)->high == -8, "are not fixed, but bounded");
	accepted("two maps by two ways", LD(BPF_W, 0, 1, 0), GLOBAL(2, DATA, 8), JMPI(BPF_JEQ, 0, 1, 2), GLOBAL(2, RO, 8), LD(BPF_DW, 0, 2, 0), EXIT());
	ok(FACT(6)->map == -1 && FACT(6)->fixed && FACT(6)->offset == 8, "have no map in common, but an offset");
	accepted("one function, the stacks of two", STI(BPF_DW, 10, -8, 0), MOV(1, 10), CALLF(6), CALLF(1), EXIT(), STI(BPF_DW, 10, -8, 1), MOV(1, 10), CALLF(1), EXIT(),
		LD(BPF_DW, 0, 1, -8), EXIT());
	ok(FACT(9)->region == EBPF_REGION_STACK && FACT(9)->frame == 255 && FACT(9)->offset == -8, "belongs to no frame");
	accepted("a slot of the caller", STI(BPF_DW, 10, -8, 0), MOV(1, 10), CALLF(1), EXIT(), LD(BPF_DW, 0, 1, -8), EXIT());
	ok(FACT(4)->region == EBPF_REGION_STACK && FACT(4)->frame == 0 && FACT(4)->offset == -8, "names the caller's frame");
	accepted("dead by its condition", MOVI(6, 1), JMPI(BPF_JEQ, 6, 1, 1), LD(BPF_DW, 0, 10, -8), MOVI(0, 0), EXIT());
	ok(!FACT(2)->reached && FACT(3)->reached, "is not reached");
}

static void test_arguments(void)
{
	accepted("arguments of an update", STI(BPF_DW, 10, -8, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), GLOBAL(3, DATA, 4), MOVI(4, 1), MAP(1, HASH), CALL(map_update_elem), EXIT());
	const struct ebpf_fact *f = FACT(8);
	ok(f->map == HASH, "the map");
	ok(f->args[1].region == EBPF_REGION_STACK && f->args[1].fixed && f->args[1].offset == -8 && f->args[1].align == 8, "the key's place and alignment");
	ok(f->args[2].region == EBPF_REGION_MAP_VALUE && f->args[2].fixed && f->args[2].offset == 4 && f->args[2].align == 4, "the value's");
	ok(f->args[3].constant && f->args[3].value == 1, "constant flags");
	accepted("a bounded size", LD(BPF_W, 3, 1, 0), ALUI(BPF_AND, 3, 31), ALUI(BPF_ADD, 3, 1), GLOBAL(2, DATA, 1), MOVI(4, 0), MAP(1, RING), CALL(ringbuf_output), EXIT());
	f = FACT(8);
	ok(!f->args[2].constant && f->args[2].max == 32 && f->args[1].align == 1, "its bound");
	accepted("two maps by two ways", LD(BPF_W, 0, 1, 0), STI(BPF_DW, 10, -8, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), MAP(1, ARR), JMPI(BPF_JEQ, 0, 1, 2), MAP(1, HASH),
		CALL(map_lookup_elem), MOVI(0, 0), EXIT());
	ok(FACT(9)->map == -1, "of a call");
}

#define PUTS() I(BPF_JMP | BPF_CALL, 0, 0, 0, EBPF_FUNC_puts)

/* RO is 7 0 0 0 80 0 0 0 1 2 3 4 5 6 7 8. */
static void test_strings(void)
{
	accepted("a string of one character", GLOBAL(1, RO, 4), PUTS(), MOVI(0, 0), EXIT());
	ok(FACT(2)->map == RO && FACT(2)->args[0].constant && FACT(2)->args[0].value == 2 && FACT(2)->args[0].fixed && FACT(2)->args[0].offset == 4,
		"is known with its place and its size");
	accepted("two calls with their strings", LD(BPF_W, 6, 1, 136), GLOBAL(1, RO, 0), PUTS(), GLOBAL(1, RO, 5), PUTS(), MOVI(0, 0), EXIT());
	refused("oob", 2, "R1 leads to no string: no zero byte follows at offset 8 of 'ro', which has 16 bytes", "bytes without an end", GLOBAL(1, RO, 8), PUTS(),
		MOVI(0, 0), EXIT());
	refused("oob", 3, "R1 leads to no string: no zero byte follows at offset 16 of 'ro', which has 16 bytes", "the end of the map", GLOBAL(1, RO, 15),
		ALUI(BPF_ADD, 1, 1), PUTS(), MOVI(0, 0), EXIT());
	refused("oob", 3, "R1 leads to no string: no zero byte follows at offset -1 of 'ro', which has 16 bytes", "before the map", GLOBAL(1, RO, 0),
		ALUI(BPF_ADD, 1, -1), PUTS(), MOVI(0, 0), EXIT());
	refused("type", 2, "R1 type=map_value expected=a constant string; write the text as a literal, or bpf_printk(\"%s\", ...)", "a global that may change",
		GLOBAL(1, DATA, 0), PUTS(), MOVI(0, 0), EXIT());
	refused("type", 2, "R1 type=fp expected=a constant string; write the text as a literal, or bpf_printk(\"%s\", ...)", "characters on the stack",
		STI(BPF_DW, 10, -8, 0), MOV(1, 10), PUTS(), MOVI(0, 0), EXIT());
	refused("type", 1, "R1 type=scalar expected=a constant string; write the text as a literal, or bpf_printk(\"%s\", ...)", "a number", MOVI(1, 0), PUTS(),
		MOVI(0, 0), EXIT());
	refused("type", 5, "R1 type=map_value expected=a constant string; write the text as a literal, or bpf_printk(\"%s\", ...)", "a place that varies",
		LD(BPF_W, 6, 1, 4), ALUI(BPF_AND, 6, 7), GLOBAL(1, RO, 0), ALU(BPF_ADD, 1, 6), PUTS(), MOVI(0, 0), EXIT());
	refused("null", 7, "R1 invalid mem access 'map_value_or_null'; check it against NULL first", "a look-up", LOOKUP(HASH), MOV(1, 0), PUTS(), MOVI(0, 0), EXIT());
	refused("type", 6, "this call is given different strings on different paths; write a call for each", "one of two strings", LD(BPF_W, 6, 1, 4),
		GLOBAL(1, RO, 0), JMPI(BPF_JEQ, 6, 3, 2), GLOBAL(1, RO, 4), PUTS(), MOVI(0, 0), EXIT());
}

/* A way that ends at a remembered state must not have made a fact untrue: the flags differ by ways that look alike. */
static void test_covered(void)
{
	accepted("flags of many ways", LD(BPF_W, 6, 1, 0), MOVI(7, 1), JMPI(BPF_JEQ, 6, 1, 1), MOVI(7, 0), JMPI(BPF_JEQ, 6, 2, 1), MOVI(8, 0), JMPI(BPF_JEQ, 6, 3, 1), MOVI(8, 0),
		JMPI(BPF_JEQ, 6, 4, 1), MOVI(8, 0), STI(BPF_DW, 10, -8, 0), STI(BPF_DW, 10, -16, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), MOV(3, 10), ALUI(BPF_ADD, 3, -16), MOV(4, 7), MAP(1, HASH),
		CALL(map_update_elem), EXIT());
	ok(!FACT(19)->args[3].constant && FACT(19)->args[3].max == 1, "are not constant");
}

int main(void)
{
	test_places();
	test_joined();
	test_arguments();
	test_covered();
	test_strings();
	arena_free(case_arena);
	return tap_done();
}
