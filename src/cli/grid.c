/* grid.c - see grid.h. Cells are kept in one arena. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "cli/grid.h"

struct grid {
	struct arena *arena;
	const char *const *heads;
	size_t n_columns;
	const char **cells;
	size_t n_cells, cap;
};

struct grid *grid_new(const char *const *heads)
{
	struct arena *a = arena_new();
	struct grid *g = a ? arena_alloc(a, sizeof(*g)) : NULL;
	if (!g) {
		arena_free(a);
		return NULL;
	}
	g->arena = a;
	g->heads = heads;
	while (heads[g->n_columns])
		g->n_columns++;
	return g;
}

void grid_cell(struct grid *g, const char *fmt, ...)
{
	if (!g)
		return;
	char text[1024];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* Names come from files of others: no control characters on somebody's terminal. */
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	const char **cells = arena_grow(g->arena, g->cells, g->n_cells, &g->cap, sizeof(*cells));
	if (!cells)
		return;
	g->cells = cells;
	char *copy = arena_strdup(g->arena, text);
	g->cells[g->n_cells++] = copy ? copy : "";
}

/* Columns on a terminal: continuation bytes of UTF-8 take none. */
static size_t width(const char *s)
{
	size_t n = 0;
	for (; *s; s++)
		n += (*s & 0xc0) != 0x80;
	return n;
}

static void print_row(const struct grid *g, const char *const *cells, size_t skip,
	const size_t *widths, const char *indent, struct buf *out)
{
	buf_puts(out, indent);
	for (size_t c = 0; c < g->n_columns; c++) {
		const char *s = cells[c] + skip;
		int pad = (int)(widths[c] - width(s));
		if (g->heads[c][0] == '>')
			buf_printf(out, "%*s%s", pad, "", s);
		else if (c + 1 < g->n_columns)
			buf_printf(out, "%s%*s", s, pad, "");
		else
			buf_puts(out, s);
		buf_puts(out, c + 1 < g->n_columns ? "  " : "\n");
	}
}

void grid_print(const struct grid *g, const char *indent, struct buf *out)
{
	size_t *widths = g ? arena_array(g->arena, g->n_columns, sizeof(*widths)) : NULL;
	if (!widths)
		return;
	for (size_t c = 0; c < g->n_columns; c++)
		widths[c] = width(g->heads[c] + 1);
	for (size_t i = 0; i < g->n_cells; i++)
		if (width(g->cells[i]) > widths[i % g->n_columns])
			widths[i % g->n_columns] = width(g->cells[i]);
	print_row(g, g->heads, 1, widths, indent, out);
	for (size_t i = 0; i + g->n_columns <= g->n_cells; i += g->n_columns)
		print_row(g, g->cells + i, 0, widths, indent, out);
}

void grid_free(struct grid *g)
{
	if (g)
		arena_free(g->arena);
}
