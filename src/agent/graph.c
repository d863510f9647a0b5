/* graph.c - kernels that an executable graph launches.
 *
 * The program's graphs and nodes keep the program's own kernels, whatever it asks of them. The swap
 * happens in the executable: when one is instantiated we keep a clone of its graph (`plain`), and a
 * second one (`work`) once a variant is wanted. Before a launch the kernel nodes of `work` get the
 * variants of the moment and the executable is updated from it as a whole, which the driver defines
 * for every way of building, child graphs included, and which leaves launches under way alone.
 * `plain` gives the program's parameters and the way back. What the program changes in an
 * executable is changed in both; what we cannot follow makes us put the originals back and leave
 * that executable alone.
 *
 * A variant that an executable may launch is counted in graph_refs and stays loaded. Calls on one
 * executable are serialised by the program, as the driver demands.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum { MAX_DEPTH = 8, MAX_NODES = 100000 };

struct graph_node {
	CUgraphNode plain, work; /* work: once exec->work is there */
	void *handle;            /* CUfunction or CUkernel */
	struct function *f;      /* NULL: not (yet) known */
	CUcontext context;
	bool cooperative;
	bool fixed;                 /* runs the original, come what may */
	struct variant *now, *next; /* in the executable, after the next update; NULL: original */
	uint64_t launch;            /* word of it; lives while the driver reads it */
	uint32_t one_in, next_in;   /* in that word, now and after the next update */
	bool news;                  /* its parameters are to be set */
	uint64_t warps;             /* that it launches */
};

