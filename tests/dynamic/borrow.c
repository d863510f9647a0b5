/* A thread that was borrowed goes on as if nothing had been: its registers, its errno and what it waits for; that also where
 * stacks hold words of calls that are over, where there is no room below them yet, and where threads hold an allocator's lock.
 *
 *	borrow             the test
 *	borrow N FD        the process whose thread is borrowed, which does way N; FD is what both see */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/inject.h"
#include "tap.h"

enum { TIMES = 6, ERRNO = 4711, WAIT_MS = 20 };

struct seen {
	atomic_ulong rounds, changed, failed;
	atomic_int over;
};
static struct seen *seen;
static int never[2]; /* a socket on which nothing comes */

static int compute(void)
{
	volatile double x = 1;
	for (int i = 0; i < 1000; i++)
		x = x * 1.0000001 + 0.5;
	return x < 0;
}

static int sleep_ms(void)
{
	struct timespec t = { 0, 3000000 };
	return nanosleep(&t, NULL);
}

static int wait_in_poll(void)
{
	return poll(NULL, 0, WAIT_MS);
}

/* Calls that end with EINTR whenever their thread is stopped, unless it is hidden from them. */
static int wait_in_epoll(void)
{
	static int fd = -1;
	struct epoll_event e;
	if (fd < 0)
		fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll_wait(fd, &e, 1, WAIT_MS);
}

static int ended_in_time(int result, int expected)
{
	int failed = result != -1 || errno != expected;
	errno = ERRNO;
	return failed;
}

static int wait_for_signal(void)
{
	struct timespec t = { 0, WAIT_MS * 1000000 };
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return ended_in_time(sigtimedwait(&set, NULL, &t), EAGAIN);
}

static int wait_for_semaphore(void)
{
	struct sembuf down = { 0, -1, 0 };
	struct timespec t = { 0, WAIT_MS * 1000000 };
	int id = semget(IPC_PRIVATE, 1, 0600), failed = ended_in_time(semtimedop(id, &down, 1, &t), EAGAIN);
	semctl(id, 0, IPC_RMID);
	return failed;
}

static int wait_for_data(void)
{
	struct timeval t = { 0, WAIT_MS * 1000 };
	char c;
	if (setsockopt(never[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)))
		return 1;
	return ended_in_time((int)recv(never[0], &c, 1, 0), EAGAIN);
}

/* At the end of the pages that the stack has so far: what is written below makes it grow. */
static __attribute__((noinline)) int at_the_end(void)
{
	static uintptr_t down = 1 << 18;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), there = ((here - down) & ~(uintptr_t)4095) + 1500;
	volatile char *room = __builtin_alloca(here - there);
	if (down < 4 << 20)
		down += 1 << 14;
	room[0] = 1;
	return wait_for_data() || room[0] != 1;
}

/* -- threads that hold locks of an allocator ----------------------------------------- */

static void *churn(void *rounds)
{
	void *p[64] = { 0 };
	uint32_t x = (uint32_t)(uintptr_t)p;
	while (!atomic_load(&seen->over)) {
		x = x * 1103515245 + 12345;
		free(p[x >> 16 & 63]);
		p[x >> 16 & 63] = malloc((x >> 8 & 8191) + 1100);
		if (rounds)
			atomic_fetch_add((atomic_ulong *)rounds, 1);
	}
	for (int i = 0; i < 64; i++)
		free(p[i]);
	return NULL;
}

static void linger(int sig)
{
	char c;
	int keep = errno;
	if (recv(never[0], &c, 1, 0) != 1)
		atomic_fetch_add(&seen->failed, 1);
	errno = keep;
}

/* Interrupts it wherever it is, and lets the handler return only a little later. */
static void *interrupt(void *arg)
{
	while (!atomic_load(&seen->over)) {
		struct timespec t = { 0, 20000000 };
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
		nanosleep(&t, NULL);
		if (send(never[1], "", 1, 0) != 1)
			atomic_fetch_add(&seen->failed, 1);
		t.tv_nsec = 50000;
		nanosleep(&t, NULL);
	}
	return NULL;
}

static int interrupted_in_malloc(void)
{
	pthread_t self = pthread_self(), other;
	signal(SIGUSR1, linger);
	if (pthread_create(&other, NULL, interrupt, &self))
		return 1;
	churn(&seen->rounds);
	return 0;
}

