/* exec_int.c - integer and bit instructions.
 *
 * Lanes hold unsigned values; signed operations cast. This file is compiled with wrapping signed
 * arithmetic, as PTX has it. PTX leaves division by zero unspecified; here it gives all ones, and
 * the dividend as remainder.
 */
#include "softgpu/internal.h"

typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;

/* Lane types L* are those in the register file (u32 or u64). */
#define OP1(name, LD, LA, EXPR)                                                                    \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		LD *d = sg_op(w, in->d);                                                           \
		const LA *pa = sg_op(w, in->a);                                                    \
		SG_LANES(mask, LA a = pa[i]; d[i] = (LD)(EXPR););                                  \
	}
#define OP2(name, LD, LA, LB, EXPR)                                                                \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		LD *d = sg_op(w, in->d);                                                           \
		const LA *pa = sg_op(w, in->a);                                                    \
		const LB *pb = sg_op(w, in->b);                                                    \
		SG_LANES(mask, LA a = pa[i]; LB b = pb[i]; d[i] = (LD)(EXPR););                    \
	}
#define OP3(name, LD, LA, LB, LC, EXPR)                                                            \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		LD *d = sg_op(w, in->d);                                                           \
		const LA *pa = sg_op(w, in->a);                                                    \
		const LB *pb = sg_op(w, in->b);                                                    \
		const LC *pc = sg_op(w, in->c);                                                    \
		SG_LANES(mask, LA a = pa[i]; LB b = pb[i]; LC c = pc[i]; d[i] = (LD)(EXPR););      \
	}

/* The operation for 16, 32 and 64 bits; T is the computation type letter (u or s). */
#define ALL2(op, T, EXPR)                                                                          \
	OP2(op##_##T##16, u32, u32, u32, (u16)({                                                   \
		T##16 x = (T##16)a, y = (T##16)b;                                                  \
		EXPR;                                                                              \
	}))                                                                                        \
	OP2(op##_##T##32, u32, u32, u32, ({                                                        \
		T##32 x = (T##32)a, y = (T##32)b;                                                  \
		EXPR;                                                                              \
	}))                                                                                        \
	OP2(op##_##T##64, u64, u64, u64, ({                                                        \
		T##64 x = (T##64)a, y = (T##64)b;                                                  \
		EXPR;                                                                              \
	}))
#define ALL1(op, T, EXPR)                                                                          \
	OP1(op##_##T##16, u32, u32, (u16)({                                                        \
		T##16 x = (T##16)a;                                                                \
		EXPR;                                                                              \
	}))                                                                                        \
	OP1(op##_##T##32, u32, u32, ({                                                             \
		T##32 x = (T##32)a;                                                                \
		EXPR;                                                                              \
	}))                                                                                        \
	OP1(op##_##T##64, u64, u64, ({                                                             \
		T##64 x = (T##64)a;                                                                \
		EXPR;                                                                              \
	}))

ALL2(add, u, x + y)
ALL2(sub, u, x - y)
ALL2(and, u, x &y)
ALL2(or, u, x | y)
ALL2(xor, u, x ^ y)
ALL2(min, u, x < y ? x : y)
ALL2(min, s, x < y ? x : y)
ALL2(max, u, x > y ? x : y)
ALL2(max, s, x > y ? x : y)
ALL2(div, u, y ? x / y : ~(x ^ x))
ALL2(rem, u, y ? x % y : x)
ALL2(div, s, y == 0 ? -1 : y == -1 ? -x : x / y)
ALL2(rem, s, y == 0 ? x : y == -1 ? 0 : x % y)
ALL1(not, u, ~x)
ALL1(neg, u, -x)
ALL1(cnot, u, x == 0)
ALL1(abs, s, x < 0 ? -x : x)