struct graph_exec {
	struct graph_exec *next; /* graph_purge */
	CUgraphExec handle;
	CUgraph plain, work;
	CUcontext context; /* at its making */
	struct graph_node *nodes;
	size_t n, cap;
	bool swapped; /* the executable holds a variant */
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

/* -- records ------------------------------------------------------------------------- */

static void drop_graph(CUgraph *g)
{
	if (*g)
		REAL(cuGraphDestroy)(*g);
	*g = NULL;
}

static void set_now(struct graph_node *n, struct variant *v)
{
	if (v)
		atomic_fetch_add(&v->graph_refs, 1);
	if (n->now)
		atomic_fetch_sub(&n->now->graph_refs, 1);
	n->now = v;
}

static void exec_free(struct graph_exec *e)
{
	for (size_t i = 0; i < e->n; i++)
		set_now(&e->nodes[i], NULL);
	drop_graph(&e->work);
	drop_graph(&e->plain);
	free(e->nodes);
	free(e);
}

static struct graph_exec *exec_get(CUgraphExec handle)
{
	return handles_get(&agent.execs, handle);
}

static bool add_kernel(struct graph_exec *e, CUgraphNode node)
{
	CUDA_KERNEL_NODE_PARAMS p = { 0 };
	CUkernelNodeAttrValue a;
	if (!ok(REAL(cuGraphKernelNodeGetParams_v2)(node, &p)) || e->n >= MAX_NODES)
		return false;
	if (e->n == e->cap) {
		size_t cap = e->cap ? e->cap * 2 : 16;
		void *more = realloc(e->nodes, cap * sizeof(*e->nodes));
		if (!more)
			return false;
		e->nodes = more;
		e->cap = cap;
	}
	memset(&a, 0, sizeof(a));
	bool told =
		REAL(cuGraphKernelNodeGetAttribute) &&
		ok(REAL(cuGraphKernelNodeGetAttribute)(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &a));
	e->nodes[e->n++] = (struct graph_node){ .plain = node,
		.handle = p.kern ? (void *)p.kern : (void *)p.func,
		.context = p.ctx,
		.cooperative = told && a.cooperative };
	return true;
}

static CUgraph child_of(CUgraphNode node)
{
	CUgraph child = NULL;
	return ok(REAL(cuGraphChildGraphNodeGetGraph)(node, &child)) ? child : NULL;
}

/* Calls fn for each node of g. */
static bool each_node(
	CUgraph g, bool (*fn)(CUgraphNode node, CUgraphNodeType type, void *arg), void *arg)
{
	size_t n = 0;
	if (!ok(REAL(cuGraphGetNodes)(g, NULL, &n)) || n > MAX_NODES)
		return false;
	CUgraphNode *nodes = calloc(n + 1, sizeof(*nodes));
	bool fine = nodes && (!n || ok(REAL(cuGraphGetNodes)(g, nodes, &n)));
	for (size_t i = 0; fine && i < n; i++) {
		CUgraphNodeType type;
		fine = ok(REAL(cuGraphNodeGetType)(nodes[i], &type)) && fn(nodes[i], type, arg);
	}
	free(nodes);
	return fine;
}

struct walk {
	struct graph_exec *exec;
	CUgraph work; /* of the same level as the nodes; pairing only */
	int depth;
	size_t at;
};

static bool collect(CUgraphNode node, CUgraphNodeType type, void *arg)
{
	struct walk *w = arg;
	struct walk in = { w->exec, NULL, w->depth + 1, 0 };
	CUgraph child;
	if (type == CU_GRAPH_NODE_TYPE_KERNEL)
		return add_kernel(w->exec, node);
	if (type != CU_GRAPH_NODE_TYPE_GRAPH)
		return true;
	child = child_of(node);
	return child && in.depth < MAX_DEPTH && each_node(child, collect, &in);
}

/* Node types of which we know every way to change them in an executable; some others cannot be cloned.
 * arg: an int, how deep the graph lies. */
static bool is_followed(CUgraphNode node, CUgraphNodeType type, void *arg)
{
	int depth = *(int *)arg + 1;
	switch (type) {
	case CU_GRAPH_NODE_TYPE_GRAPH: {
		CUgraph child = child_of(node);
		return child && depth < MAX_DEPTH && each_node(child, is_followed, &depth);
	}
	case CU_GRAPH_NODE_TYPE_KERNEL:
	case CU_GRAPH_NODE_TYPE_MEMCPY:
	case CU_GRAPH_NODE_TYPE_MEMSET:
	case CU_GRAPH_NODE_TYPE_HOST:
	case CU_GRAPH_NODE_TYPE_EMPTY:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return true;
	default:
		return false;
	}
}

/* -- graphs that the device goes through by itself --------------------------------------- */

/* False at a conditional node. arg: as of is_followed. */
static bool is_plain(CUgraphNode node, CUgraphNodeType type, void *arg)
{
	int depth = *(int *)arg + 1;
	CUgraph child = type == CU_GRAPH_NODE_TYPE_GRAPH ? child_of(node) : NULL;
	if (child && depth < MAX_DEPTH)
		return each_node(child, is_plain, &depth);
	return type != CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

/* An executable whose work the device launches itself was made with the context's memory as it was: on an H200 a load of ours
 * between its making and its launch was followed by an illegal address under compute-sanitizer, whose kernels need local memory.
 * As long as one exists nothing is loaded. */
static void keep_rigid(CUgraphExec handle)
{
	lock_take(&agent.lock);
	bool known = handles_get(&agent.rigid, handle) != NULL;
	if (!known) {
		handles_put(&agent.rigid, handle, handle);
		atomic_fetch_add(&agent.n_rigid, 1);
	}
	lock_drop(&agent.lock);
	if (!known)
		agent_log("graph %p: the device launches its work", (void *)handle);
}

/* Whether it was one. */
static bool release_rigid(CUgraphExec handle)
{
	lock_take(&agent.lock);
	bool known = handles_get(&agent.rigid, handle) != NULL;
	if (known) {
		handles_put(&agent.rigid, handle, NULL);
		atomic_fetch_sub(&agent.n_rigid, 1);
	}
	lock_drop(&agent.lock);
	return known;
}

/* The same walk again finds each kernel node's twin. */
static bool pair(CUgraphNode node, CUgraphNodeType type, void *arg)
{
	struct walk *w = arg;
	struct graph_exec *e = w->exec;
	CUgraphNode twin = NULL;
	if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_GRAPH)
		return true;
	if (!ok(REAL(cuGraphNodeFindInClone)(&twin, node, w->work)))
		return false;
	if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
		if (w->at >= e->n || e->nodes[w->at].plain != node)
			return false;
		e->nodes[w->at++].work = twin;
		return true;
	}
	CUgraph child = child_of(node);
	struct walk in = { e, child_of(twin), w->depth + 1, w->at };
	bool fine = child && in.work && in.depth < MAX_DEPTH && each_node(child, pair, &in);
	w->at = in.at;
	return fine;
}

