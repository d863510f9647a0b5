/* symbols.c - variables of the original that a variant is bound to. */
#include <errno.h>
#include <stdlib.h>

#include "agent/agent.h"

CUdeviceptr symbol_address(const struct module *m, const char *name)
{
	CUdeviceptr at = 0;
	size_t bytes;
	CUresult r = m->is_library ? REAL(cuLibraryGetGlobal)(&at, &bytes, m->handle, name)
				   : REAL(cuModuleGetGlobal_v2)(&at, &bytes, m->handle, name);
	if (r != CUDA_SUCCESS && m->is_library && REAL(cuLibraryGetManaged))
		r = REAL(cuLibraryGetManaged)(&at, &bytes, m->handle, name);
	return r == CUDA_SUCCESS ? at : 0;
}

/* Names of the build that the loaded module does not know, added to those it was made without. */
static uint32_t find_unbound(const struct module *m, const struct build *b, const char ***names)
{
	uint32_t n = 0;
	const char **list = calloc(b->n_unbound + b->result.n_symbols + 1, sizeof(*list));
	*names = list;
	if (!list)
		return 0;
	for (uint32_t i = 0; i < b->n_unbound; i++)
		list[n++] = b->unbound[i];
	for (uint32_t i = 0; i < b->result.n_symbols; i++)
		if (!symbol_address(m, b->result.symbols[i]))
			list[n++] = b->result.symbols[i];
	return n;
}

int symbols_settle(struct variant *v, uint32_t max_regs, struct diag *d)
{
	for (int round = 0; round < 8; round++) {
		const char **unbound;
		uint32_t n = find_unbound(v->module, v->build, &unbound);
		struct build *b = v->build;
		int err = 0;
		if (n != b->n_unbound || max_regs)
			err = build_kernel(v->kernel, v->context->cc, unbound, n, max_regs, &b, d);
		free(unbound);
		if (err)
			return err;
		bool same = b == v->build;
		v->build = b;
		if (same || (n == b->n_unbound && !max_regs))
			return 0;
		if (max_regs)
			max_regs = 0;
	}
	return diag_set(d, EINVAL, "its variables cannot be bound to the loaded module");
}
