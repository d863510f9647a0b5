/* cmd_run.c - `egpu run`: a probe in the kernels of a command, and the report at its end. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/filter.h"
#include "cli/guards.h"
#include "cli/probe.h"
#include "cli/report.h"
#include "cli/rules.h"
#include "cli/runner.h"
#include "cli/target.h"
#include "cli/tools.h"
#include "cli/watch.h"

struct opts {
	struct driver_choice driver;
	const char *pattern, *json, *out;
	struct opt_list set;
	bool allow_empty;
	struct opt_maybe live;
	int verbose;
	struct rules_opts rules;
	struct filter_opts filter;
	bool no_time;
};

static const struct opt options[] = {
	{ 0, "gpu", OPT_FLAG, offsetof(struct opts, driver.gpu), NULL,
		"use this machine's CUDA driver (default when it works)" },
	{ 0, "softgpu", OPT_MAYBE, offsetof(struct opts, driver.softgpu), "sm_90",
		"run kernels on the CPU: no GPU is needed" },
	{ 'k', "kernel", OPT_STRING, offsetof(struct opts, pattern), "PATTERN",
		"kernels to probe: a name, a shell pattern or /regex/ (default: all)" },
	{ 0, "set", OPT_LIST, offsetof(struct opts, set), "VAR=VALUE",
		"initial value of a global variable of the probe" },
	{ 0, "json", OPT_STRING, offsetof(struct opts, json), "FILE",
		"also write the report as JSON" },
	{ 'o', NULL, OPT_STRING, offsetof(struct opts, out), "FILE",
		"write the report there, not to standard error" },
	{ 0, "allow-empty", OPT_FLAG, offsetof(struct opts, allow_empty), NULL,
		"no failure when the pattern matches no kernel" },
	{ 0, "live", OPT_MAYBE, offsetof(struct opts, live), "POINTS",
		"let programs come and go while kernels run, at entry,exit,loop (default) or mem; needs -k" },
	FILTER_OPTIONS(struct opts, filter),
	{ 0, "no-time", OPT_FLAG, offsetof(struct opts, no_time), NULL,
		"do not time kernels on the device" },
	RULES_OPTIONS(struct opts, rules),
	{ 'v', "verbose", OPT_COUNT, offsetof(struct opts, verbose), NULL,
		"say more; per-CPU maps show every slot" },
	{ 0 },
};

/* -- the end ----------------------------------------------------------------- */

static int write_report(const struct opts *o, const struct run_report *r)
{
	struct buf text = { 0 }, json_text = { 0 };
	struct json j;
	struct diag d = { 0 };
	json_init(&j, &json_text, JSON_PRETTY);
	int err = report_make(r, &text, &j, &d);
	int status = err ? say_diag("report", &d) : 0;
	if (write_out(o->out, stderr, &text)) {
		status = EGPU_FAILED;
		if (o->out) /* what a long run has found is not lost */
			write_out(NULL, stderr, &text);
	}
	if (o->json && write_out(o->json, NULL, &json_text))
		status = EGPU_FAILED;
	buf_free(&text);
	buf_free(&json_text);
	return status;
}

/* A pattern that matched nothing is an error, unless the command failed by itself: then that is
 * what counts. */
static int unmatched(const struct opts *o, const struct run_report *r)
{
	struct buf text = { 0 };
	int n = report_unmatched(r->session, r->snap, &text);
	if (n && text.data)
		for (char *save, *line = strtok_r(text.data, "\n", &save); line;
			line = strtok_r(NULL, "\n", &save))
			say("%s", line);
	if (n && !r->snap->n_kernels && !o->allow_empty)
		say("nothing was probed: %s (--allow-empty makes this no failure)",
			r->snap->kernels_lost ? "no kernel of the command could be recorded"
					      : "the command launched no kernel");
	else if (n && !o->allow_empty)
		say("give another pattern; --allow-empty makes this no failure");
	buf_free(&text);
	return n && !o->allow_empty && !r->exit_status ? EGPU_FAILED : 0;
}

static int report(const struct opts *o, const struct probe *p, struct runner *r, struct dump *dump,
	char **command, int exit_status)
{
	struct run_report rep = {
		.session = r->session,
		.snap = snap_take(r->session),
		.dump = dump,
		.tool = p->tool,
		.programs = p,
		.probe = p->options->name,
		.command = command,
		.exit_status = exit_status,
		.per_cpu = o->verbose > 0,
	};
	if (!rep.snap)
		return say_fail("out of memory");
	int status = write_report(o, &rep);
	int empty = unmatched(o, &rep);
	snap_free(rep.snap);
	return status ? status : empty ? empty : exit_status;
}

