/* Memory of large per-CPU images: not taken at creation, taken before values are written, and refused when there is none. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "map/map.h"
#include "map/session.h"
#include "tap.h"

enum { ENTRIES = 65536, REPLICAS = 8, IMAGE = ENTRIES * 8 * REPLICAS /* 4 MiB */ };

static char dir[] = "/tmp/egpu-sparse-XXXXXX";
static struct session *s;

static uint32_t add(uint32_t type, uint32_t entries)
{
	struct ebpf_map def = { .name = "m", .type = type, .key_size = 4, .value_size = 8, .max_entries = entries };
	struct diag d = { 0 };
	uint32_t id = 0;
	is_int(session_add_map(s, &def, &id, &d), 0, "a map (%s)", d.text);
	return id;
}

static uint64_t taken(uint32_t map, int n)
{
	char path[400];
	struct stat st;
	snprintf(path, sizeof(path), "%s/map-%u.%d.%d", session_path(s), map, (int)getpid(), n);
	return stat(path, &st) ? UINT64_MAX : (uint64_t)st.st_blocks * 512;
}

static int make(uint32_t map, struct map_instance **i, struct map_image **image)
{
	size_t bytes;
	struct diag d = { 0 };
	int err = map_instance_create(s, map, REPLICAS, 0, i, image, &bytes, &d);
	if (err)
		printf("# %s\n", d.text);
	return err;
}

static void fill(uint64_t leave)
{
	static char block[65536];
	char path[64];
	struct stat st;
	snprintf(path, sizeof(path), "%s/filler", dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	memset(block, 1, sizeof(block));
	while (write(fd, block, sizeof(block)) == sizeof(block))
		;
	if (!fstat(fd, &st) && ftruncate(fd, st.st_size > (off_t)leave ? st.st_size - (off_t)leave : 0))
		printf("# filler\n");
	close(fd);
}

static void values(uint32_t map)
{
	struct map_instance *i;
	struct map_image *image;
	struct map *m;
	uint64_t v[64] = { 0 };
	uint32_t key = ENTRIES - 1;
	struct diag d = { 0 };
	is_int(make(map, &i, &image), 0, "an instance of 4 MiB");
	ok(taken(map, 0) <= 16384, "takes its head alone: %llu bytes", (unsigned long long)taken(map, 0));
	is_int(map_open(s, map, &m, &d), 0, "a reader (%s)", d.text);
	is_int(map_lookup(m, &key, v), 0, "reads it");
	is_int((long)v[0], 0, "as zeros");
	fill(1 << 20);
	is_int(map_instance_reserve(s, i), -ENOSPC, "when there is no room for its values, that is said");
	is_int(map_instance_reserve(s, i), -ENOSPC, "each time");
	fill(8 << 20);
	is_int(map_instance_reserve(s, i), 0, "when there is, it is taken");
	ok(taken(map, 0) >= IMAGE, "all of it");
	fill(0);
	map_instance_begin(i);
	memset(image + 1, 1, IMAGE);
	map_instance_end(i, 1);
	is_int(map_lookup(m, &key, v), 0, "what is written then is read");
	ok(v[0] && v[0] % 0x0101010101010101 == 0, "with nothing left on the file system");
	map_close(m);
	map_instance_close(i);
	struct map_instance *other = NULL;
	is_int(make(map, &other, &image), -ENOSPC, "another one is refused at once");
	ok(taken(map, 1) == UINT64_MAX, "and leaves no file");
}

int main(void)
{
	struct diag d = { 0 };
	if (!mkdtemp(dir) || unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		mount("none", dir, "tmpfs", 0, "size=64m,mode=0700") || setenv("EGPU_DIR", dir, 1)) {
		rmdir(dir);
		printf("1..0 # SKIP no file systems can be mounted\n");
		return 0;
	}
	is_int(session_create(&s, &d), 0, "a session in 64 MiB (%s)", d.text);
	uint32_t per_cpu = add(BPF_MAP_TYPE_PERCPU_ARRAY, ENTRIES), small = add(BPF_MAP_TYPE_PERCPU_ARRAY, 64),
		 array = add(BPF_MAP_TYPE_ARRAY, IMAGE / 8);
	struct map_instance *i, *k;
	struct map_image *image;
	is_int(make(small, &i, &image), 0, "a small per-CPU map");
	ok(taken(small, 0) >= 64 * 8 * REPLICAS, "has its memory at once");
	is_int(map_instance_reserve(s, i), 0, "needs no more");
	is_int(make(array, &k, &image), 0, "an array");
	ok(taken(array, 0) >= IMAGE, "too, since the host's values are in it");
	map_instance_close(i);
	map_instance_close(k);
	values(per_cpu);
	session_destroy(s);
	umount2(dir, MNT_DETACH);
	rmdir(dir);
	return tap_done();
}
