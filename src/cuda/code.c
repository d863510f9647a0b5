/* code.c - machine code out of a linked cubin, to be put where the driver did not.
 *
 * A function compiled in relocatable mode is a section .text.NAME; what ptxas calls from it by itself (divisions) or did not inline lies in
 * the same section, and is called by relative jumps with an absolute return address. Those addresses are the only relocations that a function
 * has which uses nothing but its arguments and pointers: two kinds, the low and the high half of an address as the immediate of an
 * instruction (seen from ptxas 12 and 13 for sm_70 to sm_90; drivers' compilers are the same).
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "cuda/cubin_elf.h"
#include "cuda/fatbin.h"

enum {
	R_LOW = 56,  /* the low 32 bits of an address, at bit 32 of the instruction */
	R_HIGH = 57, /* the high ones */
	INSN_BYTES = 16,
	IMMEDIATE = 4, /* byte of the instruction */
	INFO_WORD = 0x04, /* form of an attribute: a size and that many bytes */
	INFO_FRAME = 0x11,
	INFO_REGS = 0x2f,
};

struct function {
	const char *elf;
	size_t size;
	Elf64_Ehdr head;
	Elf64_Shdr text, symtab;
	uint64_t text_index;
	uint32_t symbol; /* in symtab */
};

static bool read_symbol(const struct function *f, uint64_t i, Elf64_Sym *s)
{
	if (i >= f->symtab.sh_size / sizeof(*s) || !elf_within(f->size, f->symtab.sh_offset, f->symtab.sh_size))
		return false;
	memcpy(s, f->elf + f->symtab.sh_offset + i * sizeof(*s), sizeof(*s));
	return true;
}

static const char *section_name(const struct function *f, const Elf64_Shdr *s)
{
	Elf64_Shdr names;
	return elf_read_section(f->elf, f->size, &f->head, elf_name_section(f->elf, f->size, &f->head), &names)
		       ? elf_string(f->elf, f->size, &names, s->sh_name)
		       : "";
}

/* Whether a section is PREFIX.NAME. */
static bool is_of(const char *section, const char *prefix, const char *name)
{
	size_t n = strlen(prefix);
	return !strncmp(section, prefix, n) && !strcmp(section + n, name);
}

static int find_symbol(struct function *f, const char *name)
{
	Elf64_Shdr strtab;
	Elf64_Sym s;
	if (!elf_read_section(f->elf, f->size, &f->head, f->symtab.sh_link, &strtab))
		return -EINVAL;
	for (uint32_t i = 0; read_symbol(f, i, &s); i++) {
		if (s.st_shndx != f->text_index || ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
			strcmp(elf_string(f->elf, f->size, &strtab, s.st_name), name))
			continue;
		f->symbol = i;
		return s.st_value ? -ENOTSUP : 0;
	}
	return -ENOENT;
}

static int find(struct function *f, const char *name)
{
	Elf64_Shdr s;
	bool text = false, symtab = false;
	if (!elf_is_cubin(f->elf, f->size) || !elf_read_header(f->elf, f->size, &f->head))
		return -EINVAL;
	uint64_t n = elf_section_count(f->elf, f->size, &f->head);
	for (uint64_t i = 0; i < n; i++) {
		if (!elf_read_section(f->elf, f->size, &f->head, i, &s))
			return -EINVAL;
		const char *at = section_name(f, &s);
		if (is_of(at, ".text.", name)) {
			f->text = s;
			f->text_index = i;
			text = true;
		} else if (s.sh_type == SHT_SYMTAB) {
			f->symtab = s;
			symtab = true;
		} else if (!strncmp(at, ".nv.constant", 12) && strlen(at) > 13 && is_of(at + 13, ".", name)) {
			return -ENOTSUP;
		}
	}
	if (!text)
		return -ENOENT;
	if (!symtab || f->text.sh_type != SHT_PROGBITS || !elf_within(f->size, f->text.sh_offset, f->text.sh_size))
		return -EINVAL;
	return find_symbol(f, name);
}

static uint32_t word(const char *at)
{
	uint32_t w;
	memcpy(&w, at, sizeof(w));
	return w;
}

/* .nv.info: a form byte, an attribute, and a size of what follows or the value itself. */
static int read_info(const struct function *f, struct cubin_code *out)
{
	const char *name;
	const uint8_t *data;
	uint64_t bytes;
	bool regs = false, frame = false;
	for (uint32_t i = 0; elf_section(f->elf, f->size, i, &name, &data, &bytes) > 0; i++) {
		if (strcmp(name, ".nv.info") || !data)
			continue;
		const char *p = (const char *)data;
		for (uint64_t at = 0; bytes - at >= 4;) {
			uint32_t form = (uint8_t)p[at], attribute = (uint8_t)p[at + 1], n = form == INFO_WORD ? word(p + at) >> 16 : 0;
			if (n > bytes - at - 4)
				return -EINVAL;
			if (n == 8 && word(p + at + 4) == f->symbol && attribute == INFO_REGS) {
				out->regs = word(p + at + 8);
				regs = true;
			} else if (n == 8 && word(p + at + 4) == f->symbol && attribute == INFO_FRAME) {
				out->frame_bytes = word(p + at + 8);
				frame = true;
			}
			at += 4 + (uint64_t)n;
		}
	}
	return regs && frame ? 0 : -ENOTSUP;
}

static int relocate(const struct function *f, const Elf64_Rela *r, uint64_t address, char *code)
{
	Elf64_Sym s;
	uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info);
	if (!read_symbol(f, ELF64_R_SYM(r->r_info), &s))
		return -EINVAL;
	if (s.st_shndx != f->text_index || (type != R_LOW && type != R_HIGH))
		return -ENOTSUP;
	if (r->r_offset % INSN_BYTES || !elf_within(f->text.sh_size, r->r_offset, INSN_BYTES))
		return -EINVAL;
	uint64_t value = address + s.st_value + (uint64_t)r->r_addend;
	uint32_t half = (uint32_t)(type == R_LOW ? value : value >> 32);
	if (code)
		memcpy(code + r->r_offset + IMMEDIATE, &half, sizeof(half));
	return 0;
}

static int relocate_all(const struct function *f, uint64_t address, char *code)
{
	Elf64_Shdr s;
	Elf64_Rela r;
	uint64_t n = elf_section_count(f->elf, f->size, &f->head);
	for (uint64_t i = 0; i < n; i++) {
		if (!elf_read_section(f->elf, f->size, &f->head, i, &s))
			return -EINVAL;
		if ((s.sh_type != SHT_RELA && s.sh_type != SHT_REL) || s.sh_info != f->text_index || !s.sh_size)
			continue;
		if (s.sh_type == SHT_REL)
			return -ENOTSUP;
		if (!elf_within(f->size, s.sh_offset, s.sh_size))
			return -EINVAL;
		for (uint64_t at = 0; s.sh_size - at >= sizeof(r); at += sizeof(r)) {
			memcpy(&r, f->elf + s.sh_offset + at, sizeof(r));
			int err = relocate(f, &r, address, code);
			if (err)
				return err;
		}
	}
	return 0;
}

int cubin_code(const void *elf, size_t size, const char *name, uint64_t address, void *code, size_t room, struct cubin_code *out)
{
	struct function f = { .elf = elf, .size = size };
	int err = find(&f, name);
	if (!err)
		err = read_info(&f, out);
	if (err)
		return err;
	out->bytes = f.text.sh_size;
	if (code && room < out->bytes)
		return -ENOSPC;
	if (code)
		memcpy(code, f.elf + f.text.sh_offset, out->bytes);
	return relocate_all(&f, address, code);
}
