/* Memory: stack, map values, contexts, buffers, records; what is in bounds, set, aligned and nobody's address. */
#include "verifier_case.h"

static void test_registers(void)
{
	refused("uninit", 0, "R3 !read_ok; set it on every path that comes here", "a register that was never set", MOV(0, 3), EXIT());
	refused("uninit", 0, "R0 !read_ok; return a number on every path", "no result", EXIT());
	refused("uninit", 3, "R6 !read_ok; set it on every path that comes here", "set on one path only", LD(BPF_W, 0, 1, 0),
		JMPI(BPF_JEQ, 0, 0, 1), MOVI(6, 1), MOV(0, 6), EXIT());
	refused("uninit", 2, "R1 !read_ok; set it on every path that comes here", "clobbered by a helper", CALL(get_prandom_u32), MOVI(0, 0),
		LD(BPF_W, 0, 1, 0), EXIT());
	accepted("kept over a helper", MOV(6, 1), CALL(get_prandom_u32), LD(BPF_W, 0, 6, 0), EXIT());
	refused("insn", 0, "frame pointer is read only; copy r10 to another register", "r10 moved", ALUI(BPF_ADD, 10, 8), EXIT());
}

static void test_stack(void)
{
	accepted("the whole stack", STI(BPF_DW, 10, -512, 1), STI(BPF_B, 10, -1, 1), LD(BPF_DW, 0, 10, -512), EXIT());
	refused("oob", 0, "invalid write to stack R10 off=-520 size=8; the stack is fp-512 to fp-1", "below the stack", STI(BPF_DW, 10, -520, 1), EXIT());
	refused("oob", 0, "invalid write to stack R10 off=0 size=1; the stack is fp-512 to fp-1", "above it", STI(BPF_B, 10, 0, 1), EXIT());
	refused("align", 0, "misaligned stack access off 0+-12 size 8; a GPU reads and writes at multiples of the size only", "misaligned",
		STI(BPF_DW, 10, -12, 1), EXIT());
	refused("uninit", 1, "invalid read from stack R10 off -8+4 size 8: uninitialised; write these bytes on every path first", "half set",
		STI(BPF_W, 10, -8, 1), LD(BPF_DW, 0, 10, -8), EXIT());
	refused("uninit", 3, "invalid read from stack R10 off -8+0 size 8: uninitialised; write these bytes on every path first", "set on one path only",
		LD(BPF_W, 0, 1, 0), JMPI(BPF_JEQ, 0, 0, 1), STI(BPF_DW, 10, -8, 1), LD(BPF_DW, 0, 10, -8), EXIT());
	accepted("halves make a whole", STI(BPF_W, 10, -8, 1), STI(BPF_W, 10, -4, 1), LD(BPF_DW, 0, 10, -8), EXIT());
	accepted("a variable index into a written array", STI(BPF_DW, 10, -8, 1), STI(BPF_DW, 10, -16, 1), LD(BPF_W, 0, 1, 0), ALUI(BPF_AND, 0, 15),
		MOV(2, 10), ALUI(BPF_ADD, 2, -16), ALU(BPF_ADD, 2, 0), LD(BPF_B, 0, 2, 0), EXIT());
	refused("uninit", 6, "invalid read from stack R2 off -16+0 size 1: uninitialised; write these bytes on every path first",
		"a variable index into an array that was half written", STI(BPF_DW, 10, -8, 1), LD(BPF_W, 0, 1, 0), ALUI(BPF_AND, 0, 15), MOV(2, 10),
		ALUI(BPF_ADD, 2, -16), ALU(BPF_ADD, 2, 0), LD(BPF_B, 0, 2, 0), EXIT());
	refused("oob", 7, "invalid variable-offset read from stack R2 off=-16..0 size=1; check the index against the size of the array",
		"a variable index one too large", STI(BPF_DW, 10, -8, 1), STI(BPF_DW, 10, -16, 1), LD(BPF_W, 0, 1, 0), JMPI(BPF_JGT, 0, 16, 5), MOV(2, 10),
		ALUI(BPF_ADD, 2, -16), ALU(BPF_ADD, 2, 0), LD(BPF_B, 0, 2, 0), EXIT(), MOVI(0, 0), EXIT());
	refused("uninit", 5, "invalid read from stack R10 off -8+0 size 1: uninitialised; write these bytes on every path first",
		"a store at a variable offset sets nothing for certain", LD(BPF_W, 0, 1, 0), ALUI(BPF_AND, 0, 7), MOV(2, 10), ALU(BPF_ADD, 2, 0),
		STI(BPF_B, 2, -8, 1), LD(BPF_B, 0, 10, -8), EXIT());
	refused_raw("oob", 11, "R1 max value is outside of the allowed memory range: off=255 size=1 of 64 bytes; check the index against the size",
		"a zero that a store at a variable offset may have changed", STI(BPF_W, 10, -4, 0), LD(BPF_DW, 3, 1, 0), LD(BPF_DW, 4, 1, 8), ALUI(BPF_AND, 3, 3),
		MOV(2, 10), ALUI(BPF_ADD, 2, -4), ALU(BPF_ADD, 2, 3), ST(BPF_B, 2, 0, 4), LD(BPF_B, 3, 10, -3), ALU(BPF_ADD, 1, 3), MOVI(0, 0),
		LD(BPF_B, 0, 1, 0), EXIT());
	accepted_raw("a zero that stays zero", STI(BPF_W, 10, -4, 0), LD(BPF_B, 3, 10, -3), ALU(BPF_ADD, 1, 3), LD(BPF_DW, 0, 1, 0), EXIT());
}

