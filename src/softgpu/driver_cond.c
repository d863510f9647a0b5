/* driver_cond.c - conditional nodes: if, while and switch.
 *
 * A condition is a word of device memory and its handle that word's address: a kernel that calls
 * cudaGraphSetConditional stores to it. When a lane comes to the node, the lane's thread reads the
 * word, starts the body's executable and waits for its end, as often as the node's type says.
 */
#include "softgpu/driver.h"

#include <stdlib.h>
#include <string.h>

/* -- conditions ---------------------------------------------------------------------------- */

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle *out, CUgraph handle,
	CUcontext ctx_handle, unsigned int value, unsigned int flags)
{
	struct CUctx_st *ctx;
	CUresult r = drv_enter(&ctx);
	if (r)
		return r;
	struct CUgraph_st *g = drv_find(handle, DRV_GRAPH);
	if (!out || !g || flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT)
		return drv_leave(CUDA_ERROR_INVALID_VALUE);
	if (ctx_handle && !(ctx = drv_find(ctx_handle, DRV_CONTEXT)))
		return drv_leave(CUDA_ERROR_INVALID_CONTEXT);
	struct drv_condition *all = realloc(g->conditions, (g->n_conditions + 1) * sizeof(*all));
	if (!all)
		return drv_leave(CUDA_ERROR_OUT_OF_MEMORY);
	g->conditions = all;
	struct drv_condition *c = &all[g->n_conditions];
	*c = (struct drv_condition){ .value = value, .assign = flags };
	if ((r = drv_graph_mem_new(ctx, sizeof(uint32_t), &c->mem)))
		return drv_leave(r);
	memcpy((void *)(uintptr_t)c->mem->addr, &value, sizeof(value));
	g->n_conditions++;
	*out = c->mem->addr;
	return drv_leave(CUDA_SUCCESS);
}

int drv_conditions_copy(const struct CUgraph_st *from, struct CUgraph_st *to)
{
	if (!from->n_conditions)
		return 0;
	to->conditions = calloc(from->n_conditions, sizeof(*to->conditions));
	if (!to->conditions)
		return -1;
	for (size_t i = 0; i < from->n_conditions; i++) {
		to->conditions[i] = from->conditions[i];
		to->conditions[i].mem->refs++;
	}
	to->n_conditions = from->n_conditions;
	return 0;
}

void drv_conditions_free(struct CUgraph_st *g)
{
	for (size_t i = 0; i < g->n_conditions; i++)
		drv_graph_mem_put(g->conditions[i].mem);
	free(g->conditions);
	g->conditions = NULL;
	g->n_conditions = 0;
}

struct assign {
	size_t n;
	struct {
		struct drv_graph_mem *mem;
		uint32_t value;
	} of[];
};

static bool run_assign(struct drv_op *op, bool skip)
{
	struct assign *a = (void *)op->data;
	pthread_mutex_lock(&drv.lock);
	for (size_t i = 0; i < a->n; i++) {
		uint32_t *word = (void *)(uintptr_t)a->of[i].mem->addr;
		if (!skip)
			__atomic_store_n(word, a->of[i].value, __ATOMIC_RELEASE);
		drv_graph_mem_put(a->of[i].mem);
	}
	pthread_mutex_unlock(&drv.lock);
	return true;
}

CUresult drv_conditions_assign(struct CUstream_st *s, const struct CUgraph_st *g)
{
	struct drv_op *op = drv_op_new(run_assign,
		sizeof(struct assign) + g->n_conditions * sizeof((struct assign){ 0 }.of[0]));
	if (!op)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct assign *a = (void *)op->data;
	for (size_t i = 0; i < g->n_conditions; i++) {
		if (!g->conditions[i].assign)
			continue;
		a->of[a->n].mem = g->conditions[i].mem;
		a->of[a->n++].value = g->conditions[i].value;
		g->conditions[i].mem->refs++;
	}
	CUresult r = drv_submit(s, op, true);
	for (size_t i = 0; r && i < g->n_conditions; i++)
		if (g->conditions[i].assign)
			drv_graph_mem_put(g->conditions[i].mem);
	return r;
}

/* -- nodes --------------------------------------------------------------------------------- */

