/* parse_operand.c - operands and constant expressions (PTX ISA 4.5, 6).
 *
 * An operand that starts like one we know but goes on in a way we do not
 * (array[3], %r1.b0) is kept as OTHER, with the name it starts with.
 */
#include <string.h>

#include "ptx/parse.h"

struct value {
	struct ptx_operand op;
	bool is_unsigned;
};

static bool parse_expr(struct parser *p, struct value *v, int min_prec, bool is_call);

static bool deeper(struct parser *p)
{
	if (++p->depth > OPERAND_DEPTH)
		return fail(p, "operands are nested more than %d deep", OPERAND_DEPTH);
	return true;
}

/* -- names -- */

/* Special registers whose components are registers of their own (PTX ISA 10). */
static const char *const dotted_specials[] = { "%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid",
	"%nclusterid", "%cluster_ctaid", "%cluster_nctaid" };

static bool is_dotted_special(const char *name)
{
	for (size_t i = 0; i < sizeof(dotted_specials) / sizeof(dotted_specials[0]); i++) {
		if (!strcmp(name, dotted_specials[i]))
			return true;
	}
	return false;
}

static int component_of(const char *s, size_t n)
{
	static const char xyzw[] = "xyzw", rgba[] = "rgba";

	if (n != 1)
		return -1;
	for (int i = 0; i < 4; i++) {
		if (s[0] == xyzw[i] || s[0] == rgba[i])
			return i;
	}
	return -1;
}

/* ".x" after a register. */
static bool parse_component(struct parser *p, struct ptx_operand *op)
{
	const char *dot = p->m->text + p->cur.begin;
	uint32_t n = p->cur.end - p->cur.begin;
	int component = component_of(dot + 1, n - 1);

	if (component >= 0 && is_dotted_special(op->name)) {
		op->name = intern(p, p->m->text + op->span.begin, p->cur.end - op->span.begin);
		if (!op->name)
			return false;
	} else if (component >= 0 && op->kind == PTX_OPERAND_REG) {
		op->component = (int8_t)component;
	} else {
		op->kind = PTX_OPERAND_OTHER;
	}
	return advance(p);
}

static bool parse_name(struct parser *p, struct value *v)
{
	v->op.name = intern_tok(p, p->cur);
	if (!v->op.name)
		return false;
	const struct decl *decl;
	v->op.kind = names_is_reg(p, v->op.name, &decl) ? PTX_OPERAND_REG : PTX_OPERAND_SYMBOL;
	v->op.reg = decl ? decl->reg : NULL;
	v->op.var = decl ? decl->var : NULL;
	if (!strcmp(v->op.name, "WARP_SZ") && !decl) {
		v->op.kind = PTX_OPERAND_INT;
		v->op.value = 32;
	}
	if (!advance(p))
		return false;
	if (p->cur.kind == TOK_DOTTED && p->cur.begin == p->prev_end)
		return parse_component(p, &v->op);
	return true;
}

/* -- brackets -- */

bool parse_operand_list(
	struct parser *p, char close, bool is_call, struct ptx_operand **out, uint32_t *n)
{
	size_t base = p->operands.n;
	bool ok;

	while (!at_punct(p, close)) {
		if (!parse_operand(p, is_call))
			return false;
		if (at_punct(p, close))
			break;
		if (!at_punct(p, ','))
			return fail_expected(p, close == ';' ? "',' or ';' after an operand"
							     : "',' or a closing bracket");
		if (!advance(p))
			return false;
	}
	*n = (uint32_t)(p->operands.n - base);
	*out = vec_take(&p->operands, base, p->arena, &ok);
	return ok ? true : fail_memory(p);
}

static bool parse_list(struct parser *p, struct ptx_operand *op, enum ptx_operand_kind kind,
	char close, bool is_call)
{
	op->kind = kind;
	if (!deeper(p) || !advance(p) ||
		!parse_operand_list(p, close, is_call, &op->sub, &op->n_sub))
		return false;
	p->depth--;
	return advance(p);
}

/* [a] is an ADDRESS when a is a register, a symbol or a number, with or without an offset. */
static bool parse_bracket(struct parser *p, struct ptx_operand *op)
{
	if (!parse_list(p, op, PTX_OPERAND_MULTI, ']', false))
		return false;
	const struct ptx_operand *in = op->sub;
	if (op->n_sub != 1 || in->negated || in->component >= 0)
		return true;
	if (in->kind != PTX_OPERAND_REG && in->kind != PTX_OPERAND_SYMBOL &&
		in->kind != PTX_OPERAND_INT)
		return true;
	op->kind = PTX_OPERAND_ADDRESS;
	op->name = in->kind == PTX_OPERAND_INT ? NULL : in->name;
	op->base_is_reg = in->kind == PTX_OPERAND_REG;
	op->reg = in->reg;
	op->var = in->var;
	op->value = in->value;
	op->sub = NULL;
	op->n_sub = 0;
	return true;
}

