/* image.c - what a program loads: its PTX texts and its kernels, kept by contents.
 *
 * Texts are unpacked at once, since the program may free what it handed over and their kernels' names
 * are wanted. Names come from a scan for `.entry`: most kernels are never parsed. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <libiberty/demangle.h>

#include "agent/agent.h"

enum { HASHED_ELF_BYTES = 1 << 20, MAX_KERNELS = 65536, MAX_LINK_INPUTS = 1024 };

/* Inputs of a linker that a program runs. */
struct link_record {
	struct link_record *next;
	CUlinkState state;
	struct arena *arena;
	struct unit *units;
	size_t n, cap;
	uint32_t max_regs;
};

/* An output of it: the units that went in, by the hash of what came out. */
struct link_product {
	struct link_product *next;
	uint64_t hash;
	size_t bytes;
	struct link_record *inputs;
};

/* -- units ------------------------------------------------------------------ */

/* "-maxrregcount=32", "-maxrregcount 32", "--maxrregcount=32". */
static uint32_t max_regs_of(const char *options)
{
	const char *at = strstr(options, "maxrregcount");
	if (!at)
		return 0;
	at += strlen("maxrregcount");
	while (*at == ' ' || *at == '=')
		at++;
	uint32_t v = 0;
	while (isdigit((unsigned char)*at) && v < 10000)
		v = v * 10 + (uint32_t)(*at++ - '0');
	return v;
}

static bool unit_from_text(
	struct arena *a, struct unit *u, const char *source, const char *text, size_t bytes)
{
	*u = (struct unit){
		.source = arena_strdup(a, source), .text = malloc(bytes + 1), .text_bytes = bytes
	};
	if (!u->source || !u->text) {
		free(u->text);
		return false;
	}
	memcpy(u->text, text, bytes);
	u->text[bytes] = 0;
	return true;
}

/* A copy of what a fatbin unit holds. False: no PTX, or no memory. */
static bool unit_from_fatbin(
	struct arena *a, struct unit *u, const struct fatbin *f, const struct fatbin_unit *from)
{
	char *text;
	size_t bytes;
	struct diag d = { 0 };
	if (!from->ptx && !from->ptx_in_elf)
		return false;
	if (fatbin_unit_text(f, from, &text, &bytes, &d)) {
		agent_log("%s: %s", from->source, d.text);
		return false;
	}
	*u = (struct unit){
		.source = arena_strdup(a, from->source), .text = text, .text_bytes = bytes
	};
	if (from->ptx)
		u->max_regs = max_regs_of(from->ptx->options);
	return u->source != NULL;
}

struct ptx_module *unit_module(struct unit *u)
{
	struct diag d = { 0 };
	if (u->module || u->broken)
		return u->module;
	int err = ptx_parse(u->text, u->text_bytes, &u->module, &d);
	if (err) {
		char why[600];
		snprintf(
			why, sizeof(why), "its PTX cannot be parsed (line %u): %s", d.line, d.text);
		u->broken = strdup(why);
		u->module = NULL;
	}
	return u->module;
}

void image_forget_parsed(struct image *im)
{
	for (uint32_t i = 0; i < im->n_units; i++) {
		ptx_module_free(im->units[i].module);
		im->units[i].module = NULL;
	}
}

/* -- kernels ---------------------------------------------------------------- */

static struct kernel *add_kernel(
	struct image *im, const char *name, size_t len, int32_t unit, size_t *cap)
{
	if (im->n_kernels >= MAX_KERNELS)
		return NULL;
	struct kernel *list = arena_grow(im->arena, im->kernels, im->n_kernels, cap, sizeof(*list));
	if (!list)
		return NULL;
	im->kernels = list;
	struct kernel *k = &list[im->n_kernels];
	*k = (struct kernel){
		.name = arena_strndup(im->arena, name, len), .unit = unit, .row = UINT32_MAX
	};
	if (!k->name)
		return NULL;
	im->n_kernels++;
	return k;
}

