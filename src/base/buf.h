/* buf.h - a growing byte string for output text. */
#ifndef EGPU_BASE_BUF_H
#define EGPU_BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Zero-initialise before use. data is NUL-terminated once anything was added (NULL before). */
struct buf {
	char *data;
	size_t len;
	size_t cap;
	bool failed; /* memory ran out: every later call does nothing; check once at the end */
};

void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
void buf_reset(struct buf *b); /* len = 0, memory kept */
void buf_free(struct buf *b);  /* releases data and zeroes *b */

#endif
