/* decode_mma.c - mma.sync of dense m16n8 and m8n8k4.f64 shapes, ldmatrix, stmatrix. */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

/* Registers of A and B, and depth, of the m16n8 shapes by bits of an element. */
static const struct {
	const char *shape;
	uint8_t bits, n_a, n_b, k;
} shapes[] = {
	{ "m16n8k8", 16, 2, 1, 8 },
	{ "m16n8k16", 16, 4, 2, 16 },
	{ "m16n8k4", 32, 2, 1, 4 },
	{ "m16n8k8", 32, 4, 2, 8 },
	{ "m16n8k16", 8, 2, 1, 16 },
	{ "m16n8k32", 8, 4, 2, 32 },
	{ "m16n8k32", 4, 2, 1, 32 },
	{ "m16n8k64", 4, 4, 2, 64 },
};

static uint8_t matrix_type(const char *name)
{
	if (!strcmp(name, "s4"))
		return T_S4;
	if (!strcmp(name, "u4"))
		return T_U4;
	return sg_dec_type(name);
}

static uint8_t matrix_bits(uint8_t type)
{
	return type == T_S4 || type == T_U4 ? 4 : (uint8_t)sg_type_bits(type);
}

/* Types of D, A, B, C are the last four of the modifiers; .satfinite may be among the others. */
static bool mma_types(const struct ptx_insn *p, struct sg_mma *m, struct sg_insn *in)
{
	uint8_t t[4] = { 0 };
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		const char *mod = p->mods[i];
		uint8_t type = matrix_type(mod);
		if (type && n < 4)
			t[n++] = type;
		else if (!strcmp(mod, "satfinite"))
			in->flags |= SG_SAT;
		else if (strcmp(mod, "sync") && strcmp(mod, "aligned") && strcmp(mod, "row") &&
			 strcmp(mod, "col") && mod[0] != 'm')
			return false;
	}
	m->type_d = t[0];
	m->type_a = t[1];
	m->type_b = t[2];
	m->type_c = t[3];
	m->bits = matrix_bits(t[1]);
	return n == 4 && m->bits == matrix_bits(t[2]);
}

static bool mma_shape(const struct ptx_insn *p, struct sg_mma *m)
{
	uint8_t acc = m->type_d;
	if (acc == T_F64) {
		m->n_a = m->n_b = 1;
		m->n_d = m->n_c = 2;
		return ptx_insn_has_mod(p, "m8n8k4") && m->type_a == T_F64;
	}
	if ((acc != T_F32 && acc != T_F16 && acc != T_S32) ||
		(acc == T_S32) != (m->type_c == T_S32) || (acc == T_S32) != (m->bits < 16))
		return false;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (shapes[i].bits != m->bits || !ptx_insn_has_mod(p, shapes[i].shape))
			continue;
		m->n_a = shapes[i].n_a;
		m->n_b = shapes[i].n_b;
		m->k = shapes[i].k;
		m->n_d = m->type_d == T_F16 ? 2 : 4;
		m->n_c = m->type_c == T_F16 ? 2 : 4;
		return true;
	}
	return false;
}

static enum sg_decoded registers(struct sg_dec *c, const struct ptx_operand *o, uint32_t n,
	char cls, bool written, uint32_t *list)
{
	const struct ptx_operand *sub = o->kind == PTX_OPERAND_VECTOR ? o->sub : o;
	if ((o->kind == PTX_OPERAND_VECTOR ? o->n_sub : 1) != n)
		return DEC_UNSUPPORTED;
	for (uint32_t i = 0; i < n; i++)
		TRY(written ? sg_dec_dst(c, &sub[i], cls, &list[i])
			    : sg_dec_src(c, &sub[i], cls, &list[i]));
	return DEC_OK;
}

static enum sg_decoded dec_mma(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_mma *m = arena_alloc(c->arena, sizeof(*m));
	uint32_t *list = arena_array(c->arena, 16, sizeof(*list));
	if (!m || !list)
		return DEC_INVALID;
	if (p->n_operands != 4 || !mma_types(p, m, in) || !mma_shape(p, m))
		return DEC_UNSUPPORTED;
	char ab = m->type_d == T_F64 ? 'd' : '4';
	char d = m->type_d == T_F64   ? 'd'
		 : m->type_d == T_F32 ? 'f'
				      : '4',
	     cc = m->type_c == T_F32 ? 'f' : d;
	in->fn = sg_mma;
	in->mma = m;
	in->list = list;
	/* D may share registers with A, B and C: results are written after all is read. */
	TRY(registers(c, &p->operands[0], m->n_d, d, true, list));
	TRY(registers(c, &p->operands[1], m->n_a, ab, false, list + m->n_d));
	TRY(registers(c, &p->operands[2], m->n_b, ab, false, list + m->n_d + m->n_a));
	return registers(c, &p->operands[3], m->n_c, cc, false, list + m->n_d + m->n_a + m->n_b);
}

static enum sg_decoded matrix_copy(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in, bool load)
{
	uint32_t *list = arena_array(c->arena, 4, sizeof(*list));
	if (!list)
		return DEC_INVALID;
	if (p->n_operands != 2 || !ptx_insn_has_mod(p, "m8n8") || !ptx_insn_has_mod(p, "b16"))
		return DEC_UNSUPPORTED;
	in->n = ptx_insn_has_mod(p, "x4") ? 4 : ptx_insn_has_mod(p, "x2") ? 2 : 1;
	in->sub = ptx_insn_has_mod(p, "trans");
	in->list = list;
	in->fn = load ? sg_ldmatrix : sg_stmatrix;
	for (uint32_t i = 0; i < p->n_mods; i++)
		if (!strncmp(p->mods[i], "shared", 6))
			in->space = SP_SHARED;
	TRY(registers(c, &p->operands[load ? 0 : 1], in->n, '4', load, list));
	return sg_dec_address(c, &p->operands[load ? 1 : 0], in);
}

static enum sg_decoded dec_ldmatrix(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	return matrix_copy(c, p, in, true);
}

static enum sg_decoded dec_stmatrix(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	return matrix_copy(c, p, in, false);
}

const struct sg_decoder_row sg_mma_decoders[] = {
	{ "mma", dec_mma },
	{ "ldmatrix", dec_ldmatrix },
	{ "stmatrix", dec_stmatrix },
	{ NULL, NULL },
};
