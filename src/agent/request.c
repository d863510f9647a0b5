/* request.c - writes of the host to maps that are on a device: what map/write.c asks for, carried
 * out by the agent's thread, and memory-mapped globals, pushed before a launch that reads them.
 *
 * Elements of arrays, and values of keys that a hash map has, are written by DMA at any time: an
 * element and a key keep their places. A key that comes or goes moves the map's counts with it, so
 * that waits for a moment when nothing runs in the context and the launch gate is free; so do values
 * that are pushed to queues, stacks and Bloom filters, or popped.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent.h"
#include "map/file.h"
#include "map/keyless.h"

enum { PATH_BYTES = 512 };

struct request {
	struct map_write head;
	uint8_t *key, *value; /* value NULL: the key is to go */
	uint32_t value_size;  /* that there is room for: the image can be scribbled over */
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

static bool to_device(struct context *c, CUdeviceptr at, const void *from, size_t n)
{
	return ok(REAL(cuMemcpyHtoDAsync_v2)(at, from, n, c->stream));
}

static bool finish(struct context *c)
{
	return ok(REAL(cuStreamSynchronize)(c->stream));
}

/* -- asking ------------------------------------------------------------------------- */

static uint32_t wanted(uint32_t map)
{
	return __atomic_load_n(&agent.shared->maps[map].write_seq, __ATOMIC_ACQUIRE);
}

bool request_pending(const struct context *c)
{
	if (atomic_load(&c->dead))
		return false;
	for (uint64_t left = atomic_load(&c->map_mask); left; left &= left - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(left);
		if (atomic_load(&c->maps[i].written) != wanted(i))
			return true;
	}
	return false;
}

static void done(struct devmap *m, uint32_t seq, int err)
{
	atomic_store(&m->written, seq);
	m->instance->write_error = err;
	__atomic_store_n(&m->instance->write_done, seq, __ATOMIC_RELEASE);
}

static bool is_sane(const struct request *r, const struct map_image *image, uint64_t size)
{
	uint64_t key = map_round_up(image->key_size, 8);
	bool put = r->head.op == MAP_WRITE_PUT;
	if (map_is_keyless(image->type))
		return !r->head.key_size &&
		       ((r->head.op == MAP_WRITE_POP && !r->head.bytes && map_is_queue(image->type)) ||
			       (r->head.op == MAP_WRITE_PUSH && r->head.bytes == r->value_size &&
				       size >= sizeof(r->head) + r->head.bytes));
	uint64_t end = (uint64_t)r->head.offset + r->head.bytes;
	bool part = image->type == BPF_MAP_TYPE_ARRAY && end <= image->value_size;
	return (put || (r->head.op == MAP_WRITE_DELETE && map_is_hash(image->type))) &&
	       r->head.key_size == image->key_size &&
	       (part || (!r->head.offset && end == (put ? image->value_size : 0))) &&
	       size >= sizeof(r->head) + key + r->head.bytes;
}

static int open_request(uint32_t id, int flags, uint64_t *size)
{
	char path[PATH_BYTES];
	int n = snprintf(path, sizeof(path), "%s/map-%u.write", session_path(agent.session), id);
	return n < (int)sizeof(path) ? file_open(path, flags, geteuid(), size) : -ENAMETOOLONG;
}

/* Reads map-ID.write. r->key is freed by the caller. */
static int read_request(uint32_t id, const struct map_image *image, struct request *r)
{
	uint64_t size;
	size_t key = (size_t)map_round_up(image->key_size, 8);
	r->value_size = image->value_size;
	int fd = open_request(id, O_RDONLY, &size);
	if (fd < 0)
		return fd;
	int err = file_read_at(fd, &r->head, sizeof(r->head), 0);
	if (!err && !is_sane(r, image, size))
		err = -EINVAL;
	r->key = err ? NULL : calloc(1, key + (size_t)map_stride(r->value_size));
	if (!err && !r->key)
		err = -ENOMEM;
	if (!err && key + r->head.bytes)
		err = file_read_at(fd, r->key, key + r->head.bytes, sizeof(r->head));
	close(fd);
	r->value = r->head.op == MAP_WRITE_DELETE ? NULL : r->key + key;
	return err;
}

/* -- arrays ---------------------------------------------------------------------------- */

/* Of an array without its replicas: all that the host has of it. */
static size_t value_bytes(const struct map_image *im)
{
	return (size_t)(im->max_entries * map_stride(im->value_size));
}

