/* ptxas, where there is one, accepts the text of every probe, for old and new targets.
 *
 * One .version per target: the lowest that knows it, and for the old ones a new one too, since
 * kernels bring their own.
 */
#include "tap.h"

#include <unistd.h>

#include "probe.h"
#include "translate/translate.h"

static const char *const probes[] = { "counter", "histogram", "blocks", "churn", "stream", "filter",
	"trace", "subprograms", "helpers", "chance", "shapes", "accesses" };
enum { PROBES = sizeof(probes) / sizeof(probes[0]) };

static const struct {
	const char *version, *target;
} targets[] = { { "6.3", "sm_75" }, { "8.5", "sm_75" }, { "7.0", "sm_80" }, { "7.8", "sm_90" },
	{ "8.0", "sm_90a" }, { "8.8", "sm_90a" }, { "8.6", "sm_100" }, { "9.0", "sm_100a" },
	{ "8.7", "sm_120" } };
enum { TARGETS = sizeof(targets) / sizeof(targets[0]) };

static char dir[64];

static const char *find_ptxas(void)
{
	static const char *const places[] = { "ptxas", "/usr/local/cuda/bin/ptxas" };
	char command[128];
	for (int k = 0; k < 2; k++) {
		snprintf(command, sizeof(command), "%s --version >/dev/null 2>&1", places[k]);
		if (system(command) == 0)
			return places[k];
	}
	return NULL;
}

static bool translate(struct arena *arena, const char *clang, const char *cpu, const char *name,
	struct ebpf_fragment *out)
{
	static struct probe_object object;
	struct verifier_result v;
	struct diag d = { 0 };
	char source[512], path[128];
	snprintf(source, sizeof(source), "%s/%s.bpf.c", PROBE_SOURCES, name);
	snprintf(path, sizeof(path), "%s/%s.o", dir, name);
	if (!probe_compile(clang, source, cpu, path) || !probe_read(arena, path, &object))
		return false;
	probe_add_trace_map(&object, 4096);
	int err = verifier_check(arena, &object.progs[0].program, NULL, &v, NULL, &d);
	if (!err)
		err = translate_program(arena, &object.progs[0].program, &v, object.progs[0].point,
			object.progs[0].warp, out, &d);
	if (err)
		printf("# %s: %s\n", name, d.text);
	return !err;
}

static bool accepts(const char *ptxas, const char *target, const struct buf *ptx)
{
	char path[128], command[512];
	snprintf(path, sizeof(path), "%s/all.ptx", dir);
	FILE *f = fopen(path, "w");
	if (!f || fwrite(ptx->data, 1, ptx->len, f) != ptx->len || fclose(f))
		return false;
	snprintf(command, sizeof(command),
		"%s -arch=%s %s -o /dev/null 2>&1 | sed 's/^/# /'; test \"$(%s -arch=%s %s -o "
		"/dev/null 2>&1)\" = ''",
		ptxas, target, path, ptxas, target, path);
	return system(command) == 0;
}

int main(void)
{
	const char *ptxas = find_ptxas(), *clang = probe_clang(true), *cpu = "v4";
	struct arena *arena = arena_new();
	struct ebpf_fragment fragments[PROBES];
	if (!clang) {
		clang = probe_clang(false);
		cpu = "v3";
	}
	snprintf(dir, sizeof(dir), "/tmp/egpu-ptxas-XXXXXX");
	if (!clang || !mkdtemp(dir)) {
		tap_skip("no clang for BPF");
		return tap_done();
	}
	for (int k = 0; k < PROBES; k++)
		ok(translate(arena, clang, cpu, probes[k], &fragments[k]), "%s is translated",
			probes[k]);
	for (int k = 0; k < TARGETS; k++) {
		struct buf ptx = { 0 };
		if (!ptxas) {
			tap_skip("no ptxas");
			continue;
		}
		probe_hosts(fragments, PROBES, targets[k].version, targets[k].target, &ptx);
		ok(accepts(ptxas, targets[k].target, &ptx),
			"ptxas accepts %d probes as .version %s, %s", PROBES, targets[k].version,
			targets[k].target);
		buf_free(&ptx);
	}
	char command[128];
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command))
		printf("# %s stays\n", dir);
	arena_free(arena);
	return tap_done();
}
