/* BPF_RAW_TRACEPOINT_OPEN with a name such as "gpu.warp/load/my_kernel*": a link of the session; BPF_LINK_CREATE for kprobes. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "live/program.h"
#include "translate/translate.h"
#include "syscall/object.h"

enum { MAX_NAME_BYTES = SESSION_PATTERN_BYTES + 64 };

/* What a point's programs must take. */
static int link_check(const struct object *prog, enum ebpf_point point, bool warp, struct diag *d)
{
	const struct report *r = prog->prog.report;
	enum ebpf_context want = ebpf_point_context(point, warp);
	if (r->context == want || (r->program.opaque && !warp))
		return 0;
	return diag_set(d, EINVAL,
		"program %s: %s/%s needs a function whose first argument is struct %s *; this one "
		"takes struct %s *",
		r->name, warp ? "gpu.warp" : "gpu", ebpf_point_name(point),
		ebpf_context_struct(want), ebpf_context_struct(r->context));
}

static int fragment_text(const struct loader_prog *p, enum ebpf_point point, bool warp,
	const char *opcode, struct buf *out, struct diag *d)
{
	if (!p->fragment)
		return diag_set(d, EINVAL, "program %s was not accepted", p->name);
	if (p->program->context != ebpf_point_context(point, warp))
		return diag_set(d, EINVAL,
			"program %s takes struct %s *, which is not what %s/%s gives", p->name,
			ebpf_context_struct(p->program->context), warp ? "gpu.warp" : "gpu",
			ebpf_point_name(point));
	int missing = ebpf_lane_field_missing(p->fragment->gathered, point);
	if (missing >= 0)
		return diag_set(d, EINVAL, "program %s reads %s of other lanes, which they do not have at gpu.warp/%s", p->name,
			ebpf_fields[missing].name, ebpf_point_name(point));
	struct ebpf_fragment f = *p->fragment;
	f.point = point;
	f.warp = warp;
	f.opcode = opcode;
	ebpf_fragment_print(&f, out);
	return out->failed ? diag_set(d, ENOMEM, "out of memory") : 0;
}

int loader_fragment(const struct loader_prog *p, enum ebpf_point point, bool warp, struct buf *out,
	struct diag *d)
{
	return fragment_text(p, point, warp, NULL, out, d);
}

int loader_fragment_for(
	const struct loader_prog *p, const char *section, struct buf *out, struct diag *d)
{
	enum ebpf_point point;
	bool warp;
	const char *pattern, *opcode = NULL;
	char prefix[65] = "";
	if (ebpf_section_parse(section, &point, &warp, &pattern))
		return diag_set(d, EINVAL, "\"%s\" is not a GPU probe", section);
	uint32_t n = ebpf_section_opcode(section, &opcode);
	memcpy(prefix, n ? opcode : "", n);
	return fragment_text(p, point, warp, n ? prefix : NULL, out, d);
}

/* A program that reads nothing of its context may go to any point: its text is made for each. */
static int translate_for(struct report *r, enum ebpf_point point, struct diag *d)
{
	enum ebpf_context want = ebpf_point_context(point, false);
	if (!r->program.opaque || r->context == want)
		return 0;
	r->context = r->program.context = want;
	return translate_program(r->arena, &r->program, &r->info.verified, point, false, &r->fragment, d);
}

/* The session program of a point, made at the first link of it; one for each opcode. */
static int link_prog(struct loader *l, struct object *prog, const char *section,
	enum ebpf_point point, bool warp, uint32_t *id)
{
	struct buf text = { 0 };
	for (uint32_t i = 0; i < prog->prog.n_made; i++)
		if (prog->prog.made[i].point == point && prog->prog.made[i].warp == warp &&
			point != EBPF_POINT_INSN) {
			*id = prog->prog.made[i].id;
			return 0;
		}
	const struct loader_prog *info = &prog->prog.report->info;
	int err = translate_for(prog->prog.report, point, &l->error);
	if (!err)
		err = loader_fragment_for(info, section, &text, &l->error);
	if (!err)
		err = session_add_prog(l->options.session, text.data, text.len, info->name, point,
			warp, id, &l->error);
	buf_free(&text);
	if (!err && prog->prog.n_made < sizeof(prog->prog.made) / sizeof(*prog->prog.made)) {
		prog->prog.made[prog->prog.n_made].point = point;
		prog->prog.made[prog->prog.n_made].warp = warp;
		prog->prog.made[prog->prog.n_made++].id = *id;
	}
	return err;
}

/* What is compiled for kernels that run, where it can be translated. A thread never stands for others of its block there, as it may at an entry:
 * some may come before the program does. */
static int add_text(const struct loader_prog *p, enum ebpf_point point, bool warp, struct buf *object)
{
	struct arena *arena = arena_new();
	struct ebpf_fragment f;
	struct buf text = { 0 };
	enum ebpf_point like = point == EBPF_POINT_ENTRY ? EBPF_POINT_EXIT : point;
	int err = arena ? 0 : -ENOMEM;
	if (!err && !translate_program(arena, p->program, &p->verified, like, warp, &f, NULL)) {
		f.point = point;
		ebpf_fragment_print(&f, &text);
		err = live_add_text(object, &text);
	}
	buf_free(&text);
	arena_free(arena);
	return err;
}

/* A link whose program runs in kernels that are running already. */
static int live_link(struct loader *l, const struct object *prog, enum ebpf_point point, bool warp, const char *pattern, uint32_t *id)
{
	const struct loader_prog *info = &prog->prog.report->info;
	struct buf object = { 0 };
	uint32_t map;
	if (!live_find_map(l->options.session, &map))
		return diag_set(&l->error, ENOENT, "no kernel of this run has guards: start it with egpu run --live -k KERNEL");
	int err = live_encode(info->program, &info->verified, info->fragment->updates, info->fragment->n_updates, point, warp, &object, &l->error);
	if (!err)
		err = add_text(info, point, warp, &object);
	if (!err)
		err = session_add_live_link(
			l->options.session, object.data, object.len, info->name, point, warp, pattern, id, &l->error);
	buf_free(&object);
	return err;
}