static int run_target(const struct opts *o, struct probe *p, struct runner *r, char **command)
{
	struct watch w;
	struct target *target = NULL;
	bool started;
	if (watch_begin(&w, r->session, o->verbose > 0))
		return EGPU_FAILED;
	int status = runner_run(r, command, watch_tick, &w, &started, &target);
	watch_end(&w);
	if (started) {
		if (target_signal(target) && o->verbose)
			say("%s was ended by signal %d (%s)", command[0], target_signal(target),
				strsignal(target_signal(target)));
		status = report(o, p, r, w.dump, command, status);
	}
	watch_free(&w);
	target_free(target);
	return status;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	struct probe_options po = { .name = rest->n_args ? rest->args[0] : NULL,
		.pattern = o->pattern,
		.set = &o->set,
		.rules = { .log_level = 1 },
		.live = o->live.given,
		.verbose = o->verbose > 0 };
	struct runner r;
	struct probe p = { .options = &po };
	if (!po.name && !po.live)
		return say_fail("no probe: name a tool, a .bpf.o or a .bpf.c before --:\n  egpu %s", cmd_run.synopsis);
	if (!rest->command || !rest->n_command)
		return say_fail(
			"no command to run: write it after --:\n  egpu %s", cmd_run.synopsis);
	if (o->live.given && !o->pattern)
		return say_fail("--live puts guards into the kernels that you name: give -k KERNEL");
	if (filter_samples_live(&o->filter, o->live.given))
		return EGPU_FAILED;
	/* Before the command has run for hours. */
	if (check_out(o->out) || check_out(o->json))
		return EGPU_FAILED;
	struct session_filter filter;
	int status = rules_read(&o->rules, &po.rules);
	status = status ? status : filter_read(&o->filter, &filter);
	if (status)
		return status;
	if (filter.max_overhead_ppm && o->no_time)
		return say_fail("--max-overhead compares times of launches: leave out --no-time, or give --sample-warps N");
	status = po.name ? probe_read(&p, &po) : 0;
	if (status)
		return status;
	status = runner_open(&r, &o->driver);
	if (!status && filter_check_device(&filter, r.n_devices)) {
		status = EGPU_FAILED;
		runner_close(&r);
	}
	if (!status) {
		filter_apply(r.session, &filter);
		session_data(r.session)->untimed = o->no_time;
		status = guards_add(r.session, &o->live, o->pattern, o->verbose > 0);
		if (po.name) {
			status = status ? status : probe_open(&p, r.session);
			status = status ? status : probe_load(&p);
			status = status ? status : probe_attach(&p);
		}
		status = status ? status : run_target(o, &p, &r, rest->command);
		if (po.name)
			probe_close(&p);
		runner_close(&r);
	}
	probe_free(&p);
	return status;
}

const struct command cmd_run = {
	.name = "run",
	.synopsis = "run [options] PROBE -- COMMAND...",
	.summary = "runs a command with a probe in its CUDA kernels, and reports at its end",
	.help = "PROBE is a shipped tool (egpu tools), a BPF object NAME.bpf.o, or its source "
		"NAME.bpf.c, which is compiled on the spot.\n"
		"  egpu run memtrace -- ./program --its --options\n"
		"  egpu run --softgpu --json=report.json memtrace -- build/samples/vecadd 1000\n"
		"  egpu run -k 'gemm*' --set threshold=100 count.bpf.c -- python3 train.py\n"
		"An object without a tool prints its maps, typed by its BTF. A first probe, "
		"count.bpf.c:\n"
		"  #include <egpu/probe.bpf.h>\n"
		"  __u64 launched;\n"
		"  SEC(\"gpu/entry\") int count(struct egpu_entry *ctx) { launched++; return 0; }\n"
		"The report opens with coverage: kernels probed, launches instrumented, records "
		"lost. The exit status is the\n"
		"command's own, 128 + signal when it was killed, or 125 when egpu failed or a "
		"pattern matched no kernel.\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.min_args = 0, /* --live may start without a probe */
	.max_args = 1,
};
