/* near.h - which known names somebody may have meant. */
#ifndef EGPU_CLI_NEAR_H
#define EGPU_CLI_NEAR_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap neighbours) between two names, ignoring case; names are cut
 * at 128 bytes. */
unsigned near_distance(const char *a, const char *b);
/* Fills best[] with up to max of the n names that are near `want`, nearest first; the number
 * filled. Names further than half the longer name's length are left out. */
size_t near_names(
	const char *want, const char *const *names, size_t n, const char **best, size_t max);
/* The same without the limit: always the nearest ones. */
size_t near_any(
	const char *want, const char *const *names, size_t n, const char **best, size_t max);

#endif
