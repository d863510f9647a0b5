/* Map images: their sizes, the host's own, and the instances of devices. */
#include "map/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "map/map.h"

enum {
	MAX_KEY_BYTES = 512,
	MAX_VALUE_BYTES = 256 << 20,
	MAX_REPLICAS = 65536,
	MAX_QUEUE = 1 << 30,
	MAX_FRAMES = 127, /* of a stack, as in the kernel */
	MIN_RING_BYTES = 4096,
	SPARSE_BYTES = 1 << 20,
};

static const uint64_t MAX_IMAGE_BYTES = 64ull << 30;

static uint64_t map_hash_data_bytes(uint32_t type, uint32_t key_size, uint32_t value_size,
	uint32_t max_entries, uint32_t n_replicas)
{
	if (!map_is_per_cpu(type) && n_replicas == 1)
		return map_hash_slots(max_entries) * map_hash_slot_bytes(type, key_size, value_size);
	if (!map_is_per_cpu(type) && type != BPF_MAP_TYPE_HASH)
		return 0;
	uint64_t slots = map_is_per_cpu(type) ? map_hash_slots_bytes(key_size, max_entries)
					      : map_hash_replicas_at(key_size, value_size, max_entries),
		 one = map_hash_replica_bytes(value_size, max_entries);
	return one <= MAX_IMAGE_BYTES / n_replicas && slots <= MAX_IMAGE_BYTES ? slots + one * n_replicas : 0;
}

static uint64_t map_keyless_bytes(uint32_t type, uint32_t key_size, uint32_t value_size,
	uint32_t max_entries, uint32_t n_replicas)
{
	if (key_size || n_replicas != 1)
		return 0;
	if (type == BPF_MAP_TYPE_BLOOM_FILTER)
		return value_size <= MAX_KEY_BYTES ? map_bloom_bits(max_entries) / 8 : 0;
	return max_entries <= MAX_QUEUE
		       ? map_queue_slots(type, max_entries) * map_queue_slot_bytes(value_size)
		       : 0;
}

/* Every factor is bounded before it is multiplied, so that nothing wraps. */
static uint64_t map_data_bytes(uint32_t type, uint32_t key_size, uint32_t value_size,
	uint32_t max_entries, uint32_t n_replicas)
{
	if (type == BPF_MAP_TYPE_RINGBUF)
		return !key_size && !value_size && n_replicas && n_replicas <= MAX_REPLICAS &&
				       max_entries >= MIN_RING_BYTES &&
				       !(max_entries & (max_entries - 1))
			       ? map_ring_data_at(n_replicas) - MAP_IMAGE_HEADER
			       : 0;
	if (!value_size || value_size > MAX_VALUE_BYTES || !max_entries || !n_replicas ||
		n_replicas > MAX_REPLICAS)
		return 0;
	if (map_is_keyless(type))
		return map_keyless_bytes(type, key_size, value_size, max_entries, n_replicas);
	if (map_is_hash(type))
		return key_size && key_size <= MAX_KEY_BYTES
			       ? map_hash_data_bytes(type, key_size, value_size, max_entries, n_replicas)
			       : 0;
	if (key_size != 4)
		return 0;
	if (type == BPF_MAP_TYPE_STACK_TRACE)
		return n_replicas == 1 && !(value_size % 8) && value_size <= MAX_FRAMES * 8 && max_entries <= MAX_QUEUE
			       ? map_stack_ids(max_entries) * 8
			       : 0;
	if (type == BPF_MAP_TYPE_ARRAY && n_replicas == 1)
		return max_entries * map_stride(value_size);
	if (!map_is_array(type))
		return 0;
	uint64_t one = map_replica_bytes(max_entries, value_size);
	return one <= MAX_IMAGE_BYTES / n_replicas ? one * n_replicas : 0;
}

uint64_t map_image_bytes(uint32_t type, uint32_t key_size, uint32_t value_size,
	uint32_t max_entries, uint32_t n_replicas)
{
	uint64_t data = map_data_bytes(type, key_size, value_size, max_entries, n_replicas);
	return data && data <= MAX_IMAGE_BYTES - MAP_IMAGE_HEADER ? MAP_IMAGE_HEADER + data : 0;
}

