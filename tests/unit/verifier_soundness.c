/* What the verifier accepts does nothing wrong, shown on random programs that like edges.
 *
 * Each accepted program runs in the checked interpreter on random inputs: no access outside its region, no read of what was not
 * written, no run longer than promised, every fact handed to the translator true. It then runs once more with all memory
 * at other addresses: results must be the same, or an address has leaked into them.
 *
 *	unit_verifier_soundness [SEED [ACCEPTED]]     defaults: 1, 100000 (20000 in a sanitizer build)
 */
#include "bpf/insns.h"
#include "cpu/state.h"
#include "verifier/verifier.h"
#include "tap.h"

#include <errno.h>

enum { MAX_CODE = 400, MEMORY = 64, ENTRIES = 4 };

static uint64_t seed;

static uint32_t draw(uint32_t n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)((seed >> 16) % n);
}

static bool chance(uint32_t percent)
{
	return draw(100) < percent;
}

/* Maps of the programs. Values lie at 8-byte multiples, with bytes between them that belong to nobody. */
static const struct ebpf_map maps[] = {
	{ .name = "array", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 48, .max_entries = ENTRIES },
	{ .name = "hash", .type = BPF_MAP_TYPE_HASH, .key_size = 8, .value_size = 20, .max_entries = ENTRIES, .id = 1 },
	{ .name = "data", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 64, .max_entries = 1, .id = 2 },
	{ .name = "ring", .type = BPF_MAP_TYPE_RINGBUF, .max_entries = 4096, .id = 3 },
};
enum { ARRAY, HASH, DATA, RING, N_MAPS };

/* One world to run in: all memory that a program can reach but its stack. */
struct world {
	uint64_t values[3][ENTRIES][10];
	uint64_t records[4][4];
	uint64_t memory[128];
	uint64_t log; /* what helpers were given, hashed */
	uint32_t state, n_records;
	uint64_t frame0;
	const struct ebpf_program *program;
	const struct verifier_result *facts;
	const char *wrong;
	uint32_t wrong_at;
};

static uint32_t world_draw(struct world *w)
{
	w->state = w->state * 1664525 + 1013904223;
	return w->state >> 4;
}

static void note(struct world *w, const void *data, uint64_t bytes)
{
	const uint8_t *p = data;
	for (uint64_t k = 0; k < bytes; k++)
		w->log = (w->log ^ p[k]) * 0x100000001b3u;
}

static void *do_lookup(void *self, uint32_t map, const void *key)
{
	struct world *w = self;
	uint32_t index;
	memcpy(&index, key, 4);
	note(w, key, maps[map].key_size);
	if (map != HASH)
		return index < maps[map].max_entries ? w->values[map][index] : NULL;
	return index & 4 ? w->values[map][index & 3] : NULL;
}

static int64_t do_update(void *self, uint32_t map, const void *key, const void *value, uint64_t flags)
{
	struct world *w = self;
	note(w, key, maps[map].key_size);
	note(w, value, maps[map].value_size);
	note(w, &flags, sizeof(flags));
	return (int64_t)(world_draw(w) & 1) - 1;
}

static int64_t do_delete(void *self, uint32_t map, const void *key)
{
	note(self, key, maps[map].key_size);
	return -ENOENT;
}

static void *do_value(void *self, uint32_t map)
{
	return ((struct world *)self)->values[map][0];
}

static void *do_reserve(void *self, uint32_t map, uint64_t bytes)
{
	struct world *w = self;
	if (world_draw(w) & 1 || w->n_records == 4 || bytes > sizeof(w->records[0]))
		return NULL;
	return w->records[w->n_records++];
}

static void do_commit(void *self, void *record, bool discard, uint64_t flags)
{
	struct world *w = self;
	note(w, record, 8);
	note(w, &flags, sizeof(flags));
}

static int64_t do_output(void *self, uint32_t map, const void *data, uint64_t bytes, uint64_t flags)
{
	note(self, data, bytes);
	note(self, &flags, sizeof(flags));
	return 0;
}

