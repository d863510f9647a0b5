/* lock.c - locks of one word each, so that a forked child can reset them, and the launch gate. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"

static void futex_wait(atomic_int *word, int seen, const struct timespec *timeout)
{
	int keep = errno;
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout, NULL, 0);
	errno = keep;
}

static void futex_wake(atomic_int *word, int n)
{
	int keep = errno;
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
	errno = keep;
}

bool lock_try(struct lock *l)
{
	int free = 0;
	return atomic_compare_exchange_strong_explicit(
		&l->v, &free, 1, memory_order_acquire, memory_order_relaxed);
}

void lock_take(struct lock *l)
{
	if (lock_try(l))
		return;
	while (atomic_exchange_explicit(&l->v, 2, memory_order_acquire))
		futex_wait(&l->v, 2, NULL);
}

void lock_drop(struct lock *l)
{
	if (atomic_exchange_explicit(&l->v, 0, memory_order_release) == 2)
		futex_wake(&l->v, 1);
}

/* A launch into a thread's own default stream asks, and a system call costs more than all else that we do there. */
static __thread int own_id;

int thread_id(void)
{
	if (!own_id)
		own_id = (int)syscall(SYS_gettid);
	return own_id;
}

void thread_forked(void)
{
	own_id = 0;
}

static __thread unsigned int own_lane; /* from 1 */

unsigned int thread_lane(void)
{
	static atomic_uint threads;
	if (!own_lane)
		own_lane = atomic_fetch_add(&threads, 1) + 1;
	return own_lane - 1;
}

static uint64_t read_clock(clockid_t which)
{
	struct timespec t;
	clock_gettime(which, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t coarse_ns(void)
{
	return read_clock(CLOCK_MONOTONIC_COARSE);
}

enum { GATE_OPEN, GATE_HELD, GATE_CLOSED, OWN_US = 200 };

static void wait_at_gate(struct gate *g, int seen)
{
	struct timespec t = { 0, OWN_US * 1000 };
	atomic_fetch_add(&g->waiting, 1);
	/* Our own stream can only be asked about by us. */
	bool busy = !stream_ask_own();
	futex_wait(&g->state, seen, busy ? &t : NULL);
	atomic_fetch_sub(&g->waiting, 1);
}

/* Who enters counts itself and then looks at the state; who closes changes the state and then looks at the counts: one of them sees the
 * other. */
void gate_enter_by(struct gate *g, unsigned int lane)
{
	atomic_int *users = &g->lanes[lane % GATE_LANES].users;
	for (;;) {
		atomic_fetch_add(users, 1);
		int state = atomic_load(&g->state);
		if (state == GATE_OPEN)
			return;
		atomic_fetch_sub(users, 1);
		/* A driver that calls its own exported functions while it loads for us comes by
		 * here. */
		if (atomic_load(&g->owner) == thread_id())
			return;
		wait_at_gate(g, state);
	}
}

void gate_leave_by(struct gate *g, unsigned int lane)
{
	int owner = atomic_load_explicit(&g->owner, memory_order_relaxed);
	if (!owner || owner != thread_id())
		atomic_fetch_sub_explicit(&g->lanes[lane % GATE_LANES].users, 1, memory_order_release);
}

void gate_enter(struct gate *g)
{
	gate_enter_by(g, thread_lane());
}

void gate_leave(struct gate *g)
{
	gate_leave_by(g, thread_lane());
}

bool gate_used(const struct gate *g)
{
	for (int i = 0; i < GATE_LANES; i++)
		if (atomic_load(&g->lanes[i].users))
			return true;
	return false;
}

static void let_pass(struct gate *g)
{
	atomic_store(&g->state, GATE_OPEN);
	if (atomic_load(&g->waiting))
		futex_wake(&g->state, INT_MAX);
}

bool gate_close(struct gate *g)
{
	int open = GATE_OPEN;
	if (gate_used(g) || !atomic_compare_exchange_strong(&g->state, &open, GATE_CLOSED))
		return false;
	if (gate_used(g)) {
		let_pass(g);
		return false;
	}
	atomic_store(&g->owner, thread_id());
	return true;
}

bool gate_hold(struct gate *g, uint64_t until_ns)
{
	int open = GATE_OPEN;
	if (!atomic_compare_exchange_strong(&g->state, &open, GATE_HELD))
		return false;
	while (gate_used(g)) {
		if (now_ns() > until_ns) {
			let_pass(g);
			return false;
		}
		nap_us(OWN_US / 10);
	}
	atomic_store(&g->state, GATE_CLOSED);
	atomic_store(&g->owner, thread_id());
	return true;
}

void gate_open(struct gate *g)
{
	atomic_store(&g->owner, 0);
	let_pass(g);
}

void nap_us(long us)
{
	struct timespec t = { 0, us * 1000 };
	int keep = errno;
	nanosleep(&t, NULL);
	errno = keep;
}

/* Words may be in memory that other processes share. */
void word_wait(atomic_int *word, int seen, int ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
	int keep = errno;
	syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
	errno = keep;
}

void word_wake(atomic_int *word)
{
	int keep = errno;
	atomic_fetch_add(word, 1);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	errno = keep;
}
