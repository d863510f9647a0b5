/* Programs that try to get past the verifier: each by one trick, with the tag of the rule that stops it; and their harmless twins. */
#include "bpf/helpers.h"
#include "verifier_case.h"

#define stopped(tag_, name, ...) stopped_in(EBPF_CONTEXT_NONE, 64, tag_, name, __VA_ARGS__)
#define stopped_in(context, memory, tag_, name, ...)                                                       \
	do {                                                                                               \
		const struct bpf_insn insns_[] = { __VA_ARGS__ };                                          \
		int err_ = case_check(context, memory, insns_, sizeof(insns_) / sizeof(insns_[0]));        \
		if (!ok(err_ && !strcmp(case_result.tag, tag_), "stopped (%s): %s", tag_, name))           \
			printf("#   got %s at %u: %s\n", err_ ? case_result.tag : "accepted", case_result.failed_insn, case_reason); \
	} while (0)
#define DONE() MOVI(0, 0), EXIT()
#define FUNC(dst, to) I(BPF_LD | BPF_IMM | BPF_DW, dst, BPF_PSEUDO_FUNC, 0, to), I(0, 0, 0, 0, 0)
#define SX(dst, src, bits) I(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, bits, 0)
#define LDSX(size, dst, src, off) I(BPF_LDX | EBPF_MEMSX | (size), dst, src, off, 0)
#define GOTOL(to) I(BPF_JMP32 | BPF_JA, 0, 0, 0, to)
#define JMP32(op, dst, src, off) I(BPF_JMP32 | (op) | BPF_X, dst, src, off, 0)
#define ALU32(op, dst, src) I(BPF_ALU | (op) | BPF_X, dst, src, 0, 0)
#define LOOPN(n, func) MOVI(1, n), FUNC(2, func), MOV(3, 10), ALUI(BPF_ADD, 3, -8), MOVI(4, 0), CALL(loop)

/* r6 = a number of the buffer, r7 = the buffer. */
#define START() MOV(7, 1), LD(BPF_DW, 6, 1, 0)

