/* interp.c - the interpreter inside a probed kernel, called by guards (live.h): `__egpu_live_run` at accesses, `__egpu_live_at` elsewhere.
 *
 * Compiled by clang to PTX when egpu is built (embed), twice, and from then on text: the variant's splice check compares it
 * byte for byte, because the addresses that programs compute cannot be followed in it. The verifier has proved the programs.
 * It has no module-scope data and calls nothing, so that it can be put into any module from sm_70 and PTX 6.2 on.
 *
 * Maps follow map/layout.h; the protocols are those of translate/hash.c and translate/ring.c, whose comments explain them.
 */
#include "egpu/probe.bpf.h"

#include "bpf/arithmetic.h"
#include "live/live.h"
#include "map/layout.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define INLINE static inline __attribute__((always_inline))

/* Numbers of linux/bpf.h, which drags in the host's headers. */
enum { LD, LDX, ST, STX, ALU, JMP, JMP32, ALU64 };
enum { JA = 0x00, CALL = 0x80, EXIT = 0x90 };
enum { FETCH = 1, XCHG = 0xe1, CMPXCHG = 0xf1 };
enum { TYPE_HASH = 1 };
enum { E_NOENT = -2, E_2BIG = -7, E_AGAIN = -11, E_BUSY = -16, E_EXIST = -17, E_INVAL = -22, E_OPNOTSUPP = -95 };
enum { HASH_SPINS = 1 << 18, HASH_LOOKS = 16 };
enum { RING_TRIES = 16, RING_LOOK_TRIES = 2, RING_LOOK_EVERY = 16, RING_MAX_FLAG = 3 }; /* of translate/ring.c */
enum { PRINT_HEADER = 32, PRINT_ARGS = 3, MAX_STRING = 512 };

#define SPECIAL(name, reg)                                                                         \
	INLINE u32 name(void)                                                                      \
	{                                                                                          \
		u32 v;                                                                             \
		__asm__ volatile("mov.u32 %0, " reg ";" : "=r"(v));                               \
		return v;                                                                          \
	}
SPECIAL(lane_id, "%%laneid")
SPECIAL(lanes_below, "%%lanemask_lt")
SPECIAL(sm_id, "%%smid")
SPECIAL(warp_id, "%%warpid")
SPECIAL(tid_x, "%%tid.x")
SPECIAL(tid_y, "%%tid.y")
SPECIAL(tid_z, "%%tid.z")
SPECIAL(ntid_x, "%%ntid.x")
SPECIAL(ntid_y, "%%ntid.y")
SPECIAL(ntid_z, "%%ntid.z")
SPECIAL(ctaid_x, "%%ctaid.x")
SPECIAL(ctaid_y, "%%ctaid.y")
SPECIAL(ctaid_z, "%%ctaid.z")
SPECIAL(nctaid_x, "%%nctaid.x")
SPECIAL(nctaid_y, "%%nctaid.y")
SPECIAL(nctaid_z, "%%nctaid.z")

INLINE u32 active_mask(void)
{
	u32 v;
	__asm__ volatile("activemask.b32 %0;" : "=r"(v));
	return v;
}

/* The lanes that are here with the same value. */
INLINE u32 lanes_with(u64 v)
{
	u32 same;
	__asm__ volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(same) : "l"(v), "r"(active_mask()));
	return same;
}

INLINE void meet(u32 mask)
{
	__asm__ volatile("bar.warp.sync %0;" : : "r"(mask) : "memory");
}

INLINE u64 global_timer(void)
{
	u64 v;
	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(v));
	return v;
}

INLINE u64 clock64(void)
{
	u64 v;
	__asm__ volatile("mov.u64 %0, %%clock64;" : "=l"(v));
	return v;
}

INLINE void fence(void)
{
	__asm__ volatile("membar.gl;" ::: "memory");
}

INLINE u64 load64(u64 at)
{
	return *(volatile u64 *)at;
}

