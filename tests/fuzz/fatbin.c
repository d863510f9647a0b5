/* fatbin.c - fuzz target: any bytes as an image, as a file and as a cubin; nothing crashes, and
 * what opens can be asked for everything. Build: clang -fsanitize=fuzzer,address -D_GNU_SOURCE
 * -Isrc -Iinclude tests/fuzz/fatbin.c src/cuda/[a-z]*.c src/base/[a-z]*.c -llz4
 * -lzstd */
#include <stdlib.h>
#include <string.h>

#include "cuda/fatbin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The code of the first functions. */
static void take_code(const char *elf, size_t size)
{
	static char code[1 << 16];
	struct cubin_code c;
	const char *name;
	const uint8_t *data;
	uint64_t bytes;
	for (uint32_t i = 0; i < 8 && elf_section(elf, size, i, &name, &data, &bytes) > 0; i++)
		if (!strncmp(name, ".text.", 6) && !cubin_code(elf, size, name + 6, 4096, code, sizeof(code), &c) && c.bytes > sizeof(code))
			abort();
}

static void read_entry(struct fatbin *f, const struct fatbin_entry *e)
{
	const char **names;
	char *plain;
	uint32_t n;
	size_t bytes;
	if (e->plain_bytes <= 1 << 24 && !fatbin_section_names(f, e, &plain, &bytes))
		free(plain);
	if (e->plain_bytes > 1 << 24 || fatbin_read(f, e, &plain, &bytes, NULL))
		return;
	if (e->kind == FATBIN_KIND_ELF) {
		cubin_kernels(f->arena, plain, bytes, &names, &n, NULL);
		take_code(plain, bytes);
	}
	free(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fatbin *f;
	struct fatbin_unit *units;
	struct diag d = { 0 };
	uint32_t n;
	char *text;
	size_t bytes;
	if (fatbin_open(data, size, &f, &d)) {
		if (!d.text[0])
			abort();
		return 0;
	}
	for (uint32_t i = 0; i < f->n_entries; i++)
		read_entry(f, &f->entries[i]);
	if (!fatbin_units(f, 90, &units, &n))
		for (uint32_t i = 0; i < n; i++)
			if (!fatbin_unit_text(f, &units[i], &text, &bytes, NULL))
				free(text);
	fatbin_close(f);
	return 0;
}
