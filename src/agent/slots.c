/* slots.c - where a running process keeps pointers to the driver's functions.
 *
 * cuGetProcAddress and dlsym give one address for a function, so one value is looked for in each
 * place:
 *   - writable private memory: tables of the CUDA runtime, variables of programs, the heap;
 *   - GOT entries that the loader has made read-only after relocation;
 *   - GOT entries that the loader has not resolved yet, which are known by their relocation.
 * The driver's own memory and ours are left out: there the values mean something else.
 *
 * A slot is eight aligned bytes and changes with one store, so nobody needs to be stopped. Memory
 * is read through process_vm_readv, since others may unmap it meanwhile.
 */
#include <elf.h>
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

enum { MAX_PAIRS = 1024, CHUNK = 1 << 20, MAX_SKIPPED = 64 };

struct range {
	uintptr_t from, to;
};

/* In our own data, which is not searched. One thread at a time uses it. */
static struct {
	struct hook_pair pairs[MAX_PAIRS];
	size_t n;
	uintptr_t low, high; /* of what is looked for */
	bool on;
	struct range skip[MAX_SKIPPED];
	uint32_t n_skip;
	size_t changed;
	uintptr_t words[CHUNK / sizeof(uintptr_t)];
} s;

static void *wanted(const struct hook_pair *p)
{
	return s.on ? p->hook : p->real;
}

static void *present(const struct hook_pair *p)
{
	return s.on ? p->real : p->hook;
}

/* In place: qsort's copy on the heap would be found by the search. */
static void sort_pairs(void)
{
	for (size_t i = 1; i < s.n; i++)
		for (size_t k = i; k && present(&s.pairs[k]) < present(&s.pairs[k - 1]); k--) {
			struct hook_pair t = s.pairs[k];
			s.pairs[k] = s.pairs[k - 1];
			s.pairs[k - 1] = t;
		}
}

