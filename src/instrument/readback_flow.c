/* readback_flow.c - an abstract run of spliced code: for each register, what it may hold at each
 * point. A store is good when its address can only be made of a map's address (or the scope's own
 * local memory); a pointer that may also be any number is none.
 *
 * A value is a set of bits: PLAIN any number, NULL_ the constant 0, MAP from the table's map
 * entries, LOCAL the scope's own local memory, LANES the arrays of what lanes hand over, which inputs alone write, and one for each parameter of a function, which its
 * callers answer for. Literal zero joins with pointers, because a null-checked pointer is one.
 */
#include "instrument/readback_flow.h"

#include <errno.h>
#include <string.h>

#include "bpf/fragment.h"
#include "live/object.h"

enum {
	PLAIN = 1,
	NULL_ = 2,
	MAP = 4,
	LOCAL = 8,
	LANES = 16,
	PARAM0 = 32,
	MAX_PARAMS = 24,
	MAX_CELLS = 1 << 24
};
#define POINTERS (~(uint32_t)(PLAIN | NULL_))

struct summary {
	uint32_t needs;  /* parameters that must be pointers: bits PARAM0 << i */
	uint32_t result; /* what it returns, in terms of its parameters */
};

enum {
	PAUSE_NS = 100,
	MOST_KEPT = 64, /* statements with which a function begins, what is carried between splices among them */
};

enum form {
	FORM_ALU, /* operand 0 is written, from registers alone */
	FORM_LOAD,
	FORM_STORE,
	FORM_ATOM,
	FORM_RED,
	FORM_BRANCH,
	FORM_CALL,
	FORM_RET,
	FORM_STOP, /* of the thread or all: only in functions named for it */
	FORM_FENCE,
	FORM_PAUSE,
	FORM_ACTIVE,
	FORM_WARP,   /* the mask is the last operand */
	FORM_BALLOT, /* vote without .sync */
	FORM_TOGETHER, /* bar, of which only bar.warp.sync is allowed */
};

static const struct {
	const char *base;
	enum form form;
} forms[] = {
	{ "mov", FORM_ALU },
	{ "add", FORM_ALU },
	{ "sub", FORM_ALU },
	{ "mul", FORM_ALU },
	{ "mad", FORM_ALU },
	{ "mul24", FORM_ALU },
	{ "mad24", FORM_ALU },
	{ "div", FORM_ALU },
	{ "rem", FORM_ALU },
	{ "abs", FORM_ALU },
	{ "neg", FORM_ALU },
	{ "min", FORM_ALU },
	{ "max", FORM_ALU },
	{ "and", FORM_ALU },
	{ "or", FORM_ALU },
	{ "xor", FORM_ALU },
	{ "not", FORM_ALU },
	{ "cnot", FORM_ALU },
	{ "shl", FORM_ALU },
	{ "shr", FORM_ALU },
	{ "shf", FORM_ALU },
	{ "lop3", FORM_ALU },
	{ "prmt", FORM_ALU },
	{ "bfe", FORM_ALU },
	{ "bfi", FORM_ALU },
	{ "bfind", FORM_ALU },
	{ "brev", FORM_ALU },
	{ "clz", FORM_ALU },
	{ "popc", FORM_ALU },
	{ "fns", FORM_ALU },
	{ "set", FORM_ALU },
	{ "setp", FORM_ALU },
	{ "selp", FORM_ALU },
	{ "slct", FORM_ALU },
	{ "cvt", FORM_ALU },
	{ "cvta", FORM_ALU },
	{ "isspacep", FORM_ALU },
	{ "addc", FORM_ALU },
	{ "subc", FORM_ALU },
	{ "madc", FORM_ALU },
	{ "fma", FORM_ALU },
	{ "sad", FORM_ALU },
	{ "dp4a", FORM_ALU },
	{ "dp2a", FORM_ALU },
	{ "rcp", FORM_ALU },
	{ "sqrt", FORM_ALU },
	{ "rsqrt", FORM_ALU },
	{ "lg2", FORM_ALU },
	{ "ex2", FORM_ALU },
	{ "bmsk", FORM_ALU },
	{ "szext", FORM_ALU },
	{ "ld", FORM_LOAD },
	{ "ldu", FORM_LOAD },
	{ "st", FORM_STORE },
	{ "atom", FORM_ATOM },
	{ "red", FORM_RED },
	{ "bra", FORM_BRANCH },
	{ "call", FORM_CALL },
	{ "ret", FORM_RET },
	{ "exit", FORM_STOP },
	{ "trap", FORM_STOP },
	{ "membar", FORM_FENCE },
	{ "fence", FORM_FENCE },
	{ "nanosleep", FORM_PAUSE },
	{ "activemask", FORM_ACTIVE },
	{ "match", FORM_WARP },
	{ "shfl", FORM_WARP },
	{ "redux", FORM_WARP },
	{ "elect", FORM_WARP },
	{ "vote", FORM_BALLOT },
	{ "bar", FORM_TOGETHER },
};

