/* fault.h - what a device fault has left in a session: the launches that may have caused it. */
#ifndef EGPU_CLI_FAULT_H
#define EGPU_CLI_FAULT_H

#include "cli/json.h"
#include "cli/snapshot.h"

/* Lines of the report, one for each process with a fault and its launches; nothing where there was none. */
void fault_text(struct session *s, const struct snapshot *snap, struct buf *text);
/* The same as a JSON array. */
void fault_json(struct session *s, const struct snapshot *snap, struct json *j);

#endif
