#include "cli/bars.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_BYTES = 64, WIDTH = 40, BUCKETS = 65 };

struct row {
	char label[LABEL_BYTES];
	uint64_t count;
};

struct bars {
	struct row *rows;
	size_t n, cap;
	uint64_t next_bucket; /* 0: none was added */
};

struct bars *bars_new(void)
{
	return calloc(1, sizeof(struct bars));
}

void bars_free(struct bars *b)
{
	if (b)
		free(b->rows);
	free(b);
}

void bars_add(struct bars *b, const char *label, uint64_t count)
{
	if (!b)
		return;
	if (b->n == b->cap) {
		size_t cap = b->cap ? 2 * b->cap : 64;
		struct row *rows = realloc(b->rows, cap * sizeof(*rows));
		if (!rows)
			return;
		b->rows = rows;
		b->cap = cap;
	}
	struct row *r = &b->rows[b->n++];
	snprintf(r->label, sizeof(r->label), "%s", label);
	r->count = count;
}

static void bucket_label(char label[LABEL_BYTES], uint64_t bucket)
{
	uint64_t low = bucket ? 1ull << (bucket - 1) : 0, high = bucket ? 2 * (low - 1) + 1 : 0;
	if (low == high)
		snprintf(label, LABEL_BYTES, "%" PRIu64, low);
	else
		snprintf(label, LABEL_BYTES, "%" PRIu64 " .. %" PRIu64, low, high);
}

void bars_add_bucket(struct bars *b, uint64_t bucket, uint64_t count)
{
	char label[LABEL_BYTES];
	if (!b || bucket >= BUCKETS)
		return;
	for (; b->next_bucket && b->next_bucket < bucket; b->next_bucket++) {
		bucket_label(label, b->next_bucket);
		bars_add(b, label, 0);
	}
	bucket_label(label, bucket);
	bars_add(b, label, count);
	b->next_bucket = bucket + 1;
}

void bars_print(const struct bars *b, struct buf *out)
{
	static const char stars[] = "****************************************";
	uint64_t most = 1;
	size_t width = 1;
	for (size_t i = 0; b && i < b->n; i++) {
		size_t len = strlen(b->rows[i].label);
		most = b->rows[i].count > most ? b->rows[i].count : most;
		width = len > width ? len : width;
	}
	for (size_t i = 0; b && i < b->n; i++) {
		const struct row *r = &b->rows[i];
		/* The double is exact enough for forty steps; what is not zero shows. */
		int n = (int)((double)r->count / (double)most * WIDTH + 0.5);
		if (r->count && !n)
			n = 1;
		buf_printf(out, "  %*s  %12" PRIu64 "  |%.*s%*s|\n", (int)width, r->label, r->count, n, stars,
			WIDTH - n, "");
	}
}