static bool form_of(const char *base, enum form *out)
{
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (!strcmp(forms[i].base, base)) {
			*out = forms[i].form;
			return true;
		}
	}
	return false;
}

/* One scope or function. */
enum { FIRST_BLOCK = 1 };

struct region {
	struct readback *r;
	const struct ptx_func *f;
	uint32_t from, to;        /* statements, both included */
	bool is_function, writes; /* writes: memory may be written (a fragment, not its inputs) */
	struct table *bases;      /* &reg -> number of its first cell + 1 */
	uint32_t n_cells;
	uint32_t *state;      /* per cell */
	struct table *labels; /* &statement -> uint32_t[n_cells] */
	struct table *args;   /* &var of .param space -> class + 1 */
	uint32_t *mask_block; /* per cell: block in which activemask wrote it, 0 never */
	uint32_t block;
	int64_t came; /* cell + 1 of the mask of those who are here at the beginning, where a branch goes round for others */
	uint32_t local; /* join of what was stored in local memory */
	bool live, changed;
	struct summary sum;
	uint32_t line, at; /* the statement */
};

bool readback_fail(struct readback *r, uint32_t line, const char *what, const char *name)
{
	diag_set_at(r->d, EOPNOTSUPP, line, 0, "internal check failed: %s%s%s%s", what,
		name ? " '" : "", name ? name : "", name ? "'" : "");
	r->err = -EOPNOTSUPP;
	return false;
}

bool readback_no_memory(struct readback *r)
{
	r->err = diag_set(r->d, ENOMEM, "out of memory while checking a variant");
	return false;
}

bool readback_is_own_function(const struct ptx_func *f)
{
	return !f->is_entry && !strncmp(f->name, "__egpu_", 7);
}

static bool fail(struct region *g, const char *what, const char *name)
{
	return readback_fail(g->r, g->line, what, name);
}

/* -- registers -- */

/* The cell of a register that this region declares, or -1. */
static int64_t cell_of(const struct region *g, const struct ptx_operand *op)
{
	uintptr_t base = op->reg ? (uintptr_t)table_get(g->bases, &op->reg, sizeof(op->reg)) : 0;
	uint64_t index = 0;

	if (!base)
		return -1;
	for (const char *s = op->name + strlen(op->reg->name); op->reg->count && *s; s++)
		index = index * 10 + (uint64_t)(*s - '0');
	return (int64_t)(base - 1 + (index < op->reg->count || !op->reg->count ? index : 0));
}

static bool declare(struct region *g, const struct ptx_stmt *s)
{
	for (uint32_t i = 0; i < s->n_regs; i++) {
		const struct ptx_reg *reg = &s->regs[i];
		uint64_t n = reg->count ? reg->count : 1;
		if (g->n_cells + n > MAX_CELLS)
			return fail(g, "too many registers", NULL);
		if (table_put(g->bases, &reg, sizeof(reg), (void *)(uintptr_t)(g->n_cells + 1)))
			return readback_no_memory(g->r);
		g->n_cells += (uint32_t)n;
	}
	return true;
}

/* Whether the variable is declared inside the region (or is a function's own parameter). */
static bool own_var(const struct region *g, const struct ptx_var *var)
{
	for (uint32_t i = g->from; var && i <= g->to; i++) {
		if (g->f->stmts[i].kind == PTX_STMT_VAR && g->f->stmts[i].var == var)
			return true;
	}
	for (uint32_t i = 0; g->is_function && i < g->f->n_params; i++) {
		if (&g->f->params[i] == var)
			return true;
	}
	for (uint32_t i = 0; g->is_function && i < g->f->n_results; i++) {
		if (&g->f->results[i] == var)
			return true;
	}
	return false;
}

/* The lanes' arrays are declared among the first in the function, splices not counted. */
static bool is_lanes(const struct region *g, const struct ptx_var *var)
{
	for (uint32_t i = 0, n = 0; var && !g->is_function && n < MOST_KEPT && i < g->from; i++, n++) {
		const struct ptx_stmt *s = &g->f->stmts[i];
		if (s->kind == PTX_STMT_VAR && s->var == var && readback_is_lanes(g->r, s))
			return true;
		if (readback_is_splice(g->r, s))
			i = s->match;
	}
	return false;
}

