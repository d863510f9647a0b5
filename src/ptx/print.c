/* print.c - the text again, from the nodes and the gaps between them. A node that is out of order
 * would repeat or drop text, so a round trip also tests the spans. */
#include "ptx/ptx.h"

struct printer {
	const char *text;
	uint32_t at;
	struct buf *out;
};

static void print_to(struct printer *p, uint32_t end)
{
	if (end > p->at)
		buf_add(p->out, p->text + p->at, end - p->at);
	p->at = end;
}

static void print_span(struct printer *p, struct ptx_span span)
{
	print_to(p, span.begin);
	buf_add(p->out, p->text + span.begin, span.end - span.begin);
	p->at = span.end;
}

static void print_func(struct printer *p, const struct ptx_item *item)
{
	const struct ptx_func *f = item->func;

	for (uint32_t i = 0; i < f->n_stmts; i++)
		print_span(p, f->stmts[i].span);
	print_to(p, item->span.end);
}

void ptx_print(const struct ptx_module *m, struct buf *out)
{
	struct printer p = { m->text, 0, out };

	for (uint32_t i = 0; i < m->n_items; i++) {
		if (m->items[i].kind == PTX_ITEM_FUNC)
			print_func(&p, &m->items[i]);
		else
			print_span(&p, m->items[i].span);
	}
	print_to(&p, m->size);
}