static bool can_follow(void)
{
	return REAL(cuGraphClone) && REAL(cuGraphNodeFindInClone) && REAL(cuGraphExecUpdate_v2) &&
	       REAL(cuGraphKernelNodeGetParams_v2) && REAL(cuGraphKernelNodeSetParams_v2) &&
	       REAL(cuGraphGetNodes) && REAL(cuGraphNodeGetType) &&
	       REAL(cuGraphChildGraphNodeGetGraph) && REAL(cuGraphDestroy);
}

/* Kernels of a graph that runs as it is, by name. */
struct named {
	char text[256];
	size_t n, more;
	int depth;
};

static bool name_kernel(CUgraphNode node, CUgraphNodeType type, void *arg)
{
	CUDA_KERNEL_NODE_PARAMS p = { 0 };
	struct named *to = arg;
	CUgraph child = type == CU_GRAPH_NODE_TYPE_GRAPH ? child_of(node) : NULL;
	if (child && to->depth < MAX_DEPTH) {
		to->depth++;
		bool fine = each_node(child, name_kernel, to);
		to->depth--;
		return fine;
	}
	if (type != CU_GRAPH_NODE_TYPE_KERNEL || !ok(REAL(cuGraphKernelNodeGetParams_v2)(node, &p)))
		return true;
	const char *name = function_name(p.kern ? (void *)p.kern : (void *)p.func);
	size_t length = name ? strlen(name) : 0;
	if (name && strstr(to->text, name))
		return true;
	if (!name || to->n + length + 3 > sizeof(to->text)) {
		to->more++;
		return true;
	}
	to->n += (size_t)snprintf(to->text + to->n, sizeof(to->text) - to->n, "%s%s", to->n ? ", " : "", name);
	return true;
}

static void say_why(CUgraphExec handle, CUgraph graph, const char *why)
{
	char text[400];
	struct named in = { .n = 0 };
	if (*why)
		each_node(graph, name_kernel, &in);
	snprintf(text, sizeof(text), "%s%s%s%s", why, in.n ? "; among its kernels are " : "", in.text, in.more ? " and others" : "");
	unprobed_note(handle, text);
}

/* An executable with the work of this graph. */
static struct graph_exec *exec_new(CUgraphExec handle, CUgraph graph)
{
	struct graph_exec *e = can_follow() ? calloc(1, sizeof(*e)) : NULL;
	struct walk w = { e, NULL, 0, 0 };
	if (!e)
		return NULL;
	e->handle = handle;
	REAL(cuCtxGetCurrent)(&e->context);
	int depth = 0;
	int top = 0;
	bool conditional = !each_node(graph, is_plain, &top), cloned = false;
	if (conditional)
		keep_rigid(handle);
	if (each_node(graph, is_followed, &depth))
		cloned = ok(REAL(cuGraphClone)(&e->plain, graph)) && each_node(e->plain, collect, &w);
	else
		agent_log("graph %p: it has nodes that egpu does not follow", (void *)handle);
	if (cloned && e->n)
		return e;
	say_why(handle, graph, cloned ? "" : conditional ? "it has conditional nodes, and such a graph cannot be cloned"
							  : "it has nodes that egpu does not follow");
	exec_free(e);
	return NULL;
}

static void instantiated(CUgraphExec handle, CUgraph graph)
{
	struct graph_exec *old = exec_get(handle), *e = exec_new(handle, graph);
	handles_put(&agent.execs, handle, e);
	if (e)
		unprobed_forget(handle);
	if (old)
		exec_free(old);
}

/* -- swapping -------------------------------------------------------------------------- */

static bool update(struct graph_exec *e, CUgraph with)
{
	CUgraphExecUpdateResultInfo info;
	memset(&info, 0, sizeof(info));
	CUresult r = REAL(cuGraphExecUpdate_v2)(e->handle, with, &info);
	if (!ok(r))
		agent_log("graph %p: update gave %d, result %d", (void *)e->handle, (int)r,
			(int)info.result);
	return ok(r);
}

