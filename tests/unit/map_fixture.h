/* A session root of its own for each test program, so that no other session is seen or touched. */
#ifndef MAP_FIXTURE_H
#define MAP_FIXTURE_H

#include "map/map.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char fixture_root[64];

static void fixture_make(void)
{
	strcpy(fixture_root,
		access("/dev/shm", W_OK) ? "/tmp/egpu-test-XXXXXX" : "/dev/shm/egpu-test-XXXXXX");
	if (!mkdtemp(fixture_root))
		exit(99);
	setenv("EGPU_DIR", fixture_root, 1);
}

/* Nonzero when something was left behind. */
static int fixture_end(void)
{
	return rmdir(fixture_root) ? errno : 0;
}

static int fixture_map(struct session *s, uint32_t type, uint32_t key, uint32_t value,
	uint32_t entries, uint32_t flags, uint32_t *id)
{
	struct ebpf_map def = {
		.name = "m",
		.type = type,
		.key_size = key,
		.value_size = value,
		.max_entries = entries,
		.flags = flags,
	};
	return session_add_map(s, &def, id, NULL);
}

static bool fixture_exists(const struct session *s, const char *file)
{
	char path[400];
	snprintf(path, sizeof(path), "%s/%s", session_path(s), file);
	return !access(path, F_OK);
}

#endif
