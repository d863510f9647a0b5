/* blackbox.c - the last launches of this process, and the first device fault it was told of: kept in
 * the session, so that they are readable when the context, or the process, is gone.
 *
 * A launch is noted after the driver has taken it, with the values of its parameters as far as its PTX tells where
 * they are (params.c). What a synchronisation shows to have ended is marked, so that few are left for a fault to be of.
 */
#include <string.h>

#include "agent/agent.h"

/* Errors that end a context: what the device did, not what a call asked for. */
static bool is_fault(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
		return true;
	default:
		return false;
	}
}

/* Where agent.row is. */
static struct session_blackbox *own_box(void)
{
	return &agent.shared->boxes[agent.row - agent.shared->agents];
}

/* -- launches ---------------------------------------------------------------------------- */

#define BEING_WRITTEN UINT64_MAX /* no launch's number */

static struct session_launch *begin(unsigned int thread, uint64_t *number)
{
	struct session_blackbox *b = own_box();
	uint32_t lane = thread % SESSION_BOX_LANES, n = atomic_fetch_add_explicit(&agent.box_lanes[lane].noted, 1, memory_order_relaxed);
	struct session_launch *l = &b->last[lane * SESSION_LAST_LAUNCHES + n % SESSION_LAST_LAUNCHES];
	*number = __atomic_fetch_add(&b->launches, 1, __ATOMIC_RELAXED) + 1;
	/* A launch that came as many launches later may be at it: one of them is enough. */
	return __atomic_exchange_n(&l->number, BEING_WRITTEN, __ATOMIC_ACQUIRE) == BEING_WRITTEN ? NULL : l;
}

/* Looked at by who synchronises a stream, whoever writes the rest. */
static void set_stream(struct session_launch *l, uint32_t stream, bool own)
{
	__atomic_store_n(&l->stream, stream, __ATOMIC_RELAXED);
	__atomic_store_n(&l->thread, own ? (uint32_t)thread_id() : 0, __ATOMIC_RELAXED);
}

static void end(struct session_launch *l, uint64_t number)
{
	__atomic_store_n(&l->number, number, __ATOMIC_RELEASE);
}

/* The driver has read them all from there. */
static uint32_t keep_list(struct session_launch *l, const struct params *p, void **params)
{
	if (!p || !params)
		return 0;
	for (uint32_t i = 0; i < p->n_kept; i++) {
		uint8_t *to = l->params + p->list[i].at;
		if (p->list[i].bytes == 8)
			memcpy(to, params[i], 8);
		else if (p->list[i].bytes == 4)
			memcpy(to, params[i], 4);
		else
			memcpy(to, params[i], p->list[i].bytes);
	}
	return p->kept_bytes;
}

