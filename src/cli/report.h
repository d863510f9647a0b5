/* report.h - what a run says at its end: coverage first, then the tool's report or the maps. */
#ifndef EGPU_CLI_REPORT_H
#define EGPU_CLI_REPORT_H

#include "cli/dump.h"
#include "cli/json.h"
#include "cli/snapshot.h"

struct probe;
struct tool;

struct run_report {
	struct session *session;
	struct snapshot *snap;
	struct dump *dump;
	const struct tool *tool; /* NULL: a raw object, whose maps are printed */
	const struct probe *programs;
	const char *probe;       /* as the user wrote it */
	char **command;
	int exit_status;
	bool attached; /* to a process that ran: no command was started */
	bool per_cpu; /* -v: every slot of per-CPU maps, and how each variant was made */
};

/* Both forms of the whole report. -errno with d when the tool could not make its part. */
int report_make(const struct run_report *r, struct buf *text, struct json *json, struct diag *d);

/* Text of a pattern that matched no kernel, with the nearest names of those seen; "" when all
 * matched. The number of patterns that matched nothing. */
int report_unmatched(const struct session *s, const struct snapshot *snap, struct buf *text);

/* The JSON objects alone (also for `egpu list -- COMMAND`). */
void report_kernels_json(const struct snapshot *snap, struct json *j);

#endif
