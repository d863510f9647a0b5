/* cmd_doctor.c - `egpu doctor`: what works on this machine, and what to do about the rest. */
#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/compile.h"
#include "cli/driver.h"
#include "cli/gpucall.h"
#include "cli/json.h"
#include "cli/paths.h"
#include "cli/runner.h"
#include "cli/snapshot.h"
#include "cli/target.h"

enum { SELF_TEST_LIMIT_S = 60, MAX_CHECKS = 16 };

struct opts {
	bool self_test, has_gpu;
	const char *json;
};

static const struct opt options[] = {
	{ 0, "json", OPT_STRING, offsetof(struct opts, json), "FILE", "also write JSON" },
	{ 0, "self-test", OPT_FLAG, offsetof(struct opts, self_test), NULL,
		"only run a tiny kernel on the libcuda.so.1 that this process finds" },
	{ 0, "has-gpu", OPT_FLAG, offsetof(struct opts, has_gpu), NULL,
		"print nothing; status 0 when a GPU can be used, else 125 (for scripts)" },
	{ 0 },
};

/* required: without it nothing can be done; the others widen what can be done. */
struct check {
	const char *name;
	bool good, required;
	char found[PATH_MAX + 256], advice[512];
};

struct checkup {
	struct check rows[MAX_CHECKS];
	size_t n;
};

