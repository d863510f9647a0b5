/* fatbin_build.h - makes fatbins and cubins byte by byte, as the container page in cuda/fatbin.h
 * draws them. */
#ifndef EGPU_TEST_FATBIN_BUILD_H
#define EGPU_TEST_FATBIN_BUILD_H

#include <elf.h>
#include <lz4.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/buf.h"
#include "cuda/fatbin.h"

static inline void put16(struct buf *b, uint16_t v)
{
	buf_add(b, &v, 2);
}

static inline void put32(struct buf *b, uint32_t v)
{
	buf_add(b, &v, 4);
}

static inline void put64(struct buf *b, uint64_t v)
{
	buf_add(b, &v, 8);
}

static inline void pad8(struct buf *b)
{
	while (b->len % 8)
		buf_add(b, "", 1);
}

struct build_entry {
	uint16_t kind;
	uint32_t sm;
	uint64_t flags; /* packing bits choose the compression */
	const void *data;
	size_t bytes;
	const char *options; /* NULL: no record */
	const char *name;    /* NULL: none */
};

/* Compresses into a fresh block. */
static inline void *build_packed(const struct build_entry *e, size_t *bytes)
{
	if (e->flags & FATBIN_FLAG_LZ4) {
		int bound = LZ4_compressBound((int)e->bytes);
		char *to = malloc((size_t)bound);
		*bytes = (size_t)LZ4_compress_default(e->data, to, (int)e->bytes, bound);
		return to;
	}
	size_t bound = ZSTD_compressBound(e->bytes);
	void *to = malloc(bound);
	*bytes = ZSTD_compress(to, bound, e->data, e->bytes, 3);
	return to;
}

static inline void build_add_entry(struct buf *b, const struct build_entry *e)
{
	size_t stored = e->bytes, header = 0x40, options = 0, name = 0;
	void *packed = NULL;
	if (e->flags & (FATBIN_FLAG_LZ4 | FATBIN_FLAG_ZSTD))
		packed = build_packed(e, &stored);
	if (e->options) {
		options = header;
		header += 8 + (strlen(e->options) + 7) / 8 * 8;
	}
	if (e->name) {
		name = header;
		header += (strlen(e->name) + 7) / 8 * 8;
	}
	size_t start = b->len;
	put16(b, e->kind);
	put16(b, 0x0101);
	put32(b, (uint32_t)header);
	put64(b, (stored + 7) / 8 * 8);
	put32(b, packed ? (uint32_t)stored : 0);
	put32(b, (uint32_t)options);
	put16(b, 0);
	put16(b, e->kind == FATBIN_KIND_PTX ? 9 : 1);
	put32(b, e->sm);
	put32(b, (uint32_t)name);
	put32(b, e->name ? (uint32_t)strlen(e->name) : 0);
	put64(b, e->flags);
	put64(b, 0);
	put64(b, packed ? e->bytes : 0);
	if (e->options) {
		put32(b, (uint32_t)options + 8);
		put32(b, (uint32_t)strlen(e->options));
		buf_puts(b, e->options);
		while ((b->len - start) % 8)
			buf_add(b, "", 1);
	}
	if (e->name) {
		buf_puts(b, e->name);
		while ((b->len - start) % 8)
			buf_add(b, "", 1);
	}
	buf_add(b, packed ? packed : e->data, stored);
	for (size_t i = stored; i % 8; i++)
		buf_add(b, "", 1);
	free(packed);
}

static inline void build_region(struct buf *b, const struct build_entry *entries, size_t n)
{
	struct buf body = { 0 };
	for (size_t i = 0; i < n; i++)
		build_add_entry(&body, &entries[i]);
	put32(b, FATBIN_REGION_MAGIC);
	put16(b, 1);
	put16(b, 16);
	put64(b, body.len);
	buf_add(b, body.data, body.len);
	buf_free(&body);
}

struct build_section {
	const char *name;
	const void *data;
	size_t bytes;
	uint32_t type, link;
	size_t at; /* filled in */
};

