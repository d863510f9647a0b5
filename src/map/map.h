/* map.h - reading and writing a session's maps from the host.
 *
 * A map's value is its host image combined with every device instance: for array and per-CPU maps and for the
 * values of a hash map, each 64-bit word is base + sum over instances (instance - base), which is exact for counters and right
 * for anything that one device alone has written. Per-CPU: device replica r belongs to CPU slot r mod possible CPUs.
 */
#ifndef EGPU_MAP_MAP_H
#define EGPU_MAP_MAP_H

#include "map/session.h"

struct map;

/* Opens map `id` of a session. The session must outlive it. */
int map_open(struct session *s, uint32_t id, struct map **out, struct diag *d);
/* The same as one device has it: base + sum over the instances on it (instance - base). For reading only. */
int map_open_device(struct session *s, uint32_t id, uint32_t device, struct map **out, struct diag *d);
/* Ordinals of the devices that have the map, ascending, up to max; processes that see different devices under one ordinal are not told
 * apart. */
uint32_t map_devices(struct map *m, uint32_t *devices, uint32_t max);
void map_close(struct map *m);
const struct session_map *map_info(const struct map *m);
uint32_t map_possible_cpus(void);
/* Bytes of one value as bpf(2) hands it out: value_size, or round_up(value_size, 8) * possible CPUs, or of an array per thread value_size *
 * threads (map_threads_of). */
size_t map_value_bytes(const struct map *m);
/* Whether that holds several, of CPUs or threads, and where the next one begins. */
bool map_has_slots(const struct map *m);
size_t map_slot_bytes(const struct map *m);

/* The bpf(2) operations, with its errors: -ENOENT, -E2BIG, -EEXIST, -EINVAL, -EOPNOTSUPP. A write reaches every device that has the
 * map before it returns (docs/maps.md); -EBUSY: an earlier write still waits for its agent; -ETIMEDOUT: an agent did not answer in one
 * second, and may carry the write out later. */
int map_lookup(struct map *m, const void *key, void *value);
int map_update(struct map *m, const void *key, const void *value, uint64_t flags);
int map_delete(struct map *m, const void *key);
/* Array: n bytes of an element, and nothing else of it: beside them may be what devices count. */
int map_update_part(struct map *m, const void *key, uint32_t offset, const void *from, uint32_t n);
/* QUEUE, STACK, BLOOM_FILTER. Look-up is map_peek and update map_push, their keys NULL. flags: BPF_ANY, or BPF_EXIST: a full one loses its
 * oldest value; -E2BIG: it is full. A device's own values are changed when nothing runs on it: -ETIMEDOUT and -EBUSY as above. */
int map_push(struct map *m, const void *value, uint64_t flags);
/* -ENOENT: it is empty. -EOPNOTSUPP: a BLOOM_FILTER. */
int map_pop(struct map *m, void *value);
/* The value that would be popped; of a BLOOM_FILTER whether *value may be in it. -ENOENT. */
int map_peek(struct map *m, void *value);
/* QUEUE, STACK: calls fn for each value in the order in which they would be popped; stops when it returns nonzero. */
int map_each_value(struct map *m, int (*fn)(void *arg, const void *value), void *arg);
/* key NULL: the first key. -ENOENT at the end. */
int map_next_key(struct map *m, const void *key, void *next);
/* Per CPU or per thread: the sum over slots of each 64-bit word of the value (value_size bytes). */
int map_lookup_sum(struct map *m, const void *key, void *value);
/* Losses counted on the devices. */
uint64_t map_lost(struct map *m);
/* Consumes ring records: calls fn for each; stops when it returns nonzero. The number consumed. */
int map_ring_consume(struct map *m, int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg);
/* The same in the order of time of reservation (of what is there now, resolution 32 ns; records that lie within a minute of each
 * other). fn's stop does not keep the rest. */
int map_ring_consume_by_time(struct map *m, int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg);
/* What waits there now, without taking it: fn is given each record and its time in ns after the first that is shown (resolution 32 ns), by
 * time or as they arrived; stops when it returns nonzero. Records that somebody takes meanwhile are left out. The number shown, or
 * -errno. */
int map_ring_look(struct map *m, bool by_time, int (*fn)(void *arg, const void *data, uint32_t bytes, int64_t ns), void *arg);
/* Bulk reading: what devices wrote, as groups (map/layout.h), in one piece of *bytes bytes that stays until map_ring_advance gives
 * room back. From the first call on and as long as this process lives, records go to nobody else. 0, -EBUSY when another process
 * reads so. map_ring_group_read takes a group apart. */
int map_ring_peek(struct map *m, const void **groups, uint64_t *bytes);
void map_ring_advance(struct map *m, uint64_t bytes);
/* Reads the group's head: n records of `bytes` bytes, each padded to 8, from at + MAP_RING_GROUP on, those submitted in out->present;
 * n is 0 where a part is skipped. The bytes to the next group; 0: damaged. */
uint64_t map_ring_group_read(const void *at, uint64_t left, struct map_ring_group *out, uint32_t *bytes, uint32_t *n);
/* The groups with records in a piece, in the order of their times: *sorted points to *n of them, and is the caller's to free. A later piece may
 * hold older ones: as far back as a bin takes to be filled. 0, -EBADMSG: damaged, and those before the damage; -ENOMEM. */
int map_ring_by_time(const void *groups, uint64_t bytes, const void ***sorted, size_t *n);
/* Submitted records in a piece. */
uint64_t map_ring_count(const void *groups, uint64_t bytes, bool *damaged);

/* Bytes of an image of this shape, header included; 0 when it is invalid or too large (over 64 GiB). */
uint64_t map_image_bytes(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries, uint32_t n_replicas);
/* The same in device memory, where a ring buffer's records follow its image. */
uint64_t map_device_bytes(uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries, uint32_t n_replicas);
/* Fills a zeroed image's header. */
void map_image_init(struct map_image *image, uint32_t type, uint32_t key_size, uint32_t value_size, uint32_t max_entries,
	uint32_t n_replicas);

#endif
