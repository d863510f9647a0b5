/* build.c - from links to a build: which programs a kernel wants, and its instrumented machine code, from the cache or
 * made anew. Nothing here touches a device. Everything runs under agent.build. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"

enum {
	ROWS_FOR_ALL = 1024, /* an image with more kernels shows only those that are matched or launched */
	MAX_CREW = 15,	     /* threads that compile, beside the one that waits for them */
};

/* -- programs ---------------------------------------------------------------- */

static void fragment_drop(uint32_t prog)
{
	arena_free(agent.fragment_arenas[prog]);
	agent.fragment_arenas[prog] = NULL;
	agent.fragments[prog] = NULL;
	agent.fragment_error[prog] = NULL;
}

static struct ebpf_fragment *fragment_get(uint32_t prog)
{
	char *text = NULL;
	size_t size;
	struct diag d = { 0 };
	if (prog >= SESSION_MAX_PROGS || agent.fragments[prog] || agent.fragment_error[prog])
		return prog < SESSION_MAX_PROGS ? agent.fragments[prog] : NULL;
	struct arena *a = arena_new();
	struct ebpf_fragment *f = a ? arena_alloc(a, sizeof(*f)) : NULL;
	int err = f ? session_read_prog(agent.session, prog, &text, &size) : -ENOMEM;
	if (!err)
		err = ebpf_fragment_parse(a, text, size, f, &d);
	free(text);
	agent.fragment_arenas[prog] = a;
	if (err) {
		agent_log("program %u: %d %s", prog, err, d.text);
		agent.fragment_error[prog] = "its program cannot be read from the session";
		return NULL;
	}
	return agent.fragments[prog] = f;
}

uint64_t links_attached(void)
{
	uint64_t bits = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (__atomic_load_n(&agent.shared->links[i].state, __ATOMIC_ACQUIRE) ==
			SESSION_LINK_ATTACHED)
			bits |= (uint64_t)1 << i;
	return bits;
}

uint64_t build_client_maps(uint32_t client)
{
	uint64_t maps = 0;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (agent.shared->maps[i].used && agent.shared->maps[i].owner == client)
			maps |= (uint64_t)1 << i;
	return maps;
}

uint64_t build_words_map(void)
{
	uint64_t map = 0;
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (agent.shared->maps[i].live)
			map |= (uint64_t)1 << i;
	return map;
}

/* A program's number is given to another one after it has gone. */
uint64_t build_live_maps(uint64_t attached)
{
	uint64_t maps = 0, progs = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		uint32_t prog = agent.shared->links[i].prog;
		if (!(attached >> i & 1) || prog >= SESSION_MAX_PROGS)
			continue;
		if (agent.shared->links[i].live) {
			maps |= build_client_maps(agent.shared->links[i].owner);
			continue;
		}
		const struct ebpf_fragment *f = fragment_get(prog);
		progs |= (uint64_t)1 << prog;
		maps |= f ? f->maps : 0;
	}
	for (uint32_t i = 0; i < SESSION_MAX_PROGS; i++)
		if (!(progs >> i & 1))
			fragment_drop(i);
	return maps;
}

bool build_stale(const struct kernel *k, uint64_t attached)
{
	for (const struct build *b = k->builds; b; b = b->next)
		if (b->links & ~attached)
			return true;
	return false;
}

void build_sweep(struct kernel *k, uint64_t attached, bool (*used)(const struct build *b))
{
	struct build **at = &k->builds, *b;
	while ((b = *at)) {
		if (!(b->links & ~attached) || used(b)) {
			at = &b->next;
			continue;
		}
		*at = b->next;
		free(b->cubin);
		arena_free(b->arena);
	}
}

static uint64_t links_of(const struct kernel *k)
{
	uint64_t bits = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &agent.shared->links[i];
		char pattern[SESSION_PATTERN_BYTES];
		if (__atomic_load_n(&l->state, __ATOMIC_ACQUIRE) != SESSION_LINK_ATTACHED || l->live)
			continue;
		memcpy(pattern, l->pattern, sizeof(pattern));
		pattern[sizeof(pattern) - 1] = 0;
		if (session_match(pattern, k->name, k->demangled) > 0)
			bits |= (uint64_t)1 << i;
	}
	return bits;
}

static void count_matches(uint64_t fresh)
{
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (fresh >> i & 1)
			__atomic_fetch_add(&agent.shared->links[i].matched, 1, __ATOMIC_RELAXED);
}

