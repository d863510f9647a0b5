/* Reading: the host's image and the devices' instances become one map.
 *
 * Files are read with pread, never through a mapping: a session file can be cut short by whoever
 * owns it, and holes stay holes. Whoever reads much of an instance reads from a window, kept as
 * long as the instance's generation stands still: then a dump costs one small read an entry.
 */
#include "map/map.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "map/internal.h"

enum {
	WINDOW_BYTES = 1 << 20,
	WHOLE_BYTES = 64 << 20,   /* images up to this size are read whole */
	READS_BEFORE_WINDOW = 32, /* a few look-ups in a big map must not read all of it */
	READ_TRIES = 2000,        /* milliseconds, about */
	WRITER_MS = 100,          /* that a reader waits for the host's own write */
};

/* -- sources -- */

/* A process number may have been given to another process since: the agents' table knows the start
 * time. */
bool map_source_alive(const struct map *m, const struct source *src)
{
	for (int i = 0; i < SESSION_MAX_AGENTS; i++) {
		const struct session_agent *a = &m->s->file->agents[i];
		if (__atomic_load_n(&a->pid, __ATOMIC_ACQUIRE) == src->pid)
			return process_alive(
				(pid_t)src->pid, __atomic_load_n(&a->start_time, __ATOMIC_RELAXED));
	}
	return process_alive((pid_t)src->pid, 0);
}

/* Waits until no copy is under way. -EAGAIN after READ_TRIES. */
static int source_generation(struct map *m, struct source *src, uint64_t *out)
{
	for (int i = 0; i < READ_TRIES; i++) {
		struct map_instance head;
		int err = file_read_at(src->fd, &head, sizeof(head), 0);
		if (err)
			return err;
		*out = head.generation;
		if (!(head.generation & 1))
			return 0;
		if (head.ended || ((i & 15) == 15 && !map_source_alive(m, src))) {
			return 0; /* torn, and final */
		}
		file_sleep_ms(i < 10 ? 0 : 1);
	}
	return -EAGAIN;
}

/* Starts an operation: what was kept of an older generation is dropped. */
static int source_begin(struct map *m, struct source *src)
{
	uint64_t now;
	int err = source_generation(m, src, &now);
	if (!err && now != src->generation) {
		src->generation = now;
		src->len = 0;
		src->reads = 0;
	}
	return err;
}

/* Reads from the file until the generation is the same before and after. */
static int source_read_file(
	struct map *m, struct source *src, uint64_t offset, void *to, uint64_t n)
{
	if (!src->instance)
		return file_read_at(src->fd, to, (size_t)n, src->data_at + offset);
	for (int i = 0; i < READ_TRIES; i++) {
		uint64_t before = src->generation;
		int err = file_read_at(src->fd, to, (size_t)n, src->data_at + offset);
		if (!err)
			err = source_begin(m, src);
		if (err || src->generation == before)
			return err;
	}
	return -EAGAIN;
}

/* Brings [offset, offset + n) of the data into the window: all of the data where that is not too
 * much. */
static int source_fill(struct map *m, struct source *src, uint64_t offset, uint64_t n)
{
	bool whole = src->data_bytes <= WHOLE_BYTES;
	uint64_t from = whole ? 0 : offset, want = src->data_bytes - from;
	if (!whole && want > WINDOW_BYTES)
		want = n > WINDOW_BYTES ? n : WINDOW_BYTES;
	if (src->cap < want) {
		free(src->window);
		src->window = malloc((size_t)want);
		src->cap = src->window ? want : 0;
		src->len = 0;
		if (!src->window)
			return -ENOMEM;
	}
	src->len = 0;
	int err = source_read_file(m, src, from, src->window, want);
	if (!err) {
		src->from = from;
		src->len = want;
	}
	return err;
}

/* Replicas of per-CPU maps lie far apart, so for them a window of less than everything would be
 * filled in vain. */
static bool source_wants_window(const struct map *m, const struct source *src)
{
	/* Where a device writes the file itself no generation tells that a window is old. */
	return (src->stable || (src->instance && !(m->row.flags & MAP_FLAG_HOST))) && src->reads >= READS_BEFORE_WINDOW &&
	       (src->data_bytes <= WHOLE_BYTES || !map_is_per_cpu(m->row.type));
}

