/* decode_func.c - one function: scopes, names, labels, and its instructions in order. */
#include "softgpu/decode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_REG_BYTES (1u << 28)
#define MAX_LOCAL_BYTES SG_MAX_LOCAL
#define MAX_PARAM_BYTES (1u << 20)

bool sg_dec_invalid(struct sg_dec *c, const char *fmt, ...)
{
	char text[400];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	diag_set_at(c->d, EINVAL, c->line, 0, "%s%s%s", text, c->f ? " in function " : "",
		c->f ? c->f->name : "");
	if (!c->error)
		c->error = CUDA_ERROR_INVALID_PTX;
	return false;
}

static bool no_memory(struct sg_dec *c)
{
	c->error = CUDA_ERROR_OUT_OF_MEMORY;
	return false;
}

bool sg_dec_note(struct sg_dec *c, uint32_t **list, uint32_t *n, uint32_t v)
{
	for (uint32_t i = 0; i < *n; i++)
		if ((*list)[i] == v)
			return true;
	/* Room grows by doubling; the size is known from the count. */
	if (!(*n & (*n - 1))) {
		uint32_t cap = *n ? *n * 2 : 1;
		uint32_t *p = arena_array(c->arena, cap, sizeof(*p));
		if (!p)
			return no_memory(c);
		if (*n)
			memcpy(p, *list, *n * sizeof(*p));
		*list = p;
	}
	(*list)[(*n)++] = v;
	return true;
}

struct sg_func *sg_dec_func(struct sg_dec *c, const char *name)
{
	return table_gets(c->m->funcs, name);
}

/* -- names ------------------------------------------------------------------- */

struct sg_sym *sg_dec_find(struct sg_dec *c, const char *name)
{
	return table_gets(c->names, name);
}

/* Enters a name in a scope that is open. */
static bool bind(struct sg_dec *c, struct sg_scope *scope, struct sg_sym *s)
{
	s->shadowed = table_gets(c->names, s->name);
	s->next = scope->syms;
	s->scope = scope;
	scope->syms = s;
	return table_puts(c->names, s->name, s) ? no_memory(c) : true;
}

static struct sg_sym *new_sym(struct sg_dec *c, enum sg_sym_kind kind, const char *name)
{
	struct sg_sym *s = arena_alloc(c->scratch, sizeof(*s));
	if (!s) {
		no_memory(c);
		return NULL;
	}
	s->kind = kind;
	s->name = name;
	s->vector = 1;
	return s;
}

static bool open_scope(struct sg_dec *c, uint32_t id)
{
	struct sg_scope *s = arena_alloc(c->scratch, sizeof(*s));
	if (!s)
		return no_memory(c);
	s->up = c->scope;
	s->id = id;
	c->scope = s;
	return true;
}

static void close_scope(struct sg_dec *c)
{
	for (struct sg_sym *s = c->scope->syms; s; s = s->next) {
		if (s->shadowed)
			table_puts(c->names, s->name, s->shadowed);
		else
			table_remove(c->names, s->name, strlen(s->name));
	}
	c->scope = c->scope->up;
}

/* -- registers --------------------------------------------------------------- */

enum { KIND_PRED, KIND_32, KIND_64, KIND_128 };

static int kind_of(const struct sg_sym *s)
{
	uint32_t bits = s->type.bits;
	return bits == 1 ? KIND_PRED : bits <= 32 ? KIND_32 : bits <= 64 ? KIND_64 : KIND_128;
}

static void take_pred(struct sg_dec *c, uint32_t *op)
{
	if (!c->pred_left) {
		c->pred_at = c->f->reg_bytes;
		c->pred_left = 32;
		c->f->reg_bytes += 128;
	}
	*op = c->pred_at;
	c->pred_at += 4;
	c->pred_left--;
}

/* Storage that was given back is for registers of one block only. Any other may be alive where the text has not named it yet: in a
 * loop whose end stands above its beginning, the block that gave it back runs again in between. */
static void take_storage(struct sg_dec *c, struct sg_sym *s, bool local)
{
	static const uint32_t bytes[] = { 4, 128, 256, 512 };
	int kind = kind_of(s);
	if (local && s->vector <= 1 && c->free[kind].n) {
		s->op = c->free[kind].op[--c->free[kind].n];
	} else if (kind == KIND_PRED) {
		take_pred(c, &s->op);
	} else {
		s->op = c->f->reg_bytes;
		c->f->reg_bytes += bytes[kind] * (s->vector ? s->vector : 1);
	}
}

