/* memtrace.h - the record that memtrace.bpf.c and memtrace.c share. */
#ifndef EGPU_TOOLS_MEMTRACE_H
#define EGPU_TOOLS_MEMTRACE_H

/* Sites a run can count. One record a site and multiprocessor: 8,192 x 32 bytes x 132 is 34 MB on
 * an H200, which fits the 64 MB of /dev/shm that containers have by default. Sites beyond it are
 * counted as accesses not recorded. */
#define MEMTRACE_SITES 8192

struct memtrace_site {
	__u64 executions;    /* lanes that made the access; bytes are this times the site's bytes a
				lane */
	__u64 requests;      /* warps that made it, each with the lanes that were together */
	__u64 sectors;       /* 32-byte sectors those requests touched (global and local space) */
	__u64 ideal_sectors; /* sum over requests of ceil(distinct bytes / 32) */
};

#endif