/* Originals again. */
static void restore(struct graph_exec *e)
{
	if (!e->swapped || !update(e, e->plain))
		return;
	e->swapped = false;
	for (size_t i = 0; i < e->n; i++)
		set_now(&e->nodes[i], NULL);
}

/* We cannot follow what comes: the executable runs originals from here on. One that cannot be put
 * back keeps its record, and with it the variants it holds. */
static void let_go(struct graph_exec *e)
{
	restore(e);
	for (size_t i = 0; i < e->n; i++)
		e->nodes[i].fixed = true;
	if (e->swapped)
		return;
	handles_put(&agent.execs, e->handle, NULL);
	unprobed_note(e->handle, "the program changed it in a way that egpu does not follow: it is probed from its next cuGraphExecUpdate on");
	exec_free(e);
}

/* The variant that a node should run now; what it needs is loaded if that is possible. */
static struct variant *wanted(struct graph_exec *e, struct graph_node *n)
{
	CUDA_KERNEL_NODE_PARAMS p;
	/* What was only a name may be known by now. */
	if (!n->f || n->f->module->nameless)
		n->f = function_find(n->handle, n->context ? n->context : e->context);
	if (!n->f || n->fixed || agent_off_word() || atomic_load(&n->f->kernel->pace.given_up) ||
		!atomic_load_explicit(&n->f->kernel->wanted, memory_order_relaxed))
		return NULL;
	CUcontext c = n->context ? n->context : n->f->context ? n->f->context : e->context;
	struct variant *v = variant_for_launch(n->f, c, NULL);
	if (!v || (!v->tight && !v->launch_param))
		return v;
	if (!ok(REAL(cuGraphKernelNodeGetParams_v2)(n->plain, &p)))
		return NULL;
	/* A block of parameters has no room for one more. */
	if (v->launch_param && p.extra && !p.kernelParams)
		return NULL;
	return v->tight ? variant_that_fits(n->f, v, (uint64_t)p.gridDimX * p.gridDimY * p.gridDimZ,
				  p.blockDimX * p.blockDimY * p.blockDimZ, p.sharedMemBytes,
				  n->cooperative)
			: v;
}

/* Outside the gate: this may load. */
static void choose(struct graph_exec *e)
{
	for (size_t i = 0; i < e->n; i++)
		e->nodes[i].next = wanted(e, &e->nodes[i]);
}

static bool has_launch_id(const struct variant *v)
{
	return v && v->launch_param;
}

/* The node's parameters are to be set: each launch has a number of its own, if a program asks, and warps are sampled as they
 * are elsewhere. */
static bool has_news(struct graph_node *n)
{
	const struct variant *v = n->next;
	struct sample s = { n->one_in, 1, false };
	if (v && v->sampled)
		filter_sample(v->kernel, FILTER_OF_GRAPH, &s);
	n->next_in = s.one_in;
	return v != n->now || (v && v->reads_launch) || n->next_in != n->one_in;
}

static bool set_node(struct graph_node *n)
{
	enum { FEW = 64 };
	CUDA_KERNEL_NODE_PARAMS p;
	struct variant *v = n->next;
	void *few[FEW + 1], **list = few;
	if (!ok(REAL(cuGraphKernelNodeGetParams_v2)(n->plain, &p)))
		return false;
	if (v) {
		p.func = v->function;
		p.kern = NULL;
	}
	uint32_t given = v ? v->n_params : 0;
	if (has_launch_id(v)) {
		if (given > FEW)
			list = malloc((given + 1) * sizeof(*list));
		if (!list || (given && !p.kernelParams))
			return false;
		if (given)
			memcpy(list, p.kernelParams, given * sizeof(*list));
		n->launch = __atomic_fetch_add(&agent.shared->next_launch, 1, __ATOMIC_RELAXED) + 1;
		if (v->sampled) {
			n->launch = instrument_launch_word(n->launch, n->next_in, 1, true);
			n->one_in = n->next_in;
			n->warps = launch_warps((uint64_t)p.gridDimX * p.gridDimY * p.gridDimZ,
				(uint64_t)p.blockDimX * p.blockDimY * p.blockDimZ);
		}
		list[given] = &n->launch;
		p.kernelParams = list;
	}
	bool done = ok(REAL(cuGraphKernelNodeSetParams_v2)(n->work, &p));
	if (list != few)
		free(list);
	return done;
}