uint64_t map_device_bytes(uint32_t type, uint32_t key_size, uint32_t value_size,
	uint32_t max_entries, uint32_t n_replicas)
{
	uint64_t image = map_image_bytes(type, key_size, value_size, max_entries, n_replicas);
	uint64_t bins = type == BPF_MAP_TYPE_RINGBUF ? (uint64_t)n_replicas * MAP_RING_BINS *
							       map_ring_bin_bytes(max_entries)
						     : 0;
	return image && image + bins <= MAX_IMAGE_BYTES ? image + bins : 0;
}

void map_image_init(struct map_image *image, uint32_t type, uint32_t key_size, uint32_t value_size,
	uint32_t max_entries, uint32_t n_replicas)
{
	image->magic = MAP_IMAGE_MAGIC;
	image->type = type;
	image->key_size = key_size;
	image->value_size = value_size;
	image->max_entries = max_entries;
	image->n_replicas = n_replicas;
	uint64_t bytes = map_image_bytes(type, key_size, value_size, max_entries, n_replicas);
	image->data_bytes = bytes ? bytes - MAP_IMAGE_HEADER : 0;
}

bool map_image_fits(const struct map_image *image, const struct session_map *row, uint64_t bytes)
{
	return image->magic == MAP_IMAGE_MAGIC && image->type == row->type &&
	       image->key_size == row->key_size && image->value_size == row->value_size &&
	       image->max_entries == row->max_entries && bytes > MAP_IMAGE_HEADER &&
	       image->data_bytes == bytes - MAP_IMAGE_HEADER &&
	       map_image_bytes(row->type, row->key_size, row->value_size, row->max_entries,
		       image->n_replicas) == bytes;
}

/* -- the host's own image -- */

uint64_t map_base_bytes(const struct session_map *row)
{
	uint32_t n = map_is_per_cpu(row->type) ? map_possible_cpus() : 1;
	return map_image_bytes(row->type, row->key_size, row->value_size, row->max_entries, n);
}

uint64_t map_base_header_at(uint64_t image_bytes)
{
	return map_round_up(image_bytes - MAP_IMAGE_HEADER, SESSION_PAGE);
}

int session_map_row(const struct session *s, uint32_t map, struct session_map *row)
{
	if (map >= EBPF_MAX_MAPS || !__atomic_load_n(&s->file->maps[map].used, __ATOMIC_ACQUIRE))
		return -ENOENT;
	*row = s->file->maps[map];
	row->name[sizeof(row->name) - 1] = '\0';
	return map_base_bytes(row) ? 0 : -EINVAL;
}

static bool session_map_is_mappable(const struct session_map *row)
{
	return row->type == BPF_MAP_TYPE_ARRAY && (row->flags & BPF_F_MMAPABLE);
}

static int map_base_create(
	struct session *s, uint32_t id, const struct session_map *row, const struct ebpf_map *def)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t bytes = map_base_bytes(row), header_at = map_base_header_at(bytes);
	int err = session_file_path(s, path, "map-%u", id);
	if (err)
		return err;
	int fd = file_create(path, header_at + MAP_IMAGE_HEADER, session_map_is_mappable(row));
	if (fd < 0)
		return fd;
	struct map_image head = { 0 };
	map_image_init(&head, row->type, row->key_size, row->value_size, row->max_entries,
		map_is_per_cpu(row->type) ? map_possible_cpus() : 1);
	err = file_write_at(fd, &head, sizeof(head), header_at);
	if (!err && def->values && row->type == BPF_MAP_TYPE_ARRAY)
		err = file_write_at(fd, def->values, bytes - MAP_IMAGE_HEADER, 0);
	close(fd);
	if (err)
		unlink(path);
	return err;
}

