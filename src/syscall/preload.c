/* preload.c - libegpu-syscall.so: the user-space bpf(2) for loaders that know nothing of it.
 *
 *   EGPU_PID=PID LD_PRELOAD=libegpu-syscall.so LOADER ...
 *
 * EGPU_ALLOW_PERTURB=1 is what --allow-perturb is elsewhere. The loader's first bpf(2) makes it a client of the session that the process is in, or of that in
 * the directory EGPU_SESSION. Beside syscall(2) it takes over what libbpf's
 * ring_buffer does with a map's descriptor: mmap gives the kernel's layout, whose data come twice,
 * epoll_ctl puts an event in the descriptor's place that is set when records have come, and close of
 * a link's last descriptor detaches it at once. For kprobes it takes over perf_event_open(2), ioctl(2) on what that gives, and the two files in
 * which libbpf finds the kind of event: here an event is a kernel's of the GPU.
 * Everything else goes on to the kernel.
 */
#undef _FILE_OFFSET_BITS /* mmap and mmap64 are two names here */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "map/map.h"
#include "syscall/bpf.h"
#include "syscall/loader.h"

#define EXPORT __attribute__((visibility("default")))

enum {
	EVENT_TYPE = 0x65677070, /* a kind of event that no kernel has */
	RETURN_BIT = 0,
	BPFTIME_THREADS = 1024,
};

enum { BUSY_US = 200, IDLE_US = 2000, IDLE_AFTER = 500 };

/* A ring that somebody waits for; entries stay. */
struct waited {
	uint32_t map;
	int event;
	uint64_t produced, consumed; /* when it was last set */
};

static struct {
	pthread_once_t once;
	pthread_mutex_t lock; /* of what follows, but for `stop` */
	struct session *session;
	struct waited rings[EBPF_MAX_MAPS];
	uint32_t n_rings;
	pthread_t watcher;
	bool watching;
	bool stop;
} here = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

/* -- the session ------------------------------------------------------------------ */

static int find_session(struct diag *d)
{
	const char *pid = getenv("EGPU_PID"), *dir = getenv("EGPU_SESSION");
	int err;
	if (pid && *pid)
		err = session_of_process((pid_t)atol(pid), &here.session, d);
	else if (dir && *dir)
		err = session_open(dir, &here.session, d);
	else
		return diag_set(d, ENOENT,
			"EGPU_PID=PID or EGPU_SESSION=DIRECTORY must say which program this loader is for; "
			"start it under egpu run first");
	return err ? err : session_enter(here.session, program_invocation_short_name, d);
}

static void start(void)
{
	struct diag d = { 0 };
	struct loader_options options = { 0 };
	const char *allow = getenv("EGPU_ALLOW_PERTURB");
	int err = find_session(&d);
	options.session = here.session;
	options.threads = BPFTIME_THREADS; /* loaders have buffers for as many */
	options.verifier.allow_perturb = allow && !strcmp(allow, "1");
	if (!err)
		err = loader_start(&options, &d);
	if (err) /* bpf(2) will say that there is none; only this says why */
		fprintf(stderr, "libegpu-syscall: %s\n", d.text[0] ? d.text : strerror(-err));
}

void egpu_before_bpf(void)
{
	pthread_once(&here.once, start);
}

/* The links of a loader go with it. */
__attribute__((destructor)) static void end(void)
{
	if (!here.session)
		return;
	__atomic_store_n(&here.stop, true, __ATOMIC_RELEASE);
	if (here.watching)
		pthread_join(here.watcher, NULL);
	loader_stop();
	session_detach_client(here.session, session_client_number(here.session));
	session_end_client(here.session);
	session_close(here.session);
	here.session = NULL;
	session_gc(); /* `egpu run` leaves the session to loaders that live */
}

/* -- rings ------------------------------------------------------------------------ */

/* What /proc calls a descriptor; "" without a session. Without a lock: this is asked often. */
static void name_of(int fd, char path[320])
{
	char link[64];
	ssize_t n = 0;
	if (here.session && fd >= 0) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		n = readlink(link, path, 319);
	}
	path[n < 0 ? 0 : n] = '\0';
}

