/* context.h - every field of every probe context, in one table.
 *
 * The verifier checks offsets against it, the translator names its inputs from it, the
 * instrumenter computes the inputs from it. Layouts are those of egpu/probe.bpf.h (asserted in context.c).
 */
#ifndef EGPU_BPF_CONTEXT_H
#define EGPU_BPF_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

enum ebpf_point {
	EBPF_POINT_NONE, /* test-run programs */
	EBPF_POINT_ENTRY,
	EBPF_POINT_EXIT,
	EBPF_POINT_LOAD,
	EBPF_POINT_STORE,
	EBPF_POINT_ATOMIC,
	EBPF_POINT_ACCESS, /* load and store */
	EBPF_POINT_MEM, /* load, store and atomic */
	EBPF_POINT_BLOCK,
	EBPF_POINT_BRANCH,
	EBPF_POINT_BARRIER,
	EBPF_POINT_CALL,
	EBPF_POINT_INSN, /* with the prefix of an opcode */
	EBPF_POINT_LOAD_DONE,
};

/* Context structs; a program has exactly one. */
enum ebpf_context {
	EBPF_CONTEXT_NONE,     /* r1 = memory, r2 = its size (test-run) */
	EBPF_CONTEXT_ENTRY,    /* struct egpu_entry */
	EBPF_CONTEXT_EXIT,     /* struct egpu_exit */
	EBPF_CONTEXT_MEM,      /* struct egpu_mem */
	EBPF_CONTEXT_WARP,     /* struct egpu_warp */
	EBPF_CONTEXT_WARP_MEM, /* struct egpu_warp_mem */
	EBPF_CONTEXT_BLOCK,    /* struct egpu_block */
	EBPF_CONTEXT_BRANCH,
	EBPF_CONTEXT_BARRIER,
	EBPF_CONTEXT_CALL,
	EBPF_CONTEXT_INSN,
	EBPF_CONTEXT_LOAD_DONE,
	EBPF_CONTEXT_COUNT,
};

#define EBPF_IN(c) (1u << EBPF_CONTEXT_##c)
#define EBPF_IN_ALL                                                                        \
	(EBPF_IN(ENTRY) | EBPF_IN(EXIT) | EBPF_IN(MEM) | EBPF_IN(WARP) | EBPF_IN(WARP_MEM) | \
		EBPF_IN(BLOCK) | EBPF_IN(BRANCH) | EBPF_IN(BARRIER) | EBPF_IN(CALL) | EBPF_IN(INSN) | \
		EBPF_IN(LOAD_DONE))
#define EBPF_IN_ACCESS (EBPF_IN(MEM) | EBPF_IN(WARP_MEM) | EBPF_IN(LOAD_DONE))
#define EBPF_IN_VALUES (EBPF_IN(MEM) | EBPF_IN(INSN) | EBPF_IN(LOAD_DONE))

/* How a value varies over the lanes that run the probe together. */
enum ebpf_uniform { EBPF_VARYING, EBPF_UNIFORM };

