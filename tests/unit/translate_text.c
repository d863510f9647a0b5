/* What the translator writes, on small programs: which accesses become atomics, registers,
 * constants, inputs; what it refuses.
 *
 * Facts come from the verifier, or are made by hand where it would refuse the program before the
 * translator can.
 */
#include "tap.h"

#include <errno.h>

#include "bpf/insns.h"
#include "translate/translate.h"

#define ALU64(op, d, s)                                                                            \
	{                                                                                          \
		.code = BPF_ALU64 | BPF_##op | BPF_X, .dst_reg = d, .src_reg = s                   \
	}
#define ALU64I(op, d, i)                                                                           \
	{                                                                                          \
		.code = BPF_ALU64 | BPF_##op | BPF_K, .dst_reg = d, .imm = i                       \
	}
#define ALU32I(op, d, i)                                                                           \
	{                                                                                          \
		.code = BPF_ALU | BPF_##op | BPF_K, .dst_reg = d, .imm = i                         \
	}
#define LD(size, d, s, o)                                                                          \
	{                                                                                          \
		.code = BPF_LDX | BPF_MEM | BPF_##size, .dst_reg = d, .src_reg = s, .off = o       \
	}
#define ST(size, d, o, s)                                                                          \
	{                                                                                          \
		.code = BPF_STX | BPF_MEM | BPF_##size, .dst_reg = d, .src_reg = s, .off = o       \
	}
#define STI(size, d, o, i)                                                                         \
	{                                                                                          \
		.code = BPF_ST | BPF_MEM | BPF_##size, .dst_reg = d, .off = o, .imm = i            \
	}
#define JMPI(op, d, i, o)                                                                          \
	{                                                                                          \
		.code = BPF_JMP | BPF_##op | BPF_K, .dst_reg = d, .off = o, .imm = i               \
	}
#define JA(o)                                                                                      \
	{                                                                                          \
		.code = BPF_JMP | BPF_JA, .off = o                                                 \
	}
#define CALL(i)                                                                                    \
	{                                                                                          \
		.code = BPF_JMP | BPF_CALL, .imm = i                                               \
	}
#define CALLF(i)                                                                                   \
	{                                                                                          \
		.code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = i                   \
	}
#define EXIT                                                                                       \
	{                                                                                          \
		.code = BPF_JMP | BPF_EXIT                                                         \
	}
#define MAP(d, m)                                                                                  \
	{ .code = BPF_LD | BPF_IMM | BPF_DW,                                                       \
		.dst_reg = d,                                                                      \
		.src_reg = BPF_PSEUDO_MAP_FD,                                                      \
		.imm = m },                                                                        \
	{                                                                                          \
		0                                                                                  \
	}
#define VALUE(d, m, o)                                                                             \
	{ .code = BPF_LD | BPF_IMM | BPF_DW,                                                       \
		.dst_reg = d,                                                                      \
		.src_reg = BPF_PSEUDO_MAP_VALUE,                                                   \
		.imm = m },                                                                        \
	{                                                                                          \
		.imm = o                                                                           \
	}

#define LOOK_UP                                                                                    \
	MAP(1, 2), ALU64(MOV, 2, 10), ALU64I(ADD, 2, -16), CALL(BPF_FUNC_map_lookup_elem)

static const uint8_t constants[16] = { 1, 2, 3, 4, 0xfe, 0xff, 0xff, 0xff, 5, 0, 0, 0, 0, 0, 0,
	0x80 };

static const struct ebpf_map maps[] = {
	{ .name = "globals",
		.type = BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = 64,
		.max_entries = 1,
		.id = 0 },
	{ .name = "rodata",
		.type = BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = 16,
		.max_entries = 1,
		.id = 1,
		.frozen = true,
		.flags = BPF_F_RDONLY_PROG,
		.values = constants },
	{ .name = "hash",
		.type = BPF_MAP_TYPE_HASH,
		.key_size = 12,
		.value_size = 8,
		.max_entries = 100,
		.id = 2 },
	{ .name = "array",
		.type = BPF_MAP_TYPE_ARRAY,
		.key_size = 4,
		.value_size = 16,
		.max_entries = 10,
		.id = 3 },
};

