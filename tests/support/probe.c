#include "probe.h"

#include "bpf/insns.h"

#include <bpf/libbpf.h>
#include <elf.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef R_BPF_64_32
#define R_BPF_64_32 10
#endif

static bool runs(const char *clang, bool v4)
{
	char command[256];
	snprintf(command, sizeof(command),
		"echo 'int f(void){return 0;}' | %s -target bpf -mcpu=%s -x c -c - -o /dev/null "
		">/dev/null 2>&1",
		clang, v4 ? "v4" : "v3");
	return system(command) == 0;
}

const char *probe_clang(bool v4)
{
	static const char *const names[] = { "clang", "clang-19", "clang-18", "clang-17",
		"clang-16", "clang-14" };
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
		if (runs(names[k], v4))
			return names[k];
	return NULL;
}

bool probe_compile(const char *clang, const char *source, const char *cpu, const char *object)
{
	char command[2048];
	snprintf(command, sizeof(command),
		"%s -O2 -g -target bpf -mcpu=%s -I%s -I/usr/include/%s -c %s -o %s", clang, cpu,
		PROBE_INCLUDE,
#ifdef __aarch64__
		"aarch64-linux-gnu",
#else
		"x86_64-linux-gnu",
#endif
		source, object);
	return system(command) == 0;
}

struct reader {
	struct arena *arena;
	struct probe_object *out;
	Elf *elf;
	Elf_Data *symbols;
	size_t strings; /* of the symbols */
	size_t shstr;
	size_t text; /* section of .text, 0: none */
};

static const char *section_name(struct reader *r, size_t index)
{
	Elf_Scn *s = elf_getscn(r->elf, index);
	GElf_Shdr h;
	return s && gelf_getshdr(s, &h) ? elf_strptr(r->elf, r->shstr, h.sh_name) : NULL;
}

static Elf_Data *section_data(struct reader *r, size_t index)
{
	Elf_Scn *s = elf_getscn(r->elf, index);
	return s ? elf_getdata(s, NULL) : NULL;
}

static bool read_maps(struct reader *r, struct bpf_object *obj)
{
	struct bpf_map *m;
	bpf_object__for_each_map(m, obj)
	{
		struct ebpf_map *to = &r->out->maps[r->out->n_maps];
		size_t size = 0;
		const void *initial = bpf_map__initial_value(m, &size);
		*to = (struct ebpf_map){
			.name = arena_strdup(r->arena, bpf_map__name(m)),
			.type = bpf_map__type(m),
			.key_size = bpf_map__key_size(m),
			.value_size = bpf_map__value_size(m),
			.max_entries = bpf_map__max_entries(m),
			.extra = bpf_map__map_extra(m),
			.flags = bpf_map__map_flags(m),
			.id = r->out->n_maps++,
		};
		uint8_t *values = arena_alloc(r->arena, (to->value_size + 7) / 8 * 8);
		if (initial)
			memcpy(values, initial, size);
		to->frozen = to->flags & BPF_F_RDONLY_PROG;
		to->values = initial ? values : NULL;
	}
	return true;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), k = strlen(end);
	return n >= k && !strcmp(s + n - k, end);
}

const struct ebpf_map *probe_map(const struct probe_object *o, const char *name)
{
	for (uint32_t k = 0; k < o->n_maps; k++)
		if (name[0] == '.' ? ends_with(o->maps[k].name, name)
				   : !strcmp(o->maps[k].name, name))
			return &o->maps[k];
	return NULL;
}

/* One relocation of `insns`, which starts at byte `base` of its section; text_at: index of .text's
 * first instruction. */
