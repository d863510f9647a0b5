/* kernels.c - see kernels.h.
 *
 * Passes: open the image; per region name the kernels in machine code; read the PTX that the driver
 * would choose for the device, else the newest; per kernel count its sites or say why there are
 * none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "cli/kernels.h"
#include "cli/names.h"
#include "cuda/fatbin.h"
#include "instrument/instrument.h"
#include "ptx/ptx.h"

struct reader {
	struct kernel_file *file;
	struct fatbin *fat;
	const struct kernel_query *query;
	struct table *rows; /* kernel name -> index + 1, of the region at hand */
	size_t cap, problem_cap, note_cap;
};

static const char *version_text(struct arena *a, uint32_t major, uint32_t minor)
{
	const char *s = arena_printf(a, "%u.%u", major, minor);
	return s ? s : "?";
}

static void line(struct reader *r, const char ***list, uint32_t *n, size_t *cap, const char *text)
{
	const char **all = arena_grow(r->file->arena, *list, *n, cap, sizeof(*all));
	if (!all)
		return;
	*list = all;
	all[(*n)++] = text ? text : "out of memory";
}

static void problem(struct reader *r, const char *where, const struct diag *d)
{
	struct kernel_file *f = r->file;
	line(r, &f->problems, &f->n_problems, &r->problem_cap,
		d->line ? arena_printf(f->arena, "%s: line %u, column %u: %s", where, d->line,
				  d->column, d->text)
			: arena_printf(f->arena, "%s: %s", where, d->text));
}

static const char *entry_words(struct reader *r, const struct fatbin_entry *e)
{
	char target[24];
	const char *s = arena_printf(r->file->arena, "%s%s %s",
		r->fat->input == FATBIN_INPUT_CUBIN || r->fat->input == FATBIN_INPUT_PTX
			? ""
			: "fatbin ",
		fatbin_target_name(e, target), e->kind == FATBIN_KIND_PTX ? "PTX" : "cubin");
	return s ? s : "?";
}

static struct file_kernel *kernel_row(
	struct reader *r, const char *name, const struct fatbin_entry *e)
{
	struct kernel_file *f = r->file;
	uintptr_t known = (uintptr_t)table_gets(r->rows, name);
	if (known)
		return &f->kernels[known - 1];
	struct file_kernel *all =
		arena_grow(f->arena, f->kernels, f->n_kernels, &r->cap, sizeof(*all));
	const char *copy = arena_strdup(f->arena, name);
	if (!all || !copy)
		return NULL;
	f->kernels = all;
	struct file_kernel *k = &all[f->n_kernels++];
	*k = (struct file_kernel){
		.name = copy, .source = "none", .targets = "", .object = e->name ? e->name : ""
	};
	k->demangled = name_demangle(f->arena, copy);
	table_puts(r->rows, copy, (void *)(uintptr_t)f->n_kernels);
	return k;
}

/* -- PTX --------------------------------------------------------------------- */

/* Why no compiler here takes this PTX; NULL when one does. */
static const char *not_compilable(struct reader *r, const struct ptx_module *m)
{
	const struct kernel_query *q = r->query;
	struct arena *a = r->file->arena;
	uint32_t isa = 10 * m->version_major + m->version_minor;
	if (q->ptx_isa && isa > q->ptx_isa && !q->have_ptxas)
		return arena_printf(a,
			"its PTX (version %s) is newer than this driver's compiler (%s) and there "
			"is no ptxas: "
			"update the driver, or install ptxas of a newer toolkit",
			version_text(a, m->version_major, m->version_minor),
			version_text(a, q->ptx_isa / 10, q->ptx_isa % 10));
	bool fits = m->target_suffix == 'a'   ? m->sm == q->cc
		    : m->target_suffix == 'f' ? m->sm / 10 == q->cc / 10 && m->sm <= q->cc
					      : m->sm <= q->cc;
	if (q->cc && !fits)
		return arena_printf(a,
			"its PTX is for %s, which sm_%u cannot run: add compute_%u PTX to the "
			"build",
			m->target, q->cc, q->cc);
	return NULL;
}

static void list_skips(
	struct reader *r, struct file_kernel *k, const struct instrument_site *sites, uint32_t n)
{
	size_t cap = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = 0;
		if (!sites[i].skipped)
			continue;
		while (at < k->n_skips && strcmp(k->skips[at].reason, sites[i].skipped))
			at++;
		if (at == k->n_skips) {
			struct file_skip *skips = arena_grow(
				r->file->arena, k->skips, k->n_skips, &cap, sizeof(*skips));
			const char *reason = arena_strdup(r->file->arena, sites[i].skipped);
			if (!skips || !reason)
				return;
			k->skips = skips;
			skips[k->n_skips++] = (struct file_skip){ reason, 0 };
		}
		k->skips[at].sites++;
	}
}

