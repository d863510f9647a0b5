/* check.c - races, uninitialised shared memory and divided warps at barriers.
 *
 * Time. Each warp has a clock that moves on with every synchronisation. An access is stamped with
 * the clock of its warp. A thread knows of each lane of its warp, and of each other warp of its
 * block, up to which stamp everything has happened before. Between blocks one counter of the
 * device, moved on by every release, serves instead: a thread that has acquired at time T knows all
 * that was done before T.
 *
 * Shadow. For each eight bytes the last four accesses of different threads are kept.
 */
#include "softgpu/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "softgpu/internal.h"

#define CELLS 4
#define GRANULE 8
#define PAGE 4096
#define LOCKS 256
#define MAX_WARPS 32
#define MAX_LINES 24 /* of one grid */

struct cell {
	uint32_t block, grid; /* serial numbers; block 0: empty */
	uint32_t place;       /* of the block in its grid, from 0, x first */
	uint32_t stamp, time, pc;
	uint32_t value;
	uint16_t thread;
	uint8_t bytes; /* mask within the granule */
	uint8_t access;
};

struct granule {
	struct cell cell[CELLS];
};

/* What a synchronising location passes on. */
struct location {
	struct location *next;
	const void *at;
	uint32_t block, time;
	uint32_t known[MAX_WARPS];
};

struct thread {
	uint32_t lanes[32];        /* of its own warp, by lane */
	uint32_t warps[MAX_WARPS]; /* of its block */
	uint32_t time;
	/* Of strong reads that no fence has followed yet. */
	uint32_t pending_time, pending[MAX_WARPS];
	bool has_pending, fenced;
};

struct barrier {
	uint32_t known[MAX_WARPS], time;
};

struct sg_check_block {
	uint32_t serial;
	uint32_t clock[MAX_WARPS];
	struct barrier bar[16];
	struct thread *threads;
	struct granule *shared;
	uint8_t *written; /* a bit for each byte of shared memory */
};

struct reported {
	uint32_t grid, a, b, what;
};

struct sg_check {
	struct sg_device *dev;
	pthread_mutex_t lock[LOCKS];
	pthread_mutex_t sync_lock, report_lock;
	struct granule *_Atomic *pages; /* by page of device memory */
	uint64_t n_pages;
	struct location *locations[1u << 14];
	uint32_t n_locations;
	_Atomic uint32_t time, serial;
	_Atomic uint64_t n_lines;
	struct reported seen[256];
	uint32_t n_seen, lines_of, n_lines_of; /* the grid that prints, and its lines */
};

/* -- life ---------------------------------------------------------------------- */

