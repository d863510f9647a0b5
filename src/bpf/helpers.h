/* helpers.h - every helper a program may call: one row each.
 *
 * HELPER(number, name, return, arg1..arg5, cost): numbers and meaning are the kernel's
 * (enum bpf_func_id). cost: instructions it counts for in the worst-case length. trace_printk reads as many of r3..r5 as its
 * format wants, set or not, as the kernel's does: nothing checks them.
 */
#ifndef EGPU_BPF_HELPERS_H
#define EGPU_BPF_HELPERS_H

#include <stdint.h>

enum ebpf_arg {
	EBPF_ARG_NONE,
	EBPF_ARG_ANY,		 /* scalar */
	EBPF_ARG_MAP,		 /* constant map pointer */
	EBPF_ARG_KEY,		 /* readable memory of the map's key size */
	EBPF_ARG_VALUE,		 /* readable memory of the map's value size */
	EBPF_ARG_MEM,		 /* readable memory, size in the next argument */
	EBPF_ARG_SIZE,		 /* its size, at least 1, bounded */
	EBPF_ARG_CONST_SIZE,	 /* constant size of an allocation */
	EBPF_ARG_RING_RECORD,	 /* what ringbuf_reserve returned; released by the call */
};

enum ebpf_ret {
	EBPF_RET_SCALAR,
	EBPF_RET_VOID,
	EBPF_RET_VALUE_OR_NULL,	 /* map value */
	EBPF_RET_RECORD_OR_NULL, /* ring record of the constant size; acquires a reference */
};

#define EBPF_HELPERS(HELPER)                                                                     \
	HELPER(1, map_lookup_elem, VALUE_OR_NULL, MAP, KEY, NONE, NONE, NONE, 32)                \
	HELPER(2, map_update_elem, SCALAR, MAP, KEY, VALUE, ANY, NONE, 64)                       \
	HELPER(3, map_delete_elem, SCALAR, MAP, KEY, NONE, NONE, NONE, 32)                       \
	HELPER(5, ktime_get_ns, SCALAR, NONE, NONE, NONE, NONE, NONE, 4)                         \
	HELPER(6, trace_printk, SCALAR, MEM, SIZE, NONE, NONE, NONE, 64)                         \
	HELPER(7, get_prandom_u32, SCALAR, NONE, NONE, NONE, NONE, NONE, 8)                      \
	HELPER(8, get_smp_processor_id, SCALAR, NONE, NONE, NONE, NONE, NONE, 2)                 \
	HELPER(130, ringbuf_output, SCALAR, MAP, MEM, SIZE, ANY, NONE, 64)                       \
	HELPER(131, ringbuf_reserve, RECORD_OR_NULL, MAP, CONST_SIZE, ANY, NONE, NONE, 32)       \
	HELPER(132, ringbuf_submit, VOID, RING_RECORD, ANY, NONE, NONE, NONE, 8)                 \
	HELPER(133, ringbuf_discard, VOID, RING_RECORD, ANY, NONE, NONE, NONE, 8)                \
	HELPER(134, ringbuf_query, SCALAR, MAP, ANY, NONE, NONE, NONE, 8)

struct ebpf_helper {
	uint32_t number;
	const char *name;
	uint8_t ret;	 /* enum ebpf_ret */
	uint8_t args[5]; /* enum ebpf_arg */
	uint32_t cost;
};

/* NULL for a number that is not in the table. */
const struct ebpf_helper *ebpf_helper_by_number(uint32_t number);

#endif
