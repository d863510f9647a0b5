/* runner.h - a session with a driver chosen, and the target command run in it. */
#ifndef EGPU_CLI_RUNNER_H
#define EGPU_CLI_RUNNER_H

#include <limits.h>
#include <stdbool.h>

#include "cli/cli.h"
#include "map/session.h"

/* The options of `run` and `list` that choose the driver. */
struct driver_choice {
	bool gpu;
	struct opt_maybe softgpu;
};

struct runner {
	struct session *session;
	char agent[PATH_MAX];  /* to preload; free of ':' and ' ' */
	char driver[PATH_MAX]; /* real file behind the session's alias */
	bool softgpu;
	int n_devices; /* of it, here and now */
};

/* Cleans up after dead sessions, makes one, and puts the driver's alias into it. --gpu: the
 * machine's driver, --softgpu: ours, neither: the machine's if it works. 0, or EGPU_FAILED after a
 * message, with nothing left behind. */
int runner_open(struct runner *r, const struct driver_choice *choice);
/* Removes the session. */
void runner_close(struct runner *r);

struct target;
/* Runs the command to its end with tick(arg) called meanwhile. Its exit status; EGPU_FAILED with
 * *started false after a message when it could not be run. Signals stay held until
 * target_free(*target), which the caller does after its report. */
int runner_run(struct runner *r, char **command, void (*tick)(void *), void *arg, bool *started,
	struct target **target);

#endif
