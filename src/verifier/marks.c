/* marks.c - what the rest of a path relied on.
 *
 * A remembered state covers a later one only in what its own continuation relied on: the values of scalars that bounds or
 * decided branches rest upon (PRECISE), and stack slots that were read (READ). Every scalar therefore carries a node, and
 * every node names the nodes that it was computed from; relying on a scalar marks its node and all that it came from. At each
 * remembered state all nodes are renewed, so that a mark made later on one continuation reaches the states on its own way only.
 * Stack slots carry such a node too, without a past when the whole slot was written.
 *
 *	r1 = r2; r1 += r3; [state kept] r4 = map_value + r1
 *	node(r1) joins r2 and r3; the state's r1 has node m <- node(r1); the addition marks m, r2, r3.
 *
 * A mark is set once for a node and never cleared: marking is linear in the number of nodes over the whole run.
 */
#include "verifier/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool nodes_grow(struct verifier *v)
{
	size_t cap = v->cap_nodes ? v->cap_nodes * 2 : 4096;
	struct node *nodes = realloc(v->nodes, cap * sizeof(*nodes));
	if (nodes)
		v->nodes = nodes;
	uint8_t *marks = nodes ? realloc(v->marks, cap) : NULL;
	if (!marks)
		return false;
	v->marks = marks;
	v->cap_nodes = cap;
	return true;
}

uint32_t node_new(struct verifier *v, uint32_t from0, uint32_t from1)
{
	if (!v->n_nodes)
		v->n_nodes = 1;
	if (v->n_nodes >= v->cap_nodes && !nodes_grow(v)) {
		out_of_memory(v);
		return 0;
	}
	v->nodes[v->n_nodes] = (struct node){ { from0, from1 } };
	v->marks[v->n_nodes] = 0;
	return v->n_nodes++;
}

uint32_t node_join(struct verifier *v, uint32_t a, uint32_t b)
{
	if (!a || a == b)
		return b;
	return b ? node_new(v, a, b) : a;
}

static bool mark_push(struct verifier *v, size_t *n, uint32_t node)
{
	if (*n >= v->cap_mark_stack) {
		size_t cap = v->cap_mark_stack ? v->cap_mark_stack * 2 : 256;
		uint32_t *p = realloc(v->mark_stack, cap * sizeof(*p));
		if (!p)
			return false;
		v->mark_stack = p;
		v->cap_mark_stack = cap;
	}
	v->mark_stack[(*n)++] = node;
	return true;
}

int node_mark(struct verifier *v, uint32_t node, uint8_t mark)
{
	size_t n = 0;
	if (!node || v->marks[node] & mark)
		return 0;
	v->marks[node] |= mark;
	if (!mark_push(v, &n, node))
		return out_of_memory(v);
	while (n) {
		const struct node at = v->nodes[v->mark_stack[--n]];
		for (int i = 0; i < 2; i++) {
			if (!at.from[i] || v->marks[at.from[i]] & mark)
				continue;
			v->marks[at.from[i]] |= mark;
			if (!mark_push(v, &n, at.from[i]))
				return out_of_memory(v);
		}
	}
	return 0;
}
