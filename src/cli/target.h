/* target.h - running the command that is observed.
 *
 * The command keeps its standard input, output and error, and gets every signal the terminal sends;
 * egpu stays until it ends.
 */
#ifndef EGPU_CLI_TARGET_H
#define EGPU_CLI_TARGET_H

#include <sys/types.h>

#include "base/diag.h"

struct target;

struct target_env {
	const char *session; /* directory: EGPU_SESSION, and first in LD_LIBRARY_PATH */
	const char *preload; /* agent library: first in LD_PRELOAD */
};

/* Starts the command; env NULL: as it is. -errno with d when it cannot be executed (nothing is left
 * running). */
int target_start(char **command, const struct target_env *env, struct target **out, struct diag *d);
/* Waits until it ends; calls tick(arg) about every 50 ms meanwhile. Returns the exit status as a
 * shell would give it: 0..255, 128 + signal when it was killed. */
int target_wait(struct target *t, void (*tick)(void *arg), void *arg);
int target_signal(const struct target *t); /* that killed it, 0 */
void target_free(struct target *t);

#endif
