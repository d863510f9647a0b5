/* Writing from the host: the host's image, and every device's.
 *
 * Before a device has an instance of the map, a write changes the host's image, which instances are
 * made from. Afterwards it must reach each of them: an instance whose agent lives gets a request,
 * which the agent carries out by DMA and acknowledges; one whose agent is gone is a file that
 * nobody else writes, and is changed here. In all of them, and in the host's image, the element has
 * the new value then, so that base + sum of (instance - base) is the value written and, from then
 * on, whatever the devices add. Per-CPU elements keep the host's value in its own image and are
 * zero in the instances.
 *
 * One write to a map at a time, under the lock of map-ID. Readers see that row.writing is odd.
 */
#include "map/map.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "map/internal.h"

enum {
	LOCK_MS = 10000,
	ANSWER_MS = 1000,
};

/* -- one image ------------------------------------------------------------------- */

static bool is_base(const struct map *m, const struct source *src)
{
	return src == &m->base;
}

static int put_words(struct source *src, uint64_t at, const void *value, size_t bytes)
{
	return file_write_at(src->fd, value, bytes, src->data_at + at);
}

static int put_array(struct map *m, struct source *src, uint32_t index, const struct change *c)
{
	uint64_t at = (uint64_t)index * m->stride + c->offset,
		 replica = map_replica_bytes(m->row.max_entries, m->row.value_size);
	int err = src->base_at ? file_write_at(src->fd, c->value, c->bytes, src->base_at + at) : 0;
	for (uint32_t r = 0; r < src->n_replicas && !err; r++)
		err = put_words(src, r * replica + at, c->value, c->bytes);
	return err;
}

static int put_per_cpu(struct map *m, struct source *src, uint32_t index, const void *value)
{
	uint64_t replica = map_replica_bytes(m->row.max_entries, m->row.value_size);
	const uint8_t *slots = value;
	for (uint32_t r = 0; r < src->n_replicas; r++) {
		memset(m->one, 0, m->stride);
		if (is_base(m, src) && r < m->cpus)
			memcpy(m->one, slots + (size_t)r * m->stride, m->row.value_size);
		int err = put_words(
			src, r * replica + (uint64_t)index * m->stride, m->one, m->stride);
		if (err)
			return err;
	}
	return 0;
}

static int hash_live_add(struct map *m, struct source *src, int n)
{
	uint64_t live, at = src->header_at + offsetof(struct map_image, live);
	int err = file_read_at(src->fd, &live, sizeof(live), at);
	if (err)
		return err;
	if (n > 0 && (uint32_t)live >= m->row.max_entries)
		return -E2BIG;
	live += (uint64_t)(int64_t)n;
	return file_write_at(src->fd, &live, sizeof(live), at);
}

/* What multiprocessors had beside the slot's value is over. */
static int hash_zero_replicas(struct map *m, struct source *src, uint64_t slot)
{
	int err = 0;
	memset(m->one, 0, m->stride);
	for (uint32_t r = 0; r < src->n_replicas && src->n_replicas > 1 && !map_is_per_cpu(m->row.type) && !err; r++)
		err = put_words(src,
			map_hash_replicas_at(m->row.key_size, m->row.value_size, m->row.max_entries) +
				r * map_hash_replica_bytes(m->row.value_size, m->row.max_entries) + slot * m->stride,
			m->one, m->stride);
	return err;
}

static int hash_write_value(struct map *m, struct source *src, uint64_t slot, const void *value)
{
	bool per_cpu = map_is_per_cpu(m->row.type);
	const uint8_t *slots = value;
	for (uint32_t r = 0; r < (per_cpu ? src->n_replicas : 1); r++) {
		memset(m->one, 0, m->stride);
		if (!per_cpu)
			memcpy(m->one, value, m->row.value_size);
		else if (is_base(m, src) && r < m->cpus)
			memcpy(m->one, slots + (size_t)r * m->stride, m->row.value_size);
		int err = put_words(src,
			map_hash_value_at(m->row.type, m->row.key_size, m->row.value_size, m->row.max_entries, slot, r),
			m->one, m->stride);
		if (err)
			return err;
	}
	return hash_zero_replicas(m, src, slot);
}

static uint64_t slot_at(const struct map *m, const struct source *src, uint64_t slot)
{
	return src->data_at + slot * map_hash_slot_bytes(m->row.type, m->row.key_size, m->row.value_size);
}