/* FIELD(id, name, contexts, offset, bytes, uniformity): `name` makes the register %egpu_<name>. */
#define EBPF_CONTEXT_FIELDS(FIELD)                                                     \
	FIELD(SITE, site, EBPF_IN_ALL, 0, 4, EBPF_UNIFORM)                             \
	FIELD(LANE, lane, EBPF_IN_ALL, 4, 4, EBPF_VARYING)                             \
	FIELD(WARP, warp, EBPF_IN_ALL, 8, 4, EBPF_UNIFORM)                             \
	FIELD(SM, sm, EBPF_IN_ALL, 12, 4, EBPF_UNIFORM)                                \
	FIELD(THREAD_X, thread_x, EBPF_IN_ALL, 16, 4, EBPF_VARYING)                    \
	FIELD(THREAD_Y, thread_y, EBPF_IN_ALL, 20, 4, EBPF_VARYING)                    \
	FIELD(THREAD_Z, thread_z, EBPF_IN_ALL, 24, 4, EBPF_VARYING)                    \
	FIELD(BLOCK_DIM_X, block_dim_x, EBPF_IN_ALL, 28, 4, EBPF_UNIFORM)              \
	FIELD(BLOCK_DIM_Y, block_dim_y, EBPF_IN_ALL, 32, 4, EBPF_UNIFORM)              \
	FIELD(BLOCK_DIM_Z, block_dim_z, EBPF_IN_ALL, 36, 4, EBPF_UNIFORM)              \
	FIELD(BLOCK_X, block_x, EBPF_IN_ALL, 40, 4, EBPF_UNIFORM)                      \
	FIELD(BLOCK_Y, block_y, EBPF_IN_ALL, 44, 4, EBPF_UNIFORM)                      \
	FIELD(BLOCK_Z, block_z, EBPF_IN_ALL, 48, 4, EBPF_UNIFORM)                      \
	FIELD(GRID_DIM_X, grid_dim_x, EBPF_IN_ALL, 52, 4, EBPF_UNIFORM)                \
	FIELD(GRID_DIM_Y, grid_dim_y, EBPF_IN_ALL, 56, 4, EBPF_UNIFORM)                \
	FIELD(GRID_DIM_Z, grid_dim_z, EBPF_IN_ALL, 60, 4, EBPF_UNIFORM)                \
	FIELD(CLUSTER_X, cluster_x, EBPF_IN_ALL, 64, 4, EBPF_UNIFORM)                  \
	FIELD(CLUSTER_Y, cluster_y, EBPF_IN_ALL, 68, 4, EBPF_UNIFORM)                  \
	FIELD(CLUSTER_Z, cluster_z, EBPF_IN_ALL, 72, 4, EBPF_UNIFORM)                  \
	FIELD(CLUSTER_DIM_X, cluster_dim_x, EBPF_IN_ALL, 76, 4, EBPF_UNIFORM)          \
	FIELD(CLUSTER_DIM_Y, cluster_dim_y, EBPF_IN_ALL, 80, 4, EBPF_UNIFORM)          \
	FIELD(CLUSTER_DIM_Z, cluster_dim_z, EBPF_IN_ALL, 84, 4, EBPF_UNIFORM)          \
	FIELD(CLUSTER_RANK_X, cluster_rank_x, EBPF_IN_ALL, 88, 4, EBPF_UNIFORM)        \
	FIELD(CLUSTER_RANK_Y, cluster_rank_y, EBPF_IN_ALL, 92, 4, EBPF_UNIFORM)        \
	FIELD(CLUSTER_RANK_Z, cluster_rank_z, EBPF_IN_ALL, 96, 4, EBPF_UNIFORM)        \
	FIELD(ACTIVE_MASK, active_mask, EBPF_IN_ALL, 100, 4, EBPF_UNIFORM)             \
	FIELD(LAUNCH, launch, EBPF_IN_ALL, 104, 8, EBPF_UNIFORM)                       \
	FIELD(KERNEL, kernel, EBPF_IN_ALL, 112, 4, EBPF_UNIFORM)                       \
	FIELD(ADDRESS, address, EBPF_IN_ACCESS, 128, 8, EBPF_VARYING) \
	FIELD(BYTES, bytes, EBPF_IN_ACCESS, 136, 4, EBPF_UNIFORM)    \
	FIELD(SPACE, space, EBPF_IN_ACCESS, 140, 4, EBPF_VARYING)    \
	FIELD(OP, op, EBPF_IN_ACCESS, 144, 4, EBPF_UNIFORM)          \
	FIELD(VALUE_BYTES, value_bytes, EBPF_IN(MEM) | EBPF_IN(LOAD_DONE), 148, 4, EBPF_UNIFORM)            \
	FIELD(VALUE0, value0, EBPF_IN_VALUES, 152, 8, EBPF_VARYING)                      \
	FIELD(VALUE1, value1, EBPF_IN_VALUES, 160, 8, EBPF_VARYING)                      \
	FIELD(VALUE2, value2, EBPF_IN_VALUES, 168, 8, EBPF_VARYING)                      \
	FIELD(VALUE3, value3, EBPF_IN_VALUES, 176, 8, EBPF_VARYING)                      \
	FIELD(MASK, mask, EBPF_IN(WARP), 128, 4, EBPF_UNIFORM)                         \
	FIELD(LANES, lanes, EBPF_IN(WARP), 132, 4, EBPF_UNIFORM)                       \
	FIELD(MEM_MASK, mem_mask, EBPF_IN(WARP_MEM), 148, 4, EBPF_UNIFORM)             \
	FIELD(MEM_LANES, mem_lanes, EBPF_IN(WARP_MEM), 152, 4, EBPF_UNIFORM)           \
	FIELD(DISTINCT_BYTES, distinct_bytes, EBPF_IN(WARP_MEM), 156, 4, EBPF_UNIFORM) \
	FIELD(SECTORS, sectors, EBPF_IN(WARP_MEM), 160, 4, EBPF_UNIFORM)               \
	FIELD(BLOCK_INDEX, block_index, EBPF_IN(BLOCK), 128, 4, EBPF_UNIFORM)          \
	FIELD(BLOCK_INSNS, block_insns, EBPF_IN(BLOCK), 132, 4, EBPF_UNIFORM)          \
	FIELD(LOOP_HEAD, loop_head, EBPF_IN(BLOCK), 136, 4, EBPF_UNIFORM)              \
	FIELD(TAKEN, taken, EBPF_IN(BRANCH), 128, 4, EBPF_VARYING)                     \
	FIELD(TARGET, target, EBPF_IN(BRANCH), 132, 4, EBPF_UNIFORM)                   \
	FIELD(BARRIER_KIND, barrier_kind, EBPF_IN(BARRIER), 128, 4, EBPF_UNIFORM)      \
	FIELD(BARRIER_ID, barrier_id, EBPF_IN(BARRIER), 132, 4, EBPF_VARYING)          \
	FIELD(BARRIER_THREADS, barrier_threads, EBPF_IN(BARRIER), 136, 4, EBPF_VARYING) \
	FIELD(CALLEE, callee, EBPF_IN(CALL), 128, 4, EBPF_UNIFORM)                     \
	FIELD(OPERANDS, operands, EBPF_IN(INSN), 128, 4, EBPF_UNIFORM)                 \
	FIELD(CYCLES, cycles, EBPF_IN(LOAD_DONE), 184, 8, EBPF_VARYING)

