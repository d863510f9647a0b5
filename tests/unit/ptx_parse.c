/* ptx_parse.c - the PTX parse tree: exact facts, round trips, and where errors are said to be. */
#include <errno.h>

#include "ptx/ptx.h"
#include "tap.h"

static char *read_file(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	if (!f)
		return NULL;
	fseek(f, 0, SEEK_END);
	*size = (size_t)ftell(f);
	rewind(f);
	char *text = malloc(*size + 1);
	*size = fread(text, 1, *size, f);
	fclose(f);
	return text;
}

static struct ptx_module *parse(const char *text, size_t size)
{
	struct ptx_module *m = NULL;
	struct diag d = { 0 };
	if (ptx_parse(text, size, &m, &d))
		printf("# %u:%u: %s\n", d.line, d.column, d.text);
	return m;
}

static bool round_trips(const char *text, size_t size)
{
	struct ptx_module *m = parse(text, size);
	struct buf b = { 0 };
	if (!m)
		return false;
	ptx_print(m, &b);
	bool same = b.len == size && !memcmp(b.data, text, size);
	buf_free(&b);
	ptx_module_free(m);
	return same;
}

static const struct ptx_stmt *insn_at(const struct ptx_func *f, const char *opcode)
{
	for (uint32_t i = 0; i < f->n_stmts; i++) {
		if (f->stmts[i].insn && !strcmp(f->stmts[i].insn->opcode, opcode))
			return &f->stmts[i];
	}
	return NULL;
}

static const struct ptx_stmt *stmt_of(const struct ptx_func *f, enum ptx_stmt_kind kind, int nth)
{
	for (uint32_t i = 0; i < f->n_stmts; i++) {
		if (f->stmts[i].kind == kind && !nth--)
			return &f->stmts[i];
	}
	return NULL;
}

static void test_module(const struct ptx_module *m)
{
	is_int(m->version_major * 100 + m->version_minor, 800, ".version");
	is_str(m->target, "sm_90a", ".target");
	is_int(m->sm, 90, "sm");
	is_int(m->target_suffix, 'a', "its suffix");
	is_str(ptx_file_name(m, 2), "b.h", ".file 2");
	ok(!ptx_file_name(m, 3), "no .file 3");
	uint32_t kinds[16] = { 0 };
	for (uint32_t i = 0; i < m->n_items; i++)
		kinds[m->items[i].kind]++;
	is_int(kinds[PTX_ITEM_FUNC], 4, "functions");
	is_int(kinds[PTX_ITEM_VAR], 10, "variables");
	is_int(kinds[PTX_ITEM_SECTION], 2, "sections");
	is_int(kinds[PTX_ITEM_ALIAS], 1, "aliases");
	is_int(kinds[PTX_ITEM_OTHER], 2, "a pragma and an unknown directive");
}

static void test_vars(const struct ptx_module *m)
{
	const struct ptx_var *v = ptx_find_var(m, "table");
	ok(v && v->space == PTX_SPACE_CONST && v->linkage == PTX_LINK_VISIBLE, "table is .visible .const");
	is_int(v->size_bytes, 16, "table's size");
	is_int(v->align_bytes, 16, "table's alignment");
	v = ptx_find_var(m, "pointer");
	is_int(v->init.end - v->init.begin, strlen("generic(table)+4"), "pointer's initialiser");
	v = ptx_find_var(m, "second");
	is_int(v->size_bytes, 24, "two dimensions");
	ok(v->span.begin == ptx_find_var(m, "third")->span.begin, "names of one declaration share its span");
	is_int(ptx_find_var(m, "first")->align_bytes, 4, "natural alignment");
	v = ptx_find_var(m, "dynamic");
	ok(v->is_unsized && !v->size_bytes && v->linkage == PTX_LINK_EXTERN, "dynamic shared memory");
	v = ptx_find_var(m, "quad");
	is_int(v->size_bytes, 128, "vector array");
	is_int(v->align_bytes, 16, "vector alignment");
	v = ptx_find_var(m, "unsized");
	ok(!v->is_unsized && v->size_bytes == 16, "an initialiser gives the size");
	is_int(ptx_find_var(m, "tex0")->type.kind, 'o', "texture reference");
}