/* The thread that can be had at once is met inside the allocator, which is not the C library's, and hardly anywhere else. */
static int in_an_allocator(void)
{
	pthread_t other;
	if (pthread_create(&other, NULL, churn, &seen->rounds))
		return 1;
	while (!atomic_load(&seen->over))
		sleep_ms();
	return 0;
}

static const struct way {
	const char *name;
	int (*step)(void);
	const char *allocator; /* in the C library's place */
} ways[] = {
	{ "computes", compute, NULL },
	{ "sleeps", sleep_ms, NULL },
	{ "polls", wait_in_poll, NULL },
	{ "waits in epoll", wait_in_epoll, NULL },
	{ "waits for a signal", wait_for_signal, NULL },
	{ "waits for a semaphore", wait_for_semaphore, NULL },
	{ "waits for data", wait_for_data, NULL },
	{ "at the end of its stack", at_the_end, NULL },
	{ "interrupted in malloc", interrupted_in_malloc, NULL },
	{ "in another library's malloc", in_an_allocator, ALLOCATOR },
};

static int target(const struct way *w)
{
	errno = ERRNO;
	while (!atomic_load(&seen->over)) {
		if (w->step())
			atomic_fetch_add(&seen->failed, 1);
		if (errno != ERRNO)
			atomic_fetch_add(&seen->changed, 1);
		errno = ERRNO;
		atomic_fetch_add(&seen->rounds, 1);
	}
	_exit(0);
}

static pid_t begin(const struct way *w, int fd)
{
	char number[16], shared[16], sock[16];
	pid_t pid = fork();
	if (pid)
		return pid;
	snprintf(number, sizeof(number), "%d", (int)(w - ways));
	snprintf(shared, sizeof(shared), "%d", fd);
	snprintf(sock, sizeof(sock), "%d", never[0]);
	if (w->allocator)
		setenv("LD_PRELOAD", w->allocator, 1);
	/* The loader leaves addresses of its own on stacks when it finds functions late. */
	setenv("LD_BIND_NOW", "1", 1);
	execl("/proc/self/exe", "borrow", number, shared, sock, NULL);
	_exit(3);
}

static void one(const struct way *w, int fd)
{
	memset(seen, 0, sizeof(*seen));
	pid_t pid = begin(w, fd);
	struct inject_target t = { .pid = pid };
	struct inject_result r;
	int borrowed = 0, status = -1, stuck = 0;
	for (int ms = 0; ms < 5000 && !atomic_load(&seen->rounds); ms++)
		usleep(1000);
	for (int i = 0; i < TIMES && !stuck; i++) {
		struct diag d = { 0 };
		int err = inject_library(&t, i % 2 ? "/nonexistent/library.so" : LIBRARY, &r, &d);
		borrowed += !err;
		if (err)
			printf("# %s\n", d.text);
		unsigned long at = atomic_load(&seen->rounds);
		for (int ms = 0; ms < 2000 && atomic_load(&seen->rounds) < at + 2; ms++)
			usleep(1000);
		stuck = atomic_load(&seen->rounds) < at + 2;
	}
	atomic_store(&seen->over, 1);
	for (int ms = 0; ms < 2000 && waitpid(pid, &status, WNOHANG) != pid; ms++)
		usleep(1000);
	if (status == -1 && !kill(pid, SIGKILL))
		waitpid(pid, &status, 0);
	is_int(borrowed, TIMES, "%s: its thread is borrowed", w->name);
	is_int(status, 0, "%s: it goes on to its end", w->name);
	is_int((int64_t)seen->failed, 0, "%s: no call of its own fails", w->name);
	is_int((int64_t)seen->changed, 0, "%s: errno stays what it was", w->name);
}

int main(int argc, char **argv)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
	printf("1..0 # SKIP borrowing a thread is for programs without sanitizers, on x86-64\n");
	return 0;
#endif
	int fd = argc > 3 ? atoi(argv[2]) : memfd_create("seen", 0);
	if (fd < 0 || (argc < 2 && ftruncate(fd, sizeof(*seen))))
		return 3;
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (seen == MAP_FAILED)
		return 3;
	if (argc > 3) {
		never[0] = atoi(argv[3]);
		never[1] = never[0] + 1;
		return target(&ways[atoi(argv[1])]);
	}
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, never) || never[1] != never[0] + 1)
			return 3;
		one(&ways[i], fd);
		close(never[0]);
		close(never[1]);
	}
	return tap_done();
}
