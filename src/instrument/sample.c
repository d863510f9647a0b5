/* sample.c - programs that run in a part of the warps: one in N is chosen where the kernel begins, and stands for N.
 *
 * Requires that spots are marked where a sampled program runs (spot.sampled), before anything is spliced; leaves, in each function that has some, before
 * all of them,
 *
 *	%egpu_weight	.b32: how many warps this one stands for; 0: it is not chosen
 *	%egpu_chosen	.pred: it is not 0
 *
 * and there the others go to a version of the function without programs (split.c); or, where that cannot be, sites skip what is sampled by
 * one branch that all lanes take together. The whole warp is chosen or none of it, so
 * programs find the lanes together that they would find otherwise.
 *
 * The kernel reads N from its added parameter (instrument.h: struct of the launch word) and chooses by a hash of the launch's number, a seed,
 * the block's number and the warp's number in it: each warp with the same probability, whatever their order means to the program. Called
 * functions get the weight with the launch id.
 */
#include <string.h>

#include "instrument/variant.h"

/* The launch's number with the seed, the block's number in the grid and the warp's in the block, each times an odd number, make one of 2^32; two rounds of
 * xor-shift and multiply leave each of its bits in the upper ones of the result. What does not differ between warps of a block is left to
 * the uniform datapath, so the way from the thread's number to the answer is a dozen instructions. */
static const char declare[] =
	"\n\t.reg .b32 " WEIGHT_REG ";\n"
	"\n\t.reg .pred " CHOSEN_REG ";\n"
	"\n\t.reg .b64 " WORD_REG ";\n";

/* The lanes of a warp begin together, at one time; where they choose they may come apart, and must all choose alike. */
static const char start[] =
	"\n\t.reg .b32 " START_REG ";\n"
	"{ // egpu site start\n"
	"\tmov.u32 " START_REG ", %clock;\n"
	"}\n\t";

/* In the upper half of the launch word, which the text below has in %egpu_xt2. */
_Static_assert(INSTRUMENT_WORD_ONE_IN == 32 + 8 && INSTRUMENT_MAX_ONE_IN == 1 << 16, "bfe 8, 16; 0xff is of the id");
_Static_assert(INSTRUMENT_WORD_TIMES == 32 + 24 && INSTRUMENT_MAX_TIMES == 1 << 2, "bfe 24, 2");
_Static_assert(INSTRUMENT_WORD_GRAPH == 32 + 26, "0x4000000");

static const char choose[] =
	"{ // egpu site sample\n"
	"\t.reg .b32 %egpu_xt<6>;\n"
	"\t.reg .b64 %egpu_xd<2>;\n"
	"\t.reg .pred %egpu_xp1;\n"
	"\tld.param.u64 %egpu_xd1, [" LAUNCH_PARAM "];\n"
	"\tmov.b64 {%egpu_xt1, %egpu_xt2}, %egpu_xd1;\n"
	"\tld.const.u32 %egpu_xt4, [" TABLE_NAME "+%d];\n"
	"\tmad.lo.u32 %egpu_xt1, %egpu_xt1, 0x9e3779b1, %egpu_xt4;\n"
	/* A graph launches with one word again and again (and %gridid is no number of the launch there: an H200 gives its nodes' each time). */
	"\tand.b32 %egpu_xt3, %egpu_xt2, 0x4000000;\n"
	"\tsetp.eq.u32 %egpu_xp1, %egpu_xt3, 0;\n"
	"\t@%egpu_xp1 bra.uni $egpu_counted;\n"
	"\tmov.u32 %egpu_xt3, %s;\n"
	"\tmad.lo.u32 %egpu_xt1, %egpu_xt3, 0x27d4eb2f, %egpu_xt1;\n"
	"$egpu_counted:\n"
	"\tmov.u32 %egpu_xt3, %ctaid.z;\n"
	"\tmov.u32 %egpu_xt4, %nctaid.y;\n"
	"\tmov.u32 %egpu_xt5, %ctaid.y;\n"
	"\tmad.lo.u32 %egpu_xt3, %egpu_xt3, %egpu_xt4, %egpu_xt5;\n"
	"\tmov.u32 %egpu_xt4, %nctaid.x;\n"
	"\tmov.u32 %egpu_xt5, %ctaid.x;\n"
	"\tmad.lo.u32 %egpu_xt3, %egpu_xt3, %egpu_xt4, %egpu_xt5;\n"
	"\tmad.lo.u32 %egpu_xt1, %egpu_xt3, 0x85ebca6b, %egpu_xt1;\n"
	"\tmov.u32 %egpu_xt3, %tid.z;\n"
	"\tmov.u32 %egpu_xt4, %ntid.y;\n"
	"\tmov.u32 %egpu_xt5, %tid.y;\n"
	"\tmad.lo.u32 %egpu_xt3, %egpu_xt3, %egpu_xt4, %egpu_xt5;\n"
	"\tmov.u32 %egpu_xt4, %ntid.x;\n"
	"\tmov.u32 %egpu_xt5, %tid.x;\n"
	"\tmad.lo.u32 %egpu_xt3, %egpu_xt3, %egpu_xt4, %egpu_xt5;\n"
	"\tshr.u32 %egpu_xt3, %egpu_xt3, 5;\n"
	"\tmad.lo.u32 %egpu_xt1, %egpu_xt3, 0xc2b2ae3d, %egpu_xt1;\n"
	"\tshr.u32 %egpu_xt3, %egpu_xt1, 16;\n"
	"\txor.b32 %egpu_xt1, %egpu_xt1, %egpu_xt3;\n"
	"\tmul.lo.u32 %egpu_xt1, %egpu_xt1, 0x7feb352d;\n"
	"\tshr.u32 %egpu_xt3, %egpu_xt1, 15;\n"
	"\txor.b32 %egpu_xt1, %egpu_xt1, %egpu_xt3;\n"
	"\tmul.lo.u32 %egpu_xt1, %egpu_xt1, 0x846ca68b;\n"
	/* Below 2^32 / N: chosen. */
	"\tbfe.u32 %egpu_xt3, %egpu_xt2, 8, 16;\n"
	"\tadd.u32 %egpu_xt3, %egpu_xt3, 1;\n"
	"\tbfe.u32 %egpu_xt4, %egpu_xt2, 24, 2;\n"
	"\tmad.lo.u32 %egpu_xt4, %egpu_xt3, %egpu_xt4, %egpu_xt3;\n"
	"\tmul.hi.u32 %egpu_xt1, %egpu_xt1, %egpu_xt3;\n"
	"\tsetp.eq.u32 " CHOSEN_REG ", %egpu_xt1, 0;\n"
	"\tselp.b32 " WEIGHT_REG ", %egpu_xt4, 0, " CHOSEN_REG ";\n";

