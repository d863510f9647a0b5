/* decode.c - a module: variables and their initial values, functions, kernels. */
#include "softgpu/decode.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- variables --------------------------------------------------------------- */

static CUresult fail(struct sg_dec *c, CUresult error)
{
	if (!c->error)
		c->error = error;
	return error;
}

/* -- initialisers: { 1, -2, 0f3F800000, generic(x) + 4, 0xFF(x), { ... } } ---- */

struct init {
	struct sg_dec *c;
	const char *s, *end;
	const struct ptx_var *var;
	uint8_t *out;
	uint64_t at, room;
	uint32_t element;
};

static void skip_space(struct init *p)
{
	for (;;) {
		while (p->s < p->end && strchr(" \t\r\n", *p->s) && *p->s)
			p->s++;
		if (p->end - p->s > 1 && p->s[0] == '/' && p->s[1] == '/') {
			while (p->s < p->end && *p->s != '\n')
				p->s++;
		} else if (p->end - p->s > 1 && p->s[0] == '/' && p->s[1] == '*') {
			p->s += 2;
			while (p->end - p->s > 1 && (p->s[0] != '*' || p->s[1] != '/'))
				p->s++;
			p->s += p->end - p->s > 1 ? 2 : p->end - p->s;
		} else {
			return;
		}
	}
}

static bool take(struct init *p, char ch)
{
	skip_space(p);
	if (p->s >= p->end || *p->s != ch)
		return false;
	p->s++;
	return true;
}

static bool is_word(char ch)
{
	return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
	       ch == '_' || ch == '$' || ch == '%' || ch == '.';
}

static bool word(struct init *p, char *out, size_t size)
{
	size_t n = 0;
	skip_space(p);
	while (p->s < p->end && is_word(*p->s)) {
		bool exponent = n && (p->s[0] == 'e' || p->s[0] == 'E') && out[0] >= '0' &&
				out[0] <= '9' && !memchr(out, 'x', n) && p->end - p->s > 1 &&
				(p->s[1] == '-' || p->s[1] == '+');
		if (n + 2 >= size)
			return false;
		out[n++] = *p->s++;
		if (exponent)
			out[n++] = *p->s++;
	}
	out[n] = 0;
	return n > 0;
}

static uint64_t float_bits(const struct init *p, double d, uint32_t bits)
{
	uint64_t v = 0;
	float f = (float)d;
	if (p->var->type.kind == 'f' ? p->element == 8 : bits == 64)
		memcpy(&v, &d, 8);
	else
		memcpy(&v, &f, 4);
	return v;
}

static bool number(const struct init *p, const char *s, uint64_t *v)
{
	char *end;
	double d;
	bool typed_float = p->var->type.kind == 'f';
	if (s[0] == '0' && (s[1] == 'f' || s[1] == 'F') && strlen(s) == 10) {
		uint32_t u = (uint32_t)strtoul(s + 2, &end, 16);
		float f;
		memcpy(&f, &u, 4);
		*v = typed_float && p->element == 8 ? float_bits(p, f, 64) : u;
		return !*end;
	}
	if (s[0] == '0' && (s[1] == 'd' || s[1] == 'D') && strlen(s) == 18) {
		*v = strtoull(s + 2, &end, 16);
		if (typed_float && p->element == 4) {
			memcpy(&d, v, 8);
			*v = float_bits(p, d, 32);
		}
		return !*end;
	}
	if (strchr(s, '.') || (typed_float && strncmp(s, "0x", 2))) {
		d = strtod(s, &end);
		*v = float_bits(p, d, 64);
		return !*end;
	}
	if (s[0] == '0' && (s[1] == 'b' || s[1] == 'B'))
		*v = strtoull(s + 2, &end, 2);
	else
		*v = strtoull(s, &end, 0);
	if (*end == 'U')
		end++;
	return !*end;
}

