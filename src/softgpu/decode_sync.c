/* decode_sync.c - votes, shuffles, matches, reductions, barriers. */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

struct mode {
	const char *name;
	uint8_t op;
};

static bool find_mode(const struct ptx_insn *p, const struct mode *modes, size_t n, uint8_t *op)
{
	for (uint32_t i = 0; i < p->n_mods; i++)
		for (size_t k = 0; k < n; k++)
			if (!strcmp(modes[k].name, p->mods[i])) {
				*op = modes[k].op;
				return true;
			}
	return false;
}
#define FIND_MODE(p, modes, op) find_mode(p, modes, sizeof(modes) / sizeof(modes[0]), op)

/* The member mask, operand number i of a .sync form. */
static enum sg_decoded member_mask(
	struct sg_dec *c, const struct ptx_insn *p, uint32_t i, struct sg_insn *in)
{
	if (!ptx_insn_has_mod(p, "sync"))
		return p->n_operands == i ? DEC_OK : DEC_UNSUPPORTED;
	in->flags |= SG_SYNC;
	return p->n_operands == i + 1 ? sg_dec_src(c, &p->operands[i], '4', &in->e)
				      : DEC_UNSUPPORTED;
}

/* d or d|p */
static enum sg_decoded dst_pair(struct sg_dec *c, const struct ptx_operand *o, struct sg_insn *in)
{
	if (o->kind != PTX_OPERAND_PAIR)
		return sg_dec_dst(c, o, '4', &in->d);
	in->has |= 1;
	TRY(sg_dec_dst(c, &o->sub[0], '4', &in->d));
	return sg_dec_dst(c, &o->sub[1], 'p', &in->d2);
}

static enum sg_decoded dec_vote(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	static const struct mode modes[] = { { "all", SG_W_ALL }, { "any", SG_W_ANY },
		{ "uni", SG_W_UNI }, { "ballot", SG_W_BALLOT } };
	if (!FIND_MODE(p, modes, &in->op) || p->n_operands < 2)
		return DEC_UNSUPPORTED;
	in->fn = sg_warp_op;
	in->width = 4;
	TRY(sg_dec_dst(c, &p->operands[0], in->op == SG_W_BALLOT ? '4' : 'p', &in->d));
	TRY(sg_dec_pred(c, &p->operands[1], in, SG_NOT_A, &in->a));
	return member_mask(c, p, 2, in);
}

static enum sg_decoded dec_shfl(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	static const struct mode modes[] = { { "up", SG_W_SHFL_UP }, { "down", SG_W_SHFL_DOWN },
		{ "bfly", SG_W_SHFL_BFLY }, { "idx", SG_W_SHFL_IDX } };
	if (!FIND_MODE(p, modes, &in->op) || p->n_operands < 4)
		return DEC_UNSUPPORTED;
	in->fn = sg_warp_op;
	in->width = 4;
	TRY(dst_pair(c, &p->operands[0], in));
	TRY(sg_dec_src(c, &p->operands[1], '4', &in->a));
	TRY(sg_dec_src(c, &p->operands[2], '4', &in->b));
	TRY(sg_dec_src(c, &p->operands[3], '4', &in->c));
	return member_mask(c, p, 4, in);
}

static enum sg_decoded dec_match(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	static const struct mode modes[] = { { "any", SG_W_MATCH_ANY }, { "all", SG_W_MATCH_ALL } };
	uint32_t bits = sg_type_bits(sg_dec_types(p, NULL));
	if (!FIND_MODE(p, modes, &in->op) || p->n_operands < 2)
		return DEC_UNSUPPORTED;
	in->fn = sg_warp_op;
	in->width = bits == 64 ? 8 : 4;
	TRY(dst_pair(c, &p->operands[0], in));
	TRY(sg_dec_src(c, &p->operands[1], bits == 64 ? '8' : '4', &in->a));
	return member_mask(c, p, 2, in);
}