static bool make_work(struct graph_exec *e)
{
	struct walk w = { e, NULL, 0, 0 };
	if (e->work)
		return true;
	if (!ok(REAL(cuGraphClone)(&e->work, e->plain)))
		return false;
	w.work = e->work;
	if (each_node(e->plain, pair, &w) && w.at == e->n)
		return true;
	drop_graph(&e->work);
	return false;
}

static bool put_next(struct graph_exec *e)
{
	if (!make_work(e))
		return false;
	for (size_t i = 0; i < e->n; i++) {
		struct graph_node *n = &e->nodes[i];
		if (n->news && !set_node(n))
			return false;
	}
	return update(e, e->work);
}

/* Under the gate: a variant that is ready now stays loaded until we leave it. Another context may be current than the one in which the
 * program made the executable. */
static bool apply(struct graph_exec *e)
{
	bool change = false, any = false;
	CUcontext was;
	for (size_t i = 0; i < e->n; i++) {
		struct graph_node *n = &e->nodes[i];
		if (n->next && atomic_load(&n->next->state) != VARIANT_READY)
			n->next = NULL;
		n->news = has_news(n);
		change |= n->news;
		any |= n->next != NULL;
	}
	if (!change)
		return true;
	bool pushed = e->context && ok(REAL(cuCtxPushCurrent_v2)(e->context));
	bool done = put_next(e);
	if (pushed)
		REAL(cuCtxPopCurrent_v2)(&was);
	if (!done)
		return false;
	e->swapped = any;
	for (size_t i = 0; i < e->n; i++)
		set_now(&e->nodes[i], e->nodes[i].next);
	return true;
}

/* What the host wrote to mapped variables is there when the graph runs. */
static void push_globals(struct graph_exec *e)
{
	for (size_t i = 0; e && i < e->n; i++) {
		struct variant *v = e->nodes[i].now;
		if (v && v->build && v->context->host_mask & v->build->maps)
			request_push_globals(v->context, v->build->maps);
	}
}

static void count(struct graph_exec *e, uint32_t stream, bool own_stream)
{
	uint32_t first = UINT32_MAX;
	uint64_t links = 0;
	for (size_t i = 0; i < e->n; i++) {
		struct graph_node *n = &e->nodes[i];
		struct session_kernel *row = n->f ? kernel_row_of(n->f->kernel) : NULL;
		if (row)
			__atomic_fetch_add(&row->launches, 1, __ATOMIC_RELAXED);
		first = n->f && first == UINT32_MAX ? n->f->kernel->row : first;
		if (!n->now)
			continue;
		links |= atomic_load_explicit(&n->now->links, memory_order_relaxed);
		if (row)
			__atomic_fetch_add(&row->launches_instrumented, 1, __ATOMIC_RELAXED);
		if (row && n->now->sampled)
			__atomic_fetch_add(&row->warps, n->warps, __ATOMIC_RELAXED);
		devmap_launched(n->now->context, n->now->build->maps);
	}
	if (e->n)
		blackbox_graph(first, (uint32_t)e->n, stream, own_stream, links);
}

