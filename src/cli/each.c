/* each.c - see each.h. */
#include <string.h>

#include "cli/each.h"
#include "cli/near.h"

enum { MAX_PROGRAMS = 256 };

static int load_alone(struct probe *p, size_t index)
{
	struct bpf_program *prog;
	size_t i = 0;
	loader_clear_error();
	bpf_object__for_each_program(prog, p->object) bpf_program__set_autoload(prog, i++ == index);
	return bpf_object__load(p->object);
}

static const struct loader_prog *answer(const char *name)
{
	const struct loader_prog *prog = loader_prog_by_name(name);
	for (uint32_t i = 0; !prog && loader_prog(i); i++)
		prog = loader_prog(i); /* a name that was cut to the kernel's 15 bytes */
	return prog;
}

static int one(struct probe *p, size_t index, const char *only, bool *done, bool *found,
	int (*fn)(struct probe *, const struct loader_prog *, void *), void *arg)
{
	struct session *s = NULL;
	struct diag d = { 0 };
	if (session_create(&s, &d))
		return say_diag("session", &d);
	int status = probe_open(p, s);
	struct bpf_program *prog = status ? NULL : probe_program(p, index);
	*done = !prog;
	if (prog && (!only || !strcmp(only, bpf_program__name(prog)))) {
		*found = true;
		int err = load_alone(p, index);
		const struct loader_prog *r = answer(bpf_program__name(prog));
		/* Without an answer no program was handed to bpf(2): maps or relocations failed. */
		status = r     ? probe_check_point(p, prog, r)
			 : err ? probe_load_failed(p, err)
			       : say_fail("%s: not loaded", bpf_program__name(prog));
		if (r && !status)
			status = fn(p, r, arg);
	}
	probe_close(p);
	session_destroy(s);
	return status;
}

static int no_such_program(struct probe *p, const char *name)
{
	const char *names[MAX_PROGRAMS], *best[3];
	char list[512] = "";
	size_t n = 0;
	struct session *s = NULL;
	struct diag d = { 0 };
	if (session_create(&s, &d))
		return say_diag("session", &d);
	if (!probe_open(p, s))
		for (; n < MAX_PROGRAMS && probe_program(p, n); n++)
			names[n] = bpf_program__name(probe_program(p, n));
	n = near_any(name, names, n, best, 3);
	for (size_t i = 0; i < n; i++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			i ? ", " : "; nearest: ", best[i]);
	say("%s: has no program '%s'%s", p->options->name, name, list);
	probe_close(p);
	session_destroy(s);
	return EGPU_FAILED;
}

int each_program(const struct probe_options *o, const char *name,
	int (*fn)(struct probe *, const struct loader_prog *, void *), void *arg)
{
	struct probe p;
	int status = probe_read(&p, o);
	bool done = status != 0, found = false;
	session_gc();
	for (size_t i = 0; !done && status < EGPU_FAILED && i < MAX_PROGRAMS; i++) {
		int result = one(&p, i, name, &done, &found, fn, arg);
		status = result > status ? result : status;
	}
	if (!status && !found && name)
		status = no_such_program(&p, name);
	probe_free(&p);
	return status;
}
