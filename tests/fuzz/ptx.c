/* ptx.c - fuzz target: whatever parses prints back byte for byte, and nothing crashes. */
#include <stdlib.h>
#include <string.h>

#include "ptx/ptx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void visit(const struct ptx_module *m)
{
	for (uint32_t i = 0; i < m->n_items; i++) {
		const struct ptx_func *f = m->items[i].func;
		for (uint32_t s = 0; f && s < f->n_stmts; s++) {
			struct ptx_access a;
			if (f->stmts[s].insn)
				ptx_insn_access(f->stmts[s].insn, &a);
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ptx_module *m;
	struct diag d = { 0 };
	struct buf b = { 0 };

	if (ptx_parse((const char *)data, size, &m, &d))
		return 0;
	visit(m);
	ptx_print(m, &b);
	if (b.len != size || memcmp(b.data, data, size))
		abort();
	buf_free(&b);
	ptx_module_free(m);
	return 0;
}
