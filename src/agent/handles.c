/* handles.c - a map from driver handles to our records that a launch reads without a lock.
 *
 * Open addressing. A key once placed keeps its slot; removing stores a NULL value, so that a reader
 * meets either the record or nothing. A full table is copied into one of twice the size; the old
 * one stays, since a reader may be in it (all old ones together are smaller than the current one).
 */
#include <stdlib.h>

#include "agent/agent.h"

struct handle_slot {
	_Atomic(const void *) key;
	_Atomic(void *) value;
};

struct handle_table {
	size_t mask, used;
	struct handle_slot slots[];
};

static size_t spread(const void *key)
{
	uint64_t x = (uint64_t)(uintptr_t)key;
	x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
	return (size_t)(x ^ x >> 32);
}

static struct handle_table *table_of(size_t n)
{
	struct handle_table *t = calloc(1, sizeof(*t) + n * sizeof(t->slots[0]));
	if (t)
		t->mask = n - 1;
	return t;
}

static struct handle_slot *find(struct handle_table *t, const void *key)
{
	for (size_t i = spread(key) & t->mask;; i = (i + 1) & t->mask) {
		const void *at = atomic_load_explicit(&t->slots[i].key, memory_order_acquire);
		if (at == key || !at)
			return &t->slots[i];
	}
}

void *handles_get(struct handles *h, const void *key)
{
	struct handle_table *t = atomic_load_explicit(&h->table, memory_order_acquire);
	if (!t || !key)
		return NULL;
	struct handle_slot *s = find(t, key);
	return atomic_load_explicit(&s->key, memory_order_acquire)
		       ? atomic_load_explicit(&s->value, memory_order_acquire)
		       : NULL;
}

static void place(struct handle_table *t, const void *key, void *value)
{
	struct handle_slot *s = find(t, key);
	bool fresh = !atomic_load_explicit(&s->key, memory_order_relaxed);
	atomic_store_explicit(&s->value, value, memory_order_release);
	if (fresh) {
		atomic_store_explicit(&s->key, key, memory_order_release);
		t->used++;
	}
}

static struct handle_table *grown(struct handle_table *old)
{
	struct handle_table *t = table_of(old ? (old->mask + 1) * 2 : 256);
	if (!t || !old)
		return t;
	for (size_t i = 0; i <= old->mask; i++) {
		const void *key = atomic_load_explicit(&old->slots[i].key, memory_order_relaxed);
		void *value = atomic_load_explicit(&old->slots[i].value, memory_order_relaxed);
		if (key && value)
			place(t, key, value);
	}
	return t;
}

void handles_put(struct handles *h, const void *key, void *value)
{
	if (!key)
		return;
	lock_take(&h->lock);
	struct handle_table *t = atomic_load_explicit(&h->table, memory_order_relaxed);
	if (!t || t->used * 4 >= (t->mask + 1) * 3) {
		struct handle_table *more = grown(t);
		if (more)
			atomic_store_explicit(&h->table, more, memory_order_release);
		t = more ? more : t;
	}
	/* Without memory one free slot must stay, or a search would not end. */
	if (t && t->used < t->mask)
		place(t, key, value);
	lock_drop(&h->lock);
}

void handles_sweep(struct handles *h, bool (*drop)(void *value, void *arg), void *arg)
{
	lock_take(&h->lock);
	struct handle_table *t = atomic_load_explicit(&h->table, memory_order_relaxed);
	for (size_t i = 0; t && i <= t->mask; i++) {
		void *value = atomic_load_explicit(&t->slots[i].value, memory_order_relaxed);
		if (value && drop(value, arg))
			atomic_store_explicit(&t->slots[i].value, NULL, memory_order_release);
	}
	lock_drop(&h->lock);
}
