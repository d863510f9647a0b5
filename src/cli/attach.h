/* attach.h - what the commands about running processes share. */
#ifndef EGPU_CLI_ATTACH_H
#define EGPU_CLI_ATTACH_H

#include <sys/types.h>

struct snapshot;

/* 0, or EGPU_FAILED after a message. */
int attach_pid(const char *text, pid_t *pid);
/* What a process launches in so many seconds: no kernel is touched. *out is the caller's. */
int attach_look(pid_t pid, double seconds, struct snapshot **out);

#endif
