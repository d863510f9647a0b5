/* hex.h - bytes written as hex digits, blanks allowed between bytes. */
#ifndef EGPU_CLI_HEX_H
#define EGPU_CLI_HEX_H

#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

/* *bytes is malloc'd (not NULL even when empty). -EINVAL with d naming the offending place,
 * -ENOMEM. */
int hex_parse(const char *text, size_t size, uint8_t **bytes, size_t *n, struct diag *d);

#endif