static void examine(struct reader *r, struct file_kernel *k, const struct ptx_module *m,
	const struct fatbin_entry *e, const char *source)
{
	struct instrument_site *sites;
	struct diag d = { 0 };
	struct arena *scratch = arena_new();
	k->source = source;
	k->before_link = e->relocatable;
	k->reason = not_compilable(r, m);
	int err =
		scratch ? instrument_sites(scratch, m, k->name, &sites, &k->n_sites, &d) : -ENOMEM;
	if (err && !k->reason)
		k->reason = arena_strdup(r->file->arena, d.err ? d.text : strerror(-err));
	if (err)
		k->n_sites = 0;
	list_skips(r, k, sites, k->n_sites);
	k->parting = 0;
	for (uint32_t i = 0; i < k->n_sites; i++)
		k->parting += sites[i].parts_product;
	arena_free(scratch);
}

static void read_ptx_text(struct reader *r, const struct fatbin_entry *e, const char *text,
	size_t size, const char *source)
{
	struct ptx_module *m = NULL;
	struct diag d = { 0 };
	if (ptx_parse(text, size, &m, &d)) {
		problem(r, source, &d);
		return;
	}
	for (uint32_t i = 0; i < m->n_items; i++) {
		const struct ptx_func *func =
			m->items[i].kind == PTX_ITEM_FUNC ? m->items[i].func : NULL;
		if (!func || !func->is_entry || func->is_decl)
			continue;
		struct file_kernel *k = kernel_row(r, func->name, e);
		if (k && (!strcmp(k->source, "none") || k->reason))
			examine(r, k, m, e, source);
	}
	ptx_module_free(m);
}

static void read_ptx_entry(struct reader *r, const struct fatbin_entry *e)
{
	char *text = NULL;
	size_t size;
	struct diag d = { 0 };
	const char *source = entry_words(r, e);
	if (fatbin_read(r->fat, e, &text, &size, &d)) {
		problem(r, source, &d);
		return;
	}
	if (e->relocatable)
		source = arena_printf(r->file->arena, "%s (before device link)", source);
	read_ptx_text(r, e, text, size, source ? source : "PTX");
	free(text);
}

/* -- machine code ------------------------------------------------------------ */

static void add_target(struct reader *r, struct file_kernel *k, const struct fatbin_entry *e)
{
	char target[24];
	const char *name = fatbin_target_name(e, target);
	if (strstr(k->targets, name))
		return;
	const char *joined =
		arena_printf(r->file->arena, "%s%s%s", k->targets, *k->targets ? " " : "", name);
	k->targets = joined ? joined : k->targets;
}

static void read_cubin(struct reader *r, const struct fatbin_entry *e)
{
	char *elf = NULL;
	size_t size;
	const char **names, *where = entry_words(r, e);
	uint32_t n = 0;
	struct diag d = { 0 };
	if (fatbin_read(r->fat, e, &elf, &size, &d) ||
		cubin_kernels(r->file->arena, elf, size, &names, &n, &d)) {
		problem(r, where, &d);
		free(elf);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct file_kernel *k = kernel_row(r, names[i], e);
		if (k)
			add_target(r, k, e);
	}
	free(elf);
}

/* -- a region ---------------------------------------------------------------- */

/* The text the agent would take; when there is none that fits the device, the newest other PTX
 * still names kernels. */
static void read_unit(
	struct reader *r, const struct fatbin_unit *u, const struct fatbin_entry *newest)
{
	char *text = NULL;
	size_t size;
	struct diag d = { 0 };
	if (!u->ptx && !u->ptx_in_elf && newest) {
		read_ptx_entry(r, newest);
		return;
	}
	if (!u->ptx && !u->ptx_in_elf)
		return;
	const struct fatbin_entry *e = u->ptx ? u->ptx : u->elf;
	if (fatbin_unit_text(r->fat, u, &text, &size, &d))
		problem(r, u->source, &d);
	else
		read_ptx_text(r, e, text, size, arena_strdup(r->file->arena, u->source));
	free(text);
}