struct sg_check *sg_check_new(struct sg_device *dev)
{
	struct sg_check *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->dev = dev;
	c->n_pages = dev->mem.span / PAGE;
	c->pages = mmap(NULL, c->n_pages * sizeof(*c->pages), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (c->pages == MAP_FAILED) {
		free(c);
		return NULL;
	}
	for (int i = 0; i < LOCKS; i++)
		pthread_mutex_init(&c->lock[i], NULL);
	pthread_mutex_init(&c->sync_lock, NULL);
	pthread_mutex_init(&c->report_lock, NULL);
	return c;
}

void sg_check_free(struct sg_check *c)
{
	if (!c)
		return;
	/* Only pages of memory that was ever handed out can be there. */
	uint64_t used = c->dev->mem.writable_end / PAGE;
	for (uint64_t i = 0; i < used && i < c->n_pages; i++)
		free(atomic_load_explicit(&c->pages[i], memory_order_relaxed));
	munmap((void *)c->pages, c->n_pages * sizeof(*c->pages));
	for (size_t i = 0; i < sizeof(c->locations) / sizeof(c->locations[0]); i++)
		for (struct location *l = c->locations[i], *next; l; l = next) {
			next = l->next;
			free(l);
		}
	for (int i = 0; i < LOCKS; i++)
		pthread_mutex_destroy(&c->lock[i]);
	pthread_mutex_destroy(&c->sync_lock);
	pthread_mutex_destroy(&c->report_lock);
	free(c);
}

uint64_t sg_check_count(const struct sg_check *c)
{
	return c ? atomic_load(&c->n_lines) : 0;
}

bool sg_check_block_new(struct sg_block *b)
{
	struct sg_check *c = b->grid->dev->check;
	struct sg_check_block *k = calloc(1, sizeof(*k));
	size_t granules = b->shared_bytes / GRANULE + 1;
	b->check = k;
	if (!k)
		return false;
	k->serial = atomic_fetch_add(&c->serial, 1) + 1;
	k->threads = calloc(b->n_warps * 32u, sizeof(*k->threads));
	k->shared = calloc(granules, sizeof(*k->shared));
	k->written = calloc(granules, 1);
	for (uint32_t i = 0; i < MAX_WARPS; i++)
		k->clock[i] = 1;
	return k->threads && k->shared && k->written;
}

void sg_check_block_free(struct sg_block *b)
{
	if (!b->check)
		return;
	free(b->check->threads);
	free(b->check->shared);
	free(b->check->written);
	free(b->check);
	b->check = NULL;
}

/* -- lines ----------------------------------------------------------------------- */

/* Whether this pair of places is new, and may be printed. With the lock. */
static bool is_new(struct sg_check *c, uint32_t grid, uint32_t what, uint32_t a, uint32_t b)
{
	uint32_t n = sizeof(c->seen) / sizeof(c->seen[0]);
	for (uint32_t i = 0; i < (c->n_seen < n ? c->n_seen : n); i++) {
		const struct reported *r = &c->seen[i];
		bool same = (r->a == a && r->b == b) || (r->a == b && r->b == a);
		if (r->grid == grid && r->what == what && same)
			return false;
	}
	c->seen[c->n_seen++ % n] = (struct reported){ grid, a, b, what };
	if (c->lines_of != grid)
		c->n_lines_of = 0;
	c->lines_of = grid;
	atomic_fetch_add(&c->n_lines, 1);
	return c->n_lines_of++ < MAX_LINES;
}

static void thread_name(const struct sg_grid *g, uint32_t thread, char *out, size_t size)
{
	const uint32_t *d = g->launch.block;
	snprintf(
		out, size, "(%u,%u,%u)", thread % d[0], thread / d[0] % d[1], thread / d[0] / d[1]);
}

static uint32_t place_of(const struct sg_block *b)
{
	const uint32_t *n = b->grid->launch.grid;
	return b->id[0] + n[0] * (b->id[1] + n[1] * b->id[2]);
}

static void block_name(const struct sg_grid *g, const struct cell *of, char *out, size_t size)
{
	const uint32_t *n = g->launch.grid;
	if ((unsigned __int128)n[0] * n[1] * n[2] >> 32)
		snprintf(out, size, "another block");
	else
		snprintf(out, size, "block (%u,%u,%u)", of->place % n[0], of->place / n[0] % n[1],
			of->place / n[0] / n[1]);
}

/* Where in the kernel's own module: in another's code, the call that led there. */
static uint32_t pc_of(const struct sg_warp *w, const struct sg_insn *in)
{
	const struct sg_module *m = w->block->grid->kernel->module;
	for (const struct sg_frame *f = w->frame; f->func->module != m; f = f->parent)
		in = f->call;
	return (uint32_t)(in - m->code);
}

static const char *verb(uint32_t access)
{
	if ((access & (SG_READ | SG_WRITE)) == (SG_READ | SG_WRITE))
		return "updates";
	return access & SG_WRITE ? "writes" : "reads";
}

static void report_race(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint64_t at,
	bool shared, uint32_t access, const struct cell *old, bool same_block)
{
	struct sg_grid *g = w->block->grid;
	struct sg_check *c = g->dev->check;
	const struct sg_insn *other = &g->kernel->module->code[old->pc];
	char mine[48], theirs[48], there[48] = "the same block";
	pthread_mutex_lock(&c->report_lock);
	if (is_new(c, (uint32_t)g->id, shared, pc_of(w, in), old->pc)) {
		thread_name(g, w->index * 32 + lane, mine, sizeof(mine));
		thread_name(g, old->thread, theirs, sizeof(theirs));
		if (!same_block)
			block_name(g, old, there, sizeof(there));
		fprintf(stderr,
			"softgpu: check: kernel %s: race on %s memory at 0x%llx: PTX line %u (%s) "
			"%s it in thread %s "
			"of block (%u,%u,%u); PTX line %u (%s) %s it in thread %s of %s, and "
			"nothing orders the two\n",
			g->name, shared ? "shared" : "global", (unsigned long long)at, in->line,
			in->opcode, verb(access), mine, w->block->id[0], w->block->id[1],
			w->block->id[2], other->line, other->opcode, verb(old->access), theirs,
			there);
	}
	pthread_mutex_unlock(&c->report_lock);
}

static void report_unwritten(
	struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint64_t at, uint32_t bytes)
{
	struct sg_grid *g = w->block->grid;
	struct sg_check *c = g->dev->check;
	char mine[48];
	pthread_mutex_lock(&c->report_lock);
	if (is_new(c, (uint32_t)g->id, 2, pc_of(w, in), 0)) {
		thread_name(g, w->index * 32 + lane, mine, sizeof(mine));
		fprintf(stderr,
			"softgpu: check: kernel %s: PTX line %u (%s) reads %u bytes of shared "
			"memory at 0x%llx that "
			"nothing has written, in thread %s of block (%u,%u,%u)\n",
			g->name, in->line, in->opcode, bytes, (unsigned long long)at, mine,
			w->block->id[0], w->block->id[1], w->block->id[2]);
	}
	pthread_mutex_unlock(&c->report_lock);
}

/* -- order ------------------------------------------------------------------------ */

static uint32_t most(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static struct thread *thread_of(struct sg_warp *w, uint32_t lane)
{
	return &w->block->check->threads[w->index * 32 + lane];
}

/* Whether an earlier access happened before what the thread does now. */
static bool ordered(struct sg_warp *w, uint32_t lane, const struct cell *old, bool shared)
{
	const struct sg_check_block *k = w->block->check;
	const struct thread *t = thread_of(w, lane);
	if (old->grid != (uint32_t)w->block->grid->id)
		return true;
	if (old->block != k->serial)
		return old->time < t->time;
	uint32_t warp = old->thread / 32, self = w->index * 32 + lane;
	if (old->thread == self || old->stamp <= t->warps[warp])
		return true;
	if (warp == w->index && old->stamp <= t->lanes[old->thread % 32])
		return true;
	return !shared && old->time < t->time;
}

/* -- accesses ---------------------------------------------------------------------- */

static void put_cell(struct granule *g, const struct cell *now)
{
	struct cell *to = NULL;
	for (int i = 0; i < CELLS; i++) {
		struct cell *x = &g->cell[i];
		/* The same thread's earlier access is covered by a stronger one. */
		bool same = x->block == now->block && x->thread == now->thread &&
			    x->grid == now->grid && !(x->bytes & ~now->bytes) &&
			    ((x->access & SG_WRITE) <= (now->access & SG_WRITE)) &&
			    (x->access & SG_STRONG) >= (now->access & SG_STRONG);
		if (!x->block || x->grid != now->grid || same) {
			to = x;
			break;
		}
	}
	if (!to) {
		/* Reads go first. */
		uint32_t start = now->thread + now->stamp;
		to = &g->cell[start % CELLS];
		for (uint32_t i = 0; i < CELLS; i++)
			if (!(g->cell[(start + i) % CELLS].access & SG_WRITE)) {
				to = &g->cell[(start + i) % CELLS];
				break;
			}
	}
	*to = *now;
}

static void check_granule(struct sg_warp *w, const struct sg_insn *in, uint32_t lane,
	struct granule *g, struct cell *now, uint64_t at, bool shared)
{
	struct cell found;
	bool race = false;
	for (int i = 0; i < CELLS && !race; i++) {
		const struct cell *x = &g->cell[i];
		if (!x->block || !(x->bytes & now->bytes) ||
			!((x->access | now->access) & SG_WRITE) ||
			(x->access & now->access & SG_STRONG) || ordered(w, lane, x, shared))
			continue;
		/* Writing what is there already is left alone. */
		if (x->access & now->access & SG_WRITE && x->value == now->value &&
			x->bytes == now->bytes && !((x->access | now->access) & SG_READ))
			continue;
		found = *x;
		race = true;
	}
	put_cell(g, now);
	if (race)
		report_race(
			w, in, lane, at, shared, now->access, &found, found.block == now->block);
}

/* The block of this one's cluster whose shared memory holds the address. */
static struct sg_block *owner(struct sg_block *b, uint64_t at)
{
	if (at - (uintptr_t)b->shared < b->shared_bytes)
		return b;
	for (uint32_t i = 0; b->cluster && i < b->cluster->n_blocks; i++) {
		struct sg_block *x = b->cluster->blocks[i];
		if (x && at - (uintptr_t)x->shared < x->shared_bytes)
			return x;
	}
	return NULL;
}

static struct granule *global_granule(struct sg_check *c, uint64_t off)
{
	struct granule *_Atomic *slot = &c->pages[off / PAGE], *none = NULL;
	struct granule *page = atomic_load_explicit(slot, memory_order_acquire);
	if (!page) {
		page = calloc(PAGE / GRANULE, sizeof(*page));
		if (page && !atomic_compare_exchange_strong(slot, (struct granule **)&none, page)) {
			free(page);
			page = atomic_load(slot);
		}
	}
	return page ? &page[off % PAGE / GRANULE] : NULL;
}

/* Marks bytes as written; or says whether all of them are. */
static bool written(struct sg_check_block *k, uint64_t off, uint32_t bytes, bool set)
{
	bool all = true;
	for (uint64_t i = off; i < off + bytes; i++) {
		if (set)
			__atomic_fetch_or(
				&k->written[i / 8], (uint8_t)(1u << i % 8), __ATOMIC_RELAXED);
		else
			all &= k->written[i / 8] >> i % 8 & 1;
	}
	return all;
}

void sg_check_access(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, const void *p,
	uint32_t bytes, uint32_t access, uint64_t value)
{
	struct sg_check *c = w->block->grid->dev->check;
	struct sg_check_block *k = w->block->check;
	uint64_t at = (uintptr_t)p, off = at - w->mem->base;
	struct sg_block *own = off < w->mem->span ? NULL : owner(w->block, at);
	if (off >= w->mem->span && !own)
		return; /* local memory, parameters, the host's memory */
	if (own) {
		off = at - (uintptr_t)own->shared;
		if (access & SG_READ && !written(own->check, off, bytes, false))
			report_unwritten(w, in, lane, off, bytes);
		if (access & SG_WRITE)
			written(own->check, off, bytes, true);
	}
	for (uint64_t a = off & ~7ull; a < off + bytes; a += GRANULE) {
		struct granule *g = own ? &own->check->shared[a / GRANULE] : global_granule(c, a);
		uint32_t from = a < off ? (uint32_t)(off - a) : 0,
			 to = off + bytes - a < 8 ? (uint32_t)(off + bytes - a) : 8;
		struct cell now = { .block = k->serial,
			.grid = (uint32_t)w->block->grid->id,
			.place = place_of(w->block),
			.stamp = k->clock[w->index],
			.time = atomic_load_explicit(&c->time, memory_order_relaxed),
			.pc = pc_of(w, in),
			.value = (uint32_t)(value ^ value >> 32),
			.thread = (uint16_t)(w->index * 32 + lane),
			.bytes = (uint8_t)((1u << to) - (1u << from)),
			.access = (uint8_t)access };
		if (!g)
			return;
		pthread_mutex_t *lock = &c->lock[(uintptr_t)g / sizeof(*g) % LOCKS];
		pthread_mutex_lock(lock);
		check_granule(w, in, lane, g, &now, own ? a + from : w->mem->base + a + from,
			own != NULL);
		pthread_mutex_unlock(lock);
	}
}

/* -- synchronisation ---------------------------------------------------------------- */

static void learn_pending(struct thread *t)
{
	if (!t->has_pending)
		return;
	for (int i = 0; i < MAX_WARPS; i++)
		t->warps[i] = most(t->warps[i], t->pending[i]);
	t->time = most(t->time, t->pending_time);
	memset(t->pending, 0, sizeof(t->pending));
	t->pending_time = 0;
	t->has_pending = false;
}

void sg_check_fence(struct sg_warp *w, uint32_t mask)
{
	for (uint32_t m = mask; m; m &= m - 1) {
		struct thread *t = thread_of(w, (uint32_t)__builtin_ctz(m));
		learn_pending(t);
		t->fenced = true;
	}
}

#define MAX_LOCATIONS (1u << 20)

/* NULL: not there, or no room for one. */
static struct location *location(struct sg_check *c, const void *at, bool create)
{
	uint64_t hash = ((uintptr_t)at >> 2) * 0x9e3779b97f4a7c15ull;
	struct location **slot = &c->locations[hash >> 50];
	for (struct location *l = *slot; l; l = l->next)
		if (l->at == at)
			return l;
	bool full = c->n_locations == MAX_LOCATIONS;
	struct location *l = create && !full ? calloc(1, sizeof(*l)) : NULL;
	if (!l)
		return NULL;
	c->n_locations++;
	l->at = at;
	l->next = *slot;
	return *slot = l;
}

/* The thread's knowledge and its own past go into the location. */
static void publish(struct sg_warp *w, struct location *l, const struct thread *t)
{
	struct sg_check_block *k = w->block->check;
	if (l->block != k->serial)
		memset(l->known, 0, sizeof(l->known));
	l->block = k->serial;
	for (int i = 0; i < MAX_WARPS; i++)
		l->known[i] = most(l->known[i], t->warps[i]);
	l->known[w->index] = k->clock[w->index]++;
	l->time = atomic_fetch_add(&w->block->grid->dev->check->time, 1) + 1;
}

void sg_check_sync(struct sg_warp *w, uint32_t lane, const void *at, uint32_t order)
{
	struct sg_check *c = w->block->grid->dev->check;
	struct thread *t = thread_of(w, lane);
	bool always = order & SG_ALWAYS;
	pthread_mutex_lock(&c->sync_lock);
	bool release = order & SG_RELEASES && (always || t->fenced);
	struct location *l = location(c, at, release);
	if (l && order & SG_ACQUIRES && l->time) {
		for (int i = 0; i < MAX_WARPS && l->block == w->block->check->serial; i++)
			t->pending[i] = most(t->pending[i], l->known[i]);
		t->pending_time = most(t->pending_time, l->time);
		t->has_pending = true;
		if (always)
			learn_pending(t);
	}
	if (l && release)
		publish(w, l, t);
	pthread_mutex_unlock(&c->sync_lock);
}

void sg_check_warp_sync(struct sg_warp *w, uint32_t mask)
{
	struct sg_check_block *k = w->block->check;
	uint32_t known[MAX_WARPS] = { 0 }, time = 0, clock = k->clock[w->index]++;
	if (!(mask & (mask - 1)))
		return;
	for (uint32_t m = mask; m; m &= m - 1) {
		struct thread *t = thread_of(w, (uint32_t)__builtin_ctz(m));
		for (int i = 0; i < MAX_WARPS; i++)
			known[i] = most(known[i], t->warps[i]);
		time = most(time, t->time);
	}
	for (uint32_t m = mask; m; m &= m - 1) {
		struct thread *t = thread_of(w, (uint32_t)__builtin_ctz(m));
		memcpy(t->warps, known, sizeof(known));
		t->time = time;
		for (uint32_t n = mask; n; n &= n - 1)
			t->lanes[__builtin_ctz(n)] = clock;
	}
}

void sg_check_bar_arrive(struct sg_warp *w, uint32_t id, uint32_t mask)
{
	struct sg_check_block *k = w->block->check;
	struct barrier *bar = &k->bar[id];
	for (uint32_t m = mask; m; m &= m - 1) {
		struct thread *t = thread_of(w, (uint32_t)__builtin_ctz(m));
		learn_pending(t);
		for (int i = 0; i < MAX_WARPS; i++)
			bar->known[i] = most(bar->known[i], t->warps[i]);
		bar->time = most(bar->time, t->time);
	}
	bar->known[w->index] = most(bar->known[w->index], k->clock[w->index]++);
}

/* Every thread of a warp has to come to the same aligned barrier instruction. */
static void check_divided(struct sg_block *b, const struct sg_warp *w, uint32_t id)
{
	const struct sg_path *first = NULL;
	struct sg_check *c = b->grid->dev->check;
	uint32_t lanes = b->grid->threads - w->index * 32, other = 0, there = 0, pc = 0;
	const struct sg_insn *other_in = NULL;
	uint32_t all = lanes >= 32 ? SG_FULL : (1u << lanes) - 1;
	for (uint32_t j = 0; j < w->n_paths; j++) {
		const struct sg_path *p = &w->paths[j];
		if (p->state != SG_WAIT_BAR || p->bar != id || !p->mask)
			continue;
		first = first ? first : p;
		there |= p->mask;
		if (p->pc != first->pc || p->frame->func->module != first->frame->func->module) {
			other |= p->mask;
			other_in = sg_path_insn(p);
			pc = p->pc;
		}
	}
	if (!first || (!other && there == all))
		return;
	const struct sg_insn *in = sg_path_insn(first);
	if (strncmp(in->opcode, "bar.", 4) && !strstr(in->opcode, ".aligned"))
		return;
	/* Lanes that arrived without waiting are there as well. */
	if (!other && w->live == all)
		return;
	pthread_mutex_lock(&c->report_lock);
	if (is_new(c, (uint32_t)b->grid->id, 3, first->pc, pc)) {
		fprintf(stderr,
			"softgpu: check: kernel %s: warp %u of block (%u,%u,%u) comes to a barrier "
			"divided: lanes 0x%08x "
			"wait at PTX line %u (%s), ",
			b->grid->name, w->index, b->id[0], b->id[1], b->id[2], there & ~other,
			in->line, in->opcode);
		if (other)
			fprintf(stderr, "lanes 0x%08x at PTX line %u (%s)\n", other,
				other_in->line, other_in->opcode);
		else
			fprintf(stderr, "lanes 0x%08x have ended\n", all & ~there);
	}
	pthread_mutex_unlock(&c->report_lock);
}

void sg_check_bar_release(struct sg_block *b, uint32_t id)
{
	struct barrier *bar = &b->check->bar[id];
	for (uint32_t i = 0; i < b->n_warps; i++) {
		struct sg_warp *w = &b->warps[i];
		check_divided(b, w, id);
		for (uint32_t j = 0; j < w->n_paths; j++) {
			const struct sg_path *p = &w->paths[j];
			if (p->state != SG_WAIT_BAR || p->bar != id)
				continue;
			for (uint32_t m = p->mask; m; m &= m - 1) {
				struct thread *t = thread_of(w, (uint32_t)__builtin_ctz(m));
				for (int k = 0; k < MAX_WARPS; k++)
					t->warps[k] = most(t->warps[k], bar->known[k]);
				t->time = most(t->time, bar->time);
			}
		}
	}
	memset(bar, 0, sizeof(*bar));
}

void sg_check_cluster(struct sg_warp *w, uint32_t mask, bool passed)
{
	struct sg_check_block *k = w->block->check;
	uint32_t now = atomic_fetch_add(&w->block->grid->dev->check->time, 1) + 1;
	for (uint32_t m = passed ? mask : 0; m; m &= m - 1) {
		struct thread *t = thread_of(w, (uint32_t)__builtin_ctz(m));
		learn_pending(t);
		t->time = now;
		for (uint32_t i = 0; i < MAX_WARPS; i++)
			t->warps[i] = most(t->warps[i], k->clock[i] - 1);
	}
	k->clock[w->index]++;
}
