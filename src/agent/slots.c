/* slots.c - where a running process keeps pointers to the driver's functions.
 *
 * cuGetProcAddress and dlsym give one address for a function, so one value is looked for in each
 * place:
 *   - writable private memory: tables of the CUDA runtime, variables of programs, the heap;
 *   - GOT entries that the loader has made read-only after relocation;
 *   - GOT entries that the loader has not resolved yet, which are known by their relocation.
 * The driver's own memory and ours are left out: there the values mean something else.
 *
 * A slot is eight aligned bytes and changes with one store, so nobody needs to be stopped.
 */
#include <elf.h>
#include <link.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"

enum { MAX_PAIRS = 1024, MAX_SKIPPED = 64 };

struct range {
	uintptr_t from, to;
};

/* In our own data, which is not searched. Written by one thread, between searches. */
static struct {
	struct hook_pair pairs[MAX_PAIRS];
	size_t n;
	uintptr_t low, high; /* of what is looked for */
	bool on;
	struct range skip[MAX_SKIPPED];
	uint32_t n_skip;
	atomic_size_t changed;
	struct lock protecting; /* pages that are made writable for a moment */
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

static bool skipped(uintptr_t at)
{
	for (uint32_t i = 0; i < s.n_skip; i++)
		if (at >= s.skip[i].from && at < s.skip[i].to)
			return true;
	return false;
}

static void skip(uintptr_t from, uintptr_t to)
{
	if (s.n_skip < MAX_SKIPPED)
		s.skip[s.n_skip++] = (struct range){ from, to };
}

/* Whether a store there would not fault: what was listed as memory may be gone by now, or protected, as the loader does with a library's
 * pointers. The kernel tries it for us, and changes nothing. */
static bool is_writable(uintptr_t at)
{
	uint32_t nobody = 0;
	return syscall(SYS_futex, &nobody, FUTEX_WAKE_OP_PRIVATE, 0L, 0L, (void *)at, FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)) >= 0;
}

static void put(uintptr_t at, uintptr_t old, void *new, bool read_only)
{
	uintptr_t page = at & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	if (read_only)
		lock_take(&s.protecting);
	bool open = is_writable(at), opened = !open && read_only && !mprotect((void *)page, size, PROT_READ | PROT_WRITE);
	if ((open || opened) &&
		__atomic_compare_exchange_n((uintptr_t *)at, &old, (uintptr_t) new, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		s.changed++;
	if (opened)
		mprotect((void *)page, size, PROT_READ);
	if (read_only)
		lock_drop(&s.protecting);
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
	for (size_t i = 0; i < n && i < GROUP; i++) {
		void *new = replacement(words[i]);
		if (new && !skipped(at + i * 8) && !memory_is_ours(at + i * 8))
			put(at + i * 8, words[i], new, read_only);
	}
}

void slots_see(const struct memory_part *p, uintptr_t at, const char *bytes, size_t n)
{
	const uintptr_t *words = (const void *)bytes;
	for (size_t i = 0; i < n / 8; i += GROUP)
		if (any_near(&words[i], n / 8 - i))
			look_at(at + i * 8, &words[i], n / 8 - i, p->read_only);
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

/* What the loader has made read-only begins and ends with a page; the rest of its segment is data. */
static void add_data(uintptr_t from, uintptr_t to, bool read_only)
{
	memory_add(&(struct memory_part){ from & ~(uintptr_t)4095, read_only ? to & ~(uintptr_t)4095 : to, 0, to,
		MEMORY_SLOTS, read_only });
}

static int one_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object o = { info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum };
	uintptr_t relro_from = 0, relro_to = 0;
	for (size_t i = 0; i < o.n; i++)
		if (o.ph[i].p_type == PT_LOAD && skipped(o.bias + o.ph[i].p_vaddr))
			return 0;
	for (size_t i = 0; i < o.n; i++)
		if (o.ph[i].p_type == PT_GNU_RELRO) {
			relro_from = o.bias + o.ph[i].p_vaddr;
			relro_to = (relro_from + o.ph[i].p_memsz) & ~(uintptr_t)4095;
			add_data(relro_from, relro_to, true);
		}
	for (size_t i = 0; i < o.n; i++) {
		uintptr_t from = o.bias + o.ph[i].p_vaddr, to = from + o.ph[i].p_memsz;
		if (o.ph[i].p_type != PT_LOAD || !(o.ph[i].p_flags & PF_W))
			continue;
		if (relro_to > from && relro_to <= to)
			from = relro_to;
		add_data(from, to, false);
	}
	return 0;
}

static int one_unresolved(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct object o = { info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum };
	if (!o.n || !skipped(o.bias + o.ph[0].p_vaddr))
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
 * read-only too. Memory that is shared with other processes is left alone: our functions are not in those. */
bool slots_wants(const struct mapping *m)
{
	return m->writable || !m->executable;
}

bool slots_begin(bool on)
{
	s.n = resolve_pairs(s.pairs, MAX_PAIRS);
	s.on = on;
	s.n_skip = 0;
	s.changed = 0;
	if (!s.n)
		return false;
	sort_pairs();
	s.low = (uintptr_t)present(&s.pairs[0]);
	s.high = (uintptr_t)present(&s.pairs[s.n - 1]);
	memory_open();
	dl_iterate_phdr(leave_out, NULL);
	if (on)
		dl_iterate_phdr(one_unresolved, NULL);
	return true;
}

void slots_add_files(void)
{
	dl_iterate_phdr(one_object, NULL);
}

size_t slots_changed(void)
{
	return s.changed;
}

size_t slots_swap(bool on)
{
	if (!slots_begin(on))
		return 0;
	memory_add_all(MEMORY_SLOTS);
	memory_sweep();
	memory_wait();
	return s.changed;
}
