/* Sessions on this machine: finding them, and removing those that nobody uses any more. */
#include "map/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

bool session_name_parse(const char *name, struct session_name *out)
{
	const char *p = name;
	*out = (struct session_name){ 0 };
	if (strncmp(p, "egpu-", 5))
		return false;
	p += 5;
	if (!parse_u64(&p, &out->uid) || *p++ != '-' || !parse_u64(&p, &out->pid) || *p++ != '-' ||
		!parse_u64(&p, &out->start))
		return false;
	if (*p == '-') {
		p++;
		if (!parse_u64(&p, &out->n))
			return false;
	}
	return !*p && out->pid && out->pid <= INT32_MAX;
}

/* Opens a directory of that name that belongs to the user in its name, who is us (root: anyone).
 * -1: not a session of ours. */
static int session_dir_open(int root, const char *name, struct session_name *id)
{
	struct stat st;
	if (!session_name_parse(name, id) || (id->uid != geteuid() && geteuid()))
		return -1;
	int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (file_stat(fd, &st) || st.st_uid != id->uid) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Agents by their rows. Read, not mapped: the file of a crashed loader can be short. */
static bool session_has_agents(int fd)
{
	struct session_agent rows[SESSION_MAX_AGENTS];
	if (file_read_at(fd, rows, sizeof(rows), offsetof(struct session_file, agents)))
		return false;
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (rows[i].pid && rows[i].pid <= INT32_MAX &&
			process_alive((pid_t)rows[i].pid, rows[i].start_time))
			return true;
	return false;
}

static bool maker_has_left(int fd)
{
	uint64_t magic, start;
	return !file_read_at(fd, &magic, sizeof(magic), offsetof(struct session_file, magic)) && magic == SESSION_MAGIC &&
	       !file_read_at(fd, &start, sizeof(start), offsetof(struct session_file, loader_start_time)) && !start;
}

/* Whether anything lives in it. On false, *lock is a descriptor that keeps others from opening it
 * meanwhile, or -1 when there is no session file. */
static bool session_in_use(int dir, const struct session_name *id, int *lock)
{
	*lock = -1;
	int fd = openat(dir, "session", O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	/* A maker that is alive may be half-way through making it. */
	if (process_alive((pid_t)id->pid, id->start) && !(fd >= 0 && maker_has_left(fd))) {
		if (fd >= 0)
			close(fd);
		return true;
	}
	if (fd < 0)
		return false;
	if ((flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) || session_has_agents(fd)) {
		close(fd);
		return true;
	}
	*lock = fd;
	return false;
}

static bool session_remove_dir(int root, const char *name, int dir)
{
	int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = copy < 0 ? NULL : fdopendir(copy);
	if (!list) {
		if (copy >= 0)
			close(copy);
		return false;
	}
	for (struct dirent *e; (e = readdir(list));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(dir, e->d_name, 0);
	closedir(list);
	return !unlinkat(root, name, AT_REMOVEDIR);
}

static int session_gc_root(const char *path)
{
	int n = 0;
	DIR *list = opendir(path);
	if (!list)
		return 0;
	int root = dirfd(list);
	for (struct dirent *e; (e = readdir(list));) {
		struct session_name id;
		int lock, dir = session_dir_open(root, e->d_name, &id);
		if (dir < 0)
			continue;
		if (!session_in_use(dir, &id, &lock)) {
			n += session_remove_dir(root, e->d_name, dir);
			if (lock >= 0)
				close(lock);
		}
		close(dir);
	}
	closedir(list);
	return n;
}

int session_gc(void)
{
	const char *roots[2];
	int n = 0, n_roots = session_roots(roots);
	for (int i = 0; i < n_roots; i++)
		n += session_gc_root(roots[i]);
	return n;
}

static void session_remove(const char *root, const char *name)
{
	int up = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int dir = up < 0 ? -1 : openat(up, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir >= 0) {
		session_remove_dir(up, name, dir);
		close(dir);
	}
	if (up >= 0)
		close(up);
}

void session_destroy(struct session *s)
{
	if (!s)
		return;
	char root[SESSION_PATH_BYTES];
	snprintf(root, sizeof(root), "%s", s->path);
	char *slash = strrchr(root, '/');
	*slash = '\0';
	const char *up = root[0] ? root : "/";
	/* Others read their maps when the program has ended. Whoever leaves last finds that nobody lives in it, wherever it is. */
	if (s->maker == getpid() && !session_leave_to_others(s))
		session_remove(up, slash + 1);
	session_close(s);
	session_gc_root(up);
}

struct found {
	struct session_name id;
	char path[256];
};

static int newest_first(const void *a, const void *b)
{
	const struct session_name *x = &((const struct found *)a)->id,
				  *y = &((const struct found *)b)->id;
	if (x->start != y->start)
		return x->start < y->start ? 1 : -1;
	if (x->pid != y->pid)
		return x->pid < y->pid ? 1 : -1;
	return x->n < y->n ? 1 : x->n > y->n ? -1 : 0;
}

static void session_list_root(const char *path, struct found **all, size_t *n, size_t *cap)
{
	DIR *list = opendir(path);
	if (!list)
		return;
	for (struct dirent *e; (e = readdir(list));) {
		struct found f;
		int dir = session_dir_open(dirfd(list), e->d_name, &f.id);
		if (dir < 0)
			continue;
		close(dir);
		if (*n == *cap) {
			size_t more = *cap ? *cap * 2 : 16;
			struct found *p = realloc(*all, more * sizeof(*p));
			if (!p)
				break;
			*all = p;
			*cap = more;
		}
		int len = snprintf(f.path, sizeof(f.path), "%s/%s", path, e->d_name);
		if (len > 0 && (size_t)len < sizeof(f.path))
			(*all)[(*n)++] = f;
	}
	closedir(list);
}

int session_list(char (*dirs)[256], int max)
{
	const char *roots[2];
	struct found *all = NULL;
	size_t n = 0, cap = 0;
	int n_roots = session_roots(roots);
	for (int i = 0; i < n_roots; i++)
		session_list_root(roots[i], &all, &n, &cap);
	if (n)
		qsort(all, n, sizeof(*all), newest_first);
	for (size_t i = 0; i < n && i < (size_t)(max > 0 ? max : 0); i++)
		memcpy(dirs[i], all[i].path, sizeof(all[i].path));
	free(all);
	return (int)n;
}