void build_match(struct image *im)
{
	for (uint32_t i = 0; i < im->n_kernels; i++) {
		struct kernel *k = &im->kernels[i];
		if (image_kernel(im, k->name) != k)
			continue; /* a second definition of the name */
		uint64_t links = links_of(k), old = atomic_load(&k->links);
		/* What nobody probes may take half of the rows, no more. */
		if (links || (im->n_kernels <= ROWS_FOR_ALL &&
				     agent.shared->n_kernels < SESSION_MAX_KERNELS / 2))
			kernel_row(k);
		if (links == old)
			continue;
		count_matches(links & ~old);
		k->refused = NULL;
		atomic_store(&k->links, links);
		atomic_store(&k->wanted, links != 0);
		struct session_kernel *row = k->row != UINT32_MAX ? atomic_load(&k->shared) : NULL;
		if (row) /* what is gone runs no more; what came is shown when it is loaded */
			__atomic_fetch_and(&row->links, links, __ATOMIC_RELAXED);
		if (!links)
			kernel_state(k, SESSION_KERNEL_SEEN, "");
	}
}

/* -- builds -------------------------------------------------------------------- */

static bool same_unbound(const struct build *b, const char *const *unbound, uint32_t n)
{
	if (b->n_unbound != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (strcmp(b->unbound[i], unbound[i]))
			return false;
	return true;
}

/* Texts name entries of the table as in bpf/fragment.h. */
static bool reads_clock(const struct ebpf_fragment *f)
{
	char entry[32];
	snprintf(entry, sizeof(entry), "[__egpu_table+%u]", EBPF_TABLE_CLOCK * 8);
	bool reads = strstr(f->body, entry);
	for (uint32_t i = 0; i < f->n_funcs; i++)
		reads |= strstr(f->funcs[i].text, entry) != NULL;
	return reads;
}

static uint32_t collect_fragments(
	uint64_t links, const struct ebpf_fragment **list, uint64_t *maps, struct diag *d)
{
	uint32_t n = 0;
	*maps = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		if (!(links >> i & 1))
			continue;
		const struct ebpf_fragment *f = fragment_get(agent.shared->links[i].prog);
		if (!f) {
			diag_set(d, EINVAL,
				"the program of link %u cannot be read from the session", i);
			return 0;
		}
		*maps |= f->maps;
		list[n++] = f;
	}
	return n;
}

/* The links that need sites beyond entries, exits and accesses. */
static uint64_t numbering_links(uint64_t links)
{
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (agent.shared->links[i].point <= EBPF_POINT_MEM)
			links &= ~(UINT64_C(1) << i);
	return links;
}

/* What a build is made of beside the kernel's PTX. */
struct recipe {
	const struct ebpf_fragment *fragments[SESSION_MAX_LINKS];
	const struct ebpf_fragment *numbering[SESSION_MAX_LINKS];
	uint32_t n_fragments, n_numbering;
	uint64_t links; /* that number the sites */
};

static int gather(const struct kernel *k, struct build *b, struct recipe *r, struct diag *d)
{
	uint64_t unused;
	struct diag gone = { 0 };
	r->links = k->site_links | numbering_links(b->links);
	r->n_numbering = collect_fragments(r->links, r->numbering, &unused, &gone);
	if (gone.err) { /* of a link that is no more */
		r->links = numbering_links(b->links);
		r->n_numbering = collect_fragments(r->links, r->numbering, &unused, d);
	}
	r->n_fragments = collect_fragments(b->links, r->fragments, &b->maps, d);
	for (uint32_t i = 0; i < r->n_fragments; i++)
		b->clock |= reads_clock(r->fragments[i]);
	return r->n_fragments ? 0 : d->err ? -d->err : -EINVAL;
}

/* -- builds on disk -- */

static void put_texts(struct buf *key, const struct ebpf_fragment *const *list, uint32_t n)
{
	buf_add(key, &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++) {
		size_t at = key->len, bytes = 0;
		buf_add(key, &bytes, sizeof(bytes));
		ebpf_fragment_print(list[i], key);
		bytes = key->len - at;
		if (!key->failed)
			memcpy(key->data + at, &bytes, sizeof(bytes));
	}
}

static void put_names(struct buf *key, const char *const *names, uint32_t n)
{
	buf_add(key, &n, sizeof(n));
	for (uint32_t i = 0; i < n; i++)
		buf_add(key, names[i], strlen(names[i]) + 1);
}

