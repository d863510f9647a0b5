/* guard.c - the text of a guard: the word, and behind a branch the call of the interpreter. Which loop heads get one is decided by
 * instrument/running.c. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "live/object.h"
#include "live/program.h"
#include "map/layout.h"

#define BIT(f) (UINT64_C(1) << EBPF_FIELD_##f)
#define COMMON (BIT(SITE) | BIT(KERNEL))

/* Per point: where it is, what it reads, and the arguments behind the kernel's id: address, bytes, space, op, value_bytes, v0..v3. */
static const struct {
	enum ebpf_point point;
	uint64_t fields;
	const char *args[9];
} points[LIVE_POINTS] = {
	[LIVE_ENTRY] = { EBPF_POINT_ENTRY, COMMON, { "0", "0", "0", "0", "0", "0", "0", "0", "0" } },
	[LIVE_EXIT] = { EBPF_POINT_EXIT, COMMON, { "0", "0", "0", "0", "0", "0", "0", "0", "0" } },
	[LIVE_MEM] = { EBPF_POINT_MEM,
		COMMON | BIT(ADDRESS) | BIT(BYTES) | BIT(SPACE) | BIT(OP) | BIT(VALUE_BYTES) | BIT(VALUE0) | BIT(VALUE1) | BIT(VALUE2) |
			BIT(VALUE3),
		{ "%egpu_address", "%egpu_bytes", "%egpu_space", "%egpu_op", "%egpu_value_bytes", "%egpu_value0", "%egpu_value1", "%egpu_value2",
			"%egpu_value3" } },
	[LIVE_LOOP] = { EBPF_POINT_BLOCK, COMMON | BIT(BLOCK_INDEX) | BIT(BLOCK_INSNS),
		{ "0", "%egpu_block_index", "0", "0", "%egpu_block_insns", "0", "0", "0", "0" } },
};
/* Widths of the function's parameters: list, point, site, kernel, then those above. */
static const uint8_t widths[13] = { 64, 32, 32, 32, 64, 32, 32, 32, 32, 64, 64, 64, 64 };

/* The word's address in %egpu_rla. The kernel's id is a constant at each site. */
static void put_address(struct buf *b, uint32_t map)
{
	buf_printf(b,
		"\tld.const.u64 %%egpu_rla, [__egpu_table+%u];\n"
		"\tmad.wide.u32 %%egpu_rla, %%egpu_kernel, 8, %%egpu_rla;\n",
		8 * map);
}

/* The load stays where it is, because it is relaxed and not weak, and may be served by L1. */
static void put_word(struct buf *b, enum live_point point)
{
	buf_printf(b, "\tld.relaxed.cta.global.u64 %%egpu_rlw, [%%egpu_rla+%llu];\n",
		(unsigned long long)(MAP_IMAGE_HEADER + LIVE_WORD(point, 0)));
}

/* The bell is looked at where a program is to run, which takes longer than that, and else in one pass of about a thousand, by the clock:
 * no register is kept over the loop. The number is read before the fence, and heard after it: words that were written before the number
 * are what this multiprocessor now sees. */
