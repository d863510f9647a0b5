/* names.c - interned strings and opcodes; which names are registers in the scope being read. */
#include <string.h>

#include "ptx/parse.h"

const char *intern(struct parser *p, const char *s, size_t n)
{
	char *found = table_get(p->strings, s, n);

	if (found)
		return found;
	char *copy = arena_strndup(p->arena, s, n);
	if (!copy || table_put(p->strings, copy, n, copy)) {
		fail_memory(p);
		return NULL;
	}
	return copy;
}

const char *intern_tok(struct parser *p, struct tok t)
{
	return intern(p, p->m->text + t.begin, t.end - t.begin);
}

/* "ld.shared::cta.f32" -> base "ld", mods "shared::cta", "f32". */
static bool split_opcode(struct parser *p, struct opcode *op)
{
	const char *s = strchr(op->text, '.');

	op->base = s ? intern(p, op->text, (size_t)(s - op->text)) : op->text;
	if (!op->base)
		return false;
	for (const char *q = s; q; q = strchr(q + 1, '.'))
		op->n_mods++;
	op->mods = arena_array(p->arena, op->n_mods, sizeof(*op->mods));
	if (!op->mods)
		return fail_memory(p);
	for (uint32_t i = 0; i < op->n_mods; i++) {
		const char *begin = s + 1;
		s = strchr(begin, '.');
		op->mods[i] = intern(p, begin, s ? (size_t)(s - begin) : strlen(begin));
		if (!op->mods[i])
			return false;
	}
	return true;
}

const struct opcode *intern_opcode(struct parser *p, const char *s, size_t n)
{
	struct opcode *op = table_get(p->opcodes, s, n);

	if (op)
		return op;
	op = arena_alloc(p->arena, sizeof(*op));
	if (!op) {
		fail_memory(p);
		return NULL;
	}
	op->text = intern(p, s, n);
	if (!op->text || !split_opcode(p, op))
		return NULL;
	if (table_put(p->opcodes, s, n, op)) {
		fail_memory(p);
		return NULL;
	}
	return op;
}

static bool declare(struct parser *p, struct decl decl)
{
	struct decl *d = arena_alloc(p->arena, sizeof(*d));
	struct decl **slot = vec_push(&p->undo);

	if (!d || !slot)
		return fail_memory(p);
	*slot = d;
	*d = decl;
	d->order = p->undo.n;
	d->shadowed = table_gets(p->decls, d->name);
	return table_puts(p->decls, d->name, d) ? fail_memory(p) : true;
}

bool names_declare_reg(struct parser *p, const struct ptx_reg *reg)
{
	return declare(
		p, (struct decl){
			   .name = reg->name, .reg = reg, .count = reg->count, .is_reg = true });
}

bool names_declare_var(struct parser *p, const struct ptx_var *var)
{
	return declare(
		p, (struct decl){
			   .name = var->name, .var = var, .is_reg = var->space == PTX_SPACE_REG });
}

void names_unwind(struct parser *p, size_t to)
{
	struct decl **undo = (struct decl **)p->undo.data;

	while (p->undo.n > to) {
		struct decl *d = undo[--p->undo.n];
		/* A put of an existing key allocates nothing, so it cannot fail. */
		if (d->shadowed)
			table_puts(p->decls, d->name, d->shadowed);
		else
			table_remove(p->decls, d->name, strlen(d->name));
	}
}

/* %r<10> declares %r0..%r9; the prefix itself may end in digits, so every split is tried, and the innermost scope's is meant. */
static const struct decl *in_range(const struct parser *p, const char *name)
{
	size_t n = strlen(name), digits = 0;
	uint64_t index = 0, scale = 1;
	const struct decl *found = NULL;

	while (digits + 1 < n && digits < 9) {
		char c = name[n - 1 - digits];
		if (c < '0' || c > '9')
			break;
		index += (uint64_t)(c - '0') * scale;
		scale *= 10;
		digits++;
		if (c == '0' && digits > 1)
			continue; /* a leading zero is no spelling of an index */
		const struct decl *d = table_get(p->decls, name, n - digits);
		if (d && d->is_reg && d->count > index && (!found || d->order > found->order))
			found = d;
	}
	return found;
}

bool names_is_reg(const struct parser *p, const char *name, const struct decl **decl)
{
	const struct decl *d = table_gets(p->decls, name), *one_of = in_range(p, name);

	if (!d || (d->is_reg && d->count) || (one_of && one_of->order > d->order))
		d = one_of;
	*decl = d;
	if (d)
		return d->is_reg;
	return name[0] == '%' || !strcmp(name, "_");
}