static void test_spills(void)
{
	accepted("a pointer kept and taken back", ST(BPF_DW, 10, -8, 1), LD(BPF_DW, 2, 10, -8), LD(BPF_W, 0, 2, 0), EXIT());
	refused("leak", 1, "invalid size of register fill; a pointer is read back whole", "part of a kept pointer", ST(BPF_DW, 10, -8, 1),
		LD(BPF_W, 0, 10, -8), EXIT());
	refused("leak", 0, "invalid size of register spill; a pointer is kept whole, at an offset known in advance", "half a pointer kept",
		ST(BPF_W, 10, -8, 1), EXIT());
	accepted("a byte of a kept pointer overwritten", ST(BPF_DW, 10, -8, 1), STI(BPF_B, 10, -8, 1), LD(BPF_B, 0, 10, -8), EXIT());
	refused("leak", 2, "invalid read from stack R10 off -7: part of a pointer that was kept there", "and another one read", ST(BPF_DW, 10, -8, 1),
		STI(BPF_B, 10, -8, 1), LD(BPF_DW, 0, 10, -8), EXIT());
	refused("leak", 2, "invalid read from stack R10 off -8: part of a pointer that was kept there", "overwritten in the middle", ST(BPF_DW, 10, -8, 1),
		STI(BPF_H, 10, -6, 1), LD(BPF_W, 0, 10, -8), EXIT());
	refused("leak", 5, "invalid read from stack R10 off -8: part of a pointer that was kept there", "overwritten on one way only", ST(BPF_DW, 10, -8, 1), LD(BPF_W, 2, 1, 0),
		MOVI(0, 0), JMPI(BPF_JEQ, 2, 0, 2), STI(BPF_W, 10, -4, 1), LD(BPF_DW, 0, 10, -8), EXIT());
	accepted("overwritten bit by bit", ST(BPF_DW, 10, -8, 1), STI(BPF_W, 10, -4, 1), STI(BPF_H, 10, -6, 1), STI(BPF_H, 10, -8, 1), LD(BPF_DW, 0, 10, -8), EXIT());
	refused("leak", 5, "attempt to corrupt spilled pointer on stack; write at an offset known in advance", "overwritten at a variable offset",
		ST(BPF_DW, 10, -8, 1), LD(BPF_W, 0, 1, 0), ALUI(BPF_AND, 0, 7), MOV(2, 10), ALU(BPF_ADD, 2, 0), STI(BPF_B, 2, -8, 1), EXIT());
	accepted_raw("a bounded number keeps its bounds", LD(BPF_DW, 3, 1, 0), ALUI(BPF_AND, 3, 56), ST(BPF_DW, 10, -8, 3), MOVI(3, 0), LD(BPF_DW, 4, 10, -8),
		ALU(BPF_ADD, 1, 4), LD(BPF_DW, 0, 1, 0), EXIT());
	refused_raw("oob", 6, "R1 unbounded memory access, make sure to bounds check any such access", "a byte of it overwritten: bounds are gone",
		LD(BPF_W, 3, 1, 0), ALUI(BPF_AND, 3, 56), ST(BPF_W, 10, -8, 3), ST(BPF_B, 10, -7, 2), LD(BPF_W, 4, 10, -8), I(BPF_ALU64 | BPF_ADD | BPF_X, 1, 4, 0, 0),
		LD(BPF_B, 0, 1, 0), EXIT());
	refused_raw("oob", 6, "math between mem pointer and register with unbounded min value is not allowed; check it against 0 or use an unsigned type",
		"the low half checked, the whole used", LD(BPF_DW, 3, 1, 0), ST(BPF_DW, 10, -8, 3), LD(BPF_B, 4, 10, -8), JMPI(BPF_JGT, 4, 63, 4), MOVI(0, 0),
		LD(BPF_DW, 3, 10, -8), ALU(BPF_ADD, 1, 3), LD(BPF_B, 0, 1, 0), EXIT());
}