static uint32_t do_random(void *self)
{
	struct world *w = self;
	uint32_t r = world_draw(w);
	return r & 1 ? r : r & 2 ? r % 70 : (uint32_t)-(int32_t)(r % 9);
}

static const struct interp_ops ops = { .lookup = do_lookup, .update = do_update, .delete = do_delete, .value = do_value, .ring_reserve = do_reserve,
	.ring_commit = do_commit, .ring_output = do_output, .random = do_random };

/* Facts against what happens. */

static void wrong(struct world *w, uint32_t at, const char *why)
{
	if (!w->wrong) {
		w->wrong = why;
		w->wrong_at = at;
	}
}

static bool value_base(const struct world *w, uint64_t address, int map, int64_t *offset)
{
	for (int m = map < 0 ? 0 : map; m < (map < 0 ? 3 : map + 1); m++)
		for (int k = 0; k < ENTRIES; k++) {
			*offset = (int64_t)(address - (uint64_t)(uintptr_t)w->values[m][k]);
			if (*offset >= 0 && *offset < 80)
				return true;
		}
	return false;
}

static void check_place(struct world *w, uint32_t at, uint64_t address, uint8_t region, bool fixed, int32_t want, uint8_t frame, int map)
{
	int64_t offset = 0;
	bool there = true;
	if (region == EBPF_REGION_CONTEXT || region == EBPF_REGION_MEMORY) {
		offset = (int64_t)(address - (uint64_t)(uintptr_t)w->memory);
		there = offset >= 0 && offset < (int64_t)sizeof(w->memory);
	} else if (region == EBPF_REGION_MAP_VALUE) {
		there = value_base(w, address, map, &offset);
	} else if (region == EBPF_REGION_STACK) {
		uint64_t down = w->frame0 - EBPF_STACK_BYTES; /* start of frame 0; frames lie one struct apart */
		uint64_t depth = (address - down) / sizeof(struct interp_frame);
		offset = (int64_t)(address - (w->frame0 + depth * sizeof(struct interp_frame)));
		there = depth < INTERP_FRAMES && offset >= -EBPF_STACK_BYTES && offset < 0 && (frame == 255 || frame == depth);
	} else if (region == EBPF_REGION_RECORD) {
		offset = (int64_t)(address - (uint64_t)(uintptr_t)w->records) % (int64_t)sizeof(w->records[0]);
		there = address - (uint64_t)(uintptr_t)w->records < sizeof(w->records);
	} else {
		there = false;
	}
	if (!there)
		wrong(w, at, "a fact names another region");
	else if (fixed && offset != want)
		wrong(w, at, "a fact names another offset");
}

static void check_args(struct world *w, uint32_t at, const struct ebpf_fact *f, const uint64_t r[11])
{
	for (int k = 0; k < 5; k++) {
		if (f->args[k].region)
			check_place(w, at, r[k + 1], f->args[k].region, f->args[k].fixed, f->args[k].offset, f->args[k].frame, -1);
		if (f->args[k].region && r[k + 1] % f->args[k].align)
			wrong(w, at, "a fact names another alignment");
		if (f->args[k].constant && r[k + 1] != f->args[k].value)
			wrong(w, at, "a fact names another constant");
		if (f->args[k].max && !f->args[k].region && r[k + 1] > f->args[k].max)
			wrong(w, at, "a fact names a lower maximum");
	}
	const struct ebpf_helper *h = ebpf_helper_by_number((uint32_t)w->program->insns[at].imm);
	if (h && h->args[0] == EBPF_ARG_MAP && f->map >= 0 && r[1] != (uint64_t)(uintptr_t)&maps[f->map])
		wrong(w, at, "a fact names another map");
}

