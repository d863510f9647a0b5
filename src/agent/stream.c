/* stream.c - who has work on the devices, as far as launches tell.
 *
 * Loading a module waits for running kernels and holds back new ones, so variants are loaded only
 * when nothing runs. Every stream that got a launch is remembered until it is destroyed; the legacy
 * default stream of every context is always asked. The per-thread default stream of another thread
 * cannot be asked about: its use is remembered and forgotten when that thread, or the whole
 * context, has been seen to be done.
 */
#include <stdlib.h>

#include "agent/agent.h"

enum { THREADS_MS = 50 };

struct stream_row {
	struct stream_row *next;
	CUstream stream;
	CUcontext context;
	atomic_int gone;
};

/* Thread `tid` launched into its own default stream; epoch of the last time. */
struct thread_use {
	struct thread_use *next;
	int tid; /* 0: free */
	uint64_t epoch;
};

/* A destroyed stream that still had work. */
struct ghost {
	struct ghost *next;
	CUevent event;
	CUcontext context;
};

static struct stream_row *rows(void)
{
	return handles_get(&agent.streams, (void *)-2);
}

/* The list hangs in the same table, under a key that is no handle. */
static void set_rows(struct stream_row *head)
{
	handles_put(&agent.streams, (void *)-2, head);
}

uint64_t stream_epoch(void)
{
	return atomic_fetch_add(&agent.epoch, 1) + 1;
}

static void remember_stream(CUstream stream)
{
	struct stream_row *r = calloc(1, sizeof(*r));
	if (!r) {
		atomic_store(&agent.unknown_work, 1);
		return;
	}
	r->stream = stream;
	if (!REAL(cuStreamGetCtx) || REAL(cuStreamGetCtx)(stream, &r->context) != CUDA_SUCCESS)
		if (!REAL(cuCtxGetCurrent) || REAL(cuCtxGetCurrent)(&r->context) != CUDA_SUCCESS)
			r->context = NULL;
	lock_take(&agent.stream_lock);
	if (handles_get(&agent.streams, stream)) {
		free(r);
	} else {
		r->next = rows();
		set_rows(r);
		handles_put(&agent.streams, stream, r);
	}
	lock_drop(&agent.stream_lock);
}

static void remember_thread(void)
{
	int tid = thread_id();
	uint64_t epoch = stream_epoch();
	lock_take(&agent.stream_lock);
	struct thread_use *u = agent.thread_uses, *free_row = NULL;
	for (; u && u->tid != tid; u = u->next)
		if (!u->tid)
			free_row = u;
	if (!u && free_row)
		u = free_row;
	if (!u) {
		u = calloc(1, sizeof(*u));
		if (u) {
			u->next = agent.thread_uses;
			agent.thread_uses = u;
		} else {
			atomic_store(&agent.unknown_work, 1);
		}
	}
	if (u) {
		u->tid = tid;
		u->epoch = epoch;
	}
	lock_drop(&agent.stream_lock);
}

void stream_used(CUstream stream, bool per_thread)
{
	if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
		remember_thread();
	else if (stream && stream != CU_STREAM_LEGACY && !handles_get(&agent.streams, stream))
		remember_stream(stream);
}

static void forget_thread(int tid)
{
	lock_take(&agent.stream_lock);
	for (struct thread_use *u = agent.thread_uses; u; u = u->next)
		if (u->tid == tid)
			u->tid = 0;
	lock_drop(&agent.stream_lock);
}

void stream_synchronised(CUstream stream, bool per_thread)
{
	if (stream == CU_STREAM_PER_THREAD || (!stream && per_thread))
		forget_thread(thread_id());
}

/* A context was synchronised; `since` was drawn before that began. Threads of other contexts are
 * not told apart: only when there is one context may all be forgotten. */
void stream_all_synchronised(uint64_t since)
{
	struct context *first = atomic_load(&agent.contexts);
	if (first && first->next)
		return;
	atomic_store(&agent.unknown_work, 0);
	lock_take(&agent.stream_lock);
	for (struct thread_use *u = agent.thread_uses; u; u = u->next)
		if (u->tid && u->epoch < since)
			u->tid = 0;
	lock_drop(&agent.stream_lock);
}