static uint32_t value_of_var(const struct region *g, const struct ptx_var *var)
{
	if (own_var(g, var) && var->space == PTX_SPACE_LOCAL)
		return LOCAL;
	return is_lanes(g, var) ? LANES : PLAIN;
}

static uint32_t value_of(const struct region *g, const struct ptx_operand *op)
{
	switch (op->kind) {
	case PTX_OPERAND_REG: {
		int64_t cell = cell_of(g, op);
		return cell < 0 ? PLAIN : g->state[cell];
	}
	case PTX_OPERAND_INT:
		return op->value ? PLAIN : NULL_;
	case PTX_OPERAND_SYMBOL:
		return value_of_var(g, op->var);
	default:
		return PLAIN;
	}
}

static bool write_one(
	struct region *g, const struct ptx_insn *insn, const struct ptx_operand *op, uint32_t value)
{
	if (op->kind == PTX_OPERAND_REG && !strcmp(op->name, "_"))
		return true;
	int64_t cell = op->kind == PTX_OPERAND_REG ? cell_of(g, op) : -1;
	if (cell < 0)
		return fail(g, "a spliced instruction writes what is not its own:",
			op->name ? op->name : insn->opcode);
	g->state[cell] = insn->pred ? g->state[cell] | value : value;
	g->mask_block[cell] = 0;
	return true;
}

static bool write_to(
	struct region *g, const struct ptx_insn *insn, const struct ptx_operand *op, uint32_t value)
{
	if (op->kind != PTX_OPERAND_VECTOR && op->kind != PTX_OPERAND_PAIR)
		return write_one(g, insn, op, value);
	for (uint32_t i = 0; i < op->n_sub; i++) {
		if (!write_one(g, insn, &op->sub[i], value))
			return false;
	}
	return true;
}

/* -- values -- */

static uint32_t sum(uint32_t a, uint32_t b)
{
	uint32_t sure = MAP | LOCAL | LANES, params = POINTERS & ~sure;
	bool pa = a & POINTERS, pb = b & POINTERS;

	if (!pa && !pb)
		return PLAIN;
	if (pa != pb)
		return pa ? a : b;
	if (!(a & sure) && !(b & sure))
		return (a | b) & (params | PLAIN);
	if ((a & sure) && (b & sure))
		return PLAIN;
	return a & sure ? a : b;
}

static uint32_t result_of(const struct region *g, const struct ptx_insn *insn)
{
	const struct ptx_operand *op = insn->operands;
	const char *base = insn->base;
	uint32_t n = insn->n_operands;

	if (!strcmp(base, "mov") || !strcmp(base, "cvta"))
		return n == 2 ? value_of(g, &op[1]) : PLAIN;
	if (!strcmp(base, "add") && n == 3)
		return sum(value_of(g, &op[1]), value_of(g, &op[2]));
	if (!strcmp(base, "sub") && n == 3)
		return value_of(g, &op[2]) & (MAP | LOCAL | LANES) ? PLAIN
		       : value_of(g, &op[1]) & POINTERS    ? value_of(g, &op[1])
							   : PLAIN;
	if (!strcmp(base, "mad") && n == 4)
		return value_of(g, &op[3]) & POINTERS ? value_of(g, &op[3]) : PLAIN;
	if ((!strcmp(base, "selp") || !strcmp(base, "min") || !strcmp(base, "max")) && n >= 3)
		return value_of(g, &op[1]) | value_of(g, &op[2]);
	return PLAIN;
}

/* -- memory -- */

static bool need_pointer(struct region *g, uint32_t value, const char *opcode)
{
	if ((value & (PLAIN | LANES)) || !(value & POINTERS))
		return fail(g, "a spliced write through no map pointer:", opcode);
	g->sum.needs |= value & ~(uint32_t)(NULL_ | MAP | LOCAL);
	return true;
}

static bool is_shared(const struct ptx_insn *insn)
{
	for (uint32_t i = 0; i < insn->n_mods; i++) {
		if (!strncmp(insn->mods[i], "shared", 6))
			return true;
	}
	return false;
}

static uint32_t address_value(const struct region *g, const struct ptx_operand *op)
{
	if (!op->name)
		return PLAIN;
	if (op->base_is_reg) {
		int64_t cell = cell_of(g, op);
		return cell < 0 ? PLAIN : g->state[cell];
	}
	return value_of_var(g, op->var);
}

static bool has_mod(const struct ptx_insn *insn, const char *prefix)
{
	for (uint32_t i = 0; i < insn->n_mods; i++) {
		if (!strncmp(insn->mods[i], prefix, strlen(prefix)))
			return true;
	}
	return false;
}