struct made {
	struct arena *arena;
	int err;
	struct diag d;
	struct ebpf_fragment f;
};

static struct made make(const struct bpf_insn *insns, uint32_t n, enum ebpf_context context)
{
	struct made m = { .arena = arena_new() };
	struct ebpf_program p = { .name = "p",
		.insns = (struct bpf_insn *)insns,
		.n_insns = n,
		.context = context,
		.maps = maps,
		.n_maps = 4 };
	struct verifier_result v;
	/* What is no addition stays a load and a store, which only such programs may have. */
	const struct verifier_options racy = { .allow_races = true };
	m.err = verifier_check(m.arena, &p, &racy, &v, NULL, &m.d);
	if (!m.err)
		m.err = translate_program(m.arena, &p, &v, EBPF_POINT_LOAD, false, &m.f, &m.d);
	if (m.err)
		printf("# %s\n", m.d.text);
	return m;
}

static struct made show(struct made m, const char *what)
{
	if (getenv("SHOW"))
		printf("# -- %s\n%s\n", what, m.err ? m.d.text : m.f.body);
	return m;
}

#define MAKE(context, ...)                                                                         \
	({                                                                                         \
		const struct bpf_insn insns[] = { __VA_ARGS__ };                                   \
		show(make(insns, sizeof(insns) / sizeof(insns[0]), EBPF_CONTEXT_##context),        \
			#__VA_ARGS__);                                                             \
	})

static uint32_t count(const struct made *m, const char *word)
{
	uint32_t n = 0;
	for (const char *s = m->err ? "" : m->f.body; (s = strstr(s, word)); s++)
		n++;
	return n;
}

/* loads, plain stores, red, atom of the body. */
static void is_shape(struct made m, const char *want, const char *what)
{
	char got[64];
	snprintf(got, sizeof(got), "ld %u st %u red %u atom %u", count(&m, "ld.volatile.global"),
		count(&m, "st.global"), count(&m, "red."), count(&m, "atom."));
	is_str(got, want, "%s", what);
	arena_free(m.arena);
}

static void test_idiom(void)
{
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64I(ADD, 1, 1), ST(DW, 6, 0, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 0 st 0 red 1 atom 0", "v++");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 0, 6, 0), ALU64I(ADD, 0, 1), ST(DW, 6, 0, 0),
			 ST(DW, 6, 8, 0), ALU64I(MOV, 0, 0), EXIT),
		"ld 0 st 1 red 0 atom 1", "x = ++v");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(W, 1, 6, 0), ALU32I(ADD, 1, -3), ST(W, 6, 0, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 0 st 0 red 1 atom 0", "32-bit v -= 3");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU32I(ADD, 1, 1), ST(DW, 6, 0, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "a 64-bit value that is cut to 32 bits is no addition");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64I(MUL, 1, 3), ST(DW, 6, 0, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "v *= 3");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64(ADD, 1, 1), ST(DW, 6, 0, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "v += v");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), ALU64I(MOV, 2, 9), LD(DW, 1, 6, 0), ALU64(SUB, 2, 1),
			 ST(DW, 6, 0, 2), ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "v = 9 - v");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), ALU64I(MOV, 2, 9), LD(DW, 1, 6, 0), ALU64(ADD, 2, 1),
			 ST(DW, 6, 0, 2), ALU64I(MOV, 0, 0), EXIT),
		"ld 0 st 0 red 1 atom 0", "v = 9 + v");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64I(ADD, 1, 1), ST(DW, 6, 8, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "stored elsewhere");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), STI(DW, 6, 0, 5), ALU64I(ADD, 1, 1),
			 ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 2 red 0 atom 0", "a store to the same place between");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), STI(W, 6, 4, 5), ALU64I(ADD, 1, 1),
			 ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 2 red 0 atom 0", "a store to half of it between");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), STI(DW, 6, 8, 5), ALU64I(ADD, 1, 1),
			 ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"ld 0 st 1 red 1 atom 0", "a store to its neighbour between");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 8, 6, 0), CALL(BPF_FUNC_get_prandom_u32),
			 ALU64I(ADD, 8, 1), ST(DW, 6, 0, 8), ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "a call between");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(W, 7, 1, 136), LD(DW, 1, 6, 0), ALU64I(ADD, 1, 1),
			 JMPI(JEQ, 7, 4, 1), ALU64I(ADD, 1, 2), ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0),
			 EXIT),
		"ld 0 st 0 red 1 atom 0", "a branch that adds more");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(W, 7, 1, 136), LD(DW, 1, 6, 0), JMPI(JEQ, 7, 4, 2),
			 ALU64I(ADD, 1, 1), ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"ld 0 st 0 red 1 atom 0",
		"a branch around the store, after which nobody reads the value");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(W, 7, 1, 136), LD(DW, 0, 6, 0), JMPI(JEQ, 7, 4, 2),
			 ALU64I(ADD, 0, 1), ST(DW, 6, 0, 0), ST(DW, 6, 8, 0), ALU64I(MOV, 0, 0),
			 EXIT),
		"ld 1 st 2 red 0 atom 0",
		"a branch around the store, after which the value is read");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(W, 7, 1, 136), ALU64I(MOV, 1, 5), JMPI(JEQ, 7, 4, 1),
			 LD(DW, 1, 6, 0), ALU64I(ADD, 1, 1), ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0),
			 EXIT),
		"ld 1 st 1 red 0 atom 0", "a store that another path reaches without the load");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(W, 7, 1, 136), LD(DW, 1, 6, 0), ALU64I(MOV, 2, 0),
			 JMPI(JEQ, 7, 4, 1), ALU64(MOV, 2, 1), ALU64I(ADD, 1, 1), ST(DW, 6, 0, 1),
			 ST(DW, 6, 8, 2), ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 2 red 0 atom 0", "a copy made on one path only and read later");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(W, 7, 1, 136), LD(DW, 1, 6, 0), ALU64I(MOV, 2, 0),
			 JMPI(JEQ, 7, 4, 1), ALU64(MOV, 2, 1), ALU64(ADD, 1, 2), ST(DW, 6, 0, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "a copy made on one path only and added");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), JMPI(JGT, 1, 100, 2), ALU64I(ADD, 1, 1),
			 ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 0", "a comparison with the value");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), ALU64I(MOV, 3, 3), LD(DW, 1, 6, 0), ALU64I(ADD, 1, 1),
			 ALU64I(SUB, 3, 1), JMPI(JNE, 3, 0, -3), ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0),
			 EXIT),
		"ld 1 st 1 red 0 atom 0", "a loop between");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), VALUE(7, 0, 8), LD(DW, 1, 6, 0), ALU64I(ADD, 1, 1),
			 ST(DW, 7, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"ld 0 st 0 red 1 atom 0", "one place by two registers");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(H, 1, 6, 0), ALU64I(ADD, 1, 1), ST(H, 6, 0, 1),
			 ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 0 red 0 atom 1", "16 bits: compare and swap of the word they are in");
	is_shape(MAKE(MEM, VALUE(6, 0, 8), LD(B, 0, 6, 3), ALU64I(ADD, 0, 1), ST(B, 6, 3, 0),
			 ST(DW, 6, 8, 0), ALU64I(MOV, 0, 0), EXIT),
		"ld 1 st 1 red 0 atom 1", "8 bits, whose new value is used");
}

