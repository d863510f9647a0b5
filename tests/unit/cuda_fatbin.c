/* Reading fatbins: every packing, the fields of entries, files and images in memory. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fatbin_build.h"
#include "tap.h"

static const char ptx80[] =
	"\n\n//made here\n.version 7.4\n.target sm_80\n.address_size 64\n"
	".visible .entry k()\n{\n\tret;\n}\n.visible .entry k2()\n{\n\tret;\n}\n";
static const char ptx90a[] = ".version 8.7\n.target sm_90a, debug\n.address_size 64\n.visible "
			     ".entry k()\n{\n\tret;\n}\n";

static void packings(void)
{
	static const struct {
		uint64_t flags;
		enum fatbin_packing packing;
		const char *word;
	} rows[] = { { 0x11, FATBIN_RAW, "raw" }, { 0x2011, FATBIN_LZ4, "LZ4" },
		{ 0x8011, FATBIN_ZSTD, "zstd" } };
	for (size_t i = 0; i < 3; i++) {
		struct build_entry e = { .kind = 1,
			.sm = 80,
			.flags = rows[i].flags,
			.data = ptx80,
			.bytes = sizeof(ptx80),
			.options = " -maxrregcount=32 ",
			.name = "a.cu" };
		struct buf b = { 0 };
		struct fatbin *f = NULL;
		struct diag d = { 0 };
		char *text = NULL;
		size_t size = 0;
		build_region(&b, &e, 1);
		is_int(fatbin_open(b.data, b.len, &f, &d), 0, "%s: opens", rows[i].word);
		is_int(f->n_entries, 1, "%s: one entry", rows[i].word);
		is_int(f->entries[0].packing, rows[i].packing, "%s: packing", rows[i].word);
		is_str(f->entries[0].options, "-maxrregcount=32", "%s: options", rows[i].word);
		is_str(f->entries[0].name, "a.cu", "%s: name", rows[i].word);
		is_int(f->entries[0].sm, 80, "%s: SM", rows[i].word);
		is_int(f->entries[0].major, 9, "%s: version", rows[i].word);
		is_int(fatbin_read(f, &f->entries[0], &text, &size, &d), 0, "%s: reads",
			rows[i].word);
		is_int(size, sizeof(ptx80) - 1, "%s: trailing NULs are not counted", rows[i].word);
		is_str(text, ptx80, "%s: same text", rows[i].word);
		free(text);
		fatbin_close(f);
		buf_free(&b);
	}
}

static void several_regions(void)
{
	struct build_entry one = {
		.kind = 1, .sm = 80, .flags = 0x2011, .data = ptx80, .bytes = sizeof(ptx80)
	};
	struct build_entry two[] = {
		one,
		{ .kind = 1, .sm = 90, .flags = 0x100011, .data = ptx90a, .bytes = sizeof(ptx90a) }
	};
	struct buf b = { 0 };
	struct fatbin *f = NULL;
	struct diag d = { 0 };
	build_region(&b, &one, 1);
	for (int i = 0; i < 24; i++)
		buf_add(&b, "", 1);
	build_region(&b, two, 2);
	is_int(fatbin_open(b.data, b.len, &f, &d), 0, "two regions with padding between");
	is_int(f->n_regions, 2, "two regions");
	is_int(f->n_entries, 3, "three entries");
	is_int(f->entries[2].region, 1, "the last is of the second");
	is_int(f->entries[2].suffix, 'a', "its suffix");
	fatbin_close(f);

	struct build_section s[] = { { ".text", "xx", 2, SHT_PROGBITS, 0, 0 },
		{ ".nv_fatbin", b.data, b.len, SHT_PROGBITS, 0, 0 },
		{ "__nv_relfatbin", b.data, b.len, SHT_PROGBITS, 0, 0 } };
	struct buf elf = { 0 };
	build_elf(&elf, EM_X86_64, 0, 0, s, 3);
	is_int(fatbin_open(elf.data, elf.len, &f, &d), 0, "host ELF");
	is_int(f->input, FATBIN_INPUT_HOST, "is told apart");
	is_int(f->n_regions, 4, "regions of both sections");
	ok(!f->entries[0].relocatable && f->entries[3].relocatable, "relocatable ones are marked");
	fatbin_close(f);
	is_int(fatbin_open(elf.data, s[1].at + 100, &f, &d), -EINVAL, "cut off file");
	buf_free(&elf);
	buf_free(&b);
}

static void choice(void)
{
	static const struct build_entry list[] = {
		{ .kind = 1, .sm = 75, .flags = 0x11, .data = ptx80, .bytes = sizeof(ptx80) },
		{ .kind = 1, .sm = 90, .flags = 0x100011, .data = ptx90a, .bytes = sizeof(ptx90a) },
		{ .kind = 1, .sm = 90, .flags = 0x11, .data = ptx80, .bytes = sizeof(ptx80) },
		{ .kind = 1, .sm = 100, .flags = 0x200011, .data = ptx80, .bytes = sizeof(ptx80) },
		{ .kind = 1, .sm = 120, .flags = 0x10011, .data = ptx80, .bytes = sizeof(ptx80) },
		{ .kind = 8, .sm = 70, .flags = 0x11, .data = ptx80, .bytes = sizeof(ptx80) },
	};
	static const struct {
		uint32_t cc;
		int index;
	} want[] = { { 70, -1 }, { 75, 0 }, { 80, 0 }, { 89, 0 }, { 90, 1 }, { 100, 3 }, { 103, 3 },
		{ 110, 2 } };
	struct buf b = { 0 };
	struct fatbin *f = NULL;
	struct diag d = { 0 };
	const struct fatbin_entry *pick[2];
	build_region(&b, list, 6);
	is_int(fatbin_open(b.data, b.len, &f, &d), 0, "six targets");
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		uint32_t n = fatbin_choose_ptx(f, want[i].cc, pick, 2);
		is_int(n ? pick[0] - f->entries : -1, want[i].index, "choice for sm_%u",
			want[i].cc);
	}
	char *text;
	size_t size;
	is_int(fatbin_read(f, &f->entries[4], &text, &size, &d), -EOPNOTSUPP,
		"scrambled entry is not read");
	ok(strstr(d.text, "scrambled"), "and says so: %s", d.text);
	fatbin_close(f);
	buf_free(&b);
}

static void ptx_text(void)
{
	struct fatbin *f = NULL;
	struct fatbin_unit *u;
	struct diag d = { 0 };
	uint32_t n;
	is_int(fatbin_open(ptx90a, sizeof(ptx90a) - 1, &f, &d), 0, "PTX text");
	is_int(f->entries[0].sm, 90, "its SM");
	is_int(f->entries[0].suffix, 'a', "its suffix");
	is_int(f->entries[0].major * 10 + f->entries[0].minor, 87, "its version");
	is_int(fatbin_units(f, 90, &u, &n), 0, "units");
	is_str(u[0].source, "PTX text", "source");
	fatbin_close(f);
	is_int(fatbin_open("int main() {}", 13, &f, &d), -EINVAL, "C is no PTX");
	is_int(fatbin_open("", 0, &f, &d), -EINVAL, "nothing is no PTX");
	is_int(fatbin_open("/* never closed", 15, &f, &d), -EINVAL, "an open comment is no PTX");
}

static void cubins(void)
{
	static const char *const kernels[] = { "_Z1aPi", "b" };
	struct buf b = { 0 }, bare = { 0 };
	struct fatbin *f = NULL;
	struct fatbin_unit *u;
	struct diag d = { 0 };
	const char **names;
	uint32_t n;
	char *text;
	size_t size;
	build_cubin(&b, 90, kernels, 2, ptx80);
	build_cubin(&bare, 80, kernels, 2, NULL);
	is_int(cubin_sm(b.data, b.len), 90, "SM of a cubin");
	is_int(fatbin_open(b.data, b.len, &f, &d), 0, "cubin");
	is_int(cubin_kernels(f->arena, b.data, b.len, &names, &n, &d), 0, "kernels");
	is_int(n, 2, "two, without the device function");
	is_str(names[0], "_Z1aPi", "first");
	is_int(fatbin_units(f, 90, &u, &n), 0, "units");
	is_str(u[0].source, "cubin .nv_debug_ptx_txt", "source");
	is_int(fatbin_unit_text(f, &u[0], &text, &size, &d), 0, "text");
	is_str(text, ptx80, "newlines are back");
	free(text);
	fatbin_close(f);
	is_int(fatbin_open(bare.data, bare.len, &f, &d), 0, "cubin without PTX");
	fatbin_units(f, 80, &u, &n);
	ok(u[0].reason && strstr(u[0].reason, "no PTX in the cubin"), "reason: %s", u[0].reason);
	is_int(fatbin_unit_text(f, &u[0], &text, &size, &d), -ENOENT, "no text");
	fatbin_close(f);
	is_int(fatbin_open(bare.data, 200, &f, &d), -EINVAL, "cubin cut off");
	buf_free(&b);
	buf_free(&bare);
}

static void images(void)
{
	struct build_entry one = {
		.kind = 1, .sm = 80, .flags = 0x8011, .data = ptx80, .bytes = sizeof(ptx80)
	};
	struct buf b = { 0 }, rel = { 0 };
	struct fatbin *f = NULL;
	struct diag d = { 0 };
	build_region(&b, &one, 1);
	one.flags = 0x11;
	build_region(&rel, &one, 1);
	const void *aux[] = { rel.data, NULL };
	struct {
		uint32_t magic, version;
		const void *data, *aux;
	} wrapper = { FATBIN_WRAPPER_MAGIC, 1, b.data, NULL };
	is_int(fatbin_open_image(&wrapper, &f, &d), 0, "wrapper");
	is_int(f->n_entries, 1, "its region");
	fatbin_close(f);
	wrapper.version = 2;
	wrapper.aux = aux;
	is_int(fatbin_open_image(&wrapper, &f, &d), 0, "wrapper of separate compilation");
	is_int(f->n_regions, 2, "its regions");
	fatbin_close(f);
	is_int(fatbin_open(&wrapper, sizeof(wrapper), &f, &d), -EINVAL, "no wrapper in a file");
	is_int(fatbin_open_image(b.data, &f, &d), 0, "bare region");
	fatbin_close(f);
	is_int(fatbin_open_image(ptx80, &f, &d), 0, "PTX text in memory");
	fatbin_close(f);

	/* What the sizes promise beyond the mapping is an error of ours, not a fault. */
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *map =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(map + page, page);
	for (size_t keep = 1; keep + 8 < b.len; keep += 13) {
		memcpy(map + page - keep, b.data, keep);
		struct diag d2 = { 0 };
		int err = fatbin_open_image(map + page - keep, &f, &d2);
		if (err == 0) {
			char *text;
			size_t size;
			err = fatbin_read(f, &f->entries[0], &text, &size, &d2);
			fatbin_close(f);
		}
		if (err != -EINVAL)
			ok(false, "region of %zu bytes before unmapped memory: %d", keep, err);
	}
	memset(map, 'x', page);
	is_int(fatbin_open_image(map, &f, &d), -EINVAL, "text without an end");
	is_int(fatbin_open_image(map + page, &f, &d), -EINVAL, "unmapped image");
	is_int(fatbin_open_image(NULL, &f, &d), -EINVAL, "no image");
	wrapper.data = map + page;
	is_int(fatbin_open_image(&wrapper, &f, &d), -EINVAL, "wrapper to unmapped memory");
	munmap(map, page);
	buf_free(&b);
	buf_free(&rel);
}

