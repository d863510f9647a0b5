/* guard.c - the text of a guard: the word, and behind a branch the call (call.c). Which loop heads get one is decided by
 * instrument/running.c. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

#include "live/object.h"
#include "live/program.h"
#include "map/layout.h"

#define BIT(f) (UINT64_C(1) << EBPF_FIELD_##f)
#define COMMON (BIT(SITE) | BIT(KERNEL))

/* Per point: where it is, and what it reads. */
static const struct {
	enum ebpf_point point;
	uint64_t fields;
} points[LIVE_POINTS] = {
	[LIVE_ENTRY] = { EBPF_POINT_ENTRY, COMMON },
	[LIVE_EXIT] = { EBPF_POINT_EXIT, COMMON },
	[LIVE_MEM] = { EBPF_POINT_MEM,
		COMMON | BIT(ADDRESS) | BIT(BYTES) | BIT(SPACE) | BIT(OP) | BIT(VALUE_BYTES) | BIT(VALUE0) | BIT(VALUE1) | BIT(VALUE2) |
			BIT(VALUE3) },
	[LIVE_LOOP] = { EBPF_POINT_BLOCK, COMMON | BIT(BLOCK_INDEX) | BIT(BLOCK_INSNS) },
};

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

/* The bell is looked at in one pass of about a thousand, by the clock: no register is kept over the loop. Where a program is to run, which makes
 * passes longer, in one of 32; not in each, since all multiprocessors read the same line, which the second-level cache gives a thousand million
 * times a second at most. One branch serves both where there is none. The number is read before the fence, and heard after it: words that were written
 * before the number are what this multiprocessor now sees. */
static void put_hear(struct buf *b, uint32_t map)
{
	const unsigned number = MAP_IMAGE_HEADER + LIVE_BELL,
		       heard = number + (unsigned)offsetof(struct live_bell, heard);

	buf_printf(b,
		"\tmov.u32 %%egpu_rlc, %%clock;\n\tand.b32 %%egpu_rlc, %%egpu_rlc, 0x7fe0;\n"
		"\tsetp.ne.u64 %%egpu_rlp, %%egpu_rlw, 0;\n\tsetp.eq.or.u32 %%egpu_rlp, %%egpu_rlc, 0, %%egpu_rlp;\n"
		"\t@!%%egpu_rlp bra $egpu_rdone;\n"
		"\tand.b32 %%egpu_rlc, %%egpu_rlc, 0x3e0;\n\tsetp.ne.u32 %%egpu_rlp, %%egpu_rlc, 0;\n\t@%%egpu_rlp bra $egpu_rheard;\n"
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

/* What the functions take (call.c, interp.c). */
struct argument {
	uint32_t bits;
	const char *value;
};

static const struct argument of_access[] = { { 64, "%egpu_rlw" }, { 32, "2" /* LIVE_MEM */ }, { 32, "%egpu_site" }, { 32, "%egpu_kernel" },
	{ 64, "%egpu_address" }, { 32, "%egpu_bytes" }, { 32, "%egpu_space" }, { 32, "%egpu_op" }, { 32, "%egpu_value_bytes" },
	{ 64, "%egpu_value0" }, { 64, "%egpu_value1" }, { 64, "%egpu_value2" }, { 64, "%egpu_value3" } };
static const struct argument of_place[] = { { 64, "%egpu_rlw" }, { 64, "%egpu_rlh" }, { 64, "%egpu_rlb" } };
_Static_assert(LIVE_MEM == 2, "of_access");

static void put_arguments(struct buf *b, const char *function, const struct argument *args, uint32_t n)
{
	buf_puts(b, "\t{\n");
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "\t.param .b%u egpu_rarg%u;\n\tst.param.b%u [egpu_rarg%u], %s;\n", args[k].bits, k, args[k].bits, k, args[k].value);
	buf_printf(b, "\tcall %s, (", function);
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "%segpu_rarg%u", k ? ", " : "", k);
	buf_puts(b, ");\n\t}\n");
}

static const char *interpreter_at(enum live_point point)
{
	return point == LIVE_MEM ? LIVE_RUN : LIVE_AT;
}

static const char *function_at(enum live_point point)
{
	return point == LIVE_MEM ? LIVE_CALL_RUN : LIVE_CALL_AT;
}

/* Few registers: those that a kernel needs beside them decide how many of its blocks fit. */
static void put_call(struct buf *b, enum live_point point)
{
	const char *function = function_at(point);

	if (point == LIVE_MEM) {
		put_arguments(b, function, of_access, sizeof(of_access) / sizeof(of_access[0]));
		return;
	}
	buf_printf(b, "\tor.b32 %%egpu_rlc, %%egpu_kernel, %u;\n\tmov.b64 %%egpu_rlh, {%%egpu_site, %%egpu_rlc};\n", (unsigned)point << 16);
	buf_puts(b, point == LIVE_LOOP ? "\tmov.b64 %egpu_rlb, {%egpu_block_index, %egpu_block_insns};\n" : "\tmov.b64 %egpu_rlb, 0;\n");
	put_arguments(b, function, of_place, sizeof(of_place) / sizeof(of_place[0]));
}

const char *live_guard_name(enum live_point point)
{
	static const char *const names[LIVE_POINTS] = { "egpu_live_entry", "egpu_live_exit", "egpu_live_mem", "egpu_live_loop" };

	return names[point];
}

int live_guard(struct arena *arena, enum live_point point, uint32_t map, struct ebpf_fragment *out, struct diag *d)
{
	struct buf b = { 0 };
	const char *names[] = { interpreter_at(point), function_at(point) };
	struct ebpf_fragment_func *funcs = arena_array(arena, 2, sizeof(*funcs));

	buf_puts(&b, "{\n\t.reg .pred %egpu_rlp;\n\t.reg .b32 %egpu_rlc, %egpu_rln;\n\t.reg .b64 %egpu_rla, %egpu_rlb, %egpu_rlw, %egpu_rlh;\n");
	put_address(&b, map);
	put_word(&b, point);
	if (point == LIVE_LOOP)
		put_hear(&b, map);
	buf_puts(&b, "\tsetp.eq.u64 %egpu_rlp, %egpu_rlw, 0;\n\t@%egpu_rlp bra $egpu_rdone;\n");
	put_call(&b, point);
	buf_puts(&b, "$egpu_rdone:\n}");
	char *body = b.failed || !funcs ? NULL : arena_strdup(arena, b.data);
	buf_free(&b);
	if (!body)
		return diag_set(d, ENOMEM, "out of memory");
	for (int k = 0; k < 2; k++)
		funcs[k] = (struct ebpf_fragment_func){ names[k], live_function_text(names[k]) };
	*out = (struct ebpf_fragment){
		.name = live_guard_name(point),
		.point = points[point].point,
		.fields = points[point].fields,
		.maps = UINT64_C(1) << map,
		.max_insns = 1,
		/* Behind the loads of its block, where threads wait anyway: what programs at loop heads read is the same there. */
		.anywhere = point == LIVE_LOOP,
		.local_bytes = 1280,
		.funcs = funcs,
		.n_funcs = 2,
		.body = body,
	};
	return 0;
}