static bool symbol(struct init *p, const char *name, uint64_t *v)
{
	const struct sg_var *var = table_gets(p->c->m->vars, name);
	const struct sg_func *f = var ? NULL : table_gets(p->c->m->funcs, name);
	if (var && !var->undefined && var->ptx->space != PTX_SPACE_SHARED)
		*v = var->addr;
	else if (f)
		*v = SG_WIN_FUNC << 32 | (uint64_t)(f->index + 1) * 16;
	else
		return sg_dec_invalid(p->c,
			"'%s' in the initialiser of '%s' is not a variable or function", name,
			p->var->name);
	return true;
}

static bool expression(struct init *p, uint64_t *v, int depth);

/* 0xFF00(x): the byte of x under the mask. */
static bool masked(struct init *p, uint64_t mask, uint64_t *v, int depth)
{
	if (!expression(p, v, depth + 1) || !take(p, ')'))
		return sg_dec_invalid(p->c, "the mask operator in '%s' is malformed", p->var->name);
	*v = mask ? (*v & mask) >> __builtin_ctzll(mask) : 0;
	return true;
}

static bool primary(struct init *p, uint64_t *v, int depth)
{
	char text[1024];
	if (depth > 64)
		return sg_dec_invalid(
			p->c, "the initialiser of '%s' is nested too deep", p->var->name);
	if (take(p, '-')) {
		if (!primary(p, v, depth + 1))
			return false;
		if (p->var->type.kind == 'f')
			*v ^= 1ull << (p->element * 8 - 1);
		else
			*v = -*v;
		return true;
	}
	if (take(p, '~')) {
		bool ok = primary(p, v, depth + 1);
		*v = ~*v;
		return ok;
	}
	if (take(p, '+'))
		return primary(p, v, depth + 1);
	if (take(p, '('))
		return expression(p, v, depth + 1) && take(p, ')')
			       ? true
			       : sg_dec_invalid(p->c, "a ')' is missing in the initialiser of '%s'",
					 p->var->name);
	if (!word(p, text, sizeof(text)))
		return sg_dec_invalid(p->c, "the initialiser of '%s' is malformed", p->var->name);
	if (text[0] >= '0' && text[0] <= '9') {
		if (!number(p, text, v))
			return sg_dec_invalid(p->c,
				"'%s' in the initialiser of '%s' is not a number", text,
				p->var->name);
		return take(p, '(') ? masked(p, *v, v, depth) : true;
	}
	if (!strcmp(text, "generic") && take(p, '('))
		return expression(p, v, depth + 1) && take(p, ')')
			       ? true
			       : sg_dec_invalid(
					 p->c, "generic() in '%s' is malformed", p->var->name);
	if (text[0] == '.')
		return primary(
			p, v, depth + 1); /* a cast: (.u64) x; its ')' was read as the group's */
	return symbol(p, text, v);
}

static bool expression(struct init *p, uint64_t *v, int depth)
{
	if (!primary(p, v, depth))
		return false;
	for (;;) {
		uint64_t r;
		if (take(p, '+')) {
			if (!primary(p, &r, depth))
				return false;
			*v += r;
		} else if (take(p, '-')) {
			if (!primary(p, &r, depth))
				return false;
			*v -= r;
		} else {
			return true;
		}
	}
}

static bool element(struct init *p, int depth)
{
	uint64_t v = 0;
	if (take(p, '{')) {
		if (depth > 16)
			return sg_dec_invalid(
				p->c, "the initialiser of '%s' is nested too deep", p->var->name);
		while (!take(p, '}')) {
			if (!element(p, depth + 1))
				return false;
			if (!take(p, ',')) {
				if (take(p, '}'))
					break;
				return sg_dec_invalid(
					p->c, "the initialiser of '%s' is malformed", p->var->name);
			}
		}
		return true;
	}
	if (!expression(p, &v, 0))
		return false;
	if (p->at + p->element > p->room)
		return sg_dec_invalid(
			p->c, "the initialiser of '%s' is longer than the variable", p->var->name);
	memcpy(p->out + p->at, &v, p->element);
	p->at += p->element;
	return true;
}

