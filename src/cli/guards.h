/* guards.h - --live[=POINTS]: guards in the kernels that -k names. */
#ifndef EGPU_CLI_GUARDS_H
#define EGPU_CLI_GUARDS_H

#include "cli/cli.h"
#include "map/session.h"

/* Those of live->value, or the default's where the session has none; pattern NULL: only those that are there. The driver that the
 * session names is asked whether programs may be machine code (cli/native.h). 0, or EGPU_FAILED after a message. */
int guards_add(struct session *s, const struct opt_maybe *live, const char *pattern, bool verbose);

#endif