/* As ptxas lays cubins out: names of sections, names of symbols, and a body that nobody needs to unpack. */
static void section_names(void)
{
	static const uint64_t flags[] = { 0x11, 0x2011, 0x8011 };
	static const struct {
		int extra; /* more kernels with long names, beyond what is unpacked first */
		size_t body;
	} rows[] = { { 0, 0 }, { 0, 3 << 20 }, { 900, 1 << 20 } };
	for (size_t r = 0; r < 9; r++) {
		struct buf elf = { 0 }, b = { 0 };
		struct fatbin *f;
		struct diag d = { 0 };
		char header[64] = "\x7f" "ELF", *names = NULL;
		size_t bytes = 0, body = rows[r / 3].body, n = 0;
		buf_add(&elf, header, sizeof(header));
		buf_add(&elf, "\0.shstrtab\0.strtab\0.text._Z1aPi", 32);
		for (int i = 0; i < rows[r / 3].extra; i++)
			buf_printf(&elf, "%c.text.kernel_with_a_long_name_%d", 0, i * 7919);
		size_t want = elf.len + 1 - 64;
		buf_add(&elf, "\0\0.shstrtab\0.strtab\0_Z1aPi\0.text._Z5notmePi", 44);
		for (size_t i = 0; i < body; i++)
			buf_add(&elf, (char[]){ (char)(i * i >> 7) }, 1);
		struct build_entry e = { .kind = 2, .sm = 90, .flags = flags[r % 3], .data = elf.data, .bytes = elf.len };
		build_region(&b, &e, 1);
		is_int(fatbin_open(b.data, b.len, &f, &d), 0, "cubin, packing %zu", r % 3);
		is_int(fatbin_section_names(f, &f->entries[0], &names, &bytes), 0, "its sections' names");
		is_int((int64_t)bytes, (int64_t)want, "all of them");
		for (const char *p = names; p && p < names + bytes; p += strlen(p) + 1)
			n += !strncmp(p, ".text.", 6);
		is_int((int64_t)n, 1 + rows[r / 3].extra, "kernels, none of the symbols");
		free(names);
		/* Symbols' names elsewhere: nothing is said. */
		memset(memmem(elf.data + 70, elf.len - 70, "\0.shstrtab", 11), 'x', 11);
		b.len = 0;
		e.data = elf.data;
		build_region(&b, &e, 1);
		fatbin_close(f);
		fatbin_open(b.data, b.len, &f, &d);
		is_int(fatbin_section_names(f, &f->entries[0], &names, &bytes), -ENOENT, "not where they are expected");
		fatbin_close(f);
		buf_free(&elf);
		buf_free(&b);
	}
}

int main(void)
{
	section_names();
	packings();
	several_regions();
	choice();
	ptx_text();
	cubins();
	images();
	return tap_done();
}