/* Skips a comment or a string at p; otherwise one character. */
static const char *step(const char *p, const char *end)
{
	const char *to = NULL;
	if (end - p >= 2 && p[0] == '/' && p[1] == '/')
		to = memchr(p, '\n', (size_t)(end - p));
	else if (end - p >= 2 && p[0] == '/' && p[1] == '*')
		to = memmem(p + 2, (size_t)(end - p - 2), "*/", 2);
	else if (*p == '"')
		to = memchr(p + 1, '"', (size_t)(end - p - 1));
	else
		return p + 1;
	return to ? to + (p[0] == '/' && p[1] == '*' ? 2 : 1) : end;
}

/* Where a scan stops: what may begin a comment or a string, and ".entry". Each is looked for ahead, by
 * functions of libc that read many characters at a time. */
struct stops {
	const char *slash, *quote, *entry; /* the next ones; NULL: not looked for yet */
};

static const char *found_or(const char *found, const char *end)
{
	return found ? found : end;
}

static const char *next_stop(struct stops *s, const char *p, const char *end)
{
	size_t n = (size_t)(end - p);
	if (!s->slash || s->slash < p)
		s->slash = found_or(memchr(p, '/', n), end);
	if (!s->quote || s->quote < p)
		s->quote = found_or(memchr(p, '"', n), end);
	if (!s->entry || s->entry < p)
		s->entry = found_or(memmem(p, n, ".entry", 6), end);
	const char *first = s->slash < s->quote ? s->slash : s->quote;
	return first < s->entry ? first : s->entry;
}

/* Kernels that a text defines. Their declarations (".extern .entry") have no body and are harmless:
 * nothing asks for them. */
static void scan_entries(struct image *im, int32_t unit, size_t *cap)
{
	const char *p = im->units[unit].text, *end = p + im->units[unit].text_bytes;
	struct stops stops = { 0 };
	while ((p = next_stop(&stops, p, end)) < end) {
		if (p != stops.entry || end - p < 8 || is_name(p[6])) {
			p = step(p, end);
			continue;
		}
		p += 6;
		while (p < end &&
			(isspace((unsigned char)*p) ||
				(*p == '/' && end - p >= 2 && (p[1] == '/' || p[1] == '*'))))
			p = step(p, end);
		const char *name = p;
		while (p < end && is_name(*p))
			p++;
		struct kernel *k = p > name ? add_kernel(im, name, (size_t)(p - name), unit, cap) : NULL;
		if (k) {
			k->params_text = p;
			k->params_end = end;
		}
	}
}

/* The table that finds kernels; names seen twice keep the first, which the driver prefers too. */
static bool index_kernels(struct image *im)
{
	im->by_name = table_new();
	if (!im->by_name)
		return false;
	for (uint32_t i = 0; i < im->n_kernels; i++) {
		struct kernel *k = &im->kernels[i];
		k->image = im;
		if (!table_gets(im->by_name, k->name) && table_puts(im->by_name, k->name, k))
			return false;
		if (!strncmp(k->name, "_Z", 2)) {
			char *plain = cplus_demangle_v3(k->name, DMGL_PARAMS | DMGL_ANSI);
			k->demangled = plain ? arena_strdup(im->arena, plain) : NULL;
			free(plain);
		}
	}
	return true;
}

struct kernel *image_kernel(struct image *im, const char *name)
{
	return name ? table_gets(im->by_name, name) : NULL;
}

/* -- images ----------------------------------------------------------------- */

static struct image *image_new(void)
{
	struct arena *a = arena_new();
	struct image *im = a ? arena_alloc(a, sizeof(*im)) : NULL;
	if (!im) {
		arena_free(a);
		return NULL;
	}
	im->arena = a;
	return im;
}

static void image_free(struct image *im)
{
	if (!im)
		return;
	for (uint32_t i = 0; i < im->n_units; i++) {
		free(im->units[i].text);
	}
	table_free(im->by_name);
	arena_free(im->arena);
}