int map_source_read(struct map *m, struct source *src, uint64_t offset, void *to, uint64_t n)
{
	if (offset > src->data_bytes || n > src->data_bytes - offset)
		return -EINVAL;
	bool inside = src->len && offset >= src->from && offset + n <= src->from + src->len;
	if (!inside && !source_wants_window(m, src)) {
		src->reads++;
		return source_read_file(m, src, offset, to, n);
	}
	int err = inside ? 0 : source_fill(m, src, offset, n);
	if (!err)
		memcpy(to, src->window + (offset - src->from), (size_t)n);
	return err;
}

static void source_close(struct source *src)
{
	if (src->fd >= 0)
		close(src->fd);
	free(src->window);
}

/* Checks the file's two headers against the map's row and each other. */
static int instance_check(const struct map *m, struct source *src, uint64_t size)
{
	struct map_instance inst;
	struct map_image image;
	if (file_read_at(src->fd, &inst, sizeof(inst), 0) ||
		file_read_at(src->fd, &image, sizeof(image), SESSION_PAGE))
		return -EINVAL;
	if (inst.magic != SESSION_MAGIC)
		return map_source_alive(m, src) ? -EAGAIN : -EINVAL;
	if (inst.map != m->id || !map_image_fits(&image, &m->row, inst.image_bytes) ||
		size < SESSION_PAGE + inst.image_bytes)
		return -EINVAL;
	uint64_t data = inst.image_bytes - MAP_IMAGE_HEADER;
	if (inst.base_offset && (m->row.type != BPF_MAP_TYPE_ARRAY || inst.base_offset > size ||
					data > size - inst.base_offset))
		return -EINVAL;
	src->data_bytes = data;
	src->data_at = SESSION_PAGE + MAP_IMAGE_HEADER;
	src->header_at = SESSION_PAGE;
	src->base_at = inst.base_offset;
	src->n_replicas = image.n_replicas;
	src->device = inst.device;
	return 0;
}

static int instance_open(struct map *m, uint32_t pid, uint32_t n)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	struct source src = { .instance = true, .pid = pid, .n = n, .generation = UINT64_MAX };
	if (m->n_instances >= SESSION_MAX_INSTANCES)
		return -E2BIG;
	int err = session_file_path(m->s, path, "map-%u.%u.%u", m->id, pid, n);
	src.fd = err ? err : file_open(path, O_RDWR, m->s->owner, &size);
	if (src.fd < 0)
		return src.fd;
	err = instance_check(m, &src, size);
	if (!err && m->only_device >= 0 && m->only_device != src.device)
		err = -ENODEV;
	if (!err && m->n_instances == m->cap_instances) {
		size_t more = m->cap_instances ? m->cap_instances * 2 : 8;
		struct source *p = realloc(m->instances, more * sizeof(*p));
		err = p ? 0 : -ENOMEM;
		if (p) {
			m->instances = p;
			m->cap_instances = more;
		}
	}
	if (err) {
		source_close(&src);
		return err;
	}
	m->instances[m->n_instances++] = src;
	return 0;
}

static bool instance_name(const char *name, uint32_t map, uint32_t *pid, uint32_t *n)
{
	uint64_t id, p, i;
	if (strncmp(name, "map-", 4))
		return false;
	name += 4;
	if (!parse_u64(&name, &id) || *name++ != '.' || !parse_u64(&name, &p) || *name++ != '.' ||
		!parse_u64(&name, &i) || *name)
		return false;
	*pid = (uint32_t)p;
	*n = (uint32_t)i;
	return id == map && p && p <= INT32_MAX && i < SESSION_MAX_INSTANCES;
}

static bool instance_known(const struct map *m, uint32_t pid, uint32_t n)
{
	for (size_t i = 0; i < m->n_instances; i++)
		if (m->instances[i].pid == pid && m->instances[i].n == n)
			return true;
	return false;
}

static int by_pid(const void *a, const void *b)
{
	const struct source *x = a, *y = b;
	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->n < y->n ? -1 : x->n > y->n;
}

