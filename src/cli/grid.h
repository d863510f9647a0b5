/* grid.h - a text table whose columns are as wide as their widest cell. */
#ifndef EGPU_CLI_GRID_H
#define EGPU_CLI_GRID_H

#include <stdio.h>

#include "base/buf.h"

struct grid;

/* heads: one letter '<' (left) or '>' (right) and the title each, e.g. "<KERNEL"; NULL ends. NULL
 * when memory is out. */
struct grid *grid_new(const char *const *heads);
/* Adds the next cell, rows first. */
void grid_cell(struct grid *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Each line starts with `indent`. */
void grid_print(const struct grid *g, const char *indent, struct buf *out);
void grid_free(struct grid *g);

#endif
