/* float.c - products that a probe parts from their sum. ptxas fuses an unrounded mul with a later
 * unrounded add or sub of the same block; control flow between them ends that, and the last bit may
 * change. */
#include <string.h>

#include "instrument/variant.h"

struct product {
	uint32_t probes; /* spliced before it was computed */
	uint32_t block;
};

struct pairs {
	struct variant *v;
	struct table *products; /* register -> struct product */
	uint32_t probes, block;
	bool split, failed;
};

static bool is_unrounded(const struct ptx_insn *insn)
{
	static const char *const modes[] = { "rn", "rz", "rm", "rp", "rna" };
	struct ptx_type type = ptx_insn_type(insn);

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (ptx_insn_has_mod(insn, modes[i]))
			return false;
	}
	return type.kind == 'f' || (type.kind == 'o' && type.name && strchr(type.name, 'f'));
}

static const struct product *product_of(const struct pairs *p, const struct ptx_operand *op)
{
	const struct product *found =
		op->kind == PTX_OPERAND_REG && op->name ? table_gets(p->products, op->name) : NULL;

	return found && found->block == p->block ? found : NULL;
}

static void set_product(struct pairs *p, const struct ptx_operand *to, uint32_t probes)
{
	struct product *product = arena_alloc(p->v->arena, sizeof(*product));

	if (!product || to->kind != PTX_OPERAND_REG) {
		p->failed |= !product;
		return;
	}
	*product = (struct product){ probes, p->block };
	if (table_puts(p->products, to->name, product))
		p->failed = true;
}

static void visit(struct pairs *p, const struct ptx_insn *insn)
{
	const char *base = insn->base;
	bool adds = !strcmp(base, "add") || !strcmp(base, "sub");
	const struct product *moved = NULL;

	if (!insn->n_operands)
		return;
	for (uint32_t i = 1; i < insn->n_operands; i++) {
		const struct product *found = product_of(p, &insn->operands[i]);
		if (found && adds && found->probes != p->probes && is_unrounded(insn))
			p->split = true;
		moved = found ? found : moved;
	}
	const struct ptx_operand *to = &insn->operands[0];
	if (!strcmp(base, "mul") && is_unrounded(insn))
		set_product(p, to, p->probes);
	else if (moved && (!strcmp(base, "mov") || !strcmp(base, "neg")))
		set_product(p, to, moved->probes);
	else if (to->kind == PTX_OPERAND_REG && to->name && strcmp(base, "st"))
		table_remove(p->products, to->name, strlen(to->name));
}

bool splits_product(struct variant *v, const struct place *place, const bool *probed, bool *out)
{
	struct pairs p = { .v = v, .products = table_new() };

	if (!p.products)
		return no_memory(v);
	for (uint32_t i = 0; i < place->func->n_stmts && !p.failed; i++) {
		const struct ptx_stmt *s = &place->func->stmts[i];
		p.probes += probed[i];
		if (s->kind == PTX_STMT_LABEL)
			p.block++;
		if (!s->insn)
			continue;
		visit(&p, s->insn);
		if (is_branch(s->insn) || is_call(s->insn))
			p.block++;
	}
	table_free(p.products);
	*out |= p.split;
	return p.failed ? no_memory(v) : true;
}
