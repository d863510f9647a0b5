/* exec_atom.c - atomics and mbarrier objects.
 *
 * Host atomics throughout: blocks run on several threads, and the host reads device memory while
 * kernels run. Everything is sequentially consistent, which satisfies every ordering PTX can ask
 * for.
 */
#include "softgpu/internal.h"

#include <math.h>
#include <string.h>

#define ORDER __ATOMIC_SEQ_CST

static uint32_t flush32(uint32_t v)
{
	return v & 0x7f800000 ? v : v & 0x80000000;
}

static uint64_t add_float(const struct sg_insn *in, uint64_t old, uint64_t v, bool flushes)
{
	float f, g;
	double d, e;
	uint32_t a = (uint32_t)old, b = (uint32_t)v;
	switch (in->type) {
	case T_F32:
		/* Global memory flushes subnormal values, shared memory does not (PTX ISA, atom).
		 */
		if (flushes) {
			a = flush32(a);
			b = flush32(b);
		}
		memcpy(&f, &a, 4);
		memcpy(&g, &b, 4);
		f += g;
		memcpy(&a, &f, 4);
		return f != f ? 0x7fffffff : flushes ? flush32(a) : a;
	case T_F64:
		memcpy(&d, &old, 8);
		memcpy(&e, &v, 8);
		/* A NaN comes out of global memory as it is, the added one first. */
		if (flushes && (d != d || e != e))
			return e != e ? v : old;
		d = d != d ? d + d : d + e;
		memcpy(&old, &d, 8);
		return old;
	default:
		return 0;
	}
}

static uint16_t half_add(uint16_t a, uint16_t b, bool bf, uint8_t op)
{
	double x = bf ? sg_bf16_to_float(a) : sg_half_to_float(a);
	double y = bf ? sg_bf16_to_float(b) : sg_half_to_float(b);
	double r = op == SG_A_ADD   ? sg_round_odd_fma(x, 1, y)
		   : x != x         ? y
		   : y != y         ? x
		   : x == y         ? (signbit(x) == (op == SG_A_MIN) ? x : y)
		   : op == SG_A_MIN ? (x < y ? x : y)
				    : (x > y ? x : y);
	return (uint16_t)sg_pack_double(r, bf ? 8 : 5, bf ? 7 : 10, SG_RN);
}

static uint64_t add_half(const struct sg_insn *in, uint64_t old, uint64_t v)
{
	bool bf = in->type == T_BF16 || in->type == T_BF16X2;
	uint32_t r = half_add((uint16_t)old, (uint16_t)v, bf, in->op);
	if (in->type == T_F16X2 || in->type == T_BF16X2)
		r |= (uint32_t)half_add((uint16_t)(old >> 16), (uint16_t)(v >> 16), bf, in->op)
		     << 16;
	return r;
}

static bool less(uint8_t type, uint64_t a, uint64_t b)
{
	switch (type) {
	case T_S32:
		return (int32_t)a < (int32_t)b;
	case T_S64:
		return (int64_t)a < (int64_t)b;
	case T_U32:
	case T_B32:
		return (uint32_t)a < (uint32_t)b;
	default:
		return a < b;
	}
}

/* What memory holds after an operation. */
static uint64_t apply(const struct sg_insn *in, uint64_t old, uint64_t b, uint64_t c, bool global)
{
	switch (in->op) {
	case SG_A_ADD:
		if (in->type == T_F32 || in->type == T_F64)
			return add_float(in, old, b, global);
		if (in->type >= T_F16 && in->type <= T_BF16X2)
			return add_half(in, old, b);
		return old + b;
	case SG_A_MIN:
		if (in->type >= T_F16 && in->type <= T_BF16X2)
			return add_half(in, old, b);
		return less(in->type, b, old) ? b : old;
	case SG_A_MAX:
		if (in->type >= T_F16 && in->type <= T_BF16X2)
			return add_half(in, old, b);
		return less(in->type, old, b) ? b : old;
	case SG_A_INC:
		return (uint32_t)old >= (uint32_t)b ? 0 : old + 1;
	case SG_A_DEC:
		return (uint32_t)old == 0 || (uint32_t)old > (uint32_t)b ? b : old - 1;
	case SG_A_AND:
		return old & b;
	case SG_A_OR:
		return old | b;
	case SG_A_XOR:
		return old ^ b;
	case SG_A_EXCH:
		return b;
	default:
		return old == b ? c : old;
	}
}

#define MODIFY(T)                                                                                  \
	static uint64_t modify_##T(                                                                \
		const struct sg_insn *in, T *p, uint64_t b, uint64_t c, bool global)               \
	{                                                                                          \
		T old = __atomic_load_n(p, __ATOMIC_RELAXED), want;                                \
		do                                                                                 \
			want = (T)apply(in, old, (T)b, (T)c, global);                              \
		while (!__atomic_compare_exchange_n(p, &old, want, false, ORDER, ORDER));          \
		return old;                                                                        \
	}
MODIFY(uint16_t)
MODIFY(uint32_t)
MODIFY(uint64_t)

