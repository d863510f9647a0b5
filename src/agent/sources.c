/* sources.c - the PTX of kernels that were loaded before we came: in the fatbins of loaded files, in caches of Triton's
 * (triton.c), and as text in memory (memtext.c).
 *
 * A fatbin is found through its wrapper in the file's section .nvFatBinSegment, which the CUDA runtime hands to the driver. A large
 * process has thousands: they are looked through once, by threads of ours, and what is kept is an index by hashes of names.
 */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/agent.h"

enum { MAX_WRAPPERS = 65536, FEW = 16 };

/* Hashes of names. */
struct names {
	uint64_t *list;
	size_t n, cap;
};

/* Of each fatbin only the hashes of its kernels' names are kept: the texts together may be gigabytes. bare: those
 * that have no PTX for this device. */
struct wrapper {
	const void *at;
	struct names ptx, bare;
};

/* Used by one thread, and by those that read names. */
static struct {
	struct wrapper *list; /* nobody reads names while it changes */
	size_t n, cap;
	atomic_size_t next;   /* the first whose names nobody has begun to read */
	atomic_int readers;   /* threads of ours that do */
	uint32_t cc;
	unsigned long long adds, subs; /* files ever loaded and unloaded, when the list was made */
	uint64_t begun_ns;    /* 0: told of */
} w;

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

static int count_files(struct dl_phdr_info *info, size_t size, void *arg)
{
	unsigned long long *counts = arg;
	counts[0] = info->dlpi_adds;
	counts[1] = info->dlpi_subs;
	return 1;
}

static void add_name(struct names *to, const char *name, size_t length)
{
	if (to->n == to->cap) {
		size_t more = to->cap ? to->cap * 2 : 16;
		void *list = realloc(to->list, more * sizeof(*to->list));
		if (!list)
			return;
		to->list = list;
		to->cap = more;
	}
	to->list[to->n++] = hash_bytes(name, length, 0);
}

static bool has_name(const struct names *in, uint64_t hash)
{
	for (size_t i = 0; i < in->n; i++)
		if (in->list[i] == hash)
			return true;
	return false;
}

/* Names behind `.entry`; one in a comment does no harm. */
static void add_names(struct names *to, const char *text, size_t bytes)
{
	const char *end = text + bytes, *p = text;
	while ((p = memmem(p, (size_t)(end - p), ".entry", 6))) {
		p += 6;
		while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
			p++;
		const char *name = p;
		while (p < end && is_name(*p))
			p++;
		if (p > name)
			add_name(to, name, (size_t)(p - name));
	}
}

/* Kernels of machine code, by the names of its sections. */
static void add_bare(struct names *to, const struct fatbin *f, const struct fatbin_entry *elf)
{
	enum { TEXT = sizeof(".text.") - 1 };
	char *names;
	size_t bytes;
	if (fatbin_section_names(f, elf, &names, &bytes))
		return;
	for (const char *p = names; p < names + bytes; p += strlen(p) + 1)
		if (!strncmp(p, ".text.", TEXT))
			add_name(to, p + TEXT, strlen(p + TEXT));
	free(names);
}

static void read_names(struct wrapper *wr, uint32_t cc)
{
	struct fatbin *f;
	struct fatbin_unit *units;
	uint32_t n = 0;
	if (fatbin_open_image(wr->at, &f, NULL))
		return;
	if (fatbin_units(f, cc, &units, &n))
		n = 0;
	for (uint32_t i = 0; i < n; i++) {
		char *text;
		size_t bytes;
		bool has = units[i].ptx || units[i].ptx_in_elf;
		if (has && !fatbin_unit_text(f, &units[i], &text, &bytes, NULL)) {
			add_names(&wr->ptx, text, bytes);
			free(text);
		} else if (!has && units[i].elf) {
			add_bare(&wr->bare, f, units[i].elf);
		}
	}
	fatbin_close(f);
}

static bool read_next(void)
{
	size_t i = atomic_fetch_add(&w.next, 1);
	if (i < w.n)
		read_names(&w.list[i], w.cc);
	return i < w.n;
}

static void *read_all(void *arg)
{
	while (read_next())
		;
	atomic_fetch_sub(&w.readers, 1);
	return arg;
}

/* Of a file that was unloaded nothing is read any more. */
static void list_files(const unsigned long long counts[2], uint32_t cc)
{
	if (counts[1] != w.subs) {
		for (size_t i = 0; i < w.n; i++) {
			free(w.list[i].ptx.list);
			free(w.list[i].bare.list);
		}
		w.n = 0;
	}
	atomic_store(&w.next, w.n);
	dl_iterate_phdr(look_into, NULL);
	w.adds = counts[0];
	w.subs = counts[1];
	w.cc = w.cc ? w.cc : cc; /* devices of one process are alike */
	w.begun_ns = now_ns();
	for (int k = agent_helpers(); k-- && w.n - atomic_load(&w.next) > FEW;) {
		atomic_fetch_add(&w.readers, 1);
		if (agent_thread(NULL, read_all, NULL))
			atomic_fetch_sub(&w.readers, 1);
	}
}

