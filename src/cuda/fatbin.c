#include "cuda/fatbin.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <zstd.h>

enum {
	REGION_HEADER = 16,
	ENTRY_HEADER_MIN = 0x30,
	ENTRY_HEADER = 0x40,
	MAX_REGIONS = 65536,
	MAX_STRING = 65536
};

static uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p)
{
	return get32(p) | (uint64_t)get32(p + 4) << 32;
}

/* Whether [p, p+n) can be read, asked of the kernel one byte a page, so that an image with a wrong
 * size in its header is an error of ours and no fault. Where the call is not permitted we trust the
 * caller as the driver does. */
static bool readable(const uint8_t *p, uint64_t n)
{
	enum { BATCH = 256 };
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = 0;
	if (!n)
		return true;
	if ((uint64_t)(uintptr_t)p + n < (uint64_t)(uintptr_t)p)
		return false;
	while (at < n) {
		struct iovec remote[BATCH], local;
		char sink[BATCH];
		int k = 0;
		for (; k < BATCH && at < n; k++) {
			remote[k] = (struct iovec){ (void *)(uintptr_t)(p + at), 1 };
			at += page - ((uintptr_t)(p + at) & (page - 1));
		}
		local = (struct iovec){ sink, (size_t)k };
		ssize_t got = process_vm_readv(getpid(), &local, 1, remote, (unsigned long)k, 0);
		if (got < 0 && errno != EFAULT)
			return true;
		if (got != k)
			return false;
	}
	return true;
}

/* n bytes at offset `at` of base[0..size), or NULL. */
static const uint8_t *bytes_at(
	const struct fatbin *f, const uint8_t *base, uint64_t size, uint64_t at, uint64_t n)
{
	if (at > size || n > size - at)
		return NULL;
	if (f->foreign && !readable(base + at, n))
		return NULL;
	return base + at;
}

static struct fatbin_entry *add_entry(struct fatbin *f, size_t *cap)
{
	struct fatbin_entry *list =
		arena_grow(f->arena, f->entries, f->n_entries, cap, sizeof(*list));
	if (!list)
		return NULL;
	f->entries = list;
	return &list[f->n_entries++];
}

/* A string of `len` bytes at `at` from the entry's start, all within its header. */
static const char *entry_string(
	struct fatbin *f, const uint8_t *entry, uint32_t header, uint32_t at, uint32_t len)
{
	if (!at || !len || at > header || len > header - at || len > MAX_STRING)
		return "";
	while (len && (entry[at] == ' ' || entry[at] == '\t'))
		at++, len--;
	while (len && (entry[at + len - 1] == ' ' || entry[at + len - 1] == 0))
		len--;
	const char *s = arena_strndup(f->arena, (const char *)entry + at, len);
	return s ? s : "";
}

static const char *entry_options(struct fatbin *f, const uint8_t *entry, uint32_t header)
{
	uint32_t record = get32(entry + 0x14);
	if (!record || record > header || header - record < 8)
		return "";
	return entry_string(f, entry, header, get32(entry + record), get32(entry + record + 4));
}

static void entry_packing(
	struct fatbin_entry *e, uint64_t payload, uint32_t compressed, uint64_t plain)
{
	e->packing = e->flags & FATBIN_FLAG_ZSTD  ? FATBIN_ZSTD
		     : e->flags & FATBIN_FLAG_LZ4 ? FATBIN_LZ4
						  : FATBIN_RAW;
	if (e->packing == FATBIN_RAW) {
		e->stored_bytes = payload;
		e->plain_bytes = payload;
	} else {
		e->stored_bytes = compressed ? compressed : payload;
		e->plain_bytes = plain;
	}
	if (e->flags & FATBIN_FLAG_SCRAMBLED)
		e->unreadable = "its contents are scrambled by the vendor";
	else if (e->plain_bytes > FATBIN_MAX_PLAIN)
		e->unreadable = "it declares more than 1 GiB";
}

