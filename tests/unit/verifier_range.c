/* Ranges hold every value that the operations can give, and know what compilers rely on. */
#include "verifier/range.h"
#include "bpf/arithmetic.h"
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
		switch (n >> 8 & 7) {
		case 4:
			range_divide(n >> 16 & 1, n >> 17 & 1, wide, &r[a], &other);
			x[a] = arith_alu(n >> 16 & 1 ? BPF_MOD : BPF_DIV, wide, n >> 17 & 1, x[a], y);
			break;
		case 0:
		case 5:
			op = alu[(n >> 16) % sizeof(alu)];
			if (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH) {
				y &= wide ? 63 : 31;
				other = n >> 6 & 1 ? range_const(y) : other;
				if (!(n >> 6 & 1))
					y = n >> 5 & 1 || a == b ? k : x[b];
			}
			range_alu(op, wide, &r[a], &other);
			x[a] = arith_alu(op, wide, 0, x[a], y);
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
			taken = arith_holds(op, wide, x[a], y);
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

/* Every operation on every pair of short intervals near the places where numbers turn over, against every pair of values: none is
 * lost. Of divisions by one known number the ends are the true ones as well. */

enum { SPAN = 4 };
static const uint64_t places[] = { 0, 0x80000000, 0x100000000, 0x8000000000000000, 0x18, 1ull << 40 };
enum { PLACES = sizeof(places) / sizeof(places[0]) };

static struct range interval(bool is_signed, uint64_t from, uint64_t to)
{
	struct range r = range_unknown(), low = range_const(from), high = range_const(to);
	range_branch(is_signed ? BPF_JSGE : BPF_JGE, true, true, &r, &low);
	range_branch(is_signed ? BPF_JSLE : BPF_JLE, true, true, &r, &high);
	return r;
}

struct operation {
	uint8_t op; /* BPF_DIV, BPF_MOD: with is_signed */
	bool is_signed, wide;
};

static uint64_t concrete(struct operation o, uint64_t a, uint64_t b)
{
	return arith_alu(o.op, o.wide, o.is_signed, a, b);
}

static void abstract(struct operation o, struct range *a, const struct range *b)
{
	if (o.op == BPF_DIV || o.op == BPF_MOD)
		range_divide(o.op == BPF_MOD, o.is_signed, o.wide, a, b);
	else
		range_alu(o.op, o.wide, a, b);
}

static unsigned lost, loose, pairs;

static void check_intervals(struct operation o, bool order, uint64_t a0, uint64_t a1, uint64_t b0, uint64_t b1)
{
	struct range a = interval(order, a0, a1), b = interval(order, b0, b1), r = a;
	int64_t least = INT64_MAX, most = INT64_MIN;
	abstract(o, &r, &b);
	pairs++;
	for (uint64_t x = a0; x != a1 + 1; x++)
		for (uint64_t y = b0; y != b1 + 1; y++) {
			uint64_t c = concrete(o, x, y);
			int64_t s = (int64_t)c;
			least = s < least ? s : least;
			most = s > most ? s : most;
			lost += !range_has(&r, c);
		}
	bool known = b0 == b1 && o.op == BPF_DIV && o.is_signed && o.wide;
	bool turns = !order || (int64_t)a0 == INT64_MIN; /* divided by -1 */
	loose += known && !turns && (r.b64.smin != least || r.b64.smax != most);
}

static void test_exhaustive(void)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_AND, BPF_OR, BPF_XOR, BPF_LSH, BPF_RSH, BPF_ARSH, BPF_DIV, BPF_MOD };
	for (uint32_t k = 0; k < sizeof(ops) * 8; k++) {
		struct operation o = { ops[k / 8], k & 1, k >> 1 & 1 };
		bool order = k >> 2 & 1;
		if (o.op != BPF_DIV && o.op != BPF_MOD && o.is_signed)
			continue;
		for (uint32_t p = 0; p < PLACES * PLACES; p++)
			for (uint32_t at = 0; at < 4 * SPAN * SPAN; at++) {
				uint64_t a0 = places[p % PLACES] - SPAN + at % (2 * SPAN), b0 = places[p / PLACES] - SPAN + at / (2 * SPAN);
				for (uint32_t n = 0; n < SPAN * SPAN; n++) {
					uint64_t a1 = a0 + n % SPAN, b1 = b0 + n / SPAN;
					/* Intervals that turn over in this order are none. */
					bool turned = order ? (int64_t)a0 > (int64_t)a1 || (int64_t)b0 > (int64_t)b1 : a0 > a1 || b0 > b1;
					if (!turned)
						check_intervals(o, order, a0, a1, b0, b1);
				}
			}
	}
	is_int(lost, 0, "no value of %u pairs of intervals is lost by an operation", pairs);
	is_int(loose, 0, "signed quotients by a known divisor have their true ends");
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