static void test_values(void)
{
	accepted("a checked look-up", LOOKUP(HASH), JMPI(BPF_JEQ, 0, 0, 1), LD(BPF_DW, 0, 0, 8), MOVI(0, 0), EXIT());
	refused("null", 6, "R0 invalid mem access 'map_value_or_null'; check it against NULL first", "an unchecked one", LOOKUP(HASH), LD(BPF_DW, 0, 0, 8), EXIT());
	refused("type", 7, "R0 invalid mem access 'scalar'", "used where it is null", LOOKUP(HASH), JMPI(BPF_JNE, 0, 0, 1), LD(BPF_DW, 0, 0, 0), MOVI(0, 0), EXIT());
	refused("null", 6, "R0 pointer arithmetic on map_value_or_null prohibited, null-check it first", "moved before the check", LOOKUP(HASH),
		ALUI(BPF_ADD, 0, 8), EXIT());
	accepted("a constant index that exists needs no check", LOOKUP(ARR), LD(BPF_DW, 0, 0, 0), EXIT());
	refused("null", 6, "R0 invalid mem access 'map_value_or_null'; check it against NULL first", "one that does not exist needs it",
		STI(BPF_DW, 10, -8, 4), MOV(2, 10), ALUI(BPF_ADD, 2, -8), MAP(1, ARR), CALL(map_lookup_elem), LD(BPF_DW, 0, 0, 0), EXIT());
	refused("oob", 7, "R0 min value is outside of the allowed memory range: off=16 size=1 of 16 bytes of a value of hash", "past the value", LOOKUP(HASH),
		JMPI(BPF_JEQ, 0, 0, 1), LD(BPF_B, 0, 0, 16), MOVI(0, 0), EXIT());
	refused("oob", 5, "R1 max value is outside of the allowed memory range: off=60 size=8 of 64 bytes of a value of data; check the index against the size",
		"an index too large by some", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), ALUI(BPF_AND, 2, 60), ALU(BPF_ADD, 1, 2), LD(BPF_DW, 0, 1, 0), EXIT());
	refused("align", 5, "misaligned value access off 0+0 size 8; a GPU reads and writes at multiples of the size only", "an index of bytes",
		LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), ALUI(BPF_AND, 2, 31), ALU(BPF_ADD, 1, 2), LD(BPF_DW, 0, 1, 0), EXIT());
	accepted("an index that is a remainder", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), ALUI(BPF_MOD, 2, 3), ALUI(BPF_MUL, 2, 24), ALU(BPF_ADD, 1, 2),
		LD(BPF_DW, 0, 1, 8), EXIT());
	accepted("of 32 bits", LD(BPF_DW, 2, 1, 128), GLOBAL(1, DATA, 0), ALU32I(BPF_MOD, 2, 8), ALUI(BPF_LSH, 2, 3), ALU(BPF_ADD, 1, 2),
		LD(BPF_DW, 0, 1, 0), EXIT());
	accepted("an index that is a quotient", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), ALU32I(BPF_DIV, 2, 0x20000000), ALUI(BPF_LSH, 2, 3), ALU(BPF_ADD, 1, 2),
		LD(BPF_DW, 0, 1, 0), EXIT());
