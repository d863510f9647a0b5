/* decode_tex.c - tex, tld4, txq, suld, sust, sured, suq with handles in registers (unified mode).
 */
#include "softgpu/decode.h"
#include "softgpu/tex.h"

#include <string.h>

static const struct {
	const char *name;
	uint8_t geom, dims, coords; /* coords: with the layer, without padding */
	bool layered;
} geoms[] = {
	{ "1d", SG_G_1D, 1, 1, false },
	{ "2d", SG_G_2D, 2, 2, false },
	{ "3d", SG_G_3D, 3, 3, false },
	{ "a1d", SG_G_A1D, 1, 2, true },
	{ "a2d", SG_G_A2D, 2, 3, true },
	{ "cube", SG_G_CUBE, 3, 3, false },
	{ "acube", SG_G_ACUBE, 3, 4, true },
};

static uint32_t geom_of(const struct ptx_insn *p, struct sg_tex *t)
{
	for (uint32_t i = 0; i < p->n_mods; i++)
		for (size_t k = 0; k < sizeof(geoms) / sizeof(geoms[0]); k++) {
			if (strcmp(p->mods[i], geoms[k].name))
				continue;
			t->geom = geoms[k].geom;
			t->dims = geoms[k].dims;
			t->layered = geoms[k].layered;
			return geoms[k].coords;
		}
	return 0;
}

/* n registers of an operand that is one register or a vector (which may have more). */
static enum sg_decoded vector(struct sg_dec *c, const struct ptx_operand *o, uint32_t n, char cls,
	bool written, uint32_t *out)
{
	const struct ptx_operand *sub = o->kind == PTX_OPERAND_VECTOR ? o->sub : o;
	if ((o->kind == PTX_OPERAND_VECTOR ? o->n_sub : 1) < n)
		return DEC_UNSUPPORTED;
	for (uint32_t i = 0; i < n; i++)
		TRY(written ? sg_dec_dst(c, &sub[i], cls, &out[i])
			    : sg_dec_src(c, &sub[i], cls, &out[i]));
	return DEC_OK;
}

/* [handle, coordinates] */
static enum sg_decoded where(
	struct sg_dec *c, const struct ptx_operand *o, struct sg_tex *t, uint32_t n)
{
	char cls = t->whole ? '4' : 'f';
	if (o->kind != PTX_OPERAND_MULTI || o->n_sub != 2)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_src(c, &o->sub[0], '8', &t->handle));
	const struct ptx_operand *v = &o->sub[1];
	if (!t->layered)
		return vector(c, v, n, cls, false, t->coord);
	if (v->kind != PTX_OPERAND_VECTOR || v->n_sub < n)
		return DEC_UNSUPPORTED;
	TRY(sg_dec_src(c, &v->sub[0], '4', &t->coord[0]));
	for (uint32_t i = 1; i < n; i++)
		TRY(sg_dec_src(c, &v->sub[i], cls, &t->coord[i]));
	return DEC_OK;
}

static struct sg_tex *new_tex(struct sg_dec *c, struct sg_insn *in)
{
	struct sg_tex *t = arena_alloc(c->arena, sizeof(*t));
	if (t) {
		memset(t, 0, sizeof(*t));
		in->list = (const uint32_t *)(const void *)t;
	}
	return t;
}

static bool component_of(const struct ptx_insn *p, struct sg_tex *t)
{
	static const char *const names[] = { "r", "g", "b", "a" };
	for (uint8_t i = 0; i < 4; i++)
		if (ptx_insn_has_mod(p, names[i])) {
			t->component = i;
			return true;
		}
	return false;
}

static enum sg_decoded dec_tex(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_tex *t = new_tex(c, in);
	uint32_t at = 2;
	if (!t)
		return DEC_INVALID;
	uint32_t n = geom_of(p, t);
	uint8_t coord_type = sg_dec_types(p, &in->type);
	t->mode = !strcmp(p->base, "tld4")       ? SG_T_GATHER
		  : ptx_insn_has_mod(p, "level") ? SG_T_LEVEL
		  : ptx_insn_has_mod(p, "grad")  ? SG_T_GRAD
						 : SG_T_BASE;
	t->whole = coord_type == T_S32;
	if (!n || p->n_operands < 2 || (!t->whole && coord_type != T_F32) ||
		(t->mode == SG_T_GATHER && !component_of(p, t)))
		return DEC_UNSUPPORTED;
	bool half = in->type == T_F16X2;
	if (in->type != T_F32 && in->type != T_S32 && in->type != T_U32 && in->type != T_F16 &&
		!half)
		return DEC_UNSUPPORTED;
	t->n = half ? 2 : 4;
	if (ptx_insn_has_mod(p, half ? "v2" : "v4") != 1)
		return DEC_UNSUPPORTED;
	in->fn = sg_tex;
	TRY(vector(c, &p->operands[0], t->n, in->type == T_F16 ? '2' : '4', true, t->data));
	TRY(where(c, &p->operands[1], t, n));
	if (t->mode == SG_T_LEVEL && at < p->n_operands)
		TRY(sg_dec_src(c, &p->operands[at++], t->whole ? '4' : 'f', &t->lod));
	else if (t->mode == SG_T_LEVEL)
		return DEC_UNSUPPORTED;
	if (t->mode == SG_T_GRAD) {
		if (p->n_operands < 4)
			return DEC_UNSUPPORTED;
		TRY(vector(c, &p->operands[at++], t->dims, 'f', false, t->dx));
		TRY(vector(c, &p->operands[at++], t->dims, 'f', false, t->dy));
	}
	if (at < p->n_operands && p->operands[at].kind == PTX_OPERAND_VECTOR &&
		t->geom < SG_G_CUBE) {
		t->has_offset = true;
		TRY(vector(c, &p->operands[at++], t->dims, '4', false, t->offset));
	}
	return at == p->n_operands ? DEC_OK : DEC_UNSUPPORTED;
}

