/* interp.c - the interpreter inside a probed kernel, called for guards by call.c: `__egpu_live_run` at accesses, `__egpu_live_at` elsewhere.
 *
 * Compiled by clang to PTX when egpu is built (embed), twice, and from then on text: the variant's splice check compares it
 * byte for byte, because the addresses that programs compute cannot be followed in it. The verifier has proved the programs.
 * It has no module-scope data and calls nothing, so that it can be put into any module from sm_70 and PTX 6.3 on.
 *
 * Maps and ring buffers are in device/.
 */
#include "egpu/probe.bpf.h"

#include "bpf/arithmetic.h"
#include "live/device/gpu.h"
#include "live/device/maps.h"
#include "live/device/rings.h"
#include "live/live.h"
#include "map/layout.h"

/* Numbers of linux/bpf.h, which drags in the host's headers. */
enum { LD, LDX, ST, STX, ALU, JMP, JMP32, ALU64 };
enum { JA = 0x00, CALL = 0x80, EXIT = 0x90 };
enum { FETCH = 1, XCHG = 0xe1, CMPXCHG = 0xf1 };

/* The most that a context has of its own. */
union tail {
	struct egpu_mem mem;
	struct egpu_warp warp;
	struct egpu_warp_mem warp_mem;
	struct egpu_block block;
};
enum { COMMON_BYTES = 128, TAIL_BYTES = sizeof(union tail) - COMMON_BYTES };
_Static_assert(COMMON_BYTES == __builtin_offsetof(struct egpu_mem, address) && COMMON_BYTES == __builtin_offsetof(struct egpu_warp, mask) &&
		       COMMON_BYTES == __builtin_offsetof(struct egpu_warp_mem, address) && COMMON_BYTES == __builtin_offsetof(struct egpu_block, index),
	"what contexts have in common");

/* -- one run ------------------------------------------------------------------ */

enum frame_kind { FRAME_CALL, FRAME_LOOP, FRAME_EACH };

struct frame {
	u64 saved[4]; /* r6 to r9 */
	u64 fp;
	u64 context;  /* of a callback */
	u64 map;
	u32 back, kind;
	u32 at, limit, calls, function;
	u64 key;      /* FRAME_EACH over an array: what the function's key pointer points to */
};

struct run {
	u64 reg[11];
	struct frame frames[LIVE_FRAMES - 1];
	u64 stack[LIVE_STACK / 8];
	const struct live_program *program;
	u32 n_frames, pc;
	u32 calls; /* of get_prandom_u32 */
	u32 site, kernel, mask;	   /* of its context; what it takes no memory to know is not here */
	u32 own[TAIL_BYTES / 4];   /* the context behind what all have in common */
};

/* -- memory ----------------------------------------------------------------------- */

INLINE u64 load(u64 at, u32 size)
{
	switch (size) {
	case 0:
		return *(volatile u32 *)at;
	case 1:
		return *(volatile u16 *)at;
	case 2:
		return *(volatile u8 *)at;
	default:
		return *(volatile u64 *)at;
	}
}

INLINE void store(u64 at, u32 size, u64 v)
{
	switch (size) {
	case 0:
		*(volatile u32 *)at = (u32)v;
		break;
	case 1:
		*(volatile u16 *)at = (u16)v;
		break;
	case 2:
		*(volatile u8 *)at = (u8)v;
		break;
	default:
		*(volatile u64 *)at = v;
	}
}