static bool initialise(struct sg_dec *c, const struct ptx_var *v, uint64_t addr)
{
	const char *text = c->m->ptx->text;
	struct init p = { .c = c,
		.s = text + v->init.begin,
		.end = text + v->init.end,
		.var = v,
		.out = (uint8_t *)(uintptr_t)addr,
		.room = v->size_bytes,
		.element = v->type.bits / 8 };
	memset(p.out, 0, v->size_bytes);
	if (v->init.end <= v->init.begin)
		return true;
	c->line = v->line;
	if (!p.element || p.element > 8)
		return sg_dec_invalid(c, "'%s' cannot have an initialiser of this type", v->name);
	return element(&p, 0);
}

/* Device memory of a variable; 0 bytes take one, so that every variable has an address. */
static CUresult place(struct sg_dec *c, const struct ptx_var *v, uint64_t *addr)
{
	struct sg_module *m = c->m;
	uint64_t *p = arena_grow(c->arena, m->allocs, m->n_allocs, &c->cap_allocs, sizeof(*p));
	if (!p)
		return fail(c, CUDA_ERROR_OUT_OF_MEMORY);
	m->allocs = p;
	CUresult r = sg_mem_alloc(m->dev, v->size_bytes ? v->size_bytes : 1, addr);
	if (r != CUDA_SUCCESS) {
		diag_set_at(c->d, ENOMEM, v->line, 0, "no device memory for '%s'", v->name);
		return fail(c, r);
	}
	m->allocs[m->n_allocs++] = *addr;
	if (v->space == PTX_SPACE_CONST)
		m->const_bytes += (uint32_t)v->size_bytes;
	return CUDA_SUCCESS;
}

CUresult sg_dec_alloc(struct sg_dec *c, const struct ptx_var *v, uint64_t *addr)
{
	CUresult r = place(c, v, addr);
	if (r != CUDA_SUCCESS)
		return r;
	return initialise(c, v, *addr) ? CUDA_SUCCESS : c->error;
}

uint32_t sg_dec_shared(struct sg_dec *c, const struct ptx_var *v)
{
	struct sg_module *m = c->m;
	struct sg_shared_var *p =
		arena_grow(c->arena, m->shared_vars, m->n_shared_vars, &c->cap_shared, sizeof(*p));
	if (!p) {
		fail(c, CUDA_ERROR_OUT_OF_MEMORY);
		return 0;
	}
	m->shared_vars = p;
	p[m->n_shared_vars] = (struct sg_shared_var){ v, v->is_unsized || !v->size_bytes };
	return m->n_shared_vars++;
}

static bool is_memory(enum ptx_space s)
{
	return s == PTX_SPACE_GLOBAL || s == PTX_SPACE_CONST || s == PTX_SPACE_SHARED;
}

static bool declare_var(struct sg_dec *c, const struct ptx_var *v)
{
	struct sg_var *old = table_gets(c->m->vars, v->name);
	bool only_declared = v->linkage == PTX_LINK_EXTERN && v->space != PTX_SPACE_SHARED;
	if (!is_memory(v->space) || (old && !old->undefined))
		return true;
	struct sg_var *var = old ? old : arena_alloc(c->arena, sizeof(*var));
	if (!var)
		return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
	var->ptx = v;
	var->bytes = v->size_bytes;
	var->undefined = only_declared;
	if (v->space == PTX_SPACE_SHARED)
		var->shared = sg_dec_shared(c, v);
	else if (!only_declared && place(c, v, &var->addr) != CUDA_SUCCESS)
		return false;
	if (table_puts(c->m->vars, v->name, var))
		return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
	return true;
}

/* -- functions --------------------------------------------------------------- */

