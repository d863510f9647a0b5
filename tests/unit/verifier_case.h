/* verifier_case.h - programs written by hand and what the verifier says of them. */
#ifndef EGPU_TEST_VERIFIER_CASE_H
#define EGPU_TEST_VERIFIER_CASE_H

#include "bpf/insns.h"
#include "verifier/verifier.h"
#include "tap.h"

#include <errno.h>

#define I(code_, dst, src, off_, imm_)                                                             \
	((struct bpf_insn){ .code = (code_), .dst_reg = (dst), .src_reg = (src), .off = (off_), .imm = (imm_) })
#define MOVI(dst, imm) I(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm)
#define MOV(dst, src) I(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0)
#define MOV32(dst, src) I(BPF_ALU | BPF_MOV | BPF_X, dst, src, 0, 0)
#define ALUI(op, dst, imm) I(BPF_ALU64 | (op) | BPF_K, dst, 0, 0, imm)
#define ALU(op, dst, src) I(BPF_ALU64 | (op) | BPF_X, dst, src, 0, 0)
#define ALU32I(op, dst, imm) I(BPF_ALU | (op) | BPF_K, dst, 0, 0, imm)
#define LD(size, dst, src, off) I(BPF_LDX | BPF_MEM | (size), dst, src, off, 0)
#define ST(size, dst, off, src) I(BPF_STX | BPF_MEM | (size), dst, src, off, 0)
#define STI(size, dst, off, imm) I(BPF_ST | BPF_MEM | (size), dst, 0, off, imm)
#define ATOMIC(size, op, dst, off, src) I(BPF_STX | BPF_ATOMIC | (size), dst, src, off, op)
#define JMPI(op, dst, imm, off) I(BPF_JMP | (op) | BPF_K, dst, 0, off, imm)
#define JMP(op, dst, src, off) I(BPF_JMP | (op) | BPF_X, dst, src, off, 0)
#define JMP32I(op, dst, imm, off) I(BPF_JMP32 | (op) | BPF_K, dst, 0, off, imm)
#define JA(off) I(BPF_JMP | BPF_JA, 0, 0, off, 0)
#define CALL(helper) I(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_##helper)
#define CALLF(off) I(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, off)
#define EXIT() I(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
#define IMM64(dst, v) I(BPF_LD | BPF_IMM | BPF_DW, dst, 0, 0, (int32_t)(v)), I(0, 0, 0, 0, (int32_t)((uint64_t)(v) >> 32))
#define MAP(dst, map) I(BPF_LD | BPF_IMM | BPF_DW, dst, BPF_PSEUDO_MAP_FD, 0, map), I(0, 0, 0, 0, 0)
#define GLOBAL(dst, map, off) I(BPF_LD | BPF_IMM | BPF_DW, dst, BPF_PSEUDO_MAP_VALUE, 0, map), I(0, 0, 0, 0, off)

/* The maps of every case. */
enum { ARR, HASH, DATA, RO, RING, WO, QUEUE, STACK, BLOOM, STACKS, THREADS };
static const uint8_t ro_bytes[16] = { 7, 0, 0, 0, 0x80, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8 };
static const struct ebpf_map case_maps[] = {
	[ARR] = { .name = "arr", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 48, .max_entries = 4 },
	[HASH] = { .name = "hash", .type = BPF_MAP_TYPE_HASH, .key_size = 8, .value_size = 16, .max_entries = 16, .id = 1 },
	[DATA] = { .name = "data", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 64, .max_entries = 1, .id = 2 },
	[RO] = { .name = "ro", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 16, .max_entries = 1, .id = 3, .frozen = true,
		.flags = BPF_F_RDONLY_PROG, .values = ro_bytes },
	[RING] = { .name = "ring", .type = BPF_MAP_TYPE_RINGBUF, .max_entries = 4096, .id = 4 },
	[WO] = { .name = "wo", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 1, .id = 5, .flags = BPF_F_WRONLY_PROG },
	[QUEUE] = { .name = "queue", .type = BPF_MAP_TYPE_QUEUE, .value_size = 16, .max_entries = 8, .id = 6 },
	[STACK] = { .name = "stack", .type = BPF_MAP_TYPE_STACK, .value_size = 16, .max_entries = 8, .id = 7 },
	[STACKS] = { .name = "stacks", .type = BPF_MAP_TYPE_STACK_TRACE, .key_size = 4, .value_size = 16, .max_entries = 8, .id = 9 },
	[THREADS] = { .name = "threads", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 48, .max_entries = 4 * 64, .extra = 64, .id = 10 },
	[BLOOM] = { .name = "bloom", .type = BPF_MAP_TYPE_BLOOM_FILTER, .value_size = 16, .max_entries = 8, .id = 8 },
};

