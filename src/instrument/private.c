/* private.c - whether a variable that cannot be bound may be copied: only the compiler made it
 * (nobody on the host can name it) and nothing in the module writes it.
 *
 * The second half follows the variable's address through each function: every register that is
 * computed from it is tainted, whatever the order of instructions, and the address must not be
 * stored, returned, or passed to anything but the driver's printing functions. */
#include <string.h>

#include "instrument/variant.h"
#include "ptx/lex.h"

/* nvcc: $str, __unnamed_1, __cudart_i2opi_f; clang turns the '.' of its own names into a '$'. */
static bool compiler_made(const char *name)
{
	return strchr(name, '$') || !strncmp(name, "__unnamed_", 10) ||
	       !strncmp(name, "__cudart_", 9) || !strncmp(name, "__const_", 8);
}

struct taint {
	struct variant *v;
	const char *symbol;
	bool points; /* the variable holds addresses itself: what is loaded from it counts too */
	struct table *names;
	bool changed, escapes, failed;
};

/* Registers go by name, variables by declaration: compilers call every outgoing argument param0. */
static const void *lookup(const struct taint *t, const struct ptx_operand *op)
{
	return op->var ? table_get(t->names, &op->var, sizeof(op->var))
		       : table_gets(t->names, op->name);
}

static void mark(struct taint *t, const struct ptx_operand *op)
{
	if (!op->name || lookup(t, op))
		return;
	t->changed = true;
	if (op->var ? table_put(t->names, &op->var, sizeof(op->var), (void *)op->name)
		    : table_puts(t->names, op->name, (void *)op->name))
		t->failed = true;
}

static bool is_tainted(const struct taint *t, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (is_tainted(t, &op->sub[i]))
			return true;
	}
	if (!op->name)
		return false;
	if (!op->var && !op->reg && !strcmp(op->name, t->symbol))
		return true;
	return lookup(t, op);
}

static void taint(struct taint *t, const struct ptx_operand *op)
{
	for (uint32_t i = 0; i < op->n_sub; i++)
		taint(t, &op->sub[i]);
	if (op->kind != PTX_OPERAND_ADDRESS)
		mark(t, op);
}

/* st.param [param0+0], tainted: the outgoing argument is tainted, a result of this function
 * escapes. */
static void store_param(struct taint *t, const struct ptx_func *f, const struct ptx_operand *to)
{
	for (uint32_t i = 0; i < f->n_results; i++) {
		if (to->var == &f->results[i])
			t->escapes = true;
	}
	mark(t, to);
}

static void flow_call(struct taint *t, const struct ptx_insn *insn)
{
	const struct ptx_operand *target = call_target(insn);
	bool reads_only =
		target && target->name &&
		(!strcmp(target->name, "vprintf") || !strcmp(target->name, "__assertfail"));

	for (uint32_t i = 0; i < insn->n_operands; i++) {
		if (is_tainted(t, &insn->operands[i]) && !reads_only)
			t->escapes = true;
	}
}

static void flow_access(struct taint *t, const struct ptx_func *f, const struct ptx_insn *insn,
	const struct ptx_access *a)
{
	const struct ptx_operand *address = &insn->operands[a->address];
	bool value = false;

	for (uint32_t i = 0; i < insn->n_operands; i++)
		value |= (int32_t)i != a->address && is_tainted(t, &insn->operands[i]);
	if (a->op == PTX_ACCESS_STORE && a->space == PTX_SPACE_PARAM) {
		if (value)
			store_param(t, f, address);
	} else if (a->op == PTX_ACCESS_LOAD) {
		bool passed = a->space == PTX_SPACE_PARAM || t->points;
		if (passed && is_tainted(t, address) && a->value >= 0)
			taint(t, &insn->operands[a->value]);
	} else if (value || is_tainted(t, address)) {
		t->escapes = true;
	}
}

static void flow_insn(struct taint *t, const struct ptx_func *f, const struct ptx_insn *insn)
{
	struct ptx_access a;
	bool source = false, address = false;

	if (is_branch(insn))
		return;
	if (is_call(insn)) {
		flow_call(t, insn);
		return;
	}
	ptx_insn_access(insn, &a);
	if (a.op != PTX_ACCESS_NONE && a.op != PTX_ACCESS_PREFETCH && a.address >= 0 &&
		strcmp(insn->base, "cp")) {
		flow_access(t, f, insn, &a);
		return;
	}
	for (uint32_t i = 0; i < insn->n_operands; i++) {
		const struct ptx_operand *op = &insn->operands[i];
		bool tainted = is_tainted(t, op);
		source |= i && tainted;
		address |= tainted &&
			   (op->kind == PTX_OPERAND_ADDRESS || op->kind == PTX_OPERAND_MULTI);
		/* Text that may name anything. */
		t->escapes |= op->kind == PTX_OPERAND_OTHER && tainted;
	}
	if (address && strncmp(insn->base, "prefetch", 8))
		t->escapes = true;
	else if (source)
		taint(t, &insn->operands[0]);
}

static bool uses_symbol(const struct taint *t, const struct ptx_func *f)
{
	for (uint32_t i = 0; i < f->n_stmts; i++) {
		const struct ptx_insn *insn = f->stmts[i].insn;
		for (uint32_t k = 0; insn && k < insn->n_operands; k++) {
			if (is_tainted(t, &insn->operands[k]))
				return true;
		}
	}
	return false;
}

static bool never_written(struct variant *v, const struct ptx_var *var, bool points)
{
	struct taint t = { .v = v, .symbol = var->name, .points = points };

	for (uint32_t i = 0; i < v->m->n_items && !t.escapes && !t.failed; i++) {
		const struct ptx_func *f = v->m->items[i].func;
		if (v->m->items[i].kind != PTX_ITEM_FUNC)
			continue;
		t.names = table_new();
		t.failed |= !t.names;
		if (t.names && uses_symbol(&t, f)) {
			do {
				t.changed = false;
				for (uint32_t k = 0; k < f->n_stmts; k++) {
					if (f->stmts[k].insn)
						flow_insn(&t, f, f->stmts[k].insn);
				}
			} while (t.changed && !t.escapes && !t.failed);
		}
		table_free(t.names);
	}
	if (t.failed)
		return no_memory(v);
	return !t.escapes;
}

/* Whether the initialiser names anything of the module. A copy would point to other copies. */
static bool init_names_symbols(struct variant *v, const struct ptx_var *var)
{
	struct lexer lx = { .text = v->m->text, .size = var->init.end, .pos = var->init.begin };
	struct tok t;

	while ((t = lex_next(&lx)).kind != TOK_EOF && t.kind != TOK_ERROR) {
		if (t.kind == TOK_IDENT)
			return true;
	}
	return false;
}

/* False without err: it may not be copied. */
bool private_copyable(struct variant *v, const struct ptx_var *var)
{
	if (var->linkage != PTX_LINK_NONE || var->space != PTX_SPACE_GLOBAL ||
		var->init.begin == var->init.end || !compiler_made(var->name))
		return false;
	return !init_names_symbols(v, var) && never_written(v, var, false);
}
