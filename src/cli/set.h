/* set.h - `--set VAR=VALUE`: initial values of a probe's global variables, by their BTF. */
#ifndef EGPU_CLI_SET_H
#define EGPU_CLI_SET_H

#include <bpf/libbpf.h>

#include "base/diag.h"
#include "cli/typed.h"

/* Between open and load. Integers (decimal, 0x, negative, 'true'/'false' for bool), enum constants
 * by name, strings for char arrays. -EINVAL, -ENOENT, -ERANGE with d. */
int set_variable(struct bpf_object *obj, const char *assignment, struct diag *d);
/* The same for one value: var's type and size, at data (var's offset is not used). */
int set_typed(const struct btf *btf, const struct typed_var *var, uint8_t *data, const char *text,
	struct diag *d);

#endif
