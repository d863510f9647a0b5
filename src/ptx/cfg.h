/* cfg.h - control flow of one function: basic blocks, dominators, loop heads.
 *
 * A block begins at the function's start, at a label that some branch names, and behind a branch,
 * ret, exit or trap, guarded or not; labels that nothing names (debug information has many) begin
 * none, and a run of labels begins one. Every block but the first has an instruction or is a
 * target. A call does not end a block: control comes back to it. `brx.idx` goes to each target of
 * its table. Labels are looked up in the scopes around the branch.
 *
 * Everything lives in the arena given. Time is linear in the text, that of dominators nearly so for
 * what compilers write.
 */
#ifndef EGPU_PTX_CFG_H
#define EGPU_PTX_CFG_H

#include "ptx/ptx.h"

enum { PTX_NO_BLOCK = UINT32_MAX };

struct ptx_block {
	uint32_t first, last; /* statements, both included */
	uint32_t first_insn;  /* PTX_NO_BLOCK when it has none */
	uint32_t n_insns;
	uint32_t *succ, *pred; /* blocks; a guarded branch: the target before the fall-through */
	uint32_t n_succ, n_pred;
	uint32_t idom; /* immediate dominator; its own number for block 0 and unreachable ones */
	bool reachable;
	bool loop_head; /* an edge comes back to it */
};

struct ptx_cfg {
	struct ptx_block *blocks;
	uint32_t n_blocks;
	uint32_t *block_of;   /* per statement */
	uint32_t *target_of;  /* per statement: block that a `bra` goes to, else PTX_NO_BLOCK */
	bool irreducible;     /* a loop is entered beside its head */
	bool unknown_targets; /* a branch whose targets the text does not say */
};

/* The statement that ends a block, a branch or way out; declarations and braces may stand behind it. PTX_NO_BLOCK: it runs into the next block. */
uint32_t ptx_block_end(const struct ptx_func *f, const struct ptx_block *block);

/* Blocks, edges and loop heads. 0 or -ENOMEM. */
int ptx_cfg_build(struct arena *arena, const struct ptx_func *f, struct ptx_cfg *out);
/* Sets idom and irreducible, which are unset before. 0 or -ENOMEM. */
int ptx_cfg_dominators(struct arena *arena, struct ptx_cfg *g);
/* Needs dominators; true when a == b. */
bool ptx_cfg_dominates(const struct ptx_cfg *g, uint32_t a, uint32_t b);
/* The blocks from which the head is reached within what it dominates, itself among them: its loop. Marks them in `in` (n_blocks of them,
 * cleared first) and lists them in `out`; their number. Needs dominators. */
uint32_t ptx_cfg_loop(const struct ptx_cfg *g, uint32_t head, bool *in, uint32_t *out);
/* bra, brx, ret, exit, trap: what a block ends with. */
bool ptx_insn_ends_block(const struct ptx_insn *insn);

#endif
