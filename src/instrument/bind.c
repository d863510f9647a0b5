/* bind.c - requires collect; leaves edits that turn every use of a .global or .const variable into
 * a register with its address in the original module. ptxas takes no immediate as an address, so
 * the addresses come from a constant table that the agent fills. A .const variable's address is an
 * ordinary one in global memory: reads through it become global reads. */
#include <stdio.h>
#include <string.h>

#include "instrument/variant.h"

/* -- fates -- */

static bool is_unbound(const struct variant *v, const char *name)
{
	for (uint32_t i = 0; i < v->n_unbound; i++) {
		if (!strcmp(v->unbound[i], name))
			return true;
	}
	return false;
}

static bool decide(struct variant *v, struct symbol *s)
{
	const struct ptx_var *var = s->var;

	if (var->space != PTX_SPACE_GLOBAL && var->space != PTX_SPACE_CONST) {
		s->fate = FATE_KEEP;
		return true;
	}
	if (is_unbound(v, var->name)) {
		s->fate = FATE_COPY;
		if (private_copyable(v, var))
			return true;
		if (v->err)
			return false;
		return variant_refuse(v, var->line,
			"its variable '%s' cannot be found in the loaded module and may be "
			"written, so it cannot be copied",
			var->name);
	}
	s->fate = FATE_BIND;
	s->entry = v->n_bound++;
	v->const_bound |= var->space == PTX_SPACE_CONST;
	return true;
}

int64_t bound_reg(const struct variant *v, const struct ptx_operand *op)
{
	return (int64_t)(uintptr_t)table_get(v->bound_regs, &op, sizeof(op)) - 1;
}

/* -- uses -- */

static bool is_used_bytes_pragma(const struct variant *v, const struct ptx_stmt *s)
{
	const char *text = v->m->text + s->span.begin;
	static const char pragma[] = ".pragma";

	if (s->kind != PTX_STMT_OTHER || strncmp(text, pragma, sizeof(pragma) - 1))
		return false;
	const char *found = strstr(text, "used_bytes_mask");
	return found && found < v->m->text + s->span.end;
}

uint32_t insert_point(const struct variant *v, const struct ptx_func *f, uint32_t stmt)
{
	while (stmt && is_used_bytes_pragma(v, &f->stmts[stmt - 1]))
		stmt--;
	return f->stmts[stmt].span.begin;
}

struct use {
	struct variant *v;
	struct place *place;
	uint32_t stmt;
	bool is_const; /* a .const symbol was replaced */
};

static bool bind_use(struct use *u, const struct ptx_operand *op, const struct symbol *s)
{
	struct variant *v = u->v;
	uint32_t reg = u->place->n_bound++;
	uint32_t at = insert_point(v, u->place->func, u->stmt);
	bool is_address = op->kind == PTX_OPERAND_ADDRESS;
	char *load, *text;

	load = arena_printf(v->arena, "ld.const.u64 %%egpu_s%u, [" TABLE_NAME "+%u];\n\t", reg,
		8 * (EBPF_TABLE_SYMBOLS + s->entry));
	if (is_address && op->value)
		text = arena_printf(v->arena, "[%%egpu_s%u+%lld]", reg, (long long)op->value);
	else if (is_address)
		text = arena_printf(v->arena, "[%%egpu_s%u]", reg);
	else
		text = arena_printf(v->arena, "%%egpu_s%u", reg);
	ptx_edit_insert(&v->edits, at, load);
	if (!is_address && op->value)
		ptx_edit_insert(&v->edits, at,
			arena_printf(v->arena, "add.s64 %%egpu_s%u, %%egpu_s%u, %lld;\n\t", reg,
				reg, (long long)op->value));
	ptx_edit_replace(&v->edits, op->span, text);
	u->is_const |= s->var->space == PTX_SPACE_CONST;
	return table_put(v->bound_regs, &op, sizeof(op), (void *)(uintptr_t)(reg + 1))
		       ? no_memory(v)
		       : true;
}

