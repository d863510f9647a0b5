/* code.c - where things are in the target: dlopen, the way back from a signal, and the functions in
 * which a thread may hold a lock that dlopen needs. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/fatbin.h"
#include "inject/internal.h"

/* An ELF file that the target has mapped. */
struct object {
	char path[PATH_MAX]; /* as the target names it */
	uint64_t first;      /* its lowest mapping, offset 0 */
	struct range text;
	const char *bytes;
	size_t size;
	uint64_t bias;
};

struct search {
	struct object *libc, *libdl, *loader;
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static struct object *which(const struct search *s, const char *name)
{
	if (!strcmp(name, "libc.so.6") || !strncmp(name, "libc-2.", 7))
		return s->libc;
	if (!strcmp(name, "libdl.so.2") || !strncmp(name, "libdl-2.", 8))
		return s->libdl;
	if (!strncmp(name, "ld-linux", 8) || !strncmp(name, "ld-2.", 5))
		return s->loader;
	return NULL;
}

static int note(const struct mapping *m, void *arg)
{
	struct object *o = m->path[0] == '/' ? which(arg, base_name(m->path)) : NULL;
	if (!o || (o->path[0] && strcmp(o->path, m->path)))
		return 0;
	snprintf(o->path, sizeof(o->path), "%s", m->path);
	if (!m->offset && !o->first)
		o->first = m->start;
	if (m->exec) {
		o->text.from = o->text.from ? o->text.from : m->start;
		o->text.to = m->end;
	}
	return 0;
}

static int map_object(pid_t pid, struct object *o)
{
	char path[PATH_MAX + 32];
	if (!o->path[0] || !o->first)
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/%d/root%s", (int)pid, o->path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	void *p = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	if (p == MAP_FAILED)
		return -ENOENT;
	o->bytes = p;
	o->size = (size_t)size;
	Elf64_Ehdr h;
	if (o->size < sizeof(h))
		return -EINVAL;
	memcpy(&h, o->bytes, sizeof(h));
	for (uint32_t i = 0; i < h.e_phnum; i++) {
		Elf64_Phdr ph;
		uint64_t at = h.e_phoff + (uint64_t)i * sizeof(ph);
		if (at > o->size - sizeof(ph))
			return -EINVAL;
		memcpy(&ph, o->bytes + at, sizeof(ph));
		if (ph.p_type == PT_LOAD) {
			o->bias = o->first - (ph.p_vaddr - ph.p_offset);
			return 0;
		}
	}
	return -EINVAL;
}

static void unmap_object(struct object *o)
{
	if (o->bytes)
		munmap((void *)(uintptr_t)o->bytes, o->size);
}

static bool section(const struct object *o, const char *name, const uint8_t **data, uint64_t *bytes)
{
	const char *at;
	for (uint32_t i = 0; elf_section(o->bytes, o->size, i, &at, data, bytes) > 0; i++)
		if (!strcmp(at, name))
			return true;
	return false;
}

/* A function's range in the target; false when it does not export it. */
static bool function(const struct object *o, const char *name, struct range *r)
{
	const uint8_t *syms, *names;
	uint64_t n_syms, n_names;
	if (!o->bytes || !section(o, ".dynsym", &syms, &n_syms) ||
		!section(o, ".dynstr", &names, &n_names) || !n_names || names[n_names - 1])
		return false;
	for (uint64_t i = 0; i + sizeof(Elf64_Sym) <= n_syms; i += sizeof(Elf64_Sym)) {
		Elf64_Sym s;
		memcpy(&s, syms + i, sizeof(s));
		if (!s.st_value || s.st_name >= n_names || ELF64_ST_TYPE(s.st_info) != STT_FUNC ||
			strcmp((const char *)names + s.st_name, name))
			continue;
		*r = (struct range){ o->bias + s.st_value, o->bias + s.st_value + s.st_size };
		return true;
	}
	return false;
}

/* Callers of the allocator's and the loader's inner parts: whoever is inside has one of these on
 * its stack. */
static const char *const locking[] = { "malloc", "free", "calloc", "realloc", "memalign",
	"aligned_alloc", "posix_memalign", "valloc", "pvalloc", "malloc_trim", "mallinfo",
	"mallinfo2", "malloc_info", "malloc_stats", "cfree", "reallocarray", "fork", "__libc_fork",
	"vfork", "dlopen", "dlclose", "dlsym", "dlvsym", "dladdr", "dladdr1", "dlinfo", "dlmopen",
	"dl_iterate_phdr", "__libc_dlopen_mode", "__libc_dlclose", "__libc_dlsym", "pthread_create",
	"pthread_exit", "exit", "_exit", "quick_exit", "__cxa_thread_atexit_impl", "__cxa_finalize",
	"pthread_getattr_np", "__tls_get_addr", "_dl_mcount", "abort" };

static void add_locked(struct code *c, const struct object *o)
{
	for (size_t i = 0; i < sizeof(locking) / sizeof(locking[0]); i++)
		if (c->n_locked < MAX_RANGES && function(o, locking[i], &c->locked[c->n_locked]))
			c->n_locked++;
}

static bool find_restore(struct code *c, const struct object *o)
{
	static const uint8_t want[] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };
	const uint8_t *text;
	uint64_t n;
	const char *name;
	for (uint32_t i = 0; elf_section(o->bytes, o->size, i, &name, &text, &n) > 0; i++) {
		if (strcmp(name, ".text"))
			continue;
		const uint8_t *at = memmem(text, n, want, sizeof(want));
		if (!at)
			return false;
		uint64_t file_at = (uint64_t)((const char *)at - o->bytes);
		Elf64_Ehdr h;
		memcpy(&h, o->bytes, sizeof(h));
		for (uint32_t k = 0; k < h.e_phnum; k++) {
			Elf64_Phdr ph;
			uint64_t from = h.e_phoff + (uint64_t)k * sizeof(ph);
			if (from > o->size - sizeof(ph))
				return false;
			memcpy(&ph, o->bytes + from, sizeof(ph));
			if (ph.p_type == PT_LOAD && file_at >= ph.p_offset &&
				file_at - ph.p_offset < ph.p_filesz) {
				c->restore_rt = o->bias + ph.p_vaddr + (file_at - ph.p_offset);
				return true;
			}
		}
	}
	return false;
}

