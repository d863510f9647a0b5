/* Forms in which compilers leave an update of shared memory: instruction by instruction, since no version of one is sure to choose them. Each
 * counts the loads of a vector addition in which the lane is even, or all. */
#include <egpu/probe.bpf.h>

#define NAKED(name) SEC("gpu/load") __attribute__((naked)) int name(void)
#define LD_CTX "r8 = *(u32 *)(r1 + 4);" /* lane */
#define OUT "r0 = 0; exit;"

struct row {
	__u64 pad;
	__u64 sum;
	__u32 most;
	__u16 half, half_pad;
};

struct row moved[4], ways[4], far[4], other[4], kept[4], common[4], fields[4];
__u64 passes[2];
__u32 zero;
#define TO(sym) [sym] "i"(&sym)

/* The base is moved between the load and the store, and a copy of it is used. */
NAKED(form_moved)
{
	asm volatile(LD_CTX
		"r8 &= 1; r2 = %[moved] ll; r8 *= 24; r2 += r8; r3 = *(u16 *)(r2 + 20); r4 = r2; r2 += 20; r3 += 1; *(u16 *)(r2 + 0) = r3;"
		"r3 = *(u64 *)(r4 + 8); r3 += 1; r5 = r4; r5 += 4; *(u64 *)(r5 + 4) = r3;" OUT ::TO(moved));
}

/* A load on each way, one store behind them; the place too is made on each way. */
NAKED(form_ways)
{
	asm volatile(LD_CTX
		"r8 &= 1; if r8 == 0 goto 1f; r2 = %[ways] ll; r2 += 24; r3 = *(u64 *)(r2 + 8); r3 -= 1; goto 2f;"
		"1: r2 = %[ways] ll; r4 = 3; r3 = *(u64 *)(r2 + 8); r4 += r3; r3 = r4;"
		"2: *(u64 *)(r2 + 8) = r3;" OUT ::TO(ways));
}

/* The same, where a way lies behind the rest of the program and jumps back. */
NAKED(form_far)
{
	asm volatile(LD_CTX
		"r8 &= 1; if r8 == 0 goto 3f; r2 = %[far] ll; r3 = *(u32 *)(r2 + 16); w3 += 2;"
		"2: *(u32 *)(r2 + 16) = r3; r2 = %[far] ll; r3 = *(u64 *)(r2 + 8); r3 += 1; *(u64 *)(r2 + 8) = r3;" OUT
		"3: r2 = %[far] ll; r2 += 24; r3 = *(u32 *)(r2 + 16); w3 += 1; goto 2b;" ::TO(far));
}

/* A greatest value: the base is moved, and another condition stands behind the comparison. */
NAKED(form_other)
{
	asm volatile(LD_CTX
		"r2 = %[other] ll; r3 = *(u32 *)(r2 + 16); if w8 <= w3 goto 1f; r4 = *(u32 *)(r1 + 40); r2 += 16; if r4 == 0xfffff goto 1f; *(u32 *)(r2 + 0) = r8;"
		"1:" OUT ::TO(other));
}

/* A greatest value that is used as well. */
NAKED(form_kept)
{
	asm volatile(LD_CTX
		"r2 = %[kept] ll; r3 = *(u32 *)(r2 + 16); if w3 > w8 goto 1f; w3 = w8; 1: *(u32 *)(r2 + 16) = r3; r3 >>= 31; lock *(u64 *)(r2 + 8) += r3;" OUT
		::TO(kept));
}

/* One store for two greatest values. */
NAKED(form_common)
{
	asm volatile(LD_CTX
		"r2 = %[common] ll; r4 = r8; w4 &= 1; if w4 == 0 goto 2f; r3 = *(u32 *)(r2 + 16); if w8 <= w3 goto 1f; 3: *(u32 *)(r2 + 16) = r8; 1:" OUT
		"2: w8 ^= 64; r3 = *(u32 *)(r2 + 16); if w8 <= w3 goto 1b; goto 3b;" ::TO(common));
}

/* A way by lane leads back to the head of a loop: lanes of two passes meet at the sum. */
NAKED(form_passes)
{
	asm volatile(LD_CTX
		"r7 = r8; r2 = 0; goto 2f; 1: r2 += 1; if r2 == 2 goto 3f; 2: r4 = r7; r4 += r2; r4 &= 1; if r4 != 0 goto 1b;"
		"r5 = r2; r5 <<= 3; r6 = %[passes] ll; r6 += r5; r3 = *(u64 *)(r6 + 0); r3 += 1; *(u64 *)(r6 + 0) = r3; goto 1b; 3:" OUT
		::TO(passes));
}

/* Two counts that begin with their keys, whose first values lie in one place of the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} first SEC(".maps"), second SEC(".maps");

NAKED(form_begun)
{
	asm volatile(LD_CTX
		"r8 &= 3; *(u32 *)(r10 - 4) = r8; r8 += 1; r2 = r10; r2 += -4; r1 = %[first] ll; call %[lookup]; if r0 == 0 goto 1f;"
		"r1 = *(u64 *)(r0 + 0); r1 += r8; *(u64 *)(r0 + 0) = r1; goto 2f;"
		"1: *(u64 *)(r10 - 16) = r8; r2 = r10; r2 += -4; r3 = r10; r3 += -16; r1 = %[first] ll; r4 = 0; call %[update];"
		"2: r2 = r10; r2 += -4; r1 = %[second] ll; call %[lookup]; if r0 == 0 goto 3f;"
		"r1 = *(u64 *)(r0 + 0); r1 += 2; *(u64 *)(r0 + 0) = r1; goto 4f;"
		"3: r1 = 2; *(u64 *)(r10 - 16) = r1; r2 = r10; r2 += -4; r3 = r10; r3 += -16; r1 = %[second] ll; r4 = 0; call %[update];"
		"4:" OUT ::TO(first), TO(second), [lookup] "i"(BPF_FUNC_map_lookup_elem), [update] "i"(BPF_FUNC_map_update_elem));
}

/* An address that was put aside on the stack beside an array that is found by a number. */
struct row aside[2];

NAKED(form_aside)
{
	asm volatile(LD_CTX
		"r2 = %[aside] ll; r2 += 24; *(u64 *)(r10 - 8) = r2; r3 = 1; *(u64 *)(r10 - 16) = r3; *(u64 *)(r10 - 24) = r3; r8 &= 8; r4 = r10; r4 += r8;"
		"r3 = *(u64 *)(r4 - 24); r2 = *(u64 *)(r10 - 8); lock *(u64 *)(r2 + 8) += r3;" OUT ::TO(aside));
}

/* One load of one of two fields of the context. */
NAKED(form_fields)
{
	asm volatile(LD_CTX
		"r8 &= 1; r2 = r1; if r8 == 0 goto 1f; r2 += 4; goto 2f; 1: r2 += 136; 2: r3 = *(u32 *)(r2 + 0); r2 = %[fields] ll;"
		"lock *(u64 *)(r2 + 8) += r3;" OUT ::TO(fields));
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
