/* Flow: branches, loops, joins, calls, helpers, reservations, limits. */
#include "bpf/helpers.h"
#include "verifier_case.h"

static void test_branches(void)
{
	accepted("what cannot be is not walked", LD(BPF_W, 0, 1, 0), JMPI(BPF_JGT, 0, 5, 3), JMPI(BPF_JLT, 0, 6, 1), LD(BPF_DW, 0, 10, -8), MOVI(0, 1), MOVI(0, 0), EXIT());
	accepted_raw("the copy checked, the original used", LD(BPF_DW, 3, 1, 0), MOV(4, 3), JMPI(BPF_JGT, 4, 63, 2), ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0), MOVI(0, 0), EXIT());
	refused_raw("oob", 4, "math between mem pointer and register with unbounded min value is not allowed; check it against 0 or use an unsigned type",
		"the copy changed before the check", LD(BPF_DW, 3, 1, 0), MOV(4, 3), ALUI(BPF_ADD, 4, 1), JMPI(BPF_JGT, 4, 63, 2), ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0),
		MOVI(0, 0), EXIT());
	accepted_raw("a 32-bit check of a 32-bit number", LD(BPF_W, 3, 1, 0), JMP32I(BPF_JGT, 3, 63, 2), ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0), MOVI(0, 0), EXIT());
	refused_raw("oob", 2, "math between mem pointer and register with unbounded min value is not allowed; check it against 0 or use an unsigned type",
		"a 32-bit check of a 64-bit number", LD(BPF_DW, 3, 1, 0), JMP32I(BPF_JGT, 3, 63, 2), ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0), MOVI(0, 0), EXIT());
	accepted("branches that agree with each other", LOOKUP(HASH), MOV(6, 0), MOVI(7, 0), JMPI(BPF_JEQ, 6, 0, 1), MOVI(7, 1), JMPI(BPF_JEQ, 7, 0, 1),
		LD(BPF_DW, 7, 6, 0), MOVI(0, 0), EXIT());
	refused("type", 11, "R6 invalid mem access 'scalar'", "and those that do not", LOOKUP(HASH), MOV(6, 0), MOVI(7, 0), JMPI(BPF_JEQ, 6, 0, 1), MOVI(7, 1),
		JMPI(BPF_JNE, 7, 0, 1), LD(BPF_DW, 7, 6, 0), MOVI(0, 0), EXIT());
}

/* Two ways to what follows, told apart by nothing that is looked at later; the one that executes `insn` is walked first. Then joins
 * enough for a state to be remembered. */
#define WAYS(insn) LD(BPF_W, 0, 9, 0), JMPI(BPF_JNE, 0, 1, 1), insn
#define JOIN() LD(BPF_W, 0, 9, 4), JMPI(BPF_JEQ, 0, 1, 1), MOVI(8, 0)
#define JOINS() JOIN(), JOIN(), JOIN(), JOIN()