/* One entry at `at`; *next is where the following one starts. */
static int parse_entry(struct fatbin *f, const uint8_t *base, uint64_t size, uint64_t at,
	bool relocatable, size_t *cap, uint64_t *next, struct diag *d)
{
	unsigned long long where = at;
	const uint8_t *p = bytes_at(f, base, size, at, ENTRY_HEADER_MIN);
	if (!p)
		return diag_set(
			d, EINVAL, "fatbin entry at byte %llu: its header is cut off", where);
	uint32_t header = get32(p + 4);
	uint64_t payload = get64(p + 8);
	if (header < ENTRY_HEADER_MIN || !bytes_at(f, base, size, at, header))
		return diag_set(d, EINVAL,
			"fatbin entry at byte %llu: header size %u is impossible here", where,
			header);
	if (payload > size - at - header)
		return diag_set(d, EINVAL,
			"fatbin entry at byte %llu: payload of %llu bytes exceeds the region",
			where, (unsigned long long)payload);
	if (f->n_entries >= FATBIN_MAX_ENTRIES)
		return diag_set(d, EINVAL, "more than %d fatbin entries", FATBIN_MAX_ENTRIES);
	struct fatbin_entry *e = add_entry(f, cap);
	if (!e)
		return diag_set(d, ENOMEM, "out of memory");
	uint32_t compressed = get32(p + 0x10);
	*e = (struct fatbin_entry){
		.kind = get16(p),
		.region = f->n_regions,
		.sm = get32(p + 0x1c),
		.minor = get16(p + 0x18),
		.major = get16(p + 0x1a),
		.flags = get64(p + 0x28),
		.stored = p + header,
		.options = entry_options(f, p, header),
		.name = entry_string(
			f, p, header, get32(p + 0x20), header >= 0x28 ? get32(p + 0x24) : 0),
		.relocatable = relocatable,
	};
	e->suffix = e->flags & FATBIN_FLAG_ARCH ? 'a' : e->flags & FATBIN_FLAG_FAMILY ? 'f' : 0;
	if (compressed > payload)
		return diag_set(d, EINVAL,
			"fatbin entry at byte %llu: %u compressed bytes in a payload of %llu",
			where, compressed, (unsigned long long)payload);
	entry_packing(e, payload, compressed, header >= ENTRY_HEADER ? get64(p + 0x38) : 0);
	*next = at + header + payload;
	return 0;
}

/* The region at `at`; *next is the byte after it. */
static int parse_region(struct fatbin *f, const uint8_t *base, uint64_t size, uint64_t at,
	bool relocatable, size_t *cap, uint64_t *next, struct diag *d)
{
	unsigned long long where = at;
	const uint8_t *p = bytes_at(f, base, size, at, REGION_HEADER);
	if (!p)
		return diag_set(
			d, EINVAL, "fatbin region at byte %llu: its header is cut off", where);
	if (get32(p) != FATBIN_REGION_MAGIC)
		return diag_set(d, EINVAL, "fatbin region at byte %llu: wrong magic 0x%08x", where,
			get32(p));
	uint32_t header = get16(p + 6);
	uint64_t body = get64(p + 8);
	if (get16(p + 4) != 1 || header < REGION_HEADER)
		return diag_set(d, EINVAL,
			"fatbin region at byte %llu: version %u with header size %u is not known",
			where, get16(p + 4), header);
	if (header > size - at || body > size - at - header)
		return diag_set(d, EINVAL,
			"fatbin region at byte %llu: %llu bytes of entries exceed the %llu bytes "
			"there are",
			where, (unsigned long long)body, (unsigned long long)(size - at));
	if (f->n_regions >= MAX_REGIONS)
		return diag_set(d, EINVAL, "more than %d fatbin regions", MAX_REGIONS);
	uint64_t end = at + header + body, entry = at + header;
	while (end - entry >= ENTRY_HEADER_MIN) {
		int err = parse_entry(f, base, end, entry, relocatable, cap, &entry, d);
		if (err)
			return err;
	}
	f->n_regions++;
	*next = end;
	return 0;
}