static bool new_life(struct sg_dec *c, struct sg_sym *s)
{
	struct sg_life *l = arena_grow(c->scratch, c->lives, c->n_lives, &c->cap_lives, sizeof(*l));
	if (!l)
		return no_memory(c);
	c->lives = l;
	l[c->n_lives] = (struct sg_life){ c->pc, c->pc, s->vector > 1 ? SG_NO_PC : c->block,
		c->writing && !c->guarded };
	s->life = (uint32_t)c->n_lives++;
	return true;
}

/* Storage is given at the first use, so that declarations cost nothing. */
static bool take_register(struct sg_dec *c, struct sg_sym *s)
{
	uint32_t bits = s->type.bits;
	if (c->f->reg_bytes > MAX_REG_BYTES)
		return sg_dec_invalid(c, "too many registers");
	if (!bits || bits > 128)
		return sg_dec_invalid(c, "register '%s' has type '.%s', which no register has",
			s->name, s->type.name ? s->type.name : "?");
	s->first = s->last = c->pc;
	s->all = c->all_regs;
	c->all_regs = s;
	if (!c->second_pass) {
		s->op = 0;
		return new_life(c, s);
	}
	s->life = (uint32_t)c->n_lives++;
	const struct sg_life *l = &c->lives[s->life];
	bool local = l->block != SG_NO_PC && l->starts_written;
	take_storage(c, s, local);
	if (!local)
		return true;
	/* Given back when its last instruction is decoded. */
	uint32_t *head = &c->expire[l->last - c->f->pc];
	c->storage[s->life] = s->op << 2 | (uint32_t)kind_of(s);
	c->expire_next[s->life] = *head;
	*head = s->life + 1;
	return true;
}

/* A use after the first one. */
static void use_again(struct sg_dec *c, struct sg_sym *s)
{
	s->last = c->pc;
	if (c->second_pass)
		return;
	struct sg_life *l = &c->lives[s->life];
	l->last = c->pc;
	if (l->block != c->block)
		l->block = SG_NO_PC;
	if (l->first == c->pc && !c->writing)
		l->starts_written = false;
}

static bool give_back(struct sg_dec *c)
{
	for (uint32_t i = c->expire[c->pc - c->f->pc]; i; i = c->expire_next[i - 1]) {
		struct sg_free *f = &c->free[c->storage[i - 1] & 3];
		uint32_t *op = arena_grow(c->scratch, f->op, f->n, &f->cap, sizeof(*op));
		if (!op)
			return no_memory(c);
		f->op = op;
		op[f->n++] = c->storage[i - 1] >> 2;
	}
	return true;
}

static struct sg_sym *instance(struct sg_dec *c, struct sg_sym *family, const char *name)
{
	struct sg_sym *s = new_sym(c, SYM_REG, name);
	if (!s)
		return NULL;
	s->type = family->type;
	s->vector = family->vector;
	if (!take_register(c, s) || !bind(c, family->scope, s))
		return NULL;
	return s;
}

/* %r12 of `.reg .b32 %r<100>`: every split into a family's name and a number without leading 0. */
static struct sg_sym *from_family(struct sg_dec *c, const char *name)
{
	size_t len = strlen(name), digits = len;
	char prefix[256];
	while (digits && name[digits - 1] >= '0' && name[digits - 1] <= '9')
		digits--;
	if (digits == len || len >= sizeof(prefix))
		return NULL;
	for (size_t at = digits; at < len; at++) {
		if (name[at] == '0' && at + 1 < len)
			continue;
		memcpy(prefix, name, at);
		prefix[at] = 0;
		struct sg_sym *f = table_gets(c->names, prefix);
		if (f && f->kind == SYM_FAMILY && strtoull(name + at, NULL, 10) < f->count)
			return instance(c, f, name);
	}
	return NULL;
}

struct sg_sym *sg_dec_register(struct sg_dec *c, const char *name)
{
	struct sg_sym *s = table_gets(c->names, name);
	if (!s)
		s = from_family(c, name);
	if (!s || s->kind != SYM_REG)
		return NULL;
	if (s->first == SG_NO_PC)
		return take_register(c, s) ? s : NULL;
	use_again(c, s);
	return s;
}

static bool declare_reg(struct sg_dec *c, const struct ptx_reg *r)
{
	/* A family and a single register may not share storage: a count of 0 means a single one. */
	struct sg_sym *s = new_sym(c, r->count ? SYM_FAMILY : SYM_REG, r->name);
	if (!s)
		return false;
	s->type = r->type;
	s->vector = r->vector ? r->vector : 1;
	s->count = r->count;
	s->first = SG_NO_PC;
	return bind(c, c->scope, s);
}