/* All that decides a build, in `key`. False: there is no cache. */
static bool build_key(struct kernel *k, const struct build *b, const struct recipe *r, uint32_t first_site, struct buf *key)
{
	struct unit *u = &k->image->units[k->unit];
	if (!u->asked && cache_text(u->text, u->text_bytes, u->id))
		u->id[0] = u->id[1] = 0;
	u->asked = true;
	if (!u->id[0] && !u->id[1])
		return false;
	uint64_t numbers[] = { u->id[0], u->id[1], u->text_bytes, k->row, first_site };
	buf_add(key, numbers, sizeof(numbers));
	put_names(key, &k->name, 1);
	put_names(key, b->unbound, b->n_unbound);
	put_texts(key, r->fragments, r->n_fragments);
	put_texts(key, r->numbering, r->n_numbering);
	return !key->failed;
}

static struct cache_key key_of(const struct build *b, const struct buf *key)
{
	return (struct cache_key){ CACHE_VARIANT, key->data, key->len, b->cc, b->max_regs };
}

/* Result and machine code in what the cache gave, which b owns then. */
static bool unpack(struct build *b, char *value, size_t bytes)
{
	size_t used;
	if (instrument_restore(b->arena, value, bytes, &b->result, &used) || used == bytes) {
		free(value);
		return false;
	}
	b->cubin = value;
	b->cubin_bytes = bytes - used;
	memmove(value, value + used, b->cubin_bytes + 1);
	return true;
}

/* False: the cache does not have it. */
static bool fetch(struct kernel *k, struct build *b, const struct recipe *r)
{
	struct buf text = { 0 };
	struct diag d = { 0 };
	uint32_t first_site = sites_likely_first(k, r->links);
	char *value = NULL;
	size_t bytes;
	bool found = build_key(k, b, r, first_site, &text);
	if (found) {
		struct cache_key key = key_of(b, &text);
		found = !cache_get(&key, &value, &bytes) && unpack(b, value, bytes);
	}
	buf_free(&text);
	if (found && (sites_placed(k, r->links) ? k->n_sites == b->result.n_sites
						: !sites_place(k, r->links, b->result.sites, b->result.n_sites, &d)) &&
		k->first_site == first_site)
		return true;
	free(b->cubin);
	b->cubin = NULL;
	return false;
}

/* What a build keeps of a result: that lies in an arena with all that the instrumenter needed, and names what the parsed
 * text holds. In the cache too, if there is one. */
static int keep(struct kernel *k, struct build *b, const struct recipe *r, const struct instrument_result *made)
{
	struct buf text = { 0 }, value = { 0 };
	size_t used;
	instrument_store(made, &value);
	int err = value.failed ? -ENOMEM : instrument_restore(b->arena, value.data, value.len, &b->result, &used);
	if (!err && build_key(k, b, r, k->first_site, &text)) {
		struct cache_key key = key_of(b, &text);
		buf_add(&value, b->cubin, b->cubin_bytes);
		if (!value.failed)
			cache_put(&key, value.data, value.len);
	}
	buf_free(&text);
	buf_free(&value);
	return err;
}

/* -- making one -- */

static int take_sites(struct kernel *k, struct arena *a, struct ptx_module *m, const struct recipe *r, struct diag *d)
{
	struct instrument_site *sites;
	uint32_t n;
	if (sites_placed(k, r->links))
		return 0;
	int err = instrument_sites_for(a, m, k->name, r->numbering, r->n_numbering, &sites, &n, d);
	return err ? err : sites_place(k, r->links, sites, n, d);
}

static int instrument(struct kernel *k, const struct build *b, const struct recipe *r, struct arena *a, struct instrument_result *made,
	struct diag *d)
{
	struct unit *u = &k->image->units[k->unit];
	struct ptx_module *m = unit_module(u);
	if (!m)
		return diag_set(d, EINVAL, "%s", u->broken ? u->broken : "its PTX cannot be read");
	int err = take_sites(k, a, m, r, d);
	if (err)
		return err;
	struct instrument_request request = {
		.module = m,
		.kernel = k->name,
		.fragments = r->fragments,
		.n_fragments = r->n_fragments,
		.kernel_id = k->row,
		.first_site = k->first_site,
		.unbound = b->unbound,
		.n_unbound = b->n_unbound,
		.numbering = r->numbering,
		.n_numbering = r->n_numbering,
	};
	return instrument_kernel(a, &request, made, d);
}

