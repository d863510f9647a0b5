/* SPDX-License-Identifier: Apache-2.0 */
/* probe.bpf.h - what a GPU probe can see.
 *
 * A probe is a BPF program whose section names a point and, optionally, kernels:
 *
 *	SEC("gpu/load/my_kernel*")
 *	int count(struct egpu_mem *ctx) { ... }
 *
 * Points: entry, exit (struct egpu_entry, egpu_exit); load, store, atomic, mem
 * (struct egpu_mem; access: loads and stores); load_done (egpu_load_done); block, branch, barrier, call and
 * insn:OPCODE (egpu_block, ...). A program in gpu.warp/POINT runs once per warp, on one lane
 * elected among those that are active (struct egpu_warp, egpu_warp_mem).
 * Loaders that know only the kernel's sections use the same string behind raw_tp/.
 * KERNEL is a base, qualified or mangled name; literal equality first, then a shell
 * pattern, or /regex/. Left out, it comes from `egpu run -k`.
 *
 * The type of the first argument tells the verifier the point, so it must be the one
 * above. Layouts are fixed and only ever grow; a field costs something only where it
 * is read. Contexts are read-only.
 *
 * Maps: BPF_MAP_TYPE_ARRAY, HASH, LRU_HASH, PERCPU_ARRAY, PERCPU_HASH,
 * LRU_PERCPU_HASH (on a GPU: one value per multiprocessor, folded into the CPU
 * slots on reading), QUEUE, STACK, BLOOM_FILTER, STACK_TRACE, RINGBUF, and
 * EGPU_MAP_TYPE_THREAD_ARRAY; globals. `(*v)++`
 * and `*v += x` on map values and globals are made atomic by the translator.
 */
#ifndef EGPU_PROBE_BPF_H
#define EGPU_PROBE_BPF_H

#ifdef __bpf__
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#else
#include <linux/types.h>
#endif

/* In map_flags of arrays and hash maps: the map lies in host memory, and the host sees what kernels write without a copy. Each access crosses
 * the bus: for what is written rarely (docs/maps.md). */
#define EGPU_F_HOST 0x40000000

/* A map type: an array with an element for each thread of a grid, as many threads as map_extra says (docs/maps.md). */
#define EGPU_MAP_TYPE_THREAD_ARRAY 1502

struct egpu_dim3 {
	__u32 x, y, z;
};

/* State space of a memory access (PTX ISA 5.1), generic addresses resolved. */
enum egpu_space {
	EGPU_SPACE_GLOBAL = 1,
	EGPU_SPACE_SHARED = 2,
	EGPU_SPACE_LOCAL = 3,
	EGPU_SPACE_CONST = 4,
	EGPU_SPACE_PARAM = 5,
	EGPU_SPACE_SHARED_CLUSTER = 6,
};

enum egpu_op {
	EGPU_OP_LOAD = 1,
	EGPU_OP_STORE = 2,
	EGPU_OP_ATOMIC = 3,
};

/* Fields common to every context. */
#define EGPU_COMMON                                                                         \
	__u32 site;		       /* dense id of the instrumented place in this session */ \
	__u32 lane;		       /* %laneid */                                        \
	__u32 warp;		       /* warp of the block: linear thread index / 32 */    \
	__u32 sm;		       /* %smid */                                          \
	struct egpu_dim3 thread;       /* %tid */                                           \
	struct egpu_dim3 block_dim;    /* %ntid */                                          \
	struct egpu_dim3 block;	       /* %ctaid */                                         \
	struct egpu_dim3 grid_dim;     /* %nctaid */                                        \
	struct egpu_dim3 cluster;      /* %clusterid; block where there are no clusters */  \
	struct egpu_dim3 cluster_dim;  /* %cluster_nctaid; 1,1,1 without clusters */        \
	struct egpu_dim3 cluster_rank; /* %cluster_ctaid; 0,0,0 without clusters */         \
	__u32 active_mask;	       /* lanes that take this probe together */            \
	__u64 launch;		       /* number of this launch in the session, from 1 */   \
	__u32 kernel;		       /* dense id of the kernel in this session */         \
	__u32 reserved_;                                                                    \
	__u64 reserved2_

