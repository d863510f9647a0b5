/* BPF_PROG_LOAD: resolve, find the context, verify, translate. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/helpers.h"
#include "bpf/split.h"
#include "syscall/object.h"
#include "translate/translate.h"

enum {
	MAX_SPLITS = 64,
	PROBE_MAX_INSNS = 32, /* libbpf's feature probes have fewer */
	TRACE_PRINTK = 6,
};

static const void *user(uint64_t address)
{
	return (const void *)(uintptr_t)address;
}

struct loading {
	struct loader *l;
	const union bpf_attr *attr;
	struct arena *arena;
	struct report *report; /* NULL for a feature probe */
	struct bpf_insn *insns;
	uint32_t n_insns;
	struct object *maps[EBPF_MAX_MAPS]; /* in order of first use */
	uint32_t n_maps;
	struct object *btf;
	struct diag *d;
};

/* -- map references -- */

static int map_index(struct loading *p, int fd, uint32_t insn, int32_t *index)
{
	struct object *o;
	int err = object_by_fd(p->l, fd, OBJECT_MAP, &o);
	if (err)
		return diag_set(p->d, -err,
			"instruction %u refers to descriptor %d, which is no map of ours", insn,
			fd);
	for (uint32_t i = 0; i < p->n_maps; i++)
		if (p->maps[i] == o) {
			*index = (int32_t)i;
			return 0;
		}
	if (p->n_maps == EBPF_MAX_MAPS)
		return diag_set(p->d, E2BIG, "the program uses more than %d maps", EBPF_MAX_MAPS);
	p->maps[p->n_maps] = o;
	*index = (int32_t)p->n_maps++;
	return 0;
}

/* Turns descriptors in 64-bit loads into indices; the forms through fd_array become the plain ones.
 */
static int resolve_maps(struct loading *p)
{
	const int *fd_array = user(p->attr->fd_array);
	for (uint32_t i = 0; i < p->n_insns; i++) {
		struct bpf_insn *in = &p->insns[i];
		if (in->code != (BPF_LD | BPF_IMM | BPF_DW))
			continue;
		if (i + 1 == p->n_insns)
			return diag_set(p->d, EINVAL,
				"instruction %u is the first half of a 64-bit load without its "
				"second",
				i);
		int fd = in->imm;
		if (in->src_reg == BPF_PSEUDO_MAP_IDX || in->src_reg == BPF_PSEUDO_MAP_IDX_VALUE) {
			if (!fd_array || in->imm < 0)
				return diag_set(p->d, EINVAL,
					"instruction %u refers to a table of maps that was not "
					"given",
					i);
			fd = fd_array[in->imm];
			in->src_reg = in->src_reg == BPF_PSEUDO_MAP_IDX ? BPF_PSEUDO_MAP_FD
									: BPF_PSEUDO_MAP_VALUE;
		}
		if (in->src_reg == BPF_PSEUDO_MAP_FD || in->src_reg == BPF_PSEUDO_MAP_VALUE) {
			int err = map_index(p, fd, i, &in->imm);
			if (err)
				return err;
		}
		i++;
	}
	return 0;
}

static bool calls_helper(const struct loading *p, int32_t number)
{
	for (uint32_t i = 0; i < p->n_insns; i++) {
		const struct bpf_insn *in = &p->insns[i];
		if (in->code == (BPF_JMP | BPF_CALL) && !in->src_reg && in->imm == number)
			return true;
	}
	return false;
}

/* -- BTF: context, name, source lines -- */

struct func_info {
	uint32_t insn, type;
};

static enum ebpf_context section_context(const union bpf_attr *a)
{
	uint32_t context = a->expected_attach_type - SECTION_CONTEXT;
	if (a->prog_type == BPF_PROG_TYPE_KPROBE) /* whichever it is */
		return EBPF_CONTEXT_EXIT;
	return context < EBPF_CONTEXT_COUNT ? (enum ebpf_context)context : EBPF_CONTEXT_NONE;
}