static void test_arithmetic(void)
{
	stopped("oob", "a bound of the low half is none of the whole", START(), JMP32I(BPF_JGE, 6, 8, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	accepted_raw("but is when the half is taken", START(), MOV32(6, 6), JMP32I(BPF_JGE, 6, 8, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "an arithmetic shift of what may be negative", START(), ALUI(BPF_ARSH, 6, 58), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	/* As in Linux, a pointer does not take what may be below 0, wherever the access would be. */
	stopped("oob", "moved up behind it", START(), ALUI(BPF_ARSH, 6, 58), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 32), DONE());
	accepted_raw("moved up before it", START(), ALUI(BPF_ARSH, 6, 58), ALUI(BPF_ADD, 6, 32), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "by one too few", START(), ALUI(BPF_ARSH, 6, 58), ALUI(BPF_ADD, 6, 31), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "by one too many", START(), ALUI(BPF_ARSH, 6, 58), ALUI(BPF_ADD, 6, 33), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "32-bit arithmetic shift fills with the sign of bit 31", START(), ALU32I(BPF_ARSH, 6, 28), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a sign-extended byte is not below 64", START(), SX(6, 6, 8), JMPI(BPF_JSGT, 6, 63, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	accepted_raw("with both ends checked it is", START(), SX(6, 6, 8), JMPI(BPF_JSGT, 6, 63, 3), JMPI(BPF_JSLT, 6, 0, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a signed load is not unsigned", MOV(7, 1), LDSX(BPF_B, 6, 1, 0), JMPI(BPF_JSGE, 6, 64, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a product wraps back", START(), ALUI(BPF_AND, 6, 7), IMM64(8, 0x2000000000000001), ALU(BPF_MUL, 6, 8), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 57), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a difference goes below 0", START(), ALUI(BPF_AND, 6, 7), MOVI(8, 3), ALU(BPF_SUB, 8, 6), ALU(BPF_ADD, 7, 8), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a pointer minus a number", START(), ALUI(BPF_AND, 6, 7), ALUI(BPF_ADD, 7, 7), ALU(BPF_SUB, 7, 6), LD(BPF_B, 0, 7, -1), DONE());
	accepted_raw("the difference of numbers that stays inside", START(), ALUI(BPF_AND, 6, 7), MOVI(8, 7), ALU(BPF_SUB, 8, 6), ALU(BPF_ADD, 7, 8), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "x % 0 is x", START(), LD(BPF_W, 8, 1, 8), ALU(BPF_MOD, 6, 8), JMPI(BPF_JGT, 8, 64, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "signed remainders are negative", START(), I(BPF_ALU64 | BPF_MOD | BPF_K, 6, 0, 1, 64), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "the smallest number divided by -1 is itself", IMM64(6, 0x8000000000000000), MOV(7, 1), I(BPF_ALU64 | BPF_DIV | BPF_K, 6, 0, 1, -1), ALUI(BPF_ARSH, 6, 63), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a swap of bytes is no small number", START(), ALUI(BPF_AND, 6, 7), I(BPF_ALU64 | BPF_END, 6, 0, 0, 16), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "bits that are tested one by one do not bound what is not tested", START(), JMPI(BPF_JSET, 6, ~63, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 1), DONE());
	accepted_raw("and those that are do", START(), JMPI(BPF_JSET, 6, ~63, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "equal low halves are not equal", START(), MOVI(8, 5), JMP32(BPF_JNE, 6, 8, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a copy that was changed after the comparison", START(), MOV(8, 6), ALUI(BPF_ADD, 8, 1), JMPI(BPF_JGT, 6, 63, 2), ALU(BPF_ADD, 7, 8), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "a copy of the low half does not bound the whole", START(), MOV32(8, 6), JMPI(BPF_JGT, 8, 63, 2), ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
}

static void test_pointers(void)
{
	stopped("leak", "a pointer cut to 32 bits", MOV32(6, 1), ST(BPF_DW, 1, 0, 6), DONE());
	stopped("leak", "the difference of two pointers of different memory", MOV(6, 1), ALU(BPF_SUB, 6, 10), ST(BPF_DW, 1, 0, 6), DONE());
	stopped("leak", "a pointer negated", MOV(6, 10), I(BPF_ALU64 | BPF_NEG, 6, 0, 0, 0), ST(BPF_DW, 1, 0, 6), DONE());
	stopped("leak", "a pointer by way of the stack, byte by byte", ST(BPF_DW, 10, -8, 10), LD(BPF_B, 6, 10, -8), ST(BPF_B, 1, 0, 6), DONE());
	stopped("leak", "an exchange with shared memory", GLOBAL(6, DATA, 0), MOV(7, 10), ATOMIC(BPF_DW, BPF_XCHG, 6, 0, 7), DONE());
	stopped("oob", "the value's tail: 48 bytes, entries 48 apart", LOOKUP(ARR), JMPI(BPF_JEQ, 0, 0, 1), LD(BPF_DW, 0, 0, 48), DONE());
	stopped("oob", "a negative offset into a value", GLOBAL(6, DATA, 8), LD(BPF_DW, 0, 6, -16), DONE());
	accepted_raw("that comes back inside", GLOBAL(6, DATA, 8), LD(BPF_DW, 0, 6, -8), EXIT());
	stopped("null", "null plus a number passes no check", LOOKUP(HASH), ALUI(BPF_ADD, 0, 8), JMPI(BPF_JEQ, 0, 0, 1), LD(BPF_DW, 0, 0, -8), DONE());
	stopped("null", "one copy is checked, another look-up's is used", LOOKUP(HASH), MOV(8, 0), LOOKUP(HASH), JMPI(BPF_JEQ, 0, 0, 1), LD(BPF_DW, 0, 8, 0), DONE());
	stopped("align", "an atomic at an odd place", GLOBAL(6, DATA, 4), MOVI(7, 1), ATOMIC(BPF_DW, BPF_ADD, 6, 0, 7), DONE());
	stopped("align", "an atomic at a place that may be odd", START(), ALUI(BPF_AND, 6, 6), GLOBAL(8, DATA, 0), ALU(BPF_ADD, 8, 6), MOVI(9, 1), ATOMIC(BPF_W, BPF_ADD, 8, 0, 9), DONE());
	stopped("map", "an atomic on data that never changes", GLOBAL(6, RO, 0), MOVI(7, 1), ATOMIC(BPF_DW, BPF_ADD, 6, 0, 7), DONE());
	stopped_in(EBPF_CONTEXT_MEM, 0, "ctx", "an atomic on the context", MOVI(7, 1), ATOMIC(BPF_DW, BPF_ADD, 1, 128, 7), DONE());
}

static void test_stack(void)
{
	stopped("leak", "half a pointer overwritten", MOV(6, 1), ST(BPF_DW, 10, -8, 6), STI(BPF_W, 10, -4, 0), LD(BPF_DW, 6, 10, -8), LD(BPF_DW, 0, 6, 0), DONE());
	stopped("oob", "a bounded number, half overwritten", START(), ALUI(BPF_AND, 6, 7), ST(BPF_DW, 10, -8, 6), LD(BPF_W, 8, 7, 8), ST(BPF_W, 10, -4, 8), LD(BPF_DW, 6, 10, -8),
		ALU(BPF_ADD, 7, 6), LD(BPF_B, 0, 7, 0), DONE());
	stopped("oob", "whose low half is read: what was known went with the whole, as in Linux", START(), ALUI(BPF_AND, 6, 7), ST(BPF_DW, 10, -8, 6), LD(BPF_W, 8, 7, 8), ST(BPF_W, 10, -4, 8), LD(BPF_W, 6, 10, -8), ALU(BPF_ADD, 7, 6),
		LD(BPF_B, 0, 7, 0), DONE());
	stopped("uninit", "a byte between two that are set", STI(BPF_B, 10, -8, 0), STI(BPF_H, 10, -6, 0), STI(BPF_W, 10, -4, 0), LD(BPF_DW, 0, 10, -8), EXIT());
	stopped("oob", "an index into the stack that hits a kept bound", START(), MOVI(8, 1), ST(BPF_DW, 10, -8, 8), STI(BPF_DW, 10, -16, 0), ALUI(BPF_AND, 6, 8), MOV(9, 10), ALU(BPF_ADD, 9, 6),
		STI(BPF_DW, 9, -16, 1000), LD(BPF_DW, 8, 10, -8), ALU(BPF_ADD, 7, 8), LD(BPF_B, 0, 7, 0), DONE());
	stopped("leak", "an index into the stack that hits a kept pointer", START(), ST(BPF_DW, 10, -8, 7), STI(BPF_DW, 10, -16, 0), ALUI(BPF_AND, 6, 8), MOV(9, 10), ALU(BPF_ADD, 9, 6),
		STI(BPF_DW, 9, -16, 1000), LD(BPF_DW, 8, 10, -8), LD(BPF_B, 0, 8, 0), DONE());
	stopped("oob", "a callback that raises what its caller has bounded", MOV(9, 1), STI(BPF_DW, 10, -8, 1), LOOPN(4, 10), LD(BPF_DW, 6, 10, -8), ALU(BPF_ADD, 9, 6), LD(BPF_B, 0, 9, 0), DONE(),
		STI(BPF_DW, 2, 0, 100), DONE());
	stopped("oob", "a callback that adds to it each time", MOV(9, 1), STI(BPF_DW, 10, -8, 0), LOOPN(100, 10), LD(BPF_DW, 6, 10, -8), ALU(BPF_ADD, 9, 6), LD(BPF_B, 0, 9, 0), DONE(),
		LD(BPF_DW, 3, 2, 0), ALUI(BPF_ADD, 3, 1), ST(BPF_DW, 2, 0, 3), DONE());
	accepted_raw("a bound taken behind the calls", MOV(9, 1), STI(BPF_DW, 10, -8, 0), LOOPN(100, 11), LD(BPF_DW, 6, 10, -8), JMPI(BPF_JGT, 6, 63, 2), ALU(BPF_ADD, 9, 6), LD(BPF_B, 0, 9, 0),
		DONE(), LD(BPF_DW, 3, 2, 0), ALUI(BPF_ADD, 3, 1), ST(BPF_DW, 2, 0, 3), DONE());
	stopped("leak", "a callback that leaves its own stack's address", STI(BPF_DW, 10, -8, 0), LOOPN(4, 8), LD(BPF_DW, 6, 10, -8), LD(BPF_DW, 0, 6, -8), EXIT(), STI(BPF_DW, 10, -8, 1),
		ST(BPF_DW, 2, 0, 10), DONE());
	stopped("leak", "a function that does", STI(BPF_DW, 10, -8, 0), MOV(1, 10), ALUI(BPF_ADD, 1, -8), CALLF(3), LD(BPF_DW, 6, 10, -8), LD(BPF_DW, 0, 6, -8), EXIT(), STI(BPF_DW, 10, -8, 1),
		ST(BPF_DW, 1, 0, 10), DONE());
}

#define RESERVE(n) MAP(1, RING), MOVI(2, n), MOVI(3, 0), CALL(ringbuf_reserve)
#define SUBMIT() MOV(1, 0), MOVI(2, 0), CALL(ringbuf_submit)

static void test_flow(void)
{
	stopped("oob", "a pointer that steps past the end in its last pass", MOV(7, 1), MOVI(6, 0), LD(BPF_DW, 0, 7, 0), ALUI(BPF_ADD, 7, 8), ALUI(BPF_ADD, 6, 1), JMPI(BPF_JLE, 6, 8, -4), DONE());
	accepted_raw("or not", MOV(7, 1), MOVI(6, 0), LD(BPF_DW, 0, 7, 0), ALUI(BPF_ADD, 7, 8), ALUI(BPF_ADD, 6, 1), JMPI(BPF_JLT, 6, 8, -4), DONE());
	stopped("loop", "a pointer compared with nothing", MOV(7, 1), GLOBAL(8, DATA, 0), LD(BPF_DW, 6, 8, 0), JMPI(BPF_JNE, 6, 0, -2), DONE());
	stopped("ref", "a record of each pass", MOVI(6, 0), RESERVE(16), ALUI(BPF_ADD, 6, 1), JMPI(BPF_JLT, 6, 3, -7), DONE());
	accepted_raw("that is submitted in it", MOVI(6, 0), RESERVE(16), JMPI(BPF_JEQ, 0, 0, 3), SUBMIT(), ALUI(BPF_ADD, 6, 1), JMPI(BPF_JLT, 6, 3, -11), DONE());
	stopped("ref", "a record that a callback reserves and keeps", LOOPN(3, 7), DONE(), RESERVE(16), DONE());
	stopped("uninit", "a record submitted twice by way of a copy", RESERVE(16), JMPI(BPF_JEQ, 0, 0, 7), MOV(6, 0), SUBMIT(), MOV(1, 6), MOVI(2, 0), CALL(ringbuf_submit), DONE());
	stopped("insn", "a far jump into the middle of a constant", GOTOL(1), IMM64(0, 1), EXIT());
	stopped("insn", "a far jump out of the program", GOTOL(100000), DONE());
	stopped("insn", "a far jump before it", GOTOL(-2), DONE());
	accepted_raw("a far jump", GOTOL(2), MOVI(0, 1), EXIT(), MOVI(0, 0), GOTOL(-4));
	accepted_raw("dead code that would be wrong", MOVI(6, 1), JMPI(BPF_JEQ, 6, 1, 1), LD(BPF_DW, 0, 6, 0), DONE());
	stopped("uninit", "code that is dead by a comparison of the low half alone", START(), MOVI(8, 1), JMP32I(BPF_JEQ, 6, 0, 1), MOVI(9, 0), MOV(0, 9), EXIT());
}

/* What a program of a warp takes for the same in all lanes is so: the facts, by which adds are joined. */
static void test_lanes(void)
{
	const struct bpf_insn lane[] = { LD(BPF_W, 6, 1, 4), MOVI(7, 0), JMPI(BPF_JEQ, 6, 3, 1), MOVI(7, 1), GLOBAL(8, DATA, 0), ATOMIC(BPF_DW, BPF_ADD, 8, 0, 7), DONE() };
	is_int(case_check(EBPF_CONTEXT_MEM, 0, lane, sizeof(lane) / sizeof(lane[0])), 0, "a number chosen by the lane");
	ok(!(case_result.facts[6].uniform >> 7 & 1) && (case_result.facts[6].uniform >> 8 & 1), "varies, its place does not");
	const struct bpf_insn kept[] = { LD(BPF_W, 6, 1, 4), STI(BPF_DW, 10, -8, 0), JMPI(BPF_JEQ, 6, 3, 1), STI(BPF_DW, 10, -8, 1), LD(BPF_DW, 7, 10, -8), GLOBAL(8, DATA, 0),
		ATOMIC(BPF_DW, BPF_ADD, 8, 0, 7), DONE() };
	is_int(case_check(EBPF_CONTEXT_MEM, 0, kept, sizeof(kept) / sizeof(kept[0])), 0, "the same by way of the stack");
	ok(!(case_result.facts[7].uniform >> 7 & 1), "varies");
	const struct bpf_insn called[] = { LD(BPF_W, 6, 1, 4), MOVI(1, 0), JMPI(BPF_JEQ, 6, 3, 1), MOVI(1, 1), CALLF(2), DONE(), GLOBAL(8, DATA, 0), ATOMIC(BPF_DW, BPF_ADD, 8, 0, 1), DONE() };
	is_int(case_check(EBPF_CONTEXT_MEM, 0, called, sizeof(called) / sizeof(called[0])), 0, "the same as an argument");
	ok(!(case_result.facts[9].uniform >> 1 & 1), "varies");
	const struct bpf_insn fetched[] = { GLOBAL(8, DATA, 0), MOVI(7, 1), ATOMIC(BPF_DW, BPF_ADD | BPF_FETCH, 8, 0, 7), GLOBAL(9, DATA, 8), ATOMIC(BPF_DW, BPF_ADD, 9, 0, 7), DONE() };
	is_int(case_check(EBPF_CONTEXT_MEM, 0, fetched, sizeof(fetched) / sizeof(fetched[0])), 0, "what an atomic gave");
	ok(!(case_result.facts[6].uniform >> 7 & 1), "varies");
	const struct bpf_insn rounds[] = { LD(BPF_W, 6, 1, 4), ALUI(BPF_AND, 6, 7), MOVI(7, 0), ALUI(BPF_ADD, 7, 1), JMP(BPF_JLT, 7, 6, -2), GLOBAL(8, DATA, 0), ATOMIC(BPF_DW, BPF_ADD, 8, 0, 7), DONE() };
	is_int(case_check(EBPF_CONTEXT_MEM, 0, rounds, sizeof(rounds) / sizeof(rounds[0])), 0, "passes counted, as many as the lane's number");
	ok(!(case_result.facts[7].uniform >> 7 & 1), "vary behind the loop");
}

int main(void)
{
	test_arithmetic();
	test_pointers();
	test_stack();
	test_flow();
	test_lanes();
	arena_free(case_arena);
	return tap_done();
}
