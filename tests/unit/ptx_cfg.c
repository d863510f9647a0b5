/* ptx_cfg.c - blocks, edges, dominators and loop heads of small functions. */
#include <string.h>

#include "ptx/cfg.h"
#include "tap.h"

static const struct {
	const char *name, *body;
	/* One word a block: number of instructions, then successors; "*": loop head; "!": unreachable. */
	const char *blocks;
	const char *idoms;
} cases[] = {
	{ "straight", "mov.u32 %r1, 1; call f; ret;", "3:", "0" },
	{ "empty", "", "", "" },
	{ "falls off its end", "mov.u32 %r1, 1;", "1:", "0" },
	{ "if", "@%p bra L; mov.u32 %r1, 1; L: ret;", "1:2,1 1:2 1:", "0 0 0" },
	{ "if and else", "@%p bra L; mov.u32 %r1, 1; bra M; L: mov.u32 %r1, 2; M: ret;",
		"1:2,1 2:3 1:3 1:", "0 0 0 0" },
	{ "a loop", "mov.u32 %r1, 0; L: add.u32 %r1, %r1, 1; @%p bra L; ret;", "1:1 *2:1,2 1:", "0 0 1" },
	{ "a loop around a loop", "L: mov.u32 %r1, 0; M: @%p bra M; @%q bra L; ret;",
		"*1:1 *1:1,2 1:0,3 1:", "0 0 1 2" },
	{ "an endless loop", "L: bra L;", "*1:0", "0" },
	{ "a guarded exit", "@%p exit; mov.u32 %r1, 1; ret;", "1:1 2:", "0 0" },
	{ "code that nothing reaches", "ret; mov.u32 %r1, 1; ret;", "1: !2:", "0 1" },
	{ "labels that nothing names", "mov.u32 %r1, 1; L: mov.u32 %r1, 2; M: ret;", "3:", "0" },
	{ "a run of labels", "@%p bra L; @%q bra M; ret; L: M: ret;", "1:3,1 1:3,2 1: 1:", "0 0 1 0" },
	{ "a jump to the end", "@%p bra L; ret; L:", "1:2,1 1: 0:", "0 0 0" },
	{ "a switch", "t: .branchtargets A, B, C; brx.idx %r1, t; A: mov.u32 %r1, 1; B: mov.u32 %r1, 2; C: ret;",
		"1:1,2,3 1:2 1:3 1:", "0 0 0 0" },
	{ "a switch before its table", "brx.idx.uni %r1, t; A: ret; B: ret; t: .branchtargets A, B, A;",
		"1:1,2 1: 1:", "0 0 0" },
	{ "the same label in two scopes", "{ L: @%p bra L; } { L: @%q bra L; } ret;", "*1:0,1 *1:1,2 1:", "0 0 1" },
	{ "a label of an outer scope", "{ @%p bra L; mov.u32 %r1, 1; } L: ret;", "1:2,1 1:2 1:", "0 0 0" },
	{ "an inner label hides an outer one", "L: { @%p bra L; L: mov.u32 %r1, 1; } @%q bra L; ret;",
		"*1:1 2:0,2 1:", "0 0 1" },
	{ "entered beside its head", "@%p bra M; L: mov.u32 %r1, 1; M: @%q bra L; ret;", "1:2,1 1:2 *1:1,3 1:", "0 0 0 2" },
	{ "a trap", "@%p trap; trap; L: bra L;", "1:1 1: !1:2", "0 0 2" },
};

static void describe(const struct ptx_cfg *g, char *blocks, char *idoms)
{
	blocks[0] = idoms[0] = 0;
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		const struct ptx_block *b = &g->blocks[i];
		sprintf(blocks + strlen(blocks), "%s%s%s%u:", i ? " " : "", b->loop_head ? "*" : "",
			b->reachable ? "" : "!", b->n_insns);
		for (uint32_t k = 0; k < b->n_succ; k++)
			sprintf(blocks + strlen(blocks), "%s%u", k ? "," : "", b->succ[k]);
		sprintf(idoms + strlen(idoms), "%s%u", i ? " " : "", b->idom);
	}
}

static bool consistent(const struct ptx_func *f, const struct ptx_cfg *g)
{
	uint32_t at = 0;
	for (uint32_t i = 0; i < g->n_blocks; i++) {
		if (g->blocks[i].first != at || g->blocks[i].last < g->blocks[i].first)
			return false;
		at = g->blocks[i].last + 1;
	}
	return at == f->n_stmts;
}

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[1024], blocks[512], idoms[256];
		struct ptx_module *m = NULL;
		struct ptx_cfg g;
		struct arena *a = arena_new();
		snprintf(text, sizeof(text),
			".version 8.0\n.target sm_80\n.func f;\n.entry k()\n{\n.reg .pred %%p, %%q; %s\n}\n", cases[i].body);
		is_int(ptx_parse(text, strlen(text), &m, NULL), 0, "%s", cases[i].name);
		const struct ptx_func *f = ptx_find_func(m, "k");
		is_int(ptx_cfg_build(a, f, &g), 0, "%s: built", cases[i].name);
		is_int(ptx_cfg_dominators(a, &g), 0, "%s: dominators found", cases[i].name);
		is_int(g.irreducible, !strcmp(cases[i].name, "entered beside its head"), "%s: one head a loop",
			cases[i].name);
		describe(&g, blocks, idoms);
		if (cases[i].blocks[0]) {
			is_str(blocks, cases[i].blocks, "%s: blocks", cases[i].name);
			is_str(idoms, cases[i].idoms, "%s: dominators", cases[i].name);
		}
		ok(consistent(f, &g), "%s: every statement is in one block", cases[i].name);
		ptx_module_free(m);
		arena_free(a);
	}
	return tap_done();
}