static void hash_unit(struct image *im, const struct unit *u)
{
	im->hash = hash_bytes(u->text, u->text_bytes, im->hash);
}

/* Names of kernels for which only machine code is there. */
static void names_from_elf(
	struct image *im, const struct fatbin *f, const struct fatbin_entry *e, size_t *cap)
{
	const char **names;
	uint32_t n;
	char *elf;
	size_t bytes;
	if (fatbin_read(f, e, &elf, &bytes, NULL))
		return;
	im->hash = hash_bytes(elf, bytes < HASHED_ELF_BYTES ? bytes : HASHED_ELF_BYTES, im->hash);
	if (!cubin_kernels(f->arena, elf, bytes, &names, &n, NULL))
		for (uint32_t i = 0; i < n; i++)
			add_kernel(im, names[i], strlen(names[i]), -1, cap);
	free(elf);
}

static void take_bank(const char *name, uint64_t bytes, void *arg)
{
	struct kernel *k = image_kernel(arg, name);
	if (k)
		k->bank_bytes = bytes;
}

/* What the machine code beside the PTX says of its parameters. Compressed, it is not looked into: that would cost every load. */
static void look_at_code(struct image *im, const struct fatbin_entry *e)
{
	im->has_code = true;
	if (e->packing == FATBIN_RAW && !e->unreadable)
		cubin_banks(e->stored, e->stored_bytes, take_bank, im);
}

static bool take_products(struct image *im, const void *elf, size_t bytes);

static bool fill_image(struct image *im, struct fatbin *f, uint32_t cc)
{
	struct fatbin_unit *units;
	uint32_t n;
	size_t cap = 0;
	if (fatbin_units(f, cc, &units, &n))
		return false;
	im->units = arena_array(im->arena, n ? n : 1, sizeof(*im->units));
	if (!im->units)
		return false;
	for (uint32_t i = 0; i < n && i < MAX_UNITS; i++)
		if (unit_from_fatbin(im->arena, &im->units[im->n_units], f, &units[i]))
			im->n_units++;
	for (uint32_t i = 0; i < n && !im->n_units; i++)
		if (units[i].elf && f->input == FATBIN_INPUT_CUBIN)
			take_products(im, units[i].elf->stored, units[i].elf->stored_bytes);
	for (uint32_t i = 0; i < im->n_units; i++) {
		hash_unit(im, &im->units[i]);
		scan_entries(im, (int32_t)i, &cap);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (units[i].reason && !im->no_ptx)
			im->no_ptx = arena_strdup(im->arena, units[i].reason);
		/* Names from PTX come first, so that they win. */
		if (units[i].elf && !units[i].ptx && !units[i].ptx_in_elf)
			names_from_elf(im, f, units[i].elf, &cap);
	}
	if (!index_kernels(im))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		if (units[i].elf && im->n_units)
			look_at_code(im, units[i].elf);
	}
	for (uint32_t i = 0; i < im->n_kernels; i++)
		im->hash = hash_bytes(&im->kernels[i].bank_bytes, sizeof(im->kernels[i].bank_bytes), im->hash);
	im->hash = hash_bytes(&im->has_code, 1, im->hash);
	return true;
}

/* Keeps one image of each content. */
static struct image *image_share(struct image *im)
{
	lock_take(&agent.lock);
	for (struct image *old = atomic_load(&agent.images); old; old = old->next) {
		if (old->hash != im->hash || old->n_kernels != im->n_kernels ||
			old->n_units != im->n_units)
			continue;
		lock_drop(&agent.lock);
		image_free(im);
		return old;
	}
	im->next = atomic_load(&agent.images);
	atomic_store(&agent.images, im);
	lock_drop(&agent.lock);
	return im;
}

static struct image *image_from(struct fatbin *f, uint32_t cc)
{
	struct image *im = image_new();
	if (im && !fill_image(im, f, cc)) {
		image_free(im);
		im = NULL;
	}
	fatbin_close(f);
	return im ? image_share(im) : NULL;
}