/* Regions one after another, 8-aligned, with zero padding between them. */
static int parse_regions(struct fatbin *f, const uint8_t *base, uint64_t size, bool relocatable,
	size_t *cap, struct diag *d)
{
	uint64_t at = 0;
	while (size - at >= 4) {
		if (!get32(base + at)) {
			at += 4;
			continue;
		}
		int err = parse_region(f, base, size, at, relocatable, cap, &at, d);
		if (err)
			return err;
	}
	return 0;
}

/* A single payload that stands for itself: a bare cubin or PTX text. */
static int add_bare(
	struct fatbin *f, uint32_t kind, const uint8_t *p, uint64_t size, struct diag *d)
{
	size_t cap = 0;
	struct fatbin_entry *e = add_entry(f, &cap);
	if (!e)
		return diag_set(d, ENOMEM, "out of memory");
	*e = (struct fatbin_entry){ .kind = kind,
		.stored = p,
		.stored_bytes = size,
		.plain_bytes = size,
		.options = "",
		.name = "" };
	if (kind == FATBIN_KIND_PTX)
		fatbin_ptx_target((const char *)p, size, &e->major, &e->minor, &e->sm, &e->suffix);
	else
		e->sm = cubin_sm(p, size);
	if (size > FATBIN_MAX_PLAIN)
		e->unreadable = "it is larger than 1 GiB";
	f->n_regions = 1;
	return 0;
}

static int parse_host(struct fatbin *f, const uint8_t *base, uint64_t size, struct diag *d)
{
	const char *name;
	const uint8_t *data;
	uint64_t bytes;
	size_t cap = 0;
	int got, err;
	for (uint32_t i = 0; (got = elf_section(base, size, i, &name, &data, &bytes)) > 0; i++) {
		bool linked = !strcmp(name, ".nv_fatbin");
		if (!linked && strcmp(name, "__nv_relfatbin"))
			continue;
		if (!data)
			return diag_set(d, EINVAL,
				"section %s lies outside the file, which is cut off", name);
		err = parse_regions(f, data, bytes, !linked, &cap, d);
		if (err)
			return err;
	}
	return got < 0 ? diag_set(d, EINVAL, "the ELF section table is damaged") : 0;
}

static struct fatbin *new_fatbin(bool foreign)
{
	struct arena *a = arena_new();
	struct fatbin *f = a ? arena_alloc(a, sizeof(*f)) : NULL;
	if (!f) {
		arena_free(a);
		return NULL;
	}
	f->arena = a;
	f->foreign = foreign;
	return f;
}

void fatbin_close(struct fatbin *f)
{
	if (f)
		arena_free(f->arena);
}

/* Any image of known extent. */
static int parse_known(struct fatbin *f, const uint8_t *p, uint64_t size, struct diag *d)
{
	size_t cap = 0;
	if (size >= 4 && get32(p) == FATBIN_REGION_MAGIC) {
		f->input = FATBIN_INPUT_REGION;
		return parse_regions(f, p, size, false, &cap, d);
	}
	if (size >= 4 && get32(p) == FATBIN_WRAPPER_MAGIC)
		return diag_set(d, EINVAL,
			"a fatbin wrapper holds pointers and means nothing outside its process");
	if (size >= 4 && !memcmp(p, "\177ELF", 4)) {
		if (!elf_extent(p, size))
			return diag_set(d, EINVAL, "not a complete 64-bit little-endian ELF file");
		f->input = elf_is_cubin(p, size) ? FATBIN_INPUT_CUBIN : FATBIN_INPUT_HOST;
		return f->input == FATBIN_INPUT_CUBIN ? add_bare(f, FATBIN_KIND_ELF, p, size, d)
						      : parse_host(f, p, size, d);
	}
	if (fatbin_is_ptx((const char *)p, size)) {
		f->input = FATBIN_INPUT_PTX;
		return add_bare(f, FATBIN_KIND_PTX, p, size, d);
	}
	return diag_set(d, EINVAL, "neither a fatbin, nor an ELF file, nor PTX text");
}

