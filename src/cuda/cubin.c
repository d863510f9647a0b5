/* cubin.c - the little of ELF that a CUDA image needs, with every offset checked. */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cubin_elf.h"
#include "cuda/fatbin.h"

#ifndef EM_CUDA
#define EM_CUDA 190
#endif
enum { STO_CUDA_ENTRY = 0x10, ABI_OF_CUDA_13 = 8, MAX_NAME = 65536, MAX_NAMES_BYTES = 64 << 20 };

/* Copies, since an image in a file or a fatbin need not be aligned. */
bool elf_read_header(const void *elf, size_t size, Elf64_Ehdr *h)
{
	if (size < sizeof(*h))
		return false;
	memcpy(h, elf, sizeof(*h));
	return !memcmp(h->e_ident, ELFMAG, SELFMAG) && h->e_ident[EI_CLASS] == ELFCLASS64 &&
	       h->e_ident[EI_DATA] == ELFDATA2LSB;
}

bool elf_within(uint64_t size, uint64_t at, uint64_t n)
{
	return at <= size && n <= size - at;
}

bool elf_read_section(
	const void *elf, size_t size, const Elf64_Ehdr *h, uint64_t index, Elf64_Shdr *s)
{
	uint64_t at;
	if (h->e_shentsize < sizeof(*s) || __builtin_mul_overflow(index, h->e_shentsize, &at) ||
		__builtin_add_overflow(at, h->e_shoff, &at) || !elf_within(size, at, sizeof(*s)))
		return false;
	memcpy(s, (const char *)elf + at, sizeof(*s));
	return true;
}

uint64_t elf_section_count(const void *elf, size_t size, const Elf64_Ehdr *h)
{
	Elf64_Shdr zero;
	if (h->e_shnum || !h->e_shoff)
		return h->e_shnum;
	return elf_read_section(elf, size, h, 0, &zero) ? zero.sh_size : 0;
}

uint64_t elf_name_section(const void *elf, size_t size, const Elf64_Ehdr *h)
{
	Elf64_Shdr zero;
	if (h->e_shstrndx != SHN_XINDEX)
		return h->e_shstrndx;
	return elf_read_section(elf, size, h, 0, &zero) ? zero.sh_link : 0;
}

const char *elf_string(const void *elf, size_t size, const Elf64_Shdr *table, uint64_t at)
{
	if (table->sh_type == SHT_NOBITS || !elf_within(size, table->sh_offset, table->sh_size) ||
		at >= table->sh_size)
		return "";
	const char *s = (const char *)elf + table->sh_offset + at;
	uint64_t room = table->sh_size - at;
	return memchr(s, 0, room < MAX_NAME ? room : MAX_NAME) ? s : "";
}

uint64_t elf_extent(const void *elf, size_t size)
{
	Elf64_Ehdr h;
	Elf64_Shdr s;
	if (!elf_read_header(elf, size, &h))
		return 0;
	uint64_t n = elf_section_count(elf, size, &h), end = sizeof(h), e;
	if (n > size / sizeof(s) + 1)
		return 0;
	if (__builtin_add_overflow(h.e_shoff, n * h.e_shentsize, &e))
		return 0;
	end = e > end ? e : end;
	if (__builtin_add_overflow(h.e_phoff, (uint64_t)h.e_phnum * h.e_phentsize, &e))
		return 0;
	end = e > end ? e : end;
	for (uint64_t i = 0; i < n; i++) {
		if (!elf_read_section(elf, size, &h, i, &s))
			return 0;
		if (s.sh_type == SHT_NOBITS || s.sh_type == SHT_NULL)
			continue;
		if (__builtin_add_overflow(s.sh_offset, s.sh_size, &e))
			return 0;
		end = e > end ? e : end;
	}
	return end;
}

bool elf_is_cubin(const void *elf, size_t size)
{
	Elf64_Ehdr h;
	return elf_read_header(elf, size, &h) && h.e_machine == EM_CUDA;
}

int elf_section(const void *elf, size_t size, uint32_t index, const char **name,
	const uint8_t **data, uint64_t *bytes)
{
	Elf64_Ehdr h;
	Elf64_Shdr s, names;
	if (!elf_read_header(elf, size, &h))
		return -EINVAL;
	if (index >= elf_section_count(elf, size, &h))
		return 0;
	if (!elf_read_section(elf, size, &h, index, &s))
		return -EINVAL;
	*name = elf_read_section(elf, size, &h, elf_name_section(elf, size, &h), &names)
			? elf_string(elf, size, &names, s.sh_name)
			: "";
	*data = NULL;
	*bytes = s.sh_type == SHT_NOBITS ? 0 : s.sh_size;
	if (s.sh_type != SHT_NOBITS && !(s.sh_flags & SHF_COMPRESSED) &&
		elf_within(size, s.sh_offset, s.sh_size))
		*data = (const uint8_t *)elf + s.sh_offset;
	return 1;
}

uint32_t cubin_sm(const void *elf, size_t size)
{
	Elf64_Ehdr h;
	if (!elf_read_header(elf, size, &h) || h.e_machine != EM_CUDA)
		return 0;
	/* e_flags: SM in bits 8..15 since ABI 8 (CUDA 13), in bits 0..7 before. */
	return h.e_ident[EI_ABIVERSION] >= ABI_OF_CUDA_13 ? h.e_flags >> 8 & 0xff
							  : h.e_flags & 0xff;
}

struct names {
	struct arena *a;
	const char **list;
	size_t cap, bytes;
	uint32_t n;
};

