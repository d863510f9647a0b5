/* memtext.c - PTX as text in the process's memory, for kernels that were loaded before we came.
 *
 * It is found by the kernel's name behind `.entry`. Of several texts that define one name texts.c tells which was loaded.
 *
 * A large process has gigabytes of memory: it is looked through once for an attach, together with the search for the driver's
 * pointers (memory.c), and what is kept is an index by hashes of names. In another look, for a kernel that came later, what is new
 * comes first, and the rest only when that was in vain.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent.h"

enum {
	MAX_TEXT = 1 << 24,
	MAX_MAPPED = 64 << 20, /* of a file: a program that carries PTX as text is smaller */
	MAX_PLACES = 1 << 20,
	MAX_NAME = MEMORY_MORE - 16,
	MAX_COMPARED = 64, /* of one name: there may be copies */
};
#define MEMORY_NS 20000000000ull

/* `.entry NAME` at a place in memory, of the mapping [from, to). */
struct place {
	uint64_t name; /* hash */
	uintptr_t at, from, to;
};

/* A mapping that was looked through. */
struct span {
	uintptr_t from, to;
};

struct spans {
	struct span *list; /* by address */
	size_t n, cap;
};

/* What has been looked through for the questions of the moment. */
enum stage {
	NOTHING,
	NEW,	 /* what is new is being looked through, at first all */
	NEW_DONE,
	REST,	 /* so is what was there at the last look */
	ALL,
};

/* Used by one thread; places also by those that look. */
static struct {
	enum stage stage;
	struct spans spans, rest; /* of this look; rest: what it has not begun with */
	struct lock lock;
	struct place *places; /* with n_places and cap_places, under lock */
	size_t n_places, cap_places, n_old; /* n_old: of the last look */
	char *text;			    /* MAX_TEXT bytes, which others do not find */
	uint64_t begun_ns;		    /* when this look began */
	uint64_t spent_ns;		    /* on all of them since the attach */
} w;

/* -- text in memory: the index --------------------------------------------------------------- */

static void add_span(struct spans *to, uintptr_t from, uintptr_t end)
{
	if (from >= end)
		return;
	if (to->n == to->cap) {
		size_t more = to->cap ? to->cap * 2 : 256;
		void *list = realloc(to->list, more * sizeof(*to->list));
		if (!list)
			return;
		to->list = list;
		to->cap = more;
	}
	to->list[to->n++] = (struct span){ from, end };
}

static void free_spans(struct spans *s)
{
	free(s->list);
	*s = (struct spans){ 0 };
}

/* Files up to a size. */
bool memtext_wants(const struct mapping *m)
{
	return m->path[0] != '/' || m->to - m->from <= MAX_MAPPED;
}

static void note_span(const struct mapping *m, void *arg)
{
	if (memtext_wants(m))
		add_span(&w.spans, m->from, m->to);
}

void memtext_begin(void)
{
	w.stage = NEW;
	w.begun_ns = now_ns();
	memory_each(note_span, NULL);
}

/* Spans of the last look, those before `at` being behind us. */
struct looked {
	const struct span *at, *end;
};

static void sweep_part(const struct mapping *m, uintptr_t from, uintptr_t to)
{
	memory_add(&(struct memory_part){ from, to, m->from, m->to, MEMORY_TEXT, false });
}

/* A mapping in parts: what the last look has seen of it waits, what it has not is looked through now. */
static void add_new(const struct mapping *m, void *arg)
{
	struct looked *old = arg;
	uintptr_t at = m->from;
	if (!memtext_wants(m))
		return;
	add_span(&w.spans, m->from, m->to);
	while (old->at < old->end && old->at->to <= m->from)
		old->at++;
	for (const struct span *o = old->at; o < old->end && o->from < m->to; o++) {
		uintptr_t seen = o->from > at ? o->from : at, end = o->to < m->to ? o->to : m->to;
		if (seen >= end)
			continue;
		sweep_part(m, at, seen);
		add_span(&w.rest, seen, end);
		at = end;
	}
	sweep_part(m, at, m->to);
}

/* What was found last time counts until all has been looked through again. */
bool memtext_again(uint64_t asked_ns)
{
	if (w.begun_ns >= asked_ns || w.spent_ns >= MEMORY_NS)
		return false;
	if (memory_busy()) /* with something else: later */
		return true;
	struct spans old = w.spans;
	w.spans = (struct spans){ 0 };
	free_spans(&w.rest);
	w.n_old = w.n_places;
	w.begun_ns = now_ns();
	w.stage = NEW;
	memory_open();
	memory_each(add_new, &(struct looked){ old.list, old.list + old.n });
	memory_sweep();
	free_spans(&old);
	return true;
}

