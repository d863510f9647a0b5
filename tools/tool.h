/* tool.h - a shipped tool: a probe object (NAME.bpf.o beside the command) and what makes a report
 * of its maps.
 *
 * `egpu run NAME -- COMMAND` loads the object, runs the command, then calls report once.
 */
#ifndef EGPU_TOOLS_TOOL_H
#define EGPU_TOOLS_TOOL_H

#include "base/buf.h"
#include "base/diag.h"
#include "cli/json.h"
#include "cli/snapshot.h"

struct tool {
	const char *name;
	const char *summary; /* one line for `egpu tools` */
	/* Appends the report as text, and the JSON object of the report's "tool" section. 0 or
	 * -errno with d. */
	int (*report)(struct session *s, const struct snapshot *snap, struct buf *text,
		struct json *json, struct diag *d);
};

extern const struct tool tool_memtrace;

/* Id of the session's map of this name, or -1. */
int tool_map_id(struct session *s, const char *name);

#endif