static void on_step(void *self, uint32_t at, const uint64_t r[11])
{
	struct world *w = self;
	const struct bpf_insn *i = &w->program->insns[at];
	const struct ebpf_fact *f = &w->facts->facts[at];
	uint8_t class = BPF_CLASS(i->code);
	if (!w->frame0)
		w->frame0 = r[10];
	if (!f->reached)
		wrong(w, at, "this instruction was said not to be reached");
	if (class == BPF_LDX || class == BPF_ST || class == BPF_STX)
		check_place(w, at, r[class == BPF_LDX ? i->src_reg : i->dst_reg] + (uint64_t)(int64_t)i->off, f->region, f->fixed, f->offset, f->frame, f->map);
	else if (i->code == (BPF_JMP | BPF_CALL) && !i->src_reg)
		check_args(w, at, f, r);
}

/* Programs. r6: a pointer or a number, r7 to r9: numbers; r0 to r5 scratch. */

static struct bpf_insn code[MAX_CODE];
static uint32_t n_code;

static void emit(uint8_t op, uint8_t dst, uint8_t src, int16_t off, int32_t imm)
{
	if (n_code < MAX_CODE)
		code[n_code++] = (struct bpf_insn){ .code = op, .dst_reg = dst, .src_reg = src, .off = off, .imm = imm };
}

static int32_t edge(void)
{
	static const int32_t base[] = { 0, 1, 2, 4, 7, 8, 15, 16, 31, 32, 40, 47, 48, 56, 63, 64, 127, 128, 255, 256, 0x7fff, 0xffff, 0x7fffffff, -0x7fffffff - 1 };
	int32_t v = base[draw(sizeof(base) / sizeof(base[0]))];
	uint32_t r = draw(8);
	v = r == 0 ? (int32_t)((uint32_t)v + 1) : r == 1 ? (int32_t)((uint32_t)v - 1) : v;
	return draw(8) ? v : (int32_t)(0u - (uint32_t)v);
}

static uint8_t number(void)
{
	return (uint8_t)(7 + draw(3));
}

static const uint8_t sizes[4] = { BPF_B, BPF_H, BPF_W, BPF_DW };

static void emit_call(int32_t helper)
{
	emit(BPF_JMP | BPF_CALL, 0, 0, 0, helper);
}

static void emit_map(uint8_t dst, int32_t map, bool value, int32_t off)
{
	emit(BPF_LD | BPF_IMM | BPF_DW, dst, value ? BPF_PSEUDO_MAP_VALUE : BPF_PSEUDO_MAP_FD, 0, map);
	emit(0, 0, 0, 0, value ? off : 0);
}

static void gen_alu(void)
{
	static const uint8_t op[] = { BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV, BPF_OR, BPF_AND, BPF_AND, BPF_LSH, BPF_RSH, BPF_RSH, BPF_NEG, BPF_MOD, BPF_XOR, BPF_MOV, BPF_ARSH,
		BPF_END };
	uint8_t o = op[draw(sizeof(op))], class = chance(60) ? BPF_ALU64 : BPF_ALU;
	int32_t k = edge();
	if (o == BPF_NEG) {
		emit(class | o, number(), 0, 0, 0);
	} else if (o == BPF_END) {
		emit(BPF_ALU | o | (chance(50) ? BPF_TO_BE : 0), number(), 0, 0, 16 << draw(3));
	} else if (chance(40)) {
		int16_t off = o == BPF_MOV && chance(30) ? (int16_t)(8 << draw(2)) : (o == BPF_DIV || o == BPF_MOD) && chance(50) ? 1 : 0;
		emit(class | o | BPF_X, number(), number(), off, 0);
	} else {
		if (o == BPF_LSH || o == BPF_RSH || o == BPF_ARSH)
			k = (int32_t)draw(class == BPF_ALU64 ? 64 : 32);
		if ((o == BPF_DIV || o == BPF_MOD) && !k)
			k = 3;
		emit(class | o | BPF_K, number(), 0, 0, k);
	}
}