/* Looks for instances that appeared since the last scan; the directory is read only when agents
 * made some. */
int map_scan(struct map *m)
{
	uint32_t made = __atomic_load_n(&m->s->file->maps[m->id].instances, __ATOMIC_ACQUIRE);
	if (made == m->scanned)
		return 0;
	DIR *list = opendir(m->s->path);
	if (!list)
		return -errno;
	bool complete = true;
	int err = 0;
	for (struct dirent *e; !err && (e = readdir(list));) {
		uint32_t pid, n;
		if (!instance_name(e->d_name, m->id, &pid, &n) || instance_known(m, pid, n))
			continue;
		int one = instance_open(m, pid, n);
		if (one == -EAGAIN)
			complete = false; /* being made at this moment: nothing has been counted in
					     it */
		else if (one == -EMFILE || one == -ENFILE || one == -ENOMEM || one == -E2BIG)
			err = one;
	}
	closedir(list);
	if (m->n_instances)
		qsort(m->instances, m->n_instances, sizeof(*m->instances), by_pid);
	if (!err && complete)
		m->scanned = made;
	m->base.stable = !(m->row.flags & BPF_F_MMAPABLE);
	return err;
}

/* While the host writes, base and instances do not belong together. A writer that died has left the
 * count odd; its lock is gone. */
static void map_wait_for_writer(struct map *m)
{
	uint32_t *writing = &m->s->file->maps[m->id].writing, now;
	for (int ms = 0; (now = __atomic_load_n(writing, __ATOMIC_ACQUIRE)) & 1; ms++) {
		if (ms < WRITER_MS) {
			file_sleep_ms(1);
			continue;
		}
		if (!file_lock(m->base.fd, true, 0)) {
			__atomic_compare_exchange_n(writing, &now, now + 1, false, __ATOMIC_ACQ_REL,
				__ATOMIC_RELAXED);
			file_unlock(m->base.fd);
		}
		break;
	}
	if (now != m->writing) {
		m->writing = now;
		m->base.len = 0;
		m->base.reads = 0;
	}
}

int map_begin(struct map *m)
{
	const uint8_t *fold = m->s->file->maps[m->id].fold;
	for (int i = 0; i < EBPF_FOLD_HALVES; i++)
		m->fold[i] = __atomic_load_n(&fold[i], __ATOMIC_RELAXED);
	map_wait_for_writer(m);
	int err = map_scan(m);
	for (size_t i = 0; i < m->n_instances && !err; i++)
		err = source_begin(m, &m->instances[i]);
	return err;
}

/* -- opening -- */

static int base_open(struct map *m)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	int err = session_file_path(m->s, path, "map-%u", m->id);
	int fd = err ? err : file_open(path, O_RDWR, m->s->owner, &size);
	if (fd < 0)
		return fd;
	m->base.fd = fd;
	/* The number of CPUs it was made for may not be this machine's, so the header's size comes
	 * from its own place. */
	struct map_image head = { 0 };
	uint64_t bytes = size > MAP_IMAGE_HEADER ? size - MAP_IMAGE_HEADER : 0;
	if (file_read_at(fd, &head, sizeof(head), bytes))
		return -EINVAL;
	if (!map_image_fits(&head, &m->row, head.data_bytes + MAP_IMAGE_HEADER) ||
		map_base_header_at(head.data_bytes + MAP_IMAGE_HEADER) != bytes)
		return -EINVAL;
	m->base.header_at = bytes;
	m->base.data_bytes = head.data_bytes;
	m->base.n_replicas = head.n_replicas;
	return 0;
}

