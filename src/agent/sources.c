/* sources.c - the PTX of kernels that were loaded before we came: in the fatbins of loaded files,
 * as text in memory, and in Triton's cache.
 *
 * A fatbin is found through its wrapper in the file's section .nvFatBinSegment, which the CUDA
 * runtime hands to the driver. Text in memory is found by the kernel's name behind `.entry`. Two
 * different texts that define one name leave open which of them was loaded: then there is none for
 * us.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/agent.h"

enum {
	MAX_TEXT = 32 << 20,
	MAX_MAPPED = 64 << 20, /* of a file: a program that carries PTX as text is smaller */
	CHUNK = 4 << 20,
	MAX_WRAPPERS = 65536,
};

/* Large libraries have thousands, whose texts together are gigabytes: they are unpacked one after
 * the other, and of each only the hashes of its kernels' names are kept. */
struct wrapper {
	const void *at;
	uint64_t *names;
	uint32_t n_names;
	bool read;
};

/* Used by one thread. */
static struct {
	struct wrapper *list;
	size_t n, cap;
	unsigned long long adds; /* loaded files ever, when the list was made */
	uint64_t hunted_ns;      /* spent on searching memory since the attach */
} w;

#define HUNT_NS 20000000000ull /* of one thread, in a process with very much memory */

/* -- fatbins of loaded files ------------------------------------------------------------- */

static void add_wrapper(const void *at)
{
	for (size_t i = 0; i < w.n; i++)
		if (w.list[i].at == at)
			return;
	if (w.n == w.cap) {
		size_t cap = w.cap ? w.cap * 2 : 64;
		void *more = cap <= MAX_WRAPPERS ? realloc(w.list, cap * sizeof(*w.list)) : NULL;
		if (!more)
			return;
		w.list = more;
		w.cap = cap;
	}
	w.list[w.n++] = (struct wrapper){ .at = at };
}

/* The section's place in memory follows from its place in the file. */
static void wrappers_of(const struct dl_phdr_info *info, const char *bytes, size_t size)
{
	const char *name;
	const uint8_t *data;
	uint64_t n;
	for (uint32_t i = 0; elf_section(bytes, size, i, &name, &data, &n) > 0; i++) {
		if (strcmp(name, ".nvFatBinSegment"))
			continue;
		uint64_t at = (uint64_t)((const char *)data - bytes);
		for (size_t k = 0; k < info->dlpi_phnum; k++) {
			const ElfW(Phdr) *ph = &info->dlpi_phdr[k];
			if (ph->p_type != PT_LOAD || at < ph->p_offset ||
				at - ph->p_offset + n > ph->p_filesz)
				continue;
			const char *from =
				(const char *)info->dlpi_addr + ph->p_vaddr + (at - ph->p_offset);
			for (uint64_t j = 0; j + 24 <= n; j += 24)
				add_wrapper(from + j);
		}
	}
}

static int look_into(struct dl_phdr_info *info, size_t size, void *arg)
{
	const char *path = info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
	int fd = path[0] == '/' ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	off_t bytes = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	void *p = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		return 0;
	wrappers_of(info, p, (size_t)bytes);
	munmap(p, (size_t)bytes);
	return 0;
}

static int count_adds(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(unsigned long long *)arg = info->dlpi_adds;
	return 1;
}

static bool is_name(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$' || c == '%';
}

/* Names behind `.entry`; one in a comment does no harm. */
static void add_names(struct wrapper *wr, size_t *cap, const char *text, size_t bytes)
{
	const char *end = text + bytes, *p = text;
	while ((p = memmem(p, (size_t)(end - p), ".entry", 6))) {
		p += 6;
		while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
			p++;
		const char *name = p;
		while (p < end && is_name(*p))
			p++;
		if (p == name)
			continue;
		if (wr->n_names == *cap) {
			size_t more = *cap ? *cap * 2 : 16;
			void *list = realloc(wr->names, more * sizeof(*wr->names));
			if (!list)
				return;
			wr->names = list;
			*cap = more;
		}
		wr->names[wr->n_names++] = hash_bytes(name, (size_t)(p - name), 0);
	}
}

