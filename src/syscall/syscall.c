/* syscall(2) for the program this is linked into: bpf(2) is ours, the rest is the kernel's.
 *
 * libbpf makes its bpf(2) calls through the C library's syscall(). A definition in the executable
 * comes before the C library's, for statically linked libbpf as for shared libraries.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "syscall/bpf.h"

static _Thread_local int probe_reached;

/* No system call has this number; the kernel would say ENOSYS too. */
static const long PROBE = 0x6567707500;

/* Like the C library's, it reads six arguments however many were passed; address sanitizers object.
 */
__attribute__((visibility("default"), no_sanitize_address)) long syscall(long number, ...)
{
	va_list ap;
	long a[6], r;
	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == PROBE)
		probe_reached++;
	if (number == SYS_bpf && egpu_before_bpf)
		egpu_before_bpf();
	if (number == SYS_bpf)
		r = egpu_bpf((int)a[0], (union bpf_attr *)a[1], (unsigned int)a[2]);
	else if (number != SYS_perf_event_open || !egpu_perf_event_open || !egpu_perf_event_open((const void *)a[0], &r))
		r = egpu_raw_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_bpf && egpu_after_bpf)
		egpu_after_bpf((int)a[0], r);
	if ((unsigned long)r > -4096UL) {
		errno = (int)-r;
		return -1;
	}
	return r;
}

int egpu_syscall_is_ours(void)
{
	/* Through a pointer, so that the call is resolved as libbpf's is. */
	long (*volatile call)(long, ...) = syscall;
	probe_reached = 0;
	call(PROBE);
	return probe_reached == 1;
}
