/* range.h - what is known about a 64-bit number: bits, and signed and unsigned bounds of it and of its low half.
 *
 * A range stands for a set of values; every operation's result holds all values that its operands can give. Bounds
 * of the low 32 bits are kept beside those of the whole because compilers compare w-registers.
 */
#ifndef EGPU_VERIFIER_RANGE_H
#define EGPU_VERIFIER_RANGE_H

#include <stdbool.h>
#include <stdint.h>

/* A bit set in mask is unknown; elsewhere the bit is that of value. value & mask == 0. */
struct tnum {
	uint64_t value, mask;
};

/* Of 64-bit values, or of 32-bit values widened by their sign (smin, smax) or by zeros (umin, umax). */
struct bounds {
	int64_t smin, smax;
	uint64_t umin, umax;
};

struct range {
	struct tnum bits;
	struct bounds b64, b32;
};

struct range range_unknown(void);
struct range range_const(uint64_t value);
static inline bool range_is_const(const struct range *r)
{
	return !r->bits.mask;
}
static inline bool range_is_value(const struct range *r, uint64_t value)
{
	return !r->bits.mask && r->bits.value == value;
}

/* The low `bytes` bytes, widened with zeros or with their sign. bytes: 1, 2, 4 or 8. */
void range_zext(struct range *r, uint32_t bytes);
void range_sext(struct range *r, uint32_t bytes);
/* The low 16, 32 or 64 bits, their bytes in reverse order if `swap`, widened with zeros. */
void range_endian(struct range *r, int width, bool swap);
/* dst = dst op src; op is a BPF_ALU code (BPF_ADD, ...) but DIV and MOD; without wide, on 32 bits with the upper half cleared.
 * Shift counts are masked to the width, as executors do. */
void range_alu(uint8_t op, bool wide, struct range *dst, const struct range *src);
/* dst = dst / src, or what is left: by 0 the quotient is 0 and the dividend is left. */
void range_divide(bool modulo, bool is_signed, bool wide, struct range *dst, const struct range *src);
/* Narrows a and b to what holds when `a op b` is `taken` (op: BPF_JEQ, ...). False: it cannot be. */
bool range_branch(uint8_t op, bool wide, bool taken, struct range *a, struct range *b);
/* Lets each bound and bit learn from the others. False: the set is empty. */
bool range_sync(struct range *r);
/* Every value of cur is one of old. */
bool range_within(const struct range *old, const struct range *cur);
bool range_equal(const struct range *a, const struct range *b);
bool range_has(const struct range *r, uint64_t value);

/* off added to the bits is a multiple of size (a power of two). */
bool tnum_aligned(struct tnum t, int64_t off, uint32_t size);

#endif
