/* real.h - the driver behind us: a pointer for every row of cuda/calls.h, and what the agent
 * exports.
 *
 * Rows flagged BOTH or HSTUB are hooked. Each hooked symbol has a class in hooks.h, from which its
 * exported function is made.
 */
#ifndef EGPU_AGENT_REAL_H
#define EGPU_AGENT_REAL_H

#include <stdbool.h>

#define EGPU_CUDA_NO_ALIASES
#include "cuda/calls.h"

#define REAL_ONE(sym, params) CUresult(*sym) params;
#define REAL_TWIN(sym, params, ptds) REAL_TWIN_##ptds(sym, params)
#define REAL_TWIN_(sym, params)
#define REAL_TWIN__ptsz(sym, params) REAL_ONE(sym##_ptsz, params)
#define REAL_TWIN__ptds(sym, params) REAL_ONE(sym##_ptds, params)
#define REAL_ROW(name, suffix, since, ptds, flags, params, args)                                   \
	REAL_ONE(name##suffix, params)                                                             \
	REAL_TWIN(name##suffix, params, ptds)

struct real {
	CUDA_CALLS(REAL_ROW)
};

/* The calls of the driver that was found; members it lacks are NULL. Never NULL itself. Resolved at
 * the first use. */
const struct real *real_calls(void);
/* Whether there is a driver at all. */
bool real_present(void);

#define REAL(sym) (real_calls()->sym)

/* Hooked symbols that the driver has. */
struct hook_pair {
	const char *symbol;
	void *real, *hook;
};
size_t resolve_pairs(struct hook_pair *out, size_t max);

/* Replaces what the driver's cuGetProcAddress answered by our hook, where there is one for that
 * very symbol. */
void *resolve_hook(const char *name, void *found, int version, cuuint64_t flags);

#endif
