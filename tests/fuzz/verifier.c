/* verifier.c - fuzz target: no bytes crash the verifier, and what it accepts does nothing wrong.
 *
 * The translator takes it too, at each point of its context, and what it makes reads back as a fragment.
 *
 * Input: byte 0 picks the context and log level, the rest are instructions. Accepted programs run in the checked interpreter.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/interp.h"
#include "translate/translate.h"
#include "verifier/verifier.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INSNS = 4096, BUFFER = 64 };

static uint64_t values[3][16], record[512];

static void *lookup(void *self, uint32_t map, const void *key)
{
	uint32_t index;
	memcpy(&index, key, 4);
	return map == 0 && index >= 2 ? NULL : map == 1 && index & 1 ? NULL : values[map];
}

static int64_t update(void *self, uint32_t map, const void *key, const void *value, uint64_t flags)
{
	return 0;
}

static void *direct(void *self, uint32_t map)
{
	return values[map];
}

static void *reserve(void *self, uint32_t map, uint64_t bytes)
{
	return bytes <= sizeof(record) ? record : NULL;
}

static const struct ebpf_map maps[] = {
	{ .name = "array", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 48, .max_entries = 2 },
	{ .name = "hash", .type = BPF_MAP_TYPE_HASH, .key_size = 8, .value_size = 16, .max_entries = 16, .id = 1 },
	{ .name = "data", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 64, .max_entries = 1, .id = 2 },
	{ .name = "ring", .type = BPF_MAP_TYPE_RINGBUF, .max_entries = 4096, .id = 3 },
};
static const struct interp_ops ops = { .lookup = lookup, .update = update, .value = direct, .ring_reserve = reserve };

static void translate(struct arena *arena, const struct ebpf_program *p, const struct verifier_result *v)
{
	for (int i = 0; i < 2 * (EBPF_POINT_LOAD_DONE + 1); i++) {
		enum ebpf_point point = (enum ebpf_point)(i / 2);
		struct ebpf_fragment f, again;
		struct diag d = { 0 };
		struct buf text = { 0 };
		if (p->context == EBPF_CONTEXT_NONE || ebpf_point_context(point, i % 2) != p->context)
			continue;
		int err = translate_program(arena, p, v, point, i % 2, &f, &d);
		if (err && !d.text[0])
			abort();
		if (!err) {
			if (point == EBPF_POINT_INSN)
				f.opcode = "add";
			ebpf_fragment_print(&f, &text);
			if (ebpf_fragment_parse(arena, text.data, text.len, &again, NULL))
				abort();
		}
		buf_free(&text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t memory[128] = { 0 };
	if (size < 9)
		return 0;
	size_t n = (size - 1) / 8 < MAX_INSNS ? (size - 1) / 8 : MAX_INSNS;
	struct bpf_insn *insns = malloc(n * sizeof(*insns));
	if (!insns)
		return 0;
	memcpy(insns, data + 1, n * sizeof(*insns));
	struct ebpf_program p = { .name = "fuzz", .insns = insns, .n_insns = (uint32_t)n, .context = (enum ebpf_context)(data[0] % EBPF_CONTEXT_COUNT),
		.memory_bytes = data[0] % EBPF_CONTEXT_COUNT == EBPF_CONTEXT_NONE ? BUFFER : 0, .maps = maps, .n_maps = 4 };
	struct verifier_options opts = { .max_states_insns = 100000, .log_level = data[0] >> 6 };
	struct arena *arena = arena_new();
	struct verifier_result v;
	struct buf log = { 0 };
	struct diag d = { 0 };
	if (arena && !verifier_check(arena, &p, &opts, &v, &log, &d)) {
		struct interp run = { .program = &p, .memory = memory, .ops = &ops, .max_insns = v.max_run_insns, .check = true };
		struct interp_result r;
		if (interp_run(&run, &r))
			abort();
		translate(arena, &p, &v);
	}
	buf_free(&log);
	arena_free(arena);
	free(insns);
	return 0;
}