#define REST(class, div, mul, sub) I((class) | BPF_MOV | BPF_X, 3, 2, 0, 0), I((class) | BPF_DIV | BPF_K, 3, 0, 0, div), \
	I((class) | BPF_MUL | BPF_K, 3, 0, 0, mul), I((class) | (sub) | BPF_X, 2, 3, 0, 0)
#define USE() ALUI(BPF_LSH, 2, 3), ALU(BPF_ADD, 1, 2), LD(BPF_DW, 0, 1, 0), EXIT()
	accepted("a remainder by division and multiplication", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), REST(BPF_ALU, 8, 8, BPF_SUB), USE());
	accepted("of an address", LD(BPF_DW, 2, 1, 128), GLOBAL(1, DATA, 0), REST(BPF_ALU64, 7, -7, BPF_ADD), USE());
	accepted("of the low half of one", LD(BPF_DW, 2, 1, 128), GLOBAL(1, DATA, 0), REST(BPF_ALU, 7, 7, BPF_SUB), USE());
	refused("oob", 9, "R1 max value is outside of the allowed memory range: off=64 size=8 of 64 bytes of a value of data; check the index against the size",
		"by 9", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), REST(BPF_ALU, 9, 9, BPF_SUB), USE());
	refused("oob", 9, "R1 unbounded memory access, make sure to bounds check any such access", "by one number and times another", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0),
		REST(BPF_ALU, 8, 7, BPF_SUB), USE());
	refused("oob", 10, "R1 unbounded memory access, make sure to bounds check any such access", "of another number", LD(BPF_W, 2, 1, 0), LD(BPF_W, 4, 1, 8),
		GLOBAL(1, DATA, 0), I(BPF_ALU | BPF_MOV | BPF_X, 3, 4, 0, 0), ALU32I(BPF_DIV, 3, 8), ALU32I(BPF_MUL, 3, 8), I(BPF_ALU | BPF_SUB | BPF_X, 2, 3, 0, 0), USE());
	refused("oob", 6, "R1 max value is outside of the allowed memory range: off=64 size=8 of 64 bytes of a value of data; check the index against the size",
		"a remainder that is too large", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), ALUI(BPF_MOD, 2, 9), ALUI(BPF_LSH, 2, 3), ALU(BPF_ADD, 1, 2),
		LD(BPF_DW, 0, 1, 0), EXIT());
	refused("oob", 6, "R1 min value is negative, either use unsigned index or do a if (index >=0) check.", "a signed remainder may be negative",
		LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), I(BPF_ALU64 | BPF_MOV | BPF_X, 2, 2, 32, 0), I(BPF_ALU64 | BPF_MOD | BPF_K, 2, 0, 1, 9), ALU(BPF_ADD, 1, 2),
		LD(BPF_B, 0, 1, 0), EXIT());
	accepted("an index of words", LD(BPF_W, 2, 1, 0), GLOBAL(1, DATA, 0), ALUI(BPF_AND, 2, 7), ALUI(BPF_LSH, 2, 3), ALU(BPF_ADD, 1, 2),
		ATOMIC(BPF_DW, BPF_ADD, 1, 0, 2), MOVI(0, 0), EXIT());
	refused("map", 2, "write into map forbidden, value_size=16 off=0 size=4; it is read-only", "a store to constants", GLOBAL(1, RO, 0), STI(BPF_W, 1, 0, 1), EXIT());
	refused("map", 2, "read from map forbidden, value_size=8 off=0 size=4; it is write-only", "a load from a write-only map", GLOBAL(1, WO, 0), LD(BPF_W, 0, 1, 0),
		EXIT());
	accepted_raw("a constant is known", GLOBAL(2, RO, 0), LD(BPF_W, 2, 2, 0), ALU(BPF_ADD, 1, 2), LD(BPF_B, 0, 1, 0), EXIT());
	refused_raw("oob", 4, "R1 min value is outside of the allowed memory range: off=128 size=1 of 64 bytes", "and known to be too large", GLOBAL(2, RO, 4),
		LD(BPF_W, 2, 2, 0), ALU(BPF_ADD, 1, 2), LD(BPF_B, 0, 1, 0), EXIT());
	refused("leak", 2, "R1 leaks addr into map; store numbers there, not pointers", "a pointer stored to a map", GLOBAL(2, DATA, 0), ST(BPF_DW, 2, 0, 1), EXIT());
	refused("leak", 1, "At program exit the register R0 leaks addr as return value; return a number", "a pointer returned", MOV(0, 10), EXIT());
	refused("map", 0, "no direct value access support for this map type; look the key up instead", "the value of a hash", GLOBAL(1, HASH, 0), EXIT());
	refused("map", 0, "invalid access to map value pointer, value_size=64 off=64; only arrays of one entry have direct values", "past a global", GLOBAL(1, DATA, 64),
		EXIT());
}

