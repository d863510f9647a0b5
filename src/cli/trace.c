/* trace.c - see trace.h. The format comes from device memory: it is read here, never handed to
 * printf as it is. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/trace.h"

enum { MAX_WIDTH = 64 };

struct conversion {
	char flags[6];
	int width, precision; /* -1: none */
	unsigned bits;
	char letter;
	size_t length; /* in the format, from the % on */
};

static size_t number(const char *s, size_t n, int *out)
{
	size_t i = 0;
	*out = 0;
	while (i < n && isdigit((unsigned char)s[i])) {
		*out = *out * 10 + (s[i++] - '0');
		if (*out > MAX_WIDTH)
			*out = MAX_WIDTH;
	}
	return i;
}

/* s[0] is '%'. */
static struct conversion parse(const char *s, size_t n)
{
	struct conversion c = { .width = -1, .precision = -1, .bits = 32 };
	size_t i = 1, flags = 0;
	while (i < n && strchr("-+ #0", s[i]) && s[i] && flags < sizeof(c.flags) - 1)
		c.flags[flags++] = s[i++];
	if (i < n && isdigit((unsigned char)s[i]))
		i += number(s + i, n - i, &c.width);
	if (i < n && s[i] == '.')
		i += 1 + number(s + i + 1, n - i - 1, &c.precision);
	if (i < n && (s[i] == 'l' || s[i] == 'z')) {
		c.bits = 64;
		i += i + 1 < n && s[i] == 'l' && s[i + 1] == 'l' ? 2 : 1;
	} else if (i < n && s[i] == 'h') {
		bool byte = i + 1 < n && s[i + 1] == 'h';
		c.bits = byte ? 8 : 16;
		i += byte ? 2 : 1;
	}
	c.letter = i < n ? s[i] : 0;
	c.length = i < n ? i + 1 : n;
	return c;
}

static void convert(const struct conversion *c, uint64_t v, struct buf *out)
{
	/* Rebuilt from what was understood, so that nothing else of the device's text reaches
	 * printf. */
	char spec[32];
	int at = snprintf(spec, sizeof(spec), "%%%s", c->flags);
	if (c->width >= 0)
		at += snprintf(spec + at, sizeof(spec) - at, "%d", c->width);
	if (c->precision >= 0)
		at += snprintf(spec + at, sizeof(spec) - at, ".%d", c->precision);
	uint64_t narrow = c->bits < 64 ? v & ((1ull << c->bits) - 1) : v;
	char text[160];
	if (c->letter == 'd' || c->letter == 'i') {
		int64_t sv = c->bits < 64 ? (int64_t)(narrow << (64 - c->bits)) >> (64 - c->bits)
					  : (int64_t)v;
		snprintf(spec + at, sizeof(spec) - at, "lld");
		snprintf(text, sizeof(text), spec, (long long)sv);
	} else {
		snprintf(spec + at, sizeof(spec) - at, "ll%c", c->letter);
		snprintf(text, sizeof(text), spec, (unsigned long long)narrow);
	}
	buf_puts(out, text);
}

static void plain(const char *s, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];
		bool show = c >= 0x20 ? c != 0x7f : c == '\t' || c == '\n';
		buf_add(out, show ? (const char *)&s[i] : "?", 1);
	}
}

void trace_format(
	const char *fmt, size_t fmt_bytes, const uint64_t *args, unsigned n_args, struct buf *out)
{
	size_t n = strnlen(fmt, fmt_bytes);
	unsigned used = 0;
	for (size_t i = 0; i < n;) {
		size_t run = 0;
		while (i + run < n && fmt[i + run] != '%')
			run++;
		plain(fmt + i, run, out);
		i += run;
		if (i >= n)
			break;
		struct conversion c = parse(fmt + i, n - i);
		uint64_t v = used < n_args ? args[used] : 0;
		if (c.letter == '%') {
			buf_puts(out, "%");
		} else if (c.letter && strchr("diuxXo", c.letter)) {
			convert(&c, v, out);
			used++;
		} else if (c.letter == 'p') {
			buf_printf(out, "0x%llx", (unsigned long long)v);
			used++;
		} else if (c.letter == 'c') {
			char ch = (char)v;
			plain(&ch, 1, out);
			used++;
		} else {
			plain(fmt + i, c.length, out);
			used += c.letter == 's';
		}
		i += c.length;
	}
}
