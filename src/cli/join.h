/* join.h - the session of a process that runs: the one that it is in, or one that is made for it and that its agent, once brought
 * there, takes part in.
 *
 * Root acts as the process's user from join on, since what is made is that user's, until join_leave.
 */
#ifndef EGPU_CLI_JOIN_H
#define EGPU_CLI_JOIN_H

#include <stdbool.h>
#include <sys/types.h>

#include "inject/inject.h"
#include "map/session.h"

struct joined {
	pid_t pid; /* the caller's to set, all else zero */
	struct inject_target target;
	struct session *session;
	char root[64]; /* target.other_root: its root directory as we see it */
	int lock;      /* the process's, while we look for its agent and bring it */
	bool fresh;    /* the session was made now: the agent has yet to be brought there */
	bool copied;   /* in a file of its own */
};

/* The session that the process is in. 0, or EGPU_FAILED after a message. */
int join_find(pid_t pid, struct session **s);
/* Leaves the process locked against other commands; probe: what the session's list of clients calls us. 0, or EGPU_FAILED after a
 * message; then too join_leave is to be called. */
int join(struct joined *a, const char *probe);
/* Where it is fresh. 0, or EGPU_FAILED after a message. */
int join_bring_agent(struct joined *a, bool verbose);
void join_unlock(struct joined *a);
/* A session whose agent lives is left to it; else it is removed. */
void join_leave(struct joined *a);

bool join_alive(const struct joined *a);
/* The process's row; NULL: its agent is not there. */
const struct session_agent *join_agent(const struct session *s, pid_t pid);

#endif