OP2(mul_lo_16, u32, u32, u32, (u16)(a *b))
OP2(mul_lo_32, u32, u32, u32, a *b)
OP2(mul_lo_64, u64, u64, u64, a *b)
OP2(mul_hi_u16, u32, u32, u32, (u16)((a & 0xffff) * (b & 0xffff) >> 16))
OP2(mul_hi_s16, u32, u32, u32, (u16)((s32)(s16)a *(s16)b >> 16))
OP2(mul_hi_u32, u32, u32, u32, (u64)a *b >> 32)
OP2(mul_hi_s32, u32, u32, u32, (s64)(s32)a *(s32)b >> 32)
OP2(mul_hi_u64, u64, u64, u64, (u128)a *b >> 64)
OP2(mul_hi_s64, u64, u64, u64, (s128)(s64)a *(s64)b >> 64)
OP2(mul_wide_u16, u32, u32, u32, (a & 0xffff) * (b & 0xffff))
OP2(mul_wide_s16, u32, u32, u32, (s32)(s16)a *(s16)b)
OP2(mul_wide_u32, u64, u32, u32, (u64)a *b)
OP2(mul_wide_s32, u64, u32, u32, (s64)(s32)a *(s32)b)
OP3(mad_lo_16, u32, u32, u32, u32, (u16)(a *b + c))
OP3(mad_lo_32, u32, u32, u32, u32, a *b + c)
OP3(mad_lo_64, u64, u64, u64, u64, a *b + c)
OP3(mad_hi_u16, u32, u32, u32, u32, (u16)(((a & 0xffff) * (b & 0xffff) >> 16) + c))
OP3(mad_hi_s16, u32, u32, u32, u32, (u16)(((s32)(s16)a * (s16)b >> 16) + (s32)c))
OP3(mad_hi_u32, u32, u32, u32, u32, (u32)((u64)a *b >> 32) + c)
OP3(mad_hi_s32, u32, u32, u32, u32, (u32)((s64)(s32)a *(s32)b >> 32) + c)
OP3(mad_hi_u64, u64, u64, u64, u64, (u64)((u128)a *b >> 64) + c)
OP3(mad_hi_s64, u64, u64, u64, u64, (u64)((s128)(s64)a *(s64)b >> 64) + c)
OP3(mad_wide_u16, u32, u32, u32, u32, (a & 0xffff) * (b & 0xffff) + c)
OP3(mad_wide_s16, u32, u32, u32, u32, (s32)(s16)a *(s16)b + (s32)c)
OP3(mad_wide_u32, u64, u32, u32, u64, (u64)a *b + c)
OP3(mad_wide_s32, u64, u32, u32, u64, (u64)((s64)(s32)a *(s32)b) + c)

static s32 clamp32(s64 v)
{
	return v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (s32)v;
}

OP2(add_sat, u32, u32, u32, clamp32((s64)(s32)a + (s32)b))
OP2(sub_sat, u32, u32, u32, clamp32((s64)(s32)a - (s32)b))
OP3(mad_hi_sat, u32, u32, u32, u32, clamp32(((s64)(s32)a * (s32)b >> 32) + (s32)c))

/* 24-bit multiplication: the product has 48 bits. */
static s64 s24(u32 v)
{
	return (s32)(v << 8) >> 8;
}

static u64 u24(u32 v)
{
	return v & 0xffffff;
}

OP2(mul24_lo_u, u32, u32, u32, u24(a) * u24(b))
OP2(mul24_lo_s, u32, u32, u32, s24(a) * s24(b))
OP2(mul24_hi_u, u32, u32, u32, u24(a) * u24(b) >> 16)
OP2(mul24_hi_s, u32, u32, u32, s24(a) * s24(b) >> 16)
OP3(mad24_hi_sat, u32, u32, u32, u32, clamp32((s24(a) * s24(b) >> 16) + (s32)c))
OP3(mad24_lo_u, u32, u32, u32, u32, (u32)(u24(a) * u24(b)) + c)
OP3(mad24_lo_s, u32, u32, u32, u32, (u32)(s24(a) * s24(b)) + c)
OP3(mad24_hi_u, u32, u32, u32, u32, (u32)(u24(a) * u24(b) >> 16) + c)
OP3(mad24_hi_s, u32, u32, u32, u32, (u32)(s24(a) * s24(b) >> 16) + c)

#define SAD(T, L)                                                                                  \
	OP3(sad_##T, L, L, L, L, ({                                                                \
		T x = (T)a, y = (T)b;                                                              \
		c + (L)(x < y ? (L)y - (L)x : (L)x - (L)y);                                        \
	}))
SAD(u32, u32)
SAD(s32, u32)
SAD(u64, u64)
SAD(s64, u64)
OP3(sad_u16, u32, u32, u32, u32, (u16)(c + (a < b ? b - a : a - b)))
OP3(sad_s16, u32, u32, u32, u32, ({
	s32 x = (s16)a, y = (s16)b;
	(u16)(c + (u32)(x < y ? y - x : x - y));
}))

/* -- shifts and bits --------------------------------------------------------- */

OP2(shl_16, u32, u32, u32, b > 15 ? 0 : (u16)(a << b))
OP2(shl_32, u32, u32, u32, b > 31 ? 0 : a << b)
OP2(shl_64, u64, u64, u32, b > 63 ? 0 : a << b)
OP2(shr_u16, u32, u32, u32, b > 15 ? 0 : (u16)a >> b)
OP2(shr_u32, u32, u32, u32, b > 31 ? 0 : a >> b)
OP2(shr_u64, u64, u64, u32, b > 63 ? 0 : a >> b)
OP2(shr_s16, u32, u32, u32, (u16)((s16)a >> (b > 15 ? 15 : b)))
OP2(shr_s32, u32, u32, u32, (s32)a >> (b > 31 ? 31 : b))
OP2(shr_s64, u64, u64, u32, (s64)a >> (b > 63 ? 63 : b))