static uint32_t param_index(const struct region *g, const struct ptx_var *var)
{
	for (uint32_t i = 0; i < g->f->n_params && i < MAX_PARAMS; i++) {
		if (&g->f->params[i] == var)
			return i;
	}
	return MAX_PARAMS;
}

static bool visit_load(struct region *g, const struct ptx_insn *insn)
{
	const struct ptx_operand *to = &insn->operands[0], *from = &insn->operands[1];
	uint32_t value = PLAIN;

	if (insn->n_operands < 2 || from->kind != PTX_OPERAND_ADDRESS)
		return fail(g, "a load of a form this check does not know:", insn->opcode);
	if (is_shared(insn))
		return fail(g, "a spliced access to shared memory:", insn->opcode);
	if (has_mod(insn, "const")) {
		if (from->base_is_reg || !from->name || strcmp(from->name, "__egpu_table"))
			return fail(g,
				"a spliced read of .const space beside the table:", insn->opcode);
		if (from->value >= 0 && from->value % 8 == 0 && from->value / 8 < EBPF_TABLE_MAPS)
			value = MAP;
	} else if (has_mod(insn, "param")) {
		if (g->is_function && param_index(g, from->var) < MAX_PARAMS)
			value = (uint32_t)PARAM0 << param_index(g, from->var);
		else if (own_var(g, from->var))
			value = (uint32_t)(uintptr_t)table_get(
				g->args, &from->var, sizeof(from->var));
		if (!value)
			value = PLAIN;
	} else if (!has_mod(insn, "global")) {
		uint32_t at = address_value(g, from);
		if ((at != LANES || !has_mod(insn, "local")) && !need_pointer(g, at, insn->opcode))
			return false;
		value = at & LOCAL ? g->local | PLAIN * !g->local : PLAIN;
	}
	return write_to(g, insn, to, value);
}

static bool visit_store(struct region *g, const struct ptx_insn *insn)
{
	const struct ptx_operand *to = &insn->operands[0];

	if (insn->n_operands < 2 || to->kind != PTX_OPERAND_ADDRESS)
		return fail(g, "a store of a form this check does not know:", insn->opcode);
	if (is_shared(insn))
		return fail(g, "a spliced access to shared memory:", insn->opcode);
	uint32_t value = value_of(g, &insn->operands[1]);
	if (has_mod(insn, "param")) {
		if (to->base_is_reg || !own_var(g, to->var))
			return fail(g, "a spliced store to a parameter of the kernel:", to->name);
		uint32_t old = (uint32_t)(uintptr_t)table_get(g->args, &to->var, sizeof(to->var));
		for (uint32_t i = 0; g->is_function && i < g->f->n_results; i++) {
			if (to->var == &g->f->results[i])
				g->sum.result |= value;
		}
		return table_put(g->args, &to->var, sizeof(to->var),
			       (void *)(uintptr_t)(insn->pred ? old | value : value))
			       ? readback_no_memory(g->r)
			       : true;
	}
	uint32_t at = address_value(g, to);
	if (!g->writes && at == LANES && value == PLAIN && has_mod(insn, "local"))
		return true;
	if (!g->writes)
		return fail(g, "the inputs of a probe write memory:", insn->opcode);
	if (at & LOCAL) {
		g->changed |= (g->local | value) != g->local;
		g->local |= value;
	}
	return need_pointer(g, at, insn->opcode);
}

static bool visit_atomic(struct region *g, const struct ptx_insn *insn, bool has_result)
{
	if (insn->n_operands < 2u + has_result ||
		insn->operands[has_result].kind != PTX_OPERAND_ADDRESS)
		return fail(g, "an atomic of a form this check does not know:", insn->opcode);
	if (is_shared(insn) || has_mod(insn, "async"))
		return fail(g, "a spliced access to shared memory:", insn->opcode);
	if (!g->writes)
		return fail(g, "the inputs of a probe write memory:", insn->opcode);
	if (!need_pointer(g, address_value(g, &insn->operands[has_result]), insn->opcode))
		return false;
	return has_result ? write_to(g, insn, &insn->operands[0], PLAIN) : true;
}

/* -- calls -- */

static uint32_t argument(const struct region *g, const struct ptx_operand *op)
{
	if (op->kind == PTX_OPERAND_SYMBOL && op->var)
		return (uint32_t)(uintptr_t)table_get(g->args, &op->var, sizeof(op->var));
	return value_of(g, op);
}

