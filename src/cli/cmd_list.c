/* cmd_list.c - `egpu list`: which kernels there are, where their PTX is, and which cannot be probed
 * and why. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/attach.h"
#include "cli/cli.h"
#include "cli/compile.h"
#include "cli/driver.h"
#include "cli/filter.h"
#include "cli/grid.h"
#include "cli/json.h"
#include "cli/kernels.h"
#include "cli/report.h"
#include "cli/runner.h"
#include "cli/target.h"

enum { SOFTGPU_CC = 90 };
#define MAX_IMAGE ((size_t)8 << 30)

struct opts {
	struct driver_choice driver;
	const char *arch, *json, *out, *time;
};

static const struct opt options[] = {
	{ 0, "gpu", OPT_FLAG, offsetof(struct opts, driver.gpu), NULL,
		"with a command: run it on the GPU" },
	{ 0, "softgpu", OPT_MAYBE, offsetof(struct opts, driver.softgpu), "sm_90",
		"with a command: run it on the CPU" },
	{ 0, "arch", OPT_STRING, offsetof(struct opts, arch), "sm_90",
		"device that the code is for (default: this machine's, else sm_90)" },
	{ 0, "json", OPT_STRING, offsetof(struct opts, json), "FILE", "also write JSON" },
	{ 'o', NULL, OPT_STRING, offsetof(struct opts, out), "FILE", "write the list there" },
	{ 0, "for", OPT_STRING, offsetof(struct opts, time), "TIME", "with a process: look at it for that long: 10, 500ms, 2m (default: 3)" },
	{ 0 },
};

/* -- a file ------------------------------------------------------------------ */

static int parse_arch(const char *text, uint32_t *cc)
{
	char *end;
	const char *digits = !strncmp(text, "sm_", 3) ? text + 3 : text;
	unsigned long v = strtoul(digits, &end, 10);
	if (*end == 'a' || *end == 'f')
		end++;
	if (end == digits || *end || v < 30 || v > 999)
		return say_fail("--arch=%s is no architecture; write it like sm_90", text);
	*cc = (uint32_t)v;
	return 0;
}

static int make_query(const struct opts *o, struct kernel_query *q)
{
	struct driver_info info;
	*q = (struct kernel_query){ .cc = SOFTGPU_CC, .have_ptxas = program_in_path("ptxas") };
	driver_probe("libcuda.so.1", &info);
	if (driver_usable(&info)) {
		q->cc = (uint32_t)info.devices[0].cc;
		q->ptx_isa = driver_ptx_isa(info.version);
	}
	return o->arch ? parse_arch(o->arch, &q->cc) : 0;
}

static void skips_text(const struct kernel_file *f, struct buf *out)
{
	const char *head = "\nplaces that no probe goes to:\n";
	for (uint32_t i = 0; i < f->n_kernels; i++) {
		const struct file_kernel *k = &f->kernels[i];
		for (uint32_t s = 0; !k->reason && s < k->n_skips; s++) {
			buf_printf(out, "%s  %s: %u of %u: %s\n", head, k->demangled,
				k->skips[s].sites, k->n_sites, k->skips[s].reason);
			head = "";
		}
	}
}

static void parting_text(const struct kernel_file *f, struct buf *out)
{
	const char *head = "\nthe last bit of floating-point results may differ when all places are probed:\n";
	for (uint32_t i = 0; i < f->n_kernels; i++) {
		const struct file_kernel *k = &f->kernels[i];
		if (k->reason || !k->parting)
			continue;
		buf_printf(out, "%s  %s: %u of %u between a product and its sum\n", head, k->demangled, k->parting, k->n_sites);
		head = "";
	}
}