/* What functions that are called get: the launch id, and the weight above it. */
static const char hand_on[] =
	"\tand.b32 %egpu_xt2, %egpu_xt2, 0xff;\n"
	"\tshl.b32 %egpu_xt3, " WEIGHT_REG ", 8;\n"
	"\tor.b32 %egpu_xt2, %egpu_xt2, %egpu_xt3;\n"
	"\tcvt.u32.u64 %egpu_xt1, %egpu_xd1;\n"
	"\tmov.b64 " WORD_REG ", {%egpu_xt1, %egpu_xt2};\n";

static const char declare_handed[] =
	"\n\t.reg .b32 " WEIGHT_REG ";\n"
	"\n\t.reg .pred " CHOSEN_REG ";\n";

static const char handed[] =
	"{ // egpu site sample\n"
	"\t.reg .b64 %egpu_xd<2>;\n"
	"\tld.param.u64 %egpu_xd1, [" LAUNCH_PARAM "];\n"
	"\tshr.u64 %egpu_xd1, %egpu_xd1, 40;\n"
	"\tcvt.u32.u64 " WEIGHT_REG ", %egpu_xd1;\n"
	"\tsetp.ne.u32 " CHOSEN_REG ", " WEIGHT_REG ", 0;\n"
	"}\n\t";

/* The text's %d and %s. */
static bool put_choice(const char *clock, struct buf *b)
{
	const char *number = strstr(choose, "%d]"), *time = strstr(choose, "%s;");

	buf_add(b, choose, (size_t)(number - choose));
	buf_printf(b, "%d", 8 * EBPF_TABLE_CHOICE);
	buf_add(b, number + 2, (size_t)(time - number - 2));
	buf_puts(b, clock);
	buf_puts(b, time + 2);
	return !b->failed;
}

/* -- where --------------------------------------------------------------------------------- */

static uint32_t common(const struct ptx_cfg *g, uint32_t a, uint32_t b)
{
	while (!ptx_cfg_dominates(g, a, b) && g->blocks[a].idom != a)
		a = g->blocks[a].idom;
	return a;
}

/* The block, or the nearest before it, that is in no loop. */
static bool leave_loops(struct variant *v, const struct ptx_cfg *g, uint32_t *block)
{
	bool *in = arena_array(v->arena, g->n_blocks + 1, sizeof(*in));
	uint32_t *list = arena_array(v->arena, g->n_blocks + 1, sizeof(*list));

	if (!in || !list)
		return no_memory(v);
	for (uint32_t h = 0; h < g->n_blocks; h++) {
		if (!g->blocks[h].loop_head || !g->blocks[h].reachable || !ptx_cfg_dominates(g, h, *block))
			continue;
		ptx_cfg_loop(g, h, in, list);
		if (!in[*block])
			continue;
		/* Once more from the start: loops around it may begin later in the text. */
		bool first = g->blocks[h].idom == h;
		*block = first ? UINT32_MAX : g->blocks[h].idom;
		if (first)
			return true;
		h = UINT32_MAX;
	}
	return true;
}

/* The block that a site's programs run in. They may stand at its end, before the label of the next. */
static uint32_t block_of(const struct place *place, const struct spot *s)
{
	return place->cfg.block_of[s->stmt == NO_STMT ? s->probe : s->stmt];
}

/* Likewise where a thread leaves: the probes may stand behind a branch, on the way of those that do not take it. */
static uint32_t block_left(const struct place *place, const struct leave *l)
{
	uint32_t stmt = stmt_from(place->func, l->at);

	return place->cfg.block_of[stmt ? stmt - 1 : 0];
}

