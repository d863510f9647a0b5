/* generate.c - see generate.h. r6 holds a pointer or a number, r7 to r9 numbers; r0 to r5 are scratch. */
#include "generate.h"

#include "bpf/helpers.h"
#include "bpf/insns.h"

#include <string.h>

enum { MAX_CODE = GENERATE_MAX, ENTRIES = GENERATE_ENTRIES };
enum { ARRAY = GENERATE_ARRAY, HASH = GENERATE_HASH, DATA = GENERATE_DATA, RING = GENERATE_RING };

static uint64_t seed;

static uint32_t draw(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 16) % n);
}

static bool chance(uint32_t percent)
{
	return draw(100) < percent;
}

/* Maps of the programs. Values lie at 8-byte multiples, with bytes between them that belong to nobody. */
const struct ebpf_map generate_maps[] = {
	{ .name = "array", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 48, .max_entries = ENTRIES },
	{ .name = "hash", .type = BPF_MAP_TYPE_HASH, .key_size = 8, .value_size = 20, .max_entries = ENTRIES, .id = 1 },
	{ .name = "data", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 64, .max_entries = 1, .id = 2 },
	{ .name = "ring", .type = BPF_MAP_TYPE_RINGBUF, .max_entries = 4096, .id = 3 },
};

static struct bpf_insn code[MAX_CODE];
static uint32_t n_code;

static void emit(uint8_t op, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	if (n_code < MAX_CODE)
		code[n_code++] = (struct bpf_insn){ .code = op, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm };
}

static int32_t edge(void)
{
	static const int32_t base[] = { 0, 1, 2, 4, 7, 8, 15, 16, 31, 32, 40, 47, 48, 56, 63, 64, 127, 128, 255, 256, 0x7fff, 0xffff, 0x7fffffff, -0x7fffffff - 1 };
	int32_t v = base[draw(sizeof(base) / sizeof(base[0]))];
	uint32_t r = draw(8);
	v = r == 0 ? (int32_t)((uint32_t)v + 1) : r == 1 ? (int32_t)((uint32_t)v - 1) : v;
	return draw(8) ? v : (int32_t)(0u - (uint32_t)v);
}

static uint8_t number(void)
{
	return (uint8_t)(7 + draw(3));
}

static const uint8_t sizes[4] = { BPF_B, BPF_H, BPF_W, BPF_DW };

static void emit_call(int32_t helper)
{
	emit(BPF_JMP | BPF_CALL, 0, 0, 0, helper);
}

static void emit_map(uint8_t dst, int32_t map, bool value, int32_t off)
{
	emit(BPF_LD | BPF_IMM | BPF_DW, dst, value ? BPF_PSEUDO_MAP_VALUE : BPF_PSEUDO_MAP_FD, 0, map);
	emit(0, 0, 0, 0, value ? off : 0);
}

static void gen_alu(void)
{
	static const uint8_t op[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_AND, BPF_LSH, BPF_RSH, BPF_RSH, BPF_NEG, BPF_MOD, BPF_XOR, BPF_MOV, BPF_ARSH,
		BPF_END };
	uint8_t o = op[draw(sizeof(op))], class = chance(60) ? BPF_ALU64 : BPF_ALU;
	int32_t k = edge();
	if (o == BPF_NEG) {
		emit(class | o, number(), 0, 0, 0);
	} else if (o == BPF_END) {
		emit(BPF_ALU | o | (chance(50) ? BPF_TO_BE : 0), number(), 0, 0, 16 << draw(3));
	} else if (chance(40)) {
		int16_t off = o == BPF_MOV && chance(30) ? (int16_t)(8 << draw(2)) : (o == BPF_DIV || o == BPF_MOD) && chance(50) ? 1 : 0;
		emit(class | o | BPF_X, number(), number(), off, 0);
	} else {
		if (o == BPF_LSH || o == BPF_RSH || o == BPF_ARSH)
			k = (int32_t)draw(class == BPF_ALU64 ? 64 : 32);
		if ((o == BPF_DIV || o == BPF_MOD) && !k)
			k = 3;
		emit(class | o | BPF_K, number(), 0, 0, k);
	}
}

