/* code.c - where things are in the target: dlopen, the way back from a signal, and the functions in
 * which a thread may hold a lock that dlopen needs. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

static void note_part(struct object *o, const struct mapping *m)
{
	if (!m->offset && !o->first)
		o->first = m->start;
	if (m->exec) {
		o->text.from = o->text.from ? o->text.from : m->start;
		o->text.to = m->end;
	}
}

static int note(const struct mapping *m, void *arg)
{
	struct object *o = m->path[0] == '/' ? which(arg, base_name(m->path)) : NULL;
	if (!o || (o->path[0] && strcmp(o->path, m->path)))
		return 0;
	snprintf(o->path, sizeof(o->path), "%s", m->path);
	note_part(o, m);
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

/* Who is inside the allocator or the loader has one of these on its stack. The first run functions of the program while
 * they hold a lock. */
static const char *const locking[] = { "fork", "__libc_fork", "vfork", "dlopen", "dlclose", "dlsym", "dlvsym", "dladdr", "dladdr1",
	"dlinfo", "dlmopen", "dl_iterate_phdr", "__libc_dlopen_mode", "__libc_dlclose", "__libc_dlsym", "pthread_create",
	"pthread_exit", "exit", "_exit", "quick_exit", "__cxa_finalize", "pthread_getattr_np", "_dl_mcount", "abort" };
static const char *const brief[] = { "malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "valloc",
	"pvalloc", "malloc_trim", "mallinfo", "mallinfo2", "malloc_info", "malloc_stats", "cfree", "reallocarray",
	"__cxa_thread_atexit_impl", "__tls_get_addr" };

static void add_ranges(const struct object *o, const char *const *names, size_t n, struct range *to, uint32_t *count)
{
	for (size_t i = 0; i < n; i++)
		if (*count < MAX_RANGES && function(o, names[i], &to[*count]))
			++*count;
}

static void add_locked(struct code *c, const struct object *o)
{
	add_ranges(o, locking, sizeof(locking) / sizeof(locking[0]), c->locked, &c->n_locked);
	add_ranges(o, brief, sizeof(brief) / sizeof(brief[0]), c->brief, &c->n_brief);
}

/* -- an allocator in the C library's place ------------------------------------------- */

static const char *const family[] = { "malloc", "free", "calloc", "realloc", "memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc",
	"reallocarray", "cfree", "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm" };

/* Where the C library's own calls of malloc go; 0: not known. */
static uint64_t bound_malloc(pid_t pid, const struct object *libc)
{
	static const char *const tables[] = { ".rela.dyn", ".rela.plt" };
	const uint8_t *syms, *names, *rels;
	uint64_t n_syms, n_names, n, to = 0;
	if (!section(libc, ".dynsym", &syms, &n_syms) || !section(libc, ".dynstr", &names, &n_names) || !n_names || names[n_names - 1])
		return 0;
	for (size_t k = 0; k < sizeof(tables) / sizeof(tables[0]); k++) {
		if (!section(libc, tables[k], &rels, &n))
			continue;
		for (uint64_t i = 0; i + sizeof(Elf64_Rela) <= n; i += sizeof(Elf64_Rela)) {
			Elf64_Rela r;
			Elf64_Sym s;
			memcpy(&r, rels + i, sizeof(r));
			uint64_t at = ELF64_R_SYM(r.r_info);
			if (!at || at >= n_syms / sizeof(s))
				continue;
			memcpy(&s, syms + at * sizeof(s), sizeof(s));
			if (s.st_name < n_names && !strcmp((const char *)names + s.st_name, "malloc") &&
				read_memory(pid, libc->bias + r.r_offset, &to, sizeof(to)) == sizeof(to))
				return to;
		}
	}
	return 0;
}

struct place {
	uint64_t at, inode;
	char path[PATH_MAX];
};

static int note_place(const struct mapping *m, void *arg)
{
	struct place *p = arg;
	if (p->at < m->start || p->at >= m->end)
		return 0;
	snprintf(p->path, sizeof(p->path), "%s", m->path);
	p->inode = m->inode;
	return 1;
}

static int note_object(const struct mapping *m, void *arg)
{
	struct object *o = arg;
	if (!strcmp(o->path, m->path))
		note_part(o, m);
	return 0;
}

static int note_vdso(const struct mapping *m, void *arg)
{
	if (strcmp(m->path, "[vdso]"))
		return 0;
	*(struct range *)arg = (struct range){ m->start, m->end };
	return 1;
}

/* A thread that is inside it may hold its locks. A library of its own does little else; what is the program itself, or a checker's
 * runtime, is asked about its functions' names. */
static void find_allocator(pid_t pid, struct code *c, const struct object *libc)
{
	struct place p = { .at = bound_malloc(pid, libc) };
	struct object o = { 0 };
	struct range checker;
	struct stat program;
	char exe[64];
	if (!p.at || (p.at >= libc->text.from && p.at < libc->text.to) || each_mapping(pid, note_place, &p) || p.path[0] != '/')
		return;
	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
	memcpy(o.path, p.path, sizeof(o.path));
	if (stat(exe, &program) || each_mapping(pid, note_object, &o) || map_object(pid, &o))
		return;
	if (program.st_ino == p.inode || function(&o, "__sanitizer_print_stack_trace", &checker))
		add_ranges(&o, family, sizeof(family) / sizeof(family[0]), c->family, &c->n_family);
	else
		c->allocator = o.text;
	unmap_object(&o);
}

