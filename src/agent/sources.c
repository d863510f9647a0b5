/* sources.c - the PTX of kernels that were loaded before we came: in the fatbins of loaded files,
 * as text in memory, and in Triton's cache.
 *
 * A fatbin is found through its wrapper in the file's section .nvFatBinSegment, which the CUDA
 * runtime hands to the driver. Text in memory is found by the kernel's name behind `.entry`. Two
 * different texts that define one name leave open which of them was loaded: then there is none for
 * us. What is left of a text in memory that was given back is no text of its own, if it agrees as far as
 * it goes.
 *
 * A large process has thousands of fatbins and gigabytes of memory. Both are looked through once for an
 * attach, a slice at a time, and what is kept is an index by hashes of names.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/agent.h"

enum {
	MAX_TEXT = 1 << 24,
	MAX_MAPPED = 64 << 20, /* of a file: a program that carries PTX as text is smaller */
	CHUNK = 1 << 20,
	MAX_WRAPPERS = 65536,
	MAX_PLACES = 1 << 20,
	MAX_NAME = 1000,
	MAX_TEXTS = 32, /* of one name that are compared */
};

/* Hashes of names. */
struct names {
	uint64_t *list;
	size_t n, cap;
};

/* Of each fatbin only the hashes of its kernels' names are kept: the texts together may be gigabytes. bare: those
 * that have no PTX for this device. */
struct wrapper {
	const void *at;
	struct names ptx, bare;
};

/* `.entry NAME` at a place in memory, of the mapping [from, to). */
struct place {
	uint64_t name; /* hash */
	uintptr_t at, from, to;
};

/* A mapping [begin, to), of which [from, end) is still to be looked through. */
struct span {
	uintptr_t begin, to, from, end;
	bool fresh; /* it was not there at the last look */
};

/* Used by one thread. */
static struct {
	struct wrapper *list;
	size_t n, cap, n_read;
	unsigned long long adds; /* loaded files ever, when the list was made */
	uint64_t files_ns; /* spent on reading names */
	struct span *spans; /* of memory, by address; fresh ones are looked through first */
	size_t n_spans, cap_spans, at_span;
	bool again, fresh_done, all_done;
	struct place *places;
	size_t n_places, cap_places, n_old; /* n_old: of the last look */
	char *chunk, *text; /* CHUNK and MAX_TEXT bytes */
	uint64_t begun_ns;  /* when this look through memory began */
	uint64_t spent_ns;  /* on all of them since the attach */
} w;

#define MEMORY_NS 20000000000ull

/* -- fatbins of loaded files ------------------------------------------------------------- */

static void add_wrapper(const void *at)
{
	for (size_t i = 0; i < w.n; i++)
		if (w.list[i].at == at)
			return;
	if (w.n == w.cap) {
		size_t cap = w.cap ? w.cap * 2 : 64;
		void *more = cap <= MAX_WRAPPERS ? realloc(w.list, cap * sizeof(*w.list)) : NULL;
		if (!more)
			return;
		w.list = more;
		w.cap = cap;
	}
	w.list[w.n++] = (struct wrapper){ .at = at };
}

/* The section's place in memory follows from its place in the file. */
static void wrappers_of(const struct dl_phdr_info *info, const char *bytes, size_t size)
{
	const char *name;
	const uint8_t *data;
	uint64_t n;
	for (uint32_t i = 0; elf_section(bytes, size, i, &name, &data, &n) > 0; i++) {
		if (strcmp(name, ".nvFatBinSegment"))
			continue;
		uint64_t at = (uint64_t)((const char *)data - bytes);
		for (size_t k = 0; k < info->dlpi_phnum; k++) {
			const ElfW(Phdr) *ph = &info->dlpi_phdr[k];
			if (ph->p_type != PT_LOAD || at < ph->p_offset ||
				at - ph->p_offset + n > ph->p_filesz)
				continue;
			const char *from =
				(const char *)info->dlpi_addr + ph->p_vaddr + (at - ph->p_offset);
			for (uint64_t j = 0; j + 24 <= n; j += 24)
				add_wrapper(from + j);
		}
	}
}