static void file_text(const struct kernel_file *f, const char *path, const struct kernel_query *q,
	struct buf *out)
{
	static const char *const heads[] = { "<PROBES", ">SITES", "<PTX", "<KERNEL", NULL };
	struct grid *g = grid_new(heads);
	uint32_t good = 0;
	for (uint32_t i = 0; i < f->n_kernels; i++) {
		const struct file_kernel *k = &f->kernels[i];
		good += !k->reason;
		grid_cell(g, k->reason ? "no" : "yes");
		k->reason ? grid_cell(g, "-") : grid_cell(g, "%u", k->n_sites);
		grid_cell(g, "%s", k->source);
		grid_cell(g, "%s", k->demangled);
	}
	buf_printf(out, "%s: %u kernel%s, %u can be probed (on sm_%u)\n", path, f->n_kernels,
		f->n_kernels == 1 ? "" : "s", good, q->cc);
	if (f->n_kernels)
		grid_print(g, "", out);
	grid_free(g);
	if (good < f->n_kernels)
		buf_puts(out, "\ncannot be probed:\n");
	for (uint32_t i = 0; i < f->n_kernels; i++)
		if (f->kernels[i].reason)
			buf_printf(
				out, "  %s: %s\n", f->kernels[i].demangled, f->kernels[i].reason);
	skips_text(f, out);
	parting_text(f, out);
	if (f->n_notes)
		buf_puts(out, "\nalso there:\n");
	for (uint32_t i = 0; i < f->n_notes; i++)
		buf_printf(out, "  %s\n", f->notes[i]);
	if (f->n_problems)
		buf_puts(out, "\ncannot be read:\n");
	for (uint32_t i = 0; i < f->n_problems; i++)
		buf_printf(out, "  %s\n", f->problems[i]);
}

static void file_json(
	const struct kernel_file *f, const char *path, const struct kernel_query *q, struct json *j)
{
	char arch[16];
	snprintf(arch, sizeof(arch), "sm_%u", q->cc);
	json_object(j);
	json_put_string(j, "egpu", EGPU_VERSION);
	json_put_string(j, "file", path);
	json_put_string(j, "arch", arch);
	json_key(j, "kernels");
	json_array(j);
	for (uint32_t i = 0; i < f->n_kernels; i++) {
		const struct file_kernel *k = &f->kernels[i];
		json_object(j);
		json_put_string(j, "name", k->name);
		json_put_string(j, "demangled", k->demangled);
		json_put_string(j, "source", k->source);
		json_put_string(j, "machine_code", k->targets);
		json_put_string(j, "object", k->object);
		json_put_bool(j, "instrumentable", !k->reason);
		json_put_string(j, "reason", k->reason);
		json_put_u64(j, "sites", k->n_sites);
		json_put_u64(j, "last_bit_sites", k->parting);
		json_key(j, "left_alone");
		json_array(j);
		for (uint32_t s = 0; s < k->n_skips; s++) {
			json_object(j);
			json_put_string(j, "reason", k->skips[s].reason);
			json_put_u64(j, "sites", k->skips[s].sites);
			json_object_end(j);
		}
		json_array_end(j);
		json_object_end(j);
	}
	json_array_end(j);
	json_key(j, "problems");
	json_array(j);
	for (uint32_t i = 0; i < f->n_problems; i++)
		json_string(j, f->problems[i]);
	json_array_end(j);
	json_key(j, "notes");
	json_array(j);
	for (uint32_t i = 0; i < f->n_notes; i++)
		json_string(j, f->notes[i]);
	json_array_end(j);
	json_object_end(j);
	buf_puts(j->out, "\n");
}