/* Bounds a number the way compilers do: a mask, or a branch to the end over the rest. Returns the branch to patch, or 0. */
static uint32_t gen_bound(uint8_t reg, int32_t limit)
{
	static const uint8_t op[] = { BPF_JGT, BPF_JGE, BPF_JSGT, BPF_JLT, BPF_JSLT, BPF_JNE, BPF_JSET };
	if (chance(40)) {
		emit((chance(50) ? BPF_ALU64 : BPF_ALU) | BPF_AND | BPF_K, reg, 0, 0, chance(95) ? limit - 1 : edge());
		return 0;
	}
	if (chance(25)) { /* a remainder; a signed one may be negative, and a 64-bit one of anything is not known to us */
		bool wide = chance(50);
		if (wide && chance(70))
			emit(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
		emit((wide ? BPF_ALU64 : BPF_ALU) | BPF_MOD | BPF_K, reg, 0, chance(10), limit);
		return 0;
	}
	if (chance(20)) { /* a remainder as compilers write it; sometimes not quite */
		uint8_t class = chance(50) ? BPF_ALU64 : BPF_ALU, other = chance(90) ? class : BPF_ALU;
		bool negative = chance(30);
		int32_t by = chance(90) ? limit : edge();
		emit((chance(80) ? class : other) | BPF_MOV | BPF_X, 0, reg, 0, 0);
		if (chance(10))
			emit(BPF_ALU64 | BPF_ADD | BPF_K, chance(50) ? 0 : reg, 0, 0, 1);
		if (chance(10)) /* what is copied now is another number */
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 4, reg, 0, 0);
		emit(class | BPF_DIV | BPF_K, 0, 0, chance(15), by ? by : 1);
		emit(other | BPF_MUL | BPF_K, 0, 0, 0, chance(95) ? (negative ? (int32_t)(0u - (uint32_t)by) : by) : edge());
		if (chance(5))
			emit(BPF_ALU | BPF_MOV | BPF_X, 0, 0, 0, 0);
		emit((chance(90) ? class : BPF_ALU64) | (negative ? BPF_ADD : BPF_SUB) | BPF_X, reg, 0, 0, 0);
		return 0;
	}
	if (chance(10)) { /* a quotient of 32 bits */
		emit(BPF_ALU | BPF_DIV | BPF_K, reg, 0, 0, (int32_t)(UINT32_MAX / (uint32_t)limit / 2 + draw(2)) );
		if (chance(90))
			emit(BPF_ALU | BPF_RSH | BPF_K, reg, 0, 0, 1 + (limit < 4));
		return 0;
	}
	if (chance(20) && limit > 1) {
		emit(BPF_ALU64 | BPF_RSH | BPF_K, reg, 0, 0, 64 - (31 - __builtin_clz((uint32_t)limit)));
		return 0;
	}
	bool narrow = chance(30);
	uint8_t how = op[draw(chance(85) ? 2 : sizeof(op))];
	if (narrow && chance(80))
		emit(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
	emit((narrow ? BPF_JMP32 : BPF_JMP) | how | BPF_K, reg, 0, 0, chance(90) ? limit - (how == BPF_JGT) : chance(50) ? limit - (int32_t)draw(9) : edge());
	return n_code - 1;
}

/* A load, store or atomic at r1, of which `bytes` may be touched; r1 is a multiple of `align`. */
static void gen_touch(int32_t bytes, int32_t align)
{
	uint8_t size = sizes[draw(4)];
	while (chance(95) && ((int32_t)ebpf_insn_bytes(size) > align || (int32_t)ebpf_insn_bytes(size) > bytes) && align && bytes)
		size = sizes[draw(4)];
	int32_t step = (int32_t)ebpf_insn_bytes(size), room = bytes > step ? bytes / step : 1;
	int16_t off = (int16_t)(chance(95) ? (int32_t)draw((uint32_t)room) * step : edge());
	bool wide = step >= 4;
	switch (draw(wide ? 5 : 4)) {
	case 0:
	case 1:
		emit(BPF_LDX | (size != BPF_DW && chance(20) ? EBPF_MEMSX : BPF_MEM) | size, number(), 1, off, 0);
		break;
	case 2:
		emit(BPF_ST | BPF_MEM | size, 1, 0, off, edge());
		break;
	case 3:
		emit(BPF_STX | BPF_MEM | size, 1, chance(98) ? number() : 6, off, 0);
		break;
	default: {
		static const int32_t op[] = { BPF_ADD, BPF_ADD | BPF_FETCH, BPF_AND, BPF_OR | BPF_FETCH, BPF_XOR, BPF_XCHG, BPF_CMPXCHG };
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 0, number(), 0, 0);
		emit(BPF_STX | BPF_ATOMIC | size, 1, number(), off, op[draw(7)]);
	}
	}
}

