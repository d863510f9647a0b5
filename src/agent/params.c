/* params.c - a kernel's parameters as its PTX declares them: where they lie and of what types they are, for the black box.
 *
 *	.entry NAME ( .param .u64 .ptr .global .align 1 a, .param .align 8 .b8 b[24], .param .f32 c )
 *
 * Read when the kernel is launched for the first time, from the text behind its name. What is not understood is not known: nothing
 * else depends on it.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum { MAX_WORD = 32, MAX_TYPES = 512, MAX_BYTES = 1 << 15 };

static const struct params unknown;

/* What is left to read. */
struct cursor {
	const char *at, *end;
};

static char next(struct cursor *c)
{
	while (c->at < c->end && isspace((unsigned char)*c->at))
		c->at++;
	return c->at < c->end ? *c->at : 0;
}

static bool take(struct cursor *c, char want)
{
	if (next(c) != want)
		return false;
	c->at++;
	return true;
}

/* A name, directive or number; longer ones are cut. */
static bool word(struct cursor *c, char out[MAX_WORD])
{
	size_t n = 0;
	next(c);
	for (; c->at < c->end && (isalnum((unsigned char)*c->at) || strchr("._$%", *c->at)); c->at++)
		if (*c->at && n < MAX_WORD - 1)
			out[n++] = *c->at;
	out[n] = 0;
	return n;
}

static bool number(struct cursor *c, uint32_t *out)
{
	char text[MAX_WORD], *end;
	if (!word(c, text))
		return false;
	unsigned long v = strtoul(text, &end, 0);
	*out = (uint32_t)v;
	return !*end && v && v <= MAX_BYTES;
}

/* Bytes of ".u64"; 0: it is none that parameters have. */
static uint32_t type_bytes(const char *type)
{
	char *end;
	if (type[0] != '.' || !type[1] || !strchr("usbf", type[1]))
		return 0;
	unsigned long bits = strtoul(type + 2, &end, 10);
	return !*end && bits >= 8 && bits <= 128 && !(bits & (bits - 1)) ? (uint32_t)bits / 8 : 0;
}

struct param {
	char type[MAX_WORD]; /* ".b8" */
	uint32_t one, n, align; /* bytes of the type, how many (0: no array), 0: as the type */
};

/* Behind ".ptr": what it points to, which does not matter. */
static bool skip_pointee(struct cursor *c, char name[MAX_WORD])
{
	uint32_t align;
	while (word(c, name) && name[0] == '.')
		if (!strcmp(name, ".align") && !number(c, &align))
			return false;
	return name[0];
}

static bool read_param(struct cursor *c, struct param *p)
{
	char w[MAX_WORD];
	*p = (struct param){ 0 };
	if (!word(c, w) || strcmp(w, ".param") || !word(c, w))
		return false;
	if (!strcmp(w, ".align") && (!number(c, &p->align) || !word(c, w)))
		return false;
	strcpy(p->type, w);
	p->one = type_bytes(w);
	if (!p->one || !word(c, w) || (!strcmp(w, ".ptr") && !skip_pointee(c, w)))
		return false;
	return !take(c, '[') || (number(c, &p->n) && take(c, ']'));
}

/* What is written can only add to what the type has. */
static uint32_t aligned_to(const struct param *p)
{
	return p->align > p->one ? p->align : p->one;
}

/* As the report reads it: "u64 b8[24]@8 f32", with what is aligned to more than its type is. */
static bool describe(struct buf *text, const struct param *p)
{
	buf_printf(text, "%s%s", text->len ? " " : "", p->type + 1);
	if (p->n)
		buf_printf(text, "[%u]", p->n);
	if (p->n || aligned_to(p) > p->one)
		buf_printf(text, "@%u", aligned_to(p));
	return text->len < MAX_TYPES;
}