static struct range divide_by(bool modulo, bool is_signed, bool wide, struct range r, uint64_t by)
{
	struct range k = range_const(by);
	range_divide(modulo, is_signed, wide, &r, &k);
	return r;
}

static void test_division(void)
{
	struct range x = range_unknown(), r = divide_by(true, false, true, x, 3), k = range_const(8);
	ok(r.b64.umax == 2, "x %% 3 < 3");
	r = divide_by(true, false, false, x, 48);
	ok(r.b64.umax == 47, "on 32 bits");
	range_alu(BPF_MUL, true, &r, &k);
	ok(r.b64.umax == 376 && tnum_aligned(r.bits, 0, 8), "times 8: an index");
	r = divide_by(true, true, true, x, 3);
	ok(r.b64.smin == -2 && r.b64.smax == 2, "a signed remainder has either sign");
	r = divide_by(true, true, true, less_than(100), 3);
	ok(r.b64.umax == 2, "but that of the dividend");
	r = divide_by(true, true, false, x, (uint64_t)-7);
	ok(r.b32.smin == -6 && r.b32.smax == 6 && r.b64.umin == 0 && r.b64.umax == UINT32_MAX, "the divisor's sign counts for nothing; 32 bits are widened by zeros");
	r = divide_by(false, false, true, less_than(100), 7);
	ok(r.b64.umin == 0 && r.b64.umax == 14, "x / 7, x < 100");
	r = divide_by(false, false, false, x, 1 << 20);
	ok(r.b64.umax == 4095, "w / 2^20");
	r = divide_by(false, true, true, less_than(100), (uint64_t)-7);
	ok(r.b64.smin == -14 && r.b64.smax == 0, "x / -7, x < 100");
	r = divide_by(true, false, true, less_than(100), 0);
	ok(r.b64.umax == 99, "by 0 the dividend is left");
	r = divide_by(false, false, true, less_than(100), 0);
	ok(range_is_value(&r, 0), "and the quotient is 0");
	r = divide_by(true, false, true, less_than(2), 3);
	ok(r.b64.umax == 1, "a divisor too large changes nothing");
	k = range_const(8);
	r = less_than(4096);
	range_alu(BPF_MUL, true, &r, &k);
	r = divide_by(true, false, true, r, 48);
	ok(r.b64.umax <= 47 && tnum_aligned(r.bits, 0, 8), "a multiple of 8 modulo 48 is one");
	struct range by = interval(false, 3, 5);
	r = less_than(100);
	range_divide(true, false, true, &r, &by);
	ok(r.b64.umax == 4, "x %% 3..5 < 5");
	by = less_than(6);
	r = less_than(100);
	range_divide(true, false, true, &r, &by);
	ok(r.b64.umax == 99, "x %% 0..5: 0 leaves the dividend");
	by = interval(true, (uint64_t)-3, 4);
	r = interval(true, (uint64_t)-20, 10);
	range_divide(false, true, true, &r, &by);
	ok(r.b64.smin == -20 && r.b64.smax == 20, "-20..10 / -3..4");
}

static void test_shifts(void)
{
	struct range r = less_than(256), n = range_unknown();
	range_alu(BPF_RSH, true, &r, &n);
	ok(r.b64.umax == 255, "a byte shifted right by anything is a byte");
	n = less_than(3);
	r = less_than(16);
	range_alu(BPF_LSH, true, &r, &n);
	ok(r.b64.umax == 60, "x << 0..2, x < 16");
	r = less_than(16);
	n = interval(false, 3, 4);
	range_alu(BPF_LSH, false, &r, &n);
	ok(r.b64.umax == 240 && tnum_aligned(r.bits, 0, 8), "x << 3..4 is a multiple of 8");
	r = interval(true, (uint64_t)-64, 64);
	range_alu(BPF_ARSH, true, &r, &n);
	ok(r.b64.smin == -8 && r.b64.smax == 8, "-64..64 s>> 3..4");
	r = range_const(1);
	n = range_const(65);
	range_alu(BPF_LSH, true, &r, &n);
	ok(range_is_value(&r, 2), "counts are masked");
}

int main(void)
{
	test_sound();
	test_exhaustive();
	test_division();
	test_shifts();
	test_precise();
	return tap_done();
}
