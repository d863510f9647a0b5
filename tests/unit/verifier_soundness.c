/* What the verifier accepts does nothing wrong, shown on random programs that like edges.
 *
 * Each accepted program runs in the checked interpreter on random inputs: no access outside its region, no read of what was not
 * written, no run longer than promised, every fact handed to the translator true. It then runs once more with all memory
 * at other addresses: results must be the same, or an address has leaked into them.
 *
 *	unit_verifier_soundness [SEED [ACCEPTED [WORKER WORKERS]]]     defaults: 1, 100000 (20000 in a sanitizer build), 0, 1
 *
 * Of several workers each takes its own of the programs that follow SEED, until it has accepted ACCEPTED.
 */
#include "bpf/insns.h"
#include "cpu/state.h"
#include "verifier/verifier.h"
#include "generate.h"
#include "tap.h"

#include <errno.h>

enum { MEMORY = GENERATE_MEMORY, ENTRIES = GENERATE_ENTRIES };
enum { HASH = GENERATE_HASH };
static const struct ebpf_map *const maps = generate_maps;

/* One world to run in: all memory that a program can reach but its stack. */
struct world {
	uint64_t values[3][ENTRIES][10];
	uint64_t records[4][4];
	uint64_t memory[128];
	uint64_t keys[ENTRIES]; /* of the hash map's elements */
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

/* The hash map holds two elements, of which the values lie apart. */
static void *do_each(void *self, uint32_t map, uint32_t index, const void **key)
{
	static const uint32_t array_keys[ENTRIES] __attribute__((aligned(8))) = { 0, 1, 2, 3 };
	struct world *w = self;
	if (map == HASH ? index >= 2 : index >= maps[map].max_entries)
		return NULL;
	*key = map == HASH ? (const void *)&w->keys[index] : &array_keys[index];
	return w->values[map][map == HASH ? 2 * index + 1 : index];
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
	.ring_commit = do_commit, .ring_output = do_output, .random = do_random, .each = do_each };

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
	} else if (region == EBPF_REGION_KEY && map == HASH) {
		offset = (int64_t)(address - (uint64_t)(uintptr_t)w->keys) % (int64_t)sizeof(w->keys[0]);
		there = address - (uint64_t)(uintptr_t)w->keys < sizeof(w->keys);
	} else {
		there = region == EBPF_REGION_KEY; /* of an array: a copy */
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
		if (f->args[k].constant && !f->args[k].region && r[k + 1] != f->args[k].value) /* of memory it is the size */
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

static void fill(struct world *w, uint64_t input, const struct ebpf_program *p, const struct verifier_result *v)
{
	*w = (struct world){ .program = p, .facts = v };
	w->state = (uint32_t)(input >> 3);
	uint64_t *words[] = { &w->values[0][0][0], w->memory, w->keys };
	size_t counts[] = { sizeof(w->values) / 8, MEMORY / 8, ENTRIES };
	for (int part = 0; part < 3; part++)
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

static struct {
	unsigned calls, loops, callbacks, divisions, partial;
} seen; /* in accepted programs */

static void count_kinds(const struct ebpf_program *p)
{
	for (uint32_t k = 0; k < p->n_insns; k++) {
		const struct bpf_insn *i = &p->insns[k];
		uint8_t class = BPF_CLASS(i->code), op = BPF_OP(i->code);
		bool alu = class == BPF_ALU || class == BPF_ALU64;
		seen.loops += class == BPF_JMP && i->off < 0;
		seen.calls += i->code == (BPF_JMP | BPF_CALL) && i->src_reg;
		seen.callbacks += i->code == (BPF_LD | BPF_IMM | BPF_DW) && i->src_reg == BPF_PSEUDO_FUNC;
		seen.divisions += alu && (op == BPF_DIV || op == BPF_MOD);
		seen.partial += (class == BPF_STX || class == BPF_ST) && i->dst_reg == 10 && ebpf_insn_bytes(i->code) < 8;
	}
}

static struct {
	const char *tag;
	unsigned n;
} refusals[40];

static void count_refusal(const char *tag)
{
	for (int t = 0; t < 40; t++)
		if (!refusals[t].tag || !strcmp(refusals[t].tag, tag)) {
			refusals[t].tag = tag;
			refusals[t].n++;
			return;
		}
}

int main(int argc, char **argv)
{
	uint64_t start = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	unsigned want = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : getenv("EGPU_SANITIZED") ? 20000 : 100000;
	unsigned worker = argc > 4 ? (unsigned)strtoul(argv[3], NULL, 0) : 0, workers = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 0) : 1;
	unsigned accepted = 0, tried = 0, failed = 0;
	if (argc == 4 || argc > 5 || !workers || worker >= workers) {
		fprintf(stderr, "usage: unit_verifier_soundness [SEED [ACCEPTED [WORKER WORKERS]]]\n");
		return 2;
	}
	for (uint64_t k = start + worker; accepted < want && failed < 3 && tried < want * 20ull; k += workers, tried++) {
		static struct generated g;
		struct verifier_options opts = { .max_states_insns = 20000 };
		struct verifier_result v;
		struct diag d = { 0 };
		struct arena *arena = arena_new();
		generate(k, &g);
		if (!verifier_check(arena, &g.program, &opts, &v, NULL, &d)) {
			accepted++;
			failed += !try_program(&g.program, &v, k);
			count_kinds(&g.program);
		} else {
			count_refusal(v.tag);
		}
		arena_free(arena);
	}
	printf("# accepted %u of %u programs (%u calls, %u loops, %u callbacks, %u divisions, %u stores of part of a slot); refused:", accepted, tried,
		seen.calls, seen.loops, seen.callbacks, seen.divisions, seen.partial);
	for (int t = 0; t < 40 && refusals[t].tag; t++)
		printf(" %s %u", refusals[t].tag, refusals[t].n);
	printf("\n");
	is_int(failed, 0, "accepted programs do nothing wrong");
	is_int(accepted, want, "enough programs are accepted to say so");
	return tap_done();
}
