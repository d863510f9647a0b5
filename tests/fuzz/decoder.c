/* decoder.c - fuzz target: any bytes as instructions print as text and run checked, without a verifier before them.
 *
 * Input: byte 0 picks the context, the rest are instructions.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/insns.h"
#include "cpu/interp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INSNS = 4096, MAX_RUN = 20000, BUFFER = 64 };

static uint64_t values[2][8];

static void *lookup(void *self, uint32_t map, const void *key)
{
	uint32_t index;
	memcpy(&index, key, 4);
	return index < 2 ? values[index] : NULL;
}

static const struct ebpf_map maps[] = {
	{ .name = "array", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 64, .max_entries = 2 },
};
static const struct interp_ops ops = { .lookup = lookup };

/* A printed program has a line for each instruction, or the pair of a wide one, and no other bytes than text. */
static void print(const struct ebpf_program *p)
{
	struct buf text = { 0 };
	ebpf_program_print(p, &text);
	for (size_t i = 0; i < text.len; i++)
		if ((unsigned char)text.data[i] < ' ' && text.data[i] != '\n')
			abort();
	if (!text.len)
		abort();
	buf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t memory[128] = { 0 };
	if (size < 9)
		return 0;
	size_t n = (size - 1) / 8 < MAX_INSNS ? (size - 1) / 8 : MAX_INSNS;
	enum ebpf_context context = (enum ebpf_context)(data[0] % EBPF_CONTEXT_COUNT);
	/* Exactly as long as the program, so that a sanitizer sees a read past its end. */
	struct bpf_insn *insns = malloc(n * sizeof(*insns));
	if (!insns)
		return 0;
	memcpy(insns, data + 1, n * sizeof(*insns));
	struct ebpf_program p = { .name = "fuzz",
		.insns = insns,
		.n_insns = (uint32_t)n,
		.context = context,
		.memory_bytes = context == EBPF_CONTEXT_NONE ? BUFFER : 0,
		.maps = maps,
		.n_maps = 1 };
	struct interp run = { .program = &p, .memory = memory, .ops = &ops, .max_insns = MAX_RUN, .check = true,
		.any_alignment = data[0] & 128 };
	struct interp_result r;
	print(&p);
	if (interp_run(&run, &r) == -EFAULT && !r.violation)
		abort();
	free(insns);
	return 0;
}