static bool visit_call(struct region *g, const struct ptx_insn *insn)
{
	const struct ptx_operand *op = insn->operands, *results = NULL, *args = NULL;
	uint32_t n = insn->n_operands, k = 0;

	if (n && op[0].kind == PTX_OPERAND_GROUP)
		results = &op[k++];
	if (k >= n || op[k].kind != PTX_OPERAND_SYMBOL)
		return fail(g, "a spliced call of no name", NULL);
	const char *name = op[k++].name;
	const struct summary *s = table_gets(g->r->functions, name);
	if (!s)
		return fail(g, "a spliced call of a function that is no fragment's:", name);
	args = k < n && op[k].kind == PTX_OPERAND_GROUP ? &op[k] : NULL;
	uint32_t returned = s->result & (PLAIN | NULL_ | MAP);
	for (uint32_t i = 0; i < MAX_PARAMS; i++) {
		uint32_t bit = (uint32_t)PARAM0 << i;
		uint32_t value = args && i < args->n_sub ? argument(g, &args->sub[i]) : PLAIN;
		if ((s->needs & bit) && !need_pointer(g, value, name))
			return false;
		if (s->result & bit)
			returned |= value;
	}
	for (uint32_t i = 0; results && i < results->n_sub; i++) {
		const struct ptx_operand *to = &results->sub[i];
		if (to->kind == PTX_OPERAND_SYMBOL && own_var(g, to->var)) {
			if (table_put(g->args, &to->var, sizeof(to->var),
				    (void *)(uintptr_t)returned))
				return readback_no_memory(g->r);
		} else if (!write_to(g, insn, to, returned)) {
			return false;
		}
	}
	return true;
}

/* -- control -- */

/* The label that a branch means: the nearest scope around it that has one of the name. NULL: none in the region. */
static const struct ptx_stmt *label_of(const struct region *g, const char *name)
{
	const struct ptx_stmt *stmts = g->f->stmts;
	uint32_t open = g->at;

	for (bool out = true; out;) {
		uint32_t end = g->to;
		out = false;
		while (open > g->from && !out) {
			open--;
			if (stmts[open].kind == PTX_STMT_CLOSE)
				open = stmts[open].match;
			else
				out = stmts[open].kind == PTX_STMT_OPEN;
		}
		end = out ? stmts[open].match : end;
		for (uint32_t i = out ? open + 1 : g->from; i <= end; i++) {
			if (stmts[i].kind == PTX_STMT_LABEL && !strcmp(stmts[i].name, name))
				return &stmts[i];
			if (stmts[i].kind == PTX_STMT_OPEN)
				i = stmts[i].match;
		}
	}
	return NULL;
}

static bool join_label(struct region *g, const struct ptx_stmt *label)
{
	uint32_t *at = table_get(g->labels, &label, sizeof(label));

	if (!at) {
		if (((uint64_t)table_count(g->labels) + 1) * (g->n_cells + 1) > MAX_CELLS)
			return fail(g, "too many labels", NULL);
		at = arena_array(g->r->arena, g->n_cells + 1, sizeof(*at));
		if (!at || table_put(g->labels, &label, sizeof(label), at))
			return readback_no_memory(g->r);
		g->changed = true;
	}
	for (uint32_t i = 0; i < g->n_cells; i++) {
		g->changed |= (at[i] | g->state[i]) != at[i];
		at[i] |= g->state[i];
	}
	return true;
}

static const struct ptx_insn *insn_before(const struct region *g, uint32_t at, uint32_t n, const char *base)
{
	const struct ptx_insn *insn = at >= g->from + n ? g->f->stmts[at - n].insn : NULL;

	return insn && !insn->pred && !strcmp(insn->base, base) ? insn : NULL;
}

/* The label that ends a scope, behind the barrier for all who came to it. */
static bool is_behind_meeting(const struct region *g, const struct ptx_stmt *label)
{
	return label == &g->f->stmts[g->to] && insn_before(g, g->to, 1, "bar");
}

