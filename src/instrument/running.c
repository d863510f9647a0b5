/* running.c - what a kernel must be like for guards that call the interpreter (live/live.h). */
#include <string.h>

#include "instrument/variant.h"
#include "live/object.h"

bool is_guard(const struct ebpf_fragment *f)
{
	return f->n_funcs && live_function_text(f->funcs[0].name);
}

static bool has_live(const struct instrument_request *req)
{
	for (uint32_t i = 0; i < req->n_fragments; i++)
		if (is_guard(req->fragments[i]))
			return true;
	return false;
}

/* ptxas serialises wgmma beside a call, and drops setmaxnreg: the kernel would be much slower without any probe in it. */
bool check_running(struct variant *v, const struct instrument_request *req)
{
	if (!has_live(req))
		return true;
	if (v->target.sm < 70 || v->target.version < 603)
		return variant_refuse(v, 0, "probing it while it runs needs PTX 6.3 for sm_70 or later; this is PTX %u.%u for sm_%u",
			v->target.version / 100, v->target.version % 100, v->target.sm);
	for (uint32_t k = 0; k < v->n_places; k++) {
		const struct ptx_func *f = v->places[k].func;
		for (uint32_t i = 0; i < f->n_stmts; i++) {
			const struct ptx_insn *insn = f->stmts[i].insn;
			if (insn && (!strcmp(insn->base, "wgmma") || !strcmp(insn->base, "setmaxnreg")))
				return variant_refuse(v, f->stmts[i].line,
					"it uses %s, which is slow beside any call: it cannot be probed while it runs, only from its next launch on",
					insn->base);
		}
	}
	return true;
}