static void test_funcs(const struct ptx_module *m)
{
	const struct ptx_func *f = ptx_find_func(m, "kernel");
	ok(f && f->is_entry && !f->is_decl && f->linkage == PTX_LINK_VISIBLE, "kernel");
	is_int(f->n_params, 3, "its parameters");
	is_int(f->params[0].align_bytes, 8, ".ptr .align is the pointee's");
	is_int(f->params[1].size_bytes, 24, "struct parameter");
	is_int(f->params[2].type.bits, 32, "scalar parameter");
	is_int(f->n_attrs, 4, "attributes");
	is_str(f->attrs[0].name, "maxntid", "first attribute");
	is_int(f->attrs[0].values[0], 256, "its value");
	f = ptx_find_func(m, "__assertfail");
	ok(f->is_decl && f->n_attrs == 1 && f->n_params == 3, "a declaration with .noreturn");
	f = ptx_find_func(m, "callee");
	is_int(f->n_results, 1, "results");
	ok(f->params[0].space == PTX_SPACE_REG, "a .reg parameter");
}

static void test_operands(const struct ptx_func *f)
{
	const struct ptx_insn *i = insn_at(f, "ld.global.nc.L1::no_allocate.v4.f32")->insn;
	is_str(i->pred, "%p1", "guard");
	is_int(i->operands[0].n_sub, 4, "vector of four");
	is_int(i->operands[1].value, -16, "[%%rd1+-16]");
	is_str(i->mods[2], "L1::no_allocate", "a modifier with ::");
	i = insn_at(f, "st.volatile.shared::cta.u32")->insn;
	ok(i->pred_negated && !strcmp(i->pred, "q"), "@!q");
	ok(i->operands[0].kind == PTX_OPERAND_ADDRESS && !i->operands[0].base_is_reg, "[b+4] is a symbol");
	is_int(i->operands[1].kind, PTX_OPERAND_REG, "count is a register without %%");
	i = insn_at(f, "atom.global.cas.b32")->insn;
	is_int(i->operands[3].kind, PTX_OPERAND_REG, "w12 belongs to w1<3>");
	ok(insn_at(f, "ld.global.u32"), "white space inside an opcode");
	is_int(insn_at(f, "red.relaxed.gpu.global.add.noftz.f16x2")->insn->operands[0].value, 12,
		"constant expression in an address");
	i = insn_at(f, "mov.u32")->insn;
	is_str(i->operands[1].name, "%ctaid.x", "special register with its component");
	is_int(i->operands[1].component, -1, "which is part of the name");
	i = insn_at(f, "mov.f32")->insn;
	is_str(i->operands[1].name, "%v", "vector register");
	is_int(i->operands[1].component, 3, "component w");
	i = insn_at(f, "shfl.sync.bfly.b32")->insn;
	is_int(i->operands[0].kind, PTX_OPERAND_PAIR, "a|b");
	is_int(i->operands[3].value, 31, "octal");
	is_int(i->operands[4].value, -1, "negative literal");
	i = insn_at(f, "setp.lt.and.f32")->insn;
	ok(i->operands[3].negated, "!%%p1");
	is_int(i->operands[2].value, 0x3f800000, "0f literal");
	i = insn_at(f, "mov.u64")->insn;
	ok(i->operands[1].kind == PTX_OPERAND_SYMBOL && i->operands[1].value == 8, "second+8");
	i = insn_at(f, "tex.2d.v4.f32.s32")->insn;
	is_int(i->operands[1].kind, PTX_OPERAND_MULTI, "[tex, {x, y}]");
	i = insn_at(f, "call.uni")->insn;
	is_int(i->n_operands, 3, "call");
	is_int(i->operands[2].kind, PTX_OPERAND_GROUP, "argument group");
	is_int(i->operands[2].n_sub, 2, "of two");
	i = insn_at(f, "vadd.u32.u32.u32.sat")->insn;
	is_int(i->operands[1].kind, PTX_OPERAND_OTHER, "a selector is kept as text");
	i = insn_at(f, "future.op.x::y::128B.kind")->insn;
	is_int(i->n_operands, 3, "an unknown opcode has operands");
	is_int(i->operands[2].kind, PTX_OPERAND_OTHER, "and an operand of an unknown form");
}