static int finish_open(struct fatbin *f, int err, struct fatbin **out)
{
	if (err) {
		fatbin_close(f);
		return err;
	}
	*out = f;
	return 0;
}

int fatbin_open(const void *data, size_t size, struct fatbin **out, struct diag *d)
{
	struct fatbin *f = new_fatbin(false);
	if (!f)
		return diag_set(d, ENOMEM, "out of memory");
	return finish_open(f, parse_known(f, data, size, d), out);
}

/* A region at an address in this process: its own header gives its extent. */
static int parse_foreign_region(
	struct fatbin *f, const uint8_t *p, bool relocatable, size_t *cap, struct diag *d)
{
	uint64_t next;
	if (!p || !readable(p, REGION_HEADER))
		return diag_set(
			d, EINVAL, "fatbin region at %p: not readable memory", (const void *)p);
	uint64_t body = get64(p + 8), header = get16(p + 6);
	if (body > (uint64_t)1 << 46)
		return diag_set(d, EINVAL, "fatbin region: %llu bytes of entries",
			(unsigned long long)body);
	return parse_region(f, p, header + body, 0, relocatable, cap, &next, d);
}

static int parse_wrapper(struct fatbin *f, const uint8_t *p, struct diag *d)
{
	const uint8_t *region, *const *aux;
	size_t cap = 0;
	if (!readable(p, 24))
		return diag_set(d, EINVAL, "fatbin wrapper: not readable memory");
	f->input = FATBIN_INPUT_WRAPPER;
	uint32_t version = get32(p + 4);
	memcpy(&region, p + 8, sizeof(region));
	memcpy(&aux, p + 16, sizeof(aux));
	if (version != 1 && version != 2)
		return diag_set(d, EINVAL, "fatbin wrapper version %u is not known", version);
	int err = parse_foreign_region(f, region, false, &cap, d);
	if (err || version != 2 || !aux)
		return err;
	for (uint32_t i = 0; i < MAX_REGIONS; i++) {
		if (!readable((const uint8_t *)(aux + i), sizeof(*aux)))
			return diag_set(d, EINVAL,
				"fatbin wrapper: its list of regions is not readable memory");
		memcpy(&region, aux + i, sizeof(region));
		if (!region)
			return 0;
		err = parse_foreign_region(f, region, true, &cap, d);
		if (err)
			return err;
	}
	return diag_set(d, EINVAL, "more than %d fatbin regions", MAX_REGIONS);
}

/* Bytes of an ELF image in memory: header, then tables, then everything the tables name, each
 * checked before it is read. */
static uint64_t foreign_elf_bytes(const uint8_t *p)
{
	if (!readable(p, 64))
		return 0;
	uint64_t tables = get64(p + 0x28) + (uint64_t)get16(p + 0x3a) * get16(p + 0x3c);
	uint64_t segments = get64(p + 0x20) + (uint64_t)get16(p + 0x36) * get16(p + 0x38);
	if (segments > tables)
		tables = segments;
	if (tables < 64 || tables > (uint64_t)1 << 40 || !readable(p, tables))
		return 0;
	uint64_t all = elf_extent(p, tables);
	return all && all < (uint64_t)1 << 40 && readable(p, all) ? all : 0;
}

/* Length of a NUL-ended text; 0 when it does not end in readable memory. Many pages are asked for at a time, and fewer
 * where not all of them are there. */
static uint64_t foreign_text_bytes(const uint8_t *p)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), n = 0, pages = 64;
	while (n <= FATBIN_MAX_PLAIN) {
		uint64_t step = pages * page - ((uintptr_t)(p + n) & (page - 1));
		if (!readable(p + n, step)) {
			pages /= 2;
			if (!pages)
				return 0;
			continue;
		}
		const uint8_t *end = memchr(p + n, 0, step);
		if (end)
			return (uint64_t)(end - p);
		n += step;
	}
	return 0;
}