int code_find(const struct inject_target *t, struct code *c, struct diag *d)
{
	struct object objects[3];
	struct search s = { &objects[0], &objects[1], &objects[2] };
	struct range r;
	int err;
	memset(objects, 0, sizeof(objects));
	memset(c, 0, sizeof(*c));
	err = each_mapping(t->pid, note, &s);
	if (!err)
		err = map_object(t->pid, s.libc);
	map_object(t->pid, s.libdl);
	map_object(t->pid, s.loader);
	if (err) {
		err = diag_set(d, -err, "process %d: its C library %s cannot be read", (int)t->pid,
			s.libc->path);
		goto out;
	}
	if (function(s.libc, "dlopen", &r) || function(s.libdl, "dlopen", &r)) {
		c->dlopen = r.from;
	} else if (function(s.libc, "__libc_dlopen_mode", &r)) {
		c->dlopen = r.from;
		c->private_dlopen = true;
	}
	if (!c->dlopen || !find_restore(c, s.libc)) {
		err = diag_set(d, ENOTSUP,
			"process %d: its C library %s is not one that egpu knows", (int)t->pid,
			s.libc->path);
		goto out;
	}
	c->libc = s.libc->text;
	c->loader = s.loader->text;
	add_locked(c, s.libc);
	add_locked(c, s.libdl);
out:
	for (int i = 0; i < 3; i++)
		unmap_object(&objects[i]);
	return err;
}