OP3(shf_l_wrap, u32, u32, u32, u32, (((u64)b << 32 | a) << (c & 31)) >> 32)
OP3(shf_r_wrap, u32, u32, u32, u32, ((u64)b << 32 | a) >> (c & 31))
OP3(shf_l_clamp, u32, u32, u32, u32, (((u64)b << 32 | a) << (c > 32 ? 32 : c)) >> 32)
OP3(shf_r_clamp, u32, u32, u32, u32, ((u64)b << 32 | a) >> (c > 32 ? 32 : c))

static u32 brev32(u32 v)
{
	v = (v >> 1 & 0x55555555) | (v & 0x55555555) << 1;
	v = (v >> 2 & 0x33333333) | (v & 0x33333333) << 2;
	v = (v >> 4 & 0x0f0f0f0f) | (v & 0x0f0f0f0f) << 4;
	return __builtin_bswap32(v);
}

OP1(popc_32, u32, u32, __builtin_popcount(a))
OP1(popc_64, u32, u64, __builtin_popcountll(a))
OP1(clz_32, u32, u32, a ? __builtin_clz(a) : 32)
OP1(clz_64, u32, u64, a ? __builtin_clzll(a) : 64)
OP1(brev_32, u32, u32, brev32(a))
OP1(brev_64, u64, u64, (u64)brev32((u32)a) << 32 | brev32((u32)(a >> 32)))

static u32 find64(u64 v)
{
	return v ? 63 - (u32)__builtin_clzll(v) : SG_FULL;
}

static u64 magnitude32(u32 v)
{
	return (s32)v < 0 ? ~v : v;
}

static u64 magnitude64(u64 v)
{
	return (s64)v < 0 ? ~v : v;
}

/* .shiftamt: how far to shift left to bring the found bit to the top. */
static u32 shift_amount(u32 bit, u32 top)
{
	return bit == SG_FULL ? bit : top - bit;
}

OP1(bfind_u32, u32, u32, find64(a))
OP1(bfind_s32, u32, u32, find64(magnitude32(a)))
OP1(bfind_u64, u32, u64, find64(a))
OP1(bfind_s64, u32, u64, find64(magnitude64(a)))
OP1(bfind_sh_u32, u32, u32, shift_amount(find64(a), 31))
OP1(bfind_sh_s32, u32, u32, shift_amount(find64(magnitude32(a)), 31))
OP1(bfind_sh_u64, u32, u64, shift_amount(find64(a), 63))
OP1(bfind_sh_s64, u32, u64, shift_amount(find64(magnitude64(a)), 63))

/* Bits [pos, pos+len) of a word of `bits`; bits past the top are copies of the sign (s) or 0. */
static u64 extract(u64 v, u32 pos, u32 len, u32 bits, bool is_signed)
{
	/* Eight bits of each are used, but the 64-bit forms take all of them. */
	if (bits == 32) {
		pos &= 255;
		len &= 255;
	}
	if (!len)
		return 0;
	u64 end = (u64)pos + len - 1;
	u32 last = end < bits - 1 ? (u32)end : bits - 1;
	bool sign = is_signed && v >> last & 1;
	u64 field = pos < bits ? v >> pos : 0;
	u32 got = pos < bits ? last - pos + 1 : 0;
	if (got < 64)
		field &= (1ull << got) - 1;
	return sign && got < 64 ? field | ~0ull << got : field;
}

static u64 insert(u64 a, u64 b, u32 pos, u32 len, u32 bits)
{
	if (bits == 32) {
		pos &= 255;
		len &= 255;
	}
	if (pos >= bits || !len)
		return b;
	if (len > bits - pos)
		len = bits - pos;
	u64 m = (len < 64 ? (1ull << len) - 1 : ~0ull) << pos;
	return (b & ~m) | (a << pos & m);
}

OP3(bfe_u32, u32, u32, u32, u32, extract(a, b, c, 32, false))
OP3(bfe_s32, u32, u32, u32, u32, extract(a, b, c, 32, true))
OP3(bfe_u64, u64, u64, u32, u32, extract(a, b, c, 64, false))
OP3(bfe_s64, u64, u64, u32, u32, extract(a, b, c, 64, true))

static SG_HANDLER(bfi_32)
{
	u32 *d = sg_op(w, in->d);
	const u32 *a = sg_op(w, in->a), *b = sg_op(w, in->b);
	const u32 *c = sg_op(w, in->c), *e = sg_op(w, in->e);
	SG_LANES(mask, d[i] = (u32)insert(a[i], b[i], c[i], e[i], 32););
}

static SG_HANDLER(bfi_64)
{
	u64 *d = sg_op(w, in->d);
	const u64 *a = sg_op(w, in->a), *b = sg_op(w, in->b);
	const u32 *c = sg_op(w, in->c), *e = sg_op(w, in->e);
	SG_LANES(mask, d[i] = insert(a[i], b[i], c[i], e[i], 64););
}

