/* decode_lines.c - lines in messages are those of the text that a person knows.
 *
 * A text made from another one may say in a comment behind it, as its last line, which lines of
 *that one its own are (src/instrument/lines.c writes it):
 *
 *	// egpu lines 12:40 15=41 32:42
 *
 * From line 12 on, lines count on from 40; from 15 on, all are line 41; and so on. What is
 *malformed ends the list.
 */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

struct run {
	uint32_t from, of;
	bool in_step;
};

/* Behind the mark, or NULL. */
static const char *table_of(const char *text)
{
	static const char mark[] = "// egpu lines ";
	size_t n = strlen(text), at;
	if (n && text[n - 1] == '\n')
		n--;
	for (at = n; at && text[at - 1] != '\n';)
		at--;
	return n - at > sizeof(mark) && !memcmp(text + at, mark, sizeof(mark) - 1)
		       ? text + at + sizeof(mark) - 1
		       : NULL;
}

static size_t read_runs(const char *s, struct run *runs, size_t cap)
{
	size_t n = 0;
	while (n < cap) {
		char *end;
		unsigned long from = strtoul(s, &end, 10);
		char kind = *end;
		if (end == s || (kind != ':' && kind != '='))
			break;
		unsigned long of = strtoul(end + 1, (char **)&s, 10);
		if (s == end + 1 || from > UINT32_MAX || of > UINT32_MAX ||
			(n && from <= runs[n - 1].from))
			break;
		runs[n++] = (struct run){ (uint32_t)from, (uint32_t)of, kind == ':' };
		if (*s != ' ')
			break;
		s++;
	}
	return n;
}

static uint32_t line_of(const struct run *runs, size_t n, uint32_t line)
{
	size_t low = 0, high = n;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (runs[mid].from <= line)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return line;
	const struct run *r = &runs[low - 1];
	return r->in_step ? r->of + (line - r->from) : r->of;
}

void sg_dec_lines(struct sg_module *m)
{
	const char *table = table_of(m->ptx->text);
	size_t cap = table ? strlen(table) / 3 + 1 : 0, n;
	struct run *runs = table ? calloc(cap, sizeof(*runs)) : NULL;
	if (!runs)
		return;
	n = read_runs(table, runs, cap);
	for (uint32_t i = 0; i < m->n_code; i++)
		if (m->code[i].line)
			m->code[i].line = line_of(runs, n, m->code[i].line);
	free(runs);
}
