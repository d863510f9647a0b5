/* Queues, stacks and Bloom filters from the host.
 *
 * A value of a queue or stack is in one image: that of an instance, or the host's own, where a value
 * waits that was pushed before there was an instance. The first instance that is made takes those.
 * Queues are read from the host's image on, stacks from the last instance back. An instance whose
 * agent lives is asked to push or pop, which it does when nothing runs; one that nobody owns any
 * more is a file, and is changed here. A Bloom filter's bits are set everywhere, and read from all.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <stdlib.h>
#include <string.h>

#include "map/internal.h"
#include "map/keyless.h"
#include "map/map.h"

enum { TRIES = 100 };

struct image_file {
	struct map *m;
	struct source *src;
};

static uint64_t place(const struct source *src, uint64_t at)
{
	return at < MAP_IMAGE_HEADER ? src->header_at + at : src->data_at + at - MAP_IMAGE_HEADER;
}

static int read_image(void *self, uint64_t at, void *to, uint64_t bytes)
{
	const struct image_file *f = self;
	if (at < MAP_IMAGE_HEADER)
		return file_read_at(f->src->fd, to, (size_t)bytes, place(f->src, at));
	return map_source_read(f->m, f->src, at - MAP_IMAGE_HEADER, to, bytes);
}

static int write_image(void *self, uint64_t at, const void *from, uint64_t bytes)
{
	const struct image_file *f = self;
	f->src->len = 0; /* what was kept of it is old now */
	return file_write_at(f->src->fd, from, (size_t)bytes, place(f->src, at));
}

static struct keyless image_of(struct image_file *f)
{
	const struct session_map *r = &f->m->row;
	return (struct keyless){ r->type, r->value_size, r->max_entries, r->extra, f, read_image, write_image };
}

/* -- reading ---------------------------------------------------------------------- */

/* Source k in the order in which values are popped. */
static struct source *source_in_order(struct map *m, size_t k)
{
	size_t i = m->row.type == BPF_MAP_TYPE_STACK ? m->n_instances - k : k;
	return i ? &m->instances[i - 1] : &m->base;
}

/* The header is read outside of the copy's generation: both must be of one copy. */
static int value_at(struct map *m, struct source *src, uint32_t n, void *value)
{
	struct image_file f = { m, src };
	struct keyless k = image_of(&f);
	int err = -EAGAIN;
	for (int i = 0; i < TRIES && err == -EAGAIN; i++) {
		uint64_t before = src->generation;
		err = keyless_at(&k, n, value);
		if (!err && src->generation != before)
			err = -EAGAIN;
	}
	return err;
}

static int each_of(struct map *m, struct source *src, int (*fn)(void *arg, const void *value), void *arg,
	uint8_t *value, int *stop)
{
	int err = 0;
	for (uint32_t n = 0; !err && !*stop; n++) {
		err = value_at(m, src, n, value);
		if (!err)
			*stop = fn(arg, value);
		else if (err == -EAGAIN)
			err = 0; /* half-written when the copy was taken: left out */
	}
	return err == -ENOENT ? 0 : err;
}

int map_each_value(struct map *m, int (*fn)(void *arg, const void *value), void *arg)
{
	if (!map_is_queue(m->row.type))
		return -EOPNOTSUPP;
	int err = map_begin(m), stop = 0;
	uint8_t *value = calloc(1, m->stride);
	if (!value)
		err = -ENOMEM;
	for (size_t i = 0; i <= m->n_instances && !err && !stop; i++)
		err = each_of(m, source_in_order(m, i), fn, arg, value, &stop);
	free(value);
	return err;
}

struct peek {
	void *value;
	size_t bytes;
	bool found;
};

static int keep_first(void *arg, const void *value)
{
	struct peek *p = arg;
	memcpy(p->value, value, p->bytes);
	p->found = true;
	return 1;
}

