/* probe.c - see probe.h. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/context.h"
#include "cli/btfcheck.h"
#include "cli/compile.h"
#include "cli/near.h"
#include "cli/paths.h"
#include "cli/probe.h"
#include "cli/set.h"
#include "cli/tools.h"
#include "cuda/fatbin.h"

enum { MAX_OBJECT_BYTES = 256 << 20, LOG_LINES = 12 };

/* What libbpf said since the object was opened: shown when something fails. Lives outside struct
 * probe because libbpf's callback has no argument. */
static struct buf libbpf_said;
static bool libbpf_aloud;

__attribute__((format(printf, 2, 0))) static int hear(
	enum libbpf_print_level level, const char *fmt, va_list ap)
{
	va_list copy;
	if (level == LIBBPF_DEBUG)
		return 0;
	va_copy(copy, ap);
	buf_vprintf(&libbpf_said, fmt, copy);
	va_end(copy);
	return libbpf_aloud ? vfprintf(stderr, fmt, ap) : 0;
}

/* Its first warning, which is nearest to the cause, without the prefix. */
static const char *first_warning(char *out, size_t size)
{
	const char *s = libbpf_said.data ? libbpf_said.data : "";
	if (!strncmp(s, "libbpf: ", 8))
		s += 8;
	snprintf(out, size, "%.*s", (int)strcspn(s, "\n"), s);
	return *out ? out : "no reason given";
}

/* -- the file ---------------------------------------------------------------- */

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), t = strlen(tail);
	return n >= t && !strcmp(s + n - t, tail);
}

static int read_tool(struct probe *p)
{
	char dir[PATH_MAX], path[PATH_MAX + 64];
	struct diag d = { 0 };
	if (path_find(PATH_TOOLS, dir, &d))
		return say_diag(p->tool->name, &d);
	snprintf(path, sizeof(path), "%s/%s.bpf.o", dir, p->tool->name);
	return read_file(path, MAX_OBJECT_BYTES, &p->bytes, &p->size, &d) ? say_diag(path, &d) : 0;
}

static int no_such_probe(const char *name, const struct diag *d)
{
	const char *names[64], *best[2];
	size_t n = 0;
	while (tools[n] && n < 64) {
		names[n] = tools[n]->name;
		n++;
	}
	if (d->err != ENOENT || strchr(name, '/'))
		return say_diag(name, d);
	size_t near = near_names(name, names, n, best, 2);
	return say_fail("%s: neither a file nor a tool%s%s (egpu tools lists the tools)", name,
		near ? "; nearest: " : "", near ? best[0] : "");
}

static int read_bytes(struct probe *p, const char *name)
{
	struct diag d = { 0 };
	p->tool = tool_by_name(name);
	if (p->tool)
		return read_tool(p);
	if (ends_with(name, ".c"))
		return compile_probe(name, &p->bytes, &p->size, &d) ? say_diag(name, &d) : 0;
	return read_file(name, MAX_OBJECT_BYTES, &p->bytes, &p->size, &d) ? no_such_probe(name, &d)
									  : 0;
}

static int check_sections(const struct probe *p, const char *name, uint32_t n)
{
	const char *section;
	const uint8_t *data, *btf = NULL;
	uint64_t bytes, btf_bytes = 0;
	struct diag d = { 0 };
	for (uint32_t i = 0; i < n; i++) {
		if (elf_section(p->bytes, p->size, i, &section, &data, &bytes) <= 0)
			return say_fail("%s: damaged: section %u lies outside the file (%zu "
					"bytes); copy or build it again",
				name, i, p->size);
		if (strcmp(section, ".BTF"))
			continue;
		btf = data;
		btf_bytes = bytes;
	}
	if (!btf)
		return say_fail(
			"%s: has no BTF, which tells what the probe sees: compile it with clang -g",
			name);
	return btf_check(btf, btf_bytes, &d) ? say_diag(name, &d) : 0;
}

