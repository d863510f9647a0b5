/* driver_cubin.c - the images that the linker makes: ELF as the hardware's, with PTX in place of machine code.
 *
 * .nv_debug_ptx_txt holds the text, from which modules are loaded. Each kernel, and each function that other modules may call, has, as on
 * hardware, a section .text.NAME, a symbol, and in .nv.info its registers and local memory. A function's section is a struct sg_code, which a
 * kernel can call wherever it has been copied to; a kernel's is its body as far as it says what to do: without blanks and comments.
 */
#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/driver.h"

#define ELF_MACHINE_CUDA 190
#define ELF_ABI_VERSION 8 /* SM in bits 8..15 of e_flags, as CUDA 13 writes it */

enum { MAX_FUNCS = 8, MAX_KERNELS = 64, MAX_SECTIONS = 6 + MAX_FUNCS + 2 * MAX_KERNELS, INFO_REGS = 0x2f04, INFO_FRAME = 0x1104, ENTRY = 0x10 };

struct image {
	Elf64_Shdr sections[MAX_SECTIONS];
	uint32_t n;
	struct buf out, names;
};

struct functions {
	const struct sg_module *code;
	const char *names[MAX_FUNCS];
	uint32_t n;
	struct sg_kernel *kernels[MAX_KERNELS];
	uint32_t n_kernels; /* 0: there are more */
};

/* What a function or a kernel has in the tables. */
struct tables {
	struct buf strings, symbols, info;
	uint32_t n;
};

static void align(struct buf *b, size_t to)
{
	while (!b->failed && b->len % to)
		buf_add(b, "", 1);
}

static void add(struct image *im, const char *prefix, const char *name, Elf64_Shdr s, const void *data, size_t bytes)
{
	align(&im->out, 128);
	s.sh_name = (Elf64_Word)im->names.len;
	s.sh_offset = im->out.len;
	s.sh_size = bytes;
	buf_puts(&im->names, prefix);
	buf_add(&im->names, name, strlen(name) + 1);
	buf_add(&im->out, data ? data : "", bytes);
	im->sections[im->n++] = s;
}

static void note_function(const char *name, void *arg)
{
	struct functions *f = arg;
	if (f->n < MAX_FUNCS && strlen(name) < sizeof(((struct sg_code *)0)->name))
		f->names[f->n++] = name;
}

static void note_kernels(struct functions *f)
{
	struct sg_kernel *k;
	while (f->n_kernels < MAX_KERNELS && (k = sg_module_kernel_at(f->code, f->n_kernels)))
		f->kernels[f->n_kernels++] = k;
	if (f->n_kernels == MAX_KERNELS)
		f->n_kernels = 0;
}

static void add_text(struct image *im, const char *name, const char *ptx, size_t bytes)
{
	struct sg_code head = { .magic = SG_CODE_MAGIC, .bytes = (uint32_t)bytes };
	struct buf text = { 0 };
	strcpy(head.name, name);
	buf_add(&text, (const char *)&head, sizeof(head));
	buf_add(&text, ptx, bytes);
	if (text.failed)
		im->out.failed = true;
	else
		add(im, ".text.", name, (Elf64_Shdr){ .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR, .sh_addralign = 128 },
			text.data, text.len);
	buf_free(&text);
}

static void add_info(struct buf *info, uint32_t attribute, uint32_t symbol, uint32_t value)
{
	const uint32_t words[] = { attribute | 8u << 16, symbol, value };
	buf_add(info, (const char *)words, sizeof(words));
}

static void add_symbol(struct image *im, struct tables *t, const char *name, unsigned char other, size_t bytes)
{
	Elf64_Sym sym = { .st_name = (Elf64_Word)t->strings.len,
		.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
		.st_other = other,
		.st_shndx = (Elf64_Section)im->n,
		.st_size = bytes };
	buf_add(&t->symbols, (const char *)&sym, sizeof(sym));
	buf_add(&t->strings, name, strlen(name) + 1);
	t->n++;
}

/* A blank or a comment counts as one blank between words, and as nothing elsewhere. */
static void add_body(struct buf *out, const char *p, size_t n)
{
	const char *end = p + n;
	bool apart = false;
	while (p < end) {
		const char *past = end - p > 1 && p[0] == '/' && p[1] == '/'   ? memchr(p, '\n', (size_t)(end - p))
				   : end - p > 1 && p[0] == '/' && p[1] == '*' ? memmem(p + 2, (size_t)(end - p) - 2, "*/", 2)
									       : NULL;
		if (past || isspace((unsigned char)*p)) {
			apart = true;
			p = past ? past + (*past == '*' ? 2 : 1) : p + 1;
			continue;
		}
		if (apart && out->len && isalnum((unsigned char)*p) && isalnum((unsigned char)out->data[out->len - 1]))
			buf_puts(out, " ");
		apart = false;
		buf_add(out, p++, 1);
	}
}

static void add_kernel(struct image *im, struct tables *t, struct sg_kernel *k)
{
	struct sg_kernel_info about;
	struct buf body = { 0 };
	const char *text;
	size_t bytes;
	sg_kernel_get_info(k, &about);
	sg_kernel_body(k, &text, &bytes);
	add_body(&body, text, bytes);
	add_symbol(im, t, about.name, ENTRY, body.len);
	add_info(&t->info, INFO_REGS, t->n, about.n_regs);
	add_info(&t->info, INFO_FRAME, t->n, about.local_bytes);
	im->out.failed |= body.failed;
	add(im, ".text.", about.name, (Elf64_Shdr){ .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_EXECINSTR, .sh_addralign = 128 },
		body.data, body.len);
	buf_free(&body);
}

