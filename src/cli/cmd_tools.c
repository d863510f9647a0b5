/* cmd_tools.c - `egpu tools`: what ships with egpu. */
#include <string.h>

#include "cli/cli.h"
#include "cli/tools.h"

const struct tool *const tools[] = { &tool_memtrace, NULL };

const struct tool *tool_by_name(const char *name)
{
	for (int i = 0; tools[i]; i++)
		if (!strcmp(tools[i]->name, name))
			return tools[i];
	return NULL;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	for (int i = 0; tools[i]; i++)
		printf("%-12s %s\n", tools[i]->name, tools[i]->summary);
	return 0;
}

const struct command cmd_tools = {
	.name = "tools",
	.synopsis = "tools",
	.summary = "lists the tools that `egpu run` knows by name",
	.help = "A tool is a probe and the report made from its maps:\n"
		"  egpu run --softgpu memtrace -- build/samples/vecadd 1000\n",
	.run = run,
};
