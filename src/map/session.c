#include "map/internal.h"
#include "session_version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "map/map.h"

int session_roots(const char *roots[2])
{
	const char *own = getenv("EGPU_DIR");
	if (own && own[0] == '/' && strlen(own) < SESSION_PATH_BYTES - 96) {
		roots[0] = own;
		return 1;
	}
	roots[0] = "/dev/shm";
	roots[1] = "/tmp";
	return 2;
}

int session_file_path(
	const struct session *s, char out[SESSION_FILE_PATH_BYTES], const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(out, SESSION_FILE_PATH_BYTES, "%s/", s->path);
	va_start(ap, fmt);
	int more = vsnprintf(out + n, (size_t)(SESSION_FILE_PATH_BYTES - n), fmt, ap);
	va_end(ap);
	return more < 0 || n + more >= SESSION_FILE_PATH_BYTES ? -ENAMETOOLONG : 0;
}

/* -- life of the directory -- */

/* Maps the file and keeps a shared lock: flock belongs to the open description, which the mapping
 * keeps alive after close, in forked children too. -EAGAIN: session_gc is about to remove it. */
static int session_map_file(int fd, struct session_file **out)
{
	if (flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK)
		return -EAGAIN;
	void *p =
		mmap(NULL, sizeof(struct session_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	*out = p;
	return 0;
}

/* Everything before the growing tables is written without asking again, so its memory is taken at
 * once. */
static int session_file_new(struct session *s)
{
	char path[SESSION_FILE_PATH_BYTES];
	int err = session_file_path(s, path, "session");
	if (err)
		return err;
	int fd = file_create(path, sizeof(struct session_file), false);
	if (fd < 0)
		return fd;
	err = file_reserve(fd, 0, offsetof(struct session_file, kernels));
	if (!err)
		err = session_map_file(fd, &s->file);
	close(fd);
	if (err)
		unlink(path);
	return err;
}

static int session_dir_new(struct session *s, const char *root, uint64_t start)
{
	for (int n = 0; n < 1000; n++) {
		int len = snprintf(s->path, sizeof(s->path), "%s/egpu-%u-%d-%llu", root,
			(unsigned)geteuid(), (int)getpid(), (unsigned long long)start);
		if (n)
			snprintf(s->path + len, sizeof(s->path) - (size_t)len, "-%d", n);
		if (!mkdir(s->path, 0700))
			return 0;
		if (errno != EEXIST)
			return -errno;
	}
	return -EEXIST;
}

static int session_create_in(struct session *s, const char *root, uint64_t start)
{
	int err = session_dir_new(s, root, start);
	if (err)
		return err;
	/* mkdir obeys the umask, which may be stricter than 0700 asks for. */
	err = chmod(s->path, 0700) ? -errno : session_file_new(s);
	if (err)
		rmdir(s->path);
	return err;
}

int session_create(struct session **out, struct diag *d)
{
	const char *roots[2];
	int n = session_roots(roots), err = -ENOENT;
	uint64_t start = 0;
	struct session *s = calloc(1, sizeof(*s));
	if (!s)
		return diag_set(d, ENOMEM, "out of memory");
	process_start_time(getpid(), &start);
	for (int i = 0; i < n && err; i++)
		err = session_create_in(s, roots[i], start);
	if (err) {
		free(s);
		return diag_set(d, -err,
			"cannot make a session in %s%s: %s; set EGPU_DIR to a directory %s",
			roots[0], n > 1 ? " or /tmp" : "", strerror(-err), err == -ENOSPC ? "with more room" : "you can write to");
	}
	s->owner = geteuid();
	s->maker = getpid();
	struct session_file *f = s->file;
	f->version = SESSION_VERSION;
	f->size_of_file = sizeof(*f);
	f->loader_pid = (uint32_t)s->maker;
	f->loader_start_time = start;
	f->strings_used = 1;
	session_claim_client(s, "");
	__atomic_store_n(&f->magic, SESSION_MAGIC, __ATOMIC_RELEASE);
	*out = s;
	return 0;
}

static int session_check_dir(const char *dir, uid_t *owner)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	struct stat st;
	int err = file_stat(fd, &st);
	close(fd);
	if (err)
		return err;
	if ((st.st_uid != geteuid() && geteuid()) || (st.st_mode & 077))
		return -EPERM;
	*owner = st.st_uid;
	return 0;
}

static int session_check_file(const struct session_file *f)
{
	if (__atomic_load_n(&f->magic, __ATOMIC_ACQUIRE) != SESSION_MAGIC)
		return -EINVAL;
	return f->version == SESSION_VERSION && f->size_of_file == sizeof(*f) ? 0 : -EPROTO;
}

static int session_open_file(struct session *s)
{
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t size;
	int err = session_file_path(s, path, "session");
	if (err)
		return err;
	int fd = file_open(path, O_RDWR, s->owner, &size);
	if (fd < 0)
		return fd;
	err = size == sizeof(struct session_file) ? session_map_file(fd, &s->file) : -EPROTO;
	close(fd);
	if (err)
		return err;
	err = session_check_file(s->file);
	if (err)
		munmap(s->file, sizeof(*s->file));
	return err;
}

static const char *session_open_reason(int err)
{
	switch (err) {
	case -ENOENT:
	case -EAGAIN:
		return "it does not exist any more";
	case -EPERM:
	case -ELOOP:
		return "it or its owner or mode is not that of a session";
	case -EACCES:
		return "it belongs to another user";
	case -EPROTO:
		return "it was made by another version of egpu";
	case -EINVAL:
		return "it is not complete";
	default:
		return strerror(-err);
	}
}

int session_open(const char *dir, struct session **out, struct diag *d)
{
	struct session *s = calloc(1, sizeof(*s));
	if (!s)
		return diag_set(d, ENOMEM, "out of memory");
	size_t len = strlen(dir);
	while (len > 1 && dir[len - 1] == '/')
		len--;
	int err = len && len < sizeof(s->path) ? 0 : -ENAMETOOLONG;
	if (!err) {
		memcpy(s->path, dir, len);
		err = session_check_dir(s->path, &s->owner);
	}
	if (!err)
		err = session_open_file(s);
	if (err) {
		free(s);
		return diag_set(
			d, -err, "cannot open session %s: %s", dir, session_open_reason(err));
	}
	*out = s;
	return 0;
}

static void session_unmap(struct session *s)
{
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		map_ring_forget(s->rings[i]);
	for (struct ring_mapping *r = s->retired, *next; r; r = next) {
		next = r->next;
		map_ring_forget(r);
	}
	munmap(s->file, sizeof(*s->file));
	free(s);
}

void session_close(struct session *s)
{
	if (s && s->client_fd > 0)
		close(s->client_fd);
	if (s)
		session_unmap(s);
}

const char *session_path(const struct session *s)
{
	return s->path;
}

struct session_file *session_data(struct session *s)
{
	return s->file;
}

/* -- texts -- */

/* Takes the memory behind [offset, offset + bytes) of the session file. A hole written through the
 * mapping when the file system is full would be SIGBUS in the target. The file is opened anew each
 * time because a descriptor kept in a target would not survive a program that closes all it does
 * not know. */
static int session_reserve(struct session *s, uint64_t offset, uint64_t bytes)
{
	uint64_t first = offset / SESSION_GRANULE, last = (offset + bytes - 1) / SESSION_GRANULE;
	int fd = -1, err = 0;
	for (uint64_t g = first; g <= last && !err; g++) {
		uint64_t bit = 1ull << (g % 64), at = g * SESSION_GRANULE;
		if (__atomic_load_n(&s->reserved[g / 64], __ATOMIC_RELAXED) & bit)
			continue;
		if (fd < 0) {
			char path[SESSION_FILE_PATH_BYTES];
			uint64_t size;
			err = session_file_path(s, path, "session");
			fd = err ? err : file_open(path, O_RDWR, s->owner, &size);
			if (fd < 0)
				return fd;
		}
		uint64_t n = sizeof(struct session_file) - at;
		err = file_reserve(fd, at, n < SESSION_GRANULE ? n : SESSION_GRANULE);
		if (!err)
			__atomic_fetch_or(&s->reserved[g / 64], bit, __ATOMIC_RELAXED);
	}
	if (fd >= 0)
		close(fd);
	return err;
}

/* Adds n to a counter that must not pass max: its old value, or UINT32_MAX. */
static uint32_t session_take(uint32_t *counter, uint32_t n, uint32_t max)
{
	uint32_t old = __atomic_load_n(counter, __ATOMIC_RELAXED);
	do {
		if (old > max || n > max - old)
			return UINT32_MAX;
	} while (!__atomic_compare_exchange_n(
		counter, &old, old + n, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
	return old;
}

const char *session_text(const struct session *s, session_string at)
{
	if (at >= SESSION_STRING_BYTES ||
		!memchr(s->file->strings + at, '\0', SESSION_STRING_BYTES - at))
		return "";
	return s->file->strings + at;
}

static uint32_t session_text_hash(const char *text, size_t len)
{
	uint32_t h = 0x811c9dc5u;
	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)text[i]) * 0x01000193u;
	return (h ^ h >> 15) % SESSION_TEXT_CACHE;
}

session_string session_add_text(struct session *s, const char *text)
{
	size_t len = strlen(text);
	if (!len || len >= SESSION_TEXT_MAX)
		return 0;
	uint32_t *cached = &s->text_cache[session_text_hash(text, len)];
	uint32_t at = __atomic_load_n(cached, __ATOMIC_ACQUIRE);
	if (at && at < SESSION_STRING_BYTES - len && !memcmp(s->file->strings + at, text, len + 1))
		return at;
	at = session_take(&s->file->strings_used, (uint32_t)len + 1, SESSION_STRING_BYTES);
	if (at == UINT32_MAX || !at)
		return 0;
	if (session_reserve(s, offsetof(struct session_file, strings) + at, len + 1))
		return 0;
	memcpy(s->file->strings + at, text, len + 1);
	__atomic_store_n(cached, at, __ATOMIC_RELEASE);
	return at;
}

/* -- programs and links: written by the loader -- */

static int add_prog(struct session *s, const char *fragment_text, size_t size, const char *name,
	enum ebpf_point point, bool warp, uint32_t *id, struct diag *d)
{
	struct session_file *f = s->file;
	uint32_t i = 0;
	while (i < SESSION_MAX_PROGS && f->progs[i].used)
		i++;
	if (i == SESSION_MAX_PROGS)
		return diag_set(
			d, ENOSPC, "too many programs: a session holds %d", SESSION_MAX_PROGS);
	if (size > SESSION_FRAGMENT_MAX)
		return diag_set(d, E2BIG, "program %s is too large", name);
	char path[SESSION_FILE_PATH_BYTES];
	int err = session_file_path(s, path, "prog-%u.frag", i);
	if (!err)
		unlink(path); /* of a loader that was killed here */
	int fd = err ? err : file_create(path, 0, false);
	if (fd < 0)
		return diag_set(
			d, -fd, "cannot store program %s in %s: %s", name, s->path, strerror(-fd));
	err = file_write_at(fd, fragment_text, size, 0);
	close(fd);
	if (err) {
		unlink(path);
		return diag_set(d, -err, "cannot store program %s in %s: %s", name, s->path,
			strerror(-err));
	}
	struct session_prog *p = &f->progs[i];
	p->point = point;
	p->warp = warp;
	p->owner = s->client;
	snprintf(p->name, sizeof(p->name), "%s", name);
	__atomic_store_n(&p->used, 1, __ATOMIC_RELEASE);
	*id = i;
	return 0;
}

int session_add_prog(struct session *s, const char *fragment_text, size_t size, const char *name,
	enum ebpf_point point, bool warp, uint32_t *id, struct diag *d)
{
	int lock = session_lock(s);
	int err = add_prog(s, fragment_text, size, name, point, warp, id, d);
	session_unlock(lock);
	return err;
}

int session_read_prog(struct session *s, uint32_t prog, char **text, size_t *size)
{
	if (prog >= SESSION_MAX_PROGS ||
		!__atomic_load_n(&s->file->progs[prog].used, __ATOMIC_ACQUIRE))
		return -ENOENT;
	char path[SESSION_FILE_PATH_BYTES];
	uint64_t bytes;
	int err = session_file_path(s, path, "prog-%u.frag", prog);
	if (err)
		return err;
	int fd = file_open(path, O_RDONLY, s->owner, &bytes);
	if (fd < 0)
		return fd;
	char *p = bytes <= SESSION_FRAGMENT_MAX ? malloc((size_t)bytes + 1) : NULL;
	err = p                               ? file_read_at(fd, p, (size_t)bytes, 0)
	      : bytes <= SESSION_FRAGMENT_MAX ? -ENOMEM
					      : -E2BIG;
	close(fd);
	if (err) {
		free(p);
		return err;
	}
	p[bytes] = '\0';
	*text = p;
	*size = (size_t)bytes;
	return 0;
}

/* Agents see the new state with the new generation. Under the lock. */
static void link_changed(struct session *s, struct session_link *l, uint32_t state)
{
	uint64_t next = __atomic_load_n(&s->file->generation, __ATOMIC_RELAXED) + 1;
	__atomic_store_n(&l->changed, next, __ATOMIC_RELAXED);
	l->since_ns = session_now_ns();
	__atomic_store_n(&l->state, state, __ATOMIC_RELEASE);
	__atomic_store_n(&s->file->generation, next, __ATOMIC_RELEASE);
	session_wake(s);
}

static int add_link(struct session *s, uint32_t prog, enum ebpf_point point, bool warp, bool live,
	const char *pattern, uint32_t *id, struct diag *d)
{
	struct session_file *f = s->file;
	if (prog >= SESSION_MAX_PROGS || !f->progs[prog].used)
		return diag_set(d, ENOENT, "no program %u in the session", prog);
	if (strlen(pattern) >= SESSION_PATTERN_BYTES)
		return diag_set(d, E2BIG, "a kernel pattern of %zu bytes: the longest is %d",
			strlen(pattern), SESSION_PATTERN_BYTES - 1);
	uint32_t i = 0;
	while (i < SESSION_MAX_LINKS && f->links[i].state != SESSION_LINK_FREE)
		i++;
	if (i == SESSION_MAX_LINKS)
		return diag_set(d, ENOSPC, "too many links: a session holds %d", SESSION_MAX_LINKS);
	struct session_link *l = &f->links[i];
	l->prog = prog;
	l->point = point;
	l->warp = warp;
	l->live = live;
	l->armed = l->unheard = l->inside = l->why = l->released = 0;
	l->matched = 0;
	l->owner = s->client;
	memcpy(l->pattern, pattern, strlen(pattern) + 1);
	link_changed(s, l, SESSION_LINK_ATTACHED);
	*id = i;
	return 0;
}

int session_add_link(struct session *s, uint32_t prog, enum ebpf_point point, bool warp,
	const char *pattern, uint32_t *id, struct diag *d)
{
	int lock = session_lock(s);
	int err = add_link(s, prog, point, warp, false, pattern, id, d);
	session_unlock(lock);
	return err;
}

int session_add_live_link(struct session *s, const void *object, size_t size, const char *name, enum ebpf_point point, bool warp,
	const char *pattern, uint32_t *id, struct diag *d)
{
	uint32_t prog;
	session_recycle_links(s);
	int err = session_add_prog(s, object, size, name, point, warp, &prog, d);
	if (err)
		return err;
	s->file->progs[prog].live = 1;
	int lock = session_lock(s);
	err = add_link(s, prog, point, warp, true, pattern, id, d);
	session_unlock(lock);
	return err;
}

int session_detach_link(struct session *s, uint32_t link)
{
	if (link >= SESSION_MAX_LINKS)
		return -ENOENT;
	int lock = session_lock(s);
	struct session_link *l = &s->file->links[link];
	bool attached = __atomic_load_n(&l->state, __ATOMIC_ACQUIRE) == SESSION_LINK_ATTACHED;
	if (attached)
		link_changed(s, l, SESSION_LINK_DETACHED);
	session_unlock(lock);
	return attached ? 0 : -ENOENT;
}

void session_release_link(struct session *s, uint32_t link)
{
	if (link < SESSION_MAX_LINKS)
		__atomic_store_n(&s->file->links[link].released, 1, __ATOMIC_RELEASE);
}

/* -- agents, kernels, sites: written by agents of several processes -- */

/* The row of a dead agent. Its start time goes first: whoever comes now would find the new process not to be the one that began then, and
 * take the row from it. */
static bool take_over(struct session_agent *row, pid_t pid)
{
	uint32_t old = __atomic_load_n(&row->pid, __ATOMIC_ACQUIRE);
	uint64_t was = __atomic_load_n(&row->start_time, __ATOMIC_ACQUIRE);
	if (process_alive((pid_t)old, was))
		return false;
	__atomic_compare_exchange_n(&row->start_time, &was, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	return __atomic_compare_exchange_n(&row->pid, &old, (uint32_t)pid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* What the row said of who had it before. */
static void forget_agent(struct session_agent *row)
{
	row->late = row->hooked = 0;
	row->trouble = 0;
	row->syncs = row->clock_error_ns = row->graphs_unseen = 0;
	row->holds = row->held_ns = row->held_max_ns = 0;
}

int session_join(struct session *s, pid_t pid)
{
	struct session_agent *rows = s->file->agents, *mine = NULL;
	uint64_t start = 0;
	process_start_time(pid, &start);
	/* A process that called exec has a row already. Then free rows, then those of the dead. */
	for (int i = 0; i < SESSION_MAX_AGENTS && !mine; i++)
		if (__atomic_load_n(&rows[i].pid, __ATOMIC_ACQUIRE) == (uint32_t)pid)
			mine = &rows[i];
	for (int i = 0; i < SESSION_MAX_AGENTS && !mine; i++) {
		uint32_t none = 0;
		if (__atomic_compare_exchange_n(&rows[i].pid, &none, (uint32_t)pid, false,
			    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			mine = &rows[i];
	}
	for (int i = 0; i < SESSION_MAX_AGENTS && !mine; i++)
		if (take_over(&rows[i], pid))
			mine = &rows[i];
	if (!mine)
		return -ENOSPC;
	uint64_t generation = __atomic_load_n(&s->file->generation, __ATOMIC_ACQUIRE);
	__atomic_store_n(&mine->seen, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&mine->drained, generation, __ATOMIC_RELAXED);
	struct session_blackbox *box = &s->file->boxes[mine - rows];
	if (!mine->has_box && session_reserve(s, offsetof(struct session_file, boxes) + (size_t)(mine - rows) * sizeof(*box), sizeof(*box))) {
		__atomic_store_n(&mine->pid, 0, __ATOMIC_RELEASE);
		return -ENOSPC;
	}
	mine->has_box = 1;
	forget_agent(mine);
	memset(box, 0, sizeof(*box));
	__atomic_store_n(&mine->ended, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&mine->start_time, start, __ATOMIC_RELEASE);
	return 0;
}

void session_leave(struct session *s, pid_t pid)
{
	struct session_agent *rows = s->file->agents;
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (__atomic_load_n(&rows[i].pid, __ATOMIC_ACQUIRE) == (uint32_t)pid)
			__atomic_store_n(&rows[i].ended, 1, __ATOMIC_RELEASE);
}

/* The name of a row, waiting a little (*patience naps) for the process that has just claimed it. */
static session_string session_kernel_name(const struct session_kernel *k, int *patience)
{
	session_string name;
	while (!(name = __atomic_load_n(&k->name, __ATOMIC_ACQUIRE)) && *patience > 0) {
		uint32_t pid = __atomic_load_n(&k->pid, __ATOMIC_RELAXED);
		if (pid && !process_alive((pid_t)pid, 0))
			break;
		file_sleep_ms(--*patience > 50 ? 0 : 1);
	}
	return name;
}

static bool session_find_kernel(struct session *s, uint64_t image_hash, const char *name,
	uint32_t from, uint32_t to, uint32_t *id)
{
	int patience = 60;
	for (uint32_t i = from; i < to; i++) {
		const struct session_kernel *k = &s->file->kernels[i];
		session_string at = session_kernel_name(k, &patience);
		if (at && k->image_hash == image_hash && !strcmp(session_text(s, at), name)) {
			*id = i;
			return true;
		}
	}
	return false;
}

int session_add_kernel(
	struct session *s, uint64_t image_hash, const char *name, uint32_t *id, bool *created)
{
	struct session_file *f = s->file;
	uint32_t seen = 0, n = __atomic_load_n(&f->n_kernels, __ATOMIC_ACQUIRE);
	session_string text = 0;
	*created = false;
	/* A row is claimed only when all rows before it have been looked at, so two processes
	 * cannot claim one kernel twice. */
	for (;;) {
		if (n > SESSION_MAX_KERNELS)
			n = SESSION_MAX_KERNELS;
		if (session_find_kernel(s, image_hash, name, seen, n, id))
			return 0;
		seen = n;
		if (n == SESSION_MAX_KERNELS)
			break;
		if (!text) {
			text = session_add_text(s, name);
			if (!text)
				break;
		}
		if (session_reserve(s,
			    offsetof(struct session_file, kernels) + n * sizeof(*f->kernels),
			    sizeof(*f->kernels)))
			break;
		if (__atomic_compare_exchange_n(
			    &f->n_kernels, &n, n + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
			struct session_kernel *k = &f->kernels[n];
			__atomic_store_n(&k->pid, (uint32_t)process_self(), __ATOMIC_RELAXED);
			k->image_hash = image_hash;
			__atomic_store_n(&k->name, text, __ATOMIC_RELEASE);
			*id = n;
			*created = true;
			return 0;
		}
	}
	__atomic_fetch_add(&f->kernels_lost, 1, __ATOMIC_RELAXED);
	return -ENOSPC;
}

struct session_shape *session_add_shape(struct session *s, const struct session_shape *like)
{
	struct session_file *f = s->file;
	uint32_t at = session_take(&f->n_shapes, 1, SESSION_MAX_SHAPES);
	if (at == UINT32_MAX ||
		session_reserve(s, offsetof(struct session_file, shapes) + at * sizeof(*f->shapes), sizeof(*f->shapes)))
		return NULL;
	struct session_shape *row = &f->shapes[at];
	*row = *like;
	row->pid = (uint32_t)process_self();
	row->kernel = 0;
	__atomic_store_n(&row->kernel, like->kernel + 1, __ATOMIC_RELEASE);
	return row;
}

int session_add_sites(struct session *s, uint32_t n, uint32_t *first)
{
	struct session_file *f = s->file;
	uint32_t at = n ? session_take(&f->n_sites, n, SESSION_MAX_SITES) : 0;
	if (at != UINT32_MAX && n &&
		session_reserve(s, offsetof(struct session_file, sites) + at * sizeof(*f->sites),
			n * sizeof(*f->sites)))
		at = UINT32_MAX;
	if (at == UINT32_MAX) {
		__atomic_fetch_add(&f->sites_lost, n, __ATOMIC_RELAXED);
		return -ENOSPC;
	}
	*first = at;
	return 0;
}
