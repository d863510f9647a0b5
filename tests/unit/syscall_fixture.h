/* Compiles a probe, opens it with libbpf whose bpf(2) is ours, in a session of the test's own. */
#ifndef SYSCALL_FIXTURE_H
#define SYSCALL_FIXTURE_H

#include "map_fixture.h"
#include "syscall/loader.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>

static struct session *fixture_session;
static char fixture_work[64];

static int fixture_quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	if (getenv("LIBBPF_SHOW"))
		vfprintf(stderr, format, args);
	return 0;
}

static bool fixture_start(const char *default_pattern)
{
	struct loader_options options = { .default_pattern = default_pattern };
	struct diag d = { 0 };
	fixture_make();
	strcpy(fixture_work, "/tmp/egpu-probe-XXXXXX");
	if (!mkdtemp(fixture_work) || session_create(&fixture_session, &d))
		exit(99);
	options.session = fixture_session;
	libbpf_set_print(fixture_quiet);
	ok(!loader_start(&options, &d) && !loader_register_sections(&d), "the loader starts: %s",
		d.text);
	return !d.err;
}

/* The object of a source text; NULL when clang is missing. */
static const char *fixture_compile(const char *name, const char *source, const char *more)
{
	static char object[200];
	char path[200], command[1200];
	snprintf(path, sizeof(path), "%s/%s.bpf.c", fixture_work, name);
	snprintf(object, sizeof(object), "%s/%s.bpf.o", fixture_work, name);
	FILE *f = fopen(path, "w");
	fputs("#include <egpu/probe.bpf.h>\n", f);
	fputs(source, f);
	fclose(f);
	snprintf(command, sizeof(command),
		"clang -target bpf -mcpu=v3 -O2 %s -I %s/../../include -idirafter "
		"/usr/include/$(uname -m)-linux-gnu "
		"-Wall -c %s -o %s",
		more, GOLDEN_DIR, path, object);
	return system(command) ? NULL : object;
}

static bool fixture_has_clang(void)
{
	return !system("clang --version >/dev/null 2>&1");
}

/* Opens and loads; the result of load in *err. */
static struct bpf_object *fixture_load(
	const char *name, const char *source, const char *more, int *err)
{
	const char *path = fixture_compile(name, source, more);
	struct bpf_object *o = path ? bpf_object__open(path) : NULL;
	loader_clear_error();
	*err = o ? bpf_object__load(o) : -errno;
	return o;
}

static int fixture_stop(void)
{
	char command[200];
	loader_stop();
	session_destroy(fixture_session);
	snprintf(command, sizeof(command), "rm -rf '%s'", fixture_work);
	return system(command) | fixture_end();
}

#endif