static void read_names(struct wrapper *wr, uint32_t cc)
{
	struct fatbin *f;
	struct fatbin_unit *units;
	uint32_t n = 0;
	size_t cap = 0;
	wr->read = true;
	if (fatbin_open_image(wr->at, &f, NULL))
		return;
	if (fatbin_units(f, cc, &units, &n))
		n = 0;
	for (uint32_t i = 0; i < n; i++) {
		char *text;
		size_t bytes;
		if ((!units[i].ptx && !units[i].ptx_in_elf) ||
			fatbin_unit_text(f, &units[i], &text, &bytes, NULL))
			continue;
		add_names(wr, &cap, text, bytes);
		free(text);
	}
	fatbin_close(f);
}

static struct image *in_files(const char *name, uint32_t cc)
{
	unsigned long long adds = 0;
	dl_iterate_phdr(count_adds, &adds);
	if (adds != w.adds) {
		dl_iterate_phdr(look_into, NULL);
		w.adds = adds;
	}
	uint64_t hash = hash_bytes(name, strlen(name), 0);
	for (size_t i = 0; i < w.n; i++) {
		if (!w.list[i].read)
			read_names(&w.list[i], cc);
		for (uint32_t k = 0; k < w.list[i].n_names; k++) {
			struct image *im = w.list[i].names[k] == hash
						   ? image_get(w.list[i].at, cc, NULL)
						   : NULL;
			const struct kernel *found = im ? image_kernel(im, name) : NULL;
			if (found && found->unit >= 0)
				return im;
		}
	}
	return NULL;
}

/* -- text in memory ------------------------------------------------------------------------ */

struct hunt {
	char what[1100]; /* ".entry NAME" */
	size_t n;
	char *found; /* the text, ours */
	size_t found_bytes;
	bool several;
	char *chunk, *text;
};

static size_t read_at(uintptr_t at, void *to, size_t bytes)
{
	struct iovec here = { to, bytes }, there = { (void *)at, bytes };
	ssize_t n = syscall(SYS_process_vm_readv, (long)getpid(), &here, 1L, &there, 1L, 0L);
	return n > 0 ? (size_t)n : 0;
}

/* The text around a place: from `.version`, with only comments before it, to the NUL. */
static void take_text(struct hunt *h, uintptr_t at, uintptr_t from, uintptr_t to)
{
	uintptr_t begin = at - from > MAX_TEXT / 2 ? at - MAX_TEXT / 2 : from;
	size_t bytes = to - begin < MAX_TEXT ? to - begin : MAX_TEXT;
	size_t n = read_at(begin, h->text, bytes), middle = at - begin;
	if (n <= middle)
		return;
	size_t start = middle, end = middle;
	while (start && h->text[start - 1])
		start--;
	while (end < n && h->text[end])
		end++;
	const char *version = memmem(h->text + start, middle - start, ".version", 8);
	if (end == n || !version)
		return;
	const char *text = version;
	size_t length = (size_t)(h->text + end - text);
	/* A message that quotes a line is no module; what we have made ourselves is not the
	 * program's. */
	if (!memmem(text, length, ".target", 7) || memmem(text, length, "__egpu_", 7))
		return;
	if (h->found) {
		h->several |= h->found_bytes != length || memcmp(h->found, text, length) != 0;
		return;
	}
	h->found = malloc(length + 1);
	if (!h->found)
		return;
	memcpy(h->found, text, length);
	h->found[length] = 0;
	h->found_bytes = length;
}

static bool ends_name(char c)
{
	return c == '(' || c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '{';
}

static void hunt_in(struct hunt *h, uintptr_t from, uintptr_t to);

/* Memory of no file: only what has been touched. */
static void hunt_touched(struct hunt *h, uintptr_t from, uintptr_t to)
{
	uintptr_t run;
	size_t n = memory_run(from, to, &run), more;
	while (n) {
		uintptr_t end = run + n, next;
		/* Runs are cut at a limit: neighbours belong together. */
		while ((more = memory_run(end, to, &next)) && next == end)
			end += more;
		hunt_in(h, run, end);
		run = next;
		n = more;
	}
}

static void hunt_in(struct hunt *h, uintptr_t from, uintptr_t to)
{
	for (uintptr_t at = from; at < to && !h->several;) {
		size_t want = to - at < CHUNK ? to - at : CHUNK;
		size_t n = read_at(at, h->chunk, want);
		const char *p = h->chunk, *end = h->chunk + n;
		while (n && (p = memmem(p, (size_t)(end - p), h->what, h->n))) {
			if (p + h->n < end && ends_name(p[h->n]))
				take_text(h, at + (size_t)(p - h->chunk), from, to);
			p += h->n;
		}
		/* The pieces overlap by what may lie across their border. */
		at += want == CHUNK ? want - h->n - 1 : want;
	}
}

