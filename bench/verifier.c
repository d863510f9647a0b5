/* verifier.c - how fast the verifier is, and how much memory it takes.
 *
 *   bench_verifier [OBJ.bpf.o...]
 *
 * A line for each program: its instructions, those that were processed on all paths, the best time of several, processed
 * instructions a second, and the memory that a process grows by when it verifies once. Made-up programs come first, in shapes that
 * are easy and hard; then the programs of the objects given. Status 1: a made-up one got the wrong verdict, or missed its bound (50 ms for
 * 4,096 instructions on one core; 5 s and 500 MiB for one that uses up the million).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "objects.h"
#include "verifier/verifier.h"

enum { N = 4096, REPEAT = 7, MAX_MS = 50, LIMIT_MS = 5000, LIMIT_KIB = 500 << 10 };

struct measured {
	int err;
	double best_ms;
	uint32_t processed, peak_states;
	long kib;
	char reason[600];
};

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static long peak_kib(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static void check_once(const struct ebpf_program *p, struct measured *m)
{
	struct verifier_options opts = { .max_run_insns = UINT32_MAX };
	struct verifier_result v;
	struct diag d = { 0 };
	struct arena *arena = arena_new();
	double start = now_ms();
	m->err = arena ? verifier_check(arena, p, &opts, &v, NULL, &d) : -ENOMEM;
	double ms = now_ms() - start;
	if (!m->best_ms || ms < m->best_ms)
		m->best_ms = ms;
	m->processed = v.processed_insns;
	m->peak_states = v.peak_states;
	snprintf(m->reason, sizeof(m->reason), "%s", d.text);
	arena_free(arena);
}

/* In a process of its own, whose peak of memory is this program's alone. */
static bool measure(const struct ebpf_program *p, int repeat, struct measured *m)
{
	int pipe_[2], status;
	memset(m, 0, sizeof(*m));
	fflush(stdout);
	if (pipe(pipe_))
		return false;
	pid_t child = fork();
	if (child == 0) {
		long before = peak_kib();
		check_once(p, m);
		m->kib = peak_kib() - before;
		for (int i = 1; i < repeat && m->best_ms < 1000; i++)
			check_once(p, m);
		_exit(write(pipe_[1], m, sizeof(*m)) != sizeof(*m));
	}
	close(pipe_[1]);
	bool good = child > 0 && read(pipe_[0], m, sizeof(*m)) == sizeof(*m);
	close(pipe_[0]);
	return child > 0 && waitpid(child, &status, 0) == child && !status && good;
}

static void head(void)
{
	printf("%-34s %7s %10s %10s %12s %8s %9s\n", "program", "insns", "processed", "ms", "insns/s", "states", "KiB");
}

static void line(const char *name, const struct ebpf_program *p, const struct measured *m)
{
	printf("%-34s %7u %10u %10.3f %12.0f %8u %9ld%s\n", name, p->n_insns, m->processed, m->best_ms, m->processed / m->best_ms * 1e3,
		m->peak_states, m->kib, m->err ? "  refused" : "");
}

/* -- made-up programs ---------------------------------------------------------- */

static struct bpf_insn insns[N + 64];
static uint32_t n;

static void put(uint8_t code, int dst, int src, int off, int imm)
{
	insns[n++] = (struct bpf_insn){
		.code = code, .dst_reg = (uint8_t)(dst & 15), .src_reg = (uint8_t)(src & 15), .off = (int16_t)off, .imm = imm
	};
}

#define MOVI(dst, imm) put(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, imm)
#define MOV(dst, src) put(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0)
#define ALUI(op, dst, imm) put(BPF_ALU64 | (op) | BPF_K, dst, 0, 0, imm)
#define ALU(op, dst, src) put(BPF_ALU64 | (op) | BPF_X, dst, src, 0, 0)
#define LOAD(dst, src, off) put(BPF_LDX | BPF_MEM | BPF_DW, dst, src, off, 0)
#define STORE(dst, off, src) put(BPF_STX | BPF_MEM | BPF_DW, dst, src, off, 0)
#define JIF(op, dst, imm, off) put(BPF_JMP | (op) | BPF_K, dst, 0, off, imm)

