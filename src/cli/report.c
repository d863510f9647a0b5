/* report.c - see report.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fault.h"
#include "cli/filter.h"
#include "cli/names.h"
#include "cli/near.h"
#include "cli/probe.h"
#include "cli/report.h"
#include "tools/tool.h"

enum { LISTED_KERNELS = 20, NEAREST = 5, NAME_WIDTH = 100 };

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

static bool is_unprobed(const struct snap_kernel *k)
{
	return k->state == SESSION_KERNEL_REFUSED || k->state == SESSION_KERNEL_PENDING;
}

static double share(uint64_t part, uint64_t all)
{
	return all ? 100.0 * (double)part / (double)all : 0;
}

static void list_one(const struct snapshot *snap, const struct snap_kernel *k, struct buf *text)
{
	buf_printf(text, "  %s: %s: %s", snap_state_name(k->state),
		name_short(snap->arena, k->name, NAME_WIDTH),
		*k->reason ? k->reason : "no reason given");
	if (k->state == SESSION_KERNEL_PENDING && k->since_ns)
		buf_printf(text, ", for %.1f s", snap_seconds_since(k->since_ns));
	if (k->time_ns)
		buf_printf(text, " (%.1f%% of GPU time)", share(k->time_ns, snap->time_ns));
	buf_puts(text, "\n");
}

/* Kernels that ran come first: a library may bring thousands that this command never launches. */
static void list_unprobed(const struct snapshot *snap, struct buf *text)
{
	uint32_t listed = 0, idle = 0, more = 0, unselected = 0;
	uint64_t unselected_ns = 0;
	for (uint32_t i = 0; i < snap->n_kernels; i++) {
		const struct snap_kernel *k = &snap->kernels[i];
		unselected += k->state == SESSION_KERNEL_SEEN;
		unselected_ns += k->state == SESSION_KERNEL_SEEN ? k->time_ns : 0;
		idle += is_unprobed(k) && !k->launches;
		if (!is_unprobed(k) || !k->launches)
			continue;
		if (listed++ < LISTED_KERNELS)
			list_one(snap, k, text);
		else
			more++;
	}
	if (more)
		buf_printf(text, "  and %u more that ran unprobed (all in --json)\n", more);
	if (listed + idle <= LISTED_KERNELS) {
		for (uint32_t i = 0; i < snap->n_kernels; i++)
			if (is_unprobed(&snap->kernels[i]) && !snap->kernels[i].launches)
				list_one(snap, &snap->kernels[i], text);
	} else if (idle) {
		buf_printf(text,
			"  %u kernel%s that cannot be probed %s never launched (all in --json)\n",
			idle, plural(idle), idle == 1 ? "was" : "were");
	}
	if (unselected)
		buf_printf(text, "  %u kernel%s not selected by any pattern%s", unselected, plural(unselected),
			snap->filter.device ? ", or on other devices" : "");
	if (unselected && unselected_ns)
		buf_printf(text, " (%.1f%% of GPU time)", share(unselected_ns, snap->time_ns));
	if (unselected)
		buf_puts(text, "\n");
}

static void list_differing(const struct snapshot *snap, struct buf *text)
{
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		if (snap->kernels[i].last_bit_may_differ &&
			snap->kernels[i].state == SESSION_KERNEL_INSTRUMENTED)
			buf_printf(text, "  last bit of floating-point results may differ: %s\n",
				name_short(snap->arena, snap->kernels[i].name, NAME_WIDTH));
}

static bool has_opcode(const struct snapshot *snap, const char *opcode, size_t n)
{
	for (uint32_t i = 0; i < snap->n_sites; i++)
		if (snap->sites[i].point == EBPF_POINT_INSN && !strncmp(snap->sites[i].opcode, opcode, n))
			return true;
	return false;
}

/* A mistyped opcode would count nothing, in silence. */
static void list_placeless(const struct run_report *r, struct buf *text)
{
	struct bpf_program *prog;
	for (size_t i = 0; r->snap->n_probed && (prog = probe_program(r->programs, i)); i++) {
		const char *opcode;
		uint32_t n = ebpf_section_opcode(bpf_program__section_name(prog), &opcode);
		if (n && bpf_program__autoload(prog) && !has_opcode(r->snap, opcode, n))
			buf_printf(text, "  program %s: no instruction of the probed kernels begins with '%.*s'\n", bpf_program__name(prog),
				(int)n, opcode);
	}
}

