/* snapshot.c - see snapshot.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/names.h"
#include "cli/snapshot.h"
#include "egpu/probe.bpf.h"

static uint32_t clamp(uint32_t n, uint32_t max)
{
	return n < max ? n : max;
}

static const char *copy(struct arena *a, const struct session *s, session_string at)
{
	const char *text = arena_strdup(a, session_text(s, at));
	return text ? text : "";
}

/* Several sites of one row, or rows that another process wrote wrongly, are left out rather than
 * believed. */
static void take_sites(struct snapshot *snap, const struct session *s, const struct session_file *f,
	uint32_t row, size_t *cap)
{
	struct snap_kernel *k = &snap->kernels[row];
	uint32_t first = f->kernels[k->id].first_site, n = f->kernels[k->id].n_sites;
	uint32_t total = clamp(__atomic_load_n(&f->n_sites, __ATOMIC_ACQUIRE), SESSION_MAX_SITES);
	k->first_site = snap->n_sites;
	k->n_sites = 0;
	if (first > total || n > total - first)
		return;
	for (uint32_t i = 0; i < n; i++) {
		const struct session_site *from = &f->sites[first + i];
		if (from->kernel != k->id)
			continue;
		struct snap_site *sites =
			arena_grow(snap->arena, snap->sites, snap->n_sites, cap, sizeof(*sites));
		if (!sites)
			return;
		snap->sites = sites;
		sites[snap->n_sites++] = (struct snap_site){
			.id = first + i,
			.kernel = row,
			.point = (enum ebpf_point)from->point,
			.ptx_line = from->ptx_line,
			.line = from->line,
			.column = from->column,
			.file = copy(snap->arena, s, from->file),
			.opcode = copy(snap->arena, s, from->opcode),
			.function = copy(snap->arena, s, from->function),
			.skipped = copy(snap->arena, s, from->skipped),
			.space = from->space,
			.bytes = from->bytes,
		};
		k->n_sites++;
	}
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static double mean(uint64_t ns, uint64_t n, double otherwise)
{
	return n ? (double)ns / (double)n : otherwise;
}

/* The mean of the samples of a kind stands for every launch of that kind; a kernel that ran once has
 * but its first. ever: samples that tell where k has none. */
static void take_time(struct snapshot *snap, struct snap_kernel *k, const struct snap_times *ever)
{
	const struct snap_times *t = &k->samples;
	uint64_t others = k->launches - k->launches_instrumented;
	/* Another process wrote them, and may be writing. */
	if (t->probed_n > t->n || t->probed_ns > t->ns || k->launches_instrumented > k->launches)
		return;
	double all = mean(t->ns, t->n, mean(ever->ns, ever->n, (double)ever->first_ns)),
	       with = mean(t->probed_ns, t->probed_n, all),
	       without = mean(t->ns - t->probed_ns, t->n - t->probed_n, all);
	uint64_t probed_all = (uint64_t)(with * (double)k->launches_instrumented);
	k->timed = t->n + (t->first_ns != 0);
	k->time_ns = probed_all + (uint64_t)(without * (double)others);
	double slow = mean(ever->probed_ns, ever->probed_n, 0), plain = mean(less(ever->ns, ever->probed_ns), less(ever->n, ever->probed_n), 0);
	k->slowdown = plain > 0 ? slow / plain : 0;
	snap->time_ns += k->time_ns;
	snap->probed_ns += probed_all;
	snap->untimed += k->launches && !ever->n && !ever->first_ns;
}

static const struct snap_kernel *kernel_of_id(const struct snapshot *snap, uint32_t id)
{
	/* Rows only come, so that it is here or before. */
	for (uint32_t i = id < snap->n_kernels ? id + 1 : snap->n_kernels; i--;)
		if (snap->kernels[i].id == id)
			return &snap->kernels[i];
	return NULL;
}

static void shapes_since(struct snap_kernel *k, const struct snap_kernel *was);

/* What programs in a part of the warps did for others, before, is not this attach's. */
static void sampling_since(const struct snapshot *snap, struct snap_kernel *k, const struct snap_kernel *was)
{
	k->warps = was ? less(k->warps, was->warps) : k->warps;
	if (session_samples(&snap->filter) && (k->launches_instrumented || k->given_up))
		return;
	k->one_in = k->one_in_least = k->one_in_most = 0;
	k->given_up = false;
	k->overhead_ppm = 0;
}

/* A graph that ran unprobed has a row of its own. Where it has not since, it is probed by now, or gone. */
static void drop_graphs(struct snapshot *snap, const struct snapshot *before)
{
	static const char name[] = "CUDA graph ";
	uint32_t n = 0;
	for (uint32_t i = 0; i < snap->n_kernels; i++) {
		const struct snap_kernel *k = &snap->kernels[i], *was = before ? kernel_of_id(before, k->id) : NULL;
		if (!was || was->launches != k->launches || strncmp(k->name, name, sizeof(name) - 1))
			snap->kernels[n++] = *k;
	}
	snap->n_kernels = n;
}

void snap_since(struct snapshot *snap, const struct snapshot *before)
{
	snap->filter.seen = before ? less(snap->filter.seen, before->filter.seen) : snap->filter.seen;
	snap->launches = snap->launches_instrumented = 0;
	snap->time_ns = snap->probed_ns = 0;
	snap->untimed = 0;
	drop_graphs(snap, before);
	for (uint32_t i = 0; i < snap->n_kernels; i++) {
		struct snap_kernel *k = &snap->kernels[i];
		const struct snap_kernel *was = before ? kernel_of_id(before, k->id) : NULL;
		const struct snap_times ever = k->samples;
		if (was) {
			k->launches = less(k->launches, was->launches);
			k->launches_instrumented = less(k->launches_instrumented, was->launches_instrumented);
			k->samples = (struct snap_times){ less(ever.n, was->samples.n), less(ever.ns, was->samples.ns),
				less(ever.probed_n, was->samples.probed_n), less(ever.probed_ns, was->samples.probed_ns),
				was->samples.first_ns ? 0 : ever.first_ns };
			shapes_since(k, was);
		}
		sampling_since(snap, k, was);
		snap->launches += k->launches;
		snap->launches_instrumented += k->launches_instrumented;
		take_time(snap, k, &ever);
	}
}

static void take_kernel(struct snapshot *snap, const struct session *s, uint32_t id, size_t *cap)
{
	const struct session_file *f = session_data((struct session *)s);
	const struct session_kernel *from = &f->kernels[id];
	struct snap_kernel *k = &snap->kernels[snap->n_kernels];
	/* Pairs with the agent's release store: what the state says about is complete. */
	k->state = (enum session_kernel_state)__atomic_load_n(&from->state, __ATOMIC_ACQUIRE);
	k->id = id;
	k->pid = from->pid;
	k->image_hash = from->image_hash;
	k->name = copy(snap->arena, s, from->name);
	k->demangled = name_demangle(snap->arena, k->name);
	k->reason = copy(snap->arena, s, from->reason);
	k->source = copy(snap->arena, s, from->source);
	k->params = copy(snap->arena, s, from->params);
	k->launches = __atomic_load_n(&from->launches, __ATOMIC_RELAXED);
	k->launches_instrumented = __atomic_load_n(&from->launches_instrumented, __ATOMIC_RELAXED);
	k->samples = (struct snap_times){ from->timed, from->time_ns, from->probed_timed, from->probed_ns, from->first_ns };
	k->regs_before = from->regs_before;
	k->regs_after = from->regs_after;
	k->local_before = from->local_before;
	k->local_after = from->local_after;
	k->compile_ns = from->compile_ns;
	k->compile_cached = from->compile_cached;
	k->last_bit_may_differ = from->last_bit_may_differ;
	k->one_in = from->one_in;
	k->one_in_least = from->one_in_least;
	k->one_in_most = from->one_in_most;
	k->warps = __atomic_load_n(&from->warps, __ATOMIC_RELAXED);
	k->given_up = from->given_up != 0;
	k->overhead_ppm = from->overhead_ppm;
	k->estimate = (double)__atomic_load_n(&from->estimate_ppm, __ATOMIC_ACQUIRE) / 1e6;
	k->estimate_least = (double)from->estimate_least_ppm / 1e6;
	k->estimate_most = (double)from->estimate_most_ppm / 1e6;
	k->links = __atomic_load_n(&from->links, __ATOMIC_RELAXED);
	k->since_ns = from->since_ns;
	if (!*k->name)
		return; /* claimed by an agent that died before it wrote the row */
	snap->n_kernels++;
	snap->n_probed += k->state == SESSION_KERNEL_INSTRUMENTED;
	take_sites(snap, s, f, snap->n_kernels - 1, cap);
}

static bool same_way(const struct snap_shape *a, const struct snap_shape *b)
{
	return !memcmp(a->grid, b->grid, sizeof(a->grid)) && !memcmp(a->block, b->block, sizeof(a->block)) &&
	       a->shared_bytes == b->shared_bytes && a->stream == b->stream;
}

static struct snap_shape *shape_like(const struct snap_kernel *k, const struct snap_shape *like)
{
	for (uint32_t i = 0; i < k->n_shapes; i++)
		if (same_way(&k->shapes[i], like))
			return &k->shapes[i];
	return NULL;
}

static int by_launches(const void *pa, const void *pb)
{
	const struct snap_shape *a = pa, *b = pb;
	return a->launches < b->launches ? 1 : -(a->launches > b->launches);
}

static void take_shape(struct snapshot *snap, const struct session_shape *from, struct snap_kernel *const *by_row, uint32_t n)
{
	/* Pairs with the agent's release store. */
	uint32_t kernel = __atomic_load_n(&from->kernel, __ATOMIC_ACQUIRE);
	struct snap_kernel *k = kernel && kernel <= n ? by_row[kernel - 1] : NULL;
	struct snap_shape one = { .shared_bytes = from->shared_bytes,
		.stream = from->stream,
		.launches = __atomic_load_n(&from->launches, __ATOMIC_RELAXED),
		.timed = from->timed,
		.time_ns = from->time_ns };
	memcpy(one.grid, from->grid, sizeof(one.grid));
	memcpy(one.block, from->block, sizeof(one.block));
	struct snap_shape *has = k ? shape_like(k, &one) : NULL;
	if (has) { /* another process's */
		has->launches += one.launches;
		has->timed += one.timed;
		has->time_ns += one.time_ns;
	} else if (k) {
		size_t cap = k->n_shapes;
		struct snap_shape *list = k->n_shapes & (k->n_shapes - 1) || k->n_shapes == 1 ? k->shapes
			: arena_array(snap->arena, k->n_shapes ? 2 * cap : 2, sizeof(*list));
		if (!list)
			return;
		if (list != k->shapes && cap)
			memcpy(list, k->shapes, cap * sizeof(*list));
		k->shapes = list;
		k->shapes[k->n_shapes++] = one;
	}
}

static void take_shapes(struct snapshot *snap, const struct session_file *f, uint32_t n_rows)
{
	uint32_t n = clamp(__atomic_load_n(&f->n_shapes, __ATOMIC_ACQUIRE), SESSION_MAX_SHAPES);
	struct snap_kernel **by_row = arena_array(snap->arena, n_rows ? n_rows : 1, sizeof(struct snap_kernel *));
	for (uint32_t i = 0; by_row && i < snap->n_kernels; i++)
		by_row[snap->kernels[i].id] = &snap->kernels[i];
	for (uint32_t i = 0; by_row && i < n; i++)
		take_shape(snap, &f->shapes[i], by_row, n_rows);
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		if (snap->kernels[i].n_shapes)
			qsort(snap->kernels[i].shapes, snap->kernels[i].n_shapes, sizeof(struct snap_shape), by_launches);
}

/* Ways that were not used since are left out. */
static void shapes_since(struct snap_kernel *k, const struct snap_kernel *was)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < k->n_shapes; i++) {
		const struct snap_shape *old = shape_like(was, &k->shapes[i]);
		struct snap_shape now = k->shapes[i];
		if (old) {
			now.launches = less(now.launches, old->launches);
			now.timed = less(now.timed, old->timed);
			now.time_ns = less(now.time_ns, old->time_ns);
		}
		if (now.launches)
			k->shapes[n++] = now;
	}
	k->n_shapes = n;
	if (n)
		qsort(k->shapes, n, sizeof(*k->shapes), by_launches);
}