/* A link whose program is spliced into kernels from their next launch on. */
static int spliced_link(
	struct loader *l, struct object *prog, const char *name, enum ebpf_point point, bool warp, const char *pattern, uint32_t *id)
{
	uint32_t prog_id;
	int err = link_prog(l, prog, name, point, warp, &prog_id);
	return err ? err : session_add_link(l->options.session, prog_id, point, warp, pattern, id, &l->error);
}

/* The section's own pattern, else the default one. */
static int link_pattern(struct loader *l, const char *name, const char **pattern)
{
	if (!*pattern || !**pattern)
		*pattern = l->default_pattern;
	if (!*pattern && !strcmp(name, "kprobe/__memcapture")) /* it can name none */
		*pattern = "*";
	return *pattern ? 0
			: diag_set(&l->error, EINVAL,
				  "\"%s\" names no kernel: write %s/KERNEL (a name or a pattern "
				  "such as '*'), or give -k KERNEL",
				  name, name);
}

static int link_object(struct loader *l, struct object *prog, const char *name, uint32_t id)
{
	struct object *o;
	char *copy = strdup(name);
	int fd = copy ? object_anonymous("egpu-link") : -ENOMEM;
	int err = fd < 0 ? fd : object_new(l, OBJECT_LINK, fd, &o);
	if (err) {
		free(copy);
		return err;
	}
	o->link.id = id;
	o->link.name = copy;
	o->link.prog = prog;
	prog->refs++;
	return object_descriptor(o);
}

/* A link of a program to what a section names. */
static long link_named(struct loader *l, int prog_fd, const char *name)
{
	struct object *prog;
	enum ebpf_point point;
	bool warp;
	uint32_t id;
	const char *pattern = NULL;
	object_sweep(l);
	int err = object_by_fd(l, prog_fd, OBJECT_PROG, &prog);
	if (err)
		return err;
	if (!prog->prog.report || ebpf_section_parse(name, &point, &warp, &pattern))
		return diag_set(&l->error, EINVAL,
			"\"%s\" is not a GPU probe: %s", name,
			ebpf_section_refused(name) ? ebpf_section_refused(name)
						   : "sections are gpu/POINT/KERNEL or "
						     "gpu.warp/POINT/KERNEL with POINT "
						     "one of entry, exit, load, store, atomic, access, mem, load_done, block, branch, "
						     "barrier, call, insn:OPCODE");
	err = link_check(prog, point, warp, &l->error);
	if (!err)
		err = link_pattern(l, name, &pattern);
	if (!err)
		err = l->options.live ? live_link(l, prog, point, warp, pattern, &id)
				      : spliced_link(l, prog, name, point, warp, pattern, &id);
	if (err)
		return err;
	int fd = link_object(l, prog, name, id);
	if (fd < 0)
		session_detach_link(l->options.session, id);
	return fd;
}

static int too_long(struct loader *l)
{
	return diag_set(&l->error, E2BIG, "the section's name is too long: a kernel pattern has at most %d bytes", SESSION_PATTERN_BYTES - 1);
}

COMMAND(link_open)
{
	const char *name = (const char *)(uintptr_t)attr->raw_tracepoint.name;
	if (!name)
		return -EINVAL;
	if (strnlen(name, MAX_NAME_BYTES) == MAX_NAME_BYTES)
		return too_long(l);
	return link_named(l, (int)attr->raw_tracepoint.prog_fd, name);
}

/* -- kprobes of kernels on the GPU, as libbpf attaches them: an event of a name, and a link of a program to it -- */

static const char event_name[] = "egpu-kprobe";

int loader_kprobe_open(const char *function, bool at_return)
{
	int fd = object_anonymous(event_name);
	if (fd < 0)
		return fd;
	if (dprintf(fd, "%s/%s", at_return ? "kretprobe" : "kprobe", function) < 0) {
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

bool loader_is_kprobe(int fd)
{
	char path[64], is[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = fd < 0 ? -1 : readlink(path, is, sizeof(is) - 1);
	is[n < 0 ? 0 : n] = '\0';
	return !strncmp(is, "/memfd:", 7) && !strncmp(is + 7, event_name, strlen(event_name));
}

COMMAND(link_create)
{
	char name[MAX_NAME_BYTES];
	int event = (int)attr->link_create.target_fd;
	if (fcntl(event, F_GETFD) < 0)
		return -EBADF;
	if (attr->link_create.attach_type != BPF_PERF_EVENT || !loader_is_kprobe(event))
		return -EINVAL;
	ssize_t n = pread(event, name, sizeof(name), 0);
	if (n == (ssize_t)sizeof(name))
		return too_long(l);
	if (n < 0)
		return -errno;
	name[n] = '\0';
	return link_named(l, (int)attr->link_create.prog_fd, name);
}

COMMAND(link_detach)
{
	struct object *o;
	int err = object_by_fd(l, (int)attr->link_detach.link_fd, OBJECT_LINK, &o);
	if (err)
		return err;
	if (!o->link.detached)
		session_detach_link(l->options.session, o->link.id);
	o->link.detached = true;
	return 0;
}

void link_object_release(struct loader *l, struct object *o)
{
	if (l->running && !o->link.detached)
		session_detach_link(l->options.session, o->link.id);
	if (l->running)
		session_release_link(l->options.session, o->link.id);
	object_unref(o->link.prog);
	free(o->link.name);
}