/* Bounds a number the way compilers do: a mask, or a branch to the end over the rest. Returns the branch to patch, or 0. */
static uint32_t gen_bound(uint8_t reg, int32_t limit)
{
	static const uint8_t op[] = { BPF_JGT, BPF_JGE, BPF_JSGT, BPF_JLT, BPF_JSLT, BPF_JNE, BPF_JSET };
	if (chance(40)) {
		emit((chance(50) ? BPF_ALU64 : BPF_ALU) | BPF_AND | BPF_K, reg, 0, 0, chance(95) ? limit - 1 : edge());
		return 0;
	}
	if (chance(20) && limit > 1) {
		emit(BPF_ALU64 | BPF_RSH | BPF_K, reg, 0, 0, 64 - (31 - __builtin_clz((uint32_t)limit)));
		return 0;
	}
	bool narrow = chance(30);
	uint8_t how = op[draw(chance(85) ? 2 : sizeof(op))];
	if (narrow && chance(80))
		emit(BPF_ALU | BPF_MOV | BPF_X, reg, reg, 0, 0);
	emit((narrow ? BPF_JMP32 : BPF_JMP) | how | BPF_K, reg, 0, 0, chance(90) ? limit - (how == BPF_JGT) : chance(50) ? limit - (int32_t)draw(9) : edge());
	return n_code - 1;
}

/* A load, store or atomic at r1, of which `bytes` may be touched; r1 is a multiple of `align`. */
static void gen_touch(int32_t bytes, int32_t align)
{
	uint8_t size = sizes[draw(4)];
	while (chance(95) && ((int32_t)ebpf_insn_bytes(size) > align || (int32_t)ebpf_insn_bytes(size) > bytes) && align && bytes)
		size = sizes[draw(4)];
	int32_t step = (int32_t)ebpf_insn_bytes(size), room = bytes > step ? bytes / step : 1;
	int16_t off = (int16_t)(chance(95) ? (int32_t)draw((uint32_t)room) * step : edge());
	bool wide = step >= 4;
	switch (draw(wide ? 5 : 4)) {
	case 0:
	case 1:
		emit(BPF_LDX | (size != BPF_DW && chance(20) ? EBPF_MEMSX : BPF_MEM) | size, number(), 1, off, 0);
		break;
	case 2:
		emit(BPF_ST | BPF_MEM | size, 1, 0, off, edge());
		break;
	case 3:
		emit(BPF_STX | BPF_MEM | size, 1, chance(98) ? number() : 6, off, 0);
		break;
	default: {
		static const int32_t op[] = { BPF_ADD, BPF_ADD | BPF_FETCH, BPF_AND, BPF_OR | BPF_FETCH, BPF_XOR, BPF_XCHG, BPF_CMPXCHG };
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 0, number(), 0, 0);
		emit(BPF_STX | BPF_ATOMIC | size, 1, number(), off, op[draw(7)]);
	}
	}
}

static void patch_here(uint32_t branch)
{
	if (branch && branch < n_code)
		code[branch].off = (int16_t)(n_code - branch - 1);
}

/* r1 = some memory, perhaps moved by a number; then it is touched. */
static void gen_access(void)
{
	uint32_t bound = 0, kind = draw(4);
	int32_t bytes = kind == 0 ? 64 : kind == 1 ? 8 * (1 + (int32_t)draw(6)) : chance(70) ? 16 : 48, first = 0;
	int32_t shift = (int32_t)draw(4), align = 8;
	uint8_t index = 0;
	if (chance(60)) {
		index = number();
		if (chance(60)) {
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 5, index, 0, 0);
			index = 5;
		}
		bound = gen_bound(index, bytes >> shift ? bytes >> shift : 1);
		if (shift && chance(70))
			emit(BPF_ALU64 | BPF_LSH | BPF_K, index, 0, 0, shift);
		else if (shift)
			emit(BPF_ALU64 | BPF_MUL | BPF_K, index, 0, 0, 1 << shift);
		align = 1 << shift;
	}
	if (kind == 0) {
		first = index || chance(50) ? 0 : (int32_t)draw(8) * 8;
		emit_map(1, DATA, true, first);
	} else if (kind == 1) {
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 10, 0, 0);
		emit(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, -bytes);
	} else {
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0);
	}
	if (index)
		emit(BPF_ALU64 | (chance(95) ? BPF_ADD : BPF_SUB) | BPF_X, 1, index, 0, 0);
	gen_touch(index ? chance(90) ? align : 8 : bytes - first, align);
	patch_here(bound);
}

