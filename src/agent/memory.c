/* memory.c - the process's own memory, looked through by threads of ours.
 *
 * What is looked for is given with each part: pointers to the driver (slots.c), PTX (memtext.c), or both, so that nothing
 * is read twice; or machine code for devices (memcode.c). Parts are handed out in pieces, the smallest parts first: tables are small, data is large. A large process has
 * gigabytes, of which only pages are read that are in memory.
 *
 * Memory is read by process_vm_readv(2), since others may unmap it meanwhile. What we read into is a shared mapping, so that it is no
 * part of what we look through; of a thread's own stack the words around its frames are left out by memory_is_ours().
 */
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/agent.h"

enum {
	CHUNK = 256 << 10, /* stays in the cache while it is looked at */
	PIECE = 4 << 20,
	PAGE = 4096,
	MAX_WORKERS = AGENT_MAX_HELPERS,
	FRAMES_BELOW = 128 << 10, /* of a thread of ours, from where it began */
	FRAMES_ABOVE = 1 << 10,	  /* the C library's own are larger, and other memory may lie behind them */
};

#define SPARSE (1ull << 30) /* bytes of a mapping of which most may never have been touched */
#define MOST (1ull << 40)

/* Words of pagemap, and what is asked about a page. */
#define PAGE_THERE (3ull << 62) /* in memory, or swapped out */
#define PAGE_OF_FILE (1ull << 61) /* nobody has written to it here */

struct reader {
	int pagemap;
	uint64_t pages[PIECE / PAGE + 1]; /* what it says about the piece, and the page behind */
	size_t n_pages;		      /* 0: it does not tell */
	char bytes[CHUNK + MEMORY_MORE];
};

static struct {
	struct lock lock;
	struct memory_part *parts; /* those from `at` on are to be looked through, parts[at] from its .from on */
	size_t n, cap, at;
	atomic_int going, left; /* workers that began, and that have come to their end */
	atomic_int go;
	pthread_t workers[MAX_WORKERS];
	uintptr_t stacks[MAX_WORKERS + 1]; /* the last: of who looks without a thread of ours */
	struct reader *own;
	bool begun;
} s;

size_t memory_read(uintptr_t at, void *to, size_t bytes)
{
	struct iovec here = { to, bytes }, there = { (void *)at, bytes };
	ssize_t n = syscall(SYS_process_vm_readv, (long)getpid(), &here, 1L, &there, 1L, 0L);
	return n > 0 ? (size_t)n : 0;
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

bool memory_is_ours(uintptr_t at)
{
	for (int i = 0; i <= MAX_WORKERS; i++)
		if (at >= s.stacks[i] - FRAMES_BELOW && at < s.stacks[i] + FRAMES_ABOVE)
			return true;
	return false;
}

/* -- one piece ------------------------------------------------------------------------- */

static struct reader *reader_new(void)
{
	struct reader *r =
		mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r == MAP_FAILED)
		return NULL;
	madvise(r, sizeof(*r), MADV_DONTFORK);
	r->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	return r;
}

static void reader_free(struct reader *r)
{
	if (!r)
		return;
	if (r->pagemap >= 0)
		close(r->pagemap);
	munmap(r, sizeof(*r));
}

/* A process that acts as another user may not read its own pagemap; mincore(2) tells less, but what nobody has touched. */
static size_t ask_mincore(struct reader *r, const struct memory_part *p, size_t n)
{
	unsigned char in[PIECE / PAGE + 1];
	if (mincore((void *)p->from, n * PAGE, in))
		return 0;
	for (size_t i = 0; i < n; i++)
		r->pages[i] = in[i] & 1 ? PAGE_THERE : 0;
	return n;
}

static void know_pages(struct reader *r, const struct memory_part *p)
{
	size_t n = (p->to - p->from + PAGE - 1) / PAGE + (p->to < p->end);
	ssize_t got = r->pagemap < 0 ? 0 : pread(r->pagemap, r->pages, n * 8, (off_t)(p->from / PAGE * 8));
	r->n_pages = got == (ssize_t)(n * 8) ? n : ask_mincore(r, p, n);
}