struct image *image_get(const void *data, uint32_t cc, struct diag *d)
{
	struct fatbin *f;
	return fatbin_open_image(data, &f, d) ? NULL : image_from(f, cc);
}

struct image *image_known(const char *name)
{
	for (struct image *im = atomic_load(&agent.images); im; im = im->next) {
		const struct kernel *k = image_kernel(im, name);
		if (k && k->unit >= 0)
			return im;
	}
	return NULL;
}

struct image *image_of_name(const char *name)
{
	uint64_t hash = hash_bytes(name, strlen(name), 0);
	for (struct image *im = atomic_load(&agent.images); im; im = im->next)
		if (im->hash == hash && !im->n_units && im->n_kernels == 1 && image_kernel(im, name))
			return im;
	return NULL;
}

struct image *image_nameless(const char *name, const char *why, enum nameless what)
{
	struct image *im = image_new();
	size_t cap = 0;
	if (!im)
		return NULL;
	im->hash = hash_bytes(name, strlen(name), 0);
	im->no_ptx = arena_strdup(im->arena, why);
	if (!im->no_ptx || !add_kernel(im, name, strlen(name), -1, &cap) || !index_kernels(im)) {
		image_free(im);
		return NULL;
	}
	im = image_share(im);
	/* What has been searched for before keeps its answer until there is another. */
	if (what != NAMELESS_ANSWERED && im->answered)
		return im;
	im->answered = what == NAMELESS_ANSWERED;
	im->searched = what == NAMELESS_SEARCHED;
	if (strcmp(im->no_ptx, why))
		im->no_ptx = arena_strdup(im->arena, why);
	return im;
}

struct image *image_get_bytes(const void *data, size_t bytes, uint32_t cc)
{
	struct fatbin *f;
	return fatbin_open(data, bytes, &f, NULL) ? NULL : image_from(f, cc);
}

/* A file, mapped; empty on failure. */
static void *map_file(const char *path, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *p = NULL;
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	if (size > 0) {
		p = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
		p = p == MAP_FAILED ? NULL : p;
		*bytes = (size_t)size;
	}
	if (fd >= 0)
		close(fd);
	return p;
}

struct image *image_get_file(const char *path, uint32_t cc, struct diag *d)
{
	struct fatbin *f;
	size_t bytes = 0;
	void *p = path ? map_file(path, &bytes) : NULL;
	if (!p) {
		diag_set(d, ENOENT, "cannot read %s", path ? path : "(null)");
		return NULL;
	}
	struct image *im = fatbin_open(p, bytes, &f, d) ? NULL : image_from(f, cc);
	munmap(p, bytes);
	return im;
}

/* -- the program's own linking ------------------------------------------------ */

static struct link_record *link_find(CUlinkState state, bool make)
{
	struct link_record *r = agent.links;
	while (r && r->state != state)
		r = r->next;
	if (r || !make)
		return r;
	struct arena *a = arena_new();
	r = a ? arena_alloc(a, sizeof(*r)) : NULL;
	if (!r) {
		arena_free(a);
		return NULL;
	}
	r->arena = a;
	r->state = state;
	r->next = agent.links;
	agent.links = r;
	return r;
}

static void add_units(struct link_record *r, struct fatbin *f, uint32_t cc)
{
	struct fatbin_unit *units;
	uint32_t n;
	if (fatbin_units(f, cc, &units, &n))
		return;
	for (uint32_t i = 0; i < n && r->n < MAX_LINK_INPUTS; i++) {
		struct unit *list = arena_grow(r->arena, r->units, r->n, &r->cap, sizeof(*list));
		if (!list)
			return;
		r->units = list;
		if (unit_from_fatbin(r->arena, &list[r->n], f, &units[i]))
			r->n++;
	}
}