/* Sets a slot's own state; what it knows of those at home there stays. */
static int hash_write_state(struct map *m, struct source *src, uint64_t slot, uint32_t state, uint64_t reach)
{
	uint32_t old, now;
	int err = map_hash_slot(m, src, slot, &old);
	if (reach < old >> MAP_SLOT_REACH)
		reach = old >> MAP_SLOT_REACH;
	now = (uint32_t)reach << MAP_SLOT_REACH | state;
	return err ? err : file_write_at(src->fd, &now, sizeof(now), slot_at(m, src, slot));
}

/* The state goes last, so that a reader never finds a live slot without its value; before it the home's reach. */
static int hash_write_slot(
	struct map *m, struct source *src, uint64_t slot, const void *key, const void *value)
{
	uint64_t at = slot_at(m, src, slot), home = map_hash_home(m, key),
		 far = (slot - home) & (map_hash_slots(m->row.max_entries) - 1);
	uint32_t hash = map_hash_key(key, m->row.key_size), state;
	int err = far > MAP_SLOT_MAX_REACH ? -E2BIG : map_hash_slot(m, src, home, &state);
	if (!err)
		err = hash_write_state(m, src, home, state & MAP_SLOT_STATE, far);
	if (!err)
		err = file_write_at(src->fd, &hash, sizeof(hash), at + 4);
	if (!err)
		err = file_write_at(src->fd, key, m->row.key_size, at + 8);
	if (!err)
		err = hash_write_value(m, src, slot, value);
	return err ? err : hash_write_state(m, src, slot, MAP_SLOT_LIVE, 0);
}

/* The first slot from the key's home on that is in a state. */
static int hash_first(struct map *m, struct source *src, const void *key, uint32_t wanted, uint64_t *slot)
{
	uint64_t mask = map_hash_slots(m->row.max_entries) - 1, at = map_hash_home(m, key);
	for (uint64_t i = 0; i <= mask; i++, at = (at + 1) & mask) {
		uint32_t state;
		int err = map_hash_slot(m, src, at, &state);
		*slot = at;
		if (err || (state & MAP_SLOT_STATE) == wanted)
			return err;
	}
	return -E2BIG;
}

static int hash_take_out(struct map *m, struct source *src, uint64_t slot)
{
	int err = hash_write_state(m, src, slot, MAP_SLOT_EMPTY, 0);
	return err ? err : hash_live_add(m, src, -1);
}

/* Room for a key that is not there: in an LRU map another one goes. */
static int hash_make_room(struct map *m, struct source *src, const void *key)
{
	uint64_t slot;
	int err = hash_live_add(m, src, 1);
	if (err != -E2BIG || !map_is_lru(m->row.type))
		return err;
	err = hash_first(m, src, key, MAP_SLOT_LIVE, &slot);
	if (!err)
		err = hash_take_out(m, src, slot);
	return err ? err : hash_live_add(m, src, 1);
}

static int put_hash(struct map *m, struct source *src, const void *key, const void *value)
{
	uint64_t slot;
	int err = map_hash_find(m, src, key, &slot);
	if (!err)
		return hash_write_value(m, src, slot, value);
	if (err != -ENOENT)
		return err;
	err = hash_make_room(m, src, key);
	if (!err)
		err = hash_first(m, src, key, MAP_SLOT_EMPTY, &slot);
	return err ? err : hash_write_slot(m, src, slot, key, value);
}

static int remove_hash(struct map *m, struct source *src, const void *key)
{
	uint64_t slot;
	int err = map_hash_find(m, src, key, &slot);
	return err ? err == -ENOENT ? 0 : err : hash_take_out(m, src, slot);
}

static int put(struct map *m, struct source *src, const struct change *c)
{
	uint32_t index;
	src->len = 0; /* what was kept of it is old now */
	if (map_is_hash(m->row.type))
		return c->value ? put_hash(m, src, c->key, c->value) : remove_hash(m, src, c->key);
	int err = map_array_index(m, c->key, &index);
	if (err)
		return err;
	return m->row.type == BPF_MAP_TYPE_ARRAY ? put_array(m, src, index, c)
						 : put_per_cpu(m, src, index, c->value);
}

/* -- agents ---------------------------------------------------------------------- */

/* Whether an agent still owns this image; *done is the last request it has carried out. */
static bool has_agent(const struct map *m, const struct source *src, uint32_t *done, int *error)
{
	struct map_instance head;
	if (file_read_at(src->fd, &head, sizeof(head), 0) || head.ended ||
		!map_source_alive(m, src))
		return false;
	*done = head.write_done;
	*error = head.write_error;
	return true;
}

