/* sample.c - programs that run in a part of the warps: one in N is chosen where the kernel begins, and stands for N.
 *
 * Requires that places are marked where a sampled program runs (place.sampled); leaves, at the start of each of them,
 *
 *	%egpu_weight	.b32: how many warps this one stands for; 0: it is not chosen
 *	%egpu_chosen	.pred: it is not 0
 *
 * and sites then skip what is sampled by one branch that all lanes take together. The whole warp is chosen or none of it, so
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
static const char choose[] =
	"\n\t.reg .b32 " WEIGHT_REG ";\n"
	"\n\t.reg .pred " CHOSEN_REG ";\n"
	"\n\t.reg .b64 " WORD_REG ";\n"
	"{ // egpu site sample\n"
	"\t.reg .b32 %egpu_xt<6>;\n"
	"\t.reg .b64 %egpu_xd<3>;\n"
	"\tld.param.u64 %egpu_xd1, [" LAUNCH_PARAM "];\n"
	"\tmov.b64 {%egpu_xt1, %egpu_xt2}, %egpu_xd1;\n"
	/* A graph launches with one word again and again: then the hardware's number of the launch too. */
	"\tmov.u64 %egpu_xd2, %gridid;\n"
	"\tcvt.u32.u64 %egpu_xt3, %egpu_xd2;\n"
	"\tbfe.s32 %egpu_xt4, %egpu_xt2, 26, 1;\n"
	"\tand.b32 %egpu_xt3, %egpu_xt3, %egpu_xt4;\n"
	"\tld.const.u32 %egpu_xt4, [" TABLE_NAME "+%d];\n"
	"\tmad.lo.u32 %egpu_xt1, %egpu_xt1, 0x9e3779b1, %egpu_xt4;\n"
	"\tmad.lo.u32 %egpu_xt1, %egpu_xt3, 0x27d4eb2f, %egpu_xt1;\n"
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

static const char handed[] =
	"\n\t.reg .b32 " WEIGHT_REG ";\n"
	"\n\t.reg .pred " CHOSEN_REG ";\n"
	"{ // egpu site sample\n"
	"\t.reg .b64 %egpu_xd<2>;\n"
	"\tld.param.u64 %egpu_xd1, [" LAUNCH_PARAM "];\n"
	"\tshr.u64 %egpu_xd1, %egpu_xd1, 40;\n"
	"\tcvt.u32.u64 " WEIGHT_REG ", %egpu_xd1;\n"
	"\tsetp.ne.u32 " CHOSEN_REG ", " WEIGHT_REG ", 0;\n"
	"}\n\t";

/* The one %d of the text. */
static bool put_choice(struct buf *b)
{
	const char *number = strstr(choose, "%d]");

	buf_add(b, choose, (size_t)(number - choose));
	buf_printf(b, "%d", 8 * EBPF_TABLE_CHOICE);
	buf_puts(b, number + 2);
	return !b->failed;
}

static bool set_chosen(struct variant *v, const struct place *place)
{
	struct buf b = { 0 };

	if (!place->is_kernel) {
		ptx_edit_insert(&v->edits, place->func->body.begin + 1, handed);
		return true;
	}
	bool ok = put_choice(&b);
	if (v->weight_in_calls)
		buf_puts(&b, hand_on);
	buf_puts(&b, "}\n\t");
	char *text = ok && !b.failed ? arena_strdup(v->arena, b.data) : NULL;
	buf_free(&b);
	if (!text)
		return no_memory(v);
	ptx_edit_insert(&v->edits, place->func->body.begin + 1, text);
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
