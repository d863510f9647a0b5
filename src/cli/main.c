/* main.c - finds the command and runs it. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/near.h"

static const struct command *const commands[] = { &cmd_run, &cmd_attach, &cmd_detach, &cmd_link, &cmd_ps, &cmd_off, &cmd_gc, &cmd_list, &cmd_doctor, &cmd_verify,
	&cmd_translate, &cmd_instrument, &cmd_test_run, &cmd_map, &cmd_tools };
enum { N_COMMANDS = sizeof(commands) / sizeof(*commands) };

static void usage(FILE *to)
{
	fprintf(to, "egpu " EGPU_VERSION
		    ": eBPF programs inside the CUDA kernels of unmodified programs\n\n"
		    "usage: egpu COMMAND [options] ...\n\n");
	for (int i = 0; i < N_COMMANDS; i++)
		fprintf(to, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
	fprintf(to, "\negpu COMMAND --help explains each, with an example. A first try that needs "
		    "no GPU:\n"
		    "  egpu run --softgpu memtrace -- ./program\n");
}

static int no_such_command(const char *name)
{
	const char *names[N_COMMANDS], *best[3];
	struct {
		char text[128];
	} list = { "" };
	for (int i = 0; i < N_COMMANDS; i++)
		names[i] = commands[i]->name;
	size_t n = near_names(name, names, N_COMMANDS, best, 3);
	for (size_t i = 0; i < n; i++)
		snprintf(list.text + strlen(list.text), sizeof(list.text) - strlen(list.text),
			"%s%s", i ? ", " : "; nearest: ", best[i]);
	return say_fail("no command '%s'%s (egpu --help lists them)", name, list.text);
}

static int run_command(const struct command *cmd, int argc, char **argv)
{
	struct opt_rest rest;
	void *opts = calloc(1, cmd->opts_bytes + 1);
	if (!opts)
		return say_fail("out of memory");
	int err = opt_parse(cmd, argc, argv, opts, &rest);
	int status = err < 0 ? EGPU_FAILED : err > 0 ? 0 : cmd->run(opts, &rest);
	opt_free(cmd, opts, &rest);
	free(opts);
	return status;
}

static int run(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	if (argc < 2) {
		usage(stderr);
		return EGPU_FAILED;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		for (int i = 0; argc > 2 && i < N_COMMANDS; i++)
			if (!strcmp(commands[i]->name, argv[2])) {
				opt_help(commands[i], stdout);
				return 0;
			}
		if (argc > 2)
			return no_such_command(argv[2]);
		usage(stdout);
		return 0;
	}
	if (!strcmp(name, "--version")) {
		puts("egpu " EGPU_VERSION);
		return 0;
	}
	for (int i = 0; i < N_COMMANDS; i++)
		if (!strcmp(commands[i]->name, name))
			return run_command(commands[i], argc - 2, argv + 2);
	return no_such_command(name);
}

int main(int argc, char **argv)
{
	int status = run(argc, argv);
	if (fflush(stdout) && !status)
		status = say_fail("standard output: cannot be written");
	return status;
}
