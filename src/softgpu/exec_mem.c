/* exec_mem.c - loads, stores and address arithmetic in every state space.
 *
 * Each lane's address is resolved to a host address with exact bounds; the first lane that fails
 * ends the grid before any lane after it has touched memory. Naturally aligned accesses are single
 * host accesses, so that values written by other threads are never seen torn.
 */
#include "softgpu/internal.h"

#include <stdio.h>
#include <string.h>

void sg_addresses(struct sg_warp *w, const struct sg_insn *in, uint32_t mask, uint64_t *addr)
{
	uint64_t imm = (uint64_t)in->imm;
	if (in->addr == SG_ADDR_REG && in->flags & SG_BASE32) {
		const uint32_t *a = sg_op(w, in->a);
		SG_LANES(mask, addr[i] = (uint32_t)(a[i] + imm););
		return;
	}
	if (in->addr == SG_ADDR_REG) {
		const uint64_t *a = sg_op(w, in->a);
		SG_LANES(mask, addr[i] = a[i] + imm;);
		return;
	}
	imm += in->addr == SG_ADDR_SHARED ? w->block->grid->kernel->shared_offset[in->target]
					  : w->frame->local_base;
	SG_LANES(mask, addr[i] = imm;);
}

/* -- state spaces ------------------------------------------------------------ */

static void *at_shared(struct sg_warp *w, uint64_t addr, uint32_t bytes)
{
	struct sg_block *b = w->block;
	uint32_t off = addr & ((1u << SG_RANK_SHIFT) - 1);
	uint64_t rank = addr >> SG_RANK_SHIFT;
	if (rank) {
		if (!b->cluster && rank == 1)
			rank = 0;
		else if (!b->cluster || rank > b->cluster->n_blocks ||
			 !b->cluster->blocks[rank - 1])
			return NULL;
		else
			b = b->cluster->blocks[rank - 1];
	}
	return (uint64_t)off + bytes <= b->shared_bytes ? b->shared + off : NULL;
}

/* The frame whose locals hold the address: this one or a caller's. */
static void *at_local(struct sg_warp *w, uint32_t lane, uint64_t addr, uint32_t bytes)
{
	if (addr >= SG_STACK_BASE)
		return sg_stack_at(w, lane, addr, bytes);
	for (struct sg_frame *f = w->frame; f; f = f->parent) {
		if (addr < f->local_base)
			continue;
		uint64_t off = addr - f->local_base;
		if (off + bytes > f->func->local_bytes || off > f->func->local_bytes)
			return NULL;
		return f->local + (size_t)lane * f->func->local_bytes + off;
	}
	return NULL;
}

static void *at_kernel_param(struct sg_warp *w, uint64_t addr, uint32_t bytes)
{
	const struct sg_grid *g = w->block->grid;
	uint32_t size = g->kernel->info.param_bytes;
	return addr <= size && bytes <= size - addr ? g->params + addr : NULL;
}

static void *at_frame_param(struct sg_warp *w, uint32_t lane, uint64_t addr, uint32_t bytes)
{
	uint32_t size = w->frame->func->param_bytes;
	return addr <= size && bytes <= size - addr ? w->frame->param + (size_t)lane * size + addr
						    : NULL;
}

static void *at_generic(struct sg_warp *w, uint32_t lane, uint64_t addr, uint32_t bytes)
{
	switch (SG_WINDOW(addr)) {
	case SG_WIN_SHARED:
		return at_shared(w, (uint32_t)addr, bytes);
	case SG_WIN_LOCAL:
		return at_local(w, lane, (uint32_t)addr, bytes);
	case SG_WIN_PARAM:
		return at_kernel_param(w, (uint32_t)addr, bytes);
	default:
		return sg_mem_at(w->mem, addr, bytes);
	}
}

void *sg_resolve(struct sg_warp *w, uint32_t lane, uint8_t space, uint64_t addr, uint32_t bytes)
{
	if (addr & (bytes - 1))
		return NULL;
	switch (space) {
	case SP_GLOBAL:
		return sg_mem_at(w->mem, addr, bytes);
	case SP_SHARED:
		return at_shared(w, addr, bytes);
	case SP_LOCAL:
		return at_local(w, lane, addr, bytes);
	case SP_KERNEL_PARAM:
		return at_kernel_param(w, addr, bytes);
	case SP_FRAME_PARAM:
		return at_frame_param(w, lane, addr, bytes);
	default:
		return at_generic(w, lane, addr, bytes);
	}
}

