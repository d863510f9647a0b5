/* launch.c - the swap: the variant runs in place of the kernel that was asked for, or the kernel
 * itself. */
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum { FEW_PARAMS = 64, FEW_BYTES = 4096 + 64 };

/* The driver's function of that form with this function, these parameters. */
static CUresult call_driver(const struct launch *l, CUfunction fn, void **params, void **extra)
{
	const CUlaunchConfig *c = &l->config;
	if (l->old && fn == l->fn)
		return l->old == OLD_LAUNCH ? REAL(cuLaunch)(fn)
		       : l->old == OLD_GRID ? REAL(cuLaunchGrid)(fn, (int)c->gridDimX, (int)c->gridDimY)
					    : REAL(cuLaunchGridAsync)(fn, (int)c->gridDimX, (int)c->gridDimY, c->hStream);
	if (l->extended)
		return (l->per_thread ? REAL(cuLaunchKernelEx_ptsz) : REAL(cuLaunchKernelEx))(
			c, fn, params, extra);
	if (l->cooperative)
		return (l->per_thread ? REAL(cuLaunchCooperativeKernel_ptsz)
				      : REAL(cuLaunchCooperativeKernel))(fn, c->gridDimX,
			c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
			c->sharedMemBytes, c->hStream, params);
	return (l->per_thread ? REAL(cuLaunchKernel_ptsz) : REAL(cuLaunchKernel))(fn, c->gridDimX,
		c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
		c->sharedMemBytes, c->hStream, params, extra);
}

/* The note that its stream has work is there before anybody counts the launch. */
static CUresult call(const struct launch *l, CUfunction fn, void **params, void **extra)
{
	CUresult r = call_driver(l, fn, params, extra);
	stream_used_until_now(l->config.hStream, l->per_thread);
	return r;
}

static bool is_cooperative(const struct launch *l)
{
	bool yes = l->cooperative;
	for (unsigned int i = 0; l->extended && l->config.attrs && i < l->config.numAttrs; i++)
		yes |= l->config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
		       l->config.attrs[i].value.cooperative;
	return yes;
}

/* Parameters by address: the same list with the launch id behind. */
static CUresult with_list(const struct launch *l, const struct variant *v, uint64_t *id)
{
	uint32_t n = v->n_params;
	void *few[FEW_PARAMS + 1], **list = few;
	if (n && !l->params)
		return CUDA_ERROR_INVALID_VALUE;
	if (n > FEW_PARAMS)
		list = malloc((n + 1) * sizeof(*list));
	if (!list)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (n)
		memcpy(list, l->params, n * sizeof(*list));
	list[n] = id;
	CUresult r = call(l, v->function, list, NULL);
	if (list != few)
		free(list);
	return r;
}