static int map_ring_create(
	struct session *s, const char *pattern, uint32_t id, const struct session_map *row)
{
	char path[SESSION_FILE_PATH_BYTES];
	int err = session_file_path(s, path, pattern, id);
	int fd = err ? err : file_create(path, sizeof(struct map_ring) + row->max_entries, true);
	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Types of the kernel that a GPU does not get, and what to write instead. */
static const char *map_refused(uint32_t type)
{
	switch (type) {
	case BPF_MAP_TYPE_PROG_ARRAY:
		return "PROG_ARRAY is not supported: programs do not call each other on a GPU; attach them all, they run in object order";
	case BPF_MAP_TYPE_PERF_EVENT_ARRAY:
		return "PERF_EVENT_ARRAY is not supported: a GPU has no perf buffers; use a RINGBUF and bpf_ringbuf_output";
	case BPF_MAP_TYPE_ARRAY_OF_MAPS:
	case BPF_MAP_TYPE_HASH_OF_MAPS:
		return "a map of maps is not supported: the inner map's code is made for its sizes when the program is translated; make one map, "
		       "and let its key begin with what would choose the inner one";
	case BPF_MAP_TYPE_LPM_TRIE:
		return "LPM_TRIE is not supported: use a HASH, and look up each prefix length that occurs";
	default:
		return "this type is not supported; use ARRAY, PERCPU_ARRAY, HASH, LRU_HASH, PERCPU_HASH, LRU_PERCPU_HASH, QUEUE, STACK, BLOOM_FILTER, STACK_TRACE or RINGBUF";
	}
}

/* What is wrong with a map's shape, in words. */
static int map_refuse(const struct ebpf_map *def, struct diag *d)
{
	const char *name = def->name && def->name[0] ? def->name : "(no name)";
	switch (def->type) {
	case BPF_MAP_TYPE_RINGBUF:
		return diag_set(d, EINVAL,
			"map %s: a ring buffer has no key and no value, and max_entries is its "
			"size in bytes, a power "
			"of two of at least %d",
			name, MIN_RING_BYTES);
	case BPF_MAP_TYPE_ARRAY:
	case BPF_MAP_TYPE_PERCPU_ARRAY:
	case BPF_MAP_TYPE_HASH:
	case BPF_MAP_TYPE_PERCPU_HASH:
	case BPF_MAP_TYPE_LRU_HASH:
	case BPF_MAP_TYPE_LRU_PERCPU_HASH:
		return diag_set(d, EINVAL,
			"map %s: key of %u bytes, value of %u bytes, %u entries is not possible "
			"(array keys have 4 bytes, "
			"hash keys at most %d; the whole map at most 64 GiB)",
			name, def->key_size, def->value_size, def->max_entries, MAX_KEY_BYTES);
	case BPF_MAP_TYPE_QUEUE:
	case BPF_MAP_TYPE_STACK:
	case BPF_MAP_TYPE_BLOOM_FILTER:
		return diag_set(d, EINVAL,
			"map %s: key of %u bytes, value of %u bytes, %u entries is not possible (this type has no "
			"keys, at most %d entries, and a BLOOM_FILTER values of at most %d bytes; the whole map at "
			"most 64 GiB)",
			name, def->key_size, def->value_size, def->max_entries, MAX_QUEUE, MAX_KEY_BYTES);
	case BPF_MAP_TYPE_STACK_TRACE:
		return diag_set(d, EINVAL,
			"map %s: key of %u bytes, value of %u bytes, %u entries is not possible (keys of a STACK_TRACE have 4 "
			"bytes, values 8 for each frame, of %d at most)",
			name, def->key_size, def->value_size, def->max_entries, MAX_FRAMES);
	default:
		return diag_set(d, EINVAL, "map %s: %s", name, map_refused(def->type));
	}
}

static int add_map(struct session *s, const struct ebpf_map *def, uint32_t *id, struct diag *d)
{
	uint32_t i = 0;
	while (i < EBPF_MAX_MAPS && s->file->maps[i].used)
		i++;
	if (i == EBPF_MAX_MAPS)
		return diag_set(d, ENOSPC, "too many maps: a session holds %d", EBPF_MAX_MAPS);
	struct session_map row = {
		.type = def->type,
		.key_size = def->key_size,
		.value_size = def->value_size,
		.max_entries = def->max_entries,
		.flags = def->flags,
		.extra = def->extra,
		.owner = s->client,
		.serial = s->file->maps[i].serial + 1,
	};
	snprintf(row.name, sizeof(row.name), "%s", def->name ? def->name : "");
	if (!map_base_bytes(&row))
		return map_refuse(def, d);
	session_unlink_map(s, i); /* of a loader that was killed here */
	int err = map_base_create(s, i, &row, def);
	if (!err && row.type == BPF_MAP_TYPE_RINGBUF)
		err = map_ring_create(s, "ring-%u", i, &row);
	if (!err && row.type == BPF_MAP_TYPE_RINGBUF)
		err = map_ring_create(s, "raw-%u", i, &row);
	if (err)
		return diag_set(d, -err, "cannot make map %s in %s: %s%s", row.name, s->path,
			strerror(-err),
			err == -ENOSPC ? "; set EGPU_DIR to a directory with more room" : "");
	s->file->maps[i] = row;
	__atomic_store_n(&s->file->maps[i].used, 1, __ATOMIC_RELEASE);
	*id = i;
	return 0;
}

int session_add_map(struct session *s, const struct ebpf_map *def, uint32_t *id, struct diag *d)
{
	int lock = session_lock(s);
	int err = add_map(s, def, id, d);
	session_unlock(lock);
	return err;
}

void session_forget_ring(struct session *s, uint32_t id)
{
	map_ring_retire(s, __atomic_exchange_n(&s->rings[id], NULL, __ATOMIC_ACQ_REL));
}

void session_remove_map(struct session *s, uint32_t id)
{
	if (id >= EBPF_MAX_MAPS || !s->file->maps[id].used)
		return;
	session_unlink_map(s, id);
	session_forget_ring(s, id);
	__atomic_store_n(&s->file->maps[id].used, 0, __ATOMIC_RELEASE);
}

int map_base_copy(int fd, void *to, uint64_t data_bytes)
{
	uint64_t at = 0;
	while (at < data_bytes) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA), hole = -1;
		if (data >= 0)
			hole = lseek(fd, data, SEEK_HOLE);
		else if (errno == ENXIO)
			return 0;               /* only holes from here on */
		if (data < 0 || hole <= data) { /* the file system does not tell */
			data = (off_t)at;
			hole = (off_t)data_bytes;
		}
		if ((uint64_t)data >= data_bytes)
			return 0;
		if ((uint64_t)hole > data_bytes)
			hole = (off_t)data_bytes;
		int err =
			file_read_at(fd, (char *)to + data, (size_t)(hole - data), (uint64_t)data);
		if (err)
			return err;
		at = (uint64_t)hole;
	}
	return 0;
}

