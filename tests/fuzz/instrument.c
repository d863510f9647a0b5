/* instrument.c - fuzz target: any PTX that parses is instrumented or refused with a sentence, and
 * the variant parses again. */
#include <stdlib.h>
#include <string.h>

#include "instrument/instrument.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FIELDS(f) (UINT64_C(1) << EBPF_FIELD_##f)

static const char body[] = "{ .reg .b64 %egpu_r1; mov.b64 %egpu_r1, 1; }";

/* What has a variant has one in chosen warps too: where a function gets two versions, the proof finds both good. */
static void try_sampled(struct arena *a, struct instrument_request req)
{
	struct ebpf_fragment sampled[8];
	const struct ebpf_fragment *list[8];
	struct instrument_result result;
	struct diag d = { 0 };

	for (uint32_t i = 0; i < req.n_fragments; i++) {
		sampled[i] = *req.fragments[i];
		sampled[i].sampled = true;
		list[i] = &sampled[i];
	}
	req.fragments = list;
	if (instrument_kernel(a, &req, &result, &d) && strstr(d.text, "internal check"))
		abort();
}

static void try_kernel(const struct ptx_module *m, const char *kernel)
{
	static const struct ebpf_fragment thread = { .name = "t",
		.point = EBPF_POINT_MEM,
		.fields = ~UINT64_C(0) >> (64 - EBPF_FIELD_COUNT),
		.body = body };
	static const struct ebpf_fragment warp = {
		.name = "w", .point = EBPF_POINT_EXIT, .warp = true, .fields = 1, .body = body
	};
	static const struct ebpf_fragment points[] = {
		{ .name = "b",
			.point = EBPF_POINT_BLOCK,
			.fields = ~UINT64_C(0) >> (64 - EBPF_FIELD_COUNT),
			.body = body },
		{ .name = "r",
			.point = EBPF_POINT_BRANCH,
			.fields = FIELDS(TAKEN) | FIELDS(TARGET),
			.body = body },
		{ .name = "a",
			.point = EBPF_POINT_BARRIER,
			.fields = FIELDS(BARRIER_ID) | FIELDS(BARRIER_THREADS),
			.body = body },
		{ .name = "c", .point = EBPF_POINT_CALL, .fields = FIELDS(CALLEE), .body = body },
		{ .name = "i",
			.point = EBPF_POINT_INSN,
			.fields = FIELDS(OPERANDS) | FIELDS(VALUE0) | FIELDS(VALUE3),
			.body = body },
		{ .name = "d",
			.point = EBPF_POINT_LOAD_DONE,
			.warp = true,
			.body = body,
			.fields = FIELDS(ADDRESS) | FIELDS(VALUE0) | FIELDS(CYCLES) |
				  FIELDS(SECTORS) },
	};
	const struct ebpf_fragment *list[] = { &thread, &warp, &points[0], &points[1], &points[2],
		&points[3], &points[4], &points[5] };
	const char *unbound[] = { "$s" };
	struct instrument_request req = { .module = m,
		.kernel = kernel,
		.fragments = list,
		.n_fragments = sizeof(list) / sizeof(list[0]),
		.unbound = unbound,
		.n_unbound = 1 };
	struct instrument_result result;
	struct diag d = { 0 };
	struct ptx_module *again = NULL;
	struct arena *a = arena_new();
	int r = instrument_kernel(a, &req, &result, &d);

	if (r && !d.text[0])
		abort();
	if (!r && ptx_parse(result.ptx, result.ptx_bytes, &again, &d))
		abort();
	ptx_module_free(again);
	if (!r)
		try_sampled(a, req);
	arena_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ptx_module *m;
	uint32_t tried = 0;

	if (ptx_parse((const char *)data, size, &m, NULL))
		return 0;
	for (uint32_t i = 0; i < m->n_items && tried < 4; i++) {
		const struct ptx_func *f = m->items[i].func;
		if (f && f->is_entry && ++tried)
			try_kernel(m, f->name);
	}
	ptx_module_free(m);
	return 0;
}
