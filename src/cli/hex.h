/* hex.h - bytes as hex digits, two each; blanks are allowed between bytes that are read. */
#ifndef EGPU_CLI_HEX_H
#define EGPU_CLI_HEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/diag.h"

/* *bytes is malloc'd (not NULL even when empty). -EINVAL with d naming the offending place,
 * -ENOMEM. */
int hex_parse(const char *text, size_t size, uint8_t **bytes, size_t *n, struct diag *d);
/* `between` stands between each eight. */
void hex_print(struct buf *out, const void *bytes, size_t n, const char *between);

#endif
