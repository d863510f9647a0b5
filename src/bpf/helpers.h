/* helpers.h - every helper a program may call: one row each; and helpers of the kernel that a GPU cannot have, with the reason.
 *
 * HELPER(number, name, return, arg1..arg5, where, result, cost, class). Numbers and meaning are the kernel's (enum bpf_func_id);
 * 501 to 511 are those of bpftime's public examples; 600 and up are ours (egpu/probe.bpf.h declares them).
 * where: HOST (a program on the CPU), THREAD (gpu/...), WARP (gpu.warp/...).
 * result: UNIFORM the same in all lanes of a warp, VARYING, or ARGS: uniform when the arguments are.
 * cost: instructions it counts for in the worst-case length, beside one for each 8 bytes of memory that it is given. class: PERTURB changes what the probed kernel does, and needs the
 * user's leave (--allow-perturb). None waits for another thread or for the host.
 * trace_printk reads as many of r3..r5 as its format wants, set or not, as the kernel's does: nothing checks them.
 */
#ifndef EGPU_BPF_HELPERS_H
#define EGPU_BPF_HELPERS_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/context.h"

enum ebpf_arg {
	EBPF_ARG_NONE,
	EBPF_ARG_ANY,		 /* scalar */
	EBPF_ARG_MAP,		 /* constant map pointer */
	EBPF_ARG_KEY,		 /* readable memory of the map's key size */
	EBPF_ARG_VALUE,		 /* readable memory of the map's value size */
	EBPF_ARG_VALUE_OUT,	 /* writable memory of that size, which the helper sets whatever it answers; for a BLOOM_FILTER: VALUE */
	EBPF_ARG_MEM,		 /* readable memory, size in the next argument */
	EBPF_ARG_SIZE,		 /* its size, at least 1, bounded */
	EBPF_ARG_CONST_SIZE,	 /* constant size of an allocation */
	EBPF_ARG_RING_RECORD,	 /* what ringbuf_reserve returned; released by the call */
	EBPF_ARG_FUNC,		 /* a function of the program, which the helper calls */
	EBPF_ARG_STACK,		 /* pointer to the stack, or 0: handed to that function */
	EBPF_ARG_OUT,		 /* 8 writable bytes, aligned, that the helper sets; 0 is not allowed */
	EBPF_ARG_CONST,		 /* a constant */
	EBPF_ARG_STRING,	 /* characters up to a zero that never change: at most EBPF_MAX_STRING with it */
	EBPF_ARG_CTX,		 /* the program's context, as it was given */
	EBPF_ARG_CTX_UNUSED,	 /* the same, or 0: nothing reads it */
	EBPF_ARG_DELAY,		 /* nanoseconds, at most EBPF_MAX_DELAY_NS */
};

enum ebpf_ret {
	EBPF_RET_SCALAR,
	EBPF_RET_VOID,
	EBPF_RET_VALUE_OR_NULL,	 /* map value */
	EBPF_RET_RECORD_OR_NULL, /* ring record of the constant size; acquires a reference */
	EBPF_RET_NEVER,		 /* does not come back */
};

enum ebpf_where { EBPF_WHERE_HOST = 1, EBPF_WHERE_THREAD = 2, EBPF_WHERE_WARP = 4 };
#define EBPF_WHERE_GPU (EBPF_WHERE_THREAD | EBPF_WHERE_WARP)
#define EBPF_WHERE_ANY (EBPF_WHERE_HOST | EBPF_WHERE_GPU)

enum ebpf_result { EBPF_RESULT_VARYING, EBPF_RESULT_UNIFORM, EBPF_RESULT_ARGS };
enum ebpf_class { EBPF_CLASS_ORDINARY, EBPF_CLASS_PERTURB };

/* SLOT_COST: instructions for each slot of a hash that for_each_map_elem looks at, beside the calls. */
enum { EBPF_MAX_LOOPS = 1 << 23, EBPF_MAX_DELAY_NS = 1000000, EBPF_SLOT_COST = 4, EBPF_BYTES_PER_INSN = 8, EBPF_MAX_STRING = 512 };