/* -- variables --------------------------------------------------------------- */

static uint64_t align_to(uint64_t v, uint64_t to)
{
	return to ? (v + to - 1) / to * to : v;
}

/* Takes room in the parameter area or the local memory of a frame. */
static bool take_room(
	struct sg_dec *c, uint32_t *used, const struct ptx_var *v, uint32_t limit, uint64_t *at)
{
	*at = align_to(*used, v->align_bytes);
	if (*at + v->size_bytes > limit || v->size_bytes > limit)
		return sg_dec_invalid(c, "'%s' does not fit: more than %u bytes", v->name, limit);
	*used = (uint32_t)(*at + v->size_bytes);
	return true;
}

/* Shared, global and constant variables of a function get their place once. */
static bool place_once(struct sg_dec *c, const struct ptx_var *v, uint64_t *at)
{
	uintptr_t known = (uintptr_t)table_get(c->placed, &v, sizeof(v));
	if (known) {
		*at = known - 1;
		return true;
	}
	if (v->space != PTX_SPACE_GLOBAL && v->space != PTX_SPACE_CONST)
		*at = sg_dec_shared(c, v);
	else if (sg_dec_alloc(c, v, at) != CUDA_SUCCESS)
		return false;
	return table_put(c->placed, &v, sizeof(v), (void *)(uintptr_t)(*at + 1)) ? no_memory(c)
										 : true;
}

static bool declare_var(struct sg_dec *c, const struct ptx_var *v, bool own_param)
{
	struct sg_sym *s = new_sym(c, SYM_GLOBAL, v->name);
	if (!s)
		return false;
	s->type = v->type;
	s->bytes = v->size_bytes;
	s->own = own_param;
	switch (v->space) {
	case PTX_SPACE_LOCAL:
		s->kind = SYM_LOCAL;
		if (!take_room(c, &c->f->local_bytes, v, MAX_LOCAL_BYTES, &s->at))
			return false;
		break;
	case PTX_SPACE_PARAM:
		s->kind = SYM_PARAM;
		if (!take_room(c, &c->f->param_bytes, v, MAX_PARAM_BYTES, &s->at))
			return false;
		break;
	case PTX_SPACE_SHARED:
	case PTX_SPACE_SHARED_CLUSTER:
		s->kind = SYM_SHARED;
		if (!place_once(c, v, &s->at))
			return false;
		break;
	case PTX_SPACE_GLOBAL:
	case PTX_SPACE_CONST:
		if (!place_once(c, v, &s->at))
			return false;
		break;
	default:
		return true;
	}
	return bind(c, c->scope, s);
}

/* Parameters and results: in the frame's area, or registers. */
static bool declare_args(
	struct sg_dec *c, const struct ptx_var *vars, uint32_t n, struct sg_arg **out)
{
	struct sg_arg *args = arena_array(c->arena, n ? n : 1, sizeof(*args));
	if (!args)
		return no_memory(c);
	*out = args;
	for (uint32_t i = 0; i < n; i++) {
		if (vars[i].space == PTX_SPACE_REG) {
			struct ptx_reg r = { vars[i].name, 0, vars[i].type, vars[i].vector };
			struct sg_sym *s = declare_reg(c, &r) ? sg_dec_register(c, r.name) : NULL;
			if (!s)
				return false;
			uint32_t bits = s->type.bits;
			args[i].reg = s->op;
			args[i].width = bits == 1 ? 1 : bits <= 32 ? 4 : 8;
			args[i].bytes = args[i].width;
			continue;
		}
		if (!declare_var(c, &vars[i], true))
			return false;
		const struct sg_sym *s = sg_dec_find(c, vars[i].name);
		if (!s || s->kind != SYM_PARAM)
			return sg_dec_invalid(c,
				"parameter '%s' is in no space that parameters have", vars[i].name);
		args[i].offset = (uint32_t)s->at;
		args[i].bytes = (uint32_t)vars[i].size_bytes;
	}
	return true;
}

/* -- labels ------------------------------------------------------------------ */

static const char *label_key(struct sg_dec *c, uint32_t scope, const char *name)
{
	return arena_printf(c->scratch, "%u/%s", scope, name);
}

static bool put_label(struct sg_dec *c, uint32_t scope, const char *name, uint32_t pc)
{
	const char *key = label_key(c, scope, name);
	if (!key || table_puts(c->labels, key, (void *)((uintptr_t)pc + 1)))
		return no_memory(c);
	return true;
}