/* The second way to a join has not what the first had: a remembered state must not cover it. */
static void test_joins(void)
{
	refused_raw("oob", 20, "R1 min value is outside of the allowed memory range: off=64 size=1 of 64 bytes", "bounds of the second way", MOV(9, 1), MOVI(3, 64), MOVI(4, 0),
		MOVI(5, 0), WAYS(MOVI(3, 8)), JOINS(), ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0), EXIT());
	refused("uninit", 16, "invalid read from stack R10 off -8+0 size 8: uninitialised; write these bytes on every path first", "a slot of the second way", MOV(9, 1),
		WAYS(STI(BPF_DW, 10, -8, 1)), JOINS(), LD(BPF_DW, 0, 10, -8), EXIT());
	refused("leak", 18, "At program exit the register R0 leaks addr as return value; return a number", "a pointer in a slot of the second way", MOV(9, 1), ST(BPF_DW, 10, -8, 1),
		WAYS(STI(BPF_DW, 10, -8, 1)), JOINS(), LD(BPF_DW, 0, 10, -8), EXIT());
	refused("null", 31, "R7 invalid mem access 'map_value_or_null'; check it against NULL first", "the check of a pointer that is another on the second way", MOV(9, 1), LOOKUP(HASH),
		MOV(6, 0), LOOKUP(HASH), MOV(7, 0), WAYS(MOV(7, 6)), JOINS(), JMPI(BPF_JEQ, 6, 0, 1), LD(BPF_DW, 0, 7, 0), MOVI(0, 0), EXIT());
	refused_raw("oob", 19, "math between mem pointer and register with unbounded min value is not allowed; check it against 0 or use an unsigned type",
		"the check of a number that is another on the second way", MOV(9, 1), LD(BPF_DW, 3, 1, 0), LD(BPF_DW, 4, 1, 8), WAYS(MOV(4, 3)), JOINS(), JMPI(BPF_JGT, 4, 63, 2),
		ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0), MOVI(0, 0), EXIT());
	refused("null", 23, "R0 invalid mem access 'map_value_or_null'; check it against NULL first", "an index that exists on the first way only", MOV(9, 1), MOVI(3, 9), WAYS(MOVI(3, 0)),
		ST(BPF_DW, 10, -8, 3), MOV(2, 10), ALUI(BPF_ADD, 2, -8), JOINS(), MAP(1, ARR), CALL(map_lookup_elem), LD(BPF_DW, 0, 0, 0), EXIT());
	/* r3 is bounded by r4, and r4 only on the first way. */
	refused_raw("oob", 20, "R1 unbounded memory access, make sure to bounds check any such access", "a bound that is another on the second way", MOV(9, 1), LD(BPF_W, 3, 1, 0),
		LD(BPF_W, 4, 1, 8), WAYS(MOVI(4, 8)), JOINS(), JMP(BPF_JGE, 3, 4, 2), ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0), MOVI(0, 0), EXIT());
	/* A byte is zero because zero was kept as a register, on the first way. */
	refused_raw("oob", 22, "R1 max value is outside of the allowed memory range: off=255 size=1 of 64 bytes; check the index against the size",
		"a kept zero that is none on the second way", MOV(9, 1), LD(BPF_DW, 3, 1, 0), WAYS(MOVI(3, 0)), ST(BPF_DW, 10, -8, 3), MOVI(3, 0), JOINS(), LD(BPF_B, 3, 10, -5),
		ALU(BPF_ADD, 1, 3), MOVI(0, 0), LD(BPF_B, 0, 1, 0), EXIT());
}

#define LIMIT_TEXT(processed, limit)                                                               \
	"BPF program is too large. Processed " processed " insn, the limit is " limit              \
	": a loop has too many passes, or branches leave too many different values behind"

static void test_loops(void)
{
	accepted("a counted loop", MOVI(0, 0), ALUI(BPF_ADD, 0, 1), JMPI(BPF_JLT, 0, 1000, -2), EXIT());
	is_int(case_result.max_run_insns, 2002, "its length is known exactly");
	accepted_raw("a loop bounded by masked data", LD(BPF_W, 6, 1, 0), ALUI(BPF_AND, 6, 15), MOVI(0, 0), JMP(BPF_JGE, 0, 6, 2), ALUI(BPF_ADD, 0, 1), JA(-3), EXIT());
	refused("loop", 1, "infinite loop detected at insn 1: nothing changes from one pass to the next; count a bounded variable", "a loop without an end", MOVI(0, 0), MOVI(2, 1),
		JA(-2));
	refused("insn", 3, "unreachable insn 3; remove it", "code behind it", MOVI(0, 0), MOVI(2, 1), JA(-2), EXIT());
	refused("loop", 0, "infinite loop detected at insn 0: nothing changes from one pass to the next; count a bounded variable", "a loop that waits", CALL(get_prandom_u32),
		JMPI(BPF_JNE, 0, 0, -2), EXIT());
	refused("length", 2, "a run can take more than 65536 instructions; shorten the loops", "a loop too long for a probe", MOVI(0, 0), ALUI(BPF_ADD, 0, 1),
		JMPI(BPF_JLT, 0, 100000, -2), EXIT());
	case_options.max_run_insns = 1ull << 40;
	case_options.max_states_insns = 10000;
	refused("loop", 2, LIMIT_TEXT("10001", "10000"), "a loop too long to walk", MOVI(0, 0), ALUI(BPF_ADD, 0, 3),
		JMPI(BPF_JNE, 0, 100, -2), EXIT());
	case_options = (struct verifier_options){ .max_run_insns = 20 };
	accepted("as long as allowed", CALL(get_prandom_u32), CALL(get_prandom_u32), MOVI(0, 0), EXIT());
	refused("length", 4, "a run can take more than 20 instructions; shorten the loops", "one more", CALL(get_prandom_u32), CALL(get_prandom_u32), MOVI(0, 0), MOVI(0, 0),
		EXIT());
	case_options = (struct verifier_options){ 0 };
}