struct snapshot *snap_take(const struct session *s)
{
	const struct session_file *f = session_data((struct session *)s);
	struct arena *a = arena_new();
	struct snapshot *snap = a ? arena_alloc(a, sizeof(*snap)) : NULL;
	uint32_t n = clamp(__atomic_load_n(&f->n_kernels, __ATOMIC_ACQUIRE), SESSION_MAX_KERNELS);
	size_t cap = 0;
	if (!snap || !(snap->kernels = arena_array(a, n ? n : 1, sizeof(*snap->kernels)))) {
		arena_free(a);
		return NULL;
	}
	snap->arena = a;
	snap->filter = f->filter;
	snap->kernels_lost = f->kernels_lost;
	snap->sites_lost = f->sites_lost;
	for (uint32_t i = 0; i < n; i++)
		take_kernel(snap, s, i, &cap);
	take_shapes(snap, f, n);
	snap_since(snap, NULL);
	return snap;
}

void snap_free(struct snapshot *snap)
{
	if (snap)
		arena_free(snap->arena);
}

const char *snap_state_name(enum session_kernel_state state)
{
	static const char *const names[] = { [SESSION_KERNEL_SEEN] = "not selected",
		[SESSION_KERNEL_PENDING] = "pending",
		[SESSION_KERNEL_INSTRUMENTED] = "instrumented",
		[SESSION_KERNEL_REFUSED] = "refused" };
	return (unsigned)state < sizeof(names) / sizeof(*names) ? names[state] : "unknown";
}

const char *snap_space_name(uint32_t space)
{
	static const char *const names[] = {
		"generic", [EGPU_SPACE_GLOBAL] = "global", [EGPU_SPACE_SHARED] = "shared",
		[EGPU_SPACE_LOCAL] = "local", [EGPU_SPACE_CONST] = "const",
		[EGPU_SPACE_PARAM] = "param", [EGPU_SPACE_SHARED_CLUSTER] = "shared::cluster"
	};
	return space < sizeof(names) / sizeof(*names) ? names[space] : "unknown";
}

double snap_seconds_since(uint64_t ns)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	return ns && now > ns ? (double)(now - ns) / 1e9 : 0;
}
