/* float.c - products that a probe parts from their sum. ptxas fuses an unrounded mul with a later
 * unrounded add or sub of the same block; control flow between them ends that, and the last bit may
 * change. So a probe between the two is moved behind the sum where that changes nothing it sees. */
#include <string.h>

#include "instrument/variant.h"

struct product {
	uint32_t stmt; /* computed there */
};

struct pairs {
	struct variant *v;
	struct table *products; /* register -> struct product */
	uint32_t *parted;       /* differences, then sums */
	bool failed;
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
	return op->kind == PTX_OPERAND_REG && op->name ? table_gets(p->products, op->name) : NULL;
}

static void set_product(struct pairs *p, const struct ptx_operand *to, uint32_t stmt)
{
	struct product *product = arena_alloc(p->v->arena, sizeof(*product));

	if (!product || to->kind != PTX_OPERAND_REG) {
		p->failed |= !product;
		return;
	}
	*product = (struct product){ stmt };
	if (table_puts(p->products, to->name, product))
		p->failed = true;
}

/* A probe before any of the statements behind `from`, up to and with `to`, parts the two. */
static void add_pair(struct pairs *p, uint32_t from, uint32_t to)
{
	p->parted[from + 1]++;
	p->parted[to + 1]--;
}

static void visit(struct pairs *p, const struct ptx_insn *insn, uint32_t stmt)
{
	const char *base = insn->base;
	bool adds = (!strcmp(base, "add") || !strcmp(base, "sub")) && is_unrounded(insn);
	const struct product *moved = NULL;

	if (!insn->n_operands)
		return;
	for (uint32_t i = 1; i < insn->n_operands; i++) {
		const struct product *found = product_of(p, &insn->operands[i]);
		if (found && adds)
			add_pair(p, found->stmt, stmt);
		moved = found ? found : moved;
	}
	const struct ptx_operand *to = &insn->operands[0];
	if (!strcmp(base, "mul") && is_unrounded(insn))
		set_product(p, to, stmt);
	else if (moved && (!strcmp(base, "mov") || !strcmp(base, "neg")))
		set_product(p, to, moved->stmt);
	else if (to->kind == PTX_OPERAND_REG && to->name && strcmp(base, "st"))
		table_remove(p->products, to->name, strlen(to->name));
}

/* No probe is moved past one. */
static bool keeps_order(const struct ptx_insn *insn)
{
	static const char *const bases[] = { "call", "brkpt", "bar", "barrier", "mbarrier",
		"membar", "fence", "wgmma", "tcgen05", "setmaxnreg", "griddepcontrol",
		"nanosleep" };

	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		if (!strcmp(insn->base, bases[i]))
			return true;
	}
	return ptx_insn_ends_block(insn);
}

/* In the order of the text, over the ends of blocks as well: ptxas turns short branches into guards
 * before it fuses. */
const uint32_t *products_parted(struct variant *v, const struct place *place)
{
	const struct ptx_func *f = place->func;
	struct pairs p = { .v = v,
		.products = table_new(),
		.parted = arena_array(v->arena, (size_t)f->n_stmts + 2, sizeof(*p.parted)) };

	p.failed = !p.products || !p.parted;
	for (uint32_t i = 0; i < f->n_stmts && !p.failed; i++) {
		if (f->stmts[i].insn)
			visit(&p, f->stmts[i].insn, i);
	}
	for (uint32_t i = 1; !p.failed && i <= f->n_stmts; i++)
		p.parted[i] += p.parted[i - 1];
	table_free(p.products);
	if (p.failed)
		no_memory(v);
	return p.failed ? NULL : p.parted;
}

/* -- moving a probe behind the sums -- */

static bool names_reg(const struct ptx_operand *op, const char *name)
{
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (names_reg(&op->sub[i], name))
			return true;
	}
	return op->name && !strcmp(op->name, name);
}

/* Whether the statement may write a register that the operand reads. */
static bool writes_any(const struct ptx_insn *writer, const struct ptx_operand *read)
{
	for (uint32_t i = 0; i < read->n_sub; i++) {
		if (writes_any(writer, &read->sub[i]))
			return true;
	}
	return read->name && read->reg && writer->n_operands &&
	       writer->operands[0].kind != PTX_OPERAND_ADDRESS &&
	       names_reg(&writer->operands[0], read->name);
}

/* The operands that an instruction reads: a load's first one is only written. */
static bool disturbs(
	const struct ptx_insn *writer, const struct ptx_insn *site, const struct ptx_access *access)
{
	bool writes = access->op == PTX_ACCESS_LOAD || access->op == PTX_ACCESS_ATOMIC;

	for (uint32_t i = 0; i < site->n_operands; i++) {
		bool written = writes && !i && site->operands[0].kind != PTX_OPERAND_ADDRESS;
		if (!written && writes_any(writer, &site->operands[i]))
			return true;
	}
	return false;
}

/* A probe reads its instruction's operands, so it may run later as long as they keep their values,
 * in the same block and the same scope. A guarded instruction stays: ptxas makes one branch of its
 * guard and the probe's, around what lies between as well (seen: the pair was split). */
bool sink_past_products(
	const struct place *place, const uint32_t *parted, const struct spot *spot, uint32_t *to)
{
	const struct ptx_func *f = place->func;
	uint32_t block = place->cfg.block_of[spot->stmt];
	const struct ptx_insn *site = f->stmts[spot->stmt].insn;
	uint32_t depth = 0;

	for (uint32_t i = spot->stmt; !site->pred && i < f->n_stmts; i++) {
		const struct ptx_stmt *s = &f->stmts[i];
		if (!depth && !parted[i] && place->cfg.block_of[i] == block) {
			*to = i;
			return true;
		}
		if (place->cfg.block_of[i] != block || (s->kind == PTX_STMT_CLOSE && !depth--))
			return false;
		depth += s->kind == PTX_STMT_OPEN;
		if (s->insn && (keeps_order(s->insn) || disturbs(s->insn, site, &spot->access)))
			return false;
	}
	return false;
}
