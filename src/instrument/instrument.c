/* instrument.c - the passes in order, and the variant's text from what they left. */
#include "instrument/instrument.h"

#include <errno.h>
#include <string.h>

#include "instrument/readback.h"
#include "instrument/variant.h"

static bool variant_init(struct variant *v, struct arena *arena, const struct ptx_module *m,
	const char *kernel, struct diag *d)
{
	*v = (struct variant){ .arena = arena, .m = m, .d = d, .edits = { .arena = arena } };
	v->kernel = ptx_find_func(m, kernel);
	if (!v->kernel || !v->kernel->is_entry || v->kernel->is_decl) {
		v->err = diag_set(d, ENOENT, "the module has no kernel '%s'", kernel);
		return false;
	}
	v->functions = table_new();
	v->symbols = table_new();
	v->bound_regs = table_new();
	if (!v->functions || !v->symbols || !v->bound_regs)
		return no_memory(v);
	return target_init(v);
}

static void variant_free(struct variant *v)
{
	table_free(v->functions);
	table_free(v->symbols);
	table_free(v->bound_regs);
}

/* -- text -- */

struct output {
	struct variant *v;
	const struct instrument_request *req;
	struct buf b;
	bool header_done, uses_debug;
	uint32_t last_var; /* one declaration may hold several names */
};

static bool emit_funcs(struct output *o)
{
	struct table *seen = table_new();
	bool ok = seen;

	for (uint32_t i = 0; ok && i < o->req->n_fragments; i++) {
		const struct ebpf_fragment *f = o->req->fragments[i];
		for (uint32_t k = 0; ok && k < f->n_funcs; k++) {
			const struct ebpf_fragment_func *func = &f->funcs[k];
			if (table_gets(seen, func->name))
				continue;
			ok = !table_puts(seen, func->name, (void *)func);
			ebpf_fragment_text(
				func->text, o->v->target.version, o->v->target.sm, &o->b);
			buf_puts(&o->b, "\n");
		}
	}
	table_free(seen);
	emit_programs(o->v, o->req, &o->b);
	return ok ? true : no_memory(o->v);
}

/* The table and the fragments' functions, once, before the first thing that may use them. */
static bool emit_header(struct output *o)
{
	if (o->header_done)
		return true;
	o->header_done = true;
	buf_printf(&o->b, ".visible .const .align 8 .u64 " TABLE_NAME "[%u];\n",
		EBPF_TABLE_SYMBOLS + o->v->n_bound);
	return emit_funcs(o);
}

static bool wants_var(const struct output *o, const struct ptx_var *var)
{
	const struct symbol *s = table_gets(o->v->symbols, var->name);

	return s && s->fate != FATE_BIND;
}

static bool wants_func(const struct output *o, const struct ptx_func *f)
{
	if (!table_gets(o->v->functions, f->name))
		return false;
	return f->is_decl || ptx_find_func(o->v->m, f->name) == f;
}

/* Debug sections describe the whole module by labels that are gone now; only the strings stay,
 * because .loc refers to them. */
static bool wants_item(const struct output *o, const struct ptx_item *item)
{
	switch (item->kind) {
	case PTX_ITEM_VAR:
		return wants_var(o, item->var);
	case PTX_ITEM_FUNC:
		return wants_func(o, item->func);
	case PTX_ITEM_SECTION:
		return !strcmp(item->file_name, ".debug_str");
	case PTX_ITEM_ALIAS:
		return table_gets(o->v->functions, item->file_name);
	default:
		return true;
	}
}

static bool is_preamble(const struct ptx_item *item)
{
	return item->kind == PTX_ITEM_VERSION || item->kind == PTX_ITEM_TARGET ||
	       item->kind == PTX_ITEM_ADDRESS_SIZE;
}

static bool contains_word(const char *text, struct ptx_span span, const char *word)
{
	const char *found = strstr(text + span.begin, word);

	return found && found < text + span.end;
}

static bool emit_item(struct output *o, const struct ptx_item *item)
{
	struct variant *v = o->v;
	struct ptx_span span = item->span;

	if (!is_preamble(item) && !emit_header(o))
		return false;
	if (!wants_item(o, item))
		return true;
	if (item->kind == PTX_ITEM_TARGET)
		o->uses_debug |= contains_word(v->m->text, span, "debug");
	if (item->kind == PTX_ITEM_VAR) {
		span = item->var->span;
		if (span.begin == o->last_var)
			return true;
		o->last_var = span.begin;
	}
	v->printed = arena_grow(v->arena, v->printed, v->n_printed, &v->printed_cap, sizeof(*v->printed));
	if (!v->printed)
		return no_memory(v);
	v->printed[v->n_printed++] = (struct printed){ span, o->b.len };
	int err = ptx_edits_apply(&v->edits, v->m->text, span, &o->b);
	buf_puts(&o->b, "\n");
	if (err == -ENOMEM)
		return no_memory(v);
	if (err) {
		v->err = diag_set_at(v->d, EINVAL, item->line, 0, "edits of this item overlap");
		return false;
	}
	return true;
}

/* ptxas 13.0 wants debug information behind `.target ..., debug`, and a compilation unit that has a
 * language, a name, a line table and a low address: this one is empty beside. */
