/* driver_stream.c - the engine: operations run in order within a stream and at will between
 *streams.
 *
 * An operation starts when the one before it in its stream has completed and everything it waits
 *for has too. What it waits for was submitted earlier, so waits cannot form a circle.
 *
 *	submitted  numbers given out      completed  the last number that has ended
 *
 * Quick operations (a grid's start, an event, a small copy) run in the caller's thread when they
 *find their stream idle, and otherwise in the thread that ends their predecessor. What takes long,
 *calls the application or waits for another stream runs in a thread of the stream's own, made when
 *it is first needed: nothing that one stream waits for can be stuck behind another.
 */
#include "softgpu/driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t drv_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* -- marks --------------------------------------------------------------------------- */

struct drv_mark *drv_mark_new(void)
{
	struct drv_mark *m = calloc(1, sizeof(*m));
	if (m)
		m->refs = 1;
	return m;
}

void drv_mark_put(struct drv_mark *m)
{
	if (m && !--m->refs)
		free(m);
}

/* -- operations ------------------------------------------------------------------------ */

struct drv_op *drv_op_new(drv_run run, size_t bytes)
{
	struct drv_op *op = calloc(1, sizeof(*op) + bytes);
	if (op)
		op->run = run;
	return op;
}

void drv_op_free(struct drv_op *op)
{
	if (!op)
		return;
	for (uint32_t i = 0; i < op->n_deps; i++) {
		if (op->deps[i].stream)
			drv_stream_put(op->deps[i].stream);
		drv_mark_put(op->deps[i].mark);
	}
	free(op->deps);
	free(op);
}

static struct drv_dep *add_dep(struct drv_op *op)
{
	struct drv_dep *deps = realloc(op->deps, (op->n_deps + 1) * sizeof(*deps));
	if (!deps)
		return NULL;
	op->deps = deps;
	deps[op->n_deps] = (struct drv_dep){ 0 };
	return &deps[op->n_deps++];
}

CUresult drv_op_wait_mark(struct drv_op *op, struct drv_mark *mark)
{
	if (mark->done)
		return CUDA_SUCCESS;
	struct drv_dep *d = add_dep(op);
	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	mark->refs++;
	d->mark = mark;
	return CUDA_SUCCESS;
}

static CUresult wait_stream(struct drv_op *op, struct CUstream_st *s)
{
	if (s->completed >= s->submitted)
		return CUDA_SUCCESS;
	struct drv_dep *d = add_dep(op);
	if (!d)
		return CUDA_ERROR_OUT_OF_MEMORY;
	s->refs++;
	*d = (struct drv_dep){ .stream = s, .seq = s->submitted };
	return CUDA_SUCCESS;
}