/* The same bytes in the session's copy, so that a reader sees them before the next copy. */
static void patch(struct devmap *m, size_t at, const void *from, size_t n)
{
	if (!m->mapped) /* there it is that already, and the device may be at it */
		memcpy((char *)m->image + at, from, n);
	if (m->instance->base_offset && at < MAP_IMAGE_HEADER + value_bytes(m->image))
		memcpy((char *)m->instance + m->instance->base_offset + at - MAP_IMAGE_HEADER, from,
			n);
}

/* Each replica gets the value; those of per-CPU maps are all cleared: there the host's image has the
 * value. */
static int write_array(struct context *c, struct devmap *m, const struct request *r)
{
	const struct map_image *im = m->image;
	bool per_cpu = im->type == BPF_MAP_TYPE_PERCPU_ARRAY;
	size_t bytes = r->head.bytes, stride = (size_t)map_stride(im->value_size);
	uint64_t replica = map_replica_bytes(im->max_entries, im->value_size);
	uint32_t index;
	memcpy(&index, r->key, sizeof(index));
	if (index >= im->max_entries)
		return -E2BIG;
	if (map_instance_reserve(agent.session, m->instance))
		return -ENOSPC;
	uint8_t *zero = calloc(1, stride);
	if (!zero)
		return -ENOMEM;
	uint64_t at = MAP_IMAGE_HEADER + (uint64_t)index * stride + r->head.offset;
	bool good = true;
	for (uint32_t k = 0; k < im->n_replicas && good; k++)
		good = to_device(c, m->address + k * replica + at, per_cpu ? zero : r->value, bytes);
	good &= finish(c);
	map_instance_begin(m->instance);
	for (uint32_t k = 0; k < im->n_replicas && good; k++)
		patch(m, k * replica + at, per_cpu ? zero : r->value, bytes);
	map_instance_end(m->instance, now_ns());
	free(zero);
	return good ? 0 : -EIO;
}

/* -- hash maps --------------------------------------------------------------------------- */

static bool copy_down(struct context *c, struct devmap *m)
{
	return m->mapped || (ok(REAL(cuMemcpyDtoHAsync_v2)(m->image, m->address, m->bytes, c->stream)) && finish(c));
}

static uint8_t *slot_of(const struct map_image *im, uint64_t at)
{
	return (uint8_t *)(uintptr_t)(im + 1) + at * map_hash_slot_bytes(im->type, im->key_size, im->value_size);
}

static uint32_t word_of(const uint8_t *slot)
{
	uint32_t word;
	memcpy(&word, slot, sizeof(word));
	return word;
}

static bool is_state(const uint8_t *slot, uint32_t state)
{
	return (word_of(slot) & MAP_SLOT_STATE) == state;
}

/* Numbers of slots in the session's copy. */
struct place {
	uint64_t mask, home, at;
};

static struct place home_of(const struct map_image *im, const uint8_t *key)
{
	uint64_t mask = map_hash_slots(im->max_entries) - 1, home = map_hash_key(key, im->key_size) & mask;
	return (struct place){ mask, home, home };
}

static bool find_key(const struct map_image *im, const uint8_t *key, struct place *p)
{
	*p = home_of(im, key);
	uint64_t reach = word_of(slot_of(im, p->home)) >> MAP_SLOT_REACH;
	for (uint64_t i = 0; i <= reach && i <= p->mask; i++, p->at = (p->at + 1) & p->mask)
		if (is_state(slot_of(im, p->at), MAP_SLOT_LIVE) && !memcmp(slot_of(im, p->at) + 8, key, im->key_size))
			return true;
	return false;
}

/* The first slot from the key's home on that is in a state. */
static bool find_state(const struct map_image *im, const uint8_t *key, uint32_t state, struct place *p)
{
	*p = home_of(im, key);
	for (uint64_t i = 0; i <= p->mask; i++, p->at = (p->at + 1) & p->mask)
		if (is_state(slot_of(im, p->at), state))
			return ((p->at - p->home) & p->mask) <= MAP_SLOT_MAX_REACH;
	return false;
}

static bool part_to_device(struct context *c, struct devmap *m, const void *part, size_t bytes)
{
	return m->mapped || to_device(c, m->address + (uint64_t)((const char *)part - (const char *)m->image), part, bytes);
}

/* What multiprocessors had beside the slot's value is over. */
static bool zero_replicas(struct context *c, struct devmap *m, uint64_t at)
{
	struct map_image *im = m->image;
	uint64_t stride = map_stride(im->value_size);
	uint8_t *first = (uint8_t *)(im + 1) + map_hash_replicas_at(im->key_size, im->value_size, im->max_entries) + at * stride;
	bool good = true;
	for (uint32_t r = 0; r < im->n_replicas && im->n_replicas > 1 && im->type == BPF_MAP_TYPE_HASH && good; r++) {
		uint8_t *to = first + r * map_hash_replica_bytes(im->value_size, im->max_entries);
		if ((uint64_t)(to - (uint8_t *)im) + stride > m->bytes)
			return false; /* the header has been scribbled over */
		memset(to, 0, (size_t)stride);
		good = part_to_device(c, m, to, (size_t)stride);
	}
	return good;
}