int map_open(struct session *s, uint32_t id, struct map **out, struct diag *d)
{
	struct map *m = calloc(1, sizeof(*m));
	if (!m)
		return diag_set(d, ENOMEM, "out of memory");
	m->s = s;
	m->id = id;
	m->base.fd = -1;
	m->only_device = -1;
	m->cpus = map_possible_cpus();
	int err = session_map_row(s, id, &m->row);
	if (!err)
		err = base_open(m);
	if (!err) {
		m->stride = (size_t)map_stride(m->row.value_size ? m->row.value_size : 8);
		m->sum = calloc(3, m->stride);
		m->key = calloc(1, 8 + (size_t)map_round_up(m->row.key_size, 8) + m->stride);
		m->last.key = calloc(1, m->row.key_size + 1);
		err = m->sum && m->key && m->last.key ? 0 : -ENOMEM;
	}
	if (err) {
		map_close(m);
		return diag_set(d, -err, "cannot open map %u: %s", id,
			err == -ENOENT   ? "there is no such map in the session"
			: err == -EINVAL ? "its file is damaged"
					 : strerror(-err));
	}
	m->one = m->sum + m->stride;
	m->was = m->one + m->stride;
	*out = m;
	return 0;
}

void map_close(struct map *m)
{
	if (!m)
		return;
	source_close(&m->base);
	for (size_t i = 0; i < m->n_instances; i++)
		source_close(&m->instances[i]);
	free(m->instances);
	free(m->sum);
	free(m->key);
	free(m->last.key);
	free(m);
}

const struct session_map *map_info(const struct map *m)
{
	return &m->row;
}

bool map_has_slots(const struct map *m)
{
	return map_is_per_cpu(m->row.type) || map_threads_of(&m->row);
}

size_t map_slot_bytes(const struct map *m)
{
	return map_threads_of(&m->row) ? m->row.value_size : m->stride;
}

size_t map_value_bytes(const struct map *m)
{
	uint32_t threads = map_threads_of(&m->row);
	return map_is_per_cpu(m->row.type) ? m->stride * m->cpus : threads ? (size_t)m->row.value_size * threads : m->row.value_size;
}

/* A copy into m->sum, which began as m->was. */
static void take(struct map *m, bool first)
{
	map_fold_value(m->fold, m->sum, m->one, m->was, first, m->stride);
}

/* -- arrays -- */

uint32_t map_keys(const struct map *m)
{
	uint32_t threads = map_threads_of(&m->row);
	return threads ? m->row.max_entries / threads : m->row.max_entries;
}

int map_array_index(const struct map *m, const void *key, uint32_t *index)
{
	memcpy(index, key, sizeof(*index));
	return *index < m->row.max_entries ? 0 : -ENOENT;
}

/* Each replica began as the host's value. */
static int array_add(struct map *m, struct source *src, uint64_t at, bool first)
{
	uint64_t replica = map_replica_bytes(m->row.max_entries, m->row.value_size);
	int err = src->base_at ? file_read_at(src->fd, m->was, m->stride, src->base_at + at) : 0;
	for (uint32_t r = 0; r < src->n_replicas && !err; r++) {
		err = map_source_read(m, src, r * replica + at, m->one, m->stride);
		if (!err)
			take(m, first && !r);
	}
	return err;
}

static int array_lookup(struct map *m, const void *key, void *value)
{
	uint32_t index;
	int err = map_array_index(m, key, &index);
	uint64_t at = (uint64_t)index * m->stride;
	if (!err)
		err = map_source_read(m, &m->base, at, m->was, m->stride);
	if (err)
		return err;
	memcpy(m->sum, m->was, m->stride);
	for (size_t i = 0; i < m->n_instances && !err; i++)
		err = array_add(m, &m->instances[i], at, !i);
	if (!err)
		memcpy(value, m->sum, m->row.value_size);
	return err;
}

/* Those of all threads, one behind the other. */
static int threads_lookup(struct map *m, const void *key, void *value)
{
	uint32_t index, threads = map_threads_of(&m->row);
	uint8_t *to = value;
	memcpy(&index, key, sizeof(index));
	if (index >= map_keys(m))
		return -ENOENT;
	int err = 0;
	for (uint32_t t = 0; t < threads && !err; t++, to += m->row.value_size) {
		uint32_t at = index * threads + t;
		err = array_lookup(m, &at, to);
	}
	return err;
}