static bool is_limited(const struct snapshot *snap)
{
	return snap->filter.max_overhead_ppm != 0;
}

/* A kernel whose programs ran in a part of the warps; with a limit also one where they ran in all. */
static void list_sample(const struct snapshot *snap, const struct snap_kernel *k, bool all, struct buf *text)
{
	const char *name = name_short(snap->arena, k->name, NAME_WIDTH);
	if (!k->one_in_most || (k->one_in_most == 1 && !all && !k->given_up))
		return;
	if (k->given_up)
		buf_printf(text, "  given up: %s: %.1f%% slower even with one warp in %u; its last launches ran unprobed\n", name,
			(double)k->overhead_ppm / 1e4, k->one_in);
	else
		buf_printf(text, "  sampled: one warp in %u of %s", k->one_in, name);
	if (!k->given_up && k->overhead_ppm)
		buf_printf(text, ", %.1f%% slower", (double)k->overhead_ppm / 1e4);
	if (!k->given_up && k->one_in_least < k->one_in_most)
		buf_printf(text, "; during the run one in %u to %u", k->one_in_least, k->one_in_most);
	if (!k->given_up)
		buf_printf(text, " (of %" PRIu64 " warps)\n", k->warps);
}

/* What each probed kernel was slowed down by, where launches of both kinds were timed. */
static void list_slowed(const struct snapshot *snap, bool all, struct buf *text)
{
	bool sampled = false;
	for (uint32_t i = 0; i < snap->n_kernels; i++) {
		const struct snap_kernel *k = &snap->kernels[i];
		sampled |= k->one_in_most > 1 || (is_limited(snap) && k->one_in_most);
		list_sample(snap, k, all, text);
		if (k->slowdown > 0 && all && !is_limited(snap))
			buf_printf(text, "  a probed launch takes %.3f times as long (the estimate was %.2f): %s\n",
				k->slowdown, k->estimate, name_short(snap->arena, k->name, NAME_WIDTH));
	}
	if (sampled)
		buf_puts(text, "  sums are estimates for all warps; what a map says it has of chosen warps alone is not scaled\n");
}

/* With -v: what each variant cost to make. */
static void list_compiled(const struct snapshot *snap, struct buf *text)
{
	for (uint32_t i = 0; i < snap->n_kernels; i++) {
		const struct snap_kernel *k = &snap->kernels[i];
		if (k->compile_ns)
			buf_printf(text, "  %s in %.1f ms: %s, registers %u -> %u\n",
				k->compile_cached ? "cached" : "compiled",
				(double)k->compile_ns / 1e6,
				name_short(snap->arena, k->name, NAME_WIDTH), k->regs_before,
				k->regs_after);
	}
}

static bool is_off(const struct session *s)
{
	return __atomic_load_n(&session_data((struct session *)s)->off, __ATOMIC_RELAXED);
}

static bool agent_came(const struct session *s)
{
	const struct session_file *f = session_data((struct session *)s);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (f->agents[i].pid)
			return true;
	return false;
}

static void time_text(const struct snapshot *snap, struct buf *text)
{
	uint64_t timed = 0;
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		timed += snap->kernels[i].timed;
	if (!timed)
		return;
	buf_printf(text,
		"  %.1f%% of GPU time probed: %.3f of %.3f ms, estimated from %" PRIu64
		" timed launch%s",
		share(snap->probed_ns, snap->time_ns), (double)snap->probed_ns / 1e6,
		(double)snap->time_ns / 1e6, timed, timed == 1 ? "" : "es");
	if (snap->untimed)
		buf_printf(text, "; %u kernel%s never timed", snap->untimed, plural(snap->untimed));
	buf_puts(text, "\n");
}

/* The agents' clocks: the worst. 0: none was calibrated. */
static uint64_t clock_error_ns(const struct session *s)
{
	const struct session_file *f = session_data((struct session *)s);
	uint64_t worst = 0;
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (f->agents[i].pid && f->agents[i].clock_error_ns > worst)
			worst = f->agents[i].clock_error_ns;
	return worst;
}

