/* code.c - machine code out of a linked cubin, to be put where the driver did not, and to be compared with another's.
 *
 * A function compiled in relocatable mode is a section .text.NAME. What it calls, such as the division that the driver's linker adds, is in
 * sections of their own: they come along, one behind the other. Calls name the callee and the address to return to. Those are the only
 * relocations of a function that uses nothing but its arguments, special registers and numbers; the forms are those of sm_70 to sm_120 (ptxas
 * 13.0), and the fields those of an H200's own branches.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cuda/cubin_elf.h"
#include "cuda/fatbin.h"

enum {
	R_LOW_32 = 56,	 /* R_CUDA_ABS32_LO_32: the low 32 bits of an address, at bit 32 of the instruction */
	R_HIGH_32 = 57,	 /* R_CUDA_ABS32_HI_32: the high ones */
	R_CALL_34 = 58,	 /* R_CUDA_ABS47_34: an address / 4, at bit 34; up to sm_89 */
	R_CALL_16_34 = 75, /* R_CUDA_ABS55_16_34: of an address / 4 8 bits at bit 16, the others at bit 34; from sm_90 on */
	INSN_BYTES = 16,
	CALL_ABSOLUTE = 0x943, /* opcode; a predicate and the address elsewhere */
	ALIGN = 128,
	MAX_PARTS = 16,
	INFO_WORD = 0x04, /* form of an attribute: a size and that many bytes */
	INFO_FRAME = 0x11,
	INFO_REGS = 0x2f,
};

/* A function that comes along. */
struct part {
	uint32_t section, symbol;
	Elf64_Shdr text;
	uint64_t at; /* in what is put together */
};

struct image {
	const char *elf;
	size_t size;
	Elf64_Ehdr head;
	Elf64_Shdr symtab, strtab;
	struct part parts[MAX_PARTS];
	uint32_t n;
	uint64_t bytes;
};

static bool read_symbol(const struct image *im, uint64_t i, Elf64_Sym *s)
{
	if (i >= im->symtab.sh_size / sizeof(*s) || !elf_within(im->size, im->symtab.sh_offset, im->symtab.sh_size))
		return false;
	memcpy(s, im->elf + im->symtab.sh_offset + i * sizeof(*s), sizeof(*s));
	return true;
}

static bool read_section(const struct image *im, uint64_t i, Elf64_Shdr *s)
{
	return elf_read_section(im->elf, im->size, &im->head, i, s);
}

static const char *section_name(const struct image *im, const Elf64_Shdr *s)
{
	Elf64_Shdr names;
	return read_section(im, elf_name_section(im->elf, im->size, &im->head), &names) ? elf_string(im->elf, im->size, &names, s->sh_name) : "";
}

static int open_image(struct image *im)
{
	Elf64_Shdr s;
	if (!elf_is_cubin(im->elf, im->size) || !elf_read_header(im->elf, im->size, &im->head))
		return -EINVAL;
	uint64_t n = elf_section_count(im->elf, im->size, &im->head);
	for (uint64_t i = 0; i < n; i++) {
		if (!read_section(im, i, &s))
			return -EINVAL;
		if (s.sh_type != SHT_SYMTAB)
			continue;
		im->symtab = s;
		return read_section(im, s.sh_link, &im->strtab) ? 0 : -EINVAL;
	}
	return -ENOENT;
}

/* Whether a section is a bank of constants of the function. */
static bool is_bank_of(const char *section, const char *function)
{
	static const char bank[] = ".nv.constant";
	size_t n = sizeof(bank) - 1;
	return !strncmp(section, bank, n) && section[n] && section[n + 1] == '.' && !strcmp(section + n + 2, function);
}

static bool has_bank(const struct image *im, const char *function)
{
	Elf64_Shdr s;
	for (uint64_t i = 0; read_section(im, i, &s) && i < elf_section_count(im->elf, im->size, &im->head); i++)
		if (is_bank_of(section_name(im, &s), function))
			return true;
	return false;
}

