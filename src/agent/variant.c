/* variant.c - cubin -> loaded and bound variant, at a moment when that can harm nobody.
 *
 * A variant is compiled at any time and then queued. It is loaded when the launch gate can be
 * closed without waiting and every stream we know of is idle: then the driver's load has nothing to
 * wait for, and no launch can slip in that would wait for it. Until then the original runs and the
 * session shows the kernel as pending. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "live/live.h"

enum {
	RETRY_NS = 50000,
	UNLOAD_RETRY_NS = 1000000,
	HELD_LOAD_NS = 5000000,
	FIRST_LAUNCH_NS = 2000000,
	REG_FILE = 65536,
	REG_UNIT = 8,
	WARP = 32,
	MADE_AT_ONCE = 16, /* kernels: the compiler works on all of them */
};

/* Attributes that a program sets on its kernel and that the variant must share. */
static const CUfunction_attribute mirrored[] = {
	CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
	CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
	CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
	CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
};

static int function_attribute(CUfunction fn, CUfunction_attribute which, int otherwise)
{
	int v = otherwise;
	return REAL(cuFuncGetAttribute)(&v, which, fn) == CUDA_SUCCESS ? v : otherwise;
}

/* -- loading ------------------------------------------------------------------------ */

static int find_original(struct variant *v, struct diag *d)
{
	CUresult r;
	const char *name = v->kernel->name;
	if (v->module->is_library) {
		CUkernel kernel;
		r = REAL(cuLibraryGetKernel)(&kernel, v->module->handle, name);
		if (r == CUDA_SUCCESS)
			r = REAL(cuKernelGetFunction)(&v->original, kernel);
	} else {
		r = REAL(cuModuleGetFunction)(&v->original, v->module->handle, name);
	}
	return r == CUDA_SUCCESS
		       ? 0
		       : diag_set(d, ENOENT, "its PTX has it, the loaded module does not");
}

static int load_cubin(struct variant *v, struct diag *d)
{
	CUresult r = REAL(cuModuleLoadData)(&v->handle, v->build->cubin);
	if (r == CUDA_SUCCESS)
		r = REAL(cuModuleGetFunction)(&v->function, v->handle, v->kernel->name);
	return r == CUDA_SUCCESS
		       ? 0
		       : diag_set(d, EIO,
				 "the driver does not load the instrumented kernel (error %d)",
				 (int)r);
}

static void unload(struct variant *v)
{
	if (v->handle)
		REAL(cuModuleUnload)(v->handle);
	v->handle = NULL;
	v->function = NULL;
}

struct bank {
	const char *kernel;
	uint64_t bytes;
};

static void find_bank(const char *kernel, uint64_t bytes, void *arg)
{
	struct bank *b = arg;
	if (!strcmp(kernel, b->kernel))
		b->bytes = bytes;
}

/* Whether the loaded code has no parameter behind those of the PTX, as far as can be told without a question
 * that the driver answers with an error: code that the driver made of this PTX has none, and the constant bank of the
 * program's own code ends where the variant's would without our parameter. */
static bool has_no_more(const struct variant *v, size_t end)
{
	const struct build *b = v->build;
	struct bank ours = { .kernel = v->kernel->name };
	if (!v->module->image->has_code)
		return true;
	cubin_banks(b->cubin, b->cubin_bytes, find_bank, &ours);
	if (b->result.launch_param)
		ours.bytes -= b->result.launch_param_offset + 8 - end;
	return v->kernel->bank_bytes && v->kernel->bank_bytes == ours.bytes;
}

static int same_parameters(struct variant *v, struct diag *d)
{
	uint32_t n = v->build->result.n_params;
	size_t at, bytes, at2, bytes2, end = 0;
	if (!REAL(cuFuncGetParamInfo))
		return 0;
	for (uint32_t i = 0; i < n; i++) {
		bool has = REAL(cuFuncGetParamInfo)(v->original, i, &at, &bytes) == CUDA_SUCCESS;
		bool has2 = REAL(cuFuncGetParamInfo)(v->function, i, &at2, &bytes2) == CUDA_SUCCESS;
		if (!i && !has)
			return 0; /* this driver does not tell */
		if (!has || !has2 || at != at2 || bytes != bytes2)
			return diag_set(d, EINVAL, "its PTX has other parameters than the loaded code");
		end = at + bytes;
	}
	if (has_no_more(v, end) || REAL(cuFuncGetParamInfo)(v->original, n, &at, &bytes) != CUDA_SUCCESS)
		return 0;
	return diag_set(d, EINVAL, "its PTX has other parameters than the loaded code");
}