static void test_stack(void)
{
	struct made m = MAKE(MEM, LD(W, 6, 1, 0), STI(DW, 10, -16, 0), ST(W, 10, -16, 6),
		ST(W, 10, -12, 6), STI(W, 10, -8, 7), MAP(1, 2), ALU64(MOV, 2, 10),
		ALU64I(ADD, 2, -16), CALL(BPF_FUNC_map_lookup_elem), ALU64I(MOV, 0, 0), EXIT);
	is_int(m.err ? 1 : m.f.local_bytes, 0,
		"a key built from words and a double word stays in registers");
	is_int(count(&m, "%egpu_r10"), 0, "and its address is not made");
	is_int(m.f.n_funcs, 0, "the look-up stands inline");
	is_int(count(&m, "$egpu_h0_probe:"), 1, "with labels of its own");
	arena_free(m.arena);
	m = MAKE(MEM, STI(DW, 10, -16, 0), STI(DW, 10, -8, 0), LOOK_UP, LOOK_UP, LOOK_UP, LOOK_UP, LOOK_UP,
		ALU64I(MOV, 0, 0), EXIT);
	is_int(m.err ? 0 : m.f.n_funcs, 1, "five share a function");
	is_str(m.f.n_funcs ? m.f.funcs[0].name : "", "__egpu_hash_lookup_k12_v8", "named by sizes");
	arena_free(m.arena);
	m = MAKE(MEM, LD(W, 6, 1, 4), ALU64I(AND, 6, 7), STI(DW, 10, -8, 1), STI(DW, 10, -16, 2),
		ALU64(MOV, 2, 10), ALU64I(ADD, 2, -8), ALU64(ADD, 2, 6), LD(B, 3, 2, 0),
		LD(DW, 4, 10, -16), VALUE(5, 0, 0), ST(B, 5, 0, 3), ST(DW, 5, 8, 4),
		ALU64I(MOV, 0, 0), EXIT);
	is_int(m.err ? 1 : m.f.local_bytes, 8, "a varying offset takes what it may reach to local memory");
	is_int(count(&m, "ld.local.u8"), 1, "and reads it there");
	arena_free(m.arena);
	m = MAKE(MEM, STI(DW, 10, -8, 0x01020304), LD(W, 1, 10, -4), LD(H, 2, 10, -8),
		VALUE(5, 0, 0), ST(W, 5, 0, 1), ST(H, 5, 4, 2), ALU64I(MOV, 0, 0), EXIT);
	is_int(m.err ? 1 : m.f.local_bytes, 0, "parts of a stored word stay in registers");
	arena_free(m.arena);
	m = MAKE(MEM, STI(B, 10, -8, 1), STI(B, 10, -7, 1), STI(B, 10, -6, 1), STI(B, 10, -5, 1),
		STI(B, 10, -4, 1), STI(B, 10, -3, 1), STI(B, 10, -2, 1), STI(B, 10, -1, 1),
		LD(DW, 1, 10, -8), VALUE(5, 0, 0), ST(DW, 5, 0, 1), STI(DW, 10, -16, 3),
		LD(DW, 2, 10, -16), ST(DW, 5, 8, 2), ALU64I(MOV, 0, 0), EXIT);
	is_int(m.err ? 1 : m.f.local_bytes, 8,
		"a word of eight single bytes is cheaper in memory, its neighbour is not");
	is_int(count(&m, ".local.u"), 9, "all accesses to it go there");
	arena_free(m.arena);
}

