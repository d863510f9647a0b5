/* hex.c - see hex.h. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

#include "cli/hex.h"

static int digit(char c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

int hex_parse(const char *text, size_t size, uint8_t **bytes, size_t *n, struct diag *d)
{
	uint8_t *out = malloc(size / 2 + 8);
	if (!out)
		return diag_set(d, ENOMEM, "out of memory");
	*n = 0;
	for (size_t i = 0; i < size;) {
		if (isspace((unsigned char)text[i])) {
			i++;
			continue;
		}
		int high = digit(text[i]), low = i + 1 < size ? digit(text[i + 1]) : -1;
		if (high < 0 || low < 0) {
			free(out);
			return diag_set(d, EINVAL, "not two hex digits at character %zu", i + 1);
		}
		out[(*n)++] = (uint8_t)(high << 4 | low);
		i += 2;
	}
	*bytes = out;
	return 0;
}

void hex_print(struct buf *out, const void *bytes, size_t n, const char *between)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *from = bytes;
	for (size_t i = 0; i < n; i++) {
		char two[] = { digits[from[i] >> 4], digits[from[i] & 15] };
		if (i && !(i % 8))
			buf_puts(out, between);
		buf_add(out, two, sizeof(two));
	}
}
