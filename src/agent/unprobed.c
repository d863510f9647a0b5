/* unprobed.c - executable graphs that run as they are, by name and with the reason: those that were instantiated before we came, since the
 * driver does not tell what an executable runs, and those with nodes or changes that graph.c does not follow. Each that is launched gets a
 * row in the session, beside those of kernels, with its launches and their GPU time. Calls on one executable are serialised by the
 * program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"

enum { MAX_ROWS = 64 };

struct unprobed {
	struct kernel *row; /* stands for all of it; NULL: it has not been launched yet, or there is no room */
	char why[400];	    /* empty: there is nothing in it to be probed */
};

static struct unprobed *get(CUgraphExec exec)
{
	return handles_get(&agent.unprobed, exec);
}

static struct unprobed *add(CUgraphExec exec, const char *why)
{
	struct unprobed *u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	snprintf(u->why, sizeof(u->why), "%s", why);
	handles_put(&agent.unprobed, exec, u);
	return u;
}

void unprobed_note(CUgraphExec exec, const char *why)
{
	unprobed_forget(exec);
	add(exec, why);
}

void unprobed_forget(CUgraphExec exec)
{
	struct unprobed *u = get(exec);
	if (!u)
		return;
	handles_put(&agent.unprobed, exec, NULL);
	free(u);
}

/* Whoever compiles is not waited for: a later launch gets the row. */
static void make_row(struct unprobed *u)
{
	char name[32];
	if (atomic_load(&agent.n_unprobed) >= MAX_ROWS || !lock_try(&agent.build))
		return;
	snprintf(name, sizeof(name), "CUDA graph %d", atomic_fetch_add(&agent.n_unprobed, 1) + 1);
	struct image *im = image_nameless(name, u->why, NAMELESS_ANSWERED);
	struct kernel *k = im ? image_kernel(im, name) : NULL;
	if (k) {
		kernel_row(k);
		kernel_refuse(k, u->why);
		u->row = k;
	}
	lock_drop(&agent.build);
}

static const char before[] = "it was instantiated before the attach, and the driver does not tell what an executable graph runs: it is probed "
			     "from its next cuGraphExecUpdate on";

struct session_kernel *unprobed_launch(CUgraphExec exec, struct kernel **row)
{
	struct unprobed *u = get(exec);
	if (!u)
		u = add(exec, atomic_load(&agent.late) ? before : "egpu has not seen how it was made");
	*row = NULL;
	if (!u || !u->why[0])
		return NULL;
	if (agent.row)
		__atomic_fetch_add(&agent.row->graphs_unseen, 1, __ATOMIC_RELAXED);
	if (!u->row)
		make_row(u);
	*row = u->row;
	return u->row ? kernel_row_of(u->row) : NULL;
}

static bool drop(void *value, void *arg)
{
	free(value);
	return true;
}

/* Their rows are taken again. */
void unprobed_purge(void)
{
	handles_sweep(&agent.unprobed, drop, NULL);
	atomic_store(&agent.n_unprobed, 0);
}