static void test_stmts(const struct ptx_func *f)
{
	const struct ptx_stmt *s = stmt_of(f, PTX_STMT_LOC, 1);
	ok(s->loc_file == 2 && s->loc_line == 3 && s->loc_column == 0, ".loc with inlined_at");
	is_int(s->line, 52, "line of a statement");
	s = stmt_of(f, PTX_STMT_TABLE, 0);
	is_str(s->name, "$L_table", ".branchtargets' label");
	is_int(s->n_targets, 2, "its targets");
	is_str(s->targets[1], "$L_again", "second target");
	s = stmt_of(f, PTX_STMT_OPEN, 0);
	is_int(f->stmts[s->match].match, s - f->stmts, "brackets know each other");
	is_str(stmt_of(f, PTX_STMT_VAR, 2)->var->name, "b", "each name is a node");
	is_int(stmt_of(f, PTX_STMT_VAR, 2)->var->size_bytes, 16, "with its own size");
}

struct access_case {
	const char *opcode;
	enum ptx_access_op op;
	enum ptx_space space;
	uint32_t bytes;
	int32_t address, value;
};

static void test_access(const struct ptx_func *f)
{
	static const struct access_case cases[] = {
		{ "ld.param.u64", PTX_ACCESS_LOAD, PTX_SPACE_PARAM, 8, 1, 0 },
		{ "ld.global.nc.L1::no_allocate.v4.f32", PTX_ACCESS_LOAD, PTX_SPACE_GLOBAL, 16, 1, 0 },
		{ "st.volatile.shared::cta.u32", PTX_ACCESS_STORE, PTX_SPACE_SHARED, 4, 0, 1 },
		{ "atom.global.cas.b32", PTX_ACCESS_ATOMIC, PTX_SPACE_GLOBAL, 4, 1, 3 },
		{ "red.relaxed.gpu.global.add.noftz.f16x2", PTX_ACCESS_ATOMIC, PTX_SPACE_GLOBAL, 4, 0, 1 },
		{ "cp.async.cg.shared.global.L2::128B", PTX_ACCESS_LOAD, PTX_SPACE_GLOBAL, 16, 1, -1 },
		{ "tex.2d.v4.f32.s32", PTX_ACCESS_LOAD, PTX_SPACE_TEX, 16, -1, -1 },
		{ "mov.u64", PTX_ACCESS_NONE, PTX_SPACE_GENERIC, 0, -1, -1 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct access_case *c = &cases[i];
		struct ptx_access a;
		ptx_insn_access(insn_at(f, c->opcode)->insn, &a);
		ok(a.op == c->op && a.space == c->space && a.bytes == c->bytes &&
				a.address == c->address && a.value == c->value,
			"access of %s", c->opcode);
	}
}

struct error_case {
	const char *text; /* after the header's two lines */
	uint32_t line, column;
	const char *says;
};

static void test_errors(void)
{
	static const struct error_case cases[] = {
		{ ".entry k() { add.s32 %r1, %r2 }", 3, 31, "',' or ';'" },
		{ ".entry k() { add.s32 %r1, %r2\n ret; }", 4, 2, "found 'ret'" },
		{ ".entry k() { add.s32 %r1 %r2; }", 3, 26, "found '%r2'" },
		{ ".entry k()\n{ ret;", 4, 1, "the body of 'k' is never closed" },
		{ ".entry k()\n{ { ret;", 4, 3, "this '{' in 'k' is never closed" },
		{ ".entry k() { mov.u32 %r1, 0x; }", 3, 27, "not a number" },
		{ ".entry k() { mov.u32 %r1, 99999999999999999999; }", 3, 27, "not a number" },
		{ ".entry k() { @5 ret; }", 3, 15, "predicate register" },
		{ ".entry (", 3, 8, "the function's name" },
		{ ".global .u32;", 3, 13, "the variable's name" },
		{ ".global x;", 3, 9, "a type" },
		{ ".global .align 3 .u32 x;", 3, 9, "no power of two" },
		{ ".global .u64 x[0x7fffffffffffffff][4];", 3, 34, "overflows" },
		{ ".global .u64 x[-1];", 3, 18, "negative" },
		{ "/* open", 3, 1, "comment is never closed" },
		{ ".file 1 \"open", 3, 9, "not closed" },
		{ ".section .debug_str { .b8 1", 3, 21, "never closed" },
		{ "ret;", 3, 1, "a directive at module scope" },
		{ ".entry a() { .entry b() { } }", 3, 14, "a function begins" },
		{ ".entry a() { \xc3\xa4; }", 3, 14, "no place in PTX" },
		{ ".file x;", 3, 7, "a file number" },
		{ ".file 1 2", 3, 9, "a quoted file name" },
		{ ".section 5 {}", 3, 10, "a section name" },
		{ ".section .a 5", 3, 14, "'{' after the section's name" },
		{ ".alias 5, g;", 3, 8, "a function name after .alias" },
		{ ".alias f g;", 3, 10, "expected ','" },
		{ ".alias f, 5;", 3, 11, "the function that the alias names" },
		{ ".address_size 16", 3, 0, "32 or 64" },
		{ ".extern 5;", 3, 9, "after the linkage" },
		{ ".entry k() { .reg 5; }", 3, 19, "a type such as .u32" },
		{ ".entry k() { .reg .u32 5; }", 3, 24, "a register's name" },
		{ ".entry k() { .reg .u32 %r<x>; }", 3, 27, "a number of registers" },
		{ ".entry k(.u32 x) { }", 3, 10, "a state space" },
		{ ".func (.param .u32 5) f();", 3, 20, "the variable's name" },
		{ ".global .u32 x = {1, 2;", 3, 24, "after the initialiser" },
		{ ".global .u32 x y;", 3, 16, "';' after the variable" },
		{ ".entry k() { .local .align x .b8 a[4]; }", 3, 28, "an alignment" },
		{ ".entry k() { mov.u32 %r, (1; }", 3, 28, "expected ')'" },
		{ ".entry k() { mov.u32 %r, (.u64 1; }", 3, 32, "after the cast" },
		{ ".entry k() { mov.u32 %r, 1 ? 2; }", 3, 31, "the conditional expression" },
		{ ".entry k() { mov.u32 %r, {1, 2; }", 3, 31, "a closing bracket" },
		{ ".entry k() { ld.u32 %r, [%r+; }", 3, 29, "an operand" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[256];
		struct ptx_module *m;
		struct diag d = { 0 };
		snprintf(text, sizeof(text), ".version 8.0\n.target sm_80\n%s", cases[i].text);
		int r = ptx_parse(text, strlen(text), &m, &d);
		if (!ok(r == -EINVAL && !m && d.line == cases[i].line && d.column == cases[i].column &&
				    strstr(d.text, cases[i].says),
			    "refused: %s", cases[i].says))
			printf("# %d %u:%u %s\n", r, d.line, d.column, d.text);
	}
	struct ptx_module *m;
	struct diag d = { 0 };
	is_int(ptx_parse("", 0, &m, &d), -EINVAL, "an empty text");
	is_int(ptx_parse("\177ELF\0\1", 6, &m, &d), -EINVAL, "no PTX at all");
	is_int(ptx_parse(".version 8.0\0\n.target sm_80", 27, &m, NULL), -EINVAL, "a NUL inside, no diag");
}

/* The declaration of the innermost scope, whether it is of one name or of a range of them. */
static void test_scopes(void)
{
	static const char text[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n"
				   "\t.reg .b64 %r1, %a1<9>, %b<9>;\n\t{\n\t.reg .b32 %r<8>, %a<20>, %b2;\n"
				   "\tmov.u32 %r1, 7;\n\tmov.u32 %a15, 7;\n\tmov.u32 %b2, 7;\n\tmov.u64 %b3, 7;\n\t}\n"
				   "\tmov.u64 %r1, 7;\n\tmov.u64 %a15, 7;\n\tmov.u64 %b2, 7;\n\tret;\n}\n";
	static const uint32_t bits[] = { 32, 32, 32, 64, 64, 64, 64 };
	struct ptx_module *m = NULL;
	struct diag d = { 0 };
	uint32_t n = 0;

	is_int(ptx_parse(text, strlen(text), &m, &d), 0, "names of several scopes");
	const struct ptx_func *f = m ? ptx_find_func(m, "k") : NULL;
	for (uint32_t i = 0; f && i < f->n_stmts; i++) {
		const struct ptx_insn *insn = f->stmts[i].insn;
		if (insn && insn->n_operands && n < sizeof(bits) / sizeof(bits[0]))
			is_int(insn->operands[0].reg ? insn->operands[0].reg->type.bits : 0, bits[n++], "%s, line %u", insn->operands[0].name,
				f->stmts[i].line);
	}
	is_int(n, sizeof(bits) / sizeof(bits[0]), "all of them");
	ptx_module_free(m);
}

static void test_depth(void)
{
	struct ptx_module *m;
	struct diag d = { 0 };
	char *text = malloc(300000), *p = text;
	p += sprintf(p, ".version 8.0\n.target sm_80\n.func f() {");
	memset(p, '{', 100000);
	is_int(ptx_parse(text, (size_t)(p - text) + 100000, &m, &d), -EINVAL, "scopes too deep");
	p += sprintf(p, "mov.u32 %%r1, ");
	memset(p, '(', 100000);
	d.err = 0;
	is_int(ptx_parse(text, (size_t)(p - text) + 100000, &m, &d), -EINVAL, "expression too deep");
	ok(strstr(d.text, "deep"), "and it says so");
	free(text);
}

static double decimal(const char *literal)
{
	char text[256];
	double v = -1;
	snprintf(text, sizeof(text), ".version 8.0\n.target sm_80\n.func f() { mov.f64 %%fd, %s; }", literal);
	struct ptx_module *m = parse(text, strlen(text));
	if (m) {
		memcpy(&v, &ptx_find_func(m, "f")->stmts[0].insn->operands[1].value, sizeof(v));
		ptx_module_free(m);
	}
	return v;
}

static void test_decimals(void)
{
	ok(decimal("0.1") == 0.1, "0.1");
	ok(decimal("-1.7976931348623157e308") == -1.7976931348623157e308, "the largest double");
	ok(decimal("4.9e-324") == 4.9e-324, "the smallest subnormal");
	ok(decimal("2.2250738585072011e-308") == 2.2250738585072011e-308, "a subnormal near the edge");
	ok(decimal("9007199254740993.0") == 9007199254740992.0, "ties go to even");
	ok(decimal("123456789012345678901234567890.5e-10") == 123456789012345678901234567890.5e-10,
		"many digits");
	ok(decimal("1e400") > 1e308 && decimal("1e-400") == 0, "overflow and underflow");
}

/* Constant expressions have the values that ptxas 13.0 gives them: it keeps apart what is signed, and numbers comparisons as signed. */
static void test_constants(void)
{
	static const struct {
		const char *text;
		uint64_t value;
	} cases[] = {
		{ "7/2", 0x3 },
		{ "-7/2", 0xfffffffffffffffd },
		{ "7 % 3", 0x1 },
		{ "-7 % 3", 0x0 },
		{ "7U % 3", 0x1 },
		{ "-7/2U", 0x7ffffffffffffffc },
		{ "7U/-1", 0x0 },
		{ "0-1>0", 0x0 },
		{ "0-1>0U", 0x1 },
		{ "(0-1>0U)-2<0", 0x1 },
		{ "-8>>1", 0xfffffffffffffffc },
		{ "-8U>>1", 0x7ffffffffffffffc },
		{ "0x8000000000000000>>63", 0x1 },
		{ "0x8000000000000000U>>63", 0x1 },
		{ "1<<63", 0x8000000000000000 },
		{ "1<<64", 0x1 },
		{ "1<<65", 0x2 },
		{ "-8>>64", 0xfffffffffffffff8 },
		{ "(1<2)-2<0", 0x1 },
		{ "(1U<2)-2<0", 0x1 },
		{ "!5", 0x0 },
		{ "!0", 0x1 },
		{ "!5U-1<0", 0x1 },
		{ "~0", 0xffffffffffffffff },
		{ "~0>0", 0x1 },
		{ "~0/2", 0x7fffffffffffffff },
		{ "(.s64)(~0)/2", 0x0 },
		{ "(.u64)-1/2", 0x7fffffffffffffff },
		{ "(.u64)(-1)/2", 0x7fffffffffffffff },
		{ "-1/2", 0x0 },
		{ "-1U/2", 0x7fffffffffffffff },
		{ "5&3|8", 0x9 },
		{ "5^3", 0x6 },
		{ "5&&0", 0x0 },
		{ "5||0", 0x1 },
		{ "(5U&&1)-2<0", 0x1 },
		{ "1?2:3", 0x2 },
		{ "0?2:3", 0x3 },
		{ "1?-1:1U", 0xffffffffffffffff },
		{ "(1?-1:1U)/2", 0x0 },
		{ "2+3*4", 0xe },
		{ "(2+3)*4", 0x14 },
		{ "2*3+4", 0xa },
		{ "1<<2+1", 0x8 },
		{ "10-3-2", 0x5 },
		{ "100/5/2", 0xa },
		{ "5==5", 0x1 },
		{ "5!=5", 0x0 },
		{ "5<=5", 0x1 },
		{ "5>=6", 0x0 },
		{ "-1<1", 0x1 },
		{ "-1<1U", 0x0 },
		{ "-1==0xffffffffffffffff", 0x1 },
		{ "0xffffffffffffffff>0", 0x1 },
		{ "0xffffffffffffffffU>0", 0x1 },
		{ "18446744073709551615", 0xffffffffffffffff },
		{ "0x7fffffffffffffff+1<0", 0x1 },
		{ "6&-6>>1", 0x4 },
		{ "-5>>1|0", 0xfffffffffffffffd },
		{ "(-5&-1)>>1", 0xfffffffffffffffd },
		{ "(-5|0)/2", 0xfffffffffffffffe },
		{ "(-5^0)/2", 0xfffffffffffffffe },
		{ "5 % -3", 0x5 },
		{ "-5 % 3", 0x2 },
		{ "-5 % 3U", 0x2 },
		{ "(-5) % 3U", 0x2 },
		{ "1<<63>>63", 0xffffffffffffffff },
		{ "(1U==1)-2<0", 0x1 },
		{ "~5U", 0xfffffffffffffffa },
		{ "(~5)>>1", 0x7ffffffffffffffd },
		{ "(.s64)0x8000000000000000>>63", 0xffffffffffffffff },
		{ "(.u64)-8>>1", 0x7ffffffffffffffc },
		{ "-(.u64)8>>1", 0x7ffffffffffffffc },
		{ "- -5", 0x5 },
		{ "+5", 0x5 },
		{ "-!0", 0xffffffffffffffff },
		{ "-(1U<2)/2", 0x0 },
		{ "(5U>3)-2>>1", 0xffffffffffffffff },
		{ "!(0U)-2>>1", 0xffffffffffffffff },
		{ "(3U||0)-2>>1", 0xffffffffffffffff },
		{ "(3&-1)-5>>1", 0xffffffffffffffff },
		{ "0x8000000000000000/-1", 0x0 },
		{ "(-9223372036854775807-1) % -1", 0x8000000000000000 },
		{ "0?1:2?3:4", 0x3 },
		{ "1U<<63>>63", 0x1 },
		{ "-1<<63>>63", 0xffffffffffffffff },
		{ "1<<-1", 0x8000000000000000 },
		{ "-16>>-1", 0xffffffffffffffff },
		{ "1<<4294967297", 0x2 },
		{ "1||0&&0", 0x1 },
		{ "3>2>1", 0x0 },
		{ "017", 0xf },
		{ "0b101", 0x5 },
		{ "(7 % 3)-2<0", 0x0 },
		{ "(7 % 3)-2>>1", 0x7fffffffffffffff },
		{ "(-7 % 3)-2>>1", 0x7fffffffffffffff },
		{ "-!0U/2", 0x0 },
		{ "(!0U-2)/2", 0x0 },
		{ "-(~0)/2", 0x0 },
		{ "(~0&-1)/2", 0x7fffffffffffffff },
		{ "~~-8/2", 0x7ffffffffffffffc },
		{ "1?~0:1", 0xffffffffffffffff },
		{ "(1?~0:1)/2", 0x7fffffffffffffff },
		{ "(0?~0:-1)/2", 0x0 },
		{ "(-8|0U)/2", 0x7ffffffffffffffc },
		{ "(-8&-1U)/2", 0x7ffffffffffffffc },
		{ "(-8^0U)/2", 0x7ffffffffffffffc },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[256];
		snprintf(text, sizeof(text), ".version 8.0\n.target sm_80\n.func f() { mov.u64 %%rd, %s; }", cases[i].text);
		struct ptx_module *m = parse(text, strlen(text));
		const struct ptx_operand *op = m ? &ptx_find_func(m, "f")->stmts[0].insn->operands[1] : NULL;
		ok(op && op->kind == PTX_OPERAND_INT && (uint64_t)op->value == cases[i].value, "%s", cases[i].text);
		ptx_module_free(m);
	}
	struct ptx_module *m;
	for (int i = 0; i < 3; i++) {
		static const char *const zero[] = { "1/0", "1U % 0", "(-9223372036854775807-1)/-1" };
		char text[256];
		snprintf(text, sizeof(text), ".version 8.0\n.target sm_80\n.func f() { mov.u64 %%rd, %s; }", zero[i]);
		is_int(ptx_parse(text, strlen(text), &m, NULL), 0, "%s has no value, and is no reason to give up", zero[i]);
		ptx_module_free(m);
	}
}

/* Where ptxas puts them: what is written adds to what the type has, and never takes from it. */
static void test_alignment(void)
{
	static const char text[] = ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 1 .u64 wide;\n.global .align 2 .u32 list[3];\n"
				   ".global .align 4 .b8 bytes[8];\n.global .align 4 .v4 .u32 four;\n"
				   ".visible .entry k(.param .u8 a, .param .align 1 .u64 b, .param .align 16 .u32 c, .param .align 8 .b8 d[8])\n{\n\tret;\n}\n";
	static const uint32_t params[] = { 1, 8, 16, 8 };
	struct ptx_module *m = parse(text, strlen(text));
	const struct ptx_func *f = m ? ptx_find_func(m, "k") : NULL;
	ok(f && f->n_params == 4, "variables of written alignments");
	for (uint32_t i = 0; f && i < f->n_params; i++)
		is_int(f->params[i].align_bytes, params[i], "parameter %u", i);
	if (f) {
		is_int(ptx_find_var(m, "wide")->align_bytes, 8, "less than the type's");
		is_int(ptx_find_var(m, "list")->align_bytes, 4, "of an array");
		is_int(ptx_find_var(m, "bytes")->align_bytes, 4, "more than the type's");
		is_int(ptx_find_var(m, "four")->align_bytes, 16, "of a vector");
	}
	ptx_module_free(m);
}

int main(void)
{
	static const char *const files[] = { "forms.ptx", "crlf_nul.ptx", "plain.ptx" };
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char path[1024];
		size_t size = 0;
		snprintf(path, sizeof(path), "%s/ptx/%s", GOLDEN_DIR, files[i]);
		char *text = read_file(path, &size);
		ok(text && round_trips(text, size), "%s comes back byte for byte", files[i]);
		if (text && !i) {
			struct ptx_module *m = parse(text, size);
			const struct ptx_func *f = ptx_find_func(m, "kernel");
			test_module(m);
			test_vars(m);
			test_funcs(m);
			test_operands(f);
			test_stmts(f);
			test_access(f);
			ptx_module_free(m);
		}
		free(text);
	}
	test_errors();
	test_scopes();
	test_depth();
	test_constants();
	test_decimals();
	test_alignment();
	return tap_done();
}
