/* Several loaders in one session: who they are, and when what they added may go. */
#include "map/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t session_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The lock of the directory: the one of the file `session` says who lives in it. */
int session_lock(struct session *s)
{
	int fd = open(s->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		while (flock(fd, LOCK_EX) && errno == EINTR)
			;
	return fd;
}

void session_unlock(int lock)
{
	if (lock >= 0)
		close(lock);
}

/* Agents sleep on the lower half of the generation. */
void session_wake(struct session *s)
{
	syscall(SYS_futex, &s->file->generation, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* -- clients ------------------------------------------------------------------------ */

/* A client holds a lock on a byte of the file `session` as long as it lives: so it can be seen from another pid
 * namespace too, where its number says nothing. */
#define CLIENT_LOCKS ((off_t)1 << 40)

static int client_lock(const struct session *s, uint32_t i, int how, struct flock *lock)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	int fd = session_file_path(s, path, "session") ? -1 : file_open(path, O_RDWR, s->owner, &size);
	*lock = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = CLIENT_LOCKS + i, .l_len = 1 };
	if (fd >= 0 && fcntl(fd, how, lock)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static bool client_holds_lock(const struct session *s, uint32_t i)
{
	struct flock lock;
	int fd = client_lock(s, i, F_OFD_GETLK, &lock);
	if (fd >= 0)
		close(fd);
	return fd < 0 || lock.l_type != F_UNLCK;
}

static bool row_alive(const struct session *s, uint32_t i, const struct session_client *c)
{
	if (!c->pid || __atomic_load_n(&c->ended, __ATOMIC_ACQUIRE))
		return false;
	if (process_is_foreign())
		return !c->locked || client_holds_lock(s, i);
	return process_alive((pid_t)c->pid, c->start_time);
}

static bool client_alive(const struct session *s, uint32_t i)
{
	return row_alive(s, i, &s->file->clients[i]);
}

int session_claim_client(struct session *s, const char *probe)
{
	for (uint32_t i = 0; i < SESSION_MAX_CLIENTS; i++) {
		struct session_client *c = &s->file->clients[i];
		if (c->pid)
			continue;
		struct flock lock;
		c->ended = 0;
		c->stays = 0;
		if (s->client_fd > 0)
			close(s->client_fd);
		s->client_fd = client_lock(s, i, F_OFD_SETLK, &lock);
		c->locked = s->client_fd >= 0;
		process_start_time(getpid(), &c->start_time);
		snprintf(c->probe, sizeof(c->probe), "%s", probe);
		__atomic_store_n(&c->pid, (uint32_t)getpid(), __ATOMIC_RELEASE);
		s->client = i + 1;
		return 0;
	}
	return -ENOSPC;
}

int session_enter(struct session *s, const char *probe, struct diag *d)
{
	session_recycle(s);
	int lock = session_lock(s);
	int err = session_claim_client(s, probe);
	session_unlock(lock);
	return err ? diag_set(d, -err, "too many probes at once: a session holds %d",
			     SESSION_MAX_CLIENTS)
		   : 0;
}

/* Read, not mapped: the file may have been cut off. */
static bool others_in(const struct session *s, int fd)
{
	struct session_client rows[SESSION_MAX_CLIENTS];
	if (file_read_at(fd, rows, sizeof(rows), offsetof(struct session_file, clients)))
		return false;
	for (uint32_t i = 0; i < SESSION_MAX_CLIENTS; i++)
		if (i + 1 != s->client && row_alive(s, i, &rows[i]))
			return true;
	return false;
}

bool session_leave_to_others(const struct session *s)
{
	char path[SESSION_FILE_PATH_BYTES];
	const uint64_t left = 0;
	uint64_t size;
	int fd = session_file_path(s, path, "session") ? -1 : file_open(path, O_RDWR, s->owner, &size);
	bool others = fd >= 0 && others_in(s, fd) &&
		      !file_write_at(fd, &left, sizeof(left), offsetof(struct session_file, loader_start_time));
	if (fd >= 0)
		close(fd);
	return others;
}

void session_stay(struct session *s)
{
	if (s->client)
		__atomic_store_n(&s->file->clients[s->client - 1].stays, 1, __ATOMIC_RELEASE);
}

int session_reap(struct session *s)
{
	int n = 0;
	for (uint32_t i = 1; i <= SESSION_MAX_CLIENTS; i++) {
		const struct session_client *c = &s->file->clients[i - 1];
		if (c->pid && !c->stays && !client_alive(s, i - 1))
			n += session_detach_client(s, i);
	}
	return n;
}

uint32_t session_client_number(const struct session *s)
{
	return s->client;
}

void session_end_client(struct session *s)
{
	if (s->client)
		__atomic_store_n(&s->file->clients[s->client - 1].ended, 1, __ATOMIC_RELEASE);
	session_recycle(s);
	s->client = 0;
	if (s->client_fd > 0)
		close(s->client_fd);
	s->client_fd = 0;
}

int session_detach_client(struct session *s, uint32_t client)
{
	int n = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (!client || s->file->links[i].owner == client)
			n += !session_detach_link(s, i);
	return n;
}

/* -- what agents are through with ------------------------------------------------------ */

static uint64_t least(const struct session *s, bool drained)
{
	uint64_t min = UINT64_MAX;
	for (uint32_t i = 0; i < SESSION_MAX_AGENTS; i++) {
		const struct session_agent *a = &s->file->agents[i];
		uint32_t pid = __atomic_load_n(&a->pid, __ATOMIC_ACQUIRE);
		if (!pid || __atomic_load_n(&a->ended, __ATOMIC_ACQUIRE) ||
			!process_alive((pid_t)pid, a->start_time))
			continue;
		uint64_t at = __atomic_load_n(drained ? &a->drained : &a->seen, __ATOMIC_ACQUIRE);
		min = at < min ? at : min;
	}
	return min;
}

bool session_seen(const struct session *s)
{
	return least(s, false) >= __atomic_load_n(&s->file->generation, __ATOMIC_ACQUIRE);
}

bool session_drained(struct session *s, int ms)
{
	uint64_t generation = __atomic_load_n(&s->file->generation, __ATOMIC_ACQUIRE);
	for (; least(s, true) < generation; ms--) {
		if (ms <= 0)
			return false;
		file_sleep_ms(1);
	}
	return true;
}

/* -- recycling ------------------------------------------------------------------------- */

/* Nobody stands behind these rows, no link of them is attached, and no agent refers to one. */
static bool client_over(const struct session *s, uint32_t client, uint64_t drained)
{
	const struct session_client *c = &s->file->clients[client - 1];
	if (!c->pid || client_alive(s, client - 1))
		return false;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &s->file->links[i];
		if (l->owner != client || l->state == SESSION_LINK_FREE)
			continue;
		if (l->state == SESSION_LINK_ATTACHED || l->changed > drained)
			return false;
	}
	return true;
}

static void unlink_prog(const struct session *s, uint32_t id)
{
	char path[SESSION_FILE_PATH_BYTES];
	if (!session_file_path(s, path, "prog-%u.frag", id))
		unlink(path);
}

/* NULL: they cannot be listed. */
static DIR *session_files(const struct session *s)
{
	int fd = open(s->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	if (!list && fd >= 0)
		close(fd);
	return list;
}

void session_unlink_map(const struct session *s, uint32_t id)
{
	char prefix[32], ring[32], raw[32];
	DIR *list = session_files(s);
	if (!list)
		return;
	int n = snprintf(prefix, sizeof(prefix), "map-%u", id);
	snprintf(ring, sizeof(ring), "ring-%u", id);
	snprintf(raw, sizeof(raw), "raw-%u", id);
	for (struct dirent *e; (e = readdir(list));)
		if (!strcmp(e->d_name, ring) || !strcmp(e->d_name, raw) ||
			(!strncmp(e->d_name, prefix, (size_t)n) &&
				(!e->d_name[n] || e->d_name[n] == '.')))
			unlinkat(dirfd(list), e->d_name, 0);
	closedir(list);
}

/* btf-ID of its range. */
static void unlink_btf(const struct session *s, uint32_t client)
{
	DIR *list = session_files(s);
	if (!list)
		return;
	for (struct dirent *e; (e = readdir(list));) {
		const char *p = e->d_name + 4;
		uint64_t id;
		if (!strncmp(e->d_name, "btf-", 4) && parse_u64(&p, &id) && !*p && id &&
			(id - 1) / SESSION_CLIENT_IDS == client - 1)
			unlinkat(dirfd(list), e->d_name, 0);
	}
	closedir(list);
}

static int free_client(struct session *s, uint32_t client)
{
	struct session_file *f = s->file;
	int n = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (f->links[i].owner == client && f->links[i].state != SESSION_LINK_FREE) {
			__atomic_store_n(&f->links[i].state, SESSION_LINK_FREE, __ATOMIC_RELEASE);
			n++;
		}
	for (uint32_t i = 0; i < SESSION_MAX_PROGS; i++)
		if (f->progs[i].used && f->progs[i].owner == client) {
			unlink_prog(s, i);
			__atomic_store_n(&f->progs[i].used, 0, __ATOMIC_RELEASE);
		}
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (f->maps[i].used && f->maps[i].owner == client)
			session_remove_map(s, i);
	unlink_btf(s, client);
	__atomic_store_n(&f->clients[client - 1].pid, 0, __ATOMIC_RELEASE);
	return n;
}

/* Programs for running kernels have a link each; a loader may attach and detach more of them than there are rows. */
void session_recycle_links(struct session *s)
{
	int lock = session_lock(s);
	uint64_t drained = least(s, true);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		struct session_link *l = &s->file->links[i];
		if (!l->live || l->state != SESSION_LINK_DETACHED || l->changed > drained || !l->released || l->prog >= SESSION_MAX_PROGS)
			continue;
		unlink_prog(s, l->prog);
		__atomic_store_n(&s->file->progs[l->prog].used, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&l->state, SESSION_LINK_FREE, __ATOMIC_RELEASE);
	}
	session_unlock(lock);
}

int session_recycle(struct session *s)
{
	session_reap(s);
	int n = 0, lock = session_lock(s);
	uint64_t drained = least(s, true);
	for (uint32_t i = 1; i <= SESSION_MAX_CLIENTS; i++)
		if (client_over(s, i, drained))
			n += free_client(s, i);
	session_unlock(lock);
	return n;
}

/* -- finding --------------------------------------------------------------------------- */

static bool has_process(const struct session *s, pid_t pid)
{
	for (uint32_t i = 0; i < SESSION_MAX_AGENTS; i++) {
		const struct session_agent *a = &s->file->agents[i];
		if (a->pid == (uint32_t)pid && !a->ended && process_alive(pid, a->start_time))
			return true;
	}
	return false;
}

/* Whether a process has the file of a session, of whatever version, mapped. */
static bool has_mapped(pid_t pid, const char *dir)
{
	char path[32], *line = NULL, want[SESSION_FILE_PATH_BYTES];
	const char *name = strrchr(dir, '/');
	size_t cap = 0;
	bool found = false;
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	/* What lies above it is another path in a container. */
	snprintf(want, sizeof(want), "%s/session\n", name ? name : dir);
	FILE *f = fopen(path, "re");
	for (size_t n = strlen(want); f && !found && getline(&line, &cap, f) > 0;) {
		size_t have = strlen(line);
		found = have >= n && !strcmp(line + have - n, want);
	}
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* A process that has begun another program has left the agent behind which had come to it, and the row says nothing of it any more. One
 * that egpu run has started brings its agent along. */
static void forget_if_left(struct session *s, pid_t pid, const char *dir)
{
	char maps[32];
	snprintf(maps, sizeof(maps), "/proc/%d/maps", (int)pid);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++) {
		struct session_agent *row = &s->file->agents[i];
		uint32_t was = (uint32_t)pid;
		if (__atomic_load_n(&row->pid, __ATOMIC_ACQUIRE) != was || !row->late || access(maps, R_OK) || has_mapped(pid, dir))
			continue;
		__atomic_store_n(&row->start_time, 0, __ATOMIC_RELEASE);
		__atomic_compare_exchange_n(&row->pid, &was, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
}

int session_of_process(pid_t pid, struct session **out, struct diag *d)
{
	enum { MAX = 256 };
	char(*dirs)[256] = calloc(MAX, sizeof(*dirs));
	int n = dirs ? session_list(dirs, MAX) : 0, err = -ESRCH;
	for (int i = 0; i < n && i < MAX && err == -ESRCH; i++) {
		struct session *s;
		int open = session_open(dirs[i], &s, NULL);
		if (open == -EPROTO && has_mapped(pid, dirs[i]))
			err = diag_set(d, EPROTO, "process %d is in session %s, which was made by another version of egpu", (int)pid, dirs[i]);
		if (open)
			continue;
		forget_if_left(s, pid, dirs[i]);
		if (has_process(s, pid)) {
			*out = s;
			err = 0;
		} else {
			session_close(s);
		}
	}
	free(dirs);
	return err == -ESRCH ? diag_set(d, ESRCH, "process %d is in no session", (int)pid) : err;
}
