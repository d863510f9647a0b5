/* The log of a failing path, whole, and facts and lengths of an accepted program. */
#include "verifier_case.h"

static const struct bpf_insn failing[] = { LD(BPF_W, 6, 1, 4), STI(BPF_DW, 10, -8, 0), MOV(2, 10), ALUI(BPF_ADD, 2, -8), MAP(1, HASH), CALL(map_lookup_elem),
	JMPI(BPF_JEQ, 0, 0, 4), JMPI(BPF_JGT, 6, 9, 2), ALU(BPF_ADD, 0, 6), LD(BPF_B, 0, 0, 8), EXIT(), MOVI(0, 0), EXIT() };

static const struct ebpf_line lines[] = {
	{ 0, 12, 3, "probe.bpf.c", "\tint i = ctx->lane;" },
	{ 2, 13, 7, "probe.bpf.c", "\tv = bpf_map_lookup_elem(&hash, &key);" },
	{ 9, 15, 9, "probe.bpf.c", "\t\treturn v[i];" },
};

static const char want[] =
	"0: R1=ctx() R10=fp0\n"
	"; int i = ctx->lane; @ probe.bpf.c:12\n"
	"0: (61) r6 = *(u32 *)(r1 +4)            ; R6_w=scalar(smin=0,smax=umax=0xffffffff,var_off=(0x0; 0xffffffff))\n"
	"1: (7a) *(u64 *)(r10 -8) = 0            ; fp-8_w=0\n"
	"; v = bpf_map_lookup_elem(&hash, &key); @ probe.bpf.c:13\n"
	"2: (bf) r2 = r10                        ; R2_w=fp0\n"
	"3: (07) r2 += -8                        ; R2_w=fp-8\n"
	"4: (18) r1 = map[hash]                  ; R1_w=map_ptr(map=hash,ks=8,vs=16)\n"
	"6: (85) call bpf_map_lookup_elem#1      ; R0_w=map_value_or_null(id=2,map=hash,ks=8,vs=16)\n"
	"7: (15) if r0 == 0x0 goto pc+4          ; R0_w=map_value(map=hash,ks=8,vs=16)\n"
	"8: (25) if r6 > 0x9 goto pc+2           ; R6_w=scalar(smin=smin32=0,smax=umax=smax32=umax32=9,var_off=(0x0; 0xf))\n"
	"; return v[i]; @ probe.bpf.c:15\n"
	"9: (0f) r0 += r6                        ; R0_w=map_value(map=hash,ks=8,vs=16,smin=smin32=0,smax=umax=smax32=umax32=9,var_off=(0x0; 0xf))\n"
	"10: (71) r0 = *(u8 *)(r0 +8)\n"
	"R0 max value is outside of the allowed memory range: off=17 size=1 of 16 bytes of a value of hash; check the index against the size\n";

static char *log_of(const struct bpf_insn *insns, uint32_t n, uint32_t level, struct diag *d)
{
	struct ebpf_program p = { .name = "case", .insns = (struct bpf_insn *)insns, .n_insns = n, .context = EBPF_CONTEXT_MEM, .maps = case_maps, .n_maps = 6,
		.lines = lines, .n_lines = 3 };
	struct verifier_options opts = { .log_level = level };
	struct buf log = { 0 };
	arena_free(case_arena);
	case_arena = arena_new();
	verifier_check(case_arena, &p, &opts, &case_result, &log, d);
	char *copy = strdup(log.data ? log.data : "");
	buf_free(&log);
	return copy;
}

#define LOG(program, level) log_of(program, sizeof(program) / sizeof(program[0]), level, &d)

static void test_path(void)
{
	struct diag d = { 0 };
	char *log = LOG(failing, 1);
	is_str(log, want, "the failing path");
	is_int(d.line, 15, "the diagnostic has the source line");
	is_int(case_result.failed_insn, 10, "and the result the instruction");
	free(log);
	log = LOG(failing, 0);
	ok(!strncmp(log, "R0 max value", 12) && strlen(strchr(log, '\n')) == 1, "without a level, the reason alone");
	free(log);
	log = LOG(failing, 2);
	ok(strstr(log, "8: (25) if r6 > 0x9 goto pc+2           ; R0=map_value(map=hash,ks=8,vs=16) R6=scalar("), "at level 2, all that is known");
	free(log);
}

/* The way that fails is the one that jumps, after the other was walked. */
static void test_other_way(void)
{
	static const struct bpf_insn program[] = { LD(BPF_W, 6, 1, 4), JMPI(BPF_JEQ, 6, 7, 2), MOVI(0, 0), EXIT(), MOV(0, 6), LD(BPF_B, 0, 0, 0), EXIT() };
	struct diag d = { 0 };
	char *log = LOG(program, 1);
	is_str(strstr(log, "1: "),
		"1: (15) if r6 == 0x7 goto pc+2          ; R6_w=7\n"
		"; v = bpf_map_lookup_elem(&hash, &key); @ probe.bpf.c:13\n"
		"4: (bf) r0 = r6                         ; R0_w=7\n"
		"5: (71) r0 = *(u8 *)(r0 +0)\n"
		"R0 invalid mem access 'scalar'\n", "the path shown is the one that failed");
	free(log);
}

static void test_long(void)
{
	static const struct bpf_insn program[] = { MOVI(0, 0), ALUI(BPF_ADD, 0, 1), JMPI(BPF_JLT, 0, 30000, -2), LD(BPF_B, 0, 0, 0), EXIT() };
	struct diag d = { 0 };
	char *log = LOG(program, 1);
	ok(strstr(log, "(58602 instructions of this path are left out)\n"), "the middle of a long path is left out");
	ok(strstr(log, "2: (a5) if r0 < 0x7530 goto pc-2\n") && strstr(log, "3: (71) r0 = *(u8 *)(r0 +0)\nR0 invalid"), "its end is not");
	free(log);
}

static void test_whole(void)
{
	static const struct bpf_insn shape[] = { MOVI(0, 0), JA(1), MOVI(0, 1), EXIT() };
	static const struct bpf_insn good[] = { STI(BPF_DW, 10, -24, 0), CALL(ktime_get_ns), EXIT() };
	struct diag d = { 0 };
	char *log = LOG(shape, 1);
	is_str(log, "; v = bpf_map_lookup_elem(&hash, &key); @ probe.bpf.c:13\n2: (b7) r0 = 1\nunreachable insn 2; remove it\n", "what belongs to no path");
	free(log);
	log = LOG(good, 1);
	is_str(log, "processed 3 insns (limit 1000000) peak_states 0 longest run 7 insns stack depth 24\n", "success at level 1");
	free(log);
	log = LOG(good, 0);
	is_str(log, "", "success at level 0");
	free(log);
}

int main(void)
{
	test_path();
	test_other_way();
	test_long();
	test_whole();
	arena_free(case_arena);
	return tap_done();
}