/* Where in memory a byte of the file is; 0: nowhere. */
static uint64_t address_of(const struct object *o, uint64_t file_at)
{
	Elf64_Ehdr h;
	memcpy(&h, o->bytes, sizeof(h));
	for (uint32_t k = 0; k < h.e_phnum; k++) {
		Elf64_Phdr ph;
		uint64_t from = h.e_phoff + (uint64_t)k * sizeof(ph);
		if (from > o->size - sizeof(ph))
			return 0;
		memcpy(&ph, o->bytes + from, sizeof(ph));
		if (ph.p_type == PT_LOAD && file_at >= ph.p_offset && file_at - ph.p_offset < ph.p_filesz)
			return o->bias + ph.p_vaddr + (file_at - ph.p_offset);
	}
	return 0;
}

/* The address of these bytes in its code; 0: they are not there. */
static uint64_t find_code(const struct object *o, const uint8_t *want, size_t n)
{
	const uint8_t *text;
	uint64_t bytes;
	const uint8_t *at = section(o, ".text", &text, &bytes) ? memmem(text, bytes, want, n) : NULL;
	return at ? address_of(o, (uint64_t)((const char *)at - o->bytes)) : 0;
}

/* An instruction's 32-bit offset from the address behind it, which is `end`. */
static uint64_t relative(const uint8_t *at, uint64_t end)
{
	int32_t rel;
	memcpy(&rel, at, sizeof(rel));
	return end + (uint64_t)(int64_t)rel;
}

/* errno lies at a fixed distance from the thread's pointer, which __errno_location reads from a slot in one of two
 * ways. */
static void find_errno(struct code *c, const struct object *o)
{
	static const uint8_t load[] = { 0x48, 0x8b, 0x05 }, add_fs[] = { 0x64, 0x48, 0x03, 0x04, 0x25, 0, 0, 0, 0, 0xc3 },
			     load_fs[] = { 0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0 }, add[] = { 0x48, 0x03, 0x05 },
			     endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	enum { MOST = 4 + 9 + 3 + 4 + 1 };
	struct range r;
	if (!function(o, "__errno_location", &r))
		return;
	const uint8_t *text, *at;
	uint64_t bytes, here = r.from;
	if (!section(o, ".text", &text, &bytes))
		return;
	uint64_t begin = address_of(o, (uint64_t)((const char *)text - o->bytes));
	if (!begin || here < begin || here - begin > bytes || bytes - (here - begin) < MOST)
		return;
	at = text + (here - begin);
	if (!memcmp(at, endbr, sizeof(endbr))) {
		at += sizeof(endbr);
		here += sizeof(endbr);
	}
	if (!memcmp(at, load, 3) && !memcmp(at + 7, add_fs, sizeof(add_fs)))
		c->errno_slot = relative(at + 3, here + 7);
	else if (!memcmp(at, load_fs, 9) && !memcmp(at + 9, add, 3) && at[16] == 0xc3)
		c->errno_slot = relative(at + 12, here + 16);
}

static void find_store(struct code *c, const struct object *o)
{
	static const uint8_t ways[][3] = { { 0x89, 0x17, 0xc3 }, { 0x89, 0x0f, 0xc3 }, { 0x89, 0x37, 0xc3 } };
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]) && !c->store; i++)
		c->store = find_code(o, ways[i], sizeof(ways[i]));
}

const uint8_t code_restore[9] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };

/* What is at an address of its code, as far as the file has it. */
static void copy_code(const struct object *o, uint64_t at, uint8_t *to, size_t n)
{
	const uint8_t *text;
	uint64_t bytes, begin;
	if (!o->bytes || !section(o, ".text", &text, &bytes))
		return;
	begin = address_of(o, (uint64_t)((const char *)text - o->bytes));
	if (begin && at >= begin && at - begin < bytes && bytes - (at - begin) >= n)
		memcpy(to, text + (at - begin), n);
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
	copy_code(s.libc, c->dlopen, c->dlopen_code, sizeof(c->dlopen_code));
	copy_code(s.libdl, c->dlopen, c->dlopen_code, sizeof(c->dlopen_code));
	c->restore_rt = find_code(s.libc, code_restore, sizeof(code_restore));
	if (!c->dlopen || !c->restore_rt) {
		err = diag_set(d, ENOTSUP,
			"process %d: its C library %s is not one that egpu knows", (int)t->pid,
			s.libc->path);
		goto out;
	}
	find_errno(c, s.libc);
	find_store(c, s.libc);
	c->libc = s.libc->text;
	c->loader = s.loader->text;
	add_locked(c, s.libc);
	add_locked(c, s.libdl);
	find_allocator(t->pid, c, s.libc);
	each_mapping(t->pid, note_vdso, &c->vdso);
out:
	for (int i = 0; i < 3; i++)
		unmap_object(&objects[i]);
	return err;
}