static void test_context(void)
{
	accepted("a field", LD(BPF_DW, 0, 1, 128), EXIT());
	is_int(case_result.fields, 1ll << EBPF_FIELD_ADDRESS, "fields that are read are reported");
	accepted("a byte of a field", LD(BPF_B, 0, 1, 133), EXIT());
	refused("ctx", 0, "invalid bpf_context access off=0 size=8; no field of struct egpu_mem covers it", "two fields at once", LD(BPF_DW, 0, 1, 0), EXIT());
	refused("ctx", 0, "invalid bpf_context access off=116 size=4; no field of struct egpu_mem covers it", "padding", LD(BPF_W, 0, 1, 116), EXIT());
	refused("ctx", 0, "invalid bpf_context access off=184 size=8; no field of struct egpu_mem covers it", "past the end", LD(BPF_DW, 0, 1, 184), EXIT());
	refused("ctx", 0, "invalid bpf_context access off=-8 size=8; no field of struct egpu_mem covers it", "before the start", LD(BPF_DW, 0, 1, -8), EXIT());
	refused("ctx", 0, "invalid bpf_context access off=0 size=4; contexts are read-only", "a store", STI(BPF_W, 1, 0, 1), EXIT());
	refused("ctx", 3, "variable ctx access of R1; read the fields at constant offsets (unroll the loop)", "a variable offset", LD(BPF_W, 2, 1, 0),
		ALUI(BPF_AND, 2, 8), ALU(BPF_ADD, 1, 2), LD(BPF_W, 0, 1, 0), EXIT());
	accepted("a constant offset in a register", ALUI(BPF_ADD, 1, 128), LD(BPF_DW, 0, 1, 0), EXIT());
	accepted_in(EBPF_CONTEXT_ENTRY, 0, "a parameter", LD(BPF_W, 0, 1, 128 + 8 * 63), EXIT());
	is_int(case_result.facts[0].offset, 632, "and the fact says which");
	refused_in(EBPF_CONTEXT_ENTRY, 0, "ctx", 0, "invalid bpf_context access off=640 size=8; no field of struct egpu_entry covers it", "the parameter after the last",
		LD(BPF_DW, 0, 1, 640), EXIT());
	refused_in(EBPF_CONTEXT_WARP, 0, "ctx", 0, "invalid bpf_context access off=136 size=4; no field of struct egpu_warp covers it", "a field of another context",
		LD(BPF_W, 0, 1, 136), EXIT());
	accepted_raw("a buffer", LD(BPF_DW, 0, 1, 56), STI(BPF_B, 1, 63, 1), EXIT());
	refused_raw("oob", 0, "R1 min value is outside of the allowed memory range: off=64 size=1 of 64 bytes", "past a buffer", LD(BPF_B, 0, 1, 64), EXIT());
	refused_in(EBPF_CONTEXT_NONE, 0, "type", 0, "R1 invalid mem access 'scalar'", "no buffer", LD(BPF_B, 0, 1, 0), EXIT());
}

