/* internal.h - what the sources of src/map share. */
#ifndef EGPU_MAP_INTERNAL_H
#define EGPU_MAP_INTERNAL_H

#include "map/file.h"
#include "map/session.h"

enum {
	SESSION_PATH_BYTES = 256,
	SESSION_FILE_PATH_BYTES = SESSION_PATH_BYTES + 64,
	SESSION_GRANULE = 65536, /* the session file's memory is taken in pieces of this size */
	SESSION_GRANULES = (sizeof(struct session_file) + SESSION_GRANULE - 1) / SESSION_GRANULE,
	SESSION_TEXT_CACHE = 4096,
	SESSION_PAGE = 4096, /* of the formats, whatever the machine's is */
	SESSION_TEXT_MAX = 1 << 20,
	SESSION_FRAGMENT_MAX = 64 << 20,
	SESSION_MAX_INSTANCES = 4096, /* of one map */
	SESSION_LOCK_MS = 50,
};

struct ring_mapping {
	struct map_ring *ring, *raw; /* ring-ID, raw-ID: the data twice in a row */
	size_t mapped;               /* bytes of each mapping */
	uint32_t max_entries;
	struct ring_mapping *next; /* of those retired */
};

struct session {
	char path[SESSION_PATH_BYTES];
	struct session_file *file;
	uid_t owner;
	uint32_t client; /* number; 0: none */
	int client_fd;   /* holds the client's lock; 0: none */
	pid_t maker; /* the process that made the directory; 0: opened */
	struct ring_mapping
		*rings[EBPF_MAX_MAPS]; /* mapped at the first use; set once, atomically */
	struct ring_mapping *retired; /* atomic; somebody may still look at them */
	uint64_t reserved[(SESSION_GRANULES + 63) / 64]; /* atomic bits: memory taken */
	/* Offsets of texts added lately, so that a text is stored once a process. Lossy, lock-free,
	 * safe over fork. */
	uint32_t text_cache[SESSION_TEXT_CACHE];
};

uint64_t session_now_ns(void);
/* Between processes that add rows: a descriptor for session_unlock, or -errno. */
int session_lock(struct session *s);
void session_unlock(int lock);
int session_claim_client(struct session *s, const char *probe);
/* Whether another loader is in it, and alive: then it is theirs. For its maker, at the end. */
bool session_leave_to_others(const struct session *s);
/* Files of a map: its own, its ring, its instances. */
/* Rows of links for running kernels that are over, and of their programs. */
void session_recycle_links(struct session *s);
void session_unlink_map(const struct session *s, uint32_t id);

/* "DIR/name", cut never: 0 or -ENAMETOOLONG. */
int session_file_path(const struct session *s, char out[SESSION_FILE_PATH_BYTES], const char *fmt,
	...) __attribute__((format(printf, 3, 4)));
/* Copies a map's row once and checks it: 0, -ENOENT, -EINVAL. */
int session_map_row(const struct session *s, uint32_t map, struct session_map *row);
/* Bytes of the host's own image, header included; 0: invalid. Its data is at offset 0 of map-ID,
 * its header behind, at the next multiple of 4096. */
uint64_t map_base_bytes(const struct session_map *row);
uint64_t map_base_header_at(uint64_t image_bytes);
/* Whether image, of `bytes` bytes with its header, has the shape of the row; n_replicas is checked
 * for consistency only. */
bool map_image_fits(const struct map_image *image, const struct session_map *row, uint64_t bytes);
/* Copies the data of the host's image: holes, which read as zero, are passed over. `to` must be
 * zero. */
int map_base_copy(int fd, void *to, uint64_t data_bytes);
/* ring-ID and raw-ID, mapped. NULL with *err. */
const struct ring_mapping *map_ring_get(struct session *s, uint32_t map, int *err);
void map_ring_forget(struct ring_mapping *r);
/* Lets go of its files, but keeps the addresses valid until the session is closed: other threads may be on their way to them. */
void map_ring_retire(struct session *s, struct ring_mapping *r);
/* What map.h says, for a mapped ring. */
int map_ring_consume_ring(const struct ring_mapping *r,
	int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg);
int map_ring_consume_sorted(const struct ring_mapping *r,
	int (*fn)(void *arg, const void *data, uint32_t bytes), void *arg);
int map_ring_look_at(const struct ring_mapping *r, bool by_time,
	int (*fn)(void *arg, const void *data, uint32_t bytes, int64_t ns), void *arg);