/* What belongs in place of a value; NULL: it is none of ours. */
static void *replacement(uintptr_t value)
{
	size_t low = 0, high = s.n;
	if (value < s.low || value > s.high)
		return NULL;
	while (low < high) {
		size_t mid = (low + high) / 2;
		uintptr_t at = (uintptr_t)present(&s.pairs[mid]);
		if (at == value)
			return wanted(&s.pairs[mid]);
		if (at < value)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

static bool skipped(uintptr_t at, uintptr_t *end)
{
	for (uint32_t i = 0; i < s.n_skip; i++)
		if (at >= s.skip[i].from && at < s.skip[i].to) {
			*end = s.skip[i].to;
			return true;
		}
	return false;
}

static void skip(uintptr_t from, uintptr_t to)
{
	if (s.n_skip < MAX_SKIPPED)
		s.skip[s.n_skip++] = (struct range){ from, to };
}

static size_t read_words(uintptr_t at, size_t bytes)
{
	struct iovec here = { s.words, bytes }, there = { (void *)at, bytes };
	ssize_t n = syscall(SYS_process_vm_readv, (long)getpid(), &here, 1L, &there, 1L, 0L);
	return n > 0 ? (size_t)n : 0;
}

static void put(uintptr_t at, uintptr_t old, void *new, bool read_only)
{
	uintptr_t page = at & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	if (read_only && mprotect((void *)page, size, PROT_READ | PROT_WRITE))
		return;
	if (__atomic_compare_exchange_n((uintptr_t *)at, &old, (uintptr_t) new, false,
		    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		s.changed++;
	if (read_only)
		mprotect((void *)page, size, PROT_READ);
}

/* Bits 63 and 62 of a page's word in pagemap: in memory, swapped out. */
size_t memory_run(uintptr_t at, uintptr_t to, uintptr_t *from)
{
	enum { WORDS = 4096 };
	static uint64_t words[WORDS]; /* one thread searches */
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	*from = at;
	while (at < to && !length) {
		size_t n = (to - (at & ~(page - 1)) + page - 1) / page;
		n = n < WORDS ? n : WORDS;
		ssize_t got = fd < 0 ? -1 : pread(fd, words, n * 8, (off_t)(at / page * 8));
		if (got <= 0) { /* it does not tell */
			*from = at;
			length = to - at < CHUNK ? to - at : CHUNK;
			break;
		}
		n = (size_t)got / 8;
		size_t i = 0;
		while (i < n && !(words[i] >> 62))
			i++;
		uintptr_t base = at & ~(page - 1), end = base + i * page;
		if (i == n) {
			at = base + n * page;
			continue;
		}
		*from = i ? end : at;
		while (i < n && words[i] >> 62 && base + i * page - *from < CHUNK)
			i++;
		end = base + i * page;
		length = (end < to ? end : to) - *from;
	}
	if (fd >= 0)
		close(fd);
	return length > CHUNK ? CHUNK : length;
}

static void search(uintptr_t from, uintptr_t to, bool read_only)
{
	for (uintptr_t at = (from + 7) & ~(uintptr_t)7; at + 8 <= to;) {
		uintptr_t end;
		if (skipped(at, &end)) {
			at = end;
			continue;
		}
		size_t want = memory_run(at, to, &at) & ~(size_t)7;
		if (!want)
			break;
		size_t n = read_words(at, want);
		for (size_t i = 0; i < n / 8; i++) {
			void *new = replacement(s.words[i]);
			uintptr_t place = at + i * 8;
			if (new && !skipped(place, &end))
				put(place, s.words[i], new, read_only);
		}
		at += n ? n & ~(size_t)7 : want;
	}
}

/* -- loaded files --------------------------------------------------------------------- */

static const struct hook_pair *pair_named(const char *symbol)
{
	for (size_t i = 0; i < s.n; i++)
		if (!strcmp(s.pairs[i].symbol, symbol))
			return &s.pairs[i];
	return NULL;
}

struct object {
	uintptr_t bias;
	const ElfW(Phdr) * ph;
	size_t n;
};

static bool holds(const struct object *o, uintptr_t at)
{
	for (size_t i = 0; i < o->n; i++)
		if (o->ph[i].p_type == PT_LOAD && at >= o->bias + o->ph[i].p_vaddr &&
			at - o->bias - o->ph[i].p_vaddr < o->ph[i].p_memsz)
			return true;
	return false;
}

/* Calls that the program has not made yet go through a stub in its own file. */
static void unresolved(const struct object *o)
{
	const ElfW(Dyn) *dyn = NULL;
	const ElfW(Rela) *rela = NULL;
	const ElfW(Sym) *syms = NULL;
	const char *names = NULL;
	size_t bytes = 0;
	for (size_t i = 0; i < o->n; i++)
		if (o->ph[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(o->bias + o->ph[i].p_vaddr);
	for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
		if (dyn->d_tag == DT_JMPREL)
			rela = (const void *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_PLTRELSZ)
			bytes = dyn->d_un.d_val;
		else if (dyn->d_tag == DT_SYMTAB)
			syms = (const void *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_STRTAB)
			names = (const void *)dyn->d_un.d_ptr;
		else if (dyn->d_tag == DT_PLTREL && dyn->d_un.d_val != DT_RELA)
			return;
	}
	if (!rela || !syms || !names || !holds(o, (uintptr_t)rela) || !holds(o, (uintptr_t)syms))
		return;
	for (size_t i = 0; i < bytes / sizeof(*rela); i++) {
		const char *name = names + syms[ELF64_R_SYM(rela[i].r_info)].st_name;
		uintptr_t at = o->bias + rela[i].r_offset;
		const struct hook_pair *p =
			name[0] == 'c' && name[1] == 'u' ? pair_named(name) : NULL;
		if (!p || !holds(o, at) || at % 8)
			continue;
		uintptr_t value = __atomic_load_n((uintptr_t *)at, __ATOMIC_RELAXED);
		if (holds(o, value))
			put(at, value, p->hook, false);
	}
}

static int one_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object o = { info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum };
	uintptr_t end;
	for (size_t i = 0; i < o.n; i++)
		if (o.ph[i].p_type == PT_LOAD && skipped(o.bias + o.ph[i].p_vaddr, &end))
			return 0;
	for (size_t i = 0; i < o.n; i++) {
		uintptr_t from = o.bias + o.ph[i].p_vaddr;
		if (o.ph[i].p_type == PT_GNU_RELRO)
			search(from & ~(uintptr_t)4095, (from + o.ph[i].p_memsz) & ~(uintptr_t)4095,
				true);
	}
	uintptr_t relro_from = 0, relro_to = 0;
	for (size_t i = 0; i < o.n; i++)
		if (o.ph[i].p_type == PT_GNU_RELRO) {
			relro_from = o.bias + o.ph[i].p_vaddr;
			relro_to = (relro_from + o.ph[i].p_memsz) & ~(uintptr_t)4095;
		}
	for (size_t i = 0; i < o.n; i++) {
		uintptr_t from = o.bias + o.ph[i].p_vaddr, to = from + o.ph[i].p_memsz;
		if (o.ph[i].p_type != PT_LOAD || !(o.ph[i].p_flags & PF_W))
			continue;
		if (relro_to > from && relro_to <= to)
			from = relro_to;
		search(from, to, false);
	}
	if (s.on)
		unresolved(&o);
	return 0;
}

/* Ourselves and the driver: by an address in each. */
static int leave_out(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object o = { info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum };
	if (!holds(&o, (uintptr_t)&s) && !holds(&o, (uintptr_t)s.pairs[0].real))
		return 0;
	for (size_t i = 0; i < o.n; i++)
		if (o.ph[i].p_type == PT_LOAD)
			skip((o.bias + o.ph[i].p_vaddr) & ~(uintptr_t)4095,
				(o.bias + o.ph[i].p_vaddr + o.ph[i].p_memsz + 4095) &
					~(uintptr_t)4095);
	return 0;
}

/* -- all memory ------------------------------------------------------------------------ */

/* Private, writable, and of no file or of one: the heap, bss, thread-local storage, stacks. The
 * stack that we run on is ours. */
static void everywhere(void)
{
	char *line = NULL;
	size_t room = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	uintptr_t here = (uintptr_t)&f;
	while (f && getline(&line, &room, f) > 0) {
		unsigned long from, to;
		char perms[8];
		int at = 0;
		if (sscanf(line, "%lx-%lx %7s %*x %*s %*s %n", &from, &to, perms, &at) < 3)
			continue;
		const char *path = at ? line + at : "";
		if (strncmp(perms, "rw-p", 4) || (here >= from && here < to) ||
			!strncmp(path, "/dev/", 5) || !strncmp(path, "[v", 2))
			continue;
		search(from, to, false);
	}
	free(line);
	if (f)
		fclose(f);
}

size_t slots_swap(bool on, bool all)
{
	s.n = resolve_pairs(s.pairs, MAX_PAIRS);
	s.on = on;
	s.n_skip = 0;
	s.changed = 0;
	if (!s.n)
		return 0;
	sort_pairs();
	s.low = (uintptr_t)present(&s.pairs[0]);
	s.high = (uintptr_t)present(&s.pairs[s.n - 1]);
	dl_iterate_phdr(leave_out, NULL);
	dl_iterate_phdr(one_object, NULL);
	if (all)
		everywhere();
	return s.changed;
}