static bool is_cond(const struct CUgraphNode_st *n)
{
	return n->work.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

bool drv_has_cond(const struct CUgraph_st *g)
{
	for (const struct CUgraphNode_st *n = g->nodes; n; n = n->next)
		if (is_cond(n))
			return true;
	return g->n_conditions;
}

/* Whether a node of the graph or of a body in it has the condition. */
static bool used(const struct CUgraph_st *g, const struct drv_graph_mem *mem)
{
	for (const struct CUgraphNode_st *n = g->nodes; n; n = n->next) {
		if (!is_cond(n))
			continue;
		if (n->work.cond->value == mem)
			return true;
		for (unsigned int i = 0; i < n->work.cond->n; i++)
			if (used(n->work.cond->bodies[i], mem))
				return true;
	}
	return false;
}

/* A condition of the graph or of one around it, that has no node yet. */
static struct drv_graph_mem *find(const struct CUgraph_st *g, CUgraphConditionalHandle handle)
{
	for (; g; g = g->outer)
		for (size_t i = 0; i < g->n_conditions; i++)
			if (g->conditions[i].mem->addr == handle)
				return used(g, g->conditions[i].mem) ? NULL : g->conditions[i].mem;
	return NULL;
}

void drv_cond_put(struct drv_cond *c)
{
	if (!c || --c->refs)
		return;
	for (unsigned int i = 0; i < c->n; i++)
		if (c->execs && c->execs[i])
			drv_exec_free(c->execs[i]);
		else if (c->bodies && c->bodies[i])
			drv_graph_free(c->bodies[i]);
	drv_graph_mem_put(c->value);
	free(c->execs);
	free(c->bodies);
	free(c);
}

static struct drv_cond *cond_new(
	CUgraphConditionalNodeType type, unsigned int n, struct drv_graph_mem *value)
{
	struct drv_cond *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	*c = (struct drv_cond){ .refs = 1, .type = type, .value = value };
	value->refs++;
	c->bodies = calloc(n, sizeof(*c->bodies));
	if (!c->bodies) {
		drv_cond_put(c);
		return NULL;
	}
	c->n = n;
	return c;
}

struct drv_cond *drv_cond_copy(const struct drv_cond *from)
{
	struct drv_cond *c = cond_new(from->type, from->n, from->value);
	for (unsigned int i = 0; c && i < c->n; i++) {
		c->bodies[i] = drv_graph_clone(from->bodies[i]);
		if (!c->bodies[i]) {
			drv_cond_put(c);
			return NULL;
		}
		c->bodies[i]->owned = true;
	}
	return c;
}

CUresult drv_cond_work(
	struct CUgraph_st *g, const CUDA_CONDITIONAL_NODE_PARAMS *p, struct drv_work *out)
{
	static const unsigned int most[] = { 2, 1, 1024 }; /* bodies, by type */
	struct drv_graph_mem *value = find(g, p->handle);
	if (!value || (unsigned int)p->type > CU_GRAPH_COND_TYPE_SWITCH || !p->size ||
		p->size > most[p->type])
		return CUDA_ERROR_INVALID_VALUE;
	if (p->ctx && !drv_find(p->ctx, DRV_CONTEXT))
		return CUDA_ERROR_INVALID_CONTEXT;
	struct drv_cond *c = cond_new(p->type, p->size, value);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned int i = 0; i < c->n; i++) {
		c->bodies[i] = drv_graph_new();
		if (!c->bodies[i]) {
			drv_cond_put(c);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
		c->bodies[i]->owned = true;
		c->bodies[i]->outer = g;
	}
	*out = (struct drv_work){ .type = CU_GRAPH_NODE_TYPE_CONDITIONAL, .cond = c };
	return CUDA_SUCCESS;
}

/* -- instantiating ---------------------------------------------------------------------------- */

static CUgraphInstantiateResult check(const struct CUgraph_st *g, bool body)
{
	CUgraphInstantiateResult r = CUDA_GRAPH_INSTANTIATE_SUCCESS;
	for (size_t i = 0; i < g->n_conditions; i++)
		if (!used(g, g->conditions[i].mem))
			return CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
	for (const struct CUgraphNode_st *n = g->nodes; n && !r; n = n->next)
		switch (n->work.type) {
		case CU_GRAPH_NODE_TYPE_CONDITIONAL:
			for (unsigned int i = 0; i < n->work.cond->n && !r; i++)
				r = check(n->work.cond->bodies[i], true);
			break;
		case CU_GRAPH_NODE_TYPE_GRAPH:
			r = check(n->work.child, body);
			break;
		case CU_GRAPH_NODE_TYPE_KERNEL:
		case CU_GRAPH_NODE_TYPE_EMPTY:
		case CU_GRAPH_NODE_TYPE_MEMSET:
		case CU_GRAPH_NODE_TYPE_MEMCPY:
			break;
		default: /* nothing else may be in a body, so that hardware can run it by itself */
			if (body)
				r = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
		}
	return r;
}

CUgraphInstantiateResult drv_cond_check(const struct CUgraph_st *g)
{
	return check(g, false);
}

/* -- running ---------------------------------------------------------------------------------- */

static struct CUgraphExec_st *choose(const struct drv_cond *c)
{
	const uint32_t *word = (void *)(uintptr_t)c->value->addr;
	uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
	if (c->type == CU_GRAPH_COND_TYPE_SWITCH)
		return value < c->n ? c->execs[value] : NULL;
	if (value)
		return c->execs[0];
	return c->n > 1 ? c->execs[1] : NULL; /* else */
}

/* With the lock, which is away while the body runs. A context that fails or goes lets operations
 * run through, so the end always comes. */
static CUresult run_body(struct CUgraphExec_st *e, struct CUctx_st *ctx)
{
	struct drv_mark *end = NULL;
	CUresult r = drv_exec_start(e, ctx, &end);
	while (end && !end->done)
		drv_wait();
	drv_mark_put(end);
	return r;
}

static bool run_cond(struct drv_op *op, bool skip)
{
	struct CUctx_st *ctx = op->stream->ctx;
	struct CUgraphExec_st *body;
	struct drv_cond *c;
	CUresult r = CUDA_SUCCESS;
	memcpy(&c, op->data, sizeof(c));
	pthread_mutex_lock(&drv.lock);
	while (!skip && !r && !ctx->error && !ctx->closing && (body = choose(c))) {
		r = run_body(body, ctx);
		if (c->type != CU_GRAPH_COND_TYPE_WHILE)
			break;
	}
	bool failed = r && !ctx->error && !ctx->closing;
	drv_cond_put(c);
	pthread_mutex_unlock(&drv.lock);
	if (failed)
		drv_fail(ctx, r);
	return true;
}

CUresult drv_cond_run(struct CUstream_st *s, struct drv_cond *c)
{
	struct drv_op *op = c->execs ? drv_op_new(run_cond, sizeof(c)) : NULL;
	if (!op)
		return c->execs ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	memcpy(op->data, &c, sizeof(c));
	c->refs++;
	CUresult r = drv_submit(s, op, false);
	if (r)
		c->refs--;
	return r;
}