static const char *space_name(uint8_t space, uint64_t addr)
{
	if (space == SP_GENERIC)
		space = SG_WINDOW(addr) == SG_WIN_SHARED  ? SP_SHARED
			: SG_WINDOW(addr) == SG_WIN_LOCAL ? SP_LOCAL
			: SG_WINDOW(addr) == SG_WIN_PARAM ? SP_KERNEL_PARAM
							  : SP_GLOBAL;
	static const char *const names[] = { "", "global", "shared", "local", "param", "param" };
	return names[space];
}

void *sg_resolve_or_fault(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint8_t space,
	uint64_t addr, uint32_t bytes)
{
	void *p = sg_resolve(w, lane, space, addr, bytes);
	if (p)
		return p;
	bool misaligned = addr & (bytes - 1);
	char where[160] = "";
	const char *name = space_name(space, addr);
	if (!misaligned && !strcmp(name, "global"))
		sg_mem_describe(w->mem, addr, where, sizeof(where));
	else if (!misaligned && !strcmp(name, "shared") && !((uint32_t)addr >> SG_RANK_SHIFT))
		snprintf(where, sizeof(where), ", of %u bytes that the block has",
			w->block->shared_bytes);
	sg_fault(w, in, misaligned ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS,
		(int)lane, "%s %s address 0x%llx (%u bytes)%s",
		misaligned ? "misaligned" : "illegal", name, (unsigned long long)addr, bytes,
		where);
	return NULL;
}

/* -- whole warps ------------------------------------------------------------- */

/* The host address of each lane's access; the first lane that may not ends the grid. */
static bool resolve_lanes(struct sg_warp *w, const struct sg_insn *in, uint32_t mask, uint8_t **p)
{
	uint64_t addr[32];
	const uint32_t bytes = (uint32_t)in->n * in->bytes;
	sg_addresses(w, in, mask, addr);
	if (in->space == SP_SHARED) {
		uint8_t *shared = w->block->shared;
		uint64_t size = w->block->shared_bytes;
		for (uint32_t m = mask; m; m &= m - 1) {
			int i = __builtin_ctz(m);
			if (addr[i] + bytes <= size && addr[i] <= size && !(addr[i] & (bytes - 1)))
				p[i] = shared + addr[i];
			else if (!(p[i] = sg_resolve_or_fault(
					   w, in, (uint32_t)i, SP_SHARED, addr[i], bytes)))
				return false;
		}
		return true;
	}
	if (in->space == SP_LOCAL) {
		const struct sg_frame *f = w->frame;
		uint64_t size = f->func->local_bytes;
		for (uint32_t m = mask; m; m &= m - 1) {
			int i = __builtin_ctz(m);
			uint64_t off = addr[i] - f->local_base;
			if (off <= size && off + bytes <= size && !(addr[i] & (bytes - 1)))
				p[i] = f->local + (size_t)i * size + off;
			else if (!(p[i] = sg_resolve_or_fault(
					   w, in, (uint32_t)i, SP_LOCAL, addr[i], bytes)))
				return false;
		}
		return true;
	}
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		p[i] = sg_resolve_or_fault(w, in, (uint32_t)i, in->space, addr[i], bytes);
		if (!p[i])
			return false;
	}
	return true;
}

/* -- loads ------------------------------------------------------------------- */

static uint64_t read_element(const void *p, uint32_t bytes, bool sign)
{
	switch (bytes) {
	case 1: {
		uint8_t v = __atomic_load_n((const uint8_t *)p, __ATOMIC_RELAXED);
		return sign ? (uint64_t)(int64_t)(signed char)v : v;
	}
	case 2: {
		uint16_t v = __atomic_load_n((const uint16_t *)p, __ATOMIC_RELAXED);
		return sign ? (uint64_t)(int64_t)(int16_t)v : v;
	}
	case 4: {
		uint32_t v = __atomic_load_n((const uint32_t *)p, __ATOMIC_RELAXED);
		return sign ? (uint64_t)(int64_t)(int32_t)v : v;
	}
	default:
		return __atomic_load_n((const uint64_t *)p, __ATOMIC_RELAXED);
	}
}

static void put_lane(void *reg, uint8_t width, int i, uint64_t v)
{
	if (width == 8)
		((uint64_t *)reg)[i] = v;
	else
		((uint32_t *)reg)[i] = (uint32_t)v;
}

static uint64_t get_lane(const void *reg, uint8_t width, int i)
{
	return width == 8 ? ((const uint64_t *)reg)[i] : ((const uint32_t *)reg)[i];
}

static bool is_signed(uint8_t t)
{
	return t == T_S8 || t == T_S16 || t == T_S32 || t == T_S64;
}