#define ATOMIC(width, letter, name, insn)                                                          \
	INLINE u64 name##width(u64 at, u64 v)                                                      \
	{                                                                                          \
		u##width old;                                                                      \
		__asm__ volatile("atom." insn " %0, [%1], %2;"                                     \
				 : "=" letter(old)                                                 \
				 : "l"(at), letter((u##width)v)                                    \
				 : "memory");                                                      \
		return old;                                                                        \
	}
ATOMIC(32, "r", atomic_add, "add.u32")
ATOMIC(64, "l", atomic_add, "add.u64")
ATOMIC(32, "r", atomic_or, "or.b32")
ATOMIC(64, "l", atomic_or, "or.b64")
ATOMIC(32, "r", atomic_and, "and.b32")
ATOMIC(64, "l", atomic_and, "and.b64")
ATOMIC(32, "r", atomic_xor, "xor.b32")
ATOMIC(64, "l", atomic_xor, "xor.b64")
ATOMIC(32, "r", atomic_exch, "exch.b32")
ATOMIC(64, "l", atomic_exch, "exch.b64")
ATOMIC(32, "r", atomic_min_u, "min.u32")
ATOMIC(64, "l", atomic_min_u, "min.u64")
ATOMIC(32, "r", atomic_min_s, "min.s32")
ATOMIC(64, "l", atomic_min_s, "min.s64")
ATOMIC(32, "r", atomic_max_u, "max.u32")
ATOMIC(64, "l", atomic_max_u, "max.u64")
ATOMIC(32, "r", atomic_max_s, "max.s32")
ATOMIC(64, "l", atomic_max_s, "max.s64")

INLINE u64 cas32(u64 at, u64 old, u64 v)
{
	u32 was;
	__asm__ volatile("atom.cas.b32 %0, [%1], %2, %3;"
			 : "=r"(was)
			 : "l"(at), "r"((u32)old), "r"((u32)v)
			 : "memory");
	return was;
}

/* The stack lies in local memory, where atomics do not work; nobody else sees it. */
INLINE u64 own(u64 at, int wide, u32 op, u64 v, u64 r0)
{
	u64 old = wide ? *(volatile u64 *)at : *(volatile u32 *)at, now = v;
	if (op == CMPXCHG)
		now = old == (wide ? r0 : (u32)r0) ? v : old;
	else if (op != XCHG)
		now = (op & 0xf0) == 0x00 ? old + v : (op & 0xf0) == 0x40 ? old | v : (op & 0xf0) == 0x50 ? old & v : old ^ v;
	store(at, wide ? 3 : 0, now);
	return old;
}

INLINE u64 shared_atomic(u64 at, int wide, u32 op, u64 v, u64 r0)
{
	switch (op) {
	case CMPXCHG:
		return wide ? cas64(at, r0, v) : cas32(at, r0, v);
	case XCHG:
		return wide ? atomic_exch64(at, v) : atomic_exch32(at, v);
	default:
		break;
	}
	switch (op & 0xf0) {
	case 0x00:
		return wide ? atomic_add64(at, v) : atomic_add32(at, v);
	case 0x40:
		return wide ? atomic_or64(at, v) : atomic_or32(at, v);
	case 0x50:
		return wide ? atomic_and64(at, v) : atomic_and32(at, v);
	case LIVE_MIN_U:
		return wide ? atomic_min_u64(at, v) : atomic_min_u32(at, v);
	case LIVE_MIN_S:
		return wide ? atomic_min_s64(at, v) : atomic_min_s32(at, v);
	case LIVE_MAX_U:
		return wide ? atomic_max_u64(at, v) : atomic_max_u32(at, v);
	case LIVE_MAX_S:
		return wide ? atomic_max_s64(at, v) : atomic_max_s32(at, v);
	default:
		return wide ? atomic_xor64(at, v) : atomic_xor32(at, v);
	}
}

INLINE int on_stack(const struct run *r, u64 at)
{
	return at - (u64)r->stack < sizeof(r->stack);
}

INLINE void do_atomic(struct run *r, u64 insn, u64 at, u64 *src)
{
	int wide = (insn >> 3 & 3) == 3;
	u32 op = (u32)(insn >> 32);
	u64 old = on_stack(r, at) ? own(at, wide, op, *src, r->reg[0]) : shared_atomic(at, wide, op, *src, r->reg[0]);
	if (op == CMPXCHG)
		r->reg[0] = old;
	else if (op & FETCH)
		*src = old;
}

/* -- calls ------------------------------------------------------------------------ */

/* Enters a function or the first round of a callback; room was proved by live_encode. */
INLINE struct frame *enter(struct run *r, u32 depth)
{
	struct frame *f = &r->frames[r->n_frames++];
	for (u32 i = 0; i < 4; i++)
		f->saved[i] = r->reg[6 + i];
	f->fp = r->reg[10];
	f->back = r->pc;
	r->reg[10] -= depth;
	return f;
}

INLINE void leave(struct run *r)
{
	const struct frame *f = &r->frames[--r->n_frames];
	for (u32 i = 0; i < 4; i++)
		r->reg[6 + i] = f->saved[i];
	r->reg[10] = f->fp;
	r->pc = f->back;
}

/* The next live slot at or behind f->at. */
INLINE u64 next_slot(struct frame *f)
{
	struct slots s = slots_of(f->map);
	for (; f->at <= s.mask; f->at++) {
		u64 slot = s.first + f->at * s.bytes;
		if (((u32)load64(slot) & MAP_SLOT_STATE) == MAP_SLOT_LIVE) {
			f->at++;
			return slot;
		}
	}
	return 0;
}

INLINE int each_element(struct run *r, struct frame *f)
{
	if (image(f->map)->type == TYPE_HASH) {
		u64 slot = next_slot(f);
		r->reg[2] = slot + 8;
		r->reg[3] = slot ? slot + slots_of(f->map).value_at : 0;
		return slot != 0;
	}
	f->key = f->at;
	r->reg[2] = (u64)&f->key;
	r->reg[3] = array_value(f->map, f->at++);
	return r->reg[3] != 0;
}

/* The innermost callback's next round, or on behind the helper with the number of rounds. */
INLINE void call_back(struct run *r, int stop)
{
	struct frame *f = &r->frames[r->n_frames - 1];
	int more = !stop && f->calls < f->limit;
	if (more && f->kind == FRAME_LOOP) {
		r->reg[1] = f->calls;
		r->reg[2] = f->context;
	} else if (more) {
		more = each_element(r, f);
		r->reg[1] = f->map;
		r->reg[4] = f->context;
	}
	if (more) {
		f->calls++;
		r->pc = f->function;
		return;
	}
	u64 calls = f->calls;
	leave(r);
	r->reg[0] = calls;
}

INLINE void begin_callback(struct run *r, u32 kind, u32 depth)
{
	u64 context = r->reg[3], first = r->reg[1], function = r->reg[2];
	u32 limit = kind == FRAME_LOOP ? (u32)first : ~0u;
	if (r->reg[4] || (kind == FRAME_LOOP && limit > 1u << 23)) {
		r->reg[0] = r->reg[4] ? (u64)E_INVAL : (u64)E_2BIG;
		return;
	}
	struct frame *f = enter(r, depth);
	f->kind = kind;
	f->context = context;
	f->map = first;
	f->at = f->calls = 0;
	f->limit = limit;
	f->function = (u32)function;
	call_back(r, 0);
}

/* -- helpers ---------------------------------------------------------------------- */

INLINE u64 mix(u64 x, u64 factor)
{
	return (x ^ x >> 33) * factor;
}

INLINE u64 prandom(struct run *r)
{
	u64 x = r->program->seed + ++r->calls * 0x632be59bd9b4e019ull;
	x = x * 0x9e3779b97f4a7c15ull + clock64();
	u32 place[] = { sm_id(), warp_id(), lane_id(), ctaid_x(), ctaid_y(), tid_x() };
	for (u32 i = 0; i < sizeof(place) / sizeof(place[0]); i++)
		x = x * 0x9e3779b97f4a7c15ull + place[i];
	return mix(mix(x, 0xff51afd7ed558ccdull), 0xc4ceb9fe1a85ec53ull) >> 32;
}

INLINE u64 three(const struct run *r, u32 x, u32 y, u32 z)
{
	store64(r->reg[1], x);
	store64(r->reg[2], y);
	store64(r->reg[3], z);
	return 0;
}

/* A coordinate of the thread in a lane of this warp; the field's offset tells which. */
INLINE u64 lane_read(u32 lane, u32 offset)
{
	u32 nx = ntid_x(), ny = ntid_y();
	u32 linear = (((tid_z() * ny + tid_y()) * nx + tid_x()) & ~31u) | (lane & 31);
	u32 which = (offset - (u32)__builtin_offsetof(struct egpu_warp, thread)) / 4;
	return which == 0 ? linear % nx : which == 1 ? linear / nx % ny : linear / nx / ny;
}

/* The map of a record that goes: what a ld_imm64 of the program names (live.h). */
INLINE u64 map_named(const struct run *r, u32 insn)
{
	return r->program->insns[insn] >> 32 | r->program->insns[insn + 1] >> 32 << 32;
}

INLINE u64 helper(struct run *r, u32 number, u32 off)
{
	const u64 *a = r->reg;
	switch (number) {
	case 1:
		return map_lookup(a[1], a[2]);
	case 2:
		return (u64)map_update(a[1], a[2], a[3], a[4]);
	case 3:
		return image(a[1])->type == TYPE_HASH ? (u64)hash_delete(a[1], a[2]) : (u64)E_INVAL;
	case 5:
		return global_timer() + r->program->clock;
	case 6:
		return (u64)print(r->program->trace, a[1], (u32)a[2], &a[3], 0);
	case 7:
		return prandom(r);
	case 8:
		return replica(r->program->sms);
	case 130:
		return (u64)ring_output(a[1], a[2], (u32)a[3], a[4]);
	case 131:
		return a[3] ? 0 : ring_reserve(a[1], (u32)a[2]);
	case 133:
		*(volatile u32 *)(a[1] + 4 - MAP_RING_GROUP) = 0;
		ring_commit(map_named(r, off), a[1]);
		return 0;
	case 132:
		ring_commit(map_named(r, off), a[1]);
		return 0;
	case 134:
		return ring_query(a[1], a[2]);
	case 501:
		return (u64)print(r->program->trace, a[1], string_bytes(a[1]), a, 1);
	case 502:
		return global_timer();
	case 503:
		return three(r, ctaid_x(), ctaid_y(), ctaid_z());
	case 504:
		return three(r, ntid_x(), ntid_y(), ntid_z());
	case 505:
		return three(r, tid_x(), tid_y(), tid_z());
	case 506:
		__asm__ volatile("membar.sys;" ::: "memory");
		return 0;
	case 508:
		return three(r, nctaid_x(), nctaid_y(), nctaid_z());
	case 509:
		return sm_id();
	case 510:
		return warp_id();
	case 511:
		return lane_id();
	case 600:
		return lane_read((u32)a[1], (u32)a[2]);
	default:
		return (u64)E_OPNOTSUPP;
	}
}

INLINE void do_call(struct run *r, u64 insn, u32 at)
{
	u32 depth = (u16)(insn >> 16);
	int32_t imm = (int32_t)(insn >> 32);
	if ((insn >> 12 & 15) == 1) {
		struct frame *f = enter(r, depth);
		f->kind = FRAME_CALL;
		r->pc = at + 1 + (u32)imm;
	} else if (imm == 164 || imm == 181) {
		begin_callback(r, imm == 181 ? FRAME_LOOP : FRAME_EACH, depth);
	} else {
		r->reg[0] = helper(r, (u32)imm, depth);
	}
}

/* 1: the program is over. */
INLINE int do_exit(struct run *r)
{
	if (!r->n_frames)
		return 1;
	if (r->frames[r->n_frames - 1].kind == FRAME_CALL)
		leave(r);
	else
		call_back(r, r->reg[0] != 0);
	return 0;
}

/* -- the loop --------------------------------------------------------------------- */

INLINE void do_alu(struct run *r, u64 insn, int wide)
{
	u32 code = (u8)insn, imm = (u32)(insn >> 32);
	u64 *dst = &r->reg[insn >> 8 & 15];
	u64 b = code & ARITH_FROM_REG ? r->reg[insn >> 12 & 15] : (u64)(s64)(int32_t)imm;
	*dst = (code & ARITH_OPERATION) == ARITH_END ? arith_end(code, wide, imm, *dst) : arith_alu(code, wide, (u16)(insn >> 16), *dst, b);
}

/* 1: the program is over. */
INLINE int do_jump(struct run *r, u64 insn, u32 at, int wide)
{
	u32 code = (u8)insn, op = code & ARITH_OPERATION;
	if (op == EXIT)
		return do_exit(r);
	if (op == CALL) {
		do_call(r, insn, at);
		return 0;
	}
	u64 a = r->reg[insn >> 8 & 15], b = code & ARITH_FROM_REG ? r->reg[insn >> 12 & 15] : (u64)(s64)(int32_t)(insn >> 32);
	if (op == JA)
		r->pc = at + 1 + (u32)(wide ? (int32_t)(int16_t)(insn >> 16) : (int32_t)(insn >> 32));
	else if (arith_holds(code, wide, a, b))
		r->pc = at + 1 + (u32)(int32_t)(int16_t)(insn >> 16);
	return 0;
}

/* Four bytes of the context. */
INLINE u32 context_word(const struct run *r, u32 offset)
{
	switch (offset) {
	case 0:
		return r->site;
	case 4:
		return lane_id();
	case 8:
		return ((tid_z() * ntid_y() + tid_y()) * ntid_x() + tid_x()) / 32;
	case 12:
		return sm_id();
	case 16:
		return tid_x();
	case 20:
		return tid_y();
	case 24:
		return tid_z();
	case 28:
		return ntid_x();
	case 32:
		return ntid_y();
	case 36:
		return ntid_z();
	case 40: /* the block, and the cluster where there are none */
	case 64:
		return ctaid_x();
	case 44:
	case 68:
		return ctaid_y();
	case 48:
	case 72:
		return ctaid_z();
	case 52:
		return nctaid_x();
	case 56:
		return nctaid_y();
	case 60:
		return nctaid_z();
	case 76: /* the cluster's size */
	case 80:
	case 84:
		return 1;
	case 100:
		return r->mask;
	case 112:
		return r->kernel;
	default:
		return offset < COMMON_BYTES ? 0 : r->own[(offset - COMMON_BYTES) / 4 % (TAIL_BYTES / 4)];
	}
}
_Static_assert(__builtin_offsetof(struct egpu_mem, thread) == 16 && __builtin_offsetof(struct egpu_mem, block_dim) == 28 &&
		       __builtin_offsetof(struct egpu_mem, block) == 40 && __builtin_offsetof(struct egpu_mem, grid_dim) == 52 &&
		       __builtin_offsetof(struct egpu_mem, cluster) == 64 && __builtin_offsetof(struct egpu_mem, cluster_dim) == 76 &&
		       __builtin_offsetof(struct egpu_mem, active_mask) == 100 && __builtin_offsetof(struct egpu_mem, kernel) == 112,
	"context_word");

/* Fields are aligned to their size. */
INLINE u64 load_context(const struct run *r, u32 offset, u32 size)
{
	u64 v = 0;
	u32 words = size == 3 ? 2 : 1;
#pragma clang loop unroll(disable)
	for (u32 k = 0; k < words; k++)
		v |= (u64)context_word(r, (offset & ~3u) + 4 * k) << 32 * k;
	return arith_cut(v >> 8 * (offset & 3), size == 0 ? 32 : size == 1 ? 16 : size == 2 ? 8 : 64);
}

INLINE void do_memory(struct run *r, u64 insn, u32 class)
{
	u32 size = insn >> 3 & 3, mode = insn >> 5 & 7;
	u64 off = (u64)(s64)(int16_t)(insn >> 16), *dst = &r->reg[insn >> 8 & 15], *src = &r->reg[insn >> 12 & 15];
	if (class == LDX) {
		u64 v = mode == LIVE_CONTEXT_MODE ? load_context(r, (u32)(insn >> 32), size) : load(*src + off, size);
		*dst = mode == 4 ? arith_extended(v, size == 0 ? 32 : size == 1 ? 16 : 8) : v;
	} else if (class == STX && mode == 6) {
		do_atomic(r, insn, *dst + off, src);
	} else {
		store(*dst + off, size, class == STX ? *src : (u64)(s64)(int32_t)(insn >> 32));
	}
}

INLINE void run_program(struct run *r)
{
	const struct live_program *p = r->program;
	r->n_frames = 0;
	r->pc = 0;
	r->reg[1] = (u64)r; /* read by context_word alone */
	r->reg[10] = (u64)r->stack + LIVE_STACK;
	for (u32 left = p->budget; left && r->pc < p->n_insns; left--) {
		u32 at = r->pc++;
		u64 insn = p->insns[at];
		u32 class = insn & 7;
		if (class == ALU64 || class == ALU) {
			do_alu(r, insn, class == ALU64);
		} else if (class == JMP || class == JMP32) {
			if (do_jump(r, insn, at, class == JMP))
				return;
		} else if (class == LD) {
			r->reg[insn >> 8 & 15] = insn >> 32 | p->insns[r->pc++] >> 32 << 32;
		} else {
			do_memory(r, insn, class);
		}
	}
}

/* -- contexts --------------------------------------------------------------------- */

struct access {
	u64 address, value[4];
	u32 site, kernel, bytes, space, op, value_bytes;
};

INLINE u64 from_lane(u64 v, u32 lane, u32 mask)
{
	u32 lo, hi;
	__asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(lo) : "r"((u32)v), "r"(lane), "r"(mask));
	__asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 31, %3;" : "=r"(hi) : "r"((u32)(v >> 32)), "r"(lane), "r"(mask));
	return (u64)hi << 32 | lo;
}

/* How many different values the lanes of the mask hold. Accesses are aligned to their size. */
INLINE u32 distinct(u64 v, u32 mask)
{
	u32 n = 0;
	for (u32 left = mask; left; left &= left - 1) {
		u32 lane = (u32)__builtin_ctz(left), seen = 0;
		u64 other = from_lane(v, lane, mask);
		for (u32 before = mask & ((1u << lane) - 1); before; before &= before - 1)
			seen |= from_lane(v, (u32)__builtin_ctz(before), mask) == other;
		n += !seen;
	}
	return n;
}

#define OWN(type, field) ((__builtin_offsetof(struct type, field) - COMMON_BYTES) / 4)

INLINE void set_own64(struct run *r, u32 at, u64 v)
{
	r->own[at] = (u32)v;
	r->own[at + 1] = (u32)(v >> 32);
}

INLINE void fill_mem(struct run *r, const struct access *a)
{
	set_own64(r, OWN(egpu_mem, address), a->address);
	r->own[OWN(egpu_mem, bytes)] = a->bytes;
	r->own[OWN(egpu_mem, space)] = a->space;
	r->own[OWN(egpu_mem, op)] = a->op;
	r->own[OWN(egpu_mem, value_bytes)] = a->value_bytes;
	for (u32 i = 0; i < 4; i++)
		set_own64(r, OWN(egpu_mem, value) + 2 * i, a->value[i]);
}

INLINE void fill_warp_mem(struct run *r, const struct access *a, u32 mask, u32 flags)
{
	u32 granule = a->bytes > 32 ? a->bytes : 32;
	set_own64(r, OWN(egpu_warp_mem, address), a->address);
	r->own[OWN(egpu_warp_mem, bytes)] = a->bytes;
	r->own[OWN(egpu_warp_mem, space)] = a->space;
	r->own[OWN(egpu_warp_mem, op)] = a->op;
	r->own[OWN(egpu_warp_mem, mask)] = mask;
	r->own[OWN(egpu_warp_mem, lanes)] = (u32)__builtin_popcount(mask);
	if (flags & LIVE_WANTS_COVERAGE) {
		r->own[OWN(egpu_warp_mem, distinct_bytes)] = distinct(a->address, mask) * a->bytes;
		r->own[OWN(egpu_warp_mem, sectors)] = distinct(a->address / granule, mask) * (granule / 32);
	}
}

/* list: what the guard's word held. At loop heads `bytes` is the block's index and `value_bytes` its instructions. Lanes that came
 * together run each program together, however the one before it has parted them. */
INLINE void run_list(u64 list, u32 point, const struct access *a)
{
	const struct live_list *l = (const struct live_list *)list;
	u32 mask = lanes_with(list);
	struct run r;
	r.site = a->site;
	r.kernel = a->kernel;
	r.mask = mask;
	for (u64 i = 0; i < l->n && i < LIVE_PER_LIST; i++) {
		meet(mask);
		r.program = (const struct live_program *)l->programs[i];
		r.calls = 0;
		u32 flags = r.program->flags;
		if (point == LIVE_MEM && !(r.program->ops >> a->op & 1))
			continue;
		if ((flags & LIVE_WARP) && point == LIVE_MEM) {
			fill_warp_mem(&r, a, mask, flags);
		} else if (flags & LIVE_WARP) {
			r.own[OWN(egpu_warp, mask)] = mask;
			r.own[OWN(egpu_warp, lanes)] = (u32)__builtin_popcount(mask);
		} else if (point == LIVE_MEM) {
			fill_mem(&r, a);
		} else if (point == LIVE_LOOP) {
			r.own[OWN(egpu_block, index)] = a->bytes;
			r.own[OWN(egpu_block, insns)] = a->value_bytes;
			r.own[OWN(egpu_block, loop_head)] = 1;
		}
		if (!(flags & LIVE_WARP) || !(lanes_below() & mask))
			run_program(&r);
	}
}

/* Two functions, each compiled by itself: what a guard passes costs registers in the kernel, and with them places for blocks. */
#ifdef LIVE_AT
/* Guards that are not at accesses. where: site | kernel << 32 | enum live_point << 48; block: index | instructions << 32. */
void __egpu_live_at(u64 list, u64 where, u64 block)
{
	u32 point = (u32)(where >> 48);
	struct access a = { 0, { 0, 0, 0, 0 }, (u32)where, (u32)(where >> 32) & 0xffff, (u32)block, 0, 0, (u32)(block >> 32) };
	if (point != LIVE_MEM)
		run_list(list, point, &a);
}
#else
/* Guards at accesses. */
void __egpu_live_run(u64 list, u32 point, u32 site, u32 kernel, u64 address, u32 bytes, u32 space, u32 op, u32 value_bytes, u64 v0, u64 v1,
	u64 v2, u64 v3)
{
	struct access a = { address, { v0, v1, v2, v3 }, site, kernel, bytes, space, op, value_bytes };
	run_list(list, point, &a);
}
#endif