/* Entries [first, end) are those of one region. */
static void read_region(struct reader *r, const struct fatbin_unit *u, uint32_t first, uint32_t end)
{
	const struct fatbin_entry *newest = NULL;
	table_free(r->rows);
	r->rows = table_new();
	if (!r->rows)
		return;
	uint32_t row = r->file->n_kernels;
	for (uint32_t i = first; i < end; i++) {
		const struct fatbin_entry *e = &r->fat->entries[i];
		if (e->kind == FATBIN_KIND_PTX && !e->unreadable && (!newest || e->sm > newest->sm))
			newest = e;
	}
	read_unit(r, u, newest);
	for (uint32_t i = first; i < end; i++)
		if (r->fat->entries[i].kind == FATBIN_KIND_ELF && !r->fat->entries[i].unreadable)
			read_cubin(r, &r->fat->entries[i]);
	for (; row < r->file->n_kernels; row++)
		if (u->reason && !strcmp(r->file->kernels[row].source, "none"))
			r->file->kernels[row].reason = arena_strdup(r->file->arena, u->reason);
}

static int read_regions(struct reader *r, struct diag *d)
{
	struct fatbin_unit *units;
	uint32_t n, at = 0;
	if (fatbin_units(r->fat, r->query->cc, &units, &n))
		return diag_set(d, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++) {
		uint32_t first = at;
		while (at < r->fat->n_entries && r->fat->entries[at].region <= units[i].region)
			at++;
		read_region(r, &units[i], first, at);
	}
	return 0;
}

/* Entries that hold neither PTX nor machine code are named, since their kernels cannot be. */
static void note_others(struct reader *r)
{
	struct kernel_file *f = r->file;
	for (uint32_t i = 0; i < r->fat->n_entries; i++) {
		const struct fatbin_entry *e = &r->fat->entries[i];
		struct diag d = { 0 };
		char target[24];
		fatbin_target_name(e, target);
		bool code = e->kind == FATBIN_KIND_PTX || e->kind == FATBIN_KIND_ELF;
		if (code && e->unreadable) {
			diag_set(&d, EINVAL, "%s", e->unreadable);
			problem(r, entry_words(r, e), &d);
		} else if (!code) {
			line(r, &f->notes, &f->n_notes, &r->note_cap,
				e->kind == FATBIN_KIND_LTO
					? arena_printf(f->arena,
						  "%s: LTO-IR, whose kernels have no PTX before "
						  "the link",
						  target)
					: arena_printf(f->arena,
						  "%s: a kind of code (%u) that is not known",
						  target, e->kind));
		}
	}
}

/* With separate compilation (nvcc -rdc=true) the linked machine code has no PTX and each unit's PTX
 * lies apart, where the driver's loader and so the agent find it: one kernel, shown once. */
static void join_linked(struct kernel_file *f)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < f->n_kernels; i++) {
		struct file_kernel *k = &f->kernels[i], *unit = NULL;
		for (uint32_t j = 0; j < f->n_kernels && !unit; j++)
			if (f->kernels[j].before_link && !strcmp(f->kernels[j].name, k->name))
				unit = &f->kernels[j];
		if (unit && unit != k && !k->before_link && !strcmp(k->source, "none"))
			unit->targets = k->targets;
		else
			f->kernels[kept++] = *k;
	}
	f->n_kernels = kept;
}

static void explain(struct kernel_file *f)
{
	for (uint32_t i = 0; i < f->n_kernels; i++) {
		struct file_kernel *k = &f->kernels[i];
		if (k->reason || strcmp(k->source, "none"))
			continue;
		k->reason = arena_printf(f->arena,
			"no PTX, only machine code (%s): build with -gencode "
			"arch=compute_XX,code=compute_XX, or with -lineinfo",
			k->targets);
	}
}

int kernels_read(const void *data, size_t size, const struct kernel_query *q,
	struct kernel_file **out, struct diag *d)
{
	struct reader r = { .query = q };
	struct arena *a = arena_new();
	struct kernel_file *f = a ? arena_alloc(a, sizeof(*f)) : NULL;
	if (!f) {
		arena_free(a);
		return diag_set(d, ENOMEM, "out of memory");
	}
	f->arena = a;
	r.file = f;
	int err = fatbin_open(data, size, &r.fat, d);
	if (!err && !r.fat->n_entries)
		err = diag_set(d, ENOENT,
			"holds no CUDA code; if it loads its kernels while it runs, use egpu list "
			"-- COMMAND");
	if (err) {
		fatbin_close(r.fat);
		arena_free(a);
		return err;
	}
	err = read_regions(&r, d);
	if (!err) {
		note_others(&r);
		join_linked(f);
		explain(f);
	}
	table_free(r.rows);
	fatbin_close(r.fat);
	if (err)
		arena_free(a);
	else
		*out = f;
	return err;
}

void kernels_free(struct kernel_file *f)
{
	if (f)
		arena_free(f->arena);
}