static uint8_t builtin_of(const char *name)
{
	static const struct {
		const char *name;
		uint8_t builtin;
	} known[] = { { "vprintf", SG_VPRINTF }, { "__assertfail", SG_ASSERTFAIL },
		{ "malloc", SG_MALLOC }, { "free", SG_FREE },
		{ "cudaGraphSetConditional", SG_SET_CONDITION } };
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(known[i].name, name))
			return known[i].builtin;
	return SG_UNRESOLVED;
}

static bool declare_func(struct sg_dec *c, const struct ptx_func *p)
{
	struct sg_func *f = table_gets(c->m->funcs, p->name);
	if (f && (p->is_decl || !f->ptx->is_decl))
		return true;
	if (!f) {
		f = arena_alloc(c->arena, sizeof(*f));
		if (!f || table_puts(c->m->funcs, p->name, f))
			return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
		f->index = c->m->n_funcs++;
		f->module = c->m;
	}
	f->name = p->name;
	f->ptx = p;
	f->is_entry = p->is_entry;
	f->builtin = p->is_decl ? builtin_of(p->name) : SG_NO_BUILTIN;
	return true;
}

static bool add_alias(struct sg_dec *c, const struct ptx_item *it)
{
	struct sg_func *f = it->alias_of ? table_gets(c->m->funcs, it->alias_of) : NULL;
	struct sg_func *old = it->file_name ? table_gets(c->m->funcs, it->file_name) : NULL;
	if (!f || !it->file_name)
		return true;
	/* A declared alias keeps its index; the list then holds the aliased function there. */
	if (old && old != f)
		c->m->func_list[old->index] = f;
	return table_puts(c->m->funcs, it->file_name, f)
		       ? (fail(c, CUDA_ERROR_OUT_OF_MEMORY), false)
		       : true;
}

static bool declare_all(struct sg_dec *c)
{
	struct sg_module *m = c->m;
	const struct ptx_module *p = m->ptx;
	for (uint32_t i = 0; i < p->n_items; i++) {
		c->line = p->items[i].line;
		if (p->items[i].kind == PTX_ITEM_VAR && !declare_var(c, p->items[i].var))
			return false;
		if (p->items[i].kind == PTX_ITEM_FUNC && !declare_func(c, p->items[i].func))
			return false;
	}
	m->func_list = arena_array(c->arena, m->n_funcs + 1, sizeof(*m->func_list));
	if (!m->func_list)
		return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
	for (uint32_t i = 0; i < p->n_items; i++) {
		struct sg_func *f = p->items[i].kind == PTX_ITEM_FUNC
					    ? table_gets(m->funcs, p->items[i].func->name)
					    : NULL;
		if (f)
			m->func_list[f->index] = f;
	}
	for (uint32_t i = 0; i < p->n_items; i++)
		if (p->items[i].kind == PTX_ITEM_ALIAS && !add_alias(c, &p->items[i]))
			return false;
	return true;
}

static bool initialise_all(struct sg_dec *c)
{
	const struct ptx_module *p = c->m->ptx;
	for (uint32_t i = 0; i < p->n_items; i++) {
		const struct ptx_var *v = p->items[i].kind == PTX_ITEM_VAR ? p->items[i].var : NULL;
		const struct sg_var *var = v ? table_gets(c->m->vars, v->name) : NULL;
		if (var && var->ptx == v && var->addr && !initialise(c, v, var->addr))
			return false;
	}
	return true;
}

/* -- kernels ----------------------------------------------------------------- */

static const struct ptx_attr *attr(const struct ptx_func *p, const char *name)
{
	for (uint32_t i = 0; i < p->n_attrs; i++)
		if (!strcmp(p->attrs[i].name, name) && p->attrs[i].n_values)
			return &p->attrs[i];
	return NULL;
}