/* Parameters as one block: a copy with the launch id at its place. */
static CUresult with_block(const struct launch *l, const struct variant *v, uint64_t id)
{
	const void *from = NULL;
	size_t bytes = 0, at = v->launch_param_offset, total = at + sizeof(id);
	for (void **e = l->extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
		if (e[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			from = e[1];
		else if (e[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			bytes = *(size_t *)e[1];
		else
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (at && (!from || !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	char few[FEW_BYTES], *block = total > sizeof(few) ? malloc(total) : few;
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(block, 0, total);
	if (at)
		memcpy(block, from, bytes < at ? bytes : at);
	memcpy(block + at, &id, sizeof(id));
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE,
		&total, CU_LAUNCH_PARAM_END };
	CUresult r = call(l, v->function, NULL, extra);
	if (block != few)
		free(block);
	return r;
}

static CUresult launch_variant(const struct launch *l, struct variant *v)
{
	const CUlaunchConfig *c = &l->config;
	uint64_t id = __atomic_fetch_add(&agent.shared->next_launch, 1, __ATOMIC_RELAXED) + 1;
	if (v->sampled)
		id = instrument_launch_word(id, l->sample.one_in, l->sample.times, false);
	CUresult r;
	if (v->context->host_mask & v->build->maps)
		request_push_globals(v->context, v->build->maps);
	if (!v->launch_param)
		r = call(l, v->function, l->params, l->extra);
	else if (l->extra && !l->params)
		r = with_block(l, v, id);
	else
		r = with_list(l, v, &id);
	if (r != CUDA_SUCCESS)
		return r;
	struct session_kernel *row = atomic_load_explicit(&v->kernel->shared, memory_order_relaxed);
	if (row)
		__atomic_fetch_add(&row->launches_instrumented, 1, __ATOMIC_RELAXED);
	if (row && v->sampled)
		__atomic_fetch_add(&row->warps,
			launch_warps((uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ, (uint64_t)c->blockDimX * c->blockDimY * c->blockDimZ),
			__ATOMIC_RELAXED);
	devmap_launched(v->context, v->build->maps);
	return r;
}

/* A CUkernel runs in its stream's context when it has a stream, in the current one otherwise. */
static CUcontext context_of(const struct launch *l)
{
	CUcontext c = NULL;
	CUstream s = l->config.hStream;
	if (s > CU_STREAM_PER_THREAD)
		return stream_context(s);
	REAL(cuCtxGetCurrent)(&c);
	return c;
}

struct session_kernel *kernel_row_of(struct kernel *k)
{
	struct session_kernel *row = atomic_load_explicit(&k->shared, memory_order_relaxed);
	if (row || atomic_exchange(&k->row_asked, 1))
		return row;
	if (!atomic_load_explicit(&agent.late, memory_order_relaxed)) {
		lock_take(&agent.build);
	} else if (!lock_try(&agent.build)) { /* something is being compiled: the next launch will do */
		atomic_store(&k->row_asked, 0);
		return NULL;
	}
	kernel_row(k);
	lock_drop(&agent.build);
	return atomic_load(&k->shared);
}

static struct variant *choose(const struct launch *l, struct function *f)
{
	const CUlaunchConfig *c = &l->config;
	if (!atomic_load_explicit(&f->kernel->wanted, memory_order_relaxed) || agent_off_word())
		return NULL;
	bool filtered = filter_active();
	if (filtered && !filter_stream(c->hStream, l->per_thread))
		return NULL;
	struct variant *v = variant_for_launch(f, f->context ? f->context : context_of(l), l->fn);
	if (v && filtered && !filter_launch())
		return NULL;
	if (!v || !v->tight)
		return v;
	return variant_that_fits(f, v, (uint64_t)c->gridDimX * c->gridDimY * c->gridDimZ,
		c->blockDimX * c->blockDimY * c->blockDimZ, c->sharedMemBytes, is_cooperative(l));
}

CUresult launch_run(struct launch *l)
{
	if (links_changed())
		variant_follow();
	agent_moment(LOAD_POLL);
	struct function *f = function_get(l->fn);
	if (!f && atomic_load_explicit(&agent.late, memory_order_relaxed))
		f = function_find(l->fn, context_of(l));
	/* What goes into a graph is the program's own kernel: the program may look at its nodes and
	 * change them. It is counted, and swapped, when the graph is launched. */
	if (f && stream_capturing(l->config.hStream, l->per_thread))
		f = NULL;
	struct session_kernel *row = f ? kernel_row_of(f->kernel) : NULL;
	uint64_t before = row ? __atomic_fetch_add(&row->launches, 1, __ATOMIC_RELAXED) : 0;
	if (row && filter_active())
		filter_sample(f->kernel, before, &l->sample);
	struct variant *v = f && !l->opaque && l->sample.times ? choose(l, f) : NULL;
	struct time_pair *timed = NULL;
	CUresult r = CUDA_ERROR_UNKNOWN;
	l->lane = thread_lane();
	gate_enter_by(&agent.gate, l->lane);
	l->stream = stream_used(l->config.hStream, l->per_thread);
	struct session_shape *shape = row && !l->opaque ? shape_of(f->kernel, row, l) : NULL;
	uint64_t alike = shape ? __atomic_fetch_add(&shape->launches, 1, __ATOMIC_RELAXED) : 0;
	if (row && (gputime_due(shape && !alike ? 0 : before) || l->sample.timed))
		timed = gputime_begin(f->kernel, shape, l->fn, !f->context, !before, l->config.hStream,
			l->per_thread);
	if (f)
		l->values = params_of(f, l->fn);
	/* It may have been retired meanwhile; from here on it stays. */
	if (v && atomic_load_explicit(&v->state, memory_order_acquire) == VARIANT_READY)
		r = launch_variant(l, v);
	bool swapped = r == CUDA_SUCCESS;
	/* Whatever keeps the variant from starting is no business of the program's. */
	if (r != CUDA_SUCCESS)
		r = call(l, l->fn, l->params, l->extra);
	if (f && r == CUDA_SUCCESS)
		blackbox_launch(f->kernel, l, swapped ? v->links : 0);
	else if (r != CUDA_SUCCESS)
		blackbox_result("a launch", r);
	if (timed && r == CUDA_SUCCESS)
		gputime_end(timed, swapped, l->sample.one_in, l->config.hStream, l->per_thread);
	else if (timed)
		gputime_drop(timed);
	gate_leave_by(&agent.gate, l->lane);
	return r;
}

/* -- hooks ----------------------------------------------------------------------------- */

#define CONFIG                                                                                     \
	{                                                                                          \
		.gridDimX = grid_x, .gridDimY = grid_y, .gridDimZ = grid_z, .blockDimX = block_x,  \
		.blockDimY = block_y, .blockDimZ = block_z, .sharedMemBytes = shared,              \
		.hStream = stream                                                                  \
	}

#define LAUNCH_HOOK(sym, twin)                                                                     \
	CUresult hook_##sym(CUfunction fn, unsigned int grid_x, unsigned int grid_y,               \
		unsigned int grid_z, unsigned int block_x, unsigned int block_y,                   \
		unsigned int block_z, unsigned int shared, CUstream stream, void **params,         \
		void **extra);                                                                     \
	CUresult hook_##sym(CUfunction fn, unsigned int grid_x, unsigned int grid_y,               \
		unsigned int grid_z, unsigned int block_x, unsigned int block_y,                   \
		unsigned int block_z, unsigned int shared, CUstream stream, void **params,         \
		void **extra)                                                                      \
	{                                                                                          \
		return launch_run(&(struct launch){ .fn = fn,                                          \
			.config = CONFIG,                                                          \
			.params = params,                                                          \
			.extra = extra,                                                            \
			.sample = { 1, 1, false },                                                 \
			.per_thread = twin });                                                     \
	}
LAUNCH_HOOK(cuLaunchKernel, false)
LAUNCH_HOOK(cuLaunchKernel_ptsz, true)

#define COOPERATIVE_HOOK(sym, twin)                                                                \
	CUresult hook_##sym(CUfunction fn, unsigned int grid_x, unsigned int grid_y,               \
		unsigned int grid_z, unsigned int block_x, unsigned int block_y,                   \
		unsigned int block_z, unsigned int shared, CUstream stream, void **params);        \
	CUresult hook_##sym(CUfunction fn, unsigned int grid_x, unsigned int grid_y,               \
		unsigned int grid_z, unsigned int block_x, unsigned int block_y,                   \
		unsigned int block_z, unsigned int shared, CUstream stream, void **params)         \
	{                                                                                          \
		return launch_run(&(struct launch){ .fn = fn,                                          \
			.config = CONFIG,                                                          \
			.params = params,                                                          \
			.cooperative = true,                                                       \
			.sample = { 1, 1, false },                                                 \
			.per_thread = twin });                                                     \
	}
COOPERATIVE_HOOK(cuLaunchCooperativeKernel, false)
COOPERATIVE_HOOK(cuLaunchCooperativeKernel_ptsz, true)

static CUresult launch_ex(
	const CUlaunchConfig *config, CUfunction fn, void **params, void **extra, bool twin)
{
	if (!config)
		return (twin ? REAL(cuLaunchKernelEx_ptsz) : REAL(cuLaunchKernelEx))(
			config, fn, params, extra);
	return launch_run(&(struct launch){ .fn = fn,
		.config = *config,
		.params = params,
		.extra = extra,
		.extended = true,
		.sample = { 1, 1, false },
		.per_thread = twin });
}

CUresult hook_cuLaunchKernelEx(
	const CUlaunchConfig *config, CUfunction fn, void **params, void **extra);
CUresult hook_cuLaunchKernelEx_ptsz(
	const CUlaunchConfig *config, CUfunction fn, void **params, void **extra);

CUresult hook_cuLaunchKernelEx(
	const CUlaunchConfig *config, CUfunction fn, void **params, void **extra)
{
	return launch_ex(config, fn, params, extra, false);
}

CUresult hook_cuLaunchKernelEx_ptsz(
	const CUlaunchConfig *config, CUfunction fn, void **params, void **extra)
{
	return launch_ex(config, fn, params, extra, true);
}