/* Whether the page is worth reading. */
static bool there(const struct reader *r, const struct memory_part *p, uintptr_t at)
{
	if (!r->n_pages)
		return true;
	uint64_t word = r->pages[(at - (p->from & ~(uintptr_t)(PAGE - 1))) / PAGE];
	return word & PAGE_THERE && !(p->what == MEMORY_SLOTS && word & PAGE_OF_FILE);
}

/* The next run of pages to be read, at most a chunk of them. False: there is none. */
static bool next_run(const struct reader *r, const struct memory_part *p, uintptr_t at, uintptr_t *from, uintptr_t *to)
{
	uintptr_t next = at & ~(uintptr_t)(PAGE - 1);
	for (; next < p->to && !there(r, p, next); next += PAGE)
		;
	*from = next > at ? next : at;
	for (; next < p->to && next - *from < CHUNK && there(r, p, next); next += PAGE)
		;
	*to = next < p->to ? next : p->to;
	if (*to > *from && *to - *from > CHUNK)
		*to = *from + CHUNK;
	return *to > *from;
}

static void look_through(struct reader *r, const struct memory_part *p)
{
	uintptr_t at = p->from, from, to;
	know_pages(r, p);
	for (; next_run(r, p, at, &from, &to); at = to) {
		/* What is looked for may lie across the border. */
		bool goes_on = p->what & (MEMORY_TEXT | MEMORY_CODE) && to < p->end && there(r, p, to);
		size_t want = to - from, n = memory_read(from, r->bytes, want + (goes_on ? MEMORY_MORE : 0));
		if (n && n < want) /* it is gone from some page on */
			to = ((from + n) & ~(uintptr_t)(PAGE - 1)) + PAGE;
		if (p->what & MEMORY_SLOTS)
			slots_see(p, from, r->bytes, n < want ? n : want);
		if (p->what & MEMORY_TEXT)
			memtext_see(p, from, r->bytes, n);
		if (p->what & MEMORY_CODE)
			memcode_see(from, r->bytes, n);
	}
}

/* -- all of them ------------------------------------------------------------------------- */

static void add_one(const struct memory_part *p)
{
	if (s.n == s.cap) {
		size_t more = s.cap ? s.cap * 2 : 1024;
		void *list = realloc(s.parts, more * sizeof(*s.parts));
		if (!list)
			return;
		s.parts = list;
		s.cap = more;
	}
	s.parts[s.n++] = *p;
}

/* Linux 6.7: which pages of a range are there, for the time it takes to find those. */
struct scan_range {
	uint64_t from, to, kind;
};
struct scan {
	uint64_t size, flags, from, to, stopped_at, ranges, n_ranges, max_pages, inverted, all_of, any_of, returned;
};
#define SCAN _IOWR('f', 16, struct scan)
#define SCAN_THERE (1u << 3 | 1u << 4) /* present, swapped */

/* Only those parts of a large mapping in which there is something. False: the kernel does not tell. */
static bool add_sparse(const struct memory_part *p)
{
	struct scan_range found[256];
	struct memory_part part = *p;
	struct scan a = { .size = sizeof(a), .from = p->from, .to = p->to, .ranges = (uintptr_t)found, .n_ranges = 256, .any_of = SCAN_THERE,
		.returned = SCAN_THERE };
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), n = -1;
	part.to = part.from;
	while (a.from < p->to && (n = ioctl(fd, SCAN, &a)) >= 0) {
		for (int i = 0; i < n; i++) {
			if (part.to > part.from && found[i].from - part.to > PIECE) {
				add_one(&part);
				part.to = part.from;
			}
			part.from = part.to > part.from ? part.from : found[i].from;
			part.to = found[i].to;
		}
		if (a.stopped_at <= a.from)
			break;
		a.from = a.stopped_at;
	}
	if (part.to > part.from)
		add_one(&part);
	if (fd >= 0)
		close(fd);
	return n >= 0;
}

void memory_add(const struct memory_part *p)
{
	uintptr_t bytes = p->to - p->from;
	if (p->from >= p->to || (bytes > SPARSE && add_sparse(p)))
		return;
	/* So much nobody has: what reserves it says little of where it is in use. */
	if (bytes <= MOST)
		add_one(p);
}

