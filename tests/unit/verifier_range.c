/* Ranges hold every value that the operations can give, and know what compilers rely on. */
#include "verifier/range.h"
#include "tap.h"

#include <linux/bpf.h>

static uint64_t seed = 88172645463325252u;

static uint64_t next(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

/* Numbers near the places where arithmetic goes wrong. */
static uint64_t edge(void)
{
	static const uint64_t base[] = { 0, 1, 7, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
		0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff, 0xffffffff80000000, 0xffffffff00000000 };
	uint64_t r = next();
	switch (r & 3) {
	case 0:
		return next();
	case 1:
		return next() >> (r >> 8 & 63);
	default:
		return base[(r >> 8) % (sizeof(base) / sizeof(base[0]))] + (r >> 20) % 5 - 2;
	}
}

static uint64_t compute(uint8_t op, bool wide, uint64_t a, uint64_t b)
{
	unsigned n = (unsigned)b & (wide ? 63 : 31);
	uint64_t r;
	if (!wide) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	switch (op) {
	case BPF_ADD:
		r = a + b;
		break;
	case BPF_SUB:
		r = a - b;
		break;
	case BPF_MUL:
		r = a * b;
		break;
	case BPF_AND:
		r = a & b;
		break;
	case BPF_OR:
		r = a | b;
		break;
	case BPF_XOR:
		r = a ^ b;
		break;
	case BPF_LSH:
		r = a << n;
		break;
	case BPF_RSH:
		r = a >> n;
		break;
	case BPF_ARSH:
		r = wide ? (uint64_t)((int64_t)a >> n) : (uint64_t)((int32_t)a >> n);
		break;
	case BPF_NEG:
		r = -a;
		break;
	default:
		r = b;
	}
	return wide ? r : (uint32_t)r;
}

static bool holds(uint8_t op, bool wide, uint64_t a, uint64_t b)
{
	if (!wide) {
		a = (uint32_t)a;
		b = (uint32_t)b;
	}
	int64_t s = wide ? (int64_t)a : (int32_t)a, t = wide ? (int64_t)b : (int32_t)b;
	switch (op) {
	case BPF_JEQ:
		return a == b;
	case BPF_JNE:
		return a != b;
	case BPF_JSET:
		return (a & b) != 0;
	case BPF_JGT:
		return a > b;
	case BPF_JGE:
		return a >= b;
	case BPF_JLT:
		return a < b;
	case BPF_JLE:
		return a <= b;
	case BPF_JSGT:
		return s > t;
	case BPF_JSGE:
		return s >= t;
	case BPF_JSLT:
		return s < t;
	default:
		return s <= t;
	}
}

/* A walk of random operations on four numbers, each with its range: no range may lose its number. */
static int walk(void)
{
	static const uint8_t alu[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_OR, BPF_XOR, BPF_LSH, BPF_RSH, BPF_ARSH, BPF_NEG, BPF_MOV };
	static const uint8_t jmp[] = { BPF_JEQ, BPF_JNE, BPF_JSET, BPF_JGT, BPF_JGE, BPF_JLT, BPF_JLE, BPF_JSGT, BPF_JSGE, BPF_JSLT, BPF_JSLE };
	uint64_t x[4];
	struct range r[4];
	for (int i = 0; i < 4; i++) {
		x[i] = edge();
		r[i] = range_unknown();
	}
	for (int step = 0; step < 24; step++) {
		uint64_t n = next();
		int a = n & 3, b = n >> 2 & 3;
		bool wide = n >> 4 & 1;
		uint64_t k = edge();
		struct range other = r[b];
		uint64_t y = x[b];
		if ((n >> 5 & 1) || a == b) {
			y = k;
			other = range_const(k);
		}
		uint8_t op;
		bool taken;
		switch (n >> 8 & 3) {
		case 0:
			op = alu[(n >> 16) % sizeof(alu)];
			if (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH) {
				y &= wide ? 63 : 31;
				other = n >> 6 & 1 ? range_const(y) : other;
				if (!(n >> 6 & 1))
					y = n >> 5 & 1 || a == b ? k : x[b];
			}
			range_alu(op, wide, &r[a], &other);
			x[a] = compute(op, wide, x[a], y);
			break;
		case 1:
			op = 1u << (n >> 16 & 3);
			if (n >> 21 & 1) {
				int width = 16 << (n >> 16 & 3) % 3;
				bool swap = n >> 22 & 1;
				range_endian(&r[a], width, swap);
				x[a] = (swap ? __builtin_bswap64(x[a]) >> (64 - width) : width == 64 ? x[a] : x[a] & ((1ull << width) - 1));
			} else if (n >> 20 & 1) {
				range_zext(&r[a], op);
				x[a] = op == 8 ? x[a] : x[a] & ((1ull << 8 * op) - 1);
			} else {
				range_sext(&r[a], op);
				x[a] = op == 8 ? x[a] : (uint64_t)((int64_t)(x[a] << (64 - 8 * op)) >> (64 - 8 * op));
			}
			break;
		default:
			op = jmp[(n >> 16) % sizeof(jmp)];
			taken = holds(op, wide, x[a], y);
			if (!range_branch(op, wide, taken, &r[a], &other))
				return 1;
			if (!range_has(&other, y))
				return 2;
			if (a != b && y == x[b] && !(n >> 5 & 1))
				r[b] = other;
		}
		if (!range_has(&r[a], x[a]))
			return 3;
	}
	return 0;
}

static void test_sound(void)
{
	int bad = 0, first = 0;
	for (int i = 0; i < 300000; i++) {
		int w = walk();
		bad += w != 0;
		if (w && !first)
			first = w;
	}
	is_int(bad, 0, "no random walk leaves its ranges (first failure: %d)", first);
}

static struct range less_than(uint64_t n)
{
	struct range r = range_unknown(), k = range_const(n);
	range_branch(BPF_JLT, true, true, &r, &k);
	return r;
}

static void test_precise(void)
{
	struct range r = less_than(48), k = range_const(8);
	ok(r.b64.umin == 0 && r.b64.umax == 47 && r.b64.smax == 47 && r.b32.umax == 47, "x < 48");
	range_alu(BPF_MUL, true, &r, &k);
	ok(r.b64.umax == 376 && tnum_aligned(r.bits, 0, 8) && !tnum_aligned(r.bits, 4, 8), "times 8: bound and alignment");
	r = range_unknown();
	k = range_const(15);
	range_branch(BPF_JSGT, true, false, &r, &k);
	k = range_const(0);
	range_branch(BPF_JSLT, true, false, &r, &k);
	ok(r.b64.umax == 15, "0 <= x <= 15, signed");
	r = range_unknown();
	range_zext(&r, 4);
	k = range_const(9);
	range_branch(BPF_JGT, false, false, &r, &k);
	ok(r.b64.umax == 9, "a 32-bit comparison bounds a 32-bit number");
	r = range_unknown();
	range_branch(BPF_JGT, false, false, &r, &k);
	ok(r.b64.umax == UINT64_MAX - 0xffffffff + 9 && r.b32.umax == 9, "but only half of a 64-bit one");
	r = range_unknown();
	k = range_const(32);
	range_alu(BPF_LSH, true, &r, &k);
	range_alu(BPF_ARSH, true, &r, &k);
	ok(r.b64.smin == INT32_MIN && r.b64.smax == INT32_MAX, "shifts up and down extend a sign");
	r = less_than(6);
	k = range_const(5);
	ok(!range_branch(BPF_JGT, true, true, &r, &k), "x < 6 and x > 5 cannot be");
	r = range_const(4);
	k = range_const(4);
	ok(!range_branch(BPF_JNE, true, true, &r, &k), "4 != 4 cannot be");
	struct range wide = less_than(100), narrow = less_than(10);
	r = less_than(256);
	range_endian(&r, 16, true);
	ok(r.b64.umax == 0xff00 && !(r.bits.mask & 0xff), "a byte at the other end of two");
	ok(range_within(&wide, &narrow) && !range_within(&narrow, &wide), "one range within another");
}

int main(void)
{
	test_sound();
	test_precise();
	return tap_done();
}
