/* inject.h - brings a library into a process that runs already.
 *
 * One thread of the target is borrowed: it is stopped through ptrace at a point where it can hold
 * no lock of the C library, made to call dlopen(3) on a frame below its stack's red zone, and given
 * back. The frame is that of a signal: when dlopen returns, the thread goes through the system's
 * own rt_sigreturn and so finds its registers again by itself. The caller may be killed at any
 * moment, and the target goes on. Everything else that the library does, it does in a thread of its
 * own, which its constructor starts; other threads are never stopped.
 *
 * x86-64 with glibc; elsewhere -ENOTSUP with the reason.
 */
#ifndef EGPU_INJECT_INJECT_H
#define EGPU_INJECT_INJECT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/diag.h"

struct inject_target {
	pid_t pid;
	uid_t uid;
	gid_t gid;
	bool other_root;       /* another mount namespace or root directory: paths are seen through /proc/PID/root */
	bool other_pids;       /* another pid namespace: it has another number for itself */
	char driver[PATH_MAX]; /* the CUDA driver it has loaded, as it names it; "" when none */
	char command[64];
};

/* Looks at the process without touching it. -errno with d when it cannot be attached to, which says
 * why and what to do: no such process, no permission, another machine's code, no glibc, not a CUDA
 * process, traced, stopped, forbidden by seccomp. */
int inject_look(pid_t pid, struct inject_target *t, struct diag *d);

/* Whether the process has mapped this very file of ours: loading it once more would run none of its code. */
bool inject_has_mapped(pid_t pid, const char *path);
/* Whether the process is in our namespace of that kind ("mnt", "pid"). */
bool inject_same_namespace(pid_t pid, const char *which);
/* Whether a path means the same file to the process and to us. */
bool inject_same_root(pid_t pid);

struct inject_result {
	uint64_t paused_ns; /* threads were stopped for so long, all together */
	uint64_t waited_ns; /* until a thread came to a safe point */
	int tries;
};

/* dlopen(library) in the target; the path is the target's. 0, or -errno with d; the target is as it
 * was then, but for the library. */
int inject_library(const struct inject_target *t, const char *library, struct inject_result *r,
	struct diag *d);

#endif