static const struct {
	const char *name;
	uint8_t query;
} queries[] = { { "width", SG_Q_WIDTH }, { "height", SG_Q_HEIGHT }, { "depth", SG_Q_DEPTH },
	{ "channel_data_type", SG_Q_DATA_TYPE }, { "channel_order", SG_Q_ORDER },
	{ "normalized_coords", SG_Q_NORMALIZED }, { "array_size", SG_Q_ARRAY_SIZE },
	{ "num_mipmap_levels", SG_Q_LEVELS }, { "filter_mode", SG_Q_FILTER },
	{ "addr_mode_0", SG_Q_ADDRESS_0 }, { "addr_mode_1", SG_Q_ADDRESS_1 },
	{ "addr_mode_2", SG_Q_ADDRESS_2 } };

static enum sg_decoded dec_txq(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	const char *name = p->n_mods > 1 ? p->mods[p->n_mods - 2] : "";
	in->op = 255;
	for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++)
		if (!strcmp(name, queries[i].name))
			in->op = queries[i].query;
	bool level = ptx_insn_has_mod(p, "level");
	if (in->op == 255 || p->n_operands != (level ? 3u : 2u))
		return DEC_UNSUPPORTED;
	in->fn = !strcmp(p->base, "txq") ? sg_txq : sg_suq;
	const struct ptx_operand *o = &p->operands[1];
	if (o->kind != PTX_OPERAND_ADDRESS || !o->name || !o->base_is_reg || o->value)
		return DEC_UNSUPPORTED;
	struct ptx_operand reg = { .kind = PTX_OPERAND_REG, .name = o->name, .component = -1 };
	TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
	TRY(sg_dec_src(c, &reg, '8', &in->a));
	in->has = level;
	return level ? sg_dec_src(c, &p->operands[2], '4', &in->b) : DEC_OK;
}

static enum sg_decoded dec_surface(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	bool load = !strcmp(p->base, "suld"), red = !strcmp(p->base, "sured");
	struct sg_tex *t = new_tex(c, in);
	if (!t)
		return DEC_INVALID;
	uint32_t n = geom_of(p, t);
	in->type = sg_dec_types(p, NULL);
	t->whole = true;
	t->formatted = ptx_insn_has_mod(p, "p");
	t->bytes = (uint8_t)(sg_type_bits(in->type) / 8);
	t->n = ptx_insn_has_mod(p, "v4") ? 4 : ptx_insn_has_mod(p, "v2") ? 2 : 1;
	t->clamp = ptx_insn_has_mod(p, "zero")    ? SG_S_ZERO
		   : ptx_insn_has_mod(p, "clamp") ? SG_S_CLAMP
						  : SG_S_TRAP;
	if (!n || t->geom >= SG_G_CUBE || p->n_operands != 2 || !t->bytes || t->bytes > 8 ||
		t->bytes * t->n > 16 || (load && t->formatted))
		return DEC_UNSUPPORTED;
	in->fn = load ? sg_suld : red ? sg_sured : sg_sust;
	if (red) {
		static const struct {
			const char *name;
			uint8_t op;
		} ops[] = { { "add", SG_A_ADD }, { "min", SG_A_MIN }, { "max", SG_A_MAX },
			{ "and", SG_A_AND }, { "or", SG_A_OR } };
		in->op = 255;
		for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
			if (ptx_insn_has_mod(p, ops[i].name))
				in->op = ops[i].op;
		in->bytes = t->bytes;
		if (t->formatted && in->type != T_B32)
			return DEC_UNSUPPORTED;
		if (in->op == 255 || t->bytes < 4)
			return DEC_UNSUPPORTED;
	}
	const struct ptx_operand *data = &p->operands[load ? 0 : 1],
				 *at = &p->operands[load ? 1 : 0];
	char cls = t->bytes == 8 ? '8' : t->bytes == 2 ? '2' : '4';
	TRY(where(c, at, t, n));
	return vector(c, data, t->n, cls, load, t->data);
}

static enum sg_decoded dec_istypep(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (p->n_operands != 2 || p->n_mods != 1)
		return DEC_UNSUPPORTED;
	in->op = !strcmp(p->mods[0], "texref") ? 0 : !strcmp(p->mods[0], "surfref") ? 1 : 2;
	in->fn = sg_istypep;
	TRY(sg_dec_dst(c, &p->operands[0], 'p', &in->d));
	return sg_dec_src(c, &p->operands[1], '8', &in->a);
}

const struct sg_decoder_row sg_tex_decoders[] = {
	{ "istypep", dec_istypep },
	{ "tex", dec_tex },
	{ "tld4", dec_tex },
	{ "txq", dec_txq },
	{ "suq", dec_txq },
	{ "suld", dec_surface },
	{ "sust", dec_surface },
	{ "sured", dec_surface },
	{ NULL, NULL },
};