/* Whether a branch is of none of the lanes that came to the scope: of those whose own bit is not in its activemask, asked just before. */
static bool goes_round(struct region *g, const struct ptx_insn *insn)
{
	const struct ptx_insn *asks = insn_before(g, g->at, 1, "setp"), *picks = insn_before(g, g->at, 2, "and"), *own = insn_before(g, g->at, 3, "mov");

	if (g->is_function || g->block != FIRST_BLOCK || !insn->pred || insn->pred_negated || !asks || !picks || !own || asks->n_operands != 3 ||
		picks->n_operands != 3 || own->n_operands != 2 || own->operands[1].kind != PTX_OPERAND_REG || !ptx_insn_has_mod(asks, "eq") || asks->n_mods != 2 || strcmp(own->operands[1].name, "%lanemask_eq"))
		return false;
	int64_t bit = cell_of(g, &own->operands[0]), mask = cell_of(g, &picks->operands[2]);
	if (bit < 0 || mask < 0 || bit == mask || cell_of(g, &picks->operands[0]) != bit || cell_of(g, &picks->operands[1]) != bit ||
		cell_of(g, &asks->operands[1]) != bit || asks->operands[2].kind != PTX_OPERAND_INT || asks->operands[2].value ||
		asks->operands[0].kind != PTX_OPERAND_REG || cell_of(g, &asks->operands[0]) < 0 || strcmp(asks->operands[0].name, insn->pred) ||
		g->mask_block[mask] != FIRST_BLOCK)
		return false;
	g->came = mask + 1;
	return true;
}

static bool visit_branch(struct region *g, const struct ptx_insn *insn)
{
	const struct ptx_operand *to = &insn->operands[0];

	const struct ptx_stmt *label = insn->n_operands == 1 && to->kind == PTX_OPERAND_SYMBOL ? label_of(g, to->name) : NULL;

	if (!label)
		return fail(g, "a spliced branch out of its scope:", insn->opcode);
	if (is_behind_meeting(g, label) && !goes_round(g, insn))
		return fail(g, "a spliced branch past a barrier, of lanes whose activemask it waits for:", insn->opcode);
	if (!join_label(g, label))
		return false;
	g->live = insn->pred;
	g->block++;
	return true;
}

static bool visit_label(struct region *g, const struct ptx_stmt *s)
{
	uint32_t *at;

	if (g->live && !join_label(g, s))
		return false;
	at = table_get(g->labels, &s, sizeof(s));
	if (at)
		memcpy(g->state, at, g->n_cells * sizeof(*at));
	g->live = at;
	g->block++;
	return true;
}

/* -- warps -- */

static bool visit_active(struct region *g, const struct ptx_insn *insn)
{
	if (insn->n_operands != 1 || !write_to(g, insn, &insn->operands[0], PLAIN))
		return g->r->err ? false : fail(g, "no valid", insn->opcode);
	int64_t cell = cell_of(g, &insn->operands[0]);
	if (cell >= 0 && !insn->pred)
		g->mask_block[cell] = g->block;
	return true;
}

/* Before sm_70 the lanes of a warp stay together, and a loop over them may keep its mask. */
static bool check_mask(struct region *g, const struct ptx_insn *insn)
{
	const struct ptx_operand *mask = &insn->operands[insn->n_operands - 1];
	int64_t cell = mask->kind == PTX_OPERAND_REG ? cell_of(g, mask) : -1;

	if (!ptx_insn_has_mod(insn, "sync") || insn->pred)
		return fail(g, "a spliced warp operation of a form this check does not know:",
			insn->opcode);
	if (cell < 0 || !g->mask_block[cell] ||
		(g->mask_block[cell] != g->block && g->r->m->sm >= 70))
		return fail(g,
			"a spliced warp operation whose mask is not the activemask of its block:",
			insn->opcode);
	return true;
}

static bool visit_warp(struct region *g, const struct ptx_insn *insn)
{
	if (insn->n_operands < 2)
		return fail(g, "a spliced warp operation of a form this check does not know:",
			insn->opcode);
	return check_mask(g, insn) && write_to(g, insn, &insn->operands[0], PLAIN);
}

/* The lanes of a warp that are here wait for each other; a barrier of the block is the kernel's own. */
static bool visit_together(struct region *g, const struct ptx_insn *insn)
{
	if (insn->n_operands != 1 || !ptx_insn_has_mod(insn, "warp"))
		return fail(g, "a spliced instruction that this check does not know:", insn->opcode);
	/* Those who came to a site together, asked before any may have left, and where each of them passes. */
	int64_t cell = insn->operands[0].kind == PTX_OPERAND_REG ? cell_of(g, &insn->operands[0]) : -1;
	bool all_pass = g->at == g->to || (g->at + 1 == g->to && g->f->stmts[g->to].kind == PTX_STMT_LABEL && g->came == cell + 1);
	if (cell >= 0 && g->mask_block[cell] == FIRST_BLOCK && all_pass && !g->is_function && !insn->pred)
		return true;
	return check_mask(g, insn);
}