static void add_shared(struct image *im, struct sg_kernel *k)
{
	struct sg_kernel_info about;
	sg_kernel_get_info(k, &about);
	if (!about.static_shared_bytes)
		return;
	add(im, ".nv.shared.", about.name, (Elf64_Shdr){ .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_WRITE, .sh_addralign = 16 }, NULL, 0);
	im->sections[im->n - 1].sh_size = about.static_shared_bytes;
}

/* Texts first: sections 2 and on, and symbols 1 and on, in one order. */
static void add_functions(struct image *im, const struct functions *f, const char *ptx, size_t bytes)
{
	struct tables t = { .n = 0 };
	const Elf64_Sym none = { 0 };
	buf_add(&t.strings, "", 1);
	buf_add(&t.symbols, (const char *)&none, sizeof(none));
	for (uint32_t i = 0; i < f->n; i++) {
		uint32_t regs = 0, local = 0;
		sg_module_function(f->code, f->names[i], &regs, &local);
		add_symbol(im, &t, f->names[i], 0, sizeof(struct sg_code) + bytes);
		add_info(&t.info, INFO_REGS, t.n, regs);
		add_info(&t.info, INFO_FRAME, t.n, local);
		add_text(im, f->names[i], ptx, bytes);
	}
	for (uint32_t i = 0; i < f->n_kernels; i++)
		add_kernel(im, &t, f->kernels[i]);
	for (uint32_t i = 0; i < f->n_kernels; i++)
		add_shared(im, f->kernels[i]);
	uint32_t strtab = im->n;
	add(im, "", ".strtab", (Elf64_Shdr){ .sh_type = SHT_STRTAB }, t.strings.data, t.strings.len);
	add(im, "", ".symtab",
		(Elf64_Shdr){ .sh_type = SHT_SYMTAB, .sh_link = strtab, .sh_info = 1, .sh_entsize = sizeof(none), .sh_addralign = 8 },
		t.symbols.data, t.symbols.len);
	add(im, "", ".nv.info", (Elf64_Shdr){ .sh_type = SHT_LOPROC, .sh_link = strtab + 1, .sh_addralign = 4 }, t.info.data, t.info.len);
	im->out.failed |= t.strings.failed || t.symbols.failed || t.info.failed;
	buf_free(&t.strings);
	buf_free(&t.symbols);
	buf_free(&t.info);
}

/* Lines end with NUL there. */
static void add_ptx(struct image *im, const char *ptx, size_t bytes)
{
	size_t at;
	add(im, "", ".nv_debug_ptx_txt", (Elf64_Shdr){ .sh_type = SHT_PROGBITS }, ptx, bytes);
	at = im->sections[im->n - 1].sh_offset;
	for (size_t i = 0; i < bytes && !im->out.failed; i++)
		if (ptx[i] == '\n')
			im->out.data[at + i] = 0;
}

static void finish(struct image *im)
{
	Elf64_Ehdr head = { .e_type = ET_EXEC,
		.e_machine = ELF_MACHINE_CUDA,
		.e_version = EV_CURRENT,
		.e_flags = drv.config.sm << 8,
		.e_ehsize = sizeof(head),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shstrndx = 1 };
	memcpy(head.e_ident, ELFMAG, SELFMAG);
	head.e_ident[EI_CLASS] = ELFCLASS64;
	head.e_ident[EI_DATA] = ELFDATA2LSB;
	head.e_ident[EI_VERSION] = EV_CURRENT;
	head.e_ident[EI_ABIVERSION] = ELF_ABI_VERSION;
	/* The names' own section is number 1, and they are complete only now. */
	Elf64_Shdr names = { .sh_name = (Elf64_Word)im->names.len, .sh_type = SHT_STRTAB };
	buf_add(&im->names, ".shstrtab", sizeof(".shstrtab"));
	align(&im->out, 8);
	names.sh_offset = im->out.len;
	names.sh_size = im->names.len;
	im->sections[1] = names;
	buf_add(&im->out, im->names.data, im->names.len);
	align(&im->out, 8);
	head.e_shoff = im->out.len;
	head.e_shnum = (Elf64_Half)im->n;
	buf_add(&im->out, (const char *)im->sections, im->n * sizeof(*im->sections));
	if (!im->out.failed)
		memcpy(im->out.data, &head, sizeof(head));
}

void *drv_make_cubin(const struct sg_module *code, const char *ptx, size_t bytes, size_t *size)
{
	static const char room[sizeof(Elf64_Ehdr)];
	struct image im = { .n = 2 };
	struct functions f = { .code = code };
	if (bytes <= SG_CODE_MAX) {
		sg_module_functions(code, note_function, &f);
		note_kernels(&f);
	}
	buf_add(&im.out, room, sizeof(room));
	buf_add(&im.names, "", 1);
	if (f.n || f.n_kernels)
		add_functions(&im, &f, ptx, bytes);
	add_ptx(&im, ptx, bytes);
	finish(&im);
	buf_free(&im.names);
	if (im.out.failed || im.names.failed) {
		buf_free(&im.out);
		return NULL;
	}
	*size = im.out.len;
	return im.out.data;
}
