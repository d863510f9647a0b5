/* native.c - the native tier of --live: the programs of a list as machine code in device memory (live/live.h).
 *
 * A list that is published is interpreted at first. Once that has settled, a thread compiles what the list does, which takes the driver some
 * ten milliseconds and touches no device; the code is copied to room that nothing has executed, and live.c publishes a list that leads
 * to it. Whatever fails on the way leaves the list as it is, interpreted, and says why.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "cuda/fatbin.h"
#include "live/object.h"

enum { POOL_BYTES = 32 << 20, MAX_SETS = 2 * SESSION_MAX_LINKS, STOP_NS = 2000000000 };

enum set_state { SET_WANTED, SET_COMPILING, SET_DONE, SET_FAILED };

/* The programs of a list: they are all of one point. */
struct set {
	uint64_t links;
	enum set_state state;
	CUdeviceptr code;
};

enum job_state { JOB_NONE, JOB_RUNS, JOB_ENDED };

/* What the thread works on; the holder of c->copying has it before and after. */
struct job {
	_Atomic int state;
	uint64_t links;
	struct buf ptx;
	char *cubin;
	size_t cubin_bytes;
	int err;
	struct diag d;
};

struct native {
	CUdeviceptr pool;
	uint64_t used, bytes;
	struct set sets[MAX_SETS];
	uint32_t n;
	struct job job;
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

static struct set *find(struct native *n, uint64_t links)
{
	for (uint32_t i = 0; i < n->n; i++)
		if (n->sets[i].links == links)
			return &n->sets[i];
	return NULL;
}

CUdeviceptr native_code(struct native *n, uint64_t links)
{
	struct set *s = n && links ? find(n, links) : NULL;
	if (n && links && !s && n->n < MAX_SETS)
		n->sets[n->n++] = (struct set){ .links = links };
	return s && s->state == SET_DONE ? s->code : 0;
}

uint64_t native_links(const struct native *n, uint64_t links)
{
	uint64_t some = 0;
	for (uint32_t i = 0; n && i < n->n; i++) {
		if (n->sets[i].state != SET_DONE)
			links &= ~n->sets[i].links;
		some |= n->sets[i].links;
	}
	return links & some;
}

void native_forget(struct native *n, uint64_t gone)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; n && i < n->n; i++)
		if (!(n->sets[i].links & gone))
			n->sets[kept++] = n->sets[i];
	if (n)
		n->n = kept;
}

/* -- one list ------------------------------------------------------------------- */

static void note(uint64_t links, const char *why)
{
	uint32_t text = session_add_text(agent.session, why);
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (links >> i & 1)
			__atomic_store_n(&agent.shared->links[i].native_why, text, __ATOMIC_RELAXED);
}

static void fail(struct set *s, const char *why)
{
	s->state = SET_FAILED;
	note(s->links, why);
	agent_log("live: links %llx stay interpreted: %s", (unsigned long long)s->links, why);
}

struct programs {
	struct arena *arena;
	struct ebpf_fragment fragments[LIVE_PER_LIST];
	const struct ebpf_fragment *list[LIVE_PER_LIST];
	uint32_t ops[LIVE_PER_LIST];
	uint32_t n;
	enum live_point point;
};

static int read_program(struct programs *p, uint32_t link, struct diag *d)
{
	const struct live_object *o;
	const struct live_reloc *relocs;
	const uint64_t *insns;
	char *bytes = NULL;
	size_t size, text_bytes;
	int err = session_read_prog(agent.session, agent.shared->links[link].prog, &bytes, &size);
	if (err)
		return diag_set(d, -err, "its program cannot be read from the session");
	const char *text = live_object_text(bytes, &size, &text_bytes);
	if (!text)
		err = diag_set(d, EOPNOTSUPP, "it cannot be translated");
	if (!err)
		err = live_object_parse(bytes, size, &o, &relocs, &insns, d);
	if (!err)
		err = ebpf_fragment_parse(p->arena, text, text_bytes, &p->fragments[p->n], d);
	if (!err) {
		p->list[p->n] = &p->fragments[p->n];
		p->ops[p->n++] = o->ops;
		p->point = o->point;
	}
	free(bytes);
	return err;
}

static int check_maps(const struct context *c, const struct programs *p, struct diag *d)
{
	for (uint32_t k = 0; k < p->n; k++)
		for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
			if ((p->list[k]->maps >> i & 1) && !c->maps[i].address)
				return diag_set(d, EINVAL, "it refers to a map that the device does not have");
	return 0;
}

static int write_ptx(struct context *c, uint64_t links, struct buf *ptx, struct diag *d)
{
	struct programs p = { .arena = arena_new() };
	uint64_t table[EBPF_TABLE_SYMBOLS] = { 0 };
	int err = p.arena ? 0 : diag_set(d, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < SESSION_MAX_LINKS && !err && p.n < LIVE_PER_LIST; i++)
		if (links >> i & 1)
			err = read_program(&p, i, d);
	if (!err)
		err = check_maps(c, &p, d);
	variant_table(c, table);
	struct native_request r = { .fragments = p.list, .ops = p.ops, .n = p.n, .point = p.point, .table = table, .cc = c->cc };
	if (!err)
		err = instrument_native(&r, ptx, d);
	arena_free(p.arena);
	return err;
}

/* -- the thread ------------------------------------------------------------------- */

