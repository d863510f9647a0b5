/* build.c - from links to machine code: which programs a kernel wants, its rows in the session, its
 * instrumented PTX, its cubin.
 *
 * Nothing here touches a device: the driver's linker only compiles. Everything runs under
 * agent.build. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum {
	ROWS_FOR_ALL = 1024
}; /* an image with more kernels shows only those that are matched or launched */

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
		if (!links)
			kernel_state(k, SESSION_KERNEL_SEEN, "");
	}
}

/* -- rows --------------------------------------------------------------------- */

static const char *source_of(const struct kernel *k)
{
	return k->unit >= 0 ? k->image->units[k->unit].source : "none";
}

/* The row of what was only a name until now, if there is one: launches of one kernel are counted in one row. */
static void take_nameless_row(struct kernel *k)
{
	struct image *nameless = k->image->n_units ? image_of_name(k->name) : NULL;
	struct kernel *only = nameless ? image_kernel(nameless, k->name) : NULL;
	if (only)
		kernel_take_row(k, only);
}

void kernel_row(struct kernel *k)
{
	bool created;
	uint32_t id;
	if (atomic_load(&agent.late) && k->row == UINT32_MAX)
		take_nameless_row(k);
	if (k->row != UINT32_MAX ||
		session_add_kernel(agent.session, k->image->hash, k->name, &id, &created))
		return;
	if (id >= SESSION_MAX_KERNELS)
		return;
	struct session_kernel *row = &agent.shared->kernels[id];
	k->row = id;
	if (created)
		row->source = session_add_text(agent.session, source_of(k));
	atomic_store(&k->shared, row);
}

void kernel_take_row(struct kernel *k, struct kernel *nameless)
{
	struct session_kernel *row = atomic_load(&nameless->shared);
	if (k->row != UINT32_MAX || nameless->row == UINT32_MAX || !row)
		return;
	k->row = nameless->row;
	row->image_hash = k->image->hash;
	row->source = session_add_text(agent.session, source_of(k));
	atomic_store(&k->shared, row);
	kernel_state(k, SESSION_KERNEL_SEEN, "");
	/* It is matched no more: it counts in the row still, which is another's to write. */
	nameless->row = UINT32_MAX;
	nameless->image->matched = false;
}

bool kernel_borrow_row(struct kernel *nameless)
{
	if (nameless->row != UINT32_MAX || atomic_load(&nameless->shared))
		return nameless->row == UINT32_MAX;
	struct image *im = image_known(nameless->name);
	struct session_kernel *row = im ? atomic_load(&image_kernel(im, nameless->name)->shared) : NULL;
	if (row)
		atomic_store(&nameless->shared, row);
	return row;
}

void kernel_state(struct kernel *k, enum session_kernel_state state, const char *reason)
{
	struct session_kernel *row = k->row != UINT32_MAX ? atomic_load(&k->shared) : NULL;
	if (!row)
		return;
	if (row->state != (uint32_t)state || !row->since_ns)
		row->since_ns = now_ns();
	row->reason = session_add_text(agent.session, reason ? reason : "");
	__atomic_store_n(&row->links,
		state == SESSION_KERNEL_INSTRUMENTED ? atomic_load(&k->links) : 0,
		__ATOMIC_RELAXED);
	__atomic_store_n(&row->state, (uint32_t)state, __ATOMIC_RELEASE);
}

void kernel_refuse(struct kernel *k, const char *reason)
{
	k->refused = arena_strdup(k->image->arena, reason);
	if (!k->refused)
		k->refused = "out of memory";
	atomic_store(&k->wanted, 0);
	kernel_state(k, SESSION_KERNEL_REFUSED, reason);
	agent_log("%s refused: %s", k->name, reason);
}

static uint32_t space_number(enum ptx_space space)
{
	switch (space) {
	case PTX_SPACE_GLOBAL:
		return 1;
	case PTX_SPACE_SHARED:
		return 2;
	case PTX_SPACE_LOCAL:
		return 3;
	case PTX_SPACE_CONST:
		return 4;
	case PTX_SPACE_PARAM:
		return 5;
	case PTX_SPACE_SHARED_CLUSTER:
		return 6;
	default:
		return 0;
	}
}

static void site_row(struct kernel *k, uint32_t id, const struct instrument_site *s)
{
	struct session_site *row = &agent.shared->sites[id];
	*row = (struct session_site){
		.kernel = k->row,
		.point = s->point,
		.ptx_line = s->ptx_line,
		.line = s->line,
		.column = s->column,
		.file = session_add_text(agent.session, s->file ? s->file : ""),
		.opcode = session_add_text(agent.session, s->opcode ? s->opcode : ""),
		.function = session_add_text(agent.session, s->function ? s->function : ""),
		.skipped = session_add_text(agent.session, s->skipped ? s->skipped : ""),
		.space = space_number(s->space),
		.bytes = s->bytes,
	};
}