/* The legacy stream and the blocking streams of a context wait for each other's earlier work. */
static CUresult wait_default(struct drv_op *op, struct CUstream_st *s)
{
	struct CUctx_st *ctx = s->ctx;
	CUresult r = CUDA_SUCCESS;
	if (s->non_blocking)
		return r;
	if (s != ctx->legacy)
		return wait_stream(op, ctx->legacy);
	for (struct CUstream_st *o = ctx->streams; o && !r; o = o->next) {
		if (o == s || o->non_blocking)
			continue;
		if (o->capture) { /* its work is yet to come: nothing could be waited for */
			drv_capture_invalidate(o->capture);
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
		r = wait_stream(op, o);
	}
	return r;
}

static bool deps_met(const struct drv_op *op)
{
	for (uint32_t i = 0; i < op->n_deps; i++) {
		const struct drv_dep *d = &op->deps[i];
		if (d->stream ? d->stream->completed < d->seq : !d->mark->done)
			return false;
	}
	return true;
}

static bool skipping(const struct CUctx_st *ctx)
{
	return ctx->error || ctx->closing;
}

static bool may_start(const struct CUstream_st *s, const struct drv_op *op)
{
	return s->completed + 1 == op->seq && (skipping(s->ctx) || deps_met(op));
}

/* -- running: all of this with the lock ------------------------------------------------------ */

static void finish(struct drv_op *op)
{
	struct CUstream_st *s = op->stream;
	s->completed = op->seq;
	drv_op_free(op);
	drv_broadcast();
	drv_stream_put(s);
}

/* Drops the lock meanwhile. Unless it only started something, the operation is gone afterwards. */
static void perform(struct drv_op *op)
{
	bool skip = skipping(op->stream->ctx);
	pthread_mutex_unlock(&drv.lock);
	bool ended = op->run(op, skip);
	pthread_mutex_lock(&drv.lock);
	if (ended)
		finish(op);
}

static struct drv_op *pop(struct CUstream_st *s)
{
	struct drv_op *op = s->head;
	s->head = op->next;
	if (!s->head)
		s->tail = &s->head;
	return op;
}

/* After the end of an operation: quick ones that follow run in this thread, the rest is for the
 * stream's own. Whoever ends an operation calls this, so a queue of kernels needs no thread at all.
 */
static void advance(struct CUstream_st *s)
{
	while (s->head && s->head->quick && may_start(s, s->head))
		perform(pop(s));
	if (s->head)
		pthread_cond_signal(&s->wake);
}

void drv_op_end(struct drv_op *op)
{
	struct CUstream_st *s = op->stream;
	pthread_mutex_lock(&drv.lock);
	s->refs++;
	finish(op);
	advance(s);
	drv_stream_put(s);
	pthread_mutex_unlock(&drv.lock);
}

/* -- the stream's thread ------------------------------------------------------------------ */

static void *stream_thread(void *arg)
{
	struct CUstream_st *s = arg;
	pthread_mutex_lock(&drv.lock);
	for (;;) {
		struct drv_op *op = s->head;
		if (op && may_start(s, op))
			perform(pop(s));
		else if (op && s->completed + 1 == op->seq)
			drv_wait(); /* for another stream */
		else if (op || !s->gone)
			pthread_cond_wait(&s->wake, &drv.lock);
		else
			break;
	}
	s->has_thread = false;
	drv_stream_put(s);
	pthread_mutex_unlock(&drv.lock);
	return NULL;
}

static CUresult start_thread(struct CUstream_st *s)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t id;
	if (s->has_thread)
		return CUDA_SUCCESS;
	/* The application's signal handlers run in its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	s->refs++;
	int err = pthread_create(&id, &attr, stream_thread, s);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		s->refs--;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->has_thread = true;
	return CUDA_SUCCESS;
}

/* -- submitting ----------------------------------------------------------------------------- */

/* here: may run in this thread. s may be gone afterwards unless the caller holds a count of it. */
static CUresult submit(struct CUstream_st *s, struct drv_op *op, bool here, uint64_t *seq)
{
	CUresult r = wait_default(op, s);
	here = here && !s->head && s->completed == s->submitted && deps_met(op);
	/* A quick operation that waits for its predecessor alone is started by that one's end. */
	if (!r && !here && (!op->quick || op->n_deps || s->completed == s->submitted))
		r = start_thread(s);
	if (r) {
		drv_op_free(op);
		return r;
	}
	op->stream = s;
	op->seq = ++s->submitted;
	s->refs += 2; /* for the operation, put by finish, and for us */
	if (seq)
		*seq = op->seq;
	if (here) {
		perform(op);
		advance(s);
	} else {
		*s->tail = op;
		s->tail = &op->next;
		pthread_cond_signal(&s->wake);
	}
	drv_stream_put(s);
	return CUDA_SUCCESS;
}

CUresult drv_submit(struct CUstream_st *s, struct drv_op *op, bool quick)
{
	op->quick = quick;
	return submit(s, op, quick, NULL);
}

CUresult drv_submit_wait(struct CUstream_st *s, struct drv_op *op)
{
	uint64_t seq;
	s->refs++;
	CUresult r = submit(s, op, true, &seq);
	if (!r)
		r = drv_stream_wait(s, seq);
	drv_stream_put(s);
	return r;
}

/* -- waiting ----------------------------------------------------------------------------------- */

CUresult drv_stream_wait(struct CUstream_st *s, uint64_t seq)
{
	s->refs++;
	while (s->completed < seq)
		drv_wait();
	CUresult r = s->ctx->error;
	drv_stream_put(s);
	return r;
}

bool drv_stream_idle(struct CUstream_st *s)
{
	if (s->completed < s->submitted)
		return false;
	if (s == s->ctx->legacy)
		for (struct CUstream_st *o = s->ctx->streams; o; o = o->next)
			if (!o->non_blocking && o->completed < o->submitted)
				return false;
	return true;
}

static bool nothing(struct drv_op *op, bool skip)
{
	return true;
}

/* An empty operation carries the implied waits of the stream it is put in. */
CUresult drv_stream_sync(struct CUstream_st *s)
{
	if (drv_stream_idle(s))
		return s->ctx->error;
	if (s != s->ctx->legacy)
		return drv_stream_wait(s, s->submitted);
	struct drv_op *op = drv_op_new(nothing, 0);
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return drv_submit_wait(s, op);
}

/* -- making and ending ------------------------------------------------------------------------- */

struct CUstream_st *drv_stream_new(struct CUctx_st *ctx, unsigned int flags, int priority)
{
	struct CUstream_st *s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	s->object.kind = DRV_STREAM;
	s->ctx = ctx;
	s->refs = 1;
	s->id = ++ctx->next_stream_id;
	s->flags = flags;
	s->non_blocking = flags & CU_STREAM_NON_BLOCKING;
	s->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	s->tail = &s->head;
	s->policy.syncPolicy = CU_SYNC_POLICY_AUTO;
	s->domain_map.memSyncDomainMap.remote = 1;
	pthread_cond_init(&s->wake, NULL);
	s->next = ctx->streams;
	ctx->streams = s;
	ctx->refs++;
	return s;
}

static void unlink_stream(struct CUstream_st *s)
{
	for (struct CUstream_st **at = &s->ctx->streams; *at; at = &(*at)->next)
		if (*at == s) {
			*at = s->next;
			return;
		}
}

void drv_stream_put(struct CUstream_st *s)
{
	if (--s->refs)
		return;
	unlink_stream(s);
	struct CUctx_st *ctx = s->ctx;
	drv_capture_forget(s);
	pthread_cond_destroy(&s->wake);
	free(s);
	drv_ctx_put(ctx);
}

/* A stream that still works stays in the context's list until it is done, so that whoever waits for
 * the context waits for it too. */
void drv_stream_retire(struct CUstream_st *s)
{
	bool again = s->gone;
	s->gone = true;
	if (s->ctx->closing) { /* its work has been waited for; the context lets go of it */
		unlink_stream(s);
		drv_remove_handle(&s->object);
	}
	pthread_cond_signal(&s->wake);
	if (!again)
		drv_stream_put(s);
}

/* The device's lock is held; a grid that has not ended keeps its operation, stream and context. */
static bool in_context(void *arg, void *cookie)
{
	return ((struct drv_op *)arg)->stream->ctx == cookie;
}

void drv_fail(struct CUctx_st *ctx, CUresult error)
{
	pthread_mutex_lock(&drv.lock);
	bool first = !ctx->error;
	if (first)
		ctx->error = error;
	drv_broadcast();
	pthread_mutex_unlock(&drv.lock);
	if (first)
		sg_grids_fail(drv.dev, error, in_context, ctx);
}

/* -- the threads' own default streams -------------------------------------------------------------
 */

struct own {
	struct own *next;
	struct CUctx_st *ctx;
	uint64_t ctx_id;
	struct CUstream_st *stream;
};
static __thread struct own *own_streams;
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static bool own_alive(const struct own *o)
{
	for (struct CUctx_st *c = drv.contexts; c; c = c->next)
		if (c == o->ctx)
			return c->id == o->ctx_id && !c->closing;
	return false;
}

/* The thread ends: its streams are left to finish their work. */
static void own_end(void *arg)
{
	pthread_mutex_lock(&drv.lock);
	for (struct own *o = own_streams, *next; o; o = next) {
		next = o->next;
		if (own_alive(o))
			drv_stream_retire(o->stream);
		free(o);
	}
	own_streams = NULL;
	pthread_mutex_unlock(&drv.lock);
}

static void own_key_make(void)
{
	pthread_key_create(&own_key, own_end);
}

static struct CUstream_st *own_stream(struct CUctx_st *ctx)
{
	for (struct own **at = &own_streams; *at;) {
		struct own *o = *at;
		if (o->ctx == ctx && o->ctx_id == ctx->id)
			return o->stream;
		if (own_alive(o)) {
			at = &o->next;
			continue;
		}
		*at = o->next; /* its context ended and took the stream along */
		free(o);
	}
	struct own *o = calloc(1, sizeof(*o));
	if (!o || !(o->stream = drv_stream_new(ctx, CU_STREAM_DEFAULT, 0))) {
		free(o);
		return NULL;
	}
	o->ctx = ctx;
	o->ctx_id = ctx->id;
	o->next = own_streams;
	own_streams = o;
	pthread_once(&own_once, own_key_make);
	pthread_setspecific(own_key, o); /* only to be called: own_end starts from the variable */
	return o->stream;
}

CUresult drv_stream_of(struct CUctx_st *ctx, CUstream handle, struct CUstream_st **out)
{
	if (!handle)
		handle = drv_is_per_thread() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
	if (handle == CU_STREAM_LEGACY)
		*out = ctx->legacy;
	else if (handle == CU_STREAM_PER_THREAD)
		*out = own_stream(ctx);
	else if (!(*out = drv_find(handle, DRV_STREAM)))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!*out)
		return CUDA_ERROR_OUT_OF_MEMORY;
	return (*out)->ctx->error ? (CUresult)(*out)->ctx->error : CUDA_SUCCESS;
}
