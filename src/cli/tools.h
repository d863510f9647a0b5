/* tools.h - the shipped tools, one row each. */
#ifndef EGPU_CLI_TOOLS_H
#define EGPU_CLI_TOOLS_H

#include "tools/tool.h"

extern const struct tool *const tools[]; /* NULL ends */

/* NULL when there is none. */
const struct tool *tool_by_name(const char *name);

#endif
