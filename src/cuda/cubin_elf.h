/* cubin_elf.h - what the files of this room read of ELF: every offset is checked, and nothing need be aligned. */
#ifndef EGPU_CUDA_CUBIN_ELF_H
#define EGPU_CUDA_CUBIN_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether [at, at + n) lies in `size` bytes. */
bool elf_within(uint64_t size, uint64_t at, uint64_t n);
/* 64-bit little-endian ELF alone. */
bool elf_read_header(const void *elf, size_t size, Elf64_Ehdr *h);
bool elf_read_section(const void *elf, size_t size, const Elf64_Ehdr *h, uint64_t index, Elf64_Shdr *s);
/* More than 65,279 are counted in section 0, as is the number of the section of names. */
uint64_t elf_section_count(const void *elf, size_t size, const Elf64_Ehdr *h);
uint64_t elf_name_section(const void *elf, size_t size, const Elf64_Ehdr *h);
/* A string of the string table section, "" when it is none. */
const char *elf_string(const void *elf, size_t size, const Elf64_Shdr *table, uint64_t at);

#endif