/* The function of a symbol comes along, once. */
static int add_part(struct image *im, uint32_t symbol, uint32_t *index)
{
	static const char text[] = ".text.";
	struct part p = { .symbol = symbol };
	Elf64_Sym s;
	if (!read_symbol(im, symbol, &s))
		return -EINVAL;
	for (*index = 0; *index < im->n; ++*index)
		if (im->parts[*index].section == s.st_shndx)
			return 0;
	if (!s.st_shndx || ELF64_ST_TYPE(s.st_info) != STT_FUNC || s.st_value || im->n == MAX_PARTS)
		return -ENOTSUP;
	const char *name = elf_string(im->elf, im->size, &im->strtab, s.st_name);
	p.section = s.st_shndx;
	if (!read_section(im, p.section, &p.text))
		return -EINVAL;
	const char *section = section_name(im, &p.text);
	if (strncmp(section, text, sizeof(text) - 1) || strcmp(section + sizeof(text) - 1, name) || has_bank(im, name))
		return -ENOTSUP;
	if (p.text.sh_type != SHT_PROGBITS || !elf_within(im->size, p.text.sh_offset, p.text.sh_size))
		return -EINVAL;
	p.at = (im->bytes + ALIGN - 1) / ALIGN * ALIGN;
	im->bytes = p.at + p.text.sh_size;
	im->parts[im->n++] = p;
	return 0;
}

static int add_entry(struct image *im, const char *name)
{
	Elf64_Sym s;
	uint32_t index;
	for (uint32_t i = 0; read_symbol(im, i, &s); i++)
		if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_shndx && !strcmp(elf_string(im->elf, im->size, &im->strtab, s.st_name), name))
			return add_part(im, i, &index);
	return -ENOENT;
}

/* -- relocations ------------------------------------------------------------------ */

static void set_bits(char *insn, uint32_t at, uint32_t n, uint64_t value)
{
	for (uint32_t i = 0; i < n; i++, value >>= 1) {
		char *byte = insn + (at + i) / 8, bit = (char)(1u << (at + i) % 8);
		*byte = (char)(value & 1 ? *byte | bit : *byte & ~bit);
	}
}