static void test_inputs(void)
{
	struct made m = MAKE(MEM, LD(B, 2, 1, 129), LD(H, 3, 1, 6), LD(W, 4, 1, 100),
		VALUE(5, 0, 0), ST(B, 5, 0, 2), ST(H, 5, 2, 3), EXIT);
	ok(m.err, "a result that is not set is refused by the verifier");
	arena_free(m.arena);
	m = MAKE(MEM, LD(B, 2, 1, 129), LD(H, 3, 1, 6), LD(W, 4, 1, 100), VALUE(5, 0, 0),
		ST(B, 5, 0, 2), ST(H, 5, 2, 3), ALU64I(MOV, 0, 0), EXIT);
	is_int(m.err ? 0 : m.f.fields, 1ull << EBPF_FIELD_ADDRESS | 1ull << EBPF_FIELD_LANE,
		"only what is read and used is an input");
	arena_free(m.arena);
	m = MAKE(ENTRY, LD(W, 2, 1, 128), LD(B, 3, 1, 128 + 8 * 5 + 3), LD(DW, 4, 1, 128),
		VALUE(5, 0, 0), ST(W, 5, 0, 2), ST(B, 5, 4, 3), ST(DW, 5, 8, 4), ALU64I(MOV, 0, 0),
		EXIT);
	is_int(m.err ? 0 : m.f.n_params, 2, "two parameters");
	ok(m.f.n_params == 2 && m.f.params[0].index == 0 && m.f.params[0].bytes == 8 &&
			m.f.params[1].index == 5 && m.f.params[1].bytes == 4,
		"with the widest read of each");
	arena_free(m.arena);
	m = MAKE(MEM, VALUE(1, 1, 4), LD(W, 2, 1, 0),
		{ .code = BPF_LDX | 0x80 | BPF_B, .dst_reg = 3, .src_reg = 1, .off = 11 },
		VALUE(5, 0, 0), ST(W, 5, 0, 2), ST(DW, 5, 8, 3), ALU64I(MOV, 0, 0), EXIT);
	is_int(count(&m, "4294967294"), 1, "a constant of .rodata is an immediate");
	is_int(count(&m, "-128"), 1, "so is one that is sign-extended");
	is_int(m.err ? 0 : m.f.maps, 1, "and its map is not used");
	arena_free(m.arena);
	m = MAKE(MEM, ALU64I(MOV, 6, 1), JMPI(JEQ, 6, 1, 4), STI(DW, 10, -16, 0), MAP(1, 2),
		CALL(BPF_FUNC_map_lookup_elem), ALU64I(MOV, 0, 0), EXIT);
	ok(!m.err && m.f.n_funcs == 0 && m.f.maps == 0,
		"what no path reaches leaves nothing behind");
	arena_free(m.arena);
}