enum ebpf_helper_number {
	EBPF_FUNC_for_each_map_elem = 164,
	EBPF_FUNC_loop = 181,
	EBPF_FUNC_puts = 501,
	EBPF_FUNC_get_globaltimer = 502,
	EBPF_FUNC_get_block_idx = 503,
	EBPF_FUNC_get_block_dim = 504,
	EBPF_FUNC_get_thread_idx = 505,
	EBPF_FUNC_gpu_membar = 506,
	EBPF_FUNC_gpu_exit = 507,
	EBPF_FUNC_get_grid_dim = 508,
	EBPF_FUNC_get_sm_id = 509,
	EBPF_FUNC_get_warp_id = 510,
	EBPF_FUNC_get_lane_id = 511,
	EBPF_FUNC_egpu_lane_read = 600,
	EBPF_FUNC_egpu_access = 601,
	EBPF_FUNC_egpu_delay_ns = 610,
	EBPF_FUNC_egpu_trap = 611,
	EBPF_FUNC_egpu_thread_exit = 612,
};

#define EBPF_HELPERS(HELPER)                                                                                      \
	HELPER(1, map_lookup_elem, VALUE_OR_NULL, MAP, KEY, NONE, NONE, NONE, ANY, VARYING, 32, ORDINARY)         \
	HELPER(2, map_update_elem, SCALAR, MAP, KEY, VALUE, ANY, NONE, ANY, VARYING, 64, ORDINARY)                \
	HELPER(3, map_delete_elem, SCALAR, MAP, KEY, NONE, NONE, NONE, ANY, VARYING, 32, ORDINARY)                \
	HELPER(5, ktime_get_ns, SCALAR, NONE, NONE, NONE, NONE, NONE, ANY, VARYING, 4, ORDINARY)                  \
	HELPER(6, trace_printk, SCALAR, MEM, SIZE, NONE, NONE, NONE, ANY, VARYING, 64, ORDINARY)                  \
	HELPER(7, get_prandom_u32, SCALAR, NONE, NONE, NONE, NONE, NONE, ANY, VARYING, 8, ORDINARY)               \
	HELPER(8, get_smp_processor_id, SCALAR, NONE, NONE, NONE, NONE, NONE, ANY, UNIFORM, 2, ORDINARY)          \
	HELPER(14, get_current_pid_tgid, SCALAR, NONE, NONE, NONE, NONE, NONE, ANY, UNIFORM, 2, ORDINARY)         \
	HELPER(25, perf_event_output, SCALAR, CTX_UNUSED, MAP, ANY, MEM, SIZE, ANY, VARYING, 64, ORDINARY)        \
	HELPER(27, get_stackid, SCALAR, CTX, MAP, ANY, NONE, NONE, GPU, VARYING, 16, ORDINARY)                    \
	HELPER(87, map_push_elem, SCALAR, MAP, VALUE, ANY, NONE, NONE, ANY, VARYING, 64, ORDINARY)                \
	HELPER(88, map_pop_elem, SCALAR, MAP, VALUE_OUT, NONE, NONE, NONE, ANY, VARYING, 64, ORDINARY)            \
	HELPER(89, map_peek_elem, SCALAR, MAP, VALUE_OUT, NONE, NONE, NONE, ANY, VARYING, 64, ORDINARY)           \
	HELPER(130, ringbuf_output, SCALAR, MAP, MEM, SIZE, ANY, NONE, ANY, VARYING, 64, ORDINARY)                \
	HELPER(131, ringbuf_reserve, RECORD_OR_NULL, MAP, CONST_SIZE, ANY, NONE, NONE, ANY, VARYING, 32, ORDINARY) \
	HELPER(132, ringbuf_submit, VOID, RING_RECORD, ANY, NONE, NONE, NONE, ANY, UNIFORM, 8, ORDINARY)          \
	HELPER(133, ringbuf_discard, VOID, RING_RECORD, ANY, NONE, NONE, NONE, ANY, UNIFORM, 8, ORDINARY)         \
	HELPER(134, ringbuf_query, SCALAR, MAP, ANY, NONE, NONE, NONE, ANY, VARYING, 8, ORDINARY)                 \
	HELPER(164, for_each_map_elem, SCALAR, MAP, FUNC, STACK, ANY, NONE, ANY, VARYING, 8, ORDINARY)            \
	HELPER(181, loop, SCALAR, ANY, FUNC, STACK, ANY, NONE, ANY, VARYING, 8, ORDINARY)                         \
	HELPER(501, puts, SCALAR, STRING, NONE, NONE, NONE, NONE, ANY, VARYING, 64, ORDINARY)                     \
	HELPER(502, get_globaltimer, SCALAR, NONE, NONE, NONE, NONE, NONE, GPU, VARYING, 2, ORDINARY)             \
	HELPER(503, get_block_idx, SCALAR, OUT, OUT, OUT, NONE, NONE, GPU, UNIFORM, 8, ORDINARY)                  \
	HELPER(504, get_block_dim, SCALAR, OUT, OUT, OUT, NONE, NONE, GPU, UNIFORM, 8, ORDINARY)                  \
	HELPER(505, get_thread_idx, SCALAR, OUT, OUT, OUT, NONE, NONE, THREAD, VARYING, 8, ORDINARY)              \
	HELPER(506, gpu_membar, SCALAR, NONE, NONE, NONE, NONE, NONE, GPU, UNIFORM, 16, ORDINARY)                 \
	HELPER(507, gpu_exit, NEVER, NONE, NONE, NONE, NONE, NONE, GPU, UNIFORM, 1, PERTURB)                      \
	HELPER(508, get_grid_dim, SCALAR, OUT, OUT, OUT, NONE, NONE, GPU, UNIFORM, 8, ORDINARY)                   \
	HELPER(509, get_sm_id, SCALAR, NONE, NONE, NONE, NONE, NONE, GPU, UNIFORM, 2, ORDINARY)                   \
	HELPER(510, get_warp_id, SCALAR, NONE, NONE, NONE, NONE, NONE, GPU, UNIFORM, 2, ORDINARY)                 \
	HELPER(511, get_lane_id, SCALAR, NONE, NONE, NONE, NONE, NONE, GPU, VARYING, 2, ORDINARY)                 \
	HELPER(600, egpu_lane_read, SCALAR, ANY, CONST, NONE, NONE, NONE, WARP, ARGS, 16, ORDINARY)               \
	HELPER(601, egpu_access, SCALAR, MAP, ANY, ANY, ANY, ANY, THREAD, VARYING, 96, ORDINARY)                  \
	HELPER(610, egpu_delay_ns, SCALAR, DELAY, NONE, NONE, NONE, NONE, GPU, UNIFORM, 64, PERTURB)              \
	HELPER(611, egpu_trap, NEVER, NONE, NONE, NONE, NONE, NONE, GPU, UNIFORM, 1, PERTURB)                     \
	HELPER(612, egpu_thread_exit, NEVER, NONE, NONE, NONE, NONE, NONE, GPU, UNIFORM, 1, PERTURB)