bool sg_dec_label(struct sg_dec *c, const char *name, uint32_t *pc)
{
	for (const struct sg_scope *s = c->scope; s; s = s->up) {
		const char *key = label_key(c, s->id, name);
		uintptr_t v = key ? (uintptr_t)table_gets(c->labels, key) : 0;
		if (v) {
			*pc = (uint32_t)(v - 1);
			return true;
		}
	}
	return sg_dec_invalid(c, "label '%s' is not defined", name);
}

/* Gives every label its pc, and counts instructions. */
static bool find_labels(struct sg_dec *c, uint32_t *count)
{
	const struct ptx_func *f = c->f->ptx;
	uint32_t pc = c->f->pc, depth = 0, cap = 16;
	uint32_t *ids = malloc(cap * sizeof(*ids));
	bool ok = ids != NULL;
	if (ok)
		ids[0] = 0;
	for (uint32_t i = 0; ok && i < f->n_stmts; i++) {
		const struct ptx_stmt *s = &f->stmts[i];
		if (s->kind == PTX_STMT_OPEN) {
			if (++depth == cap) {
				uint32_t *more = realloc(ids, (cap *= 2) * sizeof(*ids));
				ok = more != NULL;
				ids = more ? more : ids;
			}
			if (ok)
				ids[depth] = i + 1;
		} else if (s->kind == PTX_STMT_CLOSE) {
			depth -= depth > 0;
		} else if (s->kind == PTX_STMT_LABEL) {
			ok = put_label(c, ids[depth], s->name, pc);
		} else if (s->kind == PTX_STMT_INSN) {
			pc++;
		}
	}
	free(ids);
	*count = pc - c->f->pc;
	return ok ? true : no_memory(c);
}

/* -- statements -------------------------------------------------------------- */

static bool guard(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct ptx_operand o = { .kind = PTX_OPERAND_REG, .name = p->pred, .component = -1 };
	struct sg_opnd r;
	if (!p->pred)
		return true;
	enum sg_decoded got = sg_dec_reg(c, &o, &r);
	if (got == DEC_INVALID)
		return false;
	if (got != DEC_OK || r.width != 1 || r.op >> 30)
		return sg_dec_invalid(c, "guard '%s' is not a predicate register", p->pred);
	in->guard = r.op + 1;
	if (p->pred_negated)
		in->flags |= SG_GUARD_NOT;
	return true;
}

static bool instruction(struct sg_dec *c, const struct ptx_stmt *s)
{
	struct sg_insn *in = &c->m->code[c->pc];
	c->line = s->line;
	in->line = s->line;
	in->opcode = s->insn->opcode;
	c->guarded = s->insn->pred != NULL;
	enum sg_decoded got = sg_dec_insn(c, s->insn, in);
	if (got == DEC_INVALID || c->error)
		return c->error ? false : sg_dec_invalid(c, "'%s' is malformed", in->opcode);
	if (got == DEC_UNSUPPORTED) {
		const char *opcode = in->opcode;
		*in = (struct sg_insn){ .fn = sg_unsupported, .line = s->line, .opcode = opcode };
	}
	if (!guard(c, s->insn, in) || (c->second_pass && !give_back(c)))
		return false;
	if (in->fn == sg_bra || in->fn == sg_brx || in->fn == sg_call || in->fn == sg_ret ||
		in->fn == sg_exit)
		c->block++;
	c->pc++;
	return true;
}

static bool statement(struct sg_dec *c, const struct ptx_stmt *s, uint32_t index)
{
	c->line = s->line;
	switch (s->kind) {
	case PTX_STMT_OPEN:
		if (!open_scope(c, index + 1))
			return false;
		c->scope->param_bytes = c->f->param_bytes;
		return true;
	case PTX_STMT_CLOSE:
		if (c->scope->up)
			close_scope(c);
		return true;
	case PTX_STMT_REG:
		for (uint32_t i = 0; i < s->n_regs; i++)
			if (!declare_reg(c, &s->regs[i]))
				return false;
		return true;
	case PTX_STMT_VAR:
		return declare_var(c, s->var, false);
	case PTX_STMT_INSN:
		return instruction(c, s);
	case PTX_STMT_LABEL:
		c->block++;
		return true;
	default:
		return true;
	}
}

/* Most 32-bit registers between first and last use at once: an estimate, loops are not looked at.
 */
