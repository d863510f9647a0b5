/* cmd_instrument.c - `egpu instrument`: a PTX file's kernels with an object's programs spliced in.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/names.h"
#include "cli/near.h"
#include "cli/probe.h"
#include "cli/rules.h"
#include "instrument/instrument.h"
#include "ptx/ptx.h"

enum {
	MAX_PROGRAMS = SESSION_MAX_PROGS,
	NAME_BYTES = 240, /* of a file, before .NUMBER.ptx: Linux takes 255 */
};

struct opts {
	const char *pattern, *out;
	int verbose;
	bool sampled;
	struct rules_opts rules;
};

static const struct opt options[] = {
	{ 'k', "kernel", OPT_STRING, offsetof(struct opts, pattern), "PATTERN",
		"kernels: a name, a shell pattern or /regex/ (default: all)" },
	{ 'o', NULL, OPT_STRING, offsetof(struct opts, out), "OUT",
		"file, or directory for several kernels (NAME.ptx each)" },
	{ 'v', "verbose", OPT_COUNT, offsetof(struct opts, verbose), NULL,
		"list the sites on standard error" },
	{ 0, "sample-warps", OPT_FLAG, offsetof(struct opts, sampled), NULL,
		"as they run in a part of the warps: egpu run --sample-warps, --max-overhead" },
	RULES_OPTIONS(struct opts, rules),
	{ 0 },
};

struct work {
	const struct opts *opts;
	const char *ptx_path;
	struct arena *arena;
	struct ptx_module *module;
	struct ebpf_fragment fragments[MAX_PROGRAMS];
	const char *patterns[MAX_PROGRAMS];
	uint32_t n_fragments;
	const char **kernels; /* that a pattern matches */
	uint32_t n_kernels, first_site;
};

static int take_programs(struct work *w, const struct probe *p)
{
	struct bpf_program *prog;
	for (size_t i = 0; (prog = probe_program(p, i)); i++) {
		const struct loader_prog *lp = loader_prog_by_fd(bpf_program__fd(prog));
		if (!lp || !lp->fragment || w->n_fragments == MAX_PROGRAMS)
			return say_fail("%s: program %s has no translation", p->options->name,
				bpf_program__name(prog));
		struct ebpf_fragment *f = &w->fragments[w->n_fragments];
		const char *pattern = NULL;
		*f = *lp->fragment;
		const char *section = bpf_program__section_name(prog), *opcode;
		ebpf_section_parse(section, &f->point, &f->warp, &pattern);
		uint32_t opcode_bytes = ebpf_section_opcode(section, &opcode);
		f->opcode = opcode_bytes ? arena_strndup(w->arena, opcode, opcode_bytes) : NULL;
		if (!pattern || !*pattern)
			pattern = w->opts->pattern ? w->opts->pattern : "*";
		if (session_match(pattern, "x", NULL) < 0)
			return say_fail("pattern %s: not a regular expression", pattern);
		w->patterns[w->n_fragments++] = arena_strdup(w->arena, pattern);
	}
	return 0;
}

static bool matches(const struct work *w, uint32_t program, const char *kernel)
{
	return session_match(w->patterns[program], kernel, name_demangle(w->arena, kernel)) > 0;
}

static int no_match(const struct work *w, const char **names, size_t n)
{
	const char *best[5];
	char list[1024] = "";
	size_t near = near_any(w->patterns[0], names, n, best, 5);
	for (size_t i = 0; i < near; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			i ? ", " : "; nearest: ", name_base(w->arena, best[i]));
	if (!n)
		return say_fail("%s: has no kernel (.entry)", w->ptx_path);
	return say_fail("%s: no kernel matches '%s'%s", w->ptx_path, w->patterns[0], list);
}

static int choose_kernels(struct work *w)
{
	const char **all = arena_array(w->arena, w->module->n_items + 1, sizeof(*all));
	w->kernels = arena_array(w->arena, w->module->n_items + 1, sizeof(*w->kernels));
	size_t n = 0;
	if (!all || !w->kernels)
		return say_fail("out of memory");
	for (uint32_t i = 0; i < w->module->n_items; i++) {
		const struct ptx_func *f =
			w->module->items[i].kind == PTX_ITEM_FUNC ? w->module->items[i].func : NULL;
		if (!f || !f->is_entry || f->is_decl)
			continue;
		all[n++] = f->name;
		bool wanted = false;
		for (uint32_t k = 0; k < w->n_fragments && !wanted; k++)
			wanted = matches(w, k, f->name);
		if (wanted)
			w->kernels[w->n_kernels++] = f->name;
	}
	return w->n_kernels ? 0 : no_match(w, all, n);
}

static void list_sites(const struct work *w, const char *kernel, const struct instrument_result *r)
{
	struct instrument_estimate e;
	instrument_estimate(&r->cost, &e);
	fprintf(stderr, "%s: %u of %u sites probed%s\n", name_demangle(w->arena, kernel),
		r->n_probed, r->n_sites, r->last_bit_may_differ ? ", last bit may differ" : "");
	fprintf(stderr, "  estimate: %.2f times as long, as a rule between %.2f and %.2f\n", e.slowdown, e.least, e.most);
	for (uint32_t i = 0; i < r->n_sites; i++)
		fprintf(stderr, "  site %u: line %u %s%s%s\n", w->first_site + r->sites[i].ordinal,
			r->sites[i].ptx_line,
			r->sites[i].opcode ? r->sites[i].opcode
					   : ebpf_point_name(r->sites[i].point),
			r->sites[i].skipped ? ": not probed: " : "",
			r->sites[i].skipped ? r->sites[i].skipped : "");
}

