#include "base/diag.h"

#include <stdio.h>
#include <string.h>

static int diag_vset(struct diag *d, int err, uint32_t line, uint32_t column, const char *fmt, va_list ap)
{
	if (d && !d->err) {
		d->err = err;
		d->line = line;
		d->column = column;
		vsnprintf(d->text, sizeof(d->text), fmt, ap);
	}
	return -err;
}

int diag_set(struct diag *d, int err, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	diag_vset(d, err, 0, 0, fmt, ap);
	va_end(ap);
	return -err;
}

int diag_set_at(struct diag *d, int err, uint32_t line, uint32_t column, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	diag_vset(d, err, line, column, fmt, ap);
	va_end(ap);
	return -err;
}