/* The ring buffer behind a descriptor. */
static bool ring_of(int fd, uint32_t *map)
{
	struct session *s = here.session;
	char path[320], *end_of;
	size_t dir = s ? strlen(session_path(s)) : 0;
	name_of(fd, path);
	if (!*path || strncmp(path, session_path(s), dir) || strncmp(path + dir, "/map-", 5))
		return false;
	unsigned long id = strtoul(path + dir + 5, &end_of, 10);
	if (*end_of || id >= EBPF_MAX_MAPS || !session_data(s)->maps[id].used ||
		session_data(s)->maps[id].type != BPF_MAP_TYPE_RINGBUF)
		return false;
	*map = (uint32_t)id;
	return true;
}

static void *raw_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	long r = egpu_raw_syscall(SYS_mmap, (long)at, (long)bytes, prot, flags, fd, offset);
	if ((unsigned long)r > -4096UL) {
		errno = (int)-r;
		return MAP_FAILED;
	}
	return (void *)r;
}

/* Page 0: the consumer's position. From page 1: the producer's, then the data, and the data again.
 */
static void *map_ring_part(uint32_t map, void *hint, size_t bytes, int prot, int flags, off_t offset)
{
	uint32_t entries = session_data(here.session)->maps[map].max_entries;
	size_t page = (size_t)sysconf(_SC_PAGESIZE), first = page + entries;
	int fd, err = 0;
	if (page != sizeof(struct map_ring) / 2 || bytes > page + 2 * (size_t)entries ||
		(offset && offset != (off_t)page) || (!offset && bytes > page)) {
		errno = EINVAL;
		return MAP_FAILED;
	}
	if (offset && prot & PROT_WRITE) { /* as in the kernel */
		errno = EPERM;
		return MAP_FAILED;
	}
	fd = map_ring_file(here.session, map);
	if (fd < 0) {
		errno = -fd;
		return MAP_FAILED;
	}
	char *at = raw_mmap(hint, bytes, prot, flags, fd, offset);
	if (at != MAP_FAILED && bytes > first &&
		raw_mmap(at + first, bytes - first, prot, flags | MAP_FIXED, fd,
			(off_t)sizeof(struct map_ring)) == MAP_FAILED)
		err = errno;
	close(fd);
	if (!err)
		return at;
	munmap(at, bytes);
	errno = err;
	return MAP_FAILED;
}

EXPORT void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	uint32_t map;
	if (flags & MAP_ANONYMOUS || !ring_of(fd, &map))
		return raw_mmap(at, bytes, prot, flags, fd, offset);
	return map_ring_part(map, at, bytes, prot, flags, offset);
}

EXPORT void *mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return mmap(at, bytes, prot, flags, fd, offset);
}

EXPORT int close(int fd)
{
	char path[320];
	int before = errno;
	name_of(fd, path);
	bool link = !strncmp(path, "/memfd:egpu-link", 16);
	errno = before;
	long r = egpu_raw_syscall(SYS_close, fd, 0, 0, 0, 0, 0);
	if (r) {
		errno = (int)-r;
		return -1;
	}
	if (link)
		loader_sweep();
	errno = before;
	return 0;
}

/* -- waiting ---------------------------------------------------------------------- */

/* Sets the event when records have come, and again when a reader who was told left some. */
static bool look(struct waited *w)
{
	uint64_t produced, consumed, one = 1;
	if (map_ring_positions(here.session, w->map, &produced, &consumed) ||
		produced == consumed || (produced == w->produced && consumed != w->consumed)) {
		w->consumed = consumed;
		return false;
	}
	bool flows = produced != w->produced;
	w->produced = produced;
	w->consumed = consumed;
	ssize_t n = write(w->event, &one, sizeof(one));
	(void)n;
	return flows;
}

static void *watch(void *unused)
{
	uint32_t quiet = 0;
	while (!__atomic_load_n(&here.stop, __ATOMIC_ACQUIRE)) {
		bool flows = false;
		uint32_t n = __atomic_load_n(&here.n_rings, __ATOMIC_ACQUIRE);
		for (uint32_t i = 0; i < n; i++)
			flows |= look(&here.rings[i]);
		quiet = flows ? 0 : quiet + 1;
		struct timespec t = { 0, 1000L * (quiet < IDLE_AFTER ? BUSY_US : IDLE_US) };
		nanosleep(&t, NULL);
	}
	return NULL;
}

