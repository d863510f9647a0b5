/* shape.c - the ways in which kernels are launched: grid, block, dynamic shared memory, stream. Each has a row in the session,
 * with launches and the time of those that were timed, whether the kernel is probed or not.
 *
 * The way of a kernel's last launch by this thread, or one in its lane, is looked at first, then its others. Nothing that launches share is
 * written for that where each thread keeps to a way of its own, and the rows, where they count, are not read. A kernel with more ways than
 * MOST counts the rest in its own row alone.
 */
#include <stdlib.h>

#include "agent/agent.h"

enum { MOST = 64 };

struct shape {
	struct shape *next;
	struct session_shape *row, way; /* way: what stands in the row and never changes */
	uint32_t nth;
};

static bool is(const struct session_shape *s, uint32_t kernel, const CUlaunchConfig *c, uint32_t stream)
{
	return s->kernel == kernel + 1 && s->grid[0] == c->gridDimX && s->grid[1] == c->gridDimY && s->grid[2] == c->gridDimZ &&
	       s->block[0] == c->blockDimX && s->block[1] == c->blockDimY && s->block[2] == c->blockDimZ &&
	       s->shared_bytes == c->sharedMemBytes && s->stream == stream;
}

static struct session_shape *find(struct kernel *k, uint32_t kernel, const CUlaunchConfig *c, uint32_t stream, uint32_t lane)
{
	for (struct shape *s = atomic_load_explicit(&k->shapes, memory_order_acquire); s; s = s->next)
		if (is(&s->way, kernel, c, stream)) {
			atomic_store_explicit(&k->last_shape[lane], s, memory_order_release);
			return s->row;
		}
	return NULL;
}

/* NULL: there is no room. */
static struct session_shape *add(struct kernel *k, uint32_t kernel, const CUlaunchConfig *c, uint32_t stream, uint32_t lane)
{
	struct shape *first = atomic_load(&k->shapes), *s;
	struct session_shape *other = find(k, kernel, c, stream, lane);
	if (other || (first && first->nth >= MOST) || !(s = calloc(1, sizeof(*s))))
		return other;
	struct session_shape row = { .kernel = kernel,
		.grid = { c->gridDimX, c->gridDimY, c->gridDimZ },
		.block = { c->blockDimX, c->blockDimY, c->blockDimZ },
		.shared_bytes = c->sharedMemBytes,
		.stream = stream };
	s->row = session_add_shape(agent.session, &row);
	if (!s->row) {
		free(s);
		return NULL;
	}
	s->way = row;
	s->way.kernel = kernel + 1;
	s->next = first;
	s->nth = first ? first->nth + 1 : 1;
	atomic_store_explicit(&k->shapes, s, memory_order_release);
	atomic_store_explicit(&k->last_shape[lane], s, memory_order_release);
	return s->row;
}

struct session_shape *shape_of(struct kernel *k, const struct session_kernel *row, const struct launch *l)
{
	uint32_t kernel = (uint32_t)(row - agent.shared->kernels), stream = l->stream, lane = l->lane % SHAPE_LANES;
	const CUlaunchConfig *c = &l->config;
	struct shape *last = atomic_load_explicit(&k->last_shape[lane], memory_order_acquire);
	if (last && is(&last->way, kernel, c, stream))
		return last->row;
	struct session_shape *found = find(k, kernel, c, stream, lane);
	struct shape *first = found ? NULL : atomic_load(&k->shapes);
	if (found || (first && first->nth >= MOST) ||
		__atomic_load_n(&agent.shared->n_shapes, __ATOMIC_RELAXED) >= SESSION_MAX_SHAPES || !lock_try(&agent.shapes))
		return found;
	found = add(k, kernel, c, stream, lane);
	lock_drop(&agent.shapes);
	return found;
}