/* The same from behind: r1 is moved to the end of its `bytes` or a little before it, and touched at an offset below 0. */
static void gen_touch_end(int32_t bytes)
{
	uint8_t size = sizes[draw(4)];
	int32_t step = (int32_t)ebpf_insn_bytes(size), back = step * (1 + (int32_t)draw(3));
	int32_t at = chance(80) ? bytes : bytes - step * (int32_t)draw(2);
	emit(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, at);
	int16_t off = (int16_t)(chance(92) ? bytes - at - back : edge());
	if (at % step && chance(90))
		size = BPF_B;
	if (chance(60))
		emit(BPF_LDX | BPF_MEM | size, number(), 1, off, 0);
	else
		emit(BPF_STX | BPF_MEM | size, 1, number(), off, 0);
}

static void patch_here(uint32_t branch)
{
	if (branch && branch < n_code)
		code[branch].off = (int16_t)(n_code - branch - 1);
}

/* r1 = some memory, perhaps moved by a number; then it is touched. */
static void gen_access(void)
{
	uint32_t bound = 0, kind = draw(4);
	int32_t bytes = kind == 0 ? 64 : kind == 1 ? 8 * (1 + (int32_t)draw(6)) : chance(70) ? 16 : 48, first = 0;
	int32_t shift = (int32_t)draw(4), align = 8;
	uint8_t index = 0;
	if (chance(60)) {
		index = number();
		if (chance(60)) {
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 5, index, 0, 0);
			index = 5;
		}
		bound = gen_bound(index, bytes >> shift ? bytes >> shift : 1);
		if (shift && chance(70))
			emit(BPF_ALU64 | BPF_LSH | BPF_K, index, 0, 0, shift);
		else if (shift)
			emit(BPF_ALU64 | BPF_MUL | BPF_K, index, 0, 0, 1 << shift);
		align = 1 << shift;
	}
	if (kind == 0) {
		first = index || chance(50) ? 0 : (int32_t)draw(8) * 8;
		emit_map(1, DATA, true, first);
	} else if (kind == 1) {
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 10, 0, 0);
		emit(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, -bytes);
	} else {
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0);
	}
	if (index)
		emit(BPF_ALU64 | (chance(95) ? BPF_ADD : BPF_SUB) | BPF_X, 1, index, 0, 0);
	if (!index && chance(30))
		gen_touch_end(bytes - first);
	else
		gen_touch(index ? chance(90) ? align : 8 : bytes - first, align);
	patch_here(bound);
}

static void gen_key(uint8_t reg, int32_t map)
{
	int16_t at = (int16_t)(map == HASH ? -8 : -4);
	if (map == HASH || chance(30))
		emit(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, (int32_t)draw(ENTRIES + 3));
	if (chance(60))
		emit(BPF_STX | BPF_MEM | BPF_W, 10, number(), at, 0);
	else
		emit(BPF_ST | BPF_MEM | BPF_W, 10, 0, at, (int32_t)draw(ENTRIES + 1));
	emit(BPF_ALU64 | BPF_MOV | BPF_X, reg, 10, 0, 0);
	emit(BPF_ALU64 | BPF_ADD | BPF_K, reg, 0, 0, at);
}

/* r6 = a value, mostly with a check; where the check fails, a direct value takes its place. */
static void gen_lookup(void)
{
	int32_t map = chance(60) ? ARRAY : HASH;
	gen_key(2, map);
	emit_map(1, map, false, 0);
	emit_call(BPF_FUNC_map_lookup_elem);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 6, 0, 0, 0);
	if (chance(96)) {
		emit(BPF_JMP | BPF_JNE | BPF_K, chance(50) ? 0 : 6, 0, 2, 0);
		emit_map(6, DATA, true, 0);
	}
}

