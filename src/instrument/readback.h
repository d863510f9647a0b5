/* readback.h - two proofs about a finished variant, by code that shares nothing with the passes
 * that made it but the parser. They read texts, so a mistake in any pass shows.
 *
 *  (a) extraction and binding: undoing the listed substitutions gives the source's own text.
 *      Listed: functions, variables, debug sections and aliases that the kernel does not need are
 *      left out; what lies between items becomes one newline; `__egpu_table` is declared; a bound
 *      symbol becomes %egpu_s<n>, loaded from its entry of the table just before the statement;
 *      where a .const symbol is bound, ld.const becomes ld.global and cvta.const a mov; the alignment of a
 *      shared variable may be raised, to 16 bytes at most.
 *  (b) splice: deleting the scopes marked `{ // egpu site N`, the functions named __egpu_.. and the
 *      launch id's parameter gives (a)'s text byte for byte, whichever of a function's two versions is deleted with
 *      them (the scope `{ // egpu plain`, which no branch leaves, or all behind it); and what is deleted writes only
 *      registers it declares itself, its own local memory, memory it reaches through the map
 *      entries of the table, and, before the fragments, the arrays `$egpu_lanes_<field>` that are declared where the function begins; it has no barrier, no shared memory access, no warp operation whose
 *      mask is not the activemask of its block (or, for the barrier that ends a scope, of its beginning), no way out but its own end, no branch out of
 * itself, and no instruction that this file does not know.
 *
 * Both return 0, -EOPNOTSUPP with "internal check failed: ..." in d, or -ENOMEM.
 */
#ifndef EGPU_INSTRUMENT_READBACK_H
#define EGPU_INSTRUMENT_READBACK_H

#include "base/diag.h"
#include "ptx/ptx.h"

/* `bound` is the variant without fragments; symbols[i] is what table entry EBPF_TABLE_SYMBOLS + i
 * is bound to. */
int readback_binding(const struct ptx_module *source, const char *kernel, const char *bound,
	const char *const *symbols, uint32_t n_symbols, struct diag *d);
/* `variant` is the text with fragments; launch_param: it takes a launch id. */
int readback_splice(const char *bound, const char *variant, bool launch_param, struct diag *d);

#endif