static int same_shape(struct variant *v, struct diag *d)
{
	int shared = function_attribute(v->original, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0);
	int shared2 = function_attribute(v->function, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 0);
	if (shared != shared2)
		return diag_set(d, EINVAL,
			"its PTX takes %d bytes of static shared memory, the loaded code %d",
			shared2, shared);
	return same_parameters(v, d);
}

/* Programs that come later as machine code were compiled for so many registers. No compiler that is known gives a kernel that calls functions fewer. */
static int enough_registers(const struct variant *v, struct diag *d)
{
	int regs = function_attribute(v->function, CU_FUNC_ATTRIBUTE_NUM_REGS, LIVE_NATIVE_REGS);
	uint64_t words = v->build->maps & build_words_map();
	if (regs >= LIVE_NATIVE_REGS || !words || agent.shared->maps[__builtin_ctzll(words)].live != LIVE_TIER_NATIVE)
		return 0;
	return diag_set(d, ERANGE,
		"it has %d registers, and programs for kernels that run take %d as machine code: EGPU_LIVE_TIER=interpreted lets them be "
		"interpreted", regs, LIVE_NATIVE_REGS);
}

/* Registers a thread may have so that a block of `threads` fits. */
static uint32_t register_cap(int threads)
{
	uint32_t warps = ((uint32_t)threads + WARP - 1) / WARP;
	uint32_t cap = REG_FILE / WARP / (warps ? warps : 1) / REG_UNIT * REG_UNIT;
	return cap > 255 ? 255 : cap < 16 ? 16 : cap;
}

/* A program may launch any block the original allows: one that the variant does not is built again
 * with fewer registers. */