/* szext: b bits of a; bmsk: b ones from bit a. */
static u32 szext(u32 a, u32 b, bool clamp, bool is_signed)
{
	if (clamp && b > 32)
		b = 32;
	b &= clamp ? 63 : 31;
	return (u32)extract(a, 0, b, 32, is_signed);
}

static u32 bmsk(u32 a, u32 b, bool clamp)
{
	if (!clamp) {
		a &= 31;
		b &= 31;
	}
	u64 ones = b > 31 ? 0xffffffffull : (1ull << b) - 1;
	return a > 31 ? 0 : (u32)(ones << a);
}

OP2(szext_clamp_s, u32, u32, u32, szext(a, b, true, true))
OP2(szext_clamp_u, u32, u32, u32, szext(a, b, true, false))
OP2(szext_wrap_s, u32, u32, u32, szext(a, b, false, true))
OP2(szext_wrap_u, u32, u32, u32, szext(a, b, false, false))
OP2(bmsk_clamp, u32, u32, u32, bmsk(a, b, true))
OP2(bmsk_wrap, u32, u32, u32, bmsk(a, b, false))

/* fns: position of the |c|-th set bit from b upwards (or downwards); c 0: whether b is set. */
static u32 fns(u32 v, u32 base, s32 n)
{
	if (n == 0)
		return base < 32 && v >> base & 1 ? base : SG_FULL;
	s32 step = n > 0 ? 1 : -1;
	u32 left = n > 0 ? (u32)n : -(u32)n;
	for (s32 at = (s32)(base & 31); at >= 0 && at < 32; at += step)
		if (v >> at & 1 && --left == 0)
			return (u32)at;
	return SG_FULL;
}

OP3(fns_32, u32, u32, u32, u32, fns(a, b, (s32)c))

/* -- bytes ------------------------------------------------------------------- */

static u32 prmt_select(u64 pool, u32 sel)
{
	u32 byte = (u32)(pool >> (sel & 7) * 8) & 255;
	return sel & 8 ? (byte & 128 ? 255 : 0) : byte;
}

static u32 prmt(u32 a, u32 b, u32 c)
{
	u64 pool = (u64)b << 32 | a;
	u32 r = 0;
	for (u32 k = 0; k < 4; k++)
		r |= prmt_select(pool, c >> k * 4 & 15) << k * 8;
	return r;
}

/* The named modes: selectors for c = 0..3 (PTX ISA, prmt). */
static u32 prmt_mode(u32 a, u32 b, u32 c, const u16 *selectors)
{
	return prmt(a, b, selectors[c & 3]);
}

static const u16 f4e[4] = { 0x3210, 0x4321, 0x5432, 0x6543 };
static const u16 b4e[4] = { 0x5670, 0x6701, 0x7012, 0x0123 };
static const u16 rc8[4] = { 0x0000, 0x1111, 0x2222, 0x3333 };
static const u16 ecl[4] = { 0x3210, 0x3211, 0x3222, 0x3333 };
static const u16 ecr[4] = { 0x0000, 0x1110, 0x2210, 0x3210 };
static const u16 rc16[4] = { 0x1010, 0x3232, 0x1010, 0x3232 };

OP3(prmt_32, u32, u32, u32, u32, prmt(a, b, c))
OP3(prmt_f4e, u32, u32, u32, u32, prmt_mode(a, b, c, f4e))
OP3(prmt_b4e, u32, u32, u32, u32, prmt_mode(a, b, c, b4e))
OP3(prmt_rc8, u32, u32, u32, u32, prmt_mode(a, b, c, rc8))
OP3(prmt_ecl, u32, u32, u32, u32, prmt_mode(a, b, c, ecl))
OP3(prmt_ecr, u32, u32, u32, u32, prmt_mode(a, b, c, ecr))
OP3(prmt_rc16, u32, u32, u32, u32, prmt_mode(a, b, c, rc16))

/* Four products of bytes, or two of a half-word and a byte (lo: bytes 0, 1; hi: 2, 3). */
static s32 byte_at(u32 v, u32 k, bool is_signed)
{
	u32 b = v >> k * 8 & 255;
	return is_signed ? (signed char)b : (s32)b;
}

static s32 half_at(u32 v, u32 k, bool is_signed)
{
	u32 h = v >> k * 16 & 0xffff;
	return is_signed ? (s16)h : (s32)h;
}

static u32 dp4a(u32 a, u32 b, u32 c, bool sa, bool sb)
{
	for (u32 k = 0; k < 4; k++)
		c += (u32)(byte_at(a, k, sa) * byte_at(b, k, sb));
	return c;
}

