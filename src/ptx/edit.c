#include "ptx/edit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void add(struct ptx_edits *e, struct ptx_span span, const char *text)
{
	struct ptx_edit *list =
		e->failed || !text ? NULL
				   : arena_grow(e->arena, e->list, e->n, &e->cap, sizeof(*list));

	if (!list) {
		e->failed = true;
		return;
	}
	e->list = list;
	list[e->n] = (struct ptx_edit){ span, (uint32_t)e->n, text };
	e->n++;
	e->sorted = false;
}

void ptx_edit_replace(struct ptx_edits *e, struct ptx_span span, const char *text)
{
	add(e, span, text);
}

void ptx_edit_insert(struct ptx_edits *e, uint32_t at, const char *text)
{
	add(e, (struct ptx_span){ at, at }, text);
}

uint32_t ptx_edit_reserve(struct ptx_edits *e, uint32_t at)
{
	add(e, (struct ptx_span){ at, at }, "");
	return (uint32_t)e->n - !e->failed;
}

void ptx_edit_fill(struct ptx_edits *e, uint32_t order, const char *text)
{
	for (size_t i = 0; i < e->n; i++)
		if (e->list[i].order == order)
			e->list[i].text = text;
	e->failed |= !text;
}

/* By offset; insertions come before a replacement that begins there; then in order of addition. */
static int compare(const void *pa, const void *pb)
{
	const struct ptx_edit *a = pa, *b = pb;
	bool a_replaces = a->span.end > a->span.begin, b_replaces = b->span.end > b->span.begin;

	if (a->span.begin != b->span.begin)
		return a->span.begin < b->span.begin ? -1 : 1;
	if (a_replaces != b_replaces)
		return a_replaces ? 1 : -1;
	return a->order < b->order ? -1 : a->order > b->order;
}

/* The first edit that begins at or after the offset. */
static size_t find(const struct ptx_edits *e, uint32_t begin)
{
	size_t low = 0, high = e->n;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (e->list[mid].span.begin < begin)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

int ptx_edits_apply(struct ptx_edits *e, const char *text, struct ptx_span span, struct buf *out)
{
	uint32_t at = span.begin;

	if (e->failed)
		return -ENOMEM;
	if (span.begin > span.end)
		return -EINVAL;
	if (!e->sorted && e->n)
		qsort(e->list, e->n, sizeof(*e->list), compare);
	e->sorted = true;
	for (size_t i = find(e, span.begin); i < e->n; i++) {
		const struct ptx_edit *edit = &e->list[i];
		if (edit->span.begin > span.end)
			break;
		if (edit->span.end > span.end)
			continue; /* reaches beyond the part that is asked for */
		if (edit->span.begin < at || edit->span.end < edit->span.begin)
			return -EINVAL;
		buf_add(out, text + at, edit->span.begin - at);
		buf_puts(out, edit->text);
		at = edit->span.end;
	}
	buf_add(out, text + at, span.end - at);
	return out->failed ? -ENOMEM : 0;
}

void ptx_edits_kept(const struct ptx_edits *e, struct ptx_span span, size_t at,
	void (*kept)(void *arg, size_t at, struct ptx_span span), void *arg)
{
	uint32_t from = span.begin;

	for (size_t i = find(e, span.begin); i < e->n && e->list[i].span.begin <= span.end; i++) {
		const struct ptx_edit *edit = &e->list[i];
		if (edit->span.end > span.end)
			continue;
		if (edit->span.begin > from)
			kept(arg, at, (struct ptx_span){ from, edit->span.begin });
		at += edit->span.begin - from + strlen(edit->text);
		from = edit->span.end;
	}
	if (span.end > from)
		kept(arg, at, (struct ptx_span){ from, span.end });
}