static int find_context(struct loading *p, struct btf **btf)
{
	const union bpf_attr *a = p->attr;
	const char *name = NULL;
	if (!a->func_info_cnt || !a->func_info || a->func_info_rec_size < sizeof(struct func_info))
		return diag_set(p->d, EINVAL,
			"program %s has no type information (BTF), which tells what the probe "
			"sees: compile it with "
			"clang -g",
			p->report->name);
	int err = object_by_fd(p->l, (int)a->prog_btf_fd, OBJECT_BTF, &p->btf);
	if (err)
		return diag_set(
			p->d, -err, "program %s: its BTF is not one of ours", p->report->name);
	err = btf_object_parse(p->btf, btf, p->d);
	if (err)
		return err;
	struct func_info first;
	memcpy(&first, user(a->func_info), sizeof(first));
	if (first.insn)
		return diag_set(p->d, EINVAL,
			"program %s: its function information does not begin at its first "
			"instruction",
			p->report->name);
	err = btf_context(*btf, first.type, section_context(a), &p->report->context, &p->report->program.opaque, &name, p->d);
	p->report->program.opaque |= a->prog_type == BPF_PROG_TYPE_KPROBE;
	if (name && *name)
		snprintf(p->report->name, sizeof(p->report->name), "%s", name);
	return err;
}

static int find_lines(struct loading *p, const struct btf *btf)
{
	const union bpf_attr *a = p->attr;
	const char *records = user(a->line_info);
	uint32_t n = a->line_info_cnt, size = a->line_info_rec_size;
	if (!n || !records || size < sizeof(struct bpf_line_info))
		return 0;
	if (n > p->n_insns)
		return diag_set(p->d, EINVAL, "program %s has more line records than instructions",
			p->report->name);
	struct ebpf_line *lines = arena_array(p->arena, n, sizeof(*lines));
	if (!lines)
		return diag_set(p->d, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n; i++) {
		struct bpf_line_info rec;
		memcpy(&rec, records + (size_t)i * size, sizeof(rec));
		if (rec.insn_off >= p->n_insns || (i && rec.insn_off <= lines[i - 1].insn))
			return diag_set(p->d, EINVAL, "program %s: line record %u is out of order",
				p->report->name, i);
		const char *file = btf__name_by_offset(btf, rec.file_name_off),
			   *text = btf__name_by_offset(btf, rec.line_off);
		lines[i] = (struct ebpf_line){
			.insn = rec.insn_off,
			.line = BPF_LINE_INFO_LINE_NUM(rec.line_col),
			.column = BPF_LINE_INFO_LINE_COL(rec.line_col),
			.file = file && *file ? arena_strdup(p->arena, file) : NULL,
			.text = text && *text ? arena_strdup(p->arena, text) : NULL,
		};
	}
	p->report->program.lines = lines;
	p->report->program.n_lines = n;
	return 0;
}

static int describe_maps(struct loading *p)
{
	bool trace = calls_helper(p, TRACE_PRINTK) || calls_helper(p, EBPF_FUNC_puts);
	struct ebpf_map *maps = arena_array(p->arena, p->n_maps + 1, sizeof(*maps));
	int err = maps ? 0 : diag_set(p->d, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < p->n_maps && !err; i++)
		err = map_object_describe(p->l, p->maps[i], p->arena, &maps[i]);
	if (!err && trace)
		err = p->n_maps < EBPF_MAX_MAPS
			      ? trace_map_describe(p->l, p->arena, &maps[p->n_maps], p->d)
			      : diag_set(p->d, E2BIG, "the program uses more than %d maps",
					EBPF_MAX_MAPS);
	if (err)
		return diag_set(p->d, -err, "program %s: cannot read its maps: %s", p->report->name,
			strerror(-err));
	p->report->program.maps = maps;
	p->report->program.n_maps = p->n_maps + trace;
	return 0;
}