static bool relocate(struct reader *r, struct bpf_insn *insns, uint32_t at, const GElf_Rel *rel,
	uint32_t text_at)
{
	GElf_Sym sym;
	if (!gelf_getsym(r->symbols, (int)GELF_R_SYM(rel->r_info), &sym))
		return false;
	const char *symbol = elf_strptr(r->elf, r->strings, sym.st_name);
	const char *section = section_name(r, sym.st_shndx);
	struct bpf_insn *in = &insns[at];
	if (in->code == (BPF_JMP | BPF_CALL)) {
		int32_t to = GELF_ST_TYPE(sym.st_info) == STT_SECTION ? in->imm + 1
								      : (int32_t)(sym.st_value / 8);
		in->imm = (int32_t)text_at + to - (int32_t)at - 1;
		return true;
	}
	if (section && !strcmp(section, ".text") && ebpf_is_imm64(in)) { /* a function that a helper calls */
		int32_t to = GELF_ST_TYPE(sym.st_info) == STT_SECTION ? in->imm / 8 : (int32_t)(sym.st_value / 8);
		in->src_reg = BPF_PSEUDO_FUNC;
		in->imm = (int32_t)text_at + to - (int32_t)at - 1;
		return true;
	}
	const struct ebpf_map *m = probe_map(r->out, section && !strcmp(section, ".maps") ? symbol
						     : section                            ? section
											  : "?");
	if (!m || in->code != (BPF_LD | BPF_IMM | BPF_DW)) {
		fprintf(stderr, "# cannot relocate %s\n", symbol);
		return false;
	}
	if (!strcmp(section, ".maps")) {
		in->src_reg = BPF_PSEUDO_MAP_FD;
	} else {
		in->src_reg = BPF_PSEUDO_MAP_VALUE;
		in[1].imm = in->imm +
			    (GELF_ST_TYPE(sym.st_info) == STT_SECTION ? 0 : (int32_t)sym.st_value);
	}
	in->imm = (int32_t)m->id;
	return true;
}

/* Applies those relocations of `section` that fall into [base, base + n) instructions; they are at
 * insns[at]. */
static bool relocate_range(struct reader *r, size_t section, struct bpf_insn *insns, uint32_t at,
	uint64_t base, uint32_t n, uint32_t text_at)
{
	for (Elf_Scn *s = NULL; (s = elf_nextscn(r->elf, s));) {
		GElf_Shdr h;
		gelf_getshdr(s, &h);
		if (h.sh_type != SHT_REL || h.sh_info != section)
			continue;
		Elf_Data *data = elf_getdata(s, NULL);
		for (size_t k = 0; k < h.sh_size / h.sh_entsize; k++) {
			GElf_Rel rel;
			gelf_getrel(data, (int)k, &rel);
			if (rel.r_offset / 8 < base || rel.r_offset / 8 >= base + n)
				continue;
			if (!relocate(r, insns, at + (uint32_t)(rel.r_offset / 8 - base), &rel,
				    text_at))
				return false;
		}
	}
	return true;
}

static bool find_function(struct reader *r, const char *name, GElf_Sym *out)
{
	size_t n = r->symbols->d_size / sizeof(Elf64_Sym);
	for (size_t k = 0; k < n; k++)
		if (gelf_getsym(r->symbols, (int)k, out) &&
			GELF_ST_TYPE(out->st_info) == STT_FUNC &&
			!strcmp(elf_strptr(r->elf, r->strings, out->st_name), name))
			return true;
	return false;
}

/* Where an instruction leads in another function: a call, or a mention for a helper; -1. */
static int64_t leads_to(const struct bpf_insn *insns, uint32_t at)
{
	const struct bpf_insn *in = &insns[at];
	bool call = in->code == (BPF_JMP | BPF_CALL) && in->src_reg == BPF_PSEUDO_CALL;
	return call || (ebpf_is_imm64(in) && in->src_reg == BPF_PSEUDO_FUNC) ? (int64_t)at + 1 + in->imm : -1;
}

/* Drops the functions of .text that the program does not use, as libbpf does; the new length. starts[i]: a function starts there. */
static uint32_t drop_unused(struct arena *arena, struct bpf_insn *insns, uint32_t n, uint32_t n_main, bool *starts)
{
	uint32_t *moved = arena_array(arena, n + 1, sizeof(*moved)), to = 0;
	bool *used = arena_array(arena, n + 1, sizeof(*used));
	memset(used, 1, n_main);
	for (bool changed = true; changed;) {
		changed = false;
		for (uint32_t i = 0; i < n; i++) {
			int64_t t = used[i] ? leads_to(insns, i) : -1;
			if (t < n_main || t >= n || used[t])
				continue;
			changed = true;
			do
				used[t++] = true;
			while (t < n && !starts[t]);
		}
	}
	for (uint32_t i = 0; i < n; i++)
		moved[i] = used[i] ? to++ : UINT32_MAX;
	for (uint32_t i = 0; i < n; i++) {
		int64_t t = used[i] ? leads_to(insns, i) : -1;
		if (t >= 0 && t < n)
			insns[i].imm = (int32_t)(moved[t] - moved[i] - 1);
	}
	for (uint32_t i = 0; i < n; i++)
		if (used[i])
			insns[moved[i]] = insns[i];
	return to;
}