static CUresult launch(CUgraphExec handle, CUstream stream, bool per_thread)
{
	struct graph_exec *e = exec_get(handle);
	if (links_changed())
		variant_follow();
	agent_moment(LOAD_POLL);
	bool captured = stream_capturing(stream, per_thread);
	/* A captured launch becomes a part of a graph of the program's. */
	if (e && captured)
		restore(e);
	else if (e)
		choose(e);
	struct kernel *whole = NULL;
	struct session_kernel *row = e || captured ? NULL : unprobed_launch(handle, &whole);
	gate_enter(&agent.gate);
	bool fine = !e || captured || apply(e);
	uint32_t number = stream_used(stream, per_thread);
	if (!fine)
		restore(e);
	push_globals(e);
	struct time_pair *timed = row && gputime_due(__atomic_fetch_add(&row->launches, 1, __ATOMIC_RELAXED))
					  ? gputime_begin(whole, NULL, NULL, false, false, stream, per_thread)
					  : NULL;
	CUresult (*run)(CUgraphExec, CUstream) = per_thread ? REAL(cuGraphLaunch_ptsz) : REAL(cuGraphLaunch);
	CUresult r = run(handle, stream);
	/* Whatever keeps variants from starting is no business of the program's. */
	if (!ok(r) && e && !captured && e->swapped && fine) {
		restore(e);
		fine = false;
		r = e->swapped ? r : run(handle, stream);
	}
	if (timed && ok(r))
		gputime_end(timed, false, 0, stream, per_thread);
	else if (timed)
		gputime_drop(timed);
	stream_used_until_now(stream, per_thread);
	gate_leave(&agent.gate);
	if (!ok(r))
		blackbox_result("a launch of a graph", r);
	if (!ok(r) || captured)
		return r;
	bool own = stream_is_own(stream, per_thread);
	if (e)
		count(e, number, own);
	else
		blackbox_graph(UINT32_MAX, UINT32_MAX, number, own, 0);
	devmap_touched();
	if (!fine)
		let_go(e);
	return r;
}

static bool every_exec(void *value, void *arg)
{
	struct graph_exec *e = value;
	e->next = *(struct graph_exec **)arg;
	*(struct graph_exec **)arg = e;
	return true;
}

static bool drop_any(void *value, void *arg)
{
	return true;
}

void graph_purge(void)
{
	struct graph_exec *all = NULL, *next;
	handles_sweep(&agent.execs, every_exec, &all);
	lock_take(&agent.lock);
	handles_sweep(&agent.rigid, drop_any, NULL);
	unprobed_purge();
	atomic_store(&agent.n_rigid, 0);
	lock_drop(&agent.lock);
	/* Who waits in the driver for room in a queue comes back to its record, whenever that is: then none is given back. */
	bool used = gate_used(&agent.gate);
	for (; all && !used; all = next) {
		next = all->next;
		exec_free(all);
	}
}

/* -- hooks ------------------------------------------------------------------------------ */

#define HOOK(name, ...)                                                                            \
	CUresult hook_##name(__VA_ARGS__);                                                         \
	CUresult hook_##name(__VA_ARGS__)

HOOK(cuGraphLaunch, CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, false);
}

HOOK(cuGraphLaunch_ptsz, CUgraphExec exec, CUstream stream)
{
	return launch(exec, stream, true);
}

/* Those that a device launches itself cannot be changed behind its back. Called in the gate, which it leaves: nothing is loaded between the making
 * of one and the note of it. */
static CUresult made(CUresult r, CUgraphExec *exec, CUgraph graph, uint64_t flags)
{
	if (ok(r) && exec && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)) {
		keep_rigid(*exec);
		say_why(*exec, graph, "the device may launch it by itself");
	} else if (ok(r) && exec) {
		instantiated(*exec, graph);
	}
	gate_leave(&agent.gate);
	return r;
}

HOOK(cuGraphInstantiate, CUgraphExec *exec, CUgraph graph, CUgraphNode *bad_node, char *log,
	size_t log_bytes)
{
	gate_enter(&agent.gate);
	return made(
		REAL(cuGraphInstantiate)(exec, graph, bad_node, log, log_bytes), exec, graph, 0);
}

HOOK(cuGraphInstantiate_v2, CUgraphExec *exec, CUgraph graph, CUgraphNode *bad_node, char *log,
	size_t log_bytes)
{
	gate_enter(&agent.gate);
	return made(
		REAL(cuGraphInstantiate_v2)(exec, graph, bad_node, log, log_bytes), exec, graph, 0);
}

HOOK(cuGraphInstantiateWithFlags, CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	gate_enter(&agent.gate);
	return made(REAL(cuGraphInstantiateWithFlags)(exec, graph, flags), exec, graph, flags);
}