/* Element k of every lane into the register at reg. */
static void load_element(
	const struct sg_insn *in, uint32_t mask, uint8_t *const *p, uint32_t k, void *reg)
{
	uint64_t keep = in->reg_bits && in->reg_bits < 64 ? (1ull << in->reg_bits) - 1 : ~0ull;
	uint32_t at = k * in->bytes;
	bool sign = is_signed(in->type);
	if (in->bytes == 4 && in->width == 4) {
		uint32_t *d = reg;
		SG_LANES(mask, d[i] = (uint32_t)read_element(p[i] + at, 4, false););
	} else if (in->bytes == 8 && in->width == 8) {
		uint64_t *d = reg;
		SG_LANES(mask, d[i] = read_element(p[i] + at, 8, false););
	} else if (in->bytes == 16) {
		uint64_t *d = reg;
		SG_LANES(mask, d[i] = read_element(p[i] + at, 8, false);
			 d[i + 32] = read_element(p[i] + at + 8, 8, false););
	} else {
		SG_LANES(mask, put_lane(reg, in->width, i,
				       read_element(p[i] + at, in->bytes, sign) & keep););
	}
}

static void after_load(struct sg_warp *w, const struct sg_insn *in)
{
	if (in->flags & SG_ACQUIRE)
		atomic_thread_fence(memory_order_acquire);
	if (in->flags & SG_SPIN)
		sg_spin(w, 8);
}

static uint32_t strength(const struct sg_insn *in)
{
	return in->flags & (SG_SPIN | SG_ACQUIRE | SG_RELEASE) ? SG_STRONG : 0;
}

/* What an access orders. A store's is told before others can see the store, a load's when it has
 * its value: whoever sees the value also finds what came before it. */
static void order_lanes(
	struct sg_warp *w, const struct sg_insn *in, uint32_t mask, uint8_t *const *p, bool store)
{
	uint32_t order = (store ? SG_RELEASES : SG_ACQUIRES) |
			 (in->flags & (SG_ACQUIRE | SG_RELEASE) ? SG_ALWAYS : 0);
	if (in->space >= SP_LOCAL || !strength(in))
		return;
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		sg_check_sync(w, (uint32_t)i, p[i], order);
	}
}

/* Tells the checker before the access is made. */
static void check_lanes(
	struct sg_warp *w, const struct sg_insn *in, uint32_t mask, uint8_t *const *p, bool store)
{
	uint32_t access = (store ? SG_WRITE : SG_READ) | strength(in);
	if (in->space >= SP_LOCAL)
		return;
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint64_t value = 0;
		for (uint32_t k = 0; store && k < in->n; k++)
			value = value * 31 + get_lane(sg_op(w, in->list[k]), in->width, i);
		sg_check_access(
			w, in, (uint32_t)i, p[i], (uint32_t)in->n * in->bytes, access, value);
	}
	if (store)
		order_lanes(w, in, mask, p, true);
}

SG_HANDLER(sg_load)
{
	uint8_t *p[32];
	if (!resolve_lanes(w, in, mask, p))
		return;
	if (w->check)
		check_lanes(w, in, mask, p, false);
	if (in->n == 1)
		load_element(in, mask, p, 0, sg_op(w, in->d));
	else
		for (uint32_t k = 0; k < in->n; k++)
			load_element(in, mask, p, k, sg_op(w, in->list[k]));
	if (w->check)
		order_lanes(w, in, mask, p, false);
	after_load(w, in);
}

#define LOAD_GLOBAL(name, T, B)                                                                    \
	SG_HANDLER(name)                                                                           \
	{                                                                                          \
		T *d = sg_op(w, in->d);                                                            \
		const uint64_t *a = sg_op(w, in->a);                                               \
		struct sg_mem *mem = w->mem;                                                       \
		uint64_t imm = (uint64_t)in->imm;                                                  \
		for (uint32_t m = mask; m; m &= m - 1) {                                           \
			int i = __builtin_ctz(m);                                                  \
			uint64_t addr = a[i] + imm;                                                \
			const T *p = addr & (B - 1) ? NULL : sg_mem_at(mem, addr, B);              \
			if (!p && !(p = sg_resolve_or_fault(                                       \
					    w, in, (uint32_t)i, in->space, addr, B)))              \
				return;                                                            \
			d[i] = __atomic_load_n(p, __ATOMIC_RELAXED);                               \
		}                                                                                  \
	}
LOAD_GLOBAL(sg_load_global32, uint32_t, 4)
LOAD_GLOBAL(sg_load_global64, uint64_t, 8)