uint64_t sg_atom_apply(const struct sg_insn *in, void *p, uint64_t b, uint64_t c, bool global)
{
	bool integer = !(in->type >= T_F16 && in->type <= T_F64);
	if (in->bytes == 4 && in->op == SG_A_ADD && integer)
		return __atomic_fetch_add((uint32_t *)p, (uint32_t)b, ORDER);
	if (in->bytes == 8 && in->op == SG_A_ADD && integer)
		return __atomic_fetch_add((uint64_t *)p, b, ORDER);
	if (in->bytes == 2)
		return modify_uint16_t(in, p, b, c, global);
	return in->bytes == 4 ? modify_uint32_t(in, p, b, c, global)
			      : modify_uint64_t(in, p, b, c, global);
}

static uint64_t get(struct sg_warp *w, uint32_t op, uint8_t width, int i)
{
	const void *p = sg_op(w, op);
	return width == 8 ? ((const uint64_t *)p)[i] : ((const uint32_t *)p)[i];
}

static void put(struct sg_warp *w, uint32_t op, uint8_t width, int i, uint64_t v)
{
	void *p = sg_op(w, op);
	if (width == 8)
		((uint64_t *)p)[i] = v;
	else
		((uint32_t *)p)[i] = (uint32_t)v;
}

/* Without a fence, or an order of its own, an atomic operation orders nothing else. What it
 * releases is told before it, what it acquires behind it. */
static void check_atomic(
	struct sg_warp *w, const struct sg_insn *in, uint32_t lane, void *p, uint32_t bytes)
{
	sg_check_access(w, in, lane, p, bytes, SG_READ | SG_WRITE | SG_STRONG, 0);
	if (in->sub & SG_RELEASES)
		sg_check_sync(w, lane, p, SG_RELEASES | SG_ALWAYS);
	sg_check_sync(w, lane, p, SG_RELEASES);
}

static void check_atomic_end(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, void *p)
{
	if (in->sub & SG_ACQUIRES)
		sg_check_sync(w, lane, p, SG_ACQUIRES | SG_ALWAYS);
	sg_check_sync(w, lane, p, SG_ACQUIRES);
}

/* -- 128 bits ------------------------------------------------------------------ */

typedef unsigned __int128 u128;

#ifdef __x86_64__
/* clang 14 would inline it into functions without the target, where the exchange is a call of a
 * function that nobody has. */
__attribute__((target("cx16"), noinline))
#endif
static bool
swap128(u128 *p, u128 old, u128 want)
{
	return __sync_bool_compare_and_swap(p, old, want);
}

static u128 get128(struct sg_warp *w, uint32_t op, int i)
{
	const uint64_t *p = sg_op(w, op);
	return (u128)p[i + 32] << 64 | p[i];
}

/* The same for exch.b128 and cas.b128. */
SG_HANDLER(sg_atom128)
{
	uint64_t addr[32];
	sg_addresses(w, in, mask, addr);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		u128 *p = sg_resolve_or_fault(w, in, (uint32_t)i, in->space, addr[i], 16), old,
		     want;
		if (!p)
			return;
		if (w->check)
			check_atomic(w, in, (uint32_t)i, p, 16);
		u128 b = get128(w, in->b, i), c = in->op == SG_A_CAS ? get128(w, in->c, i) : 0;
		do {
			old = (u128)__atomic_load_n((uint64_t *)p + 1, __ATOMIC_RELAXED) << 64 |
			      __atomic_load_n((uint64_t *)p, __ATOMIC_RELAXED);
			want = in->op == SG_A_EXCH ? b : old == b ? c : old;
		} while (!swap128(p, old, want));
		if (w->check)
			check_atomic_end(w, in, (uint32_t)i, p);
		if (in->has & 1) {
			uint64_t *d = sg_op(w, in->d);
			d[i] = (uint64_t)old;
			d[i + 32] = (uint64_t)(old >> 64);
		}
	}
	sg_spin(w, 8);
}

/* a: address; b, c: operands; has bit 0: a result goes to d. Vectors: list holds n results (if
 * any), then n operands. */
SG_HANDLER(sg_atom)
{
	uint64_t addr[32];
	bool result = in->has & 1;
	sg_addresses(w, in, mask, addr);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint8_t *p = sg_resolve_or_fault(
			w, in, (uint32_t)i, in->space, addr[i], (uint32_t)in->bytes * in->n);
		if (!p)
			return;
		if (w->check)
			check_atomic(w, in, (uint32_t)i, p, (uint32_t)in->bytes * in->n);
		bool global = (uintptr_t)p - w->mem->base < w->mem->span;
		if (in->n == 1) {
			uint64_t c = in->op == SG_A_CAS ? get(w, in->c, in->width, i) : 0;
			uint64_t old = sg_atom_apply(in, p, get(w, in->b, in->width, i), c, global);
			if (result)
				put(w, in->d, in->width, i, old);
			if (w->check)
				check_atomic_end(w, in, (uint32_t)i, p);
			continue;
		}
		const uint32_t *operands = in->list + (result ? in->n : 0);
		for (uint32_t k = 0; k < in->n; k++) {
			uint64_t old = sg_atom_apply(in, p + k * in->bytes,
				get(w, operands[k], in->width, i), 0, global);
			if (result)
				put(w, in->list[k], in->width, i, old);
		}
		if (w->check)
			check_atomic_end(w, in, (uint32_t)i, p);
	}
	if (in->flags & SG_SPIN)
		sg_spin(w, in->op >= SG_A_EXCH ? 8 : 1);
}