/* The value of a slot, in the copy and on the device; per-CPU: nothing, the host's image has it. */
static bool put_value(struct context *c, struct devmap *m, uint64_t at, const uint8_t *value)
{
	struct map_image *im = m->image;
	bool good = true, per_cpu = map_is_per_cpu(im->type);
	for (uint32_t r = 0; r < (per_cpu ? im->n_replicas : 1) && good; r++) {
		uint8_t *to = (uint8_t *)(im + 1) +
			      map_hash_value_at(im->type, im->key_size, im->value_size, im->max_entries, at, r);
		memset(to, 0, (size_t)map_stride(im->value_size));
		if (!per_cpu)
			memcpy(to, value, im->value_size);
		good = part_to_device(c, m, to, (size_t)map_stride(im->value_size));
	}
	return good && zero_replicas(c, m, at);
}

/* The slot's own state; what it knows of those at home there stays, its reach at least `reach`. */
static bool put_state(struct context *c, struct devmap *m, uint64_t at, uint32_t state, uint64_t reach)
{
	uint8_t *slot = slot_of(m->image, at);
	uint32_t old = word_of(slot) >> MAP_SLOT_REACH;
	uint32_t now = (reach > old ? (uint32_t)reach : old) << MAP_SLOT_REACH | state;
	memcpy(slot, &now, sizeof(now));
	return part_to_device(c, m, slot, sizeof(now));
}

static bool put_live(struct context *c, struct devmap *m, int64_t add)
{
	m->image->live += (uint64_t)add;
	return part_to_device(c, m, &m->image->live, sizeof(m->image->live));
}

static bool take_out(struct context *c, struct devmap *m, uint64_t at)
{
	uint8_t *key = slot_of(m->image, at) + 8;
	size_t bytes = (size_t)map_round_up(m->image->key_size, 8);
	if (m->image->n_replicas > 1)
		memset(key, 0xff, bytes);
	return put_state(c, m, at, MAP_SLOT_EMPTY, 0) && part_to_device(c, m, key, bytes) && zero_replicas(c, m, at) && put_live(c, m, -1);
}

static bool new_key(struct context *c, struct devmap *m, const struct request *r, const struct place *p)
{
	struct map_image *im = m->image;
	uint8_t *slot = slot_of(im, p->at);
	uint32_t hash = map_hash_key(r->key, im->key_size),
		 home_state = word_of(slot_of(im, p->home)) & MAP_SLOT_STATE;
	memcpy(slot + 4, &hash, sizeof(hash));
	memset(slot + 8, 0, (size_t)map_round_up(im->key_size, 8));
	memcpy(slot + 8, r->key, im->key_size);
	return part_to_device(c, m, slot, 8 + (size_t)map_round_up(im->key_size, 8)) &&
	       put_value(c, m, p->at, r->value) &&
	       put_state(c, m, p->home, home_state, (p->at - p->home) & p->mask) &&
	       put_state(c, m, p->at, MAP_SLOT_LIVE, 0) && put_live(c, m, 1);
}

/* What a request asks for in the copy and on the device. 0, -E2BIG, -EIO. */
static int change_hash(struct context *c, struct devmap *m, const struct request *r)
{
	struct map_image *im = m->image;
	struct place p;
	bool has = find_key(im, r->key, &p);
	if (!r->value)
		return !has || take_out(c, m, p.at) ? 0 : -EIO;
	if (has)
		return put_value(c, m, p.at, r->value) ? 0 : -EIO;
	if ((uint32_t)im->live >= im->max_entries) {
		if (!map_is_lru(im->type) || !find_state(im, r->key, MAP_SLOT_LIVE, &p))
			return -E2BIG;
		if (!take_out(c, m, p.at))
			return -EIO;
	}
	if (!find_state(im, r->key, MAP_SLOT_EMPTY, &p))
		return -E2BIG;
	return new_key(c, m, r, &p) ? 0 : -EIO;
}

/* Nothing runs in the context, nor can begin to. */
static int write_slot(struct context *c, struct devmap *m, const struct request *r)
{
	map_instance_begin(m->instance);
	int err = copy_down(c, m) ? change_hash(c, m, r) : -EIO;
	if (!finish(c))
		err = -EIO;
	map_instance_end(m->instance, now_ns());
	return err;
}