/* The limit that nobody raised: a loop of one way, and 2^60 ways of which each leaves its own number in r0. */
static void test_limit(void)
{
	struct bpf_insn ways[4 * 60 + 3];
	size_t n = 0;
	case_options.max_run_insns = 1ull << 40;
	refused("loop", 2, LIMIT_TEXT("1000001", "1000000"), "a loop of a million instructions", MOVI(0, 0), ALUI(BPF_ADD, 0, 3), JMPI(BPF_JNE, 0, 100, -2), EXIT());
	ways[n++] = MOVI(0, 0);
	for (int i = 0; i < 60; i++) {
		ways[n++] = LD(BPF_DW, 2, 1, 0);
		ways[n++] = ALUI(BPF_LSH, 0, 1);
		ways[n++] = JMPI(BPF_JEQ, 2, i, 1);
		ways[n++] = ALUI(BPF_OR, 0, 1);
	}
	ways[n++] = JMPI(BPF_JEQ, 0, 12345, -1 - 4); /* the number is needed */
	ways[n++] = EXIT();
	is_int(case_check(EBPF_CONTEXT_NONE, 64, ways, n), -E2BIG, "too many ways are refused");
	ok(!strcmp(case_reason, LIMIT_TEXT("1000001", "1000000")), "with the same sentence");
	printf("# %s\n", case_reason);
	is_int(case_result.processed_insns, 1000001, "and not one instruction later");
	case_options = (struct verifier_options){ 0 };
}

static void test_shape(void)
{
	refused("insn", 0, "last insn is not an exit or jmp", "falling off the end", MOVI(0, 0));
	refused("insn", 2, "unreachable insn 2; remove it", "an instruction that nothing reaches", MOVI(0, 0), JA(1), MOVI(0, 1), EXIT());
	refused("insn", 1, "jump out of range from insn 1 to 5", "a jump past the end", MOVI(0, 0), JMPI(BPF_JEQ, 0, 0, 3), EXIT());
	refused("insn", 0, "jump into the middle of ld_imm64 insn 2", "a jump into half an instruction", JMPI(BPF_JEQ, 1, 0, 1), IMM64(0, 1), EXIT());
	refused("insn", 0, "unknown opcode 8d (callx); calls through registers are not supported", "callx", I(0x8d, 0, 0, 0, 0), EXIT());
	refused("insn", 0, "BPF_LD_[ABS|IND] reads packets, which a GPU program has not", "a packet load", I(0x20, 0, 0, 0, 0), EXIT());
	refused("insn", 0, "BPF_ALU uses reserved fields; they must be zero", "a reserved field", I(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 1, 1), EXIT());
	refused("insn", 0, "R11 is invalid", "register 11", MOVI(11, 0), EXIT());
	refused("insn", 1, "invalid shift 64; shift by 0 to 63", "a shift by 64", MOVI(0, 1), ALUI(BPF_LSH, 0, 64), EXIT());
	refused("insn", 1, "div by zero; divide by a register to have 0 as the result", "a division by 0", MOVI(0, 1), ALUI(BPF_DIV, 0, 0), EXIT());
	refused("insn", 0, "BPF_ATOMIC uses invalid atomic opcode 30", "an atomic that is none", ATOMIC(BPF_DW, 0x30, 10, -8, 1), EXIT());
	refused("insn", 1, "last insn is not an exit or jmp", "a function pointer that splits the program", I(BPF_LD | BPF_IMM | BPF_DW, 0, BPF_PSEUDO_FUNC, 0, 1), I(0, 0, 0, 0, 0),
		EXIT());
	refused("map", 0, "fd 77 is not pointing to valid bpf_map", "a map that is none", MAP(0, 77), EXIT());
	accepted("cpu v4", MOVI(0, -5), I(BPF_ALU64 | BPF_DIV | BPF_K, 0, 0, 1, 2), I(BPF_ALU64 | BPF_MOV | BPF_X, 0, 0, 8, 0), I(BPF_ALU64 | BPF_END, 0, 0, 0, 32),
		STI(BPF_DW, 10, -8, 1), I(BPF_LDX | EBPF_MEMSX | BPF_B, 0, 10, -8, 0), I(BPF_JMP32 | BPF_JA, 0, 0, 0, 0), EXIT());
	is_int(case_check(EBPF_CONTEXT_MEM, 0, NULL, 0), -EINVAL, "no instructions");
	is_str(case_reason, "the program has no instructions", "says so");
}