static const char empty_debug[] =
	".section .debug_abbrev\n{\n.b8 1, 17, 0, 19, 5, 3, 8, 16, 6, 17, 1, 0, 0, 0\n}\n"
	".section .debug_info\n{\n.b32 24\n.b8 2, 0\n.b32 .debug_abbrev\n.b8 8, 1, 4, 0, 101, 0\n"
	".b32 .debug_line\n.b64 0\n}\n";

static bool print_variant(
	struct variant *v, const struct instrument_request *req, struct instrument_result *out)
{
	struct output o = { .v = v, .req = req, .last_var = UINT32_MAX };
	bool ok = true;

	v->n_printed = 0;
	for (uint32_t i = 0; ok && i < v->m->n_items; i++)
		ok = emit_item(&o, &v->m->items[i]);
	if (o.uses_debug)
		buf_puts(&o.b, empty_debug);
	if (ok) {
		char *text = o.b.failed ? NULL : arena_strndup(v->arena, o.b.data, o.b.len);
		out->ptx = text;
		out->ptx_bytes = o.b.len;
		ok = text ? true : no_memory(v);
	}
	buf_free(&o.b);
	return ok;
}

/* -- results -- */

static bool list_bound(struct variant *v, struct instrument_result *out)
{
	out->symbols = arena_array(v->arena, v->n_bound, sizeof(*out->symbols));
	if (!out->symbols)
		return no_memory(v);
	for (size_t i = 0; i < v->n_symbols; i++) {
		const struct symbol *s = v->symbol_list[i];
		if (s->fate == FATE_BIND)
			out->symbols[s->entry] = s->var->name;
	}
	out->n_symbols = v->n_bound;
	out->table_entries = EBPF_TABLE_SYMBOLS + v->n_bound;
	return true;
}

/* The variant without fragments: what the proofs compare both ways. */
static bool print_bound(struct variant *v, struct instrument_result *out)
{
	struct instrument_request none = { .module = v->m };

	return print_variant(v, &none, out) && list_bound(v, out);
}

static bool prove(struct variant *v, const struct instrument_result *bound,
	const struct instrument_result *out)
{
	v->err = readback_binding(
		v->m, v->kernel->name, bound->ptx, bound->symbols, bound->n_symbols, v->d);
	if (!v->err)
		v->err = readback_splice(bound->ptx, out->ptx, out->launch_param, v->d);
	return !v->err;
}

static bool count(struct variant *v, struct instrument_result *out)
{
	v->err = instrument_count(out->ptx, out->ptx_bytes, v->kernel->name, &out->cost, v->d);
	return !v->err;
}

int instrument_kernel(struct arena *arena, const struct instrument_request *req,
	struct instrument_result *out, struct diag *d)
{
	struct variant v;
	struct diag local = { 0 };
	struct instrument_result bound = { 0 };
	const struct ebpf_fragment *const *numbering =
		req->numbering ? req->numbering : req->fragments;
	uint32_t n = req->numbering ? req->n_numbering : req->n_fragments;

	*out = (struct instrument_result){ 0 };
	bool ok = variant_init(&v, arena, req->module, req->kernel, d ? d : &local);
	v.unbound = req->unbound;
	v.n_unbound = req->n_unbound;
	v.first_site = req->first_site;
	ok = ok && collect(&v) && check_running(&v, req) && align_shared(&v) && bind(&v) && find_sites(&v) &&
	     find_points(&v, numbering, n) && choose_guards(&v, req) && print_bound(&v, &bound) && splice(&v, req, out) &&
	     print_variant(&v, req, out) &&
	     list_bound(&v, out) && prove(&v, &bound, out) && add_lines(&v, out) && count(&v, out);
	out->sites = v.sites;
	out->n_sites = v.n_sites;
	out->n_params = v.kernel ? v.kernel->n_params : 0;
	variant_free(&v);
	return ok ? 0 : v.err;
}

/* parting: also which of them part products. */
static int list_sites(struct arena *arena, const struct ptx_module *m, const char *kernel, bool parting,
	const struct ebpf_fragment *const *numbering, uint32_t n_numbering, struct instrument_site **sites, uint32_t *n_sites, struct diag *d)
{
	struct variant v;
	struct diag local = { 0 };
	bool ok = variant_init(&v, arena, m, kernel, d ? d : &local) && collect(&v) && bind(&v) && find_sites(&v) &&
		  find_points(&v, numbering, n_numbering) && (!parting || mark_parting(&v));

	*sites = v.sites;
	*n_sites = v.n_sites;
	variant_free(&v);
	return ok ? 0 : v.err;
}

int instrument_sites(struct arena *arena, const struct ptx_module *m, const char *kernel,
	struct instrument_site **sites, uint32_t *n_sites, struct diag *d)
{
	return list_sites(arena, m, kernel, true, NULL, 0, sites, n_sites, d);
}

int instrument_sites_for(struct arena *arena, const struct ptx_module *m, const char *kernel,
	const struct ebpf_fragment *const *numbering, uint32_t n_numbering,
	struct instrument_site **sites, uint32_t *n_sites, struct diag *d)
{
	return list_sites(arena, m, kernel, false, numbering, n_numbering, sites, n_sites, d);
}