enum { EGPU_MAX_PARAMS = 64 };

/* gpu/entry and gpu/exit. The kernel's parameters are read through egpu_param. */
struct egpu_entry {
	EGPU_COMMON;
	__u64 param[EGPU_MAX_PARAMS];
};

struct egpu_exit {
	EGPU_COMMON;
	__u64 param[EGPU_MAX_PARAMS];
};

/* Parameter i (from 0) of the kernel, of a scalar or pointer type of 1, 2, 4 or 8 bytes. The size is
 * checked against each kernel's own parameter at attach; a kernel that differs is not probed. */
#define egpu_param(ctx, i, type) (*(const type *)&(ctx)->param[i])

/* gpu/load, gpu/store, gpu/atomic, gpu/mem: before the access, in each lane that makes it.
 * Accesses to .param space are not reported. */
struct egpu_mem {
	EGPU_COMMON;
	__u64 address;	   /* in the space named by `space`; generic addresses as they are */
	__u32 bytes;	   /* of this lane's access, all vector elements */
	__u32 space;	   /* enum egpu_space */
	__u32 op;	   /* enum egpu_op */
	__u32 value_bytes; /* valid bytes of value[]: 0 for loads */
	__u64 value[4];	   /* bytes stored (atomics: the operand), little-endian */
};

/* gpu.warp/entry, gpu.warp/exit. */
struct egpu_warp {
	EGPU_COMMON;
	__u32 mask;  /* lanes that arrived together */
	__u32 lanes; /* number of bits in mask */
};

/* gpu.warp/load, gpu.warp/store, gpu.warp/atomic, gpu.warp/mem. */
struct egpu_warp_mem {
	EGPU_COMMON;
	__u64 address;	      /* of the elected lane, `lane` */
	__u32 bytes;	      /* of one lane's access */
	__u32 space;	      /* enum egpu_space, of the elected lane */
	__u32 op;	      /* enum egpu_op */
	__u32 mask;	      /* lanes that make this access together */
	__u32 lanes;	      /* number of bits in mask */
	__u32 distinct_bytes; /* different bytes touched by those lanes */
	__u32 sectors;	      /* different aligned 32-byte sectors touched by those lanes */
	__u32 reserved3_;
};

/* gpu/block: where control enters a basic block of the kernel or a function it calls. */
struct egpu_block {
	EGPU_COMMON;
	__u32 index;	 /* of the block in its function, in the order of the text */
	__u32 insns;	 /* PTX instructions in it */
	__u32 loop_head; /* 1: an edge comes back to it */
};

/* gpu/branch: before each guarded `bra`, in every lane that reaches it. */
struct egpu_branch {
	EGPU_COMMON;
	__u32 taken;  /* 1: this lane jumps */
	__u32 target; /* index of the block it would jump to; ~0 when the text does not say */
};

enum egpu_barrier_kind {
	EGPU_BARRIER_BLOCK = 1,	  /* bar, barrier */
	EGPU_BARRIER_WARP = 2,	  /* bar.warp.sync */
	EGPU_BARRIER_CLUSTER = 3, /* barrier.cluster */
	EGPU_BARRIER_MEMORY = 4,  /* mbarrier, outside loops that only wait */
};

/* gpu/barrier: before each barrier instruction. */
struct egpu_barrier {
	EGPU_COMMON;
	__u32 kind;    /* enum egpu_barrier_kind */
	__u32 id;      /* of a block's barrier, mask of a warp's, shared address of an mbarrier; else 0 */
	__u32 threads; /* that take part in a block's barrier; 0: all */
};

/* gpu/call: before each call of a device function. */
struct egpu_call {
	EGPU_COMMON;
	__u32 callee; /* FNV-1a, 32 bits, of the function's mangled name; the site has the name */
};

/* gpu/insn:OPCODE: before each instruction whose opcode begins with OPCODE. */
struct egpu_insn {
	EGPU_COMMON;
	__u32 operands; /* source operands in value[]: at most 4, vectors element by element */
	__u32 reserved3_[5];
	__u64 value[4]; /* their bits, zero-extended; predicates 0 or 1; an address as base + offset */
};