static bool bind_operand(struct use *u, const struct ptx_operand *op)
{
	const struct symbol *s = variant_symbol(u->v, op);

	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (!bind_operand(u, &op->sub[i]))
			return false;
	}
	return s && s->fate == FATE_BIND ? bind_use(u, op, s) : true;
}

/* "ld.const.f32" -> "ld.global.f32" */
static const char *with_space(struct variant *v, const struct ptx_insn *insn, const char *space)
{
	struct buf b = { 0 };
	char *text = NULL;

	buf_puts(&b, insn->base);
	for (uint32_t i = 0; i < insn->n_mods; i++)
		buf_printf(&b, ".%s", strcmp(insn->mods[i], "const") ? insn->mods[i] : space);
	if (!b.failed)
		text = arena_strdup(v->arena, b.data);
	buf_free(&b);
	return text;
}

/* Every address in .const space is a global address in the variant, also those in registers. */
static bool rewrite_const(struct variant *v, const struct ptx_stmt *s)
{
	const struct ptx_insn *insn = s->insn;

	if (!ptx_insn_has_mod(insn, "const"))
		return true;
	if (!strcmp(insn->base, "ld")) {
		ptx_edit_replace(&v->edits, insn->opcode_span, with_space(v, insn, "global"));
		return true;
	}
	if (!strcmp(insn->base, "cvta") && ptx_insn_type(insn).bits == 64) {
		ptx_edit_replace(&v->edits, insn->opcode_span, "mov.b64");
		return true;
	}
	return variant_refuse(v, s->line,
		"'%s' asks about .const space, which a variant does not use", insn->opcode);
}

/* The low half of an address would differ from the original's in meaning, not only in value. */
static bool takes_address(const struct ptx_insn *insn)
{
	struct ptx_type type = ptx_insn_type(insn);

	return type.bits == 64 || !type.bits;
}

static bool bind_stmt(struct variant *v, struct place *place, uint32_t i)
{
	const struct ptx_stmt *s = &place->func->stmts[i];
	struct use u = { v, place, i, false };
	uint32_t before = place->n_bound;
	struct ptx_access a;

	if (!s->insn || is_branch(s->insn))
		return true;
	for (uint32_t k = 0; k < s->insn->n_operands; k++) {
		const struct ptx_operand *op = &s->insn->operands[k];
		if (is_call(s->insn) && op == call_target(s->insn))
			continue;
		if (!bind_operand(&u, op))
			return false;
		if (place->n_bound != before && op->kind == PTX_OPERAND_SYMBOL &&
			!is_call(s->insn)) {
			ptx_insn_access(s->insn, &a);
			if (a.op == PTX_ACCESS_NONE && !takes_address(s->insn))
				return variant_refuse(v, s->line,
					"it takes 32 bits of the address of '%s'", op->name);
		}
	}
	return !v->const_bound || rewrite_const(v, s);
}

/* A pointer to .const space that comes from outside is no global address. */
static bool check_params(struct variant *v)
{
	for (uint32_t i = 0; v->const_bound && i < v->kernel->n_params; i++) {
		const struct ptx_var *param = &v->kernel->params[i];
		const char *found = strstr(v->m->text + param->span.begin, ".const");
		if (found && found < v->m->text + param->span.end)
			return variant_refuse(v, param->line,
				"its parameter '%s' points to .const space", param->name);
	}
	return true;
}

static bool bind_place(struct variant *v, struct place *place)
{
	for (uint32_t i = 0; i < place->func->n_stmts; i++) {
		if (!bind_stmt(v, place, i))
			return false;
	}
	if (place->n_bound)
		ptx_edit_insert(&v->edits, place->func->body.begin + 1,
			arena_printf(v->arena, "\n\t.reg .b64 %%egpu_s<%u>;\n", place->n_bound));
	return true;
}

bool bind(struct variant *v)
{
	for (size_t i = 0; i < v->n_symbols; i++) {
		if (!decide(v, v->symbol_list[i]))
			return false;
	}
	if (!check_params(v))
		return false;
	for (uint32_t i = 0; i < v->n_places; i++) {
		if (!bind_place(v, &v->places[i]))
			return false;
	}
	return true;
}
