/* The interpreter: limits, maps, calls, and each thing that a checked run stops at. (What instructions compute: tests/conformance.) */
#include "cpu/interp.h"
#include "bpf/helpers.h"
#include "verifier_case.h"

static struct interp_result result;
static uint64_t values[6][8], record[8];
static int committed, discarded;

static void *lookup(void *self, uint32_t map, const void *key)
{
	uint32_t index;
	memcpy(&index, key, 4);
	return index < case_maps[map].max_entries ? values[map] : NULL;
}

static void *direct(void *self, uint32_t map)
{
	return values[map];
}

static void *reserve(void *self, uint32_t map, uint64_t bytes)
{
	return bytes <= sizeof(record) ? record : NULL;
}

static void commit(void *self, void *r, bool discard, uint64_t flags)
{
	committed += r == record && !discard;
	discarded += r == record && discard;
}

static char traced[64];

static int64_t trace(void *self, const char *format, uint32_t bytes, const uint64_t args[3])
{
	memcpy(traced, format, bytes < sizeof(traced) ? bytes : sizeof(traced));
	return bytes;
}

static const struct interp_ops ops = { .lookup = lookup, .value = direct, .ring_reserve = reserve, .ring_commit = commit, .trace = trace };

static int run(bool check, uint64_t max_insns, const struct bpf_insn *insns, size_t n)
{
	static uint64_t memory[8];
	struct bpf_insn copy[64];
	memcpy(copy, insns, n * sizeof(*copy));
	struct ebpf_program p = { .name = "case", .insns = copy, .n_insns = (uint32_t)n, .memory_bytes = 64, .maps = case_maps, .n_maps = 6 };
	struct interp in = { .program = &p, .memory = memory, .ops = &ops, .max_insns = max_insns, .check = check };
	return interp_run(&in, &result);
}

#define gives(r0_, insns_, name, ...)                                                              \
	do {                                                                                       \
		const struct bpf_insn code_[] = { __VA_ARGS__ };                                   \
		int err_ = run(true, 1000, code_, sizeof(code_) / sizeof(code_[0]));               \
		ok(!err_ && result.r0 == (uint64_t)(r0_) && result.insns == (insns_), "%s: 0x%llx after %llu", name,        \
			(unsigned long long)result.r0, (unsigned long long)result.insns);          \
	} while (0)
#define stops(err, at_, why, ...)                                                                  \
	do {                                                                                       \
		const struct bpf_insn code_[] = { __VA_ARGS__ };                                   \
		int err_ = run(true, 1000, code_, sizeof(code_) / sizeof(code_[0]));               \
		ok(err_ == (err) && result.violation && !strcmp(result.violation, why) && result.at == (at_), "stops at %u: %s",  \
			result.at, result.violation ? result.violation : "(nothing)");             \
	} while (0)

static void test_runs(void)
{
	gives(0, 4, "division by zero", MOVI(0, 7), MOVI(1, 0), ALU(BPF_DIV, 0, 1), EXIT());
	gives(7, 4, "modulo by zero", MOVI(0, 7), MOVI(1, 0), ALU(BPF_MOD, 0, 1), EXIT());
	gives(1ull << 63, 4, "the smallest number divided by -1", IMM64(0, 1ull << 63), MOVI(1, -1), I(BPF_ALU64 | BPF_DIV | BPF_X, 0, 1, 1, 0), EXIT());
	gives(1, 4, "a masked shift count", MOVI(0, 1), MOVI(1, 64), ALU(BPF_LSH, 0, 1), EXIT());
	gives(64, 2, "r2 is the size of the buffer", MOV(0, 2), EXIT());
	gives(12, 9, "a subprogram keeps r6", MOVI(6, 5), MOVI(1, 7), CALLF(2), ALU(BPF_ADD, 0, 6), EXIT(), MOVI(6, 0), MOV(0, 1), JA(0), EXIT());
	values[ARR][1] = values[DATA][1] = 99;
	gives(99, 7 + 32, "a look-up", LOOKUP(ARR), LD(BPF_DW, 0, 0, 8), EXIT());
	gives(99, 3, "a direct value", GLOBAL(1, DATA, 8), LD(BPF_DW, 0, 1, 0), EXIT());
	gives(0, 9 + 32 + 8, "a record", MAP(1, RING), MOVI(2, 16), MOVI(3, 0), CALL(ringbuf_reserve), MOV(1, 0), MOVI(2, 0), CALL(ringbuf_submit), MOVI(0, 0), EXIT());
	is_int(committed, 1, "is committed once");
	static const struct bpf_insn forever[] = { JA(-1) };
	is_int(run(false, 100, forever, 1), -ELOOP, "a run without an end is stopped");
	is_int(result.insns, 101, "at the limit");
}

static void test_puts(void)
{
	memcpy(values[RO], "5% %%", 6);
	gives(6, 3 + 64, "a string is put", GLOBAL(1, RO, 0), I(BPF_JMP | BPF_CALL, 0, 0, 0, EBPF_FUNC_puts), EXIT());
	is_str(traced, "5%% %%%%", "as it is written");
	memset(values[RO], 'x', sizeof(values[RO]));
	stops(-EFAULT, 2, "read out of bounds", GLOBAL(1, RO, 0), I(BPF_JMP | BPF_CALL, 0, 0, 0, EBPF_FUNC_puts), EXIT());
}

static void test_stops(void)
{
	stops(-EFAULT, 0, "read of a register that was not written", MOV(0, 3), EXIT());
	stops(-EFAULT, 0, "read of stack bytes that were not written", LD(BPF_DW, 0, 10, -8), EXIT());
	stops(-EFAULT, 0, "read out of bounds", LD(BPF_B, 0, 1, 64), EXIT());
	stops(-EFAULT, 0, "write out of bounds", STI(BPF_B, 10, 0, 1), EXIT());
	stops(-EFAULT, 1, "read out of bounds", MOVI(1, 0), LD(BPF_B, 0, 1, 0), EXIT());
	stops(-EFAULT, 2, "write to read-only memory", GLOBAL(1, RO, 0), STI(BPF_W, 1, 0, 1), EXIT());
	stops(-EFAULT, 2, "misaligned write", GLOBAL(1, DATA, 0), STI(BPF_DW, 1, 4, 1), EXIT());
	stops(-EINVAL, 6, "jump out of the program", JA(5), EXIT());
	stops(-EFAULT, 0, "calls nested too deep", CALLF(-1), EXIT());
	stops(-EINVAL, 0, "unknown helper", I(BPF_JMP | BPF_CALL, 0, 0, 0, 999), EXIT());
	stops(-EINVAL, 3, "argument is not a map", MOV(1, 10), MOV(2, 10), STI(BPF_DW, 10, -8, 0), CALL(map_lookup_elem), EXIT());
	stops(-EINVAL, 0, "no such instruction", I(0x8d, 0, 0, 0, 0), EXIT());
	stops(-EINVAL, 0, "no such register", MOVI(12, 0), EXIT());
	stops(-EFAULT, 5, "a reserved record is neither submitted nor discarded", MAP(1, RING), MOVI(2, 16), MOVI(3, 0), CALL(ringbuf_reserve), EXIT());
	stops(-EFAULT, 2, "argument is not a reserved record", MOV(1, 10), MOVI(2, 0), CALL(ringbuf_submit), EXIT());
}

int main(void)
{
	test_runs();
	test_puts();
	test_stops();
	return tap_done();
}
