/* ring.c - module-scope functions for ring buffers, and the copy loop.
 *
 * Reserving moves `produced` by compare-and-swap, after a look at `consumed`, which only the reader
 * moves: nothing is overwritten that was not taken, and a full ring drops the record and counts it.
 * A record that would wrap is preceded by a discarded one which fills the end. Between the move of
 * `produced` and the store of the busy header the header's bytes are those that the reader left
 * there: it clears what it has taken before it moves `consumed`, and takes a header of zero for
 * "not yet marked".
 */
#include "translate/internal.h"

#include <string.h>

enum { TRIES = 1 << 20 };

const char *tr_func_add(struct tr *t, const char *name, const struct buf *text)
{
	for (size_t k = 0; k < t->n_helper_funcs; k++)
		if (!strcmp(t->helper_funcs[k].name, name))
			return t->helper_funcs[k].name;
	struct ebpf_fragment_func *all = arena_grow(
		t->arena, t->helper_funcs, t->n_helper_funcs, &t->cap_helper_funcs, sizeof(*all));
	char *own_name = arena_strdup(t->arena, name),
	     *own_text = arena_strndup(t->arena, text->data, text->len);
	if (!all || !own_name || !own_text) {
		t->body.failed = true;
		return "";
	}
	t->helper_funcs = all;
	all[t->n_helper_funcs++] = (struct ebpf_fragment_func){ own_name, own_text };
	return own_name;
}

static const char *add_text(struct tr *t, const char *name, const char *text)
{
	struct buf b = { .data = (char *)text, .len = strlen(text) };
	return tr_func_add(t, name, &b);
}

/* len: payload bytes; the result is the payload's address, 0 when dropped. */
static const char reserve_text[] =
	".func (.param .b64 result) __egpu_ring_reserve(.param .b64 image, .param .b64 size, "
	".param .b64 len)\n"
	"{\n"
	"\t.reg .pred %p, %pad;\n"
	"\t.reg .b32 %tries;\n"
	"\t.reg .b64 %image, %size, %mask, %len, %total, %pos, %off, %room, %fill, %next, %taken, "
	"%got, %d, %r;\n"
	"\tld.param.b64 %image, [image];\n"
	"\tld.param.b64 %size, [size];\n"
	"\tld.param.b64 %len, [len];\n"
	"\tmov.u64 %r, 0;\n"
	"\tmov.u32 %tries, 1048576;\n"
	"\tsub.s64 %mask, %size, 1;\n"
	"\tsetp.gt.u64 %p, %len, %mask;\n"
	"\t@%p bra $drop;\n"
	"\tadd.s64 %total, %len, 15;\n"
	"\tand.b64 %total, %total, 0xfffffffffffffff8;\n"
	"\tsetp.gt.u64 %p, %total, %size;\n"
	"\t@%p bra $drop;\n"
	"\tld.volatile.global.u64 %pos, [%image+48];\n"
	"$try:\n"
	"\tand.b64 %off, %pos, %mask;\n"
	"\tsub.s64 %room, %size, %off;\n"
	"\tsetp.gt.u64 %pad, %total, %room;\n"
	"\tselp.b64 %fill, %room, 0, %pad;\n"
	"\tadd.s64 %next, %pos, %fill;\n"
	"\tadd.s64 %next, %next, %total;\n"
	"\tld.volatile.global.u64 %taken, [%image+56];\n"
	"\tsub.s64 %d, %next, %taken;\n"
	"\tsetp.gt.u64 %p, %d, %size;\n"
	"\t@%p bra $drop;\n"
	"\tatom.global.cas.b64 %got, [%image+48], %pos, %next;\n"
	"\tsetp.eq.u64 %p, %got, %pos;\n"
	"\t@%p bra $reserved;\n"
	"\tmov.u64 %pos, %got;\n"
	"\tsub.u32 %tries, %tries, 1;\n"
	"\tsetp.ne.u32 %p, %tries, 0;\n"
	"\t@%p bra $try;\n"
	"$drop:\n"
	"\tred.global.add.u64 [%image+32], 1;\n"
	"\tbra $done;\n"
	"$reserved:\n"
	"\tadd.s64 %r, %image, %off;\n"
	"\tsub.s64 %d, %fill, 8;\n"
	"\tor.b64 %d, %d, 0x40000000;\n"
	"\t@%pad st.volatile.global.u64 [%r+128], %d;\n"
	"\t@%pad mov.u64 %r, %image;\n" /* after the fill comes the ring's start */
	"\tor.b64 %d, %len, 0x80000000;\n"
	"\tst.volatile.global.u64 [%r+128], %d;\n"
	"\tadd.s64 %r, %r, 136;\n"
	"$done:\n"
	"\tst.param.b64 [result], %r;\n"
	"\tret;\n"
	"}\n";

const char *tr_ring_reserve(struct tr *t)
{
	return add_text(t, "__egpu_ring_reserve", reserve_text);
}

static const char copy_text[] =
	".func __egpu_copy(.param .b64 to, .param .b64 from, .param .b64 bytes)\n"
	"{\n"
	"\t.reg .pred %p;\n"
	"\t.reg .b32 %b;\n"
	"\t.reg .b64 %to, %from, %end;\n"
	"\tld.param.b64 %to, [to];\n"
	"\tld.param.b64 %from, [from];\n"
	"\tld.param.b64 %end, [bytes];\n"
	"\tadd.s64 %end, %end, %to;\n"
	"$copy:\n"
	"\tsetp.ge.u64 %p, %to, %end;\n"
	"\t@%p bra $done;\n"
	"\tld.u8 %b, [%from];\n"
	"\tst.global.u8 [%to], %b;\n"
	"\tadd.s64 %to, %to, 1;\n"
	"\tadd.s64 %from, %from, 1;\n"
	"\tbra $copy;\n"
	"$done:\n"
	"\tret;\n"
	"}\n";

const char *tr_copy_func(struct tr *t)
{
	return add_text(t, "__egpu_copy", copy_text);
}