enum ebpf_field {
#define FIELD(id, ...) EBPF_FIELD_##id,
	EBPF_CONTEXT_FIELDS(FIELD)
#undef FIELD
	EBPF_FIELD_COUNT /* fits the 64 bits of a field set */
};

struct ebpf_field_row {
	const char *name;
	uint32_t contexts; /* EBPF_IN() bits */
	uint16_t offset;
	uint8_t bytes;
	uint8_t uniform;
};
extern const struct ebpf_field_row ebpf_fields[EBPF_FIELD_COUNT];

enum { EBPF_PARAM_OFFSET = 128, EBPF_PARAM_COUNT = 64 }; /* param[i] at 128 + 8*i, in ENTRY and EXIT */

/* Fields that egpu_lane_read gives of any lane of a warp: coordinates follow from the lane's number, others the lanes hand over where
 * the program runs. */
#define EBPF_COORDINATES                                                                        \
	(UINT64_C(1) << EBPF_FIELD_THREAD_X | UINT64_C(1) << EBPF_FIELD_THREAD_Y | UINT64_C(1) << EBPF_FIELD_THREAD_Z)
/* The one at an offset of struct egpu_lane, in programs of a warp context (NONE: coordinates alone); -1. */
int ebpf_lane_field(enum ebpf_context ctx, uint64_t offset);
/* The first of `fields` that lanes do not have at the point; -1: they have all. */
int ebpf_lane_field_missing(uint64_t fields, enum ebpf_point point);
/* Bytes of a thread's memory that take what 32 lanes hand over. */
uint32_t ebpf_lane_bytes(uint64_t fields);

/* The field that holds [offset, offset+bytes) of a context, or -1. *shift: byte offset within the field. */
int ebpf_field_at(enum ebpf_context ctx, uint32_t offset, uint32_t bytes, uint32_t *shift);
/* Size of the context struct; 0 for NONE. */
uint32_t ebpf_context_bytes(enum ebpf_context ctx);
/* "egpu_mem" etc. <-> context; NONE for an unknown name. */
enum ebpf_context ebpf_context_by_struct(const char *struct_name);
const char *ebpf_context_struct(enum ebpf_context ctx);
/* The context of a point ("load") in per-thread or warp form. */
enum ebpf_context ebpf_point_context(enum ebpf_point point, bool warp);
const char *ebpf_point_name(enum ebpf_point point);
enum ebpf_point ebpf_point_by_name(const char *name, uint32_t len);

/* "gpu/insn:fma.rn/KERNEL": "fma.rn", as length; 0 for other points. *opcode points into section. */
uint32_t ebpf_section_opcode(const char *section, const char **opcode);

/* Splits "gpu.warp/load/my_kernel*" or "raw_tp/gpu/entry" (also "raw_tracepoint/"), or "kprobe/my_kernel" and the like of probes for
 * bpftime (docs/maps.md). *pattern points into
 * section, NULL when there is none. 0, or -EINVAL when it is no GPU section or has an unknown point. */
int ebpf_section_parse(const char *section, enum ebpf_point *point, bool *warp, const char **pattern);
/* Why a section that is none of a GPU's cannot be one, where there is more to say; else NULL. */
const char *ebpf_section_refused(const char *section);

#endif