static void gen_helper(void)
{
	int32_t map = chance(50) ? ARRAY : HASH;
	uint32_t bound = 0;
	switch (draw(4)) {
	case 0:
		emit_call(BPF_FUNC_get_prandom_u32);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, number(), 0, 0, 0);
		break;
	case 1:
		gen_key(2, map);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 3, 6, 0, 0);
		emit(BPF_ALU64 | BPF_MOV | (chance(50) ? BPF_X : BPF_K), 4, number(), 0, 0);
		code[n_code - 1].src_reg = BPF_SRC(code[n_code - 1].code) == BPF_X ? 8 : 0;
		emit_map(1, map, false, 0);
		emit_call(chance(70) ? BPF_FUNC_map_update_elem : BPF_FUNC_map_delete_elem);
		break;
	case 2:
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 3, number(), 0, 0);
		bound = gen_bound(3, 16);
		emit(BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, 1);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 2, chance(50) ? 6 : 10, 0, 0);
		if (code[n_code - 1].src_reg == 10)
			emit(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, chance(90) ? -40 : edge());
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, 0);
		emit_map(1, RING, false, 0);
		emit_call(BPF_FUNC_ringbuf_output);
		patch_here(bound);
		break;
	default: {
		uint32_t branch;
		int32_t bytes = 8 + 8 * (int32_t)draw(3);
		emit_map(1, RING, false, 0);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, bytes);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 0);
		emit_call(BPF_FUNC_ringbuf_reserve);
		emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 0, 0);
		branch = n_code - 1;
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 0, 0, 0);
		emit(BPF_STX | BPF_MEM | BPF_DW, 1, number(), 0, 0);
		if (chance(70)) {
			gen_touch(bytes, 8);
		} else { /* from the end, and back for the submission */
			emit(BPF_STX | BPF_MEM | BPF_DW, 10, 0, -64, 0);
			gen_touch_end(bytes);
			emit(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -64, 0);
		}
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0);
		if (chance(98))
			emit_call(chance(50) ? BPF_FUNC_ringbuf_submit : BPF_FUNC_ringbuf_discard);
		patch_here(branch);
	}
	}
}

/* A number is kept whole or in part, part of it is written over, and some of it is read. */
static void gen_spill(void)
{
	static const int16_t off[] = { -8, -16, -24, -32, -40, -48 };
	int16_t at = off[draw(6)];
	uint8_t whole = sizes[chance(70) ? 3 : draw(4)], part = sizes[draw(3)], back = sizes[chance(40) ? 3 : draw(4)];
	int16_t over = (int16_t)(ebpf_insn_bytes(part) * draw(8 / ebpf_insn_bytes(part)));
	int16_t from = chance(60) ? 0 : (int16_t)(ebpf_insn_bytes(back) * draw(8 / ebpf_insn_bytes(back)));
	uint32_t bound = chance(50) ? gen_bound(number(), 1 << draw(7)) : 0, branch = 0;
	emit(BPF_STX | BPF_MEM | whole, 10, number(), at, 0);
	if (chance(40)) { /* on one way only */
		emit(BPF_JMP | BPF_JGT | BPF_K, number(), 0, 0, edge());
		branch = n_code - 1;
	}
	if (chance(70))
		emit(chance(50) ? BPF_STX | BPF_MEM | part : BPF_ST | BPF_MEM | part, 10, 0, (int16_t)(at + over), 0);
	if (BPF_CLASS(code[n_code - 1].code) == BPF_STX)
		code[n_code - 1].src_reg = number();
	patch_here(branch);
	emit(BPF_LDX | (back != BPF_DW && chance(20) ? EBPF_MEMSX : BPF_MEM) | back, number(), 10, (int16_t)(at + from), 0);
	patch_here(bound);
}