static void test_calls(void)
{
	accepted("a subprogram", MOVI(1, 5), CALLF(1), EXIT(), MOV(0, 1), EXIT());
	refused("uninit", 2, "R1 !read_ok; set it on every path that comes here", "arguments do not survive it", MOVI(1, 5), CALLF(2), MOV(0, 1), EXIT(), MOVI(0, 1), EXIT());
	accepted("a caller's slot set by it", MOV(1, 10), ALUI(BPF_ADD, 1, -8), CALLF(2), LD(BPF_DW, 0, 10, -8), EXIT(), STI(BPF_DW, 1, 0, 7), MOVI(0, 0), EXIT());
	refused("oob", 4, "invalid write to stack R1 off=0 size=8; the stack is fp-512 to fp-1", "past the caller's stack", MOV(1, 10), CALLF(2), MOVI(0, 0), EXIT(), STI(BPF_DW, 1, 0, 1),
		MOVI(0, 0), EXIT());
	refused("leak", 5, "cannot spill pointers to stack into stack frame of the caller", "its own stack given away", MOV(1, 10), ALUI(BPF_ADD, 1, -8), CALLF(2), MOVI(0, 0), EXIT(),
		ST(BPF_DW, 1, 0, 10), MOVI(0, 0), EXIT());
	refused("leak", 3, "cannot return stack pointer to the caller", "its own stack returned", CALLF(1), EXIT(), MOV(0, 10), EXIT());
	refused("stack", 0, "the call stack of 9 frames is too deep; inline some of the functions", "recursion", CALLF(-1), EXIT());
	refused("stack", 4, "combined stack size of calls is 528. Too large; at most 512 bytes are allowed", "too much stack together", STI(BPF_DW, 10, -264, 1), CALLF(1), EXIT(),
		MOVI(0, 0), STI(BPF_DW, 10, -264, 1), EXIT());
	accepted("just enough", STI(BPF_DW, 10, -256, 1), CALLF(1), EXIT(), MOVI(0, 0), STI(BPF_DW, 10, -256, 1), EXIT());
	is_int(case_result.stack_bytes, 512, "and the sum is reported");
	refused("insn", 4, "jump out of range from insn 4 to 1", "a jump between functions", CALLF(2), MOVI(0, 0), EXIT(), MOVI(0, 0), JA(-4));
}

/* What probes of the kernel often call, and a GPU does not have: by the kernel's number and name, with the reason. */
#define REFUSED(number, name, why) _Static_assert(BPF_FUNC_##name == (number), #name);
EBPF_HELPERS_REFUSED(REFUSED)
#undef REFUSED

static void test_kernel_helpers(void)
{
	static const uint32_t idioms[] = { BPF_FUNC_snprintf, BPF_FUNC_trace_vprintk, BPF_FUNC_probe_read_kernel_str, BPF_FUNC_strncmp,
		BPF_FUNC_kptr_xchg, BPF_FUNC_timer_start, BPF_FUNC_get_func_ip, BPF_FUNC_get_attach_cookie, BPF_FUNC_map_lookup_percpu_elem,
		BPF_FUNC_dynptr_from_mem, BPF_FUNC_get_current_cgroup_id, BPF_FUNC_per_cpu_ptr };
	const char *name = NULL;
#define REFUSED(number, name, why)                                                                            \
	refused("helper", 0, "func bpf_" #name "#" #number " does not exist on a GPU: " why, "bpf_" #name,    \
		I(BPF_JMP | BPF_CALL, 0, 0, 0, number), EXIT());
	EBPF_HELPERS_REFUSED(REFUSED)
#undef REFUSED
	for (size_t i = 0; i < sizeof(idioms) / sizeof(idioms[0]); i++)
		ok(ebpf_helper_refused(idioms[i], &name), "helper %u of the kernel has a reason", idioms[i]);
}