static uint32_t keep_block(struct session_launch *l, void **extra)
{
	const void *from = NULL;
	size_t bytes = 0;
	for (void **e = extra; *e != CU_LAUNCH_PARAM_END; e += 2) {
		if (e[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			from = e[1];
		else if (e[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			bytes = *(size_t *)e[1];
	}
	if (bytes > SESSION_PARAM_BYTES)
		bytes = SESSION_PARAM_BYTES;
	if (from)
		memcpy(l->params, from, bytes);
	return from ? (uint32_t)bytes : 0;
}

void blackbox_launch(const struct kernel *k, const struct launch *launch, uint64_t links)
{
	uint64_t number;
	struct session_launch *l = agent.row ? begin(launch->lane, &number) : NULL;
	const CUlaunchConfig *c = &launch->config;
	if (!l)
		return;
	l->kernel = k->row;
	set_stream(l, launch->stream, stream_is_own(c->hStream, launch->per_thread));
	l->ended = l->graph_kernels = 0;
	l->links = links;
	l->grid[0] = c->gridDimX;
	l->grid[1] = c->gridDimY;
	l->grid[2] = c->gridDimZ;
	l->block[0] = c->blockDimX;
	l->block[1] = c->blockDimY;
	l->block[2] = c->blockDimZ;
	l->shared_bytes = c->sharedMemBytes;
	l->param_bytes = launch->extra && !launch->params ? keep_block(l, launch->extra)
							  : keep_list(l, launch->values, launch->params);
	end(l, number);
}

void blackbox_graph(uint32_t first, uint32_t n, uint32_t stream, bool own_stream, uint64_t links)
{
	uint64_t number;
	struct session_launch *l = agent.row ? begin(thread_lane(), &number) : NULL;
	if (!l)
		return;
	l->kernel = first;
	set_stream(l, stream, own_stream);
	l->ended = 0;
	l->graph_kernels = n;
	l->links = links;
	l->param_bytes = 0;
	end(l, number);
}

/* -- what has ended ------------------------------------------------------------------------- */

uint64_t blackbox_launches(void)
{
	return agent.row ? __atomic_load_n(&own_box()->launches, __ATOMIC_RELAXED) : 0;
}

void blackbox_done(uint64_t launches)
{
	const struct context *first = atomic_load(&agent.contexts);
	/* Of several contexts one was synchronised, and launches do not say whose they are. */
	if (agent.row && first && !first->next)
		__atomic_store_n(&own_box()->done, launches, __ATOMIC_RELAXED);
}

void blackbox_stream_done(uint32_t stream, bool own_stream, uint64_t launches)
{
	uint32_t thread = own_stream ? (uint32_t)thread_id() : 0;
	/* Those that this thread launched, and what shares its lane. */
	uint32_t first = thread_lane() % SESSION_BOX_LANES * SESSION_LAST_LAUNCHES;
	for (uint32_t i = first; agent.row && stream != UINT32_MAX && i < first + SESSION_LAST_LAUNCHES; i++) {
		struct session_launch *l = &own_box()->last[i];
		uint64_t number = __atomic_load_n(&l->number, __ATOMIC_ACQUIRE);
		bool is = number && number <= launches && __atomic_load_n(&l->stream, __ATOMIC_RELAXED) == stream &&
			  __atomic_load_n(&l->thread, __ATOMIC_RELAXED) == thread;
		if (!is || !__atomic_compare_exchange_n(&l->number, &number, BEING_WRITTEN, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		l->ended = 1;
		end(l, number);
	}
}

/* -- faults --------------------------------------------------------------------------------- */

/* Whether a context has maps of which the session has copies. */
static bool has_copies(const struct context *c)
{
	uint64_t maps = atomic_load(&c->map_mask);
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (maps >> i & 1 && !(agent.shared->maps[i].flags & MAP_FLAG_HOST) && !agent.shared->maps[i].live)
			return true;
	return false;
}

/* How far the maps in the session are behind those that are lost. */
static void note_maps(struct session_blackbox *b)
{
	uint64_t behind = 0, shown = 0;
	for (const struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		uint64_t copied = atomic_load(&c->copied), launches = atomic_load(&c->launches), at = atomic_load(&c->shown_ns);
		if (!launches || !has_copies(c))
			continue;
		behind += launches - copied;
		shown = !shown || at < shown ? at : shown;
	}
	b->maps_behind = behind;
	b->maps_ns = shown;
}

static void note_context(void)
{
	CUcontext current = NULL;
	if (REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS)
		return;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		if (c->handle == current && !atomic_load(&c->dead))
			atomic_store(&c->faulted, true);
}

void blackbox_result(const char *call, CUresult r)
{
	uint32_t none = 0;
	if (!is_fault(r) || !agent_on() || !agent.row)
		return;
	note_context();
	struct session_blackbox *b = own_box();
	if (!__atomic_compare_exchange_n(&b->fault, &none, (uint32_t)r, false, __ATOMIC_ACQ_REL,
		    __ATOMIC_RELAXED))
		return;
	b->fault_ns = now_ns();
	b->launches_then = blackbox_launches();
	note_maps(b);
	strncpy(b->call, call, sizeof(b->call) - 1);
	agent_log("device fault %d seen by %s", (int)r, call);
}

bool blackbox_fault(void)
{
	return agent.row && __atomic_load_n(&own_box()->fault, __ATOMIC_RELAXED);
}

void blackbox_last_look(void)
{
	CUcontext current = NULL;
	if (!agent.row || !blackbox_launches() || blackbox_fault() || atomic_load(&agent.captures) ||
		REAL(cuCtxGetCurrent)(&current) != CUDA_SUCCESS || !current)
		return;
	blackbox_result("the end of the process", REAL(cuStreamQuery)(CU_STREAM_LEGACY));
}
