/* objects.h - for benchmarks: each program of BPF objects, as libbpf loads them into a session of their own. */
#ifndef EGPU_BENCH_OBJECTS_H
#define EGPU_BENCH_OBJECTS_H

#include <bpf/libbpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "map/session.h"
#include "syscall/loader.h"

static int objects_quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level, (void)format, (void)args;
	return 0;
}

/* fn gets the program as "OBJECT/PROGRAM"; false ends it. */
static bool objects_load(const char *path, struct loader_options *lo, bool (*fn)(const char *name, const struct loader_prog *lp))
{
	static bool registered;
	struct diag d = { 0 };
	if (loader_start(lo, &d) || (!registered && loader_register_sections(&d)))
		return false;
	registered = true;
	struct bpf_object *o = bpf_object__open(path);
	bool good = o && !bpf_object__load(o);
	const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
	for (uint32_t i = 0; good && loader_prog(i); i++) {
		char name[64];
		snprintf(name, sizeof(name), "%.*s/%s", (int)strcspn(base, "."), base, loader_prog(i)->name);
		good = fn(name, loader_prog(i));
	}
	bpf_object__close(o);
	loader_stop();
	return good;
}

/* Says so when an object cannot be loaded, or there is no session. */
static bool objects_each(
	int n, char **paths, const struct verifier_options *v, bool (*fn)(const char *name, const struct loader_prog *lp))
{
	bool all = true;
	libbpf_set_print(objects_quiet);
	for (int i = 0; i < n; i++) {
		struct session *s;
		struct diag d = { 0 };
		if (session_create(&s, &d))
			return fprintf(stderr, "%s\n", d.text), false;
		struct loader_options lo = { .session = s, .default_pattern = "*", .verifier = *v };
		bool good = objects_load(paths[i], &lo, fn);
		if (!good)
			printf("%s: cannot be loaded\n", paths[i]);
		all &= good;
		session_destroy(s);
	}
	return all;
}

#endif