static int look_into(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *path = info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
	int fd = path[0] == '/' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	void *p = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		return 0;
	wrappers_of(info, p, (size_t)bytes);
	munmap(p, (size_t)bytes);
	return 0;
}

static int count_adds(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

static bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$' || c == '%';
}

static void add_name(struct names *to, const char *name, size_t length)
{
	if (to->n == to->cap) {
		size_t more = to->cap ? to->cap * 2 : 16;
		void *list = realloc(to->list, more * sizeof(*to->list));
		if (!list)
			return;
		to->list = list;
		to->cap = more;
	}
	to->list[to->n++] = hash_bytes(name, length, 0);
}

static bool has_name(const struct names *in, uint64_t hash)
{
	for (size_t i = 0; i < in->n; i++)
		if (in->list[i] == hash)
			return true;
	return false;
}

/* Names behind `.entry`; one in a comment does no harm. */
static void add_names(struct names *to, const char *text, size_t bytes)
{
	const char *end = text + bytes, *p = text;
	while ((p = memmem(p, (size_t)(end - p), ".entry", 6))) {
		p += 6;
		while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
			p++;
		const char *name = p;
		while (p < end && is_name(*p))
			p++;
		if (p > name)
			add_name(to, name, (size_t)(p - name));
	}
}

/* Kernels of machine code, by the names of its sections. */
static void add_bare(struct names *to, const struct fatbin *f, const struct fatbin_entry *elf)
{
	enum { TEXT = sizeof(".text.") - 1 };
	char *names;
	size_t bytes;
	if (fatbin_section_names(f, elf, &names, &bytes))
		return;
	for (const char *p = names; p < names + bytes; p += strlen(p) + 1)
		if (!strncmp(p, ".text.", TEXT))
			add_name(to, p + TEXT, strlen(p + TEXT));
	free(names);
}

static void read_names(struct wrapper *wr, uint32_t cc)
{
	struct fatbin *f;
	struct fatbin_unit *units;
	uint32_t n = 0;
	if (fatbin_open_image(wr->at, &f, NULL))
		return;
	if (fatbin_units(f, cc, &units, &n))
		n = 0;
	for (uint32_t i = 0; i < n; i++) {
		char *text;
		size_t bytes;
		bool has = units[i].ptx || units[i].ptx_in_elf;
		if (has && !fatbin_unit_text(f, &units[i], &text, &bytes, NULL)) {
			add_names(&wr->ptx, text, bytes);
			free(text);
		} else if (!has && units[i].elf) {
			add_bare(&wr->bare, f, units[i].elf);
		}
	}
	fatbin_close(f);
}

/* Whether every fatbin's names are known. */
static bool know_files(uint32_t cc, uint64_t until)
{
	unsigned long long adds = 0;
	uint64_t start = now_ns();
	dl_iterate_phdr(count_adds, &adds);
	if (adds != w.adds) {
		dl_iterate_phdr(look_into, NULL);
		w.adds = adds;
	}
	if (w.n_read == w.n)
		return true;
	for (; w.n_read < w.n && now_ns() < until; w.n_read++)
		read_names(&w.list[w.n_read], cc);
	w.files_ns += now_ns() - start;
	if (w.n_read == w.n)
		agent_log("names of %zu fatbins in files read in %.1f ms", w.n, (double)w.files_ns / 1e6);
	return w.n_read == w.n;
}

/* Why the kernels of a fatbin have no PTX. */
static const char *why_bare(const struct wrapper *wr, uint32_t cc)
{
	static char text[256]; /* one thread searches */
	struct fatbin *f;
	struct fatbin_unit *units;
	uint32_t n = 0;
	snprintf(text, sizeof(text), "no PTX in the fatbin");
	if (fatbin_open_image(wr->at, &f, NULL))
		return text;
	if (fatbin_units(f, cc, &units, &n))
		n = 0;
	for (uint32_t i = 0; i < n; i++)
		if (units[i].reason)
			snprintf(text, sizeof(text), "%s", units[i].reason);
	fatbin_close(f);
	return text;
}