static bool sites_placed(const struct kernel *k, uint64_t links)
{
	return k->has_sites && k->site_links == links;
}

/* Site ids are taken once for a kernel of the session; another process with the same image shares
 * them. */
static int place_sites(struct kernel *k, uint64_t links, const struct instrument_site *sites, uint32_t n, struct diag *d)
{
	uint32_t first = 0;
	struct session_kernel *row = atomic_load(&k->shared);
	if (row && __atomic_load_n(&row->n_sites, __ATOMIC_ACQUIRE) == n && n &&
		row->first_site <= SESSION_MAX_SITES - n) {
		k->first_site = row->first_site;
	} else {
		if (n && session_add_sites(agent.session, n, &first))
			return diag_set(d, ENOSPC, "the session has no room for %u more sites", n);
		k->first_site = first;
		for (uint32_t i = 0; i < n; i++)
			site_row(k, first + i, &sites[i]);
		if (row) {
			row->first_site = first;
			__atomic_store_n(&row->n_sites, n, __ATOMIC_RELEASE);
		}
	}
	k->n_sites = n;
	k->has_sites = true;
	k->site_links = links;
	return 0;
}

/* The first of its ids, as far as that can be told before its sites are known. */
static uint32_t likely_first_site(const struct kernel *k, uint64_t links)
{
	const struct session_kernel *row = atomic_load(&k->shared);
	if (sites_placed(k, links))
		return k->first_site;
	if (row && __atomic_load_n(&row->n_sites, __ATOMIC_ACQUIRE))
		return row->first_site;
	return __atomic_load_n(&agent.shared->n_sites, __ATOMIC_ACQUIRE);
}

/* What only the instrumenter knows: which sites stay without probes. */
static void mark_skipped(const struct kernel *k, const struct instrument_result *r)
{
	for (uint32_t i = 0; i < r->n_sites; i++)
		if (r->sites[i].ordinal < k->n_sites)
			agent.shared->sites[k->first_site + r->sites[i].ordinal].skipped =
				session_add_text(agent.session,
					r->sites[i].skipped ? r->sites[i].skipped : "");
}

/* -- compiling ----------------------------------------------------------------- */

static bool needs_other_compiler(CUresult r)
{
	return r == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || r == CUDA_ERROR_JIT_COMPILER_NOT_FOUND ||
	       r == CUDA_ERROR_JIT_COMPILATION_DISABLED;
}

static const char *error_name(CUresult r)
{
	const char *name = NULL;
	if (REAL(cuGetErrorName))
		REAL(cuGetErrorName)(r, &name);
	return name ? name : "unknown error";
}

/* The first line of the compiler's log that says something. */
static void first_line(char *log)
{
	char *from = log + strspn(log, " \n\r\t");
	from[strcspn(from, "\n\r")] = 0;
	memmove(log, from, strlen(from) + 1);
}