static void gen_key(uint8_t reg, int32_t map)
{
	int16_t at = (int16_t)(map == HASH ? -8 : -4);
	if (map == HASH || chance(30))
		emit(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, (int32_t)draw(ENTRIES + 3));
	if (chance(60))
		emit(BPF_STX | BPF_MEM | BPF_W, 10, number(), at, 0);
	else
		emit(BPF_ST | BPF_MEM | BPF_W, 10, 0, at, (int32_t)draw(ENTRIES + 1));
	emit(BPF_ALU64 | BPF_MOV | BPF_X, reg, 10, 0, 0);
	emit(BPF_ALU64 | BPF_ADD | BPF_K, reg, 0, 0, at);
}

/* r6 = a value, mostly with a check; where the check fails, a direct value takes its place. */
static void gen_lookup(void)
{
	int32_t map = chance(60) ? ARRAY : HASH;
	gen_key(2, map);
	emit_map(1, map, false, 0);
	emit_call(BPF_FUNC_map_lookup_elem);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 6, 0, 0, 0);
	if (chance(96)) {
		emit(BPF_JMP | BPF_JNE | BPF_K, chance(50) ? 0 : 6, 0, 2, 0);
		emit_map(6, DATA, true, 0);
	}
}

static void gen_helper(void)
{
	int32_t map = chance(50) ? ARRAY : HASH;
	uint32_t bound = 0;
	switch (draw(4)) {
	case 0:
		emit_call(BPF_FUNC_get_prandom_u32);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, number(), 0, 0, 0);
		break;
	case 1:
		gen_key(2, map);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 3, 6, 0, 0);
		emit(BPF_ALU64 | BPF_MOV | (chance(50) ? BPF_X : BPF_K), 4, number(), 0, 0);
		code[n_code - 1].src_reg = BPF_SRC(code[n_code - 1].code) == BPF_X ? 8 : 0;
		emit_map(1, map, false, 0);
		emit_call(chance(70) ? BPF_FUNC_map_update_elem : BPF_FUNC_map_delete_elem);
		break;
	case 2:
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 3, number(), 0, 0);
		bound = gen_bound(3, 16);
		emit(BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, 1);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 2, chance(50) ? 6 : 10, 0, 0);
		if (code[n_code - 1].src_reg == 10)
			emit(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, chance(90) ? -40 : edge());
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 4, 0, 0, 0);
		emit_map(1, RING, false, 0);
		emit_call(BPF_FUNC_ringbuf_output);
		patch_here(bound);
		break;
	default: {
		uint32_t branch;
		int32_t bytes = 8 + 8 * (int32_t)draw(3);
		emit_map(1, RING, false, 0);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, bytes);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 3, 0, 0, 0);
		emit_call(BPF_FUNC_ringbuf_reserve);
		emit(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 0, 0);
		branch = n_code - 1;
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, 0, 0, 0);
		emit(BPF_STX | BPF_MEM | BPF_DW, 1, number(), 0, 0);
		gen_touch(bytes, 8);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0);
		if (chance(98))
			emit_call(chance(50) ? BPF_FUNC_ringbuf_submit : BPF_FUNC_ringbuf_discard);
		patch_here(branch);
	}
	}
}