static void gen_stack(void)
{
	static const int16_t off[] = { -8, -16, -24, -32, -40, -48 };
	int16_t at = off[draw(6)];
	uint8_t size = sizes[draw(4)];
	int16_t sub = chance(50) ? 0 : (int16_t)(ebpf_insn_bytes(size) * draw(8 / ebpf_insn_bytes(size)));
	if (chance(12)) { /* the last one is where the pointer stays */
		emit(BPF_STX | BPF_MEM | BPF_DW, 10, 6, chance(90) ? -64 : at, 0);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 6, 0, 0, 0);
		gen_alu();
		emit(BPF_LDX | BPF_MEM | BPF_DW, 6, 10, chance(95) ? -64 : at, 0);
	}
	else if (chance(50))
		emit(BPF_LDX | BPF_MEM | size, number(), 10, (int16_t)(at + sub), 0);
	else if (chance(50))
		emit(BPF_STX | BPF_MEM | size, 10, number(), (int16_t)(at + sub), 0);
	else
		emit(BPF_ST | BPF_MEM | size, 10, 0, (int16_t)(at + sub), chance(60) ? 0 : edge());
}

/* Marks in the immediate of what refers to a function; linked at the end. */
enum { TO_CALLED = -1, TO_LOOPED = -2, TO_ELEMENT = -3 };

/* bpf_loop or bpf_for_each_map_elem, handing over five slots of the stack, or nothing. */
static void gen_callback(void)
{
	bool each = chance(40);
	uint32_t bound = 0;
	if (each) {
		emit_map(1, chance(50) ? ARRAY : HASH, false, 0);
	} else if (chance(60)) {
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, chance(90) ? (int32_t)draw(20) : edge());
	} else {
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, number(), 0, 0);
		bound = gen_bound(1, 1 << draw(6));
	}
	emit(BPF_LD | BPF_IMM | BPF_DW, 2, BPF_PSEUDO_FUNC, 0, each ? TO_ELEMENT : TO_LOOPED);
	emit(0, 0, 0, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 3, 10, 0, 0);
	emit(BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, chance(95) ? -40 : -8 * (int32_t)draw(9));
	if (chance(15))
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, chance(98) ? 0 : 1);
	emit_call(each ? BPF_FUNC_for_each_map_elem : BPF_FUNC_loop);
	if (chance(60))
		emit(BPF_ALU64 | BPF_MOV | BPF_X, number(), 0, 0, 0);
	patch_here(bound);
}

static void gen_block(int depth);

static void gen_branch(int depth)
{
	static const uint8_t op[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT, BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE };
	uint8_t class = chance(60) ? BPF_JMP : BPF_JMP32, o = op[draw(sizeof(op))];
	if (chance(30))
		emit(class | o | BPF_X, number(), number(), 0, 0);
	else
		emit(class | o | BPF_K, number(), 0, 0, edge());
	uint32_t branch = n_code - 1;
	gen_block(depth + 1);
	if (chance(50)) {
		emit(BPF_JMP | BPF_JA, 0, 0, 0, 0);
		uint32_t over = n_code - 1;
		patch_here(branch);
		gen_block(depth + 1);
		patch_here(over);
	} else {
		patch_here(branch);
	}
}

static void gen_loop(int depth)
{
	uint8_t counter = number();
	bool kept = chance(50);
	emit(BPF_ALU64 | BPF_MOV | BPF_K, counter, 0, 0, 0);
	uint32_t head = n_code;
	if (kept)
		emit(BPF_STX | BPF_MEM | BPF_DW, 10, counter, -56, 0);
	gen_block(depth + 1);
	if (kept)
		emit(BPF_LDX | BPF_MEM | BPF_DW, counter, 10, -56, 0);
	emit((chance(70) ? BPF_ALU64 : BPF_ALU) | BPF_ADD | BPF_K, counter, 0, 0, 1 + (int32_t)draw(3));
	emit((chance(70) ? BPF_JMP : BPF_JMP32) | (chance(80) ? BPF_JLT : BPF_JNE) | BPF_K, counter, 0, (int16_t)((int32_t)head - (int32_t)n_code - 1), 2 + (int32_t)draw(7));
}