static int parse_image(struct fatbin *f, const uint8_t *p, struct diag *d)
{
	size_t cap = 0;
	if (!p || !readable(p, 1))
		return diag_set(d, EINVAL, "image at %p: not readable memory", (const void *)p);
	uint32_t magic = readable(p, 4) ? get32(p) : 0;
	if (magic == FATBIN_WRAPPER_MAGIC)
		return parse_wrapper(f, p, d);
	if (magic == FATBIN_REGION_MAGIC) {
		f->input = FATBIN_INPUT_REGION;
		return parse_foreign_region(f, p, false, &cap, d);
	}
	uint64_t size = magic == 0x464c457fu ? foreign_elf_bytes(p) : foreign_text_bytes(p);
	if (!size)
		return diag_set(d, EINVAL,
			"image at %p: neither a fatbin, nor a complete ELF file, nor text",
			(const void *)p);
	return parse_known(f, p, size, d);
}

int fatbin_open_image(const void *image, struct fatbin **out, struct diag *d)
{
	struct fatbin *f = new_fatbin(true);
	if (!f)
		return diag_set(d, ENOMEM, "out of memory");
	return finish_open(f, parse_image(f, image, d), out);
}

/* -- payloads ------------------------------------------------------------- */

static int unpack_lz4(const struct fatbin_entry *e, const void *stored, char *to, struct diag *d)
{
	int got = LZ4_decompress_safe(stored, to, (int)e->stored_bytes, (int)e->plain_bytes);
	if (got < 0 || (uint64_t)got != e->plain_bytes)
		return diag_set(d, EINVAL, "LZ4 data of the %s entry is damaged",
			e->kind == FATBIN_KIND_PTX ? "PTX" : "ELF");
	return 0;
}

static int unpack_zstd(const struct fatbin_entry *e, const void *stored, char *to, struct diag *d)
{
	size_t got = ZSTD_decompress(to, e->plain_bytes, stored, e->stored_bytes);
	if (ZSTD_isError(got) || got != e->plain_bytes)
		return diag_set(d, EINVAL, "zstd data of the %s entry is damaged: %s",
			e->kind == FATBIN_KIND_PTX ? "PTX" : "ELF",
			ZSTD_isError(got) ? ZSTD_getErrorName(got) : "wrong size");
	return 0;
}

/* Refuses a declared size that the stream cannot have, before any memory is taken for it. */
static int check_ratio(const struct fatbin_entry *e, const void *stored, struct diag *d)
{
	unsigned long long plain = e->plain_bytes;
	if (e->stored_bytes > FATBIN_MAX_PLAIN)
		return diag_set(d, EINVAL, "a payload of %llu bytes is too large",
			(unsigned long long)e->stored_bytes);
	if (e->packing == FATBIN_LZ4 && plain > e->stored_bytes * 255 + 64)
		return diag_set(d, EINVAL, "%llu bytes cannot come out of %llu bytes of LZ4", plain,
			(unsigned long long)e->stored_bytes);
	if (e->packing == FATBIN_ZSTD) {
		unsigned long long says = ZSTD_getFrameContentSize(stored, e->stored_bytes);
		if (says == ZSTD_CONTENTSIZE_ERROR ||
			(says != ZSTD_CONTENTSIZE_UNKNOWN && says != plain))
			return diag_set(
				d, EINVAL, "no zstd frame of the declared %llu bytes", plain);
	}
	return 0;
}

int fatbin_unpack(
	const struct fatbin_entry *e, const void *stored, char **data, size_t *size, struct diag *d)
{
	if (e->unreadable)
		return diag_set(d, EOPNOTSUPP, "the %s entry for %s cannot be read: %s",
			e->kind == FATBIN_KIND_PTX ? "PTX" : "ELF",
			fatbin_target_name(e, (char[24]){ 0 }), e->unreadable);
	int err = check_ratio(e, stored, d);
	if (err)
		return err;
	char *to = malloc(e->plain_bytes + 1);
	if (!to)
		return diag_set(d, ENOMEM, "out of memory for %llu bytes",
			(unsigned long long)e->plain_bytes);
	if (e->packing == FATBIN_LZ4)
		err = unpack_lz4(e, stored, to, d);
	else if (e->packing == FATBIN_ZSTD)
		err = unpack_zstd(e, stored, to, d);
	else
		memcpy(to, stored, e->plain_bytes);
	if (err) {
		free(to);
		return err;
	}
	*size = e->plain_bytes;
	if (e->kind == FATBIN_KIND_PTX)
		while (*size && !to[*size - 1])
			--*size;
	to[*size] = 0;
	*data = to;
	return 0;
}

