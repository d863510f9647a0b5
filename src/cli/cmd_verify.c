/* cmd_verify.c - `egpu verify`: the verdict on each program of an object, with a log that reads
 * like the kernel's. */
#include <string.h>

#include "cli/cli.h"
#include "cli/each.h"
#include "cli/rules.h"

struct opts {
	const char *program;
	int verbose;
	struct rules_opts rules;
};

static const struct opt options[] = {
	{ 'p', "prog", OPT_STRING, offsetof(struct opts, program), "NAME", "only this program" },
	{ 'v', "verbose", OPT_COUNT, offsetof(struct opts, verbose), NULL,
		"show the whole log: the state at each instruction, and what is uniform" },
	RULES_OPTIONS(struct opts, rules),
	{ 0 },
};

static int verdict(struct probe *p, const struct loader_prog *prog, void *arg)
{
	const struct opts *o = arg;
	if (prog->err)
		printf("%s: refused: %s\n", prog->name, prog->error.text);
	if (prog->log && *prog->log && (prog->err || o->verbose))
		probe_log_tail(stdout, prog->log, o->verbose > 0);
	if (prog->err)
		return 1;
	printf("%s: accepted: %u instructions, at most %llu executed a run, %u processed, %u bytes "
	       "of stack\n",
		prog->name, prog->program->n_insns,
		(unsigned long long)prog->verified.max_run_insns, prog->verified.processed_insns,
		prog->verified.stack_bytes);
	return 0;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	struct probe_options po = { .name = rest->args[0], .rules = { .log_level = o->verbose > 0 ? 2 : 1 } };
	int status = rules_read(&o->rules, &po.rules);
	if (status)
		return status;
	return each_program(&po, o->program, verdict, (void *)o);
}

const struct command cmd_verify = {
	.name = "verify",
	.synopsis = "verify [options] OBJ",
	.summary = "proves each program of an object safe, or says why it is not",
	.help = "OBJ is a .bpf.o, a .bpf.c or a tool. Status 0: all accepted; 1: one or more "
		"refused.\n"
		"  egpu verify count.bpf.o\n"
		"  egpu verify -v -p count count.bpf.c     the state before each instruction\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.min_args = 1,
	.max_args = 1,
};