static void gen_block(int depth)
{
	for (uint32_t n = 1 + draw(4); n--;) {
		uint32_t kind = draw(100);
		if (kind < 30)
			gen_alu();
		else if (kind < 55)
			gen_access();
		else if (kind < 60)
			gen_stack();
		else if (kind < 65)
			gen_spill();
		else if (kind < 72)
			gen_lookup();
		else if (kind < 80)
			gen_helper();
		else if (kind < 82)
			gen_callback();
		else if (kind < 85)
			emit(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, -1); /* linked at the end */
		else if (depth < 3 && kind < 95)
			gen_branch(depth);
		else if (depth < 2)
			gen_loop(depth);
	}
}

/* r1 = a pointer, r2 and r3 numbers. */
static void gen_called(void)
{
	uint32_t bound = gen_bound(2, 32);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 7, 2, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 8, 3, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_K, 9, 0, 0, edge());
	if (chance(40)) {
		emit(BPF_ALU64 | BPF_AND | BPF_K, 2, 0, 0, 4);
		emit(BPF_ALU64 | BPF_ADD | BPF_X, 1, 2, 0, 0);
	}
	gen_touch(8, 4);
	if (chance(50))
		gen_touch(8, 8);
	patch_here(bound);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 0, chance(70) ? 3 : 2, 0, 0);
	emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

/* A word of what was handed over is changed by the index: what the next call finds there is another value. */
static void gen_carry(uint8_t ctx)
{
	int16_t at = (int16_t)(8 * draw(5));
	emit(BPF_LDX | BPF_MEM | BPF_DW, 9, ctx, at, 0);
	if (chance(50))
		gen_alu();
	if (chance(40)) { /* or only sometimes */
		emit(BPF_JMP | (chance(50) ? BPF_JGT : BPF_JSET) | BPF_K, number(), 0, 1, edge());
		emit(BPF_ALU64 | BPF_ADD | BPF_K, 9, 0, 0, chance(80) ? 1 + (int32_t)draw(8) : edge());
	}
	if (chance(30)) { /* as an index of what was handed over */
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 9, 0, 0);
		uint32_t bound = gen_bound(1, 5);
		emit(BPF_ALU64 | BPF_LSH | BPF_K, 1, 0, 0, 3);
		emit(BPF_ALU64 | BPF_ADD | BPF_X, 1, ctx, 0, 0);
		gen_touch(8, 8);
		patch_here(bound);
	}
	emit(BPF_STX | BPF_MEM | sizes[chance(80) ? 3 : draw(4)], ctx, number(), at, 0);
}

/* What the functions of helpers have in common: r6 = what was handed over, r7 to r9 numbers. r1 points to memory. */
static void gen_called_back(int32_t bytes)
{
	uint32_t branch = 0;
	if (chance(15)) { /* it may be null: no pointer can be told from it, so nothing is done with it */
		gen_touch(bytes, 4);
	} else {
		gen_carry(6);
		if (chance(40))
			gen_carry(6);
		if (chance(40))
			gen_alu();
		if (chance(40)) {
			emit(BPF_JMP | BPF_JEQ | BPF_K, number(), 0, 0, edge());
			branch = n_code - 1;
			gen_alu();
			patch_here(branch);
		}
	}
	emit(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
	if (chance(30)) {
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 0, number(), 0, 0);
		emit(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, chance(97) ? 1 : 3);
	}
	emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

/* r1 = the index, r2 = what was handed over. */
static void gen_looped(void)
{
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 6, 2, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 7, 1, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 8, 1, 0, 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_K, 9, 0, 0, edge());
	emit_map(1, DATA, true, 0);
	if (chance(60)) {
		uint32_t bound = gen_bound(8, 8);
		emit(BPF_ALU64 | BPF_LSH | BPF_K, 8, 0, 0, 3);
		emit(BPF_ALU64 | BPF_ADD | BPF_X, 1, 8, 0, 0);
		gen_touch(8, 8);
		patch_here(bound);
	}
	gen_called_back(64);
}

/* r1 = the map, r2 = a key, r3 = its value, r4 = what was handed over. */
static void gen_element(void)
{
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 6, 4, 0, 0);
	emit(BPF_LDX | BPF_MEM | BPF_W, 7, 2, (int16_t)(chance(95) ? 0 : 4), 0);
	emit(BPF_LDX | BPF_MEM | BPF_W, 8, 3, (int16_t)(4 * draw(5)), 0);
	emit(BPF_ALU64 | BPF_MOV | BPF_K, 9, 0, 0, edge());
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 3, 0, 0);
	gen_touch(chance(95) ? 20 : 48, 4);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 3, 0, 0);
	gen_called_back(20);
}