/* The image that has the kernel's PTX; NULL with *why when a file has its machine code alone. */
static struct image *in_files(const char *name, uint32_t cc, const char **why)
{
	uint64_t hash = hash_bytes(name, strlen(name), 0);
	const struct wrapper *bare = NULL;
	for (size_t i = 0; i < w.n; i++) {
		struct image *im = has_name(&w.list[i].ptx, hash) ? image_get(w.list[i].at, cc, NULL) : NULL;
		const struct kernel *found = im ? image_kernel(im, name) : NULL;
		if (found && found->unit >= 0)
			return im;
		if (has_name(&w.list[i].bare, hash))
			bare = &w.list[i];
	}
	if (bare)
		*why = why_bare(bare, cc);
	return NULL;
}

/* -- text in memory: the index --------------------------------------------------------------- */

static size_t read_at(uintptr_t at, void *to, size_t bytes)
{
	struct iovec here = { to, bytes }, there = { (void *)at, bytes };
	ssize_t n = syscall(SYS_process_vm_readv, (long)getpid(), &here, 1L, &there, 1L, 0L);
	return n > 0 ? (size_t)n : 0;
}

static void add_part(struct span s)
{
	if (s.from >= s.end)
		return;
	if (w.n_spans == w.cap_spans) {
		size_t more = w.cap_spans ? w.cap_spans * 2 : 256;
		void *list = realloc(w.spans, more * sizeof(*w.spans));
		if (!list)
			return;
		w.spans = list;
		w.cap_spans = more;
	}
	w.spans[w.n_spans++] = s;
}

/* Spans of the last look, those before `at` being behind us. */
struct looked {
	const struct span *at, *end;
};

/* A mapping in parts: what the last look has seen of it, and what it has not. */
static void add_span(uintptr_t from, uintptr_t to, struct looked *old)
{
	uintptr_t at = from;
	while (old->at < old->end && old->at->to <= from)
		old->at++;
	for (const struct span *o = old->at; o < old->end && o->begin < to; o++) {
		uintptr_t seen = o->begin > at ? o->begin : at, end = o->to < to ? o->to : to;
		if (seen >= end)
			continue;
		add_part((struct span){ from, to, at, seen, true });
		add_part((struct span){ from, to, seen, end, false });
		at = end;
	}
	add_part((struct span){ from, to, at, to, true });
}

/* Files up to a size; not the two buffers, which lie in mappings of their own or in one with others. */
static void add_mapping(const struct mapping *m, void *old)
{
	uintptr_t chunk = (uintptr_t)w.chunk, text = (uintptr_t)w.text;
	if ((m->path[0] == '/' && m->to - m->from > MAX_MAPPED) || (chunk >= m->from && chunk < m->to) ||
		(text >= m->from && text < m->to))
		return;
	add_span(m->from, m->to, old);
}

static void list_spans(const struct span *old, size_t n_old)
{
	memory_each(add_mapping, &(struct looked){ old, old + n_old });
}