/* Of what all warps would take, where one in so many runs the programs. */
static uint64_t in_ppm(double slowdown, uint32_t one_in)
{
	return (uint64_t)((1 + (slowdown - 1) / one_in) * 1e6);
}

/* Before anything of it is loaded. With a limit on the slowdown it is of all warps: how many may run them is found by it. */
static void tell_estimate(struct kernel *k, const struct instrument_cost *cost)
{
	struct session_kernel *row = atomic_load(&k->shared);
	struct instrument_estimate e;
	const double most = 1e12; /* of the numbers in the row */
	uint32_t chosen = agent.shared->filter.sample_warps, one_in = chosen ? chosen : 1;
	instrument_estimate(cost, &e);
	if (!row || !(e.most < most))
		return;
	row->estimate_least_ppm = in_ppm(e.least, one_in);
	row->estimate_most_ppm = in_ppm(e.most, one_in);
	__atomic_store_n(&row->estimate_ppm, in_ppm(e.slowdown, one_in), __ATOMIC_RELEASE);
}

static struct build *build_new(struct kernel *k, uint32_t cc, const char *const *unbound,
	uint32_t n_unbound, uint32_t max_regs)
{
	struct arena *a = arena_new();
	struct build *b = a ? arena_alloc(a, sizeof(*b)) : NULL;
	const char **names = b ? arena_array(a, n_unbound ? n_unbound : 1, sizeof(*names)) : NULL;
	if (!names) {
		arena_free(a);
		return NULL;
	}
	for (uint32_t i = 0; i < n_unbound; i++)
		names[i] = arena_strdup(a, unbound[i]);
	b->arena = a;
	b->cc = cc;
	b->max_regs = max_regs;
	b->links = atomic_load(&k->links);
	b->unbound = names;
	b->n_unbound = n_unbound;
	return b;
}

static uint32_t regs_wanted(const struct kernel *k, uint32_t cap)
{
	uint32_t own = k->image->units[k->unit].max_regs;
	if (!own)
		own = k->image->opt_max_regs;
	return own && (!cap || own < cap) ? own : cap;
}

/* -- jobs: what it takes to make one build ------------------------------------------ */

struct job {
	struct kernel *kernel;
	struct build *build;
	struct recipe recipe;
	struct instrument_result made; /* in the arena, until it is kept */
	struct arena *arena;
	struct diag d;
	int err;
	bool cached;
	uint64_t begun_ns, took_ns; /* took: in the cache, or in the compiler */
};

static void job_begin(struct job *j, struct kernel *k, struct build *b)
{
	j->kernel = k;
	j->build = b;
	j->begun_ns = now_ns();
	j->err = gather(k, b, &j->recipe, &j->d);
	uint64_t start = now_ns();
	j->cached = !j->err && fetch(k, b, &j->recipe);
	j->took_ns = now_ns() - start;
	if (j->err || j->cached)
		return;
	j->arena = arena_new();
	j->err = j->arena ? instrument(k, b, &j->recipe, j->arena, &j->made, &j->d)
			  : diag_set(&j->d, ENOMEM, "out of memory");
}

/* Any thread, the context current. */
static void job_compile(struct job *j)
{
	struct build *b = j->build;
	uint64_t start = now_ns();
	j->err = compile(j->made.lined, j->made.lined_bytes, j->kernel->image->units[j->kernel->unit].module, b->cc, b->max_regs,
		&b->cubin, &b->cubin_bytes, &j->d);
	j->took_ns = now_ns() - start;
}

/* The build is the kernel's, or gone: then -errno. */
static int job_end(struct job *j)
{
	struct kernel *k = j->kernel;
	struct build *b = j->build;
	struct session_kernel *row = atomic_load(&k->shared);
	if (!j->err && !j->cached)
		j->err = keep(k, b, &j->recipe, &j->made);
	arena_free(j->arena);
	if (j->err) {
		free(b->cubin);
		arena_free(b->arena);
		return j->err;
	}
	if (row) {
		row->compile_ns = j->took_ns;
		row->compile_cached = j->cached;
		row->last_bit_may_differ = b->result.last_bit_may_differ;
	}
	if (!(b->maps & build_words_map())) /* guards alone cost what is attached later does */
		tell_estimate(k, &b->result.cost);
	sites_mark_skipped(k, &b->result);
	agent_log("%s built in %.1f ms: %u sites, %u probed, %zu bytes", k->name, (double)(now_ns() - j->begun_ns) / 1e6,
		b->result.n_sites, b->result.n_probed, b->cubin_bytes);
	b->next = k->builds;
	k->builds = b;
	return 0;
}