HOOK(cuGraphInstantiateWithParams, CUgraphExec *exec, CUgraph graph,
	CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	gate_enter(&agent.gate);
	return made(REAL(cuGraphInstantiateWithParams)(exec, graph, params), exec, graph,
		params ? params->flags : 0);
}

HOOK(cuGraphInstantiateWithParams_ptsz, CUgraphExec *exec, CUgraph graph,
	CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	gate_enter(&agent.gate);
	return made(REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, params), exec, graph,
		params ? params->flags : 0);
}

HOOK(cuGraphExecDestroy, CUgraphExec exec)
{
	struct graph_exec *e = exec_get(exec);
	/* The handle may come again at once, so it goes first. */
	if (e)
		handles_put(&agent.execs, exec, NULL);
	bool rigid = release_rigid(exec);
	unprobed_forget(exec);
	CUresult r = REAL(cuGraphExecDestroy)(exec);
	if (rigid && !ok(r))
		keep_rigid(exec);
	if (e && ok(r))
		exec_free(e);
	else if (e)
		handles_put(&agent.execs, exec, e);
	return r;
}

/* The same change in our clones; false: we cannot. */
static CUgraphNode twin_of(CUgraphNode node, CUgraph in)
{
	CUgraphNode twin = NULL;
	return in && ok(REAL(cuGraphNodeFindInClone)(&twin, node, in)) ? twin : NULL;
}

static bool kernel_changed(struct graph_exec *e, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *p)
{
	CUgraphNode plain = twin_of(node, e->plain);
	struct graph_node *n = NULL;
	for (size_t i = 0; plain && i < e->n && !n; i++)
		if (e->nodes[i].plain == plain)
			n = &e->nodes[i];
	if (!n || !ok(REAL(cuGraphKernelNodeSetParams_v2)(plain, p)) ||
		(e->work && !ok(REAL(cuGraphKernelNodeSetParams_v2)(n->work, p))))
		return false;
	set_now(n, NULL);
	n->handle = p->kern ? (void *)p->kern : (void *)p->func;
	n->context = p->ctx;
	n->f = NULL;
	return true;
}

/* What the program did to the executable has been done; `followed` says whether we did likewise. */
static CUresult after(CUresult r, struct graph_exec *e, bool followed)
{
	if (ok(r) && e && !followed) {
		agent_log(
			"graph %p: changed in a way that egpu does not follow", (void *)e->handle);
		let_go(e);
	}
	return r;
}

HOOK(cuGraphExecKernelNodeSetParams_v2, CUgraphExec exec, CUgraphNode node,
	const CUDA_KERNEL_NODE_PARAMS *params)
{
	struct graph_exec *e = exec_get(exec);
	if (e && params && !twin_of(node, e->plain)) {
		let_go(e);
		e = NULL;
	}
	CUresult r = REAL(cuGraphExecKernelNodeSetParams_v2)(exec, node, params);
	return after(r, e, e && ok(r) && params && kernel_changed(e, node, params));
}

HOOK(cuGraphExecKernelNodeSetParams, CUgraphExec exec, CUgraphNode node,
	const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
	CUDA_KERNEL_NODE_PARAMS wide = { 0 };
	struct graph_exec *e = exec_get(exec);
	if (params)
		memcpy(&wide, params, sizeof(*params));
	if (e && params && !twin_of(node, e->plain)) {
		let_go(e);
		e = NULL;
	}
	CUresult r = REAL(cuGraphExecKernelNodeSetParams)(exec, node, params);
	return after(r, e, e && ok(r) && params && kernel_changed(e, node, &wide));
}

/* Changes of other nodes go to both clones. Originals are put back first where we do not follow. */
#define BOTH(e, node, call)                                                                        \
	({                                                                                         \
		CUgraphNode twin_ = twin_of(node, (e)->plain);                                     \
		CUgraphNode work_ = twin_ ? twin_of(twin_, (e)->work) : NULL;                      \
		CUgraphNode to_ = twin_;                                                           \
		bool both_ = twin_ && ok(call);                                                    \
		if (both_ && (e)->work) {                                                          \
			to_ = work_;                                                               \
			both_ = work_ && ok(call);                                                 \
		}                                                                                  \
		both_;                                                                             \
	})