static u32 dp2a(u32 a, u32 b, u32 c, bool sa, bool sb, u32 first)
{
	for (u32 k = 0; k < 2; k++)
		c += (u32)(half_at(a, k, sa) * byte_at(b, first + k, sb));
	return c;
}

OP3(dp4a_uu, u32, u32, u32, u32, dp4a(a, b, c, false, false))
OP3(dp4a_us, u32, u32, u32, u32, dp4a(a, b, c, false, true))
OP3(dp4a_su, u32, u32, u32, u32, dp4a(a, b, c, true, false))
OP3(dp4a_ss, u32, u32, u32, u32, dp4a(a, b, c, true, true))
OP3(dp2a_lo_uu, u32, u32, u32, u32, dp2a(a, b, c, false, false, 0))
OP3(dp2a_lo_us, u32, u32, u32, u32, dp2a(a, b, c, false, true, 0))
OP3(dp2a_lo_su, u32, u32, u32, u32, dp2a(a, b, c, true, false, 0))
OP3(dp2a_lo_ss, u32, u32, u32, u32, dp2a(a, b, c, true, true, 0))
OP3(dp2a_hi_uu, u32, u32, u32, u32, dp2a(a, b, c, false, false, 2))
OP3(dp2a_hi_us, u32, u32, u32, u32, dp2a(a, b, c, false, true, 2))
OP3(dp2a_hi_su, u32, u32, u32, u32, dp2a(a, b, c, true, false, 2))
OP3(dp2a_hi_ss, u32, u32, u32, u32, dp2a(a, b, c, true, true, 2))

/* lop3: the eight bits of imm are the truth table. */
static SG_HANDLER(lop3)
{
	u32 *d = sg_op(w, in->d);
	const u32 *pa = sg_op(w, in->a), *pb = sg_op(w, in->b), *pc = sg_op(w, in->c);
	u32 t[8];
	for (int k = 0; k < 8; k++)
		t[k] = in->imm >> k & 1 ? SG_FULL : 0;
	SG_LANES(mask, u32 a = pa[i]; u32 b = pb[i]; u32 c = pc[i];
		 d[i] = (t[0] & ~a & ~b & ~c) | (t[1] & ~a & ~b & c) | (t[2] & ~a & b & ~c) |
			(t[3] & ~a & b & c) | (t[4] & a & ~b & ~c) | (t[5] & a & ~b & c) |
			(t[6] & a & b & ~c) | (t[7] & a & b & c););
}

/* The same, and d2 = (d != 0) sub c, with sub 1 and, 2 or, and e a predicate. */
SG_HANDLER(sg_lop3_pred)
{
	u32 *d = sg_op(w, in->d), *p = sg_op(w, in->d2), q = *(const u32 *)sg_op(w, in->e),
	    nonzero = 0;
	if (in->flags & SG_NOT_C)
		q = ~q;
	lop3(w, in, mask);
	for (int i = 0; i < 32; i++)
		nonzero |= (u32)(d[i] != 0) << i;
	*p = (*p & ~mask) | ((in->sub == 1 ? nonzero & q : nonzero | q) & mask);
}

/* Pairs of 16-bit integers. */
#define X2(op, EXPR_S, EXPR_U)                                                                     \
	OP2(op##_s16x2, u32, u32, u32, ({                                                          \
		s16 x = (s16)a, y = (s16)b;                                                        \
		u32 lo = (u16)(EXPR_S);                                                            \
		x = (s16)(a >> 16);                                                                \
		y = (s16)(b >> 16);                                                                \
		(u32)(u16)(EXPR_S) << 16 | lo;                                                     \
	}))                                                                                        \
	OP2(op##_u16x2, u32, u32, u32, ({                                                          \
		u16 x = (u16)a, y = (u16)b;                                                        \
		u32 lo = (u16)(EXPR_U);                                                            \
		x = (u16)(a >> 16);                                                                \
		y = (u16)(b >> 16);                                                                \
		(u32)(u16)(EXPR_U) << 16 | lo;                                                     \
	}))
X2(addx2, x + y, x + y)
X2(minx2, x < y ? x : y, x < y ? x : y)
X2(maxx2, x > y ? x : y, x > y ? x : y)

static s32 relu_min(s32 a, s32 b)
{
	return a < 0 || b < 0 ? 0 : a < b ? a : b;
}

static s32 relu_max(s32 a, s32 b)
{
	return a > b ? (a < 0 ? 0 : a) : (b < 0 ? 0 : b);
}

#define RELU_X2(F) (u32) F((s16)(a >> 16), (s16)(b >> 16)) << 16 | (u32)F((s16)a, (s16)b)
OP2(min_relu_s32, u32, u32, u32, (u32)relu_min((s32)a, (s32)b))
OP2(max_relu_s32, u32, u32, u32, (u32)relu_max((s32)a, (s32)b))
OP2(min_relu_s16x2, u32, u32, u32, RELU_X2(relu_min))
OP2(max_relu_s16x2, u32, u32, u32, RELU_X2(relu_max))

