/* decode_mma.c - mma.sync, mma.sp, wmma, ldmatrix, stmatrix, movmatrix. */
#include "softgpu/decode.h"

#include <stdlib.h>
#include <string.h>

static uint8_t matrix_type(const char *name)
{
	static const struct {
		const char *name;
		uint8_t type;
	} more[] = { { "s4", T_S4 }, { "u4", T_U4 }, { "b1", T_PRED }, { "e4m3", T_E4M3X2 },
		{ "e5m2", T_E5M2X2 } };
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++)
		if (!strcmp(name, more[i].name))
			return more[i].type;
	return sg_dec_type(name);
}

static uint8_t matrix_bits(uint8_t type)
{
	if (type == T_E4M3X2 || type == T_E5M2X2)
		return 8;
	return type == T_S4 || type == T_U4 ? 4 : (uint8_t)sg_type_bits(type);
}

/* Rows, columns and depth of "m16n8k16". */
static bool shape_of(const struct ptx_insn *p, uint32_t size[3])
{
	static const char letters[] = "mnk";
	for (uint32_t i = 0; i < p->n_mods; i++) {
		const char *s = p->mods[i];
		char *end;
		int k = 0;
		for (; k < 3 && *s == letters[k]; k++, s = end) {
			size[k] = (uint32_t)strtoul(s + 1, &end, 10);
			if (!size[k] || size[k] > 256)
				break;
		}
		if (k == 3 && !*s)
			return true;
	}
	return false;
}

/* Types in order; .satfinite may be among the other modifiers. */
static uint32_t mma_types(
	const struct ptx_insn *p, uint8_t t[4], struct sg_insn *in, struct sg_mma *m)
{
	static const char *const known[] = { "sync", "aligned", "row", "col", "popc", "mma", "sp",
		"sp::ordered_metadata" };
	static const char *const modes[] = { "rn", "rz", "rm", "rp" };
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		const char *mod = p->mods[i];
		uint8_t type = matrix_type(mod);
		bool ok = mod[0] == 'm';
		if (type && n < 4)
			t[n++] = type, ok = true;
		else if (!strcmp(mod, "satfinite"))
			in->flags |= SG_SAT, ok = true;
		else if (!strcmp(mod, "xor") || !strcmp(mod, "and"))
			m->exclusive = mod[0] == 'x', ok = true;
		for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
			ok |= !strcmp(mod, known[k]);
		for (uint8_t k = 0; k < 4; k++)
			if (!strcmp(mod, modes[k]))
				in->rnd = k, ok = true;
		if (!ok)
			return 0;
	}
	return n;
}

static bool types_agree(const struct sg_insn *in, const struct sg_mma *m)
{
	bool integer = m->type_a < T_F16 || m->type_a == T_PRED;
	uint8_t d = m->type_d, cc = m->type_c;
	if (!m->bits || m->bits != matrix_bits(m->type_b))
		return false;
	if (m->type_a != T_F64 && in->rnd != SG_RN)
		return false;
	if (m->type_a == T_F64)
		return m->type_b == T_F64 && d == T_F64 && cc == T_F64;
	if (integer)
		return m->bits <= 8 && d == T_S32 && cc == T_S32;
	return (d == T_F32 || d == T_F16) && (cc == T_F32 || cc == T_F16) && m->bits >= 8 &&
	       (m->bits == 8 || m->type_a == m->type_b);
}

