/* align.c - requires collect; leaves edits that raise the alignment of static shared variables.
 *
 * The driver's linker compiles a variant as relocatable code, in which the address of a shared variable is only known to be a multiple
 * of its declared alignment; compiled with the whole program, ptxas sees where the variable lies and joins loads of neighbours. A matrix
 * product lost a quarter of its speed that way. Alignments are raised only as far as every variable's size is a multiple of,
 * so that no order of them needs padding and the kernel takes as much shared memory as before.
 */
#include <stdlib.h>
#include <string.h>

#include "instrument/variant.h"

enum { WIDEST = 16 }; /* bytes of the widest access */

struct aligner {
	struct variant *v;
	uint64_t sizes; /* all sizes or-ed: its lowest bit divides each */
	uint32_t last;	/* offset of the declaration raised last: it may hold several names */
};

typedef void (*visit_fn)(struct aligner *a, const struct ptx_var *var);

static void each_shared(struct aligner *a, visit_fn visit)
{
	const struct variant *v = a->v;

	for (size_t i = 0; i < v->n_symbols; i++) {
		if (v->symbol_list[i]->var->space == PTX_SPACE_SHARED)
			visit(a, v->symbol_list[i]->var);
	}
	for (uint32_t k = 0; k < v->n_places; k++) {
		const struct ptx_func *f = v->places[k].func;
		for (uint32_t i = 0; i < f->n_stmts; i++) {
			if (f->stmts[i].kind == PTX_STMT_VAR && f->stmts[i].var->space == PTX_SPACE_SHARED)
				visit(a, f->stmts[i].var);
		}
	}
}

static void add_size(struct aligner *a, const struct ptx_var *var)
{
	a->sizes |= var->size_bytes; /* 0 when the launch gives the size: it comes behind all others */
}

static void raise(struct aligner *a, const struct ptx_var *var)
{
	static const char word[] = ".align ";
	struct variant *v = a->v;
	const char *text = v->m->text, *end = text + var->span.end, *found = strstr(text + var->span.begin, word);
	uint32_t widest = a->sizes ? (uint32_t)(a->sizes & -a->sizes) : WIDEST;
	char *behind;

	if (widest > WIDEST)
		widest = WIDEST;
	if (widest <= var->align_bytes || !found || found >= end || var->span.begin == a->last)
		return;
	unsigned long written = strtoul(found + sizeof(word) - 1, &behind, 10);
	if (written != var->align_bytes || behind >= end)
		return; /* a comment, or another notation */
	uint32_t at = (uint32_t)(found - text) + (uint32_t)sizeof(word) - 1;
	ptx_edit_replace(&v->edits, (struct ptx_span){ at, (uint32_t)(behind - text) }, arena_printf(v->arena, "%u", widest));
	a->last = var->span.begin;
}

bool align_shared(struct variant *v)
{
	struct aligner a = { .v = v, .last = UINT32_MAX };

	each_shared(&a, add_size);
	each_shared(&a, raise);
	return true;
}