/* Whether there is anything to look through. */
static bool begin_memory(void)
{
	if (w.chunk)
		return w.n_spans;
	w.chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w.text = mmap(NULL, MAX_TEXT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w.begun_ns = now_ns();
	if (w.chunk != MAP_FAILED && w.text != MAP_FAILED)
		list_spans(NULL, 0);
	return w.n_spans;
}

/* Another look: what is new first, such as a library that has been loaded since. What was found last time counts
 * until all has been looked through again. */
static void memory_again(void)
{
	struct span *old = w.spans;
	size_t n_old = w.n_spans;
	w.spans = NULL;
	w.n_spans = w.cap_spans = w.at_span = 0;
	w.again = true;
	w.n_old = w.n_places;
	w.fresh_done = w.all_done = false;
	w.begun_ns = now_ns();
	list_spans(old, n_old);
	free(old);
}

static void end_memory(void)
{
	if (w.chunk && w.chunk != MAP_FAILED)
		munmap(w.chunk, CHUNK);
	if (w.text && w.text != MAP_FAILED)
		munmap(w.text, MAX_TEXT);
	w.chunk = w.text = NULL;
	free(w.spans);
	free(w.places);
	w.spans = NULL;
	w.places = NULL;
	w.n_spans = w.cap_spans = w.at_span = w.n_places = w.cap_places = w.n_old = 0;
	w.again = w.fresh_done = w.all_done = false;
}

static void add_place(struct place p)
{
	if (w.n_places == w.cap_places) {
		size_t more = w.cap_places ? w.cap_places * 2 : 256;
		void *list = more <= MAX_PLACES ? realloc(w.places, more * sizeof(*w.places)) : NULL;
		if (!list)
			return;
		w.places = list;
		w.cap_places = more;
	}
	w.places[w.n_places++] = p;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The next ".entry". Most memory has few dots, and finding those is quicker than memmem(3). */
static const char *next_entry(const char *p, const char *end)
{
	while (end - p >= 6 && (p = memchr(p, '.', (size_t)(end - p - 5)))) {
		if (!memcmp(p, ".entry", 6))
			return p;
		p++;
	}
	return NULL;
}

/* Every `.entry NAME` in [at, at + n) of w.chunk. */
static void note_places(uintptr_t at, size_t n, const struct span *s)
{
	const char *p = w.chunk, *end = w.chunk + n;
	while ((p = next_entry(p, end))) {
		uintptr_t here = at + (size_t)(p - w.chunk);
		for (p += 6; p < end && is_blank(*p); p++)
			;
		const char *name = p;
		while (p < end && is_name(*p))
			p++;
		if (p > name && p - name <= MAX_NAME && p < end && (is_blank(*p) || *p == '(' || *p == '{'))
			add_place((struct place){
				hash_bytes(name, (size_t)(p - name), 0), here, s->begin, s->to });
	}
}

/* Pieces overlap by what may lie across their border: a name is found twice there, which is harmless. */
static uintptr_t look_through(uintptr_t from, const struct span *s)
{
	uintptr_t at, end, next;
	size_t n = memory_run(from, s->end, false, &at), more;
	if (!n)
		return s->end;
	for (end = at + n; end - at < CHUNK && (more = memory_run(end, s->end, false, &next)) && next == end;)
		end += more;
	if (end - at > CHUNK)
		end = at + CHUNK;
	n = read_at(at, w.chunk, end - at);
	note_places(at, n, s);
	return end - at == CHUNK && end < s->end ? end - MAX_NAME - 16 : end;
}

/* Whether what is new, or the rest, has been looked through. */
static bool look(bool fresh, uint64_t until)
{
	for (; w.at_span < w.n_spans; w.at_span++)
		for (struct span *s = &w.spans[w.at_span]; s->fresh == fresh && s->from < s->end;) {
			if (now_ns() > until)
				return false;
			s->from = look_through(s->from, s);
		}
	w.at_span = 0;
	return true;
}

static void forget_old_places(void)
{
	memmove(w.places, w.places + w.n_old, (w.n_places - w.n_old) * sizeof(*w.places));
	w.n_places -= w.n_old;
	w.n_old = 0;
}

/* Whether all memory has been looked through; w.fresh_done: what is new has. */
static bool know_memory(uint64_t until)
{
	uint64_t start = now_ns();
	bool fresh_before = w.fresh_done;
	if (w.all_done || !begin_memory())
		return true;
	memory_search_begin();
	/* What is asked for may be there already, when it is another look. */
	if (!w.fresh_done)
		w.fresh_done = look(true, until);
	if (fresh_before || !w.again)
		w.all_done = w.fresh_done && look(false, until);
	memory_search_end();
	w.spent_ns += now_ns() - start;
	if (w.all_done && w.n_old)
		forget_old_places();
	if (w.all_done)
		agent_log("memory looked through in %.1f ms: %zu kernels in %zu parts", (double)(now_ns() - w.begun_ns) / 1e6,
			w.n_places, w.n_spans);
	return w.all_done;
}

/* -- text in memory: what lies at a place ------------------------------------------------------ */

struct text {
	char *bytes;
	size_t n;
};

static bool is_text(char c)
{
	return ((unsigned char)c >= ' ' && c != 127) || is_blank(c) || c == '\f' || c == '\v';
}

/* Reads around a place until both ends of its text are seen. */
static bool read_text(const struct place *p, size_t *start, size_t *middle, size_t *end)
{
	for (size_t half = 1 << 17; half <= MAX_TEXT / 2; half *= 8) {
		uintptr_t begin = p->at - p->from > half ? p->at - half : p->from;
		size_t bytes = p->to - begin < 2 * half ? p->to - begin : 2 * half,
		       n = read_at(begin, w.text, bytes);
		*start = *end = *middle = p->at - begin;
		if (n <= *middle)
			return false;
		while (*start && is_text(w.text[*start - 1]))
			(*start)--;
		while (*end < n && is_text(w.text[*end]))
			(*end)++;
		if ((*start || begin == p->from) && (*end < n || n < bytes || begin + n == p->to))
			return true;
	}
	return false;
}

/* The place where the next token begins. */
static const char *skip_blank(const char *p)
{
	for (;;) {
		while (is_blank(*p))
			p++;
		const char *end = p[0] == '/' && p[1] == '/'   ? strchr(p, '\n')
				  : p[0] == '/' && p[1] == '*' ? strstr(p + 2, "*/")
							       : p;
		if (end == p)
			return p;
		if (!end)
			return p + strlen(p);
		p = *end == '\n' ? end : end + 2;
	}
}

/* How much of it is PTX: memory may hold it as a part of something else. Behind what is complete, only a directive follows. */
static size_t ptx_length(const char *text)
{
	const char *p = text, *complete = NULL;
	bool begun = false;
	for (int depth = 0; *(p = skip_blank(p));) {
		if (!depth && !begun && complete && *p != '.')
			return (size_t)(complete - text);
		begun = true;
		if (*p == '"' && !(p = strchr(p + 1, '"')))
			break;
		depth += *p == '{';
		depth -= *p == '}' && depth;
		bool ends = !depth && (*p == '}' || *p == ';');
		p++;
		if (ends) {
			complete = p;
			begun = false;
		}
	}
	return p ? (size_t)(p - text) : strlen(text);
}

/* The text around a place: from `.version`, with only comments before it, to what is no text. False: none. */
static bool take_text(const struct place *p, struct text *out)
{
	size_t start, middle, end;
	const char *version = NULL;
	if (!read_text(p, &start, &middle, &end))
		return false;
	for (const char *at = w.text + start;
		(at = memmem(at, (size_t)(w.text + middle - at), ".version", 8)); at++)
		if (is_blank(at[8]))
			version = at;
	if (!version)
		return false;
	size_t length = (size_t)(w.text + end - version);
	/* A message that quotes a line is no module; what we have made ourselves is not the
	 * program's. */
	if (!memmem(version, length, ".target", 7) || memmem(version, length, "__egpu_", 7))
		return false;
	out->bytes = malloc(length + 1);
	if (!out->bytes)
		return false;
	memcpy(out->bytes, version, length);
	out->bytes[length] = 0;
	out->n = ptx_length(out->bytes);
	out->bytes[out->n] = 0;
	return true;
}

/* Whether they say the same as far as both go, blanks and comments aside. */
static bool agree(const char *a, const char *b)
{
	for (a = skip_blank(a), b = skip_blank(b); *a && *a == *b; a = skip_blank(a + 1), b = skip_blank(b + 1))
		;
	return !*a || !*b;
}

/* Whether the kernel's body is there to its end. */
static bool whole(const struct text *t, const char *name)
{
	size_t n = strlen(name);
	int depth = 0;
	for (const char *p = t->bytes; (p = strstr(p, ".entry"));) {
		for (p += 6; is_blank(*p); p++)
			;
		if (strncmp(p, name, n) || is_name(p[n]))
			continue;
		for (p += n; *p && (depth || *p != '}'); p++) {
			depth += *p == '{';
			if (*p == '}' && !--depth)
				return true;
		}
		return false;
	}
	return false;
}

/* The longest of the texts that have this kernel, all of which agree. */
static struct image *in_memory(const char *name, uint32_t cc, const char **why)
{
	struct text best = { 0 }, t;
	uint64_t hash = hash_bytes(name, strlen(name), 0);
	bool several = false;
	int compared = 0;
	for (size_t i = 0; i < w.n_places && !several && compared < MAX_TEXTS; i++) {
		if (w.places[i].name != hash || !take_text(&w.places[i], &t))
			continue;
		compared++;
		bool fine = whole(&t, name);
		several = fine && best.bytes && !agree(t.bytes, best.bytes);
		if (fine && !several && t.n > best.n) {
			struct text old = best;
			best = t;
			t = old;
		}
		free(t.bytes);
	}
	if (several)
		*why = "several PTX texts of this name are in the process's memory, and nothing "
		       "tells which of them was loaded";
	struct image *im = best.bytes && !several ? image_get(best.bytes, cc, NULL) : NULL;
	free(best.bytes);
	return im && image_kernel(im, name) ? im : NULL;
}

/* -- Triton's cache --------------------------------------------------------------------------- */

/* CACHE/HASH/NAME.ptx; one only. */
static struct image *in_cache(const char *name, uint32_t cc, const char **why)
{
	const char *own = getenv("TRITON_CACHE_DIR"), *home = getenv("HOME");
	char dir[2048], path[4096], found[4096] = "";
	if (strchr(name, '/') || snprintf(dir, sizeof(dir), "%s%s",
					 own    ? own
					 : home ? home
						: "",
					 own ? "" : "/.triton/cache") >= (int)sizeof(dir))
		return NULL;
	DIR *list = opendir(dir);
	for (struct dirent *e; list && (e = readdir(list));) {
		if (e->d_name[0] == '.' || snprintf(path, sizeof(path), "%s/%s/%s.ptx", dir,
						   e->d_name, name) >= (int)sizeof(path))
			continue;
		if (access(path, R_OK))
			continue;
		if (found[0]) {
			*why = "Triton's cache has several kernels of this name, and nothing tells "
			       "which of them was loaded";
			closedir(list);
			return NULL;
		}
		strcpy(found, path);
	}
	if (list)
		closedir(list);
	struct image *im = found[0] ? image_get_file(found, cc, NULL) : NULL;
	return im && image_kernel(im, name) ? im : NULL;
}

void source_end(void)
{
	end_memory();
	w.spent_ns = 0;
}

int source_find(const char *name, uint32_t cc, uint64_t asked_ns, uint64_t until_ns, struct image **out,
	const char **why)
{
	const char *open = NULL;
	/* What a compiler for C++ has named comes from a file, the rest rather from memory. */
	bool mangled = !strncmp(name, "_Z", 2);
	*out = NULL;
	*why = "it was loaded before the attach, and neither the process's files nor its memory hold its "
	       "PTX";
	if (mangled && !know_files(cc, until_ns))
		return -EAGAIN;
	if (mangled && ((*out = in_files(name, cc, &open)) || open))
		goto done;
	bool all = know_memory(until_ns);
	/* In another look, what is new is likely to be what is asked for. */
	if (all || (w.fresh_done && w.again))
		*out = in_memory(name, cc, &open);
	if (!all && !*out && !open)
		return -EAGAIN;
	if (!*out && !open && !mangled) {
		if (!know_files(cc, until_ns))
			return -EAGAIN;
		*out = in_files(name, cc, &open);
	}
	/* It may have come after we looked. */
	if (!*out && !open && w.begun_ns < asked_ns && w.spent_ns < MEMORY_NS) {
		memory_again();
		return -EAGAIN;
	}
	if (!*out && !open)
		*out = in_cache(name, cc, &open);
done:
	if (open)
		*why = open;
	return 0;
}
