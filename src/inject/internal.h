/* internal.h - what the sources of src/inject share. */
#ifndef EGPU_INJECT_INTERNAL_H
#define EGPU_INJECT_INTERNAL_H

#include <stddef.h>

#include "inject/inject.h"

struct mapping {
	uint64_t start, end, offset, inode;
	bool exec;
	const char *path;
};

/* Reads /proc/PID/what as text: its length, or -errno. */
int proc_read(pid_t pid, const char *what, char *text, size_t size);
/* Of the target's memory: bytes read, or -1. */
ssize_t read_memory(pid_t pid, uint64_t at, void *to, size_t n);
/* Calls fn for each mapping until it returns nonzero; negative values are passed on. */
int each_mapping(pid_t pid, int (*fn)(const struct mapping *m, void *arg), void *arg);

/* -EBUSY with d, which says who traces this thread; 0: nobody does. */
int look_tracer(pid_t pid, pid_t tid, struct diag *d);
/* Whether a signal waits for the thread that it has not blocked. */
bool look_signalled(pid_t pid, pid_t tid);
/* Whether the thread is in a wait that nothing but its end ends: the kernel's, or that of who has called vfork(2). */
bool look_waits(pid_t pid, pid_t tid);

/* -- code.c: addresses in the target -- */
enum { MAX_RANGES = 64 };
struct range {
	uint64_t from, to;
};
struct code {
	uint64_t dlopen;
	bool private_dlopen;             /* __libc_dlopen_mode */
	uint64_t restore_rt;             /* mov $15, %rax; syscall */
	uint8_t dlopen_code[16];         /* what is there, by the file */
	uint64_t errno_slot;             /* where the offset of errno from the thread's pointer is; 0: not known */
	uint64_t store;                  /* code that stores %edx, %ecx or %esi at (%rdi) and returns; 0: none */
	struct range libc, loader;       /* executable parts */
	struct range locked[MAX_RANGES]; /* functions that hold locks of the C library while they call others */
	uint32_t n_locked;
	struct range brief[MAX_RANGES]; /* those that hold one for a moment of their own: they wait for nothing but the lock */
	uint32_t n_brief;
	struct range vdso;
	struct range allocator;         /* the whole of a library whose malloc is used in the C library's place */
	struct range family[MAX_RANGES]; /* malloc and its like where these are the program's own, or a checker's, which wraps much else */
	uint32_t n_family;
};
int code_find(const struct inject_target *t, struct code *c, struct diag *d);
/* The first bytes of what returns from a signal. */
extern const uint8_t code_restore[9];

/* -- seccomp.c: whether filters let a thread make the calls that dlopen and a new thread need. The
 * thread is stopped under ptrace. */
int seccomp_allows(pid_t tid, struct diag *d);

/* Tests kill the caller at a step of their choice. */
void inject_step(const char *name);

#endif
