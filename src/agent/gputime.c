/* gputime.c - how long kernels run on the device, probed or not, without changing them: a pair of
 * events around some of their launches.
 *
 * A pair is two calls of the driver, so not every launch has one: each kernel's 1st, 2nd, 3rd, 5th and
 * 9th launch, and then one in `stride`, which doubles when samples come more often than
 * every SAMPLE_NS and halves when they are rare. A kernel's time is the mean of its samples times its
 * launches. The first launch has a sample of its own, used where there is no other: it may include
 * what a program does once. On an idle device a sample includes the way from event to kernel.
 *
 * Whoever cannot have what is needed at once (a pair, the lock) goes without a sample.
 */
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum { PAIRS = 64, SAMPLE_NS = 2000000, RARE_NS = 20000000, MAX_STRIDE = 1 << 20 };

enum { PAIR_FREE, PAIR_TAKEN, PAIR_RECORDED };

struct time_pair {
	int state;
	bool first, variant;
	uint32_t one_in;
	CUevent begin, end;
	CUcontext context;
	struct kernel *kernel;
	struct session_shape *shape;
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

bool gputime_due(uint64_t n)
{
	/* Beside a capture, calls about events may be forbidden. */
	if (__atomic_load_n(&agent.shared->untimed, __ATOMIC_RELAXED) ||
		atomic_load_explicit(&agent.captures, memory_order_relaxed))
		return false;
	uint32_t stride = atomic_load_explicit(&agent.times.stride, memory_order_relaxed);
	return n < 2 || (n < 16 && !(n & (n - 1))) || !(n & ((uint64_t)(stride ? stride : 1) - 1)); /* a power of two */
}

static void adapt(void)
{
	uint64_t now = now_ns(), since = now - atomic_exchange(&agent.times.last_ns, now);
	uint32_t stride = atomic_load(&agent.times.stride);
	if (since < SAMPLE_NS && stride < MAX_STRIDE)
		atomic_store(&agent.times.stride, stride ? stride * 2 : 2);
	else if (since > RARE_NS && stride > 1)
		atomic_store(&agent.times.stride, stride / 2);
}

/* -- pairs ------------------------------------------------------------------------ */

static void add(struct time_pair *p, float ms)
{
	uint64_t ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
	struct session_kernel *row = atomic_load(&p->kernel->shared);
	if (p->shape) {
		__atomic_fetch_add(&p->shape->time_ns, ns, __ATOMIC_RELAXED);
		__atomic_fetch_add(&p->shape->timed, 1, __ATOMIC_RELAXED);
	}
	if (p->first) {
		row->first_ns = ns ? ns : 1;
		return;
	}
	__atomic_fetch_add(&row->time_ns, ns, __ATOMIC_RELAXED);
	__atomic_fetch_add(&row->timed, 1, __ATOMIC_RELAXED);
	if (p->variant) {
		__atomic_fetch_add(&row->probed_ns, ns, __ATOMIC_RELAXED);
		__atomic_fetch_add(&row->probed_timed, 1, __ATOMIC_RELAXED);
	}
	filter_adapt(p->kernel, p->variant ? p->one_in : 0, (double)ms);
}

/* Takes what has been reached. Under the lock; p's context is current or the calls need none. */
static void collect(struct time_pair *p)
{
	float ms = 0;
	CUresult r = REAL(cuEventQuery)(p->end);
	if (r == CUDA_ERROR_NOT_READY)
		return;
	if (ok(r) && ok(REAL(cuEventElapsedTime)(&ms, p->begin, p->end)))
		add(p, ms);
	p->state = PAIR_FREE;
}

/* A free pair of the context, made if there is none yet. Under the lock. */
static struct time_pair *take(CUcontext context)
{
	struct time_pair *fresh = NULL;
	if (!agent.times.pairs && !(agent.times.pairs = calloc(PAIRS, sizeof(*fresh))))
		return NULL;
	for (int i = 0; i < PAIRS; i++) {
		struct time_pair *p = &agent.times.pairs[i];
		if (p->state == PAIR_RECORDED && p->context == context)
			collect(p);
		if (p->state == PAIR_FREE && p->context == context)
			return p;
		if (!p->context && !fresh)
			fresh = p;
	}
	if (!fresh || !ok(REAL(cuEventCreate)(&fresh->begin, CU_EVENT_DEFAULT)))
		return NULL;
	if (!ok(REAL(cuEventCreate)(&fresh->end, CU_EVENT_DEFAULT))) {
		REAL(cuEventDestroy_v2)(fresh->begin);
		return NULL;
	}
	fresh->context = context;
	return fresh;
}

static CUresult record(CUevent e, CUstream stream, bool per_thread)
{
	return (per_thread && REAL(cuEventRecord_ptsz) ? REAL(cuEventRecord_ptsz)
						       : REAL(cuEventRecord))(e, stream);
}

struct time_pair *gputime_begin(
	struct kernel *k, struct session_shape *shape, void *fn, bool is_kernel, bool first, CUstream stream, bool per_thread)
{
	CUcontext context = NULL;
	struct time_pair *p = NULL;
	if (!REAL(cuEventElapsedTime) || !REAL(cuEventQuery) || !REAL(cuEventDestroy_v2) || blackbox_fault() ||
		!ok(REAL(cuCtxGetCurrent)(&context)) || !context || !lock_try(&agent.times.lock))
		return NULL;
	adapt();
	p = take(context);
	if (p)
		p->state = PAIR_TAKEN;
	lock_drop(&agent.times.lock);
	if (!p)
		return NULL;
	p->kernel = k;
	p->shape = shape;
	p->first = first;
	/* With lazy loading the first launch loads: not between our events. */
	if (first)
		function_load(fn, is_kernel);
	if (ok(record(p->begin, stream, per_thread)))
		return p;
	gputime_drop(p);
	return NULL;
}

void gputime_drop(struct time_pair *p)
{
	lock_take(&agent.times.lock);
	p->state = PAIR_FREE;
	lock_drop(&agent.times.lock);
}

void gputime_end(struct time_pair *p, bool variant, uint32_t one_in, CUstream stream, bool per_thread)
{
	p->variant = variant;
	p->one_in = one_in;
	bool recorded = ok(record(p->end, stream, per_thread));
	lock_take(&agent.times.lock);
	p->state = recorded ? PAIR_RECORDED : PAIR_FREE;
	lock_drop(&agent.times.lock);
}

void gputime_collect(CUcontext only)
{
	CUcontext was;
	if (blackbox_fault())
		return;
	lock_take(&agent.times.lock);
	for (int i = 0; agent.times.pairs && i < PAIRS; i++) {
		struct time_pair *p = &agent.times.pairs[i];
		if (p->state != PAIR_RECORDED || (only && p->context != only) ||
			!ok(REAL(cuCtxPushCurrent_v2)(p->context)))
			continue;
		collect(p);
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	lock_drop(&agent.times.lock);
}

/* Events end with their context. */
void gputime_context_gone(CUcontext context)
{
	lock_take(&agent.times.lock);
	for (int i = 0; agent.times.pairs && i < PAIRS; i++)
		if (agent.times.pairs[i].context == context && agent.times.pairs[i].state != PAIR_TAKEN)
			memset(&agent.times.pairs[i], 0, sizeof(agent.times.pairs[i]));
	lock_drop(&agent.times.lock);
}