/* libbpf would refuse these too, in words that do not say what to do. */
static int check_file(const struct probe *p, const char *name)
{
	Elf64_Ehdr h;
	if (p->size < sizeof(h) || memcmp(p->bytes, ELFMAG, SELFMAG))
		return say_fail("%s: not a BPF object: %s; a probe is what clang -O2 -g -target "
				"bpf -c makes, or its C source NAME.bpf.c",
			name, p->size < sizeof(h) ? "it is too short" : "it is no ELF file");
	memcpy(&h, p->bytes, sizeof(h));
	if (h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB ||
		h.e_machine != EM_BPF)
		return say_fail("%s: not a BPF object: it is made for another machine (ELF machine "
				"%u, BPF is %u); compile it with "
				"clang -O2 -g -target bpf -c",
			name, h.e_machine, EM_BPF);
	if (h.e_shoff > p->size || (uint64_t)h.e_shnum * sizeof(Elf64_Shdr) > p->size - h.e_shoff)
		return say_fail("%s: truncated: its section table should be at byte %llu, but the "
				"file has %zu bytes; copy or build it "
				"again",
			name, (unsigned long long)h.e_shoff, p->size);
	return check_sections(p, name, h.e_shnum);
}

int probe_read(struct probe *p, const struct probe_options *o)
{
	memset(p, 0, sizeof(*p));
	p->options = o;
	int status = read_bytes(p, o->name);
	if (!status)
		status = check_file(p, o->name);
	if (status)
		probe_free(p);
	return status;
}

/* -- open -------------------------------------------------------------------- */

/* Up to the first dot of the file's name, as libbpf does for files. */
static void object_name(const char *path, char out[64])
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	snprintf(out, 64, "%.*s", (int)strcspn(base, "."), base);
	for (char *c = out; *c; c++)
		if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *c))
			*c = '_';
	if (!*out)
		snprintf(out, 64, "probe");
}

static int bad_section(const struct probe *p, const char *program, const char *section)
{
	const char *points[] = { "entry", "exit", "load", "store", "atomic", "access", "mem", "load_done",
		"block", "branch", "barrier", "call", "insn:OPCODE" },
		   *best[1];
	const char *rest = section;
	if (!strncmp(rest, "raw_tp/", 7))
		rest += 7;
	bool is_gpu = !strncmp(rest, "gpu/", 4) || !strncmp(rest, "gpu.warp/", 9);
	char point[32];
	rest = is_gpu ? strchr(rest, '/') + 1 : "";
	snprintf(point, sizeof(point), "%.*s", (int)strcspn(rest, "/"), rest);
	if (is_gpu)
		return say_fail(
			"%s: program %s: section \"%s\" has no known point; points are "
			"entry, exit, load, store, atomic, access, mem, load_done, block, branch, barrier, "
			"call and insn:OPCODE%s%s",
			p->options->name, program, section,
			near_names(point, points, 13, best, 1) ? "; nearest: " : "",
			near_names(point, points, 13, best, 1) ? best[0] : "");
	const char *why = ebpf_section_refused(section);
	if (why)
		return say_fail("%s: program %s: section \"%s\" is no GPU probe: %s", p->options->name, program, section, why);
	return say_fail("%s: program %s: section \"%s\" is no GPU probe; write "
			"SEC(\"gpu/POINT/KERNEL\") or "
			"SEC(\"gpu.warp/POINT/KERNEL\"), POINT being entry, exit, load, store, "
			"atomic, access, mem, load_done, block, branch, barrier, call or insn:OPCODE",
		p->options->name, program, section);
}