/* Whether every fatbin's names are known. Where there are few, or no thread could be made, we read them. */
static bool know_files(uint32_t cc, uint64_t until)
{
	unsigned long long counts[2] = { 0 };
	if (atomic_load(&w.readers))
		return false;
	dl_iterate_phdr(count_files, counts);
	if (counts[0] != w.adds || counts[1] != w.subs) {
		list_files(counts, cc);
		if (atomic_load(&w.readers))
			return false;
	}
	while (atomic_load(&w.next) < w.n) {
		if (now_ns() > until)
			return false;
		read_next();
	}
	if (w.begun_ns)
		agent_log("names of %zu fatbins in files read in %.1f ms", w.n, (double)(now_ns() - w.begun_ns) / 1e6);
	w.begun_ns = 0;
	return true;
}

/* Why the kernels of a fatbin have no PTX. */
static const char *why_bare(const struct wrapper *wr, uint32_t cc)
{
	static char text[256]; /* one thread searches */
	struct fatbin *f;
	struct fatbin_unit *units;
	uint32_t n = 0;
	snprintf(text, sizeof(text), "no PTX in the fatbin");
	if (fatbin_open_image(wr->at, &f, NULL))
		return text;
	if (fatbin_units(f, cc, &units, &n))
		n = 0;
	for (uint32_t i = 0; i < n; i++)
		if (units[i].reason)
			snprintf(text, sizeof(text), "%s", units[i].reason);
	fatbin_close(f);
	return text;
}

/* The image that has the kernel's PTX; NULL with *why when a file has its machine code alone. */
static struct image *in_files(const char *name, uint32_t cc, const char **why)
{
	uint64_t hash = hash_bytes(name, strlen(name), 0);
	const struct wrapper *bare = NULL;
	for (size_t i = 0; i < w.n; i++) {
		struct image *im = has_name(&w.list[i].ptx, hash) ? image_get(w.list[i].at, cc, NULL) : NULL;
		const struct kernel *found = im ? image_kernel(im, name) : NULL;
		if (found && found->unit >= 0)
			return im;
		if (has_name(&w.list[i].bare, hash))
			bare = &w.list[i];
	}
	if (bare)
		*why = why_bare(bare, cc);
	return NULL;
}

/* -- all of them ------------------------------------------------------------------------------ */

/* What a compiler for C++ has named comes from a file of the process; the rest rather from a cache on disk, or from memory. */
int source_find(struct source_query *q, uint64_t until_ns, struct image **out, const char **why)
{
	const char *open = NULL, *unclear = NULL;
	struct texts texts = { .n = 0 };
	bool mangled = !strncmp(q->name, "_Z", 2);
	*out = NULL;
	*why = "it was loaded before the attach, and neither the process's files nor its memory hold its "
	       "PTX";
	/* Which of several it is was asked before: memory has to be looked through for that first. */
	if (q->several && !memcode_look(q->asked_ns, until_ns))
		return -EAGAIN;
	if (!mangled && !q->caches_done) {
		if (triton_find(q, until_ns, out, &unclear))
			return -EAGAIN;
		q->caches_done = true;
		if (*out)
			return 0;
	}
	if (mangled && !know_files(q->cc, until_ns))
		return -EAGAIN;
	if (mangled && ((*out = in_files(q->name, q->cc, &open)) || open))
		goto done;
	bool all = memtext_look(until_ns);
	memtext_find(q->name, &texts);
	int err = texts_image(&texts, q, until_ns, out, &open);
	texts_free(&texts);
	if (err)
		return err;
	if (!all && !*out && !open) {
		memtext_rest();
		return -EAGAIN;
	}
	if (!*out && !open && !mangled) {
		if (!know_files(q->cc, until_ns))
			return -EAGAIN;
		*out = in_files(q->name, q->cc, &open);
	}
	/* It may have come after we looked. */
	if (!*out && !open && memtext_again(q->asked_ns))
		return -EAGAIN;
	/* Or the cache was written since. */
	if (!*out && !open && !mangled && (triton_find(q, until_ns, out, &unclear) || *out))
		return *out ? 0 : -EAGAIN;
	open = open ? open : *out ? NULL : unclear;
done:
	if (open)
		*why = open;
	return 0;
}