static void *compile_thread(void *arg)
{
	struct context *c = arg;
	struct job *j = &live_native(c)->job;
	CUcontext was;
	lock_take(&c->compiling);
	j->err = -ECANCELED;
	if (!atomic_load(&c->dead) && ok(REAL(cuCtxPushCurrent_v2)(c->handle))) {
		j->err = compile(j->ptx.data, j->ptx.len, NULL, 0, LIVE_NATIVE_REGS, &j->cubin, &j->cubin_bytes, &j->d);
		REAL(cuCtxPopCurrent_v2)(&was);
	}
	lock_drop(&c->compiling);
	atomic_store(&j->state, JOB_ENDED);
	return NULL;
}

static void begin(struct context *c, struct native *n, struct set *s)
{
	struct job *j = &n->job;
	struct diag d = { 0 };
	buf_reset(&j->ptx);
	j->links = s->links;
	j->d = d;
	if (write_ptx(c, s->links, &j->ptx, &d)) {
		fail(s, d.text);
		return;
	}
	s->state = SET_COMPILING;
	atomic_store(&j->state, JOB_RUNS);
	if (agent_thread(NULL, compile_thread, c)) {
		atomic_store(&j->state, JOB_NONE);
		fail(s, "no thread can be started to compile it");
	}
}

/* A driver that is torn down must have no thread of ours in it. */
void native_stop(void)
{
	uint64_t end = now_ns() + STOP_NS;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		struct native *n = live_native(c);
		atomic_int never = 0;
		while (n && atomic_load(&n->job.state) == JOB_RUNS && now_ns() < end)
			word_wait(&never, 0, 1);
	}
}

/* -- its code on the device --------------------------------------------------------- */

static int place(struct context *c, struct native *n, const struct job *j, CUdeviceptr *at, struct diag *d)
{
	struct cubin_code code;
	int err = cubin_code(j->cubin, j->cubin_bytes, NATIVE_NAME, 0, NULL, 0, &code);
	if (err == -ENOTSUP)
		return diag_set(d, EOPNOTSUPP, "its machine code needs more than itself");
	if (err)
		return diag_set(d, -err, "its machine code is not found in what the driver compiled");
	if (code.regs > LIVE_NATIVE_REGS || code.frame_bytes > LIVE_NATIVE_FRAME || code.bytes > LIVE_NATIVE_BYTES)
		return diag_set(d, E2BIG, "its machine code takes %u registers, %u bytes of stack and %zu bytes; there are %d, %d and %d", code.regs,
			code.frame_bytes, code.bytes, LIVE_NATIVE_REGS, LIVE_NATIVE_FRAME, LIVE_NATIVE_BYTES);
	uint64_t need = (code.bytes + LIVE_NATIVE_GAP - 1) / LIVE_NATIVE_GAP * LIVE_NATIVE_GAP + LIVE_NATIVE_GAP;
	if (need > n->bytes - n->used)
		return diag_set(d, ENOSPC, "the room for machine code is used up for the life of this context");
	char *bytes = malloc(code.bytes);
	*at = n->pool + n->used;
	err = bytes ? cubin_code(j->cubin, j->cubin_bytes, NATIVE_NAME, *at, bytes, code.bytes, &code) : -ENOMEM;
	n->used += need;
	if (!err && (!ok(REAL(cuMemcpyHtoDAsync_v2)(*at, bytes, code.bytes, c->stream)) || !ok(REAL(cuStreamSynchronize)(c->stream))))
		err = -EIO;
	free(bytes);
	if (err == -ENOTSUP)
		return diag_set(d, EOPNOTSUPP, "its machine code calls what the linker has left out");
	return err ? diag_set(d, -err, "its machine code cannot be copied to the device") : 0;
}

/* Whether a list now has code that it had not. */
static bool end(struct context *c, struct native *n)
{
	struct job *j = &n->job;
	struct set *s = find(n, j->links);
	CUdeviceptr at = 0;
	int err = j->err;
	if (s && s->state == SET_COMPILING && !err)
		err = place(c, n, j, &at, &j->d);
	free(j->cubin);
	j->cubin = NULL;
	atomic_store(&j->state, JOB_NONE);
	if (!s || s->state != SET_COMPILING)
		return false; /* its links have gone meanwhile */
	if (err) {
		fail(s, j->d.text);
		return false;
	}
	s->code = at;
	s->state = SET_DONE;
	return true;
}

bool native_step(struct context *c)
{
	struct native *n = live_native(c);
	if (!n)
		return false;
	if (atomic_load(&n->job.state) == JOB_ENDED)
		return end(c, n);
	for (uint32_t i = 0; i < n->n && atomic_load(&n->job.state) == JOB_NONE; i++)
		if (n->sets[i].state == SET_WANTED)
			begin(c, n, &n->sets[i]);
	return false;
}

/* -- start ------------------------------------------------------------------------ */

/* The room is not used again: caches may hold what was executed. */
void native_start_over(struct native *n)
{
	if (!n)
		return;
	n->n = 0;
}

void native_free(struct native *n)
{
	if (n)
		REAL(cuMemFree_v2)(n->pool);
	free(n);
}

struct native *native_prepare(void)
{
	struct native *n = calloc(1, sizeof(*n));
	if (!n)
		return NULL;
	n->bytes = POOL_BYTES;
	const char *room = getenv("EGPU_LIVE_CODE_ROOM"); /* tests have little */
	if (room && strtoull(room, NULL, 0) < POOL_BYTES)
		n->bytes = strtoull(room, NULL, 0);
	if (!ok(REAL(cuMemAlloc_v2)(&n->pool, POOL_BYTES))) {
		free(n);
		return NULL;
	}
	return n;
}