/* gpu/load_done: behind a load, once its value is there. */
struct egpu_load_done {
	EGPU_COMMON;
	__u64 address;
	__u32 bytes;
	__u32 space;
	__u32 op;	   /* EGPU_OP_LOAD */
	__u32 value_bytes; /* valid bytes of value[] */
	__u64 value[4];	   /* bytes loaded, little-endian */
	__u64 cycles;	   /* from the load's issue to its value; on softgpu no measure of time */
};

#ifndef __cplusplus
/* What egpu_lane_read reads of one lane: fields of the per-thread context of the program's point. There is none as a whole. */
struct egpu_lane {
	EGPU_COMMON;
	union {
		__u64 address; /* load, store, atomic, mem, load_done */
		__u32 taken;   /* branch */
		struct {
			__u32 unused_;
			__u32 id;      /* barrier */
			__u32 threads; /* barrier */
			__u32 space;   /* load, store, atomic, mem, load_done */
		};
	};
	__u64 unused2_;
	__u64 value[4]; /* those, insn */
	__u64 cycles;   /* load_done */
};
#endif

#ifdef __bpf__
/* Helpers beside those of bpf_helpers.h. docs/verifier.md has the whole table.
 *
 * A gpu.warp/ program runs once for all lanes of a warp, so it has no thread.x of its own. egpu_lane_read(lane, thread.x) is that of the
 * thread in a lane (0 to 31), taking part or not; egpu_lane_read(lane, address) what that lane has in the same field of struct
 * egpu_lane, 0 where it does not take part. What any program reads so is collected from all lanes wherever it runs, and takes
 * 32 times the field's size of local memory in each thread. */
static __u64 (*const bpf_egpu_lane_read)(__u32 lane, __u64 field_offset) = (void *)600;
#define egpu_lane_read(lane, field) bpf_egpu_lane_read(lane, __builtin_offsetof(struct egpu_lane, field))

/* One ring record for an access of all lanes of the warp that are here together, of 16 to 32 bytes where their addresses follow a
 * pattern (egpu/access.h reads it); lanes with another site, size or operation have their own. 0, or -EAGAIN: the ring was full, and a
 * record is counted as lost. egpu_access_output(&ring, ctx) in a gpu/load, store, atomic or mem program. */
static long (*const bpf_egpu_access)(void *ring, __u32 site, __u64 address, __u32 bytes, __u32 op) = (void *)601;
#define egpu_access_output(ring, ctx) bpf_egpu_access(ring, (ctx)->site, (ctx)->address, (ctx)->bytes, (ctx)->op)

/* A histogram by powers of two: EGPU_HIST(sizes); ... egpu_hist_add(&sizes, value); Bucket 0 counts zeros, bucket n values from
 * 2^(n-1) to 2^n - 1. A count costs what a per-multiprocessor counter does. egpu draws maps whose values have this type. */
typedef __u64 egpu_hist_t;
#define EGPU_HIST(name_)                                                                                  \
	struct {                                                                                          \
		__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);                                                  \
		__uint(max_entries, 65);                                                                  \
		__type(key, __u32);                                                                       \
		__type(value, egpu_hist_t);                                                               \
	} name_ SEC(".maps")

static inline __attribute__((always_inline)) void egpu_hist_add(void *hist, __u64 value)
{
	__u32 bucket = value != 0, half;
#pragma unroll
	for (half = 32; half; half /= 2)
		if (value >> half) {
			value >>= half;
			bucket += half;
		}
	egpu_hist_t *count = bpf_map_lookup_elem(hist, &bucket);
	if (count)
		*count += 1;
}

/* These change what the probed kernel does: egpu wants --allow-perturb. Delays are bounded by 1,000,000 ns; a trap ends the
 * launch with an error; a thread that has exited does nothing more of the kernel. */
static long (*const bpf_egpu_delay_ns)(__u64 ns) = (void *)610;
static void (*const bpf_egpu_trap)(void) = (void *)611;
static void (*const bpf_egpu_thread_exit)(void) = (void *)612;
#endif

#endif
