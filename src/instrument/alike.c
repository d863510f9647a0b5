/* alike.c - which accesses of a stretch have addresses that differ by a number that is the same in all threads of a block: where the lanes of
 * one lie side by side, so do those of the other.
 *
 * An address is followed back through the stretch as a sum. What is the same in all threads of a kernel - parameters, the block's number, what is
 * computed of those - does not matter; the rest are atoms: a register as the stretch finds it, what some statement of the stretch left in one,
 * or a product of such a value of 32 bits and a number. Equal atoms, equal up to such a number. It is a straight piece of text, so the
 * last statement that writes a register before another is the one that the other reads.
 */
#include <string.h>

#include "base/table.h"
#include "instrument/variant.h"

enum { MAX_ATOMS = 4, MAX_DEPTH = 12 };

struct atom {
	uint32_t stmt;		   /* whose result it is; NO_STMT: what the register has where the stretch begins */
	const struct ptx_reg *reg; /* then: its declaration and name */
	const char *name;
	int64_t times; /* 0: not a product */
	bool is_signed;
};

struct sum {
	struct atom atoms[MAX_ATOMS];
	uint32_t n;
	bool many; /* there are more */
};

struct alike {
	const struct place *place;
	struct table *writers; /* register name -> 1 + the statement of the function that writes it, or SEVERAL */
	uint32_t from;
};

#define SEVERAL ((void *)UINTPTR_MAX)

static bool add_writers(struct table *t, const struct ptx_operand *op, uint32_t stmt)
{
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (!add_writers(t, &op->sub[i], stmt))
			return false;
	}
	if (op->kind != PTX_OPERAND_REG || !op->name)
		return true;
	return !table_puts(t, op->name, table_gets(t, op->name) ? SEVERAL : (void *)((uintptr_t)stmt + 1));
}

struct alike *alike_new(struct variant *v, const struct place *place)
{
	struct alike *a = arena_alloc(v->arena, sizeof(*a));
	bool ok = a;

	if (a)
		*a = (struct alike){ .place = place, .writers = table_new() };
	ok = ok && a->writers;
	for (uint32_t i = 0; ok && i < place->func->n_stmts; i++) {
		const struct ptx_insn *insn = place->func->stmts[i].insn;
		if (insn && insn->n_operands && insn->operands[0].kind != PTX_OPERAND_ADDRESS)
			ok = add_writers(a->writers, &insn->operands[0], i);
	}
	if (ok)
		return a;
	alike_free(a);
	return NULL;
}

void alike_free(struct alike *a)
{
	if (a)
		table_free(a->writers);
}

/* -- what is the same in all threads -- */

static bool is_plain(const struct ptx_insn *insn)
{
	static const char *const bases[] = { "mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "cvt", "cvta", "min", "max" };

	if (insn->pred || ptx_insn_has_mod(insn, "cc") || insn->operands[0].kind != PTX_OPERAND_REG || !insn->operands[0].reg ||
		insn->operands[0].component >= 0)
		return false;
	for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
		if (!strcmp(insn->base, bases[i]))
			return true;
	}
	return false;
}

static bool of_block(const char *name)
{
	static const char *const names[] = { "%ctaid.", "%nctaid.", "%ntid." };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	}
	return false;
}

static bool is_parameter(const struct alike *a, const struct ptx_insn *insn)
{
	const struct ptx_func *f = a->place->func;
	const struct ptx_operand *from = insn->n_operands == 2 ? &insn->operands[1] : NULL;

	return a->place->is_kernel && from && !strcmp(insn->base, "ld") && !insn->pred && from->kind == PTX_OPERAND_ADDRESS &&
	       insn->operands[0].kind == PTX_OPERAND_REG && from->var >= f->params && from->var < f->params + f->n_params;
}

/* A value that its register has for good, wherever it is read. */
static bool is_same_everywhere(const struct alike *a, const struct ptx_operand *op, uint32_t depth)
{
	if (op->kind == PTX_OPERAND_INT)
		return true;
	if (op->kind != PTX_OPERAND_REG || op->component >= 0 || depth == MAX_DEPTH)
		return false;
	if (!op->reg)
		return of_block(op->name);
	void *at = table_gets(a->writers, op->name);
	const struct ptx_insn *insn = at && at != SEVERAL ? a->place->func->stmts[(uintptr_t)at - 1].insn : NULL;
	if (!insn || insn->operands[0].reg != op->reg)
		return false;
	if (is_parameter(a, insn))
		return true;
	bool same = is_plain(insn);
	for (uint32_t i = 1; same && i < insn->n_operands; i++)
		same = is_same_everywhere(a, &insn->operands[i], depth + 1);
	return same;
}

/* -- sums -- */

static uint32_t writer_before(const struct alike *a, const char *name, uint32_t at)
{
	for (; at > a->from; at--) {
		const struct ptx_insn *insn = a->place->func->stmts[at - 1].insn;
		if (insn && insn->n_operands && insn->operands[0].kind != PTX_OPERAND_ADDRESS && names_reg(&insn->operands[0], name))
			return at - 1;
	}
	return NO_STMT;
}

static void add_atom(struct sum *s, struct atom atom)
{
	if (s->n == MAX_ATOMS)
		s->many = true;
	else
		s->atoms[s->n++] = atom;
}

static struct atom atom_of(const struct alike *a, const struct ptx_operand *op, uint32_t at)
{
	uint32_t writer = writer_before(a, op->name, at);