void map_ring_refill(const struct ring_mapping *r);
int map_ring_peek_raw(const struct ring_mapping *r, const void **groups, uint64_t *bytes);
void map_ring_advance_raw(const struct ring_mapping *r, uint64_t bytes);

/* Roots that may hold sessions, in order of preference: up to 2; the number. */
int session_roots(const char *roots[2]);
/* Takes egpu-UID-PID-START[-N] apart. */
struct session_name {
	uint64_t uid, pid, start, n;
};
bool session_name_parse(const char *name, struct session_name *out);

/* -- map.c and write.c: an open map -- */

struct source {
	int fd;
	uint64_t data_at, data_bytes; /* where the image's data is in the file */
	uint64_t header_at;
	uint64_t base_at; /* instance: the host's data when it was made; 0: as it is now */
	uint32_t n_replicas;
	bool instance;
	uint32_t pid, n; /* instance: of its name */
	uint32_t device; /* instance: ordinal in its process */
	bool stable;     /* the host's image can change no more */
	uint64_t generation;
	uint64_t reads; /* in this generation, outside of the window */
	uint8_t *window;
	uint64_t from, len, cap;
};

struct map {
	struct session *s;
	uint32_t id;
	struct session_map row;
	struct source base;
	struct source *instances;
	size_t n_instances, cap_instances;
	int64_t only_device; /* instances of other devices are not read; -1: all are */
	uint32_t scanned; /* row.instances at the last complete scan */
	uint32_t writing; /* row.writing when the host's image was read last */
	uint32_t cpus;
	size_t stride;
	uint8_t *sum, *one, *was; /* stride bytes each */
	uint8_t fold[EBPF_FOLD_HALVES]; /* of the row, as of map_begin */
	uint8_t *key;             /* one slot: header and key */
	struct {
		uint8_t *key;
		size_t n_instances, source;
		uint64_t slot;
		bool set;
	} last; /* hash: the key that map_next_key gave last, and where it was */
};

/* Finds instances made since. */
int map_scan(struct map *m);
/* The same, and what was kept of older generations is dropped: first in every reading operation. */
int map_begin(struct map *m);
/* Whether the agent of an instance lives. */
bool map_source_alive(const struct map *m, const struct source *src);
/* Keys of an array: fewer than elements where each thread has one. */
uint32_t map_keys(const struct map *m);
/* The index of an array's element; -ENOENT beyond its end. */
int map_array_index(const struct map *m, const void *key, uint32_t *index);
/* The live slot that holds the key, or -ENOENT. */
int map_hash_find(struct map *m, struct source *src, const void *key, uint64_t *slot);
/* The state of a slot; its head and key in m->key. */
int map_hash_slot(struct map *m, struct source *src, uint64_t slot, uint32_t *state);
/* The slot at which the search for a key begins. */
uint64_t map_hash_home(const struct map *m, const void *key);

/* Reads a source's data (offset 0: behind the header) as of one copy. */
int map_source_read(struct map *m, struct source *src, uint64_t offset, void *to, uint64_t n);

/* -- write.c -- */
/* What is to be in an image, or in every image. */
struct change {
	uint32_t op; /* enum map_write_op */
	const void *key, *value;
	uint32_t offset, bytes; /* ARRAY: the part of the element that `value` is; else all of it */
	uint32_t flags;	  /* PUSH: BPF_EXIST */
	uint32_t pid, n;  /* PUSH, POP: the instance of a queue or stack that is to do it */
	void *taken;	  /* POP: the value */
};
/* Carries fn out as the only write to the map, while readers wait. */
int map_change(struct map *m, struct change *c, int (*fn)(struct map *m, struct change *c));
/* Whether an agent still owns this image. */
bool map_source_served(const struct map *m, const struct source *src);
/* Asks the agents and waits: 0, the first error of one, -ETIMEDOUT. */
int map_request(struct map *m, const struct change *c);
/* What the agent that was asked has left with its answer. */
int map_request_answer(struct map *m, void *to, size_t bytes);

/* Takes a copy of a value into `to`, which begins as the host's, `was`: sums grow by what the copy is more than `was` (NULL: zero); of bits,
 * minima and maxima the first copy is taken as it is, and others are folded into it, but for zeros of copies that began with zero. fold: struct
 * ebpf_map_use. */
void map_fold_value(
	const uint8_t fold[EBPF_FOLD_HALVES], uint8_t *to, const uint8_t *copy, const uint8_t *was, bool first, size_t bytes);

#endif
