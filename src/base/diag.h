/* diag.h - the first diagnostic of an operation, with its position.
 *
 * Library code never prints and never exits: it returns -errno and leaves here
 * what is wrong, where, and what to do. The first diagnostic sticks.
 */
#ifndef EGPU_BASE_DIAG_H
#define EGPU_BASE_DIAG_H

#include <stdarg.h>
#include <stdint.h>

struct diag {
	int err;	 /* errno value (positive) of the first failure; 0: none */
	uint32_t line;	 /* 1-based line in the input; 0: no position */
	uint32_t column; /* 1-based; 0: none */
	char text[512];	 /* NUL-terminated sentence, without newline */
};

/* Records a failure unless one is recorded already; d may be NULL.
 * Returns -err, so that callers write `return diag_set(d, EINVAL, ...)`. */
int diag_set(struct diag *d, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with a position. */
int diag_set_at(struct diag *d, int err, uint32_t line, uint32_t column, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

#endif