static void coverage_text(const struct run_report *r, struct buf *text)
{
	const struct snapshot *snap = r->snap;
	buf_printf(text,
		"coverage: %u of %u kernel%s probed, %" PRIu64 " of %" PRIu64
		" launch%s instrumented, %" PRIu64 " record%s lost, %" PRIu64
		" insertion%s refused\n",
		snap->n_probed, snap->n_kernels, plural(snap->n_kernels),
		snap->launches_instrumented, snap->launches, snap->launches == 1 ? "" : "es",
		dump_records_lost(r->dump), plural(dump_records_lost(r->dump)),
		dump_insertions_refused(r->dump), plural(dump_insertions_refused(r->dump)));
	fault_text(r->session, snap, text);
	time_text(snap, text);
	filter_text(&snap->filter, text);
	if (snap->filter.device && snap->launches && !snap->launches_instrumented)
		buf_printf(text, "  nothing was probed on device %u\n", snap->filter.device - 1);
	list_unprobed(snap, text);
	list_differing(snap, text);
	list_placeless(r, text);
	list_slowed(snap, r->per_cpu, text);
	if (r->per_cpu)
		list_compiled(snap, text);
	if (r->per_cpu && clock_error_ns(r->session))
		buf_printf(text, "  device time is CLOCK_MONOTONIC within %.1f us\n",
			(double)clock_error_ns(r->session) / 1e3);
	if (snap->kernels_lost || snap->sites_lost)
		buf_printf(text,
			"  not recorded: kernels (%u tries) and sites (%u): the session's tables "
			"are full, "
			"or the command could not open the session any more (it changed its user "
			"or root, or may open no more files)\n",
			snap->kernels_lost, snap->sites_lost);
	if (is_off(r->session))
		buf_puts(text, "  probes were switched off during the run\n");
	if (snap->launches || snap->kernels_lost)
		return;
	if (r->attached)
		buf_puts(text, "  no kernel was launched meanwhile\n");
	else if (snap->n_kernels)
		buf_puts(text, "  the command launched no kernel\n");
	else if (agent_came(r->session))
		buf_puts(text, "  the command launched no kernel: it loaded no GPU code through "
			       "the CUDA driver\n");
	else
		buf_puts(text, "  the command launched no kernel: it did not use the CUDA driver "
			       "(or it is statically linked "
			       "or setuid, which keeps LD_PRELOAD out)\n");
}

/* -- patterns that matched nothing ------------------------------------------- */

static bool pattern_matches(const struct snapshot *snap, const char *pattern)
{
	if (!*pattern || !strcmp(pattern, "*"))
		return snap->n_kernels > 0;
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		if (session_match(pattern, snap->kernels[i].name, snap->kernels[i].demangled) > 0)
			return true;
	return false;
}

static void nearest(const struct snapshot *snap, const char *pattern, struct buf *text)
{
	const char **names = calloc(snap->n_kernels + 1, sizeof(*names)), *best[NEAREST];
	size_t n = 0;
	for (uint32_t i = 0; names && i < snap->n_kernels; i++) {
		const char *base = name_base(snap->arena, snap->kernels[i].name);
		bool known = false;
		for (size_t k = 0; k < n && !known; k++)
			known = !strcmp(names[k], base);
		if (!known)
			names[n++] = base;
	}
	n = names ? near_any(pattern, names, n, best, NEAREST) : 0;
	for (size_t i = 0; i < n; i++)
		buf_printf(text, "%s%s", i ? ", " : "; nearest: ", best[i]);
	free(names);
}

int report_unmatched(const struct session *s, const struct snapshot *snap, struct buf *text)
{
	const struct session_file *f = session_data((struct session *)s);
	int unmatched = 0;
	for (int i = 0; i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &f->links[i];
		char pattern[SESSION_PATTERN_BYTES];
		snprintf(pattern, sizeof(pattern), "%.*s", SESSION_PATTERN_BYTES - 1, l->pattern);
		if (l->state == SESSION_LINK_FREE || pattern_matches(snap, pattern))
			continue;
		unmatched++;
		if (!snap->n_kernels)
			continue; /* coverage says that nothing was launched */
		buf_printf(text, "kernel pattern '%s' matched nothing: %u kernel%s seen", pattern,
			snap->n_kernels, snap->n_kernels == 1 ? " was" : "s were");
		nearest(snap, pattern, text);
		buf_puts(text, "\n");
	}
	return unmatched;
}

/* -- JSON -------------------------------------------------------------------- */

