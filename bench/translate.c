/* translate.c - how long a verified program takes to become PTX.
 *
 *   bench_translate [OBJ.bpf.o...]
 *
 * A line for each program: its instructions, the bytes of PTX, the best and the median of many runs. First a made-up one of 200
 * instructions, a mix of arithmetic, context, stack, array and hash look-ups, additions and branches; then the programs of the objects
 * given. Status 1: the made-up one missed 200 us.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "objects.h"
#include "translate/translate.h"
#include "verifier/verifier.h"

enum { RUNS = 401, SIZE = 200, LIMIT_US = 200 };

static struct bpf_insn insns[SIZE + 64];
static uint32_t n;

static const struct ebpf_map maps[] = {
	{ .name = "array", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 64, .max_entries = 16, .id = 0 },
	{ .name = "hash", .type = BPF_MAP_TYPE_HASH, .key_size = 16, .value_size = 16, .max_entries = 64, .id = 1 },
};

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* The median, or negative. */
static double measure(const char *name, const struct ebpf_program *p, const struct verifier_result *v)
{
	double us[RUNS];
	size_t bytes = 0;
	bool warp = p->context == EBPF_CONTEXT_WARP_MEM || p->context == EBPF_CONTEXT_WARP;
	for (int i = 0; i < RUNS; i++) {
		struct ebpf_fragment f;
		struct diag d = { 0 };
		struct arena *arena = arena_new();
		double start = now_us();
		int err = translate_program(arena, p, v, EBPF_POINT_LOAD, warp, &f, &d);
		us[i] = now_us() - start;
		bytes = err ? 0 : strlen(f.body);
		arena_free(arena);
		if (err) {
			printf("%-34s %s\n", name, d.text);
			return -1;
		}
	}
	qsort(us, RUNS, sizeof(*us), by_size);
	printf("%-34s %6u insns %7zu bytes   best %7.1f us   median %7.1f us\n", name, p->n_insns, bytes, us[0], us[RUNS / 2]);
	return us[RUNS / 2];
}

static void put(uint8_t code, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	insns[n++] = (struct bpf_insn){ .code = code, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm };
}

/* A look-up by a key built on the stack, and what is done with its value. */
static void put_look_up(int map, int bytes)
{
	for (int k = 0; k < bytes; k += 8)
		put(BPF_STX | BPF_MEM | (bytes < 8 ? BPF_W : BPF_DW), 10, 7, (int16_t)(-bytes + k), 0);
	put(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, map);
	put(0, 0, 0, 0, 0);
	put(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0);
	put(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -bytes);
	put(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
	put(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 4, 0);
	put(BPF_LDX | BPF_MEM | BPF_DW, 1, 0, 0, 0);
	put(BPF_ALU64 | BPF_ADD | BPF_X, 1, 7, 0, 0);
	put(BPF_STX | BPF_MEM | BPF_DW, 0, 1, 0, 0);
	put(BPF_STX | BPF_ATOMIC | BPF_DW, 0, 7, 8, BPF_ADD);
}

static void put_arithmetic(void)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_MUL, BPF_XOR, BPF_RSH, BPF_AND, BPF_SUB };
	for (size_t k = 0; k < sizeof(ops); k++) {
		put(BPF_ALU64 | ops[k] | BPF_K, 7, 0, 0, 0x1234 + (ops[k] == BPF_RSH ? -0x1230 : 0));
		put(BPF_ALU | BPF_ADD | BPF_X, 8, 7, 0, 0);
	}
	put(BPF_JMP | BPF_JGT | BPF_K, 8, 0, 1, 1000);
	put(BPF_ALU64 | BPF_ADD | BPF_K, 7, 0, 0, 3);
}

static void make(void)
{
	n = 0;
	put(BPF_LDX | BPF_MEM | BPF_DW, 7, 1, 128, 0); /* address */
	put(BPF_LDX | BPF_MEM | BPF_W, 8, 1, 136, 0);  /* bytes */
	while (n < SIZE - 42) {
		put_arithmetic();
		put_look_up(0, 4);
		put_look_up(1, 16);
	}
	while (n < SIZE - 2)
		put(BPF_ALU64 | BPF_ADD | BPF_X, 8, 7, 0, 0);
	put(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
	put(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static bool made_up(void)
{
	struct ebpf_program p = { .name = "made-up", .insns = insns, .context = EBPF_CONTEXT_MEM, .maps = maps, .n_maps = 2 };
	struct verifier_result v;
	struct diag d = { 0 };
	struct arena *arena = arena_new();
	make();
	p.n_insns = n;
	bool good = !verifier_check(arena, &p, NULL, &v, NULL, &d);
	if (!good)
		printf("the made-up program is refused: %s\n", d.text);
	double us = good ? measure("made-up", &p, &v) : -1;
	if (us > LIMIT_US)
		printf("  missed: %d us\n", LIMIT_US);
	arena_free(arena);
	return us >= 0 && us <= LIMIT_US;
}

static bool real(const char *name, const struct loader_prog *lp)
{
	if (!lp->err)
		measure(name, lp->program, &lp->verified);
	return true;
}

int main(int argc, char **argv)
{
	const struct verifier_options v = { 0 };
	bool good = made_up();
	objects_each(argc - 1, argv + 1, &v, real);
	return good ? 0 : 1;
}