/* The value of a key that the device has; -ENOENT. */
static int write_value(struct context *c, struct devmap *m, const struct request *r)
{
	struct map_image *im = m->image;
	struct place p;
	uint8_t state[8];
	if (!find_key(im, r->key, &p))
		return -ENOENT;
	uint8_t *slot = slot_of(im, p.at);
	/* A kernel may have deleted it since: then it is to be made anew. */
	if (!put_value(c, m, p.at, r->value) || !finish(c) ||
		!ok(REAL(cuMemcpyDtoHAsync_v2)(state, m->address + (uint64_t)(slot - (uint8_t *)im),
			sizeof(state), c->stream)) ||
		!finish(c))
		return -EIO;
	return is_state(state, MAP_SLOT_LIVE) && !memcmp(state + 4, slot + 4, 4) ? 0 : -ENOENT;
}

/* -EAGAIN: work is under way. */
static int write_hash(struct context *c, struct devmap *m, const struct request *r)
{
	if (r->value) {
		map_instance_begin(m->instance);
		int err = copy_down(c, m) ? write_value(c, m, r) : -EIO;
		map_instance_end(m->instance, now_ns());
		if (err != -ENOENT)
			return err;
	}
	if (!gate_close(&agent.gate))
		return -EAGAIN;
	int err = stream_context_idle(c->handle, true) ? write_slot(c, m, r) : -EAGAIN;
	gate_open(&agent.gate);
	return err;
}

/* -- maps without keys ------------------------------------------------------------------------- */

/* An image on the device, and its copy in the session. */
struct image_here {
	struct context *c;
	struct devmap *m;
};

static int read_here(void *self, uint64_t at, void *to, uint64_t bytes)
{
	const struct image_here *h = self;
	if (at > h->m->bytes || bytes > h->m->bytes - at)
		return -EINVAL;
	bool good = ok(REAL(cuMemcpyDtoHAsync_v2)(to, h->m->address + at, bytes, h->c->stream)) && finish(h->c);
	return good ? 0 : -EIO;
}

static int write_here(void *self, uint64_t at, const void *from, uint64_t bytes)
{
	const struct image_here *h = self;
	if (at > h->m->bytes || bytes > h->m->bytes - at)
		return -EINVAL;
	bool good = to_device(h->c, h->m->address + at, from, bytes) && finish(h->c);
	memcpy((char *)h->m->image + at, from, bytes);
	return good ? 0 : -EIO;
}

static int answer(uint32_t id, const void *value, size_t bytes)
{
	uint64_t size;
	int fd = open_request(id, O_RDWR, &size);
	if (fd < 0)
		return fd;
	int err = file_write_at(fd, value, bytes, sizeof(struct map_write));
	close(fd);
	return err;
}

/* The value is answered before it is taken out, so that none is lost. */
static int pop_here(const struct keyless *k, uint32_t id, uint8_t *value)
{
	int err = keyless_at(k, 0, value);
	if (!err)
		err = answer(id, value, k->value_size);
	return err ? err : keyless_pop(k, value);
}

/* Nothing runs in the context, nor can begin to. The host's row cannot change the image's shape. */
static int change_keyless(struct context *c, struct devmap *m, uint32_t id, const struct request *r)
{
	struct image_here here = { c, m };
	const struct map_image *im = m->image;
	struct keyless k = { im->type, r->value_size, im->max_entries, agent.shared->maps[id].extra, &here, read_here, write_here };
	if (k.extra > MAP_BLOOM_MAX_HASHES || !k.max_entries)
		return -EINVAL;
	map_instance_begin(m->instance);
	int err = copy_down(c, m) ? 0 : -EIO;
	if (!err)
		err = r->head.op == MAP_WRITE_POP ? pop_here(&k, id, r->value)
						  : keyless_push(&k, r->value, r->head.offset);
	map_instance_end(m->instance, now_ns());
	return err;
}

/* -EAGAIN: work is under way. */
static int write_keyless(struct context *c, struct devmap *m, uint32_t id, const struct request *r)
{
	bool ours = r->head.pid == m->instance->pid && r->head.n == m->instance->n;
	if (map_is_queue(m->image->type) && !ours)
		return 0;
	if (!gate_close(&agent.gate))
		return -EAGAIN;
	int err = stream_context_idle(c->handle, true) ? change_keyless(c, m, id, r) : -EAGAIN;
	gate_open(&agent.gate);
	return err;
}

/* -- serving ------------------------------------------------------------------------------ */