int fatbin_read(const struct fatbin *f, const struct fatbin_entry *e, char **data, size_t *size,
	struct diag *d)
{
	if (f->foreign && !readable(e->stored, e->stored_bytes))
		return diag_set(d, EINVAL, "fatbin payload at %p: not readable memory",
			(const void *)e->stored);
	return fatbin_unpack(e, e->stored, data, size, d);
}

/* The first n plain bytes, or fewer where it ends or is damaged. */
static size_t unpack_start(const struct fatbin_entry *e, char *to, size_t n)
{
	ZSTD_inBuffer in = { e->stored, e->stored_bytes, 0 };
	ZSTD_outBuffer out = { to, n, 0 };
	if (e->packing == FATBIN_LZ4) {
		int got = e->stored_bytes > INT32_MAX || n > INT32_MAX
				  ? -1
				  : LZ4_decompress_safe_partial(
					    (const char *)e->stored, to, (int)e->stored_bytes, (int)n, (int)n);
		return got > 0 ? (size_t)got : 0;
	}
	if (e->packing == FATBIN_RAW) {
		n = n < e->stored_bytes ? n : e->stored_bytes;
		memcpy(to, e->stored, n);
		return n;
	}
	ZSTD_DStream *z = ZSTD_createDStream();
	for (size_t r = 1; z && r && !ZSTD_isError(r) && out.pos < out.size && in.pos < in.size;)
		r = ZSTD_decompressStream(z, &out, &in);
	ZSTD_freeDStream(z);
	return out.pos;
}

int fatbin_section_names(const struct fatbin *f, const struct fatbin_entry *e, char **names, size_t *bytes)
{
	static const char first[] = "\0.shstrtab";
	enum { AT = 0x40, START = 1 << 14 };
	uint64_t plain = e->packing == FATBIN_RAW ? e->stored_bytes : e->plain_bytes;
	if (e->kind != FATBIN_KIND_ELF || e->unreadable || plain > FATBIN_MAX_PLAIN ||
		(f->foreign && !readable(e->stored, e->stored_bytes)))
		return -ENOENT;
	for (size_t n = START;; n *= 8) {
		n = n < plain ? n : plain;
		char *to = malloc(n ? n : 1);
		size_t got = to ? unpack_start(e, to, n) : 0;
		bool fits = got > AT + sizeof(first) && !memcmp(to, "\x7f" "ELF", 4) &&
			    !memcmp(to + AT, first, sizeof(first));
		/* The symbols' names follow, and begin in the same way. */
		const char *end = fits ? memmem(to + AT + 1, got - AT - 1, first, sizeof(first)) : NULL;
		if (end) {
			*bytes = (size_t)(end - to) - AT;
			memmove(to, to + AT, *bytes);
			to[*bytes - 1] = 0;
			*names = to;
			return 0;
		}
		free(to);
		if (!fits || n == plain || got < n)
			return -ENOENT;
	}
}

/* -- choice --------------------------------------------------------------- */

const char *fatbin_target_name(const struct fatbin_entry *e, char out[24])
{
	char suffix[2] = { e->suffix, 0 };
	char digits[12];
	int n = 0, k = 0;
	uint32_t v = e->sm;
	strcpy(out, e->kind == FATBIN_KIND_ELF ? "sm_" : "compute_");
	do
		digits[n++] = (char)('0' + v % 10);
	while ((v /= 10));
	k = (int)strlen(out);
	while (n)
		out[k++] = digits[--n];
	out[k] = 0;
	return strcat(out, suffix);
}