	return (struct atom){ .stmt = writer, .reg = op->reg, .name = op->name };
}

static void add_value(const struct alike *a, const struct ptx_operand *op, uint32_t at, struct sum *s, uint32_t depth);

/* Whether nothing but such numbers goes into a value, of whatever width. */
static bool is_same(const struct alike *a, const struct ptx_operand *op, uint32_t at, uint32_t depth)
{
	if (op->kind == PTX_OPERAND_INT)
		return true;
	if (op->kind != PTX_OPERAND_REG || depth == MAX_DEPTH)
		return false;
	if (is_same_everywhere(a, op, 0))
		return true;
	uint32_t writer = writer_before(a, op->name, at);
	const struct ptx_insn *insn = writer != NO_STMT ? a->place->func->stmts[writer].insn : NULL;
	bool same = insn && (is_plain(insn) || is_parameter(a, insn));
	for (uint32_t i = 1; same && !is_parameter(a, insn) && i < insn->n_operands; i++)
		same = is_same(a, &insn->operands[i], writer, depth + 1);
	return same;
}

/* A product of a value of 32 bits and a number. */
static bool is_wide_product(const struct ptx_insn *insn)
{
	return ptx_insn_has_mod(insn, "wide") && insn->n_operands >= 3 && insn->operands[1].kind == PTX_OPERAND_REG &&
	       insn->operands[2].kind == PTX_OPERAND_INT && insn->operands[2].value;
}

/* The parts of what a statement computes in 64 bits. False: it is no such sum. */
static bool add_parts(const struct alike *a, uint32_t at, struct sum *s, uint32_t depth)
{
	const struct ptx_insn *insn = a->place->func->stmts[at].insn;
	const struct ptx_operand *op = insn->operands;
	struct ptx_type type = ptx_insn_type(insn);
	bool wide = is_plain(insn) && is_wide_product(insn) && type.bits == 32;

	if (wide && (!strcmp(insn->base, "mul") || !strcmp(insn->base, "mad"))) {
		struct atom atom = atom_of(a, &op[1], at);
		atom.times = op[2].value;
		atom.is_signed = type.kind == 's';
		add_atom(s, atom);
		if (insn->n_operands > 3)
			add_value(a, &op[3], at, s, depth);
		return true;
	}
	if (!is_plain(insn) || type.bits != 64)
		return false;
	if (!strcmp(insn->base, "add") && insn->n_operands == 3) {
		add_value(a, &op[1], at, s, depth);
		add_value(a, &op[2], at, s, depth);
		return true;
	}
	bool copies = insn->n_operands == 2 && (!strcmp(insn->base, "mov") || (!strcmp(insn->base, "cvta") && ptx_insn_has_mod(insn, "global")));
	bool less = insn->n_operands == 3 && !strcmp(insn->base, "sub") && is_same(a, &op[2], at, depth);
	if (copies || less)
		add_value(a, &op[1], at, s, depth);
	return copies || less;
}

/* Adds the atoms of a value of 64 bits as it is before statement `at`. */
static void add_value(const struct alike *a, const struct ptx_operand *op, uint32_t at, struct sum *s, uint32_t depth)
{
	if (is_same(a, op, at, 0))
		return;
	if ((op->kind != PTX_OPERAND_REG && op->kind != PTX_OPERAND_ADDRESS) || !op->reg || op->negated || op->component >= 0 || depth == MAX_DEPTH) {
		s->many = true;
		return;
	}
	struct atom atom = atom_of(a, op, at);
	if (atom.stmt == NO_STMT || !add_parts(a, atom.stmt, s, depth + 1))
		add_atom(s, atom);
}

static bool equal(const struct atom *x, const struct atom *y)
{
	if (x->stmt != y->stmt || x->times != y->times || x->is_signed != y->is_signed)
		return false;
	/* One statement may write several. */
	return x->reg == y->reg && !strcmp(x->name, y->name);
}

static bool same_atoms(const struct sum *x, struct sum *y)
{
	if (x->many || y->many || x->n != y->n)
		return false;
	for (uint32_t i = 0; i < x->n; i++) {
		uint32_t k = 0;
		while (k < y->n && !equal(&x->atoms[i], &y->atoms[k]))
			k++;
		if (k == y->n)
			return false;
		y->atoms[k] = y->atoms[--y->n];
	}
	return true;
}

bool alike_accesses(struct alike *a, uint32_t from, const struct spot *x, const struct spot *y)
{
	const struct ptx_func *f = a->place->func;
	const struct ptx_operand *p = &f->stmts[x->stmt].insn->operands[x->access.address], *q = &f->stmts[y->stmt].insn->operands[y->access.address];
	struct sum one = { .n = 0 }, other = { .n = 0 };

	if (x->access.bytes != y->access.bytes || x->access.space != PTX_SPACE_GLOBAL || y->access.space != PTX_SPACE_GLOBAL || !p->base_is_reg ||
		!q->base_is_reg || !p->reg || !q->reg || p->reg->type.bits != 64 || q->reg->type.bits != 64)
		return false;
	for (uint32_t i = from; i < x->stmt || i < y->stmt; i++) {
		if (f->stmts[i].kind == PTX_STMT_OPEN || f->stmts[i].kind == PTX_STMT_CLOSE || f->stmts[i].kind == PTX_STMT_LABEL)
			return false;
	}
	a->from = from;
	add_value(a, p, x->stmt, &one, 0);
	add_value(a, q, y->stmt, &other, 0);
	return same_atoms(&one, &other);
}