static void put_hear(struct buf *b, uint32_t map)
{
	const unsigned number = MAP_IMAGE_HEADER + LIVE_BELL,
		       heard = number + (unsigned)offsetof(struct live_bell, heard);

	buf_printf(b,
		"\tsetp.ne.u64 %%egpu_rlp, %%egpu_rlw, 0;\n\t@%%egpu_rlp bra $egpu_rlook;\n"
		"\tmov.u32 %%egpu_rlc, %%clock;\n\tand.b32 %%egpu_rlc, %%egpu_rlc, 0x7fe0;\n"
		"\tsetp.ne.u32 %%egpu_rlp, %%egpu_rlc, 0;\n\t@%%egpu_rlp bra $egpu_rdone;\n"
		"$egpu_rlook:\n"
		"\tld.const.u64 %%egpu_rlb, [__egpu_table+%u];\n"
		"\tmov.u32 %%egpu_rlc, %%smid;\n\tand.b32 %%egpu_rlc, %%egpu_rlc, %u;\n"
		"\tmad.wide.u32 %%egpu_rlh, %%egpu_rlc, 4, %%egpu_rlb;\n"
		"\tld.volatile.global.u32 %%egpu_rlc, [%%egpu_rlb+%u];\n"
		"\tld.volatile.global.u32 %%egpu_rln, [%%egpu_rlh+%u];\n"
		"\tsetp.eq.u32 %%egpu_rlp, %%egpu_rlc, %%egpu_rln;\n\t@%%egpu_rlp bra $egpu_rheard;\n"
		"\tfence.acq_rel.sys;\n"
		"\tst.volatile.global.u32 [%%egpu_rlh+%u], %%egpu_rlc;\n",
		8 * map, LIVE_SMS - 1, number, heard, heard);
	put_word(b, LIVE_LOOP);
	buf_puts(b, "$egpu_rheard:\n");
}

static void put_argument(struct buf *b, uint32_t k, const char *value)
{
	buf_printf(b, "\t.param .b%u egpu_rarg%u;\n\tst.param.b%u [egpu_rarg%u], %s;\n", widths[k], k, widths[k], k, value);
}

static void put_call(struct buf *b, enum live_point point)
{
	char number[8];

	buf_puts(b, "\t{\n");
	put_argument(b, 0, "%egpu_rlw");
	snprintf(number, sizeof(number), "%d", point);
	put_argument(b, 1, number);
	put_argument(b, 2, "%egpu_site");
	put_argument(b, 3, "%egpu_kernel");
	for (uint32_t k = 0; k < 9; k++)
		put_argument(b, 4 + k, points[point].args[k]);
	buf_puts(b, "\tcall __egpu_live_run, (");
	for (uint32_t k = 0; k < sizeof(widths); k++)
		buf_printf(b, "%segpu_rarg%u", k ? ", " : "", k);
	buf_puts(b, ");\n\t}\n");
}

const char *live_guard_name(enum live_point point)
{
	static const char *const names[LIVE_POINTS] = { "egpu_live_entry", "egpu_live_exit", "egpu_live_mem", "egpu_live_loop" };

	return names[point];
}

int live_guard(struct arena *arena, enum live_point point, uint32_t map, struct ebpf_fragment *out, struct diag *d)
{
	struct buf b = { 0 };
	struct ebpf_fragment_func *func = arena_alloc(arena, sizeof(*func));

	buf_puts(&b, "{\n\t.reg .pred %egpu_rlp;\n\t.reg .b32 %egpu_rlc, %egpu_rln;\n\t.reg .b64 %egpu_rla, %egpu_rlb, %egpu_rlw, %egpu_rlh;\n");
	put_address(&b, map);
	put_word(&b, point);
	if (point == LIVE_LOOP)
		put_hear(&b, map);
	buf_puts(&b, "\tsetp.eq.u64 %egpu_rlp, %egpu_rlw, 0;\n\t@%egpu_rlp bra $egpu_rdone;\n");
	put_call(&b, point);
	buf_puts(&b, "$egpu_rdone:\n}");
	char *body = b.failed || !func ? NULL : arena_strdup(arena, b.data);
	buf_free(&b);
	if (!body)
		return diag_set(d, ENOMEM, "out of memory");
	*func = (struct ebpf_fragment_func){ "__egpu_live_run", live_run_text() };
	*out = (struct ebpf_fragment){
		.name = live_guard_name(point),
		.point = points[point].point,
		.fields = points[point].fields,
		.maps = UINT64_C(1) << map,
		.max_insns = 1,
		.local_bytes = 1280,
		.funcs = func,
		.n_funcs = 1,
		.body = body,
	};
	return 0;
}
