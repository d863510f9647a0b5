/* Hostile programs: bytes without sense, jumps anywhere, ways without number. No crash, and bounds of time and memory. */
#include "verifier_case.h"

#include <sys/resource.h>

static struct bpf_insn code[EBPF_MAX_INSNS];
static uint32_t n;
static uint64_t seed = 88172645463325252u;

static uint32_t draw(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 16) % below);
}

static void add(struct bpf_insn i)
{
	code[n++] = i;
}

static double cpu_ms(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

static double took;

static int check(void)
{
	struct ebpf_program p = { .name = "hostile", .insns = code, .n_insns = n, .memory_bytes = 4096, .maps = case_maps, .n_maps = 6 };
	double start = cpu_ms();
	arena_free(case_arena);
	case_arena = arena_new();
	int err = verifier_check(case_arena, &p, NULL, &case_result, NULL, NULL);
	took = cpu_ms() - start;
	n = 0;
	return err;
}

/* Sanitizers cost about five times; a loaded machine costs some more. */
static double allowed(double ms)
{
	return getenv("EGPU_SANITIZED") ? ms * 20 : ms * 4;
}

static void test_bytes(void)
{
	int accepted = 0;
	for (int i = 0; i < 20000; i++) {
		for (uint32_t k = 1 + draw(20); k--;) {
			uint64_t bytes = (uint64_t)draw(0x10000) | (uint64_t)draw(32) << 16 | (uint64_t)draw(100) << 32;
			memcpy(&code[n++], &bytes, 8);
		}
		accepted += !check();
	}
	ok(accepted < 20000, "random bytes are looked at (%d of 20000 accepted)", accepted);
}

static void test_diamonds(void)
{
	add(MOVI(6, 0));
	for (uint32_t k = 0; n < 4090; k++) {
		add(LD(BPF_DW, 7, 1, (int16_t)(8 * (k % 512))));
		add(JMPI(BPF_JNE, 7, (int32_t)k, 1));
		add(ALUI(BPF_ADD, 6, (int32_t)k));
	}
	add(MOVI(0, 0));
	add(EXIT());
	is_int(check(), 0, "1,363 independent branches");
	ok(took < allowed(25), "take %.1f ms", took);
	is_int(case_result.max_run_insns, 4092, "and the longest way is known");
}

static void test_stack_diamonds(void)
{
	add(LD(BPF_DW, 7, 1, 0));
	for (int16_t k = 1; k <= 64; k++)
		add(ST(BPF_DW, 10, (int16_t)(-8 * k), 7));
	for (uint32_t k = 0; n < 4090; k++) {
		add(LD(BPF_DW, 7, 1, (int16_t)(8 * (k % 512))));
		add(JMPI(BPF_JNE, 7, (int32_t)k, 1));
		add(ST(BPF_DW, 10, (int16_t)(-8 * (int)(1 + k % 64)), 7));
	}
	add(LD(BPF_DW, 0, 10, -8));
	add(EXIT());
	is_int(check(), 0, "the same with a full stack");
	ok(took < allowed(50), "take %.1f ms", took);
}

/* Every way has another number, and the end needs it: nothing can be remembered. */
static void test_explosion(void)
{
	add(MOVI(6, 0));
	for (uint32_t k = 0; n < 4080; k++) {
		add(LD(BPF_DW, 7, 1, (int16_t)(8 * (k % 512))));
		add(JMPI(BPF_JNE, 7, (int32_t)k, 1));
		add(ALUI(BPF_ADD, 6, 1 << k % 30));
	}
	add(ALUI(BPF_AND, 6, 8));
	add(ALU(BPF_ADD, 1, 6));
	add(LD(BPF_DW, 0, 1, 0));
	add(EXIT());
	is_int(check(), -E2BIG, "2^1359 ways that all differ are given up");
	is_str(case_result.tag, "loop", "by the limit");
	ok(took < allowed(1500), "after %.1f ms", took);
}

static void test_jumps(void)
{
	int worst = 0;
	double longest = 0;
	for (int i = 0; i < 200; i++) {
		uint32_t size = 16 + draw(2000);
		add(LD(BPF_DW, 7, 1, 0));
		add(MOVI(0, 0));
		while (n < size) {
			uint32_t to = draw(size);
			add(draw(3) ? JMPI(BPF_JSET, 7, 1 << draw(31), (int16_t)((int32_t)to - (int32_t)n - 1)) : ALUI(BPF_ADD, 0, 1));
		}
		add(EXIT());
		check();
		longest = took > longest ? took : longest;
		worst = (int)case_result.processed_insns > worst ? (int)case_result.processed_insns : worst;
	}
	ok(longest < allowed(1000), "jumps anywhere: at most %.1f ms, %d instructions looked at", longest, worst);
}

static void test_large(void)
{
	add(MOVI(0, 0));
	while (n < EBPF_MAX_INSNS - 1)
		add(ALUI(BPF_ADD, 0, 1));
	add(EXIT());
	is_int(check(), -E2BIG, "a million instructions in a row are too long a run");
	ok(took < allowed(600), "found after %.1f ms", took);
	add(LD(BPF_DW, 7, 1, 0));
	while (n < EBPF_MAX_INSNS - 2) {
		uint32_t back = draw(n < 30000 ? n : 30000);
		add(JMPI(BPF_JSET, 7, 1 << draw(31), (int16_t)-(int32_t)back));
	}
	add(MOVI(0, 0));
	add(EXIT());
	ok(check() < 0, "a million jumps back");
	ok(took < allowed(1500), "take %.1f ms", took);
	for (uint32_t k = 0; k < 300000; k++) {
		add(CALLF((int32_t)draw(300000) - (int32_t)k));
		add(MOVI(0, 0));
		add(EXIT());
	}
	ok(check() < 0, "300,000 functions");
	ok(took < allowed(1500), "take %.1f ms", took);
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	ok(getenv("EGPU_SANITIZED") || u.ru_maxrss < 700 << 10, "at most %ld MiB were in use", u.ru_maxrss >> 10);
}

int main(void)
{
	test_bytes();
	test_diamonds();
	test_stack_diamonds();
	test_explosion();
	test_jumps();
	test_large();
	arena_free(case_arena);
	return tap_done();
}
