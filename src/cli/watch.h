/* watch.h - what a probe says while it runs: lines of trace_printk, records of rings. */
#ifndef EGPU_CLI_WATCH_H
#define EGPU_CLI_WATCH_H

#include "cli/dump.h"

struct watch {
	struct dump *dump;
	struct session *session;
	struct map *trace; /* NULL: not there */
	uint64_t lines;
	uint64_t *told; /* by row of a kernel: the estimate that was said; NULL: none is */
};

/* The session's maps that this loader has added; estimates: what programs are expected to cost is said of each kernel. 0, EGPU_FAILED after a message. */
int watch_begin(struct watch *w, struct session *s, bool estimates);
/* Every 50 ms or so; arg is the struct watch. */
void watch_tick(void *arg);
/* Takes what is left, and says what was lost. The dump stays for the report. */
void watch_end(struct watch *w);
void watch_free(struct watch *w);

#endif
