/* table.h - a hash table from byte-string keys to pointers. */
#ifndef EGPU_BASE_TABLE_H
#define EGPU_BASE_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct table;

/* NULL when memory is out. */
struct table *table_new(void);
/* Frees the table and its copies of the keys, not the values; NULL is allowed. */
void table_free(struct table *t);
/* The value stored for the key, or NULL. */
void *table_get(const struct table *t, const void *key, size_t key_size);
void *table_gets(const struct table *t, const char *key);
/* Stores value (not NULL) under a copy of the key, replacing an older one. 0 or -ENOMEM. */
int table_put(struct table *t, const void *key, size_t key_size, void *value);
int table_puts(struct table *t, const char *key, void *value);
/* Removes and returns the value, or NULL. */
void *table_remove(struct table *t, const void *key, size_t key_size);
size_t table_count(const struct table *t);
/* Visits every entry in no particular order; *pos starts at 0. Returns the value, or NULL at the end. */
void *table_next(const struct table *t, size_t *pos, const void **key, size_t *key_size);

/* For tables and names of files; gigabytes a second. Whoever wants to can make two inputs of one hash. */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed);

#endif
