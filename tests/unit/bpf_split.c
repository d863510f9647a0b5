/* Ways that are parted where they had met: the program computes what it did, whichever piece gets a copy. */
#include "bpf/split.h"

#include "bpf/insns.h"
#include "cpu/interp.h"
#include "tap.h"

enum { N = 24, LOOPS = 3000 };

static uint32_t x = 20261130;

static uint32_t chance(uint32_t n)
{
	x = x * 1664525 + 1013904223;
	return (x >> 16) % n;
}

/* r1: memory of 8 bytes, the input. Arithmetic on r0 and r3, jumps that go forward, among wide loads. */
static uint32_t make(struct bpf_insn *to)
{
	uint32_t n = 0;
	to[n++] = (struct bpf_insn){ .code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = 3, .src_reg = 1 };
	to[n++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 5 };
	bool starts[N + 1] = { false };
	while (n < N) {
		starts[n] = true;
		switch (chance(4)) {
		case 0:
			if (n + 2 > N)
				continue;
			to[n++] = (struct bpf_insn){ .code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = 4, .imm = (int32_t)chance(1000) };
			to[n++] = (struct bpf_insn){ .imm = (int32_t)chance(1000) };
			break;
		case 1:
			to[n++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_MUL | BPF_K, .imm = (int32_t)chance(7) + 3 };
			break;
		case 2:
			to[n++] = (struct bpf_insn){ .code = BPF_ALU64 | BPF_ADD | BPF_X, .src_reg = 3 };
			break;
		default:
			to[n++] = (struct bpf_insn){ .code = chance(6) ? BPF_JMP | BPF_JGT | BPF_K : BPF_JMP | BPF_JA, .dst_reg = chance(2) ? 3 : 0,
				.imm = (int32_t)chance(1u << 20) };
		}
	}
	starts[n] = true;
	to[n++] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
	for (uint32_t i = 2; i < N; i++) {
		bool jumps = starts[i] && BPF_CLASS(to[i].code) == BPF_JMP;
		uint32_t t = i + 1 + (jumps ? chance(N - i) : 0);
		while (!starts[t])
			t++;
		if (jumps && (to[i].code & 0xf0) == BPF_JA)
			to[i].dst_reg = 0, to[i].imm = 0;
		if (jumps)
			to[i].off = (int16_t)(t - i - 1);
	}
	return n;
}

static uint64_t run(const struct ebpf_program *p, uint64_t in, uint64_t *insns)
{
	struct interp_result r;
	struct ebpf_program q = *p;
	struct interp i = { .program = &q, .memory = &in, .max_insns = 10000, .check = true };
	int err = interp_run(&i, &r);
	*insns = r.insns;
	return err ? UINT64_MAX : r.r0;
}

static void test_random(struct arena *a)
{
	int parted = 0, wrong = 0, longer = 0;
	for (int k = 0; k < LOOPS; k++) {
		struct bpf_insn insns[N + 1];
		uint32_t n = make(insns);
		struct ebpf_program was = { .name = "p", .insns = insns, .n_insns = n, .memory_bytes = 8 }, p = was;
		bool done = true;
		for (int again = 0; again < 4 && done; again++) {
			uint32_t at = 0;
			for (uint32_t go = chance(p.n_insns - 1); at < go;)
				at += ebpf_is_imm64(&p.insns[at]) ? 2 : 1;
			if (ebpf_split(a, &p, at, &done))
				wrong++;
			parted += done;
		}
		for (int i = 0; i < 8; i++) {
			uint64_t in = chance(1u << 16) << 5, one, two;
			wrong += run(&was, in, &one) != run(&p, in, &two);
			longer += two > one + 4;
		}
	}
	ok(parted > LOOPS / 5, "%d pieces got a copy", parted);
	is_int(wrong, 0, "and no program computes anything else");
	is_int(longer, 0, "or takes longer than a jump for each");
}

static void test_joined(struct arena *a)
{
	struct bpf_insn insns[] = {
		{ .code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = 3, .src_reg = 1 },
		{ .code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = 3, .off = 2 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 1 },
		{ .code = BPF_JMP | BPF_JA, .off = 1 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .imm = 2 },
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .imm = 10 }, /* both come here */
		{ .code = BPF_ALU64 | BPF_ADD | BPF_K, .imm = 20 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct ebpf_line lines[] = { { .insn = 0, .line = 1 }, { .insn = 4, .line = 2 }, { .insn = 6, .line = 3 }, { .insn = 7, .line = 4 } };
	struct ebpf_program p = { .name = "p", .insns = insns, .n_insns = 8, .memory_bytes = 8, .lines = lines, .n_lines = 4 };
	uint64_t n;
	bool done;
	is_int(ebpf_split(a, &p, 6, &done), 0, "a piece of two instructions");
	ok(done && p.n_insns == 11 && p.insns[3].off == 4 && p.insns[10].off == -4, "has a copy behind the end, and goes on behind itself");
	ok(p.n_lines == 6 && p.lines[4].insn == 8 && p.lines[4].line == 2 && p.lines[5].insn == 9 && p.lines[5].line == 3, "with its lines");
	is_int(run(&p, 1, &n), 31, "one way");
	is_int(run(&p, 0, &n), 32, "the other");
	is_int(ebpf_split(a, &p, 6, &done), 0, "again");
	ok(!done && p.n_insns == 11, "there is one way left");
	ebpf_split(a, &p, 0, &done);
	ok(!done, "the beginning is led to by nothing else");
	insns[2] = (struct bpf_insn){ .code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = 4 };
	p = (struct ebpf_program){ .name = "p", .insns = insns, .n_insns = 8 };
	ebpf_split(a, &p, 6, &done);
	ok(!done, "a program with functions stays as it is");
}

int main(void)
{
	struct arena *a = arena_new();
	test_joined(a);
	test_random(a);
	arena_free(a);
	return tap_done();
}