static void test_helpers(void)
{
	refused("helper", 0, "unknown func #999; no helper of this number exists on a GPU", "a helper that is none", I(BPF_JMP | BPF_CALL, 0, 0, 0, 999), EXIT());
	refused("type", 3, "R1 type=scalar expected=map_ptr", "no map", MOVI(1, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), CALL(map_lookup_elem), EXIT());
	refused("uninit", 4, "invalid read from stack R2 off -8+0 size 8: uninitialised; write these bytes on every path first", "a key that was not set", MOV(2, 10),
		ALUI(BPF_ADD, 2, -8), MAP(1, HASH), CALL(map_lookup_elem), MOVI(0, 0), EXIT());
	refused("leak", 5, "invalid read from stack R2 off -8: part of a pointer that is kept there", "a pointer as key", ST(BPF_DW, 10, -8, 1), MOV(2, 10), ALUI(BPF_ADD, 2, -8),
		MAP(1, HASH), CALL(map_lookup_elem), MOVI(0, 0), EXIT());
	refused("leak", 8, "R4 leaks addr into helper function; pass a number", "a pointer as flags", STI(BPF_DW, 10, -8, 1), STI(BPF_DW, 10, -16, 1), MOV(2, 10), ALUI(BPF_ADD, 2, -16),
		MOV(3, 2), MOV(4, 10), MAP(1, HASH), CALL(map_update_elem), EXIT());
	refused("map", 4, "cannot pass map_type 27 into func bpf_map_lookup_elem#1", "a ring looked up", STI(BPF_DW, 10, -8, 1), MOV(2, 10), MAP(1, RING), CALL(map_lookup_elem), EXIT());
	refused("size", 6, "R2 unbounded memory access, use 'var &= const' or 'if (var < const)'", "an unbounded size", LD(BPF_W, 2, 1, 0), JMPI(BPF_JEQ, 2, 0, 4), MOVI(3, 0), MOVI(4, 0),
		MOVI(5, 0), MOV(1, 10), CALL(trace_printk), MOVI(0, 0), EXIT());
	refused("size", 4, "R2 invalid zero-sized read; make the size at least 1", "a size that may be 0", LD(BPF_W, 2, 1, 0), ALUI(BPF_AND, 2, 7), STI(BPF_DW, 10, -8, 0), MOV(1, 10),
		CALL(trace_printk), EXIT());
}

#define RESERVE(bytes) MAP(1, RING), MOVI(2, bytes), MOVI(3, 0), CALL(ringbuf_reserve)

static void test_records(void)
{
	accepted("reserved, filled, submitted", RESERVE(16), JMPI(BPF_JEQ, 0, 0, 4), STI(BPF_DW, 0, 8, 1), MOV(1, 0), MOVI(2, 0), CALL(ringbuf_submit), MOVI(0, 0), EXIT());
	refused("ref", 7, "Unreleased reference id=1 alloc_insn=4; call bpf_ringbuf_submit or bpf_ringbuf_discard on every path", "never submitted", RESERVE(16), JMPI(BPF_JEQ, 0, 0, 0),
		MOVI(0, 0), EXIT());
	refused("ref", 13, "Unreleased reference id=1 alloc_insn=5; call bpf_ringbuf_submit or bpf_ringbuf_discard on every path", "submitted on one path", MOV(6, 1), RESERVE(16),
		JMPI(BPF_JEQ, 0, 0, 5), LD(BPF_W, 2, 6, 0), JMPI(BPF_JEQ, 2, 0, 3), MOV(1, 0), MOVI(2, 0), CALL(ringbuf_submit), MOVI(0, 0), EXIT());
	refused("uninit", 11, "R6 !read_ok; set it on every path that comes here", "used after it was submitted", RESERVE(16), JMPI(BPF_JEQ, 0, 0, 5), MOV(6, 0), MOV(1, 0), MOVI(2, 0),
		CALL(ringbuf_submit), MOVI(0, 0), LD(BPF_DW, 0, 6, 0), EXIT());
	refused("null", 7, "R1 type=ringbuf_mem_or_null expected=ringbuf_mem; check it against NULL first", "submitted unchecked", RESERVE(16), MOV(1, 0), MOVI(2, 0), CALL(ringbuf_submit),
		MOVI(0, 0), EXIT());
	refused("ref", 9, "R1 must have zero offset when passed to release func; pass what bpf_ringbuf_reserve returned", "moved", RESERVE(16), JMPI(BPF_JEQ, 0, 0, 4), MOV(1, 0),
		ALUI(BPF_ADD, 1, 8), MOVI(2, 0), CALL(ringbuf_submit), MOVI(0, 0), EXIT());
	refused("oob", 6, "R0 min value is outside of the allowed memory range: off=16 size=8 of 16 bytes", "past the record", RESERVE(16), JMPI(BPF_JEQ, 0, 0, 1), STI(BPF_DW, 0, 16, 1),
		MOVI(0, 0), EXIT());
	refused("size", 4, "R2 is not a known constant; reserve a fixed size or use bpf_ringbuf_output", "of variable size", LD(BPF_W, 2, 1, 0), MAP(1, RING), MOVI(3, 0),
		CALL(ringbuf_reserve), EXIT());
}

int main(void)
{
	test_branches();
	test_joins();
	test_loops();
	test_limit();
	test_shape();
	test_calls();
	test_kernel_helpers();
	test_helpers();
	test_records();
	arena_free(case_arena);
	return tap_done();
}