static struct check *add(struct checkup *c, const char *name, bool required, bool good,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static struct check *add(
	struct checkup *c, const char *name, bool required, bool good, const char *fmt, ...)
{
	struct check *row = &c->rows[c->n < MAX_CHECKS - 1 ? c->n++ : c->n];
	va_list ap;
	*row = (struct check){ .name = name, .good = good, .required = required };
	va_start(ap, fmt);
	vsnprintf(row->found, sizeof(row->found), fmt, ap);
	va_end(ap);
	return row;
}

static void advise(struct check *row, const char *text)
{
	if (!row->good)
		snprintf(row->advice, sizeof(row->advice), "%s", text);
}

static void check_driver(struct checkup *c, struct driver_info *info)
{
	driver_probe("libcuda.so.1", info);
	struct check *row = info->loads
				    ? add(c, "CUDA driver", false, driver_usable(info), "%s%s%s",
					      info->path, info->error[0] ? ": " : "", info->error)
				    : add(c, "CUDA driver", false, false, "%s", info->error);
	advise(row, info->loads
			    ? "nvidia-smi says more; in a container, start it with the GPU (--gpus "
			      "all); --softgpu needs none"
			    : "install NVIDIA's driver to probe on a GPU; --softgpu needs none");
	if (!driver_usable(info))
		return;
	add(c, "driver version", false, true, "CUDA %d.%d, PTX up to %u.%u", info->version / 1000,
		info->version % 1000 / 10, driver_ptx_isa(info->version) / 10,
		driver_ptx_isa(info->version) % 10);
	for (int i = 0; i < info->n_devices && i < 4; i++)
		add(c, "GPU", false, true, "%s, sm_%d, %d multiprocessors", info->devices[i].name,
			info->devices[i].cc, info->devices[i].sms);
}

/* First line of a command's output that contains `word`. */
static bool output_line(const char *command, const char *word, char *line, size_t size)
{
	FILE *p = popen(command, "re");
	char text[512];
	bool found = false;
	while (p && fgets(text, sizeof(text), p))
		if (!found && strstr(text, word)) {
			text[strcspn(text, "\n")] = 0;
			snprintf(line, size, "%s", text);
			found = true;
		}
	return p && pclose(p) == 0 && found;
}

static void check_ptxas(struct checkup *c)
{
	char line[512] = "";
	bool in_path = program_in_path("ptxas"),
	     here = in_path || program_in_path("/usr/local/cuda/bin/ptxas");
	bool good = here && output_line(in_path ? "ptxas --version 2>&1"
						: "/usr/local/cuda/bin/ptxas --version 2>&1",
				    "release", line, sizeof(line));
	advise(add(c, "ptxas", false, good, "%s", good ? line : "not found"),
		"only needed for PTX that is newer than the driver: it comes with the CUDA "
		"toolkit");
}

static void check_clang(struct checkup *c)
{
	const char *clang = compile_find_clang();
	char command[1024];
	bool good = false;
	if (clang) {
		snprintf(command, sizeof(command),
			"printf '#include <linux/bpf.h>\\n#include <bpf/bpf_helpers.h>\\nint "
			"x;\\n' | %s -target bpf -x c -c "
			"-idirafter /usr/include/x86_64-linux-gnu -idirafter "
			"/usr/include/aarch64-linux-gnu -o /dev/null - "
			">/dev/null 2>&1",
			clang);
		good = system(command) == 0;
	}
	advise(add(c, "clang for BPF", false, good, "%s%s", clang ? clang : "not found",
		       clang && !good ? " does not compile a probe" : ""),
		"needed for probes given as .bpf.c: apt-get install clang libbpf-dev");
}

static void check_session(struct checkup *c)
{
	struct session *s = NULL;
	struct diag d = { 0 };
	struct statvfs v;
	if (session_create(&s, &d)) {
		advise(add(c, "shared memory", true, false, "%s", d.text),
			"make /dev/shm writable, or set EGPU_DIR");
		return;
	}
	unsigned long mib = statvfs(session_path(s), &v)
				    ? 0
				    : (unsigned long)((uint64_t)v.f_bavail * v.f_frsize >> 20);
	advise(add(c, "shared memory", true, mib >= 64, "%.*s, %lu MiB free",
		       (int)(strrchr(session_path(s), '/') - session_path(s)), session_path(s),
		       mib),
		"maps are kept there: give the container more (--shm-size=1g), or set EGPU_DIR to "
		"a roomier directory");
	session_destroy(s);
}

static bool self_test(void *library, void *error)
{
	return !gpu_self_test(library, error);
}

static void check_softgpu(struct checkup *c)
{
	char path[PATH_MAX], error[256] = "", why[256] = "";
	struct diag d = { 0 };
	if (path_find(PATH_SOFTGPU, path, &d)) {
		advise(add(c, "software GPU", true, false, "%s", d.text), "install egpu again");
		return;
	}
	bool good = in_child(self_test, path, error, sizeof(error), SELF_TEST_LIMIT_S, why);
	advise(add(c, "software GPU", true, good, "%s%s%s", path, good ? ", a kernel ran" : ": ",
		       good     ? ""
		       : *error ? error
				: why),
		"look at EGPU_SOFTGPU if it is set; otherwise this is a bug in egpu");
}

/* This command runs itself under the agent, and the kernel must show up in the session. */
static void check_agent(
	struct checkup *c, const char *name, bool required, const struct driver_choice *choice)
{
	struct runner r;
	struct target *target = NULL;
	char exe[] = "/proc/self/exe", doctor[] = "doctor", option[] = "--self-test";
	char *command[] = { exe, doctor, option, NULL };
	bool started;
	if (runner_open(&r, choice)) {
		advise(add(c, name, required, false, "no session (see above)"),
			"see the messages above");
		return;
	}
	int status = runner_run(&r, command, NULL, NULL, &started, &target);
	struct snapshot *snap = snap_take(r.session);
	bool good = started && !status && snap && snap->launches > 0;
	char path[PATH_MAX] =
		"?"; /* not r.agent, which may be a link in a session that ends here */
	path_find(PATH_AGENT, path, NULL);
	advise(add(c, name, required, good, "%s%s", path,
		       good     ? ", saw a launch"
		       : status ? ": the program under it failed"
				: ": did not see the launch of a program under it"),
		"this is a bug in egpu, or something keeps LD_PRELOAD out");
	snap_free(snap);
	runner_close(&r);
	target_free(target);
}

static int print(const struct checkup *c)
{
	int missing = 0;
	for (size_t i = 0; i < c->n; i++) {
		const struct check *row = &c->rows[i];
		printf("%-8s %-22s %s\n",
			row->good       ? "ok"
			: row->required ? "BROKEN"
					: "missing",
			row->name, row->found);
		if (row->advice[0])
			printf("%-8s %-22s -> %s\n", "", "", row->advice);
		missing += row->required && !row->good;
	}
	return missing;
}

static int write_json(const char *path, const struct checkup *c)
{
	struct buf out = { 0 };
	struct json j;
	json_init(&j, &out, JSON_PRETTY);
	json_object(&j);
	json_put_string(&j, "egpu", EGPU_VERSION);
	json_key(&j, "checks");
	json_array(&j);
	for (size_t i = 0; i < c->n; i++) {
		json_object(&j);
		json_put_string(&j, "name", c->rows[i].name);
		json_put_bool(&j, "ok", c->rows[i].good);
		json_put_bool(&j, "required", c->rows[i].required);
		json_put_string(&j, "found", c->rows[i].found);
		json_put_string(&j, "advice", c->rows[i].advice[0] ? c->rows[i].advice : NULL);
		json_object_end(&j);
	}
	json_array_end(&j);
	json_object_end(&j);
	buf_puts(&out, "\n");
	int status = write_out(path, NULL, &out);
	buf_free(&out);
	return status;
}

static int run(const void *opts, const struct opt_rest *rest)
{
	const struct opts *o = opts;
	char error[256];
	if (o->self_test)
		return gpu_self_test("libcuda.so.1", error) ? say_fail("self-test: %s", error) : 0;
	struct driver_info info;
	if (o->has_gpu) {
		driver_probe("libcuda.so.1", &info);
		return driver_usable(&info) ? 0 : EGPU_FAILED;
	}
	struct checkup *c = calloc(1, sizeof(*c));
	if (!c)
		return say_fail("out of memory");
	check_driver(c, &info);
	check_ptxas(c);
	check_clang(c);
	add(c, "libbpf", true, true, "%s", libbpf_version_string());
	check_session(c);
	check_softgpu(c);
	check_agent(c, "agent on softgpu", true,
		&(struct driver_choice){ .softgpu = { .given = true } });
	if (driver_usable(&info))
		check_agent(c, "agent on the GPU", true, &(struct driver_choice){ .gpu = true });
	int broken = print(c);
	int status = o->json ? write_json(o->json, c) : 0;
	if (!status && broken)
		status = say_fail("%d thing%s that egpu cannot do without: see above", broken,
			broken == 1 ? "" : "s");
	free(c);
	return status;
}

const struct command cmd_doctor = {
	.name = "doctor",
	.synopsis = "doctor",
	.summary = "says what works on this machine, and what to do about the rest",
	.help = "Each line is one thing: ok, missing (egpu can do without), or BROKEN (it cannot; "
		"status 125).\n"
		"  egpu doctor\n",
	.opts = options,
	.opts_bytes = sizeof(struct opts),
	.run = run,
};