/* REFUSED(number, name, reason) */
#define EBPF_HELPERS_REFUSED(REFUSED)                                                                              \
	REFUSED(4, probe_read, "a probe reads the kernel's values through its context, not through pointers")      \
	REFUSED(12, tail_call, "programs do not call each other; attach both, they run in object order")           \
	REFUSED(15, get_current_uid_gid, "a GPU thread has no user")                                               \
	REFUSED(16, get_current_comm, "a GPU thread has no name; use ctx->kernel")                                 \
	REFUSED(35, get_current_task, "a GPU has no tasks")                                                        \
	REFUSED(36, probe_write_user, "a probe does not write the memory of what it observes")                     \
	REFUSED(42, get_numa_node_id, "a multiprocessor has no node; use ctx->sm")                                 \
	REFUSED(45, probe_read_str, "a probe reads the kernel's values through its context, not through pointers") \
	REFUSED(58, override_return, "a probe does not change what a kernel returns")                              \
	REFUSED(67, get_stack, "what a site's stack is the host knows; use bpf_get_stackid, and look it up there") \
	REFUSED(80, get_current_cgroup_id, "a GPU thread belongs to no process that it could name; use ctx->launch") \
	REFUSED(93, spin_lock, "it waits for another thread, which may be a lane of the same warp; use an atomic") \
	REFUSED(94, spin_unlock, "there are no locks on a GPU; use an atomic")                                     \
	REFUSED(105, strtol, "text is for the host to read; keep numbers in maps")                                 \
	REFUSED(106, strtoul, "text is for the host to read; keep numbers in maps")                                \
	REFUSED(112, probe_read_user, "a probe reads the kernel's values through its context")                     \
	REFUSED(113, probe_read_kernel, "a probe reads the kernel's values through its context")                   \
	REFUSED(114, probe_read_user_str, "a probe reads the kernel's values through its context")                 \
	REFUSED(115, probe_read_kernel_str, "a probe reads the kernel's values through its context")               \
	REFUSED(118, jiffies64, "a GPU has no such clock; use bpf_ktime_get_ns")                                   \
	REFUSED(125, ktime_get_boot_ns, "the device clock follows CLOCK_MONOTONIC; use bpf_ktime_get_ns")          \
	REFUSED(148, copy_from_user, "it waits for the host")                                                      \
	REFUSED(153, per_cpu_ptr, "there are no variables of the kernel's; a PERCPU_ARRAY has a value on each multiprocessor") \
	REFUSED(154, this_cpu_ptr, "there are no variables of the kernel's; a PERCPU_ARRAY has a value on each multiprocessor") \
	REFUSED(156, task_storage_get, "a GPU has no tasks; use a HASH")                                           \
	REFUSED(158, get_current_task_btf, "a GPU has no tasks")                                                   \
	REFUSED(160, ktime_get_coarse_ns, "a GPU has no such clock; use bpf_ktime_get_ns")                         \
	REFUSED(165, snprintf, "texts are made by who reads them; put the numbers into a record or a map, or print them with bpf_printk") \
	REFUSED(166, sys_bpf, "it waits for the host")                                                             \
	REFUSED(169, timer_init, "nothing runs later on a GPU")                                                    \
	REFUSED(170, timer_set_callback, "nothing runs later on a GPU")                                            \
	REFUSED(171, timer_start, "nothing runs later on a GPU")                                                   \
	REFUSED(172, timer_cancel, "nothing runs later on a GPU")                                                  \
	REFUSED(173, get_func_ip, "ctx->site is the place, ctx->kernel the kernel")                                \
	REFUSED(174, get_attach_cookie, "ctx->kernel tells kernels apart, variables that the host sets (const volatile) do the rest") \
	REFUSED(176, get_branch_snapshot, "a GPU keeps no such record; use a probe of gpu/branch")                 \
	REFUSED(177, trace_vprintk, "bpf_printk takes at most three values here; write two lines")                 \
	REFUSED(182, strncmp, "compare the bytes in a loop of constant length")                                    \
	REFUSED(183, get_func_arg, "a kernel's parameters are egpu_param(ctx, i, type)")                           \
	REFUSED(185, get_func_arg_cnt, "a kernel's parameters are egpu_param(ctx, i, type)")                       \
	REFUSED(191, copy_from_user_task, "it waits for the host")                                                 \
	REFUSED(194, kptr_xchg, "maps keep no pointers: other processes read them")                                \
	REFUSED(195, map_lookup_percpu_elem, "a probe sees the value of its own multiprocessor; the host reads all") \
	REFUSED(197, dynptr_from_mem, "memory has a constant size here; use an array")                             \
	REFUSED(198, ringbuf_reserve_dynptr, "a record has a constant size here; use bpf_ringbuf_reserve, or bpf_ringbuf_output of what is filled") \
	REFUSED(208, ktime_get_tai_ns, "the device clock follows CLOCK_MONOTONIC; use bpf_ktime_get_ns")           \
	REFUSED(209, user_ringbuf_drain, "it waits for the host; use a map that the host writes before the launch")

struct ebpf_helper {
	uint32_t number;
	const char *name;
	uint8_t ret;	 /* enum ebpf_ret */
	uint8_t args[5]; /* enum ebpf_arg */
	uint8_t where;	 /* EBPF_WHERE_* bits */
	uint8_t result;	 /* enum ebpf_result */
	uint8_t class;	 /* enum ebpf_class */
	uint32_t cost;
};

/* NULL for a number that is not in the table. */
const struct ebpf_helper *ebpf_helper_by_number(uint32_t number);
/* Every row, by rising number; NULL past the last. */
const struct ebpf_helper *ebpf_helper_at(uint32_t index);
/* Why a helper of the kernel does not exist here, its name in *name; NULL when there is nothing to say. */
const char *ebpf_helper_refused(uint32_t number, const char **name);
/* What trace_printk prints as the `len` characters of s: out has 2 * len + 1 bytes; the format's length with its zero. */
uint32_t ebpf_puts_format(const char *s, uint32_t len, char *out);
/* The helper calls a function of the program: the argument with it is r2, what it is given r3. */
static inline bool ebpf_helper_calls_back(const struct ebpf_helper *h)
{
	return h && h->args[1] == EBPF_ARG_FUNC;
}

#endif
