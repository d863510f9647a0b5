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
	if ((b->failed || n >= b->cap - b->len) && !buf_reserve(b, n))
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

static void add_decimal(struct buf *b, bool minus, unsigned n)
{
	char digits[11];
	size_t at = sizeof(digits);
	do
		digits[--at] = (char)('0' + n % 10);
	while (n /= 10);
	if (minus)
		digits[--at] = '-';
	buf_add(b, digits + at, sizeof(digits) - at);
}

/* Most text here is made of %s, %d and %u, for which vsnprintf takes several times as long. False, and nothing is added: the format has
 * more. */
static bool add_plain(struct buf *b, const char *fmt, va_list ap)
{
	size_t before = b->len;
	for (const char *from = fmt;; from = fmt += 2) {
		const char *s;
		int n;
		fmt = strchrnul(fmt, '%');
		buf_add(b, from, (size_t)(fmt - from));
		if (!*fmt)
			return true;
		switch (fmt[1]) {
		case 'd':
			n = va_arg(ap, int);
			add_decimal(b, n < 0, n < 0 ? -(unsigned)n : (unsigned)n);
			break;
		case 'u':
			add_decimal(b, false, va_arg(ap, unsigned));
			break;
		case 's':
			s = va_arg(ap, const char *);
			buf_puts(b, s ? s : "(null)");
			break;
		case '%':
			buf_add(b, fmt, 1);
			break;
		default:
			b->len = before;
			return false;
		}
	}
}

/* What fits is formatted once. */
static void add_formatted(struct buf *b, const char *fmt, va_list ap)
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

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	va_list again;
	va_copy(again, ap);
	if (!add_plain(b, fmt, again))
		add_formatted(b, fmt, ap);
	va_end(again);
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