/* The block on the way to both, in no loop. UINT32_MAX: none yet. */
static void meet(const struct ptx_cfg *g, uint32_t *block, uint32_t b)
{
	*block = *block == UINT32_MAX ? b : common(g, *block, b);
}

/* Where the first text of a block's sites is, or its end. */
static uint32_t place_in(const struct variant *v, const struct place *place, uint32_t block)
{
	const struct ptx_func *f = place->func;
	const struct ptx_block *b = &place->cfg.blocks[block];
	uint32_t at = UINT32_MAX, end = ptx_block_end(f, b);

	for (uint32_t i = 0; i < v->n_sites; i++) {
		const struct spot *s = &v->spots[i];
		if (s->place != place || !s->sampled || block_of(place, s) != block)
			continue;
		at = s->at < at ? s->at : at;
		if (s->batched && insert_point(v, f, s->batch_before) < at)
			at = insert_point(v, f, s->batch_before);
	}
	for (uint32_t i = 0; i < place->n_leaves; i++)
		if (block_left(place, &place->leaves[i]) == block && place->leaves[i].at < at)
			at = place->leaves[i].at;
	if (at != UINT32_MAX)
		return at;
	return end != PTX_NO_BLOCK ? insert_point(v, f, end) : f->stmts[b->last].span.end;
}

/* As late as every site allows, outside of loops: a kernel that lives for its loads should have them under way first, and a thread that has
 * nothing to do should end without. A function that is called needs it before the call; and in a function of one version the ways out, if passes are
 * counted (tally.c): then it is done at once. */
static bool choice_at(struct variant *v, struct place *place, uint32_t *at)
{
	struct ptx_cfg *g = &place->cfg;
	uint32_t block = UINT32_MAX;

	*at = place->func->body.begin + 1;
	if (v->weight_in_calls || (place->n_leaves && !place->split) || !g->n_blocks)
		return true;
	if (ptx_cfg_dominators(v->arena, g))
		return no_memory(v);
	if (g->irreducible || g->unknown_targets)
		return true;
	for (uint32_t i = 0; i < v->n_sites; i++) {
		const struct spot *s = &v->spots[i];
		if (s->place != place || !s->sampled)
			continue;
		if (s->probe >= place->func->n_stmts || !g->blocks[block_of(place, s)].reachable)
			return true;
		meet(g, &block, block_of(place, s));
	}
	for (uint32_t i = 0; i < place->n_leaves; i++) {
		if (!g->blocks[block_left(place, &place->leaves[i])].reachable)
			return true;
		meet(g, &block, block_left(place, &place->leaves[i]));
	}
	if (block == UINT32_MAX)
		return true;
	if (!leave_loops(v, g, &block))
		return false;
	while (place->split && block != UINT32_MAX && splits_warps(v, place, block)) {
		block = g->blocks[block].idom;
		if (!leave_loops(v, g, &block))
			return false;
	}
	if (block != UINT32_MAX)
		*at = place_in(v, place, block);
	return true;
}

/* Here, or, with what the others run, when that is made (split.c). */
static void put_chosen(struct variant *v, struct place *place, uint32_t at, const char *text)
{
	if (!place->split) {
		ptx_edit_insert(&v->edits, at, text);
		return;
	}
	place->choice_text = text;
	place->choice = ptx_edit_reserve(&v->edits, at);
}

static bool set_chosen(struct variant *v, struct place *place)
{
	struct buf b = { 0 };
	uint32_t begin = place->func->body.begin + 1, at = begin;

	if (!place->is_kernel) {
		ptx_edit_insert(&v->edits, begin, declare_handed);
		put_chosen(v, place, place->split ? split_point(v, place, begin) : begin, handed);
		return true;
	}
	if (!choice_at(v, place, &at))
		return false;
	if (place->split)
		at = split_point(v, place, at);
	uint32_t stmt = stmt_from(place->func, at);
	bool apart = stmt < place->func->n_stmts && place->cfg.block_of[stmt] != 0;
	ptx_edit_insert(&v->edits, begin, declare);
	if (apart)
		ptx_edit_insert(&v->edits, begin, start);
	bool ok = put_choice(apart ? START_REG : "%clock", &b);
	if (v->weight_in_calls)
		buf_puts(&b, hand_on);
	buf_puts(&b, "}\n\t");
	char *text = ok && !b.failed ? arena_strdup(v->arena, b.data) : NULL;
	buf_free(&b);
	if (!text)
		return no_memory(v);
	put_chosen(v, place, at, text);
	return true;
}

bool set_samples(struct variant *v)
{
	for (uint32_t i = 0; i < v->n_places; i++)
		v->weight_in_calls |= v->places[i].sampled && !v->places[i].is_kernel;
	for (uint32_t i = 0; i < v->n_places; i++) {
		struct place *p = &v->places[i];
		p->sampled |= p->is_kernel && v->weight_in_calls;
		if (p->sampled && !set_chosen(v, p))
			return false;
	}
	return true;
}