/* Names of templates are longer than a file's may be, and may differ in their last letters only: one that is cut carries its number. No name
 * of a kernel has a dot. */
static int write_kernel(const struct work *w, uint32_t index, const struct instrument_result *r, bool into_dir)
{
	const char *kernel = w->kernels[index];
	struct buf text = { .data = (char *)r->ptx, .len = r->ptx_bytes };
	char path[4096];
	if (!into_dir)
		return write_out(w->opts->out, stdout, &text);
	if (strlen(kernel) <= NAME_BYTES)
		snprintf(path, sizeof(path), "%s/%s.ptx", w->opts->out, kernel);
	else
		snprintf(path, sizeof(path), "%s/%.*s.%u.ptx", w->opts->out, NAME_BYTES, kernel, index);
	return write_out(path, NULL, &text);
}

static int instrument_one(struct work *w, uint32_t index, bool into_dir)
{
	const struct ebpf_fragment *chosen[MAX_PROGRAMS];
	const char *kernel = w->kernels[index];
	struct instrument_result r = { 0 };
	struct diag d = { 0 };
	struct instrument_request req = { .module = w->module,
		.kernel = kernel,
		.fragments = chosen,
		.kernel_id = index,
		.first_site = w->first_site };
	for (uint32_t k = 0; k < w->n_fragments; k++)
		if (matches(w, k, kernel))
			chosen[req.n_fragments++] = &w->fragments[k];
	if (instrument_kernel(w->arena, &req, &r, &d)) {
		say("%s: kernel %s cannot be instrumented: %s", w->ptx_path,
			name_demangle(w->arena, kernel), d.text);
		return EGPU_FAILED;
	}
	if (w->opts->verbose)
		list_sites(w, kernel, &r);
	w->first_site += r.n_sites;
	return write_kernel(w, index, &r, into_dir);
}

static int instrument_all(struct work *w)
{
	struct stat st;
	bool into_dir = w->opts->out && !stat(w->opts->out, &st) && S_ISDIR(st.st_mode);
	if (w->n_kernels > 1 && !into_dir)
		return say_fail("%s: %u kernels match (%s, %s%s); choose one with -k, or give a "
				"directory with -o",
			w->ptx_path, w->n_kernels, name_base(w->arena, w->kernels[0]),
			name_base(w->arena, w->kernels[1]), w->n_kernels > 2 ? ", .." : "");
	int status = 0;
	for (uint32_t i = 0; i < w->n_kernels; i++) {
		int result = instrument_one(w, i, into_dir);
		status = result ? result : status;
	}
	return status;
}

static int with_probe(struct work *w, struct probe *p)
{
	struct session *s = NULL;
	struct diag d = { 0 };
	if (session_create(&s, &d))
		return say_diag("session", &d);
	session_data(s)->filter.sample_warps = w->opts->sampled ? 2 : 0;
	int status = probe_open(p, s);
	status = status ? status : probe_load(p);
	status = status ? status : take_programs(w, p);
	status = status ? status : choose_kernels(w);
	status = status ? status : instrument_all(w);
	probe_close(p);
	session_destroy(s);
	return status;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	struct work w = { .opts = opts, .ptx_path = rest->args[1], .arena = arena_new() };
	struct probe_options po = { .name = rest->args[0],
		.pattern = w.opts->pattern,
		.rules = { .log_level = 1 },
		.verbose = w.opts->verbose > 1 };
	struct probe p;
	struct diag d = { 0 };
	char *text = NULL;
	size_t size;
	int status = w.arena ? rules_read(&w.opts->rules, &po.rules) : say_fail("out of memory");
	if (!status)
		status = probe_read(&p, &po);
	if (status) {
		arena_free(w.arena);
		return status;
	}
	session_gc();
	if (read_file(w.ptx_path, (size_t)1 << 30, &text, &size, &d) ||
		ptx_parse(text, size, &w.module, &d))
		status = say_diag(w.ptx_path, &d);
	else
		status = with_probe(&w, &p);
	ptx_module_free(w.module);
	free(text);
	probe_free(&p);
	arena_free(w.arena);
	return status;
}

const struct command cmd_instrument = {
	.name = "instrument",
	.synopsis = "instrument [-k PATTERN] [-o OUT] OBJ IN.ptx",
	.summary = "splices an object's programs into the kernels of a PTX file",
	.help = "The output is the kernel with what it needs, as the agent would compile it; it "
		"reads map addresses from __egpu_table.\n"
		"  egpu instrument -k vecadd -o vecadd.probed.ptx count.bpf.o vecadd.ptx\n"
		"  ptxas -arch=sm_90 vecadd.probed.ptx -o /dev/null\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.min_args = 2,
	.max_args = 2,
};