static void link_add(CUlinkState state, struct fatbin *f, uint32_t cc)
{
	lock_take(&agent.lock);
	struct link_record *r = link_find(state, true);
	if (r)
		add_units(r, f, cc);
	lock_drop(&agent.lock);
	fatbin_close(f);
}

static bool may_hold_ptx(CUjitInputType type)
{
	return type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY ||
	       type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_OBJECT;
}

void link_input(CUlinkState state, CUjitInputType type, const void *data, size_t bytes, uint32_t cc)
{
	struct fatbin *f;
	struct diag d = { 0 };
	if (!data || !may_hold_ptx(type))
		return;
	while (type == CU_JIT_INPUT_PTX && bytes && !((const char *)data)[bytes - 1])
		bytes--;
	/* A fatbin may be given as its wrapper, whose extent is that of what it points to. */
	int err = type == CU_JIT_INPUT_FATBINARY ? fatbin_open_image(data, &f, &d)
						 : fatbin_open(data, bytes, &f, &d);
	if (!err)
		link_add(state, f, cc);
	else
		agent_log("linker input: %s", d.text);
}

void link_input_file(CUlinkState state, CUjitInputType type, const char *path, uint32_t cc)
{
	struct fatbin *f;
	size_t bytes = 0;
	void *p = path && may_hold_ptx(type) ? map_file(path, &bytes) : NULL;
	if (!p)
		return;
	if (!fatbin_open(p, bytes, &f, NULL))
		link_add(state, f, cc);
	munmap(p, bytes);
}

void link_option_regs(CUlinkState state, uint32_t max_regs)
{
	lock_take(&agent.lock);
	struct link_record *r = max_regs ? link_find(state, true) : NULL;
	if (r)
		r->max_regs = max_regs;
	lock_drop(&agent.lock);
}

void link_output(CUlinkState state, const void *cubin, size_t bytes)
{
	lock_take(&agent.lock);
	struct link_record *r = link_find(state, false);
	struct link_product *p = r && r->n ? calloc(1, sizeof(*p)) : NULL;
	if (p) {
		/* Later the image is known by its address only, and ends where its headers say. */
		uint64_t extent = elf_extent(cubin, bytes);
		p->bytes = extent && extent < bytes ? extent : bytes;
		p->hash = hash_bytes(cubin, p->bytes, 0);
		p->inputs = r;
		p->next = agent.products;
		agent.products = p;
	}
	lock_drop(&agent.lock);
}

/* The record itself stays while a product refers to it; the state's address may come again. */
void link_forget(CUlinkState state)
{
	lock_take(&agent.lock);
	struct link_record **at = &agent.links, *r;
	while ((r = *at) && r->state != state)
		at = &r->next;
	if (r) {
		*at = r->next;
		bool used = false;
		for (struct link_product *p = agent.products; p && !used; p = p->next)
			used = p->inputs == r;
		if (!used) {
			for (size_t i = 0; i < r->n; i++)
				free(r->units[i].text);
			arena_free(r->arena);
		}
	}
	lock_drop(&agent.lock);
}

/* The units that were linked into this cubin. */
static bool take_products(struct image *im, const void *elf, size_t bytes)
{
	lock_take(&agent.lock);
	struct link_product *p = agent.products;
	uint64_t hash = p ? hash_bytes(elf, bytes, 0) : 0;
	while (p && (p->hash != hash || p->bytes != bytes))
		p = p->next;
	struct unit *units = p ? arena_array(im->arena, p->inputs->n, sizeof(*units)) : NULL;
	for (size_t i = 0; units && i < p->inputs->n; i++) {
		const struct unit *from = &p->inputs->units[i];
		if (!unit_from_text(im->arena, &units[im->n_units], "linker input", from->text,
			    from->text_bytes))
			break;
		units[im->n_units].max_regs = from->max_regs ? from->max_regs : p->inputs->max_regs;
		im->n_units++;
	}
	if (units)
		im->units = units;
	lock_drop(&agent.lock);
	return im->n_units != 0;
}