static void test_pointers(void)
{
	accepted("two places of one frame compared", MOV(2, 10), ALUI(BPF_ADD, 2, -8), JMP(BPF_JEQ, 2, 10, 1), JA(1), LD(BPF_DW, 0, 10, -8), MOVI(0, 0), EXIT());
	accepted("the same place", MOV(2, 10), JMP(BPF_JNE, 2, 10, 1), JA(1), LD(BPF_DW, 0, 10, -8), MOVI(0, 0), EXIT());
	refused("leak", 0, "R1 pointer comparison prohibited; pointers may only be compared with NULL", "a context and a stack", JMP(BPF_JEQ, 1, 10, 0), MOVI(0, 0), EXIT());
	refused("leak", 2, "R1 pointer comparison prohibited; pointers may only be compared with NULL", "two values", GLOBAL(1, DATA, 0), JMP(BPF_JEQ, 1, 1, 0),
		MOVI(0, 0), EXIT());
	refused("leak", 1, "R2 pointer comparison prohibited; pointers may only be compared with NULL", "which is before the other", MOV(2, 10), JMP(BPF_JLT, 2, 10, 0), MOVI(0, 0), EXIT());
	refused("type", 0, "R1 32-bit pointer arithmetic prohibited", "half a pointer moved", ALU32I(BPF_ADD, 1, 8), EXIT());
	refused("leak", 0, "R1 partial copy of pointer; move all 64 bits", "half a pointer copied", MOV32(2, 1), EXIT());
	refused("leak", 0, "R1 pointer -= pointer prohibited", "the distance of two pointers", ALU(BPF_SUB, 1, 10), EXIT());
	refused("type", 0, "R1 bitwise operator &= on pointer prohibited", "bits of a pointer", ALUI(BPF_AND, 1, -8), EXIT());
	refused("leak", 0, "R1 pointer comparison prohibited; pointers may only be compared with NULL", "two pointers compared", JMP(BPF_JEQ, 1, 10, 0), MOVI(0, 0),
		EXIT());
	accepted("a pointer is not null", JMPI(BPF_JEQ, 1, 0, 2), MOVI(0, 0), EXIT(), LD(BPF_DW, 0, 10, -8), EXIT());
	refused_raw("oob", 1, "math between mem pointer and register with unbounded min value is not allowed; check it against 0 or use an unsigned type",
		"an unbounded index", LD(BPF_DW, 2, 1, 0), ALU(BPF_ADD, 1, 2), LD(BPF_B, 0, 1, 0), EXIT());
	refused_raw("type", 6, "same insn cannot be used with different pointers: here mem; give each kind of memory an access of its own",
		"one access of two kinds of memory", LD(BPF_W, 0, 1, 0), STI(BPF_DW, 10, -8, 1), JMPI(BPF_JNE, 0, 0, 2), MOV(1, 10), ALUI(BPF_ADD, 1, -8),
		MOVI(0, 0), LD(BPF_W, 0, 1, 0), EXIT());
}

int main(void)
{
	test_registers();
	test_stack();
	test_spills();
	test_values();
	test_context();
	test_pointers();
	arena_free(case_arena);
	return tap_done();
}
