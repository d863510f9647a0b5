/* load.h - what loaders on libbpf have in common: they open an object, load it and attach each of its programs. */
#ifndef EGPU_TEST_LOAD_H
#define EGPU_TEST_LOAD_H

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static inline int fail(const char *what)
{
	printf("%s: %s\n", what, strerror(errno));
	return 1;
}

/* NULL: said why. links: room for all. */
static inline struct bpf_object *load_and_attach(const char *path, struct bpf_link **links, int *n)
{
	struct bpf_program *p;
	struct bpf_object *o = bpf_object__open_file(path, NULL);
	if (!o || bpf_object__load(o)) {
		fail(o ? "load" : "open");
		return NULL;
	}
	bpf_object__for_each_program(p, o) {
		links[*n] = bpf_program__attach(p);
		if (!links[*n]) {
			fail(bpf_program__name(p));
			return NULL;
		}
		++*n;
	}
	return o;
}

#endif
