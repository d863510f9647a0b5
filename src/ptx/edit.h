/* edit.h - changes to a PTX text as a list of replacements against the original's offsets.
 *
 * Zero-initialise a struct ptx_edits and set its arena. Insertions at an offset come before a
 * replacement that begins there.
 */
#ifndef EGPU_PTX_EDIT_H
#define EGPU_PTX_EDIT_H

#include "ptx/ptx.h"

struct ptx_edit {
	struct ptx_span span; /* replaced text; begin == end inserts */
	uint32_t order;	      /* among edits at the same offset: the order they were added */
	const char *text;     /* NUL-terminated, owned by the caller's arena */
};

struct ptx_edits {
	struct arena *arena;
	struct ptx_edit *list;
	size_t n, cap;
	bool failed; /* memory ran out */
	bool sorted; /* list is in the order of its offsets */
};

void ptx_edit_replace(struct ptx_edits *e, struct ptx_span span, const char *text);
void ptx_edit_insert(struct ptx_edits *e, uint32_t at, const char *text);
/* An insertion whose text is given later: its order, for ptx_edit_fill. */
uint32_t ptx_edit_reserve(struct ptx_edits *e, uint32_t at);
void ptx_edit_fill(struct ptx_edits *e, uint32_t order, const char *text);
/* Appends text[span] with the edits that lie inside it (insertions at both ends too) applied.
 * 0, -ENOMEM; -EINVAL: edits overlap. */
int ptx_edits_apply(struct ptx_edits *e, const char *text, struct ptx_span span, struct buf *out);
/* The parts of text[span] that ptx_edits_apply has kept, in order, each with its offset in what was
 * written; the first byte written was at offset `at`. Call after ptx_edits_apply. */
void ptx_edits_kept(const struct ptx_edits *e, struct ptx_span span, size_t at,
	void (*kept)(void *arg, size_t at, struct ptx_span span), void *arg);

#endif