/* Those that are to be compiled, by several threads: the driver's compiler takes tens of milliseconds for each. */
struct crew {
	struct job *jobs;
	uint32_t n;
	atomic_uint next;
	CUcontext context;
};

static void crew_work(struct crew *c)
{
	for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;)
		if (!c->jobs[i].err && !c->jobs[i].cached)
			job_compile(&c->jobs[i]);
}

static void *crew_thread(void *arg)
{
	struct crew *c = arg;
	CUcontext was;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (REAL(cuThreadExchangeStreamCaptureMode))
		REAL(cuThreadExchangeStreamCaptureMode)(&mode);
	if (REAL(cuCtxPushCurrent_v2)(c->context) != CUDA_SUCCESS)
		return NULL;
	crew_work(c);
	REAL(cuCtxPopCurrent_v2)(&was);
	return NULL;
}

static void compile_all(struct job *jobs, uint32_t n)
{
	struct crew c = { .jobs = jobs, .n = n };
	pthread_t threads[MAX_CREW];
	uint32_t n_compile = 0, started = 0;
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	for (uint32_t i = 0; i < n; i++)
		n_compile += !jobs[i].err && !jobs[i].cached;
	bool can = REAL(cuCtxGetCurrent)(&c.context) == CUDA_SUCCESS && c.context;
	while (can && started < MAX_CREW && started + 1 < n_compile && (long)started + 1 < cpus &&
		!agent_thread(&threads[started], crew_thread, &c))
		started++;
	crew_work(&c);
	for (uint32_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

/* -- builds of kernels ----------------------------------------------------------------- */

static struct build *find_build(
	const struct kernel *k, uint32_t cc, const char *const *unbound, uint32_t n_unbound, uint32_t cap)
{
	for (struct build *b = k->builds; b; b = b->next)
		if (b->links == atomic_load(&k->links) && b->cc == cc && b->max_regs == cap && same_unbound(b, unbound, n_unbound))
			return b;
	return NULL;
}

int build_kernel(struct kernel *k, uint32_t cc, const char *const *unbound, uint32_t n_unbound,
	uint32_t max_regs, struct build **out, struct diag *d)
{
	if (k->row == UINT32_MAX)
		return diag_set(d, ENOSPC, "the session has no room for more kernels");
	if (k->unit < 0)
		return diag_set(d, ENOENT, "%s",
			k->image->no_ptx ? k->image->no_ptx : "no PTX in what the program loaded");
	uint32_t cap = regs_wanted(k, max_regs);
	*out = find_build(k, cc, unbound, n_unbound, cap);
	if (*out)
		return 0;
	struct build *b = build_new(k, cc, unbound, n_unbound, cap);
	struct job *j = b ? calloc(1, sizeof(*j)) : NULL;
	if (!j) {
		arena_free(b ? b->arena : NULL);
		return diag_set(d, ENOMEM, "out of memory");
	}
	job_begin(j, k, b);
	if (!j->err && !j->cached)
		job_compile(j);
	int err = job_end(j);
	if (!err)
		*out = b;
	else if (d)
		*d = j->d;
	free(j);
	return err;
}

void build_kernels(struct kernel *const *list, uint32_t n, uint32_t cc)
{
	struct job *jobs = calloc(n ? n : 1, sizeof(*jobs));
	uint32_t m = 0;
	for (uint32_t i = 0; jobs && i < n; i++) {
		struct kernel *k = list[i];
		bool can = k->row != UINT32_MAX && k->unit >= 0 && !find_build(k, cc, NULL, 0, regs_wanted(k, 0));
		struct build *b = can ? build_new(k, cc, NULL, 0, regs_wanted(k, 0)) : NULL;
		if (b)
			job_begin(&jobs[m++], k, b);
	}
	compile_all(jobs, m);
	for (uint32_t i = 0; i < m; i++)
		if (job_end(&jobs[i]))
			kernel_refuse(jobs[i].kernel, jobs[i].d.text[0] ? jobs[i].d.text : "out of memory");
	free(jobs);
}