/* -- verification and translation -- */

/* Translating needs a point; every point of a context gives the same code, so any will do until a
 * link says which. */
static int context_point(enum ebpf_context context, enum ebpf_point *point, bool *warp)
{
	static const enum ebpf_point points[] = { EBPF_POINT_ENTRY, EBPF_POINT_EXIT,
		EBPF_POINT_MEM, EBPF_POINT_BLOCK, EBPF_POINT_BRANCH, EBPF_POINT_BARRIER,
		EBPF_POINT_CALL, EBPF_POINT_INSN, EBPF_POINT_LOAD_DONE };
	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++)
		for (int w = 0; w < 2; w++)
			if (ebpf_point_context(points[i], w) == context) {
				*point = points[i];
				*warp = w;
				return 0;
			}
	return -EINVAL;
}

/* Where the compiler has made one call of two that are given different kinds of memory they are parted. */
static int check(struct loading *p, const struct verifier_options *options)
{
	struct report *r = p->report;
	bool again = true;
	int err = 0;
	for (int n = 0; again && n < MAX_SPLITS; n++) {
		buf_reset(&r->log);
		*p->d = (struct diag){ 0 };
		err = verifier_check(p->arena, &r->program, options, &r->info.verified, &r->log, p->d);
		again = err && r->info.verified.mixed;
		if (again && ebpf_split(p->arena, &r->program, r->info.verified.mixed - 1, &again))
			return diag_set(p->d, ENOMEM, "out of memory");
	}
	return err;
}

static int check_and_translate(struct loading *p)
{
	struct report *r = p->report;
	struct verifier_options options = p->l->options.verifier;
	enum ebpf_point point;
	bool warp;
	uint32_t level = p->attr->log_level & 3;
	if (options.log_level < level)
		options.log_level = level;
	r->program.name = r->name;
	r->program.insns = p->insns;
	r->program.n_insns = p->n_insns;
	r->program.context = r->context;
	r->program.sampled = !p->l->options.live && session_samples(&session_data(p->l->options.session)->filter);
	r->info.program = &r->program;
	int err = check(p, &options);
	if (err)
		return err;
	if (context_point(r->context, &point, &warp))
		return diag_set(p->d, EINVAL, "program %s: struct %s belongs to no point", r->name,
			ebpf_context_struct(r->context));
	err = translate_program(
		p->arena, &r->program, &r->info.verified, point, warp, &r->fragment, p->d);
	for (uint32_t i = 0; i < p->n_maps && !err; i++)
		err = session_map_use(p->l->options.session, p->maps[i]->map.id,
			&r->fragment.use[p->maps[i]->map.id], p->d);
	if (!err)
		r->info.fragment = &r->fragment;
	return err;
}

static int load_gpu(struct loading *p)
{
	struct btf *btf = NULL;
	int err = resolve_maps(p);
	if (!err)
		err = find_context(p, &btf);
	if (!err)
		err = find_lines(p, btf);
	if (!err)
		err = describe_maps(p);
	return err ? err : check_and_translate(p);
}

/* libbpf asks what the kernel can do by loading tiny programs of ordinary types. They are never
 * attached and nothing translates or runs them, so their form is all that matters; saying yes keeps
 * libbpf on its straight path (no changed resource limits, no rewritten BTF). */