HOOK(cuGraphExecMemcpyNodeSetParams, CUgraphExec exec, CUgraphNode node,
	const CUDA_MEMCPY3D *params, CUcontext ctx)
{
	struct graph_exec *e = exec_get(exec);
	CUresult r = REAL(cuGraphExecMemcpyNodeSetParams)(exec, node, params, ctx);
	return after(
		r, e, e && ok(r) && BOTH(e, node, REAL(cuGraphMemcpyNodeSetParams)(to_, params)));
}

HOOK(cuGraphExecMemsetNodeSetParams, CUgraphExec exec, CUgraphNode node,
	const CUDA_MEMSET_NODE_PARAMS *params, CUcontext ctx)
{
	struct graph_exec *e = exec_get(exec);
	CUresult r = REAL(cuGraphExecMemsetNodeSetParams)(exec, node, params, ctx);
	return after(
		r, e, e && ok(r) && BOTH(e, node, REAL(cuGraphMemsetNodeSetParams)(to_, params)));
}

HOOK(cuGraphExecHostNodeSetParams, CUgraphExec exec, CUgraphNode node,
	const CUDA_HOST_NODE_PARAMS *params)
{
	struct graph_exec *e = exec_get(exec);
	CUresult r = REAL(cuGraphExecHostNodeSetParams)(exec, node, params);
	return after(
		r, e, e && ok(r) && BOTH(e, node, REAL(cuGraphHostNodeSetParams)(to_, params)));
}

/* Before a change that we do not follow: afterwards `plain` would undo it. */
static void leave_alone(CUgraphExec exec)
{
	struct graph_exec *e = exec_get(exec);
	if (e)
		let_go(e);
}

HOOK(cuGraphExecNodeSetParams, CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	struct graph_exec *e = exec_get(exec);
	bool kernel = params && params->type == CU_GRAPH_NODE_TYPE_KERNEL;
	if (e && (!kernel || !twin_of(node, e->plain))) {
		let_go(e);
		e = NULL;
	}
	CUresult r = REAL(cuGraphExecNodeSetParams)(exec, node, params);
	return after(r, e, e && ok(r) && kernel_changed(e, node, &params->kernel));
}

HOOK(cuGraphExecChildGraphNodeSetParams, CUgraphExec exec, CUgraphNode node, CUgraph child)
{
	leave_alone(exec);
	return REAL(cuGraphExecChildGraphNodeSetParams)(exec, node, child);
}

HOOK(cuGraphExecEventRecordNodeSetEvent, CUgraphExec exec, CUgraphNode node, CUevent event)
{
	leave_alone(exec);
	return REAL(cuGraphExecEventRecordNodeSetEvent)(exec, node, event);
}

HOOK(cuGraphExecEventWaitNodeSetEvent, CUgraphExec exec, CUgraphNode node, CUevent event)
{
	leave_alone(exec);
	return REAL(cuGraphExecEventWaitNodeSetEvent)(exec, node, event);
}

HOOK(cuGraphNodeSetEnabled, CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
	leave_alone(exec);
	return REAL(cuGraphNodeSetEnabled)(exec, node, enabled);
}

/* One that was instantiated before we came is known from here on. */
static bool found_now(CUgraphExec exec)
{
	cuuint64_t flags = 0;
	return atomic_load(&agent.late) && REAL(cuGraphExecGetFlags) &&
	       ok(REAL(cuGraphExecGetFlags)(exec, &flags)) &&
	       !(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
}

/* The program's own update brings its kernels for every node. */
static CUresult updated(CUresult r, CUgraphExec exec, CUgraph graph)
{
	if (ok(r) && (exec_get(exec) || found_now(exec)))
		instantiated(exec, graph);
	return r;
}

HOOK(cuGraphExecUpdate, CUgraphExec exec, CUgraph graph, CUgraphNode *bad_node,
	CUgraphExecUpdateResult *result)
{
	return updated(REAL(cuGraphExecUpdate)(exec, graph, bad_node, result), exec, graph);
}

HOOK(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	return updated(REAL(cuGraphExecUpdate_v2)(exec, graph, info), exec, graph);
}
