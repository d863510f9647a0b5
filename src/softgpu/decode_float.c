/* decode_float.c - float instructions that have no row: every rounding, flush, saturation, 16-bit
 * form. */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

static const struct {
	const char *base;
	uint8_t op, sources;
} ops[] = {
	{ "add", SG_F_ADD, 2 },
	{ "sub", SG_F_SUB, 2 },
	{ "mul", SG_F_MUL, 2 },
	{ "fma", SG_F_FMA, 3 },
	{ "mad", SG_F_FMA, 3 },
	{ "div", SG_F_DIV, 2 },
	{ "rcp", SG_F_RCP, 1 },
	{ "sqrt", SG_F_SQRT, 1 },
	{ "rsqrt", SG_F_RSQRT, 1 },
	{ "sin", SG_F_SIN, 1 },
	{ "cos", SG_F_COS, 1 },
	{ "ex2", SG_F_EX2, 1 },
	{ "lg2", SG_F_LG2, 1 },
	{ "tanh", SG_F_TANH, 1 },
	{ "abs", SG_F_ABS, 1 },
	{ "neg", SG_F_NEG, 1 },
	{ "min", SG_F_MIN, 2 },
	{ "max", SG_F_MAX, 2 },
};

static const struct {
	const char *name;
	uint8_t rnd;
	uint32_t flag;
} mods[] = {
	{ "rn", SG_RN, 0 },
	{ "rz", SG_RZ, 0 },
	{ "rm", SG_RM, 0 },
	{ "rp", SG_RP, 0 },
	{ "ftz", 0, SG_FTZ },
	{ "sat", 0, SG_SAT },
	{ "approx", 0, SG_APPROX },
	{ "full", 0, 0 },
	{ "NaN", 0, SG_NAN },
	{ "xorsign", 0, SG_XORSIGN },
	{ "abs", 0, SG_XORSIGN },
	{ "relu", 0, SG_RELU },
	{ "noftz", 0, 0 },
};

static bool float_mods(const struct ptx_insn *p, struct sg_insn *in)
{
	for (uint32_t i = 0; i < p->n_mods; i++) {
		bool found = sg_dec_type(p->mods[i]) != T_NONE;
		for (size_t k = 0; k < sizeof(mods) / sizeof(mods[0]); k++) {
			if (strcmp(mods[k].name, p->mods[i]))
				continue;
			found = true;
			in->flags |= mods[k].flag;
			if (mods[k].rnd)
				in->rnd = mods[k].rnd;
		}
		if (!found)
			return false;
	}
	return true;
}

static sg_handler handler(struct sg_insn *in)
{
	switch (in->type) {
	case T_F32:
		if (in->op != SG_F_DIV)
			in->flags &= ~(uint32_t)SG_APPROX;
		return sg_float32;
	case T_F64:
		/* Only rcp and rsqrt have a coarse form. */
		if (in->op != SG_F_RCP && in->op != SG_F_RSQRT)
			in->flags &= ~(uint32_t)SG_APPROX;
		else if (in->op == SG_F_RSQRT && !(in->flags & SG_FTZ))
			in->flags &= ~(uint32_t)SG_APPROX;
		in->flags &= ~(uint32_t)SG_FTZ;
		return sg_float64;
	case T_F16:
	case T_F16X2:
	case T_BF16:
	case T_BF16X2:
		return sg_float16;
	default:
		return NULL;
	}
}

static enum sg_decoded dec_float(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	uint32_t sources = 0;
	in->type = sg_dec_types(p, NULL);
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
		if (strcmp(ops[i].base, p->base))
			continue;
		in->op = ops[i].op;
		sources = ops[i].sources;
	}
	in->fn = handler(in);
	if (!float_mods(p, in) || !(in->fn = handler(in)))
		return DEC_UNSUPPORTED;
	/* min and max of three. */
	if (p->n_operands == 4 && sources == 2 && (in->op == SG_F_MIN || in->op == SG_F_MAX) &&
		in->type == T_F32) {
		in->op = in->op == SG_F_MIN ? SG_F_MIN3 : SG_F_MAX3;
		sources = 3;
	}
	if (p->n_operands != sources + 1)
		return DEC_UNSUPPORTED;
	if (!in->flags && (in->type == T_F16 || in->type == T_F16X2)) {
		sg_handler fast = sg_half_fast(in->op, in->type == T_F16X2);
		in->fn = fast ? fast : in->fn;
	}
	char cls = sg_type_class(in->type);
	TRY(sg_dec_dst(c, &p->operands[0], cls, &in->d));
	TRY(sg_dec_src(c, &p->operands[1], cls, &in->a));
	in->b = in->c = in->a;
	if (sources > 1)
		TRY(sg_dec_src(c, &p->operands[2], cls, &in->b));
	if (sources > 2)
		TRY(sg_dec_src(c, &p->operands[3], cls, &in->c));
	return DEC_OK;
}

static enum sg_decoded dec_testp(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	static const char *const names[] = { "finite", "infinite", "number", "notanumber", "normal",
		"subnormal" };
	uint8_t type = sg_dec_types(p, NULL);
	in->sub = 255;
	for (uint8_t i = 0; i < 6; i++)
		if (ptx_insn_has_mod(p, names[i]))
			in->sub = i;
	if (in->sub == 255 || p->n_operands != 2 || (type != T_F32 && type != T_F64))
		return DEC_UNSUPPORTED;
	in->fn = type == T_F32 ? sg_testp32 : sg_testp64;
	TRY(sg_dec_dst(c, &p->operands[0], 'p', &in->d));
	return sg_dec_src(c, &p->operands[1], sg_type_class(type), &in->a);
}

const struct sg_decoder_row sg_float_decoders[] = {
	{ "add", dec_float },
	{ "sub", dec_float },
	{ "mul", dec_float },
	{ "fma", dec_float },
	{ "mad", dec_float },
	{ "div", dec_float },
	{ "rcp", dec_float },
	{ "sqrt", dec_float },
	{ "rsqrt", dec_float },
	{ "sin", dec_float },
	{ "cos", dec_float },
	{ "ex2", dec_float },
	{ "lg2", dec_float },
	{ "tanh", dec_float },
	{ "abs", dec_float },
	{ "neg", dec_float },
	{ "min", dec_float },
	{ "max", dec_float },
	{ "testp", dec_testp },
	{ NULL, NULL },
};