static int list_file(const struct opts *o, const char *path)
{
	struct kernel_query q;
	struct kernel_file *f = NULL;
	struct diag d = { 0 };
	struct buf text = { 0 }, json_text = { 0 };
	struct json j;
	char *data = NULL;
	size_t size;
	if (make_query(o, &q))
		return EGPU_FAILED;
	if (read_file(path, MAX_IMAGE, &data, &size, &d))
		return say_diag(path, &d);
	int status = 0;
	if (kernels_read(data, size, &q, &f, &d)) {
		status = say_diag(path, &d);
		goto out;
	}
	file_text(f, path, &q, &text);
	json_init(&j, &json_text, JSON_PRETTY);
	file_json(f, path, &q, &j);
	status = write_out(o->out, stdout, &text) ||
				 (o->json && write_out(o->json, NULL, &json_text))
			 ? EGPU_FAILED
			 : 0;
	if (!status && f->n_problems)
		status = say_fail("%s: %u part%s of it cannot be read: %s", path, f->n_problems,
			f->n_problems == 1 ? "" : "s", f->problems[0]);
out:
	kernels_free(f);
	free(data);
	buf_free(&text);
	buf_free(&json_text);
	return status;
}

/* -- a command --------------------------------------------------------------- */

static int by_time(const void *pa, const void *pb)
{
	const struct snap_kernel *a = pa, *b = pb;
	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? 1 : -1;
	if (a->launches != b->launches)
		return a->launches < b->launches ? 1 : -1;
	return a->id < b->id ? -1 : a->id > b->id;
}

static void dims(const uint32_t v[3], struct buf *out)
{
	buf_printf(out, "%u", v[0]);
	if (v[1] > 1 || v[2] > 1)
		buf_printf(out, "x%u", v[1]);
	if (v[2] > 1)
		buf_printf(out, "x%u", v[2]);
}

/* "<<<8, 128>>>, 2 more": the most frequent way to launch it. */
static void shape_cell(struct grid *g, const struct snap_kernel *k)
{
	struct buf text = { 0 };
	if (k->n_shapes) {
		buf_puts(&text, "<<<");
		dims(k->shapes[0].grid, &text);
		buf_puts(&text, ", ");
		dims(k->shapes[0].block, &text);
		if (k->shapes[0].shared_bytes)
			buf_printf(&text, ", %u", k->shapes[0].shared_bytes);
		buf_puts(&text, ">>>");
	}
	if (k->n_shapes > 1)
		buf_printf(&text, ", %u more", k->n_shapes - 1);
	grid_cell(g, "%s", k->n_shapes ? text.data : "in graphs");
	buf_free(&text);
}

static void seen_text(const struct snapshot *snap, const char *when, struct buf *out)
{
	static const char *const heads[] = { ">GPU TIME", ">LAUNCHES", "<LAUNCHED AS", "<PTX", "<KERNEL", NULL };
	struct grid *g = grid_new(heads);
	uint32_t unused = 0;
	uint64_t bare_ns = 0;
	for (uint32_t i = 0; i < snap->n_kernels; i++) {
		const struct snap_kernel *k = &snap->kernels[i];
		if (!k->launches) {
			unused++;
			continue;
		}
		bare_ns += !strcmp(k->source, "none") ? k->time_ns : 0;
		k->time_ns ? grid_cell(g, "%.3f ms", (double)k->time_ns / 1e6) : grid_cell(g, "?");
		grid_cell(g, "%" PRIu64, k->launches);
		shape_cell(g, k);
		grid_cell(g, "%s", *k->source ? k->source : "?");
		grid_cell(g, "%s%s%s", k->demangled, *k->reason ? "  - " : "", k->reason);
	}
	buf_printf(out, "%u kernel%s launched, %" PRIu64 " launch%s", snap->n_kernels - unused,
		snap->n_kernels - unused == 1 ? "" : "s", snap->launches, snap->launches == 1 ? "" : "es");
	if (snap->time_ns)
		buf_printf(out, ", %.3f ms of GPU time, %.1f%% of it in kernels with PTX", (double)snap->time_ns / 1e6,
			100.0 * (double)(snap->time_ns - bare_ns) / (double)snap->time_ns);
	buf_puts(out, "\n");
	if (snap->n_kernels > unused)
		grid_print(g, "", out);
	if (unused)
		buf_printf(out, "%u more loaded but not launched%s (in --json)\n", unused, when);
	grid_free(g);
}

