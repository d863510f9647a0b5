/* trace.h - what bpf_trace_printk of probes says, as text. */
#ifndef EGPU_CLI_TRACE_H
#define EGPU_CLI_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Formats with the kernel's subset: %d %i %u %x %X %o %p %c with h, hh, l, ll and z, width and
 * flags of printf, %%. An argument that is missing prints as 0; a conversion that is not known is
 * copied as it stands. */
void trace_format(
	const char *fmt, size_t fmt_bytes, const uint64_t *args, unsigned n_args, struct buf *out);

#endif
