/* stream.c - who has work on the devices, as far as launches tell.
 *
 * Loading a module waits for running kernels and holds back new ones, so variants are loaded only when
 * nothing runs. Every stream that got a launch is remembered until it is destroyed; the legacy default
 * stream of every context is always asked. The per-thread default stream of another thread cannot be
 * asked about: its use is remembered for each context, and forgotten when that thread, or the whole context, has
 * been seen to be done.
 *
 * A question to the driver may block, for instance while the program loads a module beside a long
 * kernel. So no lock is held meanwhile, and no launch waits for one: a row that is being asked about is
 * marked busy, and only the end of that very stream waits for the answer.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"

enum { THREADS_MS = 50, BUSY_MS = 2000, CAPTURE_MS = 100 };

enum { ROW_FREE, ROW_USED };

struct stream_row {
	_Alignas(64) struct stream_row *next; /* each launch into it writes to it: on a cache line of its own */
	atomic_int state, busy;
	CUstream stream; /* valid while USED, or busy and USED before */
	CUcontext context;
	uint32_t number;
	atomic_uint uses; /* launches */
};

/* Thread `tid` launched into its own default stream of a context, last at `epoch`; 0: and all that is done. */
struct thread_use {
	struct thread_use *next;
	atomic_int tid; /* 0: being given to another thread */
	_Atomic(CUcontext) context; /* NULL: gone */
	_Atomic uint64_t epoch;
};

/* A destroyed stream that still had work. */
struct ghost {
	struct ghost *next;
	CUevent event;
	CUcontext context;
};

static void nap(void)
{
	atomic_int never = 0;
	word_wait(&never, 0, 1);
}

uint64_t stream_epoch(void)
{
	return atomic_fetch_add(&agent.epoch, 1) + 1;
}

/* There may be work that nobody can be asked about. */
static void note_unknown(void)
{
	atomic_store(&agent.unknown_work, stream_epoch());
}

/* Until every context has been synchronised since. */
static bool is_unknown(void)
{
	uint64_t since = atomic_load(&agent.unknown_work);
	bool over = since && atomic_load(&agent.contexts);
	for (struct context *c = atomic_load(&agent.contexts); c && over; c = c->next)
		over = atomic_load(&c->dead) || atomic_load(&c->synchronised) > since;
	return since && !(over && atomic_compare_exchange_strong(&agent.unknown_work, &since, 0));
}

/* -- streams ------------------------------------------------------------------- */

CUcontext stream_context(CUstream stream)
{
	const struct stream_row *r = handles_get(&agent.streams, stream);
	CUcontext c = NULL;
	if (r && r->context)
		return r->context;
	if (REAL(cuStreamGetCtx) && REAL(cuStreamGetCtx)(stream, &c) == CUDA_SUCCESS)
		return c;
	return REAL(cuCtxGetCurrent)(&c) == CUDA_SUCCESS ? c : NULL;
}

/* A row nobody uses or looks at, or a new one in the list. Under stream_lock. */
static struct stream_row *take_row(void)
{
	struct stream_row *r = atomic_load(&agent.stream_rows);
	while (r && (atomic_load(&r->state) != ROW_FREE || atomic_load(&r->busy)))
		r = r->next;
	if (r)
		return r;
	r = aligned_alloc(_Alignof(struct stream_row), sizeof(*r));
	if (!r)
		return NULL;
	memset(r, 0, sizeof(*r));
	r->next = atomic_load(&agent.stream_rows);
	atomic_store(&agent.stream_rows, r);
	return r;
}

/* NULL: out of memory. */
static struct stream_row *remember_stream(CUstream stream)
{
	CUcontext context = stream_context(stream);
	lock_take(&agent.stream_lock);
	struct stream_row *r = handles_get(&agent.streams, stream);
	if (!r && (r = take_row())) {
		r->stream = stream;
		r->context = context;
		r->number = ++agent.n_streams;
		atomic_store(&r->state, ROW_USED);
		handles_put(&agent.streams, stream, r);
	} else if (!r) {
		note_unknown();
	}
	lock_drop(&agent.stream_lock);
	return r;
}

/* The stream ends: nobody asks about it from here on, nor is still asking on return. */
static void forget_stream(struct stream_row *r)
{
	if (handles_get(&agent.streams, r->stream) == r)
		handles_put(&agent.streams, r->stream, NULL);
	atomic_store(&r->state, ROW_FREE);
	for (int ms = 0; atomic_load(&r->busy) && ms < BUSY_MS; ms++)
		nap();
}

