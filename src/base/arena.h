/* arena.h - one allocation lifetime.
 *
 * A compilation (one PTX parse, one verification, one translation) allocates
 * from one arena and frees it once. Nothing in it is freed alone.
 */
#ifndef EGPU_BASE_ARENA_H
#define EGPU_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

struct arena;

/* NULL when memory is out. */
struct arena *arena_new(void);
/* Frees the arena and all that came from it; NULL is allowed. */
void arena_free(struct arena *a);

/* size zeroed bytes, 16-byte aligned; NULL when memory is out. A size of 0 gives a valid pointer. */
void *arena_alloc(struct arena *a, size_t size);
/* n * size zeroed bytes; NULL when the product overflows or memory is out. */
void *arena_array(struct arena *a, size_t n, size_t size);
/* A NUL-terminated copy of n bytes at s. */
char *arena_strndup(struct arena *a, const char *s, size_t n);
char *arena_strdup(struct arena *a, const char *s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Makes room for one more element in a growing array that lives in the arena:
 * returns ptr or a larger copy with *cap updated; NULL when memory is out. */
void *arena_grow(struct arena *a, void *ptr, size_t n, size_t *cap, size_t size);

#endif