static void gen_stack(void)
{
	static const int16_t off[] = { -8, -16, -24, -32, -40, -48 };
	int16_t at = off[draw(6)];
	uint8_t size = sizes[draw(4)];
	int16_t sub = chance(50) ? 0 : (int16_t)(ebpf_insn_bytes(size) * draw(8 / ebpf_insn_bytes(size)));
	if (chance(12)) { /* the last one is where the pointer stays */
		emit(BPF_STX | BPF_MEM | BPF_DW, 10, 6, chance(90) ? -64 : at, 0);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 6, 0, 0, 0);
		gen_alu();
		emit(BPF_LDX | BPF_MEM | BPF_DW, 6, 10, chance(95) ? -64 : at, 0);
	}
	else if (chance(50))
		emit(BPF_LDX | BPF_MEM | size, number(), 10, (int16_t)(at + sub), 0);
	else if (chance(50))
		emit(BPF_STX | BPF_MEM | size, 10, number(), (int16_t)(at + sub), 0);
	else
		emit(BPF_ST | BPF_MEM | size, 10, 0, (int16_t)(at + sub), chance(60) ? 0 : edge());
}

static void gen_block(int depth);

static void gen_branch(int depth)
{
	static const uint8_t op[] = { BPF_JEQ, BPF_JGT, BPF_JGE, BPF_JSET, BPF_JNE, BPF_JSGT, BPF_JSGE, BPF_JLT, BPF_JLE, BPF_JSLT, BPF_JSLE };
	uint8_t class = chance(60) ? BPF_JMP : BPF_JMP32, o = op[draw(sizeof(op))];
	if (chance(30))
		emit(class | o | BPF_X, number(), number(), 0, 0);
	else
		emit(class | o | BPF_K, number(), 0, 0, edge());
	uint32_t branch = n_code - 1;
	gen_block(depth + 1);
	if (chance(50)) {
		emit(BPF_JMP | BPF_JA, 0, 0, 0, 0);
		uint32_t over = n_code - 1;
		patch_here(branch);
		gen_block(depth + 1);
		patch_here(over);
	} else {
		patch_here(branch);
	}
}

static void gen_loop(int depth)
{
	uint8_t counter = number();
	bool kept = chance(50);
	emit(BPF_ALU64 | BPF_MOV | BPF_K, counter, 0, 0, 0);
	uint32_t head = n_code;
	if (kept)
		emit(BPF_STX | BPF_MEM | BPF_DW, 10, counter, -56, 0);
	gen_block(depth + 1);
	if (kept)
		emit(BPF_LDX | BPF_MEM | BPF_DW, counter, 10, -56, 0);
	emit((chance(70) ? BPF_ALU64 : BPF_ALU) | BPF_ADD | BPF_K, counter, 0, 0, 1 + (int32_t)draw(3));
	emit((chance(70) ? BPF_JMP : BPF_JMP32) | (chance(80) ? BPF_JLT : BPF_JNE) | BPF_K, counter, 0, (int16_t)((int32_t)head - (int32_t)n_code - 1), 2 + (int32_t)draw(7));
}

static void gen_block(int depth)
{
	for (uint32_t n = 1 + draw(4); n--;) {
		uint32_t kind = draw(100);
		if (kind < 30)
			gen_alu();
		else if (kind < 55)
			gen_access();
		else if (kind < 65)
			gen_stack();
		else if (kind < 72)
			gen_lookup();
		else if (kind < 80)
			gen_helper();
		else if (kind < 84)
			emit(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, -1); /* linked at the end */
		else if (depth < 3 && kind < 95)
			gen_branch(depth);
		else if (depth < 2)
			gen_loop(depth);
	}
}

