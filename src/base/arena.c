#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGN = 16 };

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(ALIGN) char data[];
};

struct arena {
	struct chunk *chunks; /* the head is the one being filled */
};

struct arena *arena_new(void)
{
	return calloc(1, sizeof(struct arena));
}

void arena_free(struct arena *a)
{
	if (!a)
		return;
	for (struct chunk *c = a->chunks, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	free(a);
}

void *arena_alloc(struct arena *a, size_t size)
{
	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	struct chunk *c = a->chunks;
	if (!c || c->size - c->used < size) {
		size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
		c = malloc(sizeof(*c) + room);
		if (!c)
			return NULL;
		c->size = room;
		c->used = 0;
		c->next = a->chunks;
		a->chunks = c;
	}
	void *p = c->data + c->used;
	c->used += size;
	memset(p, 0, size);
	return p;
}

void *arena_array(struct arena *a, size_t n, size_t size)
{
	if (size && n > SIZE_MAX / size)
		return NULL;
	return arena_alloc(a, n * size);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *p = arena_alloc(a, n + 1);
	if (p && n)
		memcpy(p, s, n);
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap, again;
	va_start(ap, fmt);
	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
	if (p)
		vsnprintf(p, (size_t)n + 1, fmt, again);
	va_end(again);
	return p;
}

void *arena_grow(struct arena *a, void *ptr, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return ptr;
	size_t more = *cap ? *cap * 2 : 8;
	void *p = arena_array(a, more, size);
	if (!p)
		return NULL;
	if (n)
		memcpy(p, ptr, n * size);
	*cap = more;
	return p;
}
