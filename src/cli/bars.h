/* bars.h - numbers with a bar each: histograms. */
#ifndef EGPU_CLI_BARS_H
#define EGPU_CLI_BARS_H

#include <stdint.h>

#include "base/buf.h"

struct bars;

/* NULL when memory is out; add and print take it then and do nothing. */
struct bars *bars_new(void);
void bars_free(struct bars *b);
/* A row; the label is copied, cut after 63 bytes. */
void bars_add(struct bars *b, const char *label, uint64_t count);
/* A row of a histogram by powers of two: bucket 0 counts zeros, bucket n values from 2^(n-1) to 2^n - 1. Buckets come in rising order; those
 * between the first and the last that were added are printed with 0. */
void bars_add_bucket(struct bars *b, uint64_t bucket, uint64_t count);
/* One line a row: label, count, a bar as long as its share of the largest count. */
void bars_print(const struct bars *b, struct buf *out);

#endif