/* Calls marked -1 get r1 = a pointer, r2 and r3 numbers, and a function at the end. */
static void gen_functions(void)
{
	uint32_t main_end = n_code, start[2];
	for (int f = 0; f < 2; f++) {
		start[f] = n_code;
		uint32_t bound = gen_bound(2, 32);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 7, 2, 0, 0);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 8, 3, 0, 0);
		emit(BPF_ALU64 | BPF_MOV | BPF_K, 9, 0, 0, edge());
		if (chance(40)) {
			emit(BPF_ALU64 | BPF_AND | BPF_K, 2, 0, 0, 4);
			emit(BPF_ALU64 | BPF_ADD | BPF_X, 1, 2, 0, 0);
		}
		gen_touch(8, 4);
		if (chance(50))
			gen_touch(8, 8);
		patch_here(bound);
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 0, chance(70) ? 3 : 2, 0, 0);
		emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	}
	uint32_t used = 0;
	for (uint32_t k = 0; k < main_end; k++)
		if (code[k].code == (BPF_JMP | BPF_CALL) && code[k].src_reg == BPF_PSEUDO_CALL) {
			code[k].imm = (int32_t)(start[used & 1] - k - 1);
			used++;
		}
	if (used < 2) /* no unreachable functions */
		n_code = used ? start[1] : main_end;
}

static void before_calls(void)
{
	struct bpf_insn old[MAX_CODE];
	uint32_t n = n_code, at[MAX_CODE + 1], out = 0;
	memcpy(old, code, sizeof(old));
	for (uint32_t k = 0; k < n; k++) {
		at[k] = out;
		out += old[k].code == (BPF_JMP | BPF_CALL) && old[k].src_reg == BPF_PSEUDO_CALL ? 5 : 1;
	}
	at[n] = out;
	n_code = 0;
	for (uint32_t k = 0; k < n; k++) {
		uint8_t class = BPF_CLASS(old[k].code);
		if (old[k].code == (BPF_JMP | BPF_CALL) && old[k].src_reg == BPF_PSEUDO_CALL) {
			bool stack = chance(40);
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 1, stack ? 10 : 6, 0, 0);
			emit(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, stack ? -40 : 0);
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 2, number(), 0, 0);
			emit(BPF_ALU64 | BPF_MOV | BPF_X, 3, number(), 0, 0);
		} else if ((class == BPF_JMP || class == BPF_JMP32) && BPF_OP(old[k].code) != BPF_CALL && BPF_OP(old[k].code) != BPF_EXIT) {
			uint32_t to = (uint32_t)((int32_t)k + 1 + old[k].off);
			old[k].off = to <= n && out < MAX_CODE ? (int16_t)((int32_t)at[to] - (int32_t)at[k] - 1) : 0;
		}
		if (n_code < MAX_CODE)
			code[n_code++] = old[k];
	}
}

