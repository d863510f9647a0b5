/* driver_link.c - the linker. Its output is a small ELF for the device that carries the linked PTX
 *where cubins built with -lineinfo carry theirs (.nv_debug_ptx_txt), so that whoever reads cubins,
 *this driver included, finds it. It holds no machine code.
 *
 * Joining texts:
 *	1. the header of the newest, then a declaration of every function that some text defines
 *	2. the variables of all texts, extern ones only where no text defines them
 *	3. the functions and kernels, with .file numbers made unique
 * A private name that another text uses as well is given a suffix in its own text.
 */
#include "softgpu/driver.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/fatbin.h"
#include "ptx/ptx.h"

/* -- joining ------------------------------------------------------------------------------ */

struct part {
	struct ptx_module *m;
	const char *name;
	struct table *renamed; /* name -> new name, in m's arena */
	uint32_t file_base;
};

struct join {
	struct part *parts;
	size_t n;
	struct table *defined; /* name -> struct ptx_item of the definition that is kept */
	struct table *emitted; /* names of declarations that are out */
	struct buf out;
	struct diag *d;
};

static const char *item_name(const struct ptx_item *i)
{
	if (i->kind == PTX_ITEM_FUNC)
		return i->func->name;
	return i->kind == PTX_ITEM_VAR ? i->var->name : NULL;
}

static enum ptx_linkage item_linkage(const struct ptx_item *i)
{
	return i->kind == PTX_ITEM_FUNC ? i->func->linkage : i->var->linkage;
}

static bool is_definition(const struct ptx_item *i)
{
	if (i->kind == PTX_ITEM_FUNC)
		return !i->func->is_decl;
	return i->kind == PTX_ITEM_VAR && i->var->linkage != PTX_LINK_EXTERN;
}

static bool is_private(const struct ptx_item *i)
{
	return item_linkage(i) == PTX_LINK_NONE && !(i->kind == PTX_ITEM_FUNC && i->func->is_entry);
}

static int rename_private(struct part *p, size_t index, const char *name)
{
	char *to = arena_printf(p->m->arena, "%s__u%zu", name, index);
	return to ? table_puts(p->renamed, name, to) : -ENOMEM;
}

/* Decides which definition of a name is kept, and renames private ones that collide. */
static int define(struct join *j, size_t index, struct ptx_item *item)
{
	struct part *p = &j->parts[index];
	const char *name = item_name(item);
	struct ptx_item *old = name ? table_gets(j->defined, name) : NULL;
	if (!name || !is_definition(item))
		return 0;
	if (!old)
		return table_puts(j->defined, name, item);
	if (is_private(item))
		return rename_private(p, index, name);
	enum ptx_linkage a = item_linkage(old), b = item_linkage(item);
	if (b == PTX_LINK_WEAK || b == PTX_LINK_COMMON)
		return 0; /* the earlier one is kept */
	if (a == PTX_LINK_WEAK || a == PTX_LINK_COMMON)
		return table_puts(j->defined, name, item);
	return diag_set_at(j->d, EINVAL, item->line, 0,
		"'%s' in %s is defined in an earlier input too", name, p->name);
}

/* Private definitions come last, so that it is they who give way to a public name. */
static int define_all(struct join *j)
{
	for (int private = 0; private < 2; private ++)
		for (size_t i = 0; i < j->n; i++)
			for (uint32_t k = 0; k < j->parts[i].m->n_items; k++) {
				struct ptx_item *item = &j->parts[i].m->items[k];
				if (!item_name(item) || is_private(item) != private)
					continue;
				int err = define(j, i, item);
				if (err)
					return err;
			}
	return 0;
}

