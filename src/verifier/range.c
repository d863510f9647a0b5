#include "verifier/range.h"

#include <linux/bpf.h>
#include <string.h>

#define LOW 0xffffffffull

static const struct tnum tnum_unknown = { 0, UINT64_MAX };

/* Widths as numbers of bits, so that one function serves whole registers and their halves. */
enum { W32 = 32, W64 = 64 };

static int64_t smallest(int w)
{
	return w == W64 ? INT64_MIN : INT32_MIN;
}

static int64_t largest(int w)
{
	return w == W64 ? INT64_MAX : INT32_MAX;
}

static uint64_t ones(int w)
{
	return w == W64 ? UINT64_MAX : LOW;
}

static uint64_t zext(int w, int64_t v)
{
	return (uint64_t)v & ones(w);
}

static int64_t sext(int w, uint64_t v)
{
	return w == W64 ? (int64_t)v : (int32_t)v;
}

static uint64_t max_u(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t min_u(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int64_t max_s(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static int64_t min_s(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Bits: the operations of Vishwanathan et al., "Sound, Precise, and Fast Abstract Interpretation with Tristate
 * Numbers", which Linux uses too. */

static struct tnum tnum_const(uint64_t v)
{
	return (struct tnum){ v, 0 };
}

/* The smallest set of bits around [min, max]. */
static struct tnum tnum_of(uint64_t min, uint64_t max)
{
	uint64_t differ = min ^ max;
	if (!differ)
		return tnum_const(min);
	int high = 63 - __builtin_clzll(differ);
	uint64_t mask = high == 63 ? UINT64_MAX : (1ull << (high + 1)) - 1;
	return (struct tnum){ min & ~mask, mask };
}

static struct tnum tnum_add(struct tnum a, struct tnum b)
{
	uint64_t masks = a.mask + b.mask, values = a.value + b.value;
	uint64_t carries = (masks + values) ^ values;
	uint64_t mask = carries | a.mask | b.mask;
	return (struct tnum){ values & ~mask, mask };
}

static struct tnum tnum_sub(struct tnum a, struct tnum b)
{
	uint64_t values = a.value - b.value;
	uint64_t borrows = (values + a.mask) ^ (values - b.mask);
	uint64_t mask = borrows | a.mask | b.mask;
	return (struct tnum){ values & ~mask, mask };
}

static struct tnum tnum_and(struct tnum a, struct tnum b)
{
	uint64_t can = (a.value | a.mask) & (b.value | b.mask), sure = a.value & b.value;
	return (struct tnum){ sure, can & ~sure };
}

static struct tnum tnum_or(struct tnum a, struct tnum b)
{
	uint64_t sure = a.value | b.value;
	return (struct tnum){ sure, (a.mask | b.mask) & ~sure };
}

static struct tnum tnum_xor(struct tnum a, struct tnum b)
{
	uint64_t mask = a.mask | b.mask;
	return (struct tnum){ (a.value ^ b.value) & ~mask, mask };
}

static struct tnum tnum_shl(struct tnum a, unsigned n)
{
	return (struct tnum){ a.value << n, a.mask << n };
}

static struct tnum tnum_shr(struct tnum a, unsigned n)
{
	return (struct tnum){ a.value >> n, a.mask >> n };
}

static struct tnum tnum_sar(int w, struct tnum a, unsigned n)
{
	struct tnum t = { (uint64_t)(sext(w, a.value) >> n), (uint64_t)(sext(w, a.mask) >> n) };
	t.value &= ones(w);
	t.mask &= ones(w);
	return t;
}

/* Long multiplication: a known one bit of a adds b, an unknown bit adds b or nothing. */
static struct tnum tnum_mul(struct tnum a, struct tnum b)
{
	struct tnum sum = tnum_const(a.value * b.value), unsure = tnum_const(0);
	for (; a.value || a.mask; a = tnum_shr(a, 1), b = tnum_shl(b, 1)) {
		if (a.value & 1)
			unsure = tnum_add(unsure, (struct tnum){ 0, b.mask });
		else if (a.mask & 1)
			unsure = tnum_add(unsure, (struct tnum){ 0, b.value | b.mask });
	}
	return tnum_add(sum, unsure);
}

static bool tnum_conflict(struct tnum a, struct tnum b)
{
	return ((a.value ^ b.value) & ~a.mask & ~b.mask) != 0;
}

static struct tnum tnum_both(struct tnum a, struct tnum b)
{
	uint64_t value = a.value | b.value, mask = a.mask & b.mask;
	return (struct tnum){ value & ~mask, mask };
}

static struct tnum tnum_low(struct tnum a)
{
	return (struct tnum){ a.value & LOW, a.mask & LOW };
}

static struct tnum tnum_join(struct tnum high, struct tnum low)
{
	return (struct tnum){ (high.value & ~LOW) | low.value, (high.mask & ~LOW) | low.mask };
}

bool tnum_aligned(struct tnum t, int64_t off, uint32_t size)
{
	struct tnum sum = tnum_add(t, tnum_const((uint64_t)off));
	return !((sum.value | sum.mask) & (size - 1));
}

static struct bounds unbounded(int w)
{
	return (struct bounds){ smallest(w), largest(w), 0, ones(w) };
}

struct range range_unknown(void)
{
	return (struct range){ tnum_unknown, unbounded(W64), unbounded(W32) };
}

struct range range_const(uint64_t v)
{
	return (struct range){ tnum_const(v), { (int64_t)v, (int64_t)v, v, v },
		{ (int32_t)v, (int32_t)v, (uint32_t)v, (uint32_t)v } };
}

static void learn_bits(int w, struct bounds *b, struct tnum t)
{
	uint64_t sign = 1ull << (w - 1);
	b->umin = max_u(b->umin, t.value);
	b->umax = min_u(b->umax, t.value | t.mask);
	b->smin = max_s(b->smin, sext(w, t.value | (t.mask & sign)));
	b->smax = min_s(b->smax, sext(w, t.value | (t.mask & ~sign)));
}

/* Signed and unsigned order agree on either side of the sign bit. */
static void learn_sign(int w, struct bounds *b)
{
	if (sext(w, b->umin) <= sext(w, b->umax)) {
		b->smin = max_s(b->smin, sext(w, b->umin));
		b->smax = min_s(b->smax, sext(w, b->umax));
	}
	if ((b->smin < 0) == (b->smax < 0)) {
		b->umin = max_u(b->umin, zext(w, b->smin));
		b->umax = min_u(b->umax, zext(w, b->smax));
	} else if (b->umin > zext(w, b->smax)) { /* not in 0..smax: negative */
		b->umin = max_u(b->umin, zext(w, b->smin));
		b->smax = -1;
	} else if (b->umax < zext(w, b->smin)) { /* below every negative number */
		b->umax = min_u(b->umax, zext(w, b->smax));
		b->smin = 0;
	}
}

/* The low halves of from..to, when they do not go round twice. */
static void learn_arc(struct bounds *b, uint64_t from, uint64_t to)
{
	if (to - from > LOW)
		return;
	if ((uint32_t)from <= (uint32_t)to) {
		b->umin = max_u(b->umin, (uint32_t)from);
		b->umax = min_u(b->umax, (uint32_t)to);
	}
	if ((int32_t)from <= (int32_t)to) {
		b->smin = max_s(b->smin, (int32_t)from);
		b->smax = min_s(b->smax, (int32_t)to);
	}
}

static void learn_low(struct range *r)
{
	learn_arc(&r->b32, r->b64.umin, r->b64.umax);
	learn_arc(&r->b32, (uint64_t)r->b64.smin, (uint64_t)r->b64.smax);
}

/* The least value at or above `at` in the same 4 GiB, given the least low half; and the greatest. */
static void learn_high(struct range *r)
{
	struct bounds *b = &r->b64, *low = &r->b32;
	b->umin = max_u(b->umin, (b->umin & ~LOW) | low->umin);
	b->umax = min_u(b->umax, (b->umax & ~LOW) | low->umax);
	b->smin = max_s(b->smin, (int64_t)(((uint64_t)b->smin & ~LOW) | low->umin));
	b->smax = min_s(b->smax, (int64_t)(((uint64_t)b->smax & ~LOW) | low->umax));
	if (b->smin >= INT32_MIN && b->smax <= INT32_MAX) {
		b->smin = max_s(b->smin, low->smin);
		b->smax = min_s(b->smax, low->smax);
	}
}

static bool learn_from_bounds(struct range *r)
{
	struct tnum t = tnum_of(r->b64.umin, r->b64.umax), low = tnum_of(r->b32.umin, r->b32.umax);
	if (tnum_conflict(r->bits, t))
		return false;
	t = tnum_both(r->bits, t);
	if (tnum_conflict(tnum_low(t), low))
		return false;
	r->bits = tnum_join(t, tnum_both(tnum_low(t), low));
	return true;
}

static bool bounds_empty(const struct bounds *b)
{
	return b->umin > b->umax || b->smin > b->smax;
}

bool range_sync(struct range *r)
{
	for (int pass = 0; pass < 3; pass++) {
		struct range before = *r;
		learn_bits(W64, &r->b64, r->bits);
		learn_bits(W32, &r->b32, tnum_low(r->bits));
		for (int i = 0; i < 2; i++) {
			if (bounds_empty(&r->b64) || bounds_empty(&r->b32))
				return false;
			learn_sign(W64, &r->b64);
			learn_sign(W32, &r->b32);
			if (bounds_empty(&r->b64) || bounds_empty(&r->b32))
				return false;
			learn_low(r);
			learn_high(r);
		}
		if (bounds_empty(&r->b64) || bounds_empty(&r->b32) || !learn_from_bounds(r))
			return false;
		if (range_equal(&before, r))
			return true;
	}
	learn_bits(W64, &r->b64, r->bits);
	learn_bits(W32, &r->b32, tnum_low(r->bits));
	return !bounds_empty(&r->b64) && !bounds_empty(&r->b32);
}

/* After an operation. An empty result comes only of operands that were empty unnoticed (a path that cannot be). */
static void settle(struct range *r)
{
	if (!range_sync(r))
		*r = range_unknown();
}

/* After an operation of 32 bits the upper half is 0. */
static void settle_width(bool wide, struct range *r)
{
	if (!wide) {
		r->bits = tnum_low(r->bits);
		r->b64 = (struct bounds){ 0, (int64_t)LOW, 0, LOW };
	}
	settle(r);
}

void range_zext(struct range *r, uint32_t bytes)
{
	if (bytes == 8)
		return;
	if (bytes < 4) {
		struct range mask = range_const((1ull << (8 * bytes)) - 1);
		range_alu(BPF_AND, true, r, &mask);
		return;
	}
	r->bits = tnum_low(r->bits);
	r->b64 = (struct bounds){ 0, (int64_t)LOW, 0, LOW };
	settle(r);
}

void range_sext(struct range *r, uint32_t bytes)
{
	if (bytes == 8)
		return;
	/* Up and back: the sign bit of the narrow number becomes bit 63. */
	int64_t min = -(1ll << (8 * bytes - 1)), max = (1ll << (8 * bytes - 1)) - 1;
	if (r->b64.smin >= min && r->b64.smax <= max)
		return;
	struct bounds low = r->b32;
	unsigned n = 64 - 8 * bytes;
	r->bits = tnum_sar(W64, tnum_shl(r->bits, n), n);
	r->b64 = unbounded(W64);
	r->b64.smin = min;
	r->b64.smax = max;
	r->b32 = unbounded(W32);
	if (bytes == 4) {
		r->b32 = low;
		r->b64.smin = low.smin;
		r->b64.smax = low.smax;
	} else if (low.smin >= min && low.smax <= max) {
		r->b32 = low;
	}
	settle(r);
}

static uint64_t reversed(uint64_t v, int width)
{
	return __builtin_bswap64(v) >> (64 - width);
}

void range_endian(struct range *r, int width, bool swap)
{
	if (!swap) {
		range_zext(r, (uint32_t)width / 8);
		return;
	}
	*r = (struct range){ { reversed(r->bits.value, width), reversed(r->bits.mask, width) }, unbounded(W64), unbounded(W32) };
	settle(r);
}

/* Sums, differences and products that may leave the width. */
static bool add_s(int w, int64_t a, int64_t b, int64_t *out)
{
	return __builtin_add_overflow(a, b, out) || *out < smallest(w) || *out > largest(w);
}

static bool sub_s(int w, int64_t a, int64_t b, int64_t *out)
{
	return __builtin_sub_overflow(a, b, out) || *out < smallest(w) || *out > largest(w);
}

static bool mul_s(int w, int64_t a, int64_t b, int64_t *out)
{
	return __builtin_mul_overflow(a, b, out) || *out < smallest(w) || *out > largest(w);
}

static bool add_u(int w, uint64_t a, uint64_t b, uint64_t *out)
{
	bool over = __builtin_add_overflow(a, b, out) || *out > ones(w);
	*out &= ones(w);
	return over;
}

static void bounds_add(int w, struct bounds *d, const struct bounds *s)
{
	struct bounds r = unbounded(w);
	int64_t smin, smax;
	uint64_t umin, umax;
	bool low = add_s(w, d->smin, s->smin, &smin), high = add_s(w, d->smax, s->smax, &smax);
	if (!low && !high)
		r.smin = smin, r.smax = smax;
	/* When both ends wrap, everything between them wraps once. */
	low = add_u(w, d->umin, s->umin, &umin);
	high = add_u(w, d->umax, s->umax, &umax);
	if (low == high)
		r.umin = umin, r.umax = umax;
	*d = r;
}

static void bounds_sub(int w, struct bounds *d, const struct bounds *s)
{
	struct bounds r = unbounded(w);
	int64_t smin, smax;
	bool low = sub_s(w, d->smin, s->smax, &smin), high = sub_s(w, d->smax, s->smin, &smax);
	if (!low && !high)
		r.smin = smin, r.smax = smax;
	low = d->umin < s->umax;
	high = d->umax < s->umin;
	if (low == high) {
		r.umin = (d->umin - s->umax) & ones(w);
		r.umax = (d->umax - s->umin) & ones(w);
	}
	*d = r;
}

static void bounds_mul(int w, struct bounds *d, const struct bounds *s)
{
	struct bounds r = unbounded(w);
	uint64_t high;
	if (!__builtin_mul_overflow(d->umax, s->umax, &high) && high <= ones(w)) {
		r.umin = d->umin * s->umin;
		r.umax = high;
	}
	int64_t p[4];
	if (!mul_s(w, d->smin, s->smin, &p[0]) && !mul_s(w, d->smin, s->smax, &p[1]) &&
		!mul_s(w, d->smax, s->smin, &p[2]) && !mul_s(w, d->smax, s->smax, &p[3])) {
		r.smin = min_s(min_s(p[0], p[1]), min_s(p[2], p[3]));
		r.smax = max_s(max_s(p[0], p[1]), max_s(p[2], p[3]));
	}
	*d = r;
}

/* Bits say most about the logical operations; what they do not say is added here. */
static void bounds_bitwise(uint8_t op, int w, struct bounds *d, const struct bounds *s)
{
	struct bounds r = unbounded(w);
	if (op == BPF_AND)
		r.umax = min_u(d->umax, s->umax);
	else if (op == BPF_OR)
		r.umin = max_u(d->umin, s->umin);
	*d = r;
}

/* Shift counts: those that the executors take, which mask them to the width. */
struct counts {
	unsigned min, max;
};

static struct counts shift_counts(int w, const struct range *s)
{
	unsigned mask = (unsigned)w - 1;
	if (range_is_const(s))
		return (struct counts){ (unsigned)s->bits.value & mask, (unsigned)s->bits.value & mask };
	const struct bounds *b = w == W64 ? &s->b64 : &s->b32;
	if (b->umax <= mask)
		return (struct counts){ (unsigned)b->umin, (unsigned)b->umax };
	/* Bits survive the mask, bounds do not. */
	unsigned low = (unsigned)s->bits.value & mask, can = (unsigned)(s->bits.value | s->bits.mask) & mask;
	return (struct counts){ low, can };
}

static void bounds_shl(int w, struct bounds *d, struct counts n)
{
	struct bounds r = unbounded(w);
	if (d->umax <= ones(w) >> n.max) {
		r.umin = d->umin << n.min;
		r.umax = d->umax << n.max;
	}
	if (d->smin >= smallest(w) >> n.max && d->smax <= largest(w) >> n.max) {
		r.smin = (int64_t)((uint64_t)d->smin << (d->smin < 0 ? n.max : n.min));
		r.smax = (int64_t)((uint64_t)d->smax << (d->smax < 0 ? n.min : n.max));
	}
	*d = r;
}

static void bounds_shr(int w, struct bounds *d, struct counts n)
{
	struct bounds r = unbounded(w);
	r.umin = d->umin >> n.max;
	r.umax = d->umax >> n.min;
	*d = r;
}

static void bounds_sar(int w, struct bounds *d, struct counts n)
{
	struct bounds r = unbounded(w);
	r.smin = d->smin >> (d->smin < 0 ? n.min : n.max);
	r.smax = d->smax >> (d->smax < 0 ? n.max : n.min);
	*d = r;
}

/* Number of low bits that are known to be 0; at most 64. */
static unsigned low_zeros(struct tnum t)
{
	uint64_t can = t.value | t.mask;
	return can ? (unsigned)__builtin_ctzll(can) : 64;
}

static uint64_t low_bits(unsigned n)
{
	return n >= 64 ? UINT64_MAX : (1ull << n) - 1;
}

static struct tnum tnum_shift(uint8_t op, int w, struct tnum t, struct counts n)
{
	if (n.min == n.max)
		return op == BPF_LSH ? tnum_shl(t, n.min) : op == BPF_RSH ? tnum_shr(t, n.min) : tnum_sar(w, t, n.min);
	unsigned zeros = op == BPF_LSH ? low_zeros(t) + n.min : 0;
	return (struct tnum){ 0, ~low_bits(zeros < (unsigned)w ? zeros : (unsigned)w) };
}

static void alu_shift(uint8_t op, int w, struct range *d, const struct range *s)
{
	struct counts n = shift_counts(w, s);
	struct bounds low = d->b32;
	struct bounds *b = w == W64 ? &d->b64 : &d->b32;
	if (op == BPF_LSH)
		bounds_shl(w, b, n);
	else if (op == BPF_RSH)
		bounds_shr(w, b, n);
	else
		bounds_sar(w, b, n);
	struct tnum t = tnum_shift(op, w, w == W64 ? d->bits : tnum_low(d->bits), n);
	d->bits = w == W64 ? t : tnum_low(t);
	if (w == W64) {
		d->b32 = unbounded(W32);
		if (op == BPF_LSH && n.min == 32 && n.max == 32) { /* first half of the idiom that extends a sign */
			d->b64.smin = low.smin * (1ll << 32);
			d->b64.smax = low.smax * (1ll << 32);
		}
	}
}

/* Quotients and remainders. A divisor of 0 gives the quotient 0 and leaves the dividend as remainder; the smallest number divided by
 * -1 is itself. */

static void bounds_udiv(int w, struct bounds *d, const struct bounds *s)
{
	struct bounds r = unbounded(w);
	r.umin = s->umin ? d->umin / s->umax : 0;
	r.umax = s->umax ? d->umax / max_u(s->umin, 1) : 0;
	*d = r;
}

static void bounds_umod(int w, struct bounds *d, const struct bounds *s)
{
	if (!s->umax || d->umax < s->umin) /* stays what it is */
		return;
	struct bounds r = unbounded(w);
	r.umin = 0;
	r.umax = s->umin ? min_u(d->umax, s->umax - 1) : d->umax;
	*d = r;
}

static void hull(struct bounds *r, int64_t v)
{
	r->smin = min_s(r->smin, v);
	r->smax = max_s(r->smax, v);
}

/* Divisors of one sign, from..to: quotients are monotonous in either operand, so the corners say all. */
static void hull_sdiv(struct bounds *r, const struct bounds *d, int64_t from, int64_t to)
{
	if (from > to)
		return;
	hull(r, d->smin / from);
	hull(r, d->smin / to);
	hull(r, d->smax / from);
	hull(r, d->smax / to);
}

static void bounds_sdiv(int w, struct bounds *d, const struct bounds *s)
{
	struct bounds r = unbounded(w);
	bool overflows = d->smin == smallest(w) && s->smin <= -1 && s->smax >= -1;
	if (!overflows) {
		r.smin = INT64_MAX;
		r.smax = INT64_MIN;
		if (s->smin <= 0 && s->smax >= 0)
			hull(&r, 0);
		hull_sdiv(&r, d, max_s(s->smin, 1), s->smax);
		hull_sdiv(&r, d, s->smin, min_s(s->smax, -1));
	}
	*d = r;
}

/* What is left has the dividend's sign, and is smaller than the divisor and no larger than the dividend. */
static void bounds_smod(int w, struct bounds *d, const struct bounds *s)
{
	bool zero = s->smin <= 0 && s->smax >= 0;
	uint64_t least = s->smin > 0 ? (uint64_t)s->smin : s->smax < 0 ? 0 - (uint64_t)s->smax : 0;
	uint64_t most = max_u(s->smin < 0 ? 0 - (uint64_t)s->smin : (uint64_t)s->smin, s->smax < 0 ? 0 - (uint64_t)s->smax : (uint64_t)s->smax);
	uint64_t largest_d = max_u(d->smin < 0 ? 0 - (uint64_t)d->smin : 0, d->smax > 0 ? (uint64_t)d->smax : 0);
	if (!most || largest_d < least) /* stays what it is */
		return;
	struct bounds r = unbounded(w);
	int64_t end = zero || most > INT64_MAX ? INT64_MAX : (int64_t)most - 1;
	r.smin = d->smin < 0 ? max_s(d->smin, -end) : 0;
	r.smax = d->smax > 0 ? min_s(d->smax, end) : 0;
	if (zero) /* -end above would cut off the smallest number, which a divisor of 0 leaves */
		r.smin = min_s(d->smin, 0);
	*d = r;
}

static uint64_t divided(bool modulo, bool is_signed, int w, uint64_t a, uint64_t b)
{
	a &= ones(w);
	b &= ones(w);
	if (!b)
		return modulo ? a : 0;
	if (!is_signed)
		return modulo ? a % b : a / b;
	if (sext(w, b) == -1)
		return modulo ? 0 : 0 - a;
	return (uint64_t)(modulo ? sext(w, a) % sext(w, b) : sext(w, a) / sext(w, b));
}

static void divide(bool modulo, bool is_signed, int w, struct range *d, const struct range *s)
{
	struct tnum t = w == W64 ? d->bits : tnum_low(d->bits), u = w == W64 ? s->bits : tnum_low(s->bits);
	struct bounds *b = w == W64 ? &d->b64 : &d->b32;
	const struct bounds *by = w == W64 ? &s->b64 : &s->b32;
	if (!t.mask && !u.mask) {
		*d = range_const(divided(modulo, is_signed, w, t.value, u.value) & ones(w));
		return;
	}
	/* a % b is a less a multiple of b: the bits below the lowest that b can have are those of a. */
	uint64_t kept = modulo ? low_bits(low_zeros(u)) : 0;
	if (is_signed)
		(modulo ? bounds_smod : bounds_sdiv)(w, b, by);
	else
		(modulo ? bounds_umod : bounds_udiv)(w, b, by);
	d->bits = (struct tnum){ t.value & kept, t.mask | ~kept };
	if (w == W64)
		d->b32 = unbounded(W32);
	else
		d->bits = tnum_low(d->bits);
}

/* On both widths: the low half of a 64-bit result is the 32-bit result. */
static void alu_linear(uint8_t op, struct range *d, const struct range *s)
{
	switch (op) {
	case BPF_ADD:
		bounds_add(W64, &d->b64, &s->b64);
		bounds_add(W32, &d->b32, &s->b32);
		d->bits = tnum_add(d->bits, s->bits);
		break;
	case BPF_SUB:
		bounds_sub(W64, &d->b64, &s->b64);
		bounds_sub(W32, &d->b32, &s->b32);
		d->bits = tnum_sub(d->bits, s->bits);
		break;
	case BPF_MUL:
		bounds_mul(W64, &d->b64, &s->b64);
		bounds_mul(W32, &d->b32, &s->b32);
		d->bits = tnum_mul(d->bits, s->bits);
		break;
	default:
		bounds_bitwise(op, W64, &d->b64, &s->b64);
		bounds_bitwise(op, W32, &d->b32, &s->b32);
		if (op == BPF_AND)
			d->bits = tnum_and(d->bits, s->bits);
		else if (op == BPF_OR)
			d->bits = tnum_or(d->bits, s->bits);
		else
			d->bits = tnum_xor(d->bits, s->bits);
	}
}

/* Numbers that are known: most of what compilers compute. False: the operation gives no knowledge. */
static bool alu_known(uint8_t op, bool wide, uint64_t a, uint64_t b, uint64_t *out)
{
	if (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH)
		b &= wide ? 63 : 31;
	if (!wide)
		a = (uint32_t)a;
	switch (op) {
	case BPF_ADD:
		a += b;
		break;
	case BPF_SUB:
		a -= b;
		break;
	case BPF_MUL:
		a *= b;
		break;
	case BPF_AND:
		a &= b;
		break;
	case BPF_OR:
		a |= b;
		break;
	case BPF_XOR:
		a ^= b;
		break;
	case BPF_LSH:
		a <<= b;
		break;
	case BPF_RSH:
		a >>= b;
		break;
	case BPF_ARSH:
		a = (uint64_t)(wide ? (int64_t)a >> b : (int32_t)a >> b);
		break;
	case BPF_NEG:
		a = -a;
		break;
	default:
		return false;
	}
	*out = wide ? a : (uint32_t)a;
	return true;
}

void range_alu(uint8_t op, bool wide, struct range *d, const struct range *src)
{
	struct range s = *src;
	uint64_t value;
	if (range_is_const(d) && range_is_const(&s) && alu_known(op, wide, d->bits.value, s.bits.value, &value)) {
		*d = range_const(value);
		return;
	}
	switch (op) {
	case BPF_ADD:
	case BPF_SUB:
	case BPF_MUL:
	case BPF_AND:
	case BPF_OR:
	case BPF_XOR:
		alu_linear(op, d, &s);
		break;
	case BPF_LSH:
	case BPF_RSH:
	case BPF_ARSH:
		alu_shift(op, wide ? W64 : W32, d, &s);
		break;
	case BPF_MOV:
		*d = s;
		break;
	case BPF_NEG: {
		struct range zero = range_const(0);
		alu_linear(BPF_SUB, &zero, d);
		*d = zero;
		break;
	}
	default:
		*d = range_unknown();
	}
	settle_width(wide, d);
}

void range_divide(bool modulo, bool is_signed, bool wide, struct range *d, const struct range *src)
{
	struct range s = *src;
	divide(modulo, is_signed, wide ? W64 : W32, d, &s);
	settle_width(wide, d);
}

bool range_equal(const struct range *a, const struct range *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static struct bounds *part(bool wide, struct range *r)
{
	return wide ? &r->b64 : &r->b32;
}

static bool branch_eq(bool wide, struct range *a, struct range *b)
{
	struct bounds *x = part(wide, a), *y = part(wide, b);
	x->umin = y->umin = max_u(x->umin, y->umin);
	x->umax = y->umax = min_u(x->umax, y->umax);
	x->smin = y->smin = max_s(x->smin, y->smin);
	x->smax = y->smax = min_s(x->smax, y->smax);
	struct tnum s = wide ? a->bits : tnum_low(a->bits), t = wide ? b->bits : tnum_low(b->bits);
	if (tnum_conflict(s, t))
		return false;
	t = tnum_both(s, t);
	a->bits = wide ? t : tnum_join(a->bits, t);
	b->bits = wide ? t : tnum_join(b->bits, t);
	return true;
}

/* x is not the only value of y: an end of x that equals it moves. */
static bool bounds_except(int w, struct bounds *x, const struct bounds *y)
{
	if (y->umin != y->umax)
		return true;
	if (x->umin == y->umin && x->umax == y->umin)
		return false;
	if (x->umin == y->umin)
		x->umin++;
	if (x->umax == y->umin)
		x->umax--;
	int64_t v = sext(w, y->umin);
	if (x->smin == v && x->smax == v)
		return false;
	if (x->smin == v)
		x->smin++;
	if (x->smax == v)
		x->smax--;
	return true;
}

static bool branch_ne(bool wide, struct range *a, struct range *b)
{
	struct bounds *x = part(wide, a), *y = part(wide, b), before = *x;
	int w = wide ? W64 : W32;
	return bounds_except(w, x, y) && bounds_except(w, y, &before);
}

static bool branch_set(bool wide, bool taken, struct range *a, struct range *b)
{
	struct tnum s = wide ? a->bits : tnum_low(a->bits), t = wide ? b->bits : tnum_low(b->bits);
	struct tnum meet = tnum_and(s, t);
	if (taken ? !(meet.value | meet.mask) : meet.value != 0)
		return false;
	if (t.mask)
		return true;
	if (!taken) {
		a->bits.value &= ~t.value;
		a->bits.mask &= ~t.value;
	} else if (!(t.value & (t.value - 1))) {
		a->bits.value |= t.value;
		a->bits.mask &= ~t.value;
	}
	return true;
}

/* a < b, or a <= b, unsigned and signed. */
static bool below_u(int w, bool equal, struct bounds *x, struct bounds *y)
{
	uint64_t gap = !equal;
	if (gap && (!y->umax || x->umin == ones(w)))
		return false;
	x->umax = min_u(x->umax, y->umax - gap);
	y->umin = max_u(y->umin, x->umin + gap);
	return true;
}

static bool below_s(int w, bool equal, struct bounds *x, struct bounds *y)
{
	int64_t gap = !equal;
	if (gap && (y->smax == smallest(w) || x->smin == largest(w)))
		return false;
	x->smax = min_s(x->smax, y->smax - gap);
	y->smin = max_s(y->smin, x->smin + gap);
	return true;
}

static uint8_t negated(uint8_t op)
{
	switch (op) {
	case BPF_JGT:
		return BPF_JLE;
	case BPF_JGE:
		return BPF_JLT;
	case BPF_JLT:
		return BPF_JGE;
	case BPF_JLE:
		return BPF_JGT;
	case BPF_JSGT:
		return BPF_JSLE;
	case BPF_JSGE:
		return BPF_JSLT;
	case BPF_JSLT:
		return BPF_JSGE;
	default:
		return BPF_JSGT; /* of BPF_JSLE */
	}
}

static bool branch_order(uint8_t op, bool wide, struct range *a, struct range *b)
{
	struct bounds *x = part(wide, a), *y = part(wide, b);
	int w = wide ? W64 : W32;
	switch (op) {
	case BPF_JLT:
		return below_u(w, false, x, y);
	case BPF_JLE:
		return below_u(w, true, x, y);
	case BPF_JGT:
		return below_u(w, false, y, x);
	case BPF_JGE:
		return below_u(w, true, y, x);
	case BPF_JSLT:
		return below_s(w, false, x, y);
	case BPF_JSLE:
		return below_s(w, true, x, y);
	case BPF_JSGT:
		return below_s(w, false, y, x);
	default:
		return below_s(w, true, y, x);
	}
}

bool range_branch(uint8_t op, bool wide, bool taken, struct range *a, struct range *b)
{
	struct range a0 = *a, b0 = *b;
	bool can;
	if (op == BPF_JSET)
		can = branch_set(wide, taken, a, b);
	else if (op == BPF_JEQ || op == BPF_JNE)
		can = (op == BPF_JEQ) == taken ? branch_eq(wide, a, b) : branch_ne(wide, a, b);
	else
		can = branch_order(taken ? op : negated(op), wide, a, b);
	/* What did not change was in agreement with itself before. */
	return can && (range_equal(a, &a0) || range_sync(a)) && (range_equal(b, &b0) || range_sync(b));
}

static bool bounds_within(const struct bounds *old, const struct bounds *cur)
{
	return old->umin <= cur->umin && old->umax >= cur->umax && old->smin <= cur->smin &&
		old->smax >= cur->smax;
}

bool range_within(const struct range *old, const struct range *cur)
{
	return bounds_within(&old->b64, &cur->b64) && bounds_within(&old->b32, &cur->b32) &&
		!(cur->bits.mask & ~old->bits.mask) &&
		old->bits.value == (cur->bits.value & ~old->bits.mask);
}

bool range_has(const struct range *r, uint64_t v)
{
	int64_t s = (int64_t)v, s32 = (int32_t)v;
	uint64_t u32 = (uint32_t)v;
	return r->bits.value == (v & ~r->bits.mask) && r->b64.umin <= v && v <= r->b64.umax &&
		r->b64.smin <= s && s <= r->b64.smax && r->b32.umin <= u32 && u32 <= r->b32.umax &&
		r->b32.smin <= s32 && s32 <= r->b32.smax;
}