INLINE void store64(u64 at, u64 v)
{
	*(volatile u64 *)at = v;
}

INLINE u64 add64(u64 at, u64 v)
{
	u64 old;
	__asm__ volatile("atom.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(at), "l"(v) : "memory");
	return old;
}

INLINE u64 cas64(u64 at, u64 old, u64 v)
{
	u64 was;
	__asm__ volatile("atom.cas.b64 %0, [%1], %2, %3;" : "=l"(was) : "l"(at), "l"(old), "l"(v) : "memory");
	return was;
}

/* Byte by byte: keys and values lie at any address. */
INLINE void copy(u64 to, u64 from, u64 n)
{
	for (u64 i = 0; i < n; i++)
		*(volatile u8 *)(to + i) = *(volatile u8 *)(from + i);
}

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

/* -- maps ----------------------------------------------------------------------- */

INLINE const struct map_image *image(u64 map)
{
	return (const struct map_image *)map;
}

INLINE u32 replica(u32 n)
{
	u32 sm = sm_id();
	return sm < n ? sm : n - 1;
}

INLINE u64 round_up(u64 n, u64 to)
{
	return (n + to - 1) & ~(to - 1);
}

/* 0: past the end. */
INLINE u64 array_value(u64 map, u32 index)
{
	const struct map_image *m = image(map);
	u64 stride = round_up(m->value_size, 8), at = map + MAP_IMAGE_HEADER;
	if (index >= m->max_entries)
		return 0;
	if (m->n_replicas > 1)
		at += replica(m->n_replicas) * round_up(m->max_entries * stride, 128);
	return at + index * stride;
}

struct slots {
	u64 first, value_at;
	u64 bytes;
	u32 mask, hash;
};

INLINE struct slots slots_of(u64 map)
{
	const struct map_image *m = image(map);
	struct slots s = { .first = map + MAP_IMAGE_HEADER };
	u64 n = 8;
	while (n < 2 * (u64)m->max_entries)
		n *= 2;
	s.mask = (u32)n - 1;
	s.value_at = 8 + round_up(m->key_size, 8);
	s.bytes = s.value_at + round_up(m->value_size, 8);
	return s;
}

INLINE u32 hash_key(u64 key, u32 size)
{
	u32 h = 0x9747b28cu;
	for (u32 i = 0; i < size; i += 4) {
		u32 w = 0;
		for (u32 k = 0; k < 4 && i + k < size; k++)
			w |= (u32) * (volatile u8 *)(key + i + k) << (8 * k);
		h = (h ^ w) * 0x85ebca6bu;
		h ^= h >> 13;
	}
	return h;
}

INLINE int same_key(u64 slot, u64 key, u32 size)
{
	for (u32 i = 0; i < size; i++)
		if (*(volatile u8 *)(slot + 8 + i) != *(volatile u8 *)(key + i))
			return 0;
	return 1;
}

INLINE void add32(u64 at, u32 v)
{
	__asm__ volatile("red.add.u32 [%0], %1;" : : "l"(at), "r"(v) : "memory");
}

INLINE void and32(u64 at, u32 v)
{
	__asm__ volatile("red.and.b32 [%0], %1;" : : "l"(at), "r"(v) : "memory");
}

/* The live slot of a key with its word; 0: none. *busy: a slot of its hash is being written. */
INLINE u64 hash_find(u64 map, u64 key, const struct slots *s, u64 *word, int *busy)
{
	u32 size = image(map)->key_size, hash = hash_key(key, size), i = hash & s->mask, reach = 0;
	*busy = 0;
	for (u32 n = 0; n <= reach; n++, i = (i + 1) & s->mask) {
		u64 slot = s->first + i * s->bytes, w = load64(slot);
		u32 state = (u32)w & MAP_SLOT_STATE;
		if (!n)
			reach = (u32)w >> MAP_SLOT_REACH;
		if ((u32)(w >> 32) != hash)
			continue;
		*busy |= state == MAP_SLOT_BUSY;
		if (state != MAP_SLOT_LIVE || !same_key(slot, key, size) || ((load64(slot) ^ w) & (0xffffffff00000000ull | MAP_SLOT_STATE)))
			continue;
		*word = w;
		return slot;
	}
	return 0;
}

INLINE u64 hash_lookup(u64 map, u64 key)
{
	struct slots s = slots_of(map);
	int busy;
	u64 word, slot = hash_find(map, key, &s, &word, &busy);
	return slot ? slot + s.value_at : 0;
}

#define LIVE_COUNT(map) ((map) + 40)
#define LOST(map) ((map) + 32)
#define DELETED(map) ((map) + 64)

INLINE s64 hash_delete(u64 map, u64 key)
{
	struct slots s = slots_of(map);
	for (u32 spins = HASH_SPINS; spins; spins--) {
		int busy;
		u64 word, slot = hash_find(map, key, &s, &word, &busy);
		if (!slot)
			return E_NOENT;
		if (cas64(slot, word, (word & ~(u64)(MAP_SLOT_STATE | MAP_SLOT_USED)) | MAP_SLOT_BUSY) != word)
			continue;
		add64(LIVE_COUNT(map), ~0ull);
		add64(DELETED(map), 1);
		fence();
		add32(slot, ~0u);
		return 0;
	}
	return E_BUSY;
}

/* Claims the first empty slot from the key's home on; how far behind it in *far. 0: none. */
INLINE u64 hash_claim(u32 hash, const struct slots *s, u32 *far)
{
	u32 i = hash & s->mask;
	for (*far = 0; *far <= s->mask && *far <= MAP_SLOT_MAX_REACH; ++*far, i = (i + 1) & s->mask) {
		u64 slot = s->first + i * s->bytes, w = load64(slot);
		if (w & MAP_SLOT_STATE)
			continue;
		if (cas64(slot, w, (u64)hash << 32 | ((u32)w & ~(u32)MAP_SLOT_USED) | MAP_SLOT_BUSY) == w)
			return slot;
	}
	return 0;
}

/* Under the lock of its home a key that is not there. 0 done, 1 try again. */
INLINE s64 hash_insert(u64 map, u64 home, u32 hash, u64 key, u64 value, const struct slots *s)
{
	const struct map_image *m = image(map);
	u64 count = load64(LIVE_COUNT(map)), padded = s->value_at - 8;
	u32 reach = (u32)load64(home) >> MAP_SLOT_REACH, far;
	if ((u32)count + (count >> 32) >= m->max_entries || cas64(LIVE_COUNT(map), count, count + (1ull << 32)) != count)
		return 1;
	u64 slot = hash_claim(hash, s, &far);
	if (!slot) {
		add64(LIVE_COUNT(map), 0xffffffff00000000ull);
		return 1;
	}
	copy(slot + 8, key, m->key_size);
	for (u64 i = m->key_size; i < padded; i++)
		*(volatile u8 *)(slot + 8 + i) = 0;
	copy(slot + s->value_at, value, m->value_size);
	if (far > reach)
		add32(home, (far - reach) << MAP_SLOT_REACH);
	add64(LIVE_COUNT(map), 0xffffffff00000001ull);
	fence();
	add32(slot, MAP_SLOT_LIVE - MAP_SLOT_BUSY);
	fence();
	return 0;
}

INLINE s64 hash_update(u64 map, u64 key, u64 value, u64 flags)
{
	const struct map_image *m = image(map);
	struct slots s = slots_of(map);
	u32 hash = hash_key(key, m->key_size);
	u64 home = s.first + (hash & s.mask) * s.bytes;
	int locked = 0, full = 0;
	u32 looks = HASH_LOOKS;
	u64 deleted = 0;
	s64 result = E_BUSY;
	if (flags > 2)
		return E_INVAL;
	for (u32 spins = HASH_SPINS; spins; spins--) {
		int busy;
		u64 word, slot = hash_find(map, key, &s, &word, &busy), w;
		if (slot || locked) {
			s64 r = slot ? 0 : hash_insert(map, home, hash, key, value, &s);
			if (locked)
				and32(home, ~(u32)MAP_SLOT_LOCK);
			locked = full = 0;
			if (slot && flags == 1)
				return E_EXIST;
			if (slot)
				copy(slot + s.value_at, value, m->value_size);
			if (!r)
				return 0;
			continue;
		}
		if (flags == 2)
			return E_NOENT;
		if (busy) {
			full = 0;
			continue;
		}
		if (full) {
			full = 0;
			fence();
			if (load64(DELETED(map)) != deleted && looks--)
				continue;
			result = E_2BIG;
			break;
		}
		deleted = load64(DELETED(map));
		if ((u32)load64(LIVE_COUNT(map)) >= m->max_entries) {
			full = 1;
			fence();
			continue;
		}
		w = load64(home);
		locked = !(w & MAP_SLOT_LOCK) && cas64(home, w, w | MAP_SLOT_LOCK) == w;
		if (locked)
			fence();
		full = 0;
	}
	if (locked)
		and32(home, ~(u32)MAP_SLOT_LOCK);
	add64(LOST(map), 1);
	return result;
}

INLINE u64 map_lookup(u64 map, u64 key)
{
	return image(map)->type == TYPE_HASH ? hash_lookup(map, key) : array_value(map, *(volatile u32 *)key);
}

INLINE s64 map_update(u64 map, u64 key, u64 value, u64 flags)
{
	if (image(map)->type == TYPE_HASH)
		return hash_update(map, key, value, flags);
	u64 at = array_value(map, *(volatile u32 *)key);
	if (flags > 2)
		return E_INVAL;
	if (!at)
		return E_2BIG;
	if (flags == 1)
		return E_EXIST;
	copy(at, value, image(map)->value_size);
	return 0;
}

/* -- ring buffers --------------------------------------------------------------- */

/* Any bin. */
INLINE u32 ring_any(u32 bins, u32 tries)
{
	return (u32)((u64)((u32)clock64() + tries * 0x9e3779b9u) * 0x85ebca6bu % bins);
}

/* Each lane by itself, with a group of its own for each record; 0: dropped, and counted. */
INLINE u64 ring_reserve(u64 map, u64 bytes)
{
	const struct map_image *m = image(map);
	u32 sms = m->n_replicas, size = map_ring_bin_bytes(m->max_entries), bins = sms * MAP_RING_BINS, sm = replica(sms), fits;
	u64 line = map + MAP_IMAGE_HEADER + (u64)sm * MAP_RING_LINE, need = map_ring_group_bytes(bytes, 1);
	u32 home = sm * MAP_RING_BINS, word = *(volatile u32 *)line, bin = home ^ word, tries = RING_TRIES;
	if (bin >= bins) {
		tries = (u32)clock64() % RING_LOOK_EVERY ? 0 : RING_LOOK_TRIES;
		bin = ring_any(bins, tries);
	}
	fits = bytes <= size && need <= size; /* what fits no bin must not close them all */
	for (; fits && tries; tries--) {
		u64 data = map + map_ring_data_at(sms) + (u64)bin * size, old = add64(map + map_ring_head_at(sms) + (u64)bin * MAP_RING_COUNT_LINE, need);
		if (old + need <= size) {
			if ((bin ^ home) != word)
				*(volatile u32 *)line = bin ^ home;
			*(volatile u32 *)(data + old) = (u32)bytes;
			*(volatile u32 *)(data + old + 4) = 1;
			store64(data + old + 8, global_timer());
			return data + old + MAP_RING_GROUP;
		}
		if (old < size) {
			*(volatile u32 *)(data + old) = MAP_RING_FILL | (u32)(size - old);
			add64(map + map_ring_committed_at(sms) + (u64)bin * MAP_RING_COUNT_LINE, size - old);
		}
		bin = RING_TRIES - tries < MAP_RING_BINS ? home + RING_TRIES - tries : ring_any(bins, tries);
		if (tries == 1)
			*(volatile u32 *)line = MAP_RING_FULL;
	}
	add64(line + MAP_RING_LOST, 1);
	return 0;
}

INLINE void ring_commit(u64 map, u64 record)
{
	const struct map_image *m = image(map);
	u32 sms = m->n_replicas, bytes = *(volatile u32 *)(record - MAP_RING_GROUP) & MAP_RING_SIZE_MASK;
	u32 bin = (u32)((record - map - map_ring_data_at(sms)) / map_ring_bin_bytes(m->max_entries));
	add64(map + map_ring_committed_at(sms) + (u64)bin * MAP_RING_COUNT_LINE, map_ring_group_bytes(bytes, 1));
}

INLINE s64 ring_output(u64 map, u64 from, u64 bytes, u64 flags)
{
	if (flags > RING_MAX_FLAG)
		return E_INVAL;
	u64 record = ring_reserve(map, bytes);
	if (!record)
		return E_AGAIN;
	copy(record, from, bytes);
	ring_commit(map, record);
	return 0;
}

/* BPF_RB_AVAIL_DATA 0, RING_SIZE 1, CONS_POS 2, PROD_POS 3: of the bin that this multiprocessor fills. */
INLINE u64 ring_query(u64 map, u64 what)
{
	const struct map_image *m = image(map);
	u32 sms = m->n_replicas, size = map_ring_bin_bytes(m->max_entries), bins = sms * MAP_RING_BINS, sm = replica(sms);
	u32 home = sm * MAP_RING_BINS, bin = home ^ *(volatile u32 *)(map + MAP_IMAGE_HEADER + (u64)sm * MAP_RING_LINE);
	u64 made = load64(map + map_ring_head_at(sms) + (u64)(bin < bins ? bin : home) * MAP_RING_COUNT_LINE);
	if (what == 1)
		return m->max_entries;
	return what != 0 && what != 3 ? 0 : made < size ? made : size;
}

/* A line of text: u32 bytes of the format, u32 arguments, u64 args[3], format (translate/helper.c). twice: each % stands for itself. */
INLINE s64 print(u64 map, u64 format, u64 bytes, const u64 *args, int twice)
{
	u64 percents = 0, n = 0, length = bytes;
	for (u64 i = 0; i < bytes; i++) {
		int is = *(volatile u8 *)(format + i) == '%', pair = is && i + 1 < bytes && *(volatile u8 *)(format + i + 1) == '%';
		percents += is;
		n += is && !pair;
		i += !twice && pair;
	}
	length += twice ? percents : 0;
	u64 record = map ? ring_reserve(map, PRINT_HEADER + length) : 0;
	if (!record)
		return E_AGAIN;
	*(volatile u32 *)record = (u32)length;
	*(volatile u32 *)(record + 4) = twice ? 0 : n < PRINT_ARGS ? (u32)n : PRINT_ARGS;
	for (u64 i = 0; i < PRINT_ARGS; i++)
		store64(record + 8 + 8 * i, i < n && !twice ? args[i] : 0);
	u64 to = record + PRINT_HEADER;
	for (u64 i = 0; i < bytes; i++) {
		u8 c = *(volatile u8 *)(format + i);
		*(volatile u8 *)to++ = c;
		if (twice && c == '%')
			*(volatile u8 *)to++ = c;
	}
	ring_commit(map, record);
	return (s64)bytes;
}

INLINE u64 string_bytes(u64 at)
{
	u64 n = 1;
	while (n < MAX_STRING && *(volatile u8 *)(at + n - 1))
		n++;
	return n;
}

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
