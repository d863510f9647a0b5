/* memtext.c - PTX as text in the process's memory, for kernels that were loaded before we came.
 *
 * It is found by the kernel's name behind `.entry`. Two different texts that define one name leave open which of them
 * was loaded: then there is none for us. What is left of a text that was given back is no text of its own, if it
 * agrees as far as it goes.
 *
 * A large process has gigabytes of memory: it is looked through once for an attach, a slice at a time, and what is kept is
 * an index by hashes of names. In another look, for a kernel that came later, what is new comes first.
 */
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
	MAX_PLACES = 1 << 20,
	MAX_NAME = 1000,
	MAX_TEXTS = 32, /* of one name that are compared */
};
#define MEMORY_NS 20000000000ull

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
	struct span *spans; /* of memory, by address; fresh ones are looked through first */
	size_t n_spans, cap_spans, at_span;
	bool again, fresh_done, all_done;
	struct place *places;
	size_t n_places, cap_places, n_old; /* n_old: of the last look */
	char *chunk, *text; /* CHUNK and MAX_TEXT bytes */
	uint64_t begun_ns;  /* when this look through memory began */
	uint64_t spent_ns;  /* on all of them since the attach */
} w;

static bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$' || c == '%';
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

/* What was found last time counts until all has been looked through again. */
bool memtext_again(uint64_t asked_ns)
{
	if (w.begun_ns >= asked_ns || w.spent_ns >= MEMORY_NS)
		return false;
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
	return true;
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
bool memtext_look(uint64_t until)
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
struct image *memtext_find(const char *name, uint32_t cc, const char **why)
{
	/* In another look, what is new is likely to be what is asked for. */
	if (!w.all_done && !(w.fresh_done && w.again) && w.n_spans)
		return NULL;
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

void memtext_end(void)
{
	end_memory();
	w.spent_ns = 0;
}