/* Takes each replica of a source, which began with zero, into the slot of its CPU. */
static int percpu_fold(struct map *m, struct source *src, uint32_t index, uint8_t *slots)
{
	uint64_t replica = map_replica_bytes(m->row.max_entries, m->row.value_size);
	for (uint32_t r = 0; r < src->n_replicas; r++) {
		int err = map_source_read(
			m, src, r * replica + (uint64_t)index * m->stride, m->one, m->stride);
		if (err)
			return err;
		map_fold_value(m->fold, slots + (size_t)(r % m->cpus) * m->stride, m->one, NULL, false, m->stride);
	}
	return 0;
}

static int percpu_lookup(struct map *m, const void *key, void *value)
{
	uint32_t index;
	int err = map_array_index(m, key, &index);
	if (err)
		return err;
	memset(value, 0, map_value_bytes(m));
	err = percpu_fold(m, &m->base, index, value);
	for (size_t i = 0; i < m->n_instances && !err; i++)
		err = percpu_fold(m, &m->instances[i], index, value);
	return err;
}

int map_lookup_sum(struct map *m, const void *key, void *value)
{
	uint32_t threads = map_threads_of(&m->row), n = threads ? threads : m->cpus;
	size_t each = map_slot_bytes(m);
	if (!map_has_slots(m))
		return map_lookup(m, key, value);
	uint8_t *slots = malloc(map_value_bytes(m));
	int err = slots ? map_lookup(m, key, slots) : -ENOMEM;
	if (!err) {
		memset(m->sum, 0, m->stride);
		memset(m->one, 0, m->stride);
		for (uint32_t c = 0; c < n; c++) {
			memcpy(m->one, slots + c * each, m->row.value_size);
			map_fold_value(m->fold, m->sum, m->one, NULL, !c, m->stride);
		}
		memcpy(value, m->sum, m->row.value_size);
	}
	free(slots);
	return err;
}

/* -- hash maps -- */

/* A slot's state and key; m->key holds both. */
int map_hash_slot(struct map *m, struct source *src, uint64_t slot, uint32_t *state)
{
	uint64_t bytes = map_hash_slot_bytes(m->row.type, m->row.key_size, m->row.value_size);
	int err = map_source_read(m, src, slot * bytes, m->key, 8 + map_round_up(m->row.key_size, 8));
	memcpy(state, m->key, sizeof(*state));
	return err;
}

uint64_t map_hash_home(const struct map *m, const void *key)
{
	return map_hash_key(key, m->row.key_size) & (map_hash_slots(m->row.max_entries) - 1);
}

int map_hash_find(struct map *m, struct source *src, const void *key, uint64_t *slot)
{
	uint64_t mask = map_hash_slots(m->row.max_entries) - 1, at = map_hash_home(m, key), reach = 0;
	for (uint64_t i = 0; i <= reach && i <= mask; i++, at = (at + 1) & mask) {
		uint32_t state;
		int err = map_hash_slot(m, src, at, &state);
		if (err)
			return err;
		if (!i)
			reach = state >> MAP_SLOT_REACH;
		*slot = at;
		if ((state & MAP_SLOT_STATE) == MAP_SLOT_LIVE && !memcmp(m->key + 8, key, m->row.key_size))
			return 0;
	}
	return -ENOENT;
}

static int hash_is_live(
	struct map *m, struct source *src, const void *key, uint64_t *slot, bool *live)
{
	int err = map_hash_find(m, src, key, slot);
	*live = !err;
	return err == -ENOENT ? 0 : err;
}

static int hash_value(struct map *m, struct source *src, uint64_t slot, uint32_t replica, uint8_t *to)
{
	return map_source_read(m, src,
		map_hash_value_at(m->row.type, m->row.key_size, m->row.value_size, m->row.max_entries, slot, replica), to,
		m->stride);
}

/* What multiprocessors have beside a slot's value. */
static int hash_add_replicas(struct map *m, struct source *src, uint64_t slot)
{
	uint64_t at = map_hash_replicas_at(m->row.key_size, m->row.value_size, m->row.max_entries) + slot * m->stride,
		 one = map_hash_replica_bytes(m->row.value_size, m->row.max_entries);
	for (uint32_t r = 0; r < src->n_replicas; r++) {
		int err = map_source_read(m, src, at + r * one, m->one, m->stride);
		if (err)
			return err;
		map_fold_value(m->fold, m->sum, m->one, NULL, false, m->stride);
	}
	return 0;
}