/* -- mbarrier ----------------------------------------------------------------
 * bits 0..19 arrivals still pending, 20..39 arrivals of a phase, 40..61 bytes of transactions still
 * pending (two's complement), 63 phase.
 */
enum {
	MB_INIT,
	MB_INVAL,
	MB_ARRIVE,
	MB_DROP,
	MB_TEST,
	MB_TEST_PARITY,
	MB_EXPECT_TX,
	MB_COMPLETE_TX,
	MB_PENDING,
	MB_ARRIVE_TX,
	MB_DROP_TX
};

#define COUNT_MASK 0xfffffull
#define TX_SHIFT 40
#define TX_MASK (0x3fffffull << TX_SHIFT)
#define PHASE (1ull << 63)

static uint64_t add_tx(uint64_t v, uint64_t bytes)
{
	return (v & ~TX_MASK) | ((v + (bytes << TX_SHIFT)) & TX_MASK);
}

static uint64_t settle(uint64_t v)
{
	if (v & COUNT_MASK || v & TX_MASK)
		return v;
	return (v ^ PHASE) | (v >> 20 & COUNT_MASK);
}

static uint64_t mb_apply(uint8_t op, uint64_t v, uint64_t count, uint64_t tx)
{
	switch (op) {
	case MB_INIT:
		return (count & COUNT_MASK) | (count & COUNT_MASK) << 20;
	case MB_INVAL:
		return 0;
	case MB_DROP:
		v -= count << 20;
		return settle(v - count);
	case MB_ARRIVE:
		return settle(v - count);
	case MB_ARRIVE_TX:
		return settle(add_tx(v, tx) - count);
	case MB_DROP_TX:
		v = add_tx(v, tx) - (1ull << 20);
		return settle(v - count);
	case MB_EXPECT_TX:
		return add_tx(v, count);
	case MB_COMPLETE_TX:
		return settle(add_tx(v, -count));
	default:
		return v;
	}
}

void sg_mbarrier_complete(uint64_t *p, uint64_t bytes)
{
	uint64_t old = __atomic_load_n(p, ORDER);
	while (!__atomic_compare_exchange_n(
		p, &old, mb_apply(MB_COMPLETE_TX, old, bytes, 0), false, ORDER, ORDER))
		;
}

static bool is_test(const struct sg_insn *in)
{
	return in->op == MB_TEST || in->op == MB_TEST_PARITY;
}

static void check_mbarrier(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, void *p)
{
	sg_check_access(w, in, lane, p, 8,
		in->op == MB_INIT ? SG_WRITE : SG_READ | SG_WRITE | SG_STRONG, 0);
	if (!is_test(in) && in->op != MB_INIT)
		sg_check_sync(w, lane, p, SG_RELEASES | SG_ALWAYS);
}

/* Of the state that an arrival gave: before it. */
SG_HANDLER(sg_mbarrier_pending)
{
	uint32_t *d = sg_op(w, in->d);
	const uint64_t *a = sg_op(w, in->a);
	SG_LANES(mask, d[i] = (uint32_t)(a[i] & COUNT_MASK););
}

/* op: above; b: count, state or parity (has bit 1), c: transaction bytes; has bit 0: a result. */
SG_HANDLER(sg_mbarrier)
{
	uint64_t addr[32];
	uint32_t done = 0;
	sg_addresses(w, in, mask, addr);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint64_t *p = sg_resolve_or_fault(w, in, (uint32_t)i, in->space, addr[i], 8);
		if (!p)
			return;
		uint64_t b = in->has & 2 ? get(w, in->b, in->width, i) : 1;
		uint64_t tx = in->op >= MB_ARRIVE_TX ? get(w, in->c, 4, i) : 0;
		if (w->check)
			check_mbarrier(w, in, (uint32_t)i, p);
		uint64_t old = __atomic_load_n(p, ORDER), want;
		do
			want = mb_apply(in->op, old, b, tx);
		while (want != old &&
			!__atomic_compare_exchange_n(p, &old, want, false, ORDER, ORDER));
		bool passed = (old ^ b << (in->op == MB_TEST ? 0 : 63)) >> 63;
		if (w->check && is_test(in) && passed)
			sg_check_sync(w, (uint32_t)i, p, SG_ACQUIRES | SG_ALWAYS);
		if (in->op == MB_TEST)
			done |= (uint32_t)((old ^ b) >> 63) << i;
		else if (in->op == MB_TEST_PARITY)
			done |= (uint32_t)(old >> 63 != (b & 1)) << i;
		else if (in->has & 1)
			put(w, in->d, 8, i, old);
	}
	if (in->op == MB_TEST || in->op == MB_TEST_PARITY) {
		uint32_t *d = sg_op(w, in->d);
		*d = (*d & ~mask) | done;
		if (done != mask)
			sg_spin(w, 8);
	}
}