/* The program's signals are for its own threads. */
static int start_watching(void)
{
	sigset_t all, before;
	if (here.watching)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int err = pthread_create(&here.watcher, NULL, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	here.watching = !err;
	return -err;
}

static int event_of(uint32_t map)
{
	int err = 0;
	pthread_mutex_lock(&here.lock);
	uint32_t i = 0;
	while (i < here.n_rings && here.rings[i].map != map)
		i++;
	if (i == here.n_rings) {
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		err = fd < 0 ? -errno : 0;
		if (!err) {
			here.rings[i] = (struct waited){ .map = map, .event = fd };
			__atomic_store_n(&here.n_rings, i + 1, __ATOMIC_RELEASE);
			err = start_watching();
		}
	}
	int event = err ? err : here.rings[i].event;
	pthread_mutex_unlock(&here.lock);
	return event;
}

static int raw_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	long r = egpu_raw_syscall(SYS_epoll_ctl, epoll, op, fd, (long)event, 0, 0);
	if (!r)
		return 0;
	errno = (int)-r;
	return -1;
}

EXPORT int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	uint32_t map;
	if (!ring_of(fd, &map))
		return raw_epoll_ctl(epoll, op, fd, event);
	int in_place = event_of(map);
	if (in_place < 0) {
		errno = -in_place;
		return -1;
	}
	if (!event)
		return raw_epoll_ctl(epoll, op, in_place, NULL);
	/* Nobody reads the event, so it counts when it is set, not while it is. */
	struct epoll_event edge = *event;
	edge.events |= EPOLLET;
	return raw_epoll_ctl(epoll, op, in_place, &edge);
}

/* -- kprobes ------------------------------------------------------------------------ */

/* What libbpf does not say by itself: it shows the log of a program that was refused, and no other reasons. */
void egpu_after_bpf(int cmd, long result)
{
	struct diag d;
	if (result >= 0 || (cmd != BPF_MAP_CREATE && cmd != BPF_RAW_TRACEPOINT_OPEN && cmd != BPF_LINK_CREATE))
		return;
	loader_last_error(&d);
	loader_clear_error();
	if (d.err)
		fprintf(stderr, "libegpu-syscall: %s\n", d.text);
}

bool egpu_perf_event_open(const void *given, long *result)
{
	const struct perf_event_attr *attr = given;
	if (!attr || attr->type != EVENT_TYPE)
		return false;
	*result = attr->config1 ? loader_kprobe_open((const char *)(uintptr_t)attr->config1, attr->config >> RETURN_BIT & 1) : -EINVAL;
	return true;
}

/* Links enable and disable their event: ours has nothing to switch. */
EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	va_start(ap, request);
	long arg = va_arg(ap, long);
	va_end(ap);
	if ((request == PERF_EVENT_IOC_ENABLE || request == PERF_EVENT_IOC_DISABLE) && loader_is_kprobe(fd))
		return 0;
	long r = egpu_raw_syscall(SYS_ioctl, fd, (long)request, arg, 0, 0, 0);
	if ((unsigned long)r > -4096UL) {
		errno = (int)-r;
		return -1;
	}
	return (int)r;
}

static FILE *open_stream(const char *path, const char *mode, const char *real)
{
	static char bit[] = "config:0\n";
	static char type[16];
	FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, real);
	if (path && !strcmp(path, "/sys/bus/event_source/devices/kprobe/type"))
		return fmemopen(type, (size_t)snprintf(type, sizeof(type), "%d\n", EVENT_TYPE), "r");
	if (path && !strcmp(path, "/sys/bus/event_source/devices/kprobe/format/retprobe"))
		return fmemopen(bit, sizeof(bit) - 1, "r");
	if (!next) {
		errno = ENOSYS;
		return NULL;
	}
	return next(path, mode);
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	return open_stream(path, mode, "fopen");
}

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	return open_stream(path, mode, "fopen64");
}

struct records {
	void (*fn)(const void *data, uint64_t bytes, void *arg);
	void *arg;
};

static int hand_over(void *arg, const void *data, uint32_t bytes)
{
	const struct records *to = arg;
	to->fn(data, bytes, to->arg);
	return 0;
}

/* bpftime's loaders ask for this by name, and read a ring for each thread with it: 0, or -errno. */
int bpftime_syscall_server__poll_gpu_ringbuf_map(int fd, void *arg, void (*fn)(const void *data, uint64_t bytes, void *arg));

EXPORT int bpftime_syscall_server__poll_gpu_ringbuf_map(int fd, void *arg, void (*fn)(const void *data, uint64_t bytes, void *arg))
{
	uint32_t id;
	struct map *map;
	struct records to = { fn, arg };
	if (!ring_of(fd, &id))
		return -EINVAL;
	int n = map_open(here.session, id, &map, NULL);
	if (n)
		return n;
	n = map_ring_consume(map, hand_over, &to);
	map_close(map);
	return n < 0 ? n : 0;
}