static void json_estimate(const struct snap_kernel *k, struct json *j)
{
	if (!(k->estimate > 0)) {
		json_null(j);
		return;
	}
	json_object(j);
	json_key(j, "slowdown");
	json_double(j, k->estimate);
	json_key(j, "least");
	json_double(j, k->estimate_least);
	json_key(j, "most");
	json_double(j, k->estimate_most);
	json_object_end(j);
}

static void json_sampling(const struct snap_kernel *k, struct json *j)
{
	if (!k->one_in_most) {
		json_null(j);
		return;
	}
	json_object(j);
	json_put_u64(j, "one_warp_in", k->one_in);
	json_put_u64(j, "least", k->one_in_least);
	json_put_u64(j, "most", k->one_in_most);
	json_put_u64(j, "warps", k->warps);
	json_key(j, "overhead_percent");
	k->overhead_ppm ? json_double(j, (double)k->overhead_ppm / 1e4) : json_null(j);
	json_put_bool(j, "given_up", k->given_up);
	json_object_end(j);
}

static void json_shapes(const struct snap_kernel *k, struct json *j)
{
	json_array(j);
	for (uint32_t i = 0; i < k->n_shapes; i++) {
		const struct snap_shape *s = &k->shapes[i];
		json_object(j);
		json_put_three(j, "grid", s->grid);
		json_put_three(j, "block", s->block);
		json_put_u64(j, "shared_bytes", s->shared_bytes);
		json_key(j, "stream");
		s->stream == UINT32_MAX ? json_null(j) : json_u64(j, s->stream);
		json_put_u64(j, "launches", s->launches);
		json_put_u64(j, "launches_timed", s->timed);
		json_key(j, "mean_ns");
		s->timed ? json_u64(j, s->time_ns / s->timed) : json_null(j);
		json_object_end(j);
	}
	json_array_end(j);
}

static void json_kernel(const struct snap_kernel *k, struct json *j)
{
	json_object(j);
	json_put_string(j, "name", k->name);
	json_put_string(j, "demangled", k->demangled);
	json_put_string(j, "state", snap_state_name(k->state));
	json_put_string(j, "reason", *k->reason ? k->reason : NULL);
	json_put_string(j, "source", *k->source ? k->source : NULL);
	json_put_u64(j, "launches", k->launches);
	json_put_u64(j, "launches_instrumented", k->launches_instrumented);
	json_key(j, "shapes");
	json_shapes(k, j);
	json_put_u64(j, "registers_before", k->regs_before);
	json_put_u64(j, "registers_after", k->regs_after);
	json_put_u64(j, "local_bytes_before", k->local_before);
	json_put_u64(j, "local_bytes_after", k->local_after);
	json_put_bool(j, "last_bit_may_differ", k->last_bit_may_differ);
	json_put_u64(j, "gpu_time_ns", k->time_ns);
	json_put_u64(j, "launches_timed", k->timed);
	json_key(j, "slowdown");
	k->slowdown > 0 ? json_double(j, k->slowdown) : json_null(j);
	json_key(j, "estimate");
	json_estimate(k, j);
	json_key(j, "sampling");
	json_sampling(k, j);
	json_put_u64(j, "compile_ns", k->compile_ns);
	json_put_bool(j, "compile_cached", k->compile_cached);
	json_put_u64(j, "sites", k->n_sites);
	json_put_u64(j, "pid", k->pid);
	json_object_end(j);
}

void report_kernels_json(const struct snapshot *snap, struct json *j)
{
	json_array(j);
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		json_kernel(&snap->kernels[i], j);
	json_array_end(j);
}

static void json_site(const struct snapshot *snap, const struct snap_site *s, struct json *j)
{
	json_object(j);
	json_put_u64(j, "id", s->id);
	json_put_string(j, "kernel", snap->kernels[s->kernel].demangled);
	json_put_string(j, "function", s->function);
	json_put_string(j, "point", ebpf_point_name(s->point));
	json_put_u64(j, "ptx_line", s->ptx_line);
	json_put_string(j, "file", *s->file ? s->file : NULL);
	json_key(j, "line");
	s->line ? json_u64(j, s->line) : json_null(j);
	json_put_string(j, "opcode", s->opcode);
	json_put_string(j, "space", snap_space_name(s->space));
	json_put_u64(j, "bytes", s->bytes);
	json_put_string(j, "skipped", *s->skipped ? s->skipped : NULL);
	json_object_end(j);
}