static CUresult link_one(const char *ptx, size_t bytes, uint32_t max_regs, char *log,
	size_t log_bytes, char **cubin, size_t *cubin_bytes)
{
	CUjit_option names[4] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[4] = { log, (void *)(uintptr_t)log_bytes };
	unsigned int n = 2;
	CUlinkState state = NULL;
	void *out = NULL;
	size_t out_bytes = 0;
	if (!REAL(cuLinkCreate_v2) || !REAL(cuLinkAddData_v2) || !REAL(cuLinkComplete) ||
		!REAL(cuLinkDestroy))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (max_regs) {
		names[n] = CU_JIT_MAX_REGISTERS;
		values[n++] = (void *)(uintptr_t)max_regs;
	}
	CUresult r = REAL(cuLinkCreate_v2)(n, names, values, &state);
	if (r != CUDA_SUCCESS)
		return r;
	r = REAL(cuLinkAddData_v2)(
		state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx, bytes + 1, "egpu", 0, NULL, NULL);
	if (r == CUDA_SUCCESS)
		r = REAL(cuLinkComplete)(state, &out, &out_bytes);
	if (r == CUDA_SUCCESS) {
		/* Text and fatbins of other drivers may rely on a NUL behind. */
		*cubin = calloc(1, out_bytes + 1);
		if (*cubin)
			memcpy(*cubin, out, out_bytes);
		*cubin_bytes = out_bytes;
		r = *cubin ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	REAL(cuLinkDestroy)(state);
	return r;
}

static int compile(const char *ptx, size_t bytes, const struct ptx_module *m, uint32_t cc,
	uint32_t max_regs, char **cubin, size_t *cubin_bytes, struct diag *d)
{
	char log[4096] = "";
	CUresult r = link_one(ptx, bytes, max_regs, log, sizeof(log), cubin, cubin_bytes);
	if (r == CUDA_SUCCESS)
		return 0;
	log[sizeof(log) - 1] = 0;
	first_line(log);
	if (!needs_other_compiler(r) || !m)
		return diag_set(d, EINVAL,
			"the driver does not compile the instrumented kernel: %s (%s)",
			error_name(r), log);
	char target[32];
	struct diag other = { 0 };
	bool same = m->target_suffix == 'a' ? m->sm == cc
					    : m->target_suffix == 'f' && m->sm / 10 == cc / 10;
	snprintf(target, sizeof(target), "sm_%u%.*s", cc, same, &m->target_suffix);
	int err = ptxas_compile(ptx, bytes, target, max_regs, cubin, cubin_bytes, &other);
	if (!err)
		return 0;
	return diag_set(d, -err, "PTX %u.%u is newer than the driver's compiler (%s) and %s",
		m->version_major, m->version_minor, error_name(r), other.text);
}

int compile_uncached(const char *ptx, size_t bytes, uint32_t max_regs, char **cubin, size_t *cubin_bytes, struct diag *d)
{
	return compile(ptx, bytes, NULL, 0, max_regs, cubin, cubin_bytes, d);
}

int compile_ptx(const char *ptx, size_t bytes, uint32_t cc, char **cubin, size_t *cubin_bytes, struct diag *d)
{
	struct cache_key key = { CACHE_COMPILED, ptx, bytes, cc, 0 };
	if (!cache_get(&key, cubin, cubin_bytes))
		return 0;
	int err = compile(ptx, bytes, NULL, cc, 0, cubin, cubin_bytes, d);
	if (!err)
		cache_put(&key, *cubin, *cubin_bytes);
	return err;
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
	uint32_t first_site = likely_first_site(k, r->links);
	char *value = NULL;
	size_t bytes;
	bool found = build_key(k, b, r, first_site, &text);
	if (found) {
		struct cache_key key = key_of(b, &text);
		found = !cache_get(&key, &value, &bytes) && unpack(b, value, bytes);
	}
	buf_free(&text);
	if (found && (sites_placed(k, r->links) ? k->n_sites == b->result.n_sites
						: !place_sites(k, r->links, b->result.sites, b->result.n_sites, &d)) &&
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
	return err ? err : place_sites(k, r->links, sites, n, d);
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

/* *compile_ns: how long the compiler took. */
static int make_anew(struct kernel *k, struct build *b, const struct recipe *r, uint64_t *compile_ns, struct diag *d)
{
	struct instrument_result made;
	struct arena *a = arena_new();
	if (!a)
		return diag_set(d, ENOMEM, "out of memory");
	int err = instrument(k, b, r, a, &made, d);
	uint64_t start = now_ns();
	if (!err)
		err = compile(made.lined, made.lined_bytes, k->image->units[k->unit].module, b->cc, b->max_regs, &b->cubin,
			&b->cubin_bytes, d);
	*compile_ns = now_ns() - start;
	if (!err)
		err = keep(k, b, r, &made);
	arena_free(a);
	return err;
}

static int make(struct kernel *k, struct build *b, struct diag *d)
{
	struct recipe r;
	struct session_kernel *row = atomic_load(&k->shared);
	int err = gather(k, b, &r, d);
	uint64_t start = now_ns(), took;
	bool cached = !err && fetch(k, b, &r);
	took = now_ns() - start;
	if (!err && !cached)
		err = make_anew(k, b, &r, &took, d);
	if (err)
		return err;
	if (row) {
		row->compile_ns = took;
		row->compile_cached = cached;
		row->last_bit_may_differ = b->result.last_bit_may_differ;
	}
	mark_skipped(k, &b->result);
	return 0;
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

int build_kernel(struct kernel *k, uint32_t cc, const char *const *unbound, uint32_t n_unbound,
	uint32_t max_regs, struct build **out, struct diag *d)
{
	uint64_t links = atomic_load(&k->links);
	if (k->row == UINT32_MAX)
		return diag_set(d, ENOSPC, "the session has no room for more kernels");
	if (k->unit < 0)
		return diag_set(d, ENOENT, "%s",
			k->image->no_ptx ? k->image->no_ptx : "no PTX in what the program loaded");
	uint32_t cap = regs_wanted(k, max_regs);
	for (struct build *b = k->builds; b; b = b->next) {
		if (b->links != links || b->cc != cc || b->max_regs != cap ||
			!same_unbound(b, unbound, n_unbound))
			continue;
		*out = b;
		return 0;
	}
	struct build *b = build_new(k, cc, unbound, n_unbound, cap);
	if (!b)
		return diag_set(d, ENOMEM, "out of memory");
	uint64_t start = now_ns();
	int err = make(k, b, d);
	if (err) {
		free(b->cubin);
		arena_free(b->arena);
		return err;
	}
	agent_log("%s built in %.1f ms: %u sites, %u probed, %zu bytes", k->name,
		(double)(now_ns() - start) / 1e6, b->result.n_sites, b->result.n_probed,
		b->cubin_bytes);
	b->next = k->builds;
	k->builds = b;
	*out = b;
	return 0;
}
