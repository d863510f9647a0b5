/* each.h - one program after the other of an object, each loaded alone, so that a refused one does
 * not hide the rest. */
#ifndef EGPU_CLI_EACH_H
#define EGPU_CLI_EACH_H

#include "cli/probe.h"

/* Calls fn for each program (only `name` unless NULL) in a session of its own that ends with the
 * call. fn returns a status; the result is EGPU_FAILED after a message, else the largest status.
 * prog->err tells whether it was accepted. */
int each_program(const struct probe_options *o, const char *name,
	int (*fn)(struct probe *p, const struct loader_prog *prog, void *arg), void *arg);

#endif