static int put(char *insn, uint32_t type, uint64_t value)
{
	switch (type) {
	case R_LOW_32:
	case R_HIGH_32:
		set_bits(insn, 32, 32, type == R_LOW_32 ? value : value >> 32);
		return 0;
	case R_CALL_34:
		set_bits(insn, 34, 47, value / 4);
		return 0;
	case R_CALL_16_34:
		set_bits(insn, 16, 8, value / 4);
		set_bits(insn, 34, 47, value / 4 >> 8);
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int relocate(struct image *im, const struct part *p, const Elf64_Rela *r, uint64_t address, char *code)
{
	char none[INSN_BYTES];
	uint32_t target;
	Elf64_Sym s;
	int err = add_part(im, (uint32_t)ELF64_R_SYM(r->r_info), &target);
	if (err)
		return err;
	if (r->r_offset % INSN_BYTES || !elf_within(p->text.sh_size, r->r_offset, INSN_BYTES) ||
		!read_symbol(im, ELF64_R_SYM(r->r_info), &s))
		return -EINVAL;
	return put(code ? code + p->at + r->r_offset : none, (uint32_t)ELF64_R_TYPE(r->r_info),
		address + im->parts[target].at + s.st_value + (uint64_t)r->r_addend);
}

/* Of one function, of which others may come along behind. */
static int relocate_part(struct image *im, uint32_t index, uint64_t address, char *code)
{
	Elf64_Shdr s;
	uint64_t n = elf_section_count(im->elf, im->size, &im->head);
	for (uint64_t i = 0; i < n; i++) {
		if (!read_section(im, i, &s))
			return -EINVAL;
		size_t each = s.sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
		if ((s.sh_type != SHT_RELA && s.sh_type != SHT_REL) || s.sh_info != im->parts[index].section)
			continue;
		if (!elf_within(im->size, s.sh_offset, s.sh_size))
			return -EINVAL;
		for (uint64_t at = 0; s.sh_size - at >= each; at += each) {
			Elf64_Rela r = { 0 };
			memcpy(&r, im->elf + s.sh_offset + at, each);
			int err = relocate(im, &im->parts[index], &r, address, code);
			if (err)
				return err;
		}
	}
	return 0;
}

/* A call that no relocation has set: the linker has left out what it calls, since no kernel does. */
static bool calls_nothing(const char *code, uint64_t bytes)
{
	for (uint64_t at = 0; at + INSN_BYTES <= bytes; at += INSN_BYTES) {
		uint64_t low, high;
		memcpy(&low, code + at, sizeof(low));
		memcpy(&high, code + at + sizeof(low), sizeof(high));
		if ((low & ~UINT64_C(0xf000)) == CALL_ABSOLUTE && !(high & 0x1ffff))
			return true;
	}
	return false;
}

/* -- what it takes ------------------------------------------------------------------ */

static uint32_t word(const char *at)
{
	uint32_t w;
	memcpy(&w, at, sizeof(w));
	return w;
}

/* .nv.info: a form byte, an attribute, and a size of what follows or the value itself. False: it is not said. */
static bool read_info(const struct image *im, uint32_t symbol, uint32_t attribute, uint32_t *value)
{
	const char *name;
	const uint8_t *data;
	uint64_t bytes;
	for (uint32_t i = 0; elf_section(im->elf, im->size, i, &name, &data, &bytes) > 0; i++) {
		const char *p = (const char *)data;
		if (strcmp(name, ".nv.info") || !data)
			continue;
		for (uint64_t at = 0; bytes - at >= 4;) {
			uint32_t n = (uint8_t)p[at] == INFO_WORD ? word(p + at) >> 16 : 0;
			if (n > bytes - at - 4)
				return false;
			if (n == 8 && (uint8_t)p[at + 1] == attribute && word(p + at + 4) == symbol) {
				*value = word(p + at + 8);
				return true;
			}
			at += 4 + (uint64_t)n;
		}
	}
	return false;
}

/* Callees of callees as if all were nested. */
static int add_up(const struct image *im, struct cubin_code *out)
{
	*out = (struct cubin_code){ .bytes = im->bytes };
	for (uint32_t i = 0; i < im->n; i++) {
		uint32_t regs, frame;
		if (!read_info(im, im->parts[i].symbol, INFO_REGS, &regs) || !read_info(im, im->parts[i].symbol, INFO_FRAME, &frame) ||
			frame > UINT32_MAX / MAX_PARTS)
			return -ENOTSUP;
		out->regs = regs > out->regs ? regs : out->regs;
		out->frame_bytes += frame;
	}
	return 0;
}

int cubin_code(const void *elf, size_t size, const char *name, uint64_t address, void *code, size_t room, struct cubin_code *out)
{
	struct image im = { .elf = elf, .size = size };
	int err = open_image(&im);
	if (!err)
		err = add_entry(&im, name);
	/* The parts first, then their code. */
	for (uint32_t i = 0; !err && i < im.n; i++)
		err = relocate_part(&im, i, address, NULL);
	if (!err)
		err = add_up(&im, out);
	if (err || !code)
		return err;
	if (room < im.bytes)
		return -ENOSPC;
	memset(code, 0, im.bytes);
	for (uint32_t i = 0; i < im.n; i++)
		memcpy((char *)code + im.parts[i].at, im.elf + im.parts[i].text.sh_offset, im.parts[i].text.sh_size);
	for (uint32_t i = 0; !err && i < im.n; i++)
		err = relocate_part(&im, i, address, code);
	return !err && calls_nothing(code, im.bytes) ? -ENOTSUP : err;
}

uint32_t cubin_kernel_regs(const void *elf, size_t size, const char *name)
{
	struct image im = { .elf = elf, .size = size };
	uint32_t regs = 0;
	Elf64_Sym s;
	if (open_image(&im))
		return 0;
	for (uint32_t i = 0; read_symbol(&im, i, &s); i++)
		if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_shndx &&
			!strcmp(elf_string(im.elf, im.size, &im.strtab, s.st_name), name))
			return read_info(&im, i, INFO_REGS, &regs) ? regs : 0;
	return 0;
}

/* -- one kernel, to be compared -- */

enum { MAX_SECTIONS = 1 << 16, ENTRY = 0x10 /* of a symbol: a kernel's */ };

/* A section that belongs to what a kernel does; with the kernel's own name left out, which may differ. Variables are named where code refers to
 * them. */
struct piece {
	const char *prefix, *rest;
	Elf64_Shdr head;
	bool relocations;
	bool common; /* constants of the whole module */
};

static bool is_bank(const struct piece *p)
{
	return !strncmp(p->prefix, ".nv.constant", sizeof(".nv.constant") - 1);
}

static bool is_kernel_text(const struct image *im, uint64_t section)
{
	Elf64_Sym s;
	for (uint32_t i = 0; read_symbol(im, i, &s); i++)
		if (s.st_shndx == section && ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_other & ENTRY)
			return true;
	return false;
}

/* ".text.NAME" -> prefix, with *rest behind the kernel's name, or the whole name where it is none of the kernel's. */
static void split_name(const char *section, const char *kernel, struct piece *p)
{
	size_t n = strlen(section), k = strlen(kernel);
	bool own = n > k && section[n - k - 1] == '.' && !strcmp(section + n - k, kernel);
	p->prefix = section;
	p->rest = own ? section + n - k : section + n;
}

static bool belongs(const struct image *im, const struct piece *p, uint64_t index)
{
	static const char text[] = ".text.", constant[] = ".nv.constant", shared[] = ".nv.shared.";
	bool own = *p->rest;
	if (!strncmp(p->prefix, text, sizeof(text) - 1))
		return own || !is_kernel_text(im, index);
	if (!strncmp(p->prefix, constant, sizeof(constant) - 1)) /* .nv.constant3, .nv.constant0.KERNEL */
		return own || !strchr(p->prefix + sizeof(constant) - 1, '.');
	return own && !strncmp(p->prefix, shared, sizeof(shared) - 1);
}

static int by_name(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;
	size_t n = (size_t)(x->rest - x->prefix), m = (size_t)(y->rest - y->prefix);
	int c = memcmp(x->prefix, y->prefix, n < m ? n : m);
	return c ? c : n < m ? -1 : n > m;
}

/* Where the code refers to, by name: a symbol's number is its module's. */
static void add_relocations(const struct image *im, const Elf64_Shdr *s, const char *kernel, struct buf *out)
{
	size_t each = s->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
	for (uint64_t at = 0; s->sh_size - at >= each; at += each) {
		Elf64_Rela r = { 0 };
		Elf64_Sym sym = { 0 };
		memcpy(&r, im->elf + s->sh_offset + at, each);
		const char *name = read_symbol(im, ELF64_R_SYM(r.r_info), &sym) ? elf_string(im->elf, im->size, &im->strtab, sym.st_name) : "";
		uint64_t words[] = { r.r_offset, ELF64_R_TYPE(r.r_info), (uint64_t)r.r_addend, sym.st_value };
		buf_add(out, words, sizeof(words));
		if (strcmp(name, kernel))
			buf_add(out, name, strlen(name) + 1);
	}
}

static int add_piece(const struct image *im, const struct piece *p, const char *kernel, struct buf *out)
{
	const Elf64_Shdr *s = &p->head;
	buf_add(out, p->prefix, (size_t)(p->rest - p->prefix));
	buf_add(out, &s->sh_size, sizeof(s->sh_size));
	if (s->sh_type == SHT_NOBITS)
		return 0;
	if (!elf_within(im->size, s->sh_offset, s->sh_size))
		return -EINVAL;
	if (p->relocations)
		add_relocations(im, s, kernel, out);
	else
		buf_add(out, im->elf + s->sh_offset, s->sh_size);
	return 0;
}

/* The code, or bank of constants, whose relocations these are. */
static const struct piece *relocated(const struct piece *list, const uint64_t *index, size_t n, const Elf64_Shdr *s)
{
	if (s->sh_type != SHT_RELA && s->sh_type != SHT_REL)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (index[i] == s->sh_info && (!strncmp(list[i].prefix, ".text.", 6) || is_bank(&list[i])))
			return &list[i];
	return NULL;
}

/* Sections of the kernel and of what it may use, by name. */
static size_t collect(const struct image *im, const char *kernel, struct piece *list, uint64_t *index, uint64_t sections)
{
	size_t n = 0;
	struct piece p = { 0 };
	for (uint64_t i = 0; i < sections && read_section(im, i, &p.head); i++) {
		split_name(section_name(im, &p.head), kernel, &p);
		if (!belongs(im, &p, i))
			continue;
		p.common = is_bank(&p) && !*p.rest;
		list[n] = p;
		index[n++] = i;
	}
	size_t code = n;
	p.relocations = true;
	for (uint64_t i = 0; i < sections && n < sections && read_section(im, i, &p.head); i++) {
		const struct piece *of = relocated(list, index, code, &p.head);
		if (!of)
			continue;
		p.common = of->common;
		split_name(section_name(im, &p.head), kernel, &p);
		list[n++] = p;
	}
	qsort(list, n, sizeof(*list), by_name);
	return n;
}

/* Its own section of this kind. */
static const struct piece *own_piece(const struct piece *list, size_t n, const char *prefix)
{
	for (size_t i = 0; i < n; i++)
		if (*list[i].rest && (size_t)(list[i].rest - list[i].prefix) == strlen(prefix) && !strncmp(list[i].prefix, prefix, strlen(prefix)))
			return &list[i];
	return NULL;
}

void cubin_kernel_free(struct cubin_kernel *k)
{
	buf_free(&k->code);
	buf_free(&k->banks);
}

/* Code that is there without constants of its module uses none. */
bool cubin_kernel_same(const struct cubin_kernel *a, const struct cubin_kernel *b)
{
	bool banks = !a->banks.len || !b->banks.len ||
		     (a->banks.len == b->banks.len && !memcmp(a->banks.data, b->banks.data, a->banks.len));
	return banks && a->code.len == b->code.len && !memcmp(a->code.data, b->code.data, a->code.len);
}

int cubin_kernel(const void *elf, size_t size, const char *name, struct cubin_kernel *out)
{
	struct image im = { .elf = elf, .size = size };
	int err = open_image(&im);
	uint64_t sections = err ? 0 : elf_section_count(elf, size, &im.head);
	if (err || !sections || sections > MAX_SECTIONS)
		return err ? err : -EINVAL;
	struct piece *list = calloc(sections, sizeof(*list));
	uint64_t *index = calloc(sections, sizeof(*index));
	size_t n = list && index ? collect(&im, name, list, index, sections) : 0;
	const struct piece *shared = own_piece(list, n, ".nv.shared.");
	*out = (struct cubin_kernel){ .sm = cubin_sm(elf, size), .regs = cubin_kernel_regs(elf, size, name) };
	out->shared_bytes = shared ? shared->head.sh_size : 0;
	err = !list || !index ? -ENOMEM : own_piece(list, n, ".text.") ? 0 : -ENOENT;
	buf_add(&out->code, &out->sm, sizeof(out->sm));
	buf_add(&out->code, &out->regs, sizeof(out->regs));
	for (size_t i = 0; i < n && !err; i++)
		err = add_piece(&im, &list[i], name, list[i].common ? &out->banks : &out->code);
	if (!err && (out->code.failed || out->banks.failed))
		err = -ENOMEM;
	if (err)
		cubin_kernel_free(out);
	free(list);
	free(index);
	return err;
}
