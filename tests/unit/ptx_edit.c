/* ptx_edit.c - edits against offsets: order, boundaries, overlaps. */
#include <errno.h>

#include "ptx/edit.h"
#include "tap.h"

static const char text[] = "0123456789";

static int apply(struct ptx_edits *e, uint32_t begin, uint32_t end, struct buf *b)
{
	buf_reset(b);
	return ptx_edits_apply(e, text, (struct ptx_span){ begin, end }, b);
}

int main(void)
{
	struct arena *a = arena_new();
	struct ptx_edits e = { .arena = a };
	struct buf b = { 0 };
	is_int(apply(&e, 2, 5, &b), 0, "no edits");
	is_str(b.data, "234", "gives the part asked for");
	ptx_edit_replace(&e, (struct ptx_span){ 4, 6 }, "X");
	ptx_edit_insert(&e, 4, "a");
	ptx_edit_insert(&e, 4, "b");
	ptx_edit_insert(&e, 6, "c");
	ptx_edit_insert(&e, 0, "<");
	ptx_edit_insert(&e, 10, ">");
	is_int(apply(&e, 0, 10, &b), 0, "edits in any order of addition");
	is_str(b.data, "<0123abXc6789>", "insertions precede the replacement, in their order");
	apply(&e, 1, 4, &b);
	is_str(b.data, "123ab", "a part takes the insertions at both its ends");
	apply(&e, 5, 7, &b);
	is_str(b.data, "5c6", "an edit that begins outside is left out");
	ptx_edit_replace(&e, (struct ptx_span){ 5, 7 }, "Y");
	is_int(apply(&e, 0, 10, &b), -EINVAL, "overlapping replacements");
	buf_free(&b);
	arena_free(a);
	return tap_done();
}
