/* program.h - a BPF program and its maps, as the verifier, translator and interpreter see them.
 *
 * Opcodes and struct bpf_insn are those of <linux/bpf.h> (RFC 9669). Map references are resolved:
 * a BPF_LD_IMM64 with src_reg BPF_PSEUDO_MAP_FD or BPF_PSEUDO_MAP_VALUE holds an index into maps[] in imm.
 */
#ifndef EGPU_BPF_PROGRAM_H
#define EGPU_BPF_PROGRAM_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <stdint.h>

#include "bpf/context.h"

enum { EBPF_MAX_INSNS = 1000000, EBPF_MAX_MAPS = 64, EBPF_STACK_BYTES = 512 };

struct ebpf_map {
	const char *name;
	uint32_t type; /* enum bpf_map_type */
	uint32_t key_size, value_size, max_entries, flags; /* as given to BPF_MAP_CREATE */
	uint64_t extra;	       /* map_extra: of a BLOOM_FILTER how many bits a value sets, 0: 5; of an ARRAY, not 0: of each thread, how many
				* threads (map_threads) */
	uint32_t id;	       /* dense in its session, below EBPF_MAX_MAPS: the slot of its address on the device */
	bool frozen;	       /* read-only for programs (BPF_F_RDONLY_PROG): .rodata */
	const uint8_t *values; /* frozen arrays: max_entries values, stride round_up(value_size, 8); else NULL */
};

struct ebpf_line { /* sorted by insn */
	uint32_t insn;
	uint32_t line, column;
	const char *file, *text; /* source line text; may be NULL */
};

struct ebpf_program {
	const char *name;
	struct bpf_insn *insns;
	uint32_t n_insns;
	enum ebpf_context context;
	bool opaque;	       /* its argument is of no type that we know: it reads nothing of its context */
	bool sampled;	       /* it runs in a part of the warps, and what it adds stands for all */
	uint32_t memory_bytes; /* CONTEXT_NONE: size of the buffer r1 points to (r2 = this constant) */
	const struct ebpf_map *maps;
	uint32_t n_maps;
	const struct ebpf_line *lines;
	uint32_t n_lines;
};

#endif