static void three(const struct ptx_attr *a, uint32_t out[3])
{
	for (uint32_t i = 0; i < 3; i++)
		out[i] = !a ? 0 : i < a->n_values && a->values[i] ? a->values[i] : 1;
}

static uint32_t product(const struct ptx_attr *a)
{
	uint64_t n = 1;
	for (uint32_t i = 0; i < a->n_values && i < 3; i++)
		n *= a->values[i] ? a->values[i] : 1;
	return n > 1024 ? 1024 : (uint32_t)n;
}

/* What a kernel reaches: shared variables, local memory, registers. */
struct reach {
	const struct sg_module *m;
	uint8_t *seen, *shared;
	uint32_t local, live;
};

static void visit(struct reach *r, const struct sg_func *f, uint32_t local, uint32_t depth)
{
	local += f->local_bytes;
	r->local = local > r->local ? local : r->local;
	r->live = f->n_live > r->live ? f->n_live : r->live;
	if (r->seen[f->index] || depth > 1000)
		return;
	r->seen[f->index] = 1;
	for (uint32_t i = 0; i < f->n_shared_vars; i++)
		r->shared[f->shared_vars[i]] = 1;
	for (uint32_t i = 0; i < f->n_callees; i++)
		visit(r, r->m->func_list[f->callees[i]], local, depth + 1);
	for (uint32_t i = 0; f->calls_pointer && i < r->m->n_funcs; i++)
		if (!r->m->func_list[i]->is_entry)
			visit(r, r->m->func_list[i], local, depth + 1);
}

static uint64_t align_to(uint64_t v, uint64_t to)
{
	return to ? (v + to - 1) / to * to : v;
}

/* Offsets of the shared variables that the kernel uses; all dynamic ones share the end. */
static bool layout_shared(struct sg_dec *c, struct sg_kernel *k, const uint8_t *used)
{
	const struct sg_module *m = c->m;
	uint64_t at = 0, align = 16;
	for (uint32_t i = 0; i < m->n_shared_vars; i++) {
		const struct ptx_var *v = m->shared_vars[i].var;
		if (!used[i] || m->shared_vars[i].dynamic) {
			if (used[i] && v->align_bytes > align)
				align = v->align_bytes;
			continue;
		}
		at = align_to(at, v->align_bytes);
		k->shared_offset[i] = (uint32_t)at;
		at += v->size_bytes;
		if (at > 1u << 23) {
			c->line = v->line;
			return sg_dec_invalid(
				c, "kernel '%s' uses too much shared memory", k->func->name);
		}
	}
	k->info.static_shared_bytes = (uint32_t)at;
	k->dynamic_align = (uint32_t)align;
	for (uint32_t i = 0; i < m->n_shared_vars; i++)
		if (used[i] && m->shared_vars[i].dynamic)
			k->shared_offset[i] = (uint32_t)align_to(at, align);
	return true;
}

static bool layout_params(struct sg_dec *c, struct sg_kernel *k)
{
	const struct sg_func *f = k->func;
	uint32_t *offset = arena_array(c->arena, f->n_params + 1, sizeof(*offset));
	uint32_t *size = arena_array(c->arena, f->n_params + 1, sizeof(*size));
	if (!offset || !size)
		return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
	for (uint32_t i = 0; i < f->n_params; i++) {
		offset[i] = f->params[i].offset;
		size[i] = f->params[i].bytes;
		k->info.param_bytes = offset[i] + size[i];
	}
	k->info.n_params = f->n_params;
	k->info.param_offset = offset;
	k->info.param_size = size;
	return true;
}

static uint32_t estimate_registers(
	const struct sg_kernel *k, const struct ptx_attr *maxnreg, uint32_t live)
{
	/* The driver never gives a kernel so many that a block of max_threads does not fit. */
	uint32_t most = 65536 / k->info.max_threads, n = (live + 8 + 7) / 8 * 8;
	if (maxnreg && maxnreg->values[0] < most)
		most = maxnreg->values[0];
	most = most > 255 ? 255 : most;
	return n < 16 ? 16 : n > most ? most : n;
}