static int add_name(struct names *names, const char *name)
{
	/* Names of a hostile file may overlap: what we copy has a limit of its own. */
	names->bytes += strlen(name) + sizeof(name);
	if (names->bytes > MAX_NAMES_BYTES)
		return -EINVAL;
	const char **list = arena_grow(names->a, names->list, names->n, &names->cap, sizeof(*list));
	if (!list)
		return -ENOMEM;
	names->list = list;
	const char *copy = arena_strdup(names->a, name);
	if (!copy)
		return -ENOMEM;
	list[names->n++] = copy;
	return 0;
}

static int names_from_symbols(const void *elf, size_t size, const Elf64_Ehdr *h,
	const Elf64_Shdr *symtab, struct names *names)
{
	Elf64_Shdr strtab;
	Elf64_Sym sym;
	if (!elf_within(size, symtab->sh_offset, symtab->sh_size) ||
		!elf_read_section(elf, size, h, symtab->sh_link, &strtab))
		return -EINVAL;
	for (uint64_t at = 0; symtab->sh_size - at >= sizeof(sym); at += sizeof(sym)) {
		memcpy(&sym, (const char *)elf + symtab->sh_offset + at, sizeof(sym));
		if (ELF64_ST_TYPE(sym.st_info) != STT_FUNC || !(sym.st_other & STO_CUDA_ENTRY))
			continue;
		const char *name = elf_string(elf, size, &strtab, sym.st_name);
		int err = *name ? add_name(names, name) : 0;
		if (err)
			return err;
	}
	return 0;
}

/* Stripped of symbols: a kernel is a .text.NAME with a constant bank 0 for its parameters. */
static int names_from_sections(const void *elf, size_t size, struct names *names)
{
	static const char bank[] = ".nv.constant0.";
	const char *name;
	const uint8_t *data;
	uint64_t bytes;
	for (uint32_t i = 0; elf_section(elf, size, i, &name, &data, &bytes) > 0; i++) {
		if (strncmp(name, bank, sizeof(bank) - 1) || !name[sizeof(bank) - 1])
			continue;
		int err = add_name(names, name + sizeof(bank) - 1);
		if (err)
			return err;
	}
	return 0;
}

void cubin_banks(const void *elf, size_t size, void (*fn)(const char *kernel, uint64_t bytes, void *arg), void *arg)
{
	static const char bank[] = ".nv.constant0.";
	const char *name;
	const uint8_t *data;
	uint64_t bytes;
	for (uint32_t i = 0; elf_section(elf, size, i, &name, &data, &bytes) > 0; i++) {
		if (!strncmp(name, bank, sizeof(bank) - 1))
			fn(name + sizeof(bank) - 1, bytes, arg);
	}
}

int cubin_kernels(struct arena *a, const void *elf, size_t size, const char ***names, uint32_t *n,
	struct diag *d)
{
	Elf64_Ehdr h;
	Elf64_Shdr s;
	struct names found = { .a = a };
	bool symbols = false;
	int err = 0;
	if (!elf_read_header(elf, size, &h) || h.e_machine != EM_CUDA)
		return diag_set(d, EINVAL, "not a cubin");
	uint64_t count = elf_section_count(elf, size, &h);
	for (uint64_t i = 0; i < count && !err; i++) {
		if (!elf_read_section(elf, size, &h, i, &s))
			return diag_set(d, EINVAL, "the cubin's section table is damaged");
		if (s.sh_type != SHT_SYMTAB)
			continue;
		symbols = true;
		err = names_from_symbols(elf, size, &h, &s, &found);
	}
	if (!err && !symbols)
		err = names_from_sections(elf, size, &found);
	if (err)
		return diag_set(d, -err,
			err == -ENOMEM ? "out of memory" : "the cubin's symbol table is damaged");
	*names = found.list;
	*n = found.n;
	return 0;
}

/* The section's contents: 1, 0 when there is none, -EINVAL. */
static int find_ptx(const void *elf, size_t size, const uint8_t **data, uint64_t *bytes)
{
	const char *name;
	int got;
	if (!elf_is_cubin(elf, size))
		return -EINVAL;
	for (uint32_t i = 0; (got = elf_section(elf, size, i, &name, data, bytes)) > 0; i++)
		if (!strcmp(name, ".nv_debug_ptx_txt"))
			return *data && *bytes ? 1 : -EINVAL;
	return got;
}

bool cubin_has_ptx(const void *elf, size_t size)
{
	const uint8_t *data;
	uint64_t bytes;
	return find_ptx(elf, size, &data, &bytes) > 0;
}

int cubin_ptx(const void *elf, size_t size, char **text, size_t *text_bytes, struct diag *d)
{
	const uint8_t *data;
	uint64_t bytes;
	int got = find_ptx(elf, size, &data, &bytes);
	if (got < 0)
		return diag_set(d, EINVAL, "not a cubin, or its section table is damaged");
	if (!got)
		return diag_set(d, ENOENT, "no PTX in the cubin");
	char *copy = malloc(bytes + 1);
	if (!copy)
		return diag_set(d, ENOMEM, "out of memory");
	for (uint64_t k = 0; k < bytes; k++)
		copy[k] = data[k] ? (char)data[k] : '\n';
	copy[bytes] = 0;
	if (!fatbin_is_ptx(copy, bytes)) {
		free(copy);
		return diag_set(d, EINVAL, "the cubin's .nv_debug_ptx_txt section holds no PTX");
	}
	*text = copy;
	*text_bytes = bytes;
	return 0;
}