static void find_starts(struct reader *r, bool *starts, uint32_t n, uint32_t n_main)
{
	GElf_Sym sym;
	size_t count = r->symbols->d_size / sizeof(Elf64_Sym);
	for (size_t k = 0; k < count; k++)
		if (gelf_getsym(r->symbols, (int)k, &sym) && GELF_ST_TYPE(sym.st_info) == STT_FUNC && r->text && sym.st_shndx == r->text &&
			n_main + sym.st_value / 8 < n)
			starts[n_main + sym.st_value / 8] = true;
}

static bool read_program(struct reader *r, struct bpf_program *prog)
{
	GElf_Sym sym;
	const char *name = bpf_program__name(prog);
	if (r->out->n_progs == 16 || !find_function(r, name, &sym))
		return false;
	uint32_t n = (uint32_t)(sym.st_size / 8), n_text = 0;
	Elf_Data *code = section_data(r, sym.st_shndx),
		 *text = r->text ? section_data(r, r->text) : NULL;
	if (text)
		n_text = (uint32_t)(text->d_size / 8);
	struct bpf_insn *insns = arena_array(r->arena, n + n_text, sizeof(*insns));
	memcpy(insns, (char *)code->d_buf + sym.st_value, n * sizeof(*insns));
	if (n_text)
		memcpy(insns + n, text->d_buf, n_text * sizeof(*insns));
	if (!relocate_range(r, sym.st_shndx, insns, 0, sym.st_value / 8, n, n) ||
		(n_text && !relocate_range(r, r->text, insns, n, 0, n_text, n)))
		return false;
	bool *starts = arena_array(r->arena, n + n_text + 1, sizeof(*starts));
	find_starts(r, starts, n + n_text, n);
	n = drop_unused(r->arena, insns, n + n_text, n, starts);
	__typeof__(r->out->progs[0]) *p = &r->out->progs[r->out->n_progs++];
	const char *pattern;
	if (ebpf_section_parse(bpf_program__section_name(prog), &p->point, &p->warp, &pattern))
		return false;
	p->program = (struct ebpf_program){
		.name = arena_strdup(r->arena, name),
		.insns = insns,
		.n_insns = n,
		.context = ebpf_point_context(p->point, p->warp),
		.maps = r->out->maps,
		.n_maps = r->out->n_maps,
	};
	return true;
}

static bool read_elf(struct reader *r, struct bpf_object *obj)
{
	elf_getshdrstrndx(r->elf, &r->shstr);
	for (Elf_Scn *s = NULL; (s = elf_nextscn(r->elf, s));) {
		GElf_Shdr h;
		gelf_getshdr(s, &h);
		if (h.sh_type == SHT_SYMTAB) {
			r->symbols = elf_getdata(s, NULL);
			r->strings = h.sh_link;
		}
		if (!strcmp(elf_strptr(r->elf, r->shstr, h.sh_name), ".text") && h.sh_size)
			r->text = elf_ndxscn(s);
	}
	struct bpf_program *prog;
	if (!r->symbols || !read_maps(r, obj))
		return false;
	bpf_object__for_each_program(prog, obj) if (!read_program(r, prog)) return false;
	return true;
}

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

bool probe_read(struct arena *arena, const char *object, struct probe_object *out)
{
	struct reader r = { .arena = arena, .out = out };
	memset(out, 0, sizeof(*out));
	libbpf_set_print(silent);
	struct bpf_object *obj = bpf_object__open_file(object, NULL);
	if (!obj) {
		fprintf(stderr, "# libbpf cannot open %s\n", object);
		return false;
	}
	elf_version(EV_CURRENT);
	int fd = open(object, O_RDONLY | O_CLOEXEC);
	r.elf = fd >= 0 ? elf_begin(fd, ELF_C_READ, NULL) : NULL;
	bool fine = r.elf && read_elf(&r, obj);
	if (r.elf)
		elf_end(r.elf);
	if (fd >= 0)
		close(fd);
	bpf_object__close(obj);
	return fine;
}

void probe_add_trace_map(struct probe_object *o, uint32_t bytes)
{
	o->maps[o->n_maps] = (struct ebpf_map){ .name = "egpu_trace",
		.type = BPF_MAP_TYPE_RINGBUF,
		.max_entries = bytes,
		.id = o->n_maps };
	o->n_maps++;
	for (uint32_t k = 0; k < o->n_progs; k++)
		o->progs[k].program.n_maps = o->n_maps;
}

