/* near.c - edit distance with neighbour swaps (optimal string alignment). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/near.h"

enum { MAX_NAME = 128 };

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;
	return m < c ? m : c;
}

static int same(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

unsigned near_distance(const char *a, const char *b)
{
	size_t n = strnlen(a, MAX_NAME), m = strnlen(b, MAX_NAME);
	unsigned rows[3][MAX_NAME + 1];
	unsigned *before = rows[0], *prev = rows[1], *cur = rows[2];
	for (size_t j = 0; j <= m; j++)
		prev[j] = (unsigned)j;
	for (size_t i = 1; i <= n; i++) {
		cur[0] = (unsigned)i;
		for (size_t j = 1; j <= m; j++) {
			cur[j] = min3(prev[j] + 1, cur[j - 1] + 1,
				prev[j - 1] + !same(a[i - 1], b[j - 1]));
			if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) &&
				same(a[i - 2], b[j - 1]) && before[j - 2] + 1 < cur[j])
				cur[j] = before[j - 2] + 1;
		}
		unsigned *t = before;
		before = prev;
		prev = cur;
		cur = t;
	}
	return prev[m];
}

static size_t pick(const char *want, const char *const *names, size_t n, const char **best,
	size_t max, int limited)
{
	unsigned scores[16];
	size_t got = 0;
	if (max > 16)
		max = 16;
	for (size_t i = 0; i < n; i++) {
		size_t longer = strnlen(want, MAX_NAME), len = strnlen(names[i], MAX_NAME);
		unsigned d = near_distance(want, names[i]);
		/* A part of the name is a good guess whatever its length: "add" for
		 * "vectorAddKernel". */
		if (longer >= 3 && strcasestr(names[i], want))
			d = 1;
		longer = len > longer ? len : longer;
		if (limited && d > (longer + 1) / 2)
			continue;
		size_t at = got;
		while (at > 0 && scores[at - 1] > d)
			at--;
		if (at >= max)
			continue;
		size_t move = (got < max ? got : max - 1) - at;
		memmove(best + at + 1, best + at, move * sizeof(*best));
		memmove(scores + at + 1, scores + at, move * sizeof(*scores));
		best[at] = names[i];
		scores[at] = d;
		got += got < max;
	}
	return got;
}

size_t near_names(
	const char *want, const char *const *names, size_t n, const char **best, size_t max)
{
	return pick(want, names, n, best, max, 1);
}

size_t near_any(const char *want, const char *const *names, size_t n, const char **best, size_t max)
{
	return pick(want, names, n, best, max, 0);
}
