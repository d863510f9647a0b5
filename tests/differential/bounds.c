/* bounds.c - how far a result may be from the recorded one.
 *
 * The bounds are those that the PTX ISA states, with its section; where it only says that order and
 * precision of the sums are not specified (mma), the figure is ours and follows from the inputs,
 * which are within [-1, 1]. Results of software and of hardware both lie within a bound of the true
 * value; the software's are rounded from double, so that the two differ by at most the bound and
 * one rounding.
 */
#include "diff.h"

#include <math.h>
#include <string.h>

enum kind { ULP, RELATIVE, ABSOLUTE };

static const struct bound {
	const char *name;
	enum kind kind;
	double limit, floor; /* RELATIVE: differences below floor pass */
	double from, to;     /* operands by magnitude that the statement covers */
	const char *section; /* of PTX ISA 9.0 */
} bounds[] = {
	{ "div.approx", ULP, 2, 0, 0, INFINITY, "9.7.3 div: 2 ulp for |b| in [2^-126, 2^126]" },
	{ "div.full", ULP, 2, 0, 0, INFINITY, "9.7.3 div: 2 ulp over the full range" },
	{ "rcp.approx", ULP, 1, 0, 0, INFINITY, "9.7.3 rcp: 1 ulp" },
	{ "sqrt.approx", RELATIVE, 0x1p-23, 0, 0, INFINITY, "9.7.3 sqrt: relative 2^-23" },
	{ "rsqrt.approx", RELATIVE, 0x1p-22, 0, 0, INFINITY, "9.7.3 rsqrt: relative 2^-22.9" },
	{ "sin.approx", ABSOLUTE, 0x1p-14, 0, 0, 314,
		"9.7.3 sin: 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]" },
	{ "cos.approx", ABSOLUTE, 0x1p-14, 0, 0, 314, "9.7.3 cos: as sin" },
	{ "lg2.approx", RELATIVE, 0x1p-22, 0x1p-22, 0, INFINITY,
		"9.7.3 lg2: absolute 2^-22 in (0.5, 2), relative 2^-22 elsewhere" },
	{ "ex2.approx", ULP, 2, 0, 0, INFINITY, "9.7.3 ex2: 2 ulp" },
	{ "tanh.approx", RELATIVE, 0x1p-11, 0, 0, INFINITY, "9.7.3 tanh: relative 2^-11" },
	{ "rsqrt.f64", RELATIVE, 0x1p-18, 0, 0, INFINITY,
		"9.7.3 rsqrt.approx.f64: gross approximation" },
	{ "rcp.f64", RELATIVE, 0x1p-18, 0, 0, INFINITY,
		"9.7.3 rcp.approx.ftz.f64: gross approximation" },
	{ "ex2.f16", RELATIVE, 0x1p-9, 0x1p-24, 0, INFINITY, "9.7.4 ex2: relative 2^-9.9" },
	{ "ex2.bf16", RELATIVE, 0x1p-7, 0, 0, INFINITY, "9.7.4 ex2: relative 2^-7" },
	{ "tanh.f16", RELATIVE, 0x1p-9, 0x1p-10, 0, INFINITY, "9.7.4 tanh: absolute 2^-10.987" },
	{ "tanh.bf16", RELATIVE, 0x1p-7, 0, 0, INFINITY, "9.7.4 tanh: relative 2^-8" },
	{ "mma.f32", ABSOLUTE, 0x1p-17, 0, 0, INFINITY,
		"9.7.14 mma: order and precision of sums not specified" },
	{ "mma.f16", ABSOLUTE, 0x1p-5, 0, 0, INFINITY, "9.7.14 mma: the same" },
	{ "mma.f64", ABSOLUTE, 0x1p-48, 0, 0, INFINITY, "9.7.14 mma: the same" },
};

static const struct bound *find(const char *name)
{
	for (size_t i = 0; name && i < sizeof(bounds) / sizeof(bounds[0]); i++)
		if (!strcmp(bounds[i].name, name))
			return &bounds[i];
	return NULL;
}

bool diff_bound_known(const char *name)
{
	return find(name) != NULL;
}

/* Bits of exponent and mantissa of a result class. */
static void format(char cls, int *e, int *m)
{
	*e = cls == 'F' ? 11 : strchr("HX", cls) ? 5 : 8;
	*m = cls == 'F' ? 52 : strchr("HX", cls) ? 10 : strchr("BY", cls) ? 7 : 23;
}

static double value(uint64_t bits, int e, int m)
{
	uint64_t exp = bits >> m & ((1u << e) - 1), mant = bits & ((1ull << m) - 1);
	int bias = (1 << (e - 1)) - 1;
	double v = exp == (1u << e) - 1 ? (mant ? NAN : INFINITY)
		   : exp                ? ldexp((double)(mant | 1ull << m), (int)exp - bias - m)
					: ldexp((double)mant, 1 - bias - m);
	return bits >> (e + m) & 1 ? -v : v;
}

static bool close_one(const struct bound *b, char cls, uint64_t got, uint64_t want, double operand)
{
	int e, m;
	format(cls, &e, &m);
	double g = value(got, e, m), w = value(want, e, m);
	if (got == want || (g != g && w != w))
		return true;
	if (g != g || w != w || isinf(g) || isinf(w))
		return false;
	if (fabs(operand) < b->from || fabs(operand) > b->to)
		return true;
	int exp;
	frexp(w, &exp);
	int least = 2 - (1 << (e - 1));
	double ulp = ldexp(1, (exp - 1 < least ? least : exp - 1) - m), d = fabs(g - w);
	switch (b->kind) {
	case ULP:
		return d <= (b->limit + 0.5) * ulp;
	case RELATIVE:
		return d <= b->limit * fabs(w) + ulp || d <= b->floor;
	default:
		return d <= b->limit + ulp;
	}
}

bool diff_close(
	const struct diff_case *c, uint32_t result, uint64_t got, uint64_t want, uint64_t operand)
{
	const struct bound *b = find(c->bound);
	char cls = c->results[result];
	if (!b)
		return got == want;
	int e, m;
	format(strchr("feuw", c->operands[0]) ? 'f' : 'F', &e, &m);
	double x = b->to < INFINITY ? value(operand, e, m) : 0;
	if (cls != 'X' && cls != 'Y')
		return close_one(b, cls, got, want, x);
	return close_one(b, cls, got & 0xffff, want & 0xffff, x) &&
	       close_one(b, cls, got >> 16, want >> 16, x);
}