/* The dense shapes whose fragments follow one rule (exec_mma.c). */
static bool mma_shape(const struct ptx_insn *p, struct sg_mma *m)
{
	uint32_t size[3];
	if (!shape_of(p, size) || size[1] != 8 || (size[0] != 8 && size[0] != 16))
		return false;
	uint32_t e = m->bits == 64 ? 1 : 32u / m->bits, half = size[0] / 8;
	if (size[2] % (4 * e) || size[2] / (4 * e) > 4 || (m->bits != 64 && size[2] / (4 * e) > 2))
		return false;
	/* m8n8k4 of halves has a layout of its own. */
	if (size[0] == 8 && m->bits == 16)
		return false;
	m->rows = (uint8_t)size[0];
	m->cols = 8;
	m->k = (uint16_t)size[2];
	m->n_b = (uint8_t)(size[2] / (4 * e));
	m->n_a = (uint8_t)(m->n_b * half);
	m->n_d = (uint8_t)(m->type_d == T_F16 ? half : 2 * half);
	m->n_c = (uint8_t)(m->type_c == T_F16 ? half : 2 * half);
	return true;
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

/* m8n8k4 of halves */
static enum sg_decoded mma_quad(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in, struct sg_mma *m)
{
	uint32_t *list = arena_array(c->arena, 20, sizeof(*list)), n = 0;
	if (!list)
		return DEC_INVALID;
	for (uint32_t i = 0; i < p->n_mods; i++) {
		bool col = !strcmp(p->mods[i], "col");
		if (!col && strcmp(p->mods[i], "row"))
			continue;
		if (n++)
			m->b_rows = !col;
		else
			m->a_cols = col;
	}
	if (n != 2 || m->type_a != T_F16 || (m->type_d == T_F16 && m->type_c != T_F16))
		return DEC_UNSUPPORTED;
	m->n_d = m->type_d == T_F16 ? 4 : 8;
	m->n_c = m->type_c == T_F16 ? 4 : 8;
	in->fn = sg_mma_quad;
	in->mma = m;
	in->list = list;
	TRY(registers(c, &p->operands[0], m->n_d, m->type_d == T_F16 ? '4' : 'f', true, list));
	TRY(registers(c, &p->operands[1], 2, '4', false, list + m->n_d));
	TRY(registers(c, &p->operands[2], 2, '4', false, list + m->n_d + 2));
	return registers(c, &p->operands[3], m->n_c, m->type_c == T_F16 ? '4' : 'f', false,
		list + m->n_d + 4);
}

/* The lanes of a group of four that have metadata, for a shape: 4, 2 or 1 selections. */
static uint32_t selections(const struct sg_mma *m)
{
	uint32_t chunk = m->bits == 32 ? 2 : m->bits == 4 ? 8 : 4;
	return m->k / chunk == 4 ? 4 : m->k / chunk == 8 ? 2 : m->k / chunk == 16 ? 1 : 0;
}

/* A has as many registers as the dense product of half the depth. */
static bool sparse_shape(const struct ptx_insn *p, struct sg_mma *m)
{
	uint32_t size[3], e = 32u / m->bits;
	if (!shape_of(p, size) || size[0] != 16 || size[1] != 8 || m->bits < 4 || m->bits > 32 ||
		size[2] % (8 * e) || size[2] / (4 * e) > 4)
		return false;
	m->rows = 16;
	m->cols = 8;
	m->k = (uint16_t)size[2];
	m->n_a = m->n_b = (uint8_t)(size[2] / (4 * e));
	m->n_d = m->type_d == T_F16 ? 2 : 4;
	m->n_c = m->type_c == T_F16 ? 2 : 4;
	return p->n_operands == 6 && p->operands[5].kind == PTX_OPERAND_INT &&
	       (uint64_t)p->operands[5].value < selections(m);
}

static enum sg_decoded dec_mma(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_mma *m = arena_alloc(c->arena, sizeof(*m));
	uint32_t *list = arena_array(c->arena, 24, sizeof(*list));
	uint8_t t[4];
	if (!m || !list)
		return DEC_INVALID;
	memset(m, 0, sizeof(*m));
	m->sparse = ptx_insn_has_mod(p, "sp") || ptx_insn_has_mod(p, "sp::ordered_metadata");
	if (p->n_operands != (m->sparse ? 6 : 4) || mma_types(p, t, in, m) != 4)
		return DEC_UNSUPPORTED;
	m->type_d = t[0];
	m->type_a = t[1];
	m->type_b = t[2];
	m->type_c = t[3];
	m->bits = matrix_bits(t[1]);
	if (!types_agree(in, m))
		return DEC_UNSUPPORTED;
	if (!m->sparse && m->bits == 16 && ptx_insn_has_mod(p, "m8n8k4"))
		return mma_quad(c, p, in, m);
	if (!(m->sparse ? sparse_shape(p, m) : mma_shape(p, m)))
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
	TRY(registers(c, &p->operands[3], m->n_c, cc, false, list + m->n_d + m->n_a + m->n_b));
	if (!m->sparse)
		return DEC_OK;
	m->selector = (uint8_t)p->operands[5].value;
	return sg_dec_src(c, &p->operands[4], '4', &list[m->n_d + m->n_a + m->n_b + m->n_c]);
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

static enum sg_decoded dec_movmatrix(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (p->n_operands != 2 || !ptx_insn_has_mod(p, "m8n8") || !ptx_insn_has_mod(p, "trans") ||
		!ptx_insn_has_mod(p, "b16"))
		return DEC_UNSUPPORTED;
	in->fn = sg_movmatrix;
	TRY(sg_dec_dst(c, &p->operands[0], '4', &in->d));
	return sg_dec_src(c, &p->operands[1], '4', &in->a);
}

/* -- wmma ---------------------------------------------------------------------- */

/* What differs with the matrix: its rows and columns, and its layout in memory. */
static bool wmma_matrix(const struct ptx_insn *p, struct sg_insn *in)
{
	uint32_t size[3];
	char which = p->mods[1][0];
	if (!shape_of(p, size) || p->mods[1][1])
		return false;
	uint32_t rows = which == 'b' ? size[2] : size[0], cols = which == 'a' ? size[2] : size[1];
	in->target = rows * cols;
	in->e = cols;
	in->sub = ptx_insn_has_mod(p, "col");
	return size[0] * size[1] <= 256 && in->target <= 1024 && in->target >= 32 &&
	       strchr("abcd", which);
}

/* A or B of four bits or one: lines of `e` elements, along the depth, of which a lane has a word.
 */
static enum sg_decoded wmma_lines(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in, uint8_t type)
{
	char which = p->mods[1][0];
	uint32_t *list = arena_array(c->arena, 1, sizeof(*list));
	bool by_col = in->sub;
	if (!list)
		return DEC_INVALID;
	in->bytes = matrix_bits(type);
	in->e = in->target / 8;
	if (!in->bytes || strcmp(p->mods[0], "load") || (which != 'a' && which != 'b') ||
		by_col != (which == 'b') || in->target * in->bytes != 1024)
		return DEC_UNSUPPORTED;
	in->list = list;
	in->fn = sg_wmma_load_lines;
	TRY(registers(c, &p->operands[0], 1, '4', true, list));
	TRY(sg_dec_address(c, &p->operands[1], in));
	if (p->n_operands == 2)
		return DEC_OK;
	in->has |= 1;
	return sg_dec_src(c, &p->operands[2], '4', &in->c);
}

static enum sg_decoded wmma_memory(
	struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in, bool load)
{
	uint32_t at = load ? 1 : 0;
	const struct ptx_operand *v = &p->operands[load ? 0 : 1];
	uint8_t type = T_NONE;
	if (p->n_operands < 2 || p->n_operands > 3 || !wmma_matrix(p, in))
		return DEC_UNSUPPORTED;
	for (uint32_t i = 2; i < p->n_mods; i++) {
		uint8_t t = matrix_type(p->mods[i]);
		type = t ? t : type;
		if (!strncmp(p->mods[i], "shared", 6))
			in->space = SP_SHARED;
		else if (!strcmp(p->mods[i], "global"))
			in->space = SP_GLOBAL;
	}
	if (matrix_bits(type) < 8)
		return wmma_lines(c, p, in, type);
	in->bytes = (uint8_t)(matrix_bits(type) / 8);
	in->n = v->kind == PTX_OPERAND_VECTOR ? (uint8_t)v->n_sub : 1;
	uint32_t per = in->bytes >= 4 ? 1 : in->bytes ? 4u / in->bytes : 0;
	if (!per || in->n > 8 || in->n * per < in->target / 32)
		return DEC_UNSUPPORTED;
	uint32_t *list = arena_array(c->arena, in->n, sizeof(*list));
	if (!list)
		return DEC_INVALID;
	in->list = list;
	in->fn = load ? sg_wmma_load : sg_wmma_store;
	TRY(registers(c, v, in->n, in->bytes == 8 ? 'd' : '4', load, list));
	TRY(sg_dec_address(c, &p->operands[at], in));
	if (p->n_operands == 2)
		return DEC_OK;
	in->has |= 1;
	return sg_dec_src(c, &p->operands[2], '4', &in->c);
}

static uint8_t count_of(const struct ptx_operand *o)
{
	return o->kind == PTX_OPERAND_VECTOR ? (uint8_t)(o->n_sub > 8 ? 0 : o->n_sub) : 1;
}

static bool enough(uint32_t registers_, uint32_t elements, uint32_t bits)
{
	return registers_ && registers_ * (bits >= 32 ? 1 : 32 / bits) >= elements / 32;
}

static enum sg_decoded wmma_multiply(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	struct sg_mma *m = arena_alloc(c->arena, sizeof(*m));
	uint32_t *list = arena_array(c->arena, 32, sizeof(*list)), size[3];
	uint8_t t[4];
	if (!m || !list)
		return DEC_INVALID;
	memset(m, 0, sizeof(*m));
	uint32_t n = mma_types(p, t, in, m);
	if (p->n_operands != 4 || !shape_of(p, size) || (n != 2 && n != 4))
		return DEC_UNSUPPORTED;
	/* Halves name only the types of D and C. */
	m->type_d = t[0];
	m->type_a = n == 4 ? t[1] : T_F16;
	m->type_b = n == 4 ? t[2] : T_F16;
	m->type_c = t[n - 1];
	m->bits = matrix_bits(m->type_a);
	m->rows = (uint8_t)size[0];
	m->cols = (uint8_t)size[1];
	m->k = (uint16_t)size[2];
	m->n_d = count_of(&p->operands[0]);
	m->n_a = count_of(&p->operands[1]);
	m->n_b = count_of(&p->operands[2]);
	m->n_c = count_of(&p->operands[3]);
	if (!types_agree(in, m) || size[0] * size[1] > 256 || size[0] * size[2] > 1024 ||
		size[1] * size[2] > 1024 || !enough(m->n_a, size[0] * size[2], m->bits) ||
		!enough(m->n_b, size[1] * size[2], m->bits) ||
		!enough(m->n_d, size[0] * size[1], matrix_bits(m->type_d)) ||
		!enough(m->n_c, size[0] * size[1], matrix_bits(m->type_c)))
		return DEC_UNSUPPORTED;
	char ab = m->type_a == T_F64 ? 'd' : '4', d = m->type_d == T_F64 ? 'd' : '4';
	in->fn = sg_wmma_mma;
	in->mma = m;
	in->list = list;
	TRY(registers(c, &p->operands[0], m->n_d, d, true, list));
	TRY(registers(c, &p->operands[1], m->n_a, ab, false, list + m->n_d));
	TRY(registers(c, &p->operands[2], m->n_b, ab, false, list + m->n_d + m->n_a));
	return registers(c, &p->operands[3], m->n_c, d, false, list + m->n_d + m->n_a + m->n_b);
}

static enum sg_decoded dec_wmma(struct sg_dec *c, const struct ptx_insn *p, struct sg_insn *in)
{
	if (p->n_mods < 3)
		return DEC_UNSUPPORTED;
	if (!strcmp(p->mods[0], "mma"))
		return wmma_multiply(c, p, in);
	bool load = !strcmp(p->mods[0], "load");
	return load || !strcmp(p->mods[0], "store") ? wmma_memory(c, p, in, load) : DEC_UNSUPPORTED;
}

const struct sg_decoder_row sg_mma_decoders[] = {
	{ "wmma", dec_wmma },
	{ "mma", dec_mma },
	{ "ldmatrix", dec_ldmatrix },
	{ "stmatrix", dec_stmatrix },
	{ "movmatrix", dec_movmatrix },
	{ NULL, NULL },
};
