#include "map/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The kernel's struct is the C library's on every 64-bit machine we build for. */
int file_stat(int fd, struct stat *st)
{
	return syscall(SYS_fstat, fd, st) ? -errno : 0;
}

int file_stat_at(int dir, const char *name, struct stat *st)
{
	int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	int err = fd < 0 ? -errno : file_stat(fd, st);
	if (fd >= 0)
		close(fd);
	return err;
}

int file_open(const char *path, int flags, uid_t owner, uint64_t *size)
{
	/* O_NONBLOCK: opening a planted FIFO must not wait. */
	int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	struct stat st;
	int err = file_stat(fd, &st);
	if (!err && (!S_ISREG(st.st_mode) || st.st_uid != owner || (st.st_mode & 022) ||
			    st.st_size < 0))
		err = -EPERM;
	if (err) {
		close(fd);
		return err;
	}
	*size = (uint64_t)st.st_size;
	return fd;
}

/* Growing a file past RLIMIT_FSIZE is EFBIG and, to the thread that tried, a SIGXFSZ, which would
 * end a target under `ulimit -f`. The signal is held back and taken away; errno is kept. */
struct quiet {
	sigset_t before;
	bool pending; /* somebody else's signal, which stays */
};

static void quiet_begin(struct quiet *q)
{
	sigset_t set;
	sigpending(&set);
	q->pending = sigismember(&set, SIGXFSZ) == 1;
	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	/* Per thread on Linux; pthread_sigmask(3) is a newer symbol than the agent may need. */
	sigprocmask(SIG_BLOCK, &set, &q->before);
}

static void quiet_end(const struct quiet *q)
{
	const struct timespec now = { 0 };
	int err = errno;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGXFSZ);
	if (err == EFBIG && !q->pending)
		sigtimedwait(&set, NULL, &now);
	sigprocmask(SIG_SETMASK, &q->before, NULL);
	errno = err;
}

int file_reserve(int fd, uint64_t offset, uint64_t bytes)
{
	struct quiet q;
	int err;
	quiet_begin(&q);
	do {
		err = fallocate(fd, 0, (off_t)offset, (off_t)bytes) ? -errno : 0;
	} while (err == -EINTR);
	quiet_end(&q);
	return err == -EOPNOTSUPP || err == -ENOSYS || err == -EINVAL ? 0 : err;
}

int file_create(const char *path, uint64_t size, bool reserve)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	struct quiet q;
	quiet_begin(&q);
	int err = ftruncate(fd, (off_t)size) ? -errno : 0;
	quiet_end(&q);
	if (!err && reserve && size)
		err = file_reserve(fd, 0, size);
	if (err) {
		unlink(path);
		close(fd);
		return err;
	}
	return fd;
}

int file_read_at(int fd, void *to, size_t n, uint64_t offset)
{
	char *p = to;
	while (n) {
		ssize_t got = pread(fd, p, n, (off_t)offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -EIO;
		p += got;
		n -= (size_t)got;
		offset += (uint64_t)got;
	}
	return 0;
}

int file_write_at(int fd, const void *from, size_t n, uint64_t offset)
{
	const char *p = from;
	while (n) {
		struct quiet q;
		quiet_begin(&q);
		ssize_t put = pwrite(fd, p, n, (off_t)offset);
		quiet_end(&q);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put ? -errno : -EIO;
		p += put;
		n -= (size_t)put;
		offset += (uint64_t)put;
	}
	return 0;
}

int file_append(int fd, const void *from, size_t n)
{
	struct quiet q;
	quiet_begin(&q);
	ssize_t put = write(fd, from, n);
	quiet_end(&q);
	return put < 0 ? -errno : put < (ssize_t)n ? -EIO : 0;
}

void file_sleep_ms(int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };
	nanosleep(&ts, NULL);
}

/* Polling, because a waiting lock could hold up a target for as long as its holder is stopped. */
int file_lock(int fd, bool exclusive, int ms)
{
	struct flock l = { .l_type = exclusive ? F_WRLCK : F_RDLCK, .l_whence = SEEK_SET };
	for (int waited = 0;; waited++) {
		if (!fcntl(fd, F_OFD_SETLK, &l))
			return 0;
		if (errno != EAGAIN && errno != EACCES && errno != EINTR)
			return 0; /* the file system has no locks */
		if (waited >= ms)
			return -EAGAIN;
		file_sleep_ms(1);
	}
}

void file_unlock(int fd)
{
	struct flock l = { .l_type = F_UNLCK, .l_whence = SEEK_SET };
	fcntl(fd, F_OFD_SETLK, &l);
}

bool parse_u64(const char **p, uint64_t *out)
{
	const char *s = *p;
	uint64_t v = 0;
	if (*s < '0' || *s > '9')
		return false;
	for (; *s >= '0' && *s <= '9'; s++) {
		uint64_t digit = (uint64_t)(*s - '0');
		if (v > (UINT64_MAX - digit) / 10)
			return false;
		v = v * 10 + digit;
	}
	*p = s;
	*out = v;
	return true;
}

/* What a process is called is a fact of the whole process; a child that it forks has a number of its own. */
static struct {
	pid_t here, there;
} known;

void process_known_as(pid_t pid)
{
	known.here = getpid();
	known.there = pid;
}

bool process_is_foreign(void)
{
	return known.there && known.here == getpid() && known.there != known.here;
}

pid_t process_self(void)
{
	return process_is_foreign() ? known.there : getpid();
}

int process_start_time(pid_t pid, uint64_t *ticks)
{
	char path[48], text[2048];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (pid == process_self())
		snprintf(path, sizeof(path), "/proc/self/stat");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, text, sizeof(text) - 1);
	int err = errno;
	close(fd);
	if (n <= 0)
		return n < 0 ? -err : -ENOENT; /* ESRCH: it ended meanwhile */
	text[n] = '\0';
	/* The command name may hold anything, so fields are counted after its last parenthesis: " S
	 * ppid ...". */
	const char *p = strrchr(text, ')');
	if (!p || p[1] != ' ')
		return -EINVAL;
	p += 2;
	if (*p == 'Z' || *p == 'X')
		return -ENOENT;
	for (int field = 3; field < 22 && p; field++) {
		p = strchr(p, ' ');
		p = p ? p + 1 : NULL;
	}
	return p && parse_u64(&p, ticks) ? 0 : -EINVAL;
}

bool process_alive(pid_t pid, uint64_t start)
{
	uint64_t now;
	if (pid <= 0)
		return false;
	if (process_is_foreign() && pid != process_self())
		return true;
	int err = process_start_time(pid, &now);
	if (!err)
		return !start || now == start;
	if (process_start_time(getpid(), &now))
		return !kill(pid, 0) || errno == EPERM; /* no /proc here */
	return false;
}