/* A source's value of a live key: into m->sum, or replica by replica, which began with zero, into the slots of CPUs. */
static int hash_add(struct map *m, struct source *src, uint64_t slot, uint8_t *slots, bool first)
{
	int err = 0;
	for (uint32_t r = 0; r < (slots ? src->n_replicas : 1) && !err; r++) {
		err = hash_value(m, src, slot, r, m->one);
		if (!err && slots)
			map_fold_value(m->fold, slots + (size_t)(r % m->cpus) * m->stride, m->one, NULL, false, m->stride);
		else if (!err)
			take(m, first);
	}
	return !err && !slots && src->n_replicas > 1 ? hash_add_replicas(m, src, slot) : err;
}

/* A key exists when some instance has it; without instances, when the host's image has it. An
 * instance that deleted it counts for nothing. Per-CPU values of instances begin with zero. */
static int hash_lookup(struct map *m, const void *key, void *value)
{
	uint64_t slot;
	bool live, exists, first = true, per_cpu = map_is_per_cpu(m->row.type);
	uint8_t *slots = per_cpu ? value : NULL;
	int err = hash_is_live(m, &m->base, key, &slot, &live);
	if (slots)
		memset(slots, 0, map_value_bytes(m));
	memset(m->was, 0, m->stride);
	memset(m->sum, 0, m->stride);
	if (!err && live && value)
		err = hash_add(m, &m->base, slot, slots, true);
	memcpy(m->was, m->sum, m->stride);
	exists = live && !m->n_instances;
	for (size_t i = 0; i < m->n_instances && !err; i++) {
		err = hash_is_live(m, &m->instances[i], key, &slot, &live);
		if (err || !live)
			continue;
		exists = true;
		if (value)
			err = hash_add(m, &m->instances[i], slot, slots, first);
		first = false;
	}
	if (err)
		return err;
	if (!exists)
		return -ENOENT;
	if (value && !per_cpu)
		memcpy(value, m->sum, m->row.value_size);
	return 0;
}

/* Source 0 is the host's image, the instances follow. */
static struct source *hash_source(struct map *m, size_t i)
{
	return i ? &m->instances[i - 1] : &m->base;
}

/* Whether a source before `before` has the key live: then it was visited there. */
static int hash_seen(struct map *m, size_t before, const void *key, bool *seen)
{
	*seen = false;
	for (size_t i = 0; i < before; i++) {
		uint64_t slot;
		int err = hash_is_live(m, hash_source(m, i), key, &slot, seen);
		if (err || *seen)
			return err;
	}
	return 0;
}

/* Whether the live key of source i is to be visited there. */
static int hash_visits(struct map *m, size_t i, const void *key, bool *yes)
{
	int err;
	*yes = false;
	if (!i) {
		err = hash_lookup(m, key, NULL); /* the devices may have deleted it */
		*yes = !err;
		return err == -ENOENT ? 0 : err;
	}
	bool seen;
	err = hash_seen(m, i, key, &seen);
	*yes = !err && !seen;
	return err;
}

/* The host's image is sparse: the next slot that may hold something. */
static uint64_t hash_skip_hole(const struct map *m, const struct source *src, uint64_t slot)
{
	uint64_t bytes = map_hash_slot_bytes(m->row.type, m->row.key_size, m->row.value_size);
	off_t data = lseek(src->fd, (off_t)((slot + 1) * bytes), SEEK_DATA);
	if (data < 0)
		return errno == ENXIO ? UINT64_MAX - 1 : slot;
	uint64_t there = (uint64_t)data / bytes;
	return there > slot + 1 ? there - 1 : slot;
}