static void serve_map(struct context *c, uint32_t id)
{
	struct devmap *m = &c->maps[id];
	struct request r = { 0 };
	uint32_t seq = wanted(id);
	if (!m->instance || atomic_load(&m->written) == seq)
		return;
	int err = read_request(id, m->image, &r);
	if (!err && r.head.seq != seq)
		err = -EAGAIN; /* a newer one is being written */
	if (!err)
		err = map_is_keyless(m->image->type) ? write_keyless(c, m, id, &r)
		      : map_is_hash(m->image->type)  ? write_hash(c, m, &r)
						     : write_array(c, m, &r);
	free(r.key);
	if (err != -EAGAIN)
		done(m, seq, err);
}

void request_serve(struct context *c)
{
	CUcontext was;
	if (!request_pending(c) || !ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
		return;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (c->map_mask >> i & 1)
			serve_map(c, i);
	REAL(cuCtxPopCurrent_v2)(&was);
}

/* -- memory-mapped globals ------------------------------------------------------------------ */

/* Also where the counting of requests begins. */
void request_watch(struct context *c, uint32_t id)
{
	struct devmap *m = &c->maps[id];
	char path[PATH_BYTES];
	uint64_t size;
	size_t bytes = value_bytes(m->image);
	atomic_store(&m->written, m->instance->write_done);
	if (!m->instance->base_offset)
		return;
	int n = snprintf(path, sizeof(path), "%s/map-%u", session_path(agent.session), id);
	int fd = n < (int)sizeof(path) ? file_open(path, O_RDONLY, geteuid(), &size) : -1;
	void *at = fd >= 0 && size >= bytes ? mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0)
					    : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	if (at == MAP_FAILED)
		return;
	m->host = at;
	m->host_bytes = bytes;
	c->host_mask |= (uint64_t)1 << id;
}

/* Bytes of the host's to each replica. By copies: memory is set by a kernel, which waits for one that fills the device. */
static bool push_bytes(struct context *c, struct devmap *m, size_t at, const uint8_t *from, size_t n)
{
	uint64_t replica = map_replica_bytes(m->image->max_entries, m->image->value_size);
	bool good = true;
	for (uint32_t r = 0; r < m->image->n_replicas && good; r++) {
		if (r * replica + at + n > m->bytes)
			return false; /* the header has been scribbled over */
		memcpy((char *)m->image + r * replica + at, from, n);
		good = to_device(c, m->address + r * replica + at, from, n);
	}
	return good;
}

/* Sends the bytes that the host has changed, and no others: beside them may be what the device
 * counts. */
static bool push_map(struct context *c, struct devmap *m)
{
	const uint8_t *now = m->host;
	uint8_t *was = (uint8_t *)m->instance + m->instance->base_offset;
	size_t bytes = m->host_bytes;
	bool good = true;
	map_instance_begin(m->instance);
	for (size_t i = 0; i < bytes && good;) {
		size_t from = i;
		if (now[i] == was[i]) {
			i++;
			continue;
		}
		for (; i < bytes && now[i] != was[i]; i++)
			was[i] = now[i];
		good = push_bytes(c, m, MAP_IMAGE_HEADER + from, was + from, i - from);
	}
	good &= finish(c);
	map_instance_end(m->instance, now_ns());
	return good;
}

/* Looks while others may write: whoever sees a difference looks again under the lock, and what is
 * written after the look belongs to the next launch. */
__attribute__((no_sanitize("thread"))) static bool is_changed(const struct devmap *m)
{
	const struct map_instance *inst = m->instance;
	const volatile uint64_t *now = m->host;
	if (!inst)
		return false;
	const volatile uint64_t *was =
		(const volatile uint64_t *)(const void *)((const char *)inst + inst->base_offset);
	uint64_t differ = 0;
	for (size_t i = 0; i < m->host_bytes / 8; i++)
		differ |= now[i] ^ was[i];
	return differ;
}

static void push(struct context *c, struct devmap *m)
{
	CUcontext was;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (atomic_load(&c->dead) || !is_changed(m) || !ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
		return;
	/* Another thread of the program may be capturing. */
	bool exchanged = REAL(cuThreadExchangeStreamCaptureMode) &&
			 ok(REAL(cuThreadExchangeStreamCaptureMode)(&mode));
	push_map(c, m);
	if (exchanged)
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	REAL(cuCtxPopCurrent_v2)(&was);
}

void request_push_globals(struct context *c, uint64_t maps)
{
	for (uint64_t left = maps & c->host_mask; left; left &= left - 1) {
		struct devmap *m = &c->maps[__builtin_ctzll(left)];
		if (!is_changed(m))
			continue;
		lock_take(&c->copying);
		push(c, m);
		lock_drop(&c->copying);
	}
}