/* Programs the verifier may refuse: every instruction reached, no facts. */
static void is_refused(const struct bpf_insn *insns, uint32_t n, const char *want)
{
	struct arena *arena = arena_new();
	struct ebpf_fact *facts = arena_array(arena, n, sizeof(*facts));
	struct ebpf_program p = { .name = "p",
		.insns = (struct bpf_insn *)insns,
		.n_insns = n,
		.context = EBPF_CONTEXT_MEM,
		.maps = maps,
		.n_maps = 4 };
	struct verifier_result v = { .facts = facts };
	struct ebpf_fragment f;
	struct diag d = { 0 };
	for (uint32_t k = 0; k < n; k++)
		facts[k] = (struct ebpf_fact){ .reached = true, .map = -1 };
	int err = translate_program(arena, &p, &v, EBPF_POINT_LOAD, false, &f, &d);
	ok(err == -EOPNOTSUPP && strstr(d.text, want), "refused: %s", d.text);
	arena_free(arena);
}

#define REFUSED(want, ...)                                                                         \
	do {                                                                                       \
		const struct bpf_insn insns[] = { __VA_ARGS__ };                                   \
		is_refused(insns, sizeof(insns) / sizeof(insns[0]), want);                         \
	} while (0)

static void test_refusals(void)
{
	REFUSED("insn 0: (8d) callx r1", { .code = BPF_JMP | BPF_CALL | BPF_X, .dst_reg = 1 },
		EXIT);
	REFUSED("this helper does not exist", CALL(9999), EXIT);
	REFUSED("which map is used differs", CALL(BPF_FUNC_map_lookup_elem), EXIT);
	REFUSED("kernel functions", { .code = BPF_JMP | BPF_CALL, .src_reg = 2, .imm = 1 }, EXIT);
	REFUSED("memory of an unknown kind", ST(DW, 1, 0, 0), EXIT);
	REFUSED("unknown atomic",
		{ .code = BPF_STX | BPF_ATOMIC | BPF_DW, .dst_reg = 1, .imm = 0x99 }, EXIT);
	REFUSED("unknown atomic",
		{ .code = BPF_STX | BPF_ATOMIC | BPF_B, .dst_reg = 1, .imm = BPF_ADD }, EXIT);
	REFUSED("packet loads", { .code = BPF_LD | BPF_ABS | BPF_W }, EXIT);
	REFUSED("unknown jump", { .code = BPF_JMP | 0xe0, .off = 0 }, EXIT);
	REFUSED("only maps and numbers", { .code = BPF_LD | BPF_IMM | BPF_DW, .src_reg = 3 }, { 0 },
		ST(DW, 0, 0, 0), EXIT);
	REFUSED("two functions share", CALLF(1), JA(1), ALU64I(MOV, 0, 0), EXIT);
	REFUSED("nest too deeply", CALLF(-1), EXIT);
}

