/* What lanes have, added up by each of them, and by one that gathers it: the sums are equal. */
#include <egpu/probe.bpf.h>

/* OF is a number that tells lanes apart, so that no two may be exchanged. */
#define OF(x, lane) ((__u64)(x) * (2 * (lane) + 3) + ((__u64)(x) >> 9))

/* clang takes loops with known ends apart, so that lanes are constants; or leaves them. */
#define APART _Pragma("clang loop unroll(full)")
#define LOOP _Pragma("clang loop unroll(disable)")

#define PAIR(section, thread_type, warp_type, how, field, name)                                                  \
	__u64 name##_threads, name##_warps, name##_reads, name##_others;                                           \
	SEC("gpu/" section) int name##_thread(thread_type *c)                                                      \
	{                                                                                                          \
		name##_threads += OF(c->field, c->lane);                                                           \
		return 0;                                                                                          \
	}                                                                                                          \
	SEC("gpu.warp/" section) int name##_warp(warp_type *c)                                                     \
	{                                                                                                          \
		__u64 sum = 0, others = 0, reads = 0;                                                              \
		how for (__u32 lane = 0; lane < 32; lane++) {                                                          \
			__u64 x = egpu_lane_read(lane, field);                                                     \
			if (c->active_mask >> lane & 1) {                                                          \
				sum += OF(x, lane);                                                                \
				reads++;                                                                           \
			} else {                                                                                   \
				others |= x;                                                                       \
			}                                                                                          \
		}                                                                                                  \
		name##_warps += sum;                                                                               \
		name##_reads += reads;                                                                             \
		name##_others += others;                                                                           \
		return 0;                                                                                          \
	}

PAIR("load", struct egpu_mem, struct egpu_warp_mem, APART, address, load_address)
PAIR("store", struct egpu_mem, struct egpu_warp_mem, LOOP, value[0], store_value)
PAIR("atomic", struct egpu_mem, struct egpu_warp_mem, LOOP, address, atomic_address)
PAIR("mem", struct egpu_mem, struct egpu_warp_mem, LOOP, space, mem_space)
PAIR("load_done", struct egpu_load_done, struct egpu_warp_mem, APART, value[0], done_value)
PAIR("load_done", struct egpu_load_done, struct egpu_warp_mem, LOOP, address, done_address)
PAIR("branch", struct egpu_branch, struct egpu_warp, LOOP, taken, branch_taken)
PAIR("barrier", struct egpu_barrier, struct egpu_warp, APART, id, barrier_id)
PAIR("insn:mul", struct egpu_insn, struct egpu_warp, LOOP, value[1], insn_value)

char LICENSE[] SEC("license") = "Dual BSD/GPL";