static void json_coverage(const struct run_report *r, struct json *j)
{
	const struct snapshot *snap = r->snap;
	uint32_t by_state[4] = { 0 };
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		if ((unsigned)snap->kernels[i].state < 4)
			by_state[snap->kernels[i].state]++;
	json_object(j);
	json_put_u64(j, "kernels_seen", snap->n_kernels);
	json_put_u64(j, "kernels_probed", by_state[SESSION_KERNEL_INSTRUMENTED]);
	json_put_u64(j, "kernels_refused", by_state[SESSION_KERNEL_REFUSED]);
	json_put_u64(j, "kernels_pending", by_state[SESSION_KERNEL_PENDING]);
	json_put_u64(j, "kernels_not_selected", by_state[SESSION_KERNEL_SEEN]);
	json_put_u64(j, "launches", snap->launches);
	json_put_u64(j, "launches_instrumented", snap->launches_instrumented);
	json_put_u64(j, "gpu_time_ns", snap->time_ns);
	json_put_u64(j, "gpu_time_probed_ns", snap->probed_ns);
	json_put_u64(j, "records_lost", dump_records_lost(r->dump));
	json_put_u64(j, "insertions_refused", dump_insertions_refused(r->dump));
	json_put_u64(j, "kernels_not_recorded", snap->kernels_lost);
	json_put_u64(j, "sites_not_recorded", snap->sites_lost);
	json_object_end(j);
}

/* What was asked for; null where nothing was. */
static void json_filter(const struct session_filter *f, struct json *j)
{
	if (!f->active) {
		json_null(j);
		return;
	}
	json_object(j);
	json_put_u64(j, "skip", f->skip);
	json_key(j, "launches");
	f->launches ? json_u64(j, f->launches) : json_null(j);
	json_key(j, "for_ns");
	f->for_ns ? json_u64(j, f->for_ns) : json_null(j);
	json_key(j, "device");
	f->device ? json_u64(j, f->device - 1) : json_null(j);
	json_key(j, "stream");
	f->stream ? json_u64(j, f->stream - 1) : json_null(j);
	json_key(j, "max_overhead_percent");
	f->max_overhead_ppm ? json_double(j, (double)f->max_overhead_ppm / 1e4) : json_null(j);
	json_key(j, "sample_warps");
	f->sample_warps ? json_u64(j, f->sample_warps) : json_null(j);
	json_key(j, "seed");
	session_samples(f) ? json_u64(j, f->sample_seed) : json_null(j);
	json_put_u64(j, "seen", f->seen);
	json_object_end(j);
}

static void json_head(const struct run_report *r, struct json *j)
{
	json_put_string(j, "egpu", EGPU_VERSION);
	json_put_string(j, "probe", r->probe);
	json_key(j, "command");
	json_array(j);
	for (char **c = r->command; *c; c++)
		json_string(j, *c);
	json_array_end(j);
	json_key(j, "exit");
	json_i64(j, r->exit_status);
	json_key(j, "coverage");
	json_coverage(r, j);
	json_key(j, "faults");
	fault_json(r->session, r->snap, j);
	json_key(j, "clock_error_ns");
	clock_error_ns(r->session) ? json_u64(j, clock_error_ns(r->session)) : json_null(j);
	json_key(j, "filter");
	json_filter(&r->snap->filter, j);
	json_key(j, "kernels");
	report_kernels_json(r->snap, j);
	json_key(j, "sites");
	json_array(j);
	for (uint32_t i = 0; i < r->snap->n_sites; i++)
		json_site(r->snap, &r->snap->sites[i], j);
	json_array_end(j);
}

int report_make(const struct run_report *r, struct buf *text, struct json *json, struct diag *d)
{
	struct dump_options o = { .per_cpu = r->per_cpu };
	int err = 0;
	coverage_text(r, text);
	json_object(json);
	json_head(r, json);
	json_key(json, "maps");
	if (r->tool) {
		/* A tool's maps are its own business: its section says what is in them. */
		json_object(json);
		json_object_end(json);
		json_key(json, "tool");
		size_t before = json->out->len;
		err = r->tool->report(r->session, r->snap, text, json, d);
		if (err && json->out->len == before)
			json_null(json);
	} else {
		dump_text(r->dump, &o, text);
		dump_json(r->dump, &o, json);
	}
	json_object_end(json);
	buf_puts(json->out, "\n");
	return err;
}