static int fit_threads(struct variant *v, struct diag *d)
{
	int want = function_attribute(v->original, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
	int have = function_attribute(v->function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
	if (have >= want)
		return 0;
	unload(v);
	int err = symbols_settle(v, register_cap(want), d);
	if (!err)
		err = load_cubin(v, d);
	if (err)
		return err;
	have = function_attribute(v->function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024);
	if (have < want)
		return diag_set(d, ERANGE,
			"the instrumented kernel allows %d threads a block, the original %d", have,
			want);
	return 0;
}

/* So many registers cost a kernel no thread that runs (64 warps); a few words in local memory instead cost less than half of the threads. */
enum { FREE_REGS = 32, FEW_BYTES = 64 };

/* The compiler takes more than it needs where it does not know how large blocks are; a kernel that had no more than FREE_REGS would have fewer
 * threads for it. Where it can do without, it does. */
static int spare_registers(struct variant *v, struct diag *d)
{
	struct build *liberal = v->build;
	int local = function_attribute(v->function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0);
	if (v->cap || function_attribute(v->original, CU_FUNC_ATTRIBUTE_NUM_REGS, FREE_REGS + 1) > FREE_REGS ||
		function_attribute(v->function, CU_FUNC_ATTRIBUTE_NUM_REGS, 0) <= FREE_REGS)
		return 0;
	unload(v);
	int err = symbols_settle(v, FREE_REGS, d);
	if (!err)
		err = load_cubin(v, d);
	if (!err && function_attribute(v->function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, INT_MAX) <= local + FEW_BYTES)
		return 0;
	unload(v);
	v->build = liberal;
	return load_cubin(v, d);
}

static uint64_t seed(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return ((uint64_t)t.tv_nsec << 32 ^ (uint64_t)t.tv_sec ^ (uint64_t)getpid() << 16) *
	       0x9e3779b97f4a7c15u;
}

void variant_table(const struct context *c, uint64_t *table)
{
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++) {
		table[i] = c->maps[i].address;
		table[EBPF_TABLE_REPLICAS + i] = c->maps[i].replica_bytes;
	}
	table[EBPF_TABLE_SMS] = c->sms ? c->sms : 1;
	table[EBPF_TABLE_CLOCK] = (uint64_t)c->clock_offset_ns;
	table[EBPF_TABLE_SEED] = seed();
	table[EBPF_TABLE_CHOICE] = filter_seed();
	table[EBPF_TABLE_PROCESS] = (uint64_t)getpid() << 32 | (uint64_t)getpid();
}

/* Everything the variant reads through __egpu_table. */
static int fill_table(struct variant *v, struct diag *d)
{
	CUdeviceptr at;
	size_t bytes;
	const struct instrument_result *r = &v->build->result;
	struct context *c = v->context;
	/* A compiler leaves out what is not used. */
	if (!memmem(v->build->cubin, v->build->cubin_bytes, "__egpu_table", 12))
		return 0;
	if (REAL(cuModuleGetGlobal_v2)(&at, &bytes, v->handle, "__egpu_table") != CUDA_SUCCESS)
		return diag_set(d, EIO, "the table of the instrumented kernel cannot be found");
	uint32_t n = r->table_entries > EBPF_TABLE_SYMBOLS + r->n_symbols
			     ? r->table_entries
			     : EBPF_TABLE_SYMBOLS + r->n_symbols;
	uint64_t *table = calloc(n, sizeof(*table));
	if (!table)
		return diag_set(d, ENOMEM, "out of memory");
	variant_table(c, table);
	for (uint32_t i = 0; i < r->n_symbols; i++)
		table[EBPF_TABLE_SYMBOLS + i] = symbol_address(v->module, r->symbols[i]);
	size_t want = n * sizeof(*table);
	bool done = REAL(cuMemcpyHtoDAsync_v2)(at, table, bytes < want ? bytes : want, c->stream) ==
			    CUDA_SUCCESS &&
		    REAL(cuStreamSynchronize)(c->stream) == CUDA_SUCCESS;
	free(table);
	return done ? 0
		    : diag_set(d, EIO, "the table of the instrumented kernel cannot be written");
}

static void mirror_attributes(struct variant *v)
{
	for (size_t i = 0; i < sizeof(mirrored) / sizeof(mirrored[0]); i++) {
		int want = function_attribute(v->original, mirrored[i], -1);
		int have = function_attribute(v->function, mirrored[i], -1);
		if (want != have && want >= 0)
			REAL(cuFuncSetAttribute)(v->function, mirrored[i], want);
	}
	if (v->kernel->has_cache_config && REAL(cuFuncSetCacheConfig))
		REAL(cuFuncSetCacheConfig)(v->function, v->kernel->cache_config);
}

static uint32_t allocated(uint32_t regs)
{
	return (regs + REG_UNIT - 1) / REG_UNIT * REG_UNIT;
}

static void report(struct variant *v)
{
	struct session_kernel *row = atomic_load(&v->kernel->shared);
	uint32_t before = (uint32_t)function_attribute(v->original, CU_FUNC_ATTRIBUTE_NUM_REGS, 0);
	uint32_t after = (uint32_t)function_attribute(v->function, CU_FUNC_ATTRIBUTE_NUM_REGS, 0);
	uint32_t local_before =
		(uint32_t)function_attribute(v->original, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0);
	uint32_t local_after =
		(uint32_t)function_attribute(v->function, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 0);
	v->tight = allocated(after) > allocated(before);
	if (local_after > local_before)
		context_reserve_local(v->context, local_after);
	filter_begin(v->kernel);
	if (!row)
		return;
	row->regs_before = before;
	row->regs_after = after;
	row->local_before = local_before;
	row->local_after = local_after;
	kernel_state(v->kernel, SESSION_KERNEL_INSTRUMENTED, "");
}

/* With lazy loading a function is loaded at its first launch, which would wait for running kernels
 * then. */
static void load_eagerly(struct variant *v)
{
	if (!REAL(cuFuncLoad))
		return;
	REAL(cuFuncLoad)(v->original);
	REAL(cuFuncLoad)(v->function);
}

/* With EGPU_AGENT_LOG set: where the time of a load goes. */
static int logged(const struct variant *v, const char *step, int err)
{
	agent_log("%s: %s", v->kernel->name, step);
	return err;
}

/* The device is idle, the gate closed, the context current. */
static int load(struct variant *v, struct diag *d)
{
	int err = logged(v, "context", context_prepare(v->context, d));
	if (!err)
		err = logged(v, "original", find_original(v, d));
	if (!err)
		err = logged(v, "symbols", symbols_settle(v, v->cap, d));
	if (!err && v->build->clock) {
		lock_take(&v->context->copying);
		context_clock(v->context);
		lock_drop(&v->context->copying);
	}
	if (!err)
		err = logged(v, "maps", devmap_make(v->context, v->build->maps, d));
	if (!err)
		err = logged(v, "machine code", load_cubin(v, d));
	if (!err)
		err = spare_registers(v, d);
	if (!err)
		err = fit_threads(v, d);
	if (!err)
		err = logged(v, "attributes", same_shape(v, d));
	if (!err)
		err = enough_registers(v, d);
	if (!err)
		err = logged(v, "table", fill_table(v, d));
	if (err) {
		unload(v);
		return err;
	}
	v->n_params = v->build->result.n_params;
	v->launch_param = v->build->result.launch_param;
	v->sampled = v->build->result.sampled;
	v->reads_launch = v->build->result.reads_launch;
	v->launch_param_offset = (uint32_t)v->build->result.launch_param_offset;
	load_eagerly(v);
	logged(v, "eagerly", 0);
	mirror_attributes(v);
	report(v);
	return logged(v, "done", 0);
}

/* A variant that was waited for is wanted no more. The same kernel may be there in other modules and contexts. */
static void settle_row(struct kernel *k)
{
	const struct session_kernel *row = atomic_load(&k->shared);
	uint64_t links = atomic_load(&k->links);
	bool waits = false;
	if (!row || row->state != SESSION_KERNEL_PENDING || !links)
		return;
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		for (struct variant *v = m->image == k->image ? atomic_load(&m->variants) : NULL; v; v = v->next) {
			if (v->kernel != k || v->links != links || v->cap || atomic_load(&v->context->dead))
				continue;
			if (atomic_load(&v->state) == VARIANT_READY) {
				kernel_state(k, SESSION_KERNEL_INSTRUMENTED, "");
				return;
			}
			waits |= atomic_load(&v->state) == VARIANT_PENDING;
		}
	if (!waits)
		kernel_state(k, SESSION_KERNEL_REFUSED, "it was unloaded before there was a moment to load its variant");
}

static void load_one(struct variant *v)
{
	CUcontext was;
	struct diag d = { 0 };
	uint64_t start = now_ns();
	if (atomic_load(&v->module->gone) || atomic_load(&v->context->dead) ||
		REAL(cuCtxPushCurrent_v2)(v->context->handle) != CUDA_SUCCESS) {
		atomic_store(&v->state, VARIANT_REFUSED);
		settle_row(v->kernel);
		return;
	}
	int err = load(v, &d);
	REAL(cuCtxPopCurrent_v2)(&was);
	/* A context that the program destroys meanwhile says nothing of the kernel. */
	if (err && atomic_load(&v->context->ending)) {
		atomic_store_explicit(&v->state, VARIANT_REFUSED, memory_order_release);
		settle_row(v->kernel);
		return;
	}
	if (err) {
		if (!v->cap)
			kernel_refuse(v->kernel, d.text[0] ? d.text : "it cannot be loaded");
		atomic_store_explicit(&v->state, VARIANT_REFUSED, memory_order_release);
		return;
	}
	agent_log("%s loaded in %.1f ms", v->kernel->name, (double)(now_ns() - start) / 1e6);
	atomic_store_explicit(&v->state, VARIANT_READY, memory_order_release);
}

/* -- queue --------------------------------------------------------------------------- */

static void set_pending(const char *why)
{
	for (struct variant *v = agent.queue; v; v = v->queued)
		if (!v->cap)
			kernel_state(v->kernel, SESSION_KERNEL_PENDING, why);
}

static void unlink_variant(struct variant *v)
{
	_Atomic(struct variant *) *head = &v->module->variants;
	struct variant *at = atomic_load(head);
	if (at == v) {
		atomic_store(head, v->next);
		return;
	}
	while (at && at->next != v)
		at = at->next;
	if (at)
		atomic_store(&at->next, v->next);
}

/* The gate is closed and nothing runs. What an executable graph may launch stays. The record itself is
 * never freed: a launch may be looking at it. */
static void unload_retired(void)
{
	struct variant *v = agent.retired, *next;
	agent.retired = NULL;
	atomic_store(&agent.n_retired, 0);
	endings_unload();
	for (; v; v = next) {
		CUcontext was;
		next = v->queued;
		if (atomic_load(&v->graph_refs) && !atomic_load(&v->context->dead)) {
			v->queued = agent.retired;
			agent.retired = v;
			atomic_fetch_add(&agent.n_retired, 1);
			continue;
		}
		if (!atomic_load(&v->context->dead) &&
			REAL(cuCtxPushCurrent_v2)(v->context->handle) == CUDA_SUCCESS) {
			unload(v);
			REAL(cuCtxPopCurrent_v2)(&was);
		}
		unlink_variant(v);
		v->build = NULL;
	}
}

static void retire(struct variant *v)
{
	atomic_store(&v->links, 0);
	if (atomic_exchange(&v->state, VARIANT_REFUSED) != VARIANT_READY)
		return;
	v->queued = agent.retired;
	agent.retired = v;
	atomic_fetch_add(&agent.n_retired, 1);
}

static bool build_used(const struct build *b)
{
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		for (struct variant *v = atomic_load(&m->variants); v; v = v->next)
			if (v->build == b)
				return true;
	return false;
}

/* Maps that something loaded in this context refers to, or soon will. */
static uint64_t maps_used(const struct context *c)
{
	uint64_t used = 0;
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		for (struct variant *v = atomic_load(&m->variants); v; v = v->next)
			if (v->context == c && v->build && (v->handle || v->state == VARIANT_PENDING))
				used |= v->build->maps;
	return used;
}

/* What belonged to links that are gone is freed; nothing runs. */
static void sweep(void)
{
	CUcontext was;
	uint64_t generation = atomic_load(&agent.generation), attached = links_attached(),
		 live = build_live_maps(attached);
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		for (struct variant *v = atomic_load(&m->variants), *next; v; v = next) {
			next = v->next;
			/* What was loaded into a context that is gone went with it. */
			bool loaded = v->handle && !atomic_load(&v->context->dead);
			if (loaded || v->state != VARIANT_REFUSED || !(v->build && v->build->links & ~attached))
				continue;
			unlink_variant(v);
			v->build = NULL;
		}
	for (struct image *im = atomic_load(&agent.images); im; im = im->next)
		for (uint32_t i = 0; i < im->n_kernels; i++)
			build_sweep(&im->kernels[i], attached, build_used);
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		uint64_t gone = c->map_mask & ~live & ~maps_used(c) & ~build_words_map();
		if (!gone || atomic_load(&c->dead) ||
			REAL(cuCtxPushCurrent_v2)(c->handle) != CUDA_SUCCESS)
			continue;
		devmap_free(c, gone);
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	if (agent.retired)
		return;
	for (struct context *c = atomic_load(&agent.contexts); c && !attached && atomic_load(&agent.late);
		c = c->next)
		if (!atomic_load(&c->dead))
			context_rest(c);
	atomic_store(&agent.sweep_due, 0);
	if (agent.row && live_settled(generation))
		__atomic_store_n(&agent.row->drained, generation, __ATOMIC_RELEASE);
}

/* The device is idle, the gate closed. After a hold, only for so long that launches do not wait much
 * longer. */
static void load_all(void)
{
	uint64_t until = agent.hold.begun_ns ? now_ns() + HELD_LOAD_NS : UINT64_MAX;
	while (agent.queue && now_ns() < until) {
		struct variant *v = agent.queue;
		agent.queue = v->queued;
		atomic_fetch_sub(&agent.n_queued, 1);
		load_one(v);
	}
	unload_retired();
	if (atomic_load(&agent.sweep_due))
		sweep();
	live_idle();
}

/* Whether an idle moment would be of use: what a graph holds has to wait for more. */
static bool work_waits(void)
{
	if (agent.queue || agent.endings || (!agent.retired && atomic_load(&agent.sweep_due)))
		return true;
	for (const struct variant *v = agent.retired; v; v = v->queued)
		if (!atomic_load(&v->graph_refs))
			return true;
	return false;
}

static bool beside_rigid(void)
{
	if (!atomic_load(&agent.n_rigid))
		return false;
	set_pending("a graph is there whose work the device launches itself (conditional nodes), beside which nothing is loaded");
	return true;
}

/* agent.build is held. */
static void try_load(void)
{
	const char *why = "another launch is under way";
	if (beside_rigid())
		return;
	bool idle = gate_close(&agent.gate);
	if (idle && !stream_idle(&why)) {
		gate_open(&agent.gate);
		idle = false;
	}
	if (!idle && work_waits() && hold_due())
		idle = hold_until_idle(&why);
	if (!idle) {
		agent_log("pending: %s", why);
		set_pending(why);
		return;
	}
	/* One may have come until the gate was closed. */
	if (!beside_rigid())
		load_all();
	gate_open(&agent.gate);
	hold_end(!agent.queue);
}

void variant_load_queued(enum load_hurry hurry)
{
	uint64_t now = now_ns();
	bool load = atomic_load(&agent.n_queued),
	     work = load || atomic_load(&agent.n_retired) || atomic_load(&agent.sweep_due) ||
		    (hurry == LOAD_SYNC && live_wants_idle());
	if (!agent_on() || (!work && hurry != LOAD_MUST))
		return;
	/* Unloading has time. */
	if (hurry == LOAD_POLL &&
		now - atomic_load(&agent.last_try_ns) < (load ? RETRY_NS : UNLOAD_RETRY_NS))
		return;
	/* A launch of a kernel that another thread is loading waits for it, although the queue may
	 * be empty by then: that ends, since it waits for nothing on the device. */
	if (hurry == LOAD_MUST)
		lock_take(&agent.build);
	else if (!lock_try(&agent.build))
		return;
	atomic_store(&agent.last_try_ns, now);
	if (agent.queue || agent.retired || agent.endings || atomic_load(&agent.sweep_due) || live_wants_idle())
		try_load();
	lock_drop(&agent.build);
}

/* -- making --------------------------------------------------------------------------- */

bool variant_prepared(const struct module *m, const struct context *c)
{
	uint32_t n = atomic_load(&m->n_prepared);
	for (uint32_t i = 0; i < n && i < MAX_PREPARED; i++)
		if (m->prepared[i] == c)
			return true;
	return false;
}

static struct variant *existing(
	struct module *m, const struct kernel *k, const struct context *c, bool capped)
{
	for (struct variant *v = atomic_load(&m->variants); v; v = v->next)
		if (v->kernel == k && v->context == c && v->links == atomic_load(&k->links) &&
			!v->cap == !capped)
			return v;
	return NULL;
}

static void enqueue(struct module *m, struct variant *v)
{
	v->next = atomic_load(&m->variants);
	atomic_store_explicit(&m->variants, v, memory_order_release);
	v->queued = agent.queue;
	agent.queue = v;
	atomic_fetch_add(&agent.n_queued, 1);
}

static void make(struct module *m, struct kernel *k, struct context *c)
{
	struct diag d = { 0 };
	struct build *b;
	struct variant *old = existing(m, k, c, false);
	/* It serves again: what the session says may be of other links, or of a variant that waited and is wanted no more. */
	if (old && atomic_load(&old->state) == VARIANT_READY)
		kernel_state(k, SESSION_KERNEL_INSTRUMENTED, "");
	if (old)
		return;
	int err = build_kernel(k, c->cc, NULL, 0, 0, &b, &d);
	if (err) {
		kernel_refuse(k, d.text[0] ? d.text : "out of memory");
		return;
	}
	struct variant *v = calloc(1, sizeof(*v));
	if (!v)
		return;
	v->kernel = k;
	v->module = m;
	v->context = c;
	v->build = b;
	v->links = b->links;
	enqueue(m, v);
	kernel_state(
		k, SESSION_KERNEL_PENDING, "waits for a moment when nothing runs on the device");
}

/* The next few kernels that are wanted, from *at on. */
static void make_some(struct module *m, struct context *c, uint32_t *at)
{
	struct kernel *list[MADE_AT_ONCE] = { NULL };
	uint32_t n = 0;
	for (; *at < m->image->n_kernels && n < MADE_AT_ONCE; ++*at)
		if (atomic_load(&m->image->kernels[*at].wanted))
			list[n++] = &m->image->kernels[*at];
	build_kernels(list, n, c->cc);
	for (uint32_t i = 0; i < n; i++)
		if (atomic_load(&list[i]->wanted))
			make(m, list[i], c);
}

void variant_prepare(struct module *m, struct context *c)
{
	if (!c || !m->image || atomic_load(&m->gone) || !filter_device(c))
		return;
	lock_take(&agent.build);
	if (!variant_prepared(m, c)) {
		uint32_t n = atomic_load(&m->n_prepared);
		uint64_t generation = atomic_load(&agent.generation);
		for (uint32_t at = 0; at < m->image->n_kernels;) {
			make_some(m, c, &at);
			/* Others have their turn after each compilation; whoever comes next goes on when links have changed. */
			lock_drop(&agent.build);
			lock_take(&agent.build);
			if (generation != atomic_load(&agent.generation) || atomic_load(&m->gone))
				goto out;
		}
		for (uint32_t i = 0; i < n; i++)
			if (atomic_load(&m->prepared[i]->dead)) {
				m->prepared[i] = c;
				c = NULL;
				break;
			}
		if (c && n < MAX_PREPARED) {
			m->prepared[n] = c;
			atomic_store(&m->n_prepared, n + 1);
		}
		image_forget_parsed(m->image);
	}
out:
	lock_drop(&agent.build);
}

static struct variant *ready(struct function *f, CUcontext context)
{
	struct variant *v = atomic_load_explicit(&f->cached, memory_order_acquire);
	uint64_t links = atomic_load_explicit(&f->kernel->links, memory_order_relaxed);
	if (v && v->context->handle == context && v->links == links &&
		atomic_load_explicit(&v->state, memory_order_acquire) == VARIANT_READY &&
		!atomic_load_explicit(&v->context->dead, memory_order_relaxed))
		return v;
	for (v = atomic_load_explicit(&f->module->variants, memory_order_acquire); v; v = v->next) {
		if (v->kernel != f->kernel || v->context->handle != context || v->links != links ||
			v->cap)
			continue;
		if (atomic_load_explicit(&v->state, memory_order_acquire) != VARIANT_READY ||
			atomic_load(&v->context->dead))
			continue;
		atomic_store_explicit(&f->cached, v, memory_order_release);
		return v;
	}
	return NULL;
}

/* Of a launch whose variant is not loaded yet. */
static enum load_hurry load_hurry(void)
{
	return atomic_load_explicit(&agent.late, memory_order_relaxed) ? LOAD_POLL : LOAD_MUST;
}

/* The driver loads a function at its first launch, and waits for that until nothing runs: this is a load of the program's own, beside which
 * ours waits for no more than the program does anyway. Whether it was one. Not while something is captured, where the driver may forbid it. */
static bool take_first_launch(const struct function *f, CUcontext context, void *fn)
{
	CUcontext now = NULL;
	CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_LOADED;
	if (!fn || !atomic_load(&agent.n_queued) || atomic_load(&agent.captures) || !REAL(cuFuncIsLoaded) || !REAL(cuFuncLoad) ||
		REAL(cuCtxGetCurrent)(&now) != CUDA_SUCCESS || now != context)
		return false;
	CUfunction handle = function_handle(fn, !f->context);
	return handle && REAL(cuFuncIsLoaded)(&state, handle) == CUDA_SUCCESS && state == CU_FUNCTION_LOADING_STATE_UNLOADED &&
	       REAL(cuFuncLoad)(handle) == CUDA_SUCCESS;
}

struct variant *variant_for_launch(struct function *f, CUcontext current, void *fn)
{
	CUcontext context = f->context ? f->context : current;
	struct variant *v = ready(f, context);
	if (v)
		return v;
	struct context *c = context_get(context);
	if (!c || !filter_device(c))
		return NULL;
	bool prepared = variant_prepared(f->module, c);
	/* In a process that we came to late there is a thread of ours which compiles: nobody's launch waits for that. */
	if (!prepared && atomic_load_explicit(&agent.late, memory_order_relaxed)) {
		late_poke();
		return NULL;
	}
	if (!prepared)
		variant_prepare(f->module, c);
	if (!atomic_load(&f->kernel->wanted))
		return NULL;
	/* What ran has ended; that the driver says so of each stream may take a moment. */
	enum load_hurry hurry = load_hurry();
	bool first = hurry == LOAD_MUST && take_first_launch(f, context, fn);
	uint64_t until = first ? now_ns() + FIRST_LAUNCH_NS : 0;
	variant_load_queued(hurry);
	while (!(v = ready(f, context)) && first && now_ns() < until) {
		usleep(20);
		variant_load_queued(hurry);
	}
	return v;
}

/* -- residency ------------------------------------------------------------------------ */

/* The same variant with no more registers than the original has. */
static struct variant *make_capped(struct variant *v)
{
	struct module *m = v->module;
	if (load_hurry() == LOAD_MUST)
		lock_take(&agent.build);
	else if (!lock_try(&agent.build))
		return NULL;
	struct variant *c = existing(m, v->kernel, v->context, true);
	if (!c && v->build && atomic_load(&v->state) == VARIANT_READY &&
		!atomic_exchange(&v->cap_tried, 1) && (c = calloc(1, sizeof(*c)))) {
		c->kernel = v->kernel;
		c->module = m;
		c->context = v->context;
		c->build = v->build;
		c->links = v->links;
		c->cap = allocated(
			(uint32_t)function_attribute(v->original, CU_FUNC_ATTRIBUTE_NUM_REGS, 0));
		if (c->cap < 16)
			c->cap = 16;
		enqueue(m, c);
	}
	lock_drop(&agent.build);
	return c;
}

struct variant *variant_that_fits(struct function *f, struct variant *v, uint64_t blocks,
	uint32_t threads, size_t shared, bool cooperative)
{
	if (residency_fits(v, blocks, threads, shared, cooperative))
		return v;
	struct variant *c = make_capped(v);
	if (!c)
		return NULL;
	if (atomic_load(&c->state) == VARIANT_PENDING)
		variant_load_queued(load_hurry());
	if (atomic_load_explicit(&c->state, memory_order_acquire) == VARIANT_READY &&
		residency_fits(c, blocks, threads, shared, cooperative))
		return c;
	struct session_kernel *row = atomic_load(&v->kernel->shared);
	if (row && !row->reason)
		row->reason = session_add_text(agent.session,
			"some launches ran the original: fewer blocks of the "
			"variant are resident together");
	return NULL;
}

void variant_each(struct function *f, void (*fn)(struct variant *v, void *arg), void *arg)
{
	for (struct variant *v = atomic_load(&f->module->variants); v; v = v->next)
		if (v->kernel == f->kernel && (!f->context || v->context->handle == f->context) &&
			atomic_load(&v->state) == VARIANT_READY && !atomic_load(&v->context->dead))
			fn(v, arg);
}

static void drop_from_queue(bool (*drop)(struct variant *v, void *arg), void *arg);

static bool is_stale(struct variant *v, void *attached)
{
	return v->links & ~*(uint64_t *)attached;
}

/* A link never comes back: variants with one that is gone will not be launched again. */
static void retire_stale(uint64_t attached)
{
	bool any = false;
	drop_from_queue(is_stale, &attached);
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		for (struct variant *v = atomic_load(&m->variants); v; v = v->next)
			if (v->build && v->build->links & ~attached) {
				retire(v);
				any = true;
			}
	/* Rows of links are used again once we say that they are drained: what was built for them must not be found then. */
	for (struct image *im = atomic_load(&agent.images); im; im = im->next)
		for (uint32_t i = 0; i < im->n_kernels; i++)
			any |= build_stale(&im->kernels[i], attached);
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		any |= c->map_mask & ~devmap_pooled(c) & ~build_live_maps(attached) & ~build_words_map();
	if (any)
		atomic_store(&agent.sweep_due, 1);
}

static void relink(void)
{
	uint64_t generation = __atomic_load_n(&agent.shared->generation, __ATOMIC_ACQUIRE);
	if (generation != atomic_load(&agent.generation)) {
		for (struct image *im = atomic_load(&agent.images); im; im = im->next)
			if (im->matched)
				build_match(im);
		for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
			atomic_store(&m->n_prepared, 0);
		retire_stale(links_attached());
		atomic_store(&agent.generation, generation);
		if (agent.row)
			__atomic_store_n(&agent.row->seen, generation, __ATOMIC_RELEASE);
	}
	if (agent.row && !atomic_load(&agent.sweep_due) && live_settled(generation))
		__atomic_store_n(&agent.row->drained, generation, __ATOMIC_RELEASE);
}

void variant_relink(void)
{
	lock_take(&agent.build);
	relink();
	lock_drop(&agent.build);
}

void variant_follow(void)
{
	if (!atomic_load_explicit(&agent.late, memory_order_relaxed)) {
		variant_relink();
	} else if (lock_try(&agent.build)) {
		relink();
		lock_drop(&agent.build);
	}
}

/* -- end -------------------------------------------------------------------------------- */

static void drop_from_queue(bool (*drop)(struct variant *v, void *arg), void *arg)
{
	struct variant **at = &agent.queue;
	while (*at) {
		struct variant *v = *at;
		if (drop(v, arg)) {
			*at = v->queued;
			atomic_fetch_sub(&agent.n_queued, 1);
			atomic_store(&v->state, VARIANT_REFUSED);
		} else {
			at = &v->queued;
		}
	}
}

static bool of_module(struct variant *v, void *arg)
{
	return v->module == arg;
}

static bool of_context(struct variant *v, void *arg)
{
	return v->context == arg;
}

/* The program unloads: what is loaded for it goes at the next idle moment, since unloading waits as
 * loading does. */
void variant_retire_module(struct module *m)
{
	lock_take(&agent.build);
	atomic_store(&m->gone, 1);
	drop_from_queue(of_module, m);
	for (struct variant *v = atomic_load(&m->variants); v; v = v->next) {
		retire(v);
		settle_row(v->kernel);
	}
	lock_drop(&agent.build);
}

void variant_context_gone(struct context *c)
{
	lock_take(&agent.build);
	drop_from_queue(of_context, c);
	endings_forget(c->handle);
	for (struct module *m = atomic_load(&agent.modules); m; m = m->next)
		for (struct variant *v = atomic_load(&m->variants); v; v = v->next)
			if (v->context == c) {
				atomic_store(&v->state, VARIANT_REFUSED);
				settle_row(v->kernel);
			}
	lock_drop(&agent.build);
}
