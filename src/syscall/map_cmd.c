/* BPF_MAP_*: maps of the session behind descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "syscall/object.h"

enum { TRACE_RING_BYTES = 64 * 1024, MAX_FROZEN_BYTES = 64 << 20 };

static void *user(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

/* -- making -- */

static int map_file_open(struct loader *l, uint32_t id)
{
	char path[320];
	snprintf(path, sizeof(path), "%s/map-%u", session_path(l->options.session), id);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int map_check_flags(const union bpf_attr *attr, const struct ebpf_map *def, struct diag *d)
{
	const char *name = def->name;
	uint32_t type = def->type, allowed = 0;
	bool threads = map_threads_of(def);
	if (type == BPF_MAP_TYPE_ARRAY)
		allowed = threads ? 0 : BPF_F_MMAPABLE | BPF_F_RDONLY_PROG;
	else if (type == BPF_MAP_TYPE_HASH || type == BPF_MAP_TYPE_PERCPU_HASH)
		allowed = BPF_F_NO_PREALLOC; /* room is taken at once anyway */
	else if (map_is_lru(type))
		allowed = BPF_F_NO_COMMON_LRU; /* every multiprocessor evicts on its own as it is */
	if (map_is_array(type) || map_is_hash(type))
		allowed |= MAP_FLAG_HOST;
	bool bloom = type == BPF_MAP_TYPE_BLOOM_FILTER;
	if (attr->map_flags & ~allowed)
		return diag_set(d, EINVAL,
			"map %s: flags 0x%x are not supported for this type (allowed: 0x%x)", name,
			attr->map_flags, allowed);
	if (bloom && attr->map_extra > MAP_BLOOM_MAX_HASHES)
		return diag_set(d, EINVAL, "map %s: map_extra of a BLOOM_FILTER is the number of its hash functions, at most %d", name,
			MAP_BLOOM_MAX_HASHES);
	if (attr->inner_map_fd || (attr->map_extra && !bloom && !threads) || attr->map_ifindex ||
		attr->btf_vmlinux_value_type_id)
		return diag_set(d, EINVAL,
			"map %s: inner maps, offload, extra flags and struct_ops are not supported",
			name);
	return 0;
}

/* The types of key and value, for whoever prints the map. */
static int map_set_btf(struct loader *l, struct object *o, const union bpf_attr *attr)
{
	struct object *btf;
	if (!attr->btf_value_type_id && !attr->btf_key_type_id)
		return 0;
	int err = object_by_fd(l, (int)attr->btf_fd, OBJECT_BTF, &btf);
	if (err)
		return err;
	err = btf_object_save(l, btf);
	if (err)
		return err;
	struct session_map *row = &session_data(l->options.session)->maps[o->map.id];
	row->btf_key_type_id = attr->btf_key_type_id;
	row->btf_value_type_id = attr->btf_value_type_id;
	__atomic_store_n(&row->btf_id, btf->id, __ATOMIC_RELEASE);
	btf->refs++;
	o->map.btf = btf;
	return 0;
}

static int map_make(struct loader *l, const struct ebpf_map *def, struct object **out)
{
	uint32_t id;
	int err = session_add_map(l->options.session, def, &id, &l->error);
	if (err)
		return err;
	int fd = map_file_open(l, id);
	err = fd < 0 ? diag_set(&l->error, -fd, "map %s: cannot open its file: %s", def->name,
			       strerror(-fd))
		     : object_new(l, OBJECT_MAP, fd, out);
	if (err) {
		session_remove_map(l->options.session, id);
		return err;
	}
	(*out)->map.id = id;
	return 0;
}

COMMAND(map_create)
{
	char name[16];
	struct object *o;
	object_sweep(l);
	int err = object_name(attr->map_name, name);
	if (err)
		return diag_set(&l->error, EINVAL,
			"a map's name has characters other than letters, digits, _ and .");
	struct ebpf_map def = {
		.name = name,
		.type = attr->map_type,
		.key_size = attr->key_size,
		.value_size = attr->value_size,
		.max_entries = attr->max_entries,
		.flags = attr->map_flags,
		.extra = attr->map_extra,
	};
	err = foreign_map(l, &def, &l->error);
	if (err)
		return err;
	bool known = def.type == BPF_MAP_TYPE_ARRAY || map_is_hash(def.type) || map_is_keyless(def.type) || def.type == BPF_MAP_TYPE_STACK_TRACE ||
		     def.type == BPF_MAP_TYPE_PERCPU_ARRAY || def.type == BPF_MAP_TYPE_RINGBUF;
	if (known) /* session_add_map has the words for other types */
		err = map_check_flags(attr, &def, &l->error);
	if (!err)
		err = map_make(l, &def, &o);
	if (!err)
		err = map_set_btf(l, o, attr);
	/* A map that failed half-way has no descriptor, so the next sweep takes it. */
	return err ? err : object_descriptor(o);
}

void map_object_release(struct loader *l, struct object *o)
{
	map_close(o->map.map);
	object_unref(o->map.btf);
	if (l->running)
		session_remove_map(l->options.session, o->map.id);
}

/* -- for programs -- */

int map_object_open(struct loader *l, struct object *o)
{
	return o->map.map ? 0 : map_open(l->options.session, o->map.id, &o->map.map, &l->error);
}

int map_object_describe(
	struct loader *l, struct object *o, struct arena *arena, struct ebpf_map *out)
{
	const struct session_map *row = &session_data(l->options.session)->maps[o->map.id];
	*out = (struct ebpf_map){
		.name = arena_strndup(arena, row->name, strnlen(row->name, sizeof(row->name))),
		.type = row->type,
		.key_size = row->key_size,
		.value_size = row->value_size,
		.max_entries = row->max_entries,
		.flags = row->flags,
		.extra = row->extra,
		.id = o->map.id,
		/* The kernel too takes values for constants only when neither programs nor user
		   space can change them. */
		.frozen = o->map.frozen && (row->flags & BPF_F_RDONLY_PROG),
	};
	if (!out->name)
		return -ENOMEM;
	uint64_t bytes = out->max_entries * map_stride(out->value_size);
	if (!out->frozen || out->type != BPF_MAP_TYPE_ARRAY || bytes > MAX_FROZEN_BYTES)
		return 0;
	/* The file's data begins at 0 and is the array itself. */
	uint8_t *values = arena_alloc(arena, (size_t)bytes);
	if (!values)
		return -ENOMEM;
	for (uint64_t at = 0; at < bytes;) {
		ssize_t n = pread(o->fd, values + at, (size_t)(bytes - at), (off_t)at);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += (uint64_t)n;
	}
	out->values = values;
	return 0;
}

int trace_map_describe(struct loader *l, struct arena *arena, struct ebpf_map *out, struct diag *d)
{
	struct ebpf_map def = {
		.name = "egpu_trace", .type = BPF_MAP_TYPE_RINGBUF, .max_entries = TRACE_RING_BYTES
	};
	if (!l->trace_map) {
		uint32_t id;
		int err = session_add_map(l->options.session, &def, &id, d);
		if (err)
			return err;
		session_data(l->options.session)->maps[id].internal = 1;
		l->trace_map = id + 1;
	}
	*out = def;
	out->id = l->trace_map - 1;
	out->name = arena_strdup(arena, def.name);
	return out->name ? 0 : -ENOMEM;
}

/* -- elements -- */

static int map_for(struct loader *l, uint32_t fd, bool write, struct object **out)
{
	int err = object_by_fd(l, (int)fd, OBJECT_MAP, out);
	if (!err)
		err = map_object_open(l, *out);
	if (!err && write && (*out)->map.frozen)
		err = -EPERM;
	return err;
}

/* Queues, stacks and Bloom filters are asked without a key. */
static bool has_key(const struct map *m, uint64_t key)
{
	return key || map_is_keyless(map_info(m)->type);
}

/* Ring buffers have no elements: the kernel says so with EOPNOTSUPP or ENOTSUPP; we with
 * -EOPNOTSUPP. */
COMMAND(map_elem_lookup)
{
	struct object *o;
	int err = map_for(l, attr->map_fd, false, &o);
	if (err)
		return err;
	if (attr->flags)
		return -EINVAL;
	if (attr->key && map_is_keyless(map_info(o->map.map)->type))
		return -EINVAL;
	return has_key(o->map.map, attr->key) && attr->value ? map_lookup(o->map.map, user(attr->key), user(attr->value))
							     : -EFAULT;
}

COMMAND(map_elem_update)
{
	struct object *o;
	int err = map_for(l, attr->map_fd, true, &o);
	if (err)
		return err;
	if (attr->key && map_is_keyless(map_info(o->map.map)->type))
		return -EINVAL;
	if (!has_key(o->map.map, attr->key) || !attr->value)
		return -EFAULT;
	err = map_update(o->map.map, user(attr->key), user(attr->value), attr->flags);
	if (err == -EBUSY || err == -ETIMEDOUT)
		diag_set(&l->error, -err, "map %s: the target did not take the value in time",
			map_info(o->map.map)->name);
	return err;
}

COMMAND(map_elem_delete)
{
	struct object *o;
	int err = map_for(l, attr->map_fd, true, &o);
	if (err)
		return err;
	return has_key(o->map.map, attr->key) ? map_delete(o->map.map, user(attr->key)) : -EFAULT;
}

COMMAND(map_elem_next)
{
	struct object *o;
	int err = map_for(l, attr->map_fd, false, &o);
	if (err)
		return err;
	return attr->next_key ? map_next_key(o->map.map, user(attr->key), user(attr->next_key))
			      : -EFAULT;
}

COMMAND(map_elem_take)
{
	struct object *o;
	int err = map_for(l, attr->map_fd, true, &o);
	if (err)
		return err;
	uint32_t type = map_info(o->map.map)->type;
	if (attr->flags || (attr->key && map_is_queue(type)))
		return -EINVAL;
	if (map_is_queue(type))
		return attr->value ? map_pop(o->map.map, user(attr->value)) : -EFAULT;
	if (!map_is_hash(type))
		return type == BPF_MAP_TYPE_BLOOM_FILTER ? -EOPNOTSUPP : -EINVAL;
	if (!attr->key || !attr->value)
		return -EFAULT;
	err = map_lookup(o->map.map, user(attr->key), user(attr->value));
	return err ? err : map_delete(o->map.map, user(attr->key));
}

COMMAND(map_freeze)
{
	struct object *o;
	int err = map_for(l, attr->map_fd, false, &o);
	if (err)
		return err;
	if (o->map.frozen)
		return -EBUSY;
	o->map.frozen = true;
	return 0;
}