static void add_place(const struct place *p)
{
	lock_take(&w.lock);
	if (w.n_places == w.cap_places) {
		size_t more = w.cap_places ? w.cap_places * 2 : 256;
		void *list = more <= MAX_PLACES ? realloc(w.places, more * sizeof(*w.places)) : NULL;
		if (!list) {
			lock_drop(&w.lock);
			return;
		}
		w.places = list;
		w.cap_places = more;
	}
	w.places[w.n_places++] = *p;
	lock_drop(&w.lock);
}

/* Most memory has none of it: many places at a time are told so without a branch. Letters of ".entry" that are rarely so far apart. */
enum { BLOCK = 64, ENTRY = sizeof(".entry") - 1 };

static bool may_begin(const char *p)
{
	unsigned char any = 0;
	for (int i = 0; i < BLOCK; i++)
		any |= (p[i] == '.') & (p[i + ENTRY - 1] == 'y');
	return any;
}

static const char *next_entry(const char *p, const char *end)
{
	for (; end - p >= BLOCK + ENTRY; p += BLOCK) {
		const char *at = may_begin(p) ? memmem(p, BLOCK + ENTRY - 1, ".entry", ENTRY) : NULL;
		if (at)
			return at;
	}
	return memmem(p, (size_t)(end - p), ".entry", ENTRY);
}

/* Every `.entry NAME`; one at the border is found twice, which is harmless. */
void memtext_see(const struct memory_part *s, uintptr_t at, const char *bytes, size_t n)
{
	const char *p = bytes, *end = bytes + n;
	while ((p = next_entry(p, end))) {
		uintptr_t here = at + (size_t)(p - bytes);
		for (p += ENTRY; p < end && is_blank(*p); p++)
			;
		const char *name = p;
		while (p < end && is_name(*p))
			p++;
		if (p > name && p - name <= MAX_NAME && p < end && (is_blank(*p) || *p == '(' || *p == '{'))
			add_place(&(struct place){ hash_bytes(name, (size_t)(p - name), 0), here, s->begin, s->end });
	}
}

static void forget_old_places(void)
{
	memmove(w.places, w.places + w.n_old, (w.n_places - w.n_old) * sizeof(*w.places));
	w.n_places -= w.n_old;
	w.n_old = 0;
}

void memtext_rest(void)
{
	if (w.stage != NEW_DONE || memory_busy())
		return;
	memory_open();
	for (size_t i = 0; i < w.rest.n; i++) {
		const struct span *s = &w.rest.list[i];
		memory_add(&(struct memory_part){ s->from, s->to, s->from, s->to, MEMORY_TEXT, false });
	}
	memory_sweep();
	w.stage = REST;
}

bool memtext_look(uint64_t until)
{
	if ((w.stage != NEW && w.stage != REST) || !memory_swept(until))
		return w.stage == ALL || w.stage == NOTHING;
	w.stage = w.stage == NEW && w.rest.n ? NEW_DONE : ALL;
	uint64_t took = now_ns() - w.begun_ns;
	if (w.stage == NEW_DONE)
		return false;
	w.spent_ns += took;
	forget_old_places();
	agent_log("memory looked through in %.1f ms: %zu kernels in %zu parts", (double)took / 1e6, w.n_places, w.spans.n);
	return true;
}

/* -- text in memory: what lies at a place ------------------------------------------------------ */

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
		       n = memory_read(begin, w.text, bytes);
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

/* How much of it is PTX: memory may hold it as a part of something else. Behind what is complete, only a directive follows. */
static size_t ptx_length(const char *text)
{
	const char *p = text, *complete = NULL;
	bool begun = false;
	for (int depth = 0; *(p = text_token(p));) {
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

/* Shared, so that it is no memory that is looked through. */
static bool have_room(void)
{
	if (!w.text) {
		w.text = mmap(NULL, MAX_TEXT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (w.text == MAP_FAILED)
			w.text = NULL;
		else
			madvise(w.text, MAX_TEXT, MADV_DONTFORK);
	}
	return w.text;
}

void memtext_find(const char *name, struct texts *out)
{
	/* In another look, what is new is likely to be what is asked for. */
	if ((w.stage != NEW_DONE && w.stage != ALL) || !have_room())
		return;
	struct text t = { 0 };
	uint64_t hash = hash_bytes(name, strlen(name), 0);
	int compared = 0;
	for (size_t i = 0; i < w.n_places && compared < MAX_COMPARED; i++) {
		if (w.places[i].name != hash || !take_text(&w.places[i], &t))
			continue;
		compared++;
		if (whole(&t, name))
			texts_add(out, &t);
		else
			free(t.bytes);
	}
}

void memtext_end(void)
{
	if (w.text)
		munmap(w.text, MAX_TEXT);
	free_spans(&w.spans);
	free_spans(&w.rest);
	free(w.places);
	w.text = NULL;
	w.places = NULL;
	w.n_places = w.cap_places = w.n_old = 0;
	w.stage = NOTHING;
	w.begun_ns = w.spent_ns = 0;
}