/* Of a file, pointers are where the process has written, and text is everywhere. */
static void add_mapping(const struct mapping *m, void *arg)
{
	unsigned int what = *(unsigned int *)arg, slots = what & MEMORY_SLOTS, text = what & MEMORY_TEXT;
	slots = slots && slots_wants(m) ? slots : 0;
	text = text && memtext_wants(m) ? text : 0;
	struct memory_part p = { m->from, m->to, m->from, m->to, slots | text, !m->writable };
	if (slots && text && m->path[0] == '/') {
		p.what = text;
		memory_add(&p);
		p.what = slots;
	}
	if (p.what)
		memory_add(&p);
}

void memory_add_all(unsigned int what)
{
	memory_each(add_mapping, &what);
}

static bool take_piece(struct memory_part *out)
{
	lock_take(&s.lock);
	bool any = s.at < s.n;
	if (any) {
		struct memory_part *p = &s.parts[s.at];
		*out = *p;
		if (out->to - out->from > PIECE)
			out->to = out->from + PIECE;
		p->from = out->to;
		s.at += p->from == p->to;
	}
	lock_drop(&s.lock);
	return any;
}

/* Files after what the process has written, where pointers are. */
static uintptr_t order(const struct memory_part *p)
{
	return p->to - p->from + (p->what & MEMORY_SLOTS ? 0 : UINTPTR_MAX / 2);
}

static int by_order(const void *a, const void *b)
{
	uintptr_t x = order(a), y = order(b);
	return x < y ? -1 : x > y;
}

static void *work(void *arg)
{
	struct memory_part p;
	struct reader *r = reader_new();
	s.stacks[(uintptr_t)arg] = (uintptr_t)&p;
	atomic_fetch_add(&s.going, 1);
	while (!atomic_load(&s.go))
		word_wait(&s.go, 0, 1);
	while (r && take_piece(&p))
		look_through(r, &p);
	reader_free(r);
	atomic_fetch_add(&s.left, 1);
	return NULL;
}

int agent_helpers(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) ? 2 : CPU_COUNT(&set);
	n = n / 2 < AGENT_MAX_HELPERS ? n / 2 : AGENT_MAX_HELPERS;
	return n > 1 ? n : 1;
}

void memory_open(void)
{
	int n = agent_helpers(), begun = 0;
	s.n = s.at = 0;
	atomic_store(&s.go, 0);
	atomic_store(&s.going, 0);
	atomic_store(&s.left, 0);
	memset(s.stacks, 0, sizeof(s.stacks));
	s.stacks[MAX_WORKERS] = (uintptr_t)&n;
	while (begun < n && !agent_thread(&s.workers[begun], work, (void *)(uintptr_t)begun))
		begun++;
	while (atomic_load(&s.going) < begun)
		word_wait(&s.going, atomic_load(&s.going), 1);
	s.begun = true;
}

void memory_sweep(void)
{
	if (s.n)
		qsort(s.parts, s.n, sizeof(*s.parts), by_order);
	atomic_store(&s.go, 1);
}

static void close_sweep(void)
{
	for (int i = 0; i < atomic_load(&s.going); i++)
		pthread_join(s.workers[i], NULL);
	reader_free(s.own);
	s.own = NULL;
	free(s.parts);
	s.parts = NULL;
	s.n = s.cap = s.at = 0;
	s.begun = false;
}

bool memory_swept(uint64_t until_ns)
{
	struct memory_part p;
	if (!s.begun)
		return true;
	/* Workers that found no memory for their reader leave all to us. */
	bool alone = atomic_load(&s.left) == atomic_load(&s.going);
	if (!alone)
		return false;
	if (s.at < s.n && !s.own && !(s.own = reader_new()))
		s.at = s.n;
	while (s.at < s.n) {
		if (now_ns() > until_ns)
			return false;
		take_piece(&p);
		look_through(s.own, &p);
	}
	close_sweep();
	return true;
}

bool memory_busy(void)
{
	return !memory_swept(0);
}

void memory_stop(void)
{
	lock_take(&s.lock);
	s.at = s.n;
	lock_drop(&s.lock);
	atomic_store(&s.go, 1);
	memory_wait();
}

void memory_wait(void)
{
	while (!memory_swept(UINT64_MAX))
		word_wait(&s.left, atomic_load(&s.left), 1);
}
