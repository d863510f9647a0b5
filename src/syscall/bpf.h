/* bpf.h - bpf(2) in user space.
 *
 * Answers as an old kernel would: commands and map types it does not know are -EINVAL. Objects live
 * behind real descriptors: a map's is its file in the session (so mmap works on arrays), the
 * others' are anonymous files. They are recognised by inode, so dup and reuse of numbers mean what
 * they mean in the kernel.
 *
 * libbpf reaches it through syscall(2), which syscall.c defines for the program it is linked into.
 */
#ifndef EGPU_SYSCALL_BPF_H
#define EGPU_SYSCALL_BPF_H

#include <linux/bpf.h>
#include <stdbool.h>

/* The result of bpf(2), or -errno (not -1). -ENOSYS before loader_start. */
long egpu_bpf(int cmd, union bpf_attr *attr, unsigned int size);

/* Whether syscall(2) as this program sees it is ours. */
int egpu_syscall_is_ours(void);

/* Called before each bpf(2) where something defines it (preload.c). */
void egpu_before_bpf(void) __attribute__((weak));

/* Called with the result of each bpf(2), and for perf_event_open(2): *result and true when the event is ours. */
void egpu_after_bpf(int cmd, long result) __attribute__((weak));
bool egpu_perf_event_open(const void *attr, long *result) __attribute__((weak));

/* A system call with six arguments, the kernel's -errno unchanged (raw_*.S, one file per
 * architecture). */
long egpu_raw_syscall(long number, long a, long b, long c, long d, long e, long f);

#endif