/* -- instances: made by agents -- */

/* In a private page before the mapping: what the shared page may not be asked for. */
struct map_hidden {
	size_t bytes;
	uint32_t map, n;
	bool sparse; /* memory has been taken for its head alone */
};

static struct map_hidden *map_hidden(struct map_instance *inst)
{
	return (struct map_hidden *)(void *)((char *)inst - (size_t)sysconf(_SC_PAGESIZE));
}

static void *map_instance_map(int fd, size_t bytes)
{
	size_t guard = (size_t)sysconf(_SC_PAGESIZE);
	char *p = mmap(
		NULL, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (mmap(p + guard, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		MAP_FAILED) {
		munmap(p, guard + bytes);
		return NULL;
	}
	((struct map_hidden *)(void *)p)->bytes = bytes;
	return p + guard;
}

void map_instance_close(struct map_instance *inst)
{
	if (!inst)
		return;
	struct map_hidden *h = map_hidden(inst);
	munmap(h, (size_t)sysconf(_SC_PAGESIZE) + h->bytes);
}

/* Values that begin with zero need no memory before there are some: to take tens of megabytes lasts as long as all else
 * that an attach does. Room for them must be there. */
static bool map_instance_is_sparse(const struct session_map *row, uint64_t bytes)
{
	return row->type == BPF_MAP_TYPE_PERCPU_ARRAY && bytes > SPARSE_BYTES;
}

static int map_instance_head(int fd, uint64_t bytes)
{
	struct statvfs fs;
	if (!fstatvfs(fd, &fs) && fs.f_blocks && bytes / fs.f_frsize >= fs.f_bavail)
		return -ENOSPC;
	return file_reserve(fd, 0, 2 * SESSION_PAGE);
}

static int map_instance_file(
	struct session *s, uint32_t map, uint64_t bytes, bool sparse, char path[SESSION_FILE_PATH_BYTES], uint32_t *n)
{
	for (*n = 0; *n < SESSION_MAX_INSTANCES; ++*n) {
		int err = session_file_path(s, path, "map-%u.%d.%u", map, (int)process_self(), *n);
		int fd = err ? err : file_create(path, bytes, !sparse);
		if (fd == -EEXIST)
			continue;
		err = fd >= 0 && sparse ? map_instance_head(fd, bytes) : 0;
		if (!err)
			return fd;
		close(fd);
		unlink(path);
		return err;
	}
	return -ENOSPC;
}

int map_instance_reserve(struct session *s, struct map_instance *inst)
{
	struct map_hidden *h = map_hidden(inst);
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	if (!h->sparse)
		return 0;
	int err = session_file_path(s, path, "map-%u.%d.%u", h->map, (int)process_self(), h->n);
	int fd = err ? err : file_open(path, O_RDWR, s->owner, &size);
	if (fd < 0)
		return fd;
	err = size == h->bytes ? file_reserve(fd, 0, size) : -EINVAL;
	close(fd);
	h->sparse = err;
	return err;
}

/* The values of a queue or stack are the instance's from here on. */
static int map_base_take_values(
	int fd, struct map_image *image, const struct map_image *head, uint64_t header_at)
{
	struct map_image empty = *head;
	uint64_t none = 0;
	uint32_t n = (uint32_t)head->live;
	int err = 0;
	image->first = head->first;
	for (uint32_t k = 0; k < n && k < image->max_entries && !err; k++) {
		uint64_t slot = map_queue_slot(image->type, image->max_entries, head->live, head->first, k);
		err = file_write_at(fd, &none, sizeof(none), slot * map_queue_slot_bytes(image->value_size));
	}
	empty.live = 0;
	empty.first = 0;
	return err ? err : file_write_at(fd, &empty, sizeof(empty), header_at);
}

/* Each replica of an array begins as the first. What is zero stays untouched: it may be a hole. */
static void map_spread(struct map_image *image)
{
	uint64_t one = map_replica_bytes(image->max_entries, image->value_size);
	const uint8_t *first = (const uint8_t *)(image + 1);
	static const uint8_t zero[128];
	for (uint64_t at = 0; at < one && image->n_replicas > 1; at += sizeof(zero)) {
		if (!memcmp(first + at, zero, sizeof(zero)))
			continue;
		for (uint32_t r = 1; r < image->n_replicas; r++)
			memcpy((uint8_t *)(image + 1) + r * one + at, first + at, sizeof(zero));
	}
}

/* Of a hash with replicas: keys of slots that are not live. */
static void map_mark_keys(struct map_image *image)
{
	uint64_t n = map_hash_slots(image->max_entries), bytes = map_hash_slot_bytes(image->type, image->key_size, image->value_size);
	uint8_t *slot = (uint8_t *)(image + 1);
	for (uint64_t s = 0; s < n && image->n_replicas > 1; s++, slot += bytes) {
		uint32_t state;
		memcpy(&state, slot, sizeof(state));
		if ((state & MAP_SLOT_STATE) != MAP_SLOT_LIVE)
			memset(slot + 8, 0xff, (size_t)map_round_up(image->key_size, 8));
	}
}

/* Under the lock of map-ID, so that no host write slips between the copy and the count that forbids
 * it. A host that was stopped inside its own write must not stop the target: then the copy goes
 * ahead. */
static int map_instance_fill(
	struct session *s, uint32_t map, const struct session_map *row, struct map_instance *inst)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size, base = map_base_bytes(row), data = base - MAP_IMAGE_HEADER;
	int err = session_file_path(s, path, "map-%u", map);
	int fd = err ? err : file_open(path, O_RDWR, s->owner, &size);
	if (fd < 0)
		return fd;
	int locked = file_lock(fd, false, SESSION_LOCK_MS);
	__atomic_fetch_add(&s->file->maps[map].instances, 1, __ATOMIC_ACQ_REL);
	struct map_image *image = (struct map_image *)((char *)inst + SESSION_PAGE), head;
	/* Per-CPU values are the host's alone, but its keys are everybody's. */
	if (map_is_hash(row->type) && map_is_per_cpu(row->type))
		data = map_hash_slots_bytes(row->key_size, row->max_entries);
	if (row->type == BPF_MAP_TYPE_ARRAY || map_is_hash(row->type) || map_is_keyless(row->type))
		err = size < map_base_header_at(base) + MAP_IMAGE_HEADER
			      ? -EINVAL
			      : map_base_copy(fd, image + 1, data);
	if (!err && (map_is_hash(row->type) || map_is_queue(row->type))) {
		err = file_read_at(fd, &head, sizeof(head), map_base_header_at(base));
		if (!err)
			image->live = head.live;
		if (!err && map_is_queue(row->type))
			err = map_base_take_values(fd, image, &head, map_base_header_at(base));
	}
	if (!err && inst->base_offset)
		memcpy((char *)inst + inst->base_offset, image + 1, data);
	if (!err && row->type == BPF_MAP_TYPE_ARRAY)
		map_spread(image);
	if (!err && row->type == BPF_MAP_TYPE_HASH)
		map_mark_keys(image);
	if (!locked)
		file_unlock(fd);
	close(fd);
	return err;
}

int map_instance_create(struct session *s, uint32_t map, uint32_t n_replicas, uint32_t device,
	struct map_instance **out, struct map_image **image, size_t *image_bytes, struct diag *d)
{
	struct session_map row;
	char path[SESSION_FILE_PATH_BYTES];
	int err = session_map_row(s, map, &row);
	if (err)
		return diag_set(d, -err, "no map %u in the session", map);
	uint32_t sums = session_map_replicas(s, map, n_replicas);
	if (!map_is_per_cpu(row.type) && row.type != BPF_MAP_TYPE_RINGBUF)
		n_replicas = 1;
	if (row.type == BPF_MAP_TYPE_ARRAY || row.type == BPF_MAP_TYPE_HASH)
		n_replicas = sums;
	uint64_t bytes = map_image_bytes(
		row.type, row.key_size, row.value_size, row.max_entries, n_replicas);
	if (!bytes)
		return diag_set(
			d, EINVAL, "map %s with %u replicas is too large", row.name, n_replicas);
	uint64_t base_offset = session_map_is_mappable(&row)
				       ? map_round_up(SESSION_PAGE + bytes, SESSION_PAGE)
				       : 0;
	uint64_t total =
		base_offset ? base_offset + bytes - MAP_IMAGE_HEADER : SESSION_PAGE + bytes;
	uint32_t number;
	bool sparse = map_instance_is_sparse(&row, total);
	int fd = map_instance_file(s, map, total, sparse, path, &number);
	if (fd < 0)
		return diag_set(d, -fd, "cannot make a device instance of map %s in %s: %s%s",
			row.name, s->path, strerror(-fd),
			fd == -ENOSPC ? "; set EGPU_DIR to a directory with more room" : "");
	struct map_instance *inst = map_instance_map(fd, (size_t)total);
	err = inst ? 0 : -ENOMEM;
	close(fd);
	if (!err) {
		struct map_hidden *h = map_hidden(inst);
		h->map = map;
		h->n = number;
		h->sparse = sparse;
		inst->map = map;
		inst->pid = (uint32_t)process_self();
		inst->image_bytes = bytes;
		inst->device = device;
		inst->n = number;
		inst->base_offset = base_offset;
		/* Before the host's image is copied: a write that comes later is asked for again. */
		inst->write_done =
			__atomic_load_n(&s->file->maps[map].write_seq, __ATOMIC_ACQUIRE);
		*image = (struct map_image *)((char *)inst + SESSION_PAGE);
		map_image_init(*image, row.type, row.key_size, row.value_size, row.max_entries,
			n_replicas);
		err = map_instance_fill(s, map, &row, inst);
	}
	if (err) {
		map_instance_close(inst);
		unlink(path);
		return diag_set(d, -err, "cannot make a device instance of map %s in %s: %s",
			row.name, s->path, strerror(-err));
	}
	__atomic_store_n(&inst->magic, SESSION_MAGIC, __ATOMIC_RELEASE);
	*out = inst;
	*image_bytes = (size_t)bytes;
	return 0;
}

/* Odd before the first changed byte, even after the last; pairs with the reader's check before and
 * after its copy. */
void map_instance_begin(struct map_instance *inst)
{
	uint64_t g = __atomic_load_n(&inst->generation, __ATOMIC_RELAXED);
	__atomic_store_n(&inst->generation, g | 1, __ATOMIC_RELAXED);
	__sync_synchronize();
}

void map_instance_end(struct map_instance *inst, uint64_t sync_ns)
{
	__atomic_store_n(&inst->sync_ns, sync_ns, __ATOMIC_RELAXED);
	uint64_t g = __atomic_load_n(&inst->generation, __ATOMIC_RELAXED);
	__atomic_store_n(&inst->generation, (g | 1) + 1, __ATOMIC_RELEASE);
}