static struct image *in_memory(const char *name, uint32_t cc, const char **why)
{
	struct hunt *h = calloc(1, sizeof(*h));
	struct image *im = NULL;
	char *line = NULL;
	size_t room = 0;
	FILE *f = NULL;
	if (!h || strlen(name) > 1000)
		goto out;
	h->n = (size_t)snprintf(h->what, sizeof(h->what), ".entry %s", name);
	h->chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	h->text = mmap(NULL, MAX_TEXT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	f = fopen("/proc/self/maps", "re");
	while (f && h->chunk != MAP_FAILED && h->text != MAP_FAILED &&
		getline(&line, &room, f) > 0) {
		unsigned long from, to;
		char perms[8];
		int at = 0;
		if (sscanf(line, "%lx-%lx %7s %*x %*s %*s %n", &from, &to, perms, &at) < 3)
			continue;
		const char *path = at ? line + at : "";
		uintptr_t chunk = (uintptr_t)h->chunk, text = (uintptr_t)h->text;
		if (perms[0] != 'r' || perms[3] != 'p' || !strncmp(path, "/dev/", 5) ||
			!strncmp(path, "[v", 2))
			continue;
		/* Our buffers lie in one mapping, or in two beside each other. */
		if ((chunk >= from && chunk < to) || (text >= from && text < to))
			continue;
		if (path[0] == '/' && to - from <= MAX_MAPPED)
			hunt_in(h, from, to);
		else if (path[0] != '/')
			hunt_touched(h, from, to);
	}
	if (h->several)
		*why = "several PTX texts of this name are in the process's memory, and nothing "
		       "tells which of them was loaded";
	else if (h->found)
		im = image_get(h->found, cc, NULL);
out:
	free(line);
	if (f)
		fclose(f);
	if (h && h->chunk && h->chunk != MAP_FAILED)
		munmap(h->chunk, CHUNK);
	if (h && h->text && h->text != MAP_FAILED)
		munmap(h->text, MAX_TEXT);
	if (h)
		free(h->found);
	free(h);
	return im && image_kernel(im, name) ? im : NULL;
}

/* -- Triton's cache --------------------------------------------------------------------------- */

/* CACHE/HASH/NAME.ptx; one only. */
static struct image *in_cache(const char *name, uint32_t cc, const char **why)
{
	const char *own = getenv("TRITON_CACHE_DIR"), *home = getenv("HOME");
	char dir[2048], path[4096], found[4096] = "";
	if (strchr(name, '/') || snprintf(dir, sizeof(dir), "%s%s",
					 own    ? own
					 : home ? home
						: "",
					 own ? "" : "/.triton/cache") >= (int)sizeof(dir))
		return NULL;
	DIR *list = opendir(dir);
	for (struct dirent *e; list && (e = readdir(list));) {
		if (e->d_name[0] == '.' || snprintf(path, sizeof(path), "%s/%s/%s.ptx", dir,
						   e->d_name, name) >= (int)sizeof(path))
			continue;
		if (access(path, R_OK))
			continue;
		if (found[0]) {
			*why = "Triton's cache has several kernels of this name, and nothing tells "
			       "which of them was loaded";
			closedir(list);
			return NULL;
		}
		strcpy(found, path);
	}
	if (list)
		closedir(list);
	struct image *im = found[0] ? image_get_file(found, cc, NULL) : NULL;
	return im && image_kernel(im, name) ? im : NULL;
}

void source_begin(void)
{
	w.hunted_ns = 0;
}

struct image *source_find(const char *name, uint32_t cc, const char **why)
{
	*why = "it was loaded before the attach, and neither the process's files nor its memory "
	       "hold its "
	       "PTX";
	const char *open = NULL;
	/* What a compiler for C++ has named comes from a file, the rest rather from memory. */
	bool mangled = !strncmp(name, "_Z", 2);
	struct image *im = mangled ? in_files(name, cc) : NULL;
	uint64_t start = now_ns();
	if (!im && w.hunted_ns > HUNT_NS)
		open = "no file of the process holds its PTX, and the time for searching memory is "
		       "used up";
	else if (!im)
		im = in_memory(name, cc, &open);
	w.hunted_ns += now_ns() - start;
	if (!im && !open)
		im = in_cache(name, cc, &open);
	if (!im && !open && !mangled)
		im = in_files(name, cc);
	if (open)
		*why = open;
	return im;
}
