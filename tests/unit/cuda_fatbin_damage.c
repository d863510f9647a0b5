/* Damaged fatbins and cubins: every truncation and many bit flips end in an error or in a sane
 * result, never in a crash (run under the sanitizers), and declared sizes cannot make us allocate
 * without bound. */
#include <errno.h>
#include <sys/resource.h>

#include "fatbin_build.h"
#include "tap.h"

static const char ptx[] =
	".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n\tret;\n}\n";
static const char *const kernels[] = { "k" };

/* Everything a reader can ask of the bytes. */
static int use(const void *data, size_t size)
{
	struct fatbin *f;
	struct fatbin_unit *u;
	const char **names;
	struct diag d = { 0 };
	uint32_t n;
	char *text;
	size_t bytes;
	char *copy = malloc(size ? size : 1); /* exact block: an overrun is seen */
	memcpy(copy, data, size);
	int err = fatbin_open(copy, size, &f, &d);
	if (err) {
		free(copy);
		return err == -EINVAL && d.text[0] ? err : -1000;
	}
	for (uint32_t i = 0; i < f->n_entries; i++) {
		struct diag d2 = { 0 };
		int got = fatbin_read(f, &f->entries[i], &text, &bytes, &d2);
		if (got) {
			err = d2.text[0] ? got : -1000;
			continue;
		}
		if (f->entries[i].kind == FATBIN_KIND_ELF)
			cubin_kernels(f->arena, text, bytes, &names, &n, NULL);
		free(text);
		if (!fatbin_section_names(f, &f->entries[i], &text, &bytes))
			free(text);
	}
	for (uint32_t cc = 0; cc < 100; cc += 80)
		if (!fatbin_units(f, cc, &u, &n))
			for (uint32_t i = 0; i < n; i++)
				if (!fatbin_unit_text(f, &u[i], &text, &bytes, NULL))
					free(text);
	fatbin_close(f);
	free(copy);
	return err;
}

static void sweep(const char *what, struct buf *b)
{
	int truncated = 0, flips = 0, silent = 0;
	for (size_t n = 0; n < b->len; n++)
		truncated += use(b->data, n) == -EINVAL;
	ok(truncated >= (int)b->len / 2, "%s: %d of %zu truncations are refused", what, truncated,
		b->len);
	for (size_t i = 0; i < b->len; i++) {
		for (int bit = 0; bit < 8; bit++) {
			b->data[i] ^= (char)(1 << bit);
			silent += use(b->data, b->len) == -1000;
			b->data[i] ^= (char)(1 << bit);
			flips++;
		}
	}
	is_int(silent, 0, "%s: %d bit flips, no failure without a message", what, flips);
}

static void bombs(void)
{
	char *zeros = calloc(1, 8 << 20);
	for (int i = 0; i < 2; i++) {
		struct build_entry e = { .kind = 1,
			.sm = 80,
			.flags = i ? 0x8011 : 0x2011,
			.data = zeros,
			.bytes = 8 << 20 };
		struct buf b = { 0 };
		struct fatbin *f;
		struct diag d = { 0 };
		char *text;
		size_t size;
		build_region(&b, &e, 1);
		uint64_t small = 4096, huge = (uint64_t)1 << 50, large = (uint64_t)1 << 29;
		memcpy(b.data + 16 + 0x38, &small, 8);
		fatbin_open(b.data, b.len, &f, &d);
		is_int(fatbin_read(f, f->entries, &text, &size, &d), -EINVAL,
			"more data than declared");
		fatbin_close(f);
		memcpy(b.data + 16 + 0x38, &huge, 8);
		fatbin_open(b.data, b.len, &f, &d);
		is_int(fatbin_read(f, f->entries, &text, &size, &d), -EOPNOTSUPP,
			"absurd declaration");
		fatbin_close(f);
		memcpy(b.data + 16 + 0x38, &large, 8);
		fatbin_open(b.data, b.len, &f, &d);
		is_int(fatbin_read(f, f->entries, &text, &size, &d), -EINVAL,
			"less data than declared");
		fatbin_close(f);
		buf_free(&b);
	}
	free(zeros);
}

int main(void)
{
	struct build_entry e[] = {
		{ .kind = 1,
			.sm = 80,
			.flags = 0x2011,
			.data = ptx,
			.bytes = sizeof(ptx),
			.options = "-maxrregcount=32",
			.name = "a.cu" },
		{ .kind = 1, .sm = 90, .flags = 0x8011, .data = ptx, .bytes = sizeof(ptx) },
	};
	struct buf b = { 0 }, cubin = { 0 }, host = { 0 };
	build_region(&b, e, 2);
	sweep("region", &b);
	build_cubin(&cubin, 80, kernels, 1, ptx);
	sweep("cubin", &cubin);
	struct build_section s[] = { { ".nv_fatbin", b.data, b.len, SHT_PROGBITS, 0, 0 } };
	build_elf(&host, EM_X86_64, 0, 0, s, 1);
	sweep("host ELF", &host);
	bombs();
	buf_free(&b);
	buf_free(&cubin);
	buf_free(&host);
	return tap_done();
}
