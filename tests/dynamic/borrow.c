/* A thread that was borrowed goes on as if nothing had been: its registers, its errno and what it waits for; that also where
 * stacks hold words of calls that are over. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/inject.h"
#include "tap.h"

enum { TIMES = 6, ERRNO = 4711 };

struct seen {
	atomic_ulong rounds, changed, failed;
	atomic_int over;
};
static struct seen *seen;

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
	return poll(NULL, 0, 20);
}

static const struct way {
	const char *name;
	int (*step)(void);
} ways[] = { { "computes", compute }, { "sleeps", sleep_ms }, { "polls", wait_in_poll } };

static void target(const struct way *w)
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

static void one(const struct way *w)
{
	memset(seen, 0, sizeof(*seen));
	pid_t pid = fork();
	if (!pid)
		target(w);
	struct inject_target t = { .pid = pid };
	struct inject_result r;
	int borrowed = 0;
	while (!atomic_load(&seen->rounds))
		usleep(100);
	for (int i = 0; i < TIMES; i++) {
		struct diag d = { 0 };
		int err = inject_library(&t, i % 2 ? "/nonexistent/library.so" : LIBRARY, &r, &d);
		borrowed += !err;
		if (err)
			printf("# %s\n", d.text);
		unsigned long at = atomic_load(&seen->rounds);
		for (int ms = 0; ms < 2000 && atomic_load(&seen->rounds) < at + 2; ms++)
			usleep(1000);
	}
	atomic_store(&seen->over, 1);
	int status = -1;
	waitpid(pid, &status, 0);
	is_int(borrowed, TIMES, "%s: its thread is borrowed", w->name);
	is_int(status, 0, "%s: it goes on to its end", w->name);
	is_int((int64_t)seen->failed, 0, "%s: no call of its own fails", w->name);
	is_int((int64_t)seen->changed, 0, "%s: errno stays what it was", w->name);
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
	printf("1..0 # SKIP borrowing a thread is for programs without sanitizers, on x86-64\n");
	return 0;
#endif
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		one(&ways[i]);
	return tap_done();
}