/* -- carry chains: the carry flag is the frame's first predicate -------------- */

static u32 *carry(const struct sg_warp *w)
{
	return (u32 *)(void *)w->base[0];
}

#define CARRY_OP(name, L, EXPR)                                                                    \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		L *d = sg_op(w, in->d);                                                            \
		const L *pa = sg_op(w, in->a), *pb = sg_op(w, in->b);                              \
		u32 cf = *carry(w), out = cf;                                                      \
		for (u32 m = mask; m; m &= m - 1) {                                                \
			int i = __builtin_ctz(m);                                                  \
			L a = pa[i], b = pb[i], r;                                                 \
			u32 ci = cf >> i & 1, co = 0;                                              \
			EXPR;                                                                      \
			d[i] = r;                                                                  \
			out = (out & ~(1u << i)) | co << i;                                        \
		}                                                                                  \
		*carry(w) = out;                                                                   \
	}
#define KEEP co = ci
#define ADD(c)                                                                                     \
	({                                                                                         \
		L2 s = (L2)a + b + (c);                                                            \
		r = (typeof(r))s;                                                                  \
		co = (u32)(s >> (8 * sizeof(r))) & 1;                                              \
	})
#define SUB(c)                                                                                     \
	({                                                                                         \
		L2 s = (L2)a - b - (c);                                                            \
		r = (typeof(r))s;                                                                  \
		co = (u32)(s >> (8 * sizeof(r))) & 1;                                              \
	})
#define L2 u64
CARRY_OP(add_cc_32, u32, (void)ci; ADD(0))
CARRY_OP(addc_cc_32, u32, ADD(ci))
CARRY_OP(addc_32, u32, ADD(ci); KEEP)
CARRY_OP(sub_cc_32, u32, (void)ci; SUB(0))
CARRY_OP(subc_cc_32, u32, SUB(ci))
CARRY_OP(subc_32, u32, SUB(ci); KEEP)
#undef L2
#define L2 u128
CARRY_OP(add_cc_64, u64, (void)ci; ADD(0))
CARRY_OP(addc_cc_64, u64, ADD(ci))
CARRY_OP(addc_64, u64, ADD(ci); KEEP)
CARRY_OP(sub_cc_64, u64, (void)ci; SUB(0))
CARRY_OP(subc_cc_64, u64, SUB(ci))
CARRY_OP(subc_64, u64, SUB(ci); KEEP)
#undef L2

/* mad with carry: the product part is added to c. */
#define CARRY_MAD(name, L, L2, PRODUCT, IN, OUT)                                                   \
	static SG_HANDLER(name)                                                                    \
	{                                                                                          \
		L *d = sg_op(w, in->d);                                                            \
		const L *pa = sg_op(w, in->a), *pb = sg_op(w, in->b);                              \
		const L *pc = sg_op(w, in->c);                                                     \
		u32 cf = *carry(w), out = cf;                                                      \
		for (u32 m = mask; m; m &= m - 1) {                                                \
			int i = __builtin_ctz(m);                                                  \
			L a = pa[i], b = pb[i], p = (L)(PRODUCT);                                  \
			L2 s = (L2)p + pc[i] + (IN ? cf >> i & 1 : 0);                             \
			d[i] = (L)s;                                                               \
			if (OUT)                                                                   \
				out = (out & ~(1u << i)) | ((u32)(s >> 8 * sizeof(L)) & 1) << i;   \
		}                                                                                  \
		*carry(w) = out;                                                                   \
	}