/* r6: the buffer of 64 bytes; r7 to r9: unknown numbers; fp-8 to fp-64: set. */
static void begin(void)
{
	n = 0;
	MOV(6, 1);
	for (int i = 7; i < 10; i++)
		LOAD(i, 6, 8 * (i - 7));
	MOVI(0, 0);
	for (int i = 1; i <= 8; i++)
		STORE(10, -8 * i, 0);
}

static void end(void)
{
	MOVI(0, 0);
	put(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void straight_alu(void)
{
	static const uint8_t ops[] = { BPF_ADD, BPF_XOR, BPF_MUL, BPF_OR, BPF_SUB, BPF_AND };
	for (int i = 0; n < N - 2; i++)
		ALU(ops[i % 6], 7 + i % 3, 7 + (i + 1) % 3);
}

static void straight_memory(void)
{
	for (int i = 0; n < N - 4; i++) {
		LOAD(2, 6, 8 * (i % 8));
		STORE(10, -8 * (i % 8 + 1), 2);
		LOAD(3, 10, -8 * ((i + 3) % 8 + 1));
	}
}

/* What each branch sets is overwritten before anybody reads it. */
static void branch_independent(void)
{
	for (int i = 0; n < N - 6; i++) {
		LOAD(2, 6, 8 * (i % 8));
		JIF(BPF_JEQ, 2, i, 1);
		MOVI(3, i);
		MOVI(3, 0);
	}
}

/* Each branch leaves another number behind, which an address depends on: masked, so both ways stay safe. */
static void branch_state(void)
{
	for (int i = 0; n < N - 10; i++) {
		LOAD(2, 6, 8 * (i % 8));
		MOVI(3, 8);
		JIF(BPF_JGT, 2, i, 1);
		MOVI(3, 16);
		MOV(4, 6);
		ALU(BPF_ADD, 4, 3);
		LOAD(5, 4, 0);
	}
}

/* Counters of the same register, one step a branch: unlike on every path, and not needed as numbers. */
static void branch_counter(void)
{
	MOVI(4, 0);
	for (int i = 0; n < N - 6; i++) {
		LOAD(2, 6, 8 * (i % 8));
		JIF(BPF_JSET, 2, 1 << i % 31, 1);
		ALUI(BPF_ADD, 4, 1);
	}
	STORE(6, 0, 4);
}

/* Ways that differ in what was spilled, to slots that are read and to slots that are not. */
static void branch_spill(void)
{
	for (int i = 0; n < N - 8; i++) {
		LOAD(2, 6, 8 * (i % 8));
		JIF(BPF_JSLT, 2, i, 2);
		STORE(10, -8 * (i % 8 + 1), 2);
		put(BPF_JMP | BPF_JA, 0, 0, 1, 0);
		STORE(10, -8 * ((i + 1) % 8 + 1), 7);
		LOAD(3, 10, -8 * ((i + 5) % 8 + 1));
	}
	STORE(6, 0, 3);
}

/* A value is compared again and again, 32 times each: every way knows something else of its range. */
static void branch_range(void)
{
	for (int i = 0; n < N - 4; i++) {
		if (i % 32 == 0)
			LOAD(7, 6, 8 * (i % 64 / 32));
		JIF(BPF_JGT, 7, 100000 - 20 * i, 1);
		ALUI(BPF_ADD, 8, 1);
	}
	STORE(6, 0, 8);
}

static void branch_nested(void)
{
	for (int i = 0; n < N - 40; i++) {
		for (int k = 0; k < 3; k++)
			LOAD(7 + k, 6, 8 * k);
		for (int k = 0; k < 8; k++)
			JIF(BPF_JGT, 7 + k % 3, 1000 * k + i, 2 * (7 - k) + 1), MOVI(5, k);
		ALUI(BPF_XOR, 9, i);
	}
}

/* Loops with a constant number of rounds, one after the other. */
static void loops_bounded(void)
{
	while (n < N - 12) {
		MOVI(2, 0);
		LOAD(3, 6, 0);
		ALU(BPF_ADD, 7, 3);
		ALUI(BPF_ADD, 2, 1);
		JIF(BPF_JLT, 2, 10, -4);
	}
}

static void loop_branches(void)
{
	while (n < N - 400) {
		MOVI(2, 0);
		uint32_t top = n;
		while (n < top + 380) {
			LOAD(3, 6, 8 * (int)(n % 8));
			JIF(BPF_JGT, 3, (int)n, 1);
			ALUI(BPF_ADD, 7, 1);
		}
		ALUI(BPF_ADD, 2, 1);
		JIF(BPF_JLT, 2, 5, (int)top - (int)n - 1);
	}
}

/* Every way is unlike every other, and the difference is needed: two to the power of n of them. */
static void explosion(void)
{
	MOVI(4, 0);
	for (int i = 0; n < N - 30; i++) {
		LOAD(2, 6, 8 * (i % 8));
		ALUI(BPF_LSH, 4, 1);
		JIF(BPF_JEQ, 2, i, 1);
		ALUI(BPF_OR, 4, 1);
	}
	JIF(BPF_JNE, 4, 12345, 2);
	MOV(5, 6);
	LOAD(5, 5, 0);
}

static void explosion_spilled(void)
{
	for (int i = 0; n < N - 30; i++) {
		LOAD(2, 6, 8 * (i % 8));
		LOAD(4, 10, -8 * (i % 8 + 1));
		JIF(BPF_JEQ, 2, i, 1);
		ALUI(BPF_ADD, 4, 1 + i);
		STORE(10, -8 * (i % 8 + 1), 4);
	}
	LOAD(4, 10, -8);
	JIF(BPF_JNE, 4, 12345, 0);
}

static void loop_long(void)
{
	MOVI(2, 0);
	for (int i = 0; i < 20; i++)
		ALU(BPF_ADD, 7 + i % 3, 7 + (i + 1) % 3);
	ALUI(BPF_ADD, 2, 1);
	JIF(BPF_JLT, 2, 10000000, -22);
}

static const struct shape {
	const char *name;
	void (*make)(void);
	bool limit; /* uses up the million */
} shapes[] = {
	{ "straight: arithmetic", straight_alu, false },
	{ "straight: memory", straight_memory, false },
	{ "branches: independent", branch_independent, false },
	{ "branches: offsets that differ", branch_state, false },
	{ "branches: counter", branch_counter, false },
	{ "branches: spills", branch_spill, false },
	{ "branches: ranges", branch_range, false },
	{ "branches: nested", branch_nested, false },
	{ "loops: 10 rounds each", loops_bounded, false },
	{ "loops: 5 rounds of 127 branches", loop_branches, false },
	{ "million: numbers", explosion, true },
	{ "million: spilled numbers", explosion_spilled, true },
	{ "million: long loop", loop_long, true },
};

static bool shape_ok(const struct shape *s, const struct measured *m)
{
	if (!s->limit && m->err)
		return printf("  wrong: refused: %s\n", m->reason), false;
	if (!s->limit && m->best_ms >= MAX_MS)
		return printf("  missed: %d ms\n", MAX_MS), false;
	if (s->limit)
		printf("  says: %s\n", m->reason);
	if (s->limit && (!m->err || !strstr(m->reason, "limit is 1000000")))
		return printf("  wrong: not stopped by the limit\n"), false;
	if (s->limit && (m->best_ms >= LIMIT_MS || m->kib >= LIMIT_KIB))
		return printf("  missed: %d ms, %d KiB\n", LIMIT_MS, LIMIT_KIB), false;
	return true;
}

static bool run_shape(const struct shape *s)
{
	struct measured m;
	struct ebpf_program p = { .name = "bench", .insns = insns, .context = EBPF_CONTEXT_NONE, .memory_bytes = 64 };
	begin();
	s->make();
	end();
	p.n_insns = n;
	if (!measure(&p, s->limit ? 1 : REPEAT, &m))
		return printf("%-34s died\n", s->name), false;
	line(s->name, &p, &m);
	return shape_ok(s, &m);
}

/* -- real objects ------------------------------------------------------------- */

static bool real(const char *name, const struct loader_prog *lp)
{
	struct measured m;
	bool good = lp->program && measure(lp->program, 200, &m);
	if (good)
		line(name, lp->program, &m);
	return good;
}

int main(int argc, char **argv)
{
	const struct verifier_options v = { .max_run_insns = UINT32_MAX, .allow_perturb = true, .allow_races = true };
	bool good = true;
	head();
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
		good &= run_shape(&shapes[i]);
	return objects_each(argc - 1, argv + 1, &v, real) && good ? 0 : 1;
}