static void generate(bool raw)
{
	n_code = 0;
	for (int16_t off = -8; off >= -64; off = (int16_t)(off - 8))
		if (chance(95))
			emit(BPF_ST | BPF_MEM | BPF_DW, 10, 0, off, edge());
	for (uint8_t r = 7; r <= 9; r++)
		emit(raw ? BPF_LDX | BPF_MEM | BPF_DW : BPF_LDX | BPF_MEM | BPF_W, r, 1, (int16_t)(8 * (r - 7)), 0);
	if (raw)
		emit(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0);
	else
		emit_map(6, DATA, true, 0);
	gen_block(0);
	gen_block(0);
	gen_block(0);
	emit(BPF_ALU64 | BPF_MOV | BPF_X, 0, number(), 0, 0);
	emit(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
	before_calls();
	gen_functions();
}

static void fill(struct world *w, uint64_t input, const struct ebpf_program *p, const struct verifier_result *v)
{
	*w = (struct world){ .program = p, .facts = v };
	w->state = (uint32_t)(input >> 3);
	uint64_t *words[] = { &w->values[0][0][0], w->memory };
	size_t counts[] = { sizeof(w->values) / 8, MEMORY / 8 };
	for (int part = 0; part < 2; part++)
		for (size_t k = 0; k < counts[part]; k++) {
			input = input * 6364136223846793005u + 1442695040888963407u;
			words[part][k] = input >> 60 & 1 ? input >> (input >> 54 & 31) >> 20 : input >> 58 & 1 ? input % 72 : input * 7;
		}
}

static bool same_worlds(const struct world *a, const struct world *b)
{
	return !memcmp(a->values, b->values, sizeof(a->values)) && !memcmp(a->records, b->records, sizeof(a->records)) &&
		!memcmp(a->memory, b->memory, sizeof(a->memory)) && a->log == b->log;
}

static const char *run_once(struct ebpf_program *p, const struct verifier_result *v, struct world *w, struct interp_result *r)
{
	struct interp run = { .program = p, .memory = w->memory, .ops = &ops, .self = w, .max_insns = v->max_run_insns, .check = true, .step = on_step };
	if (interp_run(&run, r))
		return r->violation;
	r->at = w->wrong_at;
	return w->wrong;
}

static void explain(const struct ebpf_program *p, const char *why, uint32_t at, uint64_t from)
{
	struct buf b = { 0 };
	ebpf_program_print(p, &b);
	printf("# program of seed %llu (context %d): at %u: %s\n%s", (unsigned long long)from, p->context, at, why, b.data);
	buf_free(&b);
}

static bool try_program(struct ebpf_program *p, const struct verifier_result *v, uint64_t from)
{
	static struct world a, b;
	struct interp_result ra, rb;
	for (int k = 0; k < 3; k++) {
		uint64_t input = from * 31 + (uint64_t)k * 0x9e3779b97f4a7c15u;
		fill(&a, input, p, v);
		fill(&b, input, p, v);
		const char *why = run_once(p, v, &a, &ra);
		void *elsewhere = malloc(sizeof(struct interp_state)); /* where the first run's stack was */
		if (!why)
			why = run_once(p, v, &b, &rb);
		free(elsewhere);
		if (!why && (ra.r0 != rb.r0 || ra.insns != rb.insns || !same_worlds(&a, &b)))
			why = "results depend on addresses";
		if (why) {
			explain(p, why, ra.at, from);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	uint64_t start = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	unsigned want = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : getenv("EGPU_SANITIZED") ? 20000 : 100000,
		 accepted = 0, tried = 0, failed = 0;
	unsigned subprograms = 0, loops = 0;
	struct {
		const char *tag;
		unsigned n;
	} tags[32] = { { NULL, 0 } };
	for (uint64_t k = start; accepted < want && failed < 3 && tried < want * 20; k++, tried++) {
		seed = k * 0x9e3779b97f4a7c15u | 1;
		draw(2);
		bool raw = chance(60);
		generate(raw);
		struct ebpf_program p = { .name = "random", .insns = code, .n_insns = n_code, .context = raw ? EBPF_CONTEXT_NONE : EBPF_CONTEXT_MEM,
			.memory_bytes = raw ? MEMORY : 0, .maps = maps, .n_maps = N_MAPS };
		struct verifier_options opts = { .max_states_insns = 20000 };
		struct verifier_result v;
		struct diag d = { 0 };
		struct arena *arena = arena_new();
		if (!verifier_check(arena, &p, &opts, &v, NULL, &d)) {
			accepted++;
			failed += !try_program(&p, &v, k);
			for (uint32_t i = 0; i < n_code; i++) {
				loops += BPF_CLASS(code[i].code) == BPF_JMP && code[i].off < 0;
				subprograms += code[i].code == (BPF_JMP | BPF_CALL) && code[i].src_reg;
			}
		} else {
			for (int t = 0; t < 32; t++)
				if (!tags[t].tag || !strcmp(tags[t].tag, v.tag)) {
					tags[t].tag = v.tag;
					tags[t].n++;
					break;
				}
		}
		arena_free(arena);
	}
	printf("# accepted %u of %u programs (%u calls, %u loops); refused:", accepted, tried, subprograms, loops);
	for (int t = 0; t < 32 && tags[t].tag; t++)
		printf(" %s %u", tags[t].tag, tags[t].n);
	printf("\n");
	is_int(failed, 0, "accepted programs do nothing wrong");
	is_int(accepted, want, "enough programs are accepted to say so");
	return tap_done();
}
