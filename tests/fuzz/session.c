/* session.c - fuzz target: any bytes in a session's files; readers and agents that open it end
 * without a crash. Input: u8 which file is damaged, u32 where, then the bytes that are written
 * there. The session has an array, a hash, a per-CPU array and a ring, each with a device instance,
 * a program, a link, a kernel, a site. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "map/map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint32_t types[] = { BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_PERCPU_ARRAY,
	BPF_MAP_TYPE_PERCPU_HASH, BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_RINGBUF };
enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

static struct session *make(void)
{
	struct session *s;
	struct map_instance *inst;
	struct map_image *image;
	size_t bytes;
	uint32_t id, key = 1;
	uint64_t value[1024] = { 2 }; /* of as many CPUs */
	bool created;
	if (session_create(&s, NULL))
		abort();
	for (int i = 0; i < N_TYPES; i++) {
		bool ring = types[i] == BPF_MAP_TYPE_RINGBUF;
		struct ebpf_map def = { .name = "m",
			.type = types[i],
			.key_size = ring ? 0 : 4,
			.value_size = ring ? 0 : 8,
			.max_entries = ring ? 4096 : 4,
			.flags = i ? 0 : BPF_F_MMAPABLE };
		struct map *m;
		if (session_add_map(s, &def, &id, NULL) || map_open(s, id, &m, NULL))
			abort();
		if (map_is_hash(types[i]) && map_possible_cpus() <= 1024)
			map_update(m, &key, value, 0);
		map_close(m);
		if (map_instance_create(s, id, 3, 0, &inst, &image, &bytes, NULL))
			abort();
		map_instance_close(inst);
	}
	session_add_prog(s, "text", 4, "prog", EBPF_POINT_LOAD, false, &id, NULL);
	session_add_link(s, 0, EBPF_POINT_LOAD, false, "*", &id, NULL);
	session_add_kernel(s, 1, "kernel", &id, &created);
	session_add_sites(s, 1, &id);
	return s;
}

static int on_record(void *arg, const void *data, uint32_t bytes)
{
	uint64_t *sum = arg;
	for (uint32_t i = 0; i < bytes; i++)
		*sum += ((const uint8_t *)data)[i];
	return 0;
}

static void read_map(struct session *s, uint32_t id)
{
	struct map *m;
	uint64_t sum = 0;
	if (map_open(s, id, &m, NULL))
		return;
	uint8_t *value = malloc(map_value_bytes(m) + 1),
		*key = calloc(2, map_info(m)->key_size + 1), *next = key + map_info(m)->key_size;
	int err = value ? map_next_key(m, NULL, next) : -1;
	for (int n = 0; !err && n < 20; n++) {
		memcpy(key, next, map_info(m)->key_size);
		map_lookup(m, key, value);
		map_lookup_sum(m, key, value);
		err = map_next_key(m, key, next);
	}
	map_lost(m);
	map_ring_consume(m, on_record, &sum);
	map_ring_consume_by_time(m, on_record, &sum);
	free(value);
	free(key);
	map_close(m);
}

/* What an agent does with a session that it was given. */
static void use(struct session *s)
{
	struct map_instance *inst;
	struct map_image *image;
	size_t bytes;
	char *text;
	uint32_t id;
	bool created;
	session_join(s, getpid());
	for (uint32_t i = 0; i < SESSION_MAX_PROGS; i++)
		if (!session_read_prog(s, i, &text, &bytes))
			free(text);
	session_add_kernel(s, 1, "kernel", &id, &created);
	session_add_kernel(s, 2, "other", &id, &created);
	session_add_sites(s, 3, &id);
	for (uint32_t at = 0; at < 64; at++)
		session_text(s, at);
	for (uint32_t i = 0; i < N_TYPES + 1; i++) {
		if (session_data(s)->maps[i].max_entries <= 65536 &&
			session_data(s)->maps[i].value_size <= 65536 &&
			!map_instance_create(s, i, 3, 0, &inst, &image, &bytes, NULL)) {
			struct map_ring_room room;
			void *to;
			if (!map_ring_begin(s, i, 32, &room)) {
				const struct map_ring_group g = { 8, 1, 0 };
				if (map_ring_piece(s, i, room.at, 32, &to) == 32)
					memcpy(to, &g, sizeof(g));
				map_ring_end(s, i, &room, 32);
			}
			map_ring_flush(s, i);
			map_ring_give_up(s, i, 0);
			map_instance_close(inst);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const files[] = { "session", "map-0", "map-1", "map-2", "map-3", "map-4", "ring-5", "raw-5",
		"map-0.%d.0", "map-1.%d.0", "map-2.%d.0", "map-3.%d.0", "map-4.%d.0", "map-5.%d.0" };
	/* Where the interesting fields are: the tables, not the holes between them. */
	static const uint32_t places[] = { 0, 4096, offsetof(struct session_file, maps),
		offsetof(struct session_file, progs), offsetof(struct session_file, links),
		offsetof(struct session_file, agents), offsetof(struct session_file, kernels),
		offsetof(struct session_file, sites), offsetof(struct session_file, strings) };
	char name[32], path[400];
	uint32_t where;
	if (size < 6)
		return 0;
	memcpy(&where, data + 2, 4);
	struct session *s = make(), *t;
	snprintf(name, sizeof(name), files[data[0] % (sizeof(files) / sizeof(files[0]))], (int)getpid());
	snprintf(path, sizeof(path), "%s/%s", session_path(s), name);
	int fd = open(path, O_RDWR);
	off_t end = fd < 0 ? 0 : lseek(fd, 0, SEEK_END), at = places[data[1] % 9] + where % 8192;
	if (fd < 0)
		abort();
	if (data[1] & 128 && ftruncate(fd, at))
		abort();
	if (at + (off_t)(size - 6) <= end && pwrite(fd, data + 6, size - 6, at) < 0)
		abort();
	close(fd);
	if (!session_open(session_path(s), &t, NULL)) {
		for (uint32_t i = 0; i < N_TYPES + 1; i++)
			read_map(t, i);
		use(t);
		for (uint32_t i = 0; i < N_TYPES + 1; i++)
			read_map(t, i);
		session_close(t);
	}
	session_destroy(s);
	return 0;
}
