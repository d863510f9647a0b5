/* cmd_translate.c - `egpu translate`: the PTX fragment that a program becomes. */
#include "cli/cli.h"
#include "cli/each.h"
#include "cli/rules.h"

struct opts {
	const char *program, *out;
	int verbose;
	struct rules_opts rules;
};

static const struct opt options[] = {
	{ 'p', "prog", OPT_STRING, offsetof(struct opts, program), "NAME", "only this program" },
	{ 'o', NULL, OPT_STRING, offsetof(struct opts, out), "FILE",
		"write there, not to standard output" },
	{ 'v', "verbose", OPT_COUNT, offsetof(struct opts, verbose), NULL,
		"show the whole log of a refused program" },
	RULES_OPTIONS(struct opts, rules),
	{ 0 },
};

struct job {
	const struct opts *opts;
	struct buf text;
};

static int translate(struct probe *p, const struct loader_prog *prog, void *arg)
{
	struct job *job = arg;
	struct diag d = { 0 };
	const char *section = NULL;
	if (prog->err) {
		probe_explain(p, prog, job->opts->verbose);
		return EGPU_FAILED;
	}
	/* The point is the section's: the same code serves every point of its context. */
	for (size_t i = 0; probe_program(p, i); i++)
		if (bpf_program__autoload(probe_program(p, i)))
			section = bpf_program__section_name(probe_program(p, i));
	int err = section ? loader_fragment_for(prog, section, &job->text, &d)
			  : loader_fragment(prog, EBPF_POINT_NONE, false, &job->text, &d);
	return err ? say_diag(prog->name, &d) : 0;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	struct probe_options po = { .name = rest->args[0], .rules = { .log_level = 1 }, .verbose = false };
	struct job job = { .opts = o };
	int status = rules_read(&o->rules, &po.rules);
	if (!status)
		status = each_program(&po, o->program, translate, &job);
	if (!status)
		status = write_out(o->out, stdout, &job.text);
	buf_free(&job.text);
	return status;
}

const struct command cmd_translate = {
	.name = "translate",
	.synopsis = "translate [-p NAME] [-o FILE] OBJ",
	.summary = "prints the PTX fragment that each program of an object becomes",
	.help = "The text is what a session stores and what is spliced into kernels; its head "
		"names the inputs it reads.\n"
		"  egpu translate -p count count.bpf.o\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.min_args = 1,
	.max_args = 1,
};