static int load_probe(struct loading *p)
{
	switch (p->attr->prog_type) {
	case BPF_PROG_TYPE_SOCKET_FILTER:
	case BPF_PROG_TYPE_KPROBE:
	case BPF_PROG_TYPE_TRACEPOINT:
		break;
	default:
		return diag_set(p->d, EINVAL,
			"program type %u is not supported: sections are gpu/POINT/KERNEL or "
			"gpu.warp/POINT/KERNEL",
			p->attr->prog_type);
	}
	if (p->n_insns > PROBE_MAX_INSNS || p->attr->line_info_cnt)
		return diag_set(p->d, EINVAL,
			"only GPU programs can be loaded: sections are gpu/POINT/KERNEL or "
			"gpu.warp/POINT/KERNEL behind raw_tp/; a kprobe is one when its function's name begins with cuda__");
	const struct bpf_insn *last = &p->insns[p->n_insns - 1];
	if (last->code != (BPF_JMP | BPF_EXIT))
		return diag_set(p->d, EINVAL, "the last instruction is no exit");
	return resolve_maps(p);
}

/* -- the log -- */

/* As the kernel: when the log does not fit, its end is kept (with BPF_LOG_FIXED, its beginning) and
 * the call fails with -ENOSPC whatever it would have said. */
static int give_log(const union bpf_attr *attr, const struct buf *log)
{
	char *to = (char *)(uintptr_t)attr->log_buf;
	size_t room = attr->log_size, len = log->data ? log->len : 0;
	if (!attr->log_level || !to || !room)
		return 0;
	bool keep_head = attr->log_level & 8, fits = len < room;
	size_t n = fits ? len : room - 1;
	if (n)
		memcpy(to, fits || keep_head ? log->data : log->data + (len - n), n);
	to[n] = '\0';
	return fits ? 0 : -ENOSPC;
}

static int check_log(const union bpf_attr *attr)
{
	if (attr->log_level & ~15u)
		return -EINVAL;
	if (!attr->log_level)
		return 0;
	return (!attr->log_buf) != (!attr->log_size) || attr->log_size > UINT32_MAX >> 2 ? -EINVAL
											 : 0;
}

/* The reason is the log's last line also when the verifier was never asked. */
static void finish_log(struct buf *log, const struct diag *d)
{
	if (!d->err || (log->data && strstr(log->data, d->text)))
		return;
	if (log->len && log->data[log->len - 1] != '\n')
		buf_puts(log, "\n");
	buf_printf(log, "%s\n", d->text);
}

/* -- the object -- */

static int prog_object(struct loading *p, const char name[16])
{
	struct object *o;
	int fd = object_anonymous("egpu-prog");
	int err = fd < 0 ? fd : object_new(p->l, OBJECT_PROG, fd, &o);
	if (err)
		return err;
	o->prog.type = p->attr->prog_type;
	o->prog.report = p->report;
	memcpy(o->prog.name, name, sizeof(o->prog.name));
	o->prog.n_insns = p->n_insns;
	o->prog.btf = p->btf;
	if (p->btf)
		p->btf->refs++;
	for (uint32_t i = 0; i < p->n_maps; i++) {
		o->prog.maps[i] = p->maps[i];
		p->maps[i]->refs++;
		p->maps[i]->keep = p->maps[i]->keep ||
				   p->report; /* its counts are wanted after the program is gone */
	}
	o->prog.n_maps = p->n_maps;
	return object_descriptor(o);
}

void prog_object_release(struct loader *l, struct object *o)
{
	for (uint32_t i = 0; i < o->prog.n_maps; i++)
		object_unref(o->prog.maps[i]);
	object_unref(o->prog.btf);
}

static struct report *report_new(struct loader *l, const char *name)
{
	struct report *r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->arena = arena_new();
	if (!r->arena) {
		free(r);
		return NULL;
	}
	snprintf(r->name, sizeof(r->name), "%s", name[0] ? name : "(no name)");
	r->info.name = r->name;
	*l->reports_end = r;
	l->reports_end = &r->next;
	return r;
}