/* (expression), or the casts (.s64) and (.u64). */
static bool parse_parenthesis(struct parser *p, struct value *v)
{
	if (!deeper(p) || !advance(p))
		return false;
	if (at_dotted(p, "s64") || at_dotted(p, "u64")) {
		bool is_unsigned = at_dotted(p, "u64");
		if (!advance(p) || !expect_punct(p, ')', "')' after the cast"))
			return false;
		if (!parse_expr(p, v, 100, false))
			return false;
		v->is_unsigned = is_unsigned;
	} else {
		if (!parse_expr(p, v, 0, false))
			return false;
		if (!expect_punct(p, ')', "')'"))
			return false;
	}
	p->depth--;
	return true;
}

static bool parse_number(struct parser *p, struct value *v)
{
	struct number num;
	uint32_t n = p->cur.end - p->cur.begin;

	if (!number_parse(p->m->text + p->cur.begin, n, &num))
		return fail(p, "'%.*s' is not a number of PTX", n > 60 ? 60 : (int)n,
			p->m->text + p->cur.begin);
	v->op.kind = num.is_float ? PTX_OPERAND_FLOAT : PTX_OPERAND_INT;
	v->op.value = (int64_t)num.value;
	v->op.bits = num.bits;
	v->is_unsigned = num.is_unsigned;
	return advance(p);
}

static bool parse_primary(struct parser *p, struct value *v, bool is_call)
{
	if (p->cur.kind == TOK_NUMBER)
		return parse_number(p, v);
	if (p->cur.kind == TOK_IDENT)
		return parse_name(p, v);
	if (at_punct(p, '{'))
		return parse_list(p, &v->op, PTX_OPERAND_VECTOR, '}', false);
	if (at_punct(p, '['))
		return parse_bracket(p, &v->op);
	if (at_punct(p, '('))
		return is_call ? parse_list(p, &v->op, PTX_OPERAND_GROUP, ')', true)
			       : parse_parenthesis(p, v);
	if (p->cur.kind == TOK_DOTTED || p->cur.kind == TOK_STRING) {
		v->op.kind = PTX_OPERAND_OTHER;
		return advance(p);
	}
	return fail_expected(p, "an operand");
}

static void apply_unary(struct value *v, char op)
{
	if (v->op.kind == PTX_OPERAND_REG && (op == '-' || op == '!') && !v->op.negated) {
		v->op.negated = true;
	} else if (v->op.kind == PTX_OPERAND_FLOAT && op == '-') {
		v->op.value ^= v->op.bits == 32 ? INT64_C(1) << 31 : INT64_MIN;
	} else if (v->op.kind == PTX_OPERAND_INT) {
		if (op == '-')
			v->op.value = (int64_t)(0 - (uint64_t)v->op.value);
		else if (op == '!')
			v->op.value = !v->op.value;
		else if (op == '~')
			v->op.value = ~v->op.value;
		v->is_unsigned = op == '~' || (op != '!' && v->is_unsigned);
	} else if (op != '+') {
		v->op.kind = PTX_OPERAND_OTHER;
	}
}

static bool parse_unary(struct parser *p, struct value *v, bool is_call)
{
	char op = p->cur.kind == TOK_PUNCT ? p->cur.punct : 0;

	if (op != '-' && op != '!' && op != '~' && op != '+')
		return parse_primary(p, v, is_call);
	if (!deeper(p) || !advance(p) || !parse_unary(p, v, false))
		return false;
	p->depth--;
	apply_unary(v, op);
	return true;
}

/* -- binary operators, C's precedences -- */

struct binary {
	char text[3];
	int prec;
};

static const struct binary binaries[] = {
	{ "<<", 8 },
	{ ">>", 8 },
	{ "<=", 7 },
	{ ">=", 7 },
	{ "==", 6 },
	{ "!=", 6 },
	{ "&&", 2 },
	{ "||", 1 },
	{ "*", 10 },
	{ "/", 10 },
	{ "%", 10 },
	{ "+", 9 },
	{ "-", 9 },
	{ "<", 7 },
	{ ">", 7 },
	{ "&", 5 },
	{ "^", 4 },
	{ "|", 3 },
};