/* Of a command, or of a process when command is NULL. */
static int write_seen(const struct opts *o, struct snapshot *snap, char **command, int number, FILE *to)
{
	struct buf text = { 0 }, json_text = { 0 };
	struct json j;
	qsort(snap->kernels, snap->n_kernels, sizeof(*snap->kernels), by_time);
	seen_text(snap, command ? "" : " meanwhile", &text);
	json_init(&j, &json_text, JSON_PRETTY);
	json_object(&j);
	json_put_string(&j, "egpu", EGPU_VERSION);
	if (command) {
		json_key(&j, "command");
		json_array(&j);
		for (char **c = command; *c; c++)
			json_string(&j, *c);
		json_array_end(&j);
	}
	json_key(&j, command ? "exit" : "pid");
	json_i64(&j, number);
	json_key(&j, "kernels");
	report_kernels_json(snap, &j);
	json_object_end(&j);
	buf_puts(&json_text, "\n");
	int status = write_out(o->out, to, &text) || (o->json && write_out(o->json, NULL, &json_text)) ? EGPU_FAILED : 0;
	buf_free(&text);
	buf_free(&json_text);
	return status;
}

static int list_command(const struct opts *o, char **command)
{
	struct runner r;
	struct target *target = NULL;
	bool started;
	if (runner_open(&r, &o->driver))
		return EGPU_FAILED;
	int status = runner_run(&r, command, NULL, NULL, &started, &target);
	if (started) {
		struct snapshot *snap = snap_take(r.session);
		/* Standard output is the program's own. */
		int failed = snap ? write_seen(o, snap, command, status, stderr) : say_fail("out of memory");
		snap_free(snap);
		status = failed ? failed : status;
	}
	runner_close(&r);
	target_free(target);
	return status;
}

/* -- a process ---------------------------------------------------------------- */

static bool is_number(const char *text)
{
	return *text && strspn(text, "0123456789") == strlen(text);
}

static bool is_process(const char *text)
{
	char path[64];
	return is_number(text) && strlen(text) < 11 && access(text, F_OK) &&
	       snprintf(path, sizeof(path), "/proc/%s", text) > 0 && !access(path, F_OK);
}

static int list_process(const struct opts *o, const char *text)
{
	struct snapshot *snap;
	pid_t pid;
	uint64_t ns;
	if (filter_duration(o->time ? o->time : "3", &ns) || attach_pid(text, &pid) || attach_look(pid, (double)ns / 1e9, &snap))
		return EGPU_FAILED;
	int status = write_seen(o, snap, NULL, (int)pid, stdout);
	snap_free(snap);
	return status;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	if (rest->command && rest->n_args)
		return say_fail("give a file or, after --, a command; not both");
	if (rest->command && !rest->n_command)
		return say_fail("no command after --");
	if (rest->command)
		return list_command(o, rest->command);
	if (!rest->n_args)
		return say_fail(
			"give a file, a process's number, or a command after --:\n  egpu %s", cmd_list.synopsis);
	if (is_process(rest->args[0]))
		return list_process(o, rest->args[0]);
	if (is_number(rest->args[0]) && access(rest->args[0], F_OK))
		return say_fail("%s: there is no process and no file of this name", rest->args[0]);
	return list_file(o, rest->args[0]);
}

const struct command cmd_list = {
	.name = "list",
	.synopsis = "list FILE | list PID | list [--gpu|--softgpu] -- COMMAND...",
	.summary = "lists kernels, where their PTX is, and which cannot be probed and why",
	.help = "FILE is an executable, a shared library, a cubin, a fatbin or PTX text:\n"
		"  egpu list ./program\n"
		"  egpu list --arch=sm_80 kernels.fatbin --json=kernels.json\n"
		"With a command or a process that runs, the kernels that it launches are listed, by the time they take:\n"
		"  egpu list 4711\n"
		"  egpu list --softgpu -- build/samples/vecadd 1000\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
	.max_args = 1,
};