bool fatbin_fits(const struct fatbin_entry *e, uint32_t cc)
{
	if (!cc || !e->sm)
		return true;
	if (e->suffix == 'a')
		return e->sm == cc;
	if (e->suffix == 'f' || e->kind == FATBIN_KIND_ELF)
		return e->sm / 10 == cc / 10 && e->sm <= cc;
	return e->sm <= cc;
}

/* Newer targets win; for one SM the one made for it alone, then its family. */
static bool better(const struct fatbin_entry *e, const struct fatbin_entry *than)
{
	static const char order[] = { 0, 'f', 'a' };
	if (!than)
		return true;
	if (!e->unreadable != !than->unreadable)
		return !e->unreadable;
	if (e->sm != than->sm)
		return e->sm > than->sm;
	for (int i = 2; i >= 0; i--)
		if ((e->suffix == order[i]) != (than->suffix == order[i]))
			return e->suffix == order[i];
	return false;
}

static const struct fatbin_entry *best(
	const struct fatbin *f, uint32_t region, uint32_t kind, uint32_t cc)
{
	const struct fatbin_entry *pick = NULL;
	for (uint32_t i = 0; i < f->n_entries; i++) {
		const struct fatbin_entry *e = &f->entries[i];
		if (e->region == region && e->kind == kind && fatbin_fits(e, cc) && better(e, pick))
			pick = e;
	}
	return pick;
}

uint32_t fatbin_choose_ptx(
	const struct fatbin *f, uint32_t cc, const struct fatbin_entry **picks, uint32_t max)
{
	uint32_t n = 0;
	for (uint32_t r = 0; r < f->n_regions && n < max; r++) {
		const struct fatbin_entry *e = best(f, r, FATBIN_KIND_PTX, cc);
		if (e)
			picks[n++] = e;
	}
	return n;
}

static bool elf_keeps_ptx(const struct fatbin *f, const struct fatbin_entry *e)
{
	char *elf;
	size_t size;
	if (!e->unreadable && e->packing == FATBIN_RAW)
		return (!f->foreign || readable(e->stored, e->stored_bytes)) &&
		       cubin_has_ptx(e->stored, e->stored_bytes);
	if (!fatbin_section_names(f, e, &elf, &size)) {
		bool may = memmem(elf, size, ".nv_debug_ptx_txt", 17) != NULL;
		free(elf);
		if (!may)
			return false;
	}
	if (fatbin_read(f, e, &elf, &size, NULL))
		return false;
	bool has = cubin_has_ptx(elf, size);
	free(elf);
	return has;
}

static const char *why_no_ptx(struct fatbin *f, const struct fatbin_unit *u)
{
	char name[24];
	const struct fatbin_entry *other = best(f, u->region, FATBIN_KIND_PTX, 0);
	if (other && other->unreadable)
		return arena_printf(f->arena, "no PTX that can be read: the entry for %s: %s",
			fatbin_target_name(other, name), other->unreadable);
	if (other)
		return arena_printf(f->arena, "no PTX for this device in the fatbin, only for %s",
			fatbin_target_name(other, name));
	if (f->input == FATBIN_INPUT_CUBIN)
		return "no PTX in the cubin (build with -lineinfo to keep it there)";
	if (u->elf)
		return arena_printf(f->arena,
			"no PTX in the fatbin, only machine code for %s (build with -gencode "
			"arch=compute_XX,code=compute_XX, or -lineinfo)",
			fatbin_target_name(u->elf, name));
	return "no PTX in the fatbin";
}

