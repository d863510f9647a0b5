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

struct span {
	uintptr_t from, to;
	bool read_only;
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
	struct span *spans; /* of all memory, the smallest first; those from at_span on are to be searched */
	size_t n_spans, cap_spans, at_span;
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

/* Words of pagemap, and what is asked about a page. */
enum { PAGE_WORDS = 4096 };
#define PAGE_THERE (3ull << 62) /* in memory, or swapped out */
#define PAGE_OF_FILE (1ull << 61) /* nobody has written to it here */

static struct {
	uintptr_t from, end, to; /* pages that words[] tells about, for a search up to `to` */
	uint64_t words[PAGE_WORDS];
	int fd;
} pages = { .fd = -1 }; /* one thread searches */

void memory_search_begin(void)
{
	pages.from = pages.end = 0;
	pages.fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

void memory_search_end(void)
{
	if (pages.fd >= 0)
		close(pages.fd);
	pages.fd = -1;
}

void memory_each(void (*fn)(const struct mapping *m, void *arg), void *arg)
{
	char *line = NULL;
	size_t room = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && getline(&line, &room, f) > 0) {
		unsigned long from, to;
		char perms[8];
		int at = 0;
		if (sscanf(line, "%lx-%lx %7s %*x %*s %*s %n", &from, &to, perms, &at) < 3)
			continue;
		const char *path = at ? line + at : "";
		if (perms[0] == 'r' && perms[3] == 'p' && strncmp(path, "/dev/", 5) && strncmp(path, "[v", 2))
			fn(&(struct mapping){ from, to, perms[1] == 'w', perms[2] == 'x', path }, arg);
	}
	free(line);
	if (f)
		fclose(f);
}

static bool know_pages(uintptr_t at, uintptr_t to, size_t page)
{
	if (at >= pages.from && at < pages.end && to == pages.to)
		return true;
	size_t n = (to - at + page - 1) / page;
	n = n < PAGE_WORDS ? n : PAGE_WORDS;
	ssize_t got = pages.fd < 0 ? -1 : pread(pages.fd, pages.words, n * 8, (off_t)(at / page * 8));
	if (got < 8)
		return false;
	pages.from = at;
	pages.end = at + (size_t)got / 8 * page;
	pages.to = to;
	return true;
}

size_t memory_run(uintptr_t at, uintptr_t to, bool written, uintptr_t *from)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), length = 0;
	uintptr_t next = at & ~(page - 1);
	for (; next < to && length < CHUNK; next += page) {
		if (!know_pages(next, to, page)) { /* it does not tell */
			*from = length ? *from : at;
			return to - *from < CHUNK ? to - *from : CHUNK;
		}
		uint64_t word = pages.words[(next - pages.from) / page];
		bool there = word & PAGE_THERE && !(written && word & PAGE_OF_FILE);
		if (!there && length)
			break;
		if (!there)
			continue;
		if (!length)
			*from = next > at ? next : at;
		length = (next + page < to ? next + page : to) - *from;
	}
	return length < CHUNK ? length : CHUNK;
}

/* Nearly all words are none of the driver's addresses: a few at a time are told so without a branch. */
enum { GROUP = 16 };

static bool any_near(const uintptr_t *words, size_t n)
{
	uintptr_t span = s.high - s.low;
	unsigned int near = 0;
	if (n < GROUP)
		return true;
	for (int i = 0; i < GROUP; i++)
		near |= words[i] - s.low <= span;
	return near;
}

static void look_at(uintptr_t at, const uintptr_t *words, size_t n, bool read_only)
{
	uintptr_t end;
	for (size_t i = 0; i < n && i < GROUP; i++) {
		void *new = replacement(words[i]);
		if (new && !skipped(at + i * 8, &end))
			put(at + i * 8, words[i], new, read_only);
	}
}

static void search(uintptr_t from, uintptr_t to, bool read_only)
{
	for (uintptr_t at = (from + 7) & ~(uintptr_t)7; at + 8 <= to;) {
		uintptr_t end;
		if (skipped(at, &end)) {
			at = end;
			continue;
		}
		size_t want = memory_run(at, to, true, &at) & ~(size_t)7;
		if (!want)
			break;
		size_t n = read_words(at, want);
		for (size_t i = 0; i < n / 8; i += GROUP)
			if (any_near(&s.words[i], n / 8 - i))
				look_at(at + i * 8, &s.words[i], n / 8 - i, read_only);
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

/* Private, and of no file or of one: the heap, bss, thread-local storage, stacks; what the program has made
 * read-only too. The stack that we run on is ours. Memory that is shared with other processes is left
 * alone: our functions are not in those. */
static void add_span(const struct mapping *m, void *arg)
{
	uintptr_t here = (uintptr_t)&here;
	if ((here >= m->from && here < m->to) || (!m->writable && m->executable))
		return;
	if (s.n_spans == s.cap_spans) {
		size_t more = s.cap_spans ? s.cap_spans * 2 : 1024;
		void *list = realloc(s.spans, more * sizeof(*s.spans));
		if (!list)
			return;
		s.spans = list;
		s.cap_spans = more;
	}
	s.spans[s.n_spans++] = (struct span){ m->from, m->to, !m->writable };
}

static void list_spans(void)
{
	s.n_spans = 0;
	memory_each(add_span, NULL);
}

static int by_size(const void *a, const void *b)
{
	const struct span *x = a, *y = b;
	return x->to - x->from < y->to - y->from ? -1 : x->to - x->from > y->to - y->from;
}

bool slots_begin(bool on, bool all)
{
	s.n = resolve_pairs(s.pairs, MAX_PAIRS);
	s.on = on;
	s.n_skip = 0;
	s.changed = 0;
	s.n_spans = s.at_span = 0;
	if (!s.n)
		return false;
	sort_pairs();
	s.low = (uintptr_t)present(&s.pairs[0]);
	s.high = (uintptr_t)present(&s.pairs[s.n - 1]);
	memory_search_begin();
	dl_iterate_phdr(leave_out, NULL);
	dl_iterate_phdr(one_object, NULL);
	memory_search_end();
	if (all)
		list_spans();
	/* Tables are small, data is large. */
	if (s.n_spans)
		qsort(s.spans, s.n_spans, sizeof(*s.spans), by_size);
	return true;
}

bool slots_more(uint64_t until_ns, size_t *changed)
{
	enum { PIECE = 8 << 20 };
	bool time = true;
	memory_search_begin();
	while (s.at_span < s.n_spans && (time = now_ns() < until_ns)) {
		struct span *p = &s.spans[s.at_span];
		uintptr_t to = p->to - p->from > PIECE ? p->from + PIECE : p->to;
		search(p->from, to, p->read_only);
		p->from = to;
		s.at_span += to == p->to;
	}
	memory_search_end();
	*changed = s.changed;
	return s.at_span == s.n_spans;
}

size_t slots_swap(bool on, bool all)
{
	size_t changed = 0;
	if (slots_begin(on, all))
		slots_more(UINT64_MAX, &changed);
	return changed;
}