static int check_programs(const struct probe *p)
{
	struct bpf_program *prog;
	enum ebpf_point point;
	bool warp;
	size_t n = 0, without = 0;
	const char *pattern;
	bpf_object__for_each_program(prog, p->object)
	{
		if (ebpf_section_parse(bpf_program__section_name(prog), &point, &warp, &pattern))
			return bad_section(
				p, bpf_program__name(prog), bpf_program__section_name(prog));
		n++;
		without += !pattern || !*pattern;
		if (pattern && *pattern && session_match(pattern, "x", NULL) < 0)
			return say_fail(
				"%s: program %s: %s is no regular expression (ERE between slashes)",
				p->options->name, bpf_program__name(prog), pattern);
	}
	if (!n)
		return say_fail(
			"%s: has no program; a probe needs a function in SEC(\"gpu/POINT\")",
			p->options->name);
	if (p->options->pattern && !*p->options->pattern)
		return say_fail("-k: the pattern is empty; leave -k out to probe every kernel");
	if (p->options->pattern && !without && !p->options->live) /* guards are of -k, too */
		return say_fail("%s: -k %s applies to nothing: every program's section names its "
				"kernels already",
			p->options->name, p->options->pattern);
	if (p->options->pattern && session_match(p->options->pattern, "x", NULL) < 0)
		return say_fail(
			"-k %s: no regular expression (ERE between slashes)", p->options->pattern);
	return 0;
}

static int set_variables(const struct probe *p)
{
	const struct opt_list *set = p->options->set;
	for (size_t i = 0; set && i < set->n; i++) {
		struct diag d = { 0 };
		char what[256];
		snprintf(what, sizeof(what), "--set %s", set->values[i]);
		if (set_variable(p->object, set->values[i], &d))
			return say_diag(what, &d);
	}
	return 0;
}

int probe_open(struct probe *p, struct session *s)
{
	struct loader_options lo = {
		.session = s,
		.default_pattern = p->options->pattern ? p->options->pattern : "*",
		.verifier = p->options->rules,
		.live = p->options->live,
	};
	static bool registered;
	struct diag d = { 0 };
	char name[64], why[512];
	libbpf_aloud = p->options->verbose;
	buf_reset(&libbpf_said);
	libbpf_set_print(hear);
	if (loader_start(&lo, &d) || (!registered && loader_register_sections(&d)))
		return say_diag("loader", &d);
	registered = true;
	object_name(p->options->name, name);
	LIBBPF_OPTS(bpf_object_open_opts, oo, .object_name = name);
	p->object = bpf_object__open_mem(p->bytes, p->size, &oo);
	if (!p->object) {
		int err = errno;
		/* Without a warning: sections or symbols that are not there, for which errno is
		 * ENOENT or a number of libbpf's own. */
		if (!libbpf_said.len)
			return say_fail("%s: damaged: its sections and symbols do not make a BPF "
					"object (%d); copy or build it again",
				p->options->name, err);
		return say_fail("%s: cannot be opened as a BPF object: %s", p->options->name,
			first_warning(why, sizeof(why)));
	}
	int status = check_programs(p);
	return status ? status : set_variables(p);
}

struct bpf_program *probe_program(const struct probe *p, size_t i)
{
	struct bpf_program *prog;
	/* egpu run --live may have guards alone, and no object. */
	for (prog = p->object ? bpf_object__next_program(p->object, NULL) : NULL; prog && i; i--)
		prog = bpf_object__next_program(p->object, prog);
	return prog;
}

/* -- load and attach --------------------------------------------------------- */

void probe_log_tail(FILE *to, const char *log, bool whole)
{
	const char *at = log + strlen(log);
	int lines = LOG_LINES;
	if (at > log && at[-1] == '\n')
		at--;
	while (at > log && (at[-1] != '\n' || whole || --lines > 0))
		at--;
	if (at > log)
		fprintf(to, "  ... (-v shows the whole log)\n");
	while (*at) {
		size_t n = strcspn(at, "\n");
		fprintf(to, "  %.*s\n", (int)n, at);
		at += n + (at[n] == '\n');
	}
}

void probe_explain(const struct probe *p, const struct loader_prog *prog, bool whole_log)
{
	say("%s: program %s is refused: %s", p->options->name, prog->name,
		prog->error.err ? prog->error.text : strerror(-prog->err));
	if (prog->log && *prog->log)
		probe_log_tail(stderr, prog->log, whole_log);
}