/* *4 = key 0 at fp-8, looked up in a map; r0 = value or null. */
#define LOOKUP(map) STI(BPF_DW, 10, -8, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), MAP(1, map), CALL(map_lookup_elem)

static struct verifier_result case_result;
static struct verifier_options case_options;
static struct arena *case_arena;
static char case_reason[600]; /* last line of the log */

static int case_check(enum ebpf_context context, uint32_t memory, const struct bpf_insn *insns, size_t n)
{
	struct bpf_insn copy[512];
	struct ebpf_program p = { .name = "case", .insns = copy, .n_insns = (uint32_t)n, .context = context, .memory_bytes = memory,
		.maps = case_maps, .n_maps = sizeof(case_maps) / sizeof(case_maps[0]) };
	struct buf log = { 0 };
	struct diag d = { 0 };
	if (n)
		memcpy(copy, insns, n * sizeof(*copy));
	arena_free(case_arena);
	case_arena = arena_new();
	int err = verifier_check(case_arena, &p, &case_options, &case_result, &log, &d);
	case_reason[0] = '\0';
	if (err) {
		log.data[log.len - 1] = '\0'; /* the newline of the last line */
		const char *last = strrchr(log.data, '\n');
		snprintf(case_reason, sizeof(case_reason), "%s", last ? last + 1 : log.data);
		if (strcmp(case_reason, d.text))
			snprintf(case_reason, sizeof(case_reason), "(the diagnostic differs from the log: %s)", d.text);
	}
	buf_free(&log);
	return err;
}

/* In a memory context, on a buffer of 64 bytes, or in a context of its own. */
#define accepted(name, ...) accepted_in(EBPF_CONTEXT_MEM, 0, name, __VA_ARGS__)
#define accepted_raw(name, ...) accepted_in(EBPF_CONTEXT_NONE, 64, name, __VA_ARGS__)
#define accepted_in(context, memory, name, ...)                                                    \
	do {                                                                                       \
		const struct bpf_insn insns_[] = { __VA_ARGS__ };                                  \
		int err_ = case_check(context, memory, insns_, sizeof(insns_) / sizeof(insns_[0])); \
		if (!ok(err_ == 0, "accepted: %s", name))                                          \
			printf("#   insn %u: %s\n", case_result.failed_insn, case_reason);         \
	} while (0)

#define refused(tag_, insn_, reason, name, ...) refused_in(EBPF_CONTEXT_MEM, 0, tag_, insn_, reason, name, __VA_ARGS__)
#define refused_raw(tag_, insn_, reason, name, ...) refused_in(EBPF_CONTEXT_NONE, 64, tag_, insn_, reason, name, __VA_ARGS__)
#define refused_in(context, memory, tag_, insn_, reason, name, ...)                                \
	do {                                                                                       \
		const struct bpf_insn insns_[] = { __VA_ARGS__ };                                  \
		int err_ = case_check(context, memory, insns_, sizeof(insns_) / sizeof(insns_[0])); \
		const char *got_tag_ = err_ ? case_result.tag : "accepted";                        \
		if (!ok(err_ && !strcmp(got_tag_, tag_) && case_result.failed_insn == (insn_) && !strcmp(case_reason, reason), \
			    "refused: %s", name))                                                  \
			printf("#   got  %s at %u: %s\n#   want %s at %u: %s\n", got_tag_, case_result.failed_insn, case_reason, tag_, \
				(unsigned)(insn_), reason);                                        \
	} while (0)

#endif