static bool make_kernel(struct sg_dec *c, struct sg_func *f)
{
	struct sg_module *m = c->m;
	struct sg_kernel *k = arena_alloc(c->arena, sizeof(*k));
	const struct ptx_attr *maxntid = attr(f->ptx, "maxntid"),
			      *reqntid = attr(f->ptx, "reqntid");
	struct reach r = {
		.m = m, .seen = calloc(1, m->n_funcs + 1), .shared = calloc(1, m->n_shared_vars + 1)
	};
	bool ok = k && r.seen && r.shared;
	if (ok)
		k->shared_offset =
			arena_array(c->arena, m->n_shared_vars + 1, sizeof(*k->shared_offset));
	if (ok && k->shared_offset) {
		visit(&r, f, 0, 0);
		k->module = m;
		k->func = f;
		k->info.name = f->name;
		k->info.local_bytes = r.local;
		k->info.const_bytes = m->const_bytes;
		k->info.max_threads = reqntid   ? product(reqntid)
				      : maxntid ? product(maxntid)
						: 1024;
		k->info.n_regs = estimate_registers(k, attr(f->ptx, "maxnreg"), r.live);
		k->info.ptx_version = m->ptx->sm;
		three(reqntid, k->info.reqntid);
		three(attr(f->ptx, "reqnctapercluster"), k->info.cluster);
		ok = layout_params(c, k) && layout_shared(c, k, r.shared);
		m->kernels[m->n_kernels++] = k;
	} else {
		ok = false;
		fail(c, CUDA_ERROR_OUT_OF_MEMORY);
	}
	free(r.seen);
	free(r.shared);
	return ok;
}

/* -- the module -------------------------------------------------------------- */

static bool add_rows(struct sg_dec *c, const struct sg_row *rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (table_puts(c->rows, rows[i].opcode, (void *)&rows[i]))
			return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
	return true;
}

static bool decode_all(struct sg_dec *c)
{
	struct sg_module *m = c->m;
	if (!add_rows(c, sg_int_rows, sg_n_int_rows) ||
		!add_rows(c, sg_float_rows, sg_n_float_rows))
		return false;
	if (!declare_all(c) || !initialise_all(c))
		return false;
	m->kernels = arena_array(c->arena, m->n_funcs + 1, sizeof(*m->kernels));
	if (!m->kernels)
		return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
	for (uint32_t i = 0; i < m->n_funcs; i++)
		if (!m->func_list[i]->ptx->is_decl && !m->func_list[i]->n_code &&
			!sg_dec_function(c, m->func_list[i]))
			return false;
	for (uint32_t i = 0; i < m->n_funcs; i++) {
		struct sg_func *f = m->func_list[i];
		if (f->is_entry && f->index == i && !f->ptx->is_decl && !make_kernel(c, f))
			return false;
	}
	m->consts = aligned_alloc(64, (c->pool.len + 64) / 64 * 64);
	if (!m->consts || c->pool.failed)
		return fail(c, CUDA_ERROR_OUT_OF_MEMORY), false;
	if (c->pool.len)
		memcpy(m->consts, c->pool.data, c->pool.len);
	sg_dec_lines(m);
	return true;
}

CUresult sg_decode_module(struct sg_module *m, struct diag *d)
{
	struct sg_dec c = { .m = m,
		.d = d,
		.arena = m->arena,
		.rows = table_new(),
		.consts = table_new(),
		.placed = table_new() };
	if (!c.rows || !c.consts || !c.placed)
		c.error = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!decode_all(&c) && !c.error)
		c.error = CUDA_ERROR_OUT_OF_MEMORY;
	if (c.error == CUDA_ERROR_OUT_OF_MEMORY)
		diag_set(d, ENOMEM, "out of memory while loading a module");
	table_free(c.rows);
	table_free(c.consts);
	table_free(c.placed);
	buf_free(&c.pool);
	return c.error;
}