/* A stream is asked about in its own context, which need not be current, nor any in our thread. */
static bool ask_row(struct stream_row *r)
{
	CUcontext was;
	if (!r->context || REAL(cuCtxPushCurrent_v2)(r->context) != CUDA_SUCCESS)
		return false;
	CUresult result = REAL(cuStreamQuery)(r->stream);
	REAL(cuCtxPopCurrent_v2)(&was);
	if (result != CUDA_ERROR_INVALID_HANDLE && result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return result == CUDA_SUCCESS;
	/* Destroyed by ways we do not see. */
	if (handles_get(&agent.streams, r->stream) == r)
		handles_put(&agent.streams, r->stream, NULL);
	atomic_store(&r->state, ROW_FREE);
	return true;
}

static bool streams_idle(CUcontext only)
{
	bool idle = true;
	for (struct stream_row *r = atomic_load(&agent.stream_rows); r && idle; r = r->next) {
		atomic_fetch_add(&r->busy, 1);
		if (atomic_load(&r->state) == ROW_USED && (!only || r->context == only))
			idle = ask_row(r);
		atomic_fetch_sub(&r->busy, 1);
	}
	return idle;
}

/* -- per-thread default streams -------------------------------------------------- */

static bool thread_gone(int tid)
{
	return syscall(SYS_tgkill, getpid(), tid, 0) && errno == ESRCH;
}

static CUcontext current_context(void)
{
	CUcontext c = NULL;
	REAL(cuCtxGetCurrent)(&c);
	return c;
}

/* The row of this thread in a context; one without work whose thread or context is gone is taken over. */
static struct thread_use *thread_row(int tid, CUcontext context)
{
	struct thread_use *u = atomic_load(&agent.thread_uses);
	for (; u; u = u->next)
		if (atomic_load(&u->tid) == tid && atomic_load(&u->context) == context)
			return u;
	for (u = atomic_load(&agent.thread_uses); u; u = u->next) {
		int old = atomic_load(&u->tid);
		if (!old || atomic_load(&u->epoch) || (atomic_load(&u->context) && !thread_gone(old)) ||
			!atomic_compare_exchange_strong(&u->tid, &old, 0))
			continue;
		atomic_store(&u->context, context);
		atomic_store(&u->tid, tid);
		return u;
	}
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	atomic_store(&u->context, context);
	atomic_store(&u->tid, tid);
	struct thread_use *head = atomic_load(&agent.thread_uses);
	do
		u->next = head;
	while (!atomic_compare_exchange_weak(&agent.thread_uses, &head, u));
	return u;
}

static void remember_thread(void)
{
	int keep = errno;
	struct thread_use *u = thread_row(thread_id(), current_context());
	if (u)
		atomic_store(&u->epoch, stream_epoch());
	else
		note_unknown();
	errno = keep;
}

/* The calling thread's own stream in the current context is done. */
static void forget_thread(void)
{
	int tid = thread_id();
	CUcontext context = current_context();
	for (struct thread_use *u = atomic_load(&agent.thread_uses); u; u = u->next)
		if (atomic_load(&u->tid) == tid && atomic_load(&u->context) == context)
			atomic_store(&u->epoch, 0);
}

/* A context's default stream: the legacy one, or the calling thread's own. */
static bool default_idle(CUcontext context, CUstream which)
{
	CUcontext was;
	if (REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS)
		return false;
	CUresult r = REAL(cuStreamQuery)(which);
	REAL(cuCtxPopCurrent_v2)(&was);
	return r == CUDA_SUCCESS;
}

/* only NULL: in any context. mine: the calling thread's alone. ask: those are asked about. */
static bool threads_idle(CUcontext only, bool mine, bool ask)
{
	int tid = thread_id();
	for (struct thread_use *u = atomic_load(&agent.thread_uses); u; u = u->next) {
		CUcontext context = atomic_load(&u->context);
		bool is_mine = atomic_load(&u->tid) == tid;
		if (!atomic_load(&u->epoch) || (only && context != only) || (mine && !is_mine))
			continue;
		if (!ask || !is_mine || !default_idle(context, CU_STREAM_PER_THREAD))
			return false;
		atomic_store(&u->epoch, 0);
	}
	return true;
}

static uint32_t remember_use(CUstream stream)
{
	struct stream_row *r = handles_get(&agent.streams, stream);
	if (r)
		atomic_fetch_add_explicit(&r->uses, 1, memory_order_relaxed);
	else
		r = remember_stream(stream);
	return r ? r->number : UINT32_MAX;
}

/* -- what launches and synchronising calls tell ------------------------------------ */

bool stream_is_own(CUstream stream, bool per_thread)
{
	return stream == CU_STREAM_PER_THREAD || (!stream && per_thread);
}

uint32_t stream_number(CUstream stream)
{
	if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return 0;
	const struct stream_row *r = handles_get(&agent.streams, stream);
	return r ? r->number : UINT32_MAX;
}

uint32_t stream_used(CUstream stream, bool per_thread)
{
	if (stream_is_own(stream, per_thread))
		remember_thread();
	else if (stream && stream != CU_STREAM_LEGACY)
		return remember_use(stream);
	return 0;
}

/* Another thread's synchronisation of the context, begun and ended between our first note and the driver's call, has taken
 * that note for one of work that is done. */
void stream_used_until_now(CUstream stream, bool per_thread)
{
	if (stream_is_own(stream, per_thread))
		remember_thread();
}

void stream_synchronised(CUstream stream, bool per_thread, uint64_t launches)
{
	bool own = stream_is_own(stream, per_thread);
	if (own)
		forget_thread();
	blackbox_stream_done(stream_number(stream), own, launches);
}

void stream_all_synchronised(CUcontext handle, struct context *c, uint64_t since)
{
	if (c && atomic_load(&c->synchronised) < since)
		atomic_store(&c->synchronised, since);
	for (struct thread_use *u = atomic_load(&agent.thread_uses); u; u = u->next) {
		uint64_t epoch = atomic_load(&u->epoch);
		if (epoch && epoch < since && atomic_load(&u->context) == handle)
			atomic_compare_exchange_strong(&u->epoch, &epoch, 0);
	}
}

/* -- streams that end with work ----------------------------------------------------- */

static void push_ghost(struct ghost *g)
{
	lock_take(&agent.stream_lock);
	g->next = agent.ghosts;
	agent.ghosts = g;
	lock_drop(&agent.stream_lock);
}

static struct ghost *take_ghosts(void)
{
	lock_take(&agent.stream_lock);
	struct ghost *all = agent.ghosts;
	agent.ghosts = NULL;
	lock_drop(&agent.stream_lock);
	return all;
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
	if (made) {
		push_ghost(g);
		return;
	}
	free(g);
	note_unknown();
}

static bool ghosts_idle(void)
{
	bool idle = true;
	for (struct ghost *g = take_ghosts(), *next; g; g = next) {
		next = g->next;
		if (REAL(cuEventQuery)(g->event) == CUDA_ERROR_NOT_READY) {
			idle = false;
			push_ghost(g);
			continue;
		}
		if (REAL(cuEventDestroy_v2))
			REAL(cuEventDestroy_v2)(g->event);
		free(g);
	}
	return idle;
}

void stream_destroying(CUstream stream)
{
	struct stream_row *r =
		stream > CU_STREAM_PER_THREAD ? handles_get(&agent.streams, stream) : NULL;
	if (!r)
		return;
	if (atomic_load(&agent.captures))
		note_unknown();
	else if (REAL(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY)
		leave_ghost(r->context, stream);
	forget_stream(r);
}

void stream_context_gone(CUcontext handle)
{
	for (struct stream_row *r = atomic_load(&agent.stream_rows); r; r = r->next)
		if (atomic_load(&r->state) == ROW_USED && r->context == handle)
			forget_stream(r);
	for (struct thread_use *u = atomic_load(&agent.thread_uses); u; u = u->next)
		if (atomic_load(&u->context) == handle) {
			atomic_store(&u->epoch, 0);
			atomic_store(&u->context, NULL);
		}
	for (struct ghost *g = take_ghosts(), *next; g; g = next) {
		next = g->next;
		if (g->context == handle)
			free(g);
		else
			push_ghost(g);
	}
}

void stream_purge(void)
{
	for (struct stream_row *r = atomic_load(&agent.stream_rows); r; r = r->next)
		if (atomic_load(&r->state) == ROW_USED)
			forget_stream(r);
	for (struct thread_use *u = atomic_load(&agent.thread_uses); u; u = u->next)
		atomic_store(&u->epoch, 0);
	for (struct ghost *g = take_ghosts(), *next; g; g = next) {
		next = g->next;
		free(g);
	}
	atomic_store(&agent.unknown_work, 0);
	atomic_store(&agent.captures, 0);
}

/* -- questions ------------------------------------------------------------------------ */

bool contexts_known(void)
{
	struct context *c = atomic_load(&agent.contexts);
	while (c && (atomic_load(&c->dead) || atomic_load(&c->known)))
		c = c->next;
	return !c;
}

static bool contexts_idle(void)
{
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		if (!atomic_load(&c->dead) && !default_idle(c->handle, CU_STREAM_LEGACY))
			return false;
	return true;
}

/* A capture must not meet a question: who asks announces it first and then looks for captures, who
 * captures does it the other way round. */
static bool begin_asking(void)
{
	atomic_fetch_add(&agent.asking, 1);
	if (!atomic_load(&agent.captures))
		return true;
	atomic_fetch_sub(&agent.asking, 1);
	return false;
}

static void end_asking(void)
{
	atomic_fetch_sub(&agent.asking, 1);
}

bool stream_idle(const char **why)
{
	bool idle = false;
	*why = "a stream is being captured";
	if (!begin_asking())
		return false;
	*why = "a kernel or copy is running";
	if (atomic_load(&agent.late) && !contexts_known()) {
		*why = "work that was given before the attach has not ended";
	} else if (is_unknown()) {
		*why = "work of a stream that is gone has not been synchronised";
	} else if (streams_idle(NULL) && contexts_idle() && ghosts_idle()) {
		*why = "a thread's own default stream has not been synchronised";
		idle = threads_idle(NULL, false, true);
	}
	end_asking();
	return idle;
}

bool stream_can_drain(void)
{
	return !atomic_load(&agent.captures) && !is_unknown() &&
	       !(atomic_load(&agent.late) && !contexts_known());
}

static bool row_busy(struct stream_row *r)
{
	atomic_fetch_add(&r->busy, 1);
	bool busy = atomic_load(&r->state) == ROW_USED && !ask_row(r);
	atomic_fetch_sub(&r->busy, 1);
	return busy;
}

struct stream_row *stream_busy(uint32_t *uses)
{
	struct stream_row *r = begin_asking() ? atomic_load(&agent.stream_rows) : NULL;
	if (!r)
		return NULL;
	while (r && !row_busy(r))
		r = r->next;
	end_asking();
	*uses = r ? atomic_load(&r->uses) : 0;
	return r;
}

bool stream_still_busy(struct stream_row *r, uint32_t uses)
{
	if (!r || atomic_load(&r->uses) != uses || !begin_asking())
		return false;
	bool busy = row_busy(r);
	end_asking();
	return busy;
}

bool stream_ask_own(void)
{
	if (threads_idle(NULL, true, false) || !begin_asking())
		return true;
	bool idle = threads_idle(NULL, true, true);
	end_asking();
	return idle;
}

bool stream_context_idle(CUcontext handle, bool threads)
{
	if (!begin_asking())
		return false;
	bool idle = !is_unknown() && streams_idle(handle) &&
		    (!threads || threads_idle(handle, false, false)) && default_idle(handle, CU_STREAM_LEGACY);
	end_asking();
	return idle;
}

bool stream_settle(CUcontext handle, int ms)
{
	/* Threads' own streams cannot be asked about: they get a moment, not all the time there is. */
	for (int waited = 0; !stream_context_idle(handle, waited < THREADS_MS); waited++) {
		if (waited >= ms)
			return false;
		nap();
	}
	return true;
}

bool stream_capturing(CUstream stream, bool per_thread)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	if (!atomic_load_explicit(&agent.captures, memory_order_relaxed))
		return false;
	CUresult (*ask)(CUstream, CUstreamCaptureStatus *) =
		per_thread ? REAL(cuStreamIsCapturing_ptsz) : REAL(cuStreamIsCapturing);
	return ask && ask(stream, &status) == CUDA_SUCCESS &&
	       status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void capture_begun(void)
{
	atomic_fetch_add(&agent.captures, 1);
	for (int ms = 0; atomic_load(&agent.asking) && ms < CAPTURE_MS; ms++)
		nap();
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