static enum sg_decoded dec_redux(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	static const struct mode modes[] = { { "add", SG_A_ADD }, { "min", SG_A_MIN },
		{ "max", SG_A_MAX }, { "and", SG_A_AND }, { "or", SG_A_OR }, { "xor", SG_A_XOR } };
	in->type = sg_dec_types(p, NULL);
	bool is_float = in->type == T_F32;
	if (!FIND_MODE(p, modes, &in->sub) || p->n_operands != 3 ||
		(is_float ? in->sub != SG_A_MIN && in->sub != SG_A_MAX : sg_type_float(in->type)))
		return DEC_UNSUPPORTED;
	in->flags |= ptx_insn_has_mod(p, "NaN") ? SG_NAN : 0;
	in->has |= ptx_insn_has_mod(p, "abs") ? 4 : 0;
	in->fn = sg_warp_op;
	in->op = SG_W_REDUX;
	in->width = 4;
	TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
	TRY(sg_dec_src(c, &p->operands[1], '4', &in->a));
	return member_mask(c, p, 2, in);
}

static enum sg_decoded dec_elect(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_warp_op;
	in->op = SG_W_ELECT;
	if (p->n_operands != 2)
		return DEC_UNSUPPORTED;
	TRY(dst_pair(c, &p->operands[0], in));
	return member_mask(c, p, 1, in);
}

static enum sg_decoded dec_activemask(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_activemask;
	return p->n_operands == 1 ? sg_dec_dst(c, &p->operands[0], '4', &in->d) : DEC_UNSUPPORTED;
}

/* -- barriers ------------------------------------------------------------------ */

static enum sg_decoded bar_red(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	static const struct mode modes[] = { { "popc", SG_BAR_POPC }, { "and", SG_BAR_AND },
		{ "or", SG_BAR_OR } };
	uint32_t n = p->n_operands;
	if (!FIND_MODE(p, modes, &in->op) || n < 3 || n > 4)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_dst(c, &p->operands[0], in->op == SG_BAR_POPC ? '4' : 'p', &in->d));
	TRY(sg_dec_src(c, &p->operands[1], '4', &in->a));
	if (n == 4) {
		in->has |= 1;
		TRY(sg_dec_src(c, &p->operands[2], '4', &in->b));
	}
	return sg_dec_pred(c, &p->operands[n - 1], in, SG_NOT_C, &in->c);
}

static enum sg_decoded cluster_bar(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	in->fn = sg_cluster_bar;
	in->sub = ptx_insn_has_mod(p, "arrive") ? 1 : 2;
	return DEC_OK;
}

/* bar{.cta}.sync|arrive|red, bar.warp.sync, and the barrier forms. */
static enum sg_decoded dec_bar(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (ptx_insn_has_mod(p, "cluster"))
		return cluster_bar(c, p, in);
	if (ptx_insn_has_mod(p, "warp")) {
		in->fn = sg_warp_op;
		in->op = SG_W_BAR;
		return member_mask(c, p, 0, in);
	}
	in->fn = sg_bar;
	if (ptx_insn_has_mod(p, "red"))
		return bar_red(c, p, in);
	in->op = ptx_insn_has_mod(p, "arrive") ? SG_BAR_ARRIVE : SG_BAR_SYNC;
	if (p->n_operands < 1 || p->n_operands > 2)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_src(c, &p->operands[0], '4', &in->a));
	if (p->n_operands == 1)
		return DEC_OK;
	in->has |= 1;
	return sg_dec_src(c, &p->operands[1], '4', &in->b);
}

const struct sg_decoder_row sg_sync_decoders[] = {
	{ "vote", dec_vote },
	{ "shfl", dec_shfl },
	{ "match", dec_match },
	{ "redux", dec_redux },
	{ "elect", dec_elect },
	{ "activemask", dec_activemask },
	{ "bar", dec_bar },
	{ "barrier", dec_bar },
	{ NULL, NULL },
};
