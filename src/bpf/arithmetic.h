/* arithmetic.h - what eBPF's arithmetic gives and when its comparisons hold (RFC 9669, 4), for whoever computes with numbers: the host's
 * interpreter, the device's (live/interp.c, for which there is no library and no header of the host), and tests.
 *
 * code: of the instruction, of which operation and source are read; wide: 64 bits. Numbers of 32-bit operations come back
 * with zeros above.
 */
#ifndef EGPU_BPF_ARITHMETIC_H
#define EGPU_BPF_ARITHMETIC_H

#include <stdint.h>

/* Those of linux/bpf.h. */
enum {
	ARITH_ADD = 0x00,
	ARITH_SUB = 0x10,
	ARITH_MUL = 0x20,
	ARITH_DIV = 0x30,
	ARITH_OR = 0x40,
	ARITH_AND = 0x50,
	ARITH_LSH = 0x60,
	ARITH_RSH = 0x70,
	ARITH_NEG = 0x80,
	ARITH_MOD = 0x90,
	ARITH_XOR = 0xa0,
	ARITH_MOV = 0xb0,
	ARITH_ARSH = 0xc0,
	ARITH_END = 0xd0,
	ARITH_JEQ = 0x10,
	ARITH_JGT = 0x20,
	ARITH_JGE = 0x30,
	ARITH_JSET = 0x40,
	ARITH_JNE = 0x50,
	ARITH_JSGT = 0x60,
	ARITH_JSGE = 0x70,
	ARITH_JLT = 0xa0,
	ARITH_JLE = 0xb0,
	ARITH_JSLT = 0xc0,
	ARITH_JSLE = 0xd0,
	ARITH_FROM_REG = 0x08,
	ARITH_OPERATION = 0xf0,
};

#define ARITH_INLINE static inline __attribute__((always_inline))

/* The low `bits` with their sign. */
ARITH_INLINE uint64_t arith_extended(uint64_t v, uint32_t bits)
{
	return (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits));
}

ARITH_INLINE uint64_t arith_cut(uint64_t v, uint32_t bits)
{
	return bits == 64 ? v : v & ((UINT64_C(1) << bits) - 1);
}

/* a and b as the operation's width and sign say; by 0 the quotient is 0 and the remainder a, and nothing overflows. */
ARITH_INLINE uint64_t arith_divide(int modulo, int is_signed, int wide, uint64_t a, uint64_t b)
{
	int64_t x = wide ? (int64_t)a : (int32_t)a, y = wide ? (int64_t)b : (int32_t)b;

	if (!b)
		return modulo ? a : 0;
	if (!is_signed)
		return modulo ? a % b : a / b;
	if (y == -1)
		return modulo ? 0 : -(uint64_t)x;
	return (uint64_t)(modulo ? x % y : x / y);
}

/* END: of a, `bits` of them (imm). Bytes are turned in bswap (wide) and to big end (from_reg). */
ARITH_INLINE uint64_t arith_end(uint32_t code, int wide, uint32_t bits, uint64_t a)
{
	return arith_cut(wide || (code & ARITH_FROM_REG) ? __builtin_bswap64(a) >> (64 - bits) : a, bits);
}

/* All but END. off: the instruction's. */
ARITH_INLINE uint64_t arith_alu(uint32_t code, int wide, uint32_t off, uint64_t a, uint64_t b)
{
	uint32_t n = (uint32_t)b & (wide ? 63 : 31);
	uint64_t r;

	if (!wide) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	switch (code & ARITH_OPERATION) {
	case ARITH_ADD:
		r = a + b;
		break;
	case ARITH_SUB:
		r = a - b;
		break;
	case ARITH_MUL:
		r = a * b;
		break;
	case ARITH_DIV:
		r = arith_divide(0, off == 1, wide, a, b);
		break;
	case ARITH_MOD:
		r = arith_divide(1, off == 1, wide, a, b);
		break;
	case ARITH_OR:
		r = a | b;
		break;
	case ARITH_AND:
		r = a & b;
		break;
	case ARITH_XOR:
		r = a ^ b;
		break;
	case ARITH_LSH:
		r = a << n;
		break;
	case ARITH_RSH:
		r = a >> n;
		break;
	case ARITH_ARSH:
		r = wide ? (uint64_t)((int64_t)a >> n) : (uint64_t)(int64_t)((int32_t)a >> n);
		break;
	case ARITH_NEG:
		r = -a;
		break;
	default: /* MOV */
		r = (code & ARITH_FROM_REG) && off ? arith_extended(b, off) : b;
	}
	return wide ? r : (uint32_t)r;
}

/* Whether a conditional jump is taken. */
ARITH_INLINE int arith_holds(uint32_t code, int wide, uint64_t a, uint64_t b)
{
	int64_t x = wide ? (int64_t)a : (int32_t)a, y = wide ? (int64_t)b : (int32_t)b;

	if (!wide) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	switch (code & ARITH_OPERATION) {
	case ARITH_JEQ:
		return a == b;
	case ARITH_JNE:
		return a != b;
	case ARITH_JSET:
		return (a & b) != 0;
	case ARITH_JGT:
		return a > b;
	case ARITH_JGE:
		return a >= b;
	case ARITH_JLT:
		return a < b;
	case ARITH_JLE:
		return a <= b;
	case ARITH_JSGT:
		return x > y;
	case ARITH_JSGE:
		return x >= y;
	case ARITH_JSLT:
		return x < y;
	default: /* JSLE */
		return x <= y;
	}
}

#endif