static bool place(struct params *all, const struct param *p)
{
	uint32_t align = aligned_to(p), bytes = p->one * (p->n ? p->n : 1);
	if (align & (align - 1) || all->n == PARAMS_KEPT)
		return false;
	uint32_t at = (all->bytes + align - 1) / align * align;
	if (at + bytes > MAX_BYTES)
		return false;
	all->list[all->n++] = (struct param_place){ (uint16_t)at, (uint16_t)bytes };
	all->bytes = at + bytes;
	if (all->bytes <= SESSION_PARAM_BYTES) {
		all->n_kept = all->n;
		all->kept_bytes = all->bytes;
	}
	return true;
}

static bool read_all(struct cursor *c, struct params *all, struct buf *text)
{
	struct param p;
	if (!take(c, '('))
		return next(c) == '{' || next(c) == '.'; /* without parameters, a body or a directive */
	if (take(c, ')'))
		return true;
	do {
		if (!read_param(c, &p) || !describe(text, &p) || !place(all, &p))
			return false;
	} while (take(c, ','));
	return take(c, ')');
}

bool params_may_be(const char *behind_name, const char *end, CUfunction loaded, uint32_t *n)
{
	struct params all = { 0 };
	struct buf text = { 0 };
	struct cursor c = { behind_name, end };
	size_t at, bytes;
	bool same = true, known = read_all(&c, &all, &text);
	buf_free(&text);
	*n = UINT32_MAX;
	if (!known || !loaded || !REAL(cuFuncGetParamInfo))
		return true;
	*n = all.n;
	for (uint32_t i = 0; i < all.n && same; i++)
		same = REAL(cuFuncGetParamInfo)(loaded, i, &at, &bytes) == CUDA_SUCCESS && at == all.list[i].at && bytes == all.list[i].bytes;
	return same;
}

static const struct params *read_text(struct kernel *k)
{
	struct params *all = k->params_text ? calloc(1, sizeof(*all)) : NULL;
	struct session_kernel *row = atomic_load(&k->shared);
	struct buf text = { 0 };
	struct cursor c = { k->params_text, k->params_end };
	if (!all)
		return &unknown;
	if (!read_all(&c, all, &text) || text.failed) {
		free(all);
		all = NULL;
	} else if (row) {
		row->params = session_add_text(agent.session, text.len ? text.data : SESSION_NO_PARAMS);
	}
	buf_free(&text);
	return all ? all : &unknown;
}

/* NULL: another thread is at it. */
static const struct params *of_kernel(struct kernel *k)
{
	const struct params *p = atomic_load_explicit(&k->params, memory_order_acquire);
	if (p || atomic_exchange(&k->params_asked, 1))
		return p;
	p = read_text(k);
	atomic_store_explicit(&k->params, p, memory_order_release);
	return p;
}

/* The program's list of parameters is as long as the loaded code's, whatever PTX says that was found for it. */
static bool as_loaded(const struct function *f, void *handle, const struct params *p)
{
	bool is_kernel = !f->context;
	if (is_kernel ? !REAL(cuKernelGetParamInfo) : !REAL(cuFuncGetParamInfo))
		return !f->kernel->image->has_code && !atomic_load(&agent.late);
	for (uint32_t i = 0; i < p->n; i++) {
		size_t at, bytes;
		CUresult r = is_kernel ? REAL(cuKernelGetParamInfo)(handle, i, &at, &bytes)
				       : REAL(cuFuncGetParamInfo)(handle, i, &at, &bytes);
		if (r != CUDA_SUCCESS || at != p->list[i].at || bytes != p->list[i].bytes)
			return false;
	}
	return true;
}

const struct params *params_of(struct function *f, void *handle)
{
	const struct params *p = atomic_load_explicit(&f->params, memory_order_acquire);
	if (p || !(p = of_kernel(f->kernel)))
		return p;
	if (!as_loaded(f, handle, p))
		p = &unknown;
	atomic_store_explicit(&f->params, p, memory_order_release);
	return p;
}