static int copy_insns(struct loading *p)
{
	const union bpf_attr *a = p->attr;
	if (!a->insn_cnt || a->insn_cnt > EBPF_MAX_INSNS)
		return diag_set(p->d, E2BIG, "a program has 1 to %d instructions, not %u",
			EBPF_MAX_INSNS, a->insn_cnt);
	if (!a->insns)
		return -EFAULT;
	p->insns = arena_array(p->arena, a->insn_cnt, sizeof(*p->insns));
	if (!p->insns)
		return -ENOMEM;
	memcpy(p->insns, user(a->insns), a->insn_cnt * sizeof(*p->insns));
	p->n_insns = a->insn_cnt;
	return 0;
}

static long finish_gpu(struct loading *p, int err, const char name[16])
{
	struct report *r = p->report;
	if (err)
		diag_set(&r->info.error, -err, "program %s: %s", r->name, strerror(-err));
	finish_log(&r->log, &r->info.error);
	int full = give_log(p->attr, &r->log);
	r->info.log = r->log.data ? r->log.data : "";
	r->info.err = err;
	if (r->info.error.err)
		p->l->error = r->info.error;
	return full ? full : err ? err : prog_object(p, name);
}

static long load_and_finish_probe(struct loading *p, const char name[16])
{
	struct diag d = { 0 };
	struct buf log = { 0 };
	p->d = &d;
	p->arena = arena_new();
	int err = p->arena ? copy_insns(p) : -ENOMEM;
	if (!err)
		err = load_probe(p);
	finish_log(&log, &d);
	int full = give_log(p->attr, &log);
	buf_free(&log);
	arena_free(p->arena);
	/* A refused probe is an answer, not an error to tell anybody; what somebody wrote has line
	 * records. */
	if (d.err && p->attr->line_info_cnt)
		p->l->error = d;
	return full ? full : err ? err : prog_object(p, name);
}

/* bpf(2) does not tell the section: that a kprobe is one of a GPU's kernels, and not of Linux, its function's name says, as bpftime has it, or a
 * helper that only a GPU has. */
static bool is_gpu_kprobe(const union bpf_attr *attr, const char name[16])
{
	const struct bpf_insn *insns = user(attr->insns);
	if (attr->prog_type != BPF_PROG_TYPE_KPROBE || !insns)
		return false;
	bool says = !strncmp(name, "cuda__", 6);
	for (uint32_t i = 0; i < attr->insn_cnt && i < EBPF_MAX_INSNS && !says; i++)
		says = insns[i].code == (BPF_JMP | BPF_CALL) && !insns[i].src_reg && insns[i].imm >= EBPF_FUNC_puts && insns[i].imm <= EBPF_FUNC_get_lane_id;
	return says;
}

COMMAND(prog_load)
{
	char name[16];
	struct loading p = { .l = l, .attr = attr };
	object_sweep(l);
	int err = object_name(attr->prog_name, name);
	if (!err)
		err = check_log(attr);
	if (err)
		return err;
	if (attr->prog_type != BPF_PROG_TYPE_RAW_TRACEPOINT && !is_gpu_kprobe(attr, name))
		return load_and_finish_probe(&p, name);
	p.report = report_new(l, name);
	if (!p.report)
		return -ENOMEM;
	p.arena = p.report->arena;
	p.d = &p.report->info.error;
	err = copy_insns(&p);
	return finish_gpu(&p, err ? err : load_gpu(&p), name);
}

COMMAND(prog_bind_map)
{
	struct object *prog, *map;
	int err = object_by_fd(l, (int)attr->prog_bind_map.prog_fd, OBJECT_PROG, &prog);
	if (!err)
		err = object_by_fd(l, (int)attr->prog_bind_map.map_fd, OBJECT_MAP, &map);
	if (err)
		return err;
	if (attr->prog_bind_map.flags)
		return -EINVAL;
	for (uint32_t i = 0; i < prog->prog.n_maps; i++)
		if (prog->prog.maps[i] == map)
			return 0;
	if (prog->prog.n_maps == EBPF_MAX_MAPS)
		return -E2BIG;
	prog->prog.maps[prog->prog.n_maps++] = map;
	map->refs++;
	return 0;
}
