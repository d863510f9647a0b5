/* attach.h - what the commands about running processes share. */
#ifndef EGPU_CLI_ATTACH_H
#define EGPU_CLI_ATTACH_H

#include <sys/types.h>

struct session;

/* 0, or EGPU_FAILED after a message. */
int attach_pid(const char *text, pid_t *pid);
/* The session that a process is in. */
int attach_find(pid_t pid, struct session **s);

#endif