static int hash_first_from(struct map *m, size_t i, uint64_t slot, void *next)
{
	uint64_t n = map_hash_slots(m->row.max_entries);
	uint8_t key[512];
	for (; i <= m->n_instances; i++, slot = 0)
		for (; slot < n; slot++) {
			uint32_t state;
			bool yes;
			int err = map_hash_slot(m, hash_source(m, i), slot, &state);
			if (err)
				return err;
			if (!state && !i)
				slot = hash_skip_hole(m, &m->base, slot);
			if ((state & MAP_SLOT_STATE) != MAP_SLOT_LIVE)
				continue;
			memcpy(key, m->key + 8, m->row.key_size);
			err = hash_visits(m, i, key, &yes);
			if (err)
				return err;
			if (yes) {
				memcpy(next, key, m->row.key_size);
				memcpy(m->last.key, key, m->row.key_size);
				m->last.n_instances = m->n_instances;
				m->last.source = i;
				m->last.slot = slot;
				m->last.set = true;
				return 0;
			}
		}
	return -ENOENT;
}

/* The walk goes on behind the slot where the key was visited: the key handed out last, even if it was deleted since; any other in the
 * first source that has it live. One that nobody has begins anew, as in the kernel. */
static int hash_next_key(struct map *m, const void *key, void *next)
{
	if (!key)
		return hash_first_from(m, 0, 0, next);
	if (m->last.set && m->last.n_instances == m->n_instances && !memcmp(m->last.key, key, m->row.key_size))
		return hash_first_from(m, m->last.source, m->last.slot + 1, next);
	for (size_t i = 0; i <= m->n_instances; i++) {
		uint64_t slot;
		int err = map_hash_find(m, hash_source(m, i), key, &slot);
		if (!err)
			return hash_first_from(m, i, slot + 1, next);
		if (err != -ENOENT)
			return err;
	}
	return hash_first_from(m, 0, 0, next);
}

/* -- stacks of sites -- */

/* Site + 1 and the frames to leave out of an id, as the first image has it that has it; 0: none. */
static int stack_entry(struct map *m, uint64_t id, uint32_t out[2])
{
	out[0] = out[1] = 0;
	for (size_t i = 0; i < m->n_instances && !out[0]; i++) {
		int err = map_source_read(m, &m->instances[i], id * 8, out, 8);
		if (err)
			return err;
	}
	return 0;
}

/* The site, then its kernel. */
static int stack_lookup(struct map *m, const void *key, void *value)
{
	uint32_t id, entry[2], site;
	uint64_t frames[2] = { 0 }, *to = value;
	memcpy(&id, key, sizeof(id));
	if (id >= map_stack_ids(m->row.max_entries))
		return -ENOENT;
	int err = stack_entry(m, id, entry);
	if (err)
		return err;
	site = entry[0] - 1;
	if (!entry[0] || site >= SESSION_MAX_SITES)
		return -ENOENT;
	frames[0] = MAP_FRAME_SITE | site;
	frames[1] = MAP_FRAME_KERNEL | __atomic_load_n(&m->s->file->sites[site].kernel, __ATOMIC_RELAXED);
	memset(value, 0, m->row.value_size);
	for (uint32_t k = 0; k < 2 && k < m->row.value_size / 8; k++)
		if (k + entry[1] < 2)
			memcpy(to + k, &frames[k + entry[1]], 8);
	return 0;
}

static int stack_next(struct map *m, const void *key, void *next)
{
	uint32_t id = 0, entry[2];
	uint64_t n = map_stack_ids(m->row.max_entries), i;
	if (key)
		memcpy(&id, key, sizeof(id));
	for (i = key && id < n ? (uint64_t)id + 1 : 0; i < n; i++) {
		int err = stack_entry(m, i, entry);
		if (err)
			return err;
		if (entry[0])
			break;
	}
	if (i == n)
		return -ENOENT;
	id = (uint32_t)i;
	memcpy(next, &id, sizeof(id));
	return 0;
}

/* -- bpf(2) -- */

int map_lookup(struct map *m, const void *key, void *value)
{
	if (map_is_keyless(m->row.type))
		return map_peek(m, value);
	int err = m->row.type == BPF_MAP_TYPE_RINGBUF ? -EOPNOTSUPP : map_begin(m);
	if (err)
		return err;
	switch (m->row.type) {
	case BPF_MAP_TYPE_ARRAY:
		return map_threads_of(&m->row) ? threads_lookup(m, key, value) : array_lookup(m, key, value);
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		return percpu_lookup(m, key, value);
	case BPF_MAP_TYPE_STACK_TRACE:
		return stack_lookup(m, key, value);
	default:
		return hash_lookup(m, key, value);
	}
}