static int fill_unit(struct fatbin *f, struct fatbin_unit *u, uint32_t cc)
{
	char name[24];
	u->ptx = best(f, u->region, FATBIN_KIND_PTX, cc);
	u->elf = best(f, u->region, FATBIN_KIND_ELF, cc);
	if (u->ptx && u->ptx->unreadable)
		u->ptx = NULL;
	u->ptx_in_elf = !u->ptx && u->elf && elf_keeps_ptx(f, u->elf);
	if (u->ptx)
		u->source = f->input == FATBIN_INPUT_PTX
				    ? "PTX text"
				    : arena_printf(f->arena, "fatbin %s PTX",
					      fatbin_target_name(u->ptx, name));
	else if (u->ptx_in_elf)
		u->source = "cubin .nv_debug_ptx_txt";
	else {
		u->source = "none";
		u->reason = why_no_ptx(f, u);
	}
	return !u->source || (!strcmp(u->source, "none") && !u->reason) ? -ENOMEM : 0;
}

int fatbin_units(struct fatbin *f, uint32_t cc, struct fatbin_unit **units, uint32_t *n)
{
	struct fatbin_unit *list = arena_array(f->arena, f->n_regions, sizeof(*list));
	if (!list)
		return -ENOMEM;
	for (uint32_t r = 0; r < f->n_regions; r++) {
		list[r].region = r;
		int err = fill_unit(f, &list[r], cc);
		if (err)
			return err;
	}
	*units = list;
	*n = f->n_regions;
	return 0;
}

int fatbin_unit_text(const struct fatbin *f, const struct fatbin_unit *u, char **text, size_t *size,
	struct diag *d)
{
	char *elf;
	size_t bytes;
	if (u->ptx)
		return fatbin_read(f, u->ptx, text, size, d);
	if (!u->ptx_in_elf)
		return diag_set(d, ENOENT, "%s", u->reason ? u->reason : "no PTX");
	int err = fatbin_read(f, u->elf, &elf, &bytes, d);
	if (err)
		return err;
	err = cubin_ptx(elf, bytes, text, size, d);
	free(elf);
	return err;
}

/* -- PTX text ------------------------------------------------------------- */

/* Index of the first byte at or after `at` that is neither blank nor comment. */
static size_t skip_blank(const char *s, size_t size, size_t at)
{
	while (at < size) {
		if (s[at] == ' ' || (s[at] >= '\t' && s[at] <= '\r')) {
			at++;
		} else if (size - at >= 2 && s[at] == '/' && s[at + 1] == '/') {
			const char *end = memchr(s + at, '\n', size - at);
			at = end ? (size_t)(end - s) + 1 : size;
		} else if (size - at >= 2 && s[at] == '/' && s[at + 1] == '*') {
			const char *end = memmem(s + at + 2, size - at - 2, "*/", 2);
			at = end ? (size_t)(end - s) + 2 : size;
		} else {
			break;
		}
	}
	return at;
}

static bool word_at(const char *s, size_t size, size_t at, const char *word)
{
	size_t n = strlen(word);
	return at <= size && n <= size - at && !memcmp(s + at, word, n);
}

bool fatbin_is_ptx(const char *text, size_t size)
{
	return word_at(text, size, skip_blank(text, size, 0), ".version");
}

static uint32_t number_at(const char *s, size_t size, size_t *at)
{
	uint32_t v = 0;
	while (*at < size && s[*at] >= '0' && s[*at] <= '9' && v < 100000)
		v = v * 10 + (uint32_t)(s[(*at)++] - '0');
	return v;
}

void fatbin_ptx_target(
	const char *text, size_t size, uint16_t *major, uint16_t *minor, uint32_t *sm, char *suffix)
{
	*major = *minor = 0;
	*sm = 0;
	*suffix = 0;
	size_t at = skip_blank(text, size, 0);
	if (!word_at(text, size, at, ".version"))
		return;
	at = skip_blank(text, size, at + 8);
	*major = (uint16_t)number_at(text, size, &at);
	if (at < size && text[at] == '.') {
		at++;
		*minor = (uint16_t)number_at(text, size, &at);
	}
	at = skip_blank(text, size, at);
	if (!word_at(text, size, at, ".target"))
		return;
	at = skip_blank(text, size, at + 7);
	if (!word_at(text, size, at, "sm_"))
		return;
	at += 3;
	*sm = number_at(text, size, &at);
	if (at < size && (text[at] == 'a' || text[at] == 'f'))
		*suffix = text[at];
}