CUresult sg_module_load(
	struct sg_device *dev, const char *ptx, size_t size, struct sg_module **out, struct diag *d)
{
	struct ptx_module *p;
	int err = ptx_parse(ptx, size, &p, d);
	if (err)
		return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
	if (p->sm > dev->config.sm || (p->target_suffix == 'a' && p->sm != dev->config.sm)) {
		diag_set(d, EINVAL, "the module is for .target %s, the device is sm_%u", p->target,
			dev->config.sm);
		ptx_module_free(p);
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	}
	struct sg_module *m = calloc(1, sizeof(*m));
	if (!m) {
		ptx_module_free(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	m->dev = dev;
	m->ptx = p;
	m->arena = arena_new();
	m->vars = table_new();
	m->funcs = table_new();
	CUresult r =
		m->arena && m->vars && m->funcs ? sg_decode_module(m, d) : CUDA_ERROR_OUT_OF_MEMORY;
	if (r == CUDA_SUCCESS && p->address_size != 64) {
		diag_set(d, EINVAL, "modules with 32-bit addresses cannot be loaded");
		r = CUDA_ERROR_INVALID_PTX;
	}
	if (r != CUDA_SUCCESS) {
		sg_module_free(m);
		return r;
	}
	*out = m;
	return CUDA_SUCCESS;
}

void sg_module_free(struct sg_module *m)
{
	if (!m)
		return;
	for (uint32_t i = 0; i < m->n_allocs; i++)
		sg_mem_free(m->dev, m->allocs[i]);
	free(m->code);
	free(m->consts);
	table_free(m->vars);
	table_free(m->funcs);
	arena_free(m->arena);
	ptx_module_free(m->ptx);
	free(m);
}

struct sg_kernel *sg_module_kernel(struct sg_module *m, const char *name)
{
	for (uint32_t i = 0; i < m->n_kernels; i++)
		if (!strcmp(m->kernels[i]->info.name, name))
			return m->kernels[i];
	return NULL;
}

struct sg_kernel *sg_module_kernel_at(const struct sg_module *m, uint32_t index)
{
	return index < m->n_kernels ? m->kernels[index] : NULL;
}

bool sg_module_function(const struct sg_module *m, const char *name, uint32_t *regs, uint32_t *local_bytes)
{
	const struct sg_func *f = table_gets(m->funcs, name);
	if (!f || f->is_entry || f->ptx->is_decl)
		return false;
	*regs = (f->n_live + 8 + 7) / 8 * 8;
	*local_bytes = f->local_bytes;
	return true;
}

void sg_module_functions(const struct sg_module *m, void (*fn)(const char *name, void *arg), void *arg)
{
	for (uint32_t i = 0; i < m->n_funcs; i++) {
		const struct sg_func *f = m->func_list[i];
		if (f->index == i && !f->is_entry && !f->ptx->is_decl && f->ptx->linkage == PTX_LINK_VISIBLE)
			fn(f->name, arg);
	}
}

void sg_kernel_body(const struct sg_kernel *k, const char **text, size_t *bytes)
{
	const struct ptx_span *body = &k->func->ptx->body;
	*text = k->module->ptx->text + body->begin;
	*bytes = body->end - body->begin;
}

CUresult sg_module_global(struct sg_module *m, const char *name, uint64_t *addr, size_t *bytes)
{
	const struct sg_var *v = table_gets(m->vars, name);
	if (!v || !v->addr)
		return CUDA_ERROR_NOT_FOUND;
	if (addr)
		*addr = v->addr;
	if (bytes)
		*bytes = v->bytes;
	return CUDA_SUCCESS;
}

void sg_kernel_get_info(const struct sg_kernel *k, struct sg_kernel_info *out)
{
	*out = k->info;
}