static void wake_agents(struct map *m)
{
	for (int i = 0; i < SESSION_MAX_AGENTS; i++) {
		struct session_agent *a = &m->s->file->agents[i];
		if (!__atomic_load_n(&a->pid, __ATOMIC_ACQUIRE))
			continue;
		__atomic_fetch_add(&a->wake, 1, __ATOMIC_RELEASE);
		syscall(SYS_futex, &a->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
}

/* Until every agent has carried out request `seq`: 0, the first error of one, -ETIMEDOUT. */
static int wait_served(struct map *m, uint32_t seq)
{
	for (int ms = 0; ms < ANSWER_MS; ms++) {
		bool all = true;
		int first = map_scan(m);
		for (size_t i = 0; i < m->n_instances && !first; i++) {
			uint32_t done;
			int error;
			if (!has_agent(m, &m->instances[i], &done, &error))
				continue;
			all &= done == seq;
			if (done == seq && error)
				first = error;
		}
		if (all || first)
			return first;
		if (ms % 100 == 99)
			wake_agents(m);
		file_sleep_ms(1);
	}
	return -ETIMEDOUT;
}

static int request_write(struct map *m, uint32_t seq, const struct change *c)
{
	char path[SESSION_FILE_PATH_BYTES];
	size_t key_bytes = (size_t)map_round_up(m->row.key_size, 8);
	struct map_write head = {
		.seq = seq,
		.op = c->op,
		.key_size = m->row.key_size,
		.offset = c->op == MAP_WRITE_PUSH ? c->flags : c->offset,
		.bytes = c->value ? c->bytes : 0,
		.pid = c->pid,
		.n = c->n,
	};
	int err = session_file_path(m->s, path, "map-%u.write", m->id);
	if (err)
		return err;
	uint64_t size;
	int fd = file_open(path, O_RDWR, m->s->owner, &size);
	if (fd == -ENOENT)
		fd = file_create(path, 0, false);
	if (fd < 0)
		return fd;
	err = file_write_at(fd, &head, sizeof(head), 0);
	if (!err && m->row.key_size)
		err = file_write_at(fd, c->key, m->row.key_size, sizeof(head));
	if (!err && c->value)
		err = file_write_at(fd, c->value, c->bytes, sizeof(head) + key_bytes);
	close(fd);
	return err;
}

bool map_source_served(const struct map *m, const struct source *src)
{
	uint32_t done;
	int error;
	return has_agent(m, src, &done, &error);
}

int map_request(struct map *m, const struct change *c)
{
	struct session_map *row = &m->s->file->maps[m->id];
	uint32_t seq = __atomic_load_n(&row->write_seq, __ATOMIC_RELAXED) + 1;
	int err = request_write(m, seq, c);
	if (err)
		return err;
	__atomic_store_n(&row->write_seq, seq, __ATOMIC_RELEASE);
	wake_agents(m);
	return wait_served(m, seq);
}

int map_request_answer(struct map *m, void *to, size_t bytes)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	int err = session_file_path(m->s, path, "map-%u.write", m->id);
	int fd = err ? err : file_open(path, O_RDONLY, m->s->owner, &size);
	if (fd < 0)
		return fd;
	err = file_read_at(fd, to, bytes, sizeof(struct map_write) + map_round_up(m->row.key_size, 8));
	close(fd);
	return err;
}

/* Instances without an agent are changed here; the others are asked. */
static int write_instances(struct map *m, const struct change *c)
{
	bool asked = false;
	for (size_t i = 0; i < m->n_instances; i++) {
		uint32_t done;
		int error, err = 0;
		if (has_agent(m, &m->instances[i], &done, &error))
			asked = true;
		else
			err = put(m, &m->instances[i], c);
		if (err)
			return err;
	}
	return asked ? map_request(m, c) : 0;
}

/* -- bpf(2) ------------------------------------------------------------------------ */

/* With instances: whether the devices and the host together have the key. */
static int check_flags(struct map *m, const void *key, uint64_t flags, bool delete)
{
	if (!map_is_hash(m->row.type))
		return flags == BPF_NOEXIST ? -EEXIST : 0;
	if (flags == BPF_ANY && !delete)
		return 0;
	uint8_t *value = malloc(map_value_bytes(m) + m->stride);
	int err = value ? map_lookup(m, key, value) : -ENOMEM;
	free(value);
	if (err && err != -ENOENT)
		return err;
	if (flags == BPF_NOEXIST)
		return err ? 0 : -EEXIST;
	return err;
}

static int write_everywhere(struct map *m, struct change *c)
{
	int err = put(m, &m->base, c);
	return err ? err : write_instances(m, c);
}

/* One request at a time: the last one may still wait for its agent. */
static int write_begin(struct map *m, const struct change *c)
{
	struct session_map *row = &m->s->file->maps[m->id];
	int err = map_begin(m);
	if (!err && c->key)
		err = check_flags(m, c->key, c->flags, !c->value);
	if (!err && m->n_instances &&
		wait_served(m, __atomic_load_n(&row->write_seq, __ATOMIC_RELAXED)) == -ETIMEDOUT)
		err = -EBUSY;
	return err;
}

static int write_locked(
	struct map *m, struct change *c, int (*fn)(struct map *m, struct change *c))
{
	struct session_map *row = &m->s->file->maps[m->id];
	int err = write_begin(m, c);
	if (err)
		return err;
	uint32_t odd = __atomic_load_n(&row->writing, __ATOMIC_RELAXED) | 1;
	__atomic_store_n(&row->writing, odd, __ATOMIC_RELEASE);
	err = fn(m, c);
	__atomic_store_n(&row->writing, odd + 1, __ATOMIC_RELEASE);
	return err;
}

int map_change(struct map *m, struct change *c, int (*fn)(struct map *m, struct change *c))
{
	int err = file_lock(m->base.fd, true, LOCK_MS);
	if (err)
		return err;
	err = write_locked(m, c, fn);
	file_unlock(m->base.fd);
	return err;
}

static int locked(struct map *m, struct change c)
{
	c.op = c.value ? MAP_WRITE_PUT : MAP_WRITE_DELETE;
	return map_change(m, &c, write_everywhere);
}

/* All threads' elements of a key, those that are to change. One write each: nobody else's count is lost on the way. */
static int update_threads(struct map *m, const void *key, const uint8_t *value, uint64_t flags)
{
	uint32_t index, threads = map_threads_of(&m->row), size = m->row.value_size;
	memcpy(&index, key, sizeof(index));
	if (flags == BPF_NOEXIST || index >= map_keys(m))
		return index < map_keys(m) ? -EEXIST : -E2BIG;
	uint8_t *now = malloc(map_value_bytes(m));
	int err = now ? map_lookup(m, key, now) : -ENOMEM;
	for (uint32_t t = 0; t < threads && !err; t++) {
		uint32_t at = index * threads + t;
		if (memcmp(now + (size_t)t * size, value + (size_t)t * size, size))
			err = locked(m, (struct change){ .key = &at, .value = value + (size_t)t * size, .bytes = size, .flags = (uint32_t)flags });
	}
	free(now);
	return err;
}

int map_update(struct map *m, const void *key, const void *value, uint64_t flags)
{
	uint32_t index;
	if (m->row.type == BPF_MAP_TYPE_STACK_TRACE)
		return -EINVAL;
	if (map_is_keyless(m->row.type))
		return map_push(m, value, flags);
	if (m->row.type == BPF_MAP_TYPE_RINGBUF)
		return -EOPNOTSUPP;
	if (flags > BPF_EXIST)
		return -EINVAL;
	if (map_threads_of(&m->row))
		return update_threads(m, key, value, flags);
	if (!map_is_hash(m->row.type) && flags != BPF_NOEXIST &&
		map_array_index(m, key, &index))
		return -E2BIG;
	return locked(m, (struct change){ .key = key, .value = value, .bytes = m->row.value_size,
				 .flags = (uint32_t)flags });
}

int map_update_part(struct map *m, const void *key, uint32_t offset, const void *from, uint32_t n)
{
	uint32_t index;
	if (m->row.type != BPF_MAP_TYPE_ARRAY || map_threads_of(&m->row))
		return -EOPNOTSUPP;
	if (!n || offset > m->row.value_size || n > m->row.value_size - offset)
		return -EINVAL;
	if (map_array_index(m, key, &index))
		return -E2BIG;
	return locked(m, (struct change){ .key = key, .value = from, .offset = offset, .bytes = n });
}

int map_delete(struct map *m, const void *key)
{
	if (!map_is_hash(m->row.type))
		return m->row.type == BPF_MAP_TYPE_RINGBUF || m->row.type == BPF_MAP_TYPE_BLOOM_FILTER || m->row.type == BPF_MAP_TYPE_STACK_TRACE
			       ? -EOPNOTSUPP
			       : -EINVAL;
	return locked(m, (struct change){ .key = key, .flags = BPF_EXIST });
}