/* ptxas 13.0 drops such a negation when it knows the operand to be 0x7fffffff (negate in lower.c). */
static void test_negation(void)
{
	struct made m = MAKE(MEM, LD(W, 2, 1, 4), ALU32I(MOV, 3, 0x7fffffff), JMPI(JEQ, 2, 3, 1),
		ALU32I(NEG, 3, 0), VALUE(5, 0, 0), ST(W, 5, 0, 3), ALU64I(MOV, 0, 0), EXIT);
	is_int(m.err ? -1 : (int)count(&m, "neg.s32"), 0, "32 bits are not negated by neg");
	is_int(count(&m, "not.b32"), 1, "but by complement");
	arena_free(m.arena);
}

/* Whether there is a body for many runs, with `want` in it, where no lane is elected. */
static void repeats(struct made m, const char *want, uint32_t words, const char *what)
{
	is_int(m.err ? 0 : m.f.words, words, "%u words: %s", words, what);
	ok(!m.err && (m.f.repeat && want ? strstr(m.f.repeat, want) && !strstr(m.f.repeat, "activemask") : !want && !m.f.repeat), "%s", what);
	arena_free(m.arena);
}

static void test_repeat(void)
{
	repeats(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64I(ADD, 1, 3), ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		", %egpu_passes, 3;", 1, "v += 3 is 3 times the runs");
	repeats(MAKE(MEM, VALUE(6, 0, 8), LD(W, 1, 6, 0), ALU32I(ADD, 1, 1), ST(W, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"cvt.u32.u64", 1, "so is a sum of 32 bits");
	repeats(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64I(ADD, 1, 3), ST(DW, 6, 0, 1), LD(DW, 1, 6, 8), ALU64I(ADD, 1, 4), ST(DW, 6, 8, 1),
			ALU64I(MOV, 0, 0), EXIT),
		"%egpu_word", 2, "two words of a value are for two lanes");
	repeats(MAKE(MEM, LD(W, 2, 1, 4), VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64(ADD, 1, 2), ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT),
		"mul.lo.u64", 1, "and one of what the thread has");
	repeats(MAKE(MEM, LD(DW, 2, 1, 128), VALUE(6, 0, 8), LD(DW, 1, 6, 0), ALU64(ADD, 1, 2), ST(DW, 6, 0, 1), ALU64I(MOV, 0, 0), EXIT), NULL, 0,
		"not of an address, which is another each time");
	repeats(MAKE(MEM, VALUE(6, 0, 8), LD(DW, 1, 6, 0), ST(DW, 6, 8, 1), ALU64I(MOV, 0, 0), EXIT), NULL, 0, "not what reads a value");
}

int main(void)
{
	test_negation();
	test_repeat();
	test_idiom();
	test_stack();
	test_inputs();
	test_refusals();
	return tap_done();
}