static void count_live(struct sg_dec *c)
{
	uint32_t n = c->f->n_code + 2, most = 0;
	int32_t *change = calloc(n, sizeof(*change)), live = 0;
	if (!change)
		return;
	for (const struct sg_sym *s = c->all_regs; s; s = s->all) {
		int32_t words = s->type.bits == 1 ? 0 : s->type.bits <= 32 ? 1 : s->type.bits / 32;
		if (s->first < c->f->pc || s->last - c->f->pc + 1 >= n)
			continue;
		change[s->first - c->f->pc] += words;
		change[s->last - c->f->pc + 1] -= words;
	}
	for (uint32_t i = 0; i < n; i++) {
		live += change[i];
		most = (uint32_t)live > most ? (uint32_t)live : most;
	}
	c->f->n_live = most;
	free(change);
}

static bool make_room(struct sg_dec *c, uint32_t count)
{
	size_t need = (size_t)c->m->n_code + count;
	if (need > UINT32_MAX / 2)
		return no_memory(c);
	if (need > c->cap_code) {
		size_t cap = need + need / 2 + 64;
		struct sg_insn *p = realloc(c->m->code, cap * sizeof(*p));
		if (!p)
			return no_memory(c);
		c->m->code = p;
		c->cap_code = cap;
	}
	memset(&c->m->code[c->m->n_code], 0, count * sizeof(*c->m->code));
	c->m->n_code = (uint32_t)need;
	return true;
}

/* Names, scopes and storage start afresh for each pass. */
static bool start_pass(struct sg_dec *c)
{
	struct sg_func *f = c->f;
	c->pc = f->pc;
	c->block = 1;
	c->n_lives = 0;
	c->all_regs = NULL;
	f->reg_bytes = f->local_bytes = f->param_bytes = 0;
	c->m->n_code = f->pc;
	/* First of all the carry flag, then the sinks for '_'. */
	c->pred_left = 0;
	take_pred(c, &c->trash_pred);
	take_pred(c, &c->trash_pred);
	c->trash_reg = f->reg_bytes;
	f->reg_bytes += 512;
	memset(c->free, 0, sizeof(c->free));
	while (c->scope)
		close_scope(c);
	return open_scope(c, 0) && make_room(c, f->n_code);
}

static bool run_pass(struct sg_dec *c)
{
	struct sg_func *f = c->f;
	const struct ptx_func *p = f->ptx;
	if (!start_pass(c))
		return false;
	if (!declare_args(c, p->params, p->n_params, &f->params) ||
		!declare_args(c, p->results, p->n_results, &f->results))
		return false;
	/* Parameters in registers live from call to return. */
	for (size_t i = 0; i < c->n_lives && !c->second_pass; i++)
		c->lives[i].block = SG_NO_PC;
	for (uint32_t i = 0; i < p->n_stmts; i++)
		if (!statement(c, &p->stmts[i], i))
			return false;
	c->m->code[c->pc] = (struct sg_insn){ .fn = sg_ret, .line = c->line, .opcode = "ret" };
	return true;
}

static bool decode_body(struct sg_dec *c)
{
	struct sg_func *f = c->f;
	uint32_t count;
	f->pc = c->m->n_code;
	f->n_params = f->ptx->n_params;
	f->n_results = f->ptx->n_results;
	if (!open_scope(c, 0) || !find_labels(c, &count))
		return false;
	f->n_code = count + 1;
	c->second_pass = false;
	if (!run_pass(c))
		return false;
	c->expire = arena_array(c->scratch, f->n_code, sizeof(*c->expire));
	c->expire_next = arena_array(c->scratch, c->n_lives + 1, sizeof(*c->expire_next));
	c->storage = arena_array(c->scratch, c->n_lives + 1, sizeof(*c->storage));
	if (!c->expire || !c->expire_next || !c->storage)
		return no_memory(c);
	c->second_pass = true;
	if (!run_pass(c))
		return false;
	f->reg_bytes = (f->reg_bytes + 63) & ~63u;
	f->local_bytes = (f->local_bytes + 15) & ~15u;
	f->param_bytes = (f->param_bytes + 15) & ~15u;
	count_live(c);
	return true;
}

bool sg_dec_function(struct sg_dec *c, struct sg_func *f)
{
	c->f = f;
	c->scratch = arena_new();
	c->names = table_new();
	c->labels = table_new();
	c->scope = NULL;
	c->lives = NULL;
	c->cap_lives = 0;
	bool ok = c->scratch && c->names && c->labels ? decode_body(c) : no_memory(c);
	table_free(c->labels);
	table_free(c->names);
	arena_free(c->scratch);
	c->f = NULL;
	return ok;
}
