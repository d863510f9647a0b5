/* Pointers to the driver's functions are changed where they are, and memory that went, or that others protected, after it was listed is no
 * reason to fall. */
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "tap.h"

enum { PAGE = 4096, SLOT = 5 };

static void driver_function(void) {}
static void our_function(void) {}

/* What slots.c asks of others: here there is one function of the driver's, and memory is what the test shows. */
size_t resolve_pairs(struct hook_pair *pairs, size_t max)
{
	pairs[0] = (struct hook_pair){ .symbol = "cuSomething", .hook = (void *)our_function, .real = (void *)driver_function };
	return max > 0;
}

bool stream_ask_own(void)
{
	return false;
}

void memory_open(void) {}
void memory_add(const struct memory_part *p) {}
void memory_add_all(unsigned int what) {}
void memory_sweep(void) {}
void memory_wait(void) {}
bool memory_is_ours(uintptr_t at)
{
	return false;
}

static uintptr_t *pages(void)
{
	uintptr_t *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED)
		p[SLOT] = (uintptr_t)driver_function;
	return p;
}

/* As a sweep that has read a copy of the page. */
static void see(uintptr_t *page, bool read_only)
{
	uintptr_t copy[16] = { 0 }, at = (uintptr_t)page;
	struct memory_part part = { at, at + PAGE, at, at + PAGE, MEMORY_SLOTS, read_only };
	copy[SLOT] = (uintptr_t)driver_function;
	slots_see(&part, at, (const char *)copy, sizeof(copy));
}

static bool still_writable(uintptr_t *page)
{
	pid_t pid = fork();
	int status = 0;
	if (!pid) {
		signal(SIGSEGV, SIG_DFL); /* no report of a sanitizer's */
		page[0] = 1;
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* In a child, which falls alone. */
static int gone(int protection)
{
	pid_t pid = fork();
	int status = 0;
	if (!pid) {
		uintptr_t *p = pages();
		if (protection < 0)
			munmap(p, PAGE);
		else
			mprotect(p, PAGE, protection);
		see(p, false);
		_exit(slots_changed() ? 1 : protection > 0 && p[SLOT] != (uintptr_t)driver_function ? 2 : 0);
	}
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void)
{
	uintptr_t *p = pages(), *q = pages(), *r = pages(), *other = pages();
	ok(slots_begin(true), "there is something to look for");
	is_int(gone(-1), 0, "memory that was unmapped since");
	is_int(gone(PROT_READ), 0, "memory that was made read-only since");
	is_int(gone(PROT_NONE), 0, "memory that nobody may touch any more");
	see(p, false);
	ok(p[SLOT] == (uintptr_t)our_function && slots_changed() == 1, "a pointer is changed");
	mprotect(q, PAGE, PROT_READ);
	see(q, true);
	ok(q[SLOT] == (uintptr_t)our_function && slots_changed() == 2, "one in memory that is read-only");
	ok(!still_writable(q), "which stays so");
	see(r, true);
	ok(r[SLOT] == (uintptr_t)our_function && slots_changed() == 3, "one in memory that was read-only");
	ok(still_writable(r), "which is not protected again");
	other[SLOT] = 77;
	see(other, false);
	ok(other[SLOT] == 77 && slots_changed() == 3, "what is there meanwhile is left");
	ok(slots_begin(false), "and back");
	return tap_done();
}
