#include "base/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	struct entry *next;
	void *value;
	uint64_t hash;
	size_t key_size;
	char key[];
};

struct table {
	struct entry **buckets; /* a power of two of them */
	size_t n_buckets, count;
};

#define HASH_MUL 0x9e3779b97f4a7c15u

static uint64_t hash_step(uint64_t h, uint64_t word)
{
	h = (h ^ word) * HASH_MUL;
	return h ^ h >> 32;
}

static uint64_t word_at(const unsigned char *p, size_t n)
{
	uint64_t w = 0;
	memcpy(&w, p, n);
	return w;
}

/* Four words at a time, each in a sum of its own: one multiplication needs not wait for the last. */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed)
{
	const unsigned char *p = data;
	uint64_t h = hash_step(seed, n), lane[4] = { h, ~h, h << 1, h >> 1 };
	if (n >= 32) {
		for (; n >= 32; n -= 32, p += 32)
			for (int i = 0; i < 4; i++)
				lane[i] = hash_step(lane[i], word_at(p + 8 * i, 8));
		for (int i = 0; i < 4; i++)
			h = hash_step(h, lane[i]);
	}
	for (; n >= 8; n -= 8, p += 8)
		h = hash_step(h, word_at(p, 8));
	return hash_step(hash_step(h, word_at(p, n)), 0);
}

struct table *table_new(void)
{
	struct table *t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->n_buckets = 16;
	t->buckets = calloc(t->n_buckets, sizeof(*t->buckets));
	if (!t->buckets) {
		free(t);
		return NULL;
	}
	return t;
}

void table_free(struct table *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n_buckets; i++)
		for (struct entry *e = t->buckets[i], *next; e; e = next) {
			next = e->next;
			free(e);
		}
	free(t->buckets);
	free(t);
}

/* The link that points to the key's entry, or to the NULL that ends its bucket. */
static struct entry **table_find(const struct table *t, const void *key, size_t n, uint64_t hash)
{
	struct entry **at = &t->buckets[hash & (t->n_buckets - 1)];
	while (*at && !((*at)->hash == hash && (*at)->key_size == n && (!n || !memcmp((*at)->key, key, n))))
		at = &(*at)->next;
	return at;
}

void *table_get(const struct table *t, const void *key, size_t key_size)
{
	struct entry *e = *table_find(t, key, key_size, hash_bytes(key, key_size, 0));
	return e ? e->value : NULL;
}

void *table_gets(const struct table *t, const char *key)
{
	return table_get(t, key, strlen(key));
}

/* Doubling is best effort: without memory the chains only grow longer. */
static void table_grow(struct table *t)
{
	size_t n = t->n_buckets * 2;
	struct entry **buckets = calloc(n, sizeof(*buckets));
	if (!buckets)
		return;
	for (size_t i = 0; i < t->n_buckets; i++)
		for (struct entry *e = t->buckets[i], *next; e; e = next) {
			next = e->next;
			struct entry **at = &buckets[e->hash & (n - 1)];
			e->next = *at;
			*at = e;
		}
	free(t->buckets);
	t->buckets = buckets;
	t->n_buckets = n;
}

int table_put(struct table *t, const void *key, size_t key_size, void *value)
{
	uint64_t hash = hash_bytes(key, key_size, 0);
	struct entry **at = table_find(t, key, key_size, hash);
	if (*at) {
		(*at)->value = value;
		return 0;
	}
	struct entry *e = malloc(sizeof(*e) + key_size);
	if (!e)
		return -ENOMEM;
	*e = (struct entry){ .value = value, .hash = hash, .key_size = key_size };
	if (key_size)
		memcpy(e->key, key, key_size);
	*at = e;
	if (++t->count > t->n_buckets)
		table_grow(t);
	return 0;
}

int table_puts(struct table *t, const char *key, void *value)
{
	return table_put(t, key, strlen(key), value);
}

void *table_remove(struct table *t, const void *key, size_t key_size)
{
	struct entry **at = table_find(t, key, key_size, hash_bytes(key, key_size, 0));
	struct entry *e = *at;
	if (!e)
		return NULL;
	void *value = e->value;
	*at = e->next;
	free(e);
	t->count--;
	return value;
}

size_t table_count(const struct table *t)
{
	return t->count;
}

void *table_next(const struct table *t, size_t *pos, const void **key, size_t *key_size)
{
	/* pos counts entries in bucket order; walking from the start keeps the cursor one number. */
	size_t left = *pos;
	for (size_t i = 0; i < t->n_buckets; i++)
		for (struct entry *e = t->buckets[i]; e; e = e->next)
			if (!left--) {
				(*pos)++;
				if (key)
					*key = e->key;
				if (key_size)
					*key_size = e->key_size;
				return e->value;
			}
	return NULL;
}
