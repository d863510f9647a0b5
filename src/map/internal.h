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
	struct map_ring *ring;
	size_t bytes;
	uint32_t max_entries;
};

struct session {
	char path[SESSION_PATH_BYTES];
	struct session_file *file;
	uid_t owner;
	pid_t maker; /* the process that made the directory; 0: opened */
	struct ring_mapping
		*rings[EBPF_MAX_MAPS]; /* mapped at the first use; set once, atomically */
	uint64_t reserved[(SESSION_GRANULES + 63) / 64]; /* atomic bits: memory taken */
	/* Offsets of texts added lately, so that a text is stored once a process. Lossy, lock-free,
	 * safe over fork. */
	uint32_t text_cache[SESSION_TEXT_CACHE];
};

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
/* ring-ID, mapped. NULL with *err. */
const struct ring_mapping *map_ring_get(struct session *s, uint32_t map, int *err);

/* Roots that may hold sessions, in order of preference: up to 2; the number. */
int session_roots(const char *roots[2]);
/* Takes egpu-UID-PID-START[-N] apart. */
struct session_name {
	uint64_t uid, pid, start, n;
};
bool session_name_parse(const char *name, struct session_name *out);

#endif