#define CARRY_MADS(suffix, IN, OUT)                                                                \
	CARRY_MAD(mad_lo_32##suffix, u32, u64, a *b, IN, OUT)                                      \
	CARRY_MAD(mad_hi_u32##suffix, u32, u64, (u64)a *b >> 32, IN, OUT)                          \
	CARRY_MAD(mad_hi_s32##suffix, u32, u64, (s64)(s32)a *(s32)b >> 32, IN, OUT)                \
	CARRY_MAD(mad_lo_64##suffix, u64, u128, a *b, IN, OUT)                                     \
	CARRY_MAD(mad_hi_u64##suffix, u64, u128, (u128)a *b >> 64, IN, OUT)                        \
	CARRY_MAD(mad_hi_s64##suffix, u64, u128, (s128)(s64)a *(s64)b >> 64, IN, OUT)
CARRY_MADS(_cc, 0, 1)
CARRY_MADS(_c, 1, 0)
CARRY_MADS(_c_cc, 1, 1)

/* -- the table --------------------------------------------------------------- */

#define R(opcode, fn, sig)                                                                         \
	{                                                                                          \
		opcode, fn, sig, 0                                                                 \
	}
#define R_US(op, fn, suf)                                                                          \
	R(op ".u16", fn##16, "222" suf), R(op ".s16", fn##16, "222" suf),                          \
		R(op ".u32", fn##32, "444" suf), R(op ".s32", fn##32, "444" suf),                  \
		R(op ".u64", fn##64, "888" suf), R(op ".s64", fn##64, "888" suf)
#define R_TYPED(op, fn)                                                                            \
	R(op ".u16", fn##_u16, "222"), R(op ".s16", fn##_s16, "222"),                              \
		R(op ".u32", fn##_u32, "444"), R(op ".s32", fn##_s32, "444"),                      \
		R(op ".u64", fn##_u64, "888"), R(op ".s64", fn##_s64, "888")
#define R_B(op, fn, sig16, sig32, sig64)                                                           \
	R(op ".b16", fn##16, sig16), R(op ".b32", fn##32, sig32), R(op ".b64", fn##64, sig64)
#define R_MADC(op, suffix, fn)                                                                     \
	R(op ".lo" suffix ".u32", mad_lo_32##fn, "4444"),                                          \
		R(op ".lo" suffix ".s32", mad_lo_32##fn, "4444"),                                  \
		R(op ".hi" suffix ".u32", mad_hi_u32##fn, "4444"),                                 \
		R(op ".hi" suffix ".s32", mad_hi_s32##fn, "4444"),                                 \
		R(op ".lo" suffix ".u64", mad_lo_64##fn, "8888"),                                  \
		R(op ".lo" suffix ".s64", mad_lo_64##fn, "8888"),                                  \
		R(op ".hi" suffix ".u64", mad_hi_u64##fn, "8888"),                                 \
		R(op ".hi" suffix ".s64", mad_hi_s64##fn, "8888")
#define R_CARRY(op, fn)                                                                            \
	R(op ".u32", fn##_32, "444"), R(op ".s32", fn##_32, "444"), R(op ".b32", fn##_32, "444"),  \
		R(op ".u64", fn##_64, "888"), R(op ".s64", fn##_64, "888"),                        \
		R(op ".b64", fn##_64, "888")
#define R_PRMT(mode) R("prmt.b32." #mode, prmt_##mode, "4444")
#define R_DP(op, fn)                                                                               \
	R(op ".u32.u32", fn##_uu, "4444"), R(op ".u32.s32", fn##_us, "4444"),                      \
		R(op ".s32.u32", fn##_su, "4444"), R(op ".s32.s32", fn##_ss, "4444")

const struct sg_row sg_int_rows[] = {
	R_US("add", add_u, ""),
	R_US("sub", sub_u, ""),
	R_US("mul.lo", mul_lo_, ""),
	R_US("mad.lo", mad_lo_, "*"),
	R_TYPED("min", min),
	R_TYPED("max", max),
	R_TYPED("div", div),
	R_TYPED("rem", rem),
	R_TYPED("mul.hi", mul_hi),
	R("mad.hi.u16", mad_hi_u16, "2222"),
	R("mad.hi.s16", mad_hi_s16, "2222"),
	R("mad.hi.u32", mad_hi_u32, "4444"),
	R("mad.hi.s32", mad_hi_s32, "4444"),
	R("mad.hi.u64", mad_hi_u64, "8888"),
	R("mad.hi.s64", mad_hi_s64, "8888"),
	R("mul.wide.u16", mul_wide_u16, "422"),
	R("mul.wide.s16", mul_wide_s16, "422"),
	R("mul.wide.u32", mul_wide_u32, "844"),
	R("mul.wide.s32", mul_wide_s32, "844"),
	R("mad.wide.u16", mad_wide_u16, "4224"),
	R("mad.wide.s16", mad_wide_s16, "4224"),
	R("mad.wide.u32", mad_wide_u32, "8448"),
	R("mad.wide.s32", mad_wide_s32, "8448"),
	R("add.sat.s32", add_sat, "444"),
	R("sub.sat.s32", sub_sat, "444"),
	R("mad.hi.sat.s32", mad_hi_sat, "4444"),
	R("mul24.lo.u32", mul24_lo_u, "444"),
	R("mul24.lo.s32", mul24_lo_s, "444"),
	R("mul24.hi.u32", mul24_hi_u, "444"),
	R("mul24.hi.s32", mul24_hi_s, "444"),
	R("mad24.hi.sat.s32", mad24_hi_sat, "4444"),
	R("mad24.lo.u32", mad24_lo_u, "4444"),
	R("mad24.lo.s32", mad24_lo_s, "4444"),
	R("mad24.hi.u32", mad24_hi_u, "4444"),
	R("mad24.hi.s32", mad24_hi_s, "4444"),
	R("sad.u16", sad_u16, "2222"),
	R("sad.s16", sad_s16, "2222"),
	R("sad.u32", sad_u32, "4444"),
	R("sad.s32", sad_s32, "4444"),
	R("sad.u64", sad_u64, "8888"),
	R("sad.s64", sad_s64, "8888"),
	R("abs.s16", abs_s16, "22"),
	R("abs.s32", abs_s32, "44"),
	R("abs.s64", abs_s64, "88"),
	R("neg.s16", neg_u16, "22"),
	R("neg.s32", neg_u32, "44"),
	R("neg.s64", neg_u64, "88"),
	R_B("and", and_u, "222", "444", "888"),
	R_B("or", or_u, "222", "444", "888"),
	R_B("xor", xor_u, "222", "444", "888"),
	R_B("not", not_u, "22", "44", "88"),
	R_B("cnot", cnot_u, "22", "44", "88"),
	R_B("shl", shl_, "224", "444", "884"),
	R_B("shr", shr_u, "224", "444", "884"),
	R("shr.u16", shr_u16, "224"),
	R("shr.s16", shr_s16, "224"),
	R("shr.u32", shr_u32, "444"),
	R("shr.s32", shr_s32, "444"),
	R("shr.u64", shr_u64, "884"),
	R("shr.s64", shr_s64, "884"),
	R("shf.l.wrap.b32", shf_l_wrap, "4444"),
	R("shf.r.wrap.b32", shf_r_wrap, "4444"),
	R("shf.l.clamp.b32", shf_l_clamp, "4444"),
	R("shf.r.clamp.b32", shf_r_clamp, "4444"),
	R("popc.b32", popc_32, "44"),
	R("popc.b64", popc_64, "48"),
	R("clz.b32", clz_32, "44"),
	R("clz.b64", clz_64, "48"),
	R("brev.b32", brev_32, "44"),
	R("brev.b64", brev_64, "88"),
	R("bfind.u32", bfind_u32, "44"),
	R("bfind.s32", bfind_s32, "44"),
	R("bfind.u64", bfind_u64, "48"),
	R("bfind.s64", bfind_s64, "48"),
	R("bfind.shiftamt.u32", bfind_sh_u32, "44"),
	R("bfind.shiftamt.s32", bfind_sh_s32, "44"),
	R("bfind.shiftamt.u64", bfind_sh_u64, "48"),
	R("bfind.shiftamt.s64", bfind_sh_s64, "48"),
	R("bfe.u32", bfe_u32, "4444"),
	R("bfe.s32", bfe_s32, "4444"),
	R("bfe.u64", bfe_u64, "8844"),
	R("bfe.s64", bfe_s64, "8844"),
	R("bfi.b32", bfi_32, "44444"),
	R("bfi.b64", bfi_64, "88844"),
	R("szext.clamp.s32", szext_clamp_s, "444"),
	R("szext.clamp.u32", szext_clamp_u, "444"),
	R("szext.wrap.s32", szext_wrap_s, "444"),
	R("szext.wrap.u32", szext_wrap_u, "444"),
	R("bmsk.clamp.b32", bmsk_clamp, "444"),
	R("bmsk.wrap.b32", bmsk_wrap, "444"),
	R("fns.b32", fns_32, "4444"),
	R("prmt.b32", prmt_32, "4444"),
	R_PRMT(f4e),
	R_PRMT(b4e),
	R_PRMT(rc8),
	R_PRMT(ecl),
	R_PRMT(ecr),
	R_PRMT(rc16),
	R("lop3.b32", lop3, "4444i"),
	R_DP("dp4a", dp4a),
	R_DP("dp2a.lo", dp2a_lo),
	R_DP("dp2a.hi", dp2a_hi),
	R("add.u16x2", addx2_u16x2, "444"),
	R("add.s16x2", addx2_s16x2, "444"),
	R("min.relu.s32", min_relu_s32, "444"),
	R("max.relu.s32", max_relu_s32, "444"),
	R("min.relu.s16x2", min_relu_s16x2, "444"),
	R("max.relu.s16x2", max_relu_s16x2, "444"),
	R("min.u16x2", minx2_u16x2, "444"),
	R("min.s16x2", minx2_s16x2, "444"),
	R("max.u16x2", maxx2_u16x2, "444"),
	R("max.s16x2", maxx2_s16x2, "444"),
	R_CARRY("add.cc", add_cc),
	R_CARRY("addc", addc),
	R_CARRY("addc.cc", addc_cc),
	R_CARRY("sub.cc", sub_cc),
	R_CARRY("subc", subc),
	R_CARRY("subc.cc", subc_cc),
	R_MADC("mad", ".cc", _cc),
	R_MADC("madc", "", _c),
	R_MADC("madc", ".cc", _c_cc),
};
const uint32_t sg_n_int_rows = sizeof(sg_int_rows) / sizeof(sg_int_rows[0]);