/* A 64-bit ELF with these sections and a name table as the last one. */
static inline void build_elf(struct buf *b, uint16_t machine, uint8_t abi, uint32_t flags,
	struct build_section *s, size_t n)
{
	struct buf names = { 0 };
	Elf64_Ehdr h = { .e_machine = machine,
		.e_type = ET_EXEC,
		.e_version = 1,
		.e_flags = flags,
		.e_ehsize = sizeof(h),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = (uint16_t)(n + 2),
		.e_shstrndx = (uint16_t)(n + 1) };
	memcpy(h.e_ident, ELFMAG, SELFMAG);
	h.e_ident[EI_CLASS] = ELFCLASS64;
	h.e_ident[EI_DATA] = ELFDATA2LSB;
	h.e_ident[EI_VERSION] = 1;
	h.e_ident[EI_ABIVERSION] = abi;
	buf_add(b, &h, sizeof(h));
	for (size_t i = 0; i < n; i++) {
		s[i].at = b->len;
		buf_add(b, s[i].data, s[i].bytes);
		pad8(b);
	}
	buf_add(&names, "", 1);
	h.e_shoff = sizeof(h); /* placed after the names below */
	size_t *name_at = calloc(n + 1, sizeof(*name_at));
	for (size_t i = 0; i < n; i++) {
		name_at[i] = names.len;
		buf_add(&names, s[i].name, strlen(s[i].name) + 1);
	}
	size_t names_at = b->len;
	buf_add(b, names.data, names.len);
	pad8(b);
	h.e_shoff = b->len;
	memcpy(b->data, &h, sizeof(h));
	Elf64_Shdr zero = { 0 };
	buf_add(b, &zero, sizeof(zero));
	for (size_t i = 0; i < n; i++) {
		Elf64_Shdr sh = { .sh_name = (uint32_t)name_at[i],
			.sh_type = s[i].type,
			.sh_offset = s[i].at,
			.sh_size = s[i].bytes,
			.sh_link = s[i].link,
			.sh_addralign = 8 };
		buf_add(b, &sh, sizeof(sh));
	}
	Elf64_Shdr last = {
		.sh_name = 0, .sh_type = SHT_STRTAB, .sh_offset = names_at, .sh_size = names.len
	};
	buf_add(b, &last, sizeof(last));
	free(name_at);
	buf_free(&names);
}

/* A cubin of ABI 8 with kernels `names` (STO_CUDA_ENTRY), one device function, and PTX in
 * .nv_debug_ptx_txt unless it is NULL. */
static inline void build_cubin(
	struct buf *b, uint32_t sm, const char *const *names, size_t n, const char *ptx)
{
	struct buf strtab = { 0 }, symtab = { 0 };
	Elf64_Sym sym = { 0 };
	buf_add(&strtab, "", 1);
	buf_add(&symtab, &sym, sizeof(sym));
	for (size_t i = 0; i <= n; i++) {
		const char *name = i < n ? names[i] : "device_function";
		sym = (Elf64_Sym){ .st_name = (uint32_t)strtab.len,
			.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
			.st_other = i < n ? 0x10 : 0,
			.st_shndx = 1 };
		buf_add(&strtab, name, strlen(name) + 1);
		buf_add(&symtab, &sym, sizeof(sym));
	}
	struct build_section s[3] = {
		{ ".strtab", strtab.data, strtab.len, SHT_STRTAB, 0, 0 },
		{ ".symtab", symtab.data, symtab.len, SHT_SYMTAB, 1, 0 },
	};
	char *text = NULL;
	if (ptx) {
		size_t bytes = strlen(ptx) + 1;
		text = malloc(bytes);
		for (size_t i = 0; i < bytes; i++)
			text[i] = ptx[i] == '\n' ? 0 : ptx[i];
		s[2] = (struct build_section){ ".nv_debug_ptx_txt", text, bytes - 1, SHT_PROGBITS,
			0, 0 };
	}
	build_elf(b, 190, 8, sm << 8 | 0x6000004u, s, ptx ? 3 : 2);
	free(text);
	buf_free(&strtab);
	buf_free(&symtab);
}

#endif
