/* Work in a child process has its limit, also where the child takes no signal. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/driver.h"
#include "tap.h"

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static bool answer(void *arg, void *out)
{
	memcpy(out, arg, 4);
	return true;
}

static bool crash(void *arg, void *out)
{
	(void)arg;
	memcpy(out, "so", 3);
	abort();
}

/* As inside a driver that does not come back. */
static bool hang(void *arg, void *out)
{
	sigset_t all;

	(void)arg;
	(void)out;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	while (pause())
		;
	return 0;
}

int main(void)
{
	char error[256], out[4] = "";

	ok(in_child(answer, "yes", out, sizeof(out), 10, error) && !strcmp(out, "yes") && !*error, "an answer comes back");
	ok(!in_child(crash, NULL, out, sizeof(out), 10, error) && strstr(error, "crashed") && !strcmp(out, "so"), "what a crash leaves: %s", error);
	double from = seconds();
	ok(!in_child(hang, NULL, out, sizeof(out), 1, error) && strstr(error, "no answer within 1 s"), "a child that takes no signal: %s", error);
	ok(seconds() - from < 10, "is not waited for (%.1f s)", seconds() - from);
	return tap_done();
}