/* Every reference to a function is linked to one that is emitted here; functions that nobody calls would be refused. */
static void gen_functions(void)
{
	static void (*const gen[])(void) = { gen_called, gen_called, gen_looped, gen_looped, gen_element };
	static const int32_t kind[] = { TO_CALLED, TO_CALLED, TO_LOOPED, TO_LOOPED, TO_ELEMENT };
	uint32_t main_end = n_code, calls = 0;
	for (int f = 0; f < 5; f++) {
		uint32_t start = n_code, used = 0;
		for (uint32_t k = 0; k < main_end; k++) {
			bool call = code[k].code == (BPF_JMP | BPF_CALL) && code[k].src_reg == BPF_PSEUDO_CALL;
			bool func = code[k].code == (BPF_LD | BPF_IMM | BPF_DW) && code[k].src_reg == BPF_PSEUDO_FUNC;
			bool last = f == 4 || kind[f] != kind[f + 1];
			if ((!call && !func) || code[k].imm != kind[f] || (!last && (calls++ & 1)))
				continue;
			code[k].imm = (int32_t)(start - k - 1);
			used++;
		}
		if (used)
			gen[f]();
	}
}

/* r1 to r3 are set before each call of a function. */
static void before_calls(void)
{
	struct bpf_insn old[MAX_CODE];
	uint32_t n = n_code, at[MAX_CODE + 1], out = 0;
	memcpy(old, code, sizeof(old));
	for (uint32_t k = 0; k < n; k++) {
		at[k] = out;
		out += old[k].code == (BPF_JMP | BPF_CALL) && old[k].src_reg == BPF_PSEUDO_CALL ? 5 : 1;
	}
	at[n] = out;
	n_code = 0;
	for (uint32_t k = 0; k < n; k++) {
		uint8_t class = BPF_CLASS(old[k].code);
		if (old[k].code == (BPF_JMP | BPF_CALL) && old[k].src_reg == BPF_PSEUDO_CALL) {
			bool stack = chance(40);
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, stack ? 10 : 6, 0, 0);
			emit(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, stack ? -40 : 0);
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 2, number(), 0, 0);
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 3, number(), 0, 0);
		} else if ((class == BPF_JMP || class == BPF_JMP32) && BPF_OP(old[k].code) != BPF_CALL && BPF_OP(old[k].code) != BPF_EXIT) {
			uint32_t to = (uint32_t)((int32_t)k + 1 + old[k].off);
			old[k].off = to <= n && out < MAX_CODE ? (int16_t)((int32_t)at[to] - (int32_t)at[k] - 1) : 0;
		}
		if (n_code < MAX_CODE)
			code[n_code++] = old[k];
	}
}

static void generate_code(bool raw)
{
	n_code = 0;
	for (int16_t off = -8; off >= -64; off = (int16_t)(off - 8))
		if (chance(95))
			emit(BPF_ST | BPF_MEM | BPF_DW, 10, 0, off, edge());
	for (uint8_t r = 7; r <= 9; r++)
		emit(raw ? BPF_LDX | BPF_MEM | BPF_DW : BPF_LDX | BPF_MEM | BPF_W, r, 1, (int16_t)(8 * (r - 7)), 0);
	if (raw)
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);
	else
		emit_map(6, DATA, true, 0);
	gen_block(0);
	gen_block(0);
	gen_block(0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 0, number(), 0, 0);
	emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	before_calls();
	gen_functions();
}

void generate(uint64_t from, struct generated *out)
{
	seed = from * 0x9e3779b97f4a7c15u | 1;
	draw(2);
	bool raw = chance(60);
	generate_code(raw);
	memcpy(out->code, code, sizeof(out->code));
	out->program = (struct ebpf_program){ .name = "random", .insns = out->code, .n_insns = n_code,
		.context = raw ? EBPF_CONTEXT_NONE : EBPF_CONTEXT_MEM, .memory_bytes = raw ? GENERATE_MEMORY : 0, .maps = generate_maps,
		.n_maps = GENERATE_MAPS };
}

