/* insns.h - eBPF instructions as text, and what linux/bpf.h of older systems lacks.
 *
 * The text is the kernel's (kernel/bpf/disasm.c), so that people who read verifier logs read ours.
 */
#ifndef EGPU_BPF_INSNS_H
#define EGPU_BPF_INSNS_H

#include "base/buf.h"
#include "bpf/program.h"

/* RFC 9669 modes that came with -mcpu=v4; headers before Linux 6.6 do not name them. */
enum { EBPF_MEMSX = 0x80 /* LDX: sign-extending load */ };

/* Width in bytes of BPF_B, BPF_H, BPF_W, BPF_DW. */
static inline uint32_t ebpf_insn_bytes(uint8_t code)
{
	switch (BPF_SIZE(code)) {
	case BPF_B:
		return 1;
	case BPF_H:
		return 2;
	case BPF_W:
		return 4;
	default:
		return 8;
	}
}

static inline bool ebpf_is_imm64(const struct bpf_insn *i)
{
	return i->code == (BPF_LD | BPF_IMM | BPF_DW);
}

/* The instruction at `at` without a newline: "(61) r1 = *(u32 *)(r1 +16)". Whatever the bytes are, text comes out;
 * at must be below n_insns. Maps are named when p->maps has them. */
void ebpf_insn_print(const struct ebpf_program *p, uint32_t at, struct buf *out);
/* The whole program, a line for each instruction: "N: (code) text". */
void ebpf_program_print(const struct ebpf_program *p, struct buf *out);

#endif