static const struct binary *at_binary(const struct parser *p)
{
	const char *s = p->m->text + p->cur.begin;
	bool percent = p->cur.kind == TOK_IDENT && p->cur.end - p->cur.begin == 1 && *s == '%';

	if (p->cur.kind != TOK_PUNCT && !percent)
		return NULL;
	/* What follows nearly every operand. */
	if (*s == ',' || *s == ';' || *s == ']' || *s == ')' || *s == '}')
		return NULL;
	for (size_t i = 0; i < sizeof(binaries) / sizeof(binaries[0]); i++) {
		const char *text = binaries[i].text;
		if (s[0] == text[0] && (!text[1] || s[1] == text[1]))
			return &binaries[i];
	}
	return NULL;
}

static int64_t divide(int64_t a, int64_t b, bool is_unsigned)
{
	if (!b)
		return 0;
	if (is_unsigned)
		return (int64_t)((uint64_t)a / (uint64_t)b);
	return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static bool less(int64_t a, int64_t b, bool is_unsigned)
{
	return is_unsigned ? (uint64_t)a < (uint64_t)b : a < b;
}

/* Of integers, as ptxas does it: a remainder is that of unsigned numbers, a shift is by so many of 64. */
static int64_t fold(const char *op, int64_t a, int64_t b, bool u)
{
	uint64_t ua = (uint64_t)a, ub = (uint64_t)b;

	switch (op[0]) {
	case '+':
		return (int64_t)(ua + ub);
	case '-':
		return (int64_t)(ua - ub);
	case '*':
		return (int64_t)(ua * ub);
	case '/':
		return divide(a, b, u);
	case '%':
		return ub ? (int64_t)(ua % ub) : 0;
	case '^':
		return a ^ b;
	case '=':
		return a == b;
	case '!':
		return a != b;
	case '&':
		return op[1] ? a && b : a & b;
	case '|':
		return op[1] ? a || b : a | b;
	case '<':
		if (op[1] == '<')
			return (int64_t)(ua << (ub & 63));
		return op[1] ? !less(b, a, u) : less(a, b, u);
	default:
		if (op[1] == '>')
			return u ? (int64_t)(ua >> (ub & 63)) : a >> (ub & 63);
		return op[1] ? !less(a, b, u) : less(b, a, u);
	}
}

/* Comparisons and what is true or false are signed numbers, whatever they are of. */
static bool is_truth(const char *op)
{
	return op[0] == '=' || op[0] == '!' || ((op[0] == '<' || op[0] == '>') && op[1] != op[0]) || ((op[0] == '&' || op[0] == '|') && op[1]);
}

static void combine(struct value *l, const struct value *r, const char *op)
{
	bool plus_minus = op[0] == '+' || op[0] == '-';

	if (l->op.kind == PTX_OPERAND_INT && r->op.kind == PTX_OPERAND_INT) {
		bool shift = op[1] && op[0] == op[1] && (op[0] == '<' || op[0] == '>');
		l->is_unsigned |= !shift && r->is_unsigned;
		l->op.value = fold(op, l->op.value, r->op.value, l->is_unsigned);
		l->is_unsigned = op[0] == '%' || (l->is_unsigned && !is_truth(op));
	} else if (plus_minus && r->op.kind == PTX_OPERAND_INT && !l->op.negated &&
		   (l->op.kind == PTX_OPERAND_SYMBOL || l->op.kind == PTX_OPERAND_REG)) {
		l->op.value = fold(op, l->op.value, r->op.value, false);
	} else if (op[0] == '+' && l->op.kind == PTX_OPERAND_INT &&
		   r->op.kind == PTX_OPERAND_SYMBOL) {
		int64_t offset = fold(op, l->op.value, r->op.value, false);
		l->op.kind = PTX_OPERAND_SYMBOL;
		l->op.name = r->op.name;
		l->op.var = r->op.var;
		l->op.value = offset;
	} else {
		l->op.kind = PTX_OPERAND_OTHER;
		if (!l->op.name)
			l->op.name = r->op.name;
	}
}

/* a|b: two destinations. */
static bool make_pair(struct parser *p, struct value *v, bool is_call)
{
	struct ptx_operand *sub = arena_array(p->arena, 2, sizeof(*sub));
	struct value second = { .op = { .component = -1 } };

	if (!sub)
		return fail_memory(p);
	if (!advance(p))
		return false;
	second.op.span.begin = p->cur.begin;
	if (!parse_unary(p, &second, is_call))
		return false;
	second.op.span = span_from(p, second.op.span.begin);
	sub[0] = v->op;
	sub[1] = second.op;
	v->op = (struct ptx_operand){ .kind = PTX_OPERAND_PAIR,
		.span = { v->op.span.begin, 0 },
		.component = -1,
		.sub = sub,
		.n_sub = 2 };
	return true;
}

/* c ? a : b */
static bool parse_choice(struct parser *p, struct value *v)
{
	struct value yes = { .op = { .component = -1 } }, no = yes;

	if (!deeper(p) || !advance(p) || !parse_expr(p, &yes, 0, false) ||
		!expect_punct(p, ':', "':' of the conditional expression") ||
		!parse_expr(p, &no, 0, false))
		return false;
	p->depth--;
	if (v->op.kind == PTX_OPERAND_INT && yes.op.kind == PTX_OPERAND_INT &&
		no.op.kind == PTX_OPERAND_INT) {
		const struct value *chosen = v->op.value ? &yes : &no;
		v->op.value = chosen->op.value;
		v->is_unsigned = chosen->is_unsigned;
	} else {
		v->op.kind = PTX_OPERAND_OTHER;
	}
	return true;
}

static bool parse_expr(struct parser *p, struct value *v, int min_prec, bool is_call)
{
	const struct binary *b;

	v->op.component = -1;
	v->op.span.begin = p->cur.begin;
	if (!parse_unary(p, v, is_call))
		return false;
	v->op.span.end = p->prev_end;
	while ((b = at_binary(p)) && b->prec > min_prec) {
		struct value right = { .op = { .component = -1 } };
		if (v->op.kind == PTX_OPERAND_REG && !strcmp(b->text, "|")) {
			if (!make_pair(p, v, is_call))
				return false;
			v->op.span.end = p->prev_end;
			continue;
		}
		if (!deeper(p) || !advance(p) || (b->text[1] && !advance(p)) ||
			!parse_expr(p, &right, b->prec, false))
			return false;
		p->depth--;
		combine(v, &right, b->text);
		v->op.span.end = p->prev_end;
	}
	if (!min_prec && at_punct(p, '?') && !parse_choice(p, v))
		return false;
	v->op.span.end = p->prev_end;
	return true;
}

/* -- operands -- */

static bool at_operand_end(const struct parser *p)
{
	return at_punct(p, ',') || at_punct(p, ';') || at_punct(p, ']') || at_punct(p, '}') ||
	       at_punct(p, ')');
}

/* Keeps what follows as text, up to the next ',' or ';' outside brackets. */
static bool skip_other(struct parser *p, struct ptx_operand *op)
{
	op->kind = PTX_OPERAND_OTHER;
	while (!at_operand_end(p)) {
		if (p->cur.kind == TOK_EOF)
			return fail_expected(p, "',' or ';' after an operand");
		bool open = at_punct(p, '{') || at_punct(p, '(') || at_punct(p, '[');
		if (open ? !skip_balanced(p) : !advance(p))
			return false;
	}
	return true;
}

bool parse_operand(struct parser *p, bool is_call)
{
	struct value v = { .op = { .component = -1 } };
	uint32_t depth = p->depth;

	if (!parse_expr(p, &v, 0, is_call))
		return false;
	if (!at_operand_end(p)) {
		/* Two operands without a comma, or a lost ';', are mistakes, not new syntax. */
		bool word = p->cur.kind == TOK_IDENT || p->cur.kind == TOK_NUMBER ||
			    p->cur.kind == TOK_STRING;
		if (word || p->cur.first_on_line)
			return fail_expected(p, "',' or ';' after an operand");
		if (!skip_other(p, &v.op))
			return false;
	}
	p->depth = depth;
	/* Inside brackets parse_bracket takes the offset; elsewhere a register has none. */
	v.op.span.end = p->prev_end;
	struct ptx_operand *slot = vec_push(&p->operands);
	if (!slot)
		return fail_memory(p);
	*slot = v.op;
	return true;
}

bool parse_constant(struct parser *p, int64_t *out)
{
	struct value v = { .op = { .component = -1 } };

	if (!parse_expr(p, &v, 0, false))
		return false;
	if (v.op.kind != PTX_OPERAND_INT)
		return fail_expected(p, "a constant integer before this");
	*out = v.op.value;
	return true;
}