/* Leaves an event behind where the stream's end cannot be seen any more. */
static void leave_ghost(CUcontext context, CUstream stream)
{
	CUcontext was;
	struct ghost *g = calloc(1, sizeof(*g));
	bool made = false;
	if (g && context && REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS) {
		g->context = context;
		made = REAL(cuEventCreate)(&g->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
		       REAL(cuEventRecord)(g->event, stream) == CUDA_SUCCESS;
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	if (!made) {
		free(g);
		atomic_store(&agent.unknown_work, 1);
		return;
	}
	lock_take(&agent.stream_lock);
	g->next = agent.ghosts;
	agent.ghosts = g;
	lock_drop(&agent.stream_lock);
}

void stream_destroying(CUstream stream)
{
	struct stream_row *r = stream && stream > CU_STREAM_PER_THREAD
				       ? handles_get(&agent.streams, stream)
				       : NULL;
	if (!r)
		return;
	if (atomic_load(&agent.captures))
		atomic_store(&agent.unknown_work, 1);
	else if (REAL(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY)
		leave_ghost(r->context, stream);
	lock_take(&agent.stream_lock);
	atomic_store(&r->gone, 1);
	handles_put(&agent.streams, stream, NULL);
	lock_drop(&agent.stream_lock);
}

void stream_context_gone(CUcontext handle)
{
	lock_take(&agent.stream_lock);
	for (struct stream_row *r = rows(); r; r = r->next) {
		if (r->context != handle || atomic_load(&r->gone))
			continue;
		atomic_store(&r->gone, 1);
		if (handles_get(&agent.streams, r->stream) == r)
			handles_put(&agent.streams, r->stream, NULL);
	}
	for (struct ghost **g = &agent.ghosts; *g;) {
		struct ghost *dead = *g;
		if (dead->context == handle) {
			*g = dead->next;
			free(dead);
		} else {
			g = &dead->next;
		}
	}
	lock_drop(&agent.stream_lock);
}

/* Rows of destroyed streams are freed here, where the gate keeps everybody else out of the list. */
static void prune_rows(void)
{
	struct stream_row *head = rows(), **link = &head;
	bool changed = false;
	while (*link) {
		struct stream_row *r = *link;
		if (atomic_load(&r->gone)) {
			*link = r->next;
			changed = true;
			/* A destroy may still hold r: it is leaked rather than freed under its
			 * feet. */
		} else {
			link = &r->next;
		}
	}
	if (changed)
		set_rows(head);
}

static bool contexts_idle(void)
{
	CUcontext was;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		if (atomic_load(&c->dead))
			continue;
		if (REAL(cuCtxPushCurrent_v2)(c->handle) != CUDA_SUCCESS)
			return false;
		CUresult r = REAL(cuStreamQuery)(CU_STREAM_LEGACY);
		REAL(cuCtxPopCurrent_v2)(&was);
		if (r != CUDA_SUCCESS)
			return false;
	}
	return true;
}

static bool ghosts_idle(void)
{
	for (struct ghost **g = &agent.ghosts; *g;) {
		struct ghost *one = *g;
		if (REAL(cuEventQuery)(one->event) == CUDA_ERROR_NOT_READY)
			return false;
		if (REAL(cuEventDestroy_v2))
			REAL(cuEventDestroy_v2)(one->event);
		*g = one->next;
		free(one);
	}
	return true;
}

static bool threads_idle(void)
{
	int tid = thread_id();
	for (struct thread_use *u = agent.thread_uses; u; u = u->next) {
		if (!u->tid)
			continue;
		if (u->tid != tid || REAL(cuStreamQuery)(CU_STREAM_PER_THREAD) != CUDA_SUCCESS)
			return false;
		u->tid = 0;
	}
	return true;
}

/* A stream is asked about in its own context, which need not be current, nor any in our thread. */
static bool row_idle(struct stream_row *r)
{
	CUcontext was;
	if (!r->context || REAL(cuCtxPushCurrent_v2)(r->context) != CUDA_SUCCESS)
		return false;
	CUresult result = REAL(cuStreamQuery)(r->stream);
	REAL(cuCtxPopCurrent_v2)(&was);
	/* Destroyed by ways we do not see. */
	if (result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		atomic_store(&r->gone, 1);
	return result == CUDA_SUCCESS || atomic_load(&r->gone);
}

static bool streams_idle(CUcontext only)
{
	for (struct stream_row *r = rows(); r; r = r->next)
		if (!atomic_load(&r->gone) && (!only || r->context == only) && !row_idle(r))
			return false;
	return true;
}

bool stream_idle(const char **why)
{
	bool idle = false;
	lock_take(&agent.stream_lock);
	prune_rows();
	*why = "a kernel or copy is running";
	if (atomic_load(&agent.captures)) {
		*why = "a stream is being captured";
	} else if (atomic_load(&agent.unknown_work)) {
		*why = "work of a stream that is gone has not been synchronised";
	} else if (streams_idle(NULL) && contexts_idle() && ghosts_idle()) {
		*why = "a thread's own default stream has not been synchronised";
		idle = threads_idle();
	}
	lock_drop(&agent.stream_lock);
	return idle;
}

bool stream_context_idle(CUcontext handle, bool threads)
{
	CUcontext was;
	lock_take(&agent.stream_lock);
	bool idle = !atomic_load(&agent.captures) && !atomic_load(&agent.unknown_work) &&
		    streams_idle(handle);
	for (struct thread_use *u = agent.thread_uses; threads && u && idle; u = u->next)
		idle = !u->tid;
	if (idle && REAL(cuCtxPushCurrent_v2)(handle) == CUDA_SUCCESS) {
		idle = REAL(cuStreamQuery)(CU_STREAM_LEGACY) == CUDA_SUCCESS;
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	lock_drop(&agent.stream_lock);
	return idle;
}

bool stream_settle(CUcontext handle, int ms)
{
	/* Threads' own streams cannot be asked about: they get a moment, not all the time there is.
	 */
	for (int waited = 0; !stream_context_idle(handle, waited < THREADS_MS); waited++) {
		if (waited >= ms)
			return false;
		atomic_int never = 0;
		word_wait(&never, 0, 1);
	}
	return true;
}

/* Before the capture begins: who asks about a stream holds the lock and has looked at the count. */
void capture_begun(void)
{
	lock_take(&agent.stream_lock);
	atomic_fetch_add(&agent.captures, 1);
	lock_drop(&agent.stream_lock);
}

void capture_ended(void)
{
	if (atomic_fetch_sub(&agent.captures, 1) <= 0)
		atomic_store(&agent.captures, 0);
}

/* -- hooks ------------------------------------------------------------------ */

CUresult hook_cuStreamDestroy(CUstream stream);
CUresult hook_cuStreamDestroy_v2(CUstream stream);

CUresult hook_cuStreamDestroy(CUstream stream)
{
	stream_destroying(stream);
	return REAL(cuStreamDestroy)(stream);
}

CUresult hook_cuStreamDestroy_v2(CUstream stream)
{
	stream_destroying(stream);
	return REAL(cuStreamDestroy_v2)(stream);
}
