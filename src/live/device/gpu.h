/* gpu.h - what the interpreter inside a kernel (live/interp.c) needs of the GPU: special registers, lanes, memory. Compiled by clang for the device. */
#ifndef EGPU_LIVE_DEVICE_GPU_H
#define EGPU_LIVE_DEVICE_GPU_H

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;

#define INLINE static inline __attribute__((always_inline))

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

#endif