/* -- host kernel ------------------------------------------------------------- */

/* Where a field's value comes from; the others get a constant. */
static const struct {
	enum ebpf_field field;
	const char *source;
} sources[] = {
	{ EBPF_FIELD_LANE, "%laneid" },
	{ EBPF_FIELD_SM, "%smid" },
	{ EBPF_FIELD_THREAD_X, "%tid.x" },
	{ EBPF_FIELD_THREAD_Y, "%tid.y" },
	{ EBPF_FIELD_THREAD_Z, "%tid.z" },
	{ EBPF_FIELD_BLOCK_X, "%ctaid.x" },
	{ EBPF_FIELD_BLOCK_Y, "%ctaid.y" },
	{ EBPF_FIELD_BLOCK_Z, "%ctaid.z" },
	{ EBPF_FIELD_BLOCK_DIM_X, "%ntid.x" },
	{ EBPF_FIELD_GRID_DIM_X, "%nctaid.x" },
	{ EBPF_FIELD_SITE, "%ctaid.x" },
	{ EBPF_FIELD_BYTES, "4" },
};

static void put_field(struct buf *ptx, enum ebpf_field field)
{
	const struct ebpf_field_row *row = &ebpf_fields[field];
	const char *source = "0";
	for (size_t k = 0; k < sizeof(sources) / sizeof(sources[0]); k++)
		if (sources[k].field == field)
			source = sources[k].source;
	buf_printf(ptx, "\t.reg .b%u %%egpu_%s;\n\tmov.u%u %%egpu_%s, %s;\n", row->bytes * 8,
		row->name, row->bytes * 8, row->name, source);
}

static void put_kernel(const struct ebpf_fragment *f, uint32_t index, struct buf *ptx)
{
	buf_printf(ptx, ".visible .entry host%u(.param .u64 p0, .param .u64 p1)\n{\n", index);
	for (uint32_t k = 0; k < EBPF_FIELD_COUNT; k++)
		if (f->fields >> k & 1)
			put_field(ptx, (enum ebpf_field)k);
	for (uint32_t k = 0; k < f->n_params; k++)
		buf_printf(ptx,
			"\t.reg .b64 %%egpu_param%u;\n\tld.param.u64 %%egpu_param%u, [p%u];\n",
			f->params[k].index, f->params[k].index, f->params[k].index);
	if (f->slot)
		buf_printf(ptx,
			"\t.reg .b32 %%egpu_slot, %%last;\n\tmov.u32 %%egpu_slot, %%smid;\n"
			"\tld.const.u32 %%last, [__egpu_table+%d];\n\tsub.u32 %%last, %%last, 1;\n"
			"\tmin.u32 %%egpu_slot, %%egpu_slot, %%last;\n",
			8 * EBPF_TABLE_SMS);
	buf_puts(ptx, f->body);
	buf_puts(ptx, "\tret;\n}\n");
}

/* Functions of one name have one text. */
static bool seen(const struct ebpf_fragment *fragments, uint32_t before, const char *name)
{
	for (uint32_t k = 0; k < before; k++)
		for (uint32_t i = 0; i < fragments[k].n_funcs; i++)
			if (!strcmp(fragments[k].funcs[i].name, name))
				return true;
	return false;
}

void probe_hosts(const struct ebpf_fragment *fragments, uint32_t n, const char *version,
	const char *target, struct buf *out)
{
	struct buf text = { 0 }, *ptx = &text;
	buf_printf(ptx,
		".version %s\n.target %s\n.address_size 64\n.const .align 8 .u64 "
		"__egpu_table[144];\n",
		version, target);
	for (uint32_t k = 0; k < n; k++)
		for (uint32_t i = 0; i < fragments[k].n_funcs; i++)
			if (!seen(fragments, k, fragments[k].funcs[i].name))
				buf_puts(ptx, fragments[k].funcs[i].text);
	for (uint32_t k = 0; k < n; k++)
		put_kernel(&fragments[k], k, ptx);
	out->failed |= text.failed;
	if (!text.failed)
		ebpf_fragment_text(text.data, (uint32_t)(atoi(version) * 100 + atoi(strchr(version, '.') + 1)),
			(uint32_t)atoi(target + 3), out);
	buf_free(&text);
}