int probe_load_failed(const struct probe *p, int err)
{
	char why[512];
	struct diag d = { 0 };
	for (uint32_t i = 0; loader_prog(i); i++)
		if (loader_prog(i)->err) {
			probe_explain(p, loader_prog(i), p->options->verbose);
			return EGPU_FAILED;
		}
	loader_last_error(&d);
	if (d.err)
		return say_diag(p->options->name, &d);
	return say_fail("%s: cannot be loaded (%s): %s", p->options->name, strerror(-err),
		first_warning(why, sizeof(why)));
}

int probe_check_point(const struct probe *p, struct bpf_program *prog, const struct loader_prog *lp)
{
	const char *section = bpf_program__section_name(prog), *pattern;
	enum ebpf_point point;
	bool warp;
	if (!lp->program || ebpf_section_parse(section, &point, &warp, &pattern))
		return 0;
	int missing = lp->fragment ? ebpf_lane_field_missing(lp->fragment->gathered, point) : -1;
	if (missing >= 0)
		return say_fail("%s: program %s: section \"%s\": lanes have no %s there for egpu_lane_read", p->options->name,
			bpf_program__name(prog), section, ebpf_fields[missing].name);
	if (lp->program->context == ebpf_point_context(point, warp))
		return 0;
	return say_fail("%s: program %s: section \"%s\" needs a function whose first argument is "
			"struct %s *; this one takes struct %s *",
		p->options->name, bpf_program__name(prog), section,
		ebpf_context_struct(ebpf_point_context(point, warp)),
		ebpf_context_struct(lp->program->context));
}

static int check_points(const struct probe *p)
{
	struct bpf_program *prog;
	int status = 0;
	bpf_object__for_each_program(prog, p->object)
	{
		const struct loader_prog *lp = loader_prog_by_fd(bpf_program__fd(prog));
		status = status || !lp ? status : probe_check_point(p, prog, lp);
	}
	return status;
}

int probe_load(struct probe *p)
{
	loader_clear_error();
	int err = bpf_object__load(p->object);
	return err ? probe_load_failed(p, err) : check_points(p);
}

static int attach_one(struct probe *p, struct bpf_program *prog)
{
	struct diag d = { 0 };
	char what[512], why[512];
	loader_clear_error();
	struct bpf_link *link = bpf_program__attach(prog);
	if (link) {
		p->links[p->n_links++] = link;
		return 0;
	}
	int err = errno;
	loader_last_error(&d);
	snprintf(what, sizeof(what), "%s: program %s", p->options->name, bpf_program__name(prog));
	return d.err ? say_diag(what, &d)
		     : say_fail("%s: cannot be attached (%s): %s", what, strerror(err),
			       first_warning(why, sizeof(why)));
}

int probe_attach(struct probe *p)
{
	struct bpf_program *prog;
	size_t n = 0;
	bpf_object__for_each_program(prog, p->object) n++;
	p->links = calloc(n + 1, sizeof(*p->links));
	if (!p->links)
		return say_fail("out of memory");
	int status = 0;
	bpf_object__for_each_program(prog, p->object)
		if (!status && bpf_program__autoload(prog))
			status = attach_one(p, prog);
	if (!status && !p->n_links)
		return say_fail("%s: no program is left: those of sections that begin with '?' are not loaded", p->options->name);
	return status;
}

void probe_close(struct probe *p)
{
	for (size_t i = 0; i < p->n_links; i++)
		bpf_link__destroy(p->links[i]);
	free(p->links);
	p->links = NULL;
	p->n_links = 0;
	bpf_object__close(p->object);
	p->object = NULL;
	loader_stop();
	buf_free(&libbpf_said);
}

void probe_free(struct probe *p)
{
	free(p->bytes);
	p->bytes = NULL;
}
