/* number.c - PTX literals (PTX ISA 4.5) to values. strtod and friends obey the locale of whoever
 * loaded us, and strtol binds to new glibc versions, so neither is used. */
#include <string.h>

#include "ptx/parse.h"

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

static bool digits(const char *s, size_t n, unsigned base, uint64_t *out)
{
	uint64_t v = 0;

	if (!n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int digit = digit_value(s[i]);
		if (digit >= (int)base || __builtin_mul_overflow(v, base, &v) ||
			__builtin_add_overflow(v, (uint64_t)digit, &v))
			return false;
	}
	*out = v;
	return true;
}

/* -- decimal floating point, correctly rounded: value = N / M in exact big integers -- */

enum { BIG_WORDS = 96, MAX_DIGITS = 40, MAX_EXPONENT = 420 };

struct big {
	uint32_t w[BIG_WORDS]; /* little-endian */
};

static void big_mul_add(struct big *b, uint32_t mul, uint32_t add)
{
	uint64_t carry = add;

	for (int i = 0; i < BIG_WORDS; i++) {
		carry += (uint64_t)b->w[i] * mul;
		b->w[i] = (uint32_t)carry;
		carry >>= 32;
	}
}

static int big_cmp(const struct big *a, const struct big *b)
{
	for (int i = BIG_WORDS - 1; i >= 0; i--) {
		if (a->w[i] != b->w[i])
			return a->w[i] < b->w[i] ? -1 : 1;
	}
	return 0;
}

static void big_sub(struct big *a, const struct big *b)
{
	int64_t borrow = 0;

	for (int i = 0; i < BIG_WORDS; i++) {
		borrow += (int64_t)a->w[i] - b->w[i];
		a->w[i] = (uint32_t)borrow;
		borrow >>= 32;
	}
}

/* N/M as a double's pattern; N is not zero. Both stay below 2^(32*BIG_WORDS - 1) for the limits
 * above. */
static uint64_t big_ratio(struct big *num, struct big *den)
{
	struct big twice = *den;
	int exponent = 0;

	while (big_cmp(num, den) < 0) {
		big_mul_add(num, 2, 0);
		exponent--;
	}
	for (big_mul_add(&twice, 2, 0); big_cmp(num, &twice) >= 0; big_mul_add(&twice, 2, 0)) {
		*den = twice;
		exponent++;
	}
	/* 1 <= N/M < 2. Subnormals keep fewer bits. */
	int bits = exponent < -1022 ? 53 - (-1022 - exponent) : 53;
	uint64_t mantissa = 0;
	if (bits < 0)
		return 0;
	for (int i = 0; i < bits; i++) {
		mantissa <<= 1;
		if (big_cmp(num, den) >= 0) {
			big_sub(num, den);
			mantissa |= 1;
		}
		big_mul_add(num, 2, 0);
	}
	int half = big_cmp(num, den);
	if (half > 0 || (half == 0 && (mantissa & 1)))
		mantissa++;
	if (exponent > 1023)
		return 0x7ff0000000000000ull;
	if (exponent < -1022)
		return mantissa; /* a carry out of the subnormals gives the least normal number */
	/* mantissa's bit 52 adds 1 to the biased exponent, and a rounding carry another. */
	return ((uint64_t)(exponent + 1022) << 52) + mantissa;
}

static bool decimal_double(const char *s, size_t n, uint64_t *out)
{
	struct big num = { { 0 } }, den = { { 1 } };
	bool seen_dot = false, any = false, nonzero = false, lost = false;
	int exponent = 0, kept = 0;
	size_t i = 0;

	for (; i < n && (s[i] == '.' || (s[i] >= '0' && s[i] <= '9')); i++) {
		if (s[i] == '.') {
			if (seen_dot)
				return false;
			seen_dot = true;
			continue;
		}
		any = true;
		nonzero |= s[i] != '0';
		if (nonzero && kept < MAX_DIGITS) {
			big_mul_add(&num, 10, (uint32_t)(s[i] - '0'));
			kept++;
			exponent -= seen_dot;
		} else if (nonzero) {
			lost |= s[i] != '0';
			exponent += !seen_dot;
		} else {
			exponent -= seen_dot;
		}
		if (exponent > 100000 || exponent < -100000)
			return false;
	}
	if (!any)
		return false;
	if (i < n && (s[i] | 0x20) == 'e') {
		bool minus = ++i < n && s[i] == '-';
		uint64_t e;
		if (i < n && (s[i] == '-' || s[i] == '+'))
			i++;
		if (!digits(s + i, n - i, 10, &e))
			return false;
		e = e > 100000 ? 100000 : e;
		exponent += minus ? -(int)e : (int)e;
		i = n;
	}
	if (i != n)
		return false;
	*out = 0;
	if (!nonzero || exponent < -MAX_EXPONENT)
		return true;
	if (exponent > MAX_EXPONENT) {
		*out = 0x7ff0000000000000ull;
		return true;
	}
	if (lost) { /* digits past the last one kept only matter as "a little more" */
		big_mul_add(&num, 10, 1);
		exponent--;
	}
	for (; exponent > 0; exponent--)
		big_mul_add(&num, 10, 0);
	for (; exponent < 0; exponent++)
		big_mul_add(&den, 10, 0);
	*out = big_ratio(&num, &den);
	return true;
}

static bool parse_float(const char *s, size_t n, struct number *out)
{
	out->is_float = true;
	if (n > 2 && s[0] == '0' && (s[1] | 0x20) == 'f') {
		out->bits = 32;
		return n == 10 && digits(s + 2, n - 2, 16, &out->value);
	}
	out->bits = 64;
	if (n > 2 && s[0] == '0' && (s[1] | 0x20) == 'd')
		return n == 18 && digits(s + 2, n - 2, 16, &out->value);
	return decimal_double(s, n, &out->value);
}

bool number_parse(const char *s, size_t n, struct number *out)
{
	*out = (struct number){ 0 };
	bool prefixed = n > 1 && s[0] == '0';
	char kind = prefixed ? s[1] | 0x20 : 0;

	if (kind == 'f' || kind == 'd')
		return parse_float(s, n, out);
	if (kind != 'x' && (memchr(s, '.', n) || memchr(s, 'e', n) || memchr(s, 'E', n)))
		return parse_float(s, n, out);
	if (n > 1 && s[n - 1] == 'U') {
		out->is_unsigned = true;
		n--;
	}
	bool ok;
	if (kind == 'x')
		ok = digits(s + 2, n - 2, 16, &out->value);
	else if (kind == 'b')
		ok = digits(s + 2, n - 2, 2, &out->value);
	else if (prefixed && n > 1)
		ok = digits(s + 1, n - 1, 8, &out->value);
	else
		ok = digits(s, n, 10, &out->value);
	if (ok && out->value > INT64_MAX)
		out->is_unsigned = true;
	return ok;
}
