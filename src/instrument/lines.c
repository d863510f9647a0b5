/* lines.c - the lines of the original in the variant: a comment behind the text, for whoever names
 *a line of the variant to a person (softgpu does).
 *
 *	// egpu lines 12:40 15=41 32:42
 *
 * From line 12 of the variant on, lines are the original's from 40 on, in step; line 15 and those
 * behind it were put in at the original's line 41; from line 32 on it is in step again, from 42.
 */
#include <string.h>

#include "instrument/variant.h"

struct lines {
	struct buf *table;
	const char *original, *text;
	uint32_t original_at, original_line, text_line;
	size_t text_at;
	uint32_t from, of; /* the last entry in step */
	bool in_step;
	uint32_t open; /* line of the variant from which on nothing is known to be the original's */
	const struct place *split; /* whose other version is still to come, before statement split_stmt */
	const struct variant *v;
};

static uint32_t advance(const char *text, size_t from, size_t to, uint32_t line)
{
	for (size_t i = from; i < to; i++)
		line += text[i] == '\n';
	return line;
}

static void text_to(struct lines *l, size_t at)
{
	l->text_line = advance(l->text, l->text_at, at, l->text_line);
	l->text_at = at;
}

static void original_to(struct lines *l, uint32_t at)
{
	if (at < l->original_at) { /* items may come in another order */
		l->original_at = 0;
		l->original_line = 1;
	}
	l->original_line = advance(l->original, l->original_at, at, l->original_line);
	l->original_at = at;
}

static void note(struct lines *l, size_t at, struct ptx_span span)
{
	text_to(l, at);
	if (l->open && l->open < l->text_line) {
		buf_printf(l->table, " %u=%u", l->open, l->original_line);
		l->in_step = false;
	}
	original_to(l, span.begin);
	if (!l->in_step || l->original_line - l->of != l->text_line - l->from) {
		buf_printf(l->table, " %u:%u", l->text_line, l->original_line);
		l->from = l->text_line;
		l->of = l->original_line;
		l->in_step = true;
	}
	text_to(l, at + span.end - span.begin);
	original_to(l, span.end);
	l->open = l->text_line + 1;
}

/* The version without programs stands before the one with them. */
static void note_plain(struct lines *l)
{
	const struct place *p = l->split;
	const char *mark = strstr(l->text + l->text_at, PLAIN_MARK);

	l->split = NULL;
	for (size_t i = 0; mark && i < p->n_plain; i++)
		note(l, (size_t)(mark - l->text) + sizeof(PLAIN_MARK) - 1 + p->plain[i].at, p->plain[i].span);
}

/* text[span] of the original stands in the variant at offset `at`. */
static void kept(void *arg, size_t at, struct ptx_span span)
{
	struct lines *l = arg;

	if (l->split && span.begin >= insert_point(l->v, l->split->func, l->split->split_stmt))
		note_plain(l);
	note(l, at, span);
}

static const struct place *split_in(const struct variant *v, struct ptx_span span)
{
	for (uint32_t i = 0; i < v->n_places; i++)
		if (v->places[i].split && v->places[i].item->span.begin == span.begin)
			return &v->places[i];
	return NULL;
}

bool add_lines(struct variant *v, struct instrument_result *out)
{
	struct buf b = { 0 };
	struct lines l = { .table = &b,
		.original = v->m->text,
		.text = out->ptx,
		.original_line = 1,
		.text_line = 1,
		.v = v };

	buf_add(&b, out->ptx, out->ptx_bytes);
	buf_puts(&b, "// egpu lines");
	for (size_t i = 0; i < v->n_printed; i++) {
		l.split = split_in(v, v->printed[i].span);
		ptx_edits_kept(&v->edits, v->printed[i].span, v->printed[i].at, kept, &l);
	}
	buf_puts(&b, "\n");
	out->lined = b.failed ? NULL : arena_strndup(v->arena, b.data, b.len);
	out->lined_bytes = b.len;
	buf_free(&b);
	return out->lined ? true : no_memory(v);
}