static bool word_char(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* Past a comment, a string or one character that belongs to no word. */
static uint32_t skip(const char *t, uint32_t at, uint32_t end)
{
	const char *stop = NULL;
	size_t extra = 0;
	if (t[at] == '/' && at + 1 < end && t[at + 1] == '/')
		stop = memchr(t + at, '\n', end - at);
	else if (t[at] == '/' && at + 1 < end && t[at + 1] == '*')
		stop = memmem(t + at + 2, end - at - 2, "*/", 2), extra = 2;
	else if (t[at] == '"')
		stop = memchr(t + at + 1, '"', end - at - 1), extra = 1;
	else
		return at + 1;
	return stop ? (uint32_t)(stop - t + (ptrdiff_t)extra) : end;
}

/* A span of the text with the renames applied. Words after a dot are opcodes and components. */
static void emit(struct join *j, const struct part *p, struct ptx_span span)
{
	const char *t = p->m->text;
	uint32_t at = span.begin, from = at;
	char word[1024];
	while (table_count(p->renamed) && at < span.end) {
		if (!word_char(t[at])) {
			at = skip(t, at, span.end);
			continue;
		}
		uint32_t begin = at;
		while (at < span.end && word_char(t[at]))
			at++;
		if (at - begin >= sizeof(word) || (begin && t[begin - 1] == '.'))
			continue;
		memcpy(word, t + begin, at - begin);
		word[at - begin] = 0;
		const char *to = table_gets(p->renamed, word);
		if (!to)
			continue;
		buf_add(&j->out, t + from, begin - from);
		buf_puts(&j->out, to);
		from = at;
	}
	buf_add(&j->out, t + from, span.end - from);
}

static void header(struct join *j)
{
	const struct ptx_module *version = j->parts[0].m, *target = version;
	for (size_t i = 1; i < j->n; i++) {
		const struct ptx_module *m = j->parts[i].m;
		if (m->version_major > version->version_major ||
			(m->version_major == version->version_major &&
				m->version_minor > version->version_minor))
			version = m;
		if (m->sm > target->sm ||
			(m->sm == target->sm && m->target_suffix && !target->target_suffix))
			target = m;
	}
	buf_printf(&j->out, ".version %u.%u\n.target %s\n.address_size 64\n",
		version->version_major, version->version_minor,
		target->target ? target->target : "sm_75");
}

/* Whether this item is the definition that is kept (private ones always are). */
static bool kept(const struct join *j, const struct part *p, const struct ptx_item *item)
{
	const char *name = item_name(item);
	return table_gets(j->defined, name) == item || table_gets(p->renamed, name);
}

static bool first_time(struct join *j, const char *name)
{
	if (table_gets(j->emitted, name))
		return false;
	if (table_puts(j->emitted, name, j))
		j->out.failed = true;
	return true;
}

static void declare_functions(struct join *j, const struct part *p)
{
	for (uint32_t k = 0; k < p->m->n_items; k++) {
		const struct ptx_item *item = &p->m->items[k];
		if (item->kind != PTX_ITEM_FUNC || item->func->is_entry)
			continue;
		if (is_definition(item) ? !kept(j, p, item)
					: table_gets(j->defined, item->func->name) ||
						  !first_time(j, item->func->name))
			continue;
		struct ptx_span span = item->span;
		if (is_definition(item))
			span.end = item->func->body.begin;
		emit(j, p, span);
		buf_puts(&j->out, is_definition(item) ? ";\n" : "\n");
	}
}

static void variables(struct join *j, const struct part *p)
{
	for (uint32_t k = 0; k < p->m->n_items; k++) {
		const struct ptx_item *item = &p->m->items[k];
		if (item->kind != PTX_ITEM_VAR)
			continue;
		if (is_definition(item) ? !kept(j, p, item)
					: table_gets(j->defined, item->var->name) ||
						  !first_time(j, item->var->name))
			continue;
		emit(j, p, item->span);
		buf_puts(&j->out, "\n");
	}
}

/* The body with the file numbers of its .loc directives moved. */
static void function(struct join *j, const struct part *p, const struct ptx_item *item)
{
	struct ptx_span rest = item->span;
	for (uint32_t s = 0; p->file_base && s < item->func->n_stmts; s++) {
		const struct ptx_stmt *st = &item->func->stmts[s];
		if (st->kind != PTX_STMT_LOC)
			continue;
		const char *t = p->m->text;
		uint32_t at = st->span.begin, digits;
		while (at < st->span.end && !isdigit((unsigned char)t[at]))
			at++;
		for (digits = at; digits < st->span.end && isdigit((unsigned char)t[digits]);
			digits++)
			;
		emit(j, p, (struct ptx_span){ rest.begin, at });
		buf_printf(&j->out, "%u", st->loc_file + p->file_base);
		rest.begin = digits;
	}
	emit(j, p, rest);
	buf_puts(&j->out, "\n");
}

static void code(struct join *j, const struct part *p)
{
	for (uint32_t k = 0; k < p->m->n_items; k++) {
		const struct ptx_item *item = &p->m->items[k];
		if (item->kind == PTX_ITEM_FILE) {
			buf_printf(&j->out, ".file %u \"%s\"\n", item->file_index + p->file_base,
				item->file_name ? item->file_name : "");
		} else if (item->kind == PTX_ITEM_FUNC && is_definition(item) && kept(j, p, item)) {
			function(j, p, item);
		} else if (item->kind == PTX_ITEM_ALIAS) {
			emit(j, p, item->span);
			buf_puts(&j->out, "\n");
		}
	}
}

static CUresult parse_parts(struct join *j, const struct drv_text *texts)
{
	uint32_t files = 0;
	for (size_t i = 0; i < j->n; i++) {
		struct part *p = &j->parts[i];
		int err = ptx_parse(texts[i].text, texts[i].bytes, &p->m, j->d);
		if (err)
			return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
		p->name = texts[i].name && *texts[i].name ? texts[i].name : "an input";
		p->renamed = table_new();
		if (!p->renamed)
			return CUDA_ERROR_OUT_OF_MEMORY;
		p->file_base = files;
		for (uint32_t k = 0; k < p->m->n_items; k++)
			if (p->m->items[k].kind == PTX_ITEM_FILE &&
				p->m->items[k].file_index < UINT32_MAX / 2 &&
				p->file_base + p->m->items[k].file_index > files)
				files = p->file_base + p->m->items[k].file_index;
	}
	return CUDA_SUCCESS;
}

static CUresult join_parts(struct join *j)
{
	int err = define_all(j);
	if (err)
		return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
	header(j);
	for (size_t i = 0; i < j->n; i++)
		declare_functions(j, &j->parts[i]);
	for (size_t i = 0; i < j->n; i++)
		variables(j, &j->parts[i]);
	for (size_t i = 0; i < j->n; i++)
		code(j, &j->parts[i]);
	return j->out.failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult drv_link_texts(
	const struct drv_text *texts, size_t n, char **ptx, size_t *bytes, struct diag *d)
{
	struct join j = { .n = n, .d = d };
	j.parts = calloc(n + 1, sizeof(*j.parts));
	j.defined = table_new();
	j.emitted = table_new();
	CUresult r = j.parts && j.defined && j.emitted ? parse_parts(&j, texts)
						       : CUDA_ERROR_OUT_OF_MEMORY;
	if (!r)
		r = join_parts(&j);
	for (size_t i = 0; j.parts && i < n; i++) {
		ptx_module_free(j.parts[i].m);
		table_free(j.parts[i].renamed);
	}
	free(j.parts);
	table_free(j.defined);
	table_free(j.emitted);
	if (r) {
		buf_free(&j.out);
		return r;
	}
	*ptx = j.out.data;
	*bytes = j.out.len;
	return CUDA_SUCCESS;
}

/* -- the calls -------------------------------------------------------------------------------- */

struct CUlinkState_st {
	struct drv_object object;
	struct drv_jit jit;
	struct drv_text *texts;
	char **names;
	size_t n, cap;
	void *cubin;
	bool busy; /* a call works on it without the lock */
};

static void state_free(struct CUlinkState_st *s)
{
	for (size_t i = 0; i < s->n; i++) {
		free(s->texts[i].text);
		free(s->names[i]);
	}
	free(s->texts);
	free(s->names);
	free(s->cubin);
	free(s);
}

CUresult CUDAAPI cuLinkCreate_v2(
	unsigned int n, CUjit_option *options, void **values, CUlinkState *out)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUlinkState_st *s = out ? calloc(1, sizeof(*s)) : NULL;
	if (!s)
		return drv_leave(out ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE);
	s->object.kind = DRV_LINK;
	r = drv_jit_read(n, options, values, &s->jit);
	if (!r && drv_add_handle(&s->object))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (r)
		free(s);
	else
		*out = s;
	return drv_leave(r);
}

/* A state is used by one call at a time; others wait. */
static CUresult take(CUlinkState handle, struct CUlinkState_st **out)
{
	CUresult r = drv_enter_init();
	if (r)
		return r;
	struct CUlinkState_st *s;
	while ((s = drv_find(handle, DRV_LINK)) && s->busy)
		drv_wait();
	if (s)
		s->busy = true;
	*out = s;
	return drv_leave(s ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

static void give(struct CUlinkState_st *s)
{
	pthread_mutex_lock(&drv.lock);
	s->busy = false;
	drv_broadcast();
	pthread_mutex_unlock(&drv.lock);
}

/* Takes text. */
static CUresult add_text(struct CUlinkState_st *s, char *text, size_t bytes, const char *name)
{
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 8;
		struct drv_text *texts = realloc(s->texts, cap * sizeof(*texts));
		char **names = realloc(s->names, cap * sizeof(*names));
		if (texts)
			s->texts = texts;
		if (names)
			s->names = names;
		if (!texts || !names) {
			free(text);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		s->cap = cap;
	}
	char *copy = strdup(name ? name : "");
	if (!copy) {
		free(text);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->names[s->n] = copy;
	s->texts[s->n++] = (struct drv_text){ text, bytes, copy };
	return CUDA_SUCCESS;
}

/* Parses, so that a bad input is reported by the call that adds it. */
static CUresult check_text(const char *text, size_t bytes, struct diag *d)
{
	struct ptx_module *m = NULL;
	int err = ptx_parse(text, bytes, &m, d);
	ptx_module_free(m);
	return !err             ? CUDA_SUCCESS
	       : err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
				: CUDA_ERROR_INVALID_PTX;
}

static CUresult input_ptx(CUjitInputType type, const void *data, size_t bytes, char **text,
	size_t *size, struct diag *d)
{
	uint32_t magic = 0;
	switch (type) {
	case CU_JIT_INPUT_PTX:
		while (bytes && !((const char *)data)[bytes - 1])
			bytes--;
		*text = malloc(bytes + 1);
		if (!*text)
			return CUDA_ERROR_OUT_OF_MEMORY;
		memcpy(*text, data, bytes);
		(*text)[bytes] = 0;
		*size = bytes;
		return CUDA_SUCCESS;
	case CU_JIT_INPUT_CUBIN:
	case CU_JIT_INPUT_OBJECT:
	case CU_JIT_INPUT_FATBINARY:
		if (bytes >= sizeof(magic))
			memcpy(&magic, data, sizeof(magic));
		return magic == FATBIN_WRAPPER_MAGIC ? drv_image_ptx(data, text, size, d)
						     : drv_bytes_ptx(data, bytes, text, size, d);
	default:
		diag_set(d, ENOTSUP,
			"the linker of softgpu takes PTX, and cubins and fatbins that carry PTX");
		return (unsigned int)type < CU_JIT_NUM_INPUT_TYPES ? CUDA_ERROR_NOT_SUPPORTED
								   : CUDA_ERROR_INVALID_VALUE;
	}
}

static CUresult add(struct CUlinkState_st *s, CUjitInputType type, const void *data, size_t bytes,
	const char *name)
{
	struct diag d = { 0 };
	char *text = NULL;
	size_t size = 0;
	CUresult r = s->cubin ? CUDA_ERROR_INVALID_HANDLE
			      : input_ptx(type, data, bytes, &text, &size, &d);
	if (!r && (r = check_text(text, size, &d)))
		free(text);
	else if (!r)
		r = add_text(s, text, size, name);
	if (d.err)
		drv_jit_done(&s->jit, &d, 0);
	return r;
}

CUresult CUDAAPI cuLinkAddData_v2(CUlinkState handle, CUjitInputType type, void *data, size_t bytes,
	const char *name, unsigned int n, CUjit_option *options, void **values)
{
	struct CUlinkState_st *s;
	struct drv_jit ignored;
	CUresult r = take(handle, &s);
	if (r)
		return r;
	r = !data || !bytes ? CUDA_ERROR_INVALID_VALUE : drv_jit_read(n, options, values, &ignored);
	if (!r)
		r = add(s, type, data, bytes, name);
	give(s);
	return r;
}

CUresult CUDAAPI cuLinkAddFile_v2(CUlinkState handle, CUjitInputType type, const char *path,
	unsigned int n, CUjit_option *options, void **values)
{
	struct CUlinkState_st *s;
	struct drv_jit ignored;
	char *data = NULL;
	size_t bytes = 0;
	CUresult r = take(handle, &s);
	if (r)
		return r;
	r = !path ? CUDA_ERROR_INVALID_VALUE : drv_jit_read(n, options, values, &ignored);
	if (!r)
		r = drv_read_file(path, &data, &bytes);
	if (!r)
		r = add(s, type, data, bytes, path);
	free(data);
	give(s);
	return r;
}

/* The joined text is compiled once to find what is wrong with it, as the hardware's linker would.
 */
static CUresult complete(struct CUlinkState_st *s, size_t *size, struct diag *d)
{
	char *ptx = NULL;
	size_t bytes = 0;
	struct sg_module *code = NULL;
	if (!s->n)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = CUDA_SUCCESS;
	if (s->n > 1)
		r = drv_link_texts(s->texts, s->n, &ptx, &bytes, d);
	const char *text = ptx ? ptx : s->texts[0].text;
	if (!ptx)
		bytes = s->texts[0].bytes;
	if (!r)
		r = sg_module_load(drv.dev, text, bytes, &code, d);
	if (!r && !(s->cubin = drv_make_cubin(code, text, bytes, size)))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	sg_module_free(code);
	free(ptx);
	return r;
}

CUresult CUDAAPI cuLinkComplete(CUlinkState handle, void **cubin, size_t *bytes)
{
	struct CUlinkState_st *s;
	struct diag d = { 0 };
	size_t size = 0;
	CUresult r = take(handle, &s);
	if (r)
		return r;
	uint64_t start = drv_now_ns();
	r = !cubin || s->cubin ? CUDA_ERROR_INVALID_VALUE : complete(s, &size, &d);
	if (!r) {
		*cubin = s->cubin;
		if (bytes)
			*bytes = size;
	}
	drv_jit_done(&s->jit, &d, (double)(drv_now_ns() - start) / 1e6);
	give(s);
	return r;
}

CUresult CUDAAPI cuLinkDestroy(CUlinkState handle)
{
	struct CUlinkState_st *s;
	CUresult r = take(handle, &s);
	if (r)
		return r;
	pthread_mutex_lock(&drv.lock);
	drv_remove_handle(&s->object);
	drv_broadcast();
	pthread_mutex_unlock(&drv.lock);
	state_free(s);
	return CUDA_SUCCESS;
}