/* vote.ballot over the lanes that are here says what activemask says. */
static bool visit_vote(struct region *g, const struct ptx_insn *insn)
{
	if (ptx_insn_has_mod(insn, "sync"))
		return visit_warp(g, insn);
	if (g->r->m->sm >= 70 || insn->pred || insn->n_operands != 2 ||
		!ptx_insn_has_mod(insn, "ballot"))
		return fail(g, "a spliced warp operation of a form this check does not know:",
			insn->opcode);
	if (!write_to(g, insn, &insn->operands[0], PLAIN))
		return false;
	int64_t cell = cell_of(g, &insn->operands[0]);
	if (cell >= 0)
		g->mask_block[cell] = g->block;
	return true;
}

/* -- the walk -- */

static bool visit_insn(struct region *g, const struct ptx_insn *insn)
{
	enum form form;

	if (!form_of(insn->base, &form))
		return fail(
			g, "a spliced instruction that this check does not know:", insn->opcode);
	if (!insn->n_operands && form != FORM_FENCE && form != FORM_RET && form != FORM_STOP)
		return fail(g, "a spliced instruction without operands:", insn->opcode);
	switch (form) {
	case FORM_ALU:
		return write_to(g, insn, &insn->operands[0], result_of(g, insn));
	case FORM_LOAD:
		return visit_load(g, insn);
	case FORM_STORE:
		return visit_store(g, insn);
	case FORM_ATOM:
		return visit_atomic(g, insn, true);
	case FORM_RED:
		return visit_atomic(g, insn, false);
	case FORM_BRANCH:
		return visit_branch(g, insn);
	case FORM_CALL:
		return visit_call(g, insn);
	case FORM_RET:
		if (!g->is_function)
			return fail(g, "a spliced way out of the kernel:", insn->opcode);
		g->live = insn->pred;
		g->block++;
		return true;
	case FORM_STOP:
		if (!g->is_function || strncmp(g->f->name, "__egpu_perturb_", 15))
			return fail(g, "a spliced way out of the kernel:", insn->opcode);
		g->live = insn->pred;
		g->block++;
		return true;
	case FORM_PAUSE: /* of those who meet at a hash map; no longer */
		if (insn->operands[0].kind != PTX_OPERAND_INT || insn->operands[0].value < 0 || insn->operands[0].value > PAUSE_NS)
			return fail(g, "a spliced pause that is too long:", insn->opcode);
		return true;
	case FORM_FENCE:
		if (has_mod(insn, "proxy") || has_mod(insn, "mbarrier"))
			return fail(g, "a spliced instruction that this check does not know:",
				insn->opcode);
		return true;
	case FORM_ACTIVE:
		return visit_active(g, insn);
	case FORM_WARP:
		return visit_warp(g, insn);
	case FORM_BALLOT:
		return visit_vote(g, insn);
	case FORM_TOGETHER:
		return visit_together(g, insn);
	}
	return false;
}

static bool is_space_of_ours(const struct region *g, const struct ptx_var *var)
{
	return var->space == PTX_SPACE_PARAM || var->space == PTX_SPACE_REG ||
	       (var->space == PTX_SPACE_LOCAL && g->writes);
}

static bool visit_stmt(struct region *g, const struct ptx_stmt *s)
{
	g->line = s->line;
	g->at = (uint32_t)(s - g->f->stmts);
	switch (s->kind) {
	case PTX_STMT_INSN:
		return g->live ? visit_insn(g, s->insn) : true;
	case PTX_STMT_LABEL:
		return visit_label(g, s);
	case PTX_STMT_VAR:
		return is_space_of_ours(g, s->var) ? true
						   : fail(g, "a spliced variable:", s->var->name);
	case PTX_STMT_REG:
	case PTX_STMT_OPEN:
	case PTX_STMT_CLOSE:
		return true;
	default:
		return fail(g, "a spliced directive that this check does not know", NULL);
	}
}

static bool is_kept(const char *name)
{
	static const char *const names[] = { "%egpu_k", "%egpu_n", "%egpu_slot", "%egpu_weight", "%egpu_chosen", "%egpu_word", "%egpu_start" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(name, names[i]))
			return true;
	}
	return false;
}

/* Inputs may set what is carried over an instruction, the warp's weight, and the multiprocessor's replica: declared among the first in the
 * function, splices not counted. */
static bool declare_kept(struct region *g)
{
	for (uint32_t i = 0, n = 0; n < MOST_KEPT && i < g->from; i++, n++) {
		const struct ptx_stmt *s = &g->f->stmts[i];
		if (readback_is_splice(g->r, s))
			i = s->match;
		else if (s->kind == PTX_STMT_REG && s->n_regs == 1 &&
			is_kept(s->regs[0].name) &&
			!declare(g, s))
			return false;
	}
	return true;
}

