/* btfcheck.h - BTF from a file of others, made safe to walk.
 *
 * libbpf of Debian 12 (1.1) follows type ids and name offsets without looking whether they exist,
 * and chains of typedefs without end. Nothing reaches it before it has passed here.
 */
#ifndef EGPU_CLI_BTFCHECK_H
#define EGPU_CLI_BTFCHECK_H

#include <stddef.h>

#include "base/diag.h"

/* 0 when every reference of the blob leads to a type or name of the right sort; -EINVAL with d,
 * -ENOMEM. */
int btf_check(const void *blob, size_t size, struct diag *d);

#endif
