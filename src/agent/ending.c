/* ending.c - modules that the program unloads while a variant may be running that reads or writes their variables.
 *
 * The driver waits for a module's own kernels then, and knows nothing of variants. So the program is told that it is done, and the module
 * is unloaded for it when nothing runs. All under agent.build.
 */
#include <stdlib.h>

#include "agent/agent.h"

struct ending {
	struct ending *next;
	void *handle;
	bool is_library;
	CUcontext context; /* of a module */
};

static bool is_used(const struct module *m)
{
	for (const struct variant *v = atomic_load(&m->variants); v; v = v->next)
		if (v->handle && v->build && v->build->result.n_symbols && !atomic_load(&v->context->dead) &&
			!stream_context_idle(v->context->handle, true))
			return true;
	return false;
}

static bool end_later(const struct module *m)
{
	struct ending *e = is_used(m) ? calloc(1, sizeof(*e)) : NULL;
	if (!e)
		return false;
	*e = (struct ending){ agent.endings, m->handle, m->is_library, m->is_library ? NULL : m->context->handle };
	agent.endings = e;
	atomic_fetch_add(&agent.n_retired, 1);
	return true;
}

bool ending_later(const struct module *m)
{
	lock_take(&agent.build);
	bool later = end_later(m);
	lock_drop(&agent.build);
	return later;
}

void endings_unload(void)
{
	for (struct ending *e = agent.endings, *next; e; e = next) {
		CUcontext was;
		next = e->next;
		if (e->is_library) {
			REAL(cuLibraryUnload)(e->handle);
		} else if (REAL(cuCtxPushCurrent_v2)(e->context) == CUDA_SUCCESS) {
			REAL(cuModuleUnload)(e->handle);
			REAL(cuCtxPopCurrent_v2)(&was);
		}
		free(e);
	}
	agent.endings = NULL;
}

void endings_forget(CUcontext gone)
{
	for (struct ending **at = &agent.endings, *e; (e = *at);) {
		if (e->is_library || e->context != gone) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		atomic_fetch_sub(&agent.n_retired, 1);
		free(e);
	}
}