static bool open_region(struct region *g)
{
	g->bases = table_new();
	g->labels = table_new();
	g->args = table_new();
	if (!g->bases || !g->labels || !g->args)
		return readback_no_memory(g->r);
	if (!g->writes && !declare_kept(g))
		return false;
	for (uint32_t i = g->from; i <= g->to; i++) {
		g->line = g->f->stmts[i].line;
		if (g->f->stmts[i].kind == PTX_STMT_REG && !declare(g, &g->f->stmts[i]))
			return false;
	}
	g->state = arena_array(g->r->arena, g->n_cells + 1, sizeof(*g->state));
	g->mask_block = arena_array(g->r->arena, g->n_cells + 1, sizeof(*g->mask_block));
	return g->state && g->mask_block ? true : readback_no_memory(g->r);
}

static void close_region(struct region *g)
{
	table_free(g->bases);
	table_free(g->labels);
	table_free(g->args);
}

static bool readback_body(struct readback *r, const struct ptx_func *f, uint32_t open);

/* Code behind an unconditional jump never runs until a label makes it live again. Every round adds
 * to what labels know, so the end comes. */
static bool walk(struct region *g, bool skip_bodies)
{
	uint32_t rounds = 0;

	do {
		g->changed = false;
		g->live = true;
		g->block = FIRST_BLOCK;
		g->came = 0;
		memset(g->state, 0, (g->n_cells + 1) * sizeof(*g->state));
		memset(g->mask_block, 0, (g->n_cells + 1) * sizeof(*g->mask_block));
		for (uint32_t i = g->from; i <= g->to; i++) {
			const struct ptx_stmt *s = &g->f->stmts[i];
			if (skip_bodies && s->kind == PTX_STMT_OPEN) {
				if (!rounds && !readback_body(g->r, g->f, i))
					return false;
				i = s->match;
				g->block++;
				continue;
			}
			if (!visit_stmt(g, s))
				return false;
		}
	} while (g->changed && ++rounds < 64);
	return g->changed ? fail(g, "spliced code too tangled to follow", NULL) : true;
}

/* A fragment's own scope. The same text at the next site is as good. */
static bool readback_body(struct readback *r, const struct ptx_func *f, uint32_t open)
{
	struct region g = {
		.r = r, .f = f, .from = open + 1, .to = f->stmts[open].match - 1, .writes = true
	};
	const char *text = r->m->text + f->stmts[open].span.begin;
	size_t size = f->stmts[f->stmts[open].match].span.end - f->stmts[open].span.begin;

	/* Whether what lanes hand over is declared is not the text's to say. */
	bool gathers = memmem(text, size, "$egpu_lanes_", 12);

	if (f->stmts[open].match == open + 1 || (!gathers && table_get(r->bodies, text, size)))
		return true;
	bool good = open_region(&g) && walk(&g, false);
	close_region(&g);
	if (good && !gathers && table_put(r->bodies, text, size, (void *)text))
		return readback_no_memory(r);
	return good;
}

bool readback_scope(struct readback *r, const struct ptx_func *f, uint32_t open)
{
	struct region g = { .r = r, .f = f, .from = open + 1, .to = f->stmts[open].match - 1 };

	if (f->stmts[open].match == open + 1)
		return true;
	bool good = open_region(&g) && walk(&g, true);
	close_region(&g);
	return good;
}

/* The interpreter computes its addresses from programs, which cannot be followed here: it is trusted as a text. */
static bool is_interpreter(const struct readback *r, const struct ptx_func *f)
{
	const char *text = live_function_text(f->name);
	size_t n = text ? strlen(text) : 0;

	for (uint32_t i = 0; text && i < r->m->n_items; i++) {
		const struct ptx_item *item = &r->m->items[i];
		if (item->kind == PTX_ITEM_FUNC && item->func == f)
			return n > 1 && item->span.end - item->span.begin >= n - 1 &&
			       !memcmp(r->m->text + item->span.begin, text, n - 1);
	}
	return false;
}

bool readback_function(struct readback *r, const struct ptx_func *f)
{
	struct region g = {
		.r = r, .f = f, .to = f->n_stmts - 1, .is_function = true, .writes = true
	};
	struct summary *s = arena_alloc(r->arena, sizeof(*s));

	if (!s)
		return readback_no_memory(r);
	if (f->n_params > MAX_PARAMS)
		return readback_fail(r, 0, "too many parameters of", f->name);
	bool trusted = is_interpreter(r, f);
	bool good = trusted || f->is_decl || !f->n_stmts || (open_region(&g) && walk(&g, false));
	close_region(&g);
	*s = g.sum;
	if (good && table_puts(r->functions, f->name, s))
		return readback_no_memory(r);
	return good;
}