/* A kernel parameter at a known offset: the same in every lane. */
SG_HANDLER(sg_load_param)
{
	const uint8_t *p = sg_resolve_or_fault(w, in, (uint32_t)__builtin_ctz(mask),
		SP_KERNEL_PARAM, (uint64_t)in->imm, in->bytes);
	if (!p)
		return;
	uint64_t v = read_element(p, in->bytes, is_signed(in->type));
	if (in->reg_bits && in->reg_bits < 64)
		v &= (1ull << in->reg_bits) - 1;
	if (in->width == 8) {
		uint64_t *d = sg_op(w, in->d);
		SG_LANES(mask, d[i] = v;);
	} else {
		uint32_t *d = sg_op(w, in->d);
		SG_LANES(mask, d[i] = (uint32_t)v;);
	}
}

/* -- stores ------------------------------------------------------------------ */

static void write_element(void *p, uint32_t bytes, uint64_t v)
{
	switch (bytes) {
	case 1:
		__atomic_store_n((uint8_t *)p, (uint8_t)v, __ATOMIC_RELAXED);
		break;
	case 2:
		__atomic_store_n((uint16_t *)p, (uint16_t)v, __ATOMIC_RELAXED);
		break;
	case 4:
		__atomic_store_n((uint32_t *)p, (uint32_t)v, __ATOMIC_RELAXED);
		break;
	default:
		__atomic_store_n((uint64_t *)p, v, __ATOMIC_RELAXED);
		break;
	}
}

static void store_element(
	const struct sg_insn *in, uint32_t mask, uint8_t *const *p, uint32_t k, const void *reg)
{
	uint32_t at = k * in->bytes;
	if (in->bytes == 4 && in->width == 4) {
		const uint32_t *v = reg;
		SG_LANES(mask, write_element(p[i] + at, 4, v[i]););
	} else if (in->bytes == 8 && in->width == 8) {
		const uint64_t *v = reg;
		SG_LANES(mask, write_element(p[i] + at, 8, v[i]););
	} else if (in->bytes == 16) {
		const uint64_t *v = reg;
		SG_LANES(mask, write_element(p[i] + at, 8, v[i]);
			 write_element(p[i] + at + 8, 8, v[i + 32]););
	} else {
		SG_LANES(mask, write_element(p[i] + at, in->bytes, get_lane(reg, in->width, i)););
	}
}

/* Lanes one after the other, as a store to one address from several leaves the last one whole. */
static void store_vector(
	struct sg_warp *w, const struct sg_insn *in, uint32_t mask, uint8_t *const *p)
{
	for (uint32_t m = mask; m; m &= m - 1)
		for (uint32_t k = 0; k < in->n; k++)
			store_element(in, m & -m, p, k, sg_op(w, in->list[k]));
}

/* The values stored are list[]; n of them. */
SG_HANDLER(sg_store)
{
	uint8_t *p[32];
	if (!resolve_lanes(w, in, mask, p))
		return;
	if (w->check)
		check_lanes(w, in, mask, p, true);
	if (in->flags & SG_RELEASE)
		atomic_thread_fence(memory_order_release);
	if (in->n == 1)
		store_element(in, mask, p, 0, sg_op(w, in->list[0]));
	else
		store_vector(w, in, mask, p);
}

#define STORE_GLOBAL(name, T, B)                                                                   \
	SG_HANDLER(name)                                                                           \
	{                                                                                          \
		const T *v = sg_op(w, in->b);                                                      \
		const uint64_t *a = sg_op(w, in->a);                                               \
		struct sg_mem *mem = w->mem;                                                       \
		uint64_t imm = (uint64_t)in->imm;                                                  \
		for (uint32_t m = mask; m; m &= m - 1) {                                           \
			int i = __builtin_ctz(m);                                                  \
			uint64_t addr = a[i] + imm;                                                \
			T *p = addr & (B - 1) ? NULL : sg_mem_at(mem, addr, B);                    \
			if (!p && !(p = sg_resolve_or_fault(                                       \
					    w, in, (uint32_t)i, in->space, addr, B)))              \
				return;                                                            \
			__atomic_store_n(p, v[i], __ATOMIC_RELAXED);                               \
		}                                                                                  \
	}
STORE_GLOBAL(sg_store_global32, uint32_t, 4)
STORE_GLOBAL(sg_store_global64, uint64_t, 8)

/* -- addresses --------------------------------------------------------------- */

