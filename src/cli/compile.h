/* compile.h - a probe in C becomes a BPF object, by the clang of this machine. */
#ifndef EGPU_CLI_COMPILE_H
#define EGPU_CLI_COMPILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/diag.h"

/* Compiles NAME.bpf.c; *object is malloc'd. The compiler's own messages go to standard error.
 * -ENOENT without clang or source, -EINVAL when it does not compile. */
int compile_probe(const char *source, char **object, size_t *size, struct diag *d);
/* First of $EGPU_CLANG, clang, clang-19, ... that runs, NULL when none does. */
const char *compile_find_clang(void);
/* Whether a program of this name (or path) can be run. */
bool program_in_path(const char *name);

#endif
