#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for n more bytes and a NUL. */
static bool buf_reserve(struct buf *b, size_t n)
{
	if (b->failed)
		return false;
	if (n < SIZE_MAX / 4 && b->len + n < b->cap)
		return true;
	size_t cap = b->cap ? b->cap : 256;
	while (n < SIZE_MAX / 4 && cap <= b->len + n)
		cap *= 2;
	char *p = n < SIZE_MAX / 4 ? realloc(b->data, cap) : NULL;
	if (!p) {
		b->failed = true;
		return false;
	}
	b->data = p;
	b->cap = cap;
	return true;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
	if (!buf_reserve(b, n))
		return;
	if (n)
		memcpy(b->data + b->len, bytes, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

/* What fits is formatted once. */
void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	size_t room = b->failed || !b->data ? 0 : b->cap - b->len;
	va_copy(again, ap);
	int n = vsnprintf(room ? b->data + b->len : NULL, room, fmt, again);
	va_end(again);
	if (n < 0 || b->failed) {
		b->failed = true;
		return;
	}
	if ((size_t)n >= room) {
		if (room)
			b->data[b->len] = '\0';
		if (!buf_reserve(b, (size_t)n))
			return;
		vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	}
	b->len += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	if (b->data)
		b->data[0] = '\0';
}

void buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ 0 };
}