static int bloom_has(struct map *m, const void *value)
{
	uint32_t all = 0, wanted = (1u << map_bloom_hashes(m->row.extra)) - 1;
	int err = 0;
	for (size_t i = 0; i <= m->n_instances && !err; i++) {
		struct image_file f = { m, source_in_order(m, i) };
		struct keyless k = image_of(&f);
		uint32_t set;
		err = keyless_bits(&k, value, &set);
		all |= err ? 0 : set;
	}
	return err ? err : all == wanted ? 0 : -ENOENT;
}

int map_peek(struct map *m, void *value)
{
	if (m->row.type == BPF_MAP_TYPE_BLOOM_FILTER) {
		int err = map_begin(m);
		return err ? err : bloom_has(m, value);
	}
	struct peek p = { value, m->row.value_size, false };
	int err = map_each_value(m, keep_first, &p);
	return err ? err : p.found ? 0 : -ENOENT;
}

/* -- changing --------------------------------------------------------------------- */

/* Where an agent serves the instance, it is asked; -EAGAIN: there is none. */
static int ask(struct map *m, const struct source *src, struct change *c)
{
	if (!src->instance || !map_source_served(m, src))
		return -EAGAIN;
	c->pid = src->pid;
	c->n = src->n;
	return map_request(m, c);
}

static int push_to(struct map *m, struct source *src, struct change *c)
{
	struct image_file f = { m, src };
	struct keyless k = image_of(&f);
	int err = ask(m, src, c);
	return err == -EAGAIN ? keyless_push(&k, c->value, c->flags) : err;
}

/* What a process left behind that is gone no kernel will see again: new values go to one that a kernel can take. */
static int queue_push(struct map *m, struct change *c)
{
	struct source *to = &m->base;
	for (size_t i = 0; i < m->n_instances && to == &m->base; i++)
		if (map_source_served(m, &m->instances[i]))
			to = &m->instances[i];
	return push_to(m, to, c);
}

static int bloom_push(struct map *m, struct change *c)
{
	bool asked = false;
	struct source *served = NULL;
	int err = 0;
	for (size_t i = 0; i <= m->n_instances && !err; i++) {
		struct source *src = source_in_order(m, i);
		if (src->instance && map_source_served(m, src)) {
			asked = true;
			served = src;
		} else {
			err = push_to(m, src, c);
		}
	}
	return !err && asked ? ask(m, served, c) : err; /* all of them do what one is asked for */
}

static int queue_pop(struct map *m, struct change *c)
{
	int err = -ENOENT;
	for (size_t i = 0; i <= m->n_instances && err == -ENOENT; i++) {
		struct source *src = source_in_order(m, i);
		struct image_file f = { m, src };
		struct keyless k = image_of(&f);
		err = ask(m, src, c);
		if (!err)
			err = map_request_answer(m, c->taken, m->row.value_size);
		else if (err == -EAGAIN)
			err = keyless_pop(&k, c->taken);
	}
	return err;
}

static int change(struct map *m, struct change *c)
{
	if (c->op == MAP_WRITE_POP)
		return queue_pop(m, c);
	return m->row.type == BPF_MAP_TYPE_BLOOM_FILTER ? bloom_push(m, c) : queue_push(m, c);
}

int map_push(struct map *m, const void *value, uint64_t flags)
{
	bool bloom = m->row.type == BPF_MAP_TYPE_BLOOM_FILTER;
	if (!map_is_keyless(m->row.type))
		return -EOPNOTSUPP;
	if (flags != BPF_ANY && (bloom || flags != BPF_EXIST))
		return -EINVAL;
	struct change c = { .op = MAP_WRITE_PUSH, .value = value, .bytes = m->row.value_size, .flags = (uint32_t)flags };
	return map_change(m, &c, change);
}

int map_pop(struct map *m, void *value)
{
	if (!map_is_queue(m->row.type))
		return -EOPNOTSUPP;
	struct change c = { .op = MAP_WRITE_POP, .taken = value };
	return map_change(m, &c, change);
}