/* sub: 0 to generic, 1 from generic; imm: the window. width: bytes a lane of both registers. */
SG_HANDLER(sg_cvta)
{
	uint64_t window = (uint64_t)in->imm << 32;
	if (in->width == 8) {
		uint64_t *d = sg_op(w, in->d);
		const uint64_t *a = sg_op(w, in->a);
		SG_LANES(mask, d[i] = in->sub ? (uint32_t)a[i] : (uint32_t)a[i] | window;);
	} else {
		sg_mov32(w, in, mask);
	}
}

/* imm: the window, 0: global, 1: constant. */
SG_HANDLER(sg_isspacep)
{
	const uint64_t *a = sg_op(w, in->a);
	uint32_t r = 0;
	for (int i = 0; i < 32; i++) {
		uint64_t win = SG_WINDOW(a[i]);
		bool in_window = win == SG_WIN_SHARED || win == SG_WIN_LOCAL || win == SG_WIN_PARAM;
		bool own = in->sub == 0 || (uint32_t)a[i] >> SG_RANK_SHIFT == 0 ||
			   (uint32_t)a[i] >> SG_RANK_SHIFT == w->block->rank + 1;
		bool yes = in->imm == 0   ? !in_window
			   : in->imm == 1 ? false
					  : win == (uint64_t)in->imm && own;
		r |= (uint32_t)yes << i;
	}
	uint32_t *p = sg_op(w, in->d);
	*p = (*p & ~mask) | (r & mask);
}

/* mapa: the same shared address in block number b of the cluster. */
SG_HANDLER(sg_mapa)
{
	const uint32_t *rank = sg_op(w, in->b);
	const uint64_t low = (1u << SG_RANK_SHIFT) - 1;
	if (in->width == 8) {
		uint64_t *d = sg_op(w, in->d);
		const uint64_t *a = sg_op(w, in->a);
		SG_LANES(mask, d[i] = (a[i] & (~0xffffffffull | low)) |
				      (uint64_t)((rank[i] + 1) & 255) << SG_RANK_SHIFT;);
	} else {
		uint32_t *d = sg_op(w, in->d);
		const uint32_t *a = sg_op(w, in->a);
		SG_LANES(mask, d[i] = (uint32_t)(a[i] & low) | (rank[i] + 1) << SG_RANK_SHIFT;);
	}
}

SG_HANDLER(sg_ctarank)
{
	uint32_t *d = sg_op(w, in->d);
	const uint8_t *a = sg_op(w, in->a);
	SG_LANES(mask, uint32_t r = (uint32_t)get_lane(a, in->width, i) >> SG_RANK_SHIFT;
		 d[i] = r ? r - 1 : w->block->rank;);
}

SG_HANDLER(sg_fence)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (w->check)
		sg_check_fence(w, mask);
	sg_spin(w, 4);
}

/* Non-bulk cp.async, done at once. Shared destination as an address operand; source b + e (signed);
 * n bytes, of which (has bit 0) the first c come from memory and the rest are zero; has bit 1: the
 * predicate d2 says to ignore the source. */
SG_HANDLER(sg_cp_async)
{
	uint64_t addr[32];
	const uint64_t *src = sg_op(w, in->b);
	const uint32_t *size = in->has & 1 ? sg_op(w, in->c) : NULL;
	uint32_t ignore = in->has & 2 ? *(const uint32_t *)sg_op(w, in->d2) : 0;
	sg_addresses(w, in, mask, addr);
	for (uint32_t m = mask; m; m &= m - 1) {
		int i = __builtin_ctz(m);
		uint8_t bytes[16] = { 0 };
		uint32_t n = ignore >> i & 1 ? 0 : size && size[i] < in->n ? size[i] : in->n;
		uint8_t *to = sg_resolve_or_fault(w, in, (uint32_t)i, SP_SHARED, addr[i], in->n);
		const uint8_t *from = NULL;
		uint64_t at = src[i] + (uint64_t)(int64_t)(int32_t)in->e;
		if (!to)
			return;
		/* A short copy may end where the source's memory does. */
		if (n && !(at & (in->n - 1u)))
			from = sg_mem_at(w->mem, at, n);
		if (n && !from &&
			!(from = sg_resolve_or_fault(w, in, (uint32_t)i, SP_GENERIC, at, in->n)))
			return;
		if (w->check && n)
			sg_check_access(w, in, (uint32_t)i, from, n, SG_READ, 0);
		if (w->check)
			sg_check_access(w, in, (uint32_t)i, to, in->n, SG_WRITE, at);
		if (n)
			memcpy(bytes, from, n);
		memcpy(to, bytes, in->n);
	}
}