int map_next_key(struct map *m, const void *key, void *next)
{
	if (m->row.type == BPF_MAP_TYPE_RINGBUF || m->row.type == BPF_MAP_TYPE_BLOOM_FILTER)
		return -EOPNOTSUPP;
	if (map_is_queue(m->row.type))
		return -EINVAL;
	if (map_is_hash(m->row.type)) {
		int err = map_begin(m);
		return err ? err : hash_next_key(m, key, next);
	}
	if (m->row.type == BPF_MAP_TYPE_STACK_TRACE) {
		int err = map_begin(m);
		return err ? err : stack_next(m, key, next);
	}
	uint32_t index, first = 0;
	if (key)
		memcpy(&index, key, sizeof(index));
	if (key && index == map_keys(m) - 1)
		return -ENOENT;
	if (key && index < map_keys(m))
		first = index + 1;
	memcpy(next, &first, sizeof(first));
	return 0;
}

uint32_t map_devices(struct map *m, uint32_t *devices, uint32_t max)
{
	uint32_t n = 0;
	map_scan(m);
	for (size_t i = 0; i < m->n_instances; i++) {
		uint32_t at = 0;
		while (at < n && devices[at] < m->instances[i].device)
			at++;
		if (at < n && devices[at] == m->instances[i].device)
			continue;
		if (n == max)
			break;
		memmove(devices + at + 1, devices + at, (n - at) * sizeof(*devices));
		devices[at] = m->instances[i].device;
		n++;
	}
	return n;
}

int map_open_device(
	struct session *s, uint32_t id, uint32_t device, struct map **out, struct diag *d)
{
	int err = map_open(s, id, out, d);
	if (!err)
		(*out)->only_device = device;
	return err;
}

uint64_t map_lost(struct map *m)
{
	uint64_t n = 0;
	int err;
	map_scan(m);
	for (size_t i = 0; i < m->n_instances; i++) {
		uint64_t lost = 0;
		if (!file_read_at(m->instances[i].fd, &lost, sizeof(lost),
			    m->instances[i].header_at + offsetof(struct map_image, lost)))
			n += lost;
	}
	const struct ring_mapping *r =
		m->row.type == BPF_MAP_TYPE_RINGBUF ? map_ring_get(m->s, m->id, &err) : NULL;
	return r ? n + __atomic_load_n(&r->ring->lost, __ATOMIC_RELAXED) : n;
}

/* -- ring consumers -- */

static const struct ring_mapping *map_ring(struct map *m, int *err)
{
	*err = -EOPNOTSUPP;
	return m->row.type == BPF_MAP_TYPE_RINGBUF ? map_ring_get(m->s, m->id, err) : NULL;
}

int map_ring_consume(
	struct map *m, int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg)
{
	int err;
	const struct ring_mapping *r = map_ring(m, &err);
	if (!r)
		return err;
	map_ring_refill(r);
	return map_ring_consume_ring(r, fn, arg);
}

int map_ring_consume_by_time(
	struct map *m, int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg)
{
	int err;
	const struct ring_mapping *r = map_ring(m, &err);
	if (!r)
		return err;
	map_ring_refill(r);
	return map_ring_consume_sorted(r, fn, arg);
}

int map_ring_look(struct map *m, bool by_time,
	int (*fn)(void *arg, const void *data, uint32_t bytes, int64_t ns), void *arg)
{
	int err;
	const struct ring_mapping *r = map_ring(m, &err);
	if (!r)
		return err;
	map_ring_refill(r);
	return map_ring_look_at(r, by_time, fn, arg);
}

int map_ring_peek(struct map *m, const void **groups, uint64_t *bytes)
{
	int err;
	const struct ring_mapping *r = map_ring(m, &err);
	return r ? map_ring_peek_raw(r, groups, bytes) : err;
}

void map_ring_advance(struct map *m, uint64_t bytes)
{
	int err;
	const struct ring_mapping *r = map_ring(m, &err);
	if (r)
		map_ring_advance_raw(r, bytes);
}
